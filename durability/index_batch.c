/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/index_batch.h"

#include <stdlib.h>

bool index_batch_init(struct index_batch *batch, struct status *status)
{
    batch->count = 0;
    batch->entries = calloc(INDEX_BATCH_ENTRIES, sizeof(*batch->entries));
    return batch->entries != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch of index entries");
}

void index_batch_destroy(struct index_batch *batch)
{
    index_batch_clear(batch);
    free(batch->entries);
    batch->entries = NULL;
}

bool index_batch_add(struct index_batch *batch,
                     const struct index_entry *entry,
                     struct status *status)
{
    ASSERT(batch->count < INDEX_BATCH_ENTRIES);
    uint8_t *instance = malloc(entry->instance.length + 1);
    if (instance == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an index entry");
    if (entry->instance.length > 0)
        memcpy(instance, entry->instance.data, entry->instance.length);
    struct index_entry *copy = &batch->entries[batch->count++];
    *copy = *entry;
    copy->instance = bytes_of(instance, entry->instance.length);
    return true;
}

bool index_batch_is_full(const struct index_batch *batch)
{
    return batch->count == INDEX_BATCH_ENTRIES;
}

void index_batch_clear(struct index_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        free((void *)(uintptr_t)batch->entries[i].instance.data);
    batch->count = 0;
}
