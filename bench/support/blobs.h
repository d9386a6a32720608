/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs that programs under bench/ send and know again: noise, the same for all, with a number at the end. No two names have
 * the same bytes, a new blob costs the hash of its last bytes alone, and what was read can be compared without keeping it.
 *
 * Sizes are fixed, or those of the artifacts of large builds ("build"): median 2,832 bytes, mean 126 KB, p90 143 KB,
 * p99 2.67 MB, in 1,024 steps. Which of them a blob has, its name says.
 */
#ifndef VARVE_BENCH_BLOBS_H
#define VARVE_BENCH_BLOBS_H

#include "base/digest.h"

enum { BLOB_SIZES_MAX = 1024, BLOB_TAIL_BYTES = 16 };

struct blob_sizes {
    size_t count;
    size_t bytes[BLOB_SIZES_MAX]; /* ascending, 1 or more each */
};

void blob_sizes_fixed(struct blob_sizes *sizes, size_t bytes);
void blob_sizes_build(struct blob_sizes *sizes);

/* Blobs of one family and different numbers differ; so do those of two families. */
struct blob_name {
    uint64_t family;
    uint64_t number;
};

struct blobs; /* never changed once made: any thread */

/* RESOURCE_EXHAUSTED. */
MUST_CHECK bool blobs_new(const struct blob_sizes *sizes,
                          uint64_t seed,
                          struct blobs **blobs,
                          struct status *status);
void blobs_free(struct blobs *blobs);

size_t blob_size(const struct blobs *blobs, struct blob_name name);
/* What the mean and the largest of many are. */
double blobs_mean_bytes(const struct blobs *blobs);
size_t blobs_largest_bytes(const struct blobs *blobs);

void blob_digest(const struct blobs *blobs, struct blob_name name, struct digest *digest);

/* Bytes [offset, offset + length) of the blob, which are in it. */
void blob_copy(const struct blobs *blobs,
               struct blob_name name,
               size_t offset,
               size_t length,
               uint8_t *to);
/* Is that what the blob has from offset on? False also when it goes beyond the end. */
bool blob_matches(const struct blobs *blobs,
                  struct blob_name name,
                  size_t offset,
                  struct bytes piece);

/* SplitMix64: a random number a call, and a well-mixed hash of one word. */
uint64_t random_next(uint64_t *state);

#endif
