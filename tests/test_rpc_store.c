/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that varve.v1.Store tells where blobs lie (the empty, a small, a large and an absent one)
 * and how the server is, also when its syncs fail. Over gRPC, with a real store.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "server/config.h"
#include "server/health.h"
#include "server/methods.h"
#include "tests/support/front_rig.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"
#include "varve/v1/varve.pb-c.h"

typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;
typedef Varve__V1__StatRequest stat_request;
typedef Varve__V1__StatResponse stat_response;
typedef Varve__V1__StatusResponse status_response;
typedef Varve__V1__ScrubRequest scrub_request;
typedef Varve__V1__ScrubResponse scrub_response;

static struct front_rig rig;
static struct real_store real;
static struct metrics store_metrics;
static char text[RPC_TEXT_BYTES_MAX];

static void prepare(struct front_rig *made)
{
    made->server.durability = real.durability;
    made->server.store = real.store;
    made->server.started_ns = clock_monotonic_ns(clock_real()) - 90 * NS_PER_S;
    health_set(made->server.health, SERVER_SERVING, "");
}

static void setup(void)
{
    static const struct front_rig_limits limits = {.prepare = prepare};
    static const struct method *const methods[] = {&rpc_store_stat, &rpc_store_status,
                                                   &rpc_store_scrub};
    real_store_open(&real, &store_metrics, 8);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), &limits);
}

static void teardown(void)
{
    front_rig_stop(&rig, 10000);
    real_store_close(&real);
}

enum { HEX_BYTES = DIGEST_HASH_HEX_MAX + 1 };

static digest_message message_of(const struct digest *digest, char hex[HEX_BYTES])
{
    digest_message message = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIGEST__INIT;
    digest_hex(digest, hex);
    message.hash = hex;
    message.size_bytes = digest->size_bytes;
    return message;
}

static grpc_status_code stat_all(digest_message *const *digests,
                                 size_t count,
                                 stat_response **response)
{
    stat_request request = VARVE__V1__STAT_REQUEST__INIT;
    request.n_digests = count;
    request.digests = (digest_message **)(uintptr_t)digests;
    const size_t length = varve__v1__stat_request__get_packed_size(&request);
    uint8_t *const packed = malloc(length + 1);
    varve__v1__stat_request__pack(&request, packed);
    uint8_t *received = NULL;
    size_t received_length = 0;
    const grpc_status_code code =
        rpc_unary(&rig.client, rpc_store_stat.path, bytes_of(packed, length), &received,
                  &received_length, text);
    free(packed);
    *response = NULL;
    if (received != NULL)
        *response = varve__v1__stat_response__unpack(NULL, received_length, received);
    free(received);
    return code;
}

START_TEST(stat_tells_where_each_blob_lies_in_the_order_asked)
{
    static uint8_t block[3 << 20];
    char hex[4][HEX_BYTES];
    struct digest empty;
    struct digest absent;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, (struct bytes){0}, &empty);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("never stored"), &absent);
    const struct digest small = real_store_put(&real, bytes_of_string("small"));
    const struct digest large = real_store_put(&real, bytes_of(block, sizeof(block)));
    digest_message asked[] = {message_of(&large, hex[0]), message_of(&absent, hex[1]),
                              message_of(&empty, hex[2]), message_of(&small, hex[3])};
    digest_message *const pointers[] = {&asked[0], &asked[1], &asked[2], &asked[3]};

    stat_response *response;
    ck_assert_int_eq(stat_all(pointers, ARRAY_LENGTH(pointers), &response), GRPC_STATUS_OK);
    ASSERT(response != NULL);
    ck_assert_uint_eq(response->n_places, ARRAY_LENGTH(asked));
    for (size_t i = 0; i < ARRAY_LENGTH(asked); i++)
        ck_assert_str_eq(response->places[i]->digest->hash, hex[i]);
    const Varve__V1__BlobPlace *const *const places =
        (const Varve__V1__BlobPlace *const *)response->places;
    ck_assert(places[0]->present && !places[1]->present && places[2]->present &&
              places[3]->present);
    ck_assert_int_eq((int)places[0]->lane, VARVE__V1__LANE__LANE_LARGE);
    ck_assert_int_eq((int)places[1]->lane, VARVE__V1__LANE__LANE_UNSPECIFIED);
    ck_assert_int_eq((int)places[2]->lane, VARVE__V1__LANE__LANE_UNSPECIFIED);
    ck_assert_int_eq((int)places[3]->lane, VARVE__V1__LANE__LANE_SMALL);
    ck_assert_uint_eq(places[0]->stored_bytes, sizeof(block));
    ck_assert_uint_eq(places[1]->stored_bytes, 0);
    ck_assert_uint_eq(places[3]->stored_bytes, 5);
    ck_assert_uint_gt(places[0]->segment, 0);
    ck_assert_uint_gt(places[3]->segment, 0);
    ck_assert_uint_ne(places[0]->segment, places[3]->segment);
    ck_assert_uint_eq(places[3]->offset % RECORD_ALIGNMENT_BYTES, 0);
    varve__v1__stat_response__free_unpacked(response, NULL);
}
END_TEST

START_TEST(stat_refuses_what_is_no_digest_and_too_many)
{
    digest_message damaged = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIGEST__INIT;
    digest_message *const one[] = {&damaged};
    static char hash[] = "abc";
    damaged.hash = hash;
    stat_response *response;
    ck_assert_int_eq(stat_all(one, 1, &response), GRPC_STATUS_INVALID_ARGUMENT);

    enum { MANY = 60000 };
    char hex[HEX_BYTES];
    struct digest absent;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("never stored"), &absent);
    digest_message asked = message_of(&absent, hex);
    digest_message **const many = calloc(MANY, sizeof(*many));
    for (size_t i = 0; i < MANY; i++)
        many[i] = &asked;
    ck_assert_int_eq(stat_all(many, MANY, &response), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "60000"));
    ck_assert_int_eq(stat_all(many, 25000, &response), GRPC_STATUS_OK); /* and its answer fits */
    ASSERT(response != NULL);
    ck_assert_uint_eq(response->n_places, 25000);
    varve__v1__stat_response__free_unpacked(response, NULL);
    free(many);
}
END_TEST

static status_response *ask_status(void)
{
    uint8_t *received = NULL;
    size_t length = 0;
    ck_assert_int_eq(
        rpc_unary(&rig.client, rpc_store_status.path, (struct bytes){0}, &received, &length, text),
        GRPC_STATUS_OK);
    status_response *const response = varve__v1__status_response__unpack(NULL, length, received);
    ck_assert_ptr_nonnull(response);
    free(received);
    return response;
}

START_TEST(status_counts_what_was_written_and_is_durable)
{
    status_response *response = ask_status();
    ck_assert_uint_eq(response->n_lanes, LANE_COUNT);
    const uint64_t before = response->lanes[LANE_SMALL]->durable_seq;
    const uint64_t entries = response->index_entries;
    varve__v1__status_response__free_unpacked(response, NULL);
    for (int i = 0; i < 5; i++)
        real_store_put(&real, bytes_of(&i, sizeof(i)));

    response = ask_status();
    ck_assert_str_eq(response->version, VARVE_VERSION);
    ck_assert_int_eq((int)response->state, VARVE__V1__STATUS_RESPONSE__STATE__STATE_SERVING);
    ck_assert_int_eq(response->read_only, 0);
    ck_assert_str_eq(response->read_only_reason, "");
    ck_assert_uint_eq(response->lanes[LANE_SMALL]->durable_seq, before + 5);
    ck_assert_uint_eq(response->lanes[LANE_SMALL]->pending_seq, before + 5);
    ck_assert_uint_ge(response->lanes[LANE_SMALL]->segments, 1);
    ck_assert_uint_ge(response->lanes[LANE_SMALL]->bytes, SEGMENT_HEADER_BYTES);
    ck_assert_uint_eq(response->index_entries, entries + 5);
    ck_assert_uint_ge(response->uptime_seconds, 90);
    ck_assert_uint_gt(response->data_total_bytes, response->data_free_bytes);
    ck_assert_uint_gt(response->data_free_bytes, 0);
    varve__v1__status_response__free_unpacked(response, NULL);
}
END_TEST

static scrub_response *ask_scrub(bool start)
{
    scrub_request request = VARVE__V1__SCRUB_REQUEST__INIT;
    uint8_t packed[16];
    uint8_t *received = NULL;
    size_t length = 0;
    request.start = start;
    const size_t packed_length = varve__v1__scrub_request__pack(&request, packed);
    ck_assert_int_eq(rpc_unary(&rig.client, rpc_store_scrub.path, bytes_of(packed, packed_length),
                               &received, &length, text),
                     GRPC_STATUS_OK);
    scrub_response *const response = varve__v1__scrub_response__unpack(NULL, length, received);
    ck_assert_ptr_nonnull(response);
    free(received);
    return response;
}

START_TEST(scrub_begins_a_pass_when_it_is_told_to_and_tells_what_it_found)
{
    const struct digest damaged = real_store_put(&real, bytes_of_string("damaged"));
    real_store_put(&real, bytes_of_string("sound"));
    scrub_response *response = ask_scrub(false);
    ck_assert_int_eq(response->running, 0);
    ck_assert_uint_eq(response->passes, 0);
    ck_assert_uint_eq(response->bytes_per_second, 0);
    varve__v1__scrub_response__free_unpacked(response, NULL);

    real_store_damage(&real, &damaged);
    response = ask_scrub(true);
    ck_assert(response->running);
    for (int i = 0; i < 3000 && response->passes == 0; i++) {
        varve__v1__scrub_response__free_unpacked(response, NULL);
        clock_pause(10 * NS_PER_MS);
        response = ask_scrub(false);
    }
    ck_assert_int_eq(response->running, 0);
    ck_assert_uint_eq(response->passes, 1);
    ck_assert_uint_eq(response->damaged, 1);
    ck_assert_uint_gt(response->total_bytes, 0);
    ck_assert_uint_eq(response->position_bytes, response->total_bytes);
    ck_assert_int_gt(response->last_pass_unix_ns, 0);
    varve__v1__scrub_response__free_unpacked(response, NULL);
    ck_assert(!store_has_blob(real.store, &damaged));

    status_response *const status = ask_status();
    ck_assert_ptr_nonnull(status->scrub);
    ck_assert_uint_eq(status->scrub->passes, 1);
    varve__v1__status_response__free_unpacked(status, NULL);
}
END_TEST

/* One record that is written, and how that ended. */
struct writing {
    struct commit_request request;
    struct record record;
    struct bytes payload;
    _Atomic bool done;
    enum status_code code;
};

static void writing_done(struct ack *ack, const struct status *result)
{
    struct writing *const writing = CONTAINER_OF(ack, struct writing, request.ack);
    writing->code = result->code;
    atomic_store(&writing->done, true);
}

START_TEST(status_says_why_nothing_is_written_any_more)
{
    real_store_put(&real, bytes_of_string("kept")); /* there is a segment: what fails is its sync */
    struct writing writing = {.payload = bytes_of_string("lost")};
    writing.record = (struct record){.kind = RECORD_BLOB,
                                     .payload = {.parts = &writing.payload, .count = 1},
                                     .payload_bytes = writing.payload.length,
                                     .payload_crc32c = crc32c(0, writing.payload)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, writing.payload, &writing.record.digest);
    writing.request = (struct commit_request){.record = &writing.record, .ack.done = writing_done};
    atomic_store(&real.sync_errno, EIO);
    commit_submit(durability_commit(real.durability, LANE_SMALL), &writing.request);
    while (!atomic_load(&writing.done))
        usleep(1000);
    ck_assert_int_ne(writing.code, STATUS_OK);

    status_response *const response = ask_status();
    ck_assert_int_eq(response->read_only, 1);
    ck_assert_ptr_nonnull(strstr(response->read_only_reason, "Input/output error"));
    ck_assert_uint_lt(response->lanes[LANE_SMALL]->durable_seq,
                      response->lanes[LANE_SMALL]->pending_seq);
    varve__v1__status_response__free_unpacked(response, NULL);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("rpc_store");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, stat_tells_where_each_blob_lies_in_the_order_asked);
    tcase_add_test(all, stat_refuses_what_is_no_digest_and_too_many);
    tcase_add_test(all, status_counts_what_was_written_and_is_durable);
    tcase_add_test(all, scrub_begins_a_pass_when_it_is_told_to_and_tells_what_it_found);
    tcase_add_test(all, status_says_why_nothing_is_written_any_more);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
