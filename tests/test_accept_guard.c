/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a gRPC port lives through a shortage of descriptors, which without the guard closes
 * it for ever, and that connections over the limit are closed at once and others served again
 * later. Real sockets, real gRPC.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "server/accept_guard.h"
#include "tests/support/front_rig.h"
#include "tests/support/test_run.h"

enum { DESCRIPTORS = 128, CONNECTIONS_MAX = 20 };

static struct front_rig rig;
static struct metrics metrics;
static struct status status;

static void echo_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    grpc_slice slice = grpc_slice_from_copied_string("here");
    call_reply(call, &slice, 1);
}

static const struct method echo = {.path = "/toy.Toys/Echo",
                                   .kind = METHOD_UNARY,
                                   .on_poller = true,
                                   .on_message = echo_message};
static const struct method *const methods[] = {&echo};

static void setup(void)
{
    const struct rlimit limit = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    front_rig_start(&rig, methods, ARRAY_LENGTH(methods), NULL);
}

static void teardown(void)
{
    front_rig_stop(&rig, 10000);
    accept_guard_stop();
}

static int connect_from(const char *source)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in from = {.sin_family = AF_INET};
    ck_assert_int_eq(inet_pton(AF_INET, source, &from.sin_addr), 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)(void *)&from, sizeof(from)), 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)front_port(rig.front))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    return fd;
}

static int connect_raw(void)
{
    return connect_from("127.0.0.1");
}

/* The server greets whom it has accepted with its settings; whom it sheds it closes. */
static bool is_greeted(int fd)
{
    uint8_t byte;
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
    return read(fd, &byte, 1) == 1;
}

static bool is_served(void)
{
    struct rpc_client client;
    rpc_client_open(&client, front_port(rig.front));
    const grpc_status_code code = rpc_unary(&client, echo.path, bytes_of("x", 1), NULL, NULL, NULL);
    rpc_client_close(&client);
    return code == GRPC_STATUS_OK;
}

/* The server has closed its ends too. */
static void wait_for_no_connection(void)
{
    int64_t left = 1;
    for (int i = 0; i < 500 && left > 0; i++) {
        usleep(20000);
        accept_guard_step();
        left = metrics_get(&metrics, METRIC_CONNECTIONS);
    }
    ck_assert_int_eq(left, 0);
}

static int64_t cpu_ns(void)
{
    struct timespec used;
    ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return used.tv_sec * NS_PER_S + used.tv_nsec;
}

START_TEST(port_lives_through_a_shortage_of_descriptors)
{
    int files[DESCRIPTORS];
    int sockets[10];
    size_t count = 0;
    ck_assert(accept_guard_start(10000, 10000, 100000, &metrics, &status));
    ck_assert(is_served());
    wait_for_no_connection();

    /* The clients' sockets first, not connected yet; then everything else that there is. */
    for (size_t i = 0; i < ARRAY_LENGTH(sockets); i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(sockets[i], 0);
    }
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
        files[count++] = fd;
    ck_assert_int_eq(errno, EMFILE);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)front_port(rig.front))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < ARRAY_LENGTH(sockets); i++) {
        ck_assert_int_eq(connect(sockets[i], (struct sockaddr *)(void *)&address, sizeof(address)),
                         0);
        ck_assert(!is_greeted(sockets[i]));
    }
    /* The last one is counted right after it has been closed. */
    for (int i = 0;
         i < 500 && metrics_get(&metrics, METRIC_CONNECTIONS_SHED) < (int64_t)ARRAY_LENGTH(sockets);
         i++)
        usleep(10000);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_CONNECTIONS_SHED),
                     (int64_t)ARRAY_LENGTH(sockets));

    /* Nobody is left to be shed: the poller rests, though there still is no descriptor. */
    const int64_t before_ns = cpu_ns();
    usleep(300000);
    ck_assert_int_lt(cpu_ns() - before_ns, 150 * (int64_t)NS_PER_MS);

    for (size_t i = 0; i < count; i++)
        close(files[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(sockets); i++)
        close(sockets[i]);
    ck_assert(is_served());
}
END_TEST

START_TEST(connections_over_the_limit_are_closed_and_later_ones_served)
{
    int fds[CONNECTIONS_MAX];
    ck_assert(accept_guard_start(CONNECTIONS_MAX, 0, 100000, &metrics, &status));
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        fds[i] = connect_raw();
        ck_assert(is_greeted(fds[i]));
    }
    const int too_many = connect_raw();
    ck_assert(!is_greeted(too_many));
    close(too_many);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_CONNECTIONS_SHED), 1);

    usleep(20000);
    accept_guard_step();
    ck_assert_int_eq(metrics_get(&metrics, METRIC_CONNECTIONS), CONNECTIONS_MAX);
    close(fds[0]);
    bool served = false;
    for (int i = 0; i < 100 && !served; i++) { /* once the server has noticed */
        usleep(20000);
        fds[0] = connect_raw();
        served = is_greeted(fds[0]);
        if (!served)
            close(fds[0]);
    }
    ck_assert(served);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        close(fds[i]);
    wait_for_no_connection();
    ck_assert(is_served());
}
END_TEST

START_TEST(connections_of_one_address_are_bounded_and_others_are_served)
{
    enum { OF_ONE = 5 };
    int fds[OF_ONE];
    ck_assert(accept_guard_start(10000, OF_ONE, 100000, &metrics, &status));
    for (int i = 0; i < OF_ONE; i++) {
        fds[i] = connect_raw();
        ck_assert(is_greeted(fds[i]));
    }
    const int too_many = connect_raw();
    ck_assert(!is_greeted(too_many));
    close(too_many);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_LIMITED_CONNECTIONS), 1);
    const int other = connect_from("127.0.0.2");
    ck_assert(is_greeted(other));
    close(other);
    for (int i = 0; i < OF_ONE; i++)
        close(fds[i]);
    wait_for_no_connection();
    ck_assert(is_served());
}
END_TEST

/* Descriptors below the limit stay free for files. */
START_TEST(connections_do_not_take_the_last_descriptors)
{
    int fds[DESCRIPTORS];
    int count = 0;
    bool greeted = true;
    ck_assert(accept_guard_start(10000, 0, DESCRIPTORS / 2, &metrics, &status));
    while (greeted && count < DESCRIPTORS / 2) {
        fds[count] = connect_raw();
        greeted = is_greeted(fds[count++]);
    }
    ck_assert(!greeted);
    ck_assert_int_ge(metrics_get(&metrics, METRIC_CONNECTIONS_SHED), 1);
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(file, 0);
    close(file);
    for (int i = 0; i < count; i++)
        close(fds[i]);
}
END_TEST

START_TEST(closed_descriptor_that_became_a_file_is_no_connection)
{
    ck_assert(accept_guard_start(CONNECTIONS_MAX, 0, 100000, &metrics, &status));
    for (int i = 0; i < 5 * CONNECTIONS_MAX; i++)
        ck_assert(is_served()); /* connections come and go, their numbers are used again */
    ck_assert_int_eq(metrics_get(&metrics, METRIC_CONNECTIONS_SHED), 0);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("accept_guard");
    TCase *const all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, port_lives_through_a_shortage_of_descriptors);
    tcase_add_test(all, connections_over_the_limit_are_closed_and_later_ones_served);
    tcase_add_test(all, connections_of_one_address_are_bounded_and_others_are_served);
    tcase_add_test(all, connections_do_not_take_the_last_descriptors);
    tcase_add_test(all, closed_descriptor_that_became_a_file_is_no_connection);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
