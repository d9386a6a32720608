/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of unknown length or name on their way in: hashed as they come, in memory at first and then in a file without a name in the
 * data directory. What memory and files take all together is bounded. One thread at a time for each spool.
 */
#ifndef VARVE_SERVER_HTTP_SPOOL_H
#define VARVE_SERVER_HTTP_SPOOL_H

#include <stdatomic.h>

#include "base/digest.h"
#include "server/byte_builder.h"

/* What all spools have in common. */
struct http_spools {
    const char *directory; /* borrowed */
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t file_bytes;
};

struct http_spool {
    struct http_spools *common; /* borrowed */
    uint64_t bytes_max;
    struct hasher *hasher; /* owned */
    struct byte_builder memory;
    uint64_t charged_bytes; /* of the common memory */
    int fd;                 /* owned; -1: all is in memory */
    uint64_t length;
};

void http_spool_init(struct http_spool *spool, struct http_spools *common, uint64_t bytes_max);
void http_spool_free(struct http_spool *spool); /* one that was only zeroed is fine */

/*
 * OUT_OF_RANGE past bytes_max; RESOURCE_EXHAUSTED when spools hold all that they may, or the disk is full; INTERNAL.
 */
MUST_CHECK bool http_spool_append(struct http_spool *spool,
                                  struct bytes data,
                                  struct status *status);
/* Of everything; once. */
void http_spool_digest(struct http_spool *spool, struct digest *digest);

/* True when it is in memory: spool->memory. */
bool http_spool_is_small(const struct http_spool *spool);
/* Bytes from `offset`, as many as wanted; offset + length is at most the length. */
MUST_CHECK bool http_spool_read(const struct http_spool *spool,
                                uint64_t offset,
                                uint8_t *to,
                                size_t length,
                                struct status *status);

#endif
