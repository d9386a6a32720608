/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index on disk (RocksDB): a crash-safe snapshot of which durable record holds what, so that a
 * start need not read the segments. It is asked by key only while the index in memory is being
 * loaded from it; it may be deleted at any stop.
 *
 * Key:   kind byte ('b' blob, 'a' action result), digest function byte, hash; for 'a' also the
 *        instance name.
 * Value: 32 bytes: place (u64), blob size (u64), payload bytes (u64), record kind (u8), 7 reserved.
 *        Place 0: forgotten, as if it were not there. A forget is a merge operand of 8 bytes: the
 *        place that it is about.
 * Meta:  key "\0checkpoint": per lane a position; everything before it is in this database. Every
 *        batch carries it; write order makes it true after any stop, without a WAL.
 *
 * All calls of one index come from one thread at a time, but for index_get(): any thread, any time.
 */
#ifndef VARVE_STORE_INDEX_H
#define VARVE_STORE_INDEX_H

#include "store/segment_log.h"

struct index;

struct index_entry {
    bool forget; /* delete the key if it still names this place (0: none does); else put */
    enum record_kind kind; /* BLOB, MANIFEST or ACTION: what the record at place is */
    struct digest digest;  /* blob or action */
    struct bytes instance; /* ACTION; borrowed */
    struct place place;
    uint64_t payload_bytes;
};

struct index_checkpoint {
    struct segment_log_position lanes[LANE_COUNT]; /* place.segment 0: nothing of this lane yet */
};

/*
 * path: DATA/index; made if it is not there or empty.
 * Errors: INTERNAL or DATA_LOSS when RocksDB refuses: then index_destroy() and rebuild.
 * RESOURCE_EXHAUSTED when the disk is full, FAILED_PRECONDITION when it is open elsewhere: what is
 * there may be good.
 */
MUST_CHECK bool index_open(const char *path, struct index **index, struct status *status);
/*
 * To look at one that is there, nothing of it is changed: only reading works. NOT_FOUND when there is
 * none.
 */
MUST_CHECK bool index_open_read_only(const char *path, struct index **index, struct status *status);
void index_close(struct index *index); /* flushes */
/* Removes the directory with all that is in it, following no link; nothing there is fine. */
MUST_CHECK bool index_destroy(const char *path, struct status *status);

/*
 * One atomic batch with its checkpoint; entries count in their order. Waits for a flush when the
 * disk is slower than the writes.
 * Errors: RESOURCE_EXHAUSTED (the disk is full), DATA_LOSS (a compaction has met a damaged file),
 * UNAVAILABLE (nothing was flushed for 30 s), INTERNAL. The index is broken then.
 */
MUST_CHECK bool index_write(struct index *index,
                            const struct index_entry *entries,
                            size_t count,
                            const struct index_checkpoint *checkpoint,
                            struct status *status);
MUST_CHECK bool index_flush(struct index *index, struct status *status);

/* Zeroed when there is none. */
MUST_CHECK bool index_read_checkpoint(struct index *index,
                                      struct index_checkpoint *checkpoint,
                                      struct status *status);

/*
 * Calls `each` for every entry until it returns false (then the status is each's). The entry's
 * instance is valid during the call. DATA_LOSS when a file is damaged or an entry makes no sense.
 */
MUST_CHECK bool index_iterate(struct index *index,
                              bool (*each)(void *argument,
                                           const struct index_entry *entry,
                                           struct status *status),
                              void *argument,
                              struct status *status);

/*
 * The same in pieces: the entries that are there when it is opened, whatever is written meanwhile.
 * Closed before the index is.
 */
struct index_cursor;
MUST_CHECK bool index_cursor_open(struct index *index,
                                  struct index_cursor **cursor,
                                  struct status *status);
void index_cursor_close(struct index_cursor *cursor);
/* Up to `count` entries; *more: whether there may be others. Errors as above. */
MUST_CHECK bool index_cursor_read(struct index_cursor *cursor,
                                  size_t count,
                                  bool (*each)(void *argument,
                                               const struct index_entry *entry,
                                               struct status *status),
                                  void *argument,
                                  bool *more,
                                  struct status *status);

/* The size of a digest that is asked for whatever its size is. */
#define INDEX_ANY_SIZE INT64_C(-1)

/*
 * Looks one key up (kind, ACTION or not; digest; instance, of LIMIT_INSTANCE_NAME_BYTES at most)
 * among what is flushed: what was there when the index was opened, and perhaps newer. The digest's
 * size counts too, unless it is INDEX_ANY_SIZE. *found's instance is empty.
 */
MUST_CHECK bool index_get(struct index *index,
                          const struct index_entry *key,
                          struct index_entry *found,
                          bool *is_there,
                          struct status *status);

/* Entries in this segment are dropped in compactions; until then an iteration gives them. For good: numbers are not used again. */
void index_mark_dead(struct index *index, uint64_t segment);

/*
 * A write or a flush has failed, or RocksDB reports a background error (a full disk, ...). It stays
 * so until it is closed and opened again.
 */
bool index_is_broken(struct index *index);

#endif
