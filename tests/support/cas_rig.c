/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/cas_rig.h"

#include "base/limits.h"
#include "server/methods.h"

/* Hands things over to calls through gRPC, where ThreadSanitizer does not see it. */
__attribute__((no_sanitize_thread)) void cas_rig_start(struct cas_rig *rig, size_t buffers)
{
    static const struct method *const methods[] = {
        &rpc_find_missing, &rpc_batch_update,      &rpc_batch_read,
        &rpc_get_tree,     &rpc_get_action_result, &rpc_update_action_result,
    };
    *rig = (struct cas_rig){0};
    real_store_open(&rig->real, &rig->store_metrics, buffers);
    front_rig_start(&rig->front, methods, ARRAY_LENGTH(methods), NULL);
    rig->front.config.max_blob_bytes = LIMIT_BLOB_BYTES;
    rig->front.server.buffers = rig->real.buffers;
    rig->front.server.durability = rig->real.durability;
    rig->front.server.store = rig->real.store;
}

void cas_rig_stop(struct cas_rig *rig)
{
    front_rig_stop(&rig->front, 10000);
    real_store_close(&rig->real);
}

grpc_status_code cas_rig_call(struct cas_rig *rig,
                              const char *path,
                              struct byte_builder *request,
                              struct byte_builder *response,
                              char text[RPC_TEXT_BYTES_MAX])
{
    *response = (struct byte_builder){0};
    const grpc_status_code code =
        rpc_unary(&rig->front.client, path, bytes_of(request->data, request->length),
                  &response->data, &response->length, text);
    response->capacity = response->length;
    byte_builder_free(request);
    return code;
}
