/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_check.h"

#include "store/segment_contents.h"
#include "store/segment_walk.h"

static bool on_record(void *argument,
                      const struct record_header *header,
                      uint64_t offset,
                      struct bytes payload,
                      bool after_gap,
                      struct status *status);
static bool on_gap(void *argument,
                   const struct record_header *header,
                   uint64_t offset,
                   uint64_t end,
                   struct status *status);
static bool compare_with_footer(struct segment_check *check,
                                const struct footer_entry *entry,
                                struct status *status);
static bool report_entries_before(struct segment_check *check,
                                  uint64_t end,
                                  size_t *reported,
                                  struct status *status);
static bool check_padding(struct segment_check *check,
                          const struct footer_entry *entry,
                          struct status *status);
static const char *why_not_itself(const struct record_header *header, struct bytes payload);
static bool tell(struct segment_check *check,
                 enum segment_damage damage,
                 const struct footer_entry *record,
                 uint64_t end,
                 const char *reason,
                 struct status *status);

static uint64_t offset_of(const struct footer_entry *entry)
{
    return (uint64_t)entry->offset_lines * RECORD_ALIGNMENT_BYTES;
}

static uint64_t end_of(const struct footer_entry *entry)
{
    return offset_of(entry) + record_stored_bytes(entry->payload_bytes);
}

bool segment_check_run(struct segment_check *check, struct status *status)
{
    if (check->from == 0) {
        check->from = SEGMENT_HEADER_BYTES;
        check->end = SEGMENT_HEADER_BYTES;
    }
    struct segment_walk walk = {
        .segment = check->segment,
        .from = check->from,
        .to = check->to,
        .expected_seq = check->next_seq,
        .each = on_record,
        .gap = on_gap,
        .argument = check,
        .skip_unreadable = true,
        .pause_bytes = check->pause_bytes,
    };
    if (!segment_walk(&walk, status))
        return false;
    check->from = walk.resume;
    check->next_seq = walk.next_seq;
    check->records += walk.records;
    check->end = walk.records > 0 ? walk.end : check->end;
    check->tail_bytes = walk.tail_bytes;
    check->paused = walk.paused;
    size_t reported = 0;
    return check->paused || report_entries_before(check, UINT64_MAX, &reported, status);
}

static bool on_record(void *argument,
                      const struct record_header *header,
                      uint64_t offset,
                      struct bytes payload,
                      bool after_gap,
                      struct status *status)
{
    struct segment_check *check = argument;
    struct footer_entry entry;
    (void)after_gap;
    footer_entry_of_header(header, offset, &entry);
    if (!compare_with_footer(check, &entry, status) || !check_padding(check, &entry, status))
        return false;
    const char *reason = why_not_itself(header, payload);
    if (reason != NULL)
        return tell(check, SEGMENT_DAMAGE_RECORD, &entry, end_of(&entry), reason, status);
    return check->sound == NULL || check->sound(check->argument, header, offset, payload, status);
}

/* NULL when the record is what its name says; of chunks and manifests only the whole blob can tell. */
static const char *why_not_itself(const struct record_header *header, struct bytes payload)
{
    struct digest named;
    struct digest found;
    if (header->kind != RECORD_BLOB || !digest_function_supported(header->digest_function))
        return NULL;
    record_header_digest(header, &named);
    if (payload.length != (uint64_t)named.size_bytes)
        return "blob size";
    digest_of_bytes(header->digest_function, payload, &found);
    return digest_equal(&named, &found) ? NULL : "hash";
}

static bool on_gap(void *argument,
                   const struct record_header *header,
                   uint64_t offset,
                   uint64_t end,
                   struct status *status)
{
    struct segment_check *check = argument;
    size_t reported = 0;
    if (check->entries != NULL) {
        if (!report_entries_before(check, end, &reported, status))
            return false;
        if (reported > 0)
            return true;
    }
    struct segment_finding finding = {
        .damage = SEGMENT_DAMAGE_RECORD,
        .offset = offset,
        .end = end,
        .reason = header != NULL ? "payload crc32c" : "no sound record",
    };
    struct footer_entry entry;
    if (header != NULL) {
        footer_entry_of_header(header, offset, &entry);
        finding.record = &entry;
    }
    return check->found(check->argument, &finding, status);
}

static bool compare_with_footer(struct segment_check *check,
                                const struct footer_entry *entry,
                                struct status *status)
{
    size_t reported = 0;
    if (check->entries == NULL)
        return true;
    if (!report_entries_before(check, offset_of(entry), &reported, status))
        return false;
    if (check->next_entry == check->entry_count ||
        check->entries[check->next_entry].offset_lines != entry->offset_lines)
        return tell(check, SEGMENT_DAMAGE_FOOTER, entry, end_of(entry), "not in the footer",
                    status);
    const struct footer_entry *footed = &check->entries[check->next_entry++];
    return memcmp(footed, entry, sizeof(*entry)) == 0 ||
           tell(check, SEGMENT_DAMAGE_FOOTER, entry, end_of(entry), "the footer says otherwise",
                status);
}

/* Records that the footer names and the walk has not met. */
static bool report_entries_before(struct segment_check *check,
                                  uint64_t end,
                                  size_t *reported,
                                  struct status *status)
{
    while (check->next_entry < check->entry_count &&
           offset_of(&check->entries[check->next_entry]) < end) {
        const struct footer_entry *entry = &check->entries[check->next_entry++];
        ++*reported;
        if (!tell(check, SEGMENT_DAMAGE_RECORD, entry, end_of(entry), "damaged", status))
            return false;
    }
    return true;
}

static bool check_padding(struct segment_check *check,
                          const struct footer_entry *entry,
                          struct status *status)
{
    uint8_t padding[RECORD_ALIGNMENT_BYTES];
    struct segment *segment = check->segment;
    const uint64_t begins = offset_of(entry) + RECORD_HEADER_BYTES + entry->payload_bytes;
    const size_t length = (size_t)(end_of(entry) - begins);
    size_t got = 0;
    if (length == 0)
        return true;
    struct status ignored; /* what cannot be read is told of where it matters */
    if (!io_pread(segment->io, segment->read_fd, padding, length, begins, &got, &ignored))
        return true;
    uint8_t any = 0;
    for (size_t i = 0; i < got; i++)
        any |= padding[i];
    return any == 0 ||
           tell(check, SEGMENT_DAMAGE_PADDING, entry, end_of(entry), "padding is not zero", status);
}

static bool tell(struct segment_check *check,
                 enum segment_damage damage,
                 const struct footer_entry *record,
                 uint64_t end,
                 const char *reason,
                 struct status *status)
{
    const struct segment_finding finding = {
        .damage = damage,
        .record = record,
        .offset = offset_of(record),
        .end = end,
        .reason = reason,
    };
    return check->found(check->argument, &finding, status);
}
