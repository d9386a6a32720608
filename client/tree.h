/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a directory tree and makes the REAPI Directory messages of it: files, directories and
 * symbolic links, each list sorted by the bytes of the names, defaults left out, so that equal
 * trees have equal digests anywhere (REAPI, encoding of messages that are hashed). Of a file's mode
 * the owner's execute bit counts; links are kept and not followed; empty directories stay.
 *
 * What cannot be stored (a device, FIFO or socket; a name or link target that is not UTF-8; what
 * cannot be read or changes while it is read) is reported with its path, and the walk goes on, so
 * that one run tells all of it; the tree then has no root digest.
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

/*
 * What the walk finds. A blob may come more than once. Each of these false ends the walk with its
 * status.
 */
struct tree_visitor {
    /*
     * A Directory message, or a file of at most TREE_KEPT_FILE_BYTES. content: handed over, from
     * malloc().
     */
    bool (*content)(void *argument,
                    const struct digest *digest,
                    uint8_t *content,
                    struct status *status);
    /*
     * A larger file, as it was when it was hashed. path: relative to the root; borrowed for the
     * call.
     */
    bool (*file)(void *argument,
                 const struct digest *digest,
                 const char *path,
                 const struct stat *stat,
                 struct status *status);
    /* Something that cannot be stored. The status names its path. */
    void (*problem)(void *argument, const struct status *problem);
    void *argument;
};

struct tree_totals {
    uint64_t files, directories, symlinks, file_bytes;
    uint64_t problems;
};

/*
 * path: a directory, or a link to one. *root: the digest of its Directory.
 * Errors: those of the visitor; FAILED_PRECONDITION when there were problems, each of which has
 * been reported; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool tree_walk(const char *path,
                          const struct tree_visitor *visitor,
                          struct digest *root,
                          struct tree_totals *totals,
                          struct status *status);

/*
 * Opens a file that the walk found, through its directories one by one and through no link.
 * root_fd: the directory that was walked. Errors: INTERNAL, NOT_FOUND.
 */
MUST_CHECK bool tree_open_file(int root_fd, const char *path, int *fd, struct status *status);

#endif
