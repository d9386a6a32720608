/* SPDX-License-Identifier: Apache-2.0 */
#include "client/upload.h"

#include <stdlib.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/message_pool.h"
#include "client/messages.h"
#include "client/uuid.h"
#include "proto/resource_name.h"

enum upload_state { UPLOAD_SENDING, UPLOAD_WAITING, UPLOAD_PAUSING, UPLOAD_ASKING, UPLOAD_DONE };

struct upload {
    struct client *client; /* borrowed */
    struct upload_request request;
    char name[LIMIT_RESOURCE_NAME_BYTES];
    enum upload_state state;
    bool cancelled;
    bool held;                /* SENDING, and the source was not ready for the next message */
    struct client_call *call; /* the client's; NULL while PAUSING and WAITING */
    struct timer timer;
    struct retry retry;

    uint64_t size_bytes;
    uint64_t start_offset;          /* of this try */
    uint64_t previous_start_offset; /* of the try before: further on is progress */
    uint64_t next_offset;           /* of the next message */
    uint64_t sent_bytes;            /* over all tries */
    struct status source_failure;   /* the first one is final */
};

static bool send_first(struct upload *upload, struct status *status);
static bool source_is_ready(const struct upload *upload);
static size_t next_length(const struct upload *upload);
static grpc_byte_buffer *next_message(struct upload *upload, enum client_call_more *more);
static void message_sent(void *argument, struct client_call *call);
static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static bool check_committed(const struct upload *upload,
                            grpc_byte_buffer *reply,
                            struct status *status);
static void failed_once(struct upload *upload, const struct status *status);
static void pause_over(struct timer *timer);
static bool ask(struct upload *upload, struct status *status);
static void query_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static bool take_answer(const struct upload *upload,
                        grpc_byte_buffer *reply,
                        uint64_t *offset,
                        bool *complete,
                        struct status *status);
static void finish(struct upload *upload, const struct status *status);

static const struct client_call_handlers write_handlers = {.sent = message_sent, .done = call_done};
static const struct client_call_handlers query_handlers = {.done = query_done};
static const struct status status_ok = {0};

bool upload_start(struct client *client,
                  const struct upload_request *request,
                  struct upload **upload_out,
                  struct status *status)
{
    ASSERT(request->digest.size_bytes > 0);
    struct upload *upload = calloc(1, sizeof(*upload));
    if (upload == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an upload");
    upload->client = client;
    upload->request = *request;
    upload->size_bytes = (uint64_t)request->digest.size_bytes;
    upload->timer.run = pause_over;
    retry_init(&upload->retry, client_retry_policy(client));
    char uuid[UUID_TEXT_BYTES];
    uuid_random(uuid);
    /* An instance name is far shorter than the room there is. */
    ASSERT(resource_name_format(upload->name, sizeof(upload->name), client_instance_name(client),
                                uuid, COMPRESSOR_IDENTITY, &request->digest));
    *upload_out = upload;
    if (send_first(upload, status))
        return true;
    free(upload);
    return false;
}

static bool send_first(struct upload *upload, struct status *status)
{
    upload->next_offset = upload->start_offset;
    if (!source_is_ready(upload)) {
        upload->state = UPLOAD_WAITING;
        return true;
    }
    upload->state = UPLOAD_SENDING;
    enum client_call_more more;
    grpc_byte_buffer *message = next_message(upload, &more);
    if (message == NULL) {
        *status = upload->source_failure;
        return false;
    }
    const struct client_call_options options = {
        .method = METHOD_WRITE,
        .timeout_ns = client_stream_timeout_ns(
            upload->client, (int64_t)(upload->size_bytes - upload->start_offset)),
        .loop = upload->request.loop,
        .handlers = &write_handlers,
        .argument = upload,
    };
    return client_call_stream_up(upload->client, &options, message, more, &upload->call, status);
}

static bool source_is_ready(const struct upload *upload)
{
    const struct upload_source *source = &upload->request.source;
    return source->is_ready == NULL ||
           source->is_ready(source->argument, upload->next_offset, next_length(upload));
}

static size_t next_length(const struct upload *upload)
{
    const uint64_t left = upload->size_bytes - upload->next_offset;
    return left < UPLOAD_MESSAGE_BYTES ? (size_t)left : UPLOAD_MESSAGE_BYTES;
}

/* NULL when the source fails. */
static grpc_byte_buffer *next_message(struct upload *upload, enum client_call_more *more)
{
    const uint64_t offset = upload->next_offset;
    const size_t length = next_length(upload);
    grpc_slice data = message_pool_take(client_messages(upload->client), length);
    if (!upload->request.source.read(upload->request.source.argument, offset,
                                     GRPC_SLICE_START_PTR(data), length, &upload->source_failure)) {
        grpc_slice_unref(data);
        return NULL;
    }
    upload->next_offset += length;
    upload->sent_bytes += length;
    const bool last = upload->next_offset == upload->size_bytes;
    *more = last ? CLIENT_CALL_LAST : CLIENT_CALL_MORE;
    return write_request_message(offset == upload->start_offset ? upload->name : NULL, offset, data,
                                 last);
}

static void message_sent(void *argument, struct client_call *call)
{
    struct upload *upload = argument;
    enum client_call_more more;
    upload->held = !source_is_ready(upload);
    if (upload->held)
        return;
    grpc_byte_buffer *message = next_message(upload, &more);
    if (message == NULL)
        client_call_cancel(call);
    else
        client_call_send(call, message, more);
}

void upload_resume(struct upload *upload)
{
    struct status status = {0};
    if (upload->held && !upload->cancelled)
        message_sent(upload, upload->call);
    else if (upload->state == UPLOAD_WAITING && !upload->cancelled && !send_first(upload, &status))
        finish(upload, &status);
}

static void call_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct upload *upload = argument;
    upload->call = NULL;
    upload->held = false;
    if (upload->source_failure.code != STATUS_OK) {
        finish(upload, &upload->source_failure);
    } else if (status->code == STATUS_ALREADY_EXISTS) {
        finish(upload, &status_ok);
    } else if (status->code != STATUS_OK) {
        failed_once(upload, status);
    } else {
        struct status failure = {0};
        if (check_committed(upload, reply, &failure))
            finish(upload, &status_ok);
        else
            failed_once(upload, &failure);
    }
    if (reply != NULL)
        grpc_byte_buffer_destroy(reply);
}

/* OK with the whole size: also what an early answer has to say about a blob that was there. */
static bool check_committed(const struct upload *upload,
                            grpc_byte_buffer *reply,
                            struct status *status)
{
    uint64_t offset;
    bool complete;
    if (!take_answer(upload, reply, &offset, &complete, status))
        return false;
    if (offset != upload->size_bytes)
        return status_fail(status, STATUS_INTERNAL, "the server said OK with %llu of %llu bytes",
                           (unsigned long long)offset, (unsigned long long)upload->size_bytes);
    return true;
}

static void failed_once(struct upload *upload, const struct status *status)
{
    const bool moved = upload->start_offset > upload->previous_start_offset;
    upload->previous_start_offset = upload->start_offset;
    int64_t pause_ns;
    if (upload->cancelled || !retry_again(&upload->retry, status, moved, &pause_ns)) {
        finish(upload, status);
        return;
    }
    upload->state = UPLOAD_PAUSING;
    event_loop_start_timer(upload->request.loop, &upload->timer, pause_ns);
}

static void pause_over(struct timer *timer)
{
    struct upload *upload = CONTAINER_OF(timer, struct upload, timer);
    struct status status = {0};
    if (upload->cancelled)
        status_fail(&status, STATUS_CANCELLED, "cancelled");
    else if (ask(upload, &status))
        return;
    finish(upload, &status);
}

static bool ask(struct upload *upload, struct status *status)
{
    upload->state = UPLOAD_ASKING;
    const struct client_call_options options = {
        .method = METHOD_QUERY_WRITE_STATUS,
        .timeout_ns = client_call_timeout_ns(upload->client),
        .loop = upload->request.loop,
        .handlers = &query_handlers,
        .argument = upload,
    };
    grpc_slice body = query_write_status_request(upload->name);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    return client_call_unary(upload->client, &options, message, &upload->call, status);
}

static void query_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct upload *upload = argument;
    upload->call = NULL;
    struct status failure = *status;
    uint64_t offset = 0;
    bool complete = false;
    bool known = true;
    if (status->code == STATUS_OK)
        known = take_answer(upload, reply, &offset, &complete, &failure);
    else if (status->code != STATUS_NOT_FOUND && status->code != STATUS_UNIMPLEMENTED)
        known = false; /* those two: the server knows nothing of it, so from the start */
    if (reply != NULL)
        grpc_byte_buffer_destroy(reply);

    if (!known) {
        failed_once(upload, &failure);
    } else if (complete || offset == upload->size_bytes) {
        finish(upload, &status_ok);
    } else {
        upload->start_offset = offset;
        failure = (struct status){0};
        if (!upload->cancelled && send_first(upload, &failure))
            return;
        if (upload->cancelled)
            status_fail(&failure, STATUS_CANCELLED, "cancelled");
        finish(upload, &failure);
    }
}

/* The offset is within the blob, whatever the server said. */
static bool take_answer(const struct upload *upload,
                        grpc_byte_buffer *reply,
                        uint64_t *offset,
                        bool *complete,
                        struct status *status)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
    int64_t committed_bytes;
    const bool ok =
        write_status_response(message_view_list(&view), &committed_bytes, complete, status);
    message_view_free(&view);
    if (!ok)
        return false;
    if (committed_bytes < 0 || (uint64_t)committed_bytes > upload->size_bytes)
        return status_fail(status, STATUS_INTERNAL, "the server says it has %lld of %llu bytes",
                           (long long)committed_bytes, (unsigned long long)upload->size_bytes);
    *offset = (uint64_t)committed_bytes;
    return true;
}

static void finish(struct upload *upload, const struct status *status)
{
    ASSERT(upload->state != UPLOAD_DONE);
    upload->state = UPLOAD_DONE;
    const struct upload_request request = upload->request;
    const uint64_t sent_bytes = upload->sent_bytes;
    struct status last = *status; /* may lie in the upload */
    free(upload);
    request.done(request.argument, &last, sent_bytes);
}

void upload_cancel(struct upload *upload)
{
    ASSERT(upload->state != UPLOAD_DONE);
    upload->cancelled = true;
    if (upload->state == UPLOAD_PAUSING || upload->state == UPLOAD_WAITING)
        event_loop_start_timer(upload->request.loop, &upload->timer, 0);
    else
        client_call_cancel(upload->call);
}

void upload_stop_trying(struct upload *upload)
{
    upload->retry.policy.tries_max = 1;
    if (upload->state != UPLOAD_SENDING)
        upload_cancel(upload);
}
