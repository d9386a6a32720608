/* SPDX-License-Identifier: Apache-2.0 */
#include "server/byte_builder.h"

#include <stdlib.h>

enum { CAPACITY_BYTES_MIN = 256 };

uint8_t *byte_builder_reserve(struct byte_builder *builder, size_t more)
{
    ASSERT(builder->length <= builder->capacity);
    if (builder->failed)
        return NULL;
    if (more <= builder->capacity - builder->length && builder->data != NULL)
        return builder->data + builder->length;
    if (more > SIZE_MAX / 4 - builder->length) {
        builder->failed = true;
        return NULL;
    }

    size_t capacity =
        builder->capacity < CAPACITY_BYTES_MIN ? CAPACITY_BYTES_MIN : builder->capacity * 2;
    if (capacity < builder->length + more)
        capacity = builder->length + more;
    uint8_t *const data = realloc(builder->data, capacity);
    if (data == NULL) {
        builder->failed = true;
        return NULL;
    }
    builder->data = data;
    builder->capacity = capacity;
    return data + builder->length;
}

void byte_builder_append(struct byte_builder *builder, struct bytes bytes)
{
    if (bytes.length == 0)
        return;
    uint8_t *const to = byte_builder_reserve(builder, bytes.length);
    if (to == NULL)
        return;
    memcpy(to, bytes.data, bytes.length);
    builder->length += bytes.length;
}

uint8_t *byte_builder_release(struct byte_builder *builder, size_t *length)
{
    uint8_t *const data = builder->data;
    *length = builder->length;
    *builder = (struct byte_builder){0};
    return data;
}

void byte_builder_free(struct byte_builder *builder)
{
    free(builder->data);
    *builder = (struct byte_builder){0};
}
