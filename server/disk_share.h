/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that may be given as a per cent of the disk, and what they come to on a disk. */
#ifndef VARVE_SERVER_DISK_SHARE_H
#define VARVE_SERVER_DISK_SHARE_H

#include <stdint.h>

#include "base/status.h"

enum disk_share_kind { DISK_SHARE_BYTES, DISK_SHARE_PER_CENT, DISK_SHARE_AUTOMATIC };

struct disk_share {
    enum disk_share_kind kind;
    uint64_t amount; /* bytes, or per cent; not of AUTOMATIC */
};

/* What --capacity comes to; 0: as much as the disk has. INVALID_ARGUMENT when too little comes out of it. */
MUST_CHECK bool disk_share_capacity(const struct disk_share *share,
                                    uint64_t disk_bytes,
                                    uint64_t *capacity_bytes,
                                    struct status *status);

/*
 * What --reserve comes to. AUTOMATIC: 5 % of the disk, but 64 MiB at least, for what the index on disk writes, and 10 GiB at
 * most; on small disks never more than a quarter.
 */
uint64_t disk_share_reserve(const struct disk_share *share, uint64_t disk_bytes);

#endif
