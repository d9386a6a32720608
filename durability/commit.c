/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/commit.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "durability/copies.h"

/* Digests of one round, to find the same blob twice: open addressing, twice as large as a round. */
enum { ROUND_DIGESTS = 2 * LIMIT_COMMIT_RECORDS };

/* How often it is looked again whether there is room for requests that wait for it. */
#define LOOK_FOR_ROOM_NS (100 * NS_PER_MS)

/* Requests linked by next. */
struct request_queue {
    struct commit_request *first, *last;
    size_t count;
};

/* Segments that a round's manifests name. */
struct holds {
    uint64_t *segments; /* owned; some more than once */
    size_t count, capacity;
};

/* One round: what was taken from a queue, and what became of each. Used by the committer alone. */
struct commit_round {
    struct commit_request *requests[LIMIT_COMMIT_RECORDS];
    size_t count;
    uint64_t bytes;
    bool moves; /* they are eviction's */
    struct holds holds;
    struct record *records[LIMIT_COMMIT_RECORDS]; /* those that are appended */
    struct commit_request *appended[LIMIT_COMMIT_RECORDS];
    size_t appended_count;
    struct ack *ok, **ok_tail;     /* acknowledged when the round is durable */
    struct ack *held, **held_tail; /* and these when others have it, too */
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
    struct request_queue writes; /* guarded by lock */
    struct request_queue moves;  /* guarded by lock */
    bool no_room;                /* guarded by lock: writes wait for an eviction */
    int64_t look_again_ns;       /* guarded by lock: but not longer */
    int expected;                /* guarded by lock */
    bool idle;        /* guarded by lock: the committer sleeps until something is submitted */
    bool sync_wanted; /* guarded by lock */
    bool stopping;    /* guarded by lock */
    bool failed;      /* guarded by lock; never goes back to false */

    struct commit_round *round; /* owned; the committer's */

    _Atomic uint64_t turns; /* calls of commit_round() that have ended */
    _Atomic bool in_round;
};

static bool is_of_eviction(const struct commit_request *request);
static bool gather(struct commit *commit, bool *sync_wanted);
static bool dequeue_locked(struct commit *commit, struct request_queue *queue, uint64_t bytes_max)
    REQUIRES(commit->lock);
static void await_company_locked(struct commit *commit) REQUIRES(commit->lock);
static void sort_out(struct commit *commit);
static bool is_wanted(struct commit *commit, struct commit_request *request, struct status *status);
static bool is_current(const struct store *store, const struct commit_request *move);
static bool hold_chunks(struct commit *commit,
                        const struct commit_request *request,
                        struct status *status);
static void let_go(struct commit *commit, size_t from);
static void put_back(struct commit *commit);
static void queue_put_back_locked(struct request_queue *queue,
                                  struct commit_request *const *requests,
                                  size_t count);
static void halve(struct commit *commit);
static bool is_blob(const struct commit_request *request);
static bool seen_in_round(struct commit_round *round, struct commit_request *request);
static void acknowledge_later(struct commit_round *round, struct commit_request *request);
static void forget_acknowledgements(struct commit_round *round);
static void acknowledge(struct commit *commit, uint64_t seq);
static bool append(struct commit *commit, bool *later, struct status *status);
static bool is_stopping(struct commit *commit);
static bool sync_lane(struct commit *commit, uint64_t *covered, struct status *status);
static void publish(struct commit *commit);
static bool publish_one(struct commit *commit,
                        struct commit_request *request,
                        struct status *status);
static struct blob_key key_of(const struct store *store, const struct commit_request *request);
static void index_entry_of(const struct commit_request *request, struct index_entry *entry);
static void fail_round(struct commit *commit, const struct status *why);
static void fail_lane(struct commit *commit, const struct status *why);
static void refuse(struct commit *commit,
                   struct commit_request *requests,
                   const struct status *why);
static bool gone_to_refusal(struct commit *commit,
                            const struct request_queue *queue,
                            struct commit_request *requests);
static bool has_work_locked(struct commit *commit) REQUIRES(commit->lock);

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
    ASSERT(commit->writes.first == NULL && commit->moves.first == NULL);
    condition_destroy(&commit->submitted);
    lock_destroy(&commit->lock);
    watermark_destroy(&commit->watermark);
    free(commit->round->holds.segments);
    free(commit->round);
    free(commit);
}

void commit_submit(struct commit *commit, struct commit_request *requests)
{
    if (requests == NULL)
        return;
    struct request_queue *queue = is_of_eviction(requests) ? &commit->moves : &commit->writes;
    if (gone_to_refusal(commit, queue, requests))
        return;
    size_t count = 1;
    struct commit_request *last = requests;
    while (last->next != NULL) {
        last = last->next;
        count++;
    }
    lock_acquire(&commit->lock);
    if (queue->last != NULL)
        queue->last->next = requests;
    else
        queue->first = requests;
    queue->last = last;
    queue->count += count;
    if (commit->idle)
        condition_signal(&commit->submitted);
    lock_release(&commit->lock);
}

/* An eviction waits for it, so it must not wait for an eviction. */
static bool is_of_eviction(const struct commit_request *request)
{
    return request->relocate.segment != 0 || request->record->kind == RECORD_FORGET;
}

/* True when they were refused instead: the lane has failed, or too many wait. */
static bool gone_to_refusal(struct commit *commit,
                            const struct request_queue *queue,
                            struct commit_request *requests)
{
    struct status why = {0};
    lock_acquire(&commit->lock);
    const bool failed = commit->failed;
    const size_t queued = queue->count;
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
        if (!is_of_eviction(requests))
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

static bool run_round(struct commit *commit);

bool commit_round(struct commit *commit)
{
    atomic_store_explicit(&commit->in_round, true, memory_order_relaxed);
    const bool any = run_round(commit);
    atomic_store_explicit(&commit->in_round, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&commit->turns, 1, memory_order_relaxed);
    return any;
}

uint64_t commit_turns(struct commit *commit, bool *waits)
{
    lock_acquire(&commit->lock);
    const bool queued = commit->writes.first != NULL || commit->moves.first != NULL;
    lock_release(&commit->lock);
    *waits = queued || atomic_load_explicit(&commit->in_round, memory_order_relaxed);
    return atomic_load_explicit(&commit->turns, memory_order_relaxed);
}

static bool run_round(struct commit *commit)
{
    bool sync_wanted = false;
    if (!gather(commit, &sync_wanted))
        return false;
    struct commit_round *round = commit->round;
    struct metrics *metrics = commit->config.store->metrics;
    struct copies *copies = commit->config.copies;
    struct status status = {0};
    uint64_t covered = 0;
    bool later = false;
    sort_out(commit);
    if (round->appended_count > 0 && !append(commit, &later, &status)) {
        fail_round(commit, &status);
        return true;
    }
    if (later)
        put_back(commit);
    if (round->appended_count == 0 && !sync_wanted) {
        /* Everything was there already. */
        acknowledge(commit, copies != NULL ? copies_published_seq(copies, commit->config.lane) : 0);
        return true;
    }
    if (!sync_lane(commit, &covered, &status)) {
        fail_round(commit, &status);
        return true;
    }
    metrics_add(metrics, METRIC_COMMIT_ROUNDS, 1);
    FAILPOINT(commit_after_sync);
    publish(commit);
    FAILPOINT(commit_after_publish);
    let_go(commit, 0);
    if (copies != NULL)
        copies_published(copies, commit->config.lane, covered);
    /* What was there already is older than what was not. */
    const uint64_t needed_seq =
        round->appended_count > 0 ? round->records[round->appended_count - 1]->seq : covered;

    /* Entries are copied before the acknowledgement: afterwards the requests are no longer ours. */
    const struct segment_log_position position = segment_log_synced_position(commit->log);
    indexer_post(commit->config.indexer, commit->config.lane, round->entries, round->entry_count,
                 &position);
    acknowledge(commit, needed_seq);
    FAILPOINT(commit_after_ack);
    return true;
}

/* Takes what waits from one of the queues; false when there is nothing to do. */
static bool gather(struct commit *commit, bool *sync_wanted)
{
    struct commit_round *round = commit->round;
    const bool moves_before = round->moves;
    round->count = 0;
    round->bytes = 0;
    round->appended_count = 0;
    round->entry_count = 0;
    forget_acknowledgements(round);
    memset(round->digests, 0, sizeof(round->digests));

    lock_acquire(&commit->lock);
    *sync_wanted = commit->sync_wanted;
    commit->sync_wanted = false;
    const bool writes_wait =
        commit->writes.first != NULL &&
        (!commit->no_room || commit->stopping ||
         clock_monotonic_ns(commit->config.store->clock) >= commit->look_again_ns);
    round->moves = commit->moves.first != NULL && !(writes_wait && moves_before);
    if (round->moves) {
        dequeue_locked(commit, &commit->moves, LIMIT_MOVE_ROUND_BYTES);
    } else if (writes_wait) {
        const bool full = dequeue_locked(commit, &commit->writes, LIMIT_COMMIT_BYTES);
        if (!full && !commit->stopping && (round->count > 1 || commit->expected > 0)) {
            await_company_locked(commit);
            dequeue_locked(commit, &commit->writes, LIMIT_COMMIT_BYTES);
        }
    }
    lock_release(&commit->lock);
    return round->count > 0 || *sync_wanted;
}

/* True when the round is full. */
static bool dequeue_locked(struct commit *commit, struct request_queue *queue, uint64_t bytes_max)
{
    struct commit_round *round = commit->round;
    while (queue->first != NULL) {
        struct commit_request *request = queue->first;
        const uint64_t bytes = record_stored_bytes(request->record->payload_bytes);
        if (round->count == LIMIT_COMMIT_RECORDS ||
            (round->count > 0 && round->bytes + bytes > bytes_max))
            return true;
        queue->first = request->next;
        if (queue->first == NULL)
            queue->last = NULL;
        queue->count--;
        request->next = NULL;
        round->requests[round->count++] = request;
        round->bytes += bytes;
    }
    return false;
}

/* The round's requests, in their order, to the front of the queue: they wait for an eviction. */
static void put_back(struct commit *commit)
{
    struct commit_round *round = commit->round;
    ASSERT(!round->moves && round->count > 0);
    let_go(commit, 0);
    lock_acquire(&commit->lock);
    queue_put_back_locked(&commit->writes, round->requests, round->count);
    commit->no_room = true;
    commit->look_again_ns = clock_monotonic_ns(commit->config.store->clock) + LOOK_FOR_ROOM_NS;
    lock_release(&commit->lock);
    round->count = 0;
    round->appended_count = 0;
    forget_acknowledgements(round);
}

static void queue_put_back_locked(struct request_queue *queue,
                                  struct commit_request *const *requests,
                                  size_t count)
{
    for (size_t i = count; i > 0; i--) {
        struct commit_request *request = requests[i - 1];
        request->next = queue->first;
        queue->first = request;
        if (queue->last == NULL)
            queue->last = request;
        queue->count++;
    }
}

void commit_room_made(struct commit *commit)
{
    lock_acquire(&commit->lock);
    commit->no_room = false;
    if (commit->idle)
        condition_signal(&commit->submitted);
    lock_release(&commit->lock);
}

static void await_company_locked(struct commit *commit)
{
    struct clock *clock = commit->config.store->clock;
    const int64_t until = clock_monotonic_ns(clock) + LIMIT_COMMIT_WINDOW_NS;
    for (;;) {
        const int64_t left = until - clock_monotonic_ns(clock);
        if (left <= 0 || commit->writes.count >= LIMIT_COMMIT_RECORDS || commit->stopping)
            return;
        if (!condition_wait_for(&commit->submitted, &commit->lock, left))
            return;
    }
}

/* Decides what must be appended. Refuses those that can't be right. */
static void sort_out(struct commit *commit)
{
    struct commit_round *round = commit->round;
    const size_t taken = round->count;
    round->count = 0;
    for (size_t i = 0; i < taken; i++) {
        struct commit_request *request = round->requests[i];
        struct status status = {0};
        const bool wanted = is_wanted(commit, request, &status);
        if (status.code != STATUS_OK) {
            refuse(commit, request, &status);
            continue;
        }
        round->requests[round->count++] = request;
        acknowledge_later(round, request);
        if (!wanted)
            continue;
        round->appended[round->appended_count] = request;
        round->records[round->appended_count++] = request->record;
    }
}

/*
 * False for a blob that is there, or that is in the round twice, for a move that comes too late, and, with a status, for a
 * manifest whose chunks are not all there any more.
 */
static bool is_wanted(struct commit *commit, struct commit_request *request, struct status *status)
{
    struct store *store = commit->config.store;
    const bool move = request->relocate.segment != 0;
    request->stale = move && !is_current(store, request);
    if (request->stale ||
        (!move && is_blob(request) && store_has_blob(store, &request->record->digest)))
        return false;
    if (request->record->kind == RECORD_MANIFEST && !hold_chunks(commit, request, status))
        return false;
    return move || !is_blob(request) || !seen_in_round(commit->round, request);
}

static bool is_current(const struct store *store, const struct commit_request *move)
{
    struct blob_use use;
    return blob_table_look(store->table, key_of(store, move), &use) &&
           place_pack(use.place) == place_pack(move->relocate);
}

/*
 * Until its entry is visible, no segment that it names may be emptied: an eviction would not see what it has to move. One
 * that is being emptied already is lost to it.
 */
static bool hold_chunks(struct commit *commit,
                        const struct commit_request *request,
                        struct status *status)
{
    struct segment_set *segments = commit->config.store->segments;
    struct holds *holds = &commit->round->holds;
    const struct bytes_list *payload = &request->record->payload;
    const size_t before = holds->count;
    char text[DIGEST_TEXT_BYTES_MAX];
    ASSERT(payload->count == 1);
    ASSERT(payload->parts[0].length % MANIFEST_CHUNK_BYTES == 0);
    for (size_t at = 0; at < payload->parts[0].length; at += MANIFEST_CHUNK_BYTES) {
        struct manifest_chunk chunk;
        memcpy(&chunk, payload->parts[0].data + at, sizeof(chunk));
        const uint64_t segment = place_unpack(chunk.place).segment;
        if (holds->count > before && holds->segments[holds->count - 1] == segment)
            continue;
        if (holds->count == holds->capacity) {
            const size_t capacity = holds->capacity == 0 ? 64 : 2 * holds->capacity;
            uint64_t *grown = realloc(holds->segments, capacity * sizeof(*grown));
            if (grown == NULL) {
                let_go(commit, before);
                return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                                   "no memory for a manifest's segments");
            }
            holds->segments = grown;
            holds->capacity = capacity;
        }
        if (!segment_set_hold(segments, segment)) {
            let_go(commit, before);
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "blob %s: parts of it were evicted before it was complete; the "
                               "store is too small for "
                               "what is uploaded at once",
                               digest_text(&request->record->digest, text));
        }
        holds->segments[holds->count++] = segment;
    }
    return true;
}

static void let_go(struct commit *commit, size_t from)
{
    struct holds *holds = &commit->round->holds;
    while (holds->count > from)
        segment_set_let_go(commit->config.store->segments, holds->segments[--holds->count]);
}

static bool is_blob(const struct commit_request *request)
{
    return request->record->kind == RECORD_BLOB || request->record->kind == RECORD_MANIFEST;
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
    struct ack ***const tail = round->moves || request->local ? &round->ok_tail : &round->held_tail;
    request->ack.next = NULL;
    **tail = &request->ack;
    *tail = &request->ack.next;
}

static void forget_acknowledgements(struct commit_round *round)
{
    round->ok = NULL;
    round->ok_tail = &round->ok;
    round->held = NULL;
    round->held_tail = &round->held;
}

/* seq: up to which others must have the log for the held ones. The requests are no longer ours then. */
static void acknowledge(struct commit *commit, uint64_t seq)
{
    const struct status ok = {0};
    struct commit_round *round = commit->round;
    acker_post(commit->config.acker, round->ok, &ok);
    if (commit->config.copies != NULL)
        copies_hold(commit->config.copies, commit->config.lane, seq, round->held);
    else
        acker_post(commit->config.acker, round->held, &ok);
}

/* *later: nothing was appended, a write must wait for an eviction. */
static bool append(struct commit *commit, bool *later, struct status *status)
{
    struct commit_round *round = commit->round;
    const enum space_use use = round->moves ? SPACE_MOVE : SPACE_WRITE;
    uint64_t covered = 0;
    FAILPOINT(commit_before_append);
    /* Nobody but us makes room in a crowded log. */
    if (segment_log_is_crowded(commit->log) && !sync_lane(commit, &covered, status))
        return false;
    for (;;) {
        switch (segment_log_try_append(commit->log, round->records, round->appended_count, use,
                                       status)) {
        case SEGMENT_LOG_APPENDED:
            return true;
        case SEGMENT_LOG_REFUSED:
            return false;
        case SEGMENT_LOG_SYNC_FIRST:
            if (!sync_lane(commit, &covered, status))
                return false;
            break;
        case SEGMENT_LOG_NO_ROOM:
            if (round->moves && round->appended_count > 1) {
                halve(commit); /* what fits fills the segment up */
                break;
            }
            *later = !round->moves && !is_stopping(commit);
            if (!*later)
                space_explain(&commit->config.store->space,
                              commit->config.store->segment_bytes[commit->config.lane], status);
            return *later;
        }
    }
}

/* The second half of a round of moves goes back to the front of its queue. */
static void halve(struct commit *commit)
{
    struct commit_round *round = commit->round;
    const struct commit_request *first = round->appended[round->appended_count / 2];
    size_t kept = 0;
    while (round->requests[kept] != first)
        kept++;
    lock_acquire(&commit->lock);
    queue_put_back_locked(&commit->moves, &round->requests[kept], round->count - kept);
    lock_release(&commit->lock);
    round->appended_count /= 2;
    round->count = kept;
    forget_acknowledgements(round);
    for (size_t i = 0; i < kept; i++)
        acknowledge_later(round, round->requests[i]);
}

/* Nobody evicts any more. */
static bool is_stopping(struct commit *commit)
{
    lock_acquire(&commit->lock);
    const bool stopping = commit->stopping;
    lock_release(&commit->lock);
    return stopping;
}

static bool sync_lane(struct commit *commit, uint64_t *covered, struct status *status)
{
    struct metrics *metrics = commit->config.store->metrics;
    const bool small = commit->config.lane == LANE_SMALL;
    const uint64_t pending = segment_log_pending_seq(commit->log);
    watermark_set_pending(&commit->watermark, pending);
    metrics_set(metrics, small ? METRIC_PENDING_SEQ_SMALL : METRIC_PENDING_SEQ_LARGE,
                (int64_t)pending);
    FAILPOINT(commit_before_sync);
    if (!segment_log_sync(commit->log, covered, status))
        return false;
    /* The large lane's chunks may have been appended since: what the sync covers was pending when it began. */
    if (*covered > pending)
        watermark_set_pending(&commit->watermark, *covered);
    watermark_set_durable(&commit->watermark, *covered);
    metrics_set(metrics, small ? METRIC_DURABLE_SEQ_SMALL : METRIC_DURABLE_SEQ_LARGE,
                (int64_t)*covered);
    return true;
}

static void publish(struct commit *commit)
{
    struct commit_round *round = commit->round;
    for (size_t i = 0; i < round->appended_count; i++) {
        struct commit_request *request = round->appended[i];
        struct status status;
        if (!publish_one(commit, request, &status)) {
            struct log_text text;
            log_event(LOG_LEVEL_ERROR, "publish_failed", "reason=%s",
                      log_quote(&text, status.message));
        }
        if (!request->stale)
            index_entry_of(request, &round->entries[round->entry_count++]);
    }
}

static bool publish_one(struct commit *commit,
                        struct commit_request *request,
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
        /* Forgotten between then and now: the mover sees to it that the copy is, too. */
        request->stale = !blob_table_replace(store->table, key, request->relocate, record->place,
                                             request->clear_touch);
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
    return blob_table_key(store->table, kind, &record->digest, request->instance);
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
    let_go(commit, 0);
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
    struct commit_request *const writes = commit->writes.first;
    struct commit_request *const moves = commit->moves.first;
    commit->writes = (struct request_queue){0};
    commit->moves = (struct request_queue){0};
    watermark_fail(&commit->watermark, why);
    lock_release(&commit->lock);
    refuse(commit, writes, why);
    refuse(commit, moves, why);
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
    while (!has_work_locked(commit) && !commit->stopping) {
        if (commit->writes.first == NULL)
            condition_wait(&commit->submitted, &commit->lock);
        else if (!condition_wait_for(&commit->submitted, &commit->lock, LOOK_FOR_ROOM_NS))
            commit->no_room = false; /* to be looked at again */
    }
    commit->idle = false;
    const bool work = has_work_locked(commit) || commit->writes.first != NULL;
    lock_release(&commit->lock);
    return work;
}

static bool has_work_locked(struct commit *commit)
{
    return commit->moves.first != NULL || commit->sync_wanted ||
           (commit->writes.first != NULL && !commit->no_room);
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
