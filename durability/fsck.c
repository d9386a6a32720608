/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/fsck.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "durability/recovery.h"
#include "durability/replay.h"
#include "store/manifest.h"
#include "store/segment_check.h"
#include "store/segment_contents.h"

/* How often progress is told. */
#define SLICE_BYTES (32 * MIB)
/* Bytes that were found damaged and are remembered, so that the index is not blamed for them too. */
enum { RANGES_MAX = 65536 };

struct range {
    uint64_t segment, offset, end;
};

struct fsck {
    struct fsck_config config;
    struct metrics *metrics; /* owned */
    struct store *store;     /* owned; its table: what the segments say */
    char *index_path;        /* owned */
    struct fsck_summary *summary;
    struct fsck_progress progress;
    struct range *ranges; /* owned; ascending */
    size_t range_count;
    struct segment_check *check; /* while a segment is gone through */
    struct blob_table
        *started; /* owned: what a start would have, by the index and the log behind it */
    uint64_t lowest[LANE_COUNT]; /* segment of each lane; 0: it has none */
    uint64_t stale, elsewhere;
};

static bool replay_lanes(struct fsck *fsck,
                         const struct index_checkpoint *from,
                         bool (*each)(void *argument,
                                      const struct index_entry *entry,
                                      struct status *status),
                         void *argument,
                         struct status *status);
static bool apply_live(void *argument, const struct index_entry *entry, struct status *status);
static struct blob_key key_of(const struct blob_table *table, const struct index_entry *entry);
static bool lies_at(struct blob_table *table, struct blob_key key, struct place place);
static bool count_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool check_segments(struct fsck *fsck, struct status *status);
static bool check_segment(struct fsck *fsck, struct segment *segment, struct status *status);
static bool check_frame(struct fsck *fsck,
                        struct segment *segment,
                        struct footer_entry **entries,
                        size_t *count,
                        struct status *status);
static void check_footer(struct fsck *fsck,
                         struct segment *segment,
                         uint64_t records,
                         uint64_t end);
static bool has_zero_line(struct segment *segment, uint64_t from);
static bool on_sound(void *argument,
                     const struct record_header *header,
                     uint64_t offset,
                     struct bytes payload,
                     struct status *status);
static bool check_large(struct fsck *fsck,
                        const struct digest *digest,
                        struct place place,
                        struct bytes manifest,
                        struct status *status);
static bool on_found(void *argument, const struct segment_finding *found, struct status *status);
static bool is_in_use(struct fsck *fsck,
                      const struct footer_entry *entry,
                      const struct digest *digest,
                      uint64_t end);
static void check_order(struct fsck *fsck);
static bool check_index(struct fsck *fsck, struct status *status);
static bool compare_index(struct fsck *fsck, struct index *index, struct status *status);
static bool apply_started(void *argument, const struct index_entry *entry, struct status *status);
static bool judge_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool look_for_lack(void *argument, const struct index_entry *entry, struct status *status);
static void tell(struct fsck *fsck, const struct fsck_finding *finding);
static void remember(struct fsck *fsck, uint64_t segment, uint64_t offset, uint64_t end);
static bool is_remembered(const struct fsck *fsck, struct place place);
static bool has_remembered_chunk(const struct fsck *fsck, const struct index_entry *entry);
static const char *kind_name(enum record_kind kind);

bool fsck_open(const struct fsck_config *config, struct fsck **fsck, struct status *status)
{
    struct fsck *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to look at a store");
    opened->config = *config;
    opened->metrics = calloc(1, sizeof(*opened->metrics));
    opened->ranges = calloc(RANGES_MAX, sizeof(*opened->ranges));
    const struct store_config store = {
        .io = config->io,
        .clock = config->clock,
        .metrics = opened->metrics,
        .directory = config->directory,
        .access = STORE_READ_ONLY,
    };
    bool ok = opened->metrics != NULL && opened->ranges != NULL &&
              asprintf(&opened->index_path, "%s/index", config->directory) >= 0;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to look at a store");
    ok = ok && store_open(&store, &opened->store, status) &&
         replay_lanes(opened, NULL, apply_live, opened, status);
    if (!ok) {
        fsck_close(opened);
        return false;
    }
    *fsck = opened;
    return true;
}

void fsck_close(struct fsck *fsck)
{
    if (fsck == NULL)
        return;
    blob_table_free(fsck->started);
    store_close(fsck->store);
    free(fsck->index_path);
    free(fsck->ranges);
    free(fsck->metrics);
    free(fsck);
}

struct store *fsck_store(struct fsck *fsck)
{
    return fsck->store;
}

/* From the checkpoint on, or (NULL) from the oldest segments. */
static bool replay_lanes(struct fsck *fsck,
                         const struct index_checkpoint *from,
                         bool (*each)(void *argument,
                                      const struct index_entry *entry,
                                      struct status *status),
                         void *argument,
                         struct status *status)
{
    /* The large lane first, as at a start. */
    static const enum lane order[LANE_COUNT] = {LANE_LARGE, LANE_SMALL};
    bool ok = true;
    for (size_t i = 0; ok && i < LANE_COUNT; i++) {
        struct replay replay = {
            .store = fsck->store,
            .lane = order[i],
            .each = each,
            .argument = argument,
        };
        if (from != NULL)
            replay.from = from->lanes[order[i]];
        ok = replay_run(&replay, status);
        replay_destroy(&replay);
    }
    return ok;
}

static bool apply_live(void *argument, const struct index_entry *entry, struct status *status)
{
    struct fsck *fsck = argument;
    return replay_apply(fsck->store->table, entry, status);
}

static struct blob_key key_of(const struct blob_table *table, const struct index_entry *entry)
{
    return blob_table_key(table, entry->kind, &entry->digest, entry->instance);
}

static bool lies_at(struct blob_table *table, struct blob_key key, struct place place)
{
    struct place found;
    return blob_table_get(table, key, false, &found) && place_pack(found) == place_pack(place);
}

/* ---- listing */

struct listing {
    struct fsck *fsck;
    bool (*each)(void *argument, const struct index_entry *entry, struct status *status);
    void *argument;
};

static bool list_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    const struct listing *listing = argument;
    struct blob_table *table = listing->fsck->store->table;
    if (entry->forget || !lies_at(table, key_of(table, entry), entry->place))
        return true;
    return listing->each(listing->argument, entry, status);
}

bool fsck_list(struct fsck *fsck,
               bool (*each)(void *argument, const struct index_entry *entry, struct status *status),
               void *argument,
               struct status *status)
{
    struct listing listing = {.fsck = fsck, .each = each, .argument = argument};
    return replay_lanes(fsck, NULL, list_entry, &listing, status);
}

/* ---- checking */

bool fsck_check(struct fsck *fsck, struct fsck_summary *summary, struct status *status)
{
    *summary = (struct fsck_summary){0};
    fsck->summary = summary;
    fsck->range_count = 0;
    if (fsck->store->format != FORMAT_FILE_SOUND) {
        const struct fsck_finding finding = {
            .what = "format",
            .reason = fsck->store->format == FORMAT_FILE_ABSENT
                          ? "the file is gone; the next start makes it anew"
                          : "the file is damaged; the next start makes it anew",
        };
        tell(fsck, &finding);
    }
    return fsck_list(fsck, count_entry, summary, status) && check_segments(fsck, status) &&
           check_index(fsck, status);
}

static bool count_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct fsck_summary *summary = argument;
    (void)status;
    summary->action_results += entry->kind == RECORD_ACTION;
    summary->blobs += entry->kind != RECORD_ACTION;
    summary->large_blobs += entry->kind == RECORD_MANIFEST;
    return true;
}

static bool check_segments(struct fsck *fsck, struct status *status)
{
    struct store_file *files = NULL;
    size_t count = 0;
    char text[128];
    if (!store_list_files(fsck->store, &files, &count, status))
        return false;
    fsck->progress = (struct fsck_progress){
        .segments_total = segment_set_count(fsck->store->segments),
        .bytes_total = segment_set_bytes(fsck->store->segments),
    };
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        if (strcmp(files[i].suffix, "seg") != 0) {
            snprintf(text, sizeof(text),
                     "%016" PRIx64 ".%s is left over; the next start removes it", files[i].number,
                     files[i].suffix);
            fsck->config.note(fsck->config.argument, text);
            continue;
        }
        struct segment *segment = segment_set_pin(fsck->store->segments, files[i].number);
        if (segment != NULL) {
            ok = check_segment(fsck, segment, status);
        } else {
            const struct fsck_finding finding = {.what = "segment",
                                                 .segment = files[i].number,
                                                 .in_use = true,
                                                 .reason = "too little is left of it to read it"};
            tell(fsck, &finding);
        }
        segment_set_unpin(fsck->store->segments, segment);
    }
    free(files);
    if (ok)
        check_order(fsck);
    return ok;
}

static bool check_segment(struct fsck *fsck, struct segment *segment, struct status *status)
{
    struct footer_entry *entries = NULL;
    size_t count = 0;
    if (!check_frame(fsck, segment, &entries, &count, status))
        return false;
    struct segment_check check = {
        .segment = segment,
        .entries = entries,
        .entry_count = count,
        .to = segment->sealed ? segment->end : 0,
        .pause_bytes = SLICE_BYTES,
        .sound = on_sound,
        .found = on_found,
        .argument = fsck,
    };
    const uint64_t bytes_before = fsck->progress.bytes;
    bool ok = true;
    fsck->check = &check;
    do {
        ok = segment_check_run(&check, status);
        fsck->progress.bytes = bytes_before + check.from;
        fsck->config.progress(fsck->config.argument, &fsck->progress);
    } while (ok && check.paused);
    fsck->check = NULL;
    if (ok && entries == NULL && (segment->sealed || segment->end_lost)) {
        check_footer(fsck, segment, check.records, check.end);
    } else if (ok && check.tail_bytes > 0) {
        char text[160];
        snprintf(text, sizeof(text),
                 "segment %" PRIu64 " ends in %" PRIu64 " bytes at %" PRIu64
                 " that are no whole record, as a crash leaves them; the next start cuts them off",
                 segment->number, check.tail_bytes, check.end);
        fsck->config.note(fsck->config.argument, text);
    }
    fsck->summary->segments++;
    fsck->summary->records += check.records;
    fsck->summary->bytes += check.end - SEGMENT_HEADER_BYTES;
    fsck->progress.segments++;
    fsck->progress.bytes = bytes_before + segment->file_bytes;
    free(entries);
    return ok;
}

/* What is around the records. */
static bool check_frame(struct fsck *fsck,
                        struct segment *segment,
                        struct footer_entry **entries,
                        size_t *count,
                        struct status *status)
{
    struct footer_trailer trailer;
    struct fsck_finding finding = {.segment = segment->number};
    if (segment->header_damaged) {
        finding.what = "segment header";
        finding.end = SEGMENT_HEADER_BYTES;
        finding.reason =
            segment->node_uid != 0 ? "there is a sound copy of it" : "the footer makes up for it";
        tell(fsck, &finding);
    }
    if (!segment_read_footer(segment, entries, &trailer, status))
        return false;
    *count = *entries != NULL ? (size_t)trailer.entries : 0;
    return true;
}

/*
 * A footer that should be there and is not. A crash while it was written leaves zeros in its place, in
 * whole sectors, and the file as long as it was to be: that the next start mends.
 */
static void check_footer(struct fsck *fsck, struct segment *segment, uint64_t records, uint64_t end)
{
    const uint64_t footer_end = end + records * FOOTER_ENTRY_BYTES + FOOTER_TRAILER_BYTES;
    char text[128];
    if ((segment->sealed || segment->file_bytes == footer_end) && has_zero_line(segment, end)) {
        snprintf(text, sizeof(text),
                 "segment %" PRIu64
                 " has no whole footer, as a crash leaves it; the next start makes it",
                 segment->number);
        fsck->config.note(fsck->config.argument, text);
        return;
    }
    const struct fsck_finding finding = {
        .what = "footer",
        .segment = segment->number,
        .offset = end,
        .end = segment->file_bytes,
        .reason = segment->sealed ? "its entries fail their CRC"
                                  : "the segment was cut off, or its footer is damaged",
    };
    tell(fsck, &finding);
}

/* From here to the end of the file. */
static bool has_zero_line(struct segment *segment, uint64_t from)
{
    static const uint8_t zeros[FOOTER_ENTRY_BYTES];
    uint8_t line[FOOTER_ENTRY_BYTES];
    struct status ignored;
    for (uint64_t at = from; at + sizeof(line) <= segment->file_bytes; at += sizeof(line)) {
        size_t got = 0;
        if (!io_pread(segment->io, segment->read_fd, line, sizeof(line), at, &got, &ignored) ||
            got < sizeof(line))
            return false;
        if (memcmp(line, zeros, sizeof(line)) == 0)
            return true;
    }
    return false;
}

static bool on_sound(void *argument,
                     const struct record_header *header,
                     uint64_t offset,
                     struct bytes payload,
                     struct status *status)
{
    struct fsck *fsck = argument;
    struct blob_table *table = fsck->store->table;
    const struct place place = {.segment = fsck->check->segment->number, .offset = offset};
    struct digest digest;
    record_header_digest(header, &digest);
    if (header->kind != RECORD_MANIFEST ||
        !lies_at(table, blob_table_blob_key(table, &digest), place))
        return true;
    return check_large(fsck, &digest, place, payload, status);
}

/* The whole of it, by its hash. A chunk that is damaged is told of by itself. */
static bool check_large(struct fsck *fsck,
                        const struct digest *digest,
                        struct place place,
                        struct bytes manifest,
                        struct status *status)
{
    struct fsck_finding finding = {.what = "large blob",
                                   .digest = digest,
                                   .in_use = true,
                                   .segment = place.segment,
                                   .offset = place.offset,
                                   .end = place.offset + record_stored_bytes(manifest.length)};
    uint8_t *memory = malloc(LIMIT_POOL_BUFFER_BYTES);
    struct hasher *hasher =
        digest_function_supported(digest->function) ? hasher_new(digest->function) : NULL;
    size_t count = 0;
    bool whole = memory != NULL && hasher != NULL;
    if (!manifest_count(manifest, &count))
        finding.reason = "it is no list of chunks";
    for (size_t i = 0; whole && finding.reason == NULL && i < count; i++) {
        const struct manifest_chunk chunk = manifest_chunk_at(manifest, i);
        const struct place at = place_unpack(chunk.place);
        struct record_header header;
        struct bytes payload;
        struct status ignored;
        struct segment *segment = segment_set_pin(fsck->store->segments, at.segment);
        if (!manifest_chunk_is_there(fsck->store->segments, &chunk))
            finding.reason = "its chunks are gone";
        else
            whole = segment_read_record(segment, at.offset, LIMIT_POOL_BUFFER_BYTES, memory,
                                        LIMIT_POOL_BUFFER_BYTES, &header, &payload, &ignored);
        if (whole && finding.reason == NULL)
            hasher_update(hasher, payload);
        segment_set_unpin(fsck->store->segments, segment);
    }
    struct digest found;
    if (whole && finding.reason == NULL) {
        hasher_finish(hasher, &found);
        if (!digest_equal(&found, digest))
            finding.reason = "hash of the whole blob";
    }
    if (finding.reason != NULL)
        tell(fsck, &finding);
    hasher_free(hasher);
    const bool ok = memory != NULL ||
                    status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to check a blob");
    free(memory);
    return ok;
}

static bool on_found(void *argument, const struct segment_finding *found, struct status *status)
{
    struct fsck *fsck = argument;
    struct digest digest;
    struct fsck_finding finding = {
        .what = found->damage == SEGMENT_DAMAGE_PADDING  ? "padding"
                : found->damage == SEGMENT_DAMAGE_FOOTER ? "footer"
                : found->record != NULL ? kind_name((enum record_kind)found->record->kind)
                                        : "record",
        .segment = fsck->check->segment->number,
        .offset = found->offset,
        .end = found->end,
        .reason = found->reason,
    };
    (void)status;
    if (found->record != NULL && footer_entry_digest(found->record, &digest)) {
        finding.digest = &digest;
        finding.in_use = found->damage == SEGMENT_DAMAGE_RECORD &&
                         is_in_use(fsck, found->record, &digest, found->end);
    }
    if (found->damage == SEGMENT_DAMAGE_RECORD)
        remember(fsck, finding.segment, finding.offset, finding.end);
    tell(fsck, &finding);
    return true;
}

/* Of an action result not all of its name is known: taken to be in use. */
static bool is_in_use(struct fsck *fsck,
                      const struct footer_entry *entry,
                      const struct digest *digest,
                      uint64_t end)
{
    struct blob_table *table = fsck->store->table;
    const struct place place = footer_entry_place(fsck->check->segment, entry);
    struct place manifest;
    uint8_t *memory = NULL;
    struct bytes payload;
    struct status ignored;
    bool there = false;
    switch ((enum record_kind)entry->kind) {
    case RECORD_BLOB:
        return lies_at(table, blob_table_blob_key(table, digest), place);
    case RECORD_MANIFEST: /* one that is damaged is not in the table; another of the same blob may be */
        return !blob_table_get(table, blob_table_blob_key(table, digest), false, &manifest);
    case RECORD_ACTION:
        return true;
    case RECORD_FORGET:
        return false;
    case RECORD_CHUNK:
        break;
    }
    /* With its header damaged the whole blob is left out of the table: nobody tells then. */
    if (!manifest_read(fsck->store, digest, &manifest, &memory, &payload, &there, &ignored) ||
        !there)
        return !blob_table_get(table, blob_table_blob_key(table, digest), false, &manifest);
    const bool names = manifest_names(payload, place.segment, place.offset, end);
    free(memory);
    return names;
}

/* Records of a lane are numbered without a gap; only that the oldest are gone is as it should be. */
static void check_order(struct fsck *fsck)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    uint64_t next_seq[LANE_COUNT] = {0};
    struct status ignored;
    if (!segment_set_numbers(fsck->store->segments, &numbers, &count, &ignored))
        return;
    memset(fsck->lowest, 0, sizeof(fsck->lowest));
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(fsck->store->segments, numbers[i]);
        uint64_t *next = &next_seq[segment->lane];
        if (fsck->lowest[segment->lane] == 0)
            fsck->lowest[segment->lane] = numbers[i];
        if (*next != 0 && segment->first_seq > *next) {
            const struct fsck_finding finding = {
                .what = "segment",
                .in_use = true,
                .segment = segment->number,
                .reason = "records of its lane before it are gone: a segment is missing",
            };
            tell(fsck, &finding);
        }
        *next = segment->sealed ? segment->last_seq + 1 : 0;
        segment_set_unpin(fsck->store->segments, segment);
    }
    free(numbers);
}

/* ---- the index: what a start would make of it, beside what the segments say */

static bool check_index(struct fsck *fsck, struct status *status)
{
    struct index *index = NULL;
    struct status why;
    if (!index_open_read_only(fsck->index_path, &index, &why)) {
        const struct fsck_finding finding = {.what = "index", .reason = why.message};
        if (why.code == STATUS_NOT_FOUND)
            fsck->config.note(fsck->config.argument, "there is no index; the next start makes it");
        else
            tell(fsck, &finding);
        return true;
    }
    blob_table_free(fsck->started);
    fsck->started = NULL;
    const bool ok = blob_table_new(&fsck->started, status) && compare_index(fsck, index, status);
    index_close(index);
    return ok;
}

static bool compare_index(struct fsck *fsck, struct index *index, struct status *status)
{
    struct index_checkpoint checkpoint;
    struct status why;
    if (!index_read_checkpoint(index, &checkpoint, &why) ||
        !index_iterate(index, apply_started, fsck, &why)) {
        const struct fsck_finding finding = {.what = "index", .reason = why.message};
        tell(fsck, &finding);
        return true;
    }
    if (!replay_lanes(fsck, &checkpoint, apply_started, fsck, status) ||
        !index_iterate(index, judge_entry, fsck, status) ||
        !fsck_list(fsck, look_for_lack, fsck, status))
        return false;
    if (fsck->stale > 0) {
        char text[128];
        snprintf(text, sizeof(text),
                 "the index still has %" PRIu64 " entries of segments that were evicted",
                 fsck->stale);
        fsck->config.note(fsck->config.argument, text);
    }
    return true;
}

static bool apply_started(void *argument, const struct index_entry *entry, struct status *status)
{
    struct fsck *fsck = argument;
    return replay_apply(fsck->started, entry, status);
}

/* An entry that the log behind the checkpoint has not changed must be what the segments say. */
static bool judge_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct fsck *fsck = argument;
    (void)status;
    if (!lies_at(fsck->started, key_of(fsck->started, entry), entry->place))
        return true;
    if (lies_at(fsck->store->table, key_of(fsck->store->table, entry), entry->place)) {
        fsck->summary->index_entries++;
        return true;
    }
    /* Each lane is evicted from its oldest segment on. */
    const uint64_t lowest = fsck->lowest[entry->kind == RECORD_MANIFEST ? LANE_LARGE : LANE_SMALL];
    if (lowest == 0 || entry->place.segment < lowest) {
        fsck->stale++;
        return true;
    }
    if (is_remembered(fsck, entry->place) ||
        (entry->kind == RECORD_MANIFEST && has_remembered_chunk(fsck, entry)))
        return true; /* that has been told of */
    struct segment *segment = segment_set_pin(fsck->store->segments, entry->place.segment);
    const struct fsck_finding finding = {
        .what = "index",
        .digest = &entry->digest,
        .in_use = true,
        .segment = entry->place.segment,
        .offset = entry->place.offset,
        .end = entry->place.offset + record_stored_bytes(entry->payload_bytes),
        .reason =
            segment == NULL ? "it names a segment that is gone"
            : entry->place.offset + RECORD_HEADER_BYTES + entry->payload_bytes > segment->file_bytes
                ? "it names bytes behind the end of the segment"
            : entry->kind == RECORD_MANIFEST ? "the large blob that it names is not whole"
                                             : "the segments do not say so",
    };
    segment_set_unpin(fsck->store->segments, segment);
    tell(fsck, &finding);
    return true;
}

static bool look_for_lack(void *argument, const struct index_entry *entry, struct status *status)
{
    struct fsck *fsck = argument;
    (void)status;
    if (lies_at(fsck->started, key_of(fsck->started, entry), entry->place))
        return true;
    const struct fsck_finding finding = {
        .what = "index",
        .digest = &entry->digest,
        .segment = entry->place.segment,
        .offset = entry->place.offset,
        .end = entry->place.offset + record_stored_bytes(entry->payload_bytes),
        .reason = "it lacks this record",
    };
    tell(fsck, &finding);
    return true;
}

/* ---- */

static void tell(struct fsck *fsck, const struct fsck_finding *finding)
{
    fsck->summary->findings++;
    fsck->summary->lost += finding->in_use;
    fsck->config.finding(fsck->config.argument, finding);
}

static void remember(struct fsck *fsck, uint64_t segment, uint64_t offset, uint64_t end)
{
    if (fsck->range_count < RANGES_MAX)
        fsck->ranges[fsck->range_count++] = (struct range){segment, offset, end};
}

static bool is_remembered(const struct fsck *fsck, struct place place)
{
    size_t low = 0;
    size_t high = fsck->range_count;
    while (low < high) { /* the first that ends behind the place */
        const size_t middle = low + (high - low) / 2;
        const struct range *range = &fsck->ranges[middle];
        if (range->segment < place.segment ||
            (range->segment == place.segment && range->end <= place.offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low < fsck->range_count && fsck->ranges[low].segment == place.segment &&
           fsck->ranges[low].offset <= place.offset;
}

static bool has_remembered_chunk(const struct fsck *fsck, const struct index_entry *entry)
{
    struct segment_set *segments = fsck->store->segments;
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)entry->payload_bytes;
    struct segment *segment = segment_set_pin(segments, entry->place.segment);
    uint8_t *memory = segment != NULL ? malloc(capacity) : NULL;
    struct record_header header;
    struct bytes payload;
    struct status ignored;
    size_t count = 0;
    bool found = false;
    if (memory != NULL &&
        segment_read_record(segment, entry->place.offset, capacity, memory, capacity, &header,
                            &payload, &ignored) &&
        manifest_count(payload, &count)) {
        for (size_t i = 0; i < count && !found; i++)
            found = is_remembered(fsck, place_unpack(manifest_chunk_at(payload, i).place));
    }
    free(memory);
    segment_set_unpin(segments, segment);
    return found;
}

static const char *kind_name(enum record_kind kind)
{
    switch (kind) {
    case RECORD_BLOB:
        return "blob";
    case RECORD_CHUNK:
        return "chunk";
    case RECORD_MANIFEST:
        return "manifest";
    case RECORD_ACTION:
        return "action result";
    case RECORD_FORGET:
        return "forget";
    }
    return "record";
}

/* ---- making the index anew */

bool fsck_rebuild_index(const struct fsck_config *config, uint64_t *entries, struct status *status)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    struct store *store = NULL;
    struct index *index = NULL;
    char *path = NULL;
    struct recovery_report report;
    bool ok = metrics != NULL && asprintf(&path, "%s/index", config->directory) >= 0;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to make an index");
    /* Only where a store is: opening it to be used would make one. */
    struct store_config opened = {
        .io = config->io,
        .clock = config->clock,
        .metrics = metrics,
        .directory = config->directory,
        .access = STORE_READ_ONLY,
    };
    ok = ok && store_open(&opened, &store, status);
    store_close(store);
    store = NULL;
    opened.access = STORE_READ_WRITE;
    ok = ok && store_open(&opened, &store, status) && index_destroy(path, status) &&
         recovery_run(store, path, &index, &report, status);
    if (ok && index == NULL)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                         "no index could be made: is the disk full?");
    if (ok)
        *entries = report.entries;
    index_close(index);
    store_close(store);
    free(path);
    free(metrics);
    return ok;
}
