/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Action results of a server, as encoded ActionResult messages: what is stored and returned is
 * never re-encoded.
 */
#ifndef VARVE_CLIENT_ACTION_CACHE_H
#define VARVE_CLIENT_ACTION_CACHE_H

#include <grpc/slice.h>

#include "base/digest.h"
#include "client/connection.h"

/* For METHOD_GET_ACTION_RESULT and METHOD_UPDATE_ACTION_RESULT; slices owned by the caller. */
grpc_slice action_cache_get_request(struct bytes instance, const struct digest *action);
grpc_slice action_cache_update_request(struct bytes instance,
                                       const struct digest *action,
                                       struct bytes result);

/*
 * *result: freed by the caller with free(); set when *found. "Not there" is no failure. Waits for
 * the answer.
 */
MUST_CHECK bool action_cache_get(struct client *client,
                                 const struct digest *action,
                                 bool *found,
                                 uint8_t **result,
                                 size_t *result_length,
                                 struct status *status);

/* result: an encoded ActionResult. Waits for the answer. */
MUST_CHECK bool action_cache_update(struct client *client,
                                    const struct digest *action,
                                    struct bytes result,
                                    struct status *status);

#endif
