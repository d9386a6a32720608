/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve.v1.Admin: Explain, what is known of a digest and why it is or is not here; Who, who wrote an action result.
 *
 * Explain asks the index first and then goes through the log, part by part, so that other calls get their turns in between.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/limits.h"
#include "proto/resource_name.h"
#include "server/completeness.h"
#include "server/history.h"
#include "server/methods.h"
#include "server/peers.h"
#include "server/printable.h"
#include "server/server.h"
#include "server/store_status.h"
#include "server/writer.h"
#include "store/blob_reader.h"
#include "store/find.h"
#include "store/segment_set.h"
#include "varve/v1/admin.pb-c.h"

/* A blob of at most so many bytes is read for the answer. */
#define VERIFY_BYTES_MAX (64 * MIB)
/* How long the log is looked through at most, and what the answer needs before the deadline. */
#define LOOK_NS (30 * NS_PER_S)
#define ANSWER_NS NS_PER_S
enum {
    INSTANCES_MAX = 16, /* whose results are told */
    MISSING_MAX = 10,   /* digests that are told of a result */
    TIME_TEXT_BYTES = 32,
};

typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;
typedef Varve__V1__ExplainRequest explain_request;
typedef Varve__V1__BlobExplanation blob_explanation;
typedef Varve__V1__ActionExplanation action_explanation;
typedef Varve__V1__ResultExplanation result_explanation;
typedef Varve__V1__Provenance provenance_message;

#define VERDICT(name) VARVE__V1__VERDICT__VERDICT_##name

struct state {
    struct digest digest;
    bool any_size;
    struct bytes instance;
    int64_t until_ns;
    struct history history;

    Varve__V1__BlobPlace place;
    blob_explanation blob;
    action_explanation action;
};

static bool take_request(struct call *call,
                         struct state *state,
                         const struct message *message,
                         struct status *status);
static void look(struct call *call, void *state_memory);
static void answer(struct call *call, struct state *state);
static bool explain_blob(struct call *call, struct state *state, struct status *status);
static bool look_at_blob(struct call *call,
                         struct state *state,
                         const struct digest *digest,
                         struct status *status);
static void verify(struct call *call,
                   struct state *state,
                   const struct digest *digest,
                   struct place place);
static bool explain_action(struct call *call, struct state *state, struct status *status);
static bool add_result(struct call *call,
                       struct state *state,
                       const struct digest *digest,
                       struct bytes instance,
                       bool *added,
                       struct status *status);
static const struct history_event *last_word(const struct state *state, bool result);
static bool was_evicted(struct call *call,
                        const struct state *state,
                        bool result,
                        int64_t *when_ns);
static void say_absent(struct call *call,
                       const struct state *state,
                       bool result,
                       Varve__V1__Verdict *verdict,
                       char **meaning);
static bool fill_provenance(struct call *call,
                            struct bytes instance,
                            const struct action_record *record,
                            provenance_message *to);
static char *node_name(struct call *call, uint64_t uid);
static Varve__V1__LogEvent **fill_events(struct call *call,
                                         const struct state *state,
                                         size_t *count);
static digest_message *digest_told(struct call *call, const struct digest *digest);
static char *say(struct call *call, const char *format, ...) PRINTF_LIKE(2, 3);
static const char *time_text(int64_t wall_ns, char text[TIME_TEXT_BYTES]);
static int64_t log_since(struct store *store, enum lane lane);

/* ---- Explain */

static void explain_message(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    if (!take_request(call, state, message, &status)) {
        call_fail(call, &status);
        return;
    }
    const int64_t now_ns = clock_monotonic_ns(call_server(call)->clock);
    const int64_t deadline_ns = call_deadline_ns(call);
    state->until_ns = now_ns + LOOK_NS;
    if (deadline_ns - ANSWER_NS < state->until_ns)
        state->until_ns = deadline_ns - ANSWER_NS;
    history_begin(&state->history, &state->digest,
                  state->any_size ? HISTORY_SIZE_UNKNOWN : HISTORY_SIZE_KNOWN);
    look(call, state);
}

static bool take_digest(const digest_message *asked,
                        enum digest_function function,
                        struct digest *digest,
                        struct status *status)
{
    if (asked == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "no digest is set");
    /* Any size will do where it does not count; only the empty blob's has to be its own. */
    if (asked->size_bytes >= 0)
        return digest_parse(function, bytes_of_string(asked->hash), asked->size_bytes, digest,
                            status);
    struct status ignored;
    return digest_parse(function, bytes_of_string(asked->hash), 0, digest, &ignored) ||
           digest_parse(function, bytes_of_string(asked->hash), 1, digest, status);
}

static bool take_request(struct call *call,
                         struct state *state,
                         const struct message *message,
                         struct status *status)
{
    const explain_request *const request = (const explain_request *)(void *)call_unpack(
        call, message, &varve__v1__explain_request__descriptor, status);
    if (request == NULL)
        return false;
    state->instance = bytes_of_string(request->instance_name);
    if (!instance_name_check(state->instance, status) ||
        !take_digest(request->digest, (enum digest_function)request->digest_function,
                     &state->digest, status))
        return false;
    call_note_instance(call, state->instance);
    state->any_size = request->digest->size_bytes < 0;
    return true;
}

static void look(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    struct server *const server = call_server(call);
    struct status status = {0};
    bool more = false;
    if (call_cancelled(call)) {
        status_fail(&status, STATUS_CANCELLED, "nobody waits for the answer");
        call_fail(call, &status);
        return;
    }
    /* What cannot be read of the log is not known. */
    if (clock_monotonic_ns(server->clock) < state->until_ns &&
        history_step(&state->history, durability_feed(server->durability),
                     durability_copies(server->durability), call_arena(call), &more, &status) &&
        more)
        call_resume(call, look);
    else
        answer(call, state);
}

static void answer(struct call *call, struct state *state)
{
    struct server *const server = call_server(call);
    struct status status = {0};
    varve__v1__blob_explanation__init(&state->blob);
    varve__v1__action_explanation__init(&state->action);
    Varve__V1__ExplainResponse response = VARVE__V1__EXPLAIN_RESPONSE__INIT;
    bool ok = explain_blob(call, state, &status) && explain_action(call, state, &status);
    if (ok) {
        response.blob = &state->blob;
        response.action = &state->action;
        response.events = fill_events(call, state, &response.n_events);
        response.looked_at_all = state->history.is_whole;
        response.records_looked_at = state->history.looked_at;
        response.log_since_unix_ns = log_since(server->store, LANE_SMALL);
        ok = (response.events != NULL && state->blob.meaning != NULL &&
              state->action.meaning != NULL) ||
             status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
    }
    if (ok)
        call_reply_packed(call, &response.base);
    else
        call_fail(call, &status);
}

/* ---- as a blob */

static bool explain_blob(struct call *call, struct state *state, struct status *status)
{
    struct store *const store = call_server(call)->store;
    blob_explanation *const blob = &state->blob;
    struct digest digest = state->digest;
    struct place place;
    char text[DIGEST_TEXT_BYTES_MAX];
    if (digest_is_empty_blob(&digest)) {
        blob->verdict = VERDICT(PRESENT);
        blob->meaning = say(call, "the empty blob is always there and never stored");
        return true;
    }
    if (!state->any_size && store_find_blob(store, &digest, FIND_ONLY, &place))
        return look_at_blob(call, state, &digest, status);
    if (store_find_size(store, &digest)) {
        if (state->any_size)
            return look_at_blob(call, state, &digest, status);
        blob->verdict = VERDICT(OTHER_SIZE);
        blob->meaning =
            say(call, "not with this size, but %s is here: whoever asks has the size wrong",
                digest_text(&digest, text));
        return true;
    }
    say_absent(call, state, false, &blob->verdict, &blob->meaning);
    return true;
}

static bool look_at_blob(struct call *call,
                         struct state *state,
                         const struct digest *digest,
                         struct status *status)
{
    struct store *const store = call_server(call)->store;
    blob_explanation *const blob = &state->blob;
    struct place place;
    struct segment *segment = NULL;
    if (store_find_blob(store, digest, FIND_ONLY, &place))
        segment = segment_set_pin(store->segments, place.segment);
    if (segment == NULL) {
        say_absent(call, state, false, &blob->verdict, &blob->meaning);
        return true;
    }
    varve__v1__blob_place__init(&state->place);
    state->place.digest = digest_told(call, digest);
    state->place.present = 1;
    state->place.lane = store_status_lane(segment->lane);
    state->place.segment = place.segment;
    state->place.offset = place.offset;
    state->place.stored_bytes = (uint64_t)digest->size_bytes;
    blob->place = &state->place;
    blob->written_after_unix_ns = segment->created_wall_ns;
    segment_set_unpin(store->segments, segment);

    struct blob_use use;
    if (blob_table_look(store->table, blob_table_blob_key(store->table, digest), &use) &&
        use.touched) {
        blob->used = 1;
        blob->idle_minutes = use.idle_minutes;
        blob->vouched = (int64_t)use.idle_minutes * 60 * NS_PER_S < store->vouch_ns;
    }
    verify(call, state, digest, place);
    if (blob->damage[0] != '\0') {
        blob->verdict = VERDICT(DAMAGED);
        blob->meaning =
            say(call, "it is here, but damaged: the next read forgets it, and it has to "
                      "be stored again");
    } else {
        blob->verdict = VERDICT(PRESENT);
        blob->meaning = say(
            call, "it is here%s",
            blob->verified ? " and sound: whoever asks for it gets it"
                           : "; it is too large to be read for this answer, varve get does that");
    }
    return state->place.digest != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
}

/* Reads all of it, if it is not too large. What fails to be read now says nothing. */
static void verify(struct call *call,
                   struct state *state,
                   const struct digest *digest,
                   struct place place)
{
    struct server *const server = call_server(call);
    blob_explanation *const blob = &state->blob;
    struct blob_reader *reader = NULL;
    struct buffer *buffer = NULL;
    struct status why = {0};
    uint64_t offset = 0;
    bool ok = blob_reader_open_at(server->store, digest, place, &reader, &why) && reader != NULL;
    if (ok) {
        size_t chunks = 0;
        if (blob_reader_chunks(reader, &chunks) != NULL)
            blob->chunks = chunks;
        buffer = (uint64_t)digest->size_bytes <= VERIFY_BYTES_MAX
                     ? buffer_pool_try_take(server->buffers)
                     : NULL;
    }
    while (ok && buffer != NULL && offset < (uint64_t)digest->size_bytes) {
        struct bytes data;
        ok = blob_reader_read(reader, offset, buffer, &data, &why);
        offset += ok ? data.length : 0;
    }
    blob->verified = ok && buffer != NULL;
    if (why.code == STATUS_DATA_LOSS)
        blob->damage = say(call, "%s", why.message);
    if (blob->damage == NULL)
        blob->damage = (char *)(uintptr_t) "it is damaged";
    buffer_release(buffer);
    blob_reader_free(reader);
}

/* ---- as an action */

static bool explain_action(struct call *call, struct state *state, struct status *status)
{
    action_explanation *const action = &state->action;
    const struct history *const history = &state->history;
    bool own = false;
    action->results =
        arena_take_zeroed(call_arena(call), INSTANCES_MAX, sizeof(result_explanation *));
    if (action->results == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
    struct digest digest = state->digest;
    if (state->any_size &&
        !store_find_action_size(call_server(call)->store, &digest, state->instance))
        digest = state->digest;
    if (!add_result(call, state, &digest, state->instance, &own, status))
        return false;
    for (size_t i = 0; i < history->count && action->n_results < INSTANCES_MAX; i++) {
        const struct history_event *const event = &history->events[i];
        bool added;
        if (event->kind != RECORD_ACTION || !event->current ||
            bytes_equal(event->instance, state->instance))
            continue;
        digest.size_bytes = event->size_bytes;
        if (!add_result(call, state, &digest, event->instance, &added, status))
            return false;
    }
    /* That it was here and is not any more says more than that others have one. */
    const struct history_event *const last = last_word(state, true);
    if (!own && (action->n_results == 0 || (last != NULL && last->kind == RECORD_FORGET))) {
        say_absent(call, state, true, &action->verdict, &action->meaning);
        return true;
    }
    const result_explanation *const first = action->results[0];
    if (!own) {
        action->verdict = VERDICT(OTHER_INSTANCE);
        action->meaning = say(
            call,
            "there is no result in this instance, but in %zu other%s, \"%s\" the first: "
            "instances share blobs, not results",
            action->n_results, action->n_results == 1 ? "" : "s", first->provenance->instance_name);
    } else if (first->complete) {
        action->verdict = VERDICT(PRESENT);
        action->meaning = say(call, "its result is here, and all that it names");
    } else {
        action->verdict = VERDICT(INCOMPLETE);
        action->meaning =
            first->missing_count > 0
                ? say(call,
                      "its result is here, but %" PRIu64 " blob%s that it names %s not, first "
                      "%s/%" PRId64 ": clients are told that there is none, and run the action",
                      first->missing_count, first->missing_count == 1 ? "" : "s",
                      first->missing_count == 1 ? "is" : "are", first->missing[0]->hash,
                      first->missing[0]->size_bytes)
                : say(call, "its result is here and cannot be served: %s", first->unusable);
    }
    return true;
}

static bool add_result(struct call *call,
                       struct state *state,
                       const struct digest *digest,
                       struct bytes instance,
                       bool *added,
                       struct status *status)
{
    struct server *const server = call_server(call);
    struct arena *const arena = call_arena(call);
    action_explanation *const action = &state->action;
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place;
    struct status why = {0};
    struct completeness completeness;
    *added = false;
    if (!action_read(server->store, digest, instance, &memory, &record, &place, &why)) {
        if (why.code == STATUS_DATA_LOSS)
            return true; /* the next who asks for it has it forgotten */
        *status = why;
        return false;
    }
    if (memory == NULL)
        return true;
    result_explanation *const result = arena_take_zeroed(arena, 1, sizeof(*result));
    provenance_message *const provenance = arena_take_zeroed(arena, 1, sizeof(*provenance));
    bool ok = result != NULL && provenance != NULL &&
              fill_provenance(call, instance, &record, provenance);
    if (ok) {
        varve__v1__result_explanation__init(result);
        result->provenance = provenance;
        ok = completeness_check(server->durability, arena, digest->function, record.result,
                                &completeness, &why);
    }
    if (ok) {
        const size_t named =
            completeness.missing_count < MISSING_MAX ? completeness.missing_count : MISSING_MAX;
        result->complete = completeness.complete;
        result->missing_count = completeness.missing_count;
        result->unusable = say(call, "%s", completeness.unusable.message);
        result->missing = arena_take_zeroed(arena, named + 1, sizeof(digest_message *));
        ok = result->missing != NULL && result->unusable != NULL;
        for (size_t i = 0; ok && i < named; i++) {
            result->missing[i] = digest_told(call, &completeness.missing[i]);
            ok = result->missing[i] != NULL;
        }
        result->n_missing = named;
    }
    free(memory);
    if (!ok)
        return status_fail(status, why.code != STATUS_OK ? why.code : STATUS_RESOURCE_EXHAUSTED,
                           "%s", why.message[0] != '\0' ? why.message : "no memory for the answer");
    action->results[action->n_results++] = result;
    *added = true;
    return true;
}

/* ---- what is not here */

/* The newest word of the log on it: how it was forgotten, or else that it was there. */
static const struct history_event *last_word(const struct state *state, bool result)
{
    for (size_t i = 0; i < state->history.count; i++) {
        const struct history_event *const event = &state->history.events[i];
        const enum record_kind kind = event->kind == RECORD_FORGET ? event->forgotten : event->kind;
        if ((kind == RECORD_ACTION) == result &&
            (result ? bytes_equal(event->instance, state->instance)
                    : state->any_size || event->size_bytes == state->digest.size_bytes))
            return event;
    }
    return NULL;
}

/* Eviction leaves nothing in the log; *when_ns is what is remembered. */
static bool was_evicted(struct call *call, const struct state *state, bool result, int64_t *when_ns)
{
    const struct store *const store = call_server(call)->store;
    if (!result && state->any_size)
        return false; /* its size is part of what it is remembered by */
    const struct blob_key key =
        result ? blob_table_action_key(store->table, &state->digest, state->instance)
               : blob_table_blob_key(store->table, &state->digest);
    return evicted_find(store->evicted, key, when_ns);
}

static void say_absent(struct call *call,
                       const struct state *state,
                       bool result,
                       Varve__V1__Verdict *verdict,
                       char **meaning)
{
    const struct history_event *const event = last_word(state, result);
    const char *const what = result ? "there is no result of it" : "it is not here";
    char when[TIME_TEXT_BYTES];
    const char *by = NULL;
    int64_t evicted_ns = 0;
    if (event != NULL && event->kind != RECORD_FORGET) {
        *verdict = VERDICT(NOT_KNOWN);
        *meaning = say(call, "%s any more: it was stored %s or later, and is being forgotten", what,
                       time_text(event->wall_ns, when));
    } else if (event != NULL) {
        time_text(event->wall_ns, when);
        *verdict = VERDICT(NOT_KNOWN);
        *meaning = say(call, "%s any more: it was forgotten %s, this version does not know why",
                       what, when);
        switch (event->reason) {
        case FORGET_EVICTED:
            *verdict = VERDICT(EVICTED);
            *meaning = say(call,
                           "%s any more: it was evicted %s, when room was needed and nobody had "
                           "used it for long; a larger --capacity keeps more",
                           what, when);
            break;
        case FORGET_PURGED:
            *verdict = VERDICT(PURGED);
            by = node_name(call, event->origin_uid);
            *meaning = say(call, "%s any more: somebody had it deleted %s, by way of %s", what,
                           when, by != NULL ? by : "a node");
            break;
        case FORGET_DAMAGED:
            *verdict = VERDICT(FOUND_DAMAGED);
            *meaning =
                say(call, "%s any more: it was found damaged %s and forgotten; look at the disk",
                    what, when);
            break;
        }
    } else if (was_evicted(call, state, result, &evicted_ns)) {
        *verdict = VERDICT(EVICTED);
        *meaning = say(call,
                       "%s any more: it was evicted %s, when room was needed and nobody had used "
                       "it for long; a larger --capacity keeps more",
                       what, time_text(evicted_ns, when));
    } else if (!state->history.is_whole) {
        *verdict = VERDICT(NOT_KNOWN);
        *meaning = say(call,
                       "%s, and the log could not be looked through to its beginning in time: ask "
                       "again with a longer --timeout",
                       what);
    } else if (state->history.from_the_start) {
        *verdict = VERDICT(NEVER_SEEN);
        *meaning = say(call, "%s: nobody has ever stored it on this node",
                       result ? "there never was a result of it" : "it was never here");
    } else {
        *verdict = VERDICT(NOT_KNOWN);
        const struct evicted *const evicted = call_server(call)->store->evicted;
        const bool sizeless = !result && state->any_size;
        char since[TIME_TEXT_BYTES];
        const enum lane lane = !result && state->digest.size_bytes > (int64_t)LIMIT_SMALL_BLOB_BYTES
                                   ? LANE_LARGE
                                   : LANE_SMALL;
        *meaning =
            say(call,
                "%s: it was never stored here, or it was evicted, as all was that was stored "
                "before the oldest that is here, %s, and that nobody used%s%s",
                what, time_text(log_since(call_server(call)->store, lane), when),
                sizeless                    ? "; with its size one could say more"
                : evicted_is_whole(evicted) ? "; not since this process started, "
                                            : "; it is none of the last that were evicted since ",
                sizeless ? "" : time_text(evicted_since_ns(evicted), since));
    }
}

/* ---- who, and where */

static bool fill_provenance(struct call *call,
                            struct bytes instance,
                            const struct action_record *record,
                            provenance_message *to)
{
    struct arena *const arena = call_arena(call);
    struct writer writer;
    writer_parse(record->writer, &writer);
    varve__v1__provenance__init(to);
    to->instance_name = printable_copy(arena, instance);
    to->written_unix_ns = record->written_wall_ns;
    to->writer = printable_copy(arena, record->writer);
    to->tool = printable_copy(arena, writer.tool);
    to->user = printable_copy(arena, writer.user);
    to->address = printable_copy(arena, writer.address);
    to->node_uid = record->node_uid;
    to->node_name = node_name(call, record->node_uid);
    to->result_bytes = record->result.length;
    return to->instance_name != NULL && to->writer != NULL && to->tool != NULL &&
           to->user != NULL && to->address != NULL && to->node_name != NULL;
}

/* "node 0123456789abcdef", where it is nobody that is known. */
static char *node_name(struct call *call, uint64_t uid)
{
    struct server *const server = call_server(call);
    if (uid == server->store->node_uid || uid == 0)
        return say(call, "this node");
    if (server->peers != NULL) {
        struct peer_report *const reports =
            arena_take_zeroed(call_arena(call), PEERS_MAX, sizeof(*reports));
        const size_t count = reports != NULL ? peers_report(server->peers, reports, PEERS_MAX) : 0;
        for (size_t i = 0; i < count; i++)
            if (reports[i].uid == uid)
                return printable_copy(call_arena(call), bytes_of_string(reports[i].address));
    }
    struct follower *const followers =
        arena_take_zeroed(call_arena(call), LIMIT_FOLLOWERS, sizeof(*followers));
    const size_t count = followers != NULL ? copies_followers(durability_copies(server->durability),
                                                              followers, LIMIT_FOLLOWERS)
                                           : 0;
    for (size_t i = 0; i < count && i < LIMIT_FOLLOWERS; i++)
        if (followers[i].uid == uid && followers[i].name[0] != '\0')
            return printable_copy(call_arena(call), bytes_of_string(followers[i].name));
    return say(call, "node %016" PRIx64, uid);
}

/* ---- what the log says */

static Varve__V1__LogEvent **fill_events(struct call *call,
                                         const struct state *state,
                                         size_t *count)
{
    static const Varve__V1__LogEvent__Reason reasons[] = {
        [FORGET_DAMAGED] = VARVE__V1__LOG_EVENT__REASON__REASON_DAMAGED,
        [FORGET_PURGED] = VARVE__V1__LOG_EVENT__REASON__REASON_PURGED,
        [FORGET_EVICTED] = VARVE__V1__LOG_EVENT__REASON__REASON_EVICTED};
    struct arena *const arena = call_arena(call);
    const struct history *const history = &state->history;
    Varve__V1__LogEvent *const events =
        arena_take_zeroed(arena, HISTORY_EVENTS_MAX, sizeof(*events));
    Varve__V1__LogEvent **const pointers =
        arena_take_zeroed(arena, HISTORY_EVENTS_MAX, sizeof(Varve__V1__LogEvent *));
    *count = 0;
    if (events == NULL || pointers == NULL)
        return NULL;
    for (size_t i = 0; i < history->count; i++) {
        const struct history_event *const from = &history->events[i];
        Varve__V1__LogEvent *const to = &events[i];
        varve__v1__log_event__init(to);
        to->lane = store_status_lane(from->lane);
        to->seq = from->seq;
        to->unix_ns = from->wall_ns;
        to->size_bytes = from->size_bytes;
        to->current = from->current;
        to->instance_name = printable_copy(arena, from->instance);
        to->writer = printable_copy(arena, from->writer);
        if (from->kind == RECORD_FORGET) {
            to->kind = VARVE__V1__LOG_EVENT__KIND__KIND_FORGOTTEN;
            to->of_result = from->forgotten == RECORD_ACTION;
            if ((size_t)from->reason < ARRAY_LENGTH(reasons)) /* later versions may have more */
                to->reason = reasons[from->reason];
        } else {
            to->kind = from->kind == RECORD_ACTION ? VARVE__V1__LOG_EVENT__KIND__KIND_RESULT_STORED
                                                   : VARVE__V1__LOG_EVENT__KIND__KIND_BLOB_STORED;
        }
        if (from->kind == RECORD_FORGET || from->kind == RECORD_ACTION) {
            to->node_uid = from->origin_uid;
            to->node_name = node_name(call, from->origin_uid);
        }
        if (to->instance_name == NULL || to->writer == NULL || to->node_name == NULL)
            return NULL;
        pointers[i] = to;
    }
    *count = history->count;
    return pointers;
}

static digest_message *digest_told(struct call *call, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_message *const told = arena_take_zeroed(call_arena(call), 1, sizeof(*told));
    if (told == NULL)
        return NULL;
    build__bazel__remote__execution__v2__digest__init(told);
    told->hash = arena_copy_string(call_arena(call), bytes_of_string(digest_hex(digest, hex)));
    told->size_bytes = digest->size_bytes;
    return told->hash != NULL ? told : NULL;
}

/* NULL: no memory. */
static char *say(struct call *call, const char *format, ...)
{
    char text[2 * STATUS_MESSAGE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ASSERT(length >= 0);
    return printable_copy(call_arena(call), bytes_of_string(text));
}

static const char *time_text(int64_t wall_ns, char text[TIME_TEXT_BYTES])
{
    const time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm utc;
    text[0] = '\0';
    if (wall_ns <= 0 || gmtime_r(&seconds, &utc) == NULL ||
        strftime(text, TIME_TEXT_BYTES, "at %Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(text, TIME_TEXT_BYTES, "at a time that is not known");
    return text;
}

/* When its oldest segment was begun; 0: there is none. */
static int64_t log_since(struct store *store, enum lane lane)
{
    struct segment *const oldest = segment_set_pin_next(store->segments, lane, 0);
    const int64_t wall_ns = oldest != NULL ? oldest->created_wall_ns : 0;
    segment_set_unpin(store->segments, oldest);
    return wall_ns;
}

const struct method rpc_admin_explain = {.path = "/varve.v1.Admin/Explain",
                                         .kind = METHOD_UNARY,
                                         .role = ROLE_ADMIN,
                                         .state_bytes = sizeof(struct state),
                                         .on_message = explain_message};

/* ---- Who */

static void who_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct server *const server = call_server(call);
    struct status status = {0};
    struct digest action;
    struct action_record record;
    struct place place;
    uint8_t *memory = NULL;
    char text[DIGEST_TEXT_BYTES_MAX];
    provenance_message provenance;
    const Varve__V1__WhoRequest *const request = (const Varve__V1__WhoRequest *)(void *)call_unpack(
        call, message, &varve__v1__who_request__descriptor, &status);
    bool ok = request != NULL &&
              instance_name_check(bytes_of_string(request->instance_name), &status) &&
              take_digest(request->action_digest, (enum digest_function)request->digest_function,
                          &action, &status);
    if (ok) {
        const struct bytes instance = bytes_of_string(request->instance_name);
        call_note_instance(call, instance);
        if (request->action_digest->size_bytes < 0 &&
            !store_find_action_size(server->store, &action, instance))
            action.size_bytes = 0;
        ok = action_read(server->store, &action, instance, &memory, &record, &place, &status) &&
             (memory != NULL ||
              status_fail(&status, STATUS_NOT_FOUND,
                          "there is no result of action %s in the instance \"%s\"; explain may "
                          "know more",
                          digest_text(&action, text), request->instance_name)) &&
             (fill_provenance(call, instance, &record, &provenance) ||
              status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer"));
    }
    free(memory);
    if (!ok) {
        call_fail(call, &status);
        return;
    }
    Varve__V1__WhoResponse response = VARVE__V1__WHO_RESPONSE__INIT;
    response.provenance = &provenance;
    call_reply_packed(call, &response.base);
}

const struct method rpc_admin_who = {.path = "/varve.v1.Admin/Who",
                                     .kind = METHOD_UNARY,
                                     .role = ROLE_ADMIN,
                                     .on_message = who_message};
