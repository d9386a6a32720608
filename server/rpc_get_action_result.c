/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ActionCache.GetActionResult: a result is served only when everything it names can be read. The
 * key is the action's hash; a result that was stored for another size is none of this action.
 *
 * With peers, what is not here is asked of them before it counts as missing: the result, and then, in rounds, what it names.
 */
#include <stdlib.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "proto/error_details.h"
#include "server/action_answer.h"
#include "server/call_repair.h"
#include "server/completeness.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/whole_blob.h"
#include "store/blob_reader.h"

typedef Build__Bazel__Remote__Execution__V2__GetActionResultRequest request_message;

struct lookup {
    const request_message *request;
    struct bytes instance;
    struct digest action;
    uint8_t *memory; /* owned: of the record */
    struct action_record record;
    struct completeness completeness;
    struct call_repair repair;
    bool asked;         /* peers, for the result */
    size_t asked_count; /* blobs of the last round; they are in completeness.missing */
};

static bool parse(struct call *call,
                  const struct message *message,
                  struct lookup *lookup,
                  struct status *status);
static void answer_or_ask(struct call *call, void *state);
static void answer_found(struct call *call, struct lookup *lookup, struct byte_builder *answer);
static void repaired(struct call *call, void *state);
static bool ask_peers(struct call *call, struct lookup *lookup);
static bool some_came(struct call *call, const struct lookup *lookup);
static void count_failure(struct call *call, const struct lookup *lookup);
static bool find(struct call *call, struct lookup *lookup, struct status *status);
static bool check(struct call *call, struct lookup *lookup, struct status *status);
static bool put_inline(struct call *call,
                       struct lookup *lookup,
                       struct byte_builder *answer,
                       struct status *status);
static void reply(struct call *call, struct lookup *lookup, struct byte_builder *answer);
static void refuse(struct call *call, const struct lookup *lookup, const struct status *status);

/* The result, and that all it names is there; or that there is none, and nobody who could be asked. */
static bool answer_here(struct call *call, void *state, const struct message *message)
{
    struct lookup *const lookup = state;
    struct byte_builder answer = {0};
    struct status status = {0};
    io_cached_begin(LIMIT_ANSWERED_HERE_BYTES);
    const bool parsed = parse(call, message, lookup, &status);
    const bool ok = parsed && find(call, lookup, &status) && check(call, lookup, &status) &&
                    put_inline(call, lookup, &answer, &status);
    const bool refused = io_cached_end();
    if (!refused && ok) {
        answer_found(call, lookup, &answer);
        return true;
    }
    byte_builder_free(&answer);
    if (!refused && parsed && lookup->memory == NULL && status.code == STATUS_NOT_FOUND &&
        !call_repair_is_possible(call)) {
        count_failure(call, lookup);
        refuse(call, lookup, &status);
        return true;
    }
    free(lookup->memory);
    *lookup = (struct lookup){0};
    return false;
}

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct lookup *const lookup = state;
    struct status status = {0};
    if (parse(call, message, lookup, &status))
        answer_or_ask(call, lookup);
    else
        refuse(call, lookup, &status);
}

static void answer_or_ask(struct call *call, void *state)
{
    struct lookup *const lookup = state;
    struct byte_builder answer = {0};
    struct status status = {0};
    lookup->completeness.complete = true;
    lookup->completeness.missing_count = 0;
    if ((lookup->memory != NULL || find(call, lookup, &status)) && check(call, lookup, &status) &&
        put_inline(call, lookup, &answer, &status)) {
        answer_found(call, lookup, &answer);
        return;
    }
    byte_builder_free(&answer);
    if (status.code == STATUS_NOT_FOUND && ask_peers(call, lookup)) {
        call_park(call, repaired);
        return;
    }
    count_failure(call, lookup);
    refuse(call, lookup, &status);
}

static void answer_found(struct call *call, struct lookup *lookup, struct byte_builder *answer)
{
    metrics_add(call_server(call)->metrics, METRIC_ACTION_HITS, 1);
    call_count_lookups(call, 1, 0);
    reply(call, lookup, answer);
}

/* For the result once; for what it names as long as each round brings something. */
static bool ask_peers(struct call *call, struct lookup *lookup)
{
    const struct completeness *const completeness = &lookup->completeness;
    if (lookup->memory == NULL) {
        if (lookup->asked)
            return false;
        lookup->asked = true;
        return call_repair_start_action(&lookup->repair, call, &lookup->action, lookup->instance);
    }
    if (completeness->missing_count == 0)
        return false;
    lookup->asked_count = completeness->missing_count < COMPLETENESS_NAMED_MAX
                              ? completeness->missing_count
                              : COMPLETENESS_NAMED_MAX;
    return call_repair_start(&lookup->repair, call, completeness->missing, lookup->asked_count);
}

static void repaired(struct call *call, void *state)
{
    struct lookup *const lookup = state;
    struct status status = {0};
    if (!call_repair_over(&lookup->repair)) {
        call_park(call, repaired);
        return;
    }
    if (lookup->memory == NULL && lookup->repair.result != NULL) {
        lookup->memory = lookup->repair.result;
        lookup->record.result = bytes_of(lookup->memory, lookup->repair.result_length);
        lookup->repair.result = NULL;
    }
    if (!call_cancelled(call) &&
        (lookup->asked_count == 0 ? lookup->memory != NULL : some_came(call, lookup))) {
        lookup->asked_count = 0;
        answer_or_ask(call, lookup);
        return;
    }
    char text[DIGEST_TEXT_BYTES_MAX];
    if (lookup->memory == NULL)
        status_fail(&status, STATUS_NOT_FOUND, "no result of action %s is stored",
                    digest_text(&lookup->action, text));
    else if (completeness_fail(&lookup->completeness, &lookup->action, &status))
        ASSERT(false); /* it never says true */
    count_failure(call, lookup);
    refuse(call, lookup, &status);
}

static bool some_came(struct call *call, const struct lookup *lookup)
{
    for (size_t i = 0; i < lookup->asked_count; i++)
        if (store_has_blob(call_server(call)->store, &lookup->completeness.missing[i]))
            return true;
    return false;
}

static void count_failure(struct call *call, const struct lookup *lookup)
{
    if (lookup->memory == NULL || !lookup->completeness.complete)
        call_count_lookups(call, 0, 1);
    if (lookup->memory == NULL)
        metrics_add(call_server(call)->metrics, METRIC_ACTION_MISSES, 1);
    else if (!lookup->completeness.complete)
        metrics_add(call_server(call)->metrics, METRIC_ACTION_INCOMPLETE, 1);
}

static bool parse(struct call *call,
                  const struct message *message,
                  struct lookup *lookup,
                  struct status *status)
{
    lookup->completeness.complete = true;
    const request_message *const request = (const void *)call_unpack(
        call, message, &build__bazel__remote__execution__v2__get_action_result_request__descriptor,
        status);
    if (request == NULL)
        return false;
    lookup->request = request;
    lookup->instance = bytes_of_string(request->instance_name);
    if (!call_check_instance(call, lookup->instance, status))
        return false;
    if (request->action_digest == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "GetActionResultRequest: action_digest is not set");
    if (digest_parse((enum digest_function)request->digest_function,
                     bytes_of_string(request->action_digest->hash),
                     request->action_digest->size_bytes, &lookup->action, status))
        return true;
    status_prefix(status, "action_digest");
    return false;
}

/* NOT_FOUND when there is none. */
static bool find(struct call *call, struct lookup *lookup, struct status *status)
{
    struct server *const server = call_server(call);
    struct place place = {0};
    struct status why = {0};
    if (!action_read(server->store, &lookup->action, lookup->instance, &lookup->memory,
                     &lookup->record, &place, &why)) {
        if (why.code != STATUS_DATA_LOSS) {
            *status = why;
            return false;
        }
        damaged_action_forget(server->durability, &lookup->action, lookup->instance, place, &why);
        lookup->memory = NULL;
    }
    if (lookup->memory != NULL)
        return true;
    char text[DIGEST_TEXT_BYTES_MAX];
    return status_fail(status, STATUS_NOT_FOUND, "no result of action %s is stored",
                       digest_text(&lookup->action, text));
}

static bool check(struct call *call, struct lookup *lookup, struct status *status)
{
    struct server *const server = call_server(call);
    struct completeness *const completeness = &lookup->completeness;
    if (!completeness_check(server->durability, call_arena(call),
                            (enum digest_function)lookup->action.function, lookup->record.result,
                            completeness, status))
        return false;
    if (completeness->complete)
        return true;
    return completeness_fail(completeness, &lookup->action, status);
}

/* Leaves *answer empty when nothing is asked for. */
static bool put_inline(struct call *call,
                       struct lookup *lookup,
                       struct byte_builder *answer,
                       struct status *status)
{
    const request_message *const request = lookup->request;
    struct action_inline wanted = {
        .stdout_raw = request->inline_stdout,
        .stderr_raw = request->inline_stderr,
        .path_count = request->n_inline_output_files,
    };
    if (!action_inline_wants(&wanted))
        return true;
    wanted.paths = arena_take(call_arena(call), wanted.path_count * sizeof(*wanted.paths));
    if (wanted.paths == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu names of files",
                           wanted.path_count);
    for (size_t i = 0; i < wanted.path_count; i++)
        wanted.paths[i] = bytes_of_string(request->inline_output_files[i]);

    struct server *const server = call_server(call);
    struct completeness *const completeness = &lookup->completeness;
    if (!action_answer_inline(server->durability, call_arena(call),
                              (enum digest_function)lookup->action.function, lookup->record.result,
                              &wanted, answer, &completeness->missing[0],
                              &completeness->missing_count, status))
        return false;
    if (completeness->missing_count == 0)
        return true;
    completeness->complete = false;
    return completeness_fail(completeness, &lookup->action, status);
}

/* The record's memory goes along with the slice, so that what is stored is sent without a copy. */
static void reply(struct call *call, struct lookup *lookup, struct byte_builder *answer)
{
    grpc_slice slices[2];
    size_t count = 0;
    const struct bytes metadata = action_answer_metadata(lookup->record.result);
    size_t length;
    uint8_t *const built = byte_builder_release(answer, &length);
    if (length > 0) {
        slices[count++] = grpc_slice_new(built, length, free);
    } else if (lookup->record.result.length > 0) {
        uint8_t *const result = lookup->memory + (lookup->record.result.data - lookup->memory);
        slices[count++] = grpc_slice_new_with_user_data(result, lookup->record.result.length, free,
                                                        lookup->memory);
        lookup->memory = NULL;
    }
    if (metadata.length > 0)
        slices[count++] =
            grpc_slice_from_copied_buffer((const char *)metadata.data, metadata.length);
    ASSERT(count > 0);
    call_reply(call, slices, count);
}

static void refuse(struct call *call, const struct lookup *lookup, const struct status *status)
{
    const struct completeness *const completeness = &lookup->completeness;
    if (completeness->complete || completeness->missing_count == 0) {
        call_fail(call, status);
        return;
    }
    uint8_t details[ERROR_DETAILS_BYTES_MAX];
    const size_t named = completeness->missing_count < COMPLETENESS_NAMED_MAX
                             ? completeness->missing_count
                             : COMPLETENESS_NAMED_MAX;
    size_t told;
    const size_t length =
        error_details_missing_put(details, status, completeness->missing, named, &told);
    call_fail_with_details(call, status, bytes_of(details, length));
}

static void on_free(struct call *call, void *state)
{
    (void)call;
    struct lookup *const lookup = state;
    call_repair_end(&lookup->repair);
    free(lookup->memory);
}

const struct method rpc_get_action_result = {
    .path = "/build.bazel.remote.execution.v2.ActionCache/GetActionResult",
    .kind = METHOD_UNARY,
    .role = ROLE_READ,
    .has_instance = true,
    .state_bytes = sizeof(struct lookup),
    .answer_here = answer_here,
    .on_message = on_message,
    .on_free = on_free,
};
