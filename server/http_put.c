/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_put.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/limits.h"
#include "client/uuid.h"
#include "server/action_time.h"
#include "server/byte_stream.h"
#include "server/completeness.h"
#include "server/http_request.h"
#include "server/server.h"
#include "server/writer.h"
#include "server/zstd_stream.h"
#include "store/find.h"

/* What stands in place of a value that is a blob: no ActionResult begins with this byte. */
static const char pointer_magic[] = "\007varve blob ";

static bool fail(struct http_request *request, enum status_code code, const char *text);
static bool begin_upload(struct http_request *request);
static enum http_turn take_plain(struct http_request *request, struct bytes data);
static enum http_turn take_compressed(struct http_request *request, struct bytes data);
static enum http_turn enter(struct http_request *request);
static struct buffer *take_buffer(struct http_request *request);
static void wake_upload(struct upload_stream *stream);
static void buffer_came(struct buffer_waiter *waiter, struct buffer *buffer);
static enum http_turn finish_upload(struct http_request *request);
static enum http_turn finish_check(struct http_request *request);
static enum http_turn finish_spool(struct http_request *request);
static bool is_value(const struct http_request *request);

static struct store *store_of(const struct http_request *request)
{
    return http_server(request)->store;
}

/* One that is not on as many other nodes yet as it should be is stored once more, and waits for them. */
static bool has_blob(const struct http_request *request, const struct digest *digest)
{
    return store_has_blob(store_of(request), digest) &&
           copies_cover_blob(durability_copies(http_server(request)->durability), digest);
}

/* ---- the headers */

static bool check_headers(struct http_request *request, uint64_t *length, bool *has_length)
{
    const struct bytes text = http_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const struct bytes coding = http_header(request, MHD_HTTP_HEADER_CONTENT_ENCODING);
    const uint64_t blob_bytes_max = http_server(request)->config->max_blob_bytes;
    struct http_put *const put = &request->put;
    *has_length = text.length > 0;
    *length = 0;
    if (*has_length && !http_length_parse(text, length))
        return fail(request, STATUS_INVALID_ARGUMENT, "Content-Length is no number");
    if (*length > blob_bytes_max) {
        request->failed_code = MHD_HTTP_CONTENT_TOO_LARGE;
        status_fail(&request->status, STATUS_OUT_OF_RANGE,
                    "%" PRIu64 " bytes are more than the %" PRIu64 " that are taken here", *length,
                    blob_bytes_max);
        return false;
    }
    if (http_header(request, MHD_HTTP_HEADER_CONTENT_RANGE).length > 0)
        return fail(request, STATUS_INVALID_ARGUMENT, "a part of something is not taken");
    if (coding.length == 0 || bytes_equal_string(coding, "identity"))
        return true;
    if (!bytes_equal_string(coding, "zstd")) {
        request->failed_code = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
        return fail(request, STATUS_INVALID_ARGUMENT,
                    "Content-Encoding is neither zstd nor identity");
    }
    *has_length = false; /* of what it decodes to */
    return zstd_decoder_new(upload_table_zstd_budget(http_server(request)->uploads), blob_bytes_max,
                            &put->decoder, &request->status);
}

static uint64_t spool_bytes_max(const struct http_request *request)
{
    const uint64_t blob_bytes_max = http_server(request)->config->max_blob_bytes;
    if (request->place == HTTP_PLACE_AC &&
        !config_is_opaque(http_server(request)->config, request->instance))
        return LIMIT_ACTION_RESULT_BYTES;
    return blob_bytes_max < LIMIT_HTTP_SPOOL_BYTES ? blob_bytes_max : LIMIT_HTTP_SPOOL_BYTES;
}

enum http_turn http_put_begin(struct http_request *request, bool *is_there)
{
    struct http_put *const put = &request->put;
    uint64_t length;
    bool has_length;
    *is_there = false;
    if (!check_headers(request, &length, &has_length))
        return HTTP_FAILED;
    if (request->place == HTTP_PLACE_CAS) {
        struct digest known = request->digest;
        const bool there = store_find_size(store_of(request), &known) && has_blob(request, &known);
        if (there && has_length && length != (uint64_t)known.size_bytes) {
            fail(request, STATUS_INVALID_ARGUMENT, "the blob of this hash has another length");
            return HTTP_FAILED;
        }
        if (there) {
            request->digest = known;
            put->sink = HTTP_SINK_CHECK;
            put->hasher = hasher_new(DIGEST_FUNCTION_SHA256);
            *is_there = has_length;
            return HTTP_GO_ON;
        }
        request->digest.size_bytes = (int64_t)length;
        if (has_length)
            return begin_upload(request) ? HTTP_GO_ON : HTTP_FAILED;
        request->digest.size_bytes = 0;
    }
    if (has_length && length > spool_bytes_max(request)) {
        request->failed_code = MHD_HTTP_CONTENT_TOO_LARGE;
        status_fail(&request->status, STATUS_OUT_OF_RANGE,
                    "%" PRIu64 " bytes are more than the %" PRIu64 " that are taken here", length,
                    spool_bytes_max(request));
        return HTTP_FAILED;
    }
    put->sink = HTTP_SINK_SPOOL;
    http_spool_init(&put->spool, http_spools(request), spool_bytes_max(request));
    return HTTP_GO_ON;
}

static bool fail(struct http_request *request, enum status_code code, const char *text)
{
    return status_fail(&request->status, code, "%s", text);
}

/* An upload as any other, but that nobody can resume it: its name is its own. */
static bool begin_upload(struct http_request *request)
{
    struct http_put *const put = &request->put;
    char uuid[UUID_TEXT_BYTES];
    uuid_random(uuid);
    const struct resource_name name = {.instance = request->instance,
                                       .uuid = bytes_of_string(uuid),
                                       .compressor = COMPRESSOR_IDENTITY,
                                       .digest = request->digest};
    if (request->digest.size_bytes == 0)
        return fail(request, STATUS_INVALID_ARGUMENT, "nothing, of length 0, has another hash");
    put->sink = HTTP_SINK_UPLOAD;
    put->stream.wake = wake_upload;
    put->opened =
        upload_open(http_server(request)->uploads, &name, 0, &put->stream, &request->status);
    return put->opened;
}

static void wake_upload(struct upload_stream *stream)
{
    http_nudge(CONTAINER_OF(stream, struct http_request, put.stream));
}

/* ---- the body */

enum http_turn http_put_take(struct http_request *request, struct bytes data)
{
    struct http_put *const put = &request->put;
    enum http_turn turn;
    if (put->sink == HTTP_SINK_NONE)
        return HTTP_GO_ON;
    if (put->decoder != NULL)
        turn = take_compressed(request, data);
    else
        turn = take_plain(request, data);
    if (turn == HTTP_GO_ON)
        put->received_bytes += data.length;
    return turn;
}

static enum http_turn take_compressed(struct http_request *request, struct bytes data)
{
    struct http_put *const put = &request->put;
    ASSERT(put->sink != HTTP_SINK_UPLOAD); /* which may have to wait in the middle */
    for (;;) {
        struct bytes plain;
        if (!zstd_decoder_next(put->decoder, &data, &plain, &request->status))
            return HTTP_FAILED;
        if (plain.length == 0)
            return HTTP_GO_ON;
        const enum http_turn turn = take_plain(request, plain);
        if (turn != HTTP_GO_ON)
            return turn;
    }
}

static enum http_turn take_plain(struct http_request *request, struct bytes data)
{
    struct http_put *const put = &request->put;
    switch (put->sink) {
    case HTTP_SINK_NONE:
        return HTTP_GO_ON;
    case HTTP_SINK_CHECK:
        hasher_update(put->hasher, data);
        return HTTP_GO_ON;
    case HTTP_SINK_SPOOL:
        return http_spool_append(&put->spool, data, &request->status) ? HTTP_GO_ON : HTTP_FAILED;
    case HTTP_SINK_UPLOAD:
        break;
    }
    const enum http_turn turn = enter(request);
    if (turn != HTTP_GO_ON || put->sink == HTTP_SINK_NONE)
        return turn;
    struct blob_writer *const writer = upload_writer(&put->stream);
    bool ok = true;
    if (writer != NULL && blob_writer_needs_buffer(writer)) {
        struct buffer *const buffer = take_buffer(request);
        if (buffer == NULL) {
            upload_leave(&put->stream);
            if (http_park(request))
                return HTTP_WAITS;
            return take_plain(request, data);
        }
        blob_writer_give_buffer(writer, buffer);
    }
    ok = writer != NULL ? blob_writer_append(writer, data, &request->status)
                        : upload_small_append(&put->stream, data, &request->status);
    upload_leave(&put->stream);
    return ok ? HTTP_GO_ON : HTTP_FAILED;
}

/* Inside of the upload, or the blob has come by another way and there is none any more. */
static enum http_turn enter(struct http_request *request)
{
    struct http_put *const put = &request->put;
    for (;;) {
        if (http_is_stopping(request)) {
            fail(request, STATUS_UNAVAILABLE, "the server is stopping");
            return HTTP_FAILED;
        }
        if (has_blob(request, &request->digest)) {
            upload_close(&put->stream, UPLOAD_STORED);
            put->opened = false;
            put->sink = HTTP_SINK_NONE;
            return HTTP_GO_ON;
        }
        switch (upload_enter(&put->stream, &request->status)) {
        case UPLOAD_ENTERED:
            return HTTP_GO_ON;
        case UPLOAD_WAIT:
            break;
        case UPLOAD_LOST:
            return HTTP_FAILED;
        }
        if (http_park(request))
            return HTTP_WAITS;
    }
}

/* NULL: it is waited for, and has not come yet. */
static struct buffer *take_buffer(struct http_request *request)
{
    struct http_put *const put = &request->put;
    lock_acquire(&request->lock);
    struct buffer *buffer = put->came;
    put->came = NULL;
    lock_release(&request->lock);
    if (buffer != NULL) {
        put->waiting = false;
        return buffer;
    }
    if (put->waiting)
        return NULL;
    put->waiter.ready = buffer_came;
    put->waiting = true;
    buffer = buffer_pool_take(http_server(request)->buffers, &put->waiter);
    put->waiting = buffer == NULL;
    return buffer;
}

static void buffer_came(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct http_request *const request = CONTAINER_OF(waiter, struct http_request, put.waiter);
    struct http_put *const put = &request->put;
    lock_acquire(&request->lock);
    put->came = buffer;
    lock_release(&request->lock);
    if (put->step == PUT_STORING_BLOB)
        workers_submit(http_server(request)->workers, &put->task);
    else
        http_nudge(request);
}

/* ---- the end */

enum http_turn http_put_finish(struct http_request *request)
{
    struct http_put *const put = &request->put;
    if (put->step == PUT_BEGIN && put->decoder != NULL && put->sink != HTTP_SINK_NONE &&
        !zstd_decoder_finish(put->decoder, &request->status))
        return HTTP_FAILED;
    switch (put->sink) {
    case HTTP_SINK_NONE:
        return HTTP_GO_ON;
    case HTTP_SINK_CHECK:
        return finish_check(request);
    case HTTP_SINK_UPLOAD:
        return finish_upload(request);
    case HTTP_SINK_SPOOL:
        return finish_spool(request);
    }
    ASSERT(false);
    return HTTP_FAILED;
}

static bool check_hash(struct http_request *request, const struct digest *found)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    char hex[DIGEST_HASH_HEX_MAX + 1];
    return memcmp(found->hash, request->digest.hash, sizeof(found->hash)) == 0 ||
           status_fail(&request->status, STATUS_INVALID_ARGUMENT,
                       "blob %s: the bytes sent have the digest %s",
                       digest_hex(&request->digest, hex), digest_text(found, text));
}

static enum http_turn finish_check(struct http_request *request)
{
    struct digest found;
    hasher_finish(request->put.hasher, &found);
    return check_hash(request, &found) ? HTTP_GO_ON : HTTP_FAILED;
}

/* ---- commits */

static void committed(struct ack *ack, const struct status *result);
static void may_claim(struct flight_waiter *waiter);
static void end_flight(struct http_request *request);

/* HTTP_WAITS, or HTTP_GO_ON when it is done already. */
static enum http_turn submit(struct http_request *request,
                             enum http_put_step step,
                             enum lane lane,
                             struct record *record)
{
    struct http_put *const put = &request->put;
    if (!http_busy(request)) {
        fail(request, STATUS_UNAVAILABLE, "the server is stopping");
        return HTTP_FAILED;
    }
    put->step = step;
    put->commit = (struct commit_request){.record = record, .ack.done = committed};
    if (step == PUT_COMMIT_ACTION)
        put->commit.instance = request->instance;
    commit_submit(durability_commit(http_server(request)->durability, lane), &put->commit);
    return http_park(request) ? HTTP_WAITS : HTTP_GO_ON;
}

static void committed(struct ack *ack, const struct status *result)
{
    struct http_request *const request = CONTAINER_OF(ack, struct http_request, put.commit.ack);
    request->put.result = *result;
    end_flight(request);
    http_wake(request);
}

static bool commit_ok(struct http_request *request)
{
    if (request->put.result.code == STATUS_OK)
        return true;
    request->status = request->put.result;
    return false;
}

/* ---- a blob of known size */

static enum http_turn finish_upload(struct http_request *request)
{
    struct http_put *const put = &request->put;
    struct record *record;
    enum lane lane = LANE_SMALL;
    if (put->step == PUT_COMMIT_BLOB) {
        const bool ok = commit_ok(request);
        upload_close(&put->stream, ok ? UPLOAD_STORED : UPLOAD_DROP);
        put->opened = false;
        return ok ? HTTP_GO_ON : HTTP_FAILED;
    }
    const enum http_turn turn = enter(request);
    if (turn != HTTP_GO_ON || put->sink == HTTP_SINK_NONE)
        return turn;
    if (upload_writer(&put->stream) != NULL) {
        if (!blob_writer_finish(upload_writer(&put->stream), &record, &lane, &request->status))
            return HTTP_FAILED;
        upload_committing(&put->stream);
    } else {
        struct digest found;
        put->blob_payload = upload_small_bytes(&put->stream);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, put->blob_payload, &found);
        if (!check_hash(request, &found))
            return HTTP_FAILED;
        if (found.size_bytes != request->digest.size_bytes) {
            fail(request, STATUS_INVALID_ARGUMENT, "fewer bytes came than Content-Length says");
            return HTTP_FAILED;
        }
        put->record = (struct record){.kind = RECORD_BLOB,
                                      .digest = found,
                                      .payload = {.parts = &put->blob_payload, .count = 1},
                                      .payload_bytes = put->blob_payload.length,
                                      .payload_crc32c = crc32c(0, put->blob_payload)};
        record = &put->record;
    }
    const enum http_turn submitted = submit(request, PUT_COMMIT_BLOB, lane, record);
    return submitted == HTTP_GO_ON ? finish_upload(request) : submitted;
}

/* ---- what was spooled */

static bool is_value(const struct http_request *request)
{
    return request->place != HTTP_PLACE_CAS;
}

bool http_value_names_blob(struct bytes value, struct digest *blob)
{
    struct status ignored;
    const size_t magic = sizeof(pointer_magic) - 1;
    return value.length > magic && memcmp(value.data, pointer_magic, magic) == 0 &&
           digest_parse_text(bytes_of(value.data + magic, value.length - magic), blob, &ignored);
}

/* It stands in the record of the action result itself. */
static bool is_small_value(const struct http_request *request)
{
    const struct http_spool *const spool = &request->put.spool;
    return http_spool_is_small(spool) && spool->length <= LIMIT_ACTION_RESULT_BYTES &&
           (spool->length == 0 || spool->memory.data[0] != (uint8_t)pointer_magic[0]);
}

static bool check_action_result(struct http_request *request)
{
    struct arena arena;
    if (request->place != HTTP_PLACE_AC ||
        config_is_opaque(http_server(request)->config, request->instance))
        return true;
    const struct bytes result =
        bytes_of(request->put.spool.memory.data, request->put.spool.memory.length);
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    const bool ok = action_result_check(result, DIGEST_FUNCTION_SHA256, &arena, &request->status);
    arena_destroy(&arena);
    if (!ok && request->status.code == STATUS_INVALID_ARGUMENT)
        status_prefix(&request->status,
                      "no ActionResult (--http-opaque names instances that take other values)");
    return ok;
}

static enum http_turn commit_action(struct http_request *request);

/* Of two that write one action at once one waits for the other, and is later (server/rpc_update_action_result.c). */
static enum http_turn claim_action(struct http_request *request)
{
    struct http_put *const put = &request->put;
    const struct server *const server = http_server(request);
    const struct blob_key key =
        blob_table_action_key(server->store->table, &request->digest, request->instance);
    put->step = PUT_CLAIM_ACTION;
    put->flight_waiter.ready = may_claim;
    do {
        if (!http_busy(request)) {
            fail(request, STATUS_UNAVAILABLE, "the server is stopping");
            return HTTP_FAILED;
        }
        put->flying = flights_begin(server->flights, key, &put->flight, &put->flight_waiter);
        if (put->flying)
            return commit_action(request);
    } while (!http_park(request));
    return HTTP_WAITS;
}

/* On the thread of whoever was before. */
static void may_claim(struct flight_waiter *waiter)
{
    http_wake(CONTAINER_OF(waiter, struct http_request, put.flight_waiter));
}

static void end_flight(struct http_request *request)
{
    if (request->put.flying)
        flights_end(http_server(request)->flights, &request->put.flight);
    request->put.flying = false;
}

static enum http_turn commit_action(struct http_request *request)
{
    struct http_put *const put = &request->put;
    const struct server *const server = http_server(request);
    const size_t writer_bytes =
        writer_put(put->writer_text, bytes_of_string("http"), &request->caller, request->peer);
    const struct action_record record = {
        .written_wall_ns =
            action_time_of_writing(server->store, &request->digest, request->instance),
        .node_uid = server->store->node_uid,
        .instance = request->instance,
        .writer = bytes_of(put->writer_text, writer_bytes),
        .result = put->value,
    };
    action_record_fixed_put(put->fixed, &record);
    put->payload[0] = bytes_of(put->fixed, sizeof(put->fixed));
    put->payload[1] = record.instance;
    put->payload[2] = record.writer;
    put->payload[3] = put->value;
    const struct bytes_list payload = {.parts = put->payload, .count = ARRAY_LENGTH(put->payload)};
    put->record = (struct record){.kind = RECORD_ACTION,
                                  .digest = request->digest,
                                  .payload = payload,
                                  .payload_bytes = bytes_list_length(payload),
                                  .payload_crc32c = crc32c_list(0, payload)};
    const enum http_turn turn = submit(request, PUT_COMMIT_ACTION, LANE_SMALL, &put->record);
    return turn == HTTP_GO_ON ? finish_spool(request) : turn;
}

static void store_piece(struct task *task);

static enum http_turn store_blob(struct http_request *request)
{
    struct http_put *const put = &request->put;
    if (has_blob(request, &put->blob)) {
        put->step = PUT_COMMIT_BLOB;
        return finish_spool(request);
    }
    if (!blob_writer_new(store_of(request), &put->blob, &put->writer, &request->status))
        return HTTP_FAILED;
    if (!http_busy(request)) {
        fail(request, STATUS_UNAVAILABLE, "the server is stopping");
        return HTTP_FAILED;
    }
    put->step = PUT_STORING_BLOB;
    put->task.run = store_piece;
    workers_submit(http_server(request)->workers, &put->task);
    return http_park(request) ? HTTP_WAITS : finish_spool(request);
}

/* On a worker: a chunk, and then again, so that others have their turn. The request is woken by the commit, or by a failure. */
static void store_piece(struct task *task)
{
    struct http_request *const request = CONTAINER_OF(task, struct http_request, put.task);
    struct http_put *const put = &request->put;
    struct record *record;
    enum lane lane;
    if (blob_writer_needs_buffer(put->writer)) {
        struct buffer *const buffer = take_buffer(request);
        if (buffer == NULL)
            return; /* buffer_came() goes on */
        blob_writer_give_buffer(put->writer, buffer);
    }
    bool ok = true;
    if (put->stored_bytes < put->spool.length) {
        size_t room;
        uint8_t *const to = blob_writer_space(put->writer, &room);
        ok = http_spool_read(&put->spool, put->stored_bytes, to, room, &put->result) &&
             blob_writer_filled(put->writer, room, &put->result);
        put->stored_bytes += room;
        if (ok && put->stored_bytes < put->spool.length) {
            workers_submit(http_server(request)->workers, &put->task);
            return;
        }
    }
    if (!ok || !blob_writer_finish(put->writer, &record, &lane, &put->result)) {
        http_wake(request);
        return;
    }
    put->commit = (struct commit_request){.record = record, .ack.done = committed};
    commit_submit(durability_commit(http_server(request)->durability, lane), &put->commit);
}

static enum http_turn finish_spool(struct http_request *request)
{
    struct http_put *const put = &request->put;
    switch (put->step) {
    case PUT_BEGIN:
        http_spool_digest(&put->spool, &put->blob);
        if (!is_value(request)) {
            if (!check_hash(request, &put->blob))
                return HTTP_FAILED;
            request->digest = put->blob;
            return store_blob(request);
        }
        if (!check_action_result(request))
            return HTTP_FAILED;
        if (!is_small_value(request))
            return store_blob(request);
        put->value = bytes_of(put->spool.memory.data, put->spool.memory.length);
        return claim_action(request);
    case PUT_STORING_BLOB:
        if (!commit_ok(request))
            return HTTP_FAILED;
        /* Its blob is on disk. */
        /* fallthrough */
    case PUT_COMMIT_BLOB: {
        if (!is_value(request)) {
            put->step = PUT_DONE;
            return HTTP_GO_ON;
        }
        char text[DIGEST_TEXT_BYTES_MAX];
        snprintf(put->pointer, sizeof(put->pointer), "%s%s", pointer_magic,
                 digest_text(&put->blob, text));
        put->value = bytes_of_string(put->pointer);
        return claim_action(request);
    }
    case PUT_CLAIM_ACTION:
        return claim_action(request);
    case PUT_COMMIT_ACTION:
        if (!commit_ok(request))
            return HTTP_FAILED;
        put->step = PUT_DONE;
        return HTTP_GO_ON;
    case PUT_DONE:
        return HTTP_GO_ON;
    }
    ASSERT(false);
    return HTTP_FAILED;
}

/* Nothing of it is on its way to others any more: whoever works on it has woken the request. */
void http_put_clear(struct http_request *request)
{
    struct http_put *const put = &request->put;
    if (put->waiting && !buffer_pool_cancel(http_server(request)->buffers, &put->waiter)) {
        bool came = false;
        while (!came) { /* somebody is bringing it this moment */
            lock_acquire(&request->lock);
            came = put->came != NULL;
            lock_release(&request->lock);
        }
    }
    buffer_release(put->came);
    end_flight(request);
    if (put->opened)
        upload_close(&put->stream, UPLOAD_DROP);
    blob_writer_free(put->writer);
    hasher_free(put->hasher);
    zstd_decoder_free(put->decoder);
    http_spool_free(&put->spool);
}
