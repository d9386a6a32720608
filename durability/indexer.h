/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings durable entries into the index on disk, behind the acknowledgement, in batches with their checkpoint. When the disk is
 * full or RocksDB fails it lets the entries go, says so once, and catches up from the segments later: the segments are the truth.
 *
 * After a start it loads the index in memory from the one on disk, a piece a round, if recovery has left that to it.
 */
#ifndef VARVE_DURABILITY_INDEXER_H
#define VARVE_DURABILITY_INDEXER_H

#include "store/index.h"
#include "store/store.h"

struct indexer;

/* index: owned from now on; NULL when it could not be opened: then it is tried again from time to time. path: DATA/index. */
MUST_CHECK bool indexer_new(struct store *store,
                            const char *path,
                            struct index *index,
                            struct indexer **indexer,
                            struct status *status);
void indexer_free(struct indexer *indexer); /* closes the index */

/* Queues copies of entries that are durable. position: behind the last record of this lane that is durable. Any thread. */
void indexer_post(struct indexer *indexer,
                  enum lane lane,
                  const struct index_entry *entries,
                  size_t count,
                  const struct segment_log_position *position);

/* Entries that one round loads; for tests, which look at it half loaded. */
void indexer_set_load_step(struct indexer *indexer, size_t entries);
/* Entries that may wait; for tests, which let it overflow. Before the first post. */
void indexer_set_queue_max(struct indexer *indexer, size_t entries);

/* One batch; false if nothing was queued, nothing is due and nothing is to be loaded. Flushes every 30 s and after a rotation. */
bool indexer_round(struct indexer *indexer);
/* Blocks until there is something to do (also by time), or indexer_stop() was called and nothing is left (then false). */
bool indexer_wait(struct indexer *indexer);
void indexer_stop(struct indexer *indexer);

#endif
