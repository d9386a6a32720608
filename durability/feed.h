/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's log, read for others from a position on: what is durable and visible, in the order of the log. A position is the seq of
 * the record after which it begins.
 *
 * Told are blobs, manifests and action results that the index still means (what was moved is told where it lies now, at the
 * end), and deletions that were ordered. Not told: chunks; what is damaged; what was superseded or forgotten; FORGETs of what
 * was damaged or evicted here, which is nobody else's matter. A query for history is told all of that but chunks and damage.
 *
 * Footers and the notes of a lane's newest segments say what there is: payloads are read of action results and FORGETs alone.
 * Where a reader has come to is remembered, so that the end of a log is followed at the cost of what is new.
 *
 * Threads: any number.
 */
#ifndef VARVE_DURABILITY_FEED_H
#define VARVE_DURABILITY_FEED_H

#include "base/arena.h"
#include "durability/copies.h"

struct feed;

struct feed_config {
    struct store *store;   /* borrowed, as all pointers here */
    struct copies *copies; /* says how far the log is published */
};

MUST_CHECK bool feed_new(const struct feed_config *config,
                         struct feed **feed,
                         struct status *status);
void feed_free(struct feed *feed);

/* Is it this node's log that is asked for? 0: whoever's it is. FAILED_PRECONDITION, and what to do. */
MUST_CHECK bool feed_check_node(const struct feed *feed, uint64_t node_uid, struct status *status);

struct feed_query {
    enum lane lane;
    uint64_t after_seq;   /* 0: from the oldest that is held */
    uint64_t through_seq; /* not beyond it; 0: to the end */
    size_t records_max;   /* told; 0: none, only where the log ends and begins */
    size_t bytes_max;     /* of the action results told; one is told whatever its size */
    unsigned kinds;       /* FEED_ALL, or FEED_KIND()s */
    /* Borrowed; NULL: all. Else only records of this hash, whatever their size. */
    const struct digest *only;
    bool history; /* also what the index no longer means, and every FORGET */
};
#define FEED_KIND(kind) (1U << (kind))
#define FEED_ALL                                                                                   \
    (FEED_KIND(RECORD_BLOB) | FEED_KIND(RECORD_MANIFEST) | FEED_KIND(RECORD_ACTION) |              \
     FEED_KIND(RECORD_FORGET))

struct feed_entry {
    uint64_t seq;
    enum record_kind kind;
    struct digest digest;
    struct place place;
    uint64_t payload_bytes; /* stored */
    /* ACTION, FORGET. */
    struct bytes instance;
    struct bytes writer;
    struct bytes result;
    int64_t wall_ns; /* and of the others in a history: when their segment was made */
    uint64_t origin_uid;
    enum record_kind forgotten; /* FORGET: BLOB, MANIFEST or ACTION */
    enum forget_reason reason;  /* FORGET */
    bool current;               /* the index means this record; of a FORGET: it was ordered */
};

struct feed_batch {
    struct feed_entry *entries; /* in the arena, with all they point to */
    size_t count;
    uint64_t next_after_seq; /* at or beyond the last one told */
    bool more;               /* the batch is full, or took long: there may be more before the end */
    uint64_t looked_at;      /* records, told or not */
    uint64_t published_seq;  /* the end of the log */
    uint64_t oldest_seq;     /* held; published_seq + 1 when there is none */
    uint64_t behind_bytes;   /* about, of log between next_after_seq and the end */
};

/*
 * FAILED_PRECONDITION: after_seq is beyond the end of this log, so it is not this log that it was read from.
 * OUT_OF_RANGE: what follows after_seq was evicted, and some of it has not been told; the text names the oldest held.
 * RESOURCE_EXHAUSTED: memory. UNAVAILABLE, INTERNAL: the disk does not read.
 */
MUST_CHECK bool feed_read(struct feed *feed,
                          const struct feed_query *query,
                          struct arena *arena,
                          struct feed_batch *batch,
                          struct status *status);

#endif
