/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a store within its capacity and leaves a reserve of the disk free, a segment at a time, never inside a request.
 *
 *   oldest full segment ──► doomed ──► plan ──► move what was used ──► forget the rest ──► condemned ──► .dead ──►
 *   (readers gone) ──► cut in steps ──► unlinked
 *
 *   From       To          On
 *   full       doomed      it is the oldest of its lane, and room is needed
 *   doomed     full        the evictor is stopped, or a FORGET could not be written; what was moved stays moved
 *   doomed     condemned   everything in it is elsewhere or nowhere, durably
 *   condemned  .dead       renamed, so that no later start sees it; whoever reads it has it open
 *   .dead      gone        nobody pins it any more
 *
 * A large blob with chunks here is moved by copying those chunks and a new MANIFEST; it is forgotten whole, with a FORGET when
 * its MANIFEST lies elsewhere. FORGETs are moved as long as the record that they name is there, and what
 * was deleted by order until all that follow have heard of it.
 *
 * Whoever was told that a blob is there is right: an entry that is used between plan and end is moved after all.
 *
 * One thread runs evictor_step(); the rest is for any.
 */
#ifndef VARVE_DURABILITY_EVICTOR_H
#define VARVE_DURABILITY_EVICTOR_H

#include "durability/commit.h"
#include "durability/copies.h"

struct evictor;

struct evictor_config {
    struct store *store; /* borrowed, as all pointers here; its space and vouch time count */
    struct commit *commits[LANE_COUNT];
    struct copies
        *copies; /* whose followers carry out what is deleted by order; NULL: there are none */
};

MUST_CHECK bool evictor_new(const struct evictor_config *config,
                            struct evictor **evictor,
                            struct status *status);
/* What is still read stays as a .dead file, which the next start removes. */
void evictor_free(struct evictor *evictor);

/* Does the store hold more than it may, so that a segment must go? */
bool evictor_is_needed(struct evictor *evictor);

/*
 * Evicts one segment if one must go, and removes those whose readers have left; false when there was nothing to do.
 * Blocks on commits and on the disk. Returns early, and false, once evictor_stop() was called.
 */
bool evictor_step(struct evictor *evictor);
void evictor_stop(struct evictor *evictor);

/* The number of the segment that a step would empty now; 0: none is to go, or none can. */
uint64_t evictor_next_victim(struct evictor *evictor);

/* Are there evicted segments whose readers it waits for? */
bool evictor_waits_for_readers(struct evictor *evictor);

#endif
