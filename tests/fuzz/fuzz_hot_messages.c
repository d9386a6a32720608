/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes, cut into parts as the first eight of them have it, given to each decoder of hot
 * messages: where it and protobuf-c both accept them, they must have read the same; and how the bytes
 * are cut makes no difference to whether they are accepted.
 */
#include "base/compiler.h"
#include "tests/support/hot_messages_oracle.h"
#include "tests/support/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prng prng = {0};
    if (size < sizeof(prng.state))
        return 0;
    memcpy(&prng.state, data, sizeof(prng.state));
    const struct bytes flat = bytes_of(data + sizeof(prng.state), size - sizeof(prng.state));
    struct parts whole;
    struct parts split;
    parts_whole(&whole, flat);
    parts_split_randomly(&split, flat, &prng);
    for (int i = 0; i < HOT_MESSAGES; i++) {
        const enum hot_message kind = (enum hot_message)i;
        const struct hot_verdict of_whole = hot_messages_compare(kind, flat, whole.list);
        const struct hot_verdict of_split = hot_messages_compare(kind, flat, split.list);
        ASSERT(of_whole.ours == of_split.ours);
    }
    parts_free(&whole);
    parts_free(&split);
    return 0;
}
