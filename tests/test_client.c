/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client against a server that goes wrong on demand (tests/support/fake_cas.h, whose coding is
 * protobuf-c's): calls end, whatever the server does; what can be tried again is, where it was;
 * what is final is not; every byte that is handed out is the digest's; and errors name what they
 * are about.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/action_cache.h"
#include "client/batch.h"
#include "client/cas.h"
#include "client/digest_map.h"
#include "client/download.h"
#include "client/file_source.h"
#include "client/unary.h"
#include "client/upload.h"
#include "client/uuid.h"
#include "google/bytestream/bytestream.pb-c.h"
#include "tests/support/fake_cas.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { MIB_BYTES = 1 << 20 };

static struct fake_cas cas;
static struct client *client;

static struct client_options quick_options(void)
{
    struct client_options options = client_options_default();
    options.call_timeout_ns = 20 * NS_PER_S;
    options.retry.pause_min_ns = NS_PER_MS;
    options.retry.pause_max_ns = 4 * NS_PER_MS;
    return options;
}

static void open_with(const struct client_options *options)
{
    client_prepare_process();
    fake_cas_start(&cas);
    struct status status = {0};
    ck_assert_msg(client_connect(fake_cas_target(&cas), options, &client, &status), "%s",
                  status.message);
}

static void open_client(void)
{
    const struct client_options options = quick_options();
    open_with(&options);
}

static void close_client(void)
{
    client_close(client);
    client = NULL;
    fake_cas_stop(&cas);
}

static void plan(struct fake_fault fault)
{
    static size_t planned;
    ck_assert_uint_lt(planned, FAKE_FAULTS_MAX);
    pthread_mutex_lock(&cas.mutex);
    cas.faults[planned++] = fault;
    pthread_mutex_unlock(&cas.mutex);
}

/* Bytes that differ from place to place and from seed to seed. */
static uint8_t *make_data(size_t length, uint64_t seed, struct digest *digest)
{
    uint8_t *data = malloc(length + 1);
    ck_assert_ptr_nonnull(data);
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < length; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (uint8_t)(state >> 56);
    }
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), digest);
    return data;
}

static void ck_status(const struct status *status, enum status_code code, const char *part)
{
    ck_assert_msg(status->code == code && strstr(status->message, part) != NULL,
                  "%s: %s (wanted %s: ...%s...)", status_code_name(status->code), status->message,
                  status_code_name(code), part);
}

/* ---- messages: ours against protobuf-c's */

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

START_TEST(requests_are_what_protobuf_c_reads)
{
    struct digest digests[3];
    for (size_t i = 0; i < 3; i++)
        free(make_data(i * 1000, i, &digests[i]));
    const struct bytes instance = bytes_of_string("an/instance");

    grpc_slice slice = find_missing_request(instance, digests, 3);
    REAPI(FindMissingBlobsRequest) *find =
        build__bazel__remote__execution__v2__find_missing_blobs_request__unpack(
            NULL, GRPC_SLICE_LENGTH(slice), GRPC_SLICE_START_PTR(slice));
    ck_assert_ptr_nonnull(find);
    ck_assert_str_eq(find->instance_name, "an/instance");
    ck_assert_uint_eq(find->n_blob_digests, 3);
    ck_assert_int_eq(find->digest_function, 1);
    for (size_t i = 0; i < 3; i++) {
        char hex[DIGEST_HASH_HEX_MAX + 1];
        ck_assert_str_eq(find->blob_digests[i]->hash, digest_hex(&digests[i], hex));
        ck_assert_int_eq(find->blob_digests[i]->size_bytes, (int64_t)i * 1000);
    }
    build__bazel__remote__execution__v2__find_missing_blobs_request__free_unpacked(find, NULL);
    grpc_slice_unref(slice);

    slice = batch_read_request(instance, digests, 2);
    REAPI(BatchReadBlobsRequest) *read =
        build__bazel__remote__execution__v2__batch_read_blobs_request__unpack(
            NULL, GRPC_SLICE_LENGTH(slice), GRPC_SLICE_START_PTR(slice));
    ck_assert_ptr_nonnull(read);
    ck_assert_uint_eq(read->n_digests, 2);
    ck_assert_int_eq(read->digest_function, 1);
    build__bazel__remote__execution__v2__batch_read_blobs_request__free_unpacked(read, NULL);
    grpc_slice_unref(slice);

    slice = read_request("a/name", UINT64_C(1) << 40);
    Google__Bytestream__ReadRequest *stream = google__bytestream__read_request__unpack(
        NULL, GRPC_SLICE_LENGTH(slice), GRPC_SLICE_START_PTR(slice));
    ck_assert_str_eq(stream->resource_name, "a/name");
    ck_assert_int_eq(stream->read_offset, INT64_C(1) << 40);
    ck_assert_int_eq(stream->read_limit, 0);
    google__bytestream__read_request__free_unpacked(stream, NULL);
    grpc_slice_unref(slice);
}
END_TEST

START_TEST(batch_update_request_and_its_size_are_those_of_protobuf_c)
{
    struct batch_blob blobs[4];
    uint8_t *data[4];
    const size_t sizes[4] = {0, 1, 127, 70000};
    for (size_t i = 0; i < 4; i++) {
        data[i] = make_data(sizes[i], i, &blobs[i].digest);
        blobs[i].data = bytes_of(data[i], sizes[i]);
    }
    const struct bytes instance = bytes_of_string("i");
    grpc_slice slice = batch_update_request(instance, blobs, 4);
    size_t expected = batch_update_frame_bytes(instance, DIGEST_FUNCTION_SHA256);
    for (size_t i = 0; i < 4; i++)
        expected += batch_update_entry_bytes(&blobs[i].digest);
    ck_assert_uint_eq(GRPC_SLICE_LENGTH(slice), expected);

    REAPI(BatchUpdateBlobsRequest) *request =
        build__bazel__remote__execution__v2__batch_update_blobs_request__unpack(
            NULL, GRPC_SLICE_LENGTH(slice), GRPC_SLICE_START_PTR(slice));
    ck_assert_ptr_nonnull(request);
    ck_assert_uint_eq(request->n_requests, 4);
    ck_assert_uint_eq(
        build__bazel__remote__execution__v2__batch_update_blobs_request__get_packed_size(request),
        expected);
    uint8_t *packed = malloc(expected);
    build__bazel__remote__execution__v2__batch_update_blobs_request__pack(request, packed);
    ck_assert_mem_eq(packed, GRPC_SLICE_START_PTR(slice), expected);
    free(packed);
    build__bazel__remote__execution__v2__batch_update_blobs_request__free_unpacked(request, NULL);
    grpc_slice_unref(slice);
    for (size_t i = 0; i < 4; i++)
        free(data[i]);
}
END_TEST

START_TEST(write_requests_are_what_protobuf_c_reads)
{
    grpc_byte_buffer *message =
        write_request_message("uploads/x", 0, grpc_slice_from_copied_string("some bytes"), true);
    size_t length;
    uint8_t *flat = message_flat(message, &length);
    Google__Bytestream__WriteRequest *request =
        google__bytestream__write_request__unpack(NULL, length, flat);
    ck_assert_str_eq(request->resource_name, "uploads/x");
    ck_assert_int_eq(request->write_offset, 0);
    ck_assert(request->finish_write);
    ck_assert_uint_eq(request->data.len, 10);
    ck_assert_mem_eq(request->data.data, "some bytes", 10);
    google__bytestream__write_request__free_unpacked(request, NULL);
    free(flat);
    grpc_byte_buffer_destroy(message);

    message = write_request_message(NULL, 5000000000, grpc_empty_slice(), false);
    flat = message_flat(message, &length);
    request = google__bytestream__write_request__unpack(NULL, length, flat);
    ck_assert_str_eq(request->resource_name, "");
    ck_assert_int_eq(request->write_offset, 5000000000);
    ck_assert(!request->finish_write);
    google__bytestream__write_request__free_unpacked(request, NULL);
    free(flat);
    grpc_byte_buffer_destroy(message);
}
END_TEST

START_TEST(digest_map_keeps_all_and_tells_them_apart)
{
    struct digest_map map = {0};
    enum { COUNT = 5000 };
    for (int64_t i = 0; i < COUNT; i++) {
        struct digest digest;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&i, sizeof(i)), &digest);
        bool is_new;
        size_t *number = digest_map_insert(&map, &digest, &is_new);
        ck_assert(is_new && *number == 0);
        *number = (size_t)i;
        digest.size_bytes++; /* the same hash with another size is another blob */
        ck_assert_ptr_null(digest_map_find(&map, &digest));
    }
    for (int64_t i = 0; i < COUNT; i++) {
        struct digest digest;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&i, sizeof(i)), &digest);
        bool is_new;
        ck_assert_uint_eq(*digest_map_insert(&map, &digest, &is_new), (size_t)i);
        ck_assert(!is_new);
    }
    ck_assert_uint_eq(map.count, COUNT);
    digest_map_destroy(&map);
}
END_TEST

/* ---- the event loop */

static char order[16];
static struct event_loop *order_loop;

static void note_a(struct timer *timer)
{
    (void)timer;
    strcat(order, "a");
}

static void note_b(struct timer *timer)
{
    (void)timer;
    strcat(order, "b");
}

static void note_event(struct event *event)
{
    (void)event;
    strcat(order, "e");
}

START_TEST(timers_run_in_the_order_of_their_time_and_stopped_ones_do_not)
{
    struct event_loop loop;
    event_loop_init(&loop, clock_real());
    order_loop = &loop;
    struct timer late = {.run = note_b}, soon = {.run = note_a}, stopped = {.run = note_a};
    struct event event = {.run = note_event};
    event_loop_start_timer(&loop, &late, 20 * NS_PER_MS);
    event_loop_start_timer(&loop, &soon, 10 * NS_PER_MS);
    event_loop_start_timer(&loop, &stopped, 5 * NS_PER_MS);
    event_loop_stop_timer(&loop, &stopped);
    event_loop_post(&loop, &event);
    while (strlen(order) < 3)
        ck_assert(event_loop_run(&loop, NS_PER_S));
    ck_assert_str_eq(order, "eab");
    ck_assert(!event_loop_run(&loop, NS_PER_MS));
    event_loop_destroy(&loop);
}
END_TEST

START_TEST(pauses_double_with_jitter_and_end)
{
    const struct retry_policy policy = {.tries_max = 6, .pause_min_ns = 100, .pause_max_ns = 800};
    struct retry retry;
    retry_init(&retry, &policy);
    struct status status = {.code = STATUS_UNAVAILABLE};
    const int64_t expected[] = {100, 200, 400, 800, 800};
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        int64_t pause_ns;
        ck_assert(retry_again(&retry, &status, false, &pause_ns));
        ck_assert_int_ge(pause_ns, expected[i] / 2);
        ck_assert_int_le(pause_ns, expected[i]);
    }
    int64_t pause_ns;
    ck_assert(!retry_again(&retry, &status, false, &pause_ns));
    ck_assert(retry_again(&retry, &status, true, &pause_ns)); /* progress starts anew */
    ck_assert_int_le(pause_ns, 100);
}
END_TEST

START_TEST(only_what_may_go_well_later_is_tried_again)
{
    const enum status_code retried[] = {STATUS_UNKNOWN, STATUS_RESOURCE_EXHAUSTED, STATUS_ABORTED,
                                        STATUS_INTERNAL, STATUS_UNAVAILABLE};
    for (int code = 1; code <= STATUS_UNAUTHENTICATED; code++) {
        bool expected = false;
        for (size_t i = 0; i < ARRAY_LENGTH(retried); i++)
            expected |= retried[i] == (enum status_code)code;
        ck_assert_int_eq(retry_is_retryable((enum status_code)code, false), expected);
    }
    ck_assert(retry_is_retryable(STATUS_DEADLINE_EXCEEDED, true));
}
END_TEST

/* ---- connecting */

START_TEST(targets_and_options_that_cannot_be_are_refused)
{
    static const char *const bad[] = {
        "", "host", ":80", "host:", "host:12x", "grpcs://host", "http://host:1"};
    struct client_options options = quick_options();
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct status status = {0};
        ck_assert(!client_connect(bad[i], &options, &client, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    }
    struct status status = {0};
    options.instance_name = "a/blobs/b";
    ck_assert(!client_connect("host:1", &options, &client, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    options = quick_options();
    options.connections = 0;
    ck_assert(!client_connect("host:1", &options, &client, &status));
}
END_TEST

START_TEST(a_server_that_is_not_there_is_unavailable_within_seconds)
{
    client_prepare_process();
    const struct client_options options = quick_options();
    struct status status = {0};
    ck_assert(client_connect("127.0.0.1:1", &options, &client, &status));
    struct capabilities capabilities;
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    ck_assert(!capabilities_get(client, &capabilities, &status));
    ck_status(&status, STATUS_UNAVAILABLE, "GetCapabilities: ");
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - start_ns, 5 * NS_PER_S);
    client_close(client);
}
END_TEST

START_TEST(every_call_says_which_tool_it_is)
{
    struct client_options options = quick_options();
    options.tool_version = "7.7";
    options.connections = 3;
    open_with(&options);
    struct capabilities capabilities;
    struct status status = {0};
    for (int i = 0; i < 4; i++)
        ck_assert(capabilities_get(client, &capabilities, &status));
    ck_assert_uint_eq(fake_cas_calls(&cas, "GetCapabilities"), 4);
    REAPI(RequestMetadata) *metadata =
        build__bazel__remote__execution__v2__request_metadata__unpack(
            NULL, cas.request_metadata_length, cas.request_metadata);
    ck_assert_ptr_nonnull(metadata);
    ck_assert_str_eq(metadata->tool_details->tool_name, "varve");
    ck_assert_str_eq(metadata->tool_details->tool_version, "7.7");
    ck_assert_uint_eq(strlen(metadata->tool_invocation_id), UUID_TEXT_BYTES - 1);
    build__bazel__remote__execution__v2__request_metadata__free_unpacked(metadata, NULL);
    close_client();
}
END_TEST

START_TEST(capabilities_are_read_and_honoured)
{
    cas.batch_total_bytes_max = 1234;
    cas.blob_bytes_max = 10;
    open_client();
    struct capabilities capabilities;
    struct status status = {0};
    ck_assert(capabilities_get(client, &capabilities, &status));
    ck_assert(capabilities.announced);
    ck_assert_int_eq(capabilities.batch_total_bytes_max, 1234);
    ck_assert(capabilities_check_function(&capabilities, &status));
    ck_assert(!capabilities.update_enabled);
    ck_assert(capabilities_check_blob(&capabilities, 10, &status));
    ck_assert(!capabilities_check_blob(&capabilities, 11, &status));
    ck_status(&status, STATUS_OUT_OF_RANGE, "at most 10");
    close_client();
}
END_TEST

START_TEST(a_server_without_capabilities_gets_the_defaults)
{
    cas.no_capabilities = true;
    open_client();
    struct capabilities capabilities;
    struct status status = {0};
    ck_assert(capabilities_get(client, &capabilities, &status));
    ck_assert(!capabilities.announced);
    ck_assert(capabilities_check_function(&capabilities, &status));
    ck_assert_uint_eq(fake_cas_calls(&cas, "GetCapabilities"), 1);
    close_client();
}
END_TEST

/* ---- unary calls */

START_TEST(find_missing_asks_in_pages_that_any_server_takes)
{
    open_client();
    enum { COUNT = 2 * FIND_MISSING_PAGE_MAX + 17 };
    struct digest *digests = calloc(COUNT, sizeof(*digests));
    bool *missing = calloc(COUNT, sizeof(*missing));
    ck_assert(digests != NULL && missing != NULL);
    for (size_t i = 0; i < COUNT; i++)
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&i, sizeof(i)), &digests[i]);
    const size_t there[] = {0, 5, FIND_MISSING_PAGE_MAX - 1, FIND_MISSING_PAGE_MAX, COUNT - 1};
    for (size_t i = 0; i < ARRAY_LENGTH(there); i++) {
        struct digest digest;
        fake_cas_put(&cas, bytes_of(&there[i], sizeof(there[i])), &digest);
    }
    digests[7] = digests[5]; /* twice in one page */
    struct status status = {0};
    ck_assert_msg(cas_find_missing(client, digests, missing, COUNT, &status), "%s", status.message);
    size_t present = 0;
    for (size_t i = 0; i < COUNT; i++)
        present += !missing[i];
    ck_assert_uint_eq(present, ARRAY_LENGTH(there) + 1);
    for (size_t i = 0; i < ARRAY_LENGTH(there); i++)
        ck_assert(!missing[there[i]]);
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 3);
    ck_assert_uint_lt(cas.largest_message_bytes, 4 * MIB_BYTES);
    ck_assert(cas_find_missing(client, digests, missing, 0, &status));
    free(digests);
    free(missing);
    close_client();
}
END_TEST

START_TEST(a_call_is_tried_five_times_and_a_passing_failure_is_not_seen)
{
    open_client();
    struct digest digest;
    free(make_data(10, 1, &digest));
    bool missing;
    struct status status = {0};
    plan(
        (struct fake_fault){"FindMissingBlobs", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, .times = 4});
    ck_assert(cas_find_missing(client, &digest, &missing, 1, &status));
    ck_assert(missing);
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 5);

    plan((struct fake_fault){"FindMissingBlobs", FAKE_FAULT_STATUS, STATUS_ABORTED, .times = 5});
    ck_assert(!cas_find_missing(client, &digest, &missing, 1, &status));
    ck_status(&status, STATUS_ABORTED, "as the test wants");
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 10);

    plan((struct fake_fault){"FindMissingBlobs", FAKE_FAULT_STATUS, STATUS_PERMISSION_DENIED,
                             .times = 1});
    ck_assert(!cas_find_missing(client, &digest, &missing, 1, &status));
    ck_status(&status, STATUS_PERMISSION_DENIED, "as the test wants");
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 11);
    close_client();
}
END_TEST

START_TEST(a_server_that_never_answers_meets_the_deadline)
{
    struct client_options options = quick_options();
    options.call_timeout_ns = 300 * NS_PER_MS;
    open_with(&options);
    static const char *const methods[] = {"FindMissingBlobs", "Write", "Read"};
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++)
        plan((struct fake_fault){methods[i], FAKE_FAULT_HANG, .times = 1});
    struct digest digest;
    uint8_t *data = make_data(100, 3, &digest);
    bool missing;
    uint8_t *read;
    struct status status = {0};
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    ck_assert(!cas_find_missing(client, &digest, &missing, 1, &status));
    ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    ck_assert(!cas_write_bytes(client, &digest, bytes_of(data, 100), &status));
    ck_status(&status, STATUS_DEADLINE_EXCEEDED, "write ");
    ck_assert(!cas_read_bytes(client, &digest, 100, &read, &status));
    ck_status(&status, STATUS_DEADLINE_EXCEEDED, "read ");
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - start_ns, 5 * NS_PER_S);
    free(data);
    close_client();
}
END_TEST

START_TEST(malformed_empty_and_oversized_answers_are_errors_and_not_taken_for_data)
{
    struct client_options options = quick_options();
    options.retry.tries_max = 1;
    open_with(&options);
    struct digest digest;
    uint8_t *data = make_data(1000, 4, &digest);
    struct batch_blob blob = {.digest = digest, .data = bytes_of(data, 1000)};
    static const char *const methods[] = {"FindMissingBlobs", "BatchUpdateBlobs", "BatchReadBlobs",
                                          "Write"};
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        cas.faults[i] = (struct fake_fault){methods[i], FAKE_FAULT_MALFORMED, .times = 1};
        cas.faults[i + 4] = (struct fake_fault){methods[i], FAKE_FAULT_OVERSIZED, .times = 1};
    }
    const enum status_code expected[] = {STATUS_INTERNAL, STATUS_RESOURCE_EXHAUSTED};
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        struct status status = {0}, result = {0};
        bool missing;
        uint8_t *read = NULL;
        ck_assert(!cas_find_missing(client, &digest, &missing, 1, &status));
        ck_assert_int_eq(status.code, expected[i]);
        ck_assert(!cas_batch_update(client, &blob, &result, 1, &status));
        ck_assert_int_eq(status.code, expected[i]);
        ck_assert(!cas_batch_read(client, &digest, &read, &result, 1, &status));
        ck_assert_int_eq(status.code, expected[i]);
        ck_assert_ptr_null(read);
        ck_assert(!cas_write_bytes(client, &digest, bytes_of(data, 1000), &status));
        ck_assert_int_eq(status.code, expected[i]);
    }
    struct status status = {0};
    uint8_t *read;
    cas.faults[0] = (struct fake_fault){"Read", FAKE_FAULT_MALFORMED, .times = 1};
    ck_assert(!cas_read_bytes(client, &digest, 1000, &read, &status));
    ck_status(&status, STATUS_INTERNAL, "malformed");
    cas.faults[0] = (struct fake_fault){"Write", FAKE_FAULT_EMPTY, .times = 1};
    ck_assert(!cas_write_bytes(client, &digest, bytes_of(data, 1000), &status));
    ck_status(&status, STATUS_INTERNAL, "0 of 1000");
    free(data);
    close_client();
}
END_TEST

START_TEST(batches_have_a_result_for_each_entry)
{
    open_client();
    enum { COUNT = 5 };
    struct batch_blob blobs[COUNT];
    struct digest digests[COUNT + 1];
    uint8_t *data[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = make_data(i * 100, i, &digests[i]);
        blobs[i] = (struct batch_blob){.digest = digests[i], .data = bytes_of(data[i], i * 100)};
    }
    char bad_hex[DIGEST_HASH_HEX_MAX + 1], silent_hex[DIGEST_HASH_HEX_MAX + 1];
    digest_hex(&digests[2], bad_hex);
    digest_hex(&digests[3], silent_hex);
    plan((struct fake_fault){"BatchUpdateBlobs", FAKE_FAULT_ENTRY, STATUS_RESOURCE_EXHAUSTED,
                             .digest_hex = bad_hex, .times = 1});
    plan((struct fake_fault){"BatchUpdateBlobs", FAKE_FAULT_NO_ENTRY, .digest_hex = silent_hex,
                             .times = 1});
    struct status results[COUNT + 1], status = {0};
    ck_assert_msg(cas_batch_update(client, blobs, results, COUNT, &status), "%s", status.message);
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(results[i].code, i == 2 ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
    ck_assert_msg(cas_batch_update(client, &blobs[3], results, 1, &status), "%s", status.message);
    ck_assert_int_eq(results[0].code, STATUS_UNKNOWN);

    char wrong_hex[DIGEST_HASH_HEX_MAX + 1];
    plan((struct fake_fault){"BatchReadBlobs", FAKE_FAULT_WRONG_BYTES,
                             .digest_hex = digest_hex(&digests[4], wrong_hex), .times = 1});
    free(make_data(77, 99, &digests[COUNT])); /* was never stored */
    uint8_t *read[COUNT + 1];
    ck_assert_msg(cas_batch_read(client, digests, read, results, COUNT + 1, &status), "%s",
                  status.message);
    for (size_t i = 0; i < COUNT; i++) {
        const enum status_code expected = i == 2   ? STATUS_NOT_FOUND
                                          : i == 4 ? STATUS_DATA_LOSS
                                                   : STATUS_OK;
        ck_assert_int_eq(results[i].code, expected);
        ck_assert((read[i] != NULL) == (expected == STATUS_OK));
        if (read[i] != NULL && i > 0)
            ck_assert_mem_eq(read[i], data[i], i * 100);
    }
    ck_assert_int_eq(results[COUNT].code, STATUS_NOT_FOUND);
    for (size_t i = 0; i <= COUNT; i++)
        free(read[i]);

    /* The first answer about a blob counts. */
    plan((struct fake_fault){.method = "BatchReadBlobs",
                             .kind = FAKE_FAULT_TWICE,
                             .code = STATUS_NOT_FOUND,
                             .times = 1});
    memset(read, 0, sizeof(read));
    ck_assert_msg(cas_batch_read(client, digests, read, results, 2, &status), "%s", status.message);
    ck_assert(results[0].code == STATUS_OK && results[1].code == STATUS_OK);
    ck_assert_mem_eq(read[1], data[1], 100);
    for (size_t i = 0; i <= COUNT; i++)
        free(read[i]);
    for (size_t i = 0; i < COUNT; i++)
        free(data[i]);
    close_client();
}
END_TEST

START_TEST(an_action_that_is_not_there_is_no_failure)
{
    open_client();
    struct digest digest;
    free(make_data(10, 1, &digest));
    plan((struct fake_fault){"GetActionResult", FAKE_FAULT_STATUS, STATUS_NOT_FOUND, .times = 1});
    bool found = true;
    uint8_t *result;
    size_t length;
    struct status status = {0};
    ck_assert(action_cache_get(client, &digest, &found, &result, &length, &status));
    ck_assert(!found);
    ck_assert(!action_cache_get(client, &digest, &found, &result, &length, &status));
    ck_status(&status, STATUS_UNIMPLEMENTED, "GetActionResult: ");
    ck_assert(!action_cache_update(client, &digest, bytes_of("", 0), &status));
    close_client();
}
END_TEST

/* ---- uploads */

START_TEST(blobs_of_all_sizes_go_there_and_back)
{
    open_client();
    const size_t sizes[] = {
        0, 1, 1000, MIB_BYTES - 1, MIB_BYTES, MIB_BYTES + 1, 3 * MIB_BYTES, 7 * MIB_BYTES + 123};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct digest digest;
        uint8_t *data = make_data(sizes[i], i, &digest);
        struct status status = {0};
        ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, sizes[i]), &status), "%s",
                      status.message);
        ck_assert(sizes[i] == 0 || fake_cas_has(&cas, &digest));
        uint8_t *read = NULL;
        if (sizes[i] > 0) {
            ck_assert_msg(cas_read_bytes(client, &digest, sizes[i], &read, &status), "%s",
                          status.message);
            ck_assert_mem_eq(read, data, sizes[i]);
            ck_assert(!cas_read_bytes(client, &digest, sizes[i] - 1, &read, &status) ||
                      sizes[i] == 1);
        }
        free(read);
        free(data);
    }
    ck_assert_uint_lt(cas.largest_message_bytes, 4 * MIB_BYTES);
    close_client();
}
END_TEST

START_TEST(an_upload_that_is_cut_goes_on_where_the_server_is)
{
    open_client();
    struct digest digest;
    const size_t size = 6 * MIB_BYTES + 5;
    uint8_t *data = make_data(size, 8, &digest);
    plan((struct fake_fault){"Write", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE,
                             .after_bytes = 2 * MIB_BYTES, .times = 2});
    plan(
        (struct fake_fault){"QueryWriteStatus", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, .times = 1});
    struct status status = {0};
    ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, size), &status), "%s",
                  status.message);
    ck_assert(fake_cas_has(&cas, &digest));
    ck_assert_uint_eq(cas.write_bytes, size); /* nothing was sent twice that had been taken */
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 3);
    ck_assert_uint_eq(fake_cas_calls(&cas, "QueryWriteStatus"), 3);
    free(data);
    close_client();
}
END_TEST

START_TEST(progress_gives_an_upload_new_tries)
{
    open_client();
    struct digest digest;
    const size_t size = 12 * MIB_BYTES;
    uint8_t *data = make_data(size, 9, &digest);
    plan((struct fake_fault){"Write", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE,
                             .after_bytes = MIB_BYTES, .times = 10});
    struct status status = {0};
    ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, size), &status), "%s",
                  status.message);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 11);
    free(data);
    close_client();
}
END_TEST

START_TEST(an_upload_without_write_status_starts_over)
{
    cas.no_query = true;
    open_client();
    struct digest digest;
    const size_t size = 3 * MIB_BYTES;
    uint8_t *data = make_data(size, 10, &digest);
    plan((struct fake_fault){"Write", FAKE_FAULT_STATUS, STATUS_INTERNAL,
                             .after_bytes = 2 * MIB_BYTES, .times = 1});
    struct status status = {0};
    ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, size), &status), "%s",
                  status.message);
    ck_assert(fake_cas_has(&cas, &digest));
    ck_assert_uint_eq(cas.write_bytes, size + 2 * MIB_BYTES);
    free(data);
    close_client();
}
END_TEST

START_TEST(a_blob_that_is_there_is_answered_early)
{
    open_client();
    struct digest digest;
    const size_t size = 8 * MIB_BYTES;
    uint8_t *data = make_data(size, 11, &digest);
    fake_cas_put(&cas, bytes_of(data, size), &digest);
    struct status status = {0};
    ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, size), &status), "%s",
                  status.message);
    ck_assert_uint_eq(cas.write_bytes, 0);
    plan((struct fake_fault){"Write", FAKE_FAULT_STATUS, STATUS_ALREADY_EXISTS, .times = 1});
    ck_assert(cas_write_bytes(client, &digest, bytes_of(data, size), &status));
    free(data);
    close_client();
}
END_TEST

START_TEST(an_ok_for_half_a_blob_is_not_believed)
{
    open_client();
    struct digest digest;
    const size_t size = 4 * MIB_BYTES;
    uint8_t *data = make_data(size, 12, &digest);
    plan((struct fake_fault){"Write", FAKE_FAULT_EARLY_END, .after_bytes = 2 * MIB_BYTES,
                             .times = 1});
    struct status status = {0};
    ck_assert_msg(cas_write_bytes(client, &digest, bytes_of(data, size), &status), "%s",
                  status.message);
    ck_assert(fake_cas_has(&cas, &digest));
    free(data);
    close_client();
}
END_TEST

START_TEST(a_refused_upload_is_not_tried_again_and_names_the_blob)
{
    open_client();
    struct digest digest;
    uint8_t *data = make_data(1000, 13, &digest);
    data[0] ^= 1;
    struct status status = {0};
    char text[DIGEST_TEXT_BYTES_MAX];
    ck_assert(!cas_write_bytes(client, &digest, bytes_of(data, 1000), &status));
    ck_status(&status, STATUS_INVALID_ARGUMENT, digest_text(&digest, text));
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 1);
    ck_assert(!cas_write_bytes(client, &digest, bytes_of(data, 999), &status));
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 1);
    free(data);
    close_client();
}
END_TEST

/* ---- downloads */

START_TEST(a_download_that_is_cut_goes_on_where_it_was)
{
    open_client();
    struct digest digest;
    const size_t size = 5 * MIB_BYTES + 77;
    uint8_t *data = make_data(size, 20, &digest), *read;
    fake_cas_put(&cas, bytes_of(data, size), &digest);
    plan((struct fake_fault){"Read", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE,
                             .after_bytes = MIB_BYTES + 1, .times = 3});
    plan((struct fake_fault){"Read", FAKE_FAULT_EARLY_END, .after_bytes = 1000, .times = 2});
    struct status status = {0};
    ck_assert_msg(cas_read_bytes(client, &digest, size, &read, &status), "%s", status.message);
    ck_assert_mem_eq(read, data, size);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Read"), 6);
    free(read);
    free(data);
    close_client();
}
END_TEST

START_TEST(wrong_bytes_are_never_handed_out_as_good)
{
    open_client();
    struct digest digest;
    uint8_t *data = make_data(300000, 21, &digest), *read;
    fake_cas_put(&cas, bytes_of(data, 300000), &digest);
    struct status status = {0};
    plan((struct fake_fault){"Read", FAKE_FAULT_WRONG_BYTES, .times = 1});
    ck_assert(!cas_read_bytes(client, &digest, 300000, &read, &status));
    ck_status(&status, STATUS_DATA_LOSS, "other bytes");
    plan((struct fake_fault){"Read", FAKE_FAULT_TOO_MANY_BYTES, .times = 1});
    ck_assert(!cas_read_bytes(client, &digest, 300000, &read, &status));
    ck_status(&status, STATUS_DATA_LOSS, "more than");
    plan((struct fake_fault){"Read", FAKE_FAULT_EARLY_END, .after_bytes = 0, .times = 5});
    ck_assert(!cas_read_bytes(client, &digest, 300000, &read, &status));
    ck_status(&status, STATUS_INTERNAL, "0 of 300000");
    /* An error after the last byte takes nothing away. */
    plan((struct fake_fault){"Read", FAKE_FAULT_STATUS, STATUS_INTERNAL, .after_bytes = 300000,
                             .times = 1});
    ck_assert_msg(cas_read_bytes(client, &digest, 300000, &read, &status), "%s", status.message);
    ck_assert_mem_eq(read, data, 300000);
    free(read);
    free(data);
    close_client();
}
END_TEST

START_TEST(a_blob_that_is_not_there_is_not_found_at_once)
{
    open_client();
    struct digest digest;
    free(make_data(1000, 22, &digest));
    uint8_t *read;
    struct status status = {0};
    char text[DIGEST_TEXT_BYTES_MAX];
    ck_assert(!cas_read_bytes(client, &digest, 1000, &read, &status));
    ck_status(&status, STATUS_NOT_FOUND, digest_text(&digest, text));
    ck_assert_uint_eq(fake_cas_calls(&cas, "Read"), 1);
    close_client();
}
END_TEST

START_TEST(a_reader_that_has_gone_ends_the_download)
{
    open_client();
    signal(SIGPIPE, SIG_IGN);
    struct digest digest;
    uint8_t *data = make_data(4 * MIB_BYTES, 23, &digest);
    fake_cas_put(&cas, bytes_of(data, 4 * MIB_BYTES), &digest);
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    struct status status = {0};
    ck_assert(!cas_read_fd(client, &digest, ends[1], &status));
    ck_assert_ptr_nonnull(strstr(status.message, "Broken pipe"));
    ck_assert_uint_eq(fake_cas_calls(&cas, "Read"), 1);
    close(ends[1]);
    free(data);
    close_client();
}
END_TEST

/* ---- cancelling */

struct ended {
    bool finished;
    struct status status;
};

static void note_end(void *argument, const struct status *status)
{
    struct ended *ended = argument;
    ck_assert(!ended->finished);
    ended->finished = true;
    ended->status = *status;
}

static void note_upload_end(void *argument, const struct status *status, uint64_t sent_bytes)
{
    (void)sent_bytes;
    note_end(argument, status);
}

static void note_unary_end(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    ck_assert_ptr_null(reply);
    note_end(argument, status);
}

static bool source_of_zeroes(void *argument,
                             uint64_t offset,
                             uint8_t *to,
                             size_t length,
                             struct status *status)
{
    (void)argument;
    (void)offset;
    (void)status;
    memset(to, 0, length);
    return true;
}

static bool sink_to_nowhere(void *argument, struct bytes bytes, struct status *status)
{
    (void)argument;
    (void)bytes;
    (void)status;
    return true;
}

static void run_for(struct event_loop *loop, int64_t duration_ns)
{
    const int64_t end_ns = clock_monotonic_ns(clock_real()) + duration_ns;
    for (int64_t left_ns = duration_ns; left_ns > 0;
         left_ns = end_ns - clock_monotonic_ns(clock_real()))
        event_loop_run(loop, left_ns);
}

/* In flight at a server that hangs, and (with a long pause) between two tries. */
START_TEST(cancelled_calls_end_at_once_as_cancelled)
{
    const bool between_tries = _i == 1;
    struct client_options options = quick_options();
    options.retry.pause_min_ns = options.retry.pause_max_ns =
        between_tries ? 600 * NS_PER_S : NS_PER_MS;
    open_with(&options);
    static const char *const methods[] = {"FindMissingBlobs", "Write", "Read"};
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++)
        plan((struct fake_fault){methods[i], between_tries ? FAKE_FAULT_STATUS : FAKE_FAULT_HANG,
                                 STATUS_UNAVAILABLE, .times = 1});
    struct event_loop loop;
    event_loop_init(&loop, clock_real());
    struct digest digest;
    free(make_data(5 * MIB_BYTES, 30, &digest));
    struct ended ended[3] = {{0}};
    struct status status = {0};

    struct unary *unary;
    const struct unary_request call = {.method = METHOD_FIND_MISSING_BLOBS,
                                       .body = find_missing_request(bytes_of("", 0), &digest, 1),
                                       .loop = &loop,
                                       .done = note_unary_end,
                                       .argument = &ended[0]};
    ck_assert(unary_start(client, &call, &unary, &status));
    struct upload *upload;
    const struct upload_request up = {.digest = digest,
                                      .source = {.read = source_of_zeroes},
                                      .loop = &loop,
                                      .done = note_upload_end,
                                      .argument = &ended[1]};
    ck_assert(upload_start(client, &up, &upload, &status));
    struct download *download;
    const struct download_request down = {.digest = digest,
                                          .sink = {.write = sink_to_nowhere},
                                          .loop = &loop,
                                          .done = note_end,
                                          .argument = &ended[2]};
    ck_assert(download_start(client, &down, &download, &status));

    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        while (fake_cas_calls(&cas, methods[i]) == 0)
            run_for(&loop, 10 * NS_PER_MS);
    }
    run_for(&loop, 300 * NS_PER_MS); /* for the answers, where there are any */
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    unary_cancel(unary);
    upload_cancel(upload);
    download_cancel(download);
    for (size_t i = 0; i < ARRAY_LENGTH(ended); i++) {
        event_loop_run_until(&loop, &ended[i].finished);
        ck_assert_int_eq(ended[i].status.code, STATUS_CANCELLED);
    }
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - start_ns, 2 * NS_PER_S);
    event_loop_destroy(&loop);
    close_client();
}
END_TEST

START_TEST(many_calls_from_one_thread_are_in_flight_together)
{
    cas.answer_pause_ms = 100;
    struct client_options options = quick_options();
    options.connections = 2;
    open_with(&options);
    struct event_loop loop;
    event_loop_init(&loop, clock_real());
    enum { COUNT = 24 };
    struct ended ended[COUNT] = {{0}};
    struct digest digest;
    free(make_data(50, 31, &digest));
    bool missing[COUNT];
    struct status status = {0};
    for (size_t i = 0; i < COUNT; i++) {
        const struct batch_done done = {.done = note_end, .argument = &ended[i]};
        ck_assert(find_missing_start(client, &loop, &digest, &missing[i], 1, done, &status));
    }
    for (size_t i = 0; i < COUNT; i++) {
        event_loop_run_until(&loop, &ended[i].finished);
        ck_assert(ended[i].status.code == STATUS_OK && missing[i]);
    }
    ck_assert_uint_gt(fake_cas_live_max(&cas, "FindMissingBlobs"), COUNT / 2);
    event_loop_destroy(&loop);
    close_client();
}
END_TEST

START_TEST(closing_a_client_with_calls_in_flight_aborts)
{
    open_client();
    plan((struct fake_fault){"FindMissingBlobs", FAKE_FAULT_HANG, .times = 1});
    struct event_loop loop;
    event_loop_init(&loop, clock_real());
    struct digest digest;
    free(make_data(50, 32, &digest));
    bool missing;
    struct ended ended = {0};
    struct status status = {0};
    ck_assert(find_missing_start(client, &loop, &digest, &missing, 1,
                                 (struct batch_done){.done = note_end, .argument = &ended},
                                 &status));
    client_close(client);
}
END_TEST

/* ---- files */

static int make_file(const struct temp_dir *directory, const char *name, struct bytes content)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", directory->path, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, content.data, content.length), (ssize_t)content.length);
    return fd;
}

START_TEST(files_are_hashed_and_sent)
{
    struct temp_dir directory;
    temp_dir_make(&directory);
    open_client();
    const size_t sizes[] = {0, 10, MIB_BYTES, MIB_BYTES + 1, 3 * MIB_BYTES + 5};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct digest expected, digest;
        uint8_t *data = make_data(sizes[i], i, &expected);
        const int fd = make_file(&directory, "file", bytes_of(data, sizes[i]));
        struct status status = {0};
        ck_assert_msg(cas_write_file(client, NULL, fd, "file", &digest, &status), "%s",
                      status.message);
        ck_assert(digest_equal(&digest, &expected));
        ck_assert(sizes[i] == 0 || fake_cas_has(&cas, &digest));
        close(fd);
        free(data);
    }
    close_client();
    temp_dir_remove(&directory);
}
END_TEST

struct changing_file {
    int fd;
    unsigned reads;
    struct upload_source source;
};

/* Lets the first message through, then appends to the file. */
static bool read_and_change(void *argument,
                            uint64_t offset,
                            uint8_t *to,
                            size_t length,
                            struct status *status)
{
    struct changing_file *file = argument;
    if (file->reads++ == 1)
        ck_assert_int_eq(pwrite(file->fd, "x", 1, 5 * MIB_BYTES), 1);
    return file->source.read(file->source.argument, offset, to, length, status);
}

START_TEST(a_file_that_changes_while_it_is_sent_is_an_error_that_names_it)
{
    struct temp_dir directory;
    temp_dir_make(&directory);
    open_client();
    struct digest digest;
    uint8_t *data = make_data(4 * MIB_BYTES, 40, &digest);
    struct changing_file file = {
        .fd = make_file(&directory, "moving", bytes_of(data, 4 * MIB_BYTES))};
    struct file_source source;
    struct status status = {0};
    ck_assert(file_source_init(&source, file.fd, "mov\ning", &status));
    file.source = file_source_upload(&source);
    struct event_loop loop;
    event_loop_init(&loop, clock_real());
    struct ended ended = {0};
    const struct upload_request request = {.digest = digest,
                                           .source = {.read = read_and_change, .argument = &file},
                                           .loop = &loop,
                                           .done = note_upload_end,
                                           .argument = &ended};
    struct upload *upload;
    ck_assert(upload_start(client, &request, &upload, &status));
    event_loop_run_until(&loop, &ended.finished);
    ck_status(&ended.status, STATUS_ABORTED, "mov\\x0aing: changed");
    ck_assert(!fake_cas_has(&cas, &digest));
    ck_assert_uint_le(fake_cas_calls(&cas, "Write"), 1); /* none: cut before the server looked */
    event_loop_destroy(&loop);
    file_source_destroy(&source);

    /* Longer than it was, with the old time put back. */
    ck_assert(file_source_init(&source, file.fd, "moving", &status));
    const struct timespec times[2] = {source.stat.st_atim, source.stat.st_mtim};
    ck_assert_int_eq(pwrite(file.fd, "x", 1, 6 * MIB_BYTES), 1);
    ck_assert_int_eq(futimens(file.fd, times), 0);
    ck_assert(!file_source_check(&source, &status));
    file_source_destroy(&source);

    /* Shorter than it was when it was opened: no read runs past the end. */
    ck_assert(file_source_init(&source, file.fd, "moving", &status));
    ck_assert_int_eq(ftruncate(file.fd, 100), 0);
    uint8_t *buffer = malloc(FILE_SOURCE_KEPT_BYTES);
    ck_assert(!file_source_digest(&source, DIGEST_FUNCTION_SHA256, buffer, &digest, &status));
    ck_status(&status, STATUS_ABORTED, "moving: changed");
    free(buffer);
    file_source_destroy(&source);
    close(file.fd);
    free(data);
    close_client();
    temp_dir_remove(&directory);
}
END_TEST

START_TEST(what_is_no_regular_file_or_too_large_is_not_sent)
{
    cas.blob_bytes_max = 5;
    open_client();
    struct temp_dir directory;
    temp_dir_make(&directory);
    struct capabilities capabilities;
    struct status status = {0};
    struct digest digest;
    ck_assert(capabilities_get(client, &capabilities, &status));
    const int fd = make_file(&directory, "six", bytes_of("123456", 6));
    ck_assert(!cas_write_file(client, &capabilities, fd, "six", &digest, &status));
    ck_status(&status, STATUS_OUT_OF_RANGE, "six: 6 bytes");
    close(fd);
    const int null = open("/dev/null", O_RDONLY);
    ck_assert(!cas_write_file(client, &capabilities, null, "/dev/null", &digest, &status));
    ck_status(&status, STATUS_INVALID_ARGUMENT, "/dev/null: not a regular file");
    close(null);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 0);
    temp_dir_remove(&directory);
    close_client();
}
END_TEST

START_TEST(names_are_made_printable_and_cut_at_the_front)
{
    char text[64];
    ck_assert_str_eq(file_name_text("a b\xc3\xa9.c", text, sizeof(text)), "a b\xc3\xa9.c");
    ck_assert_str_eq(file_name_text("\xff\n\\\xc2\x85", text, sizeof(text)),
                     "\\xff\\x0a\\\\\\xc2\\x85");
    char long_name[400];
    memset(long_name, 'x', sizeof(long_name));
    strcpy(long_name + sizeof(long_name) - 9, "/the-end");
    file_name_text(long_name, text, sizeof(text));
    ck_assert_int_eq(strncmp(text, "...", 3), 0);
    ck_assert_str_eq(text + strlen(text) - 8, "/the-end");
    memset(long_name, 0xff, sizeof(long_name) - 1);
    ck_assert_uint_lt(strlen(file_name_text(long_name, text, sizeof(text))), sizeof(text));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *plain = tcase_create("plain");
    tcase_add_test(plain, requests_are_what_protobuf_c_reads);
    tcase_add_test(plain, batch_update_request_and_its_size_are_those_of_protobuf_c);
    tcase_add_test(plain, write_requests_are_what_protobuf_c_reads);
    tcase_add_test(plain, digest_map_keeps_all_and_tells_them_apart);
    tcase_add_test(plain, timers_run_in_the_order_of_their_time_and_stopped_ones_do_not);
    tcase_add_test(plain, pauses_double_with_jitter_and_end);
    tcase_add_test(plain, only_what_may_go_well_later_is_tried_again);
    tcase_add_test(plain, names_are_made_printable_and_cut_at_the_front);
    tcase_add_test(plain, targets_and_options_that_cannot_be_are_refused);
    suite_add_tcase(suite, plain);

    TCase *served = tcase_create("served");
    tcase_set_timeout(served, 60);
    tcase_add_test(served, a_server_that_is_not_there_is_unavailable_within_seconds);
    tcase_add_test(served, every_call_says_which_tool_it_is);
    tcase_add_test(served, capabilities_are_read_and_honoured);
    tcase_add_test(served, a_server_without_capabilities_gets_the_defaults);
    tcase_add_test(served, find_missing_asks_in_pages_that_any_server_takes);
    tcase_add_test(served, a_call_is_tried_five_times_and_a_passing_failure_is_not_seen);
    tcase_add_test(served, a_server_that_never_answers_meets_the_deadline);
    tcase_add_test(served, malformed_empty_and_oversized_answers_are_errors_and_not_taken_for_data);
    tcase_add_test(served, batches_have_a_result_for_each_entry);
    tcase_add_test(served, an_action_that_is_not_there_is_no_failure);
    tcase_add_test(served, blobs_of_all_sizes_go_there_and_back);
    tcase_add_test(served, an_upload_that_is_cut_goes_on_where_the_server_is);
    tcase_add_test(served, progress_gives_an_upload_new_tries);
    tcase_add_test(served, an_upload_without_write_status_starts_over);
    tcase_add_test(served, a_blob_that_is_there_is_answered_early);
    tcase_add_test(served, an_ok_for_half_a_blob_is_not_believed);
    tcase_add_test(served, a_refused_upload_is_not_tried_again_and_names_the_blob);
    tcase_add_test(served, a_download_that_is_cut_goes_on_where_it_was);
    tcase_add_test(served, wrong_bytes_are_never_handed_out_as_good);
    tcase_add_test(served, a_blob_that_is_not_there_is_not_found_at_once);
    tcase_add_test(served, a_reader_that_has_gone_ends_the_download);
    tcase_add_loop_test(served, cancelled_calls_end_at_once_as_cancelled, 0, 2);
    tcase_add_test(served, many_calls_from_one_thread_are_in_flight_together);
    tcase_add_test_raise_signal(served, closing_a_client_with_calls_in_flight_aborts, SIGABRT);
    tcase_add_test(served, files_are_hashed_and_sent);
    tcase_add_test(served, a_file_that_changes_while_it_is_sent_is_an_error_that_names_it);
    tcase_add_test(served, what_is_no_regular_file_or_too_large_is_not_sent);
    suite_add_tcase(suite, served);
    return test_run(suite);
}
