/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a FORGET record: which record is deleted, why, and who ordered it when. Laid out in store/format.h. */
#ifndef VARVE_STORE_FORGET_RECORD_H
#define VARVE_STORE_FORGET_RECORD_H

#include "store/format.h"

struct forget_record {
    struct place place;    /* of the record that goes */
    enum record_kind kind; /* of that record: BLOB, MANIFEST or ACTION */
    enum forget_reason reason;
    int64_t wall_ns;       /* when it was ordered */
    uint64_t origin_uid;   /* of the node that ordered it; 0: of the one whose log this is */
    struct bytes instance; /* ACTION; borrowed */
};

/* Fills the fixed part; the payload is then fixed and instance. */
void forget_record_fixed_put(struct forget_payload *to, const struct forget_record *record);

/* instance points into payload. DATA_LOSS when lengths do not add up, or it deletes what can't be deleted. */
MUST_CHECK bool forget_record_decode(struct bytes payload,
                                     struct forget_record *record,
                                     struct status *status);

#endif
