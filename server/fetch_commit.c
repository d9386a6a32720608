/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/crc32c.h"
#include "server/fetcher_private.h"

struct committed_blob {
    struct commit_request request;
    struct record record;
    struct bytes payload;
    struct want *want; /* borrowed */
    struct fetch_commit *commit;
    bool ok;
};

struct fetch_commit {
    struct fetcher *fetcher; /* borrowed */
    uint64_t budget_bytes;
    size_t count, capacity;
    uint8_t *bytes; /* owned */
    size_t used_bytes, capacity_bytes;
    struct event event;
    /* Of the ack thread until the event is posted. */
    size_t left;
    struct status failure; /* the first */
    struct committed_blob blobs[];
};

static void on_ack(struct ack *ack, const struct status *result);
static void all_done(struct event *event);

struct fetch_commit *fetch_commit_new(struct fetcher *fetcher, size_t count, uint64_t bytes)
{
    struct fetch_commit *const made =
        calloc(1, sizeof(*made) + count * sizeof(struct committed_blob));
    uint8_t *const memory = malloc(bytes + 1);
    if (made == NULL || memory == NULL) {
        free(made);
        free(memory);
        return NULL;
    }
    made->fetcher = fetcher;
    made->capacity = count;
    made->bytes = memory;
    made->capacity_bytes = bytes;
    made->event.run = all_done;
    return made;
}

uint8_t *fetch_commit_room(struct fetch_commit *commit, const struct want *want)
{
    ASSERT(commit->count < commit->capacity);
    ASSERT((uint64_t)want->digest.size_bytes <= commit->capacity_bytes - commit->used_bytes);
    return commit->bytes + commit->used_bytes;
}

void fetch_commit_add(struct fetch_commit *commit, struct want *want)
{
    struct committed_blob *const blob = &commit->blobs[commit->count++];
    blob->payload = bytes_of(commit->bytes + commit->used_bytes, (size_t)want->digest.size_bytes);
    commit->used_bytes += blob->payload.length;
    blob->want = want;
    blob->commit = commit;
    blob->record = (struct record){
        .kind = RECORD_BLOB,
        .digest = want->digest,
        .payload = {.parts = &blob->payload, .count = 1},
        .payload_bytes = blob->payload.length,
        .payload_crc32c = crc32c(0, blob->payload),
    };
    blob->request =
        (struct commit_request){.record = &blob->record, .local = true, .ack = {.done = on_ack}};
    want->state = WANT_COMMITTING;
}

void fetch_commit_submit(struct fetch_commit *commit, uint64_t budget_bytes)
{
    commit->budget_bytes = budget_bytes;
    commit->left = commit->count;
    if (commit->count == 0) {
        all_done(&commit->event);
        return;
    }
    for (size_t i = 0; i + 1 < commit->count; i++)
        commit->blobs[i].request.next = &commit->blobs[i + 1].request;
    commit_submit(durability_commit(commit->fetcher->config.durability, LANE_SMALL),
                  &commit->blobs[0].request);
}

/* There is one ack thread, so that nothing here is shared. */
static void on_ack(struct ack *ack, const struct status *result)
{
    struct committed_blob *const blob = CONTAINER_OF(ack, struct committed_blob, request.ack);
    struct fetch_commit *const commit = blob->commit;
    blob->ok = result->code == STATUS_OK;
    if (!blob->ok && commit->failure.code == STATUS_OK)
        commit->failure = *result;
    if (--commit->left == 0)
        event_loop_post(commit->fetcher->config.loop, &commit->event);
}

static void all_done(struct event *event)
{
    static const struct status ok = {0};
    struct fetch_commit *const commit = CONTAINER_OF(event, struct fetch_commit, event);
    struct fetcher *const fetcher = commit->fetcher;
    fetch_budget_give(fetcher, commit->budget_bytes);
    for (size_t i = 0; i < commit->count; i++) {
        struct committed_blob *const blob = &commit->blobs[i];
        blob->want->failed_here = !blob->ok;
        want_end(blob->want, blob->ok ? &ok : &commit->failure);
    }
    fetch_commit_discard(commit);
    fetcher_pump(fetcher);
}

void fetch_commit_discard(struct fetch_commit *commit)
{
    if (commit == NULL)
        return;
    free(commit->bytes);
    free(commit);
}
