/* SPDX-License-Identifier: Apache-2.0 */
/* The server: what its parts share, its threads, its start and its stop. */
#ifndef VARVE_SERVER_SERVER_H
#define VARVE_SERVER_SERVER_H

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "durability/durability.h"
#include "server/config.h"

struct access;
struct budget;
struct feed_waits;
struct flights;
struct health;
struct limits;
struct method;
struct peers;
struct repair;
struct rpc_metrics;
struct resets;
struct slow_calls;
struct tier;
struct tls;
struct upload_table;
struct walks;
struct workers;

struct server {
    /* Set at start, never changed. All owned unless said. */
    const struct config *config; /* borrowed */
    struct clock *clock;         /* borrowed */
    struct metrics *metrics;
    struct rpc_metrics *rpc_metrics;
    struct resets *resets;         /* NULL: they are not counted */
    struct slow_calls *slow_calls; /* borrowed from private; NULL: none is logged */
    struct access *access;         /* NULL: everything is allowed */
    struct tls *tls;               /* NULL: plaintext */
    struct limits *limits;         /* NULL: none */
    struct buffer_pool *buffers;
    struct workers *workers;
    struct budget *budget;
    struct walks *walks;
    struct durability *durability;
    struct store *store; /* borrowed from durability */
    struct upload_table *uploads;
    struct feed_waits *feed_waits;
    struct flights *flights; /* what is on its way into the store */
    struct peers *peers;     /* whom this node follows */
    struct repair *repair;   /* NULL: read repair is off */
    struct tier *tier;       /* NULL: there is no bucket */
    struct health *health;
    _Atomic uint64_t
        calls_when_drained; /* of clients, that had ended when the server was drained */
    const struct method *const *methods; /* borrowed: all that are served */
    size_t methods_count;
    int64_t started_ns;             /* CLOCK_MONOTONIC */
    struct server_private *private; /* server.c's own: gRPC objects, threads, live calls */
};

/*
 * Reads the files of TLS and access that the configuration names, and lets go of them: what can be told of them before a start.
 * INVALID_ARGUMENT.
 */
MUST_CHECK bool server_check_files(const struct config *config, struct status *status);

/*
 * Opens the store, recovers, starts every thread (one table in server.c), listens. "event=ready" is
 * logged when it serves.
 */
MUST_CHECK bool server_start(const struct config *config,
                             struct server **server,
                             struct status *status);
/*
 * Drains (health NOT_SERVING, no new calls), waits up to config's drain time, cancels the rest,
 * commits, closes.
 */
void server_stop(struct server *server);

/* The files that the configuration names (access, certificates) are read again, soon. Any thread. */
void server_reload(struct server *server);

/*
 * Follows the peers that this configuration names from now on, and no others: those that are new start, those that are gone stop, the
 * rest go on. Nothing else of it counts, and nothing of it is borrowed. Failures are logged. The thread that started the server.
 */
void server_reload_peers(struct server *server, const struct config *config);

/* What health, readyz and the log say. */
enum server_state {
    SERVER_STARTING,
    SERVER_SERVING,
    SERVER_READ_ONLY,
    SERVER_DRAINING, /* it stops */
    SERVER_DRAINED,  /* it was taken out of service, and goes on */
};
enum server_state server_state(struct server *server);
const char *server_state_name(enum server_state state);
/* The port that was bound, for "HOST:0". */
int server_grpc_port(struct server *server);
int server_http_port(struct server *server);

#endif
