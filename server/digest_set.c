/* SPDX-License-Identifier: Apache-2.0 */
#include "server/digest_set.h"

#include <sys/random.h>

/*
 * Block b holds FIRST_BLOCK_DIGESTS << b digests and begins with number FIRST_BLOCK_DIGESTS * (2^b
 * - 1).
 */
enum { FIRST_BLOCK_DIGESTS = 64, FIRST_SLOTS = 128 };
#define DIGESTS_MAX ((size_t)1 << 24)

static bool same_function(const struct digest_set *set, const struct digest *digest);
static size_t slot_of(const struct digest_set *set, const struct digest *digest);
static bool make_room(struct digest_set *set, struct status *status);
static bool grow_slots(struct digest_set *set, struct status *status);
static bool no_memory(const struct digest_set *set, struct status *status);
static size_t element_bytes(const struct digest_set *set);
static uint8_t *element_at(const struct digest_set *set, size_t index);
static size_t block_of(size_t index, size_t *within);

bool digest_set_init(struct digest_set *set,
                     struct arena *arena,
                     size_t limit,
                     struct status *status)
{
    ASSERT(limit >= 1);
    ASSERT(limit <= DIGESTS_MAX);
    *set = (struct digest_set){.arena = arena, .limit = limit};
    if (getrandom(&set->key, sizeof(set->key), 0) != (ssize_t)sizeof(set->key))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "getrandom");
    return true;
}

bool digest_set_add(struct digest_set *set,
                    const struct digest *digest,
                    size_t *index,
                    bool *added,
                    struct status *status)
{
    *added = false;
    if (set->count == 0) {
        set->function = digest->function;
        set->hash_length = digest->hash_length;
    }
    if (!same_function(set, digest))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "digests of two functions in one call; send one call for each function");
    if (digest_set_find(set, digest, index))
        return true;
    if (set->count == set->limit)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "more than %zu different digests",
                           set->limit);
    if (!make_room(set, status))
        return false;

    *index = set->count;
    *added = true;
    uint8_t *const element = element_at(set, set->count);
    memcpy(element, digest->hash, set->hash_length);
    memcpy(element + set->hash_length, &digest->size_bytes, sizeof(digest->size_bytes));
    set->slots[slot_of(set, digest)] = (uint32_t)set->count + 1;
    set->count++;
    return true;
}

bool digest_set_find(const struct digest_set *set, const struct digest *digest, size_t *index)
{
    if (set->slot_count == 0 || !same_function(set, digest))
        return false;
    const uint32_t found = set->slots[slot_of(set, digest)];
    if (found == 0)
        return false;
    *index = found - 1;
    return true;
}

void digest_set_get(const struct digest_set *set, size_t index, struct digest *digest)
{
    ASSERT(index < set->count);
    const uint8_t *const element = element_at(set, index);
    *digest = (struct digest){.hash_length = (uint8_t)set->hash_length,
                              .function = (uint8_t)set->function};
    memcpy(digest->hash, element, set->hash_length);
    memcpy(&digest->size_bytes, element + set->hash_length, sizeof(digest->size_bytes));
}

static bool same_function(const struct digest_set *set, const struct digest *digest)
{
    return set->function == digest->function && set->hash_length == digest->hash_length;
}

/* Where the digest stands, or the free slot where it would. At least half of the slots are free. */
static size_t slot_of(const struct digest_set *set, const struct digest *digest)
{
    struct siphash siphash;
    siphash_begin(&siphash, &set->key);
    siphash_words(&siphash, digest->hash, set->hash_length / SIPHASH_WORD_BYTES);
    const uint64_t hash =
        siphash_finish(&siphash, bytes_of(&digest->size_bytes, sizeof(digest->size_bytes)));

    size_t slot = (size_t)hash & (set->slot_count - 1);
    while (set->slots[slot] != 0) {
        const uint8_t *const element = element_at(set, set->slots[slot] - 1);
        if (memcmp(element, digest->hash, set->hash_length) == 0 &&
            memcmp(element + set->hash_length, &digest->size_bytes, sizeof(digest->size_bytes)) ==
                0)
            break;
        slot = (slot + 1) & (set->slot_count - 1);
    }
    return slot;
}

/* For one digest more. */
static bool make_room(struct digest_set *set, struct status *status)
{
    if (set->count * 2 >= set->slot_count && !grow_slots(set, status))
        return false;
    size_t within;
    const size_t block = block_of(set->count, &within);
    ASSERT(block < DIGEST_SET_BLOCKS_MAX);
    if (set->blocks[block] != NULL)
        return true;
    size_t digests = (size_t)FIRST_BLOCK_DIGESTS << block;
    if (digests > set->limit - set->count)
        digests = set->limit - set->count; /* it is the last block */
    set->blocks[block] = arena_take(set->arena, digests * element_bytes(set));
    return set->blocks[block] != NULL || no_memory(set, status);
}

static bool grow_slots(struct digest_set *set, struct status *status)
{
    const size_t slot_count = set->slot_count == 0 ? FIRST_SLOTS : set->slot_count * 2;
    uint32_t *const slots = arena_take_zeroed(set->arena, slot_count, sizeof(*slots));
    if (slots == NULL)
        return no_memory(set, status);
    set->slots = slots;
    set->slot_count = slot_count;
    for (size_t i = 0; i < set->count; i++) {
        struct digest digest;
        digest_set_get(set, i, &digest);
        slots[slot_of(set, &digest)] = (uint32_t)i + 1;
    }
    return true;
}

static bool no_memory(const struct digest_set *set, struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "a call has no memory for more than %zu different digests", set->count);
}

static size_t element_bytes(const struct digest_set *set)
{
    return set->hash_length + sizeof(int64_t);
}

static uint8_t *element_at(const struct digest_set *set, size_t index)
{
    size_t within;
    const size_t block = block_of(index, &within);
    return set->blocks[block] + within * element_bytes(set);
}

static size_t block_of(size_t index, size_t *within)
{
    const size_t from_one = index / FIRST_BLOCK_DIGESTS + 1;
    const size_t block = (size_t)(63 - __builtin_clzll(from_one));
    *within = index - FIRST_BLOCK_DIGESTS * (((size_t)1 << block) - 1);
    return block;
}
