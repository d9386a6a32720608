/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what was noted is found with its time, that the oldest give way when there is no room, and that then nobody is told that
 * something was not evicted.
 */
#include "base/clock.h"
#include "base/limits.h"
#include "store/evicted.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

#define START_NS (1800000000 * NS_PER_S)

static struct evicted *evicted;
static struct status status;

static void setup(void)
{
    ck_assert(evicted_new(START_NS, &evicted, &status));
}

static void teardown(void)
{
    evicted_free(evicted);
}

static struct blob_key random_key(struct prng *prng)
{
    return (struct blob_key){.fingerprint = prng_next(prng)};
}

START_TEST(what_was_noted_is_found_with_its_last_time_and_nothing_else_is)
{
    enum { KEYS = 10000 };
    struct prng prng = {.state = 1};
    int64_t when_ns = 0;
    for (int round = 0; round < 2; round++) {
        prng = (struct prng){.state = 1};
        for (int i = 0; i < KEYS; i++)
            evicted_note(evicted, random_key(&prng), START_NS + (round * KEYS + i) * NS_PER_S + 5);
    }
    prng = (struct prng){.state = 1};
    for (int i = 0; i < KEYS; i++) {
        ck_assert(evicted_find(evicted, random_key(&prng), &when_ns));
        ck_assert_int_eq(when_ns, START_NS + (KEYS + i) * NS_PER_S);
    }
    for (int i = 0; i < KEYS; i++)
        ck_assert(!evicted_find(evicted, random_key(&prng), &when_ns));
    ck_assert(evicted_is_whole(evicted));
    ck_assert_int_eq(evicted_since_ns(evicted), START_NS);
}
END_TEST

START_TEST(the_oldest_give_way_and_then_it_is_no_longer_whole)
{
    enum { KEYS = 2 * LIMIT_EVICTED_REMEMBERED, LAST = LIMIT_EVICTED_REMEMBERED / 4 };
    struct prng prng = {.state = 2};
    int64_t when_ns = 0;
    int found = 0;
    int wrong = 0;
    for (int i = 0; i < KEYS; i++)
        evicted_note(evicted, random_key(&prng), START_NS + i * NS_PER_S);
    ck_assert(!evicted_is_whole(evicted));
    prng = (struct prng){.state = 2};
    for (int i = 0; i < KEYS; i++) {
        const bool there = evicted_find(evicted, random_key(&prng), &when_ns);
        found += there;
        wrong += there && when_ns != START_NS + i * NS_PER_S;
    }
    ck_assert_int_le(wrong, 16); /* keys of which the same bits are kept */
    ck_assert_int_le(found, LIMIT_EVICTED_REMEMBERED);
    ck_assert_int_gt(found, LIMIT_EVICTED_REMEMBERED / 4 * 3);
    /* Of the last ones hardly any is missing. */
    prng = (struct prng){.state = 2};
    found = 0;
    for (int i = 0; i < KEYS; i++)
        found += evicted_find(evicted, random_key(&prng), &when_ns) && i >= KEYS - LAST;
    ck_assert_int_gt(found, LAST - LAST / 100);
}
END_TEST

START_TEST(any_key_and_any_time_are_borne)
{
    static const int64_t times[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    int64_t when_ns = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        const struct blob_key key = {.fingerprint = i << 40};
        evicted_note(evicted, key, times[i]);
        ck_assert(evicted_find(evicted, key, &when_ns));
        ck_assert_int_ge(when_ns, NS_PER_S);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("evicted");
    TCase *const tests = tcase_create("evicted");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_was_noted_is_found_with_its_last_time_and_nothing_else_is);
    tcase_add_test(tests, the_oldest_give_way_and_then_it_is_no_longer_whole);
    tcase_add_test(tests, any_key_and_any_time_are_borne);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
