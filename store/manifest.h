/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a MANIFEST record: the chunks of one large blob, in the order of the blob. */
#ifndef VARVE_STORE_MANIFEST_H
#define VARVE_STORE_MANIFEST_H

#include "store/store.h"

/* How many chunks a payload lists; false when it is no list of chunks. */
bool manifest_count(struct bytes payload, size_t *count);
/* The i-th. */
struct manifest_chunk manifest_chunk_at(struct bytes payload, size_t i);

/*
 * Is this chunk within a segment that is there? Its bytes are not looked at: that is what reading is
 * for. Any thread.
 */
bool manifest_chunk_is_there(struct segment_set *segments, const struct manifest_chunk *chunk);
/* All of them; false also when the payload is no list of chunks. */
bool manifest_is_complete(struct segment_set *segments, struct bytes payload);

/* Does it name a chunk with a byte between these offsets of a segment? */
bool manifest_names(struct bytes payload, uint64_t segment, uint64_t offset, uint64_t end);

/*
 * The MANIFEST that the index names for a blob. *there false: it names none, or another blob's record
 * lies there. *place is set when it names one, also on failure. *memory is freed by the caller if
 * there; payload points into it. DATA_LOSS when the record is damaged.
 */
MUST_CHECK bool manifest_read(struct store *store,
                              const struct digest *digest,
                              struct place *place,
                              uint8_t **memory,
                              struct bytes *payload,
                              bool *there,
                              struct status *status);

#endif
