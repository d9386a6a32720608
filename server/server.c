/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the process: main (starts, waits for a signal, stops), those of the table below, those
 * of durability/, one of libmicrohttpd, and gRPC's own helpers.
 */
#include "server/server.h"

#include <errno.h>
#include <grpc/grpc.h>
#include <inttypes.h>
#include <libgen.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/thread.h"
#include "server/accept_guard.h"
#include "client/credentials.h"
#include "server/access.h"
#include "server/budget.h"
#include "server/call.h"
#include "server/feed_waits.h"
#include "server/front.h"
#include "server/grpc_log.h"
#include "server/health.h"
#include "server/http.h"
#include "server/limits.h"
#include "server/notify.h"
#include "server/progress.h"
#include "server/peers.h"
#include "server/repair.h"
#include "server/rpc_metrics.h"
#include "server/resets.h"
#include "server/slow_calls.h"
#include "server/tier.h"
#include "server/tls.h"
#include "server/uploads.h"
#include "server/walks.h"
#include "server/workers.h"
#include "store/store.h"

enum { THREAD_NAME_BYTES = 16, WORKER_NICE = 10 };

static const int64_t maintenance_pause_ns = 100 * NS_PER_MS;
/* When it stops: writes that wait for copies elsewhere have so long to get them. */
static const int64_t copies_grace_ns = NS_PER_S;
static const int64_t stand_in_pause_ns = 50 * NS_PER_MS;
static const int64_t connections_pause_ns = NS_PER_S;
static const int64_t progress_pause_ns = NS_PER_S;
/* What a stop may take beyond the drain time: the last syncs, and the index to disk. */
static const int64_t close_ns = 60 * NS_PER_S;
/* Without a call for so long, the memory that malloc keeps for the next messages is given back. */
static const int64_t idle_ns = 5 * NS_PER_S;
/* And while there are calls, what is more than this, so often: a flood leaves it behind. */
static const size_t slack_bytes_max = 256 * MIB;
static const int64_t slack_pause_ns = 10 * NS_PER_S;

/* In the end, for what gRPC has not let go of yet. */
static const int64_t lent_patience_ns = 10 * NS_PER_S;

/* Threads of one kind. */
struct thread_group {
    struct thread *threads; /* owned */
    size_t count;           /* of those that were started */
};

enum thread_kind {
    THREADS_POLLERS,
    THREADS_STAND_IN,
    THREADS_WORKERS,
    THREADS_MAINTENANCE,
    THREADS_ACCESS,
    THREAD_KINDS
};

struct server_private {
    struct metrics metrics;
    struct slow_calls slow_calls;
    struct front *front; /* owned */
    struct http *http;   /* owned; NULL: HTTP is off */
    struct thread_group groups[THREAD_KINDS];
    bool grpc_ready;
    bool guarded;
    _Atomic bool reload; /* asks the maintenance thread for it */
    struct notify notify;
    struct task probe; /* given to the workers again and again, to see that they answer */
    _Atomic bool probe_waits;

    struct lock lock;
    struct condition changed;
    bool stopping; /* guarded by lock: tells the maintenance thread */
};

static bool open_parts(struct server *server, struct status *status);
static bool open_store(struct server *server, struct status *status);
static bool limit_store(const struct config *config,
                        struct store_config *store,
                        struct status *status);
static bool open_front(struct server *server, struct status *status);
static bool follow_peers(struct server *server, struct status *status);
static bool is_behind(void *argument, const char *address);
static bool start_threads(struct server *server, struct status *status);
static void log_ready(struct server *server);
static void close_parts(struct server *server);

bool server_start(const struct config *config, struct server **server, struct status *status)
{
    struct server *const made = calloc(1, sizeof(*made));
    struct server_private *const private = calloc(1, sizeof(*private));
    if (made == NULL || private == NULL) {
        free(made);
        free(private);
        return status_fail_errno(status, ENOMEM, "server");
    }
    lock_init(&private->lock, LOCK_RANK_LEAF);
    condition_init(&private->changed);
    made->private = private;
    made->config = config;
    made->clock = clock_real();
    made->metrics = &private->metrics;
    made->methods = server_methods;
    made->methods_count = server_methods_count;
    made->started_ns = clock_monotonic_ns(made->clock);
    metrics_set(made->metrics, METRIC_BUFFERS_MAX, (int64_t)config->buffers);
    metrics_set(made->metrics, METRIC_BUDGET_MAX, (int64_t)config->request_memory_bytes);
    if (config->slow_call_ns > 0) {
        slow_calls_init(&private->slow_calls, config->slow_call_ns, made->metrics);
        made->slow_calls = &private->slow_calls;
    }
    metrics_set(made->metrics, METRIC_START_TIME, clock_wall_ns(made->clock) / NS_PER_S);
    const struct notify_environment environment = notify_environment();
    notify_init(&private->notify, &environment);
    notify_status(&private->notify, "starting: opens the store");

    /*
     * The data directory is locked before any port is bound, so that a second process does not take
     * a port and then fail.
     */
    if (!open_parts(made, status) || !open_store(made, status) || !open_front(made, status) ||
        !tier_start(config, made->durability, made->metrics, made->flights, &made->tier, status) ||
        !follow_peers(made, status) || !start_threads(made, status)) {
        close_parts(made);
        return false;
    }
    if (private->http != NULL)
        http_serve(private->http, made);
    front_start(private->front);
    health_set(made->health, SERVER_SERVING, "");
    log_ready(made);
    notify_ready(&private->notify);
    *server = made;
    return true;
}

static bool open_files(const struct config *config,
                       struct clock *clock,
                       struct metrics *metrics,
                       struct access **access,
                       struct tls **tls,
                       struct status *status)
{
    const struct tls_config files = {.certificate = config->tls_cert,
                                     .key = config->tls_key,
                                     .client_ca = config->tls_client_ca,
                                     .client_auth = strcmp(config->tls_client_auth, "required") == 0
                                                        ? TLS_CLIENT_REQUIRED
                                                        : TLS_CLIENT_OPTIONAL,
                                     .clock = clock,
                                     .metrics = metrics};
    return (config->tls_cert[0] == '\0' || tls_new(&files, tls, status)) &&
           access_new(config->access, clock, metrics, access, status);
}

bool server_check_files(const struct config *config, struct status *status)
{
    struct access *access = NULL;
    struct tls *tls = NULL;
    struct metrics *const metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL)
        return status_fail_errno(status, ENOMEM, "server");
    char *authorization = NULL;
    const bool ok = open_files(config, clock_real(), metrics, &access, &tls, status) &&
                    tier_check(config, status) &&
                    (config->peer_token_file[0] == '\0' ||
                     credentials_read(config->peer_token_file, NULL, &authorization, status));
    credentials_free(authorization);
    access_free(access);
    tls_free(tls);
    free(metrics);
    return ok;
}

/* As much as one may take unless it is told: others need some, too. */
static uint64_t of_one_user(uint64_t configured, uint64_t all)
{
    return configured > 0 ? configured : all / 2;
}

/*
 * What needs no store. HTTP first of all, so that /healthz and /readyz answer during a long
 * recovery.
 */
static bool open_parts(struct server *server, struct status *status)
{
    struct server_private *const private = server->private;
    const struct config *const config = server->config;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return status_fail_errno(status, errno, "limit of descriptors");
    /* Kept for segments, the index and HTTP. */
    const uint64_t kept = limit.rlim_cur / 4 < 1024 ? limit.rlim_cur / 4 : 1024;
    const uint64_t descriptors_max =
        limit.rlim_cur - kept < (1 << 20) ? limit.rlim_cur - kept : 1 << 20;
    if (!accept_guard_start(config->max_connections, config->address_connections, descriptors_max,
                            server->metrics, status))
        return false;
    private->guarded = true;
    if (!resets_new(server->metrics, &server->resets, status))
        return false;
    const struct limits_config limits = {
        .user = {.calls = of_one_user(config->user_calls, config->max_calls),
                 .memory_bytes = of_one_user(config->user_memory_bytes, config->grpc_memory_bytes),
                 .calls_per_s = config->user_calls_per_s,
                 .bytes_per_s = config->user_bytes_per_s},
        .all = {.calls_per_s = config->calls_per_s, .bytes_per_s = config->bytes_per_s},
        .clock = server->clock,
        .metrics = server->metrics};
    if (!limits_new(&limits, &server->limits, status))
        return false;
    if (!open_files(config, server->clock, server->metrics, &server->access, &server->tls, status))
        return false;
    access_report(server->access);
    if (server->tls != NULL)
        tls_report(server->tls);
    if (config->access[0] != '\0' && server->tls == NULL && !config_is_loopback(config))
        log_event(
            LOG_LEVEL_WARN, "access_without_tls",
            "reason=\"passwords and tokens can be read on the network; --tls-cert encrypts\"");
    if (!health_new(&server->health, status) ||
        !rpc_metrics_new(server->methods, server->methods_count, &server->rpc_metrics, status))
        return false;
    const struct http_config http = {.listen = config->http_listen,
                                     .health = server->health,
                                     .metrics = server->metrics,
                                     .rpc_metrics = server->rpc_metrics,
                                     .access = server->access,
                                     .limits = server->limits,
                                     .tls = server->tls,
                                     .connections_max = config->http_connections,
                                     .address_connections_max = config->http_address_connections,
                                     .idle_ns = config->http_idle_ns,
                                     .spare_descriptors = kept / 4};
    if (config->http_listen[0] != '\0' && !http_start(&http, &private->http, status))
        return false;
    return buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, config->buffers, &server->buffers, status) &&
           workers_new(&server->workers, status) &&
           walks_new(config->request_memory_bytes, &server->walks, status) &&
           budget_new(config->request_memory_bytes, config->max_calls, server->metrics,
                      &server->budget, status);
}

/* On the thread of HTTP. */
static void render_followers(void *argument, struct metrics_text *text)
{
    struct server *const server = argument;
    copies_render(durability_copies(server->durability), text);
}

/* A lane has failed for good. From the committer. */
static void writes_have_failed(void *argument, enum lane lane, const struct status *why)
{
    struct server *const server = argument;
    (void)lane;
    health_set(server->health, SERVER_READ_ONLY, why->message);
}

static bool open_store(struct server *server, struct status *status)
{
    const struct config *const config = server->config;
    struct store_config store = {.io = io_posix(),
                                 .clock = server->clock,
                                 .metrics = server->metrics,
                                 .buffers = server->buffers,
                                 .directory = config->data,
                                 .scrub_bytes_per_s = config->scrub_bytes_per_s};
    store.segment_bytes[LANE_SMALL] = config->small_segment_bytes;
    store.segment_bytes[LANE_LARGE] = config->large_segment_bytes;
    store.vouch_ns = config->vouch_ns;
    if (!limit_store(config, &store, status))
        return false;
    struct recovery_report report = {0};
    if (!durability_open(&store, writes_have_failed, server, &server->durability, &report, status))
        return false;
    server->store = durability_store(server->durability);
    const struct copies_config copies = {
        .wanted = (unsigned)config->ack_copies,
        .bucket_uid = tier_follower_uid(config),
        .bucket_needed = strcmp(config->tier_mode, "through") == 0,
        .bucket_keeps = tier_follower_uid(config) != 0 && strcmp(config->tier_unsent, "keep") == 0,
        .timeout_ns = config->ack_copies_timeout_ns,
        .otherwise =
            strcmp(config->ack_copies_else, "degrade") == 0 ? COPIES_DEGRADE : COPIES_REFUSE,
    };
    copies_configure(durability_copies(server->durability), &copies);
    http_set_series(server->private->http, render_followers, server);
    return flights_new(&server->flights, status) &&
           upload_table_new(server->store, server->clock, server->metrics, config->upload_keep_ns,
                            &server->uploads, status) &&
           feed_waits_new(durability_copies(server->durability), server->clock, server->metrics,
                          &server->feed_waits, status);
}

/* What the capacity and the reserve come to, on the disk of the data directory or of where it will be made. */
static bool limit_store(const struct config *config,
                        struct store_config *store,
                        struct status *status)
{
    struct io_space disk;
    char *const copy = strdup(config->data);
    if (copy == NULL)
        return status_fail_errno(status, ENOMEM, "data directory");
    bool ok = io_space(store->io, config->data, &disk, status) ||
              io_space(store->io, dirname(copy), &disk, status);
    free(copy);
    if (!ok)
        return false;
    store->reserve_bytes = disk_share_reserve(&config->reserve, disk.total_bytes);
    ok = disk_share_capacity(&config->capacity, disk.total_bytes, &store->capacity_bytes, status);
    log_event(LOG_LEVEL_INFO, "limits",
              "capacity_bytes=%" PRIu64 " reserve_bytes=%" PRIu64 " disk_bytes=%" PRIu64
              " vouch_s=%" PRId64,
              store->capacity_bytes, store->reserve_bytes, disk.total_bytes,
              config->vouch_ns / NS_PER_S);
    return ok;
}

static bool open_front(struct server *server, struct status *status)
{
    const struct config *const config = server->config;
    grpc_log_install();
    grpc_init();
    server->private->grpc_ready = true;
    const struct front_config front = {.server = server,
                                       .metrics = server->metrics,
                                       .methods = server->methods,
                                       .methods_count = server->methods_count,
                                       .listen = config->listen.items,
                                       .listen_count = config->listen.count,
                                       .remembered_bytes_max = config->request_memory_bytes / 2,
                                       .grpc_memory_bytes = config->grpc_memory_bytes,
                                       .max_calls = config->max_calls,
                                       .max_streams = config->max_streams,
                                       .keepalive_ns = config->keepalive_ns,
                                       .tls = server->tls};
    return front_new(&front, &server->private->front, status);
}

/* Each has threads of its own. */
static bool follow_peers(struct server *server, struct status *status)
{
    const struct config *const config = server->config;
    const char *const instance = config->instances.count > 0 ? config->instances.items[0] : "";
    const struct peer_identity identity = {.certificate = config->tls_cert,
                                           .key = config->tls_key,
                                           .ca = config->tls_client_ca,
                                           .token = config->peer_token_file};
    char name[256] = "";
    if (gethostname(name, sizeof(name) - 1) != 0)
        name[0] = '\0';
    const size_t length = strlen(name);
    snprintf(name + length, sizeof(name) - length, ":%d", server_grpc_port(server));
    const struct repair_config repair = {.durability = server->durability,
                                         .flights = server->flights,
                                         .metrics = server->metrics,
                                         .instance = instance,
                                         .identity = &identity,
                                         .is_behind = is_behind,
                                         .argument = server,
                                         .tier = tier_reader(server->tier),
                                         .tier_finds = tier_finds(server->tier)};
    if (strcmp(config->read_repair, "on") == 0 && !repair_new(&repair, &server->repair, status))
        return false;
    const struct peers_config peers = {.durability = server->durability,
                                       .flights = server->flights,
                                       .metrics = server->metrics,
                                       .repair = server->repair,
                                       .name = name,
                                       .instance = instance,
                                       .identity = &identity};
    return peers_new(&peers, &server->peers, status) &&
           peers_set(server->peers, config->peers.items, config->peers.count, status);
}

/* Peers are set before anything is asked. */
static bool is_behind(void *argument, const char *address)
{
    const struct server *const server = argument;
    return peers_are_behind(server->peers, address);
}

void server_reload_peers(struct server *server, const struct config *config)
{
    struct status status = {0};
    struct log_text reason;
    if (!peers_set(server->peers, config->peers.items, config->peers.count, &status))
        log_event(LOG_LEVEL_ERROR, "peers_not_followed", "reason=%s",
                  log_quote(&reason, status.message));
}

static void run_poller(void *argument)
{
    while (front_poll_step(argument))
        continue;
}

static void run_worker(void *argument)
{
    while (workers_step(argument))
        continue;
}

static void run_stand_in(void *argument);
static void run_maintenance(void *argument);

static void run_access(void *argument)
{
    while (access_step(argument))
        continue;
}

static bool start_threads(struct server *server, struct status *status)
{
    const struct config *const config = server->config;
    /* Workers are nice, so that bulk reads and hashing do not hold up small calls. */
    const struct {
        const char *name;
        int nice;
        void (*run)(void *argument);
        void *argument;
        size_t count;
    } table[THREAD_KINDS] = {
        [THREADS_POLLERS] = {"cq", 0, run_poller, server->private->front, config->pollers},
        [THREADS_STAND_IN] = {"cq-stand-in", 0, run_stand_in, server, 1},
        [THREADS_WORKERS] = {"worker", WORKER_NICE, run_worker, server->workers, config->workers},
        [THREADS_MAINTENANCE] = {"maint", 0, run_maintenance, server, 1},
        [THREADS_ACCESS] = {"access", WORKER_NICE, run_access, server->access, 1},
    };
    for (size_t kind = 0; kind < THREAD_KINDS; kind++) {
        struct thread_group *const group = &server->private->groups[kind];
        group->threads = calloc(table[kind].count, sizeof(*group->threads));
        if (group->threads == NULL)
            return status_fail_errno(status, ENOMEM, "threads");
        for (size_t i = 0; i < table[kind].count; i++) {
            char name[THREAD_NAME_BYTES];
            snprintf(name, sizeof(name), "%s-%zu", table[kind].name, i % 1000);
            if (!thread_start(&group->threads[i], name, table[kind].nice, table[kind].run,
                              table[kind].argument, status))
                return false;
            group->count++;
        }
    }
    return true;
}

static void log_ready(struct server *server)
{
    const struct config *const config = server->config;
    char addresses[LOG_TEXT_BYTES_MAX];
    size_t length = 0;
    for (size_t i = 0; i < config->listen.count && length < sizeof(addresses); i++)
        length += (size_t)snprintf(addresses + length, sizeof(addresses) - length, "%s%s",
                                   i > 0 ? "," : "", config->listen.items[i]);
    struct log_text listen;
    struct log_text http;
    struct log_text data;
    log_event(LOG_LEVEL_INFO, "ready",
              "version=%s listen=%s port=%d http_listen=%s http_port=%d data=%s workers=%llu "
              "pollers=%llu start_ms=%lld",
              VARVE_VERSION, log_quote(&listen, addresses), server_grpc_port(server),
              log_quote(&http, config->http_listen), server_http_port(server),
              log_quote(&data, config->data), (unsigned long long)config->workers,
              (unsigned long long)config->pollers,
              (long long)((clock_monotonic_ns(server->clock) - server->started_ns) / NS_PER_MS));
}

/* ---- housekeeping */

struct maintenance {
    uint64_t begun;         /* calls, when it last looked */
    int64_t busy_ns;        /* when it last saw one */
    bool trimmed;           /* since then */
    int64_t slack_ns;       /* when it last looked what malloc keeps */
    int64_t connections_ns; /* when it last counted them */
    int64_t progress_ns;    /* when it last looked at the threads */
    struct progress progress;
};

static bool rest(struct server *server, int64_t pause_ns);
static void maintenance_step(struct server *server, struct maintenance *maintenance);
static void look_at_threads(struct server *server, struct progress *progress, int64_t now_ns);
static void tell_status(struct server *server);
static void reload_files(struct server *server, bool asked);
static void note_copies(struct server *server);
static void give_memory_back_when_idle(struct server *server,
                                       struct maintenance *maintenance,
                                       int64_t now_ns);

static void run_maintenance(void *argument)
{
    struct server *const server = argument;
    struct maintenance maintenance = {.trimmed = true};
    while (rest(server, maintenance_pause_ns))
        maintenance_step(server, &maintenance);
}

static void run_stand_in(void *argument)
{
    struct server *const server = argument;
    while (rest(server, stand_in_pause_ns))
        front_stand_in_step(server->private->front);
}

/* False when the server stops. */
static bool rest(struct server *server, int64_t pause_ns)
{
    struct server_private *const private = server->private;
    lock_acquire(&private->lock);
    if (!private->stopping && !condition_wait_for(&private->changed, &private->lock, pause_ns))
        (void)0; /* the pause is over */
    const bool stopping = private->stopping;
    lock_release(&private->lock);
    return !stopping;
}

static void maintenance_step(struct server *server, struct maintenance *maintenance)
{
    const int64_t now_ns = clock_monotonic_ns(server->clock);
    upload_table_step(server->uploads);
    feed_waits_step(server->feed_waits);
    copies_step(durability_copies(server->durability));
    note_copies(server);
    front_make_room(server->private->front,
                    metrics_get(server->metrics, METRIC_BUDGET_WAITING) > 0 ||
                        walks_wait(server->walks) ||
                        zstd_budget_is_scarce(upload_table_zstd_budget(server->uploads)));
    metrics_set(server->metrics, METRIC_BUFFERS_IN_USE,
                (int64_t)buffer_pool_in_use(server->buffers));
    if (now_ns - maintenance->connections_ns >= connections_pause_ns) {
        maintenance->connections_ns = now_ns;
        accept_guard_step();
        http_step(server->private->http);
        peers_step(server->peers);
        tier_step(server->tier);
        reload_files(server, atomic_exchange(&server->private->reload, false));
    }
    if (now_ns - maintenance->progress_ns >= progress_pause_ns) {
        maintenance->progress_ns = now_ns;
        look_at_threads(server, &maintenance->progress, now_ns);
    }
    give_memory_back_when_idle(server, maintenance, now_ns);
}

static void probe_answered(struct task *task);

static void look_at_threads(struct server *server, struct progress *progress, int64_t now_ns)
{
    struct server_private *const private = server->private;
    struct progress_seen seen[PROGRESS_PART_COUNT];
    seen[PROGRESS_POLLERS] =
        (struct progress_seen){.waits = true, .done = front_turns(private->front)};
    seen[PROGRESS_WORKERS] = (struct progress_seen){.waits = atomic_load(&private->probe_waits),
                                                    .done = workers_done(server->workers)};
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        struct progress_seen *const of = &seen[PROGRESS_SMALL_LANE + lane];
        of->done = commit_turns(durability_commit(server->durability, lane), &of->waits);
    }
    if (!atomic_exchange(&private->probe_waits, true)) {
        private->probe.run = probe_answered;
        workers_submit(server->workers, &private->probe);
    }
    if (!progress_look(progress, seen, now_ns, server->metrics)) {
        notify_status(&private->notify, "stuck: the log says which part");
        return;
    }
    tell_status(server);
    notify_alive(&private->notify, now_ns);
}

static void probe_answered(struct task *task)
{
    struct server_private *const private = CONTAINER_OF(task, struct server_private, probe);
    atomic_store(&private->probe_waits, false);
}

/* The service manager's line. What changes all the time is left to the metrics. */
static void tell_status(struct server *server)
{
    char reason[STATUS_MESSAGE_BYTES_MAX];
    char line[STATUS_MESSAGE_BYTES_MAX + 64]; /* notify cuts it */
    const enum server_state state = health_state(server->health, reason);
    if (state == SERVER_DRAINING)
        return; /* said by notify_stopping() */
    snprintf(line, sizeof(line), "%s%s%s%s", server_state_name(state),
             reason[0] != '\0' ? ": " : "", reason,
             metrics_get(server->metrics, METRIC_INDEX_LOADING) != 0 ? "; the index is being loaded"
                                                                     : "");
    notify_status(&server->private->notify, line);
}

static void note_copies(struct server *server)
{
    struct copies_state copies;
    char note[STATUS_MESSAGE_BYTES_MAX] = "";
    copies_state(durability_copies(server->durability), &copies);
    if (copies.degraded)
        snprintf(note, sizeof(note),
                 "writes are answered without %sthe %u copies that ack-copies asks for; %zu nodes "
                 "follow this one",
                 copies.bucket_needed ? "waiting for the bucket (tier-mode) and " : "",
                 copies.wanted, copies.counting);
    health_set_note(server->health, note);
}

static void give_memory_back_when_idle(struct server *server,
                                       struct maintenance *maintenance,
                                       int64_t now_ns)
{
    const uint64_t begun = front_begun(server->private->front);
    if (begun != maintenance->begun || front_live(server->private->front) > 0) {
        maintenance->begun = begun;
        maintenance->busy_ns = now_ns;
        maintenance->trimmed = false;
    } else if (!maintenance->trimmed && now_ns - maintenance->busy_ns >= idle_ns) {
        malloc_trim(0);
        maintenance->trimmed = true;
    }
    if (now_ns - maintenance->slack_ns >= slack_pause_ns) {
        maintenance->slack_ns = now_ns;
        if (mallinfo2().fordblks > slack_bytes_max)
            malloc_trim(0);
    }
}

static void reload_files(struct server *server, bool asked)
{
    if (server->tls != NULL)
        tls_reload(server->tls, asked ? TLS_ANYWAY : TLS_IF_CHANGED);
    access_reload(server->access, asked ? ACCESS_ANYWAY : ACCESS_IF_CHANGED);
    if (asked)
        notify_ready(&server->private->notify);
}

void server_reload(struct server *server)
{
    log_event(LOG_LEVEL_INFO, "reload", "tls=%d access=%d", server->tls != NULL,
              server->config->access[0] != '\0');
    notify_reloading(&server->private->notify, clock_monotonic_ns(server->clock));
    atomic_store(&server->private->reload, true);
}

/* ---- stopping */

static void join(struct thread_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        thread_join(&group->threads[i]);
    group->count = 0;
}

void server_stop(struct server *server)
{
    health_set(server->health, SERVER_DRAINING, "");
    notify_stopping(&server->private->notify, server->config->drain_ns + close_ns);
    log_event(LOG_LEVEL_INFO, "draining", "calls=%zu", front_live(server->private->front));
    copies_stop(durability_copies(server->durability), server->config->drain_ns < copies_grace_ns
                                                           ? server->config->drain_ns
                                                           : copies_grace_ns);
    feed_waits_stop(server->feed_waits);
    const int64_t until_ns = clock_monotonic_ns(server->clock) + server->config->drain_ns;
    front_drain(server->private->front, server->config->drain_ns);
    const int64_t left_ns = until_ns - clock_monotonic_ns(server->clock);
    if (server->private->http != NULL)
        http_drain(server->private->http, left_ns > 0 ? left_ns : 0);
    close_parts(server);
    log_event(LOG_LEVEL_INFO, "stopped", "exit=0");
}

/* In reverse order of server_start(), as far as it came. No call is in progress. */
static void close_parts(struct server *server)
{
    struct server_private *const private = server->private;
    tier_end_requests(server->tier); /* whoever waits for the bucket does so no more */
    http_stop(private->http);        /* what else it waits for still runs */
    lock_acquire(&private->lock);
    private->stopping = true;
    condition_broadcast(&private->changed);
    lock_release(&private->lock);
    join(&private->groups[THREADS_MAINTENANCE]);
    http_free(private->http); /* by now nobody looks after its connections */
    private->http = NULL;
    join(&private->groups[THREADS_STAND_IN]);
    repair_free(server->repair); /* it asks how far peers are */
    peers_free(server->peers);
    tier_stop(server->tier);

    if (server->workers != NULL)
        workers_stop(server->workers);
    join(&private->groups[THREADS_WORKERS]);
    if (server->access != NULL)
        access_stop(server->access);
    join(&private->groups[THREADS_ACCESS]);
    if (private->groups[THREADS_POLLERS].count > 0)
        front_stop(private->front);
    join(&private->groups[THREADS_POLLERS]);
    front_free(private->front);
    if (private->grpc_ready)
        grpc_shutdown_blocking();

    http_set_series(private->http, NULL, NULL);
    upload_table_free(server->uploads);
    feed_waits_free(server->feed_waits);
    flights_free(server->flights);
    durability_close(server->durability);
    budget_free(server->budget);
    walks_free(server->walks);
    workers_free(server->workers);
    /*
     * Whoever else uses gRPC in this process keeps grpc_shutdown_blocking() from waiting for gRPC's own threads; they
     * may still be letting go of what was sent.
     */
    if (server->buffers != NULL && !buffer_pool_await_all(server->buffers, lent_patience_ns))
        log_event(LOG_LEVEL_ERROR, "buffers_kept", "buffers=%zu",
                  buffer_pool_in_use(server->buffers));
    buffer_pool_free(server->buffers);
    access_free(server->access);
    limits_free(server->limits);
    tls_free(server->tls);
    rpc_metrics_free(server->rpc_metrics);
    health_free(server->health);
    resets_free(server->resets);
    if (private->guarded)
        accept_guard_stop();
    notify_destroy(&private->notify);
    for (size_t kind = 0; kind < THREAD_KINDS; kind++)
        free(private->groups[kind].threads);
    condition_destroy(&private->changed);
    lock_destroy(&private->lock);
    free(private);
    free(server);
}

enum server_state server_state(struct server *server)
{
    return health_state(server->health, NULL);
}

int server_grpc_port(struct server *server)
{
    return front_port(server->private->front);
}

int server_http_port(struct server *server)
{
    return server->private->http != NULL ? http_port(server->private->http) : 0;
}
