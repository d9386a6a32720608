/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/pack.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/crc32c.h"

enum { NUMBER_CHANCE_BITS = 22, MS_PER_S = 1000 };

static const char magic[8] = "VARVEPK1";

struct head {
    char magic[8];
    uint64_t number;
    uint64_t pack;
    uint32_t kind;
    uint32_t rows;
    uint32_t crc32c;
    uint32_t zero;
};
static_assert(sizeof(struct head) == PACK_INDEX_HEAD_BYTES, "as in pack.h");

struct row {
    uint8_t function;
    uint8_t zero[3];
    uint32_t offset;
    uint64_t size;
    uint8_t hash[SHA256_HASH_BYTES];
};
static_assert(sizeof(struct row) == PACK_INDEX_ROW_BYTES, "as in pack.h");
static_assert(offsetof(struct row, hash) == 16, "as in pack.h");

static bool row_makes_sense(const struct row *row, enum pack_index_kind kind);

uint64_t pack_number(int64_t wall_ns, uint64_t chance)
{
    const int64_t now_ms = wall_ns / NS_PER_MS;
    return ((now_ms > 0 ? (uint64_t)now_ms : 1) << NUMBER_CHANCE_BITS) |
           (chance & ((UINT64_C(1) << NUMBER_CHANCE_BITS) - 1));
}

int64_t pack_number_seconds(uint64_t number)
{
    return (int64_t)(number >> NUMBER_CHANCE_BITS) / MS_PER_S;
}

uint64_t pack_number_of_seconds(int64_t seconds)
{
    return seconds > 0 ? ((uint64_t)seconds * MS_PER_S) << NUMBER_CHANCE_BITS : 1;
}

void pack_index_encode(uint64_t number,
                       uint64_t pack,
                       const struct pack_row *rows,
                       size_t count,
                       uint8_t *to)
{
    ASSERT(count <= PACK_ROWS_MAX);
    struct head head = {.number = number,
                        .pack = pack,
                        .kind = pack != 0 ? PACK_INDEX_OF_PACK : PACK_INDEX_OF_DELETIONS,
                        .rows = (uint32_t)count};
    memcpy(head.magic, magic, sizeof(head.magic));
    for (size_t i = 0; i < count; i++) {
        struct row row = {.function = rows[i].digest.function,
                          .offset = rows[i].offset,
                          .size = (uint64_t)rows[i].digest.size_bytes};
        ASSERT(rows[i].digest.hash_length == sizeof(row.hash));
        memcpy(row.hash, rows[i].digest.hash, sizeof(row.hash));
        memcpy(to + sizeof(head) + i * sizeof(row), &row, sizeof(row));
    }
    head.crc32c = crc32c(0, bytes_of(to + sizeof(head), count * sizeof(struct row)));
    memcpy(to, &head, sizeof(head));
}

bool pack_index_decode(struct bytes bytes,
                       uint64_t number,
                       struct pack_index *index,
                       struct status *status)
{
    struct head head;
    if (bytes.length < sizeof(head))
        return status_fail(status, STATUS_DATA_LOSS, "it has %zu bytes", bytes.length);
    memcpy(&head, bytes.data, sizeof(head));
    if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.number != number || head.zero != 0)
        return status_fail(status, STATUS_DATA_LOSS, "it is not what its name says");
    if (head.kind != PACK_INDEX_OF_PACK && head.kind != PACK_INDEX_OF_DELETIONS)
        return status_fail(status, STATUS_UNIMPLEMENTED, "it is of kind %" PRIu32, head.kind);
    const struct bytes rows = bytes_of(bytes.data + sizeof(head), bytes.length - sizeof(head));
    if (head.rows > PACK_ROWS_MAX || rows.length != head.rows * sizeof(struct row))
        return status_fail(status, STATUS_DATA_LOSS, "%" PRIu32 " rows in %zu bytes", head.rows,
                           rows.length);
    if (crc32c(0, rows) != head.crc32c)
        return status_fail(status, STATUS_DATA_LOSS, "its checksum is wrong");
    const enum pack_index_kind kind = (enum pack_index_kind)head.kind;
    if ((kind == PACK_INDEX_OF_PACK) != (head.pack != 0))
        return status_fail(status, STATUS_DATA_LOSS, "it names no pack, or one too many");
    for (size_t i = 0; i < head.rows; i++) {
        struct row row;
        memcpy(&row, rows.data + i * sizeof(row), sizeof(row));
        if (!row_makes_sense(&row, kind))
            return status_fail(status, STATUS_DATA_LOSS, "row %zu makes no sense", i);
    }
    *index = (struct pack_index){
        .kind = kind, .number = number, .pack = head.pack, .count = head.rows, .rows = rows.data};
    return true;
}

static bool row_makes_sense(const struct row *row, enum pack_index_kind kind)
{
    static const uint8_t zero[sizeof(row->zero)];
    if (row->function != DIGEST_FUNCTION_SHA256 || row->size > INT64_MAX ||
        memcmp(row->zero, zero, sizeof(zero)) != 0)
        return false;
    return kind == PACK_INDEX_OF_DELETIONS || (row->size > 0 && row->size <= PACK_BLOB_BYTES_MAX &&
                                               row->offset <= PACK_BYTES_MAX - row->size);
}

struct pack_row pack_index_row(const struct pack_index *index, size_t at)
{
    struct row row;
    ASSERT(at < index->count);
    memcpy(&row, index->rows + at * sizeof(row), sizeof(row));
    struct pack_row made = {.digest = {.function = row.function,
                                       .hash_length = sizeof(row.hash),
                                       .size_bytes = (int64_t)row.size},
                            .offset = row.offset};
    memcpy(made.digest.hash, row.hash, sizeof(row.hash));
    return made;
}
