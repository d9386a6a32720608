/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that an answer is the stored result byte for byte but for what is put inline, that what is
 * inline already is left alone, that no answer grows past its bounds, and that a blob which is gone
 * by then is told.
 *
 * Method: answers are taken apart with protobuf-c, which shares no code with us.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

#include "server/action_answer.h"
#include "tests/support/messages.h"
#include "tests/support/real_store.h"
#include "tests/support/reapi_names.h"
#include "tests/support/test_run.h"

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

static void build(struct bytes result,
                  struct action_inline *wanted,
                  struct byte_builder *answer,
                  struct digest *gone,
                  size_t *gone_count)
{
    struct arena arena;
    struct status status = {0};
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    *answer = (struct byte_builder){0};
    ck_assert_msg(action_answer_inline(real.durability, &arena, DIGEST_FUNCTION_UNKNOWN, result,
                                       wanted, answer, gone, gone_count, &status),
                  "%s", status.message);
    arena_destroy(&arena);
}

static REAPI(ActionResult) * unpack(const struct byte_builder *answer)
{
    ProtobufCMessage *const message = protobuf_c_message_unpack(&REAPI_DESCRIPTOR(action_result),
                                                                NULL, answer->length, answer->data);
    ck_assert_ptr_nonnull(message);
    return (void *)message;
}

static void expect_text(ProtobufCBinaryData data, const char *text)
{
    ck_assert(bytes_equal_string(bytes_of(data.data, data.len), text));
}

/*
 * Files a, b, c with contents "a", "b", "c"; stdout "out", stderr "err"; an unknown field between
 * files.
 */
static void make_result(struct byte_builder *result)
{
    const struct digest a = real_store_put(&real, bytes_of_string("a"));
    const struct digest b = real_store_put(&real, bytes_of_string("b"));
    const struct digest c = real_store_put(&real, bytes_of_string("c"));
    const struct digest out = real_store_put(&real, bytes_of_string("out"));
    const struct digest err = real_store_put(&real, bytes_of_string("err"));
    *result = (struct byte_builder){0};
    result_add_file(result, "x/a", &a);
    message_add_text(result, 99, "of next year");
    result_add_file(result, "x/b", &b);
    result_add_file(result, "x/c", &c);
    message_add_number(result, 4, 7);
    message_add_digest(result, 6, &out);
    message_add_digest(result, 8, &err);
}

START_TEST(action_answer_inlines_what_was_asked_for_and_nothing_else)
{
    struct byte_builder result;
    make_result(&result);
    for (int asked = 0; asked < 32; asked++) {
        struct bytes paths[] = {bytes_of_string("nobody/has/it"), {0}, {0}, {0}, {0}};
        struct action_inline wanted = {.stdout_raw = (asked & 1) != 0,
                                       .stderr_raw = (asked & 2) != 0,
                                       .paths = paths,
                                       .path_count = 1};
        /* Not in the order of their names, and one of them twice. */
        if ((asked & 16) != 0) {
            paths[wanted.path_count++] = bytes_of_string("x/c");
            paths[wanted.path_count++] = bytes_of_string("x/c");
        }
        if ((asked & 4) != 0)
            paths[wanted.path_count++] = bytes_of_string("x/a");
        if ((asked & 8) != 0)
            paths[wanted.path_count++] = bytes_of_string("x/b");

        struct byte_builder answer;
        struct digest gone;
        size_t gone_count;
        build(message_bytes(&result), &wanted, &answer, &gone, &gone_count);
        ck_assert_uint_eq(gone_count, 0);
        REAPI(ActionResult) *const seen = unpack(&answer);
        expect_text(seen->stdout_raw, (asked & 1) != 0 ? "out" : "");
        expect_text(seen->stderr_raw, (asked & 2) != 0 ? "err" : "");
        ck_assert_uint_eq(seen->n_output_files, 3);
        for (size_t i = 0; i < 3; i++) {
            const char expected[] = {(char)('a' + i), '\0'};
            ck_assert(seen->output_files[i]->path[2] == expected[0]);
            expect_text(seen->output_files[i]->contents, (asked & (4 << i)) != 0 ? expected : "");
        }
        ck_assert_int_eq(seen->exit_code, 7);
        ck_assert_ptr_nonnull(seen->stdout_digest);
        ck_assert_uint_eq(seen->base.n_unknown_fields, 1);
        if (asked == 0)
            ck_assert(bytes_equal(message_bytes(&answer), message_bytes(&result)));
        protobuf_c_message_free_unpacked(&seen->base, NULL);
        byte_builder_free(&answer);
    }
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_answer_leaves_alone_what_is_inline_already)
{
    struct byte_builder result;
    make_result(&result);
    const struct digest d = real_store_put(&real, bytes_of_string("d"));
    struct byte_builder file = {0};
    message_add_text(&file, 1, "x/d");
    message_add_digest(&file, 2, &d);
    message_add_text(&file, 5, "as the client sent it");
    message_add_message(&result, 2, &file);
    message_add_text(&result, 5, "raw as the client sent it");

    struct bytes paths[] = {bytes_of_string("x/d")};
    struct action_inline wanted = {.stdout_raw = true, .paths = paths, .path_count = 1};
    struct byte_builder answer;
    struct digest gone;
    size_t gone_count;
    build(message_bytes(&result), &wanted, &answer, &gone, &gone_count);
    ck_assert(bytes_equal(message_bytes(&answer), message_bytes(&result)));
    byte_builder_free(&answer);
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_answer_stays_within_its_bounds)
{
    struct byte_builder result = {0};
    struct bytes paths[4];
    static const char *const names[] = {"0", "1", "2", "3"};
    uint8_t *const contents = calloc(1, 400 * KIB);
    ck_assert_ptr_nonnull(contents);
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        contents[0] = (uint8_t)i;
        const struct digest digest = real_store_put(&real, bytes_of(contents, 400 * KIB));
        result_add_file(&result, names[i], &digest);
        paths[i] = bytes_of_string(names[i]);
    }
    struct action_inline wanted = {.paths = paths, .path_count = ARRAY_LENGTH(paths)};
    struct byte_builder answer;
    struct digest gone;
    size_t gone_count;
    build(message_bytes(&result), &wanted, &answer, &gone, &gone_count);
    REAPI(ActionResult) *seen = unpack(&answer);
    ck_assert_uint_eq(seen->output_files[0]->contents.len, 400 * KIB);
    ck_assert_uint_eq(seen->output_files[1]->contents.len, 400 * KIB);
    ck_assert_uint_eq(seen->output_files[2]->contents.len, 0);
    ck_assert_uint_le(answer.length, result.length + LIMIT_INLINE_BYTES);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    byte_builder_free(&answer);

    /* A result of nearly 3 MiB leaves less room than that. */
    while (result.length < LIMIT_ACTION_RESULT_BYTES - 100)
        message_add(&result, 99,
                    bytes_of(contents, LIMIT_ACTION_RESULT_BYTES - result.length - 90 < 100 * KIB
                                           ? LIMIT_ACTION_RESULT_BYTES - result.length - 90
                                           : 100 * KIB));
    build(message_bytes(&result), &wanted, &answer, &gone, &gone_count);
    ck_assert_uint_le(answer.length + action_answer_metadata(message_bytes(&result)).length,
                      LIMIT_RESPONSE_BYTES);
    ck_assert_uint_gt(answer.length, result.length + 400 * KIB);
    byte_builder_free(&answer);
    byte_builder_free(&result);
    free(contents);
}
END_TEST

START_TEST(action_answer_tells_of_a_blob_that_is_gone_by_then)
{
    struct byte_builder result;
    make_result(&result);
    struct digest out;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("out"), &out);
    real_store_damage(&real, &out);
    struct action_inline wanted = {.stdout_raw = true};
    struct byte_builder answer;
    struct digest gone;
    size_t gone_count;
    build(message_bytes(&result), &wanted, &answer, &gone, &gone_count);
    ck_assert_uint_eq(gone_count, 1);
    ck_assert(digest_equal(&gone, &out));
    byte_builder_free(&answer);
    byte_builder_free(&result);
}
END_TEST

START_TEST(action_answer_has_execution_metadata_in_any_case)
{
    struct byte_builder result = {0};
    const struct bytes added = action_answer_metadata(message_bytes(&result));
    ck_assert_uint_eq(added.length, 2);
    byte_builder_append(&result, added);
    REAPI(ActionResult) *const seen = unpack(&result);
    ck_assert_ptr_nonnull(seen->execution_metadata);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    ck_assert_uint_eq(action_answer_metadata(message_bytes(&result)).length, 0);
    byte_builder_free(&result);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("action_answer");
    TCase *const tests = tcase_create("action_answer");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, action_answer_inlines_what_was_asked_for_and_nothing_else);
    tcase_add_test(tests, action_answer_leaves_alone_what_is_inline_already);
    tcase_add_test(tests, action_answer_stays_within_its_bounds);
    tcase_add_test(tests, action_answer_tells_of_a_blob_that_is_gone_by_then);
    tcase_add_test(tests, action_answer_has_execution_metadata_in_any_case);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
