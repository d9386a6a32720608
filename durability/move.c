/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/move.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "durability/forget.h"
#include "store/action_record.h"
#include "store/blob_reader.h"
#include "store/segment_contents.h"

/* What is read and not yet durable: one round of commit, and the next one being read. */
#define IN_FLIGHT_BYTES_MAX (8 * MIB)

/* One record on its way; frees itself when it is durable. */
struct move {
    struct mover *mover;
    struct commit_request request;
    struct record record;
    struct bytes payload;
    uint8_t *memory; /* owned: the record as it was, or a new manifest */
    char instance[LIMIT_INSTANCE_NAME_BYTES];
};

static bool read_whole(struct segment *segment,
                       uint64_t offset,
                       uint64_t payload_bytes,
                       uint8_t **memory,
                       struct record_header *header,
                       struct bytes *payload,
                       struct status *status);
static bool move_record(struct mover *mover,
                        struct segment *from,
                        const struct moving *moving,
                        struct status *status);
static bool move_large(struct mover *mover,
                       struct segment *from,
                       const struct moving *moving,
                       struct status *status);
static bool copy_chunks(struct mover *mover,
                        struct segment *from,
                        struct blob_reader *reader,
                        struct manifest_chunk *chunks,
                        size_t count,
                        struct status *status);
static bool copy_chunk(struct mover *mover,
                       struct blob_reader *reader,
                       struct buffer *buffer,
                       struct manifest_chunk *chunk,
                       struct status *status);
static void submit(struct mover *mover,
                   struct move *move,
                   enum lane lane,
                   const struct moving *moving);
static void moved(struct ack *ack, const struct status *result);
static void forget_copy(const struct move *move);
static void wait_for_room(struct mover *mover);

bool move_identify(struct store *store,
                   struct segment *segment,
                   const struct footer_entry *entry,
                   struct moving *moving,
                   struct status *status)
{
    const bool simple = moving->kind == RECORD_BLOB && footer_entry_digest(entry, &moving->digest);
    if (simple) {
        moving->key = blob_table_blob_key(store->table, &moving->digest);
        return true;
    }
    uint8_t *memory = NULL;
    struct record_header header;
    struct bytes payload;
    if (!read_whole(segment, moving->place.offset, entry->payload_bytes, &memory, &header, &payload,
                    status))
        return false;
    record_header_digest(&header, &moving->digest);
    struct bytes instance = bytes_of(NULL, 0);
    bool ok = true;
    if (moving->kind == RECORD_ACTION) {
        struct action_record action;
        ok = action_record_decode(payload, &action, status);
        instance = ok ? action.instance : instance;
    } else if (moving->kind == RECORD_FORGET) {
        struct forget_payload forget;
        ok = payload.length >= sizeof(forget) ||
             status_fail(status, STATUS_DATA_LOSS, "a FORGET of %zu bytes", payload.length);
        if (ok) {
            memcpy(&forget, payload.data, sizeof(forget));
            moving->forget = place_unpack(forget.place);
            moving->forget_kind = (enum record_kind)forget.kind;
            instance = bytes_of(payload.data + sizeof(forget), payload.length - sizeof(forget));
        }
    }
    ok = ok &&
         (instance.length <= LIMIT_INSTANCE_NAME_BYTES ||
          status_fail(status, STATUS_DATA_LOSS, "an instance name of %zu bytes", instance.length));
    if (ok && instance.length > 0) {
        moving->instance = malloc(instance.length);
        ok = moving->instance != NULL ||
             status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict");
        if (ok) {
            memcpy(moving->instance, instance.data, instance.length);
            moving->instance_bytes = instance.length;
        }
    }
    moving->key = moving->kind == RECORD_ACTION
                      ? blob_table_action_key(store->table, &moving->digest, instance)
                      : blob_table_blob_key(store->table, &moving->digest);
    free(memory);
    return ok;
}

void move_destroy(struct moving *moving)
{
    free(moving->instance);
    moving->instance = NULL;
}

static bool read_whole(struct segment *segment,
                       uint64_t offset,
                       uint64_t payload_bytes,
                       uint8_t **memory,
                       struct record_header *header,
                       struct bytes *payload,
                       struct status *status)
{
    const size_t capacity = (size_t)(RECORD_HEADER_BYTES + payload_bytes);
    uint8_t *read = malloc(capacity);
    if (read == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a record");
    if (!segment_read_record(segment, offset, capacity, read, capacity, header, payload, status)) {
        free(read);
        return false;
    }
    *memory = read;
    return true;
}

void mover_init(struct mover *mover, struct store *store, struct commit *const *commits)
{
    *mover = (struct mover){.store = store};
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        mover->commits[lane] = commits[lane];
    lock_init(&mover->lock, LOCK_RANK_LEAF);
    condition_init(&mover->changed);
}

void mover_finish(struct mover *mover)
{
    lock_acquire(&mover->lock);
    while (mover->in_flight > 0)
        condition_wait(&mover->changed, &mover->lock);
    lock_release(&mover->lock);
    condition_destroy(&mover->changed);
    lock_destroy(&mover->lock);
}

bool mover_move(struct mover *mover, struct segment *from, const struct moving *moving)
{
    struct status status;
    struct log_text text;
    char digest[DIGEST_TEXT_BYTES_MAX];
    wait_for_room(mover);
    const bool ok = moving->kind == RECORD_MANIFEST ? move_large(mover, from, moving, &status)
                                                    : move_record(mover, from, moving, &status);
    if (!ok)
        log_event(LOG_LEVEL_WARN, "move_failed", "digest=%s segment=%" PRIu64 " reason=%s",
                  digest_text(&moving->digest, digest), from->number,
                  log_quote(&text, status.message));
    return ok;
}

static void wait_for_room(struct mover *mover)
{
    lock_acquire(&mover->lock);
    while (mover->in_flight_bytes >= IN_FLIGHT_BYTES_MAX ||
           mover->in_flight >= LIMIT_COMMIT_RECORDS)
        condition_wait(&mover->changed, &mover->lock);
    lock_release(&mover->lock);
}

static bool move_record(struct mover *mover,
                        struct segment *from,
                        const struct moving *moving,
                        struct status *status)
{
    struct move *move = calloc(1, sizeof(*move));
    if (move == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a record");
    struct record_header header;
    uint64_t payload_bytes = moving->kind == RECORD_BLOB ? (uint64_t)moving->digest.size_bytes : 0;
    if (payload_bytes == 0) {
        size_t got = 0; /* the header says how long it is; the read below checks it */
        if (!io_pread(from->io, from->read_fd, &header, sizeof(header), moving->place.offset, &got,
                      status) ||
            got < sizeof(header) || header.payload_bytes > from->capacity_bytes) {
            free(move);
            return status_fail(status, STATUS_DATA_LOSS, "the record cannot be read");
        }
        payload_bytes = header.payload_bytes;
    }
    if (!read_whole(from, moving->place.offset, payload_bytes, &move->memory, &header,
                    &move->payload, status)) {
        free(move);
        return false;
    }
    move->record = (struct record){
        .kind = moving->kind,
        .digest = moving->digest,
        .payload_bytes = move->payload.length,
        .payload_crc32c = header.payload_crc32c,
    };
    submit(mover, move, LANE_SMALL, moving);
    return true;
}

static bool move_large(struct mover *mover,
                       struct segment *from,
                       const struct moving *moving,
                       struct status *status)
{
    struct blob_reader *reader = NULL;
    if (!blob_reader_open(mover->store, &moving->digest, &reader, status))
        return false;
    if (reader == NULL || place_pack(blob_reader_place(reader)) != place_pack(moving->place)) {
        blob_reader_free(reader);
        return status_fail(status, STATUS_NOT_FOUND, "it has changed meanwhile");
    }
    size_t count = 0;
    const struct manifest_chunk *old = blob_reader_chunks(reader, &count);
    struct move *move = calloc(1, sizeof(*move));
    struct manifest_chunk *chunks = malloc(count * sizeof(*chunks));
    bool ok = move != NULL && chunks != NULL;
    if (!ok)
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a blob of %zu chunks",
                    count);
    if (ok) {
        memcpy(chunks, old, count * sizeof(*chunks));
        ok = copy_chunks(mover, from, reader, chunks, count, status);
    }
    blob_reader_free(reader);
    if (!ok) {
        free(chunks);
        free(move);
        return false;
    }
    move->memory = (uint8_t *)chunks;
    move->payload = bytes_of(chunks, count * sizeof(*chunks));
    move->record = (struct record){
        .kind = RECORD_MANIFEST,
        .digest = moving->digest,
        .payload_bytes = move->payload.length,
        .payload_crc32c = crc32c(0, move->payload),
    };
    submit(mover, move, LANE_LARGE, moving);
    return true;
}

/* Those that lie in the segment that goes; the others stay where they are. */
static bool copy_chunks(struct mover *mover,
                        struct segment *from,
                        struct blob_reader *reader,
                        struct manifest_chunk *chunks,
                        size_t count,
                        struct status *status)
{
    uint8_t *memory = malloc(LIMIT_POOL_BUFFER_BYTES);
    struct buffer buffer = {.data = memory, .capacity_bytes = LIMIT_POOL_BUFFER_BYTES};
    if (memory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a chunk");
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        if (place_unpack(chunks[i].place).segment == from->number)
            ok = copy_chunk(mover, reader, &buffer, &chunks[i], status);
    }
    free(memory);
    return ok;
}

static bool copy_chunk(struct mover *mover,
                       struct blob_reader *reader,
                       struct buffer *buffer,
                       struct manifest_chunk *chunk,
                       struct status *status)
{
    struct bytes data;
    if (!blob_reader_read(reader, chunk->blob_offset, buffer, &data, status))
        return false;
    struct record record = {
        .kind = RECORD_CHUNK,
        .digest = *blob_reader_digest(reader),
        .blob_offset = chunk->blob_offset,
        .payload = {.parts = &data, .count = 1},
        .payload_bytes = data.length,
        .payload_crc32c = chunk->payload_crc32c,
    };
    struct record *const records[] = {&record};
    if (!segment_log_append(mover->store->logs[LANE_LARGE], records, 1, status))
        return false;
    chunk->place = place_pack(record.place);
    return true;
}

static void submit(struct mover *mover,
                   struct move *move,
                   enum lane lane,
                   const struct moving *moving)
{
    ASSERT(moving->instance_bytes <= sizeof(move->instance));
    if (moving->instance_bytes > 0)
        memcpy(move->instance, moving->instance, moving->instance_bytes);
    move->mover = mover;
    move->record.payload = (struct bytes_list){.parts = &move->payload, .count = 1};
    move->request = (struct commit_request){
        .record = &move->record,
        .instance = bytes_of(move->instance, moving->instance_bytes),
        .relocate = moving->kind == RECORD_FORGET ? (struct place){0} : moving->place,
        .forget = moving->forget,
        .forget_kind = moving->forget_kind,
        .ack = {.done = moved},
    };
    lock_acquire(&mover->lock);
    mover->in_flight++;
    mover->in_flight_bytes += move->record.payload_bytes;
    lock_release(&mover->lock);
    commit_submit(mover->commits[lane], &move->request);
}

static void moved(struct ack *ack, const struct status *result)
{
    struct move *move = CONTAINER_OF(ack, struct move, request.ack);
    struct mover *mover = move->mover;
    const uint64_t bytes = move->record.payload_bytes;
    struct log_text text;
    char digest[DIGEST_TEXT_BYTES_MAX];
    if (result->code != STATUS_OK)
        log_event(LOG_LEVEL_WARN, "move_failed", "digest=%s reason=%s",
                  digest_text(&move->record.digest, digest), log_quote(&text, result->message));
    else if (move->request.stale)
        forget_copy(move);
    free(move->memory);
    free(move);
    lock_acquire(&mover->lock);
    mover->in_flight--;
    mover->in_flight_bytes -= bytes;
    condition_signal(&mover->changed);
    lock_release(&mover->lock);
}

/* The entry was forgotten while its record was being copied: whoever reads the log must not find the copy instead. */
static void forget_copy(const struct move *move)
{
    const struct forget forget = {.digest = move->record.digest,
                                  .instance = move->request.instance,
                                  .place = move->record.place,
                                  .kind = move->record.kind,
                                  .reason = FORGET_EVICTED};
    forget_record(move->mover->store, move->mover->commits[LANE_SMALL], &forget);
}
