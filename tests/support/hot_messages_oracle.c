/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hot_messages_oracle.h"

#include <stdlib.h>

#include "base/limits.h"
#include "proto/hot_messages.h"
#include "tests/support/flat_walk.h"
#include "tests/support/reapi_names.h"

typedef bool compare_function(struct bytes flat,
                              struct bytes_list parts,
                              const ProtobufCMessage *theirs,
                              struct arena *arena,
                              struct status *status);

static compare_function compare_write_request;
static compare_function compare_batch_update;
static compare_function compare_find_missing;
static compare_function compare_batch_read;
static compare_function compare_update_action_result;
static void compare_joined_digest(const struct wire_digest *ours,
                                  struct bytes message,
                                  uint32_t number,
                                  bool wanted);
static void compare_digest(const struct wire_digest *ours, const REAPI(Digest) * theirs);
static void compare_digests(const struct digests_request *ours,
                            size_t count,
                            REAPI(Digest) *const *theirs);
static void compare_string(struct bytes ours, const char *theirs, size_t length_max);
static void compare_data(struct wire_span ours, const ProtobufCBinaryData *theirs);
static void compare_action_result(struct bytes flat,
                                  const struct update_action_result_request *ours,
                                  const ProtobufCMessage *theirs);

static const struct {
    const ProtobufCMessageDescriptor *descriptor;
    compare_function *compare;
} messages[HOT_MESSAGES] = {
    [HOT_WRITE_REQUEST] = {&google__bytestream__write_request__descriptor, compare_write_request},
    [HOT_BATCH_UPDATE] = {&REAPI_DESCRIPTOR(batch_update_blobs_request), compare_batch_update},
    [HOT_FIND_MISSING] = {&REAPI_DESCRIPTOR(find_missing_blobs_request), compare_find_missing},
    [HOT_BATCH_READ] = {&REAPI_DESCRIPTOR(batch_read_blobs_request), compare_batch_read},
    [HOT_UPDATE_ACTION_RESULT] = {&REAPI_DESCRIPTOR(update_action_result_request),
                                  compare_update_action_result},
};

struct hot_verdict hot_messages_compare(enum hot_message kind,
                                        struct bytes flat,
                                        struct bytes_list parts)
{
    struct arena arena;
    struct status status = {0};
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    ProtobufCMessage *const theirs =
        protobuf_c_message_unpack(messages[kind].descriptor, NULL, flat.length, flat.data);
    const struct hot_verdict verdict = {
        .ours = messages[kind].compare(flat, parts, theirs, &arena, &status),
        .theirs = theirs != NULL,
    };
    if (verdict.ours)
        ASSERT(status.code == STATUS_OK);
    else
        ASSERT(status.code == STATUS_INVALID_ARGUMENT || status.code == STATUS_RESOURCE_EXHAUSTED);
    if (theirs != NULL)
        protobuf_c_message_free_unpacked(theirs, NULL);
    arena_destroy(&arena);
    return verdict;
}

/* ---- one function a message: true when ours accepts; compares when theirs is there, too */

static bool compare_write_request(struct bytes flat,
                                  struct bytes_list parts,
                                  const ProtobufCMessage *message,
                                  struct arena *arena,
                                  struct status *status)
{
    struct write_request ours;
    if (!write_request_decode(parts, arena, &ours, status))
        return false;
    const Google__Bytestream__WriteRequest *const theirs = (const void *)message;
    if (theirs == NULL)
        return true;
    compare_string(ours.resource_name, theirs->resource_name, SIZE_MAX);
    ASSERT(ours.write_offset == theirs->write_offset);
    /* protobuf-c reads a bool from a field of any wire type. */
    if (flat_walk_count(flat, 3, 1) + flat_walk_count(flat, 3, 2) + flat_walk_count(flat, 3, 5) ==
        0)
        ASSERT(ours.finish_write == (theirs->finish_write != 0));
    compare_data(ours.data, &theirs->data);
    return true;
}

static bool compare_batch_update(struct bytes flat,
                                 struct bytes_list parts,
                                 const ProtobufCMessage *message,
                                 struct arena *arena,
                                 struct status *status)
{
    struct batch_update_request ours;
    if (!batch_update_decode(parts, arena, &ours, status))
        return false;
    const REAPI(BatchUpdateBlobsRequest) *const theirs = (const void *)message;
    if (theirs == NULL)
        return true;
    compare_string(ours.instance_name, theirs->instance_name, SIZE_MAX);
    ASSERT(ours.digest_function == (int32_t)theirs->digest_function);
    ASSERT(ours.entry_count == theirs->n_requests);
    uint64_t total = 0;
    size_t i = 0;
    struct flat_field field;
    while (flat_walk_next(&flat, &field) == FLAT_FIELD) {
        if (field.number != 2)
            continue;
        const struct batch_update_entry *const entry = &ours.entries[i];
        const REAPI(BatchUpdateBlobsRequest__Request) *const request = theirs->requests[i];
        compare_joined_digest(&entry->digest, field.bytes, 1, request->digest != NULL);
        compare_data(entry->data, &request->data);
        ASSERT(entry->compressor == (int32_t)request->compressor);
        total += request->data.len;
        i++;
    }
    ASSERT(i == ours.entry_count);
    ASSERT(ours.data_bytes_total == total);
    return true;
}

static bool compare_find_missing(struct bytes flat,
                                 struct bytes_list parts,
                                 const ProtobufCMessage *message,
                                 struct arena *arena,
                                 struct status *status)
{
    struct digests_request ours;
    if (!find_missing_decode(parts, arena, &ours, status))
        return false;
    const REAPI(FindMissingBlobsRequest) *const theirs = (const void *)message;
    if (theirs == NULL)
        return true;
    ASSERT(ours.digest_count == flat_walk_count(flat, 2, 2));
    compare_string(ours.instance_name, theirs->instance_name, SIZE_MAX);
    ASSERT(ours.digest_function == (int32_t)theirs->digest_function);
    compare_digests(&ours, theirs->n_blob_digests, theirs->blob_digests);
    return true;
}

static bool compare_batch_read(struct bytes flat,
                               struct bytes_list parts,
                               const ProtobufCMessage *message,
                               struct arena *arena,
                               struct status *status)
{
    struct digests_request ours;
    if (!batch_read_decode(parts, arena, &ours, status))
        return false;
    const REAPI(BatchReadBlobsRequest) *const theirs = (const void *)message;
    if (theirs == NULL)
        return true;
    ASSERT(ours.digest_count == flat_walk_count(flat, 2, 2));
    compare_string(ours.instance_name, theirs->instance_name, SIZE_MAX);
    ASSERT(ours.digest_function == (int32_t)theirs->digest_function);
    compare_digests(&ours, theirs->n_digests, theirs->digests);
    bool zstd = false;
    for (size_t i = 0; i < theirs->n_acceptable_compressors; i++)
        zstd |= (int)theirs->acceptable_compressors[i] == 1;
    ASSERT(ours.accepts_zstd == zstd);
    return true;
}

static bool compare_update_action_result(struct bytes flat,
                                         struct bytes_list parts,
                                         const ProtobufCMessage *message,
                                         struct arena *arena,
                                         struct status *status)
{
    struct update_action_result_request ours;
    if (!update_action_result_decode(parts, arena, &ours, status))
        return false;
    const REAPI(UpdateActionResultRequest) *const theirs = (const void *)message;
    if (theirs == NULL)
        return true;
    compare_string(ours.instance_name, theirs->instance_name, SIZE_MAX);
    ASSERT(ours.digest_function == (int32_t)theirs->digest_function);
    ASSERT(ours.has_action_digest == (theirs->action_digest != NULL));
    compare_joined_digest(&ours.action_digest, flat, 2, theirs->action_digest != NULL);
    ASSERT(ours.has_action_result == (theirs->action_result != NULL));
    compare_action_result(flat, &ours, (const ProtobufCMessage *)theirs->action_result);
    return true;
}

/* The bytes as they were sent; and if in one field, the bytes that protobuf-c read the same from. */
static void compare_action_result(struct bytes flat,
                                  const struct update_action_result_request *ours,
                                  const ProtobufCMessage *theirs)
{
    struct bytes left = ours->action_result;
    size_t times_sent = 0;
    struct flat_field field;
    while (flat_walk_next(&flat, &field) == FLAT_FIELD) {
        if (field.number != 3 || field.type != 2)
            continue;
        ASSERT(field.bytes.length <= left.length);
        ASSERT(bytes_equal(field.bytes, bytes_of(left.data, field.bytes.length)));
        if (field.bytes.length > 0) /* left.data may be NULL */
            left = bytes_of(left.data + field.bytes.length, left.length - field.bytes.length);
        times_sent++;
    }
    ASSERT(left.length == 0);
    if (times_sent != 1)
        return;

    ProtobufCMessage *const again =
        protobuf_c_message_unpack(&REAPI_DESCRIPTOR(action_result), NULL,
                                  ours->action_result.length, ours->action_result.data);
    ASSERT(again != NULL);
    const size_t size = protobuf_c_message_get_packed_size(theirs);
    ASSERT(protobuf_c_message_get_packed_size(again) == size);
    uint8_t *const packed = malloc(2 * size + 1);
    ASSERT(packed != NULL);
    protobuf_c_message_pack(theirs, packed);
    protobuf_c_message_pack(again, packed + size);
    ASSERT(memcmp(packed, packed + size, size) == 0);
    free(packed);
    protobuf_c_message_free_unpacked(again, NULL);
}

/* ---- shared */

static void compare_digests(const struct digests_request *ours,
                            size_t count,
                            REAPI(Digest) *const *theirs)
{
    ASSERT(ours->digest_count == count);
    for (size_t i = 0; i < count; i++)
        compare_digest(&ours->digests[i], theirs[i]);
}

/* With all the fields of this number in the message; wanted: is there one. */
static void compare_joined_digest(const struct wire_digest *ours,
                                  struct bytes message,
                                  uint32_t number,
                                  bool wanted)
{
    uint8_t *const joined = malloc(message.length + 1);
    ASSERT(joined != NULL);
    size_t length = 0;
    bool found = false;
    struct flat_field field;
    while (flat_walk_next(&message, &field) == FLAT_FIELD) {
        if (field.number != number || field.type != 2)
            continue;
        found = true;
        for (size_t i = 0; i < field.bytes.length; i++)
            joined[length++] = field.bytes.data[i];
    }
    ASSERT(found == wanted);
    REAPI(Digest) *const theirs =
        (void *)protobuf_c_message_unpack(&REAPI_DESCRIPTOR(digest), NULL, length, joined);
    ASSERT(theirs != NULL);
    compare_digest(ours, theirs);
    protobuf_c_message_free_unpacked(&theirs->base, NULL);
    free(joined);
}

static void compare_digest(const struct wire_digest *ours, const REAPI(Digest) * theirs)
{
    compare_string(ours->hash_hex, theirs->hash, DIGEST_HASH_HEX_MAX + 1);
    ASSERT(ours->size_bytes == theirs->size_bytes);
}

/* protobuf-c's strings end at the first NUL. */
static void compare_string(struct bytes ours, const char *theirs, size_t length_max)
{
    ASSERT(ours.length <= length_max);
    const uint8_t *const nul = ours.length > 0 ? memchr(ours.data, '\0', ours.length) : NULL;
    const size_t length = nul != NULL ? (size_t)(nul - ours.data) : ours.length;
    ASSERT(length == 0 || strncmp((const char *)ours.data, theirs, length) == 0);
    if (nul != NULL || length < length_max)
        ASSERT(theirs[length] == '\0');
}

static void compare_data(struct wire_span ours, const ProtobufCBinaryData *theirs)
{
    ASSERT(ours.length == theirs->len);
    size_t pieces = wire_span_pieces(ours);
    size_t compared = 0;
    for (struct bytes piece = wire_span_next(&ours); piece.length > 0;
         piece = wire_span_next(&ours)) {
        ASSERT(memcmp(piece.data, theirs->data + compared, piece.length) == 0);
        compared += piece.length;
        pieces--;
    }
    ASSERT(compared == theirs->len && pieces == 0);
}
