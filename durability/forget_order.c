/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/forget_order.h"

#include <stdlib.h>

#include "durability/forget.h"
#include "store/blob_reader.h"
#include "store/find.h"

/* Eviction moves a record now and then; that it moves one so often in a row does not happen. */
enum { TRIES_MAX = 8 };

static bool is_news(struct store *store, const struct forget_order *order);
static bool find(struct store *store, const struct forget_order *order, struct place *place);
static bool find_older_action(struct store *store,
                              const struct forget_order *order,
                              struct place *place);

bool forget_order_carry_out(struct store *store,
                            struct commit *small_lane,
                            const struct forget_order *order,
                            struct ack *ack)
{
    struct forget forget = {
        .digest = order->digest,
        .instance = order->instance,
        .kind = order->kind,
        .reason = FORGET_PURGED,
        .origin_uid = order->origin_uid,
        .wall_ns = order->wall_ns,
        .ack = ack,
    };
    if (order->origin_uid == store->node_uid ||
        order->instance.length > LIMIT_INSTANCE_NAME_BYTES || !is_news(store, order))
        return false;
    for (int tries = 0; tries < TRIES_MAX && find(store, order, &forget.place); tries++) {
        if (forget_entry(store, small_lane, &forget))
            return true;
    }
    return false;
}

/* And no news from now on. Without memory everything is. */
static bool is_news(struct store *store, const struct forget_order *order)
{
    struct forget_seen seen = {.origin_uid = order->origin_uid, .wall_ns = order->wall_ns};
    memcpy(&seen.hash, order->digest.hash, sizeof(seen.hash));
    bool known = false;
    lock_acquire(&store->forget_lock);
    if (store->forgets_seen == NULL)
        store->forgets_seen = calloc(LIMIT_FORGET_ORDERS, sizeof(*store->forgets_seen));
    for (size_t i = 0; store->forgets_seen != NULL && !known && i < LIMIT_FORGET_ORDERS; i++) {
        const struct forget_seen *const at = &store->forgets_seen[i];
        known = at->origin_uid == seen.origin_uid && at->wall_ns == seen.wall_ns &&
                at->hash == seen.hash;
    }
    if (store->forgets_seen != NULL && !known) {
        store->forgets_seen[store->forgets_seen_at] = seen;
        store->forgets_seen_at = (store->forgets_seen_at + 1) % LIMIT_FORGET_ORDERS;
    }
    lock_release(&store->forget_lock);
    return !known;
}

static bool find(struct store *store, const struct forget_order *order, struct place *place)
{
    return order->kind == RECORD_ACTION ? find_older_action(store, order, place)
                                        : store_find_blob(store, &order->digest, FIND_ONLY, place);
}

/* One that cannot be read may go as well. */
static bool find_older_action(struct store *store,
                              const struct forget_order *order,
                              struct place *place)
{
    uint8_t *memory = NULL;
    struct action_record ours;
    struct status ignored;
    *place = (struct place){0};
    if (!action_read(store, &order->digest, order->instance, &memory, &ours, place, &ignored))
        return place->segment != 0;
    const bool older = memory != NULL && ours.written_wall_ns <= order->wall_ns;
    free(memory);
    return older;
}
