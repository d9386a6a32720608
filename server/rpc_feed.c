/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve.v1.Replication/Feed: what became durable after a position. At the end of the log the call waits, without a thread, until
 * the log goes on or its time is over.
 *
 *   on_message ─► report ─► read ─┬─► something, or nobody is to wait: reply
 *                            ▲    └─► parked
 *                            └──────── woken
 */
#include <inttypes.h>

#include "durability/feed.h"
#include "proto/wire.h"
#include "server/feed_waits.h"
#include "server/methods.h"
#include "server/server.h"
#include "store/write_time.h"
#include "varve/v1/replication.pb-c.h"

typedef Varve__V1__FeedRequest feed_request;

enum { RECORDS_MAX = 4096, WAIT_MS_MAX = 60000 };
/* Of action results; with the names of RECORDS_MAX others, and one result that is larger, below LIMIT_RESPONSE_BYTES. */
#define RESULT_BYTES_MAX (2 * MIB)
#define ARENA_BYTES_MAX (16 * MIB)
/* What an answer takes on its way, when the call has a deadline. */
#define ANSWER_NS (200 * NS_PER_MS)

/* Fields of varve.v1.FeedResponse and varve.v1.FeedRecord. */
enum {
    RESPONSE_NODE_UID = 1,
    RESPONSE_RECORDS = 2,
    RESPONSE_NEXT_AFTER_SEQ = 3,
    RESPONSE_DURABLE_SEQ = 4,
    RESPONSE_OLDEST_SEQ = 5,
    RESPONSE_BEHIND_BYTES = 6,
    RESPONSE_WRITE_TIME = 7,
    RECORD_SEQ = 1,
    RECORD_RECORD_KIND = 2,
    RECORD_DIGEST_FUNCTION = 3,
    RECORD_HASH = 4,
    RECORD_SIZE_BYTES = 5,
    RECORD_STORED_BYTES = 6,
    RECORD_INSTANCE_NAME = 7,
    RECORD_WRITER = 8,
    RECORD_WRITTEN_UNIX_NS = 9,
    RECORD_ORIGIN_UID = 10,
    RECORD_ACTION_RESULT = 11,
    RECORD_FORGOTTEN_KIND = 12,
};

struct state {
    struct feed_waiter waiter;
    struct feed_query query;
    uint64_t durable_seq; /* the follower's */
    uint64_t follower_uid;
    struct bytes name, address; /* in the call's arena */
    struct arena arena;         /* of one batch */
};

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status);
static bool check(struct call *call, const feed_request *request, struct status *status);
static void report(struct call *call, const struct state *state);
static void read_log(struct call *call, void *state);
static void reply(struct call *call, const struct feed_batch *batch);
static size_t entry_size(const struct feed_entry *entry);
static uint8_t *entry_put(uint8_t *to, const struct feed_entry *entry);
static size_t number_size(uint32_t field, uint64_t value);
static uint8_t *number_put(uint8_t *to, uint32_t field, uint64_t value);
static size_t bytes_size(uint32_t field, struct bytes bytes);
static uint8_t *bytes_put(uint8_t *to, uint32_t field, struct bytes bytes);

static void on_message(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    arena_init(&state->arena, ARENA_BYTES_MAX);
    if (start(call, state, message, &status))
        read_log(call, state);
    else
        call_fail(call, &status);
}

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status)
{
    struct server *const server = call_server(call);
    const feed_request *const request = (const feed_request *)(void *)call_unpack(
        call, message, &varve__v1__feed_request__descriptor, status);
    if (request == NULL || !check(call, request, status))
        return false;
    state->query = (struct feed_query){
        .lane = request->lane == VARVE__V1__LANE__LANE_SMALL ? LANE_SMALL : LANE_LARGE,
        .after_seq = request->after_seq,
        .records_max = request->max_records < RECORDS_MAX ? request->max_records : RECORDS_MAX,
        .bytes_max = RESULT_BYTES_MAX,
        .kinds = FEED_ALL,
    };
    state->follower_uid = request->follower_uid;
    state->durable_seq = request->follower_durable_seq;
    state->name = bytes_of_string(request->follower_name);
    state->address = bytes_of_string(call_peer(call));
    const uint32_t wait_ms = request->max_records > 0 ? request->wait_ms : 0;
    state->waiter.call = call;
    state->waiter.lane = state->query.lane;
    state->waiter.until_ns = clock_monotonic_ns(server->clock) + wait_ms * (int64_t)NS_PER_MS;
    if (call_deadline_ns(call) - ANSWER_NS < state->waiter.until_ns)
        state->waiter.until_ns = call_deadline_ns(call) - ANSWER_NS;
    report(call, state);
    return wait_ms == 0 || feed_waits_begin(server->feed_waits, &state->waiter, status);
}

static bool check(struct call *call, const feed_request *request, struct status *status)
{
    struct server *const server = call_server(call);
    if (!feed_check_node(durability_feed(server->durability), request->node_uid, status))
        return false;
    if (request->lane != VARVE__V1__LANE__LANE_SMALL &&
        request->lane != VARVE__V1__LANE__LANE_LARGE)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "lane %d is none", (int)request->lane);
    if (request->wait_ms > WAIT_MS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "wait_ms is %u, at most %d are waited",
                           request->wait_ms, WAIT_MS_MAX);
    if (strlen(request->follower_name) > FOLLOWER_NAME_BYTES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "follower_name has %zu bytes, at most %d are taken",
                           strlen(request->follower_name), FOLLOWER_NAME_BYTES_MAX);
    const enum lane lane = request->lane == VARVE__V1__LANE__LANE_SMALL ? LANE_SMALL : LANE_LARGE;
    const uint64_t end = copies_published_seq(durability_copies(server->durability), lane);
    if (request->follower_durable_seq > end)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "follower_durable_seq %" PRIu64 " is beyond the end of the %s lane, "
                           "%" PRIu64 ": this store has lost what was told, or was put back to an "
                           "older state; begin anew with after_seq 0",
                           request->follower_durable_seq, lane_name(lane), end);
    return true;
}

static void report(struct call *call, const struct state *state)
{
    const int64_t left_ns = state->waiter.until_ns - clock_monotonic_ns(call_server(call)->clock);
    const struct follower_report report = {
        .uid = state->follower_uid,
        .name = state->name,
        .address = state->address,
        .lane = state->query.lane,
        .durable_seq = state->durable_seq,
        .wait_ns = left_ns > 0 ? left_ns : 0,
    };
    copies_report(durability_copies(call_server(call)->durability), &report);
}

/* From the start, and after each wait. */
static void read_log(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    struct server *const server = call_server(call);
    struct feed_batch batch;
    struct status status = {0};
    if (call_cancelled(call) && clock_monotonic_ns(server->clock) < call_deadline_ns(call)) {
        status_fail(&status, STATUS_CANCELLED, "the follower has given up");
        call_fail(call, &status);
        return;
    }
    arena_destroy(&state->arena);
    arena_init(&state->arena, ARENA_BYTES_MAX);
    if (!feed_read(durability_feed(server->durability), &state->query, &state->arena, &batch,
                   &status)) {
        call_fail(call, &status);
        return;
    }
    if (batch.count == 0 && batch.next_after_seq > state->query.after_seq) {
        /* It need not be told to have dealt with what there is nothing to tell of. */
        const bool passed = state->durable_seq >= state->query.after_seq;
        state->query.after_seq = batch.next_after_seq;
        if (passed) {
            state->durable_seq = batch.next_after_seq;
            report(call, state);
        }
    }
    if (batch.count > 0 || !state->waiter.waiting ||
        clock_monotonic_ns(server->clock) >= state->waiter.until_ns ||
        feed_waits_stopped(server->feed_waits)) {
        metrics_add(server->metrics, METRIC_FEED_RECORDS, (int64_t)batch.count);
        reply(call, &batch);
    } else if (batch.more) {
        call_resume(call, read_log); /* others' turn in between */
    } else {
        call_park(call, read_log);
    }
}

static void reply(struct call *call, const struct feed_batch *batch)
{
    struct store *const store = call_server(call)->store;
    const uint64_t node_uid = store->node_uid;
    const uint64_t write_time_ns = (uint64_t)write_time_latest(store);
    size_t size = number_size(RESPONSE_NODE_UID, node_uid) +
                  number_size(RESPONSE_NEXT_AFTER_SEQ, batch->next_after_seq) +
                  number_size(RESPONSE_DURABLE_SEQ, batch->published_seq) +
                  number_size(RESPONSE_OLDEST_SEQ, batch->oldest_seq) +
                  number_size(RESPONSE_BEHIND_BYTES, batch->behind_bytes) +
                  number_size(RESPONSE_WRITE_TIME, write_time_ns);
    for (size_t i = 0; i < batch->count; i++)
        size += wire_bytes_field_size(RESPONSE_RECORDS, entry_size(&batch->entries[i]));
    grpc_slice slice = grpc_slice_malloc(size);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    to = number_put(to, RESPONSE_NODE_UID, node_uid);
    for (size_t i = 0; i < batch->count; i++) {
        to = wire_put_bytes_key(to, RESPONSE_RECORDS, entry_size(&batch->entries[i]));
        to = entry_put(to, &batch->entries[i]);
    }
    to = number_put(to, RESPONSE_NEXT_AFTER_SEQ, batch->next_after_seq);
    to = number_put(to, RESPONSE_DURABLE_SEQ, batch->published_seq);
    to = number_put(to, RESPONSE_OLDEST_SEQ, batch->oldest_seq);
    to = number_put(to, RESPONSE_BEHIND_BYTES, batch->behind_bytes);
    to = number_put(to, RESPONSE_WRITE_TIME, write_time_ns);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    call_reply(call, &slice, 1);
}

/* What Fetch or ByteStream.Read would send. */
static uint64_t told_bytes(const struct feed_entry *entry)
{
    return entry->kind == RECORD_MANIFEST ? (uint64_t)entry->digest.size_bytes
                                          : entry->payload_bytes;
}

static struct bytes hash_of(const struct feed_entry *entry)
{
    return bytes_of(entry->digest.hash, entry->digest.hash_length);
}

static size_t entry_size(const struct feed_entry *entry)
{
    return number_size(RECORD_SEQ, entry->seq) + number_size(RECORD_RECORD_KIND, entry->kind) +
           number_size(RECORD_DIGEST_FUNCTION, entry->digest.function) +
           bytes_size(RECORD_HASH, hash_of(entry)) +
           number_size(RECORD_SIZE_BYTES, (uint64_t)entry->digest.size_bytes) +
           number_size(RECORD_STORED_BYTES, told_bytes(entry)) +
           bytes_size(RECORD_INSTANCE_NAME, entry->instance) +
           bytes_size(RECORD_WRITER, entry->writer) +
           number_size(RECORD_WRITTEN_UNIX_NS, (uint64_t)entry->wall_ns) +
           number_size(RECORD_ORIGIN_UID, entry->origin_uid) +
           bytes_size(RECORD_ACTION_RESULT, entry->result) +
           number_size(RECORD_FORGOTTEN_KIND, entry->forgotten);
}

static uint8_t *entry_put(uint8_t *to, const struct feed_entry *entry)
{
    to = number_put(to, RECORD_SEQ, entry->seq);
    to = number_put(to, RECORD_RECORD_KIND, entry->kind);
    to = number_put(to, RECORD_DIGEST_FUNCTION, entry->digest.function);
    to = bytes_put(to, RECORD_HASH, hash_of(entry));
    to = number_put(to, RECORD_SIZE_BYTES, (uint64_t)entry->digest.size_bytes);
    to = number_put(to, RECORD_STORED_BYTES, told_bytes(entry));
    to = bytes_put(to, RECORD_INSTANCE_NAME, entry->instance);
    to = bytes_put(to, RECORD_WRITER, entry->writer);
    to = number_put(to, RECORD_WRITTEN_UNIX_NS, (uint64_t)entry->wall_ns);
    to = number_put(to, RECORD_ORIGIN_UID, entry->origin_uid);
    to = bytes_put(to, RECORD_ACTION_RESULT, entry->result);
    return number_put(to, RECORD_FORGOTTEN_KIND, entry->forgotten);
}

static size_t number_size(uint32_t field, uint64_t value)
{
    return value == 0 ? 0 : wire_varint_field_size(field, value);
}

static uint8_t *number_put(uint8_t *to, uint32_t field, uint64_t value)
{
    return value == 0 ? to : wire_put_varint_field(to, field, value);
}

static size_t bytes_size(uint32_t field, struct bytes bytes)
{
    return bytes.length == 0 ? 0 : wire_bytes_field_size(field, bytes.length);
}

static uint8_t *bytes_put(uint8_t *to, uint32_t field, struct bytes bytes)
{
    return bytes.length == 0 ? to : wire_put_bytes_field(to, field, bytes);
}

static void on_free(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    feed_waits_end(call_server(call)->feed_waits, &state->waiter);
    arena_destroy(&state->arena);
}

const struct method rpc_feed = {
    .path = "/varve.v1.Replication/Feed",
    .kind = METHOD_UNARY,
    .role = ROLE_REPLICATE,
    .waits = true,
    .state_bytes = sizeof(struct state),
    .on_message = on_message,
    .on_free = on_free,
};
