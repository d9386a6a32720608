/* SPDX-License-Identifier: Apache-2.0 */
#include "server/printable.h"

char *printable_copy(struct arena *arena, struct bytes text)
{
    char *const copy = arena_copy_string(arena, text);
    const bool is_text = bytes_is_utf8(text);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < text.length; i++) {
        const uint8_t byte = text.data[i];
        if (byte < ' ' || byte == 0x7f || (byte >= 0x80 && !is_text))
            copy[i] = '?';
    }
    return copy;
}
