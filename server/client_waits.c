/* SPDX-License-Identifier: Apache-2.0 */
#include "server/client_waits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"

/* What holds less is not worth cutting off for its memory. */
static const size_t much_bytes = 64 * KIB;
static const int64_t log_pause_ns = 10 * NS_PER_S;

/* In the order in which they began to wait. */
struct wait_list {
    struct client_wait *first, *last; /* borrowed */
};

struct client_waits {
    /* Set by client_waits_new(), never changed. */
    struct clock *clock;     /* borrowed */
    struct metrics *metrics; /* borrowed */
    uint64_t held_bytes_max;
    uint64_t state_bytes_max;

    struct lock lock;
    struct wait_list lists[CLIENT_WAIT_KINDS]; /* guarded by lock, as all below */
    uint64_t held_bytes;                       /* of all that send */
    uint64_t state_bytes;                      /* of them */
    int64_t logged_ns;
};

/* Taken out under the lock, cancelled without it: a cancellation runs whatever gRPC has to run. */
struct cut_off {
    grpc_call *calls[CLIENT_WAITS_CUT_OFF_MAX]; /* a reference each */
    size_t count;
};

static void add_locked(struct client_waits *waits, struct client_wait *wait) REQUIRES(waits->lock);
static void remove_locked(struct client_waits *waits, struct client_wait *wait)
    REQUIRES(waits->lock);
static void take_out_locked(struct client_waits *waits,
                            struct client_wait *wait,
                            struct cut_off *cut_off) REQUIRES(waits->lock);
static struct client_wait *oldest_locked(struct client_waits *waits) REQUIRES(waits->lock);
static struct client_wait *oldest_large_locked(struct client_waits *waits) REQUIRES(waits->lock);
static void note_locked(struct client_waits *waits, const char *reason, size_t count)
    REQUIRES(waits->lock);
static void cancel(const struct cut_off *cut_off, const char *text);

bool client_waits_new(uint64_t held_bytes_max,
                      uint64_t state_bytes_max,
                      struct clock *clock,
                      struct metrics *metrics,
                      struct client_waits **waits,
                      struct status *status)
{
    struct client_waits *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "list of calls that wait");
    lock_init(&made->lock, LOCK_RANK_LEAF);
    made->clock = clock;
    made->metrics = metrics;
    made->held_bytes_max = held_bytes_max;
    made->state_bytes_max = state_bytes_max;
    *waits = made;
    return true;
}

void client_waits_free(struct client_waits *waits)
{
    if (waits == NULL)
        return;
    for (size_t kind = 0; kind < CLIENT_WAIT_KINDS; kind++)
        ASSERT(waits->lists[kind].first == NULL);
    ASSERT(waits->held_bytes == 0);
    lock_destroy(&waits->lock);
    free(waits);
}

void client_waits_begin(struct client_waits *waits,
                        struct client_wait *wait,
                        grpc_call *grpc,
                        enum client_wait_kind kind,
                        size_t sending_bytes,
                        size_t state_bytes)
{
    ASSERT(wait->grpc == NULL);
    ASSERT(kind == CLIENT_WAIT_RECEIVE || kind == CLIENT_WAIT_SEND);
    struct cut_off cut_off = {.count = 0};
    wait->grpc = grpc;
    wait->kind = kind;
    if (kind == CLIENT_WAIT_SEND && state_bytes >= much_bytes)
        wait->kind = CLIENT_WAIT_SEND_STATE;
    else if (kind == CLIENT_WAIT_SEND && sending_bytes + state_bytes >= much_bytes)
        wait->kind = CLIENT_WAIT_SEND_MUCH;
    wait->held_bytes = sending_bytes + state_bytes;
    wait->state_bytes = state_bytes;
    wait->since_ns = clock_monotonic_ns(waits->clock);

    lock_acquire(&waits->lock);
    add_locked(waits, wait);
    while (waits->state_bytes > waits->state_bytes_max &&
           cut_off.count < CLIENT_WAITS_CUT_OFF_MAX) {
        struct client_wait *const oldest = waits->lists[CLIENT_WAIT_SEND_STATE].first;
        if (oldest == NULL || oldest == wait)
            break;
        take_out_locked(waits, oldest, &cut_off);
    }
    while (waits->held_bytes > waits->held_bytes_max && cut_off.count < CLIENT_WAITS_CUT_OFF_MAX) {
        struct client_wait *const oldest = oldest_large_locked(waits);
        if (oldest == NULL || oldest == wait)
            break;
        take_out_locked(waits, oldest, &cut_off);
    }
    if (cut_off.count > 0)
        note_locked(waits, "memory", cut_off.count);
    lock_release(&waits->lock);
    cancel(&cut_off, "the client did not take what was sent to it, and the memory was needed for "
                     "others; try again");
}

/* Of those that are worth it. */
static struct client_wait *oldest_large_locked(struct client_waits *waits)
{
    struct client_wait *const much = waits->lists[CLIENT_WAIT_SEND_MUCH].first;
    struct client_wait *const state = waits->lists[CLIENT_WAIT_SEND_STATE].first;
    if (much == NULL || (state != NULL && state->since_ns < much->since_ns))
        return state;
    return much;
}

void client_waits_end(struct client_waits *waits, struct client_wait *wait)
{
    lock_acquire(&waits->lock);
    if (wait->grpc != NULL)
        remove_locked(waits, wait);
    lock_release(&waits->lock);
}

size_t client_waits_cut_off(struct client_waits *waits)
{
    struct cut_off cut_off = {.count = 0};
    const int64_t now_ns = clock_monotonic_ns(waits->clock);
    lock_acquire(&waits->lock);
    for (struct client_wait *wait = oldest_locked(waits);
         wait != NULL && now_ns - wait->since_ns >= CLIENT_WAITS_PATIENCE_NS &&
         cut_off.count < CLIENT_WAITS_CUT_OFF_MAX;
         wait = oldest_locked(waits))
        take_out_locked(waits, wait, &cut_off);
    if (cut_off.count > 0)
        note_locked(waits, "scarcity", cut_off.count);
    lock_release(&waits->lock);
    cancel(&cut_off,
           "the call has waited for its client for long, and others found no room; try again");
    return cut_off.count;
}

static struct client_wait *oldest_locked(struct client_waits *waits)
{
    struct client_wait *oldest = NULL;
    for (size_t kind = 0; kind < CLIENT_WAIT_KINDS; kind++) {
        struct client_wait *const first = waits->lists[kind].first;
        if (first != NULL && (oldest == NULL || first->since_ns < oldest->since_ns))
            oldest = first;
    }
    return oldest;
}

static void add_locked(struct client_waits *waits, struct client_wait *wait)
{
    struct wait_list *const list = &waits->lists[wait->kind];
    wait->next = NULL;
    wait->previous = list->last;
    if (list->last != NULL)
        list->last->next = wait;
    else
        list->first = wait;
    list->last = wait;
    waits->held_bytes += wait->held_bytes;
    waits->state_bytes += wait->state_bytes;
}

static void remove_locked(struct client_waits *waits, struct client_wait *wait)
{
    struct wait_list *const list = &waits->lists[wait->kind];
    if (wait->previous != NULL)
        wait->previous->next = wait->next;
    else
        list->first = wait->next;
    if (wait->next != NULL)
        wait->next->previous = wait->previous;
    else
        list->last = wait->previous;
    ASSERT(waits->held_bytes >= wait->held_bytes);
    ASSERT(waits->state_bytes >= wait->state_bytes);
    waits->held_bytes -= wait->held_bytes;
    waits->state_bytes -= wait->state_bytes;
    *wait = (struct client_wait){0};
}

/* Its memory counts as free from now on, though it takes gRPC a moment. */
static void take_out_locked(struct client_waits *waits,
                            struct client_wait *wait,
                            struct cut_off *cut_off)
{
    grpc_call *const grpc = wait->grpc;
    grpc_call_ref(grpc);
    cut_off->calls[cut_off->count++] = grpc;
    remove_locked(waits, wait);
}

static void note_locked(struct client_waits *waits, const char *reason, size_t count)
{
    metrics_add(waits->metrics, METRIC_CALLS_CUT_OFF, (int64_t)count);
    const int64_t now_ns = clock_monotonic_ns(waits->clock);
    if (waits->logged_ns != 0 && now_ns - waits->logged_ns < log_pause_ns)
        return;
    waits->logged_ns = now_ns;
    log_event(LOG_LEVEL_WARN, "calls_cut_off", "reason=%s calls=%zu held_bytes=%llu", reason, count,
              (unsigned long long)waits->held_bytes);
}

static void cancel(const struct cut_off *cut_off, const char *text)
{
    for (size_t i = 0; i < cut_off->count; i++) {
        const grpc_call_error error =
            grpc_call_cancel_with_status(cut_off->calls[i], GRPC_STATUS_UNAVAILABLE, text, NULL);
        ASSERT(error == GRPC_CALL_OK);
        grpc_call_unref(cut_off->calls[i]);
    }
}
