/* SPDX-License-Identifier: Apache-2.0 */
#include "store/use_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"

#define MAGIC "VARVEUSE"

enum { VERSION = 1, PIECE_ENTRIES = 65536, READ_ENTRIES = 4096, IDLE_BITS = 16 };
enum { IDLE_MASK = (1 << IDLE_BITS) - 1 };

/* Behind it, `entries` times a word: the place, packed, and in the low 16 bits the minutes since the last use. */
struct use_file_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t complete; /* 1: written at a stop */
    uint64_t node_uid; /* of the store */
    int64_t wall_ns;   /* when it was written */
    uint64_t entries;
    uint32_t entries_crc32c;
    uint32_t header_crc32c; /* of what is above */
};
static_assert(sizeof(struct use_file_header) == 48, "the header is 48 bytes on disk");

struct use_file {
    bool complete;
    uint32_t age_minutes;
    uint64_t count;
    uint64_t words[]; /* ascending */
};

struct writer {
    struct store *store;
    int fd;
    uint64_t end;
    uint64_t entries;
    uint32_t crc32c;
    size_t count;
    uint64_t piece[PIECE_ENTRIES];
};

static bool read_open(struct store *store, int fd, struct use_file **file, struct status *status);
static int by_value(const void *a, const void *b);
static uint64_t used_since(struct store *store, int64_t since_ns, uint64_t *used);
static bool write_all(struct writer *writer, enum use_file_moment moment, struct status *status);
static bool write_piece(struct writer *writer, struct status *status);
static bool make_paths(const struct store *store, char **path, char **new_path);

bool use_file_read(struct store *store, struct use_file **file, struct status *status)
{
    char *path = NULL;
    char *new_path = NULL;
    struct status why;
    int fd = -1;
    bool ok = true;
    *file = NULL;
    if (!make_paths(store, &path, &new_path))
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    if (ok && io_open(store->io, path, IO_OPEN_READ, &fd, &why))
        ok = read_open(store, fd, file, status);
    io_close(store->io, fd);
    free(path);
    free(new_path);
    return ok;
}

static bool read_open(struct store *store, int fd, struct use_file **file, struct status *status)
{
    struct use_file_header header;
    struct status why;
    uint64_t size = 0;
    size_t got = 0;
    if (!io_size(store->io, fd, &size, &why) ||
        !io_pread(store->io, fd, &header, sizeof(header), 0, &got, &why) || got < sizeof(header) ||
        memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0 || header.version != VERSION ||
        header.node_uid != store->node_uid ||
        header.header_crc32c !=
            crc32c(0, bytes_of(&header, offsetof(struct use_file_header, header_crc32c))) ||
        size < sizeof(header) || header.entries != (size - sizeof(header)) / sizeof(uint64_t))
        return true;
    const size_t length = (size_t)header.entries * sizeof(uint64_t);
    struct use_file *read = malloc(sizeof(*read) + length);
    if (read == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for the %" PRIu64 " entries of the file uses",
                           header.entries);
    if (!io_pread(store->io, fd, read->words, length, sizeof(header), &got, &why) || got < length ||
        crc32c(0, bytes_of(read->words, length)) != header.entries_crc32c) {
        free(read);
        return true;
    }
    const int64_t age_ns = clock_wall_ns(store->clock) - header.wall_ns;
    const int64_t age_minutes = age_ns > 0 ? age_ns / (60 * NS_PER_S) : 0;
    read->complete = header.complete != 0;
    read->age_minutes = age_minutes < IDLE_MASK ? (uint32_t)age_minutes : IDLE_MASK;
    read->count = header.entries;
    qsort(read->words, read->count, sizeof(read->words[0]), by_value);
    *file = read;
    return true;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t first = *(const uint64_t *)a;
    const uint64_t second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

void use_file_free(struct use_file *file)
{
    free(file);
}

bool use_file_is_complete(const struct use_file *file)
{
    return file->complete;
}

bool use_file_find(const struct use_file *file, struct place place, uint32_t *idle_minutes)
{
    const uint64_t wanted = place_pack(place);
    uint64_t low = 0;
    uint64_t high = file->count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (file->words[middle] >> IDLE_BITS < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == file->count || file->words[low] >> IDLE_BITS != wanted)
        return false;
    const uint32_t idle = (uint32_t)(file->words[low] & IDLE_MASK) + file->age_minutes;
    *idle_minutes = idle < IDLE_MASK - 1 ? idle : IDLE_MASK - 1;
    return true;
}

bool use_file_write(struct store *store,
                    enum use_file_moment moment,
                    int64_t since_ns,
                    struct status *status)
{
    char *path = NULL;
    char *new_path = NULL;
    struct status ignored;
    uint64_t used = 0;
    if (used_since(store, since_ns, &used) == 0 && moment == USE_FILE_RUNNING)
        return true;
    struct writer *writer = malloc(sizeof(*writer));
    bool ok = make_paths(store, &path, &new_path) && writer != NULL;
    if (!ok) {
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the file uses");
    } else {
        if (!io_unlink(store->io, new_path, &ignored)) {
            /* None was left by an earlier try. */
        }
        writer->store = store;
        writer->fd = -1;
        ok = io_open(store->io, new_path, IO_OPEN_CREATE_NEW, &writer->fd, status) &&
             write_all(writer, moment, status);
        io_close(store->io, writer->fd);
        ok = ok && io_rename(store->io, new_path, path, status);
    }
    free(writer);
    free(path);
    free(new_path);
    return ok;
}

/* How many entries were used since then; *used: at all. */
static uint64_t used_since(struct store *store, int64_t since_ns, uint64_t *used)
{
    struct blob_use uses[READ_ENTRIES];
    const int64_t minutes = (clock_monotonic_ns(store->clock) - since_ns) / (60 * NS_PER_S) + 1;
    uint64_t recent = 0;
    for (uint64_t cursor = 0; cursor != BLOB_TABLE_END;) {
        const size_t count = blob_table_read_used(store->table, &cursor, uses, READ_ENTRIES);
        for (size_t i = 0; i < count; i++)
            recent += (int64_t)uses[i].idle_minutes <= minutes;
        *used += count;
    }
    return recent;
}

static bool write_all(struct writer *writer, enum use_file_moment moment, struct status *status)
{
    struct store *store = writer->store;
    struct blob_use uses[READ_ENTRIES];
    writer->end = sizeof(struct use_file_header);
    writer->entries = 0;
    writer->crc32c = 0;
    writer->count = 0;
    for (uint64_t cursor = 0; cursor != BLOB_TABLE_END;) {
        const size_t count = blob_table_read_used(store->table, &cursor, uses, READ_ENTRIES);
        if (writer->count + count > PIECE_ENTRIES && !write_piece(writer, status))
            return false;
        for (size_t i = 0; i < count; i++)
            writer->piece[writer->count++] =
                place_pack(uses[i].place) << IDLE_BITS |
                (uses[i].idle_minutes < IDLE_MASK ? uses[i].idle_minutes : IDLE_MASK);
    }
    if (!write_piece(writer, status))
        return false;
    struct use_file_header header = {
        .magic = MAGIC,
        .version = VERSION,
        .complete = moment == USE_FILE_STOP,
        .node_uid = store->node_uid,
        .wall_ns = clock_wall_ns(store->clock),
        .entries = writer->entries,
        .entries_crc32c = writer->crc32c,
    };
    header.header_crc32c =
        crc32c(0, bytes_of(&header, offsetof(struct use_file_header, header_crc32c)));
    const struct iovec part = {.iov_base = &header, .iov_len = sizeof(header)};
    return io_pwritev(store->io, writer->fd, &part, 1, 0, status);
}

static bool write_piece(struct writer *writer, struct status *status)
{
    const struct bytes piece = bytes_of(writer->piece, writer->count * sizeof(writer->piece[0]));
    const struct iovec part = {.iov_base = writer->piece, .iov_len = piece.length};
    if (piece.length == 0)
        return true;
    if (!io_pwritev(writer->store->io, writer->fd, &part, 1, writer->end, status))
        return false;
    writer->crc32c = crc32c(writer->crc32c, piece);
    writer->end += piece.length;
    writer->entries += writer->count;
    writer->count = 0;
    return true;
}

static bool make_paths(const struct store *store, char **path, char **new_path)
{
    if (asprintf(path, "%s/uses", store->directory) < 0)
        *path = NULL;
    if (asprintf(new_path, "%s/uses.new", store->directory) < 0)
        *new_path = NULL;
    return *path != NULL && *new_path != NULL;
}
