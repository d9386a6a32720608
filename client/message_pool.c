/* SPDX-License-Identifier: Apache-2.0 */
#include "client/message_pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/buffer_pool.h"

struct message_pool {
    struct buffer_pool *buffers; /* owned */
    _Atomic unsigned references; /* the owner's, and one for each buffer that is out */
};

/*
 * A buffer on its way; freed when gRPC gives it back. pool is stored last and loaded first: gRPC orders the two threads
 * anyway, but not where ThreadSanitizer could see it.
 */
struct message {
    struct message_pool *_Atomic pool; /* a reference of its own */
    struct buffer *buffer;             /* owned */
};

static void message_back(void *argument);

/* Below this a fresh slice costs less than the way through the pool. */
enum { POOLED_BYTES_MIN = 64 * 1024 };

bool message_pool_new(struct message_pool **pool_out, struct status *status)
{
    struct message_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool of messages");
    atomic_init(&pool->references, 1);
    if (!buffer_pool_new(MESSAGE_POOL_BUFFER_BYTES, MESSAGE_POOL_BUFFERS_MAX, &pool->buffers,
                         status)) {
        free(pool);
        return false;
    }
    *pool_out = pool;
    return true;
}

void message_pool_unref(struct message_pool *pool)
{
    if (pool == NULL || atomic_fetch_sub(&pool->references, 1) > 1)
        return;
    buffer_pool_free(pool->buffers);
    free(pool);
}

grpc_slice message_pool_take(struct message_pool *pool, size_t length)
{
    if (length < POOLED_BYTES_MIN || length > MESSAGE_POOL_BUFFER_BYTES)
        return grpc_slice_malloc(length);
    struct buffer *buffer = buffer_pool_try_take(pool->buffers);
    if (buffer == NULL)
        return grpc_slice_malloc(length);
    struct message *message = malloc(sizeof(*message));
    if (message == NULL) {
        buffer_release(buffer);
        return grpc_slice_malloc(length);
    }
    atomic_fetch_add(&pool->references, 1);
    message->buffer = buffer;
    atomic_store_explicit(&message->pool, pool, memory_order_release);
    return grpc_slice_new_with_user_data(buffer->data, length, message_back, message);
}

static void message_back(void *argument)
{
    struct message *message = argument;
    struct message_pool *const pool = atomic_load_explicit(&message->pool, memory_order_acquire);
    buffer_release(message->buffer);
    message_pool_unref(pool);
    free(message);
}
