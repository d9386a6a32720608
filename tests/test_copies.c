/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves when a write is acknowledged where others must have it, too: not before enough of them have said so, each lane for itself;
 * and what becomes of it when they do not: refused though it is stored, or answered for all until they have caught up. The
 * whole of a store with its threads, on the simulated disk and a clock that the test moves; followers are what the test says.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "durability/copies.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { FIRST = 101, SECOND = 102 };
#define TIMEOUT_NS (10 * NS_PER_S)
#define WAIT_NS (30 * NS_PER_S)

static struct store_rig rig;
static struct clock_sim sim;
static struct copies *copies;

static void setup(void)
{
    clock_sim_init(&sim, 1000 * NS_PER_S);
    const struct store_rig_limits limits = {.clock = &sim.clock};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
    copies = durability_copies(rig.durability);
}

static void teardown(void)
{
    store_rig_end(&rig);
}

static void want(unsigned wanted, enum copies_otherwise otherwise)
{
    const struct copies_config config = {
        .wanted = wanted, .timeout_ns = TIMEOUT_NS, .otherwise = otherwise};
    copies_configure(copies, &config);
}

static void need_bucket(uint64_t uid, unsigned wanted, enum copies_otherwise otherwise)
{
    const struct copies_config config = {.wanted = wanted,
                                         .bucket_uid = uid,
                                         .bucket_needed = true,
                                         .timeout_ns = TIMEOUT_NS,
                                         .otherwise = otherwise};
    copies_configure(copies, &config);
}

static void report(uint64_t uid, enum lane lane, uint64_t durable_seq)
{
    const struct follower_report told = {.uid = uid,
                                         .name = bytes_of_string("a node"),
                                         .address = bytes_of_string("ipv4:127.0.0.1:1"),
                                         .lane = lane,
                                         .durable_seq = durable_seq,
                                         .wait_ns = WAIT_NS};
    copies_report(copies, &told);
}

/* It says that it has all that there is. */
static void catch_up(uint64_t uid)
{
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        report(uid, lane, copies_published_seq(copies, lane));
}

static bool is_done(struct store_put *put)
{
    lock_acquire(&put->lock);
    const bool done = put->done;
    lock_release(&put->lock);
    return done;
}

static void start(struct store_put *put, const char *data)
{
    struct status status;
    ck_assert(store_put_start(&rig, put, bytes_of_string(data), &status));
}

/* Until the record is durable here and waits for others. */
static void wait_until_held(int64_t rounds)
{
    while (metrics_get(&rig.metrics, METRIC_ACK_COPIES_WAITING) < rounds)
        usleep(1000);
}

static enum status_code finish(struct store_put *put)
{
    struct status status;
    return store_put_finish(put, &status) ? STATUS_OK : status.code;
}

static void advance(int64_t ns)
{
    clock_sim_advance(&sim, ns);
    copies_step(copies);
}

START_TEST(a_write_is_acknowledged_when_as_many_as_were_asked_for_have_it)
{
    struct store_put put;
    want(2, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    const uint64_t seq = copies_published_seq(copies, LANE_SMALL);
    ck_assert_uint_eq(seq, 1);
    report(FIRST, LANE_SMALL, 0);
    report(SECOND, LANE_SMALL, 0);
    report(FIRST, LANE_SMALL, seq);
    report(FIRST, LANE_SMALL, seq); /* one follower is one copy, however often it says so */
    copies_step(copies);
    usleep(20000);
    ck_assert(!is_done(&put));
    report(SECOND, LANE_SMALL, seq);
    ck_assert_int_eq(finish(&put), STATUS_OK);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_ACK_COPIES_WAITING), 0);
}
END_TEST

START_TEST(nobody_waits_unless_copies_are_asked_for)
{
    struct store_put put;
    start(&put, "data");
    ck_assert_int_eq(finish(&put), STATUS_OK);
    ck_assert(!copies_await_blob(copies, &put.digest, &put.request.ack));
}
END_TEST

START_TEST(each_lane_waits_for_its_own_log)
{
    struct store_put small;
    struct store_put large;
    struct status status;
    uint8_t *const data = seeded_bytes(1, 3 * MIB);
    want(1, COPIES_REFUSE);
    start(&small, "data");
    wait_until_held(1);
    ck_assert(store_put_start(&rig, &large, bytes_of(data, 3 * MIB), &status));
    wait_until_held(2);
    report(FIRST, LANE_LARGE, copies_published_seq(copies, LANE_LARGE));
    ck_assert_int_eq(finish(&large), STATUS_OK);
    usleep(20000);
    ck_assert(!is_done(&small));
    report(FIRST, LANE_SMALL, copies_published_seq(copies, LANE_SMALL));
    ck_assert_int_eq(finish(&small), STATUS_OK);
    free(data);
}
END_TEST

START_TEST(a_write_whose_time_is_over_is_refused_though_it_is_stored)
{
    struct store_put put;
    struct status status;
    want(1, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    advance(TIMEOUT_NS - 1);
    usleep(20000);
    ck_assert(!is_done(&put));
    advance(1);
    ck_assert(!store_put_finish(&put, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, "stored here, but not on 1 other nodes within"));
    ck_assert(store_rig_reads(&rig, &put.digest, bytes_of_string("data")));
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_ACK_COPIES_LATE), 1);

    /* Sent again it is not written again, and still waits. */
    const int64_t written = metrics_get(&rig.metrics, METRIC_BLOBS_WRITTEN);
    start(&put, "data");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&put), STATUS_OK);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_BLOBS_WRITTEN), written);
}
END_TEST

START_TEST(no_number_of_nodes_stands_in_for_a_bucket_that_is_needed)
{
    struct store_put puts[3];
    struct status status;
    need_bucket(FIRST, 0, COPIES_REFUSE);
    start(&puts[0], "one");
    wait_until_held(1);
    catch_up(SECOND);
    catch_up(SECOND + 1);
    ck_assert(!copies_cover_all(copies));
    usleep(20000);
    ck_assert(!is_done(&puts[0]));
    catch_up(FIRST);
    ck_assert_int_eq(finish(&puts[0]), STATUS_OK);
    ck_assert(copies_cover_all(copies));

    /* Nor is it one of those that are wanted besides. */
    need_bucket(FIRST, 1, COPIES_REFUSE);
    start(&puts[1], "two");
    wait_until_held(1);
    catch_up(FIRST);
    usleep(20000);
    ck_assert(!is_done(&puts[1]));
    catch_up(SECOND);
    ck_assert_int_eq(finish(&puts[1]), STATUS_OK);

    start(&puts[2], "three");
    wait_until_held(1);
    catch_up(SECOND);
    advance(TIMEOUT_NS);
    ck_assert(!store_put_finish(&puts[2], &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, "not in the bucket (tier-mode) and on 1 other"));
}
END_TEST

START_TEST(a_bucket_that_is_not_needed_is_seen_and_is_no_copy)
{
    struct store_put put;
    struct follower follower;
    struct copies_state state;
    const struct copies_config config = {
        .wanted = 1, .bucket_uid = FIRST, .timeout_ns = TIMEOUT_NS, .otherwise = COPIES_REFUSE};
    copies_configure(copies, &config);
    start(&put, "data");
    wait_until_held(1);
    catch_up(FIRST);
    usleep(20000);
    ck_assert(!is_done(&put));
    ck_assert_uint_eq(copies_followers(copies, &follower, 1), 1);
    ck_assert_uint_eq(follower.uid, FIRST);
    ck_assert_uint_eq(follower.behind_records[LANE_SMALL], 0);
    copies_state(copies, &state);
    ck_assert_uint_eq(state.counting, 0);
    catch_up(SECOND);
    ck_assert_int_eq(finish(&put), STATUS_OK);
}
END_TEST

START_TEST(degraded_for_want_of_the_bucket_ends_when_that_has_caught_up)
{
    struct store_put puts[2];
    struct copies_state state;
    need_bucket(FIRST, 0, COPIES_DEGRADE);
    start(&puts[0], "one");
    wait_until_held(1);
    advance(TIMEOUT_NS);
    ck_assert_int_eq(finish(&puts[0]), STATUS_OK);
    catch_up(SECOND);
    copies_state(copies, &state);
    ck_assert(state.degraded && state.bucket_needed);
    catch_up(FIRST);
    copies_state(copies, &state);
    ck_assert(!state.degraded);
    start(&puts[1], "two");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&puts[1]), STATUS_OK);
}
END_TEST

START_TEST(degraded_writes_wait_for_nobody_until_the_followers_have_caught_up)
{
    struct store_put puts[3];
    struct copies_state state;
    want(1, COPIES_DEGRADE);
    start(&puts[0], "one");
    wait_until_held(1);
    advance(TIMEOUT_NS);
    ck_assert_int_eq(finish(&puts[0]), STATUS_OK);
    copies_state(copies, &state);
    ck_assert(state.degraded);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_ACK_COPIES_DEGRADED), 1);
    start(&puts[1], "two");
    ck_assert_int_eq(finish(&puts[1]), STATUS_OK);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_ACK_COPIES_UNWAITED), 2);

    /* One that is behind is no reason to wait again; nor is one that has only one lane. */
    report(FIRST, LANE_SMALL, 1);
    copies_state(copies, &state);
    ck_assert(state.degraded);
    report(FIRST, LANE_SMALL, copies_published_seq(copies, LANE_SMALL));
    copies_state(copies, &state);
    ck_assert(state.degraded);
    report(FIRST, LANE_LARGE, copies_published_seq(copies, LANE_LARGE));
    copies_state(copies, &state);
    ck_assert(!state.degraded);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_ACK_COPIES_DEGRADED), 0);
    start(&puts[2], "three");
    wait_until_held(1);
    usleep(20000);
    ck_assert(!is_done(&puts[2]));
    catch_up(FIRST);
    ck_assert_int_eq(finish(&puts[2]), STATUS_OK);
}
END_TEST

/* Its reports are always a little old while others write; it keeps up all the same. */
START_TEST(a_follower_keeps_up_when_it_is_where_the_log_ended_at_its_last_report)
{
    struct store_put put;
    struct copies_state state;
    want(1, COPIES_DEGRADE);
    start(&put, "one");
    wait_until_held(1);
    advance(TIMEOUT_NS);
    ck_assert_int_eq(finish(&put), STATUS_OK);
    report(FIRST, LANE_LARGE, 0);
    report(FIRST, LANE_SMALL, 0);
    start(&put, "two");
    ck_assert_int_eq(finish(&put), STATUS_OK);
    copies_state(copies, &state);
    ck_assert(state.degraded);
    report(FIRST, LANE_SMALL, 1); /* where the log ended when it said 0 */
    copies_state(copies, &state);
    ck_assert(!state.degraded);
}
END_TEST

START_TEST(a_follower_that_is_not_heard_of_is_no_copy)
{
    struct store_put put;
    struct store_put again;
    want(1, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&put), STATUS_OK);
    ck_assert(!copies_await_blob(copies, &put.digest, &put.request.ack));
    struct follower follower;
    advance(WAIT_NS + FOLLOWER_AWAY_NS - 1);
    ck_assert_uint_eq(copies_followers(copies, &follower, 1), 1);
    ck_assert(follower.counts);
    advance(1);
    ck_assert_uint_eq(copies_followers(copies, &follower, 1), 1);
    ck_assert(!follower.counts);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_FOLLOWERS), 0);
    start(&again, "data");
    wait_until_held(1);
    usleep(20000);
    ck_assert(!is_done(&again));
    catch_up(SECOND);
    ck_assert_int_eq(finish(&again), STATUS_OK);
}
END_TEST

START_TEST(what_a_peer_has_sent_waits_for_nobody)
{
    struct store_put put = {0};
    const struct bytes data = bytes_of_string("replicated");
    want(1, COPIES_REFUSE);
    /* As store_put_start_record(), with the mark. */
    struct record record = {.kind = RECORD_BLOB,
                            .payload = {.parts = &data, .count = 1},
                            .payload_bytes = data.length,
                            .payload_crc32c = crc32c(0, data)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &record.digest);
    store_put_start_local(&rig, &put, &record, LANE_SMALL);
    ck_assert_int_eq(finish(&put), STATUS_OK);
}
END_TEST

/* Writes of clients and of peers share a round. */
START_TEST(a_round_acknowledges_what_came_from_peers_and_holds_the_rest)
{
    struct store_put client;
    struct store_put peer = {0};
    const struct bytes data = bytes_of_string("replicated");
    struct record record = {.kind = RECORD_BLOB,
                            .payload = {.parts = &data, .count = 1},
                            .payload_bytes = data.length,
                            .payload_crc32c = crc32c(0, data)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &record.digest);
    want(1, COPIES_REFUSE);
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_SLEEP, 100);
    start(&client, "from a client");
    store_put_start_local(&rig, &peer, &record, LANE_SMALL);
    ck_assert_int_eq(finish(&peer), STATUS_OK);
    wait_until_held(1);
    ck_assert(!is_done(&client));
    catch_up(FIRST);
    ck_assert_int_eq(finish(&client), STATUS_OK);
}
END_TEST

START_TEST(a_blob_that_is_there_waits_as_long_as_its_followers_lack_it)
{
    struct store_put old;
    struct store_put young;
    struct store_put waiter;
    want(1, COPIES_REFUSE);
    start(&old, "old");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&old), STATUS_OK);
    start(&young, "young");
    wait_until_held(1);
    ck_assert(!copies_await_blob(copies, &old.digest, &old.request.ack));

    store_put_init(&waiter);
    ck_assert(copies_await_blob(copies, &young.digest, &waiter.request.ack));
    usleep(20000);
    ck_assert(!is_done(&waiter));
    catch_up(FIRST);
    ck_assert_int_eq(finish(&young), STATUS_OK);
    ck_assert_int_eq(finish(&waiter), STATUS_OK);
    const struct digest nothing = {
        .function = DIGEST_FUNCTION_SHA256, .hash_length = SHA256_HASH_BYTES, .size_bytes = 5};
    ck_assert(!copies_await_blob(copies, &nothing, &waiter.request.ack));
}
END_TEST

/* Else a client that was refused asks whether it is there, and takes that for the answer. */
START_TEST(a_blob_is_covered_once_it_has_been_on_enough_followers)
{
    struct store_put before;
    struct store_put put;
    start(&before, "before");
    ck_assert_int_eq(finish(&before), STATUS_OK);
    store_rig_close(&rig);
    store_rig_open(&rig);
    copies = durability_copies(rig.durability);
    want(1, COPIES_REFUSE);
    ck_assert(copies_cover_all(copies));
    ck_assert(copies_cover_blob(copies, &before.digest));
    start(&put, "data");
    wait_until_held(1);
    advance(TIMEOUT_NS);
    ck_assert_int_eq(finish(&put), STATUS_UNAVAILABLE);
    ck_assert(!copies_cover_all(copies));
    ck_assert(!copies_cover_blob(copies, &put.digest));
    ck_assert(copies_cover_blob(copies, &before.digest));
    report(FIRST, LANE_SMALL, 1);
    ck_assert(!copies_cover_blob(copies, &put.digest));
    report(FIRST, LANE_SMALL, 2);
    ck_assert(copies_cover_blob(copies, &put.digest));
    ck_assert(copies_cover_all(copies));
    advance(WAIT_NS + FOLLOWER_AWAY_NS); /* and stays so */
    ck_assert(copies_cover_blob(copies, &put.digest));
}
END_TEST

START_TEST(a_store_that_stops_lets_go_of_what_waits)
{
    struct store_put put;
    struct store_put later;
    struct status status;
    want(1, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    copies_stop(copies, 50 * NS_PER_MS);
    ck_assert(!store_put_finish(&put, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, "this server stops"));
    start(&later, "later");
    ck_assert_int_eq(finish(&later), STATUS_UNAVAILABLE);
    catch_up(FIRST);
    start(&later, "later"); /* is there, and there */
    ck_assert_int_eq(finish(&later), STATUS_OK);
}
END_TEST

START_TEST(a_store_that_is_closed_with_writes_waiting_answers_them)
{
    struct store_put put;
    want(1, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    store_rig_close(&rig);
    ck_assert_int_eq(finish(&put), STATUS_UNAVAILABLE);
    store_rig_open(&rig);
    ck_assert(store_rig_reads(&rig, &put.digest, bytes_of_string("data")));
}
END_TEST

START_TEST(what_a_follower_said_last_counts_and_not_the_most_it_ever_said)
{
    struct store_put put;
    struct follower follower;
    want(1, COPIES_REFUSE);
    start(&put, "data");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&put), STATUS_OK);
    report(FIRST, LANE_SMALL, 0); /* put back to an older state */
    ck_assert_uint_eq(copies_followers(copies, &follower, 1), 1);
    ck_assert_uint_eq(follower.durable_seq[LANE_SMALL], 0);
    ck_assert_uint_eq(follower.behind_records[LANE_SMALL], 1);
    start(&put, "data");
    wait_until_held(1);
    catch_up(FIRST);
    ck_assert_int_eq(finish(&put), STATUS_OK);
}
END_TEST

START_TEST(followers_are_bounded_and_this_node_is_none_of_its_own)
{
    static struct follower followers[LIMIT_FOLLOWERS + 8];
    report(durability_store(rig.durability)->node_uid, LANE_SMALL, 0);
    report(0, LANE_SMALL, 0);
    ck_assert_uint_eq(copies_followers(copies, followers, ARRAY_LENGTH(followers)), 0);
    for (uint64_t uid = 1; uid <= LIMIT_FOLLOWERS + 4; uid++) {
        report(uid, LANE_SMALL, 0);
        advance(1);
    }
    ck_assert_uint_eq(copies_followers(copies, followers, ARRAY_LENGTH(followers)),
                      LIMIT_FOLLOWERS);
    /* Once the first is not heard of any more it gives way. */
    advance(WAIT_NS + FOLLOWER_AWAY_NS);
    report(1000, LANE_SMALL, 0);
    ck_assert_uint_eq(copies_followers(copies, followers, ARRAY_LENGTH(followers)),
                      LIMIT_FOLLOWERS);
    ck_assert_uint_eq(followers[0].uid, 1000);
}
END_TEST

/* The wait for others comes after the sync and adds none. */
START_TEST(sixteen_arrivals_at_once_share_at_most_two_syncs_and_one_report)
{
    enum { ARRIVALS = 16 };
    static struct store_put puts[ARRIVALS];
    static char data[ARRIVALS][16];
    want(1, COPIES_REFUSE);
    failpoint_set(FAILPOINT_commit_before_sync, FAILPOINT_SLEEP, 100);
    const uint64_t before = store_rig_syncs(&rig);
    for (int i = 0; i < ARRIVALS; i++) {
        snprintf(data[i], sizeof(data[i]), "arrival %d", i);
        start(&puts[i], data[i]);
    }
    while (copies_published_seq(copies, LANE_SMALL) < ARRIVALS)
        usleep(1000);
    for (int i = 0; i < ARRIVALS; i++)
        ck_assert(!is_done(&puts[i]));
    report(FIRST, LANE_SMALL, ARRIVALS);
    for (int i = 0; i < ARRIVALS; i++)
        ck_assert_int_eq(finish(&puts[i]), STATUS_OK);
    ck_assert_uint_le(store_rig_syncs(&rig) - before, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copies");
    TCase *tests = tcase_create("copies");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_write_is_acknowledged_when_as_many_as_were_asked_for_have_it);
    tcase_add_test(tests, nobody_waits_unless_copies_are_asked_for);
    tcase_add_test(tests, each_lane_waits_for_its_own_log);
    tcase_add_test(tests, a_write_whose_time_is_over_is_refused_though_it_is_stored);
    tcase_add_test(tests, no_number_of_nodes_stands_in_for_a_bucket_that_is_needed);
    tcase_add_test(tests, a_bucket_that_is_not_needed_is_seen_and_is_no_copy);
    tcase_add_test(tests, degraded_for_want_of_the_bucket_ends_when_that_has_caught_up);
    tcase_add_test(tests, degraded_writes_wait_for_nobody_until_the_followers_have_caught_up);
    tcase_add_test(tests, a_follower_keeps_up_when_it_is_where_the_log_ended_at_its_last_report);
    tcase_add_test(tests, a_follower_that_is_not_heard_of_is_no_copy);
    tcase_add_test(tests, what_a_peer_has_sent_waits_for_nobody);
    tcase_add_test(tests, a_round_acknowledges_what_came_from_peers_and_holds_the_rest);
    tcase_add_test(tests, a_blob_that_is_there_waits_as_long_as_its_followers_lack_it);
    tcase_add_test(tests, a_blob_is_covered_once_it_has_been_on_enough_followers);
    tcase_add_test(tests, a_store_that_stops_lets_go_of_what_waits);
    tcase_add_test(tests, a_store_that_is_closed_with_writes_waiting_answers_them);
    tcase_add_test(tests, what_a_follower_said_last_counts_and_not_the_most_it_ever_said);
    tcase_add_test(tests, followers_are_bounded_and_this_node_is_none_of_its_own);
    tcase_add_test(tests, sixteen_arrivals_at_once_share_at_most_two_syncs_and_one_report);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
