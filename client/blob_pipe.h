/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob from one server to another, in an event loop: ByteStream.Read on one side, ByteStream.Write
 * on the other, and a few MiB between them. The side that is ahead waits for the other.
 *
 * The last message goes out only when every byte has come and their hash is right: a source that lies
 * stores nothing, whatever the destination checks. A Write that goes on from where bytes are no longer
 * held makes the blob be read once more.
 */
#ifndef VARVE_CLIENT_BLOB_PIPE_H
#define VARVE_CLIENT_BLOB_PIPE_H

#include "base/digest.h"
#include "client/connection.h"
#include "client/event_loop.h"

/* No message is asked for while more than this is held; one message of the source comes on top. */
#define BLOB_PIPE_BYTES_MAX (UINT64_C(2) << 20)

enum blob_pipe_side { BLOB_PIPE_SOURCE, BLOB_PIPE_DESTINATION };

struct blob_pipe_request {
    struct digest digest;                /* size above 0 */
    struct client *source, *destination; /* borrowed */
    struct event_loop *loop;             /* borrowed */
    /* Counts of bytes that came and went, with what came and went again; borrowed, may be NULL. */
    uint64_t *received_bytes, *sent_bytes;
    /* Comes once, last, never from inside the start. side: where it failed, when it did. */
    void (*done)(void *argument, const struct status *status, enum blob_pipe_side side);
    void *argument;
};

struct blob_pipe; /* owned by itself, valid until done returns */

/* In the loop's thread. Errors: RESOURCE_EXHAUSTED; then done does not come. */
MUST_CHECK bool blob_pipe_start(const struct blob_pipe_request *request,
                                struct blob_pipe **pipe,
                                struct status *status);

/* done comes with CANCELLED, or with what was there first. In the loop's thread. */
void blob_pipe_cancel(struct blob_pipe *pipe);

#endif
