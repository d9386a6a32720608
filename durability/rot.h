/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of damage that the scrub finds: whose record it was, and that it is forgotten. A
 * record that is in use no more costs nobody anything.
 */
#ifndef VARVE_DURABILITY_ROT_H
#define VARVE_DURABILITY_ROT_H

#include "durability/commit.h"
#include "store/segment_check.h"

struct rot {
    struct store *store;       /* borrowed */
    struct commit *small_lane; /* borrowed */

    /* Chunks are found by the blobs of their neighbours where nothing else tells. */
    struct digest neighbour;      /* of the large lane's last sound record */
    uint64_t gap_offset, gap_end; /* 0: none; the neighbour behind it has not come by yet */
    uint64_t gap_segment;
};

/* Forgets the record, if it is in use: then true. */
bool rot_forget(struct rot *rot, struct segment *segment, const struct segment_finding *finding);

/*
 * To be told of every sound CHUNK and MANIFEST, in their order. Forgets a MANIFEST whose chunks are
 * gone (then true).
 */
bool rot_pass(struct rot *rot,
              struct segment *segment,
              const struct record_header *header,
              uint64_t offset,
              struct bytes payload);

/* Forgets a large blob by the place of its MANIFEST, if it still lies there. */
bool rot_forget_large(struct rot *rot, const struct digest *digest, struct place manifest);

#endif
