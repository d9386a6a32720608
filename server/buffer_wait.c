/* SPDX-License-Identifier: Apache-2.0 */
#include "server/buffer_wait.h"

static struct buffer *take_what_came(struct buffer_wait *wait);
static struct buffer *await_what_comes(struct buffer_wait *wait);
static void ready(struct buffer_waiter *waiter, struct buffer *buffer);

struct buffer *buffer_wait_take(struct buffer_wait *wait,
                                struct call *call,
                                struct buffer_pool *pool)
{
    if (wait->waiting)
        return take_what_came(wait);

    struct buffer *buffer = buffer_pool_try_take(pool);
    if (buffer)
        return buffer;
    if (!wait->call) {
        wait->call = call;
        wait->pool = pool;
        lock_init(&wait->lock, LOCK_RANK_CALL);
        condition_init(&wait->came);
    }
    wait->waiter = (struct buffer_waiter){.ready = ready};
    /* Given up by whoever takes the waiter out of the pool's queue. */
    call_ref(call);
    wait->waiting = true;
    buffer = buffer_pool_take(pool, &wait->waiter);
    if (buffer) {
        wait->waiting = false;
        call_unref(call);
    }
    return buffer;
}

static struct buffer *take_what_came(struct buffer_wait *wait)
{
    lock_acquire(&wait->lock);
    struct buffer *const buffer = wait->buffer;
    wait->buffer = NULL;
    lock_release(&wait->lock);
    wait->waiting = buffer == NULL;
    return buffer;
}

void buffer_wait_end(struct buffer_wait *wait)
{
    if (!wait->call)
        return;
    if (wait->waiting && buffer_pool_cancel(wait->pool, &wait->waiter))
        call_unref(wait->call);
    else if (wait->waiting)
        buffer_release(await_what_comes(wait));
    condition_destroy(&wait->came);
    lock_destroy(&wait->lock);
    *wait = (struct buffer_wait){0};
}

/* It is out of the queue: somebody is calling ready() at this moment or has done so. */
static struct buffer *await_what_comes(struct buffer_wait *wait)
{
    lock_acquire(&wait->lock);
    while (!wait->buffer)
        condition_wait(&wait->came, &wait->lock);
    struct buffer *const buffer = wait->buffer;
    lock_release(&wait->lock);
    return buffer;
}

/* After the lock is released the wait may be gone; the call is not, since the reference is ours now. */
static void ready(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct buffer_wait *const wait = CONTAINER_OF(waiter, struct buffer_wait, waiter);
    struct call *const call = wait->call;
    lock_acquire(&wait->lock);
    wait->buffer = buffer;
    condition_signal(&wait->came);
    lock_release(&wait->lock);
    call_wake(call);
    call_unref(call);
}
