/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that requests are counted by instance and method, that no number of names makes more than the bound of series, that
 * a name is shown as a label's value and nothing else, and that threads which meet a name at once share its series.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log_recent.h"
#include "base/thread.h"
#include "server/instance_metrics.h"
#include "tests/support/test_run.h"

static const char *const methods[] = {"cache.Cache/GetActionResult", "cache.Cache/Read",
                                      "HTTP GET ac"};
enum { GET_ACTION, READ, HTTP_AC };

static struct instance_metrics *metrics;
static struct metrics_text text;
static struct status status;

static void setup(void)
{
    ck_assert(instance_metrics_new(methods, ARRAY_LENGTH(methods), &metrics, &status));
}

static void teardown(void)
{
    instance_metrics_free(metrics);
    metrics_text_free(&text);
}

static size_t find(const char *name, enum instance_find how)
{
    return instance_metrics_find(metrics, bytes_of_string(name), how);
}

static void end(size_t instance, size_t method, enum status_code code)
{
    const struct instance_request request = {
        .code = code, .duration_ns = 2 * NS_PER_MS, .received_bytes = 10, .sent_bytes = 7};
    instance_metrics_ended(metrics, instance, method, &request);
}

static void render(void)
{
    metrics_text_free(&text);
    instance_metrics_render(metrics, &text);
    ck_assert_ptr_nonnull(text.data);
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(text.data, part) != NULL, "\"%s\" is not in\n%s", part, text.data);
}

START_TEST(requests_are_counted_by_instance_method_and_code)
{
    const size_t main_name = find("main", INSTANCE_ADD);
    const size_t empty = find("", INSTANCE_ADD);
    ck_assert_uint_ne(main_name, empty);
    ck_assert_uint_eq(find("main", INSTANCE_FIND), main_name);
    end(main_name, READ, STATUS_OK);
    end(main_name, READ, STATUS_NOT_FOUND);
    end(main_name, READ, STATUS_NOT_FOUND);
    end(empty, READ, STATUS_OK);
    end(INSTANCE_METRICS_NONE, READ, STATUS_OK);
    instance_metrics_looked_up(metrics, main_name, READ, 1, 2);
    instance_metrics_looked_up(metrics, INSTANCE_METRICS_NONE, READ, 100, 100);
    render();
    assert_has(
        "requests_total{instance_name=\"main\",method=\"cache.Cache/Read\",code=\"OK\"} 1\n");
    assert_has("{instance_name=\"main\",method=\"cache.Cache/Read\",code=\"NOT_FOUND\"} 2\n");
    assert_has("{instance_name=\"\",method=\"cache.Cache/Read\",code=\"OK\"} 1\n");
    assert_has("{instance_name=\"main\",method=\"cache.Cache/Read\",direction=\"received\"} 30\n");
    assert_has("{instance_name=\"main\",method=\"cache.Cache/Read\",direction=\"sent\"} 21\n");
    assert_has(
        "lookups_total{instance_name=\"main\",method=\"cache.Cache/Read\",result=\"hit\"} 1\n");
    assert_has("{instance_name=\"main\",method=\"cache.Cache/Read\",result=\"miss\"} 2\n");
    assert_has(
        "seconds_bucket{instance_name=\"main\",method=\"cache.Cache/Read\",le=\"0.001\"} 0\n");
    assert_has(
        "seconds_bucket{instance_name=\"main\",method=\"cache.Cache/Read\",le=\"0.0025\"} 3\n");
    ck_assert_ptr_null(strstr(text.data, "GetActionResult")); /* of which there was none */
}
END_TEST

START_TEST(further_names_share_one_and_are_told_once)
{
    char name[32];
    struct log_recent lines[LOG_RECENT_MAX];
    for (int i = 0; i < 10 * INSTANCE_METRICS_MAX; i++) {
        snprintf(name, sizeof(name), "branch/%d", i);
        const size_t number = find(name, INSTANCE_ADD);
        ck_assert_uint_eq(number, i < INSTANCE_METRICS_MAX ? (size_t)i : INSTANCE_METRICS_OTHER);
        end(number, READ, STATUS_OK);
    }
    ck_assert_uint_eq(find("branch/63", INSTANCE_ADD), 63);
    render();
    assert_has("{instance_name=\"branch/63\",method=\"cache.Cache/Read\",code=\"OK\"} 1\n");
    assert_has("{instance_name=\"other\",method=\"cache.Cache/Read\",code=\"OK\"} 576\n");
    ck_assert_ptr_null(strstr(text.data, "branch/64"));
    size_t told = 0;
    const size_t count = log_recent_copy(0, lines, ARRAY_LENGTH(lines));
    for (size_t i = 0; i < count; i++)
        told += strstr(lines[i].line, "event=instances_many") != NULL;
    ck_assert_uint_eq(told, 1);
}
END_TEST

START_TEST(who_may_not_use_an_instance_takes_no_number)
{
    for (int i = 0; i < 2 * INSTANCE_METRICS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "guess/%d", i);
        ck_assert_uint_eq(find(name, INSTANCE_FIND), INSTANCE_METRICS_OTHER);
    }
    ck_assert_uint_eq(find("main", INSTANCE_ADD), 0);
    ck_assert_uint_eq(find("other", INSTANCE_ADD), INSTANCE_METRICS_OTHER);
}
END_TEST

START_TEST(names_are_escaped_and_long_or_odd_ones_are_others)
{
    static char longest[LIMIT_INSTANCE_NAME_BYTES + 2];
    memset(longest, '"', LIMIT_INSTANCE_NAME_BYTES + 1);
    ck_assert_uint_eq(find(longest, INSTANCE_ADD), INSTANCE_METRICS_OTHER);
    ck_assert_uint_eq(instance_metrics_find(metrics, bytes_of("a\0b", 3), INSTANCE_ADD),
                      INSTANCE_METRICS_OTHER);
    longest[LIMIT_INSTANCE_NAME_BYTES] = '\0';
    end(find(longest, INSTANCE_ADD), READ, STATUS_OK);
    end(find("a\"} 1\nb\\", INSTANCE_ADD), READ, STATUS_OK);
    render();
    assert_has("{instance_name=\"a\\\"} 1\\nb\\\\\",method=");
    struct instance_report reports[INSTANCE_METRICS_MAX + 1];
    ck_assert_uint_eq(instance_metrics_report(metrics, reports, ARRAY_LENGTH(reports)), 2);
    ck_assert_str_eq(reports[0].name, longest);
}
END_TEST

START_TEST(report_sums_up_actions_apart_from_blobs)
{
    const size_t name = find("main", INSTANCE_ADD);
    end(name, GET_ACTION, STATUS_OK);
    end(name, READ, STATUS_UNAVAILABLE);
    end(name, HTTP_AC, STATUS_NOT_FOUND);
    instance_metrics_looked_up(metrics, name, GET_ACTION, 3, 1);
    instance_metrics_looked_up(metrics, name, HTTP_AC, 0, 2);
    instance_metrics_looked_up(metrics, name, READ, 5, 6);
    struct instance_report report;
    ck_assert_uint_eq(instance_metrics_report(metrics, &report, 1), 1);
    ck_assert_str_eq(report.name, "main");
    ck_assert_uint_eq(report.requests, 3);
    ck_assert_uint_eq(report.failed, 1);
    ck_assert_uint_eq(report.action_hits, 3);
    ck_assert_uint_eq(report.action_misses, 3);
    ck_assert_uint_eq(report.blob_hits, 5);
    ck_assert_uint_eq(report.blob_misses, 6);
    ck_assert_uint_eq(report.received_bytes, 30);
    ck_assert_uint_eq(report.sent_bytes, 21);
}
END_TEST

enum { THREADS = 4, ROUNDS = 2000, NAMES = 100 };

static void meet(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "n%d", i % NAMES);
        end(find(name, INSTANCE_ADD), READ, STATUS_OK);
    }
}

START_TEST(threads_that_meet_a_name_at_once_share_its_series)
{
    struct thread threads[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert(thread_start(&threads[i], "meet", 0, meet, NULL, &status));
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    static struct instance_report reports[INSTANCE_METRICS_MAX + 1];
    const size_t count = instance_metrics_report(metrics, reports, ARRAY_LENGTH(reports));
    ck_assert_uint_eq(count, INSTANCE_METRICS_MAX + 1);
    uint64_t requests = 0;
    for (size_t i = 0; i < count; i++) {
        requests += reports[i].requests;
        ck_assert(reports[i].requests == THREADS * ROUNDS / NAMES || i == count - 1);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(reports[i].name, reports[j].name);
    }
    ck_assert_uint_eq(requests, THREADS * ROUNDS);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("instance_metrics");
    TCase *const tests = tcase_create("instance_metrics");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, requests_are_counted_by_instance_method_and_code);
    tcase_add_test(tests, further_names_share_one_and_are_told_once);
    tcase_add_test(tests, who_may_not_use_an_instance_takes_no_number);
    tcase_add_test(tests, names_are_escaped_and_long_or_odd_ones_are_others);
    tcase_add_test(tests, report_sums_up_actions_apart_from_blobs);
    tcase_add_test(tests, threads_that_meet_a_name_at_once_share_its_series);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
