/* SPDX-License-Identifier: Apache-2.0 */
#include "client/download.h"

#include <stdlib.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/messages.h"
#include "proto/resource_name.h"

enum download_state { DOWNLOAD_READING, DOWNLOAD_PAUSING, DOWNLOAD_DONE };

struct download {
    struct client *client; /* borrowed */
    struct download_request request;
    char name[LIMIT_RESOURCE_NAME_BYTES];
    enum download_state state;
    bool cancelled;
    bool held;                /* READING, and the sink had no room after the last message */
    struct client_call *call; /* the client's; NULL while PAUSING */
    struct timer timer;
    struct retry retry;
    struct hasher *hasher; /* owned */

    uint64_t size_bytes;
    uint64_t start_offset;       /* of this try */
    uint64_t received_bytes;     /* over all tries, each byte once */
    struct status final_failure; /* of the sink, or of what the server sent: no retry helps */
};

static bool open_stream(struct download *download, struct status *status);
static void message_received(void *argument, struct client_call *call, grpc_byte_buffer *message);
static bool take_message(struct download *download,
                         grpc_byte_buffer *message,
                         struct status *status);
static bool take_data(struct download *download, struct wire_span data, struct status *status);
static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static bool verify(struct download *download, struct status *status);
static void failed_once(struct download *download, const struct status *status);
static void pause_over(struct timer *timer);
static void finish(struct download *download, const struct status *status);

static const struct client_call_handlers read_handlers = {.received = message_received,
                                                          .done = call_done};

bool download_start(struct client *client,
                    const struct download_request *request,
                    struct download **download_out,
                    struct status *status)
{
    ASSERT(request->digest.size_bytes > 0);
    struct download *download = calloc(1, sizeof(*download));
    if (download == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a download");
    download->client = client;
    download->request = *request;
    download->size_bytes = (uint64_t)request->digest.size_bytes;
    download->timer.run = pause_over;
    download->hasher = hasher_new((enum digest_function)request->digest.function);
    retry_init(&download->retry, client_retry_policy(client));
    ASSERT(resource_name_format(download->name, sizeof(download->name),
                                client_instance_name(client), NULL, COMPRESSOR_IDENTITY,
                                &request->digest));
    *download_out = download;
    if (open_stream(download, status))
        return true;
    hasher_free(download->hasher);
    free(download);
    return false;
}

static bool open_stream(struct download *download, struct status *status)
{
    download->state = DOWNLOAD_READING;
    download->start_offset = download->received_bytes;
    const struct client_call_options options = {
        .method = METHOD_READ,
        .timeout_ns = client_stream_timeout_ns(
            download->client, (int64_t)(download->size_bytes - download->start_offset)),
        .loop = download->request.loop,
        .handlers = &read_handlers,
        .argument = download,
    };
    grpc_slice body = read_request(download->name, download->start_offset);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    return client_call_stream_down(download->client, &options, message, &download->call, status);
}

static void message_received(void *argument, struct client_call *call, grpc_byte_buffer *message)
{
    struct download *download = argument;
    const bool ok = take_message(download, message, &download->final_failure);
    grpc_byte_buffer_destroy(message);
    const struct download_sink *sink = &download->request.sink;
    if (!ok)
        client_call_cancel(call);
    else if (sink->has_room != NULL && download->received_bytes < download->size_bytes &&
             !sink->has_room(sink->argument))
        download->held = true;
    else
        client_call_receive(call);
}

void download_resume(struct download *download)
{
    if (!download->held || download->cancelled ||
        !download->request.sink.has_room(download->request.sink.argument))
        return;
    download->held = false;
    client_call_receive(download->call);
}

static bool take_message(struct download *download,
                         grpc_byte_buffer *message,
                         struct status *status)
{
    struct message_view view;
    if (!message_view_init(&view, message))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a message");
    struct wire_span data;
    const bool ok = read_response_data(message_view_list(&view), &data, status) &&
                    take_data(download, data, status);
    message_view_free(&view);
    return ok;
}

static bool take_data(struct download *download, struct wire_span data, struct status *status)
{
    if (data.length > download->size_bytes - download->received_bytes)
        return status_fail(status, STATUS_DATA_LOSS,
                           "the server sent more than the blob's %llu bytes",
                           (unsigned long long)download->size_bytes);
    for (struct bytes piece = wire_span_next(&data); piece.length > 0;
         piece = wire_span_next(&data)) {
        hasher_update(download->hasher, piece);
        if (!download->request.sink.write(download->request.sink.argument, piece, status))
            return false;
        download->received_bytes += piece.length;
    }
    return true;
}

static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct download *download = argument;
    ASSERT(reply == NULL);
    download->call = NULL;
    download->held = false;
    struct status failure = *status;
    if (download->final_failure.code != STATUS_OK) {
        finish(download, &download->final_failure);
    } else if (download->received_bytes == download->size_bytes) {
        failure = (struct status){0};
        if (!verify(download, &failure))
            ASSERT(failure.code != STATUS_OK);
        finish(download, &failure);
    } else {
        if (failure.code == STATUS_OK)
            status_fail(&failure, STATUS_INTERNAL, "the server ended after %llu of %llu bytes",
                        (unsigned long long)download->received_bytes,
                        (unsigned long long)download->size_bytes);
        failed_once(download, &failure);
    }
}

static bool verify(struct download *download, struct status *status)
{
    struct digest digest;
    hasher_finish(download->hasher, &digest);
    if (digest_equal(&digest, &download->request.digest))
        return true;
    char text[DIGEST_TEXT_BYTES_MAX];
    return status_fail(status, STATUS_DATA_LOSS, "the server sent other bytes, those of %s",
                       digest_text(&digest, text));
}

static void failed_once(struct download *download, const struct status *status)
{
    const bool moved = download->received_bytes > download->start_offset;
    int64_t pause_ns;
    if (download->cancelled || !retry_again(&download->retry, status, moved, &pause_ns)) {
        finish(download, status);
        return;
    }
    download->state = DOWNLOAD_PAUSING;
    event_loop_start_timer(download->request.loop, &download->timer, pause_ns);
}

static void pause_over(struct timer *timer)
{
    struct download *download = CONTAINER_OF(timer, struct download, timer);
    struct status status = {0};
    if (download->cancelled)
        status_fail(&status, STATUS_CANCELLED, "cancelled");
    else if (open_stream(download, &status))
        return;
    finish(download, &status);
}

static void finish(struct download *download, const struct status *status)
{
    ASSERT(download->state != DOWNLOAD_DONE);
    download->state = DOWNLOAD_DONE;
    const struct download_request request = download->request;
    struct status last = *status; /* may lie in the download */
    hasher_free(download->hasher);
    free(download);
    request.done(request.argument, &last);
}

void download_cancel(struct download *download)
{
    ASSERT(download->state != DOWNLOAD_DONE);
    download->cancelled = true;
    if (download->state == DOWNLOAD_PAUSING)
        event_loop_start_timer(download->request.loop, &download->timer, 0);
    else
        client_call_cancel(download->call);
}

void download_stop_trying(struct download *download)
{
    download->retry.policy.tries_max = 1;
    if (download->state == DOWNLOAD_PAUSING)
        download_cancel(download);
}
