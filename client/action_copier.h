/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Action results to a server that lacks them: each is stored only when everything that it names by
 * digest is there (what is in its trees is for the server to check), and never in place of one that is
 * there. Some travel at once.
 *
 *   given ──► get ──► present | differs
 *              └────► (not there) ──► find what it names ──► incomplete
 *                                           └──► update ──► copied
 *              any ─► failed, abandoned
 *
 * All in one thread. Every call has a deadline.
 */
#ifndef VARVE_CLIENT_ACTION_COPIER_H
#define VARVE_CLIENT_ACTION_COPIER_H

#include "base/digest.h"
#include "client/connection.h"

enum { ACTION_COPIER_IN_FLIGHT_MAX = 16 };

enum action_outcome {
    ACTION_PRESENT,    /* the same result was there */
    ACTION_DIFFERS,    /* another one was there, and stays */
    ACTION_ABSENT,     /* of a comparison: none is there */
    ACTION_COPIED,     /* is there now */
    ACTION_INCOMPLETE, /* something that it names is not there */
    ACTION_FAILED,     /* has been reported */
    ACTION_ABANDONED,  /* cut by a failure of all */
    ACTION_OUTCOMES,
};

enum action_copier_mode { ACTION_COPIER_COPY, ACTION_COPIER_COMPARE };

struct action_copier_observer {
    void (*problem)(void *argument, const struct status *problem); /* names the action */
    void (*ended)(void *argument, const struct digest *action, enum action_outcome outcome);
    void *argument;
};

struct action_copier;

/* client: borrowed; its instance counts. */
MUST_CHECK bool action_copier_new(struct client *client,
                                  enum action_copier_mode mode,
                                  const struct action_copier_observer *observer,
                                  struct action_copier **copier,
                                  struct status *status);
/* After action_copier_finish(), or before the first action_copier_add(). NULL is fine. */
void action_copier_free(struct action_copier *copier);

/*
 * result: an encoded ActionResult; copied. May wait. Errors: what ended it (a server that is gone,
 * access).
 */
MUST_CHECK bool action_copier_add(struct action_copier *copier,
                                  const struct digest *action,
                                  struct bytes result,
                                  struct status *status);

/* Waits for the end of all. False with what ended it early. */
MUST_CHECK bool action_copier_finish(struct action_copier *copier, struct status *status);

uint64_t action_copier_count(const struct action_copier *copier, enum action_outcome outcome);

#endif
