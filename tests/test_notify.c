/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a service manager gets what sd_notify(3) says, over a path and over the abstract name
 * space; that it is told nothing when it asked for nothing; that a name that cannot be used, or a
 * manager that is gone, costs a log line and no more; and that the server is said to be alive
 * exactly as long as each part of it does some of what waits for it.
 *
 * Method: real sockets; the time is passed in. Once a whole server.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/notify.h"
#include "server/progress.h"
#include "server/server.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { MESSAGE_BYTES = 512, NAME_BYTES = 200 };

static struct temp_dir directory;
static int manager; /* what the manager reads from */
static char name[NAME_BYTES];
static char heard[MESSAGE_BYTES];
static struct notify notify;

/* Binds the manager's socket to `name`. */
static void listen_as_manager(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, strlen(name));
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
    if (name[0] == '@') {
        address.sun_path[0] = '\0';
        bytes--;
    }
    const struct timeval wait = {.tv_sec = 20};
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(manager, 0);
    ck_assert_int_eq(setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
    ck_assert_int_eq(bind(manager, (struct sockaddr *)(void *)&address, bytes), 0);
}

static void setup(void)
{
    temp_dir_make(&directory);
    snprintf(name, sizeof(name), "%.150s/notify", directory.path);
    listen_as_manager();
}

static void teardown(void)
{
    notify_destroy(&notify);
    close(manager);
    temp_dir_remove(&directory);
}

static void begin(const char *watchdog_us, const char *watchdog_pid)
{
    const struct notify_environment environment = {
        .socket_name = name, .watchdog_us = watchdog_us, .watchdog_pid = watchdog_pid};
    notify_init(&notify, &environment);
}

static const char *hear(int flags)
{
    const ssize_t length = recv(manager, heard, sizeof(heard) - 1, flags);
    if (length < 0)
        return "(nothing)";
    heard[length] = '\0';
    return heard;
}

#define ck_assert_hears(text) ck_assert_str_eq(hear(0), text)
#define ck_assert_hears_nothing() ck_assert_str_eq(hear(MSG_DONTWAIT), "(nothing)")

static void say_everything(void)
{
    notify_status(&notify, "serving");
    notify_ready(&notify);
    notify_alive(&notify, NS_PER_S);
    notify_stopping(&notify, 70 * NS_PER_S);
}

START_TEST(a_manager_hears_each_word_once_and_in_order)
{
    begin("4000000", NULL);
    say_everything();
    ck_assert_hears("STATUS=serving");
    ck_assert_hears("READY=1");
    ck_assert_hears("WATCHDOG=1");
    ck_assert_hears("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=70000000");
    ck_assert_hears_nothing();
}
END_TEST

START_TEST(a_manager_in_the_abstract_name_space_hears_the_same)
{
    close(manager);
    snprintf(name, sizeof(name), "@varve/notify-test/%d", (int)getpid());
    listen_as_manager();
    begin(NULL, NULL);
    notify_ready(&notify);
    ck_assert_hears("READY=1");
}
END_TEST

START_TEST(a_status_is_told_when_it_changes_and_stays_one_line)
{
    begin(NULL, NULL);
    notify_status(&notify, "serving");
    notify_status(&notify, "serving");
    notify_status(&notify, "read-only: sync\nREADY=1");
    ck_assert_hears("STATUS=serving");
    ck_assert_hears("STATUS=read-only: sync READY=1");
    ck_assert_hears_nothing();
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    notify_status(&notify, text);
    ck_assert_uint_eq(strlen(hear(0)), strlen("STATUS=") + NOTIFY_STATUS_BYTES_MAX - 1);
}
END_TEST

START_TEST(alive_is_told_twice_in_the_interval_of_the_manager)
{
    begin("4000000", NULL);
    for (int64_t now_ns = NS_PER_S; now_ns <= 10 * NS_PER_S; now_ns += NS_PER_S / 4)
        notify_alive(&notify, now_ns);
    for (int i = 0; i < 5; i++) /* at 1, 3, 5, 7 and 9 s */
        ck_assert_hears("WATCHDOG=1");
    ck_assert_hears_nothing();
}
END_TEST

START_TEST(alive_is_told_to_nobody_who_does_not_ask_this_process)
{
    static const char *const intervals[] = {NULL, "", "0", "-5", "soon", "10s"};
    for (size_t i = 0; i < ARRAY_LENGTH(intervals); i++) {
        begin(intervals[i], NULL);
        notify_alive(&notify, NS_PER_S);
        notify_destroy(&notify);
    }
    begin("4000000", "1");
    notify_alive(&notify, NS_PER_S);
    notify_destroy(&notify);
    ck_assert_hears_nothing();

    char own[32];
    snprintf(own, sizeof(own), "%d", (int)getpid());
    begin("4000000", own);
    notify_alive(&notify, NS_PER_S);
    ck_assert_hears("WATCHDOG=1");
}
END_TEST

START_TEST(without_a_manager_nothing_is_sent_and_nothing_fails)
{
    const struct notify_environment none = {0};
    const struct notify_environment empty = {.socket_name = "", .watchdog_us = "4000000"};
    notify_init(&notify, &none);
    say_everything();
    notify_destroy(&notify);
    notify_init(&notify, &empty);
    say_everything();
    ck_assert_hears_nothing();
}
END_TEST

START_TEST(a_name_that_is_no_socket_is_left_out)
{
    char long_name[300];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = '\0';
    const char *const names[] = {"notify", "@", "/", long_name, "vsock:2:1"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const struct notify_environment environment = {.socket_name = names[i]};
        notify_init(&notify, &environment);
        ck_assert_int_eq(notify.fd, -1);
        say_everything();
        notify_destroy(&notify);
    }
}
END_TEST

START_TEST(a_manager_that_is_gone_and_comes_back_hears_what_it_missed)
{
    begin("4000000", NULL);
    close(manager);
    unlink(name);
    say_everything();
    ck_assert(atomic_load(&notify.failing));
    listen_as_manager();
    notify_status(&notify, "serving");
    notify_alive(&notify, NS_PER_S);
    ck_assert(!atomic_load(&notify.failing));
    ck_assert_hears("STATUS=serving");
    ck_assert_hears("WATCHDOG=1");
}
END_TEST

/* ---- progress */

static struct progress progress;
static struct progress_seen seen[PROGRESS_PART_COUNT];
static struct metrics metrics;
static int64_t now_ns;

/* Looks once a second until it says stuck, for at most so long; how long it took, or -1. */
static int64_t seconds_until_stuck(int64_t at_most_s, bool all_but_first_move)
{
    for (int64_t second = 0; second <= at_most_s; second++) {
        for (size_t i = 1; all_but_first_move && i < PROGRESS_PART_COUNT; i++)
            seen[i].done++;
        const bool well = progress_look(&progress, seen, now_ns += NS_PER_S, &metrics);
        ck_assert_int_eq(metrics_get(&metrics, METRIC_STUCK), well ? 0 : 1);
        if (!well)
            return second;
    }
    return -1;
}

START_TEST(a_part_that_does_nothing_of_what_waits_is_stuck_after_its_limit)
{
    seen[0].waits = true;
    ck_assert_int_eq(seconds_until_stuck(1000, true), LIMIT_STUCK_NS / NS_PER_S);
    seen[0].done++;
    ck_assert(progress_look(&progress, seen, now_ns += NS_PER_S, &metrics));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_STUCK), 0);
}
END_TEST

START_TEST(each_part_alone_makes_the_server_count_as_stuck)
{
    for (size_t i = 0; i < PROGRESS_PART_COUNT; i++) {
        progress = (struct progress){0};
        memset(seen, 0, sizeof(seen));
        seen[i].waits = true;
        const int64_t limit_s =
            (i >= PROGRESS_SMALL_LANE ? LIMIT_STUCK_DISK_NS : LIMIT_STUCK_NS) / NS_PER_S;
        ck_assert_int_eq(seconds_until_stuck(1000, false), limit_s);
    }
}
END_TEST

START_TEST(a_part_with_nothing_to_do_or_slow_at_it_is_not_stuck)
{
    ck_assert_int_eq(seconds_until_stuck(1000, false), -1); /* nothing waits */
    for (size_t i = 0; i < PROGRESS_PART_COUNT; i++)
        seen[i].waits = true;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < PROGRESS_PART_COUNT; i++)
            seen[i].done++;
        ck_assert_int_eq(seconds_until_stuck(LIMIT_STUCK_NS / NS_PER_S - 1, false), -1);
    }
}
END_TEST

START_TEST(time_in_which_nobody_looked_counts_for_little)
{
    seen[0].waits = true;
    ck_assert(progress_look(&progress, seen, now_ns += NS_PER_S, &metrics));
    ck_assert(progress_look(&progress, seen, now_ns += 3600 * NS_PER_S, &metrics));
    ck_assert_int_eq(seconds_until_stuck(1000, true), LIMIT_STUCK_NS / NS_PER_S - 3);
}
END_TEST

/* ---- a whole server */

/* Skips what does not begin so. */
static void hear_until(const char *beginning)
{
    do {
        hear(0);
        ck_assert_str_ne(heard, "(nothing)");
    } while (strncmp(heard, beginning, strlen(beginning)) != 0);
}

START_TEST(a_server_says_when_it_serves_lives_reads_its_files_again_and_stops)
{
    struct temp_dir data;
    struct config *config = NULL;
    struct server *server = NULL;
    struct status status = {0};
    enum config_action action;
    temp_dir_make(&data);
    char *const arguments[] = {(char[]){"varved"}, (char[]){"--data"}, data.path,
                               (char[]){"--listen"}, (char[]){"127.0.0.1:0"}};
    char *const environment[] = {NULL};
    ck_assert(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action, &config,
                           &status));
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
    ck_assert_int_eq(setenv("WATCHDOG_USEC", "1000000", 1), 0);
    grpc_init();
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    ck_assert_hears("STATUS=starting: opens the store");
    bool ready = false;
    int alive = 0;
    while (!ready || alive < 3) {
        hear(0);
        ck_assert_str_ne(heard, "(nothing)");
        ready = ready || strcmp(heard, "READY=1") == 0;
        alive += strcmp(heard, "WATCHDOG=1") == 0;
    }
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_STUCK), 0);
    server_reload(server);
    hear_until("RELOADING=1\nMONOTONIC_USEC=");
    hear_until("READY=1");
    server_stop(server);
    hear_until("STOPPING=1\n");
    ck_assert_ptr_nonnull(strstr(heard, "EXTEND_TIMEOUT_USEC=70000000"));
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("notify");
    TCase *words = tcase_create("words");
    tcase_add_checked_fixture(words, setup, teardown);
    tcase_add_test(words, a_manager_hears_each_word_once_and_in_order);
    tcase_add_test(words, a_manager_in_the_abstract_name_space_hears_the_same);
    tcase_add_test(words, a_status_is_told_when_it_changes_and_stays_one_line);
    tcase_add_test(words, alive_is_told_twice_in_the_interval_of_the_manager);
    tcase_add_test(words, alive_is_told_to_nobody_who_does_not_ask_this_process);
    tcase_add_test(words, without_a_manager_nothing_is_sent_and_nothing_fails);
    tcase_add_test(words, a_name_that_is_no_socket_is_left_out);
    tcase_add_test(words, a_manager_that_is_gone_and_comes_back_hears_what_it_missed);
    tcase_add_test(words, a_server_says_when_it_serves_lives_reads_its_files_again_and_stops);
    suite_add_tcase(suite, words);
    TCase *moves = tcase_create("progress");
    tcase_add_test(moves, a_part_that_does_nothing_of_what_waits_is_stuck_after_its_limit);
    tcase_add_test(moves, each_part_alone_makes_the_server_count_as_stuck);
    tcase_add_test(moves, a_part_with_nothing_to_do_or_slow_at_it_is_not_stuck);
    tcase_add_test(moves, time_in_which_nobody_looked_counts_for_little);
    suite_add_tcase(suite, moves);
    return test_run(suite);
}
