/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request, from its headers to its answer, as libmicrohttpd drives it: a function is called with the headers, then with
 * each piece of the body, then at the end, and may each time say that it has to wait. What waits holds no thread.
 *
 *   HEADERS ──► IDENTIFYING (a password is checked) ──► ENTERING (too many others) ──► BODY ──► FINISHING ──► answered
 *
 * and from BODY and FINISHING it may wait for a buffer, workers, a commit.
 *
 * Who waits is woken by http_wake(), from any thread; it is then called again as before.
 */
#ifndef VARVE_SERVER_HTTP_REQUEST_H
#define VARVE_SERVER_HTTP_REQUEST_H

#include <microhttpd.h>

#include "base/lock.h"
#include "proto/http_path.h"
#include "server/access.h"
#include "server/byte_builder.h"
#include "server/http_put.h"
#include "server/limits.h"
#include "server/tier_fetch.h"

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_PUT,
    HTTP_DELETE,
    HTTP_PROPFIND,
    HTTP_MKCOL,
    HTTP_OPTIONS,
    HTTP_OTHER
};

/* What a path leads to. PAGE: for people and monitoring. */
enum http_place { HTTP_PLACE_PAGE, HTTP_PLACE_CAS, HTTP_PLACE_AC, HTTP_PLACE_KEY, HTTP_PLACE_NONE };

enum { PAGE_FILE_NAME_BYTES = 129 };

/* A value on its way out: in memory, or a blob. */
struct http_value {
    bool found;
    uint8_t *memory; /* owned; what `data` lies in */
    struct bytes data;
    bool is_blob;
    struct digest blob;
    int64_t written_wall_ns;
    /* What an action result names and is not here; those before missing_at have been asked of the bucket. */
    struct digest *missing; /* owned */
    size_t missing_count, missing_at;
    unsigned checks;
    bool counted;
};

struct http_request {
    struct http *http;                 /* borrowed */
    struct MHD_Connection *connection; /* borrowed */
    struct http_connection *door;      /* borrowed; the same, as others see it */
    enum http_method method;
    enum http_place place;
    char *url; /* owned */
    struct bytes instance;
    struct digest
        digest; /* CAS: its size is unknown at first. AC: of the action. KEY: made of the key */
    struct bytes key;

    /* Who asks. */
    enum { HTTP_HEADERS, HTTP_IDENTIFYING, HTTP_ENTERING, HTTP_BODY, HTTP_FINISHING } stage;
    char *authorization; /* owned */
    struct byte_builder certificate;
    char peer[ACCESS_PEER_BYTES_MAX];
    struct access_question question;
    struct access_caller caller;
    struct limits_ticket ticket;
    int64_t retry_ns; /* when it is refused for a limit */

    /* It has failed, and is answered so at its end. */
    bool failed;
    unsigned int failed_code; /* of HTTP; 0: what suits the status */
    struct status status;

    /* What it works on. */
    bool working; /* workers have it */
    bool worked;
    struct task task;
    struct http_value value;
    struct http_put put;

    /* Of the bucket (server/http_bucket.h). */
    struct tier_want at_bucket;
    enum { HTTP_BUCKET_IDLE, HTTP_BUCKET_ASKED, HTTP_BUCKET_ANSWERED } bucket;
    bool blob_from_bucket; /* it has been asked for the blob that is wanted */

    /* Of the page (server/http_page.h). */
    const struct http_page *page; /* NULL: it is something else */
    char *json;                   /* owned */
    size_t json_length;
    char file_name[PAGE_FILE_NAME_BYTES]; /* what a blob is to be saved as; "": it is not */

    int64_t arrived_ns;
    size_t series;                       /* of its instance in server/instance_metrics.h */
    enum status_code code;               /* what it was answered with, as gRPC has it */
    uint64_t received_bytes, sent_bytes; /* of bodies */

    struct http_request *next, *previous; /* http.c's */

    struct lock lock;
    bool parked; /* guarded by lock, as all below */
    bool busy;   /* somebody works on it who will wake it; else it may be told to give up */
    bool woken;  /* before it was parked */
};

/*
 * With the request's turn, in its callback: true when it is parked now, false when there is nothing to wait for (any more): go on at
 * once.
 */
bool http_park(struct http_request *request);
/*
 * Before it is given to somebody who will call http_wake() once, whatever happens. False when the server stops: then it may not be.
 */
MUST_CHECK bool http_busy(struct http_request *request);
/* Any thread, and with locks held: it may be worth looking again. Nothing to one that somebody works on. */
void http_nudge(struct http_request *request);
/* Any thread: by whom it was given to. */
void http_wake(struct http_request *request);
/* The server stops: who would wait for others' good will has to give up. */
bool http_is_stopping(const struct http_request *request);
/* So many bytes of a body have come or gone, in the request's callbacks. */
void http_moved(struct http_request *request, size_t bytes);
struct http_spools *http_spools(const struct http_request *request);
struct server *http_server(const struct http_request *request);
struct page_state;
void http_page_state(const struct http_request *request, struct page_state *state);

/* A header, or length 0. */
struct bytes http_header(const struct http_request *request, const char *name);

/* ---- answers; each is what the callback returns */

enum MHD_Result http_reply_text(struct http_request *request, unsigned int code, const char *text);
enum MHD_Result http_reply_empty(struct http_request *request, unsigned int code);
/* code 0: what suits the status. */
enum MHD_Result http_reply_failure(struct http_request *request,
                                   unsigned int code,
                                   const struct status *status);
/* Queues and lets go of the response; counts. */
enum MHD_Result http_reply(struct http_request *request,
                           unsigned int code,
                           struct MHD_Response *response);

#endif
