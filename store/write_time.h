/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When something counts as written, or as deleted, here. Of two results of one action the later one stands on every node that hears of
 * both, and so does a result that is later than a deletion. So each such time is later than all that this node has given out and
 * has heard of from others, though its clock may have been set back, or theirs be ahead of it.
 *
 * (I27) Remembered as long as the store is open. After a start the peers tell how late it is for them, with all that they tell.
 *
 * In nanoseconds since 1970. Any thread.
 */
#ifndef VARVE_STORE_WRITE_TIME_H
#define VARVE_STORE_WRITE_TIME_H

#include "store/store.h"

/* What others tell is no later than this, so that there is room behind it. The year 2116. */
#define WRITE_TIME_MAX_NS (INT64_MAX / 2)

/* Now, or just after the latest. No two are the same. */
int64_t write_time_next(struct store *store);
/* Now, or the latest, whichever is later: for telling others. */
int64_t write_time_latest(struct store *store);
/* Somebody has given out this one. One that leaves no room for those that follow is passed over. */
void write_time_heard(struct store *store, int64_t time_ns);

#endif
