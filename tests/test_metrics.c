/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is rendered is Prometheus text format: read back by a small parser of its own
 * that refuses anything else, with every series there from the start, each family once and in one
 * piece, and histograms whose buckets add up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "tests/support/test_run.h"

static const struct {
    const char *family, *labels;
} expected[] = {
#define EXPECTED(name, family, labels, type, help) {family, labels},
    METRICS(EXPECTED)
#undef EXPECTED
};

START_TEST(every_series_is_there_from_the_start_with_zero)
{
    struct metrics metrics = {0};
    struct metrics_text text = {0};
    metrics_render(&metrics, &text);
    ck_assert_ptr_nonnull(text.data);
    ck_assert_uint_eq(strlen(text.data), text.length);
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        char line[256];
        if (expected[i].labels[0] == '\0')
            snprintf(line, sizeof(line), "\n%s 0\n", expected[i].family);
        else
            snprintf(line, sizeof(line), "\n%s{%s} 0\n", expected[i].family, expected[i].labels);
        const char *first = strstr(text.data, line);
        ck_assert_msg(first != NULL, "missing:%s", line);
        ck_assert_msg(strstr(first + 1, line) == NULL, "twice:%s", line);
    }
    metrics_text_free(&text);
}
END_TEST

/* First HELP, then TYPE of the same family, then its samples; no family comes back. */
START_TEST(families_stand_together_after_one_help_and_one_type)
{
    struct metrics metrics = {0};
    struct metrics_text text = {0};
    metrics_render(&metrics, &text);
    char families[METRIC_COUNT][128];
    size_t families_count = 0;
    size_t samples = 0;
    bool type_is_due = false;

    ck_assert_int_eq(text.data[text.length - 1], '\n');
    char *rest = text.data;
    while (*rest != '\0') {
        const char *line = strsep(&rest, "\n");
        char family[128];
        char type[16];
        if (sscanf(line, "# HELP %127s", family) == 1) {
            ck_assert(!type_is_due);
            for (size_t i = 0; i < families_count; i++)
                ck_assert_str_ne(families[i], family);
            memcpy(families[families_count++], family, sizeof(family));
            ck_assert_uint_gt(strlen(line), strlen("# HELP  ") + strlen(family));
            type_is_due = true;
            continue;
        }
        ck_assert_uint_gt(families_count, 0);
        const char *current = families[families_count - 1];
        if (sscanf(line, "# TYPE %127s %15s", family, type) == 2) {
            ck_assert(type_is_due);
            ck_assert_str_eq(family, current);
            const char *total = strstr(family, "_total");
            ck_assert_str_eq(type, total != NULL && total[6] == '\0' ? "counter" : "gauge");
            type_is_due = false;
            continue;
        }
        ck_assert(!type_is_due);
        ck_assert_int_eq(strncmp(line, current, strlen(current)), 0);
        ck_assert_msg(strchr("{ ", line[strlen(current)]) != NULL, "%s", line);
        samples++;
    }
    ck_assert_uint_eq(samples, METRIC_COUNT);
    metrics_text_free(&text);
}
END_TEST

START_TEST(values_are_added_set_and_shown)
{
    struct metrics metrics = {0};
    struct metrics_text text = {0};
    metrics_add(&metrics, METRIC_SEGMENT_SYNCS_SMALL, 3);
    metrics_add(&metrics, METRIC_SEGMENT_SYNCS_SMALL, 4);
    metrics_set(&metrics, METRIC_SEGMENT_SYNCS_LARGE, INT64_MAX);
    metrics_set(&metrics, METRIC_READ_ONLY, 1);
    metrics_add(&metrics, METRIC_CALLS_LIVE, -2);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_SEGMENT_SYNCS_SMALL), 7);
    metrics_render(&metrics, &text);
    ck_assert_ptr_nonnull(strstr(text.data, "\nvarve_segment_syncs_total{lane=\"small\"} 7\n"));
    ck_assert_ptr_nonnull(
        strstr(text.data, "\nvarve_segment_syncs_total{lane=\"large\"} 9223372036854775807\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "\nvarve_read_only 1\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "\nvarve_calls_live -2\n"));
    metrics_text_free(&text);
}
END_TEST

static const double bounds[] = {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                0.05,    0.1,    0.25,    0.5,    1,     2.5,    5,     10};

/* The number behind name, which must be there once. */
static double value_of(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    ck_assert_msg(found != NULL, "%s is missing in %s", name, text);
    ck_assert_int_eq(found[strlen(name)], ' ');
    return strtod(found + strlen(name), NULL);
}

START_TEST(an_observation_is_in_every_bucket_from_its_own_on)
{
    for (size_t b = 0; b < ARRAY_LENGTH(bounds); b++) {
        /* Exactly the bound, which belongs to the bucket, and a nanosecond more, which does not. */
        for (int more = 0; more < 2; more++) {
            struct histogram histogram = {0};
            struct metrics_text text = {0};
            const int64_t duration_ns = (int64_t)(bounds[b] * 1e9 + 0.5) + more;
            histogram_observe(&histogram, duration_ns);
            histogram_render(&histogram, "f", "m=\"x\"", &text);
            for (size_t i = 0; i < ARRAY_LENGTH(bounds); i++) {
                char *line = text.data;
                for (size_t skip = 0; skip < i; skip++)
                    line = strchr(line, '\n') + 1;
                double bound;
                unsigned int count;
                ck_assert_int_eq(sscanf(line, "f_bucket{m=\"x\",le=\"%lf\"} %u", &bound, &count),
                                 2);
                ck_assert_double_eq_tol(bound, bounds[i], 1e-12);
                ck_assert_uint_eq(count, i >= b + (size_t)more);
            }
            ck_assert_double_eq(value_of(text.data, "f_bucket{m=\"x\",le=\"+Inf\"}"), 1);
            ck_assert_double_eq(value_of(text.data, "f_count{m=\"x\"}"), 1);
            ck_assert_double_eq_tol(value_of(text.data, "f_sum{m=\"x\"}"),
                                    (double)duration_ns / 1e9, 1e-12);
            metrics_text_free(&text);
        }
    }
}
END_TEST

START_TEST(a_histogram_without_labels_has_only_le)
{
    struct histogram histogram = {0};
    struct metrics_text text = {0};
    histogram_observe(&histogram, -5);
    histogram_observe(&histogram, 3 * NS_PER_S);
    histogram_observe(&histogram, 100 * NS_PER_S);
    histogram_render(&histogram, "f_seconds", "", &text);
    ck_assert_double_eq(value_of(text.data, "f_seconds_bucket{le=\"5e-05\"}"), 1);
    ck_assert_double_eq(value_of(text.data, "f_seconds_bucket{le=\"5.0\"}"), 2);
    ck_assert_double_eq(value_of(text.data, "f_seconds_bucket{le=\"10.0\"}"), 2);
    ck_assert_double_eq(value_of(text.data, "f_seconds_bucket{le=\"+Inf\"}"), 3);
    ck_assert_double_eq(value_of(text.data, "\nf_seconds_count"), 3);
    ck_assert_double_eq(value_of(text.data, "\nf_seconds_sum"), 103);
    metrics_text_free(&text);
}
END_TEST

static void add_many(void *argument)
{
    for (int i = 0; i < 100000; i++)
        metrics_add(argument, METRIC_BLOBS_WRITTEN, 1);
}

START_TEST(threads_lose_no_count)
{
    struct metrics metrics = {0};
    struct thread threads[3] = {{0}};
    struct status status = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(threads); i++)
        ck_assert(thread_start(&threads[i], "adder", 0, add_many, &metrics, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(threads); i++)
        thread_join(&threads[i]);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), 300000);
}
END_TEST

START_TEST(text_grows_as_it_must)
{
    struct metrics_text text = {0};
    for (int i = 0; i < 20000; i++)
        metrics_text_printf(&text, "%05d,", i);
    ck_assert_uint_eq(text.length, 20000 * 6);
    ck_assert_uint_eq(strlen(text.data), text.length);
    for (int i = 0; i < 20000; i++)
        if (strtol(text.data + 6 * i, NULL, 10) != i)
            ck_abort_msg("%d is not at its place", i);
    metrics_text_free(&text);
    ck_assert_ptr_null(text.data);
}
END_TEST

START_TEST(open_metrics_names_families_of_counters_without_total_and_ends_with_eof)
{
    static const char eof[] = "\n# EOF\n";
    struct metrics metrics = {0};
    struct metrics_text text = {0};
    metrics_render(&metrics, &text);
    metrics_text_to_open(&text);
    ck_assert_ptr_nonnull(text.data);
    ck_assert_uint_eq(strlen(text.data), text.length);
    ck_assert_ptr_nonnull(strstr(text.data, "\n# TYPE varve_segment_syncs counter\n"
                                            "varve_segment_syncs_total{lane=\"small\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "# HELP varve_segment_syncs Syncs of segment files"));
    ck_assert_ptr_nonnull(strstr(text.data, "\n# TYPE varve_segments gauge\nvarve_segments 0\n"));
    ck_assert_str_eq(text.data + text.length - strlen(eof), eof);
    for (const char *line = text.data; line != NULL; line = strchr(line + 1, '\n'))
        if (strncmp(line, "\n# ", 3) == 0 && strncmp(line, eof, 6) != 0) {
            const size_t name = strcspn(line + 8, " ");
            ck_assert(name < 6 || strncmp(line + 8 + name - 6, "_total", 6) != 0);
        }
    metrics_text_free(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = tcase_create("metrics");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_series_is_there_from_the_start_with_zero);
    tcase_add_test(tests, families_stand_together_after_one_help_and_one_type);
    tcase_add_test(tests, open_metrics_names_families_of_counters_without_total_and_ends_with_eof);
    tcase_add_test(tests, values_are_added_set_and_shown);
    tcase_add_test(tests, an_observation_is_in_every_bucket_from_its_own_on);
    tcase_add_test(tests, a_histogram_without_labels_has_only_le);
    tcase_add_test(tests, threads_lose_no_count);
    tcase_add_test(tests, text_grows_as_it_must);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
