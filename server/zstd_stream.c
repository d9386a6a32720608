/* SPDX-License-Identifier: Apache-2.0 */
#include "server/zstd_stream.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    OUTPUT_BYTES = 128 * 1024, /* the largest block of zstd: one is always given whole */
    WINDOW_LOG_MAX = 27,       /* 128 MiB: what the command line's --ultra may ask for */
};

struct zstd_decoder {
    struct zstd_budget *budget; /* shared */
    uint64_t output_bytes_max;
    uint64_t output_bytes; /* decoded so far */
    size_t charged_bytes;  /* to the budget */
    ZSTD_DCtx *context;    /* owned */
    bool inside_frame;
    bool met_frame;
    bool output_left; /* the last call filled its output, there may be more in the context */
    uint8_t output[OUTPUT_BYTES];
};

static bool decode(struct zstd_decoder *decoder,
                   struct bytes *input,
                   struct bytes *output,
                   struct status *status);
static bool charge(struct zstd_decoder *decoder, size_t bytes, struct status *status);
static bool fail(size_t result, struct status *status);

bool zstd_decoder_new(struct zstd_budget *budget,
                      uint64_t output_bytes_max,
                      struct zstd_decoder **decoder,
                      struct status *status)
{
    ASSERT(output_bytes_max < UINT64_MAX);

    struct zstd_decoder *const made = malloc(sizeof(*made));
    if (!made)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "zstd: out of memory");
    memset(made, 0, offsetof(struct zstd_decoder, output));
    made->budget = budget;
    made->output_bytes_max = output_bytes_max;
    made->context = ZSTD_createDCtx();
    if (!made->context) {
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "zstd: out of memory");
        goto fail;
    }
    const size_t result =
        ZSTD_DCtx_setParameter(made->context, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    ASSERT(!ZSTD_isError(result));
    if (!charge(made, sizeof(*made) + ZSTD_sizeof_DCtx(made->context), status))
        goto fail;
    *decoder = made;
    return true;

fail:
    zstd_decoder_free(made);
    return false;
}

void zstd_decoder_free(struct zstd_decoder *decoder)
{
    if (!decoder)
        return;
    atomic_fetch_sub(&decoder->budget->used_bytes, decoder->charged_bytes);
    ZSTD_freeDCtx(decoder->context);
    free(decoder);
}

bool zstd_decoder_next(struct zstd_decoder *decoder,
                       struct bytes *input,
                       struct bytes *output,
                       struct status *status)
{
    *output = bytes_of(NULL, 0);
    while (output->length == 0 && (input->length > 0 || decoder->output_left))
        if (!decode(decoder, input, output, status))
            return false;
    return true;
}

static bool decode(struct zstd_decoder *decoder,
                   struct bytes *input,
                   struct bytes *output,
                   struct status *status)
{
    ASSERT(decoder->output_bytes <= decoder->output_bytes_max);

    ZSTD_outBuffer out = {.dst = decoder->output, .size = OUTPUT_BYTES};
    ZSTD_inBuffer in = {.src = input->data, .size = input->length};
    const size_t result = ZSTD_decompressStream(decoder->context, &out, &in);
    if (ZSTD_isError(result))
        return fail(result, status);
    if (!charge(decoder, sizeof(*decoder) + ZSTD_sizeof_DCtx(decoder->context), status))
        return false;

    decoder->inside_frame = result != 0;
    decoder->met_frame = true;
    decoder->output_left = result != 0 && out.pos == out.size;
    decoder->output_bytes += out.pos;
    if (decoder->output_bytes > decoder->output_bytes_max)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the zstd data decodes to more than the %llu bytes of the digest",
                           (unsigned long long)decoder->output_bytes_max);
    *input = bytes_of(input->length > 0 ? input->data + in.pos : NULL, input->length - in.pos);
    *output = bytes_of(decoder->output, out.pos);
    return true;
}

bool zstd_decoder_finish(const struct zstd_decoder *decoder, struct status *status)
{
    ASSERT(!decoder->output_left);
    if (!decoder->met_frame)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "no zstd data was sent; also nothing at all takes one frame");
    if (decoder->inside_frame)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the zstd data ends inside a frame, after %llu decoded bytes",
                           (unsigned long long)decoder->output_bytes);
    return true;
}

/* Corrects what the decoder is charged for to what it takes now. */
static bool charge(struct zstd_decoder *decoder, size_t bytes, struct status *status)
{
    struct zstd_budget *const budget = decoder->budget;
    if (bytes == decoder->charged_bytes)
        return true;
    /* Wraps around when it shrinks, and comes out right. */
    const size_t change = bytes - decoder->charged_bytes;
    const size_t used_bytes = atomic_fetch_add(&budget->used_bytes, change) + change;
    const bool grew = bytes > decoder->charged_bytes;
    decoder->charged_bytes = bytes;
    if (grew && used_bytes > budget->limit_bytes)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "decoders of zstd take %zu bytes of at most %zu; try again later",
                           used_bytes, budget->limit_bytes);
    return true;
}

static bool fail(size_t result, struct status *status)
{
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "zstd: out of memory");
    return status_fail(status, STATUS_INVALID_ARGUMENT, "zstd: %s", ZSTD_getErrorName(result));
}
