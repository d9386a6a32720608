/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of index entries that are written to the index on disk together. Owns the copies' instance names. */
#ifndef VARVE_DURABILITY_INDEX_BATCH_H
#define VARVE_DURABILITY_INDEX_BATCH_H

#include "store/index.h"

enum { INDEX_BATCH_ENTRIES = 4096 };

struct index_batch {
    struct index_entry *entries; /* owned */
    size_t count;                /* at most INDEX_BATCH_ENTRIES */
};

MUST_CHECK bool index_batch_init(struct index_batch *batch, struct status *status);
void index_batch_destroy(struct index_batch *batch);

/* Asserts that it is not full. */
MUST_CHECK bool index_batch_add(struct index_batch *batch,
                                const struct index_entry *entry,
                                struct status *status);
bool index_batch_is_full(const struct index_batch *batch);
void index_batch_clear(struct index_batch *batch);

#endif
