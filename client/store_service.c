/* SPDX-License-Identifier: Apache-2.0 */
#include "client/store_service.h"

#include "client/call.h"
#include "client/messages.h"
#include "client/unary.h"
#include "varve/v1/varve.pb-c.h"

enum { STAT_PAGE_MAX = 10000 };

static bool stat_page(struct client *client,
                      const struct digest *digests,
                      struct blob_place *places,
                      size_t count,
                      struct status *status);
static void copy_scrub(const Varve__V1__ScrubResponse *from, struct scrub_state *to);
static void copy_text(char to[SERVER_TEXT_BYTES_MAX], const char *from);

bool store_service_stat(struct client *client,
                        const struct digest *digests,
                        struct blob_place *places,
                        size_t count,
                        struct status *status)
{
    for (size_t at = 0; at < count; at += STAT_PAGE_MAX) {
        const size_t page = count - at < STAT_PAGE_MAX ? count - at : STAT_PAGE_MAX;
        if (!stat_page(client, digests + at, places + at, page, status))
            return false;
    }
    return true;
}

/* StatRequest has the fields and numbers of FindMissingBlobsRequest. */
static bool stat_page(struct client *client,
                      const struct digest *digests,
                      struct blob_place *places,
                      size_t count,
                      struct status *status)
{
    Varve__V1__StatResponse *response =
        unary_call_unpacked(client, METHOD_STORE_STAT,
                            find_missing_request(client_instance_name(client), digests, count),
                            &varve__v1__stat_response__descriptor, status);
    if (response == NULL)
        return false;
    const bool ok = response->n_places == count;
    for (size_t i = 0; ok && i < count; i++) {
        const Varve__V1__BlobPlace *place = response->places[i];
        places[i] = (struct blob_place){
            .present = place->present,
            .lane = (int)place->lane,
            .segment = place->segment,
            .offset = place->offset,
            .stored_bytes = place->stored_bytes,
        };
    }
    if (!ok)
        status_fail(status, STATUS_INTERNAL, "Stat: %zu answers to %zu digests", response->n_places,
                    count);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return ok;
}

bool store_service_status(struct client *client,
                          struct server_status *server,
                          struct status *status)
{
    Varve__V1__StatusResponse *response =
        unary_call_unpacked(client, METHOD_STORE_STATUS, grpc_empty_slice(),
                            &varve__v1__status_response__descriptor, status);
    if (response == NULL)
        return false;
    *server = (struct server_status){
        .state = (int)response->state,
        .read_only = response->read_only,
        .index_entries = response->index_entries,
        .uptime_seconds = response->uptime_seconds,
        .data_free_bytes = response->data_free_bytes,
        .data_total_bytes = response->data_total_bytes,
    };
    copy_text(server->version, response->version);
    copy_text(server->read_only_reason, response->read_only_reason);
    for (size_t i = 0; i < response->n_lanes && i < SERVER_LANES_MAX; i++) {
        const Varve__V1__LaneStatus *lane = response->lanes[i];
        server->lanes[i].lane = (int)lane->lane;
        server->lanes[i].pending_seq = lane->pending_seq;
        server->lanes[i].durable_seq = lane->durable_seq;
        server->lanes[i].segments = lane->segments;
        server->lanes[i].bytes = lane->bytes;
        server->lane_count = i + 1;
    }
    server->has_scrub = response->scrub != NULL;
    if (server->has_scrub)
        copy_scrub(response->scrub, &server->scrub);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return true;
}

bool store_service_scrub(struct client *client,
                         enum scrub_request request,
                         struct scrub_state *scrub,
                         struct status *status)
{
    /* The field `start`, a varint of 1; an empty message where it is not set. */
    static const char start[] = {1 << 3, 1};
    Varve__V1__ScrubResponse *response = unary_call_unpacked(
        client, METHOD_STORE_SCRUB,
        request == SCRUB_START ? grpc_slice_from_copied_buffer(start, sizeof(start))
                               : grpc_empty_slice(),
        &varve__v1__scrub_response__descriptor, status);
    if (response == NULL)
        return false;
    copy_scrub(response, scrub);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return true;
}

static void copy_scrub(const Varve__V1__ScrubResponse *from, struct scrub_state *to)
{
    *to = (struct scrub_state){
        .running = from->running,
        .position_bytes = from->position_bytes,
        .total_bytes = from->total_bytes,
        .segment = from->segment,
        .offset = from->offset,
        .damaged = from->damaged,
        .passes = from->passes,
        .bytes_per_second = from->bytes_per_second,
        .last_pass_unix_ns = from->last_pass_unix_ns,
    };
}

static void copy_text(char to[SERVER_TEXT_BYTES_MAX], const char *from)
{
    size_t length = 0;
    for (; from[length] != '\0' && length < SERVER_TEXT_BYTES_MAX - 1; length++) {
        const unsigned char c = (unsigned char)from[length];
        to[length] = c < 0x20 || c == 0x7f ? '?' : from[length];
    }
    to[length] = '\0';
}

const char *store_service_lane_name(int lane)
{
    switch (lane) {
    case VARVE__V1__LANE__LANE_SMALL:
        return "small";
    case VARVE__V1__LANE__LANE_LARGE:
        return "large";
    default:
        return "none";
    }
}

const char *store_service_state_name(int state)
{
    switch (state) {
    case VARVE__V1__STATUS_RESPONSE__STATE__STATE_STARTING:
        return "starting";
    case VARVE__V1__STATUS_RESPONSE__STATE__STATE_SERVING:
        return "serving";
    case VARVE__V1__STATUS_RESPONSE__STATE__STATE_READ_ONLY:
        return "read-only";
    case VARVE__V1__STATUS_RESPONSE__STATE__STATE_STOPPING:
        return "stopping";
    case VARVE__V1__STATUS_RESPONSE__STATE__STATE_DRAINED:
        return "drained";
    default:
        return "unknown";
    }
}
