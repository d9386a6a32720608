/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* One digest function. The first part is set here, the second by fetch_algorithms(). */
struct algorithm {
    enum digest_function function;
    const char *openssl_name;
    size_t hash_length;

    EVP_MD *md; /* owned by the process */
    uint8_t hash_of_nothing[DIGEST_HASH_BYTES_MAX];
};

/*
 * To serve one more function, add it to the enum, here and to the text; of equal lengths the first
 * is inferred.
 */
static struct algorithm algorithms[] = {
    {.function = DIGEST_FUNCTION_SHA256,
     .openssl_name = "SHA256",
     .hash_length = SHA256_HASH_BYTES},
};

const char *digest_functions_supported_text(void)
{
    return "SHA256";
}

/* The context of this thread for digest_of_list(); freed at its end through context_key. */
static _Thread_local EVP_MD_CTX *thread_context;
static pthread_key_t context_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct hasher {
    const struct algorithm *algorithm; /* borrowed, static */
    EVP_MD_CTX *context;               /* owned */
    int64_t size_bytes;                /* of what was given since the last reset */
    bool finished;
};

static const struct algorithm *find_by_function(enum digest_function function);
static const struct algorithm *find_by_hex_length(size_t length);
static const struct algorithm *fetched(enum digest_function function);
static void fetch_algorithms(void);
static EVP_MD_CTX *context_of_thread(void);
static void free_context(void *context);
static bool parse_hex(struct bytes hex, uint8_t *hash);
static bool parse_size(struct bytes digits, int64_t *size_bytes);
static void hash_begin(EVP_MD_CTX *context, const struct algorithm *algorithm);
static void hash_end(EVP_MD_CTX *context,
                     const struct algorithm *algorithm,
                     uint8_t hash[DIGEST_HASH_BYTES_MAX]);
static void set_digest(struct digest *digest,
                       const struct algorithm *algorithm,
                       const uint8_t *hash,
                       int64_t size_bytes);

bool digest_function_supported(enum digest_function function)
{
    return find_by_function(function) != NULL;
}

bool digest_parse(enum digest_function function,
                  struct bytes hash_hex,
                  int64_t size_bytes,
                  struct digest *digest,
                  struct status *status)
{
    const struct algorithm *algorithm;
    if (function == DIGEST_FUNCTION_UNKNOWN) {
        algorithm = find_by_hex_length(hash_hex.length);
        if (algorithm == NULL)
            return status_fail(
                status, STATUS_INVALID_ARGUMENT,
                "hash of %zu characters belongs to no digest function of this server (%s)",
                hash_hex.length, digest_functions_supported_text());
    } else {
        algorithm = find_by_function(function);
        if (algorithm == NULL)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "digest function %d is not supported; this server supports %s",
                               (int)function, digest_functions_supported_text());
        if (hash_hex.length != 2 * algorithm->hash_length)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "hash has %zu characters, %s has %zu", hash_hex.length,
                               algorithm->openssl_name, 2 * algorithm->hash_length);
    }
    uint8_t hash[DIGEST_HASH_BYTES_MAX];
    if (!parse_hex(hash_hex, hash))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "hash is not lower-case hexadecimal");
    if (size_bytes < 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "size_bytes is negative: %" PRId64,
                           size_bytes);

    set_digest(digest, algorithm, hash, size_bytes);
    return true;
}

/*
 * One more than the value of each lower-case hexadecimal digit; 0: no such digit. A table and no comparisons: which of them hold is
 * random in a hash, and each wrong guess of the processor costs more than the whole conversion.
 */
static const uint8_t hex_values[256] = {
    ['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

static bool parse_hex(struct bytes hex, uint8_t *hash)
{
    ASSERT(hex.length % 2 == 0 && hex.length <= DIGEST_HASH_HEX_MAX);
    unsigned wrong = 0;
    for (size_t i = 0; i < hex.length / 2; i++) {
        const unsigned high = hex_values[hex.data[2 * i]];
        const unsigned low = hex_values[hex.data[2 * i + 1]];
        wrong |= (high - 1) | (low - 1); /* of 0 all bits */
        hash[i] = (uint8_t)((high - 1) << 4 | (low - 1));
    }
    return wrong < 16;
}

const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT_BYTES_MAX])
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    const int length = snprintf(text, DIGEST_TEXT_BYTES_MAX, "%s/%" PRId64, digest_hex(digest, hex),
                                digest->size_bytes);
    ASSERT(length > 0 && length < DIGEST_TEXT_BYTES_MAX);
    return text;
}

const char *digest_hex(const struct digest *digest, char hex[DIGEST_HASH_HEX_MAX + 1])
{
    static const char characters[] = "0123456789abcdef";
    ASSERT(digest->hash_length <= DIGEST_HASH_BYTES_MAX);
    for (size_t i = 0; i < digest->hash_length; i++) {
        hex[2 * i] = characters[digest->hash[i] >> 4];
        hex[2 * i + 1] = characters[digest->hash[i] & 0xf];
    }
    hex[2 * (size_t)digest->hash_length] = '\0';
    return hex;
}

bool digest_parse_text(struct bytes text, struct digest *digest, struct status *status)
{
    const uint8_t *const slash = text.length > 0 ? memchr(text.data, '/', text.length) : NULL;
    if (slash == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "a digest is written HASH/SIZE");
    const size_t hash_length = (size_t)(slash - text.data);

    int64_t size_bytes;
    if (!parse_size(bytes_of(slash + 1, text.length - hash_length - 1), &size_bytes))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the size behind HASH/ is not a number of bytes");
    return digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of(text.data, hash_length), size_bytes,
                        digest, status);
}

static bool parse_size(struct bytes digits, int64_t *size_bytes)
{
    int64_t value = 0;
    for (size_t i = 0; i < digits.length; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digits.data[i] - '0', &value))
            return false;
    }
    *size_bytes = value;
    return digits.length > 0;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return a->size_bytes == b->size_bytes && a->function == b->function &&
           a->hash_length == b->hash_length && memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}

bool digest_is_empty_blob(const struct digest *digest)
{
    if (digest->size_bytes != 0)
        return false;
    const struct algorithm *const algorithm = fetched((enum digest_function)digest->function);
    return digest->hash_length == algorithm->hash_length &&
           memcmp(digest->hash, algorithm->hash_of_nothing, algorithm->hash_length) == 0;
}

void digest_of_bytes(enum digest_function function, struct bytes data, struct digest *digest)
{
    digest_of_list(function, (struct bytes_list){.parts = &data, .count = 1}, digest);
}

void digest_of_list(enum digest_function function, struct bytes_list data, struct digest *digest)
{
    const struct algorithm *const algorithm = fetched(function);
    EVP_MD_CTX *const context = context_of_thread();
    uint8_t hash[DIGEST_HASH_BYTES_MAX];
    size_t size_bytes = 0;

    hash_begin(context, algorithm);
    for (size_t i = 0; i < data.count; i++) {
        if (data.parts[i].length == 0)
            continue;
        ASSERT(EVP_DigestUpdate(context, data.parts[i].data, data.parts[i].length) == 1);
        size_bytes += data.parts[i].length;
    }
    hash_end(context, algorithm, hash);
    set_digest(digest, algorithm, hash, (int64_t)size_bytes);
}

/* fetched() has been called. */
static EVP_MD_CTX *context_of_thread(void)
{
    if (thread_context == NULL) {
        thread_context = EVP_MD_CTX_new();
        ASSERT(thread_context != NULL);
        ASSERT(pthread_setspecific(context_key, thread_context) == 0);
    }
    return thread_context;
}

static void free_context(void *context)
{
    EVP_MD_CTX_free(context);
    thread_context = NULL;
}

struct hasher *hasher_new(enum digest_function function)
{
    struct hasher *const hasher = calloc(1, sizeof(*hasher));
    ASSERT(hasher != NULL);
    hasher->algorithm = fetched(function);
    hasher->context = EVP_MD_CTX_new();
    ASSERT(hasher->context != NULL);
    hasher_reset(hasher);
    return hasher;
}

void hasher_free(struct hasher *hasher)
{
    if (hasher == NULL)
        return;
    EVP_MD_CTX_free(hasher->context);
    free(hasher);
}

void hasher_reset(struct hasher *hasher)
{
    hash_begin(hasher->context, hasher->algorithm);
    hasher->size_bytes = 0;
    hasher->finished = false;
}

void hasher_update(struct hasher *hasher, struct bytes data)
{
    ASSERT(!hasher->finished);
    if (data.length == 0)
        return;
    ASSERT(EVP_DigestUpdate(hasher->context, data.data, data.length) == 1);
    hasher->size_bytes += (int64_t)data.length;
}

void hasher_finish(struct hasher *hasher, struct digest *digest)
{
    ASSERT(!hasher->finished);
    uint8_t hash[DIGEST_HASH_BYTES_MAX];
    hash_end(hasher->context, hasher->algorithm, hash);
    set_digest(digest, hasher->algorithm, hash, hasher->size_bytes);
    hasher->finished = true;
}

void hasher_peek(const struct hasher *hasher, struct digest *digest)
{
    ASSERT(!hasher->finished);
    uint8_t hash[DIGEST_HASH_BYTES_MAX];
    EVP_MD_CTX *const context = context_of_thread();
    ASSERT(EVP_MD_CTX_copy_ex(context, hasher->context) == 1);
    hash_end(context, hasher->algorithm, hash);
    set_digest(digest, hasher->algorithm, hash, hasher->size_bytes);
}

static const struct algorithm *find_by_function(enum digest_function function)
{
    for (size_t i = 0; i < ARRAY_LENGTH(algorithms); i++)
        if (algorithms[i].function == function)
            return &algorithms[i];
    return NULL;
}

static const struct algorithm *find_by_hex_length(size_t length)
{
    for (size_t i = 0; i < ARRAY_LENGTH(algorithms); i++)
        if (2 * algorithms[i].hash_length == length)
            return &algorithms[i];
    return NULL;
}

/* What hashes: an unknown function here is our own mistake, digest_parse() lets none through. */
static const struct algorithm *fetched(enum digest_function function)
{
    ASSERT(pthread_once(&once, fetch_algorithms) == 0);
    const struct algorithm *const algorithm = find_by_function(function);
    ASSERT(algorithm != NULL);
    return algorithm;
}

/* EVP_sha256() would look the algorithm up under global locks at every use. */
static void fetch_algorithms(void)
{
    ASSERT(pthread_key_create(&context_key, free_context) == 0);
    EVP_MD_CTX *const context = EVP_MD_CTX_new();
    ASSERT(context != NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(algorithms); i++) {
        struct algorithm *const algorithm = &algorithms[i];
        algorithm->md = EVP_MD_fetch(NULL, algorithm->openssl_name, NULL);
        ASSERT(algorithm->md != NULL);
        ASSERT((size_t)EVP_MD_get_size(algorithm->md) == algorithm->hash_length);
        hash_begin(context, algorithm);
        hash_end(context, algorithm, algorithm->hash_of_nothing);
    }
    EVP_MD_CTX_free(context);
}

static void hash_begin(EVP_MD_CTX *context, const struct algorithm *algorithm)
{
    ASSERT(EVP_DigestInit_ex2(context, algorithm->md, NULL) == 1);
}

static void hash_end(EVP_MD_CTX *context,
                     const struct algorithm *algorithm,
                     uint8_t hash[DIGEST_HASH_BYTES_MAX])
{
    unsigned int length;
    ASSERT(EVP_DigestFinal_ex(context, hash, &length) == 1);
    ASSERT(length == algorithm->hash_length);
}

static void set_digest(struct digest *digest,
                       const struct algorithm *algorithm,
                       const uint8_t *hash,
                       int64_t size_bytes)
{
    /* Padding too, so that digests can be keys of byte-wise comparison. */
    memset(digest, 0, sizeof(*digest));
    memcpy(digest->hash, hash, algorithm->hash_length);
    digest->hash_length = (uint8_t)algorithm->hash_length;
    digest->function = (uint8_t)algorithm->function;
    digest->size_bytes = size_bytes;
}
