/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <isa-l/crc.h>

/*
 * ISA-L works on the raw register: it inverts neither what it is given nor what it returns. RFC
 * 3720 wants the register inverted before and after, and two inversions between pieces cancel out,
 * so that pieces chain.
 */
uint32_t crc32c(uint32_t crc, struct bytes data)
{
    const size_t step_bytes_max = (size_t)1 << 30; /* ISA-L takes an int */
    uint32_t state = ~crc;

    while (data.length > 0) {
        const size_t step = data.length < step_bytes_max ? data.length : step_bytes_max;
        /* It only reads, in spite of its prototype. */
        state = crc32_iscsi((unsigned char *)(uintptr_t)data.data, (int)step, state);
        data = bytes_of(data.data + step, data.length - step);
    }
    return ~state;
}

uint32_t crc32c_list(uint32_t crc, struct bytes_list data)
{
    for (size_t i = 0; i < data.count; i++)
        crc = crc32c(crc, data.parts[i]);
    return crc;
}
