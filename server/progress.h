/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the server gets on with its work. A process that answers /healthz can still be stuck: a
 * thread that waits for ever, a disk that never ends a sync. Looked at once a second by the
 * maintenance thread; a part is stuck when it had something to do for a limit and did nothing of it.
 * Time in which nobody looked (the process was stopped, the machine slept) does not count.
 *
 * What follows from it: the service manager is told no more that the server is alive and starts it
 * afresh, /healthz says 503, varve_stuck is 1.
 */
#ifndef VARVE_SERVER_PROGRESS_H
#define VARVE_SERVER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/metrics.h"

/*   X(name, what the log calls it, its limit) */
#define PROGRESS_PARTS(X)                                                                          \
    X(POLLERS, "pollers", LIMIT_STUCK_NS)                                                          \
    X(WORKERS, "workers", LIMIT_STUCK_NS)                                                          \
    X(SMALL_LANE, "small_lane", LIMIT_STUCK_DISK_NS)                                               \
    X(LARGE_LANE, "large_lane", LIMIT_STUCK_DISK_NS)

enum progress_part {
#define PROGRESS_PART_ENUM(name, text, limit_ns) PROGRESS_##name,
    PROGRESS_PARTS(PROGRESS_PART_ENUM)
#undef PROGRESS_PART_ENUM
        PROGRESS_PART_COUNT
};

/* What one look sees of a part. */
struct progress_seen {
    bool waits;    /* it has something to do */
    uint64_t done; /* moves whenever it has done some of it */
};

/* Zeroed memory is a valid one. One thread at a time. */
struct progress {
    int64_t looked_ns; /* 0: never */
    struct {
        uint64_t done;
        int64_t still_ns; /* it had something to do and did nothing for so long */
        bool stuck;
    } parts[PROGRESS_PART_COUNT];
};

/*
 * True when no part is stuck. Changes are logged, and METRIC_STUCK is set.
 * seen: PROGRESS_PART_COUNT of them; borrowed for the call.
 */
bool progress_look(struct progress *progress,
                   const struct progress_seen *seen,
                   int64_t now_ns,
                   struct metrics *metrics);

#endif
