/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every blob of a REAPI Directory tree at a server: its directories, each read once, and the files that
 * they name. One thread.
 */
#ifndef VARVE_CLIENT_TREE_BLOBS_H
#define VARVE_CLIENT_TREE_BLOBS_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"

/* Different directories of one tree; 1.2 GiB of digests. */
enum { TREE_BLOBS_DIRECTORIES_MAX = 1 << 24 };

struct tree_blobs_observer {
    /* A directory or a file; a file may come more than once. False ends it. May wait. */
    bool (*take)(void *argument, const struct digest *digest, struct status *status);
    /* A directory that could not be read, so that what is below it is not known. */
    void (*problem)(void *argument, const struct status *problem);
    void *argument;
};

/*
 * Waits for the end. Errors: those of take; what every directory would meet (a server that is gone);
 * OUT_OF_RANGE for too large a tree. A directory that cannot be read ends nothing; *unreadable counts
 * those, and *gone those of them that are not there.
 */
MUST_CHECK bool tree_blobs_visit(struct client *client,
                                 const struct capabilities *capabilities,
                                 const struct digest *root,
                                 const struct tree_blobs_observer *observer,
                                 uint64_t *unreadable,
                                 uint64_t *gone,
                                 struct status *status);

#endif
