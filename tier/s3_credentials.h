/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who we are to the S3 server, and the signing key of the day. From the environment, once; or from a file
 *
 *   [default]
 *   aws_access_key_id = AKIA...
 *   aws_secret_access_key = ...
 *   aws_session_token = ...
 *
 * which is looked at once a second and read again when it has changed; one that has become unreadable leaves what was. Any thread.
 */
#ifndef VARVE_TIER_S3_CREDENTIALS_H
#define VARVE_TIER_S3_CREDENTIALS_H

#include "base/clock.h"
#include "base/status.h"
#include "tier/sigv4.h"

enum {
    S3_ACCESS_KEY_BYTES = 129, /* with the NUL, as all of these */
    S3_SECRET_BYTES = 257,
    S3_TOKEN_BYTES = 4097,
    S3_CREDENTIALS_FILE_BYTES_MAX = 65536,
};

struct s3_credentials;

/* What one request needs. */
struct s3_signing {
    char access_key[S3_ACCESS_KEY_BYTES];
    char token[S3_TOKEN_BYTES]; /* "": none */
    struct sigv4_key key;
};

/* file NULL: the environment. FAILED_PRECONDITION names what is missing and where. */
MUST_CHECK bool s3_credentials_new(const char *file,
                                   const char *profile,
                                   const char *region,
                                   struct clock *clock,
                                   struct s3_credentials **credentials,
                                   struct status *status);
void s3_credentials_free(struct s3_credentials *credentials);

void s3_credentials_take(struct s3_credentials *credentials,
                         const char day[SIGV4_DAY_BYTES],
                         struct s3_signing *signing);

#endif
