/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Series per RPC method, as Prometheus text:
 *   varve_rpc_total{method,code}         calls ended; OK always, other codes once they have occurred
 *   varve_rpc_seconds{method}            histogram, from arrival to the last byte of the answer
 *   varve_rpc_bytes_total{method,direction="received"|"sent"}   bytes of messages
 * All methods that are not served share one label, "other".
 *
 * It owns the series per instance, too (server/instance_metrics.h): method i of those is series i of these, and those of HTTP
 * follow.
 */
#ifndef VARVE_SERVER_RPC_METRICS_H
#define VARVE_SERVER_RPC_METRICS_H

#include "base/metrics.h"
#include "base/status.h"

struct instance_metrics;
struct method;
struct rpc_metrics;

/* The cache over HTTP, as methods of server/instance_metrics.h. */
enum rpc_metrics_http {
    RPC_METRICS_HTTP_GET_CAS,
    RPC_METRICS_HTTP_HEAD_CAS,
    RPC_METRICS_HTTP_PUT_CAS,
    RPC_METRICS_HTTP_GET_AC,
    RPC_METRICS_HTTP_HEAD_AC,
    RPC_METRICS_HTTP_PUT_AC,
    RPC_METRICS_HTTP_GET_KEY,
    RPC_METRICS_HTTP_HEAD_KEY,
    RPC_METRICS_HTTP_PUT_KEY,
    RPC_METRICS_HTTP_OTHER,
    RPC_METRICS_HTTP_COUNT
};

/* methods outlive it. Series i is methods[i]'s, series count is that of the unknown. */
MUST_CHECK bool rpc_metrics_new(const struct method *const *methods,
                                size_t count,
                                struct rpc_metrics **metrics,
                                struct status *status);
void rpc_metrics_free(struct rpc_metrics *metrics);
const char *rpc_metrics_http_name(enum rpc_metrics_http method); /* "HTTP GET cas"; static */

/* Any thread, as all of these. */
void rpc_metrics_ended(struct rpc_metrics *metrics,
                       size_t series,
                       enum status_code code,
                       int64_t duration_ns);
void rpc_metrics_received(struct rpc_metrics *metrics, size_t series, size_t bytes);
void rpc_metrics_sent(struct rpc_metrics *metrics, size_t series, size_t bytes);
struct instance_metrics *rpc_metrics_instances(struct rpc_metrics *metrics); /* borrowed */
size_t rpc_metrics_http_method(const struct rpc_metrics *metrics, enum rpc_metrics_http method);
uint64_t rpc_metrics_count(struct rpc_metrics *metrics, size_t series, enum status_code code);

/* Of all methods that name an instance, which leaves out those that wait by design. */
struct rpc_sums {
    uint64_t calls;
    uint64_t failed; /* for the server's sake: UNAVAILABLE and its like */
    uint64_t received_bytes, sent_bytes;
};
void rpc_metrics_sum(struct rpc_metrics *metrics, struct rpc_sums *sums);

void rpc_metrics_render(struct rpc_metrics *metrics, struct metrics_text *text);

#endif
