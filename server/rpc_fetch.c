/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve.v1.Replication/Fetch: the blobs of a stretch of the small lane, with their bytes. Neighbours in a segment are read together,
 * checked one by one, and copied into one message, so that no pooled buffer waits for a slow follower.
 */
#include <inttypes.h>

#include "base/crc32c.h"
#include "durability/feed.h"
#include "proto/wire.h"
#include "server/buffer_wait.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/whole_blob.h"
#include "varve/v1/replication.pb-c.h"

typedef Varve__V1__FetchRequest fetch_request;

enum { BATCH_RECORDS = 512, RUN_GAP_BYTES = 64 * KIB };
#define ARENA_BYTES_MAX (4 * MIB)

/* Fields of varve.v1.FetchResponse and varve.v1.FetchedRecord. */
enum {
    RESPONSE_RECORDS = 1,
    RECORD_SEQ = 1,
    RECORD_DIGEST_FUNCTION = 2,
    RECORD_HASH = 3,
    RECORD_SIZE_BYTES = 4,
    RECORD_PAYLOAD = 5,
};

struct state {
    struct feed_query query;
    bool begun; /* a batch has been read */
    struct feed_batch batch;
    size_t next; /* of the batch */
    struct arena arena;
    struct buffer_wait wait;
};

/* Neighbours that are read together: some of a batch. */
struct run {
    const struct feed_entry *entries;
    size_t count;
    struct bytes payloads[BATCH_RECORDS]; /* in the buffer; length 0 and no data: left out */
    bool sound[BATCH_RECORDS];
};

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status);
static void send_next(struct call *call, void *state);
static bool refill(struct call *call, struct state *state, bool *more, struct status *status);
static size_t run_length(const struct state *state, size_t capacity);
static uint64_t stored_end(const struct feed_entry *entry);
static bool read_run(struct server *server,
                     struct run *run,
                     struct buffer *buffer,
                     struct status *status);
static bool check_record(const struct segment *segment,
                         const struct feed_entry *entry,
                         struct bytes seen,
                         struct bytes *payload,
                         struct status *status);
static bool pack(struct server *server, const struct run *run, grpc_slice *slice);
static size_t record_size(const struct feed_entry *entry, struct bytes payload);
static uint8_t *record_put(uint8_t *to, const struct feed_entry *entry, struct bytes payload);

static void on_message(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    arena_init(&state->arena, ARENA_BYTES_MAX);
    if (start(call, state, message, &status))
        send_next(call, state);
    else
        call_fail(call, &status);
}

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status)
{
    const struct feed *const feed = durability_feed(call_server(call)->durability);
    const fetch_request *const request = (const fetch_request *)(void *)call_unpack(
        call, message, &varve__v1__fetch_request__descriptor, status);
    if (request == NULL || !feed_check_node(feed, request->node_uid, status))
        return false;
    if (request->lane != VARVE__V1__LANE__LANE_SMALL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "lane %d: only the small lane is fetched; read the blobs of the large "
                           "lane with ByteStream",
                           (int)request->lane);
    if (request->through_seq < request->after_seq)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "through_seq %" PRIu64 " is before after_seq %" PRIu64,
                           request->through_seq, request->after_seq);
    state->query = (struct feed_query){
        .lane = LANE_SMALL,
        .after_seq = request->after_seq,
        .through_seq = request->through_seq,
        .records_max = BATCH_RECORDS,
        .kinds = FEED_KIND(RECORD_BLOB),
    };
    return true;
}

static void send_next(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    struct server *const server = call_server(call);
    struct status status = {0};
    for (;;) {
        bool more = true;
        if (call_cancelled(call)) {
            status_fail(&status, STATUS_CANCELLED, "the follower has given up");
            call_fail(call, &status);
            return;
        }
        if (state->next == state->batch.count && !refill(call, state, &more, &status)) {
            call_fail(call, &status);
            return;
        }
        if (!more) {
            call_finish(call);
            return;
        }
        if (state->next == state->batch.count)
            continue;
        struct buffer *const buffer = buffer_wait_take(&state->wait, call, server->buffers);
        if (buffer == NULL) {
            call_park(call, send_next);
            return;
        }
        struct run run = {.entries = &state->batch.entries[state->next],
                          .count = run_length(state, buffer->capacity_bytes)};
        grpc_slice slice;
        const bool ok = read_run(server, &run, buffer, &status);
        const bool any = ok && pack(server, &run, &slice);
        buffer_release(buffer);
        if (!ok) {
            call_fail(call, &status);
            return;
        }
        state->next += run.count;
        if (any) {
            call_send(call, &slice, 1);
            return;
        }
    }
}

/* *more false: the stretch is at its end. A batch may be empty before that. */
static bool refill(struct call *call, struct state *state, bool *more, struct status *status)
{
    const uint64_t published_seq = state->batch.published_seq;
    if (state->begun && (state->query.after_seq >= state->query.through_seq ||
                         (!state->batch.more && state->query.after_seq >= published_seq))) {
        *more = false;
        return true;
    }
    state->begun = true;
    state->next = 0;
    arena_destroy(&state->arena);
    arena_init(&state->arena, ARENA_BYTES_MAX);
    if (state->query.through_seq == state->query.after_seq) {
        state->batch = (struct feed_batch){0};
        return true;
    }
    struct feed *const feed = durability_feed(call_server(call)->durability);
    if (!feed_read(feed, &state->query, &state->arena, &state->batch, status)) {
        state->batch = (struct feed_batch){0};
        return false;
    }
    state->query.after_seq = state->batch.next_after_seq;
    return true;
}

/* How many of those that come next fit into a buffer as they lie. */
static size_t run_length(const struct state *state, size_t capacity)
{
    const struct feed_entry *const first = &state->batch.entries[state->next];
    size_t length = 1;
    for (size_t i = state->next + 1; i < state->batch.count; i++) {
        const struct feed_entry *const entry = &state->batch.entries[i];
        if (entry->place.segment != first->place.segment ||
            stored_end(entry) - first->place.offset > capacity ||
            entry->place.offset - stored_end(entry - 1) > RUN_GAP_BYTES)
            break;
        length++;
    }
    return length;
}

static uint64_t stored_end(const struct feed_entry *entry)
{
    return entry->place.offset + record_stored_bytes(entry->payload_bytes);
}

/* What is damaged is left out, and forgotten; what was evicted meanwhile is left out. */
static bool read_run(struct server *server,
                     struct run *run,
                     struct buffer *buffer,
                     struct status *status)
{
    struct store *const store = server->store;
    const struct place first = run->entries[0].place;
    const uint64_t span = stored_end(&run->entries[run->count - 1]) - first.offset;
    size_t got = 0;
    struct segment *const segment = segment_set_pin(store->segments, first.segment);
    if (segment == NULL)
        return true;
    ASSERT(span <= buffer->capacity_bytes);
    const bool ok = io_pread(segment->io, segment->read_fd, buffer->data, (size_t)span,
                             first.offset, &got, status);
    for (size_t i = 0; ok && i < run->count; i++) {
        const struct feed_entry *const entry = &run->entries[i];
        const size_t at = (size_t)(entry->place.offset - first.offset);
        struct status why;
        run->sound[i] =
            check_record(segment, entry, bytes_of(buffer->data + at, got > at ? got - at : 0),
                         &run->payloads[i], &why);
        if (!run->sound[i]) {
            metrics_add(store->metrics, METRIC_RECORDS_DAMAGED, 1);
            damaged_blob_forget(server->durability, &entry->digest, entry->place, &why);
        }
    }
    segment_set_unpin(store->segments, segment);
    if (ok)
        return true;
    status->code = STATUS_UNAVAILABLE;
    status_prefix(status, "read segment %" PRIu64 " at %" PRIu64, first.segment, first.offset);
    return false;
}

static bool check_record(const struct segment *segment,
                         const struct feed_entry *entry,
                         struct bytes seen,
                         struct bytes *payload,
                         struct status *status)
{
    struct record_header header;
    struct digest digest;
    const char *reason = "cut off";
    if (seen.length < RECORD_HEADER_BYTES + entry->payload_bytes)
        return status_fail(status, STATUS_DATA_LOSS, "%s", reason);
    memcpy(&header, seen.data, sizeof(header));
    if (!record_header_valid(&header, segment->uid, &reason))
        return status_fail(status, STATUS_DATA_LOSS, "%s", reason);
    record_header_digest(&header, &digest);
    if (header.kind != RECORD_BLOB || header.seq != entry->seq ||
        header.payload_bytes != entry->payload_bytes || !digest_equal(&digest, &entry->digest))
        return status_fail(status, STATUS_DATA_LOSS, "another record lies there");
    *payload = bytes_of(seen.data + RECORD_HEADER_BYTES, (size_t)entry->payload_bytes);
    return crc32c(0, *payload) == header.payload_crc32c ||
           status_fail(status, STATUS_DATA_LOSS, "payload crc32c");
}

/* False when nothing is left to send. */
static bool pack(struct server *server, const struct run *run, grpc_slice *slice)
{
    size_t size = 0;
    int64_t records = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < run->count; i++) {
        if (!run->sound[i])
            continue;
        size += wire_bytes_field_size(RESPONSE_RECORDS,
                                      record_size(&run->entries[i], run->payloads[i]));
        records++;
        bytes += (int64_t)run->payloads[i].length;
    }
    if (records == 0)
        return false;
    *slice = grpc_slice_malloc(size);
    uint8_t *to = GRPC_SLICE_START_PTR(*slice);
    for (size_t i = 0; i < run->count; i++) {
        if (!run->sound[i])
            continue;
        to = wire_put_bytes_key(to, RESPONSE_RECORDS,
                                record_size(&run->entries[i], run->payloads[i]));
        to = record_put(to, &run->entries[i], run->payloads[i]);
    }
    ASSERT(to == GRPC_SLICE_END_PTR(*slice));
    metrics_add(server->metrics, METRIC_FETCH_RECORDS, records);
    metrics_add(server->metrics, METRIC_FETCH_BYTES, bytes);
    return true;
}

static struct bytes hash_of(const struct feed_entry *entry)
{
    return bytes_of(entry->digest.hash, entry->digest.hash_length);
}

static size_t record_size(const struct feed_entry *entry, struct bytes payload)
{
    return wire_varint_field_size(RECORD_SEQ, entry->seq) +
           wire_varint_field_size(RECORD_DIGEST_FUNCTION, entry->digest.function) +
           wire_bytes_field_size(RECORD_HASH, entry->digest.hash_length) +
           wire_varint_field_size(RECORD_SIZE_BYTES, (uint64_t)entry->digest.size_bytes) +
           wire_bytes_field_size(RECORD_PAYLOAD, payload.length);
}

static uint8_t *record_put(uint8_t *to, const struct feed_entry *entry, struct bytes payload)
{
    to = wire_put_varint_field(to, RECORD_SEQ, entry->seq);
    to = wire_put_varint_field(to, RECORD_DIGEST_FUNCTION, entry->digest.function);
    to = wire_put_bytes_field(to, RECORD_HASH, hash_of(entry));
    to = wire_put_varint_field(to, RECORD_SIZE_BYTES, (uint64_t)entry->digest.size_bytes);
    return wire_put_bytes_field(to, RECORD_PAYLOAD, payload);
}

static void on_free(struct call *call, void *state_memory)
{
    (void)call;
    struct state *const state = state_memory;
    buffer_wait_end(&state->wait);
    arena_destroy(&state->arena);
}

const struct method rpc_fetch = {
    .path = "/varve.v1.Replication/Fetch",
    .kind = METHOD_SERVER_STREAM,
    .role = ROLE_REPLICATE,
    .state_bytes = sizeof(struct state),
    .on_message = on_message,
    .on_sent = send_next,
    .on_free = on_free,
};
