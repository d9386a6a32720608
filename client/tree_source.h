/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Directory messages of a tree, to be looked at: of one that lies at a server, fetched when they
 * are asked for, or of a directory on this machine, walked and hashed once. Waits for what it does.
 */
#ifndef VARVE_CLIENT_TREE_SOURCE_H
#define VARVE_CLIENT_TREE_SOURCE_H

#include "client/connection.h"
#include "client/directory.h"
#include "client/tree.h"

struct tree_source;

MUST_CHECK bool tree_source_of_server(struct client *client,
                                      struct tree_source **source,
                                      struct status *status);

/*
 * options: of enum tree_option. problem: told each thing that has no place in a tree; then it fails.
 * *root: the digest of its Directory. Errors: those of tree_walk().
 */
MUST_CHECK bool tree_source_of_directory(const char *path,
                                         unsigned options,
                                         void (*problem)(void *argument,
                                                         const struct status *problem),
                                         void *argument,
                                         struct tree_source **source,
                                         struct digest *root,
                                         struct status *status);
void tree_source_free(struct tree_source *source); /* NULL is fine */

/*
 * Reads `count` directories, many with one call. Each of *directories is destroyed by the caller, on
 * true. Errors: NOT_FOUND naming the digest; those of directory_decode(); of the server.
 */
MUST_CHECK bool tree_source_read(struct tree_source *source,
                                 const struct digest *digests,
                                 size_t count,
                                 struct directory *directories,
                                 struct status *status);

/*
 * What a path leads to, from the root down through directories; "" is the root itself. No link is
 * followed. *node: without a name. *target: of a link, from malloc() and freed by the caller, also on
 * false; else NULL.
 * Errors: INVALID_ARGUMENT for a path that leads nowhere in this tree; those of tree_source_read().
 */
MUST_CHECK bool tree_source_find(struct tree_source *source,
                                 const struct digest *root,
                                 const char *path,
                                 struct directory_node *node,
                                 char **target,
                                 struct status *status);

#endif
