/* SPDX-License-Identifier: Apache-2.0 */
/* varve's own service Store of a server (varve.v1): where blobs lie, how the server is. */
#ifndef VARVE_CLIENT_STORE_SERVICE_H
#define VARVE_CLIENT_STORE_SERVICE_H

#include "base/digest.h"
#include "client/connection.h"

/* enum values are those of varve.v1.Lane and varve.v1.StatusResponse.State. */
struct blob_place {
    bool present;
    int lane;
    uint64_t segment, offset, stored_bytes;
};

/*
 * places[i] is that of digests[i]. Waits for the answer; any count, asked in pages.
 * Errors: UNIMPLEMENTED when the server is not varve.
 */
MUST_CHECK bool store_service_stat(struct client *client,
                                   const struct digest *digests,
                                   struct blob_place *places,
                                   size_t count,
                                   struct status *status);

/* Fields are those of varve.v1.ScrubResponse. */
struct scrub_state {
    bool running;
    uint64_t position_bytes, total_bytes, segment, offset, damaged, passes, bytes_per_second;
    int64_t last_pass_unix_ns;
};

enum scrub_request { SCRUB_LOOK, SCRUB_START };

/* Waits for the answer, not for a pass. Errors: UNIMPLEMENTED when the server is not varve. */
MUST_CHECK bool store_service_scrub(struct client *client,
                                    enum scrub_request request,
                                    struct scrub_state *scrub,
                                    struct status *status);

enum { SERVER_LANES_MAX = 8, SERVER_TEXT_BYTES_MAX = 256 };

struct server_status {
    char version[SERVER_TEXT_BYTES_MAX];
    int state;
    bool read_only;
    char read_only_reason[SERVER_TEXT_BYTES_MAX];
    size_t lane_count;
    struct {
        int lane;
        uint64_t pending_seq, durable_seq, segments, bytes;
    } lanes[SERVER_LANES_MAX];
    uint64_t index_entries, uptime_seconds, data_free_bytes, data_total_bytes;
    bool has_scrub; /* older servers have none */
    struct scrub_state scrub;
};

/* Waits for the answer. Errors: UNIMPLEMENTED when the server is not varve. */
MUST_CHECK bool store_service_status(struct client *client,
                                     struct server_status *server,
                                     struct status *status);

/* "small", "large"; "serving", ...; "unknown". Static storage. */
const char *store_service_lane_name(int lane);
const char *store_service_state_name(int state);

#endif
