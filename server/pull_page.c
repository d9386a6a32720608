/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "server/completeness.h"
#include "server/peer_action.h"
#include "server/peer_forget.h"
#include "server/puller_private.h"

/* Each takes some 20 KiB; with more at once syncs are not shared any better. */
enum { ACTIONS_MAX = 128 };
/* Of a page that has less than this to fetch it is not worth a thought. */
enum { RANGE_RECORDS_MIN = 64 };

struct page_item {
    struct want want;
    struct pull_page *page;           /* borrowed */
    const struct feed_record *record; /* the page's */
    struct peer_action *action;       /* on its way; good until its end */
    bool settled;
};

struct pull_page {
    struct pull_lane *lane;  /* borrowed */
    uint64_t after_seq;      /* of the page before */
    struct feed_page feed;   /* owned */
    struct page_item *items; /* owned, one a record */
    size_t wants_left;
    size_t deed;                /* action results and deletions from here on have not been begun */
    size_t actions;             /* begun and not ended */
    struct page_item *deleting; /* on its way; one at a time */
    struct peer_forget forget;  /* its */
    size_t settled;             /* all before it are */
    bool started, starting, deletes;
    struct pull_page *next;
};

static bool names_blob(const struct feed_record *record);
static bool is_range_worth_it(struct pull_page *page, uint64_t told_bytes, uint64_t wanted_bytes);
static void want_done(struct want *want, const struct status *result);
static void skip(struct puller *puller, const struct want *want, const struct status *why);
static void go_on(struct pull_page *page);
static bool begin_deed(struct pull_page *page, struct page_item *item);
static bool begin_action(struct page_item *item);
static bool is_opaque(const struct feed_record *record);
static void action_done(void *argument,
                        enum peer_action_outcome outcome,
                        const struct status *status,
                        bool failed_here);
static bool begin_forget(struct page_item *item);
static bool is_told_again(const struct pull_page *page, const struct page_item *item);
static void forget_done(struct peer_forget *forget, const struct status *result);
static bool look_again(struct page_item *item);
static void item_over(struct page_item *item);

struct pull_page *pull_page_new(struct pull_lane *lane, uint64_t after_seq, struct feed_page *feed)
{
    struct pull_page *const page = calloc(1, sizeof(*page));
    struct page_item *const items = calloc(feed->count + 1, sizeof(*items));
    if (page == NULL || items == NULL) {
        free(page);
        free(items);
        return NULL;
    }
    page->lane = lane;
    page->after_seq = after_seq;
    page->feed = *feed;
    page->items = items;
    for (size_t i = 0; i < feed->count; i++) {
        const struct feed_record *const record = &page->feed.records[i];
        items[i].page = page;
        items[i].record = record;
        items[i].want =
            (struct want){.digest = record->digest, .seq = record->seq, .done = want_done};
        page->deletes = page->deletes || record->kind == FEED_FORGET;
    }
    return page;
}

void pull_page_free(struct pull_page *page)
{
    ASSERT(page->wants_left == 0 && page->actions == 0 && page->deleting == NULL);
    feed_page_free(&page->feed);
    free(page->items);
    free(page);
}

bool pull_page_started(const struct pull_page *page)
{
    return page->started;
}

bool pull_page_deletes(const struct pull_page *page)
{
    return page->deletes;
}

struct pull_page **pull_page_next(struct pull_page *page)
{
    return &page->next;
}

uint64_t pull_page_applied(struct pull_page *page, bool *whole)
{
    while (page->settled < page->feed.count && page->items[page->settled].settled)
        page->settled++;
    *whole = page->settled == page->feed.count && !page->starting;
    if (*whole)
        return page->feed.next_after_seq;
    return page->settled < page->feed.count ? page->feed.records[page->settled].seq - 1
                                            : page->after_seq;
}

static bool names_blob(const struct feed_record *record)
{
    return record->kind == FEED_BLOB || record->kind == FEED_MANIFEST;
}

void pull_page_start(struct pull_page *page)
{
    struct puller *const puller = page->lane->puller;
    uint64_t told_bytes = 0;
    uint64_t wanted_bytes = 0;
    page->started = page->starting = true;
    for (size_t i = 0; i < page->feed.count; i++) {
        struct page_item *const item = &page->items[i];
        if (!names_blob(item->record))
            continue;
        told_bytes += (uint64_t)item->want.digest.size_bytes;
        if (fetcher_add(puller->fetcher, &item->want) == FETCHER_HERE) {
            item->settled = true;
        } else {
            wanted_bytes += (uint64_t)item->want.digest.size_bytes;
            page->wants_left++;
        }
    }
    if (page->lane->lane == LANE_SMALL && is_range_worth_it(page, told_bytes, wanted_bytes))
        fetcher_range(puller->fetcher, puller->uid, page->after_seq, page->feed.next_after_seq);
    fetcher_pump(puller->fetcher);
    page->starting = false;
    go_on(page);
}

/*
 * At least half of what lies there is to be fetched; and hardly anything of it is being fetched from another peer, which would then
 * come twice.
 */
static bool is_range_worth_it(struct pull_page *page, uint64_t told_bytes, uint64_t wanted_bytes)
{
    if (page->wants_left < RANGE_RECORDS_MIN)
        return false;
    const uint64_t queued_bytes = fetcher_queued_bytes(page->lane->puller->fetcher, page->after_seq,
                                                       page->feed.next_after_seq);
    const uint64_t elsewhere_bytes = wanted_bytes > queued_bytes ? wanted_bytes - queued_bytes : 0;
    return 2 * queued_bytes >= told_bytes && 16 * elsewhere_bytes <= told_bytes;
}

static void want_done(struct want *want, const struct status *result)
{
    struct page_item *const item = CONTAINER_OF(want, struct page_item, want);
    struct puller *const puller = item->page->lane->puller;
    item->page->wants_left--;
    /* After a deletion: it is gone there, too. */
    if (result->code == STATUS_OK ||
        (result->code == STATUS_NOT_FOUND && item->record->kind == FEED_FORGET))
        item->settled = true;
    else if (!puller_follows(puller))
        (void)0; /* it ends because everything does */
    else if (result->code == STATUS_NOT_FOUND || result->code == STATUS_OUT_OF_RANGE)
        skip(puller, want, result), item->settled = true;
    else if (result->code == STATUS_DATA_LOSS && !want->failed_here)
        puller_lie(puller, &want->digest, result->message);
    else
        puller_fail(puller, result, want->failed_here);
    item_over(item);
}

/* The peer will tell it anew when it has it anew. */
static void skip(struct puller *puller, const struct want *want, const struct status *why)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    struct log_text reason;
    metrics_add(puller->config.metrics, METRIC_PEER_BLOBS_SKIPPED, 1);
    if (why->code == STATUS_OUT_OF_RANGE && !puller->too_large_logged) {
        puller->too_large_logged = true;
        log_event(LOG_LEVEL_WARN, "peer_blob_too_large", "uid=%016" PRIx64 " digest=%s reason=%s",
                  puller->uid, digest_text(&want->digest, text), log_quote(&reason, why->message));
    }
}

/* Action results and deletions, in order, once the blobs of the page are here. */
static void go_on(struct pull_page *page)
{
    if (page->wants_left > 0 || page->starting)
        return;
    while (page->deed < page->feed.count && puller_follows(page->lane->puller)) {
        struct page_item *const item = &page->items[page->deed];
        if (!names_blob(item->record) && !begin_deed(page, item))
            return;
        page->deed++;
    }
}

/* False: not yet. */
static bool begin_deed(struct pull_page *page, struct page_item *item)
{
    if (page->deleting != NULL || page->actions >= ACTIONS_MAX)
        return false;
    if (item->record->kind == FEED_ACTION)
        return begin_action(item);
    return page->actions == 0 && begin_forget(item);
}

static bool begin_action(struct page_item *item)
{
    struct pull_page *const page = item->page;
    struct puller *const puller = page->lane->puller;
    const struct feed_record *const record = item->record;
    const struct peer_action_request request = {
        .action = record->digest,
        .record = {.written_wall_ns = record->written_ns,
                   .node_uid = record->origin_uid,
                   .instance = record->instance,
                   .writer = record->writer,
                   .result = record->result},
        .opaque = is_opaque(record),
        .durability = puller->config.durability,
        .flights = puller->config.flights,
        .fetcher = puller->fetcher,
        .loop = &puller->loop,
        .done = action_done,
        .argument = item,
    };
    struct status why = {0};
    if (!peer_action_start(&request, &item->action, &why)) {
        puller_fail(puller, &why, true);
        return false;
    }
    page->actions++;
    puller->actions++;
    return true;
}

/* Caches over HTTP keep what they like there; then there is nothing that could be missing. */
static bool is_opaque(const struct feed_record *record)
{
    struct arena arena;
    struct status ignored;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    const bool sound = action_result_check(
        record->result, (enum digest_function)record->digest.function, &arena, &ignored);
    arena_destroy(&arena);
    return !sound;
}

static void action_done(void *argument,
                        enum peer_action_outcome outcome,
                        const struct status *status,
                        bool failed_here)
{
    static const enum metric counted[] = {
        [PEER_ACTION_TAKEN] = METRIC_PEER_ACTIONS_TAKEN,
        [PEER_ACTION_OLDER] = METRIC_PEER_ACTIONS_OLDER,
        [PEER_ACTION_INCOMPLETE] = METRIC_PEER_ACTIONS_INCOMPLETE,
    };
    struct page_item *const item = argument;
    struct puller *const puller = item->page->lane->puller;
    item->action = NULL;
    item->page->actions--;
    puller->actions--;
    item->settled = outcome != PEER_ACTION_FAILED;
    if (item->settled)
        metrics_add(puller->config.metrics, counted[outcome], 1);
    else if (!puller_follows(puller))
        (void)0; /* it ends because everything does */
    else if (status->code == STATUS_DATA_LOSS && !failed_here)
        puller_lie(puller, &item->record->digest, status->message);
    else
        puller_fail(puller, status, failed_here);
    item_over(item);
}

static bool begin_forget(struct page_item *item)
{
    struct pull_page *const page = item->page;
    struct puller *const puller = page->lane->puller;
    if (is_told_again(page, item)) {
        item->settled = true;
        return true;
    }
    page->forget.done = forget_done;
    page->deleting = item;
    puller->forgets++;
    peer_forget_start(&page->forget, puller->config.durability, &puller->loop, item->record);
    return true;
}

/* It was stored anew after it was deleted, and has been looked at with the blobs of this page. */
static bool is_told_again(const struct pull_page *page, const struct page_item *item)
{
    for (size_t i = (size_t)(item - page->items) + 1; i < page->feed.count; i++)
        if (names_blob(page->items[i].record) && item->record->forgotten_kind != FEED_ACTION &&
            digest_equal(&page->items[i].record->digest, &item->record->digest))
            return true;
    return false;
}

static void forget_done(struct peer_forget *forget, const struct status *result)
{
    struct pull_page *const page = CONTAINER_OF(forget, struct pull_page, forget);
    struct page_item *const item = page->deleting;
    struct puller *const puller = page->lane->puller;
    page->deleting = NULL;
    puller->forgets--;
    const bool ok = result->code == STATUS_OK;
    if (ok && forget->carried_out)
        metrics_add(puller->config.metrics, METRIC_PEER_FORGETS, 1);
    if (!ok && puller_follows(puller))
        puller_fail(puller, result, true);
    item->settled = ok && !look_again(item);
    item_over(item);
}

/*
 * A large blob is told in the other lane: it may have been stored anew at the peer, and looked at here, before the deletion was. So the
 * peer is asked for it. True: the item is settled when that has ended.
 */
static bool look_again(struct page_item *item)
{
    struct puller *const puller = item->page->lane->puller;
    if (item->record->forgotten_kind != FEED_MANIFEST || !puller_follows(puller) ||
        fetcher_add(puller->fetcher, &item->want) == FETCHER_HERE)
        return false;
    item->page->wants_left++;
    fetcher_pump(puller->fetcher);
    return true;
}

static void item_over(struct page_item *item)
{
    struct pull_page *const page = item->page;
    struct pull_lane *const lane = page->lane;
    if (!page->starting && puller_follows(lane->puller)) {
        go_on(page);
        if (item->settled)
            pull_lane_settle(lane); /* the page may be gone then */
    }
    puller_check_drained(lane->puller);
}

void pull_page_cancel(struct pull_page *page)
{
    for (size_t i = 0; i < page->feed.count; i++)
        if (page->items[i].action != NULL)
            peer_action_cancel(page->items[i].action);
}
