/* SPDX-License-Identifier: Apache-2.0 */
#include "store/evicted.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"

enum { WAYS = 8, SETS = LIMIT_EVICTED_REMEMBERED / WAYS };
_Static_assert((SETS & (SETS - 1)) == 0 && SETS <= 1 << 17, "17 bits of the key say the set");

struct evicted {
    int64_t since_ns;
    _Atomic bool overflowed;
    /* 32 bits of the key above the second, counted from 1970; 0: free. */
    _Atomic uint64_t slots[SETS][WAYS];
};

bool evicted_new(int64_t now_ns, struct evicted **evicted, struct status *status)
{
    struct evicted *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for what was evicted");
    made->since_ns = now_ns;
    *evicted = made;
    return true;
}

void evicted_free(struct evicted *evicted)
{
    free(evicted);
}

static size_t set_of(struct blob_key key)
{
    return (size_t)(key.fingerprint >> 32) % SETS;
}

static uint64_t slot_of(struct blob_key key, uint32_t second)
{
    return key.fingerprint << 32 | second;
}

static uint32_t second_of(uint64_t slot)
{
    return (uint32_t)slot;
}

void evicted_note(struct evicted *evicted, struct blob_key key, int64_t now_ns)
{
    _Atomic uint64_t *const set = evicted->slots[set_of(key)];
    const int64_t second = now_ns / NS_PER_S;
    const uint64_t slot =
        slot_of(key, second < 1 ? 1 : (uint32_t)(second < UINT32_MAX ? second : UINT32_MAX));
    _Atomic uint64_t *to = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        const uint64_t have = atomic_load_explicit(&set[i], memory_order_relaxed);
        if (have != 0 && have >> 32 == slot >> 32) {
            to = &set[i];
            break;
        }
        if (second_of(have) < second_of(atomic_load_explicit(to, memory_order_relaxed)))
            to = &set[i];
    }
    const uint64_t before = atomic_exchange_explicit(to, slot, memory_order_relaxed);
    if (before != 0 && before >> 32 != slot >> 32)
        atomic_store(&evicted->overflowed, true);
}

bool evicted_find(const struct evicted *evicted, struct blob_key key, int64_t *when_ns)
{
    const _Atomic uint64_t *const set = evicted->slots[set_of(key)];
    for (size_t i = 0; i < WAYS; i++) {
        const uint64_t have = atomic_load_explicit(&set[i], memory_order_relaxed);
        if (have != 0 && have >> 32 == slot_of(key, 0) >> 32) {
            *when_ns = (int64_t)second_of(have) * NS_PER_S;
            return true;
        }
    }
    return false;
}

int64_t evicted_since_ns(const struct evicted *evicted)
{
    return evicted->since_ns;
}

bool evicted_is_whole(const struct evicted *evicted)
{
    return !atomic_load(&evicted->overflowed);
}
