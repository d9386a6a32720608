/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the decoders of hot messages read what protobuf-c reads, however a message is cut, and
 * the encoders write what protobuf-c reads back; that what is malformed is refused with
 * INVALID_ARGUMENT, and what is too much with RESOURCE_EXHAUSTED.
 *
 * Method: random messages packed by protobuf-c, with unknown fields put between their own, cut at
 * every boundary (small ones) and at random; every prefix; random damage; and messages by hand for
 * what no encoder writes.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "google/rpc/status.pb-c.h"
#include "proto/hot_messages.h"
#include "tests/support/flat_walk.h"
#include "tests/support/hot_messages_oracle.h"
#include "tests/support/parts.h"
#include "tests/support/reapi_names.h"
#include "tests/support/test_run.h"

enum { ENTRIES_MAX = 6, DATA_BYTES_MAX = 400 };

/* ---- random messages */

/* An encoded message. */
struct message {
    uint8_t bytes[16384];
    size_t length;
};

static struct bytes bytes_of_message(const struct message *message)
{
    return bytes_of(message->bytes, message->length);
}

/* What a random message is made of; protobuf-c's structs point into it. */
struct material {
    struct prng prng;
    char instance_name[40];
    char hashes[ENTRIES_MAX + 1][140];
    REAPI(Digest) digests[ENTRIES_MAX + 1];
    REAPI(Digest) * digest_list[ENTRIES_MAX + 1];
    REAPI(BatchUpdateBlobsRequest__Request) requests[ENTRIES_MAX];
    REAPI(BatchUpdateBlobsRequest__Request) * request_list[ENTRIES_MAX];
    REAPI(Compressor__Value) compressors[4];
    uint8_t data[DATA_BYTES_MAX];
    size_t entry_count;
};

static char *random_text(struct prng *prng, char *to, size_t length_max)
{
    const size_t length = prng_below(prng, length_max + 1);
    for (size_t i = 0; i < length; i++)
        to[i] = "abcdef0123456789/-."[prng_below(prng, 19)];
    to[length] = '\0';
    return to;
}

static ProtobufCBinaryData random_data(struct material *material)
{
    const size_t length = prng_below(&material->prng, DATA_BYTES_MAX);
    return (ProtobufCBinaryData){.len = length, .data = material->data};
}

static void random_digest(struct material *material, size_t index)
{
    struct prng *const prng = &material->prng;
    REAPI(Digest) *const digest = &material->digests[index];
    REAPI_INIT(digest, digest);
    char *const hash = material->hashes[index];
    if (prng_below(prng, 4) > 0) {
        for (size_t i = 0; i < 64; i++)
            hash[i] = "0123456789abcdef"[prng_below(prng, 16)];
        hash[64] = '\0';
    } else {
        random_text(prng, hash, 139);
    }
    digest->hash = hash;
    digest->size_bytes = (int64_t)prng_any_size(prng);
    if (prng_below(prng, 4) == 0)
        digest->size_bytes = -digest->size_bytes;
    material->digest_list[index] = digest;
}

static void material_make(struct material *material)
{
    struct prng *const prng = &material->prng;
    random_text(prng, material->instance_name, sizeof(material->instance_name) - 1);
    for (size_t i = 0; i < DATA_BYTES_MAX; i++)
        material->data[i] = (uint8_t)prng_next(prng);
    material->entry_count = prng_below(prng, ENTRIES_MAX + 1);
    for (size_t i = 0; i <= ENTRIES_MAX; i++)
        random_digest(material, i);
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        REAPI(BatchUpdateBlobsRequest__Request) *const request = &material->requests[i];
        REAPI_INIT(batch_update_blobs_request__request, request);
        request->digest = prng_below(prng, 5) == 0 ? NULL : &material->digests[i];
        request->data = random_data(material);
        request->compressor = (REAPI(Compressor__Value))prng_below(prng, 4);
        material->request_list[i] = request;
    }
    for (size_t i = 0; i < 4; i++)
        material->compressors[i] = (REAPI(Compressor__Value))prng_below(prng, 5);
}

static void message_pack(struct message *message, const void *packable)
{
    const size_t size = protobuf_c_message_get_packed_size(packable);
    ck_assert_uint_le(size, sizeof(message->bytes));
    message->length = protobuf_c_message_pack(packable, message->bytes);
    ck_assert_uint_eq(message->length, size);
}

static void make_write_request(struct material *material, struct message *message)
{
    Google__Bytestream__WriteRequest request;
    google__bytestream__write_request__init(&request);
    request.resource_name = material->instance_name;
    request.write_offset = material->digests[0].size_bytes;
    request.finish_write = (protobuf_c_boolean)prng_below(&material->prng, 2);
    request.data = random_data(material);
    message_pack(message, &request);
}

static void make_batch_update(struct material *material, struct message *message)
{
    REAPI(BatchUpdateBlobsRequest) request;
    REAPI_INIT(batch_update_blobs_request, &request);
    request.instance_name = material->instance_name;
    request.n_requests = material->entry_count;
    request.requests = material->request_list;
    request.digest_function = (REAPI(DigestFunction__Value))prng_below(&material->prng, 11);
    message_pack(message, &request);
}

static void make_find_missing(struct material *material, struct message *message)
{
    REAPI(FindMissingBlobsRequest) request;
    REAPI_INIT(find_missing_blobs_request, &request);
    request.instance_name = material->instance_name;
    request.n_blob_digests = material->entry_count;
    request.blob_digests = material->digest_list;
    request.digest_function = (REAPI(DigestFunction__Value))prng_below(&material->prng, 11);
    message_pack(message, &request);
}

static void make_batch_read(struct material *material, struct message *message)
{
    REAPI(BatchReadBlobsRequest) request;
    REAPI_INIT(batch_read_blobs_request, &request);
    request.instance_name = material->instance_name;
    request.n_digests = material->entry_count;
    request.digests = material->digest_list;
    request.n_acceptable_compressors = prng_below(&material->prng, 5);
    request.acceptable_compressors = material->compressors;
    request.digest_function = (REAPI(DigestFunction__Value))prng_below(&material->prng, 11);
    message_pack(message, &request);
}

static void make_update_action_result(struct material *material, struct message *message)
{
    REAPI(ActionResult) result;
    REAPI(OutputFile) file;
    REAPI(OutputFile) * file_list[1] = {&file};
    REAPI(ResultsCachePolicy) policy;
    REAPI(UpdateActionResultRequest) request;
    REAPI_INIT(action_result, &result);
    REAPI_INIT(output_file, &file);
    REAPI_INIT(results_cache_policy, &policy);
    REAPI_INIT(update_action_result_request, &request);
    file.path = material->hashes[1];
    file.digest = &material->digests[2];
    result.n_output_files = prng_below(&material->prng, 2);
    result.output_files = file_list;
    result.exit_code = (int32_t)prng_below(&material->prng, 3) - 1;
    result.stdout_raw = random_data(material);
    result.stderr_digest = &material->digests[3];
    policy.priority = 7;
    request.instance_name = material->instance_name;
    request.action_digest = prng_below(&material->prng, 5) == 0 ? NULL : &material->digests[0];
    request.action_result = prng_below(&material->prng, 5) == 0 ? NULL : &result;
    request.results_cache_policy = &policy;
    request.digest_function = (REAPI(DigestFunction__Value))prng_below(&material->prng, 11);
    message_pack(message, &request);
}

typedef void make_function(struct material *material, struct message *message);
static make_function *const make_message[HOT_MESSAGES] = {
    [HOT_WRITE_REQUEST] = make_write_request,
    [HOT_BATCH_UPDATE] = make_batch_update,
    [HOT_FIND_MISSING] = make_find_missing,
    [HOT_BATCH_READ] = make_batch_read,
    [HOT_UPDATE_ACTION_RESULT] = make_update_action_result,
};

/* A field that no message has, of any wire type. Returns its end. */
static uint8_t *put_unknown_field(uint8_t *to, struct prng *prng)
{
    static const uint32_t numbers[] = {9, 11, 100, 3000, (1u << 29) - 1};
    const uint32_t number = numbers[prng_below(prng, 5)];
    const uint64_t value = prng_any_size(prng);
    switch (prng_below(prng, 4)) {
    case 0:
        return wire_put_varint_field(to, number, value);
    case 1:
        return wire_put_bytes_field(to, number, bytes_of(&value, prng_below(prng, 9)));
    case 2:
        to = wire_put_varint(to, (uint64_t)number << 3 | WIRE_FIXED64);
        memcpy(to, &value, 8);
        return to + 8;
    default:
        to = wire_put_varint(to, (uint64_t)number << 3 | WIRE_FIXED32);
        memcpy(to, &value, 4);
        return to + 4;
    }
}

/* The same message with unknown fields before, between and behind its own. */
static void add_unknown_fields(struct message *message, struct prng *prng)
{
    static struct message longer;
    uint8_t *to = longer.bytes;
    struct bytes rest = bytes_of_message(message);
    struct flat_field field;
    while (flat_walk_next(&rest, &field) == FLAT_FIELD) {
        if (prng_below(prng, 2) == 0)
            to = put_unknown_field(to, prng);
        memcpy(to, field.encoded.data, field.encoded.length);
        to += field.encoded.length;
    }
    to = put_unknown_field(to, prng);
    longer.length = (size_t)(to - longer.bytes);
    *message = longer;
}

/* ---- decoders against protobuf-c */

static struct hot_verdict compare_split(enum hot_message kind, struct bytes flat, struct prng *prng)
{
    struct parts parts;
    parts_split_randomly(&parts, flat, prng);
    const struct hot_verdict verdict = hot_messages_compare(kind, flat, parts.list);
    parts_free(&parts);
    return verdict;
}

START_TEST(decoders_read_what_protobuf_c_packed_in_any_parts)
{
    const enum hot_message kind = (enum hot_message)_i;
    static struct material material;
    material.prng.state = 1;
    for (int i = 0; i < 1500; i++) {
        static struct message message;
        material_make(&material);
        make_message[kind](&material, &message);
        if (i % 2 == 1)
            add_unknown_fields(&message, &material.prng);
        const struct hot_verdict verdict =
            compare_split(kind, bytes_of_message(&message), &material.prng);
        ck_assert(verdict.ours && verdict.theirs);
    }
}
END_TEST

START_TEST(decoders_read_a_message_cut_at_every_boundary)
{
    const enum hot_message kind = (enum hot_message)_i;
    static struct material material;
    material.prng.state = 2;
    for (int i = 0; i < 12; i++) {
        static struct message message;
        material_make(&material);
        make_message[kind](&material, &message);
        const struct bytes flat = bytes_of_message(&message);
        for (size_t boundary = 0; boundary <= flat.length; boundary++) {
            struct parts parts;
            parts_split_at(&parts, flat, boundary);
            const struct hot_verdict verdict = hot_messages_compare(kind, flat, parts.list);
            parts_free(&parts);
            ck_assert(verdict.ours && verdict.theirs);
        }
        struct parts parts;
        parts_split_fully(&parts, flat);
        const struct hot_verdict verdict = hot_messages_compare(kind, flat, parts.list);
        parts_free(&parts);
        ck_assert(verdict.ours && verdict.theirs);
    }
}
END_TEST

START_TEST(decoders_accept_a_prefix_when_protobuf_c_does)
{
    const enum hot_message kind = (enum hot_message)_i;
    static struct material material;
    material.prng.state = 3;
    size_t refused = 0;
    for (int i = 0; i < 20; i++) {
        static struct message message;
        material_make(&material);
        make_message[kind](&material, &message);
        for (size_t length = 0; length < message.length; length++) {
            const struct bytes flat = bytes_of(message.bytes, length);
            const struct hot_verdict verdict = compare_split(kind, flat, &material.prng);
            ck_assert_int_eq(verdict.ours, verdict.theirs);
            refused += !verdict.ours;
        }
    }
    ck_assert_uint_gt(refused, 100);
}
END_TEST

START_TEST(decoders_of_damaged_messages_agree_with_protobuf_c_where_both_accept)
{
    const enum hot_message kind = (enum hot_message)_i;
    static struct material material;
    material.prng.state = 4;
    size_t both = 0;
    size_t neither = 0;
    for (int i = 0; i < 5000; i++) {
        static struct message message;
        material_make(&material);
        make_message[kind](&material, &message);
        if (message.length == 0)
            continue;
        for (size_t damages = 1 + prng_below(&material.prng, 3); damages > 0; damages--) {
            const size_t at = prng_below(&material.prng, message.length);
            message.bytes[at] = (uint8_t)prng_next(&material.prng);
        }
        const struct hot_verdict verdict =
            compare_split(kind, bytes_of_message(&message), &material.prng);
        both += verdict.ours && verdict.theirs;
        neither += !verdict.ours && !verdict.theirs;
    }
    ck_assert_uint_gt(both, 100);
    ck_assert_uint_gt(neither, 50);
}
END_TEST

/* ---- what no encoder writes */

/* Builds a message field by field. */
static void add_varint(struct message *message, uint32_t number, uint64_t value)
{
    uint8_t *const to = message->bytes + message->length;
    message->length = (size_t)(wire_put_varint_field(to, number, value) - message->bytes);
}

static void add_bytes(struct message *message, uint32_t number, struct bytes bytes)
{
    uint8_t *const to = message->bytes + message->length;
    message->length = (size_t)(wire_put_bytes_field(to, number, bytes) - message->bytes);
}

static void add_string(struct message *message, uint32_t number, const char *string)
{
    add_bytes(message, number, bytes_of_string(string));
}

static struct bytes_list list_of(const struct bytes *bytes)
{
    return (struct bytes_list){.parts = bytes, .count = 1};
}

START_TEST(of_a_scalar_that_comes_twice_the_last_one_counts)
{
    static struct message message;
    add_string(&message, 1, "first");
    add_varint(&message, 2, 10);
    add_varint(&message, 3, 1);
    add_string(&message, 10, "first data");
    add_varint(&message, 3, 0);
    add_string(&message, 10, "last data");
    add_varint(&message, 2, 20);
    add_string(&message, 1, "last");
    const struct bytes flat = bytes_of_message(&message);
    struct arena arena;
    struct status status = {0};
    struct write_request request;
    arena_init(&arena, 4096);
    ck_assert(write_request_decode(list_of(&flat), &arena, &request, &status));
    ck_assert(bytes_equal_string(request.resource_name, "last"));
    ck_assert_int_eq(request.write_offset, 20);
    ck_assert(!request.finish_write);
    ck_assert(bytes_equal_string(wire_span_next(&request.data), "last data"));
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_digest_in_several_fields_is_the_sum_of_them)
{
    static struct message first;
    static struct message second;
    static struct message third;
    static struct message entry;
    static struct message whole;
    add_string(&first, 1, "aa");
    add_varint(&first, 2, 5);
    add_string(&second, 1, "bb");
    add_varint(&third, 2, 0);
    add_bytes(&entry, 1, bytes_of_message(&first));
    add_bytes(&entry, 1, bytes_of_message(&second)); /* a new hash, the size stays */
    add_bytes(&whole, 2, bytes_of_message(&entry));
    add_bytes(&entry, 1, bytes_of_message(&third)); /* a size of 0 is one, too */
    add_bytes(&whole, 2, bytes_of_message(&entry));

    const struct bytes flat = bytes_of_message(&whole);
    struct arena arena;
    struct status status = {0};
    struct batch_update_request request;
    arena_init(&arena, 4096);
    ck_assert(batch_update_decode(list_of(&flat), &arena, &request, &status));
    ck_assert_uint_eq(request.entry_count, 2);
    ck_assert(bytes_equal_string(request.entries[0].digest.hash_hex, "bb"));
    ck_assert_int_eq(request.entries[0].digest.size_bytes, 5);
    ck_assert(bytes_equal_string(request.entries[1].digest.hash_hex, "bb"));
    ck_assert_int_eq(request.entries[1].digest.size_bytes, 0);
    arena_destroy(&arena);
}
END_TEST

START_TEST(an_action_result_in_several_fields_is_joined)
{
    static struct message message;
    add_string(&message, 3, "one");
    add_varint(&message, 5, 1);
    add_string(&message, 3, "");
    add_string(&message, 3, "two");
    const struct bytes flat = bytes_of_message(&message);
    struct arena arena;
    struct status status = {0};
    struct update_action_result_request request;
    arena_init(&arena, 4096);
    ck_assert(update_action_result_decode(list_of(&flat), &arena, &request, &status));
    ck_assert(request.has_action_result);
    ck_assert(bytes_equal_string(request.action_result, "onetwo"));
    ck_assert(!request.has_action_digest);
    arena_destroy(&arena);

    arena_init(&arena, 5); /* less than the two together */
    ck_assert(!update_action_result_decode(list_of(&flat), &arena, &request, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    arena_destroy(&arena);
}
END_TEST

START_TEST(compressors_count_packed_and_one_by_one)
{
    static const struct {
        const char *bytes;
        size_t length;
        bool zstd;
    } cases[] = {
        {"\x1a\x01\x01", 3, true},             /* packed: 1 */
        {"\x1a\x03\x02\x01\x03", 5, true},     /* packed: 2, 1, 3 */
        {"\x1a\x00", 2, false},                /* packed: none */
        {"\x1a\x02\x02\x03", 4, false},        /* packed: 2, 3 */
        {"\x1a\x02\x81\x01", 4, false},        /* packed: 129 */
        {"\x18\x01", 2, true},                 /* 1 */
        {"\x18\x01\x18\x00", 4, true},         /* 1, then 0 */
        {"\x18\x00\x1a\x01\x01", 5, true},     /* 0, then packed: 1 */
        {"\x1a\x01\x01\x1a\x01\x02", 6, true}, /* packed: 1, then packed: 2 */
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct bytes flat = bytes_of(cases[i].bytes, cases[i].length);
        for (size_t boundary = 0; boundary <= flat.length; boundary++) {
            struct parts parts;
            struct arena arena;
            struct status status = {0};
            struct digests_request request;
            parts_split_at(&parts, flat, boundary);
            arena_init(&arena, 4096);
            ck_assert(batch_read_decode(parts.list, &arena, &request, &status));
            ck_assert_msg(request.accepts_zstd == cases[i].zstd, "case %zu", i);
            arena_destroy(&arena);
            parts_free(&parts);
        }
    }
}
END_TEST

START_TEST(find_missing_does_not_take_field_3_for_compressors)
{
    const struct bytes flat = bytes_of("\x18\x01", 2);
    struct arena arena;
    struct status status = {0};
    struct digests_request request;
    arena_init(&arena, 4096);
    ck_assert(find_missing_decode(list_of(&flat), &arena, &request, &status));
    ck_assert_int_eq(request.digest_function, 1);
    ck_assert(!request.accepts_zstd);
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_hash_that_is_too_long_is_cut_to_what_no_digest_has)
{
    enum { LENGTH = 5000 };
    static struct message message;
    static char hash[LENGTH + 1];
    memset(hash, 'a', LENGTH);
    add_string(&message, 1, hash);
    add_varint(&message, 2, 3);
    for (size_t boundary = 0; boundary < 300; boundary++) {
        struct parts parts;
        struct arena arena;
        struct status status = {0};
        struct wire_digest digest;
        struct digest parsed;
        parts_split_at(&parts, bytes_of_message(&message), boundary);
        arena_init(&arena, 4096);
        ck_assert(wire_digest_decode(wire_span_of_list(parts.list), &arena, &digest, &status));
        ck_assert_uint_eq(digest.hash_hex.length, DIGEST_HASH_HEX_MAX + 1);
        ck_assert_int_eq(digest.hash_hex.data[DIGEST_HASH_HEX_MAX], 'a');
        ck_assert_int_eq(digest.size_bytes, 3);
        ck_assert(!digest_parse(DIGEST_FUNCTION_UNKNOWN, digest.hash_hex, 3, &parsed, &status));
        ck_assert_uint_le(arena.used_bytes, 256);
        arena_destroy(&arena);
        parts_free(&parts);
    }
}
END_TEST

/* A digest in one part is read by another way than one in several. */
static void check_digest_in_parts(struct bytes flat, bool well_formed)
{
    struct arena arena;
    struct parts whole;
    struct parts split;
    struct wire_digest of_whole;
    struct wire_digest of_split;
    struct status status = {0};
    arena_init(&arena, 4096);
    parts_whole(&whole, flat);
    parts_split_fully(&split, flat);
    const bool whole_ok =
        wire_digest_decode(wire_span_of_list(whole.list), &arena, &of_whole, &status);
    const bool split_ok =
        wire_digest_decode(wire_span_of_list(split.list), &arena, &of_split, &status);
    ck_assert_int_eq(whole_ok, well_formed);
    ck_assert_int_eq(split_ok, well_formed);
    if (well_formed) {
        ck_assert(bytes_equal(of_whole.hash_hex, of_split.hash_hex));
        ck_assert_int_eq(of_whole.size_bytes, of_split.size_bytes);
    }
    parts_free(&whole);
    parts_free(&split);
    arena_destroy(&arena);
}

START_TEST(a_digest_in_one_part_is_read_as_one_in_many)
{
    static const struct {
        const char *bytes;
        size_t length;
        bool well_formed;
    } cases[] = {
#define CASE(well_formed, literal) {literal, sizeof(literal) - 1, well_formed}
        CASE(true, ""),
        CASE(true, "\x0a\x00"),
        CASE(true, "\x0a\x02"
                   "ab"),
        CASE(true, "\x10\x05"),
        CASE(true, "\x10\x05\x0a\x02"
                   "ab"),
        CASE(true, "\x0a\x02"
                   "ab\x10\x05"),
        CASE(true, "\x0a\x02"
                   "ab\x10\x00"),
        CASE(true, "\x0a\x02"
                   "ab\x10\x80\x00"),
        CASE(true, "\x0a\x02"
                   "ab\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        CASE(true, "\x0a\x02"
                   "ab\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        CASE(true, "\x0a\x82\x00"
                   "ab\x10\x05"),
        CASE(true, "\x0a\x02"
                   "ab\x10\x05\x10\x06"),
        CASE(true, "\x0a\x02"
                   "ab\x10\x05\x0a\x01"
                   "c"),
        CASE(true, "\x0a\x02"
                   "ab\x18\x05"),
        CASE(true, "\x0a\x02"
                   "ab\x12\x01"
                   "c"),
        CASE(false, "\x0a"),
        CASE(false, "\x0a\x03"
                    "ab"),
        CASE(false, "\x0a\x80\x01"
                    "ab"),
        CASE(false, "\x0a\x02"
                    "ab\x10"),
        CASE(false, "\x0a\x02"
                    "ab\x10\x80"),
        CASE(false, "\x0a\x02"
                    "ab\x10\x80\x80"),
        CASE(false, "\x0a\x02"
                    "ab\x10\x05\x05"),
        CASE(false, "\x0a\x02"
                    "ab\x10\x05\x80"),
        CASE(false, "\x0a\x02"
                    "ab\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        CASE(false, "\x0a\x02"
                    "ab\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        CASE(false, "\x0a\x02"
                    "ab\x13\x14"),
#undef CASE
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        check_digest_in_parts(bytes_of(cases[i].bytes, cases[i].length), cases[i].well_formed);
    for (size_t length = 120; length < 140; length++) {
        static struct message message;
        static const uint8_t hash[140] = {'a'};
        message.length = 0;
        add_bytes(&message, 1, bytes_of(hash, length));
        add_varint(&message, 2, 3);
        check_digest_in_parts(bytes_of_message(&message), true);
    }
    /* Would be a hash of 130 bytes, were its length not in the form of two bytes. */
    static uint8_t cut[160] = {0x0a, 0x82, 0x01, 'a'};
    check_digest_in_parts(bytes_of(cut, 132), false);
    check_digest_in_parts(bytes_of(cut, 133), true);
}
END_TEST

START_TEST(a_known_field_of_another_wire_type_is_an_unknown_field)
{
    static struct message message;
    add_varint(&message, 1, 1);
    add_string(&message, 2, "not a number");
    add_varint(&message, 10, 1);
    const struct bytes flat = bytes_of_message(&message);
    struct arena arena;
    struct status status = {0};
    struct write_request request;
    arena_init(&arena, 4096);
    ck_assert(write_request_decode(list_of(&flat), &arena, &request, &status));
    ck_assert_uint_eq(request.resource_name.length, 0);
    ck_assert_int_eq(request.write_offset, 0);
    ck_assert_uint_eq(request.data.length, 0);
    arena_destroy(&arena);
}
END_TEST

/* Decodes as each of the messages; all must give this code. */
static void check_all_refuse(struct bytes flat, enum status_code code, size_t arena_bytes)
{
    struct write_request write_request;
    struct batch_update_request batch_update;
    struct digests_request digests;
    struct update_action_result_request update_action_result;
    for (int i = 0; i < HOT_MESSAGES; i++) {
        struct arena arena;
        struct status status = {0};
        bool ok = true;
        arena_init(&arena, arena_bytes);
        switch ((enum hot_message)i) {
        case HOT_WRITE_REQUEST:
            ok = write_request_decode(list_of(&flat), &arena, &write_request, &status);
            break;
        case HOT_BATCH_UPDATE:
            ok = batch_update_decode(list_of(&flat), &arena, &batch_update, &status);
            break;
        case HOT_FIND_MISSING:
            ok = find_missing_decode(list_of(&flat), &arena, &digests, &status);
            break;
        case HOT_BATCH_READ:
            ok = batch_read_decode(list_of(&flat), &arena, &digests, &status);
            break;
        case HOT_UPDATE_ACTION_RESULT:
            ok =
                update_action_result_decode(list_of(&flat), &arena, &update_action_result, &status);
            break;
        }
        ck_assert_msg(!ok, "message %d", i);
        ck_assert_int_eq(status.code, code);
        ck_assert_uint_gt(strlen(status.message), 0);
        arena_destroy(&arena);
    }
}

START_TEST(what_is_malformed_is_an_invalid_argument)
{
    static const struct bytes malformed[] = {
        {(const uint8_t *)"\x0b\x0c", 2},                                      /* a group */
        {(const uint8_t *)"\x0a\x05xy", 4},                                    /* cut short */
        {(const uint8_t *)"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* 2^64 - 1 */
        {(const uint8_t *)"\x00\x00", 2},                                      /* number 0 */
        {(const uint8_t *)"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(malformed); i++)
        check_all_refuse(malformed[i], STATUS_INVALID_ARGUMENT, 4096);
}
END_TEST

START_TEST(a_malformed_message_inside_a_message_is_an_invalid_argument)
{
    struct arena arena;
    struct status status = {0};
    struct batch_update_request batch_update;
    struct digests_request digests;
    struct update_action_result_request update_action_result;
    /* A digest whose hash is said to be longer than the digest. */
    const struct bytes in_digests = bytes_of("\x12\x02\x0a\x09", 4);
    const struct bytes in_entry = bytes_of("\x12\x04\x0a\x02\x0a\x09", 6);
    const struct bytes entry_cut = bytes_of("\x12\x02\x12\x09", 4);
    const struct bytes packed_cut = bytes_of("\x1a\x01\x80", 3);
    arena_init(&arena, 4096);
    ck_assert(!find_missing_decode(list_of(&in_digests), &arena, &digests, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!batch_read_decode(list_of(&in_digests), &arena, &digests, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!batch_read_decode(list_of(&packed_cut), &arena, &digests, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!batch_update_decode(list_of(&in_entry), &arena, &batch_update, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!batch_update_decode(list_of(&entry_cut), &arena, &batch_update, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(
        !update_action_result_decode(list_of(&in_digests), &arena, &update_action_result, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    arena_destroy(&arena);
}
END_TEST

START_TEST(more_entries_than_the_arena_holds_are_too_much)
{
    enum { COUNT = 1000 };
    static struct message message;
    for (int i = 0; i < COUNT; i++)
        add_string(&message, 2, "");
    const struct bytes flat = bytes_of_message(&message);
    struct arena arena;
    struct status status = {0};
    struct digests_request digests;
    struct batch_update_request batch_update;
    arena_init(&arena, COUNT * sizeof(struct wire_digest) - 1);
    ck_assert(!find_missing_decode(list_of(&flat), &arena, &digests, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert(!batch_update_decode(list_of(&flat), &arena, &batch_update, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    arena_destroy(&arena);

    arena_init(&arena, COUNT * sizeof(struct batch_update_entry) + 16);
    ck_assert(batch_update_decode(list_of(&flat), &arena, &batch_update, &status));
    ck_assert_uint_eq(batch_update.entry_count, COUNT);
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_hundred_thousand_digests_are_an_ordinary_call)
{
    enum { COUNT = 100000, MESSAGE_BYTES = 8 << 20 };
    uint8_t *const bytes = malloc(MESSAGE_BYTES);
    ck_assert_ptr_nonnull(bytes);
    struct digest digest = {.hash_length = 32, .function = DIGEST_FUNCTION_SHA256};
    uint8_t *to = bytes;
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(digest.hash, &i, sizeof(i));
        digest.size_bytes = i;
        uint8_t *const start = to;
        to = find_missing_entry_put(start, &digest);
        ck_assert_uint_eq((size_t)(to - start), find_missing_entry_size(&digest));
        ck_assert_uint_lt((size_t)(to - bytes), MESSAGE_BYTES - 512);
    }
    struct prng prng = {.state = 6};
    struct parts parts;
    parts_split_randomly(&parts, bytes_of(bytes, (size_t)(to - bytes)), &prng);
    free(bytes);

    struct arena arena;
    struct status status = {0};
    struct digests_request request;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    ck_assert(find_missing_decode(parts.list, &arena, &request, &status));
    ck_assert_uint_eq(request.digest_count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert(digest_parse(DIGEST_FUNCTION_SHA256, request.digests[i].hash_hex,
                               request.digests[i].size_bytes, &digest, &status));
        ck_assert_int_eq(digest.size_bytes, i);
        ck_assert_mem_eq(digest.hash, &i, sizeof(i));
    }
    ck_assert_uint_lt(arena.used_bytes, COUNT * 32); /* hashes are not copied */
    arena_destroy(&arena);
    parts_free(&parts);
}
END_TEST

/* ---- encoders */

static struct digest random_parsed_digest(struct prng *prng)
{
    struct digest digest = {.hash_length = 32, .function = DIGEST_FUNCTION_SHA256};
    for (size_t i = 0; i < digest.hash_length; i++)
        digest.hash[i] = (uint8_t)prng_next(prng);
    digest.size_bytes = prng_below(prng, 5) == 0 ? 0 : (int64_t)prng_any_size(prng) & INT64_MAX;
    return digest;
}

static struct status random_status(struct prng *prng)
{
    struct status status = {0};
    if (prng_below(prng, 3) == 0)
        return status;
    static char text[STATUS_MESSAGE_BYTES_MAX];
    random_text(prng, text, prng_below(prng, 4) == 0 ? sizeof(text) - 1 : 30);
    status_fail(&status, (enum status_code)(1 + prng_below(prng, 16)), "%s", text);
    return status;
}

static void check_digest(const REAPI(Digest) * got, const struct digest *sent)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got->hash, digest_hex(sent, hex));
    ck_assert_int_eq(got->size_bytes, sent->size_bytes);
}

static void check_status(const Google__Rpc__Status *got, const struct status *sent)
{
    ck_assert_ptr_nonnull(got); /* also when OK */
    ck_assert_int_eq(got->code, (int)sent->code);
    ck_assert_str_eq(got->message, sent->code == STATUS_OK ? "" : sent->message);
    ck_assert_uint_eq(got->n_details, 0);
}

/* protobuf-c's encoding of what it read must be the same bytes: nothing is out of order or too long. */
static void check_packs_the_same(const void *unpacked, const uint8_t *bytes, size_t length)
{
    static struct message message;
    message_pack(&message, unpacked);
    ck_assert_uint_eq(message.length, length);
    ck_assert_mem_eq(message.bytes, bytes, length);
}

START_TEST(find_missing_responses_are_what_protobuf_c_packs)
{
    struct prng prng = {.state = 7};
    for (int round = 0; round < 300; round++) {
        struct digest digests[8];
        const size_t count = prng_below(&prng, 9);
        uint8_t bytes[2048];
        uint8_t *to = bytes;
        for (size_t i = 0; i < count; i++) {
            digests[i] = random_parsed_digest(&prng);
            uint8_t *const start = to;
            to = find_missing_entry_put(to, &digests[i]);
            ck_assert_uint_eq((size_t)(to - start), find_missing_entry_size(&digests[i]));
        }
        const size_t length = (size_t)(to - bytes);
        REAPI(FindMissingBlobsResponse) *const response = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(find_missing_blobs_response), NULL, length, bytes);
        ck_assert_ptr_nonnull(response);
        ck_assert_uint_eq(response->n_missing_blob_digests, count);
        for (size_t i = 0; i < count; i++)
            check_digest(response->missing_blob_digests[i], &digests[i]);
        check_packs_the_same(response, bytes, length);
        protobuf_c_message_free_unpacked(&response->base, NULL);
    }
}
END_TEST

START_TEST(batch_update_responses_are_what_protobuf_c_packs)
{
    struct prng prng = {.state = 8};
    for (int round = 0; round < 300; round++) {
        struct digest digests[8];
        struct status results[8];
        const size_t count = prng_below(&prng, 9);
        uint8_t bytes[8192];
        uint8_t *to = bytes;
        for (size_t i = 0; i < count; i++) {
            digests[i] = random_parsed_digest(&prng);
            results[i] = random_status(&prng);
            uint8_t *const start = to;
            to = batch_update_response_entry_put(to, &digests[i], &results[i]);
            ck_assert_uint_eq((size_t)(to - start),
                              batch_update_response_entry_size(&digests[i], &results[i]));
        }
        const size_t length = (size_t)(to - bytes);
        REAPI(BatchUpdateBlobsResponse) *const response = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(batch_update_blobs_response), NULL, length, bytes);
        ck_assert_ptr_nonnull(response);
        ck_assert_uint_eq(response->n_responses, count);
        for (size_t i = 0; i < count; i++) {
            check_digest(response->responses[i]->digest, &digests[i]);
            check_status(response->responses[i]->status, &results[i]);
        }
        check_packs_the_same(response, bytes, length);
        protobuf_c_message_free_unpacked(&response->base, NULL);
    }
}
END_TEST

START_TEST(raw_digests_are_echoed_as_they_came_or_as_question_marks)
{
    static const struct {
        struct wire_digest digest;
        const char *echo;
    } cases[] = {
        {{{(const uint8_t *)"abc", 3}, 5}, "abc"},
        {{{NULL, 0}, 0}, ""},
        {{{(const uint8_t *)"", 0}, -1}, ""},
        {{{(const uint8_t *)"\xc3\xa9", 2}, INT64_MIN}, "\xc3\xa9"},
        {{{(const uint8_t *)"a\xffz\xc3", 4}, 7}, "a?z?"},
    };
    struct prng prng = {.state = 9};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const struct wire_digest *const digest = &cases[i].digest;
        const struct status result = random_status(&prng);
        uint8_t bytes[2048];
        size_t length =
            (size_t)(batch_update_response_raw_entry_put(bytes, digest, &result) - bytes);
        ck_assert_uint_eq(length, batch_update_response_raw_entry_size(digest, &result));
        REAPI(BatchUpdateBlobsResponse) *const updated = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(batch_update_blobs_response), NULL, length, bytes);
        ck_assert_ptr_nonnull(updated);
        ck_assert_str_eq(updated->responses[0]->digest->hash, cases[i].echo);
        ck_assert_int_eq(updated->responses[0]->digest->size_bytes, digest->size_bytes);
        check_status(updated->responses[0]->status, &result);
        check_packs_the_same(updated, bytes, length);
        protobuf_c_message_free_unpacked(&updated->base, NULL);

        length = (size_t)(batch_read_error_entry_put(bytes, digest, &result) - bytes);
        ck_assert_uint_eq(length, batch_read_error_entry_size(digest, &result));
        REAPI(BatchReadBlobsResponse) *const read = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(batch_read_blobs_response), NULL, length, bytes);
        ck_assert_ptr_nonnull(read);
        ck_assert_str_eq(read->responses[0]->digest->hash, cases[i].echo);
        ck_assert_int_eq(read->responses[0]->digest->size_bytes, digest->size_bytes);
        ck_assert_uint_eq(read->responses[0]->data.len, 0);
        check_status(read->responses[0]->status, &result);
        check_packs_the_same(read, bytes, length);
        protobuf_c_message_free_unpacked(&read->base, NULL);
    }
}
END_TEST

START_TEST(batch_read_heads_with_their_data_are_read_back)
{
    static const size_t lengths[] = {0, 1, 100, 127, 128, 5000, 16384, 1 << 20};
    struct prng prng = {.state = 10};
    for (int round = 0; round < 60; round++) {
        const struct digest digest = random_parsed_digest(&prng);
        const size_t data_length = lengths[prng_below(&prng, ARRAY_LENGTH(lengths))];
        const int32_t compressor = (int32_t)prng_below(&prng, 2);
        uint8_t *const bytes = malloc(BATCH_READ_HEAD_BYTES_MAX + data_length);
        ck_assert_ptr_nonnull(bytes);
        const size_t head_length = batch_read_entry_head(bytes, &digest, data_length, compressor);
        for (size_t i = 0; i < data_length; i++)
            bytes[head_length + i] = (uint8_t)prng_next(&prng);

        REAPI(BatchReadBlobsResponse) *const response = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(batch_read_blobs_response), NULL, head_length + data_length, bytes);
        ck_assert_ptr_nonnull(response);
        ck_assert_uint_eq(response->n_responses, 1);
        const REAPI(BatchReadBlobsResponse__Response) *const entry = response->responses[0];
        static const struct status ok = {0};
        check_digest(entry->digest, &digest);
        check_status(entry->status, &ok);
        ck_assert_int_eq((int)entry->compressor, compressor);
        ck_assert_uint_eq(entry->data.len, data_length);
        ck_assert_int_eq(entry->base.n_unknown_fields, 0);
        if (data_length > 0)
            ck_assert_mem_eq(entry->data.data, bytes + head_length, data_length);
        protobuf_c_message_free_unpacked(&response->base, NULL);
        free(bytes);
    }
}
END_TEST

START_TEST(the_head_of_the_longest_entry_fits)
{
    struct digest digest = {.hash_length = DIGEST_HASH_BYTES_MAX, .size_bytes = INT64_MAX};
    uint8_t head[BATCH_READ_HEAD_BYTES_MAX];
    ck_assert_uint_le(batch_read_entry_head(head, &digest, SIZE_MAX / 2, 3),
                      BATCH_READ_HEAD_BYTES_MAX);
    uint8_t read_head[READ_RESPONSE_HEAD_BYTES_MAX];
    ck_assert_uint_le(read_response_head(read_head, SIZE_MAX), READ_RESPONSE_HEAD_BYTES_MAX);
}
END_TEST

START_TEST(read_response_heads_are_what_protobuf_c_packs)
{
    static const size_t lengths[] = {0, 1, 127, 128, 16383, 16384, 1 << 20};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        uint8_t *const data = calloc(1, lengths[i] + 1);
        uint8_t *const packed = malloc(lengths[i] + 32);
        ck_assert(data != NULL && packed != NULL);
        Google__Bytestream__ReadResponse response;
        google__bytestream__read_response__init(&response);
        response.data = (ProtobufCBinaryData){.len = lengths[i], .data = data};
        const size_t size = google__bytestream__read_response__pack(&response, packed);
        uint8_t head[READ_RESPONSE_HEAD_BYTES_MAX];
        const size_t head_length = read_response_head(head, lengths[i]);
        ck_assert_uint_eq(head_length + lengths[i], size);
        ck_assert_mem_eq(head, packed, head_length);
        free(data);
        free(packed);
    }
}
END_TEST

START_TEST(small_responses_are_what_protobuf_c_packs)
{
    static const int64_t sizes[] = {0, 1, 127, 128, 1 << 20, INT64_MAX, -1};
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(sizes); i++) {
        const int64_t committed_size = sizes[i / 2];
        const bool complete = i % 2 == 1;
        uint8_t ours[SMALL_RESPONSE_BYTES_MAX];
        uint8_t theirs[64];
        Google__Bytestream__WriteResponse written;
        google__bytestream__write_response__init(&written);
        written.committed_size = committed_size;
        size_t length = write_response_put(ours, committed_size);
        ck_assert_uint_eq(length, google__bytestream__write_response__pack(&written, theirs));
        ck_assert(bytes_equal(bytes_of(ours, length), bytes_of(theirs, length)));

        Google__Bytestream__QueryWriteStatusResponse state;
        google__bytestream__query_write_status_response__init(&state);
        state.committed_size = committed_size;
        state.complete = complete;
        length = query_write_status_response_put(ours, committed_size, complete);
        ck_assert_uint_eq(length,
                          google__bytestream__query_write_status_response__pack(&state, theirs));
        ck_assert(bytes_equal(bytes_of(ours, length), bytes_of(theirs, length)));
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("hot_messages");
    TCase *const oracle = tcase_create("against protobuf-c");
    tcase_add_loop_test(oracle, decoders_read_what_protobuf_c_packed_in_any_parts, 0, HOT_MESSAGES);
    tcase_add_loop_test(oracle, decoders_read_a_message_cut_at_every_boundary, 0, HOT_MESSAGES);
    tcase_add_loop_test(oracle, decoders_accept_a_prefix_when_protobuf_c_does, 0, HOT_MESSAGES);
    tcase_add_loop_test(oracle,
                        decoders_of_damaged_messages_agree_with_protobuf_c_where_both_accept, 0,
                        HOT_MESSAGES);
    suite_add_tcase(suite, oracle);
    TCase *const odd = tcase_create("what no encoder writes");
    tcase_add_test(odd, of_a_scalar_that_comes_twice_the_last_one_counts);
    tcase_add_test(odd, a_digest_in_several_fields_is_the_sum_of_them);
    tcase_add_test(odd, an_action_result_in_several_fields_is_joined);
    tcase_add_test(odd, compressors_count_packed_and_one_by_one);
    tcase_add_test(odd, find_missing_does_not_take_field_3_for_compressors);
    tcase_add_test(odd, a_hash_that_is_too_long_is_cut_to_what_no_digest_has);
    tcase_add_test(odd, a_digest_in_one_part_is_read_as_one_in_many);
    tcase_add_test(odd, a_known_field_of_another_wire_type_is_an_unknown_field);
    tcase_add_test(odd, what_is_malformed_is_an_invalid_argument);
    tcase_add_test(odd, a_malformed_message_inside_a_message_is_an_invalid_argument);
    tcase_add_test(odd, more_entries_than_the_arena_holds_are_too_much);
    tcase_add_test(odd, a_hundred_thousand_digests_are_an_ordinary_call);
    suite_add_tcase(suite, odd);
    TCase *const encoders = tcase_create("encoders");
    tcase_add_test(encoders, find_missing_responses_are_what_protobuf_c_packs);
    tcase_add_test(encoders, batch_update_responses_are_what_protobuf_c_packs);
    tcase_add_test(encoders, raw_digests_are_echoed_as_they_came_or_as_question_marks);
    tcase_add_test(encoders, batch_read_heads_with_their_data_are_read_back);
    tcase_add_test(encoders, the_head_of_the_longest_entry_fits);
    tcase_add_test(encoders, read_response_heads_are_what_protobuf_c_packs);
    tcase_add_test(encoders, small_responses_are_what_protobuf_c_packs);
    suite_add_tcase(suite, encoders);
    return test_run(suite);
}
