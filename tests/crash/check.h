/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds a server to everything that a journal says: what was acknowledged is there and is read back
 * byte for byte; FindMissingBlobs and reads agree about the rest; nothing broken is there; every
 * acknowledged action result comes back, with outputs that can be read. No load runs meanwhile.
 */
#ifndef VARVE_TESTS_CRASH_CHECK_H
#define VARVE_TESTS_CRASH_CHECK_H

#include "base/status.h"
#include "tests/crash/journal.h"

struct check_settings {
    const char *target; /* borrowed */
    /*
     * Read back at once when they have no more bytes than this together; beyond it the newest, and
     * of the others so many bytes each time, in turn. 0: all. FindMissingBlobs is asked for all in
     * any case.
     */
    uint64_t read_bytes_max;
    size_t *turn; /* where the next check goes on; NULL when read_bytes_max is 0 */
};

struct check_report {
    uint64_t blobs_there; /* acknowledged, as FindMissingBlobs says too */
    uint64_t blobs_read;  /* and compared */
    uint64_t bytes_read;
    uint64_t blobs_found;   /* of those, never acknowledged and yet there; now they must stay */
    uint64_t blobs_missing; /* never acknowledged and not there */
    uint64_t blobs_broken;  /* not there */
    uint64_t actions;
};

/* False with the first thing that is wrong. */
MUST_CHECK bool check_server(struct journal *journal,
                             const struct check_settings *settings,
                             struct check_report *report,
                             struct status *status);

#endif
