/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File names in UTF-8, whatever their bytes are: REAPI has no other names, file systems do. A byte
 * that belongs to no UTF-8 character becomes \xHH and a backslash is doubled, so that no two names
 * become the same one and every name comes back. Not for a person's eyes: see file_name_text().
 */
#ifndef VARVE_CLIENT_NAME_ESCAPE_H
#define VARVE_CLIENT_NAME_ESCAPE_H

#include "base/status.h"

/* Does the name become another one? */
bool name_needs_escape(const char *name);

/* From malloc(); NULL when there is no memory. */
char *name_escape(const char *name);

/*
 * Back again. *name: from malloc(). False when there is no memory (RESOURCE_EXHAUSTED), or when a
 * backslash is followed by something else than name_escape() puts there (INVALID_ARGUMENT).
 */
MUST_CHECK bool name_unescape(const char *escaped, char **name, struct status *status);

#endif
