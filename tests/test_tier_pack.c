/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that small blobs reach the bucket in a few requests and are found there by nodes that know nothing but the bucket; that what is deleted,
 * damaged or lost in a pack is not served; and that a stop or a failure between a pack and its index object loses nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "server/tier_fetch.h"
#include "server/tier_follow.h"
#include "server/tier_known.h"
#include "server/tier_pack.h"
#include "server/tier_queue.h"
#include "store/blob_reader.h"
#include "store/find.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/layout.h"
#include "tier/pack.h"

enum { SMALL_BYTES = 4096, MANY = 2000, SOME = 40 };
static const char prefix[] = "test/packs";

/* What a server has of a bucket. */
struct node {
    struct metrics metrics;
    struct real_store real;
    struct temp_dir directory;
    struct s3 *s3;
    struct tier_known *known;
    struct tier_follow *follow;
    struct tier_queue *queue;
    struct flights *flights;
    struct tier_fetch *fetch;
};

static struct fake_s3 *fake;
static struct node one, two;
static uint64_t follower_uid; /* of node one's bucket */
static int64_t step_ns, young_s;
static bool follows;

static void open_store(struct node *node)
{
    memset(node, 0, sizeof(*node));
    temp_dir_make(&node->directory);
    real_store_open(&node->real, &node->metrics, 16);
}

static void start(struct node *node, bool uploads)
{
    char path[320];
    struct status status = {0};
    snprintf(path, sizeof(path), "%s/known", node->directory.path);
    node->s3 = fake_bucket_open(fake, &node->metrics, 16, 0);
    ck_assert(flights_new(&node->flights, &status));
    const struct tier_known_config known = {
        .clock = clock_real(), .young_s = young_s, .path = path, .place = 1};
    ck_assert_msg(tier_known_new(&known, &node->known, &status), "%s", status.message);
    const struct tier_follow_config follow = {.bucket = s3_bucket(node->s3),
                                              .known = node->known,
                                              .metrics = &node->metrics,
                                              .prefix = prefix,
                                              .again_ns = 20 * NS_PER_MS,
                                              .retry_ns = 20 * NS_PER_MS};
    if (follows)
        ck_assert_msg(tier_follow_start(&follow, &node->follow, &status), "%s", status.message);
    const struct tier_fetch_config fetch = {.durability = node->real.durability,
                                            .bucket = s3_bucket(node->s3),
                                            .metrics = &node->metrics,
                                            .flights = node->flights,
                                            .known = node->known,
                                            .prefix = prefix,
                                            .downloads = 4};
    ck_assert_msg(tier_fetch_start(&fetch, &node->fetch, &status), "%s", status.message);
    const struct tier_queue_config queue = {.durability = node->real.durability,
                                            .bucket = s3_bucket(node->s3),
                                            .metrics = &node->metrics,
                                            .known = node->known,
                                            .prefix = prefix,
                                            .place = 7,
                                            .uploads = 6,
                                            .packs = true,
                                            .follower_uid = follower_uid,
                                            .follower_name = "bucket",
                                            .follower_address = "there",
                                            .pack_wait_ns = 20 * NS_PER_MS,
                                            .pack_step_ns = step_ns,
                                            .pause_min_ns = 2 * NS_PER_MS,
                                            .pause_max_ns = 20 * NS_PER_MS,
                                            .tell_pause_ns = 5 * NS_PER_MS};
    if (uploads)
        ck_assert_msg(tier_queue_start(&queue, &node->queue, &status), "%s", status.message);
}

static void stop(struct node *node)
{
    if (node->queue != NULL)
        tier_queue_ask_to_stop(node->queue);
    tier_follow_ask_to_stop(node->follow);
    if (node->s3 != NULL)
        s3_stop(node->s3);
    tier_queue_stop(node->queue);
    tier_follow_stop(node->follow);
    tier_fetch_free(node->fetch);
    flights_free(node->flights);
    tier_known_free(node->known);
    s3_free(node->s3);
    node->queue = NULL;
    node->follow = NULL;
    node->fetch = NULL;
    node->flights = NULL;
    node->known = NULL;
    node->s3 = NULL;
}

static void close_store(struct node *node)
{
    if (node->s3 != NULL)
        stop(node);
    real_store_close(&node->real);
    temp_dir_remove(&node->directory);
}

static void setup(void)
{
    fake_bucket_set_keys();
    follower_uid = 0;
    step_ns = 0;
    young_s = 0;
    follows = true;
    fake = fake_s3_start();
    open_store(&one);
    open_store(&two);
}

static void teardown(void)
{
    close_store(&one);
    close_store(&two);
    fake_s3_stop(fake);
}

/* ---- what is stored, and what is known and served */

static struct digest put_number(struct node *node, unsigned number, size_t length)
{
    uint8_t *const data = malloc(length);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)((number >> (8 * (i % 4))) + i * 7);
    const struct digest digest = real_store_put(&node->real, bytes_of(data, length));
    free(data);
    return digest;
}

static void put_numbers(struct node *node, struct digest *digests, unsigned from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        digests[i] = put_number(node, from + (unsigned)i, SMALL_BYTES);
}

static bool is_at_the_end(const struct node *node)
{
    for (enum lane lane = 0; lane < LANE_COUNT; lane++) {
        if (tier_queue_seq(node->queue, lane) <
            copies_published_seq(durability_copies(node->real.durability), lane))
            return false;
    }
    return true;
}

static size_t count_known(struct node *node, const struct digest *digests, size_t count)
{
    size_t have = 0;
    for (size_t i = 0; i < count; i++)
        have += tier_known_has(node->known, &digests[i]);
    return have;
}

static bool is_packed(struct node *node, const struct digest *digest, struct bucket_row *row)
{
    return tier_known_where(node->known, digest, row) && row->pack != 0;
}

static bool is_object(const struct digest *digest)
{
    char key[BUCKET_KEY_BYTES_MAX];
    size_t length;
    layout_blob_key(prefix, digest, key);
    uint8_t *const data = fake_s3_load(fake, key, &length);
    free(data);
    return data != NULL;
}

struct asked {
    struct tier_want want;
    _Atomic int done;
};

static void answered(struct tier_want *want)
{
    atomic_fetch_add(&CONTAINER_OF(want, struct asked, want)->done, 1);
}

static enum tier_fetched get(struct node *node, const struct digest *digest)
{
    struct asked asked = {.want = {.digest = *digest, .done = answered}};
    tier_fetch_ask(node->fetch, &asked.want);
    WAIT_UNTIL(atomic_load(&asked.done) == 1);
    return asked.want.outcome;
}

static bool holds(const struct node *node, const struct digest *digest)
{
    struct place place;
    struct status status = {0};
    struct digest found;
    uint8_t *data;
    ck_assert(blob_read_whole(node->real.store, digest, LIMIT_BLOB_BYTES, &data, &place, &status));
    if (data == NULL)
        return false;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, (size_t)digest->size_bytes), &found);
    free(data);
    return digest_equal(&found, digest);
}

/* Of these how many are missing, by node->fetch; without a request if all are known. */
static size_t count_missing(struct node *node, struct digest *digests, size_t count)
{
    struct asked asked = {.want = {.digests = digests, .count = count, .done = answered}};
    tier_fetch_ask(node->fetch, &asked.want);
    WAIT_UNTIL(atomic_load(&asked.done) == 1);
    ck_assert_int_eq(asked.want.outcome, TIER_FETCHED);
    return asked.want.count;
}

static void purge(struct node *node, const struct digest *digest)
{
    struct place place;
    ck_assert(store_find_blob(node->real.store, digest, FIND_ONLY, &place));
    durability_forget(node->real.durability, digest, NULL, place, RECORD_BLOB, FORGET_PURGED);
}

/* ---- packs */

START_TEST(two_thousand_small_blobs_cost_two_requests_and_every_node_knows_and_has_them)
{
    static struct digest digests[MANY], asked[MANY];
    put_numbers(&one, digests, 0, MANY);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 2);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), 0);
    ck_assert_int_eq(fake_s3_objects(fake), 2);
    ck_assert_uint_eq(count_known(&one, digests, MANY), MANY);

    start(&two, false);
    WAIT_UNTIL(count_known(&two, digests, MANY) == MANY);
    memcpy(asked, digests, sizeof(asked));
    stop(&one); /* which looks for new packs from time to time */
    ck_assert_uint_eq(count_missing(&two, asked, MANY), 0);
    ck_assert_int_eq(fake_s3_requests(fake, "HEAD"), 0);
    for (size_t i = 0; i < MANY; i += 50) {
        ck_assert_int_eq(get(&two, &digests[i]), TIER_FETCHED);
        ck_assert(holds(&two, &digests[i]));
    }
    /* What came from a pack is not sent as an object, nor in another pack. */
    stop(&two);
    start(&two, true);
    WAIT_UNTIL(is_at_the_end(&two));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 2);
}
END_TEST

START_TEST(few_blobs_and_larger_ones_are_objects)
{
    struct digest few[3];
    put_numbers(&one, few, 0, 3);
    const struct digest larger = put_number(&one, 50, PACK_BLOB_BYTES_MAX + 1);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    for (size_t i = 0; i < 3; i++)
        ck_assert(is_object(&few[i]));
    ck_assert(is_object(&larger));
    ck_assert_int_eq(fake_s3_objects(fake), 4);
    ck_assert_int_eq(metrics_get(&one.metrics, METRIC_TIER_PACKS), 0);
}
END_TEST

START_TEST(more_than_a_pack_goes_into_several_and_each_blob_into_one)
{
    enum { BLOBS = 200 };
    static struct digest digests[BLOBS];
    struct bucket_row row;
    for (unsigned i = 0; i < BLOBS; i++)
        digests[i] = put_number(&one, i, PACK_BLOB_BYTES_MAX);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    /* 25 MiB */
    const int64_t packs = metrics_get(&one.metrics, METRIC_TIER_PACKS);
    ck_assert_int_ge(packs, 4);
    ck_assert_int_eq(fake_s3_objects(fake), 2 * (int)packs);
    ck_assert_int_eq(metrics_get(&one.metrics, METRIC_TIER_PACKED), BLOBS);
    start(&two, false);
    for (size_t i = 0; i < BLOBS; i += 7) {
        WAIT_UNTIL(is_packed(&two, &digests[i], &row));
        ck_assert_int_eq(get(&two, &digests[i]), TIER_FETCHED);
        ck_assert(holds(&two, &digests[i]));
    }
}
END_TEST

START_TEST(what_is_deleted_is_in_no_pack_any_more_for_any_node)
{
    struct digest digests[SOME];
    put_numbers(&one, digests, 0, SOME);
    start(&one, true);
    start(&two, false);
    WAIT_UNTIL(count_known(&two, digests, SOME) == SOME);
    purge(&one, &digests[5]);
    WAIT_UNTIL(metrics_get(&one.metrics, METRIC_TIER_DELETIONS) == 1 && is_at_the_end(&one));
    ck_assert(!tier_known_has(one.known, &digests[5]));
    ck_assert_int_eq(get(&one, &digests[5]), TIER_NOT_THERE);
    WAIT_UNTIL(!tier_known_has(two.known, &digests[5]));
    ck_assert_int_eq(get(&two, &digests[5]), TIER_NOT_THERE);
    ck_assert_uint_eq(count_known(&two, digests, SOME), SOME - 1);
    /* Nor for one that knew nothing. */
    stop(&two);
    temp_dir_remove(&two.directory);
    temp_dir_make(&two.directory);
    start(&two, false);
    WAIT_UNTIL(metrics_get(&two.metrics, METRIC_TIER_INDEXES) >= 4); /* two each time */
    ck_assert_uint_eq(count_known(&two, digests, SOME), SOME - 1);
    ck_assert_int_eq(get(&two, &digests[5]), TIER_NOT_THERE);
    ck_assert_int_eq(get(&two, &digests[6]), TIER_FETCHED);
    /* Stored again it is there again, in a later pack or by itself. */
    (void)put_number(&one, 5, SMALL_BYTES);
    WAIT_UNTIL(is_at_the_end(&one));
    ck_assert(tier_known_has(one.known, &digests[5]));
    ck_assert_int_eq(get(&two, &digests[5]), TIER_FETCHED);
}
END_TEST

START_TEST(deletion_comes_after_the_pack_of_a_node_whose_clock_is_ahead)
{
    static const char data[] = "packed by a node whose clock is five minutes ahead";
    uint8_t bytes[PACK_INDEX_HEAD_BYTES + PACK_INDEX_ROW_BYTES];
    char key[BUCKET_KEY_BYTES_MAX];
    const uint64_t pack = pack_number(clock_wall_ns(clock_real()) + 300 * NS_PER_S, 1);
    const uint64_t index = pack_number(clock_wall_ns(clock_real()) + 301 * NS_PER_S, 2);
    const struct pack_row row = {.digest = real_store_put(&one.real, bytes_of_string(data))};
    layout_pack_key(prefix, pack, key);
    fake_s3_store(fake, key, bytes_of_string(data));
    pack_index_encode(index, pack, &row, 1, bytes);
    layout_pack_index_key(prefix, index, key);
    fake_s3_store(fake, key, bytes_of(bytes, sizeof(bytes)));
    start(&two, false);
    start(&one, true);
    WAIT_UNTIL(tier_known_has(one.known, &row.digest) && tier_known_has(two.known, &row.digest));
    WAIT_UNTIL(is_at_the_end(&one));
    purge(&one, &row.digest);
    WAIT_UNTIL(metrics_get(&one.metrics, METRIC_TIER_DELETIONS) == 1 && is_at_the_end(&one));
    ck_assert(tier_known_was_deleted(one.known, &row.digest, pack));
    WAIT_UNTIL(tier_known_was_deleted(two.known, &row.digest, pack));
    ck_assert_int_eq(get(&two, &row.digest), TIER_NOT_THERE);
}
END_TEST

/* As of a node whose clock is ahead, or whose upload took long. */
START_TEST(what_was_deleted_is_not_back_when_its_pack_is_heard_of_later)
{
    uint8_t bytes[PACK_INDEX_HEAD_BYTES + 2 * PACK_INDEX_ROW_BYTES];
    char key[BUCKET_KEY_BYTES_MAX];
    const uint64_t now = pack_number(clock_wall_ns(clock_real()), 7);
    struct pack_row rows[2] = {{.digest = digest_of_nothing(1)}, {.digest = digest_of_nothing(2)}};
    pack_index_encode(now + 10, 0, &rows[0], 1, bytes);
    layout_pack_index_key(prefix, now + 10, key);
    fake_s3_store(fake, key, bytes_of(bytes, PACK_INDEX_HEAD_BYTES + PACK_INDEX_ROW_BYTES));
    start(&two, false);
    WAIT_UNTIL(tier_known_was_deleted(two.known, &rows[0].digest, now));
    for (int again = 0; again < 2; again++) {
        rows[1].offset = (uint32_t)rows[0].digest.size_bytes;
        pack_index_encode(now + 11 + (uint64_t)again, now, rows, 2, bytes);
        layout_pack_index_key(prefix, now + 11 + (uint64_t)again, key);
        fake_s3_store(fake, key, bytes_of(bytes, sizeof(bytes)));
        WAIT_UNTIL(tier_known_has(two.known, &rows[1].digest));
        ck_assert(!tier_known_has(two.known, &rows[0].digest));
        tier_known_drop(two.known, &rows[1].digest);
        tier_known_drop(two.known,
                        &rows[0].digest); /* as whoever asks the bucket and finds nothing */
        /* Nor after a restart. */
        stop(&two);
        start(&two, false);
    }
    /* In a later pack it is. */
    pack_index_encode(now + 21, now + 20, rows, 2, bytes);
    layout_pack_index_key(prefix, now + 21, key);
    fake_s3_store(fake, key, bytes_of(bytes, sizeof(bytes)));
    WAIT_UNTIL(tier_known_has(two.known, &rows[0].digest));
    ck_assert(!tier_known_was_deleted(two.known, &rows[0].digest, now + 20));
}
END_TEST

START_TEST(pack_that_is_damaged_or_gone_serves_nothing_wrong_and_is_not_believed_again)
{
    struct digest digests[SOME];
    struct bucket_row row;
    char key[BUCKET_KEY_BYTES_MAX];
    size_t length;
    put_numbers(&one, digests, 0, SOME);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    start(&two, false);
    WAIT_UNTIL(count_known(&two, digests, SOME) == SOME);
    ck_assert(is_packed(&two, &digests[3], &row));
    layout_pack_key(prefix, row.pack, key);
    uint8_t *const pack = fake_s3_load(fake, key, &length);
    ck_assert_uint_eq(length, SOME * SMALL_BYTES);
    pack[row.offset + 100] ^= 1;
    fake_s3_store(fake, key, bytes_of(pack, length));
    ck_assert_int_eq(get(&two, &digests[3]), TIER_NOT_THERE);
    ck_assert(!holds(&two, &digests[3]));
    ck_assert(!tier_known_has(two.known, &digests[3]));
    ck_assert_int_eq(get(&two, &digests[4]), TIER_FETCHED);
    /* Cut: what is beyond its end is not there. */
    fake_s3_store(fake, key, bytes_of(pack, SMALL_BYTES));
    ck_assert(is_packed(&two, &digests[SOME - 1], &row));
    ck_assert_int_eq(get(&two, &digests[SOME - 1]), TIER_NOT_THERE);
    ck_assert(!tier_known_has(two.known, &digests[SOME - 1]));
    free(pack);
    /* A blob that is an object besides is found even so. */
    static const char text[] = "in a pack that is gone, and by itself";
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(text), &digest);
    const struct bucket_row nowhere = {.digest = digest, .pack = 12345, .since_s = 1};
    tier_known_add_many(two.known, &nowhere, 1);
    layout_blob_key(prefix, &digest, key);
    fake_s3_store(fake, key, bytes_of_string(text));
    ck_assert_int_eq(get(&two, &digest), TIER_FETCHED);
    ck_assert(holds(&two, &digest));
    ck_assert(!is_packed(&two, &digest, &row));
}
END_TEST

START_TEST(stop_between_a_pack_and_its_index_loses_nothing)
{
    struct digest digests[SOME];
    put_numbers(&one, digests, 0, SOME);
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", "/idx/");
    start(&one, true);
    WAIT_UNTIL(metrics_get(&one.metrics, METRIC_TIER_RETRIES) >= 3);
    ck_assert(!is_at_the_end(&one));
    stop(&one);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    start(&two, false);
    WAIT_UNTIL(count_known(&two, digests, SOME) == SOME);
    for (size_t i = 0; i < SOME; i++)
        ck_assert_int_eq(get(&two, &digests[i]), TIER_FETCHED);
}
END_TEST

START_TEST(bucket_that_fails_in_every_way_gets_all_packs_in_the_end)
{
    static const enum fake_s3_fault faults[] = {
        FAKE_S3_SLOW_DOWN, FAKE_S3_DENIED, FAKE_S3_BAD_GATEWAY, FAKE_S3_HANG_UP, FAKE_S3_DAMAGED};
    struct digest digests[SOME];
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        put_numbers(&one, digests, (unsigned)i * SOME, SOME);
        fake_s3_fail(fake, faults[i], 2, i % 2 == 0 ? "PUT" : NULL,
                     i % 2 == 0 ? "/idx/" : "/pack/");
        start(&one, true);
        WAIT_UNTIL(is_at_the_end(&one));
        stop(&one);
        start(&two, false);
        WAIT_UNTIL(count_known(&two, digests, SOME) == SOME);
        ck_assert_int_eq(get(&two, &digests[i]), TIER_FETCHED);
        stop(&two);
    }
}
END_TEST

START_TEST(index_object_that_is_damaged_is_passed_over_and_the_others_are_read)
{
    struct digest digests[SOME];
    char key[BUCKET_KEY_BYTES_MAX];
    struct pack_row row = {.digest = digest_of_nothing(7)};
    uint8_t bytes[PACK_INDEX_HEAD_BYTES + PACK_INDEX_ROW_BYTES];
    const uint64_t number = pack_number(clock_wall_ns(clock_real()), 1);
    row.digest.size_bytes = 100;
    pack_index_encode(number, number, &row, 1, bytes);
    bytes[PACK_INDEX_HEAD_BYTES + 20] ^= 4;
    layout_pack_index_key(prefix, number, key);
    fake_s3_store(fake, key, bytes_of(bytes, sizeof(bytes)));
    snprintf(key, sizeof(key), "%s/idx/zzz-of-somebody-else", prefix);
    fake_s3_store(fake, key, bytes_of_string("what a person has put there"));
    fake_s3_set_page(fake, 1);
    put_numbers(&one, digests, 0, SOME);
    start(&one, true);
    start(&two, false);
    WAIT_UNTIL(count_known(&two, digests, SOME) == SOME);
    ck_assert(!tier_known_has(two.known, &row.digest));
    ck_assert_int_eq(metrics_get(&two.metrics, METRIC_TIER_MISMATCHES), 1);
}
END_TEST

/* Where the followers of a node are those of lower uids, they have sent what both have before it looks. */
START_TEST(node_stays_behind_followers_of_lower_uids_and_sends_nothing_that_they_have_sent)
{
    struct digest digests[SOME];
    follower_uid = 99;
    step_ns = 3600 * NS_PER_S;
    put_numbers(&one, digests, 0, SOME);
    const struct follower_report report = {.uid = 1,
                                           .name = bytes_of_string("lower"),
                                           .address = bytes_of_string("there"),
                                           .lane = LANE_SMALL,
                                           .wait_ns = 3600 * NS_PER_S};
    copies_report(durability_copies(one.real.durability), &report);
    start(&one, true);
    usleep(300000);
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 0);
    stop(&one);
    /* The other one, which has the same, sends it. */
    put_numbers(&two, digests, 0, SOME);
    start(&two, true);
    WAIT_UNTIL(is_at_the_end(&two));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 2);
    step_ns = 100 * NS_PER_MS;
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 2);
    ck_assert_uint_eq(count_known(&one, digests, SOME), SOME);
}
END_TEST

START_TEST(until_it_is_known_what_packs_have_nothing_small_is_called_absent)
{
    struct digest absent = digest_of_nothing(3);
    absent.size_bytes = 300;
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, "GET", "list-type");
    start(&two, false);
    ck_assert_int_eq(get(&two, &absent), TIER_UNAVAILABLE);
    /* A bucket that cannot be listed does not make everything unavailable. */
    fake_s3_fail(fake, FAKE_S3_DENIED, -1, "GET", "list-type");
    stop(&two);
    start(&two, false);
    WAIT_UNTIL(get(&two, &absent) == TIER_NOT_THERE);
}
END_TEST

/* ---- what a rule would remove */

enum { YOUNG_S = 4 * 3600, HALF_S = YOUNG_S / 2 };

/* As if these had been sent so long ago, and no pass had been made since. */
static void make_older(const struct digest *digests, size_t count, int64_t age_s)
{
    const int64_t now_s = clock_wall_ns(clock_real()) / NS_PER_S;
    char text[24];
    for (size_t i = 0; i < count; i++) {
        struct bucket_row row;
        ck_assert(tier_known_where(one.known, &digests[i], &row));
        row.since_s = now_s - age_s;
        tier_known_add_many(one.known, &row, 1);
    }
    snprintf(text, sizeof(text), "%lld", (long long)(now_s - age_s));
    tier_known_set_note(one.known, "refreshed-small", text);
    tier_known_set_note(one.known, "refreshed-large", text);
}

static bool pass_is_over(void)
{
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    tier_known_note(one.known, "refreshed-small", text);
    if (strtoll(text, NULL, 10) < clock_wall_ns(clock_real()) / NS_PER_S - 1000)
        return false;
    tier_known_note(one.known, "refreshed-large", text);
    return strtoll(text, NULL, 10) >= clock_wall_ns(clock_real()) / NS_PER_S - 1000;
}

static void use(const struct digest *digest)
{
    struct place place;
    ck_assert(store_find_blob(one.real.store, digest, FIND_AND_TOUCH, &place));
}

START_TEST(what_is_in_use_is_sent_again_before_a_rule_removes_it_and_what_is_not_may_die)
{
    struct digest digests[SOME];
    struct bucket_row before, after;
    young_s = YOUNG_S;
    put_numbers(&one, digests, 0, SOME);
    const struct digest large = put_number(&one, 70, 3 << 20);
    const struct digest unused = put_number(&one, 71, 3 << 20);
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    const int puts = fake_s3_requests(fake, "PUT");
    ck_assert(is_packed(&one, &digests[0], &before));
    stop(&one);
    follows = false; /* it would tell how old the pack is in truth */
    start(&one, false);
    make_older(digests, SOME, HALF_S + 3700);
    make_older(&large, 1, HALF_S + 3700);
    make_older(&unused, 1, HALF_S + 3700);
    stop(&one);
    for (size_t i = 0; i < SOME / 2; i++)
        use(&digests[i]);
    use(&large);
    start(&one, true);
    WAIT_UNTIL(pass_is_over());
    /* One pack, its index, and the large one. */
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), puts + 3);
    ck_assert_int_eq(metrics_get(&one.metrics, METRIC_TIER_REFRESHED), SOME / 2 + 1);
    for (size_t i = 0; i < SOME; i++) {
        ck_assert(is_packed(&one, &digests[i], &after));
        ck_assert((after.pack != before.pack) == (i < SOME / 2));
        ck_assert(tier_known_is_fresh(one.known, &digests[i]) == (i < SOME / 2));
    }
    ck_assert(tier_known_is_fresh(one.known, &large));
    ck_assert(!tier_known_is_fresh(one.known, &unused));
    /* And not again before another half of the time has gone by. */
    stop(&one);
    start(&one, true);
    usleep(600000);
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), puts + 3);
}
END_TEST

/* The rule removes it at twice that age: until then whoever has lost its disk reads it. */
START_TEST(blob_in_an_old_pack_is_read_although_it_counts_as_missing)
{
    static const char text[] = "older than young, and not gone yet";
    uint8_t bytes[PACK_INDEX_HEAD_BYTES + PACK_INDEX_ROW_BYTES];
    char key[BUCKET_KEY_BYTES_MAX];
    struct pack_row row = {.offset = 0};
    struct bucket_row found;
    const int64_t then_ns = clock_wall_ns(clock_real()) - (YOUNG_S + 3700) * NS_PER_S;
    const uint64_t pack = pack_number(then_ns, 5);
    young_s = YOUNG_S;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(text), &row.digest);
    layout_pack_key(prefix, pack, key);
    fake_s3_store(fake, key, bytes_of_string(text));
    pack_index_encode(pack + 1, pack, &row, 1, bytes);
    layout_pack_index_key(prefix, pack + 1, key);
    fake_s3_store(fake, key, bytes_of(bytes, sizeof(bytes)));
    start(&two, false);
    WAIT_UNTIL(is_packed(&two, &row.digest, &found));
    ck_assert(!tier_known_has(two.known, &row.digest));
    ck_assert_int_eq(get(&two, &row.digest), TIER_FETCHED);
    ck_assert(holds(&two, &row.digest));
}
END_TEST

START_TEST(action_result_in_use_is_sent_again_unless_somebody_has)
{
    struct digest digests[SOME];
    struct byte_builder result = {0};
    const struct digest old = digest_of_nothing(1);
    const struct digest fresh = digest_of_nothing(2);
    const struct digest *const actions[] = {&old, &fresh};
    char key[BUCKET_KEY_BYTES_MAX];
    size_t length;
    young_s = YOUNG_S;
    put_numbers(&one, digests, 0, SOME);
    result_add_file(&result, "out", &digests[3]);
    for (size_t i = 0; i < 2; i++)
        real_store_put_action(&one.real, actions[i], bytes_of_string(""), message_bytes(&result));
    start(&one, true);
    WAIT_UNTIL(is_at_the_end(&one));
    const int puts = fake_s3_requests(fake, "PUT");
    stop(&one);
    /* It has been there for longer than half of the half. */
    layout_action_key(prefix, &old, bytes_of_string(""), key);
    uint8_t *const object = fake_s3_load(fake, key, &length);
    fake_s3_set_clock(fake, -HALF_S);
    fake_s3_store(fake, key, bytes_of(object, length));
    fake_s3_set_clock(fake, 0);
    free(object);
    follows = false;
    start(&one, false);
    make_older(digests, 1, HALF_S + 3700);
    stop(&one);
    for (size_t i = 0; i < 2; i++) {
        struct place place;
        ck_assert(store_find_action(one.real.store, actions[i], bytes_of_string(""), FIND_AND_TOUCH,
                                    &place));
    }
    start(&one, true);
    WAIT_UNTIL(pass_is_over());
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), puts + 1);
    free(result.data);
}
END_TEST

/* ---- the index object */

START_TEST(index_object_says_what_was_put_into_it_and_no_damaged_one_is_believed)
{
    struct pack_row rows[5];
    uint8_t bytes[PACK_INDEX_HEAD_BYTES + 5 * PACK_INDEX_ROW_BYTES];
    struct pack_index index;
    struct status status = {0};
    for (unsigned i = 0; i < 5; i++) {
        rows[i] = (struct pack_row){.digest = digest_of_nothing(i), .offset = i * 1000};
        rows[i].digest.size_bytes = 1000;
    }
    const uint64_t pack = pack_number(INT64_C(1764547200) * NS_PER_S, 12);
    ck_assert_int_eq(pack_number_seconds(pack), 1764547200);
    ck_assert_uint_ge(pack, pack_number_of_seconds(1764547200));
    ck_assert_uint_lt(pack, pack_number_of_seconds(1764547201));
    pack_index_encode(pack + 3, pack, rows, 5, bytes);
    ck_assert(pack_index_decode(bytes_of(bytes, sizeof(bytes)), pack + 3, &index, &status));
    ck_assert_int_eq(index.kind, PACK_INDEX_OF_PACK);
    ck_assert_uint_eq(index.pack, pack);
    ck_assert_uint_eq(index.count, 5);
    for (size_t i = 0; i < 5; i++) {
        const struct pack_row row = pack_index_row(&index, i);
        ck_assert(digest_equal(&row.digest, &rows[i].digest));
        ck_assert_uint_eq(row.offset, rows[i].offset);
    }
    ck_assert(!pack_index_decode(bytes_of(bytes, sizeof(bytes)), pack, &index, &status));
    for (size_t length = 0; length < sizeof(bytes); length++)
        ck_assert(!pack_index_decode(bytes_of(bytes, length), pack + 3, &index, &status));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        const bool decoded =
            pack_index_decode(bytes_of(bytes, sizeof(bytes)), pack + 3, &index, &status);
        /* The number of the pack itself is not under the checksum, and leads to an object that is not there. */
        ck_assert(!decoded || (bit / 8 >= 16 && bit / 8 < 24));
        bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
    }
    /* Right checksum, and a blob that ends behind the end of any pack. */
    rows[4].offset = PACK_BYTES_MAX - 999;
    pack_index_encode(pack + 3, pack, rows, 5, bytes);
    ck_assert(!pack_index_decode(bytes_of(bytes, sizeof(bytes)), pack + 3, &index, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tier pack");
    TCase *const packs = tcase_create("packs");
    tcase_add_checked_fixture(packs, setup, teardown);
    tcase_set_timeout(packs, 120);
    tcase_add_test(packs,
                   two_thousand_small_blobs_cost_two_requests_and_every_node_knows_and_has_them);
    tcase_add_test(packs, few_blobs_and_larger_ones_are_objects);
    tcase_add_test(packs, more_than_a_pack_goes_into_several_and_each_blob_into_one);
    tcase_add_test(packs, what_is_deleted_is_in_no_pack_any_more_for_any_node);
    tcase_add_test(packs, deletion_comes_after_the_pack_of_a_node_whose_clock_is_ahead);
    tcase_add_test(packs, what_was_deleted_is_not_back_when_its_pack_is_heard_of_later);
    tcase_add_test(packs,
                   pack_that_is_damaged_or_gone_serves_nothing_wrong_and_is_not_believed_again);
    tcase_add_test(packs, stop_between_a_pack_and_its_index_loses_nothing);
    tcase_add_test(packs, bucket_that_fails_in_every_way_gets_all_packs_in_the_end);
    tcase_add_test(packs, index_object_that_is_damaged_is_passed_over_and_the_others_are_read);
    tcase_add_test(packs,
                   node_stays_behind_followers_of_lower_uids_and_sends_nothing_that_they_have_sent);
    tcase_add_test(packs, until_it_is_known_what_packs_have_nothing_small_is_called_absent);
    tcase_add_test(packs,
                   what_is_in_use_is_sent_again_before_a_rule_removes_it_and_what_is_not_may_die);
    tcase_add_test(packs, blob_in_an_old_pack_is_read_although_it_counts_as_missing);
    tcase_add_test(packs, action_result_in_use_is_sent_again_unless_somebody_has);
    TCase *const format = tcase_create("index object");
    tcase_add_test(format, index_object_says_what_was_put_into_it_and_no_damaged_one_is_believed);
    suite_add_tcase(suite, packs);
    suite_add_tcase(suite, format);
    return test_run(suite);
}
