/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-1-3 (Aumasson and Bernstein, 2012): a 64-bit hash under a secret key, so that nobody who chooses digests or instance
 * names can choose where they collide. One compression round a word and three at the end: the variant for hash tables.
 *
 * The message is given as whole words first and then a rest of any length:
 *   siphash_begin(); siphash_words() any number of times; siphash_finish().
 */
#ifndef VARVE_STORE_SIPHASH_H
#define VARVE_STORE_SIPHASH_H

#include "base/bytes.h"

enum { SIPHASH_KEY_BYTES = 16, SIPHASH_WORD_BYTES = 8 };

struct siphash_key {
    uint8_t bytes[SIPHASH_KEY_BYTES];
};

/* A plain value; one message at a time. */
struct siphash {
    uint64_t v0, v1, v2, v3;
    uint64_t length_bytes; /* of the words so far */
};

void siphash_begin(struct siphash *siphash, const struct siphash_key *key);

/* data: count * SIPHASH_WORD_BYTES bytes, not aligned in any way. */
void siphash_words(struct siphash *siphash, const uint8_t *data, size_t count);

/* The hash of all words and then `rest`; siphash must be begun again before it is used again. */
uint64_t siphash_finish(struct siphash *siphash, struct bytes rest);

#endif
