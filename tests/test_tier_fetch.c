/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is got from the bucket is stored if and only if it is what its name says, that the bucket is asked once for what many
 * want, and that a bucket which fails, lies or hangs is told apart from one that does not have it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "server/tier_fetch.h"
#include "store/blob_reader.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/layout.h"

enum { WANTS = 40, LARGE_BYTES = 3 << 20 };
static const char prefix[] = "test";

static struct metrics metrics;
static struct real_store real;
static struct fake_s3 *fake;
static struct s3 *s3;
static struct flights *flights;
static struct tier_known *known;
static struct tier_fetch *fetch;

static void start(void)
{
    struct status status = {0};
    s3 = fake_bucket_open(fake, &metrics, 8, 0);
    ck_assert(flights_new(&flights, &status));
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = clock_real(), .young_s = 0},
                             &known, &status));
    const struct tier_fetch_config config = {.durability = real.durability,
                                             .bucket = s3_bucket(s3),
                                             .metrics = &metrics,
                                             .flights = flights,
                                             .known = known,
                                             .prefix = prefix,
                                             .downloads = 4};
    ck_assert_msg(tier_fetch_start(&config, &fetch, &status), "%s", status.message);
}

static void setup(void)
{
    fake_bucket_set_keys();
    fake = fake_s3_start();
    real_store_open(&real, &metrics, 16);
    start();
}

static void teardown(void)
{
    s3_stop(s3);
    tier_fetch_free(fetch);
    flights_free(flights);
    tier_known_free(known);
    s3_free(s3);
    fake_s3_stop(fake);
    real_store_close(&real);
}

/* ---- wants */

struct asked {
    struct tier_want want;
    _Atomic int done;
};

static void answered(struct tier_want *want)
{
    atomic_fetch_add(&CONTAINER_OF(want, struct asked, want)->done, 1);
}

static void ask(struct asked *asked, const struct digest *digest)
{
    *asked = (struct asked){.want = {.digest = *digest, .done = answered}};
    tier_fetch_ask(fetch, &asked->want);
}

static enum tier_fetched get(const struct digest *digest)
{
    struct asked asked;
    ask(&asked, digest);
    WAIT_UNTIL(atomic_load(&asked.done) == 1);
    return asked.want.outcome;
}

static uint8_t *bytes_of_number(unsigned number, size_t length)
{
    uint8_t *const data = malloc(length + 1);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)((number >> (8 * (i % 4))) + i * 11);
    return data;
}

/* An object of the right name, with these bytes: those of the name, or others. */
static struct digest put_object(unsigned number,
                                size_t length,
                                unsigned with_number,
                                size_t with_length)
{
    char key[BUCKET_KEY_BYTES_MAX];
    struct digest digest;
    uint8_t *const data = bytes_of_number(number, length);
    uint8_t *const with = bytes_of_number(with_number, with_length);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &digest);
    layout_blob_key(prefix, &digest, key);
    fake_s3_store(fake, key, bytes_of(with, with_length));
    free(data);
    free(with);
    return digest;
}

static void check_holds(const struct digest *digest)
{
    struct place place;
    struct status status = {0};
    struct digest found;
    uint8_t *data;
    ck_assert(blob_read_whole(real.store, digest, LIMIT_BLOB_BYTES, &data, &place, &status));
    ck_assert_ptr_nonnull(data);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, (size_t)digest->size_bytes), &found);
    ck_assert(digest_equal(&found, digest));
    free(data);
}

START_TEST(blobs_of_the_bucket_are_here_afterwards_small_and_large)
{
    static const size_t lengths[] = {1, 5000, LIMIT_SMALL_BLOB_BYTES, LIMIT_SMALL_BLOB_BYTES + 1,
                                     LARGE_BYTES + 77};
    for (unsigned i = 0; i < ARRAY_LENGTH(lengths); i++) {
        const struct digest digest = put_object(i, lengths[i], i, lengths[i]);
        ck_assert_int_eq(get(&digest), TIER_FETCHED);
        check_holds(&digest);
        ck_assert(tier_known_has(known, &digest));
        /* It is here now: nobody is asked. */
        ck_assert_int_eq(get(&digest), TIER_FETCHED);
        ck_assert_int_eq(fake_s3_requests(fake, "GET"), (int)i + 1);
    }
}
END_TEST

START_TEST(what_is_not_its_name_is_never_stored)
{
    const struct digest other = put_object(1, 5000, 2, 5000);
    const struct digest shorter = put_object(3, 5000, 3, 4999);
    const struct digest longer = put_object(4, 5000, 4, 5001);
    const struct digest flipped = put_object(5, LARGE_BYTES, 5, LARGE_BYTES);
    const struct digest *const lies[] = {&other, &shorter, &longer, &flipped};
    for (size_t i = 0; i < ARRAY_LENGTH(lies); i++) {
        if (lies[i] == &flipped)
            fake_s3_fail(fake, FAKE_S3_FLIPPED, 1, "GET", NULL);
        ck_assert_int_eq(get(lies[i]), TIER_NOT_THERE);
        ck_assert(!store_has_blob(real.store, lies[i]));
        ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_MISMATCHES), (int64_t)i + 1);
    }
    /* The bit was flipped on the way: the next time it is not. */
    ck_assert_int_eq(get(&flipped), TIER_FETCHED);
    check_holds(&flipped);
}
END_TEST

/* Else it would never be sent again, and with --tier-find would not even be called missing. */
START_TEST(what_the_bucket_has_lost_is_not_known_to_be_there_any_more)
{
    const struct digest lost = digest_of_nothing(2);
    tier_known_add(known, &lost, 0);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, 1, "GET", NULL);
    ck_assert_int_eq(get(&lost), TIER_UNAVAILABLE);
    ck_assert(tier_known_has(known, &lost)); /* nobody has said that it is gone */
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    ck_assert_int_eq(get(&lost), TIER_NOT_THERE);
    ck_assert(!tier_known_has(known, &lost));
}
END_TEST

START_TEST(absent_is_told_apart_from_unavailable)
{
    const struct digest there = put_object(1, 5000, 1, 5000);
    const struct digest nowhere = digest_of_nothing(1);
    static const enum fake_s3_fault faults[] = {
        FAKE_S3_SLOW_DOWN, FAKE_S3_DENIED, FAKE_S3_NO_BUCKET, FAKE_S3_TRUNCATED, FAKE_S3_HANG_UP};
    ck_assert_int_eq(get(&nowhere), TIER_NOT_THERE);
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        fake_s3_fail(fake, faults[i], 2, "GET", NULL); /* curl asks once more after a hang-up */
        ck_assert_int_eq(get(&there), TIER_UNAVAILABLE);
        ck_assert(!store_has_blob(real.store, &there));
        fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    }
    ck_assert_int_eq(get(&there), TIER_FETCHED);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_MISMATCHES), 0);
}
END_TEST

START_TEST(disk_that_takes_nothing_is_no_lie_of_the_bucket)
{
    const struct digest small = put_object(1, 5000, 1, 5000);
    const struct digest large = put_object(2, LARGE_BYTES, 2, LARGE_BYTES);
    atomic_store(&real.write_errno, ENOSPC);
    ck_assert_int_eq(get(&small), TIER_UNAVAILABLE);
    ck_assert_int_eq(get(&large), TIER_UNAVAILABLE);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_MISMATCHES), 0);
    atomic_store(&real.write_errno, 0);
}
END_TEST

START_TEST(many_who_want_one_blob_cost_one_request)
{
    static struct asked asked[WANTS];
    const struct digest digest = put_object(1, LARGE_BYTES, 1, LARGE_BYTES);
    for (size_t i = 0; i < WANTS; i++)
        ask(&asked[i], &digest);
    for (size_t i = 0; i < WANTS; i++) {
        WAIT_UNTIL(atomic_load(&asked[i].done) == 1);
        ck_assert_int_eq(asked[i].want.outcome, TIER_FETCHED);
    }
    ck_assert_int_eq(fake_s3_requests(fake, NULL), 1);
}
END_TEST

static void put_result(const struct digest *action, const char *instance, struct bytes result)
{
    char key[BUCKET_KEY_BYTES_MAX];
    char hex[DIGEST_HASH_HEX_MAX + 1];
    struct digest digest;
    struct status status = {0};
    struct bucket_memory memory = {.bytes = result};
    layout_action_key(prefix, action, bytes_of_string(instance), key);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, result, &digest);
    const struct bucket_put put = {.key = key,
                                   .source = bucket_source_of(&memory),
                                   .notes = {{BUCKET_NOTE_SHA256, digest_hex(&digest, hex)}},
                                   .note_count = 1};
    ck_assert_msg(bucket_put(s3_bucket(s3), &put, &status), "%s", status.message);
}

static enum tier_fetched get_result(const struct digest *action,
                                    const char *instance,
                                    struct bytes wanted)
{
    struct asked asked = {.want = {.digest = *action,
                                   .action = true,
                                   .instance = bytes_of_string(instance),
                                   .done = answered}};
    tier_fetch_ask(fetch, &asked.want);
    WAIT_UNTIL(atomic_load(&asked.done) == 1);
    if (asked.want.outcome == TIER_FETCHED)
        ck_assert(bytes_equal(bytes_of(asked.want.result, asked.want.result_bytes), wanted));
    else
        ck_assert_ptr_null(asked.want.result);
    free(asked.want.result);
    return asked.want.outcome;
}

START_TEST(action_result_is_given_out_only_with_the_hash_that_was_kept_with_it)
{
    const struct digest action = digest_of_nothing(1);
    const struct digest unnoted = digest_of_nothing(2);
    const struct bytes result = bytes_of_string("an encoded result");
    char key[BUCKET_KEY_BYTES_MAX];
    put_result(&action, "one", result);
    ck_assert_int_eq(get_result(&action, "one", result), TIER_FETCHED);
    ck_assert_int_eq(get_result(&action, "two", result), TIER_NOT_THERE);
    fake_s3_fail(fake, FAKE_S3_FLIPPED, 1, "GET", NULL);
    ck_assert_int_eq(get_result(&action, "one", result), TIER_NOT_THERE);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_MISMATCHES), 1);
    layout_action_key(prefix, &unnoted, bytes_of_string("one"), key);
    fake_s3_store(fake, key, result);
    ck_assert_int_eq(get_result(&unnoted, "one", result), TIER_NOT_THERE);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, 1, "GET", NULL);
    ck_assert_int_eq(get_result(&action, "one", result), TIER_UNAVAILABLE);
    put_result(&action, "empty", bytes_of(NULL, 0));
    ck_assert_int_eq(get_result(&action, "empty", bytes_of(NULL, 0)), TIER_FETCHED);
}
END_TEST

START_TEST(stop_answers_all_that_wait_for_a_silent_bucket_and_all_who_come_later)
{
    static struct asked asked[WANTS];
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    for (size_t i = 0; i < WANTS; i++) {
        const struct digest digest = digest_of_nothing(i % 10);
        ask(&asked[i], &digest);
    }
    WAIT_UNTIL(fake_s3_requests(fake, NULL) >= 2);
    s3_stop(s3);
    tier_fetch_stop(fetch);
    for (size_t i = 0; i < WANTS; i++) {
        ck_assert_int_eq(atomic_load(&asked[i].done), 1);
        ck_assert_int_eq(asked[i].want.outcome, TIER_UNAVAILABLE);
    }
    const struct digest later = digest_of_nothing(77);
    ck_assert_int_eq(get(&later), TIER_UNAVAILABLE);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tier_fetch");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, blobs_of_the_bucket_are_here_afterwards_small_and_large);
    tcase_add_test(all, what_is_not_its_name_is_never_stored);
    tcase_add_test(all, what_the_bucket_has_lost_is_not_known_to_be_there_any_more);
    tcase_add_test(all, absent_is_told_apart_from_unavailable);
    tcase_add_test(all, disk_that_takes_nothing_is_no_lie_of_the_bucket);
    tcase_add_test(all, many_who_want_one_blob_cost_one_request);
    tcase_add_test(all, action_result_is_given_out_only_with_the_hash_that_was_kept_with_it);
    tcase_add_test(all, stop_answers_all_that_wait_for_a_silent_bucket_and_all_who_come_later);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
