/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket on a server that speaks S3: AWS, Ceph's radosgw, MinIO and others. Over libcurl; signed by tier/sigv4.h.
 *
 * Uploads carry the SHA-256 of what they send, so that the server refuses damaged ones. Larger ones than multipart_above_bytes go in
 * parts. An answer to a range is taken only if it says that it is that range. Clocks that differ are set by the server's Date.
 * What the limits and the breaker do: docs/operations.md.
 *
 * Credentials are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or from a file as AWS's tools have it,
 * which is read again when it changes. They are never logged.
 */
#ifndef VARVE_TIER_S3_H
#define VARVE_TIER_S3_H

#include "base/clock.h"
#include "base/metrics.h"
#include "tier/breaker.h"
#include "tier/driver.h"

enum s3_addressing {
    S3_PATH_STYLE,   /* http://host/bucket/key */
    S3_VIRTUAL_HOST, /* http://bucket.host/key */
};

/* 0 in any of them: what stands beside it. */
struct s3_limits {
    int64_t connect_ns; /* 1 s: to a connection, with TLS */
    int64_t
        first_byte_ns; /* 2 s: from a request to its answer's first byte; LIST and multi-delete: five times that */
    int64_t put_answer_ns;          /* 10 s: the same for uploads, from their last byte */
    int64_t low_speed_ns;           /* 5 s: in which at least ... */
    uint64_t low_speed_bytes;       /* ... 320 KiB must move */
    uint64_t multipart_above_bytes; /* 64 MiB */
    uint64_t part_bytes;            /* 16 MiB; more when there would be over 10,000 parts */
};

struct s3_config {
    const char *endpoint; /* "https://s3.eu-central-1.amazonaws.com", "http://10.0.0.7:7480" */
    const char *region;
    const char *bucket;
    enum s3_addressing addressing;
    const char *ca_file;             /* PEM; NULL: those of the system */
    const char *credentials_file;    /* NULL: the environment */
    const char *credentials_profile; /* NULL: "default" */
    size_t connections_max;          /* calls at a time; others wait. 1 or more */
    size_t stats_max;                /* requests at a time of one stat_many; 0: 16 */
    struct s3_limits limits;
    struct clock *clock; /* borrowed, as the next */
    struct metrics *metrics;
};

struct s3;

/*
 * Asks nothing of the server. Texts are copied.
 * INVALID_ARGUMENT: the endpoint, the bucket's name or the region is none; FAILED_PRECONDITION: no credentials, and what to set.
 */
MUST_CHECK bool s3_new(const struct s3_config *config, struct s3 **s3, struct status *status);
/* Every call ends within a moment, with CANCELLED, and so does every later one. Any thread. */
void s3_stop(struct s3 *s3);
void s3_free(struct s3 *s3); /* nobody calls any more; NULL is fine */

struct bucket *s3_bucket(struct s3 *s3);
enum breaker_state s3_breaker_state(struct s3 *s3);
int64_t s3_clock_skew_s(struct s3 *s3); /* the server's minus ours, as far as it mattered */

#endif
