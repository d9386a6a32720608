/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/parts.h"

#include <stdlib.h>

#include "base/compiler.h"

static struct bytes *parts_begin(struct parts *parts, size_t count_max);
static void parts_add(struct parts *parts, struct bytes *list, struct bytes part);

void parts_whole(struct parts *parts, struct bytes flat)
{
    struct bytes *const list = parts_begin(parts, 1);
    parts_add(parts, list, flat);
}

void parts_split_at(struct parts *parts, struct bytes flat, size_t boundary)
{
    ASSERT(boundary <= flat.length);
    struct bytes *const list = parts_begin(parts, 2);
    parts_add(parts, list, bytes_of(flat.data, boundary));
    parts_add(parts, list, bytes_of(flat.data + boundary, flat.length - boundary));
}

void parts_split_randomly(struct parts *parts, struct bytes flat, struct prng *prng)
{
    const size_t count = 1 + prng_below(prng, 12);
    struct bytes *const list = parts_begin(parts, count + 1);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = prng_below(prng, 2 * (flat.length / count + 1));
        if (length > flat.length - used)
            length = flat.length - used;
        parts_add(parts, list, bytes_of(flat.data + used, length));
        used += length;
    }
    parts_add(parts, list, bytes_of(flat.data + used, flat.length - used));
}

void parts_split_fully(struct parts *parts, struct bytes flat)
{
    struct bytes *const list = parts_begin(parts, flat.length);
    for (size_t i = 0; i < flat.length; i++)
        parts_add(parts, list, bytes_of(flat.data + i, 1));
}

static struct bytes *parts_begin(struct parts *parts, size_t count_max)
{
    struct bytes *const list = calloc(count_max + 1, sizeof(*list));
    ASSERT(list != NULL);
    parts->list = (struct bytes_list){.parts = list};
    return list;
}

/* list: what parts_begin() returned. */
static void parts_add(struct parts *parts, struct bytes *list, struct bytes part)
{
    uint8_t *const copy = malloc(part.length);
    ASSERT(copy != NULL || part.length == 0);
    if (part.length > 0)
        memcpy(copy, part.data, part.length);
    list[parts->list.count++] = bytes_of(copy, part.length);
}

void parts_free(struct parts *parts)
{
    for (size_t i = 0; i < parts->list.count; i++)
        free((void *)(uintptr_t)parts->list.parts[i].data);
    free((void *)(uintptr_t)parts->list.parts);
    parts->list = (struct bytes_list){0};
}
