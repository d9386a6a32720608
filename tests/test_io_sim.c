/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the simulated disk, on which all crash tests rely, loses exactly what it may: over
 * many seeds it is looked at which states come out, that no other does, and that each of those that
 * must be possible does come out.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "tests/sim/io_sim.h"
#include "tests/support/test_run.h"

enum { SECTOR_BYTES = 512, SEEDS = 400 };

static struct io_sim *sim;
static struct io *io;
static struct status status;

/* A disk with an empty directory /d that is durable. */
static void set_up(void)
{
    sim = io_sim_new();
    io = io_sim_io(sim);
    ck_assert(io_make_directory(io, "/d", &status));
    ck_assert(io_sync_directory(io, "/", &status));
}

static void tear_down(void)
{
    io_sim_free(sim);
}

static void set_up_again(void)
{
    tear_down();
    set_up();
}

static int create(const char *path)
{
    int fd = -1;
    ck_assert_msg(io_open(io, path, IO_OPEN_CREATE_NEW, &fd, &status), "%s", status.message);
    return fd;
}

/* As many bytes of this value; length up to 8192. */
static bool fill(int fd, uint64_t offset, size_t length, char value)
{
    char bytes[8192];
    memset(bytes, value, length);
    const struct iovec part = {.iov_base = bytes, .iov_len = length};
    return io_pwritev(io, fd, &part, 1, offset, &status);
}

/* A durable file of durable bytes, open. */
static int create_durable(const char *path, size_t length, char value)
{
    const int fd = create(path);
    ck_assert(fill(fd, 0, length, value));
    ck_assert(io_sync(io, fd, &status));
    ck_assert(io_sync_directory(io, "/d", &status));
    return fd;
}

static bool exists(const char *path)
{
    int fd;
    if (!io_open(io, path, IO_OPEN_READ, &fd, &status)) {
        ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
        return false;
    }
    io_close(io, fd);
    return true;
}

struct content {
    char bytes[8192];
    size_t length;
};

static void read_fd(int fd, struct content *content)
{
    memset(content, 0, sizeof(*content));
    ck_assert(
        io_pread(io, fd, content->bytes, sizeof(content->bytes), 0, &content->length, &status));
}

static void read_path(const char *path, struct content *content)
{
    int fd;
    ck_assert_msg(io_open(io, path, IO_OPEN_READ, &fd, &status), "%s", status.message);
    read_fd(fd, content);
    io_close(io, fd);
}

/* Whether it is `length` bytes long, all of this value. */
static bool is_all(const struct content *content, size_t length, char value)
{
    if (content->length != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (content->bytes[i] != value)
            return false;
    return true;
}

START_TEST(what_is_synced_survives_every_crash)
{
    static const enum io_sim_crash_mode modes[] = {IO_SIM_CRASH_NOTHING, IO_SIM_CRASH_EVERYTHING,
                                                   IO_SIM_CRASH_RANDOM};
    struct content content;
    io_close(io, create_durable("/d/a", 5000, 'a'));
    for (size_t m = 0; m < ARRAY_LENGTH(modes); m++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            io_sim_crash(sim, seed, modes[m]);
            read_path("/d/a", &content);
            ck_assert(is_all(&content, 5000, 'a'));
        }
    }
}
END_TEST

START_TEST(unsynced_bytes_go_or_stay_as_the_mode_says)
{
    struct content content;
    ck_assert(fill(create_durable("/d/a", 1000, 'a'), 0, 2000, 'b'));
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 2000, 'b'));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 1000, 'a'));

    set_up_again();
    ck_assert(fill(create_durable("/d/a", 1000, 'a'), 0, 2000, 'b'));
    io_sim_crash(sim, 1, IO_SIM_CRASH_EVERYTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 2000, 'b'));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 2000, 'b'));
}
END_TEST

START_TEST(a_synced_file_without_a_synced_name_is_gone)
{
    const int fd = create("/d/a");
    ck_assert(fill(fd, 0, 10, 'a'));
    ck_assert(io_sync(io, fd, &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    ck_assert(!exists("/d/a"));
}
END_TEST

START_TEST(a_synced_name_without_synced_bytes_is_empty)
{
    struct content content;
    ck_assert(fill(create("/d/a"), 0, 10, 'a'));
    ck_assert(io_sync_directory(io, "/d", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert_uint_eq(content.length, 0);
}
END_TEST

START_TEST(a_directory_without_a_synced_name_takes_all_in_it_along)
{
    ck_assert(io_make_directory(io, "/d/e", &status));
    const int fd = create("/d/e/a");
    ck_assert(io_sync(io, fd, &status));
    ck_assert(io_sync_directory(io, "/d/e", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    ck_assert(!exists("/d/e/a"));
    ck_assert(io_make_directory(io, "/d/e", &status));
    ck_assert(!exists("/d/e/a"));
}
END_TEST

START_TEST(a_sync_covers_what_was_written_before_it_and_no_more)
{
    struct content content;
    const int fd = create_durable("/d/a", 600, 'a');
    ck_assert(fill(fd, 0, 600, 'b'));
    ck_assert(io_sync(io, fd, &status));
    ck_assert(fill(fd, 0, 600, 'c'));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 600, 'b'));
}
END_TEST

/* Three writes over each other: each sector may have any of their states, whatever the others have. */
START_TEST(each_sector_survives_for_itself)
{
    bool mixed = false;
    bool later_before_earlier = false;
    bool seen[4] = {false};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        const int fd = create_durable("/d/a", 4096, 'a');
        ck_assert(fill(fd, 0, 2048, 'b'));
        ck_assert(fill(fd, 1024, 2048, 'c'));
        ck_assert(fill(fd, 2048, 2048, 'd'));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        read_path("/d/a", &content);
        ck_assert_uint_eq(content.length, 4096);
        for (size_t sector = 0; sector < 8; sector++) {
            const char *bytes = content.bytes + sector * SECTOR_BYTES;
            static const char *const possible[8] = {"ab",  "ab",  "abc", "abc",
                                                    "acd", "acd", "ad",  "ad"};
            ck_assert_msg(strchr(possible[sector], bytes[0]) != NULL, "%c in %zu", bytes[0],
                          sector);
            for (size_t i = 1; i < SECTOR_BYTES; i++)
                if (bytes[i] != bytes[0])
                    ck_abort_msg("sector %zu is torn", sector);
            seen[bytes[0] - 'a'] = true;
            mixed = mixed || (sector % 2 == 1 && bytes[0] != bytes[-SECTOR_BYTES]);
        }
        later_before_earlier = later_before_earlier ||
                               (content.bytes[0] == 'a' && content.bytes[7 * SECTOR_BYTES] == 'd');
    }
    ck_assert(seen[0] && seen[1] && seen[2] && seen[3]);
    ck_assert(mixed);
    ck_assert(later_before_earlier);
}
END_TEST

START_TEST(bytes_of_an_unaligned_write_are_torn_at_sectors_only)
{
    bool first_alone = false;
    bool second_alone = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        ck_assert(fill(create_durable("/d/a", 1024, 'a'), 412, 200, 'b'));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        read_path("/d/a", &content);
        ck_assert_uint_eq(content.length, 1024);
        const bool first = content.bytes[412] == 'b';
        const bool second = content.bytes[512] == 'b';
        for (size_t i = 0; i < 1024; i++) {
            const bool written = (first && i >= 412 && i < 512) || (second && i >= 512 && i < 612);
            if (content.bytes[i] != (written ? 'b' : 'a'))
                ck_abort_msg("byte %zu is %c", i, content.bytes[i]);
        }
        first_alone = first_alone || (first && !second);
        second_alone = second_alone || (second && !first);
    }
    ck_assert(first_alone);
    ck_assert(second_alone);
}
END_TEST

/* Nothing of a crash lies behind the end of a file, to be seen when it grows again. */
static void assert_grows_with_zeros(const char *path, size_t length)
{
    struct content content;
    int fd;
    ck_assert(io_open(io, path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_truncate(io, fd, sizeof(content.bytes), &status));
    read_fd(fd, &content);
    ck_assert_uint_eq(content.length, sizeof(content.bytes));
    for (size_t i = length; i < sizeof(content.bytes); i++)
        if (content.bytes[i] != '\0')
            ck_abort_msg("byte %zu is %d", i, content.bytes[i]);
    io_close(io, fd);
}

START_TEST(a_grown_file_may_lose_its_size_or_its_bytes_or_both)
{
    bool short_again = false;
    bool holes = false;
    bool complete = false;
    bool half = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        const int fd = create_durable("/d/a", 512, 'a');
        ck_assert(fill(fd, 512, 1024, 'b'));
        ck_assert(fill(fd, 1536, 1024, 'c'));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        read_path("/d/a", &content);
        ck_assert(content.length == 512 || content.length == 1536 || content.length == 2560);
        for (size_t i = 0; i < content.length; i++) {
            const char written = i < 512 ? 'a' : i < 1536 ? 'b' : 'c';
            if (content.bytes[i] != written && (i < 512 || content.bytes[i] != '\0'))
                ck_abort_msg("byte %zu is %d", i, content.bytes[i]);
            holes = holes || content.bytes[i] == '\0';
        }
        assert_grows_with_zeros("/d/a", content.length);
        short_again = short_again || content.length == 512;
        half = half || content.length == 1536;
        complete = complete || (content.length == 2560 && content.bytes[512] == 'b' &&
                                content.bytes[2559] == 'c');
    }
    ck_assert(short_again && half && holes && complete);
}
END_TEST

/* What was cut off never comes back as part of a file that grew again. */
START_TEST(a_cut_is_undone_as_a_whole_or_not_at_all)
{
    bool undone = false;
    bool done = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        const int fd = create_durable("/d/a", 2048, 'a');
        ck_assert(io_truncate(io, fd, 700, &status));
        ck_assert(io_truncate(io, fd, 1500, &status));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        read_path("/d/a", &content);
        if (content.length == 2048) {
            ck_assert(is_all(&content, 2048, 'a'));
            undone = true;
            continue;
        }
        ck_assert(content.length == 700 || content.length == 1500);
        for (size_t i = 0; i < content.length; i++)
            if (content.bytes[i] != (i < 700 ? 'a' : '\0'))
                ck_abort_msg("byte %zu is %d", i, content.bytes[i]);
        done = true;
    }
    ck_assert(undone && done);
}
END_TEST

START_TEST(a_rename_leaves_one_of_the_two_names)
{
    bool old_name = false;
    bool new_name = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        io_close(io, create_durable("/d/a", 10, 'a'));
        io_close(io, create_durable("/d/b", 10, 'b'));
        ck_assert(io_rename(io, "/d/a", "/d/b", &status));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        read_path("/d/b", &content);
        if (exists("/d/a")) {
            ck_assert(is_all(&content, 10, 'b'));
            read_path("/d/a", &content);
            ck_assert(is_all(&content, 10, 'a'));
            old_name = true;
        } else {
            ck_assert(is_all(&content, 10, 'a'));
            new_name = true;
        }
    }
    ck_assert(old_name && new_name);
}
END_TEST

/* The second file called a has nothing to do with the first, whichever changes the disk missed. */
START_TEST(a_name_that_is_used_again_costs_no_other_file)
{
    bool missed = false;
    bool both = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct content content;
        set_up_again();
        io_close(io, create_durable("/d/a", 10, 'a'));
        ck_assert(io_rename(io, "/d/a", "/d/b", &status));
        const int fd = create("/d/a");
        ck_assert(fill(fd, 0, 20, 'n'));
        ck_assert(io_sync(io, fd, &status));
        ck_assert(io_rename(io, "/d/a", "/d/c", &status));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        /* The first is under its old name or its new one. */
        const bool renamed = exists("/d/b");
        read_path(renamed ? "/d/b" : "/d/a", &content);
        ck_assert(is_all(&content, 10, 'a'));
        if (exists("/d/c")) {
            ck_assert(renamed);
            read_path("/d/c", &content);
            ck_assert(is_all(&content, 20, 'n'));
            both = true;
        }
        missed = missed || !renamed;
    }
    ck_assert(both && missed);
}
END_TEST

START_TEST(a_file_that_moves_to_another_directory_is_durable_in_one_of_them)
{
    static const char *const synced[] = {"/", "/d"};
    for (size_t s = 0; s < ARRAY_LENGTH(synced); s++) {
        struct content content;
        set_up_again();
        io_close(io, create_durable("/d/a", 10, 'a'));
        ck_assert(io_rename(io, "/d/a", "/d/b", &status));
        const int fd = create("/d/a");
        ck_assert(fill(fd, 0, 10, 'n'));
        ck_assert(io_sync(io, fd, &status));
        ck_assert(io_rename(io, "/d/a", "/c", &status));
        ck_assert(io_sync_directory(io, synced[s], &status));
        io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
        ck_assert(!exists("/d/a"));
        read_path("/c", &content);
        ck_assert(is_all(&content, 10, 'n'));
        read_path("/d/b", &content);
        ck_assert(is_all(&content, 10, 'a'));
    }
}
END_TEST

START_TEST(a_removed_file_may_come_back_whole)
{
    bool back = false;
    bool gone = false;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct content content;
        set_up_again();
        io_close(io, create_durable("/d/a", 100, 'a'));
        ck_assert(io_unlink(io, "/d/a", &status));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        if (!exists("/d/a")) {
            gone = true;
            continue;
        }
        read_path("/d/a", &content);
        ck_assert(is_all(&content, 100, 'a'));
        back = true;
    }
    ck_assert(back && gone);

    set_up_again();
    io_close(io, create_durable("/d/a", 100, 'a'));
    ck_assert(io_unlink(io, "/d/a", &status));
    ck_assert(io_sync_directory(io, "/d", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_EVERYTHING);
    ck_assert(!exists("/d/a"));
}
END_TEST

START_TEST(names_survive_in_any_combination)
{
    bool seen[4] = {false};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        set_up_again();
        io_close(io, create("/d/a"));
        io_close(io, create("/d/b"));
        io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
        seen[(exists("/d/a") ? 1 : 0) + (exists("/d/b") ? 2 : 0)] = true;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(seen); i++)
        ck_assert_msg(seen[i], "combination %zu", i);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_disk)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct content contents[2];
        for (size_t run = 0; run < 2; run++) {
            set_up_again();
            const int fd = create_durable("/d/a", 4096, 'a');
            for (int i = 0; i < 8; i++)
                ck_assert(fill(fd, (uint64_t)i * 500, 1500, (char)('b' + i)));
            io_sim_crash(sim, seed, IO_SIM_CRASH_RANDOM);
            read_path("/d/a", &contents[run]);
        }
        ck_assert_mem_eq(&contents[0], &contents[1], sizeof(contents[0]));
    }
}
END_TEST

START_TEST(a_failed_sync_loses_what_a_second_sync_then_does_not_write)
{
    struct content content;
    for (int look = 0; look < 3; look++) {
        set_up_again();
        const int fd = create_durable("/d/a", 1000, 'a');
        ck_assert(fill(fd, 0, 1500, 'b'));
        io_sim_fail(sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
        ck_assert(!io_sync(io, fd, &status));
        ck_assert(io_sync(io, fd, &status));
        /* The cache shows it as if nothing had been. */
        read_fd(fd, &content);
        ck_assert(is_all(&content, 1500, 'b'));
        if (look == 0)
            ck_assert(io_drop_cache(io, fd, &status));
        else
            io_sim_crash(sim, 1, look == 1 ? IO_SIM_CRASH_NOTHING : IO_SIM_CRASH_EVERYTHING);
        read_path("/d/a", &content);
        ck_assert_uint_eq(content.length, 1500);
        for (size_t i = 0; i < 1500; i++)
            if (content.bytes[i] != (i < 1000 ? 'a' : '\0'))
                ck_abort_msg("byte %zu is %d", i, content.bytes[i]);
    }
}
END_TEST

START_TEST(what_is_written_after_a_failed_sync_can_be_synced)
{
    struct content content;
    const int fd = create_durable("/d/a", 1024, 'a');
    ck_assert(fill(fd, 0, 1024, 'b'));
    io_sim_fail(sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert(!io_sync(io, fd, &status));
    ck_assert(fill(fd, 512, 512, 'c'));
    ck_assert(io_drop_cache(io, fd, &status));
    read_fd(fd, &content);
    ck_assert_int_eq(content.bytes[0], 'a');
    ck_assert_int_eq(content.bytes[512], 'c');
    ck_assert(io_sync(io, fd, &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert_int_eq(content.bytes[511], 'a');
    ck_assert_int_eq(content.bytes[512], 'c');
    ck_assert_uint_eq(content.length, 1024);
}
END_TEST

START_TEST(a_failed_sync_of_one_file_leaves_the_others)
{
    struct content content;
    const int a = create_durable("/d/a", 10, 'a');
    const int b = create_durable("/d/b", 10, 'b');
    ck_assert(fill(a, 0, 10, 'x'));
    ck_assert(fill(b, 0, 10, 'y'));
    io_sim_fail(sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert(!io_sync(io, a, &status));
    ck_assert(io_sync(io, b, &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 10, 'a'));
    read_path("/d/b", &content);
    ck_assert(is_all(&content, 10, 'y'));
}
END_TEST

START_TEST(a_failed_sync_of_a_directory_makes_no_name_durable)
{
    io_close(io, create("/d/a"));
    io_sim_fail(sim, IO_SIM_SYNC_DIRECTORY, 1, EIO, IO_SIM_ONCE);
    ck_assert(!io_sync_directory(io, "/d", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    ck_assert(!exists("/d/a"));
}
END_TEST

static int read_code(int fd)
{
    char byte;
    return (int)io->ops->pread(io, fd, &byte, 1, 0);
}

START_TEST(the_ordered_operation_fails_once_or_for_ever)
{
    const int fd = create_durable("/d/a", 10, 'a');
    io_sim_fail(sim, IO_SIM_PREAD, 3, EIO, IO_SIM_ONCE);
    ck_assert_int_eq(read_code(fd), 1);
    ck_assert(fill(fd, 0, 1, 'a'));
    ck_assert_int_eq(read_code(fd), 1);
    ck_assert_int_eq(read_code(fd), -EIO);
    ck_assert_int_eq(read_code(fd), 1);
    ck_assert_uint_eq(io_sim_failures(sim), 1);

    io_sim_fail(sim, IO_SIM_PREAD, 1, ENOMEM, IO_SIM_FOREVER);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(read_code(fd), -ENOMEM);
    ck_assert(fill(fd, 0, 1, 'a'));
    io_sim_fail_nothing(sim);
    ck_assert_int_eq(read_code(fd), 1);

    io_sim_fail(sim, IO_SIM_ANY, 2, EROFS, IO_SIM_ONCE);
    ck_assert_int_eq(read_code(fd), 1);
    ck_assert(!fill(fd, 0, 10, 'x'));
    struct content content;
    read_fd(fd, &content);
    ck_assert(is_all(&content, 10, 'a'));
    ck_assert_uint_eq(io_sim_failures(sim), 7);
}
END_TEST

START_TEST(after_a_power_cut_nothing_happens_and_nothing_is_lost_by_it)
{
    struct content content;
    const int fd = create_durable("/d/a", 10, 'a');
    ck_assert(fill(fd, 0, 10, 'b'));
    io_sim_cut_power_at(sim, 2);
    ck_assert_int_eq(read_code(fd), 1);
    ck_assert(!io_sync(io, fd, &status));
    ck_assert(!fill(fd, 0, 10, 'c'));
    ck_assert(!io_unlink(io, "/d/a", &status));
    ck_assert_uint_eq(io_sim_failures(sim), 0);
    io_sim_crash(sim, 1, IO_SIM_CRASH_EVERYTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 10, 'b'));
}
END_TEST

START_TEST(descriptors_and_locks_of_before_a_crash_are_gone_for_good)
{
    int lock = -1;
    const int fd = create_durable("/d/a", 10, 'a');
    ck_assert(io_lock(io, "/d/LOCK", &lock, &status));
    ck_assert(io_sync_directory(io, "/d", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    ck_assert_int_eq(read_code(fd), -EBADF);
    int again = -1;
    ck_assert(io_lock(io, "/d/LOCK", &again, &status));
    ck_assert_int_ne(again, fd);
    ck_assert_int_ne(again, lock);
    ck_assert_int_eq(read_code(fd), -EBADF);
}
END_TEST

START_TEST(a_killed_process_loses_nothing_but_makes_nothing_durable)
{
    struct content content;
    int lock = -1;
    const int fd = create_durable("/d/a", 10, 'a');
    ck_assert(io_lock(io, "/d/LOCK", &lock, &status));
    ck_assert(fill(fd, 0, 10, 'b'));
    io_sim_kill(sim);
    ck_assert_int_eq(read_code(fd), -EBADF);
    ck_assert(io_lock(io, "/d/LOCK", &lock, &status));
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 10, 'b'));
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 10, 'a'));
    ck_assert(!exists("/d/LOCK"));
}
END_TEST

/* What a path holds on another machine than `sim`. */
static void read_path_on(struct io_sim *machine, const char *path, struct content *content)
{
    io = io_sim_io(machine);
    read_path(path, content);
    io = io_sim_io(sim);
}

/* Names, bytes and what is unsynced of them; then each goes its own way. */
START_TEST(a_copy_crashes_as_the_original_does_and_is_no_part_of_it)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        set_up_again();
        struct content contents[2];
        const int fd = create_durable("/d/a", 4096, 'a');
        for (int i = 0; i < 6; i++)
            ck_assert(fill(fd, (uint64_t)i * 500, 1500, (char)('b' + i)));
        ck_assert(io_rename(io, "/d/a", "/d/z", &status));
        io_close(io, create("/d/b"));
        struct io_sim *const copy = io_sim_copy(sim);
        const enum io_sim_crash_mode mode = (enum io_sim_crash_mode)(seed % 3);

        ck_assert(fill(fd, 0, 4096, 'y')); /* what happens here the copy does not see */
        read_path_on(copy, "/d/z", &contents[0]);
        ck_assert_int_eq(contents[0].bytes[0], 'b');
        io_sim_free(copy);
        ck_assert(io_sync(io, fd, &status));
        struct io_sim *const later = io_sim_copy(sim);
        ck_assert(fill(fd, 100, 700, 'w'));
        struct io_sim *const twin = io_sim_copy(sim);
        io_sim_crash(sim, seed, mode);
        io_sim_crash(twin, seed, mode);
        const bool renamed = exists("/d/z");
        const char *const path = renamed ? "/d/z" : "/d/a";
        read_path(path, &contents[0]);
        read_path_on(twin, path, &contents[1]);
        ck_assert_mem_eq(&contents[0], &contents[1], sizeof(contents[0]));
        io = io_sim_io(twin);
        ck_assert_int_eq(exists("/d/z"), renamed);
        io = io_sim_io(sim);
        io_sim_crash(later, seed, IO_SIM_CRASH_EVERYTHING);
        read_path_on(later, "/d/z", &contents[0]);
        ck_assert(is_all(&contents[0], 4096, 'y'));
        io_sim_free(twin);
        io_sim_free(later);
    }
}
END_TEST

static void keep_copy(void *argument, struct io_sim *copy)
{
    struct io_sim **kept = argument;
    *kept = copy;
}

START_TEST(a_copy_that_was_ordered_is_made_before_the_operation)
{
    struct content content;
    const int fd = create_durable("/d/a", 10, 'a');
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct io_sim *copy = NULL;
        io_sim_copy_at(sim, nth, keep_copy, &copy);
        ck_assert(fill(fd, 0, 10, (char)('0' + nth)));
        ck_assert(io_sync(io, fd, &status));
        ck_assert_int_eq(io_sim_other(sim), 0);
        ck_assert(fill(fd, 0, 10, 'a'));
        ck_assert(io_sync(io, fd, &status));
        io_sim_crash(copy, 0, IO_SIM_CRASH_NOTHING);
        read_path_on(copy, "/d/a", &content);
        ck_assert(is_all(&content, 10, nth < 3 ? 'a' : '3'));
        io_sim_free(copy);
    }
}
END_TEST

/* It stops at an operation, and the machine goes on. */
START_TEST(a_process_that_stopped_at_an_operation_leaves_the_page_cache)
{
    struct content content;
    const int fd = create_durable("/d/a", 10, 'a');
    io_sim_cut_power_at(sim, 2);
    ck_assert(fill(fd, 0, 10, 'b'));
    ck_assert(io_sim_has_power(sim));
    ck_assert(!fill(fd, 0, 10, 'c'));
    ck_assert(!io_sim_has_power(sim));
    ck_assert_int_eq(io_sim_other(sim), -EIO);
    io_sim_kill(sim);
    ck_assert(io_sim_has_power(sim));
    read_path("/d/a", &content);
    ck_assert(is_all(&content, 10, 'b'));
}
END_TEST

START_TEST(a_full_disk_refuses_growth_and_nothing_else)
{
    struct io_space space;
    struct content content;
    const int a = create_durable("/d/a", 600, 'a');
    io_sim_set_capacity(sim, 1000);
    const int b = create("/d/b");
    ck_assert(!io_allocate(io, b, 401, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert(io_allocate(io, b, 300, &status));
    ck_assert(io_space(io, "/d", &space, &status));
    ck_assert_uint_eq(space.total_bytes, 1000);
    ck_assert_uint_eq(space.free_bytes, 100);

    /* What is allocated can be written; what goes beyond is short first. */
    ck_assert(fill(b, 0, 300, 'b'));
    ck_assert(fill(a, 0, 600, 'x'));
    ck_assert(!fill(a, 500, 300, 'y'));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    read_fd(a, &content);
    ck_assert_uint_eq(content.length, 700);
    ck_assert_int_eq(content.bytes[699], 'y');
    ck_assert(io_sync(io, a, &status));

    /* A removed file takes its space until it is closed. */
    ck_assert(io_unlink(io, "/d/b", &status));
    ck_assert(!fill(a, 700, 1, 'z'));
    io_close(io, b);
    ck_assert(fill(a, 700, 300, 'z'));
    ck_assert(!fill(a, 1000, 1, 'z'));
    ck_assert(io_truncate(io, a, 10, &status));
    ck_assert(fill(a, 10, 990, 'z'));
    io_sim_set_capacity(sim, 500);
    ck_assert(io_space(io, "/d", &space, &status));
    ck_assert_uint_eq(space.free_bytes, 0);
    io_sim_set_capacity(sim, 0);
    ck_assert(fill(a, 1000, 5000, 'z'));
}
END_TEST

START_TEST(operations_are_counted_by_kind)
{
    const int fd = create("/d/a");
    const uint64_t any = io_sim_count(sim, IO_SIM_ANY);
    io_sim_fail(sim, IO_SIM_SYNC, 2, EIO, IO_SIM_ONCE);
    ck_assert(io_sync(io, fd, &status));
    ck_assert(!io_sync(io, fd, &status));
    ck_assert(fill(fd, 0, 1, 'a'));
    ck_assert_uint_eq(io_sim_count(sim, IO_SIM_SYNC), 2);
    ck_assert_uint_eq(io_sim_count(sim, IO_SIM_PWRITEV), 1);
    ck_assert_uint_eq(io_sim_count(sim, IO_SIM_PREAD), 0);
    ck_assert_uint_eq(io_sim_count(sim, IO_SIM_ANY), any + 3);
}
END_TEST

START_TEST(a_medium_forgets_for_good)
{
    struct content content;
    io_close(io, create_durable("/d/a", 10, 'a'));
    io_sim_corrupt(sim, "/d/a", 3, 1);
    for (int round = 0; round < 2; round++) {
        read_path("/d/a", &content);
        ck_assert_mem_eq(content.bytes, "aaa`aaaaaa", 10);
        io_sim_crash(sim, 1, IO_SIM_CRASH_EVERYTHING);
    }
}
END_TEST

static void sync_slowly(void *argument)
{
    struct status own = {0};
    const int fd = *(int *)argument;
    if (!io_sync(io, fd, &own))
        abort();
}

START_TEST(a_slow_sync_does_not_cover_what_is_written_meanwhile)
{
    struct content content;
    struct thread thread = {0};
    int fd = create_durable("/d/a", 1024, 'a');
    const uint64_t syncs = io_sim_count(sim, IO_SIM_SYNC);
    ck_assert(fill(fd, 0, 512, 'b'));
    io_sim_set_sync_delay(sim, 200 * NS_PER_MS);
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    ck_assert(thread_start(&thread, "sync", 0, sync_slowly, &fd, &status));
    while (io_sim_count(sim, IO_SIM_SYNC) == syncs)
        sched_yield();
    ck_assert(fill(fd, 512, 512, 'c'));
    thread_join(&thread);
    ck_assert_int_ge(clock_monotonic_ns(clock_real()) - start_ns, 200 * NS_PER_MS);
    io_sim_crash(sim, 1, IO_SIM_CRASH_NOTHING);
    read_path("/d/a", &content);
    ck_assert_int_eq(content.bytes[0], 'b');
    ck_assert_int_eq(content.bytes[512], 'a');
}
END_TEST

struct worker {
    struct thread thread;
    int fd;
    bool right;
};

/* Whatever others do: what this thread synced it reads back, until the crash closes its file. */
static void work_until_crash(void *argument)
{
    struct worker *worker = argument;
    struct status own = {0};
    const int fd = worker->fd;
    worker->right = true;
    for (uint64_t round = 0; worker->right; round++) {
        char byte = (char)round;
        const struct iovec part = {.iov_base = &byte, .iov_len = 1};
        size_t got = 0;
        char back = 0;
        if (!io_pwritev(io, fd, &part, 1, round % 5000, &own) || !io_sync(io, fd, &own))
            break;
        if (!io_pread(io, fd, &back, 1, round % 5000, &got, &own))
            break;
        worker->right = got == 1 && back == byte;
    }
}

START_TEST(threads_work_on_one_disk_until_it_crashes)
{
    enum { WORKERS = 3 };
    struct worker workers[WORKERS] = {{{0}, 0, false}};
    for (int i = 0; i < WORKERS; i++) {
        char path[16];
        snprintf(path, sizeof(path), "/d/%d", i);
        workers[i].fd = create(path);
    }
    const uint64_t before = io_sim_count(sim, IO_SIM_SYNC);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(
            thread_start(&workers[i].thread, "worker", 0, work_until_crash, &workers[i], &status));
    while (io_sim_count(sim, IO_SIM_SYNC) < before + 1000)
        sched_yield();
    io_sim_crash(sim, 1, IO_SIM_CRASH_RANDOM);
    for (int i = 0; i < WORKERS; i++) {
        thread_join(&workers[i].thread);
        ck_assert(workers[i].right);
    }
}
END_TEST

START_TEST(a_large_allocated_file_takes_little_memory)
{
    struct content content;
    for (int i = 0; i < 64; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/d/%d", i);
        const int fd = create(path);
        ck_assert(io_allocate(io, fd, 16 * GIB, &status));
        ck_assert(fill(fd, 3 * GIB, 10, 'a'));
        ck_assert(io_sync(io, fd, &status));
    }
    ck_assert(io_sync_directory(io, "/d", &status));
    io_sim_crash(sim, 1, IO_SIM_CRASH_RANDOM);
    int fd;
    uint64_t size;
    ck_assert(io_open(io, "/d/63", IO_OPEN_READ, &fd, &status));
    ck_assert(io_size(io, fd, &size, &status));
    ck_assert_uint_eq(size, 16 * GIB);
    ck_assert(io_pread(io, fd, content.bytes, 20, 3 * GIB - 5, &content.length, &status));
    ck_assert_mem_eq(content.bytes, "\0\0\0\0\0aaaaaaaaaa\0\0\0\0\0", 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io_sim");
    TCase *tests = tcase_create("io_sim");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, what_is_synced_survives_every_crash);
    tcase_add_test(tests, unsynced_bytes_go_or_stay_as_the_mode_says);
    tcase_add_test(tests, a_synced_file_without_a_synced_name_is_gone);
    tcase_add_test(tests, a_synced_name_without_synced_bytes_is_empty);
    tcase_add_test(tests, a_directory_without_a_synced_name_takes_all_in_it_along);
    tcase_add_test(tests, a_sync_covers_what_was_written_before_it_and_no_more);
    tcase_add_test(tests, each_sector_survives_for_itself);
    tcase_add_test(tests, bytes_of_an_unaligned_write_are_torn_at_sectors_only);
    tcase_add_test(tests, a_grown_file_may_lose_its_size_or_its_bytes_or_both);
    tcase_add_test(tests, a_cut_is_undone_as_a_whole_or_not_at_all);
    tcase_add_test(tests, a_rename_leaves_one_of_the_two_names);
    tcase_add_test(tests, a_name_that_is_used_again_costs_no_other_file);
    tcase_add_test(tests, a_file_that_moves_to_another_directory_is_durable_in_one_of_them);
    tcase_add_test(tests, a_removed_file_may_come_back_whole);
    tcase_add_test(tests, names_survive_in_any_combination);
    tcase_add_test(tests, the_same_seed_gives_the_same_disk);
    tcase_add_test(tests, a_failed_sync_loses_what_a_second_sync_then_does_not_write);
    tcase_add_test(tests, what_is_written_after_a_failed_sync_can_be_synced);
    tcase_add_test(tests, a_failed_sync_of_one_file_leaves_the_others);
    tcase_add_test(tests, a_failed_sync_of_a_directory_makes_no_name_durable);
    tcase_add_test(tests, the_ordered_operation_fails_once_or_for_ever);
    tcase_add_test(tests, after_a_power_cut_nothing_happens_and_nothing_is_lost_by_it);
    tcase_add_test(tests, descriptors_and_locks_of_before_a_crash_are_gone_for_good);
    tcase_add_test(tests, a_killed_process_loses_nothing_but_makes_nothing_durable);
    tcase_add_test(tests, a_copy_crashes_as_the_original_does_and_is_no_part_of_it);
    tcase_add_test(tests, a_copy_that_was_ordered_is_made_before_the_operation);
    tcase_add_test(tests, a_process_that_stopped_at_an_operation_leaves_the_page_cache);
    tcase_add_test(tests, a_full_disk_refuses_growth_and_nothing_else);
    tcase_add_test(tests, operations_are_counted_by_kind);
    tcase_add_test(tests, a_medium_forgets_for_good);
    tcase_add_test(tests, a_slow_sync_does_not_cover_what_is_written_meanwhile);
    tcase_add_test(tests, threads_work_on_one_disk_until_it_crashes);
    tcase_add_test(tests, a_large_allocated_file_takes_little_memory);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
