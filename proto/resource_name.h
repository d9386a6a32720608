/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ByteStream resource names (REAPI, section on resource names):
 *   write  [{instance}/]uploads/{uuid}/blobs/[{function}/]{hash}/{size}[/{anything}]
 *          [{instance}/]uploads/{uuid}/compressed-blobs/{compressor}/[{function}/]{hash}/{size}[/{anything}]
 *   read   [{instance}/]blobs/[{function}/]{hash}/{size}
 *          [{instance}/]compressed-blobs/{compressor}/[{function}/]{hash}/{size}
 * The first segment that is one of the reserved words ends the instance name. A leading slash (an
 * empty instance name and its slash, as moon sends) is accepted.
 */
#ifndef VARVE_PROTO_RESOURCE_NAME_H
#define VARVE_PROTO_RESOURCE_NAME_H

#include "base/digest.h"

enum compressor {
    COMPRESSOR_IDENTITY = 0,
    COMPRESSOR_ZSTD = 1,
    COMPRESSOR_DEFLATE = 2,
    COMPRESSOR_BROTLI = 3
};

struct resource_name {
    struct bytes instance; /* borrowed from the text; may be empty */
    /*
     * Borrowed; empty in read names. Any segment of 1 to 128 bytes without control bytes is taken.
     */
    struct bytes uuid;
    enum compressor compressor;
    struct digest digest;
};

/*
 * INVALID_ARGUMENT naming what is wrong and the name (cut to 100 bytes). Compressors other than
 * identity and zstd are refused.
 */
MUST_CHECK bool resource_name_parse_write(struct bytes text,
                                          struct resource_name *name,
                                          struct status *status);
MUST_CHECK bool resource_name_parse_read(struct bytes text,
                                         struct resource_name *name,
                                         struct status *status);

/*
 * Is this an instance name that could ever be used: no reserved segment (blobs, uploads, actions,
 * actionResults, operations, capabilities, compressed-blobs), at most LIMIT_INSTANCE_NAME_BYTES,
 * UTF-8, no empty segment, no control bytes.
 */
MUST_CHECK bool instance_name_check(struct bytes instance, struct status *status);

/* Writes the read or write name with a NUL; false if it does not fit. uuid NULL for a read name. */
bool resource_name_format(char *to,
                          size_t capacity,
                          struct bytes instance,
                          const char *uuid,
                          enum compressor compressor,
                          const struct digest *digest);

#endif
