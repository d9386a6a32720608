/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what clients get of a bucket: a node whose disk is gone serves all that it had, action results with all that they name; while
 * the bucket does not answer, what is here is served as ever, what may be there alone is UNAVAILABLE and not missing, and an action
 * result is a miss; without --tier-reads nothing is asked of it; and with --tier-mode through a write is answered once it is there.
 *
 * Method: the whole server in this process, asked over gRPC and HTTP, with a fake S3 server behind it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/server.h"
#include "server/tier.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/http_client.h"
#include "tests/support/messages.h"
#include "tests/support/reapi_names.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/layout.h"

enum { BLOBS = 20, BLOB_BYTES = 3000 };
#define REAPI_METHOD(name) "/build.bazel.remote.execution.v2." name

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client client;
static struct fake_s3 *fake;
static const char *reads = "on";
static const char *finds = "off";
static const char *mode = "async";
static const char *packs = "off"; /* so that objects can be counted */
static const char *otherwise = "refuse";
static const char *patience = "60s";
static char text[RPC_TEXT_BYTES_MAX];

static void start(void)
{
    struct status status = {0};
    enum config_action action;
    char url[64];
    char choice[8];
    char find[8];
    char how[8];
    char what_then[8];
    char how_long[8];
    char pack[8];
    snprintf(pack, sizeof(pack), "%s", packs);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", fake_s3_port(fake));
    snprintf(choice, sizeof(choice), "%s", reads);
    snprintf(find, sizeof(find), "%s", finds);
    snprintf(how, sizeof(how), "%s", mode);
    snprintf(what_then, sizeof(what_then), "%s", otherwise);
    snprintf(how_long, sizeof(how_long), "%s", patience);
    char *const arguments[] = {(char[]){"varved"},
                               (char[]){"--data"},
                               directory.path,
                               (char[]){"--listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--reserve"},
                               (char[]){"0B"},
                               (char[]){"--tier-url"},
                               url,
                               (char[]){"--tier-bucket"},
                               (char[]){FAKE_S3_BUCKET},
                               (char[]){"--tier-region"},
                               (char[]){FAKE_S3_REGION},
                               (char[]){"--tier-reads"},
                               choice,
                               (char[]){"--tier-find"},
                               find,
                               (char[]){"--tier-packs"},
                               pack,
                               (char[]){"--http-listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-keys"},
                               (char[]){"keys"},
                               (char[]){"--tier-mode"},
                               how,
                               (char[]){"--ack-copies-else"},
                               what_then,
                               (char[]){"--ack-copies-timeout"},
                               how_long};
    char *const environment[] = {NULL};
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void stop(void)
{
    rpc_client_close(&client);
    server_stop(server);
    config_free(config);
}

/* The node is there again, and has nothing. */
static void lose_the_disk(void)
{
    stop();
    temp_dir_remove(&directory);
    temp_dir_make(&directory);
    start();
}

static void setup(void)
{
    fake_bucket_set_keys();
    temp_dir_make(&directory);
    fake = fake_s3_start();
    grpc_init();
    start();
}

static void teardown(void)
{
    stop();
    grpc_shutdown();
    fake_s3_stop(fake);
    temp_dir_remove(&directory);
}

/* ---- calls */

static grpc_status_code unary(const char *path,
                              struct byte_builder *request,
                              uint8_t **response,
                              size_t *length)
{
    const grpc_status_code code =
        rpc_unary(&client, path, message_bytes(request), response, length, text);
    byte_builder_free(request);
    return code;
}

static void fill(uint8_t data[BLOB_BYTES], unsigned number)
{
    for (size_t i = 0; i < BLOB_BYTES; i++)
        data[i] = (uint8_t)((number >> (8 * (i % 4))) + i * 3);
}

static struct digest digest_of_number(unsigned number)
{
    uint8_t data[BLOB_BYTES];
    struct digest digest;
    fill(data, number);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, sizeof(data)), &digest);
    return digest;
}

/* The status of the blob in the answer. */
static grpc_status_code try_to_store(unsigned number)
{
    uint8_t data[BLOB_BYTES];
    const struct digest digest = digest_of_number(number);
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    fill(data, number);
    message_add_digest(&entry, 1, &digest);
    message_add(&entry, 2, bytes_of(data, sizeof(data)));
    message_add_message(&request, 2, &entry);
    ck_assert_int_eq(unary(REAPI_METHOD("ContentAddressableStorage/BatchUpdateBlobs"), &request,
                           &response, &length),
                     GRPC_STATUS_OK);
    REAPI(BatchUpdateBlobsResponse) *const seen = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(batch_update_blobs_response), NULL, length, response);
    ck_assert_ptr_nonnull(seen);
    ck_assert_uint_eq(seen->n_responses, 1);
    const grpc_status_code code = (grpc_status_code)seen->responses[0]->status->code;
    snprintf(text, sizeof(text), "%s", seen->responses[0]->status->message);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    free(response);
    return code;
}

static struct digest store_number(unsigned number)
{
    uint8_t data[BLOB_BYTES];
    const struct digest digest = digest_of_number(number);
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    uint8_t *response = NULL;
    size_t length;
    fill(data, number);
    message_add_digest(&entry, 1, &digest);
    message_add(&entry, 2, bytes_of(data, sizeof(data)));
    message_add_message(&request, 2, &entry);
    ck_assert_int_eq(unary(REAPI_METHOD("ContentAddressableStorage/BatchUpdateBlobs"), &request,
                           &response, &length),
                     GRPC_STATUS_OK);
    free(response);
    return digest;
}

static struct digest store_result(unsigned number, const struct digest *files, size_t count)
{
    const struct digest action = digest_of_nothing(number);
    struct byte_builder request = {0};
    struct byte_builder result = {0};
    uint8_t *response = NULL;
    size_t length;
    char path[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "out/%zu", i);
        result_add_file(&result, path, &files[i]);
    }
    message_add_digest(&request, 2, &action);
    message_add_message(&request, 3, &result);
    ck_assert_msg(unary(REAPI_METHOD("ActionCache/UpdateActionResult"), &request, &response,
                        &length) == GRPC_STATUS_OK,
                  "%s", text);
    free(response);
    return action;
}

static grpc_status_code get_result(const struct digest *action)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    message_add_digest(&request, 2, action);
    const grpc_status_code code =
        unary(REAPI_METHOD("ActionCache/GetActionResult"), &request, &response, &length);
    ck_assert(code != GRPC_STATUS_OK || length > 0);
    free(response);
    return code;
}

/* How many of these FindMissingBlobs calls missing: each is an entry of the same length. */
static size_t count_missing(unsigned from, unsigned count)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct digest digest = digest_of_number(from + i);
        message_add_digest(&request, 2, &digest);
    }
    ck_assert_msg(unary(REAPI_METHOD("ContentAddressableStorage/FindMissingBlobs"), &request,
                        &response, &length) == GRPC_STATUS_OK,
                  "%s", text);
    size_t entries = 0;
    for (size_t at = 0; at < length; entries++) {
        ck_assert_uint_lt(at + 1, length);
        ck_assert_uint_eq(response[at], 2 << 3 | 2);
        at += 2 + response[at + 1];
    }
    free(response);
    return entries;
}

/* A Read, whose bytes are compared. */
static grpc_status_code read_number(unsigned number)
{
    uint8_t data[BLOB_BYTES];
    const struct digest digest = digest_of_number(number);
    struct byte_builder request = {0};
    struct rpc rpc;
    char name[DIGEST_TEXT_BYTES_MAX + 8] = "blobs/";
    size_t length = 0;
    digest_text(&digest, name + 6);
    message_add_text(&request, 1, name);
    rpc_begin(&rpc, &client, "/google.bytestream.ByteStream/Read");
    ck_assert(rpc_send(&rpc, message_bytes(&request)) && rpc_half_close(&rpc));
    byte_builder_free(&request);
    uint8_t *const message = rpc_receive(&rpc, &length);
    fill(data, number);
    if (message != NULL) {
        ck_assert_uint_ge(length, BLOB_BYTES);
        ck_assert_mem_eq(message + length - BLOB_BYTES, data, BLOB_BYTES);
    }
    free(message);
    return rpc_end(&rpc);
}

static void wait_until_there(int objects)
{
    WAIT_UNTIL(fake_s3_objects(fake) == objects);
}

START_TEST(node_whose_disk_is_gone_serves_all_that_it_had)
{
    struct digest files[BLOBS];
    for (unsigned i = 0; i < BLOBS; i++)
        files[i] = store_number(i);
    const struct digest action = store_result(1, files, BLOBS / 2);
    wait_until_there(BLOBS + 1);
    lose_the_disk();
    ck_assert_msg(get_result(&action) == GRPC_STATUS_OK, "%s", text);
    for (unsigned i = 0; i < BLOBS; i++)
        ck_assert_int_eq(read_number(i), GRPC_STATUS_OK);
    /* Now they are here: nothing more is asked of the bucket for them. */
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_TIER_READS_FOUND), BLOBS + 1);
    for (unsigned i = 0; i < BLOBS; i++)
        ck_assert_int_eq(read_number(i), GRPC_STATUS_OK);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_TIER_READS_FOUND), BLOBS + 1);
    /* And what came from there is not sent there. */
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_TIER_BLOBS), 0);
}
END_TEST

static void forget(uint32_t field, const struct digest *digest)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    message_add_number(&request, 1, 1); /* carry_out */
    message_add_digest(&request, field, digest);
    ck_assert_msg(unary("/varve.v1.Admin/Forget", &request, &response, &length) == GRPC_STATUS_OK,
                  "%s", text);
    free(response);
}

START_TEST(what_was_deleted_by_order_does_not_come_back_from_a_bucket_that_is_behind)
{
    enum { FORGET_BLOBS = 2, FORGET_ACTIONS = 3 };
    const struct digest files[] = {store_number(1)};
    const struct digest action = store_result(1, files, 1);
    wait_until_there(2);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "POST", NULL); /* which deletes */
    forget(FORGET_ACTIONS, &action);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    forget(FORGET_BLOBS, &files[0]);
    ck_assert_int_eq(read_number(1), GRPC_STATUS_NOT_FOUND);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    wait_until_there(0);
    ck_assert_int_eq(read_number(1), GRPC_STATUS_NOT_FOUND);
    /* And what is stored anew counts. */
    store_number(1);
    wait_until_there(1);
    lose_the_disk();
    ck_assert_int_eq(read_number(1), GRPC_STATUS_OK);
}
END_TEST

START_TEST(what_is_in_the_bucket_alone_is_deleted_by_name)
{
    enum { FORGET_BLOBS = 2, FORGET_ACTIONS = 3 };
    const struct digest files[] = {store_number(1), store_number(2)};
    const struct digest action = store_result(1, files, 1);
    wait_until_there(3);
    lose_the_disk();
    forget(FORGET_BLOBS, &files[1]);
    wait_until_there(2);
    ck_assert_int_eq(read_number(2), GRPC_STATUS_NOT_FOUND);
    forget(FORGET_ACTIONS, &action);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    wait_until_there(1);
    ck_assert_int_eq(read_number(1), GRPC_STATUS_OK);
    /* What is stored after the order counts, and goes there. */
    store_number(2);
    wait_until_there(2);
    stop();
    start();
    ck_assert_int_eq(read_number(2), GRPC_STATUS_OK);
}
END_TEST

START_TEST(action_result_of_which_a_part_is_gone_is_a_miss)
{
    const struct digest files[] = {store_number(1), store_number(2)};
    const struct digest action = store_result(1, files, 2);
    wait_until_there(3);
    lose_the_disk();
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_hex(&files[1], hex);
    fake_s3_fail(fake, FAKE_S3_FLIPPED, -1, "GET", hex);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(read_number(2), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(read_number(1), GRPC_STATUS_OK);
    ck_assert_int_ge(metrics_get(server->metrics, METRIC_TIER_MISMATCHES), 1);
}
END_TEST

START_TEST(bucket_that_does_not_answer_costs_only_what_is_nowhere_else)
{
    const struct digest file = store_number(1);
    const struct digest action = store_result(1, &file, 1);
    wait_until_there(2);
    lose_the_disk();
    (void)store_number(2);
    wait_until_there(3);
    /* Until the breaker opens each answer is waited for; then none is. */
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, NULL, NULL);
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(read_number(1), GRPC_STATUS_UNAVAILABLE);
        ck_assert_int_eq(read_number(2), GRPC_STATUS_OK);
        ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    }
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_TIER_UP), 0);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL(read_number(1) == GRPC_STATUS_OK);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_OK);
    /* What is in no bucket is missing, once that can be told. */
    ck_assert_int_eq(read_number(99), GRPC_STATUS_NOT_FOUND);
}
END_TEST

START_TEST(stop_while_reads_wait_for_a_silent_bucket_is_clean)
{
    struct rpc rpcs[8];
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    for (unsigned i = 0; i < ARRAY_LENGTH(rpcs); i++) {
        const struct digest digest = digest_of_number(i);
        struct byte_builder request = {0};
        char name[DIGEST_TEXT_BYTES_MAX + 8] = "blobs/";
        digest_text(&digest, name + 6);
        message_add_text(&request, 1, name);
        rpc_begin(&rpcs[i], &client, "/google.bytestream.ByteStream/Read");
        ck_assert(rpc_send(&rpcs[i], message_bytes(&request)) && rpc_half_close(&rpcs[i]));
        byte_builder_free(&request);
    }
    WAIT_UNTIL(fake_s3_requests(fake, "GET") >= 4);
    for (unsigned i = 0; i < ARRAY_LENGTH(rpcs); i++) {
        rpc_cancel(&rpcs[i]);
        (void)rpc_end(&rpcs[i]);
    }
}
END_TEST

START_TEST(what_the_bucket_has_is_not_missing_if_it_is_asked)
{
    for (unsigned i = 0; i < BLOBS; i++)
        (void)store_number(i);
    wait_until_there(BLOBS);
    lose_the_disk();
    int heads = fake_s3_requests(fake, "HEAD");
    ck_assert_uint_eq(count_missing(0, BLOBS), BLOBS);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), heads);
    finds = "on";
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "GET", "list-type");
    lose_the_disk();
    heads = fake_s3_requests(fake, "HEAD");
    /* What is not found in time counts as missing, so that on a busy machine it may take more than one call. */
    WAIT_UNTIL(count_missing(0, BLOBS) == 0);
    const int after = fake_s3_requests(fake, "HEAD");
    ck_assert_int_ge(after, heads + BLOBS);
    ck_assert_uint_eq(count_missing(0, BLOBS), 0);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), after);
    ck_assert_uint_eq(count_missing(5000, 7), 7);
    (void)store_number(5000);
    ck_assert_uint_eq(count_missing(5000, 7), 6);
    for (unsigned i = 0; i < BLOBS; i++)
        ck_assert_int_eq(read_number(i), GRPC_STATUS_OK);
}
END_TEST

START_TEST(node_whose_disk_is_gone_knows_what_the_bucket_has_from_a_listing)
{
    for (unsigned i = 0; i < BLOBS; i++)
        (void)store_number(i);
    wait_until_there(BLOBS);
    finds = "on";
    lose_the_disk();
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_TIER_LISTED) == BLOBS);
    WAIT_UNTIL(count_missing(0, BLOBS) == 0);
    const int requests = fake_s3_requests(fake, NULL);
    ck_assert_uint_eq(count_missing(0, BLOBS), 0);
    ck_assert_int_eq(fake_s3_requests(fake, NULL), requests);
}
END_TEST

START_TEST(what_was_listed_is_known_after_a_restart)
{
    for (unsigned i = 0; i < BLOBS; i++)
        (void)store_number(i);
    wait_until_there(BLOBS);
    finds = "on";
    lose_the_disk();
    WAIT_UNTIL(count_missing(0, BLOBS) == 0);
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_TIER_LISTED) == BLOBS);
    stop();
    /* Nobody can be asked: it has to be known. */
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, NULL, NULL);
    const int heads = fake_s3_requests(fake, "HEAD");
    start();
    ck_assert_uint_eq(count_missing(0, BLOBS), 0);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), heads);
    /* What turns out to be gone from there is missing, after the next restart, too. */
    const struct digest gone = digest_of_number(3);
    char hex[DIGEST_HASH_HEX_MAX + 1];
    fake_s3_fail(fake, FAKE_S3_FLIPPED, 1, "GET", digest_hex(&gone, hex));
    ck_assert_int_eq(read_number(3), GRPC_STATUS_NOT_FOUND);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "HEAD", NULL);
    ck_assert_uint_eq(count_missing(0, BLOBS), 1);
    stop();
    start();
    ck_assert_uint_eq(count_missing(0, BLOBS), 1);
}
END_TEST

START_TEST(bucket_that_is_silent_makes_everything_missing_that_is_not_here)
{
    (void)store_number(1);
    wait_until_there(1);
    finds = "on";
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "GET", "list-type");
    lose_the_disk();
    (void)store_number(2);
    wait_until_there(2);
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    ck_assert_uint_eq(count_missing(1, 1), 1);
    ck_assert_uint_eq(count_missing(2, 1), 0);
    ck_assert_uint_eq(count_missing(100, 50), 50);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL(count_missing(1, 2) == 0);
}
END_TEST

/* ---- over HTTP */

static int get_by_http(const char *method, const char *path, struct bytes wanted)
{
    struct http_answer answer;
    http_ask(server_http_port(server), method, path, "", bytes_of(NULL, 0), &answer);
    if (answer.code == 200 && strcmp(method, "GET") == 0)
        ck_assert(bytes_equal(answer.body, wanted));
    const int code = answer.code;
    http_answer_free(&answer);
    return code;
}

static int get_blob_by_http(const char *method, unsigned number)
{
    uint8_t data[BLOB_BYTES];
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char path[DIGEST_HASH_HEX_MAX + 16];
    const struct digest digest = digest_of_number(number);
    fill(data, number);
    snprintf(path, sizeof(path), "/cas/%s", digest_hex(&digest, hex));
    return get_by_http(method, path, bytes_of(data, sizeof(data)));
}

static int get_result_by_http(const struct digest *action)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char path[DIGEST_HASH_HEX_MAX + 16];
    snprintf(path, sizeof(path), "/ac/%s", digest_hex(action, hex));
    return get_by_http("HEAD", path, bytes_of(NULL, 0));
}

static void check_http_after_the_disk_was_lost(void)
{
    static const char kept[] = "what ccache keeps";
    struct digest files[BLOBS];
    struct http_answer answer;
    for (unsigned i = 0; i < BLOBS; i++)
        files[i] = store_number(i);
    const struct digest action = store_result(1, files, BLOBS / 2);
    const struct digest absent = digest_of_nothing(2);
    http_ask(server_http_port(server), "PUT", "/keys/one", "", bytes_of_string(kept), &answer);
    ck_assert_int_eq(answer.code / 100, 2);
    http_answer_free(&answer);
    struct copies *const copies = durability_copies(server->durability);
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_TIER_SEQ_SMALL) ==
               (int64_t)copies_published_seq(copies, LANE_SMALL));
    lose_the_disk();
    /* The result, and for it what it names; a miss is one as ever. */
    WAIT_UNTIL(get_result_by_http(&action) == 200);
    ck_assert_int_eq(get_result_by_http(&absent), 404);
    for (unsigned i = 0; i < BLOBS; i++) {
        ck_assert_int_eq(get_blob_by_http("HEAD", i), 200);
        ck_assert_int_eq(get_blob_by_http("GET", i), 200);
    }
    ck_assert_int_eq(get_blob_by_http("GET", 7000), 404);
    ck_assert_int_eq(get_by_http("GET", "/keys/one", bytes_of_string(kept)), 200);
    ck_assert_int_eq(get_by_http("GET", "/keys/two", bytes_of(NULL, 0)), 404);
    /* Now it is here. */
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, NULL, NULL);
    ck_assert_int_eq(get_blob_by_http("GET", 3), 200);
    ck_assert_int_eq(get_blob_by_http("GET", 7001), 503);
    ck_assert_int_eq(get_result_by_http(&absent), 404);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
}

START_TEST(http_serves_what_the_bucket_has_by_hash_alone)
{
    check_http_after_the_disk_was_lost();
}
END_TEST

START_TEST(http_serves_what_lies_in_packs)
{
    packs = "on";
    stop();
    start();
    check_http_after_the_disk_was_lost();
    ck_assert_int_gt(metrics_get(server->metrics, METRIC_TIER_INDEXES), 0);
}
END_TEST

START_TEST(result_over_http_that_names_what_the_bucket_has_not_is_a_miss)
{
    struct digest files[2] = {store_number(1), store_number(2)};
    const struct digest action = store_result(1, files, 2);
    char key[BUCKET_KEY_BYTES_MAX];
    wait_until_there(3);
    layout_blob_key("varve", &files[1], key);
    fake_s3_store(fake, key, bytes_of_string("something else"));
    lose_the_disk();
    ck_assert_int_eq(get_result_by_http(&action), 404);
    ck_assert_int_eq(get_blob_by_http("GET", 1), 200);
    ck_assert_int_eq(get_blob_by_http("GET", 2), 404);
}
END_TEST

START_TEST(stop_while_http_waits_for_a_silent_bucket_is_clean)
{
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    const int fd = http_connect(server_http_port(server));
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char request[DIGEST_HASH_HEX_MAX + 64];
    const struct digest digest = digest_of_number(1);
    snprintf(request, sizeof(request), "GET /cas/%s HTTP/1.1\r\nHost: a\r\n\r\n",
             digest_hex(&digest, hex));
    const int before = fake_s3_requests(fake, "HEAD");
    http_send_text(fd, request);
    WAIT_UNTIL(fake_s3_requests(fake, "HEAD") > before);
    stop();
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    close(fd);
    start();
}
END_TEST

START_TEST(without_reads_the_bucket_is_not_asked)
{
    const struct digest file = store_number(1);
    wait_until_there(1);
    reads = "off";
    lose_the_disk();
    const int gets = fake_s3_requests(fake, "GET"); /* of the server that was there before */
    ck_assert_int_eq(read_number(1), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(get_result(&file), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(fake_s3_requests(fake, "GET"), gets);
    (void)store_number(2);
    wait_until_there(2);
}
END_TEST

START_TEST(the_bucket_is_among_the_followers_with_how_far_it_is)
{
    struct copies *const copies = durability_copies(server->durability);
    struct follower seen;
    (void)store_number(1);
    WAIT_UNTIL(copies_followers(copies, &seen, 1) == 1 && seen.durable_seq[LANE_SMALL] == 1);
    ck_assert_str_eq(seen.name, "bucket " FAKE_S3_BUCKET);
    ck_assert_uint_eq(seen.behind_records[LANE_SMALL], 0);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", NULL);
    (void)store_number(2);
    (void)store_number(3);
    ck_assert_uint_eq(copies_followers(copies, &seen, 1), 1);
    ck_assert_uint_eq(seen.behind_records[LANE_SMALL], 2);
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_TIER_BEHIND_SMALL) > 2 * BLOB_BYTES);
    /* And why. */
    char trouble[STATUS_MESSAGE_BYTES_MAX] = "";
    WAIT_UNTIL(
        (tier_trouble(server->tier, seen.uid, trouble), strstr(trouble, "503 SlowDown") != NULL));
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    ck_assert_int_eq(unary("/varve.v1.Replication/Peers", &request, &response, &length),
                     GRPC_STATUS_OK);
    ck_assert_ptr_nonnull(memmem(response, length, "503 SlowDown", strlen("503 SlowDown")));
    free(response);
    tier_trouble(server->tier, seen.uid + 1, trouble);
    ck_assert_str_eq(trouble, ""); /* it is nobody else's */
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL((tier_trouble(server->tier, seen.uid, trouble), trouble[0] == '\0'));
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_TIER_BEHIND_SMALL) == 0);
}
END_TEST

START_TEST(through_means_that_a_write_is_answered_once_it_is_in_the_bucket)
{
    mode = "through";
    lose_the_disk();
    for (int i = 0; i < 5; i++) {
        ck_assert_msg(try_to_store((unsigned)i) == GRPC_STATUS_OK, "%s", text);
        ck_assert_int_eq(fake_s3_objects(fake), i + 1);
    }
    const struct digest file = digest_of_number(0);
    const struct digest action = store_result(1, &file, 1);
    ck_assert_int_eq(fake_s3_objects(fake), 6);
    lose_the_disk();
    ck_assert_msg(get_result(&action) == GRPC_STATUS_OK, "%s", text);
    for (unsigned i = 0; i < 5; i++)
        ck_assert_int_eq(read_number(i), GRPC_STATUS_OK);
}
END_TEST

START_TEST(through_and_the_bucket_does_not_answer_so_the_write_is_refused_and_missing)
{
    mode = "through";
    patience = "100ms";
    lose_the_disk();
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", NULL);
    ck_assert_int_eq(try_to_store(1), GRPC_STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(text, "stored here, but not in the bucket"));
    ck_assert_uint_eq(count_missing(1, 1), 1);
    ck_assert_int_eq(read_number(1), GRPC_STATUS_OK);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL(try_to_store(1) == GRPC_STATUS_OK);
    ck_assert_int_eq(fake_s3_objects(fake), 1);
    ck_assert_uint_eq(count_missing(1, 1), 0);
}
END_TEST

START_TEST(through_else_degrade_answers_without_the_bucket_until_that_has_caught_up)
{
    mode = "through";
    patience = "100ms";
    otherwise = "degrade";
    lose_the_disk();
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", NULL);
    ck_assert_int_eq(try_to_store(1), GRPC_STATUS_OK);
    ck_assert_int_eq(fake_s3_objects(fake), 0);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_ACK_COPIES_DEGRADED), 1);
    ck_assert_int_eq(try_to_store(2), GRPC_STATUS_OK);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_ACK_COPIES_DEGRADED) == 0);
    wait_until_there(2);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tier");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, node_whose_disk_is_gone_serves_all_that_it_had);
    tcase_add_test(all, what_was_deleted_by_order_does_not_come_back_from_a_bucket_that_is_behind);
    tcase_add_test(all, what_is_in_the_bucket_alone_is_deleted_by_name);
    tcase_add_test(all, action_result_of_which_a_part_is_gone_is_a_miss);
    tcase_add_test(all, bucket_that_does_not_answer_costs_only_what_is_nowhere_else);
    tcase_add_test(all, stop_while_reads_wait_for_a_silent_bucket_is_clean);
    tcase_add_test(all, what_the_bucket_has_is_not_missing_if_it_is_asked);
    tcase_add_test(all, node_whose_disk_is_gone_knows_what_the_bucket_has_from_a_listing);
    tcase_add_test(all, what_was_listed_is_known_after_a_restart);
    tcase_add_test(all, bucket_that_is_silent_makes_everything_missing_that_is_not_here);
    tcase_add_test(all, http_serves_what_the_bucket_has_by_hash_alone);
    tcase_add_test(all, http_serves_what_lies_in_packs);
    tcase_add_test(all, result_over_http_that_names_what_the_bucket_has_not_is_a_miss);
    tcase_add_test(all, stop_while_http_waits_for_a_silent_bucket_is_clean);
    tcase_add_test(all, without_reads_the_bucket_is_not_asked);
    tcase_add_test(all, the_bucket_is_among_the_followers_with_how_far_it_is);
    tcase_add_test(all, through_means_that_a_write_is_answered_once_it_is_in_the_bucket);
    tcase_add_test(all, through_and_the_bucket_does_not_answer_so_the_write_is_refused_and_missing);
    tcase_add_test(all, through_else_degrade_answers_without_the_bucket_until_that_has_caught_up);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
