/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload of an ACTION record: whose result it is, who wrote it and when, and the client's bytes of the result.
 *
 *    0  i64 written_wall_ns     8  u64 node_uid     16  u16 instance bytes    18  u16 writer bytes    20  u32 result bytes
 *   24  instance, writer, result
 */
#ifndef VARVE_STORE_ACTION_RECORD_H
#define VARVE_STORE_ACTION_RECORD_H

#include "base/bytes.h"
#include "base/status.h"

enum { ACTION_RECORD_FIXED_BYTES = 24 };

struct action_record {
    int64_t written_wall_ns;
    uint64_t node_uid; /* where it was first written: ties in time are broken by it */
    struct bytes instance;
    struct bytes writer; /* tool and peer, for provenance; at most 65,535 bytes */
    struct bytes result; /* encoded ActionResult, or what a client stores there */
};

/* Fills the fixed part; the payload is then fixed, instance, writer, result in this order. */
void action_record_fixed_put(uint8_t to[ACTION_RECORD_FIXED_BYTES],
                             const struct action_record *record);

/* Parts point into payload. DATA_LOSS when lengths do not add up. */
MUST_CHECK bool action_record_decode(struct bytes payload,
                                     struct action_record *record,
                                     struct status *status);

/*
 * The instance of a payload of which the rest may be damaged or missing; false when it is not all
 * there. It may be wrong.
 */
bool action_record_instance(struct bytes payload, struct bytes *instance);

#endif
