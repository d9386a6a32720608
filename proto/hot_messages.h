/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of the hot path, walked where they lie and encoded without copying blob data. Each
 * is tested against protobuf-c's own encoding. Scalars: the last value wins; unknown fields, and
 * known ones of another wire type, are skipped. Strings are not checked to be UTF-8. A malformed
 * message is INVALID_ARGUMENT; what does not fit the arena is RESOURCE_EXHAUSTED. Field numbers:
 * REAPI v2.12, google.bytestream.
 */
#ifndef VARVE_PROTO_HOT_MESSAGES_H
#define VARVE_PROTO_HOT_MESSAGES_H

#include "base/digest.h"
#include "proto/wire.h"

/*
 * A Digest message as it came; checked by digest_parse() later. Flat: hash points into the list or
 * the arena.
 */
struct wire_digest {
    /*
     * At most DIGEST_HASH_HEX_MAX + 1 bytes are kept; longer ones are cut to that, which is invalid
     * anyway.
     */
    struct bytes hash_hex;
    int64_t size_bytes;
};

MUST_CHECK bool wire_digest_decode(struct wire_span message,
                                   struct arena *arena,
                                   struct wire_digest *digest,
                                   struct status *status);

/* google.bytestream.WriteRequest */
struct write_request {
    struct bytes resource_name; /* flat */
    int64_t write_offset;
    bool finish_write;
    struct wire_span data;
};

MUST_CHECK bool write_request_decode(struct bytes_list message,
                                     struct arena *arena,
                                     struct write_request *request,
                                     struct status *status);

/* BatchUpdateBlobsRequest: entries in order. */
struct batch_update_entry {
    struct wire_digest digest;
    struct wire_span data;
    int32_t compressor; /* REAPI Compressor.Value as it came */
};
struct batch_update_request {
    struct bytes instance_name; /* flat */
    int32_t digest_function;
    size_t entry_count;
    struct batch_update_entry *entries; /* in the arena */
    uint64_t data_bytes_total;          /* sum of the entries' data lengths as sent */
};
MUST_CHECK bool batch_update_decode(struct bytes_list message,
                                    struct arena *arena,
                                    struct batch_update_request *request,
                                    struct status *status);

/*
 * FindMissingBlobsRequest and BatchReadBlobsRequest: an instance, digests, a function (and accepted
 * compressors).
 */
struct digests_request {
    struct bytes instance_name; /* flat */
    int32_t digest_function;
    size_t digest_count;
    struct wire_digest *digests; /* in the arena */
    bool accepts_zstd;           /* BatchReadBlobsRequest.acceptable_compressors holds ZSTD */
};
MUST_CHECK bool find_missing_decode(struct bytes_list message,
                                    struct arena *arena,
                                    struct digests_request *request,
                                    struct status *status);
MUST_CHECK bool batch_read_decode(struct bytes_list message,
                                  struct arena *arena,
                                  struct digests_request *request,
                                  struct status *status);

/*
 * The wire size of a Digest message's body, and its encoding (hash as lower-case hex; size left out
 * when 0).
 */
size_t digest_message_size(const struct digest *digest);
uint8_t *digest_message_put(uint8_t *to, const struct digest *digest);

/* FindMissingBlobsResponse: one entry (field 2) per digest, appended one after the other. */
size_t find_missing_entry_size(const struct digest *digest);
uint8_t *find_missing_entry_put(uint8_t *to, const struct digest *digest);

/*
 * BatchUpdateBlobsResponse: one entry. The status is present also when it is OK (an empty message
 * then).
 */
size_t batch_update_response_entry_size(const struct digest *digest, const struct status *result);
uint8_t *batch_update_response_entry_put(uint8_t *to,
                                         const struct digest *digest,
                                         const struct status *result);
/* The same for an entry whose digest could not be parsed and is echoed as it came. */
size_t batch_update_response_raw_entry_size(const struct wire_digest *digest,
                                            const struct status *result);
uint8_t *batch_update_response_raw_entry_put(uint8_t *to,
                                             const struct wire_digest *digest,
                                             const struct status *result);

/*
 * BatchReadBlobsResponse: one entry with status OK is this head, then data_length bytes of data, so
 * that the data itself need not be copied. compressor: 0 identity, 1 zstd. The status is present.
 * Returns the length of the head.
 */
enum { BATCH_READ_HEAD_BYTES_MAX = 256 };
size_t batch_read_entry_head(uint8_t head[BATCH_READ_HEAD_BYTES_MAX],
                             const struct digest *digest,
                             size_t data_length,
                             int32_t compressor);
/* One with another status. */
size_t batch_read_error_entry_size(const struct wire_digest *digest, const struct status *result);
uint8_t *batch_read_error_entry_put(uint8_t *to,
                                    const struct wire_digest *digest,
                                    const struct status *result);

/*
 * ReadResponse: the key and length in front of `data_length` bytes of data; returns its length (0
 * for no data).
 */
enum { READ_RESPONSE_HEAD_BYTES_MAX = 12 };
size_t read_response_head(uint8_t head[READ_RESPONSE_HEAD_BYTES_MAX], size_t data_length);

/* WriteResponse / QueryWriteStatusResponse; return the length. */
enum { SMALL_RESPONSE_BYTES_MAX = 32 };
size_t write_response_put(uint8_t to[SMALL_RESPONSE_BYTES_MAX], int64_t committed_size);
size_t query_write_status_response_put(uint8_t to[SMALL_RESPONSE_BYTES_MAX],
                                       int64_t committed_size,
                                       bool complete);

/*
 * UpdateActionResultRequest, walked so that the client's bytes of the ActionResult are kept as they
 * are (unknown fields survive).
 */
struct update_action_result_request {
    struct bytes instance_name; /* flat */
    struct wire_digest action_digest;
    bool has_action_digest;
    struct bytes action_result; /* flat, encoded; joined when the field came several times */
    bool has_action_result;
    int32_t digest_function;
};
MUST_CHECK bool update_action_result_decode(struct bytes_list message,
                                            struct arena *arena,
                                            struct update_action_result_request *request,
                                            struct status *status);

#endif
