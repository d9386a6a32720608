/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One unary call in an event loop, tried again after retryable failures as the client's retry
 * policy says.
 */
#ifndef VARVE_CLIENT_UNARY_H
#define VARVE_CLIENT_UNARY_H

#include <grpc/slice.h>

#include "client/call.h"

struct unary; /* owned by itself, valid until done returns */

struct unary_request {
    const char *method;      /* static storage */
    grpc_slice body;         /* handed over */
    struct event_loop *loop; /* borrowed */
    /*
     * Comes once, never from inside unary_start(). reply: owned by the handler, NULL when the
     * status is not OK.
     */
    void (*done)(void *argument, const struct status *status, grpc_byte_buffer *reply);
    void *argument;
};

/* Errors: RESOURCE_EXHAUSTED, and then done is not called. In the loop's thread. */
MUST_CHECK bool unary_start(struct client *client,
                            const struct unary_request *request,
                            struct unary **unary,
                            struct status *status);

/* done comes with CANCELLED, or with what was there first. In the loop's thread. */
void unary_cancel(struct unary *unary);

/*
 * No further try begins: the one in flight may end as it will, and a pause between two tries ends
 * now, with CANCELLED. In the loop's thread.
 */
void unary_stop_trying(struct unary *unary);

/*
 * The same and waits for the end; in a loop of its own. *reply is set on true and owned by the
 * caller. The status tells the method of what failed.
 */
MUST_CHECK bool unary_call(struct client *client,
                           const char *method,
                           grpc_slice body,
                           grpc_byte_buffer **reply,
                           struct status *status);

/*
 * The same with an answer that protobuf-c unpacks: freed by the caller with protobuf_c_message_free_unpacked(). NULL: failed;
 * INTERNAL when the answer is malformed.
 */
struct ProtobufCMessageDescriptor;
void *unary_call_unpacked(struct client *client,
                          const char *method,
                          grpc_slice body,
                          const struct ProtobufCMessageDescriptor *descriptor,
                          struct status *status);

#endif
