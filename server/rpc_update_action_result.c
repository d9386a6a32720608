/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ActionCache.UpdateActionResult: stores the client's bytes of the result, unknown fields and all.
 * What it names may still be missing; that is looked at when it is asked for (docs/protocol.md, decision 9).
 * The last writer wins: of two that write at once one waits for the other, and has the later time, whatever the clocks say, so that every
 * node that hears of both comes to the same end (server/flights.h).
 */
#include <inttypes.h>

#include "base/crc32c.h"
#include "proto/hot_messages.h"
#include "server/action_answer.h"
#include "server/action_time.h"
#include "server/completeness.h"
#include "server/flights.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/writer.h"
#include "store/action_record.h"

struct state {
    struct call *call;
    struct digest action;
    struct bytes instance;
    struct bytes result;
    struct flight flight;
    struct flight_waiter waiter;
    struct bytes payload[4]; /* fixed part, instance, writer, result */
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    char writer[WRITER_BYTES_MAX];
    struct record record;
    struct commit_request commit;
    struct status committed;
};

static bool take_request(struct call *call,
                         struct state *state,
                         const struct message *message,
                         struct status *status);
static void claim(struct call *call, void *state_memory);
static void may_claim(struct flight_waiter *waiter);
static void make_record(struct call *call, struct state *state);
static bool decode(struct call *call,
                   const struct message *message,
                   struct update_action_result_request *request,
                   struct digest *action,
                   struct status *status);
static void on_committed(struct ack *ack, const struct status *result);
static void reply(struct call *call, void *state);

static void on_message(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    if (take_request(call, state, message, &status))
        claim(call, state);
    else
        call_fail(call, &status);
}

static bool take_request(struct call *call,
                         struct state *state,
                         const struct message *message,
                         struct status *status)
{
    struct update_action_result_request request;
    if (!decode(call, message, &request, &state->action, status))
        return false;
    state->call = call;
    state->instance = request.instance_name;
    state->result = request.action_result;
    state->waiter.ready = may_claim;
    return true;
}

/* The turn is handed on: to whoever ends the write that this one waits for, or to the commit. */
static void claim(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    struct server *const server = call_server(call);
    const struct blob_key key =
        blob_table_action_key(server->store->table, &state->action, state->instance);
    if (!flights_begin(server->flights, key, &state->flight, &state->waiter))
        return;
    make_record(call, state);
    call_commit_begins(call);
    commit_submit(durability_commit(server->durability, LANE_SMALL), &state->commit);
}

/* On the thread of whoever was before. */
static void may_claim(struct flight_waiter *waiter)
{
    call_resume(CONTAINER_OF(waiter, struct state, waiter)->call, claim);
}

static void make_record(struct call *call, struct state *state)
{
    const struct server *const server = call_server(call);
    const struct action_record record = {
        .written_wall_ns = action_time_of_writing(server->store, &state->action, state->instance),
        .node_uid = server->store->node_uid,
        .instance = state->instance,
        .writer = bytes_of(state->writer, writer_put(state->writer, call_tool_name(call),
                                                     call_caller(call), call_peer(call))),
        .result = state->result,
    };
    action_record_fixed_put(state->fixed, &record);
    state->payload[0] = bytes_of(state->fixed, sizeof(state->fixed));
    state->payload[1] = record.instance;
    state->payload[2] = record.writer;
    state->payload[3] = record.result;

    const struct bytes_list payload = {.parts = state->payload,
                                       .count = ARRAY_LENGTH(state->payload)};
    state->record = (struct record){
        .kind = RECORD_ACTION,
        .digest = state->action,
        .payload = payload,
        .payload_bytes = bytes_list_length(payload),
        .payload_crc32c = crc32c_list(0, payload),
    };
    state->commit = (struct commit_request){
        .record = &state->record,
        .instance = state->instance,
        .ack = {.done = on_committed},
    };
}

static bool decode(struct call *call,
                   const struct message *message,
                   struct update_action_result_request *request,
                   struct digest *action,
                   struct status *status)
{
    if (!update_action_result_decode(message->parts, call_arena(call), request, status) ||
        !call_check_instance(call, request->instance_name, status))
        return false;
    if (!request->has_action_digest)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "UpdateActionResultRequest: action_digest is not set");
    if (!request->has_action_result)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "UpdateActionResultRequest: action_result is not set");
    const enum digest_function function = (enum digest_function)request->digest_function;
    if (!digest_parse(function, request->action_digest.hash_hex, request->action_digest.size_bytes,
                      action, status)) {
        status_prefix(status, "action_digest");
        return false;
    }
    char text[DIGEST_TEXT_BYTES_MAX];
    if (request->action_result.length > LIMIT_ACTION_RESULT_BYTES)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "the result of action %s has %zu bytes, at most %" PRIu64
                           " are stored; output directories as Trees take less",
                           digest_text(action, text), request->action_result.length,
                           (uint64_t)LIMIT_ACTION_RESULT_BYTES);
    if (!action_result_check(request->action_result, function, call_arena(call), status)) {
        status_prefix(status, "the result of action %s", digest_text(action, text));
        return false;
    }
    return true;
}

/* On the ack thread. */
static void on_committed(struct ack *ack, const struct status *result)
{
    struct state *const state = CONTAINER_OF(ack, struct state, commit.ack);
    state->committed = *result;
    flights_end(call_server(state->call)->flights, &state->flight);
    reply(state->call, state);
}

static void reply(struct call *call, void *state_memory)
{
    const struct state *const state = state_memory;
    if (state->committed.code != STATUS_OK) {
        call_fail(call, &state->committed);
        return;
    }
    const struct bytes metadata = action_answer_metadata(state->result);
    grpc_slice response = grpc_slice_malloc(state->result.length + metadata.length);
    uint8_t *const to = GRPC_SLICE_START_PTR(response);
    if (state->result.length > 0)
        memcpy(to, state->result.data, state->result.length);
    if (metadata.length > 0)
        memcpy(to + state->result.length, metadata.data, metadata.length);
    call_reply(call, &response, 1);
}

const struct method rpc_update_action_result = {
    .path = "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult",
    .kind = METHOD_UNARY,
    .role = ROLE_WRITE_AC,
    .writes = true,
    .has_instance = true,
    .state_bytes = sizeof(struct state),
    .on_message = on_message,
};
