/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/resource_name.h"

#include "base/compiler.h"
#include "base/limits.h"

enum {
    UUID_BYTES_MAX = 128,
    QUOTED_BYTES_MAX = 100, /* of a name, in an error text */
};

static const char *const reserved_words[] = {"blobs",           "uploads",    "actions",
                                             "actionResults",   "operations", "capabilities",
                                             "compressed-blobs"};

/*
 * Index: the number of REAPI's DigestFunction.Value. The newer ones are named in resource names,
 * the others left out.
 */
static const char *const function_names[] = {NULL,         "sha256", "sha1",   "md5",
                                             "vso",        "sha384", "sha512", "murmur3",
                                             "sha256tree", "blake3", "gitsha1"};
enum { FIRST_FUNCTION_NAMED = 8 };

/* Index: enum compressor. */
static const char *const compressor_names[] = {"identity", "zstd", "deflate", "brotli"};

/* What is left of a name, to be taken segment by segment. */
struct segments {
    const uint8_t *at;
    const uint8_t *end;
    bool used_up; /* an empty rest may still be one empty segment */
};

static bool parse_write(struct bytes text, struct resource_name *name, struct status *status);
static bool parse_read(struct bytes text, struct resource_name *name, struct status *status);
static bool parse_instance(struct bytes text,
                           struct segments *rest,
                           struct bytes *instance,
                           struct bytes *word,
                           struct status *status);
static bool parse_uuid(struct segments *rest, struct bytes *uuid, struct status *status);
static bool parse_blob(struct bytes word,
                       struct segments *rest,
                       struct resource_name *name,
                       struct status *status);
static bool parse_compressor(struct segments *rest,
                             enum compressor *compressor,
                             struct status *status);
static bool parse_digest(struct segments *rest, struct digest *digest, struct status *status);
static bool parse_size(struct bytes digits, int64_t *size_bytes);
static enum digest_function function_of(struct bytes segment);
static bool refuse(struct status *status, const char *what);
static bool put_name_before(struct status *status, struct bytes text);
static bool take(struct segments *rest, struct bytes *segment);
static struct segments segments_of(struct bytes text);
static bool is_reserved(struct bytes segment);
static bool has_control_bytes(struct bytes bytes);

bool resource_name_parse_write(struct bytes text, struct resource_name *name, struct status *status)
{
    return parse_write(text, name, status) || put_name_before(status, text);
}

static bool parse_write(struct bytes text, struct resource_name *name, struct status *status)
{
    *name = (struct resource_name){0};
    struct segments rest;
    struct bytes word;
    if (!parse_instance(text, &rest, &name->instance, &word, status))
        return false;
    if (!bytes_equal_string(word, "uploads"))
        return refuse(status, "'uploads' is wanted behind the instance name of a write");
    if (!parse_uuid(&rest, &name->uuid, status))
        return false;
    if (!take(&rest, &word))
        return refuse(status, "'blobs' or 'compressed-blobs' is wanted behind the uuid");
    return parse_blob(word, &rest, name, status); /* whatever follows is the client's own */
}

bool resource_name_parse_read(struct bytes text, struct resource_name *name, struct status *status)
{
    return parse_read(text, name, status) || put_name_before(status, text);
}

static bool parse_read(struct bytes text, struct resource_name *name, struct status *status)
{
    *name = (struct resource_name){0};
    struct segments rest;
    struct bytes word;
    if (!parse_instance(text, &rest, &name->instance, &word, status) ||
        !parse_blob(word, &rest, name, status))
        return false;
    if (!rest.used_up)
        return refuse(status, "nothing may follow the size in the name of a read");
    return true;
}

/* The instance name and the reserved word that ends it; *rest is what stands behind the word. */
static bool parse_instance(struct bytes text,
                           struct segments *rest,
                           struct bytes *instance,
                           struct bytes *word,
                           struct status *status)
{
    if (text.length > LIMIT_RESOURCE_NAME_BYTES)
        return refuse(status, "the name is too long");
    if (!bytes_is_utf8(text))
        return refuse(status, "the name is not UTF-8");
    if (text.length > 0 && text.data[0] == '/')
        text = bytes_of(text.data + 1, text.length - 1);
    *rest = segments_of(text);
    do {
        if (!take(rest, word))
            return refuse(
                status, "it has neither of the segments 'blobs', 'compressed-blobs' and 'uploads'");
    } while (!is_reserved(*word));

    const size_t before = (size_t)(word->data - text.data);
    if (before == 0)
        return true; /* no instance name */
    if (before == 1)
        return refuse(status, "a segment of the instance name is empty");
    *instance = bytes_of(text.data, before - 1);
    return instance_name_check(*instance, status);
}

static bool parse_uuid(struct segments *rest, struct bytes *uuid, struct status *status)
{
    if (!take(rest, uuid) || uuid->length == 0)
        return refuse(status, "a uuid is wanted behind 'uploads'");
    if (uuid->length > UUID_BYTES_MAX || has_control_bytes(*uuid))
        return refuse(status, "the uuid is too long or has control characters");
    return true;
}

/* From the word 'blobs' or 'compressed-blobs' to the size. */
static bool parse_blob(struct bytes word,
                       struct segments *rest,
                       struct resource_name *name,
                       struct status *status)
{
    if (bytes_equal_string(word, "compressed-blobs")) {
        if (!parse_compressor(rest, &name->compressor, status))
            return false;
    } else if (!bytes_equal_string(word, "blobs")) {
        return refuse(status, "'blobs' or 'compressed-blobs' is wanted before the digest");
    }
    return parse_digest(rest, &name->digest, status);
}

static bool parse_compressor(struct segments *rest,
                             enum compressor *compressor,
                             struct status *status)
{
    struct bytes segment;
    if (take(rest, &segment)) {
        if (bytes_equal_string(segment, compressor_names[COMPRESSOR_ZSTD])) {
            *compressor = COMPRESSOR_ZSTD;
            return true;
        }
        if (bytes_equal_string(segment, compressor_names[COMPRESSOR_IDENTITY])) {
            *compressor = COMPRESSOR_IDENTITY;
            return true;
        }
    }
    return refuse(status, "a supported compressor is wanted behind 'compressed-blobs': zstd");
}

static bool parse_digest(struct segments *rest, struct digest *digest, struct status *status)
{
    struct bytes hash_hex;
    bool complete = take(rest, &hash_hex);
    const enum digest_function function =
        complete ? function_of(hash_hex) : DIGEST_FUNCTION_UNKNOWN;
    if (function != DIGEST_FUNCTION_UNKNOWN) {
        if (!digest_function_supported(function))
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "digest function %s is not supported; supported: %s",
                               function_names[function], digest_functions_supported_text());
        complete = take(rest, &hash_hex);
    }
    struct bytes digits;
    if (!complete || !take(rest, &digits))
        return refuse(status, "a hash and a size are wanted");

    int64_t size_bytes = 0;
    const bool has_size = parse_size(digits, &size_bytes);
    if (!digest_parse(function, hash_hex, size_bytes, digest, status))
        return false;
    if (!has_size)
        return refuse(status, "the size is not a plain decimal number of bytes below 2^63");
    return true;
}

/* Digits alone, no leading zeros. */
static bool parse_size(struct bytes digits, int64_t *size_bytes)
{
    if (digits.length == 0 || (digits.length > 1 && digits.data[0] == '0'))
        return false;
    int64_t sum = 0;
    for (size_t i = 0; i < digits.length; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            return false;
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, digits.data[i] - '0', &sum))
            return false;
    }
    *size_bytes = sum;
    return true;
}

static enum digest_function function_of(struct bytes segment)
{
    for (unsigned i = 1; i < ARRAY_LENGTH(function_names); i++)
        if (bytes_equal_string(segment, function_names[i]))
            return (enum digest_function)i;
    return DIGEST_FUNCTION_UNKNOWN;
}

static bool refuse(struct status *status, const char *what)
{
    return status_fail(status, STATUS_INVALID_ARGUMENT, "%s", what);
}

/* Returns false, for the end of a failing line. */
static bool put_name_before(struct status *status, struct bytes text)
{
    size_t length = text.length;
    if (length > QUOTED_BYTES_MAX) {
        length = QUOTED_BYTES_MAX;
        while (length > 0 &&
               (text.data[length] & 0xc0) == 0x80) /* not in the middle of a character */
            length--;
    }
    if (length == 0 || !bytes_is_utf8(bytes_of(text.data, length)))
        status_prefix(status, "resource name");
    else
        status_prefix(status, "resource name '%.*s%s'", (int)length, (const char *)text.data,
                      length < text.length ? "..." : "");
    return false;
}

bool instance_name_check(struct bytes instance, struct status *status)
{
    if (instance.length == 0)
        return true;
    if (instance.length > LIMIT_INSTANCE_NAME_BYTES)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the instance name has more than %d bytes", LIMIT_INSTANCE_NAME_BYTES);
    if (!bytes_is_utf8(instance) || has_control_bytes(instance))
        return refuse(status, "the instance name is not UTF-8 or has control characters");
    struct segments rest = segments_of(instance);
    struct bytes segment;
    while (take(&rest, &segment)) {
        if (segment.length == 0)
            return refuse(status, "a segment of the instance name is empty");
        if (is_reserved(segment))
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "the instance name has the reserved segment '%.*s'",
                               (int)segment.length, (const char *)segment.data);
    }
    return true;
}

/* ---- formatting */

/* Text that grows up to a capacity. */
struct text {
    char *to;
    size_t capacity; /* the NUL included */
    size_t length;
    bool fits;
};

static void put(struct text *text, struct bytes bytes);
static void put_string(struct text *text, const char *string);

bool resource_name_format(char *to,
                          size_t capacity,
                          struct bytes instance,
                          const char *uuid,
                          enum compressor compressor,
                          const struct digest *digest)
{
    ASSERT(compressor < ARRAY_LENGTH(compressor_names));
    ASSERT(digest->function < ARRAY_LENGTH(function_names));
    char digest_as_text[DIGEST_TEXT_BYTES_MAX];
    struct text text = {.to = to, .capacity = capacity, .fits = true};
    if (instance.length > 0) {
        put(&text, instance);
        put_string(&text, "/");
    }
    if (uuid) {
        put_string(&text, "uploads/");
        put_string(&text, uuid);
        put_string(&text, "/");
    }
    if (compressor == COMPRESSOR_IDENTITY) {
        put_string(&text, "blobs/");
    } else {
        put_string(&text, "compressed-blobs/");
        put_string(&text, compressor_names[compressor]);
        put_string(&text, "/");
    }
    if (digest->function >= FIRST_FUNCTION_NAMED) {
        put_string(&text, function_names[digest->function]);
        put_string(&text, "/");
    }
    put_string(&text, digest_text(digest, digest_as_text));
    put(&text, bytes_of("", 1)); /* the NUL */
    return text.fits;
}

static void put(struct text *text, struct bytes bytes)
{
    if (!text->fits || bytes.length > text->capacity - text->length) {
        text->fits = false;
        return;
    }
    memcpy(text->to + text->length, bytes.data, bytes.length);
    text->length += bytes.length;
}

static void put_string(struct text *text, const char *string)
{
    put(text, bytes_of_string(string));
}

/* ---- segments */

static struct segments segments_of(struct bytes text)
{
    return (struct segments){.at = text.data,
                             .end = text.length > 0 ? text.data + text.length : text.data};
}

/* False when there is none left. */
static bool take(struct segments *rest, struct bytes *segment)
{
    if (rest->used_up)
        return false;
    const size_t left = (size_t)(rest->end - rest->at);
    const uint8_t *const slash = left > 0 ? memchr(rest->at, '/', left) : NULL;
    const uint8_t *const stop = slash ? slash : rest->end;
    *segment = bytes_of(rest->at, (size_t)(stop - rest->at));
    rest->at = slash ? slash + 1 : stop;
    rest->used_up = !slash;
    return true;
}

static bool is_reserved(struct bytes segment)
{
    for (size_t i = 0; i < ARRAY_LENGTH(reserved_words); i++)
        if (bytes_equal_string(segment, reserved_words[i]))
            return true;
    return false;
}

static bool has_control_bytes(struct bytes bytes)
{
    for (size_t i = 0; i < bytes.length; i++)
        if (bytes.data[i] < 0x20 || bytes.data[i] == 0x7f)
            return true;
    return false;
}
