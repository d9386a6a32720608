/* SPDX-License-Identifier: Apache-2.0 */
#include "server/methods.h"

const struct method *const server_methods[] = {
    &rpc_get_capabilities,
    &rpc_find_missing,
    &rpc_batch_update,
    &rpc_batch_read,
    &rpc_get_tree,
    &rpc_get_action_result,
    &rpc_update_action_result,
    &rpc_read,
    &rpc_write,
    &rpc_query_write_status,
    &rpc_health_check,
    &rpc_health_watch,
    &rpc_health_list,
    &rpc_reflection_v1,
    &rpc_reflection_v1alpha,
    &rpc_store_stat,
    &rpc_store_status,
    &rpc_store_scrub,
    &rpc_feed,
    &rpc_fetch,
    &rpc_peers,
    &rpc_admin_stats,
    &rpc_admin_forget,
    &rpc_admin_drain,
    &rpc_admin_undrain,
    &rpc_admin_set_read_only,
    &rpc_admin_explain,
    &rpc_admin_who,
};

const size_t server_methods_count = ARRAY_LENGTH(server_methods);
