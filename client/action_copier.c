/* SPDX-License-Identifier: Apache-2.0 */
#include "client/action_copier.h"

#include <stdlib.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/action_cache.h"
#include "client/batch.h"
#include "client/event_loop.h"
#include "client/unary.h"

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

/* One action result on its way, with one call in flight. */
struct flight {
    struct action_copier *copier;
    struct digest action;
    uint8_t *result; /* owned */
    size_t length;
    struct digest *named; /* owned; what it names */
    bool *missing;        /* owned */
    size_t named_count;
    struct unary *call;
    struct flight *next, *previous;
};

/* All of one thread. */
struct action_copier {
    struct client *client; /* borrowed */
    enum action_copier_mode mode;
    struct action_copier_observer observer;
    struct event_loop loop;
    struct flight *flights;
    size_t live;
    uint64_t counts[ACTION_OUTCOMES];
    struct status failure; /* ends it */
};

static struct flight *flight_new(struct action_copier *copier,
                                 const struct digest *action,
                                 struct bytes result);
static void flight_free(struct flight *flight);
static bool get(struct flight *flight, struct status *status);
static void got(void *argument, const struct status *status, grpc_byte_buffer *reply);
static bool means_same(struct bytes a, struct bytes b);
static uint8_t *encoded_again(struct bytes result, size_t *length);
static bool find_named(struct flight *flight, struct status *status);
static bool collect_named(struct flight *flight, struct status *status);
static bool add_named(struct flight *flight, const REAPI(Digest) * digest, struct status *status);
static void named_found(void *argument, const struct status *status);
static bool update(struct flight *flight, struct status *status);
static void updated(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void end(struct flight *flight, enum action_outcome outcome);
static void end_failed(struct flight *flight, const struct status *status);
static bool no_memory(struct status *status);

bool action_copier_new(struct client *client,
                       enum action_copier_mode mode,
                       const struct action_copier_observer *observer,
                       struct action_copier **copier_out,
                       struct status *status)
{
    struct action_copier *copier = calloc(1, sizeof(*copier));
    if (copier == NULL)
        return no_memory(status);
    copier->client = client;
    copier->mode = mode;
    copier->observer = *observer;
    event_loop_init(&copier->loop, client_clock(client));
    *copier_out = copier;
    return true;
}

void action_copier_free(struct action_copier *copier)
{
    if (copier == NULL)
        return;
    ASSERT(copier->live == 0);
    event_loop_destroy(&copier->loop);
    free(copier);
}

uint64_t action_copier_count(const struct action_copier *copier, enum action_outcome outcome)
{
    return copier->counts[outcome];
}

bool action_copier_add(struct action_copier *copier,
                       const struct digest *action,
                       struct bytes result,
                       struct status *status)
{
    while (event_loop_run(&copier->loop, 0))
        continue;
    while (copier->live >= ACTION_COPIER_IN_FLIGHT_MAX)
        event_loop_run(&copier->loop, NS_PER_S);
    if (copier->failure.code != STATUS_OK) {
        *status = copier->failure;
        return false;
    }
    struct flight *flight = flight_new(copier, action, result);
    if (flight == NULL)
        return no_memory(status);
    struct status failure = {0};
    if (!get(flight, &failure))
        end_failed(flight, &failure);
    return true;
}

bool action_copier_finish(struct action_copier *copier, struct status *status)
{
    while (copier->live > 0)
        event_loop_run(&copier->loop, NS_PER_S);
    if (copier->failure.code == STATUS_OK)
        return true;
    *status = copier->failure;
    return false;
}

static struct flight *flight_new(struct action_copier *copier,
                                 const struct digest *action,
                                 struct bytes result)
{
    struct flight *flight = calloc(1, sizeof(*flight));
    uint8_t *copy = malloc(result.length + 1);
    if (flight == NULL || copy == NULL) {
        free(flight);
        free(copy);
        return NULL;
    }
    if (result.length > 0)
        memcpy(copy, result.data, result.length);
    *flight = (struct flight){.copier = copier,
                              .action = *action,
                              .result = copy,
                              .length = result.length,
                              .next = copier->flights};
    if (flight->next != NULL)
        flight->next->previous = flight;
    copier->flights = flight;
    copier->live++;
    return flight;
}

static void flight_free(struct flight *flight)
{
    struct action_copier *copier = flight->copier;
    if (flight->previous != NULL)
        flight->previous->next = flight->next;
    else
        copier->flights = flight->next;
    if (flight->next != NULL)
        flight->next->previous = flight->previous;
    copier->live--;
    free(flight->result);
    free(flight->named);
    free(flight->missing);
    free(flight);
}

static bool get(struct flight *flight, struct status *status)
{
    struct client *client = flight->copier->client;
    const struct unary_request request = {
        .method = METHOD_GET_ACTION_RESULT,
        .body = action_cache_get_request(client_instance_name(client), &flight->action),
        .loop = &flight->copier->loop,
        .done = got,
        .argument = flight,
    };
    return unary_start(client, &request, &flight->call, status);
}

static void got(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct flight *flight = argument;
    struct status failure = *status;
    flight->call = NULL;
    if (status->code == STATUS_OK) {
        size_t length = 0;
        uint8_t *flat = message_flat(reply, &length);
        grpc_byte_buffer_destroy(reply);
        const bool same = flat != NULL && means_same(bytes_of(flat, length),
                                                     bytes_of(flight->result, flight->length));
        free(flat);
        end(flight, same ? ACTION_PRESENT : ACTION_DIFFERS);
    } else if (status->code != STATUS_NOT_FOUND) {
        end_failed(flight, &failure);
    } else if (flight->copier->mode == ACTION_COPIER_COMPARE) {
        end(flight, ACTION_ABSENT);
    } else {
        failure = (struct status){0};
        if (!find_named(flight, &failure))
            end_failed(flight, &failure);
    }
}

/* Servers may encode again what they store, and set an execution_metadata that says nothing. */
static bool means_same(struct bytes a, struct bytes b)
{
    size_t lengths[2] = {0};
    uint8_t *const plain[2] = {encoded_again(a, &lengths[0]), encoded_again(b, &lengths[1])};
    const bool same = plain[0] != NULL && plain[1] != NULL &&
                      bytes_equal(bytes_of(plain[0], lengths[0]), bytes_of(plain[1], lengths[1]));
    free(plain[0]);
    free(plain[1]);
    return same;
}

/* Freed with free(); NULL when it is no ActionResult. */
static uint8_t *encoded_again(struct bytes result, size_t *length)
{
    REAPI(ActionResult) *message = build__bazel__remote__execution__v2__action_result__unpack(
        NULL, result.length, result.data);
    if (message == NULL)
        return NULL;
    REAPI(ExecutedActionMetadata)
    nothing = BUILD__BAZEL__REMOTE__EXECUTION__V2__EXECUTED_ACTION_METADATA__INIT;
    const bool had_metadata = message->execution_metadata != NULL;
    if (!had_metadata)
        message->execution_metadata = &nothing;
    *length = protobuf_c_message_get_packed_size(&message->base);
    uint8_t *again = malloc(*length + 1);
    if (again != NULL)
        protobuf_c_message_pack(&message->base, again);
    if (!had_metadata)
        message->execution_metadata = NULL;
    build__bazel__remote__execution__v2__action_result__free_unpacked(message, NULL);
    return again;
}

static bool find_named(struct flight *flight, struct status *status)
{
    if (!collect_named(flight, status))
        return false;
    if (flight->named_count == 0)
        return update(flight, status);
    flight->missing = calloc(flight->named_count, sizeof(*flight->missing));
    if (flight->missing == NULL)
        return no_memory(status);
    const struct batch_done done = {.done = named_found, .argument = flight, .call = &flight->call};
    return find_missing_start(flight->copier->client, &flight->copier->loop, flight->named,
                              flight->missing, flight->named_count, done, status);
}

static bool collect_named(struct flight *flight, struct status *status)
{
    REAPI(ActionResult) *result = build__bazel__remote__execution__v2__action_result__unpack(
        NULL, flight->length, flight->result);
    if (result == NULL)
        return status_fail(status, STATUS_DATA_LOSS, "the source's result is no ActionResult");
    const size_t most = result->n_output_files + 2 * result->n_output_directories + 2;
    flight->named = calloc(most, sizeof(*flight->named));
    bool ok = flight->named != NULL || no_memory(status);
    for (size_t i = 0; ok && i < result->n_output_files; i++)
        ok = add_named(flight, result->output_files[i]->digest, status);
    for (size_t i = 0; ok && i < result->n_output_directories; i++)
        ok = add_named(flight, result->output_directories[i]->tree_digest, status) &&
             add_named(flight, result->output_directories[i]->root_directory_digest, status);
    ok = ok && add_named(flight, result->stdout_digest, status) &&
         add_named(flight, result->stderr_digest, status);
    if (ok && flight->named_count > FIND_MISSING_PAGE_MAX)
        ok = status_fail(status, STATUS_OUT_OF_RANGE, "it names %zu blobs; %d can be asked for",
                         flight->named_count, FIND_MISSING_PAGE_MAX);
    build__bazel__remote__execution__v2__action_result__free_unpacked(result, NULL);
    return ok;
}

/* digest: NULL names nothing. */
static bool add_named(struct flight *flight, const REAPI(Digest) * digest, struct status *status)
{
    if (digest == NULL)
        return true;
    struct digest *to = &flight->named[flight->named_count];
    if (!digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of_string(digest->hash), digest->size_bytes,
                      to, status))
        return false;
    flight->named_count += digest_is_empty_blob(to) ? 0 : 1;
    return true;
}

static void named_found(void *argument, const struct status *status)
{
    struct flight *flight = argument;
    struct status failure = *status;
    flight->call = NULL;
    bool complete = true;
    for (size_t i = 0; i < flight->named_count; i++)
        complete = complete && !flight->missing[i];
    if (status->code != STATUS_OK) {
        end_failed(flight, &failure);
    } else if (!complete) {
        end(flight, ACTION_INCOMPLETE);
    } else {
        failure = (struct status){0};
        if (!update(flight, &failure))
            end_failed(flight, &failure);
    }
}

static bool update(struct flight *flight, struct status *status)
{
    struct client *client = flight->copier->client;
    const struct unary_request request = {
        .method = METHOD_UPDATE_ACTION_RESULT,
        .body = action_cache_update_request(client_instance_name(client), &flight->action,
                                            bytes_of(flight->result, flight->length)),
        .loop = &flight->copier->loop,
        .done = updated,
        .argument = flight,
    };
    return unary_start(client, &request, &flight->call, status);
}

static void updated(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct flight *flight = argument;
    const struct status failure = *status;
    flight->call = NULL;
    if (reply != NULL)
        grpc_byte_buffer_destroy(reply);
    if (failure.code == STATUS_OK)
        end(flight, ACTION_COPIED);
    else
        end_failed(flight, &failure);
}

static void end(struct flight *flight, enum action_outcome outcome)
{
    struct action_copier *copier = flight->copier;
    const struct digest action = flight->action;
    flight_free(flight);
    copier->counts[outcome]++;
    copier->observer.ended(copier->observer.argument, &action, outcome);
}

/* What every other one would meet as well ends all. */
static void end_failed(struct flight *flight, const struct status *status)
{
    struct action_copier *copier = flight->copier;
    char text[DIGEST_TEXT_BYTES_MAX];
    struct status problem = *status;
    status_prefix(&problem, "action %s", digest_text(&flight->action, text));
    const bool of_all = status->code == STATUS_UNAVAILABLE ||
                        status->code == STATUS_PERMISSION_DENIED ||
                        status->code == STATUS_UNAUTHENTICATED;
    if (of_all && copier->failure.code == STATUS_OK) {
        copier->failure = problem;
        for (struct flight *other = copier->flights; other != NULL; other = other->next) {
            if (other->call != NULL)
                unary_stop_trying(other->call);
        }
    }
    if (copier->failure.code != STATUS_OK) {
        end(flight, ACTION_ABANDONED);
        return;
    }
    copier->observer.problem(copier->observer.argument, &problem);
    end(flight, ACTION_FAILED);
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an action result");
}
