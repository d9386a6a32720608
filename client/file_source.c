/* SPDX-License-Identifier: Apache-2.0 */
#include "client/file_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool hash_all(struct file_source *source,
                     struct hasher *hasher,
                     uint8_t *buffer,
                     struct status *status);
static bool hash_kept(struct file_source *source,
                      enum digest_function function,
                      struct digest *digest,
                      struct status *status);
static bool read_exactly(const struct file_source *source,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status);
static bool read_for_upload(void *argument,
                            uint64_t offset,
                            uint8_t *to,
                            size_t length,
                            struct status *status);
static bool changed(const struct file_source *source, struct status *status);
static size_t printable_length(const uint8_t *bytes, size_t left);

bool file_source_init(struct file_source *source, int fd, const char *name, struct status *status)
{
    *source = (struct file_source){.fd = fd};
    file_name_text(name, source->name, sizeof(source->name));
    if (fstat(fd, &source->stat) != 0)
        return status_fail_errno(status, errno, "%s", source->name);
    if (!S_ISREG(source->stat.st_mode))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: not a regular file", source->name);
    return true;
}

void file_source_destroy(struct file_source *source)
{
    free(source->kept);
    source->kept = NULL;
}

bool file_source_digest(struct file_source *source,
                        enum digest_function function,
                        uint8_t *buffer,
                        struct digest *digest,
                        struct status *status)
{
    const uint64_t size_bytes = (uint64_t)source->stat.st_size;
    if (size_bytes <= FILE_SOURCE_KEPT_BYTES)
        source->kept = malloc((size_t)size_bytes + 1);
    if (source->kept != NULL) /* without memory it is read again */
        return hash_kept(source, function, digest, status);
    struct hasher *hasher = hasher_new(function);
    const bool ok = hash_all(source, hasher, buffer, status) && file_source_check(source, status);
    if (ok)
        hasher_finish(hasher, digest);
    hasher_free(hasher);
    return ok;
}

/* Most files of a tree come this way: read to where they stay, and hashed there. */
static bool hash_kept(struct file_source *source,
                      enum digest_function function,
                      struct digest *digest,
                      struct status *status)
{
    const size_t length = (size_t)source->stat.st_size;
    if (!read_exactly(source, 0, source->kept, length, status) ||
        !file_source_check(source, status))
        return false;
    digest_of_bytes(function, bytes_of(source->kept, length), digest);
    return true;
}

static bool hash_all(struct file_source *source,
                     struct hasher *hasher,
                     uint8_t *buffer,
                     struct status *status)
{
    const uint64_t size_bytes = (uint64_t)source->stat.st_size;
    for (uint64_t offset = 0; offset < size_bytes;) {
        const uint64_t left = size_bytes - offset;
        const size_t length = left < FILE_SOURCE_KEPT_BYTES ? (size_t)left : FILE_SOURCE_KEPT_BYTES;
        if (!read_exactly(source, offset, buffer, length, status))
            return false;
        hasher_update(hasher, bytes_of(buffer, length));
        offset += length;
        if (source->tick != NULL)
            source->tick(source->tick_argument);
    }
    return true;
}

static bool read_exactly(const struct file_source *source,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status)
{
    for (size_t got = 0; got < length;) {
        const ssize_t n = pread(source->fd, to + got, length - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail_errno(status, errno, "%s", source->name);
        if (n == 0)
            return changed(source, status);
        got += (size_t)n;
    }
    return true;
}

bool file_source_check(const struct file_source *source, struct status *status)
{
    struct stat now;
    if (fstat(source->fd, &now) != 0)
        return status_fail_errno(status, errno, "%s", source->name);
    const struct stat *then = &source->stat;
    if (now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return true;
    return changed(source, status);
}

static bool changed(const struct file_source *source, struct status *status)
{
    return status_fail(status, STATUS_ABORTED,
                       "%s: changed while it was read; try again when nobody writes to it",
                       source->name);
}

struct upload_source file_source_upload(struct file_source *source)
{
    return (struct upload_source){.read = read_for_upload, .argument = source};
}

static bool read_for_upload(void *argument,
                            uint64_t offset,
                            uint8_t *to,
                            size_t length,
                            struct status *status)
{
    const struct file_source *source = argument;
    if (source->kept != NULL) {
        ASSERT(offset + length <= (uint64_t)source->stat.st_size);
        memcpy(to, source->kept + offset, length);
        return true;
    }
    return read_exactly(source, offset, to, length, status) && file_source_check(source, status);
}

const char *file_name_text(const char *name, char *text, size_t capacity)
{
    static const char cut[] = "...";
    ASSERT(capacity > sizeof(cut) + 4);
    const uint8_t *bytes = (const uint8_t *)name;
    const size_t length = strlen(name);
    /*
     * In the worst case a byte becomes four; cutting by bytes is coarse, but what is cut is the
     * least telling part.
     */
    size_t start = 0;
    size_t room = capacity - sizeof(cut);
    size_t needed = 0;
    for (size_t i = length; i > 0 && start == 0; i--) {
        const uint8_t byte = bytes[i - 1];
        needed += byte < 0x20 || byte >= 0x7f || byte == '\\' ? 4 : 1;
        if (needed > room)
            start = i;
    }
    size_t at = 0;
    if (start > 0) {
        memcpy(text, cut, sizeof(cut) - 1);
        at = sizeof(cut) - 1;
    }
    for (size_t i = start; i < length;) {
        const size_t printable = printable_length(bytes + i, length - i);
        if (printable == 1 && bytes[i] == '\\') {
            text[at++] = '\\';
            text[at++] = '\\';
            i++;
        } else if (printable > 0) {
            memcpy(text + at, bytes + i, printable);
            at += printable;
            i += printable;
        } else {
            at += (size_t)snprintf(text + at, 5, "\\x%02x", bytes[i]);
            i++;
        }
    }
    ASSERT(at < capacity);
    text[at] = '\0';
    return text;
}

/* The length of the printable UTF-8 character at the start, or 0. */
static size_t printable_length(const uint8_t *bytes, size_t left)
{
    if (bytes[0] < 0x80)
        return bytes[0] >= 0x20 && bytes[0] != 0x7f ? 1 : 0;
    for (size_t length = 2; length <= 4 && length <= left; length++) {
        const bool control =
            length == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0; /* U+0080 to U+009F */
        if (bytes_is_utf8(bytes_of(bytes, length)))
            return control ? 0 : length;
    }
    return 0;
}
