/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a record lies, whether the index in memory has it yet or not: while that is being loaded after a start, what it lacks is
 * looked up in the index on disk and brought. Any thread.
 */
#ifndef VARVE_STORE_FIND_H
#define VARVE_STORE_FIND_H

#include "store/index.h"
#include "store/store.h"

enum find { FIND_ONLY, FIND_AND_TOUCH };

/* True and *place if it is there; else *place is as it was. The empty blob has no place. */
bool store_find(struct store *store,
                const struct index_entry *name,
                enum find find,
                struct place *place);
bool store_find_blob(struct store *store,
                     const struct digest *digest,
                     enum find find,
                     struct place *place);
/*
 * The size of the blob of this hash, for those who do not know it: sets digest->size_bytes. False when there is none. Reads a
 * record's header. Marks nothing as used.
 */
bool store_find_size(struct store *store, struct digest *digest);
bool store_find_action(struct store *store,
                       const struct digest *action,
                       struct bytes instance,
                       enum find find,
                       struct place *place);
/* As store_find_size(), of an action that has a result in this instance. */
bool store_find_action_size(struct store *store, struct digest *action, struct bytes instance);

/*
 * Brings the entry of this name (kind, digest, instance) into memory, if it may still come and the index on disk has it. False
 * when that cannot be told: the index on disk fails, or is lost.
 */
bool store_bring(struct store *store, struct blob_key key, const struct index_entry *name);

/* After a start: marks it as used if it was before. Recovery, then the indexer. */
void store_recall_use(struct store *store, struct blob_key key, struct place place);

/*
 * An entry of the index on disk: is what it names still there? Segments go, by eviction or by
 * accident, and their entries stay; where chunks may be missing the MANIFEST is read.
 */
enum record_state { RECORD_THERE, RECORD_EVICTED, RECORD_LOST };
enum record_state store_look_at(struct store *store, const struct index_entry *entry);

/* Loads an entry of the index on disk into memory, with its last use, if *state, as above, is THERE. RESOURCE_EXHAUSTED. */
MUST_CHECK bool store_load(struct store *store,
                           const struct index_entry *entry,
                           enum record_state *state,
                           struct status *status);

#endif
