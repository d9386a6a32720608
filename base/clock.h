/* SPDX-License-Identifier: Apache-2.0 */
/* The clock seam: what time it is, real or simulated. Time is nanoseconds in int64_t. */
#ifndef VARVE_BASE_CLOCK_H
#define VARVE_BASE_CLOCK_H

#include <stdint.h>

enum { NS_PER_US = 1000, NS_PER_MS = 1000000 };
#define NS_PER_S INT64_C(1000000000)

struct clock {
    int64_t (*monotonic_ns)(struct clock *clock); /* CLOCK_MONOTONIC */
    /* Since the Unix epoch; for logs and stored times only. */
    int64_t (*wall_ns)(struct clock *clock);
};

static inline int64_t clock_monotonic_ns(struct clock *clock)
{
    return clock->monotonic_ns(clock);
}

static inline int64_t clock_wall_ns(struct clock *clock)
{
    return clock->wall_ns(clock);
}

/* Sleeps in real time, whatever the clock says: for pauses that are only kind to the disk. */
void clock_pause(int64_t duration_ns);

/* The real one. Static storage, any thread. */
struct clock *clock_real(void);

#endif
