/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "server/address.h"
#include "server/health.h"
#include "server/rpc_metrics.h"

enum { CONNECTIONS_MAX = 64, IDLE_SECONDS_MAX = 15, BACKLOG = 64, CONNECTION_MEMORY_BYTES = 16384 };

struct http {
    struct http_config config; /* but for listen */
    int port;
    struct MHD_Daemon *daemon; /* owned */

    struct lock series_lock;
    void (*render)(void *argument, struct metrics_text *text); /* guarded by series_lock */
    void *render_argument;                                     /* guarded by series_lock */
};

static enum MHD_Result answer(void *argument,
                              struct MHD_Connection *connection,
                              const char *url,
                              const char *method,
                              const char *version,
                              const char *upload_data,
                              size_t *upload_data_size,
                              void **state);

bool http_start(const struct http_config *config, struct http **http, struct status *status)
{
    int listening = -1;
    struct http *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "HTTP");
    made->config = *config;
    made->config.listen = NULL;
    lock_init(&made->series_lock, LOCK_RANK_SERVER);
    if (!address_listen(config->listen, BACKLOG, &listening, &made->port, status))
        goto fail;
    made->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer, made, MHD_OPTION_LISTEN_SOCKET,
        listening, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_SECONDS_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_END);
    if (made->daemon == NULL) {
        close(listening);
        status_fail(status, STATUS_UNAVAILABLE, "HTTP on %s cannot be started", config->listen);
        goto fail;
    }
    *http = made;
    return true;

fail:
    lock_destroy(&made->series_lock);
    free(made);
    return false;
}

void http_set_series(struct http *http,
                     void (*render)(void *argument, struct metrics_text *text),
                     void *argument)
{
    if (http == NULL)
        return;
    lock_acquire(&http->series_lock);
    http->render = render;
    http->render_argument = argument;
    lock_release(&http->series_lock);
}

void http_stop(struct http *http)
{
    if (http == NULL)
        return;
    MHD_stop_daemon(http->daemon); /* closes the listening socket */
    lock_destroy(&http->series_lock);
    free(http);
}

int http_port(const struct http *http)
{
    return http->port;
}

static enum MHD_Result answer_health(struct http *http, struct MHD_Connection *connection);
static enum MHD_Result answer_ready(struct http *http, struct MHD_Connection *connection);
static enum MHD_Result answer_metrics(struct http *http, struct MHD_Connection *connection);
static enum MHD_Result answer_index(struct http *http, struct MHD_Connection *connection);
static enum MHD_Result send_text(struct MHD_Connection *connection,
                                 unsigned int code,
                                 const char *text);

static const struct {
    const char *path;
    enum MHD_Result (*answer)(struct http *http, struct MHD_Connection *connection);
} pages[] = {{"/healthz", answer_health},
             {"/readyz", answer_ready},
             {"/metrics", answer_metrics},
             {"/", answer_index}};

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
    (void)upload_data;
    (void)upload_data_size;
    (void)state;
    struct http *const http = argument;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++)
        if (strcmp(url, pages[i].path) == 0)
            return pages[i].answer(http, connection);
    return send_text(connection, MHD_HTTP_NOT_FOUND, "not found\n");
}

static enum MHD_Result send_response(struct MHD_Connection *connection,
                                     unsigned int code,
                                     struct MHD_Response *response,
                                     const char *type)
{
    if (response == NULL)
        return MHD_NO; /* closes the connection */
    enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (result == MHD_YES && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (result == MHD_YES)
        result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_text(struct MHD_Connection *connection,
                                 unsigned int code,
                                 const char *text)
{
    /* MUST_COPY: the library does not write to it, and keeps nothing of ours. */
    struct MHD_Response *const response = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    return send_response(connection, code, response, "text/plain; charset=utf-8");
}

static enum MHD_Result answer_health(struct http *http, struct MHD_Connection *connection)
{
    if (metrics_get(http->config.metrics, METRIC_STUCK) != 0)
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stuck\n");
    return send_text(connection, MHD_HTTP_OK, "ok\n");
}

static enum MHD_Result answer_ready(struct http *http, struct MHD_Connection *connection)
{
    char reason[STATUS_MESSAGE_BYTES_MAX];
    char text[STATUS_MESSAGE_BYTES_MAX + 32];
    const enum server_state state = health_state(http->config.health, reason);
    snprintf(text, sizeof(text), "%s%s%s\n", server_state_name(state),
             reason[0] != '\0' ? ": " : "", reason);
    return send_text(connection,
                     state == SERVER_SERVING ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static enum MHD_Result answer_metrics(struct http *http, struct MHD_Connection *connection)
{
    struct metrics_text text = {0};
    metrics_render(http->config.metrics, &text);
    rpc_metrics_render(http->config.rpc_metrics, &text);
    lock_acquire(&http->series_lock);
    if (http->render != NULL)
        http->render(http->render_argument, &text);
    lock_release(&http->series_lock);
    if (text.failed || text.data == NULL) {
        metrics_text_free(&text);
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
    }
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(text.length, text.data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        metrics_text_free(&text);
    return send_response(connection, MHD_HTTP_OK, response,
                         "text/plain; version=0.0.4; charset=utf-8");
}

static enum MHD_Result answer_index(struct http *http, struct MHD_Connection *connection)
{
    (void)http;
    return send_text(connection, MHD_HTTP_OK,
                     "varve " VARVE_VERSION "\n"
                     "/healthz  the process answers\n"
                     "/readyz   it takes reads and writes\n"
                     "/metrics  for Prometheus\n");
}
