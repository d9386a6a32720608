/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/ack.h"

#include <stdlib.h>

/* Completions that came together and share one result. */
struct ack_batch {
    struct ack *acks;
    struct status result;
    struct ack_batch *next;
};

struct acker {
    struct lock lock;
    struct condition posted;
    struct ack_batch *first, *last; /* guarded by lock; owned */
    bool stopping;                  /* guarded by lock */
};

static struct ack_batch *take_all(struct acker *acker);
static void run_batch(const struct ack_batch *batch);

bool acker_new(struct acker **acker, struct status *status)
{
    struct acker *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the acker");
    lock_init(&made->lock, LOCK_RANK_ACK);
    condition_init(&made->posted);
    *acker = made;
    return true;
}

void acker_free(struct acker *acker)
{
    if (acker == NULL)
        return;
    ASSERT(acker->first == NULL);
    condition_destroy(&acker->posted);
    lock_destroy(&acker->lock);
    free(acker);
}

void acker_post(struct acker *acker, struct ack *acks, const struct status *result)
{
    if (acks == NULL)
        return;
    struct ack_batch *batch = malloc(sizeof(*batch));
    if (batch == NULL) {
        /* Nobody may wait for ever: without memory for a hand-over it is done here. */
        const struct ack_batch here = {.acks = acks, .result = *result};
        run_batch(&here);
        return;
    }
    *batch = (struct ack_batch){.acks = acks, .result = *result};
    lock_acquire(&acker->lock);
    if (acker->last != NULL)
        acker->last->next = batch;
    else
        acker->first = batch;
    acker->last = batch;
    condition_signal(&acker->posted);
    lock_release(&acker->lock);
}

bool acker_round(struct acker *acker)
{
    struct ack_batch *batch = take_all(acker);
    const bool any = batch != NULL;
    while (batch != NULL) {
        struct ack_batch *const next = batch->next;
        run_batch(batch);
        free(batch);
        batch = next;
    }
    return any;
}

static struct ack_batch *take_all(struct acker *acker)
{
    lock_acquire(&acker->lock);
    struct ack_batch *const first = acker->first;
    acker->first = NULL;
    acker->last = NULL;
    lock_release(&acker->lock);
    return first;
}

static void run_batch(const struct ack_batch *batch)
{
    struct ack *ack = batch->acks;
    while (ack != NULL) {
        struct ack *const next = ack->next; /* done() may free the memory that ack lies in */
        ack->done(ack, &batch->result);
        ack = next;
    }
}

bool acker_wait(struct acker *acker)
{
    lock_acquire(&acker->lock);
    while (acker->first == NULL && !acker->stopping)
        condition_wait(&acker->posted, &acker->lock);
    const bool any = acker->first != NULL;
    lock_release(&acker->lock);
    return any;
}

void acker_stop(struct acker *acker)
{
    lock_acquire(&acker->lock);
    acker->stopping = true;
    condition_broadcast(&acker->posted);
    lock_release(&acker->lock);
}
