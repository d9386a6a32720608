/* SPDX-License-Identifier: Apache-2.0 */
#include "server/health.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "server/call.h"

/* What somebody has ordered. */
struct order {
    int64_t since_ns; /* 0: nobody has */
    char reason[STATUS_MESSAGE_BYTES_MAX];
};

struct health {
    struct lock lock;
    enum server_state state;               /* guarded by lock */
    char reason[STATUS_MESSAGE_BYTES_MAX]; /* guarded by lock */
    char note[STATUS_MESSAGE_BYTES_MAX];   /* guarded by lock */
    struct order drained;                  /* guarded by lock, as the next */
    struct order read_only;                /* clients write nothing */
    _Atomic bool refuses_writes;           /* there is that order; for those who only ask */
    struct health_watcher *watchers;       /* guarded by lock; borrowed */
};

/* The table of health.h. */
static const bool transitions[][SERVER_DRAINED + 1] = {
    [SERVER_STARTING] =
        {[SERVER_SERVING] = true, [SERVER_READ_ONLY] = true, [SERVER_DRAINING] = true},
    [SERVER_SERVING] = {[SERVER_READ_ONLY] = true, [SERVER_DRAINING] = true},
    [SERVER_READ_ONLY] = {[SERVER_DRAINING] = true},
    [SERVER_DRAINING] = {false},
};

bool health_new(struct health **health, struct status *status)
{
    struct health *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "health");
    lock_init(&made->lock, LOCK_RANK_SERVER);
    made->state = SERVER_STARTING;
    *health = made;
    return true;
}

void health_free(struct health *health)
{
    if (health == NULL)
        return;
    ASSERT(health->watchers == NULL);
    lock_destroy(&health->lock);
    free(health);
}

static void wake_watchers_locked(struct health *health) REQUIRES(health->lock);

void health_set(struct health *health, enum server_state state, const char *reason)
{
    ASSERT(state != SERVER_DRAINED);
    lock_acquire(&health->lock);
    if (transitions[health->state][state]) {
        health->state = state;
        snprintf(health->reason, sizeof(health->reason), "%s", reason);
        wake_watchers_locked(health);
    }
    lock_release(&health->lock);
}

static void wake_watchers_locked(struct health *health)
{
    for (struct health_watcher *watcher = health->watchers; watcher != NULL;
         watcher = watcher->next)
        call_wake(watcher->call);
}

/* True: there was no such order. */
static bool give_locked(struct health *health,
                        struct order *order,
                        const char *reason,
                        int64_t monotonic_ns) REQUIRES(health->lock);
static bool give_locked(struct health *health,
                        struct order *order,
                        const char *reason,
                        int64_t monotonic_ns)
{
    ASSERT(monotonic_ns > 0);
    if (order->since_ns != 0)
        return false;
    order->since_ns = monotonic_ns;
    snprintf(order->reason, sizeof(order->reason), "%s", reason);
    wake_watchers_locked(health);
    return true;
}

/* True: there was one. */
static bool take_back_locked(struct health *health, struct order *order) REQUIRES(health->lock);
static bool take_back_locked(struct health *health, struct order *order)
{
    if (order->since_ns == 0)
        return false;
    order->since_ns = 0;
    wake_watchers_locked(health);
    return true;
}

static int64_t since_ns(struct health *health, const struct order *order)
{
    lock_acquire(&health->lock);
    const int64_t since_ns = order->since_ns;
    lock_release(&health->lock);
    return since_ns;
}

bool health_drain(struct health *health, const char *reason, int64_t monotonic_ns)
{
    lock_acquire(&health->lock);
    const bool changes = give_locked(health, &health->drained, reason, monotonic_ns);
    lock_release(&health->lock);
    return changes;
}

bool health_undrain(struct health *health)
{
    lock_acquire(&health->lock);
    const bool changes = take_back_locked(health, &health->drained);
    lock_release(&health->lock);
    return changes;
}

int64_t health_drained_ns(struct health *health)
{
    return since_ns(health, &health->drained);
}

bool health_refuse_writes(struct health *health, const char *reason, int64_t monotonic_ns)
{
    lock_acquire(&health->lock);
    const bool changes = give_locked(health, &health->read_only, reason, monotonic_ns);
    atomic_store(&health->refuses_writes, true);
    lock_release(&health->lock);
    return changes;
}

bool health_take_writes(struct health *health)
{
    lock_acquire(&health->lock);
    const bool changes = take_back_locked(health, &health->read_only);
    atomic_store(&health->refuses_writes, false);
    lock_release(&health->lock);
    return changes;
}

int64_t health_refused_writes_ns(struct health *health)
{
    return since_ns(health, &health->read_only);
}

bool health_check_writes(struct health *health, struct status *status)
{
    char why[STATUS_MESSAGE_BYTES_MAX];
    if (!atomic_load(&health->refuses_writes))
        return true;
    lock_acquire(&health->lock);
    memcpy(why, health->read_only.reason, sizeof(why));
    lock_release(&health->lock);
    return status_fail(status, STATUS_FAILED_PRECONDITION,
                       "nothing is written here: %.300s; read on, write to another node, or end it "
                       "with varve admin read-only off",
                       why);
}

void health_set_note(struct health *health, const char *note)
{
    lock_acquire(&health->lock);
    snprintf(health->note, sizeof(health->note), "%s", note);
    lock_release(&health->lock);
}

enum server_state health_state(struct health *health, char *reason)
{
    lock_acquire(&health->lock);
    enum server_state state = health->state;
    const char *why = state == SERVER_SERVING ? health->note : health->reason;
    if (health->read_only.since_ns != 0 && state == SERVER_SERVING) {
        state = SERVER_READ_ONLY;
        why = health->read_only.reason;
    }
    if (health->drained.since_ns != 0 && (state == SERVER_SERVING || state == SERVER_READ_ONLY)) {
        state = SERVER_DRAINED;
        why = health->drained.reason;
    }
    if (reason != NULL)
        memcpy(reason, why, sizeof(health->reason));
    lock_release(&health->lock);
    return state;
}

void health_watch(struct health *health, struct health_watcher *watcher)
{
    call_ref(watcher->call);
    lock_acquire(&health->lock);
    ASSERT(!watcher->watching);
    watcher->watching = true;
    watcher->previous = NULL;
    watcher->next = health->watchers;
    if (health->watchers != NULL)
        health->watchers->previous = watcher;
    health->watchers = watcher;
    lock_release(&health->lock);
}

void health_unwatch(struct health *health, struct health_watcher *watcher)
{
    lock_acquire(&health->lock);
    const bool was_watching = watcher->watching;
    if (was_watching) {
        watcher->watching = false;
        if (watcher->previous != NULL)
            watcher->previous->next = watcher->next;
        else
            health->watchers = watcher->next;
        if (watcher->next != NULL)
            watcher->next->previous = watcher->previous;
    }
    lock_release(&health->lock);
    if (was_watching)
        call_unref(watcher->call);
}

const char *server_state_name(enum server_state state)
{
    static const char *const names[] = {[SERVER_STARTING] = "starting",
                                        [SERVER_SERVING] = "serving",
                                        [SERVER_READ_ONLY] = "read-only",
                                        [SERVER_DRAINING] = "draining",
                                        [SERVER_DRAINED] = "drained"};
    ASSERT((size_t)state < ARRAY_LENGTH(names));
    return names[state];
}
