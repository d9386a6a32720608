/* SPDX-License-Identifier: Apache-2.0 */
#include "client/digest_map.h"

#include <stdlib.h>

/* 32 bytes of a hash tell digests apart; the functions served have no longer ones. */
struct digest_map_slot {
    uint8_t hash[SHA256_HASH_BYTES];
    int64_t size_bytes;
    size_t number;
    uint8_t function; /* DIGEST_FUNCTION_UNKNOWN: the slot is free */
};

enum { CAPACITY_MIN = 64 };

static struct digest_map_slot *find_slot(const struct digest_map *map, const struct digest *digest);
static bool grow(struct digest_map *map);

void digest_map_destroy(struct digest_map *map)
{
    free(map->slots);
    *map = (struct digest_map){0};
}

void digest_map_clear(struct digest_map *map)
{
    if (map->count > 0)
        memset(map->slots, 0, map->capacity * sizeof(*map->slots));
    map->count = 0;
}

size_t *digest_map_insert(struct digest_map *map, const struct digest *digest, bool *is_new)
{
    ASSERT(digest->hash_length <= SHA256_HASH_BYTES);
    ASSERT(digest->function != DIGEST_FUNCTION_UNKNOWN);
    if ((map->count + 1) * 3 > map->capacity * 2 && !grow(map))
        return NULL;
    struct digest_map_slot *slot = find_slot(map, digest);
    *is_new = slot->function == DIGEST_FUNCTION_UNKNOWN;
    if (*is_new) {
        memcpy(slot->hash, digest->hash, sizeof(slot->hash));
        slot->size_bytes = digest->size_bytes;
        slot->function = digest->function;
        slot->number = 0;
        map->count++;
    }
    return &slot->number;
}

size_t *digest_map_find(const struct digest_map *map, const struct digest *digest)
{
    if (map->count == 0)
        return NULL;
    struct digest_map_slot *slot = find_slot(map, digest);
    return slot->function == DIGEST_FUNCTION_UNKNOWN ? NULL : &slot->number;
}

/*
 * The digest's slot, or the free one where it belongs. A hash is random enough to be its own hash
 * value.
 */
static struct digest_map_slot *find_slot(const struct digest_map *map, const struct digest *digest)
{
    uint64_t start;
    memcpy(&start, digest->hash, sizeof(start));
    for (size_t i = (size_t)start & (map->capacity - 1);; i = (i + 1) & (map->capacity - 1)) {
        struct digest_map_slot *slot = &map->slots[i];
        if (slot->function == DIGEST_FUNCTION_UNKNOWN)
            return slot;
        if (slot->size_bytes == digest->size_bytes && slot->function == digest->function &&
            memcmp(slot->hash, digest->hash, sizeof(slot->hash)) == 0)
            return slot;
    }
}

static bool grow(struct digest_map *map)
{
    struct digest_map larger = {.capacity = map->capacity == 0 ? CAPACITY_MIN : map->capacity * 2,
                                .count = map->count};
    larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
    if (larger.slots == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++) {
        const struct digest_map_slot *slot = &map->slots[i];
        if (slot->function == DIGEST_FUNCTION_UNKNOWN)
            continue;
        struct digest digest = {0};
        memcpy(digest.hash, slot->hash, sizeof(slot->hash));
        digest.size_bytes = slot->size_bytes;
        digest.function = slot->function;
        *find_slot(&larger, &digest) = *slot;
    }
    free(map->slots);
    *map = larger;
    return true;
}
