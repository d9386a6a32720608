/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A REAPI Directory message as somebody sent it, read and checked: what is handed out can be made on
 * a file system without leaving the directory where it is made. Names are not empty, not "." or
 * "..", without "/" and NUL, and no two are the same; targets of links are not empty and without NUL,
 * and may lead anywhere. Unknown fields and node properties are passed over.
 */
#ifndef VARVE_CLIENT_DIRECTORY_H
#define VARVE_CLIENT_DIRECTORY_H

#include "base/digest.h"

/* What is read of one Directory; that of a million files is some 90 MiB. */
#define DIRECTORY_BYTES_MAX (UINT64_C(128) << 20)

enum directory_node_kind {
    DIRECTORY_NODE_FILE,
    DIRECTORY_NODE_DIRECTORY,
    DIRECTORY_NODE_SYMLINK,
};

struct directory_node {
    enum directory_node_kind kind;
    bool executable;      /* FILE */
    const char *name;     /* the directory's */
    const char *target;   /* SYMLINK: the directory's; else NULL */
    struct digest digest; /* FILE and DIRECTORY */
};

/* Zeroed memory is a valid one without nodes. */
struct directory {
    struct directory_node *nodes; /* owned; all kinds together, sorted by name */
    size_t count, capacity;
    char *texts; /* owned */
    size_t texts_length;
};

/* message: borrowed for the call. Errors: INVALID_ARGUMENT, saying what is wrong; RESOURCE_EXHAUSTED. */
MUST_CHECK bool directory_decode(struct bytes message,
                                 struct directory *directory,
                                 struct status *status);
void directory_destroy(struct directory *directory);

/* NULL when there is none of that name. */
const struct directory_node *directory_find(const struct directory *directory, const char *name);

#endif
