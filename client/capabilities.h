/* SPDX-License-Identifier: Apache-2.0 */
/* What a server says it can do (REAPI GetCapabilities), as plain numbers. */
#ifndef VARVE_CLIENT_CAPABILITIES_H
#define VARVE_CLIENT_CAPABILITIES_H

#include "base/bytes.h"
#include "base/status.h"
#include "client/connection.h"

/* Sets of enum values below 64, as bits: DigestFunction.Value, Compressor.Value. */
struct capabilities {
    bool announced; /* false: the server has no GetCapabilities, and all below are the defaults */
    uint64_t digest_functions;
    uint64_t stream_compressors;
    uint64_t batch_compressors;
    int64_t batch_total_bytes_max; /* 0: no limit of its own */
    int64_t blob_bytes_max;        /* 0: no limit of its own */
    bool update_enabled;           /* may store action results */
    bool executes;
    bool split, splice;
    int symlink_strategy; /* SymlinkAbsolutePathStrategy.Value */
    int low_major, low_minor, high_major, high_minor;
};

/*
 * Errors: those of the call; FAILED_PRECONDITION when the server is no cache. UNIMPLEMENTED gives
 * the defaults.
 */
MUST_CHECK bool capabilities_get(struct client *client,
                                 struct capabilities *capabilities,
                                 struct status *status);

/* Decodes a ServerCapabilities message. INTERNAL when it is malformed. */
MUST_CHECK bool capabilities_decode(struct bytes message,
                                    struct capabilities *capabilities,
                                    struct status *status);

/* FAILED_PRECONDITION when the server does not hash as we do. */
MUST_CHECK bool capabilities_check_function(const struct capabilities *capabilities,
                                            struct status *status);

/* OUT_OF_RANGE, with both numbers, when a blob of this size is above what the server takes. */
MUST_CHECK bool capabilities_check_blob(const struct capabilities *capabilities,
                                        int64_t size_bytes,
                                        struct status *status);

/* Names of enum values, "unknown" for those without; static storage. */
const char *digest_function_name(int value);
const char *compressor_name(int value);

#endif
