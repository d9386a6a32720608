/* SPDX-License-Identifier: Apache-2.0 */
#include "server/read_ahead.h"

void read_ahead_begin(struct read_ahead *ahead, struct call *call)
{
    if (!ahead->call) {
        ahead->call = call;
        lock_init(&ahead->lock, LOCK_RANK_CALL);
        condition_init(&ahead->made);
    }
    call_ref(call);
    lock_acquire(&ahead->lock);
    ASSERT(ahead->state == READ_AHEAD_NONE);
    ahead->state = READ_AHEAD_MAKING;
    ahead->awaited = false;
    lock_release(&ahead->lock);
}

/* After the lock is released the call's memory may be gone; the call is not, since the reference is ours. */
void read_ahead_end(struct read_ahead *ahead, const struct piece *piece)
{
    struct call *const call = ahead->call;
    lock_acquire(&ahead->lock);
    ahead->piece = *piece;
    ahead->state = READ_AHEAD_MADE;
    const bool awaited = ahead->awaited;
    condition_signal(&ahead->made);
    lock_release(&ahead->lock);
    if (awaited)
        call_wake(call);
    call_unref(call);
}

enum read_ahead_state read_ahead_take(struct read_ahead *ahead, struct piece *piece)
{
    if (!ahead->call)
        return READ_AHEAD_NONE;
    lock_acquire(&ahead->lock);
    const enum read_ahead_state state = ahead->state;
    ahead->awaited = state == READ_AHEAD_MAKING;
    if (state == READ_AHEAD_MADE) {
        *piece = ahead->piece;
        ahead->state = READ_AHEAD_NONE;
    }
    lock_release(&ahead->lock);
    return state;
}

void read_ahead_free(struct read_ahead *ahead)
{
    if (!ahead->call)
        return;
    lock_acquire(&ahead->lock);
    while (ahead->state == READ_AHEAD_MAKING)
        condition_wait(&ahead->made, &ahead->lock);
    if (ahead->state == READ_AHEAD_MADE)
        buffer_release(ahead->piece.buffer);
    ahead->state = READ_AHEAD_NONE;
    lock_release(&ahead->lock);
    condition_destroy(&ahead->made);
    lock_destroy(&ahead->lock);
    *ahead = (struct read_ahead){0};
}
