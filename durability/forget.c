/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/forget.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "store/blob_reader.h"
#include "store/find.h"
#include "store/forget_record.h"
#include "store/write_time.h"

static void hear_of(struct store *store, const struct forget *forget);
static void log_forget(const struct forget *forget);
static void submit(struct store *store, struct commit *small_lane, const struct forget *forget);
static void forgotten(struct ack *ack, const struct status *result);
static void log_not_written(const struct digest *digest, const char *reason);

bool forget_entry(struct store *store, struct commit *small_lane, const struct forget *forget)
{
    const struct index_entry name = {
        .kind = forget->kind, .digest = forget->digest, .instance = forget->instance};
    const struct blob_key key =
        blob_table_key(store->table, name.kind, &name.digest, name.instance);
    if (forget->kind == RECORD_ACTION && forget->reason == FORGET_PURGED && forget->wall_ns == 0)
        hear_of(store, forget);
    /* In memory first, if it is still being loaded: what is removed there does not come back. */
    struct place found;
    if (!store_find(store, &name, FIND_ONLY, &found) ||
        !blob_table_remove(store->table, key, forget->place))
        return false; /* somebody else was first, or it has been written anew */
    metrics_add(store->metrics, METRIC_BLOBS_FORGOTTEN, 1);
    if (forget->reason != FORGET_EVICTED)
        log_forget(forget);
    submit(store, small_lane, forget);
    return true;
}

void forget_elsewhere(struct store *store, struct commit *small_lane, const struct forget *forget)
{
    ASSERT(forget->place.segment == 0 && forget->reason == FORGET_PURGED);
    log_forget(forget);
    submit(store, small_lane, forget);
}

/* The deletion is to be later than what it deletes. */
static void hear_of(struct store *store, const struct forget *forget)
{
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place;
    struct status ignored;
    if (action_read(store, &forget->digest, forget->instance, &memory, &record, &place, &ignored) &&
        memory != NULL)
        write_time_heard(store, record.written_wall_ns);
    free(memory);
}

static void log_forget(const struct forget *forget)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    /* What is ordered may be a million; who orders says it once. */
    log_event(forget->reason == FORGET_PURGED ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "entry_forgotten",
              "digest=%s segment=%" PRIu64 " offset=%" PRIu64 " reason=%s",
              digest_text(&forget->digest, text), forget->place.segment, forget->place.offset,
              forget->reason == FORGET_DAMAGED ? "damaged" : "purged");
}

static void submit(struct store *store, struct commit *small_lane, const struct forget *forget)
{
    struct forgetting *forgetting = calloc(1, sizeof(*forgetting));
    if (forgetting == NULL) {
        const struct status why = {.code = STATUS_RESOURCE_EXHAUSTED,
                                   .message = "no memory for a FORGET"};
        log_not_written(&forget->digest, why.message);
        if (forget->ack != NULL)
            forget->ack->done(forget->ack, &why);
        return;
    }
    forgetting_fill(forgetting, store, forget);
    forgetting->request.ack.done = forgotten;
    lock_acquire(&store->forget_lock);
    store->forgets_in_flight++;
    lock_release(&store->forget_lock);
    commit_submit(small_lane, &forgetting->request);
}

void forgetting_fill(struct forgetting *forgetting,
                     struct store *store,
                     const struct forget *forget)
{
    ASSERT(forget->instance.length <= sizeof(forgetting->instance));
    forgetting->store = store;
    forgetting->told = forget->ack;
    const struct forget_record fields = {
        .place = forget->place,
        .kind = forget->kind,
        .reason = forget->reason,
        .wall_ns = forget->wall_ns != 0 ? forget->wall_ns : write_time_next(store),
        .origin_uid = forget->origin_uid != 0 ? forget->origin_uid : store->node_uid,
    };
    forget_record_fixed_put(&forgetting->payload, &fields);
    if (forget->instance.length > 0)
        memcpy(forgetting->instance, forget->instance.data, forget->instance.length);
    forgetting->parts[0] = bytes_of(&forgetting->payload, sizeof(forgetting->payload));
    forgetting->parts[1] = bytes_of(forgetting->instance, forget->instance.length);
    forgetting->record = (struct record){
        .kind = RECORD_FORGET,
        .digest = forget->digest,
        .payload = {.parts = forgetting->parts, .count = ARRAY_LENGTH(forgetting->parts)},
        .payload_bytes = sizeof(forgetting->payload) + forget->instance.length,
    };
    forgetting->record.payload_crc32c = crc32c_list(0, forgetting->record.payload);
    forgetting->request = (struct commit_request){
        .record = &forgetting->record,
        .instance = forgetting->parts[1],
        .forget = forget->place,
        .forget_kind = forget->kind,
    };
}

static void forgotten(struct ack *ack, const struct status *result)
{
    struct forgetting *forgetting = CONTAINER_OF(ack, struct forgetting, request.ack);
    if (result->code != STATUS_OK)
        log_not_written(&forgetting->record.digest, result->message);
    struct store *store = forgetting->store;
    struct ack *const told = forgetting->told;
    free(forgetting);
    if (told != NULL)
        told->done(told, result);
    lock_acquire(&store->forget_lock);
    store->forgets_in_flight--;
    condition_broadcast(&store->forgets_answered);
    lock_release(&store->forget_lock);
}

void forget_wait(struct store *store)
{
    lock_acquire(&store->forget_lock);
    while (store->forgets_in_flight > 0)
        condition_wait(&store->forgets_answered, &store->forget_lock);
    lock_release(&store->forget_lock);
}

static void log_not_written(const struct digest *digest, const char *reason)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    struct log_text quoted;
    log_event(LOG_LEVEL_WARN, "forget_not_written", "digest=%s reason=%s",
              digest_text(digest, text), log_quote(&quoted, reason));
}
