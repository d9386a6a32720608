/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what an administrator is promised: a dry run changes nothing; what is forgotten stays away over a restart, is exactly what was
 * meant, and may be stored anew; Explain says of a digest what is so, for each way in which a blob or a result can be here or not;
 * results name who wrote them; a drained server is out of service and loses nobody anything;
 * one that is read-only by order says so to whoever would write, and serves the others.
 *
 * Method: the whole server in this process, asked over gRPC.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/limits.h"
#include "durability/forget.h"
#include "grpc/health/v1/health.pb-c.h"
#include "server/health.h"
#include "server/server.h"
#include "store/action_record.h"
#include "store/find.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/reapi_names.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"
#include "varve/v1/admin.pb-c.h"

#define REAPI_METHOD(name) "/build.bazel.remote.execution.v2." name
#define FIND_MISSING REAPI_METHOD("ContentAddressableStorage/FindMissingBlobs")
#define BATCH_UPDATE REAPI_METHOD("ContentAddressableStorage/BatchUpdateBlobs")
#define GET_ACTION_RESULT REAPI_METHOD("ActionCache/GetActionResult")
#define UPDATE_ACTION_RESULT REAPI_METHOD("ActionCache/UpdateActionResult")

#define VERDICT(name) VARVE__V1__VERDICT__VERDICT_##name
#define OUTCOME(name) VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_##name

typedef Varve__V1__ForgetResponse forget_response;
typedef Varve__V1__ExplainResponse explain_response;

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client client;
static char text[RPC_TEXT_BYTES_MAX];

static void start(void)
{
    struct status status = {0};
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void stop(void)
{
    rpc_client_close(&client);
    server_stop(server);
}

static void restart(void)
{
    stop();
    start();
}

static void start_with(const char *capacity, const char *vouch)
{
    struct status status = {0};
    enum config_action action;
    char capacity_text[16];
    char vouch_text[16];
    snprintf(capacity_text, sizeof(capacity_text), "%s", capacity);
    snprintf(vouch_text, sizeof(vouch_text), "%s", vouch);
    temp_dir_make(&directory);
    char *const arguments[] = {(char[]){"varved"},
                               (char[]){"--data"},
                               directory.path,
                               (char[]){"--listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-listen"},
                               (char[]){""},
                               (char[]){"--reserve"},
                               (char[]){"0B"},
                               (char[]){"--capacity"},
                               capacity_text,
                               (char[]){"--vouch"},
                               vouch_text};
    char *const environment[] = {NULL};
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    grpc_init();
    start();
}

static void setup(void)
{
    start_with("0B", "1h");
}

static void teardown(void)
{
    stop();
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

/* ---- calls */

static grpc_status_code call(const char *path,
                             struct byte_builder *request,
                             struct byte_builder *response)
{
    *response = (struct byte_builder){0};
    const grpc_status_code code =
        rpc_unary(&client, path, message_bytes(request), &response->data, &response->length, text);
    response->capacity = response->length;
    byte_builder_free(request);
    return code;
}

static struct byte_builder call_ok(const char *path, struct byte_builder *request)
{
    struct byte_builder response;
    const grpc_status_code code = call(path, request, &response);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s: %s", path, text);
    return response;
}

static void *admin(const char *method,
                   struct byte_builder *request,
                   const ProtobufCMessageDescriptor *descriptor)
{
    static const uint8_t nothing[1];
    char path[64];
    snprintf(path, sizeof(path), "/varve.v1.Admin/%s", method);
    struct byte_builder response = call_ok(path, request);
    void *const message = protobuf_c_message_unpack(descriptor, NULL, response.length,
                                                    response.length > 0 ? response.data : nothing);
    ck_assert_ptr_nonnull(message);
    byte_builder_free(&response);
    return message;
}

static void release(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

static struct digest put(struct bytes data)
{
    struct digest digest;
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
    message_add_digest(&entry, 1, &digest);
    message_add(&entry, 2, data);
    message_add_message(&request, 2, &entry);
    struct byte_builder response = call_ok(BATCH_UPDATE, &request);
    byte_builder_free(&response);
    return digest;
}

static struct digest put_text(const char *data)
{
    return put(bytes_of_string(data));
}

static bool has(const struct digest *digest)
{
    struct byte_builder request = {0};
    message_add_digest(&request, 2, digest);
    struct byte_builder response = call_ok(FIND_MISSING, &request);
    const bool missing = response.length > 0;
    byte_builder_free(&response);
    return !missing;
}

static void put_result(const char *instance,
                       const struct digest *action,
                       const struct digest *output)
{
    struct byte_builder request = {0};
    struct byte_builder result = {0};
    result_add_file(&result, "out", output);
    message_add_text(&request, 1, instance);
    message_add_digest(&request, 2, action);
    message_add_message(&request, 3, &result);
    struct byte_builder response = call_ok(UPDATE_ACTION_RESULT, &request);
    byte_builder_free(&response);
}

static bool has_result(const char *instance, const struct digest *action)
{
    struct byte_builder request = {0};
    struct byte_builder response;
    message_add_text(&request, 1, instance);
    message_add_digest(&request, 2, action);
    const grpc_status_code code = call(GET_ACTION_RESULT, &request, &response);
    ck_assert(code == GRPC_STATUS_OK || code == GRPC_STATUS_NOT_FOUND);
    byte_builder_free(&response);
    return code == GRPC_STATUS_OK;
}

enum run { DRY_RUN, CARRY_OUT };
enum named { BLOBS = 2, ACTIONS = 3 };

static forget_response *forget(enum run run,
                               enum named what,
                               const char *instance,
                               const struct digest *digests,
                               size_t count)
{
    struct byte_builder request = {0};
    message_add_number(&request, 1, run == CARRY_OUT);
    for (size_t i = 0; i < count; i++)
        message_add_digest(&request, what, &digests[i]);
    message_add_text(&request, 4, instance);
    forget_response *const response =
        admin("Forget", &request, &varve__v1__forget_response__descriptor);
    ck_assert_uint_eq(response->n_entries, count);
    return response;
}

static int forget_one(enum run run,
                      enum named what,
                      const char *instance,
                      const struct digest *digest)
{
    forget_response *const response = forget(run, what, instance, digest, 1);
    const int outcome = (int)response->entries[0]->outcome;
    release(response);
    return outcome;
}

struct filter {
    const char *instances, *writer;
    int64_t after_ns, before_ns;
};

/* Goes through all pages; how many entries there were, each with this outcome. */
static size_t forget_results(enum run run, const struct filter *filter, uint32_t limit)
{
    const int outcome = run == CARRY_OUT ? OUTCOME(GONE) : OUTCOME(WOULD_GO);
    size_t count = 0;
    uint64_t after = 0;
    for (bool more = true; more;) {
        struct byte_builder request = {0};
        struct byte_builder inner = {0};
        message_add_text(&inner, 1, filter->instances);
        message_add_text(&inner, 2, filter->writer != NULL ? filter->writer : "");
        message_add_number(&inner, 3, (uint64_t)filter->after_ns);
        message_add_number(&inner, 4, (uint64_t)filter->before_ns);
        message_add_number(&inner, 5, after);
        message_add_number(&inner, 6, limit);
        message_add_number(&request, 1, run == CARRY_OUT);
        message_add_message(&request, 6, &inner);
        forget_response *const response =
            admin("Forget", &request, &varve__v1__forget_response__descriptor);
        ck_assert(limit == 0 || response->n_entries <= limit);
        for (size_t i = 0; i < response->n_entries; i++) {
            ck_assert_int_eq((int)response->entries[i]->outcome, outcome);
            ck_assert(response->entries[i]->is_action);
        }
        ck_assert(!response->more || response->next_after_seq > after);
        count += response->n_entries;
        after = response->next_after_seq;
        more = response->more;
        release(response);
    }
    return count;
}

static explain_response *explain(const char *instance, const struct digest *digest, int64_t size)
{
    struct byte_builder request = {0};
    struct byte_builder asked = {0};
    char hex[DIGEST_HASH_HEX_MAX + 1];
    message_add_text(&asked, 1, digest_hex(digest, hex));
    message_add_number(&asked, 2, (uint64_t)size);
    message_add_text(&request, 1, instance);
    message_add_message(&request, 2, &asked);
    explain_response *const response =
        admin("Explain", &request, &varve__v1__explain_response__descriptor);
    ck_assert(response->looked_at_all);
    return response;
}

static int verdict_of(const struct digest *digest)
{
    explain_response *const response = explain("", digest, digest->size_bytes);
    const int verdict = (int)response->blob->verdict;
    release(response);
    return verdict;
}

static void assert_blob(const struct digest *digest, int verdict, const char *says)
{
    explain_response *const response = explain("", digest, digest->size_bytes);
    ck_assert_msg((int)response->blob->verdict == verdict, "%d: %s", (int)response->blob->verdict,
                  response->blob->meaning);
    ck_assert_msg(strstr(response->blob->meaning, says) != NULL, "%s", response->blob->meaning);
    release(response);
}

static void assert_action(const char *instance,
                          const struct digest *action,
                          int verdict,
                          const char *says)
{
    explain_response *const response = explain(instance, action, action->size_bytes);
    ck_assert_msg((int)response->action->verdict == verdict, "%d: %s",
                  (int)response->action->verdict, response->action->meaning);
    ck_assert_msg(strstr(response->action->meaning, says) != NULL, "%s", response->action->meaning);
    release(response);
}

/* ---- forgetting */

START_TEST(a_blob_that_is_forgotten_stays_away_until_somebody_stores_it_anew)
{
    const struct digest digest = put_text("a blob that goes");
    const struct digest other = put_text("a blob that stays");
    ck_assert_int_eq(forget_one(DRY_RUN, BLOBS, "", &digest), OUTCOME(WOULD_GO));
    ck_assert(has(&digest));
    ck_assert_int_eq(forget_one(CARRY_OUT, BLOBS, "", &digest), OUTCOME(GONE));
    ck_assert(!has(&digest));
    ck_assert_int_eq(forget_one(CARRY_OUT, BLOBS, "", &digest), OUTCOME(ABSENT));
    assert_blob(&digest, VERDICT(PURGED), "by way of this node");
    restart();
    ck_assert(!has(&digest));
    ck_assert(has(&other));
    assert_blob(&digest, VERDICT(PURGED), "somebody had it deleted at 20");
    put_text("a blob that goes");
    ck_assert(has(&digest));
    assert_blob(&digest, VERDICT(PRESENT), "sound");
}
END_TEST

START_TEST(a_large_blob_is_forgotten_too)
{
    static uint8_t data[3 * MIB + 17];
    struct prng prng = {.state = 3};
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)prng_next(&prng);
    const struct digest digest = put(bytes_of(data, sizeof(data)));
    explain_response *const response = explain("", &digest, -1);
    ck_assert_int_eq((int)response->blob->verdict, VERDICT(PRESENT));
    ck_assert(response->blob->verified);
    ck_assert_uint_eq(response->blob->chunks, 4);
    ck_assert_int_eq((int)response->blob->place->lane, VARVE__V1__LANE__LANE_LARGE);
    ck_assert_int_eq(response->blob->place->digest->size_bytes, digest.size_bytes);
    ck_assert_uint_eq(response->n_events, 1);
    ck_assert(response->events[0]->current);
    release(response);
    forget_response *const forgotten = forget(CARRY_OUT, BLOBS, "", &digest, 1);
    ck_assert_int_eq((int)forgotten->entries[0]->outcome, OUTCOME(GONE));
    ck_assert_uint_eq(forgotten->entries[0]->stored_bytes, sizeof(data));
    release(forgotten);
    restart();
    ck_assert(!has(&digest));
    assert_blob(&digest, VERDICT(PURGED), "deleted");
}
END_TEST

START_TEST(many_blobs_go_at_once_and_the_empty_one_never)
{
    enum { COUNT = 1000 };
    static struct digest digests[COUNT + 1];
    char data[32];
    for (size_t i = 0; i < COUNT; i++) {
        digests[i] = digest_of_nothing(i);
        if (i % 10 != 0)
            continue;
        snprintf(data, sizeof(data), "blob %zu", i);
        digests[i] = put_text(data);
    }
    digests[7] = put_text("");
    forget_response *response = forget(CARRY_OUT, BLOBS, "", digests, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_int_eq((int)response->entries[i]->outcome,
                         i % 10 == 0 ? OUTCOME(GONE) : OUTCOME(ABSENT));
    ck_assert_ptr_nonnull(strstr(response->entries[7]->text, "empty blob"));
    release(response);
    for (size_t i = 0; i < COUNT; i += 10)
        ck_assert(!has(&digests[i]));
    ck_assert(has(&digests[7]));
}
END_TEST

START_TEST(a_result_is_forgotten_in_its_instance_alone)
{
    const struct digest output = put_text("output");
    const struct digest action = digest_of_nothing(1);
    put_result("main", &action, &output);
    put_result("other", &action, &output);
    ck_assert_int_eq(forget_one(CARRY_OUT, ACTIONS, "", &action), OUTCOME(ABSENT));
    forget_response *response = forget(DRY_RUN, ACTIONS, "main", &action, 1);
    ck_assert_int_eq((int)response->entries[0]->outcome, OUTCOME(WOULD_GO));
    ck_assert_str_eq(response->entries[0]->instance_name, "main");
    ck_assert_ptr_nonnull(strstr(response->entries[0]->writer, "ipv4:127.0.0.1:"));
    ck_assert_int_gt(response->entries[0]->written_unix_ns, 0);
    release(response);
    ck_assert(has_result("main", &action));
    ck_assert_int_eq(forget_one(CARRY_OUT, ACTIONS, "main", &action), OUTCOME(GONE));
    ck_assert(!has_result("main", &action));
    ck_assert(has_result("other", &action));
    ck_assert(has(&output));
    restart();
    ck_assert(!has_result("main", &action));
    ck_assert(has_result("other", &action));
    assert_action("main", &action, VERDICT(PURGED), "deleted");
    assert_action("third", &action, VERDICT(OTHER_INSTANCE), "\"other\"");
}
END_TEST

static const char *const instances[] = {"", "a", "a/b", "ab", "b"};
enum { EACH = 30 };

/* So many results in each instance, some of them written over. */
static void put_results(const struct digest *output)
{
    for (size_t i = 0; i < ARRAY_LENGTH(instances); i++) {
        for (uint64_t j = 0; j < EACH; j++) {
            const struct digest action = digest_of_nothing(1000 + j);
            put_result(instances[i], &action, output);
            if (j % 3 == 0)
                put_result(instances[i], &action, output);
        }
    }
}

static size_t results_in(size_t instance)
{
    size_t count = 0;
    for (uint64_t j = 0; j < EACH; j++) {
        const struct digest action = digest_of_nothing(1000 + j);
        count += has_result(instances[instance], &action);
    }
    return count;
}

START_TEST(results_are_found_by_instance_and_all_below_it)
{
    const struct digest output = put_text("output");
    put_results(&output);
    static const struct {
        const char *wanted;
        size_t count;
    } cases[] = {{"*", 5 * EACH}, {"", EACH}, {"a", 2 * EACH}, {"a/b", EACH},
                 {"ab", EACH},    {"c", 0},   {"a/b/c", 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        for (uint32_t limit = 0; limit < 20; limit += 7)
            ck_assert_uint_eq(
                forget_results(DRY_RUN, &(struct filter){.instances = cases[i].wanted}, limit),
                cases[i].count);
    for (size_t i = 0; i < ARRAY_LENGTH(instances); i++)
        ck_assert_uint_eq(results_in(i), EACH);
    /* In small pages, so that it goes on behind what it has forgotten. */
    ck_assert_uint_eq(forget_results(CARRY_OUT, &(struct filter){.instances = "a"}, 7), 2 * EACH);
    ck_assert_uint_eq(forget_results(CARRY_OUT, &(struct filter){.instances = "a"}, 7), 0);
    restart();
    static const size_t left[] = {EACH, 0, 0, EACH, EACH};
    for (size_t i = 0; i < ARRAY_LENGTH(instances); i++)
        ck_assert_uint_eq(results_in(i), left[i]);
    ck_assert_uint_eq(forget_results(CARRY_OUT, &(struct filter){.instances = "*"}, 0), 3 * EACH);
    for (size_t i = 0; i < ARRAY_LENGTH(instances); i++)
        ck_assert_uint_eq(results_in(i), 0);
    ck_assert(has(&output));
}
END_TEST

static int64_t written_ns(const char *instance, const struct digest *action)
{
    struct byte_builder request = {0};
    message_add_text(&request, 1, instance);
    message_add_digest(&request, 2, action);
    Varve__V1__WhoResponse *const response =
        admin("Who", &request, &varve__v1__who_response__descriptor);
    const int64_t wall_ns = response->provenance->written_unix_ns;
    release(response);
    return wall_ns;
}

START_TEST(results_are_found_by_who_wrote_them_and_when)
{
    const struct digest output = put_text("output");
    put_results(&output);
    static const struct {
        const char *writer;
        size_t count;
    } writers[] = {{"ipv4:127.0.0.1", 5 * EACH}, {"ipv4:127.0.0", 0}, {"user:nobody", 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(writers); i++)
        ck_assert_uint_eq(
            forget_results(DRY_RUN, &(struct filter){.instances = "*", .writer = writers[i].writer},
                           0),
            writers[i].count);

    /* Those of the instances before "ab" were written before its first one. */
    const struct digest first = digest_of_nothing(1001);
    const int64_t at_ns = written_ns("ab", &first);
    /* The first of "ab" is 1000, which was written over. */
    ck_assert_uint_eq(
        forget_results(DRY_RUN, &(struct filter){.instances = "*", .before_ns = at_ns}, 0),
        3 * EACH + 1);
    ck_assert_uint_eq(
        forget_results(DRY_RUN, &(struct filter){.instances = "*", .after_ns = at_ns}, 0),
        2 * EACH - 2);
    ck_assert_uint_eq(
        forget_results(
            CARRY_OUT,
            &(struct filter){.instances = "ab", .after_ns = at_ns - 1, .before_ns = at_ns + 1}, 0),
        1);
    ck_assert(!has_result("ab", &first));
    ck_assert_uint_eq(results_in(3), EACH - 1);
}
END_TEST

/* Written by a node whose clock is an hour ahead, and copied here. */
struct copied {
    struct commit_request request;
    struct record record;
    struct bytes parts[4];
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    _Atomic bool done;
};

static void copied_done(struct ack *ack, const struct status *result)
{
    ck_assert_int_eq(result->code, STATUS_OK);
    atomic_store(&CONTAINER_OF(ack, struct copied, request.ack)->done, true);
}

static int64_t copy_result_of_the_future(const struct digest *action)
{
    static struct copied copied;
    const struct action_record fields = {.written_wall_ns =
                                             clock_wall_ns(clock_real()) + 3600 * NS_PER_S,
                                         .node_uid = 77,
                                         .instance = bytes_of_string("main"),
                                         .writer = bytes_of_string("bazel user:far 10.0.0.7"),
                                         .result = bytes_of(NULL, 0)};
    action_record_fixed_put(copied.fixed, &fields);
    copied.parts[0] = bytes_of(copied.fixed, sizeof(copied.fixed));
    copied.parts[1] = fields.instance;
    copied.parts[2] = fields.writer;
    copied.parts[3] = fields.result;
    const struct bytes_list payload = {.parts = copied.parts, .count = ARRAY_LENGTH(copied.parts)};
    copied.record = (struct record){.kind = RECORD_ACTION,
                                    .digest = *action,
                                    .payload = payload,
                                    .payload_bytes = bytes_list_length(payload),
                                    .payload_crc32c = crc32c_list(0, payload)};
    copied.request = (struct commit_request){
        .record = &copied.record, .instance = fields.instance, .ack = {.done = copied_done}};
    commit_submit(durability_commit(server->durability, LANE_SMALL), &copied.request);
    WAIT_UNTIL(atomic_load(&copied.done));
    return fields.written_wall_ns;
}

START_TEST(an_order_reaches_what_a_node_has_written_whose_clock_is_ahead)
{
    const struct digest action = digest_of_nothing(1);
    const int64_t written = copy_result_of_the_future(&action);
    ck_assert(has_result("main", &action));
    ck_assert_uint_eq(
        forget_results(CARRY_OUT, &(struct filter){.instances = "*", .writer = "user:far"}, 0), 1);
    struct arena arena;
    struct feed_batch batch;
    struct status status = {0};
    const struct feed_query query = {
        .lane = LANE_SMALL, .records_max = 10, .bytes_max = MIB, .kinds = FEED_KIND(RECORD_FORGET)};
    arena_init(&arena, MIB);
    ck_assert(feed_read(durability_feed(server->durability), &query, &arena, &batch, &status));
    ck_assert_uint_eq(batch.count, 1);
    ck_assert_int_gt(batch.entries[0].wall_ns, written);
    ck_assert_uint_eq(batch.entries[0].origin_uid, server->store->node_uid);
    arena_destroy(&arena);
}
END_TEST

START_TEST(requests_that_mean_nothing_are_refused)
{
    struct byte_builder response;
    struct byte_builder request = {0};
    struct byte_builder inner = {0};
    const struct digest digest = digest_of_nothing(1);
    ck_assert_int_eq(call("/varve.v1.Admin/Forget", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    request = (struct byte_builder){0};
    message_add_digest(&request, BLOBS, &digest);
    message_add_digest(&request, ACTIONS, &digest);
    ck_assert_int_eq(call("/varve.v1.Admin/Forget", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "one of them"));
    request = (struct byte_builder){0};
    for (int i = 0; i < 1001; i++)
        message_add_digest(&request, BLOBS, &digest);
    ck_assert_int_eq(call("/varve.v1.Admin/Forget", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "1000"));
    request = (struct byte_builder){0};
    message_add_text(&inner, 1, "a//b");
    message_add_message(&request, 6, &inner);
    ck_assert_int_eq(call("/varve.v1.Admin/Forget", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "results.instances"));
    request = (struct byte_builder){0};
    ck_assert_int_eq(call("/varve.v1.Admin/Explain", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    request = (struct byte_builder){0};
    ck_assert_int_eq(call("/varve.v1.Admin/Who", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
}
END_TEST

/* ---- explaining */

START_TEST(explain_says_why_a_blob_is_not_here)
{
    const struct digest nothing = digest_of_nothing(1);
    assert_blob(&nothing, VERDICT(NEVER_SEEN), "never here");
    const struct digest empty = put_text("");
    assert_blob(&empty, VERDICT(PRESENT), "empty blob");

    const struct digest digest = put_text("a blob");
    explain_response *response = explain("", &digest, digest.size_bytes + 1);
    ck_assert_int_eq((int)response->blob->verdict, VERDICT(OTHER_SIZE));
    ck_assert_ptr_nonnull(strstr(response->blob->meaning, "/6 is here"));
    release(response);
    response = explain("", &digest, -1);
    ck_assert_int_eq((int)response->blob->verdict, VERDICT(PRESENT));
    ck_assert(!response->blob->used);
    release(response);
    ck_assert(has(&digest));
    response = explain("", &digest, -1);
    ck_assert(response->blob->used && response->blob->vouched);
    ck_assert_uint_eq(response->blob->idle_minutes, 0);
    ck_assert_int_gt(response->blob->written_after_unix_ns, 0);
    ck_assert_int_ge(response->events[0]->unix_ns, response->log_since_unix_ns);
    release(response);

    static const struct {
        enum forget_reason reason;
        int verdict;
        const char *says;
    } cases[] = {{FORGET_EVICTED, VERDICT(EVICTED), "--capacity"},
                 {FORGET_DAMAGED, VERDICT(FOUND_DAMAGED), "look at the disk"},
                 {FORGET_PURGED, VERDICT(PURGED), "deleted"}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        put_text("a blob");
        response = explain("", &digest, -1);
        const struct place place = {.segment = response->blob->place->segment,
                                    .offset = response->blob->place->offset};
        release(response);
        durability_forget(server->durability, &digest, NULL, place, RECORD_BLOB, cases[i].reason);
        /* It is gone at once, and why is told when the note of it is on disk. */
        ck_assert(!has(&digest));
        WAIT_UNTIL(verdict_of(&digest) != VERDICT(NOT_KNOWN));
        assert_blob(&digest, cases[i].verdict, cases[i].says);
    }
    response = explain("", &digest, -1);
    ck_assert_uint_eq(response->n_events, 6);
    for (size_t i = 1; i < response->n_events; i++)
        ck_assert_uint_lt(response->events[i]->seq, response->events[i - 1]->seq);
    release(response);
}
END_TEST

/* As a later version may have written it. */
START_TEST(explain_bears_a_reason_that_it_does_not_know)
{
    const struct digest digest = put_text("forgotten for a new reason");
    struct place place;
    ck_assert(store_find_blob(server->store, &digest, FIND_ONLY, &place));
    durability_forget(server->durability, &digest, NULL, place, RECORD_BLOB,
                      (enum forget_reason)255);
    WAIT_UNTIL(!has(&digest));
    forget_wait(server->store);
    assert_blob(&digest, VERDICT(NOT_KNOWN), "does not know why");
    explain_response *const response = explain("", &digest, -1);
    ck_assert_int_eq((int)response->events[0]->reason, 0);
    release(response);
}
END_TEST

START_TEST(explain_tells_what_was_evicted_from_what_never_came_until_a_restart)
{
    enum { BLOBS_MAX = 600 };
    static uint64_t data[MIB / sizeof(uint64_t)];
    struct prng prng = {.state = 5};
    teardown();
    start_with("128MiB", "0s");
    const struct digest old = put_text("the oldest");
    for (int blobs = 0; verdict_of(&old) == VERDICT(PRESENT); blobs++) {
        ck_assert_int_lt(blobs, BLOBS_MAX);
        for (size_t i = 0; i < ARRAY_LENGTH(data); i++)
            data[i] = prng_next(&prng);
        put(bytes_of((const uint8_t *)data, sizeof(data)));
    }
    WAIT_UNTIL(verdict_of(&old) == VERDICT(EVICTED));
    assert_blob(&old, VERDICT(EVICTED), "it was evicted at 20");
    const struct digest nothing = digest_of_nothing(1);
    assert_blob(&nothing, VERDICT(NOT_KNOWN), "never stored here");
    assert_blob(&nothing, VERDICT(NOT_KNOWN), "not since this process started, at 20");
    explain_response *const response = explain("", &old, -1);
    ck_assert_int_eq((int)response->blob->verdict, VERDICT(NOT_KNOWN));
    ck_assert_ptr_nonnull(strstr(response->blob->meaning, "with its size"));
    release(response);
    restart();
    assert_blob(&old, VERDICT(NOT_KNOWN), "or it was evicted");
    put_text("the oldest");
    assert_blob(&old, VERDICT(PRESENT), "");
}
END_TEST

START_TEST(explain_finds_damage_and_changes_nothing)
{
    const struct digest digest = put_text("a blob that rots");
    explain_response *response = explain("", &digest, -1);
    char path[TEMP_DIR_PATH_BYTES_MAX + 64];
    snprintf(path, sizeof(path), "%s/segments/%016llx.seg", directory.path,
             (unsigned long long)response->blob->place->segment);
    const off_t at = (off_t)response->blob->place->offset + RECORD_HEADER_BYTES + 3;
    release(response);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "X", 1, at), 1);
    close(fd);
    for (int i = 0; i < 2; i++) {
        response = explain("", &digest, -1);
        ck_assert_int_eq((int)response->blob->verdict, VERDICT(DAMAGED));
        ck_assert(!response->blob->verified);
        ck_assert_str_ne(response->blob->damage, "");
        release(response);
        ck_assert(has(&digest));
    }
}
END_TEST

START_TEST(explain_says_why_there_is_no_result)
{
    const struct digest action = digest_of_nothing(1);
    const struct digest output = put_text("output");
    const struct digest missing = digest_of_nothing(2);
    assert_action("main", &action, VERDICT(NEVER_SEEN), "never was a result");
    put_result("other", &action, &output);
    put_result("third", &action, &output);
    assert_action("main", &action, VERDICT(OTHER_INSTANCE), "2 others");
    put_result("main", &action, &missing);
    restart(); /* while the index is loaded, too */
    explain_response *const response = explain("main", &action, -1);
    ck_assert_int_eq((int)response->action->verdict, VERDICT(INCOMPLETE));
    ck_assert_uint_eq(response->action->n_results, 3);
    const Varve__V1__ResultExplanation *const own = response->action->results[0];
    ck_assert_str_eq(own->provenance->instance_name, "main");
    ck_assert_uint_eq(own->missing_count, 1);
    char hex[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_str_eq(own->missing[0]->hash, digest_hex(&missing, hex));
    ck_assert(response->action->results[1]->complete && response->action->results[2]->complete);
    release(response);
    put_result("main", &action, &output);
    assert_action("main", &action, VERDICT(PRESENT), "all that it names");
    ck_assert_int_eq(forget_one(CARRY_OUT, ACTIONS, "main", &action), OUTCOME(GONE));
    ck_assert_int_eq(forget_one(CARRY_OUT, ACTIONS, "other", &action), OUTCOME(GONE));
    ck_assert_int_eq(forget_one(CARRY_OUT, ACTIONS, "third", &action), OUTCOME(GONE));
    assert_action("main", &action, VERDICT(PURGED), "there is no result of it any more");
    /* What was deleted in other instances is no answer for this one. */
    assert_action("fourth", &action, VERDICT(NEVER_SEEN), "never");
}
END_TEST

/* More events than an answer has: the newest are told, and nothing is claimed of the others. */
START_TEST(explain_of_what_was_stored_again_and_again_tells_the_newest)
{
    const struct digest action = digest_of_nothing(1);
    const struct digest output = put_text("output");
    for (int i = 0; i < 130; i++)
        put_result("main", &action, &output);
    struct byte_builder request = {0};
    message_add_text(&request, 1, "main");
    message_add_digest(&request, 2, &action);
    explain_response *const response =
        admin("Explain", &request, &varve__v1__explain_response__descriptor);
    ck_assert_uint_eq(response->n_events, 100);
    ck_assert(!response->looked_at_all);
    ck_assert(response->events[0]->current);
    ck_assert_uint_eq(response->events[0]->seq - response->events[99]->seq, 99);
    for (size_t i = 1; i < 100; i++)
        ck_assert(!response->events[i]->current);
    release(response);
}
END_TEST

START_TEST(a_result_names_who_wrote_it)
{
    const struct digest action = digest_of_nothing(1);
    const struct digest output = put_text("output");
    struct byte_builder request = {0};
    struct byte_builder response;
    message_add_text(&request, 1, "main");
    message_add_digest(&request, 2, &action);
    ck_assert_int_eq(call("/varve.v1.Admin/Who", &request, &response), GRPC_STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(text, "\"main\""));

    const int64_t before_ns = clock_wall_ns(clock_real());
    put_result("main", &action, &output);
    request = (struct byte_builder){0};
    message_add_text(&request, 1, "main");
    message_add_digest(&request, 2, &action);
    Varve__V1__WhoResponse *who = admin("Who", &request, &varve__v1__who_response__descriptor);
    ck_assert_str_eq(who->provenance->instance_name, "main");
    ck_assert_int_ge(who->provenance->written_unix_ns, before_ns);
    ck_assert_str_eq(who->provenance->user, "");
    ck_assert_int_eq(strncmp(who->provenance->address, "ipv4:127.0.0.1:", 15), 0);
    ck_assert_uint_eq(who->provenance->node_uid, server->store->node_uid);
    ck_assert_str_eq(who->provenance->node_name, "this node");
    ck_assert_uint_gt(who->provenance->result_bytes, 0);
    release(who);
    struct byte_builder asked = {0};
    char hex[DIGEST_HASH_HEX_MAX + 1];
    request = (struct byte_builder){0};
    message_add_text(&asked, 1, digest_hex(&action, hex));
    message_add_number(&asked, 2, UINT64_MAX); /* of a size that is not known */
    message_add_text(&request, 1, "main");
    message_add_message(&request, 2, &asked);
    who = admin("Who", &request, &varve__v1__who_response__descriptor);
    ck_assert_str_eq(who->provenance->node_name, "this node");
    release(who);
}
END_TEST

/* ---- the server itself */

static int health(void)
{
    struct byte_builder request = {0};
    struct byte_builder response = call_ok("/grpc.health.v1.Health/Check", &request);
    Grpc__Health__V1__HealthCheckResponse *const told =
        grpc__health__v1__health_check_response__unpack(NULL, response.length, response.data);
    const int status = (int)told->status;
    release(told);
    byte_builder_free(&response);
    return status;
}

START_TEST(a_drained_server_is_out_of_service_and_serves_who_still_comes)
{
    enum { SERVING = 1, NOT_SERVING = 2 };
    const int drained = VARVE__V1__STATUS_RESPONSE__STATE__STATE_DRAINED;
    const int serving = VARVE__V1__STATUS_RESPONSE__STATE__STATE_SERVING;
    struct byte_builder response;
    ck_assert_int_eq(health(), SERVING);
    for (int i = 0; i < 2; i++) {
        struct byte_builder request = {0};
        message_add_text(&request, 1, "new disk");
        Varve__V1__DrainResponse *told =
            admin("Drain", &request, &varve__v1__drain_response__descriptor);
        ck_assert_int_eq((int)told->state, drained);
        ck_assert_uint_eq(told->calls_since, 0);
        release(told);
        ck_assert_int_eq(health(), NOT_SERVING);
        const struct digest digest = put_text(i == 0 ? "first" : "second");
        ck_assert(has(&digest));
        request = (struct byte_builder){0};
        message_add_text(&request, 1, "again");
        told = admin("Drain", &request, &varve__v1__drain_response__descriptor);
        ck_assert_uint_eq(told->calls_since, 2);
        ck_assert(told->drained_seconds > 0);
        release(told);
        request = (struct byte_builder){0};
        Varve__V1__StatsResponse *const stats =
            admin("Stats", &request, &varve__v1__stats_response__descriptor);
        ck_assert_int_eq((int)stats->status->state, drained);
        release(stats);
        request = (struct byte_builder){0};
        told = admin("Undrain", &request, &varve__v1__drain_response__descriptor);
        ck_assert_int_eq((int)told->state, serving);
        ck_assert(told->drained_seconds <= 0);
        release(told);
        ck_assert_int_eq(health(), SERVING);
    }
    struct byte_builder request = {0};
    char reason[202];
    memset(reason, 'x', sizeof(reason));
    reason[201] = '\0';
    message_add_text(&request, 1, reason);
    ck_assert_int_eq(call("/varve.v1.Admin/Drain", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(health(), SERVING);
    /* It is not remembered. */
    request = (struct byte_builder){0};
    release(admin("Drain", &request, &varve__v1__drain_response__descriptor));
    restart();
    ck_assert_int_eq(health(), SERVING);
}
END_TEST

static Varve__V1__DrainResponse *set_read_only(bool on, const char *reason)
{
    struct byte_builder request = {0};
    if (on)
        message_add_number(&request, 1, 1);
    if (reason[0] != '\0')
        message_add_text(&request, 2, reason);
    return admin("SetReadOnly", &request, &varve__v1__drain_response__descriptor);
}

static bool may_update(void)
{
    struct byte_builder request = {0};
    struct byte_builder response =
        call_ok("/build.bazel.remote.execution.v2.Capabilities/GetCapabilities", &request);
    Build__Bazel__Remote__Execution__V2__ServerCapabilities *const told =
        build__bazel__remote__execution__v2__server_capabilities__unpack(NULL, response.length,
                                                                         response.data);
    const bool may = told->cache_capabilities->action_cache_update_capabilities->update_enabled;
    release(told);
    byte_builder_free(&response);
    return may;
}

static struct byte_builder write_request(const struct digest *digest, const char *data)
{
    struct byte_builder request = {0};
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char name[256];
    snprintf(name, sizeof(name), "uploads/11111111-2222-3333-4444-555555555555/blobs/%s/%zu",
             digest_hex(digest, hex), strlen(data));
    message_add_text(&request, 1, name);
    message_add_number(&request, 3, 1);
    message_add_text(&request, 10, data);
    return request;
}

START_TEST(a_server_that_is_made_read_only_refuses_what_would_write_and_serves_the_rest)
{
    enum { SERVING = 1, NOT_SERVING = 2, REFUSED = 3 };
    const struct digest here = put_text("is here");
    const struct digest action = put_text("an action");
    put_result("", &action, &here);
    ck_assert(may_update());
    for (int round = 0; round < 2; round++) {
        struct byte_builder response;
        const char *const data = round == 0 ? "comes first" : "comes second";
        struct digest comes;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(data), &comes);
        Varve__V1__DrainResponse *told = set_read_only(true, "disks are copied");
        ck_assert_int_eq((int)told->state, VARVE__V1__STATUS_RESPONSE__STATE__STATE_READ_ONLY);
        release(told);
        told = set_read_only(true, "again");
        ck_assert(told->read_only_seconds > 0);
        release(told);

        struct byte_builder entry = {0};
        struct byte_builder requests[REFUSED] = {{0}, {0}, write_request(&comes, data)};
        static const char *const paths[REFUSED] = {BATCH_UPDATE, UPDATE_ACTION_RESULT,
                                                   "/google.bytestream.ByteStream/Write"};
        message_add_digest(&entry, 1, &comes);
        message_add_text(&entry, 2, data);
        message_add_message(&requests[0], 2, &entry);
        message_add_digest(&requests[1], 2, &comes);
        result_add_file(&entry, "out", &here);
        message_add_message(&requests[1], 3, &entry);
        for (int i = 0; i < REFUSED; i++) {
            ck_assert_int_eq(call(paths[i], &requests[i], &response),
                             GRPC_STATUS_FAILED_PRECONDITION);
            ck_assert_ptr_nonnull(strstr(text, "made read-only by anonymous: disks are copied"));
            ck_assert_ptr_nonnull(strstr(text, "varve admin read-only off"));
            byte_builder_free(&response);
        }
        ck_assert_int_eq(metrics_get(server->metrics, METRIC_WRITES_REFUSED),
                         REFUSED * (round + 1));
        ck_assert_int_eq(metrics_get(server->metrics, METRIC_READ_ONLY_BY_ORDER), 1);
        ck_assert_int_eq(metrics_get(server->metrics, METRIC_READ_ONLY), 0);

        ck_assert(has(&here));
        ck_assert(!has(&comes));
        ck_assert(has_result("", &action));
        assert_blob(&here, VERDICT(PRESENT), "");
        ck_assert(!may_update());
        ck_assert_int_eq(health(), NOT_SERVING);

        if (round == 1)
            restart(); /* it is not remembered */
        told = set_read_only(false, "");
        ck_assert_int_eq((int)told->state, VARVE__V1__STATUS_RESPONSE__STATE__STATE_SERVING);
        ck_assert(told->read_only_seconds <= 0);
        release(told);
        ck_assert_int_eq(metrics_get(server->metrics, METRIC_READ_ONLY_BY_ORDER), 0);
        ck_assert_int_eq(health(), SERVING);
        ck_assert(may_update());
        put_text(data);
        ck_assert(has(&comes));
    }
}
END_TEST

START_TEST(an_upload_that_has_begun_is_carried_through_when_the_server_is_made_read_only)
{
    static const char data[] = "begun before";
    struct digest digest;
    struct rpc rpc;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(data), &digest);
    struct byte_builder first = write_request(&digest, data);
    /* The name, and no byte: fields 3 and 10 stand behind it. */
    struct byte_builder name = {0};
    message_add(&name, 1, bytes_of(first.data + 2, first.data[1]));
    rpc_begin(&rpc, &client, "/google.bytestream.ByteStream/Write");
    ck_assert(rpc_send(&rpc, message_bytes(&name)));
    WAIT_UNTIL(metrics_get(server->metrics, METRIC_UPLOADS_OPEN) > 0);
    release(set_read_only(true, ""));
    ck_assert(rpc_send(&rpc, message_bytes(&first)));
    ck_assert(rpc_half_close(&rpc));
    size_t length;
    free(rpc_receive(&rpc, &length));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    ck_assert(has(&digest));
    byte_builder_free(&first);
    byte_builder_free(&name);
}
END_TEST

START_TEST(a_drain_stands_before_read_only_and_a_failed_disk_stays)
{
    struct byte_builder request = {0};
    char reason[STATUS_MESSAGE_BYTES_MAX];
    release(set_read_only(true, "first"));
    release(admin("Drain", &request, &varve__v1__drain_response__descriptor));
    ck_assert_int_eq(health_state(server->health, reason), SERVER_DRAINED);
    request = (struct byte_builder){0};
    release(admin("Undrain", &request, &varve__v1__drain_response__descriptor));
    ck_assert_int_eq(health_state(server->health, reason), SERVER_READ_ONLY);
    ck_assert_str_eq(reason, "made read-only by anonymous: first");
    health_set(server->health, SERVER_READ_ONLY, "a sync has failed");
    release(set_read_only(false, ""));
    ck_assert_int_eq(health_state(server->health, reason), SERVER_READ_ONLY);
    ck_assert_str_eq(reason, "a sync has failed");
    request = (struct byte_builder){0};
    char long_reason[202];
    memset(long_reason, 'x', sizeof(long_reason));
    long_reason[201] = '\0';
    message_add_number(&request, 1, 1);
    message_add_text(&request, 2, long_reason);
    struct byte_builder response;
    ck_assert_int_eq(call("/varve.v1.Admin/SetReadOnly", &request, &response),
                     GRPC_STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(stats_are_those_of_the_metrics)
{
    const struct digest digest = put_text("a blob");
    const struct digest nothing = digest_of_nothing(1);
    ck_assert(has(&digest));
    ck_assert(!has(&nothing));
    put_result("main", &nothing, &digest);
    ck_assert(has_result("main", &nothing));
    ck_assert(!has_result("main", &digest));
    struct byte_builder request = {0};
    Varve__V1__StatsResponse *const stats =
        admin("Stats", &request, &varve__v1__stats_response__descriptor);
    ck_assert_uint_eq(stats->node_uid, server->store->node_uid);
    ck_assert_uint_eq(stats->status->index_entries, 2);
    ck_assert_uint_eq(stats->status->n_lanes, 2);
    ck_assert_uint_eq(stats->blobs_present, 1);
    ck_assert_uint_eq(stats->blobs_missing, 1);
    ck_assert_uint_eq(stats->action_hits, 1);
    ck_assert_uint_eq(stats->action_misses, 1);
    ck_assert_uint_eq(stats->blobs_written, 1);
    ck_assert_uint_eq(stats->action_results_written, 1);
    ck_assert_uint_eq(stats->vouch_seconds, 3600);
    ck_assert_uint_eq(stats->n_budgets, 5);
    ck_assert_str_eq(stats->budgets[0]->name, "calls");
    ck_assert_uint_eq(stats->budgets[0]->used, 1);
    ck_assert_uint_eq(stats->budgets[0]->limit, 4096);
    bool known = false;
    for (size_t i = 0; i < stats->n_instances; i++) {
        if (strcmp(stats->instances[i]->instance_name, "main") != 0)
            continue;
        known = true;
        ck_assert_uint_eq(stats->instances[i]->requests, 3);
        ck_assert_uint_eq(stats->instances[i]->action_hits, 1);
        ck_assert_uint_eq(stats->instances[i]->action_misses, 1);
    }
    ck_assert(known);
    release(stats);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("admin");
    TCase *const tests = tcase_create("admin");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_blob_that_is_forgotten_stays_away_until_somebody_stores_it_anew);
    tcase_add_test(tests, a_large_blob_is_forgotten_too);
    tcase_add_test(tests, many_blobs_go_at_once_and_the_empty_one_never);
    tcase_add_test(tests, a_result_is_forgotten_in_its_instance_alone);
    tcase_add_test(tests, results_are_found_by_instance_and_all_below_it);
    tcase_add_test(tests, results_are_found_by_who_wrote_them_and_when);
    tcase_add_test(tests, an_order_reaches_what_a_node_has_written_whose_clock_is_ahead);
    tcase_add_test(tests, requests_that_mean_nothing_are_refused);
    tcase_add_test(tests, explain_says_why_a_blob_is_not_here);
    tcase_add_test(tests, explain_bears_a_reason_that_it_does_not_know);
    tcase_add_test(tests, explain_tells_what_was_evicted_from_what_never_came_until_a_restart);
    tcase_add_test(tests, explain_finds_damage_and_changes_nothing);
    tcase_add_test(tests, explain_says_why_there_is_no_result);
    tcase_add_test(tests, explain_of_what_was_stored_again_and_again_tells_the_newest);
    tcase_add_test(tests, a_result_names_who_wrote_it);
    tcase_add_test(tests, a_drained_server_is_out_of_service_and_serves_who_still_comes);
    tcase_add_test(tests,
                   a_server_that_is_made_read_only_refuses_what_would_write_and_serves_the_rest);
    tcase_add_test(tests,
                   an_upload_that_has_begun_is_carried_through_when_the_server_is_made_read_only);
    tcase_add_test(tests, a_drain_stands_before_read_only_and_a_failed_disk_stays);
    tcase_add_test(tests, stats_are_those_of_the_metrics);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
