/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that both disks, the real one and the simulated one, keep the same contract, by running the
 * same tests on each; and that the functions above the seam get everything through however short or
 * interrupted the operations are, never repeat a sync, and never loop without progress.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "tests/sim/io_sim.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum disk { POSIX, SIMULATED, DISK_COUNT };

/* What a test works with; `directory` is there and empty. */
struct rig {
    struct io *io;
    struct io_sim *sim; /* NULL on the real disk */
    struct temp_dir temp;
    char directory[TEMP_DIR_PATH_BYTES_MAX];
    char path[TEMP_DIR_PATH_BYTES_MAX + 32];
};

static struct status status;

static void rig_set_up(struct rig *rig, enum disk disk)
{
    *rig = (struct rig){0};
    status = (struct status){0};
    if (disk == POSIX) {
        rig->io = io_posix();
        temp_dir_make(&rig->temp);
        memcpy(rig->directory, rig->temp.path, sizeof(rig->temp.path));
    } else {
        rig->sim = io_sim_new();
        rig->io = io_sim_io(rig->sim);
        snprintf(rig->directory, sizeof(rig->directory), "/data");
        ck_assert(io_make_directory(rig->io, rig->directory, &status));
    }
}

static void rig_tear_down(struct rig *rig)
{
    temp_dir_remove(&rig->temp);
    io_sim_free(rig->sim);
}

/* The path of a file of this name; valid until the next call. */
static const char *in(struct rig *rig, const char *name)
{
    snprintf(rig->path, sizeof(rig->path), "%s/%s", rig->directory, name);
    return rig->path;
}

static int create(struct rig *rig, const char *name)
{
    int fd = -1;
    ck_assert_msg(io_open(rig->io, in(rig, name), IO_OPEN_CREATE_NEW, &fd, &status), "%s",
                  status.message);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void write_text(struct rig *rig, int fd, uint64_t offset, const char *text)
{
    char copy[64];
    snprintf(copy, sizeof(copy), "%s", text);
    const struct iovec part = {.iov_base = copy, .iov_len = strlen(copy)};
    ck_assert_msg(io_pwritev(rig->io, fd, &part, 1, offset, &status), "%s", status.message);
}

static void assert_content(struct rig *rig, int fd, const char *text, size_t length)
{
    char content[256];
    size_t got = 0;
    uint64_t size = 0;
    ck_assert_uint_lt(length, sizeof(content));
    ck_assert(io_pread(rig->io, fd, content, sizeof(content), 0, &got, &status));
    ck_assert_uint_eq(got, length);
    ck_assert_mem_eq(content, text, length);
    ck_assert(io_size(rig->io, fd, &size, &status));
    ck_assert_uint_eq(size, length);
}

/* ---- the contract; _i is the disk */

START_TEST(what_is_written_is_read_back)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "hello world");
    write_text(&rig, fd, 6, "W");
    write_text(&rig, fd, 13, "!");
    assert_content(&rig, fd, "hello World\0\0!", 14);

    char part[8];
    size_t got = 99;
    ck_assert(io_pread(rig.io, fd, part, 5, 6, &got, &status));
    ck_assert_uint_eq(got, 5);
    ck_assert_mem_eq(part, "World", 5);
    ck_assert(io_pread(rig.io, fd, part, 8, 13, &got, &status));
    ck_assert_uint_eq(got, 1);
    ck_assert(io_pread(rig.io, fd, part, 8, 14, &got, &status));
    ck_assert_uint_eq(got, 0);
    ck_assert(io_pread(rig.io, fd, part, 0, 0, &got, &status));
    ck_assert_uint_eq(got, 0);
    ck_assert(io_sync(rig.io, fd, &status));
    ck_assert(io_drop_cache(rig.io, fd, &status));
    io_close(rig.io, fd);

    ck_assert(io_open(rig.io, in(&rig, "a"), IO_OPEN_READ, &fd, &status));
    assert_content(&rig, fd, "hello World\0\0!", 14);
    io_close(rig.io, fd);
    io_close(rig.io, -1);
    rig_tear_down(&rig);
}
END_TEST

/* As far as the real disk's cache goes: a page that was just written is in it, and after a drop is not. */
START_TEST(a_read_that_may_not_wait_takes_what_is_in_memory_and_no_more_than_it_may)
{
    struct rig rig;
    char part[8] = {0};
    size_t got = 0;
    rig_set_up(&rig, POSIX);
    int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "hello world");
    io_cached_begin(8);
    const bool first = io_pread(rig.io, fd, part, 5, 0, &got, &status);
    ck_assert(!first || (got == 5 && memcmp(part, "hello", 5) == 0));
    ck_assert(!io_pread(rig.io, fd, part, 5, 6, &got, &status)); /* of 8 bytes 3 are left */
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert(io_cached_end());
    ck_assert(io_pread(rig.io, fd, part, 5, 6, &got, &status)); /* it may again */
    ck_assert_mem_eq(part, "world", 5);

    io_cached_begin(100);
    ck_assert(!io_cached_end()); /* nothing was asked for */
    ck_assert(io_sync(rig.io, fd, &status));
    ck_assert(io_drop_cache(rig.io, fd, &status));
    io_cached_begin(100);
    const bool dropped = io_pread(rig.io, fd, part, 5, 0, &got, &status);
    ck_assert(io_cached_end() != dropped); /* a memory file system drops nothing */
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(a_disk_that_does_not_say_what_is_in_memory_is_waited_for)
{
    struct rig rig;
    char part[8];
    size_t got = 0;
    rig_set_up(&rig, SIMULATED);
    const int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "hello world");
    io_cached_begin(100);
    ck_assert(!io_pread(rig.io, fd, part, 5, 0, &got, &status));
    ck_assert(io_cached_end());
    ck_assert(io_pread(rig.io, fd, part, 5, 0, &got, &status));
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

static int64_t nothing_cached(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    (void)io;
    (void)fd;
    (void)buffer;
    (void)length;
    (void)offset;
    return 0;
}

/* Some versions of Linux do that; a record of which nothing comes would count as damaged, and be forgotten. */
START_TEST(an_end_of_file_that_may_be_none_is_looked_at_again_where_waiting_is_allowed)
{
    struct rig rig;
    char part[8];
    size_t got = 0;
    rig_set_up(&rig, POSIX);
    struct io_ops ops = *rig.io->ops;
    ops.pread_cached = nothing_cached;
    struct io doubtful = {.ops = &ops};
    const int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "hello world");
    io_cached_begin(100);
    ck_assert(!io_pread(&doubtful, fd, part, 5, 0, &got, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert(io_cached_end());
    ck_assert(io_pread(&doubtful, fd, part, 5, 0, &got, &status));
    ck_assert_uint_eq(got, 5);
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(files_are_made_once_and_opened_when_they_are_there)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = -7;
    ck_assert(!io_open(rig.io, in(&rig, "a"), IO_OPEN_READ, &fd, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(status.message, in(&rig, "a")));
    ck_assert(!io_open(rig.io, in(&rig, "a"), IO_OPEN_WRITE, &fd, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert(!io_open(rig.io, in(&rig, "none/a"), IO_OPEN_CREATE_NEW, &fd, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert_int_eq(fd, -7);
    io_close(rig.io, create(&rig, "a"));
    ck_assert(!io_open(rig.io, in(&rig, "a"), IO_OPEN_CREATE_NEW, &fd, &status));
    ck_assert_int_eq(status.code, STATUS_INTERNAL);
    ck_assert(io_open(rig.io, in(&rig, "a"), IO_OPEN_WRITE, &fd, &status));
    write_text(&rig, fd, 0, "x");
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(a_descriptor_for_reading_does_not_write)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "abc");
    io_close(rig.io, fd);
    ck_assert(io_open(rig.io, in(&rig, "a"), IO_OPEN_READ, &fd, &status));
    char text[] = "xyz";
    const struct iovec part = {.iov_base = text, .iov_len = 3};
    ck_assert(!io_pwritev(rig.io, fd, &part, 1, 0, &status));
    ck_assert(!io_truncate(rig.io, fd, 0, &status));
    ck_assert(!io_allocate(rig.io, fd, 100, &status));
    assert_content(&rig, fd, "abc", 3);
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(more_parts_than_one_call_takes_are_written_in_order)
{
    enum { PARTS = 2 * IOV_MAX + 77 };
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    static uint8_t data[PARTS * 7];
    static uint8_t read_back[sizeof(data) + 1];
    static struct iovec parts[PARTS], before[PARTS];
    size_t length = 0;
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = (struct iovec){.iov_base = data + length, .iov_len = i % 7};
        for (size_t at = 0; at < i % 7; at++)
            data[length++] = (uint8_t)(i * 31 + at);
    }
    memcpy(before, parts, sizeof(parts));
    ck_assert(io_pwritev(rig.io, fd, parts, PARTS, 3, &status));
    ck_assert_mem_eq(before, parts, sizeof(parts));
    size_t got;
    ck_assert(io_pread(rig.io, fd, read_back, sizeof(read_back), 3, &got, &status));
    ck_assert_uint_eq(got, length);
    ck_assert_mem_eq(read_back, data, length);
    ck_assert(io_pwritev(rig.io, fd, parts, 0, 0, &status));
    ck_assert(io_pwritev(rig.io, fd, parts, 1, 0, &status));
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(allocate_grows_and_truncate_cuts)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    write_text(&rig, fd, 0, "abcdef");
    ck_assert(io_allocate(rig.io, fd, 8, &status));
    assert_content(&rig, fd, "abcdef\0\0", 8);
    ck_assert(io_allocate(rig.io, fd, 4, &status));
    ck_assert(io_allocate(rig.io, fd, 0, &status));
    assert_content(&rig, fd, "abcdef\0\0", 8);
    ck_assert(io_truncate(rig.io, fd, 3, &status));
    assert_content(&rig, fd, "abc", 3);
    ck_assert(io_truncate(rig.io, fd, 6, &status));
    assert_content(&rig, fd, "abc\0\0\0", 6);
    ck_assert(!io_allocate(rig.io, fd, UINT64_MAX, &status));
    ck_assert(!io_truncate(rig.io, fd, UINT64_MAX, &status));
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(offsets_that_no_file_has_are_refused)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    char text[] = "x";
    size_t got;
    const struct iovec part = {.iov_base = text, .iov_len = 1};
    ck_assert(!io_pwritev(rig.io, fd, &part, 1, UINT64_MAX, &status));
    ck_assert(!io_pwritev(rig.io, fd, &part, 1, INT64_MAX, &status));
    ck_assert(!io_pread(rig.io, fd, text, 1, UINT64_MAX, &got, &status));
    assert_content(&rig, fd, "", 0);
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

/* Names that list gave, sorted, with a space behind each. */
struct names {
    char text[256];
    size_t count, count_max;
};

static bool note_name(void *argument, const char *name)
{
    struct names *names = argument;
    ck_assert_uint_lt(names->count, names->count_max);
    char *at = names->text;
    while (*at != '\0' && strncmp(at, name, strlen(name)) < 0)
        at = strchr(at, ' ') + 1;
    memmove(at + strlen(name) + 1, at, strlen(at) + 1);
    memcpy(at, name, strlen(name));
    at[strlen(name)] = ' ';
    return ++names->count < names->count_max;
}

static void assert_names(struct rig *rig, const char *expected)
{
    struct names names = {.count_max = 100};
    ck_assert(io_list(rig->io, rig->directory, note_name, &names, &status));
    ck_assert_str_eq(names.text, expected);
}

START_TEST(names_are_made_listed_renamed_and_removed)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    assert_names(&rig, "");
    int fd = create(&rig, "b");
    write_text(&rig, fd, 0, "old b");
    io_close(rig.io, fd);
    fd = create(&rig, "c");
    write_text(&rig, fd, 0, "c");
    io_close(rig.io, create(&rig, "a"));
    assert_names(&rig, "a b c ");

    char to[sizeof(rig.path)];
    memcpy(to, in(&rig, "b"), sizeof(to));
    ck_assert(io_rename(rig.io, in(&rig, "c"), to, &status));
    assert_names(&rig, "a b ");
    assert_content(&rig, fd, "c", 1);
    io_close(rig.io, fd);
    ck_assert(io_open(rig.io, in(&rig, "b"), IO_OPEN_READ, &fd, &status));
    assert_content(&rig, fd, "c", 1);

    ck_assert(io_unlink(rig.io, in(&rig, "b"), &status));
    assert_content(&rig, fd, "c", 1); /* as long as it is open */
    io_close(rig.io, fd);
    assert_names(&rig, "a ");
    ck_assert(!io_unlink(rig.io, in(&rig, "b"), &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert(!io_rename(rig.io, in(&rig, "b"), to, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert(io_sync_directory(rig.io, rig.directory, &status));
    rig_tear_down(&rig);
}
END_TEST

START_TEST(directories_are_made_once_or_already_there)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    ck_assert(io_make_directory(rig.io, in(&rig, "d"), &status));
    ck_assert(io_make_directory(rig.io, in(&rig, "d"), &status));
    ck_assert(io_make_directory(rig.io, in(&rig, "d/e"), &status));
    ck_assert(!io_make_directory(rig.io, in(&rig, "x/e"), &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    io_close(rig.io, create(&rig, "d/e/file"));
    assert_names(&rig, "d ");
    ck_assert(!io_unlink(rig.io, in(&rig, "d"), &status));
    ck_assert(!io_sync_directory(rig.io, in(&rig, "d/e/file"), &status));
    ck_assert(!io_sync_directory(rig.io, in(&rig, "x"), &status));
    struct names names = {.count_max = 100};
    ck_assert(!io_list(rig.io, in(&rig, "x"), note_name, &names, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(listing_ends_when_it_is_told_to)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    io_close(rig.io, create(&rig, "a"));
    io_close(rig.io, create(&rig, "b"));
    io_close(rig.io, create(&rig, "c"));
    struct names names = {.count_max = 2}; /* note_name asserts that a third does not come */
    ck_assert(io_list(rig.io, rig.directory, note_name, &names, &status));
    ck_assert_uint_eq(names.count, 2);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(a_lock_is_held_by_one_until_it_is_closed)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int first = -1;
    int second = -1;
    ck_assert(io_lock(rig.io, in(&rig, "LOCK"), &first, &status));
    ck_assert(!io_lock(rig.io, in(&rig, "LOCK"), &second, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert_int_eq(second, -1);
    io_close(rig.io, first);
    ck_assert(io_lock(rig.io, in(&rig, "LOCK"), &second, &status));
    io_close(rig.io, second);
    ck_assert(!io_lock(rig.io, in(&rig, "none/LOCK"), &second, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(space_is_told)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    struct io_space space = {0};
    ck_assert(io_space(rig.io, rig.directory, &space, &status));
    ck_assert_uint_gt(space.total_bytes, 0);
    ck_assert_uint_le(space.free_bytes, space.total_bytes);
    ck_assert(!io_space(rig.io, in(&rig, "none"), &space, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    rig_tear_down(&rig);
}
END_TEST

START_TEST(a_closed_descriptor_is_good_for_nothing)
{
    struct rig rig;
    rig_set_up(&rig, (enum disk)_i);
    int fd = create(&rig, "a");
    io_close(rig.io, fd);
    char text[] = "x";
    size_t got;
    uint64_t size;
    const struct iovec part = {.iov_base = text, .iov_len = 1};
    ck_assert(!io_pread(rig.io, fd, text, 1, 0, &got, &status));
    ck_assert(!io_pwritev(rig.io, fd, &part, 1, 0, &status));
    ck_assert(!io_sync(rig.io, fd, &status));
    ck_assert(!io_size(rig.io, fd, &size, &status));
    ck_assert(!io_allocate(rig.io, fd, 1, &status));
    ck_assert(!io_truncate(rig.io, fd, 1, &status));
    ck_assert(!io_drop_cache(rig.io, fd, &status));
    rig_tear_down(&rig);
}
END_TEST

/* ---- the functions above the seam */

START_TEST(short_and_interrupted_transfers_get_everything_through)
{
    static char data[300];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 7 + 1);
    const struct iovec parts[] = {
        {.iov_base = data, .iov_len = 1},         {.iov_base = NULL, .iov_len = 0},
        {.iov_base = data + 1, .iov_len = 99},    {.iov_base = data + 100, .iov_len = 0},
        {.iov_base = data + 100, .iov_len = 200}, {.iov_base = NULL, .iov_len = 0},
    };
    for (size_t transfer_max = 1; transfer_max <= sizeof(data); transfer_max++) {
        for (uint64_t interrupt_every = 0; interrupt_every <= 4; interrupt_every += 2) {
            struct rig rig;
            rig_set_up(&rig, SIMULATED);
            io_sim_set_transfer_max(rig.sim, transfer_max);
            io_sim_set_interrupt_every(rig.sim, interrupt_every);
            int fd = create(&rig, "a");
            char read_back[sizeof(data) + 1];
            size_t got = 0;
            if (!io_allocate(rig.io, fd, 400, &status) ||
                !io_truncate(rig.io, fd, sizeof(data), &status) ||
                !io_pwritev(rig.io, fd, parts, ARRAY_LENGTH(parts), 0, &status) ||
                !io_pread(rig.io, fd, read_back, sizeof(read_back), 0, &got, &status))
                ck_abort_msg("%s", status.message);
            ck_assert_uint_eq(got, sizeof(data));
            ck_assert_mem_eq(read_back, data, sizeof(data));
            io_close(rig.io, fd);
            rig_tear_down(&rig);
        }
    }
}
END_TEST

START_TEST(a_failed_sync_is_not_tried_again)
{
    static const int errors[] = {EIO, EINTR, ENOSPC};
    for (size_t i = 0; i < ARRAY_LENGTH(errors); i++) {
        struct rig rig;
        rig_set_up(&rig, SIMULATED);
        int fd = create(&rig, "a");
        io_sim_fail(rig.sim, IO_SIM_SYNC, 1, errors[i], IO_SIM_ONCE);
        ck_assert(!io_sync(rig.io, fd, &status));
        ck_assert_uint_eq(io_sim_count(rig.sim, IO_SIM_SYNC), 1);
        io_close(rig.io, fd);
        rig_tear_down(&rig);
    }
}
END_TEST

START_TEST(each_failure_is_told_with_its_operation)
{
    static const enum io_sim_operation operations[] = {
        IO_SIM_OPEN,     IO_SIM_PREAD,    IO_SIM_PWRITEV,        IO_SIM_SYNC,
        IO_SIM_ALLOCATE, IO_SIM_TRUNCATE, IO_SIM_DROP_CACHE,     IO_SIM_SIZE,
        IO_SIM_RENAME,   IO_SIM_UNLINK,   IO_SIM_MAKE_DIRECTORY, IO_SIM_SYNC_DIRECTORY,
        IO_SIM_LIST,     IO_SIM_SPACE,    IO_SIM_LOCK,
    };
    struct rig rig;
    rig_set_up(&rig, SIMULATED);
    int fd = create(&rig, "a");
    for (size_t i = 0; i < ARRAY_LENGTH(operations); i++) {
        char text[] = "x";
        const struct iovec part = {.iov_base = text, .iov_len = 1};
        size_t got;
        uint64_t size;
        int other;
        struct io_space space;
        struct names names = {.count_max = 100};
        bool ok = true;
        io_sim_fail(rig.sim, operations[i], 1, ENOSPC, IO_SIM_ONCE);
        status = (struct status){0};
        switch (operations[i]) {
        case IO_SIM_OPEN:
            ok = io_open(rig.io, in(&rig, "a"), IO_OPEN_READ, &other, &status);
            break;
        case IO_SIM_PREAD:
            ok = io_pread(rig.io, fd, text, 1, 0, &got, &status);
            break;
        case IO_SIM_PWRITEV:
            ok = io_pwritev(rig.io, fd, &part, 1, 0, &status);
            break;
        case IO_SIM_SYNC:
            ok = io_sync(rig.io, fd, &status);
            break;
        case IO_SIM_ALLOCATE:
            ok = io_allocate(rig.io, fd, 1, &status);
            break;
        case IO_SIM_TRUNCATE:
            ok = io_truncate(rig.io, fd, 1, &status);
            break;
        case IO_SIM_DROP_CACHE:
            ok = io_drop_cache(rig.io, fd, &status);
            break;
        case IO_SIM_SIZE:
            ok = io_size(rig.io, fd, &size, &status);
            break;
        case IO_SIM_RENAME:
            ok = io_rename(rig.io, in(&rig, "a"), "/data/b", &status);
            break;
        case IO_SIM_UNLINK:
            ok = io_unlink(rig.io, in(&rig, "a"), &status);
            break;
        case IO_SIM_MAKE_DIRECTORY:
            ok = io_make_directory(rig.io, in(&rig, "d"), &status);
            break;
        case IO_SIM_SYNC_DIRECTORY:
            ok = io_sync_directory(rig.io, rig.directory, &status);
            break;
        case IO_SIM_LIST:
            ok = io_list(rig.io, rig.directory, note_name, &names, &status);
            break;
        case IO_SIM_SPACE:
            ok = io_space(rig.io, rig.directory, &space, &status);
            break;
        case IO_SIM_LOCK:
            ok = io_lock(rig.io, in(&rig, "LOCK"), &other, &status);
            break;
        case IO_SIM_CLOSE:
        case IO_SIM_OTHER:
        case IO_SIM_ANY:
            break;
        }
        ck_assert_msg(!ok, "operation %zu", i);
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
        ck_assert_ptr_nonnull(strstr(status.message, strerror(ENOSPC)));
        ck_assert_uint_eq(io_sim_failures(rig.sim), i + 1);
    }
    assert_names(&rig, "a ");
    io_close(rig.io, fd);
    rig_tear_down(&rig);
}
END_TEST

/* A disk whose writes do nothing and do not say so. */
struct idle_disk {
    struct io io;
    int calls;
};

static int64_t write_nothing(struct io *io,
                             int fd,
                             const struct iovec *parts,
                             int count,
                             uint64_t offset)
{
    (void)fd;
    (void)parts;
    (void)count;
    (void)offset;
    CONTAINER_OF(io, struct idle_disk, io)->calls++;
    return 0;
}

START_TEST(a_write_without_progress_fails)
{
    const struct io_ops ops = {.pwritev = write_nothing};
    struct idle_disk disk = {.io = {.ops = &ops}};
    char text[] = "abc";
    const struct iovec parts[] = {{.iov_base = text, .iov_len = 0},
                                  {.iov_base = text, .iov_len = 3}};
    ck_assert(io_pwritev(&disk.io, 3, parts, 1, 0, &status));
    ck_assert_int_eq(disk.calls, 0);
    ck_assert(!io_pwritev(&disk.io, 3, parts, 2, 0, &status));
    ck_assert_int_eq(status.code, STATUS_INTERNAL);
    ck_assert_int_eq(disk.calls, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io");
    TCase *contract = tcase_create("contract");
    tcase_set_timeout(contract, 60);
    tcase_add_test(contract,
                   a_read_that_may_not_wait_takes_what_is_in_memory_and_no_more_than_it_may);
    tcase_add_test(contract, a_disk_that_does_not_say_what_is_in_memory_is_waited_for);
    tcase_add_test(contract,
                   an_end_of_file_that_may_be_none_is_looked_at_again_where_waiting_is_allowed);
    tcase_add_loop_test(contract, what_is_written_is_read_back, 0, DISK_COUNT);
    tcase_add_loop_test(contract, files_are_made_once_and_opened_when_they_are_there, 0,
                        DISK_COUNT);
    tcase_add_loop_test(contract, a_descriptor_for_reading_does_not_write, 0, DISK_COUNT);
    tcase_add_loop_test(contract, more_parts_than_one_call_takes_are_written_in_order, 0,
                        DISK_COUNT);
    tcase_add_loop_test(contract, allocate_grows_and_truncate_cuts, 0, DISK_COUNT);
    tcase_add_loop_test(contract, offsets_that_no_file_has_are_refused, 0, DISK_COUNT);
    tcase_add_loop_test(contract, names_are_made_listed_renamed_and_removed, 0, DISK_COUNT);
    tcase_add_loop_test(contract, directories_are_made_once_or_already_there, 0, DISK_COUNT);
    tcase_add_loop_test(contract, listing_ends_when_it_is_told_to, 0, DISK_COUNT);
    tcase_add_loop_test(contract, a_lock_is_held_by_one_until_it_is_closed, 0, DISK_COUNT);
    tcase_add_loop_test(contract, space_is_told, 0, DISK_COUNT);
    tcase_add_loop_test(contract, a_closed_descriptor_is_good_for_nothing, 0, DISK_COUNT);
    suite_add_tcase(suite, contract);

    TCase *above = tcase_create("above the seam");
    tcase_set_timeout(above, 60);
    tcase_add_test(above, short_and_interrupted_transfers_get_everything_through);
    tcase_add_test(above, a_failed_sync_is_not_tried_again);
    tcase_add_test(above, each_failure_is_told_with_its_operation);
    tcase_add_test(above, a_write_without_progress_fails);
    suite_add_tcase(suite, above);
    return test_run(suite);
}
