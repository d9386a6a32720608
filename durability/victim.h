/* SPDX-License-Identifier: Apache-2.0 */
/* Which segment is evicted next, and what lives in it. */
#ifndef VARVE_DURABILITY_VICTIM_H
#define VARVE_DURABILITY_VICTIM_H

#include "durability/copies.h"
#include "store/evict_plan.h"
#include "store/store.h"

/* Victims that could not be emptied are left alone for a while, and the younger ones of their lane with them. */
enum { VICTIMS_RESTING_MAX = 16 };

struct victim_chooser {
    struct store *store;   /* borrowed, as the next */
    struct copies *copies; /* NULL: nobody waits for what is in a segment */
    bool held_back;        /* out: the last choice passed over what the bucket does not have yet */
    struct {
        uint64_t segment; /* 0: none */
        int64_t until_ns;
    } resting[VICTIMS_RESTING_MAX];
    size_t resting_at;
};

/*
 * Of each lane its oldest segment that nobody appends to, but never its newest; of the two the one that was filled longer
 * ago. Pinned for the caller. NULL when there is none. A lane that has failed gives none: what is in it could not be moved.
 */
struct segment *victim_choose(struct victim_chooser *chooser);
void victim_chooser_rest(struct victim_chooser *chooser, uint64_t segment);

/*
 * A live entry with bytes in the victim: a blob, an action result, a large blob (kind MANIFEST) with chunks here; or a FORGET
 * that is still needed, here or by who follows this log. Some 70 bytes, and a segment of the smallest blobs has a million.
 */
struct resident {
    struct evict_candidate candidate;
    struct blob_key key; /* not of a FORGET */
    struct blob_use use; /* as the plan sees it; a FORGET has its place alone */
    enum record_kind kind;
    uint32_t entry;         /* which of the victim's entries names it */
    uint64_t entry_segment; /* where that entry's record lies: another if only its manifest told */
    bool in_part;           /* a large blob with chunks in segments that will go soon, too */
    bool done;              /* forgotten, or elsewhere */
};

struct victim {
    /* In. */
    struct store *store;     /* borrowed */
    struct segment *segment; /* borrowed; pinned and doomed */
    /* Deletions by order up to this seq of the small lane are known to all that carry them out. */
    uint64_t told_seq;
    bool give_up; /* what the disk cannot read does not count; else collecting fails by it */

    /* Out; owned. */
    struct footer_entry *entries;
    size_t entry_count;
    struct resident *residents;
    size_t resident_count, resident_capacity;
    size_t unknown;       /* records of which it could not be told what they are: damaged ones */
    uint64_t file_bytes;  /* what its file takes */
    bool cut;             /* the disk could not read all that it holds */
    struct status unread; /* why */
    size_t lost;          /* set by who empties it: entries that went unlisted */
    int64_t age_ns;       /* since it was made, by the clock on the wall; 0 or more */
};

MUST_CHECK bool victim_collect(struct victim *victim, struct status *status);
void victim_free(struct victim *victim);

/* Of a large blob; else not to be used. hash_length 0 when it cannot be read any more. */
struct digest victim_digest(const struct victim *victim, const struct resident *resident);

#endif
