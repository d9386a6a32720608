/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a directory tree on this machine, such that nobody ever sees a part of a file under its
 * name, and nothing is made outside of the root:
 *
 * - A file is written in a staging directory (.varve-pull-*, in the root) and gets its name by a
 *   rename, which replaces what had the name. A link likewise.
 * - Every directory is opened from the one above it, and through no link: whatever stands at its
 *   place, now or while we look away, the worst is an error.
 *
 * A directory that is there already is used, and what is in it stays. Modes: 0777 for directories and
 * executables, 0666 for other files, less the umask. The staging directory is removed at the end; one
 * whose maker was killed is removed by the next writer in this root.
 *
 * One thread. At most TREE_WRITER_DESCRIPTORS_MAX directories are open, however deep the tree is, and
 * one descriptor for each file that is being written.
 */
#ifndef VARVE_CLIENT_TREE_WRITER_H
#define VARVE_CLIENT_TREE_WRITER_H

#include "base/bytes.h"
#include "base/status.h"

enum { TREE_WRITER_DESCRIPTORS_MAX = 12, TREE_WRITER_DEPTH_MAX = 4096 };

struct tree_writer;
struct tree_place; /* a directory of the tree; counted */

/*
 * path: the root; made if it is not there. *root: its place, with a reference for the caller.
 * Errors: INTERNAL, NOT_FOUND naming the path.
 */
MUST_CHECK bool tree_writer_open(const char *path,
                                 struct tree_writer **writer,
                                 struct tree_place **root,
                                 struct status *status);
/* All places and files have been given back. NULL is fine. */
void tree_writer_close(struct tree_writer *writer);

/* Makes a directory, or takes the one that is there. With a reference for the caller. */
MUST_CHECK bool tree_writer_directory(struct tree_writer *writer,
                                      struct tree_place *parent,
                                      const char *name,
                                      struct tree_place **place,
                                      struct status *status);
void tree_place_ref(struct tree_place *place);
void tree_place_unref(struct tree_place *place); /* NULL is fine */

/* The path of an entry, relative to the root; from malloc(), NULL when there is no memory. name may be NULL. */
char *tree_place_path(const struct tree_place *place, const char *name);

/* target: kept as it is. */
MUST_CHECK bool tree_writer_symlink(struct tree_writer *writer,
                                    struct tree_place *place,
                                    const char *name,
                                    const char *target,
                                    struct status *status);

/* A file that is being written. A plain value; zeroed it is none. */
struct tree_file {
    bool is_open;
    int fd; /* owned while it is open */
    uint64_t number;
};

enum tree_file_kind { TREE_FILE_PLAIN, TREE_FILE_EXECUTABLE };

MUST_CHECK bool tree_writer_begin(struct tree_writer *writer,
                                  enum tree_file_kind kind,
                                  struct tree_file *file,
                                  struct status *status);
MUST_CHECK bool tree_file_write(const struct tree_file *file,
                                struct bytes bytes,
                                struct status *status);
/* The file gets its name. It is none afterwards, also on false. */
MUST_CHECK bool tree_writer_commit(struct tree_writer *writer,
                                   struct tree_file *file,
                                   struct tree_place *place,
                                   const char *name,
                                   struct status *status);
/* Takes it away. Of one that is none nothing. */
void tree_writer_drop(struct tree_writer *writer, struct tree_file *file);

#endif
