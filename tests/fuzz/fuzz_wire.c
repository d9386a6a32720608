/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes, cut into parts as the first eight of them have it, walked by the wire reader and by a
 * second reader: they must agree on every field, on where they stop and why.
 */
#include <stdlib.h>

#include "base/compiler.h"
#include "proto/wire.h"
#include "tests/support/flat_walk.h"
#include "tests/support/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(struct bytes flat, struct bytes_list list)
{
    struct arena arena;
    struct wire_reader reader;
    struct wire_field ours;
    struct flat_field theirs;
    arena_init(&arena, 2 * flat.length + 16);
    wire_reader_init(&reader, wire_span_of_list(list));
    enum flat_step step = flat_walk_next(&flat, &theirs);
    for (; step == FLAT_FIELD; step = flat_walk_next(&flat, &theirs)) {
        ASSERT(wire_reader_next(&reader, &ours));
        ASSERT(ours.number == theirs.number);
        ASSERT((unsigned)ours.type == theirs.type);
        ASSERT(reader.rest.length == flat.length);
        if (ours.type != WIRE_BYTES) {
            ASSERT(ours.value == theirs.value);
            continue;
        }
        ASSERT(ours.span.length == theirs.bytes.length);
        struct bytes copy;
        if (wire_span_flat(ours.span, &arena, &copy))
            ASSERT(bytes_equal(copy, theirs.bytes));
        else
            ASSERT(wire_span_pieces(ours.span) > 1);
    }
    ASSERT(!wire_reader_next(&reader, &ours));
    ASSERT(reader.failed == (step == FLAT_MALFORMED));
    arena_destroy(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prng prng = {0};
    if (size < sizeof(prng.state))
        return 0;
    memcpy(&prng.state, data, sizeof(prng.state));
    const struct bytes flat = bytes_of(data + sizeof(prng.state), size - sizeof(prng.state));
    struct parts parts;
    parts_whole(&parts, flat);
    compare(flat, parts.list);
    parts_free(&parts);
    parts_split_randomly(&parts, flat, &prng);
    compare(flat, parts.list);
    parts_free(&parts);
    return 0;
}
