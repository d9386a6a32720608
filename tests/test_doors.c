/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that there is one store behind all doors: what any call has taken, every call gives at
 * once and bit for bit, and after a restart too; that the empty blob is behind each of them from
 * the start; and that the limit which Capabilities advertises is the one that batches are held to.
 *
 * Method: the whole server in this process, asked over gRPC.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "proto/wire.h"
#include "server/server.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/reapi_names.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

#define REAPI_METHOD(name) "/build.bazel.remote.execution.v2." name
#define FIND_MISSING REAPI_METHOD("ContentAddressableStorage/FindMissingBlobs")
#define BATCH_UPDATE REAPI_METHOD("ContentAddressableStorage/BatchUpdateBlobs")
#define BATCH_READ REAPI_METHOD("ContentAddressableStorage/BatchReadBlobs")
#define GET_ACTION_RESULT REAPI_METHOD("ActionCache/GetActionResult")
#define UPDATE_ACTION_RESULT REAPI_METHOD("ActionCache/UpdateActionResult")

enum { WRITE_MESSAGE_BYTES = 1 << 20, NAME_BYTES_MAX = 512 };

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client client;
static char text[RPC_TEXT_BYTES_MAX];

static void start(void)
{
    struct status status = {0};
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void stop(void)
{
    rpc_client_close(&client);
    server_stop(server);
}

static void setup(void)
{
    struct status status = {0};
    enum config_action action;
    temp_dir_make(&directory);
    char *const arguments[] = {
        (char[]){"varved"},      (char[]){"--data"},        directory.path, (char[]){"--listen"},
        (char[]){"127.0.0.1:0"}, (char[]){"--http-listen"}, (char[]){""}};
    char *const environment[] = {NULL};
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    grpc_init();
    start();
}

static void teardown(void)
{
    stop();
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

/* ---- the doors */

static struct byte_builder call_ok(const char *path, struct byte_builder *request)
{
    struct byte_builder response = {0};
    const grpc_status_code code =
        rpc_unary(&client, path, message_bytes(request), &response.data, &response.length, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s: %s", path, text);
    response.capacity = response.length;
    byte_builder_free(request);
    return response;
}

static bool found(const struct digest *digest)
{
    struct byte_builder request = {0};
    message_add_digest(&request, 2, digest);
    struct byte_builder response = call_ok(FIND_MISSING, &request);
    const bool missing = response.length > 0;
    byte_builder_free(&response);
    return !missing;
}

static void batch_update(const struct digest *digest, struct bytes data)
{
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    message_add_digest(&entry, 1, digest);
    message_add(&entry, 2, data);
    message_add_message(&request, 2, &entry);
    struct byte_builder response = call_ok(BATCH_UPDATE, &request);
    REAPI(BatchUpdateBlobsResponse) *const seen = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(batch_update_blobs_response), NULL, response.length, response.data);
    ck_assert_ptr_nonnull(seen);
    ck_assert_uint_eq(seen->n_responses, 1);
    ck_assert_int_eq(seen->responses[0]->status->code, STATUS_OK);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    byte_builder_free(&response);
}

static void byte_stream_write(const struct digest *digest, struct bytes data)
{
    char name[NAME_BYTES_MAX];
    char digest_name[DIGEST_TEXT_BYTES_MAX];
    snprintf(name, sizeof(name), "uploads/00000000-0000-4000-8000-000000000000/blobs/%s",
             digest_text(digest, digest_name));
    struct rpc call;
    rpc_begin(&call, &client, "/google.bytestream.ByteStream/Write");
    size_t sent = 0;
    do {
        const size_t left = data.length - sent;
        const size_t length = left < WRITE_MESSAGE_BYTES ? left : WRITE_MESSAGE_BYTES;
        struct byte_builder request = {0};
        message_add_text(&request, 1, name);
        message_add_number(&request, 2, sent);
        if (length == left)
            message_add_number(&request, 3, 1);
        message_add(&request, 10, bytes_of(data.data + sent, length));
        const bool going_on = rpc_send(&call, message_bytes(&request));
        byte_builder_free(&request);
        sent += length;
        if (!going_on)
            break; /* it is there already */
    } while (sent < data.length);
    size_t length;
    uint8_t *const response = rpc_receive(&call, &length);
    ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_OK);
    const struct bytes answer = bytes_of(response, length);
    struct wire_reader reader;
    struct wire_field field = {0};
    wire_reader_init(&reader, wire_span_of_bytes(&answer));
    if (data.length > 0)
        ck_assert(wire_reader_next(&reader, &field));
    ck_assert_uint_eq(field.value, data.length);
    free(response);
}

static void byte_stream_read(const struct digest *digest, struct bytes expected)
{
    char name[NAME_BYTES_MAX];
    char digest_name[DIGEST_TEXT_BYTES_MAX];
    snprintf(name, sizeof(name), "blobs/%s", digest_text(digest, digest_name));
    struct byte_builder request = {0};
    struct byte_builder all = {0};
    struct rpc call;
    message_add_text(&request, 1, name);
    rpc_begin(&call, &client, "/google.bytestream.ByteStream/Read");
    ck_assert(rpc_send(&call, message_bytes(&request)));
    ck_assert(rpc_half_close(&call));
    size_t length;
    for (uint8_t *message; (message = rpc_receive(&call, &length)) != NULL; free(message)) {
        const struct bytes bytes = bytes_of(message, length);
        struct wire_reader reader;
        struct wire_field field;
        wire_reader_init(&reader, wire_span_of_bytes(&bytes));
        while (wire_reader_next(&reader, &field))
            byte_builder_append(&all, wire_span_next(&field.span));
    }
    ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_OK);
    ck_assert(bytes_equal(message_bytes(&all), expected));
    byte_builder_free(&all);
    byte_builder_free(&request);
}

static void batch_read(const struct digest *digest, struct bytes expected)
{
    struct byte_builder request = {0};
    message_add_digest(&request, 2, digest);
    struct byte_builder response = call_ok(BATCH_READ, &request);
    REAPI(BatchReadBlobsResponse) *const seen = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(batch_read_blobs_response), NULL, response.length, response.data);
    ck_assert_ptr_nonnull(seen);
    ck_assert_uint_eq(seen->n_responses, 1);
    ck_assert_int_eq(seen->responses[0]->status->code, STATUS_OK);
    ck_assert(bytes_equal(bytes_of(seen->responses[0]->data.data, seen->responses[0]->data.len),
                          expected));
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    byte_builder_free(&response);
}

/* Stores a result that has the blob as its output; each time of another action. */
static struct digest update_action_result(const struct digest *output)
{
    static uint64_t actions;
    const struct digest action = digest_of_nothing(actions++);
    struct byte_builder request = {0};
    struct byte_builder result = {0};
    result_add_file(&result, "out", output);
    message_add_digest(&request, 2, &action);
    message_add_message(&request, 3, &result);
    struct byte_builder response = call_ok(UPDATE_ACTION_RESULT, &request);
    byte_builder_free(&response);
    return action;
}

static grpc_status_code get_action_result(const struct digest *action)
{
    struct byte_builder request = {0};
    message_add_digest(&request, 2, action);
    uint8_t *response;
    size_t length;
    const grpc_status_code code =
        rpc_unary(&client, GET_ACTION_RESULT, message_bytes(&request), &response, &length, text);
    free(response);
    byte_builder_free(&request);
    return code;
}

static void behind_every_door(const struct digest *digest,
                              const struct digest *action,
                              struct bytes data)
{
    ck_assert(found(digest));
    if (data.length <= LIMIT_BATCH_TOTAL_BYTES)
        batch_read(digest, data);
    byte_stream_read(digest, data);
    ck_assert_int_eq(get_action_result(action), GRPC_STATUS_OK);
}

/* ---- tests */

START_TEST(empty_blob_is_behind_every_door_of_an_empty_store)
{
    struct digest empty;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    const struct digest action = update_action_result(&empty);
    behind_every_door(&empty, &action, bytes_of(NULL, 0));
    byte_stream_write(&empty, bytes_of(NULL, 0));
    batch_update(&empty, bytes_of(NULL, 0));
    behind_every_door(&empty, &action, bytes_of(NULL, 0));
}
END_TEST

/* Each size by each way of writing that takes it. */
START_TEST(what_one_door_took_every_door_gives_at_once_and_after_a_restart)
{
    static const size_t sizes[] = {10, 1 * MIB, 20 * MIB};
    enum { WAYS = 2, BLOBS = WAYS * ARRAY_LENGTH(sizes) };
    struct bytes blobs[BLOBS];
    struct digest digests[BLOBS];
    struct digest actions[BLOBS];
    struct prng prng = {.state = 7};
    for (size_t i = 0; i < BLOBS; i++) {
        const size_t size = sizes[i / WAYS];
        uint8_t *const data = malloc(size);
        ck_assert_ptr_nonnull(data);
        for (size_t byte = 0; byte < size; byte++)
            data[byte] = (uint8_t)prng_next(&prng);
        blobs[i] = bytes_of(data, size);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, blobs[i], &digests[i]);

        actions[i] = update_action_result(&digests[i]);
        ck_assert(!found(&digests[i]));
        ck_assert_int_eq(get_action_result(&actions[i]), GRPC_STATUS_NOT_FOUND);
        if (i % WAYS == 0 && size <= LIMIT_BATCH_TOTAL_BYTES)
            batch_update(&digests[i], blobs[i]);
        else
            byte_stream_write(&digests[i], blobs[i]);
        behind_every_door(&digests[i], &actions[i], blobs[i]);
    }
    stop();
    start();
    for (size_t i = 0; i < BLOBS; i++) {
        behind_every_door(&digests[i], &actions[i], blobs[i]);
        free((void *)(uintptr_t)blobs[i].data);
    }
}
END_TEST

/*
 * The number that clients plan with is the one that is enforced, to the byte; the connection
 * survives the refusal.
 */
START_TEST(batch_limit_in_capabilities_is_the_one_that_is_enforced)
{
    struct byte_builder request = {0};
    struct byte_builder response = call_ok(REAPI_METHOD("Capabilities/GetCapabilities"), &request);
    REAPI(ServerCapabilities) *const seen = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(server_capabilities), NULL, response.length, response.data);
    ck_assert_ptr_nonnull(seen);
    const size_t limit = (size_t)seen->cache_capabilities->max_batch_total_size_bytes;
    ck_assert_uint_gt(limit, 0);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    byte_builder_free(&response);

    uint8_t *const data = calloc(1, limit + 1);
    ck_assert_ptr_nonnull(data);
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, limit + 1), &digest);
    struct byte_builder entry = {0};
    message_add_digest(&entry, 1, &digest);
    message_add(&entry, 2, bytes_of(data, limit + 1));
    message_add_message(&request, 2, &entry);
    ck_assert_int_eq(rpc_unary(&client, BATCH_UPDATE, message_bytes(&request), NULL, NULL, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    byte_builder_free(&request);
    ck_assert(!found(&digest));

    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, limit), &digest);
    batch_update(&digest, bytes_of(data, limit));
    batch_read(&digest, bytes_of(data, limit));
    free(data);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("doors");
    TCase *const tests = tcase_create("doors");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, empty_blob_is_behind_every_door_of_an_empty_store);
    tcase_add_test(tests, what_one_door_took_every_door_gives_at_once_and_after_a_restart);
    tcase_add_test(tests, batch_limit_in_capabilities_is_the_one_that_is_enforced);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
