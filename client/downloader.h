/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many blobs from a server, each to a sink of the caller's: small ones asked for together
 * (BatchReadBlobs, client/batch_packer.h), larger ones streamed, under bounds for calls in flight.
 * Every sink's end comes exactly once, and with OK only when all bytes have been written and are
 * those of the digest.
 *
 * - An entry of a batch that failed in a way that may pass, or of which the answer says nothing, is
 *   asked for again after a pause with jitter, as often as the client's policy says.
 * - A batch that fails as a whole has tried again in the same way; then its blobs are streamed.
 * - Any other failure is that of its blob alone, and comes as its end. NOT_FOUND stays NOT_FOUND.
 * - What every other blob would meet as well (access, a server that is gone) ends it: nothing more is
 *   started, what waits ends with that status, and what is on its way as it will.
 *
 * All in one thread.
 */
#ifndef VARVE_CLIENT_DOWNLOADER_H
#define VARVE_CLIENT_DOWNLOADER_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"
#include "client/event_loop.h"

enum {
    DOWNLOADER_BATCHES_IN_FLIGHT_MAX = 4,
    DOWNLOADER_STREAMS_IN_FLIGHT_MAX = 16,
};

/*
 * Where the bytes of one blob go. begin comes just before the first byte (a second time after none
 * was written); a failure of begin or write is the end of this blob, with its status.
 */
struct downloader_sink {
    bool (*begin)(void *item, struct status *status);
    bool (*write)(void *item, struct bytes bytes, struct status *status);
    /* Once, last. Not from inside downloader_add(); may call it. */
    void (*end)(void *item, const struct status *result);
};

struct downloader_config {
    struct client *client;                   /* borrowed */
    const struct capabilities *capabilities; /* borrowed */
    size_t batches_in_flight_max;            /* 1 or more */
    size_t streams_in_flight_max;            /* 1 or more */
    struct event_loop *loop; /* borrowed; NULL: one of its own. Others may run it too */
};

struct downloader_counts {
    uint64_t bytes;                      /* of data that came */
    uint64_t batches, streams, repeated; /* calls; entries that were asked for again */
};

struct downloader;

MUST_CHECK bool downloader_new(const struct downloader_config *config,
                               struct downloader **downloader,
                               struct status *status);
/* Asserts that everything has ended. NULL is fine. */
void downloader_free(struct downloader *downloader);

/*
 * digest: size above 0. sink: borrowed; item: until its end. Errors: RESOURCE_EXHAUSTED, and what has
 * ended it; then end does not come.
 */
MUST_CHECK bool downloader_add(struct downloader *downloader,
                               const struct digest *digest,
                               const struct downloader_sink *sink,
                               void *item,
                               struct status *status);

/* From here on nothing is started, and what waits ends with this. The first reason counts. */
void downloader_fail(struct downloader *downloader, const struct status *why);

/* Has something ended it? *why, unless NULL, tells what. */
bool downloader_failed(const struct downloader *downloader, struct status *why);

/* Blobs that have not ended; of them, those that no call is for yet. */
size_t downloader_live(const struct downloader *downloader);
size_t downloader_waiting(const struct downloader *downloader);

/* Starts what may be started, and runs one event; waits at most timeout_ns for it. */
void downloader_run(struct downloader *downloader, int64_t timeout_ns);

const struct downloader_counts *downloader_counts(const struct downloader *downloader);

#endif
