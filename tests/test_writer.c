/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is written down of the writer of an action result is told apart again, whatever tools and users are called, and
 * that a purge by writer means whole words: nobody whose name only begins alike.
 */
#include <stdio.h>

#include "server/access.h"
#include "server/writer.h"
#include "tests/support/test_run.h"

static void assert_text(struct bytes bytes, const char *text)
{
    ck_assert_msg(bytes_equal_string(bytes, text), "\"%.*s\" is not \"%s\"", (int)bytes.length,
                  (const char *)bytes.data, text);
}

START_TEST(what_is_put_together_is_told_apart)
{
    static const struct {
        const char *tool, *user, *address, *text;
    } cases[] = {
        {"bazel", "ci", "ipv4:10.0.0.7:51034", "bazel user:ci ipv4:10.0.0.7:51034"},
        {"", "", "unix:", "unix:"},
        {"bazel", "", "10.0.0.7", "bazel 10.0.0.7"},
        {"", "ci", "ipv6:%5B::1%5D:5", "user:ci ipv6:%5B::1%5D:5"},
        {"my build tool", "Alice B", "10.0.0.7", "my build tool user:Alice B 10.0.0.7"},
        {"user:mallory", "ci", "10.0.0.7", "user:mallory user:ci 10.0.0.7"},
        {"super user:x y", "ci", "10.0.0.7", "super user:x y user:ci 10.0.0.7"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[WRITER_BYTES_MAX];
        struct access_caller caller = {.known = cases[i].user[0] != '\0'};
        snprintf(caller.user, sizeof(caller.user), "%s", cases[i].user);
        const size_t length =
            writer_put(text, bytes_of_string(cases[i].tool), &caller, cases[i].address);
        assert_text(bytes_of(text, length), cases[i].text);
        const struct writer writer = writer_parse(bytes_of(text, length));
        assert_text(writer.tool, cases[i].tool);
        assert_text(writer.user, cases[i].user);
        assert_text(writer.address, cases[i].address);
    }
}
END_TEST

/* Nobody has shown who it is: the name of a tool is what a client says. */
START_TEST(a_tool_that_calls_itself_a_user_is_not_taken_for_that_user)
{
    static const char *const tools[] = {"user:alice", "bazel user:alice", "user:alice user:bob"};
    const struct access_caller nobody = {.known = false};
    for (size_t i = 0; i < ARRAY_LENGTH(tools); i++) {
        char text[WRITER_BYTES_MAX];
        const size_t length = writer_put(text, bytes_of_string(tools[i]), &nobody, "10.0.0.7");
        const struct bytes put = bytes_of(text, length);
        assert_text(writer_parse(put).user, "");
        assert_text(writer_parse(put).tool, tools[i]);
        assert_text(writer_parse(put).address, "10.0.0.7");
        ck_assert(!writer_matches(put, bytes_of_string("user:alice")));
        ck_assert(!writer_matches(put, bytes_of_string("user:bob")));
    }
}
END_TEST

START_TEST(a_tool_that_is_too_long_is_cut_between_characters)
{
    char tool[1000];
    char text[WRITER_BYTES_MAX];
    const struct access_caller caller = {.known = true, .user = "ci"};
    for (size_t i = 0; i + 1 < sizeof(tool); i += 2)
        memcpy(tool + i, "\xc3\xa9", 2);
    for (size_t lead = 0; lead < 2; lead++) {
        const size_t length =
            writer_put(text, bytes_of(tool, sizeof(tool) - lead), &caller, "10.0.0.7");
        ck_assert_uint_lt(length, sizeof(text));
        ck_assert(bytes_is_utf8(bytes_of(text, length)));
        assert_text(writer_parse(bytes_of(text, length)).user, "ci");
        assert_text(writer_parse(bytes_of(text, length)).address, "10.0.0.7");
    }
}
END_TEST

START_TEST(a_writer_is_meant_by_a_whole_word_of_it)
{
    static const char *const text = "bazel user:ci ipv4:10.0.0.7:51034";
    static const struct {
        const char *wanted;
        bool matches;
    } cases[] = {
        {"", true},
        {"bazel user:ci ipv4:10.0.0.7:51034", true},
        {"bazel", true},
        {"user:ci", true},
        {"ipv4:10.0.0.7:51034", true},
        {"ipv4:10.0.0.7", true},
        {"baz", false},
        {"bazel user:ci", false},
        {"ci", false},
        {"user:c", false},
        {"user:", false},
        {"user:ci2", false},
        {"ipv4:10.0.0", false},
        {"ipv4:10.0.0.7:5103", false},
        {"10.0.0.7", false},
        {" ", false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        ck_assert_msg(writer_matches(bytes_of_string(text), bytes_of_string(cases[i].wanted)) ==
                          cases[i].matches,
                      "\"%s\"", cases[i].wanted);
    ck_assert(writer_matches(bytes_of_string("ci 10.0.0.7"), bytes_of_string("ci")));
    ck_assert(writer_matches(bytes_of_string("10.0.0.7"), bytes_of_string("10.0.0.7")));
    ck_assert(!writer_matches(bytes_of_string(""), bytes_of_string("x")));
    ck_assert(writer_matches(bytes_of_string(""), bytes_of_string("")));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("writer");
    TCase *const tests = tcase_create("writer");
    tcase_add_test(tests, what_is_put_together_is_told_apart);
    tcase_add_test(tests, a_tool_that_calls_itself_a_user_is_not_taken_for_that_user);
    tcase_add_test(tests, a_tool_that_is_too_long_is_cut_between_characters);
    tcase_add_test(tests, a_writer_is_meant_by_a_whole_word_of_it);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
