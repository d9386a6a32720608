/* SPDX-License-Identifier: Apache-2.0 */
#include "store/forget_record.h"

/* Up to the origin; a payload that says 0 in fixed_bytes has no more. */
enum { SHORT_FIXED_BYTES = offsetof(struct forget_payload, origin_uid) };

void forget_record_fixed_put(struct forget_payload *to, const struct forget_record *record)
{
    *to = (struct forget_payload){
        .place = place_pack(record->place),
        .kind = (uint8_t)record->kind,
        .reason = (uint8_t)record->reason,
        .fixed_bytes = sizeof(*to),
        .wall_ns = record->wall_ns,
        .origin_uid = record->origin_uid,
    };
}

bool forget_record_decode(struct bytes payload, struct forget_record *record, struct status *status)
{
    struct forget_payload fixed = {0};
    if (payload.length < SHORT_FIXED_BYTES)
        return status_fail(status, STATUS_DATA_LOSS, "a FORGET of %zu bytes", payload.length);
    memcpy(&fixed, payload.data, SHORT_FIXED_BYTES);
    const size_t fixed_bytes = fixed.fixed_bytes == 0 ? SHORT_FIXED_BYTES : fixed.fixed_bytes;
    if ((fixed_bytes != SHORT_FIXED_BYTES && fixed_bytes != sizeof(fixed)) ||
        payload.length < fixed_bytes)
        return status_fail(status, STATUS_DATA_LOSS, "a FORGET of %zu bytes with a head of %zu",
                           payload.length, fixed_bytes);
    memcpy(&fixed, payload.data, fixed_bytes);
    if (fixed.kind != RECORD_BLOB && fixed.kind != RECORD_MANIFEST && fixed.kind != RECORD_ACTION)
        return status_fail(status, STATUS_DATA_LOSS, "a FORGET of a record of kind %d", fixed.kind);
    *record = (struct forget_record){
        .place = place_unpack(fixed.place),
        .kind = (enum record_kind)fixed.kind,
        .reason = (enum forget_reason)fixed.reason,
        .wall_ns = fixed.wall_ns,
        .origin_uid = fixed.origin_uid,
        .instance = bytes_of(payload.data + fixed_bytes, payload.length - fixed_bytes),
    };
    return true;
}
