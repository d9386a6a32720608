/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_known.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

/* 28 bytes each: 7 MiB. A build names some tens of thousands. */
enum { SLOTS = 1 << 18 };

/* Whoever finds two blobs of the same 24 bytes has the second one's action result told too early, no more. */
struct slot {
    uint8_t hash[24];
    uint32_t since_hour; /* since 1970 */
};

struct tier_known {
    /* Set when it is made, never changed. */
    struct clock *clock; /* borrowed */
    int64_t young_s;     /* 0: for ever */

    struct lock lock;
    struct slot
        slots[SLOTS]; /* guarded by lock; by the hash's last bytes, the later takes the place */
};

static struct slot *slot_of(struct tier_known *known, const struct digest *digest)
{
    uint32_t index;
    ASSERT(digest->hash_length >= sizeof(((struct slot *)NULL)->hash) + sizeof(index));
    memcpy(&index, digest->hash + digest->hash_length - sizeof(index), sizeof(index));
    return &known->slots[index % SLOTS];
}

bool tier_known_new(struct clock *clock,
                    int64_t young_s,
                    struct tier_known **known,
                    struct status *status)
{
    *known = calloc(1, sizeof(**known));
    if (*known == NULL)
        return status_fail_errno(status, ENOMEM, "what is known of the bucket");
    (*known)->clock = clock;
    (*known)->young_s = young_s;
    lock_init(&(*known)->lock, LOCK_RANK_TIER);
    return true;
}

void tier_known_free(struct tier_known *known)
{
    if (known == NULL)
        return;
    lock_destroy(&known->lock);
    free(known);
}

bool tier_known_has(struct tier_known *known, const struct digest *digest)
{
    const struct slot *const slot = slot_of(known, digest);
    lock_acquire(&known->lock);
    const bool has = memcmp(slot->hash, digest->hash, sizeof(slot->hash)) == 0;
    const int64_t since_s = (int64_t)slot->since_hour * 3600;
    lock_release(&known->lock);
    return has && tier_known_is_young(known, since_s);
}

void tier_known_add(struct tier_known *known, const struct digest *digest, int64_t since_s)
{
    struct slot *const slot = slot_of(known, digest);
    if (since_s == 0)
        since_s = clock_wall_ns(known->clock) / NS_PER_S;
    lock_acquire(&known->lock);
    memcpy(slot->hash, digest->hash, sizeof(slot->hash));
    slot->since_hour = (uint32_t)(since_s / 3600);
    lock_release(&known->lock);
}

void tier_known_drop(struct tier_known *known, const struct digest *digest)
{
    struct slot *const slot = slot_of(known, digest);
    lock_acquire(&known->lock);
    if (memcmp(slot->hash, digest->hash, sizeof(slot->hash)) == 0)
        memset(slot->hash, 0, sizeof(slot->hash));
    lock_release(&known->lock);
}

bool tier_known_is_young(const struct tier_known *known, int64_t since_s)
{
    return known->young_s == 0 || clock_wall_ns(known->clock) / NS_PER_S - since_s < known->young_s;
}
