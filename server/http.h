/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for people and monitoring, on a thread of its own (libmicrohttpd's): /healthz (the process
 * answers), /readyz (200 when it takes reads and writes, else 503 and why), /metrics (Prometheus
 * text), / (what there is). Never touches the store.
 */
#ifndef VARVE_SERVER_HTTP_H
#define VARVE_SERVER_HTTP_H

#include "base/metrics.h"
#include "base/status.h"

struct health;
struct http;
struct rpc_metrics;

struct http_config {
    const char *listen;    /* borrowed for the call */
    struct health *health; /* borrowed, as the others */
    struct metrics *metrics;
    struct rpc_metrics *rpc_metrics;
};

/* UNAVAILABLE naming the address and why. */
MUST_CHECK bool http_start(const struct http_config *config,
                           struct http **http,
                           struct status *status);
void http_stop(struct http *http);
/* Further series at /metrics, until it is called with NULL; no earlier render goes on then. */
void http_set_series(struct http *http,
                     void (*render)(void *argument, struct metrics_text *text),
                     void *argument);
int http_port(const struct http *http);

#endif
