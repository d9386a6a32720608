/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a follower comes to hold what its peer has, each blob fetched once; that what it reports is durable; that a liar gets
 * nothing stored; that of two results of an action the later one stands; and that peers that are gone, slow or cut off cost nothing
 * but time.
 *
 * Method: a real store with a puller, and a scripted peer that counts what it sends (tests/support/fake_peer.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/limits.h"
#include "server/action_time.h"
#include "server/peer_cursor.h"
#include "server/peers.h"
#include "server/puller.h"
#include "store/blob_reader.h"
#include "tests/support/fake_peer.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"

enum { BUFFERS = 32, PEERS = 2, LIE_PAUSE_MS = 300, PEER_UID = 77 };

static struct real_store real;
static struct metrics metrics;
static struct flights *flights;
static struct fetch_budget budget;
static struct fake_peer peers[PEERS];
static struct puller *pullers[PEERS];
static const struct peer_identity *identity; /* of pullers that are started from now on */

static void setup(void)
{
    struct status status = {0};
    real_store_open(&real, &metrics, BUFFERS);
    ck_assert(flights_new(&flights, &status));
    budget = (struct fetch_budget){.limit_bytes = PEERS_FETCH_BYTES_MAX};
    for (size_t i = 0; i < PEERS; i++)
        fake_peer_start(&peers[i], PEER_UID + i);
}

static void start_puller(size_t which, uint32_t page_records)
{
    struct status status = {0};
    const struct puller_config config = {
        .address = fake_peer_target(&peers[which]),
        .name = "test",
        .instance = "",
        .durability = real.durability,
        .flights = flights,
        .budget = &budget,
        .metrics = &metrics,
        .identity = identity,
        .lie_pause_ns = LIE_PAUSE_MS * NS_PER_MS,
        .page_records = page_records,
    };
    ck_assert_msg(puller_start(&config, &pullers[which], &status), "%s", status.message);
}

static void stop_puller(size_t which)
{
    puller_stop(pullers[which]);
    pullers[which] = NULL;
}

static void teardown(void)
{
    for (size_t i = 0; i < PEERS; i++)
        stop_puller(i);
    for (size_t i = 0; i < PEERS; i++)
        fake_peer_stop(&peers[i]);
    ck_assert_int_eq(budget.used_bytes, 0);
    flights_free(flights);
    real_store_close(&real);
}

static struct digest put(struct fake_peer *peer, uint64_t seed, size_t length)
{
    struct digest digest;
    uint8_t *const data = seeded_bytes(seed, length);
    fake_peer_put(peer, bytes_of(data, length), &digest);
    free(data);
    return digest;
}

static bool holds(const struct digest *digest)
{
    return store_holds(real.store, digest);
}

static void check_contents(const struct digest *digest, uint64_t seed)
{
    uint8_t *const expected = seeded_bytes(seed, (size_t)digest->size_bytes);
    uint8_t *data = NULL;
    struct place place;
    struct status status = {0};
    ck_assert(blob_read_whole(real.store, digest, GIB, &data, &place, &status));
    ck_assert_ptr_nonnull(data);
    ck_assert_mem_eq(data, expected, (size_t)digest->size_bytes);
    free(data);
    free(expected);
}

static struct peer_report report(size_t which)
{
    struct peer_report report;
    puller_report(pullers[which], &report);
    return report;
}

static uint64_t durable_at(const struct fake_peer *peer, int lane)
{
    return peer->counts[lane] == 0 ? 0 : peer->records[lane][peer->counts[lane] - 1].seq;
}

static bool is_up_to_date(size_t which)
{
    const struct peer_report now = report(which);
    return now.state == PEER_UP_TO_DATE &&
           now.lanes[LANE_SMALL].applied_seq == durable_at(&peers[which], FAKE_PEER_SMALL) &&
           now.lanes[LANE_LARGE].applied_seq == durable_at(&peers[which], FAKE_PEER_LARGE);
}

static uint64_t sent(struct fake_peer *peer)
{
    fake_peer_lock(peer);
    const uint64_t blobs = peer->blobs_sent;
    fake_peer_unlock(peer);
    return blobs;
}

/* ---- what an honest peer has */

enum { SMALL = 300, LARGE = 4 };

static struct digest small_blobs[SMALL];
static struct digest large_blobs[LARGE];

static void put_many(struct fake_peer *peer)
{
    for (size_t i = 0; i < SMALL; i++)
        small_blobs[i] = put(peer, i, 1 + i * 131);
    for (size_t i = 0; i < LARGE; i++)
        large_blobs[i] = put(peer, 1000 + i, (size_t)LIMIT_SMALL_BLOB_BYTES + 1 + i * 700001);
}

static void check_many(void)
{
    for (size_t i = 0; i < SMALL; i++)
        check_contents(&small_blobs[i], i);
    for (size_t i = 0; i < LARGE; i++)
        check_contents(&large_blobs[i], 1000 + i);
}

START_TEST(a_follower_comes_to_hold_what_the_peer_has_each_blob_once)
{
    struct fake_peer *const peer = &peers[0];
    put_many(peer);
    FAKE_PEER_SET(peer, no_fetch, _i == 1); /* without Fetch it is BatchReadBlobs */
    start_puller(0, _i == 2 ? 7 : 0);
    WAIT_UNTIL(is_up_to_date(0));
    check_many();
    ck_assert_uint_eq(sent(peer), SMALL + LARGE);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_FETCHED), SMALL + LARGE);
    ck_assert(_i == 0 ? FAKE_PEER_GET(peer, batches) == 0 && FAKE_PEER_GET(peer, fetches) > 0
                      : FAKE_PEER_GET(peer, batches) > 0);
    const struct peer_report now = report(0);
    ck_assert_uint_eq(now.uid, PEER_UID);
    ck_assert_uint_eq(now.blobs_fetched, SMALL + LARGE);
    ck_assert_uint_eq(now.lanes[LANE_SMALL].behind_records, 0);
    ck_assert(now.lanes[LANE_SMALL].behind_seconds == 0);
}
END_TEST

START_TEST(what_comes_later_is_fetched_at_once_and_reported_as_durable)
{
    struct fake_peer *const peer = &peers[0];
    start_puller(0, 0);
    WAIT_UNTIL(report(0).state == PEER_UP_TO_DATE);
    for (uint64_t i = 0; i < 20; i++) {
        const int64_t begun_ms = now_ms();
        const struct digest digest = put(peer, i, i % 4 == 0 ? 2 * MIB : 100);
        const int lane = i % 4 == 0 ? FAKE_PEER_LARGE : FAKE_PEER_SMALL;
        bool told = false;
        WAIT_UNTIL((fake_peer_lock(peer),
                    told = peer->follower_durable[lane] == durable_at(peer, lane),
                    fake_peer_unlock(peer), told));
        ck_assert(holds(&digest));
        ck_assert_int_lt(now_ms() - begun_ms, 2000);
    }
    ck_assert_uint_eq(FAKE_PEER_GET(peer, follower_uid), real.store->node_uid);
}
END_TEST

START_TEST(after_a_restart_nothing_that_was_durable_is_fetched_again)
{
    struct fake_peer *const peer = &peers[0];
    put_many(peer);
    FAKE_PEER_SET(peer, pause_ms, 20);
    size_t restarts = 0;
    do { /* in the middle, until there is no middle any more */
        start_puller(0, 16);
        usleep(40 * 1000);
        stop_puller(0);
        restarts++;
        ck_assert_uint_le(restarts, 1000);
    } while (metrics_get(&metrics, METRIC_PEER_BLOBS_FETCHED) < SMALL + LARGE);
    start_puller(0, 16);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_uint_gt(restarts, 2);
    /* What was on its way when it was stopped may be sent twice; what was stored is not. */
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_FETCHED), SMALL + LARGE);
    check_many();
    const uint64_t before = sent(peer);
    stop_puller(0);

    struct peer_cursor cursor;
    peer_cursor_load(real.store, PEER_UID, &cursor);
    ck_assert_uint_eq(cursor.applied_seq[LANE_SMALL], durable_at(peer, FAKE_PEER_SMALL));
    ck_assert_uint_eq(cursor.applied_seq[LANE_LARGE], durable_at(peer, FAKE_PEER_LARGE));
    /* Without the cursor all is looked at again, and nothing fetched. */
    if (_i == 1) {
        char path[TEMP_DIR_PATH_BYTES_MAX + 64];
        snprintf(path, sizeof(path), "%s/peers/%016x", real.directory.path, (unsigned)PEER_UID);
        ck_assert_int_eq(unlink(path), 0);
    }
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_uint_eq(sent(peer), before);
    const struct digest later = put(peer, 5000, 10);
    WAIT_UNTIL(holds(&later));
    ck_assert_uint_eq(sent(peer), before + 1);
}
END_TEST

START_TEST(two_peers_with_the_same_blobs_send_each_once_together)
{
    for (size_t i = 0; i < PEERS; i++) {
        put_many(&peers[i]);
        FAKE_PEER_SET(&peers[i], pause_ms, 5);
    }
    for (size_t i = 0; i < PEERS; i++)
        start_puller(i, 0);
    for (size_t i = 0; i < PEERS; i++)
        WAIT_UNTIL(is_up_to_date(i));
    check_many();
    ck_assert_uint_eq(sent(&peers[0]) + sent(&peers[1]), SMALL + LARGE);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), SMALL + LARGE);
}
END_TEST

START_TEST(large_blobs_are_fetched_sixteen_at_a_time_at_most)
{
    struct fake_peer *const peer = &peers[0];
    for (size_t i = 0; i < 40; i++)
        put(peer, i, (size_t)LIMIT_SMALL_BLOB_BYTES + 1 + i);
    FAKE_PEER_SET(peer, pause_ms, 20);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_uint_eq(sent(peer), 40);
    ck_assert_uint_gt(FAKE_PEER_GET(peer, read_live_max), 1);
    ck_assert_uint_le(FAKE_PEER_GET(peer, read_live_max), 16);
}
END_TEST

START_TEST(sixteen_arrivals_at_once_share_at_most_two_syncs)
{
    struct fake_peer *const peer = &peers[0];
    start_puller(0, 0);
    WAIT_UNTIL(report(0).state == PEER_UP_TO_DATE);
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_SLEEP, 200);
    const int64_t before = metrics_get(&metrics, METRIC_SEGMENT_SYNCS_SMALL);
    for (uint64_t i = 0; i < 16; i++)
        put(peer, i, 4000);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), 16);
    ck_assert_int_le(metrics_get(&metrics, METRIC_SEGMENT_SYNCS_SMALL) - before, 2);
}
END_TEST

START_TEST(a_blob_that_is_cut_off_anywhere_is_never_visible_before_it_is_whole)
{
    struct fake_peer *const peer = &peers[0];
    start_puller(0, 0);
    WAIT_UNTIL(report(0).state == PEER_UP_TO_DATE);
    for (uint64_t i = 0; i < 40; i++) {
        const size_t length = 4 * MIB;
        struct digest digest;
        uint8_t *const data = seeded_bytes(i, length);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &digest);
        fake_peer_lock(peer);
        peer->read_cut_at = i * 104729 + i % 2;
        peer->read_cuts = (unsigned)(1 + i % 5); /* more of them than there are tries at once */
        fake_peer_unlock(peer);
        fake_peer_put(peer, bytes_of(data, length), &digest);
        bool seen = false;
        while (!seen) {
            fake_peer_lock(peer);
            const unsigned cuts = peer->read_cuts;
            fake_peer_unlock(peer);
            seen = holds(&digest);
            ck_assert(!seen || cuts == 0);
            usleep(1000);
        }
        check_contents(&digest, i);
        free(data);
    }
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_LIES), 0);
}
END_TEST

/* ---- liars */

static struct byte_builder result_of(const struct digest *output, int number)
{
    struct byte_builder result = {0};
    if (output != NULL)
        result_add_file(&result, "out", output);
    message_add_number(&result, 4, (uint64_t)number); /* exit_code */
    return result;
}

START_TEST(a_liar_gets_nothing_stored_and_is_left_alone)
{
    struct fake_peer *const peer = &peers[0];
    const enum fake_lie lie = (enum fake_lie)_i;
    const struct digest action = digest_of_nothing(1);
    for (uint64_t i = 0; i < 200; i++)
        small_blobs[i] = put(peer, i, 5000);
    struct byte_builder result = result_of(NULL, 1);
    fake_peer_put_action(peer, &action, message_bytes(&result), 1000, PEER_UID);
    byte_builder_free(&result);
    FAKE_PEER_SET(peer, lie, lie);
    start_puller(0, lie == FAKE_LIE_MANY_RECORDS ? 100 : 0);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_PEER_LIES) == 1);
    WAIT_UNTIL(report(0).state == PEER_REFUSED);
    ck_assert_int_ne(report(0).last_error.code, STATUS_OK);
    if (lie !=
        FAKE_LIE_ENDLESS) { /* what it sends before is right, and the next time it may be all */
        ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), 0);
        ck_assert_int_eq(metrics_get(&metrics, METRIC_ACTION_RESULTS_WRITTEN), 0);
    }
    usleep(LIE_PAUSE_MS * 1000 / 6); /* what was asked before */
    const unsigned feeds = FAKE_PEER_GET(peer, feeds);
    usleep(LIE_PAUSE_MS * 1000 / 3);
    ck_assert_uint_eq(FAKE_PEER_GET(peer, feeds), feeds);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_LIES), 1);
    /* Everybody may better himself. */
    FAKE_PEER_SET(peer, lie, FAKE_HONEST);
    WAIT_UNTIL(is_up_to_date(0));
    for (uint64_t i = 0; i < 200; i++)
        check_contents(&small_blobs[i], i);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_ACTION_RESULTS_WRITTEN), 1);
}
END_TEST

/* All is here, and the call is not over: 0: nobody follows any more; 1: the peer turns out to be a liar elsewhere, and is followed again. */
START_TEST(a_fetch_that_does_not_end_with_its_last_record_holds_nothing_up)
{
    struct fake_peer *const peer = &peers[0];
    for (uint64_t i = 0; i < 200; i++)
        small_blobs[i] = put(peer, i, 5000);
    FAKE_PEER_SET(peer, fetch_hangs, true);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_uint_eq(FAKE_PEER_GET(peer, fetches), 1);
    if (_i == 1) {
        FAKE_PEER_SET(peer, fetch_hangs, false);
        FAKE_PEER_SET(peer, lie, FAKE_LIE_UNKNOWN_KIND);
        put(peer, 1000, 100);
        WAIT_UNTIL(report(0).state == PEER_REFUSED);
        FAKE_PEER_SET(peer, lie, FAKE_HONEST);
        const struct digest later = put(peer, 2000, 100);
        WAIT_UNTIL(is_up_to_date(0));
        ck_assert(holds(&later));
    }
    stop_puller(0);
    for (uint64_t i = 0; i < 200; i++)
        check_contents(&small_blobs[i], i);
}
END_TEST

START_TEST(a_liar_about_large_blobs_gets_nothing_stored)
{
    static const enum fake_lie lies[] = {FAKE_LIE_WRONG_BYTES, FAKE_LIE_TOO_MANY_BYTES,
                                         FAKE_LIE_ENDLESS};
    struct fake_peer *const peer = &peers[0];
    const struct digest digest = put(peer, 1, 3 * MIB);
    FAKE_PEER_SET(peer, lie, lies[_i]);
    start_puller(0, 0);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_PEER_LIES) == 1);
    WAIT_UNTIL(report(0).state == PEER_REFUSED);
    ck_assert(!holds(&digest));
    FAKE_PEER_SET(peer, lie, FAKE_HONEST);
    WAIT_UNTIL(is_up_to_date(0));
    check_contents(&digest, 1);
}
END_TEST

START_TEST(a_liar_in_a_batch_gets_nothing_stored)
{
    static const enum fake_lie lies[] = {FAKE_LIE_WRONG_BYTES, FAKE_LIE_TOO_MANY_BYTES};
    struct fake_peer *const peer = &peers[0];
    const struct digest digest = put(peer, 1, 300);
    FAKE_PEER_SET(peer, lie, lies[_i]);
    start_puller(0, 0);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_PEER_LIES) == 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), 0);
    ck_assert(!holds(&digest));
}
END_TEST

START_TEST(a_peer_that_is_this_very_node_is_not_followed)
{
    FAKE_PEER_SET(&peers[0], uid, real.store->node_uid);
    const struct digest digest = put(&peers[0], 1, 100);
    start_puller(0, 0);
    WAIT_UNTIL(report(0).state == PEER_REFUSED);
    usleep(100 * 1000);
    ck_assert(!holds(&digest));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_LIES), 0);
}
END_TEST

/* ---- action results */

static int exit_code_of(const struct digest *action)
{
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place;
    struct status status = {0};
    ck_assert(
        action_read(real.store, action, bytes_of(NULL, 0), &memory, &record, &place, &status));
    if (memory == NULL)
        return -1;
    /* exit_code is the last field, one byte. */
    const int code = record.result.data[record.result.length - 1];
    free(memory);
    return code;
}

static void tell_result(struct fake_peer *peer,
                        const struct digest *action,
                        const struct digest *output,
                        int number,
                        int64_t written_ns,
                        uint64_t origin_uid)
{
    struct byte_builder result = result_of(output, number);
    fake_peer_put_action(peer, action, message_bytes(&result), written_ns, origin_uid);
    byte_builder_free(&result);
}

START_TEST(of_two_results_the_later_one_stands_wherever_it_comes_from)
{
    const struct digest action = digest_of_nothing(1);
    const struct digest tied = digest_of_nothing(2);
    for (size_t i = 0; i < PEERS; i++)
        start_puller(i, 0);
    tell_result(&peers[0], &action, NULL, 1, 2000, 5);
    tell_result(&peers[0], &tied, NULL, 1, 2000, 5);
    WAIT_UNTIL(exit_code_of(&action) == 1 && exit_code_of(&tied) == 1);
    tell_result(&peers[1], &action, NULL, 2, 1000, 9); /* written before, told after */
    tell_result(&peers[1], &tied, NULL, 2, 2000, 4);
    WAIT_UNTIL(is_up_to_date(1));
    ck_assert_int_eq(exit_code_of(&action), 1);
    ck_assert_int_eq(exit_code_of(&tied), 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_ACTIONS_OLDER), 2);
    tell_result(&peers[1], &action, NULL, 3, 3000, 1);
    tell_result(&peers[1], &tied, NULL, 3, 2000, 6);
    WAIT_UNTIL(exit_code_of(&action) == 3 && exit_code_of(&tied) == 3);
    /* The same once more is no news. */
    tell_result(&peers[0], &action, NULL, 3, 3000, 1);
    WAIT_UNTIL(is_up_to_date(0));
    WAIT_UNTIL(is_up_to_date(1)); /* visible is sooner than counted */
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_ACTIONS_TAKEN), 4);
}
END_TEST

START_TEST(two_peers_that_tell_results_of_one_action_at_once_end_in_the_later_one)
{
    for (uint64_t round = 0; round < 30; round++) {
        const struct digest action = digest_of_nothing(round);
        tell_result(&peers[round % 2], &action, NULL, 1, 1000, 5);
        tell_result(&peers[(round + 1) % 2], &action, NULL, 2, 2000, 5);
    }
    for (size_t i = 0; i < PEERS; i++)
        start_puller(i, 0);
    for (size_t i = 0; i < PEERS; i++)
        WAIT_UNTIL(is_up_to_date(i));
    for (uint64_t round = 0; round < 30; round++) {
        const struct digest action = digest_of_nothing(round);
        ck_assert_int_eq(exit_code_of(&action), 2);
    }
}
END_TEST

START_TEST(provenance_comes_along)
{
    const struct digest action = digest_of_nothing(1);
    tell_result(&peers[0], &action, NULL, 1, 123456789, 4711);
    start_puller(0, 0);
    WAIT_UNTIL(exit_code_of(&action) == 1);
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place;
    struct status status = {0};
    ck_assert(
        action_read(real.store, &action, bytes_of(NULL, 0), &memory, &record, &place, &status));
    ck_assert_int_eq(record.written_wall_ns, 123456789);
    ck_assert_uint_eq(record.node_uid, 4711);
    ck_assert(bytes_equal_string(record.writer, "fake"));
    free(memory);
}
END_TEST

START_TEST(an_action_result_is_there_only_after_all_that_it_names)
{
    struct fake_peer *const peer = &peers[0];
    const struct digest action = digest_of_nothing(1);
    /* Told before its outputs, of which one lies in the other lane. */
    uint8_t *const data = seeded_bytes(1, 2 * MIB);
    struct digest large;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, 2 * MIB), &large);
    tell_result(peer, &action, &large, 1, 1000, 5);
    fake_peer_put(peer, bytes_of(data, 2 * MIB), &large);
    free(data);
    FAKE_PEER_SET(peer, pause_ms, 50);
    start_puller(0, 1);
    int code;
    do {
        code = exit_code_of(&action);
        ck_assert(code == -1 || holds(&large));
    } while (code == -1);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_uint_eq(sent(peer), 1);
}
END_TEST

START_TEST(what_is_no_action_result_travels_as_it_is)
{
    static const uint8_t value[] = {0xff, 0xff, 7};
    const struct digest action = digest_of_nothing(1);
    fake_peer_put_action(&peers[0], &action, bytes_of(value, sizeof(value)), 1000, 5);
    start_puller(0, 0);
    WAIT_UNTIL(exit_code_of(&action) == 7);
}
END_TEST

START_TEST(a_result_whose_outputs_nobody_has_is_left_out_and_comes_when_it_is_told_again)
{
    struct fake_peer *const peer = &peers[0];
    const struct digest action = digest_of_nothing(1);
    const struct digest output = put(peer, 1, 100);
    fake_peer_lose(peer, &output, true);
    tell_result(peer, &action, &output, 1, 1000, 5);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_int_eq(exit_code_of(&action), -1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_ACTIONS_INCOMPLETE), 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_SKIPPED), 1);
    fake_peer_lose(peer, &output, false);
    tell_result(peer, &action, &output, 1, 1000, 5);
    WAIT_UNTIL(exit_code_of(&action) == 1);
    ck_assert(holds(&output));
}
END_TEST

START_TEST(deletions_travel)
{
    struct fake_peer *const peer = &peers[0];
    const struct digest blob = put(peer, 1, 100);
    const struct digest again = put(peer, 2, 100);
    const struct digest older = digest_of_nothing(1);
    tell_result(peer, &older, NULL, 1, 1, 0x10); /* written before the deletion */
    start_puller(0, 0);
    WAIT_UNTIL(holds(&blob) && holds(&again) && exit_code_of(&older) == 1);
    fake_peer_forget(peer, &blob, VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB);
    WAIT_UNTIL(!holds(&blob));
    /* Stored anew at once: it stays. */
    stop_puller(0);
    fake_peer_forget(peer, &again, VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB);
    put(peer, 2, 100);
    fake_peer_forget(peer, &older, VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert(holds(&again));
    ck_assert_int_eq(exit_code_of(&older), -1);
    /* Of what is not here nothing is written. */
    const struct digest nothing = digest_of_nothing(7);
    const int64_t bytes = metrics_get(&metrics, METRIC_RECORD_BYTES_APPENDED);
    fake_peer_lock(peer);
    fake_peer_unlock(peer);
    fake_peer_forget(peer, &nothing, VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_RECORD_BYTES_APPENDED), bytes);
}
END_TEST

START_TEST(what_is_written_here_is_later_than_all_that_a_peer_told)
{
    const int64_t now_ns = clock_wall_ns(clock_real());
    const struct digest evicted = digest_of_nothing(1);
    const struct digest deleted = digest_of_nothing(2);
    FAKE_PEER_SET(&peers[0], write_time_ns, now_ns + 3600 * NS_PER_S);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_int_gt(action_time_of_writing(real.store, &evicted, bytes_of(NULL, 0)),
                     now_ns + 3600 * NS_PER_S);
    tell_result(&peers[0], &deleted, NULL, 1, now_ns + 7200 * NS_PER_S, 5);
    fake_peer_forget(&peers[0], &deleted, VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert_int_gt(action_time_of_writing(real.store, &deleted, bytes_of(NULL, 0)),
                     now_ns + 7200 * NS_PER_S);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_LIES), 0);
}
END_TEST

/* The lanes are read side by side: the deletion may come after what was stored later. */
START_TEST(a_large_blob_that_was_stored_anew_after_its_deletion_stays)
{
    enum { BYTES = 2 * MIB };
    struct fake_peer *const peer = &peers[0];
    const struct digest again = put(peer, 1, BYTES);
    const struct digest gone = put(peer, 2, BYTES);
    put(peer, 1, BYTES); /* anew */
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert(holds(&again) && holds(&gone));
    fake_peer_lose(peer, &gone, true);
    fake_peer_forget(peer, &gone, VARVE__V1__RECORD_KIND__RECORD_KIND_MANIFEST);
    fake_peer_forget(peer, &again, VARVE__V1__RECORD_KIND__RECORD_KIND_MANIFEST);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert(!holds(&gone));
    check_contents(&again, 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_FORGETS), 2);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_SKIPPED), 0);
}
END_TEST

/* ---- who we are */

static void write_text(const char *path, const char *text)
{
    FILE *const file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(the_token_is_shown_and_read_again_when_it_is_renewed)
{
    struct temp_dir directory;
    temp_dir_make(&directory);
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    snprintf(path, sizeof(path), "%s/token", directory.path);
    const struct peer_identity who = {.certificate = "", .key = "", .ca = "", .token = path};
    identity = &who;
    write_text(path, "first\n");
    FAKE_PEER_SET(&peers[0], wants, "Bearer first");
    const struct digest before = put(&peers[0], 1, 100);
    start_puller(0, 0);
    WAIT_UNTIL(holds(&before));
    FAKE_PEER_SET(&peers[0], wants, "Bearer second");
    const struct digest after = put(&peers[0], 2, 100);
    WAIT_UNTIL(report(0).last_error.code == STATUS_UNAUTHENTICATED);
    ck_assert(!holds(&after));
    write_text(path, "second\n");
    WAIT_UNTIL(holds(&after));
    /* One that cannot be sent changes nothing. */
    write_text(path, "\001\n");
    usleep(1500 * 1000);
    const struct digest last = put(&peers[0], 3, 100);
    WAIT_UNTIL(holds(&last));
    stop_puller(0);
    temp_dir_remove(&directory);
}
END_TEST

START_TEST(a_token_that_cannot_be_read_is_told_at_once)
{
    const struct peer_identity who = {
        .certificate = "", .key = "", .ca = "", .token = "/nowhere/token"};
    struct client *client = NULL;
    struct status status = {0};
    ck_assert(!peer_connect("127.0.0.1:1", "", &who, clock_real(), &client, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(status.message, "/nowhere/token"));
}
END_TEST

/* ---- logs that are not what they were */

START_TEST(a_peer_with_another_log_is_followed_from_its_beginning)
{
    struct fake_peer *const peer = &peers[0];
    put_many(peer);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    const uint64_t before = sent(peer);
    fake_peer_lock(peer);
    if (_i == 0) {
        peer->uid += 100; /* its disk was replaced */
    } else if (_i == 1) {
        /* The last of its log is lost. */
        for (size_t i = 200; i < peer->counts[0]; i++)
            free(peer->records[0][i].data);
        peer->counts[0] = 200;
    } else {
        peer->evicted_to_seq = UINT64_MAX;
    }
    fake_peer_unlock(peer);
    if (_i == 2) {
        /* Our position was evicted: what lives is told anew. */
        stop_puller(0);
        fake_peer_lock(peer);
        peer->evicted_to_seq = durable_at(peer, FAKE_PEER_SMALL) + 1;
        fake_peer_unlock(peer);
        put(peer, 9000, 10);
        start_puller(0, 0);
    }
    const struct digest later = put(peer, 9001, 100);
    WAIT_UNTIL(holds(&later) && is_up_to_date(0));
    check_many();
    ck_assert_uint_eq(sent(peer), before + (_i == 2 ? 2 : 1));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_LIES), 0);
}
END_TEST

/* ---- peers and stores in trouble */

START_TEST(a_peer_that_is_gone_is_followed_again_when_it_is_back)
{
    struct fake_peer *const peer = &peers[0];
    put_many(peer);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    const struct peer_report then = report(0);
    fake_peer_go(peer);
    WAIT_UNTIL(report(0).state == PEER_CONNECTING);
    usleep(300 * 1000);
    ck_assert(report(0).lanes[LANE_SMALL].behind_seconds > 0.2);
    ck_assert_uint_eq(report(0).lanes[LANE_SMALL].applied_seq, then.lanes[LANE_SMALL].applied_seq);
    ck_assert_int_gt(metrics_get(&metrics, METRIC_PEER_FAILURES), 0);
    stop_puller(0);
    fake_peer_come(peer);
    const struct digest later = put(peer, 9001, 100);
    start_puller(0, 0);
    WAIT_UNTIL(holds(&later));
}
END_TEST

START_TEST(a_stop_never_waits_for_the_peer)
{
    struct fake_peer *const peer = &peers[0];
    put_many(peer);
    if (_i == 0)
        FAKE_PEER_SET(peer, black_hole, true);
    else
        FAKE_PEER_SET(peer, pause_ms, 3000); /* in the middle of fetches */
    start_puller(0, 0);
    usleep(200 * 1000);
    const int64_t begun_ms = now_ms();
    puller_ask_to_stop(pullers[0]); /* twice is once */
    stop_puller(0);
    ck_assert_int_lt(now_ms() - begun_ms, 1000);
}
END_TEST

START_TEST(while_our_own_disk_is_full_the_puller_waits_and_then_goes_on)
{
    enum { BLOBS = 80 };
    struct fake_peer *const peer = &peers[0];
    start_puller(0, 0);
    WAIT_UNTIL(report(0).state == PEER_UP_TO_DATE);
    usleep(200 * 1000); /* the next segment is made ahead */
    atomic_store(&real.allocate_errno, ENOSPC);
    for (uint64_t i = 0; i < BLOBS; i++) /* more than two segments */
        small_blobs[i] = put(peer, i, MIB);
    WAIT_UNTIL(metrics_get(&metrics, METRIC_PEER_FAILURES) > 0);
    WAIT_UNTIL(report(0).state == PEER_CONNECTING);
    ck_assert_int_ne(report(0).last_error.code, STATUS_OK);
    atomic_store(&real.allocate_errno, 0);
    WAIT_UNTIL(is_up_to_date(0));
    for (uint64_t i = 0; i < BLOBS; i++)
        check_contents(&small_blobs[i], i);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_FETCHED), BLOBS);
}
END_TEST

START_TEST(what_is_too_large_for_this_store_is_left_out)
{
    struct fake_peer *const peer = &peers[0];
    real.store->blob_bytes_max = 2 * MIB;
    const struct digest large = put(peer, 1, 3 * MIB);
    const struct digest fits = put(peer, 2, 2 * MIB - 1);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert(!holds(&large));
    ck_assert(holds(&fits));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_PEER_BLOBS_SKIPPED), 1);
}
END_TEST

START_TEST(what_was_evicted_here_is_not_fetched_again)
{
    struct fake_peer *const peer = &peers[0];
    const struct digest digest = put(peer, 1, 100);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    struct place place;
    ck_assert(blob_table_get(real.store->table, blob_table_blob_key(real.store->table, &digest),
                             false, &place));
    ck_assert(blob_table_remove(real.store->table, blob_table_blob_key(real.store->table, &digest),
                                place));
    const struct digest later = put(peer, 2, 100);
    WAIT_UNTIL(holds(&later));
    stop_puller(0);
    start_puller(0, 0);
    WAIT_UNTIL(is_up_to_date(0));
    ck_assert(!holds(&digest));
    ck_assert_uint_eq(sent(peer), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("puller");
    TCase *tests = tcase_create("with a scripted peer");
    tcase_set_timeout(tests, 180);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_follower_comes_to_hold_what_the_peer_has_each_blob_once, 0, 3);
    tcase_add_test(tests, what_comes_later_is_fetched_at_once_and_reported_as_durable);
    tcase_add_loop_test(tests, after_a_restart_nothing_that_was_durable_is_fetched_again, 0, 2);
    tcase_add_test(tests, two_peers_with_the_same_blobs_send_each_once_together);
    tcase_add_test(tests, large_blobs_are_fetched_sixteen_at_a_time_at_most);
    tcase_add_test(tests, sixteen_arrivals_at_once_share_at_most_two_syncs);
    tcase_add_test(tests, a_blob_that_is_cut_off_anywhere_is_never_visible_before_it_is_whole);
    tcase_add_loop_test(tests, a_liar_gets_nothing_stored_and_is_left_alone, FAKE_LIE_WRONG_BYTES,
                        FAKE_LIES);
    tcase_add_loop_test(tests, a_fetch_that_does_not_end_with_its_last_record_holds_nothing_up, 0,
                        2);
    tcase_add_loop_test(tests, a_liar_about_large_blobs_gets_nothing_stored, 0, 3);
    tcase_add_loop_test(tests, a_liar_in_a_batch_gets_nothing_stored, 0, 2);
    tcase_add_test(tests, a_peer_that_is_this_very_node_is_not_followed);
    tcase_add_test(tests, of_two_results_the_later_one_stands_wherever_it_comes_from);
    tcase_add_test(tests, two_peers_that_tell_results_of_one_action_at_once_end_in_the_later_one);
    tcase_add_test(tests, provenance_comes_along);
    tcase_add_test(tests, what_is_no_action_result_travels_as_it_is);
    tcase_add_test(tests, an_action_result_is_there_only_after_all_that_it_names);
    tcase_add_test(tests,
                   a_result_whose_outputs_nobody_has_is_left_out_and_comes_when_it_is_told_again);
    tcase_add_test(tests, deletions_travel);
    tcase_add_test(tests, a_large_blob_that_was_stored_anew_after_its_deletion_stays);
    tcase_add_test(tests, the_token_is_shown_and_read_again_when_it_is_renewed);
    tcase_add_test(tests, a_token_that_cannot_be_read_is_told_at_once);
    tcase_add_test(tests, what_is_written_here_is_later_than_all_that_a_peer_told);
    tcase_add_loop_test(tests, a_peer_with_another_log_is_followed_from_its_beginning, 0, 3);
    tcase_add_test(tests, a_peer_that_is_gone_is_followed_again_when_it_is_back);
    tcase_add_loop_test(tests, a_stop_never_waits_for_the_peer, 0, 2);
    tcase_add_test(tests, while_our_own_disk_is_full_the_puller_waits_and_then_goes_on);
    tcase_add_test(tests, what_is_too_large_for_this_store_is_left_out);
    tcase_add_test(tests, what_was_evicted_here_is_not_fetched_again);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
