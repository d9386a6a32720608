/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/tier_cursor.h"
#include "server/tier_pack.h"
#include "server/tier_push.h"
#include "server/tier_refresh.h"

enum {
    SMALL_BATCH_RECORDS = 4096,
    LARGE_BATCH_RECORDS = 64,
    BATCH_RESULT_BYTES = 8 << 20, /* of the action results of a batch */
    REFRESH_RECORDS = 1024,
    PACKS_AT_A_TIME = 4,
    DELETIONS_AT_A_TIME = 256,
    NOTES_MAX = 64, /* of where the log ended when */
};
static const int64_t pack_wait_usual_ns = 5 * NS_PER_S;
/* Index objects are looked for every five seconds; to send a pack takes one or two itself. */
static const int64_t pack_step_usual_ns = 7 * NS_PER_S;
/* How often the end of the log is looked at, and the cursor written. */
static const int64_t idle_ns = 250 * NS_PER_MS;
/* It counts as heard of while this process runs: what is in the bucket stays there when that does not answer. */
static const int64_t heard_ns = 3650 * 24 * 3600 * NS_PER_S;
static const int64_t save_ns = NS_PER_S;

enum phase { PHASE_PACKS, PHASE_BLOBS, PHASE_ACTIONS };

/* Some of a batch's entries, one after the other: of a pack, or one. */
struct work {
    const struct feed_entry *entries;
    size_t count; /* 0: there is none now */
};

/* Where the log ended at a time. */
struct log_note {
    int64_t at_ns;
    uint64_t seq;
};

struct tier_upload {
    struct tier_lane *lane;
    struct thread thread;
    struct tier_pusher pusher;
};

struct tier_lane {
    /* Set at the start, never changed. */
    struct tier_queue *queue;
    enum lane lane;
    struct thread planner;
    struct tier_upload *uploads; /* owned */
    size_t upload_count;

    /* The planner's. */
    struct tier_pusher pusher;
    uint64_t after_seq, saved_seq;
    uint64_t look_until_seq; /* what is before may be in the bucket: of an earlier run */
    uint64_t seen_news;
    bool began;
    int64_t saved_ns;
    bool waited; /* for a pack to be filled */
    struct log_note notes[NOTES_MAX];
    size_t note_count; /* all ever made */
    struct tier_refresh refresh;
    _Atomic uint64_t done_seq;

    struct lock lock;
    struct condition work, idle;
    const struct feed_batch *batch; /* guarded by lock, as all below; NULL: none */
    enum phase phase;
    bool again;       /* it is of things that are to be younger there */
    size_t next;      /* entry of the batch */
    size_t busy;      /* uploads that have something of it */
    bool ended;       /* uploads are to end */
    bool interrupted; /* something of the batch is not where it should be */
};

struct tier_queue {
    struct tier_queue_config config;
    char *prefix; /* owned */
    struct store *store;
    struct tier_push push;
    struct tier_lane lanes[LANE_COUNT];
};

static bool start_lane(struct tier_lane *lane, size_t uploads, struct status *status);
static void run_planner(void *argument);
static bool round_of(struct tier_lane *lane, bool *more);
static bool refresh_some(struct tier_lane *lane);
static bool makes_packs(const struct tier_lane *lane);
static bool is_to_wait(struct tier_lane *lane, const struct feed_batch *batch);
static int64_t behind_others_ns(const struct tier_lane *lane);
static bool through_seq(struct tier_lane *lane, uint64_t *seq);
static bool read_failed(struct tier_lane *lane, const struct status *why);
static bool run_phases(struct tier_lane *lane, const struct feed_batch *batch, bool again);
static bool run_phase(struct tier_lane *lane,
                      const struct feed_batch *batch,
                      enum phase phase,
                      bool again);
static bool run_forgets(struct tier_lane *lane, const struct feed_batch *batch);
static void move_on(struct tier_lane *lane, const struct feed_batch *batch);
static void log_goes_on(void *argument, enum lane lane);
static void tell_how_far(const struct tier_lane *lane);
static void save(struct tier_lane *lane);
static void run_upload(void *argument);
static struct work take_locked(struct tier_lane *lane) REQUIRES(lane->lock);
static struct work take_pack_locked(struct tier_lane *lane) REQUIRES(lane->lock);
static bool is_of(enum phase phase, const struct feed_entry *entry);
static enum tier_pushed push_work(struct tier_lane *lane,
                                  struct tier_pusher *pusher,
                                  enum phase phase,
                                  bool again,
                                  const struct work *work);
static const char *name_of(const struct tier_lane *lane);

bool tier_queue_start(const struct tier_queue_config *config,
                      struct tier_queue **queue_out,
                      struct status *status)
{
    ASSERT(config->uploads >= TIER_UPLOADS_MIN && config->uploads <= TIER_UPLOADS_MAX);
    struct tier_queue *const queue = calloc(1, sizeof(*queue));
    if (queue == NULL)
        return status_fail_errno(status, ENOMEM, "uploads to the tier");
    queue->config = *config;
    if (config->pack_wait_ns == 0)
        queue->config.pack_wait_ns = pack_wait_usual_ns;
    if (config->pack_step_ns == 0)
        queue->config.pack_step_ns = pack_step_usual_ns;
    queue->store = durability_store(config->durability);
    queue->prefix = strdup(config->prefix);
    const size_t large = config->uploads / 4 > 0 ? config->uploads / 4 : 1;
    const size_t uploads[LANE_COUNT] = {
        [LANE_SMALL] = config->uploads - large, [LANE_LARGE] = large};
    const struct tier_push_config push = {.durability = config->durability,
                                          .bucket = config->bucket,
                                          .metrics = config->metrics,
                                          .known = config->known,
                                          .prefix = queue->prefix,
                                          .pushers = config->uploads + LANE_COUNT,
                                          .pause_min_ns = config->pause_min_ns,
                                          .pause_max_ns = config->pause_max_ns,
                                          .tell_pause_ns = config->tell_pause_ns};
    for (size_t i = 0; i < LANE_COUNT; i++) {
        struct tier_lane *const lane = &queue->lanes[i];
        lane->queue = queue;
        lane->lane = (enum lane)i;
        lock_init(&lane->lock, LOCK_RANK_TIER_QUEUE);
        condition_init(&lane->work);
        condition_init(&lane->idle);
    }
    if (queue->prefix == NULL) {
        status_fail_errno(status, ENOMEM, "uploads to the tier");
        goto fail;
    }
    if (!tier_push_init(&queue->push, &push, status))
        goto fail;
    for (size_t i = 0; i < LANE_COUNT; i++)
        if (!start_lane(&queue->lanes[i], uploads[i], status))
            goto fail;
    if (config->hurries)
        copies_set_hook(durability_copies(config->durability), COPIES_HOOK_BUCKET, log_goes_on,
                        queue);
    *queue_out = queue;
    return true;
fail:
    tier_queue_stop(queue);
    return false;
}

static bool start_lane(struct tier_lane *lane, size_t uploads, struct status *status)
{
    struct tier_queue *const queue = lane->queue;
    lane->after_seq = lane->saved_seq =
        tier_cursor_load(queue->store, lane->lane, queue->config.place);
    atomic_store(&lane->done_seq, lane->after_seq);
    tier_refresh_init(&lane->refresh, queue->store, queue->config.known, lane->lane);
    lane->uploads = calloc(uploads, sizeof(lane->uploads[0]));
    if (lane->uploads == NULL)
        return status_fail_errno(status, ENOMEM, "uploads to the tier");
    lane->upload_count = uploads;
    if (!tier_pusher_init(&lane->pusher, &queue->push, status))
        return false;
    for (size_t i = 0; i < uploads; i++) {
        struct tier_upload *const upload = &lane->uploads[i];
        upload->lane = lane;
        if (!tier_pusher_init(&upload->pusher, &queue->push, status) ||
            !thread_start(&upload->thread, "tier-upload", 0, run_upload, upload, status))
            return false;
    }
    return thread_start(&lane->planner, "tier-queue", 0, run_planner, lane, status);
}

void tier_queue_ask_to_stop(struct tier_queue *queue)
{
    tier_push_stop(&queue->push);
}

void tier_queue_stop(struct tier_queue *queue)
{
    if (queue == NULL)
        return;
    if (queue->config.hurries)
        copies_set_hook(durability_copies(queue->config.durability), COPIES_HOOK_BUCKET, NULL,
                        NULL);
    if (queue->push.store != NULL)
        tier_push_stop(&queue->push);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        struct tier_lane *const lane = &queue->lanes[i];
        thread_join(&lane->planner);
        lock_acquire(&lane->lock);
        lane->ended = true;
        condition_broadcast(&lane->work);
        lock_release(&lane->lock);
        for (size_t j = 0; j < lane->upload_count; j++)
            thread_join(&lane->uploads[j].thread);
    }
    for (size_t i = 0; i < LANE_COUNT; i++) {
        struct tier_lane *const lane = &queue->lanes[i];
        for (size_t j = 0; j < lane->upload_count; j++)
            tier_pusher_destroy(&lane->uploads[j].pusher);
        tier_pusher_destroy(&lane->pusher);
        free(lane->uploads);
        condition_destroy(&lane->work);
        condition_destroy(&lane->idle);
        lock_destroy(&lane->lock);
    }
    tier_push_destroy(&queue->push);
    free(queue->prefix);
    free(queue);
}

void tier_queue_trouble(struct tier_queue *queue, char text[STATUS_MESSAGE_BYTES_MAX])
{
    tier_push_trouble(&queue->push, text);
}

void tier_queue_step(struct tier_queue *queue)
{
    static const enum metric behind[LANE_COUNT] = {
        [LANE_SMALL] = METRIC_TIER_BEHIND_SMALL, [LANE_LARGE] = METRIC_TIER_BEHIND_LARGE};
    for (enum lane lane = 0; lane < LANE_COUNT; lane++) {
        const struct feed_query query = {
            .lane = lane, .after_seq = tier_queue_seq(queue, lane), .kinds = FEED_ALL};
        struct feed_batch batch;
        struct arena arena;
        struct status ignored = {0};
        arena_init(&arena, MIB);
        /* What was evicted before its turn is behind no more. */
        if (feed_read(durability_feed(queue->config.durability), &query, &arena, &batch, &ignored))
            metrics_set(queue->config.metrics, behind[lane], (int64_t)batch.behind_bytes);
        arena_destroy(&arena);
    }
}

uint64_t tier_queue_seq(struct tier_queue *queue, enum lane lane)
{
    return atomic_load(&queue->lanes[lane].done_seq);
}

/* ---- the planner */

static void run_planner(void *argument)
{
    struct tier_lane *const lane = argument;
    bool goes_on = true;
    while (goes_on) {
        bool more = false;
        goes_on = round_of(lane, &more) && (more || refresh_some(lane)) &&
                  (more || tier_push_await_news(&lane->queue->push, &lane->seen_news, idle_ns));
    }
    save(lane);
}

/* One batch. False: it is being stopped. */
static bool round_of(struct tier_lane *lane, bool *more)
{
    struct tier_queue *const queue = lane->queue;
    struct arena arena;
    struct feed_batch batch;
    struct status status = {0};
    struct feed_query query = {
        .lane = lane->lane,
        .after_seq = lane->after_seq,
        .records_max = lane->lane == LANE_SMALL ? SMALL_BATCH_RECORDS : LARGE_BATCH_RECORDS,
        .bytes_max = BATCH_RESULT_BYTES,
        .kinds = FEED_ALL,
    };
    /* What the bucket has in packs is known first. */
    if (makes_packs(lane) && !tier_known_is_whole(queue->config.known))
        return true;
    if (!through_seq(lane, &query.through_seq))
        return true;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    bool goes_on;
    if (!feed_read(durability_feed(queue->config.durability), &query, &arena, &batch, &status)) {
        goes_on = read_failed(lane, &status);
    } else if (is_to_wait(lane, &batch)) {
        lane->waited = true;
        goes_on = tier_push_pause(&queue->push, queue->config.pack_wait_ns);
        *more = true;
    } else {
        if (!lane->began)
            lane->look_until_seq = batch.published_seq;
        lane->began = true;
        goes_on = run_phases(lane, &batch, false) && run_forgets(lane, &batch);
        if (goes_on)
            move_on(lane, &batch);
        lane->waited = false;
        *more = batch.more;
    }
    arena_destroy(&arena);
    return goes_on;
}

/* A little of what is in use and no longer young there, between what is new. False: it is being stopped. */
static bool refresh_some(struct tier_lane *lane)
{
    struct tier_queue *const queue = lane->queue;
    struct feed_query query = {.records_max = REFRESH_RECORDS, .bytes_max = BATCH_RESULT_BYTES};
    struct arena arena;
    struct feed_batch batch;
    struct status status = {0};
    struct log_text quoted;
    if (!tier_refresh_wants(&lane->refresh, lane->after_seq, &query))
        return true;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    bool goes_on = true;
    if (feed_read(durability_feed(queue->config.durability), &query, &arena, &batch, &status)) {
        tier_refresh_choose(&lane->refresh, &batch);
        goes_on = run_phases(lane, &batch, true);
        if (goes_on)
            tier_refresh_move_on(&lane->refresh, &batch);
    } else {
        log_event(LOG_LEVEL_WARN, "tier_log_unread", "lane=%s seq=%" PRIu64 " reason=%s",
                  name_of(lane), query.after_seq, log_quote(&quoted, status.message));
        tier_refresh_move_on(&lane->refresh, NULL);
        goes_on = tier_push_pause(&queue->push, 5 * NS_PER_S);
    }
    arena_destroy(&arena);
    return goes_on;
}

static bool makes_packs(const struct tier_lane *lane)
{
    return lane->queue->config.packs && lane->lane == LANE_SMALL;
}

/* Once for each batch that is not full, and has something for a pack. */
static bool is_to_wait(struct tier_lane *lane, const struct feed_batch *batch)
{
    if (!makes_packs(lane) || lane->queue->config.hurries || lane->waited || batch->more)
        return false;
    uint64_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (tier_pack_wants(lane->queue->config.known, &batch->entries[i], TIER_SEND))
            bytes += tier_pack_bytes(&batch->entries[i]);
    }
    return bytes > 0 && bytes < PACK_BYTES_MAX;
}

/* Those that are heard of, by the order of their uids; a bucket is none of them. */
static int64_t behind_others_ns(const struct tier_lane *lane)
{
    const struct tier_queue_config *const config = &lane->queue->config;
    size_t before = 0;
    if (!makes_packs(lane) || config->hurries)
        return 0;
    struct follower *const followers = calloc(LIMIT_FOLLOWERS, sizeof(*followers));
    if (followers == NULL)
        return 0; /* something may be sent twice, then */
    const size_t count =
        copies_followers(durability_copies(config->durability), followers, LIMIT_FOLLOWERS);
    for (size_t i = 0; i < count && i < LIMIT_FOLLOWERS; i++)
        before += followers[i].counts && followers[i].uid != config->follower_uid &&
                  followers[i].uid < lane->queue->store->node_uid;
    free(followers);
    return before > 0 ? config->pack_wait_ns + (int64_t)before * config->pack_step_ns : 0;
}

/* How far the log is gone through now; 0: to its end. False: nothing of it is so old. */
static bool through_seq(struct tier_lane *lane, uint64_t *seq)
{
    const int64_t behind_ns = behind_others_ns(lane);
    *seq = 0;
    if (behind_ns == 0)
        return true;
    const int64_t now_ns = clock_monotonic_ns(clock_real());
    const struct log_note *const last = &lane->notes[(lane->note_count - 1) % NOTES_MAX];
    if (lane->note_count == 0 || now_ns - last->at_ns >= behind_ns / (NOTES_MAX / 2)) {
        struct copies *const copies = durability_copies(lane->queue->config.durability);
        lane->notes[lane->note_count++ % NOTES_MAX] =
            (struct log_note){.at_ns = now_ns, .seq = copies_published_seq(copies, lane->lane)};
    }
    const size_t held = lane->note_count < NOTES_MAX ? lane->note_count : NOTES_MAX;
    for (size_t i = 1; i <= held && *seq == 0; i++) {
        const struct log_note *const note = &lane->notes[(lane->note_count - i) % NOTES_MAX];
        if (now_ns - note->at_ns >= behind_ns)
            *seq = note->seq;
    }
    return *seq > lane->after_seq;
}

/* What was evicted is gone; another log, as after a disk was replaced, is gone through from its beginning. */
static bool read_failed(struct tier_lane *lane, const struct status *why)
{
    struct log_text quoted;
    if (why->code == STATUS_OUT_OF_RANGE || why->code == STATUS_FAILED_PRECONDITION) {
        const bool overtaken = why->code == STATUS_OUT_OF_RANGE;
        if (overtaken)
            metrics_add(lane->queue->config.metrics, METRIC_TIER_OVERTAKEN, 1);
        log_event(LOG_LEVEL_WARN, "tier_overtaken", "lane=%s seq=%" PRIu64 " reason=%s",
                  name_of(lane), lane->after_seq, log_quote(&quoted, why->message));
        lane->after_seq = 0;
        lane->began = false;
        return true;
    }
    log_event(LOG_LEVEL_WARN, "tier_log_unread", "lane=%s seq=%" PRIu64 " reason=%s", name_of(lane),
              lane->after_seq, log_quote(&quoted, why->message));
    return tier_push_pause(&lane->queue->push, 5 * NS_PER_S);
}

static bool run_phases(struct tier_lane *lane, const struct feed_batch *batch, bool again)
{
    return run_phase(lane, batch, PHASE_PACKS, again) &&
           run_phase(lane, batch, PHASE_BLOBS, again) &&
           run_phase(lane, batch, PHASE_ACTIONS, again);
}

/* Hands the entries of a kind out and waits for their end. False: it is being stopped, and not all are done. */
static bool run_phase(struct tier_lane *lane,
                      const struct feed_batch *batch,
                      enum phase phase,
                      bool again)
{
    if (batch->count == 0)
        return true;
    lock_acquire(&lane->lock);
    lane->batch = batch;
    lane->phase = phase;
    lane->again = again;
    lane->next = 0;
    lane->interrupted = false;
    condition_broadcast(&lane->work);
    while (lane->next < batch->count || lane->busy > 0)
        condition_wait(&lane->idle, &lane->lock);
    lane->batch = NULL;
    const bool whole = !lane->interrupted;
    lock_release(&lane->lock);
    return whole;
}

/* In their order, and after what the batch stores; at last all nodes are told which are in no pack any more. */
static bool run_forgets(struct tier_lane *lane, const struct feed_batch *batch)
{
    struct tier_queue *const queue = lane->queue;
    struct digest deleted[DELETIONS_AT_A_TIME];
    uint64_t last = 0;
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct feed_entry *const entry = &batch->entries[i];
        struct bucket_row row;
        bool was_deleted = false;
        if (entry->kind != RECORD_FORGET)
            continue;
        if (tier_known_where(queue->config.known, &entry->digest, &row) && row.pack > last)
            last = row.pack;
        if (tier_push_forget(&lane->pusher, entry, &was_deleted) == TIER_PUSH_STOPPED)
            return false;
        if (was_deleted && entry->forgotten != RECORD_ACTION && queue->config.packs)
            deleted[count++] = entry->digest;
        if (count == DELETIONS_AT_A_TIME) {
            if (tier_pack_push_deletions(&lane->pusher, deleted, count, last) == TIER_PUSH_STOPPED)
                return false;
            count = 0;
        }
    }
    return count == 0 ||
           tier_pack_push_deletions(&lane->pusher, deleted, count, last) == TIER_PUSHED;
}

static void move_on(struct tier_lane *lane, const struct feed_batch *batch)
{
    struct metrics *const metrics = lane->queue->config.metrics;
    const bool small = lane->lane == LANE_SMALL;
    lane->after_seq = batch->next_after_seq;
    atomic_store(&lane->done_seq, lane->after_seq);
    metrics_set(metrics, small ? METRIC_TIER_SEQ_SMALL : METRIC_TIER_SEQ_LARGE,
                (int64_t)lane->after_seq);
    if (clock_monotonic_ns(lane->queue->store->clock) - lane->saved_ns >= save_ns)
        save(lane);
    tell_how_far(lane);
}

/* On the committer. */
static void log_goes_on(void *argument, enum lane lane)
{
    struct tier_queue *const queue = argument;
    (void)lane;
    tier_push_wake(&queue->push);
}

/* What could not be brought there, since it is damaged or gone here, is answered, too: nobody can bring it any more. */
static void tell_how_far(const struct tier_lane *lane)
{
    const struct tier_queue_config *const config = &lane->queue->config;
    if (config->follower_uid == 0)
        return;
    const struct follower_report report = {.uid = config->follower_uid,
                                           .name = bytes_of_string(config->follower_name),
                                           .address = bytes_of_string(config->follower_address),
                                           .lane = lane->lane,
                                           .durable_seq = lane->after_seq,
                                           .wait_ns = heard_ns};
    copies_report(durability_copies(config->durability), &report);
}

static void save(struct tier_lane *lane)
{
    struct status status = {0};
    struct log_text quoted;
    if (lane->after_seq == lane->saved_seq)
        return;
    lane->saved_ns = clock_monotonic_ns(lane->queue->store->clock);
    if (tier_cursor_save(lane->queue->store, lane->lane, lane->queue->config.place, lane->after_seq,
                         &status))
        lane->saved_seq = lane->after_seq;
    else
        log_event(LOG_LEVEL_WARN, "tier_cursor_not_saved", "lane=%s reason=%s", name_of(lane),
                  log_quote(&quoted, status.message));
}

/* ---- an upload */

static void run_upload(void *argument)
{
    struct tier_upload *const upload = argument;
    struct tier_lane *const lane = upload->lane;
    lock_acquire(&lane->lock);
    while (!lane->ended) {
        const struct work work = take_locked(lane);
        if (work.count == 0) {
            if (lane->busy == 0)
                condition_signal(&lane->idle);
            condition_wait(&lane->work, &lane->lock);
            continue;
        }
        const enum phase phase = lane->phase;
        const bool again = lane->again;
        lane->busy++;
        lock_release(&lane->lock);
        const enum tier_pushed outcome = push_work(lane, &upload->pusher, phase, again, &work);
        lock_acquire(&lane->lock);
        lane->busy--;
        if (outcome == TIER_PUSH_STOPPED) {
            /* What is left of the batch has to wait for the next start. */
            lane->interrupted = true;
            lane->next = lane->batch->count;
        }
    }
    lock_release(&lane->lock);
}

/* The next of this phase. */
static struct work take_locked(struct tier_lane *lane)
{
    if (lane->batch == NULL)
        return (struct work){0};
    if (lane->phase == PHASE_PACKS)
        return take_pack_locked(lane);
    while (lane->next < lane->batch->count) {
        const struct feed_entry *const entry = &lane->batch->entries[lane->next++];
        if (is_of(lane->phase, entry))
            return (struct work){.entries = entry, .count = 1};
    }
    return (struct work){0};
}

/* As many entries as one pack has room for. What it then does not take, the next phase does. */
static struct work take_pack_locked(struct tier_lane *lane)
{
    if (!makes_packs(lane))
        lane->next = lane->batch->count;
    if (lane->busy == PACKS_AT_A_TIME)
        return (struct work){0}; /* whoever ends takes the next */
    struct work work = {.entries = &lane->batch->entries[lane->next]};
    size_t bytes = 0;
    for (; lane->next < lane->batch->count; lane->next++, work.count++) {
        bytes += tier_pack_bytes(&lane->batch->entries[lane->next]);
        if (bytes > PACK_BYTES_MAX)
            break;
    }
    return work;
}

static bool is_of(enum phase phase, const struct feed_entry *entry)
{
    if (phase == PHASE_ACTIONS)
        return entry->kind == RECORD_ACTION;
    return entry->kind == RECORD_BLOB || entry->kind == RECORD_MANIFEST;
}

static enum tier_pushed push_work(struct tier_lane *lane,
                                  struct tier_pusher *pusher,
                                  enum phase phase,
                                  bool again,
                                  const struct work *work)
{
    const struct feed_entry *const entry = work->entries;
    switch (phase) {
    case PHASE_PACKS:
        return tier_pack_push(pusher, entry, work->count, again ? TIER_AGAIN : TIER_SEND);
    case PHASE_ACTIONS:
        return tier_push_action(pusher, entry, again ? TIER_AGAIN : TIER_SEND);
    case PHASE_BLOBS:
        break;
    }
    if (again)
        return tier_push_blob(pusher, &entry->digest, TIER_AGAIN);
    /* A look costs little beside a large blob. */
    const bool look = lane->queue->config.shared || lane->lane == LANE_LARGE ||
                      entry->seq <= lane->look_until_seq;
    return tier_push_blob(pusher, &entry->digest, look ? TIER_LOOK_FIRST : TIER_SEND);
}

static const char *name_of(const struct tier_lane *lane)
{
    return lane->lane == LANE_SMALL ? "small" : "large";
}
