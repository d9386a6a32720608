/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree to a server: walked and hashed once (client/tree.h), and what the server lacks
 * uploaded while the walk goes on (client/uploader.h).
 */
#ifndef VARVE_CLIENT_PUSH_H
#define VARVE_CLIENT_PUSH_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"
#include "client/tree.h"
#include "client/uploader.h"

struct push_options {
    unsigned tree;                     /* of enum tree_option */
    struct batch_packer_limits limits; /* lowered to what the server announced */
    size_t batches_in_flight_max, streams_in_flight_max;
};

/* Nothing of the tree is left out or changed; the bounds of client/uploader.h. */
struct push_options push_options_default(void);

struct push_counts {
    struct tree_totals tree;
    struct uploader_counts blobs;
    bool walked; /* the whole tree has been read: no more blobs will come */
};

/* All are called in the thread that pushes, between other work. */
struct push_observer {
    void (*problem)(void *argument,
                    const struct status *problem); /* names the path or the digest */
    void (*skipped)(void *argument,
                    const struct status *what); /* left out as an option wants; may be NULL */
    void (*progress)(void *argument, const struct push_counts *counts); /* often */
    void *argument;
};

/*
 * options: NULL for the default. *root: the digest of the root Directory; every blob of it is at the
 * server when this returns true. Waits for the end. Errors: those of tree_walk() and of
 * uploader_finish().
 */
MUST_CHECK bool push_directory(struct client *client,
                               const struct capabilities *capabilities,
                               const char *path,
                               const struct push_options *options,
                               const struct push_observer *observer,
                               struct digest *root,
                               struct push_counts *counts,
                               struct status *status);

#endif
