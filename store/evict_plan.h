/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the blobs of a segment that is about to die: moved (appended afresh) or forgotten. Pure: no I/O, no
 * clock. The simulator in bench/ links this file.
 *
 * Segments die oldest first; a blob that was used since it was written is moved, most recently used first, up to a budget,
 * so that the segments behave as well as an exact LRU list (bench/README.md). What was vouched for, that is used a moment
 * ago, is moved whatever the budget, up to a second, larger bound.
 */
#ifndef VARVE_STORE_EVICT_PLAN_H
#define VARVE_STORE_EVICT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evict_candidate {
    uint64_t bytes;        /* of records that moving would append */
    uint32_t idle_minutes; /* since it was last used; only if touched */
    bool touched;          /* used since it was written or last moved */
    bool move;             /* out */
};

struct evict_budget {
    uint64_t bytes;         /* what may be moved: evict_budget_bytes() */
    uint32_t vouch_minutes; /* what was used less than so long ago is vouched for; 0: nothing is */
    uint64_t vouched_bytes; /* what may be moved with what is vouched for */
};

struct evict_outcome {
    uint64_t moved_bytes;
    uint64_t over_budget_bytes; /* moved although the budget was used up: vouched for */
    uint64_t
        forgotten_touched_bytes; /* used, but beyond the budget: the store is too small for its use */
    uint64_t forgotten_vouched_bytes; /* of these: vouched for, and yet forgotten */
};

/* Decides `move` of each; sorts the array. */
void evict_plan(struct evict_candidate **candidates,
                size_t count,
                const struct evict_budget *budget,
                struct evict_outcome *outcome);

/*
 * Half of what the segment takes, so that evictions make room for half of what they take at least; and what the ones before
 * left of theirs, up to some segments: a blob that is larger than half a segment lives in several, which go one after the other.
 */
enum { EVICT_CARRIED_SEGMENTS_MAX = 4 };
static inline uint64_t evict_budget_bytes(uint64_t segment_bytes, uint64_t carried_bytes)
{
    return segment_bytes / 2 + carried_bytes;
}

/* What is carried to the next eviction. */
static inline uint64_t evict_carry_bytes(uint64_t segment_bytes,
                                         uint64_t carried_bytes,
                                         uint64_t moved_bytes)
{
    const uint64_t budget_bytes = evict_budget_bytes(segment_bytes, carried_bytes);
    const uint64_t left_bytes = moved_bytes < budget_bytes ? budget_bytes - moved_bytes : 0;
    const uint64_t most_bytes = EVICT_CARRIED_SEGMENTS_MAX * segment_bytes;
    return left_bytes < most_bytes ? left_bytes : most_bytes;
}

/*
 * The same for what is vouched for, when nothing else is to be kept: an eighth of each segment is made free, or the
 * store would copy itself around for ever.
 */
static inline uint64_t evict_strict_budget_bytes(uint64_t segment_bytes)
{
    return segment_bytes / 8 * 7;
}

/*
 * What was used less than so many minutes ago was used within vouch_ns: minutes are counted by their beginnings, so that n
 * minutes may be up to one more.
 */
static inline uint32_t evict_vouch_minutes(int64_t vouch_ns)
{
    const int64_t minute_ns = 60 * INT64_C(1000000000);
    return vouch_ns <= 0 ? 0 : (uint32_t)((vouch_ns + minute_ns - 1) / minute_ns) + 1;
}

#endif
