/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that digests are what FIPS 180-4 says, however the bytes come: whole, in lists, in pieces,
 * on many threads; and that what a client sends as a digest is taken only in its one right form.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/thread.h"
#include "tests/support/test_run.h"

#define SHA256_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHA256_OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define SHA256_OF_MILLION_A "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"

enum { MILLION = 1000000 };

static void assert_digest(const struct digest *digest, const char *hex, int64_t size_bytes)
{
    char text[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_str_eq(digest_hex(digest, text), hex);
    ck_assert_int_eq(digest->size_bytes, size_bytes);
    ck_assert_int_eq(digest->function, DIGEST_FUNCTION_SHA256);
    ck_assert_int_eq(digest->hash_length, SHA256_HASH_BYTES);
    static const uint8_t zeros[DIGEST_HASH_BYTES_MAX];
    ck_assert_mem_eq(digest->hash + digest->hash_length, zeros,
                     sizeof(digest->hash) - digest->hash_length);
}

static uint8_t *million_a(void)
{
    uint8_t *data = malloc(MILLION);
    ck_assert_ptr_nonnull(data);
    memset(data, 'a', MILLION);
    return data;
}

START_TEST(known_texts_have_their_known_digests)
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &digest);
    assert_digest(&digest, SHA256_OF_NOTHING, 0);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("abc"), &digest);
    assert_digest(&digest, SHA256_OF_ABC, 3);
    uint8_t *data = million_a();
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, MILLION), &digest);
    assert_digest(&digest, SHA256_OF_MILLION_A, MILLION);
    free(data);
}
END_TEST

START_TEST(a_list_has_the_digest_of_its_bytes_together)
{
    const struct bytes parts[] = {bytes_of_string("a"), bytes_of(NULL, 0), bytes_of_string("bc")};
    struct digest digest;
    digest_of_list(DIGEST_FUNCTION_SHA256,
                   (struct bytes_list){.parts = parts, .count = ARRAY_LENGTH(parts)}, &digest);
    assert_digest(&digest, SHA256_OF_ABC, 3);
    digest_of_list(DIGEST_FUNCTION_SHA256, (struct bytes_list){0}, &digest);
    assert_digest(&digest, SHA256_OF_NOTHING, 0);
}
END_TEST

START_TEST(a_hasher_that_is_peeked_at_goes_on)
{
    static const char text[] = "the quick brown fox";
    struct digest peeked, expected;
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    for (size_t i = 0; i < sizeof(text); i++) {
        hasher_peek(hasher, &peeked);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(text, i), &expected);
        ck_assert(digest_equal(&peeked, &expected));
        hasher_update(hasher, bytes_of(text + i, 1));
    }
    hasher_finish(hasher, &peeked);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(text, sizeof(text)), &expected);
    ck_assert(digest_equal(&peeked, &expected));
    hasher_free(hasher);
}
END_TEST

START_TEST(a_hasher_gives_the_same_for_any_pieces_and_after_a_reset)
{
    uint8_t *data = million_a();
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    static const size_t pieces[] = {MILLION, 1000, 4096, 77777};
    for (size_t p = 0; p < ARRAY_LENGTH(pieces); p++) {
        hasher_reset(hasher);
        for (size_t at = 0; at < MILLION; at += pieces[p]) {
            const size_t left = MILLION - at;
            hasher_update(hasher, bytes_of(data + at, left < pieces[p] ? left : pieces[p]));
            hasher_update(hasher, bytes_of(NULL, 0));
        }
        struct digest digest;
        hasher_finish(hasher, &digest);
        assert_digest(&digest, SHA256_OF_MILLION_A, MILLION);
    }
    /* A reset also forgets what was given and not finished. */
    hasher_reset(hasher);
    hasher_update(hasher, bytes_of_string("junk"));
    hasher_reset(hasher);
    hasher_update(hasher, bytes_of_string("abc"));
    struct digest digest;
    hasher_finish(hasher, &digest);
    assert_digest(&digest, SHA256_OF_ABC, 3);
    hasher_free(hasher);
    hasher_free(NULL);
    free(data);
}
END_TEST

static void hash_many(void *argument)
{
    bool *right = argument;
    struct digest expected;
    struct status status;
    *right =
        digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(SHA256_OF_ABC), 3, &expected, &status);
    for (int i = 0; *right && i < 20000; i++) {
        struct digest digest;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("abc"), &digest);
        *right = digest_equal(&digest, &expected);
    }
}

START_TEST(threads_hash_at_once)
{
    enum { THREADS = 4 };
    struct thread threads[THREADS] = {0};
    bool right[THREADS] = {false};
    struct status status = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert(thread_start(&threads[i], "hash", 0, hash_many, &right[i], &status));
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        ck_assert(right[i]);
    }
}
END_TEST

START_TEST(text_and_digest_convert_both_ways)
{
    struct digest digest;
    struct status status = {0};
    char text[DIGEST_TEXT_BYTES_MAX];
    ck_assert(
        digest_parse_text(bytes_of_string(SHA256_OF_ABC "/9223372036854775807"), &digest, &status));
    assert_digest(&digest, SHA256_OF_ABC, INT64_MAX);
    ck_assert_str_eq(digest_text(&digest, text), SHA256_OF_ABC "/9223372036854775807");
    ck_assert(digest_parse_text(bytes_of_string(SHA256_OF_NOTHING "/0"), &digest, &status));
    ck_assert_str_eq(digest_text(&digest, text), SHA256_OF_NOTHING "/0");
}
END_TEST

START_TEST(text_in_any_other_form_is_an_invalid_argument)
{
    static const char *const bad[] = {
        "",
        "/",
        "abc",
        SHA256_OF_ABC,
        SHA256_OF_ABC "/",
        SHA256_OF_ABC "/-1",
        SHA256_OF_ABC "/+1",
        SHA256_OF_ABC "/1 ",
        SHA256_OF_ABC "/0x1",
        SHA256_OF_ABC "/9223372036854775808",
        SHA256_OF_ABC "/99999999999999999999",
        SHA256_OF_ABC "/3/3",
        SHA256_OF_ABC "0/3",
        "/3",
        "ba7816bf/3",
        "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct digest digest;
        struct status status = {0};
        ck_assert_msg(!digest_parse_text(bytes_of_string(bad[i]), &digest, &status), "%s", bad[i]);
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_str_ne(status.message, "");
    }
}
END_TEST

START_TEST(an_unset_function_is_inferred_from_the_length)
{
    struct digest digest;
    struct status status = {0};
    ck_assert(
        digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of_string(SHA256_OF_ABC), 3, &digest, &status));
    assert_digest(&digest, SHA256_OF_ABC, 3);
    ck_assert(
        !digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of(SHA256_OF_ABC, 40), 3, &digest, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(functions_not_served_are_named_with_those_that_are)
{
    for (int function = 2; function < 12; function++) {
        struct digest digest;
        struct status status = {0};
        ck_assert(!digest_function_supported((enum digest_function)function));
        ck_assert(!digest_parse((enum digest_function)function, bytes_of_string(SHA256_OF_ABC), 3,
                                &digest, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(status.message, digest_functions_supported_text()));
    }
    ck_assert(digest_function_supported(DIGEST_FUNCTION_SHA256));
    ck_assert(!digest_function_supported(DIGEST_FUNCTION_UNKNOWN));
}
END_TEST

START_TEST(every_wrong_character_and_length_of_a_hash_is_refused)
{
    char hex[] = SHA256_OF_ABC;
    struct digest digest;
    struct status status = {0};
    for (size_t at = 0; at < strlen(hex); at++) {
        const char right = hex[at];
        for (int character = 0; character < 256; character++) {
            hex[at] = (char)character;
            const bool is_hex =
                (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
            ck_assert_int_eq(
                digest_parse(DIGEST_FUNCTION_SHA256, bytes_of(hex, 64), 3, &digest, &status),
                is_hex);
        }
        hex[at] = right;
    }
    for (size_t length = 0; length < 64; length++)
        ck_assert(
            !digest_parse(DIGEST_FUNCTION_SHA256, bytes_of(hex, length), 3, &digest, &status));
    ck_assert(!digest_parse(DIGEST_FUNCTION_SHA256, bytes_of(hex, 64), -1, &digest, &status));
    ck_assert(
        !digest_parse(DIGEST_FUNCTION_SHA256, bytes_of(hex, 64), INT64_MIN, &digest, &status));
}
END_TEST

START_TEST(a_refused_digest_leaves_the_old_value)
{
    struct digest digest;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("abc"), &digest);
    ck_assert(!digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(SHA256_OF_NOTHING), -5, &digest,
                            &status));
    assert_digest(&digest, SHA256_OF_ABC, 3);
}
END_TEST

START_TEST(digests_are_equal_only_in_hash_and_size)
{
    struct digest a, b;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("abc"), &a);
    memset(&b, 0xff, sizeof(b));
    ck_assert(digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(SHA256_OF_ABC), 3, &b, &status));
    ck_assert(digest_equal(&a, &b));
    ck_assert_mem_eq(&a, &b, sizeof(a));
    b.size_bytes = 4;
    ck_assert(!digest_equal(&a, &b));
    b.size_bytes = 3;
    b.hash[31] ^= 1;
    ck_assert(!digest_equal(&a, &b));
}
END_TEST

START_TEST(only_nothing_is_the_empty_blob)
{
    struct digest digest;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &digest);
    ck_assert(digest_is_empty_blob(&digest));
    digest.size_bytes = 1;
    ck_assert(!digest_is_empty_blob(&digest));
    ck_assert(
        digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(SHA256_OF_ABC), 0, &digest, &status));
    ck_assert(!digest_is_empty_blob(&digest));
}
END_TEST

START_TEST(a_finished_hasher_takes_no_more)
{
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    struct digest digest;
    hasher_finish(hasher, &digest);
    hasher_update(hasher, bytes_of_string("abc"));
}
END_TEST

START_TEST(hashing_by_an_unknown_function_is_our_own_mistake)
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_UNKNOWN, bytes_of_string("abc"), &digest);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digest");
    TCase *tests = tcase_create("digest");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, known_texts_have_their_known_digests);
    tcase_add_test(tests, a_list_has_the_digest_of_its_bytes_together);
    tcase_add_test(tests, a_hasher_gives_the_same_for_any_pieces_and_after_a_reset);
    tcase_add_test(tests, a_hasher_that_is_peeked_at_goes_on);
    tcase_add_test(tests, threads_hash_at_once);
    tcase_add_test(tests, text_and_digest_convert_both_ways);
    tcase_add_test(tests, text_in_any_other_form_is_an_invalid_argument);
    tcase_add_test(tests, an_unset_function_is_inferred_from_the_length);
    tcase_add_test(tests, functions_not_served_are_named_with_those_that_are);
    tcase_add_test(tests, every_wrong_character_and_length_of_a_hash_is_refused);
    tcase_add_test(tests, a_refused_digest_leaves_the_old_value);
    tcase_add_test(tests, digests_are_equal_only_in_hash_and_size);
    tcase_add_test(tests, only_nothing_is_the_empty_blob);
    tcase_add_test_raise_signal(tests, a_finished_hasher_takes_no_more, SIGABRT);
    tcase_add_test_raise_signal(tests, hashing_by_an_unknown_function_is_our_own_mistake, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
