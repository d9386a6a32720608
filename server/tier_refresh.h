/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in use here is sent to the bucket again before its rule removes it there: each lane's log is gone through once in half the time for
 * which an object counts as young (server/tier_known.h), and what was used in that time and has been in the bucket for longer goes there anew. What is
 * not in use may die.
 *
 * Only a position and a schedule; server/tier_queue.h does the sending, when it has nothing new to send. One thread.
 */
#ifndef VARVE_SERVER_TIER_REFRESH_H
#define VARVE_SERVER_TIER_REFRESH_H

#include "durability/feed.h"
#include "server/tier_known.h"

struct tier_refresh {
    struct store *store;      /* borrowed, as the next */
    struct tier_known *known; /* keeps when the last pass began */
    enum lane lane;
    int64_t period_s; /* 0: nothing is ever removed there, and so nothing is sent again */
    int64_t due_s;    /* when the next pass begins, in seconds since 1970 */
    bool under_way;
    uint64_t after_seq, until_seq; /* of the pass under way */
};

/* The first pass of all begins after a period; later ones go on counting after a restart. */
void tier_refresh_init(struct tier_refresh *refresh,
                       struct store *store,
                       struct tier_known *known,
                       enum lane lane);

/* Is there something to be looked at? Then its lane, position and kinds are set in the query. until_seq: how far the lane is in the bucket. */
bool tier_refresh_wants(struct tier_refresh *refresh, uint64_t until_seq, struct feed_query *query);

/* Leaves in the batch what is to be sent again. */
void tier_refresh_choose(struct tier_refresh *refresh, struct feed_batch *batch);

/* The batch that was asked for was dealt with; NULL: it could not be read, as what was evicted: the pass begins again. */
void tier_refresh_move_on(struct tier_refresh *refresh, const struct feed_batch *batch);

#endif
