/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever goes wrong with entries, batches and streams, each blob that was given is accounted once,
 * in the way that is true of the server, and none is in two calls at once: by hand-made faults one
 * at a time, and by random mixtures of them, against tests/support/fake_cas.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/batch.h"
#include "client/uploader.h"
#include "tests/support/fake_cas.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

enum { BLOBS_MAX = 400 };

static struct fake_cas cas;
static struct client *client;
static struct uploader *uploader;
static struct capabilities capabilities;

static struct digest digests[BLOBS_MAX];
static size_t blob_count;
static unsigned ended[BLOBS_MAX];
static enum uploader_outcome outcomes[BLOBS_MAX];
static char problems[16384];
static unsigned problem_count;

static void note_problem(void *argument, const struct status *problem)
{
    (void)argument;
    ck_assert_int_ne(problem->code, STATUS_OK);
    problem_count++;
    const size_t length = strlen(problems);
    snprintf(problems + length, sizeof(problems) - length, "%s\n", problem->message);
}

static void no_progress(void *argument)
{
    (void)argument;
}

static void note_end(void *argument, const struct digest *digest, enum uploader_outcome outcome)
{
    (void)argument;
    for (size_t i = 0; i < blob_count; i++) {
        if (digest_equal(digest, &digests[i])) {
            ended[i]++;
            outcomes[i] = outcome;
            return;
        }
    }
    ck_abort_msg("a blob ended that was not given");
}

static bool no_file(void *argument, const char *path, int *fd, struct status *status)
{
    (void)argument;
    (void)fd;
    return status_fail(status, STATUS_NOT_FOUND, "%s: not here", path);
}

static struct uploader_config config_of_test(void)
{
    struct uploader_config config = uploader_config_default();
    config.client = client;
    config.capabilities = &capabilities;
    config.observer = (struct uploader_observer){
        .problem = note_problem, .progress = no_progress, .ended = note_end};
    config.open_file = no_file;
    return config;
}

static void open_all(void)
{
    client_prepare_process();
    fake_cas_start(&cas);
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = NS_PER_MS;
    options.retry.pause_max_ns = 4 * NS_PER_MS;
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
    ck_assert_msg(capabilities_get(client, &capabilities, &status), "%s", status.message);
    const struct uploader_config config = config_of_test();
    ck_assert_msg(uploader_new(&config, &uploader, &status), "%s", status.message);
}

static void close_all(void)
{
    uploader_free(uploader);
    client_close(client);
    fake_cas_stop(&cas);
}

/* A blob that no other number has. Returns its index. */
static bool give(uint64_t number, size_t size, struct status *status)
{
    uint8_t *content = malloc(size + 1);
    ck_assert_ptr_nonnull(content);
    for (size_t i = 0; i < size; i++)
        content[i] = (uint8_t)(number >> (i % 8 * 8));
    struct digest digest;
    char name[32];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(content, size), &digest);
    digests[blob_count++] = digest;
    snprintf(name, sizeof(name), "blob-%llu", (unsigned long long)number);
    return uploader_add_content(uploader, &digest, content, name, status);
}

static void give_many(size_t count, size_t size)
{
    struct status status = {0};
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(give(1000 + i, size + i, &status), "%s", status.message);
}

/* Each blob ended once, and as it is at the server. */
static void ck_accounts(void)
{
    const struct uploader_counts *counts = uploader_counts(uploader);
    size_t by_outcome[4] = {0};
    for (size_t i = 0; i < blob_count; i++) {
        ck_assert_uint_eq(ended[i], 1);
        by_outcome[outcomes[i]]++;
        if (outcomes[i] == UPLOADER_PRESENT || outcomes[i] == UPLOADER_UPLOADED)
            ck_assert(fake_cas_has(&cas, &digests[i]));
    }
    ck_assert_uint_eq(counts->blobs, blob_count);
    ck_assert_uint_eq(counts->present, by_outcome[UPLOADER_PRESENT]);
    ck_assert_uint_eq(counts->uploaded, by_outcome[UPLOADER_UPLOADED]);
    ck_assert_uint_eq(counts->failed, by_outcome[UPLOADER_FAILED]);
    ck_assert_uint_eq(counts->abandoned, by_outcome[UPLOADER_ABANDONED]);
    ck_assert_uint_eq(counts->failed, problem_count);
    ck_assert_uint_eq(cas.meetings, 0);
}

static const char *hex_of(size_t index)
{
    static char hex[4][DIGEST_HASH_HEX_MAX + 1];
    return digest_hex(&digests[index], hex[index % 4]);
}

static void ck_finish(void)
{
    struct status status = {0};
    ck_assert_msg(uploader_finish(uploader, &status), "%s\n%s", status.message, problems);
    ck_accounts();
    ck_assert_uint_eq(uploader_counts(uploader)->uploaded, blob_count);
}

/* ---- entries */

/* bb-storage and others encode OK as no status: such a blob is there, and goes once. */
START_TEST(an_entry_without_a_status_is_asked_for_again_and_not_sent_twice)
{
    cas.faults[0] = (struct fake_fault){
        .method = "BatchUpdateBlobs", .kind = FAKE_FAULT_NO_STATUS, .times = 1000};
    open_all();
    give_many(100, 50);
    ck_finish();
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 0);
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 2);
    ck_assert_uint_eq(cas.duplicates, 0);
    close_all();
}
END_TEST

START_TEST(an_entry_that_is_left_out_or_malformed_is_streamed_and_no_other)
{
    static const enum fake_fault_kind kinds[] = {FAKE_FAULT_NO_ENTRY, FAKE_FAULT_BAD_STATUS};
    open_all();
    give_many(100, 50);
    cas.faults[0] = (struct fake_fault){
        .method = "BatchUpdateBlobs", .kind = kinds[_i], .digest_hex = hex_of(37), .times = 1};
    ck_finish();
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 1);
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), 1);
    close_all();
}
END_TEST

START_TEST(entries_that_may_pass_are_streamed_and_final_ones_reported_and_nothing_else_is_disturbed)
{
    open_all();
    give_many(100, 50);
    const enum status_code codes[] = {STATUS_UNAVAILABLE, STATUS_RESOURCE_EXHAUSTED,
                                      STATUS_INVALID_ARGUMENT, STATUS_FAILED_PRECONDITION};
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++)
        cas.faults[i] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                            .kind = FAKE_FAULT_ONE_ENTRY,
                                            .code = codes[i],
                                            .digest_hex = hex_of(10 + i),
                                            .times = 1};
    struct status status = {0};
    ck_assert(!uploader_finish(uploader, &status));
    ck_accounts();
    ck_assert_uint_eq(uploader_counts(uploader)->failed, 2);
    ck_assert_uint_eq(uploader_counts(uploader)->uploaded, 98);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 2);
    ck_assert_ptr_nonnull(strstr(problems, "blob-1012"));
    ck_assert_ptr_nonnull(strstr(problems, "blob-1013"));
    close_all();
}
END_TEST

/* ---- whole batches */

START_TEST(a_full_server_holds_up_its_own_batch_alone)
{
    /* Several batches; the first that comes is refused three times, the others go meanwhile. */
    cas.batch_total_bytes_max = 30000;
    cas.faults[0] =
        (struct fake_fault){.method = "BatchUpdateBlobs",
                            .kind = FAKE_FAULT_STATUS,
                            .code = _i == 0 ? STATUS_RESOURCE_EXHAUSTED : STATUS_UNAVAILABLE,
                            .times = 3};
    open_all();
    give_many(200, 1000);
    ck_finish();
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 0);
    const unsigned batches = (unsigned)uploader_counts(uploader)->batches;
    ck_assert_uint_gt(batches, 5);
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), batches + 3);
    ck_assert_uint_le(fake_cas_live_max(&cas, "BatchUpdateBlobs"), UPLOADER_BATCHES_IN_FLIGHT_MAX);
    close_all();
}
END_TEST

/* A server without a limit of its own had its 4 MiB taken for a full disk. */
START_TEST(a_message_that_is_too_large_for_a_proxy_is_not_tried_again_but_streamed)
{
    static const char *const texts[] = {
        "Received message larger than max (4235597 vs. 4194304)",
        "gRPC message exceeds maximum size 4194304: 4235597",
        "Error, message length too large: found 4235597 bytes, the limit is: 4194304 bytes",
    };
    cas.faults[0] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_RESOURCE_EXHAUSTED,
                                        .text = texts[_i],
                                        .times = 1000};
    open_all();
    give_many(50, 100);
    ck_finish();
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), 1);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 50);
    close_all();
}
END_TEST

START_TEST(a_batch_that_is_not_answered_in_time_is_streamed)
{
    client_prepare_process();
    fake_cas_start(&cas);
    cas.faults[0] =
        (struct fake_fault){.method = "BatchUpdateBlobs", .kind = FAKE_FAULT_HANG, .times = 1};
    struct client_options options = client_options_default();
    options.call_timeout_ns = NS_PER_S;
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
    ck_assert(capabilities_get(client, &capabilities, &status));
    const struct uploader_config config = config_of_test();
    ck_assert(uploader_new(&config, &uploader, &status));
    give_many(20, 100);
    ck_finish();
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), 1);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 20);
    close_all();
}
END_TEST

START_TEST(a_server_without_batches_is_asked_for_few)
{
    cas.batch_total_bytes_max = 3000;
    cas.faults[0] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNIMPLEMENTED,
                                        .times = 1000};
    open_all();
    give_many(200, 500);
    ck_finish();
    ck_assert_uint_le(fake_cas_calls(&cas, "BatchUpdateBlobs"), UPLOADER_BATCHES_IN_FLIGHT_MAX);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 200);
    close_all();
}
END_TEST

/* ---- the end of all */

/* What was on its way may end well or not; it is accounted either way, and no call comes after. */
START_TEST(after_a_failure_of_all_nothing_new_is_started_and_what_is_in_flight_is_accounted)
{
    cas.batch_total_bytes_max = 20000;
    cas.store_pause_ms = 20;
    cas.faults[0] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAUTHENTICATED,
                                        .skip = 2,
                                        .times = 1000};
    open_all();
    struct status status = {0};
    for (size_t i = 0; i < 200; i++)
        ck_assert(give(i, 1000, &status));
    for (size_t i = 200; i < 240; i++) {
        /* Some come after the failure: those are not taken any more, and not counted. */
        if (!give(i, 300000, &status))
            blob_count = (size_t)uploader_counts(uploader)->blobs;
    }
    ck_assert(!uploader_finish(uploader, &status));
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);
    ck_assert_ptr_nonnull(strstr(status.message, "BatchUpdateBlobs"));
    ck_accounts();
    const struct uploader_counts *counts = uploader_counts(uploader);
    ck_assert_uint_gt(counts->abandoned, 0);
    ck_assert_uint_gt(counts->uploaded, 0); /* the two batches that went before */
    ck_assert_uint_le(fake_cas_calls(&cas, "BatchUpdateBlobs"), 2 + UPLOADER_BATCHES_IN_FLIGHT_MAX);
    const unsigned calls = fake_cas_calls(&cas, "BatchUpdateBlobs") + fake_cas_calls(&cas, "Write");
    /* Whoever gives more is told, and nothing of it is sent. */
    ck_assert(!uploader_add_content(uploader, &digests[0], malloc(1), "more", &status));
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs") + fake_cas_calls(&cas, "Write"),
                      calls);
    close_all();
}
END_TEST

START_TEST(a_pause_between_two_tries_ends_with_the_failure_of_another)
{
    client_prepare_process();
    cas.batch_total_bytes_max = 20000;
    fake_cas_start(&cas);
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = options.retry.pause_max_ns = 600 * NS_PER_S;
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
    ck_assert(capabilities_get(client, &capabilities, &status));
    const struct uploader_config config = config_of_test();
    ck_assert(uploader_new(&config, &uploader, &status));
    cas.faults[0] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .times = 1};
    cas.faults[1] = (struct fake_fault){
        .method = "Write", .kind = FAKE_FAULT_STATUS, .code = STATUS_UNAVAILABLE, .times = 1};
    cas.faults[2] = (struct fake_fault){.method = "Write",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_PERMISSION_DENIED,
                                        .skip = 1,
                                        .times = 100};
    for (size_t i = 0; i < 60; i++)
        ck_assert(give(i, 1000, &status));
    for (size_t i = 60; i < 64; i++)
        ck_assert(give(i, 300000, &status));
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    ck_assert(!uploader_finish(uploader, &status));
    ck_assert_int_eq(status.code, STATUS_PERMISSION_DENIED);
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - start_ns, 30 * NS_PER_S);
    ck_accounts();
    close_all();
}
END_TEST

/* ---- limits */

/* "No limit" once made messages of more than 4 MiB, which most receivers refuse. */
START_TEST(no_announced_limit_still_means_messages_below_four_mebibytes)
{
    cas.batch_total_bytes_max = 0;
    open_all();
    struct status status = {0};
    for (size_t i = 0; i < 50; i++)
        ck_assert(give(i, 200000, &status));
    for (size_t i = 50; i < 150; i++)
        ck_assert(give(i, 128 << 10, &status));
    ck_finish();
    ck_assert_uint_lt(cas.largest_message_bytes, 4 << 20);
    ck_assert_uint_gt(cas.largest_message_bytes, 2 << 20); /* and are not small either */
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 50);
    close_all();
}
END_TEST

START_TEST(limits_that_cannot_work_are_refused_when_it_is_made)
{
    fake_cas_start(&cas);
    struct client_options options = client_options_default();
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
    struct uploader_config config = config_of_test();
    config.limits.batched_blob_bytes_max = config.limits.batch_bytes_max;
    ck_assert(!uploader_new(&config, &uploader, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    client_close(client);
    fake_cas_stop(&cas);
}
END_TEST

START_TEST(held_content_and_calls_are_bounded)
{
    open_all();
    cas.answer_pause_ms = 200; /* so that what is given waits */
    struct status status = {0};
    for (size_t i = 0; i < BLOBS_MAX; i++)
        ck_assert(give(i, i % 2 == 0 ? 2000000 : 100000, &status));
    ck_finish();
    ck_assert_uint_le(fake_cas_live_max(&cas, "Write"), UPLOADER_STREAMS_IN_FLIGHT_MAX);
    ck_assert_uint_le(fake_cas_live_max(&cas, "BatchUpdateBlobs"), UPLOADER_BATCHES_IN_FLIGHT_MAX);
    ck_assert_uint_le(fake_cas_live_max(&cas, "FindMissingBlobs"), UPLOADER_PAGES_IN_FLIGHT_MAX);
    const uint64_t peak = uploader_counts(uploader)->held_bytes_peak;
    ck_assert_uint_le(peak, UPLOADER_HELD_BYTES_MAX + 2000000);
    ck_assert_uint_gt(peak, UPLOADER_HELD_BYTES_MAX / 2); /* and it is made use of */
    close_all();
}
END_TEST

/* ---- mixtures */

static void plan_random(struct prng *random)
{
    ASSERT(blob_count > 0);
    static const char *const methods[] = {"FindMissingBlobs",
                                          "BatchUpdateBlobs",
                                          "BatchUpdateBlobs",
                                          "BatchUpdateBlobs",
                                          "Write",
                                          "Write"};
    static const enum status_code codes[] = {
        STATUS_UNKNOWN,     STATUS_RESOURCE_EXHAUSTED,  STATUS_UNAVAILABLE,
        STATUS_INTERNAL,    STATUS_INVALID_ARGUMENT,    STATUS_UNIMPLEMENTED,
        STATUS_ABORTED,     STATUS_FAILED_PRECONDITION, STATUS_OUT_OF_RANGE,
        STATUS_UNAVAILABLE, STATUS_PERMISSION_DENIED,
    };
    static const enum fake_fault_kind kinds[] = {
        FAKE_FAULT_STATUS,    FAKE_FAULT_STATUS,     FAKE_FAULT_ENTRY,     FAKE_FAULT_NO_ENTRY,
        FAKE_FAULT_NO_STATUS, FAKE_FAULT_BAD_STATUS, FAKE_FAULT_MALFORMED, FAKE_FAULT_EMPTY,
    };
    for (size_t i = 0; i < 5; i++) {
        struct fake_fault *fault = &cas.faults[i];
        *fault = (struct fake_fault){
            .method = methods[prng_below(random, ARRAY_LENGTH(methods))],
            .kind = kinds[prng_below(random, ARRAY_LENGTH(kinds))],
            .code = codes[prng_below(random, ARRAY_LENGTH(codes))],
            .skip = (unsigned)prng_below(random, 4),
            .times = 1 + (unsigned)prng_below(random, 6),
        };
        const bool of_entries =
            fault->kind == FAKE_FAULT_ENTRY || fault->kind == FAKE_FAULT_NO_ENTRY ||
            fault->kind == FAKE_FAULT_NO_STATUS || fault->kind == FAKE_FAULT_BAD_STATUS;
        if (of_entries)
            fault->method = "BatchUpdateBlobs";
        if (of_entries && prng_below(random, 2) == 0)
            fault->digest_hex = hex_of(prng_below(random, blob_count));
        if (strcmp(fault->method, "Write") == 0)
            fault->kind = FAKE_FAULT_STATUS;
    }
}

/* An empty answer of FindMissingBlobs says that all is there: then it is believed, and not so here. */
START_TEST(every_blob_is_accounted_once_whatever_goes_wrong)
{
    struct prng random = {.state = 77 + (uint64_t)_i};
    cas.batch_total_bytes_max = 1 + (int64_t)prng_below(&random, 40000);
    cas.store_pause_ms = 2;
    open_all();
    const size_t count = 20 + prng_below(&random, 100);
    /* Their digests are known before they are given, so that faults can name them. */
    for (size_t i = 0; i < count; i++) {
        const size_t size = prng_below(&random, 8) == 0 ? 140000 : 8 + prng_below(&random, 900);
        struct status status = {0};
        ck_assert(give((uint64_t)_i << 32 | (i + 1), size, &status));
        if (i == 10)
            plan_random(&random);
    }
    for (size_t i = 0; i < FAKE_FAULTS_MAX; i++) {
        if (cas.faults[i].method != NULL && strcmp(cas.faults[i].method, "FindMissingBlobs") == 0 &&
            cas.faults[i].kind == FAKE_FAULT_EMPTY)
            cas.faults[i].kind = FAKE_FAULT_MALFORMED;
    }
    struct status status = {0};
    const bool ok = uploader_finish(uploader, &status);
    ck_accounts();
    const struct uploader_counts *counts = uploader_counts(uploader);
    ck_assert_int_eq(ok, counts->failed == 0 && counts->abandoned == 0);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("uploader");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, an_entry_without_a_status_is_asked_for_again_and_not_sent_twice);
    tcase_add_loop_test(all, an_entry_that_is_left_out_or_malformed_is_streamed_and_no_other, 0, 2);
    tcase_add_test(
        all,
        entries_that_may_pass_are_streamed_and_final_ones_reported_and_nothing_else_is_disturbed);
    tcase_add_loop_test(all, a_full_server_holds_up_its_own_batch_alone, 0, 2);
    tcase_add_loop_test(
        all, a_message_that_is_too_large_for_a_proxy_is_not_tried_again_but_streamed, 0, 3);
    tcase_add_test(all, a_batch_that_is_not_answered_in_time_is_streamed);
    tcase_add_test(all, a_server_without_batches_is_asked_for_few);
    tcase_add_test(
        all, after_a_failure_of_all_nothing_new_is_started_and_what_is_in_flight_is_accounted);
    tcase_add_test(all, a_pause_between_two_tries_ends_with_the_failure_of_another);
    tcase_add_test(all, no_announced_limit_still_means_messages_below_four_mebibytes);
    tcase_add_test(all, limits_that_cannot_work_are_refused_when_it_is_made);
    tcase_add_test(all, held_content_and_calls_are_bounded);
    tcase_add_loop_test(all, every_blob_is_accounted_once_whatever_goes_wrong, 0, 60);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
