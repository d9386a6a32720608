/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "store/segment_contents.h"
#include "store/segment_walk.h"

static struct segment *segment_allocate(struct io *io, const char *path, uint64_t number);
static bool make_file(struct segment *segment,
                      const char *new_path,
                      const char *directory,
                      uint64_t node_uid,
                      int64_t created_wall_ns,
                      struct status *status);
static void explain_full_disk(struct io *io,
                              const char *directory,
                              uint64_t needed_bytes,
                              struct status *status);
static bool random_uid(uint64_t *uid, struct status *status);
static bool read_header(struct segment *segment, struct status *status);
static bool read_or_zeros(const struct segment *segment,
                          void *data,
                          size_t length,
                          uint64_t offset,
                          size_t *got,
                          struct status *status);
static bool read_trailer(const struct segment *segment,
                         uint64_t size,
                         struct footer_trailer *trailer);
static void note_first_seq(struct segment *segment, const uint8_t *record);
static bool complete_footer(struct segment *segment, struct status *status);
static bool note_walked(void *argument,
                        const struct record_header *header,
                        uint64_t offset,
                        struct bytes payload,
                        bool after_gap,
                        struct status *status);
static bool note_entry(struct segment *segment,
                       const struct record_header *header,
                       uint64_t offset,
                       struct status *status);
static bool damaged(const struct segment *segment,
                    uint64_t offset,
                    const char *what,
                    struct status *status);

void segment_path(char path[SEGMENT_PATH_BYTES_MAX],
                  const char *directory,
                  uint64_t number,
                  const char *suffix)
{
    const int length =
        snprintf(path, SEGMENT_PATH_BYTES_MAX, "%s/%016" PRIx64 ".%s", directory, number, suffix);
    ASSERT(length > 0 && length < SEGMENT_PATH_BYTES_MAX);
}

bool segment_create(struct io *io,
                    const char *directory,
                    enum lane lane,
                    uint64_t number,
                    uint64_t capacity_bytes,
                    uint64_t node_uid,
                    int64_t created_wall_ns,
                    struct segment **segment,
                    struct status *status)
{
    ASSERT(number > 0 && number <= SEGMENT_NUMBER_MAX);
    ASSERT(capacity_bytes >= SEGMENT_BYTES_MIN && capacity_bytes <= SEGMENT_BYTES_MAX);
    char path[SEGMENT_PATH_BYTES_MAX];
    char new_path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, directory, number, "seg");
    segment_path(new_path, directory, number, "new");

    struct segment *made = segment_allocate(io, path, number);
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a segment");
    made->lane = lane;
    made->capacity_bytes = capacity_bytes;
    made->file_bytes = capacity_bytes;
    made->node_uid = node_uid;
    made->created_wall_ns = created_wall_ns;
    if (!make_file(made, new_path, directory, node_uid, created_wall_ns, status)) {
        segment_free(made);
        struct status ignored;
        if (!io_unlink(io, new_path, &ignored) && !io_unlink(io, path, &ignored)) {
            /* It is not there under either name, or the next start removes it. */
        }
        status_prefix(status, "make segment %" PRIu64, number);
        return false;
    }
    *segment = made;
    return true;
}

static bool make_file(struct segment *segment,
                      const char *new_path,
                      const char *directory,
                      uint64_t node_uid,
                      int64_t created_wall_ns,
                      struct status *status)
{
    struct io *io = segment->io;
    struct segment_header_page header;
    if (!random_uid(&segment->uid, status))
        return false;
    segment_header_fill(&header, segment->lane, segment->number, segment->uid,
                        segment->capacity_bytes, node_uid, created_wall_ns);
    const struct iovec part = {.iov_base = &header, .iov_len = sizeof(header)};
    if (!io_open(io, new_path, IO_OPEN_CREATE_NEW, &segment->write_fd, status))
        return false;
    if (!io_allocate(io, segment->write_fd, segment->capacity_bytes, status)) {
        explain_full_disk(io, directory, segment->capacity_bytes, status);
        return false;
    }
    if (!io_pwritev(io, segment->write_fd, &part, 1, 0, status) ||
        !io_sync(io, segment->write_fd, status))
        return false;
    FAILPOINT(segment_before_rename);
    if (!io_rename(io, new_path, segment->path, status))
        return false;
    FAILPOINT(segment_before_directory_sync);
    return io_sync_directory(io, directory, status) &&
           io_open(io, segment->path, IO_OPEN_READ, &segment->read_fd, status);
}

static void explain_full_disk(struct io *io,
                              const char *directory,
                              uint64_t needed_bytes,
                              struct status *status)
{
    struct io_space space;
    struct status ignored;
    if (status->code != STATUS_RESOURCE_EXHAUSTED || !io_space(io, directory, &space, &ignored))
        return;
    status_prefix(status,
                  "the data disk is full: %" PRIu64 " of %" PRIu64
                  " bytes are free, the next segment needs %" PRIu64,
                  space.free_bytes, space.total_bytes, needed_bytes);
}

static bool random_uid(uint64_t *uid, struct status *status)
{
    if (getrandom(uid, sizeof(*uid), 0) != (ssize_t)sizeof(*uid))
        return status_fail(status, STATUS_INTERNAL, "getrandom");
    return true;
}

bool segment_open(struct io *io,
                  const char *directory,
                  uint64_t number,
                  struct segment **segment,
                  struct status *status)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, directory, number, "seg");
    struct segment *opened = segment_allocate(io, path, number);
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a segment");
    if (!io_open(io, path, IO_OPEN_READ, &opened->read_fd, status) ||
        !read_header(opened, status)) {
        segment_free(opened);
        return false;
    }
    *segment = opened;
    return true;
}

static bool read_header(struct segment *segment, struct status *status)
{
    struct segment_header_page page = {0};
    uint8_t first_record[RECORD_HEADER_BYTES] = {0};
    struct footer_trailer trailer;
    struct status why;
    size_t got = 0;
    if (!io_size(segment->io, segment->read_fd, &segment->file_bytes, status))
        return false;
    if (segment->file_bytes < sizeof(page))
        return status_fail(status, STATUS_DATA_LOSS,
                           "segment %" PRIu64 ": cut off at %" PRIu64 " bytes", segment->number,
                           segment->file_bytes);
    /* What cannot be read is zeros, and so it is damaged. */
    const bool readable = read_or_zeros(segment, &page, sizeof(page), 0, &got, status);
    const struct segment_header *header =
        segment_header_of(&page, segment->number, &segment->header_damaged, &why);
    if (header != NULL) {
        segment->uid = header->uid;
        segment->lane = (enum lane)header->lane;
        segment->capacity_bytes = header->capacity_bytes;
        segment->node_uid = header->node_uid;
        segment->created_wall_ns = header->created_wall_ns;
    }
    segment->sealed = read_trailer(segment, segment->file_bytes, &trailer);
    if (header == NULL && !segment->sealed) {
        if (readable)
            *status = why;
        else
            status->code = STATUS_UNAVAILABLE;
        return false;
    }
    if (header == NULL) {
        segment->uid = trailer.segment_uid;
        segment->lane = (enum lane)trailer.lane;
        segment->capacity_bytes = segment->file_bytes;
    }
    if (segment->sealed) {
        segment->end = trailer.records_end;
        segment->synced_end = trailer.records_end;
        segment->first_seq = trailer.first_seq;
        segment->last_seq = trailer.last_seq;
        return true;
    }
    segment->end_lost = segment->file_bytes < segment->capacity_bytes;
    if (read_or_zeros(segment, first_record, sizeof(first_record), SEGMENT_HEADER_BYTES, &got,
                      &why))
        note_first_seq(segment, first_record);
    return true;
}

/* Zeros where it cannot be read. */
static bool read_or_zeros(const struct segment *segment,
                          void *data,
                          size_t length,
                          uint64_t offset,
                          size_t *got,
                          struct status *status)
{
    if (io_pread_twice(segment->io, segment->read_fd, data, length, offset, got, status))
        return true;
    memset(data, 0, length);
    *got = 0;
    status_prefix(status, "segment %" PRIu64, segment->number);
    return false;
}

static void note_first_seq(struct segment *segment, const uint8_t *record)
{
    struct record_header header;
    memcpy(&header, record, sizeof(header));
    if (record_header_valid(&header, segment->uid, NULL))
        segment->first_seq = header.seq;
}

/* Is there a trailer at the end of the file that can be read, and is it this segment's as far as that is known? */
static bool read_trailer(const struct segment *segment,
                         uint64_t size,
                         struct footer_trailer *trailer)
{
    struct status unreadable;
    size_t got = 0;
    return size >= SEGMENT_HEADER_BYTES + sizeof(*trailer) && size % RECORD_ALIGNMENT_BYTES == 0 &&
           read_or_zeros(segment, trailer, sizeof(*trailer), size - sizeof(*trailer), &got,
                         &unreadable) &&
           got == sizeof(*trailer) && footer_trailer_valid(trailer) &&
           (segment->uid == 0 || trailer->segment_uid == segment->uid) &&
           trailer->records_end + trailer->entries * FOOTER_ENTRY_BYTES + sizeof(*trailer) == size;
}

static struct segment *segment_allocate(struct io *io, const char *path, uint64_t number)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return NULL;
    segment->io = io;
    segment->number = number;
    segment->read_fd = -1;
    segment->write_fd = -1;
    segment->end = SEGMENT_HEADER_BYTES;
    segment->synced_end = SEGMENT_HEADER_BYTES;
    segment->footer_complete = true;
    segment->path = strdup(path);
    if (segment->path == NULL) {
        free(segment);
        return NULL;
    }
    return segment;
}

bool segment_open_for_writing(struct segment *segment, struct status *status)
{
    ASSERT(segment->write_fd < 0);
    return io_open(segment->io, segment->path, IO_OPEN_WRITE, &segment->write_fd, status);
}

void segment_free(struct segment *segment)
{
    if (segment == NULL)
        return;
    io_close(segment->io, segment->read_fd);
    io_close(segment->io, segment->write_fd);
    free(segment->footer);
    free(segment->path);
    free(segment);
}

bool segment_fits(const struct segment *segment, uint64_t total_bytes, size_t records)
{
    const uint64_t footer =
        (segment->noted_count + records) * FOOTER_ENTRY_BYTES + FOOTER_TRAILER_BYTES;
    return segment->end + total_bytes + footer <= segment->capacity_bytes;
}

bool segment_write(struct segment *segment,
                   const struct iovec *parts,
                   size_t count,
                   uint64_t total_bytes,
                   struct status *status)
{
    ASSERT(segment->write_fd >= 0);
    ASSERT(total_bytes > 0 && total_bytes % RECORD_ALIGNMENT_BYTES == 0);
    ASSERT(segment->end + total_bytes <= segment->capacity_bytes);
    if (!io_pwritev(segment->io, segment->write_fd, parts, count, segment->end, status)) {
        status_prefix(status, "append to segment %" PRIu64 " at %" PRIu64, segment->number,
                      segment->end);
        return false;
    }
    segment->end += total_bytes;
    return true;
}

bool segment_note(struct segment *segment,
                  const struct record_header *header,
                  uint64_t offset,
                  struct status *status)
{
    segment->last_seq = header->seq;
    segment->noted_count++;
    if (!segment->footer_complete)
        return true;
    return note_entry(segment, header, offset, status);
}

static bool note_entry(struct segment *segment,
                       const struct record_header *header,
                       uint64_t offset,
                       struct status *status)
{
    if (segment->footer_count == segment->footer_capacity) {
        const size_t capacity = segment->footer_capacity == 0 ? 256 : 2 * segment->footer_capacity;
        struct footer_entry *grown = realloc(segment->footer, capacity * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for the footer of segment %" PRIu64, segment->number);
        segment->footer = grown;
        segment->footer_capacity = capacity;
    }
    if (segment->footer_count == 0 && segment->first_seq != header->seq)
        segment->first_seq = header->seq;
    footer_entry_of_header(header, offset, &segment->footer[segment->footer_count++]);
    return true;
}

bool segment_sync(struct segment *segment, struct status *status)
{
    ASSERT(segment->write_fd >= 0);
    if (!io_sync(segment->io, segment->write_fd, status)) {
        status_prefix(status, "sync segment %" PRIu64, segment->number);
        return false;
    }
    return true;
}

bool segment_seal(struct segment *segment, struct status *status)
{
    ASSERT(segment->write_fd >= 0 && !segment->sealed);
    if (!segment->footer_complete && !complete_footer(segment, status)) {
        status_prefix(status, "seal segment %" PRIu64, segment->number);
        return false;
    }
    FAILPOINT(segment_before_seal);
    struct footer_trailer trailer = {
        .segment_uid = segment->uid,
        .entries = segment->footer_count,
        .records_end = segment->end,
        .first_seq = segment->first_seq,
        .last_seq = segment->first_seq + segment->footer_count - 1,
        .lane = (uint8_t)segment->lane,
    };
    const uint32_t seed = format_crc_seed(segment->uid);
    const size_t entries_bytes = segment->footer_count * sizeof(*segment->footer);
    trailer.entries_crc32c = crc32c(seed, bytes_of(segment->footer, entries_bytes));
    footer_trailer_seal(&trailer);
    const struct iovec parts[] = {
        {.iov_base = segment->footer, .iov_len = entries_bytes},
        {.iov_base = &trailer, .iov_len = sizeof(trailer)},
    };
    /* Cut first: what a torn append left behind the end must not stand between the footer and the end of the file. */
    const uint64_t file_end = segment->end + entries_bytes + sizeof(trailer);
    if (!io_pwritev(segment->io, segment->write_fd, parts, ARRAY_LENGTH(parts), segment->end,
                    status) ||
        !io_truncate(segment->io, segment->write_fd, file_end, status)) {
        status_prefix(status, "seal segment %" PRIu64, segment->number);
        return false;
    }
    FAILPOINT(segment_after_seal);
    return segment_sync(segment, status);
}

void segment_sealed(struct segment *segment)
{
    io_close(segment->io, segment->write_fd);
    segment->write_fd = -1;
    segment->sealed = true;
    free(segment->footer);
    segment->footer = NULL;
    segment->footer_capacity = 0;
}

/*
 * Walks the records from the first to the end, so that the footer has them all. A segment with a damaged record in it stays
 * without a footer: what a footer names is believed without a look at the record.
 */
static bool complete_footer(struct segment *segment, struct status *status)
{
    segment->footer_count = 0;
    struct segment_walk walk = {
        .segment = segment,
        .from = SEGMENT_HEADER_BYTES,
        .to = segment->end,
        .each = note_walked,
        .argument = segment,
    };
    if (!segment_walk(&walk, status))
        return false;
    if (walk.damaged > 0 || walk.end != segment->end)
        return status_fail(status, STATUS_DATA_LOSS, "it holds damaged records");
    segment->footer_complete = true;
    return true;
}

static bool note_walked(void *argument,
                        const struct record_header *header,
                        uint64_t offset,
                        struct bytes payload,
                        bool after_gap,
                        struct status *status)
{
    (void)payload;
    (void)after_gap;
    return note_entry(argument, header, offset, status);
}

bool segment_read_footer(struct segment *segment,
                         struct footer_entry **entries,
                         struct footer_trailer *trailer,
                         struct status *status)
{
    *entries = NULL;
    uint64_t size = 0;
    size_t got = 0;
    if (!io_size(segment->io, segment->read_fd, &size, status))
        return false;
    if (!read_trailer(segment, size, trailer))
        return true;

    const uint32_t seed = format_crc_seed(segment->uid);
    const size_t entries_bytes = (size_t)trailer->entries * FOOTER_ENTRY_BYTES;
    struct footer_entry *read = malloc(entries_bytes == 0 ? 1 : entries_bytes);
    if (read == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for the footer of segment %" PRIu64, segment->number);
    struct status unreadable;
    if (!read_or_zeros(segment, read, entries_bytes, trailer->records_end, &got, &unreadable) ||
        got < entries_bytes ||
        trailer->entries_crc32c != crc32c(seed, bytes_of(read, entries_bytes))) {
        free(read);
        return true;
    }
    *entries = read;
    return true;
}

bool segment_read_record(struct segment *segment,
                         uint64_t offset,
                         uint64_t length_hint,
                         uint8_t *buffer,
                         size_t capacity,
                         struct record_header *header,
                         struct bytes *payload,
                         struct status *status)
{
    ASSERT(capacity >= RECORD_HEADER_BYTES);
    uint64_t wanted = length_hint < RECORD_HEADER_BYTES ? RECORD_HEADER_BYTES : length_hint;
    if (wanted > capacity)
        wanted = capacity;
    size_t got = 0;
    /* A page that cannot be read, behind a shorter record than was expected, does not matter. */
    if (!io_pread(segment->io, segment->read_fd, buffer, (size_t)wanted, offset, &got, status) &&
        !io_pread(segment->io, segment->read_fd, buffer, RECORD_HEADER_BYTES, offset, &got,
                  status)) {
        status->code = STATUS_UNAVAILABLE;
        status_prefix(status, "read segment %" PRIu64 " at %" PRIu64, segment->number, offset);
        return false;
    }
    if (got < RECORD_HEADER_BYTES)
        return damaged(segment, offset, "cut off in the header", status);
    memcpy(header, buffer, sizeof(*header));
    const char *reason = NULL;
    if (!record_header_valid(header, segment->uid, &reason))
        return damaged(segment, offset, reason, status);

    const uint64_t whole = RECORD_HEADER_BYTES + header->payload_bytes;
    if (whole > capacity)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "record of %" PRIu64 " bytes in segment %" PRIu64 " at %" PRIu64
                           " is larger than the buffer of %zu",
                           whole, segment->number, offset, capacity);
    if (whole > got) {
        size_t more = 0;
        if (!io_pread(segment->io, segment->read_fd, buffer + got, (size_t)(whole - got),
                      offset + got, &more, status)) {
            status->code = STATUS_UNAVAILABLE;
            return false;
        }
        if (got + more < whole)
            return damaged(segment, offset, "cut off in the payload", status);
    }
    *payload = bytes_of(buffer + RECORD_HEADER_BYTES, (size_t)header->payload_bytes);
    if (crc32c(0, *payload) != header->payload_crc32c)
        return damaged(segment, offset, "payload crc32c", status);
    return true;
}

static bool damaged(const struct segment *segment,
                    uint64_t offset,
                    const char *what,
                    struct status *status)
{
    return status_fail(status, STATUS_DATA_LOSS,
                       "record in segment %" PRIu64 " at %" PRIu64 " is damaged: %s",
                       segment->number, offset, what);
}
