/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Signature Version 4 for S3: the Authorization header of a request. The path is percent-encoded once and sent exactly as it is
 * signed; the payload is named by its SHA-256, so that the server refuses one that was damaged on its way.
 *
 * Source: AWS, "Authenticating Requests (AWS Signature Version 4)". Any thread; nothing is kept.
 */
#ifndef VARVE_TIER_SIGV4_H
#define VARVE_TIER_SIGV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum {
    SIGV4_KEY_BYTES = 32,
    SIGV4_DAY_BYTES = sizeof("20261231"),
    SIGV4_TIME_BYTES = sizeof("20261231T235959Z"),
    SIGV4_SHA256_HEX_BYTES = 65,
    SIGV4_PAIRS_MAX = 32,
};

/* The signing key of one day, region and service; costs four HMACs, so it is worth keeping for the day. */
struct sigv4_key {
    uint8_t bytes[SIGV4_KEY_BYTES];
};
void sigv4_derive(const char *secret,
                  const char day[SIGV4_DAY_BYTES],
                  const char *region,
                  const char *service,
                  struct sigv4_key *key);

/* "20261231T235959Z", in UTC; the day is its first eight characters. */
void sigv4_time(int64_t wall_s, char time[SIGV4_TIME_BYTES]);

struct sigv4_pair {
    const char *name;  /* of a header: lower-case */
    const char *value; /* of a header: without spaces around it, nor two of them together */
};

struct sigv4_request {
    const char *method;
    const char *path;  /* encoded: sigv4_encode_path() */
    const char *query; /* encoded and sorted: sigv4_encode_query(); "" when there is none */
    const struct sigv4_pair *headers; /* those that are signed, in any order */
    size_t header_count;              /* at most SIGV4_PAIRS_MAX */
    const char *payload_sha256;       /* hex, or "UNSIGNED-PAYLOAD"; as in x-amz-content-sha256 */
};

/* Where and when a signature is good. */
struct sigv4_scope {
    const char *access_key;
    const char *region;
    const char *service;
    const char *time; /* sigv4_time() */
};

/* The value of the Authorization header. False: it does not fit. */
MUST_CHECK bool sigv4_sign(const struct sigv4_request *request,
                           const struct sigv4_scope *scope,
                           const struct sigv4_key *key,
                           char *authorization,
                           size_t capacity);

/* Every byte outside A-Za-z0-9-._~/ as %XX. False: it does not fit. */
MUST_CHECK bool sigv4_encode_path(const char *path, char *encoded, size_t capacity);
/* "a=b&c=", sorted by name and then value, '/' encoded as well. At most SIGV4_PAIRS_MAX. False: it does not fit. */
MUST_CHECK bool sigv4_encode_query(const struct sigv4_pair *pairs,
                                   size_t count,
                                   char *encoded,
                                   size_t capacity);

/* Lower-case hex with a NUL: to has 2 * length + 1. */
void sigv4_hex(const uint8_t *data, size_t length, char *to);

#endif
