/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a digest set keeps each digest once, in the order in which they came, through every
 * growth of its blocks and slots; that size is part of a digest; and that limits and a used-up
 * arena are told instead of passed.
 */
#include "base/limits.h"
#include "server/digest_set.h"
#include "tests/support/messages.h"
#include "tests/support/test_run.h"

static struct digest numbered(uint64_t number)
{
    struct digest digest = {.hash_length = SHA256_HASH_BYTES, .function = DIGEST_FUNCTION_SHA256};
    memcpy(digest.hash + 8, &number, sizeof(number));
    digest.size_bytes = (int64_t)(number % 1000);
    return digest;
}

START_TEST(digest_set_keeps_each_once_and_in_order)
{
    enum { DIGESTS = 20000 };
    struct arena arena;
    struct digest_set set;
    struct status status = {0};
    arena_init(&arena, 16 * MIB);
    ck_assert(digest_set_init(&set, &arena, DIGESTS, &status));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < DIGESTS; i++) {
            const struct digest digest = numbered(i);
            size_t index;
            bool added;
            ck_assert(digest_set_add(&set, &digest, &index, &added, &status));
            ck_assert_uint_eq(index, i);
            ck_assert(added == (round == 0));
        }
    }
    ck_assert_uint_eq(set.count, DIGESTS);
    for (size_t i = 0; i < DIGESTS; i++) {
        const struct digest expected = numbered(i);
        struct digest digest;
        digest_set_get(&set, i, &digest);
        ck_assert(digest_equal(&digest, &expected));
    }
    arena_destroy(&arena);
}
END_TEST

START_TEST(digest_set_tells_digests_apart_that_differ_in_size_alone)
{
    struct arena arena;
    struct digest_set set;
    struct status status = {0};
    arena_init(&arena, MIB);
    ck_assert(digest_set_init(&set, &arena, 2000, &status));
    struct digest digest = numbered(7);
    size_t index;
    bool added;
    ck_assert(!digest_set_find(&set, &digest, &index));
    ck_assert(digest_set_add(&set, &digest, &index, &added, &status) && added);
    digest.size_bytes++;
    ck_assert(!digest_set_find(&set, &digest, &index));
    ck_assert(digest_set_add(&set, &digest, &index, &added, &status) && added);
    ck_assert_uint_eq(index, 1);
    ck_assert(digest_set_find(&set, &digest, &index));
    ck_assert_uint_eq(index, 1);
    /* Often enough that they meet in the slots. */
    for (int i = 0; i < 1000; i++) {
        digest.size_bytes++;
        ck_assert(digest_set_add(&set, &digest, &index, &added, &status) && added);
    }
    arena_destroy(&arena);
}
END_TEST

START_TEST(digest_set_ends_at_its_limit)
{
    struct arena arena;
    struct digest_set set;
    struct status status = {0};
    arena_init(&arena, MIB);
    ck_assert(digest_set_init(&set, &arena, 100, &status));
    size_t index;
    bool added;
    for (size_t i = 0; i < 100; i++) {
        const struct digest digest = numbered(i);
        ck_assert(digest_set_add(&set, &digest, &index, &added, &status));
    }
    const struct digest known = numbered(99);
    ck_assert(digest_set_add(&set, &known, &index, &added, &status) && !added);
    const struct digest more = numbered(100);
    ck_assert(!digest_set_add(&set, &more, &index, &added, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    arena_destroy(&arena);
}
END_TEST

/* At every size of the arena: what was added before it was used up is still right. */
START_TEST(digest_set_survives_an_arena_that_is_used_up)
{
    for (size_t limit = 0; limit < 40000; limit += 777) {
        struct arena arena;
        struct digest_set set;
        struct status status = {0};
        arena_init(&arena, limit);
        ck_assert(digest_set_init(&set, &arena, 100000, &status));
        size_t index;
        bool added;
        size_t count = 0;
        for (;; count++) {
            const struct digest digest = numbered(count);
            if (!digest_set_add(&set, &digest, &index, &added, &status))
                break;
        }
        ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
        ck_assert_uint_eq(set.count, count);
        for (size_t i = 0; i < count; i++) {
            const struct digest digest = numbered(i);
            ck_assert(digest_set_find(&set, &digest, &index));
            ck_assert_uint_eq(index, i);
        }
        arena_destroy(&arena);
    }
}
END_TEST

/* A million of them, which is what a tree may have, fit the memory of one call. */
START_TEST(digest_set_of_the_largest_tree_fits_a_call)
{
    struct arena arena;
    struct digest_set set;
    struct status status = {0};
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    ck_assert(digest_set_init(&set, &arena, LIMIT_TREE_DIRECTORIES, &status));
    for (size_t i = 0; i < LIMIT_TREE_DIRECTORIES; i++) {
        const struct digest digest = numbered(i);
        size_t index;
        bool added;
        ASSERT(digest_set_add(&set, &digest, &index, &added, &status));
    }
    ck_assert_uint_eq(set.count, LIMIT_TREE_DIRECTORIES);
    arena_destroy(&arena);
}
END_TEST

START_TEST(digest_set_refuses_digests_of_two_functions)
{
    struct arena arena;
    struct digest_set set;
    struct status status = {0};
    arena_init(&arena, MIB);
    ck_assert(digest_set_init(&set, &arena, 100, &status));
    size_t index;
    bool added;
    struct digest digest = numbered(1);
    ck_assert(digest_set_add(&set, &digest, &index, &added, &status));
    digest.function = DIGEST_FUNCTION_UNKNOWN;
    ck_assert(!digest_set_add(&set, &digest, &index, &added, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    arena_destroy(&arena);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("digest_set");
    TCase *const tests = tcase_create("digest_set");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, digest_set_keeps_each_once_and_in_order);
    tcase_add_test(tests, digest_set_tells_digests_apart_that_differ_in_size_alone);
    tcase_add_test(tests, digest_set_ends_at_its_limit);
    tcase_add_test(tests, digest_set_survives_an_arena_that_is_used_up);
    tcase_add_test(tests, digest_set_of_the_largest_tree_fits_a_call);
    tcase_add_test(tests, digest_set_refuses_digests_of_two_functions);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
