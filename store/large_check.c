/* SPDX-License-Identifier: Apache-2.0 */
#include "store/large_check.h"

#include <stdlib.h>

#include "store/manifest.h"

/* Blobs whose chunks lie between each other: those of uploads at one time. */
enum { BLOBS_MAX = 8 };

/* A blob that has been met from its first chunk on. */
struct large_blob {
    struct digest digest;
    struct place manifest;
    uint8_t *memory; /* owned: the MANIFEST's record; NULL: the slot is free */
    struct bytes chunks;
    size_t count, next;    /* chunks that there are, and that came by */
    struct hasher *hasher; /* owned */
    uint64_t used;         /* when a chunk came by last */
};

struct large_check {
    struct store *store; /* borrowed */
    struct large_blob blobs[BLOBS_MAX];
    uint64_t clock;
};

static struct large_blob *find(struct large_check *check, const struct digest *digest);
static struct large_blob *begin(struct large_check *check, const struct digest *digest);
static void release(struct large_blob *blob);

bool large_check_new(struct store *store, struct large_check **check, struct status *status)
{
    struct large_check *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to check large blobs");
    made->store = store;
    *check = made;
    return true;
}

void large_check_free(struct large_check *check)
{
    if (check == NULL)
        return;
    for (size_t i = 0; i < BLOBS_MAX; i++)
        release(&check->blobs[i]);
    free(check);
}

bool large_check_chunk(struct large_check *check,
                       const struct record_header *header,
                       struct place place,
                       struct bytes payload,
                       struct place *manifest)
{
    struct digest digest;
    struct digest found;
    record_header_digest(header, &digest);
    if (!digest_function_supported(digest.function))
        return false;
    struct large_blob *blob = find(check, &digest);
    if (blob == NULL && header->blob_offset == 0)
        blob = begin(check, &digest);
    if (blob == NULL)
        return false;
    /* A chunk of another upload of it, one that never ended, is passed by. */
    const struct manifest_chunk chunk = manifest_chunk_at(blob->chunks, blob->next);
    if (chunk.place != place_pack(place))
        return false;
    hasher_update(blob->hasher, payload);
    blob->used = ++check->clock;
    if (++blob->next < blob->count)
        return false;
    hasher_finish(blob->hasher, &found);
    *manifest = blob->manifest;
    release(blob);
    return !digest_equal(&found, &digest);
}

static struct large_blob *find(struct large_check *check, const struct digest *digest)
{
    for (size_t i = 0; i < BLOBS_MAX; i++) {
        if (check->blobs[i].memory != NULL && digest_equal(&check->blobs[i].digest, digest))
            return &check->blobs[i];
    }
    return NULL;
}

/* NULL when the blob is not in the index, or its MANIFEST cannot be read: that is for others to say. */
static struct large_blob *begin(struct large_check *check, const struct digest *digest)
{
    struct large_blob *blob = &check->blobs[0];
    for (size_t i = 1; i < BLOBS_MAX && blob->memory != NULL; i++) {
        if (check->blobs[i].memory == NULL || check->blobs[i].used < blob->used)
            blob = &check->blobs[i];
    }
    struct large_blob begun = {.digest = *digest, .used = ++check->clock};
    struct status ignored;
    bool there = false;
    if (!manifest_read(check->store, digest, &begun.manifest, &begun.memory, &begun.chunks, &there,
                       &ignored) ||
        !there)
        return NULL;
    if (!manifest_count(begun.chunks, &begun.count) || begun.count == 0) {
        free(begun.memory);
        return NULL;
    }
    begun.hasher = hasher_new(digest->function);
    release(blob);
    *blob = begun;
    return blob;
}

static void release(struct large_blob *blob)
{
    hasher_free(blob->hasher);
    free(blob->memory);
    *blob = (struct large_blob){0};
}
