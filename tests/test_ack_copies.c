/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what --ack-copies means to clients: the whole server in this process, with clients that write and a follower that is a few calls
 * of the test. An answer, also one that a blob is there already, comes after the follower has said that it has it; a stop does not
 * wait for followers; and sixteen writes at once still share a sync.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/limits.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "server/health.h"
#include "server/server.h"
#include "tests/support/messages.h"
#include "tests/support/rpc_client.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "varve/v1/replication.pb-c.h"

enum { CLIENTS = 16, SLOW_SYNC_MS = 200, BLOB_BYTES = 4000, FOLLOWER = 4711 };

static const char BATCH_UPDATE[] =
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs";
static const char FIND_MISSING[] =
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs";
static const char WRITE[] = "/google.bytestream.ByteStream/Write";
static const char FEED[] = "/varve.v1.Replication/Feed";

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client follower;

static void start(const char *otherwise, const char *timeout)
{
    struct status status = {0};
    enum config_action action;
    temp_dir_make(&directory);
    char otherwise_text[16];
    char timeout_text[16];
    snprintf(otherwise_text, sizeof(otherwise_text), "%s", otherwise);
    snprintf(timeout_text, sizeof(timeout_text), "%s", timeout);
    char *const arguments[] = {(char[]){"varved"},
                               (char[]){"--data"},
                               directory.path,
                               (char[]){"--listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--reserve"}, /* whatever else is on this disk */
                               (char[]){"0B"},
                               (char[]){"--ack-copies"},
                               (char[]){"1"},
                               (char[]){"--ack-copies-else"},
                               otherwise_text,
                               (char[]){"--ack-copies-timeout"},
                               timeout_text};
    char *const environment[] = {NULL};
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    grpc_init();
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&follower, server_grpc_port(server));
}

static void stop_server(void)
{
    server_stop(server);
    server = NULL;
}

static void teardown(void)
{
    rpc_client_close(&follower);
    if (server != NULL)
        stop_server();
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

static void setup_refusing(void)
{
    start("refuse", "60s");
}

static void setup_degrading(void)
{
    start("degrade", "100ms");
}

struct upload {
    struct rpc_client client;
    struct rpc call;
    struct digest digest;
};

/* The request has left when this returns. */
static void start_upload(struct upload *upload, uint64_t seed)
{
    uint8_t *const data = seeded_bytes(seed, BLOB_BYTES);
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, BLOB_BYTES), &upload->digest);
    message_add_digest(&entry, 1, &upload->digest);
    message_add(&entry, 2, bytes_of(data, BLOB_BYTES));
    message_add_message(&request, 2, &entry);
    rpc_client_open(&upload->client, server_grpc_port(server));
    rpc_begin(&upload->call, &upload->client, BATCH_UPDATE);
    ck_assert(rpc_send(&upload->call, message_bytes(&request)));
    ck_assert(rpc_half_close(&upload->call));
    byte_builder_free(&request);
    free(data);
}

/* The same by a stream. */
static void start_write(struct upload *upload, uint64_t seed)
{
    uint8_t *const data = seeded_bytes(seed, BLOB_BYTES);
    struct byte_builder request = {0};
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char name[256];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, BLOB_BYTES), &upload->digest);
    snprintf(name, sizeof(name), "uploads/2b4d6f81-0000-4000-8000-000000000000/blobs/%s/%d",
             digest_hex(&upload->digest, hex), BLOB_BYTES);
    message_add_text(&request, 1, name);
    message_add_number(&request, 3, 1);
    message_add(&request, 10, bytes_of(data, BLOB_BYTES));
    rpc_client_open(&upload->client, server_grpc_port(server));
    rpc_begin(&upload->call, &upload->client, WRITE);
    ck_assert(rpc_send(&upload->call, message_bytes(&request)));
    ck_assert(rpc_half_close(&upload->call));
    byte_builder_free(&request);
    free(data);
}

/* The code of a batch's only entry. */
static int finish_upload(struct upload *upload)
{
    size_t length = 0;
    uint8_t *const received = rpc_receive(&upload->call, &length);
    ck_assert_int_eq(rpc_end(&upload->call), GRPC_STATUS_OK);
    ck_assert_ptr_nonnull(received);
    Build__Bazel__Remote__Execution__V2__BatchUpdateBlobsResponse *const unpacked =
        build__bazel__remote__execution__v2__batch_update_blobs_response__unpack(NULL, length,
                                                                                 received);
    ASSERT(unpacked != NULL && unpacked->n_responses == 1);
    const int code = unpacked->responses[0]->status->code;
    build__bazel__remote__execution__v2__batch_update_blobs_response__free_unpacked(unpacked, NULL);
    free(received);
    rpc_client_close(&upload->client);
    return code;
}

static grpc_status_code finish_write(struct upload *upload)
{
    size_t length = 0;
    free(rpc_receive(&upload->call, &length));
    const grpc_status_code code = rpc_end(&upload->call);
    rpc_client_close(&upload->client);
    return code;
}

static void tell(Varve__V1__Lane lane, uint64_t durable_seq)
{
    Varve__V1__FeedRequest request = VARVE__V1__FEED_REQUEST__INIT;
    uint8_t message[256];
    request.lane = lane;
    request.after_seq = durable_seq;
    request.follower_uid = FOLLOWER;
    request.follower_durable_seq = durable_seq;
    const size_t length = varve__v1__feed_request__pack(&request, message);
    ck_assert_int_eq(rpc_unary(&follower, FEED, bytes_of(message, length), NULL, NULL, NULL),
                     GRPC_STATUS_OK);
}

static uint64_t published(void)
{
    return copies_published_seq(durability_copies(server->durability), LANE_SMALL);
}

static void wait_until_held(int64_t rounds)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + 50 * NS_PER_S;
    while (metrics_get(server->metrics, METRIC_ACK_COPIES_WAITING) < rounds) {
        ck_assert_int_lt(clock_monotonic_ns(clock_real()), until_ns);
        usleep(1000);
    }
}

START_TEST(a_write_is_answered_once_a_follower_has_it)
{
    struct upload upload;
    start_upload(&upload, 1);
    wait_until_held(1);
    tell(VARVE__V1__LANE__LANE_SMALL, 0);
    ck_assert(!rpc_wait_ended(&upload.call, 200));
    ck_assert(store_has_blob(server->store, &upload.digest));
    tell(VARVE__V1__LANE__LANE_SMALL, 1);
    ck_assert_int_eq(finish_upload(&upload), 0);
}
END_TEST

/* Two more clients send what is there already. */
START_TEST(who_sends_what_is_there_waits_for_the_follower_too)
{
    struct upload first;
    struct upload again;
    struct upload stream;
    start_upload(&first, 1);
    wait_until_held(1);
    start_upload(&again, 1);
    wait_until_held(2);
    start_write(&stream, 1);
    wait_until_held(3);
    ck_assert(!rpc_wait_ended(&again.call, 100));
    ck_assert(!rpc_wait_ended(&stream.call, 100));
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_BLOBS_WRITTEN), 1);
    tell(VARVE__V1__LANE__LANE_SMALL, published());
    ck_assert_int_eq(finish_upload(&first), 0);
    ck_assert_int_eq(finish_upload(&again), 0);
    ck_assert_int_eq(finish_write(&stream), GRPC_STATUS_OK);
    /* And once the follower has it, nobody does. */
    start_upload(&again, 1);
    ck_assert_int_eq(finish_upload(&again), 0);
    start_write(&stream, 1);
    ck_assert_int_eq(finish_write(&stream), GRPC_STATUS_OK);
}
END_TEST

static bool is_missing(const struct digest *digest)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    message_add_digest(&request, 2, digest);
    ck_assert_int_eq(
        rpc_unary(&follower, FIND_MISSING, message_bytes(&request), &response, &length, NULL),
        GRPC_STATUS_OK);
    byte_builder_free(&request);
    free(response);
    return length > 0;
}

START_TEST(what_no_follower_has_counts_as_missing)
{
    struct upload upload;
    start_upload(&upload, 1);
    wait_until_held(1);
    ck_assert(store_has_blob(server->store, &upload.digest));
    ck_assert(is_missing(&upload.digest));
    tell(VARVE__V1__LANE__LANE_SMALL, 1);
    ck_assert_int_eq(finish_upload(&upload), 0);
    ck_assert(!is_missing(&upload.digest));
}
END_TEST

START_TEST(a_server_that_stops_does_not_wait_for_its_followers)
{
    struct upload upload;
    start_upload(&upload, 1);
    wait_until_held(1);
    const int64_t begin_ns = clock_monotonic_ns(clock_real());
    stop_server();
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - begin_ns, 30 * NS_PER_S);
    ck_assert_int_eq(finish_upload(&upload), GRPC_STATUS_UNAVAILABLE);
}
END_TEST

START_TEST(sixteen_clients_at_once_share_at_most_two_syncs_and_wait_for_one_follower)
{
    static struct upload uploads[CLIENTS];
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_SLEEP, SLOW_SYNC_MS);
    for (uint64_t i = 0; i < CLIENTS; i++)
        start_upload(&uploads[i], i);
    while (published() < CLIENTS)
        usleep(1000);
    for (size_t i = 0; i < CLIENTS; i++)
        ck_assert(!rpc_wait_ended(&uploads[i].call, 1));
    tell(VARVE__V1__LANE__LANE_SMALL, CLIENTS);
    for (size_t i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(finish_upload(&uploads[i]), 0);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_BLOBS_WRITTEN), CLIENTS);
    ck_assert_int_le(metrics_get(server->metrics, METRIC_SEGMENT_SYNCS_SMALL), 2);
}
END_TEST

START_TEST(a_degraded_server_answers_and_says_so_until_a_follower_has_caught_up)
{
    struct upload upload;
    char note[STATUS_MESSAGE_BYTES_MAX] = "";
    start_upload(&upload, 1);
    ck_assert_int_eq(finish_upload(&upload), 0);
    while (note[0] == '\0') {
        ck_assert_int_eq(health_state(server->health, note), SERVER_SERVING);
        usleep(1000);
    }
    ck_assert_ptr_nonnull(strstr(note, "without the 1 copies"));
    tell(VARVE__V1__LANE__LANE_LARGE, 0);
    tell(VARVE__V1__LANE__LANE_SMALL, published());
    while (note[0] != '\0') {
        ck_assert_int_eq(health_state(server->health, note), SERVER_SERVING);
        usleep(1000);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ack_copies");
    TCase *refusing = tcase_create("refuse");
    tcase_set_timeout(refusing, 120);
    tcase_add_checked_fixture(refusing, setup_refusing, teardown);
    tcase_add_test(refusing, a_write_is_answered_once_a_follower_has_it);
    tcase_add_test(refusing, who_sends_what_is_there_waits_for_the_follower_too);
    tcase_add_test(refusing, what_no_follower_has_counts_as_missing);
    tcase_add_test(refusing, a_server_that_stops_does_not_wait_for_its_followers);
    tcase_add_test(refusing,
                   sixteen_clients_at_once_share_at_most_two_syncs_and_wait_for_one_follower);
    suite_add_tcase(suite, refusing);
    TCase *degrading = tcase_create("degrade");
    tcase_set_timeout(degrading, 120);
    tcase_add_checked_fixture(degrading, setup_degrading, teardown);
    tcase_add_test(degrading, a_degraded_server_answers_and_says_so_until_a_follower_has_caught_up);
    suite_add_tcase(suite, degrading);
    return test_run(suite);
}
