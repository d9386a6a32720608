/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/evictor.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "durability/forget.h"
#include "durability/move.h"
#include "store/blob_reader.h"
#include "store/evict_plan.h"
#include "store/segment_contents.h"

/* The file of a dead segment is cut so much at a time: freeing 1 GiB at once stalls commits (docs/decisions/0003). */
#define CUT_STEP_BYTES (16 * MIB)
#define CUT_PAUSE_NS (5 * NS_PER_MS)

/* Condemned segments that readers still pin; the next eviction waits while there are so many. */
enum { CONDEMNED_MAX = 16 };

/* A live blob or action result with bytes in the victim. */
struct resident {
    struct evict_candidate candidate;
    struct moving moving;
};

struct residents {
    struct resident *items; /* owned; instances of actions too */
    size_t count, capacity;
    size_t *slots; /* owned; open addressing by fingerprint: index + 1 of a large blob's resident */
    size_t slot_count;
};

struct evictor {
    struct evictor_config config;
    atomic_bool stopping;
    struct condemned {
        struct segment *segment; /* borrowed from the set */
        bool renamed;            /* durably: the next start removes it */
    } condemned[CONDEMNED_MAX];
    size_t condemned_count;
    int64_t warned_ns; /* when a warning about retention was logged last */
};

static bool evict_one(struct evictor *evictor);
static void set_evicting(struct evictor *evictor, bool evicting);
static struct segment *choose_victim(struct evictor *evictor);
static bool collect(struct evictor *evictor,
                    struct segment *victim,
                    struct residents *residents,
                    struct status *status);
static bool collect_entry(struct evictor *evictor,
                          struct segment *victim,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status);
static bool collect_small(struct evictor *evictor,
                          struct segment *victim,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status);
static bool collect_chunk(struct evictor *evictor,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status);
static struct resident *add_resident(struct residents *residents, struct status *status);
static size_t *large_slot(struct residents *residents, uint64_t fingerprint);
static void plan(struct evictor *evictor, struct segment *victim, struct residents *residents);
static void empty_victim(struct evictor *evictor,
                         struct segment *victim,
                         struct residents *residents);
static void condemn(struct evictor *evictor, struct segment *victim);
static bool rename_condemned(struct evictor *evictor);
static bool remove_condemned(struct evictor *evictor);
static void drop_remainders(struct evictor *evictor);
static void remove_file(struct evictor *evictor, struct segment *segment);
static void free_residents(struct residents *residents);

bool evictor_new(const struct evictor_config *config,
                 struct evictor **evictor,
                 struct status *status)
{
    struct evictor *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the evictor");
    made->config = *config;
    *evictor = made;
    return true;
}

/* What is condemned and still pinned is a .dead file, which the next start removes. */
void evictor_free(struct evictor *evictor)
{
    free(evictor);
}

void evictor_stop(struct evictor *evictor)
{
    atomic_store(&evictor->stopping, true);
}

bool evictor_is_needed(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    /* With a failed lane nothing grows any more, and nothing could be moved. */
    if (commit_failed(evictor->config.commits[LANE_SMALL], NULL) ||
        commit_failed(evictor->config.commits[LANE_LARGE], NULL))
        return false;
    /* Segments are made one ahead in each lane: that much room is kept. */
    const uint64_t ahead = store->segment_bytes[LANE_SMALL] + store->segment_bytes[LANE_LARGE];
    if (store->capacity_bytes != 0 &&
        segment_set_bytes(store->segments) + ahead > store->capacity_bytes)
        return true;
    struct io_space space;
    struct status ignored;
    return store->reserve_bytes != 0 && io_space(store->io, store->directory, &space, &ignored) &&
           space.free_bytes < store->reserve_bytes;
}

bool evictor_step(struct evictor *evictor)
{
    /* Segments go in the order of their numbers: else an old record would be there again, and the newer one gone. */
    const bool renamed = rename_condemned(evictor);
    const bool removed = remove_condemned(evictor);
    if (!renamed || !evictor_is_needed(evictor) || evictor->condemned_count == CONDEMNED_MAX)
        return removed;
    const bool evicted = evict_one(evictor);
    return remove_condemned(evictor) || evicted || removed;
}

static bool evict_one(struct evictor *evictor)
{
    struct segment *victim = choose_victim(evictor);
    if (victim == NULL)
        return false;
    struct residents residents = {0};
    struct status status;
    set_evicting(evictor, true);
    const bool ok = collect(evictor, victim, &residents, &status);
    if (ok) {
        plan(evictor, victim, &residents);
        empty_victim(evictor, victim, &residents);
    } else {
        struct log_text text;
        log_event(LOG_LEVEL_WARN, "eviction_failed", "segment=%" PRIu64 " reason=%s",
                  victim->number, log_quote(&text, status.message));
    }
    free_residents(&residents);
    if (ok) /* those of manifests, ours and others': they must not be back without their chunks */
        forget_wait(evictor->config.store);
    if (ok && !atomic_load(&evictor->stopping) &&
        !commit_failed(evictor->config.commits[LANE_SMALL], NULL))
        condemn(evictor, victim);
    set_evicting(evictor, false);
    segment_set_unpin(evictor->config.store->segments, victim);
    return ok;
}

static void set_evicting(struct evictor *evictor, bool evicting)
{
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        segment_log_set_evicting(evictor->config.store->logs[lane], evicting);
}

/* The oldest one that nobody appends to; pinned. NULL when there is none. */
static struct segment *choose_victim(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    struct segment *victim = NULL;
    if (!segment_set_numbers(store->segments, &numbers, &count, &ignored))
        return NULL;
    for (size_t i = 0; i < count && victim == NULL; i++) {
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        if (segment == NULL)
            continue;
        if (segment_log_is_done_with(store->logs[segment->lane], segment))
            victim = segment;
        else
            segment_set_unpin(store->segments, segment);
    }
    free(numbers);
    return victim;
}

static bool collect(struct evictor *evictor,
                    struct segment *victim,
                    struct residents *residents,
                    struct status *status)
{
    struct footer_entry *entries = NULL;
    size_t count = 0;
    if (!segment_contents_load(victim, &entries, &count, status))
        return false;
    size_t slots = 64;
    while (slots < 2 * count)
        slots *= 2;
    residents->slots = calloc(slots, sizeof(*residents->slots));
    residents->slot_count = slots;
    bool ok = residents->slots != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict");
    for (size_t i = 0; ok && i < count; i++)
        ok = collect_entry(evictor, victim, &entries[i], residents, status);
    free(entries);
    return ok;
}

static bool collect_entry(struct evictor *evictor,
                          struct segment *victim,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status)
{
    switch ((enum record_kind)entry->kind) {
    case RECORD_CHUNK:
        return collect_chunk(evictor, entry, residents, status);
    case RECORD_MANIFEST:
    case RECORD_BLOB:
    case RECORD_ACTION:
    case RECORD_FORGET:
        return collect_small(evictor, victim, entry, residents, status);
    }
    return true;
}

/* A record that stands for itself. */
static bool collect_small(struct evictor *evictor,
                          struct segment *victim,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status)
{
    struct store *store = evictor->config.store;
    struct moving moving = {.place = footer_entry_place(victim, entry),
                            .kind = (enum record_kind)entry->kind};
    struct blob_use use = {0};
    if (moving.kind == RECORD_MANIFEST) {
        /* Its chunks may all lie in older segments that are gone: then it was forgotten with them. */
        if (!footer_entry_digest(entry, &moving.digest))
            return true;
        moving.key = blob_table_blob_key(store->table, &moving.digest);
        if (*large_slot(residents, moving.key.fingerprint) != 0)
            return true;
    } else if (!move_identify(store, victim, entry, &moving, status)) {
        return status->code == STATUS_DATA_LOSS; /* a rotten one goes with its segment */
    }
    if (moving.kind == RECORD_FORGET) {
        /* It must outlive the record that it names. */
        struct segment *named = segment_set_pin(store->segments, moving.forget.segment);
        segment_set_unpin(store->segments, named);
        use.touched = named != NULL && named != victim;
    } else if (!blob_table_look(store->table, moving.key, &use) ||
               place_pack(use.place) != place_pack(moving.place)) {
        move_destroy(&moving);
        return true; /* superseded or forgotten */
    }
    struct resident *resident = add_resident(residents, status);
    if (resident == NULL) {
        move_destroy(&moving);
        return false;
    }
    resident->moving = moving;
    resident->candidate = (struct evict_candidate){
        .bytes = record_stored_bytes(entry->payload_bytes),
        .touched = use.touched,
        .idle_minutes = use.idle_minutes,
    };
    if (moving.kind == RECORD_MANIFEST)
        *large_slot(residents, moving.key.fingerprint) = residents->count;
    return true;
}

/* A piece of a large blob whose MANIFEST may lie here or in a later segment. */
static bool collect_chunk(struct evictor *evictor,
                          const struct footer_entry *entry,
                          struct residents *residents,
                          struct status *status)
{
    struct store *store = evictor->config.store;
    struct digest digest;
    struct blob_use use;
    if (!footer_entry_digest(entry, &digest))
        return true;
    const struct blob_key key = blob_table_blob_key(store->table, &digest);
    size_t *slot = large_slot(residents, key.fingerprint);
    if (*slot == 0) {
        if (!blob_table_look(store->table, key, &use))
            return true; /* of an upload that never ended, or forgotten */
        struct resident *resident = add_resident(residents, status);
        if (resident == NULL)
            return false;
        *slot = residents->count;
        resident->moving = (struct moving){
            .kind = RECORD_MANIFEST, .digest = digest, .key = key, .place = use.place};
        resident->candidate =
            (struct evict_candidate){.touched = use.touched, .idle_minutes = use.idle_minutes};
    }
    residents->items[*slot - 1].candidate.bytes += record_stored_bytes(entry->payload_bytes);
    return true;
}

/* Where the index + 1 of the resident of this fingerprint is, or would go (then 0). */
static size_t *large_slot(struct residents *residents, uint64_t fingerprint)
{
    size_t at = (size_t)fingerprint & (residents->slot_count - 1);
    while (residents->slots[at] != 0 &&
           residents->items[residents->slots[at] - 1].moving.key.fingerprint != fingerprint)
        at = (at + 1) & (residents->slot_count - 1);
    return &residents->slots[at];
}

static struct resident *add_resident(struct residents *residents, struct status *status)
{
    if (residents->count == residents->capacity) {
        const size_t capacity = residents->capacity == 0 ? 1024 : 2 * residents->capacity;
        struct resident *grown = realloc(residents->items, capacity * sizeof(*grown));
        if (grown == NULL) {
            status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict");
            return NULL;
        }
        residents->items = grown;
        residents->capacity = capacity;
    }
    struct resident *resident = &residents->items[residents->count++];
    *resident = (struct resident){0};
    return resident;
}

static void plan(struct evictor *evictor, struct segment *victim, struct residents *residents)
{
    struct metrics *metrics = evictor->config.store->metrics;
    struct clock *clock = evictor->config.store->clock;
    struct evict_candidate **candidates =
        malloc((residents->count + 1) * sizeof(struct evict_candidate *));
    struct evict_outcome outcome;
    if (candidates == NULL)
        return; /* nothing is moved; space comes first */
    for (size_t i = 0; i < residents->count; i++)
        candidates[i] = &residents->items[i].candidate;
    const struct evict_budget budget = {
        .bytes = evict_budget_bytes(victim->end),
        .vouch_minutes = (uint32_t)(evictor->config.store->vouch_ns / (60 * NS_PER_S)),
    };
    evict_plan(candidates, residents->count, &budget, &outcome);
    free(candidates);
    metrics_set(metrics, METRIC_RETENTION_SECONDS,
                (clock_wall_ns(clock) - victim->created_wall_ns) / NS_PER_S);
    const bool short_retention =
        outcome.vouched_over_budget_bytes > 0 ||
        clock_wall_ns(clock) - victim->created_wall_ns < evictor->config.store->vouch_ns;
    if (short_retention && (evictor->warned_ns == 0 ||
                            clock_monotonic_ns(clock) - evictor->warned_ns > 60 * NS_PER_S)) {
        evictor->warned_ns = clock_monotonic_ns(clock);
        log_event(LOG_LEVEL_WARN, "retention_short",
                  "segment=%" PRIu64 " age_s=%" PRId64 " vouch_s=%" PRId64
                  " vouched_over_budget_bytes=%" PRIu64 " capacity_bytes=%" PRIu64,
                  victim->number, (clock_wall_ns(clock) - victim->created_wall_ns) / NS_PER_S,
                  evictor->config.store->vouch_ns / NS_PER_S, outcome.vouched_over_budget_bytes,
                  evictor->config.store->capacity_bytes);
    }
}

/* Everything that lives there is elsewhere or nowhere afterwards, durably. */
static void empty_victim(struct evictor *evictor,
                         struct segment *victim,
                         struct residents *residents)
{
    struct store *store = evictor->config.store;
    struct mover mover;
    uint64_t moved_bytes = 0;
    uint64_t forgotten_bytes = 0;
    mover_init(&mover, store, evictor->config.commits);
    for (size_t i = 0; i < residents->count && !atomic_load(&evictor->stopping); i++) {
        struct resident *resident = &residents->items[i];
        if (resident->candidate.move && mover_move(&mover, victim, &resident->moving)) {
            moved_bytes += resident->candidate.bytes;
            continue;
        }
        forgotten_bytes += resident->candidate.bytes;
    }
    mover_finish(&mover); /* waits until all that was moved is durable */
    for (size_t i = 0; i < residents->count && !atomic_load(&evictor->stopping); i++) {
        struct moving *moving = &residents->items[i].moving;
        if (moving->kind == RECORD_FORGET)
            continue;
        if (moving->place.segment != victim->number) {
            /* The MANIFEST stays in a later segment: a FORGET keeps it from coming back without its chunks. */
            const struct forget forget = {.digest = moving->digest,
                                          .place = moving->place,
                                          .kind = RECORD_MANIFEST,
                                          .reason = FORGET_EVICTED};
            forget_entry(store, evictor->config.commits[LANE_SMALL], &forget);
        } else if (blob_table_remove(store->table, moving->key, moving->place)) {
            metrics_add(store->metrics, METRIC_BLOBS_EVICTED, 1);
        }
    }
    metrics_add(store->metrics, METRIC_EVICTION_MOVED_BYTES, (int64_t)moved_bytes);
    metrics_add(store->metrics, METRIC_EVICTION_FORGOTTEN_BYTES, (int64_t)forgotten_bytes);
    log_event(LOG_LEVEL_INFO, "segment_evicted",
              "segment=%" PRIu64 " lane=%s residents=%zu moved_bytes=%" PRIu64
              " forgotten_bytes=%" PRIu64,
              victim->number, lane_name(victim->lane), residents->count, moved_bytes,
              forgotten_bytes);
}

static void condemn(struct evictor *evictor, struct segment *victim)
{
    struct segment *condemned =
        segment_set_condemn(evictor->config.store->segments, victim->number);
    ASSERT(condemned == victim);
    ASSERT(evictor->condemned_count < CONDEMNED_MAX);
    evictor->condemned[evictor->condemned_count++] = (struct condemned){.segment = victim};
    metrics_add(evictor->config.store->metrics, METRIC_SEGMENTS_EVICTED, 1);
    if (!rename_condemned(evictor)) {
        /* Tried again before the next eviction. */
    }
}

/*
 * Gives them the name under which a start removes them, readers or not: those have them open. True when all have it,
 * durably.
 */
static bool rename_condemned(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    for (size_t i = 0; i < evictor->condemned_count; i++) {
        struct condemned *condemned = &evictor->condemned[i];
        char dead_path[SEGMENT_PATH_BYTES_MAX];
        struct status status;
        struct log_text text;
        if (condemned->renamed)
            continue;
        segment_path(dead_path, store->segments_directory, condemned->segment->number, "dead");
        /* It may have the name since a sync of the directory failed. */
        condemned->renamed = (io_rename(store->io, condemned->segment->path, dead_path, &status) ||
                              status.code == STATUS_NOT_FOUND) &&
                             io_sync_directory(store->io, store->segments_directory, &status);
        if (!condemned->renamed) {
            log_event(LOG_LEVEL_WARN, "segment_not_removed", "segment=%" PRIu64 " reason=%s",
                      condemned->segment->number, log_quote(&text, status.message));
            return false;
        }
    }
    return true;
}

/* Those that nobody reads any more. */
static bool remove_condemned(struct evictor *evictor)
{
    bool any = false;
    for (size_t i = 0; i < evictor->condemned_count;) {
        struct segment *segment = evictor->condemned[i].segment;
        if (!evictor->condemned[i].renamed ||
            !segment_set_remove(evictor->config.store->segments, segment->number)) {
            i++;
            continue;
        }
        evictor->condemned_count--;
        memmove(&evictor->condemned[i], &evictor->condemned[i + 1],
                (evictor->condemned_count - i) * sizeof(evictor->condemned[0]));
        remove_file(evictor, segment);
        any = true;
    }
    if (any)
        drop_remainders(evictor);
    return any;
}

/* Entries of records that were damaged, and so could not be listed when their segment was emptied. */
static void drop_remainders(struct evictor *evictor)
{
    struct store *store = evictor->config.store;
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    if (!segment_set_numbers(store->segments, &numbers, &count, &ignored))
        return; /* next time */
    if (count > 0)
        blob_table_set_min_segment(store->table, numbers[0]);
    free(numbers);
}

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
    while (ok && size > 0) {
        size = size > CUT_STEP_BYTES ? size - CUT_STEP_BYTES : 0;
        ok = io_truncate(store->io, fd, size, &status);
        if (!atomic_load(&evictor->stopping))
            clock_pause(CUT_PAUSE_NS);
    }
    io_close(store->io, fd);
    ok = ok && io_unlink(store->io, dead_path, &status);
    if (!ok)
        log_event(LOG_LEVEL_WARN, "segment_not_removed", "segment=%" PRIu64 " reason=%s",
                  segment->number, log_quote(&text, status.message));
    metrics_add(store->metrics, METRIC_SEGMENTS, -1);
    metrics_add(store->metrics, METRIC_SEGMENT_BYTES, -(int64_t)segment->end);
    segment_free(segment);
}

static void free_residents(struct residents *residents)
{
    for (size_t i = 0; i < residents->count; i++)
        move_destroy(&residents->items[i].moving);
    free(residents->items);
    free(residents->slots);
}
