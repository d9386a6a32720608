/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google.bytestream.ByteStream/QueryWriteStatus: how far an upload has come. What nobody knows of has come to 0, and is no error:
 * Bazel 5 and later give an upload up when they are told NOT_FOUND (docs/protocol.md, decision 3).
 */
#include "proto/hot_messages.h"
#include "server/byte_stream.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/uploads.h"

static void on_message(struct call *call, void *state, const struct message *message);
static bool answer(struct call *call,
                   const struct message *message,
                   uint8_t to[SMALL_RESPONSE_BYTES_MAX],
                   size_t *length,
                   struct status *status);

const struct method rpc_query_write_status = {
    .path = "/google.bytestream.ByteStream/QueryWriteStatus",
    .kind = METHOD_UNARY,
    .role = ROLE_WRITE_CAS,
    .has_instance = true,
    .on_poller = true,
    .on_message = on_message,
};

static void on_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct status status;
    uint8_t response[SMALL_RESPONSE_BYTES_MAX];
    size_t length = 0;
    if (!answer(call, message, response, &length, &status)) {
        call_fail(call, &status);
        return;
    }
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)response, length);
    call_reply(call, &slice, 1);
}

static bool answer(struct call *call,
                   const struct message *message,
                   uint8_t to[SMALL_RESPONSE_BYTES_MAX],
                   size_t *length,
                   struct status *status)
{
    struct server *const server = call_server(call);
    struct read_request request;
    struct resource_name name;
    if (!read_request_decode(message->parts, call_arena(call), &request, status) ||
        !resource_name_parse_write(request.resource_name, &name, status) ||
        !call_check_instance(call, name.instance, status))
        return false;
    const bool there = store_has_blob(server->store, &name.digest);
    /* Not on as many other nodes yet as it should: the client sends it again, and waits for that. */
    if (there && copies_cover_blob(durability_copies(server->durability), &name.digest))
        *length = query_write_status_response_put(to, name.digest.size_bytes, true);
    else if (there)
        *length = query_write_status_response_put(to, 0, false);
    else
        *length = query_write_status_response_put(
            to, (int64_t)upload_table_held_bytes(server->uploads, &name), false);
    return true;
}
