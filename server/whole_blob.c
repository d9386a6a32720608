/* SPDX-License-Identifier: Apache-2.0 */
#include "server/whole_blob.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/blob_reader.h"

static bool read_small(struct whole_blob *blob,
                       struct store *store,
                       const struct digest *digest,
                       struct bytes *data,
                       bool *found,
                       struct place *place,
                       struct status *status);
static bool read_large(struct whole_blob *blob,
                       struct store *store,
                       const struct digest *digest,
                       struct bytes *data,
                       bool *found,
                       struct place *place,
                       struct status *status);
static void log_damaged(const char *event,
                        const struct digest *digest,
                        struct place place,
                        const struct status *why);

bool whole_blob_read(struct whole_blob *blob,
                     struct durability *durability,
                     const struct digest *digest,
                     uint64_t limit_bytes,
                     struct bytes *data,
                     bool *found,
                     struct status *status)
{
    *data = bytes_of(NULL, 0);
    *found = digest_is_empty_blob(digest);
    if (*found)
        return true;
    if ((uint64_t)digest->size_bytes > limit_bytes) {
        char text[DIGEST_TEXT_BYTES_MAX];
        return status_fail(status, STATUS_OUT_OF_RANGE, "blob %s: larger than %" PRIu64 " bytes",
                           digest_text(digest, text), limit_bytes);
    }

    struct store *const store = durability_store(durability);
    struct place place = {0};
    struct status why = {0};
    const bool small = (uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES;
    if (small ? read_small(blob, store, digest, data, found, &place, &why)
              : read_large(blob, store, digest, data, found, &place, &why))
        return true;
    *found = false;
    if (why.code != STATUS_DATA_LOSS) {
        *status = why;
        return false;
    }
    damaged_blob_forget(durability, digest, place, &why);
    return true;
}

static bool read_small(struct whole_blob *blob,
                       struct store *store,
                       const struct digest *digest,
                       struct bytes *data,
                       bool *found,
                       struct place *place,
                       struct status *status)
{
    const size_t needed = record_stored_bytes((uint64_t)digest->size_bytes);
    if (needed > blob->capacity_bytes) {
        size_t capacity = blob->capacity_bytes * 2 > needed ? blob->capacity_bytes * 2 : needed;
        free(blob->memory);
        blob->memory = malloc(capacity);
        if (blob->memory == NULL)
            capacity = 0;
        blob->capacity_bytes = capacity;
        if (blob->memory == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for a blob of %" PRId64 " bytes", digest->size_bytes);
    }
    return blob_read_small(store, digest, blob->memory, blob->capacity_bytes, data, found, place,
                           status);
}

static bool read_large(struct whole_blob *blob,
                       struct store *store,
                       const struct digest *digest,
                       struct bytes *data,
                       bool *found,
                       struct place *place,
                       struct status *status)
{
    uint8_t *memory = NULL;
    if (!blob_read_whole(store, digest, (uint64_t)digest->size_bytes, &memory, place, status))
        return false;
    if (memory == NULL)
        return true;
    free(blob->memory);
    blob->memory = memory;
    blob->capacity_bytes = (size_t)digest->size_bytes;
    *data = bytes_of(memory, (size_t)digest->size_bytes);
    *found = true;
    return true;
}

void whole_blob_free(struct whole_blob *blob)
{
    free(blob->memory);
    *blob = (struct whole_blob){0};
}

void damaged_blob_forget(struct durability *durability,
                         const struct digest *digest,
                         struct place place,
                         const struct status *why)
{
    log_damaged("blob_damaged", digest, place, why);
    if (place.segment == 0)
        return; /* it has gone out of the index meanwhile */
    const bool small = (uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES;
    durability_forget(durability, digest, NULL, place, small ? RECORD_BLOB : RECORD_MANIFEST,
                      FORGET_DAMAGED);
}

void damaged_action_forget(struct durability *durability,
                           const struct digest *action,
                           struct bytes instance,
                           struct place place,
                           const struct status *why)
{
    log_damaged("action_result_damaged", action, place, why);
    durability_forget(durability, action, &instance, place, RECORD_ACTION, FORGET_DAMAGED);
}

static void log_damaged(const char *event,
                        const struct digest *digest,
                        struct place place,
                        const struct status *why)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    struct log_text reason;
    log_event(LOG_LEVEL_WARN, event, "digest=%s segment=%" PRIu64 " at_bytes=%" PRIu64 " reason=%s",
              digest_text(digest, text), place.segment, place.offset,
              log_quote(&reason, why->message));
}
