/* SPDX-License-Identifier: Apache-2.0 */
/* Followers' calls that have come to the end of this node's log and wait until it goes on, until their time is over, or until the server stops. */
#ifndef VARVE_SERVER_FEED_WAITS_H
#define VARVE_SERVER_FEED_WAITS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "durability/copies.h"

struct call;
struct feed_waits;

/* In the call's memory; zeroed, it waits for nothing. It has a reference of the call meanwhile. */
struct feed_waiter {
    struct call *call; /* set by the caller, as the next two */
    enum lane lane;
    int64_t until_ns;                    /* CLOCK_MONOTONIC */
    struct feed_waiter *next, *previous; /* of this module, as all below */
    bool waiting;
};

/* Hooks into the copies, whose publications wake those who wait. All is borrowed. */
MUST_CHECK bool feed_waits_new(struct copies *copies,
                               struct clock *clock,
                               struct metrics *metrics,
                               struct feed_waits **waits,
                               struct status *status);
/* NULL is fine. Asserts that nobody waits. */
void feed_waits_free(struct feed_waits *waits);

/*
 * From now on the call is woken (call_wake) whenever its lane goes on, when its time is over, and when the server stops: so begin, then
 * read, then park. RESOURCE_EXHAUSTED when too many wait.
 */
MUST_CHECK bool feed_waits_begin(struct feed_waits *waits,
                                 struct feed_waiter *waiter,
                                 struct status *status);
void feed_waits_end(struct feed_waits *waits, struct feed_waiter *waiter);

/* Wakes those whose time is over. From time to time, by the maintenance thread. */
void feed_waits_step(struct feed_waits *waits);

/* Wakes all; nobody is to wait from then on. */
void feed_waits_stop(struct feed_waits *waits);
bool feed_waits_stopped(struct feed_waits *waits);

#endif
