/* SPDX-License-Identifier: Apache-2.0 */
/* What call.c shows to call_request.c. */
#ifndef VARVE_SERVER_CALL_PRIVATE_H
#define VARVE_SERVER_CALL_PRIVATE_H

#include <grpc/grpc_security.h>

#include "server/access.h"
#include "server/call.h"

/* With the turn; borrowed. */
const grpc_metadata_array *call_metadata(const struct call *call);
grpc_call *call_grpc(const struct call *call);

/*
 * What the caller shows: lies in the call's metadata and in *memory, which is to be freed. False, and *status, when it shows more than
 * one authorization.
 */
struct call_credentials {
    grpc_auth_context *context; /* owned; NULL: no certificate was looked for */
    char *peer;                 /* owned, by gpr_malloc */
};
MUST_CHECK bool call_credentials_take(struct call *call,
                                      struct call_credentials *credentials,
                                      struct access_shown *shown,
                                      struct status *status);
/* With the turn: in answer_here, where what is refused is not counted, since on_message refuses it again. */
bool call_is_tried_here(const struct call *call);
/* Whose series it counts in from now on: server/instance_metrics.h. With the turn. */
void call_set_instance(struct call *call, size_t instance);
void call_credentials_clear(struct call_credentials *credentials);

#endif
