/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every method that is served, one object for each, defined in the rpc_*.c of its name. methods.c
 * lists them.
 */
#ifndef VARVE_SERVER_METHODS_H
#define VARVE_SERVER_METHODS_H

#include "server/call.h"

/* build.bazel.remote.execution.v2 */
extern const struct method rpc_get_capabilities;
extern const struct method rpc_find_missing;
extern const struct method rpc_batch_update;
extern const struct method rpc_batch_read;
extern const struct method rpc_get_tree;
extern const struct method rpc_get_action_result;
extern const struct method rpc_update_action_result;

/* google.bytestream */
extern const struct method rpc_read;
extern const struct method rpc_write;
extern const struct method rpc_query_write_status;

/* grpc.health.v1 */
extern const struct method rpc_health_check;
extern const struct method rpc_health_watch;
extern const struct method rpc_health_list;

/* grpc.reflection */
extern const struct method rpc_reflection_v1;
extern const struct method rpc_reflection_v1alpha;

/* varve.v1 */
extern const struct method rpc_store_stat;
extern const struct method rpc_store_status;
extern const struct method rpc_store_scrub;
extern const struct method rpc_feed;
extern const struct method rpc_fetch;
extern const struct method rpc_peers;
extern const struct method rpc_admin_stats;
extern const struct method rpc_admin_forget;
extern const struct method rpc_admin_drain;
extern const struct method rpc_admin_undrain;
extern const struct method rpc_admin_set_read_only;
extern const struct method rpc_admin_explain;
extern const struct method rpc_admin_who;

#endif
