/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log_json.h"
#include "base/log_recent.h"

/* PIPE_BUF: up to this length lines of several threads and processes never mix in a pipe. */
enum { LINE_BYTES_MAX = 4096 };

static const char *const level_names[] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_ERROR] = "error",
};

static _Atomic enum log_level least_level = LOG_LEVEL_INFO;
static _Atomic enum log_format line_format = LOG_FORMAT_LOGFMT;

static size_t format_head(char line[LINE_BYTES_MAX], enum log_level level, const char *event);
static size_t end_line(char line[LINE_BYTES_MAX], size_t pairs_at, size_t length);
static void write_json(const char *line, size_t length);
static void write_line(const char *line, size_t length);
static size_t quoted_character(const char *text, char escaped[8], size_t *escaped_length);

void log_set_level(enum log_level level)
{
    ASSERT((size_t)level < ARRAY_LENGTH(level_names));
    atomic_store_explicit(&least_level, level, memory_order_relaxed);
}

void log_set_format(enum log_format format)
{
    atomic_store_explicit(&line_format, format, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *level)
{
    for (size_t i = 0; i < ARRAY_LENGTH(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    ASSERT((size_t)level < ARRAY_LENGTH(level_names));
    if (level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    const int saved_errno =
        errno; /* a log line in an error path must not change what the path sees */

    char line[LINE_BYTES_MAX];
    const size_t pairs_at = format_head(line, level, event);
    va_list arguments;
    va_start(arguments, format);
    const int formatted = vsnprintf(line + pairs_at, sizeof(line) - pairs_at, format, arguments);
    va_end(arguments);

    size_t length = pairs_at + (formatted > 0 ? (size_t)formatted : 0);
    length = end_line(line, pairs_at, length);
    if (level >= LOG_LEVEL_WARN)
        log_recent_keep(line, length - 1);
    if (atomic_load_explicit(&line_format, memory_order_relaxed) == LOG_FORMAT_JSON)
        write_json(line, length);
    else
        write_line(line, length);
    errno = saved_errno;
}

/* "time=... level=... event=... "; its length. */
static size_t format_head(char line[LINE_BYTES_MAX], enum log_level level, const char *event)
{
    const int64_t now_ns = clock_wall_ns(clock_real());
    const time_t seconds = (time_t)(now_ns / NS_PER_S);
    struct tm utc;
    ASSERT(gmtime_r(&seconds, &utc) != NULL);

    char second[32];
    ASSERT(strftime(second, sizeof(second), "%Y-%m-%dT%H:%M:%S", &utc) > 0);
    const int length = snprintf(line, LINE_BYTES_MAX, "time=%s.%03dZ level=%s event=%s ", second,
                                (int)(now_ns % NS_PER_S / NS_PER_MS), level_names[level], event);
    ASSERT(length > 0 && length < LINE_BYTES_MAX / 2);
    return (size_t)length;
}

/* Cuts, makes sure that one event is one line, and ends it; the length with the newline. */
static size_t end_line(char line[LINE_BYTES_MAX], size_t pairs_at, size_t length)
{
    static const char cut[] = " cut=true";
    const size_t room = LINE_BYTES_MAX - sizeof(cut); /* the NUL's place is the newline's */
    const bool too_long = length > room;

    if (too_long)
        length = pairs_at + bytes_utf8_prefix(bytes_of(line + pairs_at, room - pairs_at));
    for (size_t i = pairs_at; i < length; i++)
        if ((uint8_t)line[i] < ' ')
            line[i] = ' ';
    while (length > 0 && line[length - 1] == ' ')
        length--;
    if (too_long) {
        memcpy(line + length, cut, sizeof(cut) - 1);
        length += sizeof(cut) - 1;
    }
    line[length++] = '\n';
    return length;
}

/* line: with its newline. */
static void write_json(const char *line, size_t length)
{
    char json[LINE_BYTES_MAX];
    write_line(json, log_json_line(bytes_of(line, length - 1), json, sizeof(json)));
}

static void write_line(const char *line, size_t length)
{
    while (length > 0) {
        const ssize_t written = write(STDERR_FILENO, line, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) /* nobody is left to tell */
            return;
        line += written;
        length -= (size_t)written;
    }
}

const char *log_quote(struct log_text *into, const char *text)
{
    static const char dots[] = "...";
    const size_t room =
        sizeof(into->text) - sizeof(dots) - 1; /* then the dots, the quote, the NUL */
    size_t length = 0;

    into->text[length++] = '"';
    while (*text != '\0') {
        char escaped[8];
        size_t escaped_length;
        const size_t step = quoted_character(text, escaped, &escaped_length);
        if (length + escaped_length > room) {
            memcpy(into->text + length, dots, sizeof(dots) - 1);
            length += sizeof(dots) - 1;
            break;
        }
        memcpy(into->text + length, escaped, escaped_length);
        length += escaped_length;
        text += step;
    }
    into->text[length++] = '"';
    into->text[length] = '\0';
    return into->text;
}

/*
 * How the character at the start of text stands between quotes; the number of bytes of text that it
 * is.
 */
static size_t quoted_character(const char *text, char escaped[8], size_t *escaped_length)
{
    static const char hex[] = "0123456789abcdef";
    static const char special[] = "\"\\\n\r\t";
    static const char letters[] = "\"\\nrt";
    const uint8_t byte = (uint8_t)*text;

    const char *const found = strchr(special, byte);
    if (found != NULL) {
        escaped[0] = '\\';
        escaped[1] = letters[found - special];
        *escaped_length = 2;
        return 1;
    }
    if (byte >= ' ' && byte < 0x7f) {
        escaped[0] = *text;
        *escaped_length = 1;
        return 1;
    }
    /* One whole character of more bytes, if it is well-formed. */
    const size_t available = strnlen(text, 4);
    for (size_t length = 2; byte >= 0x80 && length <= available; length++) {
        if (bytes_is_utf8(bytes_of(text, length))) {
            memcpy(escaped, text, length);
            *escaped_length = length;
            return length;
        }
    }
    escaped[0] = '\\';
    escaped[1] = 'x';
    escaped[2] = hex[byte >> 4];
    escaped[3] = hex[byte & 0xf];
    *escaped_length = 4;
    return 1;
}
