/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of requests in memory. A call takes a small reservation before its next message is asked
 * for, corrects it to the message's length when that has arrived (which may go over the limit), and
 * gives it back when the message is released. Who finds it used up waits, first come, first served.
 *
 * Two halves: the first messages of calls, and the later messages of streams. A stream that waits
 * for another one, as several uploads of one blob do, has had its first message only; so such
 * streams can use up the first half at most, and the one they wait for always goes on in the
 * second.
 */
#ifndef VARVE_SERVER_BUDGET_H
#define VARVE_SERVER_BUDGET_H

#include "base/compiler.h"
#include "base/metrics.h"
#include "base/status.h"

enum budget_half { BUDGET_FIRST_MESSAGES, BUDGET_LATER_MESSAGES, BUDGET_HALVES };

struct budget;

/* Memory of the asker, untouched until `granted` is called or it is cancelled. */
struct budget_waiter {
    /*
     * Called once, on the thread that gave bytes back and holding no lock; must give none back
     * itself.
     */
    void (*granted)(struct budget_waiter *waiter);
    enum budget_half half; /* the budget's, as all below */
    struct budget_waiter *next, *previous;
    bool queued;
};

/* calls_max: so many calls can hold a reservation at once without anybody waiting. */
MUST_CHECK bool budget_new(uint64_t limit_bytes,
                           uint64_t calls_max,
                           struct metrics *metrics,
                           struct budget **budget,
                           struct status *status);
void budget_free(struct budget *budget); /* asserts that all is given back and nobody waits */

/*
 * What a call takes before it knows the length of its message; 64 KiB at most. However small it
 * must be: clients that begin messages and don't end them must not use the budget up.
 */
size_t budget_reservation(const struct budget *budget);

/* Takes one reservation: true at once, or false and the waiter is queued. Any thread. */
bool budget_take(struct budget *budget, enum budget_half half, struct budget_waiter *waiter);
/* True if the waiter was still queued and will not be called. */
bool budget_cancel(struct budget *budget, struct budget_waiter *waiter);
/*
 * From what is held to what is needed. Grows at once, over the limit if it must; shrinking and 0
 * call waiters. Any thread.
 */
void budget_correct(struct budget *budget,
                    enum budget_half half,
                    size_t held_bytes,
                    size_t needed_bytes);

#endif
