/* SPDX-License-Identifier: Apache-2.0 */
#include "server/action_answer.h"

#include <stdlib.h>

#include "proto/hot_messages.h"
#include "proto/wire.h"
#include "server/whole_blob.h"

enum {
    /* ActionResult */
    FIELD_OUTPUT_FILES = 2,
    FIELD_STDOUT_RAW = 5,
    FIELD_STDOUT_DIGEST = 6,
    FIELD_STDERR_RAW = 7,
    FIELD_STDERR_DIGEST = 8,
    FIELD_EXECUTION_METADATA = 9,
    /* OutputFile */
    FIELD_FILE_PATH = 1,
    FIELD_FILE_DIGEST = 2,
    FIELD_FILE_CONTENTS = 5,
    /*
     * What inlining one blob adds besides its bytes: keys, its length, a longer length of the
     * message it is in.
     */
    INLINE_OVERHEAD_BYTES = 24,
    /* Execution metadata and a margin. */
    ANSWER_MARGIN_BYTES = 64,
};

struct answer {
    struct durability *durability; /* borrowed */
    struct arena *arena;           /* borrowed */
    enum digest_function function;
    const struct action_inline *wanted; /* borrowed */
    struct byte_builder *builder;       /* borrowed */
    struct digest *gone;                /* borrowed */
    size_t *gone_count;                 /* borrowed */
    uint64_t bytes_left;                /* that may still be inlined */
    struct whole_blob blob;
};

/* stdout or stderr of a result. */
struct stream {
    uint32_t raw_field;
    bool wanted;
    bool has_digest;
    struct wire_digest digest;
    bool inline_already;
};

/* An OutputFile. */
struct file {
    struct bytes path;
    bool has_digest;
    struct wire_digest digest;
    bool inline_already;
};

static bool run(struct answer *answer, struct bytes result, struct status *status);
static bool find_streams(struct answer *answer,
                         struct bytes result,
                         struct stream streams[2],
                         struct status *status);
static bool file_decode(struct answer *answer,
                        struct wire_span message,
                        struct file *file,
                        struct status *status);
static bool path_is_wanted(const struct answer *answer, struct bytes path);
static bool read_blob(struct answer *answer,
                      const struct wire_digest *wire,
                      struct bytes *data,
                      struct status *status);
static void put_file(struct answer *answer, struct bytes message, struct bytes contents);
static void put_field(struct answer *answer, uint32_t number, struct bytes bytes);
static int compare_bytes(const void *left, const void *right);
static struct bytes flat(struct wire_span span);

struct bytes action_answer_metadata(struct bytes result)
{
    static const uint8_t empty[] = {FIELD_EXECUTION_METADATA << 3 | WIRE_BYTES, 0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&result));
    while (wire_reader_next(&reader, &field))
        if (field.number == FIELD_EXECUTION_METADATA && field.type == WIRE_BYTES)
            return bytes_of(NULL, 0);
    return bytes_of(empty, sizeof(empty));
}

bool action_answer_inline(struct durability *durability,
                          struct arena *arena,
                          enum digest_function function,
                          struct bytes result,
                          struct action_inline *wanted,
                          struct byte_builder *answer_builder,
                          struct digest *gone,
                          size_t *gone_count,
                          struct status *status)
{
    if (wanted->path_count > 0)
        qsort(wanted->paths, wanted->path_count, sizeof(*wanted->paths), compare_bytes);
    struct answer answer = {
        .durability = durability,
        .arena = arena,
        .function = function,
        .wanted = wanted,
        .builder = answer_builder,
        .gone = gone,
        .gone_count = gone_count,
    };
    const uint64_t taken = result.length + ANSWER_MARGIN_BYTES;
    if (taken < LIMIT_RESPONSE_BYTES)
        answer.bytes_left = LIMIT_RESPONSE_BYTES - taken;
    if (answer.bytes_left > LIMIT_INLINE_BYTES)
        answer.bytes_left = LIMIT_INLINE_BYTES;
    *gone_count = 0;

    const bool ok = run(&answer, result, status);
    whole_blob_free(&answer.blob);
    if (ok && answer_builder->failed)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for an action result of %zu bytes", result.length);
    return ok;
}

/* stdout and stderr are read first and stand last: fields may come in any order. */
static bool run(struct answer *answer, struct bytes result, struct status *status)
{
    struct stream streams[2];
    struct byte_builder raw = {0};
    struct byte_builder *const whole = answer->builder;
    bool ok = find_streams(answer, result, streams, status);
    answer->builder = &raw;
    for (size_t i = 0; ok && i < ARRAY_LENGTH(streams); i++) {
        struct bytes data = {0};
        if (streams[i].wanted && streams[i].has_digest && !streams[i].inline_already)
            ok = read_blob(answer, &streams[i].digest, &data, status);
        put_field(answer, streams[i].raw_field, data);
    }
    answer->builder = whole;

    struct wire_reader reader;
    struct wire_field field;
    size_t copied = 0;
    wire_reader_init(&reader, wire_span_of_bytes(&result));
    for (size_t begin = 0; ok && wire_reader_next(&reader, &field);
         begin = result.length - reader.rest.length) {
        struct file file;
        if (field.number != FIELD_OUTPUT_FILES || answer->wanted->path_count == 0)
            continue;
        ok = file_decode(answer, field.span, &file, status);
        if (!ok || file.inline_already || !file.has_digest || !path_is_wanted(answer, file.path))
            continue;
        struct bytes data;
        ok = read_blob(answer, &file.digest, &data, status);
        if (!ok || data.length == 0)
            continue;
        byte_builder_append(whole, bytes_of(result.data + copied, begin - copied));
        put_file(answer, flat(field.span), data);
        copied = result.length - reader.rest.length;
    }
    if (ok) {
        byte_builder_append(whole, bytes_of(result.length > copied ? result.data + copied : NULL,
                                            result.length - copied));
        byte_builder_append(whole, bytes_of(raw.data, raw.length));
        whole->failed |= raw.failed;
    }
    byte_builder_free(&raw);
    return ok;
}

static bool find_streams(struct answer *answer,
                         struct bytes result,
                         struct stream streams[2],
                         struct status *status)
{
    streams[0] =
        (struct stream){.raw_field = FIELD_STDOUT_RAW, .wanted = answer->wanted->stdout_raw};
    streams[1] =
        (struct stream){.raw_field = FIELD_STDERR_RAW, .wanted = answer->wanted->stderr_raw};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&result));
    while (wire_reader_next(&reader, &field)) {
        if (field.type != WIRE_BYTES)
            continue;
        struct stream *const stream =
            &streams[field.number == FIELD_STDERR_RAW || field.number == FIELD_STDERR_DIGEST ? 1
                                                                                             : 0];
        switch (field.number) {
        case FIELD_STDOUT_RAW:
        case FIELD_STDERR_RAW:
            stream->inline_already = field.span.length > 0;
            break;
        case FIELD_STDOUT_DIGEST:
        case FIELD_STDERR_DIGEST:
            stream->has_digest = true;
            if (!wire_digest_decode(field.span, answer->arena, &stream->digest, status))
                return false;
            break;
        default:
            break;
        }
    }
    return true;
}

static bool file_decode(struct answer *answer,
                        struct wire_span message,
                        struct file *file,
                        struct status *status)
{
    *file = (struct file){0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, message);
    while (wire_reader_next(&reader, &field)) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == FIELD_FILE_PATH)
            file->path = flat(field.span);
        else if (field.number == FIELD_FILE_CONTENTS)
            file->inline_already = field.span.length > 0;
        else if (field.number == FIELD_FILE_DIGEST) {
            file->has_digest = true;
            if (!wire_digest_decode(field.span, answer->arena, &file->digest, status))
                return false;
        }
    }
    return true;
}

static bool path_is_wanted(const struct answer *answer, struct bytes path)
{
    return bsearch(&path, answer->wanted->paths, answer->wanted->path_count, sizeof(path),
                   compare_bytes) != NULL;
}

/* *data is empty when it does not fit, is empty or is gone; true then too. */
static bool read_blob(struct answer *answer,
                      const struct wire_digest *wire,
                      struct bytes *data,
                      struct status *status)
{
    *data = bytes_of(NULL, 0);
    struct digest digest;
    if (!digest_parse(answer->function, wire->hash_hex, wire->size_bytes, &digest, status))
        return false;
    const uint64_t needed = (uint64_t)digest.size_bytes + INLINE_OVERHEAD_BYTES;
    if (needed > answer->bytes_left)
        return true;
    bool found;
    if (!whole_blob_read(&answer->blob, answer->durability, &digest, LIMIT_INLINE_BYTES, data,
                         &found, status))
        return false;
    if (!found) {
        *answer->gone = digest;
        *answer->gone_count = 1;
        return true;
    }
    answer->bytes_left -= needed;
    return true;
}

static void put_file(struct answer *answer, struct bytes message, struct bytes contents)
{
    const size_t length =
        message.length + wire_bytes_field_size(FIELD_FILE_CONTENTS, contents.length);
    uint8_t *const begin =
        byte_builder_reserve(answer->builder, wire_bytes_field_size(FIELD_OUTPUT_FILES, length));
    if (begin == NULL)
        return;
    uint8_t *to = wire_put_bytes_key(begin, FIELD_OUTPUT_FILES, length);
    memcpy(to, message.data, message.length);
    to = wire_put_bytes_field(to + message.length, FIELD_FILE_CONTENTS, contents);
    answer->builder->length += (size_t)(to - begin);
}

/* Nothing for no bytes. */
static void put_field(struct answer *answer, uint32_t number, struct bytes bytes)
{
    if (bytes.length == 0)
        return;
    uint8_t *const to =
        byte_builder_reserve(answer->builder, wire_bytes_field_size(number, bytes.length));
    if (to != NULL)
        answer->builder->length += (size_t)(wire_put_bytes_field(to, number, bytes) - to);
}

static int compare_bytes(const void *left, const void *right)
{
    const struct bytes *const a = left;
    const struct bytes *const b = right;
    const size_t common = a->length < b->length ? a->length : b->length;
    const int order = common == 0 ? 0 : memcmp(a->data, b->data, common);
    if (order != 0)
        return order;
    return a->length < b->length ? -1 : a->length > b->length;
}

/* The result lies in one piece, so every span of it does. */
static struct bytes flat(struct wire_span span)
{
    struct wire_span rest = span;
    const struct bytes piece = wire_span_next(&rest);
    ASSERT(piece.length == span.length);
    return piece;
}
