/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree has one digest: known ones, whatever the order of creation and the locale;
 * messages are those that protobuf-c makes of the same nodes. What cannot be stored is named and
 * nothing hangs; depth and width are bounded by neither stack nor descriptors. And push: everything
 * is at the server afterwards, each blob once, in few calls, through entries, batches and streams
 * that fail (against tests/support/fake_cas.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/cas.h"
#include "client/push.h"
#include "client/tree.h"
#include "tests/support/fake_cas.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

static struct temp_dir directory;
static struct fake_cas cas;
static struct client *client;
static char problems[8192];
static unsigned problem_count;

static void setup(void)
{
    temp_dir_make(&directory);
}

static void teardown(void)
{
    temp_dir_remove(&directory);
}

static const char *in_tree(const char *name)
{
    static char path[8192];
    snprintf(path, sizeof(path), "%s/%s", directory.path, name);
    return path;
}

static void make_file(const char *name, mode_t mode, struct bytes content)
{
    const int fd = open(in_tree(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
    ck_assert_int_eq(write(fd, content.data, content.length), (ssize_t)content.length);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void make_abc(const char *name)
{
    make_file(name, 0644, bytes_of("abc", 3));
}

static void make_directory(const char *name)
{
    ck_assert_int_eq(mkdir(in_tree(name), 0755), 0);
}

static bool drop_content(void *argument,
                         const struct digest *digest,
                         const char *path,
                         uint8_t *content,
                         struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)status;
    free(content);
    return true;
}

static bool drop_file(void *argument,
                      const struct digest *digest,
                      const char *path,
                      const struct stat *stat,
                      struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)stat;
    (void)status;
    return true;
}

static void note_problem(void *argument, const struct status *problem)
{
    (void)argument;
    ck_assert_int_ne(problem->code, STATUS_OK);
    problem_count++;
    const size_t length = strlen(problems);
    snprintf(problems + length, sizeof(problems) - length, "%s\n", problem->message);
}

static void no_progress(void *argument, const struct push_counts *counts)
{
    (void)argument;
    (void)counts;
}

static const struct tree_visitor dropper = {.directory = drop_content,
                                            .content = drop_content,
                                            .file = drop_file,
                                            .problem = note_problem};
static const struct push_observer observer = {.problem = note_problem, .progress = no_progress};

static void ck_root(const char *expected)
{
    struct digest root;
    struct tree_totals totals;
    struct status status = {0};
    char text[DIGEST_TEXT_BYTES_MAX];
    ck_assert_msg(tree_walk(directory.path, 0, &dropper, &root, &totals, &status), "%s\n%s",
                  status.message, problems);
    ck_assert_str_eq(digest_text(&root, text), expected);
}

static void ck_problem(const char *part)
{
    struct digest root;
    struct tree_totals totals;
    struct status status = {0};
    problems[0] = '\0';
    problem_count = 0;
    ck_assert(!tree_walk(directory.path, 0, &dropper, &root, &totals, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert_msg(strstr(problems, part) != NULL, "%s is not in: %s", part, problems);
}

/* ---- known digests */

static const char *const four_names[] = {"B", "Z", "a", "\xc3\xa9"};

START_TEST(four_files_have_one_digest_in_any_order_and_locale)
{
    static const char *const locales[] = {"C", "C.UTF-8", "en_US.UTF-8", "tr_TR.UTF-8"};
    static const size_t orders[4][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    setlocale(LC_ALL,
              locales[_i]); /* those that are not installed leave C, which is tried anyway */
    for (size_t i = 0; i < 4; i++)
        make_abc(four_names[orders[_i][i]]);
    ck_root("de390c75cd95d8121bf44905927f817128936bfdcabe263ff403f2215a07a6e2/301");
}
END_TEST

START_TEST(a_file_and_a_directory_sort_in_lists_of_their_own)
{
    make_abc("a.b");
    make_directory("a");
    make_abc("a/x");
    ck_root("477a29db0ca7ab66c0c991c93d791458388900b0ae2e5c4af0a0135ddd8d8049/152");
}
END_TEST

START_TEST(an_empty_directory_is_kept)
{
    make_directory("d");
    ck_root("f1ed8604d447226847193a5c1573b32482f889243ffee1c724576aac3b68c344/73");
}
END_TEST

START_TEST(a_tree_without_entries_is_the_empty_blob)
{
    ck_root("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0");
}
END_TEST

START_TEST(a_link_is_kept_and_not_followed)
{
    make_abc("a");
    ck_assert_int_eq(symlink("a", in_tree("b")), 0);
    ck_root("699eaddd3303c9f1b1f534a7f687fcd741450fcb9c2fd35558f017299091eab1/83");
}
END_TEST

START_TEST(a_dangling_link_is_no_error)
{
    ck_assert_int_eq(symlink("nope", in_tree("x")), 0);
    ck_root("fab70cb3cb187302b4138c9c591ccecb7f97a67aeca83c51a4f707c0e521ce67/11");
}
END_TEST

START_TEST(a_composed_name_is_stored_as_it_is)
{
    make_abc("\xc3\xa9");
    ck_root("3272f67d30be415af86674d36285c068ba6f586496e5adf7c8ba5433d96f8dc2/76");
}
END_TEST

START_TEST(a_decomposed_name_is_stored_as_it_is)
{
    make_abc("e\xcc\x81");
    ck_root("12431a3196318bfe6ee39a7d849fef77e7a2405453775b24e99d29d961a31447/77");
}
END_TEST

START_TEST(the_owners_execute_bit_alone_decides)
{
    static const struct {
        mode_t mode;
        const char *root;
    } cases[] = {
        {0644, "4cc1bd6a1adf7cd71ea2d0c92f08fc093fb4dd74b64eadde282acfdc0fe95c62/75"},
        {0611, "4cc1bd6a1adf7cd71ea2d0c92f08fc093fb4dd74b64eadde282acfdc0fe95c62/75"},
        {0654, "4cc1bd6a1adf7cd71ea2d0c92f08fc093fb4dd74b64eadde282acfdc0fe95c62/75"},
        {0744, "be63156408ea072841fd017c09ebb47382f554a7453ebf30469870a2250d4f42/77"},
        {0755, "be63156408ea072841fd017c09ebb47382f554a7453ebf30469870a2250d4f42/77"},
        {0500, "be63156408ea072841fd017c09ebb47382f554a7453ebf30469870a2250d4f42/77"},
    };
    make_abc("a");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        ck_assert_int_eq(chmod(in_tree("a"), cases[i].mode), 0);
        ck_root(cases[i].root);
    }
}
END_TEST

/* ---- what cannot be stored */

START_TEST(a_name_that_is_not_utf8_is_named_escaped)
{
    make_abc("good");
    make_abc("\xff");
    ck_problem("\\xff: the name is not UTF-8");
    ck_assert_uint_eq(problem_count, 1);
}
END_TEST

START_TEST(a_link_target_that_is_not_utf8_is_an_error)
{
    ck_assert_int_eq(symlink("\xfe", in_tree("link")), 0);
    ck_problem("link: the target");
}
END_TEST

START_TEST(every_special_file_is_named_and_nothing_hangs)
{
    make_abc("a");
    make_directory("sub");
    ck_assert_int_eq(mkfifo(in_tree("sub/fifo"), 0644), 0);
    ck_assert_int_eq(mknod(in_tree("socket"), S_IFSOCK | 0644, 0), 0);
    const bool device = mknod(in_tree("device"), S_IFCHR | 0600, makedev(1, 3)) == 0;
    ck_problem("sub/fifo: a FIFO cannot be stored");
    ck_assert_ptr_nonnull(strstr(problems, "socket: a socket cannot be stored"));
    ck_assert(!device || strstr(problems, "device: a device cannot be stored") != NULL);
    ck_assert_uint_eq(problem_count, device ? 3 : 2);
}
END_TEST

START_TEST(what_cannot_be_read_is_named_each)
{
    /* Root reads everything: become somebody else, who owns the tree. */
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(directory.path, 65534, 65534), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    make_abc("closed");
    make_directory("none");
    make_directory("listable");
    make_abc("open");
    ck_assert_int_eq(chmod(in_tree("closed"), 0), 0);
    ck_assert_int_eq(chmod(in_tree("none"), 0), 0);
    ck_assert_int_eq(chmod(in_tree("listable"), 0444), 0);
    ck_problem("closed: Permission denied");
    ck_assert_ptr_nonnull(strstr(problems, "none: Permission denied"));
    ck_assert_ptr_nonnull(strstr(problems, "listable: Permission denied"));
    ck_assert_uint_eq(problem_count, 3);
    chmod(in_tree("none"), 0755);
    chmod(in_tree("listable"), 0755);
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(a_root_that_is_no_directory_is_an_error_that_names_it)
{
    make_abc("file");
    struct digest root;
    struct tree_totals totals;
    struct status status = {0};
    ck_assert(!tree_walk(in_tree("file"), 0, &dropper, &root, &totals, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "/file: Not a directory"));
    ck_assert(!tree_walk(in_tree("absent"), 0, &dropper, &root, &totals, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
}
END_TEST

/* ---- against protobuf-c, and far down */

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

static uint8_t *last_content;
static struct digest last_digest;

static bool keep_content(void *argument,
                         const struct digest *digest,
                         const char *path,
                         uint8_t *content,
                         struct status *status)
{
    (void)path;
    (void)argument;
    (void)status;
    free(last_content);
    last_content = content;
    last_digest = *digest;
    return true;
}

START_TEST(a_directory_message_is_what_protobuf_c_makes_of_the_same_nodes)
{
    make_file("run", 0755, bytes_of("#!", 2));
    make_file("empty", 0644, bytes_of("", 0));
    make_file("another", 0644, bytes_of("x", 1));
    make_directory("d1");
    make_directory("d2");
    make_abc("d2/f");
    ck_assert_int_eq(symlink("/absolute/../target", in_tree("l1")), 0);
    ck_assert_int_eq(symlink("d1", in_tree("l0")), 0);
    const struct tree_visitor keeper = {.directory = keep_content,
                                        .content = keep_content,
                                        .file = drop_file,
                                        .problem = note_problem};
    struct digest root;
    struct tree_totals totals;
    struct status status = {0};
    ck_assert(tree_walk(directory.path, 0, &keeper, &root, &totals, &status));
    ck_assert(digest_equal(&root, &last_digest)); /* the root comes last */
    ck_assert_uint_eq(totals.files, 4);
    ck_assert_uint_eq(totals.directories, 3);
    ck_assert_uint_eq(totals.symlinks, 2);

    REAPI(Directory) *message = build__bazel__remote__execution__v2__directory__unpack(
        NULL, (size_t)last_digest.size_bytes, last_content);
    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->n_files, 3);
    ck_assert_str_eq(message->files[0]->name, "another");
    ck_assert_str_eq(message->files[1]->name, "empty");
    ck_assert_int_eq(message->files[1]->digest->size_bytes, 0);
    ck_assert_str_eq(message->files[2]->name, "run");
    ck_assert(message->files[2]->is_executable && !message->files[0]->is_executable);
    ck_assert_uint_eq(message->n_directories, 2);
    ck_assert_str_eq(message->directories[0]->name, "d1");
    ck_assert_uint_eq(message->n_symlinks, 2);
    ck_assert_str_eq(message->symlinks[0]->target, "d1");
    ck_assert_str_eq(message->symlinks[1]->target, "/absolute/../target");
    const size_t length = build__bazel__remote__execution__v2__directory__get_packed_size(message);
    ck_assert_uint_eq(length, (size_t)last_digest.size_bytes);
    uint8_t *packed = malloc(length + 1);
    build__bazel__remote__execution__v2__directory__pack(message, packed);
    ck_assert_mem_eq(packed, last_content, length);
    free(packed);
    build__bazel__remote__execution__v2__directory__free_unpacked(message, NULL);
    free(last_content);
    last_content = NULL;
}
END_TEST

/* Makes DEPTH directories one in the other, each with a file before and after the way down. */
static void make_deep(size_t depth)
{
    int fd = open(directory.path, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < depth; i++) {
        for (const char *const *name = (const char *const[]){"a", "z", NULL}; *name != NULL;
             name++) {
            const int file = openat(fd, *name, O_WRONLY | O_CREAT, 0644);
            ck_assert_int_ge(file, 0);
            ck_assert_int_eq(dprintf(file, "%s%zu", *name, i), i < 10     ? 2
                                                               : i < 100  ? 3
                                                               : i < 1000 ? 4
                                                                          : 5);
            close(file);
        }
        ck_assert_int_eq(mkdirat(fd, "deeper", 0755), 0);
        const int next = openat(fd, "deeper", O_RDONLY | O_DIRECTORY);
        ck_assert_int_ge(next, 0);
        close(fd);
        fd = next;
    }
    close(fd);
}

static void remove_deep(size_t depth)
{
    /* nftw() would need the whole path: from the bottom up instead. */
    int fd = open(directory.path, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < depth; i++) {
        const int next = openat(fd, "deeper", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    for (size_t i = 0; i < depth; i++) {
        const int above = openat(fd, "..", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = above;
        ck_assert_int_eq(unlinkat(fd, "deeper", AT_REMOVEDIR), 0);
        unlinkat(fd, "a", 0);
        unlinkat(fd, "z", 0);
    }
    close(fd);
}

START_TEST(a_tree_deeper_than_any_path_takes_few_descriptors)
{
    enum { DEPTH = 1200 };
    make_deep(DEPTH);
    const struct rlimit few = {.rlim_cur = 32, .rlim_max = 32};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct digest root, again;
    struct tree_totals totals;
    struct status status = {0};
    ck_assert_msg(tree_walk(directory.path, 0, &dropper, &root, &totals, &status), "%s\n%s",
                  status.message, problems);
    ck_assert_uint_eq(totals.directories, DEPTH + 1);
    ck_assert_uint_eq(totals.files, 2 * DEPTH);
    ck_assert(tree_walk(directory.path, 0, &dropper, &again, &totals, &status));
    ck_assert(digest_equal(&root, &again));
    remove_deep(DEPTH);
}
END_TEST

/* ---- push */

static void open_client(void)
{
    client_prepare_process();
    fake_cas_start(&cas);
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = NS_PER_MS;
    options.retry.pause_max_ns = 4 * NS_PER_MS;
    options.call_timeout_ns = 20 * NS_PER_S;
    struct status status = {0};
    ck_assert(client_connect(fake_cas_target(&cas), &options, &client, &status));
}

static void close_client(void)
{
    client_close(client);
    fake_cas_stop(&cas);
}

static bool push(struct digest *root, struct push_counts *counts, struct status *status)
{
    struct capabilities capabilities;
    ck_assert_msg(capabilities_get(client, &capabilities, status), "%s", status->message);
    return push_directory(client, &capabilities, directory.path, NULL, &observer, root, counts,
                          status);
}

/* Walks the tree again and asks for all of it. */
static bool keep_digest(void *argument,
                        const struct digest *digest,
                        const char *path,
                        uint8_t *content,
                        struct status *status)
{
    (void)path;
    (void)status;
    free(content);
    unsigned *absent = argument;
    *absent += !digest_is_empty_blob(digest) && !fake_cas_has(&cas, digest);
    return true;
}

static bool keep_file_digest(void *argument,
                             const struct digest *digest,
                             const char *path,
                             const struct stat *stat,
                             struct status *status)
{
    (void)stat;
    return keep_digest(argument, digest, path, NULL, status);
}

static unsigned count_absent(void)
{
    unsigned absent = 0;
    const struct tree_visitor counter = {.directory = keep_digest,
                                         .content = keep_digest,
                                         .file = keep_file_digest,
                                         .problem = note_problem,
                                         .argument = &absent};
    struct digest root;
    struct tree_totals totals;
    struct status status = {0};
    ck_assert(tree_walk(directory.path, 0, &counter, &root, &totals, &status));
    return absent;
}

/* `count` files of about `size` bytes that differ, in directories of 100. */
static void make_many(size_t count, size_t size)
{
    uint8_t *data = malloc(size + 32);
    ck_assert_ptr_nonnull(data);
    memset(data, 'x', size + 32);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        if (i % 100 == 0) {
            snprintf(name, sizeof(name), "dir%zu", i / 100);
            make_directory(name);
        }
        snprintf(name, sizeof(name), "dir%zu/file%zu", i / 100, i);
        const int length = snprintf((char *)data, 32, "%zu", i);
        data[length] = 'x';
        make_file(name, 0644, bytes_of(data, size + i % 7));
    }
    free(data);
}

static void make_large(const char *name, size_t size, uint8_t seed)
{
    uint8_t *data = malloc(size);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i / 1000 * 7 + seed);
    make_file(name, 0644, bytes_of(data, size));
    free(data);
}

START_TEST(a_pushed_tree_is_there_in_few_calls_and_the_second_time_in_one)
{
    make_many(1500, 2000);
    make_large("large", 3000000, 1);
    make_large("middle", (128 << 10) + 1, 2);
    make_file("dir0/copy of large", 0755, bytes_of("", 0));
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert_msg(push(&root, &counts, &status), "%s\n%s", status.message, problems);
    ck_assert_uint_eq(count_absent(), 0);
    ck_assert(fake_cas_has(&cas, &root));
    ck_assert_uint_eq(cas.duplicates, 0);
    ck_assert_uint_eq(counts.blobs.blobs, counts.blobs.uploaded);
    ck_assert_uint_eq(counts.blobs.uploaded, fake_cas_blob_count(&cas));
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 1);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 2);
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), 2); /* 3.4 MB with overhead */
    ck_assert_uint_le(cas.largest_message_bytes, 3 << 20);

    ck_assert(push(&root, &counts, &status));
    ck_assert_uint_eq(counts.blobs.uploaded, 0);
    ck_assert_uint_eq(counts.blobs.present, counts.blobs.blobs);
    ck_assert_uint_eq(fake_cas_calls(&cas, "FindMissingBlobs"), 2);
    ck_assert_uint_eq(fake_cas_calls(&cas, "BatchUpdateBlobs"), 2);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 2);
    close_client();
}
END_TEST

START_TEST(equal_files_go_once)
{
    for (char name[] = "a"; name[0] <= 'z'; name[0]++)
        make_abc(name);
    make_large("one", 200000, 5);
    make_large("two", 200000, 5);
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert(push(&root, &counts, &status));
    ck_assert_uint_eq(counts.blobs.blobs, 3);
    ck_assert_uint_eq(counts.tree.files, 28);
    ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 1);
    ck_assert_uint_eq(cas.duplicates, 0);
    close_client();
}
END_TEST

/* Retryable or unsaid: streamed. Final: reported, and everything else is there. */
START_TEST(a_bad_entry_of_a_batch_disturbs_no_other)
{
    static const struct {
        enum fake_fault_kind kind;
        enum status_code code;
        bool final;
    } cases[] = {
        {FAKE_FAULT_ENTRY, STATUS_RESOURCE_EXHAUSTED, false},
        {FAKE_FAULT_ENTRY, STATUS_UNAVAILABLE, false},
        {FAKE_FAULT_ENTRY, STATUS_INTERNAL, false},
        {FAKE_FAULT_NO_ENTRY, STATUS_OK, false},
        {FAKE_FAULT_ENTRY, STATUS_ALREADY_EXISTS, true},
        {FAKE_FAULT_ENTRY, STATUS_INVALID_ARGUMENT, true},
        {FAKE_FAULT_ENTRY, STATUS_PERMISSION_DENIED, true},
    };
    make_abc("bad");
    make_many(50, 100);
    struct digest bad;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of("abc", 3), &bad);
    cas.faults[0] = (struct fake_fault){.method = "BatchUpdateBlobs",
                                        .kind = cases[_i].kind,
                                        .code = cases[_i].code,
                                        .digest_hex = digest_hex(&bad, hex),
                                        .times = 1};
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    const bool ok = push(&root, &counts, &status);
    if (cases[_i].code == STATUS_ALREADY_EXISTS) {
        ck_assert(ok);
        ck_assert_uint_eq(count_absent(), 1); /* the server said it is there: believed */
    } else if (cases[_i].final) {
        ck_assert(!ok);
        ck_assert_int_eq(status.code, cases[_i].code);
        ck_assert_uint_eq(counts.blobs.failed, 1);
        ck_assert_uint_eq(problem_count, 1);
        ck_assert_ptr_nonnull(strstr(problems, hex));
        ck_assert_uint_eq(count_absent(), 1);
        ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 0);
    } else {
        ck_assert_msg(ok, "%s", status.message);
        ck_assert_uint_eq(count_absent(), 0);
        ck_assert_uint_eq(fake_cas_calls(&cas, "Write"), 1);
    }
    close_client();
}
END_TEST

START_TEST(batches_that_fail_whole_are_streamed)
{
    static const enum status_code codes[] = {STATUS_UNIMPLEMENTED, STATUS_INVALID_ARGUMENT,
                                             STATUS_RESOURCE_EXHAUSTED, STATUS_UNAVAILABLE};
    make_many(60, 100);
    cas.faults[0] = (struct fake_fault){
        .method = "BatchUpdateBlobs", .kind = FAKE_FAULT_STATUS, .code = codes[_i], .times = 1000};
    cas.answer_pause_ms = 5;
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert_msg(push(&root, &counts, &status), "%s", status.message);
    ck_assert_uint_eq(count_absent(), 0);
    ck_assert_uint_eq(counts.blobs.streams, counts.blobs.blobs);
    ck_assert_uint_le(fake_cas_live_max(&cas, "Write"), UPLOADER_STREAMS_IN_FLIGHT_MAX);
    ck_assert_uint_gt(fake_cas_live_max(&cas, "Write"), 2);
    close_client();
}
END_TEST

START_TEST(a_small_announced_batch_is_honoured)
{
    make_many(200, 300);
    static const int64_t announced[] = {1, 256, 600, 5000, 100000};
    cas.batch_total_bytes_max = announced[_i];
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert_msg(push(&root, &counts, &status), "%s\n%s", status.message, problems);
    ck_assert_uint_eq(count_absent(), 0);
    ck_assert_uint_eq(problem_count, 0);
    ck_assert_int_eq(counts.blobs.batches > 0, announced[_i] > 256 + 300);
    ck_assert_uint_le(fake_cas_live_max(&cas, "BatchUpdateBlobs"), UPLOADER_BATCHES_IN_FLIGHT_MAX);
    close_client();
}
END_TEST

START_TEST(a_stream_that_is_cut_is_resumed_and_failures_name_the_path)
{
    make_directory("sub");
    make_large("sub/good", 3 << 20, 1);
    make_large("sub/refused", 2 << 20, 2);
    open_client();
    cas.faults[0] = (struct fake_fault){.method = "Write",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .after_bytes = 1 << 20,
                                        .times = 3};
    cas.faults[1] = (struct fake_fault){.method = "Write",
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .skip = 3,
                                        .times = 1};
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert_msg(push(&root, &counts, &status), "%s", status.message);
    ck_assert_uint_eq(count_absent(), 0);

    make_large("sub/refused", 2 << 20, 9);
    cas.faults[2] = (struct fake_fault){
        .method = "Write", .kind = FAKE_FAULT_STATUS, .code = STATUS_INVALID_ARGUMENT, .times = 1};
    ck_assert(!push(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(problems, "sub/refused ("));
    ck_assert_uint_eq(problem_count, 1);
    close_client();
}
END_TEST

START_TEST(a_server_that_is_gone_ends_the_push_with_one_error)
{
    make_many(300, 1000);
    make_large("large", 5 << 20, 3);
    static const char *const methods[] = {"FindMissingBlobs", "Write"};
    cas.faults[0] = (struct fake_fault){.method = methods[_i],
                                        .kind = FAKE_FAULT_STATUS,
                                        .code = STATUS_UNAVAILABLE,
                                        .times = 100000};
    cas.no_query = true;
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert(!push(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, methods[_i]));
    ck_assert_uint_eq(problem_count, 0);
    close_client();
}
END_TEST

START_TEST(a_tree_with_a_problem_gives_no_root)
{
    make_many(20, 100);
    ck_assert_int_eq(mkfifo(in_tree("dir0/fifo"), 0644), 0);
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert(!push(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert_uint_eq(problem_count, 1);
    ck_assert_ptr_nonnull(strstr(problems, "dir0/fifo: a FIFO"));
    close_client();
}
END_TEST

START_TEST(a_blob_above_what_the_server_takes_is_named)
{
    make_abc("small");
    make_large("large", 1 << 20, 1);
    cas.blob_bytes_max = 1000;
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    ck_assert(!push(&root, &counts, &status));
    ck_assert_int_eq(status.code, STATUS_OUT_OF_RANGE);
    ck_assert_ptr_nonnull(strstr(problems, "large: 1048576 bytes"));
    ck_assert_uint_eq(counts.blobs.failed, 1);
    ck_assert_uint_eq(counts.blobs.uploaded, 2); /* small and the root */
    close_client();
}
END_TEST

/*
 * When the walk is over, the large files change; the stream that reads the first of them finds out.
 */
static void change_large(void *argument, const struct push_counts *counts)
{
    bool *changed = argument;
    if (counts->walked && !*changed) {
        *changed = true;
        make_large("one", 4 << 20, 77);
        ck_assert_int_eq(unlink(in_tree("two")), 0);
        make_large("two.new", 4 << 20, 2);
        char from[512];
        snprintf(from, sizeof(from), "%s", in_tree("two.new"));
        ck_assert_int_eq(rename(from, in_tree("two")), 0);
        ck_assert_int_eq(unlink(in_tree("three")), 0);
    }
}

START_TEST(files_that_change_between_hashing_and_sending_are_named_and_nothing_false_is_stored)
{
    make_large("one", 4 << 20, 1);
    make_large("two", 4 << 20, 2);
    make_large("three", 4 << 20, 3);
    /*
         * The query for what is missing is answered late, so that all files change before any is
         * opened: the batch of the root goes first in any case.
         */
    open_client();
    struct capabilities capabilities;
    struct status status = {0};
    ck_assert(capabilities_get(client, &capabilities, &status));
    bool changed = false;
    const struct push_observer changer = {
        .problem = note_problem, .progress = change_large, .argument = &changed};
    /*
         * Streams would open their files before the first call of progress; there are too many of
         * them to all be open.
         */
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof(name), "a%02d", i);
        make_large(name, 300000 + (size_t)i, (uint8_t)i);
    }
    struct digest root;
    struct push_counts counts;
    ck_assert(!push_directory(client, &capabilities, directory.path, NULL, &changer, &root, &counts,
                              &status));
    ck_assert_ptr_nonnull(strstr(problems, "one: changed")); /* written over */
    ck_assert_ptr_nonnull(strstr(
        problems, "two: ")); /* replaced by another, which may have got the number of the old one */
    ck_assert_ptr_nonnull(strstr(problems, "three: No such file"));
    ck_assert_uint_eq(problem_count, 3);
    ck_assert_uint_eq(counts.blobs.failed, 3);
    ck_assert_uint_eq(counts.blobs.uploaded, 41);
    close_client();
}
END_TEST

START_TEST(a_wide_and_deep_tree_is_pushed_with_few_descriptors)
{
    make_many(2000, 50);
    for (int i = 0; i < 60; i++) {
        char name[32];
        snprintf(name, sizeof(name), "large%02d", i);
        make_large(name, 200000 + (size_t)i, (uint8_t)i);
    }
    make_deep(100);
    cas.answer_pause_ms = 2;
    open_client();
    struct digest root;
    struct push_counts counts;
    struct status status = {0};
    struct capabilities capabilities;
    ck_assert(capabilities_get(client, &capabilities, &status));
    /* Above what the fake server in this process has open as well. */
    const int probe = dup(0);
    const struct rlimit few = {.rlim_cur = (rlim_t)probe + 48, .rlim_max = (rlim_t)probe + 48};
    close(probe);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_msg(push_directory(client, &capabilities, directory.path, NULL, &observer, &root,
                                 &counts, &status),
                  "%s\n%s", status.message, problems);
    ck_assert_uint_eq(count_absent(), 0);
    close_client();
    remove_deep(100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree");
    TCase *walk = tcase_create("walk");
    tcase_add_checked_fixture(walk, setup, teardown);
    tcase_set_timeout(walk, 60);
    tcase_add_loop_test(walk, four_files_have_one_digest_in_any_order_and_locale, 0, 4);
    tcase_add_test(walk, a_file_and_a_directory_sort_in_lists_of_their_own);
    tcase_add_test(walk, an_empty_directory_is_kept);
    tcase_add_test(walk, a_tree_without_entries_is_the_empty_blob);
    tcase_add_test(walk, a_link_is_kept_and_not_followed);
    tcase_add_test(walk, a_dangling_link_is_no_error);
    tcase_add_test(walk, a_composed_name_is_stored_as_it_is);
    tcase_add_test(walk, a_decomposed_name_is_stored_as_it_is);
    tcase_add_test(walk, the_owners_execute_bit_alone_decides);
    tcase_add_test(walk, a_name_that_is_not_utf8_is_named_escaped);
    tcase_add_test(walk, a_link_target_that_is_not_utf8_is_an_error);
    tcase_add_test(walk, every_special_file_is_named_and_nothing_hangs);
    tcase_add_test(walk, what_cannot_be_read_is_named_each);
    tcase_add_test(walk, a_root_that_is_no_directory_is_an_error_that_names_it);
    tcase_add_test(walk, a_directory_message_is_what_protobuf_c_makes_of_the_same_nodes);
    tcase_add_test(walk, a_tree_deeper_than_any_path_takes_few_descriptors);
    suite_add_tcase(suite, walk);

    TCase *pushed = tcase_create("push");
    tcase_add_checked_fixture(pushed, setup, teardown);
    tcase_set_timeout(pushed, 120);
    tcase_add_test(pushed, a_pushed_tree_is_there_in_few_calls_and_the_second_time_in_one);
    tcase_add_test(pushed, equal_files_go_once);
    tcase_add_loop_test(pushed, a_bad_entry_of_a_batch_disturbs_no_other, 0, 7);
    tcase_add_loop_test(pushed, batches_that_fail_whole_are_streamed, 0, 4);
    tcase_add_loop_test(pushed, a_small_announced_batch_is_honoured, 0, 5);
    tcase_add_test(pushed, a_stream_that_is_cut_is_resumed_and_failures_name_the_path);
    tcase_add_loop_test(pushed, a_server_that_is_gone_ends_the_push_with_one_error, 0, 2);
    tcase_add_test(pushed, a_tree_with_a_problem_gives_no_root);
    tcase_add_test(pushed, a_blob_above_what_the_server_takes_is_named);
    tcase_add_test(
        pushed,
        files_that_change_between_hashing_and_sending_are_named_and_nothing_false_is_stored);
    tcase_add_test(pushed, a_wide_and_deep_tree_is_pushed_with_few_descriptors);
    suite_add_tcase(suite, pushed);
    return test_run(suite);
}
