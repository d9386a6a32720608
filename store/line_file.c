/* SPDX-License-Identifier: Apache-2.0 */
#include "store/line_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"

/* A space, 8 digits and the end of the line. */
enum { CRC_BYTES = 10, LINE_BYTES_MAX = LINE_FILE_TEXT_BYTES_MAX + CRC_BYTES };

static size_t add_crc(char line[LINE_BYTES_MAX + 1], size_t length);
static bool write_new(struct io *io,
                      const char *path,
                      const char *line,
                      size_t length,
                      struct status *status);

bool line_file_read(struct io *io,
                    const char *directory,
                    const char *name,
                    enum line_file_state *state,
                    char text[LINE_FILE_TEXT_BYTES_MAX + 1],
                    struct status *status)
{
    char *path = NULL;
    char line[LINE_BYTES_MAX + 1]; /* one byte more than it may have, to see that it is longer */
    char again[LINE_BYTES_MAX + 1];
    struct status why;
    size_t got = 0;
    int fd = -1;
    *state = LINE_FILE_ABSENT;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    const bool opened = io_open(io, path, IO_OPEN_READ, &fd, &why);
    free(path);
    if (!opened && why.code == STATUS_NOT_FOUND)
        return true;
    if (!opened) {
        *status = why;
        return false;
    }
    /* What the disk cannot read, not even at the second try, is damaged. */
    const bool readable = io_pread_twice(io, fd, line, sizeof(line), 0, &got, &why);
    io_close(io, fd);
    *state = LINE_FILE_DAMAGED;
    if (!readable || got <= CRC_BYTES || got > LINE_BYTES_MAX || memchr(line, '\0', got) != NULL)
        return true;
    /* It is sound if it is, byte for byte, what would be written for its text. */
    memcpy(again, line, got - CRC_BYTES);
    if (add_crc(again, got - CRC_BYTES) != got || memcmp(again, line, got) != 0)
        return true;
    memcpy(text, line, got - CRC_BYTES);
    text[got - CRC_BYTES] = '\0';
    *state = LINE_FILE_SOUND;
    return true;
}

static size_t add_crc(char line[LINE_BYTES_MAX + 1], size_t length)
{
    const uint32_t crc = crc32c(0, bytes_of(line, length));
    const int added = snprintf(line + length, CRC_BYTES + 1, " %08" PRIx32 "\n", crc);
    ASSERT(added == CRC_BYTES);
    return length + CRC_BYTES;
}

bool line_file_write(struct io *io,
                     const char *directory,
                     const char *name,
                     const char *text,
                     struct status *status)
{
    char *path = NULL;
    char *new_path = NULL;
    char line[LINE_BYTES_MAX + 1];
    const size_t length = strlen(text);
    ASSERT(length <= LINE_FILE_TEXT_BYTES_MAX);
    memcpy(line, text, length + 1);
    const size_t whole = add_crc(line, length);
    bool ok = asprintf(&path, "%s/%s", directory, name) >= 0 &&
              asprintf(&new_path, "%s/%s.new", directory, name) >= 0;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    ok = ok && write_new(io, new_path, line, whole, status) &&
         io_rename(io, new_path, path, status) && io_sync_directory(io, directory, status);
    free(path);
    free(new_path);
    return ok;
}

static bool write_new(struct io *io,
                      const char *path,
                      const char *line,
                      size_t length,
                      struct status *status)
{
    struct status ignored;
    int fd = -1;
    if (!io_unlink(io, path, &ignored)) {
        /* None was left by an earlier start. */
    }
    const struct iovec part = {.iov_base = (void *)(uintptr_t)line, .iov_len = length};
    const bool ok = io_open(io, path, IO_OPEN_CREATE_NEW, &fd, status) &&
                    io_pwritev(io, fd, &part, 1, 0, status) && io_sync(io, fd, status);
    io_close(io, fd);
    return ok;
}
