/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/file_source.h"

#define STAGING_PREFIX ".varve-pull-"
enum { STAGING_NAME_BYTES = sizeof(STAGING_PREFIX) + 16, TEMPORARY_NAME_BYTES = 24 };

struct tree_place {
    struct tree_writer *writer; /* borrowed */
    struct tree_place *parent;  /* a reference of its own; NULL: the root */
    char *name;                 /* owned; NULL: the root */
    unsigned references;
    unsigned depth;
    int fd;                           /* owned; -1 while it is closed to save descriptors */
    struct tree_place *newer, *older; /* the open ones, by use */
};

struct tree_writer {
    int root_fd;                      /* owned */
    int staging_fd;                   /* owned; -1: there is none */
    char staging[STAGING_NAME_BYTES]; /* its name in the root */
    uint64_t next_number;
    struct tree_place *newest, *oldest; /* open places but for the root */
    size_t open_count;
};

static bool open_root(struct tree_writer *writer, const char *path, struct status *status);
static void remove_stale_staging(const struct tree_writer *writer);
static bool make_staging(struct tree_writer *writer, struct status *status);
static void remove_staging(int root_fd, int staging_fd, const char *name);
static bool place_new(struct tree_writer *writer,
                      struct tree_place *parent,
                      const char *name,
                      struct tree_place **place,
                      struct status *status);
static int place_fd(struct tree_place *place);
static bool place_open(struct tree_place *place);
static void place_use(struct tree_place *place);
static void place_close(struct tree_place *place);
static bool fail_at(struct tree_place *place,
                    const char *name,
                    int error_number,
                    struct status *status);
static const char *temporary_name(uint64_t number, char name[TEMPORARY_NAME_BYTES]);

bool tree_writer_open(const char *path,
                      struct tree_writer **writer_out,
                      struct tree_place **root,
                      struct status *status)
{
    struct tree_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to write a tree");
    writer->root_fd = writer->staging_fd = -1;
    if (!open_root(writer, path, status))
        goto fail;
    remove_stale_staging(writer);
    if (!make_staging(writer, status))
        goto fail;
    if (!place_new(writer, NULL, NULL, root, status))
        goto fail;
    *writer_out = writer;
    return true;
fail:
    tree_writer_close(writer);
    return false;
}

static bool open_root(struct tree_writer *writer, const char *path, struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return status_fail_errno(status, errno, "%s", file_name_text(path, text, sizeof(text)));
    writer->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->root_fd < 0)
        return status_fail_errno(status, errno, "%s", file_name_text(path, text, sizeof(text)));
    return true;
}

/* A living writer holds a lock on its staging directory; the kernel lets go of a dead one's. */
static void remove_stale_staging(const struct tree_writer *writer)
{
    const int fd = openat(writer->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        if (strncmp(entry->d_name, STAGING_PREFIX, sizeof(STAGING_PREFIX) - 1) != 0)
            continue;
        const int staging =
            openat(writer->root_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (staging < 0)
            continue;
        if (flock(staging, LOCK_EX | LOCK_NB) == 0)
            remove_staging(writer->root_fd, staging, entry->d_name);
        close(staging);
    }
    closedir(stream);
}

static bool make_staging(struct tree_writer *writer, struct status *status)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return status_fail_errno(status, errno, "a random name");
    snprintf(writer->staging, sizeof(writer->staging), STAGING_PREFIX "%016" PRIx64, random);
    if (mkdirat(writer->root_fd, writer->staging, 0700) != 0)
        return status_fail_errno(status, errno, "make a directory for files in the making");
    writer->staging_fd =
        openat(writer->root_fd, writer->staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (writer->staging_fd < 0 || flock(writer->staging_fd, LOCK_EX | LOCK_NB) != 0)
        return status_fail_errno(status, errno, "the directory for files in the making");
    return true;
}

void tree_writer_close(struct tree_writer *writer)
{
    if (writer == NULL)
        return;
    ASSERT(writer->newest == NULL && writer->open_count == 0);
    if (writer->staging_fd >= 0) {
        remove_staging(writer->root_fd, writer->staging_fd, writer->staging);
        close(writer->staging_fd);
    }
    if (writer->root_fd >= 0)
        close(writer->root_fd);
    free(writer);
}

/* Files only are in it. What cannot be removed stays, for the next writer. */
static void remove_staging(int root_fd, int staging_fd, const char *name)
{
    const int fd = openat(staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL && fd >= 0)
        close(fd);
    if (stream != NULL) {
        for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream))
            unlinkat(staging_fd, entry->d_name, 0);
        closedir(stream);
    }
    unlinkat(root_fd, name, AT_REMOVEDIR);
}

bool tree_writer_directory(struct tree_writer *writer,
                           struct tree_place *parent,
                           const char *name,
                           struct tree_place **place_out,
                           struct status *status)
{
    const int parent_fd = place_fd(parent);
    if (parent_fd < 0)
        return fail_at(parent, NULL, errno, status);
    if (mkdirat(parent_fd, name, 0777) != 0 && errno != EEXIST)
        return fail_at(parent, name, errno, status);
    struct tree_place *place;
    if (!place_new(writer, parent, name, &place, status))
        return false;
    if (!place_open(place)) {
        const int error_number = errno;
        tree_place_unref(place);
        return fail_at(parent, name, error_number, status);
    }
    *place_out = place;
    return true;
}

static bool place_new(struct tree_writer *writer,
                      struct tree_place *parent,
                      const char *name,
                      struct tree_place **place_out,
                      struct status *status)
{
    if (parent != NULL && parent->depth == TREE_WRITER_DEPTH_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "the tree is more than %d deep",
                           TREE_WRITER_DEPTH_MAX);
    struct tree_place *place = calloc(1, sizeof(*place));
    char *name_copy = name != NULL ? strdup(name) : NULL;
    if (place == NULL || (name != NULL && name_copy == NULL)) {
        free(place);
        free(name_copy);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to write a tree");
    }
    *place = (struct tree_place){.writer = writer,
                                 .parent = parent,
                                 .name = name_copy,
                                 .references = 1,
                                 .depth = parent != NULL ? parent->depth + 1 : 0,
                                 .fd = -1};
    if (parent != NULL)
        tree_place_ref(parent);
    *place_out = place;
    return true;
}

void tree_place_ref(struct tree_place *place)
{
    place->references++;
}

void tree_place_unref(struct tree_place *place)
{
    while (place != NULL && --place->references == 0) {
        struct tree_place *parent = place->parent;
        place_close(place);
        free(place->name);
        free(place);
        place = parent;
    }
}

char *tree_place_path(const struct tree_place *place, const char *name)
{
    size_t length = name != NULL ? strlen(name) + 1 : 1;
    for (const struct tree_place *at = place; at->parent != NULL; at = at->parent)
        length += strlen(at->name) + 1;
    char *path = malloc(length + 1);
    if (path == NULL)
        return NULL;
    char *end = path + length;
    *end = '\0';
    const char *part = name;
    for (const struct tree_place *at = place;; at = at->parent) {
        if (part != NULL) {
            const size_t part_length = strlen(part);
            if (*end != '\0')
                *--end = '/';
            end -= part_length;
            memcpy(end, part, part_length);
        }
        if (at->parent == NULL)
            break;
        part = at->name;
    }
    memmove(path, end, strlen(end) + 1);
    return path;
}

/* -1 with errno. The descriptor is the place's, and good until another place is asked for. */
static int place_fd(struct tree_place *place)
{
    if (place->parent == NULL)
        return place->writer->root_fd;
    if (place->fd < 0 && !place_open(place))
        return -1;
    place_use(place);
    return place->fd;
}

/* From the nearest directory above it that is open, through each of those between, no link. */
static bool place_open(struct tree_place *place)
{
    struct tree_place *above = place->parent;
    size_t closed = 0; /* between the open one and the place */
    while (above->parent != NULL && above->fd < 0) {
        above = above->parent;
        closed++;
    }
    int fd = above->parent == NULL ? place->writer->root_fd : above->fd;
    const int start_fd = fd;
    for (size_t down = closed + 1; down > 0; down--) {
        const struct tree_place *step = place;
        for (size_t up = 1; up < down; up++)
            step = step->parent;
        const int next = openat(fd, step->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        const int error_number = errno;
        if (fd != start_fd)
            close(fd);
        if (next < 0) {
            errno = error_number == ELOOP ? ENOTDIR : error_number;
            return false;
        }
        fd = next;
    }
    place->fd = fd;
    place->writer->open_count++;
    place->older = place->writer->newest;
    if (place->older != NULL)
        place->older->newer = place;
    else
        place->writer->oldest = place;
    place->writer->newest = place;
    if (place->writer->open_count > TREE_WRITER_DESCRIPTORS_MAX)
        place_close(place->writer->oldest);
    return true;
}

/* Makes an open one the newest. */
static void place_use(struct tree_place *place)
{
    struct tree_writer *writer = place->writer;
    if (writer->newest == place)
        return;
    ASSERT(place->newer != NULL && writer->newest != NULL); /* it is open, so it is in the list */
    place->newer->older = place->older;
    if (place->older != NULL)
        place->older->newer = place->newer;
    else
        writer->oldest = place->newer;
    place->newer = NULL;
    place->older = writer->newest;
    place->older->newer = place;
    writer->newest = place;
}

static void place_close(struct tree_place *place)
{
    struct tree_writer *writer = place->writer;
    if (place->fd < 0)
        return;
    close(place->fd);
    place->fd = -1;
    writer->open_count--;
    if (place->newer != NULL)
        place->newer->older = place->older;
    else
        writer->newest = place->older;
    if (place->older != NULL)
        place->older->newer = place->newer;
    else
        writer->oldest = place->newer;
    place->newer = place->older = NULL;
}

bool tree_writer_symlink(struct tree_writer *writer,
                         struct tree_place *place,
                         const char *name,
                         const char *target,
                         struct status *status)
{
    char temporary[TEMPORARY_NAME_BYTES];
    temporary_name(writer->next_number++, temporary);
    const int fd = place_fd(place);
    if (fd < 0)
        return fail_at(place, NULL, errno, status);
    if (symlinkat(target, writer->staging_fd, temporary) != 0)
        return fail_at(place, name, errno, status);
    if (renameat(writer->staging_fd, temporary, fd, name) == 0)
        return true;
    const int error_number = errno;
    unlinkat(writer->staging_fd, temporary, 0);
    return fail_at(place, name, error_number, status);
}

bool tree_writer_begin(struct tree_writer *writer,
                       enum tree_file_kind kind,
                       struct tree_file *file,
                       struct status *status)
{
    char temporary[TEMPORARY_NAME_BYTES];
    ASSERT(!file->is_open);
    file->number = writer->next_number++;
    file->fd = openat(writer->staging_fd, temporary_name(file->number, temporary),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      kind == TREE_FILE_EXECUTABLE ? 0777 : 0666);
    file->is_open = file->fd >= 0;
    return file->is_open || status_fail_errno(status, errno, "make a file");
}

bool tree_file_write(const struct tree_file *file, struct bytes bytes, struct status *status)
{
    while (bytes.length > 0) {
        const ssize_t put = write(file->fd, bytes.data, bytes.length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return status_fail_errno(status, errno, "write a file");
        bytes = bytes_of(bytes.data + put, bytes.length - (size_t)put);
    }
    return true;
}

bool tree_writer_commit(struct tree_writer *writer,
                        struct tree_file *file,
                        struct tree_place *place,
                        const char *name,
                        struct status *status)
{
    char temporary[TEMPORARY_NAME_BYTES];
    ASSERT(file->is_open);
    file->is_open = false;
    /* Some file systems tell here that the disk is full. */
    int error_number = close(file->fd) != 0 ? errno : 0;
    const int fd = error_number == 0 ? place_fd(place) : -1;
    if (error_number == 0 &&
        (fd < 0 ||
         renameat(writer->staging_fd, temporary_name(file->number, temporary), fd, name) != 0))
        error_number = errno;
    if (error_number == 0)
        return true;
    unlinkat(writer->staging_fd, temporary_name(file->number, temporary), 0);
    return fail_at(place, name, error_number, status);
}

void tree_writer_drop(struct tree_writer *writer, struct tree_file *file)
{
    char temporary[TEMPORARY_NAME_BYTES];
    if (!file->is_open)
        return;
    file->is_open = false;
    close(file->fd);
    unlinkat(writer->staging_fd, temporary_name(file->number, temporary), 0);
}

/* Never NOT_FOUND: that is for blobs. */
static bool fail_at(struct tree_place *place,
                    const char *name,
                    int error_number,
                    struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    char *path = tree_place_path(place, name);
    status_fail_errno(status, error_number, "%s",
                      path == NULL      ? "a file of the tree"
                      : path[0] == '\0' ? "."
                                        : file_name_text(path, text, sizeof(text)));
    if (status->code == STATUS_NOT_FOUND)
        status->code = STATUS_INTERNAL;
    free(path);
    return false;
}

static const char *temporary_name(uint64_t number, char name[TEMPORARY_NAME_BYTES])
{
    snprintf(name, TEMPORARY_NAME_BYTES, "%" PRIu64, number);
    return name;
}
