/* SPDX-License-Identifier: Apache-2.0 */
/* Calls completions back on a thread of their own, in batches, so that the committer goes on with its next round. */
#ifndef VARVE_DURABILITY_ACK_H
#define VARVE_DURABILITY_ACK_H

#include "base/lock.h"
#include "base/status.h"

struct ack {
    /* result: OK (code 0) or why not; valid during the call. May free the memory that holds this. */
    void (*done)(struct ack *ack, const struct status *result);
    struct ack *next; /* the acker's */
};

struct acker;

MUST_CHECK bool acker_new(struct acker **acker, struct status *status);
void acker_free(struct acker *acker); /* asserts that it is empty */

/* Queues a list of completions that share one result (copied). */
void acker_post(struct acker *acker, struct ack *acks, const struct status *result);

/* Runs what is queued; false if nothing was. */
bool acker_round(struct acker *acker);
/* Blocks until something is queued, or acker_stop() was called and nothing is left (then false). */
bool acker_wait(struct acker *acker);
void acker_stop(struct acker *acker);

#endif
