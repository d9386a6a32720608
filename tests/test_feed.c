/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that whoever reads a lane's log from a position on is told all that lives there, in the order of the log, once, and nothing
 * that is not durable, damaged, superseded or nobody's matter; over segments, restarts, crashes and damage; and that eviction takes
 * nothing from a reader: what it moves is told again at the end. On the simulated disk.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "durability/feed.h"
#include "durability/forget.h"
#include "store/find.h"
#include "store/forget_record.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { BLOBS_MAX = 4096 };

static struct store_rig rig;
static struct arena arena;
static struct feed_batch batch;
static struct status status;

/* What was told so far. */
static struct feed_entry told[BLOBS_MAX];
static size_t told_count;

static void setup(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
    told_count = 0;
}

static void teardown(void)
{
    arena_destroy(&arena);
    store_rig_end(&rig);
}

static bool try_read_feed(const struct feed_query *query)
{
    arena_destroy(&arena);
    arena_init(&arena, 16 * MIB);
    return feed_read(durability_feed(rig.durability), query, &arena, &batch, &status);
}

static void read_feed(enum lane lane, uint64_t after_seq, size_t records_max)
{
    const struct feed_query query = {.lane = lane,
                                     .after_seq = after_seq,
                                     .records_max = records_max,
                                     .bytes_max = 2 * MIB,
                                     .kinds = FEED_ALL};
    ck_assert_msg(try_read_feed(&query), "%s", status.message);
}

/* All from a position on, `page` records at a time; where the log ends. Each is told once, and in order. */
static uint64_t read_all(enum lane lane, uint64_t after_seq, size_t page)
{
    told_count = 0;
    for (;;) {
        read_feed(lane, after_seq, page);
        ck_assert_uint_le(batch.count, page);
        ck_assert_uint_ge(batch.next_after_seq, after_seq);
        for (size_t i = 0; i < batch.count; i++) {
            const uint64_t before = i > 0 ? batch.entries[i - 1].seq : after_seq;
            ck_assert_uint_gt(batch.entries[i].seq, before);
            ck_assert_uint_le(batch.entries[i].seq, batch.next_after_seq);
            ck_assert_uint_lt(told_count, BLOBS_MAX);
            told[told_count++] = batch.entries[i];
        }
        after_seq = batch.next_after_seq;
        if (batch.count == 0 && !batch.more) {
            ck_assert_uint_eq(after_seq, batch.published_seq);
            ck_assert_uint_eq(batch.behind_bytes, 0);
            return after_seq;
        }
    }
}

static struct digest put_seeded(uint64_t seed, size_t length)
{
    struct digest digest;
    uint8_t *const data = seeded_bytes(seed, length);
    ck_assert_msg(store_rig_put(&rig, bytes_of(data, length), &digest, &status), "%s",
                  status.message);
    free(data);
    return digest;
}

static struct place place_of(const struct digest *digest)
{
    struct place place;
    ck_assert(store_find_blob(durability_store(rig.durability), digest, FIND_ONLY, &place));
    return place;
}

static void forget_blob(const struct digest *digest, enum forget_reason reason)
{
    const enum record_kind kind =
        (uint64_t)digest->size_bytes > LIMIT_SMALL_BLOB_BYTES ? RECORD_MANIFEST : RECORD_BLOB;
    durability_forget(rig.durability, digest, NULL, place_of(digest), kind, reason);
    forget_wait(durability_store(rig.durability));
}

static void expect_told(const struct digest *digests, size_t count)
{
    ck_assert_uint_eq(told_count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(digest_equal(&told[i].digest, &digests[i]), "record %zu is another", i);
}

START_TEST(blobs_are_told_in_the_order_of_the_log_over_segments)
{
    enum { BLOBS = 60, BYTES = 700000 }; /* eleven in a segment */
    static struct digest digests[BLOBS];
    for (uint64_t i = 0; i < BLOBS; i++)
        digests[i] = put_seeded(i, BYTES);
    for (size_t page = 1; page <= BLOBS; page = 3 * page + 1) {
        read_all(LANE_SMALL, 0, page);
        expect_told(digests, BLOBS);
    }
    read_all(LANE_SMALL, 25, 7);
    expect_told(&digests[25], BLOBS - 25);
    ck_assert_uint_eq(told[0].seq, 26);
    read_feed(LANE_SMALL, 0, 1);
    ck_assert_uint_eq(batch.oldest_seq, 1);
    ck_assert_uint_gt(batch.behind_bytes, (BLOBS - 2) * (uint64_t)BYTES);
    ck_assert_uint_lt(batch.behind_bytes, (BLOBS + 2) * (uint64_t)BYTES);
    read_feed(LANE_LARGE, 0, 1);
    ck_assert_uint_eq(batch.count, 0);
    ck_assert_uint_eq(batch.oldest_seq, 1);
}
END_TEST

START_TEST(the_same_is_told_after_a_restart_and_after_a_crash)
{
    enum { BLOBS = 40 };
    static struct digest digests[3 * BLOBS];
    for (uint64_t i = 0; i < 3 * BLOBS; i++) {
        if (i == BLOBS) {
            store_rig_close(&rig);
            store_rig_open(&rig);
        } else if (i == 2 * BLOBS) {
            store_rig_crash(&rig, 1, IO_SIM_CRASH_RANDOM);
            store_rig_open(&rig);
        }
        digests[i] = put_seeded(i, 300000);
        if (i % BLOBS == BLOBS - 1 || i % BLOBS == 0) {
            read_all(LANE_SMALL, 0, 16);
            expect_told(digests, i + 1);
        }
    }
    /* At once, while the index is still being loaded. */
    store_rig_close(&rig);
    ck_assert(store_rig_try_open(&rig, &status));
    read_all(LANE_SMALL, 0, 16);
    expect_told(digests, 3 * BLOBS);
}
END_TEST

START_TEST(an_empty_log_has_nothing_and_ends_where_it_begins)
{
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        ck_assert_uint_eq(read_all(lane, 0, 10), 0);
        ck_assert_uint_eq(batch.oldest_seq, 1);
    }
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert_uint_eq(read_all(LANE_SMALL, 0, 10), 0);
    put_seeded(1, 10);
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert_uint_eq(read_all(LANE_SMALL, 0, 10), 1);
    ck_assert_uint_eq(read_all(LANE_SMALL, 1, 10), 1);
    ck_assert_uint_eq(told_count, 0);
}
END_TEST

START_TEST(a_large_blob_is_told_once_and_its_chunks_are_not)
{
    const struct digest first = put_seeded(1, 5 * MIB + 7);
    const struct digest second = put_seeded(2, 20 * MIB);
    ck_assert_uint_eq(read_all(LANE_LARGE, 0, 1), 6 + 20 + 2);
    ck_assert_uint_eq(told_count, 2);
    ck_assert(digest_equal(&told[0].digest, &first));
    ck_assert(digest_equal(&told[1].digest, &second));
    ck_assert_int_eq(told[0].kind, RECORD_MANIFEST);
    ck_assert_uint_eq(told[0].seq, 7);
}
END_TEST

static void put_action(const struct digest *action, int64_t written_ns, const char *result)
{
    struct store_put put;
    store_put_init(&put);
    const struct action_record fields = {.written_wall_ns = written_ns,
                                         .node_uid = 77,
                                         .instance = bytes_of_string("x"),
                                         .writer = bytes_of_string("w"),
                                         .result = bytes_of_string(result)};
    action_record_fixed_put(put.fixed, &fields);
    const struct bytes parts[] = {bytes_of(put.fixed, sizeof(put.fixed)), fields.instance,
                                  fields.writer, fields.result};
    put.record = (struct record){.kind = RECORD_ACTION,
                                 .digest = *action,
                                 .payload = {.parts = parts, .count = ARRAY_LENGTH(parts)}};
    put.record.payload_bytes = bytes_list_length(put.record.payload);
    put.record.payload_crc32c = crc32c_list(0, put.record.payload);
    put.request.record = &put.record;
    put.request.instance = fields.instance;
    commit_submit(durability_commit(rig.durability, LANE_SMALL), &put.request);
    ck_assert(store_put_finish(&put, &status));
}

START_TEST(action_results_are_told_as_they_were_committed_and_not_as_they_were_dated)
{
    struct digest actions[3];
    for (uint64_t i = 0; i < 3; i++)
        actions[i] = put_seeded(i, 10);
    put_action(&actions[0], 300, "a");
    put_action(&actions[1], 100, "b");
    put_action(&actions[2], 200, "c");
    read_feed(LANE_SMALL, 3, 10);
    ck_assert_uint_eq(batch.count, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert(digest_equal(&batch.entries[i].digest, &actions[i]));
        ck_assert(bytes_equal_string(batch.entries[i].result, &"a\0b\0c"[2 * i]));
    }
    ck_assert_int_eq(batch.entries[1].wall_ns, 100);
    ck_assert_uint_eq(batch.entries[1].origin_uid, 77);
    ck_assert(bytes_equal_string(batch.entries[1].instance, "x"));
    ck_assert(bytes_equal_string(batch.entries[1].writer, "w"));
}
END_TEST

START_TEST(an_action_result_that_was_superseded_is_told_no_more)
{
    const struct digest action = put_seeded(1, 10);
    put_action(&action, 1, "old");
    put_action(&action, 2, "new");
    read_feed(LANE_SMALL, 1, 10);
    ck_assert_uint_eq(batch.count, 1);
    ck_assert_uint_eq(batch.entries[0].seq, 3);
    ck_assert(bytes_equal_string(batch.entries[0].result, "new"));
    ck_assert_uint_eq(batch.next_after_seq, 3);
}
END_TEST

START_TEST(a_blob_that_was_stored_anew_is_told_where_it_lies_now)
{
    const struct digest digest = put_seeded(1, 1000);
    put_seeded(2, 1000);
    forget_blob(&digest, FORGET_DAMAGED);
    put_seeded(1, 1000);
    read_all(LANE_SMALL, 0, 10);
    ck_assert_uint_eq(told_count, 2);
    ck_assert_uint_eq(told[0].seq, 2);
    ck_assert_uint_eq(told[1].seq, 4);
    ck_assert(digest_equal(&told[1].digest, &digest));
}
END_TEST

START_TEST(a_batch_holds_no_more_results_than_fit_but_one_of_any_size)
{
    static char result[MIB + 1];
    memset(result, 'r', sizeof(result) - 1);
    struct digest actions[5];
    for (uint64_t i = 0; i < 5; i++)
        actions[i] = put_seeded(i, 10);
    for (size_t i = 0; i < 5; i++)
        put_action(&actions[i], 1, result);
    read_feed(LANE_SMALL, 5, 100);
    ck_assert_uint_eq(batch.count,
                      1); /* two are more than 2 MiB, with what is written beside them */
    ck_assert(batch.more);
    ck_assert_uint_eq(batch.next_after_seq, 6);
    const struct feed_query little = {
        .lane = LANE_SMALL, .after_seq = 5, .records_max = 100, .bytes_max = 1, .kinds = FEED_ALL};
    ck_assert(try_read_feed(&little));
    ck_assert_uint_eq(batch.count, 1);
    ck_assert_uint_eq(batch.entries[0].result.length, MIB);
}
END_TEST

START_TEST(deletions_that_were_ordered_are_told_and_others_are_not)
{
    struct digest digests[3];
    for (uint64_t i = 0; i < 3; i++)
        digests[i] = put_seeded(i, 100);
    const struct digest large = put_seeded(9, 2 * MIB);
    const uint64_t uid = durability_store(rig.durability)->node_uid;
    forget_blob(&digests[0], FORGET_DAMAGED);
    forget_blob(&digests[1], FORGET_PURGED);
    forget_blob(&digests[2], FORGET_EVICTED);
    forget_blob(&large, FORGET_PURGED);
    ck_assert_uint_eq(read_all(LANE_SMALL, 0, 10), 7);
    ck_assert_uint_eq(told_count, 2);
    ck_assert_int_eq(told[0].kind, RECORD_FORGET);
    ck_assert_int_eq(told[0].forgotten, RECORD_BLOB);
    ck_assert(digest_equal(&told[0].digest, &digests[1]));
    ck_assert_uint_eq(told[0].origin_uid, uid);
    ck_assert(digest_equal(&told[1].digest, &large));
    ck_assert_int_eq(told[1].forgotten, RECORD_MANIFEST);
    ck_assert_int_gt(told[1].wall_ns, told[0].wall_ns);
    read_all(LANE_LARGE, 0, 10);
    ck_assert_uint_eq(told_count, 0);
}
END_TEST

START_TEST(a_deletion_of_the_first_form_was_ordered_here)
{
    const struct digest digest = put_seeded(1, 100);
    struct forget_payload payload = {.place = place_pack(place_of(&digest)),
                                     .kind = RECORD_BLOB,
                                     .reason = FORGET_PURGED,
                                     .wall_ns = 1234};
    const struct bytes data = bytes_of(&payload, 24);
    struct record record = {.kind = RECORD_FORGET,
                            .digest = digest,
                            .payload = {.parts = &data, .count = 1},
                            .payload_bytes = data.length,
                            .payload_crc32c = crc32c(0, data)};
    struct store_put put;
    store_put_init(&put);
    put.request.record = &record;
    put.request.forget = place_of(&digest);
    put.request.forget_kind = RECORD_BLOB;
    commit_submit(durability_commit(rig.durability, LANE_SMALL), &put.request);
    ck_assert(store_put_finish(&put, &status));
    for (int restart = 0; restart < 2; restart++) {
        ck_assert(!store_rig_has(&rig, &digest));
        read_all(LANE_SMALL, 0, 10);
        ck_assert_uint_eq(told_count, 1);
        ck_assert_int_eq(told[0].wall_ns, 1234);
        ck_assert_uint_eq(told[0].origin_uid, durability_store(rig.durability)->node_uid);
        store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
        store_rig_open(&rig);
    }
}
END_TEST

START_TEST(what_is_not_durable_is_not_told)
{
    struct store_put put;
    put_seeded(1, 100);
    io_sim_set_sync_delay(rig.sim, 300 * NS_PER_MS);
    ck_assert(store_put_start(&rig, &put, bytes_of_string("not yet"), &status));
    while (segment_log_pending_seq(durability_store(rig.durability)->logs[LANE_SMALL]) < 2)
        usleep(1000);
    ck_assert_uint_eq(read_all(LANE_SMALL, 0, 10), 1);
    ck_assert_uint_eq(told_count, 1);
    ck_assert(store_put_finish(&put, &status));
    ck_assert_uint_eq(read_all(LANE_SMALL, 1, 10), 2);
    ck_assert_uint_eq(told_count, 1);
}
END_TEST

/* Durable comes before visible: a reader in between must not pass over what is about to be seen. */
START_TEST(what_is_durable_and_not_yet_visible_is_not_passed_over)
{
    struct store_put put;
    put_seeded(1, 100);
    failpoint_set(FAILPOINT_commit_after_sync, FAILPOINT_SLEEP, 300);
    ck_assert(store_put_start(&rig, &put, bytes_of_string("in between"), &status));
    struct watermark *const watermark =
        commit_watermark(durability_commit(rig.durability, LANE_SMALL));
    while (watermark_durable(watermark) < 2)
        usleep(1000);
    ck_assert_uint_eq(read_all(LANE_SMALL, 0, 10), 1);
    ck_assert(store_put_finish(&put, &status));
    ck_assert_uint_eq(read_all(LANE_SMALL, 1, 10), 2);
    ck_assert_uint_eq(told_count, 1);
}
END_TEST

START_TEST(a_position_beyond_the_end_is_of_another_log)
{
    put_seeded(1, 100);
    const struct feed_query query = {
        .lane = LANE_SMALL, .after_seq = 2, .records_max = 10, .kinds = FEED_ALL};
    ck_assert(!try_read_feed(&query));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(status.message, "begin anew with after_seq 0"));
}
END_TEST

/* ---- damage */

static void corrupt(const struct place *place, uint64_t at)
{
    struct segment_set *const segments = durability_store(rig.durability)->segments;
    struct segment *const segment = segment_set_pin(segments, place->segment);
    ck_assert_ptr_nonnull(segment);
    io_sim_corrupt(rig.sim, segment->path, place->offset + at, 0x40);
    segment_set_unpin(segments, segment);
}

START_TEST(a_segment_whose_footer_is_damaged_is_gone_through_record_by_record)
{
    enum { BLOBS = 30 };
    static struct digest digests[BLOBS];
    for (uint64_t i = 0; i < BLOBS; i++)
        digests[i] = put_seeded(i, 700000);
    store_rig_close(&rig);
    store_rig_open(&rig);
    struct store *const store = durability_store(rig.durability);
    struct segment *const segment = segment_set_pin_next(store->segments, LANE_SMALL, 0);
    ck_assert(segment->sealed);
    io_sim_corrupt(rig.sim, segment->path, segment->end + 40, 1);
    segment_set_unpin(store->segments, segment);
    for (size_t page = 1; page < 20; page += 9) {
        read_all(LANE_SMALL, 0, page);
        expect_told(digests, BLOBS);
    }
    /* And over a record whose header is damaged, too. */
    const struct place place = place_of(&digests[3]);
    corrupt(&place, 10);
    read_all(LANE_SMALL, 0, 4);
    ck_assert_uint_eq(told_count, BLOBS - 1);
    ck_assert(digest_equal(&told[3].digest, &digests[4]));
}
END_TEST

START_TEST(a_footer_that_cannot_be_read_is_done_without)
{
    enum { BLOBS = 30 };
    static struct digest digests[BLOBS];
    for (uint64_t i = 0; i < BLOBS; i++)
        digests[i] = put_seeded(i, 700000);
    store_rig_close(&rig);
    store_rig_open(&rig);
    for (uint64_t nth = 1; nth <= 7; nth++) {
        /* Once when it is checked, once when it is read; twice in a row, since each read is tried twice. */
        store_rig_close(&rig);
        store_rig_open(&rig);
        io_sim_fail(rig.sim, IO_SIM_PREAD, nth, EIO, IO_SIM_ONCE);
        read_all(LANE_SMALL, 0, 4);
        expect_told(digests, BLOBS);
        io_sim_fail_nothing(rig.sim);
    }
    struct store *const store = durability_store(rig.durability);
    struct segment *const segment = segment_set_pin_next(store->segments, LANE_SMALL, 0);
    read_all(LANE_SMALL, 0, BLOBS); /* believed from now on */
    io_sim_fail(rig.sim, IO_SIM_PREAD, 1, EIO, IO_SIM_FOREVER);
    const struct feed_query query = {
        .lane = LANE_SMALL, .records_max = 10, .bytes_max = MIB, .kinds = FEED_ALL};
    ck_assert(!try_read_feed(&query)); /* a disk that reads nothing at all is no end of a log */
    io_sim_fail_nothing(rig.sim);
    segment_set_unpin(store->segments, segment);
    read_all(LANE_SMALL, 0, 7);
    expect_told(digests, BLOBS);
}
END_TEST

START_TEST(a_segment_that_cannot_be_sealed_is_gone_through_record_by_record)
{
    enum { BLOBS = 12 };
    static struct digest digests[BLOBS];
    for (uint64_t i = 0; i < BLOBS; i++)
        digests[i] = put_seeded(i, 10000);
    const struct place place = place_of(&digests[5]);
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, durability_store(rig.durability)->segments_directory, place.segment, "seg");
    store_rig_crash(&rig, 1, IO_SIM_CRASH_EVERYTHING);
    io_sim_corrupt(rig.sim, path, place.offset + RECORD_HEADER_BYTES + 5, 1);
    store_rig_open(&rig);
    usleep(50000); /* its maintenance has tried to seal it */
    const struct digest later = put_seeded(100, 10000);
    read_all(LANE_SMALL, 0, 5);
    ck_assert_uint_eq(told_count, BLOBS);
    ck_assert(digest_equal(&told[5].digest, &digests[6]));
    ck_assert(digest_equal(&told[BLOBS - 1].digest, &later));
    /* Followed on, and begun in the middle. */
    read_all(LANE_SMALL, 8, 1);
    ck_assert_uint_eq(told_count, 5);
}
END_TEST

START_TEST(an_action_result_that_is_damaged_is_not_told)
{
    const struct digest action = put_seeded(1, 10);
    struct place place;
    put_action(&action, 1, "rots");
    put_action(&action, 1, "rots too");
    const struct digest later = put_seeded(2, 10);
    ck_assert(store_find_action(durability_store(rig.durability), &action, bytes_of_string("x"),
                                FIND_ONLY, &place));
    corrupt(&place, RECORD_HEADER_BYTES + 3);
    read_all(LANE_SMALL, 1, 10);
    expect_told(&later, 1);
    ck_assert_int_ge(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), 1);
}
END_TEST

/* ---- cost */

START_TEST(following_the_end_reads_nothing_of_the_disk)
{
    enum { BLOBS = 200 };
    for (uint64_t i = 0; i < BLOBS; i++)
        put_seeded(i, 1000);
    uint64_t after_seq = read_all(LANE_SMALL, 0, 1000);
    const uint64_t before = io_sim_count(rig.sim, IO_SIM_PREAD);
    for (uint64_t i = 0; i < 50; i++) {
        put_seeded(1000 + i, 1000);
        read_feed(LANE_SMALL, after_seq, 100);
        ck_assert_uint_eq(batch.count, 1);
        after_seq = batch.next_after_seq;
    }
    ck_assert_uint_eq(io_sim_count(rig.sim, IO_SIM_PREAD), before);
}
END_TEST

START_TEST(going_through_sealed_segments_reads_their_footers_alone)
{
    enum { BLOBS = 66 };
    for (uint64_t i = 0; i < BLOBS; i++)
        put_seeded(i, 700000);
    store_rig_close(&rig);
    store_rig_open(&rig);
    const uint64_t before = io_sim_count(rig.sim, IO_SIM_PREAD);
    read_all(LANE_SMALL, 0, 1);
    ck_assert_uint_eq(told_count, BLOBS);
    /* A trailer and a footer for each of six segments, once, and a piece of a footer for each batch. */
    ck_assert_uint_le(io_sim_count(rig.sim, IO_SIM_PREAD) - before, 6 * 2 + BLOBS + 6);
}
END_TEST

/* ---- eviction */

static void setup_small(void)
{
    const struct store_rig_limits limits = {.capacity_bytes = 10 * SEGMENT_BYTES_MIN};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
    told_count = 0;
}

/* One that is used all the time moves to the end of the log with every eviction of its segment, and is told anew there. */
START_TEST(what_eviction_moves_is_told_again_at_the_end)
{
    const struct digest used = put_seeded(0, 50000);
    uint64_t after_seq = read_all(LANE_SMALL, 0, 100);
    ck_assert_uint_eq(told_count, 1);
    size_t told_again = 0;
    uint64_t last_seq = told[0].seq;
    for (uint64_t seed = 1; metrics_get(&rig.metrics, METRIC_SEGMENTS_EVICTED) < 30; seed++) {
        put_seeded(seed, 700000);
        ck_assert(store_rig_has(&rig, &used)); /* and is used */
        after_seq = read_all(LANE_SMALL, after_seq, 100);
        for (size_t i = 0; i < told_count; i++) {
            if (!digest_equal(&told[i].digest, &used))
                continue;
            told_again++;
            ck_assert_uint_gt(told[i].seq, last_seq);
            last_seq = told[i].seq;
        }
    }
    ck_assert_uint_ge(told_again, 2);
}
END_TEST

static bool was_told(const struct digest *known, size_t count, const struct digest *digest)
{
    for (size_t i = 0; i < count; i++) {
        if (digest_equal(&known[i], digest))
            return true;
    }
    return false;
}

/* A reader that is slower than eviction, and begins again where it must, ends with all that is there. */
START_TEST(a_reader_that_eviction_overtakes_misses_nothing_that_is_there)
{
    enum { BLOBS = 700 };
    static struct digest all[BLOBS];
    static struct digest known[BLOBS_MAX];
    size_t known_count = 0;
    size_t overtaken = 0;
    uint64_t after_seq = 0;
    for (uint64_t i = 0; i < BLOBS; i++) {
        all[i] = put_seeded(i, 300000);
        if (i >= 20)
            store_rig_has(&rig, &all[i - i % 20]); /* some are used, and move */
        if (i % 5 != 0)
            continue;
        const struct feed_query query = {.lane = LANE_SMALL,
                                         .after_seq = after_seq,
                                         .records_max = 3,
                                         .bytes_max = MIB,
                                         .kinds = FEED_ALL};
        if (!try_read_feed(&query)) {
            ck_assert_int_eq(status.code, STATUS_OUT_OF_RANGE);
            after_seq = 0;
            overtaken++;
            continue;
        }
        for (size_t k = 0; k < batch.count; k++)
            known[known_count++] = batch.entries[k].digest;
        after_seq = batch.next_after_seq;
    }
    ck_assert_uint_gt(overtaken, 0);
    for (;;) {
        const struct feed_query query = {.lane = LANE_SMALL,
                                         .after_seq = after_seq,
                                         .records_max = 50,
                                         .bytes_max = MIB,
                                         .kinds = FEED_ALL};
        if (!try_read_feed(&query)) {
            ck_assert_int_eq(status.code, STATUS_OUT_OF_RANGE);
            after_seq = 0;
            continue;
        }
        for (size_t k = 0; k < batch.count; k++) {
            ck_assert_uint_lt(known_count, BLOBS_MAX);
            known[known_count++] = batch.entries[k].digest;
        }
        after_seq = batch.next_after_seq;
        if (batch.count == 0 && !batch.more)
            break;
    }
    size_t there = 0;
    for (size_t i = 0; i < BLOBS; i++) {
        struct place place;
        if (!store_find_blob(durability_store(rig.durability), &all[i], FIND_ONLY, &place))
            continue;
        there++;
        ck_assert_msg(was_told(known, known_count, &all[i]), "blob %zu was not told", i);
    }
    ck_assert_uint_gt(there, 100);
    ck_assert_uint_lt(there, BLOBS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed");
    TCase *tests = tcase_create("feed");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, blobs_are_told_in_the_order_of_the_log_over_segments);
    tcase_add_test(tests, the_same_is_told_after_a_restart_and_after_a_crash);
    tcase_add_test(tests, an_empty_log_has_nothing_and_ends_where_it_begins);
    tcase_add_test(tests, a_large_blob_is_told_once_and_its_chunks_are_not);
    tcase_add_test(tests,
                   action_results_are_told_as_they_were_committed_and_not_as_they_were_dated);
    tcase_add_test(tests, an_action_result_that_was_superseded_is_told_no_more);
    tcase_add_test(tests, a_blob_that_was_stored_anew_is_told_where_it_lies_now);
    tcase_add_test(tests, a_batch_holds_no_more_results_than_fit_but_one_of_any_size);
    tcase_add_test(tests, deletions_that_were_ordered_are_told_and_others_are_not);
    tcase_add_test(tests, a_deletion_of_the_first_form_was_ordered_here);
    tcase_add_test(tests, what_is_not_durable_is_not_told);
    tcase_add_test(tests, what_is_durable_and_not_yet_visible_is_not_passed_over);
    tcase_add_test(tests, a_position_beyond_the_end_is_of_another_log);
    tcase_add_test(tests, a_segment_whose_footer_is_damaged_is_gone_through_record_by_record);
    tcase_add_test(tests, a_footer_that_cannot_be_read_is_done_without);
    tcase_add_test(tests, a_segment_that_cannot_be_sealed_is_gone_through_record_by_record);
    tcase_add_test(tests, an_action_result_that_is_damaged_is_not_told);
    tcase_add_test(tests, following_the_end_reads_nothing_of_the_disk);
    tcase_add_test(tests, going_through_sealed_segments_reads_their_footers_alone);
    suite_add_tcase(suite, tests);
    TCase *evicting = tcase_create("evicting");
    tcase_set_timeout(evicting, 240);
    tcase_add_checked_fixture(evicting, setup_small, teardown);
    tcase_add_test(evicting, what_eviction_moves_is_told_again_at_the_end);
    tcase_add_test(evicting, a_reader_that_eviction_overtakes_misses_nothing_that_is_there);
    suite_add_tcase(suite, evicting);
    return test_run(suite);
}
