/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings one thing of this node's store into the bucket: a blob, an action result once all that it names is there, or a deletion. By
 * threads that wait: each has a pusher of its own, with one buffer, and tries for as long as it takes, with pauses that grow and
 * are never the same. What is in the bucket already is not sent again as far as that is known.
 *
 * What a failure leads to:
 *   no answer, 5xx, ...       a pause of 0.5 s to 60 s, and again
 *   denied, no such bucket    the same, from 30 s on, with an error in the log
 *   our record is damaged     it is forgotten here, as by every reader, and left out
 *   evicted meanwhile         left out
 */
#ifndef VARVE_SERVER_TIER_PUSH_H
#define VARVE_SERVER_TIER_PUSH_H

#include "durability/durability.h"
#include "server/flights.h"
#include "server/tier_known.h"
#include "tier/layout.h"

/* What all pushers share. Fields are tier_push.c's. */
struct tier_push {
    /* Set when it is made, never changed. */
    struct durability *durability; /* borrowed, as the next four */
    struct store *store;
    struct bucket *bucket;
    struct metrics *metrics;
    const char *prefix;
    int64_t pause_min_ns, pause_max_ns, tell_pause_ns;
    struct tier_known *known;    /* borrowed */
    struct buffer_pool *buffers; /* owned, as the next */
    struct flights *flights;

    struct lock lock;
    struct condition changed;               /* a stop, or the end of a flight */
    bool stopping;                          /* guarded by lock, as below */
    bool failing;                           /* the last attempt of anybody */
    char trouble[STATUS_MESSAGE_BYTES_MAX]; /* and how; while it is */
    uint64_t news;                          /* how often tier_push_wake() was called */
};

struct tier_push_config {
    struct durability *durability; /* borrowed, as all pointers here */
    struct bucket *bucket;
    struct metrics *metrics;
    struct tier_known *known;
    const char *prefix;
    size_t pushers;
    int64_t pause_min_ns, pause_max_ns, tell_pause_ns; /* 0: as above */
};

MUST_CHECK bool tier_push_init(struct tier_push *push,
                               const struct tier_push_config *config,
                               struct status *status);
void tier_push_destroy(
    struct tier_push *push); /* all pushers are gone; one that was zeroed is fine */
/* Whoever waits ends soon; those that wait for the bucket when that is stopped. Any thread. */
void tier_push_stop(struct tier_push *push);
/* False: it is being stopped. */
bool tier_push_pause(struct tier_push *push, int64_t duration_ns);
/* How the last attempt failed; "" when it did not. Any thread. */
void tier_push_trouble(struct tier_push *push, char text[STATUS_MESSAGE_BYTES_MAX]);
/* The log goes on: ends the waits of those that wait for that. Any thread. */
void tier_push_wake(struct tier_push *push);
/* A pause that ends early when it was woken since *seen, which is moved on. False: it is being stopped. */
bool tier_push_await_news(struct tier_push *push, uint64_t *seen, int64_t duration_ns);

enum { TIER_LOOK_AT_A_TIME = 256 }; /* blobs of an action result that are looked for together */

/* Of one thread. */
struct tier_pusher {
    struct tier_push *push;             /* borrowed */
    struct buffer *buffer;              /* owned, as the next */
    char (*keys)[BUCKET_KEY_BYTES_MAX]; /* of TIER_LOOK_AT_A_TIME blobs */
    uint64_t random;
};
MUST_CHECK bool tier_pusher_init(struct tier_pusher *pusher,
                                 struct tier_push *push,
                                 struct status *status);
void tier_pusher_destroy(struct tier_pusher *pusher);

enum tier_pushed {
    TIER_PUSHED,       /* it is in the bucket, or out of it */
    TIER_PUSH_GONE,    /* left out: it, or what it names, is not here any more, or makes no sense */
    TIER_PUSH_STOPPED, /* nobody knows */
};
/* LOOK_FIRST: it may well be there already. AGAIN: it is, and is to be younger, unless it is fresh (server/tier_known.h). */
enum tier_look { TIER_SEND, TIER_LOOK_FIRST, TIER_AGAIN };

enum tier_pushed tier_push_blob(struct tier_pusher *pusher,
                                const struct digest *digest,
                                enum tier_look look);
/*
 * One attempt at an object, and if it fails the pause after it; tries: how many came before. False: it is being stopped, and nobody knows
 * whether it is there.
 */
bool tier_push_try(struct tier_pusher *pusher,
                   const struct bucket_put *put,
                   unsigned tries,
                   bool *sent);
/* Between what is as good as never twice the same. */
uint64_t tier_pusher_chance(struct tier_pusher *pusher);
/* entry: an ACTION, with its parts. */
enum tier_pushed tier_push_action(struct tier_pusher *pusher,
                                  const struct feed_entry *entry,
                                  enum tier_look look);
/* entry: a FORGET. What has been stored again since stays: *deleted is false then. */
enum tier_pushed tier_push_forget(struct tier_pusher *pusher,
                                  const struct feed_entry *entry,
                                  bool *deleted);

#endif
