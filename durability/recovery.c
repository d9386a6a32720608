/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/recovery.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "durability/index_batch.h"
#include "durability/replay.h"
#include "store/evict_plan.h"
#include "store/find.h"
#include "store/use_file.h"

struct recovery {
    struct store *store; /* borrowed */
    struct index *index; /* NULL when it cannot be opened */
    struct index_checkpoint checkpoint;
    struct recovery_report *report;
    struct index_batch batch;
    bool unreadable; /* the index could not even be read: start again from the segments alone */
};

static bool open_index(struct recovery *recovery, const char *path, struct status *status);
static void rebuild_index(struct recovery *recovery, const char *path, const struct status *why);
static bool look_for_lost_chunks(struct store *store, struct status *status);
static bool load_now(struct recovery *recovery, struct status *status);
static bool load_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool replay_lanes(struct recovery *recovery,
                         struct replay replays[LANE_COUNT],
                         struct status *status);
static bool replay_lane(struct recovery *recovery,
                        enum lane lane,
                        struct replay *replay,
                        struct status *status);
static bool replay_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool apply_to_table(struct recovery *recovery,
                           const struct index_entry *entry,
                           struct status *status);
static void write_batch(struct recovery *recovery);
static void give_up_index(struct recovery *recovery, const struct status *why);
static bool open_lane(struct recovery *recovery,
                      enum lane lane,
                      struct replay *replay,
                      struct status *status);
static bool drop_surplus(struct recovery *recovery, struct replay *replay, struct status *status);
static void note_minute(struct store *store);
static void look_at_segments(struct store *store);

bool recovery_run(struct store *store,
                  const char *index_path,
                  struct index **index,
                  struct recovery_report *report,
                  struct status *status)
{
    const int64_t began_ns = clock_monotonic_ns(store->clock);
    *report = (struct recovery_report){0};
    struct recovery recovery = {.store = store, .report = report};
    struct replay replays[LANE_COUNT] = {0};
    note_minute(store);
    bool ok =
        index_batch_init(&recovery.batch, status) && use_file_read(store, &store->uses, status);
    ok = ok && look_for_lost_chunks(store, status) && open_index(&recovery, index_path, status) &&
         replay_lanes(&recovery, replays, status);
    if (ok && recovery.unreadable) {
        /* Everything is in the segments; what the table has by now is from there too. */
        struct status why;
        for (size_t lane = 0; lane < LANE_COUNT; lane++)
            replay_destroy(&replays[lane]);
        blob_table_end_load(store->table);
        cold_index_set(&store->cold, NULL);
        index_close(recovery.index);
        recovery.index = NULL;
        recovery.checkpoint = (struct index_checkpoint){0};
        *report = (struct recovery_report){0};
        status_fail(&why, STATUS_DATA_LOSS, "the index on disk cannot be read");
        rebuild_index(&recovery, index_path, &why);
        ok = replay_lanes(&recovery, replays, status);
    }
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        ok = ok && open_lane(&recovery, lane, &replays[lane], status);
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        replay_destroy(&replays[lane]);
    index_batch_destroy(&recovery.batch);
    if (!ok) {
        cold_index_set(&store->cold, NULL);
        index_close(recovery.index);
        status_prefix(status, "recovery");
        return false;
    }
    look_at_segments(store);
    report->entries = blob_table_count(store->table);
    report->index_loading = blob_table_is_loading(store->table);
    if (!report->index_loading) {
        use_file_free(store->uses);
        store->uses = NULL;
    }
    report->duration_ns = clock_monotonic_ns(store->clock) - began_ns;
    metrics_set(store->metrics, METRIC_INDEX_ENTRIES, (int64_t)report->entries);
    metrics_add(store->metrics, METRIC_RECOVERED_RECORDS, (int64_t)report->records_recovered);
    metrics_add(store->metrics, METRIC_RECOVERY_TAILS_CUT, (int64_t)report->tails_cut);
    metrics_set(store->metrics, METRIC_INDEX_LOADING, report->index_loading);
    *index = recovery.index;
    return true;
}

static bool replay_lanes(struct recovery *recovery,
                         struct replay replays[LANE_COUNT],
                         struct status *status)
{
    /* The large lane first: a FORGET, always in the small one, may name a record of either. */
    if (!replay_lane(recovery, LANE_LARGE, &replays[LANE_LARGE], status) ||
        !replay_lane(recovery, LANE_SMALL, &replays[LANE_SMALL], status))
        return false;
    FAILPOINT(recovery_before_publish);
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        recovery->checkpoint.lanes[lane] = replays[lane].end;
    write_batch(recovery);
    FAILPOINT(recovery_after_publish);
    return true;
}

/* An index that refuses is made anew from the segments. One that does not is loaded later, and asked until then. */
static bool open_index(struct recovery *recovery, const char *path, struct status *status)
{
    struct store *store = recovery->store;
    struct status why;
    struct index_checkpoint checkpoint;
    if (index_open(path, &recovery->index, &why)) {
        if (index_read_checkpoint(recovery->index, &checkpoint, &why)) {
            recovery->checkpoint = checkpoint;
            bool is_empty = true;
            for (size_t lane = 0; lane < LANE_COUNT; lane++) {
                is_empty = is_empty && checkpoint.lanes[lane].place.segment == 0;
                if (checkpoint.lanes[lane].place.segment >= store->next_segment_number)
                    store->next_segment_number = checkpoint.lanes[lane].place.segment + 1;
            }
            if (!is_empty) {
                blob_table_begin_load(store->table);
                cold_index_set(&store->cold, recovery->index);
            }
            return true;
        }
        index_close(recovery->index);
        recovery->index = NULL;
    }
    if (why.code == STATUS_FAILED_PRECONDITION) { /* somebody else has it open */
        *status = why;
        return false;
    }
    if (why.code == STATUS_RESOURCE_EXHAUSTED) { /* it may be sound: the disk or memory is full */
        give_up_index(recovery, &why);
        return true;
    }
    rebuild_index(recovery, path, &why);
    return true;
}

static void rebuild_index(struct recovery *recovery, const char *path, const struct status *why)
{
    struct log_text text;
    struct status failure;
    log_event(LOG_LEVEL_WARN, "index_rebuild", "reason=%s", log_quote(&text, why->message));
    recovery->report->index_rebuilt = true;
    if (index_destroy(path, &failure) && index_open(path, &recovery->index, &failure))
        return;
    /* Without an index on disk everything is still served: the segments are read at this start and the next. */
    recovery->index = NULL;
    give_up_index(recovery, &failure);
}

static void give_up_index(struct recovery *recovery, const struct status *why)
{
    struct log_text text;
    struct status failure;
    log_event(LOG_LEVEL_ERROR, "index_unavailable", "reason=%s", log_quote(&text, why->message));
    metrics_add(recovery->store->metrics, METRIC_INDEX_FAILURES, 1);
    if (blob_table_is_loading(recovery->store->table) && !load_now(recovery, &failure)) {
        log_event(LOG_LEVEL_ERROR, "index_unavailable", "reason=%s",
                  log_quote(&text, failure.message));
        recovery->unreadable = true;
    }
    index_close(recovery->index);
    recovery->index = NULL;
}

/*
 * The records of a lane are numbered without a gap, so that a segment that is gone, or that cannot be used, shows. Only that the
 * oldest ones are gone is as it should be: they were evicted.
 */
static bool look_for_lost_chunks(struct store *store, struct status *status)
{
    struct segment_set *segments = store->segments;
    uint64_t *numbers = NULL;
    size_t count = 0;
    uint64_t next_seq = 0;
    if (!segment_set_numbers(segments, &numbers, &count, status))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(segments, numbers[i]);
        if (segment->lane == LANE_LARGE) {
            if (store->oldest_large == 0)
                store->oldest_large = numbers[i];
            const bool follows =
                next_seq == 0 || segment->first_seq == 0 || segment->first_seq == next_seq;
            if (segment->end_lost || !follows)
                store->chunks_lost = true;
            /* An unsealed segment does not say where it ends. */
            next_seq = segment->sealed ? segment->last_seq + 1 : 0;
        }
        segment_set_unpin(segments, segment);
    }
    free(numbers);
    if (store->chunks_lost)
        log_event(LOG_LEVEL_WARN, "segments_incomplete", "lane=%s reason=\"%s\"",
                  lane_name(LANE_LARGE),
                  "a segment is short or missing: large blobs are looked at one by one");
    return true;
}

/* Who can't be written may still be read. Afterwards nobody needs it; on false the segments have to be read. */
static bool load_now(struct recovery *recovery, struct status *status)
{
    const bool ok = index_iterate(recovery->index, load_entry, recovery->store, status);
    blob_table_end_load(recovery->store->table);
    cold_index_set(&recovery->store->cold, NULL);
    return ok;
}

static bool load_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct store *store = argument;
    enum record_state ignored;
    return store_load(store, entry, &ignored, status);
}

static bool apply_to_table(struct recovery *recovery,
                           const struct index_entry *entry,
                           struct status *status)
{
    struct store *store = recovery->store;
    const struct blob_key key =
        blob_table_key(store->table, entry->kind, &entry->digest, entry->instance);
    if (!entry->forget) {
        if (!blob_table_put(store->table, key, entry->place, status))
            return false;
        store_recall_use(store, key, entry->place);
        return true;
    }
    /* What it is about may be on disk alone: it is brought, so that its removal is remembered. */
    if (blob_table_may_come(store->table, key) && !store_bring(store, key, entry))
        recovery->unreadable = true;
    blob_table_remove(store->table, key, entry->place);
    return true;
}

static bool replay_lane(struct recovery *recovery,
                        enum lane lane,
                        struct replay *replay,
                        struct status *status)
{
    *replay = (struct replay){
        .store = recovery->store,
        .lane = lane,
        .from = recovery->checkpoint.lanes[lane],
        .settle = true,
        .each = replay_entry,
        .argument = recovery,
    };
    if (!replay_run(replay, status))
        return false;
    recovery->report->records_recovered += replay->records;
    recovery->report->tails_cut += replay->tails_cut;
    recovery->report->tail_bytes_cut += replay->tail_bytes_cut;
    if (replay->damaged > 0) {
        metrics_add(recovery->store->metrics, METRIC_RECORDS_DAMAGED, (int64_t)replay->damaged);
        log_event(LOG_LEVEL_WARN, "records_damaged", "lane=%s gaps=%" PRIu64, lane_name(lane),
                  replay->damaged);
    }
    return true;
}

static bool replay_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct recovery *recovery = argument;
    if (!apply_to_table(recovery, entry, status))
        return false;
    if (recovery->index == NULL)
        return true;
    if (index_batch_is_full(&recovery->batch))
        write_batch(recovery);
    return index_batch_add(&recovery->batch, entry, status);
}

/* The checkpoint in the batch is the one that recovery began from, until everything is in. */
static void write_batch(struct recovery *recovery)
{
    struct status why;
    if (recovery->index != NULL && !index_write(recovery->index, recovery->batch.entries,
                                                recovery->batch.count, &recovery->checkpoint, &why))
        give_up_index(recovery, &why);
    index_batch_clear(&recovery->batch);
}

static bool open_lane(struct recovery *recovery,
                      enum lane lane,
                      struct replay *replay,
                      struct status *status)
{
    struct store *store = recovery->store;
    if (!drop_surplus(recovery, replay, status))
        return false;
    struct segment_log_config config = {
        .io = store->io,
        .clock = store->clock,
        .metrics = store->metrics,
        .segments = store->segments,
        .directory = store->segments_directory,
        .lane = lane,
        .segment_bytes = store->segment_bytes[lane],
        .space = &store->space,
        .node_uid = store->node_uid,
        .next_segment_number = &store->next_segment_number,
        .next_seq = replay->end.seq,
        .position = replay->end,
    };
    for (size_t i = 0; i < replay->empty_count && i < ARRAY_LENGTH(config.resume); i++)
        config.resume[i] = replay->empty[i];
    if (!segment_log_new(&config, &store->logs[lane], status))
        return false;
    for (size_t i = 0; i < replay->unsealed_count; i++)
        segment_log_adopt_unsealed(store->logs[lane], replay->unsealed[i]);
    return true;
}

/* Empty segments that the lane cannot go on with: of another size, damaged, behind records, or too many. */
static bool drop_surplus(struct recovery *recovery, struct replay *replay, struct status *status)
{
    struct store *store = recovery->store;
    size_t kept = 0;
    for (size_t i = 0; i < replay->empty_count; i++) {
        struct segment *segment = replay->empty[i];
        if (kept < 2 && segment->capacity_bytes == store->segment_bytes[replay->lane] &&
            segment->number > replay->end.place.segment && !segment->header_damaged &&
            !segment->end_lost) {
            replay->empty[kept++] = segment;
            continue;
        }
        char path[SEGMENT_PATH_BYTES_MAX];
        segment_path(path, store->segments_directory, segment->number, "seg");
        const bool removed = segment_set_remove(store->segments, segment->number);
        ASSERT(removed);
        segment_free(segment);
        metrics_add(store->metrics, METRIC_SEGMENTS, -1);
        if (!io_unlink(store->io, path, status))
            return false;
    }
    replay->empty_count = kept;
    return true;
}

static void note_minute(struct store *store)
{
    blob_table_set_minute(store->table,
                          (uint64_t)(clock_monotonic_ns(store->clock) / (60 * NS_PER_S)));
}

/*
 * Counts what segments without a footer hold. And what was used is not known after a start: what lies in the younger half of
 * each lane counts as used some time ago, or eviction would take what was in use a moment ago; but as nothing that was vouched for.
 */
static void look_at_segments(struct store *store)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    if (!segment_set_numbers(store->segments, &numbers, &count, &ignored))
        return;
    const size_t bits = count > 0 ? (size_t)numbers[count - 1] + 1 : 0;
    uint8_t *younger = calloc(bits / 8 + 1, 1);
    uint64_t bytes[LANE_COUNT] = {0};
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        if (segment == NULL)
            continue;
        if (segment->file_bytes >= segment->capacity_bytes) {
            segment->counted_bytes = segment->end - SEGMENT_HEADER_BYTES;
            metrics_add(store->metrics, METRIC_SEGMENT_BYTES, (int64_t)segment->counted_bytes);
        }
        bytes[segment->lane] += segment->file_bytes;
        segment_set_unpin(store->segments, segment);
    }
    uint64_t below[LANE_COUNT] = {0};
    for (size_t i = 0; i < count && younger != NULL; i++) {
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        if (segment == NULL)
            continue;
        below[segment->lane] += segment->file_bytes;
        if (below[segment->lane] > bytes[segment->lane] / 2)
            younger[numbers[i] / 8] |= (uint8_t)(1 << numbers[i] % 8);
        segment_set_unpin(store->segments, segment);
    }
    if (store->uses != NULL && use_file_is_complete(store->uses)) {
        free(younger); /* it is known what was used */
        younger = NULL;
    }
    if (younger != NULL)
        blob_table_touch_segments(store->table, younger, bits,
                                  evict_vouch_minutes(store->vouch_ns));
    store->younger = younger; /* for what is still to be loaded */
    store->younger_bits = bits;
    free(numbers);
}
