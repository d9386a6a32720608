/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_cache.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "server/completeness.h"
#include "server/http_bucket.h"
#include "server/http_connections.h"
#include "server/http_page.h"
#include "server/server.h"
#include "server/tier.h"
#include "server/whole_blob.h"
#include "server/zstd_blobs.h"
#include "store/blob_reader.h"
#include "store/find.h"

enum {
    BLOCK_BYTES = 128 * 1024, /* given to the library at once */
    COMPRESSED_BYTES_MIN = 1024,
    ETAG_BYTES = DIGEST_HASH_HEX_MAX + 3,
    RANGE_BYTES = 96,
    CHECKS_MAX =
        64, /* of an action result, after each of which up to COMPLETENESS_NAMED_MAX blobs are got */
};

static bool route_key(struct http_request *request, struct status *status);
static enum MHD_Result answer_blob(struct http_request *request, const struct digest *asked);
static enum MHD_Result blob_from_bucket(struct http_request *request,
                                        const struct digest *asked,
                                        const struct digest *digest);
static enum MHD_Result answer_value(struct http_request *request);
static enum MHD_Result answer_dav(struct http_request *request);
static enum MHD_Result fail(struct http_request *request,
                            unsigned int code,
                            enum status_code status_code,
                            const char *text);

/* ---- where the path leads */

bool http_cache_route(struct http_request *request, struct status *status)
{
    struct http_path path;
    bool found;
    const struct config *const config = http_server(request)->config;
    if (!route_key(request, status))
        return false;
    if (request->place == HTTP_PLACE_KEY)
        return true;
    if (!http_path_parse(bytes_of_string(request->url), &path, &found, status))
        return false;
    if (!found)
        return true;
    if (!config_serves_instance(config, path.instance))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "this server does not serve the instance \"%.*s\"; it is told which it "
                           "serves by its option instance",
                           (int)path.instance.length, (const char *)path.instance.data);
    request->place = path.target == HTTP_TARGET_CAS ? HTTP_PLACE_CAS : HTTP_PLACE_AC;
    request->instance = path.instance;
    request->digest = path.digest;
    return true;
}

/* The path of --http-keys that it is below of, the longest. */
static bool route_key(struct http_request *request, struct status *status)
{
    const struct config_list *const names = &http_server(request)->config->http_keys;
    const char *const path = request->url[0] == '/' ? request->url + 1 : request->url;
    for (size_t i = 0; i < names->count; i++) {
        const size_t length = strlen(names->items[i]);
        if (strncmp(path, names->items[i], length) != 0 ||
            (path[length] != '/' && path[length] != '\0') || length < request->instance.length)
            continue;
        request->place = HTTP_PLACE_KEY;
        request->instance = bytes_of(path, length);
        request->key = bytes_of_string(path + length + (path[length] == '/' ? 1 : 0));
    }
    if (request->place != HTTP_PLACE_KEY)
        return true;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, request->key, &request->digest);
    return request->key.length == 0 || http_key_is_valid(request->key) ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "a key has 1 to %d bytes of UTF-8 without control characters",
                       HTTP_KEY_BYTES_MAX);
}

enum method_role http_cache_role(const struct http_request *request)
{
    switch (request->method) {
    case HTTP_PUT:
        return request->place == HTTP_PLACE_CAS ? ROLE_WRITE_CAS : ROLE_WRITE_AC;
    case HTTP_DELETE:
    case HTTP_MKCOL:
        return ROLE_WRITE_AC;
    case HTTP_GET:
    case HTTP_HEAD:
    case HTTP_PROPFIND:
    case HTTP_OPTIONS:
    case HTTP_OTHER:
        break;
    }
    return ROLE_READ;
}

/* May values be deleted here? Those that nobody else relies on. */
static bool has_values(const struct http_request *request)
{
    return request->place == HTTP_PLACE_KEY ||
           (request->place == HTTP_PLACE_AC &&
            config_is_opaque(http_server(request)->config, request->instance));
}

static bool is_served(const struct http_request *request)
{
    switch (request->method) {
    case HTTP_GET:
    case HTTP_HEAD:
    case HTTP_PUT:
        return request->place != HTTP_PLACE_KEY || request->key.length > 0;
    case HTTP_DELETE:
        return has_values(request);
    case HTTP_PROPFIND:
    case HTTP_MKCOL:
    case HTTP_OPTIONS:
        return request->place == HTTP_PLACE_KEY;
    case HTTP_OTHER:
        break;
    }
    return false;
}

/* ---- the course of a request */

static void note_failure(struct http_request *request)
{
    if (request->failed)
        return;
    request->failed = true;
    if (request->put.opened)
        upload_close(&request->put.stream, UPLOAD_DROP);
    request->put.opened = false;
    request->put.sink = HTTP_SINK_NONE; /* the rest of the body is thrown away */
}

enum MHD_Result http_cache_headers(struct http_request *request)
{
    bool is_there = false;
    if (!is_served(request)) {
        status_fail(&request->status, STATUS_UNIMPLEMENTED, "this method is not for this path");
        request->failed = true;
        return MHD_YES;
    }
    if (request->method != HTTP_PUT)
        return MHD_YES;
    if (http_put_begin(request, &is_there) == HTTP_FAILED)
        note_failure(request);
    else if (is_there && http_header(request, MHD_HTTP_HEADER_EXPECT).length > 0)
        return http_reply_empty(request, MHD_HTTP_OK); /* and the body is never sent */
    return MHD_YES;
}

enum MHD_Result http_cache_body(struct http_request *request, const char *data, size_t *length)
{
    if (request->failed || request->method != HTTP_PUT) {
        *length = 0;
        return MHD_YES;
    }
    switch (http_put_take(request, bytes_of(data, *length))) {
    case HTTP_WAITS:
        return MHD_YES; /* and comes again with the same bytes */
    case HTTP_FAILED:
        note_failure(request);
        break;
    case HTTP_GO_ON:
        metrics_add(http_server(request)->metrics, METRIC_HTTP_RECEIVED, (int64_t)*length);
        request->received_bytes += *length;
        break;
    }
    *length = 0;
    return MHD_YES;
}

enum MHD_Result http_cache_finish(struct http_request *request)
{
    switch (request->method) {
    case HTTP_PUT:
        switch (http_put_finish(request)) {
        case HTTP_WAITS:
            return MHD_YES;
        case HTTP_FAILED:
            note_failure(request);
            return http_reply_failure(request, request->failed_code, &request->status);
        case HTTP_GO_ON:
            break;
        }
        return http_reply_empty(request, MHD_HTTP_OK);
    case HTTP_GET:
    case HTTP_HEAD:
        return request->place == HTTP_PLACE_CAS ? answer_blob(request, &request->digest)
                                                : answer_value(request);
    case HTTP_DELETE:
    case HTTP_PROPFIND:
    case HTTP_MKCOL:
    case HTTP_OPTIONS:
        return answer_dav(request);
    case HTTP_OTHER:
        break;
    }
    return fail(request, 0, STATUS_UNIMPLEMENTED, "this method is not for this path");
}

enum MHD_Result http_cache_answer_blob(struct http_request *request)
{
    return answer_blob(request, &request->digest);
}

void http_cache_clear(struct http_request *request)
{
    http_put_clear(request);
    free(request->value.memory);
    free(request->value.missing);
    http_bucket_clear(request);
}

static enum MHD_Result fail(struct http_request *request,
                            unsigned int code,
                            enum status_code status_code,
                            const char *text)
{
    struct status status = {0};
    status_fail(&status, status_code, "%s", text);
    return http_reply_failure(request, code, &status);
}

/* ---- what is sent */

/* A blob on its way out; the library's response owns it. */
struct outgoing {
    struct server *server;        /* borrowed */
    struct http_request *request; /* borrowed; there as long as something is sent */
    struct blob_reader *reader;
    struct digest digest;
    uint64_t first, end; /* of the blob */
    bool compressed;

    /* The chunk that is being given out: plain, or its frame. */
    struct buffer *buffer; /* owned; NULL: read again when it is needed */
    struct bytes piece;
    uint64_t piece_at;   /* where it begins in what is sent */
    uint64_t next_chunk; /* compressed: of the blob, behind the piece */
};

static ssize_t give(void *argument, uint64_t position, char *to, size_t max);
static ssize_t give_plain(struct outgoing *outgoing, uint64_t position, char *to, size_t max);
static ssize_t give_frames(struct outgoing *outgoing, uint64_t position, char *to, size_t max);
static bool read_chunk(struct outgoing *outgoing,
                       uint64_t offset,
                       struct buffer *buffer,
                       struct bytes *data);
static void free_outgoing(void *argument);

static enum MHD_Result miss(struct http_request *request)
{
    return fail(request, 0, STATUS_NOT_FOUND, "not found");
}

/* A blob that cannot be opened: damaged ones are forgotten. */
static enum MHD_Result cannot_open(struct http_request *request,
                                   const struct digest *digest,
                                   struct status *status)
{
    struct place place = {0};
    struct server *const server = http_server(request);
    if (status->code != STATUS_DATA_LOSS)
        return http_reply_failure(request, 0, status);
    if (store_find_blob(server->store, digest, FIND_ONLY, &place))
        damaged_blob_forget(server->durability, digest, place, status);
    return miss(request);
}

static void add_blob_headers(struct http_request *request,
                             struct MHD_Response *response,
                             const struct digest *digest,
                             bool compressed)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char etag[ETAG_BYTES + 8];
    snprintf(etag, sizeof(etag), "\"%s%s\"", digest_hex(digest, hex), compressed ? "-zstd" : "");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    if (compressed)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "zstd");
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    if (request->file_name[0] == '\0')
        return;
    char disposition[PAGE_FILE_NAME_BYTES + 32];
    snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"", request->file_name);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, disposition);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    http_page_protect(response);
}

static enum MHD_Result unsatisfiable(struct http_request *request, uint64_t size)
{
    char text[RANGE_BYTES];
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
    if (response != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
    return http_reply(request, MHD_HTTP_RANGE_NOT_SATISFIABLE, response);
}

static enum http_range range_of(const struct http_request *request,
                                uint64_t size,
                                uint64_t *first,
                                uint64_t *last)
{
    const struct bytes range = http_header(request, MHD_HTTP_HEADER_RANGE);
    if (range.length == 0 || request->method != HTTP_GET ||
        http_header(request, MHD_HTTP_HEADER_IF_RANGE).length > 0)
        return HTTP_RANGE_NONE;
    uint64_t from;
    uint64_t to;
    const enum http_range parsed = http_range_parse(range, size, &from, &to);
    if (parsed == HTTP_RANGE_PART) {
        *first = from;
        *last = to;
    }
    return parsed;
}

static enum MHD_Result answer_blob(struct http_request *request, const struct digest *asked)
{
    struct server *const server = http_server(request);
    struct digest digest = *asked;
    struct status status = {0};
    const bool sized = asked != &request->digest;
    if (!sized && !store_find_size(server->store, &digest)) {
        digest.size_bytes = -1;
        return blob_from_bucket(request, asked, &digest);
    }
    const uint64_t size = (uint64_t)digest.size_bytes;
    uint64_t first = 0;
    uint64_t last = size - 1; /* nothing is sent of a blob of size 0 */
    const enum http_range range = range_of(request, size, &first, &last);
    if (range == HTTP_RANGE_UNSATISFIABLE)
        return store_has_blob(server->store, &digest) ? unsatisfiable(request, size)
                                                      : blob_from_bucket(request, asked, &digest);
    const bool compressed =
        request->method == HTTP_GET && range == HTTP_RANGE_NONE && size >= COMPRESSED_BYTES_MIN &&
        http_list_accepts(http_header(request, MHD_HTTP_HEADER_ACCEPT_ENCODING), "zstd") &&
        buffer_pool_in_use(server->buffers) < buffer_pool_max(server->buffers) / 2;

    struct outgoing *const outgoing = calloc(1, sizeof(*outgoing));
    if (outgoing == NULL)
        return MHD_NO;
    *outgoing = (struct outgoing){.server = server,
                                  .request = request,
                                  .digest = digest,
                                  .first = first,
                                  .end = size == 0 ? 0 : last + 1,
                                  .compressed = compressed};
    if (!blob_reader_open(server->store, &digest, &outgoing->reader, &status)) {
        free_outgoing(outgoing);
        return cannot_open(request, &digest, &status);
    }
    if (outgoing->reader == NULL) {
        free_outgoing(outgoing);
        return blob_from_bucket(request, asked, &digest);
    }
    struct MHD_Response *const response =
        MHD_create_response_from_callback(compressed ? MHD_SIZE_UNKNOWN : outgoing->end - first,
                                          BLOCK_BYTES, give, outgoing, free_outgoing);
    if (response == NULL) {
        free_outgoing(outgoing);
        return MHD_NO;
    }
    add_blob_headers(request, response, &digest, compressed);
    if (range != HTTP_RANGE_PART)
        return http_reply(request, MHD_HTTP_OK, response);
    char text[RANGE_BYTES];
    snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, last, size);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
    return http_reply(request, MHD_HTTP_PARTIAL_CONTENT, response);
}

/* Once for each request. */
static enum MHD_Result blob_from_bucket(struct http_request *request,
                                        const struct digest *asked,
                                        const struct digest *digest)
{
    if (request->blob_from_bucket)
        return miss(request);
    switch (http_bucket_get_blob(request, digest)) {
    case HTTP_BUCKET_WAITS:
        return MHD_YES;
    case HTTP_BUCKET_FETCHED:
        request->blob_from_bucket = true;
        return answer_blob(request, asked);
    case HTTP_BUCKET_UNAVAILABLE:
        return fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, STATUS_UNAVAILABLE,
                    "it is not here, and the bucket (tier-url) does not answer");
    case HTTP_BUCKET_NOT_THERE:
        break;
    }
    return miss(request);
}

static void free_outgoing(void *argument)
{
    struct outgoing *const outgoing = argument;
    buffer_release(outgoing->buffer);
    blob_reader_free(outgoing->reader);
    free(outgoing);
}

static ssize_t give(void *argument, uint64_t position, char *to, size_t max)
{
    struct outgoing *const outgoing = argument;
    const ssize_t given = outgoing->compressed ? give_frames(outgoing, position, to, max)
                                               : give_plain(outgoing, position, to, max);
    if (given > 0) {
        metrics_add(outgoing->server->metrics, METRIC_HTTP_SENT, given);
        http_moved(outgoing->request, (size_t)given);
        outgoing->request->sent_bytes += (uint64_t)given;
    }
    return given;
}

/*
 * A slow client keeps no buffer that others may need: beyond half of the pool what it is sent next is read again, from the page
 * cache.
 */
static void keep_or_release(struct outgoing *outgoing)
{
    struct buffer_pool *const pool = outgoing->server->buffers;
    if (outgoing->buffer == NULL || buffer_pool_in_use(pool) <= buffer_pool_max(pool) / 2)
        return;
    buffer_release(outgoing->buffer);
    outgoing->buffer = NULL;
    outgoing->piece = bytes_of(NULL, 0);
}

static ssize_t copy_piece(const struct outgoing *outgoing, uint64_t position, char *to, size_t max)
{
    const size_t skip = (size_t)(position - outgoing->piece_at);
    const size_t left = outgoing->piece.length - skip;
    const size_t length = left < max ? left : max;
    memcpy(to, outgoing->piece.data + skip, length);
    return (ssize_t)length;
}

static bool has_piece(const struct outgoing *outgoing, uint64_t position)
{
    return position >= outgoing->piece_at && position - outgoing->piece_at < outgoing->piece.length;
}

static ssize_t give_plain(struct outgoing *outgoing, uint64_t position, char *to, size_t max)
{
    const uint64_t offset = outgoing->first + position;
    if (offset >= outgoing->end)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!has_piece(outgoing, position)) {
        struct buffer scratch = {0};
        if (outgoing->buffer == NULL)
            outgoing->buffer = buffer_pool_try_take(outgoing->server->buffers);
        if (outgoing->buffer == NULL) {
            scratch.data = malloc(LIMIT_POOL_BUFFER_BYTES);
            scratch.capacity_bytes = LIMIT_POOL_BUFFER_BYTES;
        }
        struct buffer *const buffer = outgoing->buffer != NULL ? outgoing->buffer : &scratch;
        if (buffer->data == NULL || !read_chunk(outgoing, offset, buffer, &outgoing->piece)) {
            free(scratch.data);
            outgoing->piece = bytes_of(NULL, 0);
            return MHD_CONTENT_READER_END_WITH_ERROR; /* which closes the connection */
        }
        outgoing->piece_at = position;
        const uint64_t left = outgoing->end - offset;
        if (outgoing->piece.length > left)
            outgoing->piece.length = (size_t)left;
        if (outgoing->buffer == NULL) {
            const ssize_t given = copy_piece(outgoing, position, to, max);
            outgoing->piece = bytes_of(NULL, 0);
            free(scratch.data);
            return given;
        }
    }
    const ssize_t given = copy_piece(outgoing, position, to, max);
    keep_or_release(outgoing);
    return given;
}

/* Of a damaged one nothing is sent, and it is forgotten. */
static bool read_chunk(struct outgoing *outgoing,
                       uint64_t offset,
                       struct buffer *buffer,
                       struct bytes *data)
{
    struct status status = {0};
    if (blob_reader_read(outgoing->reader, offset, buffer, data, &status))
        return true;
    if (status.code == STATUS_DATA_LOSS)
        damaged_blob_forget(outgoing->server->durability, &outgoing->digest,
                            blob_reader_place(outgoing->reader), &status);
    return false;
}

/* Each chunk is a frame of its own, kept until it is sent. */
static ssize_t give_frames(struct outgoing *outgoing, uint64_t position, char *to, size_t max)
{
    if (has_piece(outgoing, position))
        return copy_piece(outgoing, position, to, max);
    if (outgoing->next_chunk >= outgoing->end)
        return MHD_CONTENT_READER_END_OF_STREAM;
    struct buffer scratch = {.data = malloc(LIMIT_POOL_BUFFER_BYTES),
                             .capacity_bytes = LIMIT_POOL_BUFFER_BYTES};
    struct bytes plain;
    ssize_t given = MHD_CONTENT_READER_END_WITH_ERROR;
    if (outgoing->buffer == NULL)
        outgoing->buffer = buffer_pool_try_take(outgoing->server->buffers);
    if (scratch.data != NULL && outgoing->buffer != NULL &&
        read_chunk(outgoing, outgoing->next_chunk, &scratch, &plain)) {
        struct zstd_blobs encoder = {0};
        const size_t length = zstd_blobs_encode(&encoder, plain, outgoing->buffer->data,
                                                outgoing->buffer->capacity_bytes);
        zstd_blobs_free(&encoder);
        if (length > 0) {
            outgoing->next_chunk += plain.length;
            outgoing->piece = bytes_of(outgoing->buffer->data, length);
            outgoing->piece_at = position;
            given = copy_piece(outgoing, position, to, max);
        }
    }
    free(scratch.data);
    return given;
}

/* ---- action results, and values of keys */

static void fetch(struct task *task);
static bool fetch_value(struct http_request *request, struct status *status);
static bool read_value(struct http_request *request, struct status *status);
static void note_missing(struct http_value *value, const struct completeness *completeness);
static enum MHD_Result value_from_bucket(struct http_request *request);
static enum MHD_Result look_again(struct http_request *request);
static enum MHD_Result no_value(struct http_request *request);

/* On a worker: the record, and what an action result names, is read from the disk. False: it is parked. */
static bool fetched(struct http_request *request)
{
    if (request->worked)
        return true;
    if (!request->working) {
        if (!http_busy(request)) {
            status_fail(&request->status, STATUS_UNAVAILABLE, "the server is stopping");
            return true;
        }
        request->working = true;
        request->task.run = fetch;
        workers_submit(http_server(request)->workers, &request->task);
    }
    if (http_park(request))
        return false;
    request->worked = true;
    return true;
}

static void fetch(struct task *task)
{
    struct http_request *const request = CONTAINER_OF(task, struct http_request, task);
    if (!fetch_value(request, &request->status))
        request->value.found = false;
    request->worked = true;
    http_wake(request);
}

static bool fetch_value(struct http_request *request, struct status *status)
{
    struct server *const server = http_server(request);
    struct http_value *const value = &request->value;
    if (value->memory == NULL && !read_value(request, status))
        return false;
    if (value->memory == NULL)
        return true;
    if (has_values(request)) {
        value->is_blob = http_value_names_blob(value->data, &value->blob);
        /* One that is not here may be in the bucket: that is asked when it is to be sent. */
        value->found = !value->is_blob || store_has_blob(server->store, &value->blob) ||
                       tier_reader(server->tier) != NULL;
        return true;
    }
    struct arena arena;
    struct completeness completeness;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    const bool ok = completeness_check(server->durability, &arena, DIGEST_FUNCTION_SHA256,
                                       value->data, &completeness, status);
    arena_destroy(&arena);
    if (!ok)
        return false;
    value->found = completeness.complete;
    if (!completeness.complete && completeness.unusable.code == STATUS_OK)
        note_missing(value, &completeness);
    return true;
}

static bool read_value(struct http_request *request, struct status *status)
{
    struct server *const server = http_server(request);
    struct http_value *const value = &request->value;
    struct action_record record = {0};
    struct place place = {0};
    struct status why = {0};
    if (!action_read(server->store, &request->digest, request->instance, &value->memory, &record,
                     &place, &why)) {
        if (why.code != STATUS_DATA_LOSS) {
            *status = why;
            return false;
        }
        damaged_action_forget(server->durability, &request->digest, request->instance, place, &why);
        value->memory = NULL;
    }
    value->data = record.result;
    value->written_wall_ns = record.written_wall_ns;
    return true;
}

/* Without memory for it there is nothing to look for. */
static void note_missing(struct http_value *value, const struct completeness *completeness)
{
    const size_t count = completeness->missing_count < COMPLETENESS_NAMED_MAX
                             ? completeness->missing_count
                             : COMPLETENESS_NAMED_MAX;
    free(value->missing);
    value->missing = malloc((count + 1) * sizeof(value->missing[0]));
    value->missing_count = value->missing != NULL ? count : 0;
    value->missing_at = 0;
    if (value->missing != NULL)
        memcpy(value->missing, completeness->missing, count * sizeof(value->missing[0]));
}

/*
 * A value that is not here, or not all that it names: the bucket may have it. Then it is looked at again, on a worker. What it cannot
 * tell is a miss.
 */
static enum MHD_Result value_from_bucket(struct http_request *request)
{
    struct http_value *const value = &request->value;
    if (value->memory == NULL) {
        switch (http_bucket_get_value(request)) {
        case HTTP_BUCKET_WAITS:
            return MHD_YES;
        case HTTP_BUCKET_FETCHED:
            value->memory = request->at_bucket.result;
            value->data = bytes_of(value->memory, request->at_bucket.result_bytes);
            request->at_bucket.result = NULL;
            return look_again(request);
        case HTTP_BUCKET_NOT_THERE:
        case HTTP_BUCKET_UNAVAILABLE:
            break;
        }
        return no_value(request);
    }
    for (; value->missing_at < value->missing_count; value->missing_at++) {
        switch (http_bucket_get_blob(request, &value->missing[value->missing_at])) {
        case HTTP_BUCKET_WAITS:
            return MHD_YES;
        case HTTP_BUCKET_FETCHED:
            continue;
        case HTTP_BUCKET_NOT_THERE:
        case HTTP_BUCKET_UNAVAILABLE:
            return no_value(request);
        }
    }
    return value->missing_count > 0 ? look_again(request) : no_value(request);
}

static enum MHD_Result look_again(struct http_request *request)
{
    if (++request->value.checks > CHECKS_MAX)
        return no_value(request);
    request->working = false;
    request->worked = false;
    request->value.missing_count = 0;
    return answer_value(request);
}

static enum MHD_Result no_value(struct http_request *request)
{
    metrics_add(http_server(request)->metrics,
                request->value.memory == NULL ? METRIC_ACTION_MISSES : METRIC_ACTION_INCOMPLETE, 1);
    return miss(request);
}

static void free_memory(void *argument)
{
    free(argument);
}

static enum MHD_Result answer_value(struct http_request *request)
{
    struct http_value *const value = &request->value;
    if (!fetched(request))
        return MHD_YES;
    if (request->status.code != STATUS_OK)
        return http_reply_failure(request, 0, &request->status);
    if (!value->found)
        return value_from_bucket(request);
    if (!value->counted)
        metrics_add(http_server(request)->metrics, METRIC_ACTION_HITS, 1);
    value->counted = true;
    if (value->is_blob)
        return answer_blob(request, &value->blob);
    uint64_t first = 0;
    uint64_t last = value->data.length - 1;
    const enum http_range range = range_of(request, value->data.length, &first, &last);
    if (range == HTTP_RANGE_UNSATISFIABLE)
        return unsatisfiable(request, value->data.length);
    const size_t length = value->data.length == 0 ? 0 : (size_t)(last - first + 1);
    void *const start = (void *)(uintptr_t)(value->data.data + first);
    struct MHD_Response *const response =
        length == 0 ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
                    : MHD_create_response_from_buffer_with_free_callback_cls(
                          length, start, free_memory, value->memory);
    if (response == NULL)
        return MHD_NO;
    if (length > 0)
        value->memory = NULL;
    metrics_add(http_server(request)->metrics, METRIC_HTTP_SENT,
                request->method == HTTP_GET ? (int64_t)length : 0);
    request->sent_bytes += request->method == HTTP_GET ? length : 0;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    if (range != HTTP_RANGE_PART)
        return http_reply(request, MHD_HTTP_OK, response);
    char text[RANGE_BYTES];
    snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%zu", first, last,
             value->data.length);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, text);
    return http_reply(request, MHD_HTTP_PARTIAL_CONTENT, response);
}

/* ---- as much of WebDAV (RFC 4918) as clients of a cache ask for; folders are not kept, and always there */

static enum MHD_Result answer_properties(struct http_request *request, bool folder);
static enum MHD_Result answer_delete(struct http_request *request);

static enum MHD_Result answer_dav(struct http_request *request)
{
    const bool folder =
        request->key.length == 0 || request->key.data[request->key.length - 1] == '/';
    struct MHD_Response *response;
    switch (request->method) {
    case HTTP_MKCOL:
        return http_reply_empty(request, MHD_HTTP_CREATED);
    case HTTP_DELETE:
        return answer_delete(request);
    case HTTP_PROPFIND:
        return answer_properties(request, folder);
    default:
        ASSERT(request->method == HTTP_OPTIONS);
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        if (response == NULL)
            return MHD_NO;
        MHD_add_response_header(response, "DAV", "1");
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                "GET, HEAD, PUT, DELETE, PROPFIND, MKCOL, OPTIONS");
        return http_reply(request, MHD_HTTP_OK, response);
    }
}

static enum MHD_Result answer_delete(struct http_request *request)
{
    struct server *const server = http_server(request);
    struct place place;
    if (!store_find_action(server->store, &request->digest, request->instance, FIND_ONLY, &place))
        return miss(request);
    durability_forget(server->durability, &request->digest, &request->instance, place,
                      RECORD_ACTION, FORGET_PURGED);
    return http_reply_empty(request, MHD_HTTP_NO_CONTENT);
}

/* A path as it stands in a URL inside of XML: everything unusual as %XX. */
static void put_href(struct byte_builder *text, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-~";
    for (; *path != '\0'; path++) {
        char escaped[4];
        snprintf(escaped, sizeof(escaped), strchr(plain, *path) != NULL ? "%c" : "%%%02X",
                 (unsigned int)(uint8_t)*path);
        byte_builder_append(text, bytes_of_string(escaped));
    }
}

static enum MHD_Result answer_properties(struct http_request *request, bool folder)
{
    struct http_value *const value = &request->value;
    if (!folder && !fetched(request))
        return MHD_YES;
    if (!folder && request->status.code != STATUS_OK)
        return http_reply_failure(request, 0, &request->status);
    if (!folder && !value->found)
        return miss(request);
    struct byte_builder text = {0};
    char date[HTTP_DATE_BYTES];
    char properties[256];
    const uint64_t size =
        value->is_blob ? (uint64_t)value->blob.size_bytes : (uint64_t)value->data.length;
    http_date_put((folder ? clock_wall_ns(http_server(request)->clock) : value->written_wall_ns) /
                      NS_PER_S,
                  date);
    byte_builder_append(
        &text, bytes_of_string("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus "
                               "xmlns:D=\"DAV:\"><D:response><D:href>"));
    put_href(&text, request->url);
    if (folder)
        snprintf(properties, sizeof(properties),
                 "<D:resourcetype><D:collection/></D:resourcetype>"
                 "<D:getlastmodified>%s</D:getlastmodified>",
                 date);
    else
        snprintf(properties, sizeof(properties),
                 "<D:resourcetype/><D:getcontentlength>%" PRIu64 "</D:getcontentlength>"
                 "<D:getlastmodified>%s</D:getlastmodified>",
                 size, date);
    byte_builder_append(&text, bytes_of_string("</D:href><D:propstat><D:prop>"));
    byte_builder_append(&text, bytes_of_string(properties));
    byte_builder_append(&text, bytes_of_string("</D:prop><D:status>HTTP/1.1 200 OK</D:status>"
                                               "</D:propstat></D:response></D:multistatus>\n"));
    size_t length;
    const bool failed = text.failed;
    uint8_t *const data = byte_builder_release(&text, &length);
    struct MHD_Response *const response =
        failed ? NULL : MHD_create_response_from_buffer(length, data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(data);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            "application/xml; charset=utf-8");
    return http_reply(request, MHD_HTTP_MULTI_STATUS, response);
}
