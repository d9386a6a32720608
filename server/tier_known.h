/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs of which this process knows that they are in the bucket: as many as fit, the latest. What it does not know of may be there
 * all the same. Any thread.
 */
#ifndef VARVE_SERVER_TIER_KNOWN_H
#define VARVE_SERVER_TIER_KNOWN_H

#include "base/digest.h"

struct tier_known;

MUST_CHECK bool tier_known_new(struct tier_known **known, struct status *status);
void tier_known_free(struct tier_known *known);

bool tier_known_has(struct tier_known *known, const struct digest *digest);
void tier_known_add(struct tier_known *known, const struct digest *digest);
void tier_known_drop(struct tier_known *known, const struct digest *digest);

#endif
