/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who follows this node's log and how far, and what waits for that: with `wanted` above 0 a write is acknowledged once it is
 * durable here and so many followers have said that it is durable there.
 *
 *   From       To         On
 *   WAITING    answered   `wanted` followers have reported its seq: OK
 *   WAITING    answered   the time is over, REFUSE: UNAVAILABLE; it stays stored here
 *   WAITING    answered   the time is over, DEGRADE: OK, with all that wait; from then on nobody waits
 *   degraded   armed      `wanted` followers have caught up once: writes wait again
 *
 * A follower counts as long as it is heard of: until the wait that it asked for is over, and FOLLOWER_AWAY_NS more. One of them may be
 * a bucket instead of a node: it is none of those that are wanted, but may be needed besides, and then there are never enough without it.
 *
 * Threads: any.
 */
#ifndef VARVE_DURABILITY_COPIES_H
#define VARVE_DURABILITY_COPIES_H

#include "base/metrics.h"
#include "durability/ack.h"
#include "store/store.h"

struct copies;

enum copies_otherwise { COPIES_REFUSE, COPIES_DEGRADE };

enum { COPIES_WANTED_MAX = 8, FOLLOWER_NAME_BYTES_MAX = 255, FOLLOWER_ADDRESS_BYTES_MAX = 127 };
#define FOLLOWER_AWAY_NS (5 * NS_PER_S)

struct copies_config {
    unsigned wanted;     /* nodes */
    uint64_t bucket_uid; /* of the follower that is a bucket; 0: none is */
    bool bucket_needed;  /* neither this nor any wanted: writes wait for nobody */
    bool bucket_keeps;   /* what it does not have yet is not evicted */
    int64_t timeout_ns;
    enum copies_otherwise otherwise;
};

/* store, acker: borrowed. Nobody waits, until it is configured otherwise. */
MUST_CHECK bool copies_new(struct store *store,
                           struct acker *acker,
                           struct copies **copies,
                           struct status *status);
void copies_free(struct copies *copies); /* asserts that nothing waits */
void copies_configure(struct copies *copies, const struct copies_config *config);

/* ---- this node's log */

/* All records of the lane up to this one are durable and visible. By the lane's committer. */
void copies_published(struct copies *copies, enum lane lane, uint64_t seq);
uint64_t copies_published_seq(struct copies *copies, enum lane lane);
/* Who is told. */
enum copies_hook { COPIES_HOOK_FEEDS, COPIES_HOOK_BUCKET, COPIES_HOOKS };
/*
 * hook is called with each copies_published(), holding no lock, on the committer: it may wake somebody, no more. NULL: nobody; no
 * call of an earlier one goes on then.
 */
void copies_set_hook(struct copies *copies,
                     enum copies_hook which,
                     void (*hook)(void *argument, enum lane lane),
                     void *argument);

/* ---- what waits */

/* Calls the list of acks back, on the acker's thread, once enough followers have the lane's log up to seq, or as stated above. */
void copies_hold(struct copies *copies, enum lane lane, uint64_t seq, struct ack *acks);

/* For a blob that is here already: false when there is nothing to wait for; else ack is called as by copies_hold(). */
bool copies_await_blob(struct copies *copies, const struct digest *digest, struct ack *ack);

/*
 * May it be said that a blob is there that was found before the call: has it ever been on enough followers, or is that not asked for,
 * or degraded? What was there at the start counts. The first asks for all blobs at once, and is cheap; false says nothing of a
 * single one.
 */
bool copies_cover_all(struct copies *copies);
bool copies_cover_blob(struct copies *copies, const struct digest *digest);

/* Looks whose time is over, and who is away. From time to time. */
void copies_step(struct copies *copies);
/*
 * For a store that stops, and closes its feeds: what comes from now on is answered at once as if its time were over, and so is
 * what waits, but that has grace_ns to get its copies. Waits for that.
 */
void copies_stop(struct copies *copies, int64_t grace_ns);

/* ---- followers */

struct follower_report {
    uint64_t uid;               /* of the follower's store; 0: nobody's, nothing is noted */
    struct bytes name, address; /* borrowed; longer ones are cut */
    enum lane lane;
    uint64_t durable_seq; /* of the lane's log: dealt with up to there, and durable there */
    int64_t wait_ns;      /* how long it may be silent now */
};
/* durable_seq is not beyond what is published. */
void copies_report(struct copies *copies, const struct follower_report *report);

struct follower {
    uint64_t uid;
    char name[FOLLOWER_NAME_BYTES_MAX + 1];
    char address[FOLLOWER_ADDRESS_BYTES_MAX + 1];
    uint64_t durable_seq[LANE_COUNT];
    uint64_t behind_records[LANE_COUNT]; /* seqs between it and what is published */
    int64_t seen_ns;                     /* CLOCK_MONOTONIC, when it was heard of last */
    bool counts;
};
/* Copies up to `capacity`, and says how many there are (LIMIT_FOLLOWERS at most). */
size_t copies_followers(struct copies *copies, struct follower *followers, size_t capacity);

/* The lane's log up to here is dealt with by all who follow: those that count, and the bucket, heard of or not. */
uint64_t copies_told_seq(struct copies *copies, enum lane lane);
/* May what the lane's log has up to seq be evicted: has the bucket got it, or does nobody ask for that? */
bool copies_may_go(struct copies *copies, enum lane lane, uint64_t seq);

/* ---- how it is */

/* Series of each follower that counts, for /metrics. */
void copies_render(struct copies *copies, struct metrics_text *text);

struct copies_state {
    unsigned wanted;
    bool bucket_needed;
    bool degraded;
    size_t counting; /* nodes that count */
};
void copies_state(struct copies *copies, struct copies_state *state);

#endif
