/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what was heard of a bucket is known after a restart, that one that is damaged or about another bucket is made anew instead of
 * keeping a node from starting, and that what is old goes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/bucket_index.h"
#include "tests/support/messages.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { ROWS = 5000 };

static struct temp_dir directory;
static char path[512];
static struct bucket_index *bucket;
static struct bucket_index_config config;

static void open_it(void)
{
    struct status status = {0};
    ck_assert_msg(bucket_index_open(&config, &bucket, &status), "%s", status.message);
}

static void setup(void)
{
    temp_dir_make(&directory);
    snprintf(path, sizeof(path), "%s/tier/index", directory.path);
    config = (struct bucket_index_config){.path = path, .place = 7};
    open_it();
}

static void teardown(void)
{
    bucket_index_close(bucket);
    bucket = NULL;
    temp_dir_remove(&directory);
}

static void again(void)
{
    bucket_index_close(bucket);
    bucket = NULL;
    open_it();
}

static struct bucket_row row_of(unsigned number)
{
    struct bucket_row row = {.digest = digest_of_nothing(number),
                             .pack = number % 3 == 0 ? 0 : number,
                             .offset = number * 7,
                             .since_s = (int64_t)(400000 + number) * 3600};
    row.digest.size_bytes = number;
    return row;
}

static bool try_to_put_rows(unsigned from, unsigned count)
{
    struct status status = {0};
    struct bucket_row *const rows = calloc(count, sizeof(*rows));
    ck_assert_ptr_nonnull(rows);
    for (unsigned i = 0; i < count; i++)
        rows[i] = row_of(from + i);
    const bool ok = bucket_index_put(bucket, rows, count, &status);
    ck_assert_msg(ok || status.code == STATUS_DATA_LOSS, "%s", status.message);
    free(rows);
    return ok;
}

static void put_rows(unsigned from, unsigned count)
{
    ck_assert(try_to_put_rows(from, count));
}

static bool knows(unsigned number)
{
    struct status status = {0};
    const struct bucket_row wanted = row_of(number);
    struct bucket_row row;
    struct digest asked = wanted.digest;
    asked.size_bytes = 0;
    const bool found = bucket_index_get(bucket, &asked, &row, &status);
    ck_assert_int_eq(status.code, STATUS_OK);
    if (found) {
        ck_assert(digest_equal(&row.digest, &wanted.digest));
        ck_assert_uint_eq(row.pack, wanted.pack);
        ck_assert_uint_eq(row.offset, wanted.offset);
        ck_assert_int_eq(row.since_s, wanted.since_s);
    }
    return found;
}

START_TEST(rows_are_there_after_a_restart_and_dropped_ones_are_not)
{
    struct status status = {0};
    put_rows(0, ROWS);
    for (unsigned i = 0; i < ROWS; i += 10) {
        const struct bucket_row row = row_of(i);
        ck_assert(bucket_index_drop(bucket, &row.digest, &status));
    }
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < ROWS; i++)
            ck_assert(knows(i) == (i % 10 != 0));
        ck_assert(!knows(ROWS + 1));
        again();
    }
}
END_TEST

START_TEST(notes_stay_with_the_rows)
{
    struct status status = {0};
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    bucket_index_note(bucket, "after", text);
    ck_assert_str_eq(text, "");
    ck_assert(bucket_index_set_note(bucket, "after", "idx/0001/xyz", &status));
    again();
    bucket_index_note(bucket, "after", text);
    ck_assert_str_eq(text, "idx/0001/xyz");
}
END_TEST

START_TEST(index_of_another_bucket_is_made_anew)
{
    put_rows(0, 10);
    config.place = 8;
    again();
    ck_assert(!knows(1));
    put_rows(0, 10);
    again();
    ck_assert(knows(1));
}
END_TEST

/* Whichever file is cut to nothing or overwritten: it opens, and knows what it knew or less, and nothing wrong. */
START_TEST(damaged_index_is_made_anew)
{
    put_rows(0, ROWS);
    again();
    for (int kind = 0; kind < 2; kind++) {
        for (int victim = 0; victim < 12; victim++) {
            char file[1024];
            struct dirent *entry;
            int at = 0;
            bucket_index_close(bucket);
            DIR *const folder = opendir(path);
            file[0] = '\0'; /* a read has met the damage: it is gone */
            while (folder != NULL && (entry = readdir(folder)) != NULL) {
                if (entry->d_name[0] != '.' && at++ == victim)
                    snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
            }
            if (folder != NULL)
                closedir(folder);
            if (file[0] != '\0') {
                const int fd = open(file, O_WRONLY);
                ck_assert_int_ge(fd, 0);
                if (kind == 0)
                    ck_assert_int_eq(ftruncate(fd, 0), 0);
                else
                    ck_assert_int_eq(pwrite(fd, "garbage that is no database", 27, 0), 27);
                close(fd);
            }
            open_it();
            struct status status = {0};
            for (unsigned i = 0; i < ROWS; i += 500) {
                const struct bucket_row wanted = row_of(i);
                struct bucket_row row;
                if (bucket_index_get(bucket, &wanted.digest, &row, &status))
                    ck_assert(row.pack == wanted.pack && row.offset == wanted.offset);
            }
            /* A damaged file may turn up only when it is compacted. */
            if (!try_to_put_rows(0, ROWS)) {
                again();
                put_rows(0, ROWS);
            }
        }
    }
}
END_TEST

START_TEST(two_at_once_is_refused_and_harms_nothing)
{
    struct bucket_index *second = NULL;
    struct status status = {0};
    put_rows(0, 10);
    ck_assert(!bucket_index_open(&config, &second, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert(knows(1));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("bucket_index");
    TCase *const all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, rows_are_there_after_a_restart_and_dropped_ones_are_not);
    tcase_add_test(all, notes_stay_with_the_rows);
    tcase_add_test(all, index_of_another_bucket_is_made_anew);
    tcase_add_test(all, damaged_index_is_made_anew);
    tcase_add_test(all, two_at_once_is_refused_and_harms_nothing);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
