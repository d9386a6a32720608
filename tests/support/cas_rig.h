/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of the server over gRPC with a real store behind them and a client in front, all in one
 * process.
 */
#ifndef VARVE_TESTS_SUPPORT_CAS_RIG_H
#define VARVE_TESTS_SUPPORT_CAS_RIG_H

#include "server/byte_builder.h"
#include "tests/support/front_rig.h"
#include "tests/support/real_store.h"

struct cas_rig {
    struct front_rig front;
    struct real_store real;
    struct metrics store_metrics;
};

/*
 * Serves the CAS without its byte streams, and the action cache. buffers: how many there are in the
 * pool.
 */
void cas_rig_start(struct cas_rig *rig, size_t buffers);
void cas_rig_stop(struct cas_rig *rig);

#define CAS_METHOD(name) "/build.bazel.remote.execution.v2.ContentAddressableStorage/" name
#define AC_METHOD(name) "/build.bazel.remote.execution.v2.ActionCache/" name

/* A unary call with a request, which is emptied and freed. *response is freed by the caller. */
grpc_status_code cas_rig_call(struct cas_rig *rig,
                              const char *path,
                              struct byte_builder *request,
                              struct byte_builder *response,
                              char text[RPC_TEXT_BYTES_MAX]);

#endif
