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

/* Takes over the segment. RESOURCE_EXHAUSTED when memory is used up (then the caller keeps it). */
MUST_CHECK bool segment_set_add(struct segment_set *set,
                                struct segment *segment,
                                struct status *status);

/* Pins the segment, or NULL when it is gone or condemned. Any thread. */
struct segment *segment_set_pin(struct segment_set *set, uint64_t number);
void segment_set_unpin(struct segment_set *set, struct segment *segment);

/* No new pins; returns the segment without waiting, or NULL when there is none. */
struct segment *segment_set_condemn(struct segment_set *set, uint64_t number);
/* True once nobody pins it; the segment is then out of the set and the caller's. */
bool segment_set_remove(struct segment_set *set, uint64_t number);

size_t segment_set_count(struct segment_set *set);
/* Sizes of all files together, condemned ones included. */
uint64_t segment_set_bytes(struct segment_set *set);
/* Notes that a segment's file has another size now. */
void segment_set_resized(struct segment_set *set, struct segment *segment, uint64_t file_bytes);
/* Calls each segment's number in ascending order; copies the list first. NULL terminated by count; freed by the caller. */
MUST_CHECK bool segment_set_numbers(struct segment_set *set,
                                    uint64_t **numbers,
                                    size_t *count,
                                    struct status *status);

#endif
