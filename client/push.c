/* SPDX-License-Identifier: Apache-2.0 */
#include "client/push.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/batch.h"
#include "client/batch_packer.h"
#include "client/digest_map.h"
#include "client/event_loop.h"
#include "client/upload.h"

/* Content that is held in memory; the walk waits while there is more. */
#define HELD_BYTES_MAX (UINT64_C(64) << 20)
/* A page is asked for when it holds that much, or has FIND_MISSING_PAGE_MAX digests. */
#define PAGE_BYTES_MAX (UINT64_C(32) << 20)

/*
 * A blob of the tree on its way. In one place at a time: a page, the queue, the packer, a batch or
 * a stream.
 */
struct item {
    struct digest digest;
    uint8_t *content; /* owned; NULL for a file that is read when it is sent */
    char *path;       /* owned; of such a file, else NULL */
    struct stat stat; /* of such a file when it was hashed */
    struct item *next;
};

struct item_queue {
    struct item *first, *last;
};

struct page {
    struct push *push;
    size_t count;
    uint64_t bytes;
    struct item *items[FIND_MISSING_PAGE_MAX];
    struct digest digests[FIND_MISSING_PAGE_MAX];
    bool missing[FIND_MISSING_PAGE_MAX];
};

struct batch {
    struct push *push;
    size_t count;
    struct item **items;      /* owned */
    struct batch_blob *blobs; /* owned */
    struct status *results;   /* owned */
};

struct stream {
    struct push *push;
    struct item *item; /* owned */
    int fd;            /* owned; -1 for content in memory */
    struct file_source source;
    struct upload *upload; /* its own */
    struct stream *next, *previous;
};

/* All of one thread: the one that pushes. */
struct push {
    struct client *client;                   /* borrowed */
    const struct capabilities *capabilities; /* borrowed */
    const struct push_observer *observer;    /* borrowed */
    struct push_counts *counts;              /* borrowed */
    int root_fd;                             /* owned */
    struct event_loop loop;
    struct digest_map seen;
    struct batch_packer *packer; /* owned; NULL: everything is streamed */
    bool walked;                 /* no more blobs will come */
    bool tree_broken;            /* there will be no root digest: what else comes is not sent */

    struct page *page; /* owned; being filled, may be NULL */
    struct item_queue to_batch, to_stream;
    struct stream *open_streams;
    size_t pages_live, batches_live, streams_live;
    uint64_t held_bytes;

    struct status failure;      /* ends the push */
    struct status first_failed; /* of the blobs that were not stored */
};

static bool push_init(struct push *push, const char *path, struct status *status);
static void push_destroy(struct push *push);
static bool visit_content(void *argument,
                          const struct digest *digest,
                          uint8_t *content,
                          struct status *status);
static bool visit_file(void *argument,
                       const struct digest *digest,
                       const char *path,
                       const struct stat *stat,
                       struct status *status);
static void visit_problem(void *argument, const struct status *problem);
static bool add_item(struct push *push,
                     const struct digest *digest,
                     uint8_t *content,
                     const char *path,
                     const struct stat *stat,
                     struct status *status);
static bool is_wanted(struct push *push,
                      const struct digest *digest,
                      const char *path,
                      bool *wanted,
                      struct status *status);
static bool add_to_page(struct push *push, struct item *item, struct status *status);
static bool make_room(struct push *push, struct status *status);
static void ask_page(struct push *push);
static void page_done(void *argument, const struct status *status);
static void finish_all(struct push *push);
static size_t calls_live(const struct push *push);
static void send_more(struct push *push);
static bool pack(struct push *push);
static void send_batch(struct push *push);
static void batch_done(void *argument, const struct status *status);
static void entry_done(struct push *push, struct item *item, const struct status *result);
static void send_stream(struct push *push, struct item *item);
static bool open_source(struct push *push, struct stream *stream, struct status *status);
static bool read_content(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status);
static void stream_done(void *argument, const struct status *status, uint64_t sent_bytes);
static void stream_free(struct stream *stream);
static void item_uploaded(struct push *push, struct item *item);
static void item_failed(struct push *push, struct item *item, const struct status *status);
static void blob_failed(struct push *push, const struct status *problem);
static void item_free(struct push *push, struct item *item);
static void queue_put(struct item_queue *queue, struct item *item);
static struct item *queue_take(struct item_queue *queue);
static void fail(struct push *push, const struct status *status);
static void fail_call(struct push *push, const char *method, const struct status *status);
static bool ends_the_push(enum status_code code);
static void progress(struct push *push);

bool push_directory(struct client *client,
                    const struct capabilities *capabilities,
                    const char *path,
                    const struct push_observer *observer,
                    struct digest *root,
                    struct push_counts *counts,
                    struct status *status)
{
    *counts = (struct push_counts){0};
    struct push push = {.client = client,
                        .capabilities = capabilities,
                        .observer = observer,
                        .counts = counts,
                        .root_fd = -1};
    if (!push_init(&push, path, status)) {
        push_destroy(&push);
        return false;
    }
    const struct tree_visitor visitor = {
        .content = visit_content, .file = visit_file, .problem = visit_problem, .argument = &push};
    struct status walk_status = {0};
    const bool walked = tree_walk(path, &visitor, root, &counts->tree, &walk_status);
    push.walked = true;
    if (!walked)
        fail(&push, &walk_status);
    finish_all(&push);
    push_destroy(&push);
    if (push.failure.code != STATUS_OK) {
        *status = push.failure;
        return false;
    }
    if (counts->failed > 0)
        return status_fail(status, push.first_failed.code, "%llu of %llu blobs were not stored",
                           (unsigned long long)counts->failed, (unsigned long long)counts->blobs);
    return true;
}

static bool push_init(struct push *push, const char *path, struct status *status)
{
    event_loop_init(&push->loop, client_clock(push->client));
    struct batch_packer_limits limits = batch_packer_limits_default();
    if (batch_packer_limits_lower(&limits, push->capabilities->batch_total_bytes_max) &&
        !batch_packer_new(&limits, &push->packer, status))
        return false;
    push->root_fd =
        open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* tree_walk() says what is wrong with it */
    return true;
}

static void push_destroy(struct push *push)
{
    ASSERT(calls_live(push) == 0);
    event_loop_destroy(&push->loop);
    batch_packer_free(push->packer);
    digest_map_destroy(&push->seen);
    if (push->root_fd >= 0)
        close(push->root_fd);
}

static bool visit_content(void *argument,
                          const struct digest *digest,
                          uint8_t *content,
                          struct status *status)
{
    return add_item(argument, digest, content, NULL, NULL, status);
}

static bool visit_file(void *argument,
                       const struct digest *digest,
                       const char *path,
                       const struct stat *stat,
                       struct status *status)
{
    return add_item(argument, digest, NULL, path, stat, status);
}

static void visit_problem(void *argument, const struct status *problem)
{
    struct push *push = argument;
    push->tree_broken = true;
    push->observer->problem(push->observer->argument, problem);
}

static bool add_item(struct push *push,
                     const struct digest *digest,
                     uint8_t *content,
                     const char *path,
                     const struct stat *stat,
                     struct status *status)
{
    bool wanted;
    if (!is_wanted(push, digest, path, &wanted, status)) {
        free(content);
        return false;
    }
    if (!wanted) {
        free(content);
        return true;
    }
    struct item *item = calloc(1, sizeof(*item));
    char *path_copy = path != NULL ? strdup(path) : NULL;
    if (item == NULL || (path != NULL && path_copy == NULL)) {
        free(item);
        free(content);
        free(path_copy);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a blob of the tree");
    }
    item->digest = *digest;
    item->content = content;
    item->path = path_copy;
    if (stat != NULL)
        item->stat = *stat;
    if (content != NULL)
        push->held_bytes += (uint64_t)digest->size_bytes;
    return add_to_page(push, item, status) && make_room(push, status);
}

/* Not the empty blob, not what came before, not once the tree is known to have no root digest. */
static bool is_wanted(struct push *push,
                      const struct digest *digest,
                      const char *path,
                      bool *wanted,
                      struct status *status)
{
    *wanted = false;
    if (digest_is_empty_blob(digest) || push->tree_broken)
        return true;
    bool is_new;
    if (digest_map_insert(&push->seen, digest, &is_new) == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for the blobs of the tree");
    if (!is_new)
        return true;
    push->counts->blobs++;
    push->counts->blob_bytes += (uint64_t)digest->size_bytes;
    struct status problem = {0};
    *wanted = capabilities_check_blob(push->capabilities, digest->size_bytes, &problem);
    if (!*wanted) {
        char text[FILE_NAME_TEXT_BYTES];
        status_prefix(&problem, "%s",
                      path != NULL ? file_name_text(path, text, sizeof(text)) : "a directory");
        blob_failed(push, &problem);
    }
    return true;
}

static bool add_to_page(struct push *push, struct item *item, struct status *status)
{
    if (push->page == NULL) {
        push->page = calloc(1, sizeof(*push->page));
        if (push->page == NULL) {
            item_free(push, item);
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for the blobs of the tree");
        }
        push->page->push = push;
    }
    struct page *page = push->page;
    page->items[page->count] = item;
    page->digests[page->count] = item->digest;
    page->count++;
    page->bytes += item->content != NULL ? (uint64_t)item->digest.size_bytes : 0;
    if (page->count == FIND_MISSING_PAGE_MAX || page->bytes >= PAGE_BYTES_MAX)
        ask_page(push);
    return true;
}

/* Lets the calls in flight go on; waits for them while too much is held. */
static bool make_room(struct push *push, struct status *status)
{
    while (event_loop_run(&push->loop, 0))
        continue;
    while (push->failure.code == STATUS_OK &&
           (push->held_bytes > HELD_BYTES_MAX || push->pages_live == PUSH_PAGES_IN_FLIGHT_MAX)) {
        if (calls_live(push) == 0 && push->page != NULL)
            ask_page(push);
        event_loop_run(&push->loop, NS_PER_S);
        send_more(push);
    }
    if (push->failure.code != STATUS_OK)
        *status = push->failure;
    return push->failure.code == STATUS_OK;
}

static void ask_page(struct push *push)
{
    struct page *page = push->page;
    push->page = NULL;
    push->counts->pages++;
    push->pages_live++;
    struct status status = {0};
    const struct batch_done done = {.done = page_done, .argument = page};
    if (!find_missing_start(push->client, &push->loop, page->digests, page->missing, page->count,
                            done, &status))
        page_done(page, &status);
}

static void page_done(void *argument, const struct status *status)
{
    struct page *page = argument;
    struct push *push = page->push;
    push->pages_live--;
    if (status->code != STATUS_OK)
        fail_call(push, "FindMissingBlobs", status);
    for (size_t i = 0; i < page->count; i++) {
        if (status->code != STATUS_OK) {
            item_free(push, page->items[i]);
        } else if (!page->missing[i]) {
            push->counts->present++;
            item_free(push, page->items[i]);
        } else {
            queue_put(&push->to_batch, page->items[i]);
        }
    }
    free(page);
    send_more(push);
    progress(push);
}

/* The rest of the way after the walk; also after a failure, when nothing more is sent. */
static void finish_all(struct push *push)
{
    if (push->page != NULL)
        ask_page(push);
    send_more(push);
    while (calls_live(push) > 0)
        event_loop_run(&push->loop, 60 * NS_PER_S);
    ASSERT(push->to_batch.first == NULL && push->to_stream.first == NULL);
}

static size_t calls_live(const struct push *push)
{
    return push->pages_live + push->batches_live + push->streams_live;
}

/* Starts as many calls as may be in flight. After a failure it drops what waits instead. */
static void send_more(struct push *push)
{
    bool more = true;
    while (more && push->failure.code == STATUS_OK) {
        more = pack(push);
        while (push->streams_live < PUSH_STREAMS_IN_FLIGHT_MAX && push->to_stream.first != NULL &&
               push->failure.code == STATUS_OK)
            send_stream(push, queue_take(&push->to_stream));
    }
    if (push->failure.code == STATUS_OK)
        return;
    size_t count = 0;
    struct item **packed =
        push->packer != NULL ? (struct item **)batch_packer_take(push->packer, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        item_free(push, packed[i]);
    free(packed);
    for (struct item *item = queue_take(&push->to_batch); item != NULL;
         item = queue_take(&push->to_batch))
        item_free(push, item);
    for (struct item *item = queue_take(&push->to_stream); item != NULL;
         item = queue_take(&push->to_stream))
        item_free(push, item);
}

/*
 * Packs what waits and sends full batches, and one that is not full once nothing can fill it any
 * more (or nothing else is in flight that would give this another turn). True when it may have more
 * to do.
 */
static bool pack(struct push *push)
{
    for (struct item *item = queue_take(&push->to_batch); item != NULL;
         item = queue_take(&push->to_batch)) {
        enum batch_verdict verdict = BATCH_TOO_LARGE;
        struct status status = {0};
        if (push->packer != NULL && item->content != NULL &&
            !batch_packer_add(push->packer, &item->digest, item, &verdict, &status)) {
            fail(push, &status);
            item_free(push, item);
            return false;
        }
        if (verdict == BATCH_FULL) {
            item->next = push->to_batch.first; /* back to the front */
            push->to_batch.first = item;
            if (push->to_batch.last == NULL)
                push->to_batch.last = item;
            if (push->batches_live == PUSH_BATCHES_IN_FLIGHT_MAX)
                return false;
            send_batch(push);
        } else if (verdict != BATCH_ADDED) {
            ASSERT(verdict == BATCH_TOO_LARGE); /* `seen` has let each digest through once */
            queue_put(&push->to_stream, item);
        }
    }
    const bool last =
        (push->walked && push->pages_live == 0 && push->page == NULL) || calls_live(push) == 0;
    if (push->packer != NULL && batch_packer_count(push->packer) > 0 && last &&
        push->batches_live < PUSH_BATCHES_IN_FLIGHT_MAX) {
        send_batch(push);
        return push->to_batch.first != NULL;
    }
    return false;
}

static void send_batch(struct push *push)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    struct status status = {0};
    size_t count;
    struct item **items = (struct item **)batch_packer_take(push->packer, &count);
    ASSERT(count > 0);
    bool ok = batch != NULL;
    if (ok) {
        *batch = (struct batch){.push = push,
                                .count = count,
                                .items = items,
                                .blobs = calloc(count, sizeof(*batch->blobs)),
                                .results = calloc(count, sizeof(*batch->results))};
        ok = batch->blobs != NULL && batch->results != NULL;
    }
    if (ok) {
        for (size_t i = 0; i < count; i++) {
            batch->blobs[i].digest = items[i]->digest;
            batch->blobs[i].data = bytes_of(items[i]->content, (size_t)items[i]->digest.size_bytes);
        }
        push->counts->batches++;
        push->batches_live++;
        const struct batch_done done = {.done = batch_done, .argument = batch};
        if (!batch_update_start(push->client, &push->loop, batch->blobs, batch->results, count,
                                done, &status))
            batch_done(batch, &status);
        return;
    }
    status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch");
    fail(push, &status);
    for (size_t i = 0; i < count; i++)
        item_free(push, items[i]);
    free(items);
    if (batch != NULL) {
        free(batch->blobs);
        free(batch->results);
        free(batch);
    }
}

static void batch_done(void *argument, const struct status *status)
{
    struct batch *batch = argument;
    struct push *push = batch->push;
    push->batches_live--;
    if (ends_the_push(status->code))
        fail_call(push, "BatchUpdateBlobs", status);
    if (status->code == STATUS_UNIMPLEMENTED && push->packer != NULL &&
        batch_packer_count(push->packer) == 0) {
        batch_packer_free(push->packer); /* everything is streamed from here on */
        push->packer = NULL;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (status->code == STATUS_OK)
            entry_done(push, batch->items[i], &batch->results[i]);
        else if (push->failure.code != STATUS_OK)
            item_free(push, batch->items[i]);
        else
            queue_put(&push->to_stream, batch->items[i]);
    }
    free(batch->items);
    free(batch->blobs);
    free(batch->results);
    free(batch);
    send_more(push);
    progress(push);
}

static void entry_done(struct push *push, struct item *item, const struct status *result)
{
    if (result->code == STATUS_OK || result->code == STATUS_ALREADY_EXISTS)
        item_uploaded(push, item);
    else if (retry_is_retryable(result->code, true))
        queue_put(&push->to_stream, item);
    else
        item_failed(push, item, result);
}

static void send_stream(struct push *push, struct item *item)
{
    struct status status = {0};
    struct stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for an upload");
        fail(push, &status);
        item_free(push, item);
        return;
    }
    stream->push = push;
    stream->item = item;
    stream->fd = -1;
    stream->next = push->open_streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    push->open_streams = stream;
    push->streams_live++;
    push->counts->streams++;

    struct upload_request request = {.digest = item->digest,
                                     .source = {.read = read_content, .argument = item},
                                     .loop = &push->loop,
                                     .done = stream_done,
                                     .argument = stream};
    bool ok = true;
    if (item->content == NULL) {
        ok = open_source(push, stream, &status);
        request.source = file_source_upload(&stream->source);
    }
    if (ok && upload_start(push->client, &request, &stream->upload, &status))
        return;
    item_failed(push, item, &status);
    stream_free(stream);
}

static bool open_source(struct push *push, struct stream *stream, struct status *status)
{
    const struct item *item = stream->item;
    if (!tree_open_file(push->root_fd, item->path, &stream->fd, status) ||
        !file_source_init(&stream->source, stream->fd, item->path, status))
        return false;
    /* From here on the file must be what it was when it was hashed. */
    const struct stat now = stream->source.stat;
    stream->source.stat = item->stat;
    if (now.st_dev != item->stat.st_dev || now.st_ino != item->stat.st_ino)
        return status_fail(status, STATUS_ABORTED, "%s: replaced while it was pushed; try again",
                           stream->source.name);
    return file_source_check(&stream->source, status);
}

static bool read_content(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status)
{
    (void)status;
    const struct item *item = argument;
    ASSERT(offset + length <= (uint64_t)item->digest.size_bytes);
    memcpy(to, item->content + offset, length);
    return true;
}

static void stream_done(void *argument, const struct status *status, uint64_t sent_bytes)
{
    (void)sent_bytes;
    struct stream *stream = argument;
    struct push *push = stream->push;
    struct item *item = stream->item;
    stream_free(stream);
    if (status->code == STATUS_OK) {
        item_uploaded(push, item);
    } else if (push->failure.code != STATUS_OK) {
        item_free(push, item);
    } else if (ends_the_push(status->code)) {
        fail_call(push, "Write", status);
        item_free(push, item);
    } else {
        item_failed(push, item, status);
    }
    send_more(push);
    progress(push);
}

static void stream_free(struct stream *stream)
{
    struct push *push = stream->push;
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        push->open_streams = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    push->streams_live--;
    file_source_destroy(&stream->source);
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream);
}

static void item_uploaded(struct push *push, struct item *item)
{
    push->counts->uploaded++;
    push->counts->uploaded_bytes += (uint64_t)item->digest.size_bytes;
    item_free(push, item);
}

static void item_failed(struct push *push, struct item *item, const struct status *status)
{
    struct status problem = *status;
    char text[FILE_NAME_TEXT_BYTES], digest[DIGEST_TEXT_BYTES_MAX];
    digest_text(&item->digest, digest);
    if (item->path != NULL && strstr(problem.message, item->path) == NULL)
        status_prefix(&problem, "%s (%s)", file_name_text(item->path, text, sizeof(text)), digest);
    else
        status_prefix(&problem, "%s", digest);
    blob_failed(push, &problem);
    item_free(push, item);
}

static void blob_failed(struct push *push, const struct status *problem)
{
    push->counts->failed++;
    if (push->first_failed.code == STATUS_OK)
        push->first_failed = *problem;
    push->observer->problem(push->observer->argument, problem);
}

static void item_free(struct push *push, struct item *item)
{
    if (item->content != NULL)
        push->held_bytes -= (uint64_t)item->digest.size_bytes;
    free(item->content);
    free(item->path);
    free(item);
}

static void queue_put(struct item_queue *queue, struct item *item)
{
    item->next = NULL;
    if (queue->last == NULL)
        queue->first = item;
    else
        queue->last->next = item;
    queue->last = item;
}

static struct item *queue_take(struct item_queue *queue)
{
    struct item *item = queue->first;
    if (item == NULL)
        return NULL;
    queue->first = item->next;
    if (queue->first == NULL)
        queue->last = NULL;
    return item;
}

/* The first failure ends the push: nothing more is sent, and streams on their way are cut. */
static void fail(struct push *push, const struct status *status)
{
    if (push->failure.code != STATUS_OK)
        return;
    push->failure = *status;
    for (struct stream *stream = push->open_streams; stream != NULL; stream = stream->next) {
        if (stream->upload != NULL)
            upload_cancel(stream->upload);
    }
}

static void fail_call(struct push *push, const char *method, const struct status *status)
{
    struct status failure = *status;
    status_prefix(&failure, "%s", method);
    fail(push, &failure);
}

/* After all tries: what every other blob would meet as well. */
static bool ends_the_push(enum status_code code)
{
    return code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED ||
           code == STATUS_PERMISSION_DENIED || code == STATUS_UNAUTHENTICATED;
}

static void progress(struct push *push)
{
    push->observer->progress(push->observer->argument, push->counts);
}
