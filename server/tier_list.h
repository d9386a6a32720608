/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists what blobs the bucket has, a thousand to a request, so that they need not be looked for one by one: once a day, with what an earlier
 * process has listed, a page every TIER_LIST_PAUSE_NS at most, as far as server/tier_known.h has room. A thread of its own. A bucket that fails is asked
 * for the same page again later, and what has been listed stays known.
 */
#ifndef VARVE_SERVER_TIER_LIST_H
#define VARVE_SERVER_TIER_LIST_H

#include "base/metrics.h"
#include "server/tier_known.h"
#include "tier/driver.h"

struct tier_list;

#define TIER_LIST_PAUSE_NS (20 * NS_PER_MS)

struct tier_list_config {
    struct bucket *bucket; /* borrowed, as all pointers here */
    struct tier_known *known;
    struct metrics *metrics;
    const char *prefix;
    int64_t again_ns; /* from the end of a listing to the next; 0: a day */
    int64_t retry_ns; /* after a page that failed; 0: 30 s */
};

MUST_CHECK bool tier_list_start(const struct tier_list_config *config,
                                struct tier_list **list,
                                struct status *status);
/* Begins to stop: no page is asked for any more. NULL is fine. */
void tier_list_ask_to_stop(struct tier_list *list);
/* Waits for its thread, and so for a page that is on its way, unless the bucket has been stopped. NULL is fine. */
void tier_list_stop(struct tier_list *list);

#endif
