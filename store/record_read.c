/* SPDX-License-Identifier: Apache-2.0 */
#include "store/record_read.h"

#include <inttypes.h>

#include "base/log.h"

static bool may_count(struct store *store);

bool record_read(struct store *store,
                 struct segment *segment,
                 uint64_t offset,
                 uint64_t length_hint,
                 uint8_t *buffer,
                 size_t capacity,
                 struct record_header *header,
                 struct bytes *payload,
                 struct status *status)
{
    header->payload_bytes = 0;
    if (segment_read_record(segment, offset, length_hint, buffer, capacity, header, payload,
                            status))
        return true;
    if (status->code != STATUS_UNAVAILABLE || io_cached_active())
        return false;
    const uint64_t length = RECORD_HEADER_BYTES + header->payload_bytes;
    if (!io_refuses(segment->io, segment->read_fd, length, offset)) {
        header->payload_bytes = 0;
        return segment_read_record(segment, offset, length_hint, buffer, capacity, header, payload,
                                   status);
    }
    if (!may_count(store))
        return false;
    metrics_add(store->metrics, METRIC_RECORDS_UNREADABLE, 1);
    return status_fail(status, STATUS_DATA_LOSS,
                       "record in segment %" PRIu64 " at %" PRIu64
                       " is damaged: the disk cannot read it",
                       segment->number, offset);
}

/* Of a store that is only looked at nothing is forgotten. */
static bool may_count(struct store *store)
{
    if (store->access == STORE_READ_ONLY)
        return true;
    const int64_t now_ns = clock_monotonic_ns(store->clock);
    lock_acquire(&store->unreadable_lock);
    if (store->unreadable_count == 0 || now_ns - store->unreadable_since_ns >= 60 * NS_PER_S) {
        store->unreadable_since_ns = now_ns;
        store->unreadable_count = 0;
    }
    const unsigned before = store->unreadable_count;
    if (before <= LIMIT_UNREADABLE_RECORDS)
        store->unreadable_count++;
    lock_release(&store->unreadable_lock);
    if (before == LIMIT_UNREADABLE_RECORDS) /* once a minute */
        log_event(LOG_LEVEL_ERROR, "disk_unreadable", "records=%u within_s=60", before);
    return before < LIMIT_UNREADABLE_RECORDS;
}
