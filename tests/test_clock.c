/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the real clock is the system's two clocks, and that the simulated one, on which other
 * tests rely, moves when it is told to and not otherwise.
 */
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/test_run.h"

static int64_t system_ns(clockid_t id)
{
    struct timespec now;
    ck_assert_int_eq(clock_gettime(id, &now), 0);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

START_TEST(the_real_clock_lies_between_two_looks_at_the_system)
{
    struct clock *clock = clock_real();
    const int64_t monotonic_before = system_ns(CLOCK_MONOTONIC);
    const int64_t monotonic = clock_monotonic_ns(clock);
    ck_assert_int_le(monotonic_before, monotonic);
    ck_assert_int_le(monotonic, system_ns(CLOCK_MONOTONIC));
    const int64_t wall_before = system_ns(CLOCK_REALTIME);
    const int64_t wall = clock_wall_ns(clock);
    ck_assert_int_le(wall_before, wall);
    ck_assert_int_le(wall, system_ns(CLOCK_REALTIME));
}
END_TEST

START_TEST(the_simulated_clock_moves_when_it_is_told_to)
{
    struct clock_sim sim;
    clock_sim_init(&sim, 5000 * NS_PER_S);
    const int64_t start_ns = clock_monotonic_ns(&sim.clock);
    ck_assert_int_gt(start_ns, 0);
    ck_assert_int_eq(clock_monotonic_ns(&sim.clock), start_ns);
    ck_assert_int_eq(clock_wall_ns(&sim.clock), 5000 * NS_PER_S);
    clock_sim_advance(&sim, 7);
    ck_assert_int_eq(clock_monotonic_ns(&sim.clock), start_ns + 7);
    ck_assert_int_eq(clock_wall_ns(&sim.clock), 5000 * NS_PER_S + 7);
    clock_sim_set_wall(&sim, 3);
    ck_assert_int_eq(clock_monotonic_ns(&sim.clock), start_ns + 7);
    ck_assert_int_eq(clock_wall_ns(&sim.clock), 3);
}
END_TEST

START_TEST(simulated_time_does_not_go_back)
{
    struct clock_sim sim;
    clock_sim_init(&sim, 0);
    clock_sim_advance(&sim, -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tests = tcase_create("clock");
    tcase_add_test(tests, the_real_clock_lies_between_two_looks_at_the_system);
    tcase_add_test(tests, the_simulated_clock_moves_when_it_is_told_to);
    tcase_add_test_raise_signal(tests, simulated_time_does_not_go_back, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
