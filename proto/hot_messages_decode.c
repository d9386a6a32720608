/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoders of hot_messages.h. Repeated fields are counted in a first pass over the outer
 * message, which looks at no more than keys and lengths, so that their array is taken from the
 * arena once and in the right size.
 */
#include "proto/hot_messages.h"

#include "base/compiler.h"

/*
 * A key as it is on the wire, for use in a switch. A known field of another wire type is an unknown
 * field.
 */
#define KEY(number, type) ((uint32_t)(number) << 3 | (uint32_t)(type))
#define KEY_ACTION_RESULT KEY(3, WIRE_BYTES)

enum { COMPRESSOR_VALUE_ZSTD = 1 }; /* of REAPI's Compressor.Value */

static uint32_t key_of(const struct wire_field *field);
static bool end_check(const struct wire_reader *reader, const char *what, struct status *status);
static bool flatten(struct wire_span span,
                    struct arena *arena,
                    struct bytes *flat,
                    struct status *status);
static bool count_fields(struct bytes_list message,
                         uint32_t key,
                         const char *what,
                         size_t *count,
                         struct status *status);
static void *take_array(struct arena *arena,
                        size_t count,
                        size_t element_bytes,
                        struct status *status);
static int32_t enum_of(uint64_t value);

/* How the two messages differ that are an instance, digests and a function. */
struct digests_layout {
    const char *name;
    uint32_t digests_key;
    uint32_t digest_function_key;
    uint32_t compressor_key;  /* of one value; 0 when there is none */
    uint32_t compressors_key; /* of packed values; 0 when there are none */
};
static bool digests_decode(const struct digests_layout *layout,
                           struct bytes_list message,
                           struct arena *arena,
                           struct digests_request *request,
                           struct status *status);

/* ---- Digest */

static bool digest_merge(struct wire_span message,
                         struct arena *arena,
                         struct wire_digest *digest,
                         struct status *status);
static bool digest_merge_usual(struct bytes message, struct wire_digest *digest);
static bool hash_keep(struct wire_span hash,
                      struct arena *arena,
                      struct wire_digest *digest,
                      struct status *status);

bool wire_digest_decode(struct wire_span message,
                        struct arena *arena,
                        struct wire_digest *digest,
                        struct status *status)
{
    *digest = (struct wire_digest){0};
    return digest_merge(message, arena, digest, status);
}

/*
 * A Digest that comes in several fields is the sum of them: each scalar has the value that came
 * last.
 */
static bool digest_merge(struct wire_span message,
                         struct arena *arena,
                         struct wire_digest *digest,
                         struct status *status)
{
    struct wire_span rest = message;
    const struct bytes first = wire_span_next(&rest);
    if (rest.length == 0 && digest_merge_usual(first, digest))
        return true;

    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, message);
    while (wire_reader_next(&reader, &field)) {
        switch (key_of(&field)) {
        case KEY(1, WIRE_BYTES):
            if (!hash_keep(field.span, arena, digest, status))
                return false;
            break;
        case KEY(2, WIRE_VARINT):
            digest->size_bytes = (int64_t)field.value;
            break;
        default:
            break;
        }
    }
    return end_check(&reader, "Digest", status);
}

/*
 * The form that every encoder gives: a hash of less than 128 bytes, then a size or nothing. A call
 * may bring 100,000 of them. False, with the digest untouched, for any other form.
 */
static bool digest_merge_usual(struct bytes message, struct wire_digest *digest)
{
    if (message.length < 2 || message.data[0] != KEY(1, WIRE_BYTES))
        return false;
    const size_t hash_length = message.data[1];
    if (hash_length >= 0x80 || hash_length > message.length - 2)
        return false;
    const struct bytes hash_hex = bytes_of(message.data + 2, hash_length);

    const uint8_t *at = hash_hex.data + hash_length;
    size_t left = message.length - 2 - hash_length;
    if (left > 0) {
        if (*at != KEY(2, WIRE_VARINT) || left > WIRE_VARINT_BYTES_MAX)
            return false;
        uint64_t size_bytes = 0;
        unsigned shift = 0;
        for (at++, left--; left > 0 && (*at & 0x80) != 0; at++, left--, shift += 7)
            size_bytes |= (uint64_t)(*at & 0x7f) << shift;
        if (left != 1)
            return false;
        digest->size_bytes = (int64_t)(size_bytes | (uint64_t)*at << shift);
    }
    digest->hash_hex = hash_hex;
    return true;
}

static bool hash_keep(struct wire_span hash,
                      struct arena *arena,
                      struct wire_digest *digest,
                      struct status *status)
{
    if (hash.length > DIGEST_HASH_HEX_MAX + 1)
        hash.length = DIGEST_HASH_HEX_MAX + 1;
    return flatten(hash, arena, &digest->hash_hex, status);
}

/* ---- WriteRequest */

bool write_request_decode(struct bytes_list message,
                          struct arena *arena,
                          struct write_request *request,
                          struct status *status)
{
    *request = (struct write_request){0};
    struct wire_span resource_name = {0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        switch (key_of(&field)) {
        case KEY(1, WIRE_BYTES):
            resource_name = field.span;
            break;
        case KEY(2, WIRE_VARINT):
            request->write_offset = (int64_t)field.value;
            break;
        case KEY(3, WIRE_VARINT):
            request->finish_write = field.value != 0;
            break;
        case KEY(10, WIRE_BYTES):
            request->data = field.span;
            break;
        default:
            break;
        }
    }
    return end_check(&reader, "WriteRequest", status) &&
           flatten(resource_name, arena, &request->resource_name, status);
}

/* ---- BatchUpdateBlobsRequest */

static bool batch_update_entry_decode(struct wire_span message,
                                      struct arena *arena,
                                      struct batch_update_entry *entry,
                                      struct status *status);

bool batch_update_decode(struct bytes_list message,
                         struct arena *arena,
                         struct batch_update_request *request,
                         struct status *status)
{
    static const char what[] = "BatchUpdateBlobsRequest";
    *request = (struct batch_update_request){0};
    size_t count;
    if (!count_fields(message, KEY(2, WIRE_BYTES), what, &count, status))
        return false;
    request->entries = take_array(arena, count, sizeof(*request->entries), status);
    if (!request->entries)
        return false;

    struct wire_span instance_name = {0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        switch (key_of(&field)) {
        case KEY(1, WIRE_BYTES):
            instance_name = field.span;
            break;
        case KEY(2, WIRE_BYTES): {
            struct batch_update_entry *const entry = &request->entries[request->entry_count];
            if (!batch_update_entry_decode(field.span, arena, entry, status)) {
                status_prefix(status, "%s: requests[%zu]", what, request->entry_count);
                return false;
            }
            request->data_bytes_total += entry->data.length;
            request->entry_count++;
            break;
        }
        case KEY(5, WIRE_VARINT):
            request->digest_function = enum_of(field.value);
            break;
        default:
            break;
        }
    }
    ASSERT(request->entry_count == count);
    return end_check(&reader, what, status) &&
           flatten(instance_name, arena, &request->instance_name, status);
}

/* *entry is zeroed. */
static bool batch_update_entry_decode(struct wire_span message,
                                      struct arena *arena,
                                      struct batch_update_entry *entry,
                                      struct status *status)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, message);
    while (wire_reader_next(&reader, &field)) {
        switch (key_of(&field)) {
        case KEY(1, WIRE_BYTES):
            if (!digest_merge(field.span, arena, &entry->digest, status))
                return false;
            break;
        case KEY(2, WIRE_BYTES):
            entry->data = field.span;
            break;
        case KEY(3, WIRE_VARINT):
            entry->compressor = enum_of(field.value);
            break;
        default:
            break;
        }
    }
    return end_check(&reader, "Request", status);
}

/* ---- FindMissingBlobsRequest, BatchReadBlobsRequest */

bool find_missing_decode(struct bytes_list message,
                         struct arena *arena,
                         struct digests_request *request,
                         struct status *status)
{
    static const struct digests_layout layout = {
        .name = "FindMissingBlobsRequest",
        .digests_key = KEY(2, WIRE_BYTES),
        .digest_function_key = KEY(3, WIRE_VARINT),
    };
    return digests_decode(&layout, message, arena, request, status);
}

bool batch_read_decode(struct bytes_list message,
                       struct arena *arena,
                       struct digests_request *request,
                       struct status *status)
{
    static const struct digests_layout layout = {
        .name = "BatchReadBlobsRequest",
        .digests_key = KEY(2, WIRE_BYTES),
        .digest_function_key = KEY(4, WIRE_VARINT),
        .compressor_key = KEY(3, WIRE_VARINT),
        .compressors_key = KEY(3, WIRE_BYTES),
    };
    return digests_decode(&layout, message, arena, request, status);
}

static bool digests_take(const struct digests_layout *layout,
                         const struct wire_field *field,
                         struct arena *arena,
                         struct digests_request *request,
                         struct status *status);
static bool packed_holds_zstd(struct wire_span values, bool *holds);

static bool digests_decode(const struct digests_layout *layout,
                           struct bytes_list message,
                           struct arena *arena,
                           struct digests_request *request,
                           struct status *status)
{
    *request = (struct digests_request){0};
    size_t count;
    if (!count_fields(message, layout->digests_key, layout->name, &count, status))
        return false;
    request->digests = take_array(arena, count, sizeof(*request->digests), status);
    if (!request->digests)
        return false;

    struct wire_span instance_name = {0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        if (key_of(&field) == KEY(1, WIRE_BYTES))
            instance_name = field.span;
        else if (!digests_take(layout, &field, arena, request, status))
            return false;
    }
    ASSERT(request->digest_count == count);
    return end_check(&reader, layout->name, status) &&
           flatten(instance_name, arena, &request->instance_name, status);
}

/* One field behind the instance name. */
static bool digests_take(const struct digests_layout *layout,
                         const struct wire_field *field,
                         struct arena *arena,
                         struct digests_request *request,
                         struct status *status)
{
    const uint32_t key = key_of(field);
    if (key == layout->digests_key) {
        if (!digest_merge(field->span, arena, &request->digests[request->digest_count], status)) {
            status_prefix(status, "%s: digest %zu", layout->name, request->digest_count);
            return false;
        }
        request->digest_count++;
    } else if (key == layout->digest_function_key) {
        request->digest_function = enum_of(field->value);
    } else if (key == layout->compressor_key) {
        request->accepts_zstd |= enum_of(field->value) == COMPRESSOR_VALUE_ZSTD;
    } else if (key == layout->compressors_key) {
        if (!packed_holds_zstd(field->span, &request->accepts_zstd))
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "%s: malformed acceptable_compressors", layout->name);
    }
    return true;
}

/* Sets *holds if so, and leaves it else. False when malformed. */
static bool packed_holds_zstd(struct wire_span values, bool *holds)
{
    while (values.length > 0) {
        uint64_t value;
        if (!wire_span_take_varint(&values, &value))
            return false;
        if (enum_of(value) == COMPRESSOR_VALUE_ZSTD)
            *holds = true;
    }
    return true;
}

/* ---- UpdateActionResultRequest */

static bool action_result_join(struct bytes_list message,
                               size_t length,
                               struct arena *arena,
                               struct bytes *joined,
                               struct status *status);

bool update_action_result_decode(struct bytes_list message,
                                 struct arena *arena,
                                 struct update_action_result_request *request,
                                 struct status *status)
{
    *request = (struct update_action_result_request){0};
    struct wire_span instance_name = {0};
    struct wire_span action_result = {0};
    size_t action_results_length = 0;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        switch (key_of(&field)) {
        case KEY(1, WIRE_BYTES):
            instance_name = field.span;
            break;
        case KEY(2, WIRE_BYTES):
            request->has_action_digest = true;
            if (!digest_merge(field.span, arena, &request->action_digest, status)) {
                status_prefix(status, "UpdateActionResultRequest: action_digest");
                return false;
            }
            break;
        case KEY_ACTION_RESULT:
            request->has_action_result = true;
            action_result = field.span;
            action_results_length += field.span.length;
            break;
        case KEY(5, WIRE_VARINT):
            request->digest_function = enum_of(field.value);
            break;
        default:
            break;
        }
    }
    if (!end_check(&reader, "UpdateActionResultRequest", status) ||
        !flatten(instance_name, arena, &request->instance_name, status))
        return false;
    if (action_results_length == action_result.length)
        return flatten(action_result, arena, &request->action_result, status);
    return action_result_join(message, action_results_length, arena, &request->action_result,
                              status);
}

/*
 * The field came several times. Encoded messages put one behind the other are the encoding of both
 * merged.
 */
static bool action_result_join(struct bytes_list message,
                               size_t length,
                               struct arena *arena,
                               struct bytes *joined,
                               struct status *status)
{
    uint8_t *const copy = arena_take(arena, length);
    if (!copy)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "an ActionResult of %zu bytes is more than the call has memory for",
                           length);
    size_t copied = 0;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        if (key_of(&field) != KEY_ACTION_RESULT)
            continue;
        wire_span_copy(field.span, copy + copied);
        copied += field.span.length;
    }
    ASSERT(copied == length);
    *joined = bytes_of(copy, length);
    return true;
}

/* ---- shared */

static uint32_t key_of(const struct wire_field *field)
{
    return KEY(field->number, field->type);
}

/* Did the reader stop at the end of the message? */
static bool end_check(const struct wire_reader *reader, const char *what, struct status *status)
{
    if (!reader->failed)
        return true;
    return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: malformed, %zu bytes before its end",
                       what, reader->rest.length);
}

static bool flatten(struct wire_span span,
                    struct arena *arena,
                    struct bytes *flat,
                    struct status *status)
{
    if (wire_span_flat(span, arena, flat))
        return true;
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "a field of %zu bytes is more than the call has memory for", span.length);
}

static bool count_fields(struct bytes_list message,
                         uint32_t key,
                         const char *what,
                         size_t *count,
                         struct status *status)
{
    *count = 0;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field))
        *count += key_of(&field) == key;
    return end_check(&reader, what, status);
}

static void *take_array(struct arena *arena,
                        size_t count,
                        size_t element_bytes,
                        struct status *status)
{
    void *const array = arena_take_zeroed(arena, count, element_bytes);
    if (!array)
        status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                    "%zu entries are more than the call has memory for", count);
    return array;
}

/* Enums are cut to 32 bits as in every other implementation. */
static int32_t enum_of(uint64_t value)
{
    return (int32_t)(uint32_t)value;
}
