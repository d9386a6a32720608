/* SPDX-License-Identifier: Apache-2.0 */
#include "store/space.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t minus(uint64_t a, uint64_t b);

bool space_is_bounded(const struct space *space)
{
    return space->capacity_bytes != 0 || space->reserve_bytes != 0;
}

int64_t space_left(const struct space *space)
{
    int64_t left = INT64_MAX;
    if (space->capacity_bytes != 0)
        left = minus(space->capacity_bytes,
                     segment_set_bytes(space->segments) + space->headroom_bytes);
    struct io_space disk;
    struct status ignored;
    if (space->reserve_bytes != 0 && io_space(space->io, space->directory, &disk, &ignored)) {
        const int64_t of_disk =
            minus(disk.free_bytes, space->reserve_bytes + space->headroom_bytes);
        left = of_disk < left ? of_disk : left;
    }
    return left;
}

static int64_t minus(uint64_t a, uint64_t b)
{
    return (int64_t)a - (int64_t)b;
}

bool space_has_headroom(const struct space *space, uint64_t bytes)
{
    return space_left(space) >= (int64_t)bytes - (int64_t)space->headroom_bytes;
}

bool space_take(struct space *space, uint64_t bytes, enum space_use use, bool *granted)
{
    *granted = false;
    const uint64_t limit =
        space->capacity_bytes == 0 ? 0 : space->capacity_bytes - space->headroom_bytes;
    if (space_left(space) >= (int64_t)bytes && segment_set_reserve(space->segments, bytes, limit))
        return true;
    if (use == SPACE_WRITE)
        return false;
    int64_t left = atomic_load(&space->granted_bytes);
    do {
        if (left < (int64_t)bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&space->granted_bytes, &left, left - (int64_t)bytes));
    /* The headroom is not there as long as somebody reads what was evicted before. */
    *granted = segment_set_reserve(space->segments, bytes, space->capacity_bytes);
    if (!*granted)
        atomic_fetch_add(&space->granted_bytes, (int64_t)bytes);
    return *granted;
}

void space_not_made(struct space *space, uint64_t bytes, bool granted)
{
    segment_set_unreserve(space->segments, bytes);
    if (granted)
        atomic_fetch_add(&space->granted_bytes, (int64_t)bytes);
}

void space_grant(struct space *space, uint64_t bytes)
{
    atomic_store(&space->granted_bytes, (int64_t)bytes);
    atomic_store(&space->moving, bytes > 0);
}

void space_explain(const struct space *space, uint64_t needed_bytes, struct status *status)
{
    struct io_space disk = {0};
    struct status ignored;
    const bool known = io_space(space->io, space->directory, &disk, &ignored);
    char capacity[40] = "any number of";
    if (space->capacity_bytes != 0)
        snprintf(capacity, sizeof(capacity), "%" PRIu64, space->capacity_bytes);
    status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                "the store is full: segments take %" PRIu64 " of %s bytes, %" PRIu64
                " bytes of the disk are free%s of which %" PRIu64
                " are kept, the next segment needs %" PRIu64
                ", and nothing could be evicted in time",
                segment_set_bytes(space->segments), capacity, disk.free_bytes,
                known ? "" : " (not known)", space->reserve_bytes, needed_bytes);
}
