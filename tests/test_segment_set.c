/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the segments' bytes are counted once at any moment: while a file is being made as
 * reserved, and then as its own. They were counted twice for an instant between the two, and whoever
 * asked for room just then was told that the store is full.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "store/segment_set.h"
#include "tests/support/test_run.h"

enum { FILE_BYTES = 8 << 20, LIMIT_BYTES = 2 * FILE_BYTES, ROUNDS = 20000 };

START_TEST(a_segment_takes_the_place_of_what_was_reserved_for_it)
{
    struct segment_set *set = NULL;
    struct status status;
    struct segment segment = {.number = 1, .file_bytes = FILE_BYTES};
    ck_assert(segment_set_new(&set, &status));
    ck_assert(segment_set_reserve(set, FILE_BYTES, LIMIT_BYTES));
    ck_assert_uint_eq(segment_set_bytes(set), FILE_BYTES);
    ck_assert(segment_set_add(set, &segment, FILE_BYTES, &status));
    ck_assert_uint_eq(segment_set_bytes(set), FILE_BYTES);
    ck_assert(segment_set_reserve(set, FILE_BYTES, LIMIT_BYTES));
    ck_assert(!segment_set_reserve(set, 1, LIMIT_BYTES));
    segment_set_unreserve(set, FILE_BYTES);
    ck_assert(segment_set_remove(set, 1));
    ck_assert_uint_eq(segment_set_bytes(set), 0);
    segment_set_free(set);
}
END_TEST

struct watch {
    struct segment_set *set;
    atomic_bool stop;
    uint64_t most;
};

static void *watch_bytes(void *argument)
{
    struct watch *watch = argument;
    while (!atomic_load(&watch->stop)) {
        const uint64_t bytes = segment_set_bytes(watch->set);
        watch->most = bytes > watch->most ? bytes : watch->most;
    }
    return NULL;
}

START_TEST(nobody_ever_sees_a_segment_counted_twice)
{
    struct watch watch = {.set = NULL};
    struct status status;
    pthread_t thread;
    struct segment segment = {.number = 1, .file_bytes = FILE_BYTES};
    ck_assert(segment_set_new(&watch.set, &status));
    ck_assert_int_eq(pthread_create(&thread, NULL, watch_bytes, &watch), 0);
    for (int i = 0; i < ROUNDS; i++) {
        ck_assert(segment_set_reserve(watch.set, FILE_BYTES, LIMIT_BYTES));
        ck_assert(segment_set_add(watch.set, &segment, FILE_BYTES, &status));
        ck_assert(segment_set_remove(watch.set, 1));
    }
    atomic_store(&watch.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_le(watch.most, FILE_BYTES);
    segment_set_free(watch.set);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("segment_set");
    TCase *const tests = tcase_create("segment_set");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_segment_takes_the_place_of_what_was_reserved_for_it);
    tcase_add_test(tests, nobody_ever_sees_a_segment_counted_twice);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
