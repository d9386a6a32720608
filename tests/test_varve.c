/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face of the client: each function against a cache in memory, and what it says when
 * something is wrong.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/varve.h"
#include "tests/support/fake_cas.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

static struct fake_cas cas;
static struct temp_dir directory;
static struct varve *varve;
static struct varve_error error;

static void setup(void)
{
    temp_dir_make(&directory);
    fake_cas_start(&cas);
    const struct varve_options options = {
        .timeout_seconds = 20, .instance_name = "one", .connections = 2};
    varve = varve_connect(fake_cas_target(&cas), &options, &error);
    ck_assert_ptr_nonnull(varve);
}

static void teardown(void)
{
    varve_close(varve);
    fake_cas_stop(&cas);
    temp_dir_remove(&directory);
}

static const char *make_file(const char *name, const char *content)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", directory.path, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    fclose(file);
    ck_assert_int_eq(chmod(path, 0644), 0);
    return path;
}

START_TEST(what_was_put_is_there_and_comes_back)
{
    struct varve_digest digests[3];
    ck_assert_msg(varve_put_bytes(varve, "hello", 5, &digests[0], &error), "%s", error.message);
    ck_assert_str_eq(digests[0].hash,
                     "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    ck_assert_int_eq(digests[0].size_bytes, 5);
    ck_assert_msg(varve_put_file(varve, make_file("file", "abc"), &digests[1], &error), "%s",
                  error.message);
    ck_assert(varve_digest_parse(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/1", &digests[2], &error));
    bool missing[3];
    ck_assert_msg(varve_find_missing(varve, digests, missing, 3, &error), "%s", error.message);
    ck_assert(!missing[0] && !missing[1] && missing[2]);

    char *data = varve_get_bytes(varve, &digests[1], 3, &error);
    ck_assert_ptr_nonnull(data);
    ck_assert_mem_eq(data, "abc", 3);
    free(data);
    ck_assert_ptr_null(varve_get_bytes(varve, &digests[1], 2, &error));
    ck_assert_ptr_null(varve_get_bytes(varve, &digests[2], 100, &error));
    ck_assert_int_eq(error.code, VARVE_NOT_FOUND);

    int ends[2];
    char read_back[8] = "";
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert(varve_get_fd(varve, &digests[0], ends[1], &error));
    ck_assert_int_eq(read(ends[0], read_back, sizeof(read_back)), 5);
    ck_assert_str_eq(read_back, "hello");
    close(ends[0]);
    close(ends[1]);
}
END_TEST

static unsigned told_problems, told_progress;

static void count_problem(void *argument, const struct varve_error *problem)
{
    ck_assert_ptr_eq(argument, &directory);
    ck_assert_int_ne(problem->code, 0);
    told_problems++;
}

static void count_progress(void *argument, const struct varve_push_progress *progress)
{
    ck_assert_ptr_eq(argument, &directory);
    ck_assert_uint_ge(progress->blobs, progress->blobs_uploaded);
    told_progress++;
}

START_TEST(a_directory_is_pushed_and_what_is_wrong_with_it_is_told)
{
    make_file("a", "abc");
    const struct varve_push_observer observer = {
        .problem = count_problem, .progress = count_progress, .argument = &directory};
    struct varve_digest root;
    ck_assert_msg(varve_push_directory(varve, directory.path, &observer, &root, &error), "%s",
                  error.message);
    ck_assert_str_eq(root.hash, "4cc1bd6a1adf7cd71ea2d0c92f08fc093fb4dd74b64eadde282acfdc0fe95c62");
    ck_assert_uint_gt(told_progress, 0);
    ck_assert_uint_eq(told_problems, 0);

    char path[600], back[512];
    snprintf(back, sizeof(back), "%s-back", directory.path);
    ck_assert_msg(varve_pull_directory(varve, &root, back, &observer, &error), "%s", error.message);
    snprintf(path, sizeof(path), "%s/a", back);
    struct stat stat_of_file;
    ck_assert_int_eq(stat(path, &stat_of_file), 0);
    ck_assert_int_eq(stat_of_file.st_size, 3);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(back), 0); /* and nothing else is in it */
    struct varve_digest nowhere = root;
    nowhere.hash[0] = nowhere.hash[0] == 'f' ? 'e' : 'f';
    ck_assert(!varve_pull_directory(varve, &nowhere, back, NULL, &error));
    ck_assert_int_eq(error.code, VARVE_NOT_FOUND);
    ck_assert_int_eq(rmdir(back), 0);

    snprintf(path, sizeof(path), "%s/fifo", directory.path);
    ck_assert_int_eq(mkfifo(path, 0644), 0);
    ck_assert(!varve_push_directory(varve, directory.path, &observer, &root, &error));
    ck_assert_uint_eq(told_problems, 1);
    ck_assert(!varve_push_directory(varve, directory.path, NULL, &root, &error));
    ck_assert(!varve_put_file(varve, path, &root, &error)); /* and does not wait for a writer */
}
END_TEST

START_TEST(failures_have_a_code_and_a_message)
{
    struct varve_digest digest;
    memset(&error, 0, sizeof(error));
    ck_assert(!varve_digest_parse("short/3", &digest, &error));
    ck_assert_int_eq(error.code, STATUS_INVALID_ARGUMENT);
    ck_assert_uint_gt(strlen(error.message), 0);

    memset(&digest, 'f', sizeof(digest)); /* no NUL, no hash: refused, and not read past its end */
    bool missing;
    ck_assert(!varve_find_missing(varve, &digest, &missing, 1, &error));
    ck_assert_int_eq(error.code, STATUS_INVALID_ARGUMENT);

    ck_assert_ptr_null(varve_connect("no port", NULL, &error));
    ck_assert_int_eq(error.code, STATUS_INVALID_ARGUMENT);
    const struct varve_options negative = {.timeout_seconds = -1};
    ck_assert_ptr_null(varve_connect("host:1", &negative, &error));
    ck_assert_int_eq(error.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!varve_put_file(varve, "/nowhere/at/all", &digest, &error));
    ck_assert_int_eq(error.code, VARVE_NOT_FOUND);
}
END_TEST

START_TEST(an_action_that_is_not_there_is_not_found_and_no_failure)
{
    cas.faults[0] = (struct fake_fault){.method = "GetActionResult",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_NOT_FOUND,
                                        .times = 1};
    struct varve_digest action;
    ck_assert(varve_digest_parse(
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3", &action, &error));
    bool found = true;
    void *result = NULL;
    size_t length;
    ck_assert(varve_get_action_result(varve, &action, &found, &result, &length, &error));
    ck_assert(!found && result == NULL);
    ck_assert(!varve_update_action_result(varve, &action, "", 0,
                                          &error)); /* this server has no action cache */
    ck_assert_int_eq(error.code, STATUS_UNIMPLEMENTED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("varve");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, what_was_put_is_there_and_comes_back);
    tcase_add_test(all, a_directory_is_pushed_and_what_is_wrong_with_it_is_told);
    tcase_add_test(all, failures_have_a_code_and_a_message);
    tcase_add_test(all, an_action_that_is_not_there_is_not_found_and_no_failure);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
