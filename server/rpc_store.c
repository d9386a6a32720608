/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve.v1.Store: where blobs lie, how the server and its scrub are. Marks nothing as used.
 */
#include <stdlib.h>

#include "base/io.h"
#include "base/limits.h"
#include "server/health.h"
#include "server/methods.h"
#include "server/server.h"
#include "store/find.h"
#include "store/segment_set.h"
#include "varve/v1/varve.pb-c.h"

typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;
typedef Varve__V1__StatRequest stat_request;
typedef Varve__V1__StatResponse stat_response;
typedef Varve__V1__BlobPlace blob_place;
typedef Varve__V1__StatusResponse status_response;
typedef Varve__V1__LaneStatus lane_status;
typedef Varve__V1__ScrubRequest scrub_request;
typedef Varve__V1__ScrubResponse scrub_response;

/* An answer has up to some 130 bytes for each digest. */
static const size_t stat_digests_max = LIMIT_RESPONSE_BYTES / 160;

static Varve__V1__Lane lane_value(enum lane lane)
{
    return lane == LANE_SMALL ? VARVE__V1__LANE__LANE_SMALL : VARVE__V1__LANE__LANE_LARGE;
}

static bool fail_for_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "the answer takes more memory than a call has");
}

/* ---- Stat */

static bool locate(struct store *store,
                   enum digest_function function,
                   const digest_message *asked,
                   blob_place *place,
                   struct status *status)
{
    struct digest digest;
    if (!digest_parse(function, bytes_of_string(asked->hash), asked->size_bytes, &digest, status))
        return false;
    if (digest_is_empty_blob(&digest)) {
        place->present = 1;
        return true;
    }
    struct place at;
    if (!store_find_blob(store, &digest, FIND_ONLY, &at))
        return true;
    struct segment *const segment = segment_set_pin(store->segments, at.segment);
    if (segment == NULL)
        return true;
    place->present = 1;
    place->lane = lane_value(segment->lane);
    place->segment = at.segment;
    place->offset = at.offset;
    /* Every codec that the format has so far stores a blob as it is. */
    static_assert(RECORD_CODEC_RAW == 0, "stored bytes are the blob's");
    place->stored_bytes = (uint64_t)digest.size_bytes;
    segment_set_unpin(store->segments, segment);
    return true;
}

static bool locate_all(struct call *call,
                       const stat_request *request,
                       stat_response *response,
                       struct status *status)
{
    const size_t count = request->n_digests;
    if (count > stat_digests_max)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%zu digests are more than the %zu that one call takes", count,
                           stat_digests_max);
    blob_place *const places = arena_take_zeroed(call_arena(call), count, sizeof(*places));
    blob_place **const pointers = arena_take_zeroed(call_arena(call), count, sizeof(*pointers));
    if (places == NULL || pointers == NULL)
        return fail_for_memory(status);
    for (size_t i = 0; i < count; i++) {
        varve__v1__blob_place__init(&places[i]);
        places[i].digest = request->digests[i];
        pointers[i] = &places[i];
        if (!locate(call_server(call)->store, (enum digest_function)request->digest_function,
                    request->digests[i], &places[i], status))
            return false;
    }
    response->n_places = count;
    response->places = pointers;
    return true;
}

static void stat_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct status status = {0};
    const stat_request *const request = (const stat_request *)(void *)call_unpack(
        call, message, &varve__v1__stat_request__descriptor, &status);
    stat_response response = VARVE__V1__STAT_RESPONSE__INIT;
    if (request == NULL ||
        !call_check_instance(call, bytes_of_string(request->instance_name), &status) ||
        !locate_all(call, request, &response, &status)) {
        call_fail(call, &status);
        return;
    }
    call_reply_packed(call, &response.base);
}

const struct method rpc_store_stat = {.path = "/varve.v1.Store/Stat",
                                      .kind = METHOD_UNARY,
                                      .role = ROLE_READ,
                                      .has_instance = true,
                                      .on_message = stat_message};

/* ---- Status */

static Varve__V1__StatusResponse__State state_value(enum server_state state)
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
    }
    return VARVE__V1__STATUS_RESPONSE__STATE__STATE_UNSPECIFIED;
}

static bool count_segments(struct store *store,
                           lane_status lanes[LANE_COUNT],
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

static void fill_scrub(struct server *server, scrub_response *response)
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

static void status_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct server *const server = call_server(call);
    struct status status = {0};
    struct status why = {0};
    struct io_space space;
    lane_status lanes[LANE_COUNT];
    lane_status *pointers[LANE_COUNT];
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        struct watermark *const watermark =
            commit_watermark(durability_commit(server->durability, (enum lane)lane));
        varve__v1__lane_status__init(&lanes[lane]);
        lanes[lane].lane = lane_value((enum lane)lane);
        lanes[lane].durable_seq = watermark_durable(watermark);
        lanes[lane].pending_seq = watermark_pending(watermark);
        pointers[lane] = &lanes[lane];
    }
    if (!count_segments(server->store, lanes, &status) ||
        !io_space(server->store->io, server->store->directory, &space, &status)) {
        call_fail(call, &status);
        return;
    }
    const bool failed = durability_failed(server->durability, &why);
    status_response response = VARVE__V1__STATUS_RESPONSE__INIT;
    scrub_response scrub;
    fill_scrub(server, &scrub);
    response.scrub = &scrub;
    response.version = (char *)(uintptr_t)VARVE_VERSION;
    response.state = state_value(health_state(server->health, NULL));
    response.read_only = failed ? 1 : 0;
    response.read_only_reason = why.message;
    response.n_lanes = LANE_COUNT;
    response.lanes = pointers;
    response.index_entries = blob_table_count(server->store->table);
    response.uptime_seconds =
        (uint64_t)((clock_monotonic_ns(server->clock) - server->started_ns) / NS_PER_S);
    response.data_free_bytes = space.free_bytes;
    response.data_total_bytes = space.total_bytes;
    call_reply_packed(call, &response.base);
}

const struct method rpc_store_status = {.path = "/varve.v1.Store/Status",
                                        .kind = METHOD_UNARY,
                                        .role = ROLE_READ,
                                        .on_message = status_message};

/* ---- Scrub */

static void scrub_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct server *const server = call_server(call);
    struct status status = {0};
    scrub_response response;
    const scrub_request *const request = (const scrub_request *)(void *)call_unpack(
        call, message, &varve__v1__scrub_request__descriptor, &status);
    if (request == NULL) {
        call_fail(call, &status);
        return;
    }
    if (request->start)
        scrub_start(durability_scrub(server->durability));
    fill_scrub(server, &response);
    call_reply_packed(call, &response.base);
}

const struct method rpc_store_scrub = {.path = "/varve.v1.Store/Scrub",
                                       .kind = METHOD_UNARY,
                                       .role = ROLE_ADMIN,
                                       .on_message = scrub_message};
