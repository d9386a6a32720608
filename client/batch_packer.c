/* SPDX-License-Identifier: Apache-2.0 */
#include "client/batch_packer.h"

#include <stdlib.h>

#include "client/digest_map.h"

struct batch_packer {
    struct batch_packer_limits limits;
    struct digest_map packed; /* of this batch: index + 1 in items */
    void **items;             /* owned; of this batch */
    size_t count, capacity;
    uint64_t bytes; /* of this batch, with overhead */
};

static bool reserve_item(struct batch_packer *packer, struct status *status);

struct batch_packer_limits batch_packer_limits_default(void)
{
    return (struct batch_packer_limits){
        .batch_bytes_max = BATCH_PACKER_BATCH_BYTES,
        .entry_overhead_bytes = BATCH_PACKER_ENTRY_OVERHEAD_BYTES,
        .batched_blob_bytes_max = BATCH_PACKER_BATCHED_BLOB_BYTES,
    };
}

bool batch_packer_limits_lower(struct batch_packer_limits *limits,
                               int64_t announced_batch_bytes_max)
{
    if (announced_batch_bytes_max <= 0 ||
        (uint64_t)announced_batch_bytes_max >= limits->batch_bytes_max)
        return true;
    limits->batch_bytes_max = (uint64_t)announced_batch_bytes_max;
    if (limits->batch_bytes_max <= limits->entry_overhead_bytes)
        return false;
    const uint64_t room = limits->batch_bytes_max - limits->entry_overhead_bytes;
    if (limits->batched_blob_bytes_max > room)
        limits->batched_blob_bytes_max = room;
    return true;
}

bool batch_packer_new(const struct batch_packer_limits *limits,
                      struct batch_packer **packer_out,
                      struct status *status)
{
    if (limits->entry_overhead_bytes == 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "entries of a batch have no overhead of 0 bytes");
    if (limits->batch_bytes_max < limits->entry_overhead_bytes ||
        limits->batched_blob_bytes_max > limits->batch_bytes_max - limits->entry_overhead_bytes)
        return status_fail(
            status, STATUS_INVALID_ARGUMENT,
            "blobs of %llu bytes with %llu of overhead do not fit into batches of %llu",
            (unsigned long long)limits->batched_blob_bytes_max,
            (unsigned long long)limits->entry_overhead_bytes,
            (unsigned long long)limits->batch_bytes_max);
    struct batch_packer *packer = calloc(1, sizeof(*packer));
    if (packer == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch");
    packer->limits = *limits;
    *packer_out = packer;
    return true;
}

void batch_packer_free(struct batch_packer *packer)
{
    if (packer == NULL)
        return;
    digest_map_destroy(&packer->packed);
    free(packer->items);
    free(packer);
}

bool batch_packer_add(struct batch_packer *packer,
                      const struct digest *digest,
                      void *item,
                      enum batch_verdict *verdict,
                      struct status *status)
{
    ASSERT(digest->size_bytes >= 0);
    const uint64_t size_bytes = (uint64_t)digest->size_bytes;
    if (size_bytes > packer->limits.batched_blob_bytes_max) {
        *verdict = BATCH_TOO_LARGE;
        return true;
    }
    const uint64_t entry_bytes = size_bytes + packer->limits.entry_overhead_bytes;
    if (digest_map_find(&packer->packed, digest) != NULL) {
        *verdict = BATCH_DUPLICATE;
        return true;
    }
    if (entry_bytes > packer->limits.batch_bytes_max - packer->bytes) {
        ASSERT(packer->count > 0); /* batch_packer_new() saw to it that one fits */
        *verdict = BATCH_FULL;
        return true;
    }
    bool is_new;
    if (!reserve_item(packer, status))
        return false;
    size_t *number = digest_map_insert(&packer->packed, digest, &is_new);
    if (number == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch");
    ASSERT(is_new);
    *number = packer->count + 1;
    packer->items[packer->count++] = item;
    packer->bytes += entry_bytes;
    *verdict = BATCH_ADDED;
    return true;
}

static bool reserve_item(struct batch_packer *packer, struct status *status)
{
    if (packer->count < packer->capacity)
        return true;
    const size_t capacity = packer->capacity == 0 ? 64 : packer->capacity * 2;
    void **items = realloc(packer->items, capacity * sizeof(*items));
    if (items == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch");
    packer->items = items;
    packer->capacity = capacity;
    return true;
}

size_t batch_packer_count(const struct batch_packer *packer)
{
    return packer->count;
}

void *batch_packer_find(const struct batch_packer *packer, const struct digest *digest)
{
    const size_t *number = digest_map_find(&packer->packed, digest);
    return number != NULL ? packer->items[*number - 1] : NULL;
}

void **batch_packer_take(struct batch_packer *packer, size_t *count)
{
    void **items = packer->count > 0 ? packer->items : NULL;
    *count = packer->count;
    if (items != NULL) {
        packer->items = NULL;
        packer->capacity = 0;
    }
    packer->count = 0;
    packer->bytes = 0;
    digest_map_clear(&packer->packed);
    return items;
}
