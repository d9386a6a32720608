/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves, with a clock that stands still until it is moved, that the breaker opens for an endpoint that fails or hangs and for no
 * other, that one request alone probes it, and that waits grow to a minute and not beyond.
 */
#include "tests/support/test_run.h"
#include "tier/breaker.h"

static int64_t now_ns;
static struct breaker breaker;

static int64_t read_clock(struct clock *unused)
{
    (void)unused;
    return now_ns;
}

static struct clock still = {.monotonic_ns = read_clock, .wall_ns = read_clock};

static void setup(void)
{
    now_ns = 1000 * NS_PER_S;
    breaker_init(&breaker, &still);
}

static void teardown(void)
{
    breaker_destroy(&breaker);
}

/* True when it has changed the state. */
static bool ask(enum breaker_outcome outcome)
{
    struct breaker_pass pass;
    enum breaker_state state;
    ck_assert(breaker_enter(&breaker, &pass));
    const bool changed = breaker_leave(&breaker, pass, outcome, &state);
    ck_assert_int_eq(state, breaker_state(&breaker));
    return changed;
}

static bool is_refused(void)
{
    struct breaker_pass pass;
    return !breaker_enter(&breaker, &pass);
}

static void open_it(void)
{
    for (int i = 0; i < BREAKER_FAILURES_ROW; i++)
        ck_assert(ask(BREAKER_FAILED) == (i == BREAKER_FAILURES_ROW - 1));
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_OPEN);
}

START_TEST(half_that_fail_are_borne_and_more_are_not)
{
    for (int i = 0; i < 100; i++)
        ck_assert(!ask(i % 2 == 0 ? BREAKER_ANSWERED : BREAKER_FAILED));
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_CLOSED);
    ck_assert(ask(BREAKER_FAILED));
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_OPEN);
    ck_assert(is_refused());
}
END_TEST

START_TEST(share_of_few_requests_says_nothing)
{
    for (int i = 0; i < BREAKER_REQUESTS_MIN - 1; i++)
        ck_assert(!ask(i % 3 == 0 ? BREAKER_ANSWERED : BREAKER_FAILED));
    ck_assert(ask(BREAKER_FAILED));
}
END_TEST

START_TEST(failures_of_long_ago_are_forgotten)
{
    for (int i = 0; i < BREAKER_REQUESTS_MIN - 1; i++)
        ck_assert(!ask(i % 3 == 0 ? BREAKER_ANSWERED : BREAKER_FAILED));
    now_ns += BREAKER_SECONDS * NS_PER_S;
    ck_assert(!ask(BREAKER_FAILED));
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_CLOSED);
}
END_TEST

START_TEST(few_requests_that_all_hang_open_it_however_slowly_they_do)
{
    for (int i = 0; i < BREAKER_FAILURES_ROW; i++) {
        ck_assert_int_eq(breaker_state(&breaker), BREAKER_CLOSED);
        ask(BREAKER_FAILED);
        now_ns += 30 * NS_PER_S;
    }
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_OPEN);
}
END_TEST

START_TEST(one_request_probes_and_its_answer_closes_it)
{
    open_it();
    now_ns += BREAKER_WAIT_S_MIN * NS_PER_S - 1;
    ck_assert(is_refused());
    now_ns++;
    struct breaker_pass pass;
    enum breaker_state state;
    ck_assert(breaker_enter(&breaker, &pass));
    ck_assert_int_eq(breaker_state(&breaker), BREAKER_PROBING);
    ck_assert(is_refused());
    ck_assert(breaker_leave(&breaker, pass, BREAKER_ANSWERED, &state));
    ck_assert_int_eq(state, BREAKER_CLOSED);
    /* What failed before is no longer held against it. */
    for (int i = 0; i < BREAKER_FAILURES_ROW - 1; i++)
        ck_assert(!ask(BREAKER_FAILED));
}
END_TEST

START_TEST(waits_double_up_to_a_minute_and_begin_anew_after_an_answer)
{
    const int64_t waits[] = {5, 10, 20, 40, 60, 60};
    open_it();
    for (size_t i = 0; i < ARRAY_LENGTH(waits); i++) {
        now_ns += waits[i] * NS_PER_S - 1;
        ck_assert(is_refused());
        now_ns++;
        if (i + 1 < ARRAY_LENGTH(waits))
            ck_assert(ask(BREAKER_FAILED));
        else
            ck_assert(ask(BREAKER_ANSWERED));
    }
    open_it();
    now_ns += 5 * NS_PER_S;
    ck_assert(ask(BREAKER_ANSWERED));
}
END_TEST

START_TEST(probe_that_we_broke_off_lets_the_next_one_probe)
{
    open_it();
    now_ns += 5 * NS_PER_S;
    ck_assert(!ask(BREAKER_UNKNOWN));
    ck_assert(ask(BREAKER_ANSWERED));
}
END_TEST

START_TEST(request_from_before_a_change_counts_for_nothing)
{
    struct breaker_pass old;
    enum breaker_state state;
    ck_assert(breaker_enter(&breaker, &old));
    open_it();
    ck_assert(!breaker_leave(&breaker, old, BREAKER_ANSWERED, &state));
    ck_assert_int_eq(state, BREAKER_OPEN);
    now_ns += 5 * NS_PER_S;
    struct breaker_pass probe;
    ck_assert(breaker_enter(&breaker, &probe));
    ck_assert(!breaker_leave(&breaker, old, BREAKER_ANSWERED, &state));
    ck_assert_int_eq(state, BREAKER_PROBING);
    ck_assert(breaker_leave(&breaker, probe, BREAKER_FAILED, &state));
    ck_assert_int_eq(state, BREAKER_OPEN);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("breaker");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, half_that_fail_are_borne_and_more_are_not);
    tcase_add_test(all, share_of_few_requests_says_nothing);
    tcase_add_test(all, failures_of_long_ago_are_forgotten);
    tcase_add_test(all, few_requests_that_all_hang_open_it_however_slowly_they_do);
    tcase_add_test(all, one_request_probes_and_its_answer_closes_it);
    tcase_add_test(all, waits_double_up_to_a_minute_and_begin_anew_after_an_answer);
    tcase_add_test(all, probe_that_we_broke_off_lets_the_next_one_probe);
    tcase_add_test(all, request_from_before_a_change_counts_for_nothing);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
