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
#include "server/store_status.h"
#include "store/find.h"
#include "store/segment_set.h"
#include "varve/v1/varve.pb-c.h"

typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;
typedef Varve__V1__StatRequest stat_request;
typedef Varve__V1__StatResponse stat_response;
typedef Varve__V1__BlobPlace blob_place;
typedef Varve__V1__ScrubRequest scrub_request;
typedef Varve__V1__ScrubResponse scrub_response;

/* An answer has up to some 130 bytes for each digest. */
static const size_t stat_digests_max = LIMIT_RESPONSE_BYTES / 160;

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
    place->lane = store_status_lane(segment->lane);
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

static void status_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct store_status filled;
    struct status status = {0};
    if (store_status_fill(call_server(call), &filled, &status))
        call_reply_packed(call, &filled.response.base);
    else
        call_fail(call, &status);
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
    store_status_scrub(server, &response);
    call_reply_packed(call, &response.base);
}

const struct method rpc_store_scrub = {.path = "/varve.v1.Store/Scrub",
                                       .kind = METHOD_UNARY,
                                       .role = ROLE_ADMIN,
                                       .on_message = scrub_message};
