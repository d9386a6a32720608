/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to an S3 server and its answer: signed, sent, watched, and its answer judged. For tier/s3*.c.
 *
 *   connecting    connect_ns, TLS included
 *   waiting       for the answer's first byte, after the request's last: first_byte_ns of the exchange
 *   moving        low_speed_bytes in each low_speed_ns; what our own source or sink takes does not count
 *   all of it     the caller's deadline
 *
 * The time in which it fails is bounded by those alone: a server that accepts and says nothing is a failure like others.
 */
#ifndef VARVE_TIER_S3_EXCHANGE_H
#define VARVE_TIER_S3_EXCHANGE_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "tier/s3.h"
#include "tier/s3_credentials.h"

enum {
    S3_HOST_BYTES = 320,
    S3_PARAMETERS_MAX = 6,
    S3_ETAG_BYTES = 128,
    S3_BODY_BYTES_MAX = 8 << 20, /* of an answer that is read whole: 1,000 keys are below 2 MiB */
    S3_ERROR_BODY_BYTES_MAX = 64 << 10, /* beyond it an error's text is cut */
};

/* Connections that are kept, of one caller at a time. */
struct s3_session {
    CURLM *multi;
    struct s3_session *next; /* while it is idle */
};

struct s3 {
    struct bucket bucket;
    /* Set when it is made, never changed. */
    char origin[S3_HOST_BYTES]; /* "https://host:port" */
    char host[S3_HOST_BYTES];   /* as in the Host header */
    char root[80];              /* "/bucket", or "" for virtual hosts */
    char *region;               /* owned */
    char *ca_file;              /* owned; NULL: those of the system */
    size_t stats_max;
    struct s3_limits limits;
    struct clock *clock;     /* borrowed */
    struct metrics *metrics; /* borrowed */
    struct s3_credentials *credentials;
    bool curl_ready;

    struct breaker breaker;
    _Atomic int64_t skew_s;
    _Atomic bool stopped;

    struct lock lock;
    struct condition session_free;
    struct s3_session *idle; /* guarded by lock; owned */
    size_t sessions_left;    /* guarded by lock: that may still be made */
};

enum s3_method { S3_GET, S3_HEAD, S3_PUT, S3_POST, S3_DELETE };

struct s3_exchange {
    /* Set by the caller; zero is none. */
    enum s3_method method;
    const char *key; /* NULL: the bucket itself */
    struct sigv4_pair parameters[S3_PARAMETERS_MAX];
    size_t parameter_count;
    const struct bucket_note *notes; /* x-amz-meta-... */
    size_t note_count;
    bool if_absent;
    const char *content_md5; /* base64 */
    /* PUT, POST: source's bytes from source_offset on, with their hash. */
    struct bucket_source source;
    uint64_t source_offset, source_bytes;
    const uint8_t *sha256;
    uint64_t range_offset, range_bytes; /* GET; 0 bytes: all */
    struct bucket_sink sink;            /* of a good answer; write NULL: it is gathered in body */
    int64_t first_byte_ns;
    int64_t deadline_ns; /* 0: none */

    /* The answer. */
    bool ok;     /* an answer of 200 to 299 came, whole; else status says what */
    bool absent; /* 404, and it may be the key's; status is set as well */
    struct status status;
    int http_code; /* 0: none */
    uint8_t *body; /* owned: s3_exchange_clear() */
    size_t body_bytes;
    uint64_t object_bytes; /* of the whole object */
    int64_t modified_s;
    char etag[S3_ETAG_BYTES];
    bool has_sha256;
    uint8_t sha256_noted[32];

    /* The exchange's own. */
    struct s3 *s3;
    CURL *easy;
    struct curl_slist *headers;
    struct breaker_pass pass;
    char curl_error[CURL_ERROR_SIZE];
    uint64_t sent_bytes; /* given to curl since the last seek */
    uint64_t received_bytes, expected_bytes;
    bool expected_known, judged, may_sink;
    size_t body_capacity;
    bool broken_off; /* by callbacks or limits: status is set */
    bool own_fault;  /* by our source, sink or stop: says nothing of the server */
    int64_t local_ns;
    int64_t started_ns, waiting_since_ns, window_ns;
    uint64_t window_bytes;
    int64_t signed_wall_s, date_s, server_ahead_s;
    bool range_told;
    uint64_t told_offset, told_end, told_total;
    char region_hint[64];
};

/*
 * Carries out all of them, at most in_flight_max at a time, on one session; each says in ok and status how it went. False: not one
 * was begun, for the reason given.
 */
MUST_CHECK bool s3_exchange_many(struct s3 *s3,
                                 struct s3_exchange *exchanges,
                                 size_t count,
                                 size_t in_flight_max,
                                 int64_t deadline_ns,
                                 struct status *status);
/* One; true and status as exchange->ok and exchange->status. */
MUST_CHECK bool s3_exchange_one(struct s3 *s3, struct s3_exchange *exchange, struct status *status);
void s3_exchange_clear(struct s3_exchange *exchange);

/* The failure that an <Error> document or a code tells of; always false. */
bool s3_answer_fail(struct s3_exchange *exchange, struct status *status);

#endif
