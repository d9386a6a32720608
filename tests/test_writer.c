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
        {"my build tool", "Alice B", "10.0.0.7", "my build tool user:Alice%20B 10.0.0.7"},
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
        struct writer writer;
        writer_parse(bytes_of(text, length), &writer);
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
        struct writer writer;
        writer_parse(put, &writer);
        assert_text(writer.user, "");
        assert_text(writer.tool, tools[i]);
        assert_text(writer.address, "10.0.0.7");
        ck_assert(!writer_matches(put, bytes_of_string("user:alice")));
        ck_assert(!writer_matches(put, bytes_of_string("user:bob")));
    }
}
END_TEST

/* Names come from password files and from what an identity provider lets its users be called. */
START_TEST(a_user_whose_name_has_another_user_in_it_is_not_taken_for_that_one)
{
    static const char *const names[] = {
        "mallory user:alice",
        "mallory user:alice 10.0.0.7",
        " user:alice",
        "user:alice",
        "mallory\tuser:alice",
        "mallory\nuser:alice",
        "mallory\r\n user:alice \x7f\x01",
        "mallory%20user:alice",
        "mallory%2520user:alice",
        "alice ",
        "alice%",
        "%61lice",
        "%",
        " ",
        "  a  b  ",
        "J\xc3\xbcrgen user:alice",
    };
    static const char *const tools[] = {"", "bazel", "bazel user:alice", "user:alice "};
    for (size_t i = 0; i < ARRAY_LENGTH(names) * ARRAY_LENGTH(tools); i++) {
        const char *const name = names[i / ARRAY_LENGTH(tools)];
        const char *const tool = tools[i % ARRAY_LENGTH(tools)];
        char text[WRITER_BYTES_MAX];
        char wanted[WRITER_BYTES_MAX];
        struct access_caller caller = {.known = true};
        struct writer writer;
        snprintf(caller.user, sizeof(caller.user), "%s", name);
        const struct bytes put =
            bytes_of(text, writer_put(text, bytes_of_string(tool), &caller, "10.0.0.7"));
        for (size_t at = 0; at < put.length; at++)
            ck_assert(put.data[at] >= ' ' && put.data[at] != 0x7f);
        writer_parse(put, &writer);
        assert_text(writer.user, name);
        assert_text(writer.tool, tool);
        assert_text(writer.address, "10.0.0.7");
        ck_assert(!writer_matches(put, bytes_of_string("user:alice")));
        snprintf(wanted, sizeof(wanted), "user:%s", name);
        ck_assert(writer_matches(put, bytes_of_string(wanted)));
    }
}
END_TEST

START_TEST(the_longest_names_leave_room_for_the_address_and_the_tool_gives_way)
{
    static const char bytes[] = {'x', ' ', '%', '\n'};
    char tool[1000];
    char address[200] = "unix:/a b user:alice ";
    memset(tool, 't', sizeof(tool));
    memset(address + strlen(address), 'a', 100);
    for (size_t i = 0; i < ARRAY_LENGTH(bytes); i++) {
        char text[WRITER_BYTES_MAX];
        struct access_caller caller = {.known = true};
        struct writer writer;
        memset(caller.user, bytes[i], ACCESS_NAME_BYTES_MAX);
        const size_t length = writer_put(text, bytes_of(tool, sizeof(tool)), &caller, address);
        ck_assert_uint_lt(length, sizeof(text));
        ck_assert_uint_eq(length, strlen(text));
        writer_parse(bytes_of(text, length), &writer);
        assert_text(writer.user, caller.user);
        ck_assert_uint_ge(writer.tool.length, 16);
        ck_assert_uint_le(writer.tool.length, 256);
        ck_assert_mem_eq(writer.address.data, "unix:/a%20b%20user:alice%20aaaa", 31);
    }
}
END_TEST

START_TEST(names_of_older_stores_are_read_as_they_were_written)
{
    static const char *const names[] = {"Alice B", "50%", "a%b", "%zz", "a%4"};
    char text[WRITER_BYTES_MAX];
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct writer writer;
        snprintf(text, sizeof(text), "bazel user:%s 10.0.0.7", names[i]);
        writer_parse(bytes_of_string(text), &writer);
        assert_text(writer.user, names[i]);
        assert_text(writer.tool, "bazel");
    }
    /* A record of somebody else may have any text. */
    static char huge[60000];
    struct writer writer;
    memset(huge, '%', sizeof(huge));
    memcpy(huge, "user:", 5);
    memcpy(huge + sizeof(huge) - 2, " a", 2);
    writer_parse(bytes_of(huge, sizeof(huge)), &writer);
    ck_assert_uint_eq(writer.user.length, sizeof(huge) - 7);
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
        struct writer writer;
        writer_parse(bytes_of(text, length), &writer);
        assert_text(writer.user, "ci");
        assert_text(writer.address, "10.0.0.7");
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
    tcase_add_test(tests, a_user_whose_name_has_another_user_in_it_is_not_taken_for_that_one);
    tcase_add_test(tests, the_longest_names_leave_room_for_the_address_and_the_tool_gives_way);
    tcase_add_test(tests, names_of_older_stores_are_read_as_they_were_written);
    tcase_add_test(tests, a_tool_that_is_too_long_is_cut_between_characters);
    tcase_add_test(tests, a_writer_is_meant_by_a_whole_word_of_it);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
