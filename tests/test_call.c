/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a call goes through its states as call.h draws them, and that nothing of it is left
 * whenever and however it ends: a server with toy methods and a real gRPC client in one process,
 * over loopback. Each way of leaving a state is gone by a test; then many calls at once are
 * cancelled at random. Under ASan nothing may leak, under TSan nothing may race.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "server/budget.h"
#include "tests/support/front_rig.h"
#include "tests/support/test_run.h"

/* ---- what the toys share */

enum { PARKED_MAX = 64 };

static struct toys {
    struct lock lock;
    struct condition changed;
    bool gate_open;                  /* guarded by lock: HOLD waits for it */
    int held;                        /* guarded by lock: handlers that wait at the gate */
    struct call *parked[PARKED_MAX]; /* guarded by lock: referenced */
    size_t parked_count;             /* guarded by lock */
    struct call *handed[PARKED_MAX]; /* guarded by lock: their turn is ours */
    size_t handed_count;             /* guarded by lock */
    _Atomic int freed;               /* on_free of any toy */
    _Atomic int resumed;             /* calls of PARK that went on */
    _Atomic int resumed_cancelled;   /* and found themselves cancelled */
    _Atomic int sent;                /* on_sent of COUNT */
    _Atomic int echoed;              /* on_message of ECHO and HEAVY */
    _Atomic int half_closed;         /* on_half_close of SUM */
} toys;

static struct front_rig rig;
static struct status unused;

static bool wait_until(bool (*reached)(int), int value)
{
    for (int i = 0; i < 20000; i++) {
        if (reached(value))
            return true;
        usleep(1000);
    }
    return false;
}

static bool freed_reached(int count)
{
    return atomic_load(&toys.freed) >= count;
}

static bool sent_reached(int count)
{
    return atomic_load(&toys.sent) >= count;
}

static bool parked_reached(int count)
{
    lock_acquire(&toys.lock);
    const bool reached = (int)toys.parked_count >= count;
    lock_release(&toys.lock);
    return reached;
}

static bool handed_reached(int count)
{
    lock_acquire(&toys.lock);
    const bool reached = (int)toys.handed_count >= count;
    lock_release(&toys.lock);
    return reached;
}

static bool held_reached(int count)
{
    lock_acquire(&toys.lock);
    const bool reached = toys.held >= count;
    lock_release(&toys.lock);
    return reached;
}

static grpc_slice slice_of_bytes(const void *data, size_t length)
{
    return grpc_slice_from_copied_buffer(data, length);
}

static void toy_free(struct call *call, void *state)
{
    (void)call;
    (void)state;
    atomic_fetch_add(&toys.freed, 1);
}

static void reply_number(struct call *call, uint64_t number)
{
    grpc_slice slice = slice_of_bytes(&number, sizeof(number));
    call_reply(call, &slice, 1);
}

/* ---- ECHO, HEAVY: the message comes back, from the poller or from a worker */

static void echo_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct bytes flat;
    atomic_fetch_add(&toys.echoed, 1);
    if (!call_message_flat(call, message, &flat))
        return;
    grpc_slice slice = slice_of_bytes(flat.data, flat.length);
    call_reply(call, &slice, 1);
}

static const struct method echo = {.path = "/toy.Toys/Echo",
                                   .kind = METHOD_UNARY,
                                   .on_poller = true,
                                   .on_message = echo_message};
static const struct method heavy = {.path = "/toy.Toys/Heavy",
                                    .kind = METHOD_UNARY,
                                    .on_message = echo_message,
                                    .on_free = toy_free};

/*
 * ---- SUM: how many bytes came, once the client has half-closed; EARLY answers after the first
 * message
 */

struct sum {
    uint64_t bytes;
    uint64_t messages;
};

static void sum_message(struct call *call, void *state, const struct message *message)
{
    struct sum *const sum = state;
    ck_assert_uint_eq(message->length, bytes_list_length(message->parts));
    sum->bytes += message->length;
    sum->messages++;
    call_receive(call);
}

static void sum_half_close(struct call *call, void *state)
{
    const struct sum *const sum = state;
    atomic_fetch_add(&toys.half_closed, 1);
    reply_number(call, sum->bytes);
}

static void early_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    reply_number(call, message->length);
}

static const struct method sum = {.path = "/toy.Toys/Sum",
                                  .kind = METHOD_CLIENT_STREAM,
                                  .state_bytes = sizeof(struct sum),
                                  .on_message = sum_message,
                                  .on_half_close = sum_half_close,
                                  .on_free = toy_free};
static const struct method early = {.path = "/toy.Toys/Early",
                                    .kind = METHOD_CLIENT_STREAM,
                                    .on_message = early_message,
                                    .on_half_close = sum_half_close,
                                    .on_free = toy_free};

/* ---- COUNT: the request is how many messages of how many bytes */

struct count_request {
    uint32_t messages;
    uint32_t bytes;
};

struct count {
    struct count_request asked;
    uint32_t done;
};

static void count_next(struct call *call, void *state)
{
    struct count *const count = state;
    if (count->done == count->asked.messages) {
        call_finish(call);
        return;
    }
    count->done++;
    grpc_slice slices[2] = {slice_of_bytes(&count->done, sizeof(count->done)),
                            grpc_slice_malloc(count->asked.bytes - sizeof(count->done))};
    memset(GRPC_SLICE_START_PTR(slices[1]), 'x', GRPC_SLICE_LENGTH(slices[1]));
    call_send(call, slices, 2);
}

static void count_message(struct call *call, void *state, const struct message *message)
{
    struct count *const count = state;
    ck_assert_uint_eq(message->length, sizeof(count->asked));
    bytes_list_copy(message->parts, (uint8_t *)&count->asked);
    count_next(call, state);
}

static void count_sent(struct call *call, void *state)
{
    atomic_fetch_add(&toys.sent, 1);
    count_next(call, state);
}

static const struct method count = {.path = "/toy.Toys/Count",
                                    .kind = METHOD_SERVER_STREAM,
                                    .state_bytes = sizeof(struct count),
                                    .on_message = count_message,
                                    .on_sent = count_sent,
                                    .on_free = toy_free};

/* ---- CHAT: each message comes back at once */

static void chat_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct bytes flat;
    if (!call_message_flat(call, message, &flat))
        return;
    grpc_slice slice = slice_of_bytes(flat.data, flat.length);
    call_send(call, &slice, 1);
}

static void chat_sent(struct call *call, void *state)
{
    (void)state;
    call_receive(call);
}

static void chat_half_close(struct call *call, void *state)
{
    (void)state;
    call_finish(call);
}

static const struct method chat = {.path = "/toy.Toys/Chat",
                                   .kind = METHOD_BIDI,
                                   .on_message = chat_message,
                                   .on_half_close = chat_half_close,
                                   .on_sent = chat_sent,
                                   .on_free = toy_free};

/* ---- PARK: parks until it is woken or cancelled; the request says whether a wake comes first */

static void park_resumed(struct call *call, void *state)
{
    (void)state;
    atomic_fetch_add(&toys.resumed, 1);
    if (call_cancelled(call))
        atomic_fetch_add(&toys.resumed_cancelled, 1);
    reply_number(call, 1);
}

static void park_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    lock_acquire(&toys.lock);
    ck_assert_uint_lt(toys.parked_count, PARKED_MAX);
    call_ref(call);
    toys.parked[toys.parked_count++] = call;
    lock_release(&toys.lock);
    call_park(call, park_resumed);
}

static void woken_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    ck_assert(!call_wake(call)); /* not parked yet: it is remembered */
    call_park(call, park_resumed);
}

static const struct method park = {.path = "/toy.Toys/Park",
                                   .kind = METHOD_UNARY,
                                   .on_message = park_message,
                                   .on_free = toy_free};
static const struct method woken = {.path = "/toy.Toys/Woken",
                                    .kind = METHOD_UNARY,
                                    .on_message = woken_message,
                                    .on_free = toy_free};

/* Wakes all that have parked and lets go of them; how many were woken by this. */
static int wake_all(void)
{
    struct call *calls[PARKED_MAX];
    lock_acquire(&toys.lock);
    const size_t count_now = toys.parked_count;
    memcpy(calls, toys.parked, count_now * sizeof(calls[0]));
    toys.parked_count = 0;
    lock_release(&toys.lock);
    int woken_now = 0;
    for (size_t i = 0; i < count_now; i++) {
        woken_now += call_wake(calls[i]) ? 1 : 0;
        call_unref(calls[i]);
    }
    return woken_now;
}

/* ---- HAND: gives the turn away, as a write does that waits for its commit */

static void hand_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    lock_acquire(&toys.lock);
    ck_assert_uint_lt(toys.handed_count, PARKED_MAX);
    toys.handed[toys.handed_count++] = call;
    lock_release(&toys.lock);
}

static void hand_resumed(struct call *call, void *state)
{
    (void)state;
    reply_number(call, 2);
}

static const struct method hand = {.path = "/toy.Toys/Hand",
                                   .kind = METHOD_UNARY,
                                   .on_message = hand_message,
                                   .on_free = toy_free};

static void resume_all(void)
{
    lock_acquire(&toys.lock);
    const size_t count_now = toys.handed_count;
    struct call *calls[PARKED_MAX];
    memcpy(calls, toys.handed, count_now * sizeof(calls[0]));
    toys.handed_count = 0;
    lock_release(&toys.lock);
    for (size_t i = 0; i < count_now; i++)
        call_resume(calls[i], hand_resumed);
}

/* ---- HOLD: keeps its message until the gate opens */

static void hold_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    lock_acquire(&toys.lock);
    toys.held++;
    while (!toys.gate_open)
        condition_wait(&toys.changed, &toys.lock);
    toys.held--;
    lock_release(&toys.lock);
    reply_number(call, message->length);
}

static const struct method hold = {.path = "/toy.Toys/Hold",
                                   .kind = METHOD_UNARY,
                                   .on_message = hold_message,
                                   .on_free = toy_free};

static void open_gate(void)
{
    lock_acquire(&toys.lock);
    toys.gate_open = true;
    condition_broadcast(&toys.changed);
    lock_release(&toys.lock);
}

/* ---- FAIL, TWICE, TOOL */

static void fail_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct status status = {0};
    status_fail(&status, STATUS_FAILED_PRECONDITION, "nothing goes, \xc3\xa9");
    call_fail_with_details(call, &status, bytes_of("\x08\x09\x00", 3));
}

/* Nobody wakes it, so that only its own thread touches the call. */
static void twice_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    call_park(call, park_resumed);
    reply_number(call, 1);
}

static void tool_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    const struct bytes name = call_tool_name(call);
    ck_assert(strncmp(call_peer(call), "ipv4:127.0.0.1:", 15) == 0);
    grpc_slice slice = slice_of_bytes(name.data, name.length);
    call_reply(call, &slice, 1);
}

static const struct method fail = {.path = "/toy.Toys/Fail",
                                   .kind = METHOD_UNARY,
                                   .on_message = fail_message};
static const struct method twice = {.path = "/toy.Toys/Twice",
                                    .kind = METHOD_UNARY,
                                    .on_message = twice_message};
static const struct method tool = {.path = "/toy.Toys/Tool",
                                   .kind = METHOD_UNARY,
                                   .on_message = tool_message};

enum { ECHO, HEAVY, SUM, EARLY, COUNT, CHAT, PARK, WOKEN, HAND, HOLD, FAIL, TWICE, TOOL, OTHER };
static const struct method *const methods[] = {&echo,  &heavy, &sum,  &early, &count, &chat, &park,
                                               &woken, &hand,  &hold, &fail,  &twice, &tool};

/* ---- fixtures */

static void start_with(const struct front_rig_limits *limits)
{
    ASSERT(ARRAY_LENGTH(methods) == OTHER);
    memset(&toys, 0, sizeof(toys));
    lock_init(&toys.lock, LOCK_RANK_LEAF);
    condition_init(&toys.changed);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), limits);
}

static void start_server(void)
{
    start_with(NULL);
}

static void stop_server(void)
{
    front_rig_stop(&rig, 10000);
    condition_destroy(&toys.changed);
    lock_destroy(&toys.lock);
}

static uint64_t ended_with(size_t series, enum status_code code)
{
    return rpc_metrics_count(rig.server.rpc_metrics, series, code);
}

static grpc_status_code ask(const char *path, const void *data, size_t length, char *text)
{
    return rpc_unary(&rig.client, path, bytes_of(data, length), NULL, NULL, text);
}

static uint64_t take_number(struct rpc *rpc)
{
    size_t length;
    uint64_t number = 0;
    uint8_t *const received = rpc_receive(rpc, &length);
    ck_assert_ptr_nonnull(received);
    ck_assert_uint_eq(length, sizeof(number));
    memcpy(&number, received, sizeof(number));
    free(received);
    return number;
}

static void begin_sent(struct rpc *rpc, const char *path, const void *data, size_t length)
{
    rpc_begin(rpc, &rig.client, path);
    ck_assert(rpc_send(rpc, bytes_of(data, length)));
}

/* ---- what goes well */

static void check_echo(const char *path, size_t length)
{
    uint8_t *const data = malloc(length + 1);
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)(i * 31 + i / 251);
    uint8_t *response = NULL;
    size_t response_length = 0;
    ck_assert_int_eq(
        rpc_unary(&rig.client, path, bytes_of(data, length), &response, &response_length, NULL),
        GRPC_STATUS_OK);
    ck_assert_uint_eq(response_length, length);
    ck_assert_int_eq(memcmp(response, data, length), 0);
    free(response);
    free(data);
}

START_TEST(unary_calls_come_back_whole_from_the_poller_and_from_a_worker)
{
    static const size_t lengths[] = {0, 1, 100, 65536, 65537, 1 << 20, (16 << 20) - 16};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        check_echo("/toy.Toys/Echo", lengths[i]);
        check_echo("/toy.Toys/Heavy", lengths[i]);
    }
    ck_assert(wait_until(freed_reached, ARRAY_LENGTH(lengths)));
    front_rig_wait_live(&rig, 0);
    ck_assert_uint_eq(ended_with(ECHO, STATUS_OK), ARRAY_LENGTH(lengths));
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_OK), ARRAY_LENGTH(lengths));
}
END_TEST

START_TEST(client_stream_gets_every_message_and_the_half_close)
{
    static uint8_t block[100000];
    for (int messages = 0; messages <= 40; messages += 20) {
        struct rpc rpc;
        rpc_begin(&rpc, &rig.client, sum.path);
        for (int i = 0; i < messages; i++)
            ck_assert(rpc_send(&rpc, bytes_of(block, sizeof(block))));
        ck_assert(rpc_half_close(&rpc));
        ck_assert_uint_eq(take_number(&rpc), (uint64_t)messages * sizeof(block));
        ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    }
    ck_assert_int_eq(atomic_load(&toys.half_closed), 3);
}
END_TEST

START_TEST(early_answer_ends_a_client_stream_that_still_sends)
{
    static uint8_t block[50000];
    struct rpc rpc;
    begin_sent(&rpc, early.path, block, sizeof(block));
    ck_assert_uint_eq(take_number(&rpc), sizeof(block));
    for (int i = 0; i < 100 && rpc_send(&rpc, bytes_of(block, sizeof(block))); i++)
        continue;
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    check_echo("/toy.Toys/Echo", 1000); /* on the same connection, whose window has come back */
}
END_TEST

START_TEST(server_stream_sends_all_messages_in_order_and_then_ok)
{
    const struct count_request asked = {.messages = 50, .bytes = 100000};
    struct rpc rpc;
    begin_sent(&rpc, count.path, &asked, sizeof(asked));
    for (uint32_t i = 1; i <= asked.messages; i++) {
        size_t length;
        uint32_t number;
        uint8_t *const received = rpc_receive(&rpc, &length);
        ck_assert_uint_eq(length, asked.bytes);
        memcpy(&number, received, sizeof(number));
        ck_assert_uint_eq(number, i);
        free(received);
    }
    size_t length;
    ck_assert_ptr_null(rpc_receive(&rpc, &length));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(server_stream_may_end_without_a_message)
{
    const struct count_request asked = {.messages = 0, .bytes = 4};
    struct rpc rpc;
    size_t length;
    begin_sent(&rpc, count.path, &asked, sizeof(asked));
    ck_assert_ptr_null(rpc_receive(&rpc, &length));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(bidi_stream_answers_each_message_before_the_next)
{
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, chat.path);
    for (int i = 0; i < 20; i++) {
        char text[32];
        const int length = snprintf(text, sizeof(text), "message %d", i);
        size_t received_length;
        ck_assert(rpc_send(&rpc, bytes_of(text, (size_t)length)));
        uint8_t *const received = rpc_receive(&rpc, &received_length);
        ck_assert_uint_eq(received_length, (size_t)length);
        ck_assert_mem_eq(received, text, received_length);
        free(received);
    }
    ck_assert(rpc_half_close(&rpc));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(handed_over_turn_goes_on_when_it_is_resumed)
{
    struct rpc rpc;
    begin_sent(&rpc, hand.path, "x", 1);
    ck_assert(wait_until(handed_reached, 1));
    ck_assert(!rpc_wait_ended(&rpc, 50));
    resume_all();
    ck_assert_uint_eq(take_number(&rpc), 2);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
}
END_TEST

START_TEST(parked_call_goes_on_when_it_is_woken)
{
    struct rpc rpc;
    begin_sent(&rpc, park.path, "x", 1);
    ck_assert(wait_until(parked_reached, 1));
    ck_assert(!rpc_wait_ended(&rpc, 50));
    ck_assert_int_eq(wake_all(), 1);
    ck_assert_uint_eq(take_number(&rpc), 1);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    ck_assert_int_eq(atomic_load(&toys.resumed_cancelled), 0);
}
END_TEST

START_TEST(wake_before_the_park_is_remembered)
{
    ck_assert_int_eq(ask(woken.path, "x", 1, NULL), GRPC_STATUS_OK);
    ck_assert_int_eq(atomic_load(&toys.resumed), 1);
}
END_TEST

/* ---- what is refused */

START_TEST(unknown_method_is_unimplemented_and_named)
{
    char text[RPC_TEXT_BYTES_MAX];
    ck_assert_int_eq(ask("/toy.Toys/Nothing", "x", 1, text), GRPC_STATUS_UNIMPLEMENTED);
    ck_assert_ptr_nonnull(strstr(text, "/toy.Toys/Nothing"));
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(ask("/no.such.Service/Method", "", 0, text), GRPC_STATUS_UNIMPLEMENTED);
    front_rig_wait_live(&rig, 0);
    ck_assert_uint_eq(ended_with(OTHER, STATUS_UNIMPLEMENTED), 51);
}
END_TEST

START_TEST(unary_call_without_a_message_is_an_invalid_argument)
{
    static const struct method *const unary[] = {&echo, &heavy, &count};
    for (size_t i = 0; i < ARRAY_LENGTH(unary); i++) {
        struct rpc rpc;
        rpc_begin(&rpc, &rig.client, unary[i]->path);
        ck_assert(rpc_half_close(&rpc));
        ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(rpc.text, "no request message"));
    }
}
END_TEST

START_TEST(too_large_message_is_resource_exhausted_and_the_connection_lives)
{
    const size_t length = (16 << 20) + 1;
    uint8_t *const data = calloc(length, 1);
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, heavy.path);
    rpc_send(&rpc, bytes_of(data, length));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_RESOURCE_EXHAUSTED);

    /* Also as the second message of a stream. */
    rpc_begin(&rpc, &rig.client, sum.path);
    ck_assert(rpc_send(&rpc, bytes_of(data, 10)));
    rpc_send(&rpc, bytes_of(data, length));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_RESOURCE_EXHAUSTED);
    free(data);

    check_echo("/toy.Toys/Echo", 100);
    ck_assert(wait_until(freed_reached, 2));
    front_rig_wait_live(&rig, 0);
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_RESOURCE_EXHAUSTED), 1);
    ck_assert_uint_eq(ended_with(SUM, STATUS_RESOURCE_EXHAUSTED), 1);
}
END_TEST

START_TEST(failure_carries_its_code_text_and_details)
{
    struct rpc rpc;
    begin_sent(&rpc, fail.path, "x", 1);
    ck_assert(rpc_wait_ended(&rpc, 10000));
    const struct bytes details = rpc_trailer(&rpc, "grpc-status-details-bin");
    ck_assert_uint_eq(details.length, 3);
    ck_assert_mem_eq(details.data, "\x08\x09\x00", 3);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_FAILED_PRECONDITION);
    ck_assert_str_eq(rpc.text, "nothing goes, \xc3\xa9");
}
END_TEST

START_TEST(calls_over_the_limit_are_refused_with_numbers_and_served_later)
{
    stop_server();
    start_with(&(struct front_rig_limits){.max_calls = 3});
    struct rpc rpcs[3];
    for (size_t i = 0; i < ARRAY_LENGTH(rpcs); i++)
        begin_sent(&rpcs[i], park.path, "x", 1);
    ck_assert(wait_until(parked_reached, 3));

    char text[RPC_TEXT_BYTES_MAX];
    ck_assert_int_eq(ask(echo.path, "x", 1, text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(text, "3 calls are in progress, which is the most"));
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_REFUSED), 1);

    ck_assert_int_eq(wake_all(), 3);
    for (size_t i = 0; i < ARRAY_LENGTH(rpcs); i++)
        ck_assert_int_eq(rpc_end(&rpcs[i]), GRPC_STATUS_OK);
    front_rig_wait_live(&rig, 0);
    ck_assert_int_eq(ask(echo.path, "x", 1, text), GRPC_STATUS_OK);
}
END_TEST

START_TEST(tool_name_is_read_from_the_metadata_and_damaged_metadata_ignored)
{
    static const struct {
        const char *key, *value, *name;
        size_t length;
    } cases[] = {
        {"build.bazel.remote.execution.v2.requestmetadata-bin",
         "\x0a\x0b\x0a\x05\x62\x61zel\x12\x02\x37.\x12\x01x", "bazel", 16},
        {"google.devtools.remoteexecution.v1test.requestmetadata-bin", "\x0a\x07\x0a\x05pants",
         "pants", 9},
        {"build.bazel.remote.execution.v2.requestmetadata-bin", "\x0a\x64zz", "", 4},
        {"build.bazel.remote.execution.v2.requestmetadata-bin", "\xff\xff\xff", "", 3},
        {"x-other", "bazel", "", 5},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        grpc_metadata metadata = {
            .key = grpc_slice_from_copied_string(cases[i].key),
            .value = grpc_slice_from_copied_buffer(cases[i].value, cases[i].length)};
        struct rpc rpc;
        size_t length;
        rpc_begin_with(&rpc, &rig.client, tool.path, 0, &metadata, 1);
        ck_assert(rpc_send(&rpc, bytes_of("x", 1)));
        uint8_t *const received = rpc_receive(&rpc, &length);
        ck_assert_ptr_nonnull(received);
        ck_assert_uint_eq(length, strlen(cases[i].name));
        ck_assert_int_eq(memcmp(received, cases[i].name, length), 0);
        free(received);
        ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
        grpc_slice_unref(metadata.key);
        grpc_slice_unref(metadata.value);
    }
}
END_TEST

START_TEST(turn_that_is_ended_twice_aborts)
{
    ask(twice.path, "x", 1, NULL);
    usleep(1000000);
}
END_TEST

/* ---- cancelled in each state */

static void cancel_and_see_it_gone(struct rpc *rpc, int freed)
{
    rpc_cancel(rpc);
    ck_assert_int_eq(rpc_end(rpc), GRPC_STATUS_CANCELLED);
    ck_assert(wait_until(freed_reached, freed));
    front_rig_wait_live(&rig, 0);
}

START_TEST(cancelled_while_it_waits_for_memory)
{
    stop_server();
    start_with(&(struct front_rig_limits){.request_memory_bytes = 8192, .max_calls = 1000});
    /* A message that is held fills the half of first messages. */
    static uint8_t block[100000];
    struct rpc holder;
    begin_sent(&holder, hold.path, block, sizeof(block));
    ck_assert(wait_until(held_reached, 1));

    struct rpc waiting[2];
    for (size_t i = 0; i < ARRAY_LENGTH(waiting); i++)
        begin_sent(&waiting[i], heavy.path, "x", 1);
    front_rig_wait_live(&rig, 3);
    while (metrics_get(&rig.metrics, METRIC_BUDGET_WAITING) < 2)
        usleep(500);
    rpc_cancel(&waiting[0]);
    ck_assert_int_eq(rpc_end(&waiting[0]), GRPC_STATUS_CANCELLED);
    front_rig_wait_live(&rig, 2);
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_CANCELLED), 1);
    ck_assert_int_eq(atomic_load(&toys.freed), 1); /* without its handler ever having run */

    /* The other one is served once the memory is there. */
    ck_assert(!rpc_wait_ended(&waiting[1], 50));
    open_gate();
    ck_assert_int_eq(rpc_end(&waiting[1]), GRPC_STATUS_OK);
    ck_assert_uint_eq(take_number(&holder), sizeof(block));
    ck_assert_int_eq(rpc_end(&holder), GRPC_STATUS_OK);
}
END_TEST

START_TEST(cancelled_while_it_receives)
{
    struct rpc rpc;
    begin_sent(&rpc, sum.path, "abc", 3);
    front_rig_wait_live(&rig, 1);
    cancel_and_see_it_gone(&rpc, 1);

    rpc_begin(&rpc, &rig.client, heavy.path); /* before its first message */
    front_rig_wait_live(&rig, 1);
    cancel_and_see_it_gone(&rpc, 2);
    ck_assert_int_eq(atomic_load(&toys.half_closed), 0);
    ck_assert_uint_eq(ended_with(SUM, STATUS_CANCELLED), 1);
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_CANCELLED), 1);
}
END_TEST

START_TEST(cancelled_while_it_waits_for_a_worker_is_not_handled_at_all)
{
    struct rpc holders[FRONT_RIG_WORKERS];
    for (size_t i = 0; i < ARRAY_LENGTH(holders); i++)
        begin_sent(&holders[i], hold.path, "x", 1);
    ck_assert(wait_until(held_reached, FRONT_RIG_WORKERS));
    struct rpc rpc;
    begin_sent(&rpc, heavy.path, "x", 1);
    front_rig_wait_live(&rig, FRONT_RIG_WORKERS + 1);
    usleep(50000); /* its message is there */
    rpc_cancel(&rpc);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_CANCELLED);
    usleep(50000); /* the server has seen that */
    open_gate();
    for (size_t i = 0; i < ARRAY_LENGTH(holders); i++)
        ck_assert_int_eq(rpc_end(&holders[i]), GRPC_STATUS_OK);
    front_rig_wait_live(&rig, 0);
    ck_assert_int_eq(atomic_load(&toys.echoed), 0);
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_CANCELLED), 1);
}
END_TEST

START_TEST(cancelled_while_it_is_handled)
{
    struct rpc rpc;
    begin_sent(&rpc, hand.path, "x", 1);
    ck_assert(wait_until(handed_reached, 1));
    rpc_cancel(&rpc);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_CANCELLED);
    usleep(20000);
    /* Its turn is with somebody else: nothing is released before that one is done. */
    ck_assert_int_eq(atomic_load(&toys.freed), 0);
    ck_assert_uint_eq(front_live(rig.front), 1);
    resume_all();
    ck_assert(wait_until(freed_reached, 1));
    front_rig_wait_live(&rig, 0);
    ck_assert_uint_eq(ended_with(HAND, STATUS_CANCELLED), 1);
}
END_TEST

START_TEST(cancelled_while_it_sends_to_a_client_that_does_not_read)
{
    const struct count_request asked = {.messages = 100000, .bytes = 10000};
    struct rpc rpc;
    begin_sent(&rpc, count.path, &asked, sizeof(asked));
    ck_assert(wait_until(sent_reached, 1));
    int before;
    do { /* until the window is full */
        before = atomic_load(&toys.sent);
        usleep(100000);
    } while (atomic_load(&toys.sent) > before);
    ck_assert_int_lt(before, 100000);
    cancel_and_see_it_gone(&rpc, 1);
    ck_assert_int_eq(atomic_load(&toys.sent), before);
    ck_assert_uint_eq(ended_with(COUNT, STATUS_CANCELLED), 1);
}
END_TEST

START_TEST(cancelled_while_it_is_parked)
{
    struct rpc rpc;
    begin_sent(&rpc, park.path, "x", 1);
    ck_assert(wait_until(parked_reached, 1));
    cancel_and_see_it_gone(&rpc, 1);
    ck_assert_int_eq(atomic_load(&toys.resumed_cancelled), 1);
    ck_assert_int_eq(wake_all(), 0); /* the reference outlives the call */
    ck_assert_uint_eq(ended_with(PARK, STATUS_CANCELLED), 1);
}
END_TEST

START_TEST(cancelled_while_its_answer_is_on_the_way)
{
    const size_t length = 12 << 20;
    uint8_t *const data = calloc(length, 1);
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, heavy.path);
    ck_assert(rpc_send(&rpc, bytes_of(data, length)));
    free(data);
    usleep(100000);
    cancel_and_see_it_gone(&rpc, 1);
}
END_TEST

START_TEST(deadline_ends_a_parked_call)
{
    struct rpc rpc;
    rpc_begin_with(&rpc, &rig.client, park.path, 200, NULL, 0);
    ck_assert(rpc_send(&rpc, bytes_of("x", 1)));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_DEADLINE_EXCEEDED);
    ck_assert(wait_until(freed_reached, 1));
    front_rig_wait_live(&rig, 0);
    /* The client's clock may run out before ours, which then sees a cancellation. */
    ck_assert_uint_eq(
        ended_with(PARK, STATUS_DEADLINE_EXCEEDED) + ended_with(PARK, STATUS_CANCELLED), 1);
    wake_all();
}
END_TEST

START_TEST(lost_connection_ends_calls_in_every_state)
{
    const struct count_request asked = {.messages = 100000, .bytes = 10000};
    struct rpc rpcs[4];
    begin_sent(&rpcs[0], sum.path, "x", 1);
    begin_sent(&rpcs[1], count.path, &asked, sizeof(asked));
    begin_sent(&rpcs[2], park.path, "x", 1);
    begin_sent(&rpcs[3], hand.path, "x", 1);
    ck_assert(wait_until(parked_reached, 1));
    ck_assert(wait_until(handed_reached, 1));
    ck_assert(wait_until(sent_reached, 1));
    resume_all();
    grpc_channel *const lost = rig.client.channel;
    grpc_channel_destroy(lost); /* with the calls in flight */
    for (size_t i = 0; i < ARRAY_LENGTH(rpcs); i++) {
        rpc_cancel(&rpcs[i]);
        rpc_end(&rpcs[i]);
    }
    ck_assert(wait_until(freed_reached, 4));
    front_rig_wait_live(&rig, 0);
    wake_all();
    struct rpc_client again;
    rpc_client_open(&again, front_port(rig.front));
    rig.client.channel = again.channel;
    grpc_completion_queue_shutdown(rig.client.cq);
    while (
        grpc_completion_queue_next(rig.client.cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
        GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(rig.client.cq);
    rig.client.cq = again.cq;
    check_echo("/toy.Toys/Echo", 10);
}
END_TEST

/* ---- memory */

START_TEST(streams_go_on_while_first_messages_have_used_up_their_half)
{
    stop_server();
    start_with(&(struct front_rig_limits){.request_memory_bytes = 8192, .max_calls = 1000});
    struct rpc leader;
    begin_sent(&leader, sum.path, "x", 1);
    while (ended_with(SUM, STATUS_OK) == 0 && metrics_get(&rig.metrics, METRIC_BUDGET_USED) == 0)
        usleep(500);
    usleep(20000); /* its first message is handled */

    static uint8_t block[100000];
    struct rpc holder;
    begin_sent(&holder, hold.path, block, sizeof(block));
    ck_assert(wait_until(held_reached, 1));
    struct rpc waiting;
    begin_sent(&waiting, echo.path, "x", 1);
    ck_assert(!rpc_wait_ended(&waiting, 50));

    for (int i = 0; i < 20; i++)
        ck_assert(rpc_send(&leader, bytes_of(block, sizeof(block))));
    ck_assert(rpc_half_close(&leader));
    ck_assert_uint_eq(take_number(&leader), 20 * sizeof(block) + 1);
    ck_assert_int_eq(rpc_end(&leader), GRPC_STATUS_OK);

    ck_assert(!rpc_wait_ended(&waiting, 10));
    open_gate();
    ck_assert_int_eq(rpc_end(&waiting), GRPC_STATUS_OK);
    ck_assert_int_eq(rpc_end(&holder), GRPC_STATUS_OK);
}
END_TEST

/* ---- a client that speaks HTTP/2 by hand */

static int raw_connect(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)front_port(rig.front))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    return fd;
}

static uint8_t *frame_put(uint8_t *to,
                          uint8_t type,
                          uint8_t flags,
                          uint32_t stream,
                          const void *payload,
                          size_t length)
{
    const uint8_t head[9] = {(uint8_t)(length >> 16),
                             (uint8_t)(length >> 8),
                             (uint8_t)length,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};
    memcpy(to, head, sizeof(head));
    if (length > 0)
        memcpy(to + sizeof(head), payload, length);
    return to + sizeof(head) + length;
}

/* Header fields as literals without indexing, names spelled out: HPACK needs no tables for that. */
static uint8_t *header_put(uint8_t *to, const char *name, const char *value)
{
    *to++ = 0;
    *to++ = (uint8_t)strlen(name);
    memcpy(to, name, strlen(name));
    to += strlen(name);
    *to++ = (uint8_t)strlen(value);
    memcpy(to, value, strlen(value));
    return to + strlen(value);
}

/*
 * Opens a stream to path and sends so much of a message that is said to have 100 bytes; flags of
 * the last frame.
 */
static int raw_call(const char *path, size_t sent, uint8_t flags)
{
    enum { DATA = 0, HEADERS = 1, SETTINGS = 4, END_HEADERS = 4 };
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    uint8_t headers[512];
    uint8_t out[2048];
    const uint8_t message[105] = {0, 0, 0, 0, 100};
    uint8_t *end = header_put(headers, ":method", "POST");
    end = header_put(end, ":scheme", "http");
    end = header_put(end, ":path", path);
    end = header_put(end, ":authority", "localhost");
    end = header_put(end, "te", "trailers");
    end = header_put(end, "content-type", "application/grpc");
    memcpy(out, preface, sizeof(preface) - 1);
    uint8_t *at = out + sizeof(preface) - 1;
    at = frame_put(at, SETTINGS, 0, 0, NULL, 0);
    at = frame_put(at, HEADERS, END_HEADERS, 1, headers, (size_t)(end - headers));
    at = frame_put(at, DATA, flags, 1, message, sent);
    const int fd = raw_connect();
    ck_assert_int_eq(write(fd, out, (size_t)(at - out)), at - out);
    return fd;
}

enum { END_STREAM = 1 };

static bool ended_reached(int series_and_code)
{
    return ended_with((size_t)series_and_code / 100, (enum status_code)(series_and_code % 100)) >=
           1;
}

START_TEST(message_that_is_cut_short_by_the_end_of_its_stream_is_not_taken_for_one)
{
    const int fd = raw_call(heavy.path, 50, END_STREAM);
    ck_assert(wait_until(ended_reached, HEAVY * 100 + STATUS_INVALID_ARGUMENT));
    ck_assert(wait_until(freed_reached, 1));
    close(fd);
    front_rig_wait_live(&rig, 0);
    ck_assert_uint_eq(ended_with(HEAVY, STATUS_OK), 0);
}
END_TEST

START_TEST(message_that_is_cut_short_by_the_end_of_its_connection_is_a_cancellation)
{
    const int fd = raw_call(sum.path, 50, 0);
    front_rig_wait_live(&rig, 1);
    close(fd);
    ck_assert(wait_until(ended_reached, SUM * 100 + STATUS_CANCELLED));
    ck_assert(wait_until(freed_reached, 1));
    front_rig_wait_live(&rig, 0);
    ck_assert_int_eq(atomic_load(&toys.half_closed), 0);
}
END_TEST

START_TEST(junk_on_the_port_hurts_nobody)
{
    static const char *const junk[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff"};
    for (size_t i = 0; i < ARRAY_LENGTH(junk); i++) {
        const int fd = raw_connect();
        ck_assert_int_eq(write(fd, junk[i], strlen(junk[i])), (ssize_t)strlen(junk[i]));
        close(fd);
    }
    check_echo("/toy.Toys/Echo", 100);
}
END_TEST

/* ---- many at once */

struct stormer {
    struct thread thread;
    unsigned int seed;
    int rounds;
    _Atomic bool *done;
};

static void storm(void *argument)
{
    struct stormer *const stormer = argument;
    static const char *const paths[] = {"/toy.Toys/Echo",  "/toy.Toys/Heavy", "/toy.Toys/Sum",
                                        "/toy.Toys/Early", "/toy.Toys/Count", "/toy.Toys/Chat",
                                        "/toy.Toys/Park",  "/toy.Toys/Woken", "/toy.Toys/Hand",
                                        "/toy.Toys/Fail",  "/toy.Toys/None"};
    struct rpc_client client;
    rpc_client_open(&client, front_port(rig.front));
    for (int i = 0; i < stormer->rounds; i++) {
        struct rpc rpc;
        const size_t which = (size_t)rand_r(&stormer->seed) % ARRAY_LENGTH(paths);
        const struct count_request asked = {.messages = 20, .bytes = 50000};
        rpc_begin_with(&rpc, &client, paths[which],
                       rand_r(&stormer->seed) % 4 == 0 ? 1 + rand_r(&stormer->seed) % 20 : 5000,
                       NULL, 0);
        const int steps = rand_r(&stormer->seed) % 4;
        for (int step = 0; step < steps; step++)
            if (!rpc_send(&rpc, bytes_of(&asked, sizeof(asked))))
                break;
        if (rand_r(&stormer->seed) % 2 == 0)
            usleep((useconds_t)(rand_r(&stormer->seed) % 300));
        rpc_cancel(&rpc);
        rpc_end(&rpc);
        if (i % 100 == 99) {
            rpc_client_close(&client);
            rpc_client_open(&client, front_port(rig.front));
        }
    }
    rpc_client_close(&client);
}

/* Wakes and resumes whatever there is, at any moment. */
static void stir(void *argument)
{
    _Atomic bool *const done = argument;
    while (!atomic_load(done)) {
        wake_all();
        resume_all();
        usleep(200);
    }
}

START_TEST(thousands_of_calls_cancelled_at_random_leave_nothing)
{
    enum { STORMERS = 3, ROUNDS = 500 };
    _Atomic bool done = false;
    struct stormer stormers[STORMERS] = {0};
    struct thread stirrer = {0};
    ck_assert(thread_start(&stirrer, "stir", 0, stir, &done, &unused));
    for (int i = 0; i < STORMERS; i++) {
        stormers[i].seed = (unsigned int)(i + 1) * 7919;
        stormers[i].rounds = ROUNDS;
        ck_assert(thread_start(&stormers[i].thread, "storm", 0, storm, &stormers[i], &unused));
    }
    for (int i = 0; i < STORMERS; i++)
        thread_join(&stormers[i].thread);
    front_rig_wait_live(&rig, 0);
    atomic_store(&done, true);
    thread_join(&stirrer);
    check_echo("/toy.Toys/Echo", 100);
}
END_TEST

START_TEST(wakes_and_cancellations_that_cross_resume_a_call_once)
{
    enum { ROUNDS = 300 };
    for (int i = 0; i < ROUNDS; i++) {
        struct rpc rpc;
        begin_sent(&rpc, park.path, "x", 1);
        ck_assert(wait_until(parked_reached, 1));
        if (i % 3 != 0)
            rpc_cancel(&rpc);
        wake_all();
        if (i % 3 == 0)
            rpc_cancel(&rpc);
        rpc_end(&rpc);
        ck_assert(wait_until(freed_reached, i + 1));
        ck_assert_int_eq(atomic_load(&toys.resumed), i + 1);
    }
}
END_TEST

/* ---- stopping */

START_TEST(drain_lets_calls_end_within_their_time_and_refuses_new_ones)
{
    struct rpc rpc;
    begin_sent(&rpc, hold.path, "x", 1);
    ck_assert(wait_until(held_reached, 1));
    struct thread opener = {0};
    ck_assert(thread_start(&opener, "open", 0, (void (*)(void *))(void (*)(void))open_gate, NULL,
                           &unused));
    front_drain(rig.front, 20 * NS_PER_S);
    thread_join(&opener);
    ck_assert_uint_eq(take_number(&rpc), 1);
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    ck_assert_int_eq(ask(echo.path, "x", 1, NULL), GRPC_STATUS_UNAVAILABLE);
    rpc_client_close(&rig.client);
    front_rig_dismantle(&rig);
}
END_TEST

START_TEST(drain_cancels_what_does_not_end_and_does_not_wait_for_idle_clients)
{
    const struct count_request asked = {.messages = 100000, .bytes = 10000};
    struct rpc rpcs[3];
    begin_sent(&rpcs[0], park.path, "x", 1);
    begin_sent(&rpcs[1], sum.path, "x", 1);
    begin_sent(&rpcs[2], count.path, &asked, sizeof(asked));
    ck_assert(wait_until(parked_reached, 1));
    ck_assert(wait_until(sent_reached, 1));
    front_rig_wait_live(&rig, 3);
    const int idle = raw_connect();
    const int64_t before_ns = clock_monotonic_ns(clock_real());
    front_drain(rig.front, 100 * (int64_t)NS_PER_MS);
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - before_ns, 5 * NS_PER_S);
    ck_assert_int_eq(atomic_load(&toys.resumed_cancelled), 1);
    ck_assert_int_eq(atomic_load(&toys.freed), 3);
    for (size_t i = 0; i < ARRAY_LENGTH(rpcs); i++) {
        const grpc_status_code code = rpc_end(&rpcs[i]);
        ck_assert(code == GRPC_STATUS_UNAVAILABLE || code == GRPC_STATUS_CANCELLED);
    }
    close(idle);
    wake_all();
    rpc_client_close(&rig.client);
    front_rig_dismantle(&rig);
}
END_TEST

START_TEST(taken_address_is_told_by_its_name_and_reason)
{
    char address[64];
    char *const listen[] = {address};
    snprintf(address, sizeof(address), "127.0.0.1:%d", front_port(rig.front));
    struct status status = {0};
    struct front *second = NULL;
    const struct front_config config = {.server = &rig.server,
                                        .metrics = &rig.metrics,
                                        .methods = methods,
                                        .methods_count = ARRAY_LENGTH(methods),
                                        .listen = listen,
                                        .listen_count = 1,
                                        .remembered_bytes_max = 256 * MIB,
                                        .grpc_memory_bytes = GIB,
                                        .max_calls = 10,
                                        .max_streams = 10,
                                        .keepalive_ns = NS_PER_S};
    ck_assert(!front_new(&config, &second, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, address));
    ck_assert_ptr_nonnull(strstr(status.message, "Address already in use"));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("call");
    TCase *const good = tcase_create("good");
    tcase_set_timeout(good, 120);
    tcase_add_checked_fixture(good, start_server, stop_server);
    tcase_add_test(good, unary_calls_come_back_whole_from_the_poller_and_from_a_worker);
    tcase_add_test(good, client_stream_gets_every_message_and_the_half_close);
    tcase_add_test(good, early_answer_ends_a_client_stream_that_still_sends);
    tcase_add_test(good, server_stream_sends_all_messages_in_order_and_then_ok);
    tcase_add_test(good, server_stream_may_end_without_a_message);
    tcase_add_test(good, bidi_stream_answers_each_message_before_the_next);
    tcase_add_test(good, handed_over_turn_goes_on_when_it_is_resumed);
    tcase_add_test(good, parked_call_goes_on_when_it_is_woken);
    tcase_add_test(good, wake_before_the_park_is_remembered);
    tcase_add_test(good, unknown_method_is_unimplemented_and_named);
    tcase_add_test(good, unary_call_without_a_message_is_an_invalid_argument);
    tcase_add_test(good, too_large_message_is_resource_exhausted_and_the_connection_lives);
    tcase_add_test(good, failure_carries_its_code_text_and_details);
    tcase_add_test(good, calls_over_the_limit_are_refused_with_numbers_and_served_later);
    tcase_add_test(good, tool_name_is_read_from_the_metadata_and_damaged_metadata_ignored);
    tcase_add_test(good, cancelled_while_it_waits_for_memory);
    tcase_add_test(good, cancelled_while_it_receives);
    tcase_add_test(good, cancelled_while_it_waits_for_a_worker_is_not_handled_at_all);
    tcase_add_test(good, cancelled_while_it_is_handled);
    tcase_add_test(good, cancelled_while_it_sends_to_a_client_that_does_not_read);
    tcase_add_test(good, cancelled_while_it_is_parked);
    tcase_add_test(good, cancelled_while_its_answer_is_on_the_way);
    tcase_add_test(good, deadline_ends_a_parked_call);
    tcase_add_test(good, lost_connection_ends_calls_in_every_state);
    tcase_add_test(good, streams_go_on_while_first_messages_have_used_up_their_half);
    tcase_add_test(good, message_that_is_cut_short_by_the_end_of_its_stream_is_not_taken_for_one);
    tcase_add_test(good, message_that_is_cut_short_by_the_end_of_its_connection_is_a_cancellation);
    tcase_add_test(good, junk_on_the_port_hurts_nobody);
    tcase_add_test(good, thousands_of_calls_cancelled_at_random_leave_nothing);
    tcase_add_test(good, wakes_and_cancellations_that_cross_resume_a_call_once);
    tcase_add_test(good, taken_address_is_told_by_its_name_and_reason);
    suite_add_tcase(suite, good);

    TCase *const stopping = tcase_create("stopping");
    tcase_set_timeout(stopping, 60);
    tcase_add_checked_fixture(stopping, start_server, NULL);
    tcase_add_test(stopping, drain_lets_calls_end_within_their_time_and_refuses_new_ones);
    tcase_add_test(stopping, drain_cancels_what_does_not_end_and_does_not_wait_for_idle_clients);
    tcase_add_test_raise_signal(stopping, turn_that_is_ended_twice_aborts, 6);
    suite_add_tcase(suite, stopping);
    return test_run(suite);
}
