/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait for their client: for its next message, or for it to take what is sent. A client may take its time, for hours;
 * but what its calls hold, nobody else can have. So the one that has waited for longest gives way
 *
 *   - when all that is sent and not taken holds more memory than it may, or what calls remember meanwhile does: at once;
 *   - when whoever calls client_waits_cut_off() says that calls, or something else that calls hold, are used up: if it has
 *     waited for CLIENT_WAITS_PATIENCE_NS.
 *
 * It ends with UNAVAILABLE, on which clients try again.
 */
#ifndef VARVE_SERVER_CLIENT_WAITS_H
#define VARVE_SERVER_CLIENT_WAITS_H

#include <grpc/grpc.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"

#define CLIENT_WAITS_PATIENCE_NS (10 * NS_PER_S)
/* So many give way in one call of client_waits_cut_off(). */
enum { CLIENT_WAITS_CUT_OFF_MAX = 64 };

struct client_waits;

enum client_wait_kind {
    CLIENT_WAIT_RECEIVE,
    CLIENT_WAIT_SEND,
    CLIENT_WAIT_SEND_MUCH,  /* the module's own: sends worth cutting off for their memory */
    CLIENT_WAIT_SEND_STATE, /* likewise: for what the call remembers */
    CLIENT_WAIT_KINDS
};

/* In the call's memory; a zeroed one is valid. The module's. */
struct client_wait {
    grpc_call *grpc; /* borrowed; NULL: does not wait, or no longer */
    enum client_wait_kind kind;
    int64_t since_ns;
    size_t held_bytes;
    size_t state_bytes; /* of them */
    struct client_wait *next, *previous;
};

MUST_CHECK bool client_waits_new(uint64_t held_bytes_max,
                                 uint64_t state_bytes_max,
                                 struct clock *clock,
                                 struct metrics *metrics,
                                 struct client_waits **waits,
                                 struct status *status);
void client_waits_free(struct client_waits *waits); /* asserts that nobody waits */

/*
 * Before the batch is started that does the waiting; grpc stays until client_waits_end(). sending_bytes, state_bytes: memory that
 * goes when the call ends, of what is sent and of what the call remembers. Any thread, holding no lock: may cancel other calls.
 */
void client_waits_begin(struct client_waits *waits,
                        struct client_wait *wait,
                        grpc_call *grpc,
                        enum client_wait_kind kind,
                        size_t sending_bytes,
                        size_t state_bytes);
/* Does nothing for one that was cut off. Any thread. */
void client_waits_end(struct client_waits *waits, struct client_wait *wait);

/* Something is used up: cuts off those who have waited for longest. How many. */
size_t client_waits_cut_off(struct client_waits *waits);

#endif
