/* SPDX-License-Identifier: Apache-2.0 */
#include "store/chunk_share.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"

enum {
    /* Two, so that one writer with other bytes does not part all the rest. */
    SAME_PLACE_MAX = 2,
    /* Of a larger blob the rest is not shared: 64 GiB. */
    SLOTS_MAX = 65536,
    FIRST_SLOTS = 16,
};

struct known_chunk {
    struct digest prefix;
    struct manifest_chunk chunk; /* payload_bytes 0: none */
};

/* Of the chunks that begin in one MiB of the blob. */
struct slot {
    struct known_chunk known[SAME_PLACE_MAX];
    size_t next; /* to be replaced */
};

struct chunk_share {
    _Atomic int references;
    struct lock lock;
    struct slot *slots; /* owned; guarded by lock */
    size_t slot_count;  /* guarded by lock */
};

static bool append_locked(struct chunk_share *share,
                          struct segment_log *log,
                          struct segment_set *segments,
                          struct record *chunk,
                          const struct digest *prefix,
                          struct manifest_chunk *placed,
                          struct status *status) REQUIRES(share->lock);
static bool is_going(struct segment_set *segments, const struct manifest_chunk *chunk);
static struct slot *slot_locked(struct chunk_share *share, uint64_t blob_offset)
    REQUIRES(share->lock);

bool chunk_share_new(struct chunk_share **share, struct status *status)
{
    struct chunk_share *const made = calloc(1, sizeof(*made));
    if (!made)
        return status_fail_errno(status, ENOMEM, "chunks in common");
    made->references = 1;
    lock_init(&made->lock, LOCK_RANK_UPLOAD);
    *share = made;
    return true;
}

void chunk_share_ref(struct chunk_share *share)
{
    const int before = atomic_fetch_add(&share->references, 1);
    ASSERT(before > 0);
}

void chunk_share_unref(struct chunk_share *share)
{
    if (!share)
        return;
    const int before = atomic_fetch_sub(&share->references, 1);
    ASSERT(before > 0);
    if (before > 1)
        return;
    lock_destroy(&share->lock);
    free(share->slots);
    free(share);
}

bool chunk_share_append(struct chunk_share *share,
                        struct segment_log *log,
                        struct segment_set *segments,
                        struct record *chunk,
                        const struct digest *prefix,
                        struct manifest_chunk *placed,
                        struct status *status)
{
    ASSERT(chunk->kind == RECORD_CHUNK);
    ASSERT((uint64_t)prefix->size_bytes == chunk->blob_offset + chunk->payload_bytes);
    lock_acquire(&share->lock);
    const bool ok = append_locked(share, log, segments, chunk, prefix, placed, status);
    lock_release(&share->lock);
    return ok;
}

static bool append_locked(struct chunk_share *share,
                          struct segment_log *log,
                          struct segment_set *segments,
                          struct record *chunk,
                          const struct digest *prefix,
                          struct manifest_chunk *placed,
                          struct status *status)
{
    struct slot *const slot = slot_locked(share, chunk->blob_offset);
    size_t replaced = slot ? slot->next : 0;
    for (size_t i = 0; slot && i < SAME_PLACE_MAX; i++) {
        const struct known_chunk *const known = &slot->known[i];
        if (known->chunk.payload_bytes == chunk->payload_bytes &&
            known->chunk.blob_offset == chunk->blob_offset &&
            digest_equal(&known->prefix, prefix)) {
            ASSERT(known->chunk.payload_crc32c == chunk->payload_crc32c);
            if (is_going(segments, &known->chunk)) {
                replaced = i;
                break;
            }
            *placed = known->chunk;
            return true;
        }
    }
    if (!segment_log_append(log, &chunk, 1, status))
        return false;
    *placed = manifest_chunk_of(chunk);
    if (slot) {
        slot->known[replaced] = (struct known_chunk){.prefix = *prefix, .chunk = *placed};
        slot->next = (replaced + 1) % SAME_PLACE_MAX;
    }
    return true;
}

/* What is not going yet may still go before the manifest is committed: that is asked then. */
static bool is_going(struct segment_set *segments, const struct manifest_chunk *chunk)
{
    const uint64_t segment = place_unpack(chunk->place).segment;
    if (!segment_set_hold(segments, segment))
        return true;
    segment_set_let_go(segments, segment);
    return false;
}

/* NULL when there is none to be had: then the chunk is not shared. */
static struct slot *slot_locked(struct chunk_share *share, uint64_t blob_offset)
{
    const uint64_t at = blob_offset / LIMIT_CHUNK_BYTES;
    if (at >= SLOTS_MAX)
        return NULL;
    if (at >= share->slot_count) {
        size_t count = share->slot_count == 0 ? FIRST_SLOTS : share->slot_count;
        while (count <= at)
            count *= 2;
        struct slot *const grown = realloc(share->slots, count * sizeof(*grown));
        if (!grown)
            return NULL;
        memset(grown + share->slot_count, 0, (count - share->slot_count) * sizeof(*grown));
        share->slots = grown;
        share->slot_count = count;
    }
    return &share->slots[at];
}
