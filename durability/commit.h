/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit of one lane. Requests queue up; a round appends all that wait in one gathered write, syncs once,
 * moves durable_seq, makes the entries visible in memory, and only then calls the requests back: those of writes by way of
 * durability/copies.h.
 *
 *              submit              append                sync                publish            done
 *   request ───────────► queued ───────────► pending ───────────► durable ───────────► visible ──────► acknowledged
 *
 * If more than one request waits (or commit_expect() says that more are coming) a round waits up to
 * LIMIT_COMMIT_WINDOW_NS for company. A lone request pays no window.
 *
 * What eviction moves has a queue and rounds of its own, in turn with the others: writes may have to wait for an eviction,
 * moves are what it waits for. A move is appended only if its entry still lies where it is moved from, so a later record of a
 * key is never followed by an older one.
 *
 * A failed sync is final (I9): every request of the round and all later ones fail with UNAVAILABLE, nothing is
 * published, and the sync is never tried again. A full disk is not final: that request fails with RESOURCE_EXHAUSTED.
 *
 * Threads: submit and expect from any; one committer runs commit_round().
 */
#ifndef VARVE_DURABILITY_COMMIT_H
#define VARVE_DURABILITY_COMMIT_H

#include "durability/ack.h"
#include "durability/indexer.h"
#include "durability/watermark.h"
#include "store/store.h"

struct commit;
struct copies;

/* One record that waits to become durable. Memory of the submitter, which must stay until `done` is called. */
struct commit_request {
    struct record *record; /* borrowed; BLOB, MANIFEST, ACTION or FORGET of this lane */
    struct bytes instance; /* borrowed; ACTION: part of its key */
    struct place
        relocate; /* a move: where the entry lies now; published only if it still does. Segment 0: no move */
    uint16_t
        clear_touch; /* a move: the entry counts as unused then if its touch is still this; 0: keep it */
    bool
        local; /* acknowledged once it is durable here, whatever durability/copies.h says: it came from a peer */
    bool
        stale; /* out, a move: the entry lies elsewhere by now, or nowhere; the copy, if there is one, is nobody's */
    struct place forget; /* FORGET: the record that goes */
    enum record_kind forget_kind;
    struct ack
        ack; /* ack.done is set by the submitter; called exactly once, on the ack thread, holding no lock */
    struct commit_request
        *next; /* commit's; a submitter may link requests by it to submit many at once */
};

struct commit_config {
    struct store *store; /* borrowed, as all pointers here */
    enum lane lane;
    struct acker *acker;
    struct indexer *indexer;
    struct copies
        *copies; /* is told what is published; writes are acknowledged as it says. NULL: at once */
    /* Called once, from the committer, when the lane fails for good. */
    void (*on_failure)(void *argument, enum lane lane, const struct status *why);
    void *on_failure_argument;
};

MUST_CHECK bool commit_new(const struct commit_config *config,
                           struct commit **commit,
                           struct status *status);
void commit_free(struct commit *commit); /* asserts that nothing is queued */

/* Queues a list of requests (linked by next), all of them writes, or all moves and FORGETs. Each is called back in the end, also when this lane has failed. */
void commit_submit(struct commit *commit, struct commit_request *requests);

/* There may be room again for requests that wait for it. Any thread. */
void commit_room_made(struct commit *commit);

/* Tells that `puts` more (or, negative, fewer) requests are on their way: the window waits for them. */
void commit_expect(struct commit *commit, int puts);

/* Asks for a round that syncs what the lane holds unsynced, though nobody waits. Any thread. */
void commit_want_sync(struct commit *commit);

/* One round; false when nothing was queued and nothing was to be synced. Never blocks but for the window and the disk. */
bool commit_round(struct commit *commit);

/*
 * Rounds that have ended, those that found nothing to do included. *waits: a round is under way, or something waits for one. Waits,
 * and no turn for long: the disk does not answer. Any thread.
 */
uint64_t commit_turns(struct commit *commit, bool *waits);

/* Blocks until there is work for a round or commit_stop() was called; false then and only when nothing is left to do. */
bool commit_wait(struct commit *commit);
void commit_stop(struct commit *commit);

struct watermark *commit_watermark(struct commit *commit);
bool commit_failed(struct commit *commit, struct status *why);

#endif
