/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that mean no good, or are just very slow, cost the others nothing that matters: what their calls hold while the server
 * waits for them is little, or they give way. Over gRPC, with methods of the test's own.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/front_rig.h"
#include "tests/support/test_run.h"

enum {
    SENT_BYTES = 8 << 20,
    REQUEST_BYTES = 12 << 20,
    REMEMBERED_BYTES = 12 << 20,
    MAX_CALLS = 32,
    MEMORY_BYTES = 32 << 20,       /* for two requests, or what two calls remember */
    GRPC_MEMORY_BYTES = 192 << 20, /* for 24 answers that nobody takes */
};

static struct front_rig rig;
static _Atomic int sends;
static _Atomic int freed;

/* Answers any request with a message that a client with an ordinary window must read to let pass. */
static void send_much(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    grpc_slice slice = grpc_slice_malloc(SENT_BYTES);
    memset(GRPC_SLICE_START_PTR(slice), 'x', SENT_BYTES);
    atomic_fetch_add(&sends, 1);
    call_send(call, &slice, 1);
}

static void after_much(struct call *call, void *state)
{
    (void)state;
    call_finish(call);
}

/* As a walk through a wide tree: much is remembered for the next page. */
static void send_and_remember(struct call *call, void *state, const struct message *message)
{
    ck_assert_ptr_nonnull(arena_take(call_arena(call), REMEMBERED_BYTES));
    send_much(call, state, message);
}

static void reply_much(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    uint8_t *const memory = arena_take(call_arena(call), 1 << 20);
    ck_assert_ptr_nonnull(memory);
    grpc_slice slice = grpc_slice_malloc(SENT_BYTES);
    memset(GRPC_SLICE_START_PTR(slice), 'x', SENT_BYTES);
    call_reply(call, &slice, 1);
}

static void count_freed(struct call *call, void *state)
{
    (void)call;
    (void)state;
    atomic_fetch_add(&freed, 1);
}

static void take_more(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    call_receive(call);
}

static void reply_nothing(struct call *call, void *state)
{
    (void)state;
    grpc_slice slice = grpc_empty_slice();
    call_reply(call, &slice, 1);
}

static void echo(struct call *call, void *state, const struct message *message)
{
    (void)message;
    reply_nothing(call, state);
}

static _Atomic int held;
static _Atomic bool released;

/* As a connection that never runs dry keeps it. */
static void hold_poller(struct call *call, void *state, const struct message *message)
{
    atomic_fetch_add(&held, 1);
    while (!atomic_load(&released))
        usleep(1000);
    echo(call, state, message);
}

static const struct method much = {.path = "/t/Much",
                                   .kind = METHOD_SERVER_STREAM,
                                   .on_message = send_much,
                                   .on_sent = after_much};
static const struct method walk = {.path = "/t/Walk",
                                   .kind = METHOD_SERVER_STREAM,
                                   .on_message = send_and_remember,
                                   .on_sent = after_much,
                                   .on_free = count_freed};
static const struct method much_at_once = {.path = "/t/MuchAtOnce",
                                           .kind = METHOD_UNARY,
                                           .on_message = reply_much,
                                           .on_free = count_freed};
static const struct method endless = {.path = "/t/Endless",
                                      .kind = METHOD_CLIENT_STREAM,
                                      .on_message = take_more,
                                      .on_half_close = reply_nothing};
static const struct method small = {.path = "/t/Small", .kind = METHOD_UNARY, .on_message = echo};
static const struct method hold = {.path = "/t/Hold",
                                   .kind = METHOD_UNARY,
                                   .on_poller = true,
                                   .on_message = hold_poller};
static const struct method *const methods[] = {&much,    &walk,  &much_at_once,
                                               &endless, &small, &hold};

static void start(void)
{
    static const struct front_rig_limits limits = {.max_calls = MAX_CALLS,
                                                   .request_memory_bytes = MEMORY_BYTES,
                                                   .grpc_memory_bytes = GRPC_MEMORY_BYTES};
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), &limits);
}

static void end(void)
{
    front_rig_stop(&rig, 0);
}

static bool comes_true(bool (*is_so)(void))
{
    for (int i = 0; i < 3000; i++) {
        if (is_so())
            return true;
        usleep(10000);
    }
    return false;
}

static int sends_wanted;

static bool as_many_were_sent_as_wanted(void)
{
    return atomic_load(&sends) == sends_wanted;
}

static bool some_were_cut_off(void)
{
    return metrics_get(&rig.metrics, METRIC_CALLS_CUT_OFF) > 0;
}

static bool one_was_sent(void)
{
    return atomic_load(&sends) == 1;
}

static bool no_request_is_held(void)
{
    return metrics_get(&rig.metrics, METRIC_BUDGET_USED) == 0;
}

static bool one_was_freed(void)
{
    return atomic_load(&freed) == 1;
}

/* Nine such calls, of one client, used the memory for requests up, and nobody was served any more. */
START_TEST(a_stream_whose_client_does_not_read_holds_no_request)
{
    struct rpc rpc;
    uint8_t *const request = calloc(1, REQUEST_BYTES);
    rpc_begin(&rpc, &rig.client, "/t/Much");
    rpc_start_send(&rpc, bytes_of(request, REQUEST_BYTES));
    ck_assert(comes_true(one_was_sent));
    ck_assert(comes_true(no_request_is_held));
    ck_assert_uint_eq(front_live(rig.front), 1);
    rpc_cancel(&rpc);
    rpc_end(&rpc);
    free(request);
}
END_TEST

START_TEST(an_answer_whose_client_does_not_read_holds_no_state_of_its_call)
{
    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, "/t/MuchAtOnce");
    ck_assert(rpc_send(&rpc, bytes_of("x", 1)));
    ck_assert(comes_true(one_was_freed));
    ck_assert_uint_eq(front_live(rig.front), 1);
    rpc_cancel(&rpc);
    rpc_end(&rpc);
    ck_assert_int_eq(atomic_load(&freed), 1);
}
END_TEST

/* Sixty walks through a wide tree held 1.4 GB, since nothing of what they had met was counted against anything but gRPC's own memory. */
START_TEST(a_call_that_remembers_much_gives_way_when_others_that_do_find_no_memory)
{
    struct rpc walks[3];
    for (int i = 0; i < 3; i++) {
        rpc_begin(&walks[i], &rig.client, "/t/Walk");
        ck_assert(rpc_send(&walks[i], bytes_of("x", 1)));
        sends_wanted = i + 1;
        ck_assert(comes_true(as_many_were_sent_as_wanted));
    }
    ck_assert(comes_true(one_was_freed)); /* the first, and no more than that */
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_CUT_OFF), 1);
    ck_assert_int_eq(rpc_end(&walks[0]), GRPC_STATUS_UNAVAILABLE);
    ck_assert_int_eq(atomic_load(&freed), 1);
    for (int i = 1; i < 3; i++) {
        rpc_cancel(&walks[i]);
        ck_assert_int_eq(rpc_end(&walks[i]), GRPC_STATUS_CANCELLED);
    }
}
END_TEST

START_TEST(answers_that_nobody_takes_hold_no_more_than_the_memory_for_them)
{
    enum { CALLS = GRPC_MEMORY_BYTES / SENT_BYTES + 4 };
    struct rpc calls[CALLS];
    int cut_off = 0;
    for (int i = 0; i < CALLS; i++) {
        rpc_begin(&calls[i], &rig.client, "/t/Much");
        ck_assert(rpc_send(&calls[i], bytes_of("x", 1)));
        sends_wanted = i + 1;
        ck_assert(comes_true(as_many_were_sent_as_wanted));
    }
    ck_assert(comes_true(some_were_cut_off));
    for (int i = 0; i < CALLS; i++) {
        rpc_cancel(&calls[i]);
        const grpc_status_code code = rpc_end(&calls[i]);
        cut_off += code == GRPC_STATUS_UNAVAILABLE;
        ck_assert(code == GRPC_STATUS_UNAVAILABLE || code == GRPC_STATUS_CANCELLED);
        ck_assert(i < CALLS / 2 || code == GRPC_STATUS_CANCELLED); /* who waited longest went */
    }
    ck_assert_int_le(cut_off, CALLS / 2);
}
END_TEST

/* Sixteen idle connections kept everybody else out, for as long as they liked. */
START_TEST(calls_that_wait_for_their_client_give_way_when_calls_are_used_up)
{
    static struct rpc idle[MAX_CALLS];
    struct rpc_client other;
    int cut_off = 0;
    for (int i = 0; i < MAX_CALLS; i++) {
        rpc_begin(&idle[i], &rig.client, "/t/Endless");
        ck_assert(rpc_send(&idle[i], bytes_of("x", 1)));
    }
    front_rig_wait_live(&rig, MAX_CALLS);
    rpc_client_open(&other, front_port(rig.front));
    ck_assert_int_eq(rpc_unary(&other, "/t/Small", bytes_of("x", 1), NULL, NULL, NULL),
                     GRPC_STATUS_RESOURCE_EXHAUSTED);
    front_make_room(rig.front, false);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_CUT_OFF), 0); /* no sooner than that */

    sleep(11);
    front_make_room(rig.front, false);
    grpc_status_code code = GRPC_STATUS_RESOURCE_EXHAUSTED;
    for (int i = 0; i < 100 && code != GRPC_STATUS_OK; i++) {
        usleep(10000);
        code = rpc_unary(&other, "/t/Small", bytes_of("x", 1), NULL, NULL, NULL);
    }
    ck_assert_int_eq(code, GRPC_STATUS_OK);
    for (int i = 0; i < MAX_CALLS; i++) {
        rpc_cancel(&idle[i]);
        cut_off += rpc_end(&idle[i]) == GRPC_STATUS_UNAVAILABLE;
    }
    ck_assert_int_gt(cut_off, 0);
    rpc_client_close(&other);
}
END_TEST

START_TEST(calls_that_wait_for_their_client_are_left_alone_while_there_is_room)
{
    struct rpc idle;
    rpc_begin(&idle, &rig.client, "/t/Endless");
    ck_assert(rpc_send(&idle, bytes_of("x", 1)));
    sleep(11);
    front_make_room(rig.front, false);
    ck_assert(rpc_send(&idle, bytes_of("x", 1)));
    ck_assert(rpc_half_close(&idle));
    ck_assert_int_eq(rpc_end(&idle), GRPC_STATUS_OK);
}
END_TEST

/* A connection by hand, of which nothing is read. */
static int connect_deaf(void)
{
    static const uint8_t preface[] =
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0"; /* no settings */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)front_port(rig.front))};
    const int little = 4096;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    ck_assert_int_gt(send(fd, preface, sizeof(preface), 0),
                     0); /* the NUL is the frame's last byte */
    return fd;
}

/* Calls of a method that nobody serves. */
static void call_deaf(int fd, int from, int to)
{
    static const uint8_t block[] = "\x83\x86"         /* POST, http */
                                   "\x04\x08/t/Never" /* :path */
                                   "\x01\x01x"        /* :authority */
                                   "\x0f\x10\x10"     /* content-type */
                                   "application/grpc"
                                   "\x00\x02te\x08trailers";
    enum { BLOCK_BYTES = sizeof(block) - 1 };
    for (int i = from; i < to; i++) {
        const uint32_t stream = (uint32_t)(2 * i + 1);
        uint8_t frame[9 + BLOCK_BYTES] = {0, 0, BLOCK_BYTES, 1, 5};
        for (int j = 0; j < 4; j++)
            frame[5 + j] = (uint8_t)(stream >> (24 - 8 * j));
        memcpy(frame + 9, block, BLOCK_BYTES);
        if (send(fd, frame, sizeof(frame), MSG_NOSIGNAL) != (ssize_t)sizeof(frame))
            return; /* it does not read either, by now */
    }
}

/* A flood of calls that were all refused kept everybody else out: each counted until its client had read that. */
START_TEST(calls_that_were_refused_take_no_place_from_others)
{
    enum { ROUNDS = 100, CALLS = 1000 };
    const int fd = connect_deaf();
    bool served_in_between = false;
    for (int round = 0; round < ROUNDS && !served_in_between; round++) {
        call_deaf(fd, round * CALLS, (round + 1) * CALLS);
        for (int i = 0; i < 5; i++) {
            const bool before = front_live(rig.front) > MAX_CALLS + 1;
            const grpc_status_code code =
                rpc_unary(&rig.client, "/t/Small", bytes_of("x", 1), NULL, NULL, NULL);
            ck_assert_int_eq(code, GRPC_STATUS_OK);
            served_in_between |= before && front_live(rig.front) > MAX_CALLS + 1;
        }
    }
    ck_assert(served_in_between);
    close(fd);
}
END_TEST

static bool all_pollers_are_held(void)
{
    return atomic_load(&held) == FRONT_RIG_POLLERS;
}

static void stand_in(void *argument)
{
    while (!atomic_load(&released)) {
        front_stand_in_step(argument);
        usleep(10000);
    }
}

/* A flood of calls that are opened and reset kept the only poller; nobody was served, and they piled up to gigabytes. */
START_TEST(a_poller_that_does_not_come_back_is_stood_in_for)
{
    struct rpc holding[FRONT_RIG_POLLERS];
    struct thread thread = {0};
    struct status status = {0};
    for (int i = 0; i < FRONT_RIG_POLLERS; i++) {
        rpc_begin(&holding[i], &rig.client, "/t/Hold");
        ck_assert(rpc_send(&holding[i], bytes_of("x", 1)));
    }
    ck_assert(comes_true(all_pollers_are_held));
    ck_assert(thread_start(&thread, "stand-in", 0, stand_in, rig.front, &status));
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(rpc_unary(&rig.client, "/t/Small", bytes_of("x", 1), NULL, NULL, NULL),
                         GRPC_STATUS_OK);
    atomic_store(&released, true);
    thread_join(&thread);
    for (int i = 0; i < FRONT_RIG_POLLERS; i++)
        ck_assert_int_eq(rpc_end(&holding[i]), GRPC_STATUS_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attack");
    TCase *tests = tcase_create("attack");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, start, end);
    tcase_add_test(tests, a_stream_whose_client_does_not_read_holds_no_request);
    tcase_add_test(tests, an_answer_whose_client_does_not_read_holds_no_state_of_its_call);
    tcase_add_test(tests, a_call_that_remembers_much_gives_way_when_others_that_do_find_no_memory);
    tcase_add_test(tests, answers_that_nobody_takes_hold_no_more_than_the_memory_for_them);
    tcase_add_test(tests, calls_that_wait_for_their_client_give_way_when_calls_are_used_up);
    tcase_add_test(tests, calls_that_wait_for_their_client_are_left_alone_while_there_is_room);
    tcase_add_test(tests, calls_that_were_refused_take_no_place_from_others);
    tcase_add_test(tests, a_poller_that_does_not_come_back_is_stood_in_for);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
