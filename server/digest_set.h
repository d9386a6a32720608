/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Different digests, in the order in which they came: a set, and a queue for walks that go on
 * adding to it. Hashed under a secret key, since who writes Directories chooses what is in here.
 *
 * All memory is the arena's: 48 bytes a digest in the end. One thread at a time.
 */
#ifndef VARVE_SERVER_DIGEST_SET_H
#define VARVE_SERVER_DIGEST_SET_H

#include "base/arena.h"
#include "base/digest.h"
#include "store/siphash.h"

enum { DIGEST_SET_BLOCKS_MAX = 20 };

struct digest_set {
    struct arena *arena; /* borrowed */
    size_t limit;        /* digests */
    size_t count;
    enum digest_function function; /* of all of them: the first one's */
    size_t hash_length;            /* likewise, in bytes */
    struct siphash_key key;
    uint8_t *blocks[DIGEST_SET_BLOCKS_MAX]; /* each twice as long as the one before */
    uint32_t *slots;                        /* open addressing: index + 1, or 0 */
    size_t slot_count;                      /* 0 or a power of two */
};

/* limit: 1 to 2^24. RESOURCE_EXHAUSTED when there is no random key to be had. */
MUST_CHECK bool digest_set_init(struct digest_set *set,
                                struct arena *arena,
                                size_t limit,
                                struct status *status);

/*
 * *index is where it stands, from 0; *added false if it had been there.
 * Errors: RESOURCE_EXHAUSTED at the limit or when the arena is used up; INVALID_ARGUMENT for a
 * digest of another function.
 */
MUST_CHECK bool digest_set_add(struct digest_set *set,
                               const struct digest *digest,
                               size_t *index,
                               bool *added,
                               struct status *status);

/* True and *index if it is in. */
bool digest_set_find(const struct digest_set *set, const struct digest *digest, size_t *index);

/* index: below count. */
void digest_set_get(const struct digest_set *set, size_t index, struct digest *digest);

#endif
