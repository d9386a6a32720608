/* SPDX-License-Identifier: Apache-2.0 */
#include "client/call.h"

#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdlib.h>

struct client_op {
    struct client_tag tag;
    struct event event;
    bool ok;
    struct client_call *call; /* borrowed */
    void (*completed)(struct client_call *call, bool ok);
};

/*
 * Of the handlers' thread alone, once it is started: `pending` counts the ops that have not come
 * back to it, and is what keeps the call alive. The ops that a start posts are counted before the
 * first is posted, since the first may come back, on another thread, while the second is being
 * posted.
 */
struct client_call {
    struct client *client;   /* borrowed */
    struct event_loop *loop; /* borrowed; may be NULL */
    const struct client_call_handlers *handlers;
    void *argument;
    grpc_call *call; /* owned */
    unsigned pending;
    bool cancelled;
    bool sending_last;
    bool unary_answer; /* exactly one message comes with the status */

    struct client_op send, receive, finish;
    grpc_byte_buffer *outgoing;                  /* owned, while send or finish is pending */
    grpc_byte_buffer *incoming;                  /* owned, while receive or finish is pending */
    grpc_metadata metadata[CLIENT_METADATA_MAX]; /* sent; its values are owned */
    size_t metadata_count;
    grpc_metadata_array initial_metadata, trailing_metadata;
    grpc_status_code code;
    grpc_slice details;
    bool has_status;
};

static struct client_call *call_new(struct client *client,
                                    const struct client_call_options *options,
                                    struct status *status);
static void op_init(struct client_op *op,
                    struct client_call *call,
                    void (*completed)(struct client_call *call, bool ok));
static void op_complete(struct client_tag *tag, bool ok);
static void op_run(struct event *event);
static void start_batch(struct client_call *call,
                        const grpc_op *ops,
                        size_t count,
                        struct client_op *op);
static grpc_op op_send_metadata(struct client_call *call);
static grpc_op op_send_message(struct client_call *call);
static grpc_op op_receive_status(struct client_call *call);
static void send_completed(struct client_call *call, bool ok);
static void receive_completed(struct client_call *call, bool ok);
static void finish_completed(struct client_call *call, bool ok);
static void done_if_idle(struct client_call *call);
static void take_status(const struct client_call *call, struct status *status);

bool client_call_unary(struct client *client,
                       const struct client_call_options *options,
                       grpc_byte_buffer *request,
                       struct client_call **call_out,
                       struct status *status)
{
    struct client_call *call = call_new(client, options, status);
    if (call == NULL) {
        grpc_byte_buffer_destroy(request);
        return false;
    }
    call->unary_answer = true;
    call->outgoing = request;
    call->pending = 1;
    *call_out = call;
    const grpc_op ops[] = {
        op_send_metadata(call),
        op_send_message(call),
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial_metadata},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming},
        op_receive_status(call),
    };
    start_batch(call, ops, ARRAY_LENGTH(ops), &call->finish);
    return true;
}

bool client_call_stream_up(struct client *client,
                           const struct client_call_options *options,
                           grpc_byte_buffer *first,
                           enum client_call_more more,
                           struct client_call **call_out,
                           struct status *status)
{
    struct client_call *call = call_new(client, options, status);
    if (call == NULL) {
        grpc_byte_buffer_destroy(first);
        return false;
    }
    call->unary_answer = true;
    call->outgoing = first;
    call->sending_last = more == CLIENT_CALL_LAST;
    call->pending = 2;
    *call_out = call;
    const grpc_op sends[] = {
        op_send_metadata(call),
        op_send_message(call),
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
    };
    const grpc_op receives[] = {
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial_metadata},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming},
        op_receive_status(call),
    };
    const size_t send_count = ARRAY_LENGTH(sends) - (call->sending_last ? 0 : 1);
    start_batch(call, receives, ARRAY_LENGTH(receives), &call->finish);
    start_batch(call, sends, send_count, &call->send);
    return true;
}

bool client_call_stream_down(struct client *client,
                             const struct client_call_options *options,
                             grpc_byte_buffer *request,
                             struct client_call **call_out,
                             struct status *status)
{
    struct client_call *call = call_new(client, options, status);
    if (call == NULL) {
        grpc_byte_buffer_destroy(request);
        return false;
    }
    call->outgoing = request;
    call->pending = 2;
    *call_out = call;
    const grpc_op exchange[] = {
        op_send_metadata(call),
        op_send_message(call),
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial_metadata},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming},
    };
    const grpc_op end[] = {op_receive_status(call)};
    start_batch(call, end, ARRAY_LENGTH(end), &call->finish);
    start_batch(call, exchange, ARRAY_LENGTH(exchange), &call->receive);
    return true;
}

static struct client_call *call_new(struct client *client,
                                    const struct client_call_options *options,
                                    struct status *status)
{
    ASSERT(options->timeout_ns > 0);
    ASSERT(options->handlers->done != NULL);
    struct client_call *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a call");
        return NULL;
    }
    call->client = client;
    call->loop = options->loop;
    call->handlers = options->handlers;
    call->argument = options->argument;
    call->details = grpc_empty_slice();
    call->metadata_count = client_metadata(client, call->metadata);
    grpc_metadata_array_init(&call->initial_metadata);
    grpc_metadata_array_init(&call->trailing_metadata);
    op_init(&call->send, call, send_completed);
    op_init(&call->receive, call, receive_completed);
    op_init(&call->finish, call, finish_completed);

    const gpr_timespec deadline = gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(options->timeout_ns, GPR_TIMESPAN));
    call->call = grpc_channel_create_call(
        client_take_channel(client), NULL, GRPC_PROPAGATE_DEFAULTS, client_queue(client),
        grpc_slice_from_static_string(options->method), NULL, deadline, NULL);
    ASSERT(call->call != NULL);
    client_count_call(client, 1);
    return call;
}

static void op_init(struct client_op *op,
                    struct client_call *call,
                    void (*completed)(struct client_call *call, bool ok))
{
    op->tag.complete = op_complete;
    op->event.run = op_run;
    op->call = call;
    op->completed = completed;
}

static void op_complete(struct client_tag *tag, bool ok)
{
    struct client_op *op = CONTAINER_OF(tag, struct client_op, tag);
    op->ok = ok;
    if (op->call->loop != NULL)
        event_loop_post(op->call->loop, &op->event);
    else
        op_run(&op->event);
}

static void op_run(struct event *event)
{
    struct client_op *op = CONTAINER_OF(event, struct client_op, event);
    op->completed(op->call, op->ok);
}

static void start_batch(struct client_call *call,
                        const grpc_op *ops,
                        size_t count,
                        struct client_op *op)
{
    client_hand_over(call->client);
    const grpc_call_error error = grpc_call_start_batch(call->call, ops, count, &op->tag, NULL);
    ASSERT(error == GRPC_CALL_OK);
}

static grpc_op op_send_metadata(struct client_call *call)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.count = call->metadata_count;
    op.data.send_initial_metadata.metadata = call->metadata;
    return op;
}

static grpc_op op_send_message(struct client_call *call)
{
    return (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->outgoing};
}

static grpc_op op_receive_status(struct client_call *call)
{
    return (grpc_op){
        .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
        .data.recv_status_on_client = {.trailing_metadata = &call->trailing_metadata,
                                       .status = &call->code,
                                       .status_details = &call->details},
    };
}

void client_call_send(struct client_call *call,
                      grpc_byte_buffer *message,
                      enum client_call_more more)
{
    ASSERT(call->outgoing == NULL);
    ASSERT(!call->sending_last);
    call->outgoing = message;
    call->sending_last = more == CLIENT_CALL_LAST;
    call->pending++;
    const grpc_op ops[] = {op_send_message(call), {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}};
    start_batch(call, ops, call->sending_last ? 2 : 1, &call->send);
}

static void send_completed(struct client_call *call, bool ok)
{
    call->pending--;
    grpc_byte_buffer_destroy(call->outgoing);
    call->outgoing = NULL;
    if (ok && !call->cancelled && !call->has_status && !call->sending_last)
        call->handlers->sent(call->argument, call);
    done_if_idle(call);
}

void client_call_receive(struct client_call *call)
{
    ASSERT(call->incoming == NULL);
    call->pending++;
    const grpc_op ops[] = {
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming},
    };
    start_batch(call, ops, ARRAY_LENGTH(ops), &call->receive);
}

static void receive_completed(struct client_call *call, bool ok)
{
    call->pending--;
    grpc_byte_buffer *message = call->incoming;
    call->incoming = NULL;
    /* NULL is the end, of whatever kind; the status says of which. */
    if (message != NULL && ok && !call->cancelled)
        call->handlers->received(call->argument, call, message);
    else if (message != NULL)
        grpc_byte_buffer_destroy(message);
    done_if_idle(call);
}

/* With RECV_STATUS_ON_CLIENT in it a batch always succeeds; the code tells the rest. */
static void finish_completed(struct client_call *call, bool ok)
{
    (void)ok;
    call->pending--;
    call->has_status = true;
    done_if_idle(call);
}

static void done_if_idle(struct client_call *call)
{
    if (call->pending > 0)
        return;
    ASSERT(call->has_status);
    struct status status = {0};
    take_status(call, &status);
    grpc_byte_buffer *reply = NULL;
    if (call->unary_answer && status.code == STATUS_OK) {
        reply = call->incoming;
        call->incoming = NULL;
        if (reply == NULL)
            status_fail(&status, STATUS_INTERNAL, "the server said OK without an answer");
    }
    const struct client_call_handlers *handlers = call->handlers;
    void *argument = call->argument;

    if (call->incoming != NULL)
        grpc_byte_buffer_destroy(call->incoming);
    if (call->outgoing != NULL)
        grpc_byte_buffer_destroy(call->outgoing);
    for (size_t i = 0; i < call->metadata_count; i++)
        grpc_slice_unref(call->metadata[i].value);
    grpc_metadata_array_destroy(&call->initial_metadata);
    grpc_metadata_array_destroy(&call->trailing_metadata);
    grpc_slice_unref(call->details);
    grpc_call_unref(call->call);
    client_count_call(call->client, -1);
    free(call);
    handlers->done(argument, &status, reply);
}

static void take_status(const struct client_call *call, struct status *status)
{
    if (call->code == GRPC_STATUS_OK)
        return;
    const enum status_code code =
        call->code > GRPC_STATUS_OK && call->code <= GRPC_STATUS_UNAUTHENTICATED
            ? (enum status_code)call->code
            : STATUS_UNKNOWN;
    const size_t length = GRPC_SLICE_LENGTH(call->details);
    status_fail(status, code, "%.*s",
                length < STATUS_MESSAGE_BYTES_MAX ? (int)length : STATUS_MESSAGE_BYTES_MAX,
                (const char *)GRPC_SLICE_START_PTR(call->details));
}

void client_call_cancel(struct client_call *call)
{
    call->cancelled = true;
    grpc_call_cancel(call->call, NULL);
}

bool message_view_init(struct message_view *view, const grpc_byte_buffer *message)
{
    ASSERT(message->type == GRPC_BB_RAW);
    const grpc_slice_buffer *slices = &message->data.raw.slice_buffer;
    view->count = slices->count;
    view->parts = calloc(slices->count + 1, sizeof(*view->parts));
    if (view->parts == NULL)
        return false;
    for (size_t i = 0; i < slices->count; i++)
        view->parts[i] =
            bytes_of(GRPC_SLICE_START_PTR(slices->slices[i]), GRPC_SLICE_LENGTH(slices->slices[i]));
    return true;
}

void message_view_free(struct message_view *view)
{
    free(view->parts);
    *view = (struct message_view){0};
}

struct bytes_list message_view_list(const struct message_view *view)
{
    return (struct bytes_list){.parts = view->parts, .count = view->count};
}

uint8_t *message_flat(const grpc_byte_buffer *message, size_t *length)
{
    struct message_view view;
    if (!message_view_init(&view, message))
        return NULL;
    *length = bytes_list_length(message_view_list(&view));
    uint8_t *flat = malloc(*length + 1);
    if (flat != NULL)
        bytes_list_copy(message_view_list(&view), flat);
    message_view_free(&view);
    return flat;
}
