/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a call which takes longer than it should is counted and told of in one line that says where its time went, that a quick
 * one is not, that calls which wait for as long as their client wants never are, and that many slow calls make few lines: toy methods
 * that take their time in one place each, over real gRPC, with stderr read back.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/front_rig.h"
#include "tests/support/messages.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"
#include "tests/support/wait.h"

enum { SLOW_MS = 120, LIMIT_MS = 100 };

static struct front_rig rig;
static struct temp_dir directory;
static FILE *reader;
static int saved_stderr = -1;

static void answer(struct call *call, void *state)
{
    (void)state;
    grpc_slice slice = grpc_slice_from_static_string("done");
    call_reply(call, &slice, 1);
}

/* Takes its time itself. */
static void work_message(struct call *call, void *state, const struct message *message)
{
    (void)message;
    call_note_instance(call, bytes_of_string("main/\xc3\xa9\"x"));
    usleep(SLOW_MS * 1000);
    answer(call, state);
}

static void quick_message(struct call *call, void *state, const struct message *message)
{
    (void)message;
    answer(call, state);
}

static _Atomic bool gate_open;

/* Keeps its message until the gate is open. */
static void hold_message(struct call *call, void *state, const struct message *message)
{
    (void)message;
    while (!atomic_load(&gate_open))
        usleep(1000);
    answer(call, state);
}

static void *commit_thread(void *argument)
{
    usleep(SLOW_MS * 1000);
    call_resume(argument, answer);
    return NULL;
}

static void *answering_thread(void *argument)
{
    usleep(SLOW_MS * 1000);
    answer(argument, NULL);
    return NULL;
}

static void hand_over(struct call *call, void *(*to)(void *argument))
{
    pthread_t thread;
    call_commit_begins(call);
    ck_assert_int_eq(pthread_create(&thread, NULL, to, call), 0);
    ck_assert_int_eq(pthread_detach(thread), 0);
}

/* Hands its turn away, as a purge does. */
static void commit_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    hand_over(call, commit_thread);
}

/* To who answers by itself, as a write does. */
static void write_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    hand_over(call, answering_thread);
}

static void stream_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    call_receive(call);
}

static const struct method work = {.path = "/toy.Toys/Work",
                                   .kind = METHOD_UNARY,
                                   .on_message = work_message};
static const struct method quick = {.path = "/toy.Toys/Quick",
                                    .kind = METHOD_UNARY,
                                    .on_poller = true,
                                    .on_message = quick_message};
static const struct method hold = {.path = "/toy.Toys/Hold",
                                   .kind = METHOD_UNARY,
                                   .on_message = hold_message};
static const struct method commit = {.path = "/toy.Toys/Commit",
                                     .kind = METHOD_UNARY,
                                     .on_message = commit_message};
static const struct method writes = {.path = "/toy.Toys/Write",
                                     .kind = METHOD_UNARY,
                                     .on_message = write_message};
static const struct method stream = {.path = "/toy.Toys/Stream",
                                     .kind = METHOD_CLIENT_STREAM,
                                     .on_message = stream_message,
                                     .on_half_close = answer};
static const struct method waits = {.path = "/toy.Toys/Wait",
                                    .kind = METHOD_UNARY,
                                    .waits = true,
                                    .on_message = work_message};
static const struct method *const methods[] = {&work,   &quick,  &hold, &commit,
                                               &writes, &stream, &waits};

/* Into a file, so that whoever writes to it never waits. */
static void setup(void)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    temp_dir_make(&directory);
    snprintf(path, sizeof(path), "%s/log", directory.path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
    close(fd);
    reader = fopen(path, "re");
    ck_assert_ptr_nonnull(reader);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods),
                    &(struct front_rig_limits){.slow_call_ns = (int64_t)LIMIT_MS * NS_PER_MS});
}

static void teardown(void)
{
    front_rig_stop(&rig, 10000);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    fclose(reader);
    temp_dir_remove(&directory);
}

static void call_ok(const struct method *method)
{
    ck_assert_int_eq(rpc_unary(&rig.client, method->path, bytes_of("ask", 3), NULL, NULL, NULL),
                     GRPC_STATUS_OK);
}

/* The next line that tells of a slow call; "" when no call is left and there is none. */
static const char *next_line(void)
{
    static char line[8192];
    front_rig_wait_live(&rig, 0);
    clearerr(reader);
    while (fgets(line, sizeof(line), reader) != NULL)
        if (strstr(line, " event=slow_call ") != NULL)
            return line;
    return "";
}

static int number_in(const char *line, const char *key)
{
    const char *const at = strstr(line, key);
    ck_assert_msg(at != NULL, "no %s in %s", key, line);
    return atoi(at + strlen(key));
}

START_TEST(a_slow_call_is_one_line_that_says_whose_and_what_it_was)
{
    call_ok(&work);
    const char *const line = next_line();
    ck_assert_msg(strstr(line, "level=warn event=slow_call method=\"/toy.Toys/Work\" "
                               "instance=\"main/\xc3\xa9\\\"x\" code=OK duration_ms=") != NULL,
                  "%s", line);
    ck_assert_int_ge(number_in(line, " duration_ms="), SLOW_MS);
    ck_assert_int_eq(number_in(line, " received_bytes="), 3);
    ck_assert_int_eq(number_in(line, " sent_bytes="), 4);
    ck_assert_int_eq(number_in(line, " commit_ms="), 0);
    ck_assert_int_eq(number_in(line, " budget_ms="), 0);
    ck_assert_ptr_nonnull(strstr(line, " user=\"anonymous\" peer=\"ipv4:127.0.0.1:"));
    ck_assert_int_eq(number_in(line, " left_out="), 0);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_SLOW), 1);
    ck_assert_str_eq(next_line(), "");
}
END_TEST

START_TEST(the_line_says_where_the_time_went)
{
    const struct method *const committing[] = {&commit, &writes};
    const char *line = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(committing); i++) {
        call_ok(committing[i]);
        line = next_line();
        ck_assert_int_ge(number_in(line, " commit_ms="), SLOW_MS);
        ck_assert_int_le(number_in(line, " client_ms=") + number_in(line, " commit_ms="),
                         number_in(line, " duration_ms="));
    }

    struct rpc rpc;
    rpc_begin(&rpc, &rig.client, stream.path);
    ck_assert(rpc_send(&rpc, bytes_of("one", 3)));
    usleep(SLOW_MS * 1000);
    ck_assert(rpc_half_close(&rpc));
    ck_assert_int_eq(rpc_end(&rpc), GRPC_STATUS_OK);
    line = next_line();
    ck_assert_ptr_nonnull(strstr(line, "method=\"/toy.Toys/Stream\" instance=\"\""));
    /* The server may have begun to wait after the client has. */
    ck_assert_int_ge(number_in(line, " client_ms="), SLOW_MS / 2);
    ck_assert_int_eq(number_in(line, " commit_ms="), 0);
}
END_TEST

START_TEST(a_call_that_waits_for_memory_is_told_so)
{
    static const uint8_t request[3000];
    struct rpc holding[2];
    struct rpc waiting;
    front_rig_stop(&rig, 10000);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods),
                    &(struct front_rig_limits){.slow_call_ns = (int64_t)LIMIT_MS * NS_PER_MS,
                                               .request_memory_bytes = 8192,
                                               .max_calls = 1000});
    for (size_t i = 0; i < ARRAY_LENGTH(holding); i++) {
        rpc_begin(&holding[i], &rig.client, hold.path);
        ck_assert(rpc_send(&holding[i], bytes_of(request, sizeof(request))));
    }
    /* Half of the memory is for first messages. */
    WAIT_UNTIL(metrics_get(&rig.metrics, METRIC_BUDGET_USED) >= 6000);
    rpc_begin(&waiting, &rig.client, quick.path);
    rpc_start_send(&waiting, bytes_of("ask", 3));
    WAIT_UNTIL(metrics_get(&rig.metrics, METRIC_BUDGET_WAITING) == 1);
    usleep(SLOW_MS * 1000);
    atomic_store(&gate_open, true);
    ck_assert_int_eq(rpc_end(&waiting), GRPC_STATUS_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(holding); i++)
        ck_assert_int_eq(rpc_end(&holding[i]), GRPC_STATUS_OK);
    int told = 0;
    for (const char *line; (line = next_line())[0] != '\0';) {
        const bool waited = strstr(line, "method=\"/toy.Toys/Quick\"") != NULL;
        const int budget_ms = number_in(line, " budget_ms=");
        ck_assert(waited ? budget_ms >= LIMIT_MS : budget_ms == 0);
        ck_assert_int_le(budget_ms + number_in(line, " client_ms="),
                         number_in(line, " duration_ms="));
        told += waited;
    }
    ck_assert_int_eq(told, 1);
}
END_TEST

/* While no call is there that looks at it. */
static void set_threshold(int64_t threshold_ns)
{
    front_rig_wait_live(&rig, 0);
    rig.slow_calls.threshold_ns = threshold_ns;
}

START_TEST(quick_calls_and_those_that_are_meant_to_wait_are_not_told_of)
{
    set_threshold(3600 * NS_PER_S); /* however busy the machine is */
    call_ok(&quick);
    set_threshold(1);
    call_ok(&waits);
    ck_assert_str_eq(next_line(), "");
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_SLOW), 0);
    call_ok(&quick);
    const char *const line = next_line();
    ck_assert_msg(strstr(line, "method=\"/toy.Toys/Quick\"") != NULL, "line: %s", line);
}
END_TEST

START_TEST(many_slow_calls_make_few_lines_and_none_is_lost)
{
    static struct slow_calls calls;
    struct slow_call call = {.method = "/toy.Toys/Work", .instance = "", .user = "u", .peer = "p"};
    slow_calls_init(&calls, NS_PER_S, &rig.metrics);
    int told = 0;
    int lines = 0;
    for (int second = 1; second <= 3; second++) {
        for (int i = 0; i < 100; i++) {
            call.duration_ns = NS_PER_S + i;
            slow_calls_note(&calls, &call, second * NS_PER_S + i);
        }
        call.duration_ns = NS_PER_S - 1;
        slow_calls_note(&calls, &call, second * NS_PER_S);
    }
    call.duration_ns = NS_PER_S;
    slow_calls_note(&calls, &call, 9 * NS_PER_S);
    for (const char *line; (line = next_line())[0] != '\0'; lines++)
        told += 1 + number_in(line, " left_out=");
    ck_assert_int_eq(lines, 3 * SLOW_CALLS_LINES_PER_SECOND_MAX + 1);
    ck_assert_int_eq(told, 301);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_CALLS_SLOW), 301);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("slow_calls");
    TCase *const tests = tcase_create("slow_calls");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_slow_call_is_one_line_that_says_whose_and_what_it_was);
    tcase_add_test(tests, the_line_says_where_the_time_went);
    tcase_add_test(tests, a_call_that_waits_for_memory_is_told_so);
    tcase_add_test(tests, quick_calls_and_those_that_are_meant_to_wait_are_not_told_of);
    tcase_add_test(tests, many_slow_calls_make_few_lines_and_none_is_lost);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
