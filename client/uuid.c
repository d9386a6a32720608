/* SPDX-License-Identifier: Apache-2.0 */
#include "client/uuid.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/compiler.h"

void uuid_random(char text[UUID_TEXT_BYTES])
{
    uint8_t bytes[16];
    /* 16 bytes come whole, and cannot fail once the kernel's pool is up. */
    ASSERT(getrandom(bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    size_t length = 0;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[length++] = '-';
        text[length++] = "0123456789abcdef"[bytes[i] >> 4];
        text[length++] = "0123456789abcdef"[bytes[i] & 0x0f];
    }
    text[length++] = '\0';
    ASSERT(length == UUID_TEXT_BYTES);
}
