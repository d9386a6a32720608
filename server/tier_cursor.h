/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a lane's log is in the bucket, across restarts: DATA/tier/small and DATA/tier/large, one line each, replaced in one step. May
 * lag behind what is there, never run ahead; may be deleted, and everything is looked at again.
 */
#ifndef VARVE_SERVER_TIER_CURSOR_H
#define VARVE_SERVER_TIER_CURSOR_H

#include "store/store.h"

/*
 * place: says which bucket it is about, a number of its name. 0 when there is none, it is about another bucket, or it is damaged; the
 * last is logged.
 */
uint64_t tier_cursor_load(const struct store *store, enum lane lane, uint64_t place);
/* Makes DATA/tier if it is not there. Durable on true. */
MUST_CHECK bool tier_cursor_save(const struct store *store,
                                 enum lane lane,
                                 uint64_t place,
                                 uint64_t seq,
                                 struct status *status);

#endif
