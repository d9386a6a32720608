/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_follow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "tier/layout.h"
#include "tier/pack.h"

enum {
    PAGE_ARENA_BYTES = 4 << 20,
    SEEN_MAX =
        1 << 15, /* numbers of the window; beyond that objects are read again, which does no harm */
    WINDOW_S = 1000,   /* more than a bucket lets a node's clock be wrong */
    OVERTAKEN_MAX = 3, /* listings in a pass during which something was deleted */
    ROWS_AT_A_TIME = 256,
};
static const int64_t again_usual_ns = 5 * NS_PER_S;
static const int64_t read_within_ns = 20 * NS_PER_S;

static const char note_read[] = "idx-read";

/* Numbers of index objects, ascending. */
struct numbers {
    uint64_t *all; /* owned */
    size_t count;
};

struct tier_follow {
    /* Set at the start, never changed. */
    struct tier_follow_config config;
    char prefix[BUCKET_KEY_BYTES_MAX]; /* of all index objects */
    struct thread thread;

    /* The thread's. */
    uint64_t read_number, noted_number; /* the highest that was read, that was written down */
    struct numbers seen, seeing;        /* of the last pass, and of this one */
    uint8_t *object;                    /* owned; PACK_INDEX_BYTES_MAX */
    size_t object_bytes;

    struct stop stop;
};

enum taken { TAKEN, TAKEN_AGAIN, TAKEN_NOT };

static void run(void *argument);
static bool pass(struct tier_follow *follow, struct status *status);
static enum taken take_page(struct tier_follow *follow,
                            const struct bucket_page *page,
                            uint64_t drops,
                            char after[BUCKET_KEY_BYTES_MAX],
                            struct status *status);
static enum taken take_index(struct tier_follow *follow,
                             uint64_t number,
                             uint64_t drops,
                             struct status *status);
static bool gather(void *argument, struct bytes bytes, struct status *status);
static bool apply(struct tier_follow *follow, const struct pack_index *index, uint64_t drops);
static void apply_deletions(struct tier_follow *follow, const struct pack_index *index);
static bool was_seen(const struct tier_follow *follow, uint64_t number);
static void see(struct tier_follow *follow, uint64_t number);
static uint64_t begin_number(const struct tier_follow *follow);
static void note_progress(struct tier_follow *follow);

bool tier_follow_start(const struct tier_follow_config *config,
                       struct tier_follow **follow_out,
                       struct status *status)
{
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    struct tier_follow *const follow = calloc(1, sizeof(*follow));
    if (follow == NULL)
        return status_fail_errno(status, ENOMEM, "index objects of the tier");
    follow->config = *config;
    if (follow->config.again_ns == 0)
        follow->config.again_ns = again_usual_ns;
    if (follow->config.retry_ns == 0)
        follow->config.retry_ns = again_usual_ns;
    layout_pack_indexes_prefix(config->prefix, follow->prefix);
    tier_known_note(config->known, note_read, text);
    follow->read_number = strtoull(text, NULL, 16);
    stop_init(&follow->stop, LOCK_RANK_TIER_PUSH);
    follow->seen.all = calloc(SEEN_MAX, sizeof(follow->seen.all[0]));
    follow->seeing.all = calloc(SEEN_MAX, sizeof(follow->seeing.all[0]));
    follow->object = malloc(PACK_INDEX_BYTES_MAX);
    if (follow->seen.all == NULL || follow->seeing.all == NULL || follow->object == NULL) {
        status_fail_errno(status, ENOMEM, "index objects of the tier");
        goto fail;
    }
    if (!thread_start(&follow->thread, "tier-follow", 0, run, follow, status))
        goto fail;
    *follow_out = follow;
    return true;
fail:
    tier_follow_stop(follow);
    return false;
}

void tier_follow_ask_to_stop(struct tier_follow *follow)
{
    if (follow != NULL)
        stop_ask(&follow->stop);
}

void tier_follow_stop(struct tier_follow *follow)
{
    if (follow == NULL)
        return;
    tier_follow_ask_to_stop(follow);
    thread_join(&follow->thread);
    stop_destroy(&follow->stop);
    free(follow->seen.all);
    free(follow->seeing.all);
    free(follow->object);
    free(follow);
}

static void run(void *argument)
{
    struct tier_follow *const follow = argument;
    bool failing = false;
    bool goes_on = true;
    while (goes_on) {
        struct status status = {0};
        struct log_text quoted;
        const bool ok = pass(follow, &status);
        goes_on = stop_pause(&follow->stop, 0);
        /* Once, not for each try; and not for the end of this server. */
        if (!ok && !failing && goes_on)
            log_event(LOG_LEVEL_WARN, "tier_follow_failed", "code=%s reason=%s",
                      status_code_name(status.code), log_quote(&quoted, status.message));
        failing = !ok;
        /* Nor is anybody to wait for a bucket that does not answer. */
        if (goes_on)
            tier_known_set_whole(follow->config.known, ok);
        goes_on = goes_on &&
                  stop_pause(&follow->stop, ok ? follow->config.again_ns : follow->config.retry_ns);
    }
}

/* Through all index objects that may be new. */
static bool pass(struct tier_follow *follow, struct status *status)
{
    char after[BUCKET_KEY_BYTES_MAX];
    unsigned overtaken = 0;
    bool more = true;
    bool ok = true;
    layout_pack_index_key(follow->config.prefix, begin_number(follow), after);
    follow->seeing.count = 0;
    while (more && ok && stop_pause(&follow->stop, 0)) {
        /* What is deleted from here on, this page may name. */
        const uint64_t drops = tier_known_drops(follow->config.known);
        struct arena arena;
        struct bucket_page page;
        arena_init(&arena, PAGE_ARENA_BYTES);
        ok = bucket_list(follow->config.bucket, follow->prefix, after, 0, &arena, &page, status);
        if (ok) {
            const enum taken taken = take_page(follow, &page, drops, after, status);
            overtaken += taken == TAKEN_AGAIN;
            ok = taken != TAKEN_NOT;
            more = taken == TAKEN_AGAIN || (page.more && page.count > 0);
            note_progress(follow);
        }
        arena_destroy(&arena);
        if (ok && overtaken == OVERTAKEN_MAX)
            ok = status_fail(status, STATUS_ABORTED, "blobs are deleted all the time");
    }
    /* A pass that was broken off has not seen what is beyond. */
    if (ok && !more) {
        const struct numbers last = follow->seen;
        follow->seen = follow->seeing;
        follow->seeing = last;
    }
    return ok;
}

/* after: of the last one that is done. */
static enum taken take_page(struct tier_follow *follow,
                            const struct bucket_page *page,
                            uint64_t drops,
                            char after[BUCKET_KEY_BYTES_MAX],
                            struct status *status)
{
    for (size_t i = 0; i < page->count; i++) {
        const char *const key = page->entries[i].key;
        /* Other things may lie there, too. */
        const uint64_t number = layout_pack_index_of_key(follow->config.prefix, key);
        if (number != 0 && !was_seen(follow, number)) {
            const enum taken taken = take_index(follow, number, drops, status);
            if (taken != TAKEN)
                return taken;
        }
        if (number != 0)
            see(follow, number);
        snprintf(after, BUCKET_KEY_BYTES_MAX, "%s", key);
        if (number > follow->read_number)
            follow->read_number = number;
    }
    return TAKEN;
}

/* AGAIN: something was deleted since, and may be among it; whoever deletes it leaves an index object that says so. */
static enum taken take_index(struct tier_follow *follow,
                             uint64_t number,
                             uint64_t drops,
                             struct status *status)
{
    char key[BUCKET_KEY_BYTES_MAX];
    struct bucket_object object;
    struct pack_index index;
    struct log_text quoted;
    layout_pack_index_key(follow->config.prefix, number, key);
    const struct bucket_get get = {.key = key,
                                   .sink = {.write = gather, .argument = follow},
                                   .deadline_ns =
                                       clock_monotonic_ns(clock_real()) + read_within_ns};
    follow->object_bytes = 0;
    if (!bucket_get(follow->config.bucket, &get, &object, status) &&
        status->code != STATUS_OUT_OF_RANGE)
        return TAKEN_NOT;
    if (status->code == STATUS_OK && object.presence != BUCKET_PRESENT)
        return TAKEN; /* the bucket's rule was quicker */
    if (status->code != STATUS_OK ||
        !pack_index_decode(bytes_of(follow->object, follow->object_bytes), number, &index,
                           status)) {
        metrics_add(follow->config.metrics, METRIC_TIER_MISMATCHES, 1);
        log_event(LOG_LEVEL_ERROR, "tier_pack_index_wrong", "key=%s reason=%s", key,
                  log_quote(&quoted, status->message));
        *status = (struct status){0};
        return TAKEN; /* its blobs are not known to be there, and are sent again */
    }
    if (index.kind == PACK_INDEX_OF_DELETIONS)
        apply_deletions(follow, &index);
    else if (!apply(follow, &index, drops))
        return TAKEN_AGAIN;
    metrics_add(follow->config.metrics, METRIC_TIER_INDEXES, 1);
    return TAKEN;
}

/* OUT_OF_RANGE: it is larger than any. */
static bool gather(void *argument, struct bytes bytes, struct status *status)
{
    struct tier_follow *const follow = argument;
    if (bytes.length > PACK_INDEX_BYTES_MAX - follow->object_bytes)
        return status_fail(status, STATUS_OUT_OF_RANGE, "it has more than %d bytes",
                           PACK_INDEX_BYTES_MAX);
    memcpy(follow->object + follow->object_bytes, bytes.data, bytes.length);
    follow->object_bytes += bytes.length;
    return true;
}

static bool apply(struct tier_follow *follow, const struct pack_index *index, uint64_t drops)
{
    struct bucket_row rows[ROWS_AT_A_TIME];
    size_t count = 0;
    for (size_t i = 0; i < index->count; i++) {
        const struct pack_row row = pack_index_row(index, i);
        if (!tier_known_was_deleted(follow->config.known, &row.digest, index->pack))
            rows[count++] = (struct bucket_row){.digest = row.digest,
                                                .pack = index->pack,
                                                .offset = row.offset,
                                                .since_s = pack_number_seconds(index->pack)};
        if (count < ROWS_AT_A_TIME && i + 1 < index->count)
            continue;
        if (!tier_known_add_many_unless(follow->config.known, rows, count, drops))
            return false;
        count = 0;
    }
    return true;
}

static void apply_deletions(struct tier_follow *follow, const struct pack_index *index)
{
    struct digest digests[ROWS_AT_A_TIME];
    size_t count = 0;
    for (size_t i = 0; i < index->count; i++) {
        digests[count++] = pack_index_row(index, i).digest;
        if (count < ROWS_AT_A_TIME && i + 1 < index->count)
            continue;
        tier_known_drop_before(follow->config.known, digests, count, index->number);
        count = 0;
    }
}

/* ---- which were read */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static bool was_seen(const struct tier_follow *follow, uint64_t number)
{
    return bsearch(&number, follow->seen.all, follow->seen.count, sizeof(number),
                   compare_numbers) != NULL;
}

/* In the order of a listing; a page that is taken again names some twice. */
static void see(struct tier_follow *follow, uint64_t number)
{
    struct numbers *const seeing = &follow->seeing;
    if (seeing->count < SEEN_MAX && (seeing->count == 0 || number > seeing->all[seeing->count - 1]))
        seeing->all[seeing->count++] = number;
}

/* The first time all that may be there; then the window. A node whose clock is ahead does not hide the others. */
static uint64_t begin_number(const struct tier_follow *follow)
{
    const int64_t oldest_s = tier_known_oldest_s(follow->config.known);
    const int64_t now_s = clock_wall_ns(clock_real()) / NS_PER_S;
    const int64_t read_s = pack_number_seconds(follow->read_number);
    const int64_t window_s = (read_s < now_s ? read_s : now_s) - WINDOW_S;
    return pack_number_of_seconds(oldest_s > window_s ? oldest_s : window_s);
}

static void note_progress(struct tier_follow *follow)
{
    char text[24];
    if (follow->read_number == follow->noted_number)
        return;
    snprintf(text, sizeof(text), "%016" PRIx64, follow->read_number);
    tier_known_set_note(follow->config.known, note_read, text);
    follow->noted_number = follow->read_number;
}
