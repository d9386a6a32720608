/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings blobs from one peer into the store: small ones asked for together (BatchReadBlobs, or the records of a range by
 * Replication.Fetch), larger ones streamed. Every blob is hashed before the record that makes it exist is submitted, and goes through
 * the ordinary lanes, so that many share a sync.
 *
 *   want ──► WAITING (somebody else fetches it) ──┐
 *        └─► QUEUED ──► CALLING ──► COMMITTING ───┴─► done: durable and visible here, or why not
 *
 * Bounds: calls in flight, the budget of bytes that all fetchers share, pooled buffers. A peer of which nothing is heard for the
 * silence time while it owes answers fails everything. All in the loop's thread, but for what says otherwise.
 */
#ifndef VARVE_SERVER_FETCHER_H
#define VARVE_SERVER_FETCHER_H

#include <stdatomic.h>

#include "client/connection.h"
#include "client/event_loop.h"
#include "durability/durability.h"
#include "server/flights.h"

/* Bytes that may be on their way, of all fetchers together. Zeroed but for the limit. Any thread. */
struct fetch_budget {
    int64_t limit_bytes; /* set at the start */
    _Atomic int64_t used_bytes;
};

struct want {
    /* Set by the caller. */
    struct digest digest; /* size above 0, of a function that is supported */
    uint64_t seq;         /* of its record at the peer, for fetcher_range() */
    /*
     * Once. OK: it is here, durable and visible. NOT_FOUND: the peer does not have it. DATA_LOSS: the peer sent what is not it.
     * OUT_OF_RANGE: it does not fit into this store. Others: the call failed, or, with failed_here, our own store did.
     */
    void (*done)(struct want *want, const struct status *result);

    bool failed_here; /* out */
    bool fetched;     /* out: by this fetcher, and not by somebody else */

    /* The fetcher's. */
    struct fetcher *fetcher;
    struct want *next, *previous;
    int state;
    struct flight flight;
    struct flight_waiter waiter;
    struct event event;
};

struct fetcher_config {
    struct client *client; /* borrowed, as all pointers here */
    struct event_loop *loop;
    struct durability *durability;
    struct flights *flights;
    struct fetch_budget *budget;
    struct metrics *metrics;
    size_t batches_max, streams_max; /* in flight; 1 or more */
    int64_t silence_ns;
    /* NULL, or told of a lie that is about no want: a call with it ends its own wants alone. */
    void (*lied)(void *argument, const struct status *why);
    void *lied_argument;
    /* NULL, or told in the loop that a call has ended after all its wants, so that nothing may be live any more. */
    void (*call_ended)(void *argument);
    void *call_ended_argument;
};

struct fetcher;

MUST_CHECK bool fetcher_new(const struct fetcher_config *config,
                            struct fetcher **fetcher,
                            struct status *status);
void fetcher_free(struct fetcher *fetcher); /* asserts that nothing is live; NULL is fine */

/* HERE: the blob is in the store, and done is not called. TAKEN: done comes, never from inside this. */
enum fetcher_add { FETCHER_HERE, FETCHER_TAKEN };
enum fetcher_add fetcher_add(struct fetcher *fetcher, struct want *want);
/* Starts calls for what is queued. To be called once after some were added. */
void fetcher_pump(struct fetcher *fetcher);
/*
 * Instead, has what is queued of small blobs with a seq above after_seq and up to through_seq fetched as records of the peer's
 * log. Bytes that are not wanted come along; those of the range that do not come are NOT_FOUND.
 */
void fetcher_range(struct fetcher *fetcher,
                   uint64_t node_uid,
                   uint64_t after_seq,
                   uint64_t through_seq);
/* Bytes that are queued of small blobs in that range. */
uint64_t fetcher_queued_bytes(const struct fetcher *fetcher,
                              uint64_t after_seq,
                              uint64_t through_seq);
/*
 * Everything ends with `why`: what is queued or waits from inside this, calls in flight soon, and what is being committed as it
 * will.
 */
void fetcher_cancel(struct fetcher *fetcher, const struct status *why);
/* Wants and calls that have not ended; a call may outlive its wants. */
size_t fetcher_live(const struct fetcher *fetcher);
/* For how long nothing was heard of a peer that owes answers; 0: it owes none. */
int64_t fetcher_silent_ns(const struct fetcher *fetcher);
/* Any thread. */
uint64_t fetcher_blobs(const struct fetcher *fetcher);
uint64_t fetcher_bytes(const struct fetcher *fetcher);

/* Is it in the store? Marks nothing as used. Any thread. */
bool store_holds(struct store *store, const struct digest *digest);

#endif
