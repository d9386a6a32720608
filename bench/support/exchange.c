/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/action_cache.h"
#include "client/call.h"
#include "client/uuid.h"
#include "proto/hot_messages.h"
#include "proto/resource_name.h"

enum {
    ANSWER_ARENA_BYTES = 16 << 20,
    /* BatchUpdateBlobsRequest and ActionResult, REAPI v2.12 */
    FIELD_INSTANCE_NAME = 1,
    FIELD_REQUESTS = 2,
    FIELD_DIGEST_FUNCTION = 5,
    FIELD_REQUEST_DIGEST = 1,
    FIELD_REQUEST_DATA = 2,
    FIELD_OUTPUT_FILES = 2,
    FIELD_FILE_PATH = 1,
    FIELD_FILE_DIGEST = 2,
    PATH_BYTES = 34,
};

struct kind {
    const char *name;
    void (*start)(struct exchange *exchange);
    /* A unary answer: how many of the names are right. NULL: streams down. */
    size_t (*judge)(struct exchange *exchange, grpc_byte_buffer *reply);
};

static const struct kind *kind_of(const struct exchange *exchange);
static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void stream_sent(void *argument, struct client_call *call);
static void stream_received(void *argument, struct client_call *call, grpc_byte_buffer *message);

static const struct client_call_handlers handlers = {.sent = stream_sent,
                                                     .received = stream_received,
                                                     .done = call_done};

bool exchange_init(struct exchange *exchange,
                   const struct exchange_world *world,
                   size_t capacity,
                   exchange_done *done,
                   void *owner)
{
    *exchange = (struct exchange){
        .world = world,
        .done = done,
        .owner = owner,
        .capacity = capacity,
        .names = calloc(capacity, sizeof(*exchange->names)),
        .digests = calloc(capacity, sizeof(*exchange->digests)),
        .seen = calloc(capacity, sizeof(*exchange->seen)),
    };
    if (exchange->names != NULL && exchange->digests != NULL && exchange->seen != NULL)
        return true;
    exchange_destroy(exchange);
    return false;
}

void exchange_destroy(struct exchange *exchange)
{
    free(exchange->names);
    free(exchange->digests);
    free(exchange->seen);
    exchange->names = NULL;
    exchange->digests = NULL;
    exchange->seen = NULL;
}

void exchange_name(struct exchange *exchange, size_t i, struct blob_name name)
{
    ASSERT(i < exchange->capacity);
    exchange->names[i] = name;
    blob_digest(exchange->world->blobs, name, &exchange->digests[i]);
}

void exchange_name_known(struct exchange *exchange,
                         size_t i,
                         struct blob_name name,
                         const uint8_t hash[SHA256_HASH_BYTES])
{
    ASSERT(i < exchange->capacity);
    struct digest *digest = &exchange->digests[i];
    exchange->names[i] = name;
    memcpy(digest->hash, hash, SHA256_HASH_BYTES);
    digest->hash_length = SHA256_HASH_BYTES;
    digest->function = DIGEST_FUNCTION_SHA256;
    digest->size_bytes = (int64_t)blob_size(exchange->world->blobs, name);
}

void exchange_name_absent(struct exchange *exchange, size_t i, uint64_t *random)
{
    uint8_t hash[SHA256_HASH_BYTES];
    for (size_t word = 0; word < SHA256_HASH_BYTES / 8; word++) {
        const uint64_t value = word == SHA256_HASH_BYTES / 8 - 1 ? UINT64_MAX : random_next(random);
        memcpy(hash + 8 * word, &value, sizeof(value));
    }
    exchange_name_known(exchange, i, (struct blob_name){UINT64_MAX, i}, hash);
}

void exchange_start(struct exchange *exchange)
{
    ASSERT(exchange->count <= exchange->capacity);
    exchange->offset = 0;
    exchange->broken = false;
    exchange->refused = 0;
    kind_of(exchange)->start(exchange);
}

static struct bytes instance(const struct exchange *exchange)
{
    return client_instance_name(exchange->world->client);
}

static struct client_call_options call_options(struct exchange *exchange, const char *method)
{
    const int64_t largest = (int64_t)blobs_largest_bytes(exchange->world->blobs);
    return (struct client_call_options){
        .method = method,
        .timeout_ns = client_stream_timeout_ns(exchange->world->client, largest),
        .loop = NULL,
        .handlers = &handlers,
        .argument = exchange,
    };
}

static void start_unary(struct exchange *exchange, const char *method, grpc_slice body)
{
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    const struct client_call_options options = call_options(exchange, method);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_unary(exchange->world->client, &options, message, &call, &status))
        call_done(exchange, &status, NULL);
}

static void start_capabilities(struct exchange *exchange)
{
    start_unary(exchange, METHOD_GET_CAPABILITIES, grpc_empty_slice());
}

static size_t judge_capabilities(struct exchange *exchange, grpc_byte_buffer *reply)
{
    return grpc_byte_buffer_length(reply) > 0 ? exchange->count : 0;
}

/* ---- BatchUpdateBlobs, BatchReadBlobs */

static size_t update_entry_bytes(const struct digest *digest)
{
    return wire_bytes_field_size(FIELD_REQUEST_DIGEST, digest_message_size(digest)) +
           wire_bytes_field_size(FIELD_REQUEST_DATA, (size_t)digest->size_bytes);
}

/* Written here and not by client/messages.h, so that each blob is copied once, from noise that is in the cache. */
static void start_put_batch(struct exchange *exchange)
{
    const struct bytes name = instance(exchange);
    size_t length = wire_bytes_field_size(FIELD_INSTANCE_NAME, name.length) +
                    wire_varint_field_size(FIELD_DIGEST_FUNCTION, DIGEST_FUNCTION_SHA256);
    for (size_t i = 0; i < exchange->count; i++)
        length += wire_bytes_field_size(FIELD_REQUESTS, update_entry_bytes(&exchange->digests[i]));
    grpc_slice body = grpc_slice_malloc(length);
    uint8_t *to = wire_put_bytes_field(GRPC_SLICE_START_PTR(body), FIELD_INSTANCE_NAME, name);
    for (size_t i = 0; i < exchange->count; i++) {
        const struct digest *digest = &exchange->digests[i];
        const size_t size = (size_t)digest->size_bytes;
        to = wire_put_bytes_key(to, FIELD_REQUESTS, update_entry_bytes(digest));
        to = wire_put_bytes_key(to, FIELD_REQUEST_DIGEST, digest_message_size(digest));
        to = digest_message_put(to, digest);
        to = wire_put_bytes_key(to, FIELD_REQUEST_DATA, size);
        blob_copy(exchange->world->blobs, exchange->names[i], 0, size, to);
        to += size;
    }
    to = wire_put_varint_field(to, FIELD_DIGEST_FUNCTION, DIGEST_FUNCTION_SHA256);
    ASSERT(to == GRPC_SLICE_END_PTR(body));
    start_unary(exchange, METHOD_BATCH_UPDATE_BLOBS, body);
}

static void start_get_batch(struct exchange *exchange)
{
    start_unary(exchange, METHOD_BATCH_READ_BLOBS,
                batch_read_request(instance(exchange), exchange->digests, exchange->count));
}

static bool span_matches(const struct exchange *exchange,
                         struct blob_name name,
                         size_t offset,
                         struct wire_span data)
{
    for (struct bytes piece; (piece = wire_span_next(&data)).length > 0;) {
        if (!blob_matches(exchange->world->blobs, name, offset, piece))
            return false;
        offset += piece.length;
    }
    return true;
}

/* Which of the names that is and that has not been seen; answers mostly come in order. */
static size_t take_name(struct exchange *exchange, size_t guess, const struct digest *digest)
{
    if (guess < exchange->count && !exchange->seen[guess] &&
        digest_equal(digest, &exchange->digests[guess]))
        return guess;
    for (size_t i = 0; i < exchange->count; i++) {
        if (!exchange->seen[i] && digest_equal(digest, &exchange->digests[i]))
            return i;
    }
    return SIZE_MAX;
}

static bool entry_right(struct exchange *exchange,
                        enum batch_response_kind kind,
                        size_t position,
                        const struct batch_response_entry *entry)
{
    const size_t i = take_name(exchange, position, &entry->digest);
    if (i == SIZE_MAX)
        return false;
    exchange->seen[i] = true;
    if (kind == BATCH_UPDATE_RESPONSE)
        return true;
    return entry->data.length == (size_t)exchange->digests[i].size_bytes &&
           (!exchange->world->verify || span_matches(exchange, exchange->names[i], 0, entry->data));
}

static size_t judge_batch(struct exchange *exchange,
                          grpc_byte_buffer *reply,
                          enum batch_response_kind kind)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    struct arena arena;
    arena_init(&arena, ANSWER_ARENA_BYTES);
    struct wire_reader reader;
    wire_reader_init(&reader, wire_span_of_list(message_view_list(&view)));
    memset(exchange->seen, 0, exchange->count * sizeof(*exchange->seen));
    struct batch_response_entry entry;
    struct status status = {0};
    size_t right = 0;
    bool more = true;
    for (size_t position = 0;; position++) {
        if (!batch_response_next(&reader, kind, &arena, &entry, &more, &status) || !more)
            break;
        /* An update without a status: some servers encode OK as no message. */
        const bool ok = entry.result.code == STATUS_OK ||
                        (kind == BATCH_UPDATE_RESPONSE && entry.result.code == STATUS_UNKNOWN &&
                         strstr(entry.result.message, "no status") != NULL);
        if (ok) {
            right += entry_right(exchange, kind, position, &entry);
        } else {
            exchange->refused++;
            exchange->entry = entry.result;
        }
    }
    arena_destroy(&arena);
    message_view_free(&view);
    return right;
}

static size_t judge_put_batch(struct exchange *exchange, grpc_byte_buffer *reply)
{
    return judge_batch(exchange, reply, BATCH_UPDATE_RESPONSE);
}

static size_t judge_get_batch(struct exchange *exchange, grpc_byte_buffer *reply)
{
    return judge_batch(exchange, reply, BATCH_READ_RESPONSE);
}

/* ---- FindMissingBlobs */

static void start_find(struct exchange *exchange)
{
    start_unary(exchange, METHOD_FIND_MISSING_BLOBS,
                find_missing_request(instance(exchange), exchange->digests, exchange->count));
}

/* Only the number of those missing is looked at: decoding 10,000 digests would be most of the client's work. */
static size_t judge_find(struct exchange *exchange, grpc_byte_buffer *reply)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    struct wire_reader reader;
    struct wire_field field;
    size_t missing = 0;
    wire_reader_init(&reader, wire_span_of_list(message_view_list(&view)));
    while (wire_reader_next(&reader, &field))
        missing += field.number == 2 && field.type == WIRE_BYTES;
    message_view_free(&view);
    if (reader.failed || missing > exchange->count)
        return 0;
    const size_t expected = exchange->missing_expected;
    return exchange->count - (missing > expected ? missing - expected : expected - missing);
}

/* ---- ByteStream */

static grpc_byte_buffer *next_chunk(struct exchange *exchange, enum client_call_more *more)
{
    const struct exchange_world *world = exchange->world;
    const size_t size = (size_t)exchange->digests[0].size_bytes;
    const size_t offset = exchange->offset;
    const size_t left = size - offset;
    const size_t length = left < world->chunk_bytes ? left : world->chunk_bytes;
    grpc_slice data = grpc_slice_malloc(length);
    blob_copy(world->blobs, exchange->names[0], offset, length, GRPC_SLICE_START_PTR(data));
    exchange->offset += length;
    *more = exchange->offset == size ? CLIENT_CALL_LAST : CLIENT_CALL_MORE;
    return write_request_message(offset == 0 ? exchange->resource : NULL, offset, data,
                                 *more == CLIENT_CALL_LAST);
}

static void start_put_stream(struct exchange *exchange)
{
    char uuid[UUID_TEXT_BYTES];
    uuid_random(uuid);
    ASSERT(resource_name_format(exchange->resource, sizeof(exchange->resource), instance(exchange),
                                uuid, COMPRESSOR_IDENTITY, &exchange->digests[0]));
    enum client_call_more more;
    grpc_byte_buffer *first = next_chunk(exchange, &more);
    const struct client_call_options options = call_options(exchange, METHOD_WRITE);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_stream_up(exchange->world->client, &options, first, more, &call, &status))
        call_done(exchange, &status, NULL);
}

static void stream_sent(void *argument, struct client_call *call)
{
    enum client_call_more more;
    grpc_byte_buffer *message = next_chunk(argument, &more);
    client_call_send(call, message, more);
}

static size_t judge_put_stream(struct exchange *exchange, grpc_byte_buffer *reply)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    int64_t committed_bytes;
    bool complete;
    struct status status = {0};
    const bool ok =
        write_status_response(message_view_list(&view), &committed_bytes, &complete, &status);
    message_view_free(&view);
    return ok && committed_bytes == exchange->digests[0].size_bytes ? 1 : 0;
}

static void start_get_stream(struct exchange *exchange)
{
    ASSERT(resource_name_format(exchange->resource, sizeof(exchange->resource), instance(exchange),
                                NULL, COMPRESSOR_IDENTITY, &exchange->digests[0]));
    grpc_slice body = read_request(exchange->resource, 0);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    const struct client_call_options options = call_options(exchange, METHOD_READ);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_stream_down(exchange->world->client, &options, message, &call, &status))
        call_done(exchange, &status, NULL);
}

static void stream_received(void *argument, struct client_call *call, grpc_byte_buffer *message)
{
    struct exchange *exchange = argument;
    struct message_view view;
    struct wire_span data;
    struct status status = {0};
    bool good = false;
    if (message_view_init(&view, message)) {
        if (read_response_data(message_view_list(&view), &data, &status)) {
            good = !exchange->world->verify ||
                   span_matches(exchange, exchange->names[0], exchange->offset, data);
            exchange->offset += data.length;
        }
        message_view_free(&view);
    }
    exchange->broken = exchange->broken || !good;
    grpc_byte_buffer_destroy(message);
    client_call_receive(call);
}

/* ---- action results */

static size_t output_bytes(const struct digest *digest)
{
    return wire_bytes_field_size(FIELD_FILE_PATH, PATH_BYTES) +
           wire_bytes_field_size(FIELD_FILE_DIGEST, digest_message_size(digest));
}

/* An ActionResult whose output files are the names. */
static uint8_t *encode_result(const struct exchange *exchange, size_t *length)
{
    *length = 0;
    for (size_t i = 0; i < exchange->count; i++)
        *length += wire_bytes_field_size(FIELD_OUTPUT_FILES, output_bytes(&exchange->digests[i]));
    uint8_t *result = malloc(*length + 1);
    ASSERT(result != NULL);
    uint8_t *to = result;
    for (size_t i = 0; i < exchange->count; i++) {
        const struct digest *digest = &exchange->digests[i];
        char path[PATH_BYTES + 16];
        snprintf(path, sizeof(path), "bazel-out/k8/bin/output-%08zu.o", i % 100000000);
        to = wire_put_bytes_key(to, FIELD_OUTPUT_FILES, output_bytes(digest));
        to = wire_put_bytes_field(to, FIELD_FILE_PATH, bytes_of(path, PATH_BYTES));
        to = wire_put_bytes_key(to, FIELD_FILE_DIGEST, digest_message_size(digest));
        to = digest_message_put(to, digest);
    }
    ASSERT(to == result + *length);
    return result;
}

static void start_put_action(struct exchange *exchange)
{
    size_t length;
    uint8_t *result = encode_result(exchange, &length);
    start_unary(exchange, METHOD_UPDATE_ACTION_RESULT,
                action_cache_update_request(instance(exchange), &exchange->action,
                                            bytes_of(result, length)));
    free(result);
}

static void start_get_action(struct exchange *exchange)
{
    start_unary(exchange, METHOD_GET_ACTION_RESULT,
                action_cache_get_request(instance(exchange), &exchange->action));
}

static bool file_is(const struct exchange *exchange,
                    struct wire_span file,
                    size_t i,
                    struct arena *arena)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, file);
    while (i < exchange->count && wire_reader_next(&reader, &field)) {
        struct wire_digest wire;
        struct digest digest;
        struct status status = {0};
        if (field.number != FIELD_FILE_DIGEST || field.type != WIRE_BYTES)
            continue;
        return wire_digest_decode(field.span, arena, &wire, &status) &&
               digest_parse(DIGEST_FUNCTION_SHA256, wire.hash_hex, wire.size_bytes, &digest,
                            &status) &&
               digest_equal(&digest, &exchange->digests[i]);
    }
    return false;
}

/* Servers may encode it anew and add to it, so that only the output files are looked at: one result. */
static size_t judge_action(struct exchange *exchange, grpc_byte_buffer *reply)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    struct arena arena;
    arena_init(&arena, ANSWER_ARENA_BYTES);
    struct wire_reader reader;
    struct wire_field field;
    size_t files = 0, right = 0;
    wire_reader_init(&reader, wire_span_of_list(message_view_list(&view)));
    while (wire_reader_next(&reader, &field)) {
        if (field.number != FIELD_OUTPUT_FILES || field.type != WIRE_BYTES)
            continue;
        right += !exchange->world->verify || file_is(exchange, field.span, files, &arena);
        files++;
    }
    const bool good = !reader.failed && files == exchange->count && right == files;
    arena_destroy(&arena);
    message_view_free(&view);
    return good ? 1 : 0;
}

/* ---- the end of each */

static const struct kind kinds[EXCHANGE_KIND_COUNT] = {
    [EXCHANGE_CAPABILITIES] = {"capabilities", start_capabilities, judge_capabilities},
    [EXCHANGE_PUT_BATCH] = {"put-batch", start_put_batch, judge_put_batch},
    [EXCHANGE_PUT_STREAM] = {"put-stream", start_put_stream, judge_put_stream},
    [EXCHANGE_GET_BATCH] = {"get-batch", start_get_batch, judge_get_batch},
    [EXCHANGE_GET_STREAM] = {"get-stream", start_get_stream, NULL},
    [EXCHANGE_FIND] = {"find", start_find, judge_find},
    [EXCHANGE_PUT_ACTION] = {"put-action", start_put_action, judge_action},
    [EXCHANGE_GET_ACTION] = {"get-action", start_get_action, judge_action},
};

static const struct kind *kind_of(const struct exchange *exchange)
{
    return &kinds[exchange->kind];
}

const char *exchange_kind_name(enum exchange_kind kind)
{
    return kinds[kind].name;
}

static bool moves_blobs(enum exchange_kind kind)
{
    return kind == EXCHANGE_PUT_BATCH || kind == EXCHANGE_PUT_STREAM ||
           kind == EXCHANGE_GET_BATCH || kind == EXCHANGE_GET_STREAM;
}

static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct exchange *exchange = argument;
    const bool action =
        exchange->kind == EXCHANGE_GET_ACTION || exchange->kind == EXCHANGE_PUT_ACTION;
    const size_t asked = action ? 1 : exchange->count;
    struct exchange_result result = {.status = status};
    if (reply != NULL) {
        result.right = kind_of(exchange)->judge(exchange, reply);
        grpc_byte_buffer_destroy(reply);
    } else if (status->code == STATUS_OK) {
        const size_t size = (size_t)exchange->digests[0].size_bytes;
        result.right = exchange->offset == size && !exchange->broken ? 1 : 0;
    }
    result.refused = exchange->refused;
    if (result.refused > 0)
        result.entry = exchange->entry;
    if (status->code == STATUS_OK && asked > result.right + result.refused)
        result.wrong = asked - result.right - result.refused;
    for (size_t i = 0; result.right == asked && moves_blobs(exchange->kind) && i < asked; i++)
        result.bytes += (uint64_t)exchange->digests[i].size_bytes;
    exchange->done(exchange, &result);
}
