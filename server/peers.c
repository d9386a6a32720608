/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/file_stamp.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "client/credentials.h"
#include "client/replication.h"
#include "client/version.h"
#include "server/repair.h"

static const int64_t call_timeout_ns = 30 * NS_PER_S;
/* A stream that is cut goes on at once; what lasts longer is for the puller's own pauses. */
static const struct retry_policy retry_policy = {.tries_max = 3,
                                                 .pause_min_ns = 50 * NS_PER_MS,
                                                 .pause_max_ns = 500 * NS_PER_MS};

struct peer {
    char *address; /* owned */
    struct puller *puller;
};

struct peers {
    struct peers_config config; /* its texts are owned */
    struct peer_identity identity;
    struct fetch_budget budget;
    struct lock lock;
    struct peer items[PEERS_MAX]; /* guarded by lock */
    size_t count;                 /* guarded by lock */
};

static bool is_in(const char *address, char *const *addresses, size_t count);
static bool is_followed(struct peers *peers, const char *address);
static void stop_those_not_in(struct peers *peers, char *const *addresses, size_t count);
static bool follow(struct peers *peers, const char *address, struct status *status);
static bool has_text(const char *text);

bool peers_new(const struct peers_config *config, struct peers **peers, struct status *status)
{
    struct peers *const made = calloc(1, sizeof(*made));
    char *const name = strdup(config->name);
    char *const instance = strdup(config->instance);
    if (made == NULL || name == NULL || instance == NULL) {
        free(made);
        free(name);
        free(instance);
        return status_fail_errno(status, ENOMEM, "peers");
    }
    made->config = *config;
    made->config.name = name;
    made->config.instance = instance;
    if (config->identity != NULL) {
        made->identity = *config->identity;
        made->config.identity = &made->identity;
    }
    made->budget.limit_bytes = PEERS_FETCH_BYTES_MAX;
    lock_init(&made->lock, LOCK_RANK_PEERS);
    *peers = made;
    return true;
}

void peers_free(struct peers *peers)
{
    if (peers == NULL)
        return;
    stop_those_not_in(peers, NULL, 0);
    lock_destroy(&peers->lock);
    free((char *)(uintptr_t)peers->config.name);
    free((char *)(uintptr_t)peers->config.instance);
    free(peers);
}

bool peers_set(struct peers *peers, char *const *addresses, size_t count, struct status *status)
{
    bool ok = true;
    if (count > PEERS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%zu peers: at most %d are followed",
                           count, (int)PEERS_MAX);
    stop_those_not_in(peers, addresses, count);
    for (size_t i = 0; i < count; i++)
        if (!is_followed(peers, addresses[i]) && !follow(peers, addresses[i], status)) {
            status_prefix(status, "peer %s", addresses[i]);
            ok = false;
        }
    struct status why = {0};
    if (peers->config.repair != NULL &&
        !repair_set_peers(peers->config.repair, addresses, count, &why)) {
        *status = why;
        ok = false;
    }
    return ok;
}

static bool is_in(const char *address, char *const *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(address, addresses[i]) == 0)
            return true;
    return false;
}

/* The list is only changed by the thread that asks. */
static bool is_followed(struct peers *peers, const char *address)
{
    for (size_t i = 0; i < peers->count; i++)
        if (strcmp(peers->items[i].address, address) == 0)
            return true;
    return false;
}

/* They stop together. */
static void stop_those_not_in(struct peers *peers, char *const *addresses, size_t count)
{
    struct peer gone[PEERS_MAX];
    size_t gone_count = 0;
    lock_acquire(&peers->lock);
    size_t kept = 0;
    for (size_t i = 0; i < peers->count; i++) {
        if (is_in(peers->items[i].address, addresses, count))
            peers->items[kept++] = peers->items[i];
        else
            gone[gone_count++] = peers->items[i];
    }
    peers->count = kept;
    lock_release(&peers->lock);
    for (size_t i = 0; i < gone_count; i++)
        puller_ask_to_stop(gone[i].puller);
    for (size_t i = 0; i < gone_count; i++) {
        struct log_text text;
        log_event(LOG_LEVEL_INFO, "peer_removed", "address=%s", log_quote(&text, gone[i].address));
        puller_stop(gone[i].puller);
        free(gone[i].address);
    }
}

static bool follow(struct peers *peers, const char *address, struct status *status)
{
    const struct puller_config config = {
        .address = address,
        .name = peers->config.name,
        .instance = peers->config.instance,
        .identity = peers->config.identity,
        .durability = peers->config.durability,
        .flights = peers->config.flights,
        .budget = &peers->budget,
        .metrics = peers->config.metrics,
        .lie_pause_ns = peers->config.lie_pause_ns,
    };
    struct peer peer = {.address = strdup(address)};
    struct log_text text;
    if (peer.address == NULL)
        return status_fail_errno(status, ENOMEM, "address");
    if (!puller_start(&config, &peer.puller, status)) {
        free(peer.address);
        return false;
    }
    log_event(LOG_LEVEL_INFO, "peer_added", "address=%s", log_quote(&text, address));
    lock_acquire(&peers->lock);
    peers->items[peers->count++] = peer;
    lock_release(&peers->lock);
    return true;
}

size_t peers_report(struct peers *peers, struct peer_report *reports, size_t max)
{
    lock_acquire(&peers->lock);
    const size_t count = peers->count < max ? peers->count : max;
    for (size_t i = 0; i < count; i++)
        puller_report(peers->items[i].puller, &reports[i]);
    lock_release(&peers->lock);
    return count;
}

bool peers_are_behind(struct peers *peers, const char *address)
{
    bool behind = false;
    lock_acquire(&peers->lock);
    for (size_t i = 0; i < peers->count && !behind; i++)
        behind = (address == NULL || strcmp(peers->items[i].address, address) == 0) &&
                 puller_is_behind(peers->items[i].puller);
    lock_release(&peers->lock);
    return behind;
}

struct lag {
    int64_t up_to_date;
    uint64_t records, bytes;
    double seconds;
};

static void add_to(struct lag *lag, const struct peer_report *report)
{
    lag->up_to_date += report->state == PEER_UP_TO_DATE;
    for (size_t i = 0; i < LANE_COUNT; i++) {
        lag->records += report->lanes[i].behind_records;
        lag->bytes += report->lanes[i].behind_bytes;
        if (report->lanes[i].behind_seconds > lag->seconds)
            lag->seconds = report->lanes[i].behind_seconds;
    }
}

void peers_step(struct peers *peers)
{
    struct lag lag = {0};
    lock_acquire(&peers->lock);
    const size_t count = peers->count;
    for (size_t i = 0; i < count; i++) {
        struct peer_report report;
        puller_report(peers->items[i].puller, &report);
        add_to(&lag, &report);
    }
    lock_release(&peers->lock);
    struct metrics *const metrics = peers->config.metrics;
    metrics_set(metrics, METRIC_PEERS, (int64_t)count);
    metrics_set(metrics, METRIC_PEERS_UP_TO_DATE, lag.up_to_date);
    metrics_set(metrics, METRIC_PEER_LAG_RECORDS, (int64_t)lag.records);
    metrics_set(metrics, METRIC_PEER_LAG_BYTES, (int64_t)lag.bytes);
    metrics_set(metrics, METRIC_PEER_LAG_SECONDS, (int64_t)lag.seconds);
}

bool peer_connect(const char *address,
                  const char *instance,
                  const struct peer_identity *identity,
                  struct clock *clock,
                  struct client **client,
                  struct status *status)
{
    struct client_options options = client_options_default();
    options.call_timeout_ns = call_timeout_ns;
    options.instance_name = instance;
    options.tool_name = PEER_TOOL_NAME;
    options.tool_version = CLIENT_VERSION;
    options.retry = retry_policy;
    options.clock = clock;
    if (identity != NULL && strncmp(address, "grpcs://", sizeof("grpcs://") - 1) == 0) {
        options.tls.enabled = true;
        options.tls.ca_file = identity->ca[0] != '\0' ? identity->ca : NULL;
        options.tls.certificate_file =
            identity->certificate[0] != '\0' ? identity->certificate : NULL;
        options.tls.key_file = identity->key[0] != '\0' ? identity->key : NULL;
    }
    char *authorization = NULL;
    if (identity != NULL && has_text(identity->token) &&
        !credentials_read(identity->token, NULL, &authorization, status))
        return false;
    options.authorization = authorization;
    const bool connected = client_connect(address, &options, client, status);
    credentials_free(authorization);
    return connected;
}

void peer_token_step(struct peer_token *token, struct client *client)
{
    const int64_t now_ns = clock_monotonic_ns(client_clock(client));
    if (!has_text(token->path) || (token->looked_ns != 0 && now_ns - token->looked_ns < NS_PER_S))
        return;
    token->looked_ns = now_ns;
    char *paths[] = {(char *)(uintptr_t)token->path};
    const uint64_t stamp = file_stamp(paths, 1);
    if (stamp == token->stamp || stamp == 0)
        return;
    char *authorization = NULL;
    struct status why = {0};
    struct log_text path;
    struct log_text reason;
    token->stamp = stamp; /* of no use once is of no use until it changes */
    if (!credentials_read(token->path, NULL, &authorization, &why) ||
        !client_set_authorization(client, authorization, &why))
        log_event(LOG_LEVEL_WARN, "peer_token_not_read", "path=%s reason=%s",
                  log_quote(&path, token->path), log_quote(&reason, why.message));
    credentials_free(authorization);
}

static bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}
