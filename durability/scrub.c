/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/scrub.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "durability/rot.h"
#include "store/large_check.h"
#include "store/line_file.h"
#include "store/segment_check.h"
#include "store/segment_contents.h"

/* What one round reads, about. */
#define SLICE_BYTES (4 * MIB)
/* A pass begins so long after the one before began. */
#define PASS_EVERY_NS (24 * 3600 * NS_PER_S)
/* A disk that cannot be read is left alone for so long. */
#define PAUSE_AFTER_FAILURE_NS (60 * NS_PER_S)

static const char file_name[] = "scrub";

/* What is kept over restarts, in this order in the file. */
struct scrub_position {
    uint64_t running;      /* 1: a pass is going on */
    uint64_t completed;    /* the last segment that it has gone through */
    uint64_t last_segment; /* where it ends */
    uint64_t began_wall_ns;
    uint64_t damaged;
    uint64_t passes;
    uint64_t last_pass_wall_ns;
};
enum { POSITION_NUMBERS = 7 };
static_assert(sizeof(struct scrub_position) == POSITION_NUMBERS * sizeof(uint64_t),
              "numbers alone");

struct scrub {
    struct scrub_config config;

    /* The scrub thread's. */
    struct scrub_position position;
    uint64_t segment;             /* that it is in; 0: none */
    struct footer_entry *entries; /* owned: its footer's */
    struct segment_check check;
    struct large_check *large; /* owned */
    struct rot rot;
    int64_t next_ns;  /* no round before */
    bool save_failed; /* said so once */

    struct lock lock;
    struct condition changed;
    struct scrub_progress progress; /* guarded by lock */
    bool start_wanted;              /* guarded by lock */
    bool stopping;                  /* guarded by lock */
};

static void load(struct scrub *scrub);
static bool parse(const char *text, uint64_t numbers[POSITION_NUMBERS]);
static void save(struct scrub *scrub);
static bool begin_if_due(struct scrub *scrub);
static bool next_segment(struct scrub *scrub);
static bool scope_of(struct scrub *scrub, struct segment *segment, uint64_t *to, bool *settled);
static bool check_frame(struct scrub *scrub, struct segment *segment, struct status *status);
static bool enter_segment(struct scrub *scrub, struct segment *segment, uint64_t to, bool settled);
static void check_slice(struct scrub *scrub);
static void leave_segment(struct scrub *scrub);
static void end_pass(struct scrub *scrub);
static bool on_sound(void *argument,
                     const struct record_header *header,
                     uint64_t offset,
                     struct bytes payload,
                     struct status *status);
static bool on_found(void *argument, const struct segment_finding *finding, struct status *status);
static void note_damage(struct scrub *scrub, const struct segment_finding *finding, bool lost);
static void set_totals(struct scrub *scrub);
static void publish(struct scrub *scrub);
static bool store_has_failed(const struct scrub *scrub);

bool scrub_new(const struct scrub_config *config, struct scrub **scrub, struct status *status)
{
    struct scrub *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the scrub");
    made->config = *config;
    made->rot = (struct rot){.store = config->store, .small_lane = config->small_lane};
    lock_init(&made->lock, LOCK_RANK_LEAF);
    condition_init(&made->changed);
    if (!large_check_new(config->store, &made->large, status)) {
        scrub_free(made);
        return false;
    }
    load(made);
    *scrub = made;
    return true;
}

void scrub_free(struct scrub *scrub)
{
    if (scrub == NULL)
        return;
    if (scrub->position.running != 0)
        save(scrub);
    large_check_free(scrub->large);
    free(scrub->entries);
    condition_destroy(&scrub->changed);
    lock_destroy(&scrub->lock);
    free(scrub);
}

/* ---- how far it has come */

/* A file that is damaged or absent: from the beginning. */
static void load(struct scrub *scrub)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    struct store *store = scrub->config.store;
    uint64_t numbers[POSITION_NUMBERS];
    enum line_file_state state;
    struct status ignored;
    if (!line_file_read(store->io, store->directory, file_name, &state, text, &ignored) ||
        state != LINE_FILE_SOUND || !parse(text, numbers))
        return;
    memcpy(&scrub->position, numbers, sizeof(numbers));
    set_totals(scrub);
    metrics_set(store->metrics, METRIC_SCRUB_LAST_PASS,
                (int64_t)scrub->position.last_pass_wall_ns / NS_PER_S);
}

static bool parse(const char *text, uint64_t numbers[POSITION_NUMBERS])
{
    static const char name[] = "varve-scrub 1";
    if (strncmp(text, name, strlen(name)) != 0)
        return false;
    const char *at = text + strlen(name);
    for (size_t i = 0; i < POSITION_NUMBERS; i++) {
        char *end = NULL;
        numbers[i] = strtoull(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    return *at == '\0';
}

static void save(struct scrub *scrub)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    const struct scrub_position *position = &scrub->position;
    struct store *store = scrub->config.store;
    struct status status;
    struct log_text reason;
    if (store_has_failed(scrub))
        return;
    snprintf(text, sizeof(text),
             "varve-scrub 1 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
             " %" PRIu64,
             position->running, position->completed, position->last_segment,
             position->began_wall_ns, position->damaged, position->passes,
             position->last_pass_wall_ns);
    const bool saved = line_file_write(store->io, store->directory, file_name, text, &status);
    if (!saved && !scrub->save_failed)
        log_event(LOG_LEVEL_WARN, "scrub_not_saved", "reason=%s",
                  log_quote(&reason, status.message));
    scrub->save_failed = !saved;
}

/* What there is to do in this pass, and how much of it is done. */
static void set_totals(struct scrub *scrub)
{
    struct segment_set *segments = scrub->config.store->segments;
    uint64_t *numbers = NULL;
    size_t count = 0;
    uint64_t total_bytes = 0;
    uint64_t done_bytes = 0;
    struct status ignored;
    if (!segment_set_numbers(segments, &numbers, &count, &ignored))
        return;
    for (size_t i = 0; i < count && numbers[i] <= scrub->position.last_segment; i++) {
        struct segment *segment = segment_set_pin(segments, numbers[i]);
        uint64_t to = 0;
        bool settled = false;
        if (segment != NULL && scope_of(scrub, segment, &to, &settled)) {
            const uint64_t bytes = (to != 0 ? to : segment->file_bytes) - SEGMENT_HEADER_BYTES;
            total_bytes += bytes;
            done_bytes += numbers[i] <= scrub->position.completed ? bytes : 0;
        }
        segment_set_unpin(segments, segment);
    }
    free(numbers);
    lock_acquire(&scrub->lock);
    scrub->progress.total_bytes = total_bytes;
    scrub->progress.done_bytes = done_bytes;
    lock_release(&scrub->lock);
    publish(scrub);
}

static void publish(struct scrub *scrub)
{
    const struct scrub_position *position = &scrub->position;
    lock_acquire(&scrub->lock);
    struct scrub_progress *progress = &scrub->progress;
    progress->running = position->running != 0;
    progress->segment = scrub->segment;
    progress->offset = scrub->segment != 0 ? scrub->check.from : 0;
    progress->damaged = position->damaged;
    progress->passes = position->passes;
    progress->last_pass_wall_ns = (int64_t)position->last_pass_wall_ns;
    lock_release(&scrub->lock);
}

/* ---- from outside */

void scrub_start(struct scrub *scrub)
{
    lock_acquire(&scrub->lock);
    scrub->start_wanted = !scrub->progress.running;
    condition_broadcast(&scrub->changed);
    lock_release(&scrub->lock);
}

void scrub_progress(struct scrub *scrub, struct scrub_progress *progress)
{
    lock_acquire(&scrub->lock);
    *progress = scrub->progress;
    progress->running = progress->running || scrub->start_wanted;
    lock_release(&scrub->lock);
}

void scrub_stop(struct scrub *scrub)
{
    lock_acquire(&scrub->lock);
    scrub->stopping = true;
    condition_broadcast(&scrub->changed);
    lock_release(&scrub->lock);
}

bool scrub_wait(struct scrub *scrub)
{
    struct clock *clock = scrub->config.store->clock;
    lock_acquire(&scrub->lock);
    while (!scrub->stopping) {
        /* Without a pass it looks once a second whether one is due. */
        const int64_t left = scrub->next_ns - clock_monotonic_ns(clock);
        const bool running = scrub->position.running != 0;
        if (left <= 0 && (running || scrub->start_wanted))
            break;
        if (!condition_wait_for(&scrub->changed, &scrub->lock,
                                left > 0 && left < NS_PER_S ? left : NS_PER_S) &&
            !running)
            break; /* by time */
    }
    const bool go_on = !scrub->stopping;
    lock_release(&scrub->lock);
    return go_on;
}

/* ---- rounds */

bool scrub_step(struct scrub *scrub)
{
    /* Whose records are in use is known once the index is in memory: a matter of seconds. */
    if (store_has_failed(scrub) || blob_table_is_loading(scrub->config.store->table)) {
        scrub->next_ns = clock_monotonic_ns(scrub->config.store->clock) + NS_PER_S;
        return false;
    }
    if (scrub->position.running == 0 && !begin_if_due(scrub))
        return false;
    if (scrub->segment == 0 && !next_segment(scrub)) {
        end_pass(scrub);
        return true;
    }
    check_slice(scrub);
    publish(scrub);
    return true;
}

/* Damage could not be forgotten, and what is read may come from a disk that has gone. */
static bool store_has_failed(const struct scrub *scrub)
{
    struct status ignored;
    return commit_failed(scrub->config.small_lane, &ignored);
}

static bool begin_if_due(struct scrub *scrub)
{
    struct scrub_position *position = &scrub->position;
    struct store *store = scrub->config.store;
    const int64_t now_ns = clock_wall_ns(store->clock);
    const int64_t began_ns = (int64_t)position->began_wall_ns;
    lock_acquire(&scrub->lock);
    const bool wanted = scrub->start_wanted;
    scrub->start_wanted = false;
    lock_release(&scrub->lock);
    const bool due = store->scrub_bytes_per_s != 0 &&
                     (began_ns == 0 || now_ns - began_ns >= PASS_EVERY_NS || now_ns < began_ns);
    if (!wanted && !due)
        return false;
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    if (!segment_set_numbers(store->segments, &numbers, &count, &ignored))
        return false;
    position->running = 1;
    position->completed = 0;
    position->last_segment = count > 0 ? numbers[count - 1] : 0;
    position->began_wall_ns = (uint64_t)now_ns;
    position->damaged = 0;
    free(numbers);
    set_totals(scrub);
    save(scrub);
    log_event(LOG_LEVEL_INFO, "scrub_begun", "pass=%" PRIu64 " segments=%zu", position->passes + 1,
              count);
    return true;
}

/* False when the pass has gone through all. */
static bool next_segment(struct scrub *scrub)
{
    struct segment_set *segments = scrub->config.store->segments;
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    if (!segment_set_numbers(segments, &numbers, &count, &ignored))
        return true; /* for want of memory; again later */
    for (size_t i = 0; i < count && scrub->segment == 0; i++) {
        if (numbers[i] <= scrub->position.completed || numbers[i] > scrub->position.last_segment)
            continue;
        struct segment *segment = segment_set_pin(segments, numbers[i]);
        uint64_t to = 0;
        bool settled = false;
        if (segment == NULL || !scope_of(scrub, segment, &to, &settled) ||
            !enter_segment(scrub, segment, to, settled))
            scrub->position.completed = numbers[i];
        segment_set_unpin(segments, segment);
    }
    free(numbers);
    return scrub->segment != 0;
}

/*
 * What of a segment is to be looked at: false: nothing yet. *to as in segment_check. *settled: nobody
 * writes to it any more. One that is full and waits for its footer is left to the next pass.
 */
static bool scope_of(struct scrub *scrub, struct segment *segment, uint64_t *to, bool *settled)
{
    struct segment_log *log = scrub->config.store->logs[segment->lane];
    *settled = segment_log_is_done_with(log, segment);
    if (*settled) {
        *to = segment->end > SEGMENT_HEADER_BYTES ? segment->end : 0;
        return true;
    }
    const struct segment_log_position synced = segment_log_synced_position(log);
    *to = synced.place.offset;
    return synced.place.segment == segment->number && synced.place.offset > SEGMENT_HEADER_BYTES;
}

/* What is around the records of a segment that nobody writes to any more. Nothing is lost by it. */
static bool check_frame(struct scrub *scrub, struct segment *segment, struct status *status)
{
    struct segment_header_page page;
    struct status ignored;
    size_t got = 0;
    bool damaged = true;
    if (!io_pread(segment->io, segment->read_fd, &page, sizeof(page), 0, &got, status))
        return false;
    if (got == sizeof(page) &&
        segment_header_of(&page, segment->number, &damaged, &ignored) == NULL)
        damaged = true;
    struct segment_finding finding = {
        .damage = SEGMENT_DAMAGE_FOOTER, .end = SEGMENT_HEADER_BYTES, .reason = "segment header"};
    if (damaged)
        note_damage(scrub, &finding, false);
    if (scrub->entries == NULL && (segment->sealed || segment->end_lost)) {
        finding = (struct segment_finding){.damage = SEGMENT_DAMAGE_FOOTER,
                                           .offset = segment->end,
                                           .end = segment->file_bytes,
                                           .reason = "footer"};
        note_damage(scrub, &finding, false);
    }
    return true;
}

static bool enter_segment(struct scrub *scrub, struct segment *segment, uint64_t to, bool settled)
{
    struct footer_trailer trailer = {0};
    struct log_text text;
    struct status status;
    scrub->entries = NULL;
    scrub->segment = segment->number;
    /* What the page cache still has says nothing about the disk. */
    if (settled && (!io_drop_cache(segment->io, segment->read_fd, &status) ||
                    !segment_read_footer(segment, &scrub->entries, &trailer, &status) ||
                    !check_frame(scrub, segment, &status))) {
        log_event(LOG_LEVEL_WARN, "scrub_failed", "segment=%" PRIu64 " reason=%s", segment->number,
                  log_quote(&text, status.message));
        free(scrub->entries);
        scrub->entries = NULL;
        scrub->segment = 0;
        return false;
    }
    scrub->check = (struct segment_check){
        .entries = scrub->entries,
        .entry_count = scrub->entries != NULL ? (size_t)trailer.entries : 0,
        .to = to,
        .pause_bytes = SLICE_BYTES,
        .sound = on_sound,
        .found = on_found,
        .argument = scrub,
    };
    return true;
}

static void check_slice(struct scrub *scrub)
{
    struct store *store = scrub->config.store;
    struct status status = {0};
    struct log_text text;
    const uint64_t rate =
        store->scrub_bytes_per_s != 0 ? store->scrub_bytes_per_s : SCRUB_BYTES_PER_S_DEFAULT;
    const int64_t now_ns = clock_monotonic_ns(store->clock);
    struct segment *segment = segment_set_pin(store->segments, scrub->segment);
    if (segment == NULL) { /* evicted */
        leave_segment(scrub);
        return;
    }
    const uint64_t from = scrub->check.from == 0 ? SEGMENT_HEADER_BYTES : scrub->check.from;
    scrub->check.segment = segment;
    const bool ok = segment_check_run(&scrub->check, &status);
    segment_set_unpin(store->segments, segment);
    const uint64_t bytes = scrub->check.from > from ? scrub->check.from - from : 0;
    metrics_add(store->metrics, METRIC_SCRUB_BYTES, (int64_t)bytes);
    lock_acquire(&scrub->lock);
    scrub->progress.done_bytes += bytes;
    lock_release(&scrub->lock);
    scrub->next_ns = now_ns + (int64_t)((double)bytes / (double)rate * (double)NS_PER_S);
    if (!ok) {
        log_event(LOG_LEVEL_WARN, "scrub_failed", "segment=%" PRIu64 " reason=%s", scrub->segment,
                  log_quote(&text, status.message));
        scrub->next_ns = now_ns + PAUSE_AFTER_FAILURE_NS;
    }
    if (!ok || !scrub->check.paused)
        leave_segment(scrub);
}

static void leave_segment(struct scrub *scrub)
{
    scrub->position.completed = scrub->segment;
    scrub->segment = 0;
    scrub->rot.gap_end = 0;
    free(scrub->entries);
    scrub->entries = NULL;
    save(scrub);
}

static void end_pass(struct scrub *scrub)
{
    struct scrub_position *position = &scrub->position;
    struct store *store = scrub->config.store;
    position->running = 0;
    position->passes++;
    position->last_pass_wall_ns = (uint64_t)clock_wall_ns(store->clock);
    metrics_add(store->metrics, METRIC_SCRUB_PASSES, 1);
    metrics_set(store->metrics, METRIC_SCRUB_LAST_PASS,
                (int64_t)position->last_pass_wall_ns / NS_PER_S);
    save(scrub);
    lock_acquire(&scrub->lock);
    /* Some of what there was at the beginning may have been evicted, or been longer than its records. */
    scrub->progress.done_bytes = scrub->progress.total_bytes;
    lock_release(&scrub->lock);
    publish(scrub);
    log_event(LOG_LEVEL_INFO, "scrub_done",
              "pass=%" PRIu64 " damaged=%" PRIu64 " duration_s=%" PRId64, position->passes,
              position->damaged,
              ((int64_t)position->last_pass_wall_ns - (int64_t)position->began_wall_ns) / NS_PER_S);
}

/* ---- what it meets */

static bool on_sound(void *argument,
                     const struct record_header *header,
                     uint64_t offset,
                     struct bytes payload,
                     struct status *status)
{
    struct scrub *scrub = argument;
    struct segment *segment = scrub->check.segment;
    const struct place place = {.segment = segment->number, .offset = offset};
    struct footer_entry entry;
    struct place manifest;
    (void)status;
    footer_entry_of_header(header, offset, &entry);
    struct segment_finding finding = {
        .damage = SEGMENT_DAMAGE_RECORD,
        .record = &entry,
        .offset = offset,
        .end = offset + record_stored_bytes(header->payload_bytes),
        .reason = "its chunks are gone",
    };
    if (rot_pass(&scrub->rot, segment, header, offset, payload))
        note_damage(scrub, &finding, true);
    if (header->kind == RECORD_CHUNK &&
        large_check_chunk(scrub->large, header, place, payload, &manifest)) {
        struct digest digest;
        record_header_digest(header, &digest);
        finding.reason = "hash of the whole blob";
        note_damage(scrub, &finding, rot_forget_large(&scrub->rot, &digest, manifest));
    }
    return true;
}

static bool on_found(void *argument, const struct segment_finding *finding, struct status *status)
{
    struct scrub *scrub = argument;
    (void)status;
    note_damage(scrub, finding, rot_forget(&scrub->rot, scrub->check.segment, finding));
    return true;
}

/* lost: somebody's, who must store it again. */
static void note_damage(struct scrub *scrub, const struct segment_finding *finding, bool lost)
{
    char text[DIGEST_TEXT_BYTES_MAX] = "unknown";
    struct digest digest;
    struct metrics *metrics = scrub->config.store->metrics;
    if (finding->record != NULL && footer_entry_digest(finding->record, &digest))
        digest_text(&digest, text);
    scrub->position.damaged++;
    metrics_add(metrics, METRIC_SCRUB_DAMAGED, 1);
    if (lost)
        metrics_add(metrics, METRIC_RECORDS_DAMAGED, 1);
    log_event(LOG_LEVEL_WARN, "scrub_damaged",
              "digest=%s segment=%" PRIu64 " offset=%" PRIu64 " end=%" PRIu64
              " in_use=%d reason=\"%s\"",
              text, scrub->segment, finding->offset, finding->end, lost, finding->reason);
}
