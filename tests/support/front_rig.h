/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC side of a server with any methods and no store behind it, on a port of loopback, with a
 * client beside it.
 */
#ifndef VARVE_TESTS_SUPPORT_FRONT_RIG_H
#define VARVE_TESTS_SUPPORT_FRONT_RIG_H

#include "base/thread.h"
#include "server/front.h"
#include "server/rpc_metrics.h"
#include "server/server.h"
#include "server/slow_calls.h"
#include "tests/support/rpc_client.h"

enum { FRONT_RIG_POLLERS = 2, FRONT_RIG_WORKERS = 3 };

struct front_rig {
    struct server server;
    struct config config;
    struct metrics metrics;
    struct slow_calls slow_calls;
    struct front *front;
    struct thread pollers[FRONT_RIG_POLLERS];
    struct thread workers[FRONT_RIG_WORKERS];
    struct rpc_client client;
};

struct front_rig_limits {
    uint64_t request_memory_bytes; /* 0: 256 MiB */
    uint64_t max_calls;            /* 0: 4096 */
    uint64_t grpc_memory_bytes;    /* 0: 1 GiB */
    int64_t slow_call_ns;          /* 0: none is logged */
    /* Sets what else the methods look at, before there are threads that do; NULL: nothing. */
    void (*prepare)(struct front_rig *rig);
};

void front_rig_start(struct front_rig *rig,
                     const struct method *const *methods,
                     size_t count,
                     const struct front_rig_limits *limits);
/* Closes the client, drains for grace_ms, and asserts that nothing is left of any call. */
void front_rig_stop(struct front_rig *rig, int grace_ms);
/* The parts of it, for tests of stopping: drain first. */
void front_rig_dismantle(struct front_rig *rig);

/* Waits until so many calls are in progress. */
void front_rig_wait_live(struct front_rig *rig, size_t live);

#endif
