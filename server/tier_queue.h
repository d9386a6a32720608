/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows this node's own log and brings what it tells into the bucket, for ever. The queue is the log: a position in each lane, on disk
 * in DATA/tier, is all that is kept. It is moved past a record only once what that tells is in the bucket or cannot get there, so that a
 * crash costs a look at what the last batch has sent, and no upload is lost with the process.
 *
 * A lane goes batch by batch: small blobs in packs (server/tier_pack.h); other blobs; then action results, each after all that they name;
 * then deletions. As many at a time as there are uploads allowed, each with one buffer of 1 MiB, and PACKS_AT_A_TIME packs; the small lane
 * has three of four.
 *
 * For packs to be filled the small lane waits, pack_wait_ns after it has come to something new, unless a pack's worth is there. A node with
 * followers of lower uids stays behind them, by pack_wait_ns and their pack_step_ns each: what both have is sent by one, and the other one
 * has read the pack's index by then.
 *
 * Eviction waits for it, or does not (copies_config.bucket_keeps): what it removes before its turn came is counted and logged
 * (tier_overtaken), and the rest of the log goes on.
 */
#ifndef VARVE_SERVER_TIER_QUEUE_H
#define VARVE_SERVER_TIER_QUEUE_H

#include "durability/durability.h"
#include "tier/driver.h"

struct tier_known;
struct tier_queue;

enum { TIER_UPLOADS_MIN = 2, TIER_UPLOADS_MAX = 256 };

struct tier_queue_config {
    struct durability *durability; /* borrowed, as the next three */
    struct bucket *bucket;
    struct metrics *metrics;
    struct tier_known *known;
    const char *prefix; /* layout_check_prefix(); copied */
    uint64_t place;     /* a number of which bucket it is */
    size_t uploads;     /* at a time, both lanes together */
    bool shared;        /* others bring the same blobs: each is looked for first */
    int64_t pause_min_ns, pause_max_ns, tell_pause_ns; /* as in server/tier_push.h */
    /*
     * Not 0: the follower (durability/copies.h) as which it is told how far the log is in the bucket; is heard of as long as it gets on, or
     * has nothing to do.
     */
    uint64_t follower_uid;
    const char *follower_name, *follower_address; /* borrowed */
    bool hurries; /* somebody waits for it: what is new is taken at once, not four times a second */
    bool packs;   /* tier_known_keeps(known) */
    int64_t pack_wait_ns, pack_step_ns; /* 0: 5 s, 7 s */
};

MUST_CHECK bool tier_queue_start(const struct tier_queue_config *config,
                                 struct tier_queue **queue,
                                 struct status *status);
/* Begins to stop: nothing new is sent. What is being sent ends as the bucket lets it. Any thread. */
void tier_queue_ask_to_stop(struct tier_queue *queue);
/* Waits for its threads; the bucket has been stopped, or they may take as long as a request. NULL is fine. */
void tier_queue_stop(struct tier_queue *queue);

/* How the last attempt to send something failed; "" when it did not. Any thread. */
void tier_queue_trouble(struct tier_queue *queue, char text[STATUS_MESSAGE_BYTES_MAX]);

/* Sets the metrics of how far it is behind. From time to time. */
void tier_queue_step(struct tier_queue *queue);

/* The lane's log is in the bucket up to here. Any thread. */
uint64_t tier_queue_seq(struct tier_queue *queue, enum lane lane);

#endif
