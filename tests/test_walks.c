/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that walks hold no more together than the limit and what the oldest of them takes, that none waits for ever, and that who
 * waits is told when it is worth asking again.
 */
#include <signal.h>

#include "server/walks.h"
#include "tests/support/test_run.h"

enum { LIMIT = 100 };

struct walker {
    struct walk walk;
    int woken;
};

static struct walks *walks;

static void wake(struct walk *walk)
{
    CONTAINER_OF(walk, struct walker, walk)->woken++;
}

static void set_up(void)
{
    struct status status = {0};
    ck_assert(walks_new(LIMIT, &walks, &status));
}

static void tear_down(void)
{
    walks_free(walks); /* asserts that nothing is held */
}

static bool hold(struct walker *walker, uint64_t bytes)
{
    walker->walk.wake = wake;
    return walk_hold(walks, &walker->walk, bytes);
}

START_TEST(walks_wait_when_together_they_would_hold_too_much)
{
    struct walker first = {0};
    struct walker second = {0};
    struct walker third = {0};
    ck_assert(hold(&first, 60));
    ck_assert(hold(&second, 40));
    ck_assert(!walks_wait(walks));
    ck_assert(!hold(&third, 1));
    ck_assert(!hold(&third, 1));
    ck_assert(walks_wait(walks));
    walk_keep(&first.walk, 60);
    ck_assert_int_eq(third.woken, 0);
    walk_keep(&first.walk, 50);
    ck_assert_int_eq(third.woken, 1);
    ck_assert(hold(&third, 10));
    ck_assert(!walks_wait(walks));
    walk_end(&first.walk);
    walk_end(&second.walk);
    walk_end(&third.walk);
    walk_end(&third.walk);
}
END_TEST

/* All hold something and want more: without one that may, nobody would ever come to an end. */
START_TEST(walks_that_all_want_more_come_to_their_end_one_after_the_other)
{
    enum { WALKERS = 10, WANTED = 80 };
    struct walker walkers[WALKERS] = {0};
    for (int i = 0; i < WALKERS; i++)
        ck_assert(hold(&walkers[i], LIMIT / WALKERS));
    for (int i = 0; i < WALKERS; i++) {
        for (int j = i + 1; j < WALKERS; j++)
            ck_assert(!hold(&walkers[j], WANTED + LIMIT));
        ck_assert(hold(&walkers[i], WANTED));
        walk_end(&walkers[i].walk);
        for (int j = i + 1; j < WALKERS; j++)
            ck_assert_int_eq(walkers[j].woken, i + 1);
    }
}
END_TEST

START_TEST(a_walk_that_ends_while_it_waits_is_forgotten)
{
    struct walker first = {0};
    struct walker second = {0};
    ck_assert(hold(&first, LIMIT));
    ck_assert(!hold(&second, 1));
    walk_end(&second.walk);
    ck_assert(!walks_wait(walks));
    walk_end(&first.walk);
    ck_assert_int_eq(second.woken, 0);
}
END_TEST

START_TEST(walks_assert_that_all_have_ended)
{
    static struct walker walker;
    ck_assert(hold(&walker, 1));
    walks_free(walks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walks");
    TCase *tests = tcase_create("walks");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, walks_wait_when_together_they_would_hold_too_much);
    tcase_add_test(tests, walks_that_all_want_more_come_to_their_end_one_after_the_other);
    tcase_add_test(tests, a_walk_that_ends_while_it_waits_is_forgotten);
    tcase_add_test_raise_signal(tests, walks_assert_that_all_have_ended, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
