/* SPDX-License-Identifier: Apache-2.0 */
/* varve.v1.Admin: Stats, how the server is in numbers; Drain and Undrain, whether balancers see it; SetReadOnly. */
#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/log.h"
#include "server/access.h"
#include "server/health.h"
#include "server/instance_metrics.h"
#include "server/methods.h"
#include "server/rpc_metrics.h"
#include "server/server.h"
#include "server/store_status.h"
#include "varve/v1/admin.pb-c.h"

enum { BUDGETS = 5, REASON_BYTES_MAX = 200 };

typedef Varve__V1__StatsResponse stats_response;
typedef Varve__V1__DrainResponse drain_response;

static void fill_counters(struct server *server, stats_response *response);
static void fill_budgets(struct server *server, Varve__V1__Budget budgets[BUDGETS]);
static bool fill_instances(struct call *call, stats_response *response, struct status *status);

/* ---- Stats */

static void stats_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct server *const server = call_server(call);
    struct store_status filled;
    struct status status = {0};
    Varve__V1__Budget budgets[BUDGETS];
    Varve__V1__Budget *pointers[BUDGETS];
    stats_response response = VARVE__V1__STATS_RESPONSE__INIT;
    if (!store_status_fill(server, &filled, &status) || !fill_instances(call, &response, &status)) {
        call_fail(call, &status);
        return;
    }
    response.status = &filled.response;
    response.node_uid = server->store->node_uid;
    fill_counters(server, &response);
    fill_budgets(server, budgets);
    for (size_t i = 0; i < BUDGETS; i++)
        pointers[i] = &budgets[i];
    response.n_budgets = BUDGETS;
    response.budgets = pointers;
    call_reply_packed(call, &response.base);
}

static uint64_t value_of(struct server *server, enum metric metric)
{
    const int64_t value = metrics_get(server->metrics, metric);
    return value > 0 ? (uint64_t)value : 0;
}

static void fill_counters(struct server *server, stats_response *response)
{
    const struct {
        uint64_t *to;
        enum metric metric;
    } values[] = {
        {&response->action_hits, METRIC_ACTION_HITS},
        {&response->action_misses, METRIC_ACTION_MISSES},
        {&response->action_incomplete, METRIC_ACTION_INCOMPLETE},
        {&response->blobs_present, METRIC_CAS_FOUND},
        {&response->blobs_missing, METRIC_CAS_MISSING},
        {&response->blobs_written, METRIC_BLOBS_WRITTEN},
        {&response->blob_bytes_written, METRIC_BLOB_BYTES_WRITTEN},
        {&response->action_results_written, METRIC_ACTION_RESULTS_WRITTEN},
        {&response->blobs_read, METRIC_BLOBS_READ},
        {&response->blob_bytes_read, METRIC_BLOB_BYTES_READ},
        {&response->forgotten, METRIC_BLOBS_FORGOTTEN},
        {&response->damaged, METRIC_RECORDS_DAMAGED},
        {&response->capacity_bytes, METRIC_CAPACITY_BYTES},
        {&response->segment_file_bytes, METRIC_SEGMENT_FILE_BYTES},
        {&response->segments_evicted, METRIC_SEGMENTS_EVICTED},
        {&response->blobs_evicted, METRIC_BLOBS_EVICTED},
        {&response->eviction_moved_bytes, METRIC_EVICTION_MOVED_BYTES},
        {&response->eviction_forgotten_bytes, METRIC_EVICTION_FORGOTTEN_BYTES},
        {&response->retention_seconds, METRIC_RETENTION_SECONDS},
        {&response->calls_slow, METRIC_CALLS_SLOW},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
        *values[i].to = value_of(server, values[i].metric);
    response->vouch_seconds = (uint64_t)(server->store->vouch_ns / NS_PER_S);
}

static void fill_budgets(struct server *server, Varve__V1__Budget budgets[BUDGETS])
{
    const struct config *const config = server->config;
    const struct {
        const char *name;
        uint64_t used, limit, waiting;
    } rows[BUDGETS] = {
        {"calls", value_of(server, METRIC_CALLS_LIVE), config->max_calls, 0},
        {"request_bytes", value_of(server, METRIC_BUDGET_USED), config->request_memory_bytes,
         value_of(server, METRIC_BUDGET_WAITING)},
        {"buffers", buffer_pool_in_use(server->buffers), buffer_pool_max(server->buffers), 0},
        {"connections", value_of(server, METRIC_CONNECTIONS), config->max_connections, 0},
        {"uploads", value_of(server, METRIC_UPLOADS_OPEN), LIMIT_UPLOADS, 0},
    };
    for (size_t i = 0; i < BUDGETS; i++) {
        varve__v1__budget__init(&budgets[i]);
        budgets[i].name = (char *)(uintptr_t)rows[i].name;
        budgets[i].used = rows[i].used;
        budgets[i].limit = rows[i].limit;
        budgets[i].waiting = rows[i].waiting;
    }
}

static bool fill_instances(struct call *call, stats_response *response, struct status *status)
{
    struct arena *const arena = call_arena(call);
    const size_t max = INSTANCE_METRICS_MAX + 1;
    struct instance_report *const reports = arena_take_zeroed(arena, max, sizeof(*reports));
    Varve__V1__InstanceStats *const told = arena_take_zeroed(arena, max, sizeof(*told));
    Varve__V1__InstanceStats **const pointers =
        arena_take_zeroed(arena, max, sizeof(Varve__V1__InstanceStats *));
    if (reports == NULL || told == NULL || pointers == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the instances");
    response->n_instances = instance_metrics_report(
        rpc_metrics_instances(call_server(call)->rpc_metrics), reports, max);
    response->instances = pointers;
    for (size_t i = 0; i < response->n_instances; i++) {
        struct instance_report *const from = &reports[i];
        varve__v1__instance_stats__init(&told[i]);
        told[i].instance_name = from->name;
        told[i].requests = from->requests;
        told[i].failed = from->failed;
        told[i].action_hits = from->action_hits;
        told[i].action_misses = from->action_misses;
        told[i].blob_hits = from->blob_hits;
        told[i].blob_misses = from->blob_misses;
        told[i].received_bytes = from->received_bytes;
        told[i].sent_bytes = from->sent_bytes;
        pointers[i] = &told[i];
    }
    return true;
}

const struct method rpc_admin_stats = {.path = "/varve.v1.Admin/Stats",
                                       .kind = METHOD_UNARY,
                                       .role = ROLE_ADMIN,
                                       .on_message = stats_message};

/* ---- Drain, Undrain, SetReadOnly */

/* Of clients: what balancers and administrators ask is left out. */
static uint64_t calls_of_clients(struct server *server)
{
    static const char admin[] = "/varve.v1.Admin/";
    uint64_t calls = value_of(server, METRIC_HTTP_OK) + value_of(server, METRIC_HTTP_MISSES) +
                     value_of(server, METRIC_HTTP_REFUSED) + value_of(server, METRIC_HTTP_FAILED);
    for (size_t i = 0; i < server->methods_count; i++) {
        const struct method *const method = server->methods[i];
        if (method->role == ROLE_NONE || method->role == ROLE_REPLICATE ||
            strncmp(method->path, admin, sizeof(admin) - 1) == 0)
            continue;
        for (int code = STATUS_OK; code <= STATUS_UNAUTHENTICATED; code++)
            calls += rpc_metrics_count(server->rpc_metrics, i, (enum status_code)code);
    }
    return calls;
}

static void reply_state(struct call *call)
{
    struct server *const server = call_server(call);
    drain_response response = VARVE__V1__DRAIN_RESPONSE__INIT;
    response.state = store_status_state(health_state(server->health, NULL));
    const uint64_t live = value_of(server, METRIC_CALLS_LIVE);
    response.calls = live > 0 ? live - 1 : 0;
    const int64_t drained_ns = health_drained_ns(server->health);
    if (drained_ns != 0) {
        response.drained_seconds =
            (double)(clock_monotonic_ns(server->clock) - drained_ns) / (double)NS_PER_S;
        const uint64_t before = atomic_load(&server->calls_when_drained);
        const uint64_t now = calls_of_clients(server);
        response.calls_since = now > before ? now - before : 0;
    }
    const int64_t read_only_ns = health_refused_writes_ns(server->health);
    if (read_only_ns != 0)
        response.read_only_seconds =
            (double)(clock_monotonic_ns(server->clock) - read_only_ns) / (double)NS_PER_S;
    call_reply_packed(call, &response.base);
}

/* "taken out of service by ci: a new disk". */
static bool give_reason(struct call *call,
                        const char *what,
                        const char *given,
                        char reason[STATUS_MESSAGE_BYTES_MAX],
                        struct status *status)
{
    if (strlen(given) > REASON_BYTES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "reason has %zu bytes, at most %d are taken", strlen(given),
                           REASON_BYTES_MAX);
    snprintf(reason, STATUS_MESSAGE_BYTES_MAX, "%s by %s%s%s", what,
             access_caller_name(call_caller(call)), given[0] != '\0' ? ": " : "", given);
    return true;
}

static void drain_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct server *const server = call_server(call);
    struct status status = {0};
    const Varve__V1__DrainRequest *const request =
        (const Varve__V1__DrainRequest *)(void *)call_unpack(
            call, message, &varve__v1__drain_request__descriptor, &status);
    char reason[STATUS_MESSAGE_BYTES_MAX];
    if (request == NULL ||
        !give_reason(call, "taken out of service", request->reason, reason, &status)) {
        call_fail(call, &status);
        return;
    }
    const char *const user = access_caller_name(call_caller(call));
    const uint64_t calls = calls_of_clients(server);
    if (health_drain(server->health, reason, clock_monotonic_ns(server->clock))) {
        struct log_text by;
        struct log_text why;
        atomic_store(&server->calls_when_drained, calls);
        log_event(LOG_LEVEL_INFO, "drained", "user=%s peer=%s reason=%s", log_quote(&by, user),
                  call_peer(call), log_quote(&why, request->reason));
    }
    reply_state(call);
}

const struct method rpc_admin_drain = {.path = "/varve.v1.Admin/Drain",
                                       .kind = METHOD_UNARY,
                                       .role = ROLE_ADMIN,
                                       .on_message = drain_message};

static void undrain_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    if (health_undrain(call_server(call)->health)) {
        struct log_text by;
        log_event(LOG_LEVEL_INFO, "undrained", "user=%s peer=%s",
                  log_quote(&by, access_caller_name(call_caller(call))), call_peer(call));
    }
    reply_state(call);
}

const struct method rpc_admin_undrain = {.path = "/varve.v1.Admin/Undrain",
                                         .kind = METHOD_UNARY,
                                         .role = ROLE_ADMIN,
                                         .on_message = undrain_message};

static void set_read_only_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct server *const server = call_server(call);
    struct status status = {0};
    char reason[STATUS_MESSAGE_BYTES_MAX];
    const Varve__V1__SetReadOnlyRequest *const request =
        (const Varve__V1__SetReadOnlyRequest *)(void *)call_unpack(
            call, message, &varve__v1__set_read_only_request__descriptor, &status);
    if (request == NULL || !give_reason(call, "made read-only", request->reason, reason, &status)) {
        call_fail(call, &status);
        return;
    }
    const bool changes = request->on ? health_refuse_writes(server->health, reason,
                                                            clock_monotonic_ns(server->clock))
                                     : health_take_writes(server->health);
    if (changes) {
        struct log_text by;
        struct log_text why;
        metrics_set(server->metrics, METRIC_READ_ONLY_BY_ORDER, request->on);
        log_event(LOG_LEVEL_WARN, request->on ? "read_only" : "read_only_ended",
                  "user=%s peer=%s reason=%s",
                  log_quote(&by, access_caller_name(call_caller(call))), call_peer(call),
                  log_quote(&why, request->reason));
    }
    reply_state(call);
}

const struct method rpc_admin_set_read_only = {.path = "/varve.v1.Admin/SetReadOnly",
                                               .kind = METHOD_UNARY,
                                               .role = ROLE_ADMIN,
                                               .on_message = set_read_only_message};
