/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log of this node still holds of one digest: when it was stored, moved, forgotten and why. The log is gone through from its
 * end back, a part of it at a time, since the newest is what counts.
 */
#ifndef VARVE_SERVER_HISTORY_H
#define VARVE_SERVER_HISTORY_H

#include "durability/durability.h"

enum { HISTORY_EVENTS_MAX = 100 };

struct history_event {
    enum lane lane;
    uint64_t seq;
    enum record_kind kind; /* BLOB, MANIFEST, ACTION or FORGET */
    int64_t wall_ns;       /* when; of a blob when its segment was made */
    int64_t size_bytes;
    uint64_t origin_uid;        /* ACTION, FORGET */
    struct bytes instance;      /* likewise; in the arena, as the next two */
    struct bytes writer;        /* ACTION */
    uint64_t result_bytes;      /* ACTION */
    enum record_kind forgotten; /* FORGET */
    enum forget_reason reason;  /* FORGET */
    bool current;               /* the index means this record */
    struct place place;
};

struct history {
    struct digest digest;
    struct history_event events[HISTORY_EVENTS_MAX]; /* newest first, of each lane */
    size_t count;
    bool events_left_out; /* there are older ones */
    bool is_whole;        /* all that the log holds was looked at */
    bool from_the_start;  /* and it holds all that was ever written */
    uint64_t looked_at;   /* records */

    /* Where it has come to. */
    enum lane lane, last_lane;
    uint64_t high, low; /* the part: seqs above low and up to high; high 0: not begun */
    uint64_t after;     /* in it */
    size_t part_at;     /* of events: where those of the part begin */
    uint64_t oldest[LANE_COUNT];
};

/* Large blobs have their records in the other lane, too, if the size is not known. */
enum history_size { HISTORY_SIZE_KNOWN, HISTORY_SIZE_UNKNOWN };
void history_begin(struct history *history, const struct digest *digest, enum history_size size);

/*
 * Looks at one part of the log: some 100,000 records. True while there is more to look at (*more). arena takes what events point to.
 * Errors: those of feed_read().
 */
MUST_CHECK bool history_step(struct history *history,
                             struct feed *feed,
                             struct copies *copies,
                             struct arena *arena,
                             bool *more,
                             struct status *status);

#endif
