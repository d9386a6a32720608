/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands completions of calls from gRPC's thread to the thread that works with them, and keeps its
 * timers. All handlers of one loop run in the thread that calls event_loop_run(), one at a time, so
 * that what they share needs no lock; and slow work there (reading files, hashing) does not hold up
 * the network.
 *
 * The loop owns no events: an event is a field of the object that waits for it.
 */
#ifndef VARVE_CLIENT_EVENT_LOOP_H
#define VARVE_CLIENT_EVENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/lock.h"

struct event {
    void (*run)(struct event *event); /* set by the owner of the event; may free it */
    struct event *next;               /* the loop's */
};

struct timer {
    void (*run)(struct timer *timer); /* set by the owner; may free it or start it again */
    int64_t due_ns;                   /* the loop's, as all below; CLOCK_MONOTONIC */
    struct timer *next, *previous;
    bool armed;
};

struct event_loop {
    /* Set by event_loop_init(), never changed. */
    struct clock *clock; /* borrowed */

    /* Of the thread that runs the loop. */
    struct timer *timers; /* sorted, soonest first; a few dozen: one for each call that pauses */

    struct lock lock;
    struct condition posted;
    struct event *first, *last; /* guarded by lock */
};

void event_loop_init(struct event_loop *loop, struct clock *clock);
void event_loop_destroy(
    struct event_loop *loop); /* asserts that nothing is queued and no timer runs */

/* Has event->run() called soon. Any thread; the event is not queued yet. */
void event_loop_post(struct event_loop *loop, struct event *event);

/*
 * Both in the loop's thread. A timer that is started again is moved; stopping one that does not run
 * is fine.
 */
void event_loop_start_timer(struct event_loop *loop, struct timer *timer, int64_t delay_ns);
void event_loop_stop_timer(struct event_loop *loop, struct timer *timer);

/*
 * Runs one event or timer. Waits for it at most timeout_ns (0: not at all); false when nothing
 * came.
 * Threads: one, always the same, never from inside a handler.
 */
bool event_loop_run(struct event_loop *loop, int64_t timeout_ns);

/* Runs events until *finished is true; handlers set it. */
void event_loop_run_until(struct event_loop *loop, const bool *finished);

#endif
