/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read repair: a blob that is asked for and is missing or damaged here is fetched from the peers, one after the other, verified and
 * stored, and then served as if it had been here. One fetch a digest, however many wait for it; it may be a puller's. When no peer has
 * it, or there is none, the bucket is asked, if there is one (server/tier_fetch.h).
 *
 * A thread of its own with connections of its own, so that no bulk transfer is in front. A peer that does not answer within
 * REPAIR_SILENCE_NS or refuses is down: from then on it is asked nothing but, once a second, whether it is back.
 */
#ifndef VARVE_SERVER_REPAIR_H
#define VARVE_SERVER_REPAIR_H

#include "client/event_loop.h"
#include "durability/durability.h"
#include "server/flights.h"

struct repair;
struct peer_identity;
struct tier_fetch;

/* What an unreachable peer adds to a miss, at most. */
#define REPAIR_SILENCE_NS (400 * NS_PER_MS)
enum {
    REPAIRS_IN_FLIGHT_MAX = 256,
    REPAIRS_WAITING_MAX = 65536,      /* beyond it, what is not here is not here */
    REPAIR_FIND_DIGESTS_MAX = 262144, /* that are asked for at once, of all calls: some 20 MiB */
};

struct repair_config {
    struct durability *durability; /* borrowed, as all pointers here */
    struct flights *flights;
    struct metrics *metrics;
    int64_t silence_ns;   /* what a peer that does not answer costs; 0: REPAIR_SILENCE_NS */
    const char *instance; /* whose name is served by all of them; copied */
    const struct peer_identity *identity; /* copied; NULL: nobody. Its texts outlive this */
    /* Is there something at this peer that has not come yet? On the repair's thread. NULL: there may be. */
    bool (*is_behind)(void *argument, const char *address);
    void *argument;
    struct tier_fetch *tier; /* asked when no peer could help; NULL: there is no bucket */
    bool tier_finds;         /* also which blobs it has */
};

MUST_CHECK bool repair_new(const struct repair_config *config,
                           struct repair **repair,
                           struct status *status);
/* Nobody waits any more. Waits for what is being committed, never for a peer. NULL is fine. */
void repair_free(struct repair *repair);

/* Is there anybody who can be asked, at the moment? repair may be NULL. Any thread. */
bool repair_can_ask(struct repair *repair);

/* Asks these from now on. INVALID_ARGUMENT, RESOURCE_EXHAUSTED. One thread at a time. */
MUST_CHECK bool repair_set_peers(struct repair *repair,
                                 char *const *addresses,
                                 size_t count,
                                 struct status *status);

/* One blob that is waited for. */
struct repair_wait {
    /* Called once, on the repair's thread, holding no lock: it is here now, or no peer could help. */
    void (*ready)(struct repair_wait *wait);
    bool unavailable;     /* out, when it is not here: the bucket could not tell */
    struct digest digest; /* the repair's, as all below */
    bool queued;
    struct repair_wait *next, *previous; /* of those that wait for one digest */
    struct repair_job *job;
};

/*
 * True: ready comes, unless repair_cancel(). False: nobody can be asked, or too many ask. repair may be NULL. Any thread.
 */
MUST_CHECK bool repair_start(struct repair *repair,
                             const struct digest *digest,
                             struct repair_wait *wait);
/* True: ready will not be called. False: it has been, or is being called. */
bool repair_cancel(struct repair *repair, struct repair_wait *wait);

/* What peers are asked that they answer by themselves, one after the other. */
struct repair_question_wait {
    /* As above. result: owned by whoever waits, freed with free(). */
    void (*ready)(struct repair_question_wait *wait, uint8_t *result, size_t length);
    struct repair_question *job; /* the repair's; NULL: it does not wait */
};
/*
 * The action result that they would serve; NULL: nobody has one. It is given out as it came and not stored: when and by whom it was
 * written is known to the puller alone, which brings it.
 */
MUST_CHECK bool repair_start_action(struct repair *repair,
                                    const struct digest *action,
                                    struct bytes instance,
                                    struct repair_question_wait *wait);
/*
 * Which of these blobs, of one digest function, they do not have: an array of struct digest in the order of the question. Those
 * peers alone are asked that this node is behind, or, with ask_all, all. What a peer says to have is durable there; it is not
 * fetched. The bucket is asked for the rest, if it is to be (tier_finds), but not with ask_all: what it has is on no node's disk.
 */
MUST_CHECK bool repair_start_find(struct repair *repair,
                                  const struct digest *digests,
                                  size_t count,
                                  bool ask_all,
                                  struct repair_question_wait *wait);
bool repair_cancel_question(struct repair *repair, struct repair_question_wait *wait);

#endif
