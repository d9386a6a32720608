/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include "base/compiler.h"

bool io_open(struct io *io,
             const char *path,
             enum io_open_mode mode,
             int *fd,
             struct status *status)
{
    int result;
    do
        result = io->ops->open(io, path, mode);
    while (result == -EINTR);
    if (result < 0)
        return status_fail_errno(status, -result, "open %s", path);
    *fd = result;
    return true;
}

void io_close(struct io *io, int fd)
{
    if (fd < 0)
        return;
    /* What had to be kept was synced and checked before; nothing can be done about the rest, and
     * Linux frees the descriptor even when it reports an error. */
    const int result = io->ops->close(io, fd);
    (void)result;
}

static _Thread_local struct {
    bool active, refused;
    uint64_t left_bytes;
} cached;

void io_cached_begin(uint64_t bytes_max)
{
    ASSERT(!cached.active);
    cached.active = true;
    cached.refused = false;
    cached.left_bytes = bytes_max;
}

bool io_cached_end(void)
{
    ASSERT(cached.active);
    cached.active = false;
    return cached.refused;
}

bool io_cached_active(void)
{
    return cached.active;
}

static int64_t pread_cached(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    int64_t result = -EAGAIN;
    if (length <= cached.left_bytes && io->ops->pread_cached != NULL)
        result = io->ops->pread_cached(io, fd, buffer, length, offset);
    /* Linux 5.9 and 5.10 say so of what is not in memory, too: whoever believed it would take a record for cut off, and forget it. */
    if (result == 0)
        result = -EAGAIN;
    if (result > 0)
        cached.left_bytes -= (uint64_t)result;
    cached.refused |= result < 0 && result != -EINTR;
    return result;
}

bool io_pread(struct io *io,
              int fd,
              void *buffer,
              size_t length,
              uint64_t offset,
              size_t *got,
              struct status *status)
{
    ASSERT(length <= SSIZE_MAX);
    size_t done = 0;
    while (done < length) {
        char *const to = (char *)buffer + done;
        const int64_t result = cached.active
                                   ? pread_cached(io, fd, to, length - done, offset + done)
                                   : io->ops->pread(io, fd, to, length - done, offset + done);
        if (result == -EINTR)
            continue;
        if (result < 0 && cached.active)
            return status_fail(status, STATUS_UNAVAILABLE,
                               "%zu bytes at %" PRIu64 " are not in memory", length - done,
                               offset + done);
        if (result < 0)
            return status_fail_errno(status, (int)-result, "read of %zu bytes at %" PRIu64,
                                     length - done, offset + done);
        if (result == 0)
            break;
        ASSERT((uint64_t)result <= length - done);
        done += (size_t)result;
    }
    *got = done;
    return true;
}

bool io_pread_twice(struct io *io,
                    int fd,
                    void *buffer,
                    size_t length,
                    uint64_t offset,
                    size_t *got,
                    struct status *status)
{
    bool ok = false;
    for (int tries = 0; !ok && tries < 2; tries++)
        ok = io_pread(io, fd, buffer, length, offset, got, status);
    return ok;
}

bool io_refuses(struct io *io, int fd, uint64_t length, uint64_t offset)
{
    enum { PAGE_BYTES = 4096 };
    ASSERT(!cached.active);
    uint8_t page[PAGE_BYTES];
    for (uint64_t at = offset; at < offset + length;) {
        const uint64_t page_end = at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
        const uint64_t end = page_end < offset + length ? page_end : offset + length;
        int refused = 0;
        while (refused < 2 && io->ops->pread(io, fd, page, (size_t)(end - at), at) == -EIO)
            refused++;
        if (refused == 2)
            return true;
        at = end;
    }
    return false;
}

bool io_pwritev(struct io *io,
                int fd,
                const struct iovec *parts,
                size_t count,
                uint64_t offset,
                struct status *status)
{
    size_t index = 0;   /* of the first part that is not all written */
    size_t written = 0; /* of that part */

    while (true) {
        while (index < count && parts[index].iov_len == written) {
            index++;
            written = 0;
        }
        if (index == count)
            return true;

        /* What a short write left of a part goes alone, so that the caller's parts need no copy. */
        const struct iovec rest = {
            .iov_base = (char *)parts[index].iov_base + written,
            .iov_len = parts[index].iov_len - written,
        };
        const size_t left = count - index;
        const int64_t result = written > 0
                                   ? io->ops->pwritev(io, fd, &rest, 1, offset)
                                   : io->ops->pwritev(io, fd, parts + index,
                                                      left < IOV_MAX ? (int)left : IOV_MAX, offset);
        if (result == -EINTR)
            continue;
        if (result < 0)
            return status_fail_errno(status, (int)-result, "write at %" PRIu64, offset);
        if (result == 0) /* there was something to write; asking again could go on for ever */
            return status_fail_errno(status, EIO, "write at %" PRIu64 " makes no progress", offset);

        offset += (uint64_t)result;
        size_t progress = (size_t)result;
        while (progress > 0) {
            ASSERT(index < count);
            const size_t part_left = parts[index].iov_len - written;
            const size_t step = progress < part_left ? progress : part_left;
            progress -= step;
            written += step;
            if (written == parts[index].iov_len) {
                index++;
                written = 0;
            }
        }
    }
}

bool io_sync(struct io *io, int fd, struct status *status)
{
    /*
     * Not repeated on EINTR either: after any failure the kernel may call pages clean that never
     * reached the disk.
     */
    const int result = io->ops->sync(io, fd);
    return result >= 0 || status_fail_errno(status, -result, "sync");
}

bool io_allocate(struct io *io, int fd, uint64_t length, struct status *status)
{
    int result;
    do
        result = io->ops->allocate(io, fd, length);
    while (result == -EINTR);
    return result >= 0 || status_fail_errno(status, -result, "allocate %" PRIu64 " bytes", length);
}

bool io_truncate(struct io *io, int fd, uint64_t length, struct status *status)
{
    int result;
    do
        result = io->ops->truncate(io, fd, length);
    while (result == -EINTR);
    return result >= 0 ||
           status_fail_errno(status, -result, "truncate to %" PRIu64 " bytes", length);
}

bool io_drop_cache(struct io *io, int fd, struct status *status)
{
    const int result = io->ops->drop_cache(io, fd);
    return result >= 0 || status_fail_errno(status, -result, "drop the page cache");
}

bool io_size(struct io *io, int fd, uint64_t *size, struct status *status)
{
    const int64_t result = io->ops->size(io, fd);
    if (result < 0)
        return status_fail_errno(status, (int)-result, "size of a file");
    *size = (uint64_t)result;
    return true;
}

bool io_rename(struct io *io, const char *from, const char *to, struct status *status)
{
    const int result = io->ops->rename(io, from, to);
    return result >= 0 || status_fail_errno(status, -result, "rename %s to %s", from, to);
}

bool io_unlink(struct io *io, const char *path, struct status *status)
{
    const int result = io->ops->unlink(io, path);
    return result >= 0 || status_fail_errno(status, -result, "unlink %s", path);
}

bool io_make_directory(struct io *io, const char *path, struct status *status)
{
    const int result = io->ops->make_directory(io, path);
    return result >= 0 || result == -EEXIST ||
           status_fail_errno(status, -result, "make directory %s", path);
}

bool io_sync_directory(struct io *io, const char *path, struct status *status)
{
    const int result = io->ops->sync_directory(io, path);
    return result >= 0 || status_fail_errno(status, -result, "sync directory %s", path);
}

bool io_list(struct io *io,
             const char *path,
             bool (*each)(void *argument, const char *name),
             void *argument,
             struct status *status)
{
    const int result = io->ops->list(io, path, each, argument);
    return result >= 0 || status_fail_errno(status, -result, "list %s", path);
}

bool io_space(struct io *io, const char *path, struct io_space *space, struct status *status)
{
    const int result = io->ops->space(io, path, space);
    return result >= 0 || status_fail_errno(status, -result, "free space at %s", path);
}

bool io_lock(struct io *io, const char *path, int *fd, struct status *status)
{
    int result;
    do
        result = io->ops->lock(io, path);
    while (result == -EINTR);
    if (result == -EWOULDBLOCK)
        return status_fail(status, STATUS_FAILED_PRECONDITION, "lock %s: another process holds it",
                           path);
    if (result < 0)
        return status_fail_errno(status, -result, "lock %s", path);
    *fd = result;
    return true;
}
