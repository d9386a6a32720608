/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_push.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/random.h"
#include "server/completeness.h"
#include "server/whole_blob.h"
#include "store/blob_reader.h"
#include "store/find.h"

enum { PAUSE_DOUBLINGS_MAX = 16 };
static const int64_t pause_min_usual_ns = 500 * NS_PER_MS;
static const int64_t pause_max_usual_ns = 60 * NS_PER_S;
static const int64_t tell_pause_usual_ns = 30 * NS_PER_S;

/* A blob on its way from the disk. */
struct blob_source {
    struct tier_pusher *pusher;
    struct blob_reader *reader;
    struct bytes chunk; /* in the pusher's buffer */
    uint64_t chunk_offset;
    bool failed; /* here, and not at the bucket */
};

/* What an action result names, gathered. */
struct names {
    struct arena *arena;
    struct digest **digests; /* in the arena, in blocks */
    size_t count, capacity;
    bool failed;
};

struct flight_wait {
    struct flight_waiter waiter;
    struct tier_push *push;
    bool over; /* guarded by push->lock */
};

static enum tier_pushed push_until_it_goes(struct tier_pusher *pusher,
                                           const struct digest *digest,
                                           enum tier_look look);
static bool push_once(struct tier_pusher *pusher,
                      const struct digest *digest,
                      enum tier_look look,
                      enum tier_pushed *outcome,
                      int64_t *since_s,
                      struct status *status);
static bool is_young(struct tier_push *push, const struct bucket_object *object);
static bool is_there(struct tier_pusher *pusher,
                     const char *key,
                     bool *there,
                     int64_t *since_s,
                     struct status *status);
static bool send_blob(struct tier_pusher *pusher,
                      const struct digest *digest,
                      const char *key,
                      struct blob_source *source,
                      struct status *status);
static bool read_source(void *argument,
                        uint64_t offset,
                        uint8_t *to,
                        size_t capacity,
                        size_t *length,
                        struct status *status);
static bool wait_after(struct tier_pusher *pusher, unsigned tries, const struct status *why);
static void went_well(struct tier_push *push);
static void flight_over(struct flight_waiter *waiter);
static bool wait_for_flight(struct tier_push *push, struct flight_wait *wait);
static enum tier_pushed leave_out(struct tier_push *push,
                                  const struct digest *digest,
                                  const char *why);
static bool result_is_fresh(struct tier_pusher *pusher, const struct feed_entry *entry);
static void take_name(void *argument, const struct digest *digest);
static enum tier_pushed push_names(struct tier_pusher *pusher, const struct names *names);
static enum tier_pushed look_for(struct tier_pusher *pusher,
                                 const struct digest *const *digests,
                                 size_t count);
static enum tier_pushed put_result(struct tier_pusher *pusher, const struct feed_entry *entry);
static enum tier_pushed delete_until_it_goes(struct tier_pusher *pusher);

bool tier_push_init(struct tier_push *push,
                    const struct tier_push_config *config,
                    struct status *status)
{
    *push = (struct tier_push){.durability = config->durability,
                               .store = durability_store(config->durability),
                               .bucket = config->bucket,
                               .metrics = config->metrics,
                               .prefix = config->prefix,
                               .known = config->known};
    push->pause_min_ns = config->pause_min_ns != 0 ? config->pause_min_ns : pause_min_usual_ns;
    push->pause_max_ns = config->pause_max_ns != 0 ? config->pause_max_ns : pause_max_usual_ns;
    push->tell_pause_ns = config->tell_pause_ns != 0 ? config->tell_pause_ns : tell_pause_usual_ns;
    lock_init(&push->lock, LOCK_RANK_TIER_PUSH);
    condition_init(&push->changed);
    return buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, config->pushers, &push->buffers, status) &&
           flights_new(&push->flights, status);
}

void tier_push_destroy(struct tier_push *push)
{
    if (push->store == NULL)
        return;
    flights_free(push->flights);
    if (push->buffers != NULL)
        buffer_pool_free(push->buffers);
    condition_destroy(&push->changed);
    lock_destroy(&push->lock);
}

void tier_push_stop(struct tier_push *push)
{
    lock_acquire(&push->lock);
    push->stopping = true;
    condition_broadcast(&push->changed);
    lock_release(&push->lock);
}

/* seen: NULL, or what the news must be for the pause to go on. */
static bool pause_locked(struct tier_push *push, int64_t duration_ns, const uint64_t *seen)
    REQUIRES(push->lock)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + duration_ns;
    for (int64_t left_ns = duration_ns;
         !push->stopping && left_ns > 0 && (seen == NULL || push->news == *seen);
         left_ns = until_ns - clock_monotonic_ns(clock_real()))
        (void)condition_wait_for(&push->changed, &push->lock, left_ns);
    return !push->stopping;
}

static bool is_stopping(struct tier_push *push)
{
    lock_acquire(&push->lock);
    const bool stopping = push->stopping;
    lock_release(&push->lock);
    return stopping;
}

bool tier_push_pause(struct tier_push *push, int64_t duration_ns)
{
    lock_acquire(&push->lock);
    const bool goes_on = pause_locked(push, duration_ns, NULL);
    lock_release(&push->lock);
    return goes_on;
}

void tier_push_trouble(struct tier_push *push, char text[STATUS_MESSAGE_BYTES_MAX])
{
    lock_acquire(&push->lock);
    snprintf(text, STATUS_MESSAGE_BYTES_MAX, "%s", push->trouble);
    lock_release(&push->lock);
}

void tier_push_wake(struct tier_push *push)
{
    lock_acquire(&push->lock);
    push->news++;
    condition_broadcast(&push->changed);
    lock_release(&push->lock);
}

bool tier_push_await_news(struct tier_push *push, uint64_t *seen, int64_t duration_ns)
{
    lock_acquire(&push->lock);
    const bool goes_on = pause_locked(push, duration_ns, seen);
    *seen = push->news;
    lock_release(&push->lock);
    return goes_on;
}

bool tier_pusher_init(struct tier_pusher *pusher, struct tier_push *push, struct status *status)
{
    *pusher = (struct tier_pusher){.push = push};
    if (!random_fill(&pusher->random, sizeof(pusher->random), status))
        return false;
    pusher->buffer = buffer_pool_try_take(push->buffers);
    pusher->keys = calloc(TIER_LOOK_AT_A_TIME, sizeof(pusher->keys[0]));
    return (pusher->buffer != NULL && pusher->keys != NULL) ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "memory for uploads to the tier");
}

void tier_pusher_destroy(struct tier_pusher *pusher)
{
    buffer_release(pusher->buffer);
    free(pusher->keys);
    pusher->buffer = NULL;
    pusher->keys = NULL;
}

/* By an LCG (Knuth, MMIX), whose upper half is good enough. */
uint64_t tier_pusher_chance(struct tier_pusher *pusher)
{
    pusher->random = pusher->random * UINT64_C(6364136223846793005) + 1;
    return pusher->random >> 33;
}

/* ---- a blob */

enum tier_pushed tier_push_blob(struct tier_pusher *pusher,
                                const struct digest *digest,
                                enum tier_look look)
{
    struct tier_push *const push = pusher->push;
    if (digest_is_empty_blob(digest))
        return TIER_PUSHED;
    for (;;) {
        if (look == TIER_AGAIN ? tier_known_is_fresh(push->known, digest)
                               : tier_known_has(push->known, digest))
            return TIER_PUSHED;
        struct flight flight;
        struct flight_wait wait = {.waiter.ready = flight_over, .push = push};
        const struct blob_key key = blob_table_blob_key(push->store->table, digest);
        if (flights_begin(push->flights, key, &flight, &wait.waiter)) {
            const enum tier_pushed outcome = push_until_it_goes(pusher, digest, look);
            flights_end(push->flights, &flight);
            return outcome;
        }
        /* Somebody else sends it, and may find that it is gone: then this one finds it, too. */
        if (!wait_for_flight(push, &wait))
            return TIER_PUSH_STOPPED;
    }
}

static void flight_over(struct flight_waiter *waiter)
{
    struct flight_wait *const wait = CONTAINER_OF(waiter, struct flight_wait, waiter);
    struct tier_push *const push = wait->push;
    lock_acquire(&push->lock);
    wait->over = true;
    condition_broadcast(&push->changed);
    lock_release(&push->lock);
}

/* Whoever flies ends when it is stopped, so this does. */
static bool wait_for_flight(struct tier_push *push, struct flight_wait *wait)
{
    lock_acquire(&push->lock);
    while (!wait->over)
        condition_wait(&push->changed, &push->lock);
    const bool goes_on = !push->stopping;
    lock_release(&push->lock);
    return goes_on;
}

static enum tier_pushed push_until_it_goes(struct tier_pusher *pusher,
                                           const struct digest *digest,
                                           enum tier_look look)
{
    for (unsigned tries = 0;; tries++) {
        enum tier_pushed outcome = TIER_PUSHED;
        int64_t since_s = 0;
        struct status status = {0};
        if (is_stopping(pusher->push))
            return TIER_PUSH_STOPPED;
        if (push_once(pusher, digest, look, &outcome, &since_s, &status)) {
            if (outcome == TIER_PUSHED)
                tier_known_add(pusher->push->known, digest, since_s);
            return outcome;
        }
        /* It may have got there after all; one that is there already is no sign of that. */
        if (look != TIER_AGAIN)
            look = TIER_LOOK_FIRST;
        if (!wait_after(pusher, tries, &status))
            return TIER_PUSH_STOPPED;
    }
}

/* False: it is to be tried again, for the reason given. *since_s: of an object that was there; 0: it is new. */
static bool push_once(struct tier_pusher *pusher,
                      const struct digest *digest,
                      enum tier_look look,
                      enum tier_pushed *outcome,
                      int64_t *since_s,
                      struct status *status)
{
    struct tier_push *const push = pusher->push;
    char key[BUCKET_KEY_BYTES_MAX];
    struct place place;
    bool there = false;
    layout_blob_key(push->prefix, digest, key);
    if (!store_find_blob(push->store, digest, FIND_ONLY, &place)) {
        *outcome = leave_out(push, digest, "it is not here any more");
        return true;
    }
    if (look == TIER_LOOK_FIRST && !is_there(pusher, key, &there, since_s, status))
        return false;
    if (there) {
        metrics_add(push->metrics, METRIC_TIER_PRESENT, 1);
        went_well(push);
        return true;
    }
    struct blob_source source = {.pusher = pusher};
    struct status why = {0};
    bool ok = blob_reader_open_at(push->store, digest, place, &source.reader, &why);
    source.failed = !ok;
    if (ok && source.reader == NULL)
        ok = status_fail(&why, STATUS_ABORTED, "its record is being moved");
    ok = ok && send_blob(pusher, digest, key, &source, &why);
    blob_reader_free(source.reader);
    if (ok) {
        metrics_add(push->metrics, METRIC_TIER_BLOBS, 1);
        if (look == TIER_AGAIN)
            metrics_add(push->metrics, METRIC_TIER_REFRESHED, 1);
        went_well(push);
        return true;
    }
    if (source.failed && why.code == STATUS_DATA_LOSS) {
        damaged_blob_forget(push->durability, digest, place, &why);
        *outcome = leave_out(push, digest, "it is damaged here");
        return true;
    }
    *status = why;
    return false;
}

static bool is_there(struct tier_pusher *pusher,
                     const char *key,
                     bool *there,
                     int64_t *since_s,
                     struct status *status)
{
    struct bucket_object object;
    if (!bucket_stat_many(pusher->push->bucket, &key, 1, 0, &object, status))
        return false;
    *there = object.presence == BUCKET_PRESENT && is_young(pusher->push, &object);
    *since_s = *there ? object.modified_s : 0;
    return true;
}

/* What is there, and will be removed before long by the bucket's own rule, is sent again: that makes it new. */
static bool is_young(struct tier_push *push, const struct bucket_object *object)
{
    if (tier_known_is_young(push->known, object->modified_s))
        return true;
    metrics_add(push->metrics, METRIC_TIER_REFRESHED, 1);
    return false;
}

static bool send_blob(struct tier_pusher *pusher,
                      const struct digest *digest,
                      const char *key,
                      struct blob_source *source,
                      struct status *status)
{
    const struct bucket_put put = {.key = key,
                                   .source = {.read = read_source,
                                              .argument = source,
                                              .size_bytes = (uint64_t)digest->size_bytes},
                                   .sha256 = digest->hash,
                                   .notes = {{"varve-format", "1"}},
                                   .note_count = 1};
    return bucket_put(pusher->push->bucket, &put, status);
}

static bool read_source(void *argument,
                        uint64_t offset,
                        uint8_t *to,
                        size_t capacity,
                        size_t *length,
                        struct status *status)
{
    struct blob_source *const source = argument;
    if (offset < source->chunk_offset || offset - source->chunk_offset >= source->chunk.length) {
        source->chunk = bytes_of(NULL, 0);
        if (!blob_reader_read(source->reader, offset, source->pusher->buffer, &source->chunk,
                              status)) {
            source->failed = true;
            return false;
        }
        source->chunk_offset = offset;
    }
    const size_t from = (size_t)(offset - source->chunk_offset);
    const size_t rest = source->chunk.length - from;
    *length = rest < capacity ? rest : capacity;
    memcpy(to, source->chunk.data + from, *length);
    return true;
}

/* ---- failures */

/* Pauses double, and are between half and all of that. False: it is being stopped. */
static bool wait_after(struct tier_pusher *pusher, unsigned tries, const struct status *why)
{
    struct tier_push *const push = pusher->push;
    struct log_text quoted;
    const bool tell = bucket_fault_of(why) == BUCKET_TELL;
    const unsigned doublings = tries < PAUSE_DOUBLINGS_MAX ? tries : PAUSE_DOUBLINGS_MAX;
    int64_t pause_ns = (tell ? push->tell_pause_ns : push->pause_min_ns) << doublings;
    if (pause_ns > push->pause_max_ns)
        pause_ns = push->pause_max_ns;
    pause_ns = pause_ns / 2 + (int64_t)(tier_pusher_chance(pusher) % (uint64_t)(pause_ns / 2 + 1));
    metrics_add(push->metrics, METRIC_TIER_RETRIES, 1);
    lock_acquire(&push->lock);
    const bool first = !push->failing && !push->stopping;
    push->failing = true;
    snprintf(push->trouble, sizeof(push->trouble), "%s", why->message);
    lock_release(&push->lock);
    if (first)
        log_event(tell ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN, "tier_upload_failed",
                  "code=%s reason=%s", status_code_name(why->code),
                  log_quote(&quoted, why->message));
    return tier_push_pause(push, pause_ns);
}

static void went_well(struct tier_push *push)
{
    lock_acquire(&push->lock);
    const bool was = push->failing;
    push->failing = false;
    push->trouble[0] = '\0';
    lock_release(&push->lock);
    if (was)
        log_event(LOG_LEVEL_INFO, "tier_uploads_again", "prefix=%s", push->prefix);
}

static enum tier_pushed leave_out(struct tier_push *push,
                                  const struct digest *digest,
                                  const char *why)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    metrics_add(push->metrics, METRIC_TIER_LEFT_OUT, 1);
    log_event(LOG_LEVEL_DEBUG, "tier_left_out", "digest=%.8s reason=\"%s\"",
              digest_hex(digest, hex), why);
    return TIER_PUSH_GONE;
}

/* ---- an action result */

enum tier_pushed tier_push_action(struct tier_pusher *pusher,
                                  const struct feed_entry *entry,
                                  enum tier_look look)
{
    struct tier_push *const push = pusher->push;
    if (look == TIER_AGAIN && result_is_fresh(pusher, entry))
        return TIER_PUSHED;
    const enum digest_function function = (enum digest_function)entry->digest.function;
    struct arena arena;
    struct status status = {0};
    enum tier_pushed outcome = TIER_PUSHED;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    /* Caches over HTTP keep what they like there; then it names nothing. */
    if (action_result_check(entry->result, function, &arena, &status)) {
        struct names names = {.arena = &arena};
        struct completeness completeness;
        for (unsigned tries = 0;; tries++) {
            names.count = 0;
            status = (struct status){0};
            if (completeness_list(push->durability, &arena, function, entry->result, take_name,
                                  &names, &completeness, &status))
                break;
            /* The disk, or memory: it is not for us to give it up. */
            if (!wait_after(pusher, tries < 4 ? tries : 4, &status)) {
                arena_destroy(&arena);
                return TIER_PUSH_STOPPED;
            }
            arena_destroy(&arena);
            arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
            names = (struct names){.arena = &arena};
        }
        if (!completeness.complete || names.failed)
            outcome = leave_out(push, &entry->digest, "not all that it names is here");
        else
            outcome = push_names(pusher, &names);
    }
    if (outcome == TIER_PUSHED)
        outcome = put_result(pusher, entry);
    else if (outcome == TIER_PUSH_GONE)
        metrics_add(push->metrics, METRIC_TIER_ACTIONS_LEFT_OUT, 1);
    arena_destroy(&arena);
    return outcome;
}

/* Somebody has brought it there lately. What cannot be told is sent. */
static bool result_is_fresh(struct tier_pusher *pusher, const struct feed_entry *entry)
{
    struct tier_push *const push = pusher->push;
    const char *const key = pusher->keys[0];
    struct bucket_object object;
    struct status ignored = {0};
    layout_action_key(push->prefix, &entry->digest, entry->instance, pusher->keys[0]);
    return bucket_stat_many(push->bucket, &key, 1, 0, &object, &ignored) &&
           object.presence == BUCKET_PRESENT &&
           clock_wall_ns(push->store->clock) / NS_PER_S - object.modified_s <
               tier_known_refresh_after_s(push->known) / 2;
}

static void take_name(void *argument, const struct digest *digest)
{
    struct names *const names = argument;
    if (names->failed || digest_is_empty_blob(digest))
        return;
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity == 0 ? 64 : 2 * names->capacity;
        struct digest **const more = arena_take(names->arena, capacity * sizeof(more[0]));
        names->failed = more == NULL;
        if (names->failed)
            return;
        if (names->count > 0)
            memcpy(more, names->digests, names->count * sizeof(more[0]));
        names->digests = more;
        names->capacity = capacity;
    }
    struct digest *const copy = arena_take(names->arena, sizeof(*copy));
    names->failed = copy == NULL;
    if (!names->failed) {
        *copy = *digest;
        names->digests[names->count++] = copy;
    }
}

/* Those of which nothing is known are looked for together; what is not there is sent. */
static enum tier_pushed push_names(struct tier_pusher *pusher, const struct names *names)
{
    const struct digest *unknown[TIER_LOOK_AT_A_TIME];
    size_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        if (!tier_known_has(pusher->push->known, names->digests[i]))
            unknown[count++] = names->digests[i];
        if (count < TIER_LOOK_AT_A_TIME && i + 1 < names->count)
            continue;
        const enum tier_pushed outcome = look_for(pusher, unknown, count);
        if (outcome != TIER_PUSHED)
            return outcome;
        count = 0;
    }
    return TIER_PUSHED;
}

static enum tier_pushed look_for(struct tier_pusher *pusher,
                                 const struct digest *const *digests,
                                 size_t count)
{
    struct tier_push *const push = pusher->push;
    const char *keys[TIER_LOOK_AT_A_TIME];
    struct bucket_object objects[TIER_LOOK_AT_A_TIME];
    struct status status = {0};
    for (size_t i = 0; i < count; i++) {
        layout_blob_key(push->prefix, digests[i], pusher->keys[i]);
        keys[i] = pusher->keys[i];
    }
    /* A failure leaves some unknown: those are gone after one by one, with all patience. */
    if (count > 0 && !bucket_stat_many(push->bucket, keys, count, 0, objects, &status) &&
        status.code == STATUS_CANCELLED)
        return TIER_PUSH_STOPPED;
    for (size_t i = 0; i < count; i++) {
        const bool known = objects[i].presence != BUCKET_UNKNOWN;
        if (objects[i].presence == BUCKET_PRESENT && is_young(push, &objects[i])) {
            tier_known_add(push->known, digests[i], objects[i].modified_s);
            continue;
        }
        const enum tier_pushed outcome =
            tier_push_blob(pusher, digests[i], known ? TIER_SEND : TIER_LOOK_FIRST);
        if (outcome != TIER_PUSHED)
            return outcome;
    }
    return TIER_PUSHED;
}

static enum tier_pushed put_result(struct tier_pusher *pusher, const struct feed_entry *entry)
{
    struct tier_push *const push = pusher->push;
    char key[BUCKET_KEY_BYTES_MAX];
    char sha256[DIGEST_HASH_HEX_MAX + 1];
    char written[24];
    char origin[24];
    struct bucket_memory memory = {.bytes = entry->result};
    layout_action_key(push->prefix, &entry->digest, entry->instance, key);
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, entry->result, &digest);
    digest_hex(&digest, sha256);
    snprintf(written, sizeof(written), "%" PRId64, entry->wall_ns);
    snprintf(origin, sizeof(origin), "%016" PRIx64, entry->origin_uid);
    const struct bucket_put put = {.key = key,
                                   .source = bucket_source_of(&memory),
                                   .sha256 = digest.hash,
                                   .notes = {{"varve-format", "1"},
                                             {BUCKET_NOTE_SHA256, sha256},
                                             {"varve-written-ns", written},
                                             {"varve-origin", origin}},
                                   .note_count = 4};
    bool sent = false;
    for (unsigned tries = 0; !sent; tries++) {
        if (!tier_push_try(pusher, &put, tries, &sent))
            return TIER_PUSH_STOPPED;
    }
    metrics_add(push->metrics, METRIC_TIER_ACTIONS, 1);
    return TIER_PUSHED;
}

bool tier_push_try(struct tier_pusher *pusher,
                   const struct bucket_put *put,
                   unsigned tries,
                   bool *sent)
{
    struct tier_push *const push = pusher->push;
    struct status status = {0};
    *sent = false;
    if (is_stopping(push))
        return false;
    *sent = bucket_put(push->bucket, put, &status);
    if (!*sent)
        return wait_after(pusher, tries, &status);
    went_well(push);
    return true;
}

/* ---- a deletion */

static bool is_stored(const struct tier_push *push, const struct feed_entry *entry)
{
    struct place place;
    if (entry->forgotten == RECORD_ACTION)
        return store_find_action(push->store, &entry->digest, entry->instance, FIND_ONLY, &place);
    return store_find_blob(push->store, &entry->digest, FIND_ONLY, &place);
}

enum tier_pushed tier_push_forget(struct tier_pusher *pusher,
                                  const struct feed_entry *entry,
                                  bool *deleted)
{
    struct tier_push *const push = pusher->push;
    *deleted = !is_stored(push, entry);
    if (!*deleted)
        return TIER_PUSHED;
    if (entry->forgotten == RECORD_ACTION) {
        layout_action_key(push->prefix, &entry->digest, entry->instance, pusher->keys[0]);
        return delete_until_it_goes(pusher);
    }
    /* An upload of it that has begun before shall not end after. */
    const struct blob_key key = blob_table_blob_key(push->store->table, &entry->digest);
    for (;;) {
        struct flight flight;
        struct flight_wait wait = {.waiter.ready = flight_over, .push = push};
        if (flights_begin(push->flights, key, &flight, &wait.waiter)) {
            enum tier_pushed outcome = TIER_PUSHED;
            *deleted = !is_stored(push, entry);
            if (*deleted) {
                tier_known_drop(push->known, &entry->digest);
                layout_blob_key(push->prefix, &entry->digest, pusher->keys[0]);
                outcome = delete_until_it_goes(pusher);
                /* A listing that came meanwhile may have named it. */
                tier_known_drop(push->known, &entry->digest);
            }
            flights_end(push->flights, &flight);
            return outcome;
        }
        if (!wait_for_flight(push, &wait))
            return TIER_PUSH_STOPPED;
    }
}

/* The object of pusher->keys[0]. */
static enum tier_pushed delete_until_it_goes(struct tier_pusher *pusher)
{
    struct tier_push *const push = pusher->push;
    const char *const key = pusher->keys[0];
    for (unsigned tries = 0;; tries++) {
        struct status status = {0};
        if (bucket_delete_many(push->bucket, &key, 1, 0, &status)) {
            metrics_add(push->metrics, METRIC_TIER_DELETIONS, 1);
            went_well(push);
            return TIER_PUSHED;
        }
        if (!wait_after(pusher, tries, &status))
            return TIER_PUSH_STOPPED;
    }
}
