/* SPDX-License-Identifier: Apache-2.0 */
#include "server/repair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/messages.h"
#include "client/replication.h"
#include "client/unary.h"
#include "server/fetcher.h"
#include "server/peers.h"
#include "server/tier_fetch.h"

enum { BUCKETS = 1024, BATCHES_MAX = 64, STREAMS_MAX = 16 };
#define FETCH_BYTES_MAX (64 * MIB)

static const int64_t tick_ns = 100 * NS_PER_MS;
/* Whoever has answered lately may take longer for a message. */
static const int64_t proven_ns = 10 * NS_PER_S;
static const int64_t proven_silence_ns = NS_PER_S;
static const int64_t probe_pause_ns = NS_PER_S;
static const int64_t lie_pause_ns = 60 * NS_PER_S;

/* One peer, in the repair's thread. */
struct repair_peer {
    struct repair *repair; /* borrowed */
    char *address;         /* owned */
    struct client *client; /* owned */
    struct peer_token token;
    struct fetcher *fetcher; /* owned */
    bool down, removed;
    bool is_self;
    int64_t proven_ns; /* when it has answered last; 0: never */
    struct timer probe_timer;
    struct unary *probe; /* in flight */
    struct repair_peer *next;
};

/* One digest that is asked for. */
struct repair_job {
    struct repair *repair; /* borrowed */
    struct want want;
    struct repair_peer *peer; /* that is being asked; in the repair's thread */
    struct tier_want at_tier; /* when no peer could help */
    struct event tier_event;
    struct repair_job *next; /* in its bucket, or in the queue; guarded by lock */
    struct repair_job *next_queued;
    struct repair_wait *waits; /* guarded by lock */
};

struct repair {
    struct repair_config config; /* its text is owned */
    struct peer_identity identity;
    struct store *store; /* borrowed */
    struct fetch_budget budget;
    struct event_loop loop;
    struct thread thread;
    _Atomic size_t peers_up;

    /* Of the repair's thread. */
    struct repair_peer *peers;
    size_t in_flight;
    struct repair_question *questions; /* in flight */
    struct timer tick, reap;
    bool stopping, ended;

    struct lock lock;
    struct repair_job *buckets[BUCKETS];   /* guarded by lock */
    struct repair_job *queue, **queue_end; /* guarded by lock: not begun */
    size_t waiting;                        /* guarded by lock */
    bool posted;                           /* guarded by lock: the event is on its way */
    size_t questions_posted;               /* guarded by lock: not begun */
    size_t digests_asked;                  /* guarded by lock: of all questions */
    struct event event;
};

/* What one that waits would have peers say: the result of an action, or which of some blobs they have. */
struct repair_question {
    struct repair *repair; /* borrowed */
    struct digest action;
    char instance[LIMIT_INSTANCE_NAME_BYTES + 1]; /* of the action */
    struct digest *digests; /* owned; NULL: it is the action that is asked for */
    size_t count;           /* of digests: nobody has these so far */
    size_t digests_asked;   /* at first */
    bool ask_all;
    struct event event;
    struct repair_question_wait *wait; /* guarded by lock; NULL: nobody does any more */
    struct repair_peer *peer;          /* that is being asked */
    struct unary *call;                /* in flight */
    struct tier_want at_tier;          /* when no peer has the action's result */
    struct event tier_event;
    int64_t begun_ns;
    struct repair_question *next, *previous; /* those that are in flight */
};

/* What another thread has the repair's thread do, and waits for. */
struct order {
    struct event event;
    struct repair *repair;
    struct repair_peer *added; /* handed over */
    char *const *addresses;    /* that stay */
    size_t count;
    bool stop;
    struct lock lock;
    struct condition done;
    bool over;
};

static void run(void *argument);
static void begin_jobs(struct event *event);
static struct fetcher *ask_next(struct repair_job *job);
static struct repair_peer *next_peer(struct repair *repair, const struct repair_peer *after);
static void want_done(struct want *want, const struct status *result);
static void ask_tier(struct repair_job *job);
static void tier_has_answered(struct tier_want *want);
static void take_from_tier(struct event *event);
static void finish(struct repair_job *job, bool found, bool unavailable);
static void ask_tier_question(struct repair_question *job);
static void tier_has_answered_question(struct tier_want *want);
static void take_answer_from_tier(struct event *event);
static void begin_question(struct event *event);
static void ask_next_for_question(struct repair_question *job);
static void question_answered(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void finish_question(struct repair_question *job, uint8_t *result, size_t length);
static bool post_question(struct repair_question *job, struct repair_question_wait *wait);
static void free_question(struct repair_question *job);
static bool is_asked(const struct repair_question *job, const struct repair_peer *peer);
static grpc_slice action_request(const struct repair_question *job);
static bool leave_what_is_missing(struct repair_question *job, grpc_byte_buffer *reply);
static bool walk_missing(struct repair_question *job,
                         const struct bytes *message,
                         bool keep,
                         size_t *missing);
static bool is_silent(const struct repair_peer *peer, int64_t silent_ns);
static void mark_down(struct repair_peer *peer, const struct status *why, int64_t pause_ns);
static void probe(struct timer *timer);
static void probed(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void tick(struct timer *timer);
static void give_order(struct repair *repair, struct order *order);
static void follow_order(struct event *event);
static void reap_soon(struct repair *repair);
static void reap(struct timer *timer);
static bool peer_new(struct repair *repair,
                     const char *address,
                     struct repair_peer **peer,
                     struct status *status);
static void peer_free(struct repair_peer *peer);

bool repair_new(const struct repair_config *config, struct repair **repair, struct status *status)
{
    struct repair *const made = calloc(1, sizeof(*made));
    char *const instance = strdup(config->instance);
    if (made == NULL || instance == NULL) {
        free(made);
        free(instance);
        return status_fail_errno(status, ENOMEM, "read repair");
    }
    made->config = *config;
    made->config.instance = instance;
    if (made->config.silence_ns == 0)
        made->config.silence_ns = REPAIR_SILENCE_NS;
    if (config->identity != NULL) {
        made->identity = *config->identity;
        made->config.identity = &made->identity;
    }
    made->store = durability_store(config->durability);
    made->budget.limit_bytes = FETCH_BYTES_MAX;
    made->queue_end = &made->queue;
    made->event.run = begin_jobs;
    made->tick.run = tick;
    made->reap.run = reap;
    event_loop_init(&made->loop, made->store->clock);
    lock_init(&made->lock, LOCK_RANK_REPAIR);
    if (thread_start(&made->thread, "repair", 0, run, made, status)) {
        *repair = made;
        return true;
    }
    event_loop_destroy(&made->loop);
    lock_destroy(&made->lock);
    free(instance);
    free(made);
    return false;
}

static void run(void *argument)
{
    struct repair *const repair = argument;
    event_loop_run_until(&repair->loop, &repair->ended);
}

void repair_free(struct repair *repair)
{
    if (repair == NULL)
        return;
    struct order order = {.stop = true};
    give_order(repair, &order);
    thread_join(&repair->thread);
    ASSERT(repair->waiting == 0);
    event_loop_destroy(&repair->loop);
    lock_destroy(&repair->lock);
    free((char *)(uintptr_t)repair->config.instance);
    free(repair);
}

/* ---- any thread: who waits */

static struct repair_job **find_locked(struct repair *repair, const struct digest *digest)
    REQUIRES(repair->lock)
{
    const struct blob_key key = blob_table_blob_key(repair->store->table, digest);
    struct repair_job **at = &repair->buckets[key.fingerprint % BUCKETS];
    while (*at != NULL && !digest_equal(&(*at)->want.digest, digest))
        at = &(*at)->next;
    return at;
}

static bool start_locked(struct repair *repair,
                         const struct digest *digest,
                         struct repair_wait *wait,
                         bool *post) REQUIRES(repair->lock)
{
    struct repair_job **const at = find_locked(repair, digest);
    if (*at == NULL) {
        struct repair_job *const job = calloc(1, sizeof(*job));
        if (job == NULL)
            return false;
        job->repair = repair;
        job->want = (struct want){.digest = *digest, .done = want_done};
        *at = job;
        *repair->queue_end = job;
        repair->queue_end = &job->next_queued;
        *post = !repair->posted;
        repair->posted = true;
    }
    wait->job = *at;
    wait->previous = NULL;
    wait->next = wait->job->waits;
    if (wait->next != NULL)
        wait->next->previous = wait;
    wait->job->waits = wait;
    wait->queued = true;
    repair->waiting++;
    return true;
}

bool repair_can_ask(struct repair *repair)
{
    return repair != NULL && (atomic_load(&repair->peers_up) > 0 || repair->config.tier != NULL);
}

bool repair_start(struct repair *repair, const struct digest *digest, struct repair_wait *wait)
{
    bool post = false;
    if (!repair_can_ask(repair) || digest_is_empty_blob(digest))
        return false;
    lock_acquire(&repair->lock);
    const bool started =
        repair->waiting < REPAIRS_WAITING_MAX && start_locked(repair, digest, wait, &post);
    lock_release(&repair->lock);
    if (post)
        event_loop_post(&repair->loop, &repair->event);
    return started;
}

static bool cancel_locked(struct repair *repair, struct repair_wait *wait) REQUIRES(repair->lock)
{
    if (!wait->queued)
        return false;
    if (wait->previous != NULL)
        wait->previous->next = wait->next;
    else
        wait->job->waits = wait->next;
    if (wait->next != NULL)
        wait->next->previous = wait->previous;
    wait->queued = false;
    repair->waiting--;
    return true;
}

bool repair_cancel(struct repair *repair, struct repair_wait *wait)
{
    lock_acquire(&repair->lock);
    const bool cancelled = cancel_locked(repair, wait);
    lock_release(&repair->lock);
    return cancelled;
}

/* ---- the repair's thread: jobs */

static struct repair_job *next_job(struct repair *repair)
{
    lock_acquire(&repair->lock);
    struct repair_job *const job = repair->queue;
    if (job != NULL) {
        repair->queue = job->next_queued;
        if (repair->queue == NULL)
            repair->queue_end = &repair->queue;
    }
    lock_release(&repair->lock);
    return job;
}

static void begin_jobs(struct event *event)
{
    struct repair *const repair = CONTAINER_OF(event, struct repair, event);
    lock_acquire(&repair->lock);
    repair->posted = false;
    lock_release(&repair->lock);
    while (repair->in_flight < REPAIRS_IN_FLIGHT_MAX) {
        struct repair_job *const job = next_job(repair);
        if (job == NULL)
            break;
        repair->in_flight++;
        ask_next(job); /* all are pumped below */
    }
    for (struct repair_peer *peer = repair->peers; peer != NULL; peer = peer->next)
        fetcher_pump(peer->fetcher);
    if (!repair->tick.armed && repair->in_flight > 0)
        event_loop_start_timer(&repair->loop, &repair->tick, tick_ns);
    if (repair->stopping)
        reap_soon(repair);
}

/* The fetcher that has something to do now, and is to be told so; NULL: the job is over. */
static struct fetcher *ask_next(struct repair_job *job)
{
    job->peer = next_peer(job->repair, job->peer);
    if (job->peer == NULL || job->repair->stopping) {
        const bool found = store_holds(job->repair->store, &job->want.digest);
        if (!found && job->repair->config.tier != NULL && !job->repair->stopping)
            ask_tier(job);
        else
            finish(job, found, false);
        return NULL;
    }
    struct fetcher *const fetcher = job->peer->fetcher;
    if (fetcher_add(fetcher, &job->want) == FETCHER_TAKEN)
        return fetcher;
    finish(job, true, false);
    return NULL;
}

static void ask_tier(struct repair_job *job)
{
    job->tier_event.run = take_from_tier;
    job->at_tier = (struct tier_want){.digest = job->want.digest, .done = tier_has_answered};
    tier_fetch_ask(job->repair->config.tier, &job->at_tier);
}

/* On a thread of its own; or in ours, when it is being stopped. */
static void tier_has_answered(struct tier_want *want)
{
    struct repair_job *const job = CONTAINER_OF(want, struct repair_job, at_tier);
    event_loop_post(&job->repair->loop, &job->tier_event);
}

static void take_from_tier(struct event *event)
{
    struct repair_job *const job = CONTAINER_OF(event, struct repair_job, tier_event);
    struct repair *const repair = job->repair;
    finish(job, job->at_tier.outcome == TIER_FETCHED, job->at_tier.outcome == TIER_UNAVAILABLE);
    reap_soon(repair);
}

static struct repair_peer *next_peer(struct repair *repair, const struct repair_peer *after)
{
    struct repair_peer *peer = after == NULL ? repair->peers : after->next;
    while (peer != NULL && (peer->down || peer->removed || peer->is_self))
        peer = peer->next;
    if (peer != NULL)
        peer_token_step(&peer->token, peer->client);
    return peer;
}

static void want_done(struct want *want, const struct status *result)
{
    struct repair_job *const job = CONTAINER_OF(want, struct repair_job, want);
    struct repair_peer *const peer = job->peer;
    struct repair *const repair = job->repair;
    char text[DIGEST_TEXT_BYTES_MAX];
    struct log_text address;
    struct log_text reason;
    if (result->code == STATUS_OK || want->failed_here) {
        finish(job, result->code == STATUS_OK, false);
        reap_soon(repair);
        return;
    }
    if (result->code == STATUS_NOT_FOUND) {
        peer->proven_ns = clock_monotonic_ns(repair->loop.clock);
    } else if (result->code == STATUS_DATA_LOSS) {
        metrics_add(repair->config.metrics, METRIC_PEER_LIES, 1);
        log_event(LOG_LEVEL_ERROR, "peer_lied",
                  "address=%s uid=unknown digest=%s left_alone_ms=%" PRId64 " reason=%s",
                  log_quote(&address, peer->address), digest_text(&want->digest, text),
                  lie_pause_ns / NS_PER_MS, log_quote(&reason, result->message));
        mark_down(peer, result, lie_pause_ns);
    } else if (result->code != STATUS_OUT_OF_RANGE) {
        mark_down(peer, result, probe_pause_ns);
    }
    struct fetcher *const fetcher = ask_next(job);
    if (fetcher != NULL)
        fetcher_pump(fetcher);
    reap_soon(repair);
}

/* Whoever waits looks whether it is here. */
static void finish(struct repair_job *job, bool found, bool unavailable)
{
    struct repair *const repair = job->repair;
    if (found && job->want.fetched && job->peer != NULL)
        job->peer->proven_ns = clock_monotonic_ns(repair->loop.clock);
    metrics_add(repair->config.metrics,
                found ? METRIC_READ_REPAIRS_FOUND : METRIC_READ_REPAIRS_ABSENT, 1);
    lock_acquire(&repair->lock);
    struct repair_job **const at = find_locked(repair, &job->want.digest);
    ASSERT(*at == job);
    *at = job->next;
    struct repair_wait *wait = job->waits;
    for (struct repair_wait *each = wait; each != NULL; each = each->next) {
        each->queued = false;
        each->unavailable = unavailable;
        repair->waiting--;
    }
    const bool more = repair->queue != NULL && !repair->posted;
    repair->posted = repair->posted || more;
    lock_release(&repair->lock);
    repair->in_flight--;
    if (more)
        event_loop_post(&repair->loop, &repair->event);
    free(job);
    while (wait != NULL) {
        struct repair_wait *const next = wait->next;
        wait->ready(wait);
        wait = next;
    }
}

/* ---- action results */

bool repair_start_action(struct repair *repair,
                         const struct digest *action,
                         struct bytes instance,
                         struct repair_question_wait *wait)
{
    wait->job = NULL;
    if (!repair_can_ask(repair) || instance.length > LIMIT_INSTANCE_NAME_BYTES)
        return false;
    struct repair_question *const job = calloc(1, sizeof(*job));
    if (job == NULL)
        return false;
    job->repair = repair;
    job->action = *action;
    if (instance.length > 0)
        memcpy(job->instance, instance.data, instance.length);
    return post_question(job, wait);
}

bool repair_start_find(struct repair *repair,
                       const struct digest *digests,
                       size_t count,
                       bool ask_all,
                       struct repair_question_wait *wait)
{
    wait->job = NULL;
    if (!repair_can_ask(repair) || count == 0 || count > REPAIR_FIND_DIGESTS_MAX)
        return false;
    struct repair_question *const job = calloc(1, sizeof(*job));
    struct digest *const copies = malloc(count * sizeof(*copies));
    if (job == NULL || copies == NULL) {
        free(job);
        free(copies);
        return false;
    }
    memcpy(copies, digests, count * sizeof(*copies));
    job->repair = repair;
    job->digests = copies;
    job->count = job->digests_asked = count;
    job->ask_all = ask_all;
    return post_question(job, wait);
}

/* Takes the job over. */
static bool post_question(struct repair_question *job, struct repair_question_wait *wait)
{
    struct repair *const repair = job->repair;
    job->event.run = begin_question;
    job->wait = wait;
    lock_acquire(&repair->lock);
    const bool room = repair->waiting < REPAIRS_WAITING_MAX &&
                      job->digests_asked <= REPAIR_FIND_DIGESTS_MAX - repair->digests_asked;
    if (room) {
        wait->job = job;
        repair->waiting++;
        repair->questions_posted++;
        repair->digests_asked += job->digests_asked;
    }
    lock_release(&repair->lock);
    if (room)
        event_loop_post(&repair->loop, &job->event);
    else
        free_question(job);
    return room;
}

static void free_question(struct repair_question *job)
{
    free(job->digests);
    free(job);
}

bool repair_cancel_question(struct repair *repair, struct repair_question_wait *wait)
{
    lock_acquire(&repair->lock);
    const bool waits = wait->job != NULL;
    if (waits) {
        wait->job->wait = NULL;
        wait->job = NULL;
        repair->waiting--;
    }
    lock_release(&repair->lock);
    return waits;
}

static void begin_question(struct event *event)
{
    struct repair_question *const job = CONTAINER_OF(event, struct repair_question, event);
    struct repair *const repair = job->repair;
    lock_acquire(&repair->lock);
    repair->questions_posted--;
    lock_release(&repair->lock);
    job->next = repair->questions;
    if (job->next != NULL)
        job->next->previous = job;
    repair->questions = job;
    repair->in_flight++;
    ask_next_for_question(job);
    if (!repair->tick.armed && repair->in_flight > 0)
        event_loop_start_timer(&repair->loop, &repair->tick, tick_ns);
    if (repair->stopping)
        reap_soon(repair);
}

static void ask_next_for_question(struct repair_question *job)
{
    struct repair *const repair = job->repair;
    const bool finds = job->digests != NULL;
    struct status why = {0};
    do
        job->peer = next_peer(repair, job->peer);
    while (job->peer != NULL && !is_asked(job, job->peer));
    const bool tier = repair->config.tier != NULL && !repair->stopping &&
                      (!finds || (repair->config.tier_finds && !job->ask_all && job->count > 0));
    if (job->peer == NULL && tier) {
        ask_tier_question(job);
        return;
    }
    if (job->peer == NULL || repair->stopping || (finds && job->count == 0)) {
        finish_question(job, NULL, 0);
        return;
    }
    const struct unary_request call = {
        .method = finds ? METHOD_FIND_MISSING_BLOBS : METHOD_GET_ACTION_RESULT,
        .body = finds ? find_missing_request(bytes_of_string(repair->config.instance), job->digests,
                                             job->count)
                      : action_request(job),
        .loop = &repair->loop,
        .done = question_answered,
        .argument = job,
    };
    job->begun_ns = clock_monotonic_ns(repair->loop.clock);
    if (!unary_start(job->peer->client, &call, &job->call, &why))
        finish_question(job, NULL, 0);
}

static void ask_tier_question(struct repair_question *job)
{
    job->tier_event.run = take_answer_from_tier;
    job->at_tier = (struct tier_want){.digest = job->action,
                                      .action = job->digests == NULL,
                                      .digests = job->digests,
                                      .count = job->count,
                                      .instance = bytes_of_string(job->instance),
                                      .done = tier_has_answered_question};
    tier_fetch_ask(job->repair->config.tier, &job->at_tier);
}

static void tier_has_answered_question(struct tier_want *want)
{
    struct repair_question *const job = CONTAINER_OF(want, struct repair_question, at_tier);
    event_loop_post(&job->repair->loop, &job->tier_event);
}

static void take_answer_from_tier(struct event *event)
{
    struct repair_question *const job = CONTAINER_OF(event, struct repair_question, tier_event);
    struct repair *const repair = job->repair;
    if (job->digests != NULL)
        job->count = job->at_tier.count;
    finish_question(job, job->at_tier.result, job->at_tier.result_bytes);
    reap_soon(repair);
}

/* What a peer has whose log was followed to its end is here, or was evicted here. */
static bool is_asked(const struct repair_question *job, const struct repair_peer *peer)
{
    const struct repair_config *const config = &job->repair->config;
    return job->digests == NULL || job->ask_all || config->is_behind == NULL ||
           config->is_behind(config->argument, peer->address);
}

static grpc_slice action_request(const struct repair_question *job)
{
    enum { FIELD_INSTANCE = 1, FIELD_ACTION = 2, FIELD_FUNCTION = 6 };
    const struct bytes instance = bytes_of_string(job->instance);
    const size_t digest_bytes = digest_message_size(&job->action);
    const size_t length =
        (instance.length > 0 ? wire_bytes_field_size(FIELD_INSTANCE, instance.length) : 0) +
        wire_bytes_field_size(FIELD_ACTION, digest_bytes) +
        wire_varint_field_size(FIELD_FUNCTION, job->action.function);
    grpc_slice slice = grpc_slice_malloc(length);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    if (instance.length > 0)
        to = wire_put_bytes_field(to, FIELD_INSTANCE, instance);
    to = wire_put_bytes_key(to, FIELD_ACTION, digest_bytes);
    to = digest_message_put(to, &job->action);
    to = wire_put_varint_field(to, FIELD_FUNCTION, job->action.function);
    ASSERT(to == GRPC_SLICE_END_PTR(slice));
    return slice;
}

static void question_answered(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct repair_question *const job = argument;
    struct repair *const repair = job->repair;
    struct repair_peer *const peer = job->peer;
    const bool finds = job->digests != NULL;
    struct status why = *status;
    size_t length = 0;
    uint8_t *result = NULL;
    if (reply != NULL && finds && !leave_what_is_missing(job, reply))
        status_fail(&why, STATUS_INTERNAL, "it calls missing what it was not asked for");
    else if (reply != NULL && !finds)
        result = message_flat(reply, &length);
    grpc_byte_buffer_destroy(reply);
    job->call = NULL;
    if (why.code == STATUS_OK ? finds || result != NULL : why.code == STATUS_NOT_FOUND)
        peer->proven_ns = clock_monotonic_ns(repair->loop.clock);
    else if (why.code != STATUS_OK)
        mark_down(peer, &why, probe_pause_ns);
    if (result != NULL)
        finish_question(job, result, length);
    else
        ask_next_for_question(job);
    reap_soon(repair);
}

/* False: the answer makes no sense, and nothing is taken from it. */
static bool leave_what_is_missing(struct repair_question *job, grpc_byte_buffer *reply)
{
    size_t length;
    size_t missing = 0;
    uint8_t *const flat = message_flat(reply, &length);
    if (flat == NULL)
        return false;
    const struct bytes message = bytes_of(flat, length);
    const bool makes_sense =
        walk_missing(job, &message, false, &missing) && walk_missing(job, &message, true, &missing);
    if (makes_sense)
        job->count = missing;
    free(flat);
    return makes_sense;
}

/* They come in the order in which they were asked for. keep: moves them to the front. */
static bool walk_missing(struct repair_question *job,
                         const struct bytes *message,
                         bool keep,
                         size_t *missing)
{
    struct wire_reader reader;
    struct arena arena;
    struct digest digest;
    struct status ignored;
    size_t at = 0;
    bool more = true;
    bool ok = true;
    arena_init(&arena, LIMIT_CALL_ARENA_BYTES);
    wire_reader_init(&reader, wire_span_of_bytes(message));
    *missing = 0;
    while ((ok = find_missing_response_next(&reader, &arena, &digest, &more, &ignored)) && more) {
        digest.function = job->digests[0].function;
        while (at < job->count && !digest_equal(&job->digests[at], &digest))
            at++;
        if (at == job->count) {
            ok = false;
            break;
        }
        if (keep)
            job->digests[*missing] = job->digests[at];
        ++*missing;
        at++;
    }
    arena_destroy(&arena);
    return ok;
}

static void finish_question(struct repair_question *job, uint8_t *result, size_t length)
{
    struct repair *const repair = job->repair;
    if (job->digests == NULL)
        metrics_add(repair->config.metrics,
                    result != NULL ? METRIC_READ_REPAIRS_FOUND : METRIC_READ_REPAIRS_ABSENT, 1);
    if (job->previous != NULL)
        job->previous->next = job->next;
    else
        repair->questions = job->next;
    if (job->next != NULL)
        job->next->previous = job->previous;
    repair->in_flight--;
    lock_acquire(&repair->lock);
    repair->digests_asked -= job->digests_asked;
    struct repair_question_wait *const wait = job->wait;
    if (wait != NULL) {
        wait->job = NULL;
        repair->waiting--;
    }
    lock_release(&repair->lock);
    if (job->digests != NULL) {
        result = (uint8_t *)job->digests;
        length = job->count * sizeof(*job->digests);
        job->digests = NULL;
    }
    free_question(job);
    if (wait != NULL)
        wait->ready(wait, result, length);
    else
        free(result);
}

/* ---- which peers can be asked */

static void mark_down(struct repair_peer *peer, const struct status *why, int64_t pause_ns)
{
    struct repair *const repair = peer->repair;
    struct log_text address;
    struct log_text reason;
    if (peer->down)
        return;
    peer->down = true;
    if (!peer->removed && !peer->is_self) {
        atomic_fetch_sub(&repair->peers_up, 1);
        log_event(LOG_LEVEL_INFO, "peer_not_asked", "address=%s reason=%s",
                  log_quote(&address, peer->address), log_quote(&reason, why->message));
    }
    if (!peer->removed && !repair->stopping)
        event_loop_start_timer(&repair->loop, &peer->probe_timer, pause_ns);
    fetcher_cancel(peer->fetcher, why);
}

/* A Feed that asks for nothing. It also tells whether it is we ourselves. */
static void probe(struct timer *timer)
{
    struct repair_peer *const peer = CONTAINER_OF(timer, struct repair_peer, probe_timer);
    const struct feed_request request = {.lane = FEED_LANE_SMALL, .follower_name = ""};
    const struct unary_request call = {
        .method = METHOD_FEED,
        .body = feed_request_message(&request),
        .loop = &peer->repair->loop,
        .done = probed,
        .argument = peer,
    };
    struct status why = {0};
    peer_token_step(&peer->token, peer->client);
    if (!unary_start(peer->client, &call, &peer->probe, &why))
        event_loop_start_timer(&peer->repair->loop, timer, probe_pause_ns);
}

static void probed(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct repair_peer *const peer = argument;
    struct repair *const repair = peer->repair;
    struct feed_page page = {0};
    struct status why = *status;
    struct log_text address;
    peer->probe = NULL;
    const bool answered = reply != NULL && feed_page_decode(reply, 0, &page, &why);
    grpc_byte_buffer_destroy(reply);
    feed_page_free(&page);
    if (answered && peer->down && !peer->removed && !repair->stopping) {
        peer->down = false;
        atomic_fetch_add(&repair->peers_up, 1);
        log_event(LOG_LEVEL_INFO, "peer_asked_again", "address=%s",
                  log_quote(&address, peer->address));
    } else if (peer->down && !peer->removed && !repair->stopping) {
        event_loop_start_timer(&repair->loop, &peer->probe_timer, probe_pause_ns);
    }
    reap_soon(repair);
}

static bool is_silent(const struct repair_peer *peer, int64_t silent_ns)
{
    const int64_t now_ns = clock_monotonic_ns(peer->repair->loop.clock);
    const bool proven = peer->proven_ns != 0 && now_ns - peer->proven_ns < proven_ns;
    const int64_t first_ns = peer->repair->config.silence_ns - tick_ns;
    return silent_ns >= (proven && proven_silence_ns > first_ns ? proven_silence_ns : first_ns);
}

static void tick(struct timer *timer)
{
    struct repair *const repair = CONTAINER_OF(timer, struct repair, tick);
    const int64_t now_ns = clock_monotonic_ns(repair->loop.clock);
    for (struct repair_peer *peer = repair->peers; peer != NULL; peer = peer->next) {
        struct status why = {0};
        if (!is_silent(peer, fetcher_silent_ns(peer->fetcher)))
            continue;
        status_fail(&why, STATUS_UNAVAILABLE, "it does not answer");
        mark_down(peer, &why, probe_pause_ns);
    }
    for (struct repair_question *job = repair->questions; job != NULL; job = job->next)
        if (job->call != NULL && is_silent(job->peer, now_ns - job->begun_ns))
            unary_cancel(job->call); /* that is a failure of the peer */
    if (repair->in_flight > 0 && !timer->armed)
        event_loop_start_timer(&repair->loop, timer, tick_ns);
}

/* ---- who is a peer */

bool repair_set_peers(struct repair *repair,
                      char *const *addresses,
                      size_t count,
                      struct status *status)
{
    struct repair_peer *added = NULL;
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        struct repair_peer *peer = NULL;
        ok = peer_new(repair, addresses[count - 1 - i], &peer, status);
        if (ok) {
            peer->next = added;
            added = peer;
        }
    }
    struct order order = {.added = added, .addresses = addresses, .count = count};
    give_order(repair, &order);
    return ok;
}

static bool peer_new(struct repair *repair,
                     const char *address,
                     struct repair_peer **peer,
                     struct status *status)
{
    struct repair_peer *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "read repair");
    made->repair = repair;
    made->probe_timer.run = probe;
    made->token.path = repair->config.identity != NULL ? repair->config.identity->token : NULL;
    made->address = strdup(address);
    const struct fetcher_config fetcher = {
        .loop = &repair->loop,
        .durability = repair->config.durability,
        .flights = repair->config.flights,
        .budget = &repair->budget,
        .metrics = repair->config.metrics,
        .batches_max = BATCHES_MAX,
        .streams_max = STREAMS_MAX,
        .silence_ns = 60 * NS_PER_S, /* the tick looks sooner */
    };
    struct fetcher_config with_client = fetcher;
    bool ok = made->address != NULL || status_fail_errno(status, ENOMEM, "address");
    ok = ok && peer_connect(address, repair->config.instance, repair->config.identity,
                            repair->store->clock, &made->client, status);
    with_client.client = made->client;
    if (ok && fetcher_new(&with_client, &made->fetcher, status)) {
        *peer = made;
        return true;
    }
    client_close(made->client);
    free(made->address);
    free(made);
    return false;
}

static void peer_free(struct repair_peer *peer)
{
    event_loop_stop_timer(&peer->repair->loop, &peer->probe_timer);
    fetcher_free(peer->fetcher);
    client_close(peer->client);
    free(peer->address);
    free(peer);
}

static void give_order(struct repair *repair, struct order *order)
{
    order->repair = repair;
    order->event.run = follow_order;
    lock_init(&order->lock, LOCK_RANK_LEAF);
    condition_init(&order->done);
    event_loop_post(&repair->loop, &order->event);
    lock_acquire(&order->lock);
    while (!order->over)
        condition_wait(&order->done, &order->lock);
    lock_release(&order->lock);
    condition_destroy(&order->done);
    lock_destroy(&order->lock);
}

static bool stays(const struct repair_peer *peer, const struct order *order)
{
    for (size_t i = 0; i < order->count; i++)
        if (strcmp(peer->address, order->addresses[i]) == 0)
            return true;
    return false;
}

static bool is_there(const struct repair *repair, const char *address)
{
    for (const struct repair_peer *peer = repair->peers; peer != NULL; peer = peer->next)
        if (!peer->removed && strcmp(peer->address, address) == 0)
            return true;
    return false;
}

static void remove_peer(struct repair_peer *peer)
{
    struct status why = {0};
    if (!peer->down)
        atomic_fetch_sub(&peer->repair->peers_up, 1);
    peer->removed = true;
    event_loop_stop_timer(&peer->repair->loop, &peer->probe_timer);
    if (peer->probe != NULL)
        unary_cancel(peer->probe);
    for (struct repair_question *job = peer->repair->questions; job != NULL; job = job->next)
        if (job->peer == peer && job->call != NULL)
            unary_cancel(job->call);
    status_fail(&why, STATUS_UNAVAILABLE, "it is no peer any more");
    fetcher_cancel(peer->fetcher, &why);
}

static void follow_order(struct event *event)
{
    struct order *const order = CONTAINER_OF(event, struct order, event);
    struct repair *const repair = order->repair;
    repair->stopping = repair->stopping || order->stop;
    for (struct repair_peer *peer = repair->peers; peer != NULL; peer = peer->next)
        if (!peer->removed && !stays(peer, order))
            remove_peer(peer);
    while (order->added != NULL) {
        struct repair_peer *const peer = order->added;
        order->added = peer->next;
        if (is_there(repair, peer->address)) {
            peer_free(peer);
            continue;
        }
        /* In the order in which they were configured. */
        struct repair_peer **end = &repair->peers;
        while (*end != NULL)
            end = &(*end)->next;
        peer->next = NULL;
        *end = peer;
        atomic_fetch_add(&repair->peers_up, 1);
    }
    reap_soon(repair);
    lock_acquire(&order->lock);
    order->over = true;
    condition_signal(&order->done);
    lock_release(&order->lock);
}

/* Not from inside of what has ended: that may still be in a peer's fetcher. */
static void reap_soon(struct repair *repair)
{
    if (!repair->ended)
        event_loop_start_timer(&repair->loop, &repair->reap, 0);
}

/* Peers that are gone are freed once nothing is in flight; the thread ends when all are. */
static void reap(struct timer *timer)
{
    struct repair *const repair = CONTAINER_OF(timer, struct repair, reap);
    lock_acquire(&repair->lock);
    const bool more = repair->queue != NULL || repair->posted || repair->questions_posted > 0;
    lock_release(&repair->lock);
    if (repair->in_flight > 0 || more)
        return;
    for (struct repair_peer **at = &repair->peers; *at != NULL;) {
        struct repair_peer *const peer = *at;
        if (!peer->removed || peer->probe != NULL || fetcher_live(peer->fetcher) > 0) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        peer_free(peer);
    }
    if (!repair->stopping || repair->peers != NULL)
        return;
    event_loop_stop_timer(&repair->loop, &repair->tick);
    repair->ended = true;
}
