/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ContentAddressableStorage.BatchReadBlobs. The answer has every digest, in order, with a status.
 * Small blobs are read to the end of a piece of memory and moved down behind the head of their
 * entry, so that many of them make one slice; larger ones have memory and a slice of their own, and
 * are sent from where they were read.
 *
 * Asking for more than max_batch_total_size_bytes fails the call. What then does not fit into a
 * response with its overhead gets RESOURCE_EXHAUSTED, on which clients ask again.
 *
 * With peers, those that are missing are asked for first, all together, and those that turn out to be damaged then.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "proto/hot_messages.h"
#include "proto/resource_name.h"
#include "server/call_repair.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/whole_blob.h"
#include "server/zstd_blobs.h"
#include "store/blob_reader.h"
#include "store/find.h"

enum {
    PIECE_BYTES = 256 * 1024,
    MOVE_BYTES_MAX = 16 * 1024, /* larger data stays where it was read */
    DAMAGED_MAX = 64,           /* asked of peers for one answer */
    ZSTD_BYTES_MIN = 1024,      /* smaller blobs are sent as they are */
    ANSWERED_HERE_MAX = 8,      /* blobs; for more a worker is worth its while */
};

struct answer {
    struct server *server; /* borrowed */
    struct digests_request request;
    struct digest *digests; /* in the arena */

    uint64_t hits, misses;
    size_t response_bytes;
    size_t reserve_bytes; /* of the entries still to come: each at least an error without text */

    grpc_slice piece;   /* owned reference; empty before the first */
    size_t begin, end;  /* in the piece: what is in no slice yet */
    grpc_slice *slices; /* owned, by malloc */
    size_t slice_count, slice_capacity;
    bool failed; /* memory was used up */

    struct whole_blob large;
    struct zstd_blobs zstd;
    uint8_t *packed; /* owned, by malloc: what a blob is encoded into */
    size_t packed_capacity;

    bool unavailable;       /* of some that are not here the bucket could not tell */
    struct digest *damaged; /* in the arena; NULL: it does not matter which are */
    size_t damaged_count;
};

struct batch_state {
    struct digests_request request;
    struct call_repair repair;
    bool asked, asked_damaged; /* peers */
};

static void answer_or_ask(struct call *call, struct batch_state *state);
static void reply(struct call *call, struct answer *answer);
static void repaired(struct call *call, void *state_memory);
static bool ask_for_missing(struct call *call, struct batch_state *state, struct answer *answer);
static bool start(struct call *call,
                  struct answer *answer,
                  struct batch_state *state,
                  struct status *status);
static bool parse_digests(struct answer *answer, struct arena *arena, struct status *status);
static void note_damaged(struct answer *answer, const struct digest *digest);
static void on_free(struct call *call, void *state);
static void answer_free(struct answer *answer);
static size_t error_size_min(const struct wire_digest *wire);
static void put_entry(struct answer *answer, size_t index);
static bool put_blob(struct answer *answer, const struct digest *digest, struct status *status);
static bool put_moved(struct answer *answer, const struct digest *digest, struct status *status);
static bool put_in_place(struct answer *answer, const struct digest *digest, struct status *status);
static bool put_large(struct answer *answer, const struct digest *digest, struct status *status);
static bool read_small(struct answer *answer,
                       const struct digest *digest,
                       uint8_t *to,
                       size_t capacity,
                       struct bytes *data,
                       struct status *status);
static bool put_packed(struct answer *answer, const struct digest *digest, struct bytes data);
static void put_error(struct answer *answer,
                      const struct wire_digest *wire,
                      const struct status *why);
static bool not_found(const struct answer *answer,
                      const struct digest *digest,
                      struct status *status);
static bool no_memory(struct answer *answer, struct status *status);
static size_t room(const struct answer *answer);
static uint8_t *piece_reserve(struct answer *answer, size_t bytes);
static void piece_advance(struct answer *answer, size_t bytes);
static bool cut(struct answer *answer);
static bool add_slice(struct answer *answer, grpc_slice slice);

/* A few small blobs, all of which are there. */
static bool answer_here(struct call *call, void *state, const struct message *message)
{
    struct batch_state *const batch = state;
    struct answer answer = {.server = call_server(call), .piece = grpc_empty_slice()};
    struct status status = {0};
    io_cached_begin(LIMIT_ANSWERED_HERE_BYTES);
    bool ok = batch_read_decode(message->parts, call_arena(call), &batch->request, &status) &&
              call_check_instance(call, batch->request.instance_name, &status) &&
              batch->request.digest_count <= ANSWERED_HERE_MAX &&
              start(call, &answer, batch, &status);
    for (size_t i = 0; ok && i < answer.request.digest_count; i++) {
        ok = (uint64_t)answer.digests[i].size_bytes <= MOVE_BYTES_MAX;
        if (ok)
            put_entry(&answer, i);
        ok = ok && answer.hits == i + 1;
    }
    ok = ok && answer.request.digest_count > 0 && cut(&answer) && !answer.failed;
    if (io_cached_end() || !ok) {
        answer_free(&answer);
        *batch = (struct batch_state){0};
        return false;
    }
    reply(call, &answer);
    return true;
}

static void on_message(struct call *call, void *state, const struct message *message)
{
    struct batch_state *const batch = state;
    struct status status = {0};
    if (batch_read_decode(message->parts, call_arena(call), &batch->request, &status) &&
        call_check_instance(call, batch->request.instance_name, &status))
        answer_or_ask(call, batch);
    else
        call_fail(call, &status);
}

static void answer_or_ask(struct call *call, struct batch_state *state)
{
    struct answer answer = {.server = call_server(call), .piece = grpc_empty_slice()};
    struct status status = {0};
    bool ok = start(call, &answer, state, &status);
    if (ok && ask_for_missing(call, state, &answer)) {
        answer_free(&answer);
        call_park(call, repaired);
        return;
    }
    for (size_t i = 0; ok && i < answer.request.digest_count; i++)
        put_entry(&answer, i);
    if (ok && (!cut(&answer) || answer.failed))
        ok = status_fail(&status, STATUS_RESOURCE_EXHAUSTED,
                         "no memory for %zu blobs; ask for fewer", answer.request.digest_count);
    if (ok && answer.damaged_count > 0 &&
        call_repair_start(&state->repair, call, answer.damaged, answer.damaged_count)) {
        state->asked_damaged = true;
        answer_free(&answer);
        call_park(call, repaired);
        return;
    }
    if (ok && answer.slice_count == 0)
        ok = add_slice(&answer, grpc_empty_slice()) || no_memory(&answer, &status);
    if (!ok) {
        answer_free(&answer);
        call_fail(call, &status);
        return;
    }
    reply(call, &answer);
}

/*
 * The slices are the reply's; their array may go only once it has them, and the call may be
 * over by then.
 */
static void reply(struct call *call, struct answer *answer)
{
    call_count_lookups(call, answer->hits, answer->misses);
    grpc_slice *const slices = answer->slices;
    const size_t count = answer->slice_count;
    answer->slices = NULL;
    answer->slice_count = 0;
    answer_free(answer);
    call_reply(call, slices, count);
    free(slices);
}

static void repaired(struct call *call, void *state_memory)
{
    struct batch_state *const state = state_memory;
    if (call_repair_over(&state->repair))
        answer_or_ask(call, state);
    else
        call_park(call, repaired);
}

static void on_free(struct call *call, void *state)
{
    (void)call;
    call_repair_end(&((struct batch_state *)state)->repair);
}

/* Once. False: there is nothing to wait for. */
static bool ask_for_missing(struct call *call, struct batch_state *state, struct answer *answer)
{
    const size_t count = answer->request.digest_count;
    if (state->asked || !call_repair_is_possible(call))
        return false;
    state->asked = true;
    struct digest *const missing = arena_take(call_arena(call), count * sizeof(*missing));
    size_t missing_count = 0;
    for (size_t i = 0; missing != NULL && i < count; i++) {
        struct place place;
        if (answer->digests[i].hash_length > 0 && !digest_is_empty_blob(&answer->digests[i]) &&
            !store_find_blob(answer->server->store, &answer->digests[i], FIND_ONLY, &place))
            missing[missing_count++] = answer->digests[i];
    }
    return missing_count > 0 && call_repair_start(&state->repair, call, missing, missing_count);
}

static bool start(struct call *call,
                  struct answer *answer,
                  struct batch_state *state,
                  struct status *status)
{
    answer->request = state->request;
    answer->unavailable = state->repair.unavailable;
    /* Without it the answer says that they are not there. */
    if (!state->asked_damaged && call_repair_is_possible(call))
        answer->damaged = arena_take(call_arena(call), DAMAGED_MAX * sizeof(*answer->damaged));
    return parse_digests(answer, call_arena(call), status);
}

/* One that is none gets length 0, and its error when its turn comes. */
static bool parse_digests(struct answer *answer, struct arena *arena, struct status *status)
{
    const struct digests_request *const request = &answer->request;
    answer->digests = arena_take(arena, request->digest_count * sizeof(*answer->digests));
    if (answer->digests == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for %zu digests; ask for fewer", request->digest_count);
    uint64_t data_bytes = 0;
    for (size_t i = 0; i < request->digest_count; i++) {
        const struct wire_digest *const wire = &request->digests[i];
        answer->reserve_bytes += error_size_min(wire);
        struct status invalid = {0};
        if (!digest_parse((enum digest_function)request->digest_function, wire->hash_hex,
                          wire->size_bytes, &answer->digests[i], &invalid)) {
            answer->digests[i].hash_length = 0;
            continue;
        }
        const uint64_t size_bytes = (uint64_t)answer->digests[i].size_bytes;
        data_bytes = size_bytes > UINT64_MAX - data_bytes ? UINT64_MAX : data_bytes + size_bytes;
    }
    if (data_bytes > LIMIT_BATCH_TOTAL_BYTES)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the %zu blobs of this batch have %" PRIu64
                           " bytes, more than max_batch_total_size_bytes, %" PRIu64
                           "; ask for fewer, and for larger blobs by ByteStream.Read",
                           request->digest_count, data_bytes, (uint64_t)LIMIT_BATCH_TOTAL_BYTES);
    if (answer->reserve_bytes > LIMIT_RESPONSE_BYTES)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%zu digests: an answer for so many is larger than %" PRIu64
                           " bytes; ask for fewer",
                           request->digest_count, (uint64_t)LIMIT_RESPONSE_BYTES);
    return true;
}

static void answer_free(struct answer *answer)
{
    for (size_t i = 0; i < answer->slice_count; i++)
        grpc_slice_unref(answer->slices[i]);
    free(answer->slices);
    grpc_slice_unref(answer->piece);
    whole_blob_free(&answer->large);
    zstd_blobs_free(&answer->zstd);
    free(answer->packed);
}

static size_t error_size_min(const struct wire_digest *wire)
{
    struct status bare;
    bare.code = STATUS_RESOURCE_EXHAUSTED;
    bare.message[0] = '\0';
    return batch_read_error_entry_size(wire, &bare);
}

static void put_entry(struct answer *answer, size_t index)
{
    const struct wire_digest *const wire = &answer->request.digests[index];
    const struct digest *const digest = &answer->digests[index];
    answer->reserve_bytes -= error_size_min(wire);
    struct status status;
    status.code = STATUS_OK;
    status.message[0] = '\0';
    struct digest none;
    if (digest->hash_length == 0) {
        const bool valid = digest_parse((enum digest_function)answer->request.digest_function,
                                        wire->hash_hex, wire->size_bytes, &none, &status);
        ASSERT(!valid);
        put_error(answer, wire, &status);
    } else if (!put_blob(answer, digest, &status)) {
        answer->misses += status.code == STATUS_NOT_FOUND;
        put_error(answer, wire, &status);
    } else {
        answer->hits++;
    }
}

/* False: the entry is not in, and *status says why. */
static bool put_blob(struct answer *answer, const struct digest *digest, struct status *status)
{
    const size_t size_bytes = (size_t)digest->size_bytes; /* at most the batch limit */
    uint8_t head[BATCH_READ_HEAD_BYTES_MAX];
    if (batch_read_entry_head(head, digest, size_bytes, COMPRESSOR_IDENTITY) + size_bytes >
        room(answer)) {
        char text[DIGEST_TEXT_BYTES_MAX];
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "the answer is full; ask for blob %s in another call",
                           digest_text(digest, text));
    }
    if (size_bytes > LIMIT_SMALL_BLOB_BYTES)
        return put_large(answer, digest, status);
    return size_bytes > MOVE_BYTES_MAX ? put_in_place(answer, digest, status)
                                       : put_moved(answer, digest, status);
}

static bool put_moved(struct answer *answer, const struct digest *digest, struct status *status)
{
    const size_t capacity = (size_t)record_stored_bytes((uint64_t)digest->size_bytes);
    uint8_t *const to = piece_reserve(answer, BATCH_READ_HEAD_BYTES_MAX + capacity);
    if (to == NULL)
        return no_memory(answer, status);
    struct bytes data;
    if (!read_small(answer, digest, to, capacity, &data, status))
        return false;
    uint8_t head[BATCH_READ_HEAD_BYTES_MAX];
    /* Encoded from where it was read into memory of its own, so the piece may be overwritten. */
    if (put_packed(answer, digest, data))
        return true;
    const size_t head_length =
        batch_read_entry_head(head, digest, data.length, COMPRESSOR_IDENTITY);
    memmove(to + head_length, data.data, data.length);
    memcpy(to, head, head_length);
    piece_advance(answer, head_length + data.length);
    return true;
}

static bool put_in_place(struct answer *answer, const struct digest *digest, struct status *status)
{
    const size_t capacity = (size_t)record_stored_bytes((uint64_t)digest->size_bytes);
    uint8_t *const memory = malloc(BATCH_READ_HEAD_BYTES_MAX + capacity);
    if (memory == NULL)
        return no_memory(answer, status);
    struct bytes data;
    const bool ok =
        read_small(answer, digest, memory + BATCH_READ_HEAD_BYTES_MAX, capacity, &data, status);
    if (!ok || put_packed(answer, digest, data)) {
        free(memory);
        return ok;
    }
    uint8_t head[BATCH_READ_HEAD_BYTES_MAX];
    const size_t head_length =
        batch_read_entry_head(head, digest, data.length, COMPRESSOR_IDENTITY);
    uint8_t *const begin = memory + (data.data - memory) - head_length;
    memcpy(begin, head, head_length);
    answer->response_bytes += head_length + data.length;
    const grpc_slice slice =
        grpc_slice_new_with_user_data(begin, head_length + data.length, free, memory);
    return (cut(answer) && add_slice(answer, slice)) || no_memory(answer, status);
}

static bool put_large(struct answer *answer, const struct digest *digest, struct status *status)
{
    struct bytes data;
    bool found;
    if (!whole_blob_read(&answer->large, answer->server->durability, digest,
                         LIMIT_BATCH_TOTAL_BYTES, &data, &found, status))
        return false;
    if (!found) {
        note_damaged(answer, digest); /* or it has gone meanwhile */
        return not_found(answer, digest, status);
    }
    if (put_packed(answer, digest, data))
        return true;
    uint8_t *const head = piece_reserve(answer, BATCH_READ_HEAD_BYTES_MAX);
    if (head == NULL)
        return no_memory(answer, status);
    piece_advance(answer, batch_read_entry_head(head, digest, data.length, COMPRESSOR_IDENTITY));
    answer->response_bytes += data.length;
    const grpc_slice slice = grpc_slice_new(answer->large.memory, data.length, free);
    answer->large = (struct whole_blob){0}; /* the slice's now */
    return (cut(answer) && add_slice(answer, slice)) || no_memory(answer, status);
}

static bool read_small(struct answer *answer,
                       const struct digest *digest,
                       uint8_t *to,
                       size_t capacity,
                       struct bytes *data,
                       struct status *status)
{
    struct place place = {0};
    bool found = false;
    struct status why = {0};
    if (!blob_read_small(answer->server->store, digest, to, capacity, data, &found, &place, &why)) {
        if (why.code != STATUS_DATA_LOSS) {
            *status = why;
            return false;
        }
        damaged_blob_forget(answer->server->durability, digest, place, &why);
        note_damaged(answer, digest);
        found = false;
    }
    return found || not_found(answer, digest, status);
}

static void note_damaged(struct answer *answer, const struct digest *digest)
{
    if (answer->damaged != NULL && answer->damaged_count < DAMAGED_MAX)
        answer->damaged[answer->damaged_count++] = *digest;
}

/*
 * True if it was worth it, and is in: less than nine tenths of the blob. Takes no memory from the
 * piece before it is.
 */
static bool put_packed(struct answer *answer, const struct digest *digest, struct bytes data)
{
    if (!answer->request.accepts_zstd || data.length < ZSTD_BYTES_MIN)
        return false;
    const size_t worth = data.length / 10 * 9;
    if (worth > answer->packed_capacity) {
        free(answer->packed);
        answer->packed = malloc(worth);
        answer->packed_capacity = answer->packed == NULL ? 0 : worth;
        if (answer->packed == NULL)
            return false;
    }
    const size_t length = zstd_blobs_encode(&answer->zstd, data, answer->packed, worth);
    if (length == 0)
        return false;
    uint8_t *const to = piece_reserve(answer, BATCH_READ_HEAD_BYTES_MAX + length);
    if (to == NULL)
        return false;
    const size_t head_length = batch_read_entry_head(to, digest, length, COMPRESSOR_ZSTD);
    memcpy(to + head_length, answer->packed, length);
    piece_advance(answer, head_length + length);
    return true;
}

/* Without its text when the answer is nearly full. */
static void put_error(struct answer *answer,
                      const struct wire_digest *wire,
                      const struct status *why)
{
    struct status told = *why;
    size_t size = batch_read_error_entry_size(wire, &told);
    if (size > room(answer)) {
        told.message[0] = '\0';
        size = batch_read_error_entry_size(wire, &told);
    }
    uint8_t *const to = piece_reserve(answer, size);
    if (to == NULL)
        return;
    const uint8_t *const end = batch_read_error_entry_put(to, wire, &told);
    ASSERT(end == to + size);
    piece_advance(answer, size);
}

/* What may well be in the bucket is not called missing: that would end a build. */
static bool not_found(const struct answer *answer,
                      const struct digest *digest,
                      struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if (answer->unavailable)
        return status_fail(status, STATUS_UNAVAILABLE,
                           "the bucket does not answer, and blob %s is not here",
                           digest_text(digest, text));
    return status_fail(status, STATUS_NOT_FOUND, "blob %s is not in the store",
                       digest_text(digest, text));
}

/* The whole call fails for it in the end. */
static bool no_memory(struct answer *answer, struct status *status)
{
    answer->failed = true;
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "no memory for the answer; ask for fewer blobs");
}

/* That this entry may take. */
static size_t room(const struct answer *answer)
{
    const size_t taken = answer->response_bytes + answer->reserve_bytes;
    return taken < LIMIT_RESPONSE_BYTES ? LIMIT_RESPONSE_BYTES - taken : 0;
}

/* ---- the pieces */

/* Memory at the end of the piece, or of a new one. */
static uint8_t *piece_reserve(struct answer *answer, size_t bytes)
{
    if (bytes > GRPC_SLICE_LENGTH(answer->piece) - answer->end) {
        const size_t length = bytes > PIECE_BYTES ? bytes : PIECE_BYTES;
        uint8_t *const memory = malloc(length);
        if (memory == NULL || !cut(answer)) {
            free(memory);
            answer->failed = true;
            return NULL;
        }
        grpc_slice_unref(answer->piece);
        answer->piece = grpc_slice_new(memory, length, free);
        answer->begin = 0;
        answer->end = 0;
    }
    return GRPC_SLICE_START_PTR(answer->piece) + answer->end;
}

static void piece_advance(struct answer *answer, size_t bytes)
{
    answer->end += bytes;
    answer->response_bytes += bytes;
    ASSERT(answer->end <= GRPC_SLICE_LENGTH(answer->piece));
}

/* What is in no slice yet becomes one. */
static bool cut(struct answer *answer)
{
    if (answer->begin == answer->end)
        return true;
    const grpc_slice slice = grpc_slice_sub(answer->piece, answer->begin, answer->end);
    answer->begin = answer->end;
    return add_slice(answer, slice);
}

/* Takes the slice over, also when it fails. */
static bool add_slice(struct answer *answer, grpc_slice slice)
{
    enum { SLICES_MIN = 16 };
    if (answer->slice_count == answer->slice_capacity) {
        const size_t capacity =
            answer->slice_capacity == 0 ? SLICES_MIN : answer->slice_capacity * 2;
        grpc_slice *const slices = realloc(answer->slices, capacity * sizeof(*slices));
        if (slices == NULL) {
            grpc_slice_unref(slice);
            answer->failed = true;
            return false;
        }
        answer->slices = slices;
        answer->slice_capacity = capacity;
    }
    answer->slices[answer->slice_count++] = slice;
    return true;
}

const struct method rpc_batch_read = {
    .path = "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs",
    .kind = METHOD_UNARY,
    .role = ROLE_READ,
    .has_instance = true,
    .state_bytes = sizeof(struct batch_state),
    .answer_here = answer_here,
    .on_message = on_message,
    .on_free = on_free,
};
