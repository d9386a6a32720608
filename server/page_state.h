/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the server is, as JSON for the page (server/page/), which asks every two seconds and makes rates of it: state, room, counters
 * since the start, instances; and, for who may see all of it, peers, followers, and the last warnings of the log. Read from
 * memory, in some 0.1 ms.
 */
#ifndef VARVE_SERVER_PAGE_STATE_H
#define VARVE_SERVER_PAGE_STATE_H

#include "base/metrics.h"
#include "base/status.h"

struct health;
struct rpc_metrics;
struct server;

struct page_state {
    struct health *health; /* borrowed, as all pointers */
    struct metrics *metrics;
    struct rpc_metrics *rpc_metrics;
    struct server *server; /* NULL: the store is not open yet */
    bool all;              /* peers, followers and warnings, too */
    uint64_t after;        /* warnings with numbers above this */
};

/* *json: to be freed. RESOURCE_EXHAUSTED. */
MUST_CHECK bool page_state_put(const struct page_state *state,
                               char **json,
                               size_t *length,
                               struct status *status);

#endif
