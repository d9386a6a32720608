/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdlib.h>

enum { ARENA_ALIGNMENT_BYTES = 16 };

/*
 * Blocks double from the first size to the last; what is larger than a quarter of the last gets a
 * block of its own.
 */
static const size_t first_block_bytes = 4 * KIB;
static const size_t last_block_bytes = 256 * KIB;
static const size_t own_block_bytes_min = 64 * KIB;

struct arena_block {
    struct arena_block *older; /* owned */
    size_t capacity_bytes;     /* of data */
    size_t used_bytes;         /* of data; a multiple of the alignment */
    size_t padding;
    uint8_t data[];
};

_Static_assert(sizeof(struct arena_block) % ARENA_ALIGNMENT_BYTES == 0,
               "data is aligned as malloc's result is");
_Static_assert(_Alignof(max_align_t) % ARENA_ALIGNMENT_BYTES == 0, "malloc aligns to 16");

static void *take_own_block(struct arena *arena, size_t rounded);
static bool add_block(struct arena *arena, size_t rounded);
static struct arena_block *block_new(size_t capacity_bytes);

void arena_init(struct arena *arena, size_t limit_bytes)
{
    *arena = (struct arena){.limit_bytes = limit_bytes};
}

void arena_destroy(struct arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->newest != NULL) {
        struct arena_block *const block = arena->newest;
        arena->newest = block->older;
        free(block);
    }
    arena->used_bytes = 0;
}

void *arena_take(struct arena *arena, size_t size_bytes)
{
    /* What is taken with size 0 is never written to, so that all may have the same. */
    static _Alignas(ARENA_ALIGNMENT_BYTES) uint8_t nothing[ARENA_ALIGNMENT_BYTES];
    if (size_bytes == 0)
        return nothing;

    if (size_bytes > SIZE_MAX - ARENA_ALIGNMENT_BYTES)
        return NULL;
    const size_t rounded =
        (size_bytes + ARENA_ALIGNMENT_BYTES - 1) / ARENA_ALIGNMENT_BYTES * ARENA_ALIGNMENT_BYTES;
    ASSERT(arena->used_bytes <= arena->limit_bytes);
    if (rounded > arena->limit_bytes - arena->used_bytes)
        return NULL;

    struct arena_block *block = arena->newest;
    if (block == NULL || rounded > block->capacity_bytes - block->used_bytes) {
        if (rounded >= own_block_bytes_min)
            return take_own_block(arena, rounded);
        if (!add_block(arena, rounded))
            return NULL;
        block = arena->newest;
    }
    void *const taken = block->data + block->used_bytes;
    block->used_bytes += rounded;
    arena->used_bytes += rounded;
    return taken;
}

/*
 * Behind the newest block, which goes on being filled: so no large request wastes what is left of
 * it.
 */
static void *take_own_block(struct arena *arena, size_t rounded)
{
    struct arena_block *const block = block_new(rounded);
    if (block == NULL)
        return NULL;
    block->used_bytes = rounded;
    if (arena->newest == NULL) {
        arena->newest = block;
    } else {
        block->older = arena->newest->older;
        arena->newest->older = block;
    }
    arena->used_bytes += rounded;
    return block->data;
}

static bool add_block(struct arena *arena, size_t rounded)
{
    size_t capacity_bytes = first_block_bytes;
    if (arena->newest != NULL)
        capacity_bytes = arena->newest->capacity_bytes * 2;
    if (capacity_bytes > last_block_bytes)
        capacity_bytes = last_block_bytes;
    if (capacity_bytes < rounded)
        capacity_bytes = rounded;

    struct arena_block *const block = block_new(capacity_bytes);
    if (block == NULL)
        return false;
    block->older = arena->newest;
    arena->newest = block;
    return true;
}

static struct arena_block *block_new(size_t capacity_bytes)
{
    if (capacity_bytes > SIZE_MAX - sizeof(struct arena_block))
        return NULL;
    struct arena_block *const block = malloc(sizeof(*block) + capacity_bytes);
    if (block == NULL)
        return NULL;
    *block = (struct arena_block){.capacity_bytes = capacity_bytes};
    return block;
}

void *arena_take_zeroed(struct arena *arena, size_t count, size_t element_bytes)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(count, element_bytes, &size_bytes))
        return NULL;
    void *const taken = arena_take(arena, size_bytes);
    if (taken != NULL && size_bytes > 0)
        memset(taken, 0, size_bytes);
    return taken;
}

char *arena_copy_string(struct arena *arena, struct bytes text)
{
    if (text.length == SIZE_MAX)
        return NULL;
    char *const copy = arena_take(arena, text.length + 1);
    if (copy == NULL)
        return NULL;
    if (text.length > 0)
        memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    return copy;
}
