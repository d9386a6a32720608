/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far this node has followed another one, across restarts: DATA/peers/<the uid of its store in hex>, one line, replaced in one
 * step. It may lag behind what is durable here, never run ahead; may be deleted, and everything is looked at again.
 */
#ifndef VARVE_SERVER_PEER_CURSOR_H
#define VARVE_SERVER_PEER_CURSOR_H

#include "store/store.h"

struct peer_cursor {
    uint64_t applied_seq[LANE_COUNT]; /* of the peer's log: dealt with, and durable here */
};

/* All zero when there is none, or it is damaged, which is logged. */
void peer_cursor_load(const struct store *store, uint64_t peer_uid, struct peer_cursor *cursor);
/* Makes DATA/peers if it is not there. Durable on true. */
MUST_CHECK bool peer_cursor_save(const struct store *store,
                                 uint64_t peer_uid,
                                 const struct peer_cursor *cursor,
                                 struct status *status);

#endif
