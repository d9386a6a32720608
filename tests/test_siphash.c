/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that our SipHash-1-3 is SipHash-1-3: by the values known for it, and by OpenSSL's SipHash
 * (told to do 1 and 3 rounds) for every length up to 200 bytes and random keys, however the message
 * is cut into words and a rest.
 */
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "store/siphash.h"
#include "tests/support/test_run.h"

enum { MESSAGE_BYTES_MAX = 200 };

static uint64_t hash_in_two(const struct siphash_key *key, struct bytes message, size_t words)
{
    struct siphash siphash;
    siphash_begin(&siphash, key);
    siphash_words(&siphash, message.data, words);
    return siphash_finish(&siphash, bytes_of(message.data + words * SIPHASH_WORD_BYTES,
                                             message.length - words * SIPHASH_WORD_BYTES));
}

static uint64_t hash_by_openssl(EVP_MAC *algorithm,
                                const struct siphash_key *key,
                                struct bytes message)
{
    unsigned int compression = 1, finalization = 3;
    size_t size = sizeof(uint64_t);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_size_t("size", &size),
        OSSL_PARAM_construct_uint("c-rounds", &compression),
        OSSL_PARAM_construct_uint("d-rounds", &finalization),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(algorithm);
    uint64_t hash = 0;
    size_t length = 0;
    ck_assert_ptr_nonnull(context);
    ck_assert_int_eq(EVP_MAC_init(context, key->bytes, sizeof(key->bytes), params), 1);
    ck_assert_int_eq(EVP_MAC_update(context, message.data, message.length), 1);
    ck_assert_int_eq(EVP_MAC_final(context, (unsigned char *)&hash, &length, sizeof(hash)), 1);
    ck_assert_uint_eq(length, sizeof(hash));
    EVP_MAC_CTX_free(context);
    return hash;
}

START_TEST(siphash_gives_the_known_values)
{
    static const struct {
        size_t length;
        uint8_t hash[SIPHASH_WORD_BYTES];
    } known[] = {
        {0, {0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab}},
        {1, {0x93, 0xca, 0x57, 0x7d, 0xf3, 0x9b, 0xf4, 0xc9}},
        {7, {0x40, 0x11, 0xb1, 0x9b, 0x98, 0x7d, 0x92, 0xd3}},
        {8, {0x8e, 0x9a, 0x29, 0x8d, 0x11, 0x95, 0x90, 0x36}},
        {15, {0x56, 0x99, 0x51, 0x2a, 0x6d, 0xd8, 0x20, 0xd3}},
        {63, {0xa8, 0xb3, 0xbb, 0xb7, 0x62, 0x90, 0x19, 0x9d}},
    };
    /* Key 00 01 .. 0f, message 00 01 .. */
    struct siphash_key key;
    uint8_t message[64];
    for (size_t i = 0; i < sizeof(key.bytes); i++)
        key.bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(message); i++)
        message[i] = (uint8_t)i;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        const uint64_t hash = hash_in_two(&key, bytes_of(message, known[i].length), 0);
        ck_assert_mem_eq(&hash, known[i].hash, sizeof(hash));
    }
}
END_TEST

START_TEST(siphash_agrees_with_openssl_however_the_message_is_cut)
{
    enum { ROUNDS = 20 };
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    ck_assert_ptr_nonnull(algorithm);
    srandom(20260101);
    for (int round = 0; round < ROUNDS; round++) {
        struct siphash_key key;
        uint8_t message[MESSAGE_BYTES_MAX];
        for (size_t i = 0; i < sizeof(key.bytes); i++)
            key.bytes[i] = (uint8_t)random();
        for (size_t i = 0; i < sizeof(message); i++)
            message[i] = (uint8_t)random();
        for (size_t length = 0; length <= sizeof(message); length++) {
            const struct bytes bytes = bytes_of(message, length);
            const uint64_t expected = hash_by_openssl(algorithm, &key, bytes);
            const size_t words = (size_t)random() % (length / SIPHASH_WORD_BYTES + 1);
            ck_assert_uint_eq(hash_in_two(&key, bytes, 0), expected);
            ck_assert_uint_eq(hash_in_two(&key, bytes, words), expected);
        }
    }
    EVP_MAC_free(algorithm);
}
END_TEST

START_TEST(siphash_takes_an_empty_rest_without_data)
{
    const struct siphash_key key = {{1, 2, 3}};
    struct siphash a, b;
    siphash_begin(&a, &key);
    siphash_begin(&b, &key);
    ck_assert_uint_eq(siphash_finish(&a, (struct bytes){0}),
                      siphash_finish(&b, bytes_of_string("")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("siphash");
    TCase *tcase = tcase_create("siphash");
    tcase_add_test(tcase, siphash_gives_the_known_values);
    tcase_add_test(tcase, siphash_agrees_with_openssl_however_the_message_is_cut);
    tcase_add_test(tcase, siphash_takes_an_empty_rest_without_data);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
