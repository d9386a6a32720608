/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA256_CTX is a plain struct, deprecated in favour of EVP: copying one that has hashed the noise up to a blob's last bytes
 * is a memcpy, where a copied EVP context is two allocations for each blob of a batch.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "bench/support/blobs.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "base/compiler.h"

struct blobs {
    struct blob_sizes sizes;
    uint8_t *noise;                    /* owned; as long as the largest, and up to 7 bytes more */
    SHA256_CTX hashed[BLOB_SIZES_MAX]; /* of each size: the noise without the tail */
};

void blob_sizes_fixed(struct blob_sizes *sizes, size_t bytes)
{
    sizes->count = 1;
    sizes->bytes[0] = bytes;
}

void blob_sizes_build(struct blob_sizes *sizes)
{
    /* Between them sizes grow exponentially; the last one makes the mean what it is. */
    static const struct {
        double quantile, bytes;
    } points[] = {{0, 64}, {0.5, 2832}, {0.9, 143000}, {0.99, 2670000}, {1, 4160000}};
    sizes->count = BLOB_SIZES_MAX;
    size_t above = 1;
    for (size_t i = 0; i < BLOB_SIZES_MAX; i++) {
        const double quantile = ((double)i + 0.5) / BLOB_SIZES_MAX;
        while (quantile > points[above].quantile)
            above++;
        const double share = (quantile - points[above - 1].quantile) /
                             (points[above].quantile - points[above - 1].quantile);
        sizes->bytes[i] = (size_t)(points[above - 1].bytes *
                                   pow(points[above].bytes / points[above - 1].bytes, share));
    }
}

uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static size_t tail_bytes(size_t size)
{
    return size < BLOB_TAIL_BYTES ? size : BLOB_TAIL_BYTES;
}

bool blobs_new(const struct blob_sizes *sizes,
               uint64_t seed,
               struct blobs **blobs_out,
               struct status *status)
{
    const size_t largest = sizes->bytes[sizes->count - 1];
    struct blobs *blobs = calloc(1, sizeof(*blobs));
    uint8_t *noise = malloc(largest + 8);
    if (blobs == NULL || noise == NULL) {
        free(blobs);
        free(noise);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a blob");
    }
    blobs->sizes = *sizes;
    blobs->noise = noise;
    for (size_t i = 0; i < largest; i += 8) {
        const uint64_t word = random_next(&seed);
        memcpy(noise + i, &word, sizeof(word));
    }
    SHA256_CTX running;
    size_t hashed = 0;
    ASSERT(SHA256_Init(&running) == 1);
    for (size_t i = 0; i < sizes->count; i++) {
        const size_t until = sizes->bytes[i] - tail_bytes(sizes->bytes[i]);
        ASSERT(SHA256_Update(&running, noise + hashed, until - hashed) == 1);
        hashed = until;
        blobs->hashed[i] = running;
    }
    *blobs_out = blobs;
    return true;
}

void blobs_free(struct blobs *blobs)
{
    if (blobs == NULL)
        return;
    free(blobs->noise);
    free(blobs);
}

static size_t size_index(const struct blobs *blobs, struct blob_name name)
{
    if (blobs->sizes.count == 1)
        return 0;
    uint64_t state = name.family ^ (name.number * UINT64_C(0xd6e8feb86659fd93));
    return (size_t)(random_next(&state) % blobs->sizes.count);
}

size_t blob_size(const struct blobs *blobs, struct blob_name name)
{
    return blobs->sizes.bytes[size_index(blobs, name)];
}

double blobs_mean_bytes(const struct blobs *blobs)
{
    double sum = 0;
    for (size_t i = 0; i < blobs->sizes.count; i++)
        sum += (double)blobs->sizes.bytes[i];
    return sum / (double)blobs->sizes.count;
}

size_t blobs_largest_bytes(const struct blobs *blobs)
{
    return blobs->sizes.bytes[blobs->sizes.count - 1];
}

static void make_tail(struct blob_name name, uint8_t tail[BLOB_TAIL_BYTES])
{
    memcpy(tail, &name.number, 8); /* first, so that small blobs differ too */
    memcpy(tail + 8, &name.family, 8);
}

void blob_digest(const struct blobs *blobs, struct blob_name name, struct digest *digest)
{
    const size_t index = size_index(blobs, name);
    const size_t size = blobs->sizes.bytes[index];
    uint8_t tail[BLOB_TAIL_BYTES];
    make_tail(name, tail);
    SHA256_CTX context = blobs->hashed[index];
    memset(digest, 0, sizeof(*digest));
    ASSERT(SHA256_Update(&context, tail, tail_bytes(size)) == 1);
    ASSERT(SHA256_Final(digest->hash, &context) == 1);
    digest->hash_length = SHA256_HASH_BYTES;
    digest->function = DIGEST_FUNCTION_SHA256;
    digest->size_bytes = (int64_t)size;
}

void blob_copy(const struct blobs *blobs,
               struct blob_name name,
               size_t offset,
               size_t length,
               uint8_t *to)
{
    const size_t size = blob_size(blobs, name);
    const size_t tail_start = size - tail_bytes(size);
    ASSERT(offset <= size && length <= size - offset);
    const size_t noise = offset >= tail_start           ? 0
                         : length < tail_start - offset ? length
                                                        : tail_start - offset;
    memcpy(to, blobs->noise + offset, noise);
    if (noise == length)
        return;
    uint8_t tail[BLOB_TAIL_BYTES];
    make_tail(name, tail);
    memcpy(to + noise, tail + (offset + noise - tail_start), length - noise);
}

bool blob_matches(const struct blobs *blobs,
                  struct blob_name name,
                  size_t offset,
                  struct bytes piece)
{
    const size_t size = blob_size(blobs, name);
    if (offset > size || piece.length > size - offset)
        return false;
    const size_t tail_start = size - tail_bytes(size);
    const size_t noise = offset >= tail_start                 ? 0
                         : piece.length < tail_start - offset ? piece.length
                                                              : tail_start - offset;
    if (noise > 0 && memcmp(piece.data, blobs->noise + offset, noise) != 0)
        return false;
    if (noise == piece.length)
        return true;
    uint8_t tail[BLOB_TAIL_BYTES];
    make_tail(name, tail);
    return memcmp(piece.data + noise, tail + (offset + noise - tail_start), piece.length - noise) ==
           0;
}
