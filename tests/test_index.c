/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the index on disk holds exactly the batches up to its checkpoint: after closing,
 * after being killed at any moment, after the disk was full, and whatever is done to its files,
 * where refusing to open or to be read is allowed and being wrong is not. The content after batch n
 * is known for every n (batch_*), so that it can be compared whole.
 */
#include "store/index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { PATH_BYTES_MAX = 512 };

static struct temp_dir directory;
static char path[PATH_BYTES_MAX]; /* of the index, in it */

static void setup(void)
{
    temp_dir_make(&directory);
    snprintf(path, sizeof(path), "%s/index", directory.path);
}

static void teardown(void)
{
    temp_dir_remove(&directory);
}

static struct index *open_index(void)
{
    struct index *index = NULL;
    struct status status = {0};
    ck_assert_msg(index_open(path, &index, &status), "%s", status.message);
    return index;
}

static void assert_ok(bool ok, const struct status *status)
{
    ck_assert_msg(ok, "%s", status->message);
}

/* ---- entries */

static struct digest digest_number(uint64_t number)
{
    struct digest digest = {.hash_length = SHA256_HASH_BYTES, .function = DIGEST_FUNCTION_SHA256};
    /* Spread, so that keys do not come in order. */
    const uint64_t spread = number * UINT64_C(0x9e3779b97f4a7c15);
    memcpy(digest.hash, &spread, sizeof(spread));
    memcpy(digest.hash + 8, &number, sizeof(number));
    digest.size_bytes = (int64_t)number;
    return digest;
}

static uint64_t number_of(const struct digest *digest)
{
    uint64_t number;
    memcpy(&number, digest->hash + 8, sizeof(number));
    return number;
}

static struct index_entry blob_entry(uint64_t number, uint64_t segment, uint64_t line)
{
    return (struct index_entry){
        .kind = RECORD_BLOB,
        .digest = digest_number(number),
        .place = {.segment = segment, .offset = line * RECORD_ALIGNMENT_BYTES},
        .payload_bytes = number + 1,
    };
}

static struct index_entry action_entry(uint64_t number, const char *instance, uint64_t line)
{
    struct index_entry entry = blob_entry(number, 1, line);
    entry.kind = RECORD_ACTION;
    entry.instance = bytes_of_string(instance);
    return entry;
}

static struct index_entry forget_entry(struct index_entry entry)
{
    entry.forget = true;
    return entry;
}

static struct index_checkpoint checkpoint_number(uint64_t number)
{
    return (struct index_checkpoint){
        .lanes = {
            [LANE_SMALL] = {.place = {.segment = number, .offset = 2 * number}, .seq = 3 * number},
            [LANE_LARGE] = {.place = {.segment = 4 * number, .offset = 5 * number},
                            .seq = 6 * number},
        }};
}

static void write_entries(struct index *index, const struct index_entry *entries, size_t count)
{
    struct status status = {0};
    const struct index_checkpoint checkpoint = checkpoint_number(1);
    assert_ok(index_write(index, entries, count, &checkpoint, &status), &status);
}

static void flush(struct index *index)
{
    struct status status = {0};
    assert_ok(index_flush(index, &status), &status);
}

/* ---- what an index holds: compared as text, one line an entry, in the order of keys */

enum { TEXT_BYTES_MAX = 8192 };

struct listing {
    char text[TEXT_BYTES_MAX];
    size_t length;
};

static bool list_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct listing *listing = argument;
    (void)status;
    ck_assert(!entry->forget);
    const int length =
        snprintf(listing->text + listing->length, sizeof(listing->text) - listing->length,
                 "%d %llu %lld %llu:%llu %llu %.*s\n", (int)entry->kind,
                 (unsigned long long)number_of(&entry->digest), (long long)entry->digest.size_bytes,
                 (unsigned long long)entry->place.segment, (unsigned long long)entry->place.offset,
                 (unsigned long long)entry->payload_bytes, (int)entry->instance.length,
                 (const char *)entry->instance.data);
    ck_assert_int_gt(length, 0);
    listing->length += (size_t)length;
    ck_assert_uint_lt(listing->length, sizeof(listing->text));
    return true;
}

static void assert_holds(struct index *index, const char *expected)
{
    struct listing listing = {.length = 0};
    struct status status = {0};
    assert_ok(index_iterate(index, list_entry, &listing, &status), &status);
    ck_assert_str_eq(listing.text, expected);
}

static struct index *reopen(struct index *index)
{
    index_close(index);
    return open_index();
}

START_TEST(index_gives_back_what_was_written)
{
    struct index *index = open_index();
    struct index_entry entries[] = {
        blob_entry(1, 1, 64), blob_entry(2, SEGMENT_NUMBER_MAX, 0xffffff), blob_entry(3, 5, 64)};
    const char *expected = "1 1 1 1:4096 2 \n"
                           "3 2 2 16777215:1073741760 3 \n"
                           "1 3 9223372036854775807 5:4096 18446744073709551615 \n";
    entries[1].kind = RECORD_MANIFEST;
    entries[2].digest.size_bytes = INT64_MAX;
    entries[2].payload_bytes = UINT64_MAX;
    assert_holds(index, "");
    write_entries(index, entries, ARRAY_LENGTH(entries));
    assert_holds(index, expected);
    flush(index);
    assert_holds(index, expected);
    index = reopen(index);
    assert_holds(index, expected);
    ck_assert(!index_is_broken(index));
    index_close(index);
}
END_TEST

START_TEST(index_keeps_the_last_put_of_a_key)
{
    struct index *index = open_index();
    const struct index_entry entries[] = {blob_entry(1, 1, 64), blob_entry(1, 3, 70),
                                          blob_entry(1, 2, 80)};
    write_entries(index, entries, 2);
    assert_holds(index, "1 1 1 3:4480 2 \n");
    flush(index);
    write_entries(index, &entries[2], 1);
    assert_holds(index, "1 1 1 2:5120 2 \n");
    index = reopen(index);
    assert_holds(index, "1 1 1 2:5120 2 \n");
    index_close(index);
}
END_TEST

START_TEST(index_keeps_instances_apart)
{
    struct index *index = open_index();
    const struct index_entry entries[] = {action_entry(1, "", 64), action_entry(1, "a", 65),
                                          action_entry(1, "ab", 66), blob_entry(1, 1, 67)};
    write_entries(index, entries, ARRAY_LENGTH(entries));
    const struct index_entry forget = forget_entry(action_entry(1, "a", 65));
    assert_holds(index, "4 1 1 1:4096 2 \n4 1 1 1:4160 2 a\n4 1 1 1:4224 2 ab\n1 1 1 1:4288 2 \n");
    write_entries(index, &forget, 1);
    index = reopen(index);
    assert_holds(index, "4 1 1 1:4096 2 \n4 1 1 1:4224 2 ab\n1 1 1 1:4288 2 \n");
    index_close(index);
}
END_TEST

static bool count_long_instance(void *argument,
                                const struct index_entry *entry,
                                struct status *status)
{
    (void)status;
    ck_assert_uint_eq(entry->instance.length, UINT16_MAX);
    for (size_t i = 0; i < entry->instance.length; i++)
        ck_assert_uint_eq(entry->instance.data[i], (uint8_t)i);
    ++*(int *)argument;
    return true;
}

START_TEST(index_takes_the_longest_instance_that_a_record_can_name)
{
    struct index *index = open_index();
    static uint8_t name[UINT16_MAX];
    struct index_entry entry = action_entry(1, "", 64);
    struct status status = {0};
    int count = 0;
    for (size_t i = 0; i < sizeof(name); i++)
        name[i] = (uint8_t)i;
    entry.instance = bytes_of(name, sizeof(name));
    write_entries(index, &entry, 1);
    index = reopen(index);
    assert_ok(index_iterate(index, count_long_instance, &count, &status), &status);
    ck_assert_int_eq(count, 1);
    index_close(index);
}
END_TEST

START_TEST(index_carries_its_checkpoint)
{
    struct index *index = open_index();
    struct status status = {0};
    struct index_checkpoint read;
    const struct index_checkpoint zero = {0};
    memset(&read, 0xff, sizeof(read));
    assert_ok(index_read_checkpoint(index, &read, &status), &status);
    ck_assert_mem_eq(&read, &zero, sizeof(read));
    for (uint64_t i = 1; i <= 3; i++) {
        const struct index_checkpoint written = checkpoint_number(i);
        assert_ok(index_write(index, NULL, 0, &written, &status), &status);
        assert_ok(index_read_checkpoint(index, &read, &status), &status);
        ck_assert_mem_eq(&read, &written, sizeof(read));
        index = reopen(index);
        assert_ok(index_read_checkpoint(index, &read, &status), &status);
        ck_assert_mem_eq(&read, &written, sizeof(read));
    }
    assert_holds(index, ""); /* it is no entry */
    index_close(index);
}
END_TEST

START_TEST(index_forgets_only_what_still_lies_at_the_place)
{
    struct index *index = open_index();
    const struct index_entry old = blob_entry(1, 1, 64), moved = blob_entry(1, 2, 64),
                             other = blob_entry(2, 1, 65);
    const struct index_entry forget_old = forget_entry(old), forget_moved = forget_entry(moved);

    /* Of nothing. */
    write_entries(index, &forget_old, 1);
    assert_holds(index, "");
    flush(index);
    assert_holds(index, "");

    /* Of another place, with what it is about in an older file, in the same one, in memory. */
    write_entries(index, (const struct index_entry[]){moved, other}, 2);
    write_entries(index, &forget_old, 1);
    assert_holds(index, "1 1 1 2:4096 2 \n1 2 2 1:4160 3 \n");
    index = reopen(index);
    assert_holds(index, "1 1 1 2:4096 2 \n1 2 2 1:4160 3 \n");
    write_entries(index, &forget_old, 1);
    index = reopen(index);
    assert_holds(index, "1 1 1 2:4096 2 \n1 2 2 1:4160 3 \n");

    /* Of the right place, twice. */
    write_entries(index, &forget_moved, 1);
    assert_holds(index, "1 2 2 1:4160 3 \n");
    write_entries(index, &forget_moved, 1);
    index = reopen(index);
    assert_holds(index, "1 2 2 1:4160 3 \n");

    /* And it can come back, also to where it was. */
    write_entries(index, &moved, 1);
    index = reopen(index);
    assert_holds(index, "1 1 1 2:4096 2 \n1 2 2 1:4160 3 \n");
    index_close(index);
}
END_TEST

START_TEST(index_takes_puts_and_forgets_of_one_batch_in_order)
{
    struct index *index = open_index();
    const struct index_entry a = blob_entry(1, 1, 64), b = blob_entry(1, 2, 64);
    write_entries(index, (const struct index_entry[]){a, forget_entry(a)}, 2);
    assert_holds(index, "");
    write_entries(index, (const struct index_entry[]){a, forget_entry(a), b}, 3);
    assert_holds(index, "1 1 1 2:4096 2 \n");
    write_entries(
        index, (const struct index_entry[]){forget_entry(a), forget_entry(b), a, forget_entry(b)},
        4);
    assert_holds(index, "1 1 1 1:4096 2 \n");
    write_entries(
        index, (const struct index_entry[]){forget_entry(b), forget_entry(a), forget_entry(b)}, 3);
    assert_holds(index, "");
    index = reopen(index);
    assert_holds(index, "");
    index_close(index);
}
END_TEST

static bool fail_at_second(void *argument, const struct index_entry *entry, struct status *status)
{
    (void)entry;
    return ++*(int *)argument < 2 || status_fail(status, STATUS_ABORTED, "enough");
}

START_TEST(iteration_ends_with_the_status_of_who_is_called)
{
    struct index *index = open_index();
    const struct index_entry entries[] = {blob_entry(1, 1, 64), blob_entry(2, 1, 65),
                                          blob_entry(3, 1, 66)};
    struct status status = {0};
    int calls = 0;
    write_entries(index, entries, ARRAY_LENGTH(entries));
    ck_assert(!index_iterate(index, fail_at_second, &calls, &status));
    ck_assert_int_eq(status.code, STATUS_ABORTED);
    ck_assert_int_eq(calls, 2);
    index_close(index);
}
END_TEST

START_TEST(compaction_drops_what_is_forgotten_or_in_a_dead_segment)
{
    enum { FLUSHES_MAX = 200, COMPACTION_MS = 20 };
    struct index *index = open_index();
    const struct index_entry entries[] = {blob_entry(1, 6, 64), blob_entry(2, 7, 64),
                                          action_entry(3, "x", 64), blob_entry(4, 8, 64)};
    write_entries(index, entries, ARRAY_LENGTH(entries));
    write_entries(index, (const struct index_entry[]){forget_entry(entries[3])}, 1);
    flush(index);
    for (uint64_t segment = 1; segment < 7; segment++)
        index_mark_dead(index, segment);

    /* Every fourth file or so is an occasion. */
    struct listing listing = {.length = 0};
    for (int i = 0; i < FLUSHES_MAX; i++) {
        struct status status = {0};
        write_entries(index, &entries[1], 1);
        flush(index);
        nanosleep(&(struct timespec){.tv_nsec = COMPACTION_MS * 1000 * 1000}, NULL);
        listing = (struct listing){.length = 0};
        assert_ok(index_iterate(index, list_entry, &listing, &status), &status);
        if (strcmp(listing.text, "1 2 2 7:4096 3 \n") == 0)
            break;
    }
    ck_assert_str_eq(listing.text, "1 2 2 7:4096 3 \n");

    /* The last checkpoint went through that compaction too, and is no entry of segment 0. */
    struct index_checkpoint checkpoint;
    const struct index_checkpoint expected = checkpoint_number(1);
    struct status status = {0};
    assert_ok(index_read_checkpoint(index, &checkpoint, &status), &status);
    ck_assert_mem_eq(&checkpoint, &expected, sizeof(expected));
    index_close(index);
}
END_TEST

static bool count_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    (void)entry;
    (void)status;
    ++*(int *)argument;
    return true;
}

/*
 * Long names fill RocksDB's memory faster than it is flushed: writes wait for room, none is
 * refused.
 */
/* ---- by key */

static bool holds(struct index *index, struct index_entry name, struct index_entry *found)
{
    struct status status = {0};
    bool is_there = false;
    name.place = (struct place){0};
    assert_ok(index_get(index, &name, found, &is_there, &status), &status);
    return is_there;
}

START_TEST(index_finds_by_key_what_was_there_when_it_was_opened)
{
    struct index *index = open_index();
    struct index_entry found;
    const struct index_entry blob = blob_entry(1, 2, 70);
    const struct index_entry action = action_entry(1, "main", 80);
    const struct index_entry gone = blob_entry(3, 2, 90);
    struct index_entry manifest = blob_entry(4, 2, 100);
    manifest.kind = RECORD_MANIFEST;
    write_entries(
        index, (const struct index_entry[]){blob, action, gone, manifest, forget_entry(gone)}, 5);
    index_close(index);
    index = open_index();
    ck_assert(holds(index, blob, &found));
    ck_assert_uint_eq(found.place.segment, 2);
    ck_assert_uint_eq(found.place.offset, 70 * RECORD_ALIGNMENT_BYTES);
    ck_assert_uint_eq(found.payload_bytes, blob.payload_bytes);
    ck_assert(holds(index, action, &found));
    ck_assert_uint_eq(found.place.offset, 80 * RECORD_ALIGNMENT_BYTES);
    ck_assert(!holds(index, gone, &found));
    /* A blob is asked for by its digest: whether in one record or in many only the index knows. */
    struct index_entry name = blob_entry(4, 0, 0);
    ck_assert(holds(index, name, &found));
    ck_assert_int_eq(found.kind, RECORD_MANIFEST);
    name.digest.size_bytes++;
    ck_assert(!holds(index, name, &found));
    ck_assert(!holds(index, action_entry(1, "other", 80), &found));
    ck_assert(!holds(index, action_entry(2, "main", 80), &found));
    ck_assert(!holds(index, blob_entry(5, 1, 70), &found));

    /* What is written meanwhile is for the index in memory; it may show once it is flushed. */
    const struct index_entry newer = blob_entry(6, 3, 70);
    write_entries(index, &newer, 1);
    ck_assert(!holds(index, newer, &found));
    ck_assert(holds(index, blob, &found));
    flush(index);
    ck_assert(holds(index, newer, &found));
    index_close(index);
}
END_TEST

START_TEST(cursor_gives_in_pieces_what_was_there_when_it_was_opened)
{
    enum { ENTRIES = 1000, PIECE = 64 };
    struct index *index = open_index();
    struct index_cursor *cursor = NULL;
    struct status status = {0};
    int seen = 0;
    bool more = true;
    for (uint64_t i = 1; i <= ENTRIES; i++)
        write_entries(index, (const struct index_entry[]){blob_entry(i, 1, 64 + i)}, 1);
    assert_ok(index_cursor_open(index, &cursor, &status), &status);
    while (more) {
        const int before = seen;
        assert_ok(index_cursor_read(cursor, PIECE, count_entry, &seen, &more, &status), &status);
        ck_assert_int_le(seen - before, PIECE);
        const uint64_t number = (uint64_t)seen;
        const struct index_entry other = blob_entry(ENTRIES + number, 2, 64);
        const struct index_entry gone = forget_entry(blob_entry(number, 1, 64 + number));
        write_entries(index, (const struct index_entry[]){other, gone}, 2);
        flush(index);
    }
    ck_assert_int_eq(seen, ENTRIES);
    index_cursor_close(cursor);
    index_close(index);
}
END_TEST

START_TEST(index_takes_more_than_its_memory_holds)
{
    enum { NAME_BYTES = 60000, ENTRIES = 5000 };
    struct index *index = open_index();
    static uint8_t name[NAME_BYTES];
    struct status status = {0};
    int count = 0;
    for (uint64_t i = 0; i < ENTRIES; i++) {
        struct index_entry entry = action_entry(i, "", 64);
        entry.instance = bytes_of(name, sizeof(name));
        write_entries(index, &entry, 1);
    }
    ck_assert(!index_is_broken(index));
    index = reopen(index);
    assert_ok(index_iterate(index, count_entry, &count, &status), &status);
    ck_assert_int_eq(count, ENTRIES);
    index_close(index);
}
END_TEST

/* ---- batches 1, 2, 3, ...: what is there after each is known */

enum { BATCH_ENTRIES = 20, BATCHES_MAX = 100000 };

/*
 * Puts its own entries, forgets the first of the batch before the last, and fails to forget the
 * second of it.
 */
static bool write_batch(struct index *index, uint64_t batch, struct status *status)
{
    struct index_entry entries[BATCH_ENTRIES + 2];
    const struct index_checkpoint checkpoint = checkpoint_number(batch);
    size_t count = 0;
    for (; count < BATCH_ENTRIES; count++)
        entries[count] = blob_entry(batch * BATCH_ENTRIES + count, batch, count + 64);
    if (batch > 2) {
        const uint64_t before = batch - 2;
        entries[count++] = forget_entry(blob_entry(before * BATCH_ENTRIES, before, 64));
        entries[count++] = forget_entry(blob_entry(before * BATCH_ENTRIES + 1, before, 64));
    }
    return index_write(index, entries, count, &checkpoint, status);
}

static void write_batches(struct index *index, uint64_t first, uint64_t last, uint64_t flush_every)
{
    struct status status = {0};
    for (uint64_t batch = first; batch <= last; batch++) {
        assert_ok(write_batch(index, batch, &status), &status);
        if (batch % flush_every == 0)
            flush(index);
    }
}

struct prefix_check {
    uint64_t last; /* batch */
    uint64_t count;
};

static bool check_prefix_entry(void *argument,
                               const struct index_entry *entry,
                               struct status *status)
{
    struct prefix_check *check = argument;
    const uint64_t number = number_of(&entry->digest);
    const uint64_t batch = number / BATCH_ENTRIES, in_batch = number % BATCH_ENTRIES;
    (void)status;
    ck_assert_uint_ge(batch, 1);
    ck_assert_uint_le(batch, check->last);
    ck_assert(in_batch != 0 || batch + 2 > check->last);
    ck_assert_uint_eq(entry->place.segment, batch);
    ck_assert_uint_eq(entry->place.offset, (in_batch + 64) * RECORD_ALIGNMENT_BYTES);
    ck_assert_uint_eq(entry->payload_bytes, number + 1);
    ck_assert_uint_eq((uint64_t)entry->digest.size_bytes, number);
    check->count++;
    return true;
}

/*
 * Keys come once and in order, so the right number of right ones is all of them. False: it cannot
 * be read.
 */
static bool check_prefix(struct index *index, uint64_t *last, struct status *status)
{
    struct index_checkpoint checkpoint;
    if (!index_read_checkpoint(index, &checkpoint, status))
        return false;
    struct prefix_check check = {.last = checkpoint.lanes[LANE_SMALL].place.segment};
    const struct index_checkpoint expected = checkpoint_number(check.last);
    ck_assert_mem_eq(&checkpoint, &expected, sizeof(expected));
    if (!index_iterate(index, check_prefix_entry, &check, status))
        return false;
    ck_assert_uint_eq(check.count,
                      check.last * BATCH_ENTRIES - (check.last > 2 ? check.last - 2 : 0));
    *last = check.last;
    return true;
}

static uint64_t assert_prefix(struct index *index)
{
    struct status status = {0};
    uint64_t last = 0;
    assert_ok(check_prefix(index, &last, &status), &status);
    return last;
}

/* Writes without end; says to the pipe which batches are flushed. Ends by being killed. */
static void write_until_killed(int pipe_fd, uint64_t flush_every)
{
    struct index *index = open_index();
    for (uint64_t batch = 1; batch < BATCHES_MAX; batch++) {
        write_batches(index, batch, batch, flush_every);
        if (batch % flush_every == 0)
            ck_assert_int_eq(write(pipe_fd, &batch, sizeof(batch)), sizeof(batch));
    }
    _exit(0);
}

/* Each round is a process of its own, so that RocksDB's threads never see a fork. */
START_TEST(index_holds_exactly_the_batches_up_to_its_checkpoint_after_a_kill)
{
    static const uint64_t flush_every[] = {1, 3, 50, 1000};
    static const long delays_ms[] = {3, 40, 150};
    const size_t round = (size_t)_i;
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        write_until_killed(ends[1], flush_every[round % ARRAY_LENGTH(flush_every)]);
    close(ends[1]);

    uint64_t flushed = 0;
    ck_assert_int_eq(read(ends[0], &flushed, sizeof(flushed)), sizeof(flushed));
    nanosleep(
        &(struct timespec){.tv_nsec = delays_ms[round % ARRAY_LENGTH(delays_ms)] * 1000 * 1000},
        NULL);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    int ended;
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert(WIFSIGNALED(ended));
    while (read(ends[0], &flushed, sizeof(flushed)) == sizeof(flushed))
        continue;
    close(ends[0]);

    struct index *index = open_index();
    uint64_t last = assert_prefix(index);
    ck_assert_uint_ge(last, flushed);

    /* It goes on from there. */
    write_batches(index, last + 1, last + 10, 1000);
    ck_assert_uint_eq(assert_prefix(index), last + 10);
    index = reopen(index);
    ck_assert_uint_eq(assert_prefix(index), last + 10);
    index_close(index);
}
END_TEST

START_TEST(index_loses_what_was_not_flushed_and_nothing_else_when_the_process_ends)
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct index *index = open_index();
        write_batches(index, 1, 30, 1000);
        flush(index);
        write_batches(index, 31, 40, 1000);
        _exit(0);
    }
    int ended;
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    struct index *index = open_index();
    ck_assert_uint_eq(assert_prefix(index), 30);
    index_close(index);
}
END_TEST

/* ---- damage */

/* Several table files, in level 0 and below it. */
static void make_index(void)
{
    struct index *index = open_index();
    write_batches(index, 1, 60, 9);
    index_close(index);
}

static void file_path(char file[PATH_BYTES_MAX], const char *name)
{
    ck_assert_int_lt(snprintf(file, PATH_BYTES_MAX, "%s/%s", path, name), PATH_BYTES_MAX);
}

/*
 * The skip-th file whose name contains `part`, in the order of names; false if there are not so
 * many.
 */
static bool find_file(const char *part, size_t skip, char file[PATH_BYTES_MAX])
{
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, NULL, alphasort);
    bool found = false;
    ck_assert_int_ge(count, 0);
    for (int i = 0; i < count; i++) {
        if (!found && entries[i]->d_name[0] != '.' && strstr(entries[i]->d_name, part) != NULL &&
            skip-- == 0) {
            file_path(file, entries[i]->d_name);
            found = true;
        }
        free(entries[i]);
    }
    free(entries);
    return found;
}

static off_t size_of_file(const char *file)
{
    struct stat stat_of_file;
    ck_assert_int_eq(stat(file, &stat_of_file), 0);
    return stat_of_file.st_size;
}

static void write_file(const char *file, const char *text)
{
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void assert_is_refusal(const struct status *status)
{
    ck_assert_msg(status->code == STATUS_INTERNAL || status->code == STATUS_DATA_LOSS, "%s: %s",
                  status_code_name(status->code), status->message);
    ck_assert_str_ne(status->message, "");
}

/* Refused, or right. True if it was refused. */
static bool look_at_damaged(void)
{
    struct index *index = NULL;
    struct status status = {0};
    uint64_t last = 0;
    bool refused = !index_open(path, &index, &status);
    if (!refused) {
        refused = !check_prefix(index, &last, &status);
        index_close(index);
    }
    if (refused)
        assert_is_refusal(&status);
    return refused;
}

static void destroy_and_make_anew(void)
{
    struct status status = {0};
    assert_ok(index_destroy(path, &status), &status);
    ck_assert_int_ne(access(path, F_OK), 0);
    struct index *index = open_index();
    ck_assert_uint_eq(assert_prefix(index), 0);
    write_batches(index, 1, 5, 2);
    index = reopen(index);
    ck_assert_uint_eq(assert_prefix(index), 5);
    index_close(index);
    assert_ok(index_destroy(path, &status), &status);
}

static void lose_file(const char *file)
{
    ck_assert_int_eq(unlink(file), 0);
}

static void cut_file_in_half(const char *file)
{
    ck_assert_int_eq(truncate(file, size_of_file(file) / 2), 0);
}

static void empty_file(const char *file)
{
    ck_assert_int_eq(truncate(file, 0), 0);
}

static void fill_file_with_text(const char *file)
{
    write_file(file, "no file of a database looks like this\n");
}

/* What is certain to be noticed. */
static const struct {
    const char *file;
    void (*damage)(const char *file);
} refusals[] = {
    {"CURRENT", lose_file},        {"CURRENT", empty_file},    {"CURRENT", fill_file_with_text},
    {"MANIFEST", lose_file},       {"MANIFEST", empty_file},   {"MANIFEST", fill_file_with_text},
    {".sst", lose_file},           {".sst", cut_file_in_half}, {".sst", empty_file},
    {".sst", fill_file_with_text},
};

START_TEST(index_refuses_to_open_with_a_damaged_file_and_can_be_made_anew)
{
    char file[PATH_BYTES_MAX];
    make_index();
    ck_assert(find_file(refusals[_i].file, 0, file));
    refusals[_i].damage(file);
    ck_assert(look_at_damaged());
    destroy_and_make_anew();
}
END_TEST

START_TEST(index_is_refused_or_right_with_a_manifest_cut_anywhere)
{
    enum { CUTS = 25 };
    int refused = 0;
    for (int cut = 0; cut < CUTS; cut++) {
        char file[PATH_BYTES_MAX];
        struct status status = {0};
        make_index();
        ck_assert(find_file("MANIFEST", 0, file));
        ck_assert_int_eq(truncate(file, size_of_file(file) * cut / CUTS), 0);
        refused += look_at_damaged();
        assert_ok(index_destroy(path, &status), &status);
    }
    ck_assert_int_gt(refused, 0);
    destroy_and_make_anew();
}
END_TEST

START_TEST(index_is_refused_or_right_with_any_byte_changed)
{
    enum { ROUNDS = 25 };
    int refused = 0;
    srandom((unsigned int)_i + 1);
    for (int round = 0; round < ROUNDS; round++) {
        static const char *const parts[] = {".sst", "MANIFEST", "CURRENT", ""};
        char file[PATH_BYTES_MAX];
        struct status status = {0};
        make_index();
        const char *part = parts[(size_t)random() % ARRAY_LENGTH(parts)];
        size_t skip = (size_t)random() % 4;
        while (!find_file(part, skip, file))
            skip--;
        const off_t size = size_of_file(file);
        if (size > 0) {
            const off_t at = random() % size;
            const int fd = open(file, O_RDWR | O_CLOEXEC);
            uint8_t byte;
            ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
            byte ^= (uint8_t)(1 + random() % 255);
            ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
            close(fd);
        }
        refused += look_at_damaged();
        assert_ok(index_destroy(path, &status), &status);
    }
    ck_assert_int_gt(refused, ROUNDS / 10);
    destroy_and_make_anew();
}
END_TEST

START_TEST(index_refuses_a_directory_of_something_else)
{
    char file[PATH_BYTES_MAX];
    struct index *index = NULL;
    struct status status = {0};
    ck_assert_int_eq(mkdir(path, 0700), 0);
    file_path(file, "precious");
    write_file(file, "somebody's\n");
    ck_assert(!index_open(path, &index, &status));
    assert_is_refusal(&status);
    ck_assert_int_eq(access(file, F_OK), 0);
}
END_TEST

START_TEST(index_refuses_a_path_that_is_no_directory)
{
    struct index *index = NULL;
    struct status status = {0};
    write_file(path, "text\n");
    ck_assert(!index_open(path, &index, &status));
    assert_is_refusal(&status);
    status = (struct status){0};
    ck_assert(!index_destroy(path, &status));
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(index_is_opened_in_an_empty_directory)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    struct index *index = open_index();
    assert_holds(index, "");
    index_close(index);
    index_close(NULL);
}
END_TEST

START_TEST(index_that_is_open_is_in_use_and_not_damaged)
{
    struct index *index = open_index(), *second = NULL;
    struct status status = {0};
    ck_assert(!index_open(path, &second, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    write_batches(index, 1, 3, 2);
    ck_assert_uint_eq(assert_prefix(index), 3);
    index_close(index);
}
END_TEST

/* What another version or another program may have put there. */
static void plant(const char *key, size_t key_length, const char *value, size_t value_length)
{
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_writeoptions_t *write_options = rocksdb_writeoptions_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_t *db = rocksdb_open(options, path, &error);
    ck_assert_ptr_null(error);
    rocksdb_put(db, write_options, key, key_length, value, value_length, &error);
    ck_assert_ptr_null(error);
    rocksdb_close(db);
    rocksdb_writeoptions_destroy(write_options);
    rocksdb_options_destroy(options);
}

START_TEST(index_reports_entries_that_it_does_not_understand)
{
    enum { KEY_BYTES = 34, VALUE_BYTES = 32 };
    static const struct {
        char kind, function;
        size_t key_length, value_length;
        int changed_byte; /* of the value; -1: none */
        char to;
    } cases[] = {
        {'b', 1, KEY_BYTES, VALUE_BYTES, -1, 0},     /* the one that is right */
        {'c', 1, KEY_BYTES, VALUE_BYTES, -1, 0},     /* kind */
        {'a', 1, KEY_BYTES, VALUE_BYTES, -1, 0},     /* a blob under an action's key */
        {'b', 9, KEY_BYTES, VALUE_BYTES, -1, 0},     /* digest function */
        {'b', 1, KEY_BYTES - 1, VALUE_BYTES, -1, 0}, /* short hash */
        {'b', 1, KEY_BYTES + 1, VALUE_BYTES, -1, 0}, /* a blob with an instance */
        {'b', 1, 1, VALUE_BYTES, -1, 0},             /* no function */
        {'b', 1, KEY_BYTES, VALUE_BYTES - 1, -1, 0}, /* short value */
        {'b', 1, KEY_BYTES, VALUE_BYTES, 31, 1},     /* reserved byte */
        {'b', 1, KEY_BYTES, VALUE_BYTES, 24, 2},     /* a chunk */
        {'b', 1, KEY_BYTES, VALUE_BYTES, 6, 1},      /* place above 48 bits */
        {'b', 1, KEY_BYTES, VALUE_BYTES, 3, 0},      /* segment 0 */
        {'b', 1, KEY_BYTES, VALUE_BYTES, 15, -1},    /* negative size */
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char key[KEY_BYTES + 1] = {cases[i].kind, cases[i].function},
                             value[VALUE_BYTES] = {64, 0, 0, 1, [24] = 1};
        struct listing listing = {.length = 0};
        struct status status = {0};
        if (cases[i].changed_byte >= 0)
            value[cases[i].changed_byte] = cases[i].to;
        plant(key, cases[i].key_length, value, cases[i].value_length);
        struct index *index = open_index();
        const bool ok = index_iterate(index, list_entry, &listing, &status);
        ck_assert_msg(ok == (i == 0), "case %zu", i);
        if (!ok)
            ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
        index_close(index);
        assert_ok(index_destroy(path, &status), &status);
    }
}
END_TEST

START_TEST(index_reports_a_checkpoint_that_it_does_not_understand)
{
    struct index_checkpoint checkpoint;
    struct status status = {0};
    plant("\0checkpoint", 11, "short", 5);
    struct index *index = open_index();
    ck_assert(!index_read_checkpoint(index, &checkpoint, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
    index_close(index);
}
END_TEST

/* A forget of a value that makes no sense must not become a silent loss. */
START_TEST(index_reports_a_forget_of_a_value_that_it_does_not_understand)
{
    struct status status = {0};
    struct listing listing = {.length = 0};
    const struct index_entry entry = forget_entry(blob_entry(1, 1, 64));
    char key[34] = {'b', 1};
    memcpy(key + 2, entry.digest.hash, SHA256_HASH_BYTES);
    plant(key, sizeof(key), "short", 5);
    struct index *index = open_index();
    write_entries(index, &entry, 1);
    ck_assert(!index_iterate(index, list_entry, &listing, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
    index_close(index);
}
END_TEST

/* ---- destroying */

START_TEST(destroying_removes_everything_and_follows_no_link)
{
    char file[PATH_BYTES_MAX], target[PATH_BYTES_MAX], inner[PATH_BYTES_MAX + 8];
    struct status status = {0};
    make_index();
    ck_assert_int_lt(snprintf(target, sizeof(target), "%s/target", directory.path), PATH_BYTES_MAX);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    snprintf(inner, sizeof(inner), "%s/kept", target);
    write_file(inner, "kept\n");
    file_path(file, "link");
    ck_assert_int_eq(symlink(target, file), 0);
    file_path(file, "folder");
    ck_assert_int_eq(mkdir(file, 0700), 0);
    file_path(file, "folder/file");
    write_file(file, "text\n");

    assert_ok(index_destroy(path, &status), &status);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(access(inner, F_OK), 0);
    assert_ok(index_destroy(path, &status), &status); /* of nothing */

    /* The path itself. */
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert(!index_destroy(path, &status));
    ck_assert_int_eq(access(inner, F_OK), 0);
}
END_TEST

START_TEST(destroying_gives_up_on_folders_in_folders_without_end)
{
    char folder[PATH_BYTES_MAX];
    struct status status = {0};
    snprintf(folder, sizeof(folder), "%s", path);
    for (int depth = 0; depth < 20; depth++) {
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        strncat(folder, "/f", sizeof(folder) - strlen(folder) - 1);
    }
    ck_assert(!index_destroy(path, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
}
END_TEST

/* ---- a full disk */

/* A file system of its own, seen by this process alone, that goes with it. */
static bool mount_small_disk(const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", directory.path, "tmpfs", 0, options) != 0) {
        printf("skip: a small disk needs root: %s\n", strerror(errno));
        return false;
    }
    return true;
}

static void make_ballast(off_t bytes)
{
    char file[PATH_BYTES_MAX];
    ck_assert_int_lt(snprintf(file, sizeof(file), "%s/ballast", directory.path), PATH_BYTES_MAX);
    const int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(posix_fallocate(fd, 0, bytes), 0);
    close(fd);
}

static void drop_ballast(void)
{
    char file[PATH_BYTES_MAX];
    ck_assert_int_lt(snprintf(file, sizeof(file), "%s/ballast", directory.path), PATH_BYTES_MAX);
    ck_assert_int_eq(unlink(file), 0);
}

/* Until a write or a flush fails; gives the last batch that was written. */
static uint64_t write_until_full(struct index *index, struct status *status)
{
    for (uint64_t batch = 1;; batch++) {
        ck_assert_uint_lt(batch, BATCHES_MAX);
        if (!write_batch(index, batch, status))
            return batch - 1;
        if (batch % 2000 == 0 && !index_flush(index, status))
            return batch;
    }
}

START_TEST(index_is_broken_by_a_full_disk_until_it_is_opened_again)
{
    struct status status = {0};
    if (!mount_small_disk("size=24m"))
        return;
    make_ballast(12 << 20);
    struct index *index = open_index();
    const uint64_t written = write_until_full(index, &status);
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert(index_is_broken(index));

    /* It stays so when there is room again. */
    drop_ballast();
    ck_assert(index_is_broken(index));
    index_close(index);

    index = open_index();
    ck_assert(!index_is_broken(index));
    const uint64_t last = assert_prefix(index);
    ck_assert_uint_le(last, written);
    write_batches(index, last + 1, last + 100, 30);
    index = reopen(index);
    ck_assert_uint_eq(assert_prefix(index), last + 100);
    index_close(index);
    ck_assert_int_eq(umount2(directory.path, MNT_DETACH), 0);
}
END_TEST

START_TEST(index_on_a_full_disk_refuses_and_closes_without_harm)
{
    struct status status = {0};
    uint64_t last = 0;
    if (!mount_small_disk("size=16m"))
        return;
    struct index *index = open_index();
    const uint64_t written = write_until_full(index, &status);
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 3; i++) {
        status = (struct status){0};
        ck_assert(!write_batch(index, written + 1, &status) || !index_flush(index, &status));
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
        ck_assert(index_is_broken(index));
    }
    index_close(index);

    /*
         * With no room at all it may be refused: not as damaged, for then a good index would be
         * thrown away.
         */
    struct index *again = NULL;
    status = (struct status){0};
    if (index_open(path, &again, &status)) {
        assert_ok(check_prefix(again, &last, &status), &status);
        ck_assert_uint_le(last, written + 1);
        index_close(again);
    } else {
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    }
    assert_ok(index_destroy(path, &status), &status);
    ck_assert_int_eq(umount2(directory.path, MNT_DETACH), 0);
}
END_TEST

/*
 * A log line that could not be written was followed by an assertion of RocksDB's, and by the end of
 * the process: so nothing is to be written there, least of all about failures.
 */
START_TEST(rocksdb_keeps_no_log_whose_failed_write_would_end_the_process)
{
    struct status status = {0};
    char log_path[PATH_BYTES_MAX + 8];
    struct stat log;
    if (!mount_small_disk("size=16m"))
        return;
    struct index *index = open_index();
    const uint64_t written = write_until_full(index, &status);
    ck_assert(!write_batch(index, written + 1, &status) || !index_flush(index, &status));
    index_close(index);
    snprintf(log_path, sizeof(log_path), "%s/LOG", path);
    ck_assert_int_eq(stat(log_path, &log), 0);
    ck_assert_int_eq(log.st_size, 0);
    ck_assert_int_eq(umount2(directory.path, MNT_DETACH), 0);
}
END_TEST

static void add_damage_tests(Suite *suite)
{
    TCase *tcase = tcase_create("damage");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, index_refuses_to_open_with_a_damaged_file_and_can_be_made_anew, 0,
                        (int)ARRAY_LENGTH(refusals));
    tcase_add_test(tcase, index_is_refused_or_right_with_a_manifest_cut_anywhere);
    tcase_add_loop_test(tcase, index_is_refused_or_right_with_any_byte_changed, 0, 4);
    tcase_add_test(tcase, index_refuses_a_directory_of_something_else);
    tcase_add_test(tcase, index_refuses_a_path_that_is_no_directory);
    tcase_add_test(tcase, index_is_opened_in_an_empty_directory);
    tcase_add_test(tcase, index_that_is_open_is_in_use_and_not_damaged);
    tcase_add_test(tcase, index_reports_entries_that_it_does_not_understand);
    tcase_add_test(tcase, index_reports_a_checkpoint_that_it_does_not_understand);
    tcase_add_test(tcase, index_reports_a_forget_of_a_value_that_it_does_not_understand);
    tcase_add_test(tcase, destroying_removes_everything_and_follows_no_link);
    tcase_add_test(tcase, destroying_gives_up_on_folders_in_folders_without_end);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("index");
    TCase *tcase = tcase_create("entries");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, index_gives_back_what_was_written);
    tcase_add_test(tcase, index_keeps_the_last_put_of_a_key);
    tcase_add_test(tcase, index_keeps_instances_apart);
    tcase_add_test(tcase, index_takes_the_longest_instance_that_a_record_can_name);
    tcase_add_test(tcase, index_carries_its_checkpoint);
    tcase_add_test(tcase, index_forgets_only_what_still_lies_at_the_place);
    tcase_add_test(tcase, index_takes_puts_and_forgets_of_one_batch_in_order);
    tcase_add_test(tcase, index_finds_by_key_what_was_there_when_it_was_opened);
    tcase_add_test(tcase, cursor_gives_in_pieces_what_was_there_when_it_was_opened);
    tcase_add_test(tcase, index_takes_more_than_its_memory_holds);
    tcase_add_test(tcase, iteration_ends_with_the_status_of_who_is_called);
    tcase_add_test(tcase, compaction_drops_what_is_forgotten_or_in_a_dead_segment);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("stops");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, index_holds_exactly_the_batches_up_to_its_checkpoint_after_a_kill, 0,
                        12);
    tcase_add_test(tcase, index_loses_what_was_not_flushed_and_nothing_else_when_the_process_ends);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("full disk");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, index_is_broken_by_a_full_disk_until_it_is_opened_again);
    tcase_add_test(tcase, index_on_a_full_disk_refuses_and_closes_without_harm);
    tcase_add_test(tcase, rocksdb_keeps_no_log_whose_failed_write_would_end_the_process);
    suite_add_tcase(suite, tcase);
    add_damage_tests(suite);
    return test_run(suite);
}
