/* SPDX-License-Identifier: Apache-2.0 */
#include "server/disk_share.h"

#include <inttypes.h>

#include "store/store.h"

#define RESERVE_BYTES_MIN (64 * MIB)
#define RESERVE_BYTES_MAX (10 * GIB)
enum { RESERVE_PER_CENT = 5 };

bool disk_share_capacity(const struct disk_share *share,
                         uint64_t disk_bytes,
                         uint64_t *capacity_bytes,
                         struct status *status)
{
    ASSERT(share->kind != DISK_SHARE_AUTOMATIC);
    *capacity_bytes =
        share->kind == DISK_SHARE_BYTES ? share->amount : disk_bytes / 100 * share->amount;
    if (*capacity_bytes == 0 && share->amount == 0)
        return true;
    return *capacity_bytes >= STORE_CAPACITY_BYTES_MIN ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "option capacity: %" PRIu64 " bytes are less than the %" PRIu64
                       " that a store needs at least (0B takes what the disk has)",
                       *capacity_bytes, STORE_CAPACITY_BYTES_MIN);
}

uint64_t disk_share_reserve(const struct disk_share *share, uint64_t disk_bytes)
{
    if (share->kind == DISK_SHARE_BYTES)
        return share->amount;
    if (share->kind == DISK_SHARE_PER_CENT)
        return disk_bytes / 100 * share->amount;
    uint64_t bytes = disk_bytes / 100 * RESERVE_PER_CENT;
    if (bytes < RESERVE_BYTES_MIN)
        bytes = RESERVE_BYTES_MIN;
    if (bytes > RESERVE_BYTES_MAX)
        bytes = RESERVE_BYTES_MAX;
    return bytes < disk_bytes / 4 ? bytes : disk_bytes / 4;
}
