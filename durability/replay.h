/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a lane's log from a position on and says, record by record, what the index must know. Sealed segments are read
 * from their footers, others are walked. For recovery, and for an index on disk that fell behind.
 */
#ifndef VARVE_DURABILITY_REPLAY_H
#define VARVE_DURABILITY_REPLAY_H

#include "store/index.h"
#include "store/store.h"

struct replay {
    /* In. */
    struct store *store; /* borrowed */
    enum lane lane;
    struct segment_log_position from; /* place.segment 0: from the oldest segment */
    const struct segment_log_position
        *to;     /* NULL: to the end of everything; else everything before it is durable */
    bool settle; /* after a stop: sync each file and drop its page cache before it is believed */
    bool (*each)(void *argument, const struct index_entry *entry, struct status *status);
    void *argument;

    /* Out. Segment lists are owned by the replay, segments borrowed from the store. */
    struct segment_log_position end; /* behind the last record */
    uint64_t records;
    uint64_t damaged;
    uint64_t tails_cut, tail_bytes_cut;
    uint64_t
        incomplete; /* manifests whose chunks are not there: never acknowledged, lost, or evicted */
    struct segment **unsealed; /* non-empty without a footer; their end is set */
    size_t unsealed_count;
    struct segment **empty;
    size_t empty_count;

    /* The replay's own: which chunks of walked segments are sound. */
    struct replay_walked *walked;
    size_t walked_count;
};

MUST_CHECK bool replay_run(struct replay *replay, struct status *status);
void replay_destroy(struct replay *replay);

/* Does to a table what an entry says. RESOURCE_EXHAUSTED. */
MUST_CHECK bool replay_apply(struct blob_table *table,
                             const struct index_entry *entry,
                             struct status *status);

#endif
