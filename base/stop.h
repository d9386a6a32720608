/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of a module's own that does something from time to time: its pauses, and how it is told to end. Any thread may ask. */
#ifndef VARVE_BASE_STOP_H
#define VARVE_BASE_STOP_H

#include "base/lock.h"

struct stop {
    struct lock lock;
    struct condition changed;
    bool asked; /* guarded by lock */
};

void stop_init(struct stop *stop, enum lock_rank rank);
void stop_destroy(struct stop *stop); /* the thread has ended */
void stop_ask(struct stop *stop);
/* Waits so long, at most until it is asked to stop, which is false; 0 only looks. */
MUST_CHECK bool stop_pause(struct stop *stop, int64_t duration_ns);

#endif
