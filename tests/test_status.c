/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a status carries its code and one line of valid UTF-8 whatever is put into it: long
 * text, foreign bytes, characters cut in half, its own old message.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/status.h"
#include "tests/support/test_run.h"

static void assert_valid(const struct status *status)
{
    ck_assert_ptr_nonnull(memchr(status->message, '\0', sizeof(status->message)));
    ck_assert(bytes_is_utf8(bytes_of_string(status->message)));
}

START_TEST(failing_returns_false_and_sets_code_and_message)
{
    struct status status = {0};
    ck_assert(!status_fail(&status, STATUS_NOT_FOUND, "blob %d of %s", 7, "x"));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert_str_eq(status.message, "blob 7 of x");
}
END_TEST

START_TEST(an_errno_chooses_the_code_and_ends_the_message)
{
    static const struct {
        int error_number;
        enum status_code code;
    } cases[] = {
        {ENOSPC, STATUS_RESOURCE_EXHAUSTED},
        {EDQUOT, STATUS_RESOURCE_EXHAUSTED},
        {EMFILE, STATUS_RESOURCE_EXHAUSTED},
        {ENFILE, STATUS_RESOURCE_EXHAUSTED},
        {ENOMEM, STATUS_RESOURCE_EXHAUSTED},
        {ENOENT, STATUS_NOT_FOUND},
        {EIO, STATUS_INTERNAL},
        {EEXIST, STATUS_INTERNAL},
        {12345, STATUS_INTERNAL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct status status = {0};
        ck_assert(!status_fail_errno(&status, cases[i].error_number, "sync %s", "a"));
        ck_assert_int_eq(status.code, cases[i].code);
        ck_assert_int_eq(strncmp(status.message, "sync a: ", 8), 0);
        ck_assert_str_eq(status.message + 8, strerror(cases[i].error_number));
    }
}
END_TEST

START_TEST(a_prefix_stands_before_the_message_and_keeps_the_code)
{
    struct status status = {0};
    ck_assert(!status_fail(&status, STATUS_DATA_LOSS, "crc32c"));
    status_prefix(&status, "segment %d", 17);
    status_prefix(&status, "recovery");
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
    ck_assert_str_eq(status.message, "recovery: segment 17: crc32c");
}
END_TEST

START_TEST(a_message_may_be_made_from_the_old_one)
{
    struct status status = {0};
    ck_assert(!status_fail(&status, STATUS_INTERNAL, "first"));
    ck_assert(!status_fail(&status, STATUS_UNAVAILABLE, "second after %s", status.message));
    ck_assert_str_eq(status.message, "second after first");
    status_prefix(&status, "%s", status.message);
    ck_assert_str_eq(status.message, "second after first: second after first");
}
END_TEST

START_TEST(long_text_is_cut_at_every_length_and_stays_valid)
{
    /* Two-, three- and four-byte characters meet the end of the array at every offset. */
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\x8d"};
    for (size_t c = 0; c < ARRAY_LENGTH(characters); c++) {
        for (size_t lead = 0; lead < 8; lead++) {
            char text[2 * STATUS_MESSAGE_BYTES_MAX] = "";
            memset(text, '-', lead);
            for (size_t at = lead; at + 5 < sizeof(text); at += strlen(characters[c]))
                memcpy(text + at, characters[c], strlen(characters[c]) + 1);

            struct status status = {0};
            ck_assert(!status_fail(&status, STATUS_INTERNAL, "%s", text));
            assert_valid(&status);
            ck_assert_ptr_null(strchr(status.message, '?'));
            ck_assert_uint_ge(strlen(status.message), STATUS_MESSAGE_BYTES_MAX - 4);
            ck_assert_mem_eq(status.message, text, strlen(status.message));

            status_prefix(&status, "%s", text);
            assert_valid(&status);
            ck_assert(!status_fail_errno(&status, EIO, "%s", text));
            assert_valid(&status);
        }
    }
}
END_TEST

START_TEST(bytes_that_are_not_utf8_become_question_marks)
{
    struct status status = {0};
    ck_assert(!status_fail(&status, STATUS_INVALID_ARGUMENT,
                           "a\xff"
                           "b\xc3 \xed\xa0\x80."));
    ck_assert_str_eq(status.message, "a?b? ???.");
    assert_valid(&status);
}
END_TEST

START_TEST(any_bytes_give_a_valid_message)
{
    srand(1);
    for (int round = 0; round < 2000; round++) {
        char text[STATUS_MESSAGE_BYTES_MAX + 64];
        const size_t length = (size_t)rand() % sizeof(text);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)(1 + rand() % 255);
        text[length == sizeof(text) ? length - 1 : length] = '\0';
        struct status status = {0};
        ck_assert(!status_fail(&status, STATUS_INTERNAL, "%s", text));
        assert_valid(&status);
        status_prefix(&status, "%s", text);
        assert_valid(&status);
    }
}
END_TEST

START_TEST(codes_have_their_names_and_unknown_ones_are_unknown)
{
    ck_assert_str_eq(status_code_name(STATUS_OK), "OK");
    ck_assert_str_eq(status_code_name(STATUS_NOT_FOUND), "NOT_FOUND");
    ck_assert_str_eq(status_code_name(STATUS_UNAUTHENTICATED), "UNAUTHENTICATED");
    ck_assert_str_eq(status_code_name((enum status_code)17), "UNKNOWN");
    ck_assert_str_eq(status_code_name((enum status_code)99), "UNKNOWN");
}
END_TEST

START_TEST(failing_with_ok_is_our_own_mistake)
{
    struct status status = {0};
    status_fail(&status, STATUS_OK, "x");
}
END_TEST

START_TEST(a_status_that_is_ok_has_no_prefix)
{
    struct status status = {0};
    status_prefix(&status, "x");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *tests = tcase_create("status");
    tcase_add_test(tests, failing_returns_false_and_sets_code_and_message);
    tcase_add_test(tests, an_errno_chooses_the_code_and_ends_the_message);
    tcase_add_test(tests, a_prefix_stands_before_the_message_and_keeps_the_code);
    tcase_add_test(tests, a_message_may_be_made_from_the_old_one);
    tcase_add_test(tests, long_text_is_cut_at_every_length_and_stays_valid);
    tcase_add_test(tests, bytes_that_are_not_utf8_become_question_marks);
    tcase_add_test(tests, any_bytes_give_a_valid_message);
    tcase_add_test(tests, codes_have_their_names_and_unknown_ones_are_unknown);
    tcase_add_test_raise_signal(tests, failing_with_ok_is_our_own_mistake, SIGABRT);
    tcase_add_test_raise_signal(tests, a_status_that_is_ok_has_no_prefix, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
