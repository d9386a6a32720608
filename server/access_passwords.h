/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An htpasswd file: lines of USER:HASH, hashes by bcrypt ($2b$ and its kin, htpasswd -B), SHA-256 or
 * SHA-512 crypt ($5$, $6$) or yescrypt ($y$). Others are too weak and refused.
 */
#ifndef VARVE_SERVER_ACCESS_PASSWORDS_H
#define VARVE_SERVER_ACCESS_PASSWORDS_H

#include "base/status.h"

struct access_passwords;

/* INVALID_ARGUMENT naming file and line, never a hash. */
MUST_CHECK bool access_passwords_load(const char *path,
                                      struct access_passwords **passwords,
                                      struct status *status);
void access_passwords_free(struct access_passwords *passwords); /* NULL is fine */
size_t access_passwords_count(const struct access_passwords *passwords);

bool access_passwords_have(const struct access_passwords *passwords, const char *user);
/* Slow on purpose. A user who is not there takes as long as one who is. Any thread. */
bool access_passwords_are_right(const struct access_passwords *passwords,
                                const char *user,
                                const char *password);

#endif
