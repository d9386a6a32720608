/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what the table of unfinished uploads promises: who may add to an upload, what is kept and for how long, who gives way,
 * who waits for whom. The table stands on a real store and a clock of the test's own; streams are played by the test,
 * turn by turn. At the end threads play them all at once, at random, and every byte that was stored must be right.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/thread.h"
#include "server/uploads.h"
#include "store/blob_writer.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/prng.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

enum { BLOB_BYTES = 3 * 1024 * 1024, POOLED = 8 };
#define KEEP_NS (60 * NS_PER_S)

static struct metrics metrics;
static struct real_store real;
static struct clock_sim sim;
static struct upload_table *table;
static struct status status;
static uint8_t blob[BLOB_BYTES];

/* A stream and how often it was woken. */
struct player {
    struct upload_stream stream;
    _Atomic int woken;
};

static void wake(struct upload_stream *stream)
{
    struct player *const player = CONTAINER_OF(stream, struct player, stream);
    atomic_fetch_add(&player->woken, 1);
}

static void set_up(void)
{
    metrics = (struct metrics){0};
    real_store_open(&real, &metrics, POOLED);
    clock_sim_init(&sim, 1800000000 * NS_PER_S);
    ck_assert(upload_table_new(real.store, &sim.clock, &metrics, KEEP_NS, &table, &status));
    struct prng prng = {1};
    for (size_t i = 0; i < BLOB_BYTES; i += 8) {
        const uint64_t number = prng_next(&prng);
        memcpy(blob + i, &number, sizeof(number));
    }
}

static void tear_down(void)
{
    upload_table_free(table);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_UPLOADS_OPEN), 0);
    real_store_close(&real);
}

static struct resource_name name_of(const char *uuid, size_t size)
{
    struct resource_name name = {.instance = bytes_of_string("main"),
                                 .uuid = bytes_of_string(uuid),
                                 .compressor = COMPRESSOR_IDENTITY};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(blob, size), &name.digest);
    return name;
}

static bool try_open(struct player *player, const char *uuid, size_t size, uint64_t offset)
{
    const struct resource_name name = name_of(uuid, size);
    *player = (struct player){.stream.wake = wake};
    return upload_open(table, &name, offset, &player->stream, &status);
}

static void open_at(struct player *player, const char *uuid, uint64_t offset)
{
    ck_assert(try_open(player, uuid, BLOB_BYTES, offset));
}

static void enter(struct player *player)
{
    ck_assert_int_eq(upload_enter(&player->stream, &status), UPLOAD_ENTERED);
}

/* Inside: the blob's next bytes. */
static bool add(struct player *player, size_t length)
{
    const struct bytes data = bytes_of(blob + upload_held_bytes(&player->stream), length);
    struct blob_writer *const writer = upload_writer(&player->stream);
    if (!writer)
        return upload_small_append(&player->stream, data, &status);
    if (blob_writer_needs_buffer(writer)) {
        struct buffer *const buffer = buffer_pool_try_take(real.buffers);
        ck_assert_ptr_nonnull(buffer);
        blob_writer_give_buffer(writer, buffer);
    }
    return blob_writer_append(writer, data, &status);
}

/* A turn that adds so many bytes. */
static void turn(struct player *player, size_t length)
{
    enter(player);
    ck_assert(add(player, length));
    upload_leave(&player->stream);
}

static uint64_t held(const char *uuid)
{
    const struct resource_name name = name_of(uuid, BLOB_BYTES);
    return upload_table_held_bytes(table, &name);
}

static void wait_for(struct player *player)
{
    ck_assert_int_eq(upload_enter(&player->stream, &status), UPLOAD_WAIT);
    player->woken = 0;
}

static void expect_lost(struct player *player, enum status_code code)
{
    ck_assert_int_eq(upload_enter(&player->stream, &status), UPLOAD_LOST);
    ck_assert_int_eq(status.code, code);
}

static int64_t open_uploads(void)
{
    return metrics_get(&metrics, METRIC_UPLOADS_OPEN);
}

/* ---- resuming */

START_TEST(uploads_are_kept_when_their_stream_goes_and_resumed_where_they_were)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 1500000);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_uint_eq(held("u"), 1500000);
    open_at(&b, "u", 1500000);
    enter(&b);
    ck_assert_uint_eq(upload_held_bytes(&b.stream), 1500000);
    ck_assert(add(&b, BLOB_BYTES - 1500000));
    struct record *record;
    enum lane lane;
    ck_assert(blob_writer_finish(upload_writer(&b.stream), &record, &lane, &status));
    upload_close(&b.stream, UPLOAD_STORED);
    ck_assert_uint_eq(held("u"), 0);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

START_TEST(uploads_refuse_an_offset_beyond_what_is_held_and_say_what_is)
{
    struct player a, b;
    ck_assert(!try_open(&b, "u", BLOB_BYTES, 1));
    ck_assert_int_eq(status.code, STATUS_ABORTED);
    open_at(&a, "u", 0);
    turn(&a, 1000);
    ck_assert(!try_open(&b, "u", BLOB_BYTES, 1001));
    ck_assert_int_eq(status.code, STATUS_ABORTED);
    ck_assert_ptr_nonnull(strstr(status.message, "1000 bytes are held"));
    /* It changed nothing for the one that is there. */
    turn(&a, 1000);
    ck_assert_uint_eq(held("u"), 2000);
    upload_close(&a.stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_are_found_by_instance_uuid_and_digest_together)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_uint_eq(held("v"), 0);
    struct resource_name name = name_of("u", BLOB_BYTES);
    name.instance = bytes_of_string("");
    ck_assert_uint_eq(upload_table_held_bytes(table, &name), 0);
    name = name_of("u", BLOB_BYTES);
    name.compressor = COMPRESSOR_ZSTD;
    ck_assert_uint_eq(upload_table_held_bytes(table, &name), 0);
    /* One uuid for another blob: nothing to do with the first. */
    ck_assert(try_open(&b, "u", BLOB_BYTES - 1, 0));
    turn(&b, 5000);
    ck_assert_uint_eq(held("u"), 1000);
    upload_close(&b.stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_of_small_or_compressed_blobs_begin_again_at_0)
{
    struct player a, b;
    ck_assert(try_open(&a, "u", 1000, 0));
    turn(&a, 500);
    ck_assert(!try_open(&b, "u", 1000, 500));
    ck_assert_int_eq(status.code, STATUS_ABORTED);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);

    struct resource_name name = name_of("u", BLOB_BYTES);
    name.compressor = COMPRESSOR_ZSTD;
    a = (struct player){.stream.wake = wake};
    ck_assert(upload_open(table, &name, 0, &a.stream, &status));
    turn(&a, 500);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

START_TEST(uploads_without_a_byte_are_not_kept)
{
    struct player a;
    open_at(&a, "u", 0);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

START_TEST(uploads_expire_after_their_keep_time_and_not_before)
{
    struct player a;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    upload_close(&a.stream, UPLOAD_KEEP);
    upload_table_step(table);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    clock_sim_advance(&sim, KEEP_NS - 1);
    upload_table_step(table);
    ck_assert_uint_eq(held("u"), 1000);
    clock_sim_advance(&sim, 1);
    upload_table_step(table);
    ck_assert_uint_eq(held("u"), 0);
    ck_assert_int_eq(open_uploads(), 0);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_UPLOADS_EXPIRED), 1);
}
END_TEST

/* ---- several streams of one name */

START_TEST(uploads_that_are_taken_over_take_nothing_more_from_the_older_stream)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    open_at(&b, "u", 1000);
    expect_lost(&a, STATUS_ABORTED);
    turn(&b, 1000);
    upload_close(&a.stream, UPLOAD_DROP);
    ck_assert_uint_eq(held("u"), 2000);
    turn(&b, 1000);
    upload_close(&b.stream, UPLOAD_KEEP);
    ck_assert_uint_eq(held("u"), 3000);
}
END_TEST

START_TEST(uploads_are_taken_over_only_when_the_older_streams_turn_ends)
{
    struct player a, b, c;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    enter(&a);
    open_at(&b, "u", 500);
    wait_for(&b);
    open_at(&c, "u", 1000);
    ck_assert_int_eq(b.woken, 1);
    expect_lost(&b, STATUS_ABORTED);
    upload_close(&b.stream, UPLOAD_KEEP);
    wait_for(&c);
    ck_assert(add(&a, 1000));
    ck_assert_int_eq(c.woken, 0);
    upload_leave(&a.stream);
    ck_assert_int_eq(c.woken, 1);
    enter(&c);
    ck_assert_uint_eq(upload_held_bytes(&c.stream), 2000);
    upload_leave(&c.stream);
    expect_lost(&a, STATUS_ABORTED);
    upload_close(&a.stream, UPLOAD_KEEP);
    upload_close(&c.stream, UPLOAD_KEEP);
    ck_assert_uint_eq(held("u"), 2000);
}
END_TEST

START_TEST(uploads_that_end_under_a_successor_tell_it_to_begin_again)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    enter(&a);
    open_at(&b, "u", 1000);
    wait_for(&b);
    upload_close(&a.stream, UPLOAD_DROP);
    ck_assert_int_eq(b.woken, 1);
    expect_lost(&b, STATUS_ABORTED);
    upload_close(&b.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

START_TEST(uploads_that_are_left_inside_go_to_the_successor)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    enter(&a);
    open_at(&b, "u", 1000);
    wait_for(&b);
    upload_close(&a.stream, UPLOAD_KEEP);
    ck_assert_int_eq(b.woken, 1);
    turn(&b, 1000);
    upload_close(&b.stream, UPLOAD_KEEP);
    ck_assert_uint_eq(held("u"), 2000);
}
END_TEST

START_TEST(uploads_restarted_at_0_do_not_disturb_the_older_stream)
{
    struct player a, b;
    open_at(&a, "u", 0);
    turn(&a, 2000);
    open_at(&b, "u", 0);
    ck_assert_uint_eq(held("u"), 0);
    turn(&a, 1000);
    clock_sim_advance(&sim, UPLOAD_GROUP_VERDICT_NS);
    upload_table_step(table); /* a has moved little, b goes on by itself */
    turn(&b, 300);
    ck_assert_uint_eq(held("u"), 300);
    turn(&a, 1000);
    upload_close(&a.stream, UPLOAD_KEEP); /* has no name any more */
    ck_assert_uint_eq(held("u"), 300);
    upload_close(&b.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 1);
    open_at(&b, "u", 0); /* what was kept is dropped */
    ck_assert_int_eq(open_uploads(), 1);
    upload_close(&b.stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

/* ---- idle */

START_TEST(uploads_that_are_idle_give_their_buffer_back_and_go_on)
{
    struct player a;
    open_at(&a, "u", 0);
    turn(&a, 1500000);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 1);
    clock_sim_advance(&sim, UPLOADS_IDLE_NS - 1);
    upload_table_step(table);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 1);
    clock_sim_advance(&sim, 1);
    upload_table_step(table);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    turn(&a, 1000);
    clock_sim_advance(&sim, KEEP_NS * 10); /* a live stream's upload does not expire */
    upload_table_step(table);
    ck_assert_uint_eq(held("u"), 1501000);
    enter(&a);
    ck_assert(add(&a, BLOB_BYTES - 1501000));
    struct record *record;
    enum lane lane;
    ck_assert(blob_writer_finish(upload_writer(&a.stream), &record, &lane, &status));
    upload_close(&a.stream, UPLOAD_STORED);
}
END_TEST

START_TEST(uploads_give_their_buffers_back_sooner_when_most_are_in_use)
{
    struct player players[POOLED];
    char uuid[16];
    for (int i = 0; i < POOLED; i++) {
        snprintf(uuid, sizeof(uuid), "u%d", i);
        ck_assert(try_open(&players[i], uuid, BLOB_BYTES - (size_t)i, 0));
        turn(&players[i], 1000);
    }
    ck_assert_ptr_null(buffer_pool_try_take(real.buffers));
    clock_sim_advance(&sim, UPLOADS_IDLE_SHORT_NS);
    upload_table_step(table);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    for (int i = 0; i < POOLED; i++)
        upload_close(&players[i].stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_are_not_parked_while_a_stream_is_inside)
{
    struct player a;
    open_at(&a, "u", 0);
    turn(&a, 1000);
    enter(&a);
    clock_sim_advance(&sim, 100 * UPLOADS_IDLE_NS);
    upload_table_step(table);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 1);
    upload_close(&a.stream, UPLOAD_DROP);
}
END_TEST

/* ---- bounds */

START_TEST(uploads_of_small_blobs_hold_little_for_little)
{
    enum { STREAMS = 20 };
    struct player players[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        ck_assert(try_open(&players[i], "u", MIB - (size_t)i, 0));
        turn(&players[i], 1);
    }
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    enter(&players[0]);
    ck_assert(add(&players[0], 99999));
    ck_assert(!upload_small_append(&players[0].stream, bytes_of(blob, MIB - 99999), &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_mem_eq(upload_small_bytes(&players[0].stream).data, blob, 100000);
    for (int i = 0; i < STREAMS; i++)
        upload_close(&players[i].stream, UPLOAD_KEEP);
    ck_assert_int_eq(open_uploads(), 0);
}
END_TEST

START_TEST(uploads_of_small_blobs_that_idle_give_way_when_all_memory_is_held)
{
    enum { STREAMS = UPLOADS_SMALL_BYTES / MIB };
    static struct player players[STREAMS + 1];
    for (int i = 0; i < STREAMS; i++) {
        ck_assert(try_open(&players[i], "u", MIB, 0));
        turn(&players[i], MIB);
        clock_sim_advance(&sim, NS_PER_MS);
    }
    struct player *const last = &players[STREAMS];
    ck_assert(try_open(last, "u", MIB, 0));
    enter(last);
    ck_assert(!add(last, 1));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    clock_sim_advance(&sim, UPLOADS_IDLE_NS - STREAMS * NS_PER_MS); /* only the first is idle now */
    ck_assert(add(last, MIB));
    expect_lost(&players[0], STATUS_ABORTED);
    turn(&players[1], 0);
    for (int i = 0; i <= STREAMS; i++)
        upload_close(&players[i].stream, UPLOAD_DROP);
}
END_TEST

/* A byte each second from hundreds of streams held all of it, for as long as they liked, and everybody else was refused. */
START_TEST(uploads_of_small_blobs_that_trickle_give_way_when_all_memory_is_held)
{
    enum { STREAMS = UPLOADS_SMALL_BYTES / MIB, SECONDS = UPLOADS_SLOW_NS / NS_PER_S };
    static struct player players[STREAMS + 1];
    for (int i = 0; i < STREAMS; i++) {
        ck_assert(try_open(&players[i], "u", MIB, 0));
        turn(&players[i], MIB / 2 + 1);
        turn(&players[i], 1); /* twice as much memory, and no more than the blob takes */
    }
    struct player *const last = &players[STREAMS];
    ck_assert(try_open(last, "u", MIB, 0));
    enter(last);
    for (int second = 0; second < SECONDS; second++) {
        ck_assert(!add(last, 1));
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
        clock_sim_advance(&sim, NS_PER_S);
        for (int i = 0; i < STREAMS; i++)
            turn(&players[i], 1);
    }
    ck_assert(add(last, MIB));
    int lost = 0;
    for (int i = 0; i < STREAMS; i++)
        lost += upload_enter(&players[i].stream, &status) == UPLOAD_LOST;
    ck_assert_int_eq(lost, 1);
    for (int i = 0; i <= STREAMS; i++)
        upload_close(&players[i].stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_are_bounded_in_number_and_the_oldest_idle_one_gives_way)
{
    struct player *const players = calloc(LIMIT_UPLOADS + 2, sizeof(*players));
    char uuid[16];
    for (int i = 0; i < LIMIT_UPLOADS; i++) {
        snprintf(uuid, sizeof(uuid), "u%d", i);
        ck_assert(try_open(&players[i], uuid, i == 0 ? BLOB_BYTES : 1000, 0));
    }
    turn(&players[0], 1000);
    struct player *const late = &players[LIMIT_UPLOADS];
    ck_assert(!try_open(late, "late", BLOB_BYTES, 0));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    clock_sim_advance(&sim, 1);
    turn(&players[1], 1); /* now the oldest are 0 and those from 2 on */
    upload_close(&players[0].stream, UPLOAD_KEEP);
    ck_assert(try_open(late, "late", BLOB_BYTES, 0));
    ck_assert_uint_eq(held("u0"), 0);
    ck_assert_int_eq(open_uploads(), LIMIT_UPLOADS);
    clock_sim_advance(&sim, UPLOADS_IDLE_NS);
    ck_assert(try_open(&players[LIMIT_UPLOADS + 1], "later", BLOB_BYTES, 0));
    expect_lost(&players[2], STATUS_ABORTED);
    for (int i = 0; i < LIMIT_UPLOADS + 2; i++)
        upload_close(&players[i].stream, UPLOAD_DROP);
    free(players);
}
END_TEST

/* ---- several uploads of one digest */

START_TEST(uploads_of_one_digest_wait_for_the_first_and_are_woken_by_its_end)
{
    struct player a, b, c;
    open_at(&a, "a", 0);
    open_at(&b, "b", 0);
    open_at(&c, "c", 0);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_UPLOADS_JOINED), 2);
    turn(&a, 1000);
    wait_for(&b);
    wait_for(&c);
    upload_close(&a.stream, UPLOAD_DROP);
    ck_assert_int_eq(b.woken, 1);
    ck_assert_int_eq(c.woken, 0);
    turn(&b, 2000);
    upload_close(&b.stream, UPLOAD_STORED);
    ck_assert_int_eq(c.woken, 1);
    turn(&c, 1);
    upload_close(&c.stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_do_not_wait_long_for_one_that_has_stalled)
{
    struct player a, b;
    open_at(&a, "a", 0);
    turn(&a, 1000);
    open_at(&b, "b", 0);
    wait_for(&b);
    clock_sim_advance(&sim, UPLOAD_GROUP_VERDICT_NS);
    upload_table_step(table); /* it had moved since it began, but would take an hour */
    ck_assert_int_eq(b.woken, 1);
    turn(&b, 1000);
    turn(&a, 1000);
    upload_close(&a.stream, UPLOAD_DROP);
    upload_close(&b.stream, UPLOAD_DROP);
}
END_TEST

START_TEST(uploads_of_small_blobs_do_not_wait_for_each_other)
{
    struct player a, b;
    ck_assert(try_open(&a, "a", MIB, 0));
    ck_assert(try_open(&b, "b", MIB, 0));
    turn(&a, 1000);
    turn(&b, 1000);
    upload_close(&a.stream, UPLOAD_DROP);
    upload_close(&b.stream, UPLOAD_DROP);
}
END_TEST

/* ---- all at once */

enum { THREADS = 4, ROUNDS = 400 };

/* A blob of its own size for each name, so that wrong bytes would show at once. */
static void play(void *argument)
{
    struct prng prng = {*(const uint64_t *)argument};
    for (int round = 0; round < ROUNDS; round++) {
        struct player player = {.stream.wake = wake};
        struct status why = {0};
        char uuid[2] = {(char)('a' + prng_below(&prng, 3)), '\0'};
        struct resource_name name = name_of(uuid, MIB + 1 + prng_below(&prng, 2) * MIB);
        const uint64_t at = prng_below(&prng, 3) == 0 ? 0 : upload_table_held_bytes(table, &name);
        if (!upload_open(table, &name, at, &player.stream, &why)) {
            ASSERT(why.code == STATUS_ABORTED);
            continue;
        }
        const int turns = (int)prng_below(&prng, 12);
        enum upload_outcome outcome = UPLOAD_KEEP;
        for (int i = 0; i < turns && outcome == UPLOAD_KEEP; i++) {
            const enum upload_turn turn = upload_enter(&player.stream, &why);
            if (turn == UPLOAD_LOST)
                break;
            if (turn == UPLOAD_WAIT)
                continue;
            struct blob_writer *const writer = upload_writer(&player.stream);
            struct buffer *buffer = NULL;
            if (blob_writer_needs_buffer(writer)) {
                buffer = buffer_pool_try_take(real.buffers);
                if (buffer)
                    blob_writer_give_buffer(writer, buffer);
            }
            if (!blob_writer_needs_buffer(writer)) {
                const uint64_t offset = blob_writer_offset(writer);
                size_t length = prng_below(&prng, 400000);
                if (length > (uint64_t)name.digest.size_bytes - offset)
                    length = (size_t)((uint64_t)name.digest.size_bytes - offset);
                ASSERT(blob_writer_append(writer, bytes_of(blob + offset, length), &why));
                if (blob_writer_offset(writer) == (uint64_t)name.digest.size_bytes) {
                    struct record *record;
                    enum lane lane;
                    ASSERT(blob_writer_finish(writer, &record, &lane, &why));
                    outcome = prng_below(&prng, 2) == 0 ? UPLOAD_STORED : UPLOAD_DROP;
                }
            }
            if (outcome == UPLOAD_KEEP)
                upload_leave(&player.stream);
            if (prng_below(&prng, 8) == 0)
                clock_sim_advance(&sim, (int64_t)prng_below(&prng, NS_PER_S));
        }
        upload_close(&player.stream, outcome);
    }
}

static atomic_bool playing;

static void keep_house(void *argument)
{
    (void)argument;
    while (atomic_load(&playing)) {
        upload_table_step(table);
        usleep(500);
    }
}

START_TEST(uploads_stay_right_with_many_threads_at_once)
{
    struct thread threads[THREADS] = {0};
    struct thread housekeeper = {0};
    static uint64_t seeds[THREADS];
    atomic_store(&playing, true);
    ck_assert(thread_start(&housekeeper, "maint", 0, keep_house, NULL, &status));
    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        ck_assert(thread_start(&threads[i], "player", 0, play, &seeds[i], &status));
    }
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    atomic_store(&playing, false);
    thread_join(&housekeeper);
    clock_sim_advance(&sim, KEEP_NS);
    upload_table_step(table);
    ck_assert_int_eq(open_uploads(), 0);
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("uploads");
    TCase *tcase = tcase_create("uploads");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, uploads_are_kept_when_their_stream_goes_and_resumed_where_they_were);
    tcase_add_test(tcase, uploads_refuse_an_offset_beyond_what_is_held_and_say_what_is);
    tcase_add_test(tcase, uploads_are_found_by_instance_uuid_and_digest_together);
    tcase_add_test(tcase, uploads_of_small_or_compressed_blobs_begin_again_at_0);
    tcase_add_test(tcase, uploads_without_a_byte_are_not_kept);
    tcase_add_test(tcase, uploads_expire_after_their_keep_time_and_not_before);
    tcase_add_test(tcase, uploads_that_are_taken_over_take_nothing_more_from_the_older_stream);
    tcase_add_test(tcase, uploads_are_taken_over_only_when_the_older_streams_turn_ends);
    tcase_add_test(tcase, uploads_that_end_under_a_successor_tell_it_to_begin_again);
    tcase_add_test(tcase, uploads_that_are_left_inside_go_to_the_successor);
    tcase_add_test(tcase, uploads_restarted_at_0_do_not_disturb_the_older_stream);
    tcase_add_test(tcase, uploads_that_are_idle_give_their_buffer_back_and_go_on);
    tcase_add_test(tcase, uploads_give_their_buffers_back_sooner_when_most_are_in_use);
    tcase_add_test(tcase, uploads_are_not_parked_while_a_stream_is_inside);
    tcase_add_test(tcase, uploads_of_small_blobs_hold_little_for_little);
    tcase_add_test(tcase, uploads_of_small_blobs_that_idle_give_way_when_all_memory_is_held);
    tcase_add_test(tcase, uploads_of_small_blobs_that_trickle_give_way_when_all_memory_is_held);
    tcase_add_test(tcase, uploads_are_bounded_in_number_and_the_oldest_idle_one_gives_way);
    tcase_add_test(tcase, uploads_of_one_digest_wait_for_the_first_and_are_woken_by_its_end);
    tcase_add_test(tcase, uploads_do_not_wait_long_for_one_that_has_stalled);
    tcase_add_test(tcase, uploads_of_small_blobs_do_not_wait_for_each_other);
    tcase_add_test(tcase, uploads_stay_right_with_many_threads_at_once);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
