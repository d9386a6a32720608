/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What eviction has removed and when, as far as it is remembered: the last LIMIT_EVICTED_REMEMBERED keys or so since the process
 * started, for people who ask why something is not here. Of each key 49 bits are kept, so that one in 500 million that was never
 * here is taken for one that was evicted. Not on disk: a restart forgets it.
 *
 * Any thread notes and asks; nobody waits.
 */
#ifndef VARVE_STORE_EVICTED_H
#define VARVE_STORE_EVICTED_H

#include "store/blob_table.h"

struct evicted;

/* Memory that is not used is not taken. now_ns: since when it remembers, of the clock on the wall, as all times here. */
MUST_CHECK bool evicted_new(int64_t now_ns, struct evicted **evicted, struct status *status);
void evicted_free(struct evicted *evicted);

/* The oldest of some others gives way. */
void evicted_note(struct evicted *evicted, struct blob_key key, int64_t now_ns);
/* *when_ns: to the second. */
bool evicted_find(const struct evicted *evicted, struct blob_key key, int64_t *when_ns);

int64_t evicted_since_ns(const struct evicted *evicted);
/* Nothing had to give way: what is not found was not evicted since then. */
bool evicted_is_whole(const struct evicted *evicted);

#endif
