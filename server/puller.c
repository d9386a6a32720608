/* SPDX-License-Identifier: Apache-2.0 */
#include "server/puller.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "server/peer_cursor.h"
#include "server/peers.h"
#include "server/puller_private.h"

/* Of a failure; after a success it begins with the first again. */
static const int64_t pause_min_ns = 100 * NS_PER_MS;
static const int64_t pause_max_ns = 5 * NS_PER_S;
static const int64_t tick_ns = NS_PER_S;
static const int64_t lie_pause_usual_ns = 60 * NS_PER_S;
/* A peer that owes answers and sends nothing for so long is taken for gone. */
static const int64_t silence_ns = 10 * NS_PER_S;
/* In flight, of one peer. */
enum { BATCHES_MAX = 4, STREAMS_MAX = 16 };

static bool copy_config(struct puller *puller,
                        const struct puller_config *config,
                        struct status *status);
static void puller_free(struct puller *puller);
static void run(void *argument);
static void pause_over(struct timer *timer);
static void greeted(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void meet(struct puller *puller, uint64_t uid);
static void refuse_self(struct puller *puller);
static void drain(struct puller *puller, int64_t pause_ns);
static void drain_step(struct timer *timer);
static bool is_drained(const struct puller *puller);
static void rest(struct puller *puller);
static void tick(struct timer *timer);
static void save_cursor(struct puller *puller);
static void stop_in_loop(struct event *event);
static void fetch_lied(void *argument, const struct status *why);
static void fetch_ended(void *argument);
static const char *address_of(const struct puller *puller, struct log_text *text);

bool puller_start(const struct puller_config *config, struct puller **puller, struct status *status)
{
    struct puller *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "puller");
    made->store = durability_store(config->durability);
    made->token.path = config->identity != NULL ? config->identity->token : NULL;
    event_loop_init(&made->loop, made->store->clock);
    lock_init(&made->lock, LOCK_RANK_PULLER);
    made->pause.run = pause_over;
    made->drain.run = drain_step;
    made->tick.run = tick;
    made->stop_event.run = stop_in_loop;
    const struct retry_policy policy = {
        .tries_max = UINT_MAX, .pause_min_ns = pause_min_ns, .pause_max_ns = pause_max_ns};
    retry_init(&made->backoff, &policy);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        made->lanes[i].puller = made;
        made->lanes[i].lane = (enum lane)i;
        made->lanes[i].behind_since_ns = clock_monotonic_ns(made->store->clock);
    }
    if (!copy_config(made, config, status) ||
        !peer_connect(made->config.address, made->config.instance, config->identity,
                      made->store->clock, &made->client, status))
        goto fail;
    const struct fetcher_config fetcher = {
        .client = made->client,
        .loop = &made->loop,
        .durability = config->durability,
        .flights = config->flights,
        .budget = config->budget,
        .metrics = config->metrics,
        .batches_max = BATCHES_MAX,
        .streams_max = STREAMS_MAX,
        .silence_ns = silence_ns,
        .lied = fetch_lied,
        .lied_argument = made,
        .call_ended = fetch_ended,
        .call_ended_argument = made,
    };
    if (!fetcher_new(&fetcher, &made->fetcher, status))
        goto fail;
    puller_publish(made);
    event_loop_start_timer(&made->loop, &made->pause, 0);
    event_loop_start_timer(&made->loop, &made->tick, tick_ns);
    if (!thread_start(&made->thread, "peer", 0, run, made, status))
        goto fail;
    *puller = made;
    return true;
fail:
    puller_free(made);
    return false;
}

static bool copy_config(struct puller *puller,
                        const struct puller_config *config,
                        struct status *status)
{
    puller->config = *config;
    puller->config.address = strdup(config->address);
    puller->config.name = strdup(config->name);
    puller->config.instance = strdup(config->instance);
    if (puller->config.lie_pause_ns == 0)
        puller->config.lie_pause_ns = lie_pause_usual_ns;
    return (puller->config.address != NULL && puller->config.name != NULL &&
            puller->config.instance != NULL) ||
           status_fail_errno(status, ENOMEM, "puller");
}

static void puller_free(struct puller *puller)
{
    event_loop_stop_timer(&puller->loop, &puller->pause);
    event_loop_stop_timer(&puller->loop, &puller->drain);
    event_loop_stop_timer(&puller->loop, &puller->tick);
    fetcher_free(puller->fetcher);
    client_close(puller->client);
    event_loop_destroy(&puller->loop);
    lock_destroy(&puller->lock);
    free((char *)(uintptr_t)puller->config.address);
    free((char *)(uintptr_t)puller->config.name);
    free((char *)(uintptr_t)puller->config.instance);
    free(puller);
}

static void run(void *argument)
{
    struct puller *const puller = argument;
    event_loop_run_until(&puller->loop, &puller->ended);
}

void puller_ask_to_stop(struct puller *puller)
{
    if (!atomic_exchange(&puller->asked_to_stop, true))
        event_loop_post(&puller->loop, &puller->stop_event);
}

void puller_stop(struct puller *puller)
{
    if (puller == NULL)
        return;
    puller_ask_to_stop(puller);
    thread_join(&puller->thread);
    puller_free(puller);
}

static void stop_in_loop(struct event *event)
{
    struct puller *const puller = CONTAINER_OF(event, struct puller, stop_event);
    puller->stopping = true;
    drain(puller, 0);
}

/* ---- GREETING */

static void pause_over(struct timer *timer)
{
    struct puller *const puller = CONTAINER_OF(timer, struct puller, pause);
    const struct feed_request request = {.lane = FEED_LANE_SMALL,
                                         .follower_name = puller->config.name};
    const struct unary_request call = {
        .method = METHOD_FEED,
        .body = feed_request_message(&request),
        .loop = &puller->loop,
        .done = greeted,
        .argument = puller,
    };
    struct status why = {0};
    puller->state = PULLER_GREETING;
    if (!unary_start(puller->client, &call, &puller->greeting, &why))
        puller_fail(puller, &why, true);
}

static void greeted(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct puller *const puller = argument;
    struct feed_page page;
    struct status why = *status;
    puller->greeting = NULL;
    const bool decoded = reply != NULL && feed_page_decode(reply, 0, &page, &why);
    const uint64_t uid = decoded ? page.node_uid : 0;
    grpc_byte_buffer_destroy(reply);
    if (decoded)
        feed_page_free(&page);
    if (puller->state == PULLER_DRAINING)
        puller_check_drained(puller);
    else if (decoded && uid == puller->store->node_uid)
        refuse_self(puller);
    else if (decoded && uid != 0)
        meet(puller, uid);
    else if (decoded)
        puller_lie(puller, NULL, "it does not say whose store it is");
    else if (reply != NULL && why.code == STATUS_INTERNAL)
        puller_lie(puller, NULL, why.message);
    else
        puller_fail(puller, &why, false);
}

static void meet(struct puller *puller, uint64_t uid)
{
    struct log_text text;
    if (puller->uid != uid) {
        struct peer_cursor cursor;
        peer_cursor_load(puller->store, uid, &cursor);
        puller->uid = uid;
        for (size_t i = 0; i < LANE_COUNT; i++) {
            struct pull_lane *const lane = &puller->lanes[i];
            lane->applied_seq = lane->after_seq = puller->saved_seq[i] = cursor.applied_seq[i];
            lane->durable_seq = lane->behind_bytes = 0;
        }
    }
    log_event(LOG_LEVEL_INFO, "peer_connected",
              "address=%s uid=%016" PRIx64 " small_seq=%" PRIu64 " large_seq=%" PRIu64,
              address_of(puller, &text), uid, puller->lanes[LANE_SMALL].applied_seq,
              puller->lanes[LANE_LARGE].applied_seq);
    puller->refused = false;
    puller->state = PULLER_FOLLOWING;
    puller_publish(puller);
    for (size_t i = 0; i < LANE_COUNT; i++)
        pull_lane_step(&puller->lanes[i]);
}

/* It may be one of several behind one name: looked at again after a while. */
static void refuse_self(struct puller *puller)
{
    struct log_text text;
    if (!puller->is_self_logged)
        log_event(LOG_LEVEL_WARN, "peer_is_self", "address=%s uid=%016" PRIx64,
                  address_of(puller, &text), puller->store->node_uid);
    puller->is_self_logged = true;
    puller->refused = true;
    puller->last_error = (struct status){0};
    status_fail(&puller->last_error, STATUS_FAILED_PRECONDITION, "it is this very node");
    drain(puller, puller->config.lie_pause_ns);
}

/* ---- what ends FOLLOWING */

void puller_fail(struct puller *puller, const struct status *why, bool here)
{
    struct log_text text;
    struct log_text reason;
    int64_t pause_ns = pause_max_ns;
    struct status again = *why;
    if (puller->state == PULLER_DRAINING)
        return;
    metrics_add(puller->config.metrics, METRIC_PEER_FAILURES, 1);
    if (!puller->failing_logged)
        log_event(LOG_LEVEL_WARN, "peer_failed", "address=%s uid=%016" PRIx64 " here=%d reason=%s",
                  address_of(puller, &text), puller->uid, (int)here,
                  log_quote(&reason, why->message));
    puller->failing_logged = true;
    puller->last_error = *why;
    again.code = STATUS_UNAVAILABLE; /* whatever it is, it may pass */
    again.message[0] = '\0';
    if (!retry_again(&puller->backoff, &again, false, &pause_ns))
        pause_ns = pause_max_ns;
    drain(puller, pause_ns);
}

void puller_lie(struct puller *puller, const struct digest *digest, const char *reason)
{
    struct log_text text;
    struct log_text quoted;
    char digest_buffer[DIGEST_TEXT_BYTES_MAX];
    if (puller->state == PULLER_DRAINING)
        return;
    metrics_add(puller->config.metrics, METRIC_PEER_LIES, 1);
    log_event(LOG_LEVEL_ERROR, "peer_lied",
              "address=%s uid=%016" PRIx64 " digest=%s left_alone_ms=%" PRId64 " reason=%s",
              address_of(puller, &text), puller->uid,
              digest != NULL ? digest_text(digest, digest_buffer) : "none",
              puller->config.lie_pause_ns / NS_PER_MS, log_quote(&quoted, reason));
    puller->refused = true;
    puller->last_error = (struct status){0};
    status_fail(&puller->last_error, STATUS_DATA_LOSS, "%s", reason);
    drain(puller, puller->config.lie_pause_ns);
}

static void fetch_lied(void *argument, const struct status *why)
{
    struct puller *const puller = argument;
    puller_lie(puller, NULL, why->message);
    puller_check_drained(puller);
}

static void fetch_ended(void *argument)
{
    puller_check_drained(argument);
}

void puller_begin_anew(struct puller *puller, struct pull_lane *lane, const struct status *why)
{
    struct log_text text;
    struct log_text reason;
    if (puller->state == PULLER_DRAINING)
        return;
    if (lane->anew) {
        /* That it did so already has not helped. */
        puller_fail(puller, why, false);
        return;
    }
    log_event(LOG_LEVEL_WARN, "peer_begun_anew",
              "address=%s uid=%016" PRIx64 " lane=%s after_seq=%" PRIu64 " reason=%s",
              address_of(puller, &text), puller->uid, lane->lane == LANE_SMALL ? "small" : "large",
              lane->after_seq, log_quote(&reason, why->message));
    lane->applied_seq = 0;
    lane->anew = true;
    drain(puller, 0);
}

static void drain(struct puller *puller, int64_t pause_ns)
{
    const int64_t now_ns = clock_monotonic_ns(puller->loop.clock);
    if (puller->stopping)
        event_loop_stop_timer(&puller->loop, &puller->pause);
    if (puller->state == PULLER_DRAINING)
        pause_ns = puller->pause_ns;
    for (size_t i = 0; i < LANE_COUNT; i++)
        if (puller->lanes[i].behind_since_ns == 0)
            puller->lanes[i].behind_since_ns = now_ns;
    puller->state = PULLER_DRAINING;
    puller->pause_ns = pause_ns;
    puller_publish(puller);
    /* Not from inside of whatever has failed: what drains may be what calls. */
    event_loop_start_timer(&puller->loop, &puller->drain, 0);
}

static void drain_step(struct timer *timer)
{
    struct puller *const puller = CONTAINER_OF(timer, struct puller, drain);
    struct status why = {0};
    if (is_drained(puller)) {
        rest(puller);
        return;
    }
    status_fail(&why, STATUS_CANCELLED, "the peer is no longer followed");
    if (puller->greeting != NULL)
        unary_cancel(puller->greeting);
    for (size_t i = 0; i < LANE_COUNT; i++)
        pull_lane_cancel(&puller->lanes[i]);
    fetcher_cancel(puller->fetcher, &why);
}

void puller_check_drained(struct puller *puller)
{
    if (puller->state == PULLER_DRAINING && is_drained(puller))
        event_loop_start_timer(&puller->loop, &puller->drain, 0);
}

static bool is_drained(const struct puller *puller)
{
    return puller->greeting == NULL && puller->lanes[LANE_SMALL].feed == NULL &&
           puller->lanes[LANE_LARGE].feed == NULL && puller->actions == 0 && puller->forgets == 0 &&
           fetcher_live(puller->fetcher) == 0;
}

static void rest(struct puller *puller)
{
    for (size_t i = 0; i < LANE_COUNT; i++)
        pull_lane_drop_pages(&puller->lanes[i]);
    save_cursor(puller);
    puller->state = PULLER_PAUSING;
    if (puller->stopping)
        puller->ended = true;
    else
        event_loop_start_timer(&puller->loop, &puller->pause, puller->pause_ns);
}

/* ---- how far it is */

static void tick(struct timer *timer)
{
    struct puller *const puller = CONTAINER_OF(timer, struct puller, tick);
    save_cursor(puller);
    peer_token_step(&puller->token, puller->client);
    event_loop_start_timer(&puller->loop, timer, tick_ns);
}

static void save_cursor(struct puller *puller)
{
    const struct peer_cursor cursor = {.applied_seq = {puller->lanes[LANE_SMALL].applied_seq,
                                                       puller->lanes[LANE_LARGE].applied_seq}};
    if (puller->uid == 0 ||
        memcmp(cursor.applied_seq, puller->saved_seq, sizeof(puller->saved_seq)) == 0)
        return;
    struct status status = {0};
    if (peer_cursor_save(puller->store, puller->uid, &cursor, &status)) {
        memcpy(puller->saved_seq, cursor.applied_seq, sizeof(puller->saved_seq));
        puller->cursor_logged = false;
        return;
    }
    struct log_text text;
    struct log_text reason;
    if (!puller->cursor_logged)
        log_event(LOG_LEVEL_WARN, "peer_cursor_not_saved",
                  "address=%s uid=%016" PRIx64 " reason=%s", address_of(puller, &text), puller->uid,
                  log_quote(&reason, status.message));
    puller->cursor_logged = true;
}

void puller_publish(struct puller *puller)
{
    bool up_to_date = true;
    struct peer_report report = {
        .uid = puller->uid,
        .last_error = puller->last_error,
        .blobs_fetched = puller->fetcher != NULL ? fetcher_blobs(puller->fetcher) : 0,
        .bytes_fetched = puller->fetcher != NULL ? fetcher_bytes(puller->fetcher) : 0,
    };
    snprintf(report.address, sizeof(report.address), "%s", puller->config.address);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        struct pull_lane *const lane = &puller->lanes[i];
        const bool here = puller_follows(puller) && pull_lane_up_to_date(lane);
        up_to_date = up_to_date && here;
        if (here)
            lane->behind_since_ns = 0;
        else if (lane->behind_since_ns == 0)
            lane->behind_since_ns = clock_monotonic_ns(puller->loop.clock);
        report.lanes[i].applied_seq = lane->applied_seq;
        report.lanes[i].durable_seq = lane->durable_seq;
        if (lane->durable_seq > lane->applied_seq) {
            report.lanes[i].behind_records = lane->durable_seq - lane->applied_seq;
            report.lanes[i].behind_bytes = lane->behind_bytes;
        }
    }
    report.state = puller->refused           ? PEER_REFUSED
                   : !puller_follows(puller) ? PEER_CONNECTING
                   : up_to_date              ? PEER_UP_TO_DATE
                                             : PEER_CATCHING_UP;
    lock_acquire(&puller->lock);
    puller->report = report;
    for (size_t i = 0; i < LANE_COUNT; i++)
        puller->behind_since_ns[i] = puller->lanes[i].behind_since_ns;
    lock_release(&puller->lock);
}

void puller_report(struct puller *puller, struct peer_report *report)
{
    const int64_t now_ns = clock_monotonic_ns(puller->store->clock);
    lock_acquire(&puller->lock);
    *report = puller->report;
    for (size_t i = 0; i < LANE_COUNT; i++)
        if (puller->behind_since_ns[i] != 0)
            report->lanes[i].behind_seconds =
                (double)(now_ns - puller->behind_since_ns[i]) / (double)NS_PER_S;
    lock_release(&puller->lock);
}

bool puller_is_behind(struct puller *puller)
{
    lock_acquire(&puller->lock);
    const enum peer_state state = puller->report.state;
    lock_release(&puller->lock);
    return state == PEER_CONNECTING || state == PEER_CATCHING_UP;
}

static const char *address_of(const struct puller *puller, struct log_text *text)
{
    return log_quote(text, puller->config.address);
}
