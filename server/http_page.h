/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page for people: / with its files (server/page/, built in), and what it asks for:
 *
 *   /page/state.json?after=N                 server/page_state.h; who may see /metrics may
 *   /page/lookup.json?instance=NAME&digest=HASH[/SIZE][&as=KIND][&folder=HASH][&offset=N]
 *                                            server/page_lookup.h; the role read in the instance
 *   /page/blob?instance=NAME&digest=HASH[&name=FILE]    the blob, to be saved and never to be shown; likewise
 *
 * Files are open to everybody and say nothing. All that is sent has a content security policy that allows the page's own files
 * alone, so that nothing that a blob, a name or a line of the log holds is ever run.
 */
#ifndef VARVE_SERVER_HTTP_PAGE_H
#define VARVE_SERVER_HTTP_PAGE_H

#include "server/http_request.h"

/* Is the path one of these? Then request->page is set. */
bool http_page_route(struct http_request *request);
bool http_page_is_open(const struct http_request *request); /* needs no role */
bool http_page_needs_store(const struct http_request *request);

/* May the caller? Reads what is asked for; INVALID_ARGUMENT naming what is wrong with it. */
MUST_CHECK bool http_page_check(struct http_request *request, struct status *status);
enum MHD_Result http_page_answer(struct http_request *request);
void http_page_clear(struct http_request *request);

/* Headers of whatever the page is made of. */
void http_page_protect(struct MHD_Response *response);

#endif
