/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durations counted in buckets that are 1/64 of their power of two wide, so that any quantile is
 * exact to 1.6 %.
 */
#ifndef VARVE_BENCH_LATENCY_H
#define VARVE_BENCH_LATENCY_H

#include <stdint.h>

enum { LATENCY_STEPS = 64, LATENCY_BUCKETS = 64 * LATENCY_STEPS };

struct latency {
    uint64_t counts[LATENCY_BUCKETS];
    uint64_t total;
    int64_t max_ns;
};

static inline unsigned latency_bucket(int64_t duration_ns)
{
    const uint64_t value = duration_ns > 0 ? (uint64_t)duration_ns : 0;
    if (value < LATENCY_STEPS)
        return (unsigned)value;
    const unsigned power = 63 - (unsigned)__builtin_clzll(value); /* 6 or more */
    return (power - 5) * LATENCY_STEPS + (unsigned)(value >> (power - 6) & (LATENCY_STEPS - 1));
}

static inline void latency_add(struct latency *latency, int64_t duration_ns)
{
    latency->counts[latency_bucket(duration_ns)]++;
    latency->total++;
    if (duration_ns > latency->max_ns)
        latency->max_ns = duration_ns;
}

/* The lower end of the bucket in which the quantile (0 to 1) lies; 0 when nothing was counted. */
static inline double latency_quantile_ns(const struct latency *latency, double quantile)
{
    uint64_t rank = (uint64_t)(quantile * (double)latency->total);
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        if (latency->counts[i] > rank) {
            if (i < LATENCY_STEPS)
                return (double)i;
            const unsigned power = i / LATENCY_STEPS + 5;
            return (double)((UINT64_C(1) << power) +
                            ((uint64_t)(i % LATENCY_STEPS) << (power - 6)));
        }
        rank -= latency->counts[i];
    }
    return (double)latency->max_ns;
}

#endif
