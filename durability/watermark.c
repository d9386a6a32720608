/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/watermark.h"

void watermark_init(struct watermark *watermark, uint64_t seq)
{
    *watermark = (struct watermark){.pending_seq = seq, .durable_seq = seq};
    lock_init(&watermark->lock, LOCK_RANK_WATERMARK);
}

void watermark_destroy(struct watermark *watermark)
{
    lock_destroy(&watermark->lock);
}

void watermark_set_pending(struct watermark *watermark, uint64_t seq)
{
    lock_acquire(&watermark->lock);
    ASSERT(seq >= watermark->pending_seq);
    watermark->pending_seq = seq;
    lock_release(&watermark->lock);
}

void watermark_set_durable(struct watermark *watermark, uint64_t seq)
{
    lock_acquire(&watermark->lock);
    ASSERT(!watermark->failed);
    ASSERT(seq >= watermark->durable_seq);
    ASSERT(seq <= watermark->pending_seq);
    watermark->durable_seq = seq;
    lock_release(&watermark->lock);
}

void watermark_fail(struct watermark *watermark, const struct status *why)
{
    lock_acquire(&watermark->lock);
    if (!watermark->failed) {
        watermark->failed = true;
        watermark->why = *why;
    }
    lock_release(&watermark->lock);
}

uint64_t watermark_pending(struct watermark *watermark)
{
    lock_acquire(&watermark->lock);
    const uint64_t seq = watermark->pending_seq;
    lock_release(&watermark->lock);
    return seq;
}

uint64_t watermark_durable(struct watermark *watermark)
{
    lock_acquire(&watermark->lock);
    const uint64_t seq = watermark->durable_seq;
    lock_release(&watermark->lock);
    return seq;
}

bool watermark_failed(struct watermark *watermark, struct status *why)
{
    lock_acquire(&watermark->lock);
    const bool failed = watermark->failed;
    if (failed && why != NULL)
        *why = watermark->why;
    lock_release(&watermark->lock);
    return failed;
}
