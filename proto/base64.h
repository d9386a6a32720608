/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 of RFC 4648, read in either alphabet, with its padding or without. */
#ifndef VARVE_PROTO_BASE64_H
#define VARVE_PROTO_BASE64_H

#include "base/bytes.h"
#include "base/compiler.h"

/* The most that so many characters decode to. */
#define BASE64_DECODED_BYTES(characters) ((characters) / 4 * 3 + 3)

/*
 * True and *length bytes at `to`. False for anything that no encoder writes: other characters, a
 * length that cannot be, padding in the middle, bits set behind the end; and when it does not fit.
 */
MUST_CHECK bool base64_decode(struct bytes text, uint8_t *to, size_t capacity, size_t *length);

/* With padding, in the standard alphabet; `to` has BASE64_ENCODED_BYTES() and gets a NUL. */
#define BASE64_ENCODED_BYTES(bytes) (((bytes) + 2) / 3 * 4 + 1)
void base64_encode(struct bytes data, char *to);

#endif
