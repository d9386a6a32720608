/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/rot.h"

#include <stdlib.h>

#include "durability/forget.h"
#include "store/action_record.h"
#include "store/manifest.h"
#include "store/segment_contents.h"

static bool forget_known(struct rot *rot,
                         struct segment *segment,
                         const struct footer_entry *entry,
                         const struct digest *digest,
                         uint64_t end);
static bool forget_at(struct rot *rot,
                      const struct digest *digest,
                      struct bytes instance,
                      struct place place,
                      enum record_kind kind);
static bool forget_action(struct rot *rot,
                          struct segment *segment,
                          const struct footer_entry *entry,
                          const struct digest *digest,
                          struct place place);
static bool forget_owner(struct rot *rot,
                         const struct digest *digest,
                         uint64_t segment,
                         uint64_t offset,
                         uint64_t end);

bool rot_forget(struct rot *rot, struct segment *segment, const struct segment_finding *finding)
{
    struct digest digest;
    if (finding->damage != SEGMENT_DAMAGE_RECORD)
        return false;
    if (finding->record != NULL && footer_entry_digest(finding->record, &digest))
        return forget_known(rot, segment, finding->record, &digest, finding->end);
    /* Whoever begins there; this does not survive a restart, after which a read will find it. */
    bool lost = blob_table_remove_between(rot->store->table, segment->number, finding->offset,
                                          finding->end) > 0;
    if (segment->lane == LANE_LARGE) {
        lost =
            (rot->neighbour.hash_length > 0 &&
             forget_owner(rot, &rot->neighbour, segment->number, finding->offset, finding->end)) ||
            lost;
        rot->gap_segment = segment->number;
        rot->gap_offset = finding->offset;
        rot->gap_end = finding->end;
    }
    return lost;
}

static bool forget_known(struct rot *rot,
                         struct segment *segment,
                         const struct footer_entry *entry,
                         const struct digest *digest,
                         uint64_t end)
{
    const struct place place = footer_entry_place(segment, entry);
    switch ((enum record_kind)entry->kind) {
    case RECORD_BLOB:
    case RECORD_MANIFEST:
        return forget_at(rot, digest, bytes_of(NULL, 0), place, (enum record_kind)entry->kind);
    case RECORD_ACTION:
        return forget_action(rot, segment, entry, digest, place);
    case RECORD_CHUNK:
        return forget_owner(rot, digest, segment->number, place.offset, end);
    case RECORD_FORGET:
        break; /* what it named is found to be gone, or damaged, when it is read */
    }
    return false;
}

static bool forget_at(struct rot *rot,
                      const struct digest *digest,
                      struct bytes instance,
                      struct place place,
                      enum record_kind kind)
{
    struct blob_table *table = rot->store->table;
    const struct blob_key key = blob_table_key(table, kind, digest, instance);
    const struct forget forget = {.digest = *digest,
                                  .instance = instance,
                                  .place = place,
                                  .kind = kind,
                                  .reason = FORGET_DAMAGED};
    struct blob_use use;
    if (!blob_table_look(table, key, &use) || place_pack(use.place) != place_pack(place))
        return false;
    return forget_entry(rot->store, rot->small_lane, &forget);
}

/*
 * The instance is part of the key and stands in the damaged payload. If what stands there leads to
 * an entry that names this very place, it is the right one.
 */
static bool forget_action(struct rot *rot,
                          struct segment *segment,
                          const struct footer_entry *entry,
                          const struct digest *digest,
                          struct place place)
{
    uint8_t head[ACTION_RECORD_FIXED_BYTES + LIMIT_INSTANCE_NAME_BYTES];
    struct action_record action;
    struct status ignored;
    size_t got = 0;
    const size_t wanted = entry->payload_bytes < sizeof(head) ? entry->payload_bytes : sizeof(head);
    if (io_pread(segment->io, segment->read_fd, head, wanted, place.offset + RECORD_HEADER_BYTES,
                 &got, &ignored) &&
        action_record_instance(bytes_of(head, got), &action.instance) &&
        forget_at(rot, digest, action.instance, place, RECORD_ACTION))
        return true;
    return blob_table_remove_between(rot->store->table, place.segment, place.offset,
                                     place.offset + RECORD_ALIGNMENT_BYTES) > 0;
}

/* The blob of this digest, if its MANIFEST names a chunk in these bytes, or cannot be read. */
static bool forget_owner(struct rot *rot,
                         const struct digest *digest,
                         uint64_t segment,
                         uint64_t offset,
                         uint64_t end)
{
    uint8_t *memory = NULL;
    struct bytes manifest;
    struct place place = {0};
    struct status status;
    bool there = false;
    if (!manifest_read(rot->store, digest, &place, &memory, &manifest, &there, &status))
        return status.code == STATUS_DATA_LOSS && rot_forget_large(rot, digest, place);
    if (!there)
        return false;
    const bool names = manifest_names(manifest, segment, offset, end);
    free(memory);
    return names && rot_forget_large(rot, digest, place);
}

bool rot_forget_large(struct rot *rot, const struct digest *digest, struct place manifest)
{
    return forget_at(rot, digest, bytes_of(NULL, 0), manifest, RECORD_MANIFEST);
}

bool rot_pass(struct rot *rot,
              struct segment *segment,
              const struct record_header *header,
              uint64_t offset,
              struct bytes payload)
{
    if (header->kind != RECORD_CHUNK && header->kind != RECORD_MANIFEST)
        return false;
    record_header_digest(header, &rot->neighbour);
    bool lost = false;
    if (rot->gap_end != 0 && rot->gap_segment == segment->number)
        lost = forget_owner(rot, &rot->neighbour, segment->number, rot->gap_offset, rot->gap_end);
    rot->gap_end = 0;
    if (header->kind != RECORD_MANIFEST)
        return lost;
    const struct place place = {.segment = segment->number, .offset = offset};
    return (!manifest_is_complete(rot->store->segments, payload) &&
            rot_forget_large(rot, &rot->neighbour, place)) ||
           lost;
}
