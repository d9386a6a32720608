/* SPDX-License-Identifier: Apache-2.0 */
#include "client/action_cache.h"

#include "client/call.h"
#include "client/messages.h"
#include "client/unary.h"

enum {
    FIELD_INSTANCE_NAME = 1,
    FIELD_ACTION_DIGEST = 2,
    FIELD_ACTION_RESULT = 3,
    FIELD_UPDATE_FUNCTION = 5,
    FIELD_GET_FUNCTION = 6,
};

/* result NULL: a GetActionResultRequest, else an UpdateActionResultRequest. */
static grpc_slice request(struct bytes instance,
                          const struct digest *action,
                          const struct bytes *result,
                          uint32_t function_field)
{
    const size_t digest_bytes = digest_message_size(action);
    const size_t length =
        (instance.length > 0 ? wire_bytes_field_size(FIELD_INSTANCE_NAME, instance.length) : 0) +
        wire_bytes_field_size(FIELD_ACTION_DIGEST, digest_bytes) +
        (result != NULL ? wire_bytes_field_size(FIELD_ACTION_RESULT, result->length) : 0) +
        wire_varint_field_size(function_field, action->function);
    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    if (instance.length > 0)
        to = wire_put_bytes_field(to, FIELD_INSTANCE_NAME, instance);
    to = wire_put_bytes_key(to, FIELD_ACTION_DIGEST, digest_bytes);
    to = digest_message_put(to, action);
    if (result != NULL)
        to = wire_put_bytes_field(to, FIELD_ACTION_RESULT, *result);
    to = wire_put_varint_field(to, function_field, action->function);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    return slice;
}

grpc_slice action_cache_get_request(struct bytes instance, const struct digest *action)
{
    return request(instance, action, NULL, FIELD_GET_FUNCTION);
}

grpc_slice action_cache_update_request(struct bytes instance,
                                       const struct digest *action,
                                       struct bytes result)
{
    return request(instance, action, &result, FIELD_UPDATE_FUNCTION);
}

bool action_cache_get(struct client *client,
                      const struct digest *action,
                      bool *found,
                      uint8_t **result,
                      size_t *result_length,
                      struct status *status)
{
    grpc_byte_buffer *reply;
    struct status failure = {0};
    if (!unary_call(client, METHOD_GET_ACTION_RESULT,
                    action_cache_get_request(client_instance_name(client), action), &reply,
                    &failure)) {
        *found = false;
        if (failure.code == STATUS_NOT_FOUND)
            return true;
        *status = failure;
        return false;
    }
    *result = message_flat(reply, result_length);
    grpc_byte_buffer_destroy(reply);
    *found = true;
    return *result != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an action result");
}

bool action_cache_update(struct client *client,
                         const struct digest *action,
                         struct bytes result,
                         struct status *status)
{
    grpc_byte_buffer *reply;
    if (!unary_call(client, METHOD_UPDATE_ACTION_RESULT,
                    action_cache_update_request(client_instance_name(client), action, result),
                    &reply, status))
        return false;
    grpc_byte_buffer_destroy(reply);
    return true;
}
