/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ContentAddressableStorage.FindMissingBlobs: answered from the index in memory, in the order of
 * the request. What is found is marked as used. A digest that is none fails the call, since an
 * answer could not name it in a way the client would match.
 *
 * While this node has not come to the end of a peer's log, what is not here is asked of that peer first, a page of digests a call:
 * what it has is not missing, but on its way, and is read through this node meanwhile (server/repair.h). With --tier-find the bucket is
 * asked, too.
 */
#include <stdlib.h>

#include "client/batch.h"
#include "proto/hot_messages.h"
#include "server/call_repair.h"
#include "server/methods.h"
#include "server/peers.h"
#include "server/server.h"
#include "server/tier.h"
#include "store/store.h"

enum { BLOCK_DIGESTS = 256 };

struct find {
    struct digests_request request;
    bool *present; /* one a digest; in the arena, as the request's */
    bool uncopied; /* something is here, and does not count for want of copies */
    /* Those that are not present from `asked_begin` on and before `asked_end` are being asked for. */
    size_t asked_begin, asked_end;
    struct call_repair repair;
};

static bool parse(struct call *call,
                  const struct message *message,
                  struct find *find,
                  struct status *status);
static bool digest_at(const struct find *find,
                      size_t i,
                      struct digest *digest,
                      struct status *status);
static bool look_up(struct call *call, struct find *find, struct status *status);
static bool ask_peers(struct call *call, struct find *find);
static void asked(struct call *call, void *state);
static void take_answer(struct call *call, struct find *find);
static void reply(struct call *call, const struct find *find);
static bool leave_out_uncopied(struct copies *copies,
                               const struct digest *digests,
                               size_t count,
                               bool *present);

/*
 * The digests that came are valid, and then an encoder of ours gives the same bytes: no need to
 * convert them again.
 */
static size_t entry_size(const struct wire_digest *digest);
static uint8_t *entry_put(uint8_t *to, const struct wire_digest *digest);
static size_t body_size(const struct wire_digest *digest);

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct find *const find = state;
    struct status status = {0};
    if (!parse(call, message, find, &status) || !look_up(call, find, &status))
        call_fail(call, &status);
    else if (ask_peers(call, find))
        call_park(call, asked);
    else
        reply(call, find);
}

static bool parse(struct call *call,
                  const struct message *message,
                  struct find *find,
                  struct status *status)
{
    struct digests_request *const request = &find->request;
    if (!find_missing_decode(message->parts, call_arena(call), request, status) ||
        !call_check_instance(call, request->instance_name, status))
        return false;
    find->present = arena_take(call_arena(call), request->digest_count);
    return find->present != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to look for %zu digests",
                       request->digest_count);
}

static bool digest_at(const struct find *find,
                      size_t i,
                      struct digest *digest,
                      struct status *status)
{
    const struct wire_digest *const wire = &find->request.digests[i];
    return digest_parse((enum digest_function)find->request.digest_function, wire->hash_hex,
                        wire->size_bytes, digest, status);
}

static bool look_up(struct call *call, struct find *find, struct status *status)
{
    struct store *const store = call_server(call)->store;
    struct copies *const copies = durability_copies(call_server(call)->durability);
    struct digest block[BLOCK_DIGESTS];
    for (size_t begin = 0; begin < find->request.digest_count; begin += BLOCK_DIGESTS) {
        size_t count = find->request.digest_count - begin;
        if (count > BLOCK_DIGESTS)
            count = BLOCK_DIGESTS;
        for (size_t i = 0; i < count; i++) {
            if (!digest_at(find, begin + i, &block[i], status)) {
                status_prefix(status, "blob_digests[%zu]", begin + i);
                return false;
            }
        }
        store_has_blobs(store, block, count, find->present + begin);
        if (leave_out_uncopied(copies, block, count, find->present + begin))
            find->uncopied = true;
    }
    return true;
}

/*
 * The next page of what is not here. False: nobody is to be asked, or nothing is left. What is here and waits for copies is asked of
 * all: if a peer has it, too, it has one.
 */
static bool ask_peers(struct call *call, struct find *find)
{
    struct server *const server = call_server(call);
    const size_t total = find->request.digest_count;
    while (find->asked_end < total && find->present[find->asked_end])
        find->asked_end++;
    if (find->asked_end == total || !call_repair_is_possible(call) ||
        (!find->uncopied && !tier_finds(server->tier) && server->peers != NULL &&
         !peers_are_behind(server->peers, NULL)))
        return false;
    const size_t left = total - find->asked_end;
    const size_t most = left < FIND_MISSING_PAGE_MAX ? left : FIND_MISSING_PAGE_MAX;
    struct digest *const digests = malloc(most * sizeof(*digests));
    struct status ignored;
    size_t count = 0;
    find->asked_begin = find->asked_end;
    for (; digests != NULL && find->asked_end < total && count < most; find->asked_end++)
        if (!find->present[find->asked_end])
            count += digest_at(find, find->asked_end, &digests[count], &ignored);
    const bool asks =
        count > 0 && call_repair_start_find(&find->repair, call, digests, count, find->uncopied);
    free(digests);
    return asks;
}

static void asked(struct call *call, void *state)
{
    struct find *const find = state;
    if (!call_repair_over(&find->repair)) {
        call_park(call, asked);
        return;
    }
    take_answer(call, find);
    if (!call_cancelled(call) && ask_peers(call, find))
        call_park(call, asked);
    else
        reply(call, find);
}

/* What nobody has stays missing. */
static void take_answer(struct call *call, struct find *find)
{
    const struct digest *const nowhere = (const void *)find->repair.result;
    const size_t nowhere_count = find->repair.result_length / sizeof(*nowhere);
    size_t next = 0;
    int64_t elsewhere = 0;
    for (size_t i = find->asked_begin; nowhere != NULL && i < find->asked_end; i++) {
        struct digest digest;
        struct status ignored;
        if (find->present[i] || !digest_at(find, i, &digest, &ignored))
            continue;
        if (next < nowhere_count && digest_equal(&digest, &nowhere[next])) {
            next++;
            continue;
        }
        find->present[i] = true;
        elsewhere++;
    }
    metrics_add(call_server(call)->metrics, METRIC_CAS_FOUND_ELSEWHERE, elsewhere);
    call_repair_end(&find->repair);
}

static void reply(struct call *call, const struct find *find)
{
    const struct digests_request *const request = &find->request;
    size_t response_bytes = 0;
    for (size_t i = 0; i < request->digest_count; i++)
        response_bytes += find->present[i] ? 0 : entry_size(&request->digests[i]);
    grpc_slice response = grpc_slice_malloc(response_bytes);
    uint8_t *to = GRPC_SLICE_START_PTR(response);
    int64_t missing = 0;
    for (size_t i = 0; i < request->digest_count; i++) {
        if (find->present[i])
            continue;
        to = entry_put(to, &request->digests[i]);
        missing++;
    }
    ASSERT(to == GRPC_SLICE_END_PTR(response));
    struct metrics *const metrics = call_server(call)->metrics;
    metrics_add(metrics, METRIC_CAS_MISSING, missing);
    metrics_add(metrics, METRIC_CAS_FOUND, (int64_t)request->digest_count - missing);
    call_count_lookups(call, request->digest_count - (uint64_t)missing, (uint64_t)missing);
    call_reply(call, &response, 1);
}

static void on_free(struct call *call, void *state)
{
    (void)call;
    struct find *const find = state;
    call_repair_end(&find->repair);
}

/*
 * What is not on as many other nodes yet as it should is sent again, and then waits for that (docs/protocol.md, decision 22). True:
 * there is such a one.
 */
static bool leave_out_uncopied(struct copies *copies,
                               const struct digest *digests,
                               size_t count,
                               bool *present)
{
    bool some = false;
    if (copies_cover_all(copies))
        return false;
    for (size_t i = 0; i < count; i++) {
        const bool uncopied = present[i] && !copies_cover_blob(copies, &digests[i]);
        present[i] = present[i] && !uncopied;
        some = some || uncopied;
    }
    return some;
}

static size_t entry_size(const struct wire_digest *digest)
{
    return wire_bytes_field_size(2, body_size(digest));
}

static uint8_t *entry_put(uint8_t *to, const struct wire_digest *digest)
{
    to = wire_put_bytes_key(to, 2, body_size(digest));
    to = wire_put_bytes_field(to, 1, digest->hash_hex);
    return digest->size_bytes == 0 ? to
                                   : wire_put_varint_field(to, 2, (uint64_t)digest->size_bytes);
}

static size_t body_size(const struct wire_digest *digest)
{
    return wire_bytes_field_size(1, digest->hash_hex.length) +
           (digest->size_bytes == 0 ? 0 : wire_varint_field_size(2, (uint64_t)digest->size_bytes));
}

const struct method rpc_find_missing = {
    .path = "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs",
    .kind = METHOD_UNARY,
    .role = ROLE_READ,
    .has_instance = true,
    .on_poller = true,
    .state_bytes = sizeof(struct find),
    .on_message = on_message,
    .on_free = on_free,
};
