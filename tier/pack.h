/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs of small blobs in a bucket (tier/layout.h), and the objects that name what is in them. A pack is its blobs' bytes, one after the
 * other, and nothing else. It is never changed: it goes as a whole, when the bucket's rule removes it.
 *
 * An index object, little-endian:
 *
 *    0  magic "VARVEPK1"     8  number, as in its name (u64)     16  number of the pack, or 0 (u64)
 *   24  kind (u32)     28  rows (u32)     32  CRC-32C of all rows (u32)     36  zero (u32)
 *   40  rows, 48 bytes each:
 *        0  digest function (u8)     1  zero (3)     4  offset in the pack (u32)     8  size (u64)     16  SHA-256 hash (32)
 *
 * A reader takes index objects in the order of their numbers. What it finds deleted is deleted in every pack of a lower number.
 *
 * A number is made of the time, milliseconds since 1970 in the upper 42 bits, and of chance.
 */
#ifndef VARVE_TIER_PACK_H
#define VARVE_TIER_PACK_H

#include "base/digest.h"

enum {
    PACK_BYTES_MAX = 8 << 20,
    PACK_BLOB_BYTES_MAX =
        128 << 10, /* of a blob that goes into a pack; larger ones are objects of their own */
    PACK_ROWS_MAX = 16384,
    PACK_INDEX_HEAD_BYTES = 40,
    PACK_INDEX_ROW_BYTES = 48,
    PACK_INDEX_BYTES_MAX = PACK_INDEX_HEAD_BYTES + PACK_ROWS_MAX * PACK_INDEX_ROW_BYTES,
};

enum pack_index_kind { PACK_INDEX_OF_PACK = 1, PACK_INDEX_OF_DELETIONS = 2 };

struct pack_row {
    struct digest digest; /* SHA-256 */
    uint32_t offset;      /* of a pack */
};

uint64_t pack_number(int64_t wall_ns, uint64_t chance); /* not 0 */
int64_t pack_number_seconds(uint64_t number);           /* since 1970 */
/* The lowest one of a time, which may be before 1970: then it is 1. */
uint64_t pack_number_of_seconds(int64_t seconds);

/* pack: 0 for deletions. to: PACK_INDEX_HEAD_BYTES + count * PACK_INDEX_ROW_BYTES. */
void pack_index_encode(uint64_t number,
                       uint64_t pack,
                       const struct pack_row *rows,
                       size_t count,
                       uint8_t *to);

struct pack_index {
    enum pack_index_kind kind;
    uint64_t number;
    uint64_t pack; /* 0: it is of deletions */
    size_t count;
    const uint8_t *rows; /* borrowed of what was decoded */
};
/* DATA_LOSS: it is damaged, of another number, or makes no sense. UNIMPLEMENTED: a kind that this version does not know. */
MUST_CHECK bool pack_index_decode(struct bytes bytes,
                                  uint64_t number,
                                  struct pack_index *index,
                                  struct status *status);
struct pack_row pack_index_row(const struct pack_index *index, size_t at);

#endif
