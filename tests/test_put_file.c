/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file put into a store of this process is there, exact and durable, when the call returns; a file
 * that is no state it ever had, or not of the digest asked for, never is. The file is changed from
 * inside the store's own writes, so that each change falls between two reads of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "durability/put_file.h"
#include "store/blob_reader.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

static struct metrics metrics;
static struct real_store real;
static struct temp_dir files;

/* What happens to the source with the nth chunk that the store writes; 0: nothing. */
static int source_fd = -1;
static unsigned change_at_write;
static void (*change)(void);

static void change_the_source(size_t bytes)
{
    if (bytes >= LIMIT_CHUNK_BYTES && change_at_write > 0 && --change_at_write == 0)
        change();
}

static void setup(void)
{
    temp_dir_make(&files);
    real_store_open(&real, &metrics, 4);
    atomic_store(&real.before_write, change_the_source);
}

static void teardown(void)
{
    if (source_fd >= 0)
        close(source_fd);
    real_store_close(&real);
    temp_dir_remove(&files);
}

/* A file of that size, open; and the digest of its bytes. */
static uint8_t *make_source(size_t size, uint8_t seed, struct digest *digest)
{
    uint8_t *data = malloc(size + 1);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 7 + i / 1000 + seed);
    char path[400];
    snprintf(path, sizeof(path), "%s/source", files.path);
    if (source_fd >= 0)
        close(source_fd);
    source_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(source_fd, 0);
    ck_assert_int_eq(write(source_fd, data, size), (ssize_t)size);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, size), digest);
    return data;
}

static void ck_stored(const struct digest *digest, const uint8_t *data)
{
    uint8_t *read = NULL;
    struct place place;
    struct status status = {0};
    ck_assert_msg(blob_read_whole(real.store, digest, GIB, &read, &place, &status), "%s",
                  status.message);
    ck_assert_ptr_nonnull(read);
    ck_assert_mem_eq(read, data, (size_t)digest->size_bytes);
    free(read);
}

static bool put(const struct digest *given,
                enum put_check check,
                struct digest *digest,
                struct status *status)
{
    const struct put_request request = {
        .fd = source_fd, .name = "source", .digest = given, .check = check};
    return put_file(real.durability, &request, digest, status);
}

START_TEST(files_of_all_sizes_are_there_however_much_is_known_of_them)
{
    static const size_t sizes[] = {0,
                                   1,
                                   256 * 1024,
                                   256 * 1024 + 1,
                                   LIMIT_CHUNK_BYTES - 1,
                                   LIMIT_CHUNK_BYTES,
                                   LIMIT_CHUNK_BYTES + 1,
                                   2 * LIMIT_CHUNK_BYTES,
                                   5 * 1000 * 1000 + 3};
    for (int known = 0; known < 3; known++) {
        for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
            struct digest expected, digest;
            struct status status = {0};
            uint8_t *data = make_source(sizes[i], (uint8_t)(known * 50 + 1), &expected);
            ck_assert_int_eq(lseek(source_fd, 0, SEEK_END), (off_t)sizes[i]); /* does not matter */
            ck_assert_msg(put(known > 0 ? &expected : NULL, known == 2 ? PUT_VOUCHED : PUT_HASHED,
                              &digest, &status),
                          "%s", status.message);
            ck_assert(digest_equal(&digest, &expected));
            ck_stored(&digest, data);
            /* Once more: it is there already. */
            const int64_t before = metrics_get(&metrics, METRIC_BLOBS_WRITTEN);
            ck_assert(put(NULL, PUT_HASHED, &digest, &status));
            ck_assert_int_eq(metrics_get(&metrics, METRIC_BLOBS_WRITTEN), before);
            free(data);
        }
    }
}
END_TEST

START_TEST(a_file_of_another_digest_is_refused_and_not_stored)
{
    static const size_t sizes[] = {1000, 3000000};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct digest real_digest, wanted, digest;
        struct status status = {0};
        free(make_source(sizes[i], 1, &real_digest));
        wanted = real_digest;
        wanted.hash[5] ^= 1;
        ck_assert(!put(&wanted, PUT_HASHED, &digest, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(status.message, "source"));
        ck_assert(!store_has_blob(real.store, &wanted));
        wanted = real_digest;
        wanted.size_bytes++;
        ck_assert(!put(&wanted, PUT_VOUCHED, &digest, &status));
        ck_assert(!store_has_blob(real.store, &wanted));
    }
}
END_TEST

static void grow(void)
{
    ck_assert_int_eq(lseek(source_fd, 0, SEEK_END) > 0, 1);
    ck_assert_int_eq(write(source_fd, "x", 1), 1);
}

static void shrink(void)
{
    ck_assert_int_eq(ftruncate(source_fd, 100), 0);
}

static void overwrite(void)
{
    ck_assert_int_eq(pwrite(source_fd, "x", 1, 10), 1);
}

/* A chunk that was read already, and the time of the change taken back. */
static void overwrite_and_hide(void)
{
    struct stat stat;
    ck_assert_int_eq(fstat(source_fd, &stat), 0);
    overwrite();
    const struct timespec times[2] = {stat.st_atim, stat.st_mtim};
    ck_assert_int_eq(futimens(source_fd, times), 0);
}

static void overwrite_the_rest_and_hide(void)
{
    struct stat stat;
    ck_assert_int_eq(fstat(source_fd, &stat), 0);
    ck_assert_int_eq(pwrite(source_fd, "other bytes", 11, stat.st_size - 11), 11);
    const struct timespec times[2] = {stat.st_atim, stat.st_mtim};
    ck_assert_int_eq(futimens(source_fd, times), 0);
}

START_TEST(a_file_that_changes_while_it_is_read_is_an_error_that_names_it_and_not_stored)
{
    static void (*const changes[])(void) = {grow, shrink, overwrite, overwrite_and_hide,
                                            overwrite_the_rest_and_hide};
    for (int known = 0; known < 3; known++) {
        struct digest expected, digest;
        struct status status = {0};
        free(make_source(4 * LIMIT_CHUNK_BYTES + 5, (uint8_t)(known + 10 * _i), &expected));
        usleep(20 * 1000); /* times of files move in steps of some milliseconds */
        change = changes[_i];
        change_at_write = 2;
        ck_assert(!put(known > 0 ? &expected : NULL, known == 2 ? PUT_VOUCHED : PUT_HASHED, &digest,
                       &status));
        ck_assert_uint_eq(change_at_write, 0);
        ck_assert_msg(status.code == STATUS_ABORTED || status.code == STATUS_INVALID_ARGUMENT, "%s",
                      status.message);
        ck_assert_ptr_nonnull(strstr(status.message, "source"));
        ck_assert(!store_has_blob(real.store, &expected));
        ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
    }
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused)
{
    struct digest digest;
    struct status status = {0};
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    source_fd = ends[0];
    ck_assert(!put(NULL, PUT_HASHED, &digest, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(status.message, "source: not a regular file"));
    close(ends[1]);
}
END_TEST

/* ---- the nth write or sync fails */

START_TEST(a_disk_that_fails_is_an_error_and_nothing_is_stored)
{
    struct digest expected, digest;
    struct status status = {0};
    free(make_source(3 * LIMIT_CHUNK_BYTES, 9, &expected));
    if (_i == 0)
        atomic_store(&real.sync_errno, EIO);
    else
        atomic_store(&real.write_errno, EIO);
    ck_assert(!put(NULL, PUT_HASHED, &digest, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "put source"));
    ck_assert(!store_has_blob(real.store, &expected));
    ck_assert_uint_eq(buffer_pool_in_use(real.buffers), 0);
}
END_TEST

START_TEST(no_free_buffer_is_an_error)
{
    struct buffer *taken[4];
    for (size_t i = 0; i < ARRAY_LENGTH(taken); i++)
        taken[i] = buffer_pool_try_take(real.buffers);
    struct digest expected, digest;
    struct status status = {0};
    free(make_source(10, 9, &expected));
    ck_assert(!put(NULL, PUT_HASHED, &digest, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < ARRAY_LENGTH(taken); i++)
        buffer_release(taken[i]);
    ck_assert(put(NULL, PUT_HASHED, &digest, &status));
}
END_TEST

/* ---- other readers */

struct piecemeal {
    struct bytes rest;
    size_t piece;
    bool fails;
};

static bool read_piecemeal(void *argument,
                           uint8_t *to,
                           size_t capacity,
                           size_t *got,
                           struct status *status)
{
    struct piecemeal *reader = argument;
    if (reader->fails && reader->rest.length < 1000)
        return status_fail(status, STATUS_INTERNAL, "the reader fails");
    *got = reader->rest.length < reader->piece ? reader->rest.length : reader->piece;
    if (*got > capacity)
        *got = capacity;
    memcpy(to, reader->rest.data, *got);
    reader->rest = bytes_of(reader->rest.data + *got, reader->rest.length - *got);
    return true;
}

START_TEST(bytes_from_anywhere_are_stored_if_they_are_those_of_the_digest)
{
    static const size_t sizes[] = {0, 1, 70000, LIMIT_CHUNK_BYTES + 3, 3000000};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct digest digest;
        struct status status = {0};
        uint8_t *data = make_source(sizes[i], 77, &digest);
        struct piecemeal reader = {.rest = bytes_of(data, sizes[i]), .piece = 65537};
        const struct put_reader from = {.read = read_piecemeal, .argument = &reader};
        ck_assert_msg(put_stream(real.durability, &digest, &from, &status), "%s", status.message);
        ck_stored(&digest, data);
        if (sizes[i] == 0) { /* too few, and of another digest, it cannot be */
            free(data);
            continue;
        }

        struct digest other = digest;
        other.hash[0] ^= 1;
        reader = (struct piecemeal){.rest = bytes_of(data, sizes[i]), .piece = 9999};
        ck_assert(!put_stream(real.durability, &other, &from, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        reader = (struct piecemeal){.rest = bytes_of(data, sizes[i] - 1), .piece = 9999};
        ck_assert(!put_stream(real.durability, &other, &from, &status)); /* too few */
        other.size_bytes--;
        reader = (struct piecemeal){.rest = bytes_of(data, sizes[i]), .piece = 9999};
        if (other.size_bytes > 0)
            ck_assert(!put_stream(real.durability, &other, &from, &status)); /* too many */
        reader = (struct piecemeal){.rest = bytes_of(data, sizes[i]), .piece = 99, .fails = true};
        ck_assert(!put_stream(real.durability, &other, &from, &status));
        ck_assert(!store_has_blob(real.store, &other));
        free(data);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("put_file");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, files_of_all_sizes_are_there_however_much_is_known_of_them);
    tcase_add_test(all, a_file_of_another_digest_is_refused_and_not_stored);
    tcase_add_loop_test(
        all, a_file_that_changes_while_it_is_read_is_an_error_that_names_it_and_not_stored, 0, 5);
    tcase_add_test(all, what_is_no_regular_file_is_refused);
    tcase_add_loop_test(all, a_disk_that_fails_is_an_error_and_nothing_is_stored, 0, 2);
    tcase_add_test(all, no_free_buffer_is_an_error);
    tcase_add_test(all, bytes_from_anywhere_are_stored_if_they_are_those_of_the_digest);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
