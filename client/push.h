/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree to a server: walked and hashed once (client/tree.h), asked for in pages, and
 * what is missing uploaded while the walk goes on: small blobs packed into batches, larger ones
 * streamed, under bounds for calls in flight and bytes held. Each blob goes once, however often it
 * is in the tree.
 *
 * An entry of a batch that fails in a way that may pass is streamed; a batch that fails as a whole
 * is streamed; what is final is reported and disturbs nothing else. A server that does not answer
 * any more ends the push.
 */
#ifndef VARVE_CLIENT_PUSH_H
#define VARVE_CLIENT_PUSH_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"
#include "client/tree.h"

enum {
    PUSH_PAGES_IN_FLIGHT_MAX = 4,
    PUSH_BATCHES_IN_FLIGHT_MAX = 4,
    PUSH_STREAMS_IN_FLIGHT_MAX = 32
};

struct push_counts {
    struct tree_totals tree;
    uint64_t blobs;                   /* different ones, without the empty blob */
    uint64_t blob_bytes;              /* of them */
    uint64_t present;                 /* the server had them */
    uint64_t uploaded;                /* are there now */
    uint64_t uploaded_bytes;          /* of them */
    uint64_t failed;                  /* each has been reported */
    uint64_t batches, streams, pages; /* calls that were made */
};

/* Both are called in the thread that pushes, between other work. */
struct push_observer {
    void (*problem)(void *argument,
                    const struct status *problem); /* names the path or the digest */
    void (*progress)(void *argument,
                     const struct push_counts *counts); /* after each call that has ended */
    void *argument;
};

/*
 * *root: the digest of the root Directory; every blob of it is at the server when this returns
 * true. Waits for the end. Errors: those of tree_walk() and of the server.
 */
MUST_CHECK bool push_directory(struct client *client,
                               const struct capabilities *capabilities,
                               const char *path,
                               const struct push_observer *observer,
                               struct digest *root,
                               struct push_counts *counts,
                               struct status *status);

#endif
