/* SPDX-License-Identifier: Apache-2.0 */
#include "server/page_state.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log_recent.h"
#include "client/json.h"
#include "server/health.h"
#include "server/instance_metrics.h"
#include "server/peers.h"
#include "server/rpc_metrics.h"
#include "server/server.h"
#include "server/tier.h"

/* What the modules report into; too large for a stack. */
struct reports {
    struct instance_report instances[INSTANCE_METRICS_MAX + 1];
    struct peer_report peers[PEERS_MAX];
    struct follower followers[LIMIT_FOLLOWERS];
    struct log_recent warnings[LOG_RECENT_MAX];
};

static void put_health(struct json *json, const struct page_state *state);
static void put_counters(struct json *json, const struct page_state *state);
static void put_times(struct json *json, const struct page_state *state);
static void put_instances(struct json *json,
                          const struct page_state *state,
                          struct reports *reports);
static void put_peers(struct json *json, const struct page_state *state, struct reports *reports);
static void put_followers(struct json *json,
                          const struct page_state *state,
                          struct reports *reports);
static void put_warnings(struct json *json,
                         const struct page_state *state,
                         struct reports *reports);

bool page_state_put(const struct page_state *state,
                    char **json,
                    size_t *length,
                    struct status *status)
{
    struct json out;
    *json = NULL;
    struct reports *const reports = malloc(sizeof(*reports));
    FILE *const to = reports != NULL ? open_memstream(json, length) : NULL;
    if (to == NULL) {
        free(reports);
        return status_fail_errno(status, ENOMEM, "state for the page");
    }
    json_init(&out, to);
    json_open_object(&out, NULL);
    put_health(&out, state);
    put_counters(&out, state);
    put_instances(&out, state, reports);
    json_bool(&out, "all", state->all);
    if (state->all && state->server != NULL) {
        put_peers(&out, state, reports);
        put_followers(&out, state, reports);
    }
    if (state->all)
        put_warnings(&out, state, reports);
    json_close_object(&out);
    json_end(&out);
    free(reports);
    if (fclose(to) == 0)
        return true;
    free(*json);
    *json = NULL;
    return status_fail_errno(status, ENOMEM, "state for the page");
}

static void put_health(struct json *json, const struct page_state *state)
{
    char reason[STATUS_MESSAGE_BYTES_MAX];
    const enum server_state health = health_state(state->health, reason);
    const int64_t now_s = clock_wall_ns(clock_real()) / NS_PER_S;
    const int64_t started_s = metrics_get(state->metrics, METRIC_START_TIME);
    json_string(json, "version", VARVE_VERSION);
    json_string(json, "state", server_state_name(health));
    json_string(json, "reason", reason);
    json_bool(json, "stuck", metrics_get(state->metrics, METRIC_STUCK) != 0);
    json_integer(json, "now_ms", clock_monotonic_ns(clock_real()) / NS_PER_MS);
    json_integer(json, "uptime_s", started_s > 0 ? now_s - started_s : 0);
    if (state->server != NULL)
        json_integer(json, "vouch_s", state->server->config->vouch_ns / NS_PER_S);
}

static void put_counters(struct json *json, const struct page_state *state)
{
    static const struct {
        const char *key;
        enum metric metric;
    } rows[] = {
        {"capacity_bytes", METRIC_CAPACITY_BYTES},
        {"file_bytes", METRIC_SEGMENT_FILE_BYTES},
        {"disk_free_bytes", METRIC_DISK_FREE_BYTES},
        {"segments", METRIC_SEGMENTS},
        {"entries", METRIC_INDEX_ENTRIES},
        {"index_loading", METRIC_INDEX_LOADING},
        {"retention_s", METRIC_RETENTION_SECONDS},
        {"segments_evicted", METRIC_SEGMENTS_EVICTED},
        {"action_hits", METRIC_ACTION_HITS},
        {"action_misses", METRIC_ACTION_MISSES},
        {"action_incomplete", METRIC_ACTION_INCOMPLETE},
        {"found", METRIC_CAS_FOUND},
        {"missing", METRIC_CAS_MISSING},
        {"http_ok", METRIC_HTTP_OK},
        {"http_misses", METRIC_HTTP_MISSES},
        {"http_refused", METRIC_HTTP_REFUSED},
        {"http_failed", METRIC_HTTP_FAILED},
        {"http_received_bytes", METRIC_HTTP_RECEIVED},
        {"http_sent_bytes", METRIC_HTTP_SENT},
        {"syncs_small", METRIC_SEGMENT_SYNCS_SMALL},
        {"syncs_large", METRIC_SEGMENT_SYNCS_LARGE},
        {"rounds", METRIC_COMMIT_ROUNDS},
        {"blobs_written", METRIC_BLOBS_WRITTEN},
        {"action_results_written", METRIC_ACTION_RESULTS_WRITTEN},
        {"blob_bytes_written", METRIC_BLOB_BYTES_WRITTEN},
        {"records_damaged", METRIC_RECORDS_DAMAGED},
        {"scrub_damaged", METRIC_SCRUB_DAMAGED},
        {"scrub_last_pass_s", METRIC_SCRUB_LAST_PASS},
        {"calls_live", METRIC_CALLS_LIVE},
        {"calls_waiting", METRIC_BUDGET_WAITING},
        {"connections", METRIC_CONNECTIONS},
        {"buffers_in_use", METRIC_BUFFERS_IN_USE},
        {"buffers_max", METRIC_BUFFERS_MAX},
        {"request_bytes", METRIC_BUDGET_USED},
        {"request_bytes_max", METRIC_BUDGET_MAX},
        {"tls_expiry_s", METRIC_TLS_EXPIRY},
    };
    struct rpc_sums sums;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        json_integer(json, rows[i].key, metrics_get(state->metrics, rows[i].metric));
    rpc_metrics_sum(state->rpc_metrics, &sums);
    json_unsigned(json, "calls", sums.calls);
    json_unsigned(json, "calls_failed", sums.failed);
    json_unsigned(json, "received_bytes", sums.received_bytes);
    json_unsigned(json, "sent_bytes", sums.sent_bytes);
    put_times(json, state);
}

/* Counts in buckets, and the buckets' upper bounds but for the last, which has none. */
static void put_times(struct json *json, const struct page_state *state)
{
    uint64_t buckets[HISTOGRAM_BUCKETS];
    instance_metrics_times(rpc_metrics_instances(state->rpc_metrics), buckets);
    json_open_array(json, "time_counts");
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        json_unsigned(json, NULL, buckets[i]);
    json_close_array(json);
    json_open_array(json, "time_bounds_us");
    for (size_t i = 0; i + 1 < HISTOGRAM_BUCKETS; i++)
        json_integer(json, NULL, histogram_bound_ns(i) / NS_PER_US);
    json_close_array(json);
}

static void put_instances(struct json *json,
                          const struct page_state *state,
                          struct reports *reports)
{
    const size_t count =
        instance_metrics_report(rpc_metrics_instances(state->rpc_metrics), reports->instances,
                                ARRAY_LENGTH(reports->instances));
    json_open_array(json, "instances");
    for (size_t i = 0; i < count; i++) {
        const struct instance_report *const of = &reports->instances[i];
        json_open_object(json, NULL);
        json_string(json, "name", of->name);
        json_unsigned(json, "requests", of->requests);
        json_unsigned(json, "failed", of->failed);
        json_unsigned(json, "action_hits", of->action_hits);
        json_unsigned(json, "action_misses", of->action_misses);
        json_unsigned(json, "blob_hits", of->blob_hits);
        json_unsigned(json, "blob_misses", of->blob_misses);
        json_unsigned(json, "received_bytes", of->received_bytes);
        json_unsigned(json, "sent_bytes", of->sent_bytes);
        json_close_object(json);
    }
    json_close_array(json);
}

static void put_peers(struct json *json, const struct page_state *state, struct reports *reports)
{
    static const char *const names[] = {[PEER_CONNECTING] = "connecting",
                                        [PEER_CATCHING_UP] = "catching up",
                                        [PEER_UP_TO_DATE] = "up to date",
                                        [PEER_REFUSED] = "refused"};
    const size_t count = peers_report(state->server->peers, reports->peers, PEERS_MAX);
    json_open_array(json, "peers");
    for (size_t i = 0; i < count && i < PEERS_MAX; i++) {
        const struct peer_report *const of = &reports->peers[i];
        uint64_t records = 0;
        uint64_t bytes = 0;
        double seconds = 0;
        for (size_t lane = 0; lane < LANE_COUNT; lane++) {
            records += of->lanes[lane].behind_records;
            bytes += of->lanes[lane].behind_bytes;
            if (of->lanes[lane].behind_seconds > seconds)
                seconds = of->lanes[lane].behind_seconds;
        }
        json_open_object(json, NULL);
        json_string(json, "address", of->address);
        json_string(json, "state",
                    (size_t)of->state < ARRAY_LENGTH(names) && names[of->state] != NULL
                        ? names[of->state]
                        : "connecting");
        json_unsigned(json, "behind_records", records);
        json_unsigned(json, "behind_bytes", bytes);
        json_real(json, "behind_seconds", seconds);
        json_unsigned(json, "bytes_fetched", of->bytes_fetched);
        json_string(json, "error", of->last_error.code != STATUS_OK ? of->last_error.message : "");
        json_close_object(json);
    }
    json_close_array(json);
}

static void put_followers(struct json *json,
                          const struct page_state *state,
                          struct reports *reports)
{
    const int64_t now_ns = clock_monotonic_ns(state->server->clock);
    const size_t count = copies_followers(durability_copies(state->server->durability),
                                          reports->followers, LIMIT_FOLLOWERS);
    json_open_array(json, "followers");
    for (size_t i = 0; i < count && i < LIMIT_FOLLOWERS; i++) {
        const struct follower *const of = &reports->followers[i];
        json_open_object(json, NULL);
        json_string(json, "name", of->name);
        json_string(json, "address", of->address);
        json_unsigned(json, "behind_records",
                      of->behind_records[LANE_SMALL] + of->behind_records[LANE_LARGE]);
        json_real(json, "seen_seconds", (double)(now_ns - of->seen_ns) / (double)NS_PER_S);
        json_bool(json, "counts", of->counts);
        char trouble[STATUS_MESSAGE_BYTES_MAX];
        tier_trouble(state->server->tier, of->uid, trouble);
        json_string(json, "error", trouble);
        json_close_object(json);
    }
    json_close_array(json);
}

static void put_warnings(struct json *json, const struct page_state *state, struct reports *reports)
{
    const size_t count = log_recent_copy(state->after, reports->warnings, LOG_RECENT_MAX);
    json_open_array(json, "warnings");
    for (size_t i = 0; i < count; i++) {
        json_open_object(json, NULL);
        json_unsigned(json, "number", reports->warnings[i].number);
        json_string(json, "line", reports->warnings[i].line);
        json_close_object(json);
    }
    json_close_array(json);
}
