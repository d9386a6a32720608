/* SPDX-License-Identifier: Apache-2.0 */
/* A driver for the fake S3 server, that is never left for being slow: a busy machine is. */
#ifndef VARVE_TESTS_SUPPORT_FAKE_BUCKET_H
#define VARVE_TESTS_SUPPORT_FAKE_BUCKET_H

#include "tests/support/fake_s3.h"
#include "tier/s3.h"

/* The keys that the fake knows, for drivers and servers that are made from now on. */
void fake_bucket_set_keys(void);

/* part_bytes: of blobs that are more than twice that; 0: as usual. Fails the test when it cannot. */
struct s3 *fake_bucket_open(const struct fake_s3 *fake,
                            struct metrics *metrics,
                            size_t connections,
                            uint64_t part_bytes);

#endif
