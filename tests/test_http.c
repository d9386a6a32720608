/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what /healthz, /readyz and /metrics answer as the state of the server changes, and that
 * odd requests harm nothing.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/call.h"
#include "server/health.h"
#include "server/http.h"
#include "server/rpc_metrics.h"
#include "tests/support/test_run.h"

static void never(struct call *call, void *state, const struct message *message)
{
    (void)call;
    (void)state;
    (void)message;
}

static const struct method toy = {.path = "/toy.Toys/Echo",
                                  .kind = METHOD_UNARY,
                                  .on_message = never};
static const struct method *const methods[] = {&toy};

static struct http *http;
static struct health *health;
static struct metrics metrics;
static struct rpc_metrics *rpc_metrics;
static struct status status;

static void setup(void)
{
    ck_assert(health_new(&health, &status));
    ck_assert(rpc_metrics_new(methods, 1, &rpc_metrics, &status));
    const struct http_config config = {
        .listen = "127.0.0.1:0", .health = health, .metrics = &metrics, .rpc_metrics = rpc_metrics};
    ck_assert_msg(http_start(&config, &http, &status), "%s", status.message);
    ck_assert_int_gt(http_port(http), 0);
}

static void teardown(void)
{
    http_stop(http);
    http_free(http);
    rpc_metrics_free(rpc_metrics);
    health_free(health);
}

static int connect_raw(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_port(http))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&address, sizeof(address)), 0);
    return fd;
}

static char answer[1 << 20];

/* Sends the request and reads until the server closes; the status code. */
static int ask(const char *request)
{
    const int fd = connect_raw();
    ck_assert_int_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    size_t length = 0;
    ssize_t got;
    while (length < sizeof(answer) - 1 &&
           (got = read(fd, answer + length, sizeof(answer) - 1 - length)) > 0)
        length += (size_t)got;
    answer[length] = '\0';
    close(fd);
    ck_assert_int_eq(strncmp(answer, "HTTP/1.", 7), 0);
    return (int)strtol(answer + 9, NULL, 10);
}

static int get(const char *path)
{
    char request[256];
    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             path);
    return ask(request);
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(answer, part) != NULL, "\"%s\" is not in the answer", part);
}

START_TEST(healthz_answers_in_every_state_unless_stuck_and_readyz_only_when_it_serves)
{
    static const struct {
        enum server_state state;
        const char *reason;
        int ready;
        const char *says;
    } steps[] = {
        {SERVER_STARTING, "", 503, "\r\n\r\nstarting\n"},
        {SERVER_SERVING, "", 200, "\r\n\r\nserving\n"},
        {SERVER_READ_ONLY, "a sync has failed", 503, "\r\n\r\nread-only: a sync has failed\n"},
        {SERVER_DRAINING, "", 503, "\r\n\r\ndraining\n"}};
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        health_set(health, steps[i].state, steps[i].reason);
        metrics_set(&metrics, METRIC_STUCK, 1);
        ck_assert_int_eq(get("/healthz"), 503);
        metrics_set(&metrics, METRIC_STUCK, 0);
        ck_assert_int_eq(get("/healthz"), 200);
        assert_has("\r\n\r\nok\n");
        ck_assert_int_eq(get("/readyz"), steps[i].ready);
        assert_has(steps[i].says);
    }
}
END_TEST

START_TEST(metrics_are_prometheus_text_with_every_series_from_the_start)
{
    ck_assert_int_eq(get("/metrics"), 200);
    assert_has("text/plain; version=0.0.4");
    assert_has("# TYPE varve_blobs_written_total counter\nvarve_blobs_written_total 0\n");
    assert_has("varve_rpc_total{method=\"toy.Toys/Echo\",code=\"OK\"} 0\n");
    assert_has("varve_rpc_total{method=\"other\",code=\"OK\"} 0\n");
    assert_has("varve_rpc_seconds_count{method=\"toy.Toys/Echo\"} 0\n");
    assert_has("varve_rpc_bytes_total{method=\"toy.Toys/Echo\",direction=\"received\"} 0\n");
    ck_assert_ptr_null(strstr(answer, "NOT_FOUND"));

    metrics_add(&metrics, METRIC_BLOBS_WRITTEN, 3);
    rpc_metrics_ended(rpc_metrics, 0, STATUS_NOT_FOUND, 1000);
    rpc_metrics_ended(rpc_metrics, 1, STATUS_UNIMPLEMENTED, 1000);
    rpc_metrics_received(rpc_metrics, 0, 10);
    rpc_metrics_sent(rpc_metrics, 0, 20);
    ck_assert_int_eq(get("/metrics"), 200);
    assert_has("\nvarve_blobs_written_total 3\n");
    assert_has("varve_rpc_total{method=\"toy.Toys/Echo\",code=\"OK\"} 0\n");
    assert_has("varve_rpc_total{method=\"toy.Toys/Echo\",code=\"NOT_FOUND\"} 1\n");
    assert_has("varve_rpc_total{method=\"other\",code=\"UNIMPLEMENTED\"} 1\n");
    assert_has("varve_rpc_seconds_count{method=\"toy.Toys/Echo\"} 1\n");
    assert_has("direction=\"received\"} 10\n");
    assert_has("direction=\"sent\"} 20\n");
}
END_TEST

START_TEST(head_has_no_body_and_other_methods_are_refused)
{
    ck_assert_int_eq(ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 200);
    ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    ck_assert_int_eq(ask("DELETE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 405);
    assert_has("Allow: GET, HEAD");
    ck_assert_int_eq(ask("POST /healthz HTTP/1.1\r\nHost: x\r\nConnection: "
                         "close\r\nContent-Length: 3\r\n\r\nabc"),
                     405);
}
END_TEST

START_TEST(other_paths_are_not_found_and_the_root_says_what_there_is)
{
    ck_assert_int_eq(get("/"), 200);
    assert_has("/readyz");
    /* The store is not open yet, and with it the cache. */
    ck_assert_int_eq(get("/cas/abc"), 503);
    assert_has("the server is starting");
    ck_assert_int_eq(get("/healthz/"), 503);
    ck_assert_int_eq(get("/healthz?x=1"), 200);
}
END_TEST

START_TEST(page_is_there_before_the_store_is_and_says_that_it_starts)
{
    ck_assert_int_eq(get("/"), 200);
    assert_has("Content-Security-Policy: default-src 'none'; script-src 'self';");
    assert_has("X-Content-Type-Options: nosniff");
    assert_has("text/html");
    ck_assert_int_eq(get("/page/state.json"), 200);
    assert_has("Cache-Control: no-store");
    assert_has("\"state\":\"starting\"");
    health_set(health, SERVER_READ_ONLY, "a <b>sync</b> \"failed\"");
    ck_assert_int_eq(get("/page/state.json?after=7"), 200);
    assert_has("\"state\":\"read-only\",\"reason\":\"a <b>sync</b> \\\"failed\\\"\"");
    ck_assert_int_eq(get("/page/state.json?after=x"), 400);
    ck_assert_int_eq(get("/page/lookup.json?digest=abc"), 503);
    ck_assert_int_eq(get("/page/blob"), 503);
    ck_assert_int_eq(get("/page/else"), 503);
    ck_assert_int_eq(ask("PUT /page/page.js HTTP/1.1\r\nHost: x\r\nConnection: "
                         "close\r\nContent-Length: 3\r\n\r\nabc"),
                     405);
}
END_TEST

START_TEST(silent_and_odd_clients_do_not_keep_others_out)
{
    enum { SILENT = 40 };
    static char junk[100000];
    int fds[SILENT];
    memset(junk, 'x', sizeof(junk));
    for (int i = 0; i < SILENT; i++)
        fds[i] = connect_raw();
    const int odd = connect_raw();
    ck_assert_int_gt(send(odd, junk, sizeof(junk), MSG_NOSIGNAL), 0);
    ck_assert_int_eq(get("/healthz"), 200);
    close(odd);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
}
END_TEST

START_TEST(taken_address_is_told_with_its_reason)
{
    char address[64];
    struct http *second = NULL;
    snprintf(address, sizeof(address), "127.0.0.1:%d", http_port(http));
    const struct http_config config = {
        .listen = address, .health = health, .metrics = &metrics, .rpc_metrics = rpc_metrics};
    ck_assert(!http_start(&config, &second, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status.message, address));
    ck_assert_ptr_nonnull(strstr(status.message, "Address already in use"));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("http");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, healthz_answers_in_every_state_unless_stuck_and_readyz_only_when_it_serves);
    tcase_add_test(all, metrics_are_prometheus_text_with_every_series_from_the_start);
    tcase_add_test(all, head_has_no_body_and_other_methods_are_refused);
    tcase_add_test(all, other_paths_are_not_found_and_the_root_says_what_there_is);
    tcase_add_test(all, page_is_there_before_the_store_is_and_says_that_it_starts);
    tcase_add_test(all, silent_and_odd_clients_do_not_keep_others_out);
    tcase_add_test(all, taken_address_is_told_with_its_reason);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
