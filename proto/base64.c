/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base64.h"

static int value_of(uint8_t character);

bool base64_decode(struct bytes text, uint8_t *to, size_t capacity, size_t *length)
{
    enum { BITS = 6, BYTE_BITS = 8, GROUP = 4 };
    if (text.length > 0 && text.length % GROUP == 0 && text.data[text.length - 1] == '=')
        text.length -= text.data[text.length - 2] == '=' ? 2 : 1;
    size_t written = 0;
    unsigned int bits = 0;
    uint32_t held = 0;
    if (text.length % GROUP == 1)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        const int value = value_of(text.data[i]);
        if (value < 0)
            return false;
        held = held << BITS | (uint32_t)value;
        bits += BITS;
        if (bits < BYTE_BITS)
            continue;
        bits -= BYTE_BITS;
        if (written == capacity)
            return false;
        to[written++] = (uint8_t)(held >> bits);
        held &= (UINT32_C(1) << bits) - 1;
    }
    *length = written;
    return held == 0;
}

static int value_of(uint8_t character)
{
    enum { UPPER = 26, DIGITS = 52, PLUS = 62, SLASH = 63 };
    if (character >= 'A' && character <= 'Z')
        return character - 'A';
    if (character >= 'a' && character <= 'z')
        return UPPER + character - 'a';
    if (character >= '0' && character <= '9')
        return DIGITS + character - '0';
    if (character == '+' || character == '-')
        return PLUS;
    if (character == '/' || character == '_')
        return SLASH;
    return -1;
}

void base64_encode(struct bytes data, char *to)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < data.length; i += 3) {
        const size_t have = data.length - i < 3 ? data.length - i : 3;
        uint32_t group = (uint32_t)data.data[i] << 16;
        if (have > 1)
            group |= (uint32_t)data.data[i + 1] << 8;
        if (have > 2)
            group |= data.data[i + 2];
        *to++ = alphabet[group >> 18];
        *to++ = alphabet[group >> 12 & 63];
        *to++ = have > 1 ? alphabet[group >> 6 & 63] : '=';
        *to++ = have > 2 ? alphabet[group & 63] : '=';
    }
    *to = '\0';
}
