/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the puller share: its life in puller.c, one lane's log in pull_lane.c, one page of it in pull_page.c. */
#ifndef VARVE_SERVER_PULLER_PRIVATE_H
#define VARVE_SERVER_PULLER_PRIVATE_H

#include "base/thread.h"
#include "client/replication.h"
#include "client/unary.h"
#include "server/peers.h"
#include "server/puller.h"

struct pull_page;

struct pull_lane {
    struct puller *puller; /* borrowed */
    enum lane lane;
    uint64_t after_seq;   /* what to ask with next */
    uint64_t applied_seq; /* dealt with, and durable here */
    uint64_t durable_seq; /* as the peer said last */
    uint64_t behind_bytes;
    bool asked; /* since it was greeted, the peer has answered */
    bool at_end;
    bool anew;               /* began at 0 for want of anything better, and was told nothing yet */
    int64_t behind_since_ns; /* 0: it is not */
    struct unary *feed;      /* in flight; good until its end */
    struct pull_page *first, *last; /* in the order of the log; owned */
    size_t pages;
};

enum puller_state { PULLER_PAUSING, PULLER_GREETING, PULLER_FOLLOWING, PULLER_DRAINING };

struct puller {
    struct puller_config config; /* its texts are owned */
    struct store *store;         /* borrowed */
    struct client *client;       /* owned */
    struct peer_token token;
    struct fetcher *fetcher; /* owned */
    struct event_loop loop;
    struct thread thread;

    /* Of the puller's thread. */
    enum puller_state state;
    struct timer pause, drain, tick;
    int64_t pause_ns; /* after draining */
    struct retry backoff;
    struct event stop_event;
    _Atomic bool asked_to_stop; /* the event is posted once */
    bool stopping, ended;
    struct unary *greeting; /* in flight */
    uint64_t uid;           /* of the peer; 0: not known yet */
    size_t actions;         /* on their way into the store */
    size_t forgets;         /* likewise */
    struct pull_lane lanes[LANE_COUNT];
    bool failing_logged; /* the failure since it was last heard of */
    bool is_self_logged, larger_logged, too_large_logged, cursor_logged, clock_logged;
    bool refused;
    struct status last_error;
    uint64_t saved_seq[LANE_COUNT];

    struct lock lock;
    struct peer_report report;           /* guarded by lock */
    int64_t behind_since_ns[LANE_COUNT]; /* guarded by lock */
};

/* A failure of the peer, or, if here, of our own store: drain, pause, and go on from what is applied. */
void puller_fail(struct puller *puller, const struct status *why, bool here);
/* The peer has sent what cannot be. digest: NULL, or of what. */
void puller_lie(struct puller *puller, const struct digest *digest, const char *reason);
/* The log of this lane is not the one that it was, or not all of it is there: from its beginning on. */
void puller_begin_anew(struct puller *puller, struct pull_lane *lane, const struct status *why);
/* Something has ended: if the puller drains, that may have been the last. */
void puller_check_drained(struct puller *puller);
/* For puller_report(). */
void puller_publish(struct puller *puller);
static inline bool puller_follows(const struct puller *puller)
{
    return puller->state == PULLER_FOLLOWING;
}

/* ---- pull_lane.c */

/* Asks for the next page if it is time to. */
void pull_lane_step(struct pull_lane *lane);
/* A page is dealt with: moves on what is applied. */
void pull_lane_settle(struct pull_lane *lane);
void pull_lane_cancel(struct pull_lane *lane);
void pull_lane_drop_pages(struct pull_lane *lane);
/* All that the peer had when it was last asked is here. */
bool pull_lane_up_to_date(const struct pull_lane *lane);

/* ---- pull_page.c */

/* Takes the feed page over. NULL: no memory. */
struct pull_page *pull_page_new(struct pull_lane *lane, uint64_t after_seq, struct feed_page *feed);
void pull_page_free(struct pull_page *page);
/* Asks for what is missing of it. */
void pull_page_start(struct pull_page *page);
bool pull_page_started(const struct pull_page *page);
bool pull_page_deletes(const struct pull_page *page); /* there is a FORGET in it */
/* Up to where everything is dealt with. *whole: all of it. */
uint64_t pull_page_applied(struct pull_page *page, bool *whole);
/* Action results that wait for somebody. */
void pull_page_cancel(struct pull_page *page);
struct pull_page **pull_page_next(struct pull_page *page);

#endif
