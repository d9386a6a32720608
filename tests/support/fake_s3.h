/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An S3 server in the test's process, on loopback, with its objects in memory. It checks signatures and payloads as a real one does,
 * from the bytes that it got, and does on demand what no real one does on demand. A thread for each connection. Any thread may call.
 */
#ifndef VARVE_TESTS_SUPPORT_FAKE_S3_H
#define VARVE_TESTS_SUPPORT_FAKE_S3_H

#include <stdbool.h>

#include "base/bytes.h"

#define FAKE_S3_ACCESS_KEY "AKIDFAKE"
#define FAKE_S3_SECRET "a/secret+of-the=fake"
#define FAKE_S3_REGION "eu-nowhere-1"
#define FAKE_S3_BUCKET "cas"

enum fake_s3_fault {
    FAKE_S3_SOUND,
    FAKE_S3_SLOW_DOWN,    /* 503 SlowDown */
    FAKE_S3_DENIED,       /* 403 AccessDenied */
    FAKE_S3_NO_BUCKET,    /* 404 NoSuchBucket */
    FAKE_S3_BAD_GATEWAY,  /* 502 with HTML, as a proxy has it */
    FAKE_S3_TRUNCATED,    /* half of the announced body, and the end of the connection */
    FAKE_S3_RESET,        /* half of the announced body, and a reset */
    FAKE_S3_HANG_UP,      /* the end of the connection instead of an answer */
    FAKE_S3_FLIPPED,      /* one bit of the body is another one */
    FAKE_S3_DAMAGED,      /* what came in is taken for damaged: 400 XAmzContentSHA256Mismatch */
    FAKE_S3_IGNORE_RANGE, /* 200 and all of it */
    FAKE_S3_OTHER_RANGE,  /* 206 of the range behind */
    FAKE_S3_ERROR_IN_200, /* 200 with <Error>InternalError */
    FAKE_S3_NO_XML,       /* 200 with what is no XML */
    FAKE_S3_SILENT,       /* never an answer */
    FAKE_S3_STALLED,      /* the head and half of the body, and then nothing */
    FAKE_S3_SLOW,         /* ten bytes of the body every tenth of a second */
};

struct fake_s3;

struct fake_s3 *fake_s3_start(void);
void fake_s3_stop(struct fake_s3 *fake); /* ends connections, waits for their threads */
int fake_s3_port(const struct fake_s3 *fake);

/*
 * The next `count` requests of this method ("PUT"; NULL: any) whose target contains `part` (NULL: any) meet this; -1: all, until
 * the next call.
 */
void fake_s3_fail(struct fake_s3 *fake,
                  enum fake_s3_fault fault,
                  int count,
                  const char *method,
                  const char *part);
/* Its clock is so far ahead of ours. */
void fake_s3_set_clock(struct fake_s3 *fake, int ahead_s);
/* Who may come from now on; token NULL: none is wanted. */
void fake_s3_set_secret(struct fake_s3 *fake, const char *secret, const char *token);
/* How many keys a listing gives at most, whatever is asked for. */
void fake_s3_set_page(struct fake_s3 *fake, int keys);

void fake_s3_store(struct fake_s3 *fake, const char *key, struct bytes bytes);
/* A copy, freed by the caller; NULL: not there. */
uint8_t *fake_s3_load(struct fake_s3 *fake, const char *key, size_t *length);
int fake_s3_objects(struct fake_s3 *fake);
/* Requests so far; method NULL: all. */
int fake_s3_requests(struct fake_s3 *fake, const char *method);
int fake_s3_connections(struct fake_s3 *fake); /* so far */
int fake_s3_uploads(struct fake_s3 *fake);     /* multipart, neither complete nor aborted */
/* The value of x-amz-meta-`name` of an object as a copy, freed by the caller, or NULL. */
char *fake_s3_note(struct fake_s3 *fake, const char *key, const char *name);

#endif
