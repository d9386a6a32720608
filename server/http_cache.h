/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache over HTTP: [/INSTANCE]/cas/HASH and [/INSTANCE]/ac/HASH as Bazel has it, and /NAME/KEY below the paths of --http-keys.
 * Same store, same limits, same roles as gRPC. docs/protocol.md says what is answered when.
 */
#ifndef VARVE_SERVER_HTTP_CACHE_H
#define VARVE_SERVER_HTTP_CACHE_H

#include "server/http_request.h"

/* Finds out what the path leads to; INVALID_ARGUMENT when it leads nowhere for a reason worth telling. */
MUST_CHECK bool http_cache_route(struct http_request *request, struct status *status);

/* The role that it takes. */
enum method_role http_cache_role(const struct http_request *request);

/* The headers are in and the caller may. Then each piece of the body; then the end, until it is answered. */
enum MHD_Result http_cache_headers(struct http_request *request);
enum MHD_Result http_cache_body(struct http_request *request, const char *data, size_t *length);
enum MHD_Result http_cache_finish(struct http_request *request);
void http_cache_clear(struct http_request *request);

/* The blob that request->digest names, as GET and HEAD of /cas/ answer it. */
enum MHD_Result http_cache_answer_blob(struct http_request *request);

#endif
