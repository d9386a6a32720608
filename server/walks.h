/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of walks through trees, all together. A walk remembers all that it has met, and is worked on in turns with others; so many
 * wide ones at once would each hold much. Before each turn a walk says what it will hold at most, and waits when that is too much.
 * Whoever has been here for longest never waits for the others, so that there is always one that comes to its end: what walks hold is
 * the limit and one call's memory.
 */
#ifndef VARVE_SERVER_WALKS_H
#define VARVE_SERVER_WALKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/status.h"

struct walks;

/* In the call's memory; a zeroed one is valid, and holds nothing. All but wake is the module's. */
struct walk {
    /* After walk_hold() said no: it is worth asking again. Any thread, with a lock held: may wake a call, no more. */
    void (*wake)(struct walk *walk);
    struct walks *walks; /* NULL: not here */
    uint64_t held_bytes;
    bool waits;
    struct walk *next, *previous; /* in the order in which they came */
};

MUST_CHECK bool walks_new(uint64_t limit_bytes, struct walks **walks, struct status *status);
void walks_free(struct walks *walks); /* asserts that there is none */

/* Before a turn: it will hold so much at most. False: it waits. Any thread. */
bool walk_hold(struct walks *walks, struct walk *walk, uint64_t bytes);
/* After one: so much it holds. */
void walk_keep(struct walk *walk, uint64_t bytes);
void walk_end(struct walk *walk);

/* Does one wait? Any thread. */
bool walks_wait(struct walks *walks);

#endif
