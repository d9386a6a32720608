/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sparse_bytes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { PAGE_BYTES = 16384 };

struct sparse_page {
    _Atomic size_t references; /* contents that have it; who is not alone copies before it writes */
    uint8_t data[PAGE_BYTES];
};

static void page_release(struct sparse_page *page);
static uint8_t *page_for_writing(struct sparse_bytes *bytes, size_t index);
static void make_room(struct sparse_bytes *bytes, size_t count);
static struct sparse_page *page_new(void);

void sparse_bytes_destroy(struct sparse_bytes *bytes)
{
    for (size_t i = 0; i < bytes->pages_count; i++)
        page_release(bytes->pages[i]);
    free(bytes->pages);
    *bytes = (struct sparse_bytes){0};
}

static void page_release(struct sparse_page *page)
{
    if (page != NULL && atomic_fetch_sub(&page->references, 1) == 1)
        free(page);
}

void sparse_bytes_copy(struct sparse_bytes *to, const struct sparse_bytes *from)
{
    sparse_bytes_destroy(to);
    make_room(to, from->pages_count);
    for (size_t i = 0; i < from->pages_count; i++) {
        if (from->pages[i] == NULL)
            continue;
        atomic_fetch_add(&from->pages[i]->references, 1);
        to->pages[i] = from->pages[i];
    }
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
            memcpy(target, bytes->pages[index]->data + at, step);
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
            memset(page_for_writing(bytes, i) + rest, 0, PAGE_BYTES - rest);
        } else {
            page_release(bytes->pages[i]);
            bytes->pages[i] = NULL;
        }
    }
    bytes->size_bytes = size_bytes;
}

static uint8_t *page_for_writing(struct sparse_bytes *bytes, size_t index)
{
    if (index >= bytes->pages_count)
        make_room(bytes, index + 1 > 2 * bytes->pages_count ? index + 1 : 2 * bytes->pages_count);
    struct sparse_page *const page = bytes->pages[index];
    if (page == NULL) {
        bytes->pages[index] = page_new();
        memset(bytes->pages[index]->data, 0, PAGE_BYTES);
    } else if (atomic_load(&page->references) > 1) {
        bytes->pages[index] = page_new();
        memcpy(bytes->pages[index]->data, page->data, PAGE_BYTES);
        page_release(page);
    }
    return bytes->pages[index]->data;
}

static void make_room(struct sparse_bytes *bytes, size_t count)
{
    if (count <= bytes->pages_count)
        return;
    struct sparse_page **const pages = realloc(bytes->pages, count * sizeof(struct sparse_page *));
    ASSERT(pages != NULL);
    for (size_t i = bytes->pages_count; i < count; i++)
        pages[i] = NULL;
    bytes->pages = pages;
    bytes->pages_count = count;
}

/* What is in it is not set. */
static struct sparse_page *page_new(void)
{
    struct sparse_page *const page = malloc(sizeof(*page));
    ASSERT(page != NULL);
    atomic_init(&page->references, 1);
    return page;
}
