/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file DATA/uses: which entries were used, and when, so that a start does not take what is used most for what
 * was never asked for. Written from time to time and at a stop, not synced: a file that a crash has torn is not believed, and a
 * start without one only evicts with less sense for a while.
 */
#ifndef VARVE_STORE_USE_FILE_H
#define VARVE_STORE_USE_FILE_H

#include "store/store.h"

struct use_file;

/* *file NULL when there is none, or none that is whole. False when memory is used up. */
MUST_CHECK bool use_file_read(struct store *store, struct use_file **file, struct status *status);
void use_file_free(struct use_file *file);

/* Written at a stop: what it does not name was not used. Else the last minute may be missing. */
bool use_file_is_complete(const struct use_file *file);

/* Was the record at this place used, and how long ago is that by now? */
bool use_file_find(const struct use_file *file, struct place place, uint32_t *idle_minutes);

enum use_file_moment { USE_FILE_RUNNING, USE_FILE_STOP };

/* Replaces the file, unless nothing was used since `since_ns` (monotonic). What is used meanwhile may be missing. */
MUST_CHECK bool use_file_write(struct store *store,
                               enum use_file_moment moment,
                               int64_t since_ns,
                               struct status *status);

#endif
