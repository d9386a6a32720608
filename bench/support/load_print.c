/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/load_print.h"

#include <math.h>
#include <stdio.h>

#include "bench/support/load_work.h"
#include "client/json.h"

static double quantile_ms(const struct load_totals *totals, double quantile)
{
    return latency_quantile_ns(&totals->latency, quantile) / 1e6;
}

static void print_latency(const struct load_totals *totals)
{
    printf("ms: p50 %.3f   p99 %.3f   p99.9 %.3f   max %.3f\n", quantile_ms(totals, 0.5),
           quantile_ms(totals, 0.99), quantile_ms(totals, 0.999),
           (double)totals->latency.max_ns / 1e6);
}

/* Of a mixed work: how each kind fared. */
static void print_kinds(const struct load_report *report)
{
    size_t present = 0;
    for (size_t kind = 0; kind < EXCHANGE_KIND_COUNT; kind++)
        present += report->kinds[kind].calls > 0;
    for (size_t kind = 0; present > 1 && kind < EXCHANGE_KIND_COUNT; kind++) {
        const struct load_totals *totals = &report->kinds[kind];
        if (totals->calls == 0)
            continue;
        printf("    %-10s calls/s %.0f   ", exchange_kind_name((enum exchange_kind)kind),
               (double)totals->calls / report->seconds);
        print_latency(totals);
    }
}

static void print_errors(const struct load_report *report)
{
    printf("  errors:");
    uint64_t errors = report->all.wrong;
    for (size_t code = 1; code < LOAD_STATUS_CODES; code++) {
        errors += report->errors[code];
        if (report->errors[code] > 0)
            printf(" %s %" PRIu64, status_code_name((enum status_code)code), report->errors[code]);
    }
    if (report->all.wrong > 0)
        printf(" wrong answers about %" PRIu64 " blobs", report->all.wrong);
    printf("%s\n", errors > 0 ? "" : " none");
    if (report->first_error.code != STATUS_OK)
        printf("  first error: %s (%s)\n", report->first_error.message,
               status_code_name(report->first_error.code));
}

void load_print_text(const struct load_settings *settings, const struct load_report *report)
{
    const struct load_totals *all = &report->all;
    const double calls = (double)all->calls;
    printf("%s size=%s per_call=%zu in_flight=%zu connections=%zu rate=%.0f seconds=%.1f%s\n",
           settings->work->name, settings->size_text, settings->per_call, settings->in_flight,
           settings->connections, settings->rate, report->seconds,
           settings->verify ? "" : " not verified");
    if (report->filled_calls > 0)
        printf("  population of %zu: %.1f s\n", settings->population, report->fill_seconds);
    printf("  calls/s %.0f   blobs/s %.0f   MB/s %.1f\n", calls / report->seconds,
           (double)all->blobs / report->seconds, (double)all->bytes / report->seconds / 1e6);
    printf("  ");
    print_latency(all);
    print_kinds(report);
    if (settings->rate > 0)
        printf("  not begun in time: %" PRIu64 "\n", report->late);
    printf("  cpu seconds: client %.2f (%.1f us a call)", report->client_cpu_seconds,
           calls > 0 ? report->client_cpu_seconds / calls * 1e6 : 0);
    if (!isnan(report->server_cpu_seconds))
        printf("   server %.2f (%.1f us a call)", report->server_cpu_seconds,
               calls > 0 ? report->server_cpu_seconds / calls * 1e6 : 0);
    printf("\n");
    if (report->server_rss_bytes > 0)
        printf("  server memory: %.0f MB, at most %.0f MB\n",
               (double)report->server_rss_bytes / 1e6, (double)report->server_rss_peak_bytes / 1e6);
    if (!isnan(report->syncs))
        printf("  syncs: %.0f, %.4f a blob\n", report->syncs,
               all->blobs > 0 ? report->syncs / (double)all->blobs : 0);
    print_errors(report);
}

static void json_totals(struct json *json, const struct load_totals *totals, double seconds)
{
    json_unsigned(json, "calls", totals->calls);
    json_unsigned(json, "blobs", totals->blobs);
    json_unsigned(json, "bytes", totals->bytes);
    json_real(json, "calls_per_second", (double)totals->calls / seconds);
    json_real(json, "blobs_per_second", (double)totals->blobs / seconds);
    json_real(json, "megabytes_per_second", (double)totals->bytes / seconds / 1e6);
    json_real(json, "p50_ms", quantile_ms(totals, 0.5));
    json_real(json, "p99_ms", quantile_ms(totals, 0.99));
    json_real(json, "p999_ms", quantile_ms(totals, 0.999));
    json_real(json, "max_ms", (double)totals->latency.max_ns / 1e6);
    json_unsigned(json, "wrong_answers", totals->wrong);
}

void load_print_json(const struct load_settings *settings, const struct load_report *report)
{
    struct json json;
    json_init(&json, stdout);
    json_open_object(&json, NULL);
    json_string(&json, "work", settings->work->name);
    json_string(&json, "size", settings->size_text);
    json_unsigned(&json, "per_call", settings->per_call);
    json_unsigned(&json, "in_flight", settings->in_flight);
    json_unsigned(&json, "connections", settings->connections);
    json_real(&json, "rate", settings->rate);
    json_bool(&json, "verified", settings->verify);
    json_real(&json, "seconds", report->seconds);
    json_totals(&json, &report->all, report->seconds);
    if (settings->rate > 0)
        json_unsigned(&json, "late", report->late);
    json_real(&json, "fill_seconds", report->fill_seconds);
    json_real(&json, "client_cpu_seconds", report->client_cpu_seconds);
    if (!isnan(report->server_cpu_seconds))
        json_real(&json, "server_cpu_seconds", report->server_cpu_seconds);
    if (report->server_rss_bytes > 0) {
        json_unsigned(&json, "server_rss_bytes", report->server_rss_bytes);
        json_unsigned(&json, "server_rss_peak_bytes", report->server_rss_peak_bytes);
    }
    if (!isnan(report->syncs))
        json_real(&json, "syncs", report->syncs);
    json_open_object(&json, "kinds");
    for (size_t kind = 0; kind < EXCHANGE_KIND_COUNT; kind++) {
        if (report->kinds[kind].calls == 0)
            continue;
        json_open_object(&json, exchange_kind_name((enum exchange_kind)kind));
        json_totals(&json, &report->kinds[kind], report->seconds);
        json_close_object(&json);
    }
    json_close_object(&json);
    json_open_object(&json, "errors");
    for (size_t code = 1; code < LOAD_STATUS_CODES; code++) {
        if (report->errors[code] > 0)
            json_unsigned(&json, status_code_name((enum status_code)code), report->errors[code]);
    }
    json_close_object(&json);
    if (report->first_error.code != STATUS_OK)
        json_string(&json, "first_error", report->first_error.message);
    json_close_object(&json);
    json_end(&json);
}
