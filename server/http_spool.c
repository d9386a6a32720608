/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"

static bool to_file(struct http_spool *spool, struct status *status);
static bool write_all(struct http_spool *spool, struct bytes data, struct status *status);
static int open_file(const char *directory);

void http_spool_init(struct http_spool *spool, struct http_spools *common, uint64_t bytes_max)
{
    *spool = (struct http_spool){.common = common,
                                 .bytes_max = bytes_max,
                                 .hasher = hasher_new(DIGEST_FUNCTION_SHA256),
                                 .fd = -1};
}

void http_spool_free(struct http_spool *spool)
{
    if (spool->common == NULL)
        return;
    atomic_fetch_sub(&spool->common->memory_bytes, spool->charged_bytes);
    if (spool->fd >= 0) {
        close(spool->fd);
        atomic_fetch_sub(&spool->common->file_bytes, spool->length);
    }
    hasher_free(spool->hasher);
    byte_builder_free(&spool->memory);
    *spool = (struct http_spool){0};
}

bool http_spool_is_small(const struct http_spool *spool)
{
    return spool->fd < 0;
}

bool http_spool_append(struct http_spool *spool, struct bytes data, struct status *status)
{
    if (data.length > spool->bytes_max - spool->length)
        return status_fail(status, STATUS_OUT_OF_RANGE,
                           "more than the %" PRIu64 " bytes that are taken here", spool->bytes_max);
    hasher_update(spool->hasher, data);
    if (spool->fd < 0) {
        const uint64_t used = atomic_fetch_add(&spool->common->memory_bytes, data.length);
        spool->charged_bytes += data.length;
        if (spool->length + data.length > LIMIT_ACTION_RESULT_BYTES ||
            used + data.length > LIMIT_HTTP_MEMORY_BYTES) {
            if (!to_file(spool, status))
                return false;
        }
    }
    if (spool->fd >= 0)
        return write_all(spool, data, status);
    byte_builder_append(&spool->memory, data);
    spool->length += data.length;
    return !spool->memory.failed ||
           status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a request");
}

/* What is in memory goes first. */
static bool to_file(struct http_spool *spool, struct status *status)
{
    const struct bytes held = bytes_of(spool->memory.data, spool->memory.length);
    spool->fd = open_file(spool->common->directory);
    if (spool->fd < 0) {
        const int error = errno;
        return status_fail_errno(status, error, "a file for what is being sent");
    }
    spool->length = 0;
    const bool ok = write_all(spool, held, status);
    byte_builder_free(&spool->memory);
    atomic_fetch_sub(&spool->common->memory_bytes, spool->charged_bytes);
    spool->charged_bytes = 0;
    return ok;
}

/* Gone with its descriptor, whatever happens. */
static int open_file(const char *directory)
{
    char path[4096];
    const int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || errno == ENOSPC || errno == EMFILE || errno == ENFILE)
        return fd;
    if ((size_t)snprintf(path, sizeof(path), "%s/spool-XXXXXX", directory) >= sizeof(path))
        return -1;
    const int made = mkostemp(path, O_CLOEXEC);
    if (made >= 0)
        unlink(path);
    return made;
}

static bool write_all(struct http_spool *spool, struct bytes data, struct status *status)
{
    const uint64_t used = atomic_fetch_add(&spool->common->file_bytes, data.length);
    spool->length += data.length;
    if (used + data.length > LIMIT_HTTP_SPOOL_BYTES)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "requests of unknown length hold %" PRIu64
                           " bytes already, which is the most; send Content-Length or try later",
                           used);
    uint64_t offset = spool->length - data.length;
    while (data.length > 0) {
        const ssize_t written = pwrite(spool->fd, data.data, data.length, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return status_fail_errno(status, errno, "a file for what is being sent");
        offset += (uint64_t)written;
        data = bytes_of(data.data + written, data.length - (size_t)written);
    }
    return true;
}

void http_spool_digest(struct http_spool *spool, struct digest *digest)
{
    hasher_finish(spool->hasher, digest);
}

bool http_spool_read(const struct http_spool *spool,
                     uint64_t offset,
                     uint8_t *to,
                     size_t length,
                     struct status *status)
{
    ASSERT(offset + length <= spool->length);
    if (spool->fd < 0) {
        memcpy(to, spool->memory.data + offset, length);
        return true;
    }
    while (length > 0) {
        const ssize_t got = pread(spool->fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return status_fail_errno(status, errno, "the file of what was sent");
        if (got == 0)
            return status_fail(status, STATUS_INTERNAL, "the file of what was sent is short");
        offset += (uint64_t)got;
        to += got;
        length -= (size_t)got;
    }
    return true;
}
