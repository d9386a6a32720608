/* SPDX-License-Identifier: Apache-2.0 */
#include "server/instance_metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"

enum {
    CODES = STATUS_UNAUTHENTICATED + 1,
    INSTANCES = INSTANCE_METRICS_MAX + 1, /* with "other" */
    TABLE = 256,                          /* a power of two, of which at most a quarter is used */
    ESCAPED_BYTES_MAX = 2 * LIMIT_INSTANCE_NAME_BYTES + 1,
    LABELS_BYTES_MAX = ESCAPED_BYTES_MAX + 256,
};

static const char other_name[] = "other";

struct series {
    _Atomic uint64_t ended[CODES];
    _Atomic uint64_t received_bytes, sent_bytes;
    _Atomic uint64_t hits, misses;
    struct histogram seconds;
};

struct name {
    size_t length;
    char text[LIMIT_INSTANCE_NAME_BYTES + 1];
};

struct instance_metrics {
    size_t methods_count;
    const char *const *methods; /* owned array of borrowed names */

    /* By hash, then the next place: 0, or an instance's number + 1. Set once, after the name. */
    _Atomic uint16_t table[TABLE];
    _Atomic size_t count;
    struct name names[INSTANCES]; /* written before its number is in the table, never again */
    _Atomic bool told;
    struct lock lock; /* of who adds a name */

    struct series series[]; /* of instance i and method m: i * methods_count + m */
};

static bool look(struct instance_metrics *metrics, struct bytes name, size_t *at, size_t *number);
static size_t add(struct instance_metrics *metrics, struct bytes name);
static struct series *series_of(struct instance_metrics *metrics, size_t instance, size_t method);
static uint64_t requests_of(struct series *series);

bool instance_metrics_new(const char *const *methods,
                          size_t count,
                          struct instance_metrics **metrics,
                          struct status *status)
{
    struct instance_metrics *const made =
        calloc(1, sizeof(*made) + INSTANCES * count * sizeof(made->series[0]));
    const char **const names = calloc(count, sizeof(*names));
    if (made == NULL || names == NULL) {
        free(made);
        free(names);
        return status_fail_errno(status, ENOMEM, "metrics of the instances");
    }
    for (size_t i = 0; i < count; i++)
        names[i] = methods[i];
    made->methods = names;
    made->methods_count = count;
    lock_init(&made->lock, LOCK_RANK_METRICS);
    made->names[INSTANCE_METRICS_OTHER].length = sizeof(other_name) - 1;
    memcpy(made->names[INSTANCE_METRICS_OTHER].text, other_name, sizeof(other_name));
    *metrics = made;
    return true;
}

void instance_metrics_free(struct instance_metrics *metrics)
{
    if (metrics == NULL)
        return;
    lock_destroy(&metrics->lock);
    free((void *)(uintptr_t)metrics->methods);
    free(metrics);
}

/* ---- names */

size_t instance_metrics_find(struct instance_metrics *metrics,
                             struct bytes name,
                             enum instance_find how)
{
    size_t at;
    size_t number;
    if (name.data == NULL)
        name = bytes_of_string("");
    if (name.length > LIMIT_INSTANCE_NAME_BYTES || bytes_equal_string(name, other_name) ||
        memchr(name.data, 0, name.length) != NULL)
        return INSTANCE_METRICS_OTHER;
    if (look(metrics, name, &at, &number))
        return number;
    if (how == INSTANCE_FIND)
        return INSTANCE_METRICS_OTHER;
    if (atomic_load_explicit(&metrics->count, memory_order_relaxed) < INSTANCE_METRICS_MAX) {
        lock_acquire(&metrics->lock);
        number = add(metrics, name);
        lock_release(&metrics->lock);
        if (number != INSTANCE_METRICS_OTHER)
            return number;
    }
    if (!atomic_load_explicit(&metrics->told, memory_order_relaxed) &&
        !atomic_exchange(&metrics->told, true))
        log_event(LOG_LEVEL_WARN, "instances_many",
                  "counted=%d reason=\"the metrics of further instance names are counted as %s\"",
                  INSTANCE_METRICS_MAX, other_name);
    return INSTANCE_METRICS_OTHER;
}

/* FNV-1a. */
static size_t hash_of(struct bytes name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ name.data[i]) * 16777619u;
    return (hash ^ hash >> 16) % TABLE;
}

/* *at: where it stands, or would. */
static bool look(struct instance_metrics *metrics, struct bytes name, size_t *at, size_t *number)
{
    for (*at = hash_of(name);; *at = (*at + 1) % TABLE) {
        const uint16_t entry = atomic_load_explicit(&metrics->table[*at], memory_order_acquire);
        if (entry == 0)
            return false;
        const struct name *const known = &metrics->names[entry - 1];
        if (bytes_equal(name, bytes_of(known->text, known->length))) {
            *number = entry - 1u;
            return true;
        }
    }
}

static size_t add(struct instance_metrics *metrics, struct bytes name)
{
    size_t at;
    size_t number;
    lock_assert_held(&metrics->lock);
    if (look(metrics, name, &at, &number))
        return number; /* somebody else was faster */
    number = atomic_load_explicit(&metrics->count, memory_order_relaxed);
    if (number == INSTANCE_METRICS_MAX)
        return INSTANCE_METRICS_OTHER;
    struct name *const made = &metrics->names[number];
    if (name.length > 0)
        memcpy(made->text, name.data, name.length);
    made->length = name.length;
    atomic_store_explicit(&metrics->table[at], (uint16_t)(number + 1), memory_order_release);
    atomic_store_explicit(&metrics->count, number + 1, memory_order_release);
    return number;
}

/* ---- counting */

static struct series *series_of(struct instance_metrics *metrics, size_t instance, size_t method)
{
    ASSERT(instance < INSTANCES);
    ASSERT(method < metrics->methods_count);
    return &metrics->series[instance * metrics->methods_count + method];
}

void instance_metrics_ended(struct instance_metrics *metrics,
                            size_t instance,
                            size_t method,
                            const struct instance_request *request)
{
    if (instance == INSTANCE_METRICS_NONE)
        return;
    struct series *const series = series_of(metrics, instance, method);
    ASSERT((unsigned int)request->code < CODES);
    atomic_fetch_add_explicit(&series->ended[request->code], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&series->received_bytes, request->received_bytes,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&series->sent_bytes, request->sent_bytes, memory_order_relaxed);
    histogram_observe(&series->seconds, request->duration_ns);
}

void instance_metrics_looked_up(struct instance_metrics *metrics,
                                size_t instance,
                                size_t method,
                                uint64_t hits,
                                uint64_t misses)
{
    if (instance == INSTANCE_METRICS_NONE)
        return;
    struct series *const series = series_of(metrics, instance, method);
    atomic_fetch_add_explicit(&series->hits, hits, memory_order_relaxed);
    atomic_fetch_add_explicit(&series->misses, misses, memory_order_relaxed);
}

static uint64_t requests_of(struct series *series)
{
    uint64_t sum = 0;
    for (size_t code = 0; code < CODES; code++)
        sum += atomic_load_explicit(&series->ended[code], memory_order_relaxed);
    return sum;
}

/* ---- telling */

/* One family. of: the lines of one pair, whose labels are given without braces. */
static void render_family(struct instance_metrics *metrics,
                          struct metrics_text *text,
                          void (*of)(struct series *series,
                                     const char *labels,
                                     struct metrics_text *text));
static void render_requests(struct series *series, const char *labels, struct metrics_text *text);
static void render_seconds(struct series *series, const char *labels, struct metrics_text *text);
static void render_bytes(struct series *series, const char *labels, struct metrics_text *text);
static void render_lookups(struct series *series, const char *labels, struct metrics_text *text);

void instance_metrics_render(struct instance_metrics *metrics, struct metrics_text *text)
{
    metrics_text_printf(text, "# HELP varve_instance_requests_total Requests that have ended, by "
                              "instance name, method and status code.\n"
                              "# TYPE varve_instance_requests_total counter\n");
    render_family(metrics, text, render_requests);
    metrics_text_printf(text, "# HELP varve_instance_request_seconds From the arrival of a request "
                              "to the end of its answer.\n"
                              "# TYPE varve_instance_request_seconds histogram\n");
    render_family(metrics, text, render_seconds);
    metrics_text_printf(text, "# HELP varve_instance_bytes_total Bytes of messages and bodies of "
                              "requests that have ended.\n"
                              "# TYPE varve_instance_bytes_total counter\n");
    render_family(metrics, text, render_bytes);
    metrics_text_printf(text, "# HELP varve_instance_lookups_total Blobs and action results that "
                              "were asked for, by outcome.\n"
                              "# TYPE varve_instance_lookups_total counter\n");
    render_family(metrics, text, render_lookups);
}

/* As a label's value has it. */
static void escape(const struct name *name, char to[ESCAPED_BYTES_MAX])
{
    size_t length = 0;
    for (size_t i = 0; i < name->length; i++) {
        const char byte = name->text[i];
        if (byte == '\\' || byte == '"' || byte == '\n')
            to[length++] = '\\';
        to[length++] = byte;
        if (byte == '\n')
            to[length - 1] = 'n';
    }
    to[length] = '\0';
}

static void render_family(struct instance_metrics *metrics,
                          struct metrics_text *text,
                          void (*of)(struct series *series,
                                     const char *labels,
                                     struct metrics_text *text))
{
    const size_t count = atomic_load_explicit(&metrics->count, memory_order_acquire);
    for (size_t i = 0; i < INSTANCES; i++) {
        char name[ESCAPED_BYTES_MAX];
        if (i >= count && i != INSTANCE_METRICS_OTHER)
            continue;
        escape(&metrics->names[i], name);
        for (size_t method = 0; method < metrics->methods_count; method++) {
            struct series *const series = series_of(metrics, i, method);
            char labels[LABELS_BYTES_MAX];
            if (requests_of(series) == 0)
                continue;
            const int length =
                snprintf(labels, sizeof(labels), "instance_name=\"%s\",method=\"%s\"", name,
                         metrics->methods[method]);
            ASSERT(length > 0 && (size_t)length < sizeof(labels));
            of(series, labels, text);
        }
    }
}

static void render_requests(struct series *series, const char *labels, struct metrics_text *text)
{
    for (int code = 0; code < CODES; code++) {
        const uint64_t ended = atomic_load_explicit(&series->ended[code], memory_order_relaxed);
        if (ended > 0 || code == STATUS_OK)
            metrics_text_printf(text, "varve_instance_requests_total{%s,code=\"%s\"} %" PRIu64 "\n",
                                labels, status_code_name((enum status_code)code), ended);
    }
}

static void render_seconds(struct series *series, const char *labels, struct metrics_text *text)
{
    histogram_render(&series->seconds, "varve_instance_request_seconds", labels, text);
}

static void render_bytes(struct series *series, const char *labels, struct metrics_text *text)
{
    metrics_text_printf(text,
                        "varve_instance_bytes_total{%s,direction=\"received\"} %" PRIu64 "\n"
                        "varve_instance_bytes_total{%s,direction=\"sent\"} %" PRIu64 "\n",
                        labels, atomic_load_explicit(&series->received_bytes, memory_order_relaxed),
                        labels, atomic_load_explicit(&series->sent_bytes, memory_order_relaxed));
}

static void render_lookups(struct series *series, const char *labels, struct metrics_text *text)
{
    const uint64_t hits = atomic_load_explicit(&series->hits, memory_order_relaxed);
    const uint64_t misses = atomic_load_explicit(&series->misses, memory_order_relaxed);
    if (hits == 0 && misses == 0)
        return;
    metrics_text_printf(text,
                        "varve_instance_lookups_total{%s,result=\"hit\"} %" PRIu64 "\n"
                        "varve_instance_lookups_total{%s,result=\"miss\"} %" PRIu64 "\n",
                        labels, hits, labels, misses);
}

bool status_code_is_ours(enum status_code code)
{
    return code == STATUS_UNKNOWN || code == STATUS_DEADLINE_EXCEEDED ||
           code == STATUS_RESOURCE_EXHAUSTED || code == STATUS_ABORTED || code == STATUS_INTERNAL ||
           code == STATUS_UNAVAILABLE || code == STATUS_DATA_LOSS;
}

/* Over gRPC or HTTP, results of actions. */
static bool is_of_actions(const char *method)
{
    const size_t length = strlen(method);
    return strstr(method, "ActionResult") != NULL ||
           (length > 3 && strcmp(method + length - 3, " ac") == 0);
}

static void sum_up(struct series *series, bool actions, struct instance_report *report)
{
    const uint64_t hits = atomic_load_explicit(&series->hits, memory_order_relaxed);
    const uint64_t misses = atomic_load_explicit(&series->misses, memory_order_relaxed);
    for (int code = 0; code < CODES; code++) {
        const uint64_t ended = atomic_load_explicit(&series->ended[code], memory_order_relaxed);
        report->requests += ended;
        report->failed += status_code_is_ours((enum status_code)code) ? ended : 0;
    }
    report->action_hits += actions ? hits : 0;
    report->action_misses += actions ? misses : 0;
    report->blob_hits += actions ? 0 : hits;
    report->blob_misses += actions ? 0 : misses;
    report->received_bytes += atomic_load_explicit(&series->received_bytes, memory_order_relaxed);
    report->sent_bytes += atomic_load_explicit(&series->sent_bytes, memory_order_relaxed);
}

void instance_metrics_times(struct instance_metrics *metrics, uint64_t buckets[HISTOGRAM_BUCKETS])
{
    memset(buckets, 0, HISTOGRAM_BUCKETS * sizeof(buckets[0]));
    for (size_t i = 0; i < INSTANCES * metrics->methods_count; i++)
        for (size_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
            buckets[bucket] += atomic_load_explicit(&metrics->series[i].seconds.counts[bucket],
                                                    memory_order_relaxed);
}

size_t instance_metrics_report(struct instance_metrics *metrics,
                               struct instance_report *reports,
                               size_t max)
{
    const size_t count = atomic_load_explicit(&metrics->count, memory_order_acquire);
    size_t filled = 0;
    for (size_t i = 0; i < INSTANCES && filled < max; i++) {
        struct instance_report report = {0};
        if (i >= count && i != INSTANCE_METRICS_OTHER)
            continue;
        for (size_t method = 0; method < metrics->methods_count; method++)
            sum_up(series_of(metrics, i, method), is_of_actions(metrics->methods[method]), &report);
        if (report.requests == 0)
            continue;
        memcpy(report.name, metrics->names[i].text, metrics->names[i].length);
        reports[filled++] = report;
    }
    return filled;
}
