/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/indexer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "durability/index_batch.h"
#include "durability/replay.h"
#include "store/evict_plan.h"
#include "store/find.h"
#include "store/use_file.h"

/* How often the index on disk is flushed, so that a start reads little; and how soon a broken one is opened again. */
/* A batch that takes this long waits for RocksDB, and is counted. */
#define STALL_NS (100 * NS_PER_MS)
#define FLUSH_EVERY_NS (30 * NS_PER_S)
#define FLUSH_EVERY_BYTES (256 * MIB) /* of segments: what a start after a kill goes through */
#define REOPEN_AFTER_NS (5 * NS_PER_S)

/* How often it is written down what was used; and how much of the time that may take at most: a twentieth. */
#define USES_EVERY_NS (60 * NS_PER_S)
enum { USES_SHARE = 20 };

/* Entries that one batch brings in. */
enum { BATCH_ENTRIES_MAX = 65536 };

/* Entries that are loaded between two looks at the queue: some 10 ms. */
enum { LOAD_STEP_ENTRIES = 32768 };

/* What one round of commit posted. Entries' instances point into text. */
struct block {
    struct block *next;
    enum lane lane;
    struct segment_log_position position;
    size_t count;
    struct index_entry entries[];
};

struct indexer {
    /* Set by indexer_new(), never changed. */
    struct store *store; /* borrowed */
    char *path;          /* owned */
    size_t queue_max;    /* entries; a test sets it before the first post */

    struct lock lock;
    struct condition posted;
    struct block *first, *last; /* guarded by lock; owned */
    size_t queued;              /* guarded by lock; entries */
    bool overflowed;            /* guarded by lock: blocks were let go, the segments have them */
    bool stopping;              /* guarded by lock */

    /* The indexer thread's. */
    struct index *index; /* owned; NULL while it is broken */
    struct index_checkpoint checkpoint;
    struct index_checkpoint flushed; /* where the last flush found it */
    bool behind;  /* the index lacks durable records that are not queued: catch up first */
    bool dirty;   /* written since the last flush */
    bool loading; /* the index in memory is not complete yet */
    struct index_cursor *cursor; /* owned; how far it is loaded; NULL: not begun */
    size_t load_step;            /* entries a round */
    uint64_t loaded;             /* entries so far */
    uint64_t evicted, dropped; /* of those: the segment is gone; it is there, their bytes are not */
    int64_t load_began_ns;
    int64_t flush_at_ns;
    int64_t uses_at_ns;    /* when they are written the next time */
    int64_t uses_until_ns; /* those up to then are written */
    bool uses_failed;      /* so it was logged */
    int64_t reopen_at_ns;
    enum status_code lost_code;  /* why it was lost last */
    struct index_entry *scratch; /* owned; BATCH_ENTRIES_MAX */
};

struct catch_up {
    struct indexer *indexer;
    struct index_batch batch;
};

static struct block *block_new(enum lane lane,
                               const struct index_entry *entries,
                               size_t count,
                               const struct segment_log_position *position);
static struct block *take_blocks(struct indexer *indexer);
static bool write_blocks(struct indexer *indexer, struct block *blocks, struct status *status);
static void free_blocks(struct block *blocks);
static uint64_t bytes_since_flush(const struct indexer *indexer);
static bool flush_if_due(struct indexer *indexer, bool rotated, struct status *status);
static void mark_dead_segments(struct indexer *indexer);
static void write_uses_if_due(struct indexer *indexer);
static bool load_some(struct indexer *indexer, bool *more, struct status *status);
static bool load_entry(void *argument, const struct index_entry *entry, struct status *status);
static void end_load(struct indexer *indexer);
static void load_from_segments(struct indexer *indexer);
static bool apply_beside(void *argument, const struct index_entry *entry, struct status *status);
static void close_index(struct indexer *indexer);
static void lose_index(struct indexer *indexer, const struct status *why);
static bool regain_index(struct indexer *indexer);
static void drop_caught_up(struct indexer *indexer);
static bool catch_up(struct indexer *indexer, struct status *status);
static bool catch_up_lane(struct indexer *indexer,
                          enum lane lane,
                          const struct segment_log_position *to,
                          struct status *status);
static bool catch_up_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool write_catch_up(struct catch_up *context, struct status *status);

bool indexer_new(struct store *store,
                 const char *path,
                 struct index *index,
                 struct indexer **indexer,
                 struct status *status)
{
    struct indexer *made = calloc(1, sizeof(*made));
    char *copy = strdup(path);
    struct index_entry *scratch = calloc(BATCH_ENTRIES_MAX, sizeof(*scratch));
    if (made == NULL || copy == NULL || scratch == NULL) {
        free(made);
        free(copy);
        free(scratch);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the indexer");
    }
    made->store = store;
    made->path = copy;
    made->scratch = scratch;
    made->index = index;
    made->behind = index == NULL;
    made->loading = blob_table_is_loading(store->table);
    cold_index_promise(&store->cold, made->loading);
    made->load_step = LOAD_STEP_ENTRIES;
    made->queue_max = LIMIT_INDEX_QUEUE;
    made->load_began_ns = clock_monotonic_ns(store->clock);
    made->flush_at_ns = clock_monotonic_ns(store->clock) + FLUSH_EVERY_NS;
    made->uses_at_ns = clock_monotonic_ns(store->clock) + USES_EVERY_NS;
    made->uses_until_ns = clock_monotonic_ns(store->clock);
    made->reopen_at_ns = clock_monotonic_ns(store->clock) + REOPEN_AFTER_NS;
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        made->checkpoint.lanes[lane] = segment_log_synced_position(store->logs[lane]);
    made->flushed = made->checkpoint;
    lock_init(&made->lock, LOCK_RANK_INDEXER);
    condition_init(&made->posted);
    *indexer = made;
    return true;
}

void indexer_free(struct indexer *indexer)
{
    if (indexer == NULL)
        return;
    close_index(indexer);
    free_blocks(indexer->first);
    condition_destroy(&indexer->posted);
    lock_destroy(&indexer->lock);
    free(indexer->scratch);
    free(indexer->path);
    free(indexer);
}

void indexer_post(struct indexer *indexer,
                  enum lane lane,
                  const struct index_entry *entries,
                  size_t count,
                  const struct segment_log_position *position)
{
    struct block *block = block_new(lane, entries, count, position);
    lock_acquire(&indexer->lock);
    if (block == NULL || indexer->queued + count > indexer->queue_max) {
        indexer->overflowed = true;
        free(block);
    } else {
        if (indexer->last != NULL)
            indexer->last->next = block;
        else
            indexer->first = block;
        indexer->last = block;
        indexer->queued += count;
    }
    metrics_set(indexer->store->metrics, METRIC_INDEX_QUEUE, (int64_t)indexer->queued);
    condition_signal(&indexer->posted);
    lock_release(&indexer->lock);
}

static struct block *block_new(enum lane lane,
                               const struct index_entry *entries,
                               size_t count,
                               const struct segment_log_position *position)
{
    size_t text_bytes = 0;
    for (size_t i = 0; i < count; i++)
        text_bytes += entries[i].instance.length;
    struct block *block = malloc(sizeof(*block) + count * sizeof(struct index_entry) + text_bytes);
    if (block == NULL)
        return NULL;
    *block = (struct block){.lane = lane, .position = *position, .count = count};
    uint8_t *text = (uint8_t *)&block->entries[count];
    for (size_t i = 0; i < count; i++) {
        block->entries[i] = entries[i];
        if (entries[i].instance.length == 0)
            continue;
        memcpy(text, entries[i].instance.data, entries[i].instance.length);
        block->entries[i].instance.data = text;
        text += entries[i].instance.length;
    }
    return block;
}

bool indexer_round(struct indexer *indexer)
{
    struct status status;
    write_uses_if_due(indexer);
    if ((indexer->index == NULL || indexer->behind) && !regain_index(indexer))
        return false;
    struct block *blocks = take_blocks(indexer);
    const uint64_t small = indexer->checkpoint.lanes[LANE_SMALL].place.segment;
    const uint64_t large = indexer->checkpoint.lanes[LANE_LARGE].place.segment;
    const bool any = blocks != NULL;
    const bool written = blocks == NULL || write_blocks(indexer, blocks, &status);
    free_blocks(blocks);
    const bool rotated = small != indexer->checkpoint.lanes[LANE_SMALL].place.segment ||
                         large != indexer->checkpoint.lanes[LANE_LARGE].place.segment;
    bool more = false;
    if (!written || !flush_if_due(indexer, rotated, &status) ||
        !load_some(indexer, &more, &status)) {
        lose_index(indexer, &status);
        return false;
    }
    return any || more;
}

/* A nicety: the next start evicts with more sense. */
static void write_uses_if_due(struct indexer *indexer)
{
    struct store *store = indexer->store;
    struct status status;
    struct log_text text;
    const int64_t now_ns = clock_monotonic_ns(store->clock);
    if (indexer->loading || now_ns < indexer->uses_at_ns)
        return;
    const bool ok = use_file_write(store, USE_FILE_RUNNING, indexer->uses_until_ns, &status);
    const int64_t took_ns = clock_monotonic_ns(store->clock) - now_ns;
    indexer->uses_at_ns =
        now_ns + (took_ns * USES_SHARE > USES_EVERY_NS ? took_ns * USES_SHARE : USES_EVERY_NS);
    if (ok)
        indexer->uses_until_ns = now_ns;
    else if (!indexer->uses_failed)
        log_event(LOG_LEVEL_WARN, "uses_not_written", "reason=%s",
                  log_quote(&text, status.message));
    indexer->uses_failed = !ok;
}

/* *more: there is more to load. A stop does not wait for it. */
static bool load_some(struct indexer *indexer, bool *more, struct status *status)
{
    if (!indexer->loading)
        return true;
    lock_acquire(&indexer->lock);
    const bool stopping = indexer->stopping;
    lock_release(&indexer->lock);
    if (stopping)
        return true;
    if (indexer->cursor == NULL) {
        indexer->loaded = 0;
        indexer->evicted = 0;
        indexer->dropped = 0;
        if (!index_cursor_open(indexer->index, &indexer->cursor, status))
            return false;
    }
    if (!index_cursor_read(indexer->cursor, indexer->load_step, load_entry, indexer, more, status))
        return false;
    metrics_set(indexer->store->metrics, METRIC_INDEX_LOADED, (int64_t)indexer->loaded);
    if (!*more)
        end_load(indexer);
    return true;
}

static bool load_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct indexer *indexer = argument;
    enum record_state state;
    if (!store_load(indexer->store, entry, &state, status))
        return false;
    indexer->loaded++;
    switch (state) {
    case RECORD_THERE:
        break;
    case RECORD_EVICTED: /* RocksDB drops it some time */
        indexer->evicted++;
        break;
    case RECORD_LOST:
        indexer->dropped++;
        break;
    }
    return true;
}

/* Everything is in memory: nobody asks the index on disk any more. */
static void end_load(struct indexer *indexer)
{
    struct store *store = indexer->store;
    index_cursor_close(indexer->cursor);
    indexer->cursor = NULL;
    indexer->loading = false;
    if (store->younger != NULL)
        blob_table_touch_segments(store->table, store->younger, store->younger_bits,
                                  evict_vouch_minutes(store->vouch_ns));
    use_file_free(store->uses);
    store->uses = NULL;
    blob_table_end_load(store->table);
    cold_index_set(&store->cold, NULL);
    cold_index_promise(&store->cold, false);
    metrics_set(store->metrics, METRIC_INDEX_LOADING, 0);
    metrics_add(store->metrics, METRIC_RECOVERY_ENTRIES_DROPPED, (int64_t)indexer->dropped);
    log_event(LOG_LEVEL_INFO, "index_loaded",
              "entries=%" PRIu64 " entries_evicted=%" PRIu64 " duration_ms=%" PRId64,
              indexer->loaded - indexer->dropped - indexer->evicted, indexer->evicted,
              (clock_monotonic_ns(store->clock) - indexer->load_began_ns) / NS_PER_MS);
    if (indexer->dropped > 0)
        log_event(LOG_LEVEL_WARN, "index_entries_dropped",
                  "entries=%" PRIu64 " reason=\"their segments are cut short\"", indexer->dropped);
}

void indexer_set_load_step(struct indexer *indexer, size_t entries)
{
    ASSERT(entries > 0);
    indexer->load_step = entries;
}

void indexer_set_queue_max(struct indexer *indexer, size_t entries)
{
    ASSERT(entries > 0);
    indexer->queue_max = entries;
}

/* As many blocks as fit into one batch. */
static struct block *take_blocks(struct indexer *indexer)
{
    lock_acquire(&indexer->lock);
    if (indexer->overflowed) {
        indexer->overflowed = false;
        indexer->behind = true;
    }
    struct block *const first = indexer->first;
    struct block *last = NULL;
    size_t count = 0;
    while (indexer->first != NULL && count + indexer->first->count <= BATCH_ENTRIES_MAX) {
        last = indexer->first;
        count += last->count;
        indexer->first = last->next;
    }
    if (last != NULL)
        last->next = NULL;
    if (indexer->first == NULL)
        indexer->last = NULL;
    indexer->queued -= count;
    metrics_set(indexer->store->metrics, METRIC_INDEX_QUEUE, (int64_t)indexer->queued);
    lock_release(&indexer->lock);
    return last != NULL ? first : NULL;
}

static bool write_blocks(struct indexer *indexer, struct block *blocks, struct status *status)
{
    size_t count = 0;
    struct index_checkpoint checkpoint = indexer->checkpoint;
    for (const struct block *block = blocks; block != NULL; block = block->next) {
        memcpy(&indexer->scratch[count], block->entries, block->count * sizeof(struct index_entry));
        count += block->count;
        checkpoint.lanes[block->lane] = block->position;
    }
    if (indexer->behind) /* blocks are missing before these: the checkpoint must not pass them */
        checkpoint = indexer->checkpoint;
    FAILPOINT(index_before_batch);
    const int64_t begun_ns = clock_monotonic_ns(indexer->store->clock);
    if (!index_write(indexer->index, indexer->scratch, count, &checkpoint, status))
        return false;
    if (clock_monotonic_ns(indexer->store->clock) - begun_ns >= STALL_NS)
        metrics_add(indexer->store->metrics, METRIC_INDEX_WRITE_STALLS, 1);
    FAILPOINT(index_after_batch);
    indexer->checkpoint = checkpoint;
    indexer->dirty = true;
    metrics_add(indexer->store->metrics, METRIC_INDEX_BATCHES, 1);
    return true;
}

static void free_blocks(struct block *blocks)
{
    while (blocks != NULL) {
        struct block *const next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

/* In the segments that the lanes write to: a new one is a rotation. */
static uint64_t bytes_since_flush(const struct indexer *indexer)
{
    uint64_t bytes = 0;
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        const struct place from = indexer->flushed.lanes[lane].place;
        const struct place to = indexer->checkpoint.lanes[lane].place;
        if (from.segment == to.segment && to.offset > from.offset)
            bytes += to.offset - from.offset;
    }
    return bytes;
}

static bool flush_if_due(struct indexer *indexer, bool rotated, struct status *status)
{
    const int64_t now_ns = clock_monotonic_ns(indexer->store->clock);
    if (!indexer->dirty || (!rotated && now_ns < indexer->flush_at_ns &&
                            bytes_since_flush(indexer) < FLUSH_EVERY_BYTES))
        return true;
    indexer->flushed = indexer->checkpoint;
    indexer->flush_at_ns = now_ns + FLUSH_EVERY_NS;
    indexer->dirty = false;
    mark_dead_segments(indexer);
    return index_flush(indexer->index, status);
}

/*
 * Entries in segments that are no more are dropped when RocksDB compacts. A number that is not there may be that of a segment
 * which is being made, but not below those that each lane has.
 */
static void mark_dead_segments(struct indexer *indexer)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    const uint64_t settled =
        segment_set_settled_below(indexer->store->segments); /* before the list is made */
    if (!segment_set_numbers(indexer->store->segments, &numbers, &count, &ignored))
        return; /* next time */
    uint64_t next = 1;
    for (size_t i = 0; i < count && next < settled; i++) {
        for (; next < numbers[i] && next < settled; next++) {
            if (!store_left_out(indexer->store, next)) /* it may be there again at the next start */
                index_mark_dead(indexer->index, next);
        }
        next = numbers[i] + 1;
    }
    free(numbers);
}

/* The segments have everything: entries are let go, and read from there once the index works again. */
static void lose_index(struct indexer *indexer, const struct status *why)
{
    struct log_text text;
    log_event(LOG_LEVEL_ERROR, "index_lost", "reason=%s retry_after_s=%d",
              log_quote(&text, why->message), (int)(REOPEN_AFTER_NS / NS_PER_S));
    metrics_add(indexer->store->metrics, METRIC_INDEX_FAILURES, 1);
    close_index(indexer);
    if (indexer->loading)
        load_from_segments(indexer);
    indexer->behind = true;
    indexer->lost_code = why->code;
    indexer->reopen_at_ns = clock_monotonic_ns(indexer->store->clock) + REOPEN_AFTER_NS;
}

/*
 * What is in memory by now stays, and who looks for what is not waits. The log is read in its order into a table beside, whose
 * entries then come as those of the index would have.
 */
static void load_from_segments(struct indexer *indexer)
{
    struct store *store = indexer->store;
    struct blob_table *beside = NULL;
    struct status status;
    struct log_text text;
    bool ok = blob_table_new_beside(store->table, &beside, &status);
    /* The large lane first: a FORGET, always in the small one, may name a record of either. */
    for (size_t i = LANE_COUNT; ok && i > 0; i--) {
        const struct segment_log_position to = segment_log_synced_position(store->logs[i - 1]);
        struct replay replay = {
            .store = store,
            .lane = (enum lane)(i - 1),
            .to = &to,
            .each = apply_beside,
            .argument = beside,
        };
        ok = replay_run(&replay, &status);
        replay_destroy(&replay);
    }
    ok = ok && blob_table_load_from(store->table, beside, &status);
    if (ok)
        indexer->loaded = blob_table_count(beside);
    blob_table_free(beside);
    if (ok) {
        indexer->evicted = 0;
        indexer->dropped = 0;
        end_load(indexer);
        return;
    }
    /* Tried again once there is an index again; until then what is not in memory is missing. */
    log_event(LOG_LEVEL_ERROR, "index_not_loaded", "reason=%s", log_quote(&text, status.message));
    cold_index_promise(&store->cold, false);
}

static bool apply_beside(void *argument, const struct index_entry *entry, struct status *status)
{
    return replay_apply(argument, entry, status);
}

static void close_index(struct indexer *indexer)
{
    index_cursor_close(indexer->cursor);
    indexer->cursor = NULL;
    cold_index_set(&indexer->store->cold, NULL);
    index_close(indexer->index);
    indexer->index = NULL;
}

/* True when the index is open and lacks nothing but what is queued. */
static bool regain_index(struct indexer *indexer)
{
    struct status status;
    const int64_t now_ns = clock_monotonic_ns(indexer->store->clock);
    if (indexer->index == NULL) {
        if (now_ns < indexer->reopen_at_ns)
            return false;
        /* One that is damaged would fail again and again. */
        const bool usable =
            indexer->lost_code != STATUS_DATA_LOSS || index_destroy(indexer->path, &status);
        if (!usable || !index_open(indexer->path, &indexer->index, &status)) {
            lose_index(indexer, &status);
            return false;
        }
    }
    /* What is posted from now on stays queued; what was let go before is in the segments. */
    lock_acquire(&indexer->lock);
    indexer->overflowed = false;
    lock_release(&indexer->lock);
    if (!catch_up(indexer, &status)) {
        lose_index(indexer, &status);
        return false;
    }
    drop_caught_up(indexer);
    indexer->behind = false;
    if (indexer->loading) {
        cold_index_set(&indexer->store->cold, indexer->index);
        cold_index_promise(&indexer->store->cold, true);
    }
    log_event(LOG_LEVEL_INFO, "index_regained", "small_seq=%" PRIu64 " large_seq=%" PRIu64,
              indexer->checkpoint.lanes[LANE_SMALL].seq, indexer->checkpoint.lanes[LANE_LARGE].seq);
    return true;
}

/* Blocks that wait and are in the index already: it must not go back to them. */
static void drop_caught_up(struct indexer *indexer)
{
    lock_acquire(&indexer->lock);
    struct block **link = &indexer->first;
    indexer->last = NULL;
    while (*link != NULL) {
        struct block *const block = *link;
        if (block->position.seq > indexer->checkpoint.lanes[block->lane].seq) {
            indexer->last = block;
            link = &block->next;
            continue;
        }
        *link = block->next;
        indexer->queued -= block->count;
        free(block);
    }
    metrics_set(indexer->store->metrics, METRIC_INDEX_QUEUE, (int64_t)indexer->queued);
    lock_release(&indexer->lock);
}

static bool catch_up(struct indexer *indexer, struct status *status)
{
    struct segment_log_position to[LANE_COUNT];
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        to[lane] = segment_log_synced_position(indexer->store->logs[lane]);
    if (!index_read_checkpoint(indexer->index, &indexer->checkpoint, status))
        return false;
    /* The large lane first: a FORGET, always in the small one, may name a record of either. */
    if (!catch_up_lane(indexer, LANE_LARGE, &to[LANE_LARGE], status) ||
        !catch_up_lane(indexer, LANE_SMALL, &to[LANE_SMALL], status))
        return false;
    memcpy(indexer->checkpoint.lanes, to, sizeof(to));
    return index_write(indexer->index, NULL, 0, &indexer->checkpoint, status) &&
           index_flush(indexer->index, status);
}

static bool catch_up_lane(struct indexer *indexer,
                          enum lane lane,
                          const struct segment_log_position *to,
                          struct status *status)
{
    struct catch_up context = {.indexer = indexer};
    if (!index_batch_init(&context.batch, status))
        return false;
    struct replay replay = {
        .store = indexer->store,
        .lane = lane,
        .from = indexer->checkpoint.lanes[lane],
        .to = to,
        .each = catch_up_entry,
        .argument = &context,
    };
    const bool ok = replay_run(&replay, status) && write_catch_up(&context, status);
    index_batch_destroy(&context.batch);
    replay_destroy(&replay);
    return ok;
}

static bool catch_up_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct catch_up *context = argument;
    if (index_batch_is_full(&context->batch) && !write_catch_up(context, status))
        return false;
    return index_batch_add(&context->batch, entry, status);
}

static bool write_catch_up(struct catch_up *context, struct status *status)
{
    const bool ok = index_write(context->indexer->index, context->batch.entries,
                                context->batch.count, &context->indexer->checkpoint, status);
    index_batch_clear(&context->batch);
    return ok;
}

bool indexer_wait(struct indexer *indexer)
{
    lock_acquire(&indexer->lock);
    if (indexer->loading && indexer->index != NULL && !indexer->stopping) {
        /* There is something to do. */
    } else if (indexer->first == NULL && !indexer->stopping) {
        if (!condition_wait_for(&indexer->posted, &indexer->lock, NS_PER_S)) {
            /* Something may be due by time. */
        }
    } else if (indexer->index == NULL && !indexer->stopping) {
        if (!condition_wait_for(&indexer->posted, &indexer->lock, NS_PER_S / 10)) {
            /* Entries wait for an index that is broken: no busy loop. */
        }
    }
    const bool more = !indexer->stopping || (indexer->first != NULL && indexer->index != NULL);
    lock_release(&indexer->lock);
    return more;
}

void indexer_stop(struct indexer *indexer)
{
    lock_acquire(&indexer->lock);
    indexer->stopping = true;
    condition_broadcast(&indexer->posted);
    lock_release(&indexer->lock);
    cold_index_promise(&indexer->store->cold, false);
}
