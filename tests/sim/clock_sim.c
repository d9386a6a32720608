/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/clock_sim.h"

#include "base/compiler.h"

static int64_t sim_monotonic_ns(struct clock *clock)
{
    return atomic_load(&CONTAINER_OF(clock, struct clock_sim, clock)->monotonic_ns);
}

static int64_t sim_wall_ns(struct clock *clock)
{
    return atomic_load(&CONTAINER_OF(clock, struct clock_sim, clock)->wall_ns);
}

void clock_sim_init(struct clock_sim *sim, int64_t wall_ns)
{
    sim->clock = (struct clock){.monotonic_ns = sim_monotonic_ns, .wall_ns = sim_wall_ns};
    atomic_init(&sim->monotonic_ns, NS_PER_S);
    atomic_init(&sim->wall_ns, wall_ns);
}

void clock_sim_advance(struct clock_sim *sim, int64_t duration_ns)
{
    ASSERT(duration_ns >= 0);
    atomic_fetch_add(&sim->monotonic_ns, duration_ns);
    atomic_fetch_add(&sim->wall_ns, duration_ns);
}

void clock_sim_set_wall(struct clock_sim *sim, int64_t wall_ns)
{
    atomic_store(&sim->wall_ns, wall_ns);
}
