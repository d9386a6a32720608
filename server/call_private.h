/* SPDX-License-Identifier: Apache-2.0 */
/* What call.c shows to call_request.c. */
#ifndef VARVE_SERVER_CALL_PRIVATE_H
#define VARVE_SERVER_CALL_PRIVATE_H

#include "server/call.h"

/* With the turn; borrowed. */
const grpc_metadata_array *call_metadata(const struct call *call);
grpc_call *call_grpc(const struct call *call);

#endif
