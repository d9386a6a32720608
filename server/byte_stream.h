/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods of google.bytestream share. */
#ifndef VARVE_SERVER_BYTE_STREAM_H
#define VARVE_SERVER_BYTE_STREAM_H

#include "proto/resource_name.h"
#include "server/call.h"

/* ReadRequest; and QueryWriteStatusRequest, which has the name alone. Last value wins, as everywhere. */
struct read_request {
    struct bytes resource_name; /* flat: in the message or in the arena */
    int64_t read_offset;
    int64_t read_limit;
};
MUST_CHECK bool read_request_decode(struct bytes_list message,
                                    struct arena *arena,
                                    struct read_request *request,
                                    struct status *status);

/* The blob's size, and that a digest of size 0 is that of nothing: INVALID_ARGUMENT. */
MUST_CHECK bool blob_digest_check(struct call *call,
                                  const struct digest *digest,
                                  struct status *status);

#endif
