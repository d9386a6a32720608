/* SPDX-License-Identifier: Apache-2.0 */
#include "client/batch.h"

#include <stdlib.h>

#include "client/digest_map.h"

/* Texts in an answer that lie across two slices are copied; the answer itself is 16 MiB at most. */
enum { ANSWER_ARENA_BYTES = CLIENT_MESSAGE_BYTES_MAX };

/* One of the three calls while it is on its way. */
struct batch_call {
    const struct digest *digests;   /* of find missing and read; borrowed */
    const struct batch_blob *blobs; /* of update; borrowed */
    size_t count;
    bool *missing;          /* borrowed */
    struct status *results; /* borrowed */
    struct batch_read_sink sink;
    struct batch_done done;
    bool (*take_answer)(struct batch_call *call, struct bytes_list message, struct status *status);
};

static bool start(struct client *client,
                  struct event_loop *loop,
                  const char *method,
                  grpc_slice body,
                  const struct batch_call *call,
                  struct status *status);
static void unary_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static bool take_missing(struct batch_call *call, struct bytes_list message, struct status *status);
static bool take_entries(struct batch_call *call, struct bytes_list message, struct status *status);
static void take_read_entry(struct batch_call *call,
                            size_t index,
                            const struct batch_response_entry *entry);
static const struct digest *digest_at(const struct batch_call *call, size_t index);

bool find_missing_start(struct client *client,
                        struct event_loop *loop,
                        const struct digest *digests,
                        bool *missing,
                        size_t count,
                        struct batch_done done,
                        struct status *status)
{
    ASSERT(count > 0 && count <= FIND_MISSING_PAGE_MAX);
    const struct batch_call call = {.digests = digests,
                                    .missing = missing,
                                    .count = count,
                                    .done = done,
                                    .take_answer = take_missing};
    return start(client, loop, METHOD_FIND_MISSING_BLOBS,
                 find_missing_request(client_instance_name(client), digests, count), &call, status);
}

bool batch_update_start(struct client *client,
                        struct event_loop *loop,
                        const struct batch_blob *blobs,
                        struct status *results,
                        size_t count,
                        struct batch_done done,
                        struct status *status)
{
    ASSERT(count > 0);
    const struct batch_call call = {.blobs = blobs,
                                    .results = results,
                                    .count = count,
                                    .done = done,
                                    .take_answer = take_entries};
    return start(client, loop, METHOD_BATCH_UPDATE_BLOBS,
                 batch_update_request(client_instance_name(client), blobs, count), &call, status);
}

bool batch_read_start(struct client *client,
                      struct event_loop *loop,
                      const struct digest *digests,
                      struct status *results,
                      size_t count,
                      struct batch_read_sink sink,
                      struct batch_done done,
                      struct status *status)
{
    ASSERT(count > 0);
    const struct batch_call call = {.digests = digests,
                                    .results = results,
                                    .count = count,
                                    .sink = sink,
                                    .done = done,
                                    .take_answer = take_entries};
    return start(client, loop, METHOD_BATCH_READ_BLOBS,
                 batch_read_request(client_instance_name(client), digests, count), &call, status);
}

static bool start(struct client *client,
                  struct event_loop *loop,
                  const char *method,
                  grpc_slice body,
                  const struct batch_call *call,
                  struct status *status)
{
    struct batch_call *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        grpc_slice_unref(body);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a call");
    }
    *copy = *call;
    const struct unary_request request = {
        .method = method, .body = body, .loop = loop, .done = unary_done, .argument = copy};
    struct unary *unary;
    struct unary **const noted = call->done.call != NULL ? call->done.call : &unary;
    if (unary_start(client, &request, noted, status))
        return true;
    free(copy);
    return false;
}

static void unary_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct batch_call *call = argument;
    struct status result = *status;
    if (reply != NULL) {
        struct message_view view;
        bool ok = message_view_init(&view, reply);
        if (!ok)
            status_fail(&result, STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
        else if (!call->take_answer(call, message_view_list(&view), &result))
            ASSERT(result.code != STATUS_OK);
        if (ok)
            message_view_free(&view);
        grpc_byte_buffer_destroy(reply);
    }
    const struct batch_done done = call->done;
    free(call);
    done.done(done.argument, &result);
}

/*
 * Names those that are missing, in any order: a map from digest to "asked", then the answer, then
 * each asked one.
 */
static bool take_missing(struct batch_call *call, struct bytes_list message, struct status *status)
{
    struct digest_map map = {0};
    struct arena arena;
    arena_init(&arena, ANSWER_ARENA_BYTES);
    struct wire_reader reader;
    wire_reader_init(&reader, wire_span_of_list(message));
    bool ok = true;
    for (bool more = true; ok && more;) {
        struct digest digest;
        ok = find_missing_response_next(&reader, &arena, &digest, &more, status);
        bool is_new;
        if (ok && more && digest_map_insert(&map, &digest, &is_new) == NULL)
            ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
    }
    for (size_t i = 0; ok && i < call->count; i++)
        call->missing[i] = digest_map_find(&map, &call->digests[i]) != NULL;
    digest_map_destroy(&map);
    arena_destroy(&arena);
    return ok;
}

/* Entries come in any order; those that were not asked for, and second ones, are passed over. */
static bool take_entries(struct batch_call *call, struct bytes_list message, struct status *status)
{
    const enum batch_response_kind kind =
        call->blobs != NULL ? BATCH_UPDATE_RESPONSE : BATCH_READ_RESPONSE;
    struct digest_map map = {0};
    struct arena arena;
    arena_init(&arena, ANSWER_ARENA_BYTES);
    bool ok = true;
    for (size_t i = 0; ok && i < call->count; i++) {
        bool is_new;
        size_t *number = digest_map_insert(&map, digest_at(call, i), &is_new);
        if (number == NULL)
            ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
        else if (is_new)
            *number = i + 1; /* 0: its answer has been taken */
        status_fail(&call->results[i], STATUS_UNKNOWN,
                    "the server's answer says nothing of this blob");
    }
    struct wire_reader reader;
    wire_reader_init(&reader, wire_span_of_list(message));
    for (bool more = true; ok && more;) {
        struct batch_response_entry entry;
        ok = batch_response_next(&reader, kind, &arena, &entry, &more, status);
        size_t *number = ok && more ? digest_map_find(&map, &entry.digest) : NULL;
        if (number == NULL || *number == 0)
            continue;
        const size_t index = *number - 1;
        *number = 0;
        call->results[index] = entry.result;
        if (kind == BATCH_READ_RESPONSE && entry.result.code == STATUS_OK)
            take_read_entry(call, index, &entry);
    }
    digest_map_destroy(&map);
    arena_destroy(&arena);
    return ok;
}

static void take_read_entry(struct batch_call *call,
                            size_t index,
                            const struct batch_response_entry *entry)
{
    struct status *result = &call->results[index];
    const struct digest *asked = digest_at(call, index);
    if (entry->compressor != 0) {
        status_fail(result, STATUS_DATA_LOSS, "the server sent it compressed, unasked");
        return;
    }
    if (entry->data.length != (uint64_t)asked->size_bytes) {
        status_fail(result, STATUS_DATA_LOSS, "the server sent %zu bytes of it",
                    entry->data.length);
        return;
    }
    uint8_t *data = malloc(entry->data.length + 1);
    if (data == NULL) {
        status_fail(result, STATUS_RESOURCE_EXHAUSTED, "no memory for it");
        return;
    }
    wire_span_copy(entry->data, data);
    const struct bytes bytes = bytes_of(data, entry->data.length);
    struct digest digest;
    digest_of_bytes((enum digest_function)asked->function, bytes, &digest);
    if (digest_equal(&digest, asked))
        call->sink.take(call->sink.argument, index, bytes);
    else
        status_fail(result, STATUS_DATA_LOSS, "the server sent other bytes");
    free(data);
}

static const struct digest *digest_at(const struct batch_call *call, size_t index)
{
    return call->blobs != NULL ? &call->blobs[index].digest : &call->digests[index];
}
