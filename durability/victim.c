/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/victim.h"

#include <inttypes.h>
#include <stdlib.h>

#include "durability/move.h"
#include "store/blob_reader.h"
#include "store/segment_contents.h"

#define REST_NS (10 * NS_PER_S)

/* The live segments of a lane, ascending; what choosing needs of them. */
struct lane_segments {
    uint64_t *numbers; /* owned */
    int64_t *made_ns;  /* owned; by the clock on the wall */
    size_t count;
};

/* Where a large blob's resident is, by its fingerprint: open addressing; index + 1. */
struct large_map {
    size_t *slots; /* owned */
    size_t count;  /* a power of two */
};

static bool lanes_load(struct store *store, struct lane_segments lanes[LANE_COUNT]);
static void lanes_free(struct lane_segments lanes[LANE_COUNT]);
static struct segment *oldest(struct victim_chooser *chooser,
                              enum lane lane,
                              const struct lane_segments *segments,
                              int64_t *filled_ns);
static bool is_resting(const struct victim_chooser *chooser, uint64_t segment);
static bool is_waited_for(const struct victim_chooser *chooser, const struct segment *segment);
static bool collect_all(struct victim *victim, struct large_map *map, struct status *status);
static bool collect_record(struct victim *victim,
                           struct large_map *map,
                           uint32_t at,
                           struct status *status);
static bool collect_by_manifests(struct victim *victim,
                                 const struct large_map *map,
                                 struct status *status);
static bool collect_manifests_of(struct victim *victim,
                                 const struct large_map *map,
                                 struct segment *segment,
                                 struct status *status);
static bool collect_manifest(struct victim *victim,
                             const struct large_map *map,
                             struct segment *segment,
                             const struct footer_entry *entry,
                             struct status *status);
static bool names_victim(const struct victim *victim,
                         const struct digest *digest,
                         struct place manifest,
                         bool *names,
                         struct status *status);
static bool add_elsewhere(struct victim *victim,
                          const struct footer_entry *entry,
                          uint64_t segment,
                          struct blob_key key,
                          const struct blob_use *use,
                          struct status *status);
static bool collect_small(struct victim *victim, uint32_t at, struct status *status);
static bool collect_forget(struct victim *victim,
                           uint32_t at,
                           const struct moving_forget *forget,
                           struct status *status);
static bool is_there(const struct victim *victim, uint64_t number);
static bool collect_large(struct victim *victim,
                          struct large_map *map,
                          uint32_t at,
                          struct status *status);
static bool entry_key(struct victim *victim,
                      const struct footer_entry *entry,
                      struct blob_key *key,
                      struct moving_forget *forget,
                      bool *known,
                      struct status *status);
static bool entry_digest(struct victim *victim,
                         const struct footer_entry *entry,
                         struct digest *digest,
                         bool *known,
                         struct status *status);
static bool read_digest(const struct segment *segment,
                        const struct footer_entry *entry,
                        struct digest *digest,
                        struct status *status);
static struct resident *add(struct victim *victim,
                            uint32_t at,
                            struct blob_key key,
                            const struct blob_use *use,
                            struct status *status);
static size_t *large_slot(const struct large_map *map,
                          const struct victim *victim,
                          uint64_t fingerprint);
static bool measure_large(struct victim *victim, struct status *status);
static bool measure(struct victim *victim,
                    struct resident *resident,
                    uint64_t middle,
                    struct status *status);
static uint64_t middle_of_lane(struct store *store, enum lane lane);

struct segment *victim_choose(struct victim_chooser *chooser)
{
    struct store *store = chooser->store;
    struct lane_segments lanes[LANE_COUNT] = {0};
    struct segment *victim = NULL;
    int64_t filled_ns = 0;
    if (!lanes_load(store, lanes)) {
        lanes_free(lanes);
        return NULL; /* no memory: another time */
    }
    chooser->held_back = false;
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        int64_t other_ns = 0;
        struct segment *other = oldest(chooser, lane, &lanes[lane], &other_ns);
        if (other != NULL && is_waited_for(chooser, other)) {
            segment_set_unpin(store->segments, other);
            other = NULL;
            chooser->held_back = true;
        }
        if (victim == NULL || (other != NULL && other_ns < filled_ns)) {
            segment_set_unpin(store->segments, victim);
            victim = other;
            filled_ns = other_ns;
        } else {
            segment_set_unpin(store->segments, other);
        }
    }
    lanes_free(lanes);
    return victim;
}

/* The bucket is to have what it holds first. */
static bool is_waited_for(const struct victim_chooser *chooser, const struct segment *segment)
{
    struct segment_look look;
    if (chooser->copies == NULL)
        return false;
    segment_log_look(chooser->store->logs[segment->lane], segment, 0, NULL, 0, &look);
    return look.last_seq > 0 && !copies_may_go(chooser->copies, segment->lane, look.last_seq);
}

static bool lanes_load(struct store *store, struct lane_segments lanes[LANE_COUNT])
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status ignored;
    if (!segment_set_numbers(store->segments, &numbers, &count, &ignored))
        return false;
    bool ok = true;
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        lanes[lane].numbers = malloc((count + 1) * sizeof(*lanes[lane].numbers));
        lanes[lane].made_ns = malloc((count + 1) * sizeof(*lanes[lane].made_ns));
        ok = ok && lanes[lane].numbers != NULL && lanes[lane].made_ns != NULL;
    }
    for (size_t i = 0; ok && i < count; i++) {
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        if (segment == NULL)
            continue; /* condemned */
        struct lane_segments *lane = &lanes[segment->lane];
        ASSERT(lane->numbers != NULL && lane->made_ns != NULL);
        lane->numbers[lane->count] = segment->number;
        lane->made_ns[lane->count++] = segment->created_wall_ns;
        segment_set_unpin(store->segments, segment);
    }
    free(numbers);
    return ok;
}

static void lanes_free(struct lane_segments lanes[LANE_COUNT])
{
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        free(lanes[lane].numbers);
        free(lanes[lane].made_ns);
    }
}

/*
 * Pinned, or NULL. *filled_ns: segments are made one ahead, so a segment was full when the next but one was made; one that has
 * none behind it was filled just now. (When it was made says little: in a quiet lane that may be long ago.)
 */
static struct segment *oldest(struct victim_chooser *chooser,
                              enum lane lane,
                              const struct lane_segments *segments,
                              int64_t *filled_ns)
{
    struct store *store = chooser->store;
    if (segment_log_failed(store->logs[lane], NULL))
        return NULL;
    for (size_t i = 0; i + 1 < segments->count; i++) {
        if (is_resting(chooser, segments->numbers[i]))
            return NULL; /* of what goes with a younger one, an older record may lie here */
        struct segment *segment = segment_set_pin(store->segments, segments->numbers[i]);
        if (segment != NULL && segment_log_is_done_with(store->logs[lane], segment)) {
            *filled_ns = i + 2 < segments->count ? segments->made_ns[i + 2] : INT64_MAX;
            return segment;
        }
        segment_set_unpin(store->segments, segment);
        return NULL; /* younger ones wait for this one */
    }
    return NULL;
}

static bool is_resting(const struct victim_chooser *chooser, uint64_t segment)
{
    const int64_t now_ns = clock_monotonic_ns(chooser->store->clock);
    for (size_t i = 0; i < VICTIMS_RESTING_MAX; i++) {
        if (chooser->resting[i].segment == segment && now_ns < chooser->resting[i].until_ns)
            return true;
    }
    return false;
}

void victim_chooser_rest(struct victim_chooser *chooser, uint64_t segment)
{
    chooser->resting[chooser->resting_at].segment = segment;
    chooser->resting[chooser->resting_at].until_ns =
        clock_monotonic_ns(chooser->store->clock) + REST_NS;
    chooser->resting_at = (chooser->resting_at + 1) % VICTIMS_RESTING_MAX;
}

bool victim_collect(struct victim *victim, struct status *status)
{
    struct store *store = victim->store;
    const int64_t age_ns = clock_wall_ns(store->clock) - victim->segment->created_wall_ns;
    victim->age_ns = age_ns > 0 ? age_ns : 0;
    victim->file_bytes = victim->segment->file_bytes; /* nobody changes it any more */
    const uint64_t to = victim->segment->sealed ? victim->segment->end : 0;
    if (!segment_contents_load(victim->segment, to, &victim->entries, &victim->entry_count,
                               &victim->unknown, &victim->cut, status))
        return false;
    if (victim->cut && !victim->give_up)
        return false;
    if (victim->cut)
        victim->unread = *status;
    struct large_map map = {.count = 64};
    while (map.count < 2 * victim->entry_count && victim->segment->lane == LANE_LARGE)
        map.count *= 2;
    map.slots = calloc(map.count, sizeof(*map.slots));
    const bool ok = (map.slots != NULL ||
                     status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict")) &&
                    collect_all(victim, &map, status) &&
                    collect_by_manifests(victim, &map, status) && measure_large(victim, status);
    free(map.slots);
    return ok;
}

void victim_free(struct victim *victim)
{
    free(victim->entries);
    free(victim->residents);
}

static bool collect_all(struct victim *victim, struct large_map *map, struct status *status)
{
    for (size_t i = 0; i < victim->entry_count; i++) {
        if (!collect_record(victim, map, (uint32_t)i, status))
            return false;
    }
    return true;
}

static bool collect_record(struct victim *victim,
                           struct large_map *map,
                           uint32_t at,
                           struct status *status)
{
    switch ((enum record_kind)victim->entries[at].kind) {
    case RECORD_CHUNK:
    case RECORD_MANIFEST:
        return collect_large(victim, map, at, status);
    case RECORD_BLOB:
    case RECORD_ACTION:
    case RECORD_FORGET:
        return collect_small(victim, at, status);
    }
    victim->unknown++;
    return true;
}

/* A record that stands for itself. */
static bool collect_small(struct victim *victim, uint32_t at, struct status *status)
{
    const struct footer_entry *entry = &victim->entries[at];
    const struct place place = footer_entry_place(victim->segment, entry);
    struct blob_key key = {0};
    struct blob_use use;
    struct moving_forget forget = {0};
    bool known = false;
    if (!entry_key(victim, entry, &key, &forget, &known, status))
        return false;
    if (!known)
        return true;
    if (entry->kind == RECORD_FORGET)
        return collect_forget(victim, at, &forget, status);
    if (!blob_table_look(victim->store->table, key, &use) ||
        place_pack(use.place) != place_pack(place))
        return true; /* superseded or forgotten */
    struct resident *resident = add(victim, at, key, &use, status);
    if (resident == NULL)
        return false;
    resident->candidate.bytes = record_stored_bytes(entry->payload_bytes);
    return true;
}

/* It must outlive the record that it names; and an order, until all have heard of it that are to carry it out. */
static bool collect_forget(struct victim *victim,
                           uint32_t at,
                           const struct moving_forget *forget,
                           struct status *status)
{
    const bool told = forget->reason != FORGET_PURGED || forget->seq <= victim->told_seq;
    if (told && !is_there(victim, forget->named))
        return true;
    const struct blob_use use = {.place =
                                     footer_entry_place(victim->segment, &victim->entries[at])};
    return add(victim, at, (struct blob_key){0}, &use, status) != NULL;
}

/* Is there a segment of this number, that stays? */
static bool is_there(const struct victim *victim, uint64_t number)
{
    if (number == victim->segment->number)
        return false;
    struct segment *const segment = segment_set_pin(victim->store->segments, number);
    segment_set_unpin(victim->store->segments, segment);
    return segment != NULL;
}

/*
 * A piece of a large blob, or its manifest: the entry may name a manifest anywhere, and that manifest other pieces. Which,
 * is looked up once all are known.
 */
static bool collect_large(struct victim *victim,
                          struct large_map *map,
                          uint32_t at,
                          struct status *status)
{
    struct digest digest;
    struct blob_use use;
    bool known = false;
    if (!entry_digest(victim, &victim->entries[at], &digest, &known, status))
        return false;
    if (!known)
        return true;
    const struct blob_key key = blob_table_blob_key(victim->store->table, &digest);
    size_t *slot = large_slot(map, victim, key.fingerprint);
    if (*slot != 0 || !blob_table_look(victim->store->table, key, &use))
        return true; /* known; or of an upload that never ended, or forgotten */
    if (add(victim, at, key, &use, status) == NULL)
        return false;
    victim->residents[victim->resident_count - 1].kind = RECORD_MANIFEST;
    *slot = victim->resident_count;
    return true;
}

/*
 * Chunks that cannot be listed are told of by the manifests that name them, in the lane's other segments. Otherwise those
 * blobs would be called present without their chunks until somebody reads them. Goes through all manifests: rare.
 */
static bool collect_by_manifests(struct victim *victim,
                                 const struct large_map *map,
                                 struct status *status)
{
    struct segment_set *segments = victim->store->segments;
    uint64_t *numbers = NULL;
    size_t count = 0;
    if (victim->unknown == 0 || victim->segment->lane != LANE_LARGE)
        return true;
    if (!segment_set_numbers(segments, &numbers, &count, status))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        struct segment *segment = segment_set_pin(segments, numbers[i]);
        if (segment != NULL && segment != victim->segment && segment->lane == LANE_LARGE)
            ok = collect_manifests_of(victim, map, segment, status);
        segment_set_unpin(segments, segment);
    }
    free(numbers);
    return ok;
}

static bool collect_manifests_of(struct victim *victim,
                                 const struct large_map *map,
                                 struct segment *segment,
                                 struct status *status)
{
    struct footer_entry *entries = NULL;
    size_t count = 0;
    size_t damaged = 0;
    bool cut = false;
    const bool settled = segment_log_is_done_with(victim->store->logs[LANE_LARGE], segment);
    const uint64_t to = settled && segment->sealed ? segment->end : 0;
    if (!segment_contents_load(segment, to, &entries, &count, &damaged, &cut, status))
        return status->code != STATUS_RESOURCE_EXHAUSTED;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        if (entries[i].kind == RECORD_MANIFEST)
            ok = collect_manifest(victim, map, segment, &entries[i], status);
    }
    free(entries);
    return ok;
}

static bool collect_manifest(struct victim *victim,
                             const struct large_map *map,
                             struct segment *segment,
                             const struct footer_entry *entry,
                             struct status *status)
{
    const struct place place = footer_entry_place(segment, entry);
    struct digest digest;
    struct blob_use use;
    struct status ignored;
    bool names = false;
    if (!footer_entry_digest(entry, &digest) && !read_digest(segment, entry, &digest, &ignored))
        return true;
    const struct blob_key key = blob_table_blob_key(victim->store->table, &digest);
    if (*large_slot(map, victim, key.fingerprint) != 0 ||
        !blob_table_look(victim->store->table, key, &use) ||
        place_pack(use.place) != place_pack(place))
        return true; /* known already; superseded or forgotten */
    if (!names_victim(victim, &digest, place, &names, status))
        return false;
    return !names || add_elsewhere(victim, entry, segment->number, key, &use, status);
}

/* A manifest that cannot be read names nothing: whoever reads the blob finds that. */
static bool names_victim(const struct victim *victim,
                         const struct digest *digest,
                         struct place manifest,
                         bool *names,
                         struct status *status)
{
    struct blob_reader *reader = NULL;
    size_t count = 0;
    if (!blob_reader_open_at(victim->store, digest, manifest, &reader, status))
        return status->code != STATUS_RESOURCE_EXHAUSTED;
    if (reader == NULL)
        return true;
    const struct manifest_chunk *chunks = blob_reader_chunks(reader, &count);
    for (size_t i = 0; i < count; i++)
        *names = *names || place_unpack(chunks[i].place).segment == victim->segment->number;
    blob_reader_free(reader);
    return true;
}

static bool add_elsewhere(struct victim *victim,
                          const struct footer_entry *entry,
                          uint64_t segment,
                          struct blob_key key,
                          const struct blob_use *use,
                          struct status *status)
{
    struct footer_entry *grown =
        realloc(victim->entries, (victim->entry_count + 1) * sizeof(*grown));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict");
    victim->entries = grown;
    victim->entries[victim->entry_count++] = *entry;
    struct resident *resident = add(victim, (uint32_t)(victim->entry_count - 1), key, use, status);
    if (resident != NULL)
        resident->entry_segment = segment;
    return resident != NULL;
}

/* *known false: the record is damaged. It goes with its segment. */
static bool entry_key(struct victim *victim,
                      const struct footer_entry *entry,
                      struct blob_key *key,
                      struct moving_forget *forget,
                      bool *known,
                      struct status *status)
{
    struct digest digest;
    *known = true;
    if (entry->kind == RECORD_BLOB && footer_entry_digest(entry, &digest)) {
        *key = blob_table_blob_key(victim->store->table, &digest);
        return true;
    }
    if (move_identify(victim->store, victim->segment, entry, key, forget, status))
        return true;
    *known = false;
    victim->unknown++;
    return status->code == STATUS_DATA_LOSS || status->code == STATUS_UNAVAILABLE;
}

static bool entry_digest(struct victim *victim,
                         const struct footer_entry *entry,
                         struct digest *digest,
                         bool *known,
                         struct status *status)
{
    *known =
        footer_entry_digest(entry, digest) || read_digest(victim->segment, entry, digest, status);
    victim->unknown += !*known;
    return true;
}

/* A hash that is too long for a footer. */
static bool read_digest(const struct segment *segment,
                        const struct footer_entry *entry,
                        struct digest *digest,
                        struct status *status)
{
    struct record_header header;
    size_t got = 0;
    if (!io_pread(segment->io, segment->read_fd, &header, sizeof(header),
                  footer_entry_place(segment, entry).offset, &got, status))
        return false;
    if (got < sizeof(header) || !record_header_valid(&header, segment->uid, NULL))
        return status_fail(status, STATUS_DATA_LOSS, "the record's header is damaged");
    record_header_digest(&header, digest);
    return true;
}

static struct resident *add(struct victim *victim,
                            uint32_t at,
                            struct blob_key key,
                            const struct blob_use *use,
                            struct status *status)
{
    if (victim->resident_count == victim->resident_capacity) {
        const size_t capacity =
            victim->resident_capacity == 0 ? 1024 : 2 * victim->resident_capacity;
        struct resident *grown = realloc(victim->residents, capacity * sizeof(*grown));
        if (grown == NULL) {
            status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to evict");
            return NULL;
        }
        victim->residents = grown;
        victim->resident_capacity = capacity;
    }
    struct resident *resident = &victim->residents[victim->resident_count++];
    *resident = (struct resident){
        .candidate = {.touched = use->touched, .idle_minutes = use->idle_minutes},
        .key = key,
        .use = *use,
        .kind = (enum record_kind)victim->entries[at].kind,
        .entry = at,
        .entry_segment = victim->segment->number,
    };
    return resident;
}

static size_t *large_slot(const struct large_map *map,
                          const struct victim *victim,
                          uint64_t fingerprint)
{
    size_t at = (size_t)fingerprint & (map->count - 1);
    while (map->slots[at] != 0 &&
           victim->residents[map->slots[at] - 1].key.fingerprint != fingerprint)
        at = (at + 1) & (map->count - 1);
    return &map->slots[at];
}

/* What each large blob has here; those that have nothing here are dropped. */
static bool measure_large(struct victim *victim, struct status *status)
{
    if (victim->segment->lane != LANE_LARGE)
        return true;
    const uint64_t middle = middle_of_lane(victim->store, LANE_LARGE);
    size_t kept = 0;
    for (size_t i = 0; i < victim->resident_count; i++) {
        struct resident resident = victim->residents[i];
        if (!measure(victim, &resident, middle, status))
            return false;
        if (resident.candidate.bytes > 0)
            victim->residents[kept++] = resident;
    }
    victim->resident_count = kept;
    return true;
}

/* A blob that can't be read whole any more counts as unused, and as having a byte here: it is forgotten. */
static bool measure(struct victim *victim,
                    struct resident *resident,
                    uint64_t middle,
                    struct status *status)
{
    const uint64_t here = victim->segment->number;
    const struct digest digest = victim_digest(victim, resident);
    struct blob_reader *reader = NULL;
    if (digest.hash_length == 0 ||
        !blob_reader_open_at(victim->store, &digest, resident->use.place, &reader, status)) {
        if (digest.hash_length > 0 && status->code == STATUS_RESOURCE_EXHAUSTED)
            return false;
        resident->candidate.touched = false;
        resident->candidate.bytes = 1;
        return true;
    }
    if (reader ==
        NULL) { /* moved or forgotten while we looked, or another blob with its fingerprint */
        resident->candidate.bytes = resident->use.place.segment == here;
        resident->candidate.touched = false;
        return true;
    }
    size_t count = 0;
    const struct manifest_chunk *chunks = blob_reader_chunks(reader, &count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t segment = place_unpack(chunks[i].place).segment;
        if (segment == here)
            resident->candidate.bytes += record_stored_bytes(chunks[i].payload_bytes);
        else if (segment < middle)
            resident->in_part = true;
    }
    if (resident->candidate.bytes > 0 || resident->use.place.segment == here)
        resident->candidate.bytes += record_stored_bytes(count * sizeof(*chunks));
    blob_reader_free(reader);
    return true;
}

/* Below it lie the older half of the lane's segments: those that go next. */
static uint64_t middle_of_lane(struct store *store, enum lane lane)
{
    struct lane_segments lanes[LANE_COUNT] = {0};
    uint64_t middle = 0;
    if (lanes_load(store, lanes) && lanes[lane].count > 0)
        middle = lanes[lane].numbers[lanes[lane].count / 2];
    lanes_free(lanes);
    return middle;
}

struct digest victim_digest(const struct victim *victim, const struct resident *resident)
{
    struct digest digest;
    struct status ignored;
    const struct footer_entry *entry = &victim->entries[resident->entry];
    if (footer_entry_digest(entry, &digest))
        return digest;
    struct segment_set *segments = victim->store->segments;
    const bool here = resident->entry_segment == victim->segment->number;
    struct segment *segment =
        here ? victim->segment : segment_set_pin(segments, resident->entry_segment);
    if (segment == NULL || !read_digest(segment, entry, &digest, &ignored))
        memset(&digest, 0, sizeof(digest));
    if (!here)
        segment_set_unpin(segments, segment);
    return digest;
}
