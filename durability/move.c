/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/move.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "durability/forget.h"
#include "store/action_record.h"
#include "store/blob_reader.h"
#include "store/forget_record.h"
#include "store/segment_contents.h"

/* What is read and not yet durable: a few rounds of commit, so that one is read while another is synced. */
#define IN_FLIGHT_BYTES_MAX (8 * MIB)

/* One record on its way; frees itself when it is durable. */
struct move {
    struct mover *mover;
    struct commit_request request;
    struct record record;
    struct bytes payload;
    uint8_t *memory; /* owned: the record as it was, or a new manifest */
    uint64_t bytes;  /* what is counted as moved */
    char instance[LIMIT_INSTANCE_NAME_BYTES];
};

/* A FORGET on its way; frees itself. */
struct mover_forget {
    struct mover *mover;
    struct forgetting forgetting;
    struct digest digest;
    struct blob_key key;
    struct blob_use evicted; /* what is put back if it fails; place.segment 0: nothing */
};

static bool read_whole(struct segment *segment,
                       uint64_t offset,
                       uint64_t payload_bytes,
                       uint8_t **memory,
                       struct record_header *header,
                       struct bytes *payload,
                       struct status *status);
static bool read_payload_bytes(struct segment *segment,
                               uint64_t offset,
                               uint64_t *payload_bytes,
                               struct status *status);
static void wait_for_room(struct mover *mover);
static bool move_record(struct mover *mover,
                        struct segment *from,
                        const struct moving *moving,
                        struct status *status);
static bool take_key(struct move *move, struct status *status);
static bool move_large(struct mover *mover,
                       struct segment *from,
                       const struct moving *moving,
                       struct status *status);
static bool copy_chunks(struct mover *mover,
                        struct segment *from,
                        const struct digest *digest,
                        struct manifest_chunk *chunks,
                        size_t count,
                        struct status *status);
static bool copy_chunk(struct mover *mover,
                       struct segment *from,
                       const struct digest *digest,
                       struct manifest_chunk *chunk,
                       struct status *status);
static void submit(struct mover *mover,
                   struct move *move,
                   enum lane lane,
                   const struct moving *moving);
static void moved(struct ack *ack, const struct status *result);
static void forget_copy(struct mover *mover, const struct move *move);
static bool submit_forget(struct mover *mover,
                          const struct forget *forget,
                          struct blob_key key,
                          const struct blob_use *evicted,
                          struct status *status);
static void forgotten(struct ack *ack, const struct status *result);
static void put_back(struct mover *mover,
                     const struct digest *digest,
                     struct blob_key key,
                     const struct blob_use *evicted);
static void begin(struct mover *mover, uint64_t bytes);
static void end(struct mover *mover, uint64_t bytes);
static void log_failed(const char *event, const struct digest *digest, const struct status *status);

bool move_identify(struct store *store,
                   struct segment *segment,
                   const struct footer_entry *entry,
                   struct blob_key *key,
                   struct moving_forget *forget,
                   struct status *status)
{
    const uint64_t offset = footer_entry_place(segment, entry).offset;
    uint8_t *memory = NULL;
    struct record_header header;
    struct bytes payload;
    if (!read_whole(segment, offset, entry->payload_bytes, &memory, &header, &payload, status))
        return false;
    struct digest digest;
    record_header_digest(&header, &digest);
    bool ok = true;
    if (header.kind == RECORD_ACTION) {
        struct action_record action;
        ok = action_record_decode(payload, &action, status);
        if (ok)
            *key = blob_table_action_key(store->table, &digest, action.instance);
    } else if (header.kind == RECORD_FORGET) {
        struct forget_record record;
        ok = forget_record_decode(payload, &record, status);
        if (ok)
            *forget = (struct moving_forget){
                .named = record.place.segment, .seq = header.seq, .reason = record.reason};
    } else {
        *key = blob_table_blob_key(store->table, &digest);
    }
    free(memory);
    return ok;
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
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a record of %zu bytes",
                           capacity);
    if (!segment_read_record(segment, offset, capacity, read, capacity, header, payload, status)) {
        if (status->code == STATUS_RESOURCE_EXHAUSTED) /* it says to be longer than we know it is */
            status->code = STATUS_DATA_LOSS;
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

void mover_destroy(struct mover *mover)
{
    ASSERT(mover->in_flight == 0);
    free(mover->chunk);
    condition_destroy(&mover->changed);
    lock_destroy(&mover->lock);
}

void mover_wait(struct mover *mover)
{
    lock_acquire(&mover->lock);
    while (mover->in_flight > 0)
        condition_wait(&mover->changed, &mover->lock);
    lock_release(&mover->lock);
}

bool mover_move(struct mover *mover, struct segment *from, const struct moving *moving)
{
    struct status status;
    wait_for_room(mover);
    if (moving->kind == RECORD_MANIFEST ? move_large(mover, from, moving, &status)
                                        : move_record(mover, from, moving, &status))
        return true;
    struct log_text text;
    log_event(LOG_LEVEL_WARN, "move_failed",
              "segment=%" PRIu64 " at_segment=%" PRIu64 " at_bytes=%" PRIu64 " reason=%s",
              from->number, moving->place.segment, moving->place.offset,
              log_quote(&text, status.message));
    lock_acquire(&mover->lock);
    mover->moves_failed++;
    if (moving->kind == RECORD_FORGET && status.code != STATUS_DATA_LOSS)
        mover->forget_failed = true;
    lock_release(&mover->lock);
    return false;
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
    uint64_t payload_bytes = 0;
    struct record_header header;
    bool ok = move != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a record");
    ok = ok && read_payload_bytes(from, moving->place.offset, &payload_bytes, status) &&
         read_whole(from, moving->place.offset, payload_bytes, &move->memory, &header,
                    &move->payload, status);
    if (ok) {
        move->record = (struct record){
            .kind = moving->kind,
            .payload_bytes = move->payload.length,
            .payload_crc32c = header.payload_crc32c,
        };
        record_header_digest(&header, &move->record.digest);
        ok = header.kind == (uint8_t)moving->kind
                 ? take_key(move, status)
                 : status_fail(status, STATUS_DATA_LOSS, "another record lies there");
    }
    if (!ok) {
        if (move != NULL)
            free(move->memory);
        free(move);
        return false;
    }
    submit(mover, move, LANE_SMALL, moving);
    return true;
}

static bool read_payload_bytes(struct segment *segment,
                               uint64_t offset,
                               uint64_t *payload_bytes,
                               struct status *status)
{
    struct record_header header;
    size_t got = 0;
    if (!io_pread(segment->io, segment->read_fd, &header, sizeof(header), offset, &got, status))
        return false;
    if (got < sizeof(header) || !record_header_valid(&header, segment->uid, NULL) ||
        header.payload_bytes > segment->capacity_bytes)
        return status_fail(status, STATUS_DATA_LOSS, "the record's header is damaged");
    *payload_bytes = header.payload_bytes;
    return true;
}

/* What of the key is in the payload. */
static bool take_key(struct move *move, struct status *status)
{
    struct bytes instance = bytes_of(NULL, 0);
    if (move->record.kind == RECORD_ACTION) {
        struct action_record action;
        if (!action_record_decode(move->payload, &action, status))
            return false;
        instance = action.instance;
    } else if (move->record.kind == RECORD_FORGET) {
        struct forget_record forget;
        if (!forget_record_decode(move->payload, &forget, status))
            return false;
        move->request.forget = forget.place;
        move->request.forget_kind = forget.kind;
        instance = forget.instance;
    }
    if (instance.length > sizeof(move->instance))
        return status_fail(status, STATUS_DATA_LOSS, "an instance name of %zu bytes",
                           instance.length);
    if (instance.length > 0)
        memcpy(move->instance, instance.data, instance.length);
    move->request.instance = bytes_of(move->instance, instance.length);
    return true;
}

static bool move_large(struct mover *mover,
                       struct segment *from,
                       const struct moving *moving,
                       struct status *status)
{
    struct blob_reader *reader = NULL;
    if (moving->digest.hash_length == 0)
        return status_fail(status, STATUS_DATA_LOSS, "its digest cannot be read");
    if (!blob_reader_open_at(mover->store, &moving->digest, moving->place, &reader, status))
        return false;
    if (reader == NULL)
        return status_fail(status, STATUS_NOT_FOUND, "its manifest or a segment of it is gone");
    size_t count = 0;
    const struct manifest_chunk *old = blob_reader_chunks(reader, &count);
    struct move *move = calloc(1, sizeof(*move));
    struct manifest_chunk *chunks = malloc(count * sizeof(*chunks));
    bool ok = (move != NULL && chunks != NULL) ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                          "no memory to move a blob of %zu chunks", count);
    if (ok) {
        memcpy(chunks, old, count * sizeof(*chunks));
        ok = copy_chunks(mover, from, &moving->digest, chunks, count, status);
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
                        const struct digest *digest,
                        struct manifest_chunk *chunks,
                        size_t count,
                        struct status *status)
{
    if (mover->chunk == NULL)
        mover->chunk = malloc(LIMIT_POOL_BUFFER_BYTES);
    bool ok = mover->chunk != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to move a chunk");
    for (size_t i = 0; ok && i < count; i++) {
        if (place_unpack(chunks[i].place).segment == from->number)
            ok = copy_chunk(mover, from, digest, &chunks[i], status);
    }
    return ok;
}

static bool copy_chunk(struct mover *mover,
                       struct segment *from,
                       const struct digest *digest,
                       struct manifest_chunk *chunk,
                       struct status *status)
{
    struct record_header header;
    struct bytes data;
    struct digest named;
    if (!segment_read_record(from, place_unpack(chunk->place).offset,
                             RECORD_HEADER_BYTES + chunk->payload_bytes, mover->chunk,
                             LIMIT_POOL_BUFFER_BYTES, &header, &data, status))
        return false;
    record_header_digest(&header, &named);
    if (header.kind != RECORD_CHUNK || !digest_equal(&named, digest) ||
        header.blob_offset != chunk->blob_offset || header.payload_bytes != chunk->payload_bytes ||
        header.payload_crc32c != chunk->payload_crc32c)
        return status_fail(status, STATUS_DATA_LOSS,
                           "a chunk is not the one that the manifest names");
    struct record record = {
        .kind = RECORD_CHUNK,
        .digest = *digest,
        .blob_offset = chunk->blob_offset,
        .payload = {.parts = &data, .count = 1},
        .payload_bytes = data.length,
        .payload_crc32c = chunk->payload_crc32c,
    };
    struct record *const records[] = {&record};
    if (!segment_log_append_move(mover->store->logs[LANE_LARGE], records, 1, status))
        return false;
    chunk->place = place_pack(record.place);
    return true;
}

static void submit(struct mover *mover,
                   struct move *move,
                   enum lane lane,
                   const struct moving *moving)
{
    move->mover = mover;
    move->bytes = moving->bytes;
    move->record.payload = (struct bytes_list){.parts = &move->payload, .count = 1};
    move->request.record = &move->record;
    move->request.ack.done = moved;
    if (moving->kind != RECORD_FORGET) {
        move->request.relocate = moving->place;
        move->request.clear_touch = moving->clear_touch;
    }
    begin(mover, move->record.payload_bytes);
    commit_submit(mover->commits[lane], &move->request);
}

/* On the ack thread. */
static void moved(struct ack *ack, const struct status *result)
{
    struct move *move = CONTAINER_OF(ack, struct move, request.ack);
    struct mover *mover = move->mover;
    const uint64_t bytes = move->record.payload_bytes;
    const bool failed = result->code != STATUS_OK;
    if (failed)
        log_failed("move_failed", &move->record.digest, result);
    lock_acquire(&mover->lock);
    mover->moves_failed += failed;
    if (failed && move->record.kind == RECORD_FORGET)
        mover->forget_failed = true;
    if (!failed && !move->request.stale)
        mover->moved_bytes += move->bytes;
    lock_release(&mover->lock);
    if (!failed && move->request.stale && move->record.place.segment != 0)
        forget_copy(mover, move);
    free(move->memory);
    free(move);
    end(mover, bytes);
}

/* The entry was forgotten after the copy was appended: a restart must not find it. */
static void forget_copy(struct mover *mover, const struct move *move)
{
    struct status status;
    const struct blob_use nothing = {.touch = 0};
    const struct blob_key no_key = {0};
    const struct forget forget = {
        .digest = move->record.digest,
        .instance = move->request.instance,
        .place = move->record.place,
        .kind = move->record.kind,
        .reason = FORGET_EVICTED,
    };
    if (!submit_forget(mover, &forget, no_key, &nothing, &status))
        log_failed("forget_not_written", &forget.digest, &status);
}

void mover_forget(struct mover *mover,
                  const struct digest *digest,
                  struct blob_key key,
                  const struct blob_use *evicted)
{
    struct status status;
    const struct forget forget = {.digest = *digest,
                                  .place = evicted->place,
                                  .kind = RECORD_MANIFEST,
                                  .reason = FORGET_EVICTED};
    wait_for_room(mover);
    if (digest->hash_length == 0
            ? status_fail(&status, STATUS_DATA_LOSS, "its digest cannot be read")
            : submit_forget(mover, &forget, key, evicted, &status))
        return;
    log_failed("forget_not_written", digest, &status);
    put_back(mover, digest, key, evicted);
}

static bool submit_forget(struct mover *mover,
                          const struct forget *forget,
                          struct blob_key key,
                          const struct blob_use *evicted,
                          struct status *status)
{
    struct mover_forget *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a FORGET");
    made->mover = mover;
    made->digest = forget->digest;
    made->key = key;
    made->evicted = *evicted;
    forgetting_fill(&made->forgetting, mover->store, forget);
    made->forgetting.request.ack.done = forgotten;
    begin(mover, made->forgetting.record.payload_bytes);
    commit_submit(mover->commits[LANE_SMALL], &made->forgetting.request);
    return true;
}

/* On the ack thread. */
static void forgotten(struct ack *ack, const struct status *result)
{
    struct mover_forget *made = CONTAINER_OF(ack, struct mover_forget, forgetting.request.ack);
    struct mover *mover = made->mover;
    const uint64_t bytes = made->forgetting.record.payload_bytes;
    if (result->code != STATUS_OK) {
        log_failed("forget_not_written", &made->digest, result);
        if (made->evicted.place.segment != 0)
            put_back(mover, &made->digest, made->key, &made->evicted);
    }
    free(made);
    end(mover, bytes);
}

static void put_back(struct mover *mover,
                     const struct digest *digest,
                     struct blob_key key,
                     const struct blob_use *evicted)
{
    struct status status;
    if (!blob_table_restore(mover->store->table, key, evicted, &status))
        log_failed("publish_failed", digest, &status); /* a restart finds it again */
    lock_acquire(&mover->lock);
    mover->forget_failed = true;
    lock_release(&mover->lock);
}

static void begin(struct mover *mover, uint64_t bytes)
{
    lock_acquire(&mover->lock);
    mover->in_flight++;
    mover->in_flight_bytes += bytes;
    lock_release(&mover->lock);
}

static void end(struct mover *mover, uint64_t bytes)
{
    lock_acquire(&mover->lock);
    mover->in_flight--;
    mover->in_flight_bytes -= bytes;
    condition_signal(&mover->changed);
    lock_release(&mover->lock);
}

static void log_failed(const char *event, const struct digest *digest, const struct status *status)
{
    struct log_text text;
    char digest_words[DIGEST_TEXT_BYTES_MAX];
    log_event(LOG_LEVEL_WARN, event, "digest=%s reason=%s", digest_text(digest, digest_words),
              log_quote(&text, status->message));
}
