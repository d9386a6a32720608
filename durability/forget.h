/* SPDX-License-Identifier: Apache-2.0 */
/* Taking an entry out of the index, in a way that survives a restart: a FORGET record names the place that no longer counts. */
#ifndef VARVE_DURABILITY_FORGET_H
#define VARVE_DURABILITY_FORGET_H

#include "durability/commit.h"

struct forget {
    struct digest digest;  /* of the blob or the action */
    struct bytes instance; /* actions; borrowed for the call */
    struct place place;    /* of the record that goes; another record of the same digest stays */
    enum record_kind kind; /* of that record: BLOB, MANIFEST or ACTION */
    enum forget_reason reason;
    uint64_t origin_uid; /* of the node that ordered it; 0: this one */
    int64_t wall_ns;     /* when; 0: now */
    struct ack *ack;     /* NULL, or called once the FORGET is durable, or has failed */
};

/*
 * Removes the entry from memory now and queues a FORGET. Does nothing, and says false, if the entry lies elsewhere by now (then
 * nothing is called back). Failures are logged: the entry then comes back with a restart, and is checked again when it is read.
 */
bool forget_entry(struct store *store, struct commit *small_lane, const struct forget *forget);

/*
 * The same for what this store does not have, and whoever follows its log may: peers, a bucket. *forget has no place. What is stored here
 * meanwhile stays. Always calls back.
 */
void forget_elsewhere(struct store *store, struct commit *small_lane, const struct forget *forget);

/* The record of a FORGET with all it needs on its way to the small lane; does not move in memory. */
struct forgetting {
    struct store *store; /* borrowed */
    struct commit_request request;
    struct record record;
    struct bytes parts[2];
    struct forget_payload payload;
    char instance[LIMIT_INSTANCE_NAME_BYTES];
    struct ack *told; /* borrowed; NULL: nobody waits for it */
};

/* Fills store, request and record, but not request.ack. Nothing of *forget is borrowed but its ack. */
void forgetting_fill(struct forgetting *forgetting,
                     struct store *store,
                     const struct forget *forget);

/*
 * Waits until every FORGET that forget_entry() queued before is durable or has failed. Not for the threads that commit and
 * acknowledge.
 */
void forget_wait(struct store *store);

#endif
