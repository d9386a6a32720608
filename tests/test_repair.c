/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is asked for and is missing or damaged here is fetched from a peer, once, verified, stored and served; that what
 * only a peer has so far is not called missing; that requests of peers cause no such thing; and that peers that are gone or lie cost a miss no more than a moment.
 *
 * Method: over gRPC, with a real store, and scripted peers that count what they are asked (tests/support/fake_peer.h).
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/batch.h"
#include "google/bytestream/bytestream.pb-c.h"
#include "proto/resource_name.h"
#include "server/fetcher.h"
#include "server/flights.h"
#include "server/methods.h"
#include "server/repair.h"
#include "tests/support/cas_rig.h"
#include "tests/support/fake_peer.h"
#include "tests/support/messages.h"
#include "tests/support/reapi_names.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"

enum { PEERS = 2, BUFFERS = 32 };

static const char READ[] = "/google.bytestream.ByteStream/Read";

static struct front_rig front;
static struct real_store real;
static struct metrics store_metrics;
static struct flights *flights;
static struct repair *repair;
static struct fake_peer peers[PEERS];
static char text[RPC_TEXT_BYTES_MAX];
static _Atomic bool behind[PEERS]; /* is the log of this peer not followed to its end yet? */

static bool is_behind(void *argument, const char *address)
{
    (void)argument;
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(address, fake_peer_target(&peers[i])) == 0)
            return behind[i];
    return false;
}

static void set_peers(size_t count)
{
    struct status status = {0};
    char *addresses[PEERS];
    for (size_t i = 0; i < count; i++)
        addresses[i] = (char *)(uintptr_t)fake_peer_target(&peers[i]);
    ck_assert_msg(repair_set_peers(repair, addresses, count, &status), "%s", status.message);
}

/*
 * On a machine that is busy, honest peers are silent for a while, too. What is set after the start reaches calls through gRPC, where
 * ThreadSanitizer does not see it.
 */
__attribute__((no_sanitize_thread)) static void set_up(int64_t silence_ns)
{
    static const struct method *const methods[] = {
        &rpc_find_missing, &rpc_batch_read, &rpc_get_tree, &rpc_get_action_result, &rpc_read};
    struct status status = {0};
    real_store_open(&real, &store_metrics, BUFFERS);
    front_rig_start(&front, methods, ARRAY_LENGTH(methods), NULL);
    front.config.max_blob_bytes = LIMIT_BLOB_BYTES;
    front.server.buffers = real.buffers;
    front.server.durability = real.durability;
    front.server.store = real.store;
    ck_assert(flights_new(&flights, &status));
    const struct repair_config config = {.durability = real.durability,
                                         .flights = flights,
                                         .metrics = &front.metrics,
                                         .silence_ns = silence_ns,
                                         .is_behind = is_behind,
                                         .instance = ""};
    ck_assert(repair_new(&config, &repair, &status));
    front.server.repair = repair;
    for (size_t i = 0; i < PEERS; i++)
        fake_peer_start(&peers[i], 100 + i), behind[i] = true;
    set_peers(1);
}

static void set_up_patient(void)
{
    set_up(20 * NS_PER_S);
}

static void set_up_as_usual(void)
{
    set_up(0);
}

static void teardown(void)
{
    front_rig_stop(&front, 200);
    repair_free(repair);
    for (size_t i = 0; i < PEERS; i++)
        fake_peer_stop(&peers[i]);
    flights_free(flights);
    real_store_close(&real);
}

static struct digest put(size_t which, uint64_t seed, size_t length)
{
    struct digest digest;
    uint8_t *const data = seeded_bytes(seed, length);
    fake_peer_put(&peers[which], bytes_of(data, length), &digest);
    free(data);
    return digest;
}

static uint64_t sent(size_t which)
{
    fake_peer_lock(&peers[which]);
    const uint64_t blobs = peers[which].blobs_sent;
    fake_peer_unlock(&peers[which]);
    return blobs;
}

/* ---- Read */

static void start_read(struct rpc *rpc, struct rpc_client *client, const struct digest *digest)
{
    char name[256];
    struct byte_builder request = {0};
    ck_assert(resource_name_format(name, sizeof(name), bytes_of(NULL, 0), NULL, COMPRESSOR_IDENTITY,
                                   digest));
    message_add_text(&request, 1, name);
    rpc_begin(rpc, client, READ);
    ck_assert(rpc_send(rpc, message_bytes(&request)));
    ck_assert(rpc_half_close(rpc));
    byte_builder_free(&request);
}

static grpc_status_code end_read(struct rpc *rpc, const struct digest *digest, uint64_t seed)
{
    const size_t size = (size_t)digest->size_bytes;
    uint8_t *const expected = seeded_bytes(seed, size);
    size_t at = 0;
    size_t length;
    for (uint8_t *message; (message = rpc_receive(rpc, &length)) != NULL; free(message)) {
        Google__Bytestream__ReadResponse *const response =
            google__bytestream__read_response__unpack(NULL, length, message);
        ck_assert_ptr_nonnull(response);
        ck_assert_uint_le(at + response->data.len, size);
        ck_assert_mem_eq(response->data.data, expected + at, response->data.len);
        at += response->data.len;
        google__bytestream__read_response__free_unpacked(response, NULL);
    }
    const grpc_status_code code = rpc_end(rpc);
    ck_assert(code != GRPC_STATUS_OK || at == size);
    free(expected);
    return code;
}

static grpc_status_code read_blob(const struct digest *digest, uint64_t seed)
{
    struct rpc rpc;
    start_read(&rpc, &front.client, digest);
    return end_read(&rpc, digest, seed);
}

static const size_t sizes[] = {1, 300, 40000, MIB, MIB + 1, 5 * MIB + 17};

START_TEST(a_read_of_what_a_peer_has_is_served_and_stored)
{
    const struct digest digest = put(0, 1, sizes[_i]);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert(store_holds(real.store, &digest));
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert_uint_eq(sent(0), 1);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_READ_REPAIRS_FOUND), 1);
}
END_TEST

START_TEST(what_is_damaged_here_is_replaced_from_a_peer)
{
    uint8_t *const data = seeded_bytes(1, sizes[_i]);
    const struct digest digest = real_store_put(&real, bytes_of(data, sizes[_i]));
    free(data);
    put(0, 1, sizes[_i]);
    real_store_damage(&real, &digest);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert_uint_eq(sent(0), 1);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert_uint_eq(sent(0), 1);
}
END_TEST

START_TEST(one_fetch_a_digest_however_many_ask)
{
    enum { CLIENTS = 12 };
    struct rpc calls[CLIENTS];
    const struct digest digest = put(0, 1, sizes[_i]);
    FAKE_PEER_SET(&peers[0], pause_ms, 200);
    for (size_t i = 0; i < CLIENTS; i++)
        start_read(&calls[i], &front.client, &digest);
    for (size_t i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(end_read(&calls[i], &digest, 1), GRPC_STATUS_OK);
    ck_assert_uint_eq(sent(0), 1);
}
END_TEST

START_TEST(what_nobody_has_is_not_found_and_asked_for_again_the_next_time)
{
    const struct digest digest = put(0, 1, 500);
    fake_peer_lose(&peers[0], &digest, true);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_READ_REPAIRS_ABSENT), 1);
    fake_peer_lose(&peers[0], &digest, false);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
}
END_TEST

START_TEST(requests_of_a_peer_ask_nobody)
{
    char name[256];
    const struct digest digest = put(0, 1, 500);
    REAPI(RequestMetadata) about;
    REAPI(ToolDetails) tool;
    REAPI_INIT(request_metadata, &about);
    REAPI_INIT(tool_details, &tool);
    tool.tool_name = (char *)(uintptr_t) "varved";
    about.tool_details = &tool;
    uint8_t packed[64];
    const size_t length = protobuf_c_message_pack(&about.base, packed);
    grpc_metadata metadata = {
        .key = grpc_slice_from_static_string("build.bazel.remote.execution.v2.requestmetadata-bin"),
        .value = grpc_slice_from_copied_buffer((const char *)packed, length)};
    struct byte_builder request = {0};
    struct rpc rpc;
    ck_assert(resource_name_format(name, sizeof(name), bytes_of(NULL, 0), NULL, COMPRESSOR_IDENTITY,
                                   &digest));
    message_add_text(&request, 1, name);
    rpc_begin_with(&rpc, &front.client, READ, 10000, &metadata, 1);
    ck_assert(rpc_send(&rpc, message_bytes(&request)));
    ck_assert(rpc_half_close(&rpc));
    byte_builder_free(&request);
    ck_assert_int_eq(end_read(&rpc, &digest, 1), GRPC_STATUS_NOT_FOUND);
    ck_assert_uint_eq(sent(0), 0);
    grpc_slice_unref(metadata.value);
}
END_TEST

/* ---- FindMissingBlobs */

/* So many of these are missing, in their order; missing[i] says which. */
static size_t find_missing(const struct digest *digests, size_t count, bool *missing)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        message_add_digest(&request, 2, &digests[i]);
    const grpc_status_code code = rpc_unary(&front.client, CAS_METHOD("FindMissingBlobs"),
                                            message_bytes(&request), &response, &length, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    byte_builder_free(&request);
    REAPI(FindMissingBlobsResponse) *const answer = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(find_missing_blobs_response), NULL, length, response);
    free(response);
    ck_assert_ptr_nonnull(answer);
    const size_t told = answer->n_missing_blob_digests;
    for (size_t i = 0; i < count; i++) {
        char hex[DIGEST_HASH_HEX_MAX + 1];
        missing[i] = at < told && strcmp(answer->missing_blob_digests[at]->hash,
                                         digest_hex(&digests[i], hex)) == 0;
        at += missing[i];
    }
    ck_assert_uint_eq(at, told);
    protobuf_c_message_free_unpacked(&answer->base, NULL);
    return told;
}

static struct digest put_here(uint64_t seed, size_t length)
{
    uint8_t *const data = seeded_bytes(seed, length);
    const struct digest digest = real_store_put(&real, bytes_of(data, length));
    free(data);
    return digest;
}

START_TEST(what_a_peer_has_is_not_missing_and_nothing_is_fetched_for_that)
{
    enum { BLOBS = 600 };
    static struct digest digests[BLOBS];
    bool missing[BLOBS];
    set_peers(2);
    for (uint64_t i = 0; i < BLOBS; i++) { /* here, at one, at the other, nowhere, and one twice */
        const size_t length = 10 + (size_t)i;
        digests[i] = i % 4 == 0   ? put_here(i, length)
                     : i % 4 == 3 ? digest_of_nothing(i)
                                  : put(i % 4 - 1, i, length);
        if (i % 100 == 99)
            digests[i] = digests[3];
    }
    ck_assert_uint_eq(find_missing(digests, BLOBS, missing), BLOBS / 4);
    for (size_t i = 0; i < BLOBS; i++)
        ck_assert_int_eq(missing[i], i % 4 == 3);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[0], finds), 1);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[0], digests_asked), BLOBS / 4 * 3);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[1], digests_asked), BLOBS / 4 * 2);
    ck_assert_uint_eq(sent(0) + sent(1), 0);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_CAS_FOUND_ELSEWHERE), BLOBS / 2);
    /* And it is served. */
    ck_assert_int_eq(read_blob(&digests[1], 1), GRPC_STATUS_OK);
    ck_assert_int_eq(read_blob(&digests[2], 2), GRPC_STATUS_OK);
}
END_TEST

START_TEST(only_peers_that_this_node_is_behind_are_asked_what_is_missing)
{
    const struct digest digests[] = {put(0, 1, 500), put(1, 2, 500)};
    bool missing[2];
    set_peers(2);
    behind[0] = false;
    ck_assert_uint_eq(find_missing(digests, 2, missing), 1);
    ck_assert(missing[0] && !missing[1]);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[0], finds), 0);
    behind[1] = false;
    ck_assert_uint_eq(find_missing(digests, 2, missing), 2);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[1], finds), 1);
}
END_TEST

START_TEST(where_copies_are_asked_for_what_a_peer_has_too_is_not_missing)
{
    const struct copies_config copies = {.wanted = 1, .timeout_ns = NS_PER_S};
    const struct digest digests[] = {put_here(1, 500), put_here(2, 500)};
    bool missing[2];
    put(0, 2, 500);
    behind[0] = false;
    copies_configure(durability_copies(real.durability), &copies);
    ck_assert_uint_eq(find_missing(digests, 2, missing), 1);
    ck_assert(missing[0] && !missing[1]);
}
END_TEST

START_TEST(more_digests_than_a_call_holds_are_asked_in_pages)
{
    enum { BLOBS = FIND_MISSING_PAGE_MAX + 1000 };
    struct digest *const digests = calloc(BLOBS, sizeof(*digests));
    bool *const missing = calloc(BLOBS, sizeof(*missing));
    ck_assert(digests != NULL && missing != NULL);
    for (size_t i = 0; i < BLOBS; i++)
        digests[i] = digest_of_nothing(i);
    digests[0] = put(0, 1, 100);
    digests[BLOBS - 1] = put(0, 2, 100);
    ck_assert_uint_eq(find_missing(digests, BLOBS, missing), BLOBS - 2);
    ck_assert(!missing[0] && missing[1] && missing[BLOBS - 2] && !missing[BLOBS - 1]);
    ck_assert_uint_eq(FAKE_PEER_GET(&peers[0], finds), 2);
    free(digests);
    free(missing);
}
END_TEST

START_TEST(a_silent_peer_does_not_keep_a_client_from_uploading)
{
    const struct digest digest = put(0, 1, 500);
    bool missing;
    FAKE_PEER_SET(&peers[0], black_hole, true);
    const int64_t begun_ms = now_ms();
    ck_assert_uint_eq(find_missing(&digest, 1, &missing), 1);
    ck_assert_int_lt(now_ms() - begun_ms, 3000);
    for (size_t i = 0; i < 20; i++)
        ck_assert_uint_eq(find_missing(&digest, 1, &missing), 1);
    FAKE_PEER_SET(&peers[0], black_hole, false);
    WAIT_UNTIL(find_missing(&digest, 1, &missing) == 0);
}
END_TEST

START_TEST(an_answer_that_makes_no_sense_counts_for_nothing)
{
    struct digest digests[] = {put(0, 1, 500), digest_of_nothing(1), put(0, 2, 500),
                               digest_of_nothing(2)};
    bool missing[4];
    FAKE_PEER_SET(&peers[0], lie, FAKE_LIE_OTHER_BLOB);
    ck_assert_uint_eq(find_missing(digests, 4, missing), 4);
    FAKE_PEER_SET(&peers[0], lie, FAKE_HONEST);
    WAIT_UNTIL(find_missing(digests, 4, missing) == 2);
    ck_assert(missing[1] && missing[3]);
}
END_TEST

START_TEST(who_gives_up_while_a_peer_is_asked_what_is_missing_leaves_nothing_behind)
{
    const struct digest digest = put(0, 1, 500);
    struct byte_builder request = {0};
    bool missing;
    message_add_digest(&request, 2, &digest);
    FAKE_PEER_SET(&peers[0], pause_ms, 50);
    for (size_t i = 0; i < 20; i++) {
        struct rpc rpc;
        rpc_begin(&rpc, &front.client, CAS_METHOD("FindMissingBlobs"));
        ck_assert(rpc_send(&rpc, message_bytes(&request)));
        ck_assert(rpc_half_close(&rpc));
        usleep((useconds_t)(i * 7000 % 90000));
        rpc_cancel(&rpc);
        rpc_end(&rpc);
    }
    byte_builder_free(&request);
    front_rig_wait_live(&front, 0);
    WAIT_UNTIL(find_missing(&digest, 1, &missing) == 0);
}
END_TEST

/* ---- BatchReadBlobs */

static void read_batch(const struct digest *digests, size_t count, uint64_t seed)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    for (size_t i = 0; i < count; i++)
        message_add_digest(&request, 2, &digests[i]);
    const grpc_status_code code = rpc_unary(&front.client, CAS_METHOD("BatchReadBlobs"),
                                            message_bytes(&request), &response, &length, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    byte_builder_free(&request);
    REAPI(BatchReadBlobsResponse) *const batch = (void *)protobuf_c_message_unpack(
        &REAPI_DESCRIPTOR(batch_read_blobs_response), NULL, length, response);
    free(response);
    ck_assert_ptr_nonnull(batch);
    ck_assert_uint_eq(batch->n_responses, count);
    for (size_t i = 0; i < count; i++) {
        uint8_t *const expected = seeded_bytes(seed + i, (size_t)digests[i].size_bytes);
        ck_assert(batch->responses[i]->status == NULL || batch->responses[i]->status->code == 0);
        ck_assert_uint_eq(batch->responses[i]->data.len, (size_t)digests[i].size_bytes);
        ck_assert_mem_eq(batch->responses[i]->data.data, expected, (size_t)digests[i].size_bytes);
        free(expected);
    }
    protobuf_c_message_free_unpacked(&batch->base, NULL);
}

START_TEST(a_batch_is_completed_from_a_peer)
{
    enum { BLOBS = 400 };
    static struct digest digests[BLOBS];
    for (uint64_t i = 0; i < BLOBS; i++) {
        digests[i] = put(0, i, 10 + i * 13);
        if (i % 4 != 0)
            continue;
        uint8_t *const data = seeded_bytes(i, 10 + i * 13);
        real_store_put(&real, bytes_of(data, 10 + i * 13));
        free(data);
        if (i % 40 == 0)
            real_store_damage(&real, &digests[i]);
    }
    read_batch(digests, BLOBS, 0);
    ck_assert_uint_eq(sent(0), BLOBS - BLOBS / 4 + BLOBS / 40);
    read_batch(digests, BLOBS, 0);
    ck_assert_uint_eq(sent(0), BLOBS - BLOBS / 4 + BLOBS / 40);
}
END_TEST

/* ---- trees and action results */

static struct digest put_message(size_t which, struct byte_builder *message)
{
    struct digest digest;
    fake_peer_put(&peers[which], message_bytes(message), &digest);
    byte_builder_free(message);
    return digest;
}

START_TEST(a_tree_is_walked_through_the_peers)
{
    struct byte_builder root = {0};
    const struct digest file = put(0, 1, 100);
    for (unsigned i = 0; i < 5; i++) {
        struct byte_builder directory = {0};
        char name[8] = {(char)('a' + i)};
        directory_add_file(&directory, name, &file);
        const struct digest digest = put_message(0, &directory);
        directory_add_directory(&root, name, &digest);
    }
    const struct digest digest = put_message(0, &root);
    struct byte_builder request = {0};
    message_add_digest(&request, 2, &digest);
    struct rpc rpc;
    rpc_begin(&rpc, &front.client, CAS_METHOD("GetTree"));
    ck_assert(rpc_send(&rpc, message_bytes(&request)));
    ck_assert(rpc_half_close(&rpc));
    byte_builder_free(&request);
    size_t directories = 0;
    size_t length;
    for (uint8_t *message; (message = rpc_receive(&rpc, &length)) != NULL; free(message)) {
        REAPI(GetTreeResponse) *const page = (void *)protobuf_c_message_unpack(
            &REAPI_DESCRIPTOR(get_tree_response), NULL, length, message);
        ck_assert_ptr_nonnull(page);
        directories += page->n_directories;
        protobuf_c_message_free_unpacked(&page->base, NULL);
    }
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    ck_assert_uint_eq(directories, 6);
    ck_assert_uint_eq(sent(0), 6);
}
END_TEST

static grpc_status_code get_result(const struct digest *action)
{
    struct byte_builder request = {0};
    uint8_t *response = NULL;
    size_t length = 0;
    message_add_digest(&request, 2, action);
    const grpc_status_code code = rpc_unary(&front.client, AC_METHOD("GetActionResult"),
                                            message_bytes(&request), &response, &length, text);
    free(response);
    byte_builder_free(&request);
    return code;
}

/* With a Tree, so that what it names is known only when that is here. */
static struct byte_builder make_result(struct digest *last)
{
    struct byte_builder result = {0};
    struct byte_builder tree = {0};
    struct byte_builder directory = {0};
    *last = put(0, 7, 2000);
    directory_add_file(&directory, "deep", last);
    message_add_message(&tree, 1, &directory);
    const struct digest tree_digest = put_message(0, &tree);
    const struct digest output = put(0, 8, 3000000);
    result_add_file(&result, "out", &output);
    result_add_directory(&result, "dir", &tree_digest, NULL);
    return result;
}

START_TEST(what_an_action_result_names_is_fetched_before_it_is_served)
{
    struct digest last;
    const struct digest action = digest_of_nothing(1);
    struct byte_builder result = make_result(&last);
    if (_i == 0) /* the result is here, or is not either */
        real_store_put_action(&real, &action, bytes_of(NULL, 0), message_bytes(&result));
    else
        fake_peer_put_action(&peers[0], &action, message_bytes(&result), 1000, 5);
    byte_builder_free(&result);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_OK);
    ck_assert(store_holds(real.store, &last));
    ck_assert_uint_eq(sent(0), 3);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_ACTION_HITS), 1);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_ACTION_MISSES), 0);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_ACTION_INCOMPLETE), 0);
}
END_TEST

START_TEST(a_result_that_once_could_not_be_completed_is_served_when_it_can)
{
    struct digest last;
    const struct digest action = digest_of_nothing(1);
    struct byte_builder result = make_result(&last);
    fake_peer_put_action(&peers[0], &action, message_bytes(&result), 1000, 5);
    byte_builder_free(&result);
    fake_peer_lose(&peers[0], &last, true);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_ACTION_INCOMPLETE), 1);
    fake_peer_lose(&peers[0], &last, false);
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_OK);
    const struct digest unknown = digest_of_nothing(2);
    ck_assert_int_eq(get_result(&unknown), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_ACTION_MISSES), 1);
}
END_TEST

/* ---- peers in trouble */

START_TEST(a_peer_that_does_not_answer_costs_a_moment_once)
{
    set_peers(2);
    /* Both have answered, so that the other is not silent for want of a connection. */
    const struct digest first = put(1, 100, 1000);
    WAIT_UNTIL(read_blob(&first, 100) == GRPC_STATUS_OK);
    FAKE_PEER_SET(&peers[0], black_hole, true);
    for (uint64_t i = 0; i < 5; i++) {
        const struct digest digest = put(1, i, i == 1 ? 2 * MIB : 1000);
        const int64_t begun_ms = now_ms();
        ck_assert_int_eq(read_blob(&digest, i), GRPC_STATUS_OK);
        ck_assert_int_lt(now_ms() - begun_ms, i == 0 ? 3000 : 600);
    }
}
END_TEST

START_TEST(a_peer_that_is_gone_is_asked_again_when_it_is_back)
{
    const struct digest digest = put(0, 1, 1000);
    FAKE_PEER_SET(&peers[0], black_hole, true);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_NOT_FOUND);
    const struct digest action = digest_of_nothing(1);
    for (size_t i = 0; i < 20; i++) { /* while nobody can be asked nobody waits */
        const int64_t begun_ms = now_ms();
        ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_NOT_FOUND);
        ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
        ck_assert_int_lt(now_ms() - begun_ms, 300);
    }
    FAKE_PEER_SET(&peers[0], black_hole, false);
    WAIT_UNTIL(read_blob(&digest, 1) == GRPC_STATUS_OK);
}
END_TEST

START_TEST(an_action_result_of_a_silent_peer_is_not_waited_for)
{
    const struct digest action = digest_of_nothing(1);
    FAKE_PEER_SET(&peers[0], black_hole, true);
    const int64_t begun_ms = now_ms();
    ck_assert_int_eq(get_result(&action), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_lt(now_ms() - begun_ms, 1500);
}
END_TEST

START_TEST(a_liar_gets_nothing_stored_and_the_next_peer_is_asked)
{
    static const enum fake_lie lies[] = {FAKE_LIE_WRONG_BYTES, FAKE_LIE_TOO_MANY_BYTES};
    const size_t length = _i < 2 ? 1000 : 3 * MIB;
    const struct digest digest = put(0, 1, length);
    FAKE_PEER_SET(&peers[0], lie, lies[_i % 2]);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_NOT_FOUND);
    ck_assert(!store_holds(real.store, &digest));
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_PEER_LIES), 1);
    put(1, 1, length);
    set_peers(2);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_PEER_LIES), 1);
}
END_TEST

START_TEST(a_client_that_goes_away_while_a_peer_is_asked_leaves_nothing_behind)
{
    const struct digest digest = put(0, 1, 1000);
    const struct digest large = put(0, 2, 3 * MIB);
    FAKE_PEER_SET(&peers[0], pause_ms, 100);
    for (size_t i = 0; i < 20; i++) {
        struct rpc rpc;
        start_read(&rpc, &front.client, i % 2 == 0 ? &digest : &large);
        usleep((useconds_t)(i * 7000 % 120000));
        rpc_cancel(&rpc);
        rpc_end(&rpc);
    }
    front_rig_wait_live(&front, 0);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    ck_assert_int_eq(read_blob(&large, 2), GRPC_STATUS_OK);
    ck_assert_uint_eq(sent(0), 2);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_a_peer)
{
    const struct digest digest = put(0, 1, 3 * MIB);
    FAKE_PEER_SET(&peers[0], pause_ms, 300);
    struct rpc rpc;
    start_read(&rpc, &front.client, &digest);
    usleep(50000);
    rpc_cancel(&rpc);
    rpc_end(&rpc);
    /* The fetch goes on until the teardown, which is measured by the time limit of the test. */
}
END_TEST

START_TEST(peers_come_and_go)
{
    const struct digest digest = put(1, 1, 1000);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_NOT_FOUND);
    set_peers(2);
    ck_assert_int_eq(read_blob(&digest, 1), GRPC_STATUS_OK);
    set_peers(0);
    const struct digest other = put(0, 2, 1000);
    ck_assert_int_eq(read_blob(&other, 2), GRPC_STATUS_NOT_FOUND);
    set_peers(1);
    ck_assert_int_eq(read_blob(&other, 2), GRPC_STATUS_OK);
}
END_TEST

int main(void)
{
    enum { SIZES = ARRAY_LENGTH(sizes) };
    Suite *suite = suite_create("repair");
    TCase *tests = tcase_create("over gRPC");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up_patient, teardown);
    tcase_add_loop_test(tests, a_read_of_what_a_peer_has_is_served_and_stored, 0, SIZES);
    tcase_add_loop_test(tests, what_is_damaged_here_is_replaced_from_a_peer, 0, SIZES);
    tcase_add_loop_test(tests, one_fetch_a_digest_however_many_ask, 1, SIZES);
    tcase_add_test(tests, what_nobody_has_is_not_found_and_asked_for_again_the_next_time);
    tcase_add_test(tests, requests_of_a_peer_ask_nobody);
    tcase_add_test(tests, what_a_peer_has_is_not_missing_and_nothing_is_fetched_for_that);
    tcase_add_test(tests, only_peers_that_this_node_is_behind_are_asked_what_is_missing);
    tcase_add_test(tests, where_copies_are_asked_for_what_a_peer_has_too_is_not_missing);
    tcase_add_test(tests, more_digests_than_a_call_holds_are_asked_in_pages);
    tcase_add_test(tests, an_answer_that_makes_no_sense_counts_for_nothing);
    tcase_add_test(tests, who_gives_up_while_a_peer_is_asked_what_is_missing_leaves_nothing_behind);
    tcase_add_test(tests, a_batch_is_completed_from_a_peer);
    tcase_add_test(tests, a_tree_is_walked_through_the_peers);
    tcase_add_loop_test(tests, what_an_action_result_names_is_fetched_before_it_is_served, 0, 2);
    tcase_add_test(tests, a_result_that_once_could_not_be_completed_is_served_when_it_can);
    tcase_add_loop_test(tests, a_liar_gets_nothing_stored_and_the_next_peer_is_asked, 0, 4);
    tcase_add_test(tests, a_client_that_goes_away_while_a_peer_is_asked_leaves_nothing_behind);
    tcase_add_test(tests, a_stop_does_not_wait_for_a_peer);
    tcase_add_test(tests, peers_come_and_go);
    suite_add_tcase(suite, tests);
    tests = tcase_create("with a peer that does not answer");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up_as_usual, teardown);
    tcase_add_test(tests, a_peer_that_does_not_answer_costs_a_moment_once);
    tcase_add_test(tests, a_peer_that_is_gone_is_asked_again_when_it_is_back);
    tcase_add_test(tests, an_action_result_of_a_silent_peer_is_not_waited_for);
    tcase_add_test(tests, a_silent_peer_does_not_keep_a_client_from_uploading);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
