/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs of which this process knows that they are in the bucket, and since when: as many as fit, the latest. What it does not know of may
 * be there all the same. Any thread.
 */
#ifndef VARVE_SERVER_TIER_KNOWN_H
#define VARVE_SERVER_TIER_KNOWN_H

#include "base/clock.h"
#include "base/digest.h"

struct tier_known;

enum { TIER_KNOWN_MAX = 1 << 20 };

/* What has been there for longer than young_s seconds is not known any more; 0: for ever. clock: borrowed. */
MUST_CHECK bool tier_known_new(struct clock *clock,
                               int64_t young_s,
                               struct tier_known **known,
                               struct status *status);
void tier_known_free(struct tier_known *known);

bool tier_known_has(struct tier_known *known, const struct digest *digest);
/* since_s: of the object, in seconds since 1970; 0: now. */
void tier_known_add(struct tier_known *known, const struct digest *digest, int64_t since_s);
/* Is an object of this time one that need not be sent again? */
bool tier_known_is_young(const struct tier_known *known, int64_t since_s);
void tier_known_drop(struct tier_known *known, const struct digest *digest);
/*
 * For what somebody heard of from the bucket a while ago: how often tier_known_drop() was called by then, and an addition that is left out, and
 * false, if it was called since.
 */
uint64_t tier_known_drops(struct tier_known *known);
MUST_CHECK bool tier_known_add_unless(struct tier_known *known,
                                      const struct digest *digest,
                                      int64_t since_s,
                                      uint64_t drops);

#endif
