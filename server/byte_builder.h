/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that grow at their end. Zeroed memory is a valid empty one. One thread at a time. */
#ifndef VARVE_SERVER_BYTE_BUILDER_H
#define VARVE_SERVER_BYTE_BUILDER_H

#include "base/bytes.h"
#include "base/compiler.h"

struct byte_builder {
    uint8_t *data; /* owned, by malloc */
    size_t length, capacity;
    bool failed; /* memory was used up, for good; what was appended since is not in */
};

/*
 * Room for `more` bytes at data + length; the caller writes there and moves length. NULL when
 * memory is used up.
 */
uint8_t *byte_builder_reserve(struct byte_builder *builder, size_t more);
void byte_builder_append(struct byte_builder *builder, struct bytes bytes);

/* Hands the memory over (freed with free(), NULL when there is none) and is empty again. */
uint8_t *byte_builder_release(struct byte_builder *builder, size_t *length);
void byte_builder_free(struct byte_builder *builder);

#endif
