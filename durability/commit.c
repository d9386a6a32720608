/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/commit.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"

/* Digests of one round, to find the same blob twice: open addressing, twice as large as a round. */
enum { ROUND_DIGESTS = 2 * LIMIT_COMMIT_RECORDS };

/* One round: what was taken from the queue, and what became of each. Used by the committer alone. */
struct commit_round {
    struct commit_request *requests[LIMIT_COMMIT_RECORDS];
    size_t count;
    uint64_t bytes;
    struct record *records[LIMIT_COMMIT_RECORDS]; /* those that are appended */
    struct commit_request *appended[LIMIT_COMMIT_RECORDS];
    size_t appended_count;
    struct ack *ok, **ok_tail; /* acknowledged when the round is durable */
    struct commit_request *digests[ROUND_DIGESTS];
    struct index_entry entries[LIMIT_COMMIT_RECORDS];
    size_t entry_count;
};

struct commit {
    /* Set by commit_new(), never changed. */
    struct commit_config config;
    struct segment_log *log; /* borrowed from the store */
    struct watermark watermark;

    struct lock lock;
    struct condition submitted;
    struct commit_request *first, *last; /* guarded by lock */
    size_t queued;                       /* guarded by lock */
    int expected;                        /* guarded by lock */
    bool idle;        /* guarded by lock: the committer sleeps until something is submitted */
    bool sync_wanted; /* guarded by lock */
    bool stopping;    /* guarded by lock */
    bool failed;      /* guarded by lock; never goes back to false */

    struct commit_round *round; /* owned; the committer's */
};

static bool gather(struct commit *commit, bool *sync_wanted);
static bool dequeue_locked(struct commit *commit) REQUIRES(commit->lock);
static void await_company_locked(struct commit *commit) REQUIRES(commit->lock);
static void sort_out(struct commit *commit);
static bool is_blob(const struct commit_request *request);
static bool is_late_move(const struct commit *commit,
                         const struct commit_request *request,
                         size_t before);
static bool seen_in_round(struct commit_round *round, struct commit_request *request);
static void acknowledge_later(struct commit_round *round, struct commit_request *request);
static bool append_and_sync(struct commit *commit, uint64_t *covered, struct status *status);
static void publish(struct commit *commit);
static bool publish_one(struct commit *commit,
                        struct commit_request *request,
                        bool *stale,
                        struct status *status);
static struct blob_key key_of(const struct store *store, const struct commit_request *request);
static void index_entry_of(const struct commit_request *request, struct index_entry *entry);
static void fail_round(struct commit *commit, const struct status *why);
static void fail_lane(struct commit *commit, const struct status *why);
static void refuse(struct commit *commit,
                   struct commit_request *requests,
                   const struct status *why);
static bool gone_to_refusal(struct commit *commit, struct commit_request *requests);

bool commit_new(const struct commit_config *config, struct commit **commit, struct status *status)
{
    struct commit *made = calloc(1, sizeof(*made));
    struct commit_round *round = calloc(1, sizeof(*round));
    if (made == NULL || round == NULL) {
        free(made);
        free(round);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a committer");
    }
    made->config = *config;
    made->log = config->store->logs[config->lane];
    made->round = round;
    watermark_init(&made->watermark, segment_log_pending_seq(made->log));
    lock_init(&made->lock, LOCK_RANK_COMMIT);
    condition_init(&made->submitted);
    *commit = made;
    return true;
}

void commit_free(struct commit *commit)
{
    if (commit == NULL)
        return;
    ASSERT(commit->first == NULL);
    condition_destroy(&commit->submitted);
    lock_destroy(&commit->lock);
    watermark_destroy(&commit->watermark);
    free(commit->round);
    free(commit);
}

void commit_submit(struct commit *commit, struct commit_request *requests)
{
    if (requests == NULL || gone_to_refusal(commit, requests))
        return;
    size_t count = 1;
    struct commit_request *last = requests;
    while (last->next != NULL) {
        last = last->next;
        count++;
    }
    lock_acquire(&commit->lock);
    if (commit->last != NULL)
        commit->last->next = requests;
    else
        commit->first = requests;
    commit->last = last;
    commit->queued += count;
    if (commit->idle)
        condition_signal(&commit->submitted);
    lock_release(&commit->lock);
}

/* True when they were refused instead: the lane has failed, or too many wait. */
static bool gone_to_refusal(struct commit *commit, struct commit_request *requests)
{
    struct status why = {0};
    lock_acquire(&commit->lock);
    const bool failed = commit->failed;
    const size_t queued = commit->queued;
    lock_release(&commit->lock);
    if (failed) {
        const bool known = watermark_failed(&commit->watermark, &why);
        ASSERT(known);
    } else if (queued >= LIMIT_COMMIT_QUEUE) {
        status_fail(&why, STATUS_RESOURCE_EXHAUSTED,
                    "%zu writes already wait for the disk; send fewer at once", queued);
    } else {
        return false;
    }
    refuse(commit, requests, &why);
    return true;
}

static void refuse(struct commit *commit, struct commit_request *requests, const struct status *why)
{
    while (requests != NULL) {
        struct commit_request *const next = requests->next;
        requests->next = NULL;
        requests->ack.next = NULL;
        metrics_add(commit->config.store->metrics,
                    why->code == STATUS_RESOURCE_EXHAUSTED ? METRIC_WRITES_REFUSED_DISK_FULL
                                                           : METRIC_WRITES_REFUSED_FAILED,
                    1);
        acker_post(commit->config.acker, &requests->ack, why);
        requests = next;
    }
}

void commit_expect(struct commit *commit, int puts)
{
    lock_acquire(&commit->lock);
    commit->expected += puts;
    ASSERT(commit->expected >= 0);
    lock_release(&commit->lock);
}

bool commit_round(struct commit *commit)
{
    bool sync_wanted = false;
    if (!gather(commit, &sync_wanted))
        return false;
    struct commit_round *round = commit->round;
    struct metrics *metrics = commit->config.store->metrics;
    struct status status = {0};
    uint64_t covered = 0;
    sort_out(commit);
    if (round->appended_count == 0 && !sync_wanted) {
        acker_post(commit->config.acker, round->ok, &status); /* everything was there already */
        return true;
    }
    if (!append_and_sync(commit, &covered, &status)) {
        fail_round(commit, &status);
        return true;
    }
    watermark_set_durable(&commit->watermark, covered);
    metrics_add(metrics, METRIC_COMMIT_ROUNDS, 1);
    metrics_set(metrics,
                commit->config.lane == LANE_SMALL ? METRIC_DURABLE_SEQ_SMALL
                                                  : METRIC_DURABLE_SEQ_LARGE,
                (int64_t)covered);
    FAILPOINT(commit_after_sync);
    publish(commit);
    FAILPOINT(commit_after_publish);

    /* Entries are copied before the acknowledgement: afterwards the requests are no longer ours. */
    const struct segment_log_position position = segment_log_synced_position(commit->log);
    indexer_post(commit->config.indexer, commit->config.lane, round->entries, round->entry_count,
                 &position);
    acker_post(commit->config.acker, round->ok, &status);
    FAILPOINT(commit_after_ack);
    return true;
}

/* Takes what waits from the queue; false when there is nothing to do. */
static bool gather(struct commit *commit, bool *sync_wanted)
{
    struct commit_round *round = commit->round;
    round->count = 0;
    round->bytes = 0;
    round->appended_count = 0;
    round->entry_count = 0;
    round->ok = NULL;
    round->ok_tail = &round->ok;
    memset(round->digests, 0, sizeof(round->digests));

    lock_acquire(&commit->lock);
    *sync_wanted = commit->sync_wanted;
    commit->sync_wanted = false;
    const bool full = dequeue_locked(commit);
    if (!full && !commit->stopping && round->count > 0 &&
        (round->count > 1 || commit->expected > 0)) {
        await_company_locked(commit);
        dequeue_locked(commit);
    }
    lock_release(&commit->lock);
    return round->count > 0 || *sync_wanted;
}

/* True when the round is full. */
static bool dequeue_locked(struct commit *commit)
{
    struct commit_round *round = commit->round;
    while (commit->first != NULL) {
        struct commit_request *request = commit->first;
        const uint64_t bytes = record_stored_bytes(request->record->payload_bytes);
        if (round->count == LIMIT_COMMIT_RECORDS ||
            (round->count > 0 && round->bytes + bytes > LIMIT_COMMIT_BYTES))
            return true;
        commit->first = request->next;
        if (commit->first == NULL)
            commit->last = NULL;
        commit->queued--;
        request->next = NULL;
        round->requests[round->count++] = request;
        round->bytes += bytes;
    }
    return false;
}

static void await_company_locked(struct commit *commit)
{
    struct clock *clock = commit->config.store->clock;
    const int64_t until = clock_monotonic_ns(clock) + LIMIT_COMMIT_WINDOW_NS;
    for (;;) {
        const int64_t left = until - clock_monotonic_ns(clock);
        if (left <= 0 || commit->queued >= LIMIT_COMMIT_RECORDS || commit->stopping)
            return;
        if (!condition_wait_for(&commit->submitted, &commit->lock, left))
            return;
    }
}

/* Decides what must be appended: a blob that is there, or that is in the round twice, is not written again. */
static void sort_out(struct commit *commit)
{
    struct commit_round *round = commit->round;
    for (size_t i = 0; i < round->count; i++) {
        struct commit_request *request = round->requests[i];
        acknowledge_later(round, request);
        if (is_blob(request) && request->relocate.segment == 0 &&
            (store_has_blob(commit->config.store, &request->record->digest) ||
             seen_in_round(round, request)))
            continue;
        if (request->relocate.segment != 0 && is_late_move(commit, request, i))
            continue;
        round->appended[round->appended_count] = request;
        round->records[round->appended_count++] = request->record;
    }
}

static bool is_blob(const struct commit_request *request)
{
    return request->record->kind == RECORD_BLOB || request->record->kind == RECORD_MANIFEST;
}

/*
 * Its entry lies elsewhere by now, or will when the requests before it in the round are published. A copy behind a newer
 * record would be taken for the newest by whoever reads the log.
 */
static bool is_late_move(const struct commit *commit,
                         const struct commit_request *request,
                         size_t before)
{
    const struct commit_round *round = commit->round;
    struct blob_use use = {0};
    if (!blob_table_look(commit->config.store->table, key_of(commit->config.store, request),
                         &use) ||
        place_pack(use.place) != place_pack(request->relocate))
        return true;
    for (size_t i = 0; i < before; i++) {
        const struct commit_request *other = round->requests[i];
        if (other->record->kind == RECORD_ACTION && other->relocate.segment == 0 &&
            request->record->kind == RECORD_ACTION &&
            digest_equal(&other->record->digest, &request->record->digest) &&
            bytes_equal(other->instance, request->instance))
            return true;
    }
    return false;
}

static bool seen_in_round(struct commit_round *round, struct commit_request *request)
{
    const struct digest *digest = &request->record->digest;
    size_t slot = (size_t)(digest->hash[0] | digest->hash[1] << 8) % ROUND_DIGESTS;
    while (round->digests[slot] != NULL) {
        if (digest_equal(&round->digests[slot]->record->digest, digest))
            return true;
        slot = (slot + 1) % ROUND_DIGESTS;
    }
    round->digests[slot] = request;
    return false;
}

static void acknowledge_later(struct commit_round *round, struct commit_request *request)
{
    request->ack.next = NULL;
    *round->ok_tail = &request->ack;
    round->ok_tail = &request->ack.next;
}

static bool append_and_sync(struct commit *commit, uint64_t *covered, struct status *status)
{
    struct commit_round *round = commit->round;
    struct metrics *metrics = commit->config.store->metrics;
    FAILPOINT(commit_before_append);
    /* Nobody but us makes room in a crowded log. */
    if (round->appended_count > 0 && segment_log_is_crowded(commit->log) &&
        !segment_log_sync(commit->log, covered, status))
        return false;
    if (round->appended_count > 0 &&
        !segment_log_append(commit->log, round->records, round->appended_count, status))
        return false;
    const uint64_t pending = segment_log_pending_seq(commit->log);
    watermark_set_pending(&commit->watermark, pending);
    metrics_set(metrics,
                commit->config.lane == LANE_SMALL ? METRIC_PENDING_SEQ_SMALL
                                                  : METRIC_PENDING_SEQ_LARGE,
                (int64_t)pending);
    FAILPOINT(commit_before_sync);
    if (!segment_log_sync(commit->log, covered, status))
        return false;
    /* The large lane's chunks may have been appended since: what the sync covers was pending when it began. */
    if (*covered > pending)
        watermark_set_pending(&commit->watermark, *covered);
    return true;
}

static void publish(struct commit *commit)
{
    struct commit_round *round = commit->round;
    for (size_t i = 0; i < round->appended_count; i++) {
        struct commit_request *request = round->appended[i];
        struct status status;
        bool stale = false;
        if (!publish_one(commit, request, &stale, &status)) {
            struct log_text text;
            log_event(LOG_LEVEL_ERROR, "publish_failed", "reason=%s",
                      log_quote(&text, status.message));
        }
        request->stale = stale;
        if (!stale)
            index_entry_of(request, &round->entries[round->entry_count++]);
    }
}

/* *stale: a move that came too late; its entry lies elsewhere by now, or nowhere. */
static bool publish_one(struct commit *commit,
                        struct commit_request *request,
                        bool *stale,
                        struct status *status)
{
    struct store *store = commit->config.store;
    const struct record *record = request->record;
    const struct blob_key key = key_of(store, request);
    ASSERT(record->kind != RECORD_CHUNK);
    if (record->kind == RECORD_FORGET) {
        if (blob_table_remove(store->table, key, request->forget))
            metrics_add(store->metrics, METRIC_BLOBS_FORGOTTEN, 1);
        return true;
    }
    if (request->relocate.segment != 0) {
        *stale = !blob_table_replace(store->table, key, request->relocate, record->place);
        return true;
    }
    if (record->kind == RECORD_ACTION) {
        metrics_add(store->metrics, METRIC_ACTION_RESULTS_WRITTEN, 1);
    } else {
        metrics_add(store->metrics, METRIC_BLOBS_WRITTEN, 1);
        metrics_add(store->metrics, METRIC_BLOB_BYTES_WRITTEN, record->digest.size_bytes);
    }
    return blob_table_put(store->table, key, record->place, status);
}

static struct blob_key key_of(const struct store *store, const struct commit_request *request)
{
    const struct record *record = request->record;
    const enum record_kind kind =
        record->kind == RECORD_FORGET ? request->forget_kind : record->kind;
    return kind == RECORD_ACTION
               ? blob_table_action_key(store->table, &record->digest, request->instance)
               : blob_table_blob_key(store->table, &record->digest);
}

static void index_entry_of(const struct commit_request *request, struct index_entry *entry)
{
    const struct record *record = request->record;
    const bool forget = record->kind == RECORD_FORGET;
    *entry = (struct index_entry){
        .forget = forget,
        .kind = forget ? request->forget_kind : record->kind,
        .digest = record->digest,
        .instance = request->instance,
        .place = forget ? request->forget : record->place,
        .payload_bytes = record->payload_bytes,
    };
}

/* Nobody in the round is acknowledged. */
static void fail_round(struct commit *commit, const struct status *why)
{
    struct commit_round *round = commit->round;
    struct status told = *why;
    struct status lane_why;
    if (segment_log_failed(commit->log, &lane_why)) {
        told = lane_why;
        told.code = STATUS_UNAVAILABLE;
        status_prefix(&told, "not stored; this server refuses writes until it is restarted");
        fail_lane(commit, &told);
    }
    for (size_t i = 0; i < round->count; i++)
        refuse(commit, round->requests[i], &told);
}

/* For good: every later request is refused, and what waits now too. */
static void fail_lane(struct commit *commit, const struct status *why)
{
    lock_acquire(&commit->lock);
    const bool first = !commit->failed;
    commit->failed = true;
    struct commit_request *waiting = commit->first;
    commit->first = NULL;
    commit->last = NULL;
    commit->queued = 0;
    watermark_fail(&commit->watermark, why);
    lock_release(&commit->lock);
    refuse(commit, waiting, why);
    if (!first)
        return;
    struct log_text text;
    log_event(LOG_LEVEL_ERROR, "lane_failed", "lane=%s reason=%s", lane_name(commit->config.lane),
              log_quote(&text, why->message));
    metrics_set(commit->config.store->metrics, METRIC_READ_ONLY, 1);
    if (commit->config.on_failure != NULL)
        commit->config.on_failure(commit->config.on_failure_argument, commit->config.lane, why);
}

void commit_want_sync(struct commit *commit)
{
    lock_acquire(&commit->lock);
    commit->sync_wanted = true;
    if (commit->idle)
        condition_signal(&commit->submitted);
    lock_release(&commit->lock);
}

bool commit_wait(struct commit *commit)
{
    lock_acquire(&commit->lock);
    commit->idle = true;
    while (commit->first == NULL && !commit->sync_wanted && !commit->stopping)
        condition_wait(&commit->submitted, &commit->lock);
    commit->idle = false;
    const bool work = commit->first != NULL || commit->sync_wanted;
    lock_release(&commit->lock);
    return work;
}

void commit_stop(struct commit *commit)
{
    lock_acquire(&commit->lock);
    commit->stopping = true;
    condition_broadcast(&commit->submitted);
    lock_release(&commit->lock);
}

struct watermark *commit_watermark(struct commit *commit)
{
    return &commit->watermark;
}

bool commit_failed(struct commit *commit, struct status *why)
{
    return watermark_failed(&commit->watermark, why);
}
