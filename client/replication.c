/* SPDX-License-Identifier: Apache-2.0 */
#include "client/replication.h"

#include <stdlib.h>

#include "client/call.h"

enum { FEED_REQUEST_BYTES_MAX = 512, FOLLOWER_NAME_BYTES_MAX = 255 };

static uint8_t *put_number(uint8_t *to, uint32_t field, uint64_t value);
static bool decode_flat(struct bytes flat,
                        size_t records_max,
                        struct feed_page *page,
                        struct status *status);
static bool decode_record(struct wire_span message, struct feed_record *record);
static struct bytes flat_bytes(struct wire_span span);
static void set_hash(struct digest *digest, struct wire_span span);
static bool malformed(const char *what, struct status *status);

grpc_slice feed_request_message(const struct feed_request *request)
{
    uint8_t message[FEED_REQUEST_BYTES_MAX];
    uint8_t *to = message;
    struct bytes name = bytes_of_string(request->follower_name);
    if (name.length > FOLLOWER_NAME_BYTES_MAX)
        name.length = FOLLOWER_NAME_BYTES_MAX;
    to = put_number(to, 1, request->node_uid);
    to = put_number(to, 2, request->lane);
    to = put_number(to, 3, request->after_seq);
    to = put_number(to, 4, request->max_records);
    to = put_number(to, 5, request->wait_ms);
    to = put_number(to, 6, request->follower_uid);
    to = put_number(to, 7, request->follower_durable_seq);
    if (name.length > 0)
        to = wire_put_bytes_field(to, 8, name);
    return grpc_slice_from_copied_buffer((const char *)message, (size_t)(to - message));
}

grpc_slice fetch_request_message(uint64_t node_uid,
                                 enum feed_lane lane,
                                 uint64_t after_seq,
                                 uint64_t through_seq)
{
    uint8_t message[FEED_REQUEST_BYTES_MAX];
    uint8_t *to = message;
    to = put_number(to, 1, node_uid);
    to = put_number(to, 2, lane);
    to = put_number(to, 3, after_seq);
    to = put_number(to, 4, through_seq);
    return grpc_slice_from_copied_buffer((const char *)message, (size_t)(to - message));
}

static uint8_t *put_number(uint8_t *to, uint32_t field, uint64_t value)
{
    return value == 0 ? to : wire_put_varint_field(to, field, value);
}

bool feed_page_decode(const grpc_byte_buffer *message,
                      size_t records_max,
                      struct feed_page *page,
                      struct status *status)
{
    *page = (struct feed_page){0};
    page->memory = message_flat(message, &page->memory_bytes);
    if (page->memory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a page of records");
    if (decode_flat(bytes_of(page->memory, page->memory_bytes), records_max, page, status))
        return true;
    feed_page_free(page);
    return false;
}

/* Twice through the page: how many records there are is known before there is memory for them. */
static bool decode_flat(struct bytes flat,
                        size_t records_max,
                        struct feed_page *page,
                        struct status *status)
{
    struct wire_reader reader;
    struct wire_field field;
    size_t count = 0;
    wire_reader_init(&reader, wire_span_of_bytes(&flat));
    while (wire_reader_next(&reader, &field))
        count += field.number == 2 && field.type == WIRE_BYTES;
    if (reader.failed)
        return malformed("page", status);
    if (count > records_max)
        return status_fail(status, STATUS_INTERNAL, "a page of %zu records, %zu were asked for",
                           count, records_max);
    page->records = calloc(count + 1, sizeof(*page->records));
    if (page->records == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu records", count);
    wire_reader_init(&reader, wire_span_of_bytes(&flat));
    while (wire_reader_next(&reader, &field)) {
        if (field.number == 2 && field.type == WIRE_BYTES) {
            if (!decode_record(field.span, &page->records[page->count++]))
                return malformed("record", status);
        } else if (field.type == WIRE_VARINT) {
            uint64_t *const numbers[] = {[1] = &page->node_uid,
                                         [3] = &page->next_after_seq,
                                         [4] = &page->durable_seq,
                                         [5] = &page->oldest_seq,
                                         [6] = &page->behind_bytes};
            if (field.number == 7)
                page->write_time_ns = (int64_t)field.value;
            else if (field.number < ARRAY_LENGTH(numbers) && numbers[field.number] != NULL)
                *numbers[field.number] = field.value;
        }
    }
    return true;
}

static bool decode_record(struct wire_span message, struct feed_record *record)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, message);
    while (wire_reader_next(&reader, &field)) {
        if (field.type == WIRE_VARINT) {
            uint64_t *const numbers[] = {[1] = &record->seq,
                                         [2] = &record->kind,
                                         [6] = &record->stored_bytes,
                                         [10] = &record->origin_uid,
                                         [12] = &record->forgotten_kind};
            if (field.number == 3)
                record->digest.function = field.value <= UINT8_MAX ? (uint8_t)field.value : 0;
            else if (field.number == 5)
                record->digest.size_bytes = (int64_t)field.value;
            else if (field.number == 9)
                record->written_ns = (int64_t)field.value;
            else if (field.number < ARRAY_LENGTH(numbers) && numbers[field.number] != NULL)
                *numbers[field.number] = field.value;
        } else if (field.type == WIRE_BYTES) {
            struct bytes *const texts[] = {
                [7] = &record->instance, [8] = &record->writer, [11] = &record->result};
            if (field.number == 4)
                set_hash(&record->digest, field.span);
            else if (field.number < ARRAY_LENGTH(texts) && texts[field.number] != NULL)
                *texts[field.number] = flat_bytes(field.span);
        }
    }
    return !reader.failed;
}

/* The message is in one piece, so that what is in it is, too. */
static struct bytes flat_bytes(struct wire_span span)
{
    const struct bytes piece = wire_span_next(&span);
    return piece.length > 0 ? piece : bytes_of(NULL, 0);
}

static void set_hash(struct digest *digest, struct wire_span span)
{
    digest->hash_length = 0;
    if (span.length > sizeof(digest->hash))
        return;
    memset(digest->hash, 0, sizeof(digest->hash));
    digest->hash_length = (uint8_t)span.length;
    wire_span_copy(span, digest->hash);
}

void feed_page_free(struct feed_page *page)
{
    free(page->records);
    free(page->memory);
    *page = (struct feed_page){0};
}

bool fetch_response_next(struct wire_reader *reader,
                         struct fetched_record *record,
                         bool *more,
                         struct status *status)
{
    struct wire_field field;
    *more = false;
    do {
        if (!wire_reader_next(reader, &field))
            return !reader->failed || malformed("answer", status);
    } while (field.number != 1 || field.type != WIRE_BYTES);
    *more = true;
    *record = (struct fetched_record){0};
    struct wire_reader inner;
    wire_reader_init(&inner, field.span);
    while (wire_reader_next(&inner, &field)) {
        if (field.number == 1 && field.type == WIRE_VARINT)
            record->seq = field.value;
        else if (field.number == 2 && field.type == WIRE_VARINT)
            record->digest.function = field.value <= UINT8_MAX ? (uint8_t)field.value : 0;
        else if (field.number == 3 && field.type == WIRE_BYTES)
            set_hash(&record->digest, field.span);
        else if (field.number == 4 && field.type == WIRE_VARINT)
            record->digest.size_bytes = (int64_t)field.value;
        else if (field.number == 5 && field.type == WIRE_BYTES)
            record->payload = field.span;
    }
    return !inner.failed || malformed("record", status);
}

static bool malformed(const char *what, struct status *status)
{
    return status_fail(status, STATUS_INTERNAL, "a malformed %s", what);
}
