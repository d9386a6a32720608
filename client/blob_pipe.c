/* SPDX-License-Identifier: Apache-2.0 */
#include "client/blob_pipe.h"

#include <stdlib.h>

#include "client/download.h"
#include "client/upload.h"

/*
 * What is held are the bytes of the blob from `offset` on. It ends when both sides have.
 *
 * The download may be begun again when the upload goes back, which a pipe does by cancelling it and
 * waiting for its end (restart).
 */
struct blob_pipe {
    struct blob_pipe_request request;
    struct download *download; /* its own; NULL: has ended, or is not begun */
    struct upload *upload;     /* its own; NULL: has ended */
    struct event again;        /* resumes the upload from the loop, not from inside a handler */
    bool again_posted;

    uint8_t *bytes; /* owned */
    size_t start, length, capacity;
    uint64_t offset;       /* of bytes[start] in the blob */
    uint64_t skip;         /* bytes of this download that come first and are not wanted */
    bool verified;         /* the download has ended well */
    bool restart;          /* the download is being cancelled, to be begun again */
    bool ended;            /* nothing more is started */
    struct status failure; /* the first; of `side` */
    enum blob_pipe_side side;
};

static bool begin_download(struct blob_pipe *pipe, struct status *status);
static bool take_bytes(void *argument, struct bytes bytes, struct status *status);
static bool reserve(struct blob_pipe *pipe, size_t length);
static bool has_room(void *argument);
static void download_done(void *argument, const struct status *status);
static bool is_ready(void *argument, uint64_t offset, size_t length);
static void go_back(struct blob_pipe *pipe);
static bool give_bytes(void *argument,
                       uint64_t offset,
                       uint8_t *to,
                       size_t length,
                       struct status *status);
static void drop_bytes(struct blob_pipe *pipe, size_t length);
static void upload_done(void *argument, const struct status *status, uint64_t sent_bytes);
static void post_again(struct blob_pipe *pipe);
static void run_again(struct event *event);
static void fail(struct blob_pipe *pipe, enum blob_pipe_side side, const struct status *status);
static void stop_both(struct blob_pipe *pipe);
static void end_if_idle(struct blob_pipe *pipe);

bool blob_pipe_start(const struct blob_pipe_request *request,
                     struct blob_pipe **pipe_out,
                     struct status *status)
{
    struct blob_pipe *pipe = calloc(1, sizeof(*pipe));
    if (pipe == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a blob on its way");
    pipe->request = *request;
    pipe->again.run = run_again;
    const struct upload_request upload = {
        .digest = request->digest,
        .source = {.read = give_bytes, .is_ready = is_ready, .argument = pipe},
        .loop = request->loop,
        .done = upload_done,
        .argument = pipe,
    };
    /* The upload waits for its first bytes, so nothing is in flight yet when the download cannot be begun. */
    if (!begin_download(pipe, status)) {
        free(pipe);
        return false;
    }
    if (!upload_start(request->destination, &upload, &pipe->upload, &pipe->failure)) {
        pipe->side = BLOB_PIPE_DESTINATION;
        stop_both(pipe);
    }
    *pipe_out = pipe;
    return true;
}

static bool begin_download(struct blob_pipe *pipe, struct status *status)
{
    const struct download_request request = {
        .digest = pipe->request.digest,
        .sink = {.write = take_bytes, .has_room = has_room, .argument = pipe},
        .loop = pipe->request.loop,
        .done = download_done,
        .argument = pipe,
    };
    return download_start(pipe->request.source, &request, &pipe->download, status);
}

static bool take_bytes(void *argument, struct bytes bytes, struct status *status)
{
    struct blob_pipe *pipe = argument;
    if (pipe->request.received_bytes != NULL)
        *pipe->request.received_bytes += bytes.length;
    const size_t skipped = pipe->skip < bytes.length ? (size_t)pipe->skip : bytes.length;
    pipe->skip -= skipped;
    const struct bytes wanted = bytes_of(bytes.data + skipped, bytes.length - skipped);
    if (wanted.length == 0)
        return true;
    if (!reserve(pipe, wanted.length))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a blob on its way");
    memcpy(pipe->bytes + pipe->start + pipe->length, wanted.data, wanted.length);
    pipe->length += wanted.length;
    post_again(pipe);
    return true;
}

static bool reserve(struct blob_pipe *pipe, size_t length)
{
    if (pipe->capacity - pipe->start - pipe->length >= length)
        return true;
    if (pipe->start > 0)
        memmove(pipe->bytes, pipe->bytes + pipe->start, pipe->length);
    pipe->start = 0;
    if (pipe->capacity - pipe->length >= length)
        return true;
    uint8_t *bytes = realloc(pipe->bytes, pipe->length + length);
    if (bytes == NULL)
        return false;
    pipe->bytes = bytes;
    pipe->capacity = pipe->length + length;
    return true;
}

static bool has_room(void *argument)
{
    const struct blob_pipe *pipe = argument;
    return pipe->length < BLOB_PIPE_BYTES_MAX;
}

static void download_done(void *argument, const struct status *status)
{
    struct blob_pipe *pipe = argument;
    struct status failure = *status;
    pipe->download = NULL;
    if (pipe->restart && !pipe->ended) {
        pipe->restart = false;
        pipe->verified = false;
        pipe->start = pipe->length = 0;
        pipe->skip = pipe->offset;
        failure = (struct status){0};
        if (!begin_download(pipe, &failure))
            fail(pipe, BLOB_PIPE_SOURCE, &failure);
    } else if (failure.code != STATUS_OK) {
        fail(pipe, BLOB_PIPE_SOURCE, &failure);
    } else {
        pipe->verified = true;
        post_again(pipe);
    }
    end_if_idle(pipe);
}

/* Whether the next message of the upload is here; the last one only when the whole is verified. */
static bool is_ready(void *argument, uint64_t offset, size_t length)
{
    struct blob_pipe *pipe = argument;
    if (pipe->ended || pipe->restart)
        return false;
    if (offset < pipe->offset) {
        pipe->offset = offset;
        go_back(pipe);
        return false;
    }
    const bool here = pipe->length >= length && offset - pipe->offset <= pipe->length - length;
    const bool last = offset + length == (uint64_t)pipe->request.digest.size_bytes;
    if (!here && offset > pipe->offset) {
        /* The destination has more than this pipe gave it: what lies before is of no use. */
        const uint64_t useless = offset - pipe->offset;
        const size_t held = useless < pipe->length ? (size_t)useless : pipe->length;
        drop_bytes(pipe, held);
        pipe->skip += useless - held;
        pipe->offset = offset;
        post_again(pipe);
    }
    return here && (!last || pipe->verified);
}

/* What is held lies behind what is wanted. */
static void go_back(struct blob_pipe *pipe)
{
    pipe->start = pipe->length = 0;
    pipe->restart = true;
    if (pipe->download != NULL) {
        download_cancel(pipe->download);
    } else {
        /* It has ended, and its bytes are gone: begun again from the loop. */
        post_again(pipe);
    }
}

static bool give_bytes(void *argument,
                       uint64_t offset,
                       uint8_t *to,
                       size_t length,
                       struct status *status)
{
    (void)status;
    struct blob_pipe *pipe = argument;
    ASSERT(offset >= pipe->offset && offset - pipe->offset + length <= pipe->length);
    drop_bytes(pipe, (size_t)(offset - pipe->offset));
    pipe->offset = offset;
    memcpy(to, pipe->bytes + pipe->start, length);
    drop_bytes(pipe, length);
    pipe->offset += length;
    if (pipe->request.sent_bytes != NULL)
        *pipe->request.sent_bytes += length;
    post_again(pipe);
    return true;
}

static void drop_bytes(struct blob_pipe *pipe, size_t length)
{
    pipe->start += length;
    pipe->length -= length;
    if (pipe->length == 0)
        pipe->start = 0;
}

static void upload_done(void *argument, const struct status *status, uint64_t sent_bytes)
{
    (void)sent_bytes;
    struct blob_pipe *pipe = argument;
    pipe->upload = NULL;
    if (status->code != STATUS_OK)
        fail(pipe, BLOB_PIPE_DESTINATION, status);
    /* It has it all: also when it had it before, and nobody needs the rest of the download. */
    stop_both(pipe);
    end_if_idle(pipe);
}

/* One side has moved: the other is looked after soon, and from the top. */
static void post_again(struct blob_pipe *pipe)
{
    if (pipe->again_posted || pipe->ended)
        return;
    pipe->again_posted = true;
    event_loop_post(pipe->request.loop, &pipe->again);
}

static void run_again(struct event *event)
{
    struct blob_pipe *pipe = CONTAINER_OF(event, struct blob_pipe, again);
    pipe->again_posted = false;
    if (!pipe->ended && pipe->restart && pipe->download == NULL) {
        static const struct status begun_again = {.code = STATUS_CANCELLED};
        download_done(pipe, &begun_again);
        return;
    }
    if (!pipe->ended && pipe->upload != NULL) {
        /* Its end may come from inside: the pipe stays until this is over. */
        pipe->again_posted = true;
        upload_resume(pipe->upload);
        pipe->again_posted = false;
    }
    if (!pipe->ended && !pipe->restart && pipe->download != NULL)
        download_resume(pipe->download);
    end_if_idle(pipe);
}

static void fail(struct blob_pipe *pipe, enum blob_pipe_side side, const struct status *status)
{
    if (pipe->failure.code == STATUS_OK && !pipe->ended) {
        pipe->failure = *status;
        pipe->side = side;
    }
    stop_both(pipe);
}

static void stop_both(struct blob_pipe *pipe)
{
    if (pipe->ended)
        return;
    pipe->ended = true;
    if (pipe->download != NULL)
        download_cancel(pipe->download);
    if (pipe->upload != NULL)
        upload_cancel(pipe->upload);
}

static void end_if_idle(struct blob_pipe *pipe)
{
    if (!pipe->ended || pipe->download != NULL || pipe->upload != NULL || pipe->again_posted)
        return;
    const struct blob_pipe_request request = pipe->request;
    const struct status status = pipe->failure;
    const enum blob_pipe_side side = pipe->side;
    free(pipe->bytes);
    free(pipe);
    request.done(request.argument, &status, side);
}

void blob_pipe_cancel(struct blob_pipe *pipe)
{
    struct status status = {0};
    status_fail(&status, STATUS_CANCELLED, "cancelled");
    fail(pipe, BLOB_PIPE_DESTINATION, &status);
}
