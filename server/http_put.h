/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PUT brings, taken in and stored: a blob, an action result, the value of a key. By Content-Length a blob goes straight to
 * the store, as an upload like any other (server/uploads.h); everything whose length or name is not known before its end is
 * spooled first. The answer waits until it is on disk.
 */
#ifndef VARVE_SERVER_HTTP_PUT_H
#define VARVE_SERVER_HTTP_PUT_H

#include "base/buffer_pool.h"
#include "durability/durability.h"
#include "server/flights.h"
#include "server/http_spool.h"
#include "server/uploads.h"
#include "server/workers.h"
#include "server/writer.h"
#include "store/action_record.h"
#include "store/blob_writer.h"

struct http_request;

enum http_sink {
    HTTP_SINK_NONE,   /* thrown away */
    HTTP_SINK_CHECK,  /* hashed: the blob is there already */
    HTTP_SINK_UPLOAD, /* a blob of known size */
    HTTP_SINK_SPOOL,
};

enum http_put_step {
    PUT_BEGIN,
    PUT_STORING_BLOB,  /* a spooled blob goes to the store; workers do it */
    PUT_COMMIT_BLOB,   /* waits for group commit */
    PUT_CLAIM_ACTION,  /* waits for somebody else who writes the same action */
    PUT_COMMIT_ACTION, /* waits for group commit */
    PUT_DONE,
};

enum { HTTP_POINTER_BYTES_MAX = DIGEST_TEXT_BYTES_MAX + 32 };

struct http_put {
    enum http_sink sink;
    enum http_put_step step;
    uint64_t received_bytes;      /* as they came */
    struct zstd_decoder *decoder; /* owned; NULL: it is plain */
    struct hasher *hasher;        /* owned: CHECK */
    struct http_spool spool;
    struct upload_stream stream;
    bool opened;

    /* A pooled buffer that is waited for; came is guarded by the request's lock. */
    struct buffer_waiter waiter;
    bool waiting;
    struct buffer *came; /* owned */

    /* On the way to the disk. */
    struct blob_writer *writer; /* owned: of what was spooled */
    uint64_t stored_bytes;
    struct digest blob;
    struct task task;
    struct record record;
    struct commit_request commit;
    struct status result;
    struct bytes payload[4]; /* fixed part, instance, writer, value */
    struct bytes blob_payload;
    struct bytes value; /* of an action; borrowed from the spool, or from pointer */
    struct flight flight;
    struct flight_waiter flight_waiter;
    bool flying; /* the action is this request's alone */
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    char writer_text[WRITER_BYTES_MAX];
    char pointer[HTTP_POINTER_BYTES_MAX];
};

enum http_turn { HTTP_GO_ON, HTTP_WAITS, HTTP_FAILED };

/*
 * With the headers. HTTP_FAILED: request->status says why. *answered_early: it is there, and the body need not be sent.
 */
enum http_turn http_put_begin(struct http_request *request, bool *is_there);
/* A piece of the body. HTTP_WAITS: none of it was taken, the request is parked. */
enum http_turn http_put_take(struct http_request *request, struct bytes data);
/* All has come. HTTP_WAITS until HTTP_GO_ON: it is on disk. */
enum http_turn http_put_finish(struct http_request *request);
/* In the end, in whatever state it is. */
void http_put_clear(struct http_request *request);

/* ---- values of /ac/ and of keys, as they are stored */

/*
 * A value is stored as it is, if it is small; else as a blob, and in its place stands a text that names it. value: what was
 * stored. True: it is such a text, and *blob is named.
 */
bool http_value_names_blob(struct bytes value, struct digest *blob);

#endif
