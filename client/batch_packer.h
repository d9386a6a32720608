/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which blobs travel together in one BatchUpdateBlobs or BatchReadBlobs, and which are
 * streamed. Every sender packs by it.
 *
 * An entry counts as its data and a constant overhead, which is above what any encoding of digest,
 * keys and status takes: a batch that is full by this count is below the receiver's limit however it
 * counts, and each entry is looked at once, whatever has been packed before. A blob above the
 * threshold is streamed. A digest is in a batch once.
 */
#ifndef VARVE_CLIENT_BATCH_PACKER_H
#define VARVE_CLIENT_BATCH_PACKER_H

#include "base/digest.h"

#define BATCH_PACKER_BATCH_BYTES (UINT64_C(3) << 20) /* receivers take 4 MiB */
#define BATCH_PACKER_ENTRY_OVERHEAD_BYTES UINT64_C(256)
#define BATCH_PACKER_BATCHED_BLOB_BYTES (UINT64_C(128) << 10)

struct batch_packer_limits {
    uint64_t batch_bytes_max;        /* of all entries with their overhead */
    uint64_t entry_overhead_bytes;   /* above 0 */
    uint64_t batched_blob_bytes_max; /* larger blobs are streamed */
};

struct batch_packer_limits batch_packer_limits_default(void);

/*
 * Lowers the limits to what a server announced (0: no limit of its own). False when batches are of
 * no use with it: it takes less than one small entry.
 */
bool batch_packer_limits_lower(struct batch_packer_limits *limits,
                               int64_t announced_batch_bytes_max);

struct batch_packer;

/*
 * Errors: INVALID_ARGUMENT, with the numbers, for limits that cannot work: a blob at the threshold
 * does not fit into an empty batch. RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool batch_packer_new(const struct batch_packer_limits *limits,
                                 struct batch_packer **packer,
                                 struct status *status);
void batch_packer_free(struct batch_packer *packer);

enum batch_verdict {
    BATCH_ADDED,
    BATCH_FULL,      /* nothing has changed: take the batch, then add this one again */
    BATCH_TOO_LARGE, /* stream it */
    BATCH_DUPLICATE, /* is in this batch already: batch_packer_find() */
};

/* item: what the caller wants back with the batch; borrowed. */
MUST_CHECK bool batch_packer_add(struct batch_packer *packer,
                                 const struct digest *digest,
                                 void *item,
                                 enum batch_verdict *verdict,
                                 struct status *status);

size_t batch_packer_count(const struct batch_packer *packer);

/* The item that this batch has for the digest, or NULL. */
void *batch_packer_find(const struct batch_packer *packer, const struct digest *digest);

/*
 * Hands the batch over: its items in the order in which they were added, freed by the caller with
 * free(); NULL when the batch is empty. The packer goes on with an empty batch.
 */
void **batch_packer_take(struct batch_packer *packer, size_t *count);

#endif
