/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protobuf wire format over bytes that lie in several parts, as gRPC receives them, without
 * copying. Reader: never reads past the end, refuses varints of more than 10 bytes or 64 bits,
 * lengths past the end, group wire types and field number 0. Writer: into memory of a known size,
 * or only counting.
 *
 * Source: protobuf encoding documentation (wire types 0, 1, 2, 5).
 */
#ifndef VARVE_PROTO_WIRE_H
#define VARVE_PROTO_WIRE_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/status.h"

/* A run of bytes inside a bytes_list: from byte `offset` of part `part`. Borrowed from the list. */
struct wire_span {
    struct bytes_list list;
    size_t part;
    size_t offset;
    size_t length;
};

struct wire_span wire_span_of_list(struct bytes_list list);
struct wire_span wire_span_of_bytes(const struct bytes *bytes); /* *bytes outlives the span */

/*
 * Calls for the pieces of a span, in order: the next piece, or length 0 at the end. Advances the
 * span.
 */
struct bytes wire_span_next(struct wire_span *span);
/* How many pieces wire_span_next() would give. */
size_t wire_span_pieces(struct wire_span span);
void wire_span_copy(struct wire_span span, uint8_t *to);
/*
 * The span in one piece: a pointer into the list if it is one already, else a copy in the arena;
 * false when the arena is used up.
 */
MUST_CHECK bool wire_span_flat(struct wire_span span, struct arena *arena, struct bytes *flat);

/*
 * Takes one varint from the front; false when it is cut short or no 64-bit number, and then the
 * span is as it was.
 */
MUST_CHECK bool wire_span_take_varint(struct wire_span *span, uint64_t *value);

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;        /* WIRE_VARINT, WIRE_FIXED64, WIRE_FIXED32 */
    struct wire_span span; /* WIRE_BYTES */
};

struct wire_reader {
    struct wire_span rest; /* what has not been read */
    bool failed;           /* malformed: the end was reported early */
};

void wire_reader_init(struct wire_reader *reader, struct wire_span message);
/* The next field, or false at the end or when malformed (then reader->failed). */
bool wire_reader_next(struct wire_reader *reader, struct wire_field *field);

/* Bytes that a varint, a key or a length-delimited field take. */
enum { WIRE_VARINT_BYTES_MAX = 10 };
size_t wire_varint_size(uint64_t value);
size_t wire_varint_field_size(uint32_t number,
                              uint64_t value); /* with the key; also when value is 0 */
size_t wire_bytes_field_size(uint32_t number, size_t length); /* key, length and the bytes */

/* Each writes at `to` and returns the place behind; there is room. */
uint8_t *wire_put_varint(uint8_t *to, uint64_t value);
uint8_t *wire_put_varint_field(uint8_t *to, uint32_t number, uint64_t value);
uint8_t *wire_put_bytes_key(uint8_t *to,
                            uint32_t number,
                            size_t length); /* key and length; the bytes follow */
uint8_t *wire_put_bytes_field(uint8_t *to, uint32_t number, struct bytes bytes);

#endif
