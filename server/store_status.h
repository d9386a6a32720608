/* SPDX-License-Identifier: Apache-2.0 */
/* What varve.v1.Store/Status says of the server, for all who say it. */
#ifndef VARVE_SERVER_STORE_STATUS_H
#define VARVE_SERVER_STORE_STATUS_H

#include "server/server.h"
#include "varve/v1/varve.pb-c.h"

/* The message with all that it points to, which lies in here: not to be moved. */
struct store_status {
    Varve__V1__StatusResponse response;
    Varve__V1__LaneStatus lanes[LANE_COUNT];
    Varve__V1__LaneStatus *lane_pointers[LANE_COUNT];
    Varve__V1__ScrubResponse scrub;
    struct status failure;
};

/* Errors: what the disk says when it is asked for its sizes. */
MUST_CHECK bool store_status_fill(struct server *server,
                                  struct store_status *to,
                                  struct status *status);

void store_status_scrub(struct server *server, Varve__V1__ScrubResponse *response);
Varve__V1__StatusResponse__State store_status_state(enum server_state state);
Varve__V1__Lane store_status_lane(enum lane lane);

#endif
