/* SPDX-License-Identifier: Apache-2.0 */
#include "store/manifest.h"

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
