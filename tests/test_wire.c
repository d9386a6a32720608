/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the wire reader sees the same fields however a message is cut into parts, and the same
 * as a second reader that shares no code with it; that it refuses whatever is malformed, and never
 * reads past a part (each is a block of its own, which AddressSanitizer watches); and that the writer
 * writes what it said it would need.
 *
 * Method: random messages with fields of every type, cut at every boundary and at random; every
 * prefix of a message; hand-made malformed ones.
 */
#include <stdlib.h>

#include "base/compiler.h"
#include "proto/wire.h"
#include "tests/support/flat_walk.h"
#include "tests/support/parts.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

enum { MESSAGE_BYTES_MAX = 4096 };

/* A message under construction. */
struct message {
    uint8_t bytes[MESSAGE_BYTES_MAX];
    size_t length;
};

static void add_random_field(struct message *message, struct prng *prng)
{
    static const uint32_t numbers[] = {1, 2, 15, 16, 17, 2047, 2048, (1u << 29) - 1};
    const uint32_t number = numbers[prng_below(prng, ARRAY_LENGTH(numbers))];
    uint8_t *const start = message->bytes + message->length;
    uint8_t *to = start;
    uint8_t random[300];
    for (size_t i = 0; i < sizeof(random); i++)
        random[i] = (uint8_t)prng_next(prng);
    const size_t length = prng_below(prng, prng_below(prng, 4) == 0 ? sizeof(random) : 20);
    const uint64_t value = prng_any_size(prng);
    switch (prng_below(prng, 4)) {
    case 0:
        to = wire_put_varint_field(to, number, value);
        ck_assert_uint_eq((size_t)(to - start), wire_varint_field_size(number, value));
        break;
    case 1:
        to = wire_put_bytes_field(to, number, bytes_of(random, length));
        ck_assert_uint_eq((size_t)(to - start), wire_bytes_field_size(number, length));
        break;
    case 2:
        to = wire_put_varint(to, (uint64_t)number << 3 | WIRE_FIXED64);
        memcpy(to, random, 8);
        to += 8;
        break;
    default:
        to = wire_put_varint(to, (uint64_t)number << 3 | WIRE_FIXED32);
        memcpy(to, random, 4);
        to += 4;
        break;
    }
    message->length += (size_t)(to - start);
    ck_assert_uint_le(message->length, MESSAGE_BYTES_MAX);
}

static void make_random(struct message *message, size_t fields, struct prng *prng)
{
    message->length = 0;
    for (size_t i = 0; i < fields; i++)
        add_random_field(message, prng);
}

static struct bytes bytes_of_message(const struct message *message)
{
    return bytes_of(message->bytes, message->length);
}

/* Walks both ways. Returns whether the message is well-formed. */
static bool check_walks_agree(struct bytes flat, const struct parts *parts)
{
    struct wire_reader reader;
    struct wire_field ours;
    struct flat_field theirs;
    wire_reader_init(&reader, wire_span_of_list(parts->list));
    enum flat_step step = flat_walk_next(&flat, &theirs);
    for (; step == FLAT_FIELD; step = flat_walk_next(&flat, &theirs)) {
        ck_assert(wire_reader_next(&reader, &ours));
        ck_assert_uint_eq(ours.number, theirs.number);
        ck_assert_uint_eq(ours.type, theirs.type);
        ck_assert_uint_eq(reader.rest.length, flat.length);
        if (ours.type != WIRE_BYTES) {
            ck_assert_uint_eq(ours.value, theirs.value);
            continue;
        }
        ck_assert_uint_eq(ours.span.length, theirs.bytes.length);
        uint8_t *const copy = malloc(ours.span.length + 1);
        ck_assert_ptr_nonnull(copy);
        wire_span_copy(ours.span, copy);
        ck_assert(bytes_equal(bytes_of(copy, ours.span.length), theirs.bytes));
        free(copy);
    }
    ck_assert(!wire_reader_next(&reader, &ours));
    ck_assert_int_eq(reader.failed, step == FLAT_MALFORMED);
    ck_assert(!wire_reader_next(&reader, &ours));
    return step == FLAT_END;
}

static bool check_whole(struct bytes flat)
{
    struct parts parts;
    parts_whole(&parts, flat);
    const bool well_formed = check_walks_agree(flat, &parts);
    parts_free(&parts);
    parts_split_fully(&parts, flat);
    ck_assert_int_eq(check_walks_agree(flat, &parts), well_formed);
    parts_free(&parts);
    return well_formed;
}

START_TEST(reader_sees_the_same_fields_wherever_a_message_is_cut)
{
    struct prng prng = {.state = 1};
    for (int i = 0; i < 100; i++) {
        struct message message;
        make_random(&message, 1 + prng_below(&prng, 6), &prng);
        ck_assert(check_whole(bytes_of_message(&message)));
        for (size_t boundary = 0; boundary <= message.length; boundary++) {
            struct parts parts;
            parts_split_at(&parts, bytes_of_message(&message), boundary);
            ck_assert(check_walks_agree(bytes_of_message(&message), &parts));
            parts_free(&parts);
        }
    }
}
END_TEST

START_TEST(reader_sees_the_same_fields_in_any_number_of_parts)
{
    struct prng prng = {.state = 2};
    for (int i = 0; i < 2000; i++) {
        struct message message;
        make_random(&message, prng_below(&prng, 12), &prng);
        struct parts parts;
        parts_split_randomly(&parts, bytes_of_message(&message), &prng);
        ck_assert(check_walks_agree(bytes_of_message(&message), &parts));
        parts_free(&parts);
    }
}
END_TEST

START_TEST(reader_of_damaged_bytes_agrees_with_the_second_reader)
{
    struct prng prng = {.state = 3};
    int malformed = 0;
    for (int i = 0; i < 20000; i++) {
        struct message message;
        make_random(&message, 1 + prng_below(&prng, 4), &prng);
        for (size_t damages = 1 + prng_below(&prng, 3); damages > 0; damages--) {
            const size_t at = prng_below(&prng, message.length);
            message.bytes[at] = (uint8_t)prng_next(&prng);
        }
        struct parts parts;
        parts_split_randomly(&parts, bytes_of_message(&message), &prng);
        malformed += !check_walks_agree(bytes_of_message(&message), &parts);
        parts_free(&parts);
    }
    ck_assert_int_gt(malformed, 1000);
    ck_assert_int_lt(malformed, 19000);
}
END_TEST

START_TEST(reader_refuses_every_prefix_that_ends_within_a_field)
{
    struct prng prng = {.state = 4};
    for (int i = 0; i < 50; i++) {
        struct message message;
        make_random(&message, 4, &prng);
        size_t field_ends = 0;
        for (size_t length = 0; length <= message.length; length++)
            field_ends += check_whole(bytes_of(message.bytes, length));
        ck_assert_uint_eq(field_ends, 5);
    }
}
END_TEST

START_TEST(reader_refuses_what_is_malformed)
{
    static const struct {
        const char *what;
        const char *bytes;
        size_t length;
    } malformed[] = {
#define MALFORMED(what, literal) {what, literal, sizeof(literal) - 1}
        MALFORMED("a start of a group", "\x0b\x0c"),
        MALFORMED("an end of a group", "\x0c"),
        MALFORMED("wire type 6", "\x0e\x00"),
        MALFORMED("wire type 7", "\x0f\x00"),
        MALFORMED("field number 0, varint", "\x00\x00"),
        MALFORMED("field number 0, bytes", "\x02\x00\x00"),
        MALFORMED("field number 0 in two bytes", "\x80\x00\x00"),
        MALFORMED("a key of 33 bits", "\x88\x80\x80\x80\x10\x00"),
        MALFORMED("a key of 64 bits", "\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        MALFORMED("a varint of 11 bytes", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        MALFORMED("a varint of 65 bits", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),
        MALFORMED("a varint without end", "\x08\xff\xff"),
        MALFORMED("no value", "\x08"),
        MALFORMED("no length", "\x0a"),
        MALFORMED("a length past the end by one", "\x0a\x03xy"),
        MALFORMED("a length of two bytes past the end", "\x0a\x80\x01"
                                                        "abcdef"),
        MALFORMED("a length of 2^31", "\x0a\x80\x80\x80\x80\x08xy"),
        MALFORMED("a length of 2^63", "\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01xy"),
        MALFORMED("a length of 2^64 - 1", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01xy"),
        MALFORMED("7 of 8 bytes", "\x09"
                                  "1234567"),
        MALFORMED("3 of 4 bytes", "\x0d"
                                  "123"),
#undef MALFORMED
    };
    for (size_t i = 0; i < ARRAY_LENGTH(malformed); i++) {
        const struct bytes flat = bytes_of(malformed[i].bytes, malformed[i].length);
        ck_assert_msg(!check_whole(flat), "%s is accepted", malformed[i].what);
        /* The same behind a field that is well-formed, for the part of the reader that looks ahead. */
        uint8_t longer[64] = "\x10\x01";
        memcpy(longer + 2, flat.data, flat.length);
        ck_assert_msg(!check_whole(bytes_of(longer, 2 + flat.length)), "%s", malformed[i].what);
    }
}
END_TEST

START_TEST(reader_takes_numbers_that_are_longer_than_need_be)
{
    static const uint8_t message[] = {
        0x8a, 0x80, 0x00, 0x82, 0x80, 0x00, 'x',  'y', /* key and length in three bytes each */
        0x90, 0x00, 0x81, 0x80, 0x80, 0x00,            /* field 2: 1 in four bytes */
        0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, /* field 3: 2^64 - 1 */
    };
    const struct bytes flat = bytes_of(message, sizeof(message));
    ck_assert(check_whole(flat));

    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&flat));
    ck_assert(wire_reader_next(&reader, &field));
    ck_assert_uint_eq(field.number, 1);
    ck_assert_uint_eq(field.span.length, 2);
    ck_assert(wire_reader_next(&reader, &field));
    ck_assert_uint_eq(field.number, 2);
    ck_assert_uint_eq(field.value, 1);
    ck_assert(wire_reader_next(&reader, &field));
    ck_assert_uint_eq(field.number, 3);
    ck_assert_uint_eq(field.value, UINT64_MAX);
    ck_assert(!wire_reader_next(&reader, &field));
    ck_assert(!reader.failed);
}
END_TEST

START_TEST(reader_takes_fields_of_every_length_of_their_length)
{
    static const size_t lengths[] = {0, 1, 127, 128, 16383, 16384, 2097151, 2097152};
    enum { LENGTH_MAX = 2097152, NUMBER = 15 };
    uint8_t *const message = malloc(LENGTH_MAX + 64);
    ck_assert_ptr_nonnull(message);
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        uint8_t *to = wire_put_bytes_key(message, NUMBER, lengths[i]);
        ck_assert_uint_eq((size_t)(to - message) + lengths[i],
                          wire_bytes_field_size(NUMBER, lengths[i]));
        memset(to, 0, lengths[i]);
        to = wire_put_varint_field(to + lengths[i], 1, 7);
        const struct bytes flat = bytes_of(message, (size_t)(to - message));

        struct wire_reader reader;
        struct wire_field field;
        wire_reader_init(&reader, wire_span_of_bytes(&flat));
        ck_assert(wire_reader_next(&reader, &field));
        ck_assert_uint_eq(field.span.length, lengths[i]);
        ck_assert(wire_reader_next(&reader, &field));
        ck_assert_uint_eq(field.value, 7);
        ck_assert(!wire_reader_next(&reader, &field));
        ck_assert(!reader.failed);
    }
    free(message);
}
END_TEST

START_TEST(reader_of_nothing_is_at_the_end)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list((struct bytes_list){0}));
    ck_assert(!wire_reader_next(&reader, &field));
    ck_assert(!reader.failed);
    static const struct bytes empty_parts[3] = {{0}};
    wire_reader_init(&reader, wire_span_of_list((struct bytes_list){empty_parts, 3}));
    ck_assert(!wire_reader_next(&reader, &field));
    ck_assert(!reader.failed);
}
END_TEST

START_TEST(varints_take_the_size_that_was_said_and_come_back)
{
    struct prng prng = {.state = 5};
    for (int i = 0; i < 20000; i++) {
        /* All around the powers of two, then any. */
        const uint64_t value =
            i < 64 * 3 ? ((uint64_t)1 << (i / 3)) + (uint64_t)(i % 3) - 1 : prng_any_size(&prng);
        uint8_t buffer[WIRE_VARINT_BYTES_MAX];
        const size_t length = (size_t)(wire_put_varint(buffer, value) - buffer);
        ck_assert_uint_eq(length, wire_varint_size(value));
        for (size_t boundary = 0; boundary <= length; boundary++) {
            struct parts parts;
            parts_split_at(&parts, bytes_of(buffer, length), boundary);
            struct wire_span span = wire_span_of_list(parts.list);
            uint64_t back;
            ck_assert(wire_span_take_varint(&span, &back));
            ck_assert_uint_eq(back, value);
            ck_assert_uint_eq(span.length, 0);
            ck_assert(!wire_span_take_varint(&span, &back));
            parts_free(&parts);
        }
    }
}
END_TEST

START_TEST(a_span_that_has_no_varint_stays_as_it_was)
{
    static const uint8_t unended[] = {0x80, 0x80};
    const struct bytes flat = bytes_of(unended, sizeof(unended));
    struct wire_span span = wire_span_of_bytes(&flat);
    uint64_t value;
    ck_assert(!wire_span_take_varint(&span, &value));
    ck_assert_uint_eq(span.length, 2);
    ck_assert_uint_eq(span.offset, 0);
}
END_TEST

START_TEST(a_span_gives_its_pieces_in_order_without_empty_ones)
{
    const struct bytes list[] = {bytes_of("", 0), bytes_of("ab", 2), bytes_of(NULL, 0),
                                 bytes_of("cde", 3), bytes_of("", 0)};
    struct wire_span span = wire_span_of_list((struct bytes_list){list, ARRAY_LENGTH(list)});
    ck_assert_uint_eq(span.length, 5);
    ck_assert_uint_eq(wire_span_pieces(span), 2);
    struct bytes piece = wire_span_next(&span);
    ck_assert(bytes_equal_string(piece, "ab"));
    ck_assert_uint_eq(wire_span_pieces(span), 1);
    piece = wire_span_next(&span);
    ck_assert(bytes_equal_string(piece, "cde"));
    ck_assert_ptr_eq(piece.data, list[3].data);
    piece = wire_span_next(&span);
    ck_assert_uint_eq(piece.length, 0);
    ck_assert_uint_eq(wire_span_pieces(span), 0);
}
END_TEST

START_TEST(a_flat_span_points_into_the_list_and_is_copied_only_when_in_pieces)
{
    const struct bytes list[] = {bytes_of("ab", 2), bytes_of("cde", 3)};
    struct wire_span span = wire_span_of_list((struct bytes_list){list, ARRAY_LENGTH(list)});
    struct arena arena;
    arena_init(&arena, 16);
    struct bytes flat;

    span.length = 2;
    ck_assert(wire_span_flat(span, &arena, &flat));
    ck_assert_ptr_eq(flat.data, list[0].data);
    ck_assert_uint_eq(flat.length, 2);
    ck_assert_uint_eq(arena.used_bytes, 0);

    span.length = 4;
    ck_assert(wire_span_flat(span, &arena, &flat));
    ck_assert(bytes_equal_string(flat, "abcd"));
    ck_assert_uint_eq(arena.used_bytes, 16);

    ck_assert(!wire_span_flat(span, &arena, &flat)); /* the arena is used up */

    span.length = 0;
    ck_assert(wire_span_flat(span, &arena, &flat));
    ck_assert_uint_eq(flat.length, 0);
    arena_destroy(&arena);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("wire");
    TCase *const tests = tcase_create("wire");
    tcase_add_test(tests, reader_sees_the_same_fields_wherever_a_message_is_cut);
    tcase_add_test(tests, reader_sees_the_same_fields_in_any_number_of_parts);
    tcase_add_test(tests, reader_of_damaged_bytes_agrees_with_the_second_reader);
    tcase_add_test(tests, reader_refuses_every_prefix_that_ends_within_a_field);
    tcase_add_test(tests, reader_refuses_what_is_malformed);
    tcase_add_test(tests, reader_takes_numbers_that_are_longer_than_need_be);
    tcase_add_test(tests, reader_takes_fields_of_every_length_of_their_length);
    tcase_add_test(tests, reader_of_nothing_is_at_the_end);
    tcase_add_test(tests, varints_take_the_size_that_was_said_and_come_back);
    tcase_add_test(tests, a_span_that_has_no_varint_stays_as_it_was);
    tcase_add_test(tests, a_span_gives_its_pieces_in_order_without_empty_ones);
    tcase_add_test(tests, a_flat_span_points_into_the_list_and_is_copied_only_when_in_pieces);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
