/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a fail point counts, sleeps or kills at exactly the pass that was asked for, and that
 * no setting from the environment is half understood. Needs a build with -DFAILPOINTS; that a
 * release has none is looked up in its objects.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/failpoint.h"
#include "tests/support/test_run.h"

static bool init_from(const char *setting, const char **bad)
{
    ck_assert_int_eq(setenv("VARVE_FAILPOINTS", setting, 1), 0);
    return failpoint_init_from_environment(bad);
}

START_TEST(passes_are_counted_for_each_point)
{
    for (int i = 0; i < 3; i++)
        FAILPOINT(commit_before_sync);
    FAILPOINT(commit_after_sync);
    ck_assert_uint_eq(failpoint_passes(FAILPOINT_commit_before_sync), 3);
    ck_assert_uint_eq(failpoint_passes(FAILPOINT_commit_after_sync), 1);
    ck_assert_uint_eq(failpoint_passes(FAILPOINT_commit_after_ack), 0);
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_OFF, 0);
    ck_assert_uint_eq(failpoint_passes(FAILPOINT_commit_before_sync), 0);
}
END_TEST

START_TEST(a_point_kills_at_its_first_pass)
{
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_KILL, 1);
    FAILPOINT(commit_after_sync);
    FAILPOINT(commit_before_sync);
}
END_TEST

START_TEST(a_point_does_not_kill_before_its_pass)
{
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_KILL, 4);
    for (int i = 0; i < 3; i++)
        FAILPOINT(commit_before_sync);
    ck_assert_uint_eq(failpoint_passes(FAILPOINT_commit_before_sync), 3);
}
END_TEST

START_TEST(a_point_kills_at_its_pass)
{
    const char *bad = NULL;
    ck_assert(init_from("segment_after_seal=sleep:0,commit_before_sync=kill@4", &bad));
    for (int i = 0; i < 4; i++)
        FAILPOINT(commit_before_sync);
}
END_TEST

START_TEST(a_point_kills_as_the_environment_says)
{
    const char *bad = NULL;
    ck_assert(init_from("upload_after_chunk=kill", &bad));
    FAILPOINT(upload_after_chunk);
}
END_TEST

START_TEST(a_point_sleeps_at_each_pass)
{
    const char *bad = NULL;
    ck_assert(init_from("commit_before_sync=sleep:20", &bad));
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    FAILPOINT(commit_before_sync);
    FAILPOINT(commit_before_sync);
    ck_assert_int_ge(clock_monotonic_ns(clock_real()) - start_ns, 40 * NS_PER_MS);
}
END_TEST

START_TEST(no_setting_is_a_good_setting)
{
    const char *bad = NULL;
    ck_assert_int_eq(unsetenv("VARVE_FAILPOINTS"), 0);
    ck_assert(failpoint_init_from_environment(&bad));
    ck_assert(init_from("", &bad));
    ck_assert_ptr_null(bad);
}
END_TEST

START_TEST(a_wrong_setting_is_refused_where_it_is_wrong)
{
    static const char *const wrong[] = {
        "commit_before_sync",
        "commit_before_sync=",
        "commit_before_sync=stop",
        "commit_before_sync=kill@",
        "commit_before_sync=kill@0",
        "commit_before_sync=kill@x",
        "commit_before_sync=kill@1x",
        "commit_before_sync=kill4",
        "commit_before_sync=sleep",
        "commit_before_sync=sleep:",
        "commit_before_sync=sleep:-1",
        "commit_before_sync=sleep:99999999999999999999",
        "commit_before=kill",
        "commit_before_sync_=kill",
        "=kill",
        " commit_before_sync=kill",
        "",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char setting[256];
        const char *bad = NULL;
        snprintf(setting, sizeof(setting), "segment_after_seal=sleep:0,%s", wrong[i]);
        ck_assert_msg(!init_from(setting, &bad), "%s", setting);
        ck_assert_str_eq(bad, wrong[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("failpoint");
    TCase *tests = tcase_create("failpoint");
    tcase_add_test(tests, passes_are_counted_for_each_point);
    tcase_add_test_raise_signal(tests, a_point_kills_at_its_first_pass, SIGKILL);
    tcase_add_test(tests, a_point_does_not_kill_before_its_pass);
    tcase_add_test_raise_signal(tests, a_point_kills_at_its_pass, SIGKILL);
    tcase_add_test_raise_signal(tests, a_point_kills_as_the_environment_says, SIGKILL);
    tcase_add_test(tests, a_point_sleeps_at_each_pass);
    tcase_add_test(tests, no_setting_is_a_good_setting);
    tcase_add_test(tests, a_wrong_setting_is_refused_where_it_is_wrong);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
