/* SPDX-License-Identifier: Apache-2.0 */
/* Small blobs by BatchReadBlobs, as many as one answer holds. */
#include <stdlib.h>

#include "client/batch.h"
#include "client/batch_packer.h"
#include "server/fetcher_private.h"

struct fetch_batch {
    struct fetch_call call;
    struct fetcher *fetcher; /* borrowed */
    struct unary *unary;     /* the client's; good until done */
    size_t count;
    uint64_t data_bytes, budget_bytes;
    struct want **wants;         /* owned array */
    struct digest *digests;      /* owned */
    struct status *results;      /* owned */
    struct fetch_commit *commit; /* owned until it is submitted */
};

static bool start(struct fetcher *fetcher);
static size_t measure(const struct fetcher *fetcher, uint64_t *data_bytes, uint64_t *packed_bytes);
static struct fetch_batch *batch_new(struct fetcher *fetcher, size_t count, uint64_t data_bytes);
static void batch_free(struct fetch_batch *batch);
static void take(void *argument, size_t index, struct bytes data);
static void done(void *argument, const struct status *status);
static void cancel(struct fetch_call *call);
static void fail_all(struct fetch_batch *batch, const struct status *why, bool here);

void fetch_batches_pump(struct fetcher *fetcher)
{
    while (fetcher->small.count > 0 && fetcher->batches < fetcher->config.batches_max &&
           start(fetcher))
        continue;
}

static bool start(struct fetcher *fetcher)
{
    uint64_t data_bytes;
    uint64_t packed_bytes;
    const size_t count = measure(fetcher, &data_bytes, &packed_bytes);
    /* The answer, and the copy that is committed. */
    const uint64_t budget_bytes = 2 * packed_bytes;
    if (!fetch_budget_take(fetcher, budget_bytes))
        return false;
    struct fetch_batch *const batch = batch_new(fetcher, count, data_bytes);
    if (batch == NULL) {
        fetch_budget_give(fetcher, budget_bytes);
        fetcher->starved = true;
        return false;
    }
    batch->budget_bytes = budget_bytes;
    for (size_t i = 0; i < count; i++) {
        batch->wants[i] = fetcher->small.first;
        batch->digests[i] = batch->wants[i]->digest;
        batch->wants[i]->state = WANT_CALLING;
        want_list_remove(&fetcher->small, batch->wants[i]);
    }
    struct status why = {0};
    if (!batch_read_start(fetcher->config.client, fetcher->config.loop, batch->digests,
                          batch->results, count,
                          (struct batch_read_sink){.take = take, .argument = batch},
                          (struct batch_done){done, batch, &batch->unary}, &why)) {
        fail_all(batch, &why, true);
        return true;
    }
    fetcher->batches++;
    fetch_call_begin(fetcher, &batch->call);
    return true;
}

/* How many of those that are queued go together: one at least. */
static size_t measure(const struct fetcher *fetcher, uint64_t *data_bytes, uint64_t *packed_bytes)
{
    size_t count = 0;
    *data_bytes = *packed_bytes = 0;
    for (const struct want *want = fetcher->small.first; want != NULL; want = want->next) {
        const uint64_t bytes = (uint64_t)want->digest.size_bytes;
        if (count > 0 &&
            *packed_bytes + bytes + BATCH_PACKER_ENTRY_OVERHEAD_BYTES > BATCH_PACKER_BATCH_BYTES)
            break;
        *packed_bytes += bytes + BATCH_PACKER_ENTRY_OVERHEAD_BYTES;
        *data_bytes += bytes;
        count++;
    }
    return count;
}

static struct fetch_batch *batch_new(struct fetcher *fetcher, size_t count, uint64_t data_bytes)
{
    struct fetch_batch *const batch = calloc(1, sizeof(*batch));
    if (batch == NULL)
        return NULL;
    batch->fetcher = fetcher;
    batch->call.cancel = cancel;
    batch->count = count;
    batch->data_bytes = data_bytes;
    batch->wants = calloc(count, sizeof(struct want *));
    batch->digests = calloc(count, sizeof(*batch->digests));
    batch->results = calloc(count, sizeof(*batch->results));
    batch->commit = fetch_commit_new(fetcher, count, data_bytes);
    if (batch->wants != NULL && batch->digests != NULL && batch->results != NULL &&
        batch->commit != NULL)
        return batch;
    batch_free(batch);
    return NULL;
}

static void batch_free(struct fetch_batch *batch)
{
    fetch_commit_discard(batch->commit);
    free(batch->wants);
    free(batch->digests);
    free(batch->results);
    free(batch);
}

/* Verified, each once. */
static void take(void *argument, size_t index, struct bytes data)
{
    struct fetch_batch *const batch = argument;
    struct want *const want = batch->wants[index];
    memcpy(fetch_commit_room(batch->commit, want), data.data, data.length);
    fetch_commit_add(batch->commit, want);
}

static void done(void *argument, const struct status *status)
{
    struct fetch_batch *const batch = argument;
    struct fetcher *const fetcher = batch->fetcher;
    fetch_call_end(fetcher, &batch->call);
    fetcher->batches--;
    if (status->code == STATUS_OK) {
        fetch_heard(fetcher);
        struct fetch_commit *const commit = batch->commit;
        batch->commit = NULL;
        for (size_t i = 0; i < batch->count; i++)
            if (batch->wants[i]->state != WANT_COMMITTING)
                want_end(batch->wants[i], &batch->results[i]);
        const uint64_t budget_bytes = batch->budget_bytes;
        batch_free(batch);
        fetch_commit_submit(commit, budget_bytes);
    } else {
        fail_all(batch, fetch_failure(fetcher, status), false);
    }
    fetcher_pump(fetcher);
}

static void fail_all(struct fetch_batch *batch, const struct status *why, bool here)
{
    const struct status copy = *why;
    for (size_t i = 0; i < batch->count; i++) {
        batch->wants[i]->failed_here = here;
        /* What came before the answer turned out to be malformed does not count. */
        want_end(batch->wants[i], &copy);
    }
    fetch_budget_give(batch->fetcher, batch->budget_bytes);
    batch_free(batch);
}

static void cancel(struct fetch_call *call)
{
    unary_cancel(CONTAINER_OF(call, struct fetch_batch, call)->unary);
}
