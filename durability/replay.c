/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/replay.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/action_record.h"
#include "store/segment_contents.h"
#include "store/segment_walk.h"

/* A segment that was walked: chunks at or behind `from` are sound only if they are listed. */
struct replay_walked {
    uint64_t segment;
    uint64_t from;
    uint64_t *chunks; /* owned; offsets, ascending */
    size_t count, capacity;
};

struct walk_context {
    struct replay *replay;
    struct segment *segment;
    struct replay_walked *walked;
};

static bool replay_segment(struct replay *replay, struct segment *segment, struct status *status);
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
static bool replay_walk(struct replay *replay, struct segment *segment, uint64_t from, struct status *status);
static bool on_record(void *argument,
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
static bool chunks_survived(const struct replay *replay, struct bytes manifest);
static bool chunk_survived(const struct replay *replay, uint64_t packed);
static bool list_add(struct segment ***list, size_t *count, struct segment *segment, struct status *status);
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
    for (size_t i = 0; ok && i < count; i++) {
        if (numbers[i] < replay->from.place.segment || (replay->to != NULL && numbers[i] > replay->to->place.segment))
            continue;
        struct segment *segment = segment_set_pin(replay->store->segments, numbers[i]);
        if (segment != NULL && segment->lane == replay->lane)
            ok = replay_segment(replay, segment, status);
        segment_set_unpin(replay->store->segments, segment);
    }
    free(numbers);
    return ok;
}

void replay_destroy(struct replay *replay)
{
    for (size_t i = 0; i < replay->walked_count; i++)
        free(replay->walked[i].chunks);
    free(replay->walked);
    free(replay->unsealed);
    free(replay->empty);
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
                           !footer_entry_digest(entry, &digest);
        if (entry->kind == RECORD_CHUNK)
            continue;
        if (whole) {
            if (!replay_footed_record(replay, segment, place.offset, entry->payload_bytes, status))
                return false;
            continue;
        }
        if (!tell(replay, &digest, (enum record_kind)entry->kind, place, bytes_of(NULL, 0), entry->payload_bytes, status))
            return false;
    }
    replay->end.place = (struct place){.segment = segment->number, .offset = trailer->records_end};
    if (trailer->last_seq + 1 > replay->end.seq)
        replay->end.seq = trailer->last_seq + 1;
    return true;
}

/* A record whose key is in its payload. One that is damaged is left out: that record alone is lost. */
static bool replay_footed_record(struct replay *replay,
                                 struct segment *segment,
                                 uint64_t offset,
                                 uint64_t payload_bytes,
                                 struct status *status)
{
    const size_t capacity = RECORD_HEADER_BYTES + (size_t)payload_bytes;
    uint8_t *memory = malloc(capacity);
    if (memory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a record of %zu bytes", capacity);
    struct record_header header;
    struct bytes payload;
    bool ok = true;
    if (segment_read_record(segment, offset, capacity, memory, capacity, &header, &payload, status)) {
        struct digest digest;
        record_header_digest(&header, &digest);
        ok = tell(replay, &digest, (enum record_kind)header.kind,
                  (struct place){.segment = segment->number, .offset = offset}, payload, payload_bytes, status);
    } else if (status->code == STATUS_DATA_LOSS || status->code == STATUS_RESOURCE_EXHAUSTED) {
        replay->damaged++;
    } else {
        ok = false;
    }
    free(memory);
    return ok;
}

static bool replay_walk(struct replay *replay, struct segment *segment, uint64_t from, struct status *status)
{
    struct replay_walked *grown =
        realloc(replay->walked, (replay->walked_count + 1) * sizeof(*replay->walked));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to replay segment %" PRIu64, segment->number);
    replay->walked = grown;
    struct replay_walked *walked = &grown[replay->walked_count++];
    *walked = (struct replay_walked){.segment = segment->number, .from = from};

    struct walk_context context = {.replay = replay, .segment = segment, .walked = walked};
    const bool last = replay->to != NULL && segment->number == replay->to->place.segment;
    struct segment_walk walk = {
        .segment = segment,
        .from = from,
        .to = last ? replay->to->place.offset : 0,
        .expected_seq = from != SEGMENT_HEADER_BYTES ? replay->from.seq : 0,
        .each = on_record,
        .argument = &context,
    };
    if (last && from >= walk.to)
        return true;
    if (!segment_walk(&walk, status))
        return false;
    replay->damaged += walk.damaged;
    if (walk.records > 0) {
        replay->end = (struct segment_log_position){.place = {.segment = segment->number, .offset = walk.end},
                                                    .seq = walk.next_seq};
    }
    if (!replay->settle)
        return true;
    if (walk.tail_bytes > 0) {
        replay->tails_cut++;
        replay->tail_bytes_cut += walk.tail_bytes;
        log_tail(segment, &walk);
    }
    segment->end = walk.end;
    segment->synced_end = walk.end;
    segment->last_seq = walk.next_seq == 0 ? 0 : walk.next_seq - 1;
    segment->footer_complete = false;
    if (walk.end == SEGMENT_HEADER_BYTES && walk.tail_bytes == 0)
        return list_add(&replay->empty, &replay->empty_count, segment, status);
    return list_add(&replay->unsealed, &replay->unsealed_count, segment, status);
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
    struct replay *replay = context->replay;
    struct digest digest;
    record_header_digest(header, &digest);
    replay->records++;
    if (header->kind == RECORD_CHUNK)
        return remember_chunk(context->walked, offset, status);
    if (header->kind == RECORD_MANIFEST && !chunks_survived(replay, payload)) {
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
                (struct place){.segment = context->segment->number, .offset = offset}, payload, payload.length,
                status);
}

static bool tell(struct replay *replay,
                 const struct digest *digest,
                 enum record_kind kind,
                 struct place place,
                 struct bytes payload,
                 uint64_t payload_bytes,
                 struct status *status)
{
    struct index_entry entry = {.kind = kind, .digest = *digest, .place = place, .payload_bytes = payload_bytes};
    if (kind == RECORD_ACTION) {
        struct action_record action;
        struct status bad;
        if (!action_record_decode(payload, &action, &bad)) {
            replay->damaged++;
            return true;
        }
        entry.instance = action.instance;
    } else if (kind == RECORD_FORGET) {
        struct forget_payload forget;
        if (payload.length < sizeof(forget)) {
            replay->damaged++;
            return true;
        }
        memcpy(&forget, payload.data, sizeof(forget));
        entry.forget = true;
        entry.kind = (enum record_kind)forget.kind;
        entry.place = place_unpack(forget.place);
        entry.instance = bytes_of(payload.data + sizeof(forget), payload.length - sizeof(forget));
    }
    return replay->each(replay->argument, &entry, status);
}

static bool remember_chunk(struct replay_walked *walked, uint64_t offset, struct status *status)
{
    if (walked->count == walked->capacity) {
        const size_t capacity = walked->capacity == 0 ? 256 : 2 * walked->capacity;
        uint64_t *grown = realloc(walked->chunks, capacity * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the chunks of segment %" PRIu64,
                               walked->segment);
        walked->chunks = grown;
        walked->capacity = capacity;
    }
    walked->chunks[walked->count++] = offset;
    return true;
}

static bool chunks_survived(const struct replay *replay, struct bytes manifest)
{
    if (manifest.length % MANIFEST_CHUNK_BYTES != 0)
        return false;
    for (size_t at = 0; at < manifest.length; at += MANIFEST_CHUNK_BYTES) {
        struct manifest_chunk chunk;
        memcpy(&chunk, manifest.data + at, sizeof(chunk));
        if (!chunk_survived(replay, chunk.place))
            return false;
    }
    return true;
}

/* Segments that were not walked are durable up to where they are indexed. */
static bool chunk_survived(const struct replay *replay, uint64_t packed)
{
    const struct place place = place_unpack(packed);
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
    struct segment *segment = segment_set_pin(replay->store->segments, place.segment);
    segment_set_unpin(replay->store->segments, segment);
    return segment != NULL;
}

static bool list_add(struct segment ***list, size_t *count, struct segment *segment, struct status *status)
{
    struct segment **grown = realloc(*list, (*count + 1) * sizeof(struct segment *));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a list of segments");
    grown[(*count)++] = segment;
    *list = grown;
    return true;
}
