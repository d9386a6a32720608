/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex that knows its owner and its rank, and a condition. No lock is held across a sync, a send
 * or a callback.
 */
#ifndef VARVE_BASE_LOCK_H
#define VARVE_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/lock_rank.h"

struct CAPABILITY("lock") lock {
    pthread_mutex_t mutex;
    enum lock_rank rank;
    pthread_t owner; /* valid while held is true; written by the owner alone */
    bool held;
};

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_destroy(struct lock *lock);

/* Asserts that no lock of this or a later rank is held by this thread. */
void lock_acquire(struct lock *lock) ACQUIRES(*lock);
void lock_release(struct lock *lock) RELEASES(*lock);
void lock_assert_held(const struct lock *lock);

/* Waits on CLOCK_MONOTONIC. */
struct condition {
    pthread_cond_t condition;
};

void condition_init(struct condition *condition);
void condition_destroy(struct condition *condition);
void condition_signal(struct condition *condition);
void condition_broadcast(struct condition *condition);

/* Both may wake without reason: test in a loop. The lock is held again on return. */
void condition_wait(struct condition *condition, struct lock *lock) REQUIRES(*lock);
/* False when duration_ns (>= 0) has passed. */
bool condition_wait_for(struct condition *condition, struct lock *lock, int64_t duration_ns)
    REQUIRES(*lock);

#endif
