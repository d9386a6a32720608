/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal buffers for chunks, a bounded number of them. An empty pool is back-pressure, not an error:
 * who asks is queued and called back in order, and stops reading from its client meanwhile.
 *
 * Buffers are made on first need (huge pages advised, touched once) and kept for the life of the
 * pool.
 */
#ifndef VARVE_BASE_BUFFER_POOL_H
#define VARVE_BASE_BUFFER_POOL_H

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/status.h"

struct buffer_pool;

/* One buffer. `data` has the pool's buffer_bytes, aligned to 4096. Owned by whoever took it. */
struct buffer {
    uint8_t *data;
    size_t capacity_bytes;
    struct buffer_pool *pool; /* borrowed: where it goes back to */
    struct buffer *next;      /* for the pool while it is free, for the owner otherwise */
};

/*
 * Somebody who waits for a buffer; memory of the asker, untouched until `ready` is called or
 * cancelled.
 */
struct buffer_waiter {
    /*
     * Called once, on the thread that gives a buffer back and holding no lock; `buffer` is now
     * owned by the waiter.
     */
    void (*ready)(struct buffer_waiter *waiter, struct buffer *buffer);
    struct buffer_waiter *next, *previous; /* the pool's */
    bool queued;                           /* the pool's */
};

MUST_CHECK bool buffer_pool_new(size_t buffer_bytes,
                                size_t buffers_max,
                                struct buffer_pool **pool,
                                struct status *status);
void buffer_pool_free(
    struct buffer_pool *pool); /* asserts that all buffers are back and nobody waits */

/*
 * Waits, `patience_ns` at most, until no buffer is out: for those that a library gives back on a thread of its own
 * and when it likes. False if some still are. Any thread, one at a time; holding no lock.
 */
bool buffer_pool_await_all(struct buffer_pool *pool, int64_t patience_ns);

/* A buffer, or NULL when the pool is empty (or memory is). Any thread. */
struct buffer *buffer_pool_try_take(struct buffer_pool *pool);

/* A buffer at once, or NULL and the waiter is queued, first come first served. Any thread. */
struct buffer *buffer_pool_take(struct buffer_pool *pool, struct buffer_waiter *waiter);

/*
 * True if the waiter was still queued and will not be called; false if it has been or is being
 * called.
 */
bool buffer_pool_cancel(struct buffer_pool *pool, struct buffer_waiter *waiter);

/* Gives a buffer back; NULL is fine. May call a waiter. Any thread. */
void buffer_release(struct buffer *buffer);

size_t buffer_pool_in_use(struct buffer_pool *pool);
size_t buffer_pool_max(const struct buffer_pool *pool);

#endif
