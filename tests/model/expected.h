/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map that a store is compared with: what was acknowledged must be there, what was sent may be
 * there, nothing else is. The contents of blobs are made once a run; what is known of them is a
 * plain value, so that a crash image takes it along.
 */
#ifndef VARVE_TESTS_MODEL_EXPECTED_H
#define VARVE_TESTS_MODEL_EXPECTED_H

#include "store/store.h"
#include "tests/model/model.h"

enum {
    MODEL_BLOBS = 480,
    MODEL_ACTIONS = 48,
    MODEL_VERSIONS = 64, /* of one action's result */
    RESULT_BYTES_MAX = 20000,
};

/* ---- contents */

enum content_kind {
    CONTENT_BLOB,
    /* Bytes that look like records of a segment, of blobs that nobody ever sends. */
    CONTENT_FORGED,
    /* Such a blob. */
    CONTENT_NEVER,
};

struct content {
    enum content_kind kind;
    struct digest digest;
    uint8_t *data; /* owned */
    size_t length;
};

struct contents {
    struct content blobs[MODEL_BLOBS];
    struct digest actions[MODEL_ACTIONS];
};

struct contents *contents_new(uint64_t seed);
void contents_free(struct contents *contents);

/* Whose result the nth action is. */
struct bytes contents_instance(size_t action);
/* The nth version of an action's result, whose length is returned. */
size_t contents_result(size_t action, size_t version, uint8_t result[RESULT_BYTES_MAX]);

static inline bool content_is_large(const struct content *content)
{
    return content->length > LIMIT_SMALL_BLOB_BYTES;
}

/* ---- what is known */

struct expected_blob {
    bool must;          /* acknowledged, and neither forgotten nor evicted since */
    bool may;           /* sent, and not known to be gone */
    bool shaky;         /* may be evicted right now */
    bool failed;        /* somebody was told that it is not stored, in this life */
    uint32_t sent;      /* how often */
    uint32_t in_flight; /* those not answered */
    uint32_t removed;   /* how often a forget or an eviction was begun */
};

struct expected_action {
    uint64_t allowed; /* a bit a version */
    bool may_be_absent;
    bool shaky;
    bool failed;
    uint32_t sent; /* versions; the next one's number */
    uint32_t in_flight;
    uint32_t removed;
};

struct expected {
    struct expected_blob blobs[MODEL_BLOBS];
    struct expected_action actions[MODEL_ACTIONS];
};

void expected_init(struct expected *expected);

void expected_blob_sent(struct expected_blob *blob);
/* removed: as it was when the blob was sent. ok: it was acknowledged. */
void expected_blob_answered(struct expected_blob *blob, uint32_t removed, bool ok);
size_t expected_action_sent(struct expected_action *action); /* the version */
void expected_action_answered(struct expected_action *action,
                              size_t version,
                              uint32_t removed,
                              bool ok);
void expected_blob_removed(struct expected_blob *blob);
void expected_action_removed(struct expected_action *action);

/* ---- what a store has */

struct seen {
    bool blobs[MODEL_BLOBS];
    int versions[MODEL_ACTIONS]; /* -1: absent */
    /* Where the entries lie: for messages. */
    struct place blob_places[MODEL_BLOBS];
    struct place action_places[MODEL_ACTIONS];
};

/* How much is read: large blobs take the time of many small ones. */
enum look { LOOK_AT_ALL, LOOK_AT_SMALL_AND_SOME };

/*
 * Asks the store for everything. Fails if it does not agree with itself, gives a wrong byte, or
 * fails to read.
 */
void seen_in_store(struct seen *seen,
                   struct store *store,
                   const struct contents *contents,
                   enum look look,
                   struct prng *prng);
/* Fails if something is not as expected. what: for the message. */
void seen_check(const struct seen *seen, const struct expected *expected, const char *what);
/* Fails if they differ. */
void seen_compare(const struct seen *seen, const struct seen *other, const char *what);

/* What the store has now it has for good, and nothing else. */
void expected_learn(struct expected *expected, const struct seen *seen);

/*
 * Did a read fail by the disk, and not by what is on it? A record that the disk refuses is DATA_LOSS, too, and counted:
 * unreadable_before is the count from before the read.
 */
bool disk_failed(struct store *store, const struct status *status, int64_t unreadable_before);
/* One of them; false when the disk failed to read it. */
MUST_CHECK bool look_at_blob(struct store *store, const struct content *content, bool *there);
MUST_CHECK bool look_at_action(struct store *store,
                               const struct contents *contents,
                               size_t action,
                               int *version);

#endif
