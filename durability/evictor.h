/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a store within its capacity and leaves a reserve of the disk free, a segment at a time, never inside a request.
 *
 *   oldest sealed segment ──► plan ──► move what was used ──► forget the rest ──► condemn ──► (readers gone) ──► .dead ──►
 *   cut in steps ──► unlink
 *
 * Moved records go through the ordinary lanes and are durable and visible before the old ones go. A large blob is moved
 * by copying those of its chunks that lie in the segment, and a new MANIFEST.
 *
 * One thread runs evictor_step(); the rest is for any.
 */
#ifndef VARVE_DURABILITY_EVICTOR_H
#define VARVE_DURABILITY_EVICTOR_H

#include "durability/commit.h"

struct evictor;

struct evictor_config {
    struct store
        *store; /* borrowed, as all pointers here; its capacity, reserve and vouch time count */
    struct commit *commits[LANE_COUNT];
};

MUST_CHECK bool evictor_new(const struct evictor_config *config,
                            struct evictor **evictor,
                            struct status *status);
void evictor_free(struct evictor *evictor);

/* Does the store hold more than it may, so that a segment must go? */
bool evictor_is_needed(struct evictor *evictor);

/*
 * Evicts one segment if one must go, and removes those whose readers have left; false when there was nothing to do.
 * Blocks on commits and on the disk. Stops early when evictor_stop() was called.
 */
bool evictor_step(struct evictor *evictor);
void evictor_stop(struct evictor *evictor);

#endif
