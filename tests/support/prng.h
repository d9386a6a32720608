/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that a seed fixes, so that a failing run can be repeated. */
#ifndef VARVE_TESTS_SUPPORT_PRNG_H
#define VARVE_TESTS_SUPPORT_PRNG_H

#include <stddef.h>
#include <stdint.h>

struct prng {
    uint64_t state; /* any number is a seed */
};

/* All 64 bits are random (splitmix64). */
static inline uint64_t prng_next(struct prng *prng)
{
    prng->state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = prng->state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* 0 to bound - 1. bound: 1 or more. */
static inline size_t prng_below(struct prng *prng, size_t bound)
{
    return (size_t)(prng_next(prng) % bound);
}

/* As many bits as chance has it: small and large numbers alike. */
static inline uint64_t prng_any_size(struct prng *prng)
{
    const uint64_t number = prng_next(prng);
    return number >> prng_below(prng, 64);
}

#endif
