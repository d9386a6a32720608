/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the index objects of packs (tier/pack.h) that this and other nodes leave in the bucket, so that it is known which blobs lie in
 * which pack: all that the bucket may have after the first start, from then on those that are new, looked for every few seconds (a request
 * for a thousand, and one for each that is new). How far it has come is kept with what is known.
 *
 * A thread of its own. It looks WINDOW further back than it has come, since numbers are of other nodes' clocks, and objects may become
 * visible late.
 */
#ifndef VARVE_SERVER_TIER_FOLLOW_H
#define VARVE_SERVER_TIER_FOLLOW_H

#include "base/metrics.h"
#include "server/tier_known.h"
#include "tier/driver.h"

struct tier_follow;

struct tier_follow_config {
    struct bucket *bucket; /* borrowed, as the next two */
    struct tier_known *known;
    struct metrics *metrics;
    const char *prefix; /* layout_check_prefix(); borrowed */
    int64_t again_ns;   /* 0: 5 s */
    int64_t retry_ns;   /* 0: 5 s; after a failure */
};

MUST_CHECK bool tier_follow_start(const struct tier_follow_config *config,
                                  struct tier_follow **follow,
                                  struct status *status);
/* Begins to stop; a request under way ends as the bucket lets it. Any thread; NULL is fine. */
void tier_follow_ask_to_stop(struct tier_follow *follow);
void tier_follow_stop(struct tier_follow *follow); /* waits for its thread; NULL is fine */

#endif
