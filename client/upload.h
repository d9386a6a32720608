/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob to the server by ByteStream.Write, in an event loop: 1 MiB a message, one message on its
 * way at a time. After a retryable failure it asks how far the server got and goes on from there,
 * under the same name.
 *
 *   From      To        On                                                       Made by
 *   SENDING   DONE      the server has it all, or had it before                  call_done
 *   SENDING   PAUSING   a retryable failure with tries left                      call_done
 *   SENDING   DONE      another failure, a source that fails, cancelled          call_done
 *   (start)   WAITING   the source has nothing yet, and no call is open          send_first
 *   ASKING    WAITING   likewise                                                 send_first
 *   WAITING   SENDING   it has                                                   upload_resume
 *   WAITING   DONE      a source that fails, cancelled                           upload_resume, pause_over
 *   PAUSING   ASKING    the pause is over                                        pause_over
 *   ASKING    SENDING   the server told how far it got (or knows nothing: 0)     query_done
 *   ASKING    DONE      it is complete; or a failure that is not retryable       query_done
 *   ASKING    PAUSING   a retryable failure with tries left                      query_done
 */
#ifndef VARVE_CLIENT_UPLOAD_H
#define VARVE_CLIENT_UPLOAD_H

#include "base/digest.h"
#include "client/connection.h"
#include "client/event_loop.h"

enum { UPLOAD_MESSAGE_BYTES = 1 << 20 };

/* Where the bytes come from. The same bytes each time: a retry reads again. */
struct upload_source {
    /* Puts `length` bytes from `offset` on at `to`. A failure ends the upload with its status. */
    bool (
        *read)(void *argument, uint64_t offset, uint8_t *to, size_t length, struct status *status);
    /* Asked before each read; false: not before upload_resume(). NULL: it always is. */
    bool (*is_ready)(void *argument, uint64_t offset, size_t length);
    void *argument;
};

struct upload_request {
    struct digest digest;        /* size above 0: the empty blob is always there */
    struct upload_source source; /* until done */
    struct event_loop *loop;     /* borrowed */
    /*
     * Comes once, never from inside upload_start(). sent_bytes: of data, with what was sent again.
     */
    void (*done)(void *argument, const struct status *status, uint64_t sent_bytes);
    void *argument;
};

struct upload; /* owned by itself, valid until done returns */

/*
 * In the loop's thread. Errors: RESOURCE_EXHAUSTED or those of the source; then done does not come.
 */
MUST_CHECK bool upload_start(struct client *client,
                             const struct upload_request *request,
                             struct upload **upload,
                             struct status *status);

/*
 * The source has more; nothing happens when it was not waited for. done may come from inside. In the
 * loop's thread.
 */
void upload_resume(struct upload *upload);

/* done comes with CANCELLED, or with what was there first. In the loop's thread. */
void upload_cancel(struct upload *upload);

/*
 * No further try begins: bytes on their way may arrive, and a pause or a question between two tries
 * ends now, with CANCELLED. In the loop's thread.
 */
void upload_stop_trying(struct upload *upload);

#endif
