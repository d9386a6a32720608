/* SPDX-License-Identifier: Apache-2.0 */
#include "client/downloader.h"

#include <stdlib.h>

#include "client/batch.h"
#include "client/batch_packer.h"
#include "client/download.h"
#include "client/event_loop.h"
#include "client/retry.h"

/* A blob on its way: in a queue, the packer, a pause, a batch or a stream. */
struct want {
    struct downloader *downloader;
    struct digest digest;
    const struct downloader_sink *sink; /* borrowed */
    void *item;                         /* the caller's */
    struct retry retry;                 /* as an entry of batches */
    bool begun;                         /* its sink has been told */
    struct download *download;          /* its own, while it is streamed */
    struct want *twins;                 /* others of this digest in the same batch */
    struct want *next, *previous;
};

struct want_queue {
    struct want *first, *last;
    size_t count;
};

struct batch {
    struct downloader *downloader;
    struct unary *call;
    struct batch *next, *previous;
    size_t count;
    struct want **wants;    /* owned; each with its twins */
    struct digest *digests; /* owned */
    struct status *results; /* owned */
};

/* Wants that are asked for again when it is over. */
struct pause {
    struct downloader *downloader;
    struct timer timer;
    struct want_queue wants;
    struct pause *next, *previous;
};

/* All of one thread. */
struct downloader {
    struct downloader_config config;
    struct event_loop own_loop;
    struct event_loop *loop;     /* its own, or borrowed */
    struct batch_packer *packer; /* owned; NULL: everything is streamed */
    uint64_t batched_blob_bytes_max;
    struct downloader_counts counts;

    struct want_queue to_batch, to_stream;
    struct batch *batches; /* in flight */
    struct want *streams;  /* in flight */
    struct pause *pauses;
    size_t batches_live, streams_live, live;
    struct status failure; /* ends it */
};

static void start_more(struct downloader *downloader);
static void end_waiting(struct downloader *downloader);
static void end_queue(struct want_queue *queue, const struct status *result);
static void pack(struct downloader *downloader);
static void send_batch(struct downloader *downloader);
static bool batch_fill(struct batch *batch);
static void take_entry(void *argument, size_t index, struct bytes data);
static void batch_done(void *argument, const struct status *status);
static void batch_free(struct batch *batch);
static void entry_done(struct want *want, const struct status *result, struct pause **pause);
static void ask_again(struct want *want,
                      const struct status *result,
                      int64_t pause_ns,
                      struct pause **pause);
static void pause_over(struct timer *timer);
static void pause_unlink(struct pause *pause);
static void send_stream(struct downloader *downloader, struct want *want);
static bool stream_write(void *argument, struct bytes bytes, struct status *status);
static void stream_done(void *argument, const struct status *status);
static void stream_ended(struct downloader *downloader,
                         struct want *want,
                         const struct status *status);
static bool give(struct want *want, struct bytes bytes, struct status *status);
static void want_end(struct want *want, const struct status *result);
static void queue_put(struct want_queue *queue, struct want *want);
static void queue_put_back(struct want_queue *queue, struct want *want);
static struct want *queue_take(struct want_queue *queue);
static void fail_call(struct downloader *downloader,
                      const char *method,
                      const struct status *status);
static bool is_of_all(enum status_code code);
static bool no_memory(struct status *status);

bool downloader_new(const struct downloader_config *config,
                    struct downloader **downloader_out,
                    struct status *status)
{
    ASSERT(config->batches_in_flight_max > 0 && config->streams_in_flight_max > 0);
    struct downloader *downloader = calloc(1, sizeof(*downloader));
    if (downloader == NULL)
        return no_memory(status);
    downloader->config = *config;
    event_loop_init(&downloader->own_loop, client_clock(config->client));
    downloader->loop = config->loop != NULL ? config->loop : &downloader->own_loop;
    struct batch_packer_limits limits = batch_packer_limits_default();
    if (batch_packer_limits_lower(&limits, config->capabilities->batch_total_bytes_max)) {
        downloader->batched_blob_bytes_max = limits.batched_blob_bytes_max;
        if (!batch_packer_new(&limits, &downloader->packer, status)) {
            downloader_free(downloader);
            return false;
        }
    }
    *downloader_out = downloader;
    return true;
}

void downloader_free(struct downloader *downloader)
{
    if (downloader == NULL)
        return;
    ASSERT(downloader->live == 0);
    event_loop_destroy(&downloader->own_loop);
    batch_packer_free(downloader->packer);
    free(downloader);
}

bool downloader_add(struct downloader *downloader,
                    const struct digest *digest,
                    const struct downloader_sink *sink,
                    void *item,
                    struct status *status)
{
    ASSERT(digest->size_bytes > 0);
    if (downloader->failure.code != STATUS_OK) {
        *status = downloader->failure;
        return false;
    }
    struct want *want = calloc(1, sizeof(*want));
    if (want == NULL)
        return no_memory(status);
    want->downloader = downloader;
    want->digest = *digest;
    want->sink = sink;
    want->item = item;
    retry_init(&want->retry, client_retry_policy(downloader->config.client));
    const bool batched = downloader->packer != NULL &&
                         (uint64_t)digest->size_bytes <= downloader->batched_blob_bytes_max;
    queue_put(batched ? &downloader->to_batch : &downloader->to_stream, want);
    downloader->live++;
    return true;
}

size_t downloader_live(const struct downloader *downloader)
{
    return downloader->live;
}

size_t downloader_waiting(const struct downloader *downloader)
{
    return downloader->to_batch.count + downloader->to_stream.count;
}

const struct downloader_counts *downloader_counts(const struct downloader *downloader)
{
    return &downloader->counts;
}

void downloader_run(struct downloader *downloader, int64_t timeout_ns)
{
    start_more(downloader);
    event_loop_run(downloader->loop, timeout_ns);
    if (downloader->failure.code != STATUS_OK)
        end_waiting(downloader);
}

void downloader_fail(struct downloader *downloader, const struct status *why)
{
    ASSERT(why->code != STATUS_OK);
    if (downloader->failure.code != STATUS_OK)
        return;
    downloader->failure = *why;
    for (struct batch *batch = downloader->batches; batch != NULL; batch = batch->next)
        unary_stop_trying(batch->call);
    for (struct want *want = downloader->streams; want != NULL; want = want->next) {
        if (want->download != NULL)
            download_stop_trying(want->download);
    }
    for (struct pause *pause = downloader->pauses; pause != NULL; pause = pause->next)
        event_loop_start_timer(downloader->loop, &pause->timer, 0);
}

bool downloader_failed(const struct downloader *downloader, struct status *why)
{
    const bool failed = downloader->failure.code != STATUS_OK;
    if (failed && why != NULL)
        *why = downloader->failure;
    return failed;
}

/* Starts as many calls as may be in flight. After a failure what waits ends instead. */
static void start_more(struct downloader *downloader)
{
    while (downloader->failure.code == STATUS_OK && downloader->to_batch.first != NULL &&
           downloader->batches_live < downloader->config.batches_in_flight_max)
        pack(downloader);
    while (downloader->failure.code == STATUS_OK && downloader->to_stream.first != NULL &&
           downloader->streams_live < downloader->config.streams_in_flight_max)
        send_stream(downloader, queue_take(&downloader->to_stream));
    if (downloader->failure.code != STATUS_OK)
        end_waiting(downloader);
}

static void end_waiting(struct downloader *downloader)
{
    end_queue(&downloader->to_batch, &downloader->failure);
    end_queue(&downloader->to_stream, &downloader->failure);
}

static void end_queue(struct want_queue *queue, const struct status *result)
{
    for (struct want *want = queue_take(queue); want != NULL; want = queue_take(queue))
        want_end(want, result);
}

/*
 * One batch of what waits. It need not be full: a slot is free, and what comes later finds another
 * or waits for others and fills its own.
 */
static void pack(struct downloader *downloader)
{
    struct status status = {0};
    bool full = false;
    while (!full && downloader->to_batch.first != NULL) {
        struct want *want = queue_take(&downloader->to_batch);
        enum batch_verdict verdict;
        if (downloader->packer == NULL) {
            queue_put(&downloader->to_stream, want);
            continue;
        }
        if (!batch_packer_add(downloader->packer, &want->digest, want, &verdict, &status)) {
            downloader_fail(downloader, &status);
            want_end(want, &status);
            break;
        }
        ASSERT(verdict != BATCH_TOO_LARGE);
        if (verdict == BATCH_DUPLICATE) {
            struct want *first = batch_packer_find(downloader->packer, &want->digest);
            want->twins = first->twins;
            first->twins = want;
        }
        full = verdict == BATCH_FULL;
        if (full)
            queue_put_back(&downloader->to_batch, want);
    }
    if (downloader->packer != NULL && batch_packer_count(downloader->packer) > 0)
        send_batch(downloader);
}

static void send_batch(struct downloader *downloader)
{
    struct status status = {0};
    struct batch *batch = calloc(1, sizeof(*batch));
    size_t count;
    struct want **wants = (struct want **)batch_packer_take(downloader->packer, &count);
    if (batch != NULL)
        *batch = (struct batch){.downloader = downloader, .wants = wants, .count = count};
    if (batch == NULL || !batch_fill(batch)) {
        no_memory(&status);
        downloader_fail(downloader, &status);
        for (size_t i = 0; i < count; i++)
            want_end(wants[i], &status);
        if (batch != NULL)
            batch_free(batch);
        else
            free(wants);
        return;
    }
    downloader->counts.batches++;
    downloader->batches_live++;
    batch->next = downloader->batches;
    if (batch->next != NULL)
        batch->next->previous = batch;
    downloader->batches = batch;
    const struct batch_read_sink sink = {.take = take_entry, .argument = batch};
    const struct batch_done done = {.done = batch_done, .argument = batch, .call = &batch->call};
    if (!batch_read_start(downloader->config.client, downloader->loop, batch->digests,
                          batch->results, count, sink, done, &status))
        batch_done(batch, &status);
}

static bool batch_fill(struct batch *batch)
{
    batch->digests = calloc(batch->count, sizeof(*batch->digests));
    batch->results = calloc(batch->count, sizeof(*batch->results));
    if (batch->digests == NULL || batch->results == NULL)
        return false;
    for (size_t i = 0; i < batch->count; i++)
        batch->digests[i] = batch->wants[i]->digest;
    return true;
}

/* The bytes have been verified: for this want and its twins. */
static void take_entry(void *argument, size_t index, struct bytes data)
{
    struct batch *batch = argument;
    static const struct status status_ok = {0};
    struct want *twins = batch->wants[index]->twins;
    struct want *want = batch->wants[index];
    batch->wants[index] = NULL;
    batch->downloader->counts.bytes += data.length;
    while (want != NULL) {
        struct status failure = {0};
        want->twins = NULL;
        want_end(want, give(want, data, &failure) ? &status_ok : &failure);
        want = twins;
        twins = want != NULL ? want->twins : NULL;
    }
}

static void batch_done(void *argument, const struct status *status)
{
    struct batch *batch = argument;
    struct downloader *downloader = batch->downloader;
    struct pause *pause = NULL;
    downloader->batches_live--;
    if (batch->previous != NULL)
        batch->previous->next = batch->next;
    else
        downloader->batches = batch->next;
    if (batch->next != NULL)
        batch->next->previous = batch->previous;

    if (is_of_all(status->code))
        fail_call(downloader, "BatchReadBlobs", status);
    if (status->code == STATUS_UNIMPLEMENTED && downloader->packer != NULL) {
        batch_packer_free(downloader->packer);
        downloader->packer = NULL;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct want *twin;
        for (struct want *want = batch->wants[i]; want != NULL; want = twin) {
            twin = want->twins;
            want->twins = NULL;
            if (status->code == STATUS_OK)
                entry_done(want, &batch->results[i], &pause);
            else if (downloader->failure.code != STATUS_OK)
                want_end(want, &downloader->failure);
            else
                queue_put(&downloader->to_stream, want);
        }
    }
    batch_free(batch);
    start_more(downloader);
}

static void batch_free(struct batch *batch)
{
    free(batch->wants);
    free(batch->digests);
    free(batch->results);
    free(batch);
}

/* An entry that is not OK; those that are have ended. */
static void entry_done(struct want *want, const struct status *result, struct pause **pause)
{
    ASSERT(result->code != STATUS_OK);
    int64_t pause_ns;
    if (want->downloader->failure.code == STATUS_OK &&
        retry_again(&want->retry, result, false, &pause_ns))
        ask_again(want, result, pause_ns, pause);
    else
        want_end(want, result);
}

/* One pause for all of a batch that are asked for again. */
static void ask_again(struct want *want,
                      const struct status *result,
                      int64_t pause_ns,
                      struct pause **pause)
{
    struct downloader *downloader = want->downloader;
    if (*pause == NULL) {
        *pause = calloc(1, sizeof(**pause));
        if (*pause == NULL) {
            want_end(want, result);
            return;
        }
        (*pause)->downloader = downloader;
        (*pause)->timer.run = pause_over;
        (*pause)->next = downloader->pauses;
        if ((*pause)->next != NULL)
            (*pause)->next->previous = *pause;
        downloader->pauses = *pause;
        event_loop_start_timer(downloader->loop, &(*pause)->timer, pause_ns);
    }
    downloader->counts.repeated++;
    queue_put(&(*pause)->wants, want);
}

static void pause_over(struct timer *timer)
{
    struct pause *pause = CONTAINER_OF(timer, struct pause, timer);
    struct downloader *downloader = pause->downloader;
    pause_unlink(pause);
    for (struct want *want = queue_take(&pause->wants); want != NULL;
         want = queue_take(&pause->wants))
        queue_put(&downloader->to_batch, want);
    free(pause);
    start_more(downloader);
}

static void pause_unlink(struct pause *pause)
{
    if (pause->previous != NULL)
        pause->previous->next = pause->next;
    else
        pause->downloader->pauses = pause->next;
    if (pause->next != NULL)
        pause->next->previous = pause->previous;
}

static void send_stream(struct downloader *downloader, struct want *want)
{
    struct status status = {0};
    downloader->counts.streams++;
    downloader->streams_live++;
    want->previous = NULL;
    want->next = downloader->streams;
    if (want->next != NULL)
        want->next->previous = want;
    downloader->streams = want;
    const struct download_request request = {
        .digest = want->digest,
        .sink = {.write = stream_write, .argument = want},
        .loop = downloader->loop,
        .done = stream_done,
        .argument = want,
    };
    if (download_start(downloader->config.client, &request, &want->download, &status))
        return;
    stream_ended(downloader, want, &status);
}

static bool stream_write(void *argument, struct bytes bytes, struct status *status)
{
    struct want *want = argument;
    want->downloader->counts.bytes += bytes.length;
    return give(want, bytes, status);
}

static void stream_done(void *argument, const struct status *status)
{
    struct want *want = argument;
    stream_ended(want->downloader, want, status);
}

static void stream_ended(struct downloader *downloader,
                         struct want *want,
                         const struct status *status)
{
    downloader->streams_live--;
    if (want->previous != NULL)
        want->previous->next = want->next;
    else
        downloader->streams = want->next;
    if (want->next != NULL)
        want->next->previous = want->previous;
    if (is_of_all(status->code))
        fail_call(downloader, "Read", status);
    want_end(want, status);
    start_more(downloader);
}

static bool give(struct want *want, struct bytes bytes, struct status *status)
{
    if (!want->begun && !want->sink->begin(want->item, status))
        return false;
    want->begun = true;
    return want->sink->write(want->item, bytes, status);
}

/* And that of its twins. */
static void want_end(struct want *want, const struct status *result)
{
    const struct status copy = *result; /* may lie in what the end frees */
    struct want *twin;
    for (; want != NULL; want = twin) {
        twin = want->twins;
        want->downloader->live--;
        want->sink->end(want->item, &copy);
        free(want);
    }
}

static void queue_put(struct want_queue *queue, struct want *want)
{
    want->next = NULL;
    if (queue->last == NULL)
        queue->first = want;
    else
        queue->last->next = want;
    queue->last = want;
    queue->count++;
}

static void queue_put_back(struct want_queue *queue, struct want *want)
{
    want->next = queue->first;
    queue->first = want;
    if (queue->last == NULL)
        queue->last = want;
    queue->count++;
}

static struct want *queue_take(struct want_queue *queue)
{
    struct want *want = queue->first;
    if (want == NULL)
        return NULL;
    queue->first = want->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->count--;
    return want;
}

static void fail_call(struct downloader *downloader,
                      const char *method,
                      const struct status *status)
{
    struct status failure = *status;
    status_prefix(&failure, "%s", method);
    downloader_fail(downloader, &failure);
}

/* Of a whole call, after all its tries: what every other blob would meet as well. */
static bool is_of_all(enum status_code code)
{
    return code == STATUS_UNAVAILABLE || code == STATUS_PERMISSION_DENIED ||
           code == STATUS_UNAUTHENTICATED;
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the blobs to download");
}
