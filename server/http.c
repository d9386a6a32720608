/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "server/accept_guard.h"
#include "server/address.h"
#include "server/health.h"
#include "server/http_cache.h"
#include "server/http_connections.h"
#include "server/http_page.h"
#include "server/http_tls.h"
#include "server/instance_metrics.h"
#include "server/page_state.h"
#include "server/rpc_metrics.h"
#include "server/server.h"
#include "server/slow_calls.h"

enum {
    CONNECTIONS_MAX = 64,
    IDLE_SECONDS_MAX = 15,
    BACKLOG = 1024, /* clients open a hundred at once and do not try again */
    CONNECTION_MEMORY_BYTES = 65536,
    THREADS = 4,
    OPTIONS_MAX = 16,
    RETRY_AFTER_S = 2,
    SPARE_CONNECTIONS = 64, /* of each thread: those that are being closed, and one more */
};
static const int64_t stop_pause_ns = 5 * NS_PER_MS;

struct http {
    struct http_config config; /* but for listen */
    int port;
    struct MHD_Daemon *daemon; /* owned */
    struct server *_Atomic server;
    _Atomic bool draining;
    _Atomic bool stopping;
    struct http_spools spools;
    struct http_connections *connections; /* owned */

    struct lock lock;
    struct http_request *requests; /* guarded by lock: in progress */
    void (*render)(void *argument,
                   struct metrics_text *text); /* guarded by lock, as render_argument */
    void *render_argument;
};

static enum MHD_Result answer(void *argument,
                              struct MHD_Connection *connection,
                              const char *url,
                              const char *method,
                              const char *version,
                              const char *upload_data,
                              size_t *upload_data_size,
                              void **state);
static void completed(void *argument,
                      struct MHD_Connection *connection,
                      void **state,
                      enum MHD_RequestTerminationCode why);
static void connected(void *argument,
                      struct MHD_Connection *connection,
                      void **context,
                      enum MHD_ConnectionNotificationCode what);
static void drop_log_line(void *argument, const char *format, va_list values);

static void add_option(struct MHD_OptionItem *items,
                       size_t *count,
                       enum MHD_OPTION option,
                       intptr_t value,
                       void *pointer)
{
    ASSERT(*count < OPTIONS_MAX - 1);
    items[(*count)++] =
        (struct MHD_OptionItem){.option = option, .value = value, .ptr_value = pointer};
}

bool http_start(const struct http_config *config, struct http **http, struct status *status)
{
    int listening = -1;
    struct tls_files *files = NULL;
    struct http *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "HTTP");
    lock_init(&made->lock, LOCK_RANK_SERVER);
    made->config = *config;
    made->config.listen = NULL;
    if (!address_listen(config->listen, BACKLOG, &listening, &made->port, status))
        goto fail;

    struct MHD_OptionItem options[OPTIONS_MAX];
    size_t count = 0;
    unsigned int flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    const uint64_t connections =
        config->connections_max > 0 ? config->connections_max : CONNECTIONS_MAX;
    const int64_t idle_s = config->idle_ns > 0 ? config->idle_ns / NS_PER_S : IDLE_SECONDS_MAX;
    if (!http_connections_new(connections, config->address_connections_max, idle_s * NS_PER_S,
                              clock_real(), config->metrics, &made->connections, status)) {
        close(listening);
        goto fail;
    }
    /* The library's own bound, which is one for each thread, makes others wait. Ours comes before it. */
    const uint64_t connections_max =
        THREADS * (http_connections_max(made->connections) + SPARE_CONNECTIONS);
    accept_guard_leave_alone(listening, config->spare_descriptors);
    add_option(options, &count, MHD_OPTION_LISTEN_SOCKET, listening, NULL);
    add_option(options, &count, MHD_OPTION_CONNECTION_LIMIT, (intptr_t)connections_max, NULL);
    add_option(options, &count, MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(idle_s > 0 ? idle_s : 1),
               NULL);
    add_option(options, &count, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, NULL);
    add_option(options, &count, MHD_OPTION_THREAD_POOL_SIZE, THREADS, NULL);
    add_option(options, &count, MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)completed, made);
    add_option(options, &count, MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connected, made);
    if (config->tls != NULL) {
        http_tls_start(config->tls);
        files = tls_take(config->tls);
        flags |= MHD_USE_TLS;
        add_option(options, &count, MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)http_tls_retrieve);
        if (files->client_ca != NULL)
            add_option(options, &count, MHD_OPTION_HTTPS_MEM_TRUST, 0, files->client_ca);
    }
    add_option(options, &count, MHD_OPTION_END, 0, NULL);
    made->daemon = MHD_start_daemon(flags, 0, NULL, NULL, answer, made, MHD_OPTION_EXTERNAL_LOGGER,
                                    drop_log_line, NULL, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    tls_files_unref(files);
    if (made->daemon == NULL) {
        close(listening);
        status_fail(status, STATUS_UNAVAILABLE, "HTTP on %s cannot be started", config->listen);
        goto fail;
    }
    *http = made;
    return true;

fail:
    http_tls_stop();
    http_connections_free(made->connections);
    lock_destroy(&made->lock);
    free(made);
    return false;
}

static void connected(void *argument,
                      struct MHD_Connection *connection,
                      void **context,
                      enum MHD_ConnectionNotificationCode what)
{
    struct http *const http = argument;
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && info != NULL) {
        *context = http_connection_open(http->connections, info->connect_fd,
                                        address_of_peer(info->connect_fd));
    } else if (what == MHD_CONNECTION_NOTIFY_CLOSED && *context != NULL) {
        http_connection_close(*context);
        *context = NULL;
    }
}

/* Of clients that misbehave; what fails for us is answered and counted. */
static void drop_log_line(void *argument, const char *format, va_list values)
{
    (void)argument;
    (void)format;
    (void)values;
}

void http_serve(struct http *http, struct server *server)
{
    http->spools.directory = server->config->data;
    atomic_store(&http->server, server);
}

void http_set_series(struct http *http,
                     void (*render)(void *argument, struct metrics_text *text),
                     void *argument)
{
    if (http == NULL)
        return;
    lock_acquire(&http->lock);
    http->render = render;
    http->render_argument = argument;
    lock_release(&http->lock);
}

void http_step(struct http *http)
{
    if (http != NULL)
        http_connections_step(http->connections);
}

static size_t requests_in_progress(struct http *http)
{
    size_t count = 0;
    lock_acquire(&http->lock);
    for (const struct http_request *at = http->requests; at != NULL; at = at->next)
        count++;
    lock_release(&http->lock);
    return count;
}

void http_drain(struct http *http, int64_t grace_ns)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + grace_ns;
    atomic_store(&http->draining, true);
    while (requests_in_progress(http) > 0 && clock_monotonic_ns(clock_real()) < until_ns)
        clock_pause(stop_pause_ns);
}

/* Nobody may be parked when the daemon ends. Those who wait for the disk are woken by it, the others here. */
void http_stop(struct http *http)
{
    if (http == NULL)
        return;
    atomic_store(&http->draining, true);
    atomic_store(&http->stopping, true);
    for (bool parked = true; parked;) {
        parked = false;
        lock_acquire(&http->lock);
        for (struct http_request *at = http->requests; at != NULL; at = at->next) {
            lock_acquire(&at->lock);
            parked |= at->parked || at->busy;
            const bool gives_up = at->parked && !at->busy;
            if (gives_up) {
                at->parked = false;
                MHD_resume_connection(at->connection);
            }
            lock_release(&at->lock);
        }
        lock_release(&http->lock);
        if (parked)
            clock_pause(stop_pause_ns);
    }
    MHD_stop_daemon(http->daemon); /* closes the listening socket */
    http_tls_stop();
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    http_connections_free(http->connections);
    lock_destroy(&http->lock);
    free(http);
}

int http_port(const struct http *http)
{
    return http->port;
}

/* ---- waiting */

bool http_park(struct http_request *request)
{
    lock_acquire(&request->lock);
    const bool park = !request->woken && (request->busy || !http_is_stopping(request));
    request->woken = false;
    if (park) {
        request->parked = true;
        http_connection_hold(request->door, true);
        MHD_suspend_connection(request->connection);
    }
    lock_release(&request->lock);
    return park;
}

bool http_busy(struct http_request *request)
{
    lock_acquire(&request->lock);
    const bool may = !http_is_stopping(request);
    request->busy = may;
    request->woken = false;
    lock_release(&request->lock);
    return may;
}

static void wake_locked(struct http_request *request) REQUIRES(request->lock);
static void wake_locked(struct http_request *request)
{
    if (request->parked) {
        request->parked = false;
        MHD_resume_connection(request->connection);
    } else {
        request->woken = true;
    }
}

void http_nudge(struct http_request *request)
{
    lock_acquire(&request->lock);
    if (!request->busy)
        wake_locked(request);
    lock_release(&request->lock);
}

void http_wake(struct http_request *request)
{
    lock_acquire(&request->lock);
    request->busy = false;
    wake_locked(request);
    lock_release(&request->lock);
}

bool http_is_stopping(const struct http_request *request)
{
    return atomic_load(&request->http->stopping);
}

void http_moved(struct http_request *request, size_t bytes)
{
    http_connection_moved(request->door, bytes);
    limits_moved(&request->ticket, bytes);
}

struct http_spools *http_spools(const struct http_request *request)
{
    return &request->http->spools;
}

struct server *http_server(const struct http_request *request)
{
    return atomic_load(&request->http->server);
}

void http_page_state(const struct http_request *request, struct page_state *state)
{
    const struct http_config *const config = &request->http->config;
    *state = (struct page_state){.health = config->health,
                                 .metrics = config->metrics,
                                 .rpc_metrics = config->rpc_metrics,
                                 .server = http_server(request)};
}

/* ---- a request */

static struct http_request *request_new(struct http *http,
                                        struct MHD_Connection *connection,
                                        const char *url,
                                        const char *method);
static void request_free(struct http_request *request);
static enum MHD_Result with_headers(struct http_request *request);
static enum MHD_Result identified(struct http_request *request,
                                  enum access_answer answer,
                                  const struct status *status);
static enum MHD_Result enter(struct http_request *request);
static enum MHD_Result answer_page(struct http_request *request);

static enum MHD_Result answer(void *argument,
                              struct MHD_Connection *connection,
                              const char *url,
                              const char *method,
                              const char *version,
                              const char *upload_data,
                              size_t *upload_data_size,
                              void **state)
{
    (void)version;
    struct http_request *request = *state;
    if (request == NULL) {
        request = request_new(argument, connection, url, method);
        *state = request;
        return request != NULL ? with_headers(request) : MHD_NO; /* which closes the connection */
    }
    /* Whoever has woken it has let go of it. */
    lock_acquire(&request->lock);
    lock_release(&request->lock);
    http_connection_hold(request->door, false);
    switch (request->stage) {
    case HTTP_HEADERS:
        return with_headers(request);
    case HTTP_ENTERING:
        return enter(request);
    case HTTP_IDENTIFYING:
        access_caller_clear(&request->caller);
        request->caller = request->question.caller;
        return identified(request, request->question.answer, &request->question.status);
    case HTTP_BODY:
        http_moved(request, *upload_data_size);
        if (*upload_data_size > 0)
            return http_cache_body(request, upload_data, upload_data_size);
        request->stage = HTTP_FINISHING;
        break;
    case HTTP_FINISHING:
        break;
    }
    if (*upload_data_size > 0) { /* of something that takes none */
        *upload_data_size = 0;
        return MHD_YES;
    }
    if (request->failed)
        return http_reply_failure(request, request->failed_code, &request->status);
    return request->place == HTTP_PLACE_PAGE ? answer_page(request) : http_cache_finish(request);
}

static enum http_method method_of(const char *name)
{
    static const char *const names[HTTP_OTHER] = {
        [HTTP_GET] = "GET",        [HTTP_HEAD] = "HEAD",         [HTTP_PUT] = "PUT",
        [HTTP_DELETE] = "DELETE",  [HTTP_PROPFIND] = "PROPFIND", [HTTP_MKCOL] = "MKCOL",
        [HTTP_OPTIONS] = "OPTIONS"};
    for (int i = 0; i < HTTP_OTHER; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum http_method)i;
    return HTTP_OTHER;
}

static void put_peer(struct MHD_Connection *connection, char to[ACCESS_PEER_BYTES_MAX])
{
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[INET6_ADDRSTRLEN] = "unknown";
    uint16_t port = 0;
    if (info != NULL && info->client_addr != NULL && info->client_addr->sa_family == AF_INET) {
        const struct sockaddr_in *const four = (const void *)info->client_addr;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
        port = ntohs(four->sin_port);
    } else if (info != NULL && info->client_addr != NULL &&
               info->client_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *const six = (const void *)info->client_addr;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
        port = ntohs(six->sin6_port);
    }
    static const char mapped[] = "::ffff:";
    const bool is_mapped =
        strncmp(host, mapped, sizeof(mapped) - 1) == 0 && strchr(host, '.') != NULL;
    if (is_mapped || strchr(host, ':') == NULL)
        snprintf(to, ACCESS_PEER_BYTES_MAX, "http:%s:%u",
                 is_mapped ? host + sizeof(mapped) - 1 : host, port);
    else
        snprintf(to, ACCESS_PEER_BYTES_MAX, "http:[%s]:%u", host, port);
}

static struct http_request *request_new(struct http *http,
                                        struct MHD_Connection *connection,
                                        const char *url,
                                        const char *method)
{
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL)
        return NULL; /* there was no memory for it */
    struct http_request *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->door = info->socket_context;
    lock_init(&made->lock, LOCK_RANK_CALL);
    made->http = http;
    made->connection = connection;
    made->method = method_of(method);
    made->arrived_ns = clock_monotonic_ns(clock_real());
    made->series = INSTANCE_METRICS_NONE;
    made->url = strdup(url);
    put_peer(connection, made->peer);
    if (made->url == NULL) {
        lock_destroy(&made->lock);
        free(made);
        return NULL;
    }
    lock_acquire(&http->lock);
    made->next = http->requests;
    if (made->next != NULL)
        made->next->previous = made;
    http->requests = made;
    lock_release(&http->lock);
    return made;
}

static void completed(void *argument,
                      struct MHD_Connection *connection,
                      void **state,
                      enum MHD_RequestTerminationCode why)
{
    (void)argument;
    (void)connection;
    (void)why;
    if (*state != NULL)
        request_free(*state);
    *state = NULL;
}

static enum rpc_metrics_http series_method(const struct http_request *request)
{
    static const enum rpc_metrics_http methods[][3] = {
        [HTTP_PLACE_CAS] = {RPC_METRICS_HTTP_GET_CAS, RPC_METRICS_HTTP_HEAD_CAS,
                            RPC_METRICS_HTTP_PUT_CAS},
        [HTTP_PLACE_AC] = {RPC_METRICS_HTTP_GET_AC, RPC_METRICS_HTTP_HEAD_AC,
                           RPC_METRICS_HTTP_PUT_AC},
        [HTTP_PLACE_KEY] = {RPC_METRICS_HTTP_GET_KEY, RPC_METRICS_HTTP_HEAD_KEY,
                            RPC_METRICS_HTTP_PUT_KEY}};
    _Static_assert(HTTP_GET == 0 && HTTP_HEAD == 1 && HTTP_PUT == 2, "they are the columns");
    const bool has_series = request->place >= HTTP_PLACE_CAS && request->place <= HTTP_PLACE_KEY;
    return has_series && request->method <= HTTP_PUT ? methods[request->place][request->method]
                                                     : RPC_METRICS_HTTP_OTHER;
}

static void note_if_slow(const struct http_request *request, const struct instance_request *ended)
{
    struct slow_calls *const slow_calls = http_server(request)->slow_calls;
    char instance[SLOW_CALL_INSTANCE_BYTES_MAX];
    if (slow_calls == NULL || ended->duration_ns < slow_calls->threshold_ns)
        return;
    size_t length = request->instance.length < sizeof(instance) ? request->instance.length
                                                                : sizeof(instance) - 1;
    length = bytes_utf8_prefix(bytes_of(request->instance.data, length));
    if (length > 0)
        memcpy(instance, request->instance.data, length);
    instance[length] = '\0';
    const struct slow_call slow = {
        .method = rpc_metrics_http_name(series_method(request)),
        .instance = instance,
        .user = access_caller_name(&request->caller),
        .peer = request->peer,
        .code = ended->code,
        .duration_ns = ended->duration_ns,
        .received_bytes = ended->received_bytes,
        .sent_bytes = ended->sent_bytes,
    };
    slow_calls_note(slow_calls, &slow, clock_monotonic_ns(clock_real()));
}

/* In the series of its instance. */
static void count_ended(struct http_request *request)
{
    struct rpc_metrics *const metrics = request->http->config.rpc_metrics;
    if (request->series == INSTANCE_METRICS_NONE)
        return;
    struct instance_metrics *const instances = rpc_metrics_instances(metrics);
    const size_t method = rpc_metrics_http_method(metrics, series_method(request));
    const struct instance_request ended = {.code = request->code,
                                           .duration_ns = clock_monotonic_ns(clock_real()) -
                                                          request->arrived_ns,
                                           .received_bytes = request->received_bytes,
                                           .sent_bytes = request->sent_bytes};
    instance_metrics_ended(instances, request->series, method, &ended);
    note_if_slow(request, &ended);
    if (request->method == HTTP_GET || request->method == HTTP_HEAD)
        instance_metrics_looked_up(instances, request->series, method, request->code == STATUS_OK,
                                   request->code == STATUS_NOT_FOUND);
}

static void request_free(struct http_request *request)
{
    struct http *const http = request->http;
    http_connection_leave(request->door);
    limits_leave(&request->ticket);
    count_ended(request);
    lock_acquire(&http->lock);
    if (request->next != NULL)
        request->next->previous = request->previous;
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        http->requests = request->next;
    lock_release(&http->lock);
    http_cache_clear(request);
    http_page_clear(request);
    access_caller_clear(&request->caller);
    if (request->authorization != NULL)
        explicit_bzero(request->authorization, strlen(request->authorization));
    free(request->authorization);
    byte_builder_free(&request->certificate);
    lock_destroy(&request->lock);
    free(request->url);
    free(request);
}

/* ---- who asks */

static const char *const open_pages[] = {"/healthz", "/readyz", "/status"};

static void fail_with(struct http_request *request, unsigned int code, const struct status *status)
{
    if (request->failed)
        return;
    request->failed = true;
    request->failed_code = code;
    request->status = *status;
}

/*
 * The answer before the body has come closes the connection; a small body is better taken in and thrown away. Those that wait for
 * "100 Continue" send none.
 */
static enum MHD_Result fail_early(struct http_request *request)
{
    uint64_t length = 0;
    const bool small =
        http_header(request, MHD_HTTP_HEADER_EXPECT).length == 0 &&
        (!http_length_parse(http_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH), &length) ||
         length <= MIB);
    request->stage = HTTP_FINISHING;
    if (request->method != HTTP_PUT || small)
        return MHD_YES;
    return http_reply_failure(request, request->failed_code, &request->status);
}

static bool is_open_page(const struct http_request *request)
{
    for (size_t i = 0; i < ARRAY_LENGTH(open_pages); i++)
        if (strcmp(request->url, open_pages[i]) == 0)
            return true;
    return false;
}

static bool take_certificate(struct http_request *request, struct status *status)
{
    struct tls *const tls = request->http->config.tls;
    const union MHD_ConnectionInfo *const info =
        tls != NULL
            ? MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION)
            : NULL;
    if (info == NULL || info->tls_session == NULL)
        return true;
    if (!http_tls_client(tls, info->tls_session, &request->certificate, status))
        return false;
    return request->certificate.length > 0 || tls_client_auth(tls) != TLS_CLIENT_REQUIRED ||
           status_fail(status, STATUS_UNAUTHENTICATED, "a client certificate is needed here");
}

static void answered(struct access_question *question)
{
    http_wake(CONTAINER_OF(question, struct http_request, question));
}

static enum MHD_Result with_headers(struct http_request *request)
{
    struct http *const http = request->http;
    struct status status = {0};
    const bool is_page = http_page_route(request);
    if (is_page ? http_page_is_open(request) : is_open_page(request)) {
        request->stage = HTTP_FINISHING;
        return MHD_YES;
    }
    const bool needs_store =
        is_page ? http_page_needs_store(request) : strcmp(request->url, "/metrics") != 0;
    if (needs_store) {
        if (http_server(request) == NULL || atomic_load(&http->draining)) {
            status_fail(&status, STATUS_UNAVAILABLE, "the server is %s",
                        http_server(request) == NULL ? "starting" : "stopping");
            fail_with(request, 0, &status);
            return fail_early(request);
        }
    }
    if (needs_store && !is_page) {
        request->place = HTTP_PLACE_NONE;
        if (!http_cache_route(request, &status)) {
            fail_with(request, 0, &status);
            return fail_early(request);
        }
    }
    if (!take_certificate(request, &status)) {
        fail_with(request, 0, &status);
        return fail_early(request);
    }
    if (http->config.access == NULL)
        return identified(request, ACCESS_YES, &status);
    const char *const shown = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                          MHD_HTTP_HEADER_AUTHORIZATION);
    request->authorization = strdup(shown != NULL ? shown : "");
    if (request->authorization == NULL)
        return MHD_NO;
    const struct access_shown credentials = {
        .authorization = bytes_of_string(request->authorization),
        .certificate = bytes_of(request->certificate.data, request->certificate.length),
        .peer = request->peer};
    const enum access_answer answer =
        access_authenticate(http->config.access, &credentials, &request->caller, &status);
    if (answer != ACCESS_LATER)
        return identified(request, answer, &status);
    request->stage = HTTP_IDENTIFYING;
    request->question = (struct access_question){.done = answered, .shown = credentials};
    if (!http_busy(request)) {
        request->stage = HTTP_HEADERS;
        status_fail(&status, STATUS_UNAVAILABLE, "the server is stopping");
        return identified(request, ACCESS_NO, &status);
    }
    access_ask(http->config.access, &request->question);
    if (http_park(request))
        return MHD_YES;
    request->caller = request->question.caller;
    return identified(request, request->question.answer, &request->question.status);
}

static enum MHD_Result identified(struct http_request *request,
                                  enum access_answer answer,
                                  const struct status *status)
{
    struct status why = *status;
    bool ok = answer == ACCESS_YES;
    if (ok && request->page != NULL)
        ok = http_page_check(request, &why);
    else if (ok && request->place == HTTP_PLACE_PAGE)
        ok = access_check_somewhere(&request->caller, ROLE_ANY, &why);
    else if (ok && request->place == HTTP_PLACE_NONE)
        ok = status_fail(&why, STATUS_NOT_FOUND, "not found");
    else if (ok) {
        ok = access_check(&request->caller, http_cache_role(request), request->instance, &why);
        request->series =
            instance_metrics_find(rpc_metrics_instances(request->http->config.rpc_metrics),
                                  request->instance, ok ? INSTANCE_ADD : INSTANCE_FIND);
        if (ok && http_cache_role(request) != ROLE_READ &&
            !health_check_writes(request->http->config.health, &why)) {
            metrics_add(request->http->config.metrics, METRIC_WRITES_REFUSED, 1);
            fail_with(request, MHD_HTTP_SERVICE_UNAVAILABLE, &why);
            return fail_early(request);
        }
    }
    if (!ok) {
        const bool limited = answer == ACCESS_NO && why.code == STATUS_RESOURCE_EXHAUSTED;
        fail_with(request, limited ? MHD_HTTP_TOO_MANY_REQUESTS : 0, &why);
        return fail_early(request);
    }
    request->stage = HTTP_BODY;
    if (request->place == HTTP_PLACE_PAGE)
        return MHD_YES;
    struct limits *const limits = request->http->config.limits;
    if (limits != NULL &&
        !limits_enter(limits, &request->caller, &request->ticket, &request->retry_ns, &why)) {
        fail_with(request, MHD_HTTP_TOO_MANY_REQUESTS, &why);
        return fail_early(request);
    }
    return enter(request);
}

static void turn_has_come(void *argument)
{
    http_nudge(argument);
}

static enum MHD_Result enter(struct http_request *request)
{
    struct status why = {0};
    for (;;) {
        const enum http_entrance entrance =
            http_connection_enter(request->door, turn_has_come, request);
        if (entrance == HTTP_ENTERED)
            break;
        if (entrance == HTTP_NO_ROOM || http_is_stopping(request)) {
            status_fail(&why, STATUS_UNAVAILABLE,
                        "too many requests are in progress here (http-connections, or of one "
                        "address http-address-connections); try again "
                        "later");
            fail_with(request, 0, &why);
            return fail_early(request);
        }
        request->stage = HTTP_ENTERING;
        if (http_park(request))
            return MHD_YES;
    }
    request->stage = HTTP_BODY;
    const enum MHD_Result result = http_cache_headers(request);
    return request->failed ? fail_early(request) : result;
}

struct bytes http_header(const struct http_request *request, const char *name)
{
    const char *const value =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
    return value != NULL ? bytes_of_string(value) : bytes_of(NULL, 0);
}

/* ---- answers */

static unsigned int code_of(enum status_code code)
{
    switch (code) {
    case STATUS_OK:
        return MHD_HTTP_OK;
    case STATUS_INVALID_ARGUMENT:
        return MHD_HTTP_BAD_REQUEST;
    case STATUS_UNAUTHENTICATED:
        return MHD_HTTP_UNAUTHORIZED;
    case STATUS_PERMISSION_DENIED:
        return MHD_HTTP_FORBIDDEN;
    case STATUS_NOT_FOUND:
    case STATUS_DATA_LOSS:
        return MHD_HTTP_NOT_FOUND;
    case STATUS_OUT_OF_RANGE:
        return MHD_HTTP_CONTENT_TOO_LARGE;
    case STATUS_UNIMPLEMENTED:
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    case STATUS_RESOURCE_EXHAUSTED:
        return MHD_HTTP_INSUFFICIENT_STORAGE;
    case STATUS_UNAVAILABLE:
    case STATUS_ABORTED:
    case STATUS_CANCELLED:
    case STATUS_DEADLINE_EXCEEDED:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

/* The way back. */
static enum status_code status_of(unsigned int code)
{
    switch (code) {
    case MHD_HTTP_BAD_REQUEST:
        return STATUS_INVALID_ARGUMENT;
    case MHD_HTTP_UNAUTHORIZED:
        return STATUS_UNAUTHENTICATED;
    case MHD_HTTP_FORBIDDEN:
        return STATUS_PERMISSION_DENIED;
    case MHD_HTTP_NOT_FOUND:
        return STATUS_NOT_FOUND;
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        return STATUS_UNIMPLEMENTED;
    case MHD_HTTP_CONTENT_TOO_LARGE:
    case MHD_HTTP_RANGE_NOT_SATISFIABLE:
        return STATUS_OUT_OF_RANGE;
    case MHD_HTTP_TOO_MANY_REQUESTS:
    case MHD_HTTP_INSUFFICIENT_STORAGE:
        return STATUS_RESOURCE_EXHAUSTED;
    case MHD_HTTP_SERVICE_UNAVAILABLE:
        return STATUS_UNAVAILABLE;
    default:
        return code < 400 ? STATUS_OK : STATUS_INTERNAL;
    }
}

static void count(struct http_request *request, unsigned int code)
{
    struct metrics *const metrics = request->http->config.metrics;
    if (request->place == HTTP_PLACE_PAGE)
        return;
    if (code < 400)
        metrics_add(metrics, METRIC_HTTP_OK, 1);
    else if (code == MHD_HTTP_NOT_FOUND)
        metrics_add(metrics, METRIC_HTTP_MISSES, 1);
    else if (code < 500)
        metrics_add(metrics, METRIC_HTTP_REFUSED, 1);
    else
        metrics_add(metrics, METRIC_HTTP_FAILED, 1);
}

enum MHD_Result http_reply(struct http_request *request,
                           unsigned int code,
                           struct MHD_Response *response)
{
    if (response == NULL)
        return MHD_NO; /* closes the connection */
    request->code = status_of(code);
    count(request, code);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    enum MHD_Result result = MHD_queue_response(request->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *text_response(const char *text, const char *type)
{
    /* MUST_COPY: the library does not write to it, and keeps nothing of ours. */
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (response != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    return response;
}

enum MHD_Result http_reply_text(struct http_request *request, unsigned int code, const char *text)
{
    return http_reply(request, code, text_response(text, "text/plain; charset=utf-8"));
}

enum MHD_Result http_reply_empty(struct http_request *request, unsigned int code)
{
    return http_reply(request, code,
                      MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result http_reply_failure(struct http_request *request,
                                   unsigned int code,
                                   const struct status *status)
{
    char text[STATUS_MESSAGE_BYTES_MAX + 2];
    char seconds[8];
    if (code == 0)
        code = code_of(status->code);
    snprintf(text, sizeof(text), "%s\n", status->message);
    struct MHD_Response *const response = text_response(text, "text/plain; charset=utf-8");
    if (response == NULL)
        return MHD_NO;
    if (code == MHD_HTTP_UNAUTHORIZED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                "Basic realm=\"varve\", charset=\"UTF-8\"");
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                "Bearer realm=\"varve\"");
    }
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                request->place == HTTP_PLACE_PAGE  ? "GET, HEAD"
                                : request->place == HTTP_PLACE_KEY ? "GET, HEAD, PUT, DELETE, "
                                                                     "PROPFIND, MKCOL, OPTIONS"
                                                                   : "GET, HEAD, PUT");
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE || code == MHD_HTTP_TOO_MANY_REQUESTS) {
        const int64_t wait_s = (request->retry_ns + NS_PER_S - 1) / NS_PER_S;
        snprintf(seconds, sizeof(seconds), "%d", wait_s > 0 ? (int)wait_s : RETRY_AFTER_S);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    return http_reply(request, code, response);
}

/* ---- pages */

static enum MHD_Result answer_health(struct http_request *request);
static enum MHD_Result answer_status(struct http_request *request);
static enum MHD_Result answer_ready(struct http_request *request);
static enum MHD_Result answer_metrics(struct http_request *request);

static const struct {
    const char *path;
    enum MHD_Result (*answer)(struct http_request *request);
} pages[] = {{"/healthz", answer_health},
             {"/readyz", answer_ready},
             {"/status", answer_status},
             {"/metrics", answer_metrics}};

static enum MHD_Result answer_page(struct http_request *request)
{
    if (request->method != HTTP_GET && request->method != HTTP_HEAD) {
        struct status status = {0};
        status_fail(&status, STATUS_UNIMPLEMENTED, "only GET and HEAD");
        return http_reply_failure(request, 0, &status);
    }
    if (request->page != NULL)
        return http_page_answer(request);
    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++)
        if (strcmp(request->url, pages[i].path) == 0)
            return pages[i].answer(request);
    return http_reply_text(request, MHD_HTTP_NOT_FOUND, "not found\n");
}

/* For clients of the cache that look whether anybody is there. */
static enum MHD_Result answer_status(struct http_request *request)
{
    return http_reply_text(request, MHD_HTTP_OK, "ok\n");
}

static enum MHD_Result answer_health(struct http_request *request)
{
    if (metrics_get(request->http->config.metrics, METRIC_STUCK) != 0)
        return http_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "stuck\n");
    return http_reply_text(request, MHD_HTTP_OK, "ok\n");
}

static enum MHD_Result answer_ready(struct http_request *request)
{
    char reason[STATUS_MESSAGE_BYTES_MAX];
    char text[STATUS_MESSAGE_BYTES_MAX + 32];
    const enum server_state state = health_state(request->http->config.health, reason);
    snprintf(text, sizeof(text), "%s%s%s\n", server_state_name(state),
             reason[0] != '\0' ? ": " : "", reason);
    return http_reply_text(
        request, state == SERVER_SERVING ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static enum MHD_Result answer_metrics(struct http_request *request)
{
    static const char open_type[] = "application/openmetrics-text";
    const struct bytes accepted = http_header(request, MHD_HTTP_HEADER_ACCEPT);
    const bool open = accepted.length > 0 && memmem(accepted.data, accepted.length, open_type,
                                                    sizeof(open_type) - 1) != NULL;
    struct metrics_text text = {0};
    metrics_render(request->http->config.metrics, &text);
    rpc_metrics_render(request->http->config.rpc_metrics, &text);
    lock_acquire(&request->http->lock);
    if (request->http->render != NULL)
        request->http->render(request->http->render_argument, &text);
    lock_release(&request->http->lock);
    if (open)
        metrics_text_to_open(&text);
    if (text.failed || text.data == NULL) {
        metrics_text_free(&text);
        return http_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
    }
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(text.length, text.data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        metrics_text_free(&text);
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                     : "text/plain; version=0.0.4; charset=utf-8");
    return http_reply(request, MHD_HTTP_OK, response);
}
