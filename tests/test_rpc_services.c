/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what a client learns about the server itself: its capabilities, its health as the state
 * changes, and the descriptors of what it serves. The real methods over real gRPC, without a store.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "proto/wire.h"
#include "server/health.h"
#include "server/methods.h"
#include "tests/support/front_rig.h"
#include "tests/support/test_run.h"

typedef Build__Bazel__Remote__Execution__V2__ServerCapabilities server_capabilities;
typedef Grpc__Health__V1__HealthCheckResponse check_response;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

static void never(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    call_fail(call, &(struct status){.code = STATUS_INTERNAL, .message = "not asked"});
}

/* Stand for the services that need a store: one that writes and one that reads. */
static const struct method writer = {.path = "/google.bytestream.ByteStream/Write",
                                     .kind = METHOD_UNARY,
                                     .role = ROLE_WRITE_CAS,
                                     .on_message = never};
static const struct method reader = {.path = "/varve.v1.Store/Stat",
                                     .kind = METHOD_UNARY,
                                     .role = ROLE_READ,
                                     .on_message = never};
static const struct method *const methods[] = {
    &rpc_get_capabilities, &rpc_health_check,       &rpc_health_watch, &rpc_health_list,
    &rpc_reflection_v1,    &rpc_reflection_v1alpha, &writer,           &reader};

static struct front_rig rig;

static void prepare(struct front_rig *made)
{
    made->config.max_blob_bytes = 5 * GIB;
}

static void setup(void)
{
    static const struct front_rig_limits limits = {.prepare = prepare};
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), &limits);
}

static void teardown(void)
{
    front_rig_stop(&rig, 10000);
}

/* A message with one string field. */
static struct bytes string_field(uint8_t to[512], uint32_t number, const char *text)
{
    uint8_t *const end = wire_put_bytes_field(to, number, bytes_of_string(text));
    return bytes_of(to, (size_t)(end - to));
}

/* ---- capabilities */

START_TEST(capabilities_are_those_that_clients_check)
{
    uint8_t *response = NULL;
    size_t length = 0;
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_get_capabilities.path, (struct bytes){0}, &response,
                               &length, NULL),
                     GRPC_STATUS_OK);
    server_capabilities *const told =
        build__bazel__remote__execution__v2__server_capabilities__unpack(NULL, length, response);
    ck_assert_ptr_nonnull(told);
    ck_assert_ptr_null(told->execution_capabilities);
    ck_assert_ptr_null(told->deprecated_api_version);
    ck_assert_int_eq(told->low_api_version->major, 2);
    ck_assert_int_eq(told->low_api_version->minor, 0);
    ck_assert_int_eq(told->high_api_version->major, 2);
    ck_assert_int_eq(told->high_api_version->minor, 12);
    ck_assert_uint_eq(told->cache_capabilities->n_digest_functions, 1);
    ck_assert_int_eq(told->cache_capabilities->digest_functions[0], 1);
    ck_assert_uint_eq(told->cache_capabilities->n_supported_compressors, 1);
    ck_assert_int_eq(told->cache_capabilities->supported_compressors[0], 1);
    ck_assert_uint_eq(told->cache_capabilities->n_supported_batch_update_compressors, 1);
    ck_assert_int_eq(told->cache_capabilities->supported_batch_update_compressors[0], 1);
    ck_assert_int_eq(told->cache_capabilities->max_batch_total_size_bytes, LIMIT_BATCH_TOTAL_BYTES);
    ck_assert_int_eq(told->cache_capabilities->max_cas_blob_size_bytes, 5 * (int64_t)GIB);
    ck_assert_int_eq(told->cache_capabilities->symlink_absolute_path_strategy, 2);
    ck_assert_int_eq(told->cache_capabilities->action_cache_update_capabilities->update_enabled, 1);
    ck_assert_int_eq(told->cache_capabilities->split_blob_support, 0);
    build__bazel__remote__execution__v2__server_capabilities__free_unpacked(told, NULL);
    free(response);
}
END_TEST

START_TEST(instance_that_is_not_configured_is_an_invalid_argument)
{
    static char name[] = "one/two";
    static char *names[] = {name};
    uint8_t request[512];
    char text[RPC_TEXT_BYTES_MAX];
    rig.config.instances = (struct config_list){.items = names, .count = 1};
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_get_capabilities.path,
                               string_field(request, 1, "one/two"), NULL, NULL, text),
                     GRPC_STATUS_OK);
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_get_capabilities.path,
                               string_field(request, 1, "other"), NULL, NULL, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "\"other\""));
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_get_capabilities.path,
                               string_field(request, 1, "a/blobs/b"), NULL, NULL, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_get_capabilities.path, bytes_of("\x0a\x64", 2),
                               NULL, NULL, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "GetCapabilitiesRequest"));
}
END_TEST

/* ---- health */

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

static int status_in(const uint8_t *data, size_t length)
{
    check_response *const response =
        grpc__health__v1__health_check_response__unpack(NULL, length, data);
    ck_assert_ptr_nonnull(response);
    const int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    return status;
}

static int check(const char *service)
{
    uint8_t request[512];
    uint8_t *response = NULL;
    size_t length = 0;
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_health_check.path,
                               string_field(request, 1, service), &response, &length, NULL),
                     GRPC_STATUS_OK);
    const int status = status_in(response, length);
    free(response);
    return status;
}

START_TEST(health_follows_the_state_and_reads_go_on_when_writes_have_failed)
{
    static const struct {
        enum server_state state;
        int whole, writes, reads;
    } steps[] = {{SERVER_STARTING, NOT_SERVING, NOT_SERVING, NOT_SERVING},
                 {SERVER_SERVING, SERVING, SERVING, SERVING},
                 {SERVER_READ_ONLY, NOT_SERVING, NOT_SERVING, SERVING},
                 {SERVER_SERVING, NOT_SERVING, NOT_SERVING, SERVING}, /* never again */
                 {SERVER_DRAINING, NOT_SERVING, NOT_SERVING, NOT_SERVING}};
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        health_set(rig.server.health, steps[i].state, "");
        ck_assert_int_eq(check(""), steps[i].whole);
        ck_assert_int_eq(check("google.bytestream.ByteStream"), steps[i].writes);
        ck_assert_int_eq(check("varve.v1.Store"), steps[i].reads);
        ck_assert_int_eq(check("grpc.health.v1.Health"), steps[i].reads);
    }
}
END_TEST

START_TEST(health_of_an_unknown_service_is_not_found)
{
    uint8_t request[512];
    char text[RPC_TEXT_BYTES_MAX];
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_health_check.path,
                               string_field(request, 1, "no.such"), NULL, NULL, text),
                     GRPC_STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(text, "no.such"));
}
END_TEST

START_TEST(health_list_has_every_service_and_the_whole)
{
    uint8_t *response = NULL;
    size_t length = 0;
    health_set(rig.server.health, SERVER_READ_ONLY, "disk");
    ck_assert_int_eq(
        rpc_unary(&rig.client, rpc_health_list.path, (struct bytes){0}, &response, &length, NULL),
        GRPC_STATUS_OK);
    Grpc__Health__V1__HealthListResponse *const list =
        grpc__health__v1__health_list_response__unpack(NULL, length, response);
    ck_assert_uint_eq(list->n_statuses, 7);
    int serving = 0;
    for (size_t i = 0; i < list->n_statuses; i++) {
        const bool writes = list->statuses[i]->key[0] == '\0' ||
                            strcmp(list->statuses[i]->key, "google.bytestream.ByteStream") == 0;
        ck_assert_int_eq((int)list->statuses[i]->value->status, writes ? NOT_SERVING : SERVING);
        serving += writes ? 0 : 1;
    }
    ck_assert_int_eq(serving, 5);
    grpc__health__v1__health_list_response__free_unpacked(list, NULL);
    free(response);
}
END_TEST

static int next_status(struct rpc *rpc)
{
    size_t length;
    uint8_t *const received = rpc_receive(rpc, &length);
    ck_assert_ptr_nonnull(received);
    const int status = status_in(received, length);
    free(received);
    return status;
}

START_TEST(watch_tells_each_change_and_ends_when_the_server_stops)
{
    struct rpc whole;
    struct rpc reads;
    struct rpc unknown;
    uint8_t request[512];
    rpc_begin(&whole, &rig.client, rpc_health_watch.path);
    ck_assert(rpc_send(&whole, (struct bytes){0}));
    rpc_begin(&reads, &rig.client, rpc_health_watch.path);
    ck_assert(rpc_send(&reads, string_field(request, 1, "varve.v1.Store")));
    rpc_begin(&unknown, &rig.client, rpc_health_watch.path);
    ck_assert(rpc_send(&unknown, string_field(request, 1, "no.such")));
    ck_assert_int_eq(next_status(&whole), NOT_SERVING);
    ck_assert_int_eq(next_status(&reads), NOT_SERVING);
    ck_assert_int_eq(next_status(&unknown), SERVICE_UNKNOWN);

    health_set(rig.server.health, SERVER_SERVING, "");
    ck_assert_int_eq(next_status(&whole), SERVING);
    ck_assert_int_eq(next_status(&reads), SERVING);
    health_set(rig.server.health, SERVER_READ_ONLY, "a sync has failed");
    ck_assert_int_eq(next_status(&whole), NOT_SERVING);
    ck_assert(!rpc_wait_ended(&reads, 50)); /* nothing has changed for it */
    health_set(rig.server.health, SERVER_DRAINING, "");
    ck_assert_int_eq(next_status(&reads), NOT_SERVING);
    ck_assert_int_eq(rpc_end(&whole), GRPC_STATUS_UNAVAILABLE);
    ck_assert_int_eq(rpc_end(&reads), GRPC_STATUS_UNAVAILABLE);
    ck_assert_int_eq(rpc_end(&unknown), GRPC_STATUS_UNAVAILABLE);
    front_rig_wait_live(&rig, 0);
}
END_TEST

START_TEST(watch_tells_that_a_server_is_drained_and_is_back)
{
    struct rpc whole;
    struct rpc reads;
    char reason[STATUS_MESSAGE_BYTES_MAX];
    uint8_t request[512];
    /* Before it serves nobody can tell the difference. */
    ck_assert(health_drain(rig.server.health, "early", 1));
    ck_assert_int_eq(health_state(rig.server.health, NULL), SERVER_STARTING);
    ck_assert(health_undrain(rig.server.health));
    health_set(rig.server.health, SERVER_SERVING, "");
    rpc_begin(&whole, &rig.client, rpc_health_watch.path);
    ck_assert(rpc_send(&whole, (struct bytes){0}));
    rpc_begin(&reads, &rig.client, rpc_health_watch.path);
    ck_assert(rpc_send(&reads, string_field(request, 1, "varve.v1.Store")));
    ck_assert_int_eq(next_status(&whole), SERVING);
    ck_assert_int_eq(next_status(&reads), SERVING);

    ck_assert(health_drain(rig.server.health, "new disk", 5));
    ck_assert(!health_drain(rig.server.health, "again", 6));
    ck_assert_int_eq(next_status(&whole), NOT_SERVING);
    ck_assert_int_eq(next_status(&reads), NOT_SERVING);
    ck_assert_int_eq(health_state(rig.server.health, reason), SERVER_DRAINED);
    ck_assert_str_eq(reason, "new disk");
    ck_assert_int_eq(health_drained_ns(rig.server.health), 5);
    /* A sync that fails meanwhile is told afterwards. */
    health_set(rig.server.health, SERVER_READ_ONLY, "disk");
    ck_assert_int_eq(health_state(rig.server.health, NULL), SERVER_DRAINED);
    ck_assert(health_undrain(rig.server.health));
    ck_assert(!health_undrain(rig.server.health));
    ck_assert_int_eq(next_status(&reads), SERVING);
    ck_assert(!rpc_wait_ended(&whole, 50)); /* nothing has changed for it */
    ck_assert_int_eq(health_state(rig.server.health, reason), SERVER_READ_ONLY);
    ck_assert_str_eq(reason, "disk");
    health_set(rig.server.health, SERVER_DRAINING, "");
    ck_assert_int_eq(next_status(&reads), NOT_SERVING);
    ck_assert_int_eq(rpc_end(&whole), GRPC_STATUS_UNAVAILABLE);
    ck_assert_int_eq(rpc_end(&reads), GRPC_STATUS_UNAVAILABLE);
}
END_TEST

START_TEST(watch_that_is_cancelled_is_forgotten)
{
    for (int i = 0; i < 50; i++) {
        struct rpc rpc;
        rpc_begin(&rpc, &rig.client, rpc_health_watch.path);
        ck_assert(rpc_send(&rpc, (struct bytes){0}));
        if (i % 2 == 0)
            next_status(&rpc);
        rpc_cancel(&rpc);
        ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_CANCELLED);
    }
    front_rig_wait_live(&rig, 0);
    health_set(rig.server.health, SERVER_SERVING, ""); /* wakes nobody */
}
END_TEST

/* ---- reflection */

enum { BY_FILENAME = 3, BY_SYMBOL = 4, EXTENSION = 5, EXTENSION_NUMBERS = 6, LIST = 7 };

static reflection_response *ask(struct rpc *rpc, uint32_t kind, const char *operand)
{
    uint8_t request[512];
    size_t length;
    const struct bytes sent = string_field(request, kind, operand);
    ck_assert(rpc_send(rpc, sent));
    uint8_t *const received = rpc_receive(rpc, &length);
    ck_assert_ptr_nonnull(received);
    reflection_response *const response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, length, received);
    ck_assert_ptr_nonnull(response);
    ck_assert_ptr_nonnull(response->original_request);
    free(received);
    return response;
}

static void forget(reflection_response *response)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

static bool file_is_in(const reflection_response *response, const char *name)
{
    const Grpc__Reflection__V1__FileDescriptorResponse *const files =
        response->file_descriptor_response;
    for (size_t i = 0; i < files->n_file_descriptor_proto; i++) {
        const struct bytes file =
            bytes_of(files->file_descriptor_proto[i].data, files->file_descriptor_proto[i].len);
        const size_t length = strlen(name);
        if (file.length > length + 2 && file.data[0] == 0x0a && file.data[1] == length &&
            memcmp(file.data + 2, name, length) == 0)
            return true;
    }
    return false;
}

START_TEST(reflection_lists_what_is_served_in_both_versions)
{
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        struct rpc rpc;
        rpc_begin(&rpc, &rig.client, paths[i]);
        reflection_response *const response = ask(&rpc, LIST, "*");
        ck_assert_ptr_nonnull(response->list_services_response);
        ck_assert_uint_eq(response->list_services_response->n_service, 6);
        ck_assert_str_eq(response->list_services_response->service[0]->name,
                         "build.bazel.remote.execution.v2.Capabilities");
        forget(response);
        ck_assert(rpc_half_close(&rpc));
        ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    }
}
END_TEST

static const struct {
    const char *symbol, *file;
} symbols[] = {
    {"google.bytestream.ByteStream", "google/bytestream/bytestream.proto"},
    {"google.bytestream.ByteStream.Read", "google/bytestream/bytestream.proto"},
    {"grpc.health.v1.HealthCheckResponse", "grpc/health/v1/health.proto"},
    {"grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"},
    {"grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING", "grpc/health/v1/health.proto"},
    {"grpc.health.v1.HealthCheckRequest.service", "grpc/health/v1/health.proto"},
    {"build.bazel.remote.execution.v2.Digest",
     "build/bazel/remote/execution/v2/remote_execution.proto"},
    {"build.bazel.remote.execution.v2.BatchReadBlobsResponse.Response.digest",
     "build/bazel/remote/execution/v2/remote_execution.proto"},
    {"grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto"},
    {"google.protobuf.Timestamp", "google/protobuf/timestamp.proto"},
    {"varve.v1.Lane", "varve/v1/varve.proto"},
};

START_TEST(reflection_finds_the_file_of_a_symbol)
{
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, rpc_reflection_v1.path);
    reflection_response *const response = ask(&rpc, BY_SYMBOL, symbols[_i].symbol);
    ck_assert_ptr_nonnull(response->file_descriptor_response);
    ck_assert_msg(file_is_in(response, symbols[_i].file), "%s", symbols[_i].symbol);
    forget(response);
    ck_assert(rpc_half_close(&rpc));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(reflection_sends_a_file_with_all_that_it_imports)
{
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, rpc_reflection_v1.path);
    reflection_response *const response = ask(&rpc, BY_FILENAME, "varve/v1/varve.proto");
    ck_assert(file_is_in(response, "varve/v1/varve.proto"));
    ck_assert(file_is_in(response, "build/bazel/remote/execution/v2/remote_execution.proto"));
    ck_assert(file_is_in(response, "build/bazel/semver/semver.proto"));
    ck_assert(file_is_in(response, "google/rpc/status.proto"));
    ck_assert(file_is_in(response, "google/protobuf/any.proto"));
    ck_assert(!file_is_in(response, "grpc/health/v1/health.proto"));
    forget(response);
    rpc_cancel(&rpc);
    rpc_end(&rpc);
}
END_TEST

START_TEST(reflection_tells_errors_inside_the_stream_which_goes_on)
{
    static const struct {
        uint32_t kind;
        const char *operand;
        int code;
    } cases[] = {{BY_FILENAME, "no.proto", 5},
                 {BY_SYMBOL, "no.such.Symbol", 5},
                 {BY_SYMBOL, "google.bytestream", 5},
                 {BY_SYMBOL, "google.bytestream.ByteStrea", 5},
                 {BY_SYMBOL, "", 5},
                 {EXTENSION, "", 5},
                 {EXTENSION_NUMBERS, "google.bytestream.ReadRequest", 5},
                 {1, "only.a.host", 3}};
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, rpc_reflection_v1.path);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        reflection_response *const response = ask(&rpc, cases[i].kind, cases[i].operand);
        ck_assert_ptr_nonnull(response->error_response);
        ck_assert_int_eq(response->error_response->error_code, cases[i].code);
        ck_assert_uint_gt(strlen(response->error_response->error_message), 0);
        if (cases[i].kind == 1)
            ck_assert_str_eq(response->valid_host, "only.a.host");
        forget(response);
    }
    ck_assert(rpc_half_close(&rpc));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(reflection_refuses_what_is_no_request)
{
    static const uint8_t damaged[] = {0x1a, 0x7f, 'a'};
    static uint8_t huge[5000];
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, rpc_reflection_v1.path);
    ck_assert(rpc_send(&rpc, bytes_of(damaged, sizeof(damaged))));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_begin(&rpc, &rig.client, rpc_reflection_v1.path);
    ck_assert(rpc_send(&rpc, bytes_of(huge, sizeof(huge))));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_INVALID_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("rpc_services");
    TCase *const all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, capabilities_are_those_that_clients_check);
    tcase_add_test(all, instance_that_is_not_configured_is_an_invalid_argument);
    tcase_add_test(all, health_follows_the_state_and_reads_go_on_when_writes_have_failed);
    tcase_add_test(all, health_of_an_unknown_service_is_not_found);
    tcase_add_test(all, health_list_has_every_service_and_the_whole);
    tcase_add_test(all, watch_tells_each_change_and_ends_when_the_server_stops);
    tcase_add_test(all, watch_tells_that_a_server_is_drained_and_is_back);
    tcase_add_test(all, watch_that_is_cancelled_is_forgotten);
    tcase_add_test(all, reflection_lists_what_is_served_in_both_versions);
    tcase_add_loop_test(all, reflection_finds_the_file_of_a_symbol, 0, ARRAY_LENGTH(symbols));
    tcase_add_test(all, reflection_sends_a_file_with_all_that_it_imports);
    tcase_add_test(all, reflection_tells_errors_inside_the_stream_which_goes_on);
    tcase_add_test(all, reflection_refuses_what_is_no_request);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
