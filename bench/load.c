/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a server of the Remote Execution API under load and measures: so many calls of one kind in
 * flight, each followed by the next, all driven by one thread over gRPC's C core. Speaks plain
 * REAPI, so that any server can be compared. bench/README.md tells how to run it.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "bench/latency.h"
#include "client/batch_packer.h"
#include "client/call.h"
#include "client/cas.h"
#include "client/json.h"
#include "client/messages.h"
#include "client/uuid.h"
#include "proto/resource_name.h"

enum {
    STATUS_CODES = 17,
    IN_FLIGHT_MAX = 10000,
    UNIQUE_TAIL_BYTES = 16,
    ANSWER_ARENA_BYTES = 16 << 20
};

struct run;
struct slot;

struct work {
    const char *name;
    const char *what;
    bool needs_population;
    bool moves_data; /* the blobs themselves go over the wire */
    void (*start)(struct slot *slot);
    /* Looks at a unary answer: how many blobs of it are right. NULL: streams. */
    size_t (*check)(struct slot *slot, grpc_byte_buffer *reply);
};

struct settings {
    const char *server, *instance;
    const struct work *work;
    size_t size_bytes;  /* of each blob */
    size_t per_call;    /* blobs or digests in one unary call */
    size_t chunk_bytes; /* of one message of a stream */
    size_t in_flight, connections;
    size_t population; /* blobs to be read or found */
    uint64_t seed;     /* of the population, so that a second run finds it there */
    double seconds, warm_up_seconds, timeout_seconds;
    pid_t server_pid; /* 0: not asked */
    bool json;
};

/* One call in flight after the other. Of the network thread, once it runs. */
struct slot {
    struct run *run;
    int64_t start_ns;
    uint64_t random;
    struct digest *digests; /* owned; per_call of them */
    struct batch_blob *blobs;
    uint8_t *data;   /* owned; per_call blobs */
    size_t offset;   /* of the next message of a stream up, or what came of a stream down */
    char name[1024]; /* of a stream */
    bool stream_broken;
    size_t failed_entries; /* of the last batch: counted by their code */
};

struct totals {
    uint64_t calls, blobs, bytes, wrong;
    uint64_t errors[STATUS_CODES];
    struct latency latency;
};

struct run {
    struct settings settings;
    struct client *client;
    uint8_t *pattern;         /* owned; size_bytes of noise that every blob begins with */
    EVP_MD_CTX *pattern_hash; /* owned; over all of it but the tail */
    struct lock maker;
    EVP_MD_CTX *scratch_hash;  /* owned; guarded by maker */
    struct digest *population; /* owned */
    _Atomic uint64_t unique;   /* number of the next blob that nobody has seen */
    uint64_t salt;             /* of this run */

    _Atomic bool measuring, stopping;
    _Atomic size_t live;  /* slots with a call in flight */
    struct totals totals; /* of the network thread; read when it has stopped */
    struct status first_error;

    struct lock lock;
    struct condition idle; /* live has become 0 */
};

struct cpu {
    double client_seconds, server_seconds;
};

static bool parse_arguments(struct settings *settings, int argc, char **argv);
static bool prepare(struct run *run, struct status *status);
static void measure(struct run *run, struct cpu *cpu, double *seconds);
static void print_result(const struct run *run, const struct cpu *cpu, double seconds);

/*
 * ---- blobs: noise with a number at its end, so that a new one costs the hash of its last bytes
 * alone
 */

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static size_t tail_bytes(const struct run *run)
{
    return run->settings.size_bytes < UNIQUE_TAIL_BYTES ? run->settings.size_bytes
                                                        : UNIQUE_TAIL_BYTES;
}

static bool make_pattern(struct run *run, struct status *status)
{
    const size_t size = run->settings.size_bytes;
    run->pattern = malloc(size + 8);
    run->pattern_hash = EVP_MD_CTX_new();
    run->scratch_hash = EVP_MD_CTX_new();
    if (run->pattern == NULL || run->pattern_hash == NULL || run->scratch_hash == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a blob");
    uint64_t state = run->settings.seed;
    for (size_t i = 0; i < size; i += 8) {
        const uint64_t word = next_random(&state);
        memcpy(run->pattern + i, &word, sizeof(word));
    }
    if (EVP_DigestInit_ex(run->pattern_hash, EVP_sha256(), NULL) != 1 ||
        EVP_DigestUpdate(run->pattern_hash, run->pattern, size - tail_bytes(run)) != 1)
        return status_fail(status, STATUS_INTERNAL, "cannot hash");
    return true;
}

/* The tail and the digest of blob `number` of a family (salt). */
static void make_blob(struct run *run,
                      uint64_t salt,
                      uint64_t number,
                      uint8_t tail[UNIQUE_TAIL_BYTES],
                      struct digest *digest)
{
    const uint64_t words[2] = {number, salt};
    unsigned length = 0;
    memcpy(tail, words, UNIQUE_TAIL_BYTES);
    memset(digest, 0, sizeof(*digest));
    lock_acquire(&run->maker);
    ASSERT(EVP_MD_CTX_copy_ex(run->scratch_hash, run->pattern_hash) == 1);
    ASSERT(EVP_DigestUpdate(run->scratch_hash, tail, tail_bytes(run)) == 1);
    ASSERT(EVP_DigestFinal_ex(run->scratch_hash, digest->hash, &length) == 1);
    lock_release(&run->maker);
    digest->hash_length = (uint8_t)length;
    digest->function = DIGEST_FUNCTION_SHA256;
    digest->size_bytes = (int64_t)run->settings.size_bytes;
}

/* Bytes [offset, offset + length) of a blob with this tail. */
static void copy_blob(const struct run *run,
                      const uint8_t tail[UNIQUE_TAIL_BYTES],
                      size_t offset,
                      size_t length,
                      uint8_t *to)
{
    const size_t tail_start = run->settings.size_bytes - tail_bytes(run);
    memcpy(to, run->pattern + offset, length);
    if (offset + length > tail_start) {
        const size_t from = offset > tail_start ? offset : tail_start;
        memcpy(to + (from - offset), tail + (from - tail_start), offset + length - from);
    }
}

/* ---- one call after the other */

static void slot_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void slot_next(struct slot *slot);
static void slot_finish(struct slot *slot,
                        const struct status *status,
                        size_t blobs_right,
                        size_t blobs_asked);
static void stream_sent(void *argument, struct client_call *call);
static void stream_received(void *argument, struct client_call *call, grpc_byte_buffer *message);

static const struct client_call_handlers handlers = {.sent = stream_sent,
                                                     .received = stream_received,
                                                     .done = slot_done};

static struct client_call_options call_options(struct slot *slot, const char *method)
{
    return (struct client_call_options){
        .method = method,
        .timeout_ns =
            client_stream_timeout_ns(slot->run->client, (int64_t)slot->run->settings.size_bytes),
        .loop = NULL,
        .handlers = &handlers,
        .argument = slot,
    };
}

static void start_unary(struct slot *slot, const char *method, grpc_slice body)
{
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    const struct client_call_options options = call_options(slot, method);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_unary(slot->run->client, &options, message, &call, &status))
        slot_done(slot, &status, NULL);
}

static void start_put_batch(struct slot *slot)
{
    struct run *run = slot->run;
    const size_t size = run->settings.size_bytes;
    for (size_t i = 0; i < run->settings.per_call; i++) {
        uint8_t tail[UNIQUE_TAIL_BYTES];
        make_blob(run, run->salt, atomic_fetch_add(&run->unique, 1), tail, &slot->blobs[i].digest);
        memcpy(slot->data + (i + 1) * size - tail_bytes(run), tail,
               tail_bytes(run)); /* the rest stays as it is */
        slot->blobs[i].data = bytes_of(slot->data + i * size, size);
    }
    start_unary(slot, METHOD_BATCH_UPDATE_BLOBS,
                batch_update_request(client_instance_name(run->client), slot->blobs,
                                     run->settings.per_call));
}

static size_t check_batch(struct slot *slot, grpc_byte_buffer *reply, enum batch_response_kind kind)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    struct arena arena;
    arena_init(&arena, ANSWER_ARENA_BYTES);
    struct wire_reader reader;
    wire_reader_init(&reader, wire_span_of_list(message_view_list(&view)));
    struct batch_response_entry entry;
    struct status status = {0};
    size_t right = 0;
    slot->failed_entries = 0;
    for (bool more = true; more;) {
        if (!batch_response_next(&reader, kind, &arena, &entry, &more, &status))
            break;
        if (!more)
            continue;
        if (entry.result.code == STATUS_OK &&
            (kind == BATCH_UPDATE_RESPONSE ||
             entry.data.length == slot->run->settings.size_bytes)) {
            right++;
        } else if (entry.result.code != STATUS_OK) {
            slot->failed_entries++;
            if (atomic_load_explicit(&slot->run->measuring, memory_order_relaxed))
                slot->run->totals.errors[entry.result.code]++;
        }
    }
    arena_destroy(&arena);
    message_view_free(&view);
    return right;
}

static size_t check_put_batch(struct slot *slot, grpc_byte_buffer *reply)
{
    return check_batch(slot, reply, BATCH_UPDATE_RESPONSE);
}

static void choose_digests(struct slot *slot)
{
    const struct run *run = slot->run;
    /* Neighbours from a random place on: different ones, as batches must have. */
    const size_t first = (size_t)(next_random(&slot->random) % run->settings.population);
    for (size_t i = 0; i < run->settings.per_call; i++)
        slot->digests[i] = run->population[(first + i) % run->settings.population];
}

static void start_find_present(struct slot *slot)
{
    choose_digests(slot);
    start_unary(slot, METHOD_FIND_MISSING_BLOBS,
                find_missing_request(client_instance_name(slot->run->client), slot->digests,
                                     slot->run->settings.per_call));
}

static void start_find_absent(struct slot *slot)
{
    for (size_t i = 0; i < slot->run->settings.per_call; i++) {
        struct digest *digest = &slot->digests[i];
        for (size_t word = 0; word < SHA256_HASH_BYTES / 8; word++) {
            const uint64_t value = next_random(&slot->random);
            memcpy(digest->hash + 8 * word, &value, sizeof(value));
        }
        digest->hash_length = SHA256_HASH_BYTES;
        digest->function = DIGEST_FUNCTION_SHA256;
        digest->size_bytes = (int64_t)slot->run->settings.size_bytes;
    }
    start_unary(slot, METHOD_FIND_MISSING_BLOBS,
                find_missing_request(client_instance_name(slot->run->client), slot->digests,
                                     slot->run->settings.per_call));
}

static size_t count_missing(grpc_byte_buffer *reply)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return SIZE_MAX;
    struct wire_reader reader;
    struct wire_field field;
    size_t count = 0;
    wire_reader_init(&reader, wire_span_of_list(message_view_list(&view)));
    while (wire_reader_next(&reader, &field))
        count += field.number == 2 && field.type == WIRE_BYTES;
    message_view_free(&view);
    return reader.failed ? SIZE_MAX : count;
}

static size_t check_find_present(struct slot *slot, grpc_byte_buffer *reply)
{
    const size_t missing = count_missing(reply);
    return missing > slot->run->settings.per_call ? 0 : slot->run->settings.per_call - missing;
}

static size_t check_find_absent(struct slot *slot, grpc_byte_buffer *reply)
{
    const size_t missing = count_missing(reply);
    return missing > slot->run->settings.per_call ? 0 : missing;
}

static void start_get_batch(struct slot *slot)
{
    choose_digests(slot);
    start_unary(slot, METHOD_BATCH_READ_BLOBS,
                batch_read_request(client_instance_name(slot->run->client), slot->digests,
                                   slot->run->settings.per_call));
}

static size_t check_get_batch(struct slot *slot, grpc_byte_buffer *reply)
{
    return check_batch(slot, reply, BATCH_READ_RESPONSE);
}

static void start_capabilities(struct slot *slot)
{
    start_unary(slot, METHOD_GET_CAPABILITIES, grpc_empty_slice());
}

static size_t check_capabilities(struct slot *slot, grpc_byte_buffer *reply)
{
    return grpc_byte_buffer_length(reply) > 0 ? slot->run->settings.per_call : 0;
}

static grpc_byte_buffer *next_chunk(struct slot *slot, enum client_call_more *more)
{
    const struct settings *settings = &slot->run->settings;
    const size_t offset = slot->offset;
    const size_t left = settings->size_bytes - offset;
    const size_t length = left < settings->chunk_bytes ? left : settings->chunk_bytes;
    grpc_slice data = grpc_slice_malloc(length);
    copy_blob(slot->run, slot->data, offset, length, GRPC_SLICE_START_PTR(data));
    slot->offset += length;
    *more = slot->offset == settings->size_bytes ? CLIENT_CALL_LAST : CLIENT_CALL_MORE;
    return write_request_message(offset == 0 ? slot->name : NULL, offset, data,
                                 *more == CLIENT_CALL_LAST);
}

static void start_put_stream(struct slot *slot)
{
    struct run *run = slot->run;
    char uuid[UUID_TEXT_BYTES];
    uuid_random(uuid);
    make_blob(run, run->salt, atomic_fetch_add(&run->unique, 1), slot->data, &slot->digests[0]);
    ASSERT(resource_name_format(slot->name, sizeof(slot->name), client_instance_name(run->client),
                                uuid, COMPRESSOR_IDENTITY, &slot->digests[0]));
    slot->offset = 0;
    enum client_call_more more;
    grpc_byte_buffer *first = next_chunk(slot, &more);
    const struct client_call_options options = call_options(slot, METHOD_WRITE);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_stream_up(run->client, &options, first, more, &call, &status))
        slot_done(slot, &status, NULL);
}

static void stream_sent(void *argument, struct client_call *call)
{
    enum client_call_more more;
    grpc_byte_buffer *message = next_chunk(argument, &more);
    client_call_send(call, message, more);
}

static size_t check_put_stream(struct slot *slot, grpc_byte_buffer *reply)
{
    struct message_view view;
    if (!message_view_init(&view, reply))
        return 0;
    int64_t committed_bytes;
    bool complete;
    struct status status = {0};
    const bool ok =
        write_status_response(message_view_list(&view), &committed_bytes, &complete, &status);
    message_view_free(&view);
    return ok && committed_bytes == (int64_t)slot->run->settings.size_bytes ? 1 : 0;
}

static void start_get_stream(struct slot *slot)
{
    struct run *run = slot->run;
    const size_t chosen = (size_t)(next_random(&slot->random) % run->settings.population);
    ASSERT(resource_name_format(slot->name, sizeof(slot->name), client_instance_name(run->client),
                                NULL, COMPRESSOR_IDENTITY, &run->population[chosen]));
    slot->offset = 0;
    slot->stream_broken = false;
    grpc_slice body = read_request(slot->name, 0);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    const struct client_call_options options = call_options(slot, METHOD_READ);
    struct client_call *call;
    struct status status = {0};
    if (!client_call_stream_down(run->client, &options, message, &call, &status))
        slot_done(slot, &status, NULL);
}

static void stream_received(void *argument, struct client_call *call, grpc_byte_buffer *message)
{
    struct slot *slot = argument;
    struct message_view view;
    struct wire_span data;
    struct status status = {0};
    if (message_view_init(&view, message)) {
        if (read_response_data(message_view_list(&view), &data, &status))
            slot->offset += data.length;
        else
            slot->stream_broken = true;
        message_view_free(&view);
    } else {
        slot->stream_broken = true;
    }
    grpc_byte_buffer_destroy(message);
    client_call_receive(call);
}

static const struct work works[] = {
    {"put-batch", "BatchUpdateBlobs of new blobs, --per-call in each", false, true, start_put_batch,
     check_put_batch},
    {"put-stream", "ByteStream.Write of a new blob", false, true, start_put_stream,
     check_put_stream},
    {"find-present", "FindMissingBlobs of --per-call blobs that are there", true, false,
     start_find_present, check_find_present},
    {"find-absent", "FindMissingBlobs of --per-call blobs that are not", false, false,
     start_find_absent, check_find_absent},
    {"get-batch", "BatchReadBlobs of --per-call blobs", true, true, start_get_batch,
     check_get_batch},
    {"get-stream", "ByteStream.Read of a blob", true, true, start_get_stream, NULL},
    {"capabilities", "GetCapabilities: what a call costs that does nothing", false, false,
     start_capabilities, check_capabilities},
};

static void slot_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct slot *slot = argument;
    const struct settings *settings = &slot->run->settings;
    const bool stream =
        settings->work->start == start_put_stream || settings->work->start == start_get_stream;
    const size_t asked = stream ? 1 : settings->per_call;
    size_t right = 0;
    if (reply != NULL) {
        right = settings->work->check(slot, reply);
        grpc_byte_buffer_destroy(reply);
    } else if (status->code == STATUS_OK) {
        right = slot->offset == settings->size_bytes && !slot->stream_broken ? 1 : 0;
    }
    slot_finish(slot, status, right, asked - slot->failed_entries);
    slot_next(slot);
}

static void slot_finish(struct slot *slot,
                        const struct status *status,
                        size_t blobs_right,
                        size_t blobs_asked)
{
    struct run *run = slot->run;
    if (status->code != STATUS_OK && run->first_error.code == STATUS_OK)
        run->first_error = *status;
    if (!atomic_load_explicit(&run->measuring, memory_order_relaxed))
        return;
    struct totals *totals = &run->totals;
    if (status->code != STATUS_OK) {
        totals->errors[status->code]++;
        return;
    }
    totals->calls++;
    totals->blobs += blobs_right;
    totals->wrong += blobs_asked > blobs_right ? blobs_asked - blobs_right : 0;
    totals->bytes += run->settings.work->moves_data ? blobs_right * run->settings.size_bytes : 0;
    latency_add(&totals->latency, clock_monotonic_ns(clock_real()) - slot->start_ns);
}

/*
 * The next call from here would nest deeper and deeper if calls failed at once, without gRPC; they
 * fail at once only without memory, and then the run is over anyway.
 */
static void slot_next(struct slot *slot)
{
    struct run *run = slot->run;
    if (!atomic_load_explicit(&run->stopping, memory_order_relaxed)) {
        slot->start_ns = clock_monotonic_ns(clock_real());
        run->settings.work->start(slot);
        return;
    }
    lock_acquire(&run->lock);
    if (atomic_fetch_sub(&run->live, 1) == 1)
        condition_signal(&run->idle);
    lock_release(&run->lock);
}

/* ---- the run */

int main(int argc, char **argv)
{
    client_prepare_process();
    struct run run = {0};
    if (!parse_arguments(&run.settings, argc, argv))
        return 2;
    lock_init(&run.lock, LOCK_RANK_LEAF);
    lock_init(&run.maker, LOCK_RANK_LEAF);
    condition_init(&run.idle);
    struct client_options options = client_options_default();
    options.tool_name = "varve-load";
    options.instance_name = run.settings.instance;
    options.connections = run.settings.connections;
    options.call_timeout_ns = (int64_t)(run.settings.timeout_seconds * (double)NS_PER_S);
    struct status status = {0};
    struct cpu cpu;
    double seconds;
    bool good = client_connect(run.settings.server, &options, &run.client, &status);
    if (good && prepare(&run, &status)) {
        measure(&run, &cpu, &seconds);
        print_result(&run, &cpu, seconds);
        good = run.first_error.code == STATUS_OK && run.totals.wrong == 0 && run.totals.calls > 0;
    } else {
        fprintf(stderr, "load: %s\n", status.message);
        good = false;
    }
    client_close(run.client);
    free(run.pattern);
    EVP_MD_CTX_free(run.pattern_hash);
    EVP_MD_CTX_free(run.scratch_hash);
    free(run.population);
    return good ? 0 : 1;
}

/* Uploads what of the population the server lacks. */
static bool upload_population(struct run *run, struct status *status)
{
    const size_t count = run->settings.population;
    const size_t size = run->settings.size_bytes;
    bool *missing = calloc(count, sizeof(*missing));
    uint8_t *data = malloc(size + 1);
    bool ok = missing != NULL && data != NULL;
    if (!ok)
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the population");
    ok = ok && cas_find_missing(run->client, run->population, missing, count, status);
    for (size_t i = 0; ok && i < count; i++) {
        if (!missing[i])
            continue;
        uint8_t tail[UNIQUE_TAIL_BYTES];
        struct digest digest;
        make_blob(run, run->settings.seed, i, tail, &digest);
        copy_blob(run, tail, 0, size, data);
        const struct batch_blob blob = {.digest = digest, .data = bytes_of(data, size)};
        struct status result = {0};
        if (size > BATCH_PACKER_BATCHED_BLOB_BYTES) {
            ok = cas_write_bytes(run->client, &digest, blob.data, status);
        } else {
            ok = cas_batch_update(run->client, &blob, &result, 1, status);
            if (ok && result.code != STATUS_OK) {
                *status = result;
                ok = false;
            }
        }
    }
    free(missing);
    free(data);
    return ok;
}

static bool prepare(struct run *run, struct status *status)
{
    if (!make_pattern(run, status))
        return false;
    if (getrandom(&run->salt, sizeof(run->salt), 0) != (ssize_t)sizeof(run->salt))
        return status_fail(status, STATUS_INTERNAL, "no random numbers");
    if (!run->settings.work->needs_population)
        return true;
    run->population = calloc(run->settings.population, sizeof(*run->population));
    if (run->population == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the population");
    for (size_t i = 0; i < run->settings.population; i++) {
        uint8_t tail[UNIQUE_TAIL_BYTES];
        make_blob(run, run->settings.seed, i, tail, &run->population[i]);
    }
    if (!upload_population(run, status)) {
        status_prefix(status, "upload the population");
        return false;
    }
    return true;
}

static bool slot_init(struct slot *slot, struct run *run, uint64_t number)
{
    const struct settings *settings = &run->settings;
    slot->run = run;
    slot->random = run->salt + number * UINT64_C(0x632be59bd9b4e019);
    slot->digests = calloc(settings->per_call, sizeof(*slot->digests));
    slot->blobs = calloc(settings->per_call, sizeof(*slot->blobs));
    const bool batch = settings->work->start == start_put_batch;
    slot->data = malloc(batch ? settings->per_call * settings->size_bytes : UNIQUE_TAIL_BYTES);
    if (slot->digests == NULL || slot->blobs == NULL || slot->data == NULL)
        return false;
    for (size_t i = 0; batch && i < settings->per_call; i++)
        memcpy(slot->data + i * settings->size_bytes, run->pattern, settings->size_bytes);
    return true;
}

static double client_cpu_seconds(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/*
 * utime and stime of all its threads, fields 14 and 15; the name in field 2 may have anything in it
 * but the last ')'.
 */
static double process_cpu_seconds(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NAN;
    const size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')');
    unsigned long long user, kernel;
    if (behind_name == NULL ||
        sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
               &kernel) != 2)
        return NAN;
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static struct cpu cpu_now(const struct settings *settings)
{
    return (struct cpu){
        .client_seconds = client_cpu_seconds(),
        .server_seconds =
            settings->server_pid > 0 ? process_cpu_seconds(settings->server_pid) : NAN,
    };
}

static void sleep_seconds(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

static void measure(struct run *run, struct cpu *cpu, double *seconds)
{
    const size_t count = run->settings.in_flight;
    struct slot *slots = calloc(count, sizeof(*slots));
    ASSERT(slots != NULL);
    atomic_store(&run->live, count);
    for (size_t i = 0; i < count; i++)
        ASSERT(slot_init(&slots[i], run, i));
    for (size_t i = 0; i < count; i++) {
        slots[i].start_ns = clock_monotonic_ns(clock_real());
        run->settings.work->start(&slots[i]); /* from here on the slot is the network thread's */
    }
    sleep_seconds(run->settings.warm_up_seconds);
    const struct cpu before = cpu_now(&run->settings);
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    atomic_store(&run->measuring, true);
    sleep_seconds(run->settings.seconds);
    atomic_store(&run->measuring, false);
    *seconds = (double)(clock_monotonic_ns(clock_real()) - start_ns) / 1e9;
    const struct cpu after = cpu_now(&run->settings);
    cpu->client_seconds = after.client_seconds - before.client_seconds;
    cpu->server_seconds = after.server_seconds - before.server_seconds;

    atomic_store(&run->stopping, true);
    lock_acquire(&run->lock);
    while (atomic_load(&run->live) > 0)
        condition_wait(&run->idle, &run->lock);
    lock_release(&run->lock);
    for (size_t i = 0; i < count; i++) {
        free(slots[i].digests);
        free(slots[i].blobs);
        free(slots[i].data);
    }
    free(slots);
}

/* ---- the command line and the report */

static const char usage[] =
    "usage: load --server HOST:PORT --work WORK [options]\n"
    "  --size BYTES        of each blob (k, m after the number); 4k\n"
    "  --per-call N        blobs or digests in one unary call; 1, and 1000 for find-*\n"
    "  --chunk BYTES       of data in one message of put-stream; 1m\n"
    "  --in-flight N       calls in flight; 16\n"
    "  --connections N     that share them; 1\n"
    "  --seconds S         measured; 5\n"
    "  --warm-up S         before that, not measured; 1\n"
    "  --timeout S         of one call; 60\n"
    "  --population N      blobs that are read or found; uploaded first where they are missing; "
    "1000\n"
    "  --seed N            of the population; 1\n"
    "  --instance NAME     empty if it is not given\n"
    "  --server-pid PID    adds the server's CPU time\n"
    "  --json\n"
    "works:\n";

enum {
    OPTION_SERVER = 256,
    OPTION_WORK,
    OPTION_SIZE,
    OPTION_PER_CALL,
    OPTION_CHUNK,
    OPTION_IN_FLIGHT,
    OPTION_CONNECTIONS,
    OPTION_SECONDS,
    OPTION_WARM_UP,
    OPTION_TIMEOUT,
    OPTION_POPULATION,
    OPTION_SEED,
    OPTION_INSTANCE,
    OPTION_SERVER_PID,
    OPTION_JSON,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"server", required_argument, NULL, OPTION_SERVER},
    {"work", required_argument, NULL, OPTION_WORK},
    {"size", required_argument, NULL, OPTION_SIZE},
    {"per-call", required_argument, NULL, OPTION_PER_CALL},
    {"chunk", required_argument, NULL, OPTION_CHUNK},
    {"in-flight", required_argument, NULL, OPTION_IN_FLIGHT},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"warm-up", required_argument, NULL, OPTION_WARM_UP},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"population", required_argument, NULL, OPTION_POPULATION},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"instance", required_argument, NULL, OPTION_INSTANCE},
    {"server-pid", required_argument, NULL, OPTION_SERVER_PID},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static bool parse_size(const char *text, uint64_t min, uint64_t max, size_t *size)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const unsigned shift = *end == 'k' ? 10 : *end == 'm' ? 20 : 0;
    if (errno != 0 || end == text || text[0] == '-' || (shift == 0 ? *end : end[1]) != '\0' ||
        value > max >> shift)
        return false;
    value <<= shift;
    *size = (size_t)value;
    return value >= min && value <= max;
}

static bool parse_seconds(const char *text, double min, double *seconds)
{
    char *end;
    *seconds = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*seconds) && *seconds >= min &&
           *seconds <= 86400;
}

static const struct work *find_work(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++) {
        if (strcmp(works[i].name, name) == 0)
            return &works[i];
    }
    return NULL;
}

static bool take_option(struct settings *settings, int option, const char *value)
{
    size_t number;
    switch (option) {
    case OPTION_SERVER:
        settings->server = value;
        return true;
    case OPTION_INSTANCE:
        settings->instance = value;
        return true;
    case OPTION_WORK:
        settings->work = find_work(value);
        return settings->work != NULL;
    case OPTION_SIZE:
        return parse_size(value, 1, UINT64_C(1) << 32, &settings->size_bytes);
    case OPTION_PER_CALL:
        return parse_size(value, 1, 100000, &settings->per_call);
    case OPTION_CHUNK:
        return parse_size(value, 1, 3 << 20, &settings->chunk_bytes);
    case OPTION_IN_FLIGHT:
        return parse_size(value, 1, IN_FLIGHT_MAX, &settings->in_flight);
    case OPTION_CONNECTIONS:
        return parse_size(value, 1, CLIENT_CONNECTIONS_MAX, &settings->connections);
    case OPTION_POPULATION:
        return parse_size(value, 1, 50000000, &settings->population);
    case OPTION_SEED:
        if (!parse_size(value, 0, UINT64_MAX, &number))
            return false;
        settings->seed = number;
        return true;
    case OPTION_SERVER_PID:
        if (!parse_size(value, 1, INT32_MAX, &number))
            return false;
        settings->server_pid = (pid_t)number;
        return true;
    case OPTION_SECONDS:
        return parse_seconds(value, 0.1, &settings->seconds);
    case OPTION_WARM_UP:
        return parse_seconds(value, 0, &settings->warm_up_seconds);
    case OPTION_TIMEOUT:
        return parse_seconds(value, 0.001, &settings->timeout_seconds);
    case OPTION_JSON:
        settings->json = true;
        return true;
    default:
        return false;
    }
}

static bool fail_usage(void)
{
    fputs(usage, stderr);
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++)
        fprintf(stderr, "  %-14s %s\n", works[i].name, works[i].what);
    return false;
}

static bool parse_arguments(struct settings *settings, int argc, char **argv)
{
    *settings = (struct settings){
        .server = getenv("VARVE_SERVER"),
        .instance = "",
        .size_bytes = 4096,
        .chunk_bytes = 1 << 20,
        .in_flight = 16,
        .connections = 1,
        .population = 1000,
        .seed = 1,
        .seconds = 5,
        .warm_up_seconds = 1,
        .timeout_seconds = 60,
    };
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == OPTION_HELP || option == '?')
            return fail_usage();
        if (!take_option(settings, option, optarg)) {
            fprintf(stderr, "load: %s: cannot be\n", optarg);
            return fail_usage();
        }
    }
    if (optind < argc || settings->server == NULL || settings->work == NULL)
        return fail_usage();
    const bool finds =
        settings->work->start == start_find_present || settings->work->start == start_find_absent;
    if (settings->per_call == 0)
        settings->per_call = finds ? 1000 : 1;
    if (settings->work->needs_population && settings->population < settings->per_call) {
        fprintf(stderr, "load: --population must be at least --per-call\n");
        return false;
    }
    const bool batches =
        settings->work->start == start_put_batch || settings->work->start == start_get_batch;
    if (batches && settings->per_call * (settings->size_bytes + BATCH_PACKER_ENTRY_OVERHEAD_BYTES) >
                       CLIENT_MESSAGE_BYTES_MAX) {
        fprintf(stderr, "load: --per-call blobs of --size are more than a message may have\n");
        return false;
    }
    return true;
}

static void print_text(const struct run *run, const struct cpu *cpu, double seconds)
{
    const struct settings *settings = &run->settings;
    const struct totals *totals = &run->totals;
    const double calls = (double)totals->calls;
    printf("%s size=%zu per_call=%zu in_flight=%zu connections=%zu seconds=%.1f\n",
           settings->work->name, settings->size_bytes, settings->per_call, settings->in_flight,
           settings->connections, seconds);
    printf("  calls/s %.0f   blobs/s %.0f   MB/s %.1f\n", calls / seconds,
           (double)totals->blobs / seconds, (double)totals->bytes / seconds / 1e6);
    printf("  ms: p50 %.3f   p99 %.3f   p99.9 %.3f   max %.3f\n",
           latency_quantile_ns(&totals->latency, 0.5) / 1e6,
           latency_quantile_ns(&totals->latency, 0.99) / 1e6,
           latency_quantile_ns(&totals->latency, 0.999) / 1e6,
           (double)totals->latency.max_ns / 1e6);
    printf("  cpu seconds: client %.2f (%.1f us a call)", cpu->client_seconds,
           calls > 0 ? cpu->client_seconds / calls * 1e6 : 0);
    if (!isnan(cpu->server_seconds))
        printf("   server %.2f (%.1f us a call)", cpu->server_seconds,
               calls > 0 ? cpu->server_seconds / calls * 1e6 : 0);
    printf("\n  errors:");
    uint64_t errors = totals->wrong;
    for (size_t code = 1; code < STATUS_CODES; code++) {
        errors += totals->errors[code];
        if (totals->errors[code] > 0)
            printf(" %s %" PRIu64, status_code_name((enum status_code)code), totals->errors[code]);
    }
    if (totals->wrong > 0)
        printf(" wrong answers about %" PRIu64 " blobs", totals->wrong);
    printf("%s\n", errors > 0 ? "" : " none");
    if (run->first_error.code != STATUS_OK)
        printf("  first error: %s (%s)\n", run->first_error.message,
               status_code_name(run->first_error.code));
}

static void print_json(const struct run *run, const struct cpu *cpu, double seconds)
{
    const struct settings *settings = &run->settings;
    const struct totals *totals = &run->totals;
    struct json json;
    json_init(&json, stdout);
    json_open_object(&json, NULL);
    json_string(&json, "work", settings->work->name);
    json_unsigned(&json, "size_bytes", settings->size_bytes);
    json_unsigned(&json, "per_call", settings->per_call);
    json_unsigned(&json, "in_flight", settings->in_flight);
    json_unsigned(&json, "connections", settings->connections);
    json_real(&json, "seconds", seconds);
    json_unsigned(&json, "calls", totals->calls);
    json_unsigned(&json, "blobs", totals->blobs);
    json_unsigned(&json, "bytes", totals->bytes);
    json_real(&json, "calls_per_second", (double)totals->calls / seconds);
    json_real(&json, "blobs_per_second", (double)totals->blobs / seconds);
    json_real(&json, "megabytes_per_second", (double)totals->bytes / seconds / 1e6);
    json_real(&json, "p50_ms", latency_quantile_ns(&totals->latency, 0.5) / 1e6);
    json_real(&json, "p99_ms", latency_quantile_ns(&totals->latency, 0.99) / 1e6);
    json_real(&json, "p999_ms", latency_quantile_ns(&totals->latency, 0.999) / 1e6);
    json_real(&json, "max_ms", (double)totals->latency.max_ns / 1e6);
    json_real(&json, "client_cpu_seconds", cpu->client_seconds);
    if (!isnan(cpu->server_seconds))
        json_real(&json, "server_cpu_seconds", cpu->server_seconds);
    json_unsigned(&json, "wrong_answers", totals->wrong);
    json_open_object(&json, "errors");
    for (size_t code = 1; code < STATUS_CODES; code++) {
        if (totals->errors[code] > 0)
            json_unsigned(&json, status_code_name((enum status_code)code), totals->errors[code]);
    }
    json_close_object(&json);
    json_close_object(&json);
    json_end(&json);
}

static void print_result(const struct run *run, const struct cpu *cpu, double seconds)
{
    if (run->settings.json)
        print_json(run, cpu, seconds);
    else
        print_text(run, cpu, seconds);
}
