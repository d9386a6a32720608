/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire.h"

#include "base/compiler.h"

static struct bytes at_hand(const struct wire_span *span);
static size_t peek(struct wire_span span, uint8_t *to, size_t count);
static void skip(struct wire_span *span, size_t count);
static size_t varint_get(const uint8_t *from, size_t length, uint64_t *value);
static bool take_fixed(struct wire_span *span, size_t size_bytes, uint64_t *value);
static bool take_short_bytes_field(struct wire_span *rest, struct wire_field *field);
static bool take_value(struct wire_span *rest, struct wire_field *field);

struct wire_span wire_span_of_list(struct bytes_list list)
{
    return (struct wire_span){.list = list, .length = bytes_list_length(list)};
}

struct wire_span wire_span_of_bytes(const struct bytes *bytes)
{
    return (struct wire_span){.list = {.parts = bytes, .count = 1}, .length = bytes->length};
}

struct bytes wire_span_next(struct wire_span *span)
{
    while (span->length > 0) {
        const struct bytes piece = at_hand(span);
        if (piece.length > 0) {
            span->offset += piece.length;
            span->length -= piece.length;
            return piece;
        }
        span->part++;
        span->offset = 0;
    }
    return bytes_of(NULL, 0);
}

/* What the current part holds of a span that is not empty; nothing when the part is used up. */
static struct bytes at_hand(const struct wire_span *span)
{
    ASSERT(span->part < span->list.count);
    const struct bytes part = span->list.parts[span->part];
    const size_t there = part.length - span->offset;
    return bytes_of(there > 0 ? part.data + span->offset : NULL,
                    there < span->length ? there : span->length);
}

size_t wire_span_pieces(struct wire_span span)
{
    size_t pieces = 0;
    while (wire_span_next(&span).length > 0)
        pieces++;
    return pieces;
}

void wire_span_copy(struct wire_span span, uint8_t *to)
{
    for (struct bytes piece = wire_span_next(&span); piece.length > 0;
         piece = wire_span_next(&span)) {
        memcpy(to, piece.data, piece.length);
        to += piece.length;
    }
}

bool wire_span_flat(struct wire_span span, struct arena *arena, struct bytes *flat)
{
    struct wire_span rest = span;
    const struct bytes first = wire_span_next(&rest);
    if (rest.length == 0) {
        *flat = first;
        return true;
    }
    uint8_t *const copy = arena_take(arena, span.length);
    if (!copy)
        return false;
    wire_span_copy(span, copy);
    *flat = bytes_of(copy, span.length);
    return true;
}

bool wire_span_take_varint(struct wire_span *span, uint64_t *value)
{
    if (span->length == 0)
        return false;
    const struct bytes here = at_hand(span);
    size_t taken;
    if (here.length >= WIRE_VARINT_BYTES_MAX || here.length == span->length) {
        taken = varint_get(here.data, here.length, value);
    } else {
        uint8_t window[WIRE_VARINT_BYTES_MAX] = {0};
        taken = varint_get(window, peek(*span, window, sizeof(window)), value);
    }
    if (taken == 0)
        return false;
    skip(span, taken);
    return true;
}

/* The first bytes of a span, at most `count`; returns how many there are. */
static size_t peek(struct wire_span span, uint8_t *to, size_t count)
{
    if (span.length > count)
        span.length = count;
    wire_span_copy(span, to);
    return span.length;
}

/* count: at most what the span holds. */
static void skip(struct wire_span *span, size_t count)
{
    while (count > 0) {
        const size_t here = at_hand(span).length;
        if (count <= here) {
            span->offset += count;
            span->length -= count;
            return;
        }
        span->length -= here;
        count -= here;
        span->part++;
        span->offset = 0;
    }
}

/* Returns the bytes of the varint; 0 when it does not end within `length` or 64 bits. */
static size_t varint_get(const uint8_t *from, size_t length, uint64_t *value)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < length && i < WIRE_VARINT_BYTES_MAX; i++) {
        sum |= (uint64_t)(from[i] & 0x7f) << (7 * i);
        if (from[i] < 0x80) {
            if (i == WIRE_VARINT_BYTES_MAX - 1 && from[i] > 1)
                return 0;
            *value = sum;
            return i + 1;
        }
    }
    return 0;
}

void wire_reader_init(struct wire_reader *reader, struct wire_span message)
{
    *reader = (struct wire_reader){.rest = message};
}

bool wire_reader_next(struct wire_reader *reader, struct wire_field *field)
{
    if (reader->failed || reader->rest.length == 0)
        return false;
    if (take_short_bytes_field(&reader->rest, field))
        return true;
    uint64_t key;
    if (wire_span_take_varint(&reader->rest, &key) && key <= UINT32_MAX && key >> 3 != 0) {
        field->number = (uint32_t)(key >> 3);
        field->type = (enum wire_type)(key & 7);
        field->value = 0;
        if (take_value(&reader->rest, field))
            return true;
    }
    reader->failed = true;
    return false;
}

/*
 * The usual field of a large message: a length-delimited one with a key of one byte and a length of
 * one or two, of which nothing but the bytes themselves leaves the current part. False, with the
 * span as it was, for any other.
 */
static bool take_short_bytes_field(struct wire_span *rest, struct wire_field *field)
{
    const struct bytes here = at_hand(rest);
    if (here.length < 3)
        return false;
    const uint8_t key = here.data[0];
    if ((key & 0x87) != WIRE_BYTES || key >> 3 == 0)
        return false;
    size_t length = here.data[1];
    size_t head_length = 2;
    if (length >= 0x80) {
        if (here.data[2] >= 0x80)
            return false;
        length = (length & 0x7f) | (size_t)here.data[2] << 7;
        head_length = 3;
    }
    if (length > rest->length - head_length)
        return false;
    field->number = key >> 3;
    field->type = WIRE_BYTES;
    field->value = 0;
    field->span.list = rest->list;
    field->span.part = rest->part;
    field->span.offset = rest->offset + head_length;
    field->span.length = length;
    skip(rest, head_length + length);
    return true;
}

static bool take_value(struct wire_span *rest, struct wire_field *field)
{
    switch (field->type) {
    case WIRE_VARINT:
        return wire_span_take_varint(rest, &field->value);
    case WIRE_FIXED64:
        return take_fixed(rest, sizeof(uint64_t), &field->value);
    case WIRE_FIXED32:
        return take_fixed(rest, sizeof(uint32_t), &field->value);
    case WIRE_BYTES: {
        uint64_t length;
        if (!wire_span_take_varint(rest, &length) || length > rest->length)
            return false;
        field->span = *rest;
        field->span.length = (size_t)length;
        skip(rest, (size_t)length);
        return true;
    }
    default: /* groups, and the two types that do not exist */
        return false;
    }
}

/* Little-endian on the wire as in memory. */
static bool take_fixed(struct wire_span *span, size_t size_bytes, uint64_t *value)
{
    uint8_t window[sizeof(*value)] = {0};
    if (peek(*span, window, size_bytes) < size_bytes)
        return false;
    memcpy(value, window, sizeof(*value));
    skip(span, size_bytes);
    return true;
}

size_t wire_varint_size(uint64_t value)
{
    const unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    return (bits + 6) / 7;
}

size_t wire_varint_field_size(uint32_t number, uint64_t value)
{
    return wire_varint_size((uint64_t)number << 3) + wire_varint_size(value);
}

size_t wire_bytes_field_size(uint32_t number, size_t length)
{
    return wire_varint_field_size(number, length) + length;
}

uint8_t *wire_put_varint(uint8_t *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *to++ = (uint8_t)value;
    return to;
}

uint8_t *wire_put_varint_field(uint8_t *to, uint32_t number, uint64_t value)
{
    return wire_put_varint(wire_put_varint(to, (uint64_t)number << 3 | WIRE_VARINT), value);
}

uint8_t *wire_put_bytes_key(uint8_t *to, uint32_t number, size_t length)
{
    return wire_put_varint(wire_put_varint(to, (uint64_t)number << 3 | WIRE_BYTES), length);
}

uint8_t *wire_put_bytes_field(uint8_t *to, uint32_t number, struct bytes bytes)
{
    to = wire_put_bytes_key(to, number, bytes.length);
    if (bytes.length > 0)
        memcpy(to, bytes.data, bytes.length);
    return to + bytes.length;
}
