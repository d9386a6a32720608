/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many blobs from one server to another: the destination is asked in pages what it lacks, and that is
 * fetched and stored meanwhile. Small blobs travel in batches on both sides (client/downloader.h,
 * client/uploader.h), larger ones are streamed through (client/blob_pipe.h); what is on its way stays
 * under a bound in bytes. Every blob is verified before all of it has gone out.
 *
 *                 (known)───────────────────────────────► present
 *   given ──► page                    ┌──► (not there) ─► gone
 *                 (missing) ──► fetch │
 *                                     ├──► store ───────► copied
 *                                     └──► ─────────────► unwanted, failed, abandoned
 *
 * Each different blob is accounted in exactly one of the six. What one blob alone meets is reported,
 * and disturbs nothing else; what all would meet (a server that is gone, access) ends it. It can be
 * begun again at any time: what has arrived is present then.
 *
 * All in one thread. Every call has a deadline.
 */
#ifndef VARVE_CLIENT_COPIER_H
#define VARVE_CLIENT_COPIER_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"

/* Content between the two servers: a blob counts from when it is asked for until it is stored. */
#define COPIER_FLIGHT_BYTES_MAX (UINT64_C(64) << 20)

enum {
    COPIER_BATCHES_IN_FLIGHT_MAX = 4, /* on each side */
    COPIER_STREAMS_IN_FLIGHT_MAX = 8,
    /* Digests that are remembered, so that one that is given again is not copied again meanwhile. */
    COPIER_REMEMBERED_MAX = 1 << 18,
};

/* given == present + copied + gone + unwanted + failed + abandoned, once all has ended. */
struct copier_counts {
    uint64_t given;                      /* different ones, without the empty blob */
    uint64_t present, present_bytes;     /* the destination had them */
    uint64_t copied, copied_bytes;       /* it has them now */
    uint64_t gone;                       /* the source does not have them */
    uint64_t unwanted;                   /* the observer did not want them */
    uint64_t failed;                     /* for another reason; each has been reported */
    uint64_t abandoned;                  /* cut by a failure of all */
    uint64_t received_bytes, sent_bytes; /* of data, with what came or went again */
    uint64_t flight_bytes_peak;
};

/* Called in the thread that copies, between other work. */
struct copier_observer {
    void (*problem)(void *argument, const struct status *problem); /* names the digest */
    /* The source does not have it. Not reported as a problem. */
    void (*gone)(void *argument, const struct digest *digest);
    /* Is a blob to be fetched that the destination lacks? NULL: all are. */
    bool (*is_wanted)(void *argument, const struct digest *digest);
    void (*progress)(void *argument); /* often */
    void *argument;
};

struct copier_config {
    struct client *source, *destination; /* borrowed, as all pointers here */
    const struct capabilities *source_capabilities, *destination_capabilities;
    size_t batches_in_flight_max; /* 1 or more */
    size_t streams_in_flight_max; /* 1 or more */
    struct copier_observer observer;
};

struct copier;

MUST_CHECK bool copier_new(const struct copier_config *config,
                           struct copier **copier,
                           struct status *status);
/* After copier_finish(), or before the first copier_add(). NULL is fine. */
void copier_free(struct copier *copier);

/* May wait. Errors: whatever has ended it. */
MUST_CHECK bool copier_add(struct copier *copier,
                           const struct digest *digest,
                           struct status *status);

/* From here on nothing is started: what ends all is known elsewhere. The first reason counts. */
void copier_fail(struct copier *copier, const struct status *why);

/*
 * Waits for the end of all that was given; more may be given afterwards. False with what ended it
 * early. That blobs are gone or failed is in the counts, and no error.
 */
MUST_CHECK bool copier_finish(struct copier *copier, struct status *status);

const struct copier_counts *copier_counts(const struct copier *copier);

/* The code of the first blob that failed; OK when none has. */
enum status_code copier_first_failed(const struct copier *copier);

#endif
