/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/feed.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "store/action_record.h"
#include "store/find.h"
#include "store/forget_record.h"
#include "store/segment_contents.h"
#include "store/segment_walk.h"

enum {
    /* Entries that are looked at together. */
    BLOCK_ENTRIES = 256,
    /* Looked at for one batch, told or not: some 50 ms of somebody's time. */
    SCAN_ENTRIES_MAX = 131072,
    /* Followers' positions, and segments whose footers were checked. */
    HINTS = 2 * LIMIT_FOLLOWERS,
    CHECKED_SEGMENTS = LIMIT_FOLLOWERS,
};

/* Where the record after a seq lies, or would. */
struct hint {
    enum lane lane;
    uint64_t after_seq;
    struct place place; /* segment 0: none */
};

/* A sealed segment: what its footer is like. */
struct checked_segment {
    uint64_t number; /* 0: none */
    bool sound;      /* else its records must be walked */
    struct footer_trailer trailer;
};

struct feed {
    struct feed_config config; /* set by feed_new(), never changed */

    struct lock lock;
    struct hint hints[HINTS]; /* guarded by lock, as all below */
    size_t hint_at;
    struct checked_segment checked[CHECKED_SEGMENTS];
    size_t checked_at;
};

/* One batch that is being made. */
struct reading {
    struct feed *feed;
    const struct feed_query *query;
    struct arena *arena;
    struct feed_batch *batch;
    struct segment_log *log;
    struct segment *segment; /* pinned; NULL: the log is at its end */
    uint64_t offset;         /* in it, of the next record to look at; where it is known */
    uint64_t next_seq;       /* to look at */
    uint64_t last_seq;       /* likewise, the last */
    size_t result_bytes;
    size_t scanned;
    bool full;
};

static bool begin(struct reading *reading, struct status *status);
static bool find_start(struct reading *reading, struct status *status);
static bool take_hint(struct reading *reading);
static void leave_hint(struct reading *reading);
static void next_segment(struct reading *reading);
static bool read_segment(struct reading *reading, struct status *status);
static void skip_to(struct reading *reading, uint64_t seq);
static bool read_footer(struct reading *reading,
                        const struct footer_trailer *trailer,
                        struct status *status);
static void check_footer(struct reading *reading, struct checked_segment *checked);
static bool footer_is_sound(struct segment *segment, struct footer_trailer *trailer);
static bool take_block(struct reading *reading,
                       const struct footer_entry *entries,
                       size_t count,
                       struct status *status);
static bool read_by_walking(struct reading *reading, uint64_t end, struct status *status);
static bool next_header(struct reading *reading,
                        uint64_t end,
                        struct record_header *header,
                        bool *there,
                        struct status *status);
static bool find_sound(struct reading *reading, uint64_t end, bool *there, struct status *status);
static bool take(struct reading *reading,
                 const struct footer_entry *entry,
                 const struct digest *digest,
                 struct status *status);
static bool is_wanted(const struct digest *only, const struct footer_entry *entry);
static bool take_blob(struct reading *reading,
                      const struct footer_entry *entry,
                      const struct digest *digest,
                      struct status *status);
static bool take_whole(struct reading *reading,
                       const struct footer_entry *entry,
                       struct status *status);
static bool decode_action(struct reading *reading, struct bytes payload, struct feed_entry *record);
static bool decode_forget(const struct store *store,
                          struct bytes payload,
                          struct feed_entry *record);
static struct feed_entry *add(struct reading *reading, struct status *status);

bool feed_new(const struct feed_config *config, struct feed **feed, struct status *status)
{
    struct feed *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the feed");
    made->config = *config;
    lock_init(&made->lock, LOCK_RANK_FEED);
    *feed = made;
    return true;
}

void feed_free(struct feed *feed)
{
    if (feed == NULL)
        return;
    lock_destroy(&feed->lock);
    free(feed);
}

bool feed_check_node(const struct feed *feed, uint64_t node_uid, struct status *status)
{
    const uint64_t own_uid = feed->config.store->node_uid;
    return node_uid == 0 || node_uid == own_uid ||
           status_fail(status, STATUS_FAILED_PRECONDITION,
                       "this node is %016" PRIx64 ", not %016" PRIx64
                       ": its disk was replaced; begin anew with node_uid 0 and after_seq 0",
                       own_uid, node_uid);
}

bool feed_read(struct feed *feed,
               const struct feed_query *query,
               struct arena *arena,
               struct feed_batch *batch,
               struct status *status)
{
    struct reading reading = {
        .feed = feed,
        .query = query,
        .arena = arena,
        .batch = batch,
        .log = feed->config.store->logs[query->lane],
    };
    *batch = (struct feed_batch){.next_after_seq = query->after_seq};
    bool ok = begin(&reading, status);
    while (ok && !reading.full && reading.segment != NULL && reading.next_seq <= reading.last_seq) {
        ok = read_segment(&reading, status);
        if (ok && !reading.full && reading.next_seq <= reading.last_seq)
            next_segment(&reading);
    }
    if (ok && reading.segment == NULL && reading.next_seq <= reading.last_seq)
        reading.next_seq = reading.last_seq + 1; /* nothing is left of what is not there */
    if (ok) {
        batch->next_after_seq = reading.next_seq - 1;
        batch->more = reading.full && batch->next_after_seq < reading.last_seq;
        if (reading.segment != NULL && batch->next_after_seq < batch->published_seq)
            batch->behind_bytes =
                segment_log_bytes_behind(reading.log, reading.segment, reading.offset);
        leave_hint(&reading);
    }
    segment_set_unpin(feed->config.store->segments, reading.segment);
    return ok;
}

/* ---- where to begin */

static bool begin(struct reading *reading, struct status *status)
{
    const struct feed_query *const query = reading->query;
    struct feed_batch *const batch = reading->batch;
    batch->published_seq = copies_published_seq(reading->feed->config.copies, query->lane);
    if (query->after_seq > batch->published_seq)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "after_seq %" PRIu64 " is beyond the end of the %s lane, %" PRIu64
                           ": this store has lost what was told, or was put back to an older "
                           "state; begin anew with after_seq 0",
                           query->after_seq, lane_name(query->lane), batch->published_seq);
    reading->last_seq = query->through_seq != 0 && query->through_seq < batch->published_seq
                            ? query->through_seq
                            : batch->published_seq;
    reading->next_seq = query->after_seq + 1;
    return find_start(reading, status);
}

static bool find_start(struct reading *reading, struct status *status)
{
    struct segment_set *const segments = reading->feed->config.store->segments;
    const struct feed_query *const query = reading->query;
    struct feed_batch *const batch = reading->batch;
    struct segment_look look;
    batch->oldest_seq = 0;
    /* The oldest first: where the log begins. */
    struct segment *segment = segment_set_pin_next(segments, query->lane, 0);
    while (segment != NULL) {
        const uint64_t number = segment->number;
        segment_log_look(reading->log, segment, 0, NULL, 0, &look);
        if (look.first_seq != 0 && look.first_seq <= batch->published_seq)
            break;
        segment_set_unpin(segments, segment);
        segment = segment_set_pin_next(segments, query->lane, number);
    }
    batch->oldest_seq = segment != NULL ? look.first_seq : batch->published_seq + 1;
    segment_set_unpin(segments, segment);
    if (query->after_seq != 0 && query->after_seq + 1 < batch->oldest_seq)
        return status_fail(status, STATUS_OUT_OF_RANGE,
                           "the records of the %s lane after %" PRIu64
                           " were evicted; the oldest that is held is %" PRIu64
                           ", go on with after_seq 0",
                           lane_name(query->lane), query->after_seq, batch->oldest_seq);
    if (take_hint(reading))
        return true;

    /* The last one that begins at or before it; else the first, whatever is in it. */
    reading->segment = segment_set_pin_next(segments, query->lane, 0);
    segment = reading->segment != NULL
                  ? segment_set_pin_next(segments, query->lane, reading->segment->number)
                  : NULL;
    while (segment != NULL) {
        const uint64_t number = segment->number;
        segment_log_look(reading->log, segment, 0, NULL, 0, &look);
        if (look.first_seq > reading->next_seq) {
            segment_set_unpin(segments, segment);
            break;
        }
        if (look.first_seq != 0) {
            segment_set_unpin(segments, reading->segment);
            reading->segment = segment;
        } else {
            segment_set_unpin(segments, segment);
        }
        segment = segment_set_pin_next(segments, query->lane, number);
    }
    reading->offset = SEGMENT_HEADER_BYTES;
    return true;
}

static bool take_hint(struct reading *reading)
{
    struct feed *const feed = reading->feed;
    struct place place = {0};
    lock_acquire(&feed->lock);
    for (size_t i = 0; place.segment == 0 && i < HINTS; i++) {
        if (feed->hints[i].place.segment != 0 && feed->hints[i].lane == reading->query->lane &&
            feed->hints[i].after_seq == reading->query->after_seq)
            place = feed->hints[i].place;
    }
    lock_release(&feed->lock);
    if (place.segment == 0)
        return false;
    reading->segment = segment_set_pin(feed->config.store->segments, place.segment);
    reading->offset = place.offset;
    return reading->segment != NULL;
}

static void leave_hint(struct reading *reading)
{
    struct feed *const feed = reading->feed;
    /* Who looks back comes to each place once. */
    if (reading->segment == NULL || reading->batch->next_after_seq == 0 || reading->query->history)
        return;
    const struct hint hint = {
        .lane = reading->query->lane,
        .after_seq = reading->batch->next_after_seq,
        .place = {.segment = reading->segment->number, .offset = reading->offset},
    };
    lock_acquire(&feed->lock);
    size_t at = HINTS;
    for (size_t i = 0; i < HINTS; i++) {
        /* The reader has left the one it came by, and others may have come to the same. */
        if (feed->hints[i].place.segment != 0 && feed->hints[i].lane == hint.lane &&
            (feed->hints[i].after_seq == hint.after_seq ||
             (feed->hints[i].after_seq == reading->query->after_seq && at == HINTS)))
            at = i;
    }
    if (at == HINTS) {
        at = feed->hint_at;
        feed->hint_at = (feed->hint_at + 1) % HINTS;
    }
    feed->hints[at] = hint;
    lock_release(&feed->lock);
}

static void next_segment(struct reading *reading)
{
    struct segment_set *const segments = reading->feed->config.store->segments;
    struct segment *const next =
        segment_set_pin_next(segments, reading->query->lane, reading->segment->number);
    segment_set_unpin(segments, reading->segment);
    reading->segment = next;
    reading->offset = SEGMENT_HEADER_BYTES;
}

/* ---- the records of a segment, from next_seq on */

static bool read_segment(struct reading *reading, struct status *status)
{
    struct footer_entry entries[BLOCK_ENTRIES];
    struct segment_look look;
    for (;;) {
        segment_log_look(reading->log, reading->segment, reading->next_seq, entries,
                         ARRAY_LENGTH(entries), &look);
        if (!look.noted)
            break;
        if (look.first_seq > reading->next_seq) {
            skip_to(reading, look.first_seq);
            if (reading->next_seq > reading->last_seq)
                return true;
            continue;
        }
        if (look.count == 0)
            return true;
        if (!take_block(reading, entries, look.count, status))
            return false;
        if (reading->full || reading->next_seq > reading->last_seq)
            return true;
    }
    struct checked_segment checked = {0};
    if (look.sealed)
        check_footer(reading, &checked);
    if (checked.sound)
        return read_footer(reading, &checked.trailer, status);
    const uint64_t end = look.end > SEGMENT_HEADER_BYTES ? look.end : 0;
    return read_by_walking(reading, end, status);
}

/* What was between is gone. */
static void skip_to(struct reading *reading, uint64_t seq)
{
    reading->next_seq = seq <= reading->last_seq ? seq : reading->last_seq + 1;
}

static bool read_footer(struct reading *reading,
                        const struct footer_trailer *trailer,
                        struct status *status)
{
    struct segment *const segment = reading->segment;
    if (reading->next_seq < trailer->first_seq)
        skip_to(reading, trailer->first_seq);
    while (!reading->full && reading->next_seq <= reading->last_seq &&
           reading->next_seq <= trailer->last_seq) {
        struct footer_entry entries[BLOCK_ENTRIES];
        const uint64_t at = reading->next_seq - trailer->first_seq;
        const uint64_t left = trailer->entries - at;
        const size_t count = left < BLOCK_ENTRIES ? (size_t)left : BLOCK_ENTRIES;
        size_t got = 0;
        struct status ignored;
        if (!io_pread_twice(segment->io, segment->read_fd, entries, count * sizeof(*entries),
                            trailer->records_end + at * sizeof(*entries), &got, &ignored) ||
            got < count * sizeof(*entries))
            return read_by_walking(reading, trailer->records_end, status);
        if (!take_block(reading, entries, count, status))
            return false;
    }
    return true;
}

/* What is known of a sealed segment's footer, which is read once and then believed. */
static void check_footer(struct reading *reading, struct checked_segment *checked)
{
    struct feed *const feed = reading->feed;
    const uint64_t number = reading->segment->number;
    *checked = (struct checked_segment){0};
    lock_acquire(&feed->lock);
    for (size_t i = 0; checked->number == 0 && i < CHECKED_SEGMENTS; i++) {
        if (feed->checked[i].number == number)
            *checked = feed->checked[i];
    }
    lock_release(&feed->lock);
    if (checked->number != 0)
        return;
    checked->sound = footer_is_sound(reading->segment, &checked->trailer);
    checked->number = number;
    lock_acquire(&feed->lock);
    feed->checked[feed->checked_at] = *checked;
    feed->checked_at = (feed->checked_at + 1) % CHECKED_SEGMENTS;
    lock_release(&feed->lock);
}

/* Piece by piece: a segment of the smallest blobs has 64 MiB of footer. */
static bool footer_is_sound(struct segment *segment, struct footer_trailer *trailer)
{
    uint8_t piece[64 * KIB];
    struct status ignored;
    uint64_t size = 0;
    size_t got = 0;
    if (!io_size(segment->io, segment->read_fd, &size, &ignored) ||
        size < SEGMENT_HEADER_BYTES + sizeof(*trailer) ||
        !io_pread_twice(segment->io, segment->read_fd, trailer, sizeof(*trailer),
                        size - sizeof(*trailer), &got, &ignored))
        return false;
    if (got < sizeof(*trailer) || !footer_trailer_valid(trailer) ||
        trailer->segment_uid != segment->uid ||
        trailer->records_end + trailer->entries * FOOTER_ENTRY_BYTES + sizeof(*trailer) != size ||
        trailer->first_seq + trailer->entries != trailer->last_seq + 1)
        return false;
    uint32_t crc = format_crc_seed(segment->uid);
    const uint64_t end = size - sizeof(*trailer);
    for (uint64_t at = trailer->records_end; at < end; at += got) {
        const size_t wanted = end - at < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);
        if (!io_pread_twice(segment->io, segment->read_fd, piece, wanted, at, &got, &ignored) ||
            got < wanted)
            return false;
        crc = crc32c(crc, bytes_of(piece, got));
    }
    return crc == trailer->entries_crc32c;
}

/* Entries that follow each other from next_seq on. */
static bool take_block(struct reading *reading,
                       const struct footer_entry *entries,
                       size_t count,
                       struct status *status)
{
    for (size_t i = 0; i < count && reading->next_seq <= reading->last_seq; i++) {
        const struct footer_entry *const entry = &entries[i];
        if (!take(reading, entry, NULL, status))
            return false;
        if (reading->full)
            return true;
        reading->next_seq++;
        reading->offset = footer_entry_place(reading->segment, entry).offset +
                          record_stored_bytes(entry->payload_bytes);
    }
    return true;
}

/* ---- where nothing lists them: from header to header */

/* end 0: where nothing more follows. */
static bool read_by_walking(struct reading *reading, uint64_t end, struct status *status)
{
    while (!reading->full && reading->next_seq <= reading->last_seq) {
        struct record_header header;
        bool there = false;
        if (!next_header(reading, end, &header, &there, status))
            return false;
        if (!there || header.seq > reading->last_seq)
            return true;
        if (header.seq >= reading->next_seq) {
            struct footer_entry entry;
            struct digest digest;
            footer_entry_of_header(&header, reading->offset, &entry);
            record_header_digest(&header, &digest);
            reading->next_seq = header.seq;
            if (!take(reading, &entry, &digest, status))
                return false;
            if (reading->full)
                return true;
            reading->next_seq = header.seq + 1;
        }
        reading->offset += record_stored_bytes(header.payload_bytes);
    }
    return true;
}

/* Moves the offset to it, over what is damaged. */
static bool next_header(struct reading *reading,
                        uint64_t end,
                        struct record_header *header,
                        bool *there,
                        struct status *status)
{
    struct segment *const segment = reading->segment;
    const uint64_t limit = end != 0 ? end : segment->capacity_bytes;
    *there = false;
    /* Found once by searching, it is there the next time, unless the disk says now this and now that. */
    for (int tries = 0; tries < 3; tries++) {
        struct status ignored;
        size_t got = 0;
        if (end != 0 && reading->offset >= end)
            return true;
        const bool readable = io_pread_twice(segment->io, segment->read_fd, header, sizeof(*header),
                                             reading->offset, &got, &ignored);
        *there = readable && got == sizeof(*header) &&
                 record_header_valid(header, segment->uid, NULL) &&
                 reading->offset + record_stored_bytes(header->payload_bytes) <= limit;
        if (*there)
            return true;
        if (readable && (got < sizeof(*header) || (end == 0 && record_header_is_end(header))))
            return true;
        bool found = false;
        if (!find_sound(reading, end, &found, status))
            return false;
        if (!found)
            return true;
    }
    return status_fail(status, STATUS_UNAVAILABLE, "read segment %" PRIu64 " at %" PRIu64,
                       segment->number, reading->offset);
}

static bool note_sound(void *argument,
                       const struct record_header *header,
                       uint64_t offset,
                       struct bytes payload,
                       bool after_gap,
                       struct status *status)
{
    uint64_t *const found = argument;
    (void)header;
    (void)payload;
    (void)after_gap;
    *found = offset;
    return status_fail(status, STATUS_CANCELLED, "found");
}

/* Moves the offset, at which there is no record, to the next sound one. */
static bool find_sound(struct reading *reading, uint64_t end, bool *there, struct status *status)
{
    uint64_t found = 0;
    struct segment_walk walk = {
        .segment = reading->segment,
        .from = reading->offset,
        .to = end,
        .each = note_sound,
        .argument = &found,
        .skip_unreadable = true,
    };
    const bool ended = segment_walk(&walk, status);
    *there = found != 0;
    if (*there)
        reading->offset = found;
    return ended || *there;
}

/* ---- one record */

/* digest: NULL where the entry has it. On true and not full it is dealt with. */
static bool take(struct reading *reading,
                 const struct footer_entry *entry,
                 const struct digest *digest,
                 struct status *status)
{
    if (reading->batch->count >= reading->query->records_max ||
        reading->scanned >= SCAN_ENTRIES_MAX) {
        reading->full = true;
        return true;
    }
    reading->scanned++;
    reading->batch->looked_at++;
    if (entry->kind > RECORD_FORGET || (reading->query->kinds & FEED_KIND(entry->kind)) == 0 ||
        !is_wanted(reading->query->only, entry))
        return true;
    switch ((enum record_kind)entry->kind) {
    case RECORD_BLOB:
    case RECORD_MANIFEST:
        return take_blob(reading, entry, digest, status);
    case RECORD_ACTION:
    case RECORD_FORGET:
        return take_whole(reading, entry, status);
    case RECORD_CHUNK:
        break;
    }
    return true;
}

/* By as much of the hash as an entry has. */
static bool is_wanted(const struct digest *only, const struct footer_entry *entry)
{
    if (only == NULL)
        return true;
    const size_t shown =
        only->hash_length < sizeof(entry->digest) ? only->hash_length : sizeof(entry->digest);
    return entry->digest_function == (uint8_t)only->function &&
           entry->digest_bytes == only->hash_length &&
           memcmp(entry->digest, only->hash, shown) == 0;
}

static bool take_blob(struct reading *reading,
                      const struct footer_entry *entry,
                      const struct digest *digest,
                      struct status *status)
{
    struct segment *const segment = reading->segment;
    const struct place place = footer_entry_place(segment, entry);
    struct place found;
    struct digest own;
    if (digest == NULL && !footer_entry_digest(entry, &own)) {
        struct record_header header;
        size_t got = 0;
        if (!io_pread(segment->io, segment->read_fd, &header, sizeof(header), place.offset, &got,
                      status))
            return false;
        if (got < sizeof(header) || !record_header_valid(&header, segment->uid, NULL))
            return true;
        record_header_digest(&header, &own);
    } else if (digest != NULL) {
        own = *digest;
    }
    const bool current = store_find_blob(reading->feed->config.store, &own, FIND_ONLY, &found) &&
                         place_pack(found) == place_pack(place);
    if (!current && !reading->query->history)
        return true;
    struct feed_entry *const record = add(reading, status);
    if (record == NULL)
        return reading->full;
    record->kind = (enum record_kind)entry->kind;
    record->digest = own;
    record->place = place;
    record->payload_bytes = entry->payload_bytes;
    record->wall_ns = reading->query->history ? segment->created_wall_ns : 0;
    record->current = current;
    return true;
}

/* What is told of it stands in its payload. */
static bool take_whole(struct reading *reading,
                       const struct footer_entry *entry,
                       struct status *status)
{
    struct segment *const segment = reading->segment;
    const struct place place = footer_entry_place(segment, entry);
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)entry->payload_bytes;
    struct record_header header;
    struct bytes payload;
    struct status why;
    if (reading->batch->count > 0 && entry->kind == RECORD_ACTION &&
        reading->result_bytes + entry->payload_bytes > reading->query->bytes_max) {
        reading->full = true;
        return true;
    }
    uint8_t *const memory = arena_take(reading->arena, capacity);
    /* With nothing told, too: what was looked at and is not told has taken memory. */
    if (memory == NULL)
        return reading->next_seq > reading->query->after_seq + 1
                   ? (reading->full = true)
                   : status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                                 "no memory for a record of %zu bytes", capacity);
    if (!segment_read_record(segment, place.offset, capacity, memory, capacity, &header, &payload,
                             &why) ||
        header.kind != entry->kind) {
        struct log_text text;
        metrics_add(reading->feed->config.store->metrics, METRIC_RECORDS_DAMAGED, 1);
        log_event(LOG_LEVEL_WARN, "record_not_told",
                  "segment=%" PRIu64 " at_bytes=%" PRIu64 " reason=%s", place.segment, place.offset,
                  log_quote(&text, why.message));
        return true;
    }
    struct feed_entry made = {.kind = (enum record_kind)entry->kind,
                              .place = place,
                              .payload_bytes = entry->payload_bytes};
    record_header_digest(&header, &made.digest);
    const bool sound = made.kind == RECORD_ACTION
                           ? decode_action(reading, payload, &made)
                           : decode_forget(reading->feed->config.store, payload, &made);
    if (!sound || (!made.current && !reading->query->history))
        return true;
    struct feed_entry *const record = add(reading, status);
    if (record == NULL)
        return reading->full;
    made.seq = record->seq;
    *record = made;
    reading->result_bytes += entry->payload_bytes;
    return true;
}

static bool decode_action(struct reading *reading, struct bytes payload, struct feed_entry *record)
{
    struct action_record action;
    struct status ignored;
    struct place found;
    if (!action_record_decode(payload, &action, &ignored))
        return false;
    record->current = store_find_action(reading->feed->config.store, &record->digest,
                                        action.instance, FIND_ONLY, &found) &&
                      place_pack(found) == place_pack(record->place);
    record->instance = action.instance;
    record->writer = action.writer;
    record->result = action.result;
    record->wall_ns = action.written_wall_ns;
    record->origin_uid = action.node_uid;
    return true;
}

static bool decode_forget(const struct store *store,
                          struct bytes payload,
                          struct feed_entry *record)
{
    struct forget_record forget;
    struct status ignored;
    if (!forget_record_decode(payload, &forget, &ignored))
        return false;
    record->current = forget.reason == FORGET_PURGED;
    record->reason = forget.reason;
    record->instance = forget.instance;
    record->wall_ns = forget.wall_ns;
    record->origin_uid = forget.origin_uid != 0 ? forget.origin_uid : store->node_uid;
    record->forgotten = forget.kind;
    return true;
}

/* With its seq. NULL: the batch is full, for want of memory, or else it has failed. */
static struct feed_entry *add(struct reading *reading, struct status *status)
{
    struct feed_batch *const batch = reading->batch;
    if (batch->entries == NULL) {
        const size_t most =
            reading->query->records_max < reading->last_seq - reading->query->after_seq
                ? reading->query->records_max
                : (size_t)(reading->last_seq - reading->query->after_seq);
        batch->entries = arena_take_zeroed(reading->arena, most, sizeof(*batch->entries));
        if (batch->entries == NULL) {
            status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a batch of %zu records",
                        most);
            return NULL;
        }
    }
    struct feed_entry *const record = &batch->entries[batch->count++];
    record->seq = reading->next_seq;
    return record;
}
