/* SPDX-License-Identifier: Apache-2.0 */
/* The segments of a store by number, and readers' pins on them. A pinned segment's file stays open and whole. */
#ifndef VARVE_STORE_SEGMENT_SET_H
#define VARVE_STORE_SEGMENT_SET_H

#include "base/lock.h"
#include "store/segment.h"

struct segment_set;

MUST_CHECK bool segment_set_new(struct segment_set **set, struct status *status);
void segment_set_free(
    struct segment_set *set); /* closes and frees all segments; asserts that no pin is left */

/*
 * Takes over the segment, in place of so many bytes that were reserved for it. RESOURCE_EXHAUSTED when memory is used up (then the
 * caller keeps it, and they stay reserved).
 */
MUST_CHECK bool segment_set_add(struct segment_set *set,
                                struct segment *segment,
                                uint64_t reserved_bytes,
                                struct status *status);

/* Pins the segment, or NULL when it is gone or condemned. Any thread. */
struct segment *segment_set_pin(struct segment_set *set, uint64_t number);
void segment_set_unpin(struct segment_set *set, struct segment *segment);
/* Pins the first one of the lane whose number is greater; NULL when there is none. Any thread. */
struct segment *segment_set_pin_next(struct segment_set *set, enum lane lane, uint64_t number);
/* What the files of the lane take whose number is greater, with what is allocated ahead. */
uint64_t segment_set_bytes_behind(struct segment_set *set, enum lane lane, uint64_t number);

/*
 * A segment that is to go: first it is doomed, then, once nobody holds it, emptied, then condemned, and removed once nobody pins it.
 *
 * A hold is for a manifest that names chunks in the segment, from before it is appended until its entry is visible: so
 * whoever empties the segment either sees the entry, or the manifest is refused.
 */
bool segment_set_hold(struct segment_set *set,
                      uint64_t number); /* false: it is doomed, condemned or gone */
void segment_set_let_go(struct segment_set *set, uint64_t number);
void segment_set_doom(struct segment_set *set, struct segment *segment);
void segment_set_spare(struct segment_set *set, struct segment *segment); /* takes it back */
bool segment_set_is_held(struct segment_set *set, const struct segment *segment);

/* No new pins; returns the segment without waiting, or NULL when there is none. */
struct segment *segment_set_condemn(struct segment_set *set, uint64_t number);
bool segment_set_is_pinned(struct segment_set *set, const struct segment *segment);
/* True once nobody pins it; the segment is then out of the set and the caller's. */
bool segment_set_remove(struct segment_set *set, uint64_t number);

size_t segment_set_count(struct segment_set *set);
/* Sizes of all files together, condemned ones and those that room was reserved for included. */
uint64_t segment_set_bytes(struct segment_set *set);
/* Counts a file that is yet to be made, if the sum stays within the limit (0: none). */
bool segment_set_reserve(struct segment_set *set, uint64_t bytes, uint64_t limit_bytes);
/* It could not be made. */
void segment_set_unreserve(struct segment_set *set, uint64_t bytes);
/* No segment below this number will ever be added: a lane makes them one at a time, ascending. */
uint64_t segment_set_settled_below(struct segment_set *set);
/* Notes that a segment's file has another size now. */
void segment_set_resized(struct segment_set *set, struct segment *segment, uint64_t file_bytes);
/* Calls each segment's number in ascending order; copies the list first. NULL terminated by count; freed by the caller. */
MUST_CHECK bool segment_set_numbers(struct segment_set *set,
                                    uint64_t **numbers,
                                    size_t *count,
                                    struct status *status);

#endif
