/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that an event is one line and one write, in logfmt or JSON, whatever text is in it and however many
 * threads log at once: stderr is a pipe, or a socket that keeps writes apart, and is read back.
 */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/log_json.h"
#include "base/thread.h"
#include "tests/support/test_run.h"

/* Stderr as datagrams: what comes out of one read is what went in with one write. */
static int reader = -1;
static int saved_stderr = -1;

static void catch_stderr(void)
{
    int sockets[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(sockets[1], STDERR_FILENO), 0);
    close(sockets[1]);
    reader = sockets[0];
}

static void release_stderr(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(reader);
}

/* The next line without its newline; "" when there is none. */
static const char *next_line(void)
{
    static char line[8192];
    const ssize_t got = recv(reader, line, sizeof(line) - 1, MSG_DONTWAIT);
    if (got < 0) {
        ck_assert_int_eq(errno, EAGAIN);
        return "";
    }
    ck_assert_int_gt(got, 0);
    ck_assert_int_eq(line[got - 1], '\n');
    line[got - 1] = '\0';
    ck_assert_uint_eq(strlen(line), (size_t)got - 1);
    ck_assert_ptr_null(strchr(line, '\n'));
    return line;
}

static void assert_matches(const char *line, const char *pattern)
{
    regex_t regex;
    ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ck_assert_msg(regexec(&regex, line, 0, NULL, 0) == 0, "%s does not match %s", line, pattern);
    regfree(&regex);
}

#define TIME "^time=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "

START_TEST(an_event_is_one_line_in_logfmt)
{
    log_event(LOG_LEVEL_WARN, "segment_tail_cut", "segment=%d lost_bytes=%d", 17, 4096);
    assert_matches(next_line(),
                   TIME "level=warn event=segment_tail_cut segment=17 lost_bytes=4096$");
    log_event(LOG_LEVEL_ERROR, "ready", "%s", "");
    assert_matches(next_line(), TIME "level=error event=ready$");
    ck_assert_str_eq(next_line(), "");
}
END_TEST

START_TEST(lines_below_the_level_are_dropped)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    log_event(LOG_LEVEL_DEBUG, "start", "a=1");
    ck_assert_str_eq(next_line(), "");
    for (size_t least = 0; least < ARRAY_LENGTH(names); least++) {
        enum log_level level = LOG_LEVEL_ERROR;
        ck_assert(log_level_parse(names[least], &level));
        ck_assert_uint_eq((size_t)level, least);
        log_set_level(level);
        for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
            log_event((enum log_level)i, "x", "a=1");
            ck_assert_int_eq(next_line()[0] != '\0', i >= least);
        }
    }
    enum log_level level;
    ck_assert(!log_level_parse("WARN", &level));
    ck_assert(!log_level_parse("", &level));
}
END_TEST

START_TEST(a_newline_in_the_pairs_does_not_make_a_second_line)
{
    log_event(LOG_LEVEL_INFO, "x", "a=1\nlevel=error event=forged\r\x1b[2J");
    assert_matches(next_line(), TIME "level=info event=x a=1 level=error event=forged  \\[2J$");
    ck_assert_str_eq(next_line(), "");
}
END_TEST

static bool ends_with(const char *line, const char *end)
{
    const size_t length = strlen(line);
    return length >= strlen(end) && strcmp(line + length - strlen(end), end) == 0;
}

START_TEST(a_long_event_is_cut_and_says_so)
{
    char *text = malloc(10001);
    int whole = 0;
    int cut = 0;
    ck_assert_ptr_nonnull(text);
    for (size_t length = 3900; length < 10000; length += length < 4200 ? 1 : 511) {
        memset(text, 'a', length);
        memcpy(text + length - 2, "\xc3\xa9", 3);
        log_event(LOG_LEVEL_INFO, "x", "%s", text);
        const char *line = next_line();
        ck_assert_uint_lt(strlen(line), 4096);
        ck_assert(bytes_is_utf8(bytes_of_string(line)));
        ck_assert(ends_with(line, "a\xc3\xa9") || ends_with(line, "a cut=true"));
        if (strstr(line, text) != NULL)
            whole++;
        else
            cut += ends_with(line, "a cut=true");
    }
    ck_assert_int_gt(whole, 0);
    ck_assert_int_gt(cut, 0);
    free(text);
}
END_TEST

START_TEST(errno_is_as_before)
{
    errno = EXDEV;
    log_event(LOG_LEVEL_INFO, "x", "a=1");
    ck_assert_int_eq(errno, EXDEV);
    close(STDERR_FILENO);
    errno = EXDEV;
    log_event(LOG_LEVEL_INFO, "x", "a=1");
    ck_assert_int_eq(errno, EXDEV);
}
END_TEST

static void log_many(void *argument)
{
    for (int i = 0; i < 300; i++)
        log_event(LOG_LEVEL_INFO, "x", "thread=%s text=%0500d", (const char *)argument, 7);
}

static int lines_of(FILE *stream)
{
    char *line = NULL;
    size_t capacity = 0;
    int lines = 0;
    while (getline(&line, &capacity, stream) > 0) {
        assert_matches(line, TIME "level=info event=x thread=[ab] text=0{499}7\n$");
        lines++;
    }
    free(line);
    return lines;
}

START_TEST(lines_of_threads_do_not_mix)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    struct thread threads[2] = {{0}};
    struct status status = {0};
    char names[2][2] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        ck_assert(thread_start(&threads[i], "logger", 0, log_many, names[i], &status));

    /* Read while they write: together they are more than a pipe holds. */
    FILE *stream = fdopen(ends[0], "r");
    ck_assert_ptr_nonnull(stream);
    char *line = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 600; i++) {
        ck_assert_int_gt(getline(&line, &capacity, stream), 0);
        assert_matches(line, TIME "level=info event=x thread=[ab] text=0{499}7\n$");
    }
    free(line);
    for (int i = 0; i < 2; i++)
        thread_join(&threads[i]);
    dup2(saved_stderr, STDERR_FILENO);
    ck_assert_int_eq(lines_of(stream), 0);
    fclose(stream);
}
END_TEST

START_TEST(quoting_leaves_plain_text_and_escapes_the_rest)
{
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"", "\"\""},
        {"plain text = fine", "\"plain text = fine\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"line\nnext\r\t", "\"line\\nnext\\r\\t\""},
        {"\x01\x1f\x7f", "\"\\x01\\x1f\\x7f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x8d", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x8d\""},
        {"\xff\xc3", "\"\\xff\\xc3\""},
        {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\""},
        {"\xc3\xa9\x80z", "\"\xc3\xa9\\x80z\""},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct log_text into;
        ck_assert_str_eq(log_quote(&into, cases[i].text), cases[i].quoted);
        ck_assert_ptr_eq(log_quote(&into, cases[i].text), into.text);
    }
}
END_TEST

START_TEST(quoted_text_is_cut_between_characters)
{
    static const char *const units[] = {"a", "\"", "\x01", "\xc3\xa9", "\xf0\x9f\x8c\x8d", "\xff"};
    for (size_t u = 0; u < ARRAY_LENGTH(units); u++) {
        for (size_t lead = 0; lead < 5; lead++) {
            char text[4 * LOG_TEXT_BYTES_MAX] = "";
            memset(text, '-', lead);
            for (size_t at = lead; at + 5 < sizeof(text); at += strlen(units[u]))
                memcpy(text + at, units[u], strlen(units[u]) + 1);
            struct log_text into;
            const char *quoted = log_quote(&into, text);
            const size_t length = strlen(quoted);
            ck_assert_uint_lt(length, sizeof(into.text));
            ck_assert_uint_ge(length, sizeof(into.text) - 8);
            ck_assert(bytes_is_utf8(bytes_of_string(quoted)));
            ck_assert_str_eq(quoted + length - 4, "...\"");
            /* No escape is left open: an even number of backslashes, or whole ones, before the dots. */
            size_t backslashes = 0;
            while (quoted[length - 5 - backslashes] == '\\')
                backslashes++;
            ck_assert_uint_eq(backslashes % 2, 0);
        }
    }
}
END_TEST

/* ---- JSON */

static void turn_to_json(void)
{
    log_set_format(LOG_FORMAT_JSON);
}

START_TEST(an_event_is_one_json_object_a_line)
{
    struct log_text into;
    turn_to_json();
    log_event(LOG_LEVEL_WARN, "x", "segment=%d digest=%s uid=%016x ratio=%s empty= text=%s", -17,
              "0012", 0x7, "0.25", log_quote(&into, "a \"b\" \\ c=d\n\t\x01\xc3\xa9\xff"));
    assert_matches(next_line(), "^\\{\"time\":\"[0-9T:.-]+Z\",\"level\":\"warn\",\"event\":\"x\","
                                "\"segment\":-17,\"digest\":\"0012\",\"uid\":\"0000000000000007\","
                                "\"ratio\":0.25,\"empty\":\"\",\"text\":\"a \\\\\"b\\\\\" \\\\\\\\ "
                                "c=d\\\\n\\\\t\\\\\\\\x01\xc3\xa9\\\\\\\\xff\"\\}$");
    log_event(LOG_LEVEL_ERROR, "ready", "%s", "");
    assert_matches(next_line(), "\"level\":\"error\",\"event\":\"ready\"}$");
    ck_assert_str_eq(next_line(), "");
}
END_TEST

START_TEST(numbers_in_json_are_those_that_every_reader_takes)
{
    static const struct {
        const char *pairs, *line;
    } cases[] = {
        {"a=0 b=-0 c=10 d=123456789012345", "{\"a\":0,\"b\":-0,\"c\":10,\"d\":123456789012345}\n"},
        {"a=1234567890123456", "{\"a\":\"1234567890123456\"}\n"},
        {"a=007 b=1e3 c=.5 d=1. e=1.2.3 f=- g=+1",
         "{\"a\":\"007\",\"b\":\"1e3\",\"c\":\".5\",\"d\":\"1.\",\"e\":\"1.2.3\",\"f\":\"-\","
         "\"g\":\"+1\"}\n"},
        {"a=\"17\" word b=1", "{\"a\":\"17\",\"word\":\"\",\"b\":1}\n"},
        {"  a=0.5   b=nan ", "{\"a\":0.5,\"b\":\"nan\"}\n"},
        {"a=\xff\x80z \"=1", "{\"a\":\"\\ufffd\\ufffdz\",\"\\\"\":1}\n"},
        {"a=\"b\\", "{\"a\":\"b\\\\\",\"cut\":true}\n"},
        {"a=\"long cut=true", "{\"a\":\"long\",\"cut\":true}\n"},
        {"", "{}\n"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char line[256];
        const size_t length =
            log_json_line(bytes_of_string(cases[i].pairs), line, sizeof(line) - 1);
        line[length] = '\0';
        ck_assert_str_eq(line, cases[i].line);
    }
}
END_TEST

/* Whatever its length, it ends as an object: looked at for each length, with text that grows when it is escaped. */
START_TEST(a_long_event_is_a_whole_json_object_that_says_so)
{
    char text[6000];
    int cut = 0;
    turn_to_json();
    for (size_t length = 1; length<sizeof(text); length += length> 1900 && length < 2100 ? 1 : 61) {
        memset(text, '"', length);
        text[length] = '\0';
        log_event(LOG_LEVEL_INFO, "x", "first=1 text=%s last=2", text);
        const char *const line = next_line();
        ck_assert_uint_lt(strlen(line), 4096);
        ck_assert(ends_with(line, ",\"last\":2}") || ends_with(line, ",\"cut\":true}"));
        ck_assert_ptr_nonnull(strstr(line, "\"first\":1"));
        cut += ends_with(line, ",\"cut\":true}");
    }
    ck_assert_int_gt(cut, 0);
    for (size_t capacity = 64; capacity < 300; capacity++) {
        const struct bytes pairs =
            bytes_of_string("a=1 text=\"\xc3\xa9\xc3\xa9\\n\\n\\\"\" b=22 c=\"three\"");
        const size_t length = log_json_line(pairs, text, capacity);
        ck_assert_uint_le(length, capacity);
        ck_assert_int_eq(memcmp(text + length - 2, "}\n", 2), 0);
        ck_assert(bytes_is_utf8(bytes_of(text, length)));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, catch_stderr, release_stderr);
    tcase_add_test(tests, an_event_is_one_line_in_logfmt);
    tcase_add_test(tests, lines_below_the_level_are_dropped);
    tcase_add_test(tests, a_newline_in_the_pairs_does_not_make_a_second_line);
    tcase_add_test(tests, a_long_event_is_cut_and_says_so);
    tcase_add_test(tests, errno_is_as_before);
    tcase_add_test(tests, lines_of_threads_do_not_mix);
    tcase_add_test(tests, quoting_leaves_plain_text_and_escapes_the_rest);
    tcase_add_test(tests, quoted_text_is_cut_between_characters);
    tcase_add_test(tests, an_event_is_one_json_object_a_line);
    tcase_add_test(tests, numbers_in_json_are_those_that_every_reader_takes);
    tcase_add_test(tests, a_long_event_is_a_whole_json_object_that_says_so);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
