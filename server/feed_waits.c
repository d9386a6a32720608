/* SPDX-License-Identifier: Apache-2.0 */
#include "server/feed_waits.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "server/call.h"

struct feed_waits {
    struct copies *copies; /* borrowed, as the next two */
    struct clock *clock;
    struct metrics *metrics;

    struct lock lock;
    struct feed_waiter *first; /* guarded by lock; borrowed */
    size_t count;              /* guarded by lock */
    bool stopped;              /* guarded by lock */
};

static void log_goes_on(void *argument, enum lane lane);

bool feed_waits_new(struct copies *copies,
                    struct clock *clock,
                    struct metrics *metrics,
                    struct feed_waits **waits,
                    struct status *status)
{
    struct feed_waits *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "waits of followers");
    made->copies = copies;
    made->clock = clock;
    made->metrics = metrics;
    lock_init(&made->lock, LOCK_RANK_SERVER);
    copies_set_hook(copies, COPIES_HOOK_FEEDS, log_goes_on, made);
    *waits = made;
    return true;
}

void feed_waits_free(struct feed_waits *waits)
{
    if (waits == NULL)
        return;
    copies_set_hook(waits->copies, COPIES_HOOK_FEEDS, NULL, NULL);
    ASSERT(waits->first == NULL);
    lock_destroy(&waits->lock);
    free(waits);
}

/* On the committer. */
static void log_goes_on(void *argument, enum lane lane)
{
    struct feed_waits *const waits = argument;
    lock_acquire(&waits->lock);
    for (struct feed_waiter *waiter = waits->first; waiter != NULL; waiter = waiter->next) {
        if (waiter->lane == lane)
            call_wake(waiter->call);
    }
    lock_release(&waits->lock);
}

bool feed_waits_begin(struct feed_waits *waits, struct feed_waiter *waiter, struct status *status)
{
    call_ref(waiter->call);
    lock_acquire(&waits->lock);
    ASSERT(!waiter->waiting);
    const size_t count = waits->count;
    if (count < LIMIT_FEEDS_WAITING) {
        waiter->waiting = true;
        waiter->previous = NULL;
        waiter->next = waits->first;
        if (waits->first != NULL)
            waits->first->previous = waiter;
        waits->first = waiter;
        waits->count++;
        metrics_set(waits->metrics, METRIC_FEEDS_WAITING, (int64_t)waits->count);
    }
    lock_release(&waits->lock);
    if (waiter->waiting)
        return true;
    call_unref(waiter->call);
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "%zu followers wait for this node's log already; ask with wait_ms 0, or "
                       "later",
                       count);
}

void feed_waits_end(struct feed_waits *waits, struct feed_waiter *waiter)
{
    if (!waiter->waiting)
        return;
    lock_acquire(&waits->lock);
    waiter->waiting = false;
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        waits->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    waits->count--;
    metrics_set(waits->metrics, METRIC_FEEDS_WAITING, (int64_t)waits->count);
    lock_release(&waits->lock);
    call_unref(waiter->call);
}

void feed_waits_step(struct feed_waits *waits)
{
    const int64_t now_ns = clock_monotonic_ns(waits->clock);
    lock_acquire(&waits->lock);
    for (struct feed_waiter *waiter = waits->first; waiter != NULL; waiter = waiter->next) {
        if (now_ns >= waiter->until_ns)
            call_wake(waiter->call);
    }
    lock_release(&waits->lock);
}

void feed_waits_stop(struct feed_waits *waits)
{
    lock_acquire(&waits->lock);
    waits->stopped = true;
    for (struct feed_waiter *waiter = waits->first; waiter != NULL; waiter = waiter->next)
        call_wake(waiter->call);
    lock_release(&waits->lock);
}

bool feed_waits_stopped(struct feed_waits *waits)
{
    lock_acquire(&waits->lock);
    const bool stopped = waits->stopped;
    lock_release(&waits->lock);
    return stopped;
}
