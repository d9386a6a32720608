/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_list.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "tier/layout.h"

enum {
    PAGE_ARENA_BYTES = 4 << 20,
    OVERTAKEN_MAX = 3, /* listings of one page during which something was deleted */
};

static const int64_t again_usual_ns = 24 * 3600 * NS_PER_S;
static const int64_t retry_usual_ns = 30 * NS_PER_S;

/* Kept with what is known: when the bucket was last listed to its end, and where a listing has come to. */
static const char note_listed[] = "listed";
static const char note_after[] = "list-after";
static_assert((int)BUCKET_INDEX_NOTE_BYTES_MAX >= (int)BUCKET_KEY_BYTES_MAX,
              "a key fits into a note");

struct tier_list {
    /* Set at the start, never changed. */
    struct tier_list_config config;
    char blobs[BUCKET_KEY_BYTES_MAX]; /* what the names of all blobs begin with */
    struct thread thread;

    /* Of the thread: the blobs of a page. */
    struct bucket_row rows[BUCKET_LIST_MAX];

    struct stop stop;
};

/* One time through the bucket. */
struct listing {
    char after[BUCKET_INDEX_NOTE_BYTES_MAX];
    uint64_t objects, pages;
    bool more;
};

static void run(void *argument);
static int64_t not_before_ns(struct tier_list *list);
static void note_end(struct tier_list *list);
static bool list_all(struct tier_list *list, struct listing *listing);
static bool list_page(struct tier_list *list, struct listing *listing, struct status *status);
static bool take_page(struct tier_list *list,
                      struct listing *listing,
                      const struct bucket_page *page,
                      uint64_t drops);

bool tier_list_start(const struct tier_list_config *config,
                     struct tier_list **list_out,
                     struct status *status)
{
    struct tier_list *const list = calloc(1, sizeof(*list));
    if (list == NULL)
        return status_fail_errno(status, ENOMEM, "listing of the tier");
    list->config = *config;
    if (list->config.again_ns == 0)
        list->config.again_ns = again_usual_ns;
    if (list->config.retry_ns == 0)
        list->config.retry_ns = retry_usual_ns;
    layout_blobs_prefix(config->prefix, list->blobs);
    stop_init(&list->stop, LOCK_RANK_TIER_PUSH);
    if (!thread_start(&list->thread, "tier-list", 0, run, list, status)) {
        tier_list_stop(list);
        return false;
    }
    *list_out = list;
    return true;
}

void tier_list_ask_to_stop(struct tier_list *list)
{
    if (list != NULL)
        stop_ask(&list->stop);
}

void tier_list_stop(struct tier_list *list)
{
    if (list == NULL)
        return;
    tier_list_ask_to_stop(list);
    thread_join(&list->thread);
    stop_destroy(&list->stop);
    free(list);
}

static void run(void *argument)
{
    struct tier_list *const list = argument;
    bool goes_on = stop_pause(&list->stop, not_before_ns(list));
    while (goes_on) {
        struct listing listing = {.more = true};
        tier_known_note(list->config.known, note_after, listing.after);
        goes_on = list_all(list, &listing);
        if (!goes_on)
            break;
        log_event(LOG_LEVEL_INFO, "tier_listed",
                  "objects=%" PRIu64 " requests=%" PRIu64 " whole=%s", listing.objects,
                  listing.pages, listing.more ? "no" : "yes");
        note_end(list);
        goes_on = stop_pause(&list->stop, list->config.again_ns);
    }
}

/* A listing that a stop has broken off goes on where it was; one that is not old serves as well as a new one. */
static int64_t not_before_ns(struct tier_list *list)
{
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    tier_known_note(list->config.known, note_listed, text);
    const int64_t age_ns = clock_wall_ns(clock_real()) - strtoll(text, NULL, 10) * NS_PER_S;
    return age_ns >= 0 && age_ns < list->config.again_ns ? list->config.again_ns - age_ns : 0;
}

static void note_end(struct tier_list *list)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, clock_wall_ns(clock_real()) / NS_PER_S);
    tier_known_set_note(list->config.known, note_after, "");
    tier_known_set_note(list->config.known, note_listed, text);
}

static bool list_all(struct tier_list *list, struct listing *listing)
{
    const bool has_room = tier_known_keeps(list->config.known);
    bool failing = false;
    bool goes_on = true;
    while (goes_on && listing->more && (has_room || listing->objects < TIER_KNOWN_MAX)) {
        struct status status = {0};
        struct log_text quoted;
        const bool ok = list_page(list, listing, &status);
        if (ok)
            tier_known_set_note(list->config.known, note_after, listing->after);
        if (!ok || listing->more)
            goes_on = stop_pause(&list->stop, ok ? TIER_LIST_PAUSE_NS : list->config.retry_ns);
        /* Once, not for each try; and not for the end of this server. */
        if (!ok && !failing && goes_on)
            log_event(LOG_LEVEL_WARN, "tier_list_failed", "code=%s reason=%s",
                      status_code_name(status.code), log_quote(&quoted, status.message));
        failing = !ok;
    }
    return goes_on;
}

static bool list_page(struct tier_list *list, struct listing *listing, struct status *status)
{
    struct arena arena;
    bool ok = false;
    bool taken = false;
    for (unsigned tries = 0; !taken && tries < OVERTAKEN_MAX; tries++) {
        const uint64_t drops = tier_known_drops(list->config.known);
        struct bucket_page page;
        arena_init(&arena, PAGE_ARENA_BYTES);
        ok =
            bucket_list(list->config.bucket, list->blobs, listing->after, 0, &arena, &page, status);
        listing->pages++;
        taken = !ok || take_page(list, listing, &page, drops);
        arena_destroy(&arena);
    }
    if (ok && !taken)
        ok = status_fail(status, STATUS_ABORTED, "blobs are deleted all the time");
    return ok;
}

/* False: something was deleted since, and may be among the page. */
static bool take_page(struct tier_list *list,
                      struct listing *listing,
                      const struct bucket_page *page,
                      uint64_t drops)
{
    size_t count = 0;
    for (size_t i = 0; i < page->count; i++) {
        const struct bucket_entry *const entry = &page->entries[i];
        struct bucket_row *const row = &list->rows[count];
        *row = (struct bucket_row){.since_s = entry->modified_s};
        /* Other things may lie there, too. */
        count +=
            layout_blob_of_key(list->config.prefix, entry->key, entry->size_bytes, &row->digest) &&
            tier_known_is_young(list->config.known, entry->modified_s);
    }
    if (!tier_known_add_many_unless(list->config.known, list->rows, count, drops))
        return false;
    listing->objects += page->count;
    metrics_add(list->config.metrics, METRIC_TIER_LISTED, (int64_t)page->count);
    listing->more = page->more && page->count > 0;
    if (listing->more)
        snprintf(listing->after, sizeof(listing->after), "%s", page->entries[page->count - 1].key);
    return true;
}
