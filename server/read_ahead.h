/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next piece of a blob that is sent in many: made while the one before leaves, by the worker that has sent it and whose turn
 * is over. At most one at a time.
 *
 *   From      To        On                                    Made by
 *   NONE      MAKING    read_ahead_begin(), before call_send()   the turn
 *   MAKING    MADE      read_ahead_end(), whatever came of it    the thread that began
 *   MADE      NONE      read_ahead_take()                        the turn
 *   any       NONE      read_ahead_free(), which waits for MADE  on_free
 */
#ifndef VARVE_SERVER_READ_AHEAD_H
#define VARVE_SERVER_READ_AHEAD_H

#include "base/buffer_pool.h"
#include "base/lock.h"
#include "server/call.h"

/* Some bytes of a blob, on their way to a message. */
struct piece {
    struct buffer *buffer; /* owned: where data lies, or NULL */
    struct bytes data;
    size_t blob_bytes;    /* what it is when it is not compressed */
    struct status status; /* of making it; unless it is OK there is no buffer */
};

enum read_ahead_state { READ_AHEAD_NONE, READ_AHEAD_MAKING, READ_AHEAD_MADE };

/* In the call's memory. A zeroed one is valid: nothing is made. */
struct read_ahead {
    struct call *call; /* borrowed; NULL: never begun */
    struct lock lock;
    struct condition made;
    enum read_ahead_state state; /* guarded by lock, as what follows */
    bool awaited;
    struct piece piece;
};

/* With the turn, and before it is given up; read_ahead_end() must follow. The state is NONE. */
void read_ahead_begin(struct read_ahead *ahead, struct call *call);
/* Without the turn. Takes the piece over; the call's memory may be gone afterwards. */
void read_ahead_end(struct read_ahead *ahead, const struct piece *piece);

/*
 * With the turn. READ_AHEAD_MADE: the piece is the caller's. READ_AHEAD_MAKING: park the call and ask again when it is resumed.
 * READ_AHEAD_NONE: there is none.
 */
enum read_ahead_state read_ahead_take(struct read_ahead *ahead, struct piece *piece);

/* Gives back what was made. */
void read_ahead_free(struct read_ahead *ahead);

#endif
