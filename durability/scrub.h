/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads everything that the store holds again and again, at a limited rate, and verifies it, so that
 * rot is found before somebody needs what has rotted. A record that is damaged is forgotten.
 *
 *   idle ──► (a day since the last pass began, or scrub_start()) ──► segment ──► segment ──► ... ──► idle
 *
 * A pass goes through the segments that there are when it begins, by number. Segments that nobody
 * writes to any more are read from the disk, not from the page cache. Blobs are hashed, chunks have
 * their checksums verified, and large blobs whose chunks lie in order are hashed whole. How far it
 * has come is kept in DATA/scrub, so that a restart goes on with the next segment.
 *
 * One thread runs scrub_wait() and scrub_step(); the rest is for any.
 */
#ifndef VARVE_DURABILITY_SCRUB_H
#define VARVE_DURABILITY_SCRUB_H

#include "durability/commit.h"

struct scrub;

/* For a pass that is asked for while no rate is set. */
#define SCRUB_BYTES_PER_S_DEFAULT (20 * MIB)

struct scrub_config {
    struct store *store; /* borrowed; its scrub_bytes_per_s counts. 0: no pass begins by itself */
    struct commit
        *small_lane; /* borrowed: takes FORGETs; a store that has failed is not scrubbed */
};

struct scrub_progress {
    bool running;
    uint64_t segment, offset; /* where it is */
    uint64_t done_bytes;      /* of this pass, or the last one */
    uint64_t total_bytes;     /* likewise */
    uint64_t damaged; /* likewise: records, and other things that were not as they were written */
    uint64_t passes;  /* ended so far, over restarts */
    int64_t last_pass_wall_ns; /* when the last one ended; 0: none has */
};

MUST_CHECK bool scrub_new(const struct scrub_config *config,
                          struct scrub **scrub,
                          struct status *status);
void scrub_free(struct scrub *scrub); /* notes how far it has come */

/* Lets a pass begin now, if none is going on. */
void scrub_start(struct scrub *scrub);
void scrub_progress(struct scrub *scrub, struct scrub_progress *progress);

/* One round: some MiB, or the end of a segment or of the pass. False when no pass is going on. */
bool scrub_step(struct scrub *scrub);
/* Blocks until the next round may run, at the rate that is set; false once scrub_stop() was called. */
bool scrub_wait(struct scrub *scrub);
void scrub_stop(struct scrub *scrub);

#endif
