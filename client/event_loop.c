/* SPDX-License-Identifier: Apache-2.0 */
#include "client/event_loop.h"

#include <stddef.h>

static struct timer *take_due_timer(struct event_loop *loop);
static struct event *take_event(struct event_loop *loop, int64_t deadline_ns);
static struct event *take_event_locked(struct event_loop *loop, int64_t deadline_ns)
    REQUIRES(loop->lock);

void event_loop_init(struct event_loop *loop, struct clock *clock)
{
    loop->clock = clock;
    loop->timers = NULL;
    loop->first = loop->last = NULL;
    lock_init(&loop->lock, LOCK_RANK_CLIENT);
    condition_init(&loop->posted);
}

void event_loop_destroy(struct event_loop *loop)
{
    ASSERT(loop->first == NULL);
    ASSERT(loop->timers == NULL);
    condition_destroy(&loop->posted);
    lock_destroy(&loop->lock);
}

void event_loop_post(struct event_loop *loop, struct event *event)
{
    ASSERT(event->run != NULL);
    event->next = NULL;
    lock_acquire(&loop->lock);
    if (loop->last == NULL)
        loop->first = event;
    else
        loop->last->next = event;
    loop->last = event;
    /* Under the lock: whoever waits may destroy the loop as soon as it has seen the last event. */
    condition_signal(&loop->posted);
    lock_release(&loop->lock);
}

void event_loop_start_timer(struct event_loop *loop, struct timer *timer, int64_t delay_ns)
{
    ASSERT(timer->run != NULL);
    ASSERT(delay_ns >= 0);
    event_loop_stop_timer(loop, timer);
    timer->due_ns = clock_monotonic_ns(loop->clock) + delay_ns;

    struct timer *previous = NULL;
    struct timer *next = loop->timers;
    while (next != NULL && next->due_ns <= timer->due_ns) {
        previous = next;
        next = next->next;
    }
    timer->previous = previous;
    timer->next = next;
    if (previous == NULL)
        loop->timers = timer;
    else
        previous->next = timer;
    if (next != NULL)
        next->previous = timer;
    timer->armed = true;
}

void event_loop_stop_timer(struct event_loop *loop, struct timer *timer)
{
    if (!timer->armed)
        return;
    if (timer->previous == NULL)
        loop->timers = timer->next;
    else
        timer->previous->next = timer->next;
    if (timer->next != NULL)
        timer->next->previous = timer->previous;
    timer->armed = false;
}

bool event_loop_run(struct event_loop *loop, int64_t timeout_ns)
{
    ASSERT(timeout_ns >= 0);
    const int64_t end_ns = clock_monotonic_ns(loop->clock) + timeout_ns;
    for (;;) {
        struct timer *timer = take_due_timer(loop);
        if (timer != NULL) {
            timer->run(timer);
            return true;
        }
        const bool timer_first = loop->timers != NULL && loop->timers->due_ns < end_ns;
        struct event *event = take_event(loop, timer_first ? loop->timers->due_ns : end_ns);
        if (event != NULL) {
            event->run(event);
            return true;
        }
        if (!timer_first)
            return false;
    }
}

static struct timer *take_due_timer(struct event_loop *loop)
{
    struct timer *timer = loop->timers;
    if (timer == NULL || timer->due_ns > clock_monotonic_ns(loop->clock))
        return NULL;
    event_loop_stop_timer(loop, timer);
    return timer;
}

static struct event *take_event(struct event_loop *loop, int64_t deadline_ns)
{
    lock_acquire(&loop->lock);
    struct event *event = take_event_locked(loop, deadline_ns);
    lock_release(&loop->lock);
    return event;
}

static struct event *take_event_locked(struct event_loop *loop, int64_t deadline_ns)
{
    while (loop->first == NULL) {
        const int64_t left_ns = deadline_ns - clock_monotonic_ns(loop->clock);
        if (left_ns <= 0)
            return NULL;
        if (!condition_wait_for(&loop->posted, &loop->lock, left_ns) && loop->first == NULL)
            return NULL;
    }
    struct event *event = loop->first;
    loop->first = event->next;
    if (loop->first == NULL)
        loop->last = NULL;
    event->next = NULL;
    return event;
}

void event_loop_run_until(struct event_loop *loop, const bool *finished)
{
    /* Every call has a deadline, so an event always comes; the pause only bounds one wait. */
    while (!*finished)
        event_loop_run(loop, 60 * NS_PER_S);
}
