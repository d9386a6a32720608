/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one call: taken piece by piece, given back at once. Grows in blocks up to a fixed
 * limit, after which taking gives NULL and the call fails with RESOURCE_EXHAUSTED; the server does
 * not grow. One thread at a time.
 */
#ifndef VARVE_BASE_ARENA_H
#define VARVE_BASE_ARENA_H

#include "base/bytes.h"
#include "base/compiler.h"

struct arena_block;

struct arena {
    struct arena_block *newest; /* owned; a list of blocks */
    size_t used_bytes;          /* handed out, with alignment */
    size_t limit_bytes;
};

void arena_init(struct arena *arena, size_t limit_bytes);
void arena_destroy(struct arena *arena); /* an arena that was only zeroed is fine too */

/*
 * Aligned to 16, not zeroed; NULL when the limit or memory is used up. size 0 gives a valid
 * pointer.
 */
void *arena_take(struct arena *arena, size_t size_bytes);
void *arena_take_zeroed(struct arena *arena,
                        size_t count,
                        size_t element_bytes); /* overflow-checked */

/* A NUL-terminated copy; NULL as above. */
char *arena_copy_string(struct arena *arena, struct bytes text);

#endif
