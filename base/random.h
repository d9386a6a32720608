/* SPDX-License-Identifier: Apache-2.0 */
/* What nobody can guess: keys of hash tables, uids. Any thread. */
#ifndef VARVE_BASE_RANDOM_H
#define VARVE_BASE_RANDOM_H

#include "base/status.h"

enum { RANDOM_BYTES_MAX = 256 };

/* length: at most RANDOM_BYTES_MAX. What the kernel says when it has none. */
MUST_CHECK bool random_fill(void *data, size_t length, struct status *status);

#endif
