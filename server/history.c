/* SPDX-License-Identifier: Apache-2.0 */
#include "server/history.h"

/* As many records as one read of the log looks at. */
enum { PART_RECORDS = 100000 };
/* Of the records that one read finds. */
#define READ_ARENA_BYTES_MAX (16 * MIB)

static bool begin_part(struct history *history, struct copies *copies);
static bool read_part(struct history *history,
                      struct feed *feed,
                      struct arena *arena,
                      struct status *status);
static bool keep(struct history *history,
                 const struct feed_entry *from,
                 struct arena *arena,
                 struct status *status);
static void turn_part(struct history *history);
static void end_part(struct history *history);

void history_begin(struct history *history, const struct digest *digest, enum history_size size)
{
    *history = (struct history){.digest = *digest};
    history->lane = LANE_SMALL;
    history->last_lane =
        size == HISTORY_SIZE_UNKNOWN || digest->size_bytes > (int64_t)LIMIT_SMALL_BLOB_BYTES
            ? LANE_LARGE
            : LANE_SMALL;
}

bool history_step(struct history *history,
                  struct feed *feed,
                  struct copies *copies,
                  struct arena *arena,
                  bool *more,
                  struct status *status)
{
    *more = false;
    if (history->high == 0 && !begin_part(history, copies)) {
        history->is_whole = !history->events_left_out;
        history->from_the_start = history->is_whole;
        for (enum lane lane = LANE_SMALL; lane <= history->last_lane; lane++)
            history->from_the_start &= history->oldest[lane] <= 1;
        return true;
    }
    if (!read_part(history, feed, arena, status))
        return false;
    *more = true;
    return true;
}

/* The end of the lane, or of the next one where this is empty; false: there is none. */
static bool begin_part(struct history *history, struct copies *copies)
{
    for (; history->lane <= history->last_lane; history->lane++) {
        history->high = copies_published_seq(copies, history->lane);
        if (history->high > 0)
            break;
    }
    if (history->high == 0)
        return false;
    history->low = history->high > PART_RECORDS ? history->high - PART_RECORDS : 0;
    history->after = history->low;
    history->part_at = history->count;
    return true;
}

static bool read_part(struct history *history,
                      struct feed *feed,
                      struct arena *arena,
                      struct status *status)
{
    struct arena memory;
    arena_init(&memory, READ_ARENA_BYTES_MAX);
    const struct feed_query query = {
        .lane = history->lane,
        .after_seq = history->after,
        .through_seq = history->high,
        .records_max = HISTORY_EVENTS_MAX,
        .bytes_max = READ_ARENA_BYTES_MAX / 2,
        .kinds = FEED_ALL,
        .only = &history->digest,
        .history = true,
    };
    struct feed_batch batch;
    bool ok = feed_read(feed, &query, &memory, &batch, status);
    if (!ok && status->code == STATUS_OUT_OF_RANGE && history->after > 0) {
        /* The log begins in this part, or has come to by now: from its beginning. */
        *status = (struct status){0};
        history->low = 0;
        history->after = 0;
        arena_destroy(&memory);
        return true;
    }
    for (size_t i = 0; ok && i < batch.count; i++)
        ok = keep(history, &batch.entries[i], arena, status);
    if (ok) {
        history->looked_at += batch.looked_at;
        history->oldest[history->lane] = batch.oldest_seq;
        history->after = batch.next_after_seq;
        if (!batch.more) {
            turn_part(history);
            end_part(history);
        }
    }
    arena_destroy(&memory);
    return ok;
}

/* The oldest of the part gives way. */
static bool keep(struct history *history,
                 const struct feed_entry *from,
                 struct arena *arena,
                 struct status *status)
{
    if (history->count == HISTORY_EVENTS_MAX) {
        history->events_left_out = true;
        if (history->part_at == HISTORY_EVENTS_MAX)
            return true;
        for (size_t i = history->part_at; i + 1 < history->count; i++)
            history->events[i] = history->events[i + 1];
        history->count--;
    }
    struct history_event *const event = &history->events[history->count++];
    *event = (struct history_event){
        .lane = history->lane,
        .seq = from->seq,
        .kind = from->kind,
        .wall_ns = from->wall_ns,
        .size_bytes = from->digest.size_bytes,
        .origin_uid = from->origin_uid,
        .result_bytes = from->result.length,
        .forgotten = from->forgotten,
        .reason = from->reason,
        .current = from->kind != RECORD_FORGET && from->current,
        .place = from->place,
    };
    const char *const instance = arena_copy_string(arena, from->instance);
    const char *const writer = arena_copy_string(arena, from->writer);
    if (instance == NULL || writer == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for what the log says");
    event->instance = bytes_of(instance, from->instance.length);
    event->writer = bytes_of(writer, from->writer.length);
    return true;
}

/* The events of the part, newest first. */
static void turn_part(struct history *history)
{
    for (size_t low = history->part_at, high = history->count; low + 1 < high; low++, high--) {
        const struct history_event kept = history->events[low];
        history->events[low] = history->events[high - 1];
        history->events[high - 1] = kept;
    }
}

/* On to the part before it, or to the next lane. */
static void end_part(struct history *history)
{
    history->part_at = history->count;
    if (history->low > 0 && history->low >= history->oldest[history->lane] &&
        !history->events_left_out) {
        history->high = history->low;
        history->low = history->high > PART_RECORDS ? history->high - PART_RECORDS : 0;
        history->after = history->low;
        return;
    }
    history->high = 0;
    history->lane++;
}
