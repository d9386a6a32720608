/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes into the trailer grpc-status-details-bin: an encoded google.rpc.Status with details.
 * Clients look there for the blobs that they have to upload (REAPI: PreconditionFailure, violations
 * of type MISSING).
 */
#ifndef VARVE_PROTO_ERROR_DETAILS_H
#define VARVE_PROTO_ERROR_DETAILS_H

#include "base/digest.h"

/*
 * Clients take 8 KiB of trailers in all. In base64 this much becomes 6,144 bytes; status, message
 * (512 bytes, each of them percent-encoded at worst) and what HTTP/2 counts for every header fill
 * 1,800.
 */
enum { ERROR_DETAILS_BYTES_MAX = 4608 };

/*
 * Encodes the status with one violation for each missing blob, as many as there is room for (about
 * 45), in order.
 *
 * status: not OK; its code and message are repeated in the details, as google.rpc asks for.
 * Returns the length; *told_count is how many of the blobs are in.
 */
size_t error_details_missing_put(uint8_t to[ERROR_DETAILS_BYTES_MAX],
                                 const struct status *status,
                                 const struct digest *missing,
                                 size_t missing_count,
                                 size_t *told_count);

/* Likewise with a RetryInfo: the least time after which it is worth trying again. */
size_t error_details_retry_put(uint8_t to[ERROR_DETAILS_BYTES_MAX],
                               const struct status *status,
                               int64_t retry_ns);

#endif
