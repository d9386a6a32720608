/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the pages of a tree hold each of its Directories once and byte for byte, for every
 * page size, and that a token of any page leads to exactly what comes behind that page; that
 * missing parts are left out; and that what is no tree, or no token of ours, is refused.
 */
#include <stdio.h>

#include "proto/wire.h"
#include "server/tree_pages.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

enum { DIRECTORIES_MAX = 4096, TOKEN_MAX = 128 };

static struct metrics metrics;
static struct real_store real;

static void setup(void)
{
    real_store_open(&real, &metrics, 4);
}

static void teardown(void)
{
    real_store_close(&real);
}

/* What pages bring. */
struct walk {
    struct digest_set seen;
    struct arena arena;
    size_t directories; /* with repetitions */
    size_t pages, largest_page, largest_bytes;
    char token[TOKEN_MAX]; /* of the last page */
    struct status status;  /* why it ended early */
};

static void walk_begin(struct walk *walk)
{
    *walk = (struct walk){0};
    arena_init(&walk->arena, 16 * MIB);
    ck_assert(digest_set_init(&walk->seen, &walk->arena, DIRECTORIES_MAX, &walk->status));
}

static void walk_end(struct walk *walk)
{
    arena_destroy(&walk->arena);
}

static void take_page(struct walk *walk, struct bytes page)
{
    size_t directories = 0;
    walk->token[0] = '\0';
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&page));
    while (wire_reader_next(&reader, &field)) {
        const struct bytes data =
            field.span.length == 0 ? bytes_of(NULL, 0) : wire_span_next(&field.span);
        if (field.number == 2) {
            ck_assert_uint_lt(data.length, TOKEN_MAX);
            ASSERT(data.data != NULL);
            memcpy(walk->token, data.data, data.length);
            walk->token[data.length] = '\0';
            continue;
        }
        ck_assert_uint_eq(field.number, 1);
        struct digest digest;
        size_t index;
        bool added;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
        ck_assert(digest_set_add(&walk->seen, &digest, &index, &added, &walk->status));
        directories++;
    }
    ck_assert(!reader.failed);
    walk->directories += directories;
    walk->pages++;
    if (directories > walk->largest_page)
        walk->largest_page = directories;
    if (page.length > walk->largest_bytes)
        walk->largest_bytes = page.length;
}

/* Takes up to `pages_max` pages. True if the last one was among them. */
static bool walk_pages(struct walk *walk,
                       const struct digest *root,
                       int32_t page_size,
                       const char *token,
                       size_t pages_max)
{
    struct arena arena;
    struct tree_pages pages = {0};
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    bool last = false;
    bool ok = tree_pages_start(&pages, real.durability, &arena, root, page_size,
                               bytes_of_string(token), &walk->status);
    while (ok && !last && walk->pages < pages_max) {
        enum tree_pages_state state;
        ok = tree_pages_next(&pages, &state, &walk->status);
        if (!ok || state == TREE_PAGES_UNFINISHED)
            continue;
        take_page(walk, message_bytes(&pages.page));
        byte_builder_free(&pages.page);
        last = state == TREE_PAGES_LAST;
        ck_assert_msg(last == (walk->token[0] == '\0'), "every page but the last has a token");
    }
    tree_pages_end(&pages);
    arena_destroy(&arena);
    return last;
}

/* `width` directories under a root, and one that all of them name. Returns the root. */
static struct digest store_tree(size_t width, struct digest *shared)
{
    struct byte_builder root = {0};
    struct byte_builder below = {0};
    const struct digest file = digest_of_nothing(0);
    directory_add_file(&below, "leaf", &file);
    message_add_text(&below, 77, "unknown to us");
    *shared = real_store_put(&real, message_bytes(&below));
    byte_builder_free(&below);
    for (size_t i = 0; i < width; i++) {
        struct byte_builder directory = {0};
        const struct digest unique = digest_of_nothing(i);
        directory_add_file(&directory, "f", &unique);
        directory_add_directory(&directory, "shared", shared);
        const struct digest digest = real_store_put(&real, message_bytes(&directory));
        directory_add_directory(&root, "d", &digest);
        byte_builder_free(&directory);
    }
    const struct digest digest = real_store_put(&real, message_bytes(&root));
    byte_builder_free(&root);
    return digest;
}

START_TEST(tree_pages_hold_each_directory_once_whatever_their_size)
{
    enum { WIDTH = 7, ALL = WIDTH + 2 };
    struct digest shared;
    const struct digest root = store_tree(WIDTH, &shared);
    for (int32_t page_size = -1; page_size <= ALL + 1; page_size++) {
        struct walk walk;
        walk_begin(&walk);
        ck_assert(walk_pages(&walk, &root, page_size, "", SIZE_MAX));
        ck_assert_uint_eq(walk.directories, ALL);
        ck_assert_uint_eq(walk.seen.count, ALL);
        size_t index;
        ck_assert(digest_set_find(&walk.seen, &root, &index) && index == 0);
        ck_assert(digest_set_find(&walk.seen, &shared, &index) && index == ALL - 1);
        if (page_size > 0)
            ck_assert_uint_le(walk.largest_page, (size_t)page_size);
        walk_end(&walk);
    }
}
END_TEST

START_TEST(tree_pages_go_on_behind_any_token)
{
    enum { WIDTH = 7, ALL = WIDTH + 2 };
    struct digest shared;
    const struct digest root = store_tree(WIDTH, &shared);
    for (size_t before = 1; before < ALL; before++) {
        struct walk walk;
        walk_begin(&walk);
        ck_assert(!walk_pages(&walk, &root, 1, "", before));
        ck_assert_uint_eq(walk.directories, before);
        char token[TOKEN_MAX];
        memcpy(token, walk.token, sizeof(token));
        ck_assert(walk_pages(&walk, &root, 2, token, SIZE_MAX));
        ck_assert_uint_eq(walk.directories, ALL);
        ck_assert_uint_eq(walk.seen.count, ALL);
        walk_end(&walk);
    }
}
END_TEST

START_TEST(tree_pages_refuse_tokens_that_were_not_given_for_this_root)
{
    struct digest shared;
    const struct digest root = store_tree(3, &shared);
    const struct digest other = store_tree(4, &shared);
    struct walk walk;
    walk_begin(&walk);
    ck_assert(!walk_pages(&walk, &root, 1, "", 2));
    char token[TOKEN_MAX];
    memcpy(token, walk.token, sizeof(token));
    walk_end(&walk);

    const size_t length = strlen(token);
    const char *const wrong[] = {"no such token \xe2\x98\x83",
                                 "1",
                                 "1-",
                                 "-",
                                 "0-0000000000000000",
                                 "99999999999999999999999999-0000000000000000"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong) + length + 1; i++) {
        char changed[TOKEN_MAX];
        snprintf(changed, sizeof(changed), "%s", i < ARRAY_LENGTH(wrong) ? wrong[i] : token);
        if (i >= ARRAY_LENGTH(wrong) && i < ARRAY_LENGTH(wrong) + length)
            changed[i - ARRAY_LENGTH(wrong)] ^= 1;
        walk_begin(&walk);
        /* The last one is right, but of another root. */
        ck_assert(!walk_pages(&walk, i == ARRAY_LENGTH(wrong) + length ? &other : &root, 1, changed,
                              SIZE_MAX));
        ck_assert_int_eq(walk.status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_uint_eq(walk.pages, 0);
        walk_end(&walk);
    }
}
END_TEST

START_TEST(tree_pages_leave_out_what_is_missing_or_damaged)
{
    struct byte_builder root = {0};
    struct byte_builder child = {0};
    const struct digest file = digest_of_nothing(0);
    const struct digest gone = digest_of_nothing(1);
    directory_add_file(&child, "f", &file);
    const struct digest kept = real_store_put(&real, message_bytes(&child));
    directory_add_file(&child, "g", &file);
    const struct digest damaged = real_store_put(&real, message_bytes(&child));
    directory_add_directory(&root, "damaged", &damaged);
    directory_add_directory(&root, "gone", &gone);
    directory_add_directory(&root, "kept", &kept);
    const struct digest digest = real_store_put(&real, message_bytes(&root));
    real_store_damage(&real, &damaged);

    for (int32_t page_size = 0; page_size < 4; page_size++) {
        struct walk walk;
        walk_begin(&walk);
        ck_assert(walk_pages(&walk, &digest, page_size, "", SIZE_MAX));
        ck_assert_uint_eq(walk.directories, 2);
        size_t index;
        ck_assert(digest_set_find(&walk.seen, &kept, &index));
        walk_end(&walk);
    }
    byte_builder_free(&root);
    byte_builder_free(&child);
}
END_TEST

START_TEST(tree_pages_of_no_root_of_the_empty_root_and_of_no_directory)
{
    struct walk walk;
    const struct digest nothing = digest_of_nothing(1);
    walk_begin(&walk);
    ck_assert(!walk_pages(&walk, &nothing, 0, "", SIZE_MAX));
    ck_assert_int_eq(walk.status.code, STATUS_NOT_FOUND);
    walk_end(&walk);

    struct digest empty;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    walk_begin(&walk);
    ck_assert(walk_pages(&walk, &empty, 0, "", SIZE_MAX));
    ck_assert_uint_eq(walk.directories, 1);
    walk_end(&walk);

    const struct digest text =
        real_store_put(&real, bytes_of_string("\xff\xff\xff\xff this is no Directory"));
    walk_begin(&walk);
    ck_assert(!walk_pages(&walk, &text, 0, "", SIZE_MAX));
    ck_assert_int_eq(walk.status.code, STATUS_INVALID_ARGUMENT);
    walk_end(&walk);

    struct byte_builder root = {0};
    directory_add_directory(&root, "text", &text);
    const struct digest above = real_store_put(&real, message_bytes(&root));
    walk_begin(&walk);
    ck_assert(!walk_pages(&walk, &above, 0, "", SIZE_MAX));
    ck_assert_int_eq(walk.status.code, STATUS_FAILED_PRECONDITION);
    walk_end(&walk);
    byte_builder_free(&root);
}
END_TEST

START_TEST(tree_pages_list_directories_and_not_paths)
{
    struct digest below;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &below);
    for (int level = 0; level < 40; level++) {
        struct byte_builder directory = {0};
        directory_add_directory(&directory, "l", &below);
        directory_add_directory(&directory, "r", &below);
        below = real_store_put(&real, message_bytes(&directory));
        byte_builder_free(&directory);
    }
    struct walk walk;
    walk_begin(&walk);
    ck_assert(walk_pages(&walk, &below, 0, "", SIZE_MAX));
    ck_assert_uint_eq(walk.directories, 41);
    walk_end(&walk);
}
END_TEST

/* Directories of 900 KiB and of 1.5 MiB: pages end by bytes, before a client's limit of 4 MiB. */
START_TEST(tree_pages_stay_below_the_size_of_a_message)
{
    struct byte_builder root = {0};
    for (uint64_t i = 0; i < 12; i++) {
        struct byte_builder directory = {0};
        const struct digest file = digest_of_nothing(i);
        const size_t size = i % 2 == 0 ? 900 * KIB : 1536 * KIB;
        while (directory.length < size)
            directory_add_file(&directory, "a file with a name that takes some room", &file);
        const struct digest digest = real_store_put(&real, message_bytes(&directory));
        directory_add_directory(&root, "d", &digest);
        byte_builder_free(&directory);
    }
    const struct digest digest = real_store_put(&real, message_bytes(&root));
    byte_builder_free(&root);
    struct walk walk;
    walk_begin(&walk);
    ck_assert(walk_pages(&walk, &digest, 0, "", SIZE_MAX));
    ck_assert_uint_eq(walk.directories, 13);
    ck_assert_uint_le(walk.largest_bytes, LIMIT_RESPONSE_BYTES);
    ck_assert_uint_gt(walk.largest_bytes, 2 * MIB);
    walk_end(&walk);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tree_pages");
    TCase *const tests = tcase_create("tree_pages");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, tree_pages_hold_each_directory_once_whatever_their_size);
    tcase_add_test(tests, tree_pages_go_on_behind_any_token);
    tcase_add_test(tests, tree_pages_refuse_tokens_that_were_not_given_for_this_root);
    tcase_add_test(tests, tree_pages_leave_out_what_is_missing_or_damaged);
    tcase_add_test(tests, tree_pages_of_no_root_of_the_empty_root_and_of_no_directory);
    tcase_add_test(tests, tree_pages_list_directories_and_not_paths);
    tcase_add_test(tests, tree_pages_stay_below_the_size_of_a_message);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
