/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc_metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/call.h"
#include "server/instance_metrics.h"

enum { CODES = STATUS_UNAUTHENTICATED + 1, LABELS_BYTES_MAX = 256 };

struct series {
    const char *name; /* borrowed: the path without its first slash */
    bool has_instance;
    _Atomic uint64_t ended[CODES];
    _Atomic uint64_t received_bytes;
    _Atomic uint64_t sent_bytes;
    struct histogram seconds;
};

struct rpc_metrics {
    struct instance_metrics *instances; /* owned */
    size_t count;
    struct series series[];
};

static const char *const http_names[RPC_METRICS_HTTP_COUNT] = {
    [RPC_METRICS_HTTP_GET_CAS] = "HTTP GET cas", [RPC_METRICS_HTTP_HEAD_CAS] = "HTTP HEAD cas",
    [RPC_METRICS_HTTP_PUT_CAS] = "HTTP PUT cas", [RPC_METRICS_HTTP_GET_AC] = "HTTP GET ac",
    [RPC_METRICS_HTTP_HEAD_AC] = "HTTP HEAD ac", [RPC_METRICS_HTTP_PUT_AC] = "HTTP PUT ac",
    [RPC_METRICS_HTTP_GET_KEY] = "HTTP GET key", [RPC_METRICS_HTTP_HEAD_KEY] = "HTTP HEAD key",
    [RPC_METRICS_HTTP_PUT_KEY] = "HTTP PUT key", [RPC_METRICS_HTTP_OTHER] = "HTTP other"};

static bool make_instances(struct rpc_metrics *metrics, struct status *status);
static void render_ended(struct rpc_metrics *metrics, struct metrics_text *text);
static void render_seconds(struct rpc_metrics *metrics, struct metrics_text *text);
static void render_bytes(struct rpc_metrics *metrics, struct metrics_text *text);

bool rpc_metrics_new(const struct method *const *methods,
                     size_t count,
                     struct rpc_metrics **metrics,
                     struct status *status)
{
    struct rpc_metrics *const made =
        calloc(1, sizeof(*made) + (count + 1) * sizeof(made->series[0]));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "metrics of the methods");
    made->count = count + 1;
    for (size_t i = 0; i < count; i++) {
        ASSERT(methods[i]->path[0] == '/');
        made->series[i].name = methods[i]->path + 1;
        made->series[i].has_instance = methods[i]->has_instance;
    }
    made->series[count].name = "other";
    if (!make_instances(made, status)) {
        free(made);
        return false;
    }
    *metrics = made;
    return true;
}

static bool make_instances(struct rpc_metrics *metrics, struct status *status)
{
    const size_t count = metrics->count + RPC_METRICS_HTTP_COUNT;
    const char **const names = calloc(count, sizeof(*names));
    if (names == NULL)
        return status_fail_errno(status, ENOMEM, "metrics of the methods");
    for (size_t i = 0; i < metrics->count; i++)
        names[i] = metrics->series[i].name;
    for (size_t i = 0; i < RPC_METRICS_HTTP_COUNT; i++)
        names[metrics->count + i] = http_names[i];
    const bool ok = instance_metrics_new(names, count, &metrics->instances, status);
    free(names);
    return ok;
}

struct instance_metrics *rpc_metrics_instances(struct rpc_metrics *metrics)
{
    return metrics->instances;
}

size_t rpc_metrics_http_method(const struct rpc_metrics *metrics, enum rpc_metrics_http method)
{
    return metrics->count + method;
}

const char *rpc_metrics_http_name(enum rpc_metrics_http method)
{
    ASSERT((unsigned int)method < RPC_METRICS_HTTP_COUNT);
    return http_names[method];
}

void rpc_metrics_free(struct rpc_metrics *metrics)
{
    if (metrics == NULL)
        return;
    instance_metrics_free(metrics->instances);
    free(metrics);
}

void rpc_metrics_ended(struct rpc_metrics *metrics,
                       size_t series,
                       enum status_code code,
                       int64_t duration_ns)
{
    ASSERT(series < metrics->count);
    ASSERT((unsigned int)code < CODES);
    struct series *const of = &metrics->series[series];
    atomic_fetch_add_explicit(&of->ended[code], 1, memory_order_relaxed);
    histogram_observe(&of->seconds, duration_ns);
}

void rpc_metrics_received(struct rpc_metrics *metrics, size_t series, size_t bytes)
{
    ASSERT(series < metrics->count);
    atomic_fetch_add_explicit(&metrics->series[series].received_bytes, bytes, memory_order_relaxed);
}

void rpc_metrics_sent(struct rpc_metrics *metrics, size_t series, size_t bytes)
{
    ASSERT(series < metrics->count);
    atomic_fetch_add_explicit(&metrics->series[series].sent_bytes, bytes, memory_order_relaxed);
}

uint64_t rpc_metrics_count(struct rpc_metrics *metrics, size_t series, enum status_code code)
{
    ASSERT(series < metrics->count);
    ASSERT((unsigned int)code < CODES);
    return atomic_load_explicit(&metrics->series[series].ended[code], memory_order_relaxed);
}

void rpc_metrics_sum(struct rpc_metrics *metrics, struct rpc_sums *sums)
{
    *sums = (struct rpc_sums){0};
    for (size_t i = 0; i < metrics->count; i++) {
        struct series *const of = &metrics->series[i];
        if (!of->has_instance)
            continue;
        for (int code = 0; code < CODES; code++) {
            const uint64_t ended = rpc_metrics_count(metrics, i, (enum status_code)code);
            sums->calls += ended;
            sums->failed += status_code_is_ours((enum status_code)code) ? ended : 0;
        }
        sums->received_bytes += atomic_load_explicit(&of->received_bytes, memory_order_relaxed);
        sums->sent_bytes += atomic_load_explicit(&of->sent_bytes, memory_order_relaxed);
    }
}

void rpc_metrics_render(struct rpc_metrics *metrics, struct metrics_text *text)
{
    render_ended(metrics, text);
    render_seconds(metrics, text);
    render_bytes(metrics, text);
    instance_metrics_render(metrics->instances, text);
}

static void render_ended(struct rpc_metrics *metrics, struct metrics_text *text)
{
    metrics_text_printf(text,
                        "# HELP varve_rpc_total RPCs that have ended, by method and status code.\n"
                        "# TYPE varve_rpc_total counter\n");
    for (size_t i = 0; i < metrics->count; i++) {
        for (int code = 0; code < CODES; code++) {
            const uint64_t ended = rpc_metrics_count(metrics, i, (enum status_code)code);
            if (ended > 0 || code == STATUS_OK)
                metrics_text_printf(
                    text, "varve_rpc_total{method=\"%s\",code=\"%s\"} %" PRIu64 "\n",
                    metrics->series[i].name, status_code_name((enum status_code)code), ended);
        }
    }
}

static void render_seconds(struct rpc_metrics *metrics, struct metrics_text *text)
{
    metrics_text_printf(
        text, "# HELP varve_rpc_seconds From the arrival of an RPC to the end of its answer.\n"
              "# TYPE varve_rpc_seconds histogram\n");
    for (size_t i = 0; i < metrics->count; i++) {
        char labels[LABELS_BYTES_MAX];
        const int length =
            snprintf(labels, sizeof(labels), "method=\"%s\"", metrics->series[i].name);
        ASSERT(length > 0 && (size_t)length < sizeof(labels));
        histogram_render(&metrics->series[i].seconds, "varve_rpc_seconds", labels, text);
    }
}

static void render_bytes(struct rpc_metrics *metrics, struct metrics_text *text)
{
    metrics_text_printf(
        text,
        "# HELP varve_rpc_bytes_total Bytes of the messages of RPCs, by method and direction.\n"
        "# TYPE varve_rpc_bytes_total counter\n");
    for (size_t i = 0; i < metrics->count; i++) {
        struct series *const of = &metrics->series[i];
        metrics_text_printf(
            text, "varve_rpc_bytes_total{method=\"%s\",direction=\"received\"} %" PRIu64 "\n",
            of->name, atomic_load_explicit(&of->received_bytes, memory_order_relaxed));
        metrics_text_printf(text,
                            "varve_rpc_bytes_total{method=\"%s\",direction=\"sent\"} %" PRIu64 "\n",
                            of->name, atomic_load_explicit(&of->sent_bytes, memory_order_relaxed));
    }
}
