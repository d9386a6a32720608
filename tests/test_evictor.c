/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that a store keeps within its capacity and its disk's reserve, that what goes is what was not used, that nothing goes
 * while somebody reads it or was just told that it is there, and that what has gone stays away: under load from several
 * threads, on a disk that fills up or fails, across power cuts, and when the index is lost. With the store's own threads, on
 * the simulated disk.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/crc32c.h"
#include "durability/evictor.h"
#include "durability/forget.h"
#include "durability/fsck.h"
#include "durability/move.h"
#include "store/blob_reader.h"
#include "store/evict_plan.h"
#include "store/find.h"
#include "store/segment_contents.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/prng.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"

/* The least that there is: 16 segments. */
#define CAPACITY_BYTES STORE_CAPACITY_BYTES_MIN
#define SMALL_BYTES (128 * KIB)
#define LARGE_BYTES (3 * MIB)

static struct store_rig rig;
static struct clock_sim sim_clock;

static void start(void)
{
    const struct store_rig_limits limits = {.capacity_bytes = CAPACITY_BYTES};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
}

static void start_with_vouch(void)
{
    clock_sim_init(&sim_clock, 1000000 * NS_PER_S);
    const struct store_rig_limits limits = {
        .capacity_bytes = CAPACITY_BYTES, .vouch_ns = 3600 * NS_PER_S, .clock = &sim_clock.clock};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
}

static void start_vouching(void)
{
    const struct store_rig_limits limits = {.capacity_bytes = CAPACITY_BYTES,
                                            .vouch_ns = 3600 * NS_PER_S};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
}

static void start_bare(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
}

static void end(void)
{
    store_rig_end(&rig);
}

/* ---- what was put, and whether it is there */

struct item {
    struct digest digest;
    uint64_t seed;
    size_t length;
    bool acknowledged;
};

static struct store *store(void)
{
    return durability_store(rig.durability);
}

static void pause_ms(int64_t milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000,
                                 .tv_nsec = milliseconds % 1000 * NS_PER_MS},
              NULL);
}

static bool try_put(struct item *item, uint64_t seed, size_t length, struct status *status)
{
    uint8_t *data = seeded_bytes(seed, length);
    item->seed = seed;
    item->length = length;
    item->acknowledged = store_rig_put(&rig, bytes_of(data, length), &item->digest, status);
    free(data);
    return item->acknowledged;
}

static void put(struct item *item, uint64_t seed, size_t length)
{
    struct status status;
    ck_assert_msg(try_put(item, seed, length, &status), "%s", status.message);
}

/* Without marking it as used. */
static bool is_there(const struct item *item)
{
    struct blob_use use;
    return blob_table_look(store()->table, blob_table_blob_key(store()->table, &item->digest),
                           &use);
}

static void use(const struct item *item)
{
    ck_assert(store_rig_has(&rig, &item->digest));
}

static bool reads(const struct item *item)
{
    uint8_t *data = seeded_bytes(item->seed, item->length);
    const bool there = store_rig_reads(&rig, &item->digest, bytes_of(data, item->length));
    free(data);
    return there;
}

/* Either it is there and can be read, or neither. It may go in between. */
static void assert_agrees(const struct item *item)
{
    const bool was_there = is_there(item);
    const bool read = reads(item);
    ck_assert(was_there || !read);
    ck_assert(read || !is_there(item));
}

static size_t count_there(const struct item *items, size_t count)
{
    size_t there = 0;
    for (size_t i = 0; i < count; i++)
        there += is_there(&items[i]);
    return there;
}

static struct segment *home_of(const struct item *item, struct place *place)
{
    ck_assert(blob_table_get(store()->table, blob_table_blob_key(store()->table, &item->digest),
                             false, place));
    struct segment *segment = segment_set_pin(store()->segments, place->segment);
    ck_assert_ptr_nonnull(segment);
    return segment;
}

/* Stuff that nobody uses, so many bytes of it. Seeds: from *next on. */
static void fill(uint64_t *next, uint64_t bytes, size_t each)
{
    struct item item;
    for (uint64_t done = 0; done < bytes; done += each)
        put(&item, (*next)++, each);
}

static uint64_t disk_used(void)
{
    struct io_space space;
    struct status status;
    ck_assert(io_space(io_sim_io(rig.sim), "/", &space, &status));
    return space.total_bytes - space.free_bytes;
}

static int64_t metric(enum metric which)
{
    return metrics_get(&rig.metrics, which);
}

/* ---- which go and which stay */

START_TEST(what_is_used_survives_a_full_cycle_and_what_is_not_goes_first)
{
    enum { ITEMS = 240 }; /* 30 MiB */
    static struct item items[ITEMS];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i += 4)
        use(&items[i]);
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i++)
        ck_assert_msg(is_there(&items[i]) == (i % 4 == 0), "item %zu", i);

    /* Moving it was no use of it. */
    fill(&next, 2 * CAPACITY_BYTES, SMALL_BYTES);
    ck_assert_uint_eq(count_there(items, ITEMS), 0);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 20);
    ck_assert_int_ge(metric(METRIC_EVICTION_MOVED_BYTES), ITEMS / 4 * (int64_t)SMALL_BYTES);
    ck_assert_int_gt(metric(METRIC_EVICTION_FORGOTTEN_BYTES), 2 * (int64_t)CAPACITY_BYTES);
    ck_assert_int_gt(metric(METRIC_BLOBS_EVICTED), ITEMS);
    ck_assert_int_eq(metric(METRIC_EVICTION_MOVES_FAILED), 0);
}
END_TEST

START_TEST(large_blobs_over_several_segments_are_moved_whole_or_forgotten_whole)
{
    enum {
        ITEMS = 12
    }; /* of 3 MiB: every third one lies in two segments, at least; the last takes three by itself */
    static struct item items[ITEMS];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, i + 1 < ITEMS ? LARGE_BYTES + i : 18 * MIB);
    for (size_t i = 0; i < ITEMS; i += 3)
        use(&items[i]);
    use(&items[ITEMS - 1]);
    fill(&next, CAPACITY_BYTES - 80 * MIB, LARGE_BYTES);
    size_t there = 0;
    for (int step = 0; step < 16; step++) {
        fill(&next, LARGE_BYTES, LARGE_BYTES);
        for (size_t i = 0; i < ITEMS; i++) {
            ck_assert_msg(i % 3 != 0 || is_there(&items[i]), "blob %zu, step %d", i, step);
            /* As a reader finds it, but not counted as one. */
            struct blob_use use;
            struct blob_reader *reader = NULL;
            struct status status;
            const struct blob_key key = blob_table_blob_key(store()->table, &items[i].digest);
            if (!blob_table_look(store()->table, key, &use))
                continue;
            there++;
            ck_assert(blob_reader_open_at(store(), &items[i].digest, use.place, &reader, &status));
            const uint64_t before = place_pack(use.place);
            if (reader == NULL) /* moved or forgotten between the two, as a whole */
                ck_assert(!blob_table_look(store()->table, key, &use) ||
                          place_pack(use.place) != before);
            blob_reader_free(reader);
        }
    }
    ck_assert_uint_gt(there, 16 * 4);
    ck_assert_uint_lt(count_there(items, ITEMS), ITEMS);
    for (size_t i = 0; i < ITEMS; i++)
        assert_agrees(&items[i]);
}
END_TEST

START_TEST(a_large_blob_that_is_moved_in_parts_keeps_being_one_that_was_used)
{
    struct item item;
    uint64_t next = 1000;
    fill(&next, 2 * CAPACITY_BYTES, LARGE_BYTES); /* some budget is left over */
    put(&item, 1, 20 * MIB);                      /* three segments, which go one after the other */
    use(&item);
    fill(&next, CAPACITY_BYTES, LARGE_BYTES);
    ck_assert_int_ge(metric(METRIC_EVICTION_MOVED_BYTES), 20 * (int64_t)MIB);
    ck_assert(is_there(&item));
    struct blob_use now;
    ck_assert(
        blob_table_look(store()->table, blob_table_blob_key(store()->table, &item.digest), &now));
    ck_assert(!now.touched); /* it has been moved whole */
    ck_assert(reads(&item));
}
END_TEST

START_TEST(action_results_are_moved_and_forgotten_as_blobs_are)
{
    enum { ACTIONS = 60 };
    struct digest actions[ACTIONS];
    struct status status;
    uint64_t next = 1000;
    uint8_t *result = seeded_bytes(1, 50000);
    for (size_t i = 0; i < 50000; i++)
        result[i] = (uint8_t)('a' + result[i] % 26);
    for (size_t i = 0; i < ACTIONS; i++) {
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&i, sizeof(i)), &actions[i]);
        ck_assert(store_rig_put_action(&rig, &actions[i], i % 2 == 0 ? "even" : "odd",
                                       bytes_of(result, 50000), &status));
    }
    for (size_t i = 0; i < ACTIONS; i += 3)
        free(store_rig_action(&rig, &actions[i], i % 2 == 0 ? "even" : "odd"));
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    for (size_t i = 0; i < ACTIONS; i++) {
        char *found = store_rig_action(&rig, &actions[i], i % 2 == 0 ? "even" : "odd");
        ck_assert_ptr_null(store_rig_action(&rig, &actions[i], i % 2 == 0 ? "odd" : "even"));
        ck_assert_int_eq(found != NULL, i % 3 == 0);
        ck_assert(found == NULL || memcmp(found, result, 50000) == 0);
        free(found);
    }
    free(result);
}
END_TEST

/* Nine tenths of three segments: far more than the half of each that is moved otherwise. */
START_TEST(what_was_vouched_for_is_moved_whatever_the_budget)
{
    enum { ITEMS = 180 };
    static struct item items[ITEMS];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i++) {
        if (i % 10 != 0)
            use(&items[i]);
    }
    /* Twice round within the hour, unused: being moved does not end it. */
    for (int round = 0; round < 2; round++) {
        clock_sim_advance(&sim_clock, 20 * 60 * NS_PER_S);
        fill(&next, CAPACITY_BYTES, SMALL_BYTES);
        for (size_t i = 0; i < ITEMS; i++)
            ck_assert_msg(is_there(&items[i]) == (i % 10 != 0), "item %zu", i);
    }
    ck_assert_int_eq(metric(METRIC_EVICTION_VOUCHED_FORGOTTEN_BYTES), 0);
    /* The hour is over. */
    clock_sim_advance(&sim_clock, 3 * 3600 * NS_PER_S);
    pause_ms(1500); /* the table is told the minute once a second */
    fill(&next, 3 * CAPACITY_BYTES, SMALL_BYTES);
    ck_assert_uint_eq(count_there(items, ITEMS), 0);
}
END_TEST

START_TEST(a_store_that_is_used_more_than_it_holds_goes_on_taking_writes)
{
    enum { ITEMS = 3000 };
    static struct item items[ITEMS]; /* 375 MiB, all used all the time */
    for (size_t i = 0; i < ITEMS; i++) {
        put(&items[i], i, SMALL_BYTES);
        for (size_t k = 0; k < 3; k++)
            store_rig_has(&rig, &items[i - i * k / 3].digest);
        for (size_t k = i > 900 ? i - 900 : 0; k < i; k += 7)
            store_rig_has(&rig, &items[k].digest);
    }
    ck_assert_int_gt(metric(METRIC_EVICTION_VOUCHED_FORGOTTEN_BYTES), 0);
    ck_assert_int_eq(metric(METRIC_WRITES_REFUSED_DISK_FULL), 0);
    /* An eighth of each segment goes, whatever it is. */
    ck_assert_uint_gt(count_there(&items[ITEMS - 200], 200), 100);
}
END_TEST

static bool uses_are_written(void)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status;
    int fd = -1;
    snprintf(path, sizeof(path), "%s/uses", rig.directory.path);
    const bool there = io_open(io_sim_io(rig.sim), path, IO_OPEN_READ, &fd, &status);
    io_close(io_sim_io(rig.sim), fd);
    return there;
}

static void forget_uses(void)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status;
    snprintf(path, sizeof(path), "%s/uses", rig.directory.path);
    ck_assert(io_unlink(io_sim_io(rig.sim), path, &status));
}

/* Every third one was used before the restart; then so much is stored that the older ones go. */
static void check_that_uses_survive(void (*restart)(void))
{
    enum { ITEMS = 600 }; /* 75 MiB */
    static struct item items[ITEMS];
    uint64_t next = 5000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i += 3)
        use(&items[i]);
    restart();
    struct blob_use looked;
    for (size_t i = 0; i < ITEMS / 2; i++) {
        ck_assert(blob_table_look(store()->table,
                                  blob_table_blob_key(store()->table, &items[i].digest), &looked));
        ck_assert_int_eq(looked.touched, i % 3 == 0);
    }
    fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
    size_t gone = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        ck_assert(i % 3 != 0 || is_there(&items[i]));
        gone += !is_there(&items[i]);
    }
    ck_assert(!is_there(&items[1]));
    ck_assert_uint_ge(gone, 30);
}

static void restart_cleanly(void)
{
    store_rig_close(&rig);
    store_rig_open(&rig);
}

static void restart_after_a_kill(void)
{
    clock_sim_advance(&sim_clock, 61 * NS_PER_S);
    while (!uses_are_written())
        pause_ms(20);
    store_rig_crash(&rig, 1, IO_SIM_CRASH_EVERYTHING);
    store_rig_open(&rig);
}

START_TEST(what_was_used_before_a_restart_is_not_evicted_before_what_was_not)
{
    check_that_uses_survive(restart_cleanly);
}
END_TEST

START_TEST(what_was_used_a_minute_before_a_kill_is_not_evicted_before_what_was_not)
{
    check_that_uses_survive(restart_after_a_kill);
}
END_TEST

enum { USES_BYTES = 48 + 20 * 8 }; /* of 20 entries */

static void write_uses(const uint8_t *data, size_t length)
{
    struct io *io = io_sim_io(rig.sim);
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status;
    int fd = -1;
    const struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    snprintf(path, sizeof(path), "%s/uses", rig.directory.path);
    ck_assert(io_open(io, path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_truncate(io, fd, 0, &status));
    ck_assert(io_pwritev(io, fd, &part, 1, 0, &status) && io_sync(io, fd, &status));
    io_close(io, fd);
}

static void read_uses(uint8_t data[USES_BYTES])
{
    struct io *io = io_sim_io(rig.sim);
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status;
    uint64_t size = 0;
    size_t got = 0;
    int fd = -1;
    snprintf(path, sizeof(path), "%s/uses", rig.directory.path);
    ck_assert(io_open(io, path, IO_OPEN_READ, &fd, &status));
    ck_assert(io_size(io, fd, &size, &status));
    ck_assert_uint_eq(size, USES_BYTES);
    ck_assert(io_pread(io, fd, data, USES_BYTES, 0, &got, &status));
    io_close(io, fd);
}

static size_t count_touched(const struct item *items, size_t count)
{
    size_t touched = 0;
    for (size_t i = 0; i < count; i++) {
        struct blob_use looked;
        ck_assert(blob_table_look(store()->table,
                                  blob_table_blob_key(store()->table, &items[i].digest), &looked));
        touched += looked.touched;
    }
    return touched;
}

/* It is only there for evicting with sense. */
START_TEST(a_file_of_uses_that_is_damaged_is_not_believed_and_stops_nothing)
{
    enum { ITEMS = 40, ROUNDS = 30 };
    struct prng prng = {.state = 7};
    struct item items[ITEMS];
    uint8_t sound[USES_BYTES];
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i += 2)
        use(&items[i]);
    store_rig_close(&rig);
    read_uses(sound);
    for (size_t round = 0; round < ROUNDS; round++) {
        uint8_t damaged[USES_BYTES];
        memcpy(damaged, sound, sizeof(sound));
        damaged[prng_below(&prng, USES_BYTES)] ^= (uint8_t)(1 << round % 8);
        write_uses(damaged, round % 4 == 0 ? prng_below(&prng, USES_BYTES) : USES_BYTES);
        store_rig_open(&rig);
        /* Nothing is known: they are all in the younger half of the store, or none is. */
        const size_t touched = count_touched(items, ITEMS);
        ck_assert(touched == 0 || touched == ITEMS);
        store_rig_close(&rig);
    }
    write_uses(sound, sizeof(sound));
    store_rig_open(&rig);
    ck_assert_uint_eq(count_touched(items, ITEMS), ITEMS / 2);
}
END_TEST

START_TEST(after_a_start_that_does_not_know_what_was_used_the_younger_half_counts_as_used)
{
    enum { ITEMS = 600 }; /* 75 MiB */
    static struct item items[ITEMS];
    uint64_t next = 5000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    store_rig_close(&rig);
    forget_uses();
    store_rig_open(&rig);
    struct blob_use first;
    struct blob_use last;
    ck_assert(blob_table_look(store()->table, blob_table_blob_key(store()->table, &items[0].digest),
                              &first));
    ck_assert(blob_table_look(
        store()->table, blob_table_blob_key(store()->table, &items[ITEMS - 1].digest), &last));
    ck_assert(!first.touched);
    ck_assert(last.touched);
    ck_assert_uint_ge(last.idle_minutes, evict_vouch_minutes(rig.limits.vouch_ns));
    fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
    ck_assert(!is_there(&items[0]));
    ck_assert(is_there(&items[ITEMS - 1]));
}
END_TEST

/* ---- limits */

struct watched {
    pthread_t thread;
    atomic_bool stop;
    uint64_t set_bytes_max;
    uint64_t disk_bytes_max;
};

static void *watch(void *argument)
{
    struct watched *watched = argument;
    while (!atomic_load(&watched->stop)) {
        const uint64_t set_bytes = segment_set_bytes(store()->segments);
        const uint64_t disk_bytes = disk_used();
        watched->set_bytes_max =
            set_bytes > watched->set_bytes_max ? set_bytes : watched->set_bytes_max;
        watched->disk_bytes_max =
            disk_bytes > watched->disk_bytes_max ? disk_bytes : watched->disk_bytes_max;
        pause_ms(1);
    }
    return NULL;
}

static void watch_start(struct watched *watched)
{
    *watched = (struct watched){.set_bytes_max = 0};
    ck_assert_int_eq(pthread_create(&watched->thread, NULL, watch, watched), 0);
}

static void watch_end(struct watched *watched)
{
    atomic_store(&watched->stop, true);
    pthread_join(watched->thread, NULL);
}

static size_t random_length(struct prng *prng)
{
    const size_t kinds[] = {300, 20000, 200000, 900000, 1500000, 5000000};
    return 1 + prng_below(prng, kinds[prng_below(prng, ARRAY_LENGTH(kinds))]);
}

START_TEST(capacity_is_held_under_a_long_random_load_of_both_lanes)
{
    enum { ITEMS = 900 };
    static struct item items[ITEMS];
    struct prng prng = {.state = 1};
    struct watched watched;
    watch_start(&watched);
    uint64_t recent_bytes = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        put(&items[i], 77000 + i, random_length(&prng));
        for (int k = 0; k < 4; k++)
            store_rig_has(&rig, &items[prng_below(&prng, i + 1)].digest);
        const struct item *item = &items[prng_below(&prng, i + 1)];
        assert_agrees(item);
    }
    watch_end(&watched);
    ck_assert_uint_le(watched.set_bytes_max, CAPACITY_BYTES);
    ck_assert_uint_le(watched.disk_bytes_max, CAPACITY_BYTES + KIB); /* FORMAT */
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 60);
    for (size_t i = ITEMS; i > 0 && recent_bytes < CAPACITY_BYTES / 4; i--) {
        recent_bytes += items[i - 1].length;
        ck_assert(reads(&items[i - 1]));
    }
}
END_TEST

START_TEST(the_reserve_of_the_disk_stays_free)
{
    struct prng prng = {.state = 2};
    struct item item;
    struct watched watched;
    store_rig_close(&rig);
    rig.limits = (struct store_rig_limits){.reserve_bytes = 32 * MIB};
    io_sim_set_capacity(rig.sim, 160 * MIB);
    store_rig_open(&rig);
    watch_start(&watched);
    for (uint64_t i = 0; i < 400; i++)
        put(&item, 88000 + i, random_length(&prng));
    watch_end(&watched);
    ck_assert_uint_le(watched.disk_bytes_max, 128 * MIB);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 10);

    /* Somebody else needs the disk. */
    io_sim_set_capacity(rig.sim, 128 * MIB);
    for (int tries = 0; tries < 100 && disk_used() > 96 * MIB; tries++)
        pause_ms(100);
    ck_assert_uint_le(disk_used(), 96 * MIB);
    put(&item, 1, 100);
    ck_assert(reads(&item));
}
END_TEST

START_TEST(a_smaller_capacity_than_what_is_there_is_reached)
{
    enum { USED = 40 };
    static struct item used[USED];
    uint64_t next = 1000;
    store_rig_close(&rig);
    rig.limits.capacity_bytes = 3 * CAPACITY_BYTES;
    store_rig_open(&rig);
    fill(&next, 2 * CAPACITY_BYTES, LARGE_BYTES / 2);
    for (size_t i = 0; i < USED; i++)
        put(&used[i], i, SMALL_BYTES);
    ck_assert_uint_gt(segment_set_bytes(store()->segments), 2 * CAPACITY_BYTES);
    store_rig_close(&rig);
    rig.limits.capacity_bytes = CAPACITY_BYTES;
    store_rig_open(&rig);
    for (int tries = 0; tries < 200 && segment_set_bytes(store()->segments) > CAPACITY_BYTES;
         tries++)
        pause_ms(50);
    ck_assert_uint_le(segment_set_bytes(store()->segments), CAPACITY_BYTES);
    for (size_t i = 0; i < USED; i++)
        ck_assert(reads(&used[i]));
    fill(&next, CAPACITY_BYTES / 4, SMALL_BYTES);
    ck_assert_uint_le(segment_set_bytes(store()->segments), CAPACITY_BYTES);
}
END_TEST

START_TEST(what_cannot_work_is_refused_at_the_start)
{
    struct status status;
    store_rig_close(&rig);
    rig.limits.capacity_bytes = 6 * SEGMENT_BYTES_MIN - 1;
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(status.message, "capacity"));
    rig.limits = (struct store_rig_limits){.reserve_bytes = 40 * MIB};
    io_sim_set_capacity(rig.sim, 80 * MIB);
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(status.message, "are needed"));
    io_sim_set_capacity(rig.sim, 0);
    store_rig_open(&rig);
}
END_TEST

/* Everything is pinned, so that nothing can go. */
START_TEST(a_full_store_makes_writes_wait_then_refuses_with_numbers_and_goes_on)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct item item;
    struct status status;
    uint64_t next = 1000;
    struct segment *pinned[64];
    size_t pins = 0;
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    ck_assert(segment_set_numbers(store()->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count && pins < ARRAY_LENGTH(pinned); i++) {
        pinned[pins] = segment_set_pin(store()->segments, numbers[i]);
        pins += pinned[pins] != NULL;
    }
    free(numbers);
    bool ok = true;
    int64_t began = 0;
    for (int i = 0; ok && i < 1000; i++) {
        began = clock_monotonic_ns(clock_real());
        ok = try_put(&item, next++, SMALL_BYTES, &status);
    }
    const int64_t waited = clock_monotonic_ns(clock_real()) - began;
    ck_assert(!ok);
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(status.message, "the store is full: segments take"));
    ck_assert_int_ge(waited, LIMIT_WAIT_FOR_ROOM_NS - NS_PER_S);
    ck_assert_int_le(waited, LIMIT_WAIT_FOR_ROOM_NS + 4 * NS_PER_S);

    /* It has been full for long: nobody waits for it any more. Reads go on. */
    began = clock_monotonic_ns(clock_real());
    for (int i = 0; i < 20; i++)
        ck_assert(!try_put(&item, next++, 900000, &status));
    ck_assert_int_le(clock_monotonic_ns(clock_real()) - began, 2 * NS_PER_S);
    ck_assert_int_gt(metric(METRIC_WRITES_REFUSED_DISK_FULL), 20);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_CONDEMNED), 0);
    ck_assert_uint_le(segment_set_bytes(store()->segments), CAPACITY_BYTES);

    for (size_t i = 0; i < pins; i++)
        segment_set_unpin(store()->segments, pinned[i]);
    for (int tries = 0; tries < 50 && !try_put(&item, 1, 900000, &status); tries++)
        pause_ms(100);
    ck_assert(reads(&item));
    for (int tries = 0; tries < 50 && metric(METRIC_SEGMENTS_CONDEMNED) > 0; tries++)
        pause_ms(100);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_CONDEMNED), 0);
}
END_TEST

/* All of it is newer than what the bucket has: then writes wait, and nothing goes. */
START_TEST(what_the_bucket_does_not_have_yet_is_not_evicted_and_writes_are_refused_instead)
{
    enum { BUCKET = 77, KEPT_MAX = 4096 };
    static struct item kept[KEPT_MAX];
    struct status status;
    size_t count = 0;
    const struct copies_config with_bucket = {.bucket_uid = BUCKET, .bucket_keeps = true};
    struct copies *const copies = durability_copies(rig.durability);
    copies_configure(copies, &with_bucket);
    while (count < KEPT_MAX && try_put(&kept[count], count, SMALL_BYTES, &status))
        count++;
    ck_assert_uint_lt(count, KEPT_MAX);
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(count_there(kept, count), count);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_EVICTED), 0);
    ck_assert_int_eq(metric(METRIC_TIER_HOLDS), 1);

    /* It has got half of it: that may go. */
    const uint64_t published = copies_published_seq(copies, LANE_SMALL);
    struct follower_report report = {.uid = BUCKET,
                                     .lane = LANE_SMALL,
                                     .durable_seq = published / 2,
                                     .wait_ns = 3600 * NS_PER_S};
    copies_report(copies, &report);
    struct item more;
    for (int tries = 0; tries < 200 && !try_put(&more, 100000, SMALL_BYTES, &status); tries++)
        pause_ms(100);
    ck_assert(reads(&more));
    ck_assert_uint_eq(count_there(&kept[count / 2 + 1], count - count / 2 - 1),
                      count - count / 2 - 1);

    report.durable_seq = copies_published_seq(copies, LANE_SMALL);
    copies_report(copies, &report);
    WAIT_UNTIL(metric(METRIC_TIER_HOLDS) == 0);
    uint64_t next = 200000;
    for (int i = 0; i < 64; i++) {
        struct item item;
        report.durable_seq = copies_published_seq(copies, LANE_SMALL);
        copies_report(copies, &report);
        for (int tries = 0; tries < 200 && !try_put(&item, next, SMALL_BYTES, &status); tries++)
            pause_ms(100);
        next++;
    }
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 0);
}
END_TEST

/* ---- many at once */

enum { UPLOADERS = 64, UPLOADS = 12, READERS = 4 };

struct crowd {
    atomic_bool stop;
    atomic_size_t stored, refused, found;
    _Atomic uint64_t seeds[UPLOADERS]; /* the last that was stored by each; 0: none */
    size_t lengths[UPLOADERS][UPLOADS];
};

struct uploader {
    pthread_t thread;
    struct crowd *crowd;
    size_t number;
};

static void *upload_many(void *argument)
{
    struct uploader *uploader = argument;
    struct crowd *crowd = uploader->crowd;
    struct prng prng = {.state = 1000 + uploader->number};
    for (size_t i = 0; i < UPLOADS; i++) {
        struct item item;
        struct status status;
        const uint64_t seed = 1 + uploader->number * UPLOADS + i;
        const size_t length = 600 * KIB + prng_below(&prng, 300 * KIB);
        crowd->lengths[uploader->number][i] = length;
        const int64_t began = clock_monotonic_ns(clock_real());
        const bool ok = try_put(&item, seed, length, &status);
        ck_assert_int_le(clock_monotonic_ns(clock_real()) - began, 10 * NS_PER_S);
        ck_assert(ok || status.code == STATUS_RESOURCE_EXHAUSTED);
        atomic_fetch_add(ok ? &crowd->stored : &crowd->refused, 1);
        if (ok)
            atomic_store(&crowd->seeds[uploader->number], seed);
    }
    return NULL;
}

static void *read_many(void *argument)
{
    struct uploader *reader = argument;
    struct crowd *crowd = reader->crowd;
    struct prng prng = {.state = reader->number};
    while (!atomic_load(&crowd->stop)) {
        const size_t at = prng_below(&prng, UPLOADERS);
        const uint64_t seed = atomic_load(&crowd->seeds[at]);
        if (seed == 0)
            continue;
        struct item item = {.seed = seed, .length = crowd->lengths[at][(seed - 1) % UPLOADS]};
        uint8_t *data = seeded_bytes(item.seed, item.length);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, item.length), &item.digest);
        atomic_fetch_add(&crowd->found,
                         store_rig_reads(&rig, &item.digest, bytes_of(data, item.length)));
        free(data);
    }
    return NULL;
}

/* 500 MiB into 128 MiB: an entry may be evicted while others of its own round are being written. */
START_TEST(many_uploads_into_a_small_store_all_end_and_nothing_hangs)
{
    static struct crowd crowd;
    static struct uploader uploaders[UPLOADERS];
    static struct uploader readers[READERS];
    struct watched watched;
    watch_start(&watched);
    for (size_t i = 0; i < UPLOADERS; i++) {
        uploaders[i] = (struct uploader){.crowd = &crowd, .number = i};
        ck_assert_int_eq(pthread_create(&uploaders[i].thread, NULL, upload_many, &uploaders[i]), 0);
    }
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (struct uploader){.crowd = &crowd, .number = i};
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_many, &readers[i]), 0);
    }
    for (size_t i = 0; i < UPLOADERS; i++)
        pthread_join(uploaders[i].thread, NULL);
    atomic_store(&crowd.stop, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    watch_end(&watched);
    ck_assert_uint_eq(crowd.stored + crowd.refused, UPLOADERS * UPLOADS);
    ck_assert_uint_gt(crowd.stored, UPLOADERS * UPLOADS / 2);
    ck_assert_uint_gt(crowd.found, 0);
    ck_assert_uint_le(watched.set_bytes_max, CAPACITY_BYTES);
    struct item item;
    put(&item, 1, 100);
    ck_assert(reads(&item));
}
END_TEST

/* ---- readers, and those who were told that something is there */

START_TEST(a_segment_that_is_read_stays_until_its_readers_have_left)
{
    struct item item;
    struct blob_reader *reader = NULL;
    struct status status;
    uint64_t next = 1000;
    put(&item, 1, 6 * MIB);
    ck_assert(blob_reader_open(store(), &item.digest, &reader, &status));
    ck_assert_ptr_nonnull(reader);
    /* As if nobody had used it. */
    struct blob_use use;
    const struct blob_key key = blob_table_blob_key(store()->table, &item.digest);
    ck_assert(blob_table_look(store()->table, key, &use));
    ck_assert(blob_table_replace(store()->table, key, use.place, use.place, use.touch));
    fill(&next, 2 * CAPACITY_BYTES, LARGE_BYTES);
    ck_assert(!is_there(&item));
    ck_assert_int_gt(metric(METRIC_SEGMENTS_CONDEMNED), 0);

    uint8_t *data = seeded_bytes(1, item.length);
    struct buffer *buffer = buffer_pool_try_take(rig.buffers);
    for (uint64_t offset = 0; offset < item.length;) {
        struct bytes piece;
        ck_assert_msg(blob_reader_read(reader, offset, buffer, &piece, &status), "%s",
                      status.message);
        ck_assert(memcmp(piece.data, data + offset, piece.length) == 0);
        offset += piece.length;
    }
    buffer_release(buffer);
    free(data);

    blob_reader_free(reader);
    for (int tries = 0; tries < 50 && metric(METRIC_SEGMENTS_CONDEMNED) > 0; tries++)
        pause_ms(100);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_CONDEMNED), 0);
}
END_TEST

static bool has_segment_file(uint64_t number, const char *suffix)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    int fd = -1;
    segment_path(path, store()->segments_directory, number, suffix);
    const bool there = io_open(io_sim_io(rig.sim), path, IO_OPEN_READ, &fd, &status);
    ck_assert(there || status.code == STATUS_NOT_FOUND);
    io_close(io_sim_io(rig.sim), fd);
    return there;
}

/* It has no name that a start would take it for a segment by, however long it is read: what it holds may be old by then. */
START_TEST(an_evicted_segment_that_is_still_read_is_not_there_for_the_next_start)
{
    struct item item;
    struct place place;
    uint64_t next = 1000;
    put(&item, 1, SMALL_BYTES);
    struct segment *segment = home_of(&item, &place);
    for (int i = 0; i < 2000 && metric(METRIC_SEGMENTS_CONDEMNED) == 0; i++)
        fill(&next, SMALL_BYTES, SMALL_BYTES);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_CONDEMNED), 0);
    ck_assert(!is_there(&item));
    ck_assert(!has_segment_file(place.segment, "seg"));
    ck_assert(has_segment_file(place.segment, "dead"));
    /* The process ends while it is read. */
    io_sim_cut_power_at(rig.sim, 1);
    segment_set_unpin(store()->segments, segment);
    rig.limits.capacity_bytes = 2 * CAPACITY_BYTES;
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(!is_there(&item));
    ck_assert(!has_segment_file(place.segment, "seg"));
    ck_assert(!has_segment_file(place.segment, "dead"));
}
END_TEST

/* Readers that stay: what they keep of the room is not there for moves as well. */
START_TEST(readers_of_what_was_evicted_do_not_make_the_store_larger_than_it_may_be)
{
    enum { READ = 6, USED = 24 };
    struct item read[READ];
    struct item used[USED];
    struct blob_reader *open_readers[READ] = {NULL};
    struct status status;
    struct watched watched;
    uint64_t next = 1000;
    watch_start(&watched);
    for (size_t i = 0; i < READ; i++) {
        put(&read[i], i, 6 * MIB);
        ck_assert(blob_reader_open(store(), &read[i].digest, &open_readers[i], &status));
    }
    for (size_t i = 0; i < USED; i++)
        put(&used[i], 100 + i, 1500000);
    for (int round = 0; round < 8; round++) {
        for (size_t i = 0; i < USED; i++)
            store_rig_has(&rig, &used[i].digest);
        fill(&next, CAPACITY_BYTES / 4, LARGE_BYTES);
    }
    watch_end(&watched);
    ck_assert_uint_le(watched.set_bytes_max, CAPACITY_BYTES);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 8);
    for (size_t i = 0; i < READ; i++)
        blob_reader_free(open_readers[i]);
    for (int tries = 0; tries < 50 && metric(METRIC_SEGMENTS_CONDEMNED) > 0; tries++)
        pause_ms(100);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_CONDEMNED), 0);
}
END_TEST

struct faithful {
    pthread_t thread;
    atomic_bool stop;
    const struct item *items;
    size_t count;
    size_t reads;
    uint64_t seed;
};

/* Reads the same blobs over and over: they are always in use, so they are always there. */
static void *read_faithfully(void *argument)
{
    struct faithful *faithful = argument;
    struct prng prng = {.state = faithful->seed};
    while (!atomic_load(&faithful->stop)) {
        const struct item *item = &faithful->items[prng_below(&prng, faithful->count)];
        ck_assert_msg(reads(item), "blob %d is in use and gone", (int)item->seed);
        faithful->reads++;
    }
    return NULL;
}

START_TEST(readers_never_miss_a_blob_that_is_being_moved)
{
    enum { ITEMS = 24, THREADS = 3 };
    static struct item items[ITEMS];
    static struct faithful threads[THREADS];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, i % 3 == 2 ? 1500000 : 1000 + i * 1000);
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = (struct faithful){.items = items, .count = ITEMS, .seed = i};
        ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, read_faithfully, &threads[i]), 0);
    }
    for (int round = 0; round < 6; round++) {
        fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
        fill(&next, CAPACITY_BYTES / 4, LARGE_BYTES);
    }
    for (size_t i = 0; i < THREADS; i++) {
        atomic_store(&threads[i].stop, true);
        pthread_join(threads[i].thread, NULL);
        ck_assert_uint_gt(threads[i].reads, 100);
    }
    ck_assert_int_gt(metric(METRIC_EVICTION_MOVED_BYTES), 0);
}
END_TEST

struct asker {
    pthread_t thread;
    atomic_bool stop;
    struct item *items;
    _Atomic size_t count; /* of those that are put */
    uint64_t seed;
    size_t told;
};

/* Asks for what is about to go, but not for more than there is room for. Whatever is said to be there can be read. */
static void *ask_and_read(void *argument)
{
    struct asker *asker = argument;
    struct prng prng = {.state = asker->seed};
    while (!atomic_load(&asker->stop) && asker->told < 200) {
        const size_t count = atomic_load(&asker->count);
        pause_ms(5);
        /* The oldest that are left. */
        size_t oldest = count > 1400 ? count - 1400 : 0;
        while (oldest < count && !is_there(&asker->items[oldest]))
            oldest++;
        if (oldest >= count)
            continue;
        const size_t at = oldest + prng_below(&prng, count - oldest < 40 ? count - oldest : 40);
        if (!store_rig_has(&rig, &asker->items[at].digest))
            continue;
        for (int i = 0; i < 3; i++) {
            ck_assert_msg(reads(&asker->items[at]), "told that blob %zu is there, and it is not",
                          at);
            pause_ms(2);
        }
        asker->told++;
    }
    return NULL;
}

START_TEST(what_somebody_was_told_is_there_is_there_to_be_read)
{
    enum { ITEMS = 6000, THREADS = 3 };
    static struct item items[ITEMS];
    static struct asker askers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){.items = items, .seed = i + 5};
        ck_assert_int_eq(pthread_create(&askers[i].thread, NULL, ask_and_read, &askers[i]), 0);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        put(&items[i], i, 64 * KIB);
        for (size_t k = 0; k < THREADS; k++)
            atomic_store(&askers[k].count, i + 1);
    }
    for (size_t i = 0; i < THREADS; i++) {
        atomic_store(&askers[i].stop, true);
        pthread_join(askers[i].thread, NULL);
        ck_assert_uint_gt(askers[i].told, 10);
    }
}
END_TEST

/* Who sends a blob that is there already has stored it, too. */
START_TEST(a_blob_that_is_stored_again_lives_as_long_as_a_new_one)
{
    enum { ITEMS = 300 };
    static struct item items[ITEMS];
    uint64_t next = 5000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    struct item large;
    struct item other;
    put(&large, 900, LARGE_BYTES);
    put(&other, 901, LARGE_BYTES);
    put(&items[0], 0, SMALL_BYTES);
    put(&large, 900, LARGE_BYTES);
    for (int part = 0; part < 8;
         part++) { /* twice the capacity: what is moved must be used again */
        fill(&next, CAPACITY_BYTES / 8, SMALL_BYTES);
        fill(&next, CAPACITY_BYTES / 8, LARGE_BYTES);
        ck_assert(reads(&items[0]));
        ck_assert(reads(&large));
        put(&items[0], 0, SMALL_BYTES);
        put(&large, 900, LARGE_BYTES);
    }
    ck_assert(!is_there(&items[1]));
    ck_assert(!is_there(&other));
}
END_TEST

/* Their chunks are bytes like others: they go with their segments, and are no reason to refuse anybody. */
START_TEST(uploads_that_are_broken_off_never_fill_the_store)
{
    enum { BROKEN_OFF = 60, SENT_BYTES = 6 * MIB };
    uint8_t *data = seeded_bytes(3, SENT_BYTES);
    struct status status;
    for (uint64_t i = 0; i < BROKEN_OFF; i++) {
        struct digest digest = {.function = DIGEST_FUNCTION_SHA256,
                                .hash_length = SHA256_HASH_BYTES,
                                .size_bytes = 50 * (int64_t)MIB};
        struct blob_writer *writer = NULL;
        struct item item;
        memcpy(digest.hash, &i, sizeof(i));
        ck_assert(blob_writer_new(store(), &digest, &writer, &status));
        blob_writer_give_buffer(writer, buffer_pool_try_take(rig.buffers));
        ck_assert_msg(blob_writer_append(writer, bytes_of(data, SENT_BYTES), &status), "%s",
                      status.message);
        blob_writer_free(writer);
        put(&item, 7000 + i, LARGE_BYTES);
        ck_assert(reads(&item));
        ck_assert_uint_le(disk_used(), CAPACITY_BYTES);
    }
    free(data);
}
END_TEST

/* What the metrics say of the store is what is there, after all that may happen to bytes. */
static void check_counters(void)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status status;
    uint64_t record_bytes = 0;
    ck_assert(segment_set_numbers(store()->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(store()->segments, numbers[i]);
        struct footer_entry *entries = NULL;
        size_t entry_count = 0;
        size_t damaged = 0;
        bool cut = false;
        const uint64_t to = segment->sealed ? segment->end : 0;
        ck_assert(
            segment_contents_load(segment, to, &entries, &entry_count, &damaged, &cut, &status));
        ck_assert(!cut);
        for (size_t k = 0; k < entry_count; k++)
            record_bytes += record_stored_bytes(entries[k].payload_bytes);
        free(entries);
        segment_set_unpin(store()->segments, segment);
    }
    free(numbers);
    const uint64_t counted = (uint64_t)metrics_get(&rig.metrics, METRIC_SEGMENT_BYTES);
    /* Headers and footers of whole files may be in it. */
    ck_assert_uint_ge(counted, record_bytes);
    ck_assert_uint_le(counted, record_bytes + record_bytes / 20);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_SEGMENTS), (int64_t)count);
}

START_TEST(counters_do_not_drift_from_what_is_on_the_disk)
{
    struct prng prng = {.state = 11};
    struct status status;
    uint64_t next = 1;
    static struct item items[400];
    for (size_t i = 0; i < ARRAY_LENGTH(items); i++) {
        put(&items[i], next++, 1 + prng_below(&prng, i % 8 == 0 ? 4 * MIB : 900 * KIB));
        struct item *other = &items[prng_below(&prng, i + 1)];
        switch (i % 5) {
        case 0: /* again, whether it is there or not */
            put(other, other->seed, other->length);
            break;
        case 1: { /* broken off */
            const uint8_t piece[2000] = {0};
            struct blob_writer *writer = NULL;
            struct digest digest = other->digest;
            digest.hash[5] ^= 1;
            digest.size_bytes = 2 * MIB;
            ck_assert(blob_writer_new(store(), &digest, &writer, &status));
            blob_writer_give_buffer(writer, buffer_pool_try_take(rig.buffers));
            ck_assert(blob_writer_append(writer, bytes_of(piece, sizeof(piece)), &status));
            ck_assert(blob_writer_park(writer, &status));
            blob_writer_free(writer);
            break;
        }
        case 2:
            ck_assert(
                store_rig_put_action(&rig, &other->digest, "main", bytes_of("x", 1), &status));
            break;
        default:
            break;
        }
    }
    ck_assert_int_gt(metrics_get(&rig.metrics, METRIC_SEGMENTS_EVICTED), 5);
    pause_ms(300); /* the last victim's file */
    check_counters();
    uint64_t there = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(items); i++) {
        char *result = store_rig_action(&rig, &items[i].digest, "main");
        there += (uint64_t)is_there(&items[i]) + (result != NULL);
        free(result);
    }
    ck_assert_uint_eq(blob_table_count(store()->table), there);
}
END_TEST

/* ---- a large blob whose segments go before it is complete */

START_TEST(an_upload_whose_first_parts_were_evicted_is_refused_and_leaves_nothing)
{
    struct item item = {.seed = 5, .length = 4 * MIB};
    struct status status;
    uint64_t next = 1000;
    uint8_t *data = seeded_bytes(item.seed, item.length);
    struct blob_writer *writer = NULL;
    struct record *record = NULL;
    enum lane lane = LANE_SMALL;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, item.length), &item.digest);
    ck_assert(blob_writer_new(store(), &item.digest, &writer, &status));
    blob_writer_give_buffer(writer, buffer_pool_try_take(rig.buffers));
    ck_assert(blob_writer_append(writer, bytes_of(data, item.length / 2), &status));
    fill(&next, 2 * CAPACITY_BYTES, LARGE_BYTES);
    ck_assert(
        blob_writer_append(writer, bytes_of(data + item.length / 2, item.length / 2), &status));
    ck_assert(blob_writer_finish(writer, &record, &lane, &status));

    struct store_put late;
    memset(&late, 0, sizeof(late));
    store_put_start_record(&rig, &late, record, lane);
    ck_assert(!store_put_finish(&late, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(status.message, "evicted before it was complete"));
    ck_assert(!is_there(&item));
    blob_writer_free(writer);
    put(&item, 5, item.length);
    ck_assert(reads(&item));
    free(data);
}
END_TEST

/* What others have written of the same blob need not be written again, unless it has gone. */
START_TEST(an_upload_that_was_refused_is_stored_at_the_next_try_whoever_else_still_sends_it)
{
    struct item item = {.seed = 5, .length = 4 * MIB};
    struct status status;
    uint64_t next = 1000;
    uint8_t *data = seeded_bytes(item.seed, item.length);
    struct chunk_share *share = NULL;
    struct blob_writer *writers[3] = {NULL};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, item.length), &item.digest);
    ck_assert(chunk_share_new(&share, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(writers); i++) {
        ck_assert(blob_writer_new(store(), &item.digest, &writers[i], &status));
        blob_writer_set_share(writers[i], share);
        blob_writer_give_buffer(writers[i], buffer_pool_try_take(rig.buffers));
    }
    /* The first stalls half way, and stays; its chunks go. The second names them. */
    ck_assert(blob_writer_append(writers[0], bytes_of(data, item.length / 2), &status));
    ck_assert(blob_writer_append(writers[1], bytes_of(data, item.length / 2), &status));
    fill(&next, 2 * CAPACITY_BYTES, LARGE_BYTES);
    ck_assert(
        blob_writer_append(writers[1], bytes_of(data + item.length / 2, item.length / 2), &status));
    ck_assert(blob_writer_append(writers[2], bytes_of(data, item.length), &status));
    for (size_t i = 1; i < ARRAY_LENGTH(writers); i++) {
        struct record *record = NULL;
        enum lane lane = LANE_SMALL;
        struct store_put put_one;
        memset(&put_one, 0, sizeof(put_one));
        ck_assert(blob_writer_finish(writers[i], &record, &lane, &status));
        store_put_start_record(&rig, &put_one, record, lane);
        ck_assert_int_eq(store_put_finish(&put_one, &status), i == 2);
        ck_assert_int_eq(is_there(&item), i == 2);
    }
    ck_assert(reads(&item));
    for (size_t i = 0; i < ARRAY_LENGTH(writers); i++)
        blob_writer_free(writers[i]);
    chunk_share_unref(share);
    free(data);
}
END_TEST

/* Between its check and the moment when its entry is visible, no segment of a manifest may be emptied. */
START_TEST(a_segment_is_not_emptied_while_a_manifest_that_names_it_is_being_committed)
{
    struct item item = {.seed = 6, .length = 2 * MIB};
    struct status status;
    uint64_t next = 1000;
    uint8_t *data = seeded_bytes(item.seed, item.length);
    struct blob_writer *writer = NULL;
    struct record *record = NULL;
    enum lane lane = LANE_SMALL;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, item.length), &item.digest);
    ck_assert(blob_writer_new(store(), &item.digest, &writer, &status));
    blob_writer_give_buffer(writer, buffer_pool_try_take(rig.buffers));
    ck_assert(blob_writer_append(writer, bytes_of(data, item.length), &status));
    ck_assert(blob_writer_finish(writer, &record, &lane, &status));
    /* Its chunks are in the oldest segment; many more bytes wait for the same slow sync. */
    fill(&next, CAPACITY_BYTES / 2, LARGE_BYTES);
    struct store_put put_late;
    memset(&put_late, 0, sizeof(put_late));
    io_sim_set_sync_delay(rig.sim, 20 * NS_PER_MS);
    store_put_start_record(&rig, &put_late, record, lane);
    fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
    const bool ok = store_put_finish(&put_late, &status);
    if (ok)
        assert_agrees(&item);
    blob_writer_free(writer);
    free(data);
}
END_TEST

/* ---- what comes back and what does not */

/* All that was ever put, and what of it is there. */
struct history {
    struct item *items; /* owned */
    bool *there;        /* owned */
    size_t count;
};

static void history_make(struct history *history, size_t count, uint64_t seed)
{
    struct prng prng = {.state = seed};
    history->items = calloc(count, sizeof(*history->items));
    history->there = calloc(count, sizeof(*history->there));
    history->count = count;
    for (size_t i = 0; i < count; i++) {
        put(&history->items[i], seed * 100000 + i, random_length(&prng));
        for (int k = 0; k < 3; k++)
            store_rig_has(&rig, &history->items[prng_below(&prng, i + 1)].digest);
    }
}

static void history_note(struct history *history)
{
    for (size_t i = 0; i < history->count; i++)
        history->there[i] = is_there(&history->items[i]);
}

static void history_check(const struct history *history)
{
    for (size_t i = 0; i < history->count; i++) {
        const struct item *item = &history->items[i];
        ck_assert_msg(is_there(item) == history->there[i],
                      "blob %zu of %zu bytes: there %d, before %d", i, item->length, is_there(item),
                      history->there[i]);
        ck_assert_int_eq(reads(item), history->there[i]);
    }
}

static void history_free(struct history *history)
{
    free(history->items);
    free(history->there);
}

/* Until nothing is being evicted. */
static void settle(void)
{
    for (int quiet = 0, tries = 0; quiet < 3 && tries < 200; tries++) {
        const int64_t evicted = metric(METRIC_SEGMENTS_EVICTED);
        pause_ms(60);
        quiet = evicted == metric(METRIC_SEGMENTS_EVICTED) ? quiet + 1 : 0;
    }
}

START_TEST(a_store_that_has_evicted_is_the_same_after_a_restart_with_and_without_its_index)
{
    struct history history;
    history_make(&history, 500, 3);
    settle();
    history_note(&history);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 20);
    rig.limits.capacity_bytes = 2 * CAPACITY_BYTES; /* nothing more goes while we look */
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert(!rig.report.index_rebuilt);
    history_check(&history);
    store_rig_close(&rig);
    store_rig_remove_index(&rig);
    store_rig_open(&rig);
    history_check(&history);
    history_free(&history);
}
END_TEST

/* The manifest of each lies in a segment that stays. */
START_TEST(a_large_blob_that_was_forgotten_does_not_come_back_with_its_manifest)
{
    enum { ITEMS = 30 };
    static struct item items[ITEMS];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, 5 * MIB); /* half of them lie in two segments */
    settle();
    size_t forgotten = 0;
    for (int i = 0; i < 400 && forgotten < 6; i++) {
        fill(&next, LARGE_BYTES, LARGE_BYTES);
        forgotten = ITEMS - count_there(items, ITEMS);
    }
    settle();
    bool there[ITEMS];
    for (size_t i = 0; i < ITEMS; i++)
        there[i] = is_there(&items[i]);
    rig.limits.capacity_bytes = 2 * CAPACITY_BYTES;
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING); /* what is on disk counts */
    store_rig_open(&rig);
    for (size_t i = 0; i < ITEMS; i++) {
        ck_assert_int_eq(is_there(&items[i]), there[i]);
        ck_assert_int_eq(reads(&items[i]), there[i]);
    }
}
END_TEST

START_TEST(an_older_action_result_never_comes_back)
{
    enum { ACTIONS = 20, WRITES = 1200 };
    struct digest actions[ACTIONS];
    int values[ACTIONS] = {0};
    char text[40000];
    struct status status;
    struct prng prng = {.state = 9};
    uint64_t next = 1000;
    memset(text, 'x', sizeof(text));
    for (size_t i = 0; i < ACTIONS; i++)
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(&i, sizeof(i)), &actions[i]);
    for (int i = 0; i < WRITES; i++) {
        const size_t at = prng_below(&prng, ACTIONS);
        struct item item;
        values[at] = i + 1;
        snprintf(text, sizeof(text), "%08d", values[at]);
        ck_assert(store_rig_put_action(&rig, &actions[at], "x", bytes_of(text, 20000), &status));
        put(&item, next++, 100 * KIB);
        free(store_rig_action(&rig, &actions[prng_below(&prng, ACTIONS)],
                              "x")); /* used, so it is moved */
        if (i % 300 != 299)
            continue;
        store_rig_crash(&rig, (uint64_t)i, IO_SIM_CRASH_NOTHING);
        store_rig_open(&rig);
        for (size_t k = 0; k < ACTIONS; k++) {
            char *found = store_rig_action(&rig, &actions[k], "x");
            if (found != NULL && values[k] != 0)
                ck_assert_int_eq(atoi(found), values[k]);
            free(found);
        }
    }
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 5);
}
END_TEST

/* Else it would follow the newer record in the log, and win where the index is made anew. */
START_TEST(a_move_that_comes_after_a_newer_record_is_not_appended)
{
    struct digest action;
    struct place old;
    struct status status = {0};
    const struct bytes instance = bytes_of_string("x");
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of("action", 6), &action);
    ck_assert(store_rig_put_action(&rig, &action, "x", bytes_of("old", 3), &status));
    ck_assert(store_find_action(store(), &action, instance, FIND_ONLY, &old));
    ck_assert(store_rig_put_action(&rig, &action, "x", bytes_of("new", 3), &status));
    const uint64_t seq = segment_log_pending_seq(store()->logs[LANE_SMALL]);

    struct store_put late;
    const struct action_record fields = {.written_wall_ns = 1,
                                         .node_uid = 2,
                                         .instance = instance,
                                         .writer = bytes_of_string("test"),
                                         .result = bytes_of("old", 3)};
    store_put_init(&late);
    action_record_fixed_put(late.fixed, &fields);
    const struct bytes parts[] = {bytes_of(late.fixed, sizeof(late.fixed)), fields.instance,
                                  fields.writer, fields.result};
    late.record = (struct record){.kind = RECORD_ACTION,
                                  .digest = action,
                                  .payload = {.parts = parts, .count = ARRAY_LENGTH(parts)}};
    late.record.payload_bytes = bytes_list_length(late.record.payload);
    late.record.payload_crc32c = crc32c_list(0, late.record.payload);
    late.request.record = &late.record;
    late.request.instance = instance;
    late.request.relocate = old;
    commit_submit(durability_commit(rig.durability, LANE_SMALL), &late.request);
    ck_assert(store_put_finish(&late, &status));
    ck_assert(late.request.stale);
    ck_assert_uint_eq(segment_log_pending_seq(store()->logs[LANE_SMALL]), seq);
    char *found = store_rig_action(&rig, &action, "x");
    ck_assert_str_eq(found, "new");
    free(found);
}
END_TEST

/* FORGETs die with their segment like other records, but not before what they name. */
START_TEST(what_was_purged_stays_away_while_its_record_is_there)
{
    enum { ITEMS = 8 };
    static struct item items[ITEMS];
    struct item keeper;
    struct place place;
    uint64_t next = 1000;
    /* In the large lane, which stays; their FORGETs are in the small one, which goes round and round. */
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, 1500000);
    put(&keeper, 100, 1500000);
    for (size_t i = 0; i < ITEMS; i++) {
        segment_set_unpin(store()->segments, home_of(&items[i], &place));
        durability_forget(rig.durability, &items[i].digest, NULL, place, RECORD_MANIFEST,
                          FORGET_PURGED);
    }
    struct segment *home = home_of(&keeper, &place);
    for (int round = 0; round < 3; round++) {
        fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
        store_rig_has(&rig, &keeper.digest);
    }
    segment_set_unpin(store()->segments, home);
    settle();
    store_rig_crash(&rig, 3, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    for (size_t i = 0; i < ITEMS; i++)
        ck_assert_msg(!is_there(&items[i]), "blob %zu was purged and is back", i);
}
END_TEST

static size_t count_orders_told(const struct digest *digest)
{
    struct arena arena;
    struct feed_batch batch;
    struct status status;
    size_t count = 0;
    const struct feed_query query = {.lane = LANE_SMALL,
                                     .records_max = 16,
                                     .bytes_max = MIB,
                                     .kinds = FEED_KIND(RECORD_FORGET),
                                     .only = digest};
    arena_init(&arena, 4 * MIB);
    ck_assert(feed_read(durability_feed(rig.durability), &query, &arena, &batch, &status));
    for (size_t i = 0; i < batch.count; i++)
        count += digest_equal(&batch.entries[i].digest, digest);
    arena_destroy(&arena);
    return count;
}

/* Nothing of it is here any more, and the bucket that was down all the time is to delete it still. */
START_TEST(what_was_deleted_by_order_is_told_to_a_bucket_that_was_down_for_long)
{
    enum { BUCKET = 77, ROUNDS = 3 };
    struct item item;
    struct place place;
    uint64_t next = 1000;
    const struct copies_config with_bucket = {.bucket_uid = BUCKET};
    struct copies *const copies = durability_copies(rig.durability);
    copies_configure(copies, &with_bucket);
    put(&item, 1, SMALL_BYTES);
    segment_set_unpin(store()->segments, home_of(&item, &place));
    durability_forget(rig.durability, &item.digest, NULL, place, RECORD_BLOB, FORGET_PURGED);
    for (int round = 0; round < ROUNDS; round++)
        fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    settle();
    ck_assert_ptr_null(segment_set_pin(store()->segments, place.segment));
    ck_assert_uint_ge(count_orders_told(&item.digest), 1);

    /* It has been deleted there: then it need not be told for ever. */
    const struct follower_report report = {.uid = BUCKET,
                                           .lane = LANE_SMALL,
                                           .durable_seq = copies_published_seq(copies, LANE_SMALL),
                                           .wait_ns = 3600 * NS_PER_S};
    copies_report(copies, &report);
    for (int round = 0; round < ROUNDS; round++)
        fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    settle();
    ck_assert_uint_eq(count_orders_told(&item.digest), 0);
}
END_TEST

/* Purged between the moment when its copy is appended and the moment when that is visible. */
START_TEST(a_blob_that_is_purged_while_it_is_moved_does_not_come_back)
{
    struct item item;
    struct place place;
    struct status status;
    struct mover mover;
    struct commit *const commits[LANE_COUNT] = {durability_commit(rig.durability, LANE_SMALL),
                                                durability_commit(rig.durability, LANE_LARGE)};
    put(&item, 1, 50000);
    struct segment *home = home_of(&item, &place);
    io_sim_set_sync_delay(rig.sim, 300 * NS_PER_MS);
    mover_init(&mover, store(), commits);
    const uint64_t before = segment_log_pending_seq(store()->logs[LANE_SMALL]);
    const struct moving moving = {.kind = RECORD_BLOB, .place = place, .bytes = 50000};
    ck_assert(mover_move(&mover, home, &moving));
    while (segment_log_pending_seq(store()->logs[LANE_SMALL]) == before)
        pause_ms(1);
    durability_forget(rig.durability, &item.digest, NULL, place, RECORD_BLOB, FORGET_PURGED);
    mover_wait(&mover);
    ck_assert_uint_eq(mover.moved_bytes, 0);
    mover_destroy(&mover);
    segment_set_unpin(store()->segments, home);
    ck_assert(!is_there(&item));
    io_sim_set_sync_delay(rig.sim, 0);
    struct item later;
    ck_assert(try_put(&later, 2, 10, &status)); /* the FORGETs are durable before it */
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(!is_there(&item));
}
END_TEST

/* Opens it so large that nothing goes while we look: what was used is not known after a start. */
static void open_to_look(void)
{
    rig.limits.capacity_bytes = 4 * CAPACITY_BYTES;
    store_rig_open(&rig);
}

/* Power is cut, so that nothing counts as used because it was looked at: all that is then would be moved past what came later. */
static void open_again(void)
{
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
    rig.limits.capacity_bytes = CAPACITY_BYTES;
    store_rig_open(&rig);
}

/* Those that went because it was not known any more that they are in use are put again. */
static void use_or_put(struct item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!store_rig_has(&rig, &items[i].digest))
            put(&items[i], items[i].seed, items[i].length);
}

START_TEST(power_cuts_while_segments_go_lose_nothing_that_is_used_and_bring_nothing_half_back)
{
    enum { ROUNDS = 14, EACH = 50, USED = 10 };
    static struct item items[ROUNDS][EACH];
    static struct item used[USED];
    struct prng prng = {.state = 4711};
    struct status status;
    uint64_t seed = 1;
    for (size_t i = 0; i < USED; i++)
        put(&used[i], seed++, i % 3 == 0 ? 2500000 : 60000);
    for (size_t round = 0; round < ROUNDS; round++) {
        use_or_put(used, USED);
        io_sim_cut_power_at(rig.sim, 100 + prng_below(&prng, 1500));
        for (size_t i = 0; i < EACH; i++)
            if (!try_put(&items[round][i], seed++, random_length(&prng), &status))
                break;
        const bool lane_failed = store_rig_failure(&rig) != STATUS_OK;
        store_rig_crash(&rig, prng_next(&prng), (enum io_sim_crash_mode)prng_below(&prng, 3));
        ck_assert_uint_le(disk_used(), CAPACITY_BYTES + 2 * SEGMENT_BYTES_MIN);
        open_to_look();
        for (size_t i = 0; i < USED; i++)
            ck_assert_msg(reads(&used[i]), "round %zu: blob %zu was in use and is gone", round, i);
        /*
         * What was put last is still there; of the rest each is there whole or not at all. Last is what fits into a segment: all that
         * was read before is vouched for and moved past what came later and was not, again and again in a store of 16 segments.
         */
        uint64_t recent_bytes = 0;
        for (size_t i = EACH; i > 0; i--) {
            const struct item *item = &items[round][i - 1];
            if (!item->acknowledged)
                continue;
            recent_bytes += item->length;
            assert_agrees(item);
            ck_assert_msg(recent_bytes > SEGMENT_BYTES_MIN || is_there(item),
                          "round %zu: blob %zu of %zu bytes is gone, with only %" PRIu64
                          " bytes put since; lanes failed before: %d",
                          round, i, item->length, recent_bytes, (int)lane_failed);
        }
        for (size_t i = 0; i < EACH; i++) {
            const struct item *item = &items[prng_below(&prng, round + 1)][i];
            if (item->acknowledged)
                assert_agrees(item);
        }
        open_again();
    }
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), ROUNDS);
}
END_TEST

START_TEST(a_stop_in_the_middle_of_an_eviction_is_quick_and_loses_nothing)
{
    enum { ROUNDS = 12, USED = 20 };
    static struct item used[USED];
    uint64_t next = 1000;
    for (size_t i = 0; i < USED; i++)
        put(&used[i], i, i % 4 == 0 ? 2000000 : 100000);
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        use_or_put(used, USED);
        fill(&next, CAPACITY_BYTES / 8 + (uint64_t)round * 300000, SMALL_BYTES);
        const int64_t began = clock_monotonic_ns(clock_real());
        store_rig_close(&rig);
        ck_assert_int_le(clock_monotonic_ns(clock_real()) - began, 8 * NS_PER_S);
        open_to_look();
        for (size_t i = 0; i < USED; i++)
            ck_assert_msg(reads(&used[i]), "round %d: blob %zu", round, i);
        open_again();
    }
}
END_TEST

/* ---- disks that fill up or fail */

START_TEST(a_disk_that_has_less_than_it_said_is_made_room_on)
{
    struct item item;
    struct item used;
    uint64_t next = 1000;
    fill(&next, CAPACITY_BYTES / 2, SMALL_BYTES);
    put(&used, 1, SMALL_BYTES);
    io_sim_set_capacity(
        rig.sim, disk_used()); /* no further segment can be made, whatever the capacity says */
    for (int i = 0; i < 200; i++) {
        put(&item, next++, SMALL_BYTES);
        use(&used);
    }
    ck_assert(reads(&used));
    ck_assert(reads(&item));
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 0);
}
END_TEST

/*
 * All is used, so all is to be moved, and nothing can be: it is forgotten, or nobody could write ever again. But not all at
 * once, since that does not help.
 */
START_TEST(moves_that_fail_do_not_stop_space_from_being_made)
{
    enum { ITEMS = 700 };
    static struct item items[ITEMS];
    struct item item;
    struct status status;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    for (size_t i = 0; i < ITEMS; i++)
        use(&items[i]);
    io_sim_set_capacity(rig.sim, 1);
    bool ok = true;
    for (uint64_t i = 0; ok && i < 200; i++)
        ok = try_put(&item, 10000 + i, SMALL_BYTES, &status);
    ck_assert(!ok); /* 1 byte is not enough for anything, however much is evicted */
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_gt(metric(METRIC_EVICTION_MOVES_FAILED), 0);
    ck_assert_int_gt(metric(METRIC_SEGMENTS_EVICTED), 0);
    ck_assert_uint_gt(count_there(items, ITEMS), ITEMS / 3);
    io_sim_set_capacity(rig.sim, 0);
    for (int tries = 0; tries < 50 && !try_put(&item, 1, SMALL_BYTES, &status); tries++)
        pause_ms(100);
    ck_assert(reads(&item));
}
END_TEST

START_TEST(a_lane_that_has_failed_loses_nothing_to_eviction)
{
    enum { ITEMS = 100 };
    static struct item items[ITEMS];
    struct item item;
    struct status status;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    pause_ms(200); /* segments ahead are made, full ones sealed */
    io_sim_fail(rig.sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert(!try_put(&item, 5000, 100, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    for (uint64_t i = 0; i < 80; i++)
        if (!try_put(&item, 6000 + i, LARGE_BYTES, &status))
            break;
    rig.limits.capacity_bytes = CAPACITY_BYTES;
    pause_ms(1200);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_EVICTED), 0);
    for (size_t i = 0; i < ITEMS; i++)
        ck_assert(reads(&items[i]));
}
END_TEST

/* For n = 1, 2, ...: the nth operation of this kind fails once while segments go. */
static void check_nth_failure(enum io_sim_operation operation,
                              int error_number,
                              uint64_t step,
                              uint64_t last)
{
    enum { USED = 6 };
    static struct item used[USED];
    static uint64_t next = 100000; /* none twice: what is there already lies in an old segment */
    struct prng prng = {.state = 31};
    struct status status;
    for (size_t i = 0; i < USED; i++)
        put(&used[i], i + 1, i % 2 == 0 ? 40000 : 2200000);
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    for (size_t i = 0; i < USED; i++)
        put(&used[i], i + 1, i % 2 == 0 ? 40000 : 2200000);
    for (uint64_t n = 1; n <= last; n += step) {
        struct item items[24];
        io_sim_fail(rig.sim, operation, n, error_number, IO_SIM_ONCE);
        for (size_t i = 0; i < 24; i++)
            try_put(&items[i], next++, random_length(&prng), &status);
        io_sim_fail_nothing(rig.sim);
        const bool lane_failed = store_rig_failure(&rig) != STATUS_OK;
        store_rig_crash(&rig, n, IO_SIM_CRASH_RANDOM);
        store_rig_open(&rig);
        for (size_t i = 0; i < 24; i++) {
            if (!items[i].acknowledged)
                continue;
            assert_agrees(&items[i]);
            /* A lane that fails leaves all eviction to the other, which is nearly empty here. */
            ck_assert_msg(lane_failed || is_there(&items[i]),
                          "n = %d: blob %zu was acknowledged and is gone", (int)n, i);
        }
        for (size_t i = 0; i < USED; i++)
            if (!reads(&used[i])) /* a full disk may cost what is in use */
                put(&used[i], i + 1, i % 2 == 0 ? 40000 : 2200000);
    }
}

START_TEST(eviction_survives_whichever_write_fails)
{
    check_nth_failure(IO_SIM_PWRITEV, EIO, 7, 80);
}
END_TEST

START_TEST(eviction_survives_whichever_allocation_fails)
{
    check_nth_failure(IO_SIM_ALLOCATE, ENOSPC, 1, 8);
}
END_TEST

START_TEST(eviction_survives_whichever_rename_unlink_or_directory_sync_fails)
{
    check_nth_failure(IO_SIM_RENAME, EIO, 1, 6);
    check_nth_failure(IO_SIM_UNLINK, EIO, 1, 4);
    check_nth_failure(IO_SIM_SYNC_DIRECTORY, EIO, 1, 6);
}
END_TEST

START_TEST(rotten_records_go_with_their_segment)
{
    enum { ITEMS = 100 };
    static struct item items[ITEMS];
    struct place place;
    char path[SEGMENT_PATH_BYTES_MAX];
    uint64_t next = 1000;
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, SMALL_BYTES);
    pause_ms(200); /* it is sealed */
    for (size_t i = 0; i < 40; i += 10) {
        segment_set_unpin(store()->segments, home_of(&items[i], &place));
        use(&items[i]); /* it will be moved */
        segment_path(path, store()->segments_directory, place.segment, "seg");
        io_sim_corrupt(rig.sim, path, place.offset + (i % 20 == 0 ? 10 : 5000), 0x40);
    }
    fill(&next, CAPACITY_BYTES, SMALL_BYTES);
    for (size_t i = 0; i < 40; i++)
        ck_assert(!is_there(&items[i]));
    ck_assert_int_ge(metric(METRIC_EVICTION_MOVES_FAILED), 4);
}
END_TEST

/* ---- a segment that the disk cannot read */

static const struct io_ops *sound_ops;
static struct io_ops unreadable_ops;
static atomic_int unreadable_fd = -1;

static int64_t unreadable_pread(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    if (fd == atomic_load(&unreadable_fd))
        return -EIO;
    return sound_ops->pread(io, fd, buffer, length, offset);
}

/* The number is somebody else's from then on. */
static int unreadable_close(struct io *io, int fd)
{
    int expected = fd;
    atomic_compare_exchange_strong(&unreadable_fd, &expected, -1);
    return sound_ops->close(io, fd);
}

#define UNREADABLE_CAPACITY_BYTES (6 * 40 * MIB)

/* Segments of 32 MiB in this lane: more than the disk may lose at a time before a walk ends. */
static void start_with_an_unreadable_disk(enum lane lane)
{
    clock_sim_init(&sim_clock, 1000000 * NS_PER_S);
    store_rig_close(&rig);
    rig.limits = (struct store_rig_limits){.capacity_bytes = UNREADABLE_CAPACITY_BYTES,
                                           .segment_bytes = {SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN},
                                           .clock = &sim_clock.clock};
    rig.limits.segment_bytes[lane] = 32 * MIB;
    struct io *io = io_sim_io(rig.sim);
    atomic_store(&unreadable_fd, -1);
    sound_ops = io->ops;
    unreadable_ops = *sound_ops;
    unreadable_ops.pread = unreadable_pread;
    unreadable_ops.close = unreadable_close;
    io->ops = &unreadable_ops;
    store_rig_open(&rig);
}

static void end_with_an_unreadable_disk(void)
{
    store_rig_close(&rig);
    io_sim_io(rig.sim)->ops = sound_ops;
    store_rig_open(&rig);
}

static void on_finding(void *argument, const struct fsck_finding *finding)
{
    (void)argument;
    ck_abort_msg("fsck: %s in segment %d at %d: %s", finding->what, (int)finding->segment,
                 (int)finding->offset, finding->reason);
}

static void on_note(void *argument, const char *text)
{
    (void)argument;
    (void)text;
}

static void on_progress(void *argument, const struct fsck_progress *progress)
{
    (void)argument;
    (void)progress;
}

/* Closes the store, has it looked at, and opens it again. */
static void check_fsck(void)
{
    struct fsck *fsck = NULL;
    struct fsck_summary summary;
    struct status status;
    const struct fsck_config config = {.io = io_sim_io(rig.sim),
                                       .clock = clock_real(),
                                       .directory = rig.directory.path,
                                       .finding = on_finding,
                                       .note = on_note,
                                       .progress = on_progress};
    store_rig_close(&rig);
    ck_assert_msg(fsck_open(&config, &fsck, &status), "%s", status.message);
    ck_assert_msg(fsck_check(fsck, &summary, &status), "%s", status.message);
    ck_assert_uint_eq(summary.findings, 0);
    ck_assert_uint_eq(summary.index_entries, summary.blobs);
    fsck_close(fsck);
    store_rig_open(&rig);
}

static uint64_t lose_segment_of(const struct item *item)
{
    struct place place;
    struct segment *segment = home_of(item, &place);
    atomic_store(&unreadable_fd, segment->read_fd);
    segment_set_unpin(store()->segments, segment);
    return place.segment;
}

/* Somebody who stores what nobody uses, and waits for room where there is none, until it is told to stop. */
static struct filler {
    pthread_t thread;
    uint64_t next; /* seed */
    size_t each;   /* bytes */
    atomic_bool stop;
} filler;

static void *fill_on(void *argument)
{
    (void)argument;
    struct item item;
    struct status status;
    while (!atomic_load(&filler.stop)) {
        if (!try_put(&item, filler.next++, filler.each, &status) &&
            status.code != STATUS_RESOURCE_EXHAUSTED)
            ck_abort_msg("%s", status.message);
    }
    return NULL;
}

static void start_filler(uint64_t next, size_t each)
{
    filler.next = next;
    filler.each = each;
    atomic_store(&filler.stop, false);
    ck_assert_int_eq(pthread_create(&filler.thread, NULL, fill_on, NULL), 0);
}

/* Nobody waits for room any more. */
static void stop_filler(void)
{
    atomic_store(&filler.stop, true);
    pthread_join(filler.thread, NULL);
}

static void await(enum metric which, int64_t at_least)
{
    for (int i = 0; i < 30000 && metric(which) < at_least; i++)
        pause_ms(10);
    ck_assert_int_ge(metric(which), at_least);
}

/* The clock stands, so the segment is not tried again before we say so. */
static void let_eviction_fail(int times)
{
    for (int i = 1; i <= times; i++) {
        for (int k = 0; k < 30000 && metric(METRIC_EVICTIONS_FAILED) < i; k++) {
            ck_assert_int_eq(metric(METRIC_SEGMENTS_EVICTED), 0);
            pause_ms(10);
        }
        ck_assert_int_eq(metric(METRIC_EVICTIONS_FAILED), i);
        ck_assert_int_eq(metric(METRIC_SEGMENTS_EVICTED), 0);
        if (i < times)
            clock_sim_advance(&sim_clock, 10 * NS_PER_S);
    }
}

/* Nothing is evicted any more, as nobody stores anything. Of our own is only who says so; it evicts nothing. */
static void await_rest(void)
{
    struct evictor *looker = NULL;
    struct status status;
    const struct evictor_config config = {
        .store = store(),
        .commits = {durability_commit(rig.durability, LANE_SMALL),
                    durability_commit(rig.durability, LANE_LARGE)}};
    ck_assert(evictor_new(&config, &looker, &status));
    for (int i = 0; i < 30000 && evictor_is_needed(looker); i++)
        pause_ms(10);
    ck_assert(!evictor_is_needed(looker));
    evictor_free(looker);
}

enum restart { RESTART_CLEAN, RESTART_KILLED, RESTART_POWER_CUT };

/*
 * With room, from then on: what is there is not evicted while we look. (A store that is opened full makes room at once, and
 * what was used in the last minute before a crash does not count as used then.)
 */
static void check_same_after(enum restart restart, const struct item *items, size_t count)
{
    bool was_there[64];
    ck_assert_uint_le(count, ARRAY_LENGTH(was_there));
    await_rest();
    for (size_t i = 0; i < count; i++)
        was_there[i] = is_there(&items[i]);
    rig.limits.capacity_bytes = 2 * UNREADABLE_CAPACITY_BYTES;
    if (restart == RESTART_POWER_CUT) {
        store_rig_crash(&rig, 7, IO_SIM_CRASH_RANDOM);
    } else {
        if (restart == RESTART_KILLED)
            io_sim_cut_power_at(rig.sim, 1);
        store_rig_close(&rig);
        if (restart == RESTART_KILLED)
            io_sim_kill(rig.sim);
    }
    store_rig_open(&rig);
    ck_assert(restart == RESTART_POWER_CUT || !rig.report.index_rebuilt);
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(is_there(&items[i]) == was_there[i], "item %zu, restart %d", i, restart);
        ck_assert_msg(reads(&items[i]) == was_there[i], "item %zu, restart %d", i, restart);
    }
}

static void check_same_after_restarts(const struct item *items, size_t count)
{
    for (enum restart restart = RESTART_CLEAN; restart <= RESTART_POWER_CUT; restart++)
        check_same_after(restart, items, count);
    check_fsck();
}

START_TEST(a_segment_that_stays_unreadable_goes_without_what_it_held)
{
    enum { ITEMS = 40, HIT = 20 };
    static struct item items[ITEMS];
    uint64_t next = 1000;
    start_with_an_unreadable_disk(LANE_SMALL);
    for (size_t i = 0; i < HIT; i++)
        put(&items[i], i, 512 * KIB);
    fill(&next, 40 * MIB, 512 * KIB);
    for (size_t i = HIT; i < ITEMS; i++)
        put(&items[i], i, 512 * KIB);
    for (size_t i = 0; i < ITEMS; i++)
        use(&items[i]);
    lose_segment_of(&items[0]);
    start_filler(next, 512 * KIB);
    let_eviction_fail(3);
    ck_assert_uint_eq(count_there(items, ITEMS), ITEMS); /* it may be over in a moment */
    clock_sim_advance(&sim_clock, 10 * NS_PER_S);
    await(METRIC_SEGMENTS_EVICTED, 1);
    ck_assert_int_eq(metric(METRIC_SEGMENTS_GIVEN_UP), 1);
    ck_assert_uint_eq(count_there(items, HIT), 0);
    await(METRIC_SEGMENTS_EVICTED, 3); /* the other items' segments among them */
    stop_filler();
    await_rest();
    ck_assert_uint_le(segment_set_bytes(store()->segments), rig.limits.capacity_bytes);
    for (size_t i = HIT; i < ITEMS; i++)
        ck_assert(reads(&items[i]));
    ck_assert_int_eq(metric(METRIC_SEGMENTS_GIVEN_UP), 1);
    ck_assert_int_eq(metric(METRIC_EVICTIONS_FAILED), 3);
    put(&items[0], 0, 512 * KIB); /* anew */
    check_same_after_restarts(items, ITEMS);
    end_with_an_unreadable_disk();
}
END_TEST

START_TEST(a_segment_that_cannot_be_read_for_a_while_loses_nothing)
{
    enum { ITEMS = 20 };
    static struct item items[ITEMS];
    uint64_t next = 1000;
    start_with_an_unreadable_disk(LANE_SMALL);
    for (size_t i = 0; i < ITEMS; i++)
        put(&items[i], i, 512 * KIB);
    for (size_t i = 0; i < ITEMS; i++)
        use(&items[i]);
    fill(&next, 40 * MIB, 512 * KIB);
    lose_segment_of(&items[0]);
    start_filler(next, 512 * KIB);
    let_eviction_fail(3);
    atomic_store(&unreadable_fd, -1);
    clock_sim_advance(&sim_clock, 10 * NS_PER_S);
    await(METRIC_SEGMENTS_EVICTED, 1);
    stop_filler();
    await_rest();
    ck_assert_int_eq(metric(METRIC_SEGMENTS_GIVEN_UP), 0);
    ck_assert_int_eq(metric(METRIC_EVICTIONS_FAILED), 3);
    for (size_t i = 0; i < ITEMS; i++)
        ck_assert(reads(&items[i]));
    check_same_after_restarts(items, ITEMS);
    end_with_an_unreadable_disk();
}
END_TEST

/* The manifest of the second lies in a segment that can be read. */
START_TEST(large_blobs_with_chunks_in_a_segment_that_stays_unreadable_are_missing)
{
    struct item items[3];
    struct place place;
    uint64_t next = 1000;
    start_with_an_unreadable_disk(LANE_LARGE);
    put(&items[0], 0, 20 * MIB);
    put(&items[1], 1, 20 * MIB);
    fill(&next, 24 * MIB, LARGE_BYTES);
    put(&items[2], 2, 10 * MIB);
    for (size_t i = 0; i < 3; i++)
        use(&items[i]);
    const uint64_t lost = lose_segment_of(&items[0]);
    segment_set_unpin(store()->segments, home_of(&items[1], &place));
    ck_assert_uint_gt(place.segment, lost);
    start_filler(next, LARGE_BYTES);
    let_eviction_fail(3);
    ck_assert_uint_eq(count_there(items, 3), 3);
    clock_sim_advance(&sim_clock, 10 * NS_PER_S);
    await(METRIC_SEGMENTS_EVICTED, 1);
    ck_assert(!is_there(&items[0]));
    ck_assert(!is_there(&items[1]));
    stop_filler();
    await_rest();
    ck_assert_int_eq(metric(METRIC_SEGMENTS_GIVEN_UP), 1);
    ck_assert_int_eq(metric(METRIC_EVICTIONS_FAILED), 3);
    ck_assert(reads(&items[2]));
    check_same_after_restarts(items, 3);
    end_with_an_unreadable_disk();
}
END_TEST

/* ---- a sync that takes its time */

static struct io_ops gated_ops;
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd;      /* guarded by lock, as all below: whose syncs wait; -1: nobody's */
    bool waited; /* one did */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .fd = -1};

static int gated_sync(struct io *io, int fd)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.fd == fd) {
        gate.waited = true;
        pthread_cond_broadcast(&gate.changed);
        pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    return sound_ops->sync(io, fd);
}

static void set_gate(int fd)
{
    pthread_mutex_lock(&gate.lock);
    gate.fd = fd;
    gate.waited = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void await_at_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.waited)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void start_with_a_gate(void)
{
    start_bare();
    store_rig_close(&rig);
    sound_ops = io_sim_io(rig.sim)->ops;
    gated_ops = *sound_ops;
    gated_ops.sync = gated_sync;
    io_sim_io(rig.sim)->ops = &gated_ops;
    rig.limits.capacity_bytes = CAPACITY_BYTES;
    store_rig_open(&rig);
}

static void end_with_a_gate(void)
{
    store_rig_close(&rig);
    io_sim_io(rig.sim)->ops = sound_ops;
    end();
}

static uint64_t oldest_large_segment(void)
{
    uint64_t *numbers = NULL;
    uint64_t oldest = 0;
    size_t count = 0;
    struct status status;
    ck_assert(segment_set_numbers(store()->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count && oldest == 0; i++) {
        struct segment *segment = segment_set_pin(store()->segments, numbers[i]);
        if (segment != NULL && segment->lane == LANE_LARGE)
            oldest = numbers[i];
        segment_set_unpin(store()->segments, segment);
    }
    free(numbers);
    return oldest;
}

static bool has_chunk_in(const struct item *item, uint64_t segment)
{
    struct blob_reader *reader = NULL;
    struct status status;
    size_t count = 0;
    bool has = false;
    ck_assert(blob_reader_open(store(), &item->digest, &reader, &status) && reader != NULL);
    const struct manifest_chunk *chunks = blob_reader_chunks(reader, &count);
    for (size_t i = 0; i < count; i++)
        has = has || place_unpack(chunks[i].place).segment == segment;
    blob_reader_free(reader);
    return has;
}

/*
 * Somebody else forgets a blob whose manifest stays when a segment with chunks of it goes. Were the segment to go before that FORGET
 * is durable, the manifest would be back without them after a power cut.
 */
START_TEST(a_segment_does_not_go_before_others_forgets_of_what_lay_there_are_durable)
{
    struct item first;
    struct item split;
    struct item small;
    struct place place;
    put(&small, 1, 1000);
    struct segment *home = home_of(&small, &place);
    const int small_fd = home->write_fd;
    segment_set_unpin(store()->segments, home);
    put(&first, 2, 5 * MIB);
    put(&split, 3, 5 * MIB);
    const uint64_t oldest = oldest_large_segment();
    ck_assert(has_chunk_in(&first, oldest) && has_chunk_in(&split, oldest));
    segment_set_unpin(store()->segments, home_of(&split, &place));
    ck_assert_uint_gt(place.segment, oldest);

    set_gate(small_fd);
    durability_forget(rig.durability, &split.digest, NULL, place, RECORD_MANIFEST, FORGET_PURGED);
    await_at_gate();
    start_filler(1000, LARGE_BYTES);
    /* Nothing lives there any more: the evictor has come so far. */
    for (int i = 0; i < 30000 && is_there(&first); i++)
        pause_ms(10);
    ck_assert(!is_there(&first));
    for (int i = 0; i < 100; i++) {
        ck_assert(has_segment_file(oldest, "seg"));
        pause_ms(10);
    }
    ck_assert_int_eq(metric(METRIC_SEGMENTS_EVICTED), 0);
    set_gate(-1);
    await(METRIC_SEGMENTS_EVICTED, 1);
    stop_filler();
    ck_assert(!has_segment_file(oldest, "seg"));
    ck_assert(!is_there(&split));
    rig.limits.capacity_bytes = 2 * CAPACITY_BYTES;
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(!is_there(&split));
}
END_TEST

/* ---- removing a file */

START_TEST(a_dead_segment_is_renamed_then_cut_in_steps_then_unlinked)
{
    uint64_t next = 1000;
    store_rig_close(&rig);
    rig.limits = (struct store_rig_limits){.capacity_bytes = 6 * 56 * MIB,
                                           .segment_bytes = {48 * MIB, SEGMENT_BYTES_MIN}};
    store_rig_open(&rig);
    const uint64_t renames = io_sim_count(rig.sim, IO_SIM_RENAME);
    const uint64_t unlinks = io_sim_count(rig.sim, IO_SIM_UNLINK);
    const uint64_t made = (uint64_t)metric(METRIC_SEGMENTS);
    for (int i = 0; i < 100 && metric(METRIC_SEGMENTS_EVICTED) == 0; i++)
        fill(&next, 4 * MIB, 512 * KIB);
    settle();
    const uint64_t evicted = (uint64_t)metric(METRIC_SEGMENTS_EVICTED);
    ck_assert_uint_ge(evicted, 1);
    ck_assert_uint_eq(io_sim_count(rig.sim, IO_SIM_UNLINK) - unlinks, evicted);
    /* Each segment is sealed with one cut; 48 MiB go in two steps before the unlink. */
    ck_assert_uint_ge(io_sim_count(rig.sim, IO_SIM_TRUNCATE), 2 * evicted);
    /* One for each that is made, two for each that goes; one may be just being made. */
    WAIT_UNTIL(io_sim_count(rig.sim, IO_SIM_RENAME) - renames ==
               (uint64_t)metric(METRIC_SEGMENTS) + 2 * evicted - made);
    ck_assert_uint_eq(disk_used() / MIB, segment_set_bytes(store()->segments) / MIB);
}
END_TEST

/* ---- small parts */

START_TEST(no_segment_number_counts_as_settled_while_it_may_still_be_made)
{
    /* Both lanes have segments: the lower of their newest bounds what can't come any more. */
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status status;
    uint64_t newest[LANE_COUNT] = {0};
    uint64_t next = 1;
    fill(&next, 20 * MIB, SMALL_BYTES);
    fill(&next, 30 * MIB, LARGE_BYTES);
    pause_ms(300);
    ck_assert(segment_set_numbers(store()->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(store()->segments, numbers[i]);
        newest[segment->lane] = segment->number;
        segment_set_unpin(store()->segments, segment);
    }
    free(numbers);
    const uint64_t lower =
        newest[LANE_SMALL] < newest[LANE_LARGE] ? newest[LANE_SMALL] : newest[LANE_LARGE];
    ck_assert_uint_eq(segment_set_settled_below(store()->segments), lower);
}
END_TEST

START_TEST(a_doomed_segment_gives_no_holds_and_a_held_one_says_so)
{
    struct item item;
    struct place place;
    put(&item, 1, 100);
    struct segment *segment = home_of(&item, &place);
    struct segment_set *segments = store()->segments;
    ck_assert(segment_set_hold(segments, segment->number));
    ck_assert(segment_set_hold(segments, segment->number));
    segment_set_doom(segments, segment);
    ck_assert(!segment_set_hold(segments, segment->number));
    ck_assert(segment_set_is_held(segments, segment));
    segment_set_let_go(segments, segment->number);
    segment_set_let_go(segments, segment->number);
    ck_assert(!segment_set_is_held(segments, segment));
    segment_set_spare(segments, segment);
    ck_assert(segment_set_hold(segments, segment->number));
    segment_set_let_go(segments, segment->number);
    ck_assert(!segment_set_hold(segments, 999999));
    segment_set_unpin(segments, segment);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("evictor");
    TCase *policy = tcase_create("policy");
    tcase_set_timeout(policy, 240);
    tcase_add_checked_fixture(policy, start, end);
    tcase_add_test(policy, what_is_used_survives_a_full_cycle_and_what_is_not_goes_first);
    tcase_add_test(policy, large_blobs_over_several_segments_are_moved_whole_or_forgotten_whole);
    tcase_add_test(policy, a_large_blob_that_is_moved_in_parts_keeps_being_one_that_was_used);
    tcase_add_test(policy, action_results_are_moved_and_forgotten_as_blobs_are);
    tcase_add_test(policy,
                   after_a_start_that_does_not_know_what_was_used_the_younger_half_counts_as_used);
    tcase_add_test(policy, a_blob_that_is_stored_again_lives_as_long_as_a_new_one);
    tcase_add_test(policy, what_was_used_before_a_restart_is_not_evicted_before_what_was_not);
    tcase_add_test(policy, a_file_of_uses_that_is_damaged_is_not_believed_and_stops_nothing);
    suite_add_tcase(suite, policy);

    TCase *vouched = tcase_create("vouched");
    tcase_set_timeout(vouched, 240);
    tcase_add_checked_fixture(vouched, start_with_vouch, end);
    tcase_add_test(vouched, what_was_vouched_for_is_moved_whatever_the_budget);
    tcase_add_test(vouched,
                   what_was_used_a_minute_before_a_kill_is_not_evicted_before_what_was_not);
    tcase_add_test(vouched, a_store_that_is_used_more_than_it_holds_goes_on_taking_writes);
    suite_add_tcase(suite, vouched);

    TCase *limits = tcase_create("limits");
    tcase_set_timeout(limits, 240);
    tcase_add_checked_fixture(limits, start, end);
    tcase_add_test(limits, capacity_is_held_under_a_long_random_load_of_both_lanes);
    tcase_add_test(limits, uploads_that_are_broken_off_never_fill_the_store);
    tcase_add_test(limits, counters_do_not_drift_from_what_is_on_the_disk);
    tcase_add_test(limits, the_reserve_of_the_disk_stays_free);
    tcase_add_test(limits, a_smaller_capacity_than_what_is_there_is_reached);
    tcase_add_test(limits, what_cannot_work_is_refused_at_the_start);
    tcase_add_test(limits, a_full_store_makes_writes_wait_then_refuses_with_numbers_and_goes_on);
    tcase_add_test(limits,
                   what_the_bucket_does_not_have_yet_is_not_evicted_and_writes_are_refused_instead);
    tcase_add_test(limits, many_uploads_into_a_small_store_all_end_and_nothing_hangs);
    suite_add_tcase(suite, limits);

    TCase *readers = tcase_create("readers");
    tcase_set_timeout(readers, 240);
    tcase_add_checked_fixture(readers, start_vouching, end);
    tcase_add_test(readers, a_segment_that_is_read_stays_until_its_readers_have_left);
    tcase_add_test(readers,
                   readers_of_what_was_evicted_do_not_make_the_store_larger_than_it_may_be);
    tcase_add_test(readers, readers_never_miss_a_blob_that_is_being_moved);
    tcase_add_test(readers, what_somebody_was_told_is_there_is_there_to_be_read);
    tcase_add_test(
        readers, an_upload_that_was_refused_is_stored_at_the_next_try_whoever_else_still_sends_it);
    tcase_add_test(readers, an_upload_whose_first_parts_were_evicted_is_refused_and_leaves_nothing);
    tcase_add_test(readers,
                   a_segment_is_not_emptied_while_a_manifest_that_names_it_is_being_committed);
    suite_add_tcase(suite, readers);

    TCase *back = tcase_create("what comes back");
    tcase_set_timeout(back, 240);
    tcase_add_checked_fixture(back, start_vouching, end);
    tcase_add_test(back,
                   a_store_that_has_evicted_is_the_same_after_a_restart_with_and_without_its_index);
    tcase_add_test(back, a_large_blob_that_was_forgotten_does_not_come_back_with_its_manifest);
    tcase_add_test(back, an_older_action_result_never_comes_back);
    tcase_add_test(back, a_move_that_comes_after_a_newer_record_is_not_appended);
    tcase_add_test(back, what_was_purged_stays_away_while_its_record_is_there);
    tcase_add_test(back, what_was_deleted_by_order_is_told_to_a_bucket_that_was_down_for_long);
    tcase_add_test(
        back, power_cuts_while_segments_go_lose_nothing_that_is_used_and_bring_nothing_half_back);
    tcase_add_test(back, a_stop_in_the_middle_of_an_eviction_is_quick_and_loses_nothing);
    suite_add_tcase(suite, back);

    TCase *faults = tcase_create("faults");
    tcase_set_timeout(faults, 240);
    tcase_add_checked_fixture(faults, start, end);
    tcase_add_test(faults, a_disk_that_has_less_than_it_said_is_made_room_on);
    tcase_add_test(faults, moves_that_fail_do_not_stop_space_from_being_made);
    tcase_add_test(faults, a_lane_that_has_failed_loses_nothing_to_eviction);
    tcase_add_test(faults, eviction_survives_whichever_write_fails);
    tcase_add_test(faults, eviction_survives_whichever_allocation_fails);
    tcase_add_test(faults, eviction_survives_whichever_rename_unlink_or_directory_sync_fails);
    tcase_add_test(faults, rotten_records_go_with_their_segment);
    tcase_add_test(faults, a_dead_segment_is_renamed_then_cut_in_steps_then_unlinked);
    suite_add_tcase(suite, faults);

    TCase *starts = tcase_create("starts");
    tcase_add_checked_fixture(starts, start, end);
    tcase_set_timeout(starts, 240);
    tcase_add_test(starts, an_evicted_segment_that_is_still_read_is_not_there_for_the_next_start);
    suite_add_tcase(suite, starts);

    TCase *gated = tcase_create("a slow sync");
    tcase_add_checked_fixture(gated, start_with_a_gate, end_with_a_gate);
    tcase_set_timeout(gated, 600);
    tcase_add_test(gated,
                   a_segment_does_not_go_before_others_forgets_of_what_lay_there_are_durable);
    suite_add_tcase(suite, gated);

    TCase *unreadable = tcase_create("unreadable segments");
    tcase_add_checked_fixture(unreadable, start_bare, end);
    tcase_set_timeout(unreadable, 600);
    tcase_add_test(unreadable, a_segment_that_stays_unreadable_goes_without_what_it_held);
    tcase_add_test(unreadable, a_segment_that_cannot_be_read_for_a_while_loses_nothing);
    tcase_add_test(unreadable,
                   large_blobs_with_chunks_in_a_segment_that_stays_unreadable_are_missing);
    suite_add_tcase(suite, unreadable);

    TCase *parts = tcase_create("parts");
    tcase_set_timeout(parts, 60);
    tcase_add_checked_fixture(parts, start_bare, end);
    tcase_add_test(parts, a_blob_that_is_purged_while_it_is_moved_does_not_come_back);
    tcase_add_test(parts, no_segment_number_counts_as_settled_while_it_may_still_be_made);
    tcase_add_test(parts, a_doomed_segment_gives_no_holds_and_a_held_one_says_so);
    suite_add_tcase(suite, parts);
    return test_run(suite);
}
