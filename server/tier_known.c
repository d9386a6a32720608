/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_known.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

/* A blob has a choice of so many places, so that few are lost before all are full. */
enum { WAYS = 4, SECONDS_OF_HOUR = 3600 };

/* Whoever finds two blobs of the same 24 bytes has the second one's action result told too early, no more. */
struct slot {
    uint8_t hash[24];
    uint32_t since_hour; /* since 1970; 0: free */
};

struct tier_known {
    /* Set when it is made, never changed. */
    struct clock *clock; /* borrowed */
    int64_t young_s;     /* 0: for ever */

    struct lock lock;
    /* Guarded by lock, as the next. In groups of WAYS, by the hash's last bytes; 28 bytes each, used as they are needed. */
    struct slot slots[TIER_KNOWN_MAX];
    uint64_t drops;
};

static void add_locked(struct tier_known *known, const struct digest *digest, int64_t since_s)
    REQUIRES(known->lock);

static struct slot *group_of(struct tier_known *known, const struct digest *digest)
{
    uint32_t index;
    ASSERT(digest->hash_length >= sizeof(((struct slot *)NULL)->hash) + sizeof(index));
    memcpy(&index, digest->hash + digest->hash_length - sizeof(index), sizeof(index));
    return &known->slots[index % (TIER_KNOWN_MAX / WAYS) * WAYS];
}

/* NULL: it is not known. */
static struct slot *slot_of_locked(struct tier_known *known, const struct digest *digest)
    REQUIRES(known->lock)
{
    struct slot *const group = group_of(known, digest);
    for (size_t i = 0; i < WAYS; i++) {
        if (memcmp(group[i].hash, digest->hash, sizeof(group[i].hash)) == 0)
            return &group[i];
    }
    return NULL;
}

/* Where it is, or else what is free, or has been there for longest. */
static struct slot *place_for_locked(struct tier_known *known, const struct digest *digest)
    REQUIRES(known->lock)
{
    struct slot *const group = group_of(known, digest);
    struct slot *place = slot_of_locked(known, digest);
    for (size_t i = 0; place == NULL && i < WAYS; i++) {
        if (group[i].since_hour == 0)
            place = &group[i];
    }
    if (place != NULL)
        return place;
    place = &group[0];
    for (size_t i = 1; i < WAYS; i++) {
        if (group[i].since_hour < place->since_hour)
            place = &group[i];
    }
    return place;
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
    lock_acquire(&known->lock);
    const struct slot *const slot = slot_of_locked(known, digest);
    const bool has = slot != NULL && slot->since_hour != 0;
    const int64_t since_s = has ? (int64_t)slot->since_hour * SECONDS_OF_HOUR : 0;
    lock_release(&known->lock);
    return has && tier_known_is_young(known, since_s);
}

void tier_known_add(struct tier_known *known, const struct digest *digest, int64_t since_s)
{
    lock_acquire(&known->lock);
    add_locked(known, digest, since_s);
    lock_release(&known->lock);
}

bool tier_known_add_unless(struct tier_known *known,
                           const struct digest *digest,
                           int64_t since_s,
                           uint64_t drops)
{
    lock_acquire(&known->lock);
    const bool same = known->drops == drops;
    if (same)
        add_locked(known, digest, since_s);
    lock_release(&known->lock);
    return same;
}

static void add_locked(struct tier_known *known, const struct digest *digest, int64_t since_s)
{
    struct slot *const slot = place_for_locked(known, digest);
    const int64_t hour =
        (since_s == 0 ? clock_wall_ns(known->clock) / NS_PER_S : since_s) / SECONDS_OF_HOUR;
    memcpy(slot->hash, digest->hash, sizeof(slot->hash));
    slot->since_hour = hour > 0 ? (uint32_t)hour : 1;
}

void tier_known_drop(struct tier_known *known, const struct digest *digest)
{
    lock_acquire(&known->lock);
    struct slot *const slot = slot_of_locked(known, digest);
    if (slot != NULL)
        memset(slot, 0, sizeof(*slot));
    known->drops++;
    lock_release(&known->lock);
}

uint64_t tier_known_drops(struct tier_known *known)
{
    lock_acquire(&known->lock);
    const uint64_t drops = known->drops;
    lock_release(&known->lock);
    return drops;
}

bool tier_known_is_young(const struct tier_known *known, int64_t since_s)
{
    return known->young_s == 0 || clock_wall_ns(known->clock) / NS_PER_S - since_s < known->young_s;
}
