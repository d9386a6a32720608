/* SPDX-License-Identifier: Apache-2.0 */
#include "store/siphash.h"

static uint64_t load_word(const uint8_t *data);
static void absorb(struct siphash *siphash, uint64_t word);
static void mix(struct siphash *siphash);

void siphash_begin(struct siphash *siphash, const struct siphash_key *key)
{
    /* The four constants are the paper's: "somepseudorandomlygeneratedbytes". */
    const uint64_t k0 = load_word(key->bytes);
    const uint64_t k1 = load_word(key->bytes + SIPHASH_WORD_BYTES);
    siphash->v0 = k0 ^ UINT64_C(0x736f6d6570736575);
    siphash->v1 = k1 ^ UINT64_C(0x646f72616e646f6d);
    siphash->v2 = k0 ^ UINT64_C(0x6c7967656e657261);
    siphash->v3 = k1 ^ UINT64_C(0x7465646279746573);
    siphash->length_bytes = 0;
}

void siphash_words(struct siphash *siphash, const uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        absorb(siphash, load_word(data + i * SIPHASH_WORD_BYTES));
    siphash->length_bytes += count * SIPHASH_WORD_BYTES;
}

uint64_t siphash_finish(struct siphash *siphash, struct bytes rest)
{
    enum { FINAL_ROUNDS = 3, LENGTH_SHIFT = 56 };
    const size_t words = rest.length / SIPHASH_WORD_BYTES;
    siphash_words(siphash, rest.data, words);

    /* The last word: the bytes that are left, and the length's low byte on top. */
    const size_t left = rest.length % SIPHASH_WORD_BYTES;
    uint64_t last = (siphash->length_bytes + left) << LENGTH_SHIFT;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)rest.data[words * SIPHASH_WORD_BYTES + i] << (8 * i);
    absorb(siphash, last);

    siphash->v2 ^= 0xff;
    for (int i = 0; i < FINAL_ROUNDS; i++)
        mix(siphash);
    return siphash->v0 ^ siphash->v1 ^ siphash->v2 ^ siphash->v3;
}

/* The machine is little-endian, as the algorithm is. */
static uint64_t load_word(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static void absorb(struct siphash *siphash, uint64_t word)
{
    siphash->v3 ^= word;
    mix(siphash);
    siphash->v0 ^= word;
}

static inline uint64_t rotate_left(uint64_t word, unsigned int bits)
{
    return word << bits | word >> (64 - bits);
}

/* SipRound. */
static void mix(struct siphash *siphash)
{
    uint64_t v0 = siphash->v0, v1 = siphash->v1, v2 = siphash->v2, v3 = siphash->v3;
    v0 += v1;
    v1 = rotate_left(v1, 13) ^ v0;
    v0 = rotate_left(v0, 32);
    v2 += v3;
    v3 = rotate_left(v3, 16) ^ v2;
    v0 += v3;
    v3 = rotate_left(v3, 21) ^ v0;
    v2 += v1;
    v1 = rotate_left(v1, 17) ^ v2;
    v2 = rotate_left(v2, 32);
    siphash->v0 = v0;
    siphash->v1 = v1;
    siphash->v2 = v2;
    siphash->v3 = v3;
}
