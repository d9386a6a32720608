/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rpc_client.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"

enum { STEP_SECONDS_MAX = 60 };

/* What a batch of the client is; the tag. Owned by the batch in flight. */
struct step {
    struct rpc *rpc;
    bool *pending;
    bool *ok; /* may be NULL */
    grpc_byte_buffer *sent;
};

static bool pump(struct rpc_client *client, gpr_timespec until);
static void start(struct rpc *rpc,
                  const grpc_op *op,
                  bool *pending,
                  bool *ok,
                  grpc_byte_buffer *sent);
static void wait_while(struct rpc *rpc, const bool *pending);

void rpc_client_open(struct rpc_client *client, int port)
{
    char target[64];
    snprintf(target, sizeof(target), "127.0.0.1:%d", port);
    grpc_arg args[] = {
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
         .value.integer = 1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
         .value.integer = -1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_RETRIES,
         .value.integer = 0},
    };
    const grpc_channel_args list = {.num_args = ARRAY_LENGTH(args), .args = args};
    grpc_channel_credentials *const credentials = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(target, credentials, &list);
    grpc_channel_credentials_release(credentials);
    client->cq = grpc_completion_queue_create_for_next(NULL);
}

void rpc_client_close(struct rpc_client *client)
{
    grpc_channel_destroy(client->channel);
    grpc_completion_queue_shutdown(client->cq);
    while (pump(client, gpr_inf_future(GPR_CLOCK_MONOTONIC)))
        continue;
    grpc_completion_queue_destroy(client->cq);
}

/* Handles one event; false when the queue is shut down or the time is over. */
static bool pump(struct rpc_client *client, gpr_timespec until)
{
    const grpc_event event = grpc_completion_queue_next(client->cq, until, NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return false;
    struct step *const step = event.tag;
    step->rpc->pending--;
    *step->pending = false;
    if (step->ok != NULL)
        *step->ok = event.success != 0;
    if (step->sent != NULL)
        grpc_byte_buffer_destroy(step->sent);
    free(step);
    return true;
}

static gpr_timespec in_ms(int64_t ms)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

static void wait_while(struct rpc *rpc, const bool *pending)
{
    const gpr_timespec until = in_ms(INT64_C(1000) * STEP_SECONDS_MAX);
    while (*pending)
        ASSERT(pump(rpc->client, until));
}

void rpc_begin(struct rpc *rpc, struct rpc_client *client, const char *path)
{
    rpc_begin_with(rpc, client, path, 0, NULL, 0);
}

void rpc_begin_with(struct rpc *rpc,
                    struct rpc_client *client,
                    const char *path,
                    int timeout_ms,
                    grpc_metadata *metadata,
                    size_t metadata_count)
{
    *rpc = (struct rpc){.client = client};
    grpc_metadata_array_init(&rpc->headers);
    grpc_metadata_array_init(&rpc->trailers);
    const gpr_timespec deadline =
        timeout_ms > 0 ? in_ms(timeout_ms) : gpr_inf_future(GPR_CLOCK_MONOTONIC);
    const grpc_slice method = grpc_slice_from_copied_string(path);
    rpc->call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->cq,
                                         method, NULL, deadline, NULL);
    grpc_slice_unref(method);
    rpc->running = true;
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &rpc->trailers;
    status.data.recv_status_on_client.status = &rpc->code;
    status.data.recv_status_on_client.status_details = &rpc->text_slice;
    start(rpc, &status, &rpc->running, NULL, NULL);

    rpc->send_pending = true;
    grpc_op headers = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    headers.data.send_initial_metadata.metadata = metadata;
    headers.data.send_initial_metadata.count = metadata_count;
    start(rpc, &headers, &rpc->send_pending, &rpc->sent_ok, NULL);
    wait_while(rpc, &rpc->send_pending);

    /* C-core tells a status only to those who have asked for the headers. */
    grpc_op received = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    received.data.recv_initial_metadata.recv_initial_metadata = &rpc->headers;
    start(rpc, &received, &rpc->headers_pending, NULL, NULL);
}

static void start(struct rpc *rpc,
                  const grpc_op *op,
                  bool *pending,
                  bool *ok,
                  grpc_byte_buffer *sent)
{
    struct step *const step = malloc(sizeof(*step));
    ASSERT(step != NULL);
    *step = (struct step){.rpc = rpc, .pending = pending, .ok = ok, .sent = sent};
    *pending = true;
    rpc->pending++;
    ASSERT(grpc_call_start_batch(rpc->call, op, 1, step, NULL) == GRPC_CALL_OK);
}

void rpc_start_send(struct rpc *rpc, struct bytes message)
{
    wait_while(rpc, &rpc->send_pending);
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)message.data, message.length);
    grpc_byte_buffer *const buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = buffer;
    start(rpc, &op, &rpc->send_pending, &rpc->sent_ok, buffer);
}

bool rpc_send(struct rpc *rpc, struct bytes message)
{
    rpc_start_send(rpc, message);
    wait_while(rpc, &rpc->send_pending);
    return rpc->sent_ok;
}

bool rpc_half_close(struct rpc *rpc)
{
    wait_while(rpc, &rpc->send_pending);
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    start(rpc, &op, &rpc->send_pending, &rpc->sent_ok, NULL);
    wait_while(rpc, &rpc->send_pending);
    return rpc->sent_ok;
}

uint8_t *rpc_receive(struct rpc *rpc, size_t *length)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &rpc->received;
    start(rpc, &op, &rpc->receive_pending, NULL, NULL);
    wait_while(rpc, &rpc->receive_pending);
    if (rpc->received == NULL)
        return NULL;

    grpc_byte_buffer_reader reader;
    ASSERT(grpc_byte_buffer_reader_init(&reader, rpc->received));
    const grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(rpc->received);
    rpc->received = NULL;
    *length = GRPC_SLICE_LENGTH(slice);
    uint8_t *const copy = malloc(*length + 1);
    ASSERT(copy != NULL);
    memcpy(copy, GRPC_SLICE_START_PTR(slice), *length);
    grpc_slice_unref(slice);
    return copy;
}

void rpc_cancel(struct rpc *rpc)
{
    ASSERT(grpc_call_cancel(rpc->call, NULL) == GRPC_CALL_OK);
}

bool rpc_wait_ended(struct rpc *rpc, int timeout_ms)
{
    const gpr_timespec until = in_ms(timeout_ms);
    while (rpc->running)
        if (!pump(rpc->client, until))
            return false;
    return true;
}

struct bytes rpc_trailer(const struct rpc *rpc, const char *key)
{
    for (size_t i = 0; i < rpc->trailers.count; i++) {
        const grpc_metadata *const entry = &rpc->trailers.metadata[i];
        if (grpc_slice_str_cmp(entry->key, key) == 0)
            return bytes_of(GRPC_SLICE_START_PTR(entry->value), GRPC_SLICE_LENGTH(entry->value));
    }
    return (struct bytes){0};
}

grpc_status_code rpc_end(struct rpc *rpc)
{
    /* Nor is it told while messages are left: they are thrown away. */
    size_t length;
    uint8_t *left;
    while (rpc->running && (left = rpc_receive(rpc, &length)) != NULL)
        free(left);
    wait_while(rpc, &rpc->running);
    const gpr_timespec until = in_ms(INT64_C(1000) * STEP_SECONDS_MAX);
    while (rpc->pending > 0)
        ASSERT(pump(rpc->client, until));
    length = GRPC_SLICE_LENGTH(rpc->text_slice);
    if (length >= RPC_TEXT_BYTES_MAX)
        length = RPC_TEXT_BYTES_MAX - 1;
    memcpy(rpc->text, GRPC_SLICE_START_PTR(rpc->text_slice), length);
    rpc->text[length] = '\0';
    grpc_slice_unref(rpc->text_slice);
    grpc_metadata_array_destroy(&rpc->headers);
    grpc_metadata_array_destroy(&rpc->trailers);
    if (rpc->received != NULL)
        grpc_byte_buffer_destroy(rpc->received);
    grpc_call_unref(rpc->call);
    rpc->call = NULL;
    return rpc->code;
}

grpc_status_code rpc_unary(struct rpc_client *client,
                           const char *path,
                           struct bytes request,
                           uint8_t **response,
                           size_t *response_length,
                           char *text)
{
    struct rpc rpc;
    size_t length = 0;
    rpc_begin(&rpc, client, path);
    rpc_start_send(&rpc, request);
    uint8_t *const received = rpc_receive(&rpc, &length);
    const grpc_status_code code = rpc_end(&rpc);
    if (text != NULL)
        memcpy(text, rpc.text, RPC_TEXT_BYTES_MAX);
    if (response == NULL) {
        free(received);
        return code;
    }
    *response = received;
    *response_length = length;
    return code;
}
