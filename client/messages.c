/* SPDX-License-Identifier: Apache-2.0 */
#include "client/messages.h"

#include <grpc/byte_buffer_reader.h>

enum {
    /* FindMissingBlobsRequest, BatchReadBlobsRequest, BatchUpdateBlobsRequest */
    FIELD_INSTANCE_NAME = 1,
    FIELD_DIGESTS = 2,
    FIELD_UPDATE_REQUESTS = 2,
    FIELD_FIND_MISSING_FUNCTION = 3,
    FIELD_BATCH_READ_FUNCTION = 4,
    FIELD_BATCH_UPDATE_FUNCTION = 5,
    FIELD_UPDATE_DIGEST = 1,
    FIELD_UPDATE_DATA = 2,
    /* Answers */
    FIELD_MISSING_DIGESTS = 2,
    FIELD_RESPONSES = 1,
    FIELD_RESPONSE_DIGEST = 1,
    FIELD_UPDATE_STATUS = 2,
    FIELD_READ_DATA = 2,
    FIELD_READ_STATUS = 3,
    FIELD_READ_COMPRESSOR = 4,
    /* google.rpc.Status */
    FIELD_STATUS_CODE = 1,
    FIELD_STATUS_MESSAGE = 2,
    /* google.bytestream */
    FIELD_RESOURCE_NAME = 1,
    FIELD_OFFSET = 2,
    FIELD_FINISH_WRITE = 3,
    FIELD_STREAM_DATA = 10,
    FIELD_COMMITTED_SIZE = 1,
    FIELD_COMPLETE = 2,
};

static grpc_slice digests_request(struct bytes instance,
                                  const struct digest *digests,
                                  size_t count,
                                  uint32_t function_field);
static bool decode_digest(struct wire_span span,
                          struct arena *arena,
                          struct digest *digest,
                          struct status *status);
static void decode_entry(struct wire_span span,
                         enum batch_response_kind kind,
                         struct arena *arena,
                         struct batch_response_entry *entry);
static void decode_status(struct wire_span span, struct arena *arena, struct status *result);
static bool malformed(struct status *status);

grpc_slice find_missing_request(struct bytes instance, const struct digest *digests, size_t count)
{
    return digests_request(instance, digests, count, FIELD_FIND_MISSING_FUNCTION);
}

grpc_slice batch_read_request(struct bytes instance, const struct digest *digests, size_t count)
{
    return digests_request(instance, digests, count, FIELD_BATCH_READ_FUNCTION);
}

static grpc_slice digests_request(struct bytes instance,
                                  const struct digest *digests,
                                  size_t count,
                                  uint32_t function_field)
{
    const uint64_t function = count > 0 ? digests[0].function : DIGEST_FUNCTION_UNKNOWN;
    size_t length = 0;
    if (instance.length > 0)
        length += wire_bytes_field_size(FIELD_INSTANCE_NAME, instance.length);
    for (size_t i = 0; i < count; i++)
        length += wire_bytes_field_size(FIELD_DIGESTS, digest_message_size(&digests[i]));
    if (function != DIGEST_FUNCTION_UNKNOWN)
        length += wire_varint_field_size(function_field, function);

    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    if (instance.length > 0)
        to = wire_put_bytes_field(to, FIELD_INSTANCE_NAME, instance);
    for (size_t i = 0; i < count; i++) {
        to = wire_put_bytes_key(to, FIELD_DIGESTS, digest_message_size(&digests[i]));
        to = digest_message_put(to, &digests[i]);
    }
    if (function != DIGEST_FUNCTION_UNKNOWN)
        to = wire_put_varint_field(to, function_field, function);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    return slice;
}

static size_t update_entry_body_bytes(const struct digest *digest)
{
    const size_t data = digest->size_bytes > 0
                            ? wire_bytes_field_size(FIELD_UPDATE_DATA, (size_t)digest->size_bytes)
                            : 0;
    return wire_bytes_field_size(FIELD_UPDATE_DIGEST, digest_message_size(digest)) + data;
}

size_t batch_update_entry_bytes(const struct digest *digest)
{
    return wire_bytes_field_size(FIELD_UPDATE_REQUESTS, update_entry_body_bytes(digest));
}

size_t batch_update_frame_bytes(struct bytes instance, enum digest_function function)
{
    return (instance.length > 0 ? wire_bytes_field_size(FIELD_INSTANCE_NAME, instance.length) : 0) +
           wire_varint_field_size(FIELD_BATCH_UPDATE_FUNCTION, function);
}

grpc_slice batch_update_request(struct bytes instance, const struct batch_blob *blobs, size_t count)
{
    ASSERT(count > 0);
    const enum digest_function function = (enum digest_function)blobs[0].digest.function;
    size_t length = batch_update_frame_bytes(instance, function);
    for (size_t i = 0; i < count; i++)
        length += batch_update_entry_bytes(&blobs[i].digest);

    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    if (instance.length > 0)
        to = wire_put_bytes_field(to, FIELD_INSTANCE_NAME, instance);
    for (size_t i = 0; i < count; i++) {
        const struct batch_blob *blob = &blobs[i];
        ASSERT(blob->data.length == (size_t)blob->digest.size_bytes);
        to = wire_put_bytes_key(to, FIELD_UPDATE_REQUESTS, update_entry_body_bytes(&blob->digest));
        to = wire_put_bytes_key(to, FIELD_UPDATE_DIGEST, digest_message_size(&blob->digest));
        to = digest_message_put(to, &blob->digest);
        if (blob->data.length > 0)
            to = wire_put_bytes_field(to, FIELD_UPDATE_DATA, blob->data);
    }
    to = wire_put_varint_field(to, FIELD_BATCH_UPDATE_FUNCTION, function);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    return slice;
}

grpc_slice read_request(const char *resource_name, uint64_t offset)
{
    const struct bytes name = bytes_of_string(resource_name);
    const size_t length = wire_bytes_field_size(FIELD_RESOURCE_NAME, name.length) +
                          (offset > 0 ? wire_varint_field_size(FIELD_OFFSET, offset) : 0);
    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = wire_put_bytes_field(GRPC_SLICE_START_PTR(slice), FIELD_RESOURCE_NAME, name);
    if (offset > 0)
        to = wire_put_varint_field(to, FIELD_OFFSET, offset);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    return slice;
}

grpc_slice query_write_status_request(const char *resource_name)
{
    return read_request(resource_name, 0);
}

grpc_byte_buffer *write_request_message(const char *resource_name,
                                        uint64_t offset,
                                        grpc_slice data,
                                        bool finish_write)
{
    const struct bytes name = bytes_of_string(resource_name != NULL ? resource_name : "");
    const size_t data_length = GRPC_SLICE_LENGTH(data);
    size_t length = 0;
    if (name.length > 0)
        length += wire_bytes_field_size(FIELD_RESOURCE_NAME, name.length);
    if (offset > 0)
        length += wire_varint_field_size(FIELD_OFFSET, offset);
    if (finish_write)
        length += wire_varint_field_size(FIELD_FINISH_WRITE, 1);
    if (data_length > 0)
        length += wire_bytes_field_size(FIELD_STREAM_DATA, data_length) - data_length;

    grpc_slice parts[2] = {grpc_slice_malloc(length), data};
    uint8_t *to = GRPC_SLICE_START_PTR(parts[0]);
    if (name.length > 0)
        to = wire_put_bytes_field(to, FIELD_RESOURCE_NAME, name);
    if (offset > 0)
        to = wire_put_varint_field(to, FIELD_OFFSET, offset);
    if (finish_write)
        to = wire_put_varint_field(to, FIELD_FINISH_WRITE, 1);
    if (data_length > 0)
        to = wire_put_bytes_key(to, FIELD_STREAM_DATA, data_length);
    ASSERT(to == GRPC_SLICE_END_PTR(parts[0]));
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(parts, data_length > 0 ? 2 : 1);
    grpc_slice_unref(parts[0]);
    grpc_slice_unref(parts[1]);
    return message;
}

bool find_missing_response_next(struct wire_reader *reader,
                                struct arena *arena,
                                struct digest *digest,
                                bool *more,
                                struct status *status)
{
    struct wire_field field;
    while (wire_reader_next(reader, &field)) {
        if (field.number != FIELD_MISSING_DIGESTS || field.type != WIRE_BYTES)
            continue;
        *more = true;
        return decode_digest(field.span, arena, digest, status);
    }
    *more = false;
    return !reader->failed || malformed(status);
}

static bool decode_digest(struct wire_span span,
                          struct arena *arena,
                          struct digest *digest,
                          struct status *status)
{
    struct wire_digest wire;
    if (!wire_digest_decode(span, arena, &wire, status) ||
        !digest_parse(DIGEST_FUNCTION_UNKNOWN, wire.hash_hex, wire.size_bytes, digest, status)) {
        status->code = STATUS_INTERNAL;
        status_prefix(status, "the server's answer has a digest that is none");
        return false;
    }
    return true;
}

bool batch_response_next(struct wire_reader *reader,
                         enum batch_response_kind kind,
                         struct arena *arena,
                         struct batch_response_entry *entry,
                         bool *more,
                         struct status *status)
{
    struct wire_field field;
    while (wire_reader_next(reader, &field)) {
        if (field.number != FIELD_RESPONSES || field.type != WIRE_BYTES)
            continue;
        *more = true;
        decode_entry(field.span, kind, arena, entry);
        return true;
    }
    *more = false;
    return !reader->failed || malformed(status);
}

/* What is wrong with one entry is no reason to disbelieve the others. */
static void decode_entry(struct wire_span span,
                         enum batch_response_kind kind,
                         struct arena *arena,
                         struct batch_response_entry *entry)
{
    const uint32_t status_field =
        kind == BATCH_READ_RESPONSE ? FIELD_READ_STATUS : FIELD_UPDATE_STATUS;
    memset(entry, 0, sizeof(*entry));
    bool has_digest = false;
    bool has_status = false;
    struct status malformed_digest;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, span);
    while (wire_reader_next(&reader, &field)) {
        if (field.number == FIELD_RESPONSE_DIGEST && field.type == WIRE_BYTES) {
            has_digest = decode_digest(field.span, arena, &entry->digest, &malformed_digest);
        } else if (field.number == status_field && field.type == WIRE_BYTES) {
            decode_status(field.span, arena, &entry->result);
            has_status = true;
        } else if (kind == BATCH_READ_RESPONSE && field.number == FIELD_READ_DATA &&
                   field.type == WIRE_BYTES) {
            entry->data = field.span;
        } else if (kind == BATCH_READ_RESPONSE && field.number == FIELD_READ_COMPRESSOR &&
                   field.type == WIRE_VARINT) {
            entry->compressor = (int32_t)(uint32_t)field.value;
        }
    }
    if (!has_digest)
        entry->digest = (struct digest){0};
    if (reader.failed)
        status_fail(&entry->result, STATUS_UNKNOWN, "the server's answer is malformed");
    else if (!has_status && kind == BATCH_UPDATE_RESPONSE)
        status_fail(&entry->result, STATUS_UNKNOWN, "the server's answer has no status");
}

static void decode_status(struct wire_span span, struct arena *arena, struct status *result)
{
    int32_t code = 0;
    struct bytes text = {0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, span);
    while (wire_reader_next(&reader, &field)) {
        if (field.number == FIELD_STATUS_CODE && field.type == WIRE_VARINT)
            code = (int32_t)(uint32_t)field.value;
        else if (field.number == FIELD_STATUS_MESSAGE && field.type == WIRE_BYTES &&
                 !wire_span_flat(field.span, arena, &text))
            text = bytes_of_string("its text is too long to keep");
    }
    *result = (struct status){0};
    if (reader.failed) {
        status_fail(result, STATUS_UNKNOWN, "the server's status is malformed");
    } else if (code != 0) {
        const bool known = code > STATUS_OK && code <= STATUS_UNAUTHENTICATED;
        const int length =
            text.length < STATUS_MESSAGE_BYTES_MAX ? (int)text.length : STATUS_MESSAGE_BYTES_MAX;
        status_fail(result, known ? (enum status_code)code : STATUS_UNKNOWN, "%.*s", length,
                    text.length > 0 ? (const char *)text.data : "");
    }
}

bool read_response_data(struct bytes_list message, struct wire_span *data, struct status *status)
{
    memset(data, 0, sizeof(*data));
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        if (field.number == FIELD_STREAM_DATA && field.type == WIRE_BYTES)
            *data = field.span;
    }
    return !reader.failed || malformed(status);
}

bool write_status_response(struct bytes_list message,
                           int64_t *committed_bytes,
                           bool *complete,
                           struct status *status)
{
    *committed_bytes = 0;
    *complete = false;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        if (field.number == FIELD_COMMITTED_SIZE && field.type == WIRE_VARINT)
            *committed_bytes = (int64_t)field.value;
        else if (field.number == FIELD_COMPLETE && field.type == WIRE_VARINT)
            *complete = field.value != 0;
    }
    return !reader.failed || malformed(status);
}

static bool malformed(struct status *status)
{
    return status_fail(status, STATUS_INTERNAL, "the server's answer is malformed");
}
