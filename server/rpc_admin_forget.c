/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve.v1.Admin/Forget: takes blobs and action results away, or tells what would go. What is forgotten is gone from memory at once
 * and answered when its FORGETs are on disk; followers hear of them by the log.
 *
 * Those that are named are looked up. Those that are described are found by going through the log from a position on: what the index
 * means of it is looked at, a page a call, so that nothing is held for long however many there are.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "durability/forget.h"
#include "proto/resource_name.h"
#include "server/access.h"
#include "server/methods.h"
#include "server/printable.h"
#include "server/server.h"
#include "server/writer.h"
#include "store/blob_reader.h"
#include "store/find.h"
#include "varve/v1/admin.pb-c.h"

enum {
    /* Named, or found by a page: some 400 bytes each in the answer, and as many FORGETs as two rounds of commit take. */
    ENTRIES_MAX = 1000,
    /* Eviction moves a record now and then; that it moves one so often in a row does not happen. */
    TRIES_MAX = 8,
};
/* Of the log that one page reads. */
#define LOG_ARENA_BYTES_MAX (16 * MIB)

typedef Varve__V1__ForgetRequest forget_request;
typedef Varve__V1__ForgottenEntry entry_message;

#define OUTCOME(name) VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_##name

/* Of what is not here. */
static const char would_tell[] =
    "it is not here; the order would go to the bucket and the nodes that follow this one";
static const char told[] =
    "it was not here; the order goes to the bucket and the nodes that follow this one";

struct state;

struct entry {
    struct state *state;
    struct digest digest;
    struct bytes instance; /* ACTION */
    enum record_kind kind;
    struct place place;
    entry_message message;
    Build__Bazel__Remote__Execution__V2__Digest digest_message;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    bool elsewhere; /* not here, but the order goes to where it may be */
    struct ack ack;
    struct status result; /* of its FORGET */
};

struct state {
    struct call *call;
    const forget_request *request; /* in the call's arena */
    struct arena log_arena;
    struct entry *entries; /* in the call's arena */
    size_t count;
    uint64_t next_after_seq, end_seq;
    bool more;
    _Atomic size_t outstanding; /* FORGETs, and one for who submits them */
};

static bool check(struct call *call, const forget_request *request, struct status *status);
static bool take_named(struct state *state, struct status *status);
static bool take_page(struct state *state, struct status *status);
static struct entry *add(struct state *state, const struct digest *digest, enum record_kind kind);
static bool find(struct state *state, struct entry *entry, struct status *status);
static bool find_blob(struct store *store, struct entry *entry);
static bool find_result(struct state *state, struct entry *entry, struct status *status);
static bool matches(const Varve__V1__ResultFilter *filter, const struct feed_entry *record);
static bool describe(struct entry *entry,
                     struct bytes instance,
                     struct bytes writer,
                     int64_t written_ns);
static void carry_out(struct state *state);
static bool forget_one(struct state *state, struct entry *entry);
static void forget_one_elsewhere(struct state *state, struct entry *entry);
static bool goes_elsewhere(const struct server *server);
static void on_ack(struct ack *ack, const struct status *result);
static bool take_last(struct state *state);
static void reply(struct call *call, void *state_memory);
static void log_request(const struct state *state);

static void on_message(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    state->call = call;
    arena_init(&state->log_arena, LOG_ARENA_BYTES_MAX);
    state->request = (const forget_request *)(void *)call_unpack(
        call, message, &varve__v1__forget_request__descriptor, &status);
    bool ok = state->request != NULL && check(call, state->request, &status);
    if (ok) {
        state->entries = arena_take_zeroed(call_arena(call), ENTRIES_MAX, sizeof(struct entry));
        ok = state->entries != NULL ||
             status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for a page of entries");
    }
    ok = ok &&
         (state->request->results != NULL ? take_page(state, &status) : take_named(state, &status));
    if (ok && call_cancelled(call))
        ok = status_fail(&status, STATUS_CANCELLED, "nobody waits for it; nothing is forgotten");
    if (!ok)
        call_fail(call, &status);
    else if (state->request->carry_out)
        carry_out(state);
    else
        reply(call, state);
}

static bool check(struct call *call, const forget_request *request, struct status *status)
{
    const size_t named = request->n_blobs + request->n_actions;
    struct status why = {0};
    if ((request->n_blobs > 0) + (request->n_actions > 0) + (request->results != NULL) != 1)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "ForgetRequest: blobs, actions, results: one of them");
    if (named > ENTRIES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "ForgetRequest: %zu digests are more than the %d that one call takes",
                           named, ENTRIES_MAX);
    if (!instance_name_check(bytes_of_string(request->instance_name), status))
        return false;
    call_note_instance(call, bytes_of_string(request->instance_name));
    if (request->results != NULL && strcmp(request->results->instances, "*") != 0 &&
        !instance_name_check(bytes_of_string(request->results->instances), status)) {
        status_prefix(status, "ForgetRequest: results.instances");
        return false;
    }
    /* It would be gone from memory, and back after a restart. */
    return !request->carry_out || !durability_failed(call_server(call)->durability, &why) ||
           status_fail(status, STATUS_UNAVAILABLE, "nothing can be forgotten for good: %s",
                       why.message);
}

/* ---- what is meant */

static bool take_named(struct state *state, struct status *status)
{
    const forget_request *const request = state->request;
    const bool blobs = request->n_blobs > 0;
    const size_t count = blobs ? request->n_blobs : request->n_actions;
    for (size_t i = 0; i < count; i++) {
        const Build__Bazel__Remote__Execution__V2__Digest *const asked =
            blobs ? request->blobs[i] : request->actions[i];
        struct digest digest;
        if (!digest_parse((enum digest_function)request->digest_function,
                          bytes_of_string(asked->hash), asked->size_bytes, &digest, status))
            return false;
        struct entry *const entry = add(state, &digest, blobs ? RECORD_BLOB : RECORD_ACTION);
        entry->instance = blobs ? (struct bytes){0} : bytes_of_string(request->instance_name);
        if (!find(state, entry, status))
            return false;
        entry->elsewhere = entry->message.outcome == OUTCOME(ABSENT) &&
                           !digest_is_empty_blob(&digest) &&
                           goes_elsewhere(call_server(state->call));
        if (entry->elsewhere)
            entry->message.text = (char *)(uintptr_t)(request->carry_out ? told : would_tell);
    }
    return true;
}

/* What of the log is a page's, from where it begins. */
static bool take_page(struct state *state, struct status *status)
{
    const Varve__V1__ResultFilter *const filter = state->request->results;
    struct server *const server = call_server(state->call);
    const size_t limit =
        filter->limit > 0 && filter->limit < ENTRIES_MAX ? filter->limit : ENTRIES_MAX;
    struct feed_query query = {
        .lane = LANE_SMALL,
        .after_seq = filter->after_seq,
        .records_max = ENTRIES_MAX,
        .bytes_max = LOG_ARENA_BYTES_MAX / 2,
        .kinds = FEED_KIND(RECORD_ACTION),
    };
    struct feed_batch batch;
    if (!feed_read(durability_feed(server->durability), &query, &state->log_arena, &batch,
                   status)) {
        if (status->code != STATUS_OUT_OF_RANGE)
            return false;
        /* What lay there was evicted meanwhile; what of it was moved is at the end. */
        *status = (struct status){0};
        query.after_seq = 0;
        if (!feed_read(durability_feed(server->durability), &query, &state->log_arena, &batch,
                       status))
            return false;
    }
    state->next_after_seq = batch.next_after_seq;
    state->end_seq = batch.published_seq;
    state->more = batch.more;
    for (size_t i = 0; i < batch.count; i++) {
        const struct feed_entry *const record = &batch.entries[i];
        if (!matches(filter, record))
            continue;
        if (state->count == limit) {
            state->next_after_seq = record->seq - 1;
            state->more = true;
            break;
        }
        struct entry *const entry = add(state, &record->digest, RECORD_ACTION);
        entry->instance = record->instance;
        entry->place = record->place;
        entry->message.outcome = OUTCOME(WOULD_GO);
        entry->message.stored_bytes = record->payload_bytes;
        if (!describe(entry, record->instance, record->writer, record->wall_ns))
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a page");
    }
    return true;
}

static bool matches(const Varve__V1__ResultFilter *filter, const struct feed_entry *record)
{
    const struct bytes wanted = bytes_of_string(filter->instances);
    const struct bytes name = record->instance;
    const bool below = wanted.length > 0 && name.length > wanted.length &&
                       memcmp(name.data, wanted.data, wanted.length) == 0 &&
                       name.data[wanted.length] == '/';
    if (strcmp(filter->instances, "*") != 0 && !bytes_equal(name, wanted) && !below)
        return false;
    if (filter->written_after_unix_ns != 0 && record->wall_ns <= filter->written_after_unix_ns)
        return false;
    if (filter->written_before_unix_ns != 0 && record->wall_ns >= filter->written_before_unix_ns)
        return false;
    return writer_matches(record->writer, bytes_of_string(filter->writer));
}

static struct entry *add(struct state *state, const struct digest *digest, enum record_kind kind)
{
    ASSERT(state->count < ENTRIES_MAX);
    struct entry *const entry = &state->entries[state->count++];
    entry->state = state;
    entry->digest = *digest;
    entry->kind = kind;
    build__bazel__remote__execution__v2__digest__init(&entry->digest_message);
    entry->digest_message.hash = (char *)(uintptr_t)digest_hex(digest, entry->hex);
    entry->digest_message.size_bytes = digest->size_bytes;
    varve__v1__forgotten_entry__init(&entry->message);
    entry->message.digest = &entry->digest_message;
    entry->message.is_action = kind == RECORD_ACTION;
    entry->message.outcome = OUTCOME(ABSENT);
    return entry;
}

/* Where it lies, and what is told of it. */
static bool find(struct state *state, struct entry *entry, struct status *status)
{
    if (entry->kind == RECORD_ACTION)
        return find_result(state, entry, status);
    if (find_blob(call_server(state->call)->store, entry)) {
        entry->message.outcome = OUTCOME(WOULD_GO);
        entry->message.stored_bytes = (uint64_t)entry->digest.size_bytes;
    }
    return true;
}

static bool find_blob(struct store *store, struct entry *entry)
{
    if (digest_is_empty_blob(&entry->digest)) {
        entry->message.text =
            (char *)(uintptr_t) "the empty blob is never stored, and always there";
        return false;
    }
    if (!store_find_blob(store, &entry->digest, FIND_ONLY, &entry->place))
        return false;
    struct segment *const segment = segment_set_pin(store->segments, entry->place.segment);
    if (segment == NULL)
        return false;
    entry->kind = segment->lane == LANE_SMALL ? RECORD_BLOB : RECORD_MANIFEST;
    segment_set_unpin(store->segments, segment);
    return true;
}

/* One that is damaged may go as well. */
static bool find_result(struct state *state, struct entry *entry, struct status *status)
{
    uint8_t *memory = NULL;
    struct action_record record;
    struct status why = {0};
    entry->place = (struct place){0};
    if (!action_read(call_server(state->call)->store, &entry->digest, entry->instance, &memory,
                     &record, &entry->place, &why)) {
        if (entry->place.segment == 0)
            return status_fail(status, why.code, "%s", why.message);
        entry->message.text =
            arena_copy_string(call_arena(state->call), bytes_of_string(why.message));
        entry->message.outcome = OUTCOME(WOULD_GO);
        return entry->message.text != NULL ||
               status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a page");
    }
    if (memory == NULL)
        return true;
    entry->message.outcome = OUTCOME(WOULD_GO);
    entry->message.stored_bytes = record.result.length;
    const bool ok = describe(entry, entry->instance, record.writer, record.written_wall_ns);
    free(memory);
    return ok || status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a page");
}

static bool describe(struct entry *entry,
                     struct bytes instance,
                     struct bytes writer,
                     int64_t written_ns)
{
    struct arena *const arena = call_arena(entry->state->call);
    entry->message.instance_name = printable_copy(arena, instance);
    entry->message.writer = printable_copy(arena, writer);
    entry->message.written_unix_ns = written_ns;
    return entry->message.instance_name != NULL && entry->message.writer != NULL;
}

/* ---- away with it */

static void carry_out(struct state *state)
{
    struct call *const call = state->call;
    atomic_store(&state->outstanding, 1);
    call_commit_begins(call);
    for (size_t i = 0; i < state->count; i++) {
        struct entry *const entry = &state->entries[i];
        if (entry->elsewhere)
            forget_one_elsewhere(state, entry);
        if (entry->message.outcome != OUTCOME(WOULD_GO))
            continue;
        entry->ack.done = on_ack;
        atomic_fetch_add(&state->outstanding, 1);
        if (forget_one(state, entry))
            continue; /* it is the ack's now */
        /* Somebody was first, or it was written anew. */
        entry->message.outcome = OUTCOME(ABSENT);
        atomic_fetch_sub(&state->outstanding, 1);
    }
    if (take_last(state))
        reply(call, state);
}

/* What is named goes wherever it lies by now; of what was found in the log that very record. */
static bool forget_one(struct state *state, struct entry *entry)
{
    struct server *const server = call_server(state->call);
    const bool named = state->request->results == NULL;
    struct forget forget = {.digest = entry->digest,
                            .instance = entry->instance,
                            .place = entry->place,
                            .kind = entry->kind,
                            .reason = FORGET_PURGED,
                            .ack = &entry->ack};
    /* Other nodes keep what was written later than the order: a node whose clock is ahead may have written it. */
    if (entry->message.written_unix_ns >= clock_wall_ns(server->clock))
        forget.wall_ns = entry->message.written_unix_ns + 1;
    for (int tries = 0; tries < (named ? TRIES_MAX : 1); tries++) {
        if (forget_entry(server->store, durability_commit(server->durability, LANE_SMALL), &forget))
            return true;
        const bool there =
            entry->kind == RECORD_ACTION
                ? store_find_action(server->store, &entry->digest, entry->instance, FIND_ONLY,
                                    &forget.place)
                : store_find_blob(server->store, &entry->digest, FIND_ONLY, &forget.place);
        if (!there)
            return false;
    }
    return false;
}

/* The log tells who follows it. */
static void forget_one_elsewhere(struct state *state, struct entry *entry)
{
    struct server *const server = call_server(state->call);
    const struct forget forget = {.digest = entry->digest,
                                  .instance = entry->instance,
                                  .kind = entry->kind,
                                  .reason = FORGET_PURGED,
                                  .ack = &entry->ack};
    entry->ack.done = on_ack;
    atomic_fetch_add(&state->outstanding, 1);
    forget_elsewhere(server->store, durability_commit(server->durability, LANE_SMALL), &forget);
}

static bool goes_elsewhere(const struct server *server)
{
    struct follower unused;
    return server->tier != NULL ||
           copies_followers(durability_copies(server->durability), &unused, 1) > 0;
}

/* On the ack thread; or from inside forget_entry(), when there is no memory. */
static void on_ack(struct ack *ack, const struct status *result)
{
    struct entry *const entry = CONTAINER_OF(ack, struct entry, ack);
    struct state *const state = entry->state;
    entry->result = *result;
    if (take_last(state))
        call_resume(state->call, reply);
}

static bool take_last(struct state *state)
{
    return atomic_fetch_sub(&state->outstanding, 1) == 1;
}

/* ---- the answer */

static void reply(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    Varve__V1__ForgetResponse response = VARVE__V1__FORGET_RESPONSE__INIT;
    entry_message **const pointers =
        arena_take_zeroed(call_arena(call), ENTRIES_MAX, sizeof(entry_message *));
    if (state->request->carry_out)
        log_request(state);
    if (pointers == NULL) {
        struct status status = {0};
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
        call_fail(call, &status);
        return;
    }
    for (size_t i = 0; i < state->count; i++) {
        struct entry *const entry = &state->entries[i];
        if (state->request->carry_out && entry->message.outcome == OUTCOME(WOULD_GO)) {
            const bool ok = entry->result.code == STATUS_OK;
            entry->message.outcome = ok ? OUTCOME(GONE) : OUTCOME(FAILED);
            if (!ok)
                entry->message.text = entry->result.message;
        } else if (state->request->carry_out && entry->elsewhere &&
                   entry->result.code != STATUS_OK) {
            entry->message.outcome = OUTCOME(FAILED);
            entry->message.text = entry->result.message;
        }
        /* Of what the log was gone through for, what is not here any more is nobody's concern. */
        if (state->request->results == NULL || entry->message.outcome != OUTCOME(ABSENT))
            pointers[response.n_entries++] = &entry->message;
    }
    response.entries = pointers;
    response.next_after_seq = state->next_after_seq;
    response.more = state->more;
    response.end_seq = state->end_seq;
    call_reply_packed(call, &response.base);
}

/* Who has ordered what: one line a call. */
static void log_request(const struct state *state)
{
    const forget_request *const request = state->request;
    size_t gone = 0;
    size_t failed = 0;
    for (size_t i = 0; i < state->count; i++) {
        if (state->entries[i].message.outcome != OUTCOME(WOULD_GO))
            continue;
        if (state->entries[i].result.code == STATUS_OK)
            gone++;
        else
            failed++;
    }
    if (request->results != NULL && gone + failed == 0)
        return;
    struct log_text user;
    struct log_text instances;
    struct log_text writer;
    log_event(LOG_LEVEL_INFO, "forgotten_by_order",
              "what=%s gone=%zu failed=%zu instances=%s writer=%s user=%s peer=%s",
              request->n_blobs > 0 ? "blobs" : "action_results", gone, failed,
              log_quote(&instances, request->results != NULL ? request->results->instances
                                                             : request->instance_name),
              log_quote(&writer, request->results != NULL ? request->results->writer : ""),
              log_quote(&user, access_caller_name(call_caller(state->call))),
              call_peer(state->call));
}

static void on_free(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    (void)call;
    arena_destroy(&state->log_arena);
}

const struct method rpc_admin_forget = {.path = "/varve.v1.Admin/Forget",
                                        .kind = METHOD_UNARY,
                                        .role = ROLE_ADMIN,
                                        .state_bytes = sizeof(struct state),
                                        .on_message = on_message,
                                        .on_free = on_free};
