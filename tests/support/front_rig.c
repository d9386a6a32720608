/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/front_rig.h"

#include <unistd.h>

#include "server/budget.h"
#include "server/health.h"
#include "server/walks.h"
#include "server/workers.h"

static void poll_loop(void *argument)
{
    while (front_poll_step(argument))
        continue;
}

static void work_loop(void *argument)
{
    while (workers_step(argument))
        continue;
}

void front_rig_start(struct front_rig *rig,
                     const struct method *const *methods,
                     size_t count,
                     const struct front_rig_limits *limits)
{
    static char address[] = "127.0.0.1:0";
    static char *const listen[] = {address};
    struct status status = {0};
    *rig = (struct front_rig){0};
    grpc_init();
    const uint64_t max_calls = limits != NULL && limits->max_calls > 0 ? limits->max_calls : 4096;
    const uint64_t memory = limits != NULL && limits->request_memory_bytes > 0
                                ? limits->request_memory_bytes
                                : 256 * MIB;
    const uint64_t grpc_memory =
        limits != NULL && limits->grpc_memory_bytes > 0 ? limits->grpc_memory_bytes : GIB;
    struct server *const server = &rig->server;
    server->config = &rig->config;
    server->clock = clock_real();
    server->metrics = &rig->metrics;
    server->methods = methods;
    if (limits != NULL && limits->slow_call_ns > 0) {
        slow_calls_init(&rig->slow_calls, limits->slow_call_ns, &rig->metrics);
        server->slow_calls = &rig->slow_calls;
    }
    server->methods_count = count;
    ASSERT(health_new(&server->health, &status));
    ASSERT(rpc_metrics_new(methods, count, &server->rpc_metrics, &status));
    ASSERT(workers_new(&server->workers, &status));
    ASSERT(budget_new(memory, max_calls, &rig->metrics, &server->budget, &status));
    ASSERT(walks_new(memory, &server->walks, &status));
    const struct front_config config = {.server = server,
                                        .metrics = &rig->metrics,
                                        .methods = methods,
                                        .methods_count = count,
                                        .listen = listen,
                                        .listen_count = 1,
                                        .remembered_bytes_max = memory,
                                        .grpc_memory_bytes = grpc_memory,
                                        .max_calls = max_calls,
                                        .max_streams = 2048,
                                        .keepalive_ns = 300 * NS_PER_S};
    ASSERT(front_new(&config, &rig->front, &status));
    if (limits != NULL && limits->prepare != NULL)
        limits->prepare(rig);
    front_start(rig->front);
    for (size_t i = 0; i < ARRAY_LENGTH(rig->pollers); i++)
        ASSERT(thread_start(&rig->pollers[i], "cq", 0, poll_loop, rig->front, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(rig->workers); i++)
        ASSERT(thread_start(&rig->workers[i], "worker", 0, work_loop, server->workers, &status));
    rpc_client_open(&rig->client, front_port(rig->front));
}

void front_rig_stop(struct front_rig *rig, int grace_ms)
{
    rpc_client_close(&rig->client);
    front_drain(rig->front, grace_ms * (int64_t)NS_PER_MS);
    front_rig_dismantle(rig);
}

void front_rig_dismantle(struct front_rig *rig)
{
    struct server *const server = &rig->server;
    ASSERT(front_live(rig->front) == 0);
    workers_stop(server->workers);
    for (size_t i = 0; i < ARRAY_LENGTH(rig->workers); i++)
        thread_join(&rig->workers[i]);
    front_stop(rig->front);
    for (size_t i = 0; i < ARRAY_LENGTH(rig->pollers); i++)
        thread_join(&rig->pollers[i]);
    front_free(rig->front);
    workers_free(server->workers);
    budget_free(server->budget);
    walks_free(server->walks);
    rpc_metrics_free(server->rpc_metrics);
    health_free(server->health);
    ASSERT(metrics_get(&rig->metrics, METRIC_CALLS_LIVE) == 0);
    ASSERT(metrics_get(&rig->metrics, METRIC_BUDGET_USED) == 0);
    ASSERT(metrics_get(&rig->metrics, METRIC_BUDGET_WAITING) == 0);
    grpc_shutdown_blocking(); /* its threads are joined, so that none is taken for a leak */
}

void front_rig_wait_live(struct front_rig *rig, size_t live)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + 60 * NS_PER_S;
    while (front_live(rig->front) != live) {
        ASSERT(clock_monotonic_ns(clock_real()) < until_ns);
        usleep(500);
    }
}
