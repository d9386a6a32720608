/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of bytes cut into parts, as a network may hand it over. Each part is a block of its own, of
 * exactly its size, so that AddressSanitizer sees a read past its end.
 */
#ifndef VARVE_TESTS_SUPPORT_PARTS_H
#define VARVE_TESTS_SUPPORT_PARTS_H

#include "base/bytes.h"
#include "tests/support/prng.h"

struct parts {
    struct bytes_list list; /* owned */
};

/* One part. */
void parts_whole(struct parts *parts, struct bytes flat);
/* Two parts; the first has `boundary` bytes. */
void parts_split_at(struct parts *parts, struct bytes flat, size_t boundary);
/* Any number of parts of any size, empty ones among them. */
void parts_split_randomly(struct parts *parts, struct bytes flat, struct prng *prng);
/* One byte a part. */
void parts_split_fully(struct parts *parts, struct bytes flat);

void parts_free(struct parts *parts);

#endif
