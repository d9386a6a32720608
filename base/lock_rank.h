/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every lock of the program, in the only order in which they may be taken: a thread that holds a
 * lock may take only locks further down. lock_acquire() asserts it, in release too. Two locks of
 * one rank are never held together.
 */
#ifndef VARVE_BASE_LOCK_RANK_H
#define VARVE_BASE_LOCK_RANK_H

/*   X(name, what it protects) */
#define LOCK_RANKS(X)                                                                              \
    X(SERVER, "server: the list of live calls and the state of a shutdown")                        \
    X(UPLOAD_TABLE, "uploads: the table of unfinished uploads and who leads each digest")          \
    X(UPLOAD, "one blob being uploaded: the chunks that several uploads of it have in common")     \
    X(PEERS, "peers: the nodes that are followed, and how far each is")                            \
    X(PULLER, "one puller: what it reports")                                                       \
    X(REPAIR, "read repair: blobs that are asked of peers, and who waits for them")                \
    X(FLIGHTS, "what is on its way into the store, and who waits for it")                          \
    X(WALKS, "walks: what walks through trees hold, and which wait")                               \
    X(TIER_QUEUE, "what is on its way to the bucket, of one lane")                                 \
    X(TIER_PUSH, "uploads to the bucket: who waits for whom, and the stop")                        \
    X(TIER_INDEX, "what is known of the bucket: the order of writes to its index")                 \
    X(CALL, "one call: the hand-over between threads")                                             \
    X(CLIENT, "one client connection: calls in flight")                                            \
    X(COMMIT, "commit: the queue of one lane and its failure")                                     \
    X(WATERMARK, "watermark: pending and durable seq of one lane, and who waits")                  \
    X(SEGMENT_LOG, "lane: the active segment, its end, the next seq, unsynced segments")           \
    X(SEGMENT_SET, "store: which segments exist, and readers' pins")                               \
    X(BLOB_TABLE, "one shard of the index in memory")                                              \
    X(INDEXER, "indexer: entries that wait for RocksDB")                                           \
    X(FEED, "feed: where readers of this node's log have come to")                                 \
    X(COPIES, "copies: who follows this node's log, and the writes that wait for them")            \
    X(ACK, "ack: completions that wait for their thread")                                          \
    X(WORKERS, "workers: the queue of tasks")                                                      \
    X(BUDGET, "admission: bytes and calls in flight, and who waits for them")                      \
    X(BUFFER_POOL, "the free buffers, and who waits for one")                                      \
    X(TIER, "a bucket: its credentials, its breaker, connections that are idle")                   \
    X(METRICS, "metrics: registration of series")                                                  \
    X(IO_SIM, "tests: the simulated disk")                                                         \
    X(LEAF, "tests and tools: a lock under which nothing else is taken")

enum lock_rank {
#define LOCK_RANK_ENUM(name, what) LOCK_RANK_##name,
    LOCK_RANKS(LOCK_RANK_ENUM)
#undef LOCK_RANK_ENUM
        LOCK_RANK_COUNT
};

#endif
