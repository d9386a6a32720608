/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many blobs to a server, each once however often it is given: asked for in pages, and what is
 * missing uploaded meanwhile, small blobs packed into batches (client/batch_packer.h), larger ones
 * streamed, under bounds for calls and bytes in flight and bytes held.
 *
 *                 (known)──────────────► present
 *   given ──► page                                          ┌──► uploaded
 *                 (missing) ──► batch ────────────────────► │
 *                    │            │ passing, no status      ├──► failed
 *                    └──────────► stream ─────────────────► │
 *                                                           └──► abandoned
 *
 * Every different blob is accounted in exactly one of the four, and no digest is in two calls at
 * once:
 *
 * - An entry of a batch that failed in a way that may pass, or whose status is malformed, is
 *   streamed. One that the answer says nothing of is asked for once more, and streamed if it is
 *   missing: some servers encode OK as no status.
 * - A batch that fails as a whole has tried again after pauses of its own, with jitter, where that
 *   makes sense (RESOURCE_EXHAUSTED, UNAVAILABLE; not the size of a message, nor a deadline); then
 *   its blobs are streamed.
 * - A failure that is about one blob is reported, and disturbs nothing else.
 * - A failure that every other blob would meet as well (of a question, of access, a server that is
 *   gone) ends it: nothing more is started, what waits is abandoned, and what is on its way is
 *   waited for and accounted as it ends.
 *
 * All in one thread. Every call has a deadline.
 */
#ifndef VARVE_CLIENT_UPLOADER_H
#define VARVE_CLIENT_UPLOADER_H

#include <sys/stat.h>

#include "base/digest.h"
#include "client/batch_packer.h"
#include "client/capabilities.h"
#include "client/connection.h"
#include "client/event_loop.h"

enum {
    UPLOADER_PAGES_IN_FLIGHT_MAX = 4,
    UPLOADER_BATCHES_IN_FLIGHT_MAX = 4,
    UPLOADER_STREAMS_IN_FLIGHT_MAX = 32,
    /* Blobs that wait besides those of the pages; uploader_add() waits while there are more. */
    UPLOADER_WAITING_MAX = 50000,
};
/* Content that is held in memory; uploader_add() waits while there is more. */
#define UPLOADER_HELD_BYTES_MAX (UINT64_C(64) << 20)
/* Requests and messages in flight, which are copies; one call is always let through. */
#define UPLOADER_FLIGHT_BYTES_MAX (UINT64_C(48) << 20)

/* blobs == present + uploaded + failed + abandoned, once all has ended. */
struct uploader_counts {
    uint64_t blobs;                   /* different ones, without the empty blob */
    uint64_t blob_bytes;              /* of them */
    uint64_t present;                 /* the server had them */
    uint64_t present_bytes;           /* of them */
    uint64_t uploaded;                /* are there now */
    uint64_t uploaded_bytes;          /* of them */
    uint64_t failed;                  /* each has been reported */
    uint64_t abandoned;               /* nobody knows; never started, or cut by a failure of all */
    uint64_t sent_bytes;              /* of data, with what was sent again */
    uint64_t held_bytes_peak;         /* content in memory at once */
    uint64_t batches, streams, pages; /* calls that were made, without their repeated tries */
};

enum uploader_outcome {
    UPLOADER_PRESENT,
    UPLOADER_UPLOADED,
    UPLOADER_FAILED,
    UPLOADER_ABANDONED,
};

/* Called in the thread that uploads, between other work. */
struct uploader_observer {
    void (*problem)(void *argument,
                    const struct status *problem); /* names the path or the digest */
    void (*progress)(void *argument);              /* something has moved; called often */
    /* Once for each different blob; may be NULL. */
    void (*ended)(void *argument, const struct digest *digest, enum uploader_outcome outcome);
    void *argument;
};

struct uploader_config {
    struct client *client;                   /* borrowed, as all pointers here */
    const struct capabilities *capabilities; /* its limits are honoured */
    struct batch_packer_limits limits;       /* lowered to what the server announced */
    size_t batches_in_flight_max;            /* 1 or more */
    size_t streams_in_flight_max;            /* 1 or more */
    struct uploader_observer observer;
    struct event_loop *loop; /* borrowed; NULL: one of its own. Others may run it too */
    /* Opens the file of a blob that was given without its content. */
    bool (*open_file)(void *argument, const char *path, int *fd, struct status *status);
    void *open_argument;
};

/* The bounds above, and the packer's limits. The rest is for the caller to set. */
struct uploader_config uploader_config_default(void);

struct uploader;

/* Errors: INVALID_ARGUMENT for limits that cannot work; RESOURCE_EXHAUSTED. */
MUST_CHECK bool uploader_new(const struct uploader_config *config,
                             struct uploader **uploader,
                             struct status *status);
/* After uploader_finish(), or before the first uploader_add(). NULL is fine. */
void uploader_free(struct uploader *uploader);

/*
 * Gives a blob with its content: handed over, from malloc(), also on false. May wait. name: for
 * errors, any bytes; copied.
 * Errors: whatever has ended the upload.
 */
MUST_CHECK bool uploader_add_content(struct uploader *uploader,
                                     const struct digest *digest,
                                     uint8_t *content,
                                     const char *name,
                                     struct status *status);

/* The same for a blob that the server is known to lack: it is sent without being asked for. */
MUST_CHECK bool uploader_add_missing(struct uploader *uploader,
                                     const struct digest *digest,
                                     uint8_t *content,
                                     const char *name,
                                     struct status *status);

/*
 * Gives a blob by the file that has it, opened when its turn comes. path: copied; for open_file().
 * stat: of the file when it was hashed; one that is another by then is an error that names it.
 */
MUST_CHECK bool uploader_add_file(struct uploader *uploader,
                                  const struct digest *digest,
                                  const char *path,
                                  const struct stat *stat,
                                  struct status *status);

/* From here on nothing is started: what ends all is known elsewhere. The first reason counts. */
void uploader_fail(struct uploader *uploader, const struct status *why);

/* Has something ended it? *why, unless NULL, tells what. */
bool uploader_failed(const struct uploader *uploader, struct status *why);

/* Lets calls that have ended be worked off; waits for none. */
void uploader_poll(struct uploader *uploader);

/*
 * Waits for the end of all. False with what ended it early; or, when some blobs failed, with the
 * code of the first. Afterwards the counts add up.
 */
MUST_CHECK bool uploader_finish(struct uploader *uploader, struct status *status);

const struct uploader_counts *uploader_counts(const struct uploader *uploader);

#endif
