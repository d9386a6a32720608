/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a simulated file: what was never written is zero and takes no memory, and copies
 * share what they have in common. One thread at a time for each of them.
 */
#ifndef VARVE_TESTS_SIM_SPARSE_BYTES_H
#define VARVE_TESTS_SIM_SPARSE_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct sparse_page;

/* Zeroed memory is an empty one. */
struct sparse_bytes {
    struct sparse_page **pages; /* owned; the pages shared; NULL for a page of zeros */
    size_t pages_count;
    uint64_t size_bytes;
};

void sparse_bytes_destroy(struct sparse_bytes *bytes);

/* `to` becomes equal to `from`, at a price that does not depend on what is in it. */
void sparse_bytes_copy(struct sparse_bytes *to, const struct sparse_bytes *from);

/* Neither looks at the size nor changes it. */
void sparse_bytes_read(const struct sparse_bytes *bytes, uint64_t offset, void *to, size_t length);
void sparse_bytes_write(struct sparse_bytes *bytes,
                        uint64_t offset,
                        const void *from,
                        size_t length);

/* Everything from the new size on is zero afterwards. */
void sparse_bytes_set_size(struct sparse_bytes *bytes, uint64_t size_bytes);

#endif
