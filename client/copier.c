/* SPDX-License-Identifier: Apache-2.0 */
#include "client/copier.h"

#include <stdlib.h>

#include "client/batch.h"
#include "client/blob_pipe.h"
#include "client/digest_map.h"
#include "client/downloader.h"
#include "client/uploader.h"

enum {
    PAGE_DIGESTS = 5000, /* so that the first blobs travel while the rest is asked for */
    PAGES_IN_FLIGHT_MAX = 2,
    WAITING_MAX = 40000, /* missing blobs that are not being fetched yet; 3 MiB of digests */
    FETCHING_MAX = 20000,
};
/* What a blob that is streamed through counts in flight: what its pipe holds, and messages. */
#define PIPE_FLIGHT_BYTES (2 * BLOB_PIPE_BYTES_MAX)

/* Digests in the order in which they came. */
struct digest_queue {
    struct digest *digests; /* owned; a ring */
    size_t first, count, capacity;
};

struct page {
    struct copier *copier;
    struct unary *call;
    struct page *next;
    size_t count;
    struct digest digests[PAGE_DIGESTS];
    bool missing[PAGE_DIGESTS];
};

/* A small blob: fetched, and then handed to the uploader. */
struct small {
    struct copier *copier;
    struct digest digest;
    uint8_t *content; /* owned; NULL before its first byte */
    size_t length;
    struct small *next; /* of those that are fetched and not handed over */
};

struct large {
    struct copier *copier;
    struct digest digest;
    struct blob_pipe *pipe; /* its own */
    struct large *next, *previous;
};

/* All of one thread. */
struct copier {
    struct copier_config config;
    struct event_loop loop;
    struct copier_counts counts;
    uint64_t batched_blob_bytes_max; /* larger ones are streamed through */
    struct digest_map seen;
    struct downloader *downloader; /* owned */
    struct uploader *uploader;     /* owned; NULL between two rounds of finishing */
    uint64_t uploader_sent_bytes;  /* by those before it */
    uint64_t piped_received_bytes, piped_sent_bytes;

    struct page *page;  /* owned; being filled, may be NULL */
    struct page *pages; /* in flight */
    size_t pages_live;
    struct digest_queue small_waiting, large_waiting;
    struct small *fetched_first, *fetched_last;
    struct large *larges;
    size_t smalls_live, larges_live;
    uint64_t flight_bytes;

    struct status failure; /* ends it */
    enum status_code first_failed;
};

static bool new_uploader(struct copier *copier, struct status *status);
static bool forget_seen(struct copier *copier, struct status *status);
static bool is_idle(const struct copier *copier);
static void ask_page(struct copier *copier);
static void page_done(void *argument, const struct status *status);
static void sort_missing(struct copier *copier, const struct digest *digest);
static bool has_too_much(const struct copier *copier);
static void step(struct copier *copier);
static void fetch_more(struct copier *copier);
static void fetch_small(struct copier *copier, const struct digest *digest);
static bool small_begin(void *item, struct status *status);
static bool small_write(void *item, struct bytes bytes, struct status *status);
static void small_end(void *item, const struct status *result);
static void small_free(struct small *small);
static void store_fetched(struct copier *copier);
static void uploader_problem(void *argument, const struct status *problem);
static void uploader_progress(void *argument);
static void uploader_ended(void *argument,
                           const struct digest *digest,
                           enum uploader_outcome outcome);
static void pipe_large(struct copier *copier, const struct digest *digest);
static void large_done(void *argument, const struct status *status, enum blob_pipe_side side);
static void notice_failures(struct copier *copier);
static void blob_failed(struct copier *copier,
                        const struct digest *digest,
                        const char *doing,
                        const struct status *why);
static void report(struct copier *copier, const struct status *problem);
static void take_flight(struct copier *copier, uint64_t bytes);
static bool queue_put(struct digest_queue *queue, const struct digest *digest);
static bool queue_take(struct digest_queue *queue, struct digest *digest);
static bool is_of_all(enum status_code code);
static bool no_memory(struct status *status);

static const struct downloader_sink small_sink = {.begin = small_begin,
                                                  .write = small_write,
                                                  .end = small_end};

bool copier_new(const struct copier_config *config,
                struct copier **copier_out,
                struct status *status)
{
    ASSERT(config->batches_in_flight_max > 0 && config->streams_in_flight_max > 0);
    struct copier *copier = calloc(1, sizeof(*copier));
    if (copier == NULL)
        return no_memory(status);
    copier->config = *config;
    copier->batched_blob_bytes_max = batch_packer_limits_default().batched_blob_bytes_max;
    event_loop_init(&copier->loop, client_clock(config->destination));
    const struct downloader_config downloader = {
        .client = config->source,
        .capabilities = config->source_capabilities,
        .batches_in_flight_max = config->batches_in_flight_max,
        .streams_in_flight_max = config->streams_in_flight_max,
        .loop = &copier->loop,
    };
    if (!downloader_new(&downloader, &copier->downloader, status) ||
        !new_uploader(copier, status)) {
        copier_free(copier);
        return false;
    }
    *copier_out = copier;
    return true;
}

static bool new_uploader(struct copier *copier, struct status *status)
{
    struct uploader_config config = uploader_config_default();
    config.client = copier->config.destination;
    config.capabilities = copier->config.destination_capabilities;
    config.batches_in_flight_max = copier->config.batches_in_flight_max;
    config.streams_in_flight_max = copier->config.streams_in_flight_max;
    config.loop = &copier->loop;
    config.observer = (struct uploader_observer){.problem = uploader_problem,
                                                 .progress = uploader_progress,
                                                 .ended = uploader_ended,
                                                 .argument = copier};
    return uploader_new(&config, &copier->uploader, status);
}

void copier_free(struct copier *copier)
{
    if (copier == NULL)
        return;
    ASSERT(copier->page == NULL && copier->pages_live == 0 && copier->flight_bytes == 0);
    ASSERT(copier->smalls_live == 0 && copier->larges_live == 0);
    downloader_free(copier->downloader);
    uploader_free(copier->uploader);
    event_loop_destroy(&copier->loop);
    digest_map_destroy(&copier->seen);
    free(copier->small_waiting.digests);
    free(copier->large_waiting.digests);
    free(copier);
}

const struct copier_counts *copier_counts(const struct copier *copier)
{
    return &copier->counts;
}

enum status_code copier_first_failed(const struct copier *copier)
{
    return copier->first_failed;
}

bool copier_add(struct copier *copier, const struct digest *digest, struct status *status)
{
    if (digest_is_empty_blob(digest))
        return true;
    if (copier->seen.count >= COPIER_REMEMBERED_MAX && !forget_seen(copier, status))
        return false;
    if (copier->failure.code != STATUS_OK) {
        *status = copier->failure;
        return false;
    }
    bool is_new;
    if (digest_map_insert(&copier->seen, digest, &is_new) == NULL)
        return no_memory(status);
    if (!is_new)
        return true;
    if (copier->page == NULL) {
        copier->page = calloc(1, sizeof(*copier->page));
        if (copier->page == NULL)
            return no_memory(status);
        copier->page->copier = copier;
    }
    copier->counts.given++;
    copier->page->digests[copier->page->count++] = *digest;
    if (copier->page->count == PAGE_DIGESTS)
        ask_page(copier);
    while (event_loop_run(&copier->loop, 0))
        continue;
    step(copier);
    while (copier->failure.code == STATUS_OK && has_too_much(copier)) {
        downloader_run(copier->downloader, NS_PER_S);
        step(copier);
    }
    if (copier->failure.code != STATUS_OK)
        *status = copier->failure;
    return copier->failure.code == STATUS_OK;
}

/* All that was given ends first, so that nothing that is on its way can be given again. */
static bool forget_seen(struct copier *copier, struct status *status)
{
    if (!copier_finish(copier, status))
        return false;
    digest_map_clear(&copier->seen);
    return true;
}

bool copier_finish(struct copier *copier, struct status *status)
{
    if (copier->page != NULL)
        ask_page(copier);
    step(copier);
    while (!is_idle(copier)) {
        downloader_run(copier->downloader, NS_PER_S / 10);
        step(copier);
    }
    /* What the uploader still packs goes now. Its failures are in the counts. */
    struct status ignored = {0};
    struct uploader *uploader = copier->uploader;
    if (!uploader_finish(uploader, &ignored))
        ASSERT(ignored.code != STATUS_OK);
    notice_failures(copier);
    copier->uploader_sent_bytes += uploader_counts(uploader)->sent_bytes;
    copier->uploader = NULL;
    uploader_free(uploader);
    const struct copier_counts *counts = &copier->counts;
    ASSERT(copier->flight_bytes == 0);
    ASSERT(counts->given == counts->present + counts->copied + counts->gone + counts->unwanted +
                                counts->failed + counts->abandoned);
    if (copier->failure.code == STATUS_OK && !new_uploader(copier, &copier->failure))
        ASSERT(copier->failure.code != STATUS_OK);
    if (copier->failure.code != STATUS_OK)
        *status = copier->failure;
    return copier->failure.code == STATUS_OK;
}

/* Nothing is asked for, and nothing that is here waits for its turn at the uploader. */
static bool is_idle(const struct copier *copier)
{
    return copier->pages_live == 0 && copier->small_waiting.count == 0 &&
           copier->large_waiting.count == 0 && copier->larges_live == 0 &&
           downloader_live(copier->downloader) == 0 && copier->fetched_first == NULL;
}

static void ask_page(struct copier *copier)
{
    struct page *page = copier->page;
    copier->page = NULL;
    copier->pages_live++;
    page->next = copier->pages;
    copier->pages = page;
    struct status status = {0};
    const struct batch_done done = {.done = page_done, .argument = page, .call = &page->call};
    if (copier->failure.code != STATUS_OK)
        page_done(page, &copier->failure);
    else if (!find_missing_start(copier->config.destination, &copier->loop, page->digests,
                                 page->missing, page->count, done, &status))
        page_done(page, &status);
}

static void page_done(void *argument, const struct status *status)
{
    struct page *page = argument;
    struct copier *copier = page->copier;
    struct page **at = &copier->pages;
    while (*at != page)
        at = &(*at)->next;
    *at = page->next;
    copier->pages_live--;
    if (status->code != STATUS_OK) {
        struct status failure = *status;
        if (copier->failure.code == STATUS_OK)
            status_prefix(&failure, "FindMissingBlobs at %s",
                          client_target(copier->config.destination));
        copier_fail(copier, &failure);
    }
    for (size_t i = 0; i < page->count; i++) {
        if (copier->failure.code != STATUS_OK) {
            copier->counts.abandoned++;
        } else if (page->missing[i]) {
            sort_missing(copier, &page->digests[i]);
        } else {
            copier->counts.present++;
            copier->counts.present_bytes += (uint64_t)page->digests[i].size_bytes;
        }
    }
    free(page);
}

static void sort_missing(struct copier *copier, const struct digest *digest)
{
    struct status problem = {0};
    const struct copier_observer *observer = &copier->config.observer;
    if (observer->is_wanted != NULL && !observer->is_wanted(observer->argument, digest)) {
        copier->counts.unwanted++;
        return;
    }
    const bool small = (uint64_t)digest->size_bytes <= copier->batched_blob_bytes_max;
    if (!capabilities_check_blob(copier->config.destination_capabilities, digest->size_bytes,
                                 &problem)) {
        blob_failed(copier, digest, "store", &problem);
    } else if (!queue_put(small ? &copier->small_waiting : &copier->large_waiting, digest)) {
        copier->counts.abandoned++;
        no_memory(&problem);
        copier_fail(copier, &problem);
    }
}

static bool has_too_much(const struct copier *copier)
{
    return copier->pages_live >= PAGES_IN_FLIGHT_MAX ||
           copier->small_waiting.count + copier->large_waiting.count > WAITING_MAX;
}

void copier_fail(struct copier *copier, const struct status *why)
{
    ASSERT(why->code != STATUS_OK);
    if (copier->failure.code != STATUS_OK)
        return;
    copier->failure = *why;
    downloader_fail(copier->downloader, why);
    if (copier->uploader != NULL)
        uploader_fail(copier->uploader, why);
    for (struct page *page = copier->pages; page != NULL; page = page->next) {
        if (page->call != NULL)
            unary_stop_trying(page->call);
    }
    for (struct large *large = copier->larges; large != NULL; large = large->next) {
        if (large->pipe != NULL)
            blob_pipe_cancel(large->pipe);
    }
}

/* Outside of all handlers: what they left to do. */
static void step(struct copier *copier)
{
    store_fetched(copier);
    notice_failures(copier);
    fetch_more(copier);
    copier->counts.received_bytes =
        downloader_counts(copier->downloader)->bytes + copier->piped_received_bytes;
    copier->counts.sent_bytes =
        copier->uploader_sent_bytes + copier->piped_sent_bytes +
        (copier->uploader != NULL ? uploader_counts(copier->uploader)->sent_bytes : 0);
    copier->config.observer.progress(copier->config.observer.argument);
}

/* One blob that is larger than the bound is let through alone; here none is. */
static void fetch_more(struct copier *copier)
{
    struct digest digest;
    const size_t larges_max = copier->config.streams_in_flight_max;
    while (copier->failure.code == STATUS_OK && copier->larges_live < larges_max &&
           copier->flight_bytes + PIPE_FLIGHT_BYTES <= COPIER_FLIGHT_BYTES_MAX &&
           queue_take(&copier->large_waiting, &digest))
        pipe_large(copier, &digest);
    while (copier->failure.code == STATUS_OK && copier->smalls_live < FETCHING_MAX &&
           copier->flight_bytes + copier->batched_blob_bytes_max <= COPIER_FLIGHT_BYTES_MAX &&
           queue_take(&copier->small_waiting, &digest))
        fetch_small(copier, &digest);
    if (copier->failure.code == STATUS_OK)
        return;
    while (queue_take(&copier->large_waiting, &digest) ||
           queue_take(&copier->small_waiting, &digest))
        copier->counts.abandoned++;
}

static void fetch_small(struct copier *copier, const struct digest *digest)
{
    struct status status = {0};
    struct small *small = calloc(1, sizeof(*small));
    if (small == NULL) {
        copier->counts.abandoned++;
        no_memory(&status);
        copier_fail(copier, &status);
        return;
    }
    *small = (struct small){.copier = copier, .digest = *digest};
    if (!downloader_add(copier->downloader, digest, &small_sink, small, &status)) {
        free(small);
        copier->counts.abandoned++;
        notice_failures(copier);
        copier_fail(copier, &status);
        return;
    }
    copier->smalls_live++;
    take_flight(copier, (uint64_t)digest->size_bytes);
}

static bool small_begin(void *item, struct status *status)
{
    struct small *small = item;
    small->content = malloc((size_t)small->digest.size_bytes);
    return small->content != NULL || no_memory(status);
}

static bool small_write(void *item, struct bytes bytes, struct status *status)
{
    (void)status;
    struct small *small = item;
    ASSERT(bytes.length <= (size_t)small->digest.size_bytes - small->length);
    memcpy(small->content + small->length, bytes.data, bytes.length);
    small->length += bytes.length;
    return true;
}

static void small_end(void *item, const struct status *result)
{
    struct small *small = item;
    struct copier *copier = small->copier;
    if (result->code == STATUS_OK) {
        if (copier->fetched_last != NULL)
            copier->fetched_last->next = small;
        else
            copier->fetched_first = small;
        copier->fetched_last = small;
        return;
    }
    if (downloader_failed(copier->downloader, NULL) || copier->failure.code != STATUS_OK)
        copier->counts.abandoned++;
    else
        blob_failed(copier, &small->digest, "fetch", result);
    copier->flight_bytes -= (uint64_t)small->digest.size_bytes;
    small_free(small);
}

static void small_free(struct small *small)
{
    small->copier->smalls_live--;
    free(small->content);
    free(small);
}

/* Not from inside a handler, since the uploader may wait. */
static void store_fetched(struct copier *copier)
{
    while (copier->fetched_first != NULL) {
        struct small *small = copier->fetched_first;
        copier->fetched_first = small->next;
        if (copier->fetched_first == NULL)
            copier->fetched_last = NULL;
        struct status status = {0};
        char name[DIGEST_TEXT_BYTES_MAX];
        digest_text(&small->digest, name);
        if (copier->failure.code != STATUS_OK || uploader_failed(copier->uploader, NULL)) {
            copier->counts.abandoned++;
            copier->flight_bytes -= (uint64_t)small->digest.size_bytes;
        } else {
            /* It is accounted by uploader_ended() from here on, also when this fails. */
            uint8_t *content = small->content;
            small->content = NULL;
            if (!uploader_add_missing(copier->uploader, &small->digest, content, name, &status)) {
                notice_failures(copier);
                copier_fail(copier, &status);
            }
        }
        small_free(small);
    }
}

static void uploader_problem(void *argument, const struct status *problem)
{
    report(argument, problem);
}

static void uploader_progress(void *argument)
{
    (void)argument;
}

static void uploader_ended(void *argument,
                           const struct digest *digest,
                           enum uploader_outcome outcome)
{
    struct copier *copier = argument;
    struct copier_counts *counts = &copier->counts;
    copier->flight_bytes -= (uint64_t)digest->size_bytes;
    switch (outcome) {
    case UPLOADER_PRESENT:
    case UPLOADER_UPLOADED:
        counts->copied++;
        counts->copied_bytes += (uint64_t)digest->size_bytes;
        break;
    case UPLOADER_FAILED:
        counts->failed++; /* uploader_problem() has told */
        break;
    case UPLOADER_ABANDONED:
        counts->abandoned++;
        break;
    }
}

static void pipe_large(struct copier *copier, const struct digest *digest)
{
    struct status status = {0};
    struct large *large = calloc(1, sizeof(*large));
    if (large == NULL) {
        copier->counts.abandoned++;
        no_memory(&status);
        copier_fail(copier, &status);
        return;
    }
    *large = (struct large){.copier = copier, .digest = *digest, .next = copier->larges};
    if (large->next != NULL)
        large->next->previous = large;
    copier->larges = large;
    copier->larges_live++;
    take_flight(copier, PIPE_FLIGHT_BYTES);
    const struct blob_pipe_request request = {
        .digest = *digest,
        .source = copier->config.source,
        .destination = copier->config.destination,
        .loop = &copier->loop,
        .received_bytes = &copier->piped_received_bytes,
        .sent_bytes = &copier->piped_sent_bytes,
        .done = large_done,
        .argument = large,
    };
    if (!blob_pipe_start(&request, &large->pipe, &status))
        large_done(large, &status, BLOB_PIPE_SOURCE);
}

static void large_done(void *argument, const struct status *status, enum blob_pipe_side side)
{
    struct large *large = argument;
    struct copier *copier = large->copier;
    struct copier_counts *counts = &copier->counts;
    const char *doing = side == BLOB_PIPE_SOURCE ? "fetch" : "store";
    large->pipe = NULL;
    if (large->previous != NULL)
        large->previous->next = large->next;
    else
        copier->larges = large->next;
    if (large->next != NULL)
        large->next->previous = large->previous;
    copier->larges_live--;
    copier->flight_bytes -= PIPE_FLIGHT_BYTES;
    if (status->code == STATUS_OK) {
        counts->copied++;
        counts->copied_bytes += (uint64_t)large->digest.size_bytes;
    } else if (copier->failure.code != STATUS_OK) {
        counts->abandoned++;
    } else if (is_of_all(status->code)) {
        struct status failure = *status;
        status_prefix(&failure, "%s %s", side == BLOB_PIPE_SOURCE ? "fetch from" : "store at",
                      client_target(side == BLOB_PIPE_SOURCE ? copier->config.source
                                                             : copier->config.destination));
        counts->abandoned++;
        copier_fail(copier, &failure);
    } else if (side == BLOB_PIPE_DESTINATION && status->code == STATUS_NOT_FOUND) {
        /* A server that answers a Write so is odd, but it says nothing of the source. */
        struct status odd = *status;
        odd.code = STATUS_INTERNAL;
        blob_failed(copier, &large->digest, doing, &odd);
    } else {
        blob_failed(copier, &large->digest, doing, status);
    }
    free(large);
}

static void notice_failures(struct copier *copier)
{
    struct status why;
    if (downloader_failed(copier->downloader, &why)) {
        status_prefix(&why, "fetch from %s", client_target(copier->config.source));
        copier_fail(copier, &why);
    }
    if (copier->uploader != NULL && uploader_failed(copier->uploader, &why)) {
        status_prefix(&why, "store at %s", client_target(copier->config.destination));
        copier_fail(copier, &why);
    }
}

static void blob_failed(struct copier *copier,
                        const struct digest *digest,
                        const char *doing,
                        const struct status *why)
{
    const struct copier_observer *observer = &copier->config.observer;
    if (why->code == STATUS_NOT_FOUND) {
        copier->counts.gone++;
        observer->gone(observer->argument, digest);
        return;
    }
    char text[DIGEST_TEXT_BYTES_MAX];
    struct status problem = *why;
    status_prefix(&problem, "%s %s", doing, digest_text(digest, text));
    copier->counts.failed++;
    report(copier, &problem);
}

static void report(struct copier *copier, const struct status *problem)
{
    if (copier->first_failed == STATUS_OK)
        copier->first_failed = problem->code;
    copier->config.observer.problem(copier->config.observer.argument, problem);
}

static void take_flight(struct copier *copier, uint64_t bytes)
{
    copier->flight_bytes += bytes;
    if (copier->flight_bytes > copier->counts.flight_bytes_peak)
        copier->counts.flight_bytes_peak = copier->flight_bytes;
}

static bool queue_put(struct digest_queue *queue, const struct digest *digest)
{
    if (queue->count == queue->capacity) {
        const size_t capacity = queue->capacity == 0 ? 1024 : queue->capacity * 2;
        struct digest *digests = malloc(capacity * sizeof(*digests));
        if (digests == NULL)
            return false;
        for (size_t i = 0; i < queue->count; i++)
            digests[i] = queue->digests[(queue->first + i) % queue->capacity];
        free(queue->digests);
        queue->digests = digests;
        queue->capacity = capacity;
        queue->first = 0;
    }
    queue->digests[(queue->first + queue->count++) % queue->capacity] = *digest;
    return true;
}

static bool queue_take(struct digest_queue *queue, struct digest *digest)
{
    if (queue->count == 0)
        return false;
    *digest = queue->digests[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return true;
}

/* Of one stream, after all its tries: what every other blob would meet as well. */
static bool is_of_all(enum status_code code)
{
    return code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED ||
           code == STATUS_PERMISSION_DENIED || code == STATUS_UNAUTHENTICATED;
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the blobs to copy");
}
