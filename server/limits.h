/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one user may take of the server, and all together, through whichever door: calls in progress, bytes of requests and answers in
 * memory, calls and bytes a second. A user is whoever has shown who it is; others are their address (of IPv6 the network).
 *
 *   enter ──► (hold, moved)... ──► leave
 *
 * Rates are buckets of tokens that hold LIMITS_BURST_NS of them. Bytes are taken when they have come or gone, so that a bucket may be
 * in debt, though never by more than LIMITS_DEBT_NS; while it is, no call begins. Nothing that has begun is held up.
 *
 * Bounded: LIMITS_USERS are known; whoever was here longest ago and has nothing in progress is forgotten. When all have, those who come
 * share one account. A limit of 0 is none; with none at all nothing is kept.
 */
#ifndef VARVE_SERVER_LIMITS_H
#define VARVE_SERVER_LIMITS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "server/access_rules.h"

struct access_caller;
struct limits;
struct limits_user;

enum { LIMITS_USERS = 4096 };
#define LIMITS_BURST_NS (2 * NS_PER_S)
#define LIMITS_DEBT_NS (30 * NS_PER_S)

struct limits_config {
    struct access_limits user; /* of each, unless the access file says something else of it */
    struct access_limits all;  /* of all together; calls and memory are 0: others see to those */
    struct clock *clock;       /* borrowed */
    struct metrics *metrics;   /* borrowed */
};

MUST_CHECK bool limits_new(const struct limits_config *config,
                           struct limits **limits,
                           struct status *status);
void limits_free(struct limits *limits); /* nobody is in */

/* A call's part in it. In the call's memory; a zeroed one is valid, and not in. */
struct limits_ticket {
    struct limits *limits; /* borrowed; NULL: not in */
    struct limits_user *user;
    size_t held_bytes;
    bool counts_bytes;
};

/*
 * Any thread. RESOURCE_EXHAUSTED naming the limit and its numbers: not in; *retry_ns is when it may be worth trying again.
 */
MUST_CHECK bool limits_enter(struct limits *limits,
                             const struct access_caller *caller,
                             struct limits_ticket *ticket,
                             int64_t *retry_ns,
                             struct status *status);
/* So much it has in memory, now: its request, and what is sent and not taken. */
void limits_hold(struct limits_ticket *ticket, size_t held_bytes);
/* So many bytes have come or gone. */
void limits_moved(struct limits_ticket *ticket, uint64_t bytes);
/* Does nothing for one that is not in. */
void limits_leave(struct limits_ticket *ticket);

/* How many are known. For tests. */
size_t limits_users(struct limits *limits);

#endif
