/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peer_action.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "server/completeness.h"
#include "server/whole_blob.h"
#include "store/blob_reader.h"

/* Each brings something: a Tree, then the files in it, 64 at a time. */
enum { ROUNDS_MAX = 100000 };

struct peer_action {
    struct peer_action_request request;
    struct store *store; /* borrowed */
    struct event event;  /* what goes on in the loop next: see `next` */
    void (*next)(struct peer_action *action);
    unsigned rounds;

    /* FETCHING */
    size_t wants_left;
    size_t came; /* of this round: are here now */
    struct status failure;
    bool failed_here;

    /* CLAIMING, COMMITTING */
    bool claimed;
    struct flight flight;
    struct flight_waiter waiter;
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    struct bytes payload[4];
    struct record record;
    struct commit_request commit;
    struct status committed;

    struct fetch {
        struct want want;
        struct peer_action *action;
    } fetches[COMPLETENESS_NAMED_MAX];
};

static void post(struct peer_action *action, void (*next)(struct peer_action *action));
static void run_next(struct event *event);
static void check(struct peer_action *action);
static bool is_newer(struct peer_action *action);
static void fetch(struct peer_action *action, const struct completeness *completeness);
static void want_done(struct want *want, const struct status *result);
static void fetched(struct peer_action *action);
static void claim(struct peer_action *action);
static void may_claim(struct flight_waiter *waiter);
static void commit(struct peer_action *action);
static void on_ack(struct ack *ack, const struct status *result);
static void committed(struct peer_action *action);
static void cancelled(struct peer_action *action);
static void finish(struct peer_action *action,
                   enum peer_action_outcome outcome,
                   const struct status *status);

bool peer_action_start(const struct peer_action_request *request,
                       struct peer_action **action_out,
                       struct status *status)
{
    struct peer_action *const action = calloc(1, sizeof(*action));
    if (action == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an action result");
    action->request = *request;
    action->store = durability_store(request->durability);
    action->event.run = run_next;
    action->waiter.ready = may_claim;
    *action_out = action;
    post(action, check);
    return true;
}

static void post(struct peer_action *action, void (*next)(struct peer_action *action))
{
    action->next = next;
    event_loop_post(action->request.loop, &action->event);
}

static void run_next(struct event *event)
{
    struct peer_action *const action = CONTAINER_OF(event, struct peer_action, event);
    action->next(action);
}

/* ---- CHECKING */

static void check(struct peer_action *action)
{
    static const struct status ok = {0};
    if (!is_newer(action)) {
        finish(action, PEER_ACTION_OLDER, &ok);
        return;
    }
    if (action->request.opaque) {
        claim(action);
        return;
    }
    struct completeness completeness;
    struct status status = {0};
    struct arena arena;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    const bool checked = completeness_check(action->request.durability, &arena,
                                            (enum digest_function)action->request.action.function,
                                            action->request.record.result, &completeness, &status);
    arena_destroy(&arena);
    if (!checked) {
        action->failed_here = true;
        finish(action, PEER_ACTION_FAILED, &status);
    } else if (completeness.complete) {
        claim(action);
    } else if (completeness.missing_count == 0 || ++action->rounds > ROUNDS_MAX) {
        finish(action, PEER_ACTION_INCOMPLETE, &ok);
    } else {
        fetch(action, &completeness);
    }
}

/* A record of ours that cannot be read is none. */
static bool is_newer(struct peer_action *action)
{
    const struct peer_action_request *const request = &action->request;
    uint8_t *memory = NULL;
    struct action_record ours;
    struct place place = {0};
    struct status why = {0};
    if (!action_read(action->store, &request->action, request->record.instance, &memory, &ours,
                     &place, &why)) {
        if (why.code == STATUS_DATA_LOSS)
            damaged_action_forget(request->durability, &request->action, request->record.instance,
                                  place, &why);
        return true;
    }
    const bool newer = memory == NULL || action_is_before(&ours, &request->record);
    free(memory);
    return newer;
}

bool action_is_before(const struct action_record *a, const struct action_record *b)
{
    return a->written_wall_ns != b->written_wall_ns ? a->written_wall_ns < b->written_wall_ns
                                                    : a->node_uid < b->node_uid;
}

/* ---- FETCHING */

static void fetch(struct peer_action *action, const struct completeness *completeness)
{
    const size_t count = completeness->missing_count < COMPLETENESS_NAMED_MAX
                             ? completeness->missing_count
                             : COMPLETENESS_NAMED_MAX;
    action->came = 0;
    action->wants_left = 1; /* ours, so that the end does not come before all are added */
    for (size_t i = 0; i < count; i++) {
        struct fetch *const fetch = &action->fetches[i];
        *fetch = (struct fetch){.action = action};
        fetch->want.digest = completeness->missing[i];
        fetch->want.done = want_done;
        if (fetcher_add(action->request.fetcher, &fetch->want) == FETCHER_TAKEN)
            action->wants_left++;
        else
            action->came++;
    }
    fetcher_pump(action->request.fetcher);
    if (--action->wants_left == 0)
        post(action, fetched);
}

static void want_done(struct want *want, const struct status *result)
{
    struct peer_action *const action = CONTAINER_OF(want, struct fetch, want)->action;
    if (result->code == STATUS_OK) {
        action->came++;
    } else if (result->code != STATUS_NOT_FOUND && result->code != STATUS_OUT_OF_RANGE &&
               action->failure.code == STATUS_OK) {
        action->failure = *result;
        action->failed_here = want->failed_here;
        if (result->code == STATUS_DATA_LOSS) {
            char text[DIGEST_TEXT_BYTES_MAX];
            status_prefix(&action->failure, "%s", digest_text(&want->digest, text));
        }
    }
    if (--action->wants_left == 0)
        post(action, fetched);
}

static void fetched(struct peer_action *action)
{
    static const struct status ok = {0};
    if (action->failure.code != STATUS_OK)
        finish(action, PEER_ACTION_FAILED, &action->failure);
    else if (action->came == 0)
        finish(action, PEER_ACTION_INCOMPLETE, &ok);
    else
        check(action);
}

/* ---- CLAIMING, COMMITTING */

static void claim(struct peer_action *action)
{
    const struct blob_key key = blob_table_action_key(action->store->table, &action->request.action,
                                                      action->request.record.instance);
    if (flights_begin(action->request.flights, key, &action->flight, &action->waiter)) {
        action->claimed = true;
        commit(action);
    }
}

/* On the thread of whoever had it. */
static void may_claim(struct flight_waiter *waiter)
{
    post(CONTAINER_OF(waiter, struct peer_action, waiter), claim);
}

/* Whoever had the claim before may have written a newer one. */
static void commit(struct peer_action *action)
{
    static const struct status ok = {0};
    const struct action_record *const record = &action->request.record;
    if (!is_newer(action)) {
        finish(action, PEER_ACTION_OLDER, &ok);
        return;
    }
    action_record_fixed_put(action->fixed, record);
    action->payload[0] = bytes_of(action->fixed, sizeof(action->fixed));
    action->payload[1] = record->instance;
    action->payload[2] = record->writer;
    action->payload[3] = record->result;
    const struct bytes_list payload = {.parts = action->payload,
                                       .count = ARRAY_LENGTH(action->payload)};
    action->record = (struct record){
        .kind = RECORD_ACTION,
        .digest = action->request.action,
        .payload = payload,
        .payload_bytes = bytes_list_length(payload),
        .payload_crc32c = crc32c_list(0, payload),
    };
    action->commit = (struct commit_request){
        .record = &action->record,
        .instance = record->instance,
        .local = true,
        .ack = {.done = on_ack},
    };
    commit_submit(durability_commit(action->request.durability, LANE_SMALL), &action->commit);
}

/* On the ack thread. */
static void on_ack(struct ack *ack, const struct status *result)
{
    struct peer_action *const action = CONTAINER_OF(ack, struct peer_action, commit.ack);
    action->committed = *result;
    post(action, committed);
}

static void committed(struct peer_action *action)
{
    action->failed_here = action->committed.code != STATUS_OK;
    finish(action, action->failed_here ? PEER_ACTION_FAILED : PEER_ACTION_TAKEN,
           &action->committed);
}

void peer_action_cancel(struct peer_action *action)
{
    if (!action->claimed && flights_cancel(action->request.flights, &action->waiter))
        post(action, cancelled);
}

static void cancelled(struct peer_action *action)
{
    struct status status = {0};
    status_fail(&status, STATUS_CANCELLED, "cancelled");
    finish(action, PEER_ACTION_FAILED, &status);
}

static void finish(struct peer_action *action,
                   enum peer_action_outcome outcome,
                   const struct status *status)
{
    const struct peer_action_request request = action->request;
    const struct status copy = *status; /* may lie in the action */
    const bool failed_here = action->failed_here;
    if (action->claimed)
        flights_end(request.flights, &action->flight);
    free(action);
    request.done(request.argument, outcome, &copy, failed_here);
}
