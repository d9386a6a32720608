/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sparse_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { PAGE_BYTES = 16384 };

static uint8_t *page_for_writing(struct sparse_bytes *bytes, size_t index);

void sparse_bytes_destroy(struct sparse_bytes *bytes)
{
    for (size_t i = 0; i < bytes->pages_count; i++)
        free(bytes->pages[i]);
    free(bytes->pages);
    *bytes = (struct sparse_bytes){0};
}

void sparse_bytes_copy(struct sparse_bytes *to, const struct sparse_bytes *from)
{
    sparse_bytes_destroy(to);
    for (size_t i = 0; i < from->pages_count; i++)
        if (from->pages[i] != NULL)
            memcpy(page_for_writing(to, i), from->pages[i], PAGE_BYTES);
    to->size_bytes = from->size_bytes;
}

void sparse_bytes_read(const struct sparse_bytes *bytes, uint64_t offset, void *to, size_t length)
{
    uint8_t *target = to;
    while (length > 0) {
        const uint64_t index = offset / PAGE_BYTES;
        const size_t at = (size_t)(offset % PAGE_BYTES);
        const size_t step = length < PAGE_BYTES - at ? length : PAGE_BYTES - at;
        if (index < bytes->pages_count && bytes->pages[index] != NULL)
            memcpy(target, bytes->pages[index] + at, step);
        else
            memset(target, 0, step);
        target += step;
        offset += step;
        length -= step;
    }
}

void sparse_bytes_write(struct sparse_bytes *bytes,
                        uint64_t offset,
                        const void *from,
                        size_t length)
{
    const uint8_t *source = from;
    while (length > 0) {
        const size_t at = (size_t)(offset % PAGE_BYTES);
        const size_t step = length < PAGE_BYTES - at ? length : PAGE_BYTES - at;
        memcpy(page_for_writing(bytes, (size_t)(offset / PAGE_BYTES)) + at, source, step);
        source += step;
        offset += step;
        length -= step;
    }
}

void sparse_bytes_set_size(struct sparse_bytes *bytes, uint64_t size_bytes)
{
    const uint64_t kept = size_bytes / PAGE_BYTES;
    const size_t rest = (size_t)(size_bytes % PAGE_BYTES);

    for (size_t i = 0; i < bytes->pages_count; i++) {
        if (i < kept || bytes->pages[i] == NULL)
            continue;
        if (i == kept && rest > 0) {
            memset(bytes->pages[i] + rest, 0, PAGE_BYTES - rest);
        } else {
            free(bytes->pages[i]);
            bytes->pages[i] = NULL;
        }
    }
    bytes->size_bytes = size_bytes;
}

static uint8_t *page_for_writing(struct sparse_bytes *bytes, size_t index)
{
    if (index >= bytes->pages_count) {
        const size_t count =
            index + 1 > 2 * bytes->pages_count ? index + 1 : 2 * bytes->pages_count;
        uint8_t **const pages = realloc(bytes->pages, count * sizeof(*pages));
        ASSERT(pages != NULL);
        for (size_t i = bytes->pages_count; i < count; i++)
            pages[i] = NULL;
        bytes->pages = pages;
        bytes->pages_count = count;
    }
    if (bytes->pages[index] == NULL) {
        bytes->pages[index] = calloc(1, PAGE_BYTES);
        ASSERT(bytes->pages[index] != NULL);
    }
    return bytes->pages[index];
}
