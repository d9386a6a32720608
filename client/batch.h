/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with many digests at once, in an event loop: FindMissingBlobs, BatchUpdateBlobs,
 * BatchReadBlobs; each is one RPC, tried again as the client's policy says. What to put in one is
 * the caller's business (client/batch_packer.h).
 *
 * done comes once, never from inside the start. Its status is that of the whole call; when it is
 * OK, each entry has a result of its own. Entries belong to the caller and stay untouched by it
 * until done.
 */
#ifndef VARVE_CLIENT_BATCH_H
#define VARVE_CLIENT_BATCH_H

#include "base/digest.h"
#include "client/connection.h"
#include "client/event_loop.h"
#include "client/messages.h"
#include "client/unary.h"

struct batch_done {
    void (*done)(void *argument, const struct status *status);
    void *argument;
    struct unary **call; /* where the call is noted, good until done; NULL: nowhere */
};

/*
 * Digests in one request: below 2 MiB with 64-digit hashes, so that request and answer fit any
 * receiver.
 */
enum { FIND_MISSING_PAGE_MAX = 20000 };

/* missing[i] is set for each digest. count: 1 to FIND_MISSING_PAGE_MAX; a digest may come twice. */
MUST_CHECK bool find_missing_start(struct client *client,
                                   struct event_loop *loop,
                                   const struct digest *digests,
                                   bool *missing,
                                   size_t count,
                                   struct batch_done done,
                                   struct status *status);

/*
 * results[i] for each blob: as the server says, or UNKNOWN when it said nothing of this blob, sent an
 * entry without a status, or one that is malformed.
 * count: 1 or more.
 */
MUST_CHECK bool batch_update_start(struct client *client,
                                   struct event_loop *loop,
                                   const struct batch_blob *blobs,
                                   struct status *results,
                                   size_t count,
                                   struct batch_done done,
                                   struct status *status);

/*
 * results[i] for each digest, as above, and DATA_LOSS for bytes that are not the digest's; where it
 * is OK, take() has been called with the verified bytes (borrowed for the call). count: 1 or more;
 * digests differ.
 */
struct batch_read_sink {
    void (*take)(void *argument, size_t index, struct bytes data);
    void *argument;
};
MUST_CHECK bool batch_read_start(struct client *client,
                                 struct event_loop *loop,
                                 const struct digest *digests,
                                 struct status *results,
                                 size_t count,
                                 struct batch_read_sink sink,
                                 struct batch_done done,
                                 struct status *status);

#endif
