/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes large blobs whole while their chunks come by in the order of the log, which reads nothing
 * twice. Blobs whose chunks do not lie in order, or too many at a time, are left out: their chunks'
 * checksums must do. One thread.
 */
#ifndef VARVE_STORE_LARGE_CHECK_H
#define VARVE_STORE_LARGE_CHECK_H

#include "store/store.h"

struct large_check;

MUST_CHECK bool large_check_new(struct store *store,
                                struct large_check **check,
                                struct status *status);
void large_check_free(struct large_check *check);

/*
 * Takes a sound CHUNK. True when it is the last of a blob whose bytes are not what its name says;
 * *manifest is then where its MANIFEST lies.
 */
bool large_check_chunk(struct large_check *check,
                       const struct record_header *header,
                       struct place place,
                       struct bytes payload,
                       struct place *manifest);

#endif
