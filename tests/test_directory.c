/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory messages are read as protobuf-c makes them, sorted and with every field; and those with
 * which somebody could write outside of the directory, or make one thing of two, are refused. Bytes
 * cut or changed anywhere never do more than fail. And escaped names: every name comes back, and no
 * two become one.
 */
#include <stdlib.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/directory.h"
#include "client/name_escape.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

static char abc_hash[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

struct nodes {
    REAPI(Directory) directory;
    REAPI(FileNode) files[4], *file_list[4];
    REAPI(DirectoryNode) directories[4], *directory_list[4];
    REAPI(SymlinkNode) symlinks[4], *symlink_list[4];
    REAPI(Digest) digest;
    char texts[12][5200];
    size_t text_count;
};

static void nodes_init(struct nodes *nodes)
{
    memset(nodes, 0, sizeof(*nodes));
    build__bazel__remote__execution__v2__directory__init(&nodes->directory);
    build__bazel__remote__execution__v2__digest__init(&nodes->digest);
    nodes->digest.hash = abc_hash;
    nodes->digest.size_bytes = 3;
    nodes->directory.files = nodes->file_list;
    nodes->directory.directories = nodes->directory_list;
    nodes->directory.symlinks = nodes->symlink_list;
}

/* A copy that lives as long as the nodes. */
static char *text_of(struct nodes *nodes, const char *text)
{
    ck_assert_uint_lt(strlen(text), sizeof(nodes->texts[0]));
    return strcpy(nodes->texts[nodes->text_count++], text);
}

static void add_file(struct nodes *nodes, const char *name, bool executable)
{
    REAPI(FileNode) *node = &nodes->files[nodes->directory.n_files];
    build__bazel__remote__execution__v2__file_node__init(node);
    node->name = text_of(nodes, name);
    node->digest = &nodes->digest;
    node->is_executable = executable;
    nodes->file_list[nodes->directory.n_files++] = node;
}

static void add_directory(struct nodes *nodes, const char *name)
{
    REAPI(DirectoryNode) *node = &nodes->directories[nodes->directory.n_directories];
    build__bazel__remote__execution__v2__directory_node__init(node);
    node->name = text_of(nodes, name);
    node->digest = &nodes->digest;
    nodes->directory_list[nodes->directory.n_directories++] = node;
}

static void add_symlink(struct nodes *nodes, const char *name, const char *target)
{
    REAPI(SymlinkNode) *node = &nodes->symlinks[nodes->directory.n_symlinks];
    build__bazel__remote__execution__v2__symlink_node__init(node);
    node->name = text_of(nodes, name);
    node->target = text_of(nodes, target);
    nodes->symlink_list[nodes->directory.n_symlinks++] = node;
}

static uint8_t *pack(const struct nodes *nodes, size_t *length)
{
    *length = build__bazel__remote__execution__v2__directory__get_packed_size(&nodes->directory);
    uint8_t *message = malloc(*length + 1);
    ck_assert_ptr_nonnull(message);
    build__bazel__remote__execution__v2__directory__pack(&nodes->directory, message);
    return message;
}

static bool decode(const struct nodes *nodes, struct directory *directory, struct status *status)
{
    size_t length;
    uint8_t *message = pack(nodes, &length);
    const bool ok = directory_decode(bytes_of(message, length), directory, status);
    free(message); /* what was read is its own */
    return ok;
}

START_TEST(nodes_are_read_as_protobuf_c_wrote_them)
{
    struct nodes nodes;
    nodes_init(&nodes);
    add_file(&nodes, "zz", true);
    add_file(&nodes, "a.b", false);
    add_directory(&nodes, "a");
    add_symlink(&nodes, "\xc3\xa9", "/absolute/../out");
    struct directory directory;
    struct status status = {0};
    ck_assert_msg(decode(&nodes, &directory, &status), "%s", status.message);
    ck_assert_uint_eq(directory.count, 4);
    const struct directory_node *node = directory.nodes;
    ck_assert_str_eq(node[0].name, "a");
    ck_assert_int_eq(node[0].kind, DIRECTORY_NODE_DIRECTORY);
    ck_assert_str_eq(node[1].name, "a.b");
    ck_assert_int_eq(node[1].kind, DIRECTORY_NODE_FILE);
    ck_assert(!node[1].executable && node[2].executable);
    ck_assert_str_eq(node[2].name, "zz");
    char hex[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_str_eq(digest_hex(&node[2].digest, hex), abc_hash);
    ck_assert_int_eq(node[2].digest.size_bytes, 3);
    ck_assert_str_eq(node[3].target, "/absolute/../out");
    ck_assert_ptr_eq(directory_find(&directory, "zz"), &node[2]);
    ck_assert_ptr_null(directory_find(&directory, "z"));
    directory_destroy(&directory);

    ck_assert(directory_decode(bytes_of("", 0), &directory, &status));
    ck_assert_uint_eq(directory.count, 0);
    ck_assert_ptr_null(directory_find(&directory, "a"));
    directory_destroy(&directory);
}
END_TEST

static char long_name[5000];

START_TEST(a_name_that_leads_out_of_its_directory_is_refused)
{
    static const char *const names[] = {
        "", ".", "..", "/", "/etc/passwd", "a/b", "../up", "a/../", "sub/../..", "./here", "a/"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        for (int kind = 0; kind < 3; kind++) {
            static struct nodes nodes;
            nodes_init(&nodes);
            add_file(&nodes, "good", false);
            if (kind == 0)
                add_file(&nodes, names[i], false);
            else if (kind == 1)
                add_directory(&nodes, names[i]);
            else
                add_symlink(&nodes, names[i], "x");
            struct directory directory;
            struct status status = {0};
            ck_assert_msg(!decode(&nodes, &directory, &status), "%s", names[i]);
            ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        }
    }
    /* Strange, but inside. */
    static const char *const odd[] = {"...", "..a", "a..", "\\", "-", " ", "\n", "\xff"};
    struct directory directory;
    struct status status = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(odd); i++) {
        struct nodes nodes;
        nodes_init(&nodes);
        add_file(&nodes, odd[i], false);
        ck_assert(decode(&nodes, &directory, &status));
        directory_destroy(&directory);
    }
    memset(long_name, 'x', sizeof(long_name) - 1);
    struct nodes nodes;
    nodes_init(&nodes);
    add_file(&nodes, long_name, false);
    ck_assert(decode(&nodes, &directory, &status)); /* the file system says what it thinks */
    directory_destroy(&directory);
}
END_TEST

/* Encoded by hand: protobuf-c has no strings with a NUL. */
START_TEST(a_name_with_a_nul_is_refused)
{
    static const uint8_t file[] = {0x0a, 0x08, 0x0a, 0x03, 'a', 0, 'b', 0x12, 0x01, 0x10};
    static const uint8_t link[] = {0x1a, 0x07, 0x0a, 0x01, 'l', 0x12, 0x02, 'x', 0};
    struct directory directory;
    struct status status = {0};
    ck_assert(!directory_decode(bytes_of(file, sizeof(file)), &directory, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "NUL"));
    ck_assert(!directory_decode(bytes_of(link, sizeof(link)), &directory, &status));
    ck_assert_ptr_nonnull(strstr(status.message, "NUL"));
}
END_TEST

START_TEST(one_name_for_two_things_is_refused)
{
    for (int second = 0; second < 3; second++) {
        struct nodes nodes;
        nodes_init(&nodes);
        add_file(&nodes, "same", false);
        if (second == 0)
            add_file(&nodes, "same", true);
        else if (second == 1)
            add_directory(&nodes, "same");
        else
            add_symlink(&nodes, "same", "/");
        struct directory directory;
        struct status status = {0};
        ck_assert(!decode(&nodes, &directory, &status));
        ck_assert_ptr_nonnull(strstr(status.message, "same is there twice"));
    }
}
END_TEST

START_TEST(a_node_without_a_digest_and_a_link_to_nowhere_are_refused)
{
    struct nodes nodes;
    struct directory directory;
    struct status status = {0};
    nodes_init(&nodes);
    add_file(&nodes, "f", false);
    nodes.files[0].digest = NULL;
    ck_assert(!decode(&nodes, &directory, &status));
    nodes_init(&nodes);
    add_symlink(&nodes, "l", "");
    ck_assert(!decode(&nodes, &directory, &status));
    nodes_init(&nodes);
    add_file(&nodes, "f", false);
    nodes.digest.hash = text_of(&nodes, "0123");
    ck_assert(!decode(&nodes, &directory, &status));
    nodes.digest.hash = abc_hash;
    nodes.digest.size_bytes = -3;
    ck_assert(!decode(&nodes, &directory, &status));
}
END_TEST

START_TEST(a_message_cut_or_changed_anywhere_at_most_fails)
{
    struct nodes nodes;
    nodes_init(&nodes);
    add_file(&nodes, "one", true);
    add_directory(&nodes, "two");
    add_symlink(&nodes, "three", "../four");
    size_t length;
    uint8_t *message = pack(&nodes, &length);
    struct directory directory;
    struct status status = {0};
    ck_assert_uint_gt(length, 0);
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *part = malloc(cut + 1); /* of its own size, so that a sanitizer sees its end */
        memcpy(part, message, cut);
        if (directory_decode(bytes_of(part, cut), &directory, &status))
            directory_destroy(&directory);
        free(part);
    }
    struct prng random = {.state = 5};
    for (int i = 0; i < 20000; i++) {
        const size_t at = prng_below(&random, length);
        const uint8_t was = message[at];
        message[at] = (uint8_t)prng_next(&random);
        if (directory_decode(bytes_of(message, length), &directory, &status)) {
            for (size_t j = 0; j < directory.count; j++)
                ck_assert_ptr_null(strchr(directory.nodes[j].name, '/'));
            directory_destroy(&directory);
        }
        message[at] = was;
    }
    free(message);
}
END_TEST

/* ---- escaped names */

START_TEST(every_name_comes_back_and_is_utf8_meanwhile)
{
    static const struct {
        const char *name, *escaped;
    } known[] = {
        {"plain", "plain"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xff", "\\xff"},
        {"a\xc3", "a\\xc3"},
        {"\\", "\\\\"},
        {"\\xff", "\\\\xff"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a surrogate is no character */
        {"\x80\xc3\xa9\xfe", "\\x80\xc3\xa9\\xfe"},
    };
    struct status status = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        char *escaped = name_escape(known[i].name), *name;
        ck_assert_str_eq(escaped, known[i].escaped);
        ck_assert_int_eq(name_needs_escape(known[i].name), strcmp(escaped, known[i].name) != 0);
        ck_assert(name_unescape(escaped, &name, &status));
        ck_assert_str_eq(name, known[i].name);
        free(escaped);
        free(name);
    }
    struct prng random = {.state = 9};
    for (int i = 0; i < 20000; i++) {
        char bytes[12] = "";
        const size_t length = prng_below(&random, sizeof(bytes));
        for (size_t at = 0; at < length; at++)
            bytes[at] = (char)(prng_below(&random, 3) == 0 ? '\\' : 1 + prng_below(&random, 255));
        char *escaped = name_escape(bytes), *name;
        ck_assert(bytes_is_utf8(bytes_of_string(escaped)));
        ck_assert(name_unescape(escaped, &name, &status));
        ck_assert_str_eq(name, bytes);
        free(escaped);
        free(name);
    }
}
END_TEST

START_TEST(what_no_name_becomes_is_refused)
{
    static const char *const bad[] = {"\\",  "a\\",   "\\x",   "\\x4",  "\\xgg",
                                      "\\n", "\\XFF", "\\x00", "\\xFF", "ok\\ "};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        char *name;
        struct status status = {0};
        ck_assert_msg(!name_unescape(bad[i], &name, &status), "%s", bad[i]);
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("directory");
    TCase *all = tcase_create("all");
    tcase_add_test(all, nodes_are_read_as_protobuf_c_wrote_them);
    tcase_add_test(all, a_name_that_leads_out_of_its_directory_is_refused);
    tcase_add_test(all, a_name_with_a_nul_is_refused);
    tcase_add_test(all, one_name_for_two_things_is_refused);
    tcase_add_test(all, a_node_without_a_digest_and_a_link_to_nowhere_are_refused);
    tcase_add_test(all, a_message_cut_or_changed_anywhere_at_most_fails);
    tcase_add_test(all, every_name_comes_back_and_is_utf8_meanwhile);
    tcase_add_test(all, what_no_name_becomes_is_refused);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
