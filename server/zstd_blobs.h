/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs of a batch that are zstd (RFC 8878) on the wire: decoded and encoded whole, memory to
 * memory, with contexts that are made on first need and used again. Streams are for
 * server/zstd_stream.h.
 */
#ifndef VARVE_SERVER_ZSTD_BLOBS_H
#define VARVE_SERVER_ZSTD_BLOBS_H

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/status.h"

/* Zeroed memory is a valid one. One thread at a time. */
struct zstd_blobs {
    struct ZSTD_DCtx_s *decoder; /* owned */
    struct ZSTD_CCtx_s *encoder; /* owned */
};

void zstd_blobs_free(struct zstd_blobs *blobs);

/*
 * Any number of frames, which must decode to exactly `size_bytes` bytes; no more than that is ever
 * written.
 * Errors: INVALID_ARGUMENT for what is no zstd, is damaged or is of another size;
 * RESOURCE_EXHAUSTED when memory is used up.
 */
MUST_CHECK bool zstd_blobs_decode(struct zstd_blobs *blobs,
                                  struct bytes frames,
                                  uint8_t *to,
                                  size_t size_bytes,
                                  struct status *status);

/*
 * One frame, fast. Its length, or 0 when it does not fit into `room` bytes (or memory is used up):
 * then it is sent as it is.
 */
size_t zstd_blobs_encode(struct zstd_blobs *blobs, struct bytes data, uint8_t *to, size_t room);

#endif
