/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All buffers lie in one reservation of address space, side by side, so that huge pages serve
 * several of them and nothing is lost between. The memory itself comes when a buffer is first
 * taken; that is the making of a buffer.
 *
 * While somebody waits no buffer is free: whoever gives one back hands it on at once.
 */
#include "base/buffer_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/lock.h"

enum { PAGE_BYTES = 4096 };
static const size_t huge_page_bytes = 2 * MIB;

struct buffer_pool {
    /* Set by buffer_pool_new(), never changed. */
    size_t buffers_max;
    uint8_t *reservation; /* owned */
    size_t reservation_bytes;
    struct buffer *buffers; /* owned; buffers_max of them */

    struct lock lock;
    struct buffer
        *free;     /* guarded by lock; a stack, the last one back is still in the CPU's cache */
    size_t made;   /* guarded by lock; buffers[made] and later were never touched */
    size_t in_use; /* guarded by lock */
    bool awaited;  /* guarded by lock: somebody waits for `returned` */
    struct condition returned;
    struct buffer_waiter *first; /* guarded by lock; borrowed, the queue in order */
    struct buffer_waiter *last;  /* guarded by lock */
};

/*
 * Buffers that a waiter's `ready` gave back on this thread while others waited. They are handed on
 * when it has returned: were it done at once, a long queue of waiters that give back immediately
 * would use up the stack.
 */
static _Thread_local struct buffer *returned_by_ready;
static _Thread_local bool in_ready;

static struct buffer *take_locked(struct buffer_pool *pool, bool *untouched) REQUIRES(pool->lock);
static void touch(struct buffer *buffer);
static void enqueue_locked(struct buffer_pool *pool, struct buffer_waiter *waiter)
    REQUIRES(pool->lock);
static void dequeue_locked(struct buffer_pool *pool, struct buffer_waiter *waiter)
    REQUIRES(pool->lock);
static struct buffer_waiter *give_back(struct buffer *buffer);

bool buffer_pool_new(size_t buffer_bytes,
                     size_t buffers_max,
                     struct buffer_pool **pool,
                     struct status *status)
{
    ASSERT(buffer_bytes > 0 && buffers_max > 0);
    ASSERT(buffer_bytes <= SIZE_MAX - PAGE_BYTES);

    const size_t stride_bytes = (buffer_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    size_t reservation_bytes;
    if (__builtin_mul_overflow(stride_bytes, buffers_max, &reservation_bytes) ||
        __builtin_add_overflow(reservation_bytes, huge_page_bytes, &reservation_bytes))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "buffer pool: %zu buffers of %zu bytes are too many", buffers_max,
                           buffer_bytes);

    struct buffer_pool *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "buffer pool");
    lock_init(&made->lock, LOCK_RANK_BUFFER_POOL);
    condition_init(&made->returned);
    made->buffers_max = buffers_max;
    made->buffers = calloc(buffers_max, sizeof(*made->buffers));
    if (made->buffers == NULL) {
        status_fail_errno(status, ENOMEM, "buffer pool");
        goto fail;
    }
    void *const reservation = mmap(NULL, reservation_bytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reservation == MAP_FAILED) {
        status_fail_errno(status, errno, "buffer pool: reserve %zu bytes", reservation_bytes);
        goto fail;
    }
    made->reservation = reservation;
    made->reservation_bytes = reservation_bytes;

    /* Advice: a kernel without huge pages serves small ones. */
    const uintptr_t misaligned = (uintptr_t)reservation % huge_page_bytes;
    uint8_t *const start = made->reservation + (misaligned == 0 ? 0 : huge_page_bytes - misaligned);
    const int advised = madvise(start, reservation_bytes - huge_page_bytes, MADV_HUGEPAGE);
    (void)advised;

    for (size_t i = 0; i < buffers_max; i++)
        made->buffers[i] = (struct buffer){
            .data = start + i * stride_bytes, .capacity_bytes = buffer_bytes, .pool = made};
    *pool = made;
    return true;

fail:
    buffer_pool_free(made);
    return false;
}

void buffer_pool_free(struct buffer_pool *pool)
{
    if (pool == NULL)
        return;
    ASSERT(pool->in_use == 0);
    ASSERT(pool->first == NULL);
    if (pool->reservation != NULL)
        ASSERT(munmap(pool->reservation, pool->reservation_bytes) == 0);
    condition_destroy(&pool->returned);
    lock_destroy(&pool->lock);
    free(pool->buffers);
    free(pool);
}

bool buffer_pool_await_all(struct buffer_pool *pool, int64_t patience_ns)
{
    lock_acquire(&pool->lock);
    pool->awaited = true;
    bool patient = true;
    while (pool->in_use > 0 && patient)
        patient = condition_wait_for(&pool->returned, &pool->lock, patience_ns);
    pool->awaited = false;
    const bool all = pool->in_use == 0;
    lock_release(&pool->lock);
    return all;
}

struct buffer *buffer_pool_try_take(struct buffer_pool *pool)
{
    bool untouched = false;
    lock_acquire(&pool->lock);
    struct buffer *const buffer = take_locked(pool, &untouched);
    lock_release(&pool->lock);
    if (untouched)
        touch(buffer);
    return buffer;
}

struct buffer *buffer_pool_take(struct buffer_pool *pool, struct buffer_waiter *waiter)
{
    bool untouched = false;
    lock_acquire(&pool->lock);
    struct buffer *const buffer = take_locked(pool, &untouched);
    if (buffer == NULL)
        enqueue_locked(pool, waiter);
    lock_release(&pool->lock);
    if (untouched)
        touch(buffer);
    return buffer;
}

static struct buffer *take_locked(struct buffer_pool *pool, bool *untouched)
{
    struct buffer *buffer = pool->free;
    if (buffer != NULL) {
        pool->free = buffer->next;
        buffer->next = NULL;
    } else if (pool->made < pool->buffers_max) {
        buffer = &pool->buffers[pool->made++];
        *untouched = true;
    } else {
        return NULL;
    }
    pool->in_use++;
    ASSERT(pool->in_use <= pool->made);
    return buffer;
}

/*
 * A first touch costs up to 30 us a page: here, once, and not while a client's bytes arrive. Under
 * no lock.
 */
static void touch(struct buffer *buffer)
{
    volatile uint8_t *const data = buffer->data;
    for (size_t at = 0; at < buffer->capacity_bytes; at += PAGE_BYTES)
        data[at] = 0;
}

bool buffer_pool_cancel(struct buffer_pool *pool, struct buffer_waiter *waiter)
{
    lock_acquire(&pool->lock);
    const bool was_queued = waiter->queued;
    if (was_queued)
        dequeue_locked(pool, waiter);
    lock_release(&pool->lock);
    return was_queued;
}

void buffer_release(struct buffer *buffer)
{
    if (buffer == NULL)
        return;
    while (buffer != NULL) {
        struct buffer_waiter *const waiter = give_back(buffer);
        if (waiter != NULL) {
            in_ready = true;
            waiter->ready(waiter, buffer);
            in_ready = false;
        }
        if (in_ready)
            return;
        buffer = returned_by_ready;
        if (buffer != NULL) {
            returned_by_ready = buffer->next;
            buffer->next = NULL;
        }
    }
}

/* Whom the caller must call with the buffer; NULL when nobody waits or the buffer is put off. */
static struct buffer_waiter *give_back(struct buffer *buffer)
{
    struct buffer_pool *const pool = buffer->pool;
    struct buffer_waiter *waiter = NULL;

    lock_acquire(&pool->lock);
    ASSERT(pool->in_use > 0);
    if (pool->first == NULL) {
        buffer->next = pool->free;
        pool->free = buffer;
        pool->in_use--;
        if (pool->awaited && pool->in_use == 0)
            condition_broadcast(&pool->returned);
    } else if (in_ready) {
        buffer->next = returned_by_ready;
        returned_by_ready = buffer;
    } else {
        buffer->next = NULL;
        waiter = pool->first;
        dequeue_locked(pool, waiter);
    }
    lock_release(&pool->lock);
    return waiter;
}

size_t buffer_pool_in_use(struct buffer_pool *pool)
{
    lock_acquire(&pool->lock);
    const size_t in_use = pool->in_use;
    lock_release(&pool->lock);
    return in_use;
}

size_t buffer_pool_max(const struct buffer_pool *pool)
{
    return pool->buffers_max;
}

static void enqueue_locked(struct buffer_pool *pool, struct buffer_waiter *waiter)
{
    ASSERT(!waiter->queued);
    waiter->queued = true;
    waiter->next = NULL;
    waiter->previous = pool->last;
    if (pool->last != NULL)
        pool->last->next = waiter;
    else
        pool->first = waiter;
    pool->last = waiter;
}

static void dequeue_locked(struct buffer_pool *pool, struct buffer_waiter *waiter)
{
    ASSERT(waiter->queued);
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        pool->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    else
        pool->last = waiter->previous;
    waiter->next = NULL;
    waiter->previous = NULL;
    waiter->queued = false;
}
