/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending afresh what lives in a segment that is to go. The new record is durable and visible before the old one is
 * given up; an entry that changed meanwhile is left as it is.
 */
#ifndef VARVE_DURABILITY_MOVE_H
#define VARVE_DURABILITY_MOVE_H

#include "durability/commit.h"

/* One record, or one large blob, that is to be moved. */
struct moving {
    enum record_kind kind; /* BLOB, ACTION, FORGET; MANIFEST for a large blob */
    struct digest digest;  /* of a large blob */
    struct place place;    /* of the record that the entry names now; of a FORGET itself */
    uint64_t bytes;        /* what is counted as moved */
    uint16_t clear_touch;  /* as in commit.h */
};

/* What a FORGET says. */
struct moving_forget {
    uint64_t named; /* the segment of the record that it is about; 0: of none that was ever here */
    uint64_t seq;   /* its own */
    enum forget_reason reason;
};

/*
 * Reads from a record what its footer entry does not say. FORGET: *forget. Others: *key.
 * DATA_LOSS when the record is damaged; other codes are of the machine.
 */
MUST_CHECK bool move_identify(struct store *store,
                              struct segment *segment,
                              const struct footer_entry *entry,
                              struct blob_key *key,
                              struct moving_forget *forget,
                              struct status *status);

/* Moves go together, so that they share rounds of commit. One thread. */
struct mover {
    struct store *store;                /* borrowed */
    struct commit *commits[LANE_COUNT]; /* borrowed */
    uint8_t *chunk;                     /* owned; memory for one; NULL until it is needed */

    struct lock lock;
    struct condition changed;
    size_t in_flight; /* guarded by lock, as all below */
    uint64_t in_flight_bytes;
    uint64_t moved_bytes; /* visible at their new place */
    uint64_t moves_failed;
    bool forget_failed; /* a FORGET could not be written or moved: the segment must stay */
};

void mover_init(struct mover *mover, struct store *store, struct commit *const *commits);
/* Nothing is in flight. */
void mover_destroy(struct mover *mover);

/* Starts moving; waits while much is in flight. False if it cannot be read or appended; that is logged and counted. */
bool mover_move(struct mover *mover, struct segment *from, const struct moving *moving);

/*
 * Writes a FORGET for a large blob whose entry was evicted and whose MANIFEST lies in a segment that stays: it must not come
 * back without its chunks. If that fails the entry is put back.
 */
void mover_forget(struct mover *mover,
                  const struct digest *digest,
                  struct blob_key key,
                  const struct blob_use *evicted);

/* Waits until everything that was started is durable, or has failed. */
void mover_wait(struct mover *mover);

#endif
