/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that stands still until a test advances it. Any thread. */
#ifndef VARVE_TESTS_SIM_CLOCK_SIM_H
#define VARVE_TESTS_SIM_CLOCK_SIM_H

#include <stdatomic.h>

#include "base/clock.h"

/* Give &sim.clock to what is tested. */
struct clock_sim {
    struct clock clock;
    _Atomic int64_t monotonic_ns;
    _Atomic int64_t wall_ns;
};

/* Monotonic time begins at 1 s, wall time at wall_ns. */
void clock_sim_init(struct clock_sim *sim, int64_t wall_ns);

/* Both go forward by duration_ns (>= 0). */
void clock_sim_advance(struct clock_sim *sim, int64_t duration_ns);

/* Somebody sets the clock on the wall, forward or back; monotonic time does not notice. */
void clock_sim_set_wall(struct clock_sim *sim, int64_t wall_ns);

#endif
