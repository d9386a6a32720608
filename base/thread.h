/* SPDX-License-Identifier: Apache-2.0 */
/* Named threads with all signals blocked, so that main alone meets them. */
#ifndef VARVE_BASE_THREAD_H
#define VARVE_BASE_THREAD_H

#include <pthread.h>

#include "base/status.h"

struct thread {
    pthread_t handle;
    bool running; /* started and not yet joined */
};

/*
 * name: at most 15 characters, as top -H shows it.
 * nice: added to the niceness of this thread alone, 0 to 19; a failure to set it is ignored.
 */
MUST_CHECK bool thread_start(struct thread *thread,
                             const char *name,
                             int nice,
                             void (*run)(void *argument),
                             void *argument,
                             struct status *status);

/* Waits for its end; does nothing for a thread that is not running. */
void thread_join(struct thread *thread);

/* Makes short timed waits of this thread exact (PR_SET_TIMERSLACK): for committers. */
void thread_sharpen_timers(void);

#endif
