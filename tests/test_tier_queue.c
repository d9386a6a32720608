/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is stored comes into the bucket, an action result after all that it names; that neither a stop, nor a bucket that fails
 * or hangs, nor a lost cursor loses or repeats an upload; and that what was deleted is deleted there. With a store on a real disk and a
 * server that checks signatures and payloads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "server/tier_cursor.h"
#include "server/tier_known.h"
#include "server/tier_queue.h"
#include "store/find.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/layout.h"

enum { BLOBS = 120, LARGE_BYTES = 3 << 20 };
static const char prefix[] = "test/one";

static struct metrics metrics;
static struct real_store real;
static struct store_rig rig; /* that evicts */
static struct durability *durability;
static struct fake_s3 *fake;
static struct s3 *s3;
static struct tier_queue *queue;
static struct tier_known *known;
static bool shared;
static int64_t young_s;

static void start(void)
{
    struct status status = {0};
    s3 = fake_bucket_open(fake, &metrics, 8, MIB);
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = clock_real(), .young_s = young_s},
                             &known, &status));
    const struct tier_queue_config config = {.durability = durability,
                                             .bucket = s3_bucket(s3),
                                             .metrics = &metrics,
                                             .known = known,
                                             .prefix = prefix,
                                             .place = 7,
                                             .uploads = 6,
                                             .shared = shared,
                                             .pause_min_ns = 2 * NS_PER_MS,
                                             .pause_max_ns = 20 * NS_PER_MS,
                                             .tell_pause_ns = 5 * NS_PER_MS};
    ck_assert_msg(tier_queue_start(&config, &queue, &status), "%s", status.message);
}

static void stop(void)
{
    if (queue != NULL)
        tier_queue_ask_to_stop(queue);
    if (s3 != NULL)
        s3_stop(s3);
    tier_queue_stop(queue);
    s3_free(s3);
    tier_known_free(known);
    known = NULL;
    queue = NULL;
    s3 = NULL;
}

static void setup(void)
{
    fake_bucket_set_keys();
    fake = fake_s3_start();
    real_store_open(&real, &metrics, 16);
    durability = real.durability;
}

static void teardown(void)
{
    stop();
    fake_s3_stop(fake);
    real_store_close(&real);
}

static void setup_evicting(void)
{
    const struct store_rig_limits limits = {.capacity_bytes = STORE_CAPACITY_BYTES_MIN};
    fake_bucket_set_keys();
    fake = fake_s3_start();
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
    durability = rig.durability;
}

static void teardown_evicting(void)
{
    stop();
    fake_s3_stop(fake);
    store_rig_end(&rig);
}

/* ---- what is stored, and what is there */

static struct digest put_number(unsigned number, size_t length)
{
    uint8_t *const data = malloc(length);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)((number >> (8 * (i % 4))) + i * 7);
    const struct digest digest = real_store_put(&real, bytes_of(data, length));
    free(data);
    return digest;
}

static void put_numbers(struct digest digests[BLOBS], unsigned from)
{
    for (unsigned i = 0; i < BLOBS; i++)
        digests[i] = put_number(from + i, 100 + i * 50);
}

static bool is_there(const struct digest *digest)
{
    char key[BUCKET_KEY_BYTES_MAX];
    size_t length;
    struct digest found;
    layout_blob_key(prefix, digest, key);
    uint8_t *const data = fake_s3_load(fake, key, &length);
    if (data == NULL)
        return false;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &found);
    ck_assert(digest_equal(&found, digest));
    free(data);
    return true;
}

static bool result_is_there(const struct digest *action, const char *instance, struct bytes wanted)
{
    char key[BUCKET_KEY_BYTES_MAX];
    size_t length;
    layout_action_key(prefix, action, bytes_of_string(instance), key);
    uint8_t *const data = fake_s3_load(fake, key, &length);
    const bool there = data != NULL;
    ck_assert(!there || bytes_equal(bytes_of(data, length), wanted));
    free(data);
    return there;
}

static bool is_at_the_end(void)
{
    for (enum lane lane = 0; lane < LANE_COUNT; lane++) {
        if (tier_queue_seq(queue, lane) < copies_published_seq(durability_copies(durability), lane))
            return false;
    }
    return true;
}

static struct digest put_result(unsigned number,
                                const char *instance,
                                const struct digest *files,
                                size_t count,
                                struct byte_builder *result)
{
    const struct digest action = digest_of_nothing(number);
    char path[32];
    *result = (struct byte_builder){0};
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "out/%zu", i);
        result_add_file(result, path, &files[i]);
    }
    real_store_put_action(&real, &action, bytes_of_string(instance), message_bytes(result));
    return action;
}

START_TEST(all_that_is_stored_comes_into_the_bucket_before_and_after_the_start)
{
    struct digest before[BLOBS];
    struct digest after[BLOBS];
    struct byte_builder result;
    put_numbers(before, 0);
    const struct digest large = put_number(1000, LARGE_BYTES);
    start();
    put_numbers(after, 2000);
    const struct digest named[] = {before[3], large, after[7]};
    const struct digest action = put_result(1, "a/B", named, 3, &result);
    WAIT_UNTIL(is_at_the_end());
    for (size_t i = 0; i < BLOBS; i++) {
        ck_assert(is_there(&before[i]));
        ck_assert(is_there(&after[i]));
    }
    ck_assert(is_there(&large));
    ck_assert(result_is_there(&action, "a/B", message_bytes(&result)));
    ck_assert_int_eq(fake_s3_objects(fake), 2 * BLOBS + 2);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_BLOBS), 2 * BLOBS + 1);
    free(result.data);
}
END_TEST

START_TEST(action_result_waits_for_the_last_blob_that_it_names)
{
    struct byte_builder result;
    struct digest files[3];
    char key[BUCKET_KEY_BYTES_MAX];
    for (unsigned i = 0; i < 2; i++)
        files[i] = put_number(i, 5000);
    files[2] = put_number(2, LARGE_BYTES);
    /* Of the large blob each part is refused, in the other lane and wherever else it is tried. */
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", "partNumber=2");
    const struct digest action = put_result(1, "", files, 3, &result);
    start();
    layout_action_key(prefix, &action, bytes_of_string(""), key);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_TIER_RETRIES) >= 5);
    ck_assert(is_there(&files[0]));
    ck_assert(!result_is_there(&action, "", message_bytes(&result)));
    ck_assert_uint_lt(tier_queue_seq(queue, LANE_SMALL), 3);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    WAIT_UNTIL(is_at_the_end());
    ck_assert(is_there(&files[2]));
    ck_assert(result_is_there(&action, "", message_bytes(&result)));
    free(result.data);
}
END_TEST

START_TEST(what_names_a_blob_that_is_gone_is_left_out)
{
    struct byte_builder result;
    const struct digest files[] = {put_number(1, 100), digest_of_nothing(99)};
    const struct digest action = put_result(1, "", files, 2, &result);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert(!result_is_there(&action, "", message_bytes(&result)));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_ACTIONS_LEFT_OUT), 1);
    ck_assert(is_there(&files[0]));
    free(result.data);
}
END_TEST

START_TEST(result_that_is_no_message_names_nothing_and_is_brought)
{
    const struct digest action = digest_of_nothing(5);
    const struct bytes opaque = bytes_of_string("\xff\xff what ccache keeps");
    real_store_put_action(&real, &action, bytes_of_string("ccache"), opaque);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert(result_is_there(&action, "ccache", opaque));
}
END_TEST

START_TEST(stop_and_start_send_nothing_twice)
{
    struct digest digests[BLOBS];
    put_numbers(digests, 0);
    start();
    WAIT_UNTIL(is_at_the_end());
    stop();
    const int puts = fake_s3_requests(fake, "PUT");
    const int requests = fake_s3_requests(fake, NULL);
    ck_assert_int_eq(puts, BLOBS);
    start();
    ck_assert(is_at_the_end());
    usleep(300000);
    ck_assert_int_eq(fake_s3_requests(fake, NULL), requests);
    struct digest more = put_number(5000, 700);
    WAIT_UNTIL(is_at_the_end());
    ck_assert(is_there(&more));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), puts + 1);
}
END_TEST

START_TEST(lost_cursor_costs_a_look_at_each_and_no_upload)
{
    struct digest digests[BLOBS];
    char path[320];
    put_numbers(digests, 0);
    start();
    WAIT_UNTIL(is_at_the_end());
    stop();
    snprintf(path, sizeof(path), "%s/tier/small", real.directory.path);
    ck_assert_int_eq(unlink(path), 0);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), BLOBS);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), 2 * BLOBS);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_PRESENT), BLOBS);
}
END_TEST

START_TEST(stop_while_the_bucket_is_silent_is_short_and_loses_nothing)
{
    struct digest digests[BLOBS];
    put_numbers(digests, 0);
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    start();
    WAIT_UNTIL(fake_s3_requests(fake, NULL) >= 4);
    stop();
    ck_assert_int_eq(fake_s3_objects(fake), 0);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    start();
    WAIT_UNTIL(is_at_the_end());
    for (size_t i = 0; i < BLOBS; i++)
        ck_assert(is_there(&digests[i]));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), BLOBS);
}
END_TEST

START_TEST(stop_in_the_middle_sends_again_only_what_was_under_way)
{
    struct digest digests[BLOBS];
    put_numbers(digests, 0);
    start();
    WAIT_UNTIL(fake_s3_objects(fake) >= BLOBS / 4);
    stop();
    start();
    WAIT_UNTIL(is_at_the_end());
    for (size_t i = 0; i < BLOBS; i++)
        ck_assert(is_there(&digests[i]));
    /* Those that were broken off may have got there: they are looked for, and in vain at worst. */
    ck_assert_int_le(fake_s3_requests(fake, "PUT"), BLOBS + 6);
}
END_TEST

START_TEST(bucket_that_fails_in_every_way_gets_all_of_it_in_the_end)
{
    static const enum fake_s3_fault faults[] = {FAKE_S3_SLOW_DOWN, FAKE_S3_DENIED,
                                                FAKE_S3_HANG_UP,   FAKE_S3_BAD_GATEWAY,
                                                FAKE_S3_DAMAGED,   FAKE_S3_NO_BUCKET};
    struct digest digests[BLOBS];
    start();
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        /* Fewer than the breaker bears in a row. */
        fake_s3_fail(fake, faults[i], BREAKER_FAILURES_ROW - 2, "PUT", NULL);
        put_numbers(digests, (unsigned)i * 10000);
        WAIT_UNTIL(is_at_the_end());
        for (size_t j = 0; j < BLOBS; j++)
            ck_assert(is_there(&digests[j]));
    }
    ck_assert_int_eq(fake_s3_objects(fake), BLOBS * (int)ARRAY_LENGTH(faults));
    ck_assert_int_ge(metrics_get(&metrics, METRIC_TIER_RETRIES), (BREAKER_FAILURES_ROW - 2) * 5);
}
END_TEST

START_TEST(damaged_blob_is_left_out_and_forgotten)
{
    const struct digest sound = put_number(1, 5000);
    const struct digest damaged = put_number(2, 5000);
    const struct digest large = put_number(3, LARGE_BYTES);
    real_store_damage(&real, &damaged);
    real_store_damage_chunk(&real, &large, 1);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert(is_there(&sound));
    ck_assert(!is_there(&damaged));
    ck_assert(!is_there(&large));
    ck_assert(!store_has_blob(real.store, &damaged));
    ck_assert_int_eq(fake_s3_objects(fake), 1);
    ck_assert_int_eq(fake_s3_uploads(fake), 0);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_LEFT_OUT), 2);
}
END_TEST

static void purge(const struct digest *digest, const struct bytes *instance, enum record_kind kind)
{
    struct place place;
    if (instance != NULL)
        ck_assert(store_find_action(real.store, digest, *instance, FIND_ONLY, &place));
    else
        ck_assert(store_find_blob(real.store, digest, FIND_ONLY, &place));
    durability_forget(real.durability, digest, instance, place, kind, FORGET_PURGED);
}

START_TEST(what_is_deleted_here_is_deleted_there_and_may_come_again)
{
    struct byte_builder result;
    const struct bytes instance = bytes_of_string("one");
    const struct digest small = put_number(1, 5000);
    const struct digest large = put_number(2, LARGE_BYTES);
    const struct digest stays = put_number(3, 5000);
    const struct digest action = put_result(1, "one", &stays, 1, &result);
    start();
    WAIT_UNTIL(is_at_the_end() && fake_s3_objects(fake) == 4);
    purge(&small, NULL, RECORD_BLOB);
    purge(&large, NULL, RECORD_MANIFEST);
    purge(&action, &instance, RECORD_ACTION);
    WAIT_UNTIL(fake_s3_objects(fake) == 1);
    ck_assert(is_there(&stays));
    WAIT_UNTIL(metrics_get(&metrics, METRIC_TIER_DELETIONS) == 3);
    (void)put_number(1, 5000);
    (void)put_number(2, LARGE_BYTES);
    WAIT_UNTIL(is_there(&small) && is_there(&large));
    /* Deleted and stored again before anybody has looked: it stays. */
    stop();
    purge(&small, NULL, RECORD_BLOB);
    (void)put_number(1, 5000);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert(is_there(&small));
    free(result.data);
}
END_TEST

START_TEST(what_others_have_brought_is_not_sent_by_a_node_that_shares_the_bucket)
{
    struct digest digests[BLOBS];
    char key[BUCKET_KEY_BYTES_MAX];
    shared = true;
    start();
    WAIT_UNTIL(is_at_the_end());
    static const char data[] = "of another node";
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(data), &digest);
    layout_blob_key(prefix, &digest, key);
    fake_s3_store(fake, key, bytes_of_string(data));
    (void)real_store_put(&real, bytes_of_string(data));
    put_numbers(digests, 0);
    WAIT_UNTIL(is_at_the_end());
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), BLOBS);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_PRESENT), 1);
}
END_TEST

START_TEST(what_a_rule_would_soon_remove_is_sent_again_when_something_new_names_it)
{
    struct byte_builder result;
    young_s = 30 * 86400;
    shared = true;
    /* 40 days ago, and 20. */
    fake_s3_set_clock(fake, -40 * 86400);
    static const char old_data[] = "sent long ago";
    static const char young_data[] = "sent not so long ago";
    struct digest files[2];
    char keys[2][BUCKET_KEY_BYTES_MAX];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(old_data), &files[0]);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(young_data), &files[1]);
    for (size_t i = 0; i < 2; i++)
        layout_blob_key(prefix, &files[i], keys[i]);
    fake_s3_store(fake, keys[0], bytes_of_string(old_data));
    fake_s3_set_clock(fake, -20 * 86400);
    fake_s3_store(fake, keys[1], bytes_of_string(young_data));
    fake_s3_set_clock(fake, 0);
    (void)real_store_put(&real, bytes_of_string(old_data));
    (void)real_store_put(&real, bytes_of_string(young_data));
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_REFRESHED), 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_PRESENT), 1);
    /* An action result by a process that knows nothing of either, when both are old. */
    stop();
    fake_s3_set_clock(fake, -31 * 86400);
    for (size_t i = 0; i < 2; i++)
        fake_s3_store(fake, keys[i], bytes_of_string(i == 0 ? old_data : young_data));
    fake_s3_set_clock(fake, 0);
    const struct digest action = put_result(1, "", files, 2, &result);
    start();
    WAIT_UNTIL(is_at_the_end());
    ck_assert(result_is_there(&action, "", message_bytes(&result)));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_REFRESHED), 3);
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 1 + 2 + 1);
    free(result.data);
}
END_TEST

START_TEST(cursor_beyond_the_end_of_the_log_is_of_another_one_and_all_is_looked_at)
{
    struct digest digests[BLOBS];
    struct status status = {0};
    put_numbers(digests, 0);
    ck_assert(tier_cursor_save(real.store, LANE_SMALL, 7, 1000000, &status));
    start();
    WAIT_UNTIL(fake_s3_objects(fake) == BLOBS);
    stop();
    ck_assert_uint_eq(tier_cursor_load(real.store, LANE_SMALL, 7), BLOBS);
    /* One that is about another bucket is none. */
    ck_assert_uint_eq(tier_cursor_load(real.store, LANE_SMALL, 8), 0);
}
END_TEST

START_TEST(queue_that_eviction_has_overtaken_goes_on_with_what_is_held)
{
    enum { FEW = 4, MANY = 150 };
    struct digest digest = {0};
    struct status status = {0};
    start();
    for (unsigned i = 0; i < FEW + MANY; i++) {
        uint8_t *const data = seeded_bytes(i, LIMIT_SMALL_BLOB_BYTES);
        ck_assert_msg(store_rig_put(&rig, bytes_of(data, LIMIT_SMALL_BLOB_BYTES), &digest, &status),
                      "%s", status.message);
        free(data);
        if (i + 1 == FEW) {
            WAIT_UNTIL(is_at_the_end());
            stop();
        }
    }
    const int before = fake_s3_objects(fake);
    ck_assert_int_eq(before, FEW);
    start();
    WAIT_UNTIL(is_at_the_end() && is_there(&digest));
    ck_assert_int_ge(metrics_get(&metrics, METRIC_TIER_OVERTAKEN), 1);
    ck_assert_int_lt(fake_s3_objects(fake), FEW + MANY);
}
END_TEST

START_TEST(names_have_nothing_that_a_tool_could_read_another_way)
{
    struct status status = {0};
    char key[BUCKET_KEY_BYTES_MAX];
    const struct digest digest = digest_of_nothing(1);
    static const char *const instances[] = {"",    "main", "a/b", "../..",          "A b",
                                            "-2f", "..",   ".",   "\xc3\xa9~%2f\\", "a.b-c"};
    for (size_t i = 0; i < ARRAY_LENGTH(instances); i++) {
        char other[BUCKET_KEY_BYTES_MAX];
        layout_action_key(prefix, &digest, bytes_of_string(instances[i]), key);
        ck_assert_uint_eq(strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789/.-"), strlen(key));
        ck_assert_ptr_null(strstr(key, "/.") != NULL ? strstr(key, "/.") : strstr(key, "//"));
        for (size_t j = 0; j < i; j++) {
            layout_action_key(prefix, &digest, bytes_of_string(instances[j]), other);
            ck_assert_str_ne(key, other);
        }
    }
    char longest[256];
    memset(longest, '/', sizeof(longest));
    layout_action_key(prefix, &digest, bytes_of(longest, sizeof(longest)), key);
    ck_assert_ptr_nonnull(strstr(key, "/ac/--"));
    static const char *const bad[] = {"", "/a", "a/", "a//b", "A", "a b", "a/./b", "../a", "a/-b"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        ck_assert_msg(!layout_check_prefix(bad[i], &status), "%s", bad[i]);
    ck_assert(layout_check_prefix("a/b-c.d/0", &status));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tier_queue");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, all_that_is_stored_comes_into_the_bucket_before_and_after_the_start);
    tcase_add_test(all, action_result_waits_for_the_last_blob_that_it_names);
    tcase_add_test(all, what_names_a_blob_that_is_gone_is_left_out);
    tcase_add_test(all, result_that_is_no_message_names_nothing_and_is_brought);
    tcase_add_test(all, stop_and_start_send_nothing_twice);
    tcase_add_test(all, lost_cursor_costs_a_look_at_each_and_no_upload);
    tcase_add_test(all, stop_while_the_bucket_is_silent_is_short_and_loses_nothing);
    tcase_add_test(all, stop_in_the_middle_sends_again_only_what_was_under_way);
    tcase_add_test(all, bucket_that_fails_in_every_way_gets_all_of_it_in_the_end);
    tcase_add_test(all, damaged_blob_is_left_out_and_forgotten);
    tcase_add_test(all, what_is_deleted_here_is_deleted_there_and_may_come_again);
    tcase_add_test(all, what_others_have_brought_is_not_sent_by_a_node_that_shares_the_bucket);
    tcase_add_test(all, what_a_rule_would_soon_remove_is_sent_again_when_something_new_names_it);
    tcase_add_test(all, cursor_beyond_the_end_of_the_log_is_of_another_one_and_all_is_looked_at);
    tcase_add_test(all, names_have_nothing_that_a_tool_could_read_another_way);
    suite_add_tcase(suite, all);
    TCase *const evicting = tcase_create("evicting");
    tcase_add_checked_fixture(evicting, setup_evicting, teardown_evicting);
    tcase_add_test(evicting, queue_that_eviction_has_overtaken_goes_on_with_what_is_held);
    suite_add_tcase(suite, evicting);
    return test_run(suite);
}
