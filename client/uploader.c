/* SPDX-License-Identifier: Apache-2.0 */
#include "client/uploader.h"

#include <stdlib.h>
#include <unistd.h>

#include "client/batch.h"
#include "client/digest_map.h"
#include "client/event_loop.h"
#include "client/file_source.h"
#include "client/upload.h"

/*
 * A page is asked for when it holds that much content, or has FIND_MISSING_PAGE_MAX digests; or
 * half-full, or less, when there is nothing else to send and the last answer had something missing:
 * then the first batches go while the rest is read.
 */
#define PAGE_BYTES_MAX (UINT64_C(32) << 20)
#define PAGE_BYTES_EAGER (UINT64_C(4) << 20)

/*
 * A blob on its way. In one place at a time: a page, a queue, the packer, a batch or a stream.
 */
struct item {
    struct digest digest;
    uint8_t *content;  /* owned; NULL for a file that is read when it is sent */
    char *name;        /* owned; of such a file its path */
    struct stat *stat; /* owned; of such a file when it was hashed, else NULL */
    bool was_sent;     /* by a batch whose answer said nothing of it */
    struct item *next;
};

struct item_queue {
    struct item *first, *last;
    size_t count;
};

struct page {
    struct uploader *uploader;
    struct unary *call;
    struct page *next, *previous;
    size_t count, capacity;
    uint64_t bytes;
    struct item **items;    /* owned */
    struct digest *digests; /* owned */
    bool *missing;          /* owned; set when it is asked */
};

struct batch {
    struct uploader *uploader;
    struct unary *call;
    struct batch *next, *previous;
    size_t count;
    uint64_t bytes;           /* of the request, about */
    struct item **items;      /* owned */
    struct batch_blob *blobs; /* owned */
    struct status *results;   /* owned */
};

struct stream {
    struct uploader *uploader;
    struct item *item; /* owned */
    int fd;            /* owned; -1 for content in memory */
    struct file_source source;
    struct upload_source from; /* the file, or the content */
    uint64_t message_bytes;    /* what it counts in flight */
    struct upload *upload;     /* its own; NULL while it is being started */
    struct stream *next, *previous;
};

/* All of one thread. */
struct uploader {
    struct uploader_config config;
    struct event_loop own_loop;
    struct event_loop *loop; /* its own, or borrowed */
    struct uploader_counts counts;
    struct digest_map seen;
    struct batch_packer *packer; /* owned; NULL: everything is streamed */
    bool batches_refused;        /* the server has none: no more are made */
    bool all_given;              /* no more blobs will come */

    struct page *page;   /* owned; being filled, may be NULL */
    bool expect_missing; /* of the next page: as the last one turned out */
    struct item_queue to_batch, to_stream;
    struct page *pages;     /* in flight */
    struct batch *batches;  /* in flight */
    struct stream *streams; /* in flight */
    size_t pages_live, batches_live, streams_live;
    uint64_t held_bytes;   /* content of all items */
    uint64_t flight_bytes; /* of batches and streams in flight */

    struct status failure;      /* ends it */
    struct status first_failed; /* of the blobs that were not stored */
};

static bool is_wanted(struct uploader *uploader,
                      const struct digest *digest,
                      const char *name,
                      bool *wanted,
                      struct status *status);
static struct item *item_new(struct uploader *uploader,
                             const struct digest *digest,
                             uint8_t *content,
                             const char *name,
                             const struct stat *stat,
                             struct status *status);
static bool add_item(struct uploader *uploader,
                     const struct digest *digest,
                     uint8_t *content,
                     const char *name,
                     const struct stat *stat,
                     struct status *status);
static bool add_to_page(struct uploader *uploader, struct item *item, struct status *status);
static bool page_reserve(struct uploader *uploader);
static void page_free(struct page *page);
static bool make_room(struct uploader *uploader, struct status *status);
static bool has_too_much(const struct uploader *uploader);
static void ask_page(struct uploader *uploader);
static void page_done(void *argument, const struct status *status);
static void page_entry_done(struct uploader *uploader, struct item *item, bool missing);
static size_t calls_live(const struct uploader *uploader);
static void send_more(struct uploader *uploader);
static void abandon_waiting(struct uploader *uploader);
static bool pack(struct uploader *uploader);
static void unpack(struct uploader *uploader);
static bool may_send_batch(const struct uploader *uploader);
static bool may_send_stream(const struct uploader *uploader);
static void send_batch(struct uploader *uploader);
static bool batch_fill(struct batch *batch);
static void batch_done(void *argument, const struct status *status);
static void batch_free(struct batch *batch);
static void entry_done(struct uploader *uploader, struct item *item, const struct status *result);
static void send_stream(struct uploader *uploader, struct item *item);
static bool open_source(struct stream *stream, struct status *status);
static bool read_counted(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status);
static bool read_content(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status);
static void stream_done(void *argument, const struct status *status, uint64_t sent_bytes);
static void stream_free(struct stream *stream);
static void item_failed(struct uploader *uploader, struct item *item, const struct status *status);
static void item_ended(struct uploader *uploader, struct item *item, enum uploader_outcome outcome);
static void account(struct uploader *uploader,
                    const struct digest *digest,
                    enum uploader_outcome outcome);
static void report(struct uploader *uploader, const struct status *problem);
static void progress(const struct uploader *uploader);
static void queue_put(struct item_queue *queue, struct item *item);
static void queue_put_back(struct item_queue *queue, struct item *item);
static struct item *queue_take(struct item_queue *queue);
static void fail_call(struct uploader *uploader, const char *method, const struct status *status);
static bool is_of_all(enum status_code code);
static bool no_memory(struct status *status);

struct uploader_config uploader_config_default(void)
{
    return (struct uploader_config){
        .limits = batch_packer_limits_default(),
        .batches_in_flight_max = UPLOADER_BATCHES_IN_FLIGHT_MAX,
        .streams_in_flight_max = UPLOADER_STREAMS_IN_FLIGHT_MAX,
    };
}

bool uploader_new(const struct uploader_config *config,
                  struct uploader **uploader_out,
                  struct status *status)
{
    ASSERT(config->batches_in_flight_max > 0 && config->streams_in_flight_max > 0);
    struct uploader *uploader = calloc(1, sizeof(*uploader));
    if (uploader == NULL)
        return no_memory(status);
    uploader->config = *config;
    uploader->expect_missing = true;
    event_loop_init(&uploader->own_loop, client_clock(config->client));
    uploader->loop = config->loop != NULL ? config->loop : &uploader->own_loop;
    struct batch_packer_limits limits = config->limits;
    if (batch_packer_limits_lower(&limits, config->capabilities->batch_total_bytes_max) &&
        !batch_packer_new(&limits, &uploader->packer, status)) {
        uploader_free(uploader);
        return false;
    }
    *uploader_out = uploader;
    return true;
}

void uploader_free(struct uploader *uploader)
{
    if (uploader == NULL)
        return;
    ASSERT(calls_live(uploader) == 0 && uploader->page == NULL);
    ASSERT(uploader->held_bytes == 0 && uploader->flight_bytes == 0);
    event_loop_destroy(&uploader->own_loop);
    batch_packer_free(uploader->packer);
    digest_map_destroy(&uploader->seen);
    free(uploader);
}

const struct uploader_counts *uploader_counts(const struct uploader *uploader)
{
    return &uploader->counts;
}

bool uploader_add_content(struct uploader *uploader,
                          const struct digest *digest,
                          uint8_t *content,
                          const char *name,
                          struct status *status)
{
    bool wanted = false;
    const bool ok = is_wanted(uploader, digest, name, &wanted, status);
    if (ok && wanted)
        return add_item(uploader, digest, content, name, NULL, status);
    free(content);
    return ok;
}

bool uploader_add_missing(struct uploader *uploader,
                          const struct digest *digest,
                          uint8_t *content,
                          const char *name,
                          struct status *status)
{
    bool wanted = false;
    const bool ok = is_wanted(uploader, digest, name, &wanted, status);
    if (!ok || !wanted) {
        free(content);
        return ok;
    }
    struct item *item = item_new(uploader, digest, content, name, NULL, status);
    if (item == NULL)
        return false;
    queue_put(&uploader->to_batch, item);
    send_more(uploader);
    return make_room(uploader, status);
}

bool uploader_add_file(struct uploader *uploader,
                       const struct digest *digest,
                       const char *path,
                       const struct stat *stat,
                       struct status *status)
{
    bool wanted = false;
    const bool ok = is_wanted(uploader, digest, path, &wanted, status);
    return ok && (!wanted || add_item(uploader, digest, NULL, path, stat, status));
}

/* Not the empty blob, not what came before, not what the server would refuse for its size. */
static bool is_wanted(struct uploader *uploader,
                      const struct digest *digest,
                      const char *name,
                      bool *wanted,
                      struct status *status)
{
    if (uploader->failure.code != STATUS_OK) {
        *status = uploader->failure;
        return false;
    }
    if (digest_is_empty_blob(digest))
        return true;
    bool is_new;
    if (digest_map_insert(&uploader->seen, digest, &is_new) == NULL) {
        uploader->counts.blobs++;
        account(uploader, digest, UPLOADER_ABANDONED);
        return no_memory(status);
    }
    if (!is_new)
        return true;
    uploader->counts.blobs++;
    uploader->counts.blob_bytes += (uint64_t)digest->size_bytes;
    struct status problem = {0};
    *wanted = capabilities_check_blob(uploader->config.capabilities, digest->size_bytes, &problem);
    if (!*wanted) {
        char text[FILE_NAME_TEXT_BYTES];
        status_prefix(&problem, "%s", file_name_text(name, text, sizeof(text)));
        report(uploader, &problem);
        account(uploader, digest, UPLOADER_FAILED);
    }
    return true;
}

static bool add_item(struct uploader *uploader,
                     const struct digest *digest,
                     uint8_t *content,
                     const char *name,
                     const struct stat *stat,
                     struct status *status)
{
    struct item *item = item_new(uploader, digest, content, name, stat, status);
    return item != NULL && add_to_page(uploader, item, status) && make_room(uploader, status);
}

/* A new one: it is accounted from here on, also when it is NULL. content: handed over. */
static struct item *item_new(struct uploader *uploader,
                             const struct digest *digest,
                             uint8_t *content,
                             const char *name,
                             const struct stat *stat,
                             struct status *status)
{
    struct item *item = calloc(1, sizeof(*item));
    char *name_copy = strdup(name);
    struct stat *stat_copy = stat != NULL ? malloc(sizeof(*stat_copy)) : NULL;
    if (item == NULL || name_copy == NULL || (stat != NULL && stat_copy == NULL)) {
        free(item);
        free(name_copy);
        free(stat_copy);
        free(content);
        account(uploader, digest, UPLOADER_ABANDONED);
        no_memory(status);
        return NULL;
    }
    item->digest = *digest;
    item->content = content;
    item->name = name_copy;
    item->stat = stat_copy;
    if (stat != NULL)
        *stat_copy = *stat;
    if (content != NULL)
        uploader->held_bytes += (uint64_t)digest->size_bytes;
    if (uploader->held_bytes > uploader->counts.held_bytes_peak)
        uploader->counts.held_bytes_peak = uploader->held_bytes;
    return item;
}

/* The item is accounted also on false. */
static bool add_to_page(struct uploader *uploader, struct item *item, struct status *status)
{
    if (!page_reserve(uploader)) {
        item_ended(uploader, item, UPLOADER_ABANDONED);
        return no_memory(status);
    }
    struct page *page = uploader->page;
    page->items[page->count] = item;
    page->digests[page->count++] = item->digest;
    page->bytes += item->content != NULL ? (uint64_t)item->digest.size_bytes : 0;
    const bool idle = uploader->pages_live == 0 && uploader->batches_live == 0 &&
                      uploader->to_batch.first == NULL;
    if (page->count == FIND_MISSING_PAGE_MAX || page->bytes >= PAGE_BYTES_MAX ||
        (page->bytes >= PAGE_BYTES_EAGER && idle && uploader->expect_missing))
        ask_page(uploader);
    return true;
}

static bool page_reserve(struct uploader *uploader)
{
    if (uploader->page == NULL) {
        uploader->page = calloc(1, sizeof(*uploader->page));
        if (uploader->page == NULL)
            return false;
        uploader->page->uploader = uploader;
    }
    struct page *page = uploader->page;
    if (page->count < page->capacity)
        return true;
    const size_t capacity = page->capacity == 0 ? 256 : page->capacity * 2;
    struct item **items = realloc(page->items, capacity * sizeof(*items));
    if (items != NULL)
        page->items = items;
    struct digest *digests = realloc(page->digests, capacity * sizeof(*digests));
    if (digests != NULL)
        page->digests = digests;
    if (items == NULL || digests == NULL)
        return false;
    page->capacity = capacity;
    return true;
}

static void page_free(struct page *page)
{
    free(page->items);
    free(page->digests);
    free(page->missing);
    free(page);
}

/* Lets the calls in flight go on; waits for them while there is too much of anything. */
static bool make_room(struct uploader *uploader, struct status *status)
{
    uploader_poll(uploader);
    while (uploader->failure.code == STATUS_OK && has_too_much(uploader)) {
        if (calls_live(uploader) == 0 && uploader->page != NULL)
            ask_page(uploader);
        event_loop_run(uploader->loop, NS_PER_S);
        send_more(uploader);
        progress(uploader);
    }
    if (uploader->failure.code != STATUS_OK)
        *status = uploader->failure;
    return uploader->failure.code == STATUS_OK;
}

static bool has_too_much(const struct uploader *uploader)
{
    return uploader->held_bytes > UPLOADER_HELD_BYTES_MAX ||
           uploader->pages_live >= UPLOADER_PAGES_IN_FLIGHT_MAX ||
           uploader->to_batch.count + uploader->to_stream.count > UPLOADER_WAITING_MAX;
}

void uploader_poll(struct uploader *uploader)
{
    while (event_loop_run(uploader->loop, 0))
        continue;
}

static void ask_page(struct uploader *uploader)
{
    struct page *page = uploader->page;
    uploader->page = NULL;
    uploader->counts.pages++;
    uploader->pages_live++;
    page->next = uploader->pages;
    if (page->next != NULL)
        page->next->previous = page;
    uploader->pages = page;
    struct status status = {0};
    page->missing = calloc(page->count, sizeof(*page->missing));
    if (page->missing == NULL) {
        no_memory(&status);
        page_done(page, &status);
        return;
    }
    const struct batch_done done = {.done = page_done, .argument = page, .call = &page->call};
    if (!find_missing_start(uploader->config.client, uploader->loop, page->digests, page->missing,
                            page->count, done, &status))
        page_done(page, &status);
}

static void page_done(void *argument, const struct status *status)
{
    struct page *page = argument;
    struct uploader *uploader = page->uploader;
    uploader->pages_live--;
    if (page->previous != NULL)
        page->previous->next = page->next;
    else
        uploader->pages = page->next;
    if (page->next != NULL)
        page->next->previous = page->previous;
    if (status->code != STATUS_OK)
        fail_call(uploader, "FindMissingBlobs", status);
    size_t missing = 0;
    for (size_t i = 0; i < page->count; i++) {
        if (status->code != STATUS_OK) {
            item_ended(uploader, page->items[i], UPLOADER_ABANDONED);
            continue;
        }
        ASSERT(page->missing != NULL);
        missing += page->missing[i];
        page_entry_done(uploader, page->items[i], page->missing[i]);
    }
    uploader->expect_missing = missing > 0;
    page_free(page);
    send_more(uploader);
    progress(uploader);
}

static void page_entry_done(struct uploader *uploader, struct item *item, bool missing)
{
    if (!missing)
        item_ended(uploader, item, item->was_sent ? UPLOADER_UPLOADED : UPLOADER_PRESENT);
    else
        queue_put(item->was_sent ? &uploader->to_stream : &uploader->to_batch, item);
}

void uploader_fail(struct uploader *uploader, const struct status *why)
{
    ASSERT(why->code != STATUS_OK);
    if (uploader->failure.code != STATUS_OK)
        return;
    uploader->failure = *why;
    for (struct page *page = uploader->pages; page != NULL; page = page->next)
        unary_stop_trying(page->call);
    for (struct batch *batch = uploader->batches; batch != NULL; batch = batch->next)
        unary_stop_trying(batch->call);
    for (struct stream *stream = uploader->streams; stream != NULL; stream = stream->next) {
        if (stream->upload != NULL)
            upload_stop_trying(stream->upload);
    }
}

bool uploader_failed(const struct uploader *uploader, struct status *why)
{
    const bool failed = uploader->failure.code != STATUS_OK;
    if (failed && why != NULL)
        *why = uploader->failure;
    return failed;
}

bool uploader_finish(struct uploader *uploader, struct status *status)
{
    struct uploader_counts *counts = &uploader->counts;
    uploader->all_given = true;
    send_more(uploader);
    for (;;) {
        /* One may have come back to be asked for again. */
        if (uploader->page != NULL && uploader->pages_live < UPLOADER_PAGES_IN_FLIGHT_MAX)
            ask_page(uploader);
        if (calls_live(uploader) == 0)
            break;
        event_loop_run(uploader->loop, NS_PER_S);
        progress(uploader);
    }
    ASSERT(uploader->page == NULL);
    ASSERT(uploader->to_batch.first == NULL && uploader->to_stream.first == NULL);
    ASSERT(counts->blobs ==
           counts->present + counts->uploaded + counts->failed + counts->abandoned);
    if (uploader->failure.code != STATUS_OK) {
        *status = uploader->failure;
        return false;
    }
    ASSERT(counts->abandoned == 0);
    if (counts->failed > 0)
        return status_fail(status, uploader->first_failed.code,
                           "%llu of %llu blobs were not stored", (unsigned long long)counts->failed,
                           (unsigned long long)counts->blobs);
    return true;
}

static size_t calls_live(const struct uploader *uploader)
{
    return uploader->pages_live + uploader->batches_live + uploader->streams_live;
}

/* Starts as many calls as may be in flight. After a failure it drops what waits instead. */
static void send_more(struct uploader *uploader)
{
    bool more = true;
    while (more && uploader->failure.code == STATUS_OK) {
        more = pack(uploader);
        while (may_send_stream(uploader) && uploader->failure.code == STATUS_OK)
            send_stream(uploader, queue_take(&uploader->to_stream));
    }
    if (uploader->failure.code != STATUS_OK)
        abandon_waiting(uploader);
}

static void abandon_waiting(struct uploader *uploader)
{
    size_t count = 0;
    struct item **packed = NULL;
    if (uploader->packer != NULL)
        packed = (struct item **)batch_packer_take(uploader->packer, &count);
    for (size_t i = 0; i < count; i++)
        item_ended(uploader, packed[i], UPLOADER_ABANDONED);
    free(packed);
    struct item_queue *const queues[] = {&uploader->to_batch, &uploader->to_stream};
    for (size_t i = 0; i < ARRAY_LENGTH(queues); i++) {
        for (struct item *item = queue_take(queues[i]); item != NULL; item = queue_take(queues[i]))
            item_ended(uploader, item, UPLOADER_ABANDONED);
    }
    struct page *page = uploader->page;
    uploader->page = NULL;
    if (page == NULL)
        return;
    for (size_t i = 0; i < page->count; i++)
        item_ended(uploader, page->items[i], UPLOADER_ABANDONED);
    page_free(page);
}

/*
 * Packs what waits and sends full batches, and one that is not full once nothing can fill it any
 * more (or nothing else is in flight that would give this another turn). True when it may have more
 * to do.
 */
static bool pack(struct uploader *uploader)
{
    if (uploader->batches_refused)
        unpack(uploader);
    for (struct item *item = queue_take(&uploader->to_batch); item != NULL;
         item = queue_take(&uploader->to_batch)) {
        enum batch_verdict verdict = BATCH_TOO_LARGE;
        struct status status = {0};
        if (uploader->packer != NULL && !uploader->batches_refused && item->content != NULL &&
            !batch_packer_add(uploader->packer, &item->digest, item, &verdict, &status)) {
            uploader_fail(uploader, &status);
            item_ended(uploader, item, UPLOADER_ABANDONED);
            return false;
        }
        if (verdict == BATCH_FULL) {
            queue_put_back(&uploader->to_batch, item);
            if (!may_send_batch(uploader))
                return false;
            send_batch(uploader);
        } else if (verdict != BATCH_ADDED) {
            ASSERT(verdict == BATCH_TOO_LARGE); /* `seen` has let each digest through once */
            queue_put(&uploader->to_stream, item);
        }
    }
    const bool last =
        (uploader->all_given && uploader->pages_live == 0 && uploader->page == NULL) ||
        calls_live(uploader) == 0;
    if (uploader->packer != NULL && batch_packer_count(uploader->packer) > 0 && last &&
        may_send_batch(uploader)) {
        send_batch(uploader);
        return uploader->to_batch.first != NULL;
    }
    return false;
}

/* There are no batches any more: what was packed is streamed. */
static void unpack(struct uploader *uploader)
{
    size_t count;
    struct item **items = (struct item **)batch_packer_take(uploader->packer, &count);
    for (size_t i = 0; i < count; i++)
        queue_put(&uploader->to_stream, items[i]);
    free(items);
}

static bool may_send_batch(const struct uploader *uploader)
{
    return uploader->batches_live == 0 ||
           (uploader->batches_live < uploader->config.batches_in_flight_max &&
            uploader->flight_bytes + uploader->config.limits.batch_bytes_max <=
                UPLOADER_FLIGHT_BYTES_MAX);
}

static bool may_send_stream(const struct uploader *uploader)
{
    if (uploader->to_stream.first == NULL)
        return false;
    return uploader->streams_live == 0 ||
           (uploader->streams_live < uploader->config.streams_in_flight_max &&
            uploader->flight_bytes + UPLOAD_MESSAGE_BYTES <= UPLOADER_FLIGHT_BYTES_MAX);
}

static void send_batch(struct uploader *uploader)
{
    struct status status = {0};
    size_t count;
    struct item **items = (struct item **)batch_packer_take(uploader->packer, &count);
    ASSERT(count > 0);
    struct batch *batch = calloc(1, sizeof(*batch));
    if (batch != NULL)
        *batch = (struct batch){.uploader = uploader, .items = items, .count = count};
    if (batch == NULL || !batch_fill(batch)) {
        no_memory(&status);
        uploader_fail(uploader, &status);
        for (size_t i = 0; i < count; i++)
            item_ended(uploader, items[i], UPLOADER_ABANDONED);
        if (batch != NULL)
            batch_free(batch);
        else
            free(items);
        return;
    }
    uploader->counts.batches++;
    uploader->batches_live++;
    uploader->flight_bytes += batch->bytes;
    batch->next = uploader->batches;
    if (batch->next != NULL)
        batch->next->previous = batch;
    uploader->batches = batch;
    const struct batch_done done = {.done = batch_done, .argument = batch, .call = &batch->call};
    if (!batch_update_start(uploader->config.client, uploader->loop, batch->blobs, batch->results,
                            count, done, &status))
        batch_done(batch, &status);
}

static bool batch_fill(struct batch *batch)
{
    batch->blobs = calloc(batch->count, sizeof(*batch->blobs));
    batch->results = calloc(batch->count, sizeof(*batch->results));
    if (batch->blobs == NULL || batch->results == NULL)
        return false;
    for (size_t i = 0; i < batch->count; i++) {
        const struct item *item = batch->items[i];
        batch->blobs[i].digest = item->digest;
        batch->blobs[i].data = bytes_of(item->content, (size_t)item->digest.size_bytes);
        batch->bytes += batch_update_entry_bytes(&item->digest);
    }
    return true;
}

static void batch_done(void *argument, const struct status *status)
{
    struct batch *batch = argument;
    struct uploader *uploader = batch->uploader;
    uploader->batches_live--;
    uploader->flight_bytes -= batch->bytes;
    if (batch->previous != NULL)
        batch->previous->next = batch->next;
    else
        uploader->batches = batch->next;
    if (batch->next != NULL)
        batch->next->previous = batch->previous;

    if (status->code == STATUS_PERMISSION_DENIED || status->code == STATUS_UNAUTHENTICATED)
        fail_call(uploader, "BatchUpdateBlobs", status);
    if (status->code == STATUS_UNIMPLEMENTED)
        uploader->batches_refused = true;
    for (size_t i = 0; i < batch->count; i++) {
        struct item *item = batch->items[i];
        if (status->code == STATUS_OK)
            entry_done(uploader, item, &batch->results[i]);
        else if (uploader->failure.code != STATUS_OK)
            item_ended(uploader, item, UPLOADER_ABANDONED);
        else
            queue_put(&uploader->to_stream, item);
    }
    batch_free(batch);
    send_more(uploader);
    progress(uploader);
}

static void batch_free(struct batch *batch)
{
    free(batch->items);
    free(batch->blobs);
    free(batch->results);
    free(batch);
}

static void entry_done(struct uploader *uploader, struct item *item, const struct status *result)
{
    struct status status = {0};
    uploader->counts.sent_bytes += (uint64_t)item->digest.size_bytes;
    if (result->code == STATUS_OK || result->code == STATUS_ALREADY_EXISTS) {
        item_ended(uploader, item, UPLOADER_UPLOADED);
    } else if (!retry_is_retryable(result->code, true)) {
        item_failed(uploader, item, result);
    } else if (uploader->failure.code != STATUS_OK) {
        item_ended(uploader, item, UPLOADER_ABANDONED);
    } else if (result->code == STATUS_UNKNOWN) {
        item->was_sent = true;
        if (!add_to_page(uploader, item, &status))
            uploader_fail(uploader, &status);
    } else {
        queue_put(&uploader->to_stream, item);
    }
}

static void send_stream(struct uploader *uploader, struct item *item)
{
    struct status status = {0};
    struct stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        no_memory(&status);
        uploader_fail(uploader, &status);
        item_ended(uploader, item, UPLOADER_ABANDONED);
        return;
    }
    stream->uploader = uploader;
    stream->item = item;
    stream->fd = -1;
    stream->from = (struct upload_source){.read = read_content, .argument = item};
    stream->message_bytes = (uint64_t)item->digest.size_bytes < UPLOAD_MESSAGE_BYTES
                                ? (uint64_t)item->digest.size_bytes
                                : UPLOAD_MESSAGE_BYTES;
    stream->next = uploader->streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    uploader->streams = stream;
    uploader->streams_live++;
    uploader->flight_bytes += stream->message_bytes;
    uploader->counts.streams++;

    const struct upload_request request = {.digest = item->digest,
                                           .source = {.read = read_counted, .argument = stream},
                                           .loop = uploader->loop,
                                           .done = stream_done,
                                           .argument = stream};
    if ((item->content != NULL || open_source(stream, &status)) &&
        upload_start(uploader->config.client, &request, &stream->upload, &status))
        return;
    stream_free(stream);
    item_failed(uploader, item, &status);
}

static bool open_source(struct stream *stream, struct status *status)
{
    const struct uploader_config *config = &stream->uploader->config;
    const struct item *item = stream->item;
    if (!config->open_file(config->open_argument, item->name, &stream->fd, status) ||
        !file_source_init(&stream->source, stream->fd, item->name, status))
        return false;
    /* From here on the file must be what it was when it was hashed. */
    const struct stat now = stream->source.stat;
    stream->source.stat = *item->stat;
    stream->from = file_source_upload(&stream->source);
    if (now.st_dev != item->stat->st_dev || now.st_ino != item->stat->st_ino)
        return status_fail(status, STATUS_ABORTED, "%s: replaced while it was pushed; try again",
                           stream->source.name);
    return file_source_check(&stream->source, status);
}

static bool read_counted(void *argument,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status)
{
    struct stream *stream = argument;
    if (!stream->from.read(stream->from.argument, offset, to, length, status))
        return false;
    stream->uploader->counts.sent_bytes += length;
    progress(stream->uploader);
    return true;
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
    struct uploader *uploader = stream->uploader;
    struct item *item = stream->item;
    stream_free(stream);
    if (status->code == STATUS_OK) {
        item_ended(uploader, item, UPLOADER_UPLOADED);
    } else if (is_of_all(status->code)) {
        fail_call(uploader, "Write", status);
        item_ended(uploader, item, UPLOADER_ABANDONED);
    } else if (status->code == STATUS_CANCELLED && uploader->failure.code != STATUS_OK) {
        item_ended(uploader, item, UPLOADER_ABANDONED);
    } else {
        item_failed(uploader, item, status);
    }
    send_more(uploader);
    progress(uploader);
}

static void stream_free(struct stream *stream)
{
    struct uploader *uploader = stream->uploader;
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        uploader->streams = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    uploader->streams_live--;
    uploader->flight_bytes -= stream->message_bytes;
    file_source_destroy(&stream->source);
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream);
}

static void item_failed(struct uploader *uploader, struct item *item, const struct status *status)
{
    struct status problem = *status;
    char name[FILE_NAME_TEXT_BYTES], digest[DIGEST_TEXT_BYTES_MAX];
    file_name_text(item->name, name, sizeof(name));
    digest_text(&item->digest, digest);
    /* What is wrong with a file begins with its name already. */
    if (strncmp(problem.message, name, strlen(name)) != 0)
        status_prefix(&problem, "%s (%s)", name, digest);
    report(uploader, &problem);
    item_ended(uploader, item, UPLOADER_FAILED);
}

static void item_ended(struct uploader *uploader, struct item *item, enum uploader_outcome outcome)
{
    account(uploader, &item->digest, outcome);
    if (item->content != NULL)
        uploader->held_bytes -= (uint64_t)item->digest.size_bytes;
    free(item->content);
    free(item->name);
    free(item->stat);
    free(item);
}

static void account(struct uploader *uploader,
                    const struct digest *digest,
                    enum uploader_outcome outcome)
{
    struct uploader_counts *counts = &uploader->counts;
    const struct uploader_observer *observer = &uploader->config.observer;
    switch (outcome) {
    case UPLOADER_PRESENT:
        counts->present++;
        counts->present_bytes += (uint64_t)digest->size_bytes;
        break;
    case UPLOADER_UPLOADED:
        counts->uploaded++;
        counts->uploaded_bytes += (uint64_t)digest->size_bytes;
        break;
    case UPLOADER_FAILED:
        counts->failed++;
        break;
    case UPLOADER_ABANDONED:
        counts->abandoned++;
        break;
    }
    if (observer->ended != NULL)
        observer->ended(observer->argument, digest, outcome);
}

static void report(struct uploader *uploader, const struct status *problem)
{
    if (uploader->first_failed.code == STATUS_OK)
        uploader->first_failed = *problem;
    uploader->config.observer.problem(uploader->config.observer.argument, problem);
}

static void progress(const struct uploader *uploader)
{
    uploader->config.observer.progress(uploader->config.observer.argument);
}

static void queue_put(struct item_queue *queue, struct item *item)
{
    item->next = NULL;
    if (queue->last == NULL)
        queue->first = item;
    else
        queue->last->next = item;
    queue->last = item;
    queue->count++;
}

static void queue_put_back(struct item_queue *queue, struct item *item)
{
    item->next = queue->first;
    queue->first = item;
    if (queue->last == NULL)
        queue->last = item;
    queue->count++;
}

static struct item *queue_take(struct item_queue *queue)
{
    struct item *item = queue->first;
    if (item == NULL)
        return NULL;
    queue->first = item->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->count--;
    return item;
}

static void fail_call(struct uploader *uploader, const char *method, const struct status *status)
{
    struct status failure = *status;
    status_prefix(&failure, "%s", method);
    uploader_fail(uploader, &failure);
}

/* Of one stream, after all its tries: what every other blob would meet as well. */
static bool is_of_all(enum status_code code)
{
    return code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED ||
           code == STATUS_PERMISSION_DENIED || code == STATUS_UNAUTHENTICATED;
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the blobs to upload");
}
