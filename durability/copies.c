/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/copies.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/find.h"

/* Writes that were acknowledged together: a round of group commit, or one blob that was there. */
struct waiting {
    struct ack *acks; /* borrowed from whoever submitted them */
    uint64_t seq;
    int64_t until_ns;
    struct waiting *next;
};

/* In the order of their seqs, and of their deadlines. */
struct waiting_queue {
    struct waiting *first, *last; /* owned */
    size_t count;
};

struct known_follower {
    struct follower public;
    int64_t until_ns; /* it counts until then */
    /* Where this node's log ended when the follower said last that it has come so far: if it is there now, it keeps up. */
    uint64_t goal_seq[LANE_COUNT];
    bool caught_up[LANE_COUNT]; /* since writes were degraded */
};

struct hook {
    void (*run)(void *argument, enum lane lane);
    void *argument;
};

/* Of those that have something. */
struct tally {
    unsigned nodes;
    bool bucket;
};

struct copies {
    /* Set by copies_new(), never changed. Borrowed. */
    struct store *store;
    struct acker *acker;

    struct lock lock;
    struct copies_config config; /* guarded by lock, as all below */
    uint64_t published_seq[LANE_COUNT];
    uint64_t covered_seq[LANE_COUNT]; /* the most that has ever been on enough followers */
    struct hook hooks[COPIES_HOOKS];
    size_t hooks_running;
    struct condition hook_done;
    struct waiting_queue queues[LANE_COUNT];
    struct known_follower *followers; /* owned; LIMIT_FOLLOWERS of them */
    struct condition answered;        /* some of what waited */
    size_t follower_count;
    bool followers_full; /* and somebody was turned away: logged once */
    bool degraded;
    bool late; /* REFUSE: some write's time was over, and none was in time since */
    bool stopped;
};

/* What is called back once the lock is released. */
struct outcome {
    struct ack *ok;
    struct ack *refused;
    size_t late;
    bool degraded, restored, late_begins, late_ends;
    unsigned wanted;
    bool bucket_needed;
    size_t counting;
    int64_t timeout_ns;
};

static bool find_seq(struct copies *copies,
                     const struct digest *digest,
                     enum lane *lane,
                     uint64_t *seq);
static void note_covered_locked(struct copies *copies, enum lane lane) REQUIRES(copies->lock);
static bool waits_locked(const struct copies *copies) REQUIRES(copies->lock);
static bool enough_locked(struct copies *copies, enum lane lane, uint64_t seq)
    REQUIRES(copies->lock);
static void tally_add_locked(const struct copies *copies, size_t at, struct tally *tally)
    REQUIRES(copies->lock);
static bool suffices_locked(const struct copies *copies, const struct tally *tally)
    REQUIRES(copies->lock);
static bool counts_locked(const struct copies *copies, size_t at, int64_t now_ns)
    REQUIRES(copies->lock);
static bool is_bucket_locked(const struct copies *copies, size_t at) REQUIRES(copies->lock);
static size_t counting_locked(const struct copies *copies) REQUIRES(copies->lock);
static bool enqueue_locked(struct copies *copies, enum lane lane, uint64_t seq, struct ack *acks)
    REQUIRES(copies->lock);
static void settle_locked(struct copies *copies, struct outcome *outcome) REQUIRES(copies->lock);
static void give_up_locked(struct copies *copies, struct ack *acks, struct outcome *outcome)
    REQUIRES(copies->lock);
static void release_all_locked(struct copies *copies, struct outcome *outcome)
    REQUIRES(copies->lock);
static void rearm_locked(struct copies *copies, struct outcome *outcome) REQUIRES(copies->lock);
static struct ack *dequeue(struct waiting_queue *queue);
static void join(struct ack **list, struct ack *acks);
static size_t length_of(const struct ack *acks);
static void deliver(struct copies *copies, const struct outcome *outcome);
static void refusal(const struct outcome *outcome, bool stopped, struct status *status);
static struct known_follower *follower_of_locked(struct copies *copies,
                                                 const struct follower_report *report,
                                                 bool *is_new,
                                                 bool *turned_away) REQUIRES(copies->lock);
static void copy_text(char *to, size_t to_bytes, struct bytes text);

bool copies_new(struct store *store,
                struct acker *acker,
                struct copies **copies,
                struct status *status)
{
    struct copies *made = calloc(1, sizeof(*made));
    struct known_follower *followers = calloc(LIMIT_FOLLOWERS, sizeof(*followers));
    if (made == NULL || followers == NULL) {
        free(made);
        free(followers);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for followers");
    }
    made->store = store;
    made->acker = acker;
    made->followers = followers;
    lock_init(&made->lock, LOCK_RANK_COPIES);
    condition_init(&made->hook_done);
    condition_init(&made->answered);
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        made->published_seq[lane] = made->covered_seq[lane] =
            segment_log_pending_seq(store->logs[lane]);
    *copies = made;
    return true;
}

void copies_free(struct copies *copies)
{
    if (copies == NULL)
        return;
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        ASSERT(copies->queues[lane].first == NULL);
    ASSERT(copies->hooks_running == 0);
    free(copies->followers);
    condition_destroy(&copies->answered);
    condition_destroy(&copies->hook_done);
    lock_destroy(&copies->lock);
    free(copies);
}

void copies_configure(struct copies *copies, const struct copies_config *config)
{
    ASSERT(config->wanted <= COPIES_WANTED_MAX);
    lock_acquire(&copies->lock);
    copies->config = *config;
    lock_release(&copies->lock);
}

/* ---- this node's log */

void copies_published(struct copies *copies, enum lane lane, uint64_t seq)
{
    lock_acquire(&copies->lock);
    ASSERT(seq >= copies->published_seq[lane]);
    copies->published_seq[lane] = seq;
    struct hook hooks[COPIES_HOOKS];
    memcpy(hooks, copies->hooks, sizeof(hooks));
    copies->hooks_running++;
    lock_release(&copies->lock);
    for (size_t i = 0; i < COPIES_HOOKS; i++)
        if (hooks[i].run != NULL)
            hooks[i].run(hooks[i].argument, lane);
    lock_acquire(&copies->lock);
    copies->hooks_running--;
    condition_broadcast(&copies->hook_done);
    lock_release(&copies->lock);
}

uint64_t copies_published_seq(struct copies *copies, enum lane lane)
{
    lock_acquire(&copies->lock);
    const uint64_t seq = copies->published_seq[lane];
    lock_release(&copies->lock);
    return seq;
}

void copies_set_hook(struct copies *copies,
                     enum copies_hook which,
                     void (*hook)(void *argument, enum lane lane),
                     void *argument)
{
    lock_acquire(&copies->lock);
    copies->hooks[which] = (struct hook){.run = hook, .argument = argument};
    while (copies->hooks_running > 0)
        condition_wait(&copies->hook_done, &copies->lock);
    lock_release(&copies->lock);
}

/* ---- what waits */

void copies_hold(struct copies *copies, enum lane lane, uint64_t seq, struct ack *acks)
{
    if (acks == NULL)
        return;
    struct outcome outcome = {0};
    lock_acquire(&copies->lock);
    if (!waits_locked(copies) || enough_locked(copies, lane, seq)) {
        outcome.ok = acks;
    } else if (copies->degraded) {
        outcome.ok = acks;
        metrics_add(copies->store->metrics, METRIC_ACK_COPIES_UNWAITED, (int64_t)length_of(acks));
    } else if (copies->stopped || !enqueue_locked(copies, lane, seq, acks)) {
        give_up_locked(copies, acks, &outcome);
    }
    lock_release(&copies->lock);
    deliver(copies, &outcome);
}

bool copies_await_blob(struct copies *copies, const struct digest *digest, struct ack *ack)
{
    enum lane lane = LANE_SMALL;
    uint64_t seq = 0;
    lock_acquire(&copies->lock);
    const bool anybody = waits_locked(copies);
    lock_release(&copies->lock);
    if (!anybody || !find_seq(copies, digest, &lane, &seq))
        return false;
    lock_acquire(&copies->lock);
    const bool enough = enough_locked(copies, lane, seq);
    lock_release(&copies->lock);
    if (enough)
        return false;
    ack->next = NULL;
    copies_hold(copies, lane, seq, ack);
    return true;
}

/* Of the record that makes the blob exist, or one behind it. False when it is not there. */
static bool find_seq(struct copies *copies,
                     const struct digest *digest,
                     enum lane *lane,
                     uint64_t *seq)
{
    struct store *const store = copies->store;
    struct place place;
    if (digest_is_empty_blob(digest) || !store_find_blob(store, digest, FIND_ONLY, &place))
        return false;
    struct segment *const segment = segment_set_pin(store->segments, place.segment);
    if (segment == NULL)
        return false;
    *lane = segment->lane;
    *seq = segment_log_seq_at(store->logs[*lane], segment, place.offset);
    segment_set_unpin(store->segments, segment);
    /* The segment's last record, where the blob's own is not known, may not be durable yet. */
    const uint64_t published_seq = copies_published_seq(copies, *lane);
    if (*seq > published_seq)
        *seq = published_seq;
    return true;
}

bool copies_cover_all(struct copies *copies)
{
    lock_acquire(&copies->lock);
    const bool all = !waits_locked(copies) || copies->degraded ||
                     (copies->covered_seq[LANE_SMALL] >= copies->published_seq[LANE_SMALL] &&
                      copies->covered_seq[LANE_LARGE] >= copies->published_seq[LANE_LARGE]);
    lock_release(&copies->lock);
    return all;
}

bool copies_cover_blob(struct copies *copies, const struct digest *digest)
{
    enum lane lane = LANE_SMALL;
    uint64_t seq = 0;
    if (copies_cover_all(copies) || !find_seq(copies, digest, &lane, &seq))
        return true;
    lock_acquire(&copies->lock);
    const bool covered = copies->covered_seq[lane] >= seq;
    lock_release(&copies->lock);
    return covered;
}

/* Moves it to where the log is on enough followers now. */
static void note_covered_locked(struct copies *copies, enum lane lane)
{
    for (size_t i = 0; i < copies->follower_count; i++) {
        const uint64_t seq = copies->followers[i].public.durable_seq[lane];
        if (seq > copies->covered_seq[lane] && enough_locked(copies, lane, seq))
            copies->covered_seq[lane] = seq;
    }
}

static bool waits_locked(const struct copies *copies)
{
    return copies->config.wanted > 0 || copies->config.bucket_needed;
}

static bool enough_locked(struct copies *copies, enum lane lane, uint64_t seq)
{
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    struct tally have = {0};
    for (size_t i = 0; i < copies->follower_count; i++)
        if (counts_locked(copies, i, now_ns) &&
            copies->followers[i].public.durable_seq[lane] >= seq)
            tally_add_locked(copies, i, &have);
    return suffices_locked(copies, &have);
}

static bool is_bucket_locked(const struct copies *copies, size_t at)
{
    return copies->config.bucket_uid != 0 &&
           copies->followers[at].public.uid == copies->config.bucket_uid;
}

static void tally_add_locked(const struct copies *copies, size_t at, struct tally *tally)
{
    if (is_bucket_locked(copies, at))
        tally->bucket = true;
    else
        tally->nodes++;
}

static bool suffices_locked(const struct copies *copies, const struct tally *tally)
{
    return tally->nodes >= copies->config.wanted &&
           (tally->bucket || !copies->config.bucket_needed);
}

static bool counts_locked(const struct copies *copies, size_t at, int64_t now_ns)
{
    return now_ns < copies->followers[at].until_ns;
}

static size_t counting_locked(const struct copies *copies)
{
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    size_t counting = 0;
    for (size_t i = 0; i < copies->follower_count; i++)
        counting += counts_locked(copies, i, now_ns) && !is_bucket_locked(copies, i);
    return counting;
}

/* False when too many wait already, or memory is used up. */
static bool enqueue_locked(struct copies *copies, enum lane lane, uint64_t seq, struct ack *acks)
{
    struct waiting_queue *const queue = &copies->queues[lane];
    struct waiting *const waiting =
        queue->count < LIMIT_COPIES_WAITING ? malloc(sizeof(*waiting)) : NULL;
    if (waiting == NULL)
        return false;
    /* A blob that was there may be older than what waits; then it waits along. */
    if (queue->last != NULL && queue->last->seq > seq)
        seq = queue->last->seq;
    *waiting = (struct waiting){
        .acks = acks,
        .seq = seq,
        .until_ns = clock_monotonic_ns(copies->store->clock) + copies->config.timeout_ns,
    };
    if (queue->last != NULL)
        queue->last->next = waiting;
    else
        queue->first = waiting;
    queue->last = waiting;
    queue->count++;
    metrics_add(copies->store->metrics, METRIC_ACK_COPIES_WAITING, 1);
    return true;
}

void copies_step(struct copies *copies)
{
    struct outcome outcome = {0};
    lock_acquire(&copies->lock);
    settle_locked(copies, &outcome);
    metrics_set(copies->store->metrics, METRIC_FOLLOWERS, (int64_t)counting_locked(copies));
    lock_release(&copies->lock);
    deliver(copies, &outcome);
}

void copies_stop(struct copies *copies, int64_t grace_ns)
{
    struct outcome outcome = {0};
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + grace_ns;
    lock_acquire(&copies->lock);
    copies->stopped = true;
    while (copies->queues[LANE_SMALL].first != NULL || copies->queues[LANE_LARGE].first != NULL) {
        const int64_t left_ns = until_ns - clock_monotonic_ns(clock_real());
        if (left_ns <= 0 || !condition_wait_for(&copies->answered, &copies->lock, left_ns))
            break;
    }
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        while (copies->queues[lane].first != NULL) {
            struct ack *const acks = dequeue(&copies->queues[lane]);
            metrics_add(copies->store->metrics, METRIC_ACK_COPIES_WAITING, -1);
            give_up_locked(copies, acks, &outcome);
        }
    }
    lock_release(&copies->lock);
    deliver(copies, &outcome);
}

/* Answers whoever has enough copies, and whose time is over. */
static void settle_locked(struct copies *copies, struct outcome *outcome)
{
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    condition_broadcast(&copies->answered);
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        struct waiting_queue *const queue = &copies->queues[lane];
        while (queue->first != NULL) {
            const bool enough = enough_locked(copies, lane, queue->first->seq);
            if (!enough && now_ns < queue->first->until_ns)
                break;
            struct ack *const acks = dequeue(queue);
            metrics_add(copies->store->metrics, METRIC_ACK_COPIES_WAITING, -1);
            if (!enough) {
                give_up_locked(copies, acks, outcome);
                continue;
            }
            outcome->late_ends |= copies->late;
            copies->late = false;
            join(&outcome->ok, acks);
        }
    }
}

static void give_up_locked(struct copies *copies, struct ack *acks, struct outcome *outcome)
{
    const size_t count = length_of(acks);
    outcome->late += count;
    outcome->wanted = copies->config.wanted;
    outcome->bucket_needed = copies->config.bucket_needed;
    outcome->timeout_ns = copies->config.timeout_ns;
    outcome->counting = counting_locked(copies);
    metrics_add(copies->store->metrics, METRIC_ACK_COPIES_LATE, (int64_t)count);
    if (copies->config.otherwise == COPIES_REFUSE) {
        outcome->late_begins |= !copies->late;
        copies->late = true;
        join(&outcome->refused, acks);
        return;
    }
    metrics_add(copies->store->metrics, METRIC_ACK_COPIES_UNWAITED, (int64_t)count);
    join(&outcome->ok, acks);
    if (copies->degraded || copies->stopped)
        return;
    copies->degraded = true;
    outcome->degraded = true;
    metrics_set(copies->store->metrics, METRIC_ACK_COPIES_DEGRADED, 1);
    for (size_t i = 0; i < copies->follower_count; i++) {
        struct known_follower *const follower = &copies->followers[i];
        for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
            follower->caught_up[lane] = false;
            follower->goal_seq[lane] = copies->published_seq[lane];
        }
    }
    release_all_locked(copies, outcome);
}

static void release_all_locked(struct copies *copies, struct outcome *outcome)
{
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        while (copies->queues[lane].first != NULL) {
            struct ack *const acks = dequeue(&copies->queues[lane]);
            metrics_add(copies->store->metrics, METRIC_ACK_COPIES_WAITING, -1);
            metrics_add(copies->store->metrics, METRIC_ACK_COPIES_UNWAITED,
                        (int64_t)length_of(acks));
            join(&outcome->ok, acks);
        }
    }
}

/* Writes wait again once enough followers keep up in both lanes. */
static void rearm_locked(struct copies *copies, struct outcome *outcome)
{
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    struct tally ready = {0};
    if (!copies->degraded)
        return;
    for (size_t i = 0; i < copies->follower_count; i++)
        if (counts_locked(copies, i, now_ns) && copies->followers[i].caught_up[LANE_SMALL] &&
            copies->followers[i].caught_up[LANE_LARGE])
            tally_add_locked(copies, i, &ready);
    if (!suffices_locked(copies, &ready))
        return;
    copies->degraded = false;
    outcome->restored = true;
    outcome->wanted = copies->config.wanted;
    metrics_set(copies->store->metrics, METRIC_ACK_COPIES_DEGRADED, 0);
}

static struct ack *dequeue(struct waiting_queue *queue)
{
    struct waiting *const waiting = queue->first;
    struct ack *const acks = waiting->acks;
    queue->first = waiting->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->count--;
    free(waiting);
    return acks;
}

static void join(struct ack **list, struct ack *acks)
{
    struct ack *last = acks;
    while (last->next != NULL)
        last = last->next;
    last->next = *list;
    *list = acks;
}

static size_t length_of(const struct ack *acks)
{
    size_t length = 0;
    for (; acks != NULL; acks = acks->next)
        length++;
    return length;
}

static void deliver(struct copies *copies, const struct outcome *outcome)
{
    const struct status ok = {0};
    struct status why = {0};
    acker_post(copies->acker, outcome->ok, &ok);
    if (outcome->refused != NULL) {
        lock_acquire(&copies->lock);
        const bool stopped = copies->stopped;
        lock_release(&copies->lock);
        refusal(outcome, stopped, &why);
        acker_post(copies->acker, outcome->refused, &why);
    }
    if (outcome->late_begins)
        log_event(LOG_LEVEL_WARN, "ack_copies_late",
                  "wanted=%u bucket=%s followers=%zu timeout_ms=%" PRId64 " otherwise=refuse",
                  outcome->wanted, outcome->bucket_needed ? "wanted" : "no", outcome->counting,
                  outcome->timeout_ns / NS_PER_MS);
    if (outcome->late_ends)
        log_event(LOG_LEVEL_INFO, "ack_copies_in_time", "otherwise=refuse");
    if (outcome->degraded)
        log_event(LOG_LEVEL_WARN, "ack_copies_degraded",
                  "wanted=%u bucket=%s followers=%zu timeout_ms=%" PRId64, outcome->wanted,
                  outcome->bucket_needed ? "wanted" : "no", outcome->counting,
                  outcome->timeout_ns / NS_PER_MS);
    if (outcome->restored)
        log_event(LOG_LEVEL_INFO, "ack_copies_restored", "wanted=%u", outcome->wanted);
}

static void refusal(const struct outcome *outcome, bool stopped, struct status *status)
{
    const char *const bucket = outcome->bucket_needed ? "in the bucket (tier-mode) and " : "";
    if (stopped)
        status_fail(status, STATUS_UNAVAILABLE,
                    "stored here, but this server stops before it is known to be %son %u other "
                    "nodes (ack-copies); send it again, here or to another node",
                    bucket, outcome->wanted);
    else
        status_fail(status, STATUS_UNAVAILABLE,
                    "stored here, but not %son %u other nodes within %" PRId64
                    " ms (ack-copies, ack-copies-timeout): %zu follow this one at present; send it "
                    "again, it is answered as soon as it is",
                    bucket, outcome->wanted, outcome->timeout_ns / NS_PER_MS, outcome->counting);
}

/* ---- followers */

void copies_report(struct copies *copies, const struct follower_report *report)
{
    struct outcome outcome = {0};
    struct follower shown = {0};
    bool is_new = false;
    bool turned_away = false;
    if (report->uid == 0 || report->uid == copies->store->node_uid)
        return;
    lock_acquire(&copies->lock);
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    struct known_follower *const follower =
        follower_of_locked(copies, report, &is_new, &turned_away);
    if (follower != NULL) {
        const enum lane lane = report->lane;
        ASSERT(report->durable_seq <= copies->published_seq[lane]);
        /* As it says, not the most it ever said: its disk may have been put back to an older state. */
        follower->public.durable_seq[lane] = report->durable_seq;
        follower->public.seen_ns = now_ns;
        follower->until_ns = now_ns + report->wait_ns + FOLLOWER_AWAY_NS;
        copy_text(follower->public.name, sizeof(follower->public.name), report->name);
        copy_text(follower->public.address, sizeof(follower->public.address), report->address);
        if (report->durable_seq >= follower->goal_seq[lane])
            follower->caught_up[lane] = true;
        follower->goal_seq[lane] = copies->published_seq[lane];
        shown = follower->public;
        note_covered_locked(copies, lane);
        rearm_locked(copies, &outcome);
        settle_locked(copies, &outcome);
    }
    lock_release(&copies->lock);
    struct log_text name;
    struct log_text address;
    if (is_new)
        log_event(LOG_LEVEL_INFO, "follower", "uid=%016" PRIx64 " name=%s address=%s", shown.uid,
                  log_quote(&name, shown.name), log_quote(&address, shown.address));
    if (turned_away)
        log_event(LOG_LEVEL_WARN, "followers_full",
                  "uid=%016" PRIx64 " limit=%d effect=\"it is served, and is nobody's copy\"",
                  report->uid, LIMIT_FOLLOWERS);
    deliver(copies, &outcome);
}

/* NULL when there are too many that count. One that was not heard of for longest gives way. */
static struct known_follower *follower_of_locked(struct copies *copies,
                                                 const struct follower_report *report,
                                                 bool *is_new,
                                                 bool *turned_away)
{
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    size_t oldest = 0;
    for (size_t i = 0; i < copies->follower_count; i++) {
        if (copies->followers[i].public.uid == report->uid) {
            *is_new = !counts_locked(copies, i, now_ns);
            return &copies->followers[i];
        }
        if (copies->followers[i].public.seen_ns < copies->followers[oldest].public.seen_ns)
            oldest = i;
    }
    struct known_follower *follower = &copies->followers[oldest];
    if (copies->follower_count < LIMIT_FOLLOWERS) {
        follower = &copies->followers[copies->follower_count++];
    } else if (counts_locked(copies, oldest, now_ns)) {
        *turned_away = !copies->followers_full;
        copies->followers_full = true;
        return NULL;
    }
    *follower = (struct known_follower){.public = {.uid = report->uid}};
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        follower->goal_seq[lane] = copies->published_seq[lane];
    copies->followers_full = false;
    *is_new = true;
    return follower;
}

static void copy_text(char *to, size_t to_bytes, struct bytes text)
{
    if (text.length > to_bytes - 1)
        text.length = to_bytes - 1;
    text.length = bytes_utf8_prefix(text);
    if (text.length > 0)
        memcpy(to, text.data, text.length);
    to[text.length] = '\0';
}

size_t copies_followers(struct copies *copies, struct follower *followers, size_t capacity)
{
    lock_acquire(&copies->lock);
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    const size_t count = copies->follower_count;
    for (size_t i = 0; i < count && i < capacity; i++) {
        followers[i] = copies->followers[i].public;
        followers[i].counts = counts_locked(copies, i, now_ns);
        for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
            followers[i].behind_records[lane] =
                copies->published_seq[lane] - followers[i].durable_seq[lane];
    }
    lock_release(&copies->lock);
    return count;
}

bool copies_may_go(struct copies *copies, enum lane lane, uint64_t seq)
{
    lock_acquire(&copies->lock);
    bool may = !copies->config.bucket_keeps;
    for (size_t i = 0; !may && i < copies->follower_count; i++)
        may = is_bucket_locked(copies, i) && copies->followers[i].public.durable_seq[lane] >= seq;
    lock_release(&copies->lock);
    return may;
}

uint64_t copies_told_seq(struct copies *copies, enum lane lane)
{
    uint64_t told_seq = UINT64_MAX;
    lock_acquire(&copies->lock);
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    bool bucket = false;
    for (size_t i = 0; i < copies->follower_count; i++) {
        const uint64_t seq = copies->followers[i].public.durable_seq[lane];
        bucket = bucket || is_bucket_locked(copies, i);
        if (counts_locked(copies, i, now_ns) && seq < told_seq)
            told_seq = seq;
    }
    if (copies->config.bucket_uid != 0 && !bucket)
        told_seq = 0;
    lock_release(&copies->lock);
    return told_seq;
}

/* ---- how it is */

void copies_render(struct copies *copies, struct metrics_text *text)
{
    struct follower *const followers = calloc(LIMIT_FOLLOWERS, sizeof(*followers));
    if (followers == NULL)
        return; /* next time, then */
    const size_t count = copies_followers(copies, followers, LIMIT_FOLLOWERS);
    const int64_t now_ns = clock_monotonic_ns(copies->store->clock);
    metrics_text_printf(text, "# HELP varve_follower_lag_records Records of this node's log that "
                              "the follower has not told to be durable there.\n"
                              "# TYPE varve_follower_lag_records gauge\n");
    for (size_t i = 0; i < count; i++) {
        for (enum lane lane = LANE_SMALL; followers[i].counts && lane < LANE_COUNT; lane++)
            metrics_text_printf(
                text,
                "varve_follower_lag_records{follower=\"%016" PRIx64 "\",lane=\"%s\"} %" PRIu64 "\n",
                followers[i].uid, lane_name(lane), followers[i].behind_records[lane]);
    }
    metrics_text_printf(text, "# HELP varve_follower_seen_seconds Since the follower was heard of "
                              "last.\n"
                              "# TYPE varve_follower_seen_seconds gauge\n");
    for (size_t i = 0; i < count; i++) {
        if (followers[i].counts)
            metrics_text_printf(
                text, "varve_follower_seen_seconds{follower=\"%016" PRIx64 "\"} %.3f\n",
                followers[i].uid, (double)(now_ns - followers[i].seen_ns) / (double)NS_PER_S);
    }
    free(followers);
}

void copies_state(struct copies *copies, struct copies_state *state)
{
    lock_acquire(&copies->lock);
    *state = (struct copies_state){
        .wanted = copies->config.wanted,
        .bucket_needed = copies->config.bucket_needed,
        .degraded = copies->degraded,
        .counting = counting_locked(copies),
    };
    lock_release(&copies->lock);
}
