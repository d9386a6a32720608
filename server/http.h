/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP, on a few threads of libmicrohttpd's: the cache (server/http_cache.h), and for people and monitoring /healthz (the process
 * answers), /readyz (200 when it takes reads and writes, else 503 and why), /status (the same for clients that look first),
 * /metrics (Prometheus text), and the page (server/http_page.h).
 *
 * It answers these from its start; the cache from http_serve() to http_drain().
 */
#ifndef VARVE_SERVER_HTTP_H
#define VARVE_SERVER_HTTP_H

#include "base/metrics.h"
#include "base/status.h"

struct access;
struct health;
struct http;
struct limits;
struct rpc_metrics;
struct server;
struct tls;

struct http_config {
    const char *listen;    /* borrowed for the call */
    struct health *health; /* borrowed, as the others */
    struct metrics *metrics;
    struct rpc_metrics *rpc_metrics;
    struct access *access;            /* NULL: everything is allowed */
    struct limits *limits;            /* NULL: none */
    struct tls *tls;                  /* NULL: plaintext */
    uint64_t connections_max;         /* requests at once; 0: 64 */
    uint64_t address_connections_max; /* of those from one address; 0: half */
    int64_t idle_ns;                  /* 0: 15 s */
    uint64_t spare_descriptors;       /* when others have used up theirs */
};

/* UNAVAILABLE naming the address and why. */
MUST_CHECK bool http_start(const struct http_config *config,
                           struct http **http,
                           struct status *status);
/* Every second or so; NULL is fine. */
void http_step(struct http *http);
/* The store is open: the cache is served. server: borrowed until http_stop(). */
void http_serve(struct http *http, struct server *server);
/* Refuses new requests to the cache, and waits up to grace_ns for those in progress. */
void http_drain(struct http *http, int64_t grace_ns);
/* Ends those that are left. The store, the workers and the access thread still run. NULL is fine, as below. */
void http_stop(struct http *http);
void http_free(struct http *http); /* it is stopped, and nobody calls http_step() any more */
/*
 * More series for /metrics, behind the others: render is called on a thread of HTTP. NULL: none any more; nobody is in it then.
 * http may be NULL.
 */
void http_set_series(struct http *http,
                     void (*render)(void *argument, struct metrics_text *text),
                     void *argument);
int http_port(const struct http *http);

#endif
