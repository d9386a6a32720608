/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call_repair.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/replication.h"
#include "server/repair.h"
#include "server/server.h"

struct group_item {
    struct repair_wait wait;
    struct repair_group *group; /* borrowed */
};

struct repair_group {
    struct repair *repair; /* borrowed */
    struct call *call;     /* a reference, given up when the last wait has ended */
    _Atomic unsigned refs; /* the call, and those that wait */
    _Atomic size_t left;   /* waits that have not ended */
    size_t count;
    _Atomic bool unavailable;
    bool has_question;
    struct repair_question_wait question;
    uint8_t *result; /* owned; written before the last wait ends */
    size_t result_length;
    struct group_item items[];
};

static struct repair_group *group_new(struct call *call, size_t count);
static void group_unref(struct repair_group *group, unsigned refs);
static void wait_ended(struct repair_group *group);
static void blob_ready(struct repair_wait *wait);
static void question_answered(struct repair_question_wait *wait, uint8_t *result, size_t length);
static bool go(struct call_repair *repair, struct repair_group *group);

bool call_repair_is_possible(struct call *call)
{
    return repair_can_ask(call_server(call)->repair) &&
           !bytes_equal_string(call_tool_name(call), PEER_TOOL_NAME);
}

bool call_repair_start(struct call_repair *repair,
                       struct call *call,
                       const struct digest *digests,
                       size_t count)
{
    ASSERT(repair->group == NULL);
    struct repair_group *const group =
        call_repair_is_possible(call) ? group_new(call, count) : NULL;
    if (group == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct group_item *const item = &group->items[group->count];
        item->group = group;
        item->wait.ready = blob_ready;
        atomic_fetch_add(&group->left, 1);
        group->count++;
        if (!repair_start(group->repair, &digests[i], &item->wait)) {
            group->count--;
            atomic_fetch_sub(&group->left, 1);
        }
    }
    return go(repair, group);
}

bool call_repair_start_action(struct call_repair *repair,
                              struct call *call,
                              const struct digest *action,
                              struct bytes instance)
{
    ASSERT(repair->group == NULL);
    struct repair_group *const group = call_repair_is_possible(call) ? group_new(call, 0) : NULL;
    if (group == NULL)
        return false;
    group->question.ready = question_answered;
    atomic_fetch_add(&group->left, 1);
    group->has_question = repair_start_action(group->repair, action, instance, &group->question);
    if (!group->has_question)
        atomic_fetch_sub(&group->left, 1);
    return go(repair, group);
}

bool call_repair_start_find(struct call_repair *repair,
                            struct call *call,
                            const struct digest *digests,
                            size_t count,
                            bool ask_all)
{
    ASSERT(repair->group == NULL);
    struct repair_group *const group = call_repair_is_possible(call) ? group_new(call, 0) : NULL;
    if (group == NULL)
        return false;
    group->question.ready = question_answered;
    atomic_fetch_add(&group->left, 1);
    group->has_question =
        repair_start_find(group->repair, digests, count, ask_all, &group->question);
    if (!group->has_question)
        atomic_fetch_sub(&group->left, 1);
    return go(repair, group);
}

/* One of `left` is ours until all have been started, so that the end does not come before. */
static struct repair_group *group_new(struct call *call, size_t count)
{
    struct repair_group *const group =
        calloc(1, sizeof(*group) + count * sizeof(struct group_item));
    if (group == NULL)
        return NULL;
    group->repair = call_server(call)->repair;
    group->call = call;
    atomic_store(&group->refs, 2);
    atomic_store(&group->left, 1);
    call_ref(call);
    return group;
}

static bool go(struct call_repair *repair, struct repair_group *group)
{
    const bool any = group->count > 0 || group->has_question;
    if (any)
        repair->group = group;
    /* The wake-up that is remembered makes the next park a short one; so it does when nothing was started. */
    if (any) {
        wait_ended(group);
        return true;
    }
    call_unref(group->call);
    free(group);
    return false;
}

static void wait_ended(struct repair_group *group)
{
    struct call *const call = group->call;
    if (atomic_fetch_sub(&group->left, 1) != 1)
        return;
    call_wake(call);
    call_unref(call);
    group_unref(group, 1);
}

static void group_unref(struct repair_group *group, unsigned refs)
{
    if (atomic_fetch_sub(&group->refs, refs) != refs)
        return;
    free(group->result);
    free(group);
}

/* On the repair's thread. */
static void blob_ready(struct repair_wait *wait)
{
    struct repair_group *const group = CONTAINER_OF(wait, struct group_item, wait)->group;
    if (wait->unavailable)
        atomic_store(&group->unavailable, true);
    wait_ended(group);
}

static void question_answered(struct repair_question_wait *wait, uint8_t *result, size_t length)
{
    struct repair_group *const group = CONTAINER_OF(wait, struct repair_group, question);
    group->result = result;
    group->result_length = length;
    wait_ended(group);
}

bool call_repair_over(struct call_repair *repair)
{
    struct repair_group *const group = repair->group;
    if (group == NULL)
        return true;
    if (atomic_load(&group->left) > 0 && !call_cancelled(group->call))
        return false;
    if (atomic_load(&group->left) == 0) {
        repair->unavailable = atomic_load(&group->unavailable);
        repair->result = group->result;
        repair->result_length = group->result_length;
        group->result = NULL;
        repair->group = NULL;
        group_unref(group, 1);
    } else {
        call_repair_end(repair);
    }
    return true;
}

void call_repair_end(struct call_repair *repair)
{
    struct repair_group *const group = repair->group;
    free(repair->result);
    *repair = (struct call_repair){0};
    if (group == NULL)
        return;
    size_t ended = 0;
    for (size_t i = 0; i < group->count; i++)
        ended += repair_cancel(group->repair, &group->items[i].wait);
    ended += group->has_question && repair_cancel_question(group->repair, &group->question);
    const bool last = ended > 0 && atomic_fetch_sub(&group->left, ended) == ended;
    if (last)
        call_unref(group->call); /* the turn keeps it */
    group_unref(group, last ? 2 : 1);
}
