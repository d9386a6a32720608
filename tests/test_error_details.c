/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that error details are what protobuf-c reads as a google.rpc.Status with one
 * PreconditionFailure, that they keep below their bound with as many blobs as fit, and that a client's
 * bound on trailers is kept with them.
 *
 * Method: any number of missing blobs with short and long messages, unpacked by protobuf-c.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "proto/error_details.h"
#include "tests/support/test_run.h"

enum { BLOBS = 100 };

static void make_digests(struct digest digests[BLOBS], int64_t size_bytes)
{
    for (int i = 0; i < BLOBS; i++) {
        digests[i] = (struct digest){.hash_length = SHA256_HASH_BYTES,
                                     .function = DIGEST_FUNCTION_SHA256,
                                     .size_bytes = size_bytes};
        memset(digests[i].hash, i, SHA256_HASH_BYTES);
    }
}

/* The details as a client reads them. */
static void check_details(const uint8_t *bytes,
                          size_t length,
                          const struct status *status,
                          const struct digest *missing,
                          size_t told_count)
{
    Google__Rpc__Status *const got = google__rpc__status__unpack(NULL, length, bytes);
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(got->code, (int)status->code);
    ck_assert_str_eq(got->message, status->message);
    ck_assert_uint_eq(got->base.n_unknown_fields, 0);
    ck_assert_uint_eq(got->n_details, 1);
    const Google__Protobuf__Any *const any = got->details[0];
    ck_assert_str_eq(any->type_url, "type.googleapis.com/google.rpc.PreconditionFailure");
    Google__Rpc__PreconditionFailure *const failure =
        google__rpc__precondition_failure__unpack(NULL, any->value.len, any->value.data);
    ck_assert_ptr_nonnull(failure);
    ck_assert_uint_eq(failure->n_violations, told_count);
    for (size_t i = 0; i < told_count; i++) {
        char text[DIGEST_TEXT_BYTES_MAX];
        char subject[DIGEST_TEXT_BYTES_MAX + 8];
        snprintf(subject, sizeof(subject), "blobs/%s", digest_text(&missing[i], text));
        ck_assert_str_eq(failure->violations[i]->type, "MISSING");
        ck_assert_str_eq(failure->violations[i]->subject, subject);
        ck_assert_str_eq(failure->violations[i]->description, "");
    }
    google__rpc__precondition_failure__free_unpacked(failure, NULL);
    google__rpc__status__free_unpacked(got, NULL);
}

START_TEST(details_name_as_many_missing_blobs_as_fit)
{
    static const int64_t sizes[] = {1, 70000, INT64_MAX};
    struct digest digests[BLOBS];
    make_digests(digests, sizes[_i]);
    struct status status = {0};
    status_fail(&status, STATUS_FAILED_PRECONDITION, "blobs are missing");
    size_t told_most = 0;
    for (size_t count = 0; count <= BLOBS; count++) {
        /* A block of its own, so that AddressSanitizer sees a write past its end. */
        uint8_t *const bytes = malloc(ERROR_DETAILS_BYTES_MAX);
        ck_assert_ptr_nonnull(bytes);
        size_t told_count;
        const size_t length =
            error_details_missing_put(bytes, &status, digests, count, &told_count);
        ck_assert_uint_le(length, ERROR_DETAILS_BYTES_MAX);
        ck_assert_uint_le(told_count, count);
        if (told_count < count) /* one more would not have fitted */
            ck_assert_uint_gt(length + 120, ERROR_DETAILS_BYTES_MAX);
        if (told_count > told_most)
            told_most = told_count;
        check_details(bytes, length, &status, digests, told_count);
        free(bytes);
    }
    ck_assert_uint_ge(told_most, 35);
    ck_assert_uint_lt(told_most, BLOBS);
}
END_TEST

START_TEST(details_with_the_longest_message_fit)
{
    struct digest digests[BLOBS];
    make_digests(digests, 12345);
    struct status status = {.code = STATUS_FAILED_PRECONDITION};
    memset(status.message, 'x', sizeof(status.message) - 1);
    uint8_t bytes[ERROR_DETAILS_BYTES_MAX];
    size_t told_count;
    const size_t length = error_details_missing_put(bytes, &status, digests, BLOBS, &told_count);
    ck_assert_uint_le(length, ERROR_DETAILS_BYTES_MAX);
    ck_assert_uint_ge(told_count, 35);
    check_details(bytes, length, &status, digests, told_count);
}
END_TEST

START_TEST(trailers_with_details_keep_below_8_kib)
{
    /* HTTP/2 counts name, value and 32 bytes for each header. */
    const size_t details =
        32 + strlen("grpc-status-details-bin") + (ERROR_DETAILS_BYTES_MAX + 2) / 3 * 4;
    const size_t message = 32 + strlen("grpc-message") + 3 * (STATUS_MESSAGE_BYTES_MAX - 1);
    const size_t others = 32 + strlen("grpc-status") + 2 + 32 + strlen(":status") + 3 + 32 +
                          strlen("content-type") + strlen("application/grpc");
    ck_assert_uint_le(details + message + others, 8192);
}
END_TEST

START_TEST(details_of_ok_are_a_mistake_of_ours)
{
    const struct status ok = {0};
    uint8_t bytes[ERROR_DETAILS_BYTES_MAX];
    size_t told_count;
    error_details_missing_put(bytes, &ok, NULL, 0, &told_count);
}
END_TEST

START_TEST(error_details_tell_when_to_try_again)
{
    static const int64_t times[] = {0, 1, 999999999, 1000000000, 30000000001};
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        uint8_t bytes[ERROR_DETAILS_BYTES_MAX];
        struct status status = {0};
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "%0500d", 1); /* as long as there can be */
        const size_t length = error_details_retry_put(bytes, &status, times[i]);
        Google__Rpc__Status *const got = google__rpc__status__unpack(NULL, length, bytes);
        ck_assert_ptr_nonnull(got);
        ck_assert_int_eq(got->code, STATUS_RESOURCE_EXHAUSTED);
        ck_assert_str_eq(got->message, status.message);
        ck_assert_uint_eq(got->n_details, 1);
        ck_assert_str_eq(got->details[0]->type_url, "type.googleapis.com/google.rpc.RetryInfo");
        Google__Rpc__RetryInfo *const info = google__rpc__retry_info__unpack(
            NULL, got->details[0]->value.len, got->details[0]->value.data);
        ck_assert_ptr_nonnull(info);
        ck_assert_int_eq(info->retry_delay->seconds, times[i] / 1000000000);
        ck_assert_int_eq(info->retry_delay->nanos, times[i] % 1000000000);
        google__rpc__retry_info__free_unpacked(info, NULL);
        google__rpc__status__free_unpacked(got, NULL);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("error_details");
    TCase *const tests = tcase_create("error_details");
    tcase_add_loop_test(tests, details_name_as_many_missing_blobs_as_fit, 0, 3);
    tcase_add_test(tests, error_details_tell_when_to_try_again);
    tcase_add_test(tests, details_with_the_longest_message_fit);
    tcase_add_test(tests, trailers_with_details_keep_below_8_kib);
    tcase_add_test_raise_signal(tests, details_of_ok_are_a_mistake_of_ours, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
