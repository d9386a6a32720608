/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-1-3 (Aumasson and Bernstein, 2012): a 64-bit hash under a secret key, so that nobody who
 * chooses digests or instance names can choose where they collide. One compression round a word and
 * three at the end: the variant for hash tables.
 *
 * The message is given as whole words first and then a rest of any length:
 *   siphash_begin(); siphash_words() any number of times; siphash_finish().
 * All inline: a key of the index is seven words, and three calls cost as much as hashing them.
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

/* The machine is little-endian, as the algorithm is. */
static inline uint64_t siphash_load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static inline uint64_t siphash_rotate(uint64_t word, unsigned int bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void siphash_round(struct siphash *state)
{
    state->v0 += state->v1;
    state->v1 = siphash_rotate(state->v1, 13) ^ state->v0;
    state->v0 = siphash_rotate(state->v0, 32);
    state->v2 += state->v3;
    state->v3 = siphash_rotate(state->v3, 16) ^ state->v2;
    state->v0 += state->v3;
    state->v3 = siphash_rotate(state->v3, 21) ^ state->v0;
    state->v2 += state->v1;
    state->v1 = siphash_rotate(state->v1, 17) ^ state->v2;
    state->v2 = siphash_rotate(state->v2, 32);
}

static inline void siphash_absorb(struct siphash *state, uint64_t word)
{
    state->v3 ^= word;
    siphash_round(state);
    state->v0 ^= word;
}

static inline void siphash_begin(struct siphash *state, const struct siphash_key *key)
{
    /* The four constants are the paper's: "somepseudorandomlygeneratedbytes". */
    const uint64_t k0 = siphash_load(key->bytes);
    const uint64_t k1 = siphash_load(key->bytes + SIPHASH_WORD_BYTES);
    state->v0 = k0 ^ UINT64_C(0x736f6d6570736575);
    state->v1 = k1 ^ UINT64_C(0x646f72616e646f6d);
    state->v2 = k0 ^ UINT64_C(0x6c7967656e657261);
    state->v3 = k1 ^ UINT64_C(0x7465646279746573);
    state->length_bytes = 0;
}

/* data: count * SIPHASH_WORD_BYTES bytes, not aligned in any way. */
static inline void siphash_words(struct siphash *state, const uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        siphash_absorb(state, siphash_load(data + i * SIPHASH_WORD_BYTES));
    state->length_bytes += count * SIPHASH_WORD_BYTES;
}

/* The hash of all words and then `rest`; the state must be begun again before it is used again. */
static inline uint64_t siphash_finish(struct siphash *state, struct bytes rest)
{
    enum { FINAL_ROUNDS = 3, LENGTH_SHIFT = 56 };
    const size_t words = rest.length / SIPHASH_WORD_BYTES;
    siphash_words(state, rest.data, words);

    /* The last word: the bytes that are left, and the length's low byte on top. */
    const size_t left = rest.length % SIPHASH_WORD_BYTES;
    uint64_t last = (state->length_bytes + left) << LENGTH_SHIFT;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)rest.data[words * SIPHASH_WORD_BYTES + i] << (8 * i);
    siphash_absorb(state, last);

    state->v2 ^= 0xff;
    for (int i = 0; i < FINAL_ROUNDS; i++)
        siphash_round(state);
    return state->v0 ^ state->v1 ^ state->v2 ^ state->v3;
}

#endif
