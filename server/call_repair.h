/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's wait until peers have been asked for what is missing here (server/repair.h). A request that comes from a peer asks nobody.
 *
 *     if (call_repair_start(&state->repair, call, &digest, 1)) {
 *         call_park(call, repaired);        ... repaired: if (!call_repair_over(&state->repair)) park again; else look again
 *         return;
 *     }
 */
#ifndef VARVE_SERVER_CALL_REPAIR_H
#define VARVE_SERVER_CALL_REPAIR_H

#include "server/call.h"

struct repair_group;

/* In the call's memory. A zeroed one is valid: it waits for nothing. */
struct call_repair {
    struct repair_group *group; /* NULL: nothing is waited for */
    /* Of call_repair_start_action() and _find(), once it is over: as in repair.h, owned by the caller. NULL: nothing was said. */
    uint8_t *result;
    size_t result_length;
    bool
        unavailable; /* once it is over: of some that are still not here the bucket could not tell */
};

/* May peers be asked for this call at all? */
bool call_repair_is_possible(struct call *call);
/*
 * True: some of these are being asked for; park the call. False: nobody can be asked. With the turn; nothing is waited for.
 */
MUST_CHECK bool call_repair_start(struct call_repair *repair,
                                  struct call *call,
                                  const struct digest *digests,
                                  size_t count);
MUST_CHECK bool call_repair_start_action(struct call_repair *repair,
                                         struct call *call,
                                         const struct digest *action,
                                         struct bytes instance);
/* Which of these nobody has; see repair_start_find(). */
MUST_CHECK bool call_repair_start_find(struct call_repair *repair,
                                       struct call *call,
                                       const struct digest *digests,
                                       size_t count,
                                       bool ask_all);
/* With the turn, when the call is resumed. True: all have been asked for, or the call is cancelled. */
bool call_repair_over(struct call_repair *repair);
/* Waits no more, and lets go of a result that nobody took. */
void call_repair_end(struct call_repair *repair);

#endif
