/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfinished ByteStream uploads. An upload is known by (instance, uuid, compressor, digest), because clients use one uuid for all their blobs
 * (CLIENTS, decision 4), and outlives its stream by `upload keep` so that it can be resumed.
 *
 * Of several uploads of one digest the first leads; the others wait, having read one message, as long as the leader makes
 * progress, and are answered as soon as the blob is there. If the leader stops or fails the next one goes on by itself.
 */
#ifndef VARVE_SERVER_UPLOADS_H
#define VARVE_SERVER_UPLOADS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"

struct store;
struct upload_table;

MUST_CHECK bool upload_table_new(struct store *store, struct clock *clock, struct metrics *metrics, int64_t keep_ns,
                                 struct upload_table **table, struct status *status);
void upload_table_free(struct upload_table *table); /* no call uses it any more */

/* Housekeeping, every 100 ms by the maintenance thread: parks idle uploads (gives their buffers back), drops expired ones, wakes
   those who wait for a leader that has stalled. */
void upload_table_step(struct upload_table *table);

#endif
