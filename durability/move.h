/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending afresh what lives in a segment that is to go. The new record is durable and visible before the old one is given up;
 * an entry that changed meanwhile is left as it is (the copy is dead bytes).
 */
#ifndef VARVE_DURABILITY_MOVE_H
#define VARVE_DURABILITY_MOVE_H

#include "durability/commit.h"

/* One record, or one large blob, that may be moved. */
struct moving {
    enum record_kind kind; /* BLOB, ACTION, FORGET; MANIFEST for a large blob */
    struct digest digest;
    struct blob_key key; /* not of a FORGET */
    struct place place;  /* of the record that the entry names now */
    struct place forget; /* FORGET: what it names */
    enum record_kind forget_kind;
    char *instance; /* owned; actions and FORGETs of actions; else NULL */
    size_t instance_bytes;
};

/*
 * Reads what is not in the footer: the instance of an action, what a FORGET names. moving->kind and place are set. False with
 * DATA_LOSS when the record is damaged; other codes are of the machine.
 */
MUST_CHECK bool move_identify(struct store *store,
                              struct segment *segment,
                              const struct footer_entry *entry,
                              struct moving *moving,
                              struct status *status);
void move_destroy(struct moving *moving);

/* Moves go in batches that share a round of commit. One thread. */
struct mover {
    struct store *store;                /* borrowed */
    struct commit *commits[LANE_COUNT]; /* borrowed */
    struct lock lock;
    struct condition changed;
    size_t in_flight;         /* guarded by lock */
    uint64_t in_flight_bytes; /* guarded by lock */
};

void mover_init(struct mover *mover, struct store *store, struct commit *const *commits);
/* Starts moving; waits while much is in flight. False if it cannot be read or appended: it is then lost with its segment. */
bool mover_move(struct mover *mover, struct segment *from, const struct moving *moving);
/* Waits until everything that was started is durable, or has failed. */
void mover_finish(struct mover *mover);

#endif
