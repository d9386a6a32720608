/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: the sequence of segments that records of one size class are appended to. Gives each record its seq and
 * place. An append leaves the record in the page cache; segment_log_sync() makes it durable. Says nothing to anybody
 * about durability: durability/commit.h does.
 *
 * Appending: any thread. Syncing: one thread (the lane's committer). Maintaining: one thread, another.
 */
#ifndef VARVE_STORE_SEGMENT_LOG_H
#define VARVE_STORE_SEGMENT_LOG_H

#include "base/clock.h"
#include "base/metrics.h"
#include "store/segment_set.h"
#include "store/space.h"

struct segment_log;

/* One record to be appended. The parts marked "in" are set by the caller and borrowed until the append returns. */
struct record {
    enum record_kind kind;       /* in */
    struct digest digest;        /* in */
    uint64_t blob_offset;        /* in: CHUNK */
    struct bytes_list payload;   /* in */
    uint64_t payload_bytes;      /* in: sum of the parts */
    uint32_t payload_crc32c;     /* in: crc32c_list(0, payload), computed off the lane's lock */
    uint64_t seq;                /* out */
    struct place place;          /* out */
    struct record_header header; /* scratch */
};

/* Where the next record would go and its seq: what recovery begins from once everything before it is indexed. */
struct segment_log_position {
    struct place place;
    uint64_t seq;
};

struct segment_log_config {
    struct io *io; /* borrowed, as all pointers here */
    struct clock *clock;
    struct metrics *metrics;
    struct segment_set *segments;
    const char *directory; /* DATA/segments; copied */
    enum lane lane;
    uint64_t segment_bytes; /* SEGMENT_BYTES_MIN to SEGMENT_BYTES_MAX */
    struct space *space;    /* what segments are made of */
    uint64_t node_uid;
    _Atomic uint64_t *next_segment_number; /* shared by the lanes */
    uint64_t next_seq;                     /* from recovery; 1 in a new store */
    struct segment *resume
        [2]; /* empty segments of this lane to go on with, ascending, or NULL; in the set already */
    struct segment_log_position
        position; /* behind the last record there is; segment 0 in a new store */
};

MUST_CHECK bool segment_log_new(const struct segment_log_config *config,
                                struct segment_log **log,
                                struct status *status);
/* Closes without syncing: whoever wants durability has committed. The segments stay in the set. */
void segment_log_free(struct segment_log *log);

/*
 * Appends all of the records or none. Rotates to the next segment where they do not fit.
 * Waits up to LIMIT_WAIT_FOR_ROOM_NS for an eviction when the store is full, and once it has been full for so long, no more;
 * waits for a sync while the log is crowded.
 * RESOURCE_EXHAUSTED: the disk is full, or the store still is (with numbers; asking again later is right).
 * UNAVAILABLE: the lane has failed, for good; or no segment can be made (the log says why), and asking again later is right.
 * INTERNAL: a write failed; the lane has failed.
 */
MUST_CHECK bool segment_log_append(struct segment_log *log,
                                   struct record *const *records,
                                   size_t count,
                                   struct status *status);

/* As above for what eviction moves, with room that other writes do not get; and where that is used up it does not wait. */
MUST_CHECK bool segment_log_append_move(struct segment_log *log,
                                        struct record *const *records,
                                        size_t count,
                                        struct status *status);

/* For the lane's committer, which must never wait for an eviction or for itself. */
enum segment_log_result {
    SEGMENT_LOG_APPENDED,
    SEGMENT_LOG_SYNC_FIRST, /* nothing was appended: too many full segments wait for a sync */
    SEGMENT_LOG_NO_ROOM, /* nothing was appended: a segment must be evicted first; ask again later */
    SEGMENT_LOG_REFUSED, /* nothing was appended: *status says why, as above */
};
MUST_CHECK enum segment_log_result segment_log_try_append(struct segment_log *log,
                                                          struct record *const *records,
                                                          size_t count,
                                                          enum space_use use,
                                                          struct status *status);

/* The seq of the last record appended (0: none ever). Any thread. */
uint64_t segment_log_pending_seq(struct segment_log *log);
uint64_t segment_log_unsynced_bytes(struct segment_log *log);
/* Appends have run ahead of the disk: a rotation waits for a sync. */
bool segment_log_is_crowded(struct segment_log *log);

/*
 * Makes everything durable that was appended before the call: syncs each segment with unsynced bytes, oldest first.
 * *covered: the seq up to which it did (read before the syncs begin). False: the lane has failed, for good.
 */
MUST_CHECK bool segment_log_sync(struct segment_log *log, uint64_t *covered, struct status *status);

/* Gives the lane a full segment that has no footer yet, found by recovery. */
void segment_log_adopt_unsealed(struct segment_log *log, struct segment *segment);

/* Seals segments that are full and synced; makes the next segment if there is none ready. One thread; never the committer. */
void segment_log_maintain(struct segment_log *log);

/* Syncs and seals the active segment, so that the next start finds everything footed. Nobody appends any more. */
MUST_CHECK bool segment_log_finish(struct segment_log *log, struct status *status);

/*
 * Called on the appending thread, holding no lock: sync_wanted when LIMIT_UNSYNCED_BYTES are unsynced, else the lane has
 * rotated, or waits for room.
 */
void segment_log_set_hook(struct segment_log *log,
                          void (*hook)(void *argument, bool sync_wanted),
                          void *argument);

/* The position behind the last record that was synced. */
struct segment_log_position segment_log_synced_position(struct segment_log *log);

/* True while the lane has no next segment made ahead. */
bool segment_log_wants_spare(struct segment_log *log);

/* Tells appenders that wait that there may be room again, and lets a disk that was full be tried again at once. */
void segment_log_room_made(struct segment_log *log);

/* What a segment of the lane holds, whatever state it is in. */
struct segment_look {
    uint64_t first_seq; /* 0: it holds no record, or its first one cannot be read */
    uint64_t
        last_seq; /* not durable, perhaps; where it is neither sealed nor noted not known, perhaps */
    uint64_t
        end; /* where its records end; SEGMENT_HEADER_BYTES: there is none, or it is not known */
    bool sealed;  /* its footer is on disk, and nothing of this changes any more */
    bool noted;   /* its records are all in memory */
    size_t count; /* so many of them were given */
};

/*
 * entries: room for `capacity`; if the segment is noted, they are filled from the record from_seq on. The segment is pinned.
 * Any thread.
 */
void segment_log_look(struct segment_log *log,
                      const struct segment *segment,
                      uint64_t from_seq,
                      struct footer_entry *entries,
                      size_t capacity,
                      struct segment_look *look);

/* About how much of the lane's log lies behind this offset of a segment, which is pinned. */
uint64_t segment_log_bytes_behind(struct segment_log *log,
                                  const struct segment *segment,
                                  uint64_t offset);

/* The seq of the record at offset of a segment of the lane, or, where that is not in memory, of the segment's last. */
uint64_t segment_log_seq_at(struct segment_log *log,
                            const struct segment *segment,
                            uint64_t offset);

/* True if the segment is of no more use to the lane: full, durable, sealed or given up. */
bool segment_log_is_done_with(struct segment_log *log, const struct segment *segment);

/*
 * Refuses appends and syncs from now on, as if one of its own had failed: for a store whose other lane did. What is
 * being synced meanwhile may still become durable. Any thread.
 */
void segment_log_refuse(struct segment_log *log, const struct status *why);

/* True once a write or sync failed; *status (may be NULL) says why. */
bool segment_log_failed(struct segment_log *log, struct status *status);

#endif
