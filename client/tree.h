/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a directory tree and makes the REAPI Directory messages of it: files, directories and
 * symbolic links, each list sorted by the bytes of the names, defaults left out, so that equal
 * trees have equal digests anywhere (REAPI, encoding of messages that are hashed). Of a file's mode
 * the owner's execute bit counts; links are kept and not followed; empty directories stay.
 *
 * What cannot be stored (a device, FIFO or socket; a name or link target that is not UTF-8; what
 * cannot be read or changes while it is read) is reported with its path, and the walk goes on, so
 * that one run tells all of it; the tree then has no root digest. Options leave some of it out
 * instead, and say so.
 *
 * Nothing recurses, and at most TREE_DESCRIPTORS_MAX files are open at once, however deep the tree
 * is.
 */
#ifndef VARVE_CLIENT_TREE_H
#define VARVE_CLIENT_TREE_H

#include "base/digest.h"
#include "client/file_source.h"

/* Files up to this size come with their content, so that they are read once. */
enum { TREE_KEPT_FILE_BYTES = 128 << 10, TREE_DESCRIPTORS_MAX = 12 };

/* Any of them together. */
enum tree_option {
    /* Names and link targets that are not UTF-8, or have a backslash, are stored escaped
       (client/name_escape.h). */
    TREE_ESCAPE_NAMES = 1,
    TREE_SKIP_SPECIAL = 2,    /* devices, FIFOs and sockets are left out */
    TREE_SKIP_UNREADABLE = 4, /* what we may not read is left out */
    /* What a link leads to is stored in its place. A link to nothing, and one to a directory that it
       lies in, are problems. */
    TREE_FOLLOW = 8,
};

/*
 * What the walk finds. A blob may come more than once. Each of these false ends the walk with its
 * status.
 */
struct tree_visitor {
    /*
     * A Directory message. message: handed over, from malloc(). path: relative to the root, "" for
     * that; borrowed for the call, as below.
     */
    bool (*directory)(void *argument,
                      const struct digest *digest,
                      const char *path,
                      uint8_t *message,
                      struct status *status);
    /* A file of at most TREE_KEPT_FILE_BYTES. content: handed over, from malloc(). */
    bool (*content)(void *argument,
                    const struct digest *digest,
                    const char *path,
                    uint8_t *content,
                    struct status *status);
    /* A larger file, as it was when it was hashed. */
    bool (*file)(void *argument,
                 const struct digest *digest,
                 const char *path,
                 const struct stat *stat,
                 struct status *status);
    /* Something that cannot be stored. The status names its path. */
    void (*problem)(void *argument, const struct status *problem);
    /* Something that was left out, as an option wants. Likewise; NULL: nobody asks. */
    void (*skipped)(void *argument, const struct status *what);
    /* Every few files, and mebibytes of large ones; NULL: nobody asks. */
    void (*tick)(void *argument);
    void *argument;
};

struct tree_totals {
    uint64_t files, directories, symlinks, file_bytes;
    uint64_t problems;
    uint64_t skipped_special, skipped_unreadable;
};

/*
 * path: a directory, or a link to one. options: of enum tree_option. *root: the digest of its
 * Directory.
 * Errors: those of the visitor; FAILED_PRECONDITION when there were problems, each of which has
 * been reported; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool tree_walk(const char *path,
                          unsigned options,
                          const struct tree_visitor *visitor,
                          struct digest *root,
                          struct tree_totals *totals,
                          struct status *status);

/*
 * Opens a file that the walk found, through its directories one by one and, without TREE_FOLLOW,
 * through no link. root_fd: the directory that was walked. Errors: INTERNAL, NOT_FOUND.
 */
MUST_CHECK bool tree_open_file(int root_fd,
                               const char *path,
                               unsigned options,
                               int *fd,
                               struct status *status);

#endif
