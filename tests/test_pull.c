/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree that was pushed comes back as it was, awkward ones too: every file, bit, link and empty
 * directory. Nothing is written outside of the directory whatever the messages say or stands there
 * already, and no part of a file is seen under its name: with a server that lies, fails and is cut,
 * and a puller that is killed (against tests/support/fake_cas.h).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/tree_writer.h"
#include "tests/support/fake_cas.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

static struct temp_dir directory;
static char from[300], to[300];
static struct fake_cas cas;
static struct client *client;
static struct capabilities capabilities;
static char problems[16384];
static unsigned problem_count;
static enum status_code problem_codes[64];

static void setup(void)
{
    temp_dir_make(&directory);
    snprintf(from, sizeof(from), "%s/from", directory.path);
    snprintf(to, sizeof(to), "%s/to", directory.path);
    ck_assert_int_eq(mkdir(from, 0755), 0);
    umask(022);
}

static void teardown(void)
{
    temp_dir_remove(&directory);
}

static void open_client(void)
{
    client_prepare_process();
    fake_cas_start(&cas);
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = NS_PER_MS;
    options.retry.pause_max_ns = 4 * NS_PER_MS;
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
    ck_assert_msg(capabilities_get(client, &capabilities, &status), "%s", status.message);
}

static void close_client(void)
{
    client_close(client);
    fake_cas_stop(&cas);
}

static const char *path_in(const char *root, const char *name)
{
    static char paths[4][8192];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
    return path;
}

static void make_file(const char *name, mode_t mode, size_t size)
{
    uint8_t *data = malloc(size + 1);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 31 + i / 251 + (unsigned char)name[i % strlen(name)]);
    const int fd = open(path_in(from, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
    ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
    free(data);
}

static void make_directory(const char *name)
{
    ck_assert_int_eq(mkdir(path_in(from, name), 0755), 0);
}

static void note_problem(void *argument, const struct status *problem)
{
    (void)argument;
    ck_assert_int_ne(problem->code, STATUS_OK);
    problem_codes[problem_count++ % ARRAY_LENGTH(problem_codes)] = problem->code;
    const size_t length = strlen(problems);
    snprintf(problems + length, sizeof(problems) - length, "%s\n", problem->message);
}

static void no_push_progress(void *argument, const struct push_counts *counts)
{
    (void)argument;
    (void)counts;
}

static void no_pull_progress(void *argument, const struct pull_counts *counts)
{
    (void)argument;
    (void)counts;
}

static void push_with(unsigned tree_options, struct digest *root)
{
    const struct push_observer observer = {.problem = note_problem, .progress = no_push_progress};
    struct push_options options = push_options_default();
    options.tree = tree_options;
    struct push_counts counts;
    struct status status = {0};
    ck_assert_msg(
        push_directory(client, &capabilities, from, &options, &observer, root, &counts, &status),
        "%s\n%s", status.message, problems);
}

static bool pull(const struct digest *root, struct pull_counts *counts, struct status *status)
{
    const struct pull_observer observer = {.problem = note_problem, .progress = no_pull_progress};
    problem_count = 0;
    problems[0] = '\0';
    return pull_directory(client, &capabilities, root, to, NULL, &observer, counts, status);
}

static void ck_pull(const struct digest *root, struct pull_counts *counts)
{
    struct status status = {0};
    ck_assert_msg(pull(root, counts, &status), "%s\n%s", status.message, problems);
}

/* What lies in a directory, with what is hidden. */
static size_t count_entries(const char *path)
{
    DIR *stream = opendir(path);
    ck_assert_msg(stream != NULL, "%s: %s", path, strerror(errno));
    size_t count = 0;
    for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

static void run_shell(const char *script)
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(2, 1);
        execl("/bin/sh", "sh", "-c", script, "sh", from, to, NULL);
        _exit(127);
    }
    int result;
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_msg(result == 0, "%s: %d", script, result);
}

/* By means that are not ours: names, kinds, bytes and targets; then the execute bits. */
static void ck_same_trees(void)
{
    run_shell("diff -r --no-dereference \"$1\" \"$2\"");
    run_shell("for d in \"$1\" \"$2\"; do (cd \"$d\" && find . -mindepth 1 \\( -type f -perm -100 "
              "-printf 'x %p\\n' -o -printf '%y %p\\n' \\) | LC_ALL=C sort >\"$d.list\"); done; "
              "cmp \"$1.list\" \"$2.list\"");
}

/* ---- what went in comes out */

START_TEST(an_awkward_tree_comes_back_as_it_was)
{
    make_file("plain", 0644, 3);
    make_file("run", 0755, 100);
    make_file("owner only runs", 0700, 5);
    make_file("empty", 0644, 0);
    make_file("empty and executable", 0755, 0);
    make_file("\xc3\xa9", 0644, 1);
    make_file("e\xcc\x81", 0644, 2);
    make_file(" leading and trailing ", 0644, 7);
    make_file("new\nline", 0644, 8);
    make_file("-rf", 0644, 9);
    make_file("back\\slash", 0644, 9);
    make_file("quote'\"", 0644, 10);
    make_file("...", 0644, 10);
    make_file("at the threshold", 0644, 128 << 10);
    make_file("above the threshold", 0644, (128 << 10) + 1);
    make_file("large", 0755, 5 * 1000 * 1000);
    make_directory("no entries");
    make_directory("a");
    make_file("a.b", 0644, 4);
    make_file("a/x", 0644, 4);
    make_directory("a/b");
    make_directory("a/b/c");
    make_file("a/b/c/deep", 0755, 300000);
    char name[260];
    memset(name, 'n', 255);
    name[255] = '\0';
    make_file(name, 0644, 11);
    ck_assert_int_eq(link(path_in(from, "large"), path_in(from, "a/hard link")), 0);
    ck_assert_int_eq(symlink("a/x", path_in(from, "link")), 0);
    ck_assert_int_eq(symlink("nowhere at all", path_in(from, "dangling")), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path_in(from, "absolute")), 0);
    ck_assert_int_eq(symlink("../../..", path_in(from, "a/b/up and out")), 0);
    ck_assert_int_eq(symlink("self", path_in(from, "self")), 0);
    ck_assert_int_eq(symlink("a", path_in(from, "link to directory")), 0);
    for (int i = 0; i < 700; i++) {
        char number[32];
        snprintf(number, sizeof(number), "a/b/%d", i);
        make_file(number, i % 3 == 0 ? 0755 : 0644, (size_t)(i % 50));
    }
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    ck_pull(&root, &counts);
    ck_same_trees();
    ck_assert_uint_eq(counts.symlinks, 6);
    ck_assert_uint_eq(counts.files, counts.files_known);
    ck_assert_uint_eq(problem_count, 0);
    /* And over itself. */
    ck_pull(&root, &counts);
    ck_same_trees();
    ck_assert_uint_lt(fake_cas_calls(&cas, "BatchReadBlobs"), 20);
    close_client();
}
END_TEST

START_TEST(a_tree_without_entries_is_a_directory_without_entries)
{
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    ck_pull(&root, &counts);
    ck_assert_uint_eq(count_entries(to), 0);
    close_client();
}
END_TEST

START_TEST(names_that_are_not_utf8_come_back_with_escapes)
{
    make_file("bad\xff", 0644, 3);
    make_file("\\xff", 0644, 4);
    make_directory("\x80\x81");
    make_file("\x80\x81/f", 0755, 5);
    ck_assert_int_eq(symlink("\xfe\\", path_in(from, "l")), 0);
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(TREE_ESCAPE_NAMES, &root);
    struct pull_options options = pull_options_default();
    options.unescape_names = true;
    const struct pull_observer observer = {.problem = note_problem, .progress = no_pull_progress};
    ck_assert_msg(
        pull_directory(client, &capabilities, &root, to, &options, &observer, &counts, &status),
        "%s", problems);
    ck_same_trees();
    close_client();
}
END_TEST

START_TEST(modes_are_those_of_the_umask)
{
    make_file("plain", 0640, 3);
    make_file("run", 0500, 3);
    make_directory("d");
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    umask(027);
    ck_pull(&root, &counts);
    struct stat stat;
    ck_assert_int_eq(lstat(path_in(to, "plain"), &stat), 0);
    ck_assert_uint_eq(stat.st_mode & 07777, 0640);
    ck_assert_int_eq(lstat(path_in(to, "run"), &stat), 0);
    ck_assert_uint_eq(stat.st_mode & 07777, 0750);
    ck_assert_int_eq(lstat(path_in(to, "d"), &stat), 0);
    ck_assert_uint_eq(stat.st_mode & 07777, 0750);
    close_client();
}
END_TEST

START_TEST(what_is_there_already_is_replaced_or_stays)
{
    make_file("file", 0755, 1000);
    make_directory("d");
    make_file("d/f", 0644, 200000);
    ck_assert_int_eq(symlink("file", path_in(from, "l")), 0);
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    ck_assert_int_eq(mkdir(to, 0755), 0);
    ck_assert_int_eq(mkdir(path_in(to, "d"), 0755), 0);
    ck_assert_int_eq(symlink("/etc/passwd", path_in(to, "file")),
                     0); /* replaced, not written through */
    ck_assert_int_eq(symlink("elsewhere", path_in(to, "l")), 0);
    const int old = open(path_in(to, "d/f"), O_RDWR | O_CREAT, 0600);
    ck_assert_int_eq(write(old, "old", 3), 3);
    ck_assert_int_eq(close(open(path_in(to, "d/mine"), O_RDWR | O_CREAT, 0600)), 0);
    ck_pull(&root, &counts);
    ck_assert_int_eq(access(path_in(to, "d/mine"), F_OK), 0);
    ck_assert_int_eq(unlink(path_in(to, "d/mine")), 0);
    ck_same_trees();
    /* Who had the old file open still reads the old one. */
    char bytes[8];
    ck_assert_int_eq(pread(old, bytes, sizeof(bytes), 0), 3);
    close(old);
    close_client();
}
END_TEST

/* ---- what may not happen */

/* A Directory message of one file, at the server. */
static void put_directory(const char *name, const struct digest *file, struct digest *digest)
{
    REAPI(Directory) message = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIRECTORY__INIT;
    REAPI(FileNode) node = BUILD__BAZEL__REMOTE__EXECUTION__V2__FILE_NODE__INIT;
    REAPI(FileNode) * list[] = {&node};
    REAPI(Digest) file_digest = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIGEST__INIT;
    char hex[DIGEST_HASH_HEX_MAX + 1], name_copy[100];
    digest_hex(file, hex);
    file_digest.hash = hex;
    file_digest.size_bytes = file->size_bytes;
    snprintf(name_copy, sizeof(name_copy), "%s", name);
    node.name = name_copy;
    node.digest = &file_digest;
    message.n_files = 1;
    message.files = list;
    uint8_t packed[512];
    const size_t length = build__bazel__remote__execution__v2__directory__pack(&message, packed);
    fake_cas_put(&cas, bytes_of(packed, length), digest);
}

START_TEST(a_path_that_climbs_out_is_refused_and_nothing_is_written)
{
    static const char *const names[] = {"../escaped", "..", "/tmp/escaped", "a/../../escaped", "."};
    open_client();
    struct digest file, root;
    struct pull_counts counts;
    struct status status = {0};
    fake_cas_put(&cas, bytes_of("evil", 4), &file);
    const size_t before = count_entries(directory.path);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        put_directory(names[i], &file, &root);
        ck_assert(!pull(&root, &counts, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_uint_eq(problem_count, 1);
        ck_assert_uint_eq(count_entries(to), 0);
        ck_assert_uint_eq(count_entries(directory.path), before + 1); /* that is `to` */
    }
    /* Unescaped names are looked at again: these are fine until then. */
    static const char *const escaped[] = {"\\x2e\\x2e", "a\\x2fb", "\\x2e", "..\\x2fescaped",
                                          "\\x2e\\x2e\\x2fescaped"};
    struct pull_options options = pull_options_default();
    options.unescape_names = true;
    const struct pull_observer observer = {.problem = note_problem, .progress = no_pull_progress};
    for (size_t i = 0; i < ARRAY_LENGTH(escaped); i++) {
        put_directory(escaped[i], &file, &root);
        ck_assert(!pull_directory(client, &capabilities, &root, to, &options, &observer, &counts,
                                  &status));
        ck_assert_uint_eq(count_entries(to), 0);
        ck_assert_uint_eq(count_entries(directory.path), before + 1);
    }
    close_client();
}
END_TEST

/* Somebody has put a link where the tree has a directory: it is no way out. */
START_TEST(a_link_in_the_place_of_a_directory_is_not_followed)
{
    make_directory("d");
    make_file("d/f", 0644, 10);
    make_file("g", 0644, 10);
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    ck_assert_int_eq(mkdir(to, 0755), 0);
    ck_assert_int_eq(mkdir(path_in(directory.path, "outside"), 0755), 0);
    ck_assert_int_eq(symlink("../outside", path_in(to, "d")), 0);
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_uint_eq(problem_count, 1);
    ck_assert_ptr_nonnull(strstr(problems, "d: Not a directory"));
    ck_assert_uint_eq(count_entries(path_in(directory.path, "outside")), 0);
    ck_assert_int_eq(access(path_in(to, "g"), F_OK), 0);
    ck_assert_uint_eq(counts.files, 1);
    close_client();
}
END_TEST

START_TEST(a_directory_in_the_place_of_a_file_is_an_error_that_names_it)
{
    make_file("f", 0644, 10);
    make_file("g", 0644, 10);
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    ck_assert_int_eq(mkdir(to, 0755), 0);
    ck_assert_int_eq(mkdir(path_in(to, "f"), 0755), 0);
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_uint_eq(problem_count, 1);
    ck_assert_int_eq(strncmp(problems, "f: ", 3), 0);
    ck_assert_int_ne(status.code, STATUS_NOT_FOUND);
    ck_assert_int_eq(access(path_in(to, "g"), F_OK), 0);
    close_client();
}
END_TEST

START_TEST(wrong_bytes_never_get_a_name)
{
    make_file("small", 0644, 1000);
    make_file("large", 0644, 3000000);
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    cas.faults[0] = (struct fake_fault){
        .method = "BatchReadBlobs", .kind = FAKE_FAULT_WRONG_BYTES, .skip = 1, .times = 100};
    cas.faults[1] =
        (struct fake_fault){.method = "Read", .kind = FAKE_FAULT_WRONG_BYTES, .times = 100};
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
    ck_assert_uint_eq(problem_count, 2);
    ck_assert_uint_eq(count_entries(to), 0);
    close_client();
}
END_TEST

START_TEST(a_stream_that_is_cut_goes_on_and_the_file_is_whole)
{
    make_file("large", 0644, 3000000);
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    cas.faults[0] = (struct fake_fault){.method = "Read",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .after_bytes = 700000,
                                        .times = 3};
    ck_pull(&root, &counts);
    ck_same_trees();
    ck_assert_uint_eq(fake_cas_calls(&cas, "Read"), 4);
    close_client();
}
END_TEST

/* Any status but OK was once taken for "missing", and a short overload failed the build. */
START_TEST(missing_is_not_unavailable_and_an_overload_passes)
{
    static const char *const names[] = {"1", "2", "3", "4"};
    char hex[4][DIGEST_HASH_HEX_MAX + 1];
    open_client();
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        make_file(names[i], 0644, 100 + i);
    struct digest root, digests[4];
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        uint8_t data[200];
        const int fd = open(path_in(from, names[i]), O_RDONLY);
        ck_assert_int_eq(read(fd, data, sizeof(data)), (ssize_t)(100 + i));
        close(fd);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, 100 + i), &digests[i]);
        digest_hex(&digests[i], hex[i]);
    }
    const struct fake_fault each = {.method = "BatchReadBlobs", .kind = FAKE_FAULT_ONE_ENTRY};
    cas.faults[0] = cas.faults[1] = cas.faults[2] = each;
    cas.faults[0].digest_hex = hex[1];
    cas.faults[0].code = STATUS_NOT_FOUND;
    cas.faults[0].times = 1;
    cas.faults[1].digest_hex = hex[2];
    cas.faults[1].code = STATUS_RESOURCE_EXHAUSTED;
    cas.faults[1].times = 2;
    cas.faults[2].digest_hex = hex[3];
    cas.faults[2].code = STATUS_UNAVAILABLE;
    cas.faults[2].times = 1000;
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_int_eq(access(path_in(to, "1"), F_OK), 0);
    ck_assert_int_ne(access(path_in(to, "2"), F_OK), 0);
    ck_assert_int_eq(access(path_in(to, "3"), F_OK), 0);
    ck_assert_int_ne(access(path_in(to, "4"), F_OK), 0);
    ck_assert_uint_eq(counts.missing, 1);
    ck_assert_uint_eq(counts.failed, 1);
    ck_assert_uint_eq(problem_count, 2);
    ck_assert_int_eq(problem_codes[0], STATUS_NOT_FOUND);
    ck_assert_int_eq(strncmp(problems, "2 (", 3), 0);
    ck_assert_int_eq(problem_codes[1], STATUS_UNAVAILABLE);
    ck_assert_uint_eq(cas.faults[2].times, 1000 - 5); /* that many tries, and no stream */
    ck_assert_uint_eq(fake_cas_calls(&cas, "Read"), 0);
    ck_assert_uint_eq(count_entries(to), 2);

    /* When all that lacks is missing, the whole is NOT_FOUND. */
    cas.faults[0].times = 1;
    cas.faults[2].times = 0;
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    close_client();
}
END_TEST

START_TEST(a_directory_that_is_missing_is_named_and_the_rest_comes)
{
    make_directory("d");
    make_file("d/f", 0644, 10);
    make_file("g", 0644, 10);
    open_client();
    struct digest root, file, missing;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    fake_cas_put(&cas, bytes_of("x", 1), &file);
    put_directory("f", &file, &missing);
    /* The Directory of d, as a walk makes it. */
    const struct pull_observer observer = {.problem = note_problem, .progress = no_pull_progress};
    char inner[400];
    snprintf(inner, sizeof(inner), "%s/d", from);
    struct digest d;
    const struct push_observer pushed = {.problem = note_problem, .progress = no_push_progress};
    struct push_counts push_counts;
    ck_assert(
        push_directory(client, &capabilities, inner, NULL, &pushed, &d, &push_counts, &status));
    static char hex[DIGEST_HASH_HEX_MAX + 1];
    cas.faults[0] = (struct fake_fault){.method = "BatchReadBlobs",
                                        .kind = FAKE_FAULT_ONE_ENTRY,
                                        .code = STATUS_NOT_FOUND,
                                        .digest_hex = digest_hex(&d, hex),
                                        .times = 1};
    ck_assert(!pull_directory(client, &capabilities, &root, to, NULL, &observer, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert_int_eq(strncmp(problems, "d (", 3), 0);
    ck_assert_int_eq(access(path_in(to, "g"), F_OK), 0);
    close_client();
}
END_TEST

START_TEST(a_server_that_is_gone_ends_the_pull_with_one_error)
{
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        make_file(name, 0644, i % 2 == 0 ? 1000 : 200000);
    }
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    const char *const methods[] = {"BatchReadBlobs", "Read"};
    cas.faults[0] = (struct fake_fault){.method = methods[_i],
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .skip = _i == 0 ? 1 : 0,
                                        .times = 100000};
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, methods[_i]));
    ck_assert_uint_eq(problem_count, 0);
    close_client();
}
END_TEST

START_TEST(a_server_without_batches_is_read_by_streams)
{
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        make_file(name, 0644, 1000);
    }
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    cas.faults[0] = (struct fake_fault){.method = "BatchReadBlobs",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNIMPLEMENTED,
                                        .times = 100000};
    ck_pull(&root, &counts);
    ck_same_trees();
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchReadBlobs"), 1);
    close_client();
}
END_TEST

/*
 * Killed in the middle: no name is there without all its bytes, and the next pull removes what the
 * killed one had in the making.
 */
START_TEST(a_pull_that_was_killed_leaves_no_half_file_and_the_next_one_cleans_up)
{
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        make_file(name, 0644, 2000000);
    }
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    char target[300];
    snprintf(target, sizeof(target), "%s", fake_cas_target(&cas));

    /* A writer of its own, in a process that dies with a file half written. */
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct tree_writer *writer;
        struct tree_place *place;
        struct tree_file file = {0};
        struct status status = {0};
        const bool ok = tree_writer_open(to, &writer, &place, &status) &&
                        tree_writer_begin(writer, TREE_FILE_PLAIN, &file, &status) &&
                        tree_file_write(&file, bytes_of("half", 4), &status);
        if (write(ready[1], ok ? "y" : "n", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char said;
    ck_assert_int_eq(read(ready[0], &said, 1), 1);
    ck_assert_int_eq(said, 'y');
    ck_assert_uint_eq(count_entries(to), 1); /* what it has in the making, hidden */
    /* While it lives it is left alone. */
    ck_pull(&root, &counts);
    ck_assert_uint_eq(count_entries(to), 7);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ck_pull(&root, &counts);
    ck_assert_uint_eq(count_entries(to), 6);
    ck_same_trees();
    close(ready[0]);
    close(ready[1]);
    close_client();
}
END_TEST

/* Thousands of files were once opened before they were needed. */
START_TEST(a_wide_and_deep_tree_is_pulled_with_few_descriptors)
{
    char name[700] = "";
    for (int depth = 0; depth < 100; depth++) {
        strcat(name, depth == 0 ? "deep" : "/d");
        make_directory(name);
        char file[720];
        snprintf(file, sizeof(file), "%s/f", name);
        make_file(file, 0644, 20);
        snprintf(file, sizeof(file), "%s/z", name);
        make_file(file, 0644, 21);
    }
    for (int i = 0; i < 2000; i++) {
        char file[32];
        if (i % 40 == 0) {
            snprintf(file, sizeof(file), "dir%d", i / 40);
            make_directory(file);
        }
        snprintf(file, sizeof(file), "dir%d/%d", i / 40, i);
        make_file(file, 0644, i % 100 == 0 ? 140000 : 30);
    }
    cas.answer_pause_ms = 2;
    open_client();
    struct digest root;
    struct pull_counts counts;
    push_with(0, &root);
    /* Above what the fake server in this process has open as well. */
    const int probe = dup(0);
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {.rlim_cur = (rlim_t)probe + 40, .rlim_max = before.rlim_max};
    close(probe);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_pull(&root, &counts);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_same_trees();
    close_client();
}
END_TEST

START_TEST(a_root_that_cannot_be_made_is_an_error_that_names_it)
{
    open_client();
    struct digest root;
    struct pull_counts counts;
    struct status status = {0};
    push_with(0, &root);
    snprintf(to, sizeof(to), "%s/no/such/parent", directory.path);
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "/no/such/parent"));
    snprintf(to, sizeof(to), "%s/from/file", directory.path);
    make_file("file", 0644, 1);
    ck_assert(!pull(&root, &counts, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "/from/file: Not a directory"));
    close_client();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pull");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, an_awkward_tree_comes_back_as_it_was);
    tcase_add_test(all, a_tree_without_entries_is_a_directory_without_entries);
    tcase_add_test(all, names_that_are_not_utf8_come_back_with_escapes);
    tcase_add_test(all, modes_are_those_of_the_umask);
    tcase_add_test(all, what_is_there_already_is_replaced_or_stays);
    tcase_add_test(all, a_path_that_climbs_out_is_refused_and_nothing_is_written);
    tcase_add_test(all, a_link_in_the_place_of_a_directory_is_not_followed);
    tcase_add_test(all, a_directory_in_the_place_of_a_file_is_an_error_that_names_it);
    tcase_add_test(all, wrong_bytes_never_get_a_name);
    tcase_add_test(all, a_stream_that_is_cut_goes_on_and_the_file_is_whole);
    tcase_add_test(all, missing_is_not_unavailable_and_an_overload_passes);
    tcase_add_test(all, a_directory_that_is_missing_is_named_and_the_rest_comes);
    tcase_add_loop_test(all, a_server_that_is_gone_ends_the_pull_with_one_error, 0, 2);
    tcase_add_test(all, a_server_without_batches_is_read_by_streams);
    tcase_add_test(all, a_pull_that_was_killed_leaves_no_half_file_and_the_next_one_cleans_up);
    tcase_add_test(all, a_wide_and_deep_tree_is_pulled_with_few_descriptors);
    tcase_add_test(all, a_root_that_cannot_be_made_is_an_error_that_names_it);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
