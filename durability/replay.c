/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/replay.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/action_record.h"
#include "store/forget_record.h"
#include "store/segment_contents.h"
#include "store/segment_walk.h"

/* A segment that was walked: chunks at or behind `from` are sound only if they are listed. */
struct replay_walked {
    uint64_t segment;
    uint64_t from;
    uint64_t *chunks; /* owned; offsets, ascending */
    size_t count, capacity;
};

/* How often the log says how far it has come. */
#define PROGRESS_EVERY_NS (5 * NS_PER_S)

struct walk_context {
    struct replay *replay;
    struct segment *segment;
    struct replay_walked *walked;
    bool failed; /* what was done with a record, not the reading */
};

static void tell_progress(const struct replay *replay, size_t done, size_t count, int64_t *told_ns);
static bool replay_segment(struct replay *replay, struct segment *segment, struct status *status);
static bool find_seq_limit(struct replay *replay,
                           const struct segment *segment,
                           uint64_t *limit,
                           struct status *status);
static uint64_t known_end(const struct replay *replay, const struct segment *segment);
static uint64_t first_seq(struct segment *segment);
static bool replay_footer(struct replay *replay,
                          struct segment *segment,
                          const struct footer_entry *entries,
                          const struct footer_trailer *trailer,
                          uint64_t from,
                          struct status *status);
static bool replay_footed_record(struct replay *replay,
                                 struct segment *segment,
                                 uint64_t offset,
                                 uint64_t payload_bytes,
                                 struct status *status);
static bool replay_walk(struct replay *replay,
                        struct segment *segment,
                        uint64_t from,
                        struct status *status);
static bool on_record(void *argument,
                      const struct record_header *header,
                      uint64_t offset,
                      struct bytes payload,
                      bool after_gap,
                      struct status *status);
static bool take_record(struct walk_context *context,
                        const struct record_header *header,
                        uint64_t offset,
                        struct bytes payload,
                        bool after_gap,
                        struct status *status);
static bool tell(struct replay *replay,
                 const struct digest *digest,
                 enum record_kind kind,
                 struct place place,
                 struct bytes payload,
                 uint64_t payload_bytes,
                 struct status *status);
static bool remember_chunk(struct replay_walked *walked, uint64_t offset, struct status *status);
static bool chunks_survived(const struct replay *replay,
                            const struct digest *digest,
                            struct bytes manifest);
static bool chunk_survived(const struct replay *replay,
                           const struct digest *digest,
                           const struct manifest_chunk *chunk);
static bool chunk_is_there(const struct replay *replay,
                           const struct digest *digest,
                           const struct manifest_chunk *chunk);
static bool list_add(struct segment ***list,
                     size_t *count,
                     struct segment *segment,
                     struct status *status);
static void log_unreadable(const struct segment *segment, uint64_t from, const struct status *why);
static void log_tail(const struct segment *segment, const struct segment_walk *walk);

bool replay_run(struct replay *replay, struct status *status)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    replay->end = replay->from;
    if (replay->end.seq == 0)
        replay->end.seq = 1;
    if (!segment_set_numbers(replay->store->segments, &numbers, &count, status))
        return false;
    bool ok = true;
    int64_t told_ns = clock_monotonic_ns(replay->store->clock);
    for (size_t i = 0; ok && i < count; i++) {
        tell_progress(replay, i, count, &told_ns);
        if (numbers[i] < replay->from.place.segment ||
            (replay->to != NULL && numbers[i] > replay->to->place.segment))
            continue;
        struct segment *segment = segment_set_pin(replay->store->segments, numbers[i]);
        if (segment != NULL && segment->lane == replay->lane)
            ok = replay_segment(replay, segment, status);
        segment_set_unpin(replay->store->segments, segment);
    }
    free(numbers);
    return ok;
}

static void tell_progress(const struct replay *replay, size_t done, size_t count, int64_t *told_ns)
{
    const int64_t now_ns = clock_monotonic_ns(replay->store->clock);
    if (now_ns - *told_ns < PROGRESS_EVERY_NS)
        return;
    *told_ns = now_ns;
    log_event(LOG_LEVEL_INFO, "segments_read",
              "lane=%s segments=%zu of_segments=%zu records=%" PRIu64, lane_name(replay->lane),
              done, count, replay->records);
}

void replay_destroy(struct replay *replay)
{
    for (size_t i = 0; i < replay->walked_count; i++)
        free(replay->walked[i].chunks);
    free(replay->walked);
    free(replay->unsealed);
    free(replay->empty);
    *replay = (struct replay){0};
}

static bool replay_segment(struct replay *replay, struct segment *segment, struct status *status)
{
    const bool first = segment->number == replay->from.place.segment;
    const uint64_t from = first ? replay->from.place.offset : SEGMENT_HEADER_BYTES;
    /* Pages that a failed write-back left behind look right until they are dropped. */
    if (replay->settle && (!io_sync(segment->io, segment->read_fd, status) ||
                           !io_drop_cache(segment->io, segment->read_fd, status))) {
        status_prefix(status, "settle segment %" PRIu64, segment->number);
        return false;
    }
    struct footer_entry *entries = NULL;
    struct footer_trailer trailer;
    if (!segment_read_footer(segment, &entries, &trailer, status))
        return false;
    if (entries == NULL)
        return replay_walk(replay, segment, from, status);
    if (replay->settle) {
        segment->sealed = true;
        segment->end = trailer.records_end;
        segment->synced_end = trailer.records_end;
    }
    const bool ok = replay_footer(replay, segment, entries, &trailer, from, status);
    free(entries);
    return ok;
}

static bool replay_footer(struct replay *replay,
                          struct segment *segment,
                          const struct footer_entry *entries,
                          const struct footer_trailer *trailer,
                          uint64_t from,
                          struct status *status)
{
    for (uint64_t i = 0; i < trailer->entries; i++) {
        const struct footer_entry *entry = &entries[i];
        const struct place place = footer_entry_place(segment, entry);
        struct digest digest;
        if (place.offset < from)
            continue;
        if (replay->to != NULL && place.segment == replay->to->place.segment &&
            place.offset >= replay->to->place.offset)
            break;
        replay->records++;
        const bool whole = entry->kind == RECORD_ACTION || entry->kind == RECORD_FORGET ||
                           entry->kind == RECORD_MANIFEST || !footer_entry_digest(entry, &digest);
        if (entry->kind == RECORD_CHUNK)
            continue;
        if (whole) {
            if (!replay_footed_record(replay, segment, place.offset, entry->payload_bytes, status))
                return false;
            continue;
        }
        if (!tell(replay, &digest, (enum record_kind)entry->kind, place, bytes_of(NULL, 0),
                  entry->payload_bytes, status))
            return false;
    }
    replay->end.place = (struct place){.segment = segment->number, .offset = trailer->records_end};
    if (trailer->last_seq + 1 > replay->end.seq)
        replay->end.seq = trailer->last_seq + 1;
    return true;
}

/* A record of which more than its name counts. One that is damaged is left out: that record alone is lost. */
static bool replay_footed_record(struct replay *replay,
                                 struct segment *segment,
                                 uint64_t offset,
                                 uint64_t payload_bytes,
                                 struct status *status)
{
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)payload_bytes;
    uint8_t *memory = malloc(capacity);
    if (memory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a record of %zu bytes",
                           capacity);
    struct record_header header;
    struct bytes payload;
    struct status damage;
    bool ok = true;
    /* Twice where the disk fails: a sector that is lost fails again. */
    if (segment_read_record(segment, offset, capacity, memory, capacity, &header, &payload,
                            &damage) ||
        (damage.code == STATUS_UNAVAILABLE &&
         segment_read_record(segment, offset, capacity, memory, capacity, &header, &payload,
                             &damage))) {
        struct digest digest;
        record_header_digest(&header, &digest);
        if (header.kind == RECORD_MANIFEST && !chunks_survived(replay, &digest, payload))
            replay->incomplete++;
        else
            ok = tell(replay, &digest, (enum record_kind)header.kind,
                      (struct place){.segment = segment->number, .offset = offset}, payload,
                      payload_bytes, status);
    } else {
        replay->damaged++;
    }
    free(memory);
    return ok;
}

static bool replay_walk(struct replay *replay,
                        struct segment *segment,
                        uint64_t from,
                        struct status *status)
{
    struct replay_walked *grown =
        realloc(replay->walked, (replay->walked_count + 1) * sizeof(*replay->walked));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory to replay segment %" PRIu64, segment->number);
    replay->walked = grown;
    struct replay_walked *walked = &grown[replay->walked_count++];
    *walked = (struct replay_walked){.segment = segment->number, .from = from};

    uint64_t seq_limit = 0;
    if (!find_seq_limit(replay, segment, &seq_limit, status))
        return false;
    struct walk_context context = {.replay = replay, .segment = segment, .walked = walked};
    const bool last = replay->to != NULL && segment->number == replay->to->place.segment;
    struct segment_walk walk = {
        .segment = segment,
        .from = from,
        .to = last ? replay->to->place.offset : known_end(replay, segment),
        .expected_seq = from != SEGMENT_HEADER_BYTES ? replay->from.seq : 0,
        .seq_limit = seq_limit,
        .each = on_record,
        .argument = &context,
        .skip_unreadable = true,
    };
    if (last && from >= walk.to)
        return true;
    bool to_its_end = true;
    if (!segment_walk(&walk, status)) {
        if (!replay->settle || context.failed || status->code == STATUS_RESOURCE_EXHAUSTED)
            return false;
        to_its_end = false;
        replay->damaged++;
        log_unreadable(segment, walk.end, status);
    }
    replay->damaged += walk.damaged;
    if (walk.records > 0) {
        replay->end = (struct segment_log_position){
            .place = {.segment = segment->number, .offset = walk.end}, .seq = walk.next_seq};
    }
    if (!replay->settle)
        return true;
    if (walk.tail_bytes > 0 && to_its_end) {
        replay->tails_cut++;
        replay->tail_bytes_cut += walk.tail_bytes;
        log_tail(segment, &walk);
    }
    segment->sealed = false; /* though it may have been: its footer is damaged, and is made anew */
    segment->end = walk.end;
    segment->synced_end = walk.end;
    segment->last_seq = walk.next_seq == 0 ? 0 : walk.next_seq - 1;
    if (!to_its_end) /* left as it is: it gets no footer, and nothing is written to it */
        return true;
    const bool empty = walk.end == SEGMENT_HEADER_BYTES && walk.tail_bytes == 0;
    segment->footer_complete = empty; /* the lane goes on in it, and notes what it appends */
    if (empty)
        return list_add(&replay->empty, &replay->empty_count, segment, status);
    return list_add(&replay->unsealed, &replay->unsealed_count, segment, status);
}

/* What a sealed segment's trailer says; while the lane is open, the end of a segment that it has left. 0: it must be found. */
static uint64_t known_end(const struct replay *replay, const struct segment *segment)
{
    if (segment->sealed)
        return segment->end;
    return replay->settle || segment->end == SEGMENT_HEADER_BYTES ? 0 : segment->end;
}

/*
 * The seq that the lane's next segment begins with. A write that was cut off leaves records behind the end of its segment,
 * which the next segment begins without: from that seq on they are not of the log, and were never acknowledged.
 */
static bool find_seq_limit(struct replay *replay,
                           const struct segment *segment,
                           uint64_t *limit,
                           struct status *status)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    if (!segment_set_numbers(replay->store->segments, &numbers, &count, status))
        return false;
    *limit = 0;
    for (size_t i = 0; *limit == 0 && i < count; i++) {
        if (numbers[i] <= segment->number)
            continue;
        struct segment *next = segment_set_pin(replay->store->segments, numbers[i]);
        if (next != NULL && next->lane == replay->lane)
            *limit = first_seq(next);
        segment_set_unpin(replay->store->segments, next);
    }
    free(numbers);
    return true;
}

/* 0 when there is no first record, or none that can be read. */
static uint64_t first_seq(struct segment *segment)
{
    struct record_header header;
    struct status unreadable;
    size_t got = 0;
    const bool sound = io_pread(segment->io, segment->read_fd, &header, sizeof(header),
                                SEGMENT_HEADER_BYTES, &got, &unreadable) &&
                       got == sizeof(header) && record_header_valid(&header, segment->uid, NULL);
    return sound ? header.seq : 0;
}

static void log_unreadable(const struct segment *segment, uint64_t from, const struct status *why)
{
    struct log_text text;
    log_event(LOG_LEVEL_ERROR, "segment_unusable",
              "segment=%" PRIu64 " lane=%s from_bytes=%" PRIu64 " reason=%s", segment->number,
              lane_name(segment->lane), from, log_quote(&text, why->message));
}

static void log_tail(const struct segment *segment, const struct segment_walk *walk)
{
    log_event(LOG_LEVEL_WARN, "segment_tail_cut",
              "segment=%" PRIu64 " lane=%s at_bytes=%" PRIu64 " lost_bytes=%" PRIu64
              " reason=\"no complete record follows\"",
              segment->number, lane_name(segment->lane), walk->end, walk->tail_bytes);
}

static bool on_record(void *argument,
                      const struct record_header *header,
                      uint64_t offset,
                      struct bytes payload,
                      bool after_gap,
                      struct status *status)
{
    struct walk_context *context = argument;
    context->failed = !take_record(context, header, offset, payload, after_gap, status);
    return !context->failed;
}

static bool take_record(struct walk_context *context,
                        const struct record_header *header,
                        uint64_t offset,
                        struct bytes payload,
                        bool after_gap,
                        struct status *status)
{
    struct replay *replay = context->replay;
    struct digest digest;
    record_header_digest(header, &digest);
    replay->records++;
    if (header->kind == RECORD_CHUNK)
        return remember_chunk(context->walked, offset, status);
    if (header->kind == RECORD_MANIFEST && !chunks_survived(replay, &digest, payload)) {
        replay->incomplete++;
        return true;
    }
    if (header->kind == RECORD_BLOB && after_gap) {
        /* Out of order: it may never have been acknowledged, so its own name must vouch for it. */
        struct digest found;
        digest_of_bytes((enum digest_function)digest.function, payload, &found);
        if (!digest_equal(&found, &digest)) {
            replay->damaged++;
            return true;
        }
    }
    return tell(replay, &digest, (enum record_kind)header->kind,
                (struct place){.segment = context->segment->number, .offset = offset}, payload,
                payload.length, status);
}

static bool tell(struct replay *replay,
                 const struct digest *digest,
                 enum record_kind kind,
                 struct place place,
                 struct bytes payload,
                 uint64_t payload_bytes,
                 struct status *status)
{
    struct index_entry entry = {
        .kind = kind, .digest = *digest, .place = place, .payload_bytes = payload_bytes};
    if (kind == RECORD_ACTION) {
        struct action_record action;
        struct status bad;
        if (!action_record_decode(payload, &action, &bad)) {
            replay->damaged++;
            return true;
        }
        entry.instance = action.instance;
    } else if (kind == RECORD_FORGET) {
        struct forget_record forget;
        struct status bad;
        if (!forget_record_decode(payload, &forget, &bad)) {
            replay->damaged++;
            return true;
        }
        entry.forget = true;
        entry.kind = forget.kind;
        entry.place = forget.place;
        entry.instance = forget.instance;
    }
    return replay->each(replay->argument, &entry, status);
}

static bool remember_chunk(struct replay_walked *walked, uint64_t offset, struct status *status)
{
    if (walked->count == walked->capacity) {
        const size_t capacity = walked->capacity == 0 ? 256 : 2 * walked->capacity;
        uint64_t *grown = realloc(walked->chunks, capacity * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for the chunks of segment %" PRIu64, walked->segment);
        walked->chunks = grown;
        walked->capacity = capacity;
    }
    walked->chunks[walked->count++] = offset;
    return true;
}

static bool chunks_survived(const struct replay *replay,
                            const struct digest *digest,
                            struct bytes manifest)
{
    if (manifest.length % MANIFEST_CHUNK_BYTES != 0)
        return false;
    for (size_t at = 0; at < manifest.length; at += MANIFEST_CHUNK_BYTES) {
        struct manifest_chunk chunk;
        memcpy(&chunk, manifest.data + at, sizeof(chunk));
        if (!chunk_survived(replay, digest, &chunk))
            return false;
    }
    return true;
}

static bool chunk_survived(const struct replay *replay,
                           const struct digest *digest,
                           const struct manifest_chunk *chunk)
{
    const struct place place = place_unpack(chunk->place);
    for (size_t i = 0; i < replay->walked_count; i++) {
        const struct replay_walked *walked = &replay->walked[i];
        if (walked->segment != place.segment || place.offset < walked->from)
            continue;
        size_t low = 0;
        size_t high = walked->count;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (walked->chunks[middle] < place.offset)
                low = middle + 1;
            else
                high = middle;
        }
        return low < walked->count && walked->chunks[low] == place.offset;
    }
    return chunk_is_there(replay, digest, chunk);
}

/* In a segment that was not walked: what was sealed is sound, but a chunk that was lost before is no part of it. */
static bool chunk_is_there(const struct replay *replay,
                           const struct digest *digest,
                           const struct manifest_chunk *chunk)
{
    const struct place place = place_unpack(chunk->place);
    struct record_header header;
    struct digest found;
    struct status ignored;
    size_t got = 0;
    struct segment *segment = segment_set_pin(replay->store->segments, place.segment);
    if (segment == NULL)
        return false;
    const bool ok = io_pread(segment->io, segment->read_fd, &header, sizeof(header), place.offset,
                             &got, &ignored) &&
                    got == sizeof(header) && record_header_valid(&header, segment->uid, NULL);
    segment_set_unpin(replay->store->segments, segment);
    if (!ok)
        return false;
    record_header_digest(&header, &found);
    return header.kind == RECORD_CHUNK && digest_equal(&found, digest) &&
           header.blob_offset == chunk->blob_offset &&
           header.payload_bytes == chunk->payload_bytes &&
           header.payload_crc32c == chunk->payload_crc32c;
}

static bool list_add(struct segment ***list,
                     size_t *count,
                     struct segment *segment,
                     struct status *status)
{
    struct segment **grown = realloc(*list, (*count + 1) * sizeof(struct segment *));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a list of segments");
    grown[(*count)++] = segment;
    *list = grown;
    return true;
}

bool replay_apply(struct blob_table *table, const struct index_entry *entry, struct status *status)
{
    const struct blob_key key = blob_table_key(table, entry->kind, &entry->digest, entry->instance);
    if (!entry->forget)
        return blob_table_put(table, key, entry->place, status);
    blob_table_remove(table, key, entry->place); /* unless it lies elsewhere by now, or nowhere */
    return true;
}
