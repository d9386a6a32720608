/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"

#include "base/clock.h"

void stop_init(struct stop *stop, enum lock_rank rank)
{
    lock_init(&stop->lock, rank);
    condition_init(&stop->changed);
    stop->asked = false;
}

void stop_destroy(struct stop *stop)
{
    condition_destroy(&stop->changed);
    lock_destroy(&stop->lock);
}

void stop_ask(struct stop *stop)
{
    lock_acquire(&stop->lock);
    stop->asked = true;
    condition_broadcast(&stop->changed);
    lock_release(&stop->lock);
}

bool stop_pause(struct stop *stop, int64_t duration_ns)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + duration_ns;
    lock_acquire(&stop->lock);
    for (int64_t left_ns = duration_ns; !stop->asked && left_ns > 0;
         left_ns = until_ns - clock_monotonic_ns(clock_real()))
        (void)condition_wait_for(&stop->changed, &stop->lock, left_ns);
    const bool goes_on = !stop->asked;
    lock_release(&stop->lock);
    return goes_on;
}
