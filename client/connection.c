/* SPDX-License-Identifier: Apache-2.0 */
#include "client/connection.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/thread.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/credentials.h"
#include "client/message_pool.h"
#include "client/uuid.h"
#include "client/version.h"
#include "proto/resource_name.h"

#define REQUEST_METADATA_KEY "build.bazel.remote.execution.v2.requestmetadata-bin"

/* Pings find a server that is gone without having said so; also while nothing is in flight. */
enum { KEEPALIVE_TIME_MS = 30 * 1000, KEEPALIVE_TIMEOUT_MS = 10 * 1000 };
/*
 * How soon a refused connection is tried again; below the pauses of client/retry.h, so that a try
 * is a real one.
 */
enum { RECONNECT_MIN_MS = 100, RECONNECT_MAX_MS = 2 * 1000 };
/* Servers may answer with trailers of some kilobytes. */
enum { METADATA_BYTES_MAX = 64 * 1024 };

struct client {
    /* Set by client_connect(), never changed. */
    char target[CLIENT_TARGET_BYTES_MAX];
    char instance_name[LIMIT_INSTANCE_NAME_BYTES + 1];
    int64_t call_timeout_ns;
    struct retry_policy retry;
    struct clock *clock; /* borrowed */
    size_t channel_count;
    grpc_channel *channels[CLIENT_CONNECTIONS_MAX]; /* owned */
    grpc_completion_queue *queue;                   /* owned; polled by thread alone */
    struct message_pool *messages;                  /* a reference of its own */
    grpc_metadata metadata[CLIENT_METADATA_MAX];    /* their slices are owned */
    size_t metadata_count;
    bool secure;
    char server_name[CLIENT_TARGET_BYTES_MAX];
    grpc_channel_credentials *credentials; /* owned */
    struct thread thread;

    _Atomic size_t next_channel;
    _Atomic int calls_live;
    _Atomic unsigned
        hand_overs; /* orders threads where otherwise only gRPC does, which sanitizers do not see */
};

static bool check_options(const struct client_options *options, struct status *status);
static bool set_target(struct client *client,
                       const char *target,
                       const struct client_tls *tls,
                       struct status *status);
static bool set_metadata(struct client *client,
                         const struct client_options *options,
                         struct status *status);
static bool open_channels(struct client *client,
                          const struct client_options *options,
                          struct status *status);
static grpc_channel *open_channel(const struct client *client, const char *user_agent);
static void poll_queue(void *argument);
static void drop_log_line(gpr_log_func_args *line);

struct client_options client_options_default(void)
{
    return (struct client_options){
        .instance_name = "",
        .call_timeout_ns = 60 * NS_PER_S,
        .connections = 1,
        .tool_name = "varve",
        .tool_version = CLIENT_VERSION,
        .retry = retry_policy_default(),
        .clock = clock_real(),
    };
}

bool client_connect(const char *target,
                    const struct client_options *options,
                    struct client **client_out,
                    struct status *status)
{
    if (!check_options(options, status))
        return false;
    struct client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a client");
    grpc_init();
    client->call_timeout_ns = options->call_timeout_ns;
    client->retry = options->retry;
    client->clock = options->clock;
    snprintf(client->instance_name, sizeof(client->instance_name), "%s", options->instance_name);

    if (!set_target(client, target, &options->tls, status))
        goto fail;
    if (!set_metadata(client, options, status) ||
        (options->authorization != NULL &&
         !client_set_authorization(client, options->authorization, status)))
        goto fail;
    if (client->secure) {
        if (!client_tls_credentials(&options->tls, &client->credentials, status))
            goto fail;
    } else {
        client->credentials = grpc_insecure_credentials_create();
    }
    if (!message_pool_new(&client->messages, status))
        goto fail;
    client->queue = grpc_completion_queue_create_for_next(NULL);
    if (!open_channels(client, options, status))
        goto fail;
    if (!thread_start(&client->thread, "client-cq", 0, poll_queue, client, status))
        goto fail;
    *client_out = client;
    return true;
fail:
    client_close(client);
    return false;
}

static bool check_options(const struct client_options *options, struct status *status)
{
    if (options->connections < 1 || options->connections > CLIENT_CONNECTIONS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%zu connections: must be 1 to %d",
                           options->connections, CLIENT_CONNECTIONS_MAX);
    if (options->call_timeout_ns <= 0 || options->call_timeout_ns > 24 * 3600 * NS_PER_S)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the deadline must be above 0 and at most 24 hours");
    if (options->retry.tries_max < 1 || options->retry.pause_min_ns < 0 ||
        options->retry.pause_max_ns < options->retry.pause_min_ns)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "a retry policy that cannot be");
    if (options->instance_name[0] == '\0')
        return true;
    return instance_name_check(bytes_of_string(options->instance_name), status);
}

static bool set_target(struct client *client,
                       const char *target,
                       const struct client_tls *tls,
                       struct status *status)
{
    static const char scheme[] = "grpc://";
    static const char secure_scheme[] = "grpcs://";
    const bool plain = strncmp(target, scheme, sizeof(scheme) - 1) == 0;
    client->secure = tls->enabled || tls->ca_file != NULL || tls->certificate_file != NULL ||
                     tls->key_file != NULL || tls->server_name != NULL;
    if (plain && client->secure)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%.200s is plaintext, and TLS is asked for: use grpcs://", target);
    if (plain)
        target += sizeof(scheme) - 1;
    if (strncmp(target, secure_scheme, sizeof(secure_scheme) - 1) == 0) {
        target += sizeof(secure_scheme) - 1;
        client->secure = true;
    }
    snprintf(client->server_name, sizeof(client->server_name), "%s",
             tls->server_name != NULL ? tls->server_name : "");
    const size_t length = strlen(target);
    if (length == 0 || length >= sizeof(client->target))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "a server is HOST:PORT of at most %d bytes",
                           CLIENT_TARGET_BYTES_MAX - 1);
    if (strncmp(target, "unix:", 5) != 0) {
        if (strstr(target, "://") != NULL)
            return status_fail(
                status, STATUS_INVALID_ARGUMENT,
                "cannot speak to %.200s: use grpc://HOST:PORT, grpcs://HOST:PORT or HOST:PORT",
                target);
        const char *colon = strrchr(target, ':');
        if (colon == NULL || colon == target || colon[1] == '\0' ||
            strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "%.200s has no port: a server is HOST:PORT", target);
    }
    memcpy(client->target, target, length + 1);
    return true;
}

/*
 * RequestMetadata is the same for all calls of one client: encoded once, its slice shared by all.
 */
static bool set_metadata(struct client *client,
                         const struct client_options *options,
                         struct status *status)
{
    char invocation[UUID_TEXT_BYTES];
    uuid_random(invocation);
    char name[128], version[128];
    snprintf(name, sizeof(name), "%s", options->tool_name);
    snprintf(version, sizeof(version), "%s", options->tool_version);
    if (!bytes_is_utf8(bytes_of_string(name)) || !bytes_is_utf8(bytes_of_string(version)))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "the name of the tool is not UTF-8");

    Build__Bazel__Remote__Execution__V2__ToolDetails tool =
        BUILD__BAZEL__REMOTE__EXECUTION__V2__TOOL_DETAILS__INIT;
    tool.tool_name = name;
    tool.tool_version = version;
    Build__Bazel__Remote__Execution__V2__RequestMetadata metadata =
        BUILD__BAZEL__REMOTE__EXECUTION__V2__REQUEST_METADATA__INIT;
    metadata.tool_details = &tool;
    metadata.tool_invocation_id = invocation;
    const size_t length =
        build__bazel__remote__execution__v2__request_metadata__get_packed_size(&metadata);
    grpc_metadata *const entry = &client->metadata[client->metadata_count++];
    entry->key = grpc_slice_from_static_string(REQUEST_METADATA_KEY);
    entry->value = grpc_slice_malloc(length);
    build__bazel__remote__execution__v2__request_metadata__pack(&metadata,
                                                                GRPC_SLICE_START_PTR(entry->value));
    return true;
}

bool client_set_authorization(struct client *client,
                              const char *authorization,
                              struct status *status)
{
    const grpc_slice value = grpc_slice_from_copied_string(authorization);
    if (!grpc_header_nonbin_value_is_legal(value)) {
        grpc_slice_unref(value);
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the token or password holds bytes that cannot be sent");
    }
    grpc_metadata *const entry = &client->metadata[1];
    if (client->metadata_count > 1)
        grpc_slice_unref(entry->value);
    entry->key = grpc_slice_from_static_string("authorization");
    entry->value = value;
    client->metadata_count = 2;
    return true;
}

static bool open_channels(struct client *client,
                          const struct client_options *options,
                          struct status *status)
{
    char user_agent[256];
    snprintf(user_agent, sizeof(user_agent), "%s/%s", options->tool_name, options->tool_version);
    for (size_t i = 0; i < options->connections; i++) {
        grpc_channel *channel = open_channel(client, user_agent);
        if (channel == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "cannot open a channel to %.200s",
                               client->target);
        client->channels[client->channel_count++] = channel;
    }
    return true;
}

static grpc_channel *open_channel(const struct client *client, const char *user_agent)
{
    char agent[256];
    char server_name[CLIENT_TARGET_BYTES_MAX];
    snprintf(agent, sizeof(agent), "%s", user_agent);
    snprintf(server_name, sizeof(server_name), "%s", client->server_name);
    grpc_arg arguments[] = {
        {.type = GRPC_ARG_STRING,
         .key = (char[]){GRPC_ARG_PRIMARY_USER_AGENT_STRING},
         .value.string = agent},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH},
         .value.integer = CLIENT_MESSAGE_BYTES_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_SEND_MESSAGE_LENGTH},
         .value.integer = -1},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_METADATA_SIZE},
         .value.integer = METADATA_BYTES_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_KEEPALIVE_TIME_MS},
         .value.integer = KEEPALIVE_TIME_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_KEEPALIVE_TIMEOUT_MS},
         .value.integer = KEEPALIVE_TIMEOUT_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS},
         .value.integer = RECONNECT_MIN_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MIN_RECONNECT_BACKOFF_MS},
         .value.integer = RECONNECT_MAX_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){GRPC_ARG_MAX_RECONNECT_BACKOFF_MS},
         .value.integer = RECONNECT_MAX_MS},
        /*
         * We try again ourselves, where we know how far an upload got; gRPC would keep copies of
         * what it sends.
         */
        {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_ENABLE_RETRIES}, .value.integer = 0},
        /* Channels with equal arguments would share one connection otherwise. */
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){"grpc.use_local_subchannel_pool"},
         .value.integer = 1},
        /* Identity alone: an answer in gzip would be inflated before its size is checked. */
        {.type = GRPC_ARG_INTEGER,
         .key = (char[]){"grpc.compression_enabled_algorithms_bitset"},
         .value.integer = 1},
        {.type = GRPC_ARG_STRING,
         .key = (char[]){GRPC_SSL_TARGET_NAME_OVERRIDE_ARG},
         .value.string = server_name},
    };
    /* The last one is for TLS alone. */
    const bool named = client->secure && client->server_name[0] != '\0';
    const grpc_channel_args all = {.num_args = ARRAY_LENGTH(arguments) - (named ? 0 : 1),
                                   .args = arguments};
    return grpc_channel_create(client->target, client->credentials, &all);
}

static void poll_queue(void *argument)
{
    struct client *client = argument;
    for (;;) {
        const grpc_event event =
            grpc_completion_queue_next(client->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return;
        ASSERT(event.type == GRPC_OP_COMPLETE);
        atomic_load_explicit(&client->hand_overs, memory_order_acquire);
        struct client_tag *tag = event.tag;
        tag->complete(tag, event.success != 0);
    }
}

void client_close(struct client *client)
{
    if (client == NULL)
        return;
    ASSERT(atomic_load(&client->calls_live) == 0);
    for (size_t i = 0; i < client->channel_count; i++)
        grpc_channel_destroy(client->channels[i]);
    if (client->queue != NULL) {
        grpc_completion_queue_shutdown(client->queue);
        if (client->thread.running)
            thread_join(&client->thread);
        else
            poll_queue(client);
        grpc_completion_queue_destroy(client->queue);
    }
    if (client->credentials != NULL)
        grpc_channel_credentials_release(client->credentials);
    for (size_t i = 0; i < client->metadata_count; i++)
        grpc_slice_unref(client->metadata[i].value);
    message_pool_unref(client->messages);
    free(client);
    grpc_shutdown();
}

struct bytes client_instance_name(const struct client *client)
{
    return bytes_of_string(client->instance_name);
}

const char *client_target(const struct client *client)
{
    return client->target;
}

struct clock *client_clock(const struct client *client)
{
    return client->clock;
}

const struct retry_policy *client_retry_policy(const struct client *client)
{
    return &client->retry;
}

int64_t client_call_timeout_ns(const struct client *client)
{
    return client->call_timeout_ns;
}

int64_t client_stream_timeout_ns(const struct client *client, int64_t bytes)
{
    ASSERT(bytes >= 0);
    return client->call_timeout_ns + bytes / CLIENT_SLOWEST_BYTES_PER_S * NS_PER_S;
}

void client_prepare_process(void)
{
    /*
     * The trim threshold must be set as well: setting one of the three freezes the others at their
     * start values.
     */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
    if (getenv("GRPC_VERBOSITY") == NULL)
        gpr_set_log_function(drop_log_line);
}

static void drop_log_line(gpr_log_func_args *line)
{
    (void)line;
}

grpc_channel *client_take_channel(struct client *client)
{
    const size_t turn = atomic_fetch_add_explicit(&client->next_channel, 1, memory_order_relaxed);
    return client->channels[turn % client->channel_count];
}

grpc_completion_queue *client_queue(struct client *client)
{
    return client->queue;
}

size_t client_metadata(const struct client *client, grpc_metadata metadata[CLIENT_METADATA_MAX])
{
    for (size_t i = 0; i < client->metadata_count; i++) {
        metadata[i] = client->metadata[i];
        grpc_slice_ref(metadata[i].value);
    }
    return client->metadata_count;
}

struct message_pool *client_messages(struct client *client)
{
    return client->messages;
}

void client_hand_over(struct client *client)
{
    atomic_fetch_add_explicit(&client->hand_overs, 1, memory_order_release);
}

void client_count_call(struct client *client, int change)
{
    const int before = atomic_fetch_add(&client->calls_live, change);
    ASSERT(before + change >= 0);
}
