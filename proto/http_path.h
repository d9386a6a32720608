/* SPDX-License-Identifier: Apache-2.0 */
/* What HTTP clients of the cache write: paths, ranges, codings, and times; RFC 9110. */
#ifndef VARVE_PROTO_HTTP_PATH_H
#define VARVE_PROTO_HTTP_PATH_H

#include "base/digest.h"

enum http_target { HTTP_TARGET_CAS, HTTP_TARGET_AC };

struct http_path {
    enum http_target target;
    struct bytes instance; /* borrowed from the path; may be empty */
    struct digest digest;  /* of SHA-256; its size is not in the path and is 0 */
};

/*
 * [/INSTANCE]/cas/HASH, [/INSTANCE]/ac/HASH. *found false: it is another path, and nobody's fault. INVALID_ARGUMENT when it is one
 * of these and the hash is none, or the instance can be none.
 */
MUST_CHECK bool http_path_parse(struct bytes path,
                                struct http_path *parsed,
                                bool *found,
                                struct status *status);

/* A key: 1 to HTTP_KEY_BYTES_MAX bytes of UTF-8 without control bytes. */
enum { HTTP_KEY_BYTES_MAX = 1024 };
bool http_key_is_valid(struct bytes key);

/*
 * Range: of something of `size` bytes. NONE: all of it is to be sent, as there is no range, or more than one, or one that is
 * malformed. PART: *first to *last, both in it; else they mean nothing.
 */
enum http_range { HTTP_RANGE_NONE, HTTP_RANGE_PART, HTTP_RANGE_UNSATISFIABLE };
enum http_range http_range_parse(struct bytes value,
                                 uint64_t size,
                                 uint64_t *first,
                                 uint64_t *last);

/* Does Accept-Encoding (or any such list with q values) name this coding, and not with q=0? */
bool http_list_accepts(struct bytes value, const char *coding);

/* Digits alone, as Content-Length has; false when there is anything else, or too many. */
bool http_length_parse(struct bytes value, uint64_t *length);

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
enum { HTTP_DATE_BYTES = 30 };
void http_date_put(int64_t seconds, char to[HTTP_DATE_BYTES]);

#endif
