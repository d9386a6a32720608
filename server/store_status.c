/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store_status.h"

#include <stdlib.h>

#include "base/io.h"
#include "server/health.h"
#include "store/segment_set.h"

static bool count_segments(struct store *store,
                           Varve__V1__LaneStatus lanes[LANE_COUNT],
                           struct status *status);

bool store_status_fill(struct server *server, struct store_status *to, struct status *status)
{
    struct io_space space;
    *to = (struct store_status){0};
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        struct watermark *const watermark =
            commit_watermark(durability_commit(server->durability, lane));
        varve__v1__lane_status__init(&to->lanes[lane]);
        to->lanes[lane].lane = store_status_lane(lane);
        to->lanes[lane].durable_seq = watermark_durable(watermark);
        to->lanes[lane].pending_seq = watermark_pending(watermark);
        to->lane_pointers[lane] = &to->lanes[lane];
    }
    if (!count_segments(server->store, to->lanes, status) ||
        !io_space(server->store->io, server->store->directory, &space, status))
        return false;
    store_status_scrub(server, &to->scrub);
    varve__v1__status_response__init(&to->response);
    to->response.scrub = &to->scrub;
    to->response.version = (char *)(uintptr_t)VARVE_VERSION;
    to->response.state = store_status_state(health_state(server->health, NULL));
    to->response.read_only = durability_failed(server->durability, &to->failure) ? 1 : 0;
    to->response.read_only_reason = to->failure.message;
    to->response.n_lanes = LANE_COUNT;
    to->response.lanes = to->lane_pointers;
    to->response.index_entries = blob_table_count(server->store->table);
    to->response.uptime_seconds =
        (uint64_t)((clock_monotonic_ns(server->clock) - server->started_ns) / NS_PER_S);
    to->response.data_free_bytes = space.free_bytes;
    to->response.data_total_bytes = space.total_bytes;
    return true;
}

static bool count_segments(struct store *store,
                           Varve__V1__LaneStatus lanes[LANE_COUNT],
                           struct status *status)
{
    uint64_t *numbers;
    size_t count;
    if (!segment_set_numbers(store->segments, &numbers, &count, status))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        struct segment *const segment = segment_set_pin(store->segments, numbers[i]);
        if (segment == NULL)
            continue;
        uint64_t bytes;
        ok = io_size(store->io, segment->read_fd, &bytes, status);
        if (ok) {
            lanes[segment->lane].segments++;
            lanes[segment->lane].bytes += bytes;
        }
        segment_set_unpin(store->segments, segment);
    }
    free(numbers);
    return ok;
}

void store_status_scrub(struct server *server, Varve__V1__ScrubResponse *response)
{
    struct scrub_progress progress;
    scrub_progress(durability_scrub(server->durability), &progress);
    varve__v1__scrub_response__init(response);
    response->running = progress.running ? 1 : 0;
    response->position_bytes = progress.done_bytes;
    response->total_bytes = progress.total_bytes;
    response->segment = progress.segment;
    response->offset = progress.offset;
    response->damaged = progress.damaged;
    response->passes = progress.passes;
    response->last_pass_unix_ns = progress.last_pass_wall_ns;
    response->bytes_per_second = server->store->scrub_bytes_per_s;
}

Varve__V1__StatusResponse__State store_status_state(enum server_state state)
{
    switch (state) {
    case SERVER_STARTING:
        return VARVE__V1__STATUS_RESPONSE__STATE__STATE_STARTING;
    case SERVER_SERVING:
        return VARVE__V1__STATUS_RESPONSE__STATE__STATE_SERVING;
    case SERVER_READ_ONLY:
        return VARVE__V1__STATUS_RESPONSE__STATE__STATE_READ_ONLY;
    case SERVER_DRAINING:
        return VARVE__V1__STATUS_RESPONSE__STATE__STATE_STOPPING;
    case SERVER_DRAINED:
        return VARVE__V1__STATUS_RESPONSE__STATE__STATE_DRAINED;
    }
    return VARVE__V1__STATUS_RESPONSE__STATE__STATE_UNSPECIFIED;
}

Varve__V1__Lane store_status_lane(enum lane lane)
{
    return lane == LANE_SMALL ? VARVE__V1__LANE__LANE_SMALL : VARVE__V1__LANE__LANE_LARGE;
}
