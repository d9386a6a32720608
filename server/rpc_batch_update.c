/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ContentAddressableStorage.BatchUpdateBlobs. Each entry is checked, and what is not there yet is
 * written: blobs of the small lane straight from the received message and all in one submission, so
 * that they share a sync; larger ones through a blob_writer, one after the other, each with a
 * pooled buffer that it gives back before the next one asks. The answer has every entry, in order,
 * with a status, once the last one is durable.
 *
 *   on_message ─► prepare ─► (buffer) ─► prepare ... ─► submit ─► (last completion) ─► reply
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "proto/hot_messages.h"
#include "proto/resource_name.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/zstd_blobs.h"
#include "store/blob_writer.h"

struct state;

/* An entry that is written. */
struct write {
    struct state *state;        /* borrowed */
    struct write *next;         /* of all writes */
    struct outcome *outcome;    /* borrowed */
    struct record record;       /* of a blob of the small lane */
    struct blob_writer *writer; /* owned; of a larger one, else NULL */
    struct commit_request commit;
};

struct outcome {
    enum status_code code;
    const char *text; /* in the arena, static, or NULL when it is the state's failure */
};

struct state {
    struct call *call;
    struct batch_update_request request;
    struct outcome *outcomes;                  /* one for each entry */
    size_t next;                               /* the entry to be prepared next */
    struct write *writes;                      /* all of them */
    struct commit_request *small, **small_end; /* to be submitted */
    uint64_t decoded_bytes;
    struct zstd_blobs zstd;

    /* The larger blob that waits for a buffer, or has it. */
    struct write *waiting;
    struct bytes_list waiting_data;
    struct buffer_waiter waiter;
    struct buffer *buffer; /* owned */

    /*
     * Completions and the preparing thread: one each until it is done with the state. Who takes the
     * last goes on.
     */
    _Atomic size_t outstanding;
    _Atomic bool failure_claimed;
    struct status failure; /* the first of a commit; whoever claimed it wrote it */
};

enum verdict { VERDICT_SETTLED, VERDICT_THERE, VERDICT_WRITE };

static bool is_plain(const struct batch_update_request *request);
static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status);
static void prepare(struct call *call, void *state);
static enum verdict judge(struct state *state,
                          const struct batch_update_entry *entry,
                          struct digest *digest,
                          struct bytes_list *data,
                          struct status *status);
static bool check_entry(const struct state *state,
                        const struct batch_update_entry *entry,
                        struct digest *digest,
                        struct status *status);
static bool decode(struct state *state,
                   const struct batch_update_entry *entry,
                   const struct digest *digest,
                   struct bytes_list *data,
                   struct status *status);
static bool list_of_span(struct state *state,
                         struct wire_span span,
                         struct bytes_list *data,
                         struct status *status);
static bool check_hash(const struct digest *digest, struct bytes_list data, struct status *status);
static struct write *add_write(struct state *state,
                               const struct digest *digest,
                               struct outcome *outcome);
static void settle(struct state *state, struct outcome *outcome, const struct status *status);
static void await_copies(struct state *state, struct write *write, const struct digest *digest);
static void queue_small(struct state *state,
                        struct write *write,
                        const struct digest *digest,
                        struct bytes_list data);
static bool begin_large(struct state *state,
                        struct write *write,
                        const struct digest *digest,
                        struct bytes_list data);
static void on_buffer(struct buffer_waiter *waiter, struct buffer *buffer);
static void with_buffer(struct call *call, void *state);
static void write_large(struct state *state);
static void submit(struct call *call, struct state *state);
static void on_committed(struct ack *ack, const struct status *result);
static bool take_last(struct state *state);
static void reply(struct call *call, void *state);

/* A few KiB as they are: hashing them takes less than the way to a worker. */
static bool answer_here(struct call *call, void *state_memory, const struct message *message)
{
    struct state *const state = state_memory;
    struct status status = {0};
    if (start(call, state, message, &status) && is_plain(&state->request)) {
        prepare(call, state);
        return true;
    }
    *state = (struct state){0};
    return false;
}

static bool is_plain(const struct batch_update_request *request)
{
    for (size_t i = 0; i < request->entry_count; i++)
        if (request->entries[i].compressor != COMPRESSOR_IDENTITY)
            return false;
    return true;
}

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct status status = {0};
    if (start(call, state, message, &status))
        prepare(call, state);
    else
        call_fail(call, &status);
}

static bool start(struct call *call,
                  struct state *state,
                  const struct message *message,
                  struct status *status)
{
    struct batch_update_request *const request = &state->request;
    if (!batch_update_decode(message->parts, call_arena(call), request, status) ||
        !call_check_instance(call, request->instance_name, status))
        return false;
    if (request->data_bytes_total > LIMIT_BATCH_TOTAL_BYTES)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the %zu blobs of this batch have %" PRIu64
                           " bytes, more than max_batch_total_size_bytes, %" PRIu64
                           "; send smaller batches, and larger blobs by ByteStream.Write",
                           request->entry_count, request->data_bytes_total,
                           (uint64_t)LIMIT_BATCH_TOTAL_BYTES);
    state->call = call;
    state->small_end = &state->small;
    state->waiter.ready = on_buffer;
    atomic_init(&state->outstanding, 1);
    state->outcomes =
        arena_take_zeroed(call_arena(call), request->entry_count, sizeof(*state->outcomes));
    return state->outcomes != NULL ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "no memory for a batch of %zu blobs; send smaller batches",
                       request->entry_count);
}

/*
 * From state->next on; returns early, with the turn handed over, when a buffer has to be waited
 * for.
 */
static void prepare(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    while (state->next < state->request.entry_count) {
        const struct batch_update_entry *const entry = &state->request.entries[state->next];
        struct outcome *const outcome = &state->outcomes[state->next++];
        struct digest digest;
        struct bytes_list data = {0};
        struct status status = {0};
        const enum verdict verdict = judge(state, entry, &digest, &data, &status);
        if (verdict == VERDICT_SETTLED) {
            settle(state, outcome, &status);
            continue;
        }
        struct write *const write = add_write(state, &digest, outcome);
        if (write == NULL)
            continue;
        if (verdict == VERDICT_THERE)
            await_copies(state, write, &digest);
        else if ((uint64_t)digest.size_bytes <= LIMIT_SMALL_BLOB_BYTES)
            queue_small(state, write, &digest, data);
        else if (!begin_large(state, write, &digest, data))
            return;
    }
    submit(call, state);
}

/*
 * SETTLED: *status says how.
 * THERE: its data is not looked at, since what is stored is right.
 * WRITE: *data are the bytes of *digest; those of the large lane are still to be hashed.
 */
static enum verdict judge(struct state *state,
                          const struct batch_update_entry *entry,
                          struct digest *digest,
                          struct bytes_list *data,
                          struct status *status)
{
    if (!check_entry(state, entry, digest, status))
        return VERDICT_SETTLED;
    if (store_has_blob(call_server(state->call)->store, digest))
        return VERDICT_THERE;
    const bool ok = entry->compressor == COMPRESSOR_ZSTD
                        ? decode(state, entry, digest, data, status)
                        : list_of_span(state, entry->data, data, status);
    if (!ok || ((uint64_t)digest->size_bytes <= LIMIT_SMALL_BLOB_BYTES &&
                !check_hash(digest, *data, status)))
        return VERDICT_SETTLED;
    return VERDICT_WRITE;
}

static bool check_entry(const struct state *state,
                        const struct batch_update_entry *entry,
                        struct digest *digest,
                        struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if (!digest_parse((enum digest_function)state->request.digest_function, entry->digest.hash_hex,
                      entry->digest.size_bytes, digest, status))
        return false;
    if (entry->compressor != COMPRESSOR_IDENTITY && entry->compressor != COMPRESSOR_ZSTD)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s: compressor %d is not supported; send identity (0) or zstd (1)",
                           digest_text(digest, text), entry->compressor);
    const uint64_t max_blob_bytes = call_server(state->call)->config->max_blob_bytes;
    if ((uint64_t)digest->size_bytes > max_blob_bytes)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s is larger than the %" PRIu64 " bytes that this server takes",
                           digest_text(digest, text), max_blob_bytes);
    if (entry->compressor == COMPRESSOR_IDENTITY &&
        entry->data.length != (uint64_t)digest->size_bytes)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "blob %s: %zu bytes were sent",
                           digest_text(digest, text), entry->data.length);
    return true;
}

static bool decode(struct state *state,
                   const struct batch_update_entry *entry,
                   const struct digest *digest,
                   struct bytes_list *data,
                   struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    struct arena *const arena = call_arena(state->call);
    const uint64_t size_bytes = (uint64_t)digest->size_bytes;
    if (size_bytes > LIMIT_BATCH_DECODED_BYTES - state->decoded_bytes)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "blob %s: this batch decodes to more than %" PRIu64
                           " bytes; send smaller batches, and larger blobs by ByteStream.Write",
                           digest_text(digest, text), (uint64_t)LIMIT_BATCH_DECODED_BYTES);
    struct bytes frames;
    struct bytes *const decoded = arena_take(arena, sizeof(*decoded));
    uint8_t *const to = arena_take(arena, size_bytes);
    if (decoded == NULL || to == NULL || !wire_span_flat(entry->data, arena, &frames))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "blob %s: no memory to decode it; send smaller batches",
                           digest_text(digest, text));
    state->decoded_bytes += size_bytes;
    if (!zstd_blobs_decode(&state->zstd, frames, to, size_bytes, status)) {
        status_prefix(status, "blob %s", digest_text(digest, text));
        return false;
    }
    *decoded = bytes_of(to, size_bytes);
    *data = (struct bytes_list){.parts = decoded, .count = 1};
    return true;
}

/* The bytes stay where they were received. */
static bool list_of_span(struct state *state,
                         struct wire_span span,
                         struct bytes_list *data,
                         struct status *status)
{
    const size_t count = wire_span_pieces(span);
    struct bytes *const parts = arena_take(call_arena(state->call), count * sizeof(*parts));
    if (parts == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory left for this batch; send smaller ones");
    for (size_t i = 0; i < count; i++)
        parts[i] = wire_span_next(&span);
    ASSERT(span.length == 0);
    *data = (struct bytes_list){.parts = parts, .count = count};
    return true;
}

static bool check_hash(const struct digest *digest, struct bytes_list data, struct status *status)
{
    struct digest found;
    digest_of_list((enum digest_function)digest->function, data, &found);
    if (digest_equal(&found, digest))
        return true;
    char text[DIGEST_TEXT_BYTES_MAX];
    char found_text[DIGEST_TEXT_BYTES_MAX];
    return status_fail(status, STATUS_INVALID_ARGUMENT,
                       "blob %s: the bytes sent have the digest %s", digest_text(digest, text),
                       digest_text(&found, found_text));
}

/* NULL, and the outcome is settled, when the call's memory is used up. */
static struct write *add_write(struct state *state,
                               const struct digest *digest,
                               struct outcome *outcome)
{
    struct write *const write = arena_take_zeroed(call_arena(state->call), 1, sizeof(*write));
    if (write == NULL) {
        char text[DIGEST_TEXT_BYTES_MAX];
        struct status status = {0};
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED,
                    "blob %s: no memory left for this batch; send smaller ones",
                    digest_text(digest, text));
        settle(state, outcome, &status);
        return NULL;
    }
    write->state = state;
    write->outcome = outcome;
    write->next = state->writes;
    write->commit.ack.done = on_committed;
    state->writes = write;
    return write;
}

static void settle(struct state *state, struct outcome *outcome, const struct status *status)
{
    outcome->code = status->code;
    outcome->text = "";
    if (status->code == STATUS_OK)
        return;
    const char *const text =
        arena_copy_string(call_arena(state->call), bytes_of_string(status->message));
    if (text != NULL)
        outcome->text = text;
}

/* It may not be on as many other nodes yet as it should. */
static void await_copies(struct state *state, struct write *write, const struct digest *digest)
{
    const struct status there = {0};
    struct copies *const copies = durability_copies(call_server(state->call)->durability);
    atomic_fetch_add(&state->outstanding, 1);
    if (copies_await_blob(copies, digest, &write->commit.ack))
        return;
    settle(state, write->outcome, &there);
    const bool last = take_last(state);
    ASSERT(!last); /* this thread's own share is outstanding */
}

/* ---- blobs of the small lane */

static void queue_small(struct state *state,
                        struct write *write,
                        const struct digest *digest,
                        struct bytes_list data)
{
    write->record = (struct record){
        .kind = RECORD_BLOB,
        .digest = *digest,
        .payload = data,
        .payload_bytes = (uint64_t)digest->size_bytes,
        .payload_crc32c = crc32c_list(0, data),
    };
    write->commit.record = &write->record;
    *state->small_end = &write->commit;
    state->small_end = &write->commit.next;
    atomic_fetch_add(&state->outstanding, 1);
}

/* ---- larger ones */

/* False: the turn is handed over to whoever gives a buffer back. */
static bool begin_large(struct state *state,
                        struct write *write,
                        const struct digest *digest,
                        struct bytes_list data)
{
    struct store *const store = call_server(state->call)->store;
    struct status status = {0};
    if (!blob_writer_new(store, digest, &write->writer, &status)) {
        settle(state, write->outcome, &status);
        return true;
    }
    state->waiting = write;
    state->waiting_data = data;
    struct buffer *const buffer = buffer_pool_take(store->buffers, &state->waiter);
    if (buffer == NULL)
        return false;
    state->buffer = buffer;
    write_large(state);
    return true;
}

/* On the thread of whoever gave the buffer back. */
static void on_buffer(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct state *const state = CONTAINER_OF(waiter, struct state, waiter);
    state->buffer = buffer;
    call_resume(state->call, with_buffer);
}

static void with_buffer(struct call *call, void *state)
{
    write_large(state);
    prepare(call, state);
}

/*
 * Its commit is submitted at once and its buffer given back, so that nobody who waits for a buffer
 * holds one.
 */
static void write_large(struct state *state)
{
    struct write *const write = state->waiting;
    struct status status = {0};
    struct record *record = NULL;
    enum lane lane = LANE_LARGE;
    blob_writer_give_buffer(write->writer, state->buffer);
    state->buffer = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < state->waiting_data.count; i++)
        ok = blob_writer_append(write->writer, state->waiting_data.parts[i], &status);
    ok = ok && blob_writer_finish(write->writer, &record, &lane, &status) &&
         blob_writer_park(write->writer, &status);
    if (!ok) {
        settle(state, write->outcome, &status);
        blob_writer_free(write->writer);
        write->writer = NULL;
        return;
    }
    write->commit.record = record;
    atomic_fetch_add(&state->outstanding, 1);
    commit_submit(durability_commit(call_server(state->call)->durability, lane), &write->commit);
}

/* ---- completion */

static void submit(struct call *call, struct state *state)
{
    zstd_blobs_free(&state->zstd);
    call_commit_begins(call);
    if (state->small != NULL)
        commit_submit(durability_commit(call_server(call)->durability, LANE_SMALL), state->small);
    /* The state is still ours: this thread's own share is outstanding. */
    if (take_last(state))
        reply(call, state);
}

/* On the ack thread; on others only when memory is short, hence the claim. */
static void on_committed(struct ack *ack, const struct status *result)
{
    struct write *const write = CONTAINER_OF(ack, struct write, commit.ack);
    struct state *const state = write->state;
    write->outcome->code = result->code;
    write->outcome->text = result->code == STATUS_OK ? "" : NULL;
    if (result->code != STATUS_OK && !atomic_exchange(&state->failure_claimed, true))
        state->failure = *result;
    if (take_last(state))
        reply(state->call, state);
}

static bool take_last(struct state *state)
{
    return atomic_fetch_sub(&state->outstanding, 1) == 1;
}

/* ---- the answer */

enum texts { WITH_TEXTS, WITHOUT_TEXTS };

static size_t response_size(const struct state *state, enum texts texts);
static void outcome_status(const struct state *state,
                           const struct outcome *outcome,
                           enum texts texts,
                           struct status *status);

static void reply(struct call *call, void *state_memory)
{
    struct state *const state = state_memory;
    enum texts texts = WITH_TEXTS;
    size_t size = response_size(state, texts);
    if (size > LIMIT_RESPONSE_BYTES) {
        texts = WITHOUT_TEXTS; /* thousands of entries that failed: the codes must get through */
        size = response_size(state, texts);
    }
    grpc_slice response = grpc_slice_malloc(size);
    uint8_t *to = GRPC_SLICE_START_PTR(response);
    for (size_t i = 0; i < state->request.entry_count; i++) {
        struct status status;
        outcome_status(state, &state->outcomes[i], texts, &status);
        to = batch_update_response_raw_entry_put(to, &state->request.entries[i].digest, &status);
    }
    ASSERT(to == GRPC_SLICE_END_PTR(response));
    call_reply(call, &response, 1);
}

static size_t response_size(const struct state *state, enum texts texts)
{
    size_t size = 0;
    for (size_t i = 0; i < state->request.entry_count; i++) {
        struct status status;
        outcome_status(state, &state->outcomes[i], texts, &status);
        size += batch_update_response_raw_entry_size(&state->request.entries[i].digest, &status);
    }
    return size;
}

/* Leaves the message's memory alone behind its NUL: there may be many thousands. */
static void outcome_status(const struct state *state,
                           const struct outcome *outcome,
                           enum texts texts,
                           struct status *status)
{
    status->code = outcome->code;
    status->message[0] = '\0';
    if (outcome->code == STATUS_OK || texts == WITHOUT_TEXTS)
        return;
    const char *text = outcome->text;
    if (text == NULL)
        text = outcome->code == state->failure.code ? state->failure.message : "not stored";
    const size_t length = strnlen(text, sizeof(status->message) - 1);
    memcpy(status->message, text, length);
    status->message[length] = '\0';
}

static void on_free(struct call *call, void *state_memory)
{
    (void)call;
    struct state *const state = state_memory;
    zstd_blobs_free(&state->zstd);
    ASSERT(state->buffer == NULL);
    for (const struct write *write = state->writes; write != NULL; write = write->next)
        blob_writer_free(write->writer);
}

const struct method rpc_batch_update = {
    .path = "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs",
    .kind = METHOD_UNARY,
    .role = ROLE_WRITE_CAS,
    .writes = true,
    .has_instance = true,
    .state_bytes = sizeof(struct state),
    .answer_here = answer_here,
    .on_message = on_message,
    .on_free = on_free,
};
