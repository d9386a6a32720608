/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets from the bucket what is asked for and is nowhere else: blobs, which are hashed while they come and stored only if they are what
 * their name says; and action results, whose bytes are compared with the hash that was kept with them.
 *
 * Threads of its own, each with one request at a time; what waits is bounded by who asks (server/repair.h). A bucket that is left alone
 * (tier/breaker.h) is an answer at once.
 */
#ifndef VARVE_SERVER_TIER_FETCH_H
#define VARVE_SERVER_TIER_FETCH_H

#include "durability/durability.h"
#include "server/flights.h"
#include "server/tier_known.h"
#include "tier/driver.h"

struct tier_fetch;

enum { TIER_DOWNLOADS_MIN = 1, TIER_DOWNLOADS_MAX = 256 };

#define TIER_FIND_NS (500 * NS_PER_MS)

enum tier_fetched {
    TIER_FETCHED,   /* a blob: it is here, durable and visible; an action result: it is in result */
    TIER_NOT_THERE, /* the bucket says so, or what it has is not what it should be */
    TIER_UNAVAILABLE, /* the bucket, or our own store, could not tell */
};

struct tier_want {
    /* Set by the caller. */
    struct digest digest;
    bool any_size;         /* of a blob; out: the digest has the size that it has there */
    bool action;           /* it is an action's result that is wanted */
    struct bytes instance; /* of the action; borrowed until done */
    /*
     * Not NULL: which of these blobs are there is asked instead, for at most TIER_FIND_NS. Out: those that are not, or are not known to
     * be, in their order. Borrowed until done.
     */
    struct digest *digests;
    size_t count;
    /* Once, on one of the threads, holding no lock. */
    void (*done)(struct tier_want *want);

    enum tier_fetched outcome; /* out */
    uint8_t *result;           /* out, of an action: the caller's from then on, freed with free() */
    size_t result_bytes;
    struct tier_want *next; /* this module's */
};

struct tier_fetch_config {
    struct durability *durability; /* borrowed, as all pointers here */
    struct bucket *bucket;
    struct metrics *metrics;
    struct flights *flights;
    struct tier_known *known; /* is told what was in the bucket */
    const char *prefix;
    size_t downloads; /* at a time */
    /*
     * How much of the small lane has been gone through for the bucket: what was deleted by order behind that may still be there, and is
     * not given out. NULL: all. Any thread.
     */
    uint64_t (*deleted_until_seq)(void *argument);
    void *argument;
};

MUST_CHECK bool tier_fetch_start(const struct tier_fetch_config *config,
                                 struct tier_fetch **fetch,
                                 struct status *status);
/*
 * What waits is done, TIER_UNAVAILABLE, and so is what is asked for later, from inside tier_fetch_ask(). Waits for its threads, and so as
 * long as the bucket does, if that has not been stopped. NULL is fine.
 */
void tier_fetch_stop(struct tier_fetch *fetch);
void tier_fetch_free(struct tier_fetch *fetch); /* nobody asks any more; NULL is fine */

/* done comes, perhaps from inside this when it is being stopped. Any thread. */
void tier_fetch_ask(struct tier_fetch *fetch, struct tier_want *want);

#endif
