/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/blob_writer.h"
#include "store/find.h"
#include "tier/layout.h"
#include "tier/pack.h"

enum { FIND_AT_A_TIME = 256, DELETIONS_AT_A_TIME = 64 };

/* A download may take so long, and a second more for each MiB. */
static const int64_t patience_ns = 20 * NS_PER_S;

struct tier_fetch {
    /* Set at the start, never changed. */
    struct tier_fetch_config config;
    struct store *store;
    struct buffer_pool *buffers; /* owned, as the next */
    struct thread *threads;
    size_t started;

    struct lock lock;
    struct condition changed;        /* something to do, or the end of a flight or of a commit */
    struct tier_want *first, **last; /* guarded by lock, as the next */
    bool stopping;
};

/* A blob on its way in. */
struct download {
    struct tier_fetch *fetch;
    struct tier_want *want;
    struct bucket_row row; /* where it is taken from */
    struct blob_writer *writer;
    bool failed_here;
};

struct commit_wait {
    struct commit_request request;
    struct tier_fetch *fetch;
    bool over; /* guarded by fetch->lock, as the next */
    struct status result;
};

struct flight_wait {
    struct flight_waiter waiter;
    struct tier_fetch *fetch;
    bool over; /* guarded by fetch->lock */
};

/* An action result on its way. */
struct gathered {
    uint8_t *data;
    size_t length;
};

static void run(void *argument);
static bool find_size(struct tier_fetch *fetch, struct tier_want *want);
static void get_blob(struct tier_fetch *fetch, struct tier_want *want);
static void flight_over(struct flight_waiter *waiter);
static bool is_here(const struct tier_fetch *fetch, const struct tier_want *want);
static enum tier_fetched download(struct tier_fetch *fetch, struct tier_want *want);
static enum tier_fetched download_from(struct tier_fetch *fetch,
                                       struct tier_want *want,
                                       const struct bucket_row *row);
static bool take_bytes(void *argument, struct bytes bytes, struct status *status);
static bool store_it(struct download *download, int64_t since_s, struct status *status);
static void committed(struct ack *ack, const struct status *result);
static enum tier_fetched get_result(struct tier_fetch *fetch, struct tier_want *want);
static bool gather(void *argument, struct bytes bytes, struct status *status);
static enum tier_fetched find(struct tier_fetch *fetch, struct tier_want *want);
static bool has_deletion(const struct tier_fetch *fetch, const struct tier_want *of);
static enum tier_fetched lied(struct tier_fetch *fetch,
                              const struct tier_want *want,
                              const char *key);

bool tier_fetch_start(const struct tier_fetch_config *config,
                      struct tier_fetch **fetch_out,
                      struct status *status)
{
    ASSERT(config->downloads >= TIER_DOWNLOADS_MIN && config->downloads <= TIER_DOWNLOADS_MAX);
    struct tier_fetch *const fetch = calloc(1, sizeof(*fetch));
    if (fetch == NULL)
        return status_fail_errno(status, ENOMEM, "downloads from the tier");
    fetch->config = *config;
    fetch->store = durability_store(config->durability);
    fetch->last = &fetch->first;
    lock_init(&fetch->lock, LOCK_RANK_TIER_PUSH);
    condition_init(&fetch->changed);
    fetch->threads = calloc(config->downloads, sizeof(fetch->threads[0]));
    if (fetch->threads == NULL) {
        status_fail_errno(status, ENOMEM, "downloads from the tier");
        goto fail;
    }
    if (!buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, config->downloads, &fetch->buffers, status))
        goto fail;
    for (; fetch->started < config->downloads; fetch->started++) {
        if (!thread_start(&fetch->threads[fetch->started], "tier-download", 0, run, fetch, status))
            goto fail;
    }
    *fetch_out = fetch;
    return true;
fail:
    tier_fetch_free(fetch);
    return false;
}

void tier_fetch_stop(struct tier_fetch *fetch)
{
    if (fetch == NULL)
        return;
    lock_acquire(&fetch->lock);
    fetch->stopping = true;
    condition_broadcast(&fetch->changed);
    lock_release(&fetch->lock);
    for (size_t i = 0; i < fetch->started; i++)
        thread_join(&fetch->threads[i]);
}

void tier_fetch_free(struct tier_fetch *fetch)
{
    if (fetch == NULL)
        return;
    tier_fetch_stop(fetch);
    ASSERT(fetch->first == NULL);
    if (fetch->buffers != NULL)
        buffer_pool_free(fetch->buffers);
    free(fetch->threads);
    condition_destroy(&fetch->changed);
    lock_destroy(&fetch->lock);
    free(fetch);
}

void tier_fetch_ask(struct tier_fetch *fetch, struct tier_want *want)
{
    want->outcome = TIER_UNAVAILABLE;
    want->result = NULL;
    want->result_bytes = 0;
    want->next = NULL;
    lock_acquire(&fetch->lock);
    const bool takes = !fetch->stopping;
    if (takes) {
        *fetch->last = want;
        fetch->last = &want->next;
        condition_broadcast(&fetch->changed);
    }
    lock_release(&fetch->lock);
    if (!takes)
        want->done(want);
}

static struct tier_want *next_locked(struct tier_fetch *fetch) REQUIRES(fetch->lock)
{
    while (fetch->first == NULL && !fetch->stopping)
        condition_wait(&fetch->changed, &fetch->lock);
    struct tier_want *const want = fetch->first;
    if (want != NULL) {
        fetch->first = want->next;
        if (fetch->first == NULL)
            fetch->last = &fetch->first;
    }
    return want;
}

static void run(void *argument)
{
    struct tier_fetch *const fetch = argument;
    for (;;) {
        lock_acquire(&fetch->lock);
        struct tier_want *const want = next_locked(fetch);
        const bool stopping = fetch->stopping;
        lock_release(&fetch->lock);
        if (want == NULL)
            return;
        if (!stopping && want->digests != NULL)
            want->outcome = find(fetch, want);
        else if (!stopping && want->action)
            want->outcome = get_result(fetch, want);
        else if (!stopping && (!want->any_size || find_size(fetch, want)))
            get_blob(fetch, want);
        static const enum metric counted[] = {[TIER_FETCHED] = METRIC_TIER_READS_FOUND,
                                              [TIER_NOT_THERE] = METRIC_TIER_READS_ABSENT,
                                              [TIER_UNAVAILABLE] = METRIC_TIER_READS_FAILED};
        if (want->digests == NULL)
            metrics_add(fetch->config.metrics, counted[want->outcome], 1);
        want->done(want);
    }
}

/* ---- blobs */

/* Of a hash alone: by what is known, or by the object of that name. False: the outcome says why not. */
static bool find_size(struct tier_fetch *fetch, struct tier_want *want)
{
    char text[BUCKET_KEY_BYTES_MAX];
    const char *const key = text;
    struct bucket_object object;
    struct status status = {0};
    if (tier_known_size(fetch->config.known, &want->digest))
        return true;
    layout_blob_key(fetch->config.prefix, &want->digest, text);
    const int64_t deadline_ns = clock_monotonic_ns(fetch->store->clock) + patience_ns;
    want->outcome = TIER_UNAVAILABLE;
    if (!bucket_stat_many(fetch->config.bucket, &key, 1, deadline_ns, &object, &status))
        return false;
    if (object.presence == BUCKET_PRESENT && object.size_bytes <= LIMIT_BLOB_BYTES) {
        want->digest.size_bytes = (int64_t)object.size_bytes;
        return true;
    }
    if (tier_known_is_whole(fetch->config.known))
        want->outcome = TIER_NOT_THERE;
    return false;
}

/* One flight a blob, of the whole node. */
static void get_blob(struct tier_fetch *fetch, struct tier_want *want)
{
    const struct blob_key key = blob_table_blob_key(fetch->store->table, &want->digest);
    for (;;) {
        struct flight flight;
        struct flight_wait wait = {.waiter.ready = flight_over, .fetch = fetch};
        if (flights_begin(fetch->config.flights, key, &flight, &wait.waiter)) {
            want->outcome = is_here(fetch, want) ? TIER_FETCHED : download(fetch, want);
            flights_end(fetch->config.flights, &flight);
            return;
        }
        lock_acquire(&fetch->lock);
        while (!wait.over && !fetch->stopping)
            condition_wait(&fetch->changed, &fetch->lock);
        const bool over = wait.over;
        lock_release(&fetch->lock);
        if (!over && flights_cancel(fetch->config.flights, &wait.waiter))
            return;
        /* It is being called: that ends soon. */
        lock_acquire(&fetch->lock);
        while (!wait.over)
            condition_wait(&fetch->changed, &fetch->lock);
        lock_release(&fetch->lock);
        if (is_here(fetch, want)) {
            want->outcome = TIER_FETCHED;
            return;
        }
    }
}

static void flight_over(struct flight_waiter *waiter)
{
    struct flight_wait *const wait = CONTAINER_OF(waiter, struct flight_wait, waiter);
    struct tier_fetch *const fetch = wait->fetch;
    lock_acquire(&fetch->lock);
    wait->over = true;
    condition_broadcast(&fetch->changed);
    lock_release(&fetch->lock);
}

static bool is_here(const struct tier_fetch *fetch, const struct tier_want *want)
{
    struct place place;
    return store_find_blob(fetch->store, &want->digest, FIND_ONLY, &place);
}

/* From the pack in which it is known to be; and when it is not there, it may be an object of its own. */
static enum tier_fetched download(struct tier_fetch *fetch, struct tier_want *want)
{
    struct bucket_row row;
    enum tier_fetched outcome = TIER_NOT_THERE;
    if (tier_known_where(fetch->config.known, &want->digest, &row) && row.pack != 0)
        outcome = download_from(fetch, want, &row);
    row.pack = 0;
    if (outcome == TIER_NOT_THERE)
        outcome = download_from(fetch, want, &row);
    if (outcome == TIER_NOT_THERE && want->digest.size_bytes <= PACK_BLOB_BYTES_MAX &&
        !tier_known_is_whole(fetch->config.known))
        outcome = TIER_UNAVAILABLE; /* it may be in a pack of which nothing is known yet */
    return outcome;
}

static enum tier_fetched download_from(struct tier_fetch *fetch,
                                       struct tier_want *want,
                                       const struct bucket_row *row)
{
    struct download download = {.fetch = fetch, .want = want, .row = *row};
    char key[BUCKET_KEY_BYTES_MAX];
    struct bucket_object object;
    struct status status = {0};
    struct log_text quoted;
    enum tier_fetched outcome = TIER_UNAVAILABLE;
    struct bucket_get get = {.key = key,
                             .sink = {.write = take_bytes, .argument = &download},
                             .deadline_ns = clock_monotonic_ns(fetch->store->clock) + patience_ns +
                                            want->digest.size_bytes / (int64_t)MIB * NS_PER_S};
    if (row->pack != 0) {
        layout_pack_key(fetch->config.prefix, row->pack, key);
        get.offset = row->offset;
        get.length = (uint64_t)want->digest.size_bytes;
    } else {
        layout_blob_key(fetch->config.prefix, &want->digest, key);
    }
    struct buffer *buffer = buffer_pool_try_take(fetch->buffers);
    if (buffer == NULL ||
        !blob_writer_new(fetch->store, &want->digest, &download.writer, &status)) {
        buffer_release(buffer);
        return TIER_UNAVAILABLE;
    }
    blob_writer_give_buffer(download.writer, buffer);
    if (!bucket_get(fetch->config.bucket, &get, &object, &status)) {
        /* More than it has, or a range that the pack has not. */
        const bool wrong = !download.failed_here && (status.code == STATUS_INVALID_ARGUMENT ||
                                                     status.code == STATUS_OUT_OF_RANGE);
        outcome = wrong ? lied(fetch, want, key) : TIER_UNAVAILABLE;
    } else if (object.presence != BUCKET_PRESENT) {
        /* Somebody has deleted it there. Whoever stores it anew has it sent again, and until then it is missing. */
        tier_known_drop(fetch->config.known, &want->digest);
        outcome = TIER_NOT_THERE;
    } else if (has_deletion(fetch, want)) {
        outcome = TIER_NOT_THERE;
    } else if (store_it(&download, object.modified_s, &status)) {
        outcome = TIER_FETCHED;
    } else if (!download.failed_here) {
        outcome = lied(fetch, want, key);
    }
    if (outcome == TIER_UNAVAILABLE && download.failed_here)
        log_event(LOG_LEVEL_WARN, "tier_download_not_stored", "key=%s reason=%s", key,
                  log_quote(&quoted, status.message));
    blob_writer_free(download.writer);
    return outcome;
}

/* INVALID_ARGUMENT: it is more than the blob has. */
static bool take_bytes(void *argument, struct bytes bytes, struct status *status)
{
    struct download *const download = argument;
    if (blob_writer_append(download->writer, bytes, status))
        return true;
    download->failed_here = status->code != STATUS_INVALID_ARGUMENT;
    return false;
}

/* All bytes are there, and hashed. False, and not failed_here: they are not those of the name. */
static bool store_it(struct download *download, int64_t since_s, struct status *status)
{
    struct tier_fetch *const fetch = download->fetch;
    struct commit_wait wait = {.fetch = fetch};
    struct record *record;
    enum lane lane;
    if (!blob_writer_finish(download->writer, &record, &lane, status)) {
        download->failed_here = status->code != STATUS_INVALID_ARGUMENT;
        return false;
    }
    /* Before it is in the log, where what brings the log into the bucket finds it. */
    if (download->row.pack != 0)
        tier_known_add_many(fetch->config.known, &download->row, 1);
    else
        tier_known_add(fetch->config.known, &download->want->digest, since_s);
    wait.request =
        (struct commit_request){.record = record, .local = true, .ack = {.done = committed}};
    commit_submit(durability_commit(fetch->config.durability, lane), &wait.request);
    lock_acquire(&fetch->lock);
    while (!wait.over)
        condition_wait(&fetch->changed, &fetch->lock);
    lock_release(&fetch->lock);
    if (wait.result.code == STATUS_OK)
        return true;
    *status = wait.result;
    download->failed_here = true;
    return false;
}

static void committed(struct ack *ack, const struct status *result)
{
    struct commit_wait *const wait = CONTAINER_OF(ack, struct commit_wait, request.ack);
    struct tier_fetch *const fetch = wait->fetch;
    lock_acquire(&fetch->lock);
    wait->result = *result;
    wait->over = true;
    condition_broadcast(&fetch->changed);
    lock_release(&fetch->lock);
}

/* ---- action results */

static enum tier_fetched get_result(struct tier_fetch *fetch, struct tier_want *want)
{
    struct gathered gathered = {0};
    char key[BUCKET_KEY_BYTES_MAX];
    struct bucket_object object;
    struct status status = {0};
    struct digest digest;
    layout_action_key(fetch->config.prefix, &want->digest, want->instance, key);
    const struct bucket_get get = {.key = key,
                                   .sink = {.write = gather, .argument = &gathered},
                                   .deadline_ns =
                                       clock_monotonic_ns(fetch->store->clock) + patience_ns};
    if (!bucket_get(fetch->config.bucket, &get, &object, &status) ||
        object.presence != BUCKET_PRESENT) {
        free(gathered.data);
        return status.code == STATUS_OK ? TIER_NOT_THERE : TIER_UNAVAILABLE;
    }
    /* An action's name is not the hash of its result: that was kept beside it. */
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(gathered.data, gathered.length), &digest);
    if (!object.has_sha256 || memcmp(object.sha256, digest.hash, SHA256_HASH_BYTES) != 0) {
        free(gathered.data);
        return lied(fetch, want, key);
    }
    if (has_deletion(fetch, want)) {
        free(gathered.data);
        return TIER_NOT_THERE;
    }
    want->result = gathered.data != NULL ? gathered.data : malloc(1);
    want->result_bytes = gathered.length;
    return want->result != NULL ? TIER_FETCHED : TIER_UNAVAILABLE;
}

static bool gather(void *argument, struct bytes bytes, struct status *status)
{
    struct gathered *const gathered = argument;
    if (bytes.length > LIMIT_ACTION_RESULT_BYTES - gathered->length)
        return status_fail(status, STATUS_OUT_OF_RANGE, "an action result of more than %" PRIu64,
                           (uint64_t)LIMIT_ACTION_RESULT_BYTES);
    uint8_t *const longer = realloc(gathered->data, gathered->length + bytes.length + 1);
    if (longer == NULL)
        return status_fail_errno(status, ENOMEM, "an action result");
    memcpy(longer + gathered->length, bytes.data, bytes.length);
    gathered->data = longer;
    gathered->length += bytes.length;
    return true;
}

/* ---- which are there */

/* Looks at those that are not known, from `begin` on, a block of them; leaves the missing ones at *missing. */
static bool find_some(struct tier_fetch *fetch,
                      struct tier_want *want,
                      size_t begin,
                      size_t count,
                      int64_t deadline_ns,
                      char (*texts)[BUCKET_KEY_BYTES_MAX],
                      size_t *missing)
{
    const char *keys[FIND_AT_A_TIME];
    size_t asked[FIND_AT_A_TIME];
    struct bucket_object objects[FIND_AT_A_TIME];
    bool there[FIND_AT_A_TIME];
    size_t asked_count = 0;
    struct status status = {0};
    for (size_t i = 0; i < count; i++) {
        there[i] = tier_known_has(fetch->config.known, &want->digests[begin + i]);
        if (there[i] || tier_known_is_absent(fetch->config.known, &want->digests[begin + i]))
            continue;
        layout_blob_key(fetch->config.prefix, &want->digests[begin + i], texts[asked_count]);
        keys[asked_count] = texts[asked_count];
        asked[asked_count++] = i;
    }
    /* What is not known in time counts as missing: then it is sent again. */
    const bool in_time =
        asked_count == 0 ||
        bucket_stat_many(fetch->config.bucket, keys, asked_count, deadline_ns, objects, &status);
    for (size_t i = 0; i < asked_count; i++) {
        if (objects[i].presence == BUCKET_ABSENT)
            tier_known_add_absent(fetch->config.known, &want->digests[begin + asked[i]]);
        if (objects[i].presence != BUCKET_PRESENT ||
            objects[i].size_bytes != (uint64_t)want->digests[begin + asked[i]].size_bytes ||
            !tier_known_is_young(fetch->config.known, objects[i].modified_s))
            continue;
        there[asked[i]] = true;
        tier_known_add(fetch->config.known, &want->digests[begin + asked[i]],
                       objects[i].modified_s);
    }
    for (size_t i = 0; i < count; i++) {
        if (!there[i])
            want->digests[(*missing)++] = want->digests[begin + i];
    }
    return in_time;
}

static enum tier_fetched find(struct tier_fetch *fetch, struct tier_want *want)
{
    const int64_t deadline_ns = clock_monotonic_ns(fetch->store->clock) + TIER_FIND_NS;
    const size_t total = want->count;
    /* For a moment all are missing: to look for each of them among the deletions would take long. */
    if (has_deletion(fetch, NULL))
        return TIER_UNAVAILABLE;
    char(*const texts)[BUCKET_KEY_BYTES_MAX] = malloc(FIND_AT_A_TIME * sizeof(texts[0]));
    if (texts == NULL)
        return TIER_UNAVAILABLE;
    size_t missing = 0;
    size_t begin = 0;
    for (bool in_time = true; in_time && begin < total;) {
        const size_t count = total - begin < FIND_AT_A_TIME ? total - begin : FIND_AT_A_TIME;
        in_time = find_some(fetch, want, begin, count, deadline_ns, texts, &missing);
        begin += count;
    }
    for (; begin < total; begin++)
        want->digests[missing++] = want->digests[begin];
    want->count = missing;
    metrics_add(fetch->config.metrics, METRIC_TIER_FINDS_PRESENT, (int64_t)(total - missing));
    metrics_add(fetch->config.metrics, METRIC_TIER_FINDS_MISSING, (int64_t)missing);
    free(texts);
    return TIER_FETCHED;
}

/* ---- what is to go there */

/* The next page of the deletions that were ordered and not carried out in the bucket yet. False: they cannot be read. */
static bool next_deletions(const struct tier_fetch *fetch,
                           struct feed_query *query,
                           struct arena *arena,
                           struct feed_batch *batch)
{
    struct feed *const feed = durability_feed(fetch->config.durability);
    struct status status = {0};
    if (feed_read(feed, query, arena, batch, &status))
        return true;
    /* The bucket was overtaken by the log, which is gone through anew there, too. */
    query->after_seq = 0;
    return feed_read(feed, query, arena, batch, &status);
}

/* Of this; or, of NULL, of anything. Whoever ordered it was told that it is gone. */
static bool has_deletion(const struct tier_fetch *fetch, const struct tier_want *of)
{
    if (fetch->config.deleted_until_seq == NULL)
        return false;
    struct feed_query query = {.lane = LANE_SMALL,
                               .after_seq = fetch->config.deleted_until_seq(fetch->config.argument),
                               .records_max = DELETIONS_AT_A_TIME,
                               .bytes_max = MIB,
                               .kinds = FEED_KIND(RECORD_FORGET),
                               .only = of != NULL ? &of->digest : NULL};
    bool found = false;
    bool more = true;
    while (more && !found) {
        struct arena arena;
        struct feed_batch batch;
        arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
        more = next_deletions(fetch, &query, &arena, &batch);
        for (size_t i = 0; more && !found && i < batch.count; i++) {
            const struct feed_entry *const entry = &batch.entries[i];
            found = of == NULL || (of->action == (entry->forgotten == RECORD_ACTION) &&
                                   (!of->action || bytes_equal(entry->instance, of->instance)));
        }
        more = more && batch.more;
        if (more && of == NULL)
            found = true; /* it is far behind, and to look through all of it would take long */
        if (more)
            query.after_seq = batch.next_after_seq;
        arena_destroy(&arena);
    }
    return found;
}

/* Whoever asks again is told the same; a person has to look at that object. */
static enum tier_fetched lied(struct tier_fetch *fetch,
                              const struct tier_want *want,
                              const char *key)
{
    metrics_add(fetch->config.metrics, METRIC_TIER_MISMATCHES, 1);
    if (!want->action)
        tier_known_drop(fetch->config.known, &want->digest);
    log_event(LOG_LEVEL_ERROR, "tier_object_wrong", "key=%s", key);
    return TIER_NOT_THERE;
}
