/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc.health.v1.Health. The server as a whole ("") and the services that write are NOT_SERVING
 * while it starts, stops, is drained, or refuses writes since a sync has failed; services that only
 * read go on SERVING in the last case.
 */
#include "grpc/health/v1/health.pb-c.h"
#include "server/health.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/services.h"

typedef Grpc__Health__V1__HealthCheckRequest check_request;
typedef Grpc__Health__V1__HealthCheckResponse check_response;
typedef Grpc__Health__V1__HealthListResponse list_response;
typedef Grpc__Health__V1__HealthListResponse__StatusesEntry list_entry;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define STATUS_OF(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

static serving_status status_of(enum server_state state, bool writes)
{
    if (state == SERVER_SERVING || (state == SERVER_READ_ONLY && !writes))
        return STATUS_OF(SERVING);
    return STATUS_OF(NOT_SERVING);
}

/* Is there such a service, and does it write? The empty name is the server, which does. */
static bool find_service(struct server *server, const char *name, bool *writes)
{
    struct services services;
    services_of_methods(server->methods, server->methods_count, &services);
    const struct service *const service = services_find(&services, bytes_of_string(name));
    *writes = name[0] == '\0' || (service != NULL && service->writes);
    return name[0] == '\0' || service != NULL;
}

static check_request *unpack(struct call *call, const struct message *message)
{
    struct status status = {0};
    check_request *const request = (check_request *)(void *)call_unpack(
        call, message, &grpc__health__v1__health_check_request__descriptor, &status);
    if (request == NULL)
        call_fail(call, &status);
    return request;
}

/* ---- Check */

static void check_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    const check_request *const request = unpack(call, message);
    if (request == NULL)
        return;
    struct server *const server = call_server(call);
    bool writes;
    if (!find_service(server, request->service, &writes)) {
        struct status status = {0};
        status_fail(&status, STATUS_NOT_FOUND, "this server has no service %.100s",
                    request->service);
        call_fail(call, &status);
        return;
    }
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = status_of(health_state(server->health, NULL), writes);
    call_reply_packed(call, &response.base);
}

const struct method rpc_health_check = {.path = "/grpc.health.v1.Health/Check",
                                        .kind = METHOD_UNARY,
                                        .role = ROLE_NONE,
                                        .on_poller = true,
                                        .on_message = check_message};

/* ---- List */

static void list_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    (void)message;
    struct server *const server = call_server(call);
    struct arena *const arena = call_arena(call);
    struct services services;
    services_of_methods(server->methods, server->methods_count, &services);
    const enum server_state now = health_state(server->health, NULL);

    const size_t count = services.count + 1;
    list_response response = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    list_entry *const entries = arena_take_zeroed(arena, count, sizeof(*entries));
    check_response *const values = arena_take_zeroed(arena, count, sizeof(*values));
    list_entry **const pointers = arena_take_zeroed(arena, count, sizeof(*pointers));
    bool whole = entries != NULL && values != NULL && pointers != NULL;
    for (size_t i = 0; whole && i < count; i++) {
        const struct service *const service = i > 0 ? &services.items[i - 1] : NULL;
        grpc__health__v1__health_list_response__statuses_entry__init(&entries[i]);
        grpc__health__v1__health_check_response__init(&values[i]);
        entries[i].key =
            arena_copy_string(arena, service != NULL ? service->name : (struct bytes){0});
        whole = entries[i].key != NULL;
        values[i].status = status_of(now, service == NULL || service->writes);
        entries[i].value = &values[i];
        pointers[i] = &entries[i];
    }
    if (!whole) {
        call_fail(call, &(struct status){.code = STATUS_RESOURCE_EXHAUSTED,
                                         .message = "the server has no memory left"});
        return;
    }
    response.n_statuses = count;
    response.statuses = pointers;
    call_reply_packed(call, &response.base);
}

const struct method rpc_health_list = {.path = "/grpc.health.v1.Health/List",
                                       .kind = METHOD_UNARY,
                                       .role = ROLE_NONE,
                                       .on_poller = true,
                                       .on_message = list_message};

/* ---- Watch: the status, and again at each change; ends when the server stops. */

struct watch {
    struct health_watcher watcher;
    bool known; /* the service */
    bool writes;
    bool told_any;
    serving_status told;
};

static void watch_next(struct call *call, void *state)
{
    struct watch *const watch = state;
    if (call_cancelled(call)) {
        call_finish(call);
        return;
    }
    const enum server_state now = health_state(call_server(call)->health, NULL);
    const serving_status status =
        watch->known ? status_of(now, watch->writes) : STATUS_OF(SERVICE_UNKNOWN);
    if (!watch->told_any || watch->told != status) {
        check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
        response.status = status;
        watch->told_any = true;
        watch->told = status;
        grpc_slice slice = slice_of_packed(&response.base);
        call_send(call, &slice, 1);
        return;
    }
    if (now == SERVER_DRAINING) {
        call_fail(call, &(struct status){.code = STATUS_UNAVAILABLE,
                                         .message = "the server is stopping"});
        return;
    }
    call_park(call, watch_next);
}

static void watch_message(struct call *call, void *state, const struct message *message)
{
    struct watch *const watch = state;
    const check_request *const request = unpack(call, message);
    if (request == NULL)
        return;
    watch->known = find_service(call_server(call), request->service, &watch->writes);
    watch->watcher.call = call;
    health_watch(call_server(call)->health, &watch->watcher);
    watch_next(call, state);
}

static void watch_free(struct call *call, void *state)
{
    struct watch *const watch = state;
    health_unwatch(call_server(call)->health, &watch->watcher);
}

const struct method rpc_health_watch = {.path = "/grpc.health.v1.Health/Watch",
                                        .kind = METHOD_SERVER_STREAM,
                                        .role = ROLE_NONE,
                                        .on_poller = true,
                                        .waits = true,
                                        .state_bytes = sizeof(struct watch),
                                        .on_message = watch_message,
                                        .on_sent = watch_next,
                                        .on_free = watch_free};
