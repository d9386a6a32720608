/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads that come as zstd (RFC 8878), of any number of frames: decoded piece by piece, under bounds. Never trusts what a frame
 * says of itself. What is compressed and decoded whole is server/zstd_blobs.h's.
 */
#ifndef VARVE_SERVER_ZSTD_STREAM_H
#define VARVE_SERVER_ZSTD_STREAM_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/status.h"

/* Memory of all decoders together, which share one. {.limit_bytes = N} is a valid one. */
struct zstd_budget {
    _Atomic size_t used_bytes;
    size_t limit_bytes;
};

/* Nearly used up. Any thread. */
static inline bool zstd_budget_is_scarce(const struct zstd_budget *budget)
{
    return atomic_load(&budget->used_bytes) > budget->limit_bytes / 8 * 7;
}

struct zstd_decoder;

/*
 * output_bytes_max: more than this is never given out, and the end of it is seen within 128 KiB.
 * Errors: RESOURCE_EXHAUSTED when the budget or memory is used up.
 */
MUST_CHECK bool zstd_decoder_new(struct zstd_budget *budget,
                                 uint64_t output_bytes_max,
                                 struct zstd_decoder **decoder,
                                 struct status *status);
void zstd_decoder_free(struct zstd_decoder *decoder);

/*
 * Takes from the front of *input and gives the next decoded bytes, at most 128 KiB, which lie in the decoder until its next
 * call. Nothing given: all of the input is taken and decoded.
 *
 * Errors: INVALID_ARGUMENT for what is no zstd, is damaged, wants a window above 128 MiB, or decodes to more than
 * output_bytes_max; RESOURCE_EXHAUSTED. The decoder is then only good to be freed.
 */
MUST_CHECK bool zstd_decoder_next(struct zstd_decoder *decoder,
                                  struct bytes *input,
                                  struct bytes *output,
                                  struct status *status);

/* No input will come any more: INVALID_ARGUMENT inside a frame, and when there was none at all. */
MUST_CHECK bool zstd_decoder_finish(const struct zstd_decoder *decoder, struct status *status);

#endif
