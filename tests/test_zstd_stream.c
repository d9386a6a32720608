/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the decoder of uploads gives back what libzstd's own encoder was given, however frames and input are cut, and
 * that what is damaged, cut short, followed by something else or larger than allowed is refused, with no more given out than the
 * bound. The bound on memory is tried with a budget that is too small.
 */
#include <stdlib.h>
#include <zstd.h>

#include "server/zstd_stream.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

enum { DATA_BYTES = 300000, FRAMES_BYTES_MAX = 2 * 1024 * 1024 };

static struct zstd_budget budget;
static uint8_t data[DATA_BYTES];
static uint8_t frames[FRAMES_BYTES_MAX];
static uint8_t decoded[FRAMES_BYTES_MAX];
static size_t decoded_bytes;

static void set_up(void)
{
    budget = (struct zstd_budget){.limit_bytes = 64 * MIB};
    /* Half of it can be compressed, half of it cannot. */
    struct prng prng = {7};
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = i < DATA_BYTES / 2 ? (uint8_t)(i / 100) : (uint8_t)prng_next(&prng);
    decoded_bytes = 0;
}

static void tear_down(void)
{
    ck_assert_uint_eq(budget.used_bytes, 0);
}

static size_t frame_put(uint8_t *to, const uint8_t *from, size_t length, int level)
{
    const size_t result = ZSTD_compress(to, FRAMES_BYTES_MAX / 2, from, length, level);
    ck_assert(!ZSTD_isError(result));
    return result;
}

static bool feed(struct zstd_decoder *decoder, struct bytes input, struct status *status)
{
    struct bytes output;
    do {
        if (!zstd_decoder_next(decoder, &input, &output, status))
            return false;
        ck_assert_uint_le(output.length, sizeof(decoded) - decoded_bytes);
        if (output.length > 0)
            memcpy(decoded + decoded_bytes, output.data, output.length);
        decoded_bytes += output.length;
    } while (output.length > 0);
    ck_assert_uint_eq(input.length, 0);
    return true;
}

/* Decodes the whole of it, `step` bytes at a time. */
static bool decode(struct bytes input,
                   size_t step,
                   uint64_t output_bytes_max,
                   struct status *status)
{
    struct zstd_decoder *decoder;
    decoded_bytes = 0;
    if (!zstd_decoder_new(&budget, output_bytes_max, &decoder, status))
        return false;
    bool ok = true;
    for (size_t at = 0; ok && at < input.length; at += step) {
        const size_t left = input.length - at;
        ok = feed(decoder, bytes_of(input.data + at, left < step ? left : step), status);
    }
    ok = ok && zstd_decoder_finish(decoder, status);
    zstd_decoder_free(decoder);
    return ok;
}

START_TEST(zstd_stream_decodes_what_was_encoded_however_it_is_cut)
{
    static const size_t steps[] = {1, 7, 4096, 128 * 1024, FRAMES_BYTES_MAX};
    static const int levels[] = {-5, 1, 9, 19};
    for (size_t level = 0; level < ARRAY_LENGTH(levels); level++) {
        const size_t length = frame_put(frames, data, DATA_BYTES, levels[level]);
        for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
            struct status status;
            ck_assert(decode(bytes_of(frames, length), steps[i], DATA_BYTES, &status));
            ck_assert_uint_eq(decoded_bytes, DATA_BYTES);
            ck_assert_mem_eq(decoded, data, DATA_BYTES);
        }
    }
}
END_TEST

START_TEST(zstd_stream_takes_several_frames_and_frames_of_nothing)
{
    struct status status;
    size_t length = frame_put(frames, data, 1000, 3);
    length += frame_put(frames + length, data, 0, 3);
    length += frame_put(frames + length, data + 1000, DATA_BYTES - 1000, 3);
    for (size_t step = 1; step <= length; step = step * 3 + 1) {
        ck_assert(decode(bytes_of(frames, length), step, DATA_BYTES, &status));
        ck_assert_uint_eq(decoded_bytes, DATA_BYTES);
        ck_assert_mem_eq(decoded, data, DATA_BYTES);
    }
    length = frame_put(frames, data, 0, 3);
    ck_assert(decode(bytes_of(frames, length), length, 0, &status));
    ck_assert_uint_eq(decoded_bytes, 0);
}
END_TEST

START_TEST(zstd_stream_refuses_a_frame_cut_short_at_every_length)
{
    const size_t length = frame_put(frames, data, 2000, 3);
    for (size_t cut = 0; cut < length; cut++) {
        struct status status = {0};
        ck_assert(!decode(bytes_of(frames, cut), 64, 2000, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(zstd_stream_refuses_what_follows_the_frame_at_every_length)
{
    const size_t length = frame_put(frames, data, 2000, 3);
    for (size_t more = 1; more <= 20; more++) {
        struct status status = {0};
        memset(frames + length, 'g', more);
        ck_assert(!decode(bytes_of(frames, length + more), 64, 2000, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(zstd_stream_refuses_what_is_no_zstd)
{
    struct status status = {0};
    ck_assert(!decode(bytes_of(data + DATA_BYTES / 2, 500), 500, DATA_BYTES, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(zstd_stream_never_gives_more_than_the_bound)
{
    static const uint64_t bounds[] = {0, 1, 999, 128 * 1024, DATA_BYTES - 1};
    const size_t length = frame_put(frames, data, DATA_BYTES, 3);
    for (size_t i = 0; i < ARRAY_LENGTH(bounds); i++) {
        struct status status = {0};
        ck_assert(!decode(bytes_of(frames, length), length, bounds[i], &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_uint_le(decoded_bytes, bounds[i]);
    }
    struct status status;
    ck_assert(decode(bytes_of(frames, length), length, DATA_BYTES, &status));
}
END_TEST

/* A frame of level 22 with long matching wants its whole window, whatever comes. */
START_TEST(zstd_stream_bounds_windows_and_the_memory_of_all_decoders_together)
{
    ZSTD_CCtx *const context = ZSTD_createCCtx();
    ck_assert_ptr_nonnull(context);
    ck_assert(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0)));
    struct status status = {0};
    for (int window = 26; window <= 28; window++) {
        ZSTD_CCtx_reset(context, ZSTD_reset_session_only);
        ck_assert(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window)));
        ZSTD_outBuffer out = {.dst = frames, .size = sizeof(frames)};
        ZSTD_inBuffer in = {.src = data, .size = 1000};
        /* Flushed before it ends, so that the encoder cannot know how little comes. */
        ck_assert(!ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush)));
        ck_assert_uint_eq(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0);

        budget.limit_bytes = GIB;
        const bool allowed = window <= 27;
        ck_assert_int_eq(decode(bytes_of(frames, out.pos), out.pos, 1000, &status), allowed);
        if (!allowed)
            ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        budget.limit_bytes = 32 * MIB;
        ck_assert(!decode(bytes_of(frames, out.pos), out.pos, 1000, &status));
        ck_assert_int_eq(status.code,
                         allowed ? STATUS_RESOURCE_EXHAUSTED : STATUS_INVALID_ARGUMENT);
        ck_assert_uint_eq(budget.used_bytes, 0);
    }
    ZSTD_freeCCtx(context);
}
END_TEST

START_TEST(zstd_stream_refuses_a_decoder_when_the_budget_is_used_up)
{
    struct zstd_decoder *first;
    struct zstd_decoder *second;
    struct status status = {0};
    ck_assert(zstd_decoder_new(&budget, 10, &first, &status));
    budget.limit_bytes = budget.used_bytes;
    ck_assert(!zstd_decoder_new(&budget, 10, &second, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(budget.used_bytes, budget.limit_bytes);
    zstd_decoder_free(first);
    ck_assert(zstd_decoder_new(&budget, 10, &second, &status));
    zstd_decoder_free(second);
}
END_TEST

START_TEST(zstd_stream_survives_damage_anywhere)
{
    struct prng prng = {11};
    const size_t length = frame_put(frames, data, 20000, 3);
    for (int round = 0; round < 2000; round++) {
        struct status status = {0};
        const size_t at = prng_below(&prng, length);
        const uint8_t flip = (uint8_t)(1 + prng_below(&prng, 255));
        frames[at] ^= flip;
        const bool ok =
            decode(bytes_of(frames, length), 1 + prng_below(&prng, 999), 20000, &status);
        ck_assert(ok || status.code == STATUS_INVALID_ARGUMENT ||
                  status.code == STATUS_RESOURCE_EXHAUSTED);
        ck_assert_uint_le(decoded_bytes, 20000);
        frames[at] ^= flip;
    }
}
END_TEST

/* A frame may ask for a window of 128 MiB with a few bytes. */
static size_t wide_frame_put(uint8_t *to)
{
    static const uint8_t frame[] = {0x28,
                                    0xb5,
                                    0x2f,
                                    0xfd, /* magic */
                                    0,    /* nothing but a window: */
                                    (27 - 10) << 3,
                                    2,
                                    0,
                                    16,
                                    'z'}; /* a block that is not the last: 'z', 128 KiB times */
    memcpy(to, frame, sizeof(frame));
    return sizeof(frame);
}

START_TEST(zstd_stream_decoders_share_one_budget_and_who_is_over_it_gives_all_back)
{
    enum { DECODERS = 3 };
    struct zstd_decoder *decoders[DECODERS];
    struct zstd_decoder *more;
    struct status status = {0};
    const size_t length = wide_frame_put(frames);
    budget.limit_bytes = DECODERS * 130 * MIB;
    for (int i = 0; i < DECODERS; i++) {
        ck_assert(zstd_decoder_new(&budget, GIB, &decoders[i], &status));
        decoded_bytes = 0;
        ck_assert_msg(feed(decoders[i], bytes_of(frames, length), &status), "%s", status.message);
        ck_assert_uint_eq(decoded_bytes, 128 * KIB);
    }
    ck_assert(zstd_budget_is_scarce(&budget));
    const size_t held_bytes = budget.used_bytes;
    ck_assert_uint_gt(held_bytes, DECODERS * 128 * MIB);
    ck_assert(zstd_decoder_new(&budget, GIB, &more, &status)); /* little, until it sees the frame */
    ck_assert(!feed(more, bytes_of(frames, length), &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    zstd_decoder_free(more);
    ck_assert_uint_eq(budget.used_bytes, held_bytes);
    zstd_decoder_free(decoders[0]);
    ck_assert(!zstd_budget_is_scarce(&budget));
    ck_assert(zstd_decoder_new(&budget, GIB, &decoders[0], &status));
    decoded_bytes = 0;
    ck_assert(feed(decoders[0], bytes_of(frames, length), &status));
    for (int i = 0; i < DECODERS; i++)
        zstd_decoder_free(decoders[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zstd_stream");
    TCase *tcase = tcase_create("zstd_stream");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, zstd_stream_decoders_share_one_budget_and_who_is_over_it_gives_all_back);
    tcase_add_test(tcase, zstd_stream_decodes_what_was_encoded_however_it_is_cut);
    tcase_add_test(tcase, zstd_stream_takes_several_frames_and_frames_of_nothing);
    tcase_add_test(tcase, zstd_stream_refuses_a_frame_cut_short_at_every_length);
    tcase_add_test(tcase, zstd_stream_refuses_what_follows_the_frame_at_every_length);
    tcase_add_test(tcase, zstd_stream_refuses_what_is_no_zstd);
    tcase_add_test(tcase, zstd_stream_never_gives_more_than_the_bound);
    tcase_add_test(tcase, zstd_stream_bounds_windows_and_the_memory_of_all_decoders_together);
    tcase_add_test(tcase, zstd_stream_refuses_a_decoder_when_the_budget_is_used_up);
    tcase_add_test(tcase, zstd_stream_survives_damage_anywhere);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
