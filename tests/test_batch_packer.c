/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches end where a slow reference says, which for each entry encodes the whole request anew with
 * protobuf-c and measures what came out; and the constant overhead is really above what any
 * encoding takes. Sizes lie on and around every boundary, and many random lists are tried.
 */
#include <stdlib.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/batch_packer.h"
#include "client/messages.h"
#include "tests/support/test_run.h"

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

static struct digest digest_number(uint64_t number, int64_t size_bytes)
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&number, sizeof(number)), &digest);
    digest.size_bytes = size_bytes;
    return digest;
}

/*
 * The request as a sender would make it, encoded from nothing; returns its length and the sum of
 * its data as read back.
 */
static size_t encode_whole(const struct digest *digests, size_t count, uint64_t *data_bytes)
{
    static uint8_t zeroes[8 << 20];
    REAPI(BatchUpdateBlobsRequest)
    request = BUILD__BAZEL__REMOTE__EXECUTION__V2__BATCH_UPDATE_BLOBS_REQUEST__INIT;
    REAPI(BatchUpdateBlobsRequest__Request) *entries = calloc(count + 1, sizeof(*entries));
    REAPI(Digest) *names = calloc(count + 1, sizeof(*names));
    char(*hex)[DIGEST_HASH_HEX_MAX + 1] = calloc(count + 1, sizeof(*hex));
    request.requests = calloc(count + 1, sizeof(void *));
    ck_assert(entries != NULL && names != NULL && hex != NULL && request.requests != NULL);
    request.n_requests = count;
    request.digest_function = 1;
    for (size_t i = 0; i < count; i++) {
        build__bazel__remote__execution__v2__batch_update_blobs_request__request__init(&entries[i]);
        build__bazel__remote__execution__v2__digest__init(&names[i]);
        digest_hex(&digests[i], hex[i]);
        names[i].hash = hex[i];
        names[i].size_bytes = digests[i].size_bytes;
        entries[i].digest = &names[i];
        entries[i].data.data = zeroes;
        entries[i].data.len = (size_t)digests[i].size_bytes;
        request.requests[i] = &entries[i];
    }
    const size_t length =
        build__bazel__remote__execution__v2__batch_update_blobs_request__get_packed_size(&request);
    uint8_t *packed = malloc(length + 1);
    ck_assert_ptr_nonnull(packed);
    ck_assert_uint_eq(
        build__bazel__remote__execution__v2__batch_update_blobs_request__pack(&request, packed),
        length);
    REAPI(BatchUpdateBlobsRequest) *back =
        build__bazel__remote__execution__v2__batch_update_blobs_request__unpack(NULL, length,
                                                                                packed);
    ck_assert_ptr_nonnull(back);
    *data_bytes = 0;
    for (size_t i = 0; i < back->n_requests; i++)
        *data_bytes += back->requests[i]->data.len;
    ck_assert_uint_eq(back->n_requests, count);
    build__bazel__remote__execution__v2__batch_update_blobs_request__free_unpacked(back, NULL);
    free(packed);
    free(request.requests);
    free(hex);
    free(names);
    free(entries);
    return length;
}

/* Does this batch fit, by the encoding of all of it? */
static bool reference_fits(const struct digest *batch,
                           size_t count,
                           const struct batch_packer_limits *limits)
{
    uint64_t data_bytes;
    const size_t encoded = encode_whole(batch, count, &data_bytes);
    const uint64_t counted = data_bytes + count * limits->entry_overhead_bytes;
    ck_assert_uint_le(
        encoded, counted + 2); /* the overhead is an upper bound; 2 bytes are the request's own */
    return counted <= limits->batch_bytes_max;
}

/* Compares the packer's batches with the reference's, for this list. */
static void compare(const struct batch_packer_limits *limits,
                    const struct digest *digests,
                    size_t count)
{
    struct batch_packer *packer;
    struct status status = {0};
    ck_assert_msg(batch_packer_new(limits, &packer, &status), "%s", status.message);
    struct digest *batch = calloc(count + 1, sizeof(*batch));
    size_t in_batch = 0;
    for (size_t i = 0; i < count; i++) {
        enum batch_verdict verdict;
        ck_assert(batch_packer_add(packer, &digests[i], NULL, &verdict, &status));
        if ((uint64_t)digests[i].size_bytes > limits->batched_blob_bytes_max) {
            ck_assert_int_eq(verdict, BATCH_TOO_LARGE);
            continue;
        }
        batch[in_batch] = digests[i];
        const bool fits = reference_fits(batch, in_batch + 1, limits);
        ck_assert_msg(fits == (verdict == BATCH_ADDED),
                      "entry %zu of %lld bytes, as number %zu of its batch: %d", i,
                      (long long)digests[i].size_bytes, in_batch, (int)verdict);
        if (!fits) {
            ck_assert_int_eq(verdict, BATCH_FULL);
            size_t taken;
            free(batch_packer_take(packer, &taken));
            ck_assert_uint_eq(taken, in_batch);
            ck_assert(batch_packer_add(packer, &digests[i], NULL, &verdict, &status));
            ck_assert_int_eq(verdict, BATCH_ADDED);
            batch[0] = digests[i];
            in_batch = 0;
        }
        in_batch++;
        ck_assert_uint_eq(batch_packer_count(packer), in_batch);
    }
    free(batch);
    batch_packer_free(packer);
}

static const struct batch_packer_limits small_limits = {.batch_bytes_max = 20000,
                                                        .entry_overhead_bytes = 256,
                                                        .batched_blob_bytes_max = 9000};

START_TEST(batches_end_where_encoding_everything_each_time_ends_them)
{
    srand(1);
    enum { LISTS = 40, ENTRIES = 60 };
    uint64_t number = 0;
    for (int list = 0; list < LISTS; list++) {
        struct digest digests[ENTRIES];
        const int largest = 1 << (list % 14 + 1);
        for (size_t i = 0; i < ENTRIES; i++)
            digests[i] = digest_number(number++, rand() % largest);
        compare(&small_limits, digests, ENTRIES);
    }
}
END_TEST

/*
 * Two entries that together are below, on and above the limit; and at the lengths where varints
 * grow.
 */
START_TEST(one_byte_decides_at_every_boundary)
{
    const int64_t room = 20000 - 2 * 256;
    const int64_t firsts[] = {room - 9000, room - 9000 + 1, 8999, 8192, 8191, 128, 127, 1, 0};
    uint64_t number = 1000;
    for (size_t i = 0; i < ARRAY_LENGTH(firsts); i++) {
        for (int64_t off = -2; off <= 2; off++) {
            const int64_t fill = room - firsts[i] + off;
            struct digest digests[4];
            size_t count = 0;
            digests[count++] = digest_number(number++, firsts[i]);
            if (fill > 9000) { /* needs a third to get there */
                digests[count++] = digest_number(number++, 9000);
                digests[count++] =
                    digest_number(number++, fill - 9000 - 256 > 0 ? fill - 9000 - 256 : 0);
            } else {
                digests[count++] = digest_number(number++, fill);
            }
            digests[count++] = digest_number(number++, 0);
            compare(&small_limits, digests, count);
        }
    }
}
END_TEST

START_TEST(a_batch_of_the_real_size_ends_at_three_mebibytes)
{
    const struct batch_packer_limits limits = batch_packer_limits_default();
    ck_assert_uint_eq(limits.batch_bytes_max, 3 << 20);
    ck_assert_uint_eq(limits.entry_overhead_bytes, 256);
    ck_assert_uint_eq(limits.batched_blob_bytes_max, 128 << 10);
    enum { ENTRIES = 30 };
    struct digest digests[ENTRIES];
    for (size_t i = 0; i < ENTRIES; i++) /* 23 of these and a rest fill a batch to the byte */
        digests[i] =
            digest_number(i, (3 << 20) / 24 - 256 + (i % 7 == 0 ? 1 : 0) - (i % 11 == 0 ? 1 : 0));
    compare(&limits, digests, ENTRIES);
    for (size_t i = 0; i < ENTRIES; i++)
        digests[i] = digest_number(i, (3 << 20) / 24 - 256);
    compare(&limits, digests, ENTRIES);
}
END_TEST

START_TEST(a_full_batch_is_below_what_receivers_take_also_when_its_blobs_are_empty)
{
    const struct batch_packer_limits limits = batch_packer_limits_default();
    struct batch_packer *packer;
    struct status status = {0};
    ck_assert(batch_packer_new(&limits, &packer, &status));
    size_t encoded =
        batch_update_frame_bytes(bytes_of_string("an-instance-name"), DIGEST_FUNCTION_SHA256);
    for (uint64_t number = 0;; number++) {
        const struct digest digest = digest_number(number, 0);
        enum batch_verdict verdict;
        ck_assert(batch_packer_add(packer, &digest, NULL, &verdict, &status));
        if (verdict == BATCH_FULL)
            break;
        encoded += batch_update_entry_bytes(&digest);
    }
    ck_assert_uint_eq(batch_packer_count(packer), (3 << 20) / 256);
    ck_assert_uint_lt(encoded, 4 << 20);
    batch_packer_free(packer);
}
END_TEST

START_TEST(only_blobs_above_the_threshold_are_streamed)
{
    const struct batch_packer_limits limits = batch_packer_limits_default();
    struct batch_packer *packer;
    struct status status = {0};
    ck_assert(batch_packer_new(&limits, &packer, &status));
    enum batch_verdict verdict;
    struct digest digest = digest_number(1, 128 << 10);
    ck_assert(batch_packer_add(packer, &digest, NULL, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_ADDED);
    digest = digest_number(2, (128 << 10) + 1);
    ck_assert(batch_packer_add(packer, &digest, NULL, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_TOO_LARGE);
    digest = digest_number(3, INT64_MAX);
    ck_assert(batch_packer_add(packer, &digest, NULL, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_TOO_LARGE);
    batch_packer_free(packer);
}
END_TEST

START_TEST(a_digest_is_in_a_batch_once)
{
    struct batch_packer *packer;
    struct status status = {0};
    ck_assert(batch_packer_new(&small_limits, &packer, &status));
    const struct digest digest = digest_number(1, 100);
    struct digest other_size = digest;
    other_size.size_bytes = 101;
    enum batch_verdict verdict;
    int first, second;
    ck_assert(batch_packer_add(packer, &digest, &first, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_ADDED);
    ck_assert(batch_packer_add(packer, &digest, &second, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_DUPLICATE);
    ck_assert_ptr_eq(batch_packer_find(packer, &digest), &first);
    ck_assert_ptr_null(batch_packer_find(packer, &other_size));
    ck_assert(batch_packer_add(packer, &other_size, &second, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_ADDED);
    ck_assert_ptr_eq(batch_packer_find(packer, &other_size), &second);
    size_t count;
    free(batch_packer_take(packer, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_ptr_null(batch_packer_find(packer, &digest));
    ck_assert_ptr_null(batch_packer_take(packer, &count));
    ck_assert_uint_eq(count, 0);
    /* Another batch takes it again. */
    ck_assert(batch_packer_add(packer, &digest, &second, &verdict, &status));
    ck_assert_int_eq(verdict, BATCH_ADDED);
    batch_packer_free(packer);
}
END_TEST

/* Random mixtures under limits from what takes next to nothing to twice what receivers take. */
START_TEST(every_limit_from_nothing_to_eight_mebibytes_ends_batches_where_the_reference_does)
{
    static const uint64_t batch_limits[] = {
        0,      1,      255,     256,     257,           300,     1000,          4096,   65536,
        131328, 131329, 1 << 20, 3 << 20, (3 << 20) + 1, 4 << 20, (8 << 20) - 1, 8 << 20};
    srand(2);
    uint64_t number = 1 << 20;
    for (size_t i = 0; i < ARRAY_LENGTH(batch_limits); i++) {
        struct batch_packer_limits limits = {.batch_bytes_max = batch_limits[i],
                                             .entry_overhead_bytes = 256,
                                             .batched_blob_bytes_max = 128 << 10};
        struct batch_packer *packer;
        struct status status = {0};
        if (limits.batch_bytes_max < 256) {
            limits.batched_blob_bytes_max = 0;
            ck_assert(!batch_packer_new(&limits, &packer, &status)); /* of no use at all */
            ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
            continue;
        }
        if (limits.batched_blob_bytes_max > limits.batch_bytes_max - 256)
            limits.batched_blob_bytes_max = limits.batch_bytes_max - 256;
        /* A few batches of it in entries that are as large as may be, and a mixture. */
        enum { ENTRIES_MAX = 200 };
        struct digest digests[ENTRIES_MAX];
        const int64_t cap = (int64_t)limits.batched_blob_bytes_max;
        for (size_t at = 0; at < ENTRIES_MAX; at++) {
            const int64_t sizes[] = {0,
                                     1,
                                     cap,
                                     cap + 1,
                                     cap - (cap > 0),
                                     rand() % (cap + 2),
                                     rand() % 100,
                                     cap - rand() % (cap < 50 ? cap + 1 : 50)};
            const int64_t size = i % 2 == 0 && at < 150 ? cap : sizes[rand() % 8];
            digests[at] = digest_number(number++, size);
        }
        compare(&limits, digests, ENTRIES_MAX);
    }
}
END_TEST

/*
 * The same length encoded as was counted for each entry: the request is exactly as long as its
 * pieces.
 */
START_TEST(the_size_of_a_request_is_known_before_it_is_encoded)
{
    static const int64_t sizes[] = {0, 1, 50, 51, 52, 127, 128, 129, 16383, 16384, 131072};
    struct digest digests[ARRAY_LENGTH(sizes)];
    for (size_t count = 1; count <= ARRAY_LENGTH(sizes); count++) {
        size_t counted = batch_update_frame_bytes(bytes_of(NULL, 0), DIGEST_FUNCTION_SHA256);
        for (size_t i = 0; i < count; i++) {
            digests[i] = digest_number(i, sizes[i]);
            counted += batch_update_entry_bytes(&digests[i]);
        }
        uint64_t data_bytes;
        ck_assert_uint_eq(encode_whole(digests, count, &data_bytes), counted);
    }
}
END_TEST

START_TEST(a_batch_is_handed_over_in_order)
{
    struct batch_packer *packer;
    struct status status = {0};
    ck_assert(batch_packer_new(&small_limits, &packer, &status));
    int marks[70];
    for (size_t i = 0; i < ARRAY_LENGTH(marks); i++) {
        const struct digest digest = digest_number(i, 1);
        enum batch_verdict verdict;
        ck_assert(batch_packer_add(packer, &digest, &marks[i], &verdict, &status));
        ck_assert_int_eq(verdict, BATCH_ADDED);
    }
    size_t count;
    void **items = batch_packer_take(packer, &count);
    ck_assert_uint_eq(count, ARRAY_LENGTH(marks));
    for (size_t i = 0; i < count; i++)
        ck_assert_ptr_eq(items[i], &marks[i]);
    free(items);
    batch_packer_free(packer);
}
END_TEST

START_TEST(limits_that_cannot_work_are_refused_when_it_is_made)
{
    const struct batch_packer_limits bad[] = {
        {.batch_bytes_max = 1000, .entry_overhead_bytes = 256, .batched_blob_bytes_max = 745},
        {.batch_bytes_max = 255, .entry_overhead_bytes = 256, .batched_blob_bytes_max = 0},
        {.batch_bytes_max = 1000, .entry_overhead_bytes = 0, .batched_blob_bytes_max = 10},
        {.batch_bytes_max = 1000,
         .entry_overhead_bytes = 256,
         .batched_blob_bytes_max = UINT64_MAX},
        {.batch_bytes_max = 1000, .entry_overhead_bytes = UINT64_MAX, .batched_blob_bytes_max = 1},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct batch_packer *packer;
        struct status status = {0};
        ck_assert(!batch_packer_new(&bad[i], &packer, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    }
    struct batch_packer *packer;
    struct status status = {0};
    const struct batch_packer_limits tight = {
        .batch_bytes_max = 1000, .entry_overhead_bytes = 256, .batched_blob_bytes_max = 744};
    ck_assert(batch_packer_new(&tight, &packer, &status));
    batch_packer_free(packer);
}
END_TEST

START_TEST(what_a_server_announces_lowers_the_limits_and_never_makes_them_impossible)
{
    for (int64_t announced = -1; announced < 5 << 20; announced += announced < 2000 ? 1 : 9973) {
        struct batch_packer_limits limits = batch_packer_limits_default();
        const bool useful = batch_packer_limits_lower(&limits, announced);
        ck_assert_int_eq(useful, announced <= 0 || announced > 256);
        if (!useful)
            continue;
        if (announced > 0)
            ck_assert_uint_le(limits.batch_bytes_max, (uint64_t)announced);
        struct batch_packer *packer;
        struct status status = {0};
        ck_assert_msg(batch_packer_new(&limits, &packer, &status), "%lld: %s", (long long)announced,
                      status.message);
        batch_packer_free(packer);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_packer");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, batches_end_where_encoding_everything_each_time_ends_them);
    tcase_add_test(all, one_byte_decides_at_every_boundary);
    tcase_add_test(all, a_batch_of_the_real_size_ends_at_three_mebibytes);
    tcase_add_test(all, a_full_batch_is_below_what_receivers_take_also_when_its_blobs_are_empty);
    tcase_add_test(all, only_blobs_above_the_threshold_are_streamed);
    tcase_add_test(all, a_digest_is_in_a_batch_once);
    tcase_add_test(
        all, every_limit_from_nothing_to_eight_mebibytes_ends_batches_where_the_reference_does);
    tcase_add_test(all, the_size_of_a_request_is_known_before_it_is_encoded);
    tcase_add_test(all, a_batch_is_handed_over_in_order);
    tcase_add_test(all, limits_that_cannot_work_are_refused_when_it_is_made);
    tcase_add_test(all, what_a_server_announces_lowers_the_limits_and_never_makes_them_impossible);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
