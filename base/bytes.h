/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of bytes that somebody else owns, and lists of such runs (what a network or pwritev hands
 * round).
 */
#ifndef VARVE_BASE_BYTES_H
#define VARVE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Borrowed. data may be NULL only when length is 0. Not NUL-terminated. */
struct bytes {
    const uint8_t *data;
    size_t length;
};

/* One logical run in several parts, in order; parts of length 0 are allowed. Borrowed. */
struct bytes_list {
    const struct bytes *parts;
    size_t count;
};

static inline struct bytes bytes_of(const void *data, size_t length)
{
    return (struct bytes){.data = data, .length = length};
}

/* Without the terminating NUL. */
static inline struct bytes bytes_of_string(const char *string)
{
    return (struct bytes){.data = (const uint8_t *)string, .length = strlen(string)};
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static inline bool bytes_equal_string(struct bytes a, const char *string)
{
    return bytes_equal(a, bytes_of_string(string));
}

size_t bytes_list_length(struct bytes_list list);

/* Copies the whole list to `to`, which has room for bytes_list_length(). */
void bytes_list_copy(struct bytes_list list, uint8_t *to);

/* Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */
bool bytes_is_utf8(struct bytes bytes);

/*
 * Length of the longest well-formed beginning; a character that is cut off at the end does not
 * count.
 */
size_t bytes_utf8_prefix(struct bytes bytes);

#endif
