/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/forget_order.h"

#include <stdlib.h>

#include "durability/forget.h"
#include "store/blob_reader.h"
#include "store/find.h"

/* Eviction moves a record now and then; that it moves one so often in a row does not happen. */
enum { TRIES_MAX = 8 };
enum { PAGE_RECORDS = 1000 };

struct forget_ring {
    struct forget_seen *seen; /* LIMIT_FORGET_ORDERS of them */
    size_t at;                /* where the next one goes */
};

static void recall(struct store *store, struct feed *feed);
static void read_log(const struct store *store, struct feed *feed, struct forget_ring *ring);
static struct forget_seen seen_of(const struct digest *digest,
                                  uint64_t origin_uid,
                                  int64_t wall_ns);
static void put_seen(struct forget_ring *ring, struct forget_seen seen);

static bool is_news(struct store *store, const struct forget_order *order);
static bool find(struct store *store, const struct forget_order *order, struct place *place);
static bool find_older_action(struct store *store,
                              const struct forget_order *order,
                              struct place *place);

bool forget_order_carry_out(struct store *store,
                            struct feed *feed,
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
    if (order->origin_uid == store->node_uid || order->instance.length > LIMIT_INSTANCE_NAME_BYTES)
        return false;
    recall(store, feed);
    if (!is_news(store, order))
        return false;
    for (int tries = 0; tries < TRIES_MAX && find(store, order, &forget.place); tries++) {
        if (forget_entry(store, small_lane, &forget))
            return true;
    }
    return false;
}

/* Once after a start: what was carried out before it stands in the log. */
static void recall(struct store *store, struct feed *feed)
{
    lock_acquire(&store->forget_lock);
    const bool done = store->forgets_seen != NULL;
    lock_release(&store->forget_lock);
    struct forget_ring ring = {0};
    if (done || (ring.seen = calloc(LIMIT_FORGET_ORDERS, sizeof(*ring.seen))) == NULL)
        return;
    read_log(store, feed, &ring);
    lock_acquire(&store->forget_lock);
    if (store->forgets_seen == NULL) { /* else somebody was first */
        store->forgets_seen = ring.seen;
        store->forgets_seen_at = ring.at;
        ring.seen = NULL;
    }
    lock_release(&store->forget_lock);
    free(ring.seen);
}

/* What cannot be read is not known. */
static void read_log(const struct store *store, struct feed *feed, struct forget_ring *ring)
{
    struct feed_query query = {.lane = LANE_SMALL,
                               .records_max = PAGE_RECORDS,
                               .bytes_max = MIB,
                               .kinds = FEED_KIND(RECORD_FORGET)};
    struct status ignored = {0};
    bool more = true;
    while (more) {
        struct arena arena;
        struct feed_batch batch;
        arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
        more = feed_read(feed, &query, &arena, &batch, &ignored);
        for (size_t i = 0; more && i < batch.count; i++)
            if (batch.entries[i].origin_uid != store->node_uid)
                put_seen(ring, seen_of(&batch.entries[i].digest, batch.entries[i].origin_uid,
                                       batch.entries[i].wall_ns));
        more = more && (batch.more || batch.count > 0);
        if (more)
            query.after_seq = batch.next_after_seq;
        arena_destroy(&arena);
    }
}

static struct forget_seen seen_of(const struct digest *digest, uint64_t origin_uid, int64_t wall_ns)
{
    struct forget_seen seen = {.origin_uid = origin_uid, .wall_ns = wall_ns};
    memcpy(&seen.hash, digest->hash, sizeof(seen.hash));
    return seen;
}

static void put_seen(struct forget_ring *ring, struct forget_seen seen)
{
    ring->seen[ring->at] = seen;
    ring->at = (ring->at + 1) % LIMIT_FORGET_ORDERS;
}

/* And no news from now on. Without memory everything is. */
static bool is_news(struct store *store, const struct forget_order *order)
{
    const struct forget_seen seen = seen_of(&order->digest, order->origin_uid, order->wall_ns);
    bool known = false;
    lock_acquire(&store->forget_lock);
    struct forget_ring ring = {.seen = store->forgets_seen, .at = store->forgets_seen_at};
    for (size_t i = 0; ring.seen != NULL && !known && i < LIMIT_FORGET_ORDERS; i++) {
        const struct forget_seen *const at = &ring.seen[i];
        known = at->origin_uid == seen.origin_uid && at->wall_ns == seen.wall_ns &&
                at->hash == seen.hash;
    }
    if (ring.seen != NULL && !known)
        put_seen(&ring, seen);
    store->forgets_seen_at = ring.at;
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
