/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_log.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"

/* How long after a failure to make a segment it is not tried again: a full disk is asked once a second. */
#define RETRY_AFTER_NS NS_PER_S
/* How often it is looked again whether there is room. */
#define LOOK_FOR_ROOM_NS (100 * NS_PER_MS)

/* Full segments that wait for a sync; more would let appends run ahead of the disk without end. */
enum { UNSYNCED_SEGMENTS_MAX = 4, UNSEALED_SEGMENTS_MAX = 64 };

struct segment_list {
    struct segment *segments[UNSEALED_SEGMENTS_MAX];
    size_t count;
};

struct segment_log {
    /* Set by segment_log_new(), never changed. */
    struct io *io;
    struct clock *clock;
    struct metrics *metrics;
    struct segment_set *segments;
    char *directory; /* owned */
    enum lane lane;
    uint64_t segment_bytes;
    struct space *space; /* borrowed */
    uint64_t node_uid;
    _Atomic uint64_t *next_segment_number;
    void (*hook)(void *argument, bool sync_wanted);
    void *hook_argument;

    struct lock lock;
    struct condition changed;     /* a segment was made or could not be, or one was synced */
    struct segment *active;       /* guarded by lock, as all below; borrowed from the set */
    bool active_is_torn;          /* a write of it was cut off: nothing more goes there */
    struct segment *spare;        /* borrowed from the set */
    struct segment_list unsynced; /* full, with bytes that are not durable; oldest first */
    struct segment_list unsealed; /* full and durable, without a footer */
    struct segment *sealing;      /* taken from unsealed by segment_log_maintain() */
    bool sealing_is_noted;        /* its notes were complete then, and stay as they are */
    bool making;                  /* somebody makes a segment without the lock */
    int64_t retry_at_ns;          /* no new attempt to make one before */
    struct status make_failure;   /* the last; code 0: none */
    int64_t full_since_ns; /* when a write found no room, and none has since; 0: there was some */
    uint64_t next_seq;
    uint64_t unsynced_bytes;
    struct segment_log_position synced;
    bool failed; /* never goes back to false */
    struct status why;

    /* Scratch for one gathered write. */
    struct iovec *parts; /* owned */
    size_t parts_capacity;

    bool making_fails; /* of whoever is making one: it has been told */
};

/* What an append is for, and what it waits for. */
struct append_mode {
    enum space_use use;
    bool waits_for_sync; /* else SEGMENT_LOG_SYNC_FIRST */
    bool waits_for_room; /* else SEGMENT_LOG_NO_ROOM */
};

struct append_outcome {
    bool rotated;
    bool sync_wanted;
    bool failed; /* the lane, by this append */
};

static const uint8_t PADDING[RECORD_ALIGNMENT_BYTES];

static enum segment_log_result append(struct segment_log *log,
                                      struct record *const *records,
                                      size_t count,
                                      const struct append_mode *mode,
                                      struct status *status);
static enum segment_log_result append_locked(struct segment_log *log,
                                             struct record *const *records,
                                             size_t count,
                                             const struct append_mode *mode,
                                             struct append_outcome *outcome,
                                             struct status *status) REQUIRES(log->lock);
static enum segment_log_result ensure_active_locked(struct segment_log *log,
                                                    uint64_t total_bytes,
                                                    size_t count,
                                                    const struct append_mode *mode,
                                                    struct append_outcome *outcome,
                                                    struct status *status) REQUIRES(log->lock);
static bool may_use_locked(struct segment_log *log, struct segment *segment, enum space_use use)
    REQUIRES(log->lock);
static enum segment_log_result make_spare_locked(struct segment_log *log,
                                                 enum space_use use,
                                                 struct status *status) REQUIRES(log->lock);
static enum segment_log_result no_room_locked(struct segment_log *log,
                                              const struct append_mode *mode,
                                              int64_t *since_ns,
                                              struct status *status) REQUIRES(log->lock);
static void rotate_locked(struct segment_log *log) REQUIRES(log->lock);
static bool make_segment_locked(struct segment_log *log, bool for_moves, struct status *status)
    REQUIRES(log->lock);
static void tell_of_making(struct segment_log *log, bool ok, struct status *status);
static bool make_segment(struct segment_log *log, struct segment **made, struct status *status);
static bool gather_locked(struct segment_log *log,
                          struct record *const *records,
                          size_t count,
                          size_t *parts,
                          struct status *status) REQUIRES(log->lock);
static void fill_header(const struct segment_log *log, struct record *record, uint64_t seq);
static void fail_locked(struct segment_log *log, const struct status *why) REQUIRES(log->lock);
static bool refuse_failed_locked(struct segment_log *log, struct status *status)
    REQUIRES(log->lock);
static void settle_synced_locked(struct segment_log *log) REQUIRES(log->lock);
static void list_remove_first(struct segment_list *list);

bool segment_log_new(const struct segment_log_config *config,
                     struct segment_log **log,
                     struct status *status)
{
    ASSERT(config->segment_bytes >= SEGMENT_BYTES_MIN &&
           config->segment_bytes <= SEGMENT_BYTES_MAX);
    ASSERT(config->next_seq > 0);
    struct segment_log *made = calloc(1, sizeof(*made));
    char *directory = strdup(config->directory);
    if (made == NULL || directory == NULL) {
        free(made);
        free(directory);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a lane");
    }
    made->io = config->io;
    made->clock = config->clock;
    made->metrics = config->metrics;
    made->segments = config->segments;
    made->directory = directory;
    made->lane = config->lane;
    made->segment_bytes = config->segment_bytes;
    made->space = config->space;
    made->node_uid = config->node_uid;
    made->next_segment_number = config->next_segment_number;
    made->next_seq = config->next_seq;
    made->active = config->resume[0];
    made->spare = config->resume[1];
    made->synced = config->position;
    lock_init(&made->lock, LOCK_RANK_SEGMENT_LOG);
    condition_init(&made->changed);
    for (size_t i = 0; i < ARRAY_LENGTH(config->resume); i++) {
        if (config->resume[i] != NULL && !segment_open_for_writing(config->resume[i], status)) {
            segment_log_free(made);
            return false;
        }
    }
    *log = made;
    return true;
}

void segment_log_free(struct segment_log *log)
{
    if (log == NULL)
        return;
    free(log->directory);
    free(log->parts);
    condition_destroy(&log->changed);
    lock_destroy(&log->lock);
    free(log);
}

void segment_log_set_hook(struct segment_log *log,
                          void (*hook)(void *argument, bool sync_wanted),
                          void *argument)
{
    log->hook = hook;
    log->hook_argument = argument;
}

bool segment_log_append(struct segment_log *log,
                        struct record *const *records,
                        size_t count,
                        struct status *status)
{
    const struct append_mode mode = {
        .use = SPACE_WRITE, .waits_for_sync = true, .waits_for_room = true};
    return append(log, records, count, &mode, status) == SEGMENT_LOG_APPENDED;
}

bool segment_log_append_move(struct segment_log *log,
                             struct record *const *records,
                             size_t count,
                             struct status *status)
{
    const struct append_mode mode = {.use = SPACE_MOVE, .waits_for_sync = true};
    const enum segment_log_result result = append(log, records, count, &mode, status);
    if (result == SEGMENT_LOG_NO_ROOM)
        space_explain(log->space, log->segment_bytes, status);
    return result == SEGMENT_LOG_APPENDED;
}

enum segment_log_result segment_log_try_append(struct segment_log *log,
                                               struct record *const *records,
                                               size_t count,
                                               enum space_use use,
                                               struct status *status)
{
    const struct append_mode mode = {.use = use};
    return append(log, records, count, &mode, status);
}

static enum segment_log_result append(struct segment_log *log,
                                      struct record *const *records,
                                      size_t count,
                                      const struct append_mode *mode,
                                      struct status *status)
{
    ASSERT(count > 0);
    struct append_outcome outcome = {0};
    lock_acquire(&log->lock);
    const enum segment_log_result result =
        append_locked(log, records, count, mode, &outcome, status);
    lock_release(&log->lock);
    if (log->hook != NULL && outcome.rotated)
        log->hook(log->hook_argument, false);
    /* After a failure too: the committer, which meets it then, tells everybody. */
    if (log->hook != NULL && (outcome.sync_wanted || outcome.failed))
        log->hook(log->hook_argument, true);
    return result;
}

static enum segment_log_result append_locked(struct segment_log *log,
                                             struct record *const *records,
                                             size_t count,
                                             const struct append_mode *mode,
                                             struct append_outcome *outcome,
                                             struct status *status)
{
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < count; i++)
        total_bytes += record_stored_bytes(records[i]->payload_bytes);
    const enum segment_log_result result =
        ensure_active_locked(log, total_bytes, count, mode, outcome, status);
    if (result != SEGMENT_LOG_APPENDED)
        return result;

    struct segment *segment = log->active;
    uint64_t offset = segment->end;
    for (size_t i = 0; i < count; i++) {
        struct record *record = records[i];
        fill_header(log, record, log->next_seq + i);
        record_header_seal(&record->header, segment->uid);
        record->seq = record->header.seq;
        record->place = (struct place){.segment = segment->number, .offset = offset};
        offset += record_stored_bytes(record->payload_bytes);
    }
    size_t parts = 0;
    if (!gather_locked(log, records, count, &parts, status))
        return SEGMENT_LOG_REFUSED;
    if (!segment_write(segment, log->parts, parts, total_bytes, status)) {
        /*
         * A full disk shows in a write only where allocation promises nothing. Whole records may lie behind the end now: nothing
         * may be put before them, or a crash could find them behind it, newer than it.
         */
        log->active_is_torn = true;
        outcome->failed = status->code != STATUS_RESOURCE_EXHAUSTED;
        if (outcome->failed)
            fail_locked(log, status);
        return SEGMENT_LOG_REFUSED;
    }
    for (size_t i = 0; i < count; i++) {
        struct status note_status;
        if (!segment_note(segment, &records[i]->header, records[i]->place.offset, &note_status))
            segment->footer_complete = false; /* sealing walks the records then */
    }
    const uint64_t before = log->unsynced_bytes;
    log->next_seq += count;
    log->unsynced_bytes += total_bytes;
    outcome->sync_wanted =
        before / LIMIT_UNSYNCED_BYTES != log->unsynced_bytes / LIMIT_UNSYNCED_BYTES;
    segment->counted_bytes += total_bytes;
    metrics_add(log->metrics, METRIC_RECORD_BYTES_APPENDED, (int64_t)total_bytes);
    metrics_add(log->metrics, METRIC_SEGMENT_BYTES, (int64_t)total_bytes);
    return SEGMENT_LOG_APPENDED;
}

/*
 * On APPENDED there is an active segment with room. May let the lock go meanwhile. The active one is given up only once the
 * next is there: what fits into it can go on while the store is full.
 */
static enum segment_log_result ensure_active_locked(struct segment_log *log,
                                                    uint64_t total_bytes,
                                                    size_t count,
                                                    const struct append_mode *mode,
                                                    struct append_outcome *outcome,
                                                    struct status *status)
{
    enum segment_log_result result = SEGMENT_LOG_REFUSED;
    int64_t waited_since_ns = 0;
    if (SEGMENT_HEADER_BYTES + total_bytes + count * FOOTER_ENTRY_BYTES + FOOTER_TRAILER_BYTES >
        log->segment_bytes) {
        status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                    "%" PRIu64 " bytes of records do not fit into a segment of %" PRIu64 " bytes",
                    total_bytes, log->segment_bytes);
        return result;
    }
    for (;;) {
        if (log->failed) {
            refuse_failed_locked(log, status);
            return SEGMENT_LOG_REFUSED;
        }
        const bool fits = log->active != NULL && !log->active_is_torn &&
                          segment_fits(log->active, total_bytes, count);
        struct segment *const next = fits ? log->active : log->spare;
        if (next != NULL && !may_use_locked(log, next, mode->use)) {
            result = no_room_locked(log, mode, &waited_since_ns, status);
        } else if (fits) {
            return SEGMENT_LOG_APPENDED;
        } else if (next != NULL && log->active != NULL &&
                   log->unsynced.count == UNSYNCED_SEGMENTS_MAX) {
            if (!mode->waits_for_sync)
                return SEGMENT_LOG_SYNC_FIRST;
            condition_wait(&log->changed, &log->lock); /* the committer syncs them */
            continue;
        } else if (next != NULL) {
            if (log->active != NULL)
                rotate_locked(log);
            log->active = next;
            log->spare = NULL;
            outcome->rotated = true;
            continue;
        } else if (log->making) {
            condition_wait(&log->changed, &log->lock);
            continue;
        } else {
            result = make_spare_locked(log, mode->use, status);
            if (result == SEGMENT_LOG_NO_ROOM)
                result = no_room_locked(log, mode, &waited_since_ns, status);
        }
        if (result != SEGMENT_LOG_APPENDED)
            return result;
    }
}

/* Writes keep away from what was made for moves, until there is room for everybody again. */
static bool may_use_locked(struct segment_log *log, struct segment *segment, enum space_use use)
{
    if (!segment->made_for_moves || use == SPACE_MOVE)
        return true;
    if (atomic_load(&log->space->moving) || space_left(log->space) < 0)
        return false;
    segment->made_for_moves = false;
    log->full_since_ns = 0;
    return true;
}

/* APPENDED: there is one now. */
static enum segment_log_result make_spare_locked(struct segment_log *log,
                                                 enum space_use use,
                                                 struct status *status)
{
    bool granted = false;
    if (!space_take(log->space, log->segment_bytes, use, &granted))
        return SEGMENT_LOG_NO_ROOM;
    if (make_segment_locked(log, granted, status)) {
        atomic_fetch_add(&log->space->files_made, 1);
        return SEGMENT_LOG_APPENDED;
    }
    space_not_made(log->space, log->segment_bytes, granted);
    /* The disk has less than it said: evicting is of use here too. */
    const bool full = status->code == STATUS_RESOURCE_EXHAUSTED && space_is_bounded(log->space);
    if (full)
        atomic_fetch_add(&log->space->files_not_made, 1);
    return full && use == SPACE_WRITE ? SEGMENT_LOG_NO_ROOM : SEGMENT_LOG_REFUSED;
}

/* APPENDED: look again. The evictor is woken; a store that has been full for long is full for everybody at once. */
static enum segment_log_result no_room_locked(struct segment_log *log,
                                              const struct append_mode *mode,
                                              int64_t *since_ns,
                                              struct status *status)
{
    if (mode->use == SPACE_MOVE)
        return SEGMENT_LOG_NO_ROOM;
    const int64_t now_ns = clock_monotonic_ns(log->clock);
    if (*since_ns == 0)
        *since_ns = now_ns;
    const bool first = log->full_since_ns == 0;
    if (first)
        log->full_since_ns = now_ns;
    const int64_t since = log->full_since_ns < *since_ns ? log->full_since_ns : *since_ns;
    if (now_ns - since >= LIMIT_WAIT_FOR_ROOM_NS) {
        space_explain(log->space, log->segment_bytes, status);
        return SEGMENT_LOG_REFUSED;
    }
    if (first && log->hook != NULL) {
        lock_release(&log->lock);
        log->hook(log->hook_argument, false);
        lock_acquire(&log->lock);
    }
    if (!mode->waits_for_room)
        return SEGMENT_LOG_NO_ROOM;
    if (!first && !condition_wait_for(&log->changed, &log->lock, LOOK_FOR_ROOM_NS)) {
        /* Looked at again. */
    }
    return SEGMENT_LOG_APPENDED;
}

bool segment_log_wants_spare(struct segment_log *log)
{
    lock_acquire(&log->lock);
    const bool wants = log->spare == NULL && !log->making && !log->failed;
    lock_release(&log->lock);
    return wants;
}

void segment_log_room_made(struct segment_log *log)
{
    lock_acquire(&log->lock);
    log->retry_at_ns = 0;
    condition_broadcast(&log->changed);
    lock_release(&log->lock);
}

static void rotate_locked(struct segment_log *log)
{
    struct segment *full = log->active;
    log->active = NULL;
    log->active_is_torn = false;
    metrics_add(log->metrics, METRIC_SEGMENT_ROTATIONS, 1);
    log->unsynced.segments[log->unsynced.count++] = full;
    settle_synced_locked(log);
}

/* Moves full segments that are durable from the front of unsynced to unsealed. */
static void settle_synced_locked(struct segment_log *log)
{
    while (log->unsynced.count > 0 &&
           log->unsynced.segments[0]->synced_end == log->unsynced.segments[0]->end) {
        struct segment *full = log->unsynced.segments[0];
        list_remove_first(&log->unsynced);
        if (log->unsealed.count < UNSEALED_SEGMENTS_MAX)
            log->unsealed.segments[log->unsealed.count++] = full;
        /* Else it stays without a footer, which only a rebuild of the index would miss. */
    }
}

/* Makes the next segment, with the lock let go meanwhile: it is the spare then. */
static bool make_segment_locked(struct segment_log *log, bool for_moves, struct status *status)
{
    ASSERT(log->spare == NULL && !log->making);
    if (log->make_failure.code != STATUS_OK && clock_monotonic_ns(log->clock) < log->retry_at_ns) {
        *status = log->make_failure;
        return false;
    }
    log->making = true;
    lock_release(&log->lock);
    struct segment *segment = NULL;
    bool ok = make_segment(log, &segment, status);
    tell_of_making(log, ok, status);
    lock_acquire(&log->lock);
    log->making = false;
    /* Under the lock: one that is in the set and not yet ours would look like one that the lane is done with. */
    if (ok && !segment_set_add(log->segments, segment, log->segment_bytes, status)) {
        segment_free(segment);
        ok = false;
    }
    if (ok) {
        segment->made_for_moves = for_moves;
        log->spare = segment;
        log->make_failure.code = STATUS_OK;
        if (!for_moves)
            log->full_since_ns = 0;
        metrics_add(log->metrics, METRIC_SEGMENTS, 1);
    } else {
        log->make_failure = *status;
        log->retry_at_ns = clock_monotonic_ns(log->clock) + RETRY_AFTER_NS;
    }
    condition_broadcast(&log->changed);
    return ok;
}

/*
 * Logs the first of several failures, and the end of them, and fits the status for clients: they can neither see to it nor have
 * they to know where the data lies. By whoever makes a segment, which is one at a time.
 */
static void tell_of_making(struct segment_log *log, bool ok, struct status *status)
{
    struct log_text text;
    if (ok && log->making_fails)
        log_event(LOG_LEVEL_INFO, "segments_made_again", "lane=%s", lane_name(log->lane));
    if (!ok && !log->making_fails)
        log_event(LOG_LEVEL_ERROR, "segment_not_made", "lane=%s code=%s reason=%s",
                  lane_name(log->lane), status_code_name(status->code),
                  log_quote(&text, status->message));
    log->making_fails = !ok;
    if (ok)
        return;
    char *at;
    const size_t length = strlen(log->directory);
    while ((at = strstr(status->message, log->directory)) != NULL)
        memmove(at, at + length, strlen(at + length) + 1);
    if (status->code != STATUS_RESOURCE_EXHAUSTED)
        status->code = STATUS_UNAVAILABLE;
}

static bool make_segment(struct segment_log *log, struct segment **made, struct status *status)
{
    const uint64_t number = atomic_fetch_add(log->next_segment_number, 1);
    if (number > SEGMENT_NUMBER_MAX)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "segment numbers are used up");
    return segment_create(log->io, log->directory, log->lane, number, log->segment_bytes,
                          log->node_uid, clock_wall_ns(log->clock), made, status);
}

static void fill_header(const struct segment_log *log, struct record *record, uint64_t seq)
{
    ASSERT(record->payload_bytes <= log->segment_bytes);
    record->header = (struct record_header){
        .magic = RECORD_MAGIC,
        .version = FORMAT_VERSION,
        .kind = (uint8_t)record->kind,
        .digest_function = record->digest.function,
        .codec = RECORD_CODEC_RAW,
        .seq = seq,
        .payload_bytes = record->payload_bytes,
        .blob_size = (uint64_t)record->digest.size_bytes,
        .blob_offset = record->blob_offset,
        .digest_bytes = record->digest.hash_length,
        .payload_crc32c = record->payload_crc32c,
    };
    memcpy(record->header.digest, record->digest.hash, sizeof(record->header.digest));
}

/* Header, payload and padding of each record, as one list. */
static bool gather_locked(struct segment_log *log,
                          struct record *const *records,
                          size_t count,
                          size_t *parts,
                          struct status *status)
{
    size_t needed = 0;
    for (size_t i = 0; i < count; i++)
        needed += records[i]->payload.count + 2;
    if (needed > log->parts_capacity) {
        struct iovec *grown = realloc(log->parts, needed * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to gather %zu records",
                               count);
        log->parts = grown;
        log->parts_capacity = needed;
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        struct record *record = records[i];
        uint64_t payload_bytes = 0;
        log->parts[used++] =
            (struct iovec){.iov_base = &record->header, .iov_len = sizeof(record->header)};
        for (size_t k = 0; k < record->payload.count; k++) {
            const struct bytes part = record->payload.parts[k];
            payload_bytes += part.length;
            if (part.length > 0) /* pwritev only reads; its interface has no const */
                log->parts[used++] = (struct iovec){.iov_base = (void *)(uintptr_t)part.data,
                                                    .iov_len = part.length};
        }
        ASSERT(payload_bytes == record->payload_bytes);
        const uint64_t padding =
            record_stored_bytes(payload_bytes) - RECORD_HEADER_BYTES - payload_bytes;
        if (padding > 0)
            log->parts[used++] =
                (struct iovec){.iov_base = (void *)(uintptr_t)PADDING, .iov_len = (size_t)padding};
    }
    *parts = used;
    return true;
}

uint64_t segment_log_pending_seq(struct segment_log *log)
{
    lock_acquire(&log->lock);
    const uint64_t seq = log->next_seq - 1;
    lock_release(&log->lock);
    return seq;
}

uint64_t segment_log_unsynced_bytes(struct segment_log *log)
{
    lock_acquire(&log->lock);
    const uint64_t bytes = log->unsynced_bytes;
    lock_release(&log->lock);
    return bytes;
}

bool segment_log_is_crowded(struct segment_log *log)
{
    lock_acquire(&log->lock);
    const bool crowded = log->unsynced.count >= UNSYNCED_SEGMENTS_MAX;
    lock_release(&log->lock);
    return crowded;
}

struct segment_log_position segment_log_synced_position(struct segment_log *log)
{
    lock_acquire(&log->lock);
    const struct segment_log_position position = log->synced;
    lock_release(&log->lock);
    return position;
}

/* What a sync that begins now will cover, and the files it must go through. */
struct sync_plan {
    struct segment *segments[UNSYNCED_SEGMENTS_MAX + 1]; /* and the active one */
    uint64_t ends[UNSYNCED_SEGMENTS_MAX + 1];
    size_t count;
    uint64_t covered;
    uint64_t bytes;
    struct segment_log_position position;
};

static void plan_sync_locked(struct segment_log *log, struct sync_plan *plan) REQUIRES(log->lock);

bool segment_log_sync(struct segment_log *log, uint64_t *covered, struct status *status)
{
    struct sync_plan plan = {0};
    lock_acquire(&log->lock);
    const bool usable = !log->failed || refuse_failed_locked(log, status);
    if (usable)
        plan_sync_locked(log, &plan);
    lock_release(&log->lock);
    if (!usable)
        return false;

    bool ok = true;
    for (size_t i = 0; ok && i < plan.count; i++) {
        metrics_add(
            log->metrics,
            log->lane == LANE_SMALL ? METRIC_SEGMENT_SYNCS_SMALL : METRIC_SEGMENT_SYNCS_LARGE, 1);
        ok = segment_sync(plan.segments[i], status);
    }

    lock_acquire(&log->lock);
    if (ok) {
        for (size_t i = 0; i < plan.count; i++)
            plan.segments[i]->synced_end = plan.ends[i];
        log->unsynced_bytes -= plan.bytes;
        log->synced = plan.position;
        settle_synced_locked(log);
    } else {
        fail_locked(log, status);
    }
    condition_broadcast(&log->changed);
    lock_release(&log->lock);
    *covered = plan.covered;
    return ok;
}

/* The seq is read before the syncs begin: what is appended meanwhile is not covered. */
static void plan_sync_locked(struct segment_log *log, struct sync_plan *plan)
{
    for (size_t i = 0; i < log->unsynced.count; i++) {
        plan->segments[plan->count] = log->unsynced.segments[i];
        plan->ends[plan->count++] = log->unsynced.segments[i]->end;
    }
    plan->covered = log->next_seq - 1;
    plan->bytes = log->unsynced_bytes;
    plan->position = log->synced;
    plan->position.seq = log->next_seq;
    struct segment *last = log->active;
    if (last != NULL && last->end != last->synced_end) {
        plan->segments[plan->count] = last;
        plan->ends[plan->count++] = last->end;
    }
    if (last == NULL && log->unsynced.count > 0)
        last = log->unsynced.segments[log->unsynced.count - 1];
    if (last != NULL)
        plan->position.place = (struct place){.segment = last->number, .offset = last->end};
}

static void fail_locked(struct segment_log *log, const struct status *why)
{
    if (log->failed)
        return;
    log->failed = true;
    log->why = *why;
    metrics_add(log->metrics, METRIC_SEGMENT_SYNC_FAILURES, 1);
    condition_broadcast(&log->changed);
}

void segment_log_refuse(struct segment_log *log, const struct status *why)
{
    lock_acquire(&log->lock);
    if (!log->failed) {
        log->failed = true;
        log->why = *why;
        condition_broadcast(&log->changed);
    }
    lock_release(&log->lock);
}

static bool refuse_failed_locked(struct segment_log *log, struct status *status)
{
    return status_fail(status, STATUS_UNAVAILABLE,
                       "the %s lane refuses writes until the server is restarted, because: %s",
                       lane_name(log->lane), log->why.message);
}

bool segment_log_failed(struct segment_log *log, struct status *status)
{
    lock_acquire(&log->lock);
    const bool failed = log->failed;
    if (failed && status != NULL)
        *status = log->why;
    lock_release(&log->lock);
    return failed;
}

void segment_log_adopt_unsealed(struct segment_log *log, struct segment *segment)
{
    lock_acquire(&log->lock);
    if (log->unsealed.count < UNSEALED_SEGMENTS_MAX)
        log->unsealed.segments[log->unsealed.count++] = segment;
    lock_release(&log->lock);
}

static struct segment *take_unsealed(struct segment_log *log);
static void seal(struct segment_log *log, struct segment *segment);

void segment_log_maintain(struct segment_log *log)
{
    lock_acquire(&log->lock);
    struct status ignored;
    /* A failure is remembered in make_failure: an append that needs one tells its client. */
    if (log->spare == NULL && !log->making && !log->failed &&
        make_spare_locked(log, SPACE_WRITE, &ignored) != SEGMENT_LOG_APPENDED) {
        /* Made when there is room, or when it is wanted. */
    }
    lock_release(&log->lock);

    struct segment *segment = NULL;
    while ((segment = take_unsealed(log)) != NULL)
        seal(log, segment);
}

static struct segment *take_unsealed(struct segment_log *log)
{
    struct segment *segment = NULL;
    lock_acquire(&log->lock);
    if (log->unsealed.count > 0) {
        segment = log->unsealed.segments[0];
        list_remove_first(&log->unsealed);
    }
    log->sealing = segment;
    log->sealing_is_noted = segment != NULL && segment->footer_complete;
    lock_release(&log->lock);
    return segment;
}

static void seal(struct segment_log *log, struct segment *segment)
{
    struct status status;
    struct log_text text;
    const bool opened = segment->write_fd >= 0 || segment_open_for_writing(segment, &status);
    if (opened && segment_seal(segment, &status)) {
        const uint64_t file_bytes =
            segment->end + segment->footer_count * FOOTER_ENTRY_BYTES + FOOTER_TRAILER_BYTES;
        lock_acquire(&log->lock); /* others may be looking at its notes */
        segment_sealed(segment);
        lock_release(&log->lock);
        segment_set_resized(log->segments, segment, file_bytes);
        return;
    }
    log_event(LOG_LEVEL_WARN, "segment_not_sealed", "segment=%" PRIu64 " lane=%s reason=%s",
              segment->number, lane_name(log->lane), log_quote(&text, status.message));
    io_close(log->io, segment->write_fd);
    segment->write_fd = -1;
}

bool segment_log_finish(struct segment_log *log, struct status *status)
{
    uint64_t covered = 0;
    if (!segment_log_sync(log, &covered, status))
        return false;
    lock_acquire(&log->lock);
    if (log->active != NULL && log->active->end > SEGMENT_HEADER_BYTES)
        rotate_locked(log);
    lock_release(&log->lock);
    struct segment *segment = NULL;
    while ((segment = take_unsealed(log)) != NULL)
        seal(log, segment);
    return true;
}

static bool list_has(const struct segment_list *list, const struct segment *segment);

bool segment_log_is_done_with(struct segment_log *log, const struct segment *segment)
{
    lock_acquire(&log->lock);
    const bool in_use = segment == log->active || segment == log->spare ||
                        segment == log->sealing || list_has(&log->unsynced, segment) ||
                        list_has(&log->unsealed, segment);
    lock_release(&log->lock);
    return !in_use;
}

void segment_log_look(struct segment_log *log,
                      const struct segment *segment,
                      uint64_t from_seq,
                      struct footer_entry *entries,
                      size_t capacity,
                      struct segment_look *look)
{
    *look = (struct segment_look){0};
    lock_acquire(&log->lock);
    const bool noted = segment == log->sealing ? log->sealing_is_noted : segment->footer_complete;
    look->end = segment->end;
    look->sealed = segment != log->sealing && segment->sealed;
    look->first_seq = segment->first_seq;
    look->last_seq = segment->last_seq;
    look->noted = !look->sealed && noted && segment->footer_count > 0;
    if (look->noted && from_seq >= look->first_seq && from_seq <= look->last_seq) {
        const size_t at = (size_t)(from_seq - look->first_seq);
        const size_t left = segment->footer_count - at;
        look->count = left < capacity ? left : capacity;
        memcpy(entries, &segment->footer[at], look->count * sizeof(*entries));
    }
    lock_release(&log->lock);
}

uint64_t segment_log_bytes_behind(struct segment_log *log,
                                  const struct segment *segment,
                                  uint64_t offset)
{
    lock_acquire(&log->lock);
    uint64_t bytes = segment_set_bytes_behind(log->segments, log->lane, segment->number);
    const struct segment *const ahead[] = {log->active, log->spare};
    for (size_t i = 0; i < ARRAY_LENGTH(ahead); i++) {
        if (ahead[i] != NULL && ahead[i]->number > segment->number)
            bytes -= ahead[i]->capacity_bytes - ahead[i]->end;
    }
    bytes += segment->end > offset ? segment->end - offset : 0;
    lock_release(&log->lock);
    return bytes;
}

uint64_t segment_log_seq_at(struct segment_log *log, const struct segment *segment, uint64_t offset)
{
    uint64_t seq = 0;
    lock_acquire(&log->lock);
    const bool noted = segment == log->sealing ? log->sealing_is_noted : segment->footer_complete;
    if (!segment->sealed && noted && segment->footer_count > 0) {
        size_t low = 0;
        size_t high = segment->footer_count;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (segment->footer[middle].offset_lines < offset / RECORD_ALIGNMENT_BYTES)
                low = middle + 1;
            else
                high = middle;
        }
        seq = segment->first_seq + low;
    }
    const uint64_t last_seq = segment->last_seq;
    lock_release(&log->lock);
    return seq != 0 && seq < last_seq ? seq : last_seq;
}

static bool list_has(const struct segment_list *list, const struct segment *segment)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->segments[i] == segment)
            return true;
    }
    return false;
}

static void list_remove_first(struct segment_list *list)
{
    ASSERT(list->count > 0);
    list->count--;
    memmove(&list->segments[0], &list->segments[1], list->count * sizeof(struct segment *));
}
