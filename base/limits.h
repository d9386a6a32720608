/* SPDX-License-Identifier: Apache-2.0 */
/* Every bound of the program that is not a flag, with its reason. Flags are in server/config.c. */
#ifndef VARVE_BASE_LIMITS_H
#define VARVE_BASE_LIMITS_H

#include "base/compiler.h"

/*
 * Blobs up to this go whole into one record of the small lane; larger ones in chunks of this size
 * to the large lane.
 */
#define LIMIT_SMALL_BLOB_BYTES (1 * MIB)
#define LIMIT_CHUNK_BYTES (1 * MIB)

/* So many records a minute that a disk refuses to read are lost sectors; more, and it is the disk that is gone. */
#define LIMIT_UNREADABLE_RECORDS 256

/* A pooled buffer holds a chunk with its record header and padding. */
#define LIMIT_POOL_BUFFER_BYTES (LIMIT_CHUNK_BYTES + 4096)

/*
 * Largest blob: its manifest (32 bytes a chunk) stays below LIMIT_MANIFEST_BYTES when all chunks
 * are full.
 */
#define LIMIT_BLOB_BYTES (1024 * GIB)
#define LIMIT_MANIFEST_BYTES (64 * MIB)

/*
 * Announced in Capabilities: leaves room for some 5,000 entries of overhead in receivers that take
 * 4 MiB (docs/protocol.md, decision 6).
 */
#define LIMIT_BATCH_TOTAL_BYTES 3670016
/*
 * What the compressed entries of one BatchUpdateBlobs decode to, all together; larger blobs are
 * streamed.
 */
#define LIMIT_BATCH_DECODED_BYTES (16 * MIB)
/* Taken in: clients overshoot, and 100,000 digests to FindMissingBlobs are 7.2 MiB. */
#define LIMIT_MESSAGE_BYTES (16 * MIB)
/* Hashed, or read from memory, on the thread that polls for all calls of a connection: some 20 us. */
#define LIMIT_ANSWERED_HERE_BYTES (32 * KIB)
/* Sent out: every client library takes 4 MiB by default. */
#define LIMIT_RESPONSE_BYTES (4 * MIB - 64 * KIB)
/* Metadata of one call: RequestMetadata of merged actions is up to 8 KiB. */
#define LIMIT_METADATA_BYTES (64 * KIB)

/*
 * Calls that clients of one connection give up: a build that is interrupted has hundreds in flight, and one that races local against
 * remote gives up some of each; a flood has 20,000 a second.
 */
#define LIMIT_RESETS_AT_ONCE 5000
#define LIMIT_RESETS_PER_S 500

/* Keys of what was evicted, for whoever asks why it is gone: 8 bytes each, of 1 GiB of the smallest blobs or 1 TiB of large ones. */
#define LIMIT_EVICTED_REMEMBERED (1 << 20)

#define LIMIT_INSTANCE_NAME_BYTES 256
#define LIMIT_RESOURCE_NAME_BYTES 4096
/* An ActionResult as stored; 5,000 outputs are 600 KiB. Kept below a response message. */
#define LIMIT_ACTION_RESULT_BYTES (3 * MIB)
/* What an answer may inline of stdout, stderr and files, all together. */
#define LIMIT_INLINE_BYTES (1 * MIB)
/* A Tree that is read whole for the completeness check. */
#define LIMIT_TREE_BYTES (64 * MIB)
/*
 * Trees and Directories that one completeness check reads, all together. Outputs of one action are
 * far below.
 */
#define LIMIT_COMPLETENESS_BYTES (4 * LIMIT_TREE_BYTES)
/*
 * Directories that one GetTree visits; and nesting is bounded by it, since the walk is not
 * recursive.
 */
#define LIMIT_TREE_DIRECTORIES 1000000

/* One round of group commit: what one gathered write and one sync carry. */
#define LIMIT_COMMIT_BYTES (4 * MIB)
#define LIMIT_COMMIT_RECORDS 512
/*
 * How long a round waits for more once more than one waits. Longer always lost (docs/decisions/0001).
 */
#define LIMIT_COMMIT_WINDOW_NS (100 * 1000)
/*
 * How long a write waits for an eviction when the store is full, before its client is told. Clients' own deadlines are
 * some 60 s.
 */
#define LIMIT_WAIT_FOR_ROOM_NS (5 * INT64_C(1000000000))
/*
 * What eviction moves in one round: others' writes wait for that long, some 2 ms.
 */
#define LIMIT_MOVE_ROUND_BYTES (2 * MIB)
/*
 * Requests that wait for a round of one lane; beyond it writes are refused with RESOURCE_EXHAUSTED.
 */
#define LIMIT_COMMIT_QUEUE 65536
/*
 * The large lane is synced in the background each time so much is unsynced, so that the last sync
 * is short.
 */
#define LIMIT_UNSYNCED_BYTES (16 * MIB)
/*
 * Entries that wait for the index on disk; beyond it the queue is dropped and caught up from the
 * segments.
 */
#define LIMIT_INDEX_QUEUE 1048576

/* Nodes that follow this one's log; whoever was not heard of for longest gives way. */
#define LIMIT_FOLLOWERS 64
/* Their calls that wait for something new: one a lane, and some that broken connections have left behind. */
#define LIMIT_FEEDS_WAITING 256
/* Deletions ordered by other nodes that are remembered, so that none is carried out twice; 24 bytes each. */
#define LIMIT_FORGET_ORDERS 16384
/* Rounds of commit whose writes wait for copies elsewhere; as many as there can be calls, more or less. */
#define LIMIT_COPIES_WAITING 65536

/* Memory of one call besides its messages. */
#define LIMIT_CALL_ARENA_BYTES (64 * MIB)

/*
 * How long pollers and workers may do nothing of what waits for them until the server counts as
 * stuck (server/progress.h).
 */
#define LIMIT_STUCK_NS (60 * INT64_C(1000000000))
/* Likewise a lane of the store: the kernel itself gives a disk 30 s, several times. */
#define LIMIT_STUCK_DISK_NS (180 * INT64_C(1000000000))

/*
 * What HTTP requests hold in memory whose length or name is not known before their end, all together; and, beyond
 * it and for larger ones, in files.
 */
#define LIMIT_HTTP_MEMORY_BYTES (256 * MIB)
#define LIMIT_HTTP_SPOOL_BYTES (16 * GIB)

/* Unfinished uploads kept for resumption; the oldest idle one gives way. */
#define LIMIT_UPLOADS 16384

#endif
