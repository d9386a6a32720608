/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what the bucket has becomes known from few listings, page by page, whatever else lies there and however often a page
 * fails; and that what is deleted meanwhile does not become known by it. Against the fake S3 server.
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/tier_list.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/messages.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/layout.h"

enum { BLOBS = 2500, PAGE = 1000, MANY = 200 * 1000 };
static const char prefix[] = "test/one";

static struct metrics metrics;
static struct fake_s3 *fake;
static struct s3 *s3;
static struct tier_known *known;
static struct tier_list *list;

static const char *index_path;

static void start(int64_t young_s, int64_t again_ns)
{
    struct status status = {0};
    s3 = fake_bucket_open(fake, &metrics, 2, 0);
    const struct tier_known_config what = {
        .clock = clock_real(), .young_s = young_s, .path = index_path};
    ck_assert(tier_known_new(&what, &known, &status));
    const struct tier_list_config config = {.bucket = s3_bucket(s3),
                                            .known = known,
                                            .metrics = &metrics,
                                            .prefix = prefix,
                                            .again_ns = again_ns,
                                            .retry_ns = 2 * NS_PER_MS};
    ck_assert_msg(tier_list_start(&config, &list, &status), "%s", status.message);
}

static void stop(void)
{
    tier_list_ask_to_stop(list);
    if (s3 != NULL)
        s3_stop(s3);
    tier_list_stop(list);
    s3_free(s3);
    tier_known_free(known);
    list = NULL;
    s3 = NULL;
    known = NULL;
}

static void setup(void)
{
    fake_bucket_set_keys();
    fake = fake_s3_start();
}

static void teardown(void)
{
    stop();
    fake_s3_stop(fake);
}

static void put_there(const struct digest *digest)
{
    static const uint8_t bytes[64]; /* a listing tells only how many */
    char key[BUCKET_KEY_BYTES_MAX];
    ck_assert_int_le(digest->size_bytes, sizeof(bytes));
    layout_blob_key(prefix, digest, key);
    fake_s3_store(fake, key, bytes_of(bytes, (size_t)digest->size_bytes));
}

static unsigned count_known(unsigned from, unsigned count)
{
    unsigned have = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct digest digest = digest_of_nothing(from + i);
        have += tier_known_has(known, &digest);
    }
    return have;
}

START_TEST(all_that_is_there_is_known_after_one_request_for_each_thousand)
{
    for (unsigned i = 0; i < BLOBS; i++) {
        const struct digest digest = digest_of_nothing(i);
        put_there(&digest);
    }
    start(0, 0);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_TIER_LISTED) == BLOBS);
    WAIT_UNTIL(count_known(0, BLOBS) == BLOBS);
    ck_assert_int_eq(fake_s3_requests(fake, NULL), (BLOBS + PAGE - 1) / PAGE);
    ck_assert_uint_eq(count_known(BLOBS, BLOBS), 0);
}
END_TEST

START_TEST(what_else_lies_there_is_passed_over)
{
    static const char *const names[] = {
        "test/one/cas/README", "test/one/cas/sha256/aa/short",
        "test/one/cas/sha256/ff/"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "test/one/cas/sha256/e3/"
        "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        "test/one/cas/md5/e3/"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"};
    struct digest empty;
    const struct digest mine = digest_of_nothing(1);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        fake_s3_store(fake, names[i], bytes_of_string("x"));
    put_there(&mine);
    start(0, 0);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_TIER_LISTED) == ARRAY_LENGTH(names) + 1);
    WAIT_UNTIL(tier_known_has(known, &mine));
    ck_assert(!tier_known_has(known, &empty));
}
END_TEST

START_TEST(page_that_fails_is_asked_for_again_and_none_is_left_out)
{
    fake_s3_set_page(fake, 10);
    for (unsigned i = 0; i < 100; i++) {
        const struct digest digest = digest_of_nothing(i);
        put_there(&digest);
    }
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, 4, "GET", NULL);
    start(0, 0);
    WAIT_UNTIL(fake_s3_requests(fake, "GET") >= 7);
    fake_s3_fail(fake, FAKE_S3_NO_XML, 2, "GET", NULL);
    WAIT_UNTIL(count_known(0, 100) == 100);
}
END_TEST

START_TEST(what_appears_is_known_after_the_next_listing)
{
    const struct digest first = digest_of_nothing(1);
    const struct digest second = digest_of_nothing(2);
    put_there(&first);
    start(0, NS_PER_MS);
    WAIT_UNTIL(tier_known_has(known, &first));
    put_there(&second);
    WAIT_UNTIL(tier_known_has(known, &second));
}
END_TEST

START_TEST(listing_that_a_stop_has_broken_off_goes_on_where_it_was)
{
    struct temp_dir directory;
    char path[512];
    temp_dir_make(&directory);
    snprintf(path, sizeof(path), "%s/tier/index", directory.path);
    index_path = path;
    fake_s3_set_page(fake, 10);
    for (unsigned i = 0; i < 100; i++) {
        const struct digest digest = digest_of_nothing(i);
        put_there(&digest);
    }
    start(0, 0);
    WAIT_UNTIL(fake_s3_requests(fake, "GET") >= 4);
    stop();
    const int before = fake_s3_requests(fake, "GET");
    ck_assert_int_lt(before, 10);
    start(0, 0);
    WAIT_UNTIL(count_known(0, 100) == 100);
    ck_assert_int_le(fake_s3_requests(fake, "GET"), 11); /* the one that was broken off, again */
    WAIT_UNTIL(metrics_get(&metrics, METRIC_TIER_LISTED) >= 100);
    stop();
    temp_dir_remove(&directory);
    index_path = NULL;
}
END_TEST

START_TEST(stop_while_the_bucket_is_silent_is_clean)
{
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    start(0, 0);
    WAIT_UNTIL(fake_s3_requests(fake, "GET") == 1);
}
END_TEST

START_TEST(what_was_deleted_while_a_listing_came_does_not_become_known_by_it)
{
    struct status status = {0};
    const struct digest deleted = digest_of_nothing(1);
    const struct digest other = digest_of_nothing(2);
    const struct bucket_row deleted_row = {.digest = deleted, .since_s = 1};
    const struct bucket_row other_row = {.digest = other, .since_s = 1};
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = clock_real(), .young_s = 0},
                             &known, &status));
    const uint64_t before = tier_known_drops(known);
    ck_assert(tier_known_add_many_unless(known, &other_row, 1, before));
    tier_known_drop(known, &deleted);
    ck_assert(!tier_known_add_many_unless(known, &deleted_row, 1, before));
    ck_assert(!tier_known_has(known, &deleted));
    ck_assert(tier_known_has(known, &other));
    ck_assert(tier_known_add_many_unless(known, &deleted_row, 1, tier_known_drops(known)));
    ck_assert(tier_known_has(known, &deleted));
}
END_TEST

START_TEST(what_the_bucket_does_not_have_is_asked_for_again_after_seconds_or_when_it_is_brought)
{
    struct clock_sim sim;
    struct status status = {0};
    const struct digest absent = digest_of_nothing(1);
    const struct digest brought = digest_of_nothing(2);
    const struct digest other = digest_of_nothing(3);
    clock_sim_init(&sim, 1764547200 * NS_PER_S);
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = &sim.clock}, &known, &status));
    ck_assert(!tier_known_is_absent(known, &absent));
    tier_known_add_absent(known, &absent);
    tier_known_add_absent(known, &brought);
    ck_assert(tier_known_is_absent(known, &absent));
    ck_assert(!tier_known_is_absent(known, &other));
    tier_known_add(known, &brought, 0);
    ck_assert(!tier_known_is_absent(known, &brought));
    clock_sim_advance(&sim, TIER_ABSENT_NS - 1);
    ck_assert(tier_known_is_absent(known, &absent));
    clock_sim_advance(&sim, 1);
    ck_assert(!tier_known_is_absent(known, &absent));
}
END_TEST

/* One in five places is taken: a choice of four leaves hardly any without one. */
START_TEST(few_are_lost_to_others_before_there_is_no_room)
{
    struct status status = {0};
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = clock_real(), .young_s = 0},
                             &known, &status));
    for (unsigned i = 0; i < MANY; i++) {
        const struct digest digest = digest_of_nothing(i);
        tier_known_add(known, &digest, 0);
    }
    ck_assert_uint_ge(count_known(0, MANY), MANY - MANY / 200);
    /* And what is old is not known, but takes no room from what is new. */
    tier_known_free(known);
    ck_assert(tier_known_new(&(struct tier_known_config){.clock = clock_real(), .young_s = 7200},
                             &known, &status));
    const int64_t now_s = clock_wall_ns(clock_real()) / NS_PER_S;
    const struct digest old = digest_of_nothing(1);
    const struct digest fresh = digest_of_nothing(2);
    tier_known_add(known, &old, now_s - 5 * 3600);
    tier_known_add(known, &fresh, now_s);
    ck_assert(!tier_known_has(known, &old));
    ck_assert(tier_known_has(known, &fresh));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tier_list");
    TCase *const all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, all_that_is_there_is_known_after_one_request_for_each_thousand);
    tcase_add_test(all, what_else_lies_there_is_passed_over);
    tcase_add_test(all, page_that_fails_is_asked_for_again_and_none_is_left_out);
    tcase_add_test(all, what_appears_is_known_after_the_next_listing);
    tcase_add_test(all, listing_that_a_stop_has_broken_off_goes_on_where_it_was);
    tcase_add_test(all, stop_while_the_bucket_is_silent_is_clean);
    tcase_add_test(all, what_was_deleted_while_a_listing_came_does_not_become_known_by_it);
    tcase_add_test(
        all, what_the_bucket_does_not_have_is_asked_for_again_after_seconds_or_when_it_is_brought);
    tcase_add_test(all, few_are_lost_to_others_before_there_is_no_room);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
