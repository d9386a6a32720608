/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what a follower sees of varve.v1.Replication: that Feed tells what is new as soon as it is durable and keeps account of
 * who asks, that Fetch sends the bytes that were stored and leaves out what rotted, and that positions which are not, or no longer,
 * of this log are refused by name. Over gRPC, with a store on the simulated disk behind it.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "durability/forget.h"
#include "server/config.h"
#include "server/feed_waits.h"
#include "server/methods.h"
#include "store/find.h"
#include "tests/support/front_rig.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"
#include "varve/v1/replication.pb-c.h"

typedef Varve__V1__FeedRequest feed_request;
typedef Varve__V1__FeedResponse feed_response;
typedef Varve__V1__FeedRecord feed_record;
typedef Varve__V1__FetchRequest fetch_request;
typedef Varve__V1__FetchResponse fetch_response;
typedef Varve__V1__PeersRequest peers_request;
typedef Varve__V1__PeersResponse peers_response;

enum { FOLLOWER = 4711 };

static struct front_rig front;
static struct store_rig rig;
static struct thread ticker;
static _Atomic bool ticking;
static char text[RPC_TEXT_BYTES_MAX];

/* What the maintenance thread of a server does. */
static void tick(void *argument)
{
    (void)argument;
    while (ticking) {
        feed_waits_step(front.server.feed_waits);
        copies_step(durability_copies(rig.durability));
        usleep(10000);
    }
}

/* Hands things over to calls through gRPC, where ThreadSanitizer does not see it. */
__attribute__((no_sanitize_thread)) static void start(const struct store_rig_limits *limits)
{
    static const struct method *const methods[] = {&rpc_feed, &rpc_fetch, &rpc_peers};
    struct status status;
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, limits);
    front_rig_start(&front, methods, ARRAY_LENGTH(methods), NULL);
    front.server.durability = rig.durability;
    front.server.store = durability_store(rig.durability);
    front.server.buffers = rig.buffers;
    ck_assert(feed_waits_new(durability_copies(rig.durability), clock_real(), &front.metrics,
                             &front.server.feed_waits, &status));
    ticking = true;
    ck_assert(thread_start(&ticker, "tick", 0, tick, NULL, &status));
}

static void setup(void)
{
    const struct store_rig_limits none = {0};
    start(&none);
}

static void teardown(void)
{
    front_rig_stop(&front, 10000);
    ticking = false;
    thread_join(&ticker);
    feed_waits_free(front.server.feed_waits);
    store_rig_end(&rig);
}

static struct bytes packed(const ProtobufCMessage *message)
{
    const size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *const data = malloc(length + 1);
    ck_assert_uint_eq(protobuf_c_message_pack(message, data), length);
    return bytes_of(data, length);
}

static grpc_status_code feed(const feed_request *request, feed_response **response)
{
    const struct bytes message = packed(&request->base);
    uint8_t *received = NULL;
    size_t length = 0;
    const grpc_status_code code =
        rpc_unary(&front.client, rpc_feed.path, message, &received, &length, text);
    free((void *)(uintptr_t)message.data);
    *response = received != NULL ? varve__v1__feed_response__unpack(NULL, length, received) : NULL;
    free(received);
    return code;
}

static feed_request ask(uint64_t after_seq, uint32_t wait_ms)
{
    feed_request request = VARVE__V1__FEED_REQUEST__INIT;
    request.lane = VARVE__V1__LANE__LANE_SMALL;
    request.after_seq = after_seq;
    request.max_records = 100;
    request.wait_ms = wait_ms;
    return request;
}

static struct digest put(const char *data)
{
    struct digest digest;
    struct status status;
    ck_assert(store_rig_put(&rig, bytes_of_string(data), &digest, &status));
    return digest;
}

static bool is_of(const feed_record *record, const struct digest *digest)
{
    return bytes_equal(bytes_of(record->hash.data, record->hash.len),
                       bytes_of(digest->hash, digest->hash_length)) &&
           record->size_bytes == (uint64_t)digest->size_bytes &&
           record->digest_function == digest->function;
}

START_TEST(feed_tells_blobs_action_results_and_deletions_with_all_that_makes_them)
{
    struct status status;
    feed_response *response = NULL;
    const struct digest first = put("first");
    const struct digest second = put("second");
    ck_assert(store_rig_put_action(&rig, &first, "instance", bytes_of_string("result"), &status));
    struct place place;
    ck_assert(store_find_blob(durability_store(rig.durability), &second, FIND_ONLY, &place));
    durability_forget(rig.durability, &second, NULL, place, RECORD_BLOB, FORGET_PURGED);
    forget_wait(durability_store(rig.durability));

    const feed_request request = ask(0, 0);
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OK);
    ASSERT(response != NULL);
    ck_assert_uint_eq(response->n_records, 3);
    ck_assert(is_of(response->records[0], &first));
    ck_assert_int_eq(response->records[0]->kind, VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB);
    ck_assert_uint_eq(response->records[0]->seq, 1);
    ck_assert_uint_eq(response->records[0]->stored_bytes, 5);
    const feed_record *const action = response->records[1];
    ck_assert(is_of(action, &first));
    ck_assert_int_eq(action->kind, VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION);
    ck_assert_str_eq(action->instance_name, "instance");
    ck_assert(bytes_equal_string(bytes_of(action->writer.data, action->writer.len), "test"));
    ck_assert(bytes_equal_string(bytes_of(action->action_result.data, action->action_result.len),
                                 "result"));
    ck_assert_int_eq(action->written_unix_ns, 1);
    ck_assert_uint_eq(action->origin_uid, 2);
    const feed_record *const forget = response->records[2];
    ck_assert(is_of(forget, &second));
    ck_assert_int_eq(forget->kind, VARVE__V1__RECORD_KIND__RECORD_KIND_FORGET);
    ck_assert_int_eq(forget->forgotten_kind, VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB);
    ck_assert_uint_eq(forget->origin_uid, durability_store(rig.durability)->node_uid);
    ck_assert_int_gt(forget->written_unix_ns, 0);
    ck_assert_uint_eq(response->next_after_seq, 4);
    ck_assert_uint_eq(response->durable_seq, 4);
    ck_assert_uint_eq(response->oldest_seq, 1);
    ck_assert_uint_eq(response->behind_bytes, 0);
    ck_assert_uint_eq(response->node_uid, durability_store(rig.durability)->node_uid);
    varve__v1__feed_response__free_unpacked(response, NULL);
}
END_TEST

START_TEST(feed_gives_no_more_than_was_asked_for_and_goes_on_from_there)
{
    feed_response *response = NULL;
    uint64_t after_seq = 0;
    for (int i = 0; i < 10; i++) {
        char data[16];
        snprintf(data, sizeof(data), "blob %d", i);
        put(data);
    }
    for (int i = 0; i < 5; i++) {
        feed_request request = ask(after_seq, 0);
        request.max_records = 2;
        ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OK);
        ASSERT(response != NULL);
        ASSERT(response != NULL);
        ck_assert_uint_eq(response->n_records, 2);
        ck_assert_uint_eq(response->records[0]->seq, after_seq + 1);
        ck_assert_uint_eq(response->next_after_seq, after_seq + 2);
        ck_assert((response->behind_bytes > 0) == (i < 4));
        after_seq = response->next_after_seq;
        varve__v1__feed_response__free_unpacked(response, NULL);
    }
}
END_TEST

static struct bytes start_feed(struct rpc *rpc, const feed_request *request)
{
    const struct bytes message = packed(&request->base);
    rpc_begin(rpc, &front.client, rpc_feed.path);
    ck_assert(rpc_send(rpc, message));
    ck_assert(rpc_half_close(rpc));
    return message;
}

static feed_response *finish_feed(struct rpc *rpc, struct bytes message)
{
    size_t length = 0;
    uint8_t *const received = rpc_receive(rpc, &length);
    feed_response *const response =
        received != NULL ? varve__v1__feed_response__unpack(NULL, length, received) : NULL;
    free(received);
    ck_assert_int_eq(rpc_end(rpc), GRPC_STATUS_OK);
    free((void *)(uintptr_t)message.data);
    ck_assert_ptr_nonnull(response);
    return response;
}

static void wait_until_parked(int64_t feeds)
{
    while (metrics_get(&front.metrics, METRIC_FEEDS_WAITING) != feeds)
        usleep(1000);
    usleep(50000);
}

START_TEST(feed_at_the_end_waits_until_something_is_durable)
{
    struct rpc rpc;
    const feed_request request = ask(0, 60000);
    const struct bytes message = start_feed(&rpc, &request);
    wait_until_parked(1);
    ck_assert(!rpc_wait_ended(&rpc, 100));
    const int64_t begin_ns = clock_monotonic_ns(clock_real());
    const struct digest digest = put("comes later");
    feed_response *const response = finish_feed(&rpc, message);
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - begin_ns, 30 * NS_PER_S);
    ck_assert_uint_eq(response->n_records, 1);
    ck_assert(is_of(response->records[0], &digest));
    varve__v1__feed_response__free_unpacked(response, NULL);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_FEEDS_WAITING), 0);
}
END_TEST

START_TEST(feed_answers_with_nothing_when_its_wait_is_over)
{
    struct rpc rpc;
    put("before");
    const feed_request request = ask(1, 300);
    const int64_t begin_ns = clock_monotonic_ns(clock_real());
    const struct bytes message = start_feed(&rpc, &request);
    feed_response *const response = finish_feed(&rpc, message);
    ck_assert_int_ge(clock_monotonic_ns(clock_real()) - begin_ns, 290 * NS_PER_MS);
    ck_assert_uint_eq(response->n_records, 0);
    ck_assert_uint_eq(response->next_after_seq, 1);
    varve__v1__feed_response__free_unpacked(response, NULL);
}
END_TEST

START_TEST(a_feed_that_waits_does_not_hold_up_a_stop)
{
    struct rpc rpc;
    const feed_request request = ask(0, 60000);
    const struct bytes message = start_feed(&rpc, &request);
    wait_until_parked(1);
    feed_waits_stop(front.server.feed_waits);
    feed_response *const response = finish_feed(&rpc, message);
    ck_assert_uint_eq(response->n_records, 0);
    varve__v1__feed_response__free_unpacked(response, NULL);
}
END_TEST

START_TEST(a_feed_that_is_given_up_leaves_nothing_behind)
{
    struct rpc rpc;
    const feed_request request = ask(0, 60000);
    const struct bytes message = start_feed(&rpc, &request);
    wait_until_parked(1);
    rpc_cancel(&rpc);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_CANCELLED);
    free((void *)(uintptr_t)message.data);
    front_rig_wait_live(&front, 0);
    ck_assert_int_eq(metrics_get(&front.metrics, METRIC_FEEDS_WAITING), 0);
    put("and the log goes on");
}
END_TEST

/* Chunks of an upload are nothing to tell; nor are deletions of what was damaged. */
START_TEST(feed_waits_on_when_there_is_nothing_to_tell_of_what_is_new)
{
    struct rpc rpc;
    const struct digest digest = put("rots");
    feed_request request = ask(1, 60000);
    request.follower_uid = FOLLOWER;
    request.follower_durable_seq = 1;
    const struct bytes message = start_feed(&rpc, &request);
    wait_until_parked(1);
    struct place place;
    ck_assert(store_find_blob(durability_store(rig.durability), &digest, FIND_ONLY, &place));
    durability_forget(rig.durability, &digest, NULL, place, RECORD_BLOB, FORGET_DAMAGED);
    forget_wait(durability_store(rig.durability));
    ck_assert(!rpc_wait_ended(&rpc, 200));
    /* It is told to have dealt with it all the same. */
    struct follower followers[2];
    ck_assert_uint_eq(copies_followers(durability_copies(rig.durability), followers, 2), 1);
    ck_assert_uint_eq(followers[0].durable_seq[LANE_SMALL], 2);
    const struct digest next = put("next");
    feed_response *const response = finish_feed(&rpc, message);
    ck_assert_uint_eq(response->n_records, 1);
    ck_assert(is_of(response->records[0], &next));
    ck_assert_uint_eq(response->records[0]->seq, 3);
    varve__v1__feed_response__free_unpacked(response, NULL);
}
END_TEST

START_TEST(feed_names_positions_that_are_not_of_this_log)
{
    feed_response *response = NULL;
    put("one");
    feed_request beyond = ask(2, 0);
    ck_assert_int_eq(feed(&beyond, &response), GRPC_STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(text, "after_seq 2 is beyond the end"));
    beyond = ask(0, 0);
    beyond.follower_uid = FOLLOWER;
    beyond.follower_durable_seq = 2;
    ck_assert_int_eq(feed(&beyond, &response), GRPC_STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(text, "follower_durable_seq 2 is beyond the end"));
    feed_request other = ask(0, 0);
    other.node_uid = durability_store(rig.durability)->node_uid + 1;
    ck_assert_int_eq(feed(&other, &response), GRPC_STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(text, "its disk was replaced"));
    feed_request no_lane = ask(0, 0);
    no_lane.lane = VARVE__V1__LANE__LANE_UNSPECIFIED;
    ck_assert_int_eq(feed(&no_lane, &response), GRPC_STATUS_INVALID_ARGUMENT);
    feed_request long_wait = ask(0, 60001);
    ck_assert_int_eq(feed(&long_wait, &response), GRPC_STATUS_INVALID_ARGUMENT);
}
END_TEST

static peers_response *peers(void)
{
    peers_request request = VARVE__V1__PEERS_REQUEST__INIT;
    const struct bytes message = packed(&request.base);
    uint8_t *received = NULL;
    size_t length = 0;
    ck_assert_int_eq(rpc_unary(&front.client, rpc_peers.path, message, &received, &length, text),
                     GRPC_STATUS_OK);
    free((void *)(uintptr_t)message.data);
    peers_response *const response = varve__v1__peers_response__unpack(NULL, length, received);
    free(received);
    ck_assert_ptr_nonnull(response);
    return response;
}

START_TEST(peers_says_who_follows_and_how_far)
{
    feed_response *response = NULL;
    for (int i = 0; i < 3; i++)
        put(&"abc"[i]);
    feed_request request = ask(2, 0);
    request.follower_uid = FOLLOWER;
    request.follower_durable_seq = 2;
    request.follower_name = (char *)(uintptr_t) "node-b:8980";
    request.max_records = 0;
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OK);
    ASSERT(response != NULL);
    ck_assert_uint_eq(response->n_records, 0);
    ck_assert_uint_eq(response->next_after_seq, 2);
    varve__v1__feed_response__free_unpacked(response, NULL);

    peers_response *const told = peers();
    ck_assert_uint_eq(told->n_followers, 1);
    ck_assert_uint_eq(told->followers[0]->uid, FOLLOWER);
    ck_assert_str_eq(told->followers[0]->name, "node-b:8980");
    ck_assert(strncmp(told->followers[0]->address, "ipv4:127.0.0.1:", 15) == 0);
    ck_assert_uint_eq(told->followers[0]->small_durable_seq, 2);
    ck_assert_uint_eq(told->followers[0]->small_behind_records, 1);
    ck_assert_uint_eq(told->followers[0]->large_behind_records, 0);
    ck_assert(told->followers[0]->counts);
    ck_assert_double_lt(told->followers[0]->seen_seconds_ago, 60);
    ck_assert_uint_eq(told->ack_copies, 0);
    varve__v1__peers_response__free_unpacked(told, NULL);
}
END_TEST

/* ---- Fetch */

struct fetched {
    size_t count;
    uint64_t last_seq;
    size_t messages;
    size_t bytes;
};

/* Each record is compared with what its seed gives, by its digest. */
static grpc_status_code fetch(uint64_t after_seq, uint64_t through_seq, struct fetched *fetched)
{
    fetch_request request = VARVE__V1__FETCH_REQUEST__INIT;
    struct rpc rpc;
    request.lane = VARVE__V1__LANE__LANE_SMALL;
    request.after_seq = after_seq;
    request.through_seq = through_seq;
    const struct bytes message = packed(&request.base);
    *fetched = (struct fetched){.last_seq = after_seq};
    rpc_begin(&rpc, &front.client, rpc_fetch.path);
    ck_assert(rpc_send(&rpc, message));
    ck_assert(rpc_half_close(&rpc));
    free((void *)(uintptr_t)message.data);
    for (;;) {
        size_t length = 0;
        uint8_t *const received = rpc_receive(&rpc, &length);
        if (received == NULL)
            break;
        ck_assert_uint_lt(length, 3 * MIB);
        fetch_response *const response = varve__v1__fetch_response__unpack(NULL, length, received);
        ASSERT(response != NULL);
        ck_assert_uint_gt(response->n_records, 0);
        for (size_t i = 0; i < response->n_records; i++) {
            const Varve__V1__FetchedRecord *const record = response->records[i];
            struct digest found;
            ck_assert_uint_gt(record->seq, fetched->last_seq);
            fetched->last_seq = record->seq;
            digest_of_bytes((enum digest_function)record->digest_function,
                            bytes_of(record->payload.data, record->payload.len), &found);
            ck_assert(bytes_equal(bytes_of(record->hash.data, record->hash.len),
                                  bytes_of(found.hash, found.hash_length)));
            ck_assert_uint_eq(record->size_bytes, record->payload.len);
            fetched->count++;
            fetched->bytes += record->payload.len;
        }
        fetched->messages++;
        varve__v1__fetch_response__free_unpacked(response, NULL);
        free(received);
    }
    const grpc_status_code code = rpc_end(&rpc);
    memcpy(text, rpc.text, sizeof(text));
    return code;
}

static struct digest put_seeded(uint64_t seed, size_t length)
{
    struct digest digest;
    struct status status;
    uint8_t *const data = seeded_bytes(seed, length);
    ck_assert(store_rig_put(&rig, bytes_of(data, length), &digest, &status));
    free(data);
    return digest;
}

START_TEST(fetch_sends_the_bytes_as_they_were_stored)
{
    static const size_t lengths[] = {1, 63, 64, 100, 2800, 70000, MIB - 1, MIB, 5};
    struct fetched fetched;
    struct status status;
    size_t bytes = 0;
    for (size_t i = 0; i < 45; i++) {
        put_seeded(i, lengths[i % ARRAY_LENGTH(lengths)]);
        bytes += lengths[i % ARRAY_LENGTH(lengths)];
    }
    const struct digest action = put("an action");
    ck_assert(store_rig_put_action(&rig, &action, "", bytes_of_string("result"), &status));
    ck_assert_int_eq(fetch(0, 45, &fetched), GRPC_STATUS_OK);
    ck_assert_uint_eq(fetched.count, 45);
    ck_assert_uint_eq(fetched.bytes, bytes);
    ck_assert_uint_gt(fetched.messages, 1);
    ck_assert_int_eq(fetch(10, 20, &fetched), GRPC_STATUS_OK);
    ck_assert_uint_eq(fetched.count, 10);
    ck_assert_uint_eq(fetched.last_seq, 20);
    ck_assert_int_eq(fetch(45, 1000, &fetched), GRPC_STATUS_OK);
    ck_assert_uint_eq(fetched.count, 1); /* the action result is not a blob */
    ck_assert_int_eq(fetch(10, 10, &fetched), GRPC_STATUS_OK);
    ck_assert_uint_eq(fetched.count, 0);
}
END_TEST

START_TEST(fetch_leaves_out_what_is_damaged_or_forgotten)
{
    struct fetched fetched;
    for (uint64_t i = 0; i < 10; i++)
        put_seeded(i, 5000);
    struct store *const store = durability_store(rig.durability);
    uint8_t *const third = seeded_bytes(2, 5000);
    uint8_t *const fifth = seeded_bytes(4, 5000);
    struct digest rotten;
    struct digest purged;
    struct place place;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(third, 5000), &rotten);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(fifth, 5000), &purged);
    free(third);
    free(fifth);
    ck_assert(store_find_blob(store, &purged, FIND_ONLY, &place));
    durability_forget(rig.durability, &purged, NULL, place, RECORD_BLOB, FORGET_PURGED);
    ck_assert(store_find_blob(store, &rotten, FIND_ONLY, &place));
    struct segment *const segment = segment_set_pin(store->segments, place.segment);
    io_sim_corrupt(rig.sim, segment->path, place.offset + RECORD_HEADER_BYTES + 100, 1);
    segment_set_unpin(store->segments, segment);

    ck_assert_int_eq(fetch(0, 10, &fetched), GRPC_STATUS_OK);
    ck_assert_uint_eq(fetched.count, 8);
    ck_assert_int_ge(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), 1);
    ck_assert(!store_rig_has(&rig, &rotten));
}
END_TEST

START_TEST(fetch_is_for_the_small_lane_and_for_this_log)
{
    struct fetched fetched;
    put("one");
    ck_assert_int_eq(fetch(5, 6, &fetched), GRPC_STATUS_FAILED_PRECONDITION);
    ck_assert_int_eq(fetch(5, 4, &fetched), GRPC_STATUS_INVALID_ARGUMENT);
    fetch_request request = VARVE__V1__FETCH_REQUEST__INIT;
    struct rpc rpc;
    request.lane = VARVE__V1__LANE__LANE_LARGE;
    request.through_seq = 1;
    const struct bytes message = packed(&request.base);
    rpc_begin(&rpc, &front.client, rpc_fetch.path);
    ck_assert(rpc_send(&rpc, message));
    ck_assert(rpc_half_close(&rpc));
    free((void *)(uintptr_t)message.data);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(rpc.text, "ByteStream"));
}
END_TEST

static void setup_small(void)
{
    const struct store_rig_limits limits = {.capacity_bytes = 10 * SEGMENT_BYTES_MIN};
    start(&limits);
}

START_TEST(a_position_that_was_evicted_is_out_of_range_and_names_the_oldest_held)
{
    feed_response *response = NULL;
    struct fetched fetched;
    char oldest[64];
    uint64_t seed = 0;
    while (metrics_get(&rig.metrics, METRIC_SEGMENTS_EVICTED) < 2)
        put_seeded(seed++, 700000);
    feed_request request = ask(1, 60000);
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OUT_OF_RANGE);
    ck_assert_int_eq(fetch(1, 2, &fetched), GRPC_STATUS_OUT_OF_RANGE);
    request = ask(0, 0);
    char refused[RPC_TEXT_BYTES_MAX];
    request.after_seq = 1;
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OUT_OF_RANGE);
    memcpy(refused, text, sizeof(refused));
    request.after_seq = 0;
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OK);
    ASSERT(response != NULL);
    ck_assert_uint_gt(response->n_records, 0);
    ck_assert_uint_gt(response->oldest_seq, 2);
    snprintf(oldest, sizeof(oldest), "held is %llu,", (unsigned long long)response->oldest_seq);
    ck_assert_msg(strstr(refused, oldest) != NULL, "%s / %s", refused, oldest);
    ck_assert_uint_ge(response->records[0]->seq, response->oldest_seq);
    /* Right before the oldest is as good as any. */
    request.after_seq = response->oldest_seq - 1;
    varve__v1__feed_response__free_unpacked(response, NULL);
    ck_assert_int_eq(feed(&request, &response), GRPC_STATUS_OK);
    ASSERT(response != NULL);
    varve__v1__feed_response__free_unpacked(response, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_replication");
    TCase *tests = tcase_create("Feed and Fetch");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, feed_tells_blobs_action_results_and_deletions_with_all_that_makes_them);
    tcase_add_test(tests, feed_gives_no_more_than_was_asked_for_and_goes_on_from_there);
    tcase_add_test(tests, feed_at_the_end_waits_until_something_is_durable);
    tcase_add_test(tests, feed_answers_with_nothing_when_its_wait_is_over);
    tcase_add_test(tests, a_feed_that_waits_does_not_hold_up_a_stop);
    tcase_add_test(tests, a_feed_that_is_given_up_leaves_nothing_behind);
    tcase_add_test(tests, feed_waits_on_when_there_is_nothing_to_tell_of_what_is_new);
    tcase_add_test(tests, feed_names_positions_that_are_not_of_this_log);
    tcase_add_test(tests, peers_says_who_follows_and_how_far);
    tcase_add_test(tests, fetch_sends_the_bytes_as_they_were_stored);
    tcase_add_test(tests, fetch_leaves_out_what_is_damaged_or_forgotten);
    tcase_add_test(tests, fetch_is_for_the_small_lane_and_for_this_log);
    suite_add_tcase(suite, tests);
    TCase *evicting = tcase_create("evicting");
    tcase_set_timeout(evicting, 240);
    tcase_add_checked_fixture(evicting, setup_small, teardown);
    tcase_add_test(evicting, a_position_that_was_evicted_is_out_of_range_and_names_the_oldest_held);
    suite_add_tcase(suite, evicting);
    return test_run(suite);
}
