/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"

enum metric_type { COUNTER, GAUGE };

/* Index is enum metric. */
static const struct {
    const char *family;
    const char *labels; /* without braces; "" when there are none */
    enum metric_type type;
    const char *help;
} series[] = {
#define METRIC_ROW(name, family, labels, type, help) [METRIC_##name] = {family, labels, type, help},
    METRICS(METRIC_ROW)
#undef METRIC_ROW
};

/* The upper bounds, inclusive, and how they are written; the last bucket has none. */
static const struct {
    int64_t bound_ns;
    const char *text;
} buckets[] = {
    {50 * NS_PER_US, "5e-05"},   {100 * NS_PER_US, "0.0001"}, {250 * NS_PER_US, "0.00025"},
    {500 * NS_PER_US, "0.0005"}, {1 * NS_PER_MS, "0.001"},    {2500 * NS_PER_US, "0.0025"},
    {5 * NS_PER_MS, "0.005"},    {10 * NS_PER_MS, "0.01"},    {25 * NS_PER_MS, "0.025"},
    {50 * NS_PER_MS, "0.05"},    {100 * NS_PER_MS, "0.1"},    {250 * NS_PER_MS, "0.25"},
    {500 * NS_PER_MS, "0.5"},    {1 * NS_PER_S, "1.0"},       {2500 * (int64_t)NS_PER_MS, "2.5"},
    {5 * NS_PER_S, "5.0"},       {10 * NS_PER_S, "10.0"},
};

_Static_assert(ARRAY_LENGTH(series) == METRIC_COUNT, "every metric has its row");
_Static_assert(ARRAY_LENGTH(buckets) + 1 == HISTOGRAM_BUCKETS,
               "every bucket but the last has its bound");

static bool reserve(struct metrics_text *text, size_t more);
static void append_name(struct metrics_text *text,
                        const char *family,
                        const char *suffix,
                        const char *labels);

void metrics_text_printf(struct metrics_text *text, const char *format, ...)
{
    if (text->failed)
        return;

    va_list arguments;
    va_start(arguments, format);
    const int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    ASSERT(needed >= 0);

    if (!reserve(text, (size_t)needed))
        return;
    va_start(arguments, format);
    const int written =
        vsnprintf(text->data + text->length, text->capacity - text->length, format, arguments);
    va_end(arguments);
    ASSERT(written == needed);
    text->length += (size_t)written;
}

/* Room for so many bytes and the NUL. */
static bool reserve(struct metrics_text *text, size_t more)
{
    const size_t first_capacity = 4096;
    if (text->data != NULL && more < text->capacity - text->length)
        return true;

    size_t capacity = text->capacity < first_capacity ? first_capacity : text->capacity;
    while (capacity - text->length <= more && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    char *const data = capacity - text->length > more ? realloc(text->data, capacity) : NULL;
    if (data == NULL) {
        metrics_text_free(text);
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void metrics_text_free(struct metrics_text *text)
{
    free(text->data);
    *text = (struct metrics_text){0};
}

void metrics_render(struct metrics *metrics, struct metrics_text *text)
{
    static const char *const type_names[] = {[COUNTER] = "counter", [GAUGE] = "gauge"};
    const char *last_family = "";

    for (size_t i = 0; i < ARRAY_LENGTH(series); i++) {
        if (strcmp(series[i].family, last_family) != 0) {
            last_family = series[i].family;
            metrics_text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", last_family, series[i].help,
                                last_family, type_names[series[i].type]);
        }
        append_name(text, series[i].family, "", series[i].labels);
        metrics_text_printf(text, " %" PRId64 "\n", metrics_get(metrics, (enum metric)i));
    }
}

void metrics_text_to_open(struct metrics_text *text)
{
    static const char total[] = "_total";
    const size_t suffix = sizeof(total) - 1;
    if (text->failed || text->data == NULL)
        return;
    char *to = text->data;
    for (char *line = text->data; *line != '\0';) {
        char *const end = strchr(line, '\n');
        ASSERT(end != NULL);
        size_t name = 0; /* up to where the family's name goes; 0: no such line */
        if (strncmp(line, "# HELP ", 7) == 0 || strncmp(line, "# TYPE ", 7) == 0)
            name = 7 + strcspn(line + 7, " \n");
        const bool counts = name > 7 + suffix && memcmp(line + name - suffix, total, suffix) == 0;
        const size_t kept = counts ? name - suffix : 0;
        memmove(to, line, kept);
        memmove(to + kept, line + (counts ? name : 0),
                (size_t)(end + 1 - line) - (counts ? name : 0));
        to += (size_t)(end + 1 - line) - (counts ? suffix : 0);
        line = end + 1;
    }
    *to = '\0';
    text->length = (size_t)(to - text->data);
    metrics_text_printf(text, "# EOF\n");
}

int64_t histogram_bound_ns(size_t bucket)
{
    ASSERT(bucket < HISTOGRAM_BUCKETS);
    return bucket < ARRAY_LENGTH(buckets) ? buckets[bucket].bound_ns : INT64_MAX;
}

void histogram_observe(struct histogram *histogram, int64_t duration_ns)
{
    const int64_t duration = duration_ns < 0 ? 0 : duration_ns;
    size_t bucket = 0;
    while (bucket < ARRAY_LENGTH(buckets) && duration > buckets[bucket].bound_ns)
        bucket++;
    atomic_fetch_add_explicit(&histogram->counts[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_ns, (uint64_t)duration, memory_order_relaxed);
}

void histogram_render(struct histogram *histogram,
                      const char *family,
                      const char *labels,
                      struct metrics_text *text)
{
    const char *const comma = labels[0] == '\0' ? "" : ",";
    uint64_t count = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        const char *const bound = i < ARRAY_LENGTH(buckets) ? buckets[i].text : "+Inf";
        count += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        metrics_text_printf(text, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", family, labels, comma,
                            bound, count);
    }
    const uint64_t sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    append_name(text, family, "_sum", labels);
    metrics_text_printf(text, " %" PRIu64 ".%09" PRIu64 "\n", sum_ns / NS_PER_S, sum_ns % NS_PER_S);
    append_name(text, family, "_count", labels);
    metrics_text_printf(text, " %" PRIu64 "\n", count);
}

static void append_name(struct metrics_text *text,
                        const char *family,
                        const char *suffix,
                        const char *labels)
{
    if (labels[0] == '\0')
        metrics_text_printf(text, "%s%s", family, suffix);
    else
        metrics_text_printf(text, "%s%s{%s}", family, suffix, labels);
}
