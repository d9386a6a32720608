/* SPDX-License-Identifier: Apache-2.0 */
#include "store/format.h"

#include <endian.h>

#include "base/crc32c.h"

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the structs of the format are used as they lie");

static const uint8_t SEGMENT_MAGIC[8] = {'V', 'A', 'R', 'V', 'E', 'S', 'E', 'G'};
static const uint8_t TRAILER_MAGIC[8] = {'V', 'A', 'R', 'V', 'E', 'E', 'N', 'D'};

static bool header_check(const struct segment_header *header,
                         uint64_t number,
                         struct status *status);
static uint32_t trailer_crc(const struct footer_trailer *trailer);
static uint32_t record_header_crc(const struct record_header *header, uint64_t uid);
static bool all_zero(const void *data, size_t length);

const char *lane_name(enum lane lane)
{
    ASSERT(lane < LANE_COUNT);
    return lane == LANE_SMALL ? "small" : "large";
}

uint32_t format_crc_seed(uint64_t uid)
{
    return crc32c(0, bytes_of(&uid, sizeof(uid)));
}

void segment_header_fill(struct segment_header_page *page,
                         enum lane lane,
                         uint64_t number,
                         uint64_t uid,
                         uint64_t capacity_bytes,
                         uint64_t node_uid,
                         int64_t created_wall_ns)
{
    struct segment_header header = {
        .version = FORMAT_VERSION,
        .lane = (uint8_t)lane,
        .number = number,
        .uid = uid,
        .capacity_bytes = capacity_bytes,
        .node_uid = node_uid,
        .created_wall_ns = created_wall_ns,
    };
    memcpy(header.magic, SEGMENT_MAGIC, sizeof(header.magic));
    header.crc32c = crc32c(0, bytes_of(&header, offsetof(struct segment_header, crc32c)));
    *page = (struct segment_header_page){.first = header, .second = header};
}

const struct segment_header *segment_header_of(const struct segment_header_page *page,
                                               uint64_t number,
                                               bool *damaged,
                                               struct status *status)
{
    struct status second_status;
    const bool first = header_check(&page->first, number, status);
    const bool second = header_check(&page->second, number, &second_status);
    if (damaged != NULL)
        *damaged = !first || !second ||
                   memcmp(&page->first, &page->second, sizeof(page->first)) != 0 ||
                   !all_zero(page->reserved_64, sizeof(page->reserved_64)) ||
                   !all_zero(page->reserved_3648, sizeof(page->reserved_3648));
    if (first)
        return &page->first;
    return second ? &page->second : NULL;
}

static bool header_check(const struct segment_header *header,
                         uint64_t number,
                         struct status *status)
{
    if (memcmp(header->magic, SEGMENT_MAGIC, sizeof(header->magic)) != 0)
        return status_fail(status, STATUS_DATA_LOSS, "segment %llu: no segment header",
                           (unsigned long long)number);
    if (header->crc32c != crc32c(0, bytes_of(header, offsetof(struct segment_header, crc32c))))
        return status_fail(status, STATUS_DATA_LOSS, "segment %llu: the header fails its CRC",
                           (unsigned long long)number);
    if (header->version != FORMAT_VERSION)
        return status_fail(status, STATUS_DATA_LOSS,
                           "segment %llu: format version %u, this program knows %d",
                           (unsigned long long)number, header->version, FORMAT_VERSION);
    if (header->number != number || header->lane >= LANE_COUNT ||
        header->capacity_bytes > SEGMENT_BYTES_MAX ||
        header->capacity_bytes < SEGMENT_HEADER_BYTES ||
        !all_zero(header->reserved_13, sizeof(header->reserved_13)) ||
        !all_zero(header->reserved_56, sizeof(header->reserved_56)))
        return status_fail(status, STATUS_DATA_LOSS,
                           "segment %llu: the header says segment %llu, lane %u, %llu bytes",
                           (unsigned long long)number, (unsigned long long)header->number,
                           header->lane, (unsigned long long)header->capacity_bytes);
    return true;
}

bool footer_trailer_valid(const struct footer_trailer *trailer)
{
    return memcmp(trailer->magic, TRAILER_MAGIC, sizeof(trailer->magic)) == 0 &&
           trailer->crc32c == trailer_crc(trailer) && trailer->lane < LANE_COUNT &&
           trailer->entries <= SEGMENT_BYTES_MAX / FOOTER_ENTRY_BYTES &&
           trailer->records_end >= SEGMENT_HEADER_BYTES &&
           trailer->records_end <= SEGMENT_BYTES_MAX &&
           all_zero(trailer->reserved, sizeof(trailer->reserved));
}

void footer_trailer_seal(struct footer_trailer *trailer)
{
    memcpy(trailer->magic, TRAILER_MAGIC, sizeof(trailer->magic));
    trailer->crc32c = trailer_crc(trailer);
}

static uint32_t trailer_crc(const struct footer_trailer *trailer)
{
    return crc32c(format_crc_seed(trailer->segment_uid),
                  bytes_of(trailer, offsetof(struct footer_trailer, crc32c)));
}

void record_header_seal(struct record_header *header, uint64_t uid)
{
    header->header_crc32c = record_header_crc(header, uid);
}

bool record_header_valid(const struct record_header *header, uint64_t uid, const char **reason)
{
    const char *why = NULL;
    if (header->magic != RECORD_MAGIC)
        why = "magic";
    else if (header->header_crc32c != record_header_crc(header, uid))
        why = "header crc32c";
    else if (header->version != FORMAT_VERSION)
        why = "version";
    else if (header->kind < RECORD_BLOB || header->kind > RECORD_FORGET)
        why = "kind";
    else if (header->codec != RECORD_CODEC_RAW)
        why = "codec";
    else if (header->digest_bytes > DIGEST_HASH_BYTES_MAX ||
             !all_zero(header->reserved_41, sizeof(header->reserved_41)))
        why = "reserved bytes";
    else if (header->payload_bytes > SEGMENT_BYTES_MAX)
        why = "payload length";
    if (reason != NULL)
        *reason = why;
    return why == NULL;
}

bool record_header_is_end(const struct record_header *header)
{
    return all_zero(header, sizeof(*header));
}

void record_header_digest(const struct record_header *header, struct digest *digest)
{
    *digest = (struct digest){
        .hash_length = header->digest_bytes,
        .function = header->digest_function,
        .size_bytes = (int64_t)header->blob_size,
    };
    memcpy(digest->hash, header->digest, sizeof(digest->hash));
}

static uint32_t record_header_crc(const struct record_header *header, uint64_t uid)
{
    const uint32_t first = crc32c(format_crc_seed(uid),
                                  bytes_of(header, offsetof(struct record_header, header_crc32c)));
    return crc32c(first, bytes_of(header->digest, sizeof(header->digest)));
}

static bool all_zero(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++)
        any |= bytes[i];
    return any == 0;
}
