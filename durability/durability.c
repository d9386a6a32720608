/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/durability.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"
#include "durability/evictor.h"
#include "durability/forget.h"
#include "durability/scrub.h"
#include "store/use_file.h"

/* Nobody waits for the scrub. */
enum { SCRUB_NICE = 15 };

struct durability {
    /* Set by durability_open(), never changed. Owned. */
    struct store *store;
    struct acker *acker;
    struct indexer *indexer;
    struct commit *commits[LANE_COUNT];
    struct evictor *evictor;
    struct scrub *scrub;
    struct copies *copies;
    struct feed *feed;
    void (*on_failure)(void *argument, enum lane lane, const struct status *why); /* may be NULL */
    void *on_failure_argument;                                                    /* borrowed */

    struct thread commit_threads[LANE_COUNT];
    struct thread ack_thread;
    struct thread index_thread;
    struct thread segment_thread;
    struct thread evict_thread;
    struct thread scrub_thread;

    /* Wakes the threads that make, seal and evict segments, off the committers' way. */
    struct lock lock;
    struct condition maintenance_wanted;
    uint64_t segments_wanted; /* guarded by lock: how often it was asked for */
    uint64_t evict_wanted;    /* guarded by lock */
    bool stopping;            /* guarded by lock */
};

/* How often the two look by themselves; and the evictor, while it waits for readers to leave what it has evicted. */
#define LOOK_NS NS_PER_S
#define LOOK_FOR_READERS_NS (50 * NS_PER_MS)

static bool open_parts(struct durability *durability,
                       struct recovery_report *report,
                       struct status *status);
static void on_lane_failure(void *argument, enum lane lane, const struct status *why);
static bool start_threads(struct durability *durability, struct status *status);
static void log_report(const struct store *store, const struct recovery_report *report);
static void on_log_event(void *argument, bool sync_wanted, enum lane lane);
static void on_small_log_event(void *argument, bool sync_wanted);
static void on_large_log_event(void *argument, bool sync_wanted);
static void run_commit(void *argument);
static void run_ack(void *argument);
static void run_index(void *argument);
static void run_segments(void *argument);
static void run_evict(void *argument);
static void run_scrub(void *argument);
static void tell_of_room(struct durability *durability);
static void note_space(struct store *store);
static void want_maintenance(struct durability *durability);
static bool wait_until_wanted(struct durability *durability,
                              const uint64_t *wanted,
                              uint64_t *seen,
                              int64_t at_most_ns);

bool durability_open(const struct store_config *config,
                     void (*on_failure)(void *argument, enum lane lane, const struct status *why),
                     void *on_failure_argument,
                     struct durability **durability,
                     struct recovery_report *report,
                     struct status *status)
{
    struct durability *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to open a store");
    lock_init(&opened->lock, LOCK_RANK_LEAF);
    condition_init(&opened->maintenance_wanted);
    opened->on_failure = on_failure;
    opened->on_failure_argument = on_failure_argument;
    if (!store_open(config, &opened->store, status) || !open_parts(opened, report, status) ||
        !start_threads(opened, status)) {
        durability_close(opened);
        return false;
    }
    log_report(opened->store, report);
    *durability = opened;
    return true;
}

static bool open_parts(struct durability *durability,
                       struct recovery_report *report,
                       struct status *status)
{
    struct store *store = durability->store;
    char *index_path = NULL;
    struct index *index = NULL;
    if (asprintf(&index_path, "%s/index", store->directory) < 0)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    bool ok = recovery_run(store, index_path, &index, report, status);
    if (ok && !indexer_new(store, index_path, index, &durability->indexer, status)) {
        index_close(index);
        ok = false;
    }
    free(index_path);
    ok = ok && acker_new(&durability->acker, status) &&
         copies_new(store, durability->acker, &durability->copies, status);
    for (enum lane lane = LANE_SMALL; ok && lane < LANE_COUNT; lane++) {
        const struct commit_config config = {
            .store = store,
            .lane = lane,
            .acker = durability->acker,
            .indexer = durability->indexer,
            .copies = durability->copies,
            .on_failure = on_lane_failure,
            .on_failure_argument = durability,
        };
        ok = commit_new(&config, &durability->commits[lane], status);
        if (ok)
            segment_log_set_hook(store->logs[lane],
                                 lane == LANE_SMALL ? on_small_log_event : on_large_log_event,
                                 durability);
    }
    const struct evictor_config evict = {
        .store = store,
        .commits = {durability->commits[LANE_SMALL], durability->commits[LANE_LARGE]},
        .copies = durability->copies,
    };
    const struct feed_config feed = {.store = store, .copies = durability->copies};
    const struct scrub_config scrub = {.store = store,
                                       .small_lane = durability->commits[LANE_SMALL]};
    return ok && evictor_new(&evict, &durability->evictor, status) &&
           scrub_new(&scrub, &durability->scrub, status) &&
           feed_new(&feed, &durability->feed, status);
}

/* Of the committer whose lane failed. Nobody trusts the disk any more: the other lane takes nothing either. */
static void on_lane_failure(void *argument, enum lane lane, const struct status *why)
{
    struct durability *durability = argument;
    for (enum lane other = LANE_SMALL; other < LANE_COUNT; other++) {
        if (other != lane)
            segment_log_refuse(durability->store->logs[other], why);
    }
    if (durability->on_failure != NULL)
        durability->on_failure(durability->on_failure_argument, lane, why);
}

static bool start_threads(struct durability *durability, struct status *status)
{
    const struct {
        struct thread *thread;
        const char *name;
        int nice;
        void (*run)(void *argument);
        void *argument;
    } table[] = {
        {&durability->ack_thread, "ack", 0, run_ack, durability->acker},
        {&durability->index_thread, "index", 0, run_index, durability->indexer},
        {&durability->segment_thread, "segments", 0, run_segments, durability},
        {&durability->evict_thread, "evict", 0, run_evict, durability},
        {&durability->scrub_thread, "scrub", SCRUB_NICE, run_scrub, durability->scrub},
        {&durability->commit_threads[LANE_SMALL], "commit-small", 0, run_commit,
         durability->commits[LANE_SMALL]},
        {&durability->commit_threads[LANE_LARGE], "commit-large", 0, run_commit,
         durability->commits[LANE_LARGE]},
    };
    durability->segments_wanted = 1; /* spares are made at once */
    durability->evict_wanted = 1;
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        if (!thread_start(table[i].thread, table[i].name, table[i].nice, table[i].run,
                          table[i].argument, status))
            return false;
    }
    return true;
}

static void log_report(const struct store *store, const struct recovery_report *report)
{
    struct log_text text;
    log_event(LOG_LEVEL_INFO, "store_open",
              "data=%s segments=%zu entries=%" PRIu64 " recovered_records=%" PRIu64
              " tails_cut=%" PRIu64 " index_loading=%d index_rebuilt=%d duration_ms=%" PRId64,
              log_quote(&text, store->directory), segment_set_count(store->segments),
              report->entries, report->records_recovered, report->tails_cut, report->index_loading,
              report->index_rebuilt, report->duration_ns / NS_PER_MS);
}

/* In the order of the data: what is submitted is committed, then acknowledged, then indexed. Takes half-opened objects. */
void durability_close(struct durability *durability)
{
    if (durability == NULL)
        return;
    struct status status;
    struct log_text text;
    lock_acquire(&durability->lock);
    durability->stopping = true;
    condition_broadcast(&durability->maintenance_wanted);
    lock_release(&durability->lock);
    if (durability->evictor != NULL)
        evictor_stop(durability->evictor);
    thread_join(&durability->evict_thread); /* it waits for commits: before the committers */
    if (durability->scrub != NULL)
        scrub_stop(durability->scrub);
    thread_join(&durability->scrub_thread);
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        if (durability->commits[lane] != NULL)
            commit_stop(durability->commits[lane]);
        thread_join(&durability->commit_threads[lane]);
    }
    if (durability->copies != NULL)
        copies_stop(durability->copies, 0); /* what it holds goes to the acker */
    if (durability->acker != NULL)
        acker_stop(durability->acker);
    thread_join(&durability->ack_thread);
    thread_join(&durability->segment_thread);
    for (size_t lane = 0; lane < LANE_COUNT && durability->store != NULL; lane++) {
        struct segment_log *log = durability->store->logs[lane];
        if (log != NULL && durability->commits[lane] != NULL && !segment_log_finish(log, &status))
            log_event(LOG_LEVEL_WARN, "lane_not_sealed", "lane=%s reason=%s",
                      lane_name((enum lane)lane), log_quote(&text, status.message));
        if (log != NULL && durability->commits[lane] != NULL) {
            /* Chunks of uploads that never ended belong to no round: the next start need not look at them. */
            const struct segment_log_position end = segment_log_synced_position(log);
            indexer_post(durability->indexer, (enum lane)lane, NULL, 0, &end);
        }
    }
    if (durability->indexer != NULL)
        indexer_stop(durability->indexer);
    thread_join(&durability->index_thread);
    if (durability->indexer != NULL && !blob_table_is_loading(durability->store->table) &&
        !use_file_write(durability->store, USE_FILE_STOP, 0, &status))
        log_event(LOG_LEVEL_WARN, "uses_not_written", "reason=%s",
                  log_quote(&text, status.message));
    feed_free(durability->feed);
    scrub_free(durability->scrub); /* asks the committer whether it has failed */
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        commit_free(durability->commits[lane]);
    evictor_free(durability->evictor);
    copies_free(durability->copies);
    acker_free(durability->acker);
    indexer_free(durability->indexer);
    store_close(durability->store);
    condition_destroy(&durability->maintenance_wanted);
    lock_destroy(&durability->lock);
    free(durability);
}

static void run_commit(void *argument)
{
    struct commit *commit = argument;
    thread_sharpen_timers();
    while (commit_wait(commit)) {
        while (commit_round(commit)) {
        }
    }
}

static void run_ack(void *argument)
{
    struct acker *acker = argument;
    while (acker_wait(acker))
        acker_round(acker);
}

static void run_index(void *argument)
{
    struct indexer *indexer = argument;
    FAILPOINT(recovery_before_load);
    while (indexer_wait(indexer)) {
        while (indexer_round(indexer)) {
        }
    }
}

static void run_segments(void *argument)
{
    struct durability *durability = argument;
    struct store *store = durability->store;
    uint64_t seen = 0;
    while (wait_until_wanted(durability, &durability->segments_wanted, &seen, LOOK_NS)) {
        blob_table_set_minute(store->table,
                              (uint64_t)(clock_monotonic_ns(store->clock) / (60 * NS_PER_S)));
        for (size_t lane = 0; lane < LANE_COUNT; lane++)
            segment_log_maintain(store->logs[lane]);
        metrics_set(store->metrics, METRIC_INDEX_ENTRIES, (int64_t)blob_table_count(store->table));
    }
}

static void run_scrub(void *argument)
{
    struct scrub *scrub = argument;
    while (scrub_wait(scrub)) {
        if (!scrub_step(scrub)) {
            /* No pass is going on. */
        }
    }
}

static void run_evict(void *argument)
{
    struct durability *durability = argument;
    uint64_t seen = 0;
    while (wait_until_wanted(durability, &durability->evict_wanted, &seen,
                             evictor_waits_for_readers(durability->evictor) ? LOOK_FOR_READERS_NS
                                                                            : LOOK_NS)) {
        while (evictor_step(durability->evictor))
            tell_of_room(durability);
        /* Others may have made room on the disk. */
        tell_of_room(durability);
        note_space(durability->store);
    }
}

static void tell_of_room(struct durability *durability)
{
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        segment_log_room_made(durability->store->logs[lane]);
        commit_room_made(durability->commits[lane]);
    }
    lock_acquire(&durability->lock);
    durability->segments_wanted++;
    condition_broadcast(&durability->maintenance_wanted);
    lock_release(&durability->lock);
}

static void note_space(struct store *store)
{
    struct io_space disk;
    struct status ignored;
    metrics_set(store->metrics, METRIC_SEGMENT_FILE_BYTES,
                (int64_t)segment_set_bytes(store->segments));
    if (io_space(store->io, store->segments_directory, &disk, &ignored))
        metrics_set(store->metrics, METRIC_DISK_FREE_BYTES, (int64_t)disk.free_bytes);
}

/* True when there may be something to do: asked for, or by time. */
static bool wait_until_wanted(struct durability *durability,
                              const uint64_t *wanted,
                              uint64_t *seen,
                              int64_t at_most_ns)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + at_most_ns;
    lock_acquire(&durability->lock);
    while (*wanted == *seen && !durability->stopping) {
        const int64_t left_ns = until_ns - clock_monotonic_ns(clock_real());
        if (left_ns <= 0 ||
            !condition_wait_for(&durability->maintenance_wanted, &durability->lock, left_ns))
            break;
    }
    *seen = *wanted;
    const bool go_on = !durability->stopping;
    lock_release(&durability->lock);
    return go_on;
}

static void want_maintenance(struct durability *durability)
{
    lock_acquire(&durability->lock);
    durability->segments_wanted++;
    durability->evict_wanted++;
    condition_broadcast(&durability->maintenance_wanted);
    lock_release(&durability->lock);
}

static void on_small_log_event(void *argument, bool sync_wanted)
{
    on_log_event(argument, sync_wanted, LANE_SMALL);
}

static void on_large_log_event(void *argument, bool sync_wanted)
{
    on_log_event(argument, sync_wanted, LANE_LARGE);
}

/* A rotation leaves a segment to sync, then to seal, and takes the spare. */
static void on_log_event(void *argument, bool sync_wanted, enum lane lane)
{
    struct durability *durability = argument;
    if (sync_wanted && lane == LANE_LARGE)
        commit_want_sync(durability->commits[lane]);
    if (!sync_wanted) {
        commit_want_sync(durability->commits[lane]);
        want_maintenance(durability);
    }
}

struct store *durability_store(struct durability *durability)
{
    return durability->store;
}

struct commit *durability_commit(struct durability *durability, enum lane lane)
{
    return durability->commits[lane];
}

bool durability_failed(struct durability *durability, struct status *why)
{
    return commit_failed(durability->commits[LANE_SMALL], why) ||
           commit_failed(durability->commits[LANE_LARGE], why);
}

void durability_forget(struct durability *durability,
                       const struct digest *digest,
                       const struct bytes *action_instance,
                       struct place place,
                       enum record_kind kind,
                       enum forget_reason reason)
{
    const struct forget forget = {
        .digest = *digest,
        .instance = action_instance == NULL ? bytes_of(NULL, 0) : *action_instance,
        .place = place,
        .kind = kind,
        .reason = reason,
    };
    forget_entry(durability->store, durability->commits[LANE_SMALL], &forget);
}

struct copies *durability_copies(struct durability *durability)
{
    return durability->copies;
}

struct feed *durability_feed(struct durability *durability)
{
    return durability->feed;
}

struct scrub *durability_scrub(struct durability *durability)
{
    return durability->scrub;
}
