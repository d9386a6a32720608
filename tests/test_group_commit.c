/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that uploads that arrive together share a sync, seen from outside: the whole server in this process with its sync slowed by a
 * fail point, sixteen connections, and the counter that /metrics shows.
 */
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/limits.h"
#include "server/server.h"
#include "tests/support/messages.h"
#include "tests/support/rpc_client.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { CLIENTS = 16, SLOW_SYNC_MS = 200, BLOB_BYTES = 4000 };

static const char BATCH_UPDATE[] =
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs";

static struct temp_dir directory;
static struct config *config;
static struct server *server;

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
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
}

static void teardown(void)
{
    server_stop(server);
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

struct upload {
    struct rpc_client client;
    struct rpc call;
};

/* The request has left when this returns; the answer is waited for by finish_upload(). */
static void start_upload(struct upload *upload, uint64_t seed)
{
    uint8_t *data = seeded_bytes(seed, BLOB_BYTES);
    struct digest digest;
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, BLOB_BYTES), &digest);
    message_add_digest(&entry, 1, &digest);
    message_add(&entry, 2, bytes_of(data, BLOB_BYTES));
    message_add_message(&request, 2, &entry);
    rpc_client_open(&upload->client, server_grpc_port(server));
    rpc_begin(&upload->call, &upload->client, BATCH_UPDATE);
    ck_assert(rpc_send(&upload->call, message_bytes(&request)));
    ck_assert(rpc_half_close(&upload->call));
    byte_builder_free(&request);
    free(data);
}

static void finish_upload(struct upload *upload)
{
    size_t length = 0;
    free(rpc_receive(&upload->call, &length));
    ck_assert_int_eq(rpc_end(&upload->call), GRPC_STATUS_OK);
    rpc_client_close(&upload->client);
}

START_TEST(sixteen_clients_at_once_share_at_most_two_syncs)
{
    static struct upload uploads[CLIENTS];
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_SLEEP, SLOW_SYNC_MS);
    for (uint64_t i = 0; i < CLIENTS; i++)
        start_upload(&uploads[i], i);
    for (size_t i = 0; i < CLIENTS; i++)
        finish_upload(&uploads[i]);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_BLOBS_WRITTEN), CLIENTS);
    const int64_t syncs = metrics_get(server->metrics, METRIC_SEGMENT_SYNCS_SMALL);
    ck_assert_int_ge(syncs, 1);
    ck_assert_int_le(syncs, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_commit");
    TCase *tests = tcase_create("over gRPC");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, sixteen_clients_at_once_share_at_most_two_syncs);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
