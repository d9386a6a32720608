/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of varve.v1.Replication as a follower sends and reads them. What a peer says is not believed: a page is decoded
 * into memory of a bounded size, and whatever else it may claim is for the caller to judge.
 */
#ifndef VARVE_CLIENT_REPLICATION_H
#define VARVE_CLIENT_REPLICATION_H

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

#include "base/digest.h"
#include "proto/wire.h"

/*
 * What nodes call themselves in RequestMetadata. Whoever does is answered from what is on the node's own disk, and no other node is
 * asked.
 */
#define PEER_TOOL_NAME "varved"

#define METHOD_FEED "/varve.v1.Replication/Feed"
#define METHOD_FETCH "/varve.v1.Replication/Fetch"

/* The numbers are those of varve.v1.Lane and varve.v1.RecordKind. */
enum feed_lane { FEED_LANE_SMALL = 1, FEED_LANE_LARGE = 2 };
enum feed_kind { FEED_BLOB = 1, FEED_MANIFEST = 3, FEED_ACTION = 4, FEED_FORGET = 5 };

/* Fields are those of varve.v1.FeedRequest. */
struct feed_request {
    uint64_t node_uid;
    enum feed_lane lane;
    uint64_t after_seq;
    uint32_t max_records;
    uint32_t wait_ms;
    uint64_t follower_uid, follower_durable_seq;
    const char *follower_name; /* borrowed; at most 255 bytes count */
};
grpc_slice feed_request_message(const struct feed_request *request); /* owned by the caller */
grpc_slice fetch_request_message(uint64_t node_uid,
                                 enum feed_lane lane,
                                 uint64_t after_seq,
                                 uint64_t through_seq);

/* Fields are those of varve.v1.FeedRecord; kinds as they came. Parts point into the page. */
struct feed_record {
    uint64_t seq;
    uint64_t kind, forgotten_kind;
    struct digest digest; /* function as it came; hash_length 0: none, or longer than any */
    uint64_t stored_bytes;
    struct bytes instance, writer, result;
    int64_t written_ns;
    uint64_t origin_uid;
};

struct feed_page {
    uint64_t node_uid, next_after_seq, durable_seq, oldest_seq, behind_bytes;
    int64_t write_time_ns; /* 0: not told */
    size_t count;
    struct feed_record *records; /* owned */
    uint8_t *memory;             /* owned: of the message */
    size_t memory_bytes;
};
/* INTERNAL: it is malformed, or has more than records_max. RESOURCE_EXHAUSTED. */
MUST_CHECK bool feed_page_decode(const grpc_byte_buffer *message,
                                 size_t records_max,
                                 struct feed_page *page,
                                 struct status *status);
void feed_page_free(struct feed_page *page); /* zeroed memory is fine */

/* One record of a FetchResponse; the payload points into the message. */
struct fetched_record {
    uint64_t seq;
    struct digest digest;
    struct wire_span payload;
};
/* *more false at the end. INTERNAL when it is malformed. */
MUST_CHECK bool fetch_response_next(struct wire_reader *reader,
                                    struct fetched_record *record,
                                    bool *more,
                                    struct status *status);

#endif
