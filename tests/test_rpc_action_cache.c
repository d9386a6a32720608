/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that an action result is served only when all it names can be read; that it comes back as
 * the client stored it, unknown fields and all; that instances and sizes of actions are kept apart;
 * and that what is wrong is refused and told.
 *
 * Method: over gRPC, with a real store; answers and error details are taken apart with protobuf-c.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "proto/wire.h"
#include "tests/support/cas_rig.h"
#include "tests/support/messages.h"
#include "tests/support/reapi_names.h"
#include "tests/support/test_run.h"

static struct cas_rig rig;
static char text[RPC_TEXT_BYTES_MAX];

static void setup(void)
{
    cas_rig_start(&rig, 4);
}

static void setup_nothing_cached(void)
{
    setup();
    atomic_store(&rig.real.nothing_cached, true);
}

static void teardown(void)
{
    cas_rig_stop(&rig);
}

static grpc_status_code update(const char *instance,
                               const struct digest *action,
                               struct bytes result,
                               struct byte_builder *response)
{
    struct byte_builder request = {0};
    if (instance[0] != '\0')
        message_add_text(&request, 1, instance);
    if (action != NULL)
        message_add_digest(&request, 2, action);
    if (result.data != NULL || result.length == 0)
        message_add(&request, 3, result);
    return cas_rig_call(&rig, AC_METHOD("UpdateActionResult"), &request, response, text);
}

static void update_ok(const struct digest *action, const struct byte_builder *result)
{
    struct byte_builder response;
    const grpc_status_code code = update("", action, message_bytes(result), &response);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    byte_builder_free(&response);
}

static grpc_status_code get(const char *instance,
                            const struct digest *action,
                            struct byte_builder *response)
{
    struct byte_builder request = {0};
    if (instance[0] != '\0')
        message_add_text(&request, 1, instance);
    if (action != NULL)
        message_add_digest(&request, 2, action);
    return cas_rig_call(&rig, AC_METHOD("GetActionResult"), &request, response, text);
}

static void expect_miss(const struct digest *action)
{
    struct byte_builder response;
    ck_assert_int_eq(get("", action, &response), GRPC_STATUS_NOT_FOUND);
    byte_builder_free(&response);
}

static void expect_hit(const struct digest *action, struct bytes expected)
{
    struct byte_builder response;
    const grpc_status_code code = get("", action, &response);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    ck_assert(bytes_equal(message_bytes(&response), expected));
    byte_builder_free(&response);
}

/* ---- what is served */

enum { FILE_A, STDOUT, STDERR, TREE, TOP, DEEP, PARTS };

/*
 * An output file, stdout, stderr and a directory: its Tree, a file at the top and one in a
 * sub-directory.
 */
START_TEST(action_result_is_served_only_when_all_it_names_can_be_read)
{
    const int left_out = _i;
    struct bytes parts[PARTS] = {
        [FILE_A] = bytes_of_string("a file"), [STDOUT] = bytes_of_string("out"),
        [STDERR] = bytes_of_string("err"),    [TOP] = bytes_of_string("at the top"),
        [DEEP] = bytes_of_string("below it"),
    };
    struct digest digests[PARTS];
    struct byte_builder root = {0};
    struct byte_builder child = {0};
    struct byte_builder tree = {0};
    struct byte_builder result = {0};
    for (int i = 0; i < PARTS; i++)
        digest_of_bytes(DIGEST_FUNCTION_SHA256, parts[i], &digests[i]);
    directory_add_file(&child, "deep", &digests[DEEP]);
    struct digest child_digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, message_bytes(&child), &child_digest);
    directory_add_file(&root, "top", &digests[TOP]);
    directory_add_directory(&root, "kid", &child_digest);
    message_add_message(&tree, 1, &root);
    message_add_message(&tree, 2, &child);
    parts[TREE] = message_bytes(&tree);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, parts[TREE], &digests[TREE]);
    result_add_file(&result, "a", &digests[FILE_A]);
    result_add_directory(&result, "dir", &digests[TREE], NULL);
    message_add_digest(&result, 6, &digests[STDOUT]);
    message_add_digest(&result, 8, &digests[STDERR]);
    message_add_text(&result, 9, "\x0a\x06worker");

    const struct digest action = digest_of_nothing(0);
    update_ok(&action, &result);
    for (int i = 0; i < PARTS; i++)
        if (i != left_out)
            real_store_put(&rig.real, parts[i]);
    expect_miss(&action);
    char named[DIGEST_TEXT_BYTES_MAX];
    ck_assert_ptr_nonnull(strstr(text, digest_text(&digests[left_out], named)));
    ck_assert_int_eq(metrics_get(&rig.front.metrics, METRIC_ACTION_INCOMPLETE), 1);

    real_store_put(&rig.real, parts[left_out]);
    expect_hit(&action, message_bytes(&result));
    ck_assert_int_eq(metrics_get(&rig.front.metrics, METRIC_ACTION_HITS), 1);
    byte_builder_free(&tree);
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_result_that_names_the_empty_blob_comes_back)
{
    struct byte_builder result = {0};
    struct digest empty;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    result_add_file(&result, "empty", &empty);
    message_add_text(&result, 9, "");
    const struct digest action = digest_of_nothing(0);
    expect_miss(&action);
    update_ok(&action, &result);
    expect_hit(&action, message_bytes(&result));
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_result_comes_back_byte_for_byte_with_unknown_fields_and_raw_output)
{
    struct byte_builder result = {0};
    const struct digest file = real_store_put(&rig.real, bytes_of_string("a file"));
    message_add_text(&result, 2000, "of next year");
    message_add_number(&result, 4, 127);
    result_add_file(&result, "f", &file);
    message_add_text(&result, 5, "raw, and no digest of it");
    const struct digest action = digest_of_nothing(0);

    /* execution_metadata is not in what was stored, and there in what is answered. */
    struct byte_builder expected = {0};
    byte_builder_append(&expected, message_bytes(&result));
    message_add_text(&expected, 9, "");
    struct byte_builder response;
    ck_assert_int_eq(update("", &action, message_bytes(&result), &response), GRPC_STATUS_OK);
    ck_assert(bytes_equal(message_bytes(&response), message_bytes(&expected)));
    byte_builder_free(&response);
    expect_hit(&action, message_bytes(&expected));

    /* The last writer wins; a result of no bytes is one too. */
    struct byte_builder nothing = {0};
    update_ok(&action, &nothing);
    expect_hit(&action, bytes_of("\x4a\x00", 2));
    byte_builder_free(&result);
    byte_builder_free(&expected);
}
END_TEST

START_TEST(action_result_is_inlined_on_request)
{
    struct byte_builder result = {0};
    const struct digest file = real_store_put(&rig.real, bytes_of_string("contents"));
    const struct digest out = real_store_put(&rig.real, bytes_of_string("out"));
    result_add_file(&result, "p/f", &file);
    message_add_digest(&result, 6, &out);
    const struct digest action = digest_of_nothing(0);
    update_ok(&action, &result);

    struct byte_builder request = {0};
    struct byte_builder response;
    message_add_digest(&request, 2, &action);
    message_add_number(&request, 3, 1);
    message_add_number(&request, 4, 1);
    message_add_text(&request, 5, "p/f");
    ck_assert_int_eq(cas_rig_call(&rig, AC_METHOD("GetActionResult"), &request, &response, text),
                     GRPC_STATUS_OK);
    REAPI(ActionResult) *const seen = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(action_result), NULL, response.length, response.data);
    ck_assert_ptr_nonnull(seen);
    ck_assert_uint_eq(seen->stdout_raw.len, 3);
    ck_assert_uint_eq(seen->stderr_raw.len, 0);
    ck_assert(bytes_equal_string(
        bytes_of(seen->output_files[0]->contents.data, seen->output_files[0]->contents.len),
        "contents"));
    ck_assert_ptr_nonnull(seen->execution_metadata);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    byte_builder_free(&response);
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_result_of_five_thousand_files_comes_back)
{
    struct byte_builder result = {0};
    const struct digest file = real_store_put(&rig.real, bytes_of_string("a file"));
    for (int i = 0; i < 5000; i++)
        result_add_file(&result, "out/dir/with/a/name/of/some/length/f.o", &file);
    message_add_text(&result, 9, "");
    const struct digest action = digest_of_nothing(0);
    update_ok(&action, &result);
    expect_hit(&action, message_bytes(&result));
    byte_builder_free(&result);
}
END_TEST

/* ---- what is kept apart */

START_TEST(action_results_of_instances_and_of_sizes_are_kept_apart)
{
    struct byte_builder result = {0};
    struct byte_builder response;
    message_add_number(&result, 4, 3);
    struct digest action = digest_of_nothing(0);
    ck_assert_int_eq(update("team/one", &action, message_bytes(&result), &response),
                     GRPC_STATUS_OK);
    byte_builder_free(&response);
    ck_assert_int_eq(get("team/one", &action, &response), GRPC_STATUS_OK);
    byte_builder_free(&response);
    static const char *const others[] = {"", "team", "team/two", "team/one/x"};
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        ck_assert_int_eq(get(others[i], &action, &response), GRPC_STATUS_NOT_FOUND);
        byte_builder_free(&response);
    }
    action.size_bytes++;
    ck_assert_int_eq(get("team/one", &action, &response), GRPC_STATUS_NOT_FOUND);
    byte_builder_free(&response);
    byte_builder_free(&result);
}
END_TEST

/* ---- what is refused */

START_TEST(action_result_update_refuses_what_is_wrong_and_says_what)
{
    struct byte_builder result = {0};
    struct byte_builder response;
    const struct digest action = digest_of_nothing(0);

    ck_assert_int_eq(update("", NULL, bytes_of(NULL, 0), &response), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "action_digest"));
    byte_builder_free(&response);

    struct byte_builder request = {0};
    message_add_digest(&request, 2, &action);
    ck_assert_int_eq(cas_rig_call(&rig, AC_METHOD("UpdateActionResult"), &request, &response, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "action_result"));
    byte_builder_free(&response);

    struct digest negative = action;
    negative.size_bytes = -1;
    result_add_file(&result, "f", &negative);
    ck_assert_int_eq(update("", &action, message_bytes(&result), &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "OutputFile"));
    byte_builder_free(&response);
    byte_builder_free(&result);

    ck_assert_int_eq(update("", &action, bytes_of_string("\xff\xff"), &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    byte_builder_free(&response);

    uint8_t *const much = calloc(1, LIMIT_ACTION_RESULT_BYTES);
    ck_assert_ptr_nonnull(much);
    message_add(&result, 99, bytes_of(much, LIMIT_ACTION_RESULT_BYTES));
    ck_assert_int_eq(update("", &action, message_bytes(&result), &response),
                     GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(text, "3145728"));
    byte_builder_free(&response);
    byte_builder_free(&result);
    free(much);

    expect_miss(&action);
    ck_assert_int_eq(get("", NULL, &response), GRPC_STATUS_INVALID_ARGUMENT);
    byte_builder_free(&response);
}
END_TEST

START_TEST(action_result_of_the_largest_size_is_stored_and_served)
{
    struct byte_builder result = {0};
    uint8_t *const much = calloc(1, LIMIT_ACTION_RESULT_BYTES);
    ck_assert_ptr_nonnull(much);
    const size_t overhead =
        wire_bytes_field_size(99, LIMIT_ACTION_RESULT_BYTES - 1) - (LIMIT_ACTION_RESULT_BYTES - 1);
    message_add(&result, 99, bytes_of(much, LIMIT_ACTION_RESULT_BYTES - overhead));
    ck_assert_uint_eq(result.length, LIMIT_ACTION_RESULT_BYTES);
    const struct digest action = digest_of_nothing(0);
    struct byte_builder response;
    ck_assert_int_eq(update("", &action, message_bytes(&result), &response), GRPC_STATUS_OK);
    byte_builder_free(&response);
    message_add_text(&result, 9, "");
    expect_hit(&action, message_bytes(&result));
    byte_builder_free(&result);
    free(much);
}
END_TEST

/* A client that looks into the details finds what it has to upload. */
START_TEST(action_result_that_is_incomplete_names_the_missing_blobs_in_the_details)
{
    struct byte_builder result = {0};
    struct digest gone[3];
    for (uint64_t i = 0; i < ARRAY_LENGTH(gone); i++) {
        gone[i] = digest_of_nothing(i);
        result_add_file(&result, "f", &gone[i]);
    }
    const struct digest action = digest_of_nothing(100);
    update_ok(&action, &result);

    struct byte_builder request = {0};
    struct rpc call;
    message_add_digest(&request, 2, &action);
    rpc_begin(&call, &rig.front.client, AC_METHOD("GetActionResult"));
    ck_assert(rpc_send(&call, message_bytes(&request)));
    ck_assert(rpc_half_close(&call));
    size_t length;
    ck_assert_ptr_null(rpc_receive(&call, &length));
    ck_assert(rpc_wait_ended(&call, 30000));
    const struct bytes details = rpc_trailer(&call, "grpc-status-details-bin");
    ck_assert_uint_gt(details.length, 0);
    Google__Rpc__Status *const status =
        google__rpc__status__unpack(NULL, details.length, details.data);
    ck_assert_ptr_nonnull(status);
    ck_assert_int_eq(status->code, GRPC_STATUS_NOT_FOUND);
    ck_assert_uint_eq(status->n_details, 1);
    Google__Rpc__PreconditionFailure *const failure = google__rpc__precondition_failure__unpack(
        NULL, status->details[0]->value.len, status->details[0]->value.data);
    ck_assert_ptr_nonnull(failure);
    ck_assert_uint_eq(failure->n_violations, ARRAY_LENGTH(gone));
    for (size_t i = 0; i < ARRAY_LENGTH(gone); i++) {
        char named[DIGEST_TEXT_BYTES_MAX];
        ck_assert_str_eq(failure->violations[i]->type, "MISSING");
        ck_assert_ptr_nonnull(
            strstr(failure->violations[i]->subject, digest_text(&gone[i], named)));
    }
    google__rpc__precondition_failure__free_unpacked(failure, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_NOT_FOUND);
    byte_builder_free(&request);
    byte_builder_free(&result);
}
END_TEST

/* ---- disks */

START_TEST(action_result_that_is_damaged_is_a_miss_and_can_be_stored_again)
{
    struct byte_builder result = {0};
    message_add_number(&result, 4, 3);
    message_add_text(&result, 9, "");
    const struct digest action = digest_of_nothing(0);
    update_ok(&action, &result);
    real_store_damage_action(&rig.real, &action, bytes_of(NULL, 0));
    expect_miss(&action);
    expect_miss(&action);
    ck_assert_int_eq(metrics_get(&rig.store_metrics, METRIC_RECORDS_DAMAGED), 1); /* once */
    update_ok(&action, &result);
    expect_hit(&action, message_bytes(&result));
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_result_update_says_unavailable_when_a_sync_fails)
{
    struct byte_builder result = {0};
    struct byte_builder response;
    const struct digest action = digest_of_nothing(0);
    message_add_number(&result, 4, 3);
    atomic_store(&rig.real.sync_errno, EIO);
    ck_assert_int_eq(update("", &action, message_bytes(&result), &response),
                     GRPC_STATUS_UNAVAILABLE);
    byte_builder_free(&response);
    expect_miss(&action);
    byte_builder_free(&result);
}
END_TEST

static void add_tests(Suite *suite, const char *name, void (*set_up)(void))
{
    TCase *const tests = tcase_create(name);
    tcase_add_checked_fixture(tests, set_up, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, action_result_is_served_only_when_all_it_names_can_be_read, 0,
                        PARTS);
    tcase_add_test(tests, action_result_that_names_the_empty_blob_comes_back);
    tcase_add_test(tests,
                   action_result_comes_back_byte_for_byte_with_unknown_fields_and_raw_output);
    tcase_add_test(tests, action_result_is_inlined_on_request);
    tcase_add_test(tests, action_result_of_five_thousand_files_comes_back);
    tcase_add_test(tests, action_results_of_instances_and_of_sizes_are_kept_apart);
    tcase_add_test(tests, action_result_update_refuses_what_is_wrong_and_says_what);
    tcase_add_test(tests, action_result_of_the_largest_size_is_stored_and_served);
    tcase_add_test(tests, action_result_that_is_incomplete_names_the_missing_blobs_in_the_details);
    tcase_add_test(tests, action_result_that_is_damaged_is_a_miss_and_can_be_stored_again);
    tcase_add_test(tests, action_result_update_says_unavailable_when_a_sync_fails);
    suite_add_tcase(suite, tests);
}

int main(void)
{
    Suite *const suite = suite_create("rpc_action_cache");
    add_tests(suite, "in memory", setup);
    add_tests(suite, "on disk", setup_nothing_cached);
    return test_run(suite);
}
