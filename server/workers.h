/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue in front of the worker threads: what hashes, reads files or starts bulk sends is done
 * there, never on a poller. First come, first served. A task is a field of the object that it works
 * on, so the queue is as long as there are objects (calls: --max-calls) and takes no memory of its
 * own.
 */
#ifndef VARVE_SERVER_WORKERS_H
#define VARVE_SERVER_WORKERS_H

#include "base/compiler.h"
#include "base/status.h"

struct task {
    /* Set by the owner; may free the memory that holds the task, or submit it again. */
    void (*run)(struct task *task);
    struct task *next; /* the queue's */
};

struct workers;

MUST_CHECK bool workers_new(struct workers **workers, struct status *status);
void workers_free(struct workers *workers); /* asserts that it is empty and no thread works */

/* Any thread; the task is not queued. */
void workers_submit(struct workers *workers, struct task *task);

/*
 * Waits for a task and runs it. False when workers_stop() was called and nothing is left: the loop
 * of each worker thread.
 */
bool workers_step(struct workers *workers);
void workers_stop(struct workers *workers);

/* Tasks that have been run. Any thread. */
uint64_t workers_done(const struct workers *workers);

#endif
