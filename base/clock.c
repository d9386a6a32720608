/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

#include "base/compiler.h"

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    ASSERT(clock_gettime(id, &now) == 0);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t real_monotonic_ns(struct clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t real_wall_ns(struct clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_REALTIME);
}

struct clock *clock_real(void)
{
    static struct clock real = {.monotonic_ns = real_monotonic_ns, .wall_ns = real_wall_ns};
    return &real;
}

void clock_pause(int64_t duration_ns)
{
    const struct timespec pause = {.tv_sec = duration_ns / NS_PER_S,
                                   .tv_nsec = duration_ns % NS_PER_S};
    if (nanosleep(&pause, NULL) != 0) {
        /* Cut short by a signal: it was only a courtesy. */
    }
}
