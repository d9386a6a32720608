/* SPDX-License-Identifier: Apache-2.0 */
#include "client/name_escape.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* An escaped byte: \xHH */
enum { ESCAPE_BYTES = 4 };

static size_t character_length(struct bytes rest);
static int hex_value(char digit);

bool name_needs_escape(const char *name)
{
    return strchr(name, '\\') != NULL || !bytes_is_utf8(bytes_of_string(name));
}

char *name_escape(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    struct bytes rest = bytes_of_string(name);
    char *escaped = malloc(rest.length * ESCAPE_BYTES + 1);
    if (escaped == NULL)
        return NULL;
    char *to = escaped;
    while (rest.length > 0) {
        size_t length = character_length(rest);
        if (length == 0) {
            *to++ = '\\';
            *to++ = 'x';
            *to++ = digits[rest.data[0] >> 4];
            *to++ = digits[rest.data[0] & 15];
            length = 1;
        } else {
            if (rest.data[0] == '\\')
                *to++ = '\\';
            memcpy(to, rest.data, length);
            to += length;
        }
        rest = bytes_of(rest.data + length, rest.length - length);
    }
    *to = '\0';
    return escaped;
}

/* Of the UTF-8 character at the start; 0: there is none. */
static size_t character_length(struct bytes rest)
{
    for (size_t length = 1; length <= 4 && length <= rest.length; length++) {
        if (bytes_is_utf8(bytes_of(rest.data, length)))
            return length;
    }
    return 0;
}

bool name_unescape(const char *escaped, char **name_out, struct status *status)
{
    char *name = malloc(strlen(escaped) + 1);
    if (name == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a name");
    char *to = name;
    bool ok = true;
    for (const char *at = escaped; *at != '\0' && ok;) {
        if (at[0] != '\\') {
            *to++ = *at++;
        } else if (at[1] == '\\') {
            *to++ = '\\';
            at += 2;
        } else if (at[1] == 'x' && hex_value(at[2]) >= 0 && hex_value(at[3]) >= 0 &&
                   hex_value(at[2]) * 16 + hex_value(at[3]) > 0) {
            *to++ = (char)(hex_value(at[2]) * 16 + hex_value(at[3]));
            at += ESCAPE_BYTES;
        } else {
            ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                             "a backslash that escapes nothing in a name");
        }
    }
    *to = '\0';
    if (!ok) {
        free(name);
        return false;
    }
    *name_out = name;
    return true;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}
