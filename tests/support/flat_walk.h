/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second reader of the protobuf wire format, to compare proto/wire.c with: over flat bytes, with
 * no regard to speed, and sharing no code.
 */
#ifndef VARVE_TESTS_SUPPORT_FLAT_WALK_H
#define VARVE_TESTS_SUPPORT_FLAT_WALK_H

#include "base/bytes.h"

struct flat_field {
    uint32_t number;
    unsigned type;
    uint64_t value;       /* of varints and fixed numbers */
    struct bytes bytes;   /* of length-delimited fields */
    struct bytes encoded; /* the whole field */
};

enum flat_step { FLAT_FIELD, FLAT_END, FLAT_MALFORMED };

/* Takes the next field off the front of *rest, which is left as it was when there is none. */
enum flat_step flat_walk_next(struct bytes *rest, struct flat_field *field);

/* How many fields there are of this number and type before the end or what is malformed. */
size_t flat_walk_count(struct bytes message, uint32_t number, unsigned type);

#endif
