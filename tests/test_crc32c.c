/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that crc32c is the one of RFC 3720: its known values, a bit-wise reference written from the
 * polynomial, every way to cut a text in two, lists, and unaligned starts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/crc32c.h"
#include "tests/support/test_run.h"

static uint32_t crc32c_bit_by_bit(struct bytes data)
{
    const uint32_t reflected_polynomial = 0x82f63b78;
    uint32_t state = UINT32_MAX;
    for (size_t i = 0; i < data.length; i++) {
        state ^= data.data[i];
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ ((state & 1) != 0 ? reflected_polynomial : 0);
    }
    return ~state;
}

START_TEST(the_values_of_the_rfc)
{
    uint8_t data[32];
    ck_assert_uint_eq(crc32c(0, bytes_of_string("123456789")), 0xe3069283);
    ck_assert_uint_eq(crc32c(0, bytes_of(NULL, 0)), 0);
    memset(data, 0, sizeof(data));
    ck_assert_uint_eq(crc32c(0, bytes_of(data, sizeof(data))), 0x8a9136aa);
    memset(data, 0xff, sizeof(data));
    ck_assert_uint_eq(crc32c(0, bytes_of(data, sizeof(data))), 0x62a8ab43);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)i;
    ck_assert_uint_eq(crc32c(0, bytes_of(data, sizeof(data))), 0x46dd794e);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(sizeof(data) - 1 - i);
    ck_assert_uint_eq(crc32c(0, bytes_of(data, sizeof(data))), 0x113fdb5c);
}
END_TEST

START_TEST(any_length_and_start_agrees_with_the_bits)
{
    uint8_t data[1200];
    srand(1);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)rand();
    for (size_t start = 0; start < 9; start++)
        for (size_t length = 0; length + start <= sizeof(data); length += 1 + length / 16) {
            const struct bytes part = bytes_of(data + start, length);
            ck_assert_uint_eq(crc32c(0, part), crc32c_bit_by_bit(part));
        }
}
END_TEST

START_TEST(pieces_chain_wherever_they_are_cut)
{
    uint8_t data[700];
    srand(2);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)rand();
    const uint32_t whole = crc32c(0, bytes_of(data, sizeof(data)));
    for (size_t cut = 0; cut <= sizeof(data); cut++) {
        const struct bytes parts[] = {bytes_of(data, cut), bytes_of(NULL, 0),
                                      bytes_of(data + cut, sizeof(data) - cut)};
        ck_assert_uint_eq(crc32c(crc32c(0, parts[0]), parts[2]), whole);
        const struct bytes_list list = {.parts = parts, .count = ARRAY_LENGTH(parts)};
        ck_assert_uint_eq(crc32c_list(0, list), whole);
    }
    ck_assert_uint_eq(crc32c_list(7, (struct bytes_list){0}), 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crc32c");
    TCase *tests = tcase_create("crc32c");
    tcase_add_test(tests, the_values_of_the_rfc);
    tcase_add_test(tests, any_length_and_start_agrees_with_the_bits);
    tcase_add_test(tests, pieces_chain_wherever_they_are_cut);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
