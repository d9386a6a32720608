/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with nothing behind it: takes what clients of the Remote Execution API send and answers that all went well, as
 * directly over gRPC's C core as can be. What a real server reaches of its rate is what that server costs beyond gRPC and the
 * client. One thread polls, answers and sends.
 *
 *     null_server --listen HOST:PORT [--hash]
 *
 * Blobs that are read are zeroes of the size that the digest says. Digests whose hash ends in eight bytes of ones are
 * missing, all others are there: bench/load asks so. Action results have 20 outputs. With --hash two more threads take
 * SHA-256 of what is uploaded, while the next message of the stream comes in.
 */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "client/call.h"
#include "client/messages.h"
#include "proto/hot_messages.h"
#include "proto/resource_name.h"

enum {
    REQUESTS_POSTED = 16,
    MESSAGE_BYTES_MAX = 64 << 20,
    CHUNK_BYTES = 1 << 20, /* of a stream down */
    CANNED_BYTES = 16 << 20,
    ARENA_BYTES = 64 << 20,
    OUTPUTS = 20,
    HASHERS = 2,
};

struct exchange;

struct op {
    void (*done)(struct op *op, bool ok); /* on the poller */
    struct exchange *exchange;
};

/* One call. Freed when nothing of it is in flight. */
struct exchange {
    atomic_int references; /* ops in flight, and a hasher that has it */
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *received;
    int cancelled;
    struct op arrived, message, sent, closed;
    void (*handle)(struct exchange *exchange, grpc_byte_buffer *message);
    bool streams_up;
    uint64_t stream_bytes; /* of a Write so far */
    uint64_t left_bytes;   /* of a Read */
    bool begun;            /* initial metadata has been sent */
    struct hasher *hasher; /* owned; NULL: nothing to hash */

    struct lock lock;
    grpc_byte_buffer *held; /* guarded by lock: to be hashed next */
    bool hashing;           /* guarded by lock: in the queue, or a hasher has it */
    struct exchange *queued;
};

struct queue {
    struct lock lock;
    struct condition changed;
    struct exchange *first, **last; /* guarded by lock */
};

static grpc_completion_queue *completions;
static grpc_server *server;
static uint8_t *canned; /* CANNED_BYTES of zeroes */
static bool hashes;
static struct queue queue;
static volatile sig_atomic_t stopping;

static void post_request(void);
static void exchange_arrived(struct op *op, bool ok);
static void exchange_received(struct op *op, bool ok);
static void exchange_sent(struct op *op, bool ok);
static void exchange_closed(struct op *op, bool ok);

/* ---- one call */

static void exchange_unref(struct exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) != 1)
        return;
    if (exchange->call != NULL)
        grpc_call_unref(exchange->call);
    grpc_call_details_destroy(&exchange->details);
    grpc_metadata_array_destroy(&exchange->metadata);
    grpc_byte_buffer_destroy(exchange->received);
    grpc_byte_buffer_destroy(exchange->held);
    hasher_free(exchange->hasher);
    lock_destroy(&exchange->lock);
    free(exchange);
}

static void start(struct exchange *exchange, const grpc_op *ops, size_t count, struct op *op)
{
    atomic_fetch_add(&exchange->references, 1);
    ASSERT(grpc_call_start_batch(exchange->call, ops, count, op, NULL) == GRPC_CALL_OK);
}

static void post_request(void)
{
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    ASSERT(exchange != NULL);
    atomic_store(&exchange->references, 1);
    exchange->arrived = (struct op){exchange_arrived, exchange};
    exchange->message = (struct op){exchange_received, exchange};
    exchange->sent = (struct op){exchange_sent, exchange};
    exchange->closed = (struct op){exchange_closed, exchange};
    lock_init(&exchange->lock, LOCK_RANK_CALL);
    grpc_call_details_init(&exchange->details);
    grpc_metadata_array_init(&exchange->metadata);
    ASSERT(grpc_server_request_call(server, &exchange->call, &exchange->details,
                                    &exchange->metadata, completions, completions,
                                    &exchange->arrived) == GRPC_CALL_OK);
}

static void receive(struct exchange *exchange)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &exchange->received};
    start(exchange, &op, 1, &exchange->message);
}

/* One message, or none, and the end if it is the last. */
static void send_message(struct exchange *exchange, grpc_byte_buffer *message, bool last)
{
    grpc_op ops[3];
    size_t count = 0;
    memset(ops, 0, sizeof(ops));
    if (!exchange->begun)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    exchange->begun = true;
    if (message != NULL) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    if (last) {
        ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        ops[count++].data.send_status_from_server.status =
            message != NULL ? GRPC_STATUS_OK : GRPC_STATUS_UNIMPLEMENTED;
    }
    start(exchange, ops, count, &exchange->sent);
    grpc_byte_buffer_destroy(message);
}

static void reply(struct exchange *exchange, grpc_slice slice)
{
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    send_message(exchange, message, true);
}

static void refuse(struct exchange *exchange)
{
    send_message(exchange, NULL, true);
}

/* ---- what is answered */

/* A request as it lies there, and memory for what it says. */
struct request {
    struct message_view view;
    struct arena arena;
    struct status status;
};

static struct bytes_list request_init(struct request *request, grpc_byte_buffer *message)
{
    memset(request, 0, sizeof(*request));
    ASSERT(message_view_init(&request->view, message));
    arena_init(&request->arena, ARENA_BYTES);
    return message_view_list(&request->view);
}

static void request_free(struct request *request)
{
    arena_destroy(&request->arena);
    message_view_free(&request->view);
}

static void hash_span(struct exchange *exchange, struct wire_span data)
{
    for (struct bytes piece;
         exchange->hasher != NULL && (piece = wire_span_next(&data)).length > 0;)
        hasher_update(exchange->hasher, piece);
}

static void handle_batch_update(struct exchange *exchange, grpc_byte_buffer *message)
{
    static const struct status ok = {.code = STATUS_OK};
    struct request request;
    struct batch_update_request update;
    if (!batch_update_decode(request_init(&request, message), &request.arena, &update,
                             &request.status)) {
        refuse(exchange);
        request_free(&request);
        return;
    }
    size_t length = 0;
    for (size_t i = 0; i < update.entry_count; i++)
        length += batch_update_response_raw_entry_size(&update.entries[i].digest, &ok);
    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    for (size_t i = 0; i < update.entry_count; i++) {
        struct digest digest;
        hash_span(exchange, update.entries[i].data);
        if (exchange->hasher != NULL) {
            hasher_finish(exchange->hasher, &digest);
            hasher_reset(exchange->hasher);
        }
        to = batch_update_response_raw_entry_put(to, &update.entries[i].digest, &ok);
    }
    request_free(&request);
    reply(exchange, slice);
}

static void handle_batch_read(struct exchange *exchange, grpc_byte_buffer *message)
{
    struct request request;
    struct digests_request read;
    struct digest digest;
    const bool ok =
        batch_read_decode(request_init(&request, message), &request.arena, &read, &request.status);
    grpc_slice *slices =
        ok ? arena_take(&request.arena, 2 * read.digest_count * sizeof(*slices) + 1) : NULL;
    size_t count = 0;
    for (size_t i = 0; slices != NULL && i < read.digest_count; i++) {
        uint8_t head[BATCH_READ_HEAD_BYTES_MAX];
        if (!digest_parse(DIGEST_FUNCTION_SHA256, read.digests[i].hash_hex,
                          read.digests[i].size_bytes, &digest, &request.status) ||
            digest.size_bytes > CANNED_BYTES)
            continue;
        const size_t size = (size_t)digest.size_bytes;
        const size_t length = batch_read_entry_head(head, &digest, size, 0);
        slices[count++] = grpc_slice_from_copied_buffer((const char *)head, length);
        slices[count++] = grpc_slice_from_static_buffer(canned, size);
    }
    if (slices == NULL) {
        refuse(exchange);
    } else {
        grpc_byte_buffer *answer = grpc_raw_byte_buffer_create(slices, count);
        for (size_t i = 0; i < count; i++)
            grpc_slice_unref(slices[i]);
        send_message(exchange, answer, true);
    }
    request_free(&request);
}

static bool is_missing(const struct wire_digest *digest)
{
    return digest->hash_hex.length >= 16 &&
           memcmp(digest->hash_hex.data + digest->hash_hex.length - 16, "ffffffffffffffff", 16) ==
               0;
}

static size_t digest_bytes(const struct wire_digest *digest)
{
    return wire_bytes_field_size(1, digest->hash_hex.length) +
           wire_varint_field_size(2, (uint64_t)digest->size_bytes);
}

static void handle_find_missing(struct exchange *exchange, grpc_byte_buffer *message)
{
    struct request request;
    struct digests_request find;
    if (!find_missing_decode(request_init(&request, message), &request.arena, &find,
                             &request.status)) {
        refuse(exchange);
        request_free(&request);
        return;
    }
    size_t length = 0;
    for (size_t i = 0; i < find.digest_count; i++)
        length += is_missing(&find.digests[i])
                      ? wire_bytes_field_size(2, digest_bytes(&find.digests[i]))
                      : 0;
    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    for (size_t i = 0; i < find.digest_count; i++) {
        const struct wire_digest *digest = &find.digests[i];
        if (!is_missing(digest))
            continue;
        to = wire_put_bytes_key(to, 2, digest_bytes(digest));
        to = wire_put_bytes_field(to, 1, digest->hash_hex);
        to = wire_put_varint_field(to, 2, (uint64_t)digest->size_bytes);
    }
    request_free(&request);
    reply(exchange, slice);
}

/* CacheCapabilities with SHA-256 and batches of 4 MiB. */
static void handle_capabilities(struct exchange *exchange, grpc_byte_buffer *message)
{
    static const uint8_t answer[] = {0x0a, 0x08, 0x0a, 0x01, 0x01, 0x20, 0x80, 0x80, 0x80, 0x02};
    (void)message;
    reply(exchange, grpc_slice_from_static_buffer(answer, sizeof(answer)));
}

/* OUTPUTS times output_files { path, digest }. */
static void handle_action(struct exchange *exchange, grpc_byte_buffer *message)
{
    static const char path[] = "bazel-out/k8/bin/output-00000000.o";
    const struct digest digest = {
        .hash_length = SHA256_HASH_BYTES, .function = DIGEST_FUNCTION_SHA256, .size_bytes = 4096};
    const size_t file = wire_bytes_field_size(1, sizeof(path) - 1) +
                        wire_bytes_field_size(2, digest_message_size(&digest));
    (void)message;
    grpc_slice slice = grpc_slice_malloc(OUTPUTS * wire_bytes_field_size(2, file));
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    for (int i = 0; i < OUTPUTS; i++) {
        to = wire_put_bytes_key(to, 2, file);
        to = wire_put_bytes_field(to, 1, bytes_of_string(path));
        to = wire_put_bytes_key(to, 2, digest_message_size(&digest));
        to = digest_message_put(to, &digest);
    }
    reply(exchange, slice);
}

static void send_chunk(struct exchange *exchange)
{
    uint8_t head[READ_RESPONSE_HEAD_BYTES_MAX];
    const size_t size =
        exchange->left_bytes < CHUNK_BYTES ? (size_t)exchange->left_bytes : CHUNK_BYTES;
    const size_t head_bytes = read_response_head(head, size);
    grpc_slice slices[2] = {grpc_slice_from_copied_buffer((const char *)head, head_bytes),
                            grpc_slice_from_static_buffer(canned, size)};
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(slices, 2);
    grpc_slice_unref(slices[0]);
    exchange->left_bytes -= size;
    send_message(exchange, message, exchange->left_bytes == 0);
}

static void handle_read(struct exchange *exchange, grpc_byte_buffer *message)
{
    struct request request;
    struct wire_reader reader;
    struct wire_field field;
    struct bytes text = {0};
    struct resource_name name;
    wire_reader_init(&reader, wire_span_of_list(request_init(&request, message)));
    bool ok = true;
    while (ok && wire_reader_next(&reader, &field)) {
        if (field.number == 1 && field.type == WIRE_BYTES)
            ok = wire_span_flat(field.span, &request.arena, &text);
    }
    if (ok && resource_name_parse_read(text, &name, &request.status)) {
        exchange->left_bytes = (uint64_t)name.digest.size_bytes;
        send_chunk(exchange);
    } else {
        refuse(exchange);
    }
    request_free(&request);
}

static void handle_stream_up(struct exchange *exchange, grpc_byte_buffer *message)
{
    struct request request;
    struct write_request write;
    if (!write_request_decode(request_init(&request, message), &request.arena, &write,
                              &request.status)) {
        refuse(exchange);
        request_free(&request);
        return;
    }
    if (!write.finish_write)
        receive(exchange); /* comes in while this one is hashed */
    hash_span(exchange, write.data);
    exchange->stream_bytes += write.data.length;
    const bool last = write.finish_write;
    request_free(&request);
    if (!last)
        return;
    uint8_t answer[SMALL_RESPONSE_BYTES_MAX];
    struct digest digest;
    if (exchange->hasher != NULL)
        hasher_finish(exchange->hasher, &digest);
    const size_t length = write_response_put(answer, (int64_t)exchange->stream_bytes);
    reply(exchange, grpc_slice_from_copied_buffer((const char *)answer, length));
}

/* ---- hashers */

static void queue_put(struct exchange *exchange)
{
    lock_acquire(&queue.lock);
    exchange->queued = NULL;
    *queue.last = exchange;
    queue.last = &exchange->queued;
    condition_signal(&queue.changed);
    lock_release(&queue.lock);
}

static struct exchange *queue_take(void)
{
    lock_acquire(&queue.lock);
    while (queue.first == NULL)
        condition_wait(&queue.changed, &queue.lock);
    struct exchange *exchange = queue.first;
    queue.first = exchange->queued;
    if (queue.first == NULL)
        queue.last = &queue.first;
    lock_release(&queue.lock);
    return exchange;
}

static grpc_byte_buffer *take_held(struct exchange *exchange)
{
    lock_acquire(&exchange->lock);
    grpc_byte_buffer *message = exchange->held;
    exchange->held = NULL;
    exchange->hashing = message != NULL;
    lock_release(&exchange->lock);
    return message;
}

static void *hash(void *argument)
{
    (void)argument;
    for (;;) {
        struct exchange *exchange = queue_take();
        for (grpc_byte_buffer *message; (message = take_held(exchange)) != NULL;) {
            if (exchange->streams_up)
                handle_stream_up(exchange, message);
            else
                exchange->handle(exchange, message);
            grpc_byte_buffer_destroy(message);
        }
        exchange_unref(exchange);
    }
    return NULL;
}

static void hand_over(struct exchange *exchange, grpc_byte_buffer *message)
{
    lock_acquire(&exchange->lock);
    exchange->held = message;
    const bool wake = !exchange->hashing;
    exchange->hashing = true;
    lock_release(&exchange->lock);
    if (!wake)
        return;
    atomic_fetch_add(&exchange->references, 1);
    queue_put(exchange);
}

/* ---- what happens on the poller */

static const struct {
    const char *path;
    void (*handle)(struct exchange *exchange, grpc_byte_buffer *message);
    bool uploads;
} methods[] = {
    {METHOD_BATCH_UPDATE_BLOBS, handle_batch_update, true},
    {METHOD_BATCH_READ_BLOBS, handle_batch_read, false},
    {METHOD_FIND_MISSING_BLOBS, handle_find_missing, false},
    {METHOD_GET_CAPABILITIES, handle_capabilities, false},
    {METHOD_GET_ACTION_RESULT, handle_action, false},
    {METHOD_UPDATE_ACTION_RESULT, handle_action, false},
    {METHOD_READ, handle_read, false},
    {METHOD_WRITE, NULL, true},
};

static void exchange_arrived(struct op *op, bool ok)
{
    struct exchange *exchange = op->exchange;
    if (!ok) {
        exchange_unref(exchange);
        return;
    }
    post_request();
    const grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                           .data.recv_close_on_server.cancelled = &exchange->cancelled};
    start(exchange, &close, 1, &exchange->closed);
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        if (grpc_slice_str_cmp(exchange->details.method, methods[i].path) != 0)
            continue;
        exchange->handle = methods[i].handle;
        exchange->streams_up = methods[i].handle == NULL;
        if (methods[i].uploads && hashes)
            exchange->hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    }
    if (exchange->handle != NULL || exchange->streams_up)
        receive(exchange);
    else
        refuse(exchange);
    exchange_unref(exchange);
}

static void exchange_received(struct op *op, bool ok)
{
    struct exchange *exchange = op->exchange;
    grpc_byte_buffer *message = exchange->received;
    exchange->received = NULL;
    if (!ok || message == NULL) {
        grpc_byte_buffer_destroy(message);
        grpc_call_cancel(exchange->call, NULL);
    } else if (exchange->hasher != NULL) {
        hand_over(exchange, message);
    } else {
        if (exchange->streams_up)
            handle_stream_up(exchange, message);
        else
            exchange->handle(exchange, message);
        grpc_byte_buffer_destroy(message);
    }
    exchange_unref(exchange);
}

static void exchange_sent(struct op *op, bool ok)
{
    struct exchange *exchange = op->exchange;
    if (ok && exchange->left_bytes > 0)
        send_chunk(exchange);
    exchange_unref(exchange);
}

static void exchange_closed(struct op *op, bool ok)
{
    (void)ok;
    exchange_unref(op->exchange);
}

/* ---- the program */

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static bool poll_one(void)
{
    const gpr_timespec soon =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(200, GPR_TIMESPAN));
    const grpc_event event = grpc_completion_queue_next(completions, soon, NULL);
    if (event.type == GRPC_OP_COMPLETE && event.tag != NULL) {
        struct op *op = event.tag;
        op->done(op, event.success != 0);
    }
    return event.type != GRPC_OP_COMPLETE || event.tag != NULL;
}

static void serve(const char *listen)
{
    grpc_arg arguments[] = {
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
         .value.integer = MESSAGE_BYTES_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_ALLOW_REUSEPORT,
         .value.integer = 0},
    };
    const grpc_channel_args all = {.num_args = ARRAY_LENGTH(arguments), .args = arguments};
    completions = grpc_completion_queue_create_for_next(NULL);
    server = grpc_server_create(&all, NULL);
    grpc_server_register_completion_queue(server, completions, NULL);
    grpc_server_credentials *insecure = grpc_insecure_server_credentials_create();
    const int port = grpc_server_add_http2_port(server, listen, insecure);
    grpc_server_credentials_release(insecure);
    if (port == 0) {
        fprintf(stderr, "null_server: cannot listen at %s\n", listen);
        exit(1);
    }
    grpc_server_start(server);
    for (int i = 0; i < REQUESTS_POSTED; i++)
        post_request();
    fprintf(stderr, "null_server: serves at %s\n", listen);
    while (!stopping)
        poll_one();
    grpc_server_shutdown_and_notify(server, completions, NULL);
    grpc_server_cancel_all_calls(server);
    while (poll_one())
        continue;
}

int main(int argc, char **argv)
{
    const char *listen = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hash") == 0) {
            hashes = true;
        } else if (strcmp(argv[i], "--listen") == 0 && i + 1 < argc) {
            listen = argv[++i];
        } else {
            listen = NULL;
            break;
        }
    }
    if (listen == NULL) {
        fputs("usage: null_server --listen HOST:PORT [--hash]\n", stderr);
        return 2;
    }
    client_prepare_process(); /* malloc as a server with such messages needs it */
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    canned = calloc(1, CANNED_BYTES);
    ASSERT(canned != NULL);
    lock_init(&queue.lock, LOCK_RANK_LEAF);
    condition_init(&queue.changed);
    queue.last = &queue.first;
    pthread_t threads[HASHERS];
    for (int i = 0; hashes && i < HASHERS; i++)
        ASSERT(pthread_create(&threads[i], NULL, hash, NULL) == 0);
    grpc_init();
    serve(listen);
    return 0; /* what calls still hold ends with the process */
}
