/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unfinished ByteStream uploads. An upload is known by (instance, uuid, compressor, digest), because clients use one uuid for all
 * their blobs (docs/protocol.md, decision 4), and outlives its stream by `keep` so that it can be resumed: if it is of a blob of the large
 * lane and not compressed. All others begin again at 0.
 *
 * Of several uploads of one digest the first leads; the others wait, having read one message, as long as the leader makes
 * progress, and are answered as soon as the blob is there. If the leader stops or fails the next one goes on by itself
 * (server/upload_group.h); what any of them has written the others need not write again (store/chunk_share.h). Only for blobs
 * of the large lane: small ones cost little twice.
 *
 * One stream at a time is inside an upload, from upload_enter() to upload_leave() or upload_close(); outside of that the table may give
 * the upload's memory back (a pooled buffer, by writing what is in it), hand it to a newer stream or let it go.
 *
 *            upload_open()                 upload_enter()
 *   (none) ────────────────► held ◄──────────────────────────► inside ─────────┐
 *                             │ ▲            upload_leave()                    │
 *    upload_close(KEEP),      │ │ upload_open() of a newer stream,             │ upload_close(STORED or DROP)
 *    or the client is gone    ▼ │ at an offset that is there                   ▼
 *                            kept ──────────────────────────────────────────► ended
 *                                   keep time is over, or it gave way
 *
 * A stream that says offset 0 always gets an upload of its own and never disturbs an older one, which goes on but can no
 * longer be resumed. A stream that says another offset takes the upload over; the older stream is told so at its next turn.
 *
 * Bounded: LIMIT_UPLOADS, and UPLOADS_SMALL_BYTES for what small ones hold. The one that is idle for longest gives way; of small
 * ones, when none is, the slowest.
 */
#ifndef VARVE_SERVER_UPLOADS_H
#define VARVE_SERVER_UPLOADS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "proto/resource_name.h"
#include "server/upload_group.h"
#include "server/zstd_stream.h"

struct blob_writer;
struct store;
struct upload;
struct upload_table;

/* What unfinished small blobs of several messages hold in memory, all together. */
#define UPLOADS_SMALL_BYTES (256 * MIB)
/* What decoders hold, all together: four of the largest window, some hundred of the usual ones. */
#define UPLOADS_ZSTD_BYTES (512 * MIB)
/* An upload without a message for so long gives its buffer back; and sooner when most buffers are in use. */
#define UPLOADS_IDLE_NS (2 * NS_PER_S)
#define UPLOADS_IDLE_SHORT_NS (200 * NS_PER_MS)
/* A small blob that takes so long may give its memory to others: it comes at less than 100 KiB/s. */
#define UPLOADS_SLOW_NS (10 * NS_PER_S)

MUST_CHECK bool upload_table_new(struct store *store,
                                 struct clock *clock,
                                 struct metrics *metrics,
                                 int64_t keep_ns,
                                 struct upload_table **table,
                                 struct status *status);
void upload_table_free(struct upload_table *table); /* no call uses it any more */

/* Housekeeping, every 100 ms by the maintenance thread: parks idle uploads (gives their buffers back), drops expired ones, wakes
   those who wait for a leader that has stalled. */
void upload_table_step(struct upload_table *table);

/* Bytes held of an upload that can be resumed; 0 for all others. */
uint64_t upload_table_held_bytes(struct upload_table *table, const struct resource_name *name);

/* Shared by all decoders of uploads. */
struct zstd_budget *upload_table_zstd_budget(struct upload_table *table);

/* ---- what a stream does */

/* A Write call's part in an upload. In the call's memory, zeroed at first; all but wake is the table's. */
struct upload_stream {
    /*
     * After upload_enter() said WAIT: it is worth asking again. Any thread, with the table's lock held: may wake a call, no more.
     * Never called before upload_open() or after upload_close().
     */
    void (*wake)(struct upload_stream *stream);
    struct upload_table *table; /* NULL: not open */
    struct upload *upload;      /* NULL: another stream has it now */
    struct upload_member member;
    bool waits;
    bool inside;
};

/*
 * Finds or makes the upload. name: only looked at during the call. offset: not negative.
 * Errors: ABORTED when less is held than offset, naming what is held; INVALID_ARGUMENT for a blob that is too large;
 * RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool upload_open(struct upload_table *table,
                            const struct resource_name *name,
                            uint64_t offset,
                            struct upload_stream *stream,
                            struct status *status);

enum upload_turn {
    UPLOAD_ENTERED, /* the upload is this stream's alone until it leaves or closes */
    UPLOAD_WAIT,    /* follows another upload, or the upload is in use: wake() will be called */
    UPLOAD_LOST,    /* another stream has it, or it gave way to others: *status says so; close it */
};
enum upload_turn upload_enter(struct upload_stream *stream, struct status *status);
void upload_leave(struct upload_stream *stream);

/* The last record waits for group commit: whoever follows had better wait too. Inside, and stays so. */
void upload_committing(struct upload_stream *stream);

enum upload_outcome {
    UPLOAD_STORED, /* the blob is there: all who wait for it are woken */
    UPLOAD_DROP,   /* what is held is of no use */
    UPLOAD_KEEP,   /* may be resumed, if it is one of those that can */
};
/* The stream has done with it, inside or not. Does nothing for one that is not open. */
void upload_close(struct upload_stream *stream, enum upload_outcome outcome);

/* ---- inside */

/* Of a blob of the large lane; NULL for a small one. */
struct blob_writer *upload_writer(struct upload_stream *stream);
uint64_t upload_held_bytes(const struct upload_stream *stream);

/* Small blobs, in memory of their own. INVALID_ARGUMENT past the digest's size; RESOURCE_EXHAUSTED. */
MUST_CHECK bool upload_small_append(struct upload_stream *stream,
                                    struct bytes data,
                                    struct status *status);
/* What is held of it: lies there until the upload is closed. */
struct bytes upload_small_bytes(const struct upload_stream *stream);

#endif
