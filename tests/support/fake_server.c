/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_server.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"

struct fake_call {
    struct fake_server *server;   /* borrowed */
    grpc_completion_queue *queue; /* owned; this call's alone, plucked by its thread */
    grpc_call *call;              /* owned */
    grpc_call_details details;
    grpc_metadata_array metadata;
    char *method; /* owned */
    bool initial_metadata_sent, finished;
    int cancelled;
    _Atomic bool ended; /* the last thing that its thread does */
    pthread_t thread;
    struct fake_call *next; /* of the server's list */
};

struct fake_server {
    void (*serve)(void *argument, struct fake_call *call);
    void (*_Atomic finishing)(void *argument, struct fake_call *call); /* NULL: nobody asks */
    void *argument;
    char target[64];
    grpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
    struct fake_call *calls; /* of the thread; after its end of fake_server_stop() */
};

static void *accept_calls(void *argument);
static void reap_calls(struct fake_server *server);
static struct fake_call *call_new(struct fake_server *server);
static void call_free(struct fake_call *call);
static void *serve_call(void *argument);
static bool run_ops(struct fake_call *call, const grpc_op *ops, size_t count);
static grpc_byte_buffer *buffer_of(struct bytes message);

struct fake_server *fake_server_start(void (*serve)(void *argument, struct fake_call *call),
                                      void *argument)
{
    struct fake_server *server = calloc(1, sizeof(*server));
    ASSERT(server != NULL);
    server->serve = serve;
    server->argument = argument;
    grpc_init();
    grpc_arg arguments[] = {
        {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_ALLOW_REUSEPORT}, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH},
         .value.integer = -1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_SEND_MESSAGE_LENGTH},
         .value.integer = -1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_HTTP2_MAX_PING_STRIKES},
         .value.integer = 0},
    };
    const grpc_channel_args all = {.num_args = ARRAY_LENGTH(arguments), .args = arguments};
    server->server = grpc_server_create(&all, NULL);
    server->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server->server, server->queue, NULL);
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    const int port = grpc_server_add_http2_port(server->server, "127.0.0.1:0", credentials);
    grpc_server_credentials_release(credentials);
    ASSERT(port > 0);
    snprintf(server->target, sizeof(server->target), "127.0.0.1:%d", port);
    grpc_server_start(server->server);
    ASSERT(pthread_create(&server->thread, NULL, accept_calls, server) == 0);
    return server;
}

static void *accept_calls(void *argument)
{
    struct fake_server *server = argument;
    for (;;) {
        struct fake_call *call = call_new(server);
        const grpc_call_error error =
            grpc_server_request_call(server->server, &call->call, &call->details, &call->metadata,
                                     call->queue, server->queue, call);
        ASSERT(error == GRPC_CALL_OK);
        grpc_event event;
        do
            event = grpc_completion_queue_next(server->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                               NULL);
        while (event.tag != call);
        if (!event.success) { /* the server stops */
            call_free(call);
            return NULL;
        }
        reap_calls(server);
        call->next = server->calls;
        server->calls = call;
        ASSERT(pthread_create(&call->thread, NULL, serve_call, call) == 0);
    }
}

/* Threads that have ended hold their stack until they are joined. */
static void reap_calls(struct fake_server *server)
{
    for (struct fake_call **place = &server->calls; *place != NULL;) {
        struct fake_call *call = *place;
        if (!atomic_load(&call->ended)) {
            place = &call->next;
            continue;
        }
        *place = call->next;
        ASSERT(pthread_join(call->thread, NULL) == 0);
        call_free(call);
    }
}

static struct fake_call *call_new(struct fake_server *server)
{
    struct fake_call *call = calloc(1, sizeof(*call));
    ASSERT(call != NULL);
    call->server = server;
    call->queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    return call;
}

static void call_free(struct fake_call *call)
{
    free(call->method);
    if (call->call != NULL)
        grpc_call_unref(call->call);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    grpc_completion_queue_shutdown(call->queue);
    grpc_completion_queue_destroy(call->queue);
    free(call);
}

static void *serve_call(void *argument)
{
    struct fake_call *call = argument;
    const char *path = (const char *)GRPC_SLICE_START_PTR(call->details.method);
    call->method = strndup(path, GRPC_SLICE_LENGTH(call->details.method));
    ASSERT(call->method != NULL);

    /* Its own batch, started first and waited for last: it ends when the call does. */
    const grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                           .data.recv_close_on_server.cancelled = &call->cancelled};
    ASSERT(grpc_call_start_batch(call->call, &close, 1, &call->cancelled, NULL) == GRPC_CALL_OK);
    call->server->serve(call->server->argument, call);
    ASSERT(call->finished);
    grpc_completion_queue_pluck(call->queue, &call->cancelled, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                NULL);
    atomic_store(&call->ended, true);
    return NULL;
}

void fake_server_on_finish(struct fake_server *server,
                           void (*finishing)(void *argument, struct fake_call *call))
{
    server->finishing = finishing;
}

const char *fake_server_target(const struct fake_server *server)
{
    return server->target;
}

void fake_server_stop(struct fake_server *server)
{
    grpc_server_shutdown_and_notify(server->server, server->queue, server);
    grpc_server_cancel_all_calls(server->server);
    ASSERT(pthread_join(server->thread, NULL) == 0);
    for (struct fake_call *call = server->calls; call != NULL;) {
        struct fake_call *next = call->next;
        ASSERT(pthread_join(call->thread, NULL) == 0);
        call_free(call);
        call = next;
    }
    grpc_completion_queue_shutdown(server->queue);
    while (
        grpc_completion_queue_next(server->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
        GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_server_destroy(server->server);
    grpc_completion_queue_destroy(server->queue);
    free(server);
    grpc_shutdown();
}

const char *fake_call_method(const struct fake_call *call)
{
    return strrchr(call->method, '/') + 1;
}

const struct bytes *fake_call_metadata(const struct fake_call *call,
                                       const char *key,
                                       struct bytes *value)
{
    for (size_t i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *entry = &call->metadata.metadata[i];
        if (grpc_slice_str_cmp(entry->key, key) == 0) {
            *value = bytes_of(GRPC_SLICE_START_PTR(entry->value), GRPC_SLICE_LENGTH(entry->value));
            return value;
        }
    }
    return NULL;
}

bool fake_call_receive(struct fake_call *call, uint8_t **message, size_t *length)
{
    grpc_byte_buffer *buffer = NULL;
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &buffer};
    if (!run_ops(call, &op, 1) || buffer == NULL)
        return false;
    *length = grpc_byte_buffer_length(buffer);
    *message = malloc(*length + 1);
    ASSERT(*message != NULL);
    uint8_t *to = *message;
    for (size_t i = 0; i < buffer->data.raw.slice_buffer.count; i++) {
        const grpc_slice slice = buffer->data.raw.slice_buffer.slices[i];
        memcpy(to, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        to += GRPC_SLICE_LENGTH(slice);
    }
    grpc_byte_buffer_destroy(buffer);
    return true;
}

bool fake_call_send(struct fake_call *call, struct bytes message)
{
    grpc_byte_buffer *buffer = buffer_of(message);
    const grpc_op ops[] = {
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer},
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
    };
    const bool ok = run_ops(call, ops, call->initial_metadata_sent ? 1 : 2);
    call->initial_metadata_sent = true;
    grpc_byte_buffer_destroy(buffer);
    return ok;
}

void fake_call_finish(struct fake_call *call,
                      enum status_code code,
                      const char *text,
                      const struct bytes *reply)
{
    ASSERT(!call->finished);
    call->finished = true;
    void (*const finishing)(void *, struct fake_call *) = call->server->finishing;
    if (finishing != NULL)
        finishing(call->server->argument, call);
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_byte_buffer *buffer = reply != NULL ? buffer_of(*reply) : NULL;
    grpc_op ops[3];
    size_t count = 0;
    ops[count++] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                             .data.send_status_from_server = {.status = (grpc_status_code)code,
                                                              .status_details = &details}};
    if (!call->initial_metadata_sent)
        ops[count++] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (buffer != NULL)
        ops[count++] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};
    run_ops(call, ops, count);
    grpc_slice_unref(details);
    if (buffer != NULL)
        grpc_byte_buffer_destroy(buffer);
}

void fake_call_hang(struct fake_call *call)
{
    uint8_t *message;
    size_t length;
    while (fake_call_receive(call, &message, &length))
        free(message);
    /* After a clean end of the client's stream only its going away ends this. */
    const grpc_event event = grpc_completion_queue_pluck(call->queue, &call->cancelled,
                                                         gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    ASSERT(event.type == GRPC_OP_COMPLETE);
    fake_call_finish(call, STATUS_CANCELLED, "hung", NULL);
    /* serve_call() waits for the same tag: a no-op batch completes it once more. */
    ASSERT(grpc_call_start_batch(call->call, NULL, 0, &call->cancelled, NULL) == GRPC_CALL_OK);
}

static bool run_ops(struct fake_call *call, const grpc_op *ops, size_t count)
{
    int tag = 0;
    const grpc_call_error error = grpc_call_start_batch(call->call, ops, count, &tag, NULL);
    ASSERT(error == GRPC_CALL_OK);
    const grpc_event event =
        grpc_completion_queue_pluck(call->queue, &tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return event.success != 0;
}

static grpc_byte_buffer *buffer_of(struct bytes message)
{
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)message.data, message.length);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}
