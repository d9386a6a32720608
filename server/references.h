/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blobs an ActionResult, a Directory or a Tree refers to, found where they stand in the
 * encoded message: nothing is copied, nothing recurses. Unknown fields are passed over; a known one
 * of another wire type, a digest that is none and a node without a digest are INVALID_ARGUMENT.
 *
 *   ActionResult   output_files 2, output_directories 3, stdout_digest 6, stderr_digest 8
 *   Directory      files 1, directories 2
 *   Tree           root 1, children 2: the files of each
 */
#ifndef VARVE_SERVER_REFERENCES_H
#define VARVE_SERVER_REFERENCES_H

#include "base/digest.h"
#include "proto/wire.h"

enum referrer { REFERRER_ACTION_RESULT, REFERRER_DIRECTORY, REFERRER_TREE };

enum reference_kind {
    REFERENCE_FILE,
    REFERENCE_TREE, /* an OutputDirectory's tree_digest */
    /* A sub-directory, or an OutputDirectory's root_directory_digest. In a Tree it names one of its
       children. */
    REFERENCE_DIRECTORY,
    REFERENCE_STDOUT,
    REFERENCE_STDERR,
};

struct reference {
    enum reference_kind kind;
    struct digest digest;
};

enum { REFERENCES_DEPTH_MAX = 3 }; /* Tree, Directory, FileNode */

struct references_frame {
    struct wire_reader reader;
    int message;    /* references.c's enum message_type */
    size_t digests; /* met so far */
};

/* Must not be moved or copied once it is started. One thread at a time. */
struct references {
    struct bytes message;
    enum digest_function function;
    struct arena *arena; /* borrowed */
    size_t depth;        /* frames in use */
    struct references_frame frames[REFERENCES_DEPTH_MAX];
};

/*
 * message: borrowed until the end. function: as the request said; UNKNOWN infers it from each
 * hash's length.
 */
void references_start(struct references *references,
                      enum referrer referrer,
                      struct bytes message,
                      enum digest_function function,
                      struct arena *arena);

/* The next one in order, or *end. Errors: INVALID_ARGUMENT as above. */
MUST_CHECK bool references_next(struct references *references,
                                struct reference *reference,
                                bool *end,
                                struct status *status);

#endif
