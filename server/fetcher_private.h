/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the fetcher share: its queues in fetcher.c, one kind of call in each fetch_*.c, the commit in fetch_commit.c. */
#ifndef VARVE_SERVER_FETCHER_PRIVATE_H
#define VARVE_SERVER_FETCHER_PRIVATE_H

#include "server/fetcher.h"

enum want_state { WANT_WAITING, WANT_QUEUED, WANT_CALLING, WANT_COMMITTING };

struct want_list {
    struct want *first, *last;
    size_t count;
};

/* A call in flight, of whatever kind: part of what waits for it. */
struct fetch_call {
    void (*cancel)(struct fetch_call *call); /* its end comes later, in the loop */
    struct fetch_call *next, *previous;
};

struct fetcher {
    struct fetcher_config config;
    struct store *store; /* borrowed */
    struct want_list waiting, small, large;
    struct fetch_call *calls; /* in flight */
    size_t calls_count, batches, ranges, streams;
    size_t streams_max; /* as configured, or less to leave buffers to others */
    size_t live;
    int64_t held_bytes;      /* of the budget */
    struct status cancelled; /* of the last fetcher_cancel(): what calls that it ended end with */
    bool no_range;           /* the peer does not know Fetch */
    bool starved;            /* something waits for the budget */
    struct timer starved_timer, silence_timer;
    int64_t heard_ns;
    _Atomic uint64_t blobs, bytes;
};

void want_list_add(struct want_list *list, struct want *want);
void want_list_remove(struct want_list *list, struct want *want);

/* Ends the want: its flight, its memory. */
void want_end(struct want *want, const struct status *result);
/* Puts it into its queue. */
void want_queue(struct want *want);

/* A call begins or ends; something has come of it. */
void fetch_call_begin(struct fetcher *fetcher, struct fetch_call *call);
void fetch_call_end(struct fetcher *fetcher, struct fetch_call *call);
void fetch_heard(struct fetcher *fetcher);
/* What a call that failed has failed with: the reason of the cancellation, if it was that. */
const struct status *fetch_failure(const struct fetcher *fetcher, const struct status *status);

/* False: later, and fetcher_pump() will come. A fetcher that holds nothing always gets it. */
bool fetch_budget_take(struct fetcher *fetcher, uint64_t bytes);
void fetch_budget_force(struct fetcher *fetcher, uint64_t bytes);
void fetch_budget_give(struct fetcher *fetcher, uint64_t bytes);

/* ---- fetch_batch.c, fetch_range.c, fetch_stream.c: what can be started, starts */

void fetch_batches_pump(struct fetcher *fetcher);
void fetch_streams_pump(struct fetcher *fetcher);
void fetch_ranges_pump(struct fetcher *fetcher);

/* ---- fetch_commit.c: verified blobs of the small lane on their way into it, together */

struct fetch_commit;
/* Room for so many blobs of so many bytes together; they hold budget_bytes. NULL: no memory. */
struct fetch_commit *fetch_commit_new(struct fetcher *fetcher, size_t count, uint64_t bytes);
/* Where its bytes go, as many as the digest says. The want is ended by the commit. */
uint8_t *fetch_commit_room(struct fetch_commit *commit, const struct want *want);
/* The bytes are there, and verified. */
void fetch_commit_add(struct fetch_commit *commit, struct want *want);
/* Hands the memory over to the lane; with nothing in it, it is freed. budget_bytes are given back at the end. */
void fetch_commit_submit(struct fetch_commit *commit, uint64_t budget_bytes);
/* Nothing of it is submitted; its wants are the caller's to end. NULL is fine. */
void fetch_commit_discard(struct fetch_commit *commit);

#endif
