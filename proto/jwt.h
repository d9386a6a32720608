/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Web Tokens (RFC 7519) in their compact form (RFC 7515), taken apart: nothing here is
 * believed before the signature is verified, which is somebody else's. Texts of errors never show
 * any of the token.
 */
#ifndef VARVE_PROTO_JWT_H
#define VARVE_PROTO_JWT_H

#include "base/status.h"
#include "proto/json_read.h"

enum { JWT_BYTES_MAX = 8192, JWT_SIGNATURE_BYTES_MAX = 1024 };

enum jwt_algorithm { JWT_RS256, JWT_ES256, JWT_EDDSA };

/* Some 10 KiB; points into itself and must not be copied. */
struct jwt {
    enum jwt_algorithm algorithm;
    struct bytes signed_text; /* what the signature is over; borrowed from the token */
    uint8_t signature[JWT_SIGNATURE_BYTES_MAX];
    size_t signature_bytes;
    struct json_value claims; /* an object; in `payload` */
    uint8_t payload[JWT_BYTES_MAX];
};

/* Two dots, as all tokens of this form have: worth trying jwt_parse(). */
bool jwt_looks_like_one(struct bytes token);

/*
 * UNAUTHENTICATED saying what is wrong: no JWT, an algorithm other than RS256, ES256 and EdDSA, a
 * header that marks extensions as critical.
 */
MUST_CHECK bool jwt_parse(struct bytes token, struct jwt *jwt, struct status *status);

/* What a token must say to be ours, and now. */
struct jwt_demand {
    const char *issuer;
    const char *audience;
    int64_t now_s; /* since 1970 */
    int64_t leeway_s;
};

/* iss, aud (one or a list), exp (needed), nbf. *expires_s: with the leeway. UNAUTHENTICATED. */
MUST_CHECK bool jwt_check(const struct jwt *jwt,
                          const struct jwt_demand *demand,
                          int64_t *expires_s,
                          struct status *status);

#endif
