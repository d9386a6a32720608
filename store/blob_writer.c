/* SPDX-License-Identifier: Apache-2.0 */
#include "store/blob_writer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/failpoint.h"

struct blob_writer {
    /* Set by blob_writer_new(), never changed. */
    struct store *store; /* borrowed */
    struct digest digest;
    enum lane lane;

    struct chunk_share *share; /* shared; NULL: nothing is in common */
    struct hasher *hasher;     /* owned; of the bytes taken; NULL: the caller vouches for them */
    bool checked;              /* the bytes are all in and right; the hasher has finished */
    uint64_t offset;           /* bytes taken */
    struct buffer *buffer;     /* owned, or NULL: the bytes that are in no chunk yet */
    size_t buffered;           /* how many */

    struct manifest_chunk *chunks; /* owned */
    size_t chunk_count, chunk_capacity;

    /* What blob_writer_finish() hands out; its parts borrow from this writer. */
    struct record record;
    struct bytes payload;
};

static size_t chunk_bytes(const struct blob_writer *writer);
static uint64_t chunks_end(const struct blob_writer *writer);
static bool append_chunk(struct blob_writer *writer,
                         struct bytes data,
                         struct manifest_chunk *placed,
                         struct status *status);
static bool remember_chunk(struct blob_writer *writer,
                           const struct manifest_chunk *placed,
                           struct status *status);
static bool check_contents(struct blob_writer *writer, struct status *status);
static bool flush_buffer(struct blob_writer *writer, struct status *status);

bool blob_writer_new(struct store *store,
                     const struct digest *digest,
                     struct blob_writer **writer,
                     struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if ((uint64_t)digest->size_bytes > LIMIT_BLOB_BYTES)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s is larger than the limit of %" PRIu64 " bytes",
                           digest_text(digest, text), (uint64_t)LIMIT_BLOB_BYTES);
    if ((uint64_t)digest->size_bytes > store->blob_bytes_max)
        return status_fail(
            status, STATUS_RESOURCE_EXHAUSTED,
            "blob %s does not fit into this store, which takes blobs of up to %" PRIu64 " bytes",
            digest_text(digest, text), store->blob_bytes_max);
    struct blob_writer *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an upload of %s",
                           digest_text(digest, text));
    made->store = store;
    made->digest = *digest;
    made->lane = (uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES ? LANE_SMALL : LANE_LARGE;
    made->hasher = hasher_new((enum digest_function)digest->function);
    *writer = made;
    return true;
}

void blob_writer_free(struct blob_writer *writer)
{
    if (writer == NULL)
        return;
    buffer_release(writer->buffer);
    chunk_share_unref(writer->share);
    hasher_free(writer->hasher);
    free(writer->chunks);
    free(writer);
}

const struct digest *blob_writer_digest(const struct blob_writer *writer)
{
    return &writer->digest;
}

uint64_t blob_writer_offset(const struct blob_writer *writer)
{
    return writer->offset;
}

void blob_writer_set_share(struct blob_writer *writer, struct chunk_share *share)
{
    ASSERT(writer->hasher != NULL); /* chunks are known by their hash */
    chunk_share_ref(share);
    chunk_share_unref(writer->share);
    writer->share = share;
}

struct chunk_share *blob_writer_share(const struct blob_writer *writer)
{
    return writer->share;
}

bool blob_writer_needs_buffer(const struct blob_writer *writer)
{
    return writer->buffer == NULL && writer->offset < (uint64_t)writer->digest.size_bytes;
}

void blob_writer_give_buffer(struct blob_writer *writer, struct buffer *buffer)
{
    ASSERT(writer->buffer == NULL);
    ASSERT(buffer->capacity_bytes >= LIMIT_CHUNK_BYTES);
    writer->buffer = buffer;
    writer->buffered = 0;
}

bool blob_writer_append(struct blob_writer *writer, struct bytes data, struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    const uint64_t missing = (uint64_t)writer->digest.size_bytes - writer->offset;
    if (data.length > missing)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s: at least %" PRIu64 " bytes were sent, more than its size",
                           digest_text(&writer->digest, text), writer->offset + data.length);
    while (data.length > 0) {
        size_t room;
        uint8_t *const to = blob_writer_space(writer, &room);
        const size_t take = data.length < room ? data.length : room;
        memcpy(to, data.data, take);
        if (!blob_writer_filled(writer, take, status))
            return false;
        data = bytes_of(data.data + take, data.length - take);
    }
    return true;
}

uint8_t *blob_writer_space(struct blob_writer *writer, size_t *length)
{
    const uint64_t missing = (uint64_t)writer->digest.size_bytes - writer->offset;
    const size_t room = chunk_bytes(writer) - writer->buffered;
    ASSERT(missing > 0 && writer->buffer != NULL);
    *length = missing < room ? (size_t)missing : room;
    return writer->buffer->data + writer->buffered;
}

bool blob_writer_filled(struct blob_writer *writer, size_t length, struct status *status)
{
    ASSERT(length <= chunk_bytes(writer) - writer->buffered);
    ASSERT(length <= (uint64_t)writer->digest.size_bytes - writer->offset);
    if (writer->hasher != NULL)
        hasher_update(writer->hasher, bytes_of(writer->buffer->data + writer->buffered, length));
    writer->buffered += length;
    writer->offset += length;
    /* The last chunk waits for blob_writer_finish(): a blob with the wrong hash need not be written to its end. */
    return writer->lane == LANE_SMALL || writer->buffered < chunk_bytes(writer) ||
           writer->offset == (uint64_t)writer->digest.size_bytes || flush_buffer(writer, status);
}

void blob_writer_trust(struct blob_writer *writer)
{
    ASSERT(writer->offset == 0 && writer->share == NULL);
    hasher_free(writer->hasher);
    writer->hasher = NULL;
}

/* What the buffer's chunk takes. After a short one the next ends where chunks end that were never short, to have those in common. */
static size_t chunk_bytes(const struct blob_writer *writer)
{
    if (writer->lane == LANE_SMALL)
        return (size_t)LIMIT_SMALL_BLOB_BYTES;
    return (size_t)(LIMIT_CHUNK_BYTES - chunks_end(writer) % LIMIT_CHUNK_BYTES);
}

/* Where the chunks so far end in the blob. */
static uint64_t chunks_end(const struct blob_writer *writer)
{
    return writer->offset - writer->buffered;
}

static bool flush_buffer(struct blob_writer *writer, struct status *status)
{
    if (writer->buffered == 0)
        return true;
    struct manifest_chunk placed;
    if (!append_chunk(writer, bytes_of(writer->buffer->data, writer->buffered), &placed, status) ||
        !remember_chunk(writer, &placed, status))
        return false;
    FAILPOINT(upload_after_chunk);
    writer->buffered = 0;
    return true;
}

static bool append_chunk(struct blob_writer *writer,
                         struct bytes data,
                         struct manifest_chunk *placed,
                         struct status *status)
{
    struct segment_log *const log = writer->store->logs[LANE_LARGE];
    struct record chunk = {
        .kind = RECORD_CHUNK,
        .digest = writer->digest,
        .blob_offset = chunks_end(writer),
        .payload = {.parts = &data, .count = 1},
        .payload_bytes = data.length,
        .payload_crc32c = crc32c(0, data),
    };
    if (writer->share != NULL) {
        struct digest prefix = writer->digest;
        if (!writer->checked)
            hasher_peek(writer->hasher, &prefix);
        return chunk_share_append(writer->share, log, writer->store->segments, &chunk, &prefix,
                                  placed, status);
    }
    struct record *const records[] = {&chunk};
    if (!segment_log_append(log, records, 1, status))
        return false;
    *placed = manifest_chunk_of(&chunk);
    return true;
}

static bool remember_chunk(struct blob_writer *writer,
                           const struct manifest_chunk *placed,
                           struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if (writer->chunk_count == writer->chunk_capacity) {
        const size_t capacity = writer->chunk_capacity == 0 ? 16 : 2 * writer->chunk_capacity;
        struct manifest_chunk *grown = NULL;
        if (capacity * sizeof(*grown) <= LIMIT_MANIFEST_BYTES)
            grown = realloc(writer->chunks, capacity * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "blob %s is in %zu chunks: no room for more",
                               digest_text(&writer->digest, text), writer->chunk_count);
        writer->chunks = grown;
        writer->chunk_capacity = capacity;
    }
    writer->chunks[writer->chunk_count++] = *placed;
    return true;
}

bool blob_writer_park(struct blob_writer *writer, struct status *status)
{
    if (writer->buffer == NULL)
        return true;
    if (writer->lane == LANE_SMALL)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "a blob of the small lane cannot be parked");
    if (!flush_buffer(writer, status))
        return false;
    buffer_release(writer->buffer);
    writer->buffer = NULL;
    return true;
}

bool blob_writer_finish(struct blob_writer *writer,
                        struct record **record,
                        enum lane *lane,
                        struct status *status)
{
    if (!check_contents(writer, status))
        return false;
    writer->record = (struct record){.digest = writer->digest};
    if (writer->lane == LANE_SMALL) {
        writer->record.kind = RECORD_BLOB;
        writer->payload =
            bytes_of(writer->buffer == NULL ? NULL : writer->buffer->data, writer->buffered);
    } else {
        if (!flush_buffer(writer, status))
            return false;
        writer->record.kind = RECORD_MANIFEST;
        writer->payload = bytes_of(writer->chunks, writer->chunk_count * sizeof(*writer->chunks));
    }
    writer->record.payload = (struct bytes_list){.parts = &writer->payload, .count = 1};
    writer->record.payload_bytes = writer->payload.length;
    writer->record.payload_crc32c = crc32c(0, writer->payload);
    *record = &writer->record;
    *lane = writer->lane;
    return true;
}

static bool check_contents(struct blob_writer *writer, struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    char found_text[DIGEST_TEXT_BYTES_MAX];
    if (writer->offset < (uint64_t)writer->digest.size_bytes)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s: only %" PRIu64 " bytes were sent",
                           digest_text(&writer->digest, text), writer->offset);
    struct digest found = writer->digest;
    if (writer->hasher != NULL)
        hasher_finish(writer->hasher, &found);
    if (!digest_equal(&found, &writer->digest))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s: the bytes sent have the digest %s",
                           digest_text(&writer->digest, text), digest_text(&found, found_text));
    writer->checked = true;
    return true;
}
