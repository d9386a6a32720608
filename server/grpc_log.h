/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's own log lines as events of ours, at most so many a second: a client can make it write one
 * for each bad header.
 */
#ifndef VARVE_SERVER_GRPC_LOG_H
#define VARVE_SERVER_GRPC_LOG_H

/* Before grpc_init(). For the process. */
void grpc_log_install(void);

#endif
