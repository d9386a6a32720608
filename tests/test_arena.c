/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what an arena gives out is aligned, does not overlap and keeps its bytes until the
 * end, and that the limit holds for any order of sizes. Run under AddressSanitizer it also proves
 * that all of it is ours and given back.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tests/support/test_run.h"

static bool all_are(const uint8_t *bytes, size_t length, uint8_t value)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

START_TEST(pieces_are_aligned_and_keep_their_bytes)
{
    enum { PIECES = 3000 };
    struct arena arena;
    arena_init(&arena, 256 * MIB);
    uint8_t *pieces[PIECES];
    size_t sizes[PIECES];
    srand(1);
    for (size_t i = 0; i < PIECES; i++) {
        /* From tiny to larger than any block, the large ones rare. */
        sizes[i] = 1 + (size_t)rand() % (i % 100 == 0 ? 400 * KIB : i % 10 == 0 ? 9000 : 200);
        pieces[i] = arena_take(&arena, sizes[i]);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)(i % 251), sizes[i]);
    }
    for (size_t i = 0; i < PIECES; i++)
        ck_assert(all_are(pieces[i], sizes[i], (uint8_t)(i % 251)));
    arena_destroy(&arena);
}
END_TEST

START_TEST(the_limit_is_reached_and_never_passed)
{
    struct arena arena;
    arena_init(&arena, 1600);
    for (int i = 0; i < 100; i++)
        ck_assert_ptr_nonnull(arena_take(&arena, 1));
    ck_assert_uint_eq(arena.used_bytes, 1600);
    ck_assert_ptr_null(arena_take(&arena, 1));
    ck_assert_ptr_null(arena_take_zeroed(&arena, 1, 1));
    ck_assert_ptr_null(arena_copy_string(&arena, bytes_of_string("")));
    arena_destroy(&arena);

    arena_init(&arena, 100000);
    ck_assert_ptr_null(arena_take(&arena, 100001));
    ck_assert_ptr_nonnull(arena_take(&arena, 100000));
    ck_assert_ptr_null(arena_take(&arena, 16));
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_refused_piece_does_not_hinder_a_smaller_one)
{
    struct arena arena;
    arena_init(&arena, 64 * KIB);
    ck_assert_ptr_null(arena_take(&arena, 65 * KIB));
    ck_assert_ptr_nonnull(arena_take(&arena, 60 * KIB));
    ck_assert_ptr_null(arena_take(&arena, 8 * KIB));
    ck_assert_ptr_nonnull(arena_take(&arena, 4 * KIB));
    arena_destroy(&arena);
}
END_TEST

START_TEST(sizes_near_the_end_of_size_t_are_refused)
{
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX));
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX - 15));
    ck_assert_ptr_null(arena_take_zeroed(&arena, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(arena_take_zeroed(&arena, (size_t)1 << 32, (size_t)1 << 32));
    ck_assert_ptr_null(arena_copy_string(&arena, bytes_of("", SIZE_MAX)));
    arena_destroy(&arena);
}
END_TEST

START_TEST(nothing_is_always_to_be_had)
{
    struct arena arena = {0};
    ck_assert_ptr_nonnull(arena_take(&arena, 0));
    ck_assert_ptr_nonnull(arena_take_zeroed(&arena, 0, 8));
    ck_assert_ptr_nonnull(arena_take_zeroed(&arena, 8, 0));
    ck_assert_ptr_null(arena_take(&arena, 1));
    arena_destroy(&arena);
    arena_destroy(NULL);
}
END_TEST

START_TEST(zeroed_memory_is_zero_and_strings_end)
{
    struct arena arena;
    arena_init(&arena, MIB);
    for (int round = 0; round < 100; round++) {
        memset(arena_take(&arena, 100), 0xff, 100);
        const uint8_t *zeroed = arena_take_zeroed(&arena, 10, 10);
        ck_assert(all_are(zeroed, 100, 0));
        ck_assert_str_eq(arena_copy_string(&arena, bytes_of("abcdef", 3)), "abc");
        ck_assert_str_eq(arena_copy_string(&arena, bytes_of(NULL, 0)), "");
    }
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_destroyed_arena_can_be_used_again)
{
    struct arena arena;
    arena_init(&arena, 1000);
    ck_assert_ptr_nonnull(arena_take(&arena, 1000 / 16 * 16));
    ck_assert_ptr_null(arena_take(&arena, 16));
    arena_destroy(&arena);
    arena_destroy(&arena);
    ck_assert_ptr_nonnull(arena_take(&arena, 16));
    arena_destroy(&arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tests = tcase_create("arena");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, pieces_are_aligned_and_keep_their_bytes);
    tcase_add_test(tests, the_limit_is_reached_and_never_passed);
    tcase_add_test(tests, a_refused_piece_does_not_hinder_a_smaller_one);
    tcase_add_test(tests, sizes_near_the_end_of_size_t_are_refused);
    tcase_add_test(tests, nothing_is_always_to_be_had);
    tcase_add_test(tests, zeroed_memory_is_zero_and_strings_end);
    tcase_add_test(tests, a_destroyed_arena_can_be_used_again);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
