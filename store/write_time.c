/* SPDX-License-Identifier: Apache-2.0 */
#include "store/write_time.h"

/* A year. */
static const int64_t room_ns = 365 * 24 * 3600 * NS_PER_S;

int64_t write_time_next(struct store *store)
{
    const int64_t now_ns = clock_wall_ns(store->clock);
    lock_acquire(&store->write_time_lock);
    const int64_t latest_ns = store->write_time_ns;
    const int64_t time_ns = now_ns > latest_ns ? now_ns : latest_ns + 1;
    store->write_time_ns = time_ns;
    lock_release(&store->write_time_lock);
    return time_ns;
}

int64_t write_time_latest(struct store *store)
{
    const int64_t now_ns = clock_wall_ns(store->clock);
    lock_acquire(&store->write_time_lock);
    const int64_t latest_ns = store->write_time_ns;
    lock_release(&store->write_time_lock);
    return now_ns > latest_ns ? now_ns : latest_ns;
}

void write_time_heard(struct store *store, int64_t time_ns)
{
    lock_acquire(&store->write_time_lock);
    if (time_ns > store->write_time_ns && time_ns < WRITE_TIME_MAX_NS - room_ns)
        store->write_time_ns = time_ns;
    lock_release(&store->write_time_lock);
}
