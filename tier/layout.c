/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *function_name(const struct digest *digest);
static void encode_instance(struct bytes instance, char text[LAYOUT_INSTANCE_BYTES_MAX + 1]);

void layout_blob_key(const char *prefix,
                     const struct digest *digest,
                     char key[BUCKET_KEY_BYTES_MAX])
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_hex(digest, hex);
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/cas/%s/%.2s/%s", prefix,
                                function_name(digest), hex, hex);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

void layout_blobs_prefix(const char *prefix, char key[BUCKET_KEY_BYTES_MAX])
{
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/cas/", prefix);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

bool layout_blob_of_key(const char *prefix,
                        const char *key,
                        uint64_t size_bytes,
                        struct digest *digest)
{
    char expected[BUCKET_KEY_BYTES_MAX];
    struct status status = {0};
    const char *const slash = strrchr(key, '/');
    if (slash == NULL || size_bytes > INT64_MAX ||
        !digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of_string(slash + 1), (int64_t)size_bytes,
                      digest, &status))
        return false;
    layout_blob_key(prefix, digest, expected);
    return strcmp(key, expected) == 0;
}

static const char *function_name(const struct digest *digest)
{
    ASSERT(digest->function == DIGEST_FUNCTION_SHA256);
    return "sha256";
}

void layout_action_key(const char *prefix,
                       const struct digest *action,
                       struct bytes instance,
                       char key[BUCKET_KEY_BYTES_MAX])
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char name[LAYOUT_INSTANCE_BYTES_MAX + 1];
    digest_hex(action, hex);
    encode_instance(instance, name);
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/ac/%s/%s/%.2s/%s", prefix, name,
                                function_name(action), hex, hex);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

void layout_pack_key(const char *prefix, uint64_t number, char key[BUCKET_KEY_BYTES_MAX])
{
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/pack/%02x/%016" PRIx64, prefix,
                                (unsigned)(number & 0xff), number);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

void layout_pack_index_key(const char *prefix, uint64_t number, char key[BUCKET_KEY_BYTES_MAX])
{
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/idx/%016" PRIx64, prefix, number);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

void layout_pack_indexes_prefix(const char *prefix, char key[BUCKET_KEY_BYTES_MAX])
{
    const int length = snprintf(key, BUCKET_KEY_BYTES_MAX, "%s/idx/", prefix);
    ASSERT(length > 0 && length < BUCKET_KEY_BYTES_MAX);
}

uint64_t layout_pack_index_of_key(const char *prefix, const char *key)
{
    char expected[BUCKET_KEY_BYTES_MAX];
    const char *const slash = strrchr(key, '/');
    const uint64_t number = slash != NULL ? strtoull(slash + 1, NULL, 16) : 0;
    layout_pack_index_key(prefix, number, expected);
    return strcmp(key, expected) == 0 ? number : 0;
}

static void encode_instance(struct bytes instance, char text[LAYOUT_INSTANCE_BYTES_MAX + 1])
{
    size_t used = 0;
    for (size_t i = 0; i < instance.length; i++) {
        const uint8_t byte = instance.data[i];
        /* A name of dots alone would be walked by what takes names for paths. */
        const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
                           (byte == '.' && used > 0);
        if (used + (plain ? 1 : 3) > LAYOUT_INSTANCE_BYTES_MAX) {
            struct digest digest;
            char hex[DIGEST_HASH_HEX_MAX + 1];
            digest_of_bytes(DIGEST_FUNCTION_SHA256, instance, &digest);
            snprintf(text, LAYOUT_INSTANCE_BYTES_MAX + 1, "--%s", digest_hex(&digest, hex));
            return;
        }
        if (plain)
            text[used++] = (char)byte;
        else
            used += (size_t)snprintf(text + used, 4, "-%02x", byte);
    }
    if (used == 0)
        text[used++] = '-';
    text[used] = '\0';
}

bool layout_check_prefix(const char *prefix, struct status *status)
{
    const size_t length = strlen(prefix);
    bool ok = length > 0 && length <= LAYOUT_PREFIX_BYTES_MAX && prefix[length - 1] != '/';
    for (size_t i = 0; ok && i < length; i++) {
        const char c = prefix[i];
        const bool first = i == 0 || prefix[i - 1] == '/';
        ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             (!first && (c == '-' || c == '.' || c == '/'));
    }
    return ok || status_fail(status, STATUS_INVALID_ARGUMENT,
                             "it is to have 1 to %d of a-z, 0-9, '-', '.' and '/', each "
                             "part beginning with a letter or digit",
                             LAYOUT_PREFIX_BYTES_MAX);
}
