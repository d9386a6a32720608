/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which digests have been seen, and a number for each: open addressing, grows as needed. One
 * thread.
 */
#ifndef VARVE_CLIENT_DIGEST_MAP_H
#define VARVE_CLIENT_DIGEST_MAP_H

#include "base/digest.h"

struct digest_map_slot;

/* Zeroed memory is a valid empty one. */
struct digest_map {
    struct digest_map_slot *slots; /* owned */
    size_t capacity;               /* a power of two, or 0 */
    size_t count;
};

void digest_map_destroy(struct digest_map *map);
/* Empties it, and keeps its room. */
void digest_map_clear(struct digest_map *map);

/*
 * The place of the digest's number; *is_new tells whether the digest has just been put in, with
 * number 0. The place is valid until the next insert. NULL when there is no memory.
 */
size_t *digest_map_insert(struct digest_map *map, const struct digest *digest, bool *is_new);

/* The number's place, or NULL when the digest is not in. */
size_t *digest_map_find(const struct digest_map *map, const struct digest *digest);

#endif
