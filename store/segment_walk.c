/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_walk.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"

/*
 * So many zeros behind a damaged record, and the records are taken to end there: more than one gathered write. Where the end is
 * known, and as long as there is anything but zeros, the search goes on.
 */
#define LOOK_AHEAD_BYTES (16 * MIB)

/* The piece of the file in memory. */
struct window {
    struct segment *segment; /* borrowed */
    uint64_t to;             /* no more is read ahead than up to here; 0: as much as fits */
    uint8_t *data;           /* owned */
    size_t capacity;
    uint64_t start;
    size_t length;
    bool skip_unreadable;
    size_t unreadable; /* pages in a row */
};

#define WINDOW_BYTES (4 * MIB)

/* What a disk loses at a time is less; and so many pages in a row that cannot be read are no accident. */
enum { PAGE_BYTES = 4096, UNREADABLE_PAGES_MAX = 4096 };

static bool walk_from(struct segment_walk *walk, struct window *window, struct status *status);
static bool read_pages(struct window *window,
                       uint64_t offset,
                       size_t wanted,
                       size_t *got,
                       struct status *status);
static bool look(struct window *window,
                 uint64_t offset,
                 size_t wanted,
                 struct bytes *seen,
                 struct status *status);
static bool check_record(const struct segment_walk *walk,
                         struct window *window,
                         uint64_t offset,
                         struct record_header *header,
                         struct bytes *payload,
                         bool *sound,
                         struct status *status);
static bool pass_gap(struct segment_walk *walk,
                     struct window *window,
                     uint64_t *offset,
                     struct status *status);
static bool find_next(const struct segment_walk *walk,
                      struct window *window,
                      uint64_t offset,
                      const struct record_header *header,
                      uint64_t *found,
                      uint64_t *last_byte,
                      struct status *status);
static bool look_ahead(const struct segment_walk *walk,
                       struct window *window,
                       uint64_t offset,
                       uint64_t *found,
                       uint64_t *last_byte,
                       struct status *status);

static bool is_zero_line(const uint8_t *line);

bool segment_walk(struct segment_walk *walk, struct status *status)
{
    ASSERT(walk->from >= SEGMENT_HEADER_BYTES && walk->from % RECORD_ALIGNMENT_BYTES == 0);
    struct window window = {.segment = walk->segment,
                            .skip_unreadable = walk->skip_unreadable,
                            .to = walk->to,
                            .data = malloc(WINDOW_BYTES),
                            .capacity = WINDOW_BYTES};
    walk->end = walk->from;
    walk->next_seq = walk->expected_seq;
    walk->records = 0;
    walk->damaged = 0;
    walk->tail_bytes = 0;
    walk->paused = false;
    if (window.data == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to walk segment %" PRIu64,
                           walk->segment->number);
    const bool ok = walk_from(walk, &window, status);
    free(window.data);
    return ok;
}

static bool walk_from(struct segment_walk *walk, struct window *window, struct status *status)
{
    uint64_t offset = walk->from;
    bool after_gap = false;
    while (walk->to == 0 || offset < walk->to) {
        struct record_header header;
        struct bytes payload;
        bool sound = false;
        walk->paused = walk->pause_bytes != 0 && offset - walk->from >= walk->pause_bytes;
        walk->resume = offset;
        if (walk->paused)
            return true;
        if (!check_record(walk, window, offset, &header, &payload, &sound, status))
            return false;
        const bool in_order = sound && (walk->next_seq == 0 || header.seq == walk->next_seq);
        if (!in_order && !(sound && header.seq > walk->next_seq)) {
            const uint64_t gap = offset;
            if (!pass_gap(walk, window, &offset, status))
                return false;
            if (offset == gap)
                return true;
            after_gap = true;
            continue;
        }
        if (!in_order) {
            walk->damaged++;
            after_gap = true;
        }
        if (!walk->each(walk->argument, &header, offset, payload, after_gap, status))
            return false;
        offset += record_stored_bytes(header.payload_bytes);
        walk->records++;
        walk->next_seq = header.seq + 1;
        walk->end = offset;
    }
    walk->resume = offset;
    return true;
}

/* No sound record is at *offset: moves it to the next one, or to the known end. It stays where it is where neither is. */
static bool pass_gap(struct segment_walk *walk,
                     struct window *window,
                     uint64_t *offset,
                     struct status *status)
{
    struct record_header header;
    struct bytes seen;
    if (!look(window, *offset, RECORD_HEADER_BYTES, &seen, status))
        return false;
    bool known = seen.length == RECORD_HEADER_BYTES;
    if (known) {
        memcpy(&header, seen.data, sizeof(header));
        known = record_header_valid(&header, walk->segment->uid, NULL) &&
                header.seq >= walk->next_seq &&
                (walk->seq_limit == 0 || header.seq < walk->seq_limit);
    }
    uint64_t found = 0;
    uint64_t last_byte = *offset;
    if (!find_next(walk, window, *offset, known ? &header : NULL, &found, &last_byte, status))
        return false;
    if (found == 0 && walk->to == 0) {
        walk->tail_bytes = last_byte - *offset;
        return true;
    }
    const uint64_t end = found != 0 ? found : walk->to;
    walk->damaged++;
    if (walk->gap != NULL &&
        !walk->gap(walk->argument, known ? &header : NULL, *offset, end, status))
        return false;
    *offset = end;
    return true;
}

/* header: of the damaged record at offset, or NULL when that is damaged too. */
static bool find_next(const struct segment_walk *walk,
                      struct window *window,
                      uint64_t offset,
                      const struct record_header *header,
                      uint64_t *found,
                      uint64_t *last_byte,
                      struct status *status)
{
    if (header != NULL) {
        struct record_header next;
        struct bytes payload;
        bool sound = false;
        const uint64_t behind = offset + record_stored_bytes(header->payload_bytes);
        if (behind == walk->to) {
            *found = 0;
            return true;
        }
        if (!check_record(walk, window, behind, &next, &payload, &sound, status))
            return false;
        if (sound && next.seq == header->seq + 1) {
            *found = behind;
            return true;
        }
    }
    return look_ahead(walk, window, offset, found, last_byte, status);
}

static bool check_record(const struct segment_walk *walk,
                         struct window *window,
                         uint64_t offset,
                         struct record_header *header,
                         struct bytes *payload,
                         bool *sound,
                         struct status *status)
{
    struct bytes seen;
    *sound = false;
    if (!look(window, offset, RECORD_HEADER_BYTES, &seen, status))
        return false;
    if (seen.length < RECORD_HEADER_BYTES)
        return true;
    memcpy(header, seen.data, sizeof(*header));
    if (!record_header_valid(header, walk->segment->uid, NULL) ||
        offset + record_stored_bytes(header->payload_bytes) > walk->segment->capacity_bytes)
        return true;
    const size_t whole = RECORD_HEADER_BYTES + (size_t)header->payload_bytes;
    if (!look(window, offset, whole, &seen, status))
        return false;
    if (seen.length < whole)
        return true;
    *payload = bytes_of(seen.data + RECORD_HEADER_BYTES, (size_t)header->payload_bytes);
    *sound = crc32c(0, *payload) == header->payload_crc32c &&
             (walk->seq_limit == 0 || header->seq < walk->seq_limit);
    return true;
}

/* The bytes at offset: `wanted` of them, or fewer at the end of the file. */
static bool look(struct window *window,
                 uint64_t offset,
                 size_t wanted,
                 struct bytes *seen,
                 struct status *status)
{
    const bool inside =
        offset >= window->start && offset + wanted <= window->start + window->length;
    if (!inside) {
        if (wanted > window->capacity) {
            uint8_t *grown = realloc(window->data, wanted);
            if (grown == NULL)
                return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                                   "no memory for a record of %zu bytes", wanted);
            window->data = grown;
            window->capacity = wanted;
        }
        size_t got = 0;
        size_t length = window->capacity;
        if (window->to != 0 && offset + length > window->to)
            length = window->to > offset + wanted ? (size_t)(window->to - offset) : wanted;
        window->length = 0;
        if (!io_pread(window->segment->io, window->segment->read_fd, window->data, length, offset,
                      &got, status) &&
            !(window->skip_unreadable && read_pages(window, offset, wanted, &got, status))) {
            status_prefix(status, "walk segment %" PRIu64 " at %" PRIu64, window->segment->number,
                          offset);
            return false;
        }
        window->start = offset;
        window->length = got;
    }
    const size_t skip = (size_t)(offset - window->start);
    const size_t there = window->length - skip;
    *seen = bytes_of(window->data + skip, there < wanted ? there : wanted);
    return true;
}

/* Only what is wanted, page by page, each tried twice; zeros where it cannot be read. */
static bool read_pages(struct window *window,
                       uint64_t offset,
                       size_t wanted,
                       size_t *got,
                       struct status *status)
{
    struct segment *segment = window->segment;
    size_t done = 0;
    while (done < wanted) {
        size_t piece = PAGE_BYTES - (size_t)((offset + done) % PAGE_BYTES);
        size_t read = 0;
        if (piece > wanted - done)
            piece = wanted - done;
        bool ok = false;
        for (int tries = 0; !ok && tries < 2; tries++)
            ok = io_pread(segment->io, segment->read_fd, window->data + done, piece, offset + done,
                          &read, status);
        if (ok) {
            window->unreadable = 0;
            done += read;
            if (read < piece)
                break; /* the end of the file */
            continue;
        }
        if (++window->unreadable > UNREADABLE_PAGES_MAX)
            return false;
        memset(window->data + done, 0, piece);
        done += piece;
    }
    *got = done;
    return true;
}

/* *found: the next sound record that comes later in the lane, or 0. *last_byte: behind the last byte that is not zero. */
static bool look_ahead(const struct segment_walk *walk,
                       struct window *window,
                       uint64_t offset,
                       uint64_t *found,
                       uint64_t *last_byte,
                       struct status *status)
{
    *found = 0;
    for (uint64_t at = offset; walk->to != 0 ? at < walk->to : at - *last_byte < LOOK_AHEAD_BYTES;
         at += RECORD_ALIGNMENT_BYTES) {
        struct bytes line;
        if (!look(window, at, RECORD_ALIGNMENT_BYTES, &line, status))
            return false;
        if (line.length == RECORD_ALIGNMENT_BYTES && is_zero_line(line.data))
            continue;
        for (size_t i = line.length; i > 0; i--) {
            if (line.data[i - 1] != 0) {
                *last_byte = at + i;
                break;
            }
        }
        if (line.length < RECORD_ALIGNMENT_BYTES)
            return true;
        uint32_t magic = 0;
        memcpy(&magic, line.data, sizeof(magic));
        if (magic != RECORD_MAGIC || at == offset)
            continue;
        struct record_header header;
        struct bytes payload;
        bool sound = false;
        if (!check_record(walk, window, at, &header, &payload, &sound, status))
            return false;
        if (sound && header.seq >= walk->next_seq) {
            *found = at;
            return true;
        }
    }
    return true;
}

/* Most of what is looked at is the rest of a segment that nobody has written to. */
static bool is_zero_line(const uint8_t *line)
{
    uint64_t words[RECORD_ALIGNMENT_BYTES / sizeof(uint64_t)];
    uint64_t any = 0;
    memcpy(words, line, sizeof(words));
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        any |= words[i];
    return any == 0;
}
