/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a connection on which calls are given up as fast as they are begun is closed, alone and whatever kind of address it comes
 * from; that one on which many are given up now and then is not; and that its client is served when it comes again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "server/accept_guard.h"
#include "server/resets.h"
#include "server/server.h"
#include "tests/support/messages.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

#define START_NS (1000 * NS_PER_S)
#define FIND_MISSING "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs"

static struct metrics metrics;
static struct resets *resets;
static struct status status;

static void setup(void)
{
    metrics = (struct metrics){0};
    ck_assert(resets_new(&metrics, &resets, &status));
}

static void teardown(void)
{
    resets_free(resets);
}

static bool note(const char *peer, int count, int64_t now_ns)
{
    bool too_many = false;
    for (int i = 0; i < count; i++)
        too_many |= resets_note(resets, peer, now_ns);
    return too_many;
}

START_TEST(more_than_at_once_is_too_many_and_that_is_said_once)
{
    ck_assert(!note("ipv4:10.0.0.1:1", LIMIT_RESETS_AT_ONCE, START_NS));
    ck_assert(!note("ipv4:10.0.0.1:2", LIMIT_RESETS_AT_ONCE, START_NS));
    ck_assert(note("ipv4:10.0.0.1:1", 1, START_NS));
    ck_assert(!note("ipv4:10.0.0.1:1", 3 * LIMIT_RESETS_AT_ONCE, START_NS));
    ck_assert(note("ipv4:10.0.0.1:2", 1, START_NS));
    /* Another one, much later, with the same port. */
    const int64_t later_ns = START_NS + 20 * NS_PER_S;
    ck_assert(!note("ipv4:10.0.0.1:1", LIMIT_RESETS_AT_ONCE, later_ns));
    ck_assert(note("ipv4:10.0.0.1:1", 1, later_ns));
}
END_TEST

START_TEST(so_many_a_second_may_be_given_up_for_ever)
{
    bool too_many = false;
    for (int second = 0; second < 3600; second++)
        too_many |= note("ipv4:10.0.0.1:1", LIMIT_RESETS_PER_S, START_NS + second * NS_PER_S);
    ck_assert(!too_many);
    /* An interrupted build now and then. */
    for (int minute = 0; minute < 60; minute++)
        too_many |= note("ipv4:10.0.0.1:2", 4000, START_NS + minute * 60 * NS_PER_S);
    ck_assert(!too_many);
}
END_TEST

START_TEST(thousands_of_connections_hide_no_flood)
{
    char peer[32];
    bool too_many = false;
    for (int i = 0; i < 20000; i++) {
        snprintf(peer, sizeof(peer), "ipv4:10.0.0.2:%d", i);
        too_many |= note(peer, 1, START_NS);
        ck_assert(!too_many || i > 0);
        if (i < LIMIT_RESETS_AT_ONCE)
            ck_assert(!note("ipv4:10.0.0.1:1", 1, START_NS));
    }
    ck_assert(!too_many);
    ck_assert(note("ipv4:10.0.0.1:1", 1, START_NS));
}
END_TEST

/* ---- a connection by its address */

static int listen_on(int family, uint16_t *port)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six.sin6_addr = in6addr_loopback;
    struct sockaddr *const address =
        family == AF_INET ? (struct sockaddr *)(void *)&four : (struct sockaddr *)(void *)&six;
    socklen_t length = family == AF_INET ? sizeof(four) : sizeof(six);
    if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, address, &length) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
    return fd;
}

static int connect_to(int family, uint16_t port, uint16_t *own_port)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six.sin6_addr = in6addr_loopback;
    struct sockaddr *const address =
        family == AF_INET ? (struct sockaddr *)(void *)&four : (struct sockaddr *)(void *)&six;
    socklen_t length = family == AF_INET ? sizeof(four) : sizeof(six);
    ck_assert_int_eq(connect(fd, address, length), 0);
    ck_assert_int_eq(getsockname(fd, address, &length), 0);
    *own_port = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
    return fd;
}

static bool is_shut(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

START_TEST(the_connection_from_an_address_is_shut_down_and_no_other)
{
    static const int families[] = {AF_INET, AF_INET6};
    ck_assert(!accept_guard_shut("ipv4:127.0.0.1:1"));
    ck_assert(accept_guard_start(100, 100, 1000, &metrics, &status));
    for (size_t i = 0; i < ARRAY_LENGTH(families); i++) {
        uint16_t port;
        uint16_t ports[2];
        int ours[2];
        int theirs[2];
        char peer[64];
        const int listening = listen_on(families[i], &port);
        if (listening < 0)
            continue; /* a machine without IPv6 */
        for (int j = 0; j < 2; j++) {
            ours[j] = connect_to(families[i], port, &ports[j]);
            theirs[j] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
            ck_assert_int_ge(theirs[j], 0);
        }
        const bool four = families[i] == AF_INET;
        snprintf(peer, sizeof(peer), "%s:%u", four ? "ipv4:127.0.0.2" : "ipv6:[::2]", ports[0]);
        ck_assert(!accept_guard_shut(peer));
        snprintf(peer, sizeof(peer), "%s:%u", four ? "ipv4:127.0.0.1" : "ipv6:%5B::1%5D", ports[0]);
        ck_assert_msg(accept_guard_shut(peer), "%s", peer);
        ck_assert(is_shut(ours[0]));
        ck_assert(!is_shut(ours[1]));
        for (int j = 0; j < 2; j++) {
            close(ours[j]);
            close(theirs[j]);
        }
        close(listening);
        ck_assert(!accept_guard_shut(peer));
    }
    static const char *const odd[] = {"",
                                      "ipv4:",
                                      "ipv4:1",
                                      "unix:/tmp/x",
                                      "ipv6:",
                                      "ipv6:[:1",
                                      "ipv6:%5B:1",
                                      "ipv6:%5B%5D:1",
                                      "ipv4:x:443",
                                      "fd:7",
                                      "ipv4::",
                                      "ipv6:[]:",
                                      "ipv6:%5B::1%25lo%5D:443"};
    for (size_t i = 0; i < ARRAY_LENGTH(odd); i++)
        ck_assert(!accept_guard_shut(odd[i]));
    accept_guard_stop();
}
END_TEST

/* ---- a whole server */

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client client;

static void setup_server(void)
{
    enum config_action action;
    temp_dir_make(&directory);
    char *const arguments[] = {
        (char[]){"varved"},   (char[]){"--data"},      directory.path,
        (char[]){"--listen"}, (char[]){"127.0.0.1:0"}, (char[]){"--http-listen"},
        (char[]){""},         (char[]){"--reserve"},   (char[]){"0B"}};
    char *const environment[] = {NULL};
    ck_assert(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action, &config,
                           &status));
    grpc_init();
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void teardown_server(void)
{
    rpc_client_close(&client);
    server_stop(server);
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

static grpc_status_code find_missing(void)
{
    char text[RPC_TEXT_BYTES_MAX];
    uint8_t *data = NULL;
    size_t length = 0;
    const grpc_status_code code =
        rpc_unary(&client, FIND_MISSING, bytes_of(NULL, 0), &data, &length, text);
    free(data);
    return code;
}

/* A call that is begun and given up at once, as bytes. */
static void add_reset(struct byte_builder *to, uint32_t stream)
{
    static const char *const headers[] = {
        ":method",    "POST", ":scheme", "http",     ":path",        FIND_MISSING,
        ":authority", "x",    "te",      "trailers", "content-type", "application/grpc"};
    struct byte_builder block = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(headers); i++) {
        const struct bytes text = bytes_of_string(headers[i]);
        if (i % 2 == 0)
            byte_builder_append(&block, bytes_of("", 1));
        ck_assert_uint_lt(text.length, 127);
        byte_builder_append(&block, bytes_of(&(uint8_t){(uint8_t)text.length}, 1));
        byte_builder_append(&block, text);
    }
    const uint8_t id[4] = {(uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8),
                           (uint8_t)stream};
    const uint8_t head[9] = {
        0, (uint8_t)(block.length >> 8), (uint8_t)block.length, 1, 4, id[0], id[1], id[2], id[3]};
    const uint8_t reset[13] = {0, 0, 4, 3, 0, id[0], id[1], id[2], id[3], 0, 0, 0, 8};
    byte_builder_append(to, bytes_of(head, sizeof(head)));
    byte_builder_append(to, bytes_of(block.data, block.length));
    byte_builder_append(to, bytes_of(reset, sizeof(reset)));
    byte_builder_free(&block);
}

/* 20,000 a second made the server grow by hundreds of MiB, until the client had enough. */
START_TEST(calls_that_are_given_up_as_fast_as_they_begin_cost_the_connection)
{
    enum { CALLS_MAX = 1000 * LIMIT_RESETS_AT_ONCE, AT_ONCE = 50 };
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    uint16_t ignored;
    const int fd = connect_to(AF_INET, (uint16_t)server_grpc_port(server), &ignored);
    uint32_t calls = 0;
    uint8_t answers[4096];
    bool open = send(fd, preface, sizeof(preface), MSG_NOSIGNAL) == sizeof(preface);
    while (open && calls < CALLS_MAX) {
        struct byte_builder out = {0};
        for (int i = 0; i < AT_ONCE; i++)
            add_reset(&out, 2 * calls++ + 1);
        open = send(fd, out.data, out.length, MSG_NOSIGNAL) == (ssize_t)out.length;
        byte_builder_free(&out);
        ssize_t got;
        while ((got = recv(fd, answers, sizeof(answers), MSG_DONTWAIT)) > 0)
            continue;
        open = open && got != 0 && errno == EAGAIN;
        /* Another client is served meanwhile. */
        if (calls % 1000 == 0)
            ck_assert_int_eq(find_missing(), GRPC_STATUS_OK);
    }
    ck_assert(!open);
    close(fd);
    ck_assert_uint_gt(calls, LIMIT_RESETS_AT_ONCE);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_CONNECTIONS_RESET), 1);
    ck_assert_int_eq(find_missing(), GRPC_STATUS_OK);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("resets");
    TCase *const tests = tcase_create("resets");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, more_than_at_once_is_too_many_and_that_is_said_once);
    tcase_add_test(tests, so_many_a_second_may_be_given_up_for_ever);
    tcase_add_test(tests, thousands_of_connections_hide_no_flood);
    tcase_add_test(tests, the_connection_from_an_address_is_shut_down_and_no_other);
    suite_add_tcase(suite, tests);
    TCase *const whole = tcase_create("server");
    tcase_add_checked_fixture(whole, setup_server, teardown_server);
    tcase_set_timeout(whole, 240);
    tcase_add_test(whole, calls_that_are_given_up_as_fast_as_they_begin_cost_the_connection);
    suite_add_tcase(suite, whole);
    return test_run(suite);
}
