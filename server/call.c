/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How threads meet in a call. Whoever has the turn works alone; the turn goes from thread to thread
 * by a batch (struct op), by the queue of the workers, or by whoever calls call_resume() or
 * call_wake(). What others may look at meanwhile, because a cancellation can come at any moment, is
 * guarded by call->lock. After a batch is started nothing of the call may be touched: it may be
 * over on another thread.
 *
 * Two things end independently: the body (the turn is over for good and on_free has run) and
 * RECV_CLOSE, the batch that tells of a cancellation, which is started on its own at the arrival.
 * When both are over the call is forgotten by gRPC and counted out; its bare memory stays until the
 * last reference goes.
 */
#include "server/call.h"

#include <errno.h>
#include <grpc/byte_buffer.h>
#include <grpc/support/alloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"
#include "proto/error_details.h"
#include "server/access.h"
#include "server/budget.h"
#include "server/call_private.h"
#include "server/client_waits.h"
#include "server/front.h"
#include "server/health.h"
#include "server/limits.h"
#include "server/instance_metrics.h"
#include "server/resets.h"
#include "server/rpc_metrics.h"
#include "server/slow_calls.h"
#include "server/server.h"
#include "server/workers.h"
#include "store/store.h"

/* Larger messages are worked on by a worker, whatever the method says. */
static const size_t poller_message_bytes_max = 64 * KIB;

enum { INLINE_PARTS = 8 };

#define CALL_STATES(X)                                                                             \
    X(ARRIVED)                                                                                     \
    X(RECEIVING)                                                                                   \
    X(HANDLING)                                                                                    \
    X(SENDING)                                                                                     \
    X(PARKED)                                                                                      \
    X(FINISHING)

enum call_state {
#define CALL_STATE_ENUM(name) CALL_##name,
    CALL_STATES(CALL_STATE_ENUM)
#undef CALL_STATE_ENUM
        CALL_STATE_COUNT
};

/* The table of call.h. */
static const bool transitions[CALL_STATE_COUNT][CALL_STATE_COUNT] = {
    [CALL_ARRIVED] = {[CALL_RECEIVING] = true, [CALL_FINISHING] = true},
    [CALL_RECEIVING] = {[CALL_HANDLING] = true, [CALL_FINISHING] = true},
    [CALL_HANDLING] = {[CALL_RECEIVING] = true,
                       [CALL_SENDING] = true,
                       [CALL_PARKED] = true,
                       [CALL_FINISHING] = true},
    [CALL_SENDING] = {[CALL_HANDLING] = true, [CALL_FINISHING] = true},
    [CALL_PARKED] = {[CALL_HANDLING] = true},
};

typedef void continuation(struct call *call, void *state);

struct call {
    /* Set when it begins, never changed. */
    struct op close_op;
    struct op receive_op;
    struct op send_op;
    struct server *server;        /* borrowed */
    struct front *front;          /* borrowed */
    const struct method *method;  /* borrowed; one that refuses for paths that nobody serves */
    size_t series;                /* in rpc_metrics */
    grpc_call *grpc;              /* owned; unref'd when the call is over */
    grpc_metadata_array metadata; /* owned, likewise */
    int64_t arrived_ns;
    int64_t deadline_ns;

    _Atomic int references;
    _Atomic bool cancelled;

    struct lock lock;
    enum call_state machine; /* guarded by lock */
    bool wake_pending;       /* guarded by lock: woken before it was parked */
    bool waiting;            /* guarded by lock: for the budget */
    bool body_over;          /* guarded by lock */
    bool close_over;         /* guarded by lock */
    /* Where the time goes, if slow calls are logged; guarded by lock. */
    int64_t entered_ns; /* the present state */
    int64_t spent_ns[CALL_STATE_COUNT];
    int64_t budget_since_ns, budget_ns;
    int64_t commit_since_ns, commit_ns; /* since: 0 when it is not there */
    continuation *next; /* guarded by lock: what the worker, or whoever wakes it, goes on with */

    /* Of whoever has the turn; of a batch while it is in flight. */
    int cancelled_out;          /* RECV_CLOSE's answer */
    grpc_byte_buffer *received; /* owned: the message */
    grpc_byte_buffer *sending;  /* owned: of the batch in flight */
    struct task task;
    struct budget_waiter waiter;
    struct client_wait client_wait;
    enum budget_half held_half;
    size_t held_bytes;                                /* of the budget */
    char instance_text[SLOW_CALL_INSTANCE_BYTES_MAX]; /* for the log of slow calls; cut */
    struct access_caller caller;
    struct limits_ticket ticket;
    struct call_credentials credentials; /* while the question is asked */
    struct access_question question;
    struct arena arena;
    struct message message;
    struct bytes inline_parts[INLINE_PARTS];
    struct bytes *more_parts; /* owned; for messages of more slices */
    size_t more_parts_capacity;
    size_t instance;                     /* in instance_metrics */
    uint64_t received_bytes, sent_bytes; /* of messages */
    bool headers_sent;
    bool half_closed;
    bool handled;          /* some function of the method has been called */
    bool tried_here;       /* by answer_here: if that fails, on_message is still to come */
    bool let_go;           /* on_free has been called */
    bool admitted;         /* counts among those that are served */
    enum status_code code; /* what it ends with */
    grpc_slice status_text;
    grpc_slice details;
    grpc_metadata trailer;

    _Alignas(max_align_t) uint8_t state[]; /* the handler's */
};

static void unknown_method(struct call *call, void *state, const struct message *message);
static const struct method method_not_served = {.path = "",
                                                .kind = METHOD_UNARY,
                                                .on_message = unknown_method};

static void enter_locked(struct call *call, enum call_state to) REQUIRES(call->lock);
static void start_batch(struct call *call,
                        struct op *op,
                        void (*done)(struct op *op, bool ok),
                        const grpc_op *ops,
                        size_t count);
static void start_close(struct call *call);
static void ask_for_budget(struct call *call, enum budget_half half);
static void budget_granted(struct budget_waiter *waiter);
static void identify(struct call *call);
static void start_receive(struct call *call);
static void receive_done(struct op *op, bool ok);
static void start_send(struct call *call, const grpc_op *ops, size_t count);
static void send_done(struct op *op, bool ok);
/* Whose answer: the handler's, of which nothing is needed any more; or ours, and then its state goes in the end. */
enum answer_of { ANSWER_OF_HANDLER, ANSWER_OF_OURS };
static void answer(struct call *call,
                   enum answer_of whose,
                   const struct status *status,
                   bool with_message,
                   struct bytes details);
static void refuse(struct call *call, const struct status *status);
static void close_done(struct op *op, bool ok);
static void end_body(struct call *call);

static int64_t deadline_of(gpr_timespec deadline)
{
    deadline = gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC);
    if (deadline.tv_sec >= INT64_MAX / NS_PER_S)
        return INT64_MAX;
    return deadline.tv_sec * NS_PER_S + deadline.tv_nsec;
}

/* ---- arrival */

void call_begin(struct front *front,
                struct server *server,
                const struct method *method,
                size_t series,
                struct arrival *arrival,
                struct bytes path)
{
    const struct method *const served = method != NULL ? method : &method_not_served;
    struct call *const call = calloc(1, sizeof(*call) + served->state_bytes);
    if (call == NULL) {
        const grpc_call_error error = grpc_call_cancel_with_status(
            arrival->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, "the server has no memory left", NULL);
        ASSERT(error == GRPC_CALL_OK);
        grpc_call_unref(arrival->grpc);
        grpc_metadata_array_destroy(&arrival->metadata);
        front_call_over(front);
        return;
    }
    call->waiter.granted = budget_granted;
    call->server = server;
    call->front = front;
    call->method = served;
    call->series = series;
    call->instance = INSTANCE_METRICS_NONE;
    call->grpc = arrival->grpc;
    call->metadata = arrival->metadata;
    call->arrived_ns = clock_monotonic_ns(server->clock);
    call->entered_ns = call->arrived_ns;
    call->deadline_ns = deadline_of(arrival->deadline);
    call->status_text = grpc_empty_slice();
    call->details = grpc_empty_slice();
    call->references = 1;
    lock_init(&call->lock, LOCK_RANK_CALL);
    arena_init(&call->arena, LIMIT_CALL_ARENA_BYTES);

    struct status status = {0};
    start_close(call); /* from now on others may see it; all is set */
    call->admitted = front_admit(front, &status);
    if (!call->admitted) {
        refuse(call, &status);
    } else if (method == NULL) {
        status_fail(&status, STATUS_UNIMPLEMENTED, "this server has no method %.*s",
                    (int)path.length, (const char *)path.data);
        refuse(call, &status);
    } else {
        identify(call);
    }
}

/* ---- who calls, and may it: before anything is read */

static void identified(struct access_question *question);
static bool may_write(struct call *call, struct status *status);
static void admit(struct call *call, bool known, const struct status *status);

static void identify(struct call *call)
{
    struct access *const access = call->server->access;
    struct status status = {0};
    if (access == NULL || call->method->role == ROLE_NONE) {
        if (may_write(call, &status))
            ask_for_budget(call, BUDGET_FIRST_MESSAGES);
        else
            refuse(call, &status);
        return;
    }
    struct access_shown shown;
    enum access_answer answer = ACCESS_NO;
    if (call_credentials_take(call, &call->credentials, &shown, &status))
        answer = access_authenticate(access, &shown, &call->caller, &status);
    if (answer == ACCESS_LATER) {
        call->question = (struct access_question){.done = identified, .shown = shown};
        access_ask(access, &call->question);
        return;
    }
    call_credentials_clear(&call->credentials);
    admit(call, answer == ACCESS_YES, &status);
}

/* On the access thread. */
static void identified(struct access_question *question)
{
    struct call *const call = CONTAINER_OF(question, struct call, question);
    call_credentials_clear(&call->credentials);
    call->caller = question->caller;
    admit(call, question->answer == ACCESS_YES, &question->status);
}

static void admit(struct call *call, bool known, const struct status *status)
{
    struct status why = *status;
    const struct method *const method = call->method;
    if (!known ||
        !(method->has_instance ? access_check_somewhere(&call->caller, method->role, &why)
                               : access_check_everywhere(&call->caller, method->role, &why)) ||
        !may_write(call, &why)) {
        refuse(call, &why);
        return;
    }
    int64_t retry_ns;
    if (call->server->limits == NULL ||
        limits_enter(call->server->limits, &call->caller, &call->ticket, &retry_ns, &why)) {
        ask_for_budget(call, BUDGET_FIRST_MESSAGES);
        return;
    }
    uint8_t details[ERROR_DETAILS_BYTES_MAX];
    const size_t length = error_details_retry_put(details, &why, retry_ns);
    answer(call, ANSWER_OF_OURS, &why, false, bytes_of(details, length));
}

/* Or it does not ask to. */
static bool may_write(struct call *call, struct status *status)
{
    struct server *const server = call->server;
    if (!call->method->writes || server->health == NULL ||
        health_check_writes(server->health, status))
        return true;
    metrics_add(server->metrics, METRIC_WRITES_REFUSED, 1);
    return false;
}

/* Never called: such a call is refused when it arrives. */
static void unknown_method(struct call *call, void *state, const struct message *message)
{
    (void)call;
    (void)state;
    (void)message;
    ASSERT(false);
}

/*
 * A batch of its own, at the very start: a cancellation must be seen while the call waits for
 * something else.
 */
static void start_close(struct call *call)
{
    grpc_op ops[1] = {{.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};
    ops[0].data.recv_close_on_server.cancelled = &call->cancelled_out;
    start_batch(call, &call->close_op, close_done, ops, ARRAY_LENGTH(ops));
}

/* The last thing that is done with a call: another thread may end it before this returns. */
static void start_batch(struct call *call,
                        struct op *op,
                        void (*done)(struct op *op, bool ok),
                        const grpc_op *ops,
                        size_t count)
{
    grpc_call *const grpc = call->grpc;
    op_arm(op, done);
    const grpc_call_error error = grpc_call_start_batch(grpc, ops, count, op, NULL);
    ASSERT(error == GRPC_CALL_OK);
}

static void enter_locked(struct call *call, enum call_state to)
{
    lock_assert_held(&call->lock);
    ASSERT(transitions[call->machine][to]);
    if (call->server->slow_calls != NULL) {
        const int64_t now_ns = clock_monotonic_ns(call->server->clock);
        call->spent_ns[call->machine] += now_ns - call->entered_ns;
        call->entered_ns = now_ns;
    }
    call->machine = to;
}

/* ---- receiving */

static void ask_for_budget(struct call *call, enum budget_half half)
{
    lock_acquire(&call->lock);
    const bool gone = atomic_load(&call->cancelled);
    bool granted = false;
    if (gone) {
        call->code = STATUS_CANCELLED;
        enter_locked(call, CALL_FINISHING);
    } else {
        call->held_half = half;
        granted = budget_take(call->server->budget, half, &call->waiter);
        call->waiting = !granted;
        if (!granted && call->server->slow_calls != NULL)
            call->budget_since_ns = clock_monotonic_ns(call->server->clock);
    }
    lock_release(&call->lock);
    if (gone)
        end_body(call);
    else if (granted)
        start_receive(call);
}

static void budget_granted(struct budget_waiter *waiter)
{
    start_receive(CONTAINER_OF(waiter, struct call, waiter));
}

static void start_receive(struct call *call)
{
    lock_acquire(&call->lock);
    call->waiting = false;
    if (call->budget_since_ns != 0) {
        const int64_t waited_ns = clock_monotonic_ns(call->server->clock) - call->budget_since_ns;
        call->budget_since_ns = 0;
        call->budget_ns += waited_ns;
        call->spent_ns[call->machine] -= waited_ns;
    }
    call->held_bytes = budget_reservation(call->server->budget);
    if (call->machine == CALL_ARRIVED)
        enter_locked(call, CALL_RECEIVING);
    ASSERT(call->machine == CALL_RECEIVING);
    ASSERT(call->received == NULL);
    lock_release(&call->lock);

    client_waits_begin(front_client_waits(call->front), &call->client_wait, call->grpc,
                       CLIENT_WAIT_RECEIVE, 0, 0);
    grpc_op ops[1] = {{.op = GRPC_OP_RECV_MESSAGE}};
    ops[0].data.recv_message.recv_message = &call->received;
    start_batch(call, &call->receive_op, receive_done, ops, ARRAY_LENGTH(ops));
}

enum received { RECEIVED_MESSAGE, RECEIVED_HALF_CLOSE, RECEIVED_TOO_MUCH, RECEIVED_NOTHING };

static enum received classify(const struct call *call, bool ok);
static void message_received(struct call *call);
static void half_close_received(struct call *call);
static bool adopt_message(struct call *call);
static void hold(struct call *call);
static bool answered_here(struct call *call);
static void handle_message(struct call *call, void *state);
static void handle_half_close(struct call *call, void *state);
static void run_here_or_submit(struct call *call, continuation *next, bool here);
static void fail_too_large(struct call *call);

static void receive_done(struct op *op, bool ok)
{
    struct call *const call = CONTAINER_OF(op, struct call, receive_op);
    client_waits_end(front_client_waits(call->front), &call->client_wait);
    lock_acquire(&call->lock);
    ASSERT(call->machine == CALL_RECEIVING);
    const enum received received = classify(call, ok);
    if (received == RECEIVED_NOTHING) {
        call->code = STATUS_CANCELLED;
        enter_locked(call, CALL_FINISHING);
    } else {
        enter_locked(call, CALL_HANDLING);
    }
    lock_release(&call->lock);

    switch (received) {
    case RECEIVED_MESSAGE:
        message_received(call);
        break;
    case RECEIVED_HALF_CLOSE:
        half_close_received(call);
        break;
    case RECEIVED_TOO_MUCH:
        fail_too_large(call);
        break;
    case RECEIVED_NOTHING:
        end_body(call);
        break;
    }
}

/*
 * A message that is not there says nothing by itself: it comes on a half-close, on a cancellation,
 * on a lost connection, and on a message that is cut short (which looks like a half-close; so
 * methods check that they have all they need).
 */
static enum received classify(const struct call *call, bool ok)
{
    if (call->received != NULL)
        return RECEIVED_MESSAGE;
    if (!ok)
        return RECEIVED_TOO_MUCH;
    if (grpc_call_failed_before_recv_message(call->grpc) || atomic_load(&call->cancelled))
        return RECEIVED_NOTHING;
    return RECEIVED_HALF_CLOSE;
}

static void message_received(struct call *call)
{
    if (!adopt_message(call)) {
        const struct status status = {.code = STATUS_RESOURCE_EXHAUSTED,
                                      .message = "the server has no memory left"};
        refuse(call, &status);
        return;
    }
    rpc_metrics_received(call->server->rpc_metrics, call->series, call->message.length);
    call->received_bytes += call->message.length;
    const bool small = call->message.length <= poller_message_bytes_max;
    if (!answered_here(call))
        run_here_or_submit(call, handle_message, call->method->on_poller && small);
}

static bool answered_here(struct call *call)
{
    if (call->method->answer_here == NULL || atomic_load(&call->cancelled) ||
        call->message.length > LIMIT_ANSWERED_HERE_BYTES ||
        !store_is_in_memory(call->server->store))
        return false;
    call->handled = call->tried_here = true;
    if (call->method->answer_here(call, call->state, &call->message))
        return true; /* and the turn is over */
    call->tried_here = false;
    return false;
}

bool call_is_tried_here(const struct call *call)
{
    return call->tried_here;
}

/* Makes the parts of the message out of its slices, and corrects the budget. */
static bool adopt_message(struct call *call)
{
    ASSERT(call->received->type == GRPC_BB_RAW);
    const grpc_slice_buffer *const slices = &call->received->data.raw.slice_buffer;
    struct bytes *parts = call->inline_parts;
    if (slices->count > INLINE_PARTS) {
        if (slices->count > call->more_parts_capacity) {
            free(call->more_parts);
            call->more_parts_capacity = 0;
            call->more_parts = calloc(slices->count, sizeof(*call->more_parts));
            if (call->more_parts == NULL)
                return false;
            call->more_parts_capacity = slices->count;
        }
        parts = call->more_parts;
    }
    for (size_t i = 0; i < slices->count; i++)
        parts[i] =
            bytes_of(GRPC_SLICE_START_PTR(slices->slices[i]), GRPC_SLICE_LENGTH(slices->slices[i]));
    call->message = (struct message){.parts = {.parts = parts, .count = slices->count},
                                     .length = slices->length};

    budget_correct(call->server->budget, call->held_half, call->held_bytes, call->message.length);
    call->held_bytes = call->message.length;
    hold(call);
    limits_moved(&call->ticket, call->message.length);
    return true;
}

static void release_message(struct call *call)
{
    if (call->received != NULL)
        grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
    call->message = (struct message){0};
    if (call->held_bytes > 0)
        budget_correct(call->server->budget, call->held_half, call->held_bytes, 0);
    call->held_bytes = 0;
    hold(call);
}

/* What its user is charged with: its message, and what is being sent. */
static void hold(struct call *call)
{
    limits_hold(&call->ticket,
                call->held_bytes +
                    (call->sending != NULL ? grpc_byte_buffer_length(call->sending) : 0));
}

static bool is_client_streaming(const struct call *call)
{
    return call->method->kind == METHOD_CLIENT_STREAM || call->method->kind == METHOD_BIDI;
}

static bool is_server_streaming(const struct call *call)
{
    return call->method->kind == METHOD_SERVER_STREAM || call->method->kind == METHOD_BIDI;
}

static void half_close_received(struct call *call)
{
    call->half_closed = true;
    if (!is_client_streaming(call)) {
        const struct status status = {
            .code = STATUS_INVALID_ARGUMENT,
            .message = "the call has no request message, or one that was cut short"};
        refuse(call, &status);
        return;
    }
    run_here_or_submit(call, handle_half_close, call->method->on_poller);
}

/* gRPC has told the client by itself; this ends our side, and what the metrics say. */
static void fail_too_large(struct call *call)
{
    struct status status = {0};
    status_fail(&status, STATUS_RESOURCE_EXHAUSTED,
                "a message is larger than the %zu bytes that this server takes",
                (size_t)LIMIT_MESSAGE_BYTES);
    refuse(call, &status);
}

/* ---- handing over */

static void run_task(struct task *task);

static void submit(struct call *call)
{
    call->task.run = run_task;
    workers_submit(call->server->workers, &call->task);
}

static void run_task(struct task *task)
{
    struct call *const call = CONTAINER_OF(task, struct call, task);
    lock_acquire(&call->lock);
    continuation *const next = call->next;
    lock_release(&call->lock);
    next(call, call->state);
}

static void run_here_or_submit(struct call *call, continuation *next, bool here)
{
    if (here) {
        next(call, call->state);
        return;
    }
    call_resume(call, next);
}

static void commit_ends_locked(struct call *call) REQUIRES(call->lock);

void call_resume(struct call *call, continuation *next)
{
    lock_acquire(&call->lock);
    ASSERT(call->machine == CALL_HANDLING);
    commit_ends_locked(call);
    call->next = next;
    submit(call);
    lock_release(&call->lock);
}

static void commit_ends_locked(struct call *call)
{
    if (call->commit_since_ns == 0)
        return;
    call->commit_ns += clock_monotonic_ns(call->server->clock) - call->commit_since_ns;
    call->commit_since_ns = 0;
}

void call_commit_begins(struct call *call)
{
    if (call->server->slow_calls == NULL)
        return;
    lock_acquire(&call->lock);
    call->commit_since_ns = clock_monotonic_ns(call->server->clock);
    lock_release(&call->lock);
}

static bool give_up_if_cancelled(struct call *call);

static void handle_message(struct call *call, void *state)
{
    if (give_up_if_cancelled(call))
        return;
    call->handled = true;
    call->method->on_message(call, state, &call->message);
}

static void handle_half_close(struct call *call, void *state)
{
    if (give_up_if_cancelled(call))
        return;
    call->handled = true;
    call->method->on_half_close(call, state);
}

static void handle_sent(struct call *call, void *state)
{
    if (!give_up_if_cancelled(call))
        call->method->on_sent(call, state);
}

/*
 * Nobody waits for the answer: clients that open and cancel calls by the thousand cost no more than
 * that.
 */
static bool give_up_if_cancelled(struct call *call)
{
    if (!atomic_load(&call->cancelled))
        return false;
    lock_acquire(&call->lock);
    call->code = STATUS_CANCELLED;
    enter_locked(call, CALL_FINISHING);
    lock_release(&call->lock);
    end_body(call);
    return true;
}

void call_park(struct call *call, continuation *resume)
{
    lock_acquire(&call->lock);
    enter_locked(call, CALL_PARKED);
    call->next = resume;
    if (call->wake_pending || atomic_load(&call->cancelled)) {
        call->wake_pending = false;
        enter_locked(call, CALL_HANDLING);
        submit(call);
    }
    lock_release(&call->lock);
}

static bool wake_locked(struct call *call) REQUIRES(call->lock);

bool call_wake(struct call *call)
{
    lock_acquire(&call->lock);
    const bool woken = wake_locked(call);
    if (!woken)
        call->wake_pending = true;
    lock_release(&call->lock);
    return woken;
}

static bool wake_locked(struct call *call)
{
    if (call->machine != CALL_PARKED)
        return false;
    enter_locked(call, CALL_HANDLING);
    submit(call);
    return true;
}

static void forget(struct call *call);

/* By its client, and not since its time was over. */
static void note_reset(struct call *call)
{
    struct resets *const resets = call->server->resets;
    const int64_t now_ns = clock_monotonic_ns(call->server->clock);
    if (resets == NULL || now_ns >= call->deadline_ns)
        return;
    char *const peer = grpc_call_get_peer(call->grpc);
    if (peer != NULL && resets_note(resets, peer, now_ns))
        resets_shut(resets, peer, now_ns);
    gpr_free(peer);
}

static void close_done(struct op *op, bool ok)
{
    ASSERT(ok); /* as gRPC promises, cancelled or not */
    struct call *const call = CONTAINER_OF(op, struct call, close_op);
    bool gone = false;
    if (call->cancelled_out != 0)
        note_reset(call);
    lock_acquire(&call->lock);
    if (call->cancelled_out != 0) {
        atomic_store(&call->cancelled, true);
        wake_locked(call);
        /* Batches in flight end by themselves; the wait for the budget does not. */
        if (call->waiting && budget_cancel(call->server->budget, &call->waiter)) {
            call->waiting = false;
            call->code = STATUS_CANCELLED;
            enter_locked(call, CALL_FINISHING);
            gone = true;
        }
    }
    call->close_over = true;
    const bool over = call->body_over;
    lock_release(&call->lock);
    /*
     * Whichever of the two ends comes last forgets the call; who is woken may have done so by now.
     */
    if (gone)
        end_body(call);
    else if (over)
        forget(call);
}

/* ---- sending */

void call_receive(struct call *call)
{
    ASSERT(is_client_streaming(call));
    ASSERT(!call->half_closed);
    release_message(call);
    lock_acquire(&call->lock);
    ASSERT(call->machine == CALL_HANDLING);
    enter_locked(call, CALL_RECEIVING);
    lock_release(&call->lock);
    ask_for_budget(call, BUDGET_LATER_MESSAGES);
}

/*
 * Takes the slices over; their array may lie in the arena, so it is not looked at once a batch is
 * started.
 */
static void take_slices(struct call *call, grpc_slice *slices, size_t count)
{
    ASSERT(call->sending == NULL);
    call->sending = grpc_raw_byte_buffer_create(slices, count);
    for (size_t i = 0; i < count; i++)
        grpc_slice_unref(slices[i]);
    rpc_metrics_sent(call->server->rpc_metrics, call->series,
                     grpc_byte_buffer_length(call->sending));
    limits_moved(&call->ticket, grpc_byte_buffer_length(call->sending));
    call->sent_bytes += grpc_byte_buffer_length(call->sending);
}

void call_send(struct call *call, grpc_slice *slices, size_t count)
{
    ASSERT(is_server_streaming(call));
    ASSERT(call->method->on_sent != NULL);
    take_slices(call, slices, count);
    /* The client may take what is sent in hours; whatever its request held, others can have. */
    release_message(call);
    grpc_op ops[2] = {0};
    size_t ops_count = 0;
    if (!call->headers_sent)
        ops[ops_count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[ops_count].op = GRPC_OP_SEND_MESSAGE;
    ops[ops_count++].data.send_message.send_message = call->sending;
    call->headers_sent = true;

    lock_acquire(&call->lock);
    const bool gone = atomic_load(&call->cancelled);
    enter_locked(call, CALL_SENDING);
    if (gone) {
        call->code = STATUS_CANCELLED;
        enter_locked(call, CALL_FINISHING);
    }
    lock_release(&call->lock);
    if (gone)
        end_body(call);
    else
        start_send(call, ops, ops_count);
}

/* Its memory while the client does not take it: what is sent, and what the next one is made from. */
static void start_send(struct call *call, const grpc_op *ops, size_t count)
{
    const size_t sending_bytes = call->sending != NULL ? grpc_byte_buffer_length(call->sending) : 0;
    client_waits_begin(front_client_waits(call->front), &call->client_wait, call->grpc,
                       CLIENT_WAIT_SEND, sending_bytes, call->arena.used_bytes);
    start_batch(call, &call->send_op, send_done, ops, count);
}

static void send_done(struct op *op, bool ok)
{
    struct call *const call = CONTAINER_OF(op, struct call, send_op);
    client_waits_end(front_client_waits(call->front), &call->client_wait);
    lock_acquire(&call->lock);
    grpc_byte_buffer *const sent = call->sending;
    call->sending = NULL;
    hold(call);
    bool over = true;
    if (call->machine == CALL_SENDING) {
        over = !ok || atomic_load(&call->cancelled);
        if (over) {
            call->code = STATUS_CANCELLED;
            enter_locked(call, CALL_FINISHING);
        } else {
            enter_locked(call, CALL_HANDLING);
            call->next = handle_sent;
            submit(call);
        }
    }
    lock_release(&call->lock);
    if (sent != NULL)
        grpc_byte_buffer_destroy(sent);
    if (over)
        end_body(call);
}

/* ---- the answer */

static void let_go_of_state(struct call *call);
static void give_place_up(struct call *call);

void call_reply(struct call *call, grpc_slice *slices, size_t count)
{
    take_slices(call, slices, count);
    answer(call, ANSWER_OF_HANDLER, &(struct status){0}, true, (struct bytes){0});
}

void call_finish(struct call *call)
{
    ASSERT(is_server_streaming(call));
    answer(call, ANSWER_OF_HANDLER, &(struct status){0}, false, (struct bytes){0});
}

void call_fail(struct call *call, const struct status *status)
{
    call_fail_with_details(call, status, (struct bytes){0});
}

void call_fail_with_details(struct call *call, const struct status *status, struct bytes details)
{
    ASSERT(status->code != STATUS_OK);
    answer(call, ANSWER_OF_HANDLER, status, false, details);
}

/* Where the message arrived, or would have; also in the middle of a stream. */
static void refuse(struct call *call, const struct status *status)
{
    answer(call, ANSWER_OF_OURS, status, false, (struct bytes){0});
}

static void answer(struct call *call,
                   enum answer_of whose,
                   const struct status *status,
                   bool with_message,
                   struct bytes details)
{
    ASSERT((unsigned int)status->code <= STATUS_UNAUTHENTICATED);
    grpc_op ops[3] = {0};
    size_t count = 0;
    if (!call->headers_sent)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (with_message) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = call->sending;
    }
    grpc_op *const last = &ops[count++];
    last->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    last->data.send_status_from_server.status = (grpc_status_code)status->code;
    if (status->message[0] != '\0') {
        call->status_text = grpc_slice_from_copied_string(status->message);
        last->data.send_status_from_server.status_details = &call->status_text;
    }
    if (details.length > 0) {
        call->details = grpc_slice_from_copied_buffer((const char *)details.data, details.length);
        call->trailer.key = grpc_slice_from_static_string("grpc-status-details-bin");
        call->trailer.value = call->details;
        last->data.send_status_from_server.trailing_metadata_count = 1;
        last->data.send_status_from_server.trailing_metadata = &call->trailer;
    }
    call->code = status->code;
    release_message(call);
    if (whose == ANSWER_OF_HANDLER)
        let_go_of_state(call);
    else
        give_place_up(call);

    lock_acquire(&call->lock);
    ASSERT(call->machine == CALL_HANDLING || call->machine == CALL_ARRIVED);
    commit_ends_locked(call);
    enter_locked(call, CALL_FINISHING);
    const bool gone = atomic_load(&call->cancelled);
    if (gone && call->code == STATUS_OK)
        call->code = STATUS_CANCELLED;
    lock_release(&call->lock);
    if (gone)
        end_body(call);
    else
        start_send(call, ops, count);
}

/* Whoever is refused again and again takes no place from others, however slowly it reads that. */
static void give_place_up(struct call *call)
{
    limits_leave(&call->ticket);
    if (call->admitted)
        front_let_go(call->front);
    call->admitted = false;
}

/* With the turn. The answer may take the client hours to read. */
static void let_go_of_state(struct call *call)
{
    ASSERT(!call->let_go);
    call->let_go = true;
    if (call->method->on_free != NULL)
        call->method->on_free(call, call->state);
    arena_destroy(&call->arena);
}

/* ---- the end */

static void note_if_slow(struct call *call, int64_t now_ns);
static void free_state(struct call *call, void *state);
static void body_over(struct call *call);

/* The turn is over for good. On whatever thread saw it. */
static void end_body(struct call *call)
{
    const int64_t now_ns = clock_monotonic_ns(call->server->clock);
    if (call->code == STATUS_CANCELLED && now_ns >= call->deadline_ns)
        call->code = STATUS_DEADLINE_EXCEEDED;
    rpc_metrics_ended(call->server->rpc_metrics, call->series, call->code,
                      now_ns - call->arrived_ns);
    const struct instance_request request = {.code = call->code,
                                             .duration_ns = now_ns - call->arrived_ns,
                                             .received_bytes = call->received_bytes,
                                             .sent_bytes = call->sent_bytes};
    instance_metrics_ended(rpc_metrics_instances(call->server->rpc_metrics), call->instance,
                           call->series, &request);
    note_if_slow(call, now_ns);
    release_message(call);
    if (call->sending != NULL)
        grpc_byte_buffer_destroy(call->sending);
    call->sending = NULL;

    if (call->method->on_free == NULL || call->let_go) {
        body_over(call);
    } else if (call->method->on_poller || !call->handled) {
        free_state(call, NULL);
    } else {
        lock_acquire(&call->lock);
        call->next = free_state;
        submit(call);
        lock_release(&call->lock);
    }
}

static void note_if_slow(struct call *call, int64_t now_ns)
{
    struct slow_calls *const slow_calls = call->server->slow_calls;
    if (slow_calls == NULL || call->method->waits ||
        now_ns - call->arrived_ns < slow_calls->threshold_ns)
        return;
    char *const peer = grpc_call_get_peer(call->grpc);
    struct slow_call slow = {
        .method = call->method->path[0] != '\0' ? call->method->path : "other",
        .instance = call->instance_text,
        .user = access_caller_name(&call->caller),
        .peer = peer != NULL ? peer : "unknown",
        .code = call->code,
        .duration_ns = now_ns - call->arrived_ns,
        .has_parts = true,
        .received_bytes = call->received_bytes,
        .sent_bytes = call->sent_bytes,
    };
    lock_acquire(&call->lock);
    /* The last state is that in which the client takes the answer. */
    slow.client_ns =
        call->spent_ns[CALL_RECEIVING] + call->spent_ns[CALL_SENDING] + now_ns - call->entered_ns;
    slow.budget_ns = call->budget_ns;
    slow.commit_ns = call->commit_ns;
    lock_release(&call->lock);
    slow_calls_note(slow_calls, &slow, now_ns);
    gpr_free(peer);
}

void call_note_instance(struct call *call, struct bytes instance)
{
    const size_t room = sizeof(call->instance_text) - 1;
    size_t length = instance.length < room ? instance.length : room;
    length = bytes_utf8_prefix(bytes_of(instance.data, length));
    if (length > 0)
        memcpy(call->instance_text, instance.data, length);
    call->instance_text[length] = '\0';
}

static void free_state(struct call *call, void *state)
{
    (void)state;
    let_go_of_state(call);
    body_over(call);
}

static void body_over(struct call *call)
{
    lock_acquire(&call->lock);
    ASSERT(call->machine == CALL_FINISHING);
    ASSERT(!call->body_over);
    call->body_over = true;
    const bool over = call->close_over;
    lock_release(&call->lock);
    if (over)
        forget(call);
}

/*
 * Here and not with the last reference: that may go in any place, under locks that gRPC's callbacks
 * must not meet.
 */
static void forget(struct call *call)
{
    ASSERT(call->held_bytes == 0);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_slice_unref(call->status_text);
    grpc_slice_unref(call->details);
    free(call->more_parts);
    call->more_parts = NULL;
    arena_destroy(&call->arena);
    give_place_up(call);
    access_caller_clear(&call->caller);
    grpc_call_unref(call->grpc);
    call->grpc = NULL;
    front_call_over(call->front);
    call_unref(call);
}

void call_set_instance(struct call *call, size_t instance)
{
    call->instance = instance;
}

void call_count_lookups(struct call *call, uint64_t hits, uint64_t misses)
{
    instance_metrics_looked_up(rpc_metrics_instances(call->server->rpc_metrics), call->instance,
                               call->series, hits, misses);
}

void call_ref(struct call *call)
{
    const int before = atomic_fetch_add(&call->references, 1);
    ASSERT(before > 0);
}

void call_unref(struct call *call)
{
    const int before = atomic_fetch_sub(&call->references, 1);
    ASSERT(before > 0);
    if (before > 1)
        return;
    lock_destroy(&call->lock);
    free(call);
}

/* ---- what may be asked with the turn */

struct server *call_server(struct call *call)
{
    return call->server;
}

void *call_state(struct call *call)
{
    return call->state;
}

struct arena *call_arena(struct call *call)
{
    return &call->arena;
}

const struct method *call_method(const struct call *call)
{
    return call->method;
}

bool call_cancelled(struct call *call)
{
    return atomic_load(&call->cancelled) ||
           clock_monotonic_ns(call->server->clock) >= call->deadline_ns;
}

int64_t call_deadline_ns(const struct call *call)
{
    return call->deadline_ns;
}

const struct access_caller *call_caller(const struct call *call)
{
    return &call->caller;
}

const grpc_metadata_array *call_metadata(const struct call *call)
{
    return &call->metadata;
}

grpc_call *call_grpc(const struct call *call)
{
    return call->grpc;
}
