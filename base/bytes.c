/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

static size_t character_length(struct bytes bytes);
static bool in_range(uint8_t byte, uint8_t from, uint8_t to);

size_t bytes_list_length(struct bytes_list list)
{
    size_t length = 0;
    for (size_t i = 0; i < list.count; i++)
        length += list.parts[i].length;
    return length;
}

void bytes_list_copy(struct bytes_list list, uint8_t *to)
{
    for (size_t i = 0; i < list.count; i++) {
        const struct bytes part = list.parts[i];
        if (part.length == 0)
            continue;
        memcpy(to, part.data, part.length);
        to += part.length;
    }
}

bool bytes_is_utf8(struct bytes bytes)
{
    return bytes_utf8_prefix(bytes) == bytes.length;
}

size_t bytes_utf8_prefix(struct bytes bytes)
{
    size_t good = 0;
    while (good < bytes.length) {
        /* Most text is ASCII: eight bytes at a time as long as none has its top bit set. */
        uint64_t eight;
        if (bytes.length - good >= sizeof(eight)) {
            memcpy(&eight, bytes.data + good, sizeof(eight));
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                good += sizeof(eight);
                continue;
            }
        }
        const size_t length = character_length(bytes_of(bytes.data + good, bytes.length - good));
        if (length == 0)
            break;
        good += length;
    }
    return good;
}

/*
 * Of the character at the start of bytes, which are not empty; 0 if it is not well-formed (RFC
 * 3629, section 4).
 */
static size_t character_length(struct bytes bytes)
{
    const uint8_t *byte = bytes.data;
    const uint8_t first = byte[0];

    if (first < 0x80)
        return 1;
    if (in_range(first, 0xc2, 0xdf))
        return bytes.length >= 2 && in_range(byte[1], 0x80, 0xbf) ? 2 : 0;
    if (in_range(first, 0xe0, 0xef)) {
        /* e0 would be overlong below a0, ed a surrogate above 9f. */
        const uint8_t from = first == 0xe0 ? 0xa0 : 0x80;
        const uint8_t to = first == 0xed ? 0x9f : 0xbf;
        return bytes.length >= 3 && in_range(byte[1], from, to) && in_range(byte[2], 0x80, 0xbf)
                   ? 3
                   : 0;
    }
    if (in_range(first, 0xf0, 0xf4)) {
        /* f0 would be overlong below 90, f4 above U+10FFFF above 8f. */
        const uint8_t from = first == 0xf0 ? 0x90 : 0x80;
        const uint8_t to = first == 0xf4 ? 0x8f : 0xbf;
        return bytes.length >= 4 && in_range(byte[1], from, to) && in_range(byte[2], 0x80, 0xbf) &&
                       in_range(byte[3], 0x80, 0xbf)
                   ? 4
                   : 0;
    }
    return 0;
}

static bool in_range(uint8_t byte, uint8_t from, uint8_t to)
{
    return byte >= from && byte <= to;
}
