/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the blobs of a segment that is about to die: moved (appended afresh) or forgotten. Pure: no I/O, no
 * clock. The simulator in bench/ links this file.
 *
 * Segments die oldest first; a blob that was used since it was written is moved, most recently used first, up to a budget, so that
 * the segments behave as well as an exact LRU list (docs/decisions/0003). What was vouched for is moved whatever the budget.
 */
#ifndef VARVE_STORE_EVICT_PLAN_H
#define VARVE_STORE_EVICT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evict_candidate {
    uint64_t bytes;        /* of records that moving would append */
    bool touched;          /* read or found since it was written or last moved */
    uint32_t idle_minutes; /* since it was last touched; only if touched */
    bool move;             /* out */
};

struct evict_budget {
    uint64_t bytes;         /* what may be moved: at most half the segment's bytes */
    uint32_t vouch_minutes; /* what was touched within is moved whatever the budget */
};

struct evict_outcome {
    uint64_t moved_bytes;
    uint64_t vouched_over_budget_bytes; /* moved although the budget was used up */
    uint64_t
        forgotten_touched_bytes; /* touched, but beyond the budget: the cache is too small for its use */
};

/* Decides `move` of each; sorts the array. */
void evict_plan(struct evict_candidate **candidates,
                size_t count,
                const struct evict_budget *budget,
                struct evict_outcome *outcome);

/* Half of what the segment holds. */
static inline uint64_t evict_budget_bytes(uint64_t segment_bytes)
{
    return segment_bytes / 2;
}

#endif
