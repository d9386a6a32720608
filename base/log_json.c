/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_json.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

enum { DIGITS_MAX = 15 };

static const char cut_pair[] = "\"cut\":true";
static const char line_end[] = "}\n";

/* What is written; full once something has not fitted. */
struct out {
    char *line;
    size_t length, capacity;
    bool full;
};

/* A pair of the line. */
struct pair {
    struct bytes key, value;
    bool quoted;
    bool open; /* the quote is not closed: the line was cut in it */
};

static bool next_pair(struct bytes *rest, struct pair *pair);
static bool is_cut(const struct pair *pair);
static void put_pair(struct out *out, const struct pair *pair);
static void put_string(struct out *out, struct bytes text, bool unquote);
static size_t put_character(struct out *out, struct bytes text);
static bool is_number(struct bytes value);
static void put(struct out *out, const char *text, size_t length);

size_t log_json_line(struct bytes pairs, char *line, size_t capacity)
{
    ASSERT(capacity >= 64);
    /* Room for the end is kept: , and "cut":true and what closes the object. */
    struct out out = {.line = line, .capacity = capacity - sizeof(cut_pair) - sizeof(line_end)};
    struct pair pair;
    bool cut = false;
    line[out.length++] = '{';
    while (next_pair(&pairs, &pair)) {
        const size_t before = out.length;
        cut |= pair.open || is_cut(&pair);
        if (is_cut(&pair))
            continue; /* said once, at the end */
        out.full = false;
        if (before > 1)
            put(&out, ",", 1);
        put_pair(&out, &pair);
        if (out.full) {
            out.length = before;
            cut = true;
        }
    }
    out.capacity = capacity;
    out.full = false;
    if (cut) {
        put(&out, ",", out.length > 1 ? 1 : 0);
        put(&out, cut_pair, sizeof(cut_pair) - 1);
    }
    put(&out, line_end, sizeof(line_end) - 1);
    ASSERT(!out.full);
    return out.length;
}

/* key=value, key="value" with backslashes before quotes in it, or a lone word. False at the end. */
static bool next_pair(struct bytes *rest, struct pair *pair)
{
    const uint8_t *at = rest->data;
    const uint8_t *const end = rest->data + rest->length;
    while (at < end && *at == ' ')
        at++;
    if (at == end)
        return false;
    const uint8_t *const key_at = at;
    while (at < end && *at != '=' && *at != ' ')
        at++;
    *pair = (struct pair){.key = bytes_of(key_at, (size_t)(at - key_at)), .quoted = true};
    if (at < end && *at == '=') {
        at++;
        pair->quoted = at < end && *at == '"';
        const uint8_t *const value_at = pair->quoted ? ++at : at;
        while (at < end && *at != (pair->quoted ? '"' : ' '))
            at += pair->quoted && *at == '\\' && at + 1 < end ? 2 : 1;
        pair->open = pair->quoted && at == end;
        pair->value = bytes_of(value_at, (size_t)(at - value_at));
        at += pair->quoted && at < end ? 1 : 0;
    }
    *rest = bytes_of(at, (size_t)(end - at));
    return true;
}

static bool is_cut(const struct pair *pair)
{
    return bytes_equal(pair->key, bytes_of_string("cut"));
}

static void put_pair(struct out *out, const struct pair *pair)
{
    static const char mark[] = " cut=true"; /* as base/log.c ends a line that it cuts */
    const size_t mark_bytes = sizeof(mark) - 1;
    struct bytes value = pair->value;
    if (pair->open && value.length >= mark_bytes &&
        memcmp(value.data + value.length - mark_bytes, mark, mark_bytes) == 0)
        value.length -= mark_bytes;
    put_string(out, pair->key, false);
    put(out, ":", 1);
    if (!pair->quoted && is_number(value))
        put(out, (const char *)value.data, value.length);
    else
        put_string(out, value, pair->quoted);
}

static void put_string(struct out *out, struct bytes text, bool unquote)
{
    put(out, "\"", 1);
    while (text.length > 0 && !out->full) {
        size_t step = 0;
        if (unquote && text.data[0] == '\\' && text.length > 1 &&
            strchr("\"\\nrt", text.data[1]) != NULL) {
            /* These are the same in both; \xHH stays as it is read. */
            put(out, (const char *)text.data, 2);
            step = 2;
        } else {
            step = put_character(out, text);
        }
        text = bytes_of(text.data + step, text.length - step);
    }
    put(out, "\"", 1);
}

/* How many bytes of the text it took. */
static size_t put_character(struct out *out, struct bytes text)
{
    const uint8_t byte = text.data[0];
    char escaped[8];
    if (byte == '"' || byte == '\\') {
        escaped[0] = '\\';
        escaped[1] = (char)byte;
        put(out, escaped, 2);
        return 1;
    }
    if (byte < ' ' || byte == 0x7f) {
        snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
        put(out, escaped, 6);
        return 1;
    }
    if (byte < 0x80) {
        put(out, (const char *)text.data, 1);
        return 1;
    }
    for (size_t length = 2; length <= 4 && length <= text.length; length++) {
        if (bytes_is_utf8(bytes_of(text.data, length))) {
            put(out, (const char *)text.data, length);
            return length;
        }
    }
    put(out, "\\ufffd", 6);
    return 1;
}

/* -0, 17, 0.25; not 007, 1e3, .5, 1.2.3. */
static bool is_number(struct bytes value)
{
    size_t at = value.length > 0 && value.data[0] == '-' ? 1 : 0;
    const size_t first = at;
    size_t digits = 0;
    size_t points = 0;
    for (; at < value.length; at++) {
        if (value.data[at] == '.' && digits > 0)
            points++;
        else if (value.data[at] >= '0' && value.data[at] <= '9')
            digits++;
        else
            return false;
    }
    if (digits == 0 || digits > DIGITS_MAX || points > 1 || value.data[value.length - 1] == '.')
        return false;
    return value.data[first] != '0' || value.length == first + 1 || value.data[first + 1] == '.';
}

static void put(struct out *out, const char *text, size_t length)
{
    if (length > out->capacity - out->length) {
        out->full = true;
        return;
    }
    memcpy(out->line + out->length, text, length);
    out->length += length;
}
