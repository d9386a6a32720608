/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash test has sent to a server and what came of it: the only witness of what was
 * acknowledged. The bytes of a blob follow from its seed and size, so that they can be made again
 * and compared. Every step is also a line of a file, so that another process can go on, and a
 * person can look.
 *
 *   State          From           On
 *   WAITING                       about to be sent; it may be there or not
 *   ACKNOWLEDGED   WAITING        the server said OK, or said that it is there: it must stay
 *   BROKEN                        about to be sent with another last byte: it must never be there
 *
 * An action has versions, each with outputs that were acknowledged before it was sent. What the
 * server gives out must be the newest acknowledged version or one that was sent after it.
 */
#ifndef VARVE_TESTS_CRASH_JOURNAL_H
#define VARVE_TESTS_CRASH_JOURNAL_H

#include <stdio.h>

#include "base/digest.h"
#include "base/lock.h"
#include "tests/support/prng.h"

enum sent_state { SENT_WAITING, SENT_ACKNOWLEDGED, SENT_BROKEN };

struct sent_blob {
    uint64_t seed;
    struct digest digest;
    enum sent_state state;
};

enum { ACTION_OUTPUTS = 3 };

struct sent_version {
    size_t action;                  /* number of the action, from 0 */
    int32_t version;                /* from 1, rising in the order of sending */
    size_t outputs[ACTION_OUTPUTS]; /* numbers of blobs */
    bool acknowledged;
};

struct journal {
    FILE *file; /* owned */
    struct lock lock;
    struct sent_blob *blobs; /* owned; guarded by lock while a load runs, as all below */
    size_t blob_count, blob_capacity;
    struct sent_version *versions; /* owned; in the order of sending */
    size_t version_count, version_capacity;
    size_t action_count;
};

/* Reads the file, or makes an empty one. Says what is wrong and exits when it cannot. */
void journal_open(struct journal *journal, const char *path);
void journal_close(struct journal *journal);

/* Fills `to` with the bytes of the blob. */
void sent_bytes_fill(uint64_t seed, uint8_t *to, size_t length);

/*
 * Each is written down before it is sent. data: filled with the blob's bytes. Any thread, as all
 * below.
 */
size_t journal_add_blob(struct journal *journal,
                        uint64_t seed,
                        enum sent_state state,
                        uint8_t *data,
                        size_t length);
void journal_acknowledge_blob(struct journal *journal, size_t number);

/* A blob that waits and has at most bytes_max; false when none is found. */
bool journal_pick_waiting(struct journal *journal,
                          struct prng *prng,
                          size_t bytes_max,
                          size_t *number,
                          struct sent_blob *blob);

size_t journal_add_action(struct journal *journal);
/* Returns the number of the version; *sent is a copy. */
size_t journal_add_version(struct journal *journal,
                           size_t action,
                           const size_t outputs[ACTION_OUTPUTS],
                           struct sent_version *sent);
void journal_acknowledge_version(struct journal *journal, size_t number);

void sent_action_digest(size_t action, struct digest *digest);
/* The encoded ActionResult, to be freed; *length its bytes. */
uint8_t *sent_version_encode(struct journal *journal,
                             const struct sent_version *sent,
                             size_t *length);
/*
 * Is `result` that of this version, with its outputs? False when it cannot be decoded, or is
 * another one's.
 */
bool sent_version_matches(struct journal *journal,
                          const struct sent_version *sent,
                          const uint8_t *result,
                          size_t length);

#endif
