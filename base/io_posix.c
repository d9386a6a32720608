/* SPDX-License-Identifier: Apache-2.0 */
/* The real disk behind the seam of base/io.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/io.h"

enum { FILE_MODE = 0640, DIRECTORY_MODE = 0750 };

/* What the system call returned, or -errno. */
static int result_of(int returned)
{
    return returned < 0 ? -errno : returned;
}

static int posix_open(struct io *io, const char *path, enum io_open_mode mode)
{
    (void)io;
    switch (mode) {
    case IO_OPEN_READ:
        return result_of(open(path, O_RDONLY | O_CLOEXEC));
    case IO_OPEN_WRITE:
        return result_of(open(path, O_RDWR | O_CLOEXEC));
    case IO_OPEN_CREATE_NEW:
        return result_of(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE));
    }
    return -EINVAL;
}

static int posix_close(struct io *io, int fd)
{
    (void)io;
    return result_of(close(fd));
}

static int64_t posix_pread(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    (void)io;
    if (offset > INT64_MAX)
        return -EINVAL;
    const ssize_t got = pread(fd, buffer, length, (off_t)offset);
    return got < 0 ? -errno : got;
}

static int64_t posix_pread_cached(struct io *io,
                                  int fd,
                                  void *buffer,
                                  size_t length,
                                  uint64_t offset)
{
    (void)io;
    if (offset > INT64_MAX)
        return -EINVAL;
    const struct iovec part = {.iov_base = buffer, .iov_len = length};
    const ssize_t got = preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);
    return got < 0 ? -errno : got;
}

static int64_t posix_pwritev(struct io *io,
                             int fd,
                             const struct iovec *parts,
                             int count,
                             uint64_t offset)
{
    (void)io;
    if (offset > INT64_MAX)
        return -EFBIG;
    const ssize_t written = pwritev(fd, parts, count, (off_t)offset);
    return written < 0 ? -errno : written;
}

static int posix_sync(struct io *io, int fd)
{
    (void)io;
    return result_of(fdatasync(fd));
}

static int posix_allocate(struct io *io, int fd, uint64_t length)
{
    (void)io;
    if (length == 0)
        return 0;
    if (length > INT64_MAX)
        return -EFBIG;
    /* And not fallocate(): glibc makes up for file systems that cannot. */
    return -posix_fallocate(fd, 0, (off_t)length);
}

static int posix_truncate(struct io *io, int fd, uint64_t length)
{
    (void)io;
    if (length > INT64_MAX)
        return -EFBIG;
    return result_of(ftruncate(fd, (off_t)length));
}

static int posix_drop_cache(struct io *io, int fd)
{
    (void)io;
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int64_t posix_size(struct io *io, int fd)
{
    (void)io;
    struct stat stat;
    return fstat(fd, &stat) < 0 ? -errno : stat.st_size;
}

static int posix_rename(struct io *io, const char *from, const char *to)
{
    (void)io;
    return result_of(rename(from, to));
}

static int posix_unlink(struct io *io, const char *path)
{
    (void)io;
    return result_of(unlink(path));
}

static int posix_make_directory(struct io *io, const char *path)
{
    (void)io;
    return result_of(mkdir(path, DIRECTORY_MODE));
}

static int posix_sync_directory(struct io *io, const char *path)
{
    (void)io;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int result = result_of(fsync(fd));
    close(fd);
    return result;
}

static int posix_list(struct io *io,
                      const char *path,
                      bool (*each)(void *argument, const char *name),
                      void *argument)
{
    (void)io;
    DIR *const directory = opendir(path);
    if (directory == NULL)
        return -errno;
    int result = 0;
    while (true) {
        errno = 0;
        const struct dirent *const entry = readdir(directory);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!each(argument, entry->d_name))
            break;
    }
    closedir(directory);
    return result;
}

static int posix_space(struct io *io, const char *path, struct io_space *space)
{
    (void)io;
    struct statvfs numbers;
    if (statvfs(path, &numbers) < 0)
        return -errno;
    *space = (struct io_space){
        .total_bytes = (uint64_t)numbers.f_blocks * numbers.f_frsize,
        .free_bytes = (uint64_t)numbers.f_bavail * numbers.f_frsize,
    };
    return 0;
}

static int posix_lock(struct io *io, const char *path)
{
    (void)io;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const int result = -errno;
        close(fd);
        return result;
    }
    return fd;
}

static const struct io_ops posix_ops = {
    .open = posix_open,
    .close = posix_close,
    .pread = posix_pread,
    .pread_cached = posix_pread_cached,
    .pwritev = posix_pwritev,
    .sync = posix_sync,
    .allocate = posix_allocate,
    .truncate = posix_truncate,
    .drop_cache = posix_drop_cache,
    .size = posix_size,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .make_directory = posix_make_directory,
    .sync_directory = posix_sync_directory,
    .list = posix_list,
    .space = posix_space,
    .lock = posix_lock,
};

struct io *io_posix(void)
{
    static struct io posix = {.ops = &posix_ops};
    return &posix;
}
