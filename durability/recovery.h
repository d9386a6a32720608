/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a data directory as any stop left it to a store that serves: opens the index on disk (rebuilds it from footers or by
 * scanning if it refuses), leaves it to others to load the one in memory from it (durability/indexer.h; until then what is
 * missing there is looked up on disk, store/cold_index.h), goes through the segments behind its checkpoint, verifies, publishes what is whole, cuts the torn
 * tail, seals, and opens the lanes. Idempotent, and itself safe against a crash at any point.
 */
#ifndef VARVE_DURABILITY_RECOVERY_H
#define VARVE_DURABILITY_RECOVERY_H

#include "durability/indexer.h"
#include "store/store.h"

struct recovery_report {
    uint64_t entries;           /* in the index in memory at the end; more if it is being loaded */
    uint64_t records_recovered; /* behind the checkpoint */
    uint64_t tails_cut;
    uint64_t tail_bytes_cut;
    bool index_rebuilt;
    bool index_loading; /* *index has entries that the one in memory lacks */
    int64_t duration_ns;
};

/* On true store->logs are open, store->cold is set if the index is to be loaded from it, and *index is the index (NULL when even a new one cannot be opened: the disk may be full). */
MUST_CHECK bool recovery_run(struct store *store,
                             const char *index_path,
                             struct index **index,
                             struct recovery_report *report,
                             struct status *status);

#endif
