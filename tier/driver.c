/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/driver.h"

static bool read_memory(void *argument,
                        uint64_t offset,
                        uint8_t *to,
                        size_t capacity,
                        size_t *length,
                        struct status *status)
{
    (void)status;
    const struct bucket_memory *const memory = argument;
    ASSERT(offset < memory->bytes.length);
    const size_t rest = memory->bytes.length - (size_t)offset;
    *length = rest < capacity ? rest : capacity;
    memcpy(to, memory->bytes.data + offset, *length);
    return true;
}

struct bucket_source bucket_source_of(struct bucket_memory *memory)
{
    return (struct bucket_source){
        .read = read_memory, .argument = memory, .size_bytes = memory->bytes.length};
}

enum bucket_fault bucket_fault_of(const struct status *status)
{
    switch (status->code) {
    case STATUS_PERMISSION_DENIED:
    case STATUS_FAILED_PRECONDITION:
        return BUCKET_TELL;
    case STATUS_DATA_LOSS:
        return BUCKET_LOOK_AGAIN;
    case STATUS_ALREADY_EXISTS:
    case STATUS_OUT_OF_RANGE:
    case STATUS_INVALID_ARGUMENT:
        return BUCKET_GIVE_UP;
    default:
        return BUCKET_TRY_LATER;
    }
}
