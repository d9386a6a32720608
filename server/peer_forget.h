/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deletion that a peer has told, carried out here: a record of ours of that name is forgotten, with a FORGET that says on which
 * node and when it was ordered. An action result that was written later than that stays.
 */
#ifndef VARVE_SERVER_PEER_FORGET_H
#define VARVE_SERVER_PEER_FORGET_H

#include "client/event_loop.h"
#include "client/replication.h"
#include "durability/durability.h"

struct peer_forget {
    /* Set by the caller. Once, in the loop, never from inside the start. */
    void (*done)(struct peer_forget *forget, const struct status *result);

    bool carried_out; /* out: something was here, and is not any more */

    struct event_loop *loop; /* of this module, as all below */
    struct event event;
    struct ack ack;
    struct status result;
};

/* record: borrowed for the call. */
void peer_forget_start(struct peer_forget *forget,
                       struct durability *durability,
                       struct event_loop *loop,
                       const struct feed_record *record);

#endif
