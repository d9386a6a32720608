/* SPDX-License-Identifier: Apache-2.0 */
#include "server/flights.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

/* Some thousand keys are in the air when pages of small blobs are. */
enum { BUCKETS = 4096 };

struct flights {
    struct lock lock;
    struct flight *buckets[BUCKETS]; /* guarded by lock, as the flights and waiters in them */
    size_t count;                    /* guarded by lock */
};

static struct flight **bucket_of(struct flights *flights, struct blob_key key)
{
    /* Fingerprints are random all over. */
    return &flights->buckets[key.fingerprint % BUCKETS];
}

bool flights_new(struct flights **flights, struct status *status)
{
    struct flights *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "flights");
    lock_init(&made->lock, LOCK_RANK_FLIGHTS);
    *flights = made;
    return true;
}

void flights_free(struct flights *flights)
{
    if (flights == NULL)
        return;
    ASSERT(flights->count == 0);
    lock_destroy(&flights->lock);
    free(flights);
}

static bool begin_locked(struct flights *flights,
                         struct blob_key key,
                         struct flight *flight,
                         struct flight_waiter *waiter) REQUIRES(flights->lock)
{
    struct flight **const bucket = bucket_of(flights, key);
    struct flight *found = *bucket;
    while (found != NULL && found->key.fingerprint != key.fingerprint)
        found = found->next;
    if (found == NULL) {
        *flight = (struct flight){.key = key, .next = *bucket};
        flight->last = &flight->waiters;
        *bucket = flight;
        flights->count++;
        return true;
    }
    waiter->flight = found;
    waiter->next = NULL;
    *found->last = waiter;
    found->last = &waiter->next;
    return false;
}

bool flights_begin(struct flights *flights,
                   struct blob_key key,
                   struct flight *flight,
                   struct flight_waiter *waiter)
{
    if (flights == NULL)
        return true;
    lock_acquire(&flights->lock);
    const bool begun = begin_locked(flights, key, flight, waiter);
    lock_release(&flights->lock);
    return begun;
}

/* The waiters, which are nobody's from now on but the caller's. */
static struct flight_waiter *end_locked(struct flights *flights, struct flight *flight)
    REQUIRES(flights->lock)
{
    struct flight **at = bucket_of(flights, flight->key);
    while (*at != flight) {
        ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = flight->next;
    flights->count--;
    for (struct flight_waiter *waiter = flight->waiters; waiter != NULL; waiter = waiter->next)
        waiter->flight = NULL;
    return flight->waiters;
}

void flights_end(struct flights *flights, struct flight *flight)
{
    if (flights == NULL)
        return;
    lock_acquire(&flights->lock);
    struct flight_waiter *waiter = end_locked(flights, flight);
    lock_release(&flights->lock);
    while (waiter != NULL) {
        struct flight_waiter *const next = waiter->next;
        waiter->ready(waiter);
        waiter = next;
    }
}

static bool cancel_locked(struct flight_waiter *waiter)
{
    struct flight *const flight = waiter->flight;
    if (flight == NULL)
        return false;
    struct flight_waiter **at = &flight->waiters;
    while (*at != waiter) {
        ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = waiter->next;
    if (flight->last == &waiter->next)
        flight->last = at;
    waiter->flight = NULL;
    return true;
}

bool flights_cancel(struct flights *flights, struct flight_waiter *waiter)
{
    if (flights == NULL)
        return false;
    lock_acquire(&flights->lock);
    const bool cancelled = cancel_locked(waiter);
    lock_release(&flights->lock);
    return cancelled;
}
