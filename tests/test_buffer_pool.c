/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a pool never has more buffers out than it may, that no two owners have the same one,
 * that waiters are served first come first served, once each, and never after a successful cancel:
 * step by step on one thread, and by counting on several.
 */
#include <stdatomic.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "tests/support/test_run.h"

enum { BUFFER_BYTES = 10000 };

static struct buffer_pool *new_pool(size_t buffers_max)
{
    struct buffer_pool *pool;
    struct status status = {0};
    ck_assert_msg(buffer_pool_new(BUFFER_BYTES, buffers_max, &pool, &status), "%s", status.message);
    return pool;
}

/* A waiter that keeps what it gets. */
struct keeper {
    struct buffer_waiter waiter;
    struct buffer *buffer;
    int order; /* of being served, from 1 */
    int *served;
};

static void keep(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct keeper *keeper = CONTAINER_OF(waiter, struct keeper, waiter);
    ck_assert(!waiter->queued);
    ck_assert_ptr_null(keeper->buffer);
    keeper->buffer = buffer;
    keeper->order = ++*keeper->served;
}

START_TEST(buffers_are_aligned_distinct_and_bounded)
{
    enum { MAX = 7 };
    struct buffer_pool *pool = new_pool(MAX);
    struct buffer *buffers[MAX];
    for (size_t i = 0; i < MAX; i++) {
        buffers[i] = buffer_pool_try_take(pool);
        ck_assert_ptr_nonnull(buffers[i]);
        ck_assert_uint_eq((uintptr_t)buffers[i]->data % 4096, 0);
        ck_assert_uint_eq(buffers[i]->capacity_bytes, BUFFER_BYTES);
        ck_assert_uint_eq(buffer_pool_in_use(pool), i + 1);
        memset(buffers[i]->data, (int)i, BUFFER_BYTES);
    }
    ck_assert_ptr_null(buffer_pool_try_take(pool));
    for (size_t i = 0; i < MAX; i++)
        for (size_t at = 0; at < BUFFER_BYTES; at++)
            if (buffers[i]->data[at] != i)
                ck_abort_msg("buffer %zu was written through another", i);
    for (size_t i = 0; i < MAX; i++)
        buffer_release(buffers[i]);
    buffer_release(NULL);
    ck_assert_uint_eq(buffer_pool_in_use(pool), 0);
    ck_assert_uint_eq(buffer_pool_max(pool), MAX);
    buffer_pool_free(pool);
    buffer_pool_free(NULL);
}
END_TEST

START_TEST(waiters_are_served_in_order_and_once)
{
    struct buffer_pool *pool = new_pool(1);
    int served = 0;
    struct keeper keepers[4];
    for (size_t i = 0; i < ARRAY_LENGTH(keepers); i++)
        keepers[i] = (struct keeper){.waiter = {.ready = keep}, .served = &served};

    struct buffer *first = buffer_pool_take(pool, &keepers[0].waiter);
    ck_assert_ptr_nonnull(first);
    ck_assert(!keepers[0].waiter.queued);
    for (size_t i = 0; i < ARRAY_LENGTH(keepers); i++)
        ck_assert_ptr_null(buffer_pool_take(pool, &keepers[i].waiter));

    buffer_release(first);
    for (size_t i = 0; i < ARRAY_LENGTH(keepers); i++) {
        ck_assert_int_eq(keepers[i].order, (int)i + 1);
        ck_assert_uint_eq(buffer_pool_in_use(pool), 1);
        ck_assert_ptr_null(buffer_pool_try_take(pool));
        struct buffer *buffer = keepers[i].buffer;
        keepers[i].buffer = NULL;
        buffer_release(buffer);
    }
    ck_assert_int_eq(served, 4);
    ck_assert_uint_eq(buffer_pool_in_use(pool), 0);
    buffer_pool_free(pool);
}
END_TEST

START_TEST(a_cancelled_waiter_is_passed_over)
{
    /* Every one of three in turn, and all of them. */
    for (unsigned int cancelled = 0; cancelled < 8; cancelled++) {
        struct buffer_pool *pool = new_pool(1);
        int served = 0;
        struct keeper keepers[3];
        struct buffer *buffer = buffer_pool_try_take(pool);
        for (size_t i = 0; i < 3; i++) {
            keepers[i] = (struct keeper){.waiter = {.ready = keep}, .served = &served};
            ck_assert_ptr_null(buffer_pool_take(pool, &keepers[i].waiter));
        }
        for (unsigned int i = 0; i < 3; i++) {
            if ((cancelled >> i & 1) != 0) {
                ck_assert(buffer_pool_cancel(pool, &keepers[i].waiter));
                ck_assert(!buffer_pool_cancel(pool, &keepers[i].waiter));
            }
        }
        int expected = 0;
        for (unsigned int i = 0; i < 3; i++) {
            if ((cancelled >> i & 1) != 0)
                continue;
            buffer_release(buffer);
            ck_assert_int_eq(keepers[i].order, ++expected);
            ck_assert(!buffer_pool_cancel(pool, &keepers[i].waiter));
            buffer = keepers[i].buffer;
        }
        ck_assert_int_eq(served, expected);
        buffer_release(buffer);
        ck_assert_uint_eq(buffer_pool_in_use(pool), 0);
        buffer_pool_free(pool);
    }
}
END_TEST

static void give_back_at_once(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct keeper *keeper = CONTAINER_OF(waiter, struct keeper, waiter);
    keeper->order = ++*keeper->served;
    buffer_release(buffer);
}

/* So many that calling each from within the last would take more stack than there is. */
START_TEST(a_long_queue_of_waiters_that_give_back_at_once_needs_no_stack)
{
    enum { WAITERS = 200000 };
    struct buffer_pool *pool = new_pool(1);
    int served = 0;
    struct keeper *keepers = calloc(WAITERS, sizeof(*keepers));
    ck_assert_ptr_nonnull(keepers);
    struct buffer *buffer = buffer_pool_try_take(pool);
    for (size_t i = 0; i < WAITERS; i++) {
        keepers[i] = (struct keeper){.waiter = {.ready = give_back_at_once}, .served = &served};
        if (buffer_pool_take(pool, &keepers[i].waiter) != NULL)
            ck_abort_msg("the pool has a second buffer");
    }
    buffer_release(buffer);
    ck_assert_int_eq(served, WAITERS);
    for (int i = 0; i < WAITERS; i++)
        if (keepers[i].order != i + 1)
            ck_abort_msg("waiter %d was served as number %d", i, keepers[i].order);
    ck_assert_uint_eq(buffer_pool_in_use(pool), 0);
    free(keepers);
    buffer_pool_free(pool);
}
END_TEST

/* Shared by the threads of one test. */
struct crowd {
    struct buffer_pool *pool;
    _Atomic int out;     /* buffers that somebody owns */
    _Atomic int out_max; /* must never pass the size of the pool */
    _Atomic bool shared; /* two had the same one */
};

/* One thread's wait for a buffer. */
struct sleeper {
    struct buffer_waiter waiter;
    struct lock lock;
    struct condition arrived;
    struct buffer *buffer; /* guarded by lock */
};

static void wake(struct buffer_waiter *waiter, struct buffer *buffer)
{
    struct sleeper *sleeper = CONTAINER_OF(waiter, struct sleeper, waiter);
    lock_acquire(&sleeper->lock);
    sleeper->buffer = buffer;
    condition_signal(&sleeper->arrived);
    lock_release(&sleeper->lock);
}

static struct buffer *wait_for_buffer(struct sleeper *sleeper)
{
    lock_acquire(&sleeper->lock);
    while (sleeper->buffer == NULL)
        condition_wait(&sleeper->arrived, &sleeper->lock);
    struct buffer *buffer = sleeper->buffer;
    sleeper->buffer = NULL;
    lock_release(&sleeper->lock);
    return buffer;
}

static void use_buffers(void *argument)
{
    struct crowd *crowd = argument;
    struct sleeper sleeper = {.waiter = {.ready = wake}};
    unsigned int seed = (unsigned int)(uintptr_t)&sleeper;
    lock_init(&sleeper.lock, LOCK_RANK_LEAF);
    condition_init(&sleeper.arrived);

    for (int round = 0; round < 4000; round++) {
        struct buffer *buffer = buffer_pool_take(crowd->pool, &sleeper.waiter);
        if (buffer == NULL && rand_r(&seed) % 3 == 0 &&
            buffer_pool_cancel(crowd->pool, &sleeper.waiter))
            continue;
        if (buffer == NULL)
            buffer = wait_for_buffer(&sleeper);

        const int out = atomic_fetch_add(&crowd->out, 1) + 1;
        if (out > atomic_load(&crowd->out_max))
            atomic_store(&crowd->out_max, out);
        /* Whoever else had this buffer would leave another mark. */
        memcpy(buffer->data, &buffer, sizeof(buffer));
        const uintptr_t mark = (uintptr_t)&sleeper + (uintptr_t)round;
        memcpy(buffer->data + 4096, &mark, sizeof(mark));
        sched_yield();
        if (memcmp(buffer->data, &buffer, sizeof(buffer)) != 0 ||
            memcmp(buffer->data + 4096, &mark, sizeof(mark)) != 0)
            atomic_store(&crowd->shared, true);
        atomic_fetch_sub(&crowd->out, 1);
        buffer_release(buffer);
    }
    condition_destroy(&sleeper.arrived);
    lock_destroy(&sleeper.lock);
}

START_TEST(threads_share_a_small_pool_and_all_get_their_turn)
{
    enum { THREADS = 6, BUFFERS = 2 };
    struct crowd crowd = {.pool = new_pool(BUFFERS)};
    struct thread threads[THREADS] = {0};
    struct status status = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert(thread_start(&threads[i], "user", 0, use_buffers, &crowd, &status));
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    ck_assert_int_eq(atomic_load(&crowd.out), 0);
    ck_assert_int_le(atomic_load(&crowd.out_max), BUFFERS);
    ck_assert(!atomic_load(&crowd.shared));
    ck_assert_uint_eq(buffer_pool_in_use(crowd.pool), 0);
    buffer_pool_free(crowd.pool);
}
END_TEST

START_TEST(a_pool_larger_than_the_address_space_is_refused)
{
    struct buffer_pool *pool = NULL;
    struct status status = {0};
    ck_assert(!buffer_pool_new(SIZE_MAX / 2, 4, &pool, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    status = (struct status){0};
    ck_assert(!buffer_pool_new((size_t)1 << 50, 1, &pool, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
}
END_TEST

START_TEST(a_pool_with_a_buffer_out_is_not_freed)
{
    struct buffer_pool *pool = new_pool(2);
    ck_assert_ptr_nonnull(buffer_pool_try_take(pool));
    buffer_pool_free(pool);
}
END_TEST

static void give_back_a_little_later(void *argument)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    buffer_release(argument);
}

START_TEST(a_buffer_that_another_thread_still_gives_back_is_waited_for)
{
    struct buffer_pool *pool = new_pool(2);
    struct buffer *const late = buffer_pool_try_take(pool);
    struct buffer *const kept = buffer_pool_try_take(pool);
    ck_assert_ptr_nonnull(late);
    ck_assert_ptr_nonnull(kept);
    ck_assert(!buffer_pool_await_all(pool, 1));
    buffer_release(kept);
    struct thread thread = {0};
    struct status status = {0};
    ck_assert(thread_start(&thread, "late", 0, give_back_a_little_later, late, &status));
    ck_assert(buffer_pool_await_all(pool, 60 * NS_PER_S));
    ck_assert_uint_eq(buffer_pool_in_use(pool), 0);
    buffer_pool_free(pool);
    thread_join(&thread);
}
END_TEST

START_TEST(a_waiter_is_not_queued_twice)
{
    struct buffer_pool *pool = new_pool(1);
    struct buffer_waiter waiter = {.ready = keep};
    ck_assert_ptr_nonnull(buffer_pool_try_take(pool));
    ck_assert_ptr_null(buffer_pool_take(pool, &waiter));
    ck_assert_ptr_null(buffer_pool_take(pool, &waiter));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("buffer_pool");
    TCase *tests = tcase_create("buffer_pool");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, buffers_are_aligned_distinct_and_bounded);
    tcase_add_test(tests, waiters_are_served_in_order_and_once);
    tcase_add_test(tests, a_cancelled_waiter_is_passed_over);
    tcase_add_test(tests, a_long_queue_of_waiters_that_give_back_at_once_needs_no_stack);
    tcase_add_test(tests, threads_share_a_small_pool_and_all_get_their_turn);
    tcase_add_test(tests, a_pool_larger_than_the_address_space_is_refused);
    tcase_add_test(tests, a_buffer_that_another_thread_still_gives_back_is_waited_for);
    tcase_add_test_raise_signal(tests, a_pool_with_a_buffer_out_is_not_freed, SIGABRT);
    tcase_add_test_raise_signal(tests, a_waiter_is_not_queued_twice, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
