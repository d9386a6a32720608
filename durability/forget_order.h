/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deletion that was ordered on another node, carried out here: once, by whichever way and however often it is told, and never
 * again on what was stored anew since. An action result that was written later than the order stays.
 *
 * The last LIMIT_FORGET_ORDERS are remembered; after a start, those that this store's log has, which are those that took something
 * away. An order that is older than all that, or that found nothing to delete before the start, and is told once more, deletes a
 * blob that was stored in between.
 */
#ifndef VARVE_DURABILITY_FORGET_ORDER_H
#define VARVE_DURABILITY_FORGET_ORDER_H

#include "durability/commit.h"
#include "durability/feed.h"

struct forget_order {
    struct digest digest;  /* of the blob or the action */
    struct bytes instance; /* actions; borrowed for the call */
    enum record_kind kind; /* BLOB, MANIFEST or ACTION */
    uint64_t
        origin_uid; /* of the node that ordered it; this one's own orders come back and are done already */
    int64_t wall_ns; /* when, by that node's clock; no two of a node have the same */
};

/*
 * True if something is forgotten by it: gone in memory now, and ack is called once the FORGET is durable or has failed. False when
 * there is nothing to be done. feed: of the store; its log is gone through with the first order. Any thread but those that commit and
 * acknowledge.
 */
bool forget_order_carry_out(struct store *store,
                            struct feed *feed,
                            struct commit *small_lane,
                            const struct forget_order *order,
                            struct ack *ack);

#endif
