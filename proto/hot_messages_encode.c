/* SPDX-License-Identifier: Apache-2.0 */
/* The encoders of hot_messages.h: each _size() is what the _put() of the same name writes. */
#include "proto/hot_messages.h"

#include "base/compiler.h"

static size_t digest_body_size(size_t hash_hex_length, int64_t size_bytes);
static uint8_t *digest_body_put(uint8_t *to, struct bytes hash_hex, int64_t size_bytes);
static uint8_t *digest_field_put(uint8_t *to, uint32_t number, const struct digest *digest);
static uint8_t *raw_digest_field_put(uint8_t *to,
                                     uint32_t number,
                                     const struct wire_digest *digest);
static size_t status_body_size(const struct status *result);
static uint8_t *status_field_put(uint8_t *to, uint32_t number, const struct status *result);
static size_t entry_body_size(size_t digest_size, const struct status *result);

size_t digest_message_size(const struct digest *digest)
{
    return digest_body_size(2 * (size_t)digest->hash_length, digest->size_bytes);
}

uint8_t *digest_message_put(uint8_t *to, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    const struct bytes hash_hex =
        bytes_of(digest_hex(digest, hex), 2 * (size_t)digest->hash_length);
    return digest_body_put(to, hash_hex, digest->size_bytes);
}

size_t find_missing_entry_size(const struct digest *digest)
{
    return wire_bytes_field_size(2, digest_message_size(digest));
}

uint8_t *find_missing_entry_put(uint8_t *to, const struct digest *digest)
{
    return digest_field_put(to, 2, digest);
}

size_t batch_update_response_entry_size(const struct digest *digest, const struct status *result)
{
    return wire_bytes_field_size(1, entry_body_size(digest_message_size(digest), result));
}

uint8_t *batch_update_response_entry_put(uint8_t *to,
                                         const struct digest *digest,
                                         const struct status *result)
{
    to = wire_put_bytes_key(to, 1, entry_body_size(digest_message_size(digest), result));
    to = digest_field_put(to, 1, digest);
    return status_field_put(to, 2, result);
}

size_t batch_update_response_raw_entry_size(const struct wire_digest *digest,
                                            const struct status *result)
{
    const size_t digest_size = digest_body_size(digest->hash_hex.length, digest->size_bytes);
    return wire_bytes_field_size(1, entry_body_size(digest_size, result));
}

uint8_t *batch_update_response_raw_entry_put(uint8_t *to,
                                             const struct wire_digest *digest,
                                             const struct status *result)
{
    const size_t digest_size = digest_body_size(digest->hash_hex.length, digest->size_bytes);
    to = wire_put_bytes_key(to, 1, entry_body_size(digest_size, result));
    to = raw_digest_field_put(to, 1, digest);
    return status_field_put(to, 2, result);
}

/* The fields stand out of number order, which every decoder takes: the data comes last. */
size_t batch_read_entry_head(uint8_t head[BATCH_READ_HEAD_BYTES_MAX],
                             const struct digest *digest,
                             size_t data_length,
                             int32_t compressor)
{
    static const struct status ok = {0};
    size_t body_size = entry_body_size(digest_message_size(digest), &ok);
    if (compressor != 0)
        body_size += wire_varint_field_size(4, (uint64_t)compressor);
    if (data_length > 0)
        body_size += wire_bytes_field_size(2, data_length);

    uint8_t *to = wire_put_bytes_key(head, 1, body_size);
    to = digest_field_put(to, 1, digest);
    to = status_field_put(to, 3, &ok);
    if (compressor != 0)
        to = wire_put_varint_field(to, 4, (uint64_t)compressor);
    if (data_length > 0)
        to = wire_put_bytes_key(to, 2, data_length);
    ASSERT(to <= head + BATCH_READ_HEAD_BYTES_MAX);
    return (size_t)(to - head);
}

size_t batch_read_error_entry_size(const struct wire_digest *digest, const struct status *result)
{
    const size_t digest_size = digest_body_size(digest->hash_hex.length, digest->size_bytes);
    return wire_bytes_field_size(1, entry_body_size(digest_size, result));
}

uint8_t *batch_read_error_entry_put(uint8_t *to,
                                    const struct wire_digest *digest,
                                    const struct status *result)
{
    const size_t digest_size = digest_body_size(digest->hash_hex.length, digest->size_bytes);
    to = wire_put_bytes_key(to, 1, entry_body_size(digest_size, result));
    to = raw_digest_field_put(to, 1, digest);
    return status_field_put(to, 3, result);
}

size_t read_response_head(uint8_t head[READ_RESPONSE_HEAD_BYTES_MAX], size_t data_length)
{
    if (data_length == 0)
        return 0;
    return (size_t)(wire_put_bytes_key(head, 10, data_length) - head);
}

size_t write_response_put(uint8_t to[SMALL_RESPONSE_BYTES_MAX], int64_t committed_size)
{
    if (committed_size == 0)
        return 0;
    return (size_t)(wire_put_varint_field(to, 1, (uint64_t)committed_size) - to);
}

size_t query_write_status_response_put(uint8_t to[SMALL_RESPONSE_BYTES_MAX],
                                       int64_t committed_size,
                                       bool complete)
{
    uint8_t *end = to;
    if (committed_size != 0)
        end = wire_put_varint_field(end, 1, (uint64_t)committed_size);
    if (complete)
        end = wire_put_varint_field(end, 2, 1);
    return (size_t)(end - to);
}

/* ---- shared */

static size_t digest_body_size(size_t hash_hex_length, int64_t size_bytes)
{
    size_t size = hash_hex_length == 0 ? 0 : wire_bytes_field_size(1, hash_hex_length);
    if (size_bytes != 0)
        size += wire_varint_field_size(2, (uint64_t)size_bytes);
    return size;
}

static uint8_t *digest_body_put(uint8_t *to, struct bytes hash_hex, int64_t size_bytes)
{
    if (hash_hex.length > 0)
        to = wire_put_bytes_field(to, 1, hash_hex);
    if (size_bytes != 0)
        to = wire_put_varint_field(to, 2, (uint64_t)size_bytes);
    return to;
}

static uint8_t *digest_field_put(uint8_t *to, uint32_t number, const struct digest *digest)
{
    return digest_message_put(wire_put_bytes_key(to, number, digest_message_size(digest)), digest);
}

/*
 * A receiver refuses a whole response for one string that is no UTF-8: then bytes beyond ASCII go
 * out as '?'.
 */
static uint8_t *raw_digest_field_put(uint8_t *to, uint32_t number, const struct wire_digest *digest)
{
    const struct bytes hash_hex = digest->hash_hex;
    to = wire_put_bytes_key(to, number, digest_body_size(hash_hex.length, digest->size_bytes));
    uint8_t *const end = digest_body_put(to, hash_hex, digest->size_bytes);
    if (hash_hex.length > 0 && !bytes_is_utf8(hash_hex)) {
        uint8_t *const echoed = to + wire_bytes_field_size(1, hash_hex.length) - hash_hex.length;
        for (size_t i = 0; i < hash_hex.length; i++)
            echoed[i] = echoed[i] < 0x80 ? echoed[i] : '?';
    }
    return end;
}

/* google.rpc.Status; without details. OK is the empty message. */
static size_t status_body_size(const struct status *result)
{
    if (result->code == STATUS_OK)
        return 0;
    const size_t message_length = strlen(result->message);
    return wire_varint_field_size(1, result->code) +
           (message_length == 0 ? 0 : wire_bytes_field_size(2, message_length));
}

static uint8_t *status_field_put(uint8_t *to, uint32_t number, const struct status *result)
{
    to = wire_put_bytes_key(to, number, status_body_size(result));
    if (result->code == STATUS_OK)
        return to;
    to = wire_put_varint_field(to, 1, result->code);
    if (result->message[0] != '\0')
        to = wire_put_bytes_field(to, 2, bytes_of_string(result->message));
    return to;
}

/*
 * The body of an entry with a digest and a status. Both numbers are below 16, so that keys take one
 * byte.
 */
static size_t entry_body_size(size_t digest_size, const struct status *result)
{
    return wire_bytes_field_size(1, digest_size) +
           wire_bytes_field_size(1, status_body_size(result));
}
