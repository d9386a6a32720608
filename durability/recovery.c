/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/recovery.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "durability/index_batch.h"
#include "durability/replay.h"
#include "store/evict_plan.h"
#include "store/manifest.h"

struct recovery {
    struct store *store; /* borrowed */
    struct index *index; /* NULL when it cannot be opened */
    struct index_checkpoint checkpoint;
    struct recovery_report *report;
    struct index_batch batch;
    bool
        chunks_lost; /* a segment of the large lane is short or missing: manifests are read before they are believed */
    uint64_t oldest_large; /* number of the large lane's oldest segment */
};

static bool open_index(struct recovery *recovery, const char *path, struct status *status);
static void rebuild_index(struct recovery *recovery, const char *path, const struct status *why);
static bool look_for_lost_chunks(struct recovery *recovery, struct status *status);
static bool load_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool entry_has_bytes(struct recovery *recovery, const struct index_entry *entry);
static bool entry_has_chunks(struct recovery *recovery, const struct index_entry *entry);
static bool replay_lane(struct recovery *recovery,
                        enum lane lane,
                        struct replay *replay,
                        struct status *status);
static bool replay_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool apply_to_table(struct store *store,
                           const struct index_entry *entry,
                           struct status *status);
static void write_batch(struct recovery *recovery);
static void give_up_index(struct recovery *recovery, const struct status *why);
static bool open_lane(struct recovery *recovery,
                      enum lane lane,
                      struct replay *replay,
                      struct status *status);
static bool drop_surplus(struct recovery *recovery, struct replay *replay, struct status *status);
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
    bool ok = index_batch_init(&recovery.batch, status);
    ok = ok && look_for_lost_chunks(&recovery, status) && open_index(&recovery, index_path, status);
    /* The large lane first: a FORGET, always in the small one, may name a record of either. */
    ok = ok && replay_lane(&recovery, LANE_LARGE, &replays[LANE_LARGE], status) &&
         replay_lane(&recovery, LANE_SMALL, &replays[LANE_SMALL], status);
    if (ok) {
        FAILPOINT(recovery_before_publish);
        for (size_t lane = 0; lane < LANE_COUNT; lane++)
            recovery.checkpoint.lanes[lane] = replays[lane].end;
        write_batch(&recovery);
        FAILPOINT(recovery_after_publish);
    }
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++)
        ok = ok && open_lane(&recovery, lane, &replays[lane], status);
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        replay_destroy(&replays[lane]);
    index_batch_destroy(&recovery.batch);
    if (!ok) {
        index_close(recovery.index);
        status_prefix(status, "recovery");
        return false;
    }
    look_at_segments(store);
    report->entries = blob_table_count(store->table);
    report->duration_ns = clock_monotonic_ns(store->clock) - began_ns;
    metrics_set(store->metrics, METRIC_INDEX_ENTRIES, (int64_t)report->entries);
    metrics_add(store->metrics, METRIC_RECOVERED_RECORDS, (int64_t)report->records_recovered);
    metrics_add(store->metrics, METRIC_RECOVERY_TAILS_CUT, (int64_t)report->tails_cut);
    metrics_add(store->metrics, METRIC_RECOVERY_ENTRIES_DROPPED, (int64_t)report->entries_dropped);
    *index = recovery.index;
    return true;
}

/* Opens the index on disk and loads the one in memory from it. An index that refuses is made anew from the segments. */
static bool open_index(struct recovery *recovery, const char *path, struct status *status)
{
    struct status why;
    struct index_checkpoint checkpoint;
    if (index_open(path, &recovery->index, &why)) {
        if (index_read_checkpoint(recovery->index, &checkpoint, &why) &&
            index_iterate(recovery->index, load_entry, recovery, &why)) {
            recovery->checkpoint = checkpoint;
            for (size_t lane = 0; lane < LANE_COUNT; lane++) {
                if (checkpoint.lanes[lane].place.segment >= recovery->store->next_segment_number)
                    recovery->store->next_segment_number = checkpoint.lanes[lane].place.segment + 1;
            }
            if (recovery->report->entries_dropped > 0)
                log_event(LOG_LEVEL_WARN, "index_entries_dropped",
                          "entries=%" PRIu64 " reason=\"their segments are cut short\"",
                          recovery->report->entries_dropped);
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
    /* What was loaded so far may stand: every entry is checked against its record when it is read. */
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
    log_event(LOG_LEVEL_ERROR, "index_unavailable", "reason=%s", log_quote(&text, why->message));
    metrics_add(recovery->store->metrics, METRIC_INDEX_FAILURES, 1);
    index_close(recovery->index);
    recovery->index = NULL;
}

/*
 * The records of a lane are numbered without a gap, so that a segment that is gone, or that cannot be used, shows. Only that the
 * oldest ones are gone is as it should be: they were evicted.
 */
static bool look_for_lost_chunks(struct recovery *recovery, struct status *status)
{
    struct segment_set *segments = recovery->store->segments;
    uint64_t *numbers = NULL;
    size_t count = 0;
    uint64_t next_seq = 0;
    if (!segment_set_numbers(segments, &numbers, &count, status))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(segments, numbers[i]);
        if (segment->lane == LANE_LARGE) {
            if (recovery->oldest_large == 0)
                recovery->oldest_large = numbers[i];
            const bool follows =
                next_seq == 0 || segment->first_seq == 0 || segment->first_seq == next_seq;
            if (segment->end_lost || !follows)
                recovery->chunks_lost = true;
            /* An unsealed segment does not say where it ends. */
            next_seq = segment->sealed ? segment->last_seq + 1 : 0;
        }
        segment_set_unpin(segments, segment);
    }
    free(numbers);
    if (recovery->chunks_lost)
        log_event(LOG_LEVEL_WARN, "segments_incomplete", "lane=%s reason=\"%s\"",
                  lane_name(LANE_LARGE),
                  "a segment is short or missing: large blobs are looked at one by one");
    return true;
}

static bool load_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct recovery *recovery = argument;
    return !entry_has_bytes(recovery, entry) || !entry_has_chunks(recovery, entry) ||
           apply_to_table(recovery->store, entry, status);
}

static bool entry_has_bytes(struct recovery *recovery, const struct index_entry *entry)
{
    struct segment *segment = segment_set_pin(recovery->store->segments, entry->place.segment);
    const bool there =
        segment != NULL &&
        entry->place.offset + RECORD_HEADER_BYTES + entry->payload_bytes <= segment->file_bytes;
    recovery->report->entries_evicted += segment == NULL;
    recovery->report->entries_dropped += segment != NULL && !there;
    segment_set_unpin(recovery->store->segments, segment);
    return there;
}

/*
 * A blob whose MANIFEST is in the oldest segment may have chunks in one before, and that one may not have been evicted: then a
 * FORGET would have taken the entry out of the index.
 */
static bool entry_has_chunks(struct recovery *recovery, const struct index_entry *entry)
{
    if (entry->kind != RECORD_MANIFEST ||
        (!recovery->chunks_lost && entry->place.segment != recovery->oldest_large))
        return true;
    struct segment *segment = segment_set_pin(recovery->store->segments, entry->place.segment);
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)entry->payload_bytes;
    uint8_t *memory = segment != NULL ? malloc(capacity) : NULL;
    struct record_header header;
    struct bytes payload;
    struct status ignored;
    const bool there = memory != NULL &&
                       segment_read_record(segment, entry->place.offset, capacity, memory, capacity,
                                           &header, &payload, &ignored) &&
                       manifest_is_complete(recovery->store->segments, payload);
    recovery->report->entries_dropped += !there;
    free(memory);
    segment_set_unpin(recovery->store->segments, segment);
    return there;
}

static bool apply_to_table(struct store *store,
                           const struct index_entry *entry,
                           struct status *status)
{
    const struct blob_key key =
        entry->kind == RECORD_ACTION
            ? blob_table_action_key(store->table, &entry->digest, entry->instance)
            : blob_table_blob_key(store->table, &entry->digest);
    if (!entry->forget)
        return blob_table_put(store->table, key, entry->place, status);
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
    if (!apply_to_table(recovery->store, entry, status))
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
    blob_table_set_minute(store->table,
                          (uint64_t)(clock_monotonic_ns(store->clock) / (60 * NS_PER_S)));
    if (younger != NULL)
        blob_table_touch_segments(store->table, younger, bits,
                                  evict_vouch_minutes(store->vouch_ns));
    free(younger);
    free(numbers);
}
