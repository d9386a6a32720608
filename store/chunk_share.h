/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that several writers of one blob have in common: however many send the same bytes at once, they are written once.
 *
 * A chunk is known by its place in the blob and by the hash of everything up to its end. Two writers that agree in
 * both have been sent the same bytes so far, right or wrong, so one may name the other's chunk in its manifest. A chunk lies
 * before any manifest that names it in the large lane, so whatever makes the manifest durable has made the chunk durable.
 *
 * One whose segment is being evicted, or is gone, is nobody's any more: the next writer appends it afresh. So an upload that
 * was refused because parts of it went can be sent again, whoever else still writes the same blob.
 *
 * Any thread. One lock, held while a chunk is appended, so that two writers that come to it together do not both write it.
 */
#ifndef VARVE_STORE_CHUNK_SHARE_H
#define VARVE_STORE_CHUNK_SHARE_H

#include "store/segment_log.h"
#include "store/segment_set.h"

struct chunk_share;

/* With one reference, the caller's. RESOURCE_EXHAUSTED when memory is used up. */
MUST_CHECK bool chunk_share_new(struct chunk_share **share, struct status *status);
void chunk_share_ref(struct chunk_share *share);
void chunk_share_unref(struct chunk_share *share); /* NULL is fine */

/* For the manifest: a chunk that has been appended. */
static inline struct manifest_chunk manifest_chunk_of(const struct record *chunk)
{
    return (struct manifest_chunk){
        .place = place_pack(chunk->place),
        .blob_offset = chunk->blob_offset,
        .payload_bytes = (uint32_t)chunk->payload_bytes,
        .payload_crc32c = chunk->payload_crc32c,
    };
}

/*
 * Appends the chunk, or finds it. chunk: as segment_log_append() wants it. prefix: the digest of the blob's bytes up to the chunk's end.
 * *placed: for the manifest. Errors: those of segment_log_append().
 */
MUST_CHECK bool chunk_share_append(struct chunk_share *share,
                                   struct segment_log *log,
                                   struct segment_set *segments,
                                   struct record *chunk,
                                   const struct digest *prefix,
                                   struct manifest_chunk *placed,
                                   struct status *status);

#endif
