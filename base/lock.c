/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

/* Bit r is set while this thread holds a lock of rank r. */
static _Thread_local uint64_t held_ranks;

_Static_assert((int)LOCK_RANK_COUNT <= 64, "a rank is a bit of held_ranks");

static const char *const rank_names[] = {
#define RANK_NAME(name, what) [LOCK_RANK_##name] = #name,
    LOCK_RANKS(RANK_NAME)
#undef RANK_NAME
};

static void assert_order(enum lock_rank rank);
static void note_taken(struct lock *lock);
static void note_given_up(struct lock *lock);

void lock_init(struct lock *lock, enum lock_rank rank)
{
    ASSERT((unsigned int)rank < LOCK_RANK_COUNT);
    *lock = (struct lock){.rank = rank};
    ASSERT(pthread_mutex_init(&lock->mutex, NULL) == 0);
}

void lock_destroy(struct lock *lock)
{
    ASSERT(!lock->held);
    ASSERT(pthread_mutex_destroy(&lock->mutex) == 0);
}

UNCHECKED_LOCKING void lock_acquire(struct lock *lock)
{
    assert_order(lock->rank);
    ASSERT(pthread_mutex_lock(&lock->mutex) == 0);
    note_taken(lock);
}

/* Shifting leaves the bits of this rank and of those that come later. */
static void assert_order(enum lock_rank rank)
{
    const uint64_t held_too_late = held_ranks >> rank;
    if (held_too_late == 0)
        return;
    const int held = (int)rank + __builtin_ctzll(held_too_late);
    fprintf(stderr, "lock %s is taken while %s is held\n", rank_names[rank], rank_names[held]);
    ASSERT(held_too_late == 0);
}

UNCHECKED_LOCKING void lock_release(struct lock *lock)
{
    lock_assert_held(lock);
    note_given_up(lock);
    ASSERT(pthread_mutex_unlock(&lock->mutex) == 0);
}

void lock_assert_held(const struct lock *lock)
{
    ASSERT(lock->held);
    ASSERT(pthread_equal(lock->owner, pthread_self()));
}

void condition_init(struct condition *condition)
{
    pthread_condattr_t attributes;
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&condition->condition, &attributes) == 0);
    ASSERT(pthread_condattr_destroy(&attributes) == 0);
}

void condition_destroy(struct condition *condition)
{
    ASSERT(pthread_cond_destroy(&condition->condition) == 0);
}

void condition_signal(struct condition *condition)
{
    ASSERT(pthread_cond_signal(&condition->condition) == 0);
}

void condition_broadcast(struct condition *condition)
{
    ASSERT(pthread_cond_broadcast(&condition->condition) == 0);
}

UNCHECKED_LOCKING void condition_wait(struct condition *condition, struct lock *lock)
{
    lock_assert_held(lock);
    note_given_up(lock);
    ASSERT(pthread_cond_wait(&condition->condition, &lock->mutex) == 0);
    note_taken(lock);
}

UNCHECKED_LOCKING bool condition_wait_for(struct condition *condition,
                                          struct lock *lock,
                                          int64_t duration_ns)
{
    ASSERT(duration_ns >= 0);
    lock_assert_held(lock);

    int64_t until_ns;
    if (__builtin_add_overflow(clock_monotonic_ns(clock_real()), duration_ns, &until_ns))
        until_ns = INT64_MAX;
    const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};

    note_given_up(lock);
    const int result = pthread_cond_timedwait(&condition->condition, &lock->mutex, &until);
    note_taken(lock);
    ASSERT(result == 0 || result == ETIMEDOUT);
    return result == 0;
}

static void note_taken(struct lock *lock)
{
    lock->owner = pthread_self();
    lock->held = true;
    held_ranks |= UINT64_C(1) << lock->rank;
}

static void note_given_up(struct lock *lock)
{
    lock->held = false;
    held_ranks &= ~(UINT64_C(1) << lock->rank);
}
