/* SPDX-License-Identifier: Apache-2.0 */
#include "store/find.h"

#include <stdlib.h>

#include "base/log.h"
#include "store/manifest.h"
#include "store/use_file.h"

static bool has_chunks(struct store *store,
                       struct segment *segment,
                       const struct index_entry *entry);

bool store_find_blob(struct store *store,
                     const struct digest *digest,
                     enum find how,
                     struct place *place)
{
    const struct index_entry name = {.kind = RECORD_BLOB, .digest = *digest};
    return store_find(store, &name, how, place);
}

static bool size_at(struct store *store, struct place place, unsigned kinds, struct digest *digest);

bool store_find_size(struct store *store, struct digest *digest)
{
    enum { PLACES_MAX = 4 };
    struct place places[PLACES_MAX];
    struct index_entry name = {.kind = RECORD_BLOB, .digest = *digest};
    struct index_entry found;
    struct digest empty;
    digest_of_bytes((enum digest_function)digest->function, bytes_of(NULL, 0), &empty);
    if (memcmp(empty.hash, digest->hash, sizeof(empty.hash)) == 0) {
        digest->size_bytes = 0;
        return true;
    }
    for (;;) {
        const bool loading = blob_table_is_loading(store->table);
        const size_t count = blob_table_places_of_hash(store->table, digest, places, PLACES_MAX);
        for (size_t i = 0; i < count; i++)
            if (size_at(store, places[i], 1U << RECORD_BLOB | 1U << RECORD_MANIFEST, digest))
                return true;
        if (!loading)
            return false;
        name.digest.size_bytes = INDEX_ANY_SIZE;
        switch (cold_index_find(&store->cold, &name, &found)) {
        case COLD_FOUND:
            digest->size_bytes = found.digest.size_bytes;
            return true;
        case COLD_ABSENT:
            return false;
        case COLD_UNKNOWN:
            break;
        }
        if (!cold_index_await(&store->cold) && blob_table_is_loading(store->table))
            return false;
    }
}

/* kinds: a bit of each that will do. */
static bool size_at(struct store *store, struct place place, unsigned kinds, struct digest *digest)
{
    struct segment *segment = segment_set_pin(store->segments, place.segment);
    if (segment == NULL)
        return false;
    uint8_t memory[RECORD_HEADER_BYTES];
    struct record_header header = {0};
    struct bytes payload;
    struct status ignored;
    /* A payload does not fit; the header has been checked all the same when that is said. */
    const bool read = segment_read_record(segment, place.offset, sizeof(memory), memory,
                                          sizeof(memory), &header, &payload, &ignored) ||
                      (ignored.code == STATUS_RESOURCE_EXHAUSTED && header.payload_bytes > 0);
    segment_set_unpin(store->segments, segment);
    if (!read || (kinds >> header.kind & 1) == 0 || header.digest_function != digest->function ||
        memcmp(header.digest, digest->hash, sizeof(header.digest)) != 0)
        return false;
    digest->size_bytes = (int64_t)header.blob_size;
    return true;
}

bool store_find_action(struct store *store,
                       const struct digest *action,
                       struct bytes instance,
                       enum find how,
                       struct place *place)
{
    const struct index_entry name = {
        .kind = RECORD_ACTION, .digest = *action, .instance = instance};
    return store_find(store, &name, how, place);
}

bool store_find_action_size(struct store *store, struct digest *action, struct bytes instance)
{
    struct digest any = *action;
    struct place place;
    any.size_bytes = INDEX_ANY_SIZE;
    return store_find_action(store, &any, instance, FIND_ONLY, &place) &&
           size_at(store, place, 1U << RECORD_ACTION, action);
}

bool store_find(struct store *store,
                const struct index_entry *name,
                enum find how,
                struct place *place)
{
    const struct blob_key key =
        blob_table_key(store->table, name->kind, &name->digest, name->instance);
    const bool touch = how == FIND_AND_TOUCH;
    if (blob_table_get(store->table, key, touch, place))
        return true;
    /* Where the index on disk does not say, the end of the load does. */
    while (blob_table_may_come(store->table, key) && !store_bring(store, key, name)) {
        if (!cold_index_await(&store->cold))
            break; /* it is over by now, or it has failed: memory has what there is */
    }
    return blob_table_get(store->table, key, touch, place);
}

/* Whoever changes the entry meanwhile wins: blob_table_load() does nothing then. */
bool store_bring(struct store *store, struct blob_key key, const struct index_entry *name)
{
    struct index_entry found;
    struct status status;
    struct log_text text;
    switch (cold_index_find(&store->cold, name, &found)) {
    case COLD_FOUND:
        if (store_look_at(store, &found) == RECORD_THERE &&
            !blob_table_load(store->table, key, found.place, &status))
            log_event(LOG_LEVEL_WARN, "entry_not_loaded", "reason=%s",
                      log_quote(&text, status.message));
        return true;
    case COLD_ABSENT:
        return true;
    case COLD_UNKNOWN:
        break;
    }
    return false;
}

void store_recall_use(struct store *store, struct blob_key key, struct place place)
{
    uint32_t idle_minutes = 0;
    if (store->uses != NULL && use_file_find(store->uses, place, &idle_minutes))
        blob_table_set_used(store->table, key, place, idle_minutes);
}

enum record_state store_look_at(struct store *store, const struct index_entry *entry)
{
    struct segment *segment = segment_set_pin(store->segments, entry->place.segment);
    if (segment == NULL)
        return RECORD_EVICTED;
    const bool there =
        entry->place.offset + RECORD_HEADER_BYTES + entry->payload_bytes <= segment->file_bytes &&
        has_chunks(store, segment, entry);
    segment_set_unpin(store->segments, segment);
    return there ? RECORD_THERE : RECORD_LOST;
}

bool store_load(struct store *store,
                const struct index_entry *entry,
                enum record_state *state,
                struct status *status)
{
    const struct blob_key key =
        blob_table_key(store->table, entry->kind, &entry->digest, entry->instance);
    *state = store_look_at(store, entry);
    if (*state != RECORD_THERE)
        return true;
    if (!blob_table_load(store->table, key, entry->place, status))
        return false;
    store_recall_use(store, key, entry->place);
    return true;
}

/*
 * A blob whose MANIFEST is in the oldest segment may have chunks in one before, and that one may not have been evicted: then a
 * FORGET would have taken the entry out of the index.
 */
static bool has_chunks(struct store *store,
                       struct segment *segment,
                       const struct index_entry *entry)
{
    if (entry->kind != RECORD_MANIFEST ||
        (!store->chunks_lost && entry->place.segment != store->oldest_large))
        return true;
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)entry->payload_bytes;
    uint8_t *memory = malloc(capacity);
    struct record_header header;
    struct bytes payload;
    struct status ignored;
    const bool there = memory != NULL &&
                       segment_read_record(segment, entry->place.offset, capacity, memory, capacity,
                                           &header, &payload, &ignored) &&
                       manifest_is_complete(store->segments, payload);
    free(memory);
    return there;
}
