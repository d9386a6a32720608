/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs of which this node knows that they are in the bucket, and since when: the latest million in memory, all of them in an index on disk
 * if there is one. What it does not know of may be there all the same. Any thread.
 */
#ifndef VARVE_SERVER_TIER_KNOWN_H
#define VARVE_SERVER_TIER_KNOWN_H

#include "base/clock.h"
#include "base/digest.h"
#include "store/bucket_index.h"

struct tier_known;

enum { TIER_KNOWN_MAX = 1 << 20, TIER_ABSENT_MAX = 1 << 16 };
#define TIER_ABSENT_NS (3 * NS_PER_S)

struct tier_known_config {
    struct clock *clock; /* borrowed */
    int64_t
        young_s; /* what has been there for longer does not count as there, but is found for as long again; 0: for ever */
    const char *
        path; /* of an index that keeps it, store/bucket_index.h; NULL: it is kept in memory alone */
    uint64_t place; /* as there */
};
MUST_CHECK bool tier_known_new(const struct tier_known_config *config,
                               struct tier_known **known,
                               struct status *status);
void tier_known_free(struct tier_known *known);

bool tier_known_has(struct tier_known *known, const struct digest *digest);
/* since_s: of the object, in seconds since 1970; 0: now. */
void tier_known_add(struct tier_known *known, const struct digest *digest, int64_t since_s);
/* Is an object of this time one that need not be sent again? */
bool tier_known_is_young(const struct tier_known *known, int64_t since_s);
/* Is it there, and need it not be sent again for longer than the time after which what is in use is? */
bool tier_known_is_fresh(struct tier_known *known, const struct digest *digest);
int64_t tier_known_refresh_after_s(
    const struct tier_known *known); /* half the time for which an object is young; 0: never */
/* Of the oldest that may be there still, in seconds since 1970; 0: of any time. */
int64_t tier_known_oldest_s(const struct tier_known *known);
void tier_known_drop(struct tier_known *known, const struct digest *digest);
/*
 * For what somebody heard of from the bucket a while ago: how often tier_known_drop() was called by then, and an addition that is left out, and
 * false, if it was called since.
 */
uint64_t tier_known_drops(struct tier_known *known);
MUST_CHECK bool tier_known_add_many_unless(struct tier_known *known,
                                           const struct bucket_row *rows,
                                           size_t count,
                                           uint64_t drops);
/* Of a pack that this node has sent. */
void tier_known_add_many(struct tier_known *known, const struct bucket_row *rows, size_t count);
/* The bucket has said so within the last TIER_ABSENT_NS: it is not asked again. Somebody else may have brought it there since. */
bool tier_known_is_absent(struct tier_known *known, const struct digest *digest);
void tier_known_add_absent(struct tier_known *known, const struct digest *digest);
/* Where in the bucket it is, as far as is known: false, and *row says that it is an object of its own, if nothing is. */
bool tier_known_where(struct tier_known *known,
                      const struct digest *digest,
                      struct bucket_row *row);
/* Of the blob of this hash, if one is known: sets digest->size_bytes. */
bool tier_known_size(struct tier_known *known, struct digest *digest);
/*
 * These are in none of the packs of a number lower than `before` any more. That is kept with the index, for whoever reads of such a pack only later, or
 * again: tier_known_was_deleted(). 0: wherever they are, and nothing of it is kept.
 */
void tier_known_drop_before(struct tier_known *known,
                            const struct digest *digests,
                            size_t count,
                            uint64_t before);
bool tier_known_was_deleted(struct tier_known *known, const struct digest *digest, uint64_t pack);
/*
 * Has it been read once what is in packs, by this process or an earlier one? Until then a blob that is not known may be in one. True without an
 * index. for_good: it was read; else nobody shall wait for it any more.
 */
bool tier_known_is_whole(const struct tier_known *known);
void tier_known_set_whole(struct tier_known *known, bool for_good);
/* Is there an index? Then there is room for everything. */
bool tier_known_keeps(const struct tier_known *known);
/* Of whoever feeds it; kept with the index, and only with it: "" without one. */
void tier_known_note(struct tier_known *known,
                     const char *name,
                     char text[BUCKET_INDEX_NOTE_BYTES_MAX]);
void tier_known_set_note(struct tier_known *known, const char *name, const char *text);

#endif
