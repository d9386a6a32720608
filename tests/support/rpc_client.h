/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client for tests, on C-core: step by step, so that a test can stop, cancel or go away
 * between any two steps. One thread at a time. Every step has a time limit of its own and fails the
 * test when it is over.
 */
#ifndef VARVE_TESTS_SUPPORT_RPC_CLIENT_H
#define VARVE_TESTS_SUPPORT_RPC_CLIENT_H

#include <grpc/grpc.h>

#include "base/bytes.h"

struct rpc_client {
    grpc_channel *channel;
    grpc_completion_queue *cq;
};

/* grpc_init() has been called. Each client has a connection of its own. */
void rpc_client_open(struct rpc_client *client, int port);
/* The connection goes; calls that are not over end with it. All rpcs must have been ended. */
void rpc_client_close(struct rpc_client *client);

enum { RPC_TEXT_BYTES_MAX = 1024 };

/* One call. Zeroed by rpc_begin(). */
struct rpc {
    struct rpc_client *client;
    grpc_call *call;
    int pending; /* batches in flight */
    bool send_pending, receive_pending, headers_pending;
    bool running; /* the status is not there yet */
    bool sent_ok;
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *received;
    grpc_status_code code; /* once it is over */
    grpc_slice text_slice;
    char text[RPC_TEXT_BYTES_MAX]; /* once it is over */
};

/* timeout_ms 0: no deadline. metadata may be NULL with count 0. */
void rpc_begin_with(struct rpc *rpc,
                    struct rpc_client *client,
                    const char *path,
                    int timeout_ms,
                    grpc_metadata *metadata,
                    size_t metadata_count);
void rpc_begin(struct rpc *rpc, struct rpc_client *client, const char *path);

/* Starts sending a message; and waits until it has left. False when the call is over. */
void rpc_start_send(struct rpc *rpc, struct bytes message);
bool rpc_send(struct rpc *rpc, struct bytes message);
bool rpc_half_close(struct rpc *rpc);

/* The next message: its bytes, to be freed, or NULL when no more come. */
uint8_t *rpc_receive(struct rpc *rpc, size_t *length);

void rpc_cancel(struct rpc *rpc);

/*
 * Waits for the status, throwing away messages that were not received, and lets go of everything.
 */
grpc_status_code rpc_end(struct rpc *rpc);
/*
 * True once the status is there; waits no longer than this. Messages that nobody receives keep it
 * away.
 */
bool rpc_wait_ended(struct rpc *rpc, int timeout_ms);

/* The value of a trailer, or length 0. Before rpc_end(). */
struct bytes rpc_trailer(const struct rpc *rpc, const char *key);

/*
 * A whole unary call. response (may be NULL): freed by the caller. text (may be NULL):
 * RPC_TEXT_BYTES_MAX bytes.
 */
grpc_status_code rpc_unary(struct rpc_client *client,
                           const char *path,
                           struct bytes request,
                           uint8_t **response,
                           size_t *response_length,
                           char *text);

#endif
