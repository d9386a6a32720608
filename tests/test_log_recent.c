/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the newest warnings and errors are kept, as they were written, in a bounded ring, and that those who log may hold locks. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/log_recent.h"
#include "tests/support/test_run.h"

static struct log_recent lines[LOG_RECENT_MAX + 10];

START_TEST(warnings_and_errors_are_kept_in_order_and_nothing_below_them)
{
    struct lock lock;
    lock_init(&lock, LOCK_RANK_LEAF);
    ck_assert_uint_eq(log_recent_copy(0, lines, ARRAY_LENGTH(lines)), 0);
    log_event(LOG_LEVEL_INFO, "usual", "n=1");
    lock_acquire(&lock);
    log_event(LOG_LEVEL_WARN, "odd", "n=2");
    lock_release(&lock);
    log_event(LOG_LEVEL_ERROR, "bad", "n=3");
    ck_assert_uint_eq(log_recent_copy(0, lines, ARRAY_LENGTH(lines)), 2);
    ck_assert_uint_eq(lines[0].number, 1);
    ck_assert_ptr_nonnull(strstr(lines[0].line, " level=warn event=odd n=2"));
    ck_assert_ptr_null(strchr(lines[0].line, '\n'));
    ck_assert_uint_eq(lines[1].number, 2);
    ck_assert_ptr_nonnull(strstr(lines[1].line, " level=error event=bad n=3"));
    ck_assert_uint_eq(log_recent_copy(1, lines, ARRAY_LENGTH(lines)), 1);
    ck_assert_uint_eq(lines[0].number, 2);
    ck_assert_uint_eq(log_recent_copy(2, lines, ARRAY_LENGTH(lines)), 0);
    ck_assert_uint_eq(log_recent_copy(UINT64_MAX, lines, ARRAY_LENGTH(lines)), 0);
    lock_destroy(&lock);
}
END_TEST

START_TEST(ring_holds_the_newest_and_cuts_what_is_long_between_characters)
{
    for (int i = 1; i <= 3 * LOG_RECENT_MAX; i++)
        log_event(LOG_LEVEL_WARN, "many", "n=%d", i);
    ck_assert_uint_eq(log_recent_copy(0, lines, ARRAY_LENGTH(lines)), LOG_RECENT_MAX);
    ck_assert_uint_eq(lines[0].number, 2 * LOG_RECENT_MAX + 1);
    ck_assert_ptr_nonnull(strstr(lines[LOG_RECENT_MAX - 1].line, "event=many n=300"));
    ck_assert_uint_eq(log_recent_copy(0, lines, 3), 3);
    ck_assert_uint_eq(lines[2].number, 3 * LOG_RECENT_MAX);

    static char text[2 * LOG_RECENT_BYTES_MAX];
    for (size_t i = 0; i + 3 < sizeof(text); i += 3)
        memcpy(text + i, "€", 3);
    log_event(LOG_LEVEL_WARN, "long", "%s", text);
    ck_assert_uint_eq(log_recent_copy(0, lines, 1), 1);
    ck_assert_uint_gt(strlen(lines[0].line), LOG_RECENT_BYTES_MAX - 5);
    ck_assert(bytes_is_utf8(bytes_of_string(lines[0].line)));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("log_recent");
    TCase *const tests = tcase_create("log_recent");
    tcase_add_test(tests, warnings_and_errors_are_kept_in_order_and_nothing_below_them);
    tcase_add_test(tests, ring_holds_the_newest_and_cuts_what_is_long_between_characters);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
