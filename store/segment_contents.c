/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_contents.h"

#include <inttypes.h>
#include <stdlib.h>

#include "store/segment_walk.h"

struct contents {
    struct footer_entry *entries;
    size_t count, capacity;
};

static bool add_record(void *argument,
                       const struct record_header *header,
                       uint64_t offset,
                       struct bytes payload,
                       bool after_gap,
                       struct status *status);

bool segment_contents_load(struct segment *segment,
                           uint64_t to,
                           struct footer_entry **entries,
                           size_t *count,
                           size_t *damaged,
                           bool *cut,
                           struct status *status)
{
    *cut = false;
    struct footer_trailer trailer;
    *damaged = 0;
    if (!segment_read_footer(segment, entries, &trailer, status))
        return false;
    if (*entries != NULL) {
        *count = (size_t)trailer.entries;
        return true;
    }
    struct contents contents = {0};
    struct segment_walk walk = {
        .segment = segment,
        .from = SEGMENT_HEADER_BYTES,
        .to = to,
        .each = add_record,
        .argument = &contents,
        .skip_unreadable = true,
    };
    *cut = !segment_walk(&walk, status);
    if (*cut && status->code == STATUS_RESOURCE_EXHAUSTED) {
        free(contents.entries);
        *cut = false;
        return false;
    }
    *damaged = (size_t)walk.damaged + (*cut || walk.tail_bytes > 0);
    *entries = contents.entries;
    *count = contents.count;
    return true;
}

static bool add_record(void *argument,
                       const struct record_header *header,
                       uint64_t offset,
                       struct bytes payload,
                       bool after_gap,
                       struct status *status)
{
    struct contents *contents = argument;
    (void)payload;
    (void)after_gap;
    if (contents->count == contents->capacity) {
        const size_t capacity = contents->capacity == 0 ? 1024 : 2 * contents->capacity;
        struct footer_entry *grown = realloc(contents->entries, capacity * sizeof(*grown));
        if (grown == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for the contents of a segment");
        contents->entries = grown;
        contents->capacity = capacity;
    }
    footer_entry_of_header(header, offset, &contents->entries[contents->count++]);
    return true;
}

void footer_entry_of_header(const struct record_header *header,
                            uint64_t offset,
                            struct footer_entry *entry)
{
    *entry = (struct footer_entry){
        .offset_lines = (uint32_t)(offset / RECORD_ALIGNMENT_BYTES),
        .kind = header->kind,
        .digest_function = header->digest_function,
        .digest_bytes = header->digest_bytes,
        .codec = header->codec,
        .blob_size = header->blob_size,
        .blob_offset = header->blob_offset,
        .payload_bytes = (uint32_t)header->payload_bytes,
        .payload_crc32c = header->payload_crc32c,
    };
    memcpy(entry->digest, header->digest, sizeof(entry->digest));
}

bool footer_entry_digest(const struct footer_entry *entry, struct digest *digest)
{
    if (entry->digest_bytes > sizeof(entry->digest))
        return false;
    *digest = (struct digest){
        .hash_length = entry->digest_bytes,
        .function = entry->digest_function,
        .size_bytes = (int64_t)entry->blob_size,
    };
    memcpy(digest->hash, entry->digest, sizeof(entry->digest));
    return true;
}
