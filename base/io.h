/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file seam: every byte that store/ puts on or takes from a disk goes through a struct io, so
 * that tests can put a simulated disk (tests/sim/io_sim.h) in its place. RocksDB does its own I/O
 * and is not seen here.
 *
 * The operations in struct io_ops behave like the system calls: they may be short, and fail with
 * -errno. The functions below them loop over short results and EINTR (but never repeat a sync) and
 * turn an errno into a status with the operation's name.
 */
#ifndef VARVE_BASE_IO_H
#define VARVE_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/status.h"

enum io_open_mode {
    IO_OPEN_READ,       /* must exist */
    IO_OPEN_WRITE,      /* read and write; must exist */
    IO_OPEN_CREATE_NEW, /* read and write; must not exist */
};

struct io_space {
    uint64_t total_bytes;
    uint64_t free_bytes; /* to an unprivileged user */
};

struct io;

/* Results: >= 0 is success (a count where one makes sense), < 0 is -errno. */
struct io_ops {
    int (*open)(struct io *io, const char *path, enum io_open_mode mode); /* the descriptor */
    int (*close)(struct io *io, int fd);
    int64_t (*pread)(struct io *io, int fd, void *buffer, size_t length, uint64_t offset);
    /* What is in memory, or -EAGAIN, or 0 which may mean either that or the end of the file; NULL: that is never known. */
    int64_t (*pread_cached)(struct io *io, int fd, void *buffer, size_t length, uint64_t offset);
    int64_t (*pwritev)(struct io *io, int fd, const struct iovec *parts, int n, uint64_t offset);
    int (*sync)(struct io *io, int fd);                      /* fdatasync */
    int (*allocate)(struct io *io, int fd, uint64_t length); /* fallocate from 0; the size grows */
    int (*truncate)(struct io *io, int fd, uint64_t length);
    int (*drop_cache)(struct io *io, int fd); /* posix_fadvise(DONTNEED), whole file */
    int64_t (*size)(struct io *io, int fd);
    int (*rename)(struct io *io, const char *from, const char *to);
    int (*unlink)(struct io *io, const char *path);
    int (*make_directory)(struct io *io, const char *path); /* mode 0750 */
    int (*sync_directory)(struct io *io, const char *path);
    /* Calls `each` for every name but "." and "..", in no order, until it returns false. */
    int (*list)(struct io *io,
                const char *path,
                bool (*each)(void *argument, const char *name),
                void *argument);
    int (*space)(struct io *io, const char *path, struct io_space *space);
    /* Opens or creates, takes an exclusive lock or gives -EWOULDBLOCK; the descriptor. */
    int (*lock)(struct io *io, const char *path);
};

struct io {
    const struct io_ops *ops;
};

/* The real disk. Static storage, any thread. */
struct io *io_posix(void);

/* On false nothing is open. */
MUST_CHECK bool io_open(struct io *io,
                        const char *path,
                        enum io_open_mode mode,
                        int *fd,
                        struct status *status);
void io_close(struct io *io, int fd); /* fd < 0 does nothing */

/* Reads until length or the end of the file; *got tells. length <= SSIZE_MAX. */
MUST_CHECK bool io_pread(struct io *io,
                         int fd,
                         void *buffer,
                         size_t length,
                         uint64_t offset,
                         size_t *got,
                         struct status *status);
/*
 * Between the two, reads by this thread take what is in memory, and so many bytes in all; others fail with UNAVAILABLE, without
 * waiting for the disk. io_cached_end() is true when one did: what was wanted is then done anew where waiting is allowed. Not
 * nested.
 */
void io_cached_begin(uint64_t bytes_max);
bool io_cached_end(void);
bool io_cached_active(void);

/* Once more where the disk fails: a sector that is lost fails again. */
MUST_CHECK bool io_pread_twice(struct io *io,
                               int fd,
                               void *buffer,
                               size_t length,
                               uint64_t offset,
                               size_t *got,
                               struct status *status);

/*
 * Does the disk refuse (EIO), twice in a row, one of the pages that these bytes lie in? For whoever has just failed to read them
 * and has to tell a lost sector from want of memory, or a moment's trouble. Reads them again, page by page; waits for the disk.
 */
bool io_refuses(struct io *io, int fd, uint64_t length, uint64_t offset);

/* Writes all of it or fails. Any count of parts (cut into IOV_MAX); parts are not changed. */
MUST_CHECK bool io_pwritev(struct io *io,
                           int fd,
                           const struct iovec *parts,
                           size_t count,
                           uint64_t offset,
                           struct status *status);

/*
 * A failed sync is final: whoever sees false never syncs, acknowledges or appends on this
 * descriptor again.
 */
MUST_CHECK bool io_sync(struct io *io, int fd, struct status *status);
MUST_CHECK bool io_allocate(struct io *io, int fd, uint64_t length, struct status *status);
MUST_CHECK bool io_truncate(struct io *io, int fd, uint64_t length, struct status *status);
MUST_CHECK bool io_drop_cache(struct io *io, int fd, struct status *status);
MUST_CHECK bool io_size(struct io *io, int fd, uint64_t *size, struct status *status);
MUST_CHECK bool io_rename(struct io *io, const char *from, const char *to, struct status *status);
MUST_CHECK bool io_unlink(struct io *io, const char *path, struct status *status);
/* One that is there already is fine. */
MUST_CHECK bool io_make_directory(struct io *io, const char *path, struct status *status);
MUST_CHECK bool io_sync_directory(struct io *io, const char *path, struct status *status);
MUST_CHECK bool io_list(struct io *io,
                        const char *path,
                        bool (*each)(void *argument, const char *name),
                        void *argument,
                        struct status *status);
MUST_CHECK bool io_space(struct io *io,
                         const char *path,
                         struct io_space *space,
                         struct status *status);
/* FAILED_PRECONDITION when another process holds it. The lock ends with the descriptor. */
MUST_CHECK bool io_lock(struct io *io, const char *path, int *fd, struct status *status);

#endif
