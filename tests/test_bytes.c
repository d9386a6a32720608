/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves the list helpers on empty and mixed parts, and the UTF-8 check against a decoder written
 * the other way round: decode, encode again, compare. All code points, all sequences of two bytes,
 * and many random ones.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "tests/support/test_run.h"

/* RFC 3629 by encoding; the number of bytes, 0 for what has no encoding. */
static size_t encode(uint32_t code_point, uint8_t to[4])
{
    if (code_point < 0x80) {
        to[0] = (uint8_t)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        to[0] = (uint8_t)(0xc0 | code_point >> 6);
        to[1] = (uint8_t)(0x80 | (code_point & 0x3f));
        return 2;
    }
    if (code_point >= 0xd800 && code_point <= 0xdfff)
        return 0;
    if (code_point < 0x10000) {
        to[0] = (uint8_t)(0xe0 | code_point >> 12);
        to[1] = (uint8_t)(0x80 | (code_point >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (code_point & 0x3f));
        return 3;
    }
    if (code_point > 0x10ffff)
        return 0;
    to[0] = (uint8_t)(0xf0 | code_point >> 18);
    to[1] = (uint8_t)(0x80 | (code_point >> 12 & 0x3f));
    to[2] = (uint8_t)(0x80 | (code_point >> 6 & 0x3f));
    to[3] = (uint8_t)(0x80 | (code_point & 0x3f));
    return 4;
}

/* Whether bytes are a row of encodings, found by decoding loosely and encoding strictly. */
static bool is_utf8_by_encoding(struct bytes bytes)
{
    size_t at = 0;
    while (at < bytes.length) {
        const uint8_t first = bytes.data[at];
        const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        if (length > bytes.length - at)
            return false;
        uint32_t code_point = length == 1 ? first : first & (0x7fU >> length);
        for (size_t i = 1; i < length; i++)
            code_point = code_point << 6 | (bytes.data[at + i] & 0x3fU);
        uint8_t again[4];
        if (encode(code_point, again) != length || memcmp(again, bytes.data + at, length) != 0)
            return false;
        at += length;
    }
    return true;
}

START_TEST(a_list_is_measured_and_copied_over_empty_parts)
{
    const struct bytes parts[] = {
        bytes_of_string("abc"),
        bytes_of(NULL, 0),
        bytes_of_string(""),
        bytes_of_string("de"),
    };
    const struct bytes_list list = {.parts = parts, .count = ARRAY_LENGTH(parts)};
    uint8_t copy[6] = "xxxxxx";
    ck_assert_uint_eq(bytes_list_length(list), 5);
    bytes_list_copy(list, copy);
    ck_assert_mem_eq(copy, "abcdex", 6);
    ck_assert_uint_eq(bytes_list_length((struct bytes_list){0}), 0);
    bytes_list_copy((struct bytes_list){0}, copy);
}
END_TEST

START_TEST(bytes_are_equal_by_content_and_length)
{
    ck_assert(bytes_equal(bytes_of(NULL, 0), bytes_of_string("")));
    ck_assert(bytes_equal_string(bytes_of("ab\0", 2), "ab"));
    ck_assert(!bytes_equal_string(bytes_of("ab\0", 3), "ab"));
    ck_assert(!bytes_equal(bytes_of_string("ab"), bytes_of_string("ac")));
}
END_TEST

START_TEST(every_code_point_is_accepted_and_every_surrogate_refused)
{
    for (uint32_t code_point = 0; code_point <= 0x10ffff; code_point++) {
        uint8_t encoded[4];
        const size_t length = encode(code_point, encoded);
        if (length == 0) {
            encoded[0] = (uint8_t)(0xe0 | code_point >> 12);
            encoded[1] = (uint8_t)(0x80 | (code_point >> 6 & 0x3f));
            encoded[2] = (uint8_t)(0x80 | (code_point & 0x3f));
            if (bytes_is_utf8(bytes_of(encoded, 3)))
                ck_abort_msg("surrogate %x is accepted", code_point);
            continue;
        }
        if (!bytes_is_utf8(bytes_of(encoded, length)))
            ck_abort_msg("U+%x is refused", code_point);
        if (bytes_utf8_prefix(bytes_of(encoded, length - 1)) != 0)
            ck_abort_msg("a part of U+%x is accepted", code_point);
    }
}
END_TEST

START_TEST(overlong_forms_and_too_large_values_are_refused)
{
    static const char *const bad[] = {
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\x80",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        ck_assert_msg(!bytes_is_utf8(bytes_of_string(bad[i])), "case %zu", i);
}
END_TEST

START_TEST(any_bytes_are_judged_as_by_encoding_them_again)
{
    for (unsigned int two = 0; two < 0x10000; two++) {
        const uint8_t pair[] = {(uint8_t)(two >> 8), (uint8_t)two};
        if (bytes_is_utf8(bytes_of(pair, 2)) != is_utf8_by_encoding(bytes_of(pair, 2)))
            ck_abort_msg("%x", two);
    }
    srand(1);
    for (int round = 0; round < 100000; round++) {
        /* Mostly bytes that may follow each other, so that long runs are valid now and then. */
        static const uint8_t likely[] = {0x41, 0x80, 0xbf, 0x9f, 0xa0, 0x90, 0x8f, 0xc2,
                                         0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xc1, 0xff};
        uint8_t text[24];
        const size_t length = (size_t)rand() % sizeof(text);
        const bool ascii_start = rand() % 2 == 0;
        for (size_t i = 0; i < length; i++)
            text[i] = ascii_start && i < 9 ? 'a' : likely[(size_t)rand() % sizeof(likely)];
        const struct bytes bytes = bytes_of(text, length);
        const bool good = is_utf8_by_encoding(bytes);
        ck_assert_int_eq(bytes_is_utf8(bytes), good);
        const size_t prefix = bytes_utf8_prefix(bytes);
        ck_assert_uint_le(prefix, length);
        ck_assert(is_utf8_by_encoding(bytes_of(text, prefix)));
        for (size_t longer = prefix + 1; longer <= length && longer <= prefix + 4; longer++)
            ck_assert(!is_utf8_by_encoding(bytes_of(text, longer)));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bytes");
    TCase *tests = tcase_create("bytes");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_list_is_measured_and_copied_over_empty_parts);
    tcase_add_test(tests, bytes_are_equal_by_content_and_length);
    tcase_add_test(tests, every_code_point_is_accepted_and_every_surrogate_refused);
    tcase_add_test(tests, overlong_forms_and_too_large_values_are_refused);
    tcase_add_test(tests, any_bytes_are_judged_as_by_encoding_them_again);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
