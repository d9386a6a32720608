/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one data directory holds, brought together: segments, the two lanes, the index in memory. It is opened by
 * durability/recovery.h, which fills the index; after that writes go by blob_writer.h and durability/commit.h, reads by
 * blob_reader.h.
 */
#ifndef VARVE_STORE_STORE_H
#define VARVE_STORE_STORE_H

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/metrics.h"
#include "store/blob_table.h"
#include "store/cold_index.h"
#include "store/evicted.h"
#include "store/format_file.h"
#include "store/segment_log.h"

/* How a store is opened: to be used, or to be looked at, with nothing in it changed. */
enum store_access { STORE_READ_WRITE, STORE_READ_ONLY };

/* An order to forget, as far as it is remembered. */
struct forget_seen {
    uint64_t origin_uid;
    int64_t wall_ns;
    uint64_t hash; /* the first bytes of it */
};

struct store {
    /* Borrowed. */
    struct io *io;
    struct clock *clock;
    struct metrics *metrics;
    struct buffer_pool *buffers; /* of LIMIT_POOL_BUFFER_BYTES */

    /* Owned; set when it is opened, never changed. */
    char *directory;          /* DATA */
    char *segments_directory; /* DATA/segments */
    int lock_fd;
    enum store_access access;
    enum format_file_state format; /* as it was found */
    uint64_t node_uid;             /* 0: READ_ONLY, and nothing says it */
    uint64_t segment_bytes[LANE_COUNT];
    uint64_t blob_bytes_max; /* larger ones would not fit even if nothing else were there */
    int64_t vouch_ns;
    uint64_t scrub_bytes_per_s;
    struct space space;
    _Atomic uint64_t next_segment_number;
    struct segment_set *segments;
    /* Numbers of segment files that are there and could not be used when the store was opened, ascending; owned. */
    uint64_t *unusable;
    size_t unusable_count;
    struct blob_table *table;
    struct evicted *evicted;
    struct cold_index cold;               /* asked while table is being loaded */
    struct segment_log *logs[LANE_COUNT]; /* NULL until recovery has opened them */
    /* Segments whose entries count as used after a start, a bit a number; owned; read at the end of the load. */
    uint8_t *younger;
    size_t younger_bits;
    struct use_file *
        uses; /* what was used before the start, until all is in memory; owned; NULL: nobody knows, or needs it */
    /* Set by recovery, never changed: what entries of the index on disk have to be asked (store/find.h). */
    bool chunks_lost;      /* a segment of the large lane is short or missing */
    uint64_t oldest_large; /* number of the large lane's oldest segment */

    /* FORGETs that are submitted and not yet answered: durability/forget.h's. */
    struct lock forget_lock;
    struct condition forgets_answered;
    size_t forgets_in_flight; /* guarded by forget_lock */
    /* Orders of other nodes that were carried out; durability/forget_order.h's. Owned; NULL: none yet. */
    struct forget_seen *forgets_seen; /* guarded by forget_lock */
    size_t forgets_seen_at;           /* guarded by forget_lock: where the next one goes */

    /* Records that the disk refused to read lately; store/record_read.h's. */
    struct lock unreadable_lock;
    int64_t unreadable_since_ns; /* guarded by unreadable_lock: when the minute began */
    unsigned unreadable_count;   /* guarded by unreadable_lock: in it; 0: none ever */

    struct lock write_time_lock;
    int64_t write_time_ns; /* guarded by write_time_lock: the latest, store/write_time.h */
};

struct store_config {
    struct io *io;
    struct clock *clock;
    struct metrics *metrics;
    struct buffer_pool *buffers;
    const char *directory;
    enum store_access access;
    uint64_t segment_bytes
        [LANE_COUNT];        /* 0: 256 MiB and 1 GiB, or less to suit the capacity and the disk */
    uint64_t capacity_bytes; /* of all segment files; 0: as much as the disk has */
    uint64_t
        reserve_bytes; /* of the disk that eviction keeps free; 0: nothing is evicted for the disk's sake */
    int64_t vouch_ns; /* how long a blob that was found or read is kept whatever else must go */
    uint64_t scrub_bytes_per_s; /* durability/scrub.h; 0: no pass begins by itself */
};

/*
 * The capacity, or the disk, is so many times a segment of each lane at least: one in use, one made ahead, and one for what is
 * stored and what is being moved.
 */
enum { STORE_SEGMENTS_MIN = 3 };
/* With fewer of the smallest segments than this it works, but hardly stores anything. */
#define STORE_CAPACITY_BYTES_MIN (16 * SEGMENT_BYTES_MIN)

/*
 * Makes the directory if it is not there, takes its LOCK, checks or writes FORMAT, removes .new files, opens the segments.
 * A FORMAT that is damaged or gone is made anew from the segments' headers. A segment file of which too little is left
 * is left where it is, named in one log line, and not used.
 * FAILED_PRECONDITION: another process holds it, or its format is newer than we know. INVALID_ARGUMENT: DATA is no store
 * and not empty, or the capacity or the disk is too small for the segments. DATA_LOSS: nothing that can be read says whose store
 * it is.
 *
 * STORE_READ_ONLY: for a store that is there; takes the LOCK, writes and removes nothing, and complains of nothing but another
 * process, a newer format, and that there is no store.
 */
MUST_CHECK bool store_open(const struct store_config *config,
                           struct store **store,
                           struct status *status);
void store_close(struct store *store);

/* A file of ours in DATA/segments. */
struct store_file {
    uint64_t number;
    const char *suffix; /* static: "seg", "new" or "dead" */
};

/* By number, ascending; freed by the caller. */
MUST_CHECK bool store_list_files(struct store *store,
                                 struct store_file **files,
                                 size_t *count,
                                 struct status *status);

/* Is the whole index in memory, so that nothing that is looked up waits for the disk? */
bool store_is_in_memory(const struct store *store);

/* Is it there and durable. Marks it as used. The empty blob always is. */
bool store_has_blob(struct store *store, const struct digest *digest);
void store_has_blobs(struct store *store,
                     const struct digest *digests,
                     size_t count,
                     bool *present);

/* Its file is there, but the store was opened without it: it cannot be read, or is damaged too much. */
bool store_left_out(const struct store *store, uint64_t segment);

#endif
