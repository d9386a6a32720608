/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the budget of request memory is never exceeded by those who ask, is given in the
 * order of asking, and never gets stuck.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/thread.h"
#include "server/budget.h"
#include "tests/support/test_run.h"

static struct metrics metrics;
static struct budget *budget;
static size_t reservation;

struct asker {
    struct budget_waiter waiter;
    int number;
    bool granted;
};

static int granted_order[64];
static int granted_count;

static void granted(struct budget_waiter *waiter)
{
    struct asker *const asker = CONTAINER_OF(waiter, struct asker, waiter);
    ck_assert(!asker->granted);
    asker->granted = true;
    granted_order[granted_count++] = asker->number;
}

/* Room for 4 reservations in each half. */
static void setup(void)
{
    struct status status = {0};
    ck_assert(budget_new(2 * 64 * KIB, 4, &metrics, &budget, &status));
    reservation = budget_reservation(budget);
    ck_assert_uint_eq(reservation, 16 * KIB);
    granted_count = 0;
}

static void teardown(void)
{
    budget_free(budget);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BUDGET_USED), 0);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BUDGET_WAITING), 0);
}

static bool take(struct asker *asker, int number, enum budget_half half)
{
    *asker = (struct asker){.waiter.granted = granted, .number = number};
    return budget_take(budget, half, &asker->waiter);
}

static void give(enum budget_half half)
{
    budget_correct(budget, half, reservation, 0);
}

START_TEST(reservation_is_so_small_that_all_calls_can_hold_one)
{
    struct budget *other;
    struct status status = {0};
    ck_assert(budget_new(256 * MIB, 4096, &metrics, &other, &status));
    ck_assert_uint_eq(budget_reservation(other), 32 * KIB);
    budget_free(other);
    ck_assert(budget_new(GIB, 16, &metrics, &other, &status));
    ck_assert_uint_eq(budget_reservation(other), 64 * KIB);
    budget_free(other);
    ck_assert(budget_new(16 * MIB, 1000000, &metrics, &other, &status));
    ck_assert_uint_eq(budget_reservation(other), 8 * MIB / 1000000);
    budget_free(other);
}
END_TEST

START_TEST(who_finds_it_used_up_is_granted_in_order)
{
    struct asker askers[8];
    for (int i = 0; i < 8; i++)
        ck_assert(take(&askers[i], i, BUDGET_FIRST_MESSAGES) == (i < 4));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BUDGET_WAITING), 4);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BUDGET_USED), 4 * (int64_t)reservation);
    for (int i = 0; i < 8; i++) {
        give(BUDGET_FIRST_MESSAGES);
        ck_assert_int_eq(granted_count, i < 4 ? i + 1 : 4);
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(granted_order[i], i + 4);
}
END_TEST

START_TEST(message_longer_than_its_reservation_makes_others_wait)
{
    struct asker askers[3];
    ck_assert(take(&askers[0], 0, BUDGET_FIRST_MESSAGES));
    budget_correct(budget, BUDGET_FIRST_MESSAGES, reservation,
                   MIB); /* over the limit: it is there already */
    ck_assert(!take(&askers[1], 1, BUDGET_FIRST_MESSAGES));
    ck_assert(!take(&askers[2], 2, BUDGET_FIRST_MESSAGES));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BUDGET_USED), MIB);
    budget_correct(budget, BUDGET_FIRST_MESSAGES, MIB, 0);
    ck_assert_int_eq(granted_count, 2);
    give(BUDGET_FIRST_MESSAGES);
    give(BUDGET_FIRST_MESSAGES);
}
END_TEST

START_TEST(halves_do_not_take_from_each_other)
{
    struct asker askers[3];
    ck_assert(take(&askers[0], 0, BUDGET_FIRST_MESSAGES));
    budget_correct(budget, BUDGET_FIRST_MESSAGES, reservation, GIB);
    ck_assert(!take(&askers[1], 1, BUDGET_FIRST_MESSAGES));
    ck_assert(take(&askers[2], 2, BUDGET_LATER_MESSAGES));
    give(BUDGET_LATER_MESSAGES);
    ck_assert_int_eq(granted_count, 0);
    budget_correct(budget, BUDGET_FIRST_MESSAGES, GIB, 0);
    ck_assert_int_eq(granted_count, 1);
    give(BUDGET_FIRST_MESSAGES);
}
END_TEST

START_TEST(cancelled_waiter_is_not_granted_and_those_behind_it_are)
{
    struct asker askers[7];
    for (int i = 0; i < 7; i++)
        ck_assert(take(&askers[i], i, BUDGET_FIRST_MESSAGES) == (i < 4));
    ck_assert(budget_cancel(budget, &askers[5].waiter));
    ck_assert(!budget_cancel(budget, &askers[5].waiter));
    for (int i = 0; i < 4; i++)
        give(BUDGET_FIRST_MESSAGES);
    ck_assert_int_eq(granted_count, 2);
    ck_assert_int_eq(granted_order[0], 4);
    ck_assert_int_eq(granted_order[1], 6);
    ck_assert(!askers[5].granted);
    ck_assert(!budget_cancel(budget, &askers[4].waiter)); /* too late */
    give(BUDGET_FIRST_MESSAGES);
    give(BUDGET_FIRST_MESSAGES);
}
END_TEST

/*
 * Many threads take, wait, correct and give back: at the end all of it is there again, and
 * everybody was served.
 */
enum { THREADS = 4, ROUNDS = 3000 };

struct racer {
    struct thread thread;
    struct budget_waiter waiter;
    _Atomic bool granted;
    int served;
};

static void racer_granted(struct budget_waiter *waiter)
{
    atomic_store(&CONTAINER_OF(waiter, struct racer, waiter)->granted, true);
}

static void race(void *argument)
{
    struct racer *const racer = argument;
    for (int i = 0; i < ROUNDS; i++) {
        const enum budget_half half = i % 3 == 0 ? BUDGET_LATER_MESSAGES : BUDGET_FIRST_MESSAGES;
        atomic_store(&racer->granted, false);
        racer->waiter = (struct budget_waiter){.granted = racer_granted};
        if (!budget_take(budget, half, &racer->waiter)) {
            if (i % 7 == 0 && budget_cancel(budget, &racer->waiter))
                continue;
            while (!atomic_load(&racer->granted))
                sched_yield();
        }
        const size_t length = (size_t)(i % 11) * 10000;
        budget_correct(budget, half, reservation, length);
        budget_correct(budget, half, length, 0);
        racer->served++;
    }
}

START_TEST(threads_that_take_wait_cancel_and_give_leave_it_whole)
{
    static struct racer racers[THREADS];
    struct status status = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert(thread_start(&racers[i].thread, "racer", 0, race, &racers[i], &status));
    for (int i = 0; i < THREADS; i++) {
        thread_join(&racers[i].thread);
        ck_assert_int_gt(racers[i].served, ROUNDS / 2);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("budget");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, reservation_is_so_small_that_all_calls_can_hold_one);
    tcase_add_test(all, who_finds_it_used_up_is_granted_in_order);
    tcase_add_test(all, message_longer_than_its_reservation_makes_others_wait);
    tcase_add_test(all, halves_do_not_take_from_each_other);
    tcase_add_test(all, cancelled_waiter_is_not_granted_and_those_behind_it_are);
    tcase_add_test(all, threads_that_take_wait_cancel_and_give_leave_it_whole);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
