/* SPDX-License-Identifier: Apache-2.0 */
#include "server/workers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"

struct workers {
    struct lock lock;
    struct condition changed;
    _Atomic uint64_t done;
    struct task *first, *last; /* guarded by lock; borrowed */
    size_t waiting;            /* guarded by lock; threads */
    bool stopped;              /* guarded by lock */
};

bool workers_new(struct workers **workers, struct status *status)
{
    struct workers *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "queue of the workers");
    lock_init(&made->lock, LOCK_RANK_WORKERS);
    condition_init(&made->changed);
    *workers = made;
    return true;
}

void workers_free(struct workers *workers)
{
    if (workers == NULL)
        return;
    ASSERT(workers->first == NULL);
    ASSERT(workers->waiting == 0);
    condition_destroy(&workers->changed);
    lock_destroy(&workers->lock);
    free(workers);
}

void workers_submit(struct workers *workers, struct task *task)
{
    task->next = NULL;
    lock_acquire(&workers->lock);
    if (workers->last == NULL)
        workers->first = task;
    else
        workers->last->next = task;
    workers->last = task;
    if (workers->waiting > 0)
        condition_signal(&workers->changed);
    lock_release(&workers->lock);
}

static struct task *take_locked(struct workers *workers) REQUIRES(workers->lock);

bool workers_step(struct workers *workers)
{
    lock_acquire(&workers->lock);
    struct task *const task = take_locked(workers);
    lock_release(&workers->lock);
    if (task == NULL)
        return false;
    task->run(task);
    atomic_fetch_add_explicit(&workers->done, 1, memory_order_relaxed);
    return true;
}

uint64_t workers_done(const struct workers *workers)
{
    return atomic_load_explicit(&workers->done, memory_order_relaxed);
}

static struct task *take_locked(struct workers *workers)
{
    workers->waiting++;
    while (workers->first == NULL && !workers->stopped)
        condition_wait(&workers->changed, &workers->lock);
    workers->waiting--;
    struct task *const task = workers->first;
    if (task == NULL)
        return NULL;
    workers->first = task->next;
    if (workers->first == NULL)
        workers->last = NULL;
    task->next = NULL;
    return task;
}

void workers_stop(struct workers *workers)
{
    lock_acquire(&workers->lock);
    workers->stopped = true;
    condition_broadcast(&workers->changed);
    lock_release(&workers->lock);
}
