/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Series per RPC method, as Prometheus text:
 *   varve_rpc_total{method,code}         calls ended; OK always, other codes once they have occurred
 *   varve_rpc_seconds{method}            histogram, from arrival to the last byte of the answer
 *   varve_rpc_bytes_total{method,direction="received"|"sent"}   bytes of messages
 * All methods that are not served share one label, "other".
 */
#ifndef VARVE_SERVER_RPC_METRICS_H
#define VARVE_SERVER_RPC_METRICS_H

#include "base/metrics.h"
#include "base/status.h"

struct method;
struct rpc_metrics;

/* methods outlive it. Series i is methods[i]'s, series count is that of the unknown. */
MUST_CHECK bool rpc_metrics_new(const struct method *const *methods,
                                size_t count,
                                struct rpc_metrics **metrics,
                                struct status *status);
void rpc_metrics_free(struct rpc_metrics *metrics);

/* Any thread, as all of these. */
void rpc_metrics_ended(struct rpc_metrics *metrics,
                       size_t series,
                       enum status_code code,
                       int64_t duration_ns);
void rpc_metrics_received(struct rpc_metrics *metrics, size_t series, size_t bytes);
void rpc_metrics_sent(struct rpc_metrics *metrics, size_t series, size_t bytes);
uint64_t rpc_metrics_count(struct rpc_metrics *metrics, size_t series, enum status_code code);

void rpc_metrics_render(struct rpc_metrics *metrics, struct metrics_text *text);

#endif
