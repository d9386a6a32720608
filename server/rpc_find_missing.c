/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ContentAddressableStorage.FindMissingBlobs: answered from the index in memory, in the order of
 * the request. What is found is marked as used. A digest that is none fails the call, since an
 * answer could not name it in a way the client would match.
 */
#include "proto/hot_messages.h"
#include "server/methods.h"
#include "server/server.h"
#include "store/store.h"

enum { BLOCK_DIGESTS = 256 };

static bool answer(struct call *call,
                   const struct message *message,
                   grpc_slice *response,
                   struct status *status);
static bool look_up(struct call *call,
                    const struct digests_request *request,
                    bool *present,
                    size_t *response_bytes,
                    struct status *status);

static void leave_out_uncopied(struct copies *copies,
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
    (void)state;
    struct status status = {0};
    grpc_slice response;
    if (answer(call, message, &response, &status))
        call_reply(call, &response, 1);
    else
        call_fail(call, &status);
}

static bool answer(struct call *call,
                   const struct message *message,
                   grpc_slice *response,
                   struct status *status)
{
    struct digests_request request;
    if (!find_missing_decode(message->parts, call_arena(call), &request, status) ||
        !call_check_instance(call, request.instance_name, status))
        return false;
    bool *const present = arena_take(call_arena(call), request.digest_count);
    if (present == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to look for %zu digests",
                           request.digest_count);
    size_t response_bytes = 0;
    if (!look_up(call, &request, present, &response_bytes, status))
        return false;

    *response = grpc_slice_malloc(response_bytes);
    uint8_t *to = GRPC_SLICE_START_PTR(*response);
    int64_t missing = 0;
    for (size_t i = 0; i < request.digest_count; i++) {
        if (present[i])
            continue;
        to = entry_put(to, &request.digests[i]);
        missing++;
    }
    ASSERT(to == GRPC_SLICE_END_PTR(*response));
    struct metrics *const metrics = call_server(call)->metrics;
    metrics_add(metrics, METRIC_CAS_MISSING, missing);
    metrics_add(metrics, METRIC_CAS_FOUND, (int64_t)request.digest_count - missing);
    return true;
}

static bool look_up(struct call *call,
                    const struct digests_request *request,
                    bool *present,
                    size_t *response_bytes,
                    struct status *status)
{
    struct store *const store = call_server(call)->store;
    struct copies *const copies = durability_copies(call_server(call)->durability);
    struct digest block[BLOCK_DIGESTS];
    for (size_t begin = 0; begin < request->digest_count; begin += BLOCK_DIGESTS) {
        size_t count = request->digest_count - begin;
        if (count > BLOCK_DIGESTS)
            count = BLOCK_DIGESTS;
        for (size_t i = 0; i < count; i++) {
            const struct wire_digest *const digest = &request->digests[begin + i];
            if (!digest_parse((enum digest_function)request->digest_function, digest->hash_hex,
                              digest->size_bytes, &block[i], status)) {
                status_prefix(status, "blob_digests[%zu]", begin + i);
                return false;
            }
        }
        store_has_blobs(store, block, count, present + begin);
        leave_out_uncopied(copies, block, count, present + begin);
        for (size_t i = 0; i < count; i++)
            if (!present[begin + i])
                *response_bytes += entry_size(&request->digests[begin + i]);
    }
    return true;
}

/* What is not on as many other nodes yet as it should is sent again, and then waits for that (docs/protocol.md, decision 22). */
static void leave_out_uncopied(struct copies *copies,
                               const struct digest *digests,
                               size_t count,
                               bool *present)
{
    if (copies_cover_all(copies))
        return;
    for (size_t i = 0; i < count; i++)
        present[i] = present[i] && copies_cover_blob(copies, &digests[i]);
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
    .on_message = on_message,
};
