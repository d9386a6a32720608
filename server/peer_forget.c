/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peer_forget.h"

#include <stdlib.h>

#include "durability/forget.h"
#include "server/peer_action.h"
#include "store/blob_reader.h"
#include "store/find.h"

static bool find(struct store *store, const struct feed_record *record, struct place *place);
static bool find_older_action(struct store *store,
                              const struct feed_record *record,
                              struct place *place);
static void on_ack(struct ack *ack, const struct status *result);
static void over(struct event *event);

void peer_forget_start(struct peer_forget *forget,
                       struct durability *durability,
                       struct event_loop *loop,
                       const struct feed_record *record)
{
    struct store *const store = durability_store(durability);
    forget->loop = loop;
    forget->event.run = over;
    forget->ack.done = on_ack;
    forget->carried_out = false;
    forget->result = (struct status){0};
    struct forget what = {
        .digest = record->digest,
        .instance = record->instance,
        .kind = (enum record_kind)record->forgotten_kind,
        .reason = FORGET_PURGED,
        .origin_uid = record->origin_uid,
        .wall_ns = record->written_ns,
        .ack = &forget->ack,
    };
    forget->carried_out = find(store, record, &what.place) &&
                          forget_entry(store, durability_commit(durability, LANE_SMALL), &what);
    if (!forget->carried_out)
        event_loop_post(loop, &forget->event);
}

static bool find(struct store *store, const struct feed_record *record, struct place *place)
{
    if (record->forgotten_kind == FEED_ACTION)
        return find_older_action(store, record, place);
    return store_find_blob(store, &record->digest, FIND_ONLY, place);
}

/* One that cannot be read may go as well. */
static bool find_older_action(struct store *store,
                              const struct feed_record *record,
                              struct place *place)
{
    uint8_t *memory = NULL;
    struct action_record ours;
    struct status ignored;
    const struct action_record order = {.written_wall_ns = record->written_ns,
                                        .node_uid = record->origin_uid};
    *place = (struct place){0};
    if (!action_read(store, &record->digest, record->instance, &memory, &ours, place, &ignored))
        return place->segment != 0;
    const bool older = memory != NULL && !action_is_before(&order, &ours);
    free(memory);
    return older;
}

/* On the ack thread; or from inside the start, when there is no memory. */
static void on_ack(struct ack *ack, const struct status *result)
{
    struct peer_forget *const forget = CONTAINER_OF(ack, struct peer_forget, ack);
    forget->result = *result;
    event_loop_post(forget->loop, &forget->event);
}

static void over(struct event *event)
{
    struct peer_forget *const forget = CONTAINER_OF(event, struct peer_forget, event);
    forget->done(forget, &forget->result);
}
