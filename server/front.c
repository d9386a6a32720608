/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front.h"

#include <errno.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "server/address.h"
#include "server/client_waits.h"
#include "server/tls.h"

/*
 * Posted for each method and for all unknown ones. Each is an outstanding tag, which the queue
 * scans at every completion.
 */
enum { REQUESTS_PER_METHOD = 8, ADDRESS_BYTES_MAX = 4096 + 64 };

enum { PING_STRIKES_MAX = 2000 };

/* With nothing to do a poller comes back so often, which shows that it can. */
enum { POLL_MS_MAX = 5000 };

/* A posted request: gRPC fills it when a call arrives. */
struct request {
    struct op op;
    struct front *front;         /* borrowed */
    const struct method *method; /* borrowed; NULL for unknown methods */
    size_t series;
    void *registered; /* gRPC's handle of the method; NULL for unknown methods */
    struct arrival arrival;
    grpc_call_details details; /* of unknown methods */
};

/* A port with TLS, of which gRPC wants to be told by itself when the files change. */
struct secure_port {
    struct tls *tls;             /* borrowed */
    _Atomic uint64_t generation; /* that gRPC has; 0: none */
};

struct front {
    /* Set by front_new(), never changed. */
    struct server *server;   /* borrowed */
    struct metrics *metrics; /* borrowed */
    size_t methods_count;
    uint64_t max_calls;
    grpc_server *grpc;          /* owned */
    grpc_completion_queue *cq;  /* owned */
    struct client_waits *waits; /* owned */
    struct request *requests;   /* owned; so many for each method, then for unknown ones */
    size_t requests_count;
    struct secure_port *ports; /* owned; one for each address */
    int port;

    struct op shutdown;

    _Atomic uint64_t polls;    /* how often a poller has come back */
    uint64_t polls_seen;       /* of the thread that stands in */
    _Atomic uint64_t stood_in; /* events that it has handled */

    struct lock lock;
    struct condition changed;
    uint64_t live;         /* guarded by lock; calls begun and not over */
    uint64_t admitted;     /* guarded by lock; of them, those that are served */
    uint64_t begun;        /* guarded by lock */
    size_t posted;         /* guarded by lock; requests that gRPC holds */
    bool draining;         /* guarded by lock; never goes back */
    bool shutdown_done;    /* guarded by lock; gRPC has let go of the ports */
    bool started, stopped; /* of the thread that starts and stops */
};

struct channel_args {
    grpc_arg list[16];
    size_t count;
};

static void fill_channel_args(struct channel_args *args,
                              const struct front_config *config,
                              grpc_resource_quota *quota);
static bool register_methods(struct front *front,
                             const struct front_config *config,
                             struct status *status);
static bool bind_addresses(struct front *front,
                           const struct front_config *config,
                           struct status *status);
static grpc_server_credentials *secure_credentials(struct secure_port *port, struct tls *tls);
static void request_post(struct request *request);
static void request_arrived(struct op *op, bool ok);
static void request_clear(struct request *request);
static void shutdown_done(struct op *op, bool ok);
static bool wait_for_calls_locked(struct front *front, int64_t grace_ns) REQUIRES(front->lock);
static bool is_empty_locked(const struct front *front) REQUIRES(front->lock);

bool front_new(const struct front_config *config, struct front **front, struct status *status)
{
    struct front *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "gRPC front");
    lock_init(&made->lock, LOCK_RANK_SERVER);
    condition_init(&made->changed);
    made->server = config->server;
    made->metrics = config->metrics;
    made->methods_count = config->methods_count;
    made->max_calls = config->max_calls;
    if (!client_waits_new(config->grpc_memory_bytes, config->remembered_bytes_max, clock_real(),
                          config->metrics, &made->waits, status)) {
        condition_destroy(&made->changed);
        lock_destroy(&made->lock);
        free(made);
        return false;
    }

    grpc_resource_quota *const quota = grpc_resource_quota_create("varve");
    grpc_resource_quota_resize(quota, config->grpc_memory_bytes);
    struct channel_args args;
    fill_channel_args(&args, config, quota);
    const grpc_channel_args list = {.num_args = args.count, .args = args.list};
    made->grpc = grpc_server_create(&list, NULL);
    grpc_resource_quota_unref(quota);
    made->cq = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(made->grpc, made->cq, NULL);

    if (!register_methods(made, config, status) || !bind_addresses(made, config, status)) {
        front_free(made);
        return false;
    }
    *front = made;
    return true;
}

static void add_integer(struct channel_args *args, const char *key, int64_t value)
{
    ASSERT(args->count < ARRAY_LENGTH(args->list));
    ASSERT(value >= INT32_MIN && value <= INT32_MAX);
    args->list[args->count++] = (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = (int)value};
}

static void fill_channel_args(struct channel_args *args,
                              const struct front_config *config,
                              grpc_resource_quota *quota)
{
    args->list[0] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                   .value.pointer = {.p = quota, .vtable = grpc_resource_quota_arg_vtable()}};
    args->count = 1;
    add_integer(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_MESSAGE_BYTES);
    add_integer(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    add_integer(args, GRPC_ARG_MAX_CONCURRENT_STREAMS, (int64_t)config->max_streams);
    add_integer(args, GRPC_ARG_MAX_METADATA_SIZE, LIMIT_METADATA_BYTES);
    /* A second process would silently take half of the connections. */
    add_integer(args, GRPC_ARG_ALLOW_REUSEPORT, 0);
    /* Identity only: gzip is inflated before any limit is looked at. */
    add_integer(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
    /*
     * Clients ping every 30 s while idle, and in bunches after a stall; by default that closes
     * their connection. Thousands that come early are a flood.
     */
    add_integer(args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, PING_STRIKES_MAX);
    add_integer(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    add_integer(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    add_integer(args, GRPC_ARG_KEEPALIVE_TIME_MS, config->keepalive_ns / NS_PER_MS);
    add_integer(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
    add_integer(args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 15000);
}

static bool register_methods(struct front *front,
                             const struct front_config *config,
                             struct status *status)
{
    front->requests_count = (config->methods_count + 1) * REQUESTS_PER_METHOD;
    front->requests = calloc(front->requests_count, sizeof(*front->requests));
    if (front->requests == NULL)
        return status_fail_errno(status, ENOMEM, "requests of the gRPC front");
    for (size_t i = 0; i <= config->methods_count; i++) {
        const struct method *const method = i < config->methods_count ? config->methods[i] : NULL;
        void *registered = NULL;
        if (method != NULL) {
            registered = grpc_server_register_method(front->grpc, method->path, NULL,
                                                     GRPC_SRM_PAYLOAD_NONE, 0);
            if (registered == NULL)
                return status_fail(status, STATUS_INTERNAL, "gRPC does not take the method %s",
                                   method->path);
        }
        for (size_t j = 0; j < REQUESTS_PER_METHOD; j++)
            front->requests[i * REQUESTS_PER_METHOD + j] = (struct request){
                .front = front, .method = method, .series = i, .registered = registered};
    }
    return true;
}

static bool bind_addresses(struct front *front,
                           const struct front_config *config,
                           struct status *status)
{
    ASSERT(config->listen_count > 0);
    front->ports = calloc(config->listen_count, sizeof(*front->ports));
    if (front->ports == NULL)
        return status_fail_errno(status, ENOMEM, "ports");
    for (size_t i = 0; i < config->listen_count; i++) {
        /* gRPC wants a host; this one stands for IPv4 as well. */
        char address[ADDRESS_BYTES_MAX];
        const char *const host = config->listen[i][0] == ':' ? "[::]" : "";
        const int length = snprintf(address, sizeof(address), "%s%s", host, config->listen[i]);
        ASSERT(length > 0 && (size_t)length < sizeof(address));

        grpc_server_credentials *const credentials =
            config->tls == NULL || address_is_local(config->listen[i])
                ? grpc_insecure_server_credentials_create()
                : secure_credentials(&front->ports[i], config->tls);
        const int port = grpc_server_add_http2_port(front->grpc, address, credentials);
        grpc_server_credentials_release(credentials);
        if (port == 0)
            return address_explain_bind_failure(config->listen[i], status);
        if (front->port == 0 && !address_is_local(config->listen[i]))
            front->port = port;
    }
    return true;
}

/*
 * By gRPC, when the port is bound and at each new connection, under a lock of its own: so this does no more than copy what others
 * have read.
 */
static grpc_ssl_certificate_config_reload_status fetch_files(
    void *argument,
    grpc_ssl_server_certificate_config **config)
{
    struct secure_port *const port = argument;
    struct tls_files *const files = tls_take(port->tls);
    if (files->generation == atomic_load(&port->generation)) {
        tls_files_unref(files);
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = files->key,
                                             .cert_chain = files->certificate};
    /* gRPC aborts without authorities; where no client is asked for a certificate they are of no use. */
    const char *const authorities =
        files->client_ca != NULL ? files->client_ca : files->certificate;
    *config = grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
    atomic_store(&port->generation, files->generation);
    tls_files_unref(files);
    return *config != NULL ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                           : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
}

static grpc_server_credentials *secure_credentials(struct secure_port *port, struct tls *tls)
{
    static const grpc_ssl_client_certificate_request_type asks[] = {
        [TLS_CLIENT_NONE] = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
        [TLS_CLIENT_OPTIONAL] = GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY,
        [TLS_CLIENT_REQUIRED] = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
    };
    port->tls = tls;
    /* The options become the credentials'. */
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(asks[tls_client_auth(tls)],
                                                                        fetch_files, port));
}

void front_free(struct front *front)
{
    if (front == NULL)
        return;
    ASSERT(!front->started || front->stopped);
    ASSERT(front->live == 0);
    if (!front->started) {
        /*
         * A server that was never started still holds its queue and ports; only a shutdown lets go
         * of them.
         */
        op_arm(&front->shutdown, shutdown_done);
        grpc_server_shutdown_and_notify(front->grpc, front->cq, &front->shutdown);
        grpc_completion_queue_shutdown(front->cq);
        while (front_poll_step(front))
            continue;
    }
    grpc_server_destroy(front->grpc);
    grpc_completion_queue_destroy(front->cq);
    free(front->requests);
    free(front->ports);
    client_waits_free(front->waits);
    condition_destroy(&front->changed);
    lock_destroy(&front->lock);
    free(front);
}

int front_port(const struct front *front)
{
    return front->port;
}

void front_start(struct front *front)
{
    front->started = true;
    grpc_server_start(front->grpc);
    for (size_t i = 0; i < front->requests_count; i++)
        request_post(&front->requests[i]);
}

/*
 * Not once the shutdown has begun: what is posted then fails at once, and front_stop() waits until
 * nothing is posted.
 */
static void request_post(struct request *request)
{
    struct front *const front = request->front;
    lock_acquire(&front->lock);
    const bool post = !front->draining;
    if (post)
        front->posted++;
    lock_release(&front->lock);
    if (!post)
        return;

    struct arrival *const arrival = &request->arrival;
    *arrival = (struct arrival){0};
    grpc_metadata_array_init(&arrival->metadata);
    op_arm(&request->op, request_arrived);
    grpc_call_error error;
    if (request->method != NULL) {
        error = grpc_server_request_registered_call(
            front->grpc, request->registered, &arrival->grpc, &arrival->deadline,
            &arrival->metadata, NULL, front->cq, front->cq, &request->op);
    } else {
        grpc_call_details_init(&request->details);
        error = grpc_server_request_call(front->grpc, &arrival->grpc, &request->details,
                                         &arrival->metadata, front->cq, front->cq, &request->op);
    }
    ASSERT(error == GRPC_CALL_OK);
}

static bool run_event(const grpc_event *event);

bool front_poll_step(struct front *front)
{
    const gpr_timespec until =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(POLL_MS_MAX, GPR_TIMESPAN));
    const grpc_event event = grpc_completion_queue_next(front->cq, until, NULL);
    atomic_fetch_add_explicit(&front->polls, 1, memory_order_relaxed);
    return event.type == GRPC_QUEUE_TIMEOUT || run_event(&event);
}

uint64_t front_turns(struct front *front)
{
    return atomic_load_explicit(&front->polls, memory_order_relaxed) +
           atomic_load_explicit(&front->stood_in, memory_order_relaxed);
}

void front_stand_in_step(struct front *front)
{
    const gpr_timespec wait = gpr_time_from_millis(20, GPR_TIMESPAN);
    const uint64_t polls = atomic_load_explicit(&front->polls, memory_order_relaxed);
    bool any = front->polls_seen == polls;
    front->polls_seen = polls;
    gpr_timespec until =
        gpr_now(GPR_CLOCK_MONOTONIC); /* mostly they have nothing to do: only a look */
    while (any) {
        const grpc_event event = grpc_completion_queue_next(front->cq, until, NULL);
        any = run_event(&event);
        if (any)
            atomic_fetch_add_explicit(&front->stood_in, 1, memory_order_relaxed);
        any = any && atomic_load_explicit(&front->polls, memory_order_relaxed) == polls;
        until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait);
    }
}

/* False when there is none. */
static bool run_event(const grpc_event *event)
{
    if (event->type != GRPC_OP_COMPLETE)
        return false;
    struct op *const op = event->tag;
    void (*const run)(struct op *, bool) = atomic_load_explicit(&op->run, memory_order_acquire);
    run(op, event->success != 0);
    return true;
}

static void request_arrived(struct op *op, bool ok)
{
    enum { PATH_BYTES_MAX = 256 };
    struct request *const request = CONTAINER_OF(op, struct request, op);
    struct front *const front = request->front;

    lock_acquire(&front->lock);
    ASSERT(front->posted > 0);
    front->posted--;
    if (is_empty_locked(front))
        condition_broadcast(&front->changed);
    if (ok) {
        front->live++;
        front->begun++;
        metrics_add(front->metrics, METRIC_CALLS_LIVE, 1);
    }
    lock_release(&front->lock);
    if (!ok) {
        request_clear(request);
        return;
    }

    struct arrival arrival = request->arrival;
    uint8_t path[PATH_BYTES_MAX];
    size_t path_length = 0;
    if (request->method == NULL) {
        const grpc_slice method = request->details.method;
        path_length =
            GRPC_SLICE_LENGTH(method) < sizeof(path) ? GRPC_SLICE_LENGTH(method) : sizeof(path);
        memcpy(path, GRPC_SLICE_START_PTR(method), path_length);
        arrival.deadline = request->details.deadline;
        grpc_call_details_destroy(&request->details);
    }
    request_post(request); /* before the call is worked on: the next one need not wait for that */
    call_begin(front, front->server, request->method, request->series, &arrival,
               bytes_of(path, path_length));
}

static void request_clear(struct request *request)
{
    grpc_metadata_array_destroy(&request->arrival.metadata);
    if (request->method == NULL)
        grpc_call_details_destroy(&request->details);
}

bool front_admit(struct front *front, struct status *status)
{
    lock_acquire(&front->lock);
    const bool draining = front->draining;
    const bool ok = !draining && front->admitted < front->max_calls;
    if (ok)
        front->admitted++;
    lock_release(&front->lock);
    if (ok)
        return true;
    metrics_add(front->metrics, METRIC_CALLS_REFUSED, 1);
    if (draining)
        return status_fail(status, STATUS_UNAVAILABLE, "the server is stopping");
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "%llu calls are in progress, which is the most this server takes "
                       "(max-calls); try again later",
                       (unsigned long long)front->max_calls);
}

void front_let_go(struct front *front)
{
    lock_acquire(&front->lock);
    ASSERT(front->admitted > 0);
    front->admitted--;
    lock_release(&front->lock);
}

void front_call_over(struct front *front)
{
    lock_acquire(&front->lock);
    ASSERT(front->live > 0);
    front->live--;
    metrics_add(front->metrics, METRIC_CALLS_LIVE, -1);
    if (is_empty_locked(front))
        condition_broadcast(&front->changed);
    lock_release(&front->lock);
}

struct client_waits *front_client_waits(struct front *front)
{
    return front->waits;
}

void front_make_room(struct front *front, bool something_is_scarce)
{
    /* A sixteenth stays free, so that others are let in between two looks. */
    lock_acquire(&front->lock);
    const bool calls_are_scarce = front->admitted > front->max_calls - front->max_calls / 16;
    lock_release(&front->lock);
    if (calls_are_scarce || something_is_scarce)
        client_waits_cut_off(front->waits);
}

size_t front_live(struct front *front)
{
    lock_acquire(&front->lock);
    const size_t live = (size_t)front->live;
    lock_release(&front->lock);
    return live;
}

uint64_t front_begun(struct front *front)
{
    lock_acquire(&front->lock);
    const uint64_t begun = front->begun;
    lock_release(&front->lock);
    return begun;
}

void front_drain(struct front *front, int64_t grace_ns)
{
    ASSERT(front->started);
    lock_acquire(&front->lock);
    ASSERT(!front->draining);
    front->draining = true;
    lock_release(&front->lock);
    op_arm(&front->shutdown, shutdown_done);
    grpc_server_shutdown_and_notify(front->grpc, front->cq, &front->shutdown);

    lock_acquire(&front->lock);
    const bool in_time = wait_for_calls_locked(front, grace_ns);
    const uint64_t left = front->live;
    lock_release(&front->lock);
    if (!in_time)
        log_event(LOG_LEVEL_WARN, "drain_time_over", "calls_cancelled=%llu",
                  (unsigned long long)left);

    /*
     * Always: without calls it ends the connections, which idle clients would keep open for ever.
     */
    grpc_server_cancel_all_calls(front->grpc);

    /* The shutdown may be over with calls still here, and calls with the shutdown still to come. */
    lock_acquire(&front->lock);
    while (!front->shutdown_done || !is_empty_locked(front))
        condition_wait(&front->changed, &front->lock);
    lock_release(&front->lock);
}

static bool wait_for_calls_locked(struct front *front, int64_t grace_ns)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + grace_ns;
    while (front->live > 0) {
        const int64_t left_ns = until_ns - clock_monotonic_ns(clock_real());
        if (left_ns <= 0)
            return false;
        if (!condition_wait_for(&front->changed, &front->lock, left_ns))
            continue; /* the time is over, or nearly: the loop looks */
    }
    return true;
}

static bool is_empty_locked(const struct front *front)
{
    return front->live == 0 && front->posted == 0;
}

static void shutdown_done(struct op *op, bool ok)
{
    (void)ok;
    struct front *const front = CONTAINER_OF(op, struct front, shutdown);
    lock_acquire(&front->lock);
    front->shutdown_done = true;
    condition_broadcast(&front->changed);
    lock_release(&front->lock);
}

void front_stop(struct front *front)
{
    ASSERT(front->started && !front->stopped);
    front->stopped = true;
    grpc_completion_queue_shutdown(front->cq);
}
