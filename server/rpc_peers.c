/* SPDX-License-Identifier: Apache-2.0 */
/* varve.v1.Replication/Peers: who follows this node, whom it follows, and how far they are. */
#include <stdlib.h>

#include "base/limits.h"
#include "server/methods.h"
#include "server/peers.h"
#include "server/server.h"
#include "server/tier.h"
#include "varve/v1/replication.pb-c.h"

typedef Varve__V1__PeersResponse peers_response;
typedef Varve__V1__Follower follower_message;

static bool fill_followers(struct call *call, peers_response *response, struct status *status);
static bool fill_peers(struct call *call, peers_response *response, struct status *status);

static void on_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct server *const server = call_server(call);
    struct status status = {0};
    struct copies_state copies;
    peers_response response = VARVE__V1__PEERS_RESPONSE__INIT;
    copies_state(durability_copies(server->durability), &copies);
    response.node_uid = server->store->node_uid;
    response.ack_copies = copies.wanted;
    response.ack_copies_degraded = copies.degraded ? 1 : 0;
    if (fill_followers(call, &response, &status) && fill_peers(call, &response, &status))
        call_reply_packed(call, &response.base);
    else
        call_fail(call, &status);
}

static bool fill_followers(struct call *call, peers_response *response, struct status *status)
{
    struct server *const server = call_server(call);
    struct arena *const arena = call_arena(call);
    const int64_t now_ns = clock_monotonic_ns(server->clock);
    struct follower *const followers =
        arena_take_zeroed(arena, LIMIT_FOLLOWERS, sizeof(*followers));
    follower_message *const messages = arena_take_zeroed(arena, LIMIT_FOLLOWERS, sizeof(*messages));
    follower_message **const pointers =
        arena_take_zeroed(arena, LIMIT_FOLLOWERS, sizeof(*pointers));
    if (followers == NULL || messages == NULL || pointers == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the followers");
    const size_t count =
        copies_followers(durability_copies(server->durability), followers, LIMIT_FOLLOWERS);
    for (size_t i = 0; i < count; i++) {
        struct follower *const from = &followers[i];
        follower_message *const to = &messages[i];
        varve__v1__follower__init(to);
        to->uid = from->uid;
        to->name = from->name;
        to->address = from->address;
        to->small_durable_seq = from->durable_seq[LANE_SMALL];
        to->large_durable_seq = from->durable_seq[LANE_LARGE];
        to->small_behind_records = from->behind_records[LANE_SMALL];
        to->large_behind_records = from->behind_records[LANE_LARGE];
        to->seen_seconds_ago =
            now_ns > from->seen_ns ? (double)(now_ns - from->seen_ns) / (double)NS_PER_S : 0;
        to->counts = from->counts ? 1 : 0;
        char trouble[STATUS_MESSAGE_BYTES_MAX];
        tier_trouble(server->tier, from->uid, trouble);
        to->trouble = arena_copy_string(arena, bytes_of_string(trouble));
        if (to->trouble == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the followers");
        pointers[i] = to;
    }
    response->n_followers = count;
    response->followers = pointers;
    return true;
}

/* What is told of one peer, with all that it points to. */
struct told_peer {
    struct peer_report report;
    Varve__V1__Peer message;
    Varve__V1__PeerLane lanes[LANE_COUNT], *lane_pointers[LANE_COUNT];
};

static void tell_peer(struct told_peer *told)
{
    static const Varve__V1__Lane names[LANE_COUNT] = {
        [LANE_SMALL] = VARVE__V1__LANE__LANE_SMALL, [LANE_LARGE] = VARVE__V1__LANE__LANE_LARGE};
    struct peer_report *const from = &told->report;
    varve__v1__peer__init(&told->message);
    told->message.address = from->address;
    told->message.uid = from->uid;
    told->message.state = (Varve__V1__Peer__State)from->state;
    told->message.last_error = from->last_error.message;
    told->message.blobs_fetched = from->blobs_fetched;
    told->message.bytes_fetched = from->bytes_fetched;
    for (size_t i = 0; i < LANE_COUNT; i++) {
        Varve__V1__PeerLane *const to = &told->lanes[i];
        varve__v1__peer_lane__init(to);
        to->lane = names[i];
        to->applied_seq = from->lanes[i].applied_seq;
        to->durable_seq = from->lanes[i].durable_seq;
        to->behind_records = from->lanes[i].behind_records;
        to->behind_bytes = from->lanes[i].behind_bytes;
        to->behind_seconds = from->lanes[i].behind_seconds;
        told->lane_pointers[i] = to;
    }
    told->message.lanes = told->lane_pointers;
    told->message.n_lanes = LANE_COUNT;
}

static bool fill_peers(struct call *call, peers_response *response, struct status *status)
{
    struct server *const server = call_server(call);
    if (server->peers == NULL)
        return true;
    struct arena *const arena = call_arena(call);
    struct peer_report *const reports = arena_take(arena, PEERS_MAX * sizeof(*reports));
    struct told_peer *const told = arena_take_zeroed(arena, PEERS_MAX, sizeof(*told));
    Varve__V1__Peer **const pointers = arena_take_zeroed(arena, PEERS_MAX, sizeof(*pointers));
    if (reports == NULL || told == NULL || pointers == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the peers");
    response->n_peers = peers_report(server->peers, reports, PEERS_MAX);
    response->peers = pointers;
    for (size_t i = 0; i < response->n_peers; i++) {
        told[i].report = reports[i];
        tell_peer(&told[i]);
        pointers[i] = &told[i].message;
    }
    return true;
}

const struct method rpc_peers = {
    .path = "/varve.v1.Replication/Peers",
    .kind = METHOD_UNARY,
    .role = ROLE_READ,
    .on_message = on_message,
};
