/* SPDX-License-Identifier: Apache-2.0 */
#include "server/zstd_blobs.h"

#include <zstd.h>
#include <zstd_errors.h>

enum { FRAME_LEVEL = 1 };

void zstd_blobs_free(struct zstd_blobs *blobs)
{
    ZSTD_freeDCtx(blobs->decoder);
    ZSTD_freeCCtx(blobs->encoder);
    *blobs = (struct zstd_blobs){0};
}

bool zstd_blobs_decode(struct zstd_blobs *blobs,
                       struct bytes frames,
                       uint8_t *to,
                       size_t size_bytes,
                       struct status *status)
{
    if (blobs->decoder == NULL)
        blobs->decoder = ZSTD_createDCtx();
    if (blobs->decoder == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "zstd: out of memory");

    const size_t result =
        ZSTD_decompressDCtx(blobs->decoder, to, size_bytes, frames.data, frames.length);
    if (!ZSTD_isError(result) && result == size_bytes)
        return true;
    if (!ZSTD_isError(result))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "zstd: decodes to %zu bytes, the digest says %zu", result, size_bytes);
    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "zstd: out of memory");
    case ZSTD_error_dstSize_tooSmall:
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "zstd: decodes to more than the %zu bytes of the digest", size_bytes);
    default:
        return status_fail(status, STATUS_INVALID_ARGUMENT, "zstd: %s", ZSTD_getErrorName(result));
    }
}

size_t zstd_blobs_encode(struct zstd_blobs *blobs, struct bytes data, uint8_t *to, size_t room)
{
    if (blobs->encoder == NULL)
        blobs->encoder = ZSTD_createCCtx();
    if (blobs->encoder == NULL)
        return 0;
    const size_t result =
        ZSTD_compressCCtx(blobs->encoder, to, room, data.data, data.length, FRAME_LEVEL);
    return ZSTD_isError(result) ? 0 : result;
}
