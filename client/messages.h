/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of blob transfer as a client sends and reads them: requests as slices for gRPC,
 * answers walked where they lie. Field numbers: REAPI v2.12, google.bytestream. Each is tested
 * against protobuf-c's coding.
 */
#ifndef VARVE_CLIENT_MESSAGES_H
#define VARVE_CLIENT_MESSAGES_H

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

#include "base/digest.h"
#include "proto/hot_messages.h"
#include "proto/wire.h"

#define METHOD_FIND_MISSING_BLOBS                                                                  \
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs"
#define METHOD_BATCH_UPDATE_BLOBS                                                                  \
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs"
#define METHOD_BATCH_READ_BLOBS                                                                    \
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs"
#define METHOD_GET_CAPABILITIES "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities"
#define METHOD_GET_ACTION_RESULT "/build.bazel.remote.execution.v2.ActionCache/GetActionResult"
#define METHOD_UPDATE_ACTION_RESULT                                                                \
    "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult"
#define METHOD_READ "/google.bytestream.ByteStream/Read"
#define METHOD_WRITE "/google.bytestream.ByteStream/Write"
#define METHOD_QUERY_WRITE_STATUS "/google.bytestream.ByteStream/QueryWriteStatus"
#define METHOD_STORE_STAT "/varve.v1.Store/Stat"
#define METHOD_STORE_STATUS "/varve.v1.Store/Status"
#define METHOD_STORE_SCRUB "/varve.v1.Store/Scrub"
#define METHOD_REPLICATION_PEERS "/varve.v1.Replication/Peers"
#define METHOD_ADMIN_STATS "/varve.v1.Admin/Stats"
#define METHOD_ADMIN_FORGET "/varve.v1.Admin/Forget"
#define METHOD_ADMIN_DRAIN "/varve.v1.Admin/Drain"
#define METHOD_ADMIN_UNDRAIN "/varve.v1.Admin/Undrain"
#define METHOD_ADMIN_SET_READ_ONLY "/varve.v1.Admin/SetReadOnly"
#define METHOD_ADMIN_EXPLAIN "/varve.v1.Admin/Explain"
#define METHOD_ADMIN_WHO "/varve.v1.Admin/Who"

/* Slices are owned by the caller; digests of one request have one digest function. */
grpc_slice find_missing_request(struct bytes instance, const struct digest *digests, size_t count);
grpc_slice batch_read_request(struct bytes instance, const struct digest *digests, size_t count);

struct batch_blob {
    struct digest digest;
    struct bytes data; /* borrowed; as long as the digest says */
};
grpc_slice batch_update_request(struct bytes instance,
                                const struct batch_blob *blobs,
                                size_t count);
/* What one more blob adds to such a request. */
size_t batch_update_entry_bytes(const struct digest *digest);
/* What such a request is without blobs. */
size_t batch_update_frame_bytes(struct bytes instance, enum digest_function function);

grpc_slice read_request(const char *resource_name, uint64_t offset);
grpc_slice query_write_status_request(const char *resource_name);

/* WriteRequest. resource_name: NULL leaves it out. data: handed over; may be empty. */
grpc_byte_buffer *write_request_message(const char *resource_name,
                                        uint64_t offset,
                                        grpc_slice data,
                                        bool finish_write);

/*
 * The readers below fail with INTERNAL when the message is malformed: the server broke its word.
 *
 * FindMissingBlobsResponse, one digest after the other; *more false at the end.
 */
MUST_CHECK bool find_missing_response_next(struct wire_reader *reader,
                                           struct arena *arena,
                                           struct digest *digest,
                                           bool *more,
                                           struct status *status);

/* One entry of BatchUpdateBlobsResponse or BatchReadBlobsResponse. */
struct batch_response_entry {
    struct digest digest; /* of function DIGEST_FUNCTION_UNKNOWN when the entry names none */
    /*
     * UNKNOWN when it is malformed, and in an update also when it is left out: that may mean OK, as
     * some servers encode OK as no message. Of a read the bytes themselves tell.
     */
    struct status result;
    struct wire_span
        data; /* BatchRead: as sent, in the format of the compressor; points into the message */
    int32_t compressor; /* BatchRead */
};

enum batch_response_kind { BATCH_UPDATE_RESPONSE, BATCH_READ_RESPONSE };

MUST_CHECK bool batch_response_next(struct wire_reader *reader,
                                    enum batch_response_kind kind,
                                    struct arena *arena,
                                    struct batch_response_entry *entry,
                                    bool *more,
                                    struct status *status);

/* ReadResponse: the data, which may be empty. */
MUST_CHECK bool read_response_data(struct bytes_list message,
                                   struct wire_span *data,
                                   struct status *status);

/* WriteResponse and QueryWriteStatusResponse (complete is false in the former). */
MUST_CHECK bool write_status_response(struct bytes_list message,
                                      int64_t *committed_bytes,
                                      bool *complete,
                                      struct status *status);

#endif
