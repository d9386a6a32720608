/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One try of one call to a server: unary, client streaming or server streaming. What happens comes
 * as calls of the handlers: in the event loop that was given, or, without one, in the client's
 * network thread (they must not block then).
 *
 *   started ---> (sent | received)* ---> done
 *
 * done comes exactly once, last, when nothing of the call is in flight any more; the call is then
 * gone. Every call has a deadline, so done always comes. Back-pressure: the next message is sent
 * when the one before has been taken (sent), and the next one is asked for when the one before has
 * been worked off (client_call_receive).
 */
#ifndef VARVE_CLIENT_CALL_H
#define VARVE_CLIENT_CALL_H

#include <grpc/byte_buffer.h>

#include "client/connection.h"
#include "client/event_loop.h"

struct client_call; /* owned by the client, valid until done returns */

struct client_call_handlers {
    /*
     * Client streaming: the last message has been taken and there may be another. Not called after
     * an error.
     */
    void (*sent)(void *argument, struct client_call *call);
    /* Server streaming: one message, owned by the handler. */
    void (*received)(void *argument, struct client_call *call, grpc_byte_buffer *message);
    /*
     * reply: the answer, owned by the handler; NULL when the status is not OK, and for server
     * streaming.
     */
    void (*done)(void *argument, const struct status *status, grpc_byte_buffer *reply);
};

struct client_call_options {
    const char *method;      /* "/package.Service/Method", static storage */
    int64_t timeout_ns;      /* above 0 */
    struct event_loop *loop; /* borrowed; NULL: handlers run in the network thread */
    const struct client_call_handlers *handlers; /* borrowed */
    void *argument;
};

/*
 * Each starts a call; request and first message are handed over. *call is set before any handler
 * can run in another thread, and is only good for cancelling and streaming.
 * Threads: any. Errors: RESOURCE_EXHAUSTED, and then no handler is called.
 */
MUST_CHECK bool client_call_unary(struct client *client,
                                  const struct client_call_options *options,
                                  grpc_byte_buffer *request,
                                  struct client_call **call,
                                  struct status *status);

enum client_call_more { CLIENT_CALL_MORE, CLIENT_CALL_LAST };

MUST_CHECK bool client_call_stream_up(struct client *client,
                                      const struct client_call_options *options,
                                      grpc_byte_buffer *first,
                                      enum client_call_more more,
                                      struct client_call **call,
                                      struct status *status);

/* The first message is asked for at once. */
MUST_CHECK bool client_call_stream_down(struct client *client,
                                        const struct client_call_options *options,
                                        grpc_byte_buffer *request,
                                        struct client_call **call,
                                        struct status *status);

/* From `sent` or any time later, one at a time. The message is handed over. */
void client_call_send(struct client_call *call,
                      grpc_byte_buffer *message,
                      enum client_call_more more);

/* From `received` or any time later, one at a time. */
void client_call_receive(struct client_call *call);

/*
 * Ends the call early: done comes with CANCELLED (or with what was there first), no other handler
 * before it. In the thread of the handlers.
 */
void client_call_cancel(struct client_call *call);

/*
 * The bytes of a message as it lies in gRPC's slices; valid as long as the message. Freed with
 * message_view_free(). False when there is no memory.
 */
struct message_view {
    struct bytes *parts; /* owned */
    size_t count;
};
MUST_CHECK bool message_view_init(struct message_view *view, const grpc_byte_buffer *message);
void message_view_free(struct message_view *view);
struct bytes_list message_view_list(const struct message_view *view);

/*
 * The message in one piece, freed with free(); NULL when there is no memory. An empty one is not
 * NULL.
 */
uint8_t *message_flat(const grpc_byte_buffer *message, size_t *length);

#endif
