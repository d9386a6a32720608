/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops asking an endpoint that does not answer, so that nobody waits for it; and finds out when it is back.
 *
 *   CLOSED ──► OPEN ──► PROBING ──► CLOSED
 *                ▲────────┘
 *
 *   From     To       On
 *   CLOSED   OPEN     more than half of 20 or more requests of 10 s have failed, or the last 8 have, however long that took
 *   OPEN     PROBING  5 s have passed (twice as many each time, up to 60): one request may go
 *   PROBING  CLOSED   it was answered
 *   PROBING  OPEN     it was not, and the wait is doubled
 *
 * An answer that says no is an answer. Requests that were begun before a change of state count for nothing when they end.
 */
#ifndef VARVE_TIER_BREAKER_H
#define VARVE_TIER_BREAKER_H

#include "base/clock.h"
#include "base/lock.h"

enum {
    BREAKER_SECONDS = 10,      /* of which failures are counted */
    BREAKER_REQUESTS_MIN = 20, /* in them, before a share means anything */
    BREAKER_FAILURES_ROW = 8,  /* when there are few requests, as when all that there are hang */
    BREAKER_WAIT_S_MIN = 5,
    BREAKER_WAIT_S_MAX = 60,
};

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_PROBING };
enum breaker_outcome {
    BREAKER_ANSWERED,
    BREAKER_FAILED,
    BREAKER_UNKNOWN, /* broken off by us */
};

struct breaker_second {
    int64_t second; /* of the monotonic clock */
    unsigned answered, failed;
};

/* Fields are the breaker's. */
struct breaker {
    struct clock *clock; /* borrowed */
    struct lock lock;
    enum breaker_state state; /* guarded by lock, as all below */
    uint64_t era;             /* counts changes of state */
    int64_t open_until_ns;
    int64_t wait_s; /* of the next opening */
    unsigned failures_row;
    struct breaker_second seconds[BREAKER_SECONDS];
};

/* What breaker_enter() gives and breaker_leave() takes. */
struct breaker_pass {
    uint64_t era;
};

void breaker_init(struct breaker *breaker, struct clock *clock);
void breaker_destroy(struct breaker *breaker);

/* False: do not ask. True: ask, and say how that went by breaker_leave(). Any thread. */
MUST_CHECK bool breaker_enter(struct breaker *breaker, struct breaker_pass *pass);
/* True when this has changed the state, which *now says. Any thread. */
bool breaker_leave(struct breaker *breaker,
                   struct breaker_pass pass,
                   enum breaker_outcome outcome,
                   enum breaker_state *now);
enum breaker_state breaker_state(struct breaker *breaker);

#endif
