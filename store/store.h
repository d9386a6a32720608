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
#include "store/segment_log.h"

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
    uint64_t node_uid;
    uint64_t segment_bytes[LANE_COUNT];
    uint64_t capacity_bytes;
    uint64_t reserve_bytes;
    int64_t vouch_ns;
    _Atomic uint64_t next_segment_number;
    struct segment_set *segments;
    struct blob_table *table;
    struct segment_log *logs[LANE_COUNT]; /* NULL until recovery has opened them */

    /* FORGETs that are submitted and not yet answered: durability/forget.h's. */
    struct lock forget_lock;
    struct condition forgets_answered;
    size_t forgets_in_flight; /* guarded by forget_lock */
};

struct store_config {
    struct io *io;
    struct clock *clock;
    struct metrics *metrics;
    struct buffer_pool *buffers;
    const char *directory;
    uint64_t segment_bytes[LANE_COUNT]; /* 0: 256 MiB and 1 GiB, or less to suit the capacity */
    uint64_t
        capacity_bytes; /* of all segment files; 0: as much as the disk has. At least STORE_CAPACITY_BYTES_MIN */
    uint64_t reserve_bytes; /* of the disk that eviction keeps free; 0: none */
    int64_t vouch_ns; /* how long a blob that was found or read is kept whatever else must go */
};

/* A few segments of the smallest size in each lane. */
#define STORE_CAPACITY_BYTES_MIN (16 * SEGMENT_BYTES_MIN)

/*
 * Makes the directory if it is not there, takes its LOCK, checks or writes FORMAT, removes .new files, opens the segments.
 * A segment file whose header is damaged is left where it is, named in one log line, and not used.
 * FAILED_PRECONDITION: another process holds it, or its format is newer than we know. INVALID_ARGUMENT: DATA is no store
 * and not empty.
 */
MUST_CHECK bool store_open(const struct store_config *config,
                           struct store **store,
                           struct status *status);
void store_close(struct store *store);

/* Is it there and durable. Marks it as used. The empty blob always is. */
bool store_has_blob(struct store *store, const struct digest *digest);
void store_has_blobs(struct store *store,
                     const struct digest *digests,
                     size_t count,
                     bool *present);

#endif
