/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much more the segment files may take: of the store's capacity, and of the disk with its reserve. Part of it, the
 * headroom, is kept for moving what eviction wants to keep, so that a store that is full can still be emptied.
 *
 *   |<------------------------ capacity ------------------------>|
 *   | segment files                        | left    | headroom  |        ordinary writes: left; moves: both
 *
 * Any thread.
 */
#ifndef VARVE_STORE_SPACE_H
#define VARVE_STORE_SPACE_H

#include <stdatomic.h>

#include "store/segment_set.h"

struct space {
    /* Set once, never changed. */
    struct io *io; /* borrowed, as all pointers here */
    struct segment_set *segments;
    const char *directory;   /* on the disk in question */
    uint64_t capacity_bytes; /* 0: no bound */
    uint64_t reserve_bytes;  /* of the disk that stays free; 0: the disk is no bound */
    uint64_t headroom_bytes;

    _Atomic int64_t granted_bytes; /* what moves may still take of the headroom */
    atomic_bool moving;            /* between space_grant() and the one that ends it */
    atomic_uint files_made;
    atomic_uint files_not_made; /* although there should have been room */
};

/* Is there a bound at all, so that somebody makes room when it is met? */
bool space_is_bounded(const struct space *space);

/* What ordinary writes may still take; negative when moves have taken of the headroom, or others of the disk. */
int64_t space_left(const struct space *space);

/* Would what is left do, with all of the headroom? Moves never take the store beyond its capacity; of the disk's reserve they may. */
bool space_has_headroom(const struct space *space, uint64_t bytes);

/* Who wants room: a write, or a move that makes room in the end. */
enum space_use { SPACE_WRITE, SPACE_MOVE };

/* Takes room for a file, until it is in the set; false when there is none. *granted: headroom was taken. */
bool space_take(struct space *space, uint64_t bytes, enum space_use use, bool *granted);
void space_not_made(struct space *space, uint64_t bytes, bool granted);

/* Lets moves take so much of the headroom, from now on; 0 ends it. */
void space_grant(struct space *space, uint64_t bytes);

/* RESOURCE_EXHAUSTED, with the numbers. */
void space_explain(const struct space *space, uint64_t needed_bytes, struct status *status);

#endif
