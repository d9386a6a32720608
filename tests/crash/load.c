/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/load.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/thread.h"
#include "client/action_cache.h"
#include "client/cas.h"
#include "tests/crash/connect.h"

enum {
    CONNECTIONS = 4,
    BATCH_BLOBS_MAX = 24,
    BLOB_COSTS_BYTES = 500, /* of the bytes at full speed, besides its own */
    BUFFER_BYTES = 8 << 20,
    PAUSE_NS = 8 * NS_PER_MS, /* between calls, once the bytes at full speed are used up */
    CALL_TIMEOUT_S = 60,
};

struct worker {
    struct load *load; /* borrowed */
    void (*round)(struct worker *worker);
    struct thread thread;
    struct prng prng;
    uint8_t *buffer; /* owned; BUFFER_BYTES */
    size_t index;    /* among the workers of its kind */
};

struct load {
    struct load_settings settings;
    struct journal *journal; /* borrowed */
    struct client *client;   /* owned */
    size_t old_actions;      /* those that were there before this load */
    struct worker workers[LOAD_WORKERS_MAX];
    size_t worker_count;
    _Atomic bool stopping;
    _Atomic size_t running;
    _Atomic size_t acknowledged;
    _Atomic size_t batch_bytes, stream_bytes, broken_bytes, actions; /* used so far */

    struct lock lock;
    struct status failure; /* guarded by lock; the first */
    struct status fault;   /* guarded by lock; the first */
};

static void add_workers(struct load *load,
                        size_t count,
                        void (*round)(struct worker *worker),
                        size_t *used);
static void run_worker(void *argument);
static void send_batch(struct worker *worker);
static void send_stream(struct worker *worker);
static void send_action(struct worker *worker);
static void send_broken(struct worker *worker);
static void note_failure(struct worker *worker, const struct status *why);
static bool fast(_Atomic size_t *used, size_t budget, size_t bytes);
static size_t log_uniform(struct prng *prng, size_t at_least, size_t at_most);

struct load *load_start(struct journal *journal, const struct load_settings *settings)
{
    struct load *const load = calloc(1, sizeof(*load));
    ASSERT(load != NULL);
    load->settings = *settings;
    load->journal = journal;
    load->old_actions = journal->action_count;
    lock_init(&load->lock, LOCK_RANK_LEAF);

    struct client_options options = client_options_default();
    struct status status = {0};
    options.connections = CONNECTIONS;
    options.tool_name = "crash-test";
    options.call_timeout_ns = CALL_TIMEOUT_S * NS_PER_S;
    options.retry.tries_max = 1;
    ASSERT(connect_first(settings->target, &options, &load->client, &status));

    size_t used = 0;
    add_workers(load, settings->batch_workers, send_batch, &used);
    add_workers(load, settings->stream_workers, send_stream, &used);
    add_workers(load, settings->action_workers, send_action, &used);
    add_workers(load, settings->broken_workers, send_broken, &used);
    atomic_store(&load->running, used);
    load->worker_count = used;
    for (size_t i = 0; i < used; i++)
        ASSERT(thread_start(&load->workers[i].thread, "load", 0, run_worker, &load->workers[i],
                            &status));
    return load;
}

static void add_workers(struct load *load,
                        size_t count,
                        void (*round)(struct worker *worker),
                        size_t *used)
{
    ASSERT(*used + count <= LOAD_WORKERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct worker *const worker = &load->workers[*used];
        worker->load = load;
        worker->round = round;
        worker->prng.state = load->settings.seed * 1000 + *used;
        worker->buffer = malloc(BUFFER_BYTES);
        ASSERT(worker->buffer != NULL);
        worker->index = i;
        (*used)++;
    }
}

static void run_worker(void *argument)
{
    struct worker *const worker = argument;
    struct load *const load = worker->load;
    const size_t enough = load->settings.blobs_max;
    while (!atomic_load(&load->stopping) &&
           (enough == 0 || atomic_load(&load->acknowledged) < enough))
        worker->round(worker);
    atomic_fetch_sub(&load->running, 1);
}

bool load_ended(struct load *load)
{
    return atomic_load(&load->running) == 0;
}

bool load_failed(struct load *load, struct status *failure)
{
    lock_acquire(&load->lock);
    const bool failed = load->failure.code != STATUS_OK;
    if (failed && failure != NULL)
        *failure = load->failure;
    lock_release(&load->lock);
    return failed;
}

bool load_found_fault(struct load *load, struct status *failure)
{
    lock_acquire(&load->lock);
    const bool found = load->fault.code != STATUS_OK;
    if (found)
        *failure = load->fault;
    lock_release(&load->lock);
    return found;
}

size_t load_acknowledged(struct load *load)
{
    return atomic_load(&load->acknowledged);
}

void load_stop(struct load *load)
{
    atomic_store(&load->stopping, true);
    for (size_t i = 0; i < load->worker_count; i++)
        thread_join(&load->workers[i].thread);
}

void load_free(struct load *load)
{
    for (size_t i = 0; i < load->worker_count; i++) {
        ASSERT(!load->workers[i].thread.running);
        free(load->workers[i].buffer);
    }
    client_close(load->client);
    lock_destroy(&load->lock);
    free(load);
}

/* The load ends with the first failure: whoever runs it judges whether it may be. */
static void note_failure(struct worker *worker, const struct status *why)
{
    struct load *const load = worker->load;
    lock_acquire(&load->lock);
    if (load->failure.code == STATUS_OK)
        load->failure = *why;
    lock_release(&load->lock);
    atomic_store(&load->stopping, true);
}

static void note_fault(struct worker *worker, const struct status *what)
{
    struct load *const load = worker->load;
    lock_acquire(&load->lock);
    if (load->fault.code == STATUS_OK)
        load->fault = *what;
    lock_release(&load->lock);
    note_failure(worker, what);
}

static void note_stored(struct worker *worker, size_t number)
{
    journal_acknowledge_blob(worker->load->journal, number);
    atomic_fetch_add(&worker->load->acknowledged, 1);
}

/* ---- small blobs, several in a call */

/* Sends them; true when all were stored. */
static bool send_blobs(struct worker *worker,
                       struct batch_blob *blobs,
                       const size_t *numbers,
                       size_t count)
{
    struct status results[BATCH_BLOBS_MAX];
    struct status status = {0};
    if (!cas_batch_update(worker->load->client, blobs, results, count, &status)) {
        note_failure(worker, &status);
        return false;
    }
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (results[i].code == STATUS_OK) {
            note_stored(worker, numbers[i]);
            continue;
        }
        note_failure(worker, &results[i]);
        all = false;
    }
    return all;
}

/* Makes a blob of `length` bytes at *at, which moves on. */
static void make_blob(struct worker *worker,
                      uint8_t **at,
                      size_t length,
                      struct batch_blob *blob,
                      size_t *number)
{
    struct journal *const journal = worker->load->journal;
    *number = journal_add_blob(journal, prng_next(&worker->prng), SENT_WAITING, *at, length);
    lock_acquire(&journal->lock);
    blob->digest = journal->blobs[*number].digest;
    lock_release(&journal->lock);
    blob->data = bytes_of(*at, length);
    *at += length;
}

static void send_batch(struct worker *worker)
{
    struct load *const load = worker->load;
    struct batch_blob blobs[BATCH_BLOBS_MAX];
    size_t numbers[BATCH_BLOBS_MAX];
    uint8_t *at = worker->buffer;
    size_t count = 0;
    struct sent_blob again;
    const bool full_speed = fast(&load->batch_bytes, load->settings.batch_bytes, 0);
    const size_t wanted = full_speed ? 1 + prng_below(&worker->prng, BATCH_BLOBS_MAX - 1) : 1;

    if (prng_below(&worker->prng, 4) == 0 &&
        journal_pick_waiting(load->journal, &worker->prng, LIMIT_SMALL_BLOB_BYTES, &numbers[0],
                             &again)) {
        const size_t length = (size_t)again.digest.size_bytes;
        sent_bytes_fill(again.seed, at, length);
        blobs[0] = (struct batch_blob){.digest = again.digest, .data = bytes_of(at, length)};
        at += length;
        count = 1;
    }
    /* One of them may be too short to be like no other. */
    if (count == 0 && prng_below(&worker->prng, 8) == 0) {
        make_blob(worker, &at, 1 + prng_below(&worker->prng, 7), &blobs[0], &numbers[0]);
        count = 1;
    }
    while (count < wanted) {
        const size_t length =
            log_uniform(&worker->prng, 8, full_speed ? load->settings.small_bytes : 256);
        if ((size_t)(at - worker->buffer) + length > 3 << 20)
            break;
        make_blob(worker, &at, length, &blobs[count], &numbers[count]);
        count++;
    }
    fast(&load->batch_bytes, load->settings.batch_bytes,
         (size_t)(at - worker->buffer) + count * BLOB_COSTS_BYTES);
    if (!send_blobs(worker, blobs, numbers, count))
        return;
    if (!full_speed)
        clock_pause(PAUSE_NS);
}

/* Uses up some of the budget; was there any left? */
static bool fast(_Atomic size_t *used, size_t budget, size_t bytes)
{
    return atomic_fetch_add(used, bytes) < budget;
}

/* Small ones are as likely as large ones are, each doubling. */
static size_t log_uniform(struct prng *prng, size_t at_least, size_t at_most)
{
    size_t top = at_least;
    while (top < at_most && prng_below(prng, 5) != 0)
        top *= 2;
    if (top > at_most)
        top = at_most;
    return at_least + prng_below(prng, top - at_least + 1);
}

/* ---- one blob a call, of any size */

static size_t stream_length(struct worker *worker)
{
    struct load *const load = worker->load;
    struct prng *const prng = &worker->prng;
    if (!fast(&load->stream_bytes, load->settings.stream_bytes, 0))
        return log_uniform(prng, 1, 65536);
    switch (prng_below(prng, 16)) {
    case 0:
    case 1:
    case 2:
        return log_uniform(prng, 1, 65536);
    case 3: /* to either side of where the lanes part */
    case 4:
    case 5:
        return LIMIT_SMALL_BLOB_BYTES - 500 + prng_below(prng, 1000);
    case 6:
        return LIMIT_CHUNK_BYTES + prng_below(prng, 7 << 20);
    default:
        return LIMIT_CHUNK_BYTES + log_uniform(prng, 1, 2 << 20);
    }
}

static bool send_one(struct worker *worker, const struct digest *digest, size_t number)
{
    struct load *const load = worker->load;
    const struct bytes data = bytes_of(worker->buffer, (size_t)digest->size_bytes);
    struct status status = {0};
    fast(&load->stream_bytes, load->settings.stream_bytes, data.length);
    if (!cas_write_bytes(load->client, digest, data, &status)) {
        note_failure(worker, &status);
        return false;
    }
    note_stored(worker, number);
    return true;
}

static void send_stream(struct worker *worker)
{
    struct load *const load = worker->load;
    struct sent_blob again;
    size_t number;
    const bool full_speed = fast(&load->stream_bytes, load->settings.stream_bytes, 0);
    if (prng_below(&worker->prng, 4) == 0 &&
        journal_pick_waiting(load->journal, &worker->prng, BUFFER_BYTES, &number, &again)) {
        sent_bytes_fill(again.seed, worker->buffer, (size_t)again.digest.size_bytes);
        send_one(worker, &again.digest, number);
    } else {
        uint8_t *at = worker->buffer;
        struct batch_blob blob;
        make_blob(worker, &at, stream_length(worker), &blob, &number);
        send_one(worker, &blob.digest, number);
    }
    if (!full_speed)
        clock_pause(PAUSE_NS);
}

/* ---- an action result, after all its outputs */

/*
 * A new action, or a new version of one that was there before this load. Each of those has one
 * worker, so that the order of its versions is known.
 */
static size_t choose_action(struct worker *worker)
{
    struct load *const load = worker->load;
    const size_t workers = load->settings.action_workers;
    const size_t mine = load->old_actions / workers;
    const bool new_one = fast(&load->actions, load->settings.actions, 1);
    if (new_one || mine == 0)
        return journal_add_action(load->journal);
    return prng_below(&worker->prng, mine) * workers + worker->index;
}

static void send_action(struct worker *worker)
{
    struct load *const load = worker->load;
    struct batch_blob blobs[ACTION_OUTPUTS];
    size_t numbers[ACTION_OUTPUTS];
    uint8_t *at = worker->buffer;
    for (size_t i = 0; i < ACTION_OUTPUTS; i++)
        make_blob(worker, &at, log_uniform(&worker->prng, 8, 16384), &blobs[i], &numbers[i]);
    if (!send_blobs(worker, blobs, numbers, ACTION_OUTPUTS))
        return;

    struct digest digest;
    struct sent_version sent;
    struct status status = {0};
    size_t length;
    const size_t action = choose_action(worker);
    const size_t number = journal_add_version(load->journal, action, numbers, &sent);
    uint8_t *const result = sent_version_encode(load->journal, &sent, &length);
    sent_action_digest(action, &digest);
    if (action_cache_update(load->client, &digest, bytes_of(result, length), &status))
        journal_acknowledge_version(load->journal, number);
    else
        note_failure(worker, &status);
    free(result);
    if (atomic_load(&load->actions) > load->settings.actions)
        clock_pause(PAUSE_NS);
}

/* ---- bytes that are not those of the digest */

static void send_broken(struct worker *worker)
{
    struct load *const load = worker->load;
    const size_t length = log_uniform(&worker->prng, 1000, 6 << 20);
    struct digest digest;
    struct status status = {0};
    if (!fast(&load->broken_bytes, load->settings.broken_bytes, length)) {
        clock_pause(10 * (int64_t)PAUSE_NS);
        return;
    }
    const size_t number = journal_add_blob(load->journal, prng_next(&worker->prng), SENT_BROKEN,
                                           worker->buffer, length);
    lock_acquire(&load->journal->lock);
    digest = load->journal->blobs[number].digest;
    lock_release(&load->journal->lock);
    worker->buffer[length - 1] ^= 1;
    if (cas_write_bytes(load->client, &digest, bytes_of(worker->buffer, length), &status)) {
        status_fail(&status, STATUS_DATA_LOSS,
                    "blob %zu was sent with a wrong last byte, and the server said OK", number);
        note_fault(worker, &status);
    } else if (status.code != STATUS_INVALID_ARGUMENT) {
        note_failure(worker, &status);
    }
}
