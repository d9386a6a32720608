/* SPDX-License-Identifier: Apache-2.0 */
#include "server/budget.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

struct half {
    uint64_t used_bytes;
    size_t waiting;
    struct budget_waiter *first, *last; /* borrowed */
};

struct budget {
    /* Set by budget_new(), never changed. */
    struct metrics *metrics; /* borrowed */
    uint64_t half_bytes;
    size_t reservation_bytes;

    struct lock lock;
    struct half halves[BUDGET_HALVES]; /* guarded by lock */
};

static bool fits_locked(const struct budget *budget, enum budget_half half) REQUIRES(budget->lock);
static void enqueue_locked(struct budget *budget, struct budget_waiter *waiter)
    REQUIRES(budget->lock);
static void dequeue_locked(struct budget *budget, struct budget_waiter *waiter)
    REQUIRES(budget->lock);
static struct budget_waiter *grant_locked(struct budget *budget, enum budget_half half)
    REQUIRES(budget->lock);
static void tell_metrics_locked(struct budget *budget) REQUIRES(budget->lock);

bool budget_new(uint64_t limit_bytes,
                uint64_t calls_max,
                struct metrics *metrics,
                struct budget **budget,
                struct status *status)
{
    static const uint64_t reservation_bytes_max = 64 * KIB;
    ASSERT(calls_max > 0);

    struct budget *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "budget of request memory");
    lock_init(&made->lock, LOCK_RANK_BUDGET);
    made->metrics = metrics;
    made->half_bytes = limit_bytes / BUDGET_HALVES;
    uint64_t reservation_bytes = made->half_bytes / calls_max;
    if (reservation_bytes == 0)
        reservation_bytes = 1;
    if (reservation_bytes > reservation_bytes_max)
        reservation_bytes = reservation_bytes_max;
    made->reservation_bytes = (size_t)reservation_bytes;
    *budget = made;
    return true;
}

void budget_free(struct budget *budget)
{
    if (budget == NULL)
        return;
    for (int i = 0; i < BUDGET_HALVES; i++) {
        ASSERT(budget->halves[i].used_bytes == 0);
        ASSERT(budget->halves[i].first == NULL);
    }
    lock_destroy(&budget->lock);
    free(budget);
}

size_t budget_reservation(const struct budget *budget)
{
    return budget->reservation_bytes;
}

bool budget_take(struct budget *budget, enum budget_half half, struct budget_waiter *waiter)
{
    lock_acquire(&budget->lock);
    struct half *const from = &budget->halves[half];
    /* Whoever comes later does not overtake those who wait. */
    const bool taken = from->first == NULL && fits_locked(budget, half);
    waiter->half = half;
    if (taken)
        from->used_bytes += budget->reservation_bytes;
    else
        enqueue_locked(budget, waiter);
    tell_metrics_locked(budget);
    lock_release(&budget->lock);
    return taken;
}

/* Somebody always fits when nothing is held, whatever the limit. */
static bool fits_locked(const struct budget *budget, enum budget_half half)
{
    const uint64_t used_bytes = budget->halves[half].used_bytes;
    return used_bytes == 0 || used_bytes + budget->reservation_bytes <= budget->half_bytes;
}

static void enqueue_locked(struct budget *budget, struct budget_waiter *waiter)
{
    struct half *const half = &budget->halves[waiter->half];
    ASSERT(!waiter->queued);
    waiter->queued = true;
    waiter->next = NULL;
    waiter->previous = half->last;
    if (half->last != NULL)
        half->last->next = waiter;
    else
        half->first = waiter;
    half->last = waiter;
    half->waiting++;
}

static void dequeue_locked(struct budget *budget, struct budget_waiter *waiter)
{
    struct half *const half = &budget->halves[waiter->half];
    ASSERT(waiter->queued);
    ASSERT(half->waiting > 0);
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        half->first = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    else
        half->last = waiter->previous;
    waiter->next = NULL;
    waiter->previous = NULL;
    waiter->queued = false;
    half->waiting--;
}

bool budget_cancel(struct budget *budget, struct budget_waiter *waiter)
{
    lock_acquire(&budget->lock);
    const bool was_queued = waiter->queued;
    if (was_queued)
        dequeue_locked(budget, waiter);
    tell_metrics_locked(budget);
    lock_release(&budget->lock);
    return was_queued;
}

void budget_correct(struct budget *budget,
                    enum budget_half half,
                    size_t held_bytes,
                    size_t needed_bytes)
{
    lock_acquire(&budget->lock);
    ASSERT(budget->halves[half].used_bytes >= held_bytes);
    budget->halves[half].used_bytes += needed_bytes;
    budget->halves[half].used_bytes -= held_bytes;
    struct budget_waiter *granted = grant_locked(budget, half);
    tell_metrics_locked(budget);
    lock_release(&budget->lock);

    while (granted != NULL) {
        struct budget_waiter *const waiter = granted;
        granted = waiter->next; /* read before it is called: the waiter's memory may go */
        waiter->granted(waiter);
    }
}

/* Takes those off the queue for whom there is room now; a list by next. */
static struct budget_waiter *grant_locked(struct budget *budget, enum budget_half half)
{
    struct half *const from = &budget->halves[half];
    struct budget_waiter *granted = NULL;
    struct budget_waiter **end = &granted;
    while (from->first != NULL && fits_locked(budget, half)) {
        struct budget_waiter *const waiter = from->first;
        dequeue_locked(budget, waiter);
        from->used_bytes += budget->reservation_bytes;
        *end = waiter;
        end = &waiter->next;
    }
    return granted;
}

static void tell_metrics_locked(struct budget *budget)
{
    uint64_t used_bytes = 0;
    size_t waiting = 0;
    for (int i = 0; i < BUDGET_HALVES; i++) {
        used_bytes += budget->halves[i].used_bytes;
        waiting += budget->halves[i].waiting;
    }
    metrics_set(budget->metrics, METRIC_BUDGET_USED, (int64_t)used_bytes);
    metrics_set(budget->metrics, METRIC_BUDGET_WAITING, (int64_t)waiting);
}
