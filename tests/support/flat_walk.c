/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/flat_walk.h"

static bool get_varint(struct bytes *rest, uint64_t *value);
static bool get_bytes(struct bytes *rest, uint64_t length, struct bytes *bytes);
static bool get_fixed(struct bytes *rest, unsigned length, uint64_t *value);

enum flat_step flat_walk_next(struct bytes *rest, struct flat_field *field)
{
    if (rest->length == 0)
        return FLAT_END;
    struct bytes at = *rest;
    uint64_t key;
    if (!get_varint(&at, &key) || key > 0xffffffff || key < 8)
        return FLAT_MALFORMED;
    *field = (struct flat_field){.number = (uint32_t)(key / 8), .type = (unsigned)(key % 8)};
    bool taken = false;
    uint64_t length;
    if (field->type == 0)
        taken = get_varint(&at, &field->value);
    else if (field->type == 1)
        taken = get_fixed(&at, 8, &field->value);
    else if (field->type == 2)
        taken = get_varint(&at, &length) && get_bytes(&at, length, &field->bytes);
    else if (field->type == 5)
        taken = get_fixed(&at, 4, &field->value);
    if (!taken)
        return FLAT_MALFORMED;
    field->encoded = bytes_of(rest->data, rest->length - at.length);
    *rest = at;
    return FLAT_FIELD;
}

static bool get_varint(struct bytes *rest, uint64_t *value)
{
    unsigned __int128 sum = 0;
    for (unsigned i = 0; i < 10; i++) {
        struct bytes one;
        if (!get_bytes(rest, 1, &one))
            return false;
        sum += (unsigned __int128)(one.data[0] & 127) << (7 * i);
        if (one.data[0] < 128) {
            *value = (uint64_t)sum;
            return sum >> 64 == 0;
        }
    }
    return false;
}

static bool get_bytes(struct bytes *rest, uint64_t length, struct bytes *bytes)
{
    if (length > rest->length)
        return false;
    *bytes = bytes_of(rest->data, (size_t)length);
    *rest = bytes_of(rest->data + length, rest->length - (size_t)length);
    return true;
}

static bool get_fixed(struct bytes *rest, unsigned length, uint64_t *value)
{
    struct bytes taken;
    if (!get_bytes(rest, length, &taken))
        return false;
    *value = 0;
    for (unsigned i = 0; i < length; i++)
        *value |= (uint64_t)taken.data[i] << (8 * i);
    return true;
}

size_t flat_walk_count(struct bytes message, uint32_t number, unsigned type)
{
    size_t count = 0;
    struct flat_field field;
    while (flat_walk_next(&message, &field) == FLAT_FIELD)
        count += field.number == number && field.type == type;
    return count;
}
