/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One action result that a peer has told, on its way into the store: what it names and is missing here is fetched from that peer;
 * then, if it was written later than the one that is here, it is appended as it was first written, with time, writer and origin.
 *
 *   From        To          On
 *   CHECKING    FETCHING    something that it names is missing
 *   FETCHING    CHECKING    what could be fetched is here
 *   CHECKING    CLAIMING    it is complete, and newer than ours
 *   CLAIMING    COMMITTING  nobody else writes a result of this action
 *   any         (done)      it is older, cannot be complete, failed, or is durable
 *
 * In the loop's thread.
 */
#ifndef VARVE_SERVER_PEER_ACTION_H
#define VARVE_SERVER_PEER_ACTION_H

#include "server/fetcher.h"
#include "store/action_record.h"

struct peer_action;

enum peer_action_outcome {
    PEER_ACTION_TAKEN,
    PEER_ACTION_OLDER,      /* than ours, or the same */
    PEER_ACTION_INCOMPLETE, /* the peer does not have all that it names either */
    PEER_ACTION_FAILED,     /* *status says why */
};

struct peer_action_request {
    struct digest action;
    struct action_record record; /* parts borrowed until done */
    bool
        opaque; /* it is no ActionResult, but what some client keeps in its place: it names nothing */
    struct durability *durability;
    struct flights *flights;
    struct fetcher *fetcher;
    struct event_loop *loop;
    /* Once, never from inside the start. failed_here: as in fetcher.h. */
    void (*done)(void *argument,
                 enum peer_action_outcome outcome,
                 const struct status *status,
                 bool failed_here);
    void *argument;
};

/* RESOURCE_EXHAUSTED: then done does not come. *action: for cancelling, good until done. */
MUST_CHECK bool peer_action_start(const struct peer_action_request *request,
                                  struct peer_action **action,
                                  struct status *status);
/*
 * If it waits for somebody else who writes a result of the action, it fails now. Wants end with fetcher_cancel(), and a commit as it
 * will.
 */
void peer_action_cancel(struct peer_action *action);

/* Is a written before b? By time, then by origin; the same is not before. */
bool action_is_before(const struct action_record *a, const struct action_record *b);

#endif
