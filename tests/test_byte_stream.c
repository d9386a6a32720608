/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what clients see of google.bytestream: a server with its three methods, a real store and a real gRPC client in one
 * process, over loopback. Each way in which an upload can go wrong is gone, and then the blob must be missing, or whole; each test
 * is named after what a user of some cache has met. At the end of each, no buffer, no call and no byte of the budget is left.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include "proto/resource_name.h"
#include "proto/wire.h"
#include "server/instance_metrics.h"
#include "server/methods.h"
#include "server/uploads.h"
#include "tests/support/front_rig.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

enum { NAME_BYTES_MAX = 512, POOLED = 12, GRACE_MS = 5000, MESSAGE_BYTES = 256 * 1024 };

static const char write_path[] = "/google.bytestream.ByteStream/Write";
static const char read_path[] = "/google.bytestream.ByteStream/Read";
static const char query_path[] = "/google.bytestream.ByteStream/QueryWriteStatus";

static struct front_rig rig;
static struct real_store real;
static struct thread housekeeper;
static atomic_bool keeping_house;
static struct status status;

static void keep_house(void *argument)
{
    while (atomic_load(&keeping_house)) {
        upload_table_step(argument);
        usleep(50 * 1000);
    }
}

static void prepare(struct front_rig *made)
{
    made->config.max_blob_bytes = GIB;
    made->server.buffers = real.buffers;
    made->server.store = real.store;
    made->server.durability = real.durability;
    ck_assert(upload_table_new(real.store, clock_real(), &made->metrics, 300 * NS_PER_S,
                               &made->server.uploads, &status));
}

static void set_up(void)
{
    static const struct method *const methods[] = {&rpc_write, &rpc_read, &rpc_query_write_status};
    static const struct front_rig_limits limits = {.prepare = prepare};
    static struct metrics metrics;
    metrics = (struct metrics){0};
    real_store_open(&real, &metrics, POOLED);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), &limits);
    atomic_store(&keeping_house, true);
    housekeeper = (struct thread){0};
    ck_assert(thread_start(&housekeeper, "maint", 0, keep_house, rig.server.uploads, &status));
}

static void set_up_nothing_cached(void)
{
    set_up();
    atomic_store(&real.nothing_cached, true);
}

static void tear_down(void)
{
    front_rig_stop(&rig, GRACE_MS);
    atomic_store(&keeping_house, false);
    thread_join(&housekeeper);
    upload_table_free(rig.server.uploads);
    real_store_close(&real);
}

/* ---- blobs and messages */

struct blob {
    uint8_t *data;
    size_t size;
    struct digest digest;
    char write_name[NAME_BYTES_MAX];
    char read_name[NAME_BYTES_MAX];
};

static void name_blob(struct blob *blob, const char *uuid, enum compressor compressor)
{
    const struct bytes instance = bytes_of_string("main");
    ck_assert(resource_name_format(blob->write_name, NAME_BYTES_MAX, instance, uuid, compressor,
                                   &blob->digest));
    ck_assert(resource_name_format(blob->read_name, NAME_BYTES_MAX, instance, NULL, compressor,
                                   &blob->digest));
}

/* Half of it can be compressed. */
static struct blob make_blob(uint64_t seed, size_t size)
{
    struct blob blob = {.data = malloc(size + 8), .size = size};
    struct prng prng = {seed};
    ck_assert_ptr_nonnull(blob.data);
    for (size_t i = 0; i < size; i += 8) {
        const uint64_t number = i % 8192 < 4096 ? prng_next(&prng) : seed;
        memcpy(blob.data + i, &number, sizeof(number));
    }
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(blob.data, size), &blob.digest);
    name_blob(&blob, "0b1f9d5e-7a3c-4d7e-9a55-0f7c2f6f2a11", COMPRESSOR_IDENTITY);
    return blob;
}

static void start_send(struct rpc *rpc,
                       const char *name,
                       int64_t offset,
                       struct bytes data,
                       bool finish)
{
    struct byte_builder message = {0};
    if (name)
        message_add_text(&message, 1, name);
    if (offset != 0)
        message_add_number(&message, 2, (uint64_t)offset);
    if (finish)
        message_add_number(&message, 3, 1);
    if (data.length > 0)
        message_add(&message, 10, data);
    rpc_start_send(rpc, message_bytes(&message));
    byte_builder_free(&message);
}

/* Bytes `from` to `to` of data, which is that of the blob or a form of it; the first message is named. */
static void send_range(struct rpc *rpc,
                       const struct blob *blob,
                       struct bytes data,
                       size_t from,
                       size_t to,
                       bool finish)
{
    size_t at = from;
    do {
        const size_t length = to - at < MESSAGE_BYTES ? to - at : MESSAGE_BYTES;
        start_send(rpc, at == from ? blob->write_name : NULL, (int64_t)at,
                   bytes_of(data.data + at, length), finish && at + length == to);
        at += length;
    } while (at < to);
}

static struct bytes plain(const struct blob *blob)
{
    return bytes_of(blob->data, blob->size);
}

static int64_t number_in(const uint8_t *message, size_t length, uint32_t number)
{
    const struct bytes bytes = bytes_of(message, length);
    struct wire_reader reader;
    struct wire_field field;
    int64_t found = 0;
    wire_reader_init(&reader, wire_span_of_bytes(&bytes));
    while (wire_reader_next(&reader, &field))
        if (field.number == number)
            found = (int64_t)field.value;
    return found;
}

/* Waits for the answer: its code, and *committed_size when it is OK. */
static grpc_status_code end_write(struct rpc *rpc, int64_t *committed_size)
{
    size_t length;
    uint8_t *const response = rpc_receive(rpc, &length);
    if (response)
        *committed_size = number_in(response, length, 1);
    free(response);
    return rpc_end(rpc);
}

static grpc_status_code write_all(struct rpc_client *client,
                                  const struct blob *blob,
                                  struct bytes data,
                                  int64_t *committed_size)
{
    struct rpc rpc;
    rpc_begin(&rpc, client, write_path);
    send_range(&rpc, blob, data, 0, data.length, true);
    return end_write(&rpc, committed_size);
}

static void write_ok(const struct blob *blob)
{
    int64_t committed_size = 0;
    ck_assert_int_eq(write_all(&rig.client, blob, plain(blob), &committed_size), GRPC_STATUS_OK);
    ck_assert_int_eq(committed_size, (int64_t)blob->size);
}

/* ---- reading back */

struct read_back {
    uint8_t *data; /* freed by the caller */
    size_t length;
    size_t messages;
};

static void add_message(struct read_back *read, const uint8_t *message, size_t length)
{
    const struct bytes bytes = bytes_of(message, length);
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&bytes));
    while (wire_reader_next(&reader, &field)) {
        ck_assert_int_eq(field.number, 10);
        read->data = realloc(read->data, read->length + field.span.length + 1);
        ck_assert_ptr_nonnull(read->data);
        wire_span_copy(field.span, read->data + read->length);
        read->length += field.span.length;
    }
    read->messages++;
}

static void begin_read(struct rpc *rpc,
                       struct rpc_client *client,
                       const char *name,
                       int64_t offset,
                       int64_t limit)
{
    struct byte_builder request = {0};
    message_add_text(&request, 1, name);
    message_add_number(&request, 2, (uint64_t)offset);
    message_add_number(&request, 3, (uint64_t)limit);
    rpc_begin(rpc, client, read_path);
    rpc_start_send(rpc, message_bytes(&request));
    byte_builder_free(&request);
}

static grpc_status_code read_range(const char *name,
                                   int64_t offset,
                                   int64_t limit,
                                   struct read_back *read)
{
    struct rpc rpc;
    size_t length;
    uint8_t *message;
    *read = (struct read_back){0};
    begin_read(&rpc, &rig.client, name, offset, limit);
    while ((message = rpc_receive(&rpc, &length)) != NULL) {
        add_message(read, message, length);
        free(message);
    }
    return rpc_end(&rpc);
}

static void expect_range(const struct blob *blob, size_t offset, size_t limit, size_t length)
{
    struct read_back read;
    ck_assert_int_eq(read_range(blob->read_name, (int64_t)offset, (int64_t)limit, &read),
                     GRPC_STATUS_OK);
    ck_assert_uint_eq(read.length, length);
    if (length > 0)
        ck_assert(memcmp(read.data, blob->data + offset, length) == 0);
    free(read.data);
}

static void expect_there(const struct blob *blob)
{
    ck_assert(store_has_blob(real.store, &blob->digest));
    expect_range(blob, 0, 0, blob->size);
}

static void expect_missing(const struct blob *blob)
{
    struct read_back read;
    ck_assert(!store_has_blob(real.store, &blob->digest));
    ck_assert_int_eq(read_range(blob->read_name, 0, 0, &read), GRPC_STATUS_NOT_FOUND);
    ck_assert_uint_eq(read.messages, 0);
}

static int64_t query(const struct blob *blob, bool *complete)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    message_add_text(&request, 1, blob->write_name);
    ck_assert_int_eq(
        rpc_unary(&rig.client, query_path, message_bytes(&request), &response, &length, NULL),
        GRPC_STATUS_OK);
    byte_builder_free(&request);
    const int64_t committed_size = number_in(response, length, 1);
    *complete = number_in(response, length, 2) != 0;
    free(response);
    return committed_size;
}

/* Sends the first `length` bytes and goes away; returns when the server has noticed. */
static void break_off_at(const struct blob *blob, size_t length)
{
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, write_path);
    send_range(&rpc, blob, plain(blob), 0, length, false);
    bool complete;
    for (int i = 0; i < 5000 && blob->size > MIB && query(blob, &complete) < (int64_t)length; i++)
        usleep(1000);
    rpc_cancel(&rpc);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_CANCELLED);
    front_rig_wait_live(&rig, 0);
}

/* ---- nothing unfinished or wrong is ever visible */

static const size_t sizes[] = {1, 1000, 100000, MIB, MIB + 1, 4 * MIB, 4 * MIB + 12345};

START_TEST(byte_stream_stores_blobs_of_any_size)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_hides_an_upload_that_ends_without_finish)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        struct rpc rpc;
        int64_t committed_size;
        rpc_begin(&rpc, &rig.client, write_path);
        send_range(&rpc, &blob, plain(&blob), 0, blob.size, false);
        ck_assert(rpc_half_close(&rpc));
        ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_hides_an_upload_that_is_cancelled_or_loses_its_connection)
{
    for (size_t i = 1; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        break_off_at(&blob, blob.size / 2);
        expect_missing(&blob);

        struct rpc_client other;
        struct rpc rpc;
        rpc_client_open(&other, front_port(rig.front));
        rpc_begin(&rpc, &other, write_path);
        send_range(&rpc, &blob, plain(&blob), 0, blob.size / 2, false);
        rpc_cancel(&rpc);
        rpc_end(&rpc);
        rpc_client_close(&other);
        front_rig_wait_live(&rig, 0);
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_refuses_too_few_too_many_and_wrong_bytes)
{
    for (size_t i = 1; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        int64_t committed_size;
        struct bytes data = plain(&blob);
        data.length--;
        ck_assert_int_eq(write_all(&rig.client, &blob, data, &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        data.length = blob.size + 1;
        ck_assert_int_eq(write_all(&rig.client, &blob, data, &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        blob.data[blob.size / 2] ^= 1;
        ck_assert_int_eq(write_all(&rig.client, &blob, plain(&blob), &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        blob.data[blob.size / 2] ^= 1;
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_refuses_offsets_names_and_digests_that_make_no_sense)
{
    struct blob blob = make_blob(1, 5000);
    static const int64_t second_offsets[] = {0, 1, 999, 1001, 5000, -1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LENGTH(second_offsets); i++) {
        struct rpc rpc;
        int64_t committed_size;
        rpc_begin(&rpc, &rig.client, write_path);
        start_send(&rpc, blob.write_name, 0, bytes_of(blob.data, 1000), false);
        start_send(&rpc, NULL, second_offsets[i], bytes_of(blob.data + 1000, 4000), true);
        ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);
    }
    struct blob other = make_blob(2, 5000);
    struct rpc rpc;
    int64_t committed_size;
    rpc_begin(&rpc, &rig.client, write_path);
    start_send(&rpc, blob.write_name, 0, bytes_of(blob.data, 1000), false);
    start_send(&rpc, other.write_name, 1000, bytes_of(blob.data + 1000, 4000), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);

    rpc_begin(&rpc, &rig.client, write_path);
    start_send(&rpc, blob.write_name, -1, plain(&blob), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_begin(&rpc, &rig.client, write_path);
    start_send(&rpc, blob.write_name, 1000, bytes_of(blob.data + 1000, 4000), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_ABORTED);
    rpc_begin(&rpc, &rig.client, write_path);
    start_send(&rpc, NULL, 0, plain(&blob), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_begin(&rpc, &rig.client, write_path);
    ck_assert(rpc_half_close(&rpc));
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_INVALID_ARGUMENT);
    expect_missing(&blob);
    expect_missing(&other);

    blob.digest.size_bytes = 0;
    name_blob(&blob, "u", COMPRESSOR_IDENTITY);
    ck_assert_int_eq(write_all(&rig.client, &blob, bytes_of("", 0), &committed_size),
                     GRPC_STATUS_INVALID_ARGUMENT);
    blob.digest.size_bytes = (int64_t)GIB + 1;
    name_blob(&blob, "u", COMPRESSOR_IDENTITY);
    ck_assert_int_eq(write_all(&rig.client, &blob, bytes_of("", 0), &committed_size),
                     GRPC_STATUS_INVALID_ARGUMENT);
    free(blob.data);
    free(other.data);
}
END_TEST

START_TEST(byte_stream_takes_the_empty_blob_and_empty_messages)
{
    struct blob empty = make_blob(0, 0);
    write_ok(&empty);
    expect_there(&empty);

    struct blob blob = make_blob(1, 2 * MIB);
    struct rpc rpc;
    int64_t committed_size = 0;
    rpc_begin(&rpc, &rig.client, write_path);
    start_send(&rpc, blob.write_name, 0, bytes_of("", 0), false);
    start_send(&rpc, blob.write_name, 0, bytes_of(blob.data, MIB), false);
    start_send(&rpc, NULL, MIB, bytes_of("", 0), false);
    start_send(&rpc, NULL, MIB, bytes_of(blob.data + MIB, MIB), false);
    start_send(&rpc, blob.write_name, 2 * MIB, bytes_of("", 0), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_OK);
    ck_assert_int_eq(committed_size, 2 * MIB);
    expect_there(&blob);
    free(empty.data);
    free(blob.data);
}
END_TEST

/* ---- an interrupted upload can go on */

START_TEST(byte_stream_resumes_an_upload_from_what_it_says_is_held)
{
    struct blob blob = make_blob(1, 8 * MIB);
    bool complete = true;
    ck_assert_int_eq(query(&blob, &complete), 0);
    ck_assert(!complete);

    break_off_at(&blob, 3 * MIB);
    const int64_t held = query(&blob, &complete);
    ck_assert_int_eq(held, 3 * MIB);
    ck_assert(!complete);
    expect_missing(&blob);

    struct rpc rpc;
    int64_t committed_size = 0;
    rpc_begin(&rpc, &rig.client, write_path);
    send_range(&rpc, &blob, plain(&blob), (size_t)held + 5000, blob.size, true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_ABORTED);
    /* From before the end of what is held: what is held already is passed over. */
    rpc_begin(&rpc, &rig.client, write_path);
    send_range(&rpc, &blob, plain(&blob), (size_t)held - 700000, blob.size, true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_OK);
    ck_assert_int_eq(committed_size, (int64_t)blob.size);
    expect_there(&blob);
    ck_assert_int_eq(query(&blob, &complete), (int64_t)blob.size);
    ck_assert(complete);
    free(blob.data);
}
END_TEST

START_TEST(byte_stream_restarts_at_0_under_the_same_name)
{
    for (size_t i = 1; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        break_off_at(&blob, blob.size / 2);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_hands_an_upload_to_the_newer_stream)
{
    struct blob blob = make_blob(1, 8 * MIB);
    struct rpc older, newer;
    bool complete;
    int64_t committed_size = 0;
    rpc_begin(&older, &rig.client, write_path);
    send_range(&older, &blob, plain(&blob), 0, 3 * MIB, false);
    for (int i = 0; i < 5000 && query(&blob, &complete) < 3 * (int64_t)MIB; i++)
        usleep(1000);
    rpc_begin(&newer, &rig.client, write_path);
    send_range(&newer, &blob, plain(&blob), 3 * MIB, 5 * MIB, false);
    for (int i = 0; i < 5000 && query(&blob, &complete) < 5 * (int64_t)MIB; i++)
        usleep(1000);
    start_send(&older, NULL, 3 * MIB, bytes_of(blob.data, MIB),
               false); /* wrong bytes, into nothing */
    ck_assert_int_eq(end_write(&older, &committed_size), GRPC_STATUS_ABORTED);
    start_send(&newer, NULL, 5 * MIB, bytes_of(blob.data + 5 * MIB, 3 * MIB), true);
    ck_assert_int_eq(end_write(&newer, &committed_size), GRPC_STATUS_OK);
    expect_there(&blob);
    free(blob.data);
}
END_TEST

START_TEST(byte_stream_goes_on_after_an_idle_while)
{
    struct blob blob = make_blob(1, 3 * MIB);
    struct rpc rpc;
    bool complete;
    int64_t committed_size = 0;
    rpc_begin(&rpc, &rig.client, write_path);
    send_range(&rpc, &blob, plain(&blob), 0, MIB + 500, false);
    for (int i = 0; i < 5000 && query(&blob, &complete) < (int64_t)MIB + 500; i++)
        usleep(1000);
    for (int i = 0; i < 10000 && buffer_pool_in_use(real.buffers) > 0; i++)
        usleep(1000);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    start_send(&rpc, NULL, MIB + 500, bytes_of(blob.data + MIB + 500, 2 * MIB - 500), true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_OK);
    expect_there(&blob);
    free(blob.data);
}
END_TEST

/* ---- many clients, same blob, one copy */

START_TEST(byte_stream_answers_early_when_the_blob_is_there)
{
    for (size_t i = 2; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        struct rpc rpc, slow;
        int64_t committed_size = 0;
        rpc_begin(&slow, &rig.client, write_path); /* overtaken: ends well, too */
        send_range(&slow, &blob, plain(&blob), 0, blob.size / 2, false);
        write_ok(&blob);
        start_send(&slow, NULL, (int64_t)(blob.size / 2), bytes_of(blob.data, 1), false);
        ck_assert_int_eq(end_write(&slow, &committed_size), GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, (int64_t)blob.size);

        committed_size = 0;
        rpc_begin(&rpc, &rig.client, write_path);
        send_range(&rpc, &blob, plain(&blob), 0, 1000, false);
        ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, (int64_t)blob.size);
        name_blob(&blob, "u", COMPRESSOR_ZSTD);
        ck_assert_int_eq(write_all(&rig.client, &blob, bytes_of("", 0), &committed_size),
                         GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, -1);
        free(blob.data);
    }
}
END_TEST

/* Each client sends as fast as it is let, whatever the others do. */
START_TEST(byte_stream_writes_one_copy_for_many_clients_some_of_which_are_cut_off)
{
    enum { CLIENTS = 40 };
    static struct rpc rpcs[CLIENTS];
    size_t sent[CLIENTS] = {0};
    struct blob blob = make_blob(1, 6 * MIB);
    const int64_t appended_before = metrics_get(real.metrics, METRIC_RECORD_BYTES_APPENDED);
    for (int i = 0; i < CLIENTS; i++) {
        char uuid[32];
        snprintf(uuid, sizeof(uuid), "client-%d", i);
        name_blob(&blob, uuid, COMPRESSOR_IDENTITY);
        rpc_begin(&rpcs[i], &rig.client, write_path);
        start_send(&rpcs[i], blob.write_name, 0, bytes_of(blob.data, MESSAGE_BYTES), false);
        sent[i] = MESSAGE_BYTES;
    }
    for (int left = CLIENTS; left > 0;) {
        /* Handles events of all of them; this one's status comes when its response has been read. */
        ck_assert(!rpc_wait_ended(&rpcs[1], 1));
        left = 0;
        for (int i = 0; i < CLIENTS; i++) {
            if (i % 10 == 0 && sent[i] == 3 * MIB) {
                rpc_cancel(&rpcs[i]);
                sent[i] = blob.size;
            }
            if (sent[i] == blob.size)
                continue;
            left++;
            if (rpcs[i].send_pending)
                continue;
            start_send(&rpcs[i], NULL, (int64_t)sent[i],
                       bytes_of(blob.data + sent[i], MESSAGE_BYTES),
                       sent[i] + MESSAGE_BYTES == blob.size);
            sent[i] += MESSAGE_BYTES;
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        int64_t committed_size = 0;
        const grpc_status_code code = end_write(&rpcs[i], &committed_size);
        if (i % 10 == 0 && code == GRPC_STATUS_CANCELLED)
            continue;
        ck_assert_int_eq(code, GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, (int64_t)blob.size);
    }
    expect_there(&blob);
    const int64_t appended =
        metrics_get(real.metrics, METRIC_RECORD_BYTES_APPENDED) - appended_before;
    ck_assert_int_le(appended, 3 * (int64_t)blob.size);
    free(blob.data);
}
END_TEST

START_TEST(byte_stream_does_not_let_a_bad_or_stalled_upload_fail_a_good_one)
{
    for (size_t i = 2; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        struct rpc stalled, bad, good;
        int64_t committed_size = 0;
        rpc_begin(&stalled, &rig.client, write_path);
        start_send(&stalled, blob.write_name, 0, bytes_of(blob.data, 1000), false);
        name_blob(&blob, "bad", COMPRESSOR_IDENTITY);
        rpc_begin(&bad, &rig.client, write_path);
        blob.data[7] ^= 1;
        send_range(&bad, &blob, plain(&blob), 0, blob.size, true);
        blob.data[7] ^= 1;
        name_blob(&blob, "good", COMPRESSOR_IDENTITY);
        rpc_begin(&good, &rig.client, write_path);
        send_range(&good, &blob, plain(&blob), 0, blob.size, true);
        ck_assert_int_eq(end_write(&good, &committed_size), GRPC_STATUS_OK);
        const grpc_status_code code = end_write(&bad, &committed_size);
        ck_assert(code == GRPC_STATUS_INVALID_ARGUMENT || code == GRPC_STATUS_OK);
        expect_there(&blob);
        rpc_cancel(&stalled);
        rpc_end(&stalled);
        free(blob.data);
    }
}
END_TEST

/* More streams than there are buffers, all unfinished at once. */
START_TEST(byte_stream_serves_more_uploads_than_there_are_buffers)
{
    enum { UPLOADS = 3 * POOLED };
    static struct rpc rpcs[UPLOADS];
    static struct blob blobs[UPLOADS];
    for (size_t i = 0; i < UPLOADS; i++) {
        blobs[i] = make_blob(i, MIB + 1 + i);
        rpc_begin(&rpcs[i], &rig.client, write_path);
        start_send(&rpcs[i], blobs[i].write_name, 0, bytes_of(blobs[i].data, 1000), false);
    }
    for (size_t i = UPLOADS; i-- > 0;) {
        int64_t committed_size = 0;
        start_send(&rpcs[i], NULL, 1000, bytes_of(blobs[i].data + 1000, blobs[i].size - 1000),
                   true);
        ck_assert_int_eq(end_write(&rpcs[i], &committed_size), GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, (int64_t)blobs[i].size);
    }
    for (size_t i = 0; i < UPLOADS; i++) {
        expect_there(&blobs[i]);
        free(blobs[i].data);
    }
}
END_TEST

/* ---- zstd */

static struct bytes compressed(const struct blob *blob)
{
    const size_t room = ZSTD_compressBound(blob->size);
    uint8_t *const frame = malloc(room);
    const size_t length = ZSTD_compress(frame, room, blob->data, blob->size, 3);
    ck_assert(!ZSTD_isError(length));
    return bytes_of(frame, length);
}

static void free_bytes(struct bytes bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

START_TEST(byte_stream_takes_zstd_and_tells_how_many_compressed_bytes_came)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        const struct bytes frame = compressed(&blob);
        int64_t committed_size = 0;
        name_blob(&blob, "u", COMPRESSOR_ZSTD);
        struct bytes cut = frame;
        cut.length -= 1;
        ck_assert_int_eq(write_all(&rig.client, &blob, cut, &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_int_eq(write_all(&rig.client, &blob, bytes_of("", 0), &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_int_eq(write_all(&rig.client, &blob, plain(&blob), &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert(!store_has_blob(real.store, &blob.digest));
        ck_assert_int_eq(write_all(&rig.client, &blob, frame, &committed_size), GRPC_STATUS_OK);
        ck_assert_int_eq(committed_size, (int64_t)frame.length);
        name_blob(&blob, "u", COMPRESSOR_IDENTITY);
        expect_there(&blob);
        free_bytes(frame);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_tells_siso_the_size_of_the_blob)
{
    struct blob blob = make_blob(1, 2 * MIB);
    const struct bytes frame = compressed(&blob);
    struct byte_builder metadata = {0}, tool = {0};
    message_add_text(&tool, 1, "siso");
    message_add_message(&metadata, 1, &tool);
    grpc_metadata header = {
        .key = grpc_slice_from_static_string("build.bazel.remote.execution.v2.requestmetadata-bin"),
        .value = grpc_slice_from_copied_buffer((const char *)metadata.data, metadata.length)};
    struct rpc rpc;
    int64_t committed_size = 0;
    name_blob(&blob, "u", COMPRESSOR_ZSTD);
    rpc_begin_with(&rpc, &rig.client, write_path, 0, &header, 1);
    send_range(&rpc, &blob, frame, 0, frame.length, true);
    ck_assert_int_eq(end_write(&rpc, &committed_size), GRPC_STATUS_OK);
    ck_assert_int_eq(committed_size, (int64_t)blob.size);
    grpc_slice_unref(header.value);
    byte_builder_free(&metadata);
    free_bytes(frame);
    free(blob.data);
}
END_TEST

/* All of the blob is there, and still it is no whole number of frames. */
START_TEST(byte_stream_refuses_zstd_with_the_beginning_of_another_frame)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        const struct bytes frame = compressed(&blob);
        for (size_t more = 1; more <= 6; more++) {
            int64_t committed_size;
            uint8_t *const both = malloc(frame.length + more);
            ck_assert_ptr_nonnull(both);
            memcpy(both, frame.data, frame.length);
            memcpy(both + frame.length, frame.data, more);
            name_blob(&blob, "u", COMPRESSOR_ZSTD);
            ck_assert_int_eq(
                write_all(&rig.client, &blob, bytes_of(both, frame.length + more), &committed_size),
                GRPC_STATUS_INVALID_ARGUMENT);
            ck_assert(!store_has_blob(real.store, &blob.digest));
            free(both);
        }
        free_bytes(frame);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_refuses_zstd_that_decodes_to_another_size)
{
    struct blob blob = make_blob(1, 3 * MIB);
    const struct bytes frame = compressed(&blob);
    int64_t committed_size;
    for (int64_t off = -1; off <= 1; off += 2) {
        blob.digest.size_bytes = (int64_t)blob.size + off;
        name_blob(&blob, "u", COMPRESSOR_ZSTD);
        ck_assert_int_eq(write_all(&rig.client, &blob, frame, &committed_size),
                         GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert(!store_has_blob(real.store, &blob.digest));
    }
    free_bytes(frame);
    free(blob.data);
}
END_TEST

static void expect_zstd_from(const struct blob *blob, size_t offset)
{
    struct read_back read;
    ck_assert_int_eq(read_range(blob->read_name, (int64_t)offset, 0, &read), GRPC_STATUS_OK);
    uint8_t *const decoded = malloc(blob->size + 1);
    const size_t length = ZSTD_decompress(decoded, blob->size, read.data, read.length);
    ck_assert(!ZSTD_isError(length));
    ck_assert_uint_eq(length, blob->size - offset);
    ck_assert(memcmp(decoded, blob->data + offset, length) == 0);
    free(decoded);
    free(read.data);
}

START_TEST(byte_stream_gives_zstd_from_any_offset_of_the_plain_blob)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        write_ok(&blob);
        name_blob(&blob, "u", COMPRESSOR_ZSTD);
        const size_t offsets[] = {0, blob.size / 3, blob.size - 1};
        for (size_t at = 0; at < ARRAY_LENGTH(offsets); at++)
            expect_zstd_from(&blob, offsets[at]);
        struct read_back read;
        ck_assert_int_eq(read_range(blob.read_name, (int64_t)blob.size, 0, &read), GRPC_STATUS_OK);
        ck_assert_uint_eq(read.length, 0);
        ck_assert_int_eq(read_range(blob.read_name, 0, 10, &read), GRPC_STATUS_INVALID_ARGUMENT);
        free(blob.data);
    }
}
END_TEST

/* ---- reads */

START_TEST(byte_stream_reads_any_range)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        struct prng prng = {i};
        write_ok(&blob);
        for (int round = 0; round < 10; round++) {
            const size_t offset = prng_below(&prng, blob.size + 1);
            const size_t limit = prng_below(&prng, blob.size + 100);
            const size_t rest = blob.size - offset;
            expect_range(&blob, offset, limit, limit == 0 || limit > rest ? rest : limit);
        }
        expect_range(&blob, blob.size, 0, 0);
        struct read_back read;
        const int64_t size = (int64_t)blob.size;
        ck_assert_int_eq(read_range(blob.read_name, size + 1, 0, &read), GRPC_STATUS_OUT_OF_RANGE);
        ck_assert_int_eq(read_range(blob.read_name, -1, 0, &read), GRPC_STATUS_OUT_OF_RANGE);
        ck_assert_int_eq(read_range(blob.read_name, 0, -1, &read), GRPC_STATUS_INVALID_ARGUMENT);
        free(blob.data);
    }
}
END_TEST

START_TEST(byte_stream_counts_each_read_as_a_hit_or_a_miss_of_its_instance)
{
    struct instance_report report;
    struct read_back read;
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        ck_assert_int_eq(read_range(blob.read_name, 0, 0, &read), GRPC_STATUS_NOT_FOUND);
        write_ok(&blob);
        expect_range(&blob, 0, 0, blob.size);
        expect_range(&blob, blob.size, 0, 0);
        free(blob.data);
    }
    ck_assert_uint_eq(
        instance_metrics_report(rpc_metrics_instances(rig.server.rpc_metrics), &report, 1), 1);
    ck_assert_uint_eq(report.blob_hits, 2 * ARRAY_LENGTH(sizes));
    ck_assert_uint_eq(report.blob_misses, ARRAY_LENGTH(sizes));
}
END_TEST

START_TEST(byte_stream_forgets_a_damaged_blob_before_its_first_byte)
{
    for (size_t i = 1; i < ARRAY_LENGTH(sizes); i++) {
        struct blob blob = make_blob(i, sizes[i]);
        write_ok(&blob);
        real_store_damage(&real, &blob.digest);
        struct read_back read;
        ck_assert_int_eq(read_range(blob.read_name, 0, 0, &read), GRPC_STATUS_NOT_FOUND);
        ck_assert_uint_eq(read.messages, 0);
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

/* It is met while the chunk before it is being sent. What was sent is right, and nobody takes it for the whole. */
START_TEST(byte_stream_breaks_off_before_a_damaged_chunk_and_forgets_the_blob)
{
    enum { CHUNKS = 6 };
    for (size_t damaged = 1; damaged < CHUNKS; damaged++) {
        struct blob blob = make_blob(70 + damaged, CHUNKS * MIB);
        struct read_back read;
        write_ok(&blob);
        real_store_damage_chunk(&real, &blob.digest, damaged);
        ck_assert_int_eq(read_range(blob.read_name, 0, 0, &read), GRPC_STATUS_ABORTED);
        ck_assert_uint_eq(read.length, damaged * MIB);
        ck_assert(memcmp(read.data, blob.data, read.length) == 0);
        free(read.data);
        expect_missing(&blob);
        write_ok(&blob);
        expect_there(&blob);
        free(blob.data);
    }
}
END_TEST

/* More than all buffers are asked for by readers that do not read. */
START_TEST(byte_stream_serves_others_beside_readers_that_stall)
{
    enum { READERS = 3 * POOLED };
    static struct rpc rpcs[READERS];
    static struct rpc_client clients[READERS];
    struct blob blob = make_blob(1, 24 * MIB);
    struct blob other = make_blob(2, 5 * MIB);
    write_ok(&blob);
    for (int i = 0; i < READERS; i++) {
        size_t length;
        rpc_client_open(&clients[i], front_port(rig.front));
        begin_read(&rpcs[i], &clients[i], blob.read_name, 0, 0);
        free(rpc_receive(&rpcs[i], &length));
    }
    write_ok(&other);
    expect_there(&other);
    expect_there(&blob);
    for (int i = 0; i < READERS; i++) {
        rpc_cancel(&rpcs[i]);
        ck_assert_int_eq(rpc_end(&rpcs[i]), GRPC_STATUS_CANCELLED);
        rpc_client_close(&clients[i]);
    }
    free(blob.data);
    free(other.data);
}
END_TEST

/* ---- all of it at once, at random */

START_TEST(byte_stream_leaves_nothing_behind_when_calls_end_at_random)
{
    enum { CALLS = 24, ROUNDS = 12 };
    static struct rpc rpcs[CALLS];
    struct prng prng = {99};
    struct blob blobs[4];
    for (size_t i = 0; i < ARRAY_LENGTH(blobs); i++)
        blobs[i] = make_blob(i, i % 2 == 0 ? 700000 : 3 * MIB);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CALLS; i++) {
            struct blob *const blob = &blobs[prng_below(&prng, ARRAY_LENGTH(blobs))];
            char uuid[32];
            snprintf(uuid, sizeof(uuid), "%zu", prng_below(&prng, 6));
            name_blob(blob, uuid, COMPRESSOR_IDENTITY);
            if (prng_below(&prng, 4) == 0) {
                begin_read(&rpcs[i], &rig.client, blob->read_name, 0, 0);
                continue;
            }
            rpc_begin(&rpcs[i], &rig.client, write_path);
            const size_t length = prng_below(&prng, blob->size + 1);
            send_range(&rpcs[i], blob, plain(blob), 0, length, length == blob->size);
        }
        for (int i = 0; i < CALLS; i++) {
            usleep((useconds_t)prng_below(&prng, 1500));
            rpc_cancel(&rpcs[i]);
        }
        for (int i = 0; i < CALLS; i++)
            rpc_end(&rpcs[i]);
        struct blob *const one = &blobs[round % 4];
        write_ok(one);
        expect_there(one);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(blobs); i++)
        free(blobs[i].data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("byte_stream");
    TCase *tcase = tcase_create("byte_stream");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 180);
    tcase_add_test(tcase, byte_stream_stores_blobs_of_any_size);
    tcase_add_test(tcase, byte_stream_hides_an_upload_that_ends_without_finish);
    tcase_add_test(tcase, byte_stream_hides_an_upload_that_is_cancelled_or_loses_its_connection);
    tcase_add_test(tcase, byte_stream_refuses_too_few_too_many_and_wrong_bytes);
    tcase_add_test(tcase, byte_stream_refuses_offsets_names_and_digests_that_make_no_sense);
    tcase_add_test(tcase, byte_stream_takes_the_empty_blob_and_empty_messages);
    tcase_add_test(tcase, byte_stream_resumes_an_upload_from_what_it_says_is_held);
    tcase_add_test(tcase, byte_stream_restarts_at_0_under_the_same_name);
    tcase_add_test(tcase, byte_stream_hands_an_upload_to_the_newer_stream);
    tcase_add_test(tcase, byte_stream_goes_on_after_an_idle_while);
    tcase_add_test(tcase, byte_stream_answers_early_when_the_blob_is_there);
    tcase_add_test(tcase, byte_stream_writes_one_copy_for_many_clients_some_of_which_are_cut_off);
    tcase_add_test(tcase, byte_stream_does_not_let_a_bad_or_stalled_upload_fail_a_good_one);
    tcase_add_test(tcase, byte_stream_serves_more_uploads_than_there_are_buffers);
    tcase_add_test(tcase, byte_stream_takes_zstd_and_tells_how_many_compressed_bytes_came);
    tcase_add_test(tcase, byte_stream_tells_siso_the_size_of_the_blob);
    tcase_add_test(tcase, byte_stream_refuses_zstd_with_the_beginning_of_another_frame);
    tcase_add_test(tcase, byte_stream_refuses_zstd_that_decodes_to_another_size);
    tcase_add_test(tcase, byte_stream_gives_zstd_from_any_offset_of_the_plain_blob);
    tcase_add_test(tcase, byte_stream_reads_any_range);
    tcase_add_test(tcase, byte_stream_counts_each_read_as_a_hit_or_a_miss_of_its_instance);
    tcase_add_test(tcase, byte_stream_forgets_a_damaged_blob_before_its_first_byte);
    tcase_add_test(tcase, byte_stream_breaks_off_before_a_damaged_chunk_and_forgets_the_blob);
    tcase_add_test(tcase, byte_stream_serves_others_beside_readers_that_stall);
    tcase_add_test(tcase, byte_stream_leaves_nothing_behind_when_calls_end_at_random);
    suite_add_tcase(suite, tcase);

    TCase *disk = tcase_create("on disk");
    tcase_add_checked_fixture(disk, set_up_nothing_cached, tear_down);
    tcase_set_timeout(disk, 180);
    tcase_add_test(disk, byte_stream_stores_blobs_of_any_size);
    tcase_add_test(disk, byte_stream_reads_any_range);
    tcase_add_test(disk, byte_stream_counts_each_read_as_a_hit_or_a_miss_of_its_instance);
    tcase_add_test(disk, byte_stream_forgets_a_damaged_blob_before_its_first_byte);
    suite_add_tcase(suite, disk);
    return test_run(suite);
}
