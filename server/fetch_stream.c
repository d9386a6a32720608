/* SPDX-License-Identifier: Apache-2.0 */
/* Large blobs by ByteStream.Read: chunks go to the large lane as they come, the manifest when the hash is right. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "client/download.h"
#include "server/fetcher_private.h"
#include "store/blob_writer.h"

/* The chunk, and the message on its way. */
#define STREAM_BUDGET_BYTES (2 * MIB)

struct fetch_stream {
    struct fetch_call call;
    struct fetcher *fetcher;    /* borrowed */
    struct want *want;          /* borrowed */
    struct blob_writer *writer; /* owned */
    struct download *download;  /* the client's; NULL before it and after its end */
    struct buffer_waiter waiter;
    struct buffer *buffer; /* owned, on its way from the pool */
    bool cancelled;
    bool failed_here;
    bool over;                     /* no call is in flight any more */
    struct event event;            /* the buffer is there; then: the commit is done */
    struct commit_request request; /* of the manifest */
    struct status result;
};

static bool start(struct fetcher *fetcher);
static struct fetch_stream *stream_new(struct fetcher *fetcher, struct want *want);
static void buffer_ready(struct buffer_waiter *waiter, struct buffer *buffer);
static void buffer_is_there(struct event *event);
static bool begin(struct fetch_stream *stream, struct status *status);
static bool write_bytes(void *argument, struct bytes bytes, struct status *status);
static void done(void *argument, const struct status *status);
static void on_ack(struct ack *ack, const struct status *result);
static void committed(struct event *event);
static void call_over(struct fetch_stream *stream);
static void finish(struct fetch_stream *stream, const struct status *result);
static void cancel(struct fetch_call *call);

void fetch_streams_pump(struct fetcher *fetcher)
{
    while (fetcher->large.count > 0 && fetcher->streams < fetcher->streams_max && start(fetcher))
        continue;
}

static bool start(struct fetcher *fetcher)
{
    struct want *const want = fetcher->large.first;
    if (!fetch_budget_take(fetcher, STREAM_BUDGET_BYTES))
        return false;
    struct fetch_stream *const stream = stream_new(fetcher, want);
    if (stream == NULL) {
        fetch_budget_give(fetcher, STREAM_BUDGET_BYTES);
        fetcher->starved = true;
        return false;
    }
    want_list_remove(&fetcher->large, want);
    want->state = WANT_CALLING;
    fetcher->streams++;
    fetch_call_begin(fetcher, &stream->call);
    stream->buffer = buffer_pool_take(fetcher->store->buffers, &stream->waiter);
    if (stream->buffer != NULL)
        event_loop_post(fetcher->config.loop, &stream->event);
    return true;
}

static struct fetch_stream *stream_new(struct fetcher *fetcher, struct want *want)
{
    struct fetch_stream *const stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return NULL;
    stream->fetcher = fetcher;
    stream->want = want;
    stream->call.cancel = cancel;
    stream->waiter.ready = buffer_ready;
    stream->event.run = buffer_is_there;
    return stream;
}

/* On whatever thread gave it back. */
static void buffer_ready(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct fetch_stream *const stream = CONTAINER_OF(waiter, struct fetch_stream, waiter);
    stream->buffer = buffer;
    event_loop_post(stream->fetcher->config.loop, &stream->event);
}

static void buffer_is_there(struct event *event)
{
    struct fetch_stream *const stream = CONTAINER_OF(event, struct fetch_stream, event);
    struct status status = {0};
    fetch_heard(stream->fetcher);
    if (stream->cancelled)
        finish(stream, &stream->fetcher->cancelled);
    else if (!begin(stream, &status))
        finish(stream, &status);
}

static bool begin(struct fetch_stream *stream, struct status *status)
{
    struct fetcher *const fetcher = stream->fetcher;
    const struct digest *const digest = &stream->want->digest;
    char text[DIGEST_TEXT_BYTES_MAX];
    if ((uint64_t)digest->size_bytes > fetcher->store->blob_bytes_max)
        return status_fail(status, STATUS_OUT_OF_RANGE,
                           "blob %s does not fit into this store, which takes up to %" PRIu64
                           " bytes",
                           digest_text(digest, text), fetcher->store->blob_bytes_max);
    stream->failed_here = true;
    if (!blob_writer_new(fetcher->store, digest, &stream->writer, status))
        return false;
    /* The download hashes what it hands on, and says OK only when the hash is right. */
    blob_writer_trust(stream->writer);
    blob_writer_give_buffer(stream->writer, stream->buffer);
    stream->buffer = NULL;
    const struct download_request request = {
        .digest = *digest,
        .sink = {.write = write_bytes, .argument = stream},
        .loop = fetcher->config.loop,
        .done = done,
        .argument = stream,
    };
    if (!download_start(fetcher->config.client, &request, &stream->download, status))
        return false;
    stream->failed_here = false;
    return true;
}

static bool write_bytes(void *argument, struct bytes bytes, struct status *status)
{
    struct fetch_stream *const stream = argument;
    fetch_heard(stream->fetcher);
    stream->failed_here = !blob_writer_append(stream->writer, bytes, status);
    fetch_heard(stream->fetcher);
    return !stream->failed_here;
}

static void done(void *argument, const struct status *status)
{
    struct fetch_stream *const stream = argument;
    stream->download = NULL;
    struct status failure = {0};
    struct record *record;
    enum lane lane;
    if (status->code != STATUS_OK) {
        finish(stream, fetch_failure(stream->fetcher, status));
        return;
    }
    if (!blob_writer_finish(stream->writer, &record, &lane, &failure)) {
        stream->failed_here = true;
        finish(stream, &failure);
        return;
    }
    call_over(stream);
    stream->want->state = WANT_COMMITTING;
    stream->event.run = committed;
    stream->request =
        (struct commit_request){.record = record, .local = true, .ack = {.done = on_ack}};
    commit_submit(durability_commit(stream->fetcher->config.durability, lane), &stream->request);
}

/* On the ack thread. */
static void on_ack(struct ack *ack, const struct status *result)
{
    struct fetch_stream *const stream = CONTAINER_OF(ack, struct fetch_stream, request.ack);
    stream->result = *result;
    event_loop_post(stream->fetcher->config.loop, &stream->event);
}

static void committed(struct event *event)
{
    struct fetch_stream *const stream = CONTAINER_OF(event, struct fetch_stream, event);
    stream->failed_here = stream->result.code != STATUS_OK;
    finish(stream, &stream->result);
}

static void call_over(struct fetch_stream *stream)
{
    if (!stream->over)
        fetch_call_end(stream->fetcher, &stream->call);
    stream->over = true;
}

static void finish(struct fetch_stream *stream, const struct status *result)
{
    struct fetcher *const fetcher = stream->fetcher;
    struct want *const want = stream->want;
    const struct status copy = *result;
    call_over(stream);
    fetcher->streams--;
    fetch_budget_give(fetcher, STREAM_BUDGET_BYTES);
    want->failed_here = stream->failed_here;
    blob_writer_free(stream->writer);
    buffer_release(stream->buffer);
    free(stream);
    want_end(want, &copy);
    fetcher_pump(fetcher);
}

static void cancel(struct fetch_call *call)
{
    struct fetch_stream *const stream = CONTAINER_OF(call, struct fetch_stream, call);
    stream->cancelled = true;
    if (stream->download != NULL)
        download_cancel(stream->download);
    else if (buffer_pool_cancel(stream->fetcher->store->buffers, &stream->waiter))
        event_loop_post(stream->fetcher->config.loop, &stream->event);
}
