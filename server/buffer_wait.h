/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's wait for a pooled buffer: takes one, or has the call woken when one has come. Safe against the call's end at
 * any moment: the buffer that comes too late goes back.
 */
#ifndef VARVE_SERVER_BUFFER_WAIT_H
#define VARVE_SERVER_BUFFER_WAIT_H

#include "base/buffer_pool.h"
#include "base/lock.h"
#include "server/call.h"

/* In the call's memory. A zeroed one is valid: it waits for nothing. */
struct buffer_wait {
    struct call *call;        /* borrowed; NULL: nothing was ever waited for */
    struct buffer_pool *pool; /* borrowed */
    struct buffer_waiter waiter;
    bool waiting; /* of the call's turn */

    struct lock lock;
    struct condition came;
    struct buffer *buffer; /* guarded by lock; owned */
};

/*
 * A buffer, which is then the caller's, or NULL: then park the call and ask again when it is resumed; that may have been for
 * another reason. With the turn.
 */
struct buffer *buffer_wait_take(struct buffer_wait *wait,
                                struct call *call,
                                struct buffer_pool *pool);

/* Ends a wait, if there is one, and gives a buffer back that came. */
void buffer_wait_end(struct buffer_wait *wait);

#endif
