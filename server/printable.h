/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that somebody else has written, as text that a message may hold and a terminal may show. */
#ifndef VARVE_SERVER_PRINTABLE_H
#define VARVE_SERVER_PRINTABLE_H

#include "base/arena.h"
#include "base/bytes.h"

/* A copy in UTF-8 without control characters; what cannot stay becomes '?'. NULL: no memory. */
char *printable_copy(struct arena *arena, struct bytes text);

#endif
