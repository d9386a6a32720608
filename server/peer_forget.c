/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peer_forget.h"

#include "durability/forget_order.h"

static void on_ack(struct ack *ack, const struct status *result);
static void over(struct event *event);

void peer_forget_start(struct peer_forget *forget,
                       struct durability *durability,
                       struct event_loop *loop,
                       const struct feed_record *record)
{
    forget->loop = loop;
    forget->event.run = over;
    forget->ack.done = on_ack;
    forget->result = (struct status){0};
    const struct forget_order order = {
        .digest = record->digest,
        .instance = record->instance,
        .kind = (enum record_kind)record->forgotten_kind,
        .origin_uid = record->origin_uid,
        .wall_ns = record->written_ns,
    };
    forget->carried_out =
        forget_order_carry_out(durability_store(durability), durability_feed(durability),
                               durability_commit(durability, LANE_SMALL), &order, &forget->ack);
    if (!forget->carried_out)
        event_loop_post(loop, &forget->event);
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
