/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of 1 MiB in which the bytes of uploads travel: read into once, handed to gRPC as they are,
 * and used again when it has sent them. So a large file costs neither fresh pages nor a copy in
 * between. When all are out, a message gets memory of its own: who bounds the messages in flight is
 * the sender.
 *
 * gRPC may keep the last messages of a call beyond its end: the pool lives until the last one of
 * them is back.
 */
#ifndef VARVE_CLIENT_MESSAGE_POOL_H
#define VARVE_CLIENT_MESSAGE_POOL_H

#include <grpc/slice.h>

#include "base/status.h"

enum { MESSAGE_POOL_BUFFER_BYTES = 1 << 20, MESSAGE_POOL_BUFFERS_MAX = 40 };

struct message_pool;

/* With one reference, the caller's. RESOURCE_EXHAUSTED. */
MUST_CHECK bool message_pool_new(struct message_pool **pool, struct status *status);
void message_pool_unref(struct message_pool *pool); /* NULL is fine */

/*
 * A slice of that length to be filled: in a pooled buffer if it fits and one is free. Owned by the
 * caller. Any thread.
 */
grpc_slice message_pool_take(struct message_pool *pool, size_t length);

#endif
