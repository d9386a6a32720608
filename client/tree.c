/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/name_escape.h"
#include "proto/hot_messages.h"
#include "proto/wire.h"

/* Directory, FileNode, DirectoryNode, SymlinkNode */
enum {
    FIELD_FILES = 1,
    FIELD_DIRECTORIES = 2,
    FIELD_SYMLINKS = 3,
    FIELD_NAME = 1,
    FIELD_DIGEST = 2,
    FIELD_TARGET = 2,
    FIELD_IS_EXECUTABLE = 4,
};

/*
 * A descriptor for the file being read, one for a directory being listed, one for the root, the rest
 * for directories on the way.
 */
enum { OPEN_LEVELS_MAX = TREE_DESCRIPTORS_MAX - 5 };

enum { TICK_FILES = 16 };

struct growing {
    uint8_t *data; /* owned */
    size_t length, capacity;
};

struct name {
    char *actual; /* owned; on this disk */
    char *stored; /* in the Directory: owned, or the same pointer */
    bool
        is_file; /* it was a regular file when the directory was read: no need to ask before opening */
};

/* A directory on the way from the root to where the walk is. */
struct level {
    struct level *parent; /* owned by the walk, as the whole chain is */
    size_t depth;         /* 0: the root */
    int fd;               /* owned; -1 while it is closed to save descriptors */
    dev_t device;
    ino_t inode;
    bool through_link;  /* ".." does not lead to the parent */
    bool left_out;      /* it could not be listed, and that is no problem */
    size_t path_length; /* of the walk's path up to this directory */

    struct name *names; /* owned; sorted by what is stored */
    size_t name_count, next_name;

    struct growing files, directories, symlinks; /* encoded nodes, each list in order */
};

struct walk {
    const struct tree_visitor *visitor;
    unsigned options; /* of enum tree_option */
    int root_fd;      /* owned; -1 without TREE_FOLLOW */
    struct tree_totals *totals;
    struct level *level; /* where the walk is */
    struct growing path; /* of it, relative to the root, with a NUL */
    uint8_t *buffer;     /* owned; FILE_SOURCE_KEPT_BYTES */
};

static bool walk_all(struct walk *walk,
                     const char *root_path,
                     struct digest *root,
                     struct status *status);
static bool step(struct walk *walk, struct status *status);
static bool enter(struct walk *walk, int fd, struct status *status);
static bool leave(struct walk *walk, struct digest *digest, struct status *status);
static bool list_names(struct walk *walk, struct level *level, struct status *status);
static bool collect_names(const struct walk *walk,
                          DIR *stream,
                          struct level *level,
                          int *error,
                          struct status *status);
static bool add_name(const struct walk *walk,
                     struct level *level,
                     const struct dirent *entry,
                     struct status *status);
static int compare_names(const void *a, const void *b);
static bool visit_name(struct walk *walk, const struct name *name, struct status *status);
static bool visit_file(struct walk *walk,
                       const struct name *name,
                       bool through_link,
                       struct status *status);
static bool take_file(struct walk *walk, const struct name *name, int fd, struct status *status);
static bool add_file(struct walk *walk,
                     const char *name,
                     const struct digest *digest,
                     bool executable,
                     struct status *status);
static bool visit_directory(struct walk *walk,
                            const char *name,
                            bool through_link,
                            struct status *status);
static bool leads_back(const struct walk *walk, int fd);
static bool visit_symlink(struct walk *walk, const struct name *name, struct status *status);
static bool add_symlink(struct walk *walk,
                        const char *name,
                        const char *target,
                        size_t length,
                        struct status *status);
static bool back_to_parent(struct walk *walk, struct status *status);
static void close_far_level(struct level *level);
static void level_free(struct level *level);
static bool push_name(struct walk *walk, const char *name, struct status *status);
static void pop_name(struct walk *walk);
static void problem(struct walk *walk, const char *name, const char *what);
static bool unreadable(struct walk *walk, const char *name, int error_number);
static void special(struct walk *walk, const char *name, const char *what);
static void say_of(const struct walk *walk,
                   const char *name,
                   const char *what,
                   struct status *said);
static int open_along(int root_fd, const char *path, int follow, int last_flags);
static uint8_t *grow(struct growing *growing, size_t added);
static bool no_memory(struct status *status);

bool tree_walk(const char *path,
               unsigned options,
               const struct tree_visitor *visitor,
               struct digest *root,
               struct tree_totals *totals,
               struct status *status)
{
    *totals = (struct tree_totals){0};
    struct walk walk = {.visitor = visitor,
                        .options = options,
                        .root_fd = -1,
                        .totals = totals,
                        .buffer = malloc(FILE_SOURCE_KEPT_BYTES)};
    uint8_t *path_end = grow(&walk.path, 1);
    bool ok = walk.buffer != NULL && path_end != NULL;
    if (ok) {
        *path_end = '\0';
        ok = walk_all(&walk, path, root, status);
    } else {
        no_memory(status);
    }
    while (walk.level != NULL) {
        struct level *parent = walk.level->parent;
        level_free(walk.level);
        walk.level = parent;
    }
    if (walk.root_fd >= 0)
        close(walk.root_fd);
    free(walk.path.data);
    free(walk.buffer);
    return ok;
}

static bool walk_all(struct walk *walk,
                     const char *root_path,
                     struct digest *root,
                     struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    const int fd = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return status_fail_errno(status, errno, "%s",
                                 file_name_text(root_path, text, sizeof(text)));
    if ((walk->options & TREE_FOLLOW) != 0)
        walk->root_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!enter(walk, fd, status))
        return false;
    while (walk->level->parent != NULL || walk->level->next_name < walk->level->name_count) {
        if (!step(walk, status))
            return false;
    }
    if (!leave(walk, root, status))
        return false;
    if (walk->totals->problems > 0)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "%s: %llu of its entries cannot be stored",
                           file_name_text(root_path, text, sizeof(text)),
                           (unsigned long long)walk->totals->problems);
    return true;
}

/* One name of the directory where the walk is; or, after the last, back to the one above. */
static bool step(struct walk *walk, struct status *status)
{
    struct level *level = walk->level;
    if (level->next_name < level->name_count)
        return visit_name(walk, &level->names[level->next_name++], status);

    struct digest digest;
    if (level->left_out)
        return back_to_parent(walk, status);
    if (!leave(walk, &digest, status) || !back_to_parent(walk, status))
        return false;
    struct level *parent = walk->level;
    const char *name = parent->names[parent->next_name - 1].stored;
    const size_t name_bytes = wire_bytes_field_size(FIELD_NAME, strlen(name));
    const size_t body =
        name_bytes + wire_bytes_field_size(FIELD_DIGEST, digest_message_size(&digest));
    uint8_t *to = grow(&parent->directories, wire_bytes_field_size(FIELD_DIRECTORIES, body));
    if (to == NULL)
        return no_memory(status);
    to = wire_put_bytes_key(to, FIELD_DIRECTORIES, body);
    to = wire_put_bytes_field(to, FIELD_NAME, bytes_of_string(name));
    to = wire_put_bytes_key(to, FIELD_DIGEST, digest_message_size(&digest));
    digest_message_put(to, &digest);
    return true;
}

/* Makes fd the directory where the walk is; it is owned from here on, also on false. */
static bool enter(struct walk *walk, int fd, struct status *status)
{
    struct level *level = calloc(1, sizeof(*level));
    if (level == NULL) {
        close(fd);
        return no_memory(status);
    }
    struct stat stat;
    level->parent = walk->level;
    level->depth = level->parent != NULL ? level->parent->depth + 1 : 0;
    level->fd = fd;
    level->path_length = walk->path.length - 1;
    walk->level = level;
    walk->totals->directories++;
    if (fstat(fd, &stat) != 0)
        return status_fail_errno(status, errno, "a directory that was just opened");
    level->device = stat.st_dev;
    level->inode = stat.st_ino;
    close_far_level(level);
    return list_names(walk, level, status);
}

/*
 * The directory is done: its message goes to the visitor. The level stays until back_to_parent().
 */
static bool leave(struct walk *walk, struct digest *digest, struct status *status)
{
    struct level *level = walk->level;
    const size_t length = level->files.length + level->directories.length + level->symlinks.length;
    uint8_t *message = malloc(length + 1);
    if (message == NULL)
        return no_memory(status);
    size_t at = 0;
    const struct growing *lists[] = {&level->files, &level->directories, &level->symlinks};
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
        if (lists[i]->length > 0)
            memcpy(message + at, lists[i]->data, lists[i]->length);
        at += lists[i]->length;
    }
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(message, length), digest);
    return walk->visitor->directory(walk->visitor->argument, digest, (const char *)walk->path.data,
                                    message, status);
}

static bool list_names(struct walk *walk, struct level *level, struct status *status)
{
    const int fd = openat(level->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        level->left_out = unreadable(walk, NULL, errno) && level->parent != NULL;
        if (fd >= 0)
            close(fd);
        return true;
    }
    int error = 0;
    const bool ok = collect_names(walk, stream, level, &error, status);
    closedir(stream);
    if (ok && error != 0)
        problem(walk, NULL, strerrordesc_np(error));
    if (ok && level->name_count > 0)
        qsort(level->names, level->name_count, sizeof(*level->names), compare_names);
    return ok;
}

static bool collect_names(const struct walk *walk,
                          DIR *stream,
                          struct level *level,
                          int *error,
                          struct status *status)
{
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            *error = errno;
            return true;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (level->name_count == capacity) {
            capacity = capacity == 0 ? 16 : capacity * 2;
            struct name *names = realloc(level->names, capacity * sizeof(*names));
            if (names == NULL)
                return no_memory(status);
            level->names = names;
        }
        if (!add_name(walk, level, entry, status))
            return false;
    }
}

static bool add_name(const struct walk *walk,
                     struct level *level,
                     const struct dirent *entry,
                     struct status *status)
{
    const char *actual = entry->d_name;
    struct name name = {.actual = strdup(actual), .is_file = entry->d_type == DT_REG};
    const bool escape = (walk->options & TREE_ESCAPE_NAMES) != 0 && name_needs_escape(actual);
    name.stored = escape ? name_escape(actual) : name.actual;
    if (name.actual == NULL || name.stored == NULL) {
        free(name.actual);
        return no_memory(status);
    }
    level->names[level->name_count++] = name;
    return true;
}

/* strcmp() compares as unsigned bytes in every locale: the order that REAPI asks for. */
static int compare_names(const void *a, const void *b)
{
    const struct name *first = a;
    const struct name *second = b;
    return strcmp(first->stored, second->stored);
}

/*
 * What it is is asked first, without opening: opening a device can do something. (A file that has
 * become a FIFO meanwhile does not wait, and is found out when it is open.)
 */
static bool visit_name(struct walk *walk, const struct name *name, struct status *status)
{
    struct stat stat;
    if (!bytes_is_utf8(bytes_of_string(name->stored))) {
        problem(walk, name->actual,
                "the name is not UTF-8, and REAPI has no other (--escape-names)");
        return true;
    }
    if (name->is_file)
        return visit_file(walk, name, false, status);
    if (fstatat(walk->level->fd, name->actual, &stat, AT_SYMLINK_NOFOLLOW) != 0) {
        unreadable(walk, name->actual, errno);
        return true;
    }
    bool through_link = false;
    if (S_ISLNK(stat.st_mode) && (walk->options & TREE_FOLLOW) != 0) {
        through_link = true;
        if (fstatat(walk->level->fd, name->actual, &stat, 0) != 0) {
            unreadable(walk, name->actual, errno);
            return true;
        }
    }
    switch (stat.st_mode & S_IFMT) {
    case S_IFREG:
        return visit_file(walk, name, through_link, status);
    case S_IFDIR:
        return visit_directory(walk, name->actual, through_link, status);
    case S_IFLNK:
        return visit_symlink(walk, name, status);
    case S_IFIFO:
        special(walk, name->actual, "a FIFO cannot be stored");
        return true;
    case S_IFSOCK:
        special(walk, name->actual, "a socket cannot be stored");
        return true;
    default:
        special(walk, name->actual, "a device cannot be stored");
        return true;
    }
}

static bool visit_file(struct walk *walk,
                       const struct name *name,
                       bool through_link,
                       struct status *status)
{
    /* Something else may stand there by now: no link is followed unasked, and nothing waits. */
    const int fd =
        openat(walk->level->fd, name->actual,
               (through_link ? 0 : O_NOFOLLOW) | O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        unreadable(walk, name->actual, errno);
        return true;
    }
    const bool ok = take_file(walk, name, fd, status);
    close(fd);
    return ok;
}

static bool take_file(struct walk *walk, const struct name *name, int fd, struct status *status)
{
    struct file_source source;
    struct digest digest;
    struct status failure = {0};
    if (!push_name(walk, name->actual, status))
        return false;
    const char *path = (const char *)walk->path.data;
    bool good = file_source_init(&source, fd, path, &failure);
    source.tick = walk->visitor->tick;
    source.tick_argument = walk->visitor->argument;
    if (good &&
        !file_source_digest(&source, DIGEST_FUNCTION_SHA256, walk->buffer, &digest, &failure)) {
        file_source_destroy(&source);
        good = false;
    }
    if (!good) {
        walk->totals->problems++;
        walk->visitor->problem(walk->visitor->argument, &failure);
        pop_name(walk);
        return true;
    }

    bool ok;
    if (digest.size_bytes <= TREE_KEPT_FILE_BYTES &&
        (source.kept != NULL || digest.size_bytes == 0)) {
        uint8_t *content = source.kept != NULL ? source.kept : malloc(1);
        source.kept = NULL;
        ok = content != NULL
                 ? walk->visitor->content(walk->visitor->argument, &digest, path, content, status)
                 : no_memory(status);
    } else {
        ok = walk->visitor->file(walk->visitor->argument, &digest, path, &source.stat, status);
    }
    if (++walk->totals->files % TICK_FILES == 0 && walk->visitor->tick != NULL)
        walk->visitor->tick(walk->visitor->argument);
    walk->totals->file_bytes += (uint64_t)digest.size_bytes;
    const bool executable = (source.stat.st_mode & S_IXUSR) != 0;
    file_source_destroy(&source);
    pop_name(walk);
    return ok && add_file(walk, name->stored, &digest, executable, status);
}

static bool add_file(struct walk *walk,
                     const char *name,
                     const struct digest *digest,
                     bool executable,
                     struct status *status)
{
    const size_t body = wire_bytes_field_size(FIELD_NAME, strlen(name)) +
                        wire_bytes_field_size(FIELD_DIGEST, digest_message_size(digest)) +
                        (executable ? wire_varint_field_size(FIELD_IS_EXECUTABLE, 1) : 0);
    uint8_t *to = grow(&walk->level->files, wire_bytes_field_size(FIELD_FILES, body));
    if (to == NULL)
        return no_memory(status);
    to = wire_put_bytes_key(to, FIELD_FILES, body);
    to = wire_put_bytes_field(to, FIELD_NAME, bytes_of_string(name));
    to = wire_put_bytes_key(to, FIELD_DIGEST, digest_message_size(digest));
    to = digest_message_put(to, digest);
    if (executable)
        wire_put_varint_field(to, FIELD_IS_EXECUTABLE, 1);
    return true;
}

static bool visit_directory(struct walk *walk,
                            const char *name,
                            bool through_link,
                            struct status *status)
{
    const int fd = openat(walk->level->fd, name,
                          (through_link ? 0 : O_NOFOLLOW) | O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        unreadable(walk, name, errno);
        return true;
    }
    if (through_link && leads_back(walk, fd)) {
        close(fd);
        problem(walk, name, "a link to a directory that it lies in");
        return true;
    }
    if (!push_name(walk, name, status)) {
        close(fd);
        return false;
    }
    if (!enter(walk, fd, status))
        return false;
    walk->level->through_link = through_link;
    return true;
}

/* Is it one of the directories on the way? */
static bool leads_back(const struct walk *walk, int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return false; /* the same call fails again in enter(), and says why */
    for (const struct level *level = walk->level; level != NULL; level = level->parent) {
        if (level->device == stat.st_dev && level->inode == stat.st_ino)
            return true;
    }
    return false;
}

static bool visit_symlink(struct walk *walk, const struct name *name, struct status *status)
{
    char target[PATH_MAX + 1];
    const ssize_t length = readlinkat(walk->level->fd, name->actual, target, sizeof(target));
    if (length < 0) {
        unreadable(walk, name->actual, errno);
        return true;
    }
    if ((size_t)length == sizeof(target)) {
        problem(walk, name->actual, "the target of this link is too long");
        return true;
    }
    target[length] = '\0';
    if ((walk->options & TREE_ESCAPE_NAMES) != 0 && name_needs_escape(target)) {
        char *escaped = name_escape(target);
        const bool ok = escaped != NULL
                            ? add_symlink(walk, name->stored, escaped, strlen(escaped), status)
                            : no_memory(status);
        free(escaped);
        return ok;
    }
    if (!bytes_is_utf8(bytes_of(target, (size_t)length))) {
        problem(walk, name->actual,
                "the target of this link is not UTF-8, and REAPI has no other (--escape-names)");
        return true;
    }
    return add_symlink(walk, name->stored, target, (size_t)length, status);
}

static bool add_symlink(struct walk *walk,
                        const char *name,
                        const char *target,
                        size_t length,
                        struct status *status)
{
    const size_t body = wire_bytes_field_size(FIELD_NAME, strlen(name)) +
                        wire_bytes_field_size(FIELD_TARGET, length);
    walk->totals->symlinks++;
    uint8_t *to = grow(&walk->level->symlinks, wire_bytes_field_size(FIELD_SYMLINKS, body));
    if (to == NULL)
        return no_memory(status);
    to = wire_put_bytes_key(to, FIELD_SYMLINKS, body);
    to = wire_put_bytes_field(to, FIELD_NAME, bytes_of_string(name));
    wire_put_bytes_field(to, FIELD_TARGET, bytes_of(target, length));
    return true;
}

/*
 * The parent's descriptor may have been closed on the way down; ".." leads back, if nobody has
 * moved anything.
 */
static bool back_to_parent(struct walk *walk, struct status *status)
{
    struct level *level = walk->level;
    struct level *parent = level->parent;
    bool ok = true;
    if (parent->fd < 0) {
        struct stat stat;
        char text[FILE_NAME_TEXT_BYTES];
        walk->path.data[parent->path_length] = '\0';
        parent->fd = level->through_link
                         ? open_along(walk->root_fd, (const char *)walk->path.data, 0, O_DIRECTORY)
                         : openat(level->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent->fd < 0 || fstat(parent->fd, &stat) != 0)
            ok = status_fail_errno(
                status, errno, "the directory above %s",
                file_name_text((const char *)walk->path.data, text, sizeof(text)));
        else if (stat.st_dev != parent->device || stat.st_ino != parent->inode)
            ok = status_fail(status, STATUS_ABORTED, "%s: moved while it was read",
                             file_name_text((const char *)walk->path.data, text, sizeof(text)));
    }
    walk->level = parent;
    level_free(level);
    walk->path.length = parent->path_length + 1;
    walk->path.data[parent->path_length] = '\0';
    return ok;
}

/* Of the levels from the root to this one, the OPEN_LEVELS_MAX nearest keep their descriptor. */
static void close_far_level(struct level *level)
{
    struct level *far = level;
    for (size_t i = 0; i < OPEN_LEVELS_MAX && far != NULL; i++)
        far = far->parent;
    if (far != NULL && far->fd >= 0) {
        close(far->fd);
        far->fd = -1;
    }
}

static void level_free(struct level *level)
{
    if (level->fd >= 0)
        close(level->fd);
    for (size_t i = 0; i < level->name_count; i++) {
        if (level->names[i].stored != level->names[i].actual)
            free(level->names[i].stored);
        free(level->names[i].actual);
    }
    free(level->names);
    free(level->files.data);
    free(level->directories.data);
    free(level->symlinks.data);
    free(level);
}

/* The path becomes that of a name in the current directory. */
static bool push_name(struct walk *walk, const char *name, struct status *status)
{
    const size_t length = strlen(name);
    const bool first = walk->level->path_length == 0;
    uint8_t *to = grow(&walk->path, length + (first ? 0 : 1));
    if (to == NULL)
        return no_memory(status);
    to--; /* over the NUL */
    if (!first)
        *to++ = '/';
    memcpy(to, name, length + 1);
    return true;
}

static void pop_name(struct walk *walk)
{
    walk->path.length = walk->level->path_length + 1;
    walk->path.data[walk->level->path_length] = '\0';
}

/* name: in the directory where the walk is; NULL: that directory itself. */
static void problem(struct walk *walk, const char *name, const char *what)
{
    struct status status = {0};
    say_of(walk, name, what, &status);
    walk->totals->problems++;
    walk->visitor->problem(walk->visitor->argument, &status);
}

/* True when it is left out, and no problem. */
static bool unreadable(struct walk *walk, const char *name, int error_number)
{
    const char *what = strerrordesc_np(error_number);
    if ((error_number != EACCES && error_number != EPERM) ||
        (walk->options & TREE_SKIP_UNREADABLE) == 0) {
        problem(walk, name, what);
        return false;
    }
    struct status status = {0};
    say_of(walk, name, what, &status);
    walk->totals->skipped_unreadable++;
    if (walk->visitor->skipped != NULL)
        walk->visitor->skipped(walk->visitor->argument, &status);
    return true;
}

static void special(struct walk *walk, const char *name, const char *what)
{
    if ((walk->options & TREE_SKIP_SPECIAL) == 0) {
        problem(walk, name, what);
        return;
    }
    struct status status = {0};
    say_of(walk, name, what, &status);
    walk->totals->skipped_special++;
    if (walk->visitor->skipped != NULL)
        walk->visitor->skipped(walk->visitor->argument, &status);
}

static void say_of(const struct walk *walk, const char *name, const char *what, struct status *said)
{
    char directory[FILE_NAME_TEXT_BYTES], text[FILE_NAME_TEXT_BYTES];
    file_name_text((const char *)walk->path.data, directory, sizeof(directory));
    const char *shown = name != NULL ? file_name_text(name, text, sizeof(text)) : "";
    const bool root = walk->path.length == 1;
    status_fail(said, STATUS_FAILED_PRECONDITION, "%s%s%s: %s",
                root && name == NULL ? "." : directory, root || name == NULL ? "" : "/", shown,
                what);
}

/* Room for so many more bytes at the end; NULL without memory. */
static uint8_t *grow(struct growing *growing, size_t added)
{
    if (growing->length + added > growing->capacity) {
        size_t capacity = growing->capacity == 0 ? 256 : growing->capacity * 2;
        while (capacity < growing->length + added)
            capacity *= 2;
        uint8_t *data = realloc(growing->data, capacity);
        if (data == NULL)
            return NULL;
        growing->data = data;
        growing->capacity = capacity;
    }
    uint8_t *place = growing->data + growing->length;
    growing->length += added;
    return place;
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the tree");
}

bool tree_open_file(int root_fd, const char *path, unsigned options, int *fd, struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    const int follow = (options & TREE_FOLLOW) != 0 ? 0 : O_NOFOLLOW;
    *fd = open_along(root_fd, path, follow, O_NONBLOCK | O_NOCTTY);
    return *fd >= 0 ||
           status_fail_errno(status, errno, "%s", file_name_text(path, text, sizeof(text)));
}

/*
 * Opens for reading, through each directory of the path by itself, so that it may be of any length.
 * follow: 0, or O_NOFOLLOW. -1 with errno.
 */
static int open_along(int root_fd, const char *path, int follow, int last_flags)
{
    char name[NAME_MAX + 1];
    if (*path == '\0')
        return openat(root_fd, ".", O_RDONLY | O_CLOEXEC | last_flags);
    int fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    for (const char *at = path; fd >= 0 && *at != '\0';) {
        const size_t length = strcspn(at, "/");
        ASSERT(length > 0 && length <= NAME_MAX);
        memcpy(name, at, length);
        name[length] = '\0';
        const bool last = at[length] == '\0';
        const int next =
            openat(fd, name, (last ? last_flags : O_DIRECTORY) | follow | O_RDONLY | O_CLOEXEC);
        const int error = errno;
        close(fd);
        errno = error;
        fd = next;
        at += length + (last ? 0 : 1);
    }
    return fd;
}
