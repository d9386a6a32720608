/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows which blobs of a dying segment the plan keeps, by small cases, by asking the rules of random ones, and by what
 * share of accesses finds its object in a simulated store that evicts by it: no less than with an exact LRU list.
 */
#include <stdlib.h>

#include "bench/evict_sim.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

enum { CANDIDATES_MAX = 64 };

static struct evict_candidate candidates[CANDIDATES_MAX];
static struct evict_outcome outcome;

static void plan(size_t count, const struct evict_budget *budget)
{
    struct evict_candidate *sorted[CANDIDATES_MAX];
    for (size_t i = 0; i < count; i++)
        sorted[i] = &candidates[i];
    evict_plan(sorted, count, budget, &outcome);
}

static struct evict_candidate used(uint64_t bytes, uint32_t idle_minutes)
{
    return (struct evict_candidate){.bytes = bytes, .touched = true, .idle_minutes = idle_minutes};
}

static struct evict_candidate unused(uint64_t bytes)
{
    return (struct evict_candidate){.bytes = bytes};
}

START_TEST(what_was_not_used_is_never_moved)
{
    const struct evict_budget budget = {.bytes = 1000, .vouch_minutes = 100, .vouched_bytes = 1000};
    candidates[0] = unused(1);
    candidates[1] = used(1, 5000);
    candidates[2] = unused(0);
    plan(3, &budget);
    ck_assert(!candidates[0].move);
    ck_assert(candidates[1].move);
    ck_assert(!candidates[2].move);
    ck_assert_uint_eq(outcome.moved_bytes, 1);
    plan(0, &budget);
    ck_assert_uint_eq(outcome.moved_bytes, 0);
}
END_TEST

START_TEST(the_budget_goes_to_what_was_used_last)
{
    const struct evict_budget budget = {.bytes = 100};
    candidates[0] = used(60, 30);
    candidates[1] = used(60, 10);
    candidates[2] = used(30, 20);
    plan(3, &budget);
    ck_assert(!candidates[0].move);
    ck_assert(candidates[1].move);
    ck_assert(candidates[2].move);
    ck_assert_uint_eq(outcome.moved_bytes, 90);
    ck_assert_uint_eq(outcome.forgotten_touched_bytes, 60);
    ck_assert_uint_eq(outcome.forgotten_vouched_bytes, 0);
}
END_TEST

START_TEST(of_those_used_at_the_same_time_the_smaller_are_kept)
{
    const struct evict_budget budget = {.bytes = 100};
    candidates[0] = used(90, 7);
    candidates[1] = used(40, 7);
    candidates[2] = used(50, 7);
    plan(3, &budget);
    ck_assert(!candidates[0].move);
    ck_assert(candidates[1].move);
    ck_assert(candidates[2].move);
}
END_TEST

START_TEST(what_is_vouched_for_is_moved_beyond_the_budget_but_not_beyond_its_own)
{
    struct evict_budget budget = {.bytes = 100, .vouch_minutes = 61, .vouched_bytes = UINT64_MAX};
    for (size_t i = 0; i < 10; i++)
        candidates[i] = used(50, (uint32_t)(i * 10));
    plan(10, &budget);
    for (size_t i = 0; i < 10; i++)
        ck_assert_int_eq(candidates[i].move, i <= 6); /* 60 minutes, and 61 are vouched for */
    ck_assert_uint_eq(outcome.over_budget_bytes, 250);
    ck_assert_uint_eq(outcome.forgotten_vouched_bytes, 0);

    budget.vouched_bytes = 200;
    plan(10, &budget);
    for (size_t i = 0; i < 10; i++)
        ck_assert_int_eq(candidates[i].move, i < 4);
    ck_assert_uint_eq(outcome.forgotten_vouched_bytes, 150);
    ck_assert_uint_eq(outcome.forgotten_touched_bytes, 300);
}
END_TEST

/* Whatever there is: the sums are right, no budget is passed, and nobody is kept before a more recent one that would have fit. */
START_TEST(random_plans_keep_the_rules)
{
    struct prng prng = {.state = 5};
    for (int round = 0; round < 20000; round++) {
        const size_t count = prng_below(&prng, CANDIDATES_MAX + 1);
        const struct evict_budget budget = {.bytes = prng_below(&prng, 2000),
                                            .vouch_minutes = (uint32_t)prng_below(&prng, 50),
                                            .vouched_bytes = prng_below(&prng, 4000)};
        for (size_t i = 0; i < count; i++)
            candidates[i] = prng_below(&prng, 3) == 0
                                ? unused(prng_below(&prng, 300))
                                : used(prng_below(&prng, 300), (uint32_t)prng_below(&prng, 100));
        plan(count, &budget);
        uint64_t moved = 0;
        uint64_t plain = 0;
        for (size_t i = 0; i < count; i++) {
            const struct evict_candidate *a = &candidates[i];
            ck_assert(a->touched || !a->move);
            moved += a->move ? a->bytes : 0;
            plain += a->move && a->idle_minutes >= budget.vouch_minutes ? a->bytes : 0;
            for (size_t k = 0; k < count && !a->move && a->touched; k++) {
                const struct evict_candidate *b = &candidates[k];
                if (b->move && b->idle_minutes > a->idle_minutes)
                    ck_assert_uint_lt(b->bytes, a->bytes); /* it filled what was left */
            }
        }
        ck_assert_uint_eq(moved, outcome.moved_bytes);
        ck_assert_uint_le(plain, budget.bytes);
        ck_assert_uint_le(moved, budget.bytes > budget.vouched_bytes ? budget.bytes
                                                                     : budget.vouched_bytes);
    }
}
END_TEST

START_TEST(the_budget_that_is_left_is_carried_over_up_to_some_segments)
{
    ck_assert_uint_eq(evict_budget_bytes(100, 0), 50);
    uint64_t carried = 0;
    carried = evict_carry_bytes(100, carried, 20);
    ck_assert_uint_eq(carried, 30);
    ck_assert_uint_eq(evict_budget_bytes(100, carried), 80);
    carried = evict_carry_bytes(100, carried, 80);
    ck_assert_uint_eq(carried, 0);
    carried = evict_carry_bytes(100, carried, 99); /* vouched for, beyond the budget */
    ck_assert_uint_eq(carried, 0);
    for (int i = 0; i < 100; i++)
        carried = evict_carry_bytes(100, carried, 0);
    ck_assert_uint_eq(carried, EVICT_CARRIED_SEGMENTS_MAX * 100);
}
END_TEST

START_TEST(vouch_time_is_counted_in_whole_minutes_upwards)
{
    const int64_t second_ns = 1000000000;
    ck_assert_uint_eq(evict_vouch_minutes(0), 0);
    ck_assert_uint_eq(evict_vouch_minutes(1), 2);
    ck_assert_uint_eq(evict_vouch_minutes(60 * second_ns), 2);
    ck_assert_uint_eq(evict_vouch_minutes(3600 * second_ns), 61);
}
END_TEST

/* ---- against LRU: what bench/evict_sim.c shows at full size, at a tenth of it */

enum { SCALE = 10, SEGMENTS = 64 };
/* The oldest segment is always being emptied, one is being filled: 2 % of the capacity that LRU has and we have not. */
static const double clearly_below = 0.015;

static void compare(struct sim_trace *trace)
{
    static const unsigned per_cent[] = {10, 20, 40};
    for (size_t i = 0; i < ARRAY_LENGTH(per_cent); i++) {
        const uint64_t capacity = trace->footprint_bytes / 100 * per_cent[i];
        const struct sim_result fifo = sim_run_segments(trace, SIM_FIFO, capacity, SEGMENTS, SCALE);
        const struct sim_result lru = sim_run_lru(trace, capacity);
        const struct sim_result ours = sim_run_segments(trace, SIM_PLAN, capacity, SEGMENTS, SCALE);
        ck_assert_msg(sim_hit_rate(&ours) > sim_hit_rate(&lru) - clearly_below,
                      "%u %%: %.3f, and LRU has %.3f", per_cent[i], sim_hit_rate(&ours),
                      sim_hit_rate(&lru));
        ck_assert_msg(sim_hit_rate(&ours) > sim_hit_rate(&fifo), "%u %%: %.3f, and FIFO has %.3f",
                      per_cent[i], sim_hit_rate(&ours), sim_hit_rate(&fifo));
        ck_assert_double_lt(sim_write_amplification(&ours), 2.5);
    }
    sim_trace_free(trace);
}

START_TEST(hits_are_not_clearly_below_lru_when_some_objects_are_popular)
{
    struct sim_trace trace;
    sim_trace_zipf(&trace, SCALE * 10000, SCALE * 60000, _i == 0 ? 0.8 : 1.0, 11);
    compare(&trace);
}
END_TEST

START_TEST(hits_are_not_clearly_below_lru_when_builds_drift)
{
    struct sim_trace trace;
    sim_trace_builds(&trace, 8, SCALE * 100, 1000, 0.02, (uint64_t)_i + 21);
    compare(&trace);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("evict_plan");
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, what_was_not_used_is_never_moved);
    tcase_add_test(rules, the_budget_goes_to_what_was_used_last);
    tcase_add_test(rules, of_those_used_at_the_same_time_the_smaller_are_kept);
    tcase_add_test(rules, what_is_vouched_for_is_moved_beyond_the_budget_but_not_beyond_its_own);
    tcase_add_test(rules, random_plans_keep_the_rules);
    tcase_add_test(rules, the_budget_that_is_left_is_carried_over_up_to_some_segments);
    tcase_add_test(rules, vouch_time_is_counted_in_whole_minutes_upwards);
    suite_add_tcase(suite, rules);
    TCase *hits = tcase_create("hits");
    tcase_set_timeout(hits, 120);
    tcase_add_loop_test(hits, hits_are_not_clearly_below_lru_when_some_objects_are_popular, 0, 2);
    tcase_add_loop_test(hits, hits_are_not_clearly_below_lru_when_builds_drift, 0, 3);
    suite_add_tcase(suite, hits);
    return test_run(suite);
}
