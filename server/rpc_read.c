/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google.bytestream.ByteStream/Read: a blob or a part of it, a chunk a message, plain or each chunk as a zstd frame of its own.
 * Offsets count uncompressed bytes, so that a client resumes with a fresh decoder.
 *
 * While a message leaves the next one is read. A client that reads slowly keeps at most one pooled buffer per message that gRPC still
 * holds, and one that was read ahead. When half of the pool is out nothing is read ahead, and when most of it is, messages
 * become small and are copied, so that slow readers never keep buffers from the others.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "proto/hot_messages.h"
#include "server/buffer_wait.h"
#include "server/byte_stream.h"
#include "server/call_repair.h"
#include "server/methods.h"
#include "server/read_ahead.h"
#include "server/server.h"
#include "server/whole_blob.h"
#include "server/zstd_blobs.h"
#include "store/blob_reader.h"
#include "store/find.h"

/* Not worth a pooled buffer: copied into memory of their own length. */
static const size_t copied_bytes_max = 64 * KIB;

struct read_state {
    struct digest digest;
    enum compressor compressor;
    uint64_t position, end; /* of the uncompressed bytes that are still to be sent */
    bool sent;
    struct blob_reader *reader; /* owned; NULL for a blob of the small lane */
    struct call_repair repair;
    bool asked; /* peers, for the blob */
    struct buffer_wait wait;
    struct read_ahead ahead;
};

static bool answer_here(struct call *call, void *state, const struct message *message);
static void on_message(struct call *call, void *state, const struct message *message);
static bool begin(struct call *call,
                  struct read_state *read,
                  const struct message *message,
                  struct status *status);
static bool check_range(struct read_state *read,
                        const struct read_request *request,
                        struct status *status);
static bool open_blob(struct server *server, struct read_state *read, struct status *status);
static void send_next(struct call *call, void *state);
static bool is_tiny(const struct read_state *read);
static void send_tiny(struct call *call, struct read_state *read);
static bool read_tiny(struct call *call,
                      struct read_state *read,
                      grpc_slice *slice,
                      struct status *status);
static void send_piece(struct call *call, struct read_state *read, struct piece *piece);
static void read_piece(struct server *server, struct read_state *read, struct piece *piece);
static bool make_piece(struct server *server,
                       struct read_state *read,
                       struct piece *piece,
                       struct status *status);
static bool read_at(struct server *server,
                    struct read_state *read,
                    struct buffer *buffer,
                    struct bytes *data,
                    struct status *status);
static bool read_small(struct server *server,
                       const struct digest *digest,
                       uint8_t *to,
                       size_t capacity,
                       struct bytes *data,
                       struct status *status);
static void trim(struct server *server, const struct read_state *read, struct piece *piece);
static bool encode(struct piece *piece, struct buffer *into, struct status *status);
static bool not_there(const struct digest *digest, struct status *status);
static bool damaged(struct server *server,
                    const struct digest *digest,
                    struct place place,
                    struct status *status);
static void fail(struct call *call, struct read_state *read, struct status *status);
static void repaired(struct call *call, void *state);
static void send_slice(struct call *call,
                       struct read_state *read,
                       grpc_slice data,
                       size_t blob_bytes);
static void on_free(struct call *call, void *state);

const struct method rpc_read = {
    .path = "/google.bytestream.ByteStream/Read",
    .kind = METHOD_SERVER_STREAM,
    .role = ROLE_READ,
    .has_instance = true,
    .state_bytes = sizeof(struct read_state),
    .answer_here = answer_here,
    .on_message = on_message,
    .on_sent = send_next,
    .on_free = on_free,
};

/* The whole of a tiny blob, or its rest. */
static bool answer_here(struct call *call, void *state, const struct message *message)
{
    struct read_state *const read = state;
    struct status status;
    grpc_slice data;
    io_cached_begin(LIMIT_ANSWERED_HERE_BYTES);
    const bool ok = begin(call, read, message, &status) && is_tiny(read) &&
                    read->position < read->end && read_tiny(call, read, &data, &status);
    const bool refused = io_cached_end();
    if (ok && !refused) {
        send_slice(call, read, data, (size_t)(read->end - read->position));
        return true;
    }
    if (ok)
        grpc_slice_unref(data);
    blob_reader_free(read->reader);
    *read = (struct read_state){0};
    return false;
}

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct read_state *const read = state;
    struct status status;
    if (begin(call, read, message, &status))
        send_next(call, read);
    else
        fail(call, read, &status);
}

static bool begin(struct call *call,
                  struct read_state *read,
                  const struct message *message,
                  struct status *status)
{
    struct server *const server = call_server(call);
    struct read_request request;
    struct resource_name name;
    if (!read_request_decode(message->parts, call_arena(call), &request, status) ||
        !resource_name_parse_read(request.resource_name, &name, status) ||
        !call_check_instance(call, name.instance, status))
        return false;
    read->digest = name.digest;
    read->compressor = name.compressor;
    return check_range(read, &request, status) && open_blob(server, read, status);
}

static bool check_range(struct read_state *read,
                        const struct read_request *request,
                        struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    const struct digest *const digest = &read->digest;
    if (request->read_limit < 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "read_limit %" PRId64 " is below 0",
                           request->read_limit);
    if (request->read_limit != 0 && read->compressor != COMPRESSOR_IDENTITY)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "read_limit %" PRId64 ": a compressed read has no limit, ask for 0",
                           request->read_limit);
    if (request->read_offset < 0 || request->read_offset > digest->size_bytes)
        return status_fail(status, STATUS_OUT_OF_RANGE,
                           "read_offset %" PRId64 " is not inside of blob %s", request->read_offset,
                           digest_text(digest, text));
    read->position = (uint64_t)request->read_offset;
    read->end = (uint64_t)digest->size_bytes;
    if (request->read_limit > 0 && (uint64_t)request->read_limit < read->end - read->position)
        read->end = read->position + (uint64_t)request->read_limit;
    return true;
}

static bool open_blob(struct server *server, struct read_state *read, struct status *status)
{
    const struct digest *const digest = &read->digest;
    if (read->position == read->end || (uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES)
        return store_has_blob(server->store, digest) || not_there(digest, status);
    if (!blob_reader_open(server->store, digest, &read->reader, status)) {
        struct place place = {0};
        if (!store_find_blob(server->store, digest, FIND_ONLY, &place) &&
            status->code == STATUS_DATA_LOSS)
            return not_there(digest, status);
        return damaged(server, digest, place, status);
    }
    return read->reader || not_there(digest, status);
}

static void send_next(struct call *call, void *state)
{
    struct read_state *const read = state;
    struct server *const server = call_server(call);
    struct status status;
    if (call_cancelled(call)) {
        status_fail(&status, STATUS_CANCELLED, "the client has cancelled the read");
        call_fail(call, &status);
        return;
    }
    if (read->position == read->end) {
        call_count_lookups(call, 1, 0);
        call_finish(call);
        return;
    }
    if (is_tiny(read)) {
        send_tiny(call, read);
        return;
    }

    struct piece piece = {0};
    switch (read_ahead_take(&read->ahead, &piece)) {
    case READ_AHEAD_MAKING:
        call_park(call, send_next);
        return;
    case READ_AHEAD_MADE:
        break;
    case READ_AHEAD_NONE:
        piece.buffer = buffer_wait_take(&read->wait, call, server->buffers);
        if (!piece.buffer) {
            call_park(call, send_next);
            return;
        }
        read_piece(server, read, &piece);
        break;
    }
    if (piece.status.code != STATUS_OK) {
        fail(call, read, &piece.status);
        return;
    }
    send_piece(call, read, &piece);
}

/* And reads the next one, if that is worth it. */
static void send_piece(struct call *call, struct read_state *read, struct piece *piece)
{
    struct server *const server = call_server(call);
    struct piece next = {0};
    grpc_slice data;
    if (piece->data.length <= copied_bytes_max) {
        data = grpc_slice_from_copied_buffer((const char *)piece->data.data, piece->data.length);
        buffer_release(piece->buffer);
    } else {
        data = slice_of_buffer(piece->buffer, piece->data);
    }
    if (read->reader && piece->blob_bytes < read->end - read->position &&
        buffer_pool_in_use(server->buffers) <= buffer_pool_max(server->buffers) / 2)
        next.buffer = buffer_pool_try_take(server->buffers);
    if (!next.buffer) {
        send_slice(call, read, data, piece->blob_bytes);
        return;
    }
    read_ahead_begin(&read->ahead, call);
    send_slice(call, read, data, piece->blob_bytes);
    /* The turn is over. What follows is safe because nobody ends the call, or moves the position, before read_ahead_end(). */
    read_piece(server, read, &next);
    read_ahead_end(&read->ahead, &next);
}

/* ---- blobs of a few KiB: read into the slice that is sent */

static bool is_tiny(const struct read_state *read)
{
    return read->compressor == COMPRESSOR_IDENTITY &&
           (uint64_t)read->digest.size_bytes <= copied_bytes_max;
}

static void send_tiny(struct call *call, struct read_state *read)
{
    struct status status;
    grpc_slice data;
    if (read_tiny(call, read, &data, &status))
        send_slice(call, read, data, (size_t)(read->end - read->position));
    else
        fail(call, read, &status);
}

static bool read_tiny(struct call *call,
                      struct read_state *read,
                      grpc_slice *slice,
                      struct status *status)
{
    const struct digest *const digest = &read->digest;
    const size_t stored_bytes = (size_t)record_stored_bytes((uint64_t)digest->size_bytes);
    struct bytes data;
    grpc_slice record = grpc_slice_malloc(stored_bytes);
    uint8_t *const start = GRPC_SLICE_START_PTR(record);
    if (!read_small(call_server(call), digest, start, stored_bytes, &data, status)) {
        grpc_slice_unref(record);
        return false;
    }
    const size_t at = (size_t)(data.data - start);
    *slice = grpc_slice_sub_no_ref(record, at + (size_t)read->position, at + (size_t)read->end);
    return true;
}

/* ---- all others */

/* From the position on, at most to the end of its chunk, as it is to be sent. piece->buffer is there; on failure it is given back. */
static void read_piece(struct server *server, struct read_state *read, struct piece *piece)
{
    if (make_piece(server, read, piece, &piece->status))
        return;
    buffer_release(piece->buffer);
    piece->buffer = NULL;
}

static bool make_piece(struct server *server,
                       struct read_state *read,
                       struct piece *piece,
                       struct status *status)
{
    if (read->compressor == COMPRESSOR_IDENTITY) {
        if (!read_at(server, read, piece->buffer, &piece->data, status))
            return false;
        trim(server, read, piece);
        return true;
    }
    /* The pooled buffer is for what is sent and may be held for long; what it is made from goes at once. */
    struct buffer scratch = {.data = malloc(LIMIT_POOL_BUFFER_BYTES),
                             .capacity_bytes = LIMIT_POOL_BUFFER_BYTES};
    if (!scratch.data)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to compress in");
    bool ok = read_at(server, read, &scratch, &piece->data, status);
    if (ok) {
        trim(server, read, piece);
        ok = encode(piece, piece->buffer, status);
    }
    free(scratch.data);
    return ok;
}

static bool read_at(struct server *server,
                    struct read_state *read,
                    struct buffer *buffer,
                    struct bytes *data,
                    struct status *status)
{
    const struct digest *const digest = &read->digest;
    if (read->reader)
        return blob_reader_read(read->reader, read->position, buffer, data, status) ||
               damaged(server, digest, blob_reader_place(read->reader), status);

    if (!read_small(server, digest, buffer->data, buffer->capacity_bytes, data, status))
        return false;
    *data = bytes_of(data->data + read->position, data->length - (size_t)read->position);
    return true;
}

static bool read_small(struct server *server,
                       const struct digest *digest,
                       uint8_t *to,
                       size_t capacity,
                       struct bytes *data,
                       struct status *status)
{
    bool found = false;
    struct place place = {0};
    if (!blob_read_small(server->store, digest, to, capacity, data, &found, &place, status))
        return damaged(server, digest, place, status);
    return found || not_there(digest, status);
}

/* To what was asked for; and to little when most buffers are out. */
static void trim(struct server *server, const struct read_state *read, struct piece *piece)
{
    const bool scarce =
        buffer_pool_in_use(server->buffers) > buffer_pool_max(server->buffers) / 4 * 3;
    size_t length = piece->data.length;
    if (length > read->end - read->position)
        length = (size_t)(read->end - read->position);
    if (scarce && length > copied_bytes_max)
        length = copied_bytes_max;
    piece->data.length = length;
    piece->blob_bytes = length;
}

static bool encode(struct piece *piece, struct buffer *into, struct status *status)
{
    struct zstd_blobs encoder = {0};
    const size_t length =
        zstd_blobs_encode(&encoder, piece->data, into->data, into->capacity_bytes);
    zstd_blobs_free(&encoder);
    if (length == 0)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to compress in");
    piece->data = bytes_of(into->data, length);
    return true;
}

static bool not_there(const struct digest *digest, struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    return status_fail(status, STATUS_NOT_FOUND, "blob %s is not here", digest_text(digest, text));
}

/* A read failed: false, always. What is damaged is gone from now on. */
static bool damaged(struct server *server,
                    const struct digest *digest,
                    struct place place,
                    struct status *status)
{
    if (status->code != STATUS_DATA_LOSS)
        return false;
    damaged_blob_forget(server->durability, digest, place, status);
    return not_there(digest, status);
}

/* Nobody resumes after NOT_FOUND, and nobody takes what was sent for the whole (docs/protocol.md, decision 12). */
static void fail(struct call *call, struct read_state *read, struct status *status)
{
    if (status->code == STATUS_NOT_FOUND && !read->asked &&
        call_repair_start(&read->repair, call, &read->digest, 1)) {
        read->asked = true;
        call_park(call, repaired);
        return;
    }
    if (status->code == STATUS_NOT_FOUND)
        call_count_lookups(call, 0, 1);
    if (read->sent && status->code == STATUS_NOT_FOUND)
        status->code = STATUS_ABORTED;
    call_fail(call, status);
}

/* Goes on where it was, if a peer had it. */
static void repaired(struct call *call, void *state)
{
    struct read_state *const read = state;
    struct status status;
    if (!call_repair_over(&read->repair)) {
        call_park(call, repaired);
        return;
    }
    blob_reader_free(read->reader);
    read->reader = NULL;
    const bool open = open_blob(call_server(call), read, &status);
    /* It may well be there: to be called missing would end a build. */
    if (!open && status.code == STATUS_NOT_FOUND && read->repair.unavailable) {
        status.code = STATUS_UNAVAILABLE;
        status_prefix(&status, "the bucket does not answer");
    }
    if (open)
        send_next(call, read);
    else
        fail(call, read, &status);
}

static void send_slice(struct call *call,
                       struct read_state *read,
                       grpc_slice data,
                       size_t blob_bytes)
{
    uint8_t head[READ_RESPONSE_HEAD_BYTES_MAX];
    const size_t head_bytes = read_response_head(head, GRPC_SLICE_LENGTH(data));
    grpc_slice slices[] = {grpc_slice_from_copied_buffer((const char *)head, head_bytes), data};
    read->position += blob_bytes;
    read->sent = true;
    if (read->position < read->end) {
        call_send(call, slices, ARRAY_LENGTH(slices));
        return;
    }
    call_count_lookups(call, 1, 0);
    call_reply(call, slices, ARRAY_LENGTH(slices));
}

static void on_free(struct call *call, void *state)
{
    (void)call;
    struct read_state *const read = state;
    buffer_wait_end(&read->wait);
    read_ahead_free(&read->ahead);
    call_repair_end(&read->repair);
    blob_reader_free(read->reader);
}
