/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index in memory: every durable blob and action result, 16 bytes a slot. A slot holds a 64-bit
 * keyed fingerprint of the key and where the record lies. Two keys of one fingerprint (2^-64 a
 * probe) are told apart by the record's header when it is read. Only durable records ever go in.
 *
 * Shards with a lock each; any thread. Grows a shard at a time.
 */
#ifndef VARVE_STORE_BLOB_TABLE_H
#define VARVE_STORE_BLOB_TABLE_H

#include "store/format.h"

struct blob_table;

/*
 * What an entry is found by. Blobs: digest with its size. Action results: digest of the action (its
 * size is not part) and instance.
 */
struct blob_key {
    uint64_t fingerprint;
};

MUST_CHECK bool blob_table_new(struct blob_table **table, struct status *status);
void blob_table_free(struct blob_table *table);

struct blob_key blob_table_blob_key(const struct blob_table *table, const struct digest *digest);
struct blob_key blob_table_action_key(const struct blob_table *table,
                                      const struct digest *action,
                                      struct bytes instance);
/* Of a record, or an entry of the index on disk: an ACTION of its instance, or any other kind for a blob. */
struct blob_key blob_table_key(const struct blob_table *table,
                               enum record_kind kind,
                               const struct digest *digest,
                               struct bytes instance);

/*
 * Where blobs of this hash lie, whatever their size (digest's is not looked at): up to `max` places, how many. A place may be of
 * another hash, as with all lookups; and of one hash there is more than one blob only if somebody has broken it.
 */
size_t blob_table_places_of_hash(struct blob_table *table,
                                 const struct digest *digest,
                                 struct place *places,
                                 size_t max);

/*
 * Adds or replaces; the entry is untouched then. RESOURCE_EXHAUSTED when memory is used up: what
 * was there stays.
 */
MUST_CHECK bool blob_table_put(struct blob_table *table,
                               struct blob_key key,
                               struct place place,
                               struct status *status);

/* True and *place if it is there; touch: marks it as used, for eviction. */
bool blob_table_get(struct blob_table *table, struct blob_key key, bool touch, struct place *place);

/* Many at once, each touched: present[i] for keys[i]. */
void blob_table_get_many(struct blob_table *table,
                         const struct blob_key *keys,
                         size_t count,
                         bool *present);

/*
 * While a table is being loaded (from the index on disk, with others using it) entries may be
 * missing that blob_table_load() will bring, and what is removed is remembered, so that it is not
 * brought back. begin: before anybody else uses the table.
 */
void blob_table_begin_load(struct blob_table *table);
void blob_table_end_load(struct blob_table *table);
bool blob_table_is_loading(const struct blob_table *table);

/*
 * Adds the entry, untouched, unless its key has been put or removed since the load began, or the
 * load is over. RESOURCE_EXHAUSTED as above.
 */
MUST_CHECK bool blob_table_load(struct blob_table *table,
                                struct blob_key key,
                                struct place place,
                                struct status *status);

/*
 * An empty table whose keys are those of the other one; and all that it has brought into that one,
 * as by blob_table_load().
 */
MUST_CHECK bool blob_table_new_beside(const struct blob_table *other,
                                      struct blob_table **table,
                                      struct status *status);
MUST_CHECK bool blob_table_load_from(struct blob_table *table,
                                     struct blob_table *from,
                                     struct status *status);

/* Whether a load may still bring an entry of this key. */
bool blob_table_may_come(struct blob_table *table, struct blob_key key);

/* How an entry was used: for eviction. */
struct blob_use {
    struct place place;
    uint16_t
        touch;    /* of the last use, as it is kept: 0 untouched; equal as long as nobody uses it */
    bool touched; /* since it was put, or its touch was cleared */
    uint32_t idle_minutes; /* since it was touched last; only if touched */
};

/* True and *use if the entry is there. Does not touch it. */
bool blob_table_look(struct blob_table *table, struct blob_key key, struct blob_use *use);

/*
 * Removes the entry if it still lies at `seen->place` and was not used since `seen`. BLOB_EVICT_USED: it lies there and
 * was used; *seen is how it is now. BLOB_EVICT_GONE: it lies elsewhere, or nowhere.
 */
enum blob_evicted { BLOB_EVICTED, BLOB_EVICT_USED, BLOB_EVICT_GONE };
enum blob_evicted blob_table_evict(struct blob_table *table,
                                   struct blob_key key,
                                   struct blob_use *seen);

/* Puts an evicted entry back, used as it was, unless there is one again. False when memory is used up. */
MUST_CHECK bool blob_table_restore(struct blob_table *table,
                                   struct blob_key key,
                                   const struct blob_use *use,
                                   struct status *status);

/* Removes all entries that lie in the segment; how many there were. Goes through all slots. */
size_t blob_table_forget_segment(struct blob_table *table, uint64_t segment);

/*
 * Marks all entries as used idle_minutes ago that lie in one of the segments and were not used; bit n of `segments` is segment n,
 * those from `bits` on are not marked. Goes through all slots.
 */
void blob_table_touch_segments(struct blob_table *table,
                               const uint8_t *segments,
                               size_t bits,
                               uint32_t idle_minutes);
/* The same for one entry, if it lies there. */
void blob_table_set_used(struct blob_table *table,
                         struct blob_key key,
                         struct place place,
                         uint32_t idle_minutes);

/*
 * Some of the entries that were used, at most max, in no order; *cursor is 0 at first, and BLOB_TABLE_END once all have come by.
 * What is put or moved meanwhile may come twice or not at all.
 */
#define BLOB_TABLE_END UINT64_MAX
size_t blob_table_read_used(struct blob_table *table,
                            uint64_t *cursor,
                            struct blob_use *uses,
                            size_t max);

/* The minute that touches are noted with from now on; any count of minutes that only grows. */
void blob_table_set_minute(struct blob_table *table, uint64_t minute);

/* Marks an entry as used now, if it is there. */
void blob_table_touch(struct blob_table *table, struct blob_key key);

/*
 * Puts the entry at `to` if it still lies at `from`; true if it did. It counts as untouched then if its touch is still
 * `clear`; another one stays (0: whatever it is).
 */
bool blob_table_replace(struct blob_table *table,
                        struct blob_key key,
                        struct place from,
                        struct place to,
                        uint16_t clear);

/* Removes the entry if it still lies at `place`; true if it did. */
bool blob_table_remove(struct blob_table *table, struct blob_key key, struct place place);

/*
 * Removes every entry whose record begins in these bytes of a segment; how many. Goes through all
 * slots: for damage that nothing says the owner of.
 */
size_t blob_table_remove_between(struct blob_table *table,
                                 uint64_t segment,
                                 uint64_t offset,
                                 uint64_t end);

/*
 * Entries in segments below it count as absent from now on and their slots are free. Never goes
 * back.
 */
void blob_table_set_min_segment(struct blob_table *table, uint64_t segment);

/*
 * Entries that count as present. Goes through all slots if the lowest segment has moved since it
 * was asked last.
 */
size_t blob_table_count(struct blob_table *table);

#endif
