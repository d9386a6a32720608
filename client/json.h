/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a stream, one value after the other; commas and quoting are taken care of. No
 * nesting limit is needed: what we print is three levels deep at most, and that is asserted.
 */
#ifndef VARVE_CLIENT_JSON_H
#define VARVE_CLIENT_JSON_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/digest.h"

enum { JSON_LEVELS_MAX = 8 };

struct json {
    FILE *to; /* borrowed */
    unsigned depth;
    bool has_members[JSON_LEVELS_MAX];
};

void json_init(struct json *json, FILE *to);

/* key: NULL inside an array and at the top. */
void json_open_object(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_open_array(struct json *json, const char *key);
void json_close_array(struct json *json);
void json_string(struct json *json,
                 const char *key,
                 const char *value); /* bytes that are not UTF-8 become U+FFFD */
void json_integer(struct json *json, const char *key, int64_t value);
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_real(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
/* {"hash": "...", "size_bytes": n} */
void json_digest(struct json *json, const char *key, const struct digest *digest);
/* The newline after the outermost value. */
void json_end(struct json *json);

#endif
