/* SPDX-License-Identifier: Apache-2.0 */
#include "store/manifest.h"

#include <stdlib.h>

#include "store/find.h"

static bool read_manifest(struct segment *segment,
                          uint64_t offset,
                          uint8_t **memory,
                          struct record_header *header,
                          struct bytes *payload,
                          struct status *status);

bool manifest_count(struct bytes payload, size_t *count)
{
    *count = payload.length / MANIFEST_CHUNK_BYTES;
    return payload.length % MANIFEST_CHUNK_BYTES == 0;
}

struct manifest_chunk manifest_chunk_at(struct bytes payload, size_t i)
{
    struct manifest_chunk chunk;
    ASSERT(i < payload.length / MANIFEST_CHUNK_BYTES);
    memcpy(&chunk, payload.data + i * MANIFEST_CHUNK_BYTES, sizeof(chunk));
    return chunk;
}

bool manifest_chunk_is_there(struct segment_set *segments, const struct manifest_chunk *chunk)
{
    const struct place place = place_unpack(chunk->place);
    struct segment *segment = segment_set_pin(segments, place.segment);
    const bool there =
        segment != NULL &&
        place.offset + RECORD_HEADER_BYTES + chunk->payload_bytes <= segment->file_bytes;
    segment_set_unpin(segments, segment);
    return there;
}

bool manifest_is_complete(struct segment_set *segments, struct bytes payload)
{
    size_t count = 0;
    bool complete = manifest_count(payload, &count);
    for (size_t i = 0; complete && i < count; i++) {
        const struct manifest_chunk chunk = manifest_chunk_at(payload, i);
        complete = manifest_chunk_is_there(segments, &chunk);
    }
    return complete;
}

bool manifest_names(struct bytes payload, uint64_t segment, uint64_t offset, uint64_t end)
{
    size_t count = 0;
    if (!manifest_count(payload, &count))
        return true;
    for (size_t i = 0; i < count; i++) {
        const struct manifest_chunk chunk = manifest_chunk_at(payload, i);
        const struct place place = place_unpack(chunk.place);
        if (place.segment == segment && place.offset < end &&
            place.offset + record_stored_bytes(chunk.payload_bytes) > offset)
            return true;
    }
    return false;
}

bool manifest_read(struct store *store,
                   const struct digest *digest,
                   struct place *place,
                   uint8_t **memory,
                   struct bytes *payload,
                   bool *there,
                   struct status *status)
{
    struct record_header header;
    struct digest found;
    *there = false;
    if (!store_find_blob(store, digest, FIND_ONLY, place))
        return true;
    struct segment *segment = segment_set_pin(store->segments, place->segment);
    if (segment == NULL)
        return true;
    const bool ok = read_manifest(segment, place->offset, memory, &header, payload, status);
    segment_set_unpin(store->segments, segment);
    if (!ok)
        return false;
    record_header_digest(&header, &found);
    *there = header.kind == RECORD_MANIFEST && digest_equal(&found, digest);
    if (!*there)
        free(*memory);
    return true;
}

static bool read_manifest(struct segment *segment,
                          uint64_t offset,
                          uint8_t **memory,
                          struct record_header *header,
                          struct bytes *payload,
                          struct status *status)
{
    size_t got = 0;
    if (!io_pread(segment->io, segment->read_fd, header, sizeof(*header), offset, &got, status))
        return false;
    if (got < sizeof(*header) || !record_header_valid(header, segment->uid, NULL) ||
        header->payload_bytes > LIMIT_MANIFEST_BYTES)
        return status_fail(status, STATUS_DATA_LOSS, "the header of a manifest is damaged");
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)header->payload_bytes;
    uint8_t *read = malloc(capacity);
    if (read == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a manifest");
    if (!segment_read_record(segment, offset, capacity, read, capacity, header, payload, status)) {
        free(read);
        return false;
    }
    *memory = read;
    return true;
}
