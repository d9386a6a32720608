/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that every digest of an ActionResult, a Directory and a Tree is found, with what it is of
 * and in order; that unknown fields are passed over; and that every message which is cut short or
 * makes no sense is refused.
 *
 * Method: messages built by hand, and each of their prefixes.
 */
#include <stdlib.h>

#include "server/references.h"
#include "tests/support/messages.h"
#include "tests/support/test_run.h"

enum { REFERENCES_MAX = 32 };

struct found {
    bool ok;
    struct status status;
    size_t count;
    struct reference references[REFERENCES_MAX];
};

static void find(enum referrer referrer, struct bytes message, struct found *found)
{
    struct arena arena;
    arena_init(&arena, MIB);
    *found = (struct found){.ok = true};
    struct references references;
    references_start(&references, referrer, message, DIGEST_FUNCTION_UNKNOWN, &arena);
    for (;;) {
        struct reference reference;
        bool end;
        if (!references_next(&references, &reference, &end, &found->status)) {
            found->ok = false;
            break;
        }
        if (end)
            break;
        ck_assert_uint_lt(found->count, REFERENCES_MAX);
        found->references[found->count++] = reference;
    }
    arena_destroy(&arena);
}

static void expect(const struct found *found,
                   size_t index,
                   enum reference_kind kind,
                   uint64_t number)
{
    const struct digest digest = digest_of_nothing(number);
    ck_assert_uint_lt(index, found->count);
    ck_assert_int_eq((int)found->references[index].kind, (int)kind);
    ck_assert(digest_equal(&found->references[index].digest, &digest));
}

static void whole_result(struct byte_builder *result)
{
    struct digest digests[8];
    for (size_t i = 0; i < ARRAY_LENGTH(digests); i++)
        digests[i] = digest_of_nothing(i);
    message_add_text(result, 99, "a field of next year");
    result_add_file(result, "bin/a", &digests[0]);
    result_add_file(result, "b", &digests[1]);
    result_add_directory(result, "tree", &digests[2], NULL);
    result_add_directory(result, "root", NULL, &digests[3]);
    result_add_directory(result, "both", &digests[4], &digests[5]);
    message_add_number(result, 4, 7);
    message_add_text(result, 5, "raw");
    message_add_digest(result, 6, &digests[6]);
    message_add_digest(result, 8, &digests[7]);
    message_add_text(result, 9, "");
}

START_TEST(references_of_an_action_result_are_all_found)
{
    struct byte_builder result = {0};
    struct found found;
    whole_result(&result);
    find(REFERRER_ACTION_RESULT, message_bytes(&result), &found);
    ck_assert(found.ok);
    ck_assert_uint_eq(found.count, 8);
    expect(&found, 0, REFERENCE_FILE, 0);
    expect(&found, 1, REFERENCE_FILE, 1);
    expect(&found, 2, REFERENCE_TREE, 2);
    expect(&found, 3, REFERENCE_DIRECTORY, 3);
    expect(&found, 4, REFERENCE_TREE, 4);
    expect(&found, 5, REFERENCE_DIRECTORY, 5);
    expect(&found, 6, REFERENCE_STDOUT, 6);
    expect(&found, 7, REFERENCE_STDERR, 7);
    byte_builder_free(&result);
}
END_TEST

START_TEST(references_of_a_directory_and_a_tree_are_all_found)
{
    const struct digest digests[] = {digest_of_nothing(0), digest_of_nothing(1),
                                     digest_of_nothing(2)};
    struct byte_builder root = {0};
    struct byte_builder child = {0};
    struct byte_builder tree = {0};
    struct found found;
    directory_add_file(&root, "f", &digests[0]);
    directory_add_directory(&root, "d", &digests[1]);
    message_add_text(&root, 3, "a symlink, whatever is in it");
    find(REFERRER_DIRECTORY, message_bytes(&root), &found);
    ck_assert(found.ok);
    ck_assert_uint_eq(found.count, 2);
    expect(&found, 0, REFERENCE_FILE, 0);
    expect(&found, 1, REFERENCE_DIRECTORY, 1);

    directory_add_file(&child, "g", &digests[2]);
    message_add_message(&tree, 1, &root);
    message_add_message(&tree, 2, &child);
    message_add_text(&tree, 2, ""); /* an empty child */
    find(REFERRER_TREE, message_bytes(&tree), &found);
    ck_assert(found.ok);
    ck_assert_uint_eq(found.count, 3);
    expect(&found, 2, REFERENCE_FILE, 2);
    byte_builder_free(&tree);
}
END_TEST

START_TEST(references_of_nothing_are_none)
{
    struct found found;
    for (int referrer = REFERRER_ACTION_RESULT; referrer <= REFERRER_TREE; referrer++) {
        find((enum referrer)referrer, bytes_of(NULL, 0), &found);
        ck_assert(found.ok);
        ck_assert_uint_eq(found.count, 0);
    }
}
END_TEST

/* Each prefix lies in a block of its own, behind which AddressSanitizer watches. */
START_TEST(references_of_a_message_that_is_cut_are_a_beginning_or_an_error)
{
    struct byte_builder result = {0};
    struct found whole;
    whole_result(&result);
    find(REFERRER_ACTION_RESULT, message_bytes(&result), &whole);
    size_t refused = 0;
    for (size_t length = 0; length < result.length; length++) {
        uint8_t *const cut = malloc(length + 1);
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, result.data, length);
        struct found found;
        find(REFERRER_ACTION_RESULT, bytes_of(cut, length), &found);
        if (!found.ok)
            ck_assert_int_eq(found.status.code, STATUS_INVALID_ARGUMENT);
        refused += !found.ok;
        for (size_t i = 0; i < found.count; i++)
            ck_assert(digest_equal(&found.references[i].digest, &whole.references[i].digest));
        free(cut);
    }
    /* All but those that end between two fields, of which there are eleven. */
    ck_assert_uint_eq(refused, result.length - 11);
    byte_builder_free(&result);
}
END_TEST

static void expect_refused(enum referrer referrer, struct byte_builder *message, const char *text)
{
    struct found found;
    find(referrer, message_bytes(message), &found);
    ck_assert(!found.ok);
    ck_assert_int_eq(found.status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_msg(strstr(found.status.message, text) != NULL, "\"%s\" does not say \"%s\"",
                  found.status.message, text);
    byte_builder_free(message);
}

START_TEST(references_refuse_what_makes_no_sense_and_say_where)
{
    struct byte_builder message = {0};
    result_add_file(&message, "no digest", NULL);
    expect_refused(REFERRER_ACTION_RESULT, &message, "OutputFile: without a digest");

    result_add_directory(&message, "no digest", NULL, NULL);
    expect_refused(REFERRER_ACTION_RESULT, &message, "OutputDirectory: without a digest");

    message_add_number(&message, 2, 1);
    expect_refused(REFERRER_ACTION_RESULT, &message, "ActionResult: output_files");

    message_add_text(&message, 6,
                     "\x0a\x03"
                     "abc");
    expect_refused(REFERRER_ACTION_RESULT, &message, "ActionResult: stdout_digest");

    struct digest negative = digest_of_nothing(1);
    negative.size_bytes = -1;
    message_add_digest(&message, 8, &negative);
    expect_refused(REFERRER_ACTION_RESULT, &message, "ActionResult: stderr_digest");

    directory_add_directory(&message, "d", NULL);
    expect_refused(REFERRER_DIRECTORY, &message, "DirectoryNode: without a digest");

    message_add_text(&message, 1, "\xff\xff\xff\xff");
    expect_refused(REFERRER_TREE, &message, "Directory: malformed");
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("references");
    TCase *const tests = tcase_create("references");
    tcase_add_test(tests, references_of_an_action_result_are_all_found);
    tcase_add_test(tests, references_of_a_directory_and_a_tree_are_all_found);
    tcase_add_test(tests, references_of_nothing_are_none);
    tcase_add_test(tests, references_of_a_message_that_is_cut_are_a_beginning_or_an_error);
    tcase_add_test(tests, references_refuse_what_makes_no_sense_and_say_where);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
