/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the S3 driver moves objects whole or says that it did not: signed requests of every kind against a server that checks
 * them, and against each way in which a server can be wrong, half or silent. Limits are short only where running into one is what is
 * wanted; where it is not, they are long.
 *
 * With VARVE_TEST_S3_ENDPOINT, _REGION, _BUCKET and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (and VARVE_TEST_S3_CA) what a sound server
 * can be asked is asked of that one too; tests/e2e/tier.sh does so with Ceph's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/thread.h"
#include "tests/support/fake_bucket.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "tier/s3.h"
#include "tier/s3_xml.h"

#define LONG_NS (60 * NS_PER_S)

static struct metrics metrics;
static struct fake_s3 *fake;
static struct s3 *s3;
static struct bucket *bucket;
static struct s3_config config;
static char endpoint[64];
static struct temp_dir directory;

static void set_default_config(void)
{
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", fake_s3_port(fake));
    config = (struct s3_config){.endpoint = endpoint,
                                .region = FAKE_S3_REGION,
                                .bucket = FAKE_S3_BUCKET,
                                .connections_max = 4,
                                .limits = {.connect_ns = LONG_NS,
                                           .first_byte_ns = LONG_NS,
                                           .put_answer_ns = LONG_NS,
                                           .low_speed_ns = LONG_NS,
                                           .multipart_above_bytes = 1 * MIB,
                                           .part_bytes = 256 * KIB},
                                .clock = clock_real(),
                                .metrics = &metrics};
}

static void open_s3(void)
{
    struct status status = {0};
    ck_assert_msg(s3_new(&config, &s3, &status), "%s", status.message);
    bucket = s3_bucket(s3);
}

static void setup(void)
{
    fake_bucket_set_keys();
    fake = fake_s3_start();
    set_default_config();
    open_s3();
}

static void teardown(void)
{
    s3_free(s3);
    if (fake != NULL)
        fake_s3_stop(fake);
    temp_dir_remove(&directory);
}

static void reopen(void)
{
    s3_free(s3);
    s3 = NULL;
    open_s3();
}

/* ---- shorthands */

static uint8_t *bytes_like(size_t length, unsigned seed)
{
    uint8_t *const data = malloc(length + 1);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (uint8_t)(seed >> 24);
    }
    return data;
}

static bool put_bytes(const char *key,
                      struct bytes bytes,
                      enum bucket_put_if condition,
                      struct status *status)
{
    struct bucket_memory memory = {.bytes = bytes};
    const struct bucket_put put = {
        .key = key, .source = bucket_source_of(&memory), .condition = condition};
    return bucket_put(bucket, &put, status);
}

static void put_text(const char *key, const char *text)
{
    struct status status = {0};
    ck_assert_msg(put_bytes(key, bytes_of_string(text), BUCKET_PUT_ALWAYS, &status), "%s",
                  status.message);
}

struct sunk {
    uint8_t *data;
    size_t length;
    int calls;
    bool refuse;
};

static bool sink_bytes(void *argument, struct bytes bytes, struct status *status)
{
    struct sunk *const sunk = argument;
    sunk->calls++;
    if (sunk->refuse)
        return status_fail(status, STATUS_ABORTED, "the sink has had enough");
    sunk->data = realloc(sunk->data, sunk->length + bytes.length + 1);
    ck_assert_ptr_nonnull(sunk->data);
    memcpy(sunk->data + sunk->length, bytes.data, bytes.length);
    sunk->length += bytes.length;
    return true;
}

static bool get_range(const char *key,
                      uint64_t offset,
                      uint64_t length,
                      struct sunk *sunk,
                      struct bucket_object *object,
                      struct status *status)
{
    const struct bucket_get get = {.key = key,
                                   .offset = offset,
                                   .length = length,
                                   .sink = {.write = sink_bytes, .argument = sunk}};
    return bucket_get(bucket, &get, object, status);
}

static void check_get(const char *key, uint64_t offset, uint64_t length, struct bytes wanted)
{
    struct sunk sunk = {0};
    struct bucket_object object;
    struct status status = {0};
    ck_assert_msg(get_range(key, offset, length, &sunk, &object, &status), "%s", status.message);
    ck_assert_int_eq(object.presence, BUCKET_PRESENT);
    ck_assert(bytes_equal(bytes_of(sunk.data, sunk.length), wanted));
    free(sunk.data);
}

/* The get of a key fails with this, and the sink has not been given more than it may. */
static void check_get_fails(uint64_t length, enum status_code code, size_t sunk_most)
{
    struct sunk sunk = {0};
    struct bucket_object object;
    struct status status = {0};
    ck_assert(!get_range("cas/a", 0, length, &sunk, &object, &status));
    ck_assert_msg(status.code == code, "%d: %s", status.code, status.message);
    ck_assert_int_eq(object.presence, BUCKET_UNKNOWN);
    ck_assert_uint_le(sunk.length, sunk_most);
    free(sunk.data);
}

/* ---- what a sound server can be asked, the fake or a real one */

static void check_put_and_get(void)
{
    static const size_t lengths[] = {0, 1, 4096, 300000};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        uint8_t *const data = bytes_like(lengths[i], (unsigned)i);
        struct digest digest;
        struct status status = {0};
        struct bucket_memory memory = {.bytes = bytes_of(data, lengths[i])};
        digest_of_bytes(DIGEST_FUNCTION_SHA256, memory.bytes, &digest);
        const struct bucket_put put = {.key = "cas/sha256/ab/abcdef",
                                       .source = bucket_source_of(&memory),
                                       .sha256 = i % 2 == 0 ? digest.hash : NULL,
                                       .notes = {{"digest", "abcdef/12"}, {"digest-more", "x"}},
                                       .note_count = 2};
        ck_assert_msg(bucket_put(bucket, &put, &status), "%s", status.message);
        check_get("cas/sha256/ab/abcdef", 0, 0, memory.bytes);
        if (lengths[i] > 20)
            check_get("cas/sha256/ab/abcdef", 10, 7, bytes_of(data + 10, 7));
        if (lengths[i] > 0)
            check_get("cas/sha256/ab/abcdef", lengths[i] - 1, 1,
                      bytes_of(data + lengths[i] - 1, 1));
        free(data);
    }
}

static void check_absence(void)
{
    struct sunk sunk = {0};
    struct bucket_object object;
    struct status status = {0};
    ck_assert_msg(get_range("cas/none", 0, 0, &sunk, &object, &status), "%s", status.message);
    ck_assert_int_eq(object.presence, BUCKET_ABSENT);
    ck_assert(get_range("cas/none", 3, 4, &sunk, &object, &status));
    ck_assert_int_eq(object.presence, BUCKET_ABSENT);
    ck_assert_int_eq(sunk.calls, 0);
    ck_assert_int_eq(status.code, STATUS_OK);
}

static void check_short_object(void)
{
    struct sunk sunk = {0};
    struct bucket_object object;
    struct status status = {0};
    put_text("cas/short", "0123456789");
    check_get("cas/short", 2, 8, bytes_of_string("23456789"));
    ck_assert(!get_range("cas/short", 2, 9, &sunk, &object, &status));
    ck_assert_int_eq(status.code, STATUS_OUT_OF_RANGE);
    status = (struct status){0};
    ck_assert(!get_range("cas/short", 10, 1, &sunk, &object, &status));
    ck_assert_int_eq(status.code, STATUS_OUT_OF_RANGE);
    ck_assert_int_eq(sunk.calls, 0);
}

static void check_many_stats(void)
{
    enum { COUNT = 300 };
    static char names[COUNT][32];
    const char *keys[COUNT];
    struct bucket_object objects[COUNT];
    struct status status = {0};
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "stat/%03d", i);
        keys[i] = names[i];
        if (i % 50 == 0)
            put_text(keys[i], "12345");
    }
    ck_assert_msg(bucket_stat_many(bucket, keys, COUNT, 0, objects, &status), "%s", status.message);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(objects[i].presence, i % 50 == 0 ? BUCKET_PRESENT : BUCKET_ABSENT);
        if (i % 50 == 0) {
            ck_assert_uint_eq(objects[i].size_bytes, 5);
            ck_assert_int_gt(objects[i].modified_s, 1577836800);
        }
    }
}

static void check_odd_keys(void)
{
    static const char *const keys[] = {"odd/a+b",  "odd/a=b",      "odd/a:b",    "odd/a(b)",
                                       "odd/a'b",  "odd/a*b",      "odd/a@b",    "odd/a$b",
                                       "odd/a,b",  "odd/a%2Fb",    "odd/a&b<c>", "odd/~-._",
                                       "odd/./b/", "odd/..//c/..", "odd/a;b",    "odd/a?b#c"};
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        put_text(keys[i], keys[i]);
        check_get(keys[i], 0, 0, bytes_of_string(keys[i]));
    }
}

static void check_listing(void)
{
    enum { COUNT = 25 };
    struct arena arena;
    struct status status = {0};
    char key[32];
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof(key), "list/%02d", i);
        put_text(key, "abc");
    }
    put_text("lisu", "not under it");
    int seen = 0;
    char after[32] = "";
    for (bool more = true; more;) {
        struct bucket_page page;
        arena_init(&arena, 4 * MIB);
        ck_assert_msg(bucket_list(bucket, "list/", after, 0, &arena, &page, &status), "%s",
                      status.message);
        for (size_t i = 0; i < page.count; i++) {
            snprintf(key, sizeof(key), "list/%02d", seen++);
            ck_assert_str_eq(page.entries[i].key, key);
            ck_assert_uint_eq(page.entries[i].size_bytes, 3);
            ck_assert_int_gt(page.entries[i].modified_s, 1577836800);
            snprintf(after, sizeof(after), "%s", key);
        }
        more = page.more;
        arena_destroy(&arena);
    }
    ck_assert_int_eq(seen, COUNT);
}

static void check_deletion(void)
{
    const char *const keys[] = {"del/a", "del/b&<>", "del/none"};
    struct bucket_object objects[3];
    struct status status = {0};
    put_text(keys[0], "a");
    put_text(keys[1], "b");
    put_text("del/c", "c");
    ck_assert_msg(bucket_delete_many(bucket, keys, 1, 0, &status), "%s", status.message);
    ck_assert_msg(bucket_delete_many(bucket, keys + 2, 1, 0, &status), "%s", status.message);
    ck_assert(bucket_stat_many(bucket, keys, 3, 0, objects, &status));
    ck_assert_int_eq(objects[0].presence, BUCKET_ABSENT);
    ck_assert_int_eq(objects[1].presence, BUCKET_PRESENT);
    ck_assert(bucket_delete_many(bucket, keys, 0, 0, &status));
}

static void check_parts(void)
{
    const size_t length = (size_t)config.limits.multipart_above_bytes + 100001;
    uint8_t *const data = bytes_like(length, 5);
    struct bucket_memory memory = {.bytes = bytes_of(data, length)};
    struct status status = {0};
    const struct bucket_put put = {.key = "cas/large",
                                   .source = bucket_source_of(&memory),
                                   .notes = {{"digest", "large"}},
                                   .note_count = 1};
    ck_assert_msg(bucket_put(bucket, &put, &status), "%s", status.message);
    check_get("cas/large", 0, 0, memory.bytes);
    const uint64_t part = config.limits.part_bytes;
    check_get("cas/large", part - 3, 9, bytes_of(data + part - 3, 9));
    free(data);
}

static void check_condition(void)
{
    struct status status = {0};
    put_text("cas/once", "first");
    ck_assert(!put_bytes("cas/once", bytes_of_string("second"), BUCKET_PUT_IF_ABSENT, &status));
    ck_assert_int_eq(status.code, STATUS_ALREADY_EXISTS);
    check_get("cas/once", 0, 0, bytes_of_string("first"));
    ck_assert(put_bytes("cas/new", bytes_of_string("second"), BUCKET_PUT_IF_ABSENT, &status));
    put_text("cas/once", "third");
    check_get("cas/once", 0, 0, bytes_of_string("third"));
}

/* The hash that is sent is not that of the bytes: it is the server that finds out. */
static void check_damage_is_refused(void)
{
    const uint8_t wrong[SHA256_HASH_BYTES] = {1, 2, 3};
    struct bucket_memory memory = {.bytes = bytes_of_string("bytes")};
    struct status status = {0};
    const struct bucket_put put = {
        .key = "cas/damaged", .source = bucket_source_of(&memory), .sha256 = wrong};
    ck_assert(!bucket_put(bucket, &put, &status));
    ck_assert_msg(status.code == STATUS_DATA_LOSS, "%d: %s", status.code, status.message);
    ck_assert_int_eq(bucket_fault_of(&status), BUCKET_LOOK_AGAIN);
    struct bucket_object object;
    const char *const key = "cas/damaged";
    status = (struct status){0};
    ck_assert(bucket_stat_many(bucket, &key, 1, 0, &object, &status));
    ck_assert_int_eq(object.presence, BUCKET_ABSENT);
}

static void check_wrong_secret(void)
{
    struct status status = {0};
    setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
    reopen();
    ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_msg(status.code == STATUS_PERMISSION_DENIED, "%d: %s", status.code, status.message);
    ck_assert_int_eq(bucket_fault_of(&status), BUCKET_TELL);
    ck_assert_ptr_null(strstr(status.message, "wrong"));
}

START_TEST(objects_come_back_as_they_went_whole_and_in_part)
{
    check_put_and_get();
    char *const note = fake_s3_note(fake, "cas/sha256/ab/abcdef", "digest");
    ck_assert_ptr_nonnull(note);
    ck_assert_str_eq(note, "abcdef/12");
    free(note);
}
END_TEST

START_TEST(what_is_not_there_is_no_failure)
{
    check_absence();
}
END_TEST

START_TEST(range_beyond_the_end_gives_no_byte)
{
    check_short_object();
}
END_TEST

START_TEST(many_are_looked_at_together_and_each_is_told)
{
    config.stats_max = 8;
    reopen();
    check_many_stats();
    ck_assert_int_le(fake_s3_connections(fake), 10);
}
END_TEST

START_TEST(key_that_is_refused_leaves_nothing_said_of_the_others)
{
    const char *const keys[] = {"one", "with a space", "three"};
    struct bucket_object objects[ARRAY_LENGTH(keys)];
    struct status status = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        objects[i] = (struct bucket_object){.presence = BUCKET_PRESENT};
    ck_assert(!bucket_stat_many(bucket, keys, ARRAY_LENGTH(keys), 0, objects, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        ck_assert_int_eq(objects[i].presence, BUCKET_UNKNOWN);
}
END_TEST

START_TEST(names_with_every_odd_byte_are_signed_as_they_are_sent)
{
    check_odd_keys();
}
END_TEST

START_TEST(listing_goes_on_where_a_page_ends)
{
    fake_s3_set_page(fake, 7);
    check_listing();
}
END_TEST

START_TEST(deleted_are_those_that_were_named)
{
    check_deletion();
}
END_TEST

START_TEST(large_object_goes_in_parts)
{
    check_parts();
    ck_assert_int_eq(fake_s3_requests(fake, "PUT"), 5);
    ck_assert_int_eq(fake_s3_uploads(fake), 0);
    char *const note = fake_s3_note(fake, "cas/large", "digest");
    ck_assert_ptr_nonnull(note);
    free(note);
}
END_TEST

START_TEST(what_is_there_is_not_replaced_if_so_wanted)
{
    check_condition();
}
END_TEST

START_TEST(server_refuses_what_is_not_its_hash)
{
    check_damage_is_refused();
}
END_TEST

START_TEST(wrong_secret_is_denied_and_not_told)
{
    check_wrong_secret();
}
END_TEST

START_TEST(connection_is_kept_also_after_a_refusal)
{
    struct status status = {0};
    for (int i = 0; i < 20; i++) {
        put_text("cas/a", "a");
        check_absence();
        check_get("cas/a", 0, 0, bytes_of_string("a"));
        ck_assert(!put_bytes("cas/a", bytes_of_string("b"), BUCKET_PUT_IF_ABSENT, &status));
    }
    ck_assert_int_eq(fake_s3_connections(fake), 1);
}
END_TEST

START_TEST(connection_that_died_while_idle_is_no_failure)
{
    put_text("cas/a", "a");
    for (int i = 0; i < 5; i++) {
        fake_s3_fail(fake, FAKE_S3_HANG_UP, 1, "PUT", NULL);
        put_text("cas/a", "a longer one");
    }
    ck_assert_int_gt(fake_s3_connections(fake), 1);
}
END_TEST

START_TEST(bucket_may_stand_in_the_name_of_the_host)
{
    snprintf(endpoint, sizeof(endpoint), "http://localhost:%d", fake_s3_port(fake));
    config.addressing = S3_VIRTUAL_HOST;
    reopen();
    put_text("cas/a", "virtual");
    check_get("cas/a", 0, 0, bytes_of_string("virtual"));
    check_listing();
}
END_TEST

/* ---- servers that are not sound */

START_TEST(statuses_say_what_a_caller_can_do)
{
    static const struct {
        enum fake_s3_fault fault;
        enum status_code code;
        enum bucket_fault means;
    } cases[] = {
        {FAKE_S3_SLOW_DOWN, STATUS_UNAVAILABLE, BUCKET_TRY_LATER},
        {FAKE_S3_BAD_GATEWAY, STATUS_UNAVAILABLE, BUCKET_TRY_LATER},
        {FAKE_S3_HANG_UP, STATUS_UNAVAILABLE, BUCKET_TRY_LATER},
        {FAKE_S3_DENIED, STATUS_PERMISSION_DENIED, BUCKET_TELL},
        {FAKE_S3_NO_BUCKET, STATUS_FAILED_PRECONDITION, BUCKET_TELL},
        {FAKE_S3_DAMAGED, STATUS_DATA_LOSS, BUCKET_LOOK_AGAIN},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sunk sunk = {0};
        struct bucket_object object;
        struct status status = {0};
        fake_s3_fail(fake, cases[i].fault, -1, NULL, NULL);
        reopen();
        ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
        ck_assert_msg(status.code == cases[i].code, "%zu: %d: %s", i, status.code, status.message);
        ck_assert_int_eq(bucket_fault_of(&status), cases[i].means);
        status = (struct status){0};
        ck_assert(!get_range("cas/a", 0, 0, &sunk, &object, &status));
        ck_assert_msg(status.code == cases[i].code, "%zu: %d: %s", i, status.code, status.message);
        ck_assert_int_eq(sunk.calls, 0);
    }
}
END_TEST

START_TEST(body_that_ends_too_soon_is_no_object)
{
    put_text("cas/a", "0123456789");
    fake_s3_fail(fake, FAKE_S3_TRUNCATED, -1, "GET", NULL);
    check_get_fails(0, STATUS_UNAVAILABLE, 9);
    check_get_fails(10, STATUS_UNAVAILABLE, 9);
    fake_s3_fail(fake, FAKE_S3_RESET, -1, "GET", NULL);
    check_get_fails(0, STATUS_UNAVAILABLE, 9);
    fake_s3_fail(fake, FAKE_S3_SOUND, 0, NULL, NULL);
    check_get("cas/a", 0, 0, bytes_of_string("0123456789"));
}
END_TEST

START_TEST(whole_object_is_no_answer_to_a_range)
{
    put_text("cas/a", "0123456789");
    fake_s3_fail(fake, FAKE_S3_IGNORE_RANGE, -1, "GET", NULL);
    check_get_fails(10, STATUS_INTERNAL, 0);
    check_get_fails(3, STATUS_INTERNAL, 0);
    fake_s3_fail(fake, FAKE_S3_OTHER_RANGE, -1, "GET", NULL);
    check_get_fails(3, STATUS_INTERNAL, 0);
}
END_TEST

START_TEST(error_behind_a_200_is_an_error)
{
    struct status status = {0};
    struct arena arena;
    struct bucket_page page;
    const char *const key = "cas/a";
    const enum fake_s3_fault faults[] = {FAKE_S3_ERROR_IN_200, FAKE_S3_NO_XML};
    const enum status_code codes[] = {STATUS_UNAVAILABLE, STATUS_INTERNAL};
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        fake_s3_fail(fake, faults[i], -1, NULL, NULL);
        arena_init(&arena, 4 * MIB);
        status = (struct status){0};
        ck_assert(!bucket_list(bucket, "", "", 0, &arena, &page, &status));
        ck_assert_msg(status.code == codes[i], "%d: %s", status.code, status.message);
        arena_destroy(&arena);
        status = (struct status){0};
        ck_assert(!bucket_delete_many(bucket, &key, 1, 0, &status));
        ck_assert_msg(status.code == codes[i], "%d: %s", status.code, status.message);
    }
}
END_TEST

START_TEST(parts_that_cannot_become_an_object_are_aborted)
{
    const size_t length = 1100000;
    uint8_t *const data = bytes_like(length, 7);
    struct status status = {0};
    /* The end of it says 200 and then that it failed. */
    fake_s3_fail(fake, FAKE_S3_ERROR_IN_200, 1, "POST", "uploadId");
    ck_assert(!put_bytes("cas/large", bytes_of(data, length), BUCKET_PUT_ALWAYS, &status));
    ck_assert_msg(status.code == STATUS_UNAVAILABLE, "%d: %s", status.code, status.message);
    ck_assert_int_eq(fake_s3_uploads(fake), 0);
    /* A part is refused each time. */
    status = (struct status){0};
    const int before = fake_s3_requests(fake, "PUT");
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, -1, "PUT", "partNumber=3");
    ck_assert(!put_bytes("cas/large", bytes_of(data, length), BUCKET_PUT_ALWAYS, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_int_eq(fake_s3_requests(fake, "PUT") - before, 5);
    ck_assert_int_eq(fake_s3_uploads(fake), 0);
    ck_assert_int_eq(fake_s3_objects(fake), 0);
    /* Once, and it goes on. */
    fake_s3_fail(fake, FAKE_S3_SLOW_DOWN, 1, "PUT", "partNumber=3");
    ck_assert(put_bytes("cas/large", bytes_of(data, length), BUCKET_PUT_ALWAYS, &status));
    check_get("cas/large", 0, 0, bytes_of(data, length));
    free(data);
}
END_TEST

START_TEST(flipped_bit_passes_the_driver_and_is_its_callers_to_find)
{
    put_text("cas/a", "0123456789");
    fake_s3_fail(fake, FAKE_S3_FLIPPED, 1, "GET", NULL);
    check_get("cas/a", 0, 0, bytes_of_string("0123446789"));
}
END_TEST

START_TEST(server_that_never_answers_is_left_in_time)
{
    config.limits.first_byte_ns = config.limits.put_answer_ns = 200 * NS_PER_MS;
    config.limits.connect_ns = 100 * NS_PER_MS;
    reopen();
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    struct status status = {0};
    struct bucket_object object;
    const char *const key = "cas/a";
    ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_msg(status.code == STATUS_DEADLINE_EXCEEDED, "%d: %s", status.code, status.message);
    check_get_fails(0, STATUS_DEADLINE_EXCEEDED, 0);
    status = (struct status){0};
    ck_assert(!bucket_stat_many(bucket, &key, 1, 0, &object, &status));
    ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    ck_assert_int_eq(object.presence, BUCKET_UNKNOWN);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_TIMED_OUT), 3);
}
END_TEST

START_TEST(body_that_stalls_or_drips_is_left_in_time)
{
    config.limits.low_speed_ns = 300 * NS_PER_MS;
    config.limits.low_speed_bytes = 1000;
    config.limits.connect_ns = 100 * NS_PER_MS;
    reopen();
    uint8_t *const data = bytes_like(20000, 1);
    fake_s3_store(fake, "cas/a", bytes_of(data, 20000));
    fake_s3_fail(fake, FAKE_S3_STALLED, 1, NULL, NULL);
    check_get_fails(0, STATUS_DEADLINE_EXCEEDED, 19999);
    fake_s3_fail(fake, FAKE_S3_SLOW, 1, NULL, NULL);
    check_get_fails(0, STATUS_DEADLINE_EXCEEDED, 19999);
    free(data);
}
END_TEST

START_TEST(deadline_of_the_caller_ends_it)
{
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    struct bucket_memory memory = {.bytes = bytes_of_string("a")};
    struct status status = {0};
    const struct bucket_put put = {.key = "cas/a",
                                   .source = bucket_source_of(&memory),
                                   .deadline_ns =
                                       clock_monotonic_ns(clock_real()) + 200 * NS_PER_MS};
    ck_assert(!bucket_put(bucket, &put, &status));
    ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    status = (struct status){0};
    ck_assert(!bucket_put(bucket, &put, &status));
    ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    /* Whoever is in such a hurry learns nothing of the server. */
    const char *const keys[] = {"cas/a", "cas/b", "cas/c", "cas/d", "cas/e"};
    struct bucket_object objects[5];
    for (int i = 0; i < BREAKER_REQUESTS_MIN; i++) {
        status = (struct status){0};
        ck_assert(!bucket_stat_many(
            bucket, keys, 5, clock_monotonic_ns(clock_real()) + 10 * NS_PER_MS, objects, &status));
        ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    }
    ck_assert_int_eq(s3_breaker_state(s3), BREAKER_CLOSED);
}
END_TEST

START_TEST(server_that_hangs_is_left_alone_after_some_tries)
{
    config.limits.put_answer_ns = 50 * NS_PER_MS;
    reopen();
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    for (int i = 0; i < BREAKER_FAILURES_ROW; i++) {
        struct status status = {0};
        ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
        ck_assert_int_eq(status.code, STATUS_DEADLINE_EXCEEDED);
    }
    ck_assert_int_eq(s3_breaker_state(s3), BREAKER_OPEN);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_UP), 0);
    const int asked = fake_s3_requests(fake, NULL);
    struct status status = {0};
    ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_int_eq(fake_s3_requests(fake, NULL), asked);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_TIER_REFUSED), 1);
}
END_TEST

START_TEST(refusals_are_answers_and_do_not_open_the_breaker)
{
    fake_s3_fail(fake, FAKE_S3_DENIED, -1, NULL, NULL);
    for (int i = 0; i < 3 * BREAKER_REQUESTS_MIN; i++) {
        struct status status = {0};
        ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
        ck_assert_int_eq(status.code, STATUS_PERMISSION_DENIED);
    }
    ck_assert_int_eq(s3_breaker_state(s3), BREAKER_CLOSED);
}
END_TEST

START_TEST(server_with_another_time_is_believed)
{
    for (int ahead_s = -7200; ahead_s <= 7200; ahead_s += 14400) {
        fake_s3_set_clock(fake, ahead_s);
        reopen();
        put_text("cas/a", "a");
        ck_assert_int_ge(s3_clock_skew_s(s3), ahead_s - 60);
        ck_assert_int_le(s3_clock_skew_s(s3), ahead_s + 60);
        const int before = fake_s3_requests(fake, NULL);
        put_text("cas/a", "b");
        ck_assert_int_eq(fake_s3_requests(fake, NULL), before + 1);
    }
}
END_TEST

struct failing {
    uint64_t at;
};

static bool read_failing(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t capacity,
                         size_t *length,
                         struct status *status)
{
    const struct failing *const failing = argument;
    if (offset >= failing->at)
        return status_fail(status, STATUS_ABORTED, "the disk is gone");
    *length = capacity < failing->at - offset ? capacity : (size_t)(failing->at - offset);
    memset(to, 'x', *length);
    return true;
}

START_TEST(source_or_sink_that_fails_is_told_as_it_is_and_blames_nobody)
{
    const uint8_t hash[SHA256_HASH_BYTES] = {0};
    struct failing failing = {.at = 1000};
    for (int i = 0; i < 2 * BREAKER_REQUESTS_MIN; i++) {
        struct status status = {0};
        const struct bucket_put put = {
            .key = "cas/a",
            .source = {.read = read_failing, .argument = &failing, .size_bytes = 100000},
            .sha256 = i % 2 == 0 ? hash : NULL};
        ck_assert(!bucket_put(bucket, &put, &status));
        ck_assert_msg(status.code == STATUS_ABORTED, "%d: %s", status.code, status.message);
    }
    ck_assert_int_eq(fake_s3_objects(fake), 0);
    put_text("cas/a", "0123456789");
    struct sunk sunk = {.refuse = true};
    struct bucket_object object;
    struct status status = {0};
    ck_assert(!get_range("cas/a", 0, 0, &sunk, &object, &status));
    ck_assert_int_eq(status.code, STATUS_ABORTED);
    ck_assert_int_eq(s3_breaker_state(s3), BREAKER_CLOSED);
}
END_TEST

/* ---- credentials */

static void write_file(const char *path, const char *text)
{
    char temporary[320];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    const int fd = open(temporary, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(rename(temporary, path), 0);
}

START_TEST(credentials_file_is_read_again_when_it_changes)
{
    char path[300];
    temp_dir_make(&directory);
    snprintf(path, sizeof(path), "%s/credentials", directory.path);
    write_file(path, "# ours\n[other]\naws_access_key_id = NO\naws_secret_access_key = NO\n"
                     "[default]\r\naws_access_key_id=" FAKE_S3_ACCESS_KEY "\r\n"
                     " aws_secret_access_key = " FAKE_S3_SECRET " \r\nregion = nowhere\n");
    config.credentials_file = path;
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    reopen();
    put_text("cas/a", "a");
    fake_s3_set_secret(fake, "rotated", "a/token==");
    struct status status = {0};
    ck_assert(!put_bytes("cas/a", bytes_of_string("b"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_int_eq(status.code, STATUS_PERMISSION_DENIED);
    write_file(path, "[default]\naws_access_key_id = " FAKE_S3_ACCESS_KEY "\n"
                     "aws_secret_access_key = rotated\naws_session_token = a/token==\n");
    WAIT_UNTIL(put_bytes("cas/a", bytes_of_string("b"), BUCKET_PUT_ALWAYS, &status));
    /* One that cannot be read leaves what was. */
    ck_assert_int_eq(unlink(path), 0);
    sleep(2);
    put_text("cas/a", "c");
}
END_TEST

START_TEST(what_is_no_configuration_is_refused_by_name)
{
    struct s3 *other = NULL;
    struct status status = {0};
    static const char *const endpoints[] = {"ftp://a",    "http://a/b",     "http://u:p@a",
                                            "http://a?b", "nothing at all", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(endpoints); i++) {
        config.endpoint = endpoints[i];
        status = (struct status){0};
        ck_assert_msg(!s3_new(&config, &other, &status), "%s", endpoints[i]);
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_ptr_null(strstr(status.message, "u:p"));
    }
    config.endpoint = endpoint;
    config.bucket = "a/b";
    ck_assert(!s3_new(&config, &other, &status));
    config.bucket = FAKE_S3_BUCKET;
    unsetenv("AWS_SECRET_ACCESS_KEY");
    status = (struct status){0};
    ck_assert(!s3_new(&config, &other, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(status.message, "AWS_SECRET_ACCESS_KEY"));
    setenv("AWS_SECRET_ACCESS_KEY", "with\nline", 1);
    ck_assert(!s3_new(&config, &other, &status));
    ck_assert_ptr_null(strstr(status.message, "line"));
    status = (struct status){0};
    ck_assert(!put_bytes("with space", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
}
END_TEST

/* ---- threads */

static struct racer {
    struct thread thread;
    int number;
    _Atomic int done;
    struct status status;
} racers[12];

static void race(void *argument)
{
    struct racer *const racer = argument;
    char key[32];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "race/%d/%d", racer->number, i);
        put_text(key, key);
        check_get(key, 0, 0, bytes_of_string(key));
    }
    racer->done = 1;
}

START_TEST(threads_share_as_many_connections_as_are_allowed)
{
    struct status status = {0};
    for (int i = 0; i < (int)ARRAY_LENGTH(racers); i++) {
        racers[i].number = i;
        ck_assert(thread_start(&racers[i].thread, "racer", 0, race, &racers[i], &status));
    }
    for (size_t i = 0; i < ARRAY_LENGTH(racers); i++)
        thread_join(&racers[i].thread);
    for (size_t i = 0; i < ARRAY_LENGTH(racers); i++)
        ck_assert_int_eq(racers[i].done, 1);
    ck_assert_int_le(fake_s3_connections(fake), 4);
    ck_assert_int_eq(fake_s3_objects(fake), 20 * (int)ARRAY_LENGTH(racers));
}
END_TEST

static void wait_for_nothing(void *argument)
{
    struct racer *const racer = argument;
    (void)put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &racer->status);
}

START_TEST(stop_ends_what_waits_for_a_silent_server)
{
    struct status status = {0};
    fake_s3_fail(fake, FAKE_S3_SILENT, -1, NULL, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert(
            thread_start(&racers[i].thread, "racer", 0, wait_for_nothing, &racers[i], &status));
    WAIT_UNTIL(fake_s3_requests(fake, NULL) == 3);
    s3_stop(s3);
    for (int i = 0; i < 3; i++) {
        thread_join(&racers[i].thread);
        ck_assert_int_eq(racers[i].status.code, STATUS_CANCELLED);
    }
    ck_assert(!put_bytes("cas/a", bytes_of_string("a"), BUCKET_PUT_ALWAYS, &status));
    ck_assert_int_eq(status.code, STATUS_CANCELLED);
}
END_TEST

/* ---- XML */

static bool count_elements(void *argument,
                           const char *path,
                           const char *text,
                           struct status *status)
{
    (void)status;
    int *const count = argument;
    *count += 1;
    if (strcmp(path, "a/b") == 0)
        ck_assert_str_eq(text, "x<y&z");
    return true;
}

START_TEST(xml_that_wants_to_make_work_is_refused)
{
    int count = 0;
    struct status status = {0};
    const struct s3_xml_reader reader = {.element = count_elements, .argument = &count};
    ck_assert(s3_xml_read(bytes_of_string(" \n<a><b>x&lt;y&amp;z</b><c/></a>"), &reader, &status));
    ck_assert_int_eq(count, 3);
    static const char *const bad[] = {
        "",
        "  ",
        "<a>",
        "<a></b>",
        "no",
        "<a/><b/>",
        "<!DOCTYPE a [<!ENTITY x \"xx\"><!ENTITY y \"&x;&x;\">]><a>&y;</a>",
        "<a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        status = (struct status){0};
        ck_assert_msg(!s3_xml_read(bytes_of_string(bad[i]), &reader, &status), "%s", bad[i]);
        ck_assert_int_eq(status.code, STATUS_INTERNAL);
    }
    char *const text = malloc(3 * S3_XML_TEXT_BYTES_MAX);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', 3 * S3_XML_TEXT_BYTES_MAX);
    memcpy(text, "<a>", 3);
    memcpy(text + 2 * S3_XML_TEXT_BYTES_MAX, "</a>", 5);
    status = (struct status){0};
    ck_assert(!s3_xml_read(bytes_of_string(text), &reader, &status));
    free(text);
}
END_TEST

/* ---- a real server */

static void setup_real(void)
{
    config = (struct s3_config){.endpoint = getenv("VARVE_TEST_S3_ENDPOINT"),
                                .region = getenv("VARVE_TEST_S3_REGION"),
                                .bucket = getenv("VARVE_TEST_S3_BUCKET"),
                                .ca_file = getenv("VARVE_TEST_S3_CA"),
                                .connections_max = 4,
                                .limits = {.connect_ns = LONG_NS,
                                           .first_byte_ns = LONG_NS,
                                           .put_answer_ns = LONG_NS,
                                           .low_speed_ns = LONG_NS,
                                           .multipart_above_bytes = 12 * MIB,
                                           .part_bytes = 5 * MIB},
                                .clock = clock_real(),
                                .metrics = &metrics};
    open_s3();
}

START_TEST(real_server_does_as_the_fake)
{
    check_put_and_get();
    check_absence();
    check_short_object();
    check_many_stats();
    check_odd_keys();
    check_listing();
    check_deletion();
    check_parts();
    check_condition();
    check_damage_is_refused();
    check_wrong_secret();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("s3");
    TCase *const sound = tcase_create("sound");
    tcase_add_checked_fixture(sound, setup, teardown);
    tcase_add_test(sound, objects_come_back_as_they_went_whole_and_in_part);
    tcase_add_test(sound, what_is_not_there_is_no_failure);
    tcase_add_test(sound, key_that_is_refused_leaves_nothing_said_of_the_others);
    tcase_add_test(sound, range_beyond_the_end_gives_no_byte);
    tcase_add_test(sound, many_are_looked_at_together_and_each_is_told);
    tcase_add_test(sound, names_with_every_odd_byte_are_signed_as_they_are_sent);
    tcase_add_test(sound, listing_goes_on_where_a_page_ends);
    tcase_add_test(sound, deleted_are_those_that_were_named);
    tcase_add_test(sound, large_object_goes_in_parts);
    tcase_add_test(sound, what_is_there_is_not_replaced_if_so_wanted);
    tcase_add_test(sound, server_refuses_what_is_not_its_hash);
    tcase_add_test(sound, wrong_secret_is_denied_and_not_told);
    tcase_add_test(sound, connection_is_kept_also_after_a_refusal);
    tcase_add_test(sound, connection_that_died_while_idle_is_no_failure);
    tcase_add_test(sound, bucket_may_stand_in_the_name_of_the_host);
    tcase_add_test(sound, credentials_file_is_read_again_when_it_changes);
    tcase_add_test(sound, what_is_no_configuration_is_refused_by_name);
    tcase_add_test(sound, threads_share_as_many_connections_as_are_allowed);
    suite_add_tcase(suite, sound);
    TCase *const faults = tcase_create("faults");
    tcase_add_checked_fixture(faults, setup, teardown);
    tcase_add_test(faults, statuses_say_what_a_caller_can_do);
    tcase_add_test(faults, body_that_ends_too_soon_is_no_object);
    tcase_add_test(faults, whole_object_is_no_answer_to_a_range);
    tcase_add_test(faults, error_behind_a_200_is_an_error);
    tcase_add_test(faults, parts_that_cannot_become_an_object_are_aborted);
    tcase_add_test(faults, flipped_bit_passes_the_driver_and_is_its_callers_to_find);
    tcase_add_test(faults, server_that_never_answers_is_left_in_time);
    tcase_add_test(faults, body_that_stalls_or_drips_is_left_in_time);
    tcase_add_test(faults, deadline_of_the_caller_ends_it);
    tcase_add_test(faults, server_that_hangs_is_left_alone_after_some_tries);
    tcase_add_test(faults, refusals_are_answers_and_do_not_open_the_breaker);
    tcase_add_test(faults, server_with_another_time_is_believed);
    tcase_add_test(faults, source_or_sink_that_fails_is_told_as_it_is_and_blames_nobody);
    tcase_add_test(faults, stop_ends_what_waits_for_a_silent_server);
    suite_add_tcase(suite, faults);
    TCase *const xml = tcase_create("xml");
    tcase_add_test(xml, xml_that_wants_to_make_work_is_refused);
    suite_add_tcase(suite, xml);
    if (getenv("VARVE_TEST_S3_ENDPOINT") != NULL) {
        TCase *const real = tcase_create("real");
        tcase_add_checked_fixture(real, setup_real, teardown);
        tcase_add_test(real, real_server_does_as_the_fake);
        suite_add_tcase(suite, real);
    }
    return test_run(suite);
}
