/* SPDX-License-Identifier: Apache-2.0 */
#include "store/action_record.h"

#include "base/limits.h"

/* As it lies on disk. */
struct action_record_fixed {
    int64_t written_wall_ns;
    uint64_t node_uid;
    uint16_t instance_bytes;
    uint16_t writer_bytes;
    uint32_t result_bytes;
};
_Static_assert(sizeof(struct action_record_fixed) == ACTION_RECORD_FIXED_BYTES, "no padding");

void action_record_fixed_put(uint8_t to[ACTION_RECORD_FIXED_BYTES],
                             const struct action_record *record)
{
    ASSERT(record->instance.length <= UINT16_MAX);
    ASSERT(record->writer.length <= UINT16_MAX);
    ASSERT(record->result.length <= UINT32_MAX);
    const struct action_record_fixed fixed = {
        .written_wall_ns = record->written_wall_ns,
        .node_uid = record->node_uid,
        .instance_bytes = (uint16_t)record->instance.length,
        .writer_bytes = (uint16_t)record->writer.length,
        .result_bytes = (uint32_t)record->result.length,
    };
    memcpy(to, &fixed, sizeof(fixed));
}

bool action_record_decode(struct bytes payload, struct action_record *record, struct status *status)
{
    struct action_record_fixed fixed;
    if (payload.length < sizeof(fixed))
        return status_fail(status, STATUS_DATA_LOSS, "action record of %zu bytes", payload.length);
    memcpy(&fixed, payload.data, sizeof(fixed));
    const uint64_t whole =
        sizeof(fixed) + (uint64_t)fixed.instance_bytes + fixed.writer_bytes + fixed.result_bytes;
    if (whole != payload.length)
        return status_fail(status, STATUS_DATA_LOSS,
                           "action record of %zu bytes whose parts are %llu bytes", payload.length,
                           (unsigned long long)whole);
    const uint8_t *parts = payload.data + sizeof(fixed);
    *record = (struct action_record){
        .written_wall_ns = fixed.written_wall_ns,
        .node_uid = fixed.node_uid,
        .instance = bytes_of(parts, fixed.instance_bytes),
        .writer = bytes_of(parts + fixed.instance_bytes, fixed.writer_bytes),
        .result = bytes_of(parts + fixed.instance_bytes + fixed.writer_bytes, fixed.result_bytes),
    };
    return true;
}

bool action_record_instance(struct bytes payload, struct bytes *instance)
{
    struct action_record_fixed fixed;
    if (payload.length < sizeof(fixed))
        return false;
    memcpy(&fixed, payload.data, sizeof(fixed));
    if (sizeof(fixed) + fixed.instance_bytes > payload.length)
        return false;
    *instance = bytes_of(payload.data + sizeof(fixed), fixed.instance_bytes);
    return true;
}
