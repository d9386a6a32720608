/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"

enum { SCOPE_BYTES_MAX = 256 };

static void hmac(const void *key,
                 size_t key_length,
                 const char *text,
                 uint8_t out[SIGV4_KEY_BYTES]);
static void sort_pairs(struct sigv4_pair *pairs, size_t count);
static void feed(struct hasher *hasher, const char *text);
static bool join_names(const struct sigv4_pair *headers,
                       size_t count,
                       char *names,
                       size_t capacity);
static bool encode(const char *text, bool keep_slash, char *encoded, size_t capacity, size_t *used);

void sigv4_derive(const char *secret,
                  const char day[SIGV4_DAY_BYTES],
                  const char *region,
                  const char *service,
                  struct sigv4_key *key)
{
    char first[512];
    const int length = snprintf(first, sizeof(first), "AWS4%s", secret);
    ASSERT(length > 0 && (size_t)length < sizeof(first));
    hmac(first, (size_t)length, day, key->bytes);
    OPENSSL_cleanse(first, sizeof(first));
    uint8_t next[SIGV4_KEY_BYTES];
    hmac(key->bytes, SIGV4_KEY_BYTES, region, next);
    hmac(next, SIGV4_KEY_BYTES, service, key->bytes);
    hmac(key->bytes, SIGV4_KEY_BYTES, "aws4_request", next);
    memcpy(key->bytes, next, SIGV4_KEY_BYTES);
    OPENSSL_cleanse(next, sizeof(next));
}

static void hmac(const void *key, size_t key_length, const char *text, uint8_t out[SIGV4_KEY_BYTES])
{
    unsigned length = SIGV4_KEY_BYTES;
    const uint8_t *const made =
        HMAC(EVP_sha256(), key, (int)key_length, (const uint8_t *)text, strlen(text), out, &length);
    ASSERT(made != NULL);
    ASSERT(length == SIGV4_KEY_BYTES);
}

void sigv4_time(int64_t wall_s, char time[SIGV4_TIME_BYTES])
{
    const time_t seconds = (time_t)wall_s;
    struct tm parts;
    ASSERT(gmtime_r(&seconds, &parts) != NULL);
    ASSERT(strftime(time, SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &parts) == SIGV4_TIME_BYTES - 1);
}

bool sigv4_sign(const struct sigv4_request *request,
                const struct sigv4_scope *scope,
                const struct sigv4_key *key,
                char *authorization,
                size_t capacity)
{
    ASSERT(request->header_count <= SIGV4_PAIRS_MAX);
    struct sigv4_pair headers[SIGV4_PAIRS_MAX];
    char names[1024];
    char where[SCOPE_BYTES_MAX];
    memcpy(headers, request->headers, request->header_count * sizeof(headers[0]));
    sort_pairs(headers, request->header_count);
    const int where_length = snprintf(where, sizeof(where), "%.8s/%s/%s/aws4_request", scope->time,
                                      scope->region, scope->service);
    if (where_length < 0 || (size_t)where_length >= sizeof(where) ||
        !join_names(headers, request->header_count, names, sizeof(names)))
        return false;

    struct hasher *const hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    feed(hasher, request->method);
    feed(hasher, "\n");
    feed(hasher, request->path);
    feed(hasher, "\n");
    feed(hasher, request->query);
    feed(hasher, "\n");
    for (size_t i = 0; i < request->header_count; i++) {
        feed(hasher, headers[i].name);
        feed(hasher, ":");
        feed(hasher, headers[i].value);
        feed(hasher, "\n");
    }
    feed(hasher, "\n");
    feed(hasher, names);
    feed(hasher, "\n");
    feed(hasher, request->payload_sha256);
    struct digest canonical;
    hasher_finish(hasher, &canonical);
    hasher_free(hasher);

    char canonical_hex[DIGEST_HASH_HEX_MAX + 1];
    char to_sign[SCOPE_BYTES_MAX + 256];
    digest_hex(&canonical, canonical_hex);
    const int to_sign_length = snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s",
                                        scope->time, where, canonical_hex);
    ASSERT(to_sign_length > 0 && (size_t)to_sign_length < sizeof(to_sign));
    uint8_t signature[SIGV4_KEY_BYTES];
    char signature_hex[SIGV4_SHA256_HEX_BYTES];
    hmac(key->bytes, SIGV4_KEY_BYTES, to_sign, signature);
    sigv4_hex(signature, sizeof(signature), signature_hex);
    const int length = snprintf(authorization, capacity,
                                "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                                scope->access_key, where, names, signature_hex);
    return length > 0 && (size_t)length < capacity;
}

static void sort_pairs(struct sigv4_pair *pairs, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const struct sigv4_pair pair = pairs[i];
        size_t at = i;
        for (; at > 0; at--) {
            const int names = strcmp(pairs[at - 1].name, pair.name);
            if (names < 0 || (names == 0 && strcmp(pairs[at - 1].value, pair.value) <= 0))
                break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = pair;
    }
}

static void feed(struct hasher *hasher, const char *text)
{
    hasher_update(hasher, bytes_of_string(text));
}

static bool join_names(const struct sigv4_pair *headers, size_t count, char *names, size_t capacity)
{
    size_t used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const int length =
            snprintf(names + used, capacity - used, "%s%s", i > 0 ? ";" : "", headers[i].name);
        if (length < 0 || (size_t)length >= capacity - used)
            return false;
        used += (size_t)length;
    }
    return true;
}

bool sigv4_encode_path(const char *path, char *encoded, size_t capacity)
{
    size_t used = 0;
    return encode(path, true, encoded, capacity, &used);
}

/* Appends at *used, with a NUL. */
static bool encode(const char *text, bool keep_slash, char *encoded, size_t capacity, size_t *used)
{
    static const char digits[] = "0123456789ABCDEF";
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        const bool plain = (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
                           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' ||
                           byte == '_' || byte == '~' || (keep_slash && byte == '/');
        if (*used + (plain ? 1 : 3) >= capacity)
            return false;
        if (plain) {
            encoded[(*used)++] = (char)byte;
        } else {
            encoded[(*used)++] = '%';
            encoded[(*used)++] = digits[byte >> 4];
            encoded[(*used)++] = digits[byte & 15];
        }
    }
    if (*used >= capacity)
        return false;
    encoded[*used] = '\0';
    return true;
}

bool sigv4_encode_query(const struct sigv4_pair *pairs,
                        size_t count,
                        char *encoded,
                        size_t capacity)
{
    ASSERT(count <= SIGV4_PAIRS_MAX);
    struct sigv4_pair sorted[SIGV4_PAIRS_MAX];
    for (size_t i = 0; i < count; i++)
        sorted[i] = pairs[i];
    sort_pairs(sorted, count);
    size_t used = 0;
    if (capacity == 0)
        return false;
    encoded[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (used + 2 >= capacity)
            return false;
        if (i > 0)
            encoded[used++] = '&';
        if (!encode(sorted[i].name, false, encoded, capacity, &used) || used + 1 >= capacity)
            return false;
        encoded[used++] = '=';
        if (!encode(sorted[i].value, false, encoded, capacity, &used))
            return false;
    }
    return true;
}

void sigv4_hex(const uint8_t *data, size_t length, char *to)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < length; i++) {
        to[2 * i] = digits[data[i] >> 4];
        to[2 * i + 1] = digits[data[i] & 15];
    }
    to[2 * length] = '\0';
}
