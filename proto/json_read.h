/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON (RFC 8259) where it stands: members of an object by name, elements of an array one
 * after the other. Strict: all of a text is checked before anything of it is given out, names that
 * come twice are refused, nesting is bounded. Nothing is allocated.
 */
#ifndef VARVE_PROTO_JSON_READ_H
#define VARVE_PROTO_JSON_READ_H

#include "base/bytes.h"
#include "base/compiler.h"

enum { JSON_DEPTH_MAX = 16 };

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_kind kind;
    struct bytes text; /* borrowed; with its quotes or brackets */
};

/* One value and nothing behind it but blanks. */
MUST_CHECK bool json_parse(struct bytes text, struct json_value *value);

/* object: by json_parse(), of any kind. False: it has no such member, or is no object. */
bool json_member(const struct json_value *object, const char *name, struct json_value *member);

/* array: by json_parse() or of one, of any kind; *at 0 begins. False: there are no more. */
bool json_element(const struct json_value *array, size_t *at, struct json_value *element);

/* A string as UTF-8 with a NUL; false for another kind, one that has a NUL or does not fit. */
MUST_CHECK bool json_text(const struct json_value *value, char *to, size_t capacity);
bool json_text_is(const struct json_value *value, const char *text);

/* A number that is below 2^53; what stands behind its point is cut. */
MUST_CHECK bool json_whole_number(const struct json_value *value, int64_t *number);

#endif
