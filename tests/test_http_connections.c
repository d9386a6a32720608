/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves who of HTTP's connections gives way to whom, and when: with a clock of the test's own and pairs of sockets, of which the
 * other end sees that it was closed.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "server/http_connections.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/test_run.h"

enum { REQUESTS = 4, SPARE = 64, ALL = REQUESTS + SPARE };
#define IDLE_NS (30 * NS_PER_S)

static struct metrics metrics;
static struct clock_sim sim;
static struct http_connections *connections;
static struct status status;

struct visitor {
    int ends[2];
    struct http_connection *connection;
    int woken;
    uint64_t address; /* 0: one without bounds */
};
static struct visitor visitors[ALL + 2];

static void set_up(void)
{
    metrics = (struct metrics){0};
    clock_sim_init(&sim, 1800000000 * NS_PER_S);
    clock_sim_advance(&sim, NS_PER_S);
    ck_assert(
        http_connections_new(REQUESTS, 0, IDLE_NS, &sim.clock, &metrics, &connections, &status));
    ck_assert_uint_eq(http_connections_max(connections), ALL);
}

static void leave(struct visitor *visitor)
{
    http_connection_close(visitor->connection);
    close(visitor->ends[0]);
    close(visitor->ends[1]);
    visitor->connection = NULL;
}

static void tear_down(void)
{
    for (size_t i = 0; i < ARRAY_LENGTH(visitors); i++)
        if (visitors[i].connection != NULL)
            leave(&visitors[i]);
    http_connections_free(connections);
}

static void come(struct visitor *visitor)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, visitor->ends), 0);
    visitor->connection = http_connection_open(connections, visitor->ends[0], visitor->address);
    ck_assert_ptr_nonnull(visitor->connection);
}

static void come_all(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        come(&visitors[i]);
        clock_sim_advance(&sim, NS_PER_MS);
    }
}

static bool is_shut(const struct visitor *visitor)
{
    char byte;
    return recv(visitor->ends[1], &byte, 1, MSG_DONTWAIT) == 0;
}

static void wake(void *argument)
{
    ((struct visitor *)argument)->woken++;
}

static enum http_entrance enter(struct visitor *visitor)
{
    return http_connection_enter(visitor->connection, wake, visitor);
}

/* 512 connections on which nothing was asked kept /healthz from being answered for 30 s. */
START_TEST(who_has_been_idle_for_longest_gives_way_to_who_comes)
{
    come_all(ALL);
    for (int i = 0; i < ALL; i++)
        ck_assert(!is_shut(&visitors[i]));
    http_connection_hold(visitors[0].connection, true); /* waits for us */
    come(&visitors[ALL]);
    ck_assert(!is_shut(&visitors[0]));
    ck_assert(is_shut(&visitors[1]));
    ck_assert(!is_shut(&visitors[2]));
    ck_assert_int_eq(enter(&visitors[ALL]), HTTP_ENTERED);
    http_connection_leave(visitors[ALL].connection); /* idle since now */
    come(&visitors[ALL + 1]);
    ck_assert(is_shut(&visitors[2]));
    ck_assert(!is_shut(&visitors[ALL]));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_ROOM), 2);
}
END_TEST

START_TEST(who_sends_no_whole_request_in_the_idle_time_is_closed_however_it_trickles)
{
    come_all(2);
    ck_assert_int_eq(enter(&visitors[1]), HTTP_ENTERED);
    for (int second = 0; second < 31; second++) {
        http_connection_moved(visitors[0].connection, 1);
        clock_sim_advance(&sim, NS_PER_S);
    }
    http_connections_step(connections);
    ck_assert(is_shut(&visitors[0]));
    ck_assert(!is_shut(&visitors[1]));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_IDLE), 1);
}
END_TEST

START_TEST(requests_beyond_the_bound_wait_for_their_turn_in_order)
{
    come_all(REQUESTS + 2);
    for (int i = 0; i < REQUESTS; i++)
        ck_assert_int_eq(enter(&visitors[i]), HTTP_ENTERED);
    struct visitor *const first = &visitors[REQUESTS];
    struct visitor *const second = &visitors[REQUESTS + 1];
    ck_assert_int_eq(enter(first), HTTP_WAIT_FOR_TURN);
    ck_assert_int_eq(enter(second), HTTP_WAIT_FOR_TURN);
    ck_assert_int_eq(enter(first), HTTP_WAIT_FOR_TURN); /* woken for something else */
    http_connection_leave(visitors[2].connection);
    ck_assert_int_eq(first->woken, 1);
    ck_assert_int_eq(enter(first), HTTP_ENTERED);
    ck_assert_int_eq(enter(second), HTTP_WAIT_FOR_TURN);
    leave(&visitors[0]); /* in the middle of its request */
    ck_assert_int_eq(enter(second), HTTP_ENTERED);
    ck_assert_int_eq(second->woken, 1);
}
END_TEST

START_TEST(who_waits_too_long_is_sent_away_and_may_ask_again)
{
    come_all(REQUESTS + 1);
    for (int i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(enter(&visitors[i]), HTTP_ENTERED);
        http_connection_hold(visitors[i].connection, true);
    }
    struct visitor *const last = &visitors[REQUESTS];
    ck_assert_int_eq(enter(last), HTTP_WAIT_FOR_TURN);
    clock_sim_advance(&sim, HTTP_WAIT_MAX_NS);
    http_connections_step(connections);
    ck_assert_int_eq(last->woken, 0);
    clock_sim_advance(&sim, NS_PER_S);
    http_connections_step(connections);
    ck_assert_int_eq(last->woken, 1);
    ck_assert_int_eq(enter(last), HTTP_NO_ROOM);
    ck_assert(!is_shut(last));
    http_connection_leave(last->connection);
    http_connection_leave(visitors[0].connection);
    ck_assert_int_eq(enter(last), HTTP_ENTERED);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_WAITED_IN_VAIN), 1);
}
END_TEST

static void move_all(size_t bytes)
{
    for (int i = 0; i < REQUESTS; i++)
        http_connection_moved(visitors[i].connection, i == 1 ? 1 : bytes);
}

/* As many uploads of a byte now and then as there may be requests held off everybody else. */
START_TEST(who_trickles_gives_way_when_others_wait_and_only_then)
{
    come_all(REQUESTS);
    for (int i = 0; i < REQUESTS; i++)
        ck_assert_int_eq(enter(&visitors[i]), HTTP_ENTERED);
    for (int second = 0; second < 60; second++) {
        move_all(HTTP_SLOW_BYTES_PER_S + 100);
        clock_sim_advance(&sim, NS_PER_S);
        http_connections_step(connections);
    }
    for (int i = 0; i < REQUESTS; i++)
        ck_assert(!is_shut(&visitors[i]));
    come(&visitors[REQUESTS]);
    ck_assert_int_eq(enter(&visitors[REQUESTS]), HTTP_WAIT_FOR_TURN);
    for (int second = 0; second < 11; second++) {
        move_all(HTTP_SLOW_BYTES_PER_S + 100);
        clock_sim_advance(&sim, NS_PER_S);
        http_connections_step(connections);
    }
    ck_assert(is_shut(&visitors[1]));
    ck_assert(!is_shut(&visitors[0]) && !is_shut(&visitors[2]) && !is_shut(&visitors[3]));
    ck_assert_int_eq(visitors[REQUESTS].woken, 1);
    ck_assert_int_eq(enter(&visitors[REQUESTS]), HTTP_ENTERED);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_SLOW), 1);
}
END_TEST

START_TEST(who_waits_for_longest_is_sent_away_when_nobody_is_idle_and_another_comes)
{
    come_all(ALL);
    for (int i = 0; i < ALL; i++)
        ck_assert_int_eq(enter(&visitors[i]), i < REQUESTS ? HTTP_ENTERED : HTTP_WAIT_FOR_TURN);
    come(&visitors[ALL]);
    ck_assert_int_eq(visitors[REQUESTS].woken, 1);
    ck_assert_int_eq(enter(&visitors[REQUESTS]), HTTP_NO_ROOM);
    ck_assert_int_eq(enter(&visitors[REQUESTS + 1]), HTTP_WAIT_FOR_TURN);
    ck_assert(!is_shut(&visitors[ALL]));
}
END_TEST

/* One address that kept as many requests going as there may be held off everybody else, and who waited for itself did, too. */
START_TEST(one_address_that_takes_all_it_can_get_leaves_the_others_their_part)
{
    enum { PART = REQUESTS / 2, WAITING = SPARE / 2, MORE = 3 };
    for (int i = 0; i < PART + WAITING + MORE; i++) {
        visitors[i].address = 1;
        come(&visitors[i]);
        const enum http_entrance entrance = enter(&visitors[i]);
        ck_assert_int_eq(entrance, i < PART             ? HTTP_ENTERED
                                   : i < PART + WAITING ? HTTP_WAIT_FOR_TURN
                                                        : HTTP_NO_ROOM);
        ck_assert_int_eq(is_shut(&visitors[i]), i >= PART + WAITING);
    }
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_ADDRESS), MORE);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_ADDRESS_WAITS), WAITING);
    for (int i = ALL - PART; i < ALL; i++) {
        visitors[i].address = 2;
        come(&visitors[i]);
        ck_assert_int_eq(enter(&visitors[i]), HTTP_ENTERED);
    }
    /* Whoever of the first address is done makes room for its own alone. */
    leave(&visitors[0]);
    ck_assert_int_eq(visitors[PART].woken, 1);
    ck_assert_int_eq(enter(&visitors[PART]), HTTP_ENTERED);
    leave(&visitors[ALL - 1]);
    ck_assert_int_eq(visitors[PART + 1].woken, 0);
    visitors[ALL].address = 3;
    come(&visitors[ALL]);
    ck_assert_int_eq(enter(&visitors[ALL]), HTTP_ENTERED);
    http_connection_leave(visitors[ALL].connection);
    ck_assert_int_eq(enter(&visitors[ALL]), HTTP_ENTERED);
}
END_TEST

START_TEST(an_address_with_its_part_of_the_connections_gives_way_to_itself)
{
    enum { PART = REQUESTS / 2 + SPARE / 2 };
    for (int i = 0; i < ALL; i++)
        visitors[i].address = i < PART ? 1 : 2;
    visitors[ALL].address = 1;
    come_all(PART + 1);
    http_connection_hold(visitors[0].connection, true); /* waits for us */
    come(&visitors[ALL]);
    ck_assert(!is_shut(&visitors[0]));
    ck_assert(is_shut(&visitors[1]));
    ck_assert(!is_shut(&visitors[PART]));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_ADDRESS), 1);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_HTTP_CLOSED_ROOM), 0);
}
END_TEST

START_TEST(who_waits_for_its_own_address_closes_no_slow_request_of_another)
{
    come_all(0);
    for (int i = 0; i < 4; i++) {
        visitors[i].address = i < 3 ? 1 : 2;
        come(&visitors[i]);
        ck_assert_int_eq(enter(&visitors[i]), i == 2 ? HTTP_WAIT_FOR_TURN : HTTP_ENTERED);
    }
    http_connection_moved(visitors[0].connection, 10 * MIB);
    clock_sim_advance(&sim, HTTP_PATIENCE_NS + NS_PER_S);
    http_connections_step(connections);
    ck_assert(!is_shut(&visitors[0]));
    ck_assert(is_shut(&visitors[1]));
    ck_assert(!is_shut(&visitors[3]));
    ck_assert_int_eq(visitors[2].woken, 1);
    ck_assert_int_eq(enter(&visitors[2]), HTTP_ENTERED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_connections");
    TCase *tests = tcase_create("http_connections");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, who_has_been_idle_for_longest_gives_way_to_who_comes);
    tcase_add_test(tests,
                   who_sends_no_whole_request_in_the_idle_time_is_closed_however_it_trickles);
    tcase_add_test(tests, requests_beyond_the_bound_wait_for_their_turn_in_order);
    tcase_add_test(tests, who_waits_too_long_is_sent_away_and_may_ask_again);
    tcase_add_test(tests, who_trickles_gives_way_when_others_wait_and_only_then);
    tcase_add_test(tests, who_waits_for_longest_is_sent_away_when_nobody_is_idle_and_another_comes);
    tcase_add_test(tests, one_address_that_takes_all_it_can_get_leaves_the_others_their_part);
    tcase_add_test(tests, an_address_with_its_part_of_the_connections_gives_way_to_itself);
    tcase_add_test(tests, who_waits_for_its_own_address_closes_no_slow_request_of_another);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
