/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends small blobs to the bucket in packs (tier/pack.h), each with an index object that tells other nodes, and this one after its disk
 * was replaced, what is in it. A request for some two thousand blobs instead of one for each.
 *
 * The pack comes first: what the index object names is there. A crash between the two leaves a pack that nobody knows of until the bucket's
 * rule removes it, and its blobs are sent again.
 *
 * By threads that wait, as in server/tier_push.h. A pack takes its size in memory, PACK_BYTES_MAX at most.
 */
#ifndef VARVE_SERVER_TIER_PACK_H
#define VARVE_SERVER_TIER_PACK_H

#include "server/tier_push.h"
#include "tier/pack.h"

/* What it takes in a pack; 0: it goes into none, being no small blob. */
size_t tier_pack_bytes(const struct feed_entry *entry);
/* Would it go into a pack: a small blob that is not known to be in the bucket, or, AGAIN, that is not fresh there? */
bool tier_pack_wants(struct tier_known *known, const struct feed_entry *entry, enum tier_look look);

/*
 * One pack of those of these entries that it wants, PACK_BYTES_MAX altogether at most. Few of them are left to tier_push_blob(), which
 * costs no more. What is damaged or not here any more is left out. TIER_PUSHED or TIER_PUSH_STOPPED.
 */
enum tier_pushed tier_pack_push(struct tier_pusher *pusher,
                                const struct feed_entry *entries,
                                size_t count,
                                enum tier_look look);

/*
 * Tells all nodes that these blobs, PACK_ROWS_MAX at most, are in no pack any more; this one knows afterwards, too. last: the highest number
 * of a pack in which one of them is known to have been, which may be of a node whose clock is ahead; 0: of none.
 */
enum tier_pushed tier_pack_push_deletions(struct tier_pusher *pusher,
                                          const struct digest *digests,
                                          size_t count,
                                          uint64_t last);

#endif
