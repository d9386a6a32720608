/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob from the server by ByteStream.Read, in an event loop: each message is hashed and handed
 * on before the next is asked for. After a retryable failure it goes on where it was (read_offset).
 *
 *   From      To        On                                                  Made by
 *   READING   DONE      all bytes are there (whatever the status says):     call_done
 *                       OK if their hash is right, DATA_LOSS if not
 *   READING   PAUSING   a retryable failure with tries left                 call_done
 *   READING   DONE      another failure, a sink that fails, cancelled       call_done
 *   PAUSING   READING   the pause is over                                   pause_over
 *
 * A sink without room holds the next message back, and so the server. It sees bytes before they are
 * verified as a whole: what it has taken counts only when done says OK.
 */
#ifndef VARVE_CLIENT_DOWNLOAD_H
#define VARVE_CLIENT_DOWNLOAD_H

#include "base/digest.h"
#include "client/connection.h"
#include "client/event_loop.h"

struct download_sink {
    /* Takes the next bytes, in order, each once. A failure ends the download with this status. */
    bool (*write)(void *argument, struct bytes bytes, struct status *status);
    /* Asked after each message; false: none comes before download_resume(). NULL: there always is. */
    bool (*has_room)(void *argument);
    void *argument;
};

struct download_request {
    struct digest digest; /* size above 0 */
    struct download_sink sink;
    struct event_loop *loop; /* borrowed */
    /* Comes once, never from inside download_start(). */
    void (*done)(void *argument, const struct status *status);
    void *argument;
};

struct download; /* owned by itself, valid until done returns */

/* In the loop's thread. Errors: RESOURCE_EXHAUSTED; then done does not come. */
MUST_CHECK bool download_start(struct client *client,
                               const struct download_request *request,
                               struct download **download,
                               struct status *status);

/* The sink has room again; nothing happens when it always had. In the loop's thread. */
void download_resume(struct download *download);

/* done comes with CANCELLED, or with what was there first. In the loop's thread. */
void download_cancel(struct download *download);

/*
 * No further try begins: the one in flight may end as it will, and a pause between two tries ends
 * now, with CANCELLED. In the loop's thread.
 */
void download_stop_trying(struct download *download);

#endif
