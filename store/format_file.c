/* SPDX-License-Identifier: Apache-2.0 */
#include "store/format_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "store/format.h"

/* One byte more than a line may have is read, to see that it is longer. */
enum { LINE_BYTES_MAX = 63 };

static bool parse(const char *line, size_t length, struct format_file *file);
static int print(char line[LINE_BYTES_MAX + 1], unsigned version, uint64_t node_uid);
static bool write_new(struct io *io,
                      const char *path,
                      const char *line,
                      size_t length,
                      struct status *status);

bool format_file_read(struct io *io,
                      const char *directory,
                      struct format_file *file,
                      struct status *status)
{
    char *path = NULL;
    char line[LINE_BYTES_MAX + 1];
    size_t got = 0;
    int fd = -1;
    *file = (struct format_file){.state = FORMAT_FILE_ABSENT};
    if (asprintf(&path, "%s/FORMAT", directory) < 0)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    struct status why;
    const bool opened = io_open(io, path, IO_OPEN_READ, &fd, &why);
    free(path);
    if (!opened) {
        if (why.code == STATUS_NOT_FOUND)
            return true;
        *status = why;
        return false;
    }
    const bool ok = io_pread(io, fd, line, sizeof(line), 0, &got, status);
    io_close(io, fd);
    if (ok)
        file->state = parse(line, got, file) ? FORMAT_FILE_SOUND : FORMAT_FILE_DAMAGED;
    return ok;
}

/* It is sound if and only if it is, byte for byte, what would be written for its numbers. */
static bool parse(const char *line, size_t length, struct format_file *file)
{
    char text[LINE_BYTES_MAX + 1] = {0};
    char again[LINE_BYTES_MAX + 1];
    if (length > LINE_BYTES_MAX)
        return false;
    memcpy(text, line, length);
    static const char name[] = "varve ";
    if (strncmp(text, name, strlen(name)) != 0)
        return false;
    char *rest = NULL;
    file->version = (unsigned)strtoul(text + strlen(name), &rest, 10);
    file->node_uid = strtoull(rest, NULL, 16);
    return print(again, file->version, file->node_uid) == (int)length &&
           memcmp(again, text, length) == 0;
}

static int print(char line[LINE_BYTES_MAX + 1], unsigned version, uint64_t node_uid)
{
    const int length =
        snprintf(line, LINE_BYTES_MAX + 1, "varve %u %016" PRIx64, version, node_uid);
    ASSERT(length > 0 && length < LINE_BYTES_MAX);
    const uint32_t crc = crc32c(0, bytes_of(line, (size_t)length));
    return length +
           snprintf(line + length, (size_t)(LINE_BYTES_MAX + 1 - length), " %08" PRIx32 "\n", crc);
}

bool format_file_write(struct io *io,
                       const char *directory,
                       uint64_t node_uid,
                       struct status *status)
{
    char *path = NULL;
    char *new_path = NULL;
    char line[LINE_BYTES_MAX + 1];
    bool ok = asprintf(&path, "%s/FORMAT", directory) >= 0 &&
              asprintf(&new_path, "%s/FORMAT.new", directory) >= 0;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    const int length = print(line, FORMAT_VERSION, node_uid);
    ok = ok && write_new(io, new_path, line, (size_t)length, status) &&
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
