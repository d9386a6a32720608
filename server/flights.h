/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on its way into the store right now, of the whole node: blobs that are fetched from peers, and action results that are
 * being written. Whoever has begun a key has it alone until the end; others are told when that comes, and look again. So nothing
 * is fetched twice, and of two results of one action it is always clear which was first.
 *
 * Any thread. flights may be NULL: then every key is free.
 */
#ifndef VARVE_SERVER_FLIGHTS_H
#define VARVE_SERVER_FLIGHTS_H

#include "store/blob_table.h"

struct flights;

struct flight_waiter {
    /* Called once, on the thread that ends the flight, holding no lock. */
    void (*ready)(struct flight_waiter *waiter);
    struct flight_waiter *next; /* the table's, as all below */
    struct flight *flight;      /* that is waited for; NULL: none */
};

/* Memory of whoever has it in the air. */
struct flight {
    struct blob_key key;           /* the table's, as all below */
    struct flight *next;           /* in its bucket */
    struct flight_waiter *waiters; /* first come, first served */
    struct flight_waiter **last;
};

MUST_CHECK bool flights_new(struct flights **flights, struct status *status);
void flights_free(struct flights *flights); /* asserts that nothing is in the air; NULL is fine */

/*
 * True: the key is the caller's until flights_end(). False: somebody else's, and `waiter` will be called, unless
 * flights_cancel().
 */
MUST_CHECK bool flights_begin(struct flights *flights,
                              struct blob_key key,
                              struct flight *flight,
                              struct flight_waiter *waiter);
/* Calls every waiter. */
void flights_end(struct flights *flights, struct flight *flight);
/* True: the waiter was still waiting and will not be called. False: it has been, or is being called. */
bool flights_cancel(struct flights *flights, struct flight_waiter *waiter);

#endif
