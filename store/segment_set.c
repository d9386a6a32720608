/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_set.h"

#include <stdlib.h>

struct segment_set {
    struct lock lock;
    struct segment **segments; /* guarded by lock; owned; ascending by number */
    size_t count;              /* guarded by lock */
    size_t capacity;           /* guarded by lock */
    uint64_t bytes;            /* guarded by lock; of files */
    uint64_t reserved_bytes;   /* guarded by lock; of files that are being made */
};

static bool add_locked(struct segment_set *set, struct segment *segment, struct status *status)
    REQUIRES(set->lock);
static bool find_locked(struct segment_set *set, uint64_t number, size_t *at) REQUIRES(set->lock);

bool segment_set_new(struct segment_set **set, struct status *status)
{
    struct segment_set *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the segment set");
    lock_init(&made->lock, LOCK_RANK_SEGMENT_SET);
    *set = made;
    return true;
}

void segment_set_free(struct segment_set *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->count; i++) {
        ASSERT(set->segments[i]->pins == 0);
        segment_free(set->segments[i]);
    }
    free(set->segments);
    lock_destroy(&set->lock);
    free(set);
}

bool segment_set_add(struct segment_set *set,
                     struct segment *segment,
                     uint64_t reserved_bytes,
                     struct status *status)
{
    lock_acquire(&set->lock);
    ASSERT(set->reserved_bytes >= reserved_bytes);
    const bool ok = add_locked(set, segment, status);
    if (ok)
        set->reserved_bytes -= reserved_bytes;
    lock_release(&set->lock);
    return ok;
}

static bool add_locked(struct segment_set *set, struct segment *segment, struct status *status)
{
    if (set->count == set->capacity) {
        const size_t capacity = set->capacity == 0 ? 64 : 2 * set->capacity;
        struct segment **grown = realloc(set->segments, capacity * sizeof(struct segment *));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for another segment");
        set->segments = grown;
        set->capacity = capacity;
    }
    size_t at = 0;
    const bool there = find_locked(set, segment->number, &at);
    ASSERT(!there);
    memmove(&set->segments[at + 1], &set->segments[at],
            (set->count - at) * sizeof(struct segment *));
    set->segments[at] = segment;
    set->count++;
    set->bytes += segment->file_bytes;
    return true;
}

/* True and where it is; else where it would go. */
static bool find_locked(struct segment_set *set, uint64_t number, size_t *at)
{
    size_t low = 0;
    size_t high = set->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (set->segments[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return low < set->count && set->segments[low]->number == number;
}

struct segment *segment_set_pin(struct segment_set *set, uint64_t number)
{
    struct segment *segment = NULL;
    size_t at = 0;
    lock_acquire(&set->lock);
    if (find_locked(set, number, &at) && !set->segments[at]->condemned) {
        segment = set->segments[at];
        segment->pins++;
    }
    lock_release(&set->lock);
    return segment;
}

void segment_set_unpin(struct segment_set *set, struct segment *segment)
{
    if (segment == NULL)
        return;
    lock_acquire(&set->lock);
    ASSERT(segment->pins > 0);
    segment->pins--;
    lock_release(&set->lock);
}

struct segment *segment_set_pin_next(struct segment_set *set, enum lane lane, uint64_t number)
{
    struct segment *segment = NULL;
    size_t at = 0;
    lock_acquire(&set->lock);
    for (find_locked(set, number + 1, &at); segment == NULL && at < set->count; at++) {
        if (set->segments[at]->lane == lane && !set->segments[at]->condemned)
            segment = set->segments[at];
    }
    if (segment != NULL)
        segment->pins++;
    lock_release(&set->lock);
    return segment;
}

uint64_t segment_set_bytes_behind(struct segment_set *set, enum lane lane, uint64_t number)
{
    uint64_t bytes = 0;
    size_t at = 0;
    lock_acquire(&set->lock);
    for (find_locked(set, number + 1, &at); at < set->count; at++) {
        if (set->segments[at]->lane == lane)
            bytes += set->segments[at]->file_bytes;
    }
    lock_release(&set->lock);
    return bytes;
}

bool segment_set_hold(struct segment_set *set, uint64_t number)
{
    size_t at = 0;
    lock_acquire(&set->lock);
    const bool ok = find_locked(set, number, &at) && !set->segments[at]->condemned &&
                    !set->segments[at]->doomed;
    if (ok)
        set->segments[at]->holds++;
    lock_release(&set->lock);
    return ok;
}

void segment_set_let_go(struct segment_set *set, uint64_t number)
{
    size_t at = 0;
    lock_acquire(&set->lock);
    const bool there = find_locked(set, number, &at);
    ASSERT(there && set->segments[at]->holds > 0);
    set->segments[at]->holds--;
    lock_release(&set->lock);
}

void segment_set_doom(struct segment_set *set, struct segment *segment)
{
    lock_acquire(&set->lock);
    ASSERT(!segment->doomed && !segment->condemned);
    segment->doomed = true;
    lock_release(&set->lock);
}

void segment_set_spare(struct segment_set *set, struct segment *segment)
{
    lock_acquire(&set->lock);
    ASSERT(segment->doomed && !segment->condemned);
    segment->doomed = false;
    lock_release(&set->lock);
}

bool segment_set_is_held(struct segment_set *set, const struct segment *segment)
{
    lock_acquire(&set->lock);
    const bool held = segment->holds > 0;
    lock_release(&set->lock);
    return held;
}

bool segment_set_is_pinned(struct segment_set *set, const struct segment *segment)
{
    lock_acquire(&set->lock);
    const bool pinned = segment->pins > 0;
    lock_release(&set->lock);
    return pinned;
}

struct segment *segment_set_condemn(struct segment_set *set, uint64_t number)
{
    struct segment *segment = NULL;
    size_t at = 0;
    lock_acquire(&set->lock);
    if (find_locked(set, number, &at)) {
        segment = set->segments[at];
        segment->condemned = true;
    }
    lock_release(&set->lock);
    return segment;
}

bool segment_set_remove(struct segment_set *set, uint64_t number)
{
    bool removed = false;
    size_t at = 0;
    lock_acquire(&set->lock);
    if (find_locked(set, number, &at) && set->segments[at]->pins == 0) {
        set->bytes -= set->segments[at]->file_bytes;
        memmove(&set->segments[at], &set->segments[at + 1],
                (set->count - at - 1) * sizeof(struct segment *));
        set->count--;
        removed = true;
    }
    lock_release(&set->lock);
    return removed;
}

size_t segment_set_count(struct segment_set *set)
{
    lock_acquire(&set->lock);
    const size_t count = set->count;
    lock_release(&set->lock);
    return count;
}

uint64_t segment_set_bytes(struct segment_set *set)
{
    lock_acquire(&set->lock);
    const uint64_t bytes = set->bytes + set->reserved_bytes;
    lock_release(&set->lock);
    return bytes;
}

bool segment_set_reserve(struct segment_set *set, uint64_t bytes, uint64_t limit_bytes)
{
    lock_acquire(&set->lock);
    const bool fits = limit_bytes == 0 || set->bytes + set->reserved_bytes + bytes <= limit_bytes;
    if (fits)
        set->reserved_bytes += bytes;
    lock_release(&set->lock);
    return fits;
}

void segment_set_unreserve(struct segment_set *set, uint64_t bytes)
{
    lock_acquire(&set->lock);
    ASSERT(set->reserved_bytes >= bytes);
    set->reserved_bytes -= bytes;
    lock_release(&set->lock);
}

uint64_t segment_set_settled_below(struct segment_set *set)
{
    uint64_t newest[LANE_COUNT] = {0};
    lock_acquire(&set->lock);
    for (size_t i = 0; i < set->count; i++)
        newest[set->segments[i]->lane] = set->segments[i]->number;
    lock_release(&set->lock);
    return newest[LANE_SMALL] < newest[LANE_LARGE] ? newest[LANE_SMALL] : newest[LANE_LARGE];
}

void segment_set_resized(struct segment_set *set, struct segment *segment, uint64_t file_bytes)
{
    lock_acquire(&set->lock);
    set->bytes = set->bytes - segment->file_bytes + file_bytes;
    segment->file_bytes = file_bytes;
    lock_release(&set->lock);
}

bool segment_set_numbers(struct segment_set *set,
                         uint64_t **numbers,
                         size_t *count,
                         struct status *status)
{
    lock_acquire(&set->lock);
    uint64_t *list = malloc((set->count + 1) * sizeof(*list));
    if (list != NULL) {
        for (size_t i = 0; i < set->count; i++)
            list[i] = set->segments[i]->number;
        *count = set->count;
        *numbers = list;
    }
    lock_release(&set->lock);
    return list != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of segments");
}
