/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index on disk, asked by key: while the index in memory is being loaded, what is not in it yet
 * may be there. Any thread asks; who has the index on disk (recovery, then the indexer) sets it, and
 * takes it back before he closes it.
 *
 * When it cannot be asked, or fails, only the end of the load will tell: that can be waited for as
 * long as somebody has promised it.
 */
#ifndef VARVE_STORE_COLD_INDEX_H
#define VARVE_STORE_COLD_INDEX_H

#include "base/lock.h"
#include "store/index.h"

struct cold_index {
    struct lock lock;
    struct condition changed;
    struct index *index; /* guarded by lock; borrowed; NULL: there is none to ask */
    size_t asking;       /* guarded by lock: threads that are in it */
    bool promised;       /* guarded by lock: somebody ends the load */
};

enum cold_answer { COLD_FOUND, COLD_ABSENT, COLD_UNKNOWN };

void cold_index_init(struct cold_index *cold);
void cold_index_destroy(struct cold_index *cold); /* asserts that none is set */

/* index may be NULL. Waits until nobody asks the one before. */
void cold_index_set(struct cold_index *cold, struct index *index);

/* true: the caller will end the load and take this back then, or earlier if he cannot. */
void cold_index_promise(struct cold_index *cold, bool promised);

/* key: kind (ACTION, or any other for a blob), digest and instance. *found is set on COLD_FOUND. */
enum cold_answer cold_index_find(struct cold_index *cold,
                                 const struct index_entry *key,
                                 struct index_entry *found);

/* Waits for the end of the load; false at once when nobody has promised it. */
bool cold_index_await(struct cold_index *cold);

#endif
