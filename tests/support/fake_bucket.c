/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_bucket.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

void fake_bucket_set_keys(void)
{
    setenv("AWS_ACCESS_KEY_ID", FAKE_S3_ACCESS_KEY, 1);
    setenv("AWS_SECRET_ACCESS_KEY", FAKE_S3_SECRET, 1);
    unsetenv("AWS_SESSION_TOKEN");
}

struct s3 *fake_bucket_open(const struct fake_s3 *fake,
                            struct metrics *metrics,
                            size_t connections,
                            uint64_t part_bytes)
{
    char endpoint[64];
    struct s3 *s3 = NULL;
    struct status status = {0};
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", fake_s3_port(fake));
    const struct s3_config config = {.endpoint = endpoint,
                                     .region = FAKE_S3_REGION,
                                     .bucket = FAKE_S3_BUCKET,
                                     .connections_max = connections,
                                     .limits = {.connect_ns = 60 * NS_PER_S,
                                                .first_byte_ns = 60 * NS_PER_S,
                                                .put_answer_ns = 60 * NS_PER_S,
                                                .low_speed_ns = 60 * NS_PER_S,
                                                .multipart_above_bytes = 2 * part_bytes,
                                                .part_bytes = part_bytes},
                                     .clock = clock_real(),
                                     .metrics = metrics};
    ck_assert_msg(s3_new(&config, &s3, &status), "%s", status.message);
    return s3;
}
