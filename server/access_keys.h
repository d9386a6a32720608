/* SPDX-License-Identifier: Apache-2.0 */
/* Public keys that sign tokens: RSA of 2048 bits or more, P-256, Ed25519; from a file in PEM. */
#ifndef VARVE_SERVER_ACCESS_KEYS_H
#define VARVE_SERVER_ACCESS_KEYS_H

#include "proto/jwt.h"

struct access_keys;

/*
 * Public keys and certificates, all that are in the file. INVALID_ARGUMENT: none, or one of another kind.
 */
MUST_CHECK bool access_keys_load(const char *path,
                                 struct access_keys **keys,
                                 struct status *status);
void access_keys_free(struct access_keys *keys); /* NULL is fine */
size_t access_keys_count(const struct access_keys *keys);

/* Has one of them signed it? Any thread. */
bool access_keys_verify(const struct access_keys *keys, const struct jwt *jwt);

#endif
