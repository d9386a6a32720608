/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/evictor.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "durability/forget.h"
#include "durability/move.h"
#include "durability/victim.h"
#include "store/evict_plan.h"

/* The file of a dead segment is cut so much at a time: freeing 1 GiB at once stalls commits. */
#define CUT_STEP_BYTES (16 * MIB)
#define CUT_PAUSE_NS (5 * NS_PER_MS)
/* Readers of small blobs are gone after a millisecond; another segment need not go for their sake. */
#define READERS_PAUSE_NS (5 * NS_PER_MS)
#define WARN_EVERY_NS (60 * NS_PER_S)
#define FULL_PAUSE_NS (10 * NS_PER_S)

enum {
    CONDEMNED_MAX =
        16, /* segments that readers still pin; no more is evicted while there are so many */
    READERS_PAUSES_MAX = 20,
    HEADROOM_PAUSES_MAX = 200, /* a second, of the five that a write waits for room */
    IN_VAIN_MAX = 4,           /* segments at once for a file that cannot be made */
    RECENT_VICTIMS = 8,
    LISTINGS_MAX = 3, /* that fail, 10 s apart, before a segment goes unread */
    ATTEMPTS_MAX = 3, /* to move what is used again and again while it is moved */
};

struct condemned {
    struct segment *segment;
    bool renamed;
    bool hidden;     /* and that is durable */
    bool complained; /* it was logged that this does not work */
};

struct evictor {
    struct evictor_config config;
    struct victim_chooser chooser;
    atomic_bool stopping;
    atomic_size_t condemned_count;
    struct condemned condemned[CONDEMNED_MAX];
    bool readers_stay; /* they were waited for in vain, and none has left since */
    int64_t warned_ns; /* when a warning about retention was logged last; 0: never */

    /* Evictions because a file could not be made: when the last was, what was seen then, and how many since one was. */
    int64_t full_ns;
    unsigned made_seen, not_made_seen;
    unsigned in_vain;
    bool was_held_back; /* by a bucket; it is logged when that begins */

    /* Of each lane the segment whose records could not be listed last, and how often in a row. */
    struct {
        uint64_t segment;
        unsigned failures;
    } unlisted[LANE_COUNT];

    /* The last victims: how large they were, and how much of it was moved. */
    uint64_t recent_bytes[RECENT_VICTIMS];
    uint64_t recent_moved_bytes[RECENT_VICTIMS];
    size_t recent_at;
    uint64_t carried_bytes; /* of the budget */
};

static bool disk_wants_room(struct evictor *evictor);
static void note_full_disk(struct evictor *evictor);
static bool evict_one(struct evictor *evictor);
static void note_held_back(struct evictor *evictor, bool held_back);
static bool list(struct evictor *evictor, struct victim *victim, struct status *status);
static void note_given_up(struct evictor *evictor, const struct victim *victim);
static bool empty(struct evictor *evictor, struct victim *victim);
static void plan(struct evictor *evictor, struct victim *victim, struct evict_outcome *outcome);
static uint64_t vouched_budget_bytes(const struct evictor *evictor, uint64_t victim_bytes);
static void warn_of_retention(struct evictor *evictor,
                              const struct victim *victim,
                              const struct evict_outcome *outcome);
static void move_all(struct evictor *evictor, struct victim *victim, struct mover *mover);
static void move_resident(const struct victim *victim,
                          struct mover *mover,
                          const struct resident *resident,
                          uint16_t clear);
static bool forget_rest(struct evictor *evictor,
                        struct victim *victim,
                        struct mover *mover,
                        int attempt);
static void forget_resident(struct evictor *evictor,
                            const struct victim *victim,
                            struct mover *mover,
                            const struct resident *resident);
static void account(struct evictor *evictor,
                    const struct victim *victim,
                    const struct mover *mover);
static void condemn(struct evictor *evictor, struct segment *segment);
static bool tend_condemned(struct evictor *evictor);
static void hide(struct evictor *evictor, struct condemned *condemned);
static void remove_file(struct evictor *evictor, struct segment *segment);
static void wait_for_readers(struct evictor *evictor);
static void wait_for_headroom(struct evictor *evictor, uint64_t bytes);
static bool is_stopping(struct evictor *evictor);

bool evictor_new(const struct evictor_config *config,
                 struct evictor **evictor,
                 struct status *status)
{
    struct evictor *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the evictor");
    made->config = *config;
    made->chooser = (struct victim_chooser){.store = config->store, .copies = config->copies};
    *evictor = made;
    return true;
}

void evictor_free(struct evictor *evictor)
{
    free(evictor);
}

void evictor_stop(struct evictor *evictor)
{
    atomic_store(&evictor->stopping, true);
}

/* Or a lane has failed: nothing can be moved any more, so nothing goes. */
static bool is_stopping(struct evictor *evictor)
{
    return atomic_load(&evictor->stopping) ||
           commit_failed(evictor->config.commits[LANE_SMALL], NULL) ||
           commit_failed(evictor->config.commits[LANE_LARGE], NULL);
}

bool evictor_waits_for_readers(struct evictor *evictor)
{
    return atomic_load(&evictor->condemned_count) > 0;
}

/* When a lane can't have its next segment made ahead, or the headroom has been used. */
bool evictor_is_needed(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    /* What lives in a segment is known once the index is in memory: a matter of seconds. */
    if (blob_table_is_loading(store->table))
        return false;
    if (!space_is_bounded(&store->space) || is_stopping(evictor))
        return false;
    int64_t wanted = 0;
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        if (segment_log_wants_spare(store->logs[lane]))
            wanted += (int64_t)store->segment_bytes[lane];
    }
    return space_left(&store->space) < wanted || disk_wants_room(evictor);
}

/*
 * The disk has less room than it says, or has it no more when we come. A few segments may help; where they do not, somebody
 * else takes what we make free, and the store is not given up in a moment for that.
 */
static bool disk_wants_room(struct evictor *evictor)
{
    const struct space *space = &evictor->config.store->space;
    if (evictor->made_seen != atomic_load(&space->files_made))
        evictor->in_vain = 0;
    const bool waited =
        evictor->in_vain < IN_VAIN_MAX ||
        clock_monotonic_ns(evictor->config.store->clock) - evictor->full_ns >= FULL_PAUSE_NS;
    return atomic_load(&space->files_not_made) != evictor->not_made_seen && waited;
}

static void note_full_disk(struct evictor *evictor)
{
    const struct space *space = &evictor->config.store->space;
    const unsigned not_made = atomic_load(&space->files_not_made);
    if (not_made == evictor->not_made_seen)
        return;
    evictor->not_made_seen = not_made;
    evictor->made_seen = atomic_load(&space->files_made);
    evictor->full_ns = clock_monotonic_ns(evictor->config.store->clock);
    evictor->in_vain++;
}

uint64_t evictor_next_victim(struct evictor *evictor)
{
    if (evictor->condemned_count == CONDEMNED_MAX || !evictor_is_needed(evictor))
        return 0;
    struct segment *victim = victim_choose(&evictor->chooser);
    const uint64_t number = victim != NULL ? victim->number : 0;
    segment_set_unpin(evictor->config.store->segments, victim);
    return number;
}

bool evictor_step(struct evictor *evictor)
{
    const bool removed = tend_condemned(evictor);
    const bool needed = evictor_is_needed(evictor);
    if (!needed)
        note_held_back(evictor, false);
    if (is_stopping(evictor) || evictor->condemned_count == CONDEMNED_MAX || !needed ||
        !evict_one(evictor))
        return removed && !is_stopping(evictor);
    wait_for_readers(evictor);
    return !is_stopping(evictor);
}

static bool evict_one(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    struct victim victim = {.store = store, .segment = victim_choose(&evictor->chooser)};
    note_held_back(evictor, evictor->chooser.held_back);
    if (victim.segment == NULL)
        return false;
    struct copies *const copies = evictor->config.copies;
    victim.told_seq = copies != NULL ? copies_told_seq(copies, LANE_SMALL) : UINT64_MAX;
    struct status status = {0};
    struct log_text text;
    note_full_disk(evictor);
    segment_set_doom(store->segments, victim.segment);
    while (segment_set_is_held(store->segments, victim.segment) && !is_stopping(evictor))
        clock_pause(NS_PER_MS); /* a round of commit */
    bool ok = !is_stopping(evictor) && list(evictor, &victim, &status) && empty(evictor, &victim);
    if (ok) {
        note_given_up(evictor, &victim);
        condemn(evictor, victim.segment);
    } else {
        segment_set_spare(store->segments, victim.segment);
        if (!is_stopping(evictor)) {
            victim_chooser_rest(&evictor->chooser, victim.segment->number);
            metrics_add(store->metrics, METRIC_EVICTIONS_FAILED, 1);
            log_event(LOG_LEVEL_WARN, "eviction_failed", "segment=%" PRIu64 " lane=%s reason=%s",
                      victim.segment->number, lane_name(victim.segment->lane),
                      log_quote(&text, status.code != STATUS_OK ? status.message
                                                                : "a FORGET could not be written"));
        }
    }
    victim_free(&victim);
    segment_set_unpin(store->segments, victim.segment);
    return ok;
}

static void note_held_back(struct evictor *evictor, bool held_back)
{
    struct store *store = evictor->config.store;
    if (held_back && !evictor->was_held_back)
        log_event(LOG_LEVEL_WARN, "eviction_waits_for_bucket",
                  "used_bytes=%" PRIu64 " advice=\"varve_tier_behind_bytes says how far it is\"",
                  segment_set_bytes(store->segments));
    evictor->was_held_back = held_back;
    metrics_set(store->metrics, METRIC_TIER_HOLDS, held_back);
}

/*
 * What the disk cannot read after some tries is lost whether its file stays or goes, and no younger segment may go before it
 * (victim.c says why): so it goes, with what could be read of it moved or forgotten like any other's.
 */
static bool list(struct evictor *evictor, struct victim *victim, struct status *status)
{
    const uint64_t number = victim->segment->number;
    const enum lane lane = victim->segment->lane;
    if (evictor->unlisted[lane].segment != number) {
        evictor->unlisted[lane].segment = number;
        evictor->unlisted[lane].failures = 0;
    }
    victim->give_up = evictor->unlisted[lane].failures >= LISTINGS_MAX;
    if (victim_collect(victim, status))
        return true;
    evictor->unlisted[lane].failures += victim->cut && !victim->give_up;
    return false;
}

static void note_given_up(struct evictor *evictor, const struct victim *victim)
{
    struct metrics *metrics = evictor->config.store->metrics;
    struct log_text text;
    if (!victim->cut)
        return;
    metrics_add(metrics, METRIC_SEGMENTS_GIVEN_UP, 1);
    log_event(LOG_LEVEL_ERROR, "segment_given_up",
              "segment=%" PRIu64 " lane=%s file_bytes=%" PRIu64 " listed=%zu lost=%zu reason=%s",
              victim->segment->number, lane_name(victim->segment->lane), victim->file_bytes,
              victim->resident_count, victim->lost, log_quote(&text, victim->unread.message));
}

/* On true everything that lived there is elsewhere or nowhere, durably. */
static bool empty(struct evictor *evictor, struct victim *victim)
{
    struct store *store = evictor->config.store;
    const enum lane lane = victim->segment->lane;
    const uint64_t each = store->segment_bytes[lane];
    const uint64_t needed_bytes = (victim->file_bytes + each - 1) / each * each;
    struct evict_outcome outcome;
    struct mover mover;
    plan(evictor, victim, &outcome);
    warn_of_retention(evictor, victim, &outcome);
    mover_init(&mover, store, evictor->config.commits);
    wait_for_headroom(evictor, needed_bytes);
    space_grant(&store->space, needed_bytes);
    move_all(evictor, victim, &mover);
    mover_wait(&mover);
    bool again = true;
    for (int attempt = 1; again && attempt <= ATTEMPTS_MAX && !is_stopping(evictor); attempt++) {
        again = forget_rest(evictor, victim, &mover, attempt);
        mover_wait(&mover);
    }
    space_grant(&store->space, 0);
    if (victim->unknown > 0 && !is_stopping(evictor)) {
        victim->lost = blob_table_forget_segment(store->table, victim->segment->number);
        metrics_add(store->metrics, METRIC_BLOBS_EVICTED, (int64_t)victim->lost);
    }
    /* Others' FORGETs of manifests: they must not be back without the chunks that go here. */
    forget_wait(store);
    account(evictor, victim, &mover);
    const bool ok = !mover.forget_failed && !is_stopping(evictor);
    mover_destroy(&mover);
    return ok;
}

static void plan(struct evictor *evictor, struct victim *victim, struct evict_outcome *outcome)
{
    const struct evict_budget budget = {
        .bytes = evict_budget_bytes(victim->file_bytes, evictor->carried_bytes),
        .vouch_minutes = evict_vouch_minutes(evictor->config.store->vouch_ns),
        .vouched_bytes = vouched_budget_bytes(evictor, victim->file_bytes),
    };
    struct evict_candidate **candidates =
        malloc((victim->resident_count + 1) * sizeof(struct evict_candidate *));
    *outcome = (struct evict_outcome){0};
    if (candidates == NULL)
        return; /* nothing is moved: space comes first */
    size_t count = 0;
    for (size_t i = 0; i < victim->resident_count; i++) {
        if (victim->residents[i].kind != RECORD_FORGET)
            candidates[count++] = &victim->residents[i].candidate;
    }
    evict_plan(candidates, count, &budget, outcome);
    free(candidates);
}

/*
 * What is vouched for is moved whatever the budget, unless the last victims together have made less room than one of
 * them takes: then the store would copy itself around while writers wait.
 */
static uint64_t vouched_budget_bytes(const struct evictor *evictor, uint64_t victim_bytes)
{
    uint64_t bytes = 0;
    uint64_t moved_bytes = 0;
    for (size_t i = 0; i < RECENT_VICTIMS; i++) {
        bytes += evictor->recent_bytes[i];
        moved_bytes += evictor->recent_moved_bytes[i];
    }
    const bool strict = evictor->recent_bytes[evictor->recent_at] != 0 &&
                        moved_bytes > bytes / RECENT_VICTIMS * (RECENT_VICTIMS - 1);
    return strict ? evict_strict_budget_bytes(victim_bytes) : UINT64_MAX;
}

/* How long what is not used stays: what the disk allows. */
static void warn_of_retention(struct evictor *evictor,
                              const struct victim *victim,
                              const struct evict_outcome *outcome)
{
    struct store *store = evictor->config.store;
    const int64_t now_ns = clock_monotonic_ns(store->clock);
    const int64_t age_s = victim->age_ns / NS_PER_S;
    metrics_set(store->metrics, METRIC_RETENTION_SECONDS, age_s);
    metrics_add(store->metrics, METRIC_EVICTION_VOUCHED_FORGOTTEN_BYTES,
                (int64_t)outcome->forgotten_vouched_bytes);
    const bool is_short = outcome->forgotten_vouched_bytes > 0 || victim->age_ns < store->vouch_ns;
    if (!is_short || (evictor->warned_ns != 0 && now_ns - evictor->warned_ns < WARN_EVERY_NS))
        return;
    evictor->warned_ns = now_ns;
    log_event(LOG_LEVEL_WARN, "retention_short",
              "segment=%" PRIu64 " lane=%s retention_s=%" PRId64 " vouch_s=%" PRId64
              " vouched_over_budget_bytes=%" PRIu64 " vouched_forgotten_bytes=%" PRIu64
              " capacity_bytes=%" PRIu64,
              victim->segment->number, lane_name(victim->segment->lane), age_s,
              store->vouch_ns / NS_PER_S, outcome->over_budget_bytes,
              outcome->forgotten_vouched_bytes, store->space.capacity_bytes);
}

/* In the order in which they lie there. FORGETs first: without them the segment must stay. */
static void move_all(struct evictor *evictor, struct victim *victim, struct mover *mover)
{
    for (size_t i = 0; i < victim->resident_count && !is_stopping(evictor); i++) {
        if (victim->residents[i].kind == RECORD_FORGET)
            move_resident(victim, mover, &victim->residents[i], 0);
    }
    const uint32_t vouched = evict_vouch_minutes(evictor->config.store->vouch_ns);
    for (size_t i = 0; i < victim->resident_count && !is_stopping(evictor); i++) {
        const struct resident *resident = &victim->residents[i];
        if (!resident->candidate.move)
            continue;
        /* What is vouched for stays so, and a blob of which more is to be moved with the next segment. */
        const bool keep = resident->in_part || resident->candidate.idle_minutes < vouched;
        move_resident(victim, mover, resident, keep ? 0 : resident->use.touch);
    }
}

static void move_resident(const struct victim *victim,
                          struct mover *mover,
                          const struct resident *resident,
                          uint16_t clear)
{
    struct moving moving = {
        .kind = resident->kind,
        .place = resident->use.place,
        .bytes = resident->candidate.bytes,
        .clear_touch = clear,
    };
    if (resident->kind == RECORD_MANIFEST)
        moving.digest = victim_digest(victim, resident);
    if (!mover_move(mover, victim->segment, &moving)) {
        /* Logged and counted; it is forgotten, or tried again if somebody has used it. */
    }
}

/* True when something was used meanwhile and is being moved: come again. */
static bool forget_rest(struct evictor *evictor,
                        struct victim *victim,
                        struct mover *mover,
                        int attempt)
{
    struct store *store = evictor->config.store;
    bool again = false;
    for (size_t i = 0; i < victim->resident_count && !is_stopping(evictor); i++) {
        struct resident *resident = &victim->residents[i];
        if (resident->kind == RECORD_FORGET || resident->done)
            continue;
        enum blob_evicted evicted = blob_table_evict(store->table, resident->key, &resident->use);
        if (evicted == BLOB_EVICT_USED && attempt < ATTEMPTS_MAX) {
            move_resident(victim, mover, resident, 0);
            again = true;
            continue;
        }
        while (evicted ==
               BLOB_EVICT_USED) /* it can't be moved: the disk is full, or the record damaged */
            evicted = blob_table_evict(store->table, resident->key, &resident->use);
        resident->done = true;
        if (evicted == BLOB_EVICTED)
            forget_resident(evictor, victim, mover, resident);
    }
    return again;
}

/* The entry is out of the index in memory. */
static void forget_resident(struct evictor *evictor,
                            const struct victim *victim,
                            struct mover *mover,
                            const struct resident *resident)
{
    struct store *const store = evictor->config.store;
    struct metrics *metrics = store->metrics;
    evicted_note(store->evicted, resident->key, clock_wall_ns(store->clock));
    metrics_add(metrics, METRIC_BLOBS_EVICTED, 1);
    metrics_add(metrics, METRIC_EVICTION_FORGOTTEN_BYTES, (int64_t)resident->candidate.bytes);
    if (resident->use.place.segment != victim->segment->number) {
        const struct digest digest = victim_digest(victim, resident);
        mover_forget(mover, &digest, resident->key, &resident->use);
    }
}

static void account(struct evictor *evictor, const struct victim *victim, const struct mover *mover)
{
    struct metrics *metrics = evictor->config.store->metrics;
    metrics_add(metrics, METRIC_EVICTION_MOVED_BYTES, (int64_t)mover->moved_bytes);
    metrics_add(metrics, METRIC_EVICTION_MOVES_FAILED, (int64_t)mover->moves_failed);
    evictor->carried_bytes =
        evict_carry_bytes(victim->file_bytes, evictor->carried_bytes, mover->moved_bytes);
    evictor->recent_bytes[evictor->recent_at] = victim->file_bytes;
    evictor->recent_moved_bytes[evictor->recent_at] = mover->moved_bytes;
    evictor->recent_at = (evictor->recent_at + 1) % RECENT_VICTIMS;
    log_event(LOG_LEVEL_INFO, "segment_evicted",
              "segment=%" PRIu64 " lane=%s age_s=%" PRId64 " residents=%zu moved_bytes=%" PRIu64
              " moves_failed=%" PRIu64 " freed_bytes=%" PRId64,
              victim->segment->number, lane_name(victim->segment->lane), victim->age_ns / NS_PER_S,
              victim->resident_count, mover->moved_bytes, mover->moves_failed,
              (int64_t)victim->file_bytes - (int64_t)mover->moved_bytes);
}

static void condemn(struct evictor *evictor, struct segment *segment)
{
    struct metrics *metrics = evictor->config.store->metrics;
    struct segment *condemned =
        segment_set_condemn(evictor->config.store->segments, segment->number);
    ASSERT(condemned == segment);
    ASSERT(evictor->condemned_count < CONDEMNED_MAX);
    struct condemned *entry = &evictor->condemned[evictor->condemned_count++];
    *entry = (struct condemned){.segment = segment};
    hide(evictor, entry);
    metrics_add(metrics, METRIC_SEGMENTS_EVICTED, 1);
    metrics_set(metrics, METRIC_SEGMENTS_CONDEMNED, (int64_t)evictor->condemned_count);
}

/* Removes those that nobody reads any more. */
static bool tend_condemned(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    bool any = false;
    for (size_t i = 0; i < evictor->condemned_count;) {
        struct condemned *condemned = &evictor->condemned[i];
        hide(evictor, condemned);
        if (!condemned->hidden || segment_set_is_pinned(store->segments, condemned->segment)) {
            i++;
            continue;
        }
        remove_file(evictor, condemned->segment);
        evictor->readers_stay = false;
        evictor->condemned[i] = evictor->condemned[--evictor->condemned_count];
        any = true;
    }
    metrics_set(store->metrics, METRIC_SEGMENTS_CONDEMNED, (int64_t)evictor->condemned_count);
    return any;
}

/*
 * Under its new name no later start takes it for a segment. At once, and not when its readers have left: were it there again
 * after a crash when younger ones are gone, it would bring back what they had replaced.
 */
static void hide(struct evictor *evictor, struct condemned *condemned)
{
    struct store *store = evictor->config.store;
    char dead_path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    struct log_text text;
    if (condemned->hidden)
        return;
    segment_path(dead_path, store->segments_directory, condemned->segment->number, "dead");
    if (!condemned->renamed)
        condemned->renamed = io_rename(store->io, condemned->segment->path, dead_path, &status);
    condemned->hidden =
        condemned->renamed && io_sync_directory(store->io, store->segments_directory, &status);
    if (condemned->hidden || condemned->complained)
        return;
    condemned->complained = true;
    log_event(LOG_LEVEL_WARN, "segment_not_removed", "segment=%" PRIu64 " reason=%s",
              condemned->segment->number, log_quote(&text, status.message));
}

/* Room counts as made only as the file shrinks. */
static void remove_file(struct evictor *evictor, struct segment *segment)
{
    struct store *store = evictor->config.store;
    char dead_path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    struct log_text text;
    int fd = -1;
    uint64_t size = 0;
    segment_path(dead_path, store->segments_directory, segment->number, "dead");
    bool ok = io_open(store->io, dead_path, IO_OPEN_WRITE, &fd, &status) &&
              io_size(store->io, fd, &size, &status);
    while (ok && size > CUT_STEP_BYTES) {
        size -= CUT_STEP_BYTES;
        ok = io_truncate(store->io, fd, size, &status);
        if (ok)
            segment_set_resized(store->segments, segment, size);
        if (!is_stopping(evictor))
            clock_pause(CUT_PAUSE_NS);
    }
    io_close(store->io, fd);
    ok = ok && io_unlink(store->io, dead_path, &status);
    if (!ok)
        log_event(LOG_LEVEL_WARN, "segment_not_removed", "segment=%" PRIu64 " reason=%s",
                  segment->number, log_quote(&text, status.message));
    const bool removed = segment_set_remove(store->segments, segment->number);
    ASSERT(removed);
    metrics_add(store->metrics, METRIC_SEGMENTS, -1);
    metrics_add(store->metrics, METRIC_SEGMENT_BYTES, -(int64_t)segment->counted_bytes);
    segment_free(segment);
}

static void wait_for_readers(struct evictor *evictor)
{
    for (int i = 0; i < READERS_PAUSES_MAX && evictor->condemned_count > 0 && !is_stopping(evictor);
         i++) {
        if (i > 0)
            clock_pause(READERS_PAUSE_NS);
        tend_condemned(evictor);
    }
}

/*
 * Those who read what was evicted before keep the room that moves would need. They are given some time, once; then what does not
 * fit is forgotten: no reader may keep a store from taking anything, nor make it larger than it may be.
 */
static void wait_for_headroom(struct evictor *evictor, uint64_t bytes)
{
    for (int i = 0;
         i < HEADROOM_PAUSES_MAX && evictor->condemned_count > 0 && !evictor->readers_stay &&
         !space_has_headroom(&evictor->config.store->space, bytes) && !is_stopping(evictor);
         i++) {
        clock_pause(READERS_PAUSE_NS);
        if (!tend_condemned(evictor) && i == HEADROOM_PAUSES_MAX - 1)
            evictor->readers_stay = true;
    }
}
