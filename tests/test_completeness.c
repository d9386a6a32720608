/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that an action result counts as complete when everything it names can be read, and only
 * then, whatever is
 * missing: an output file, stdout, stderr, a Tree, a file in a Tree or in its child, a root
 * Directory or anything below it.
 *
 * Method: one result that names something in every way there is; for each of the blobs in turn a
 * store that lacks it.
 */
#include "server/completeness.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

/* Everything that the result names. */
enum { FILE_A, FILE_B, STDOUT, STDERR, TREE, IN_TREE, IN_CHILD, ROOT, IN_ROOT, SUB, IN_SUB, BLOBS };

struct world {
    struct byte_builder blobs[BLOBS];
    struct digest digests[BLOBS];
    struct byte_builder result;
};

static void settle(struct world *world, int blob)
{
    digest_of_bytes(DIGEST_FUNCTION_SHA256, message_bytes(&world->blobs[blob]),
                    &world->digests[blob]);
}

static void world_make(struct world *world)
{
    static const char *const contents[BLOBS] = {
        [FILE_A] = "a",        [FILE_B] = "b",          [STDOUT] = "out",      [STDERR] = "err",
        [IN_TREE] = "in tree", [IN_CHILD] = "in child", [IN_ROOT] = "in root", [IN_SUB] = "in sub",
    };
    *world = (struct world){0};
    for (int i = 0; i < BLOBS; i++) {
        if (contents[i] == NULL)
            continue;
        byte_builder_append(&world->blobs[i], bytes_of_string(contents[i]));
        settle(world, i);
    }

    struct byte_builder root = {0};
    struct byte_builder child = {0};
    struct digest child_digest;
    directory_add_file(&child, "deep", &world->digests[IN_CHILD]);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, message_bytes(&child), &child_digest);
    directory_add_file(&root, "f", &world->digests[IN_TREE]);
    directory_add_directory(&root, "kid", &child_digest); /* found in the Tree, never stored */
    message_add_message(&world->blobs[TREE], 1, &root);
    message_add_message(&world->blobs[TREE], 2, &child);
    settle(world, TREE);

    directory_add_file(&world->blobs[SUB], "g", &world->digests[IN_SUB]);
    settle(world, SUB);
    directory_add_file(&world->blobs[ROOT], "h", &world->digests[IN_ROOT]);
    directory_add_directory(&world->blobs[ROOT], "sub", &world->digests[SUB]);
    settle(world, ROOT);

    result_add_file(&world->result, "a", &world->digests[FILE_A]);
    result_add_file(&world->result, "b", &world->digests[FILE_B]);
    result_add_directory(&world->result, "t", &world->digests[TREE], NULL);
    result_add_directory(&world->result, "r", NULL, &world->digests[ROOT]);
    message_add_digest(&world->result, 6, &world->digests[STDOUT]);
    message_add_digest(&world->result, 8, &world->digests[STDERR]);
}

static void world_free(struct world *world)
{
    for (int i = 0; i < BLOBS; i++)
        byte_builder_free(&world->blobs[i]);
    byte_builder_free(&world->result);
}

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

static void check(struct bytes result, struct completeness *completeness)
{
    struct arena arena;
    struct status status = {0};
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    ck_assert_msg(completeness_check(real.durability, &arena, DIGEST_FUNCTION_UNKNOWN, result,
                                     completeness, &status),
                  "%s", status.message);
    arena_destroy(&arena);
}

START_TEST(completeness_is_told_only_when_nothing_is_missing)
{
    struct world world;
    struct completeness completeness;
    const int left_out = _i;
    world_make(&world);
    for (int i = 0; i < BLOBS; i++)
        if (i != left_out)
            real_store_put(&real, message_bytes(&world.blobs[i]));

    check(message_bytes(&world.result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert_int_eq(completeness.unusable.code, STATUS_OK);
    ck_assert_uint_eq(completeness.missing_count, 1);
    ck_assert(digest_equal(&completeness.missing[0], &world.digests[left_out]));

    struct status status = {0};
    char text[DIGEST_TEXT_BYTES_MAX];
    const struct digest action = digest_of_nothing(1);
    ck_assert(!completeness_fail(&completeness, &action, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(status.message, digest_text(&world.digests[left_out], text)));

    real_store_put(&real, message_bytes(&world.blobs[left_out]));
    check(message_bytes(&world.result), &completeness);
    ck_assert(completeness.complete);
    world_free(&world);
}
END_TEST

START_TEST(completeness_counts_a_damaged_tree_as_missing_and_takes_it_when_it_is_stored_again)
{
    struct world world;
    struct completeness completeness;
    world_make(&world);
    for (int i = 0; i < BLOBS; i++)
        real_store_put(&real, message_bytes(&world.blobs[i]));
    real_store_damage(&real, &world.digests[TREE]);
    check(message_bytes(&world.result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert_uint_eq(completeness.missing_count, 1);
    ck_assert(!store_has_blob(real.store, &world.digests[TREE]));

    real_store_put(&real, message_bytes(&world.blobs[TREE]));
    check(message_bytes(&world.result), &completeness);
    ck_assert(completeness.complete);
    world_free(&world);
}
END_TEST

/* A client that was given the result comes for them, some time later. */
START_TEST(completeness_marks_all_that_the_result_names_as_used)
{
    struct world world;
    struct completeness completeness;
    struct blob_use use;
    world_make(&world);
    for (int i = 0; i < BLOBS; i++)
        real_store_put(&real, message_bytes(&world.blobs[i]));
    for (int i = 0; i < BLOBS; i++) {
        ck_assert(blob_table_look(real.store->table,
                                  blob_table_blob_key(real.store->table, &world.digests[i]), &use));
        ck_assert(!use.touched);
    }
    check(message_bytes(&world.result), &completeness);
    ck_assert(completeness.complete);
    for (int i = 0; i < BLOBS; i++) {
        ck_assert(blob_table_look(real.store->table,
                                  blob_table_blob_key(real.store->table, &world.digests[i]), &use));
        ck_assert_msg(use.touched, "blob %d", i);
    }
    world_free(&world);
}
END_TEST

START_TEST(completeness_of_a_result_that_names_nothing_or_only_the_empty_blob)
{
    struct completeness completeness;
    struct byte_builder result = {0};
    check(message_bytes(&result), &completeness);
    ck_assert(completeness.complete);

    struct digest empty;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    result_add_file(&result, "empty", &empty);
    result_add_directory(&result, "empty directory", NULL, &empty);
    result_add_directory(&result, "empty tree", &empty, NULL);
    message_add_digest(&result, 6, &empty);
    check(message_bytes(&result), &completeness);
    ck_assert(completeness.complete);
    byte_builder_free(&result);
}
END_TEST

START_TEST(completeness_is_not_given_to_a_tree_that_does_not_parse)
{
    struct completeness completeness;
    struct byte_builder result = {0};
    const struct digest tree = real_store_put(&real, bytes_of_string("\xff\xff\xff\xff no Tree"));
    result_add_directory(&result, "t", &tree, NULL);
    check(message_bytes(&result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert_uint_eq(completeness.missing_count, 0);
    ck_assert_int_ne(completeness.unusable.code, STATUS_OK);
    struct status status = {0};
    const struct digest action = digest_of_nothing(1);
    ck_assert(!completeness_fail(&completeness, &action, &status));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    byte_builder_free(&result);
}
END_TEST

START_TEST(completeness_is_not_given_to_a_tree_that_is_too_large_to_be_read)
{
    struct completeness completeness;
    struct byte_builder result = {0};
    struct digest tree = digest_of_nothing(1);
    tree.size_bytes = (int64_t)LIMIT_TREE_BYTES + 1;
    result_add_directory(&result, "t", &tree, NULL);
    check(message_bytes(&result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert_int_ne(completeness.unusable.code, STATUS_OK);
    byte_builder_free(&result);
}
END_TEST

START_TEST(completeness_counts_each_missing_blob_once_and_not_for_ever)
{
    struct completeness completeness;
    struct byte_builder result = {0};
    for (uint64_t i = 0; i < 300; i++) {
        const struct digest digest = digest_of_nothing(i % 100);
        result_add_file(&result, "f", &digest);
    }
    check(message_bytes(&result), &completeness);
    ck_assert_uint_eq(completeness.missing_count, 100);
    for (uint64_t i = 0; i < COMPLETENESS_NAMED_MAX; i++) {
        const struct digest digest = digest_of_nothing(i);
        ck_assert(digest_equal(&completeness.missing[i], &digest));
    }

    for (uint64_t i = 0; i < 2 * COMPLETENESS_MISSING_MAX; i++) {
        const struct digest digest = digest_of_nothing(i);
        result_add_file(&result, "f", &digest);
    }
    check(message_bytes(&result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert_uint_eq(completeness.missing_count, COMPLETENESS_MISSING_MAX);
    byte_builder_free(&result);
}
END_TEST

/* 40 levels, each of which names the one below twice: 2^40 paths, 41 directories. */
START_TEST(completeness_visits_each_directory_once_however_often_it_is_named)
{
    struct completeness completeness;
    struct byte_builder result = {0};
    struct digest below;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &below);
    for (int level = 0; level < 40; level++) {
        struct byte_builder directory = {0};
        directory_add_directory(&directory, "l", &below);
        directory_add_directory(&directory, "r", &below);
        below = real_store_put(&real, message_bytes(&directory));
        byte_builder_free(&directory);
    }
    result_add_directory(&result, "d", NULL, &below);
    check(message_bytes(&result), &completeness);
    ck_assert(completeness.complete);
    byte_builder_free(&result);
}
END_TEST

START_TEST(completeness_reads_a_tree_of_several_chunks)
{
    struct completeness completeness;
    struct byte_builder root = {0};
    struct byte_builder tree = {0};
    struct byte_builder result = {0};
    const struct digest file = real_store_put(&real, bytes_of_string("a file"));
    while (root.length < 2 * MIB)
        directory_add_file(&root, "a name that is not so short, and here many times over", &file);
    message_add_message(&tree, 1, &root);
    const struct digest whole = real_store_put(&real, message_bytes(&tree));
    result_add_directory(&result, "t", &whole, NULL);
    check(message_bytes(&result), &completeness);
    ck_assert(completeness.complete);

    const struct digest nothing = digest_of_nothing(1);
    struct byte_builder last = {0};
    directory_add_file(&last, "gone", &nothing);
    message_add_message(&tree, 2, &last);
    const struct digest lacking = real_store_put(&real, message_bytes(&tree));
    result_add_directory(&result, "u", &lacking, NULL);
    check(message_bytes(&result), &completeness);
    ck_assert(!completeness.complete);
    ck_assert(digest_equal(&completeness.missing[0], &nothing));
    byte_builder_free(&tree);
    byte_builder_free(&result);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("completeness");
    TCase *const tests = tcase_create("completeness");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, completeness_is_told_only_when_nothing_is_missing, 0, BLOBS);
    tcase_add_test(
        tests, completeness_counts_a_damaged_tree_as_missing_and_takes_it_when_it_is_stored_again);
    tcase_add_test(tests, completeness_marks_all_that_the_result_names_as_used);
    tcase_add_test(tests, completeness_of_a_result_that_names_nothing_or_only_the_empty_blob);
    tcase_add_test(tests, completeness_is_not_given_to_a_tree_that_does_not_parse);
    tcase_add_test(tests, completeness_is_not_given_to_a_tree_that_is_too_large_to_be_read);
    tcase_add_test(tests, completeness_counts_each_missing_blob_once_and_not_for_ever);
    tcase_add_test(tests, completeness_visits_each_directory_once_however_often_it_is_named);
    tcase_add_test(tests, completeness_reads_a_tree_of_several_chunks);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
