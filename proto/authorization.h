/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of an Authorization header (or of gRPC's metadata of that name): Basic (RFC 7617) or
 * Bearer (RFC 6750). Texts of errors never show any of it.
 */
#ifndef VARVE_PROTO_AUTHORIZATION_H
#define VARVE_PROTO_AUTHORIZATION_H

#include "base/bytes.h"
#include "base/status.h"

enum {
    AUTHORIZATION_BYTES_MAX = 16384,
    AUTHORIZATION_USER_BYTES_MAX = 128,
    AUTHORIZATION_PASSWORD_BYTES_MAX = 512,
};

enum authorization_scheme { AUTHORIZATION_BASIC, AUTHORIZATION_BEARER };

struct authorization {
    enum authorization_scheme scheme;
    struct bytes token;                          /* BEARER: not empty; borrowed from the value */
    char user[AUTHORIZATION_USER_BYTES_MAX + 1]; /* BASIC: UTF-8, not empty */
    char password[AUTHORIZATION_PASSWORD_BYTES_MAX + 1]; /* BASIC: wiped by who has used it */
};

/* UNAUTHENTICATED saying what is wrong with its form. */
MUST_CHECK bool authorization_parse(struct bytes value,
                                    struct authorization *authorization,
                                    struct status *status);

#endif
