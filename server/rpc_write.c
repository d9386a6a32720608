/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google.bytestream.ByteStream/Write: one blob in any number of messages, plain or zstd, begun, resumed, overtaken or given up.
 *
 *   a message                what is done with it
 *   the first                names the upload: opened (server/uploads.h), unless the blob is there
 *   each                     its bytes go to the upload; the call waits where the upload says so, and for a pooled buffer
 *   with finish_write        checked and submitted to group commit, which resumes the call when the blob is on disk
 *
 * Whenever the call goes on and the blob has come by another way, it is answered at once. A small blob that comes in
 * one message, as most do, is committed from where gRPC received it and is never an upload.
 */
#include <inttypes.h>

#include "base/crc32c.h"
#include "proto/hot_messages.h"
#include "server/buffer_wait.h"
#include "server/byte_stream.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/uploads.h"
#include "store/blob_writer.h"

/* For resource names that came in several slices; of a message, not of a call, which may have millions. */
#define SCRATCH_BYTES_MAX MIB

struct write_state {
    struct call *call;
    bool begun;        /* the first message has been read */
    bool opened;       /* so has the upload been */
    bool placed;       /* and entered once */
    struct bytes text; /* the resource name as it came; in the arena, as what name points to */
    struct resource_name name;
    uint64_t next_offset;  /* that the next message must say */
    uint64_t first_offset; /* that the first one said */
    uint64_t skip_bytes;   /* of what comes: they are held already */
    bool finishes;         /* the current message is the last */

    struct upload_stream stream;
    struct buffer_wait wait;
    struct zstd_decoder *decoder; /* owned; NULL until it is needed */

    /* What of the current message the upload has not taken: rest, then encoded before it, then data before that. */
    struct wire_span rest;
    struct bytes encoded;
    struct bytes data; /* plain; in the message or in the decoder */

    /* What waits for group commit, and what became of it. */
    struct record record;
    struct bytes payload;
    struct commit_request request;
    struct status result;
};

static bool answer_here(struct call *call, void *state, const struct message *message);
static void on_message(struct call *call, void *state, const struct message *message);
static bool take_request(struct write_state *write,
                         const struct message *message,
                         struct status *status);
static bool begin(struct write_state *write,
                  const struct write_request *request,
                  struct status *status);
static bool check_next(const struct write_state *write,
                       const struct write_request *request,
                       struct status *status);
static void on_half_close(struct call *call, void *state);
static void go_on(struct call *call, void *state);
static void turn(struct write_state *write);
static bool open_upload(struct write_state *write, struct status *status);
static void wake(struct upload_stream *stream);

enum taken { TAKEN, TAKEN_NEEDS_BUFFER, TAKEN_FAILED };
static enum taken take_data(struct write_state *write, struct status *status);
static bool fetch(struct write_state *write, struct status *status);
static bool fetch_decoded(struct write_state *write, struct status *status);
static enum taken append(struct write_state *write, struct status *status);

static void finish(struct write_state *write);
static void finish_large(struct write_state *write);
static void finish_small(struct write_state *write);
static bool is_whole_in_one_message(const struct write_state *write);
static void finish_whole(struct write_state *write);
static void commit_small(struct write_state *write, struct bytes_list payload);
static void submit(struct write_state *write, enum lane lane, struct record *record);
static void commit_done(struct ack *ack, const struct status *result);
static void committed(struct call *call, void *state);

static bool is_there(struct write_state *write);
static void was_there(struct write_state *write);
static void copies_awaited(struct ack *ack, const struct status *result);
static void await_ended(struct call *call, void *state);
static void answer_early(struct write_state *write);
static void answer(struct write_state *write, int64_t committed_size);
static void fail(struct write_state *write,
                 enum upload_outcome outcome,
                 const struct status *status);
static void on_free(struct call *call, void *state);

const struct method rpc_write = {
    .path = "/google.bytestream.ByteStream/Write",
    .kind = METHOD_CLIENT_STREAM,
    .role = ROLE_WRITE_CAS,
    .writes = true,
    .has_instance = true,
    .state_bytes = sizeof(struct write_state),
    .answer_here = answer_here,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_free = on_free,
};

/* ---- what the client sends */

/* A blob of a few KiB, whole: hashing it takes less than the way to a worker. */
static bool answer_here(struct call *call, void *state, const struct message *message)
{
    struct write_state *const write = state;
    struct status status;
    if (write->begun)
        return false;
    write->call = call;
    if (!take_request(write, message, &status) || !is_whole_in_one_message(write)) {
        *write = (struct write_state){0};
        return false;
    }
    go_on(call, write);
    return true;
}

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct write_state *const write = state;
    struct status status;
    write->call = call;
    if (take_request(write, message, &status))
        go_on(call, write);
    else
        fail(write, UPLOAD_KEEP, &status);
}

static bool take_request(struct write_state *write,
                         const struct message *message,
                         struct status *status)
{
    struct write_request request;
    struct arena scratch;
    arena_init(&scratch, SCRATCH_BYTES_MAX);
    bool ok = write_request_decode(message->parts, &scratch, &request, status);
    if (ok)
        ok = write->begun ? check_next(write, &request, status) : begin(write, &request, status);
    arena_destroy(&scratch);
    if (!ok)
        return false;
    write->rest = request.data;
    write->finishes = request.finish_write;
    write->next_offset += request.data.length;
    return true;
}

static bool begin(struct write_state *write,
                  const struct write_request *request,
                  struct status *status)
{
    struct bytes text = request->resource_name;
    if (text.length <= LIMIT_RESOURCE_NAME_BYTES) {
        char *const copy = arena_copy_string(call_arena(write->call), text);
        if (!copy)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a resource name");
        text = bytes_of(copy, text.length);
    } /* else the parser refuses it */
    if (!resource_name_parse_write(text, &write->name, status) ||
        !call_check_instance(write->call, write->name.instance, status) ||
        !blob_digest_check(write->call, &write->name.digest, status))
        return false;
    if (request->write_offset < 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "write_offset %" PRId64 " is below 0",
                           request->write_offset);
    write->text = text;
    write->first_offset = (uint64_t)request->write_offset;
    write->next_offset = write->first_offset;
    write->begun = true;
    return true;
}

static bool check_next(const struct write_state *write,
                       const struct write_request *request,
                       struct status *status)
{
    if (request->resource_name.length > 0 && !bytes_equal(request->resource_name, write->text))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "a later message of an upload has another resource name than the first");
    if ((uint64_t)request->write_offset != write->next_offset)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "write_offset is %" PRId64
                           ", but with what was sent before it is %" PRIu64,
                           request->write_offset, write->next_offset);
    return true;
}

static void on_half_close(struct call *call, void *state)
{
    struct write_state *const write = state;
    struct status status;
    write->call = call;
    if (!write->begun) {
        status_fail(&status, STATUS_INVALID_ARGUMENT, "a write without any message");
    } else if (is_there(write)) {
        was_there(write);
        return;
    } else {
        char text[DIGEST_TEXT_BYTES_MAX];
        status_fail(&status, STATUS_INVALID_ARGUMENT,
                    "upload of %s ended without finish_write after %" PRIu64 " of %" PRId64
                    " bytes%s; resume with QueryWriteStatus",
                    digest_text(&write->name.digest, text), write->next_offset,
                    write->name.digest.size_bytes,
                    write->name.compressor == COMPRESSOR_IDENTITY ? "" : " (compressed)");
    }
    fail(write, UPLOAD_KEEP, &status);
}

/* ---- turns */

/* With a message of which something is left, or which finishes the upload. After every wait too. */
static void go_on(struct call *call, void *state)
{
    struct write_state *const write = state;
    struct status status;
    if (call_cancelled(call)) {
        status_fail(&status, STATUS_CANCELLED, "the client has cancelled the upload");
        fail(write, UPLOAD_KEEP, &status);
    } else if (is_there(write)) {
        was_there(write);
    } else if (is_whole_in_one_message(write)) {
        finish_whole(write);
    } else if (!write->opened && !open_upload(write, &status)) {
        fail(write, UPLOAD_KEEP, &status);
    } else {
        turn(write);
    }
}

static bool open_upload(struct write_state *write, struct status *status)
{
    write->stream.wake = wake;
    write->opened = upload_open(call_server(write->call)->uploads, &write->name,
                                write->first_offset, &write->stream, status);
    return write->opened;
}

static void wake(struct upload_stream *stream)
{
    struct write_state *const write = CONTAINER_OF(stream, struct write_state, stream);
    call_wake(write->call);
}

static void turn(struct write_state *write)
{
    struct status status;
    switch (upload_enter(&write->stream, &status)) {
    case UPLOAD_ENTERED:
        break;
    case UPLOAD_WAIT:
        call_park(write->call, go_on);
        return;
    case UPLOAD_LOST:
        fail(write, UPLOAD_KEEP, &status);
        return;
    }
    if (!write->placed) {
        /* A resumed upload may begin before the end of what is held; the hash tells if the two don't fit. */
        ASSERT(upload_held_bytes(&write->stream) >= write->first_offset);
        write->skip_bytes = upload_held_bytes(&write->stream) - write->first_offset;
        write->placed = true;
    }
    switch (take_data(write, &status)) {
    case TAKEN:
        if (write->finishes) {
            finish(write);
        } else {
            upload_leave(&write->stream);
            call_receive(write->call);
        }
        return;
    case TAKEN_NEEDS_BUFFER:
        upload_leave(&write->stream);
        call_park(write->call, go_on);
        return;
    case TAKEN_FAILED:
        fail(write, UPLOAD_DROP, &status);
        return;
    }
}

/* ---- taking in what the message holds; inside the upload */

static enum taken take_data(struct write_state *write, struct status *status)
{
    for (;;) {
        if (write->data.length == 0 && !fetch(write, status))
            return TAKEN_FAILED;
        if (write->data.length == 0)
            return TAKEN;
        const enum taken taken = append(write, status);
        if (taken != TAKEN)
            return taken;
        write->data = bytes_of(NULL, 0);
    }
}

/* The next plain bytes to data; none when the message is used up. */
static bool fetch(struct write_state *write, struct status *status)
{
    if (write->name.compressor != COMPRESSOR_IDENTITY)
        return fetch_decoded(write, status);
    do {
        struct bytes piece = wire_span_next(&write->rest);
        const size_t skip =
            piece.length < write->skip_bytes ? piece.length : (size_t)write->skip_bytes;
        write->skip_bytes -= skip;
        write->data = bytes_of(skip > 0 ? piece.data + skip : piece.data, piece.length - skip);
    } while (write->data.length == 0 && write->rest.length > 0);
    return true;
}

static bool fetch_decoded(struct write_state *write, struct status *status)
{
    if (!write->decoder &&
        !zstd_decoder_new(upload_table_zstd_budget(call_server(write->call)->uploads),
                          (uint64_t)write->name.digest.size_bytes, &write->decoder, status))
        return false;
    for (;;) {
        if (!zstd_decoder_next(write->decoder, &write->encoded, &write->data, status)) {
            char text[DIGEST_TEXT_BYTES_MAX];
            status_prefix(status, "upload of %s", digest_text(&write->name.digest, text));
            return false;
        }
        if (write->data.length > 0)
            return true;
        write->encoded = wire_span_next(&write->rest);
        if (write->encoded.length == 0)
            return true;
    }
}

static enum taken append(struct write_state *write, struct status *status)
{
    struct blob_writer *const writer = upload_writer(&write->stream);
    if (!writer)
        return upload_small_append(&write->stream, write->data, status) ? TAKEN : TAKEN_FAILED;
    if (blob_writer_needs_buffer(writer)) {
        struct buffer *const buffer =
            buffer_wait_take(&write->wait, write->call, call_server(write->call)->buffers);
        if (!buffer)
            return TAKEN_NEEDS_BUFFER;
        blob_writer_give_buffer(writer, buffer);
    }
    return blob_writer_append(writer, write->data, status) ? TAKEN : TAKEN_FAILED;
}

/* ---- the end of an upload */

static void finish(struct write_state *write)
{
    struct status status;
    if (write->decoder && !zstd_decoder_finish(write->decoder, &status))
        fail(write, UPLOAD_DROP, &status);
    else if (upload_writer(&write->stream))
        finish_large(write);
    else
        finish_small(write);
}

static void finish_large(struct write_state *write)
{
    struct status status;
    struct record *record;
    enum lane lane;
    if (!blob_writer_finish(upload_writer(&write->stream), &record, &lane, &status)) {
        fail(write, UPLOAD_DROP, &status);
        return;
    }
    upload_committing(&write->stream);
    submit(write, lane, record);
}

static void finish_small(struct write_state *write)
{
    write->payload = upload_small_bytes(&write->stream);
    commit_small(write, (struct bytes_list){.parts = &write->payload, .count = 1});
}

static bool is_whole_in_one_message(const struct write_state *write)
{
    return !write->opened && write->finishes && write->first_offset == 0 &&
           write->name.compressor == COMPRESSOR_IDENTITY &&
           (uint64_t)write->name.digest.size_bytes <= LIMIT_SMALL_BLOB_BYTES;
}

/* From where it was received: that stays until the call has ended. */
static void finish_whole(struct write_state *write)
{
    struct status status;
    struct wire_span rest = write->rest;
    const size_t count = wire_span_pieces(rest);
    struct bytes *const parts = arena_take_zeroed(call_arena(write->call), count, sizeof(*parts));
    if (!parts) {
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "the message is in too many pieces");
        fail(write, UPLOAD_DROP, &status);
        return;
    }
    for (size_t i = 0; i < count; i++)
        parts[i] = wire_span_next(&rest);
    commit_small(write, (struct bytes_list){.parts = parts, .count = count});
}

static void commit_small(struct write_state *write, struct bytes_list payload)
{
    const struct digest *const digest = &write->name.digest;
    struct commit *const commit =
        durability_commit(call_server(write->call)->durability, LANE_SMALL);
    struct digest found;
    char text[DIGEST_TEXT_BYTES_MAX];
    char found_text[DIGEST_TEXT_BYTES_MAX];

    /* So that a round which is about to begin has this one along. */
    commit_expect(commit, 1);
    digest_of_list((enum digest_function)digest->function, payload, &found);
    const bool right = digest_equal(&found, digest);
    if (right) {
        write->record = (struct record){.kind = RECORD_BLOB,
                                        .digest = *digest,
                                        .payload = payload,
                                        .payload_bytes = (uint64_t)digest->size_bytes,
                                        .payload_crc32c = crc32c_list(0, payload)};
    }
    commit_expect(commit, -1);
    if (right) {
        submit(write, LANE_SMALL, &write->record);
        return;
    }
    struct status status;
    status_fail(&status, STATUS_INVALID_ARGUMENT, "blob %s: the bytes sent have the digest %s",
                digest_text(digest, text), digest_text(&found, found_text));
    fail(write, UPLOAD_DROP, &status);
}

/* The turn is group commit's until it resumes the call. */
static void submit(struct write_state *write, enum lane lane, struct record *record)
{
    struct durability *const durability = call_server(write->call)->durability;
    write->request = (struct commit_request){.record = record, .ack.done = commit_done};
    call_commit_begins(write->call);
    commit_submit(durability_commit(durability, lane), &write->request);
}

/* On the ack thread, which answers by itself: that takes less than waking a worker. */
static void commit_done(struct ack *ack, const struct status *result)
{
    struct write_state *const write = CONTAINER_OF(ack, struct write_state, request.ack);
    write->result = *result;
    committed(write->call, write);
}

static void committed(struct call *call, void *state)
{
    struct write_state *const write = state;
    if (write->result.code != STATUS_OK) {
        fail(write, UPLOAD_DROP, &write->result);
        return;
    }
    /* What was compressed: so many bytes as came. Newest siso alone compares it with the blob's size (docs/protocol.md, decision 1). */
    const bool plain = write->name.compressor == COMPRESSOR_IDENTITY ||
                       bytes_equal_string(call_tool_name(call), "siso");
    answer(write, plain ? write->name.digest.size_bytes : (int64_t)write->next_offset);
}

/* ---- answers */

static bool is_there(struct write_state *write)
{
    return store_has_blob(call_server(write->call)->store, &write->name.digest);
}

/* What is there may not be on as many other nodes yet as it should. */
static void was_there(struct write_state *write)
{
    struct durability *const durability = call_server(write->call)->durability;
    write->request.ack.done = copies_awaited;
    call_commit_begins(write->call);
    if (!copies_await_blob(durability_copies(durability), &write->name.digest, &write->request.ack))
        answer_early(write);
}

static void copies_awaited(struct ack *ack, const struct status *result)
{
    struct write_state *const write = CONTAINER_OF(ack, struct write_state, request.ack);
    write->result = *result;
    await_ended(write->call, write);
}

static void await_ended(struct call *call, void *state)
{
    struct write_state *const write = state;
    (void)call;
    if (write->result.code == STATUS_OK)
        answer_early(write);
    else
        fail(write, UPLOAD_KEEP, &write->result);
}

static void answer_early(struct write_state *write)
{
    metrics_add(call_server(write->call)->metrics, METRIC_UPLOADS_EARLY, 1);
    answer(write,
           write->name.compressor == COMPRESSOR_IDENTITY ? write->name.digest.size_bytes : -1);
}

static void answer(struct write_state *write, int64_t committed_size)
{
    uint8_t response[SMALL_RESPONSE_BYTES_MAX];
    const size_t length = write_response_put(response, committed_size);
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)response, length);
    upload_close(&write->stream, UPLOAD_STORED);
    call_reply(write->call, &slice, 1);
}

static void fail(struct write_state *write,
                 enum upload_outcome outcome,
                 const struct status *status)
{
    upload_close(&write->stream, outcome);
    call_fail(write->call, status);
}

/* Also of a client that just went away: what it sent is kept. */
static void on_free(struct call *call, void *state)
{
    (void)call;
    struct write_state *const write = state;
    upload_close(&write->stream, UPLOAD_KEEP);
    buffer_wait_end(&write->wait);
    zstd_decoder_free(write->decoder);
}
