/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/http_path.h"

#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "proto/resource_name.h"

static const uint8_t *last_slash(struct bytes text);
static bool parse_number(struct bytes text, uint64_t *number);

bool http_path_parse(struct bytes path,
                     struct http_path *parsed,
                     bool *found,
                     struct status *status)
{
    *found = false;
    const uint8_t *const slash = last_slash(path);
    if (slash == NULL)
        return true;
    const size_t before = (size_t)(slash - path.data);
    const struct bytes hash = bytes_of(slash + 1, path.length - before - 1);
    const uint8_t *const kind_slash = last_slash(bytes_of(path.data, before));
    if (kind_slash == NULL)
        return true;
    const size_t kind_at = (size_t)(kind_slash - path.data);
    const struct bytes kind = bytes_of(kind_slash + 1, before - kind_at - 1);
    if (bytes_equal_string(kind, "cas"))
        parsed->target = HTTP_TARGET_CAS;
    else if (bytes_equal_string(kind, "ac"))
        parsed->target = HTTP_TARGET_AC;
    else
        return true;
    *found = true;
    /* Before it the instance, behind a slash of its own. */
    parsed->instance = kind_at > 0 && path.data[0] == '/' ? bytes_of(path.data + 1, kind_at - 1)
                                                          : bytes_of(path.data, kind_at);
    return instance_name_check(parsed->instance, status) &&
           digest_parse(DIGEST_FUNCTION_SHA256, hash, 0, &parsed->digest, status);
}

static const uint8_t *last_slash(struct bytes text)
{
    return text.length > 0 ? memrchr(text.data, '/', text.length) : NULL;
}

bool http_key_is_valid(struct bytes key)
{
    if (key.length == 0 || key.length > HTTP_KEY_BYTES_MAX || !bytes_is_utf8(key))
        return false;
    for (size_t i = 0; i < key.length; i++)
        if (key.data[i] < ' ' || key.data[i] == 0x7f)
            return false;
    return true;
}

static struct bytes trim(struct bytes text)
{
    while (text.length > 0 && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = bytes_of(text.data + 1, text.length - 1);
    while (text.length > 0 &&
           (text.data[text.length - 1] == ' ' || text.data[text.length - 1] == '\t'))
        text.length--;
    return text;
}

static bool parse_number(struct bytes text, uint64_t *number)
{
    enum { DIGITS_MAX = 18 }; /* no blob is so large, and no sum overflows */
    *number = 0;
    if (text.length == 0 || text.length > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text.data[i] - '0');
    }
    return true;
}

bool http_length_parse(struct bytes value, uint64_t *length)
{
    return parse_number(trim(value), length);
}

enum http_range http_range_parse(struct bytes value, uint64_t size, uint64_t *first, uint64_t *last)
{
    static const char unit[] = "bytes=";
    const struct bytes text = trim(value);
    if (text.length < sizeof(unit) || strncasecmp((const char *)text.data, unit, 6) != 0)
        return HTTP_RANGE_NONE;
    const struct bytes range = trim(bytes_of(text.data + 6, text.length - 6));
    const uint8_t *const dash = range.length > 0 ? memchr(range.data, '-', range.length) : NULL;
    if (dash == NULL || memchr(range.data, ',', range.length) != NULL)
        return HTTP_RANGE_NONE;
    const struct bytes from = trim(bytes_of(range.data, (size_t)(dash - range.data)));
    const struct bytes to =
        trim(bytes_of(dash + 1, range.length - (size_t)(dash - range.data) - 1));
    uint64_t number;
    if (from.length == 0) { /* so many at the end */
        if (!parse_number(to, &number))
            return HTTP_RANGE_NONE;
        if (number == 0 || size == 0)
            return HTTP_RANGE_UNSATISFIABLE;
        *first = number < size ? size - number : 0;
        *last = size - 1;
        return HTTP_RANGE_PART;
    }
    if (!parse_number(from, first))
        return HTTP_RANGE_NONE;
    *last = UINT64_MAX;
    if (to.length > 0 && (!parse_number(to, last) || *last < *first))
        return HTTP_RANGE_NONE;
    if (*first >= size)
        return HTTP_RANGE_UNSATISFIABLE;
    if (*last >= size)
        *last = size - 1;
    return HTTP_RANGE_PART;
}

/* "q=0", "q=0.0", "q=0.000": not wanted at all. */
static bool is_refused(struct bytes parameters)
{
    const struct bytes text = trim(parameters);
    if (text.length < 3 || (text.data[0] != 'q' && text.data[0] != 'Q') || text.data[1] != '=')
        return false;
    for (size_t i = 2; i < text.length; i++)
        if (text.data[i] != '0' && text.data[i] != '.')
            return false;
    return true;
}

bool http_list_accepts(struct bytes value, const char *coding)
{
    const size_t length = strlen(coding);
    size_t at = 0;
    while (at < value.length) {
        const uint8_t *const comma = memchr(value.data + at, ',', value.length - at);
        const size_t end = comma != NULL ? (size_t)(comma - value.data) : value.length;
        const struct bytes item = bytes_of(value.data + at, end - at);
        const uint8_t *const semicolon =
            item.length > 0 ? memchr(item.data, ';', item.length) : NULL;
        const size_t name_length =
            semicolon != NULL ? (size_t)(semicolon - item.data) : item.length;
        const struct bytes name = trim(bytes_of(item.data, name_length));
        if (name.length == length && strncasecmp((const char *)name.data, coding, length) == 0)
            return semicolon == NULL ||
                   !is_refused(bytes_of(semicolon + 1, item.length - name_length - 1));
        at = end + 1;
    }
    return false;
}

void http_date_put(int64_t seconds, char to[HTTP_DATE_BYTES])
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    static const int64_t year_9999_s = INT64_C(253402300799);
    if (seconds < 0 || seconds > year_9999_s)
        seconds = 0;
    const time_t time = (time_t)seconds;
    struct tm when = {0};
    gmtime_r(&time, &when);
    snprintf(to, HTTP_DATE_BYTES, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[when.tm_wday % 7],
             (unsigned int)when.tm_mday % 100, months[when.tm_mon % 12],
             (unsigned int)(when.tm_year + 1900) % 10000, (unsigned int)when.tm_hour % 100,
             (unsigned int)when.tm_min % 100, (unsigned int)when.tm_sec % 100);
}
