/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/json_read.h"

#include <stdlib.h>

enum { SHORT_STRING_BYTES = 256, NUMBER_BYTES_MAX = 64 };

/* Where a text is read; `at` is past what was taken. */
struct reading {
    struct bytes text;
    size_t at;
};

static bool take_value(struct reading *reading, unsigned int depth, struct json_value *value);
static bool take_text(struct reading *reading);
static bool take_number(struct reading *reading);
static bool take_word(struct reading *reading, const char *word);
static bool take_object(struct reading *reading, unsigned int depth);
static bool take_array(struct reading *reading, unsigned int depth);
static void skip_blanks(struct reading *reading);
static bool take(struct reading *reading, char character);
static bool next_member(struct reading *reading,
                        struct json_value *name,
                        struct json_value *member);
static bool decode(struct bytes quoted, char *to, size_t capacity);

bool json_parse(struct bytes text, struct json_value *value)
{
    struct reading reading = {.text = text};
    skip_blanks(&reading);
    if (!bytes_is_utf8(text) || !take_value(&reading, 0, value))
        return false;
    skip_blanks(&reading);
    return reading.at == text.length;
}

static int peek(const struct reading *reading)
{
    return reading->at < reading->text.length ? reading->text.data[reading->at] : -1;
}

static void skip_blanks(struct reading *reading)
{
    for (;;) {
        const int next = peek(reading);
        if (next != ' ' && next != '\t' && next != '\n' && next != '\r')
            return;
        reading->at++;
    }
}

static bool take(struct reading *reading, char character)
{
    if (peek(reading) != character)
        return false;
    reading->at++;
    return true;
}

static bool take_value(struct reading *reading, unsigned int depth, struct json_value *value)
{
    const size_t start = reading->at;
    bool ok = false;
    switch (peek(reading)) {
    case '{':
        value->kind = JSON_OBJECT;
        ok = depth < JSON_DEPTH_MAX && take_object(reading, depth);
        break;
    case '[':
        value->kind = JSON_ARRAY;
        ok = depth < JSON_DEPTH_MAX && take_array(reading, depth);
        break;
    case '"':
        value->kind = JSON_STRING;
        ok = take_text(reading);
        break;
    case 't':
        value->kind = JSON_BOOLEAN;
        ok = take_word(reading, "true");
        break;
    case 'f':
        value->kind = JSON_BOOLEAN;
        ok = take_word(reading, "false");
        break;
    case 'n':
        value->kind = JSON_NULL;
        ok = take_word(reading, "null");
        break;
    default:
        value->kind = JSON_NUMBER;
        ok = take_number(reading);
        break;
    }
    value->text = bytes_of(reading->text.data + start, reading->at - start);
    return ok;
}

static bool take_word(struct reading *reading, const char *word)
{
    const size_t length = strlen(word);
    if (reading->text.length - reading->at < length ||
        memcmp(reading->text.data + reading->at, word, length) != 0)
        return false;
    reading->at += length;
    return true;
}

static size_t take_digits(struct reading *reading)
{
    const size_t start = reading->at;
    while (peek(reading) >= '0' && peek(reading) <= '9')
        reading->at++;
    return reading->at - start;
}

static bool take_number(struct reading *reading)
{
    (void)(take(reading, '-') || true);
    const bool zero = peek(reading) == '0';
    const size_t digits = take_digits(reading);
    if (digits == 0 || (zero && digits > 1))
        return false;
    if (take(reading, '.') && take_digits(reading) == 0)
        return false;
    if (take(reading, 'e') || take(reading, 'E')) {
        (void)(take(reading, '+') || take(reading, '-'));
        return take_digits(reading) > 0;
    }
    return true;
}

/* Its form alone; decode() looks at what the escapes come to. */
static bool take_text(struct reading *reading)
{
    if (!take(reading, '"'))
        return false;
    for (;;) {
        const int next = peek(reading);
        if (next < ' ')
            return false;
        reading->at++;
        if (next == '"')
            return true;
        if (next != '\\')
            continue;
        const int escaped = peek(reading);
        if (escaped < 0 || strchr("\"\\/bfnrtu", escaped) == NULL)
            return false;
        reading->at++;
        if (escaped != 'u')
            continue;
        for (int i = 0; i < 4; i++, reading->at++)
            if (peek(reading) < 0 || strchr("0123456789abcdefABCDEF", peek(reading)) == NULL)
                return false;
    }
}

/* Are there two members of one name? As they are written: escaped in two ways they pass as two. */
static bool has_twice(const struct json_value *object)
{
    struct reading outer = {.text = object->text, .at = 1};
    struct json_value name;
    struct json_value other;
    struct json_value member;
    while (next_member(&outer, &name, &member)) {
        struct reading inner = outer;
        while (next_member(&inner, &other, &member))
            if (bytes_equal(name.text, other.text))
                return true;
    }
    return false;
}

static bool take_object(struct reading *reading, unsigned int depth)
{
    enum { MEMBERS_MAX = 256 };
    const size_t start = reading->at;
    struct json_value ignored;
    size_t members = 0;
    reading->at++;
    skip_blanks(reading);
    if (take(reading, '}'))
        return true;
    do {
        skip_blanks(reading);
        if (++members > MEMBERS_MAX || !take_text(reading))
            return false;
        skip_blanks(reading);
        if (!take(reading, ':'))
            return false;
        skip_blanks(reading);
        if (!take_value(reading, depth + 1, &ignored))
            return false;
        skip_blanks(reading);
    } while (take(reading, ','));
    if (!take(reading, '}'))
        return false;
    const struct json_value whole = {
        .kind = JSON_OBJECT, .text = bytes_of(reading->text.data + start, reading->at - start)};
    return depth > 0 || !has_twice(&whole);
}

static bool take_array(struct reading *reading, unsigned int depth)
{
    struct json_value ignored;
    reading->at++;
    skip_blanks(reading);
    if (take(reading, ']'))
        return true;
    do {
        skip_blanks(reading);
        if (!take_value(reading, depth + 1, &ignored))
            return false;
        skip_blanks(reading);
    } while (take(reading, ','));
    return take(reading, ']');
}

/* Of an object that is sound. */
static bool next_member(struct reading *reading, struct json_value *name, struct json_value *member)
{
    skip_blanks(reading);
    if (take(reading, ','))
        skip_blanks(reading);
    if (peek(reading) != '"' || !take_value(reading, 0, name))
        return false;
    skip_blanks(reading);
    if (!take(reading, ':'))
        return false;
    skip_blanks(reading);
    return take_value(reading, 1, member);
}

bool json_member(const struct json_value *object, const char *name, struct json_value *member)
{
    if (object->kind != JSON_OBJECT)
        return false;
    struct reading reading = {.text = object->text, .at = 1};
    struct json_value found;
    while (next_member(&reading, &found, member))
        if (json_text_is(&found, name))
            return true;
    return false;
}

bool json_element(const struct json_value *array, size_t *at, struct json_value *element)
{
    if (array->kind != JSON_ARRAY)
        return false;
    struct reading reading = {.text = array->text, .at = *at == 0 ? 1 : *at};
    skip_blanks(&reading);
    if (take(&reading, ','))
        skip_blanks(&reading);
    if (peek(&reading) == ']' || !take_value(&reading, 1, element))
        return false;
    *at = reading.at;
    return true;
}

bool json_text(const struct json_value *value, char *to, size_t capacity)
{
    return value->kind == JSON_STRING && capacity > 0 && decode(value->text, to, capacity);
}

bool json_text_is(const struct json_value *value, const char *text)
{
    char decoded[SHORT_STRING_BYTES];
    return json_text(value, decoded, sizeof(decoded)) && strcmp(decoded, text) == 0;
}

static unsigned int hex4(const uint8_t *digits)
{
    unsigned int value = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned int digit = digits[i];
        value = value * 16 + (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    return value;
}

static size_t put_utf8(uint32_t character, uint8_t to[4])
{
    if (character < 0x80) {
        to[0] = (uint8_t)character;
        return 1;
    }
    if (character < 0x800) {
        to[0] = (uint8_t)(0xc0 | character >> 6);
        to[1] = (uint8_t)(0x80 | (character & 0x3f));
        return 2;
    }
    if (character < 0x10000) {
        to[0] = (uint8_t)(0xe0 | character >> 12);
        to[1] = (uint8_t)(0x80 | (character >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (character & 0x3f));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | character >> 18);
    to[1] = (uint8_t)(0x80 | (character >> 12 & 0x3f));
    to[2] = (uint8_t)(0x80 | (character >> 6 & 0x3f));
    to[3] = (uint8_t)(0x80 | (character & 0x3f));
    return 4;
}

/* The character of \uXXXX, or of two of them; false for half a pair. *at is behind "\u". */
static bool decode_escaped(struct bytes text, size_t *at, uint32_t *character)
{
    *character = hex4(text.data + *at);
    *at += 4;
    if (*character < 0xd800 || *character > 0xdfff)
        return true;
    if (*character > 0xdbff || text.length - *at < 6 || text.data[*at] != '\\' ||
        text.data[*at + 1] != 'u')
        return false;
    const uint32_t low = hex4(text.data + *at + 2);
    *at += 6;
    *character = 0x10000 + ((*character - 0xd800) << 10) + (low - 0xdc00);
    return low >= 0xdc00 && low <= 0xdfff;
}

/* Of a sound string with its quotes. */
static bool decode(struct bytes quoted, char *to, size_t capacity)
{
    static const char names[] = "bfnrt";
    static const char means[] = "\b\f\n\r\t";
    const struct bytes text = bytes_of(quoted.data + 1, quoted.length - 2);
    size_t length = 0;
    for (size_t at = 0; at < text.length;) {
        uint8_t piece[4] = {text.data[at++]};
        size_t piece_length = 1;
        if (piece[0] == '\\') {
            piece[0] = text.data[at++];
            const char *const named = strchr(names, piece[0]);
            uint32_t character;
            if (piece[0] == 'u') {
                if (!decode_escaped(text, &at, &character))
                    return false;
                piece_length = put_utf8(character, piece);
            } else if (named != NULL) {
                piece[0] = (uint8_t)means[named - names];
            }
        }
        if (piece[0] == '\0' || length + piece_length >= capacity)
            return false;
        memcpy(to + length, piece, piece_length);
        length += piece_length;
    }
    to[length] = '\0';
    return true;
}

bool json_whole_number(const struct json_value *value, int64_t *number)
{
    static const double exact_max = 9007199254740992.0; /* 2^53 */
    char text[NUMBER_BYTES_MAX];
    if (value->kind != JSON_NUMBER || value->text.length >= sizeof(text))
        return false;
    memcpy(text, value->text.data, value->text.length);
    text[value->text.length] = '\0';
    const double parsed = strtod(text, NULL);
    if (!(parsed > -exact_max && parsed < exact_max))
        return false;
    *number = (int64_t)parsed;
    return true;
}
