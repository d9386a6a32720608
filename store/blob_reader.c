/* SPDX-License-Identifier: Apache-2.0 */
#include "store/blob_reader.h"

#include <inttypes.h>
#include <stdlib.h>

#include "store/find.h"
#include "store/record_read.h"

struct blob_reader {
    /* Set by blob_reader_open(), never changed. */
    struct store *store; /* borrowed */
    struct digest digest;
    struct place place;   /* of the BLOB or MANIFEST record */
    struct segment *home; /* pinned: holds place; NULL for the empty blob */
    uint8_t *manifest;    /* owned: the record's bytes; NULL for a blob of the small lane */
    const struct manifest_chunk *chunks; /* in manifest */
    size_t chunk_count;
    struct segment **pinned; /* owned; the segments of the chunks, each once */
    size_t pinned_count;
};

/* What a place in the index led to. */
enum found {
    FOUND,
    FOUND_OTHER, /* a record of another blob with our fingerprint */
    FOUND_GONE,  /* no segment: the entry was moved or forgotten after it was looked up */
};

/* Looks an entry up again when what it named has been evicted meanwhile. */
struct lookup {
    struct store *store;
    struct index_entry name;
    struct blob_key key;
    struct place place;
};

static void lookup_init(struct lookup *lookup, struct store *store, const struct index_entry *name);
static bool look_up(struct lookup *lookup);
static bool open_at(struct store *store,
                    const struct digest *digest,
                    struct place place,
                    struct blob_reader **reader,
                    enum found *found,
                    struct status *status);
static bool load_manifest(struct blob_reader *reader, enum found *found, struct status *status);
static bool check_manifest(const struct blob_reader *reader, struct status *status);
static bool pin_chunks(struct blob_reader *reader, enum found *found, struct status *status);
static bool pin_segment(struct blob_reader *reader,
                        uint64_t number,
                        enum found *found,
                        struct status *status);
static struct segment *find_pinned(const struct blob_reader *reader, uint64_t number);
static const struct manifest_chunk *find_chunk(const struct blob_reader *reader, uint64_t offset);
static struct segment *pin_home(struct store *store,
                                const struct index_entry *name,
                                struct place *place);
static bool read_blob_record(struct store *store,
                             struct segment *segment,
                             const struct digest *digest,
                             uint64_t offset,
                             uint8_t *buffer,
                             size_t capacity,
                             struct bytes *data,
                             bool *other,
                             struct status *status);
static bool read_chunk_record(const struct blob_reader *reader,
                              const struct manifest_chunk *chunk,
                              struct buffer *buffer,
                              struct bytes *payload,
                              struct status *status);
static bool read_record_alone(struct store *store,
                              struct segment *segment,
                              uint64_t offset,
                              uint64_t limit,
                              uint8_t **memory,
                              struct record_header *header,
                              struct bytes *payload,
                              struct status *status);
static bool header_names(const struct record_header *header, const struct digest *digest);
static void count_read(struct store *store, uint64_t bytes);
static bool count_damage(struct store *store, const struct digest *digest, struct status *status);

bool blob_reader_open(struct store *store,
                      const struct digest *digest,
                      struct blob_reader **reader,
                      struct status *status)
{
    *reader = NULL;
    const struct index_entry name = {.kind = RECORD_BLOB, .digest = *digest};
    struct lookup lookup;
    lookup_init(&lookup, store, &name);
    if (digest_is_empty_blob(digest))
        return blob_reader_open_at(store, digest, lookup.place, reader, status);
    enum found found = FOUND_GONE;
    while (found == FOUND_GONE && look_up(&lookup)) {
        if (!open_at(store, digest, lookup.place, reader, &found, status))
            return false;
    }
    return true;
}

static void lookup_init(struct lookup *lookup, struct store *store, const struct index_entry *name)
{
    *lookup = (struct lookup){
        .store = store,
        .name = *name,
        .key = blob_table_key(store->table, name->kind, &name->digest, name->instance)};
}

/*
 * False when it is not there. Called again after the last place led nowhere: an entry that still lies there names what is
 * gone for good, and is taken out.
 */
static bool look_up(struct lookup *lookup)
{
    const struct place last = lookup->place;
    struct blob_table *table = lookup->store->table;
    if (!store_find(lookup->store, &lookup->name, FIND_AND_TOUCH, &lookup->place))
        return false;
    if (place_pack(lookup->place) != place_pack(last))
        return true;
    if (blob_table_remove(table, lookup->key, last))
        metrics_add(lookup->store->metrics, METRIC_BLOBS_FORGOTTEN, 1);
    return false;
}

bool blob_reader_open_at(struct store *store,
                         const struct digest *digest,
                         struct place place,
                         struct blob_reader **reader,
                         struct status *status)
{
    enum found found;
    return open_at(store, digest, place, reader, &found, status);
}

static bool open_at(struct store *store,
                    const struct digest *digest,
                    struct place place,
                    struct blob_reader **reader,
                    enum found *found,
                    struct status *status)
{
    *reader = NULL;
    struct blob_reader *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a reader");
    opened->store = store;
    opened->digest = *digest;
    opened->place = place;
    *found = FOUND;
    bool ok = true;
    if (!digest_is_empty_blob(digest)) {
        opened->home = segment_set_pin(store->segments, place.segment);
        if (opened->home == NULL)
            *found = FOUND_GONE;
        else if ((uint64_t)digest->size_bytes > LIMIT_SMALL_BLOB_BYTES)
            ok = load_manifest(opened, found, status);
    }
    if (!ok || *found != FOUND) {
        blob_reader_free(opened);
        return ok || count_damage(store, digest, status);
    }
    *reader = opened;
    return true;
}

void blob_reader_free(struct blob_reader *reader)
{
    if (reader == NULL)
        return;
    for (size_t i = 0; i < reader->pinned_count; i++)
        segment_set_unpin(reader->store->segments, reader->pinned[i]);
    segment_set_unpin(reader->store->segments, reader->home);
    free(reader->pinned);
    free(reader->manifest);
    free(reader);
}

struct place blob_reader_place(const struct blob_reader *reader)
{
    return reader->place;
}

uint64_t blob_reader_size(const struct blob_reader *reader)
{
    return (uint64_t)reader->digest.size_bytes;
}

const struct digest *blob_reader_digest(const struct blob_reader *reader)
{
    return &reader->digest;
}

const struct manifest_chunk *blob_reader_chunks(const struct blob_reader *reader, size_t *count)
{
    *count = reader->chunk_count;
    return reader->chunks;
}

static bool load_manifest(struct blob_reader *reader, enum found *found, struct status *status)
{
    struct record_header header;
    struct bytes payload;
    if (!read_record_alone(reader->store, reader->home, reader->place.offset, LIMIT_MANIFEST_BYTES,
                           &reader->manifest, &header, &payload, status))
        return false;
    if (header.kind != RECORD_MANIFEST || !header_names(&header, &reader->digest)) {
        *found = FOUND_OTHER;
        return true;
    }
    reader->chunks = (const struct manifest_chunk *)(const void *)payload.data;
    reader->chunk_count = payload.length / MANIFEST_CHUNK_BYTES;
    if (payload.length % MANIFEST_CHUNK_BYTES != 0)
        return status_fail(status, STATUS_DATA_LOSS,
                           "manifest in segment %" PRIu64 " at %" PRIu64 " has %zu bytes",
                           reader->place.segment, reader->place.offset, payload.length);
    if (!check_manifest(reader, status) || !pin_chunks(reader, found, status))
        return false;
    /* An eviction changes the entry before a segment goes. One that still names this record has lost its chunks. */
    struct blob_use use;
    if (*found == FOUND_GONE &&
        blob_table_look(reader->store->table,
                        blob_table_blob_key(reader->store->table, &reader->digest), &use) &&
        place_pack(use.place) == place_pack(reader->place))
        return status_fail(status, STATUS_DATA_LOSS,
                           "manifest in segment %" PRIu64 " at %" PRIu64
                           " names chunks in a segment that is gone",
                           reader->place.segment, reader->place.offset);
    return true;
}

/* The chunks cover the blob, in order, without a gap. */
static bool check_manifest(const struct blob_reader *reader, struct status *status)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < reader->chunk_count; i++) {
        const struct manifest_chunk *chunk = &reader->chunks[i];
        if (chunk->blob_offset != covered || chunk->payload_bytes == 0 ||
            chunk->payload_bytes > LIMIT_CHUNK_BYTES)
            return status_fail(status, STATUS_DATA_LOSS,
                               "manifest in segment %" PRIu64 " at %" PRIu64 ": chunk %zu is wrong",
                               reader->place.segment, reader->place.offset, i);
        covered += chunk->payload_bytes;
    }
    if (covered != (uint64_t)reader->digest.size_bytes)
        return status_fail(
            status, STATUS_DATA_LOSS,
            "manifest in segment %" PRIu64 " at %" PRIu64 " covers %" PRIu64 " bytes of %" PRId64,
            reader->place.segment, reader->place.offset, covered, reader->digest.size_bytes);
    return true;
}

static bool pin_chunks(struct blob_reader *reader, enum found *found, struct status *status)
{
    uint64_t last = 0;
    for (size_t i = 0; i < reader->chunk_count && *found == FOUND; i++) {
        const uint64_t number = place_unpack(reader->chunks[i].place).segment;
        if (number == last || find_pinned(reader, number) != NULL)
            continue;
        if (!pin_segment(reader, number, found, status))
            return false;
        last = number;
    }
    return true;
}

static bool pin_segment(struct blob_reader *reader,
                        uint64_t number,
                        enum found *found,
                        struct status *status)
{
    struct segment **grown =
        realloc(reader->pinned, (reader->pinned_count + 1) * sizeof(struct segment *));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a reader's pins");
    reader->pinned = grown;
    struct segment *segment = segment_set_pin(reader->store->segments, number);
    if (segment == NULL)
        *found = FOUND_GONE;
    else
        reader->pinned[reader->pinned_count++] = segment;
    return true;
}

static struct segment *find_pinned(const struct blob_reader *reader, uint64_t number)
{
    for (size_t i = reader->pinned_count; i > 0; i--) {
        if (reader->pinned[i - 1]->number == number)
            return reader->pinned[i - 1];
    }
    return NULL;
}

bool blob_reader_read(struct blob_reader *reader,
                      uint64_t offset,
                      struct buffer *buffer,
                      struct bytes *data,
                      struct status *status)
{
    ASSERT(offset < blob_reader_size(reader));
    struct bytes whole;
    uint64_t begins = 0;
    bool other = false;
    bool ok = true;
    if (reader->manifest == NULL) {
        ok = read_blob_record(reader->store, reader->home, &reader->digest, reader->place.offset,
                              buffer->data, buffer->capacity_bytes, &whole, &other, status);
        if (ok && other)
            return status_fail(status, STATUS_NOT_FOUND, "another blob lies there");
    } else {
        const struct manifest_chunk *chunk = find_chunk(reader, offset);
        begins = chunk->blob_offset;
        ok = read_chunk_record(reader, chunk, buffer, &whole, status);
    }
    if (!ok)
        return count_damage(reader->store, &reader->digest, status);
    const size_t skip = (size_t)(offset - begins);
    *data = bytes_of(whole.data + skip, whole.length - skip);
    count_read(reader->store, data->length);
    return true;
}

static const struct manifest_chunk *find_chunk(const struct blob_reader *reader, uint64_t offset)
{
    size_t low = 0;
    size_t high = reader->chunk_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (reader->chunks[middle].blob_offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return &reader->chunks[low];
}

static bool read_chunk_record(const struct blob_reader *reader,
                              const struct manifest_chunk *chunk,
                              struct buffer *buffer,
                              struct bytes *payload,
                              struct status *status)
{
    const struct place place = place_unpack(chunk->place);
    struct record_header header;
    struct segment *segment = find_pinned(reader, place.segment);
    ASSERT(segment != NULL); /* load_manifest() pinned them all */
    if (!record_read(reader->store, segment, place.offset,
                     RECORD_HEADER_BYTES + chunk->payload_bytes, buffer->data,
                     buffer->capacity_bytes, &header, payload, status))
        return false;
    if (header.kind != RECORD_CHUNK || !header_names(&header, &reader->digest) ||
        header.blob_offset != chunk->blob_offset || header.payload_bytes != chunk->payload_bytes ||
        header.payload_crc32c != chunk->payload_crc32c)
        return status_fail(status, STATUS_DATA_LOSS,
                           "chunk in segment %" PRIu64 " at %" PRIu64
                           " is not the one that the manifest names",
                           place.segment, place.offset);
    return true;
}

/* *other: a sound record, but of another blob that shares our fingerprint. */
static bool read_blob_record(struct store *store,
                             struct segment *segment,
                             const struct digest *digest,
                             uint64_t offset,
                             uint8_t *buffer,
                             size_t capacity,
                             struct bytes *data,
                             bool *other,
                             struct status *status)
{
    ASSERT(segment != NULL);
    struct record_header header;
    if (!record_read(store, segment, offset, RECORD_HEADER_BYTES + (uint64_t)digest->size_bytes,
                     buffer, capacity, &header, data, status))
        return false;
    *other = header.kind != RECORD_BLOB || !header_names(&header, digest);
    if (!*other && data->length != (uint64_t)digest->size_bytes)
        return status_fail(status, STATUS_DATA_LOSS,
                           "blob in segment %" PRIu64 " at %" PRIu64 " has %zu bytes",
                           segment->number, offset, data->length);
    return true;
}

bool blob_read_small(struct store *store,
                     const struct digest *digest,
                     uint8_t *buffer,
                     size_t capacity,
                     struct bytes *data,
                     bool *found,
                     struct place *place,
                     struct status *status)
{
    ASSERT((uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES);
    *found = digest_is_empty_blob(digest);
    *data = bytes_of(buffer, 0);
    if (*found)
        return true;
    const struct index_entry name = {.kind = RECORD_BLOB, .digest = *digest};
    struct segment *segment = pin_home(store, &name, place);
    if (segment == NULL)
        return true;
    bool other = false;
    const bool ok = read_blob_record(store, segment, digest, place->offset, buffer, capacity, data,
                                     &other, status);
    segment_set_unpin(store->segments, segment);
    if (!ok)
        return count_damage(store, digest, status);
    *found = !other;
    if (*found)
        count_read(store, data->length);
    return true;
}

/* Pins the segment that an entry lies in; NULL when there is no such entry. */
static struct segment *pin_home(struct store *store,
                                const struct index_entry *name,
                                struct place *place)
{
    struct lookup lookup;
    lookup_init(&lookup, store, name);
    struct segment *segment = NULL;
    while (segment == NULL && look_up(&lookup)) {
        *place = lookup.place;
        segment = segment_set_pin(store->segments, place->segment);
    }
    return segment;
}

bool blob_read_whole(struct store *store,
                     const struct digest *digest,
                     uint64_t limit,
                     uint8_t **data,
                     struct place *place,
                     struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    *data = NULL;
    const uint64_t size = (uint64_t)digest->size_bytes;
    if (size > limit)
        return status_fail(status, STATUS_OUT_OF_RANGE, "blob %s is larger than %" PRIu64 " bytes",
                           digest_text(digest, text), limit);
    struct blob_reader *reader = NULL;
    /* First, for whoever has to forget it: a blob that is damaged cannot be opened. */
    if (!digest_is_empty_blob(digest))
        store_find_blob(store, digest, FIND_ONLY, place);
    if (!blob_reader_open(store, digest, &reader, status))
        return false;
    if (reader == NULL)
        return true;
    *place = reader->place;
    /* A record at a time, through memory of our own: a caller of this may hold no pooled buffer for long. */
    uint8_t *whole = malloc((size_t)size + 1);
    struct buffer scratch = {.capacity_bytes = (size_t)(size <= LIMIT_SMALL_BLOB_BYTES
                                                            ? record_stored_bytes(size)
                                                            : LIMIT_POOL_BUFFER_BYTES)};
    scratch.data = malloc(scratch.capacity_bytes);
    bool ok = whole != NULL && scratch.data != NULL;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for blob %s",
                         digest_text(digest, text));
    for (uint64_t offset = 0; ok && offset < size;) {
        struct bytes piece;
        ok = blob_reader_read(reader, offset, &scratch, &piece, status);
        if (ok) {
            memcpy(whole + offset, piece.data, piece.length);
            offset += piece.length;
        }
    }
    free(scratch.data);
    blob_reader_free(reader);
    if (!ok) {
        free(whole);
        return false;
    }
    *data = whole;
    return true;
}

bool action_read(struct store *store,
                 const struct digest *action,
                 struct bytes instance,
                 uint8_t **memory,
                 struct action_record *record,
                 struct place *place,
                 struct status *status)
{
    *memory = NULL;
    const struct index_entry name = {
        .kind = RECORD_ACTION, .digest = *action, .instance = instance};
    struct segment *segment = pin_home(store, &name, place);
    if (segment == NULL)
        return true;
    struct record_header header;
    struct bytes payload;
    uint8_t *read = NULL;
    bool ok = read_record_alone(store, segment, place->offset,
                                LIMIT_ACTION_RESULT_BYTES + 2 * (uint64_t)UINT16_MAX +
                                    ACTION_RECORD_FIXED_BYTES,
                                &read, &header, &payload, status);
    segment_set_unpin(store->segments, segment);
    const bool ours =
        ok && header.kind == RECORD_ACTION && header.digest_function == action->function &&
        memcmp(header.digest, action->hash, sizeof(header.digest)) == 0 &&
        (action->size_bytes == INDEX_ANY_SIZE || header.blob_size == (uint64_t)action->size_bytes);
    ok = ok && (!ours || action_record_decode(payload, record, status));
    if (!ok) {
        free(read);
        return count_damage(store, action, status);
    }
    if (!ours || !bytes_equal(record->instance, instance)) {
        free(read);
        return true;
    }
    *memory = read;
    return true;
}

/* A record of unknown length, in memory of its own. */
static bool read_record_alone(struct store *store,
                              struct segment *segment,
                              uint64_t offset,
                              uint64_t limit,
                              uint8_t **memory,
                              struct record_header *header,
                              struct bytes *payload,
                              struct status *status)
{
    enum { FIRST_READ_BYTES = 4096 };
    size_t capacity = FIRST_READ_BYTES;
    uint8_t *read = malloc(capacity);
    bool ok = false;
    for (;;) {
        if (read == NULL) {
            status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a record");
            break;
        }
        ok = record_read(store, segment, offset, capacity, read, capacity, header, payload, status);
        if (ok || status->code != STATUS_RESOURCE_EXHAUSTED)
            break;
        const uint64_t whole = RECORD_HEADER_BYTES + header->payload_bytes;
        if (header->payload_bytes > limit || whole <= capacity)
            break;
        capacity = (size_t)whole;
        free(read);
        read = malloc(capacity);
    }
    if (!ok) {
        free(read);
        return false;
    }
    *memory = read;
    return true;
}

static bool header_names(const struct record_header *header, const struct digest *digest)
{
    return header->digest_function == digest->function &&
           header->digest_bytes == digest->hash_length &&
           header->blob_size == (uint64_t)digest->size_bytes &&
           memcmp(header->digest, digest->hash, sizeof(header->digest)) == 0;
}

static void count_read(struct store *store, uint64_t bytes)
{
    metrics_add(store->metrics, METRIC_BLOBS_READ, 1);
    metrics_add(store->metrics, METRIC_BLOB_BYTES_READ, (int64_t)bytes);
}

/* Always false: for the end of a failing read. */
static bool count_damage(struct store *store, const struct digest *digest, struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if (status->code == STATUS_DATA_LOSS)
        metrics_add(store->metrics, METRIC_RECORDS_DAMAGED, 1);
    status_prefix(status, "%s", digest_text(digest, text));
    return false;
}
