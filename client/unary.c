/* SPDX-License-Identifier: Apache-2.0 */
#include "client/unary.h"

#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

#include "client/messages.h"

struct unary {
    struct client *client; /* borrowed */
    struct unary_request request;
    struct client_call *call; /* the client's; NULL between two tries */
    struct retry retry;
    struct timer timer;
    bool cancelled;
};

static bool try_once(struct unary *unary, struct status *status);
static void try_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void try_again(struct timer *timer);
static void finish(struct unary *unary, const struct status *status, grpc_byte_buffer *reply);

static const struct client_call_handlers unary_handlers = {.done = try_done};

bool unary_start(struct client *client,
                 const struct unary_request *request,
                 struct unary **unary_out,
                 struct status *status)
{
    struct unary *unary = calloc(1, sizeof(*unary));
    if (unary == NULL) {
        grpc_slice_unref(request->body);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a call");
    }
    unary->client = client;
    unary->request = *request;
    unary->timer.run = try_again;
    retry_init(&unary->retry, client_retry_policy(client));
    *unary_out = unary;
    if (try_once(unary, status))
        return true;
    grpc_slice_unref(unary->request.body);
    free(unary);
    return false;
}

static bool try_once(struct unary *unary, struct status *status)
{
    const struct client_call_options options = {
        .method = unary->request.method,
        .timeout_ns = client_call_timeout_ns(unary->client),
        .loop = unary->request.loop,
        .handlers = &unary_handlers,
        .argument = unary,
    };
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&unary->request.body, 1);
    return client_call_unary(unary->client, &options, message, &unary->call, status);
}

static void try_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct unary *unary = argument;
    unary->call = NULL;
    int64_t pause_ns;
    if (status->code != STATUS_OK && !unary->cancelled &&
        retry_again(&unary->retry, status, false, &pause_ns))
        event_loop_start_timer(unary->request.loop, &unary->timer, pause_ns);
    else
        finish(unary, status, reply);
}

static void try_again(struct timer *timer)
{
    struct unary *unary = CONTAINER_OF(timer, struct unary, timer);
    struct status status = {0};
    if (unary->cancelled)
        status_fail(&status, STATUS_CANCELLED, "cancelled");
    else if (try_once(unary, &status))
        return;
    finish(unary, &status, NULL);
}

static void finish(struct unary *unary, const struct status *status, grpc_byte_buffer *reply)
{
    const struct unary_request request = unary->request;
    grpc_slice_unref(unary->request.body);
    free(unary);
    request.done(request.argument, status, reply);
}

void unary_cancel(struct unary *unary)
{
    unary->cancelled = true;
    if (unary->call != NULL)
        client_call_cancel(unary->call);
    else
        event_loop_start_timer(unary->request.loop, &unary->timer, 0);
}

void unary_stop_trying(struct unary *unary)
{
    unary->retry.policy.tries_max = 1;
    if (unary->call == NULL)
        unary_cancel(unary);
}

struct unary_wait {
    bool finished;
    struct status status;
    grpc_byte_buffer *reply;
};

static void wait_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct unary_wait *wait = argument;
    wait->finished = true;
    wait->status = *status;
    wait->reply = reply;
}

bool unary_call(struct client *client,
                const char *method,
                grpc_slice body,
                grpc_byte_buffer **reply,
                struct status *status)
{
    struct event_loop loop;
    event_loop_init(&loop, client_clock(client));
    struct unary_wait wait = {0};
    struct unary *unary;
    const struct unary_request request = {
        .method = method, .body = body, .loop = &loop, .done = wait_done, .argument = &wait};
    bool ok = unary_start(client, &request, &unary, status);
    if (ok) {
        event_loop_run_until(&loop, &wait.finished);
        ok = wait.status.code == STATUS_OK;
        if (ok)
            *reply = wait.reply;
        else
            *status = wait.status;
    }
    event_loop_destroy(&loop);
    if (!ok)
        status_prefix(status, "%s", strrchr(method, '/') + 1);
    return ok;
}

void *unary_call_unpacked(struct client *client,
                          const char *method,
                          grpc_slice body,
                          const struct ProtobufCMessageDescriptor *descriptor,
                          struct status *status)
{
    grpc_byte_buffer *reply;
    if (!unary_call(client, method, body, &reply, status))
        return NULL;
    size_t length;
    uint8_t *flat = message_flat(reply, &length);
    grpc_byte_buffer_destroy(reply);
    void *message = flat != NULL ? protobuf_c_message_unpack(descriptor, NULL, length, flat) : NULL;
    free(flat);
    if (message == NULL)
        status_fail(status, STATUS_INTERNAL, "%s: the server's answer is malformed",
                    strrchr(method, '/') + 1);
    return message;
}
