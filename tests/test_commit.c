/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What group commit promises: an acknowledgement means "on disk", many share one sync, a failed sync is final, a full disk
 * is not. On the simulated disk, with the real threads.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

static struct store_rig rig;

static void start(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
}

static void end(void)
{
    store_rig_end(&rig);
}

/* `count` small blobs of different contents, all in flight at once. Returns how many were acknowledged. */
static size_t put_together(struct store_put *puts,
                           uint8_t **data,
                           size_t count,
                           uint64_t seed,
                           struct status *last)
{
    size_t acknowledged = 0;
    struct status status;
    for (size_t i = 0; i < count; i++) {
        data[i] = seeded_bytes(seed + i, 1000);
        ck_assert(store_put_start(&rig, &puts[i], bytes_of(data[i], 1000), &status));
    }
    for (size_t i = 0; i < count; i++) {
        if (store_put_finish(&puts[i], &status))
            acknowledged++;
        else
            *last = status;
    }
    return acknowledged;
}

static void until_so_many_segments(size_t count)
{
    while (segment_set_count(durability_store(rig.durability)->segments) < count)
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20 * NS_PER_MS}, NULL);
}

/* An active segment and a spare in the small lane, a spare in the large: the next sync is of a commit. */
static void until_segments_are_made(void)
{
    struct digest digest;
    struct status status;
    ck_assert(store_rig_put(&rig, bytes_of("first", 5), &digest, &status));
    until_so_many_segments(3);
}

START_TEST(sixteen_concurrent_uploads_share_at_most_two_syncs)
{
    struct store_put puts[16];
    uint8_t *data[16];
    struct status status = {0};
    io_sim_set_sync_delay(rig.sim, 57 * NS_PER_MS);
    const uint64_t before = store_rig_syncs(&rig);
    ck_assert_uint_eq(put_together(puts, data, 16, 1, &status), 16);
    const uint64_t syncs = store_rig_syncs(&rig) - before;
    ck_assert_uint_ge(syncs, 1);
    ck_assert_uint_le(syncs, 2);
    for (size_t i = 0; i < 16; i++)
        free(data[i]);
}
END_TEST

START_TEST(uploads_one_after_the_other_take_a_sync_each)
{
    const uint64_t before = store_rig_syncs(&rig);
    for (uint64_t i = 0; i < 10; i++) {
        struct digest digest;
        struct status status;
        uint8_t *data = seeded_bytes(i, 100);
        ck_assert_msg(store_rig_put(&rig, bytes_of(data, 100), &digest, &status), "%s",
                      status.message);
        free(data);
    }
    ck_assert_uint_eq(store_rig_syncs(&rig) - before, 10);
}
END_TEST

START_TEST(an_acknowledged_blob_survives_a_power_cut_right_after)
{
    const size_t lengths[] = {1, 63, 64, 65, 4000, 1 << 20, (1 << 20) + 1, 3000000, 20000000};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        uint8_t *data = seeded_bytes(i, lengths[i]);
        const struct bytes bytes = bytes_of(data, lengths[i]);
        struct digest digest;
        struct status status;
        ck_assert_msg(store_rig_put(&rig, bytes, &digest, &status), "%s", status.message);
        ck_assert(store_rig_reads(&rig, &digest, bytes));
        store_rig_crash(&rig, i, IO_SIM_CRASH_NOTHING);
        store_rig_open(&rig);
        ck_assert(store_rig_has(&rig, &digest));
        ck_assert(store_rig_reads(&rig, &digest, bytes));
        free(data);
    }
}
END_TEST

START_TEST(a_failed_sync_is_never_turned_into_ok)
{
    enum { WAITING = 100 };
    static struct store_put puts[WAITING];
    uint8_t *data[WAITING];
    struct status status;
    struct digest before;
    uint8_t *old = seeded_bytes(77, 5000);
    ck_assert(store_rig_put(&rig, bytes_of(old, 5000), &before, &status));

    until_segments_are_made();
    /* It would succeed on repeat. */
    io_sim_fail(rig.sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    io_sim_set_sync_delay(rig.sim, 20 * NS_PER_MS);
    status.code = STATUS_OK;
    ck_assert_uint_eq(put_together(puts, data, WAITING, 1000, &status), 0);
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_READ_ONLY), 1);
    ck_assert(durability_failed(rig.durability, &status));
    ck_assert_int_eq(store_rig_failure(&rig), STATUS_UNAVAILABLE);

    /* Later writes are refused, and what was durable is served. */
    struct digest later;
    ck_assert(!store_rig_put(&rig, bytes_of("later", 5), &later, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert(store_rig_reads(&rig, &before, bytes_of(old, 5000)));

    store_rig_crash(&rig, 1, IO_SIM_CRASH_RANDOM);
    store_rig_open(&rig);
    ck_assert(store_rig_reads(&rig, &before, bytes_of(old, 5000)));
    for (size_t i = 0; i < WAITING; i++) {
        store_rig_reads(&rig, &puts[i].digest,
                        bytes_of(data[i], 1000)); /* there whole, or not there */
        free(data[i]);
    }
    ck_assert(store_rig_put(&rig, bytes_of("later", 5), &later, &status));
    free(old);
}
END_TEST

/* The upload fails before it comes to a commit: the store said nothing until somebody else's did. */
START_TEST(a_chunk_that_cannot_be_written_makes_the_store_read_only_at_once)
{
    enum { LARGE = 3500000 };
    uint8_t *data = seeded_bytes(6, LARGE);
    struct digest digest;
    struct status status = {0};
    until_segments_are_made();
    io_sim_fail(rig.sim, IO_SIM_PWRITEV, 1, EIO, IO_SIM_ONCE);
    ck_assert(!store_rig_put(&rig, bytes_of(data, LARGE), &digest, &status));
    for (int i = 0; i < 500 && metrics_get(&rig.metrics, METRIC_READ_ONLY) == 0; i++)
        clock_pause(10 * NS_PER_MS);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_READ_ONLY), 1);
    ck_assert(durability_failed(rig.durability, &status));
    ck_assert(!store_rig_put(&rig, bytes_of(data, 100), &digest, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    free(data);
}
END_TEST

/* Each lane fails in turn: a store that is read-only took blobs of the other lane all the same. */
START_TEST(no_lane_takes_anything_once_a_sync_of_either_has_failed)
{
    enum { SMALL = 1000, LARGE = 1500000 };
    const size_t failing = _i == 0 ? SMALL : LARGE;
    const size_t other = _i == 0 ? LARGE : SMALL;
    uint8_t *data = seeded_bytes(5, LARGE);
    struct digest digest;
    struct status status = {0};
    until_segments_are_made();
    ck_assert(store_rig_put(&rig, bytes_of(data, LARGE - 1), &digest, &status));
    until_so_many_segments(4);
    io_sim_fail(rig.sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert(!store_rig_put(&rig, bytes_of(data, failing), &digest, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    for (int i = 0; i < 2; i++) {
        status.code = STATUS_OK;
        ck_assert(!store_rig_put(&rig, bytes_of(data, other), &digest, &status));
        ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
        ck_assert(!store_rig_has(&rig, &digest));
    }
    store_rig_crash(&rig, 1, IO_SIM_CRASH_RANDOM);
    store_rig_open(&rig);
    ck_assert(store_rig_put(&rig, bytes_of(data, other), &digest, &status));
    ck_assert(store_rig_put(&rig, bytes_of(data, failing), &digest, &status));
    free(data);
}
END_TEST

/* After a failed write-back the page cache shows what the disk does not have; the process is killed, the machine stays up. */
START_TEST(pages_that_a_failed_sync_left_are_not_believed_after_a_restart)
{
    enum { WAITING = 20 };
    static struct store_put puts[WAITING];
    uint8_t *data[WAITING];
    bool there[WAITING];
    struct status status;
    until_segments_are_made();
    io_sim_fail(rig.sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert_uint_eq(put_together(puts, data, WAITING, 500, &status), 0);
    io_sim_kill(rig.sim);
    store_rig_close(&rig);
    store_rig_remove_index(&rig);
    store_rig_open(&rig);
    for (size_t i = 0; i < WAITING; i++)
        there[i] = store_rig_reads(&rig, &puts[i].digest, bytes_of(data[i], 1000));
    store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    for (size_t i = 0; i < WAITING; i++) {
        ck_assert(!there[i] || store_rig_reads(&rig, &puts[i].digest, bytes_of(data[i], 1000)));
        free(data[i]);
    }
}
END_TEST

/* Chunks go to the large lane while its committer syncs: they are not part of what that sync made durable. */
START_TEST(what_is_appended_during_a_sync_is_not_covered_by_it)
{
    until_segments_are_made();
    struct store *store = durability_store(rig.durability);
    struct segment_log *log = store->logs[LANE_LARGE];
    uint8_t *data = seeded_bytes(1, 1500000);
    struct store_put put;
    struct status status;
    io_sim_set_sync_delay(rig.sim, 300 * NS_PER_MS);
    ck_assert(store_put_start(&rig, &put, bytes_of(data, 1500000), &status));
    while (segment_log_pending_seq(log) < 3) { /* two chunks and the manifest */
    }
    nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_MS}, NULL); /* its sync has begun */
    const struct bytes late = bytes_of("late", 4);
    struct record record = {.kind = RECORD_CHUNK,
                            .digest = put.digest,
                            .payload = {.parts = &late, .count = 1},
                            .payload_bytes = 4,
                            .payload_crc32c = crc32c(0, late)};
    struct record *const records[] = {&record};
    ck_assert(segment_log_append(log, records, 1, &status));
    ck_assert(store_put_finish(&put, &status));
    struct watermark *watermark = commit_watermark(durability_commit(rig.durability, LANE_LARGE));
    ck_assert_uint_eq(record.seq, 4);
    ck_assert_uint_eq(watermark_durable(watermark), 3);
    free(data);
}
END_TEST

START_TEST(a_lane_says_that_it_waits_and_makes_no_turn_while_a_sync_does_not_end)
{
    until_segments_are_made();
    struct commit *commit = durability_commit(rig.durability, LANE_SMALL);
    struct store_put put;
    struct status status;
    bool waits = true;
    while (waits)
        commit_turns(commit, &waits);
    io_sim_set_sync_delay(rig.sim, 400 * NS_PER_MS);
    ck_assert(store_put_start(&rig, &put, bytes_of("slow", 4), &status));
    nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
    const uint64_t before = commit_turns(commit, &waits);
    ck_assert(waits);
    nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
    ck_assert_uint_eq(commit_turns(commit, &waits), before);
    ck_assert(waits);
    ck_assert(store_put_finish(&put, &status));
    while (waits)
        commit_turns(commit, &waits);
    ck_assert_uint_gt(commit_turns(commit, &waits), before);
}
END_TEST

START_TEST(nothing_is_visible_before_it_is_durable)
{
    struct store_put put;
    struct status status;
    uint8_t *data = seeded_bytes(5, 2000);
    io_sim_set_sync_delay(rig.sim, 200 * NS_PER_MS);
    ck_assert(store_put_start(&rig, &put, bytes_of(data, 2000), &status));
    const struct digest digest = put.digest;
    while (segment_log_pending_seq(durability_store(rig.durability)->logs[LANE_SMALL]) == 0) {
    }
    ck_assert(!store_rig_has(&rig, &digest));
    ck_assert(store_put_finish(&put, &status));
    ck_assert(store_rig_has(&rig, &digest));
    free(data);
}
END_TEST

START_TEST(the_same_blob_many_times_at_once_is_written_once)
{
    enum { WRITERS = 64 };
    static struct store_put puts[WRITERS];
    struct status status;
    uint8_t *data = seeded_bytes(9, 50000);
    io_sim_set_sync_delay(rig.sim, 10 * NS_PER_MS);
    const int64_t before = metrics_get(&rig.metrics, METRIC_RECORD_BYTES_APPENDED);
    for (size_t i = 0; i < WRITERS; i++)
        ck_assert(store_put_start(&rig, &puts[i], bytes_of(data, 50000), &status));
    for (size_t i = 0; i < WRITERS; i++)
        ck_assert(store_put_finish(&puts[i], &status));
    const int64_t appended = metrics_get(&rig.metrics, METRIC_RECORD_BYTES_APPENDED) - before;
    ck_assert_int_eq(appended, (int64_t)record_stored_bytes(50000));
    free(data);
}
END_TEST

START_TEST(a_full_disk_refuses_with_numbers_and_is_survived_without_a_restart)
{
    struct status status = {0};
    struct digest digest;
    struct digest first;
    uint8_t *data = seeded_bytes(3, 1 << 20);
    ck_assert(store_rig_put(&rig, bytes_of(data, 1000), &first, &status));
    io_sim_set_capacity(rig.sim, 1); /* what is allocated stays, nothing new can be */
    uint64_t stored = 0;
    while (stored < 100) {
        data[0] = (uint8_t)stored;
        if (!store_rig_put(&rig, bytes_of(data, 1 << 20), &digest, &status))
            break;
        stored++;
    }
    ck_assert_uint_lt(stored, 100);
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(status.message, "bytes are free"));
    data[0] = 0;
    ck_assert(store_rig_has(&rig, &first));
    ck_assert(!durability_failed(rig.durability, NULL));

    io_sim_set_capacity(rig.sim, 0);
    bool ok = false;
    for (int tries = 0; !ok && tries < 100; tries++) {
        ok = store_rig_put(&rig, bytes_of(data, 1 << 20), &digest, &status);
        if (!ok) {
            ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
            nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_MS}, NULL);
        }
    }
    ck_assert(ok);
    free(data);
}
END_TEST

/*
 * A round of three is cut off by a full disk behind its second record, an action's result; then that action gets another result,
 * in a record as long as the first of the three. What was cut off must not follow it.
 */
START_TEST(what_a_full_disk_cut_off_does_not_come_back_behind_newer_records)
{
    static const char instance[] = "some/instance";
    static const char newer[] = "newer";
    struct store_put before;
    struct store_put puts[3];
    struct status status;
    struct digest action;
    const size_t newer_bytes =
        ACTION_RECORD_FIXED_BYTES + strlen(instance) + strlen("test") + strlen(newer);
    uint8_t *data = seeded_bytes(1, 1000);
    until_segments_are_made();
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of("an action", 9), &action);
    struct segment_log *log = durability_store(rig.durability)->logs[LANE_SMALL];
    const uint64_t seq = segment_log_pending_seq(log);

    io_sim_set_sync_delay(rig.sim, 300 * NS_PER_MS);
    ck_assert(store_put_start(&rig, &before, bytes_of(data, 999), &status));
    while (segment_log_pending_seq(log) == seq) {
    }
    /* While that one is synced the three come together. */
    ck_assert(store_put_start(&rig, &puts[0], bytes_of(data, newer_bytes), &status));
    store_put_start_action(&rig, &puts[1], &action, instance, bytes_of_string("older result"));
    ck_assert(store_put_start(&rig, &puts[2], bytes_of(data, 900), &status));
    io_sim_set_transfer_max(rig.sim, (size_t)(record_stored_bytes(newer_bytes) +
                                              record_stored_bytes(puts[1].record.payload_bytes)));
    io_sim_fail(rig.sim, IO_SIM_PWRITEV, 2, ENOSPC, IO_SIM_ONCE);
    ck_assert(store_put_finish(&before, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(puts); i++) {
        ck_assert(!store_put_finish(&puts[i], &status));
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    }
    io_sim_set_transfer_max(rig.sim, 0);
    io_sim_set_sync_delay(rig.sim, 0);

    ck_assert(store_rig_put_action(&rig, &action, instance, bytes_of_string(newer), &status));
    store_rig_crash(&rig, 1, IO_SIM_CRASH_EVERYTHING);
    store_rig_open(&rig);
    char *found = store_rig_action(&rig, &action, instance);
    ck_assert_str_eq(found, newer);
    free(found);
    free(data);
}
END_TEST

/* For n = 1, 2, ...: the nth write, sync or allocation fails, once. Acknowledged implies there after a power cut. */
static void check_nth_failure(enum io_sim_operation operation, int error_number)
{
    for (uint64_t n = 1;; n++) {
        struct digest digests[12];
        bool acknowledged[12];
        uint8_t *data[12];
        struct status status;
        io_sim_fail(rig.sim, operation, n, error_number, IO_SIM_ONCE);
        const uint64_t failures = io_sim_failures(rig.sim);
        for (size_t i = 0; i < 12; i++) {
            const size_t length = i % 4 == 3 ? 2500000 : 900000 + i;
            data[i] = seeded_bytes(n * 100 + i, length);
            acknowledged[i] = store_rig_put(&rig, bytes_of(data[i], length), &digests[i], &status);
        }
        io_sim_fail_nothing(rig.sim);
        const bool met = io_sim_failures(rig.sim) != failures;
        store_rig_crash(&rig, n, IO_SIM_CRASH_RANDOM);
        store_rig_open(&rig);
        for (size_t i = 0; i < 12; i++) {
            const bool there = store_rig_reads(&rig, &digests[i],
                                               bytes_of(data[i], (size_t)digests[i].size_bytes));
            ck_assert_int_eq(there, store_rig_has(&rig, &digests[i]));
            ck_assert_msg(there || !acknowledged[i],
                          "blob %zu was acknowledged and is gone (n = %d)", i, (int)n);
            free(data[i]);
        }
        if (!met)
            break;
    }
}

START_TEST(acknowledged_implies_durable_whichever_write_fails)
{
    check_nth_failure(IO_SIM_PWRITEV, EIO);
}
END_TEST

START_TEST(acknowledged_implies_durable_whichever_sync_fails)
{
    check_nth_failure(IO_SIM_SYNC, EIO);
}
END_TEST

START_TEST(acknowledged_implies_durable_whichever_allocation_fails)
{
    check_nth_failure(IO_SIM_ALLOCATE, ENOSPC);
}
END_TEST

START_TEST(short_and_interrupted_writes_lose_nothing)
{
    io_sim_set_transfer_max(rig.sim, 1000);
    io_sim_set_interrupt_every(rig.sim, 3);
    uint8_t *data = seeded_bytes(4, 300000);
    struct digest digest;
    struct status status;
    ck_assert_msg(store_rig_put(&rig, bytes_of(data, 300000), &digest, &status), "%s",
                  status.message);
    store_rig_crash(&rig, 4, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(store_rig_reads(&rig, &digest, bytes_of(data, 300000)));
    free(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("commit");
    TCase *tests = tcase_create("group commit");
    tcase_set_timeout(tests, 240);
    tcase_add_checked_fixture(tests, start, end);
    tcase_add_test(tests, sixteen_concurrent_uploads_share_at_most_two_syncs);
    tcase_add_test(tests, uploads_one_after_the_other_take_a_sync_each);
    tcase_add_test(tests, an_acknowledged_blob_survives_a_power_cut_right_after);
    tcase_add_test(tests, a_lane_says_that_it_waits_and_makes_no_turn_while_a_sync_does_not_end);
    tcase_add_test(tests, a_failed_sync_is_never_turned_into_ok);
    tcase_add_test(tests, a_chunk_that_cannot_be_written_makes_the_store_read_only_at_once);
    tcase_add_loop_test(tests, no_lane_takes_anything_once_a_sync_of_either_has_failed, 0, 2);
    tcase_add_test(tests, pages_that_a_failed_sync_left_are_not_believed_after_a_restart);
    tcase_add_test(tests, what_is_appended_during_a_sync_is_not_covered_by_it);
    tcase_add_test(tests, nothing_is_visible_before_it_is_durable);
    tcase_add_test(tests, the_same_blob_many_times_at_once_is_written_once);
    tcase_add_test(tests, a_full_disk_refuses_with_numbers_and_is_survived_without_a_restart);
    tcase_add_test(tests, what_a_full_disk_cut_off_does_not_come_back_behind_newer_records);
    tcase_add_test(tests, acknowledged_implies_durable_whichever_write_fails);
    tcase_add_test(tests, acknowledged_implies_durable_whichever_sync_fails);
    tcase_add_test(tests, acknowledged_implies_durable_whichever_allocation_fails);
    tcase_add_test(tests, short_and_interrupted_writes_lose_nothing);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
