/* SPDX-License-Identifier: Apache-2.0 */
/* What tier/s3.c and tier/s3_multipart.c share. */
#ifndef VARVE_TIER_S3_OBJECTS_H
#define VARVE_TIER_S3_OBJECTS_H

#include "tier/s3_exchange.h"
#include "tier/s3_xml.h"

/* The SHA-256 of a part of what a source gives. */
MUST_CHECK bool s3_hash(const struct bucket_source *source,
                        uint64_t offset,
                        uint64_t bytes,
                        uint8_t sha256[32],
                        struct status *status);

/*
 * Reads the body of a good answer, whose root is `root`. One that is an <Error> all the same, as servers send that had begun to
 * answer before they knew, is that failure.
 */
MUST_CHECK bool s3_read_body(struct s3_exchange *exchange,
                             const char *root,
                             const struct s3_xml_reader *reader,
                             struct status *status);

MUST_CHECK bool s3_put_in_parts(struct s3 *s3, const struct bucket_put *put, struct status *status);

#endif
