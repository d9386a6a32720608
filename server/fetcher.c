/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fetcher.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "server/fetcher_private.h"
#include "store/find.h"

/* Others give their bytes back without telling us. */
static const int64_t starved_pause_ns = 5 * NS_PER_MS;
/* Fetches leave three quarters of the pooled buffers to clients. */
enum { BUFFERS_SHARE = 4 };

static void claim(struct want *want);
static void flight_is_over(struct flight_waiter *waiter);
static void look_again(struct event *event);
static void end_list(struct want_list *list, const struct status *why);
static void starved_is_over(struct timer *timer);
static void check_silence(struct timer *timer);

bool fetcher_new(const struct fetcher_config *config,
                 struct fetcher **fetcher,
                 struct status *status)
{
    ASSERT(config->batches_max > 0 && config->streams_max > 0);
    struct fetcher *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "fetcher");
    made->config = *config;
    made->store = durability_store(config->durability);
    const size_t buffers = buffer_pool_max(made->store->buffers) / BUFFERS_SHARE;
    made->streams_max = config->streams_max < buffers ? config->streams_max : buffers;
    if (made->streams_max == 0)
        made->streams_max = 1;
    made->starved_timer.run = starved_is_over;
    made->silence_timer.run = check_silence;
    *fetcher = made;
    return true;
}

void fetcher_free(struct fetcher *fetcher)
{
    if (fetcher == NULL)
        return;
    ASSERT(fetcher->live == 0 && fetcher->calls == NULL);
    ASSERT(fetcher->held_bytes == 0);
    event_loop_stop_timer(fetcher->config.loop, &fetcher->starved_timer);
    event_loop_stop_timer(fetcher->config.loop, &fetcher->silence_timer);
    free(fetcher);
}

bool store_holds(struct store *store, const struct digest *digest)
{
    struct place place;
    return digest_is_empty_blob(digest) || store_find_blob(store, digest, FIND_ONLY, &place);
}

enum fetcher_add fetcher_add(struct fetcher *fetcher, struct want *want)
{
    ASSERT(want->digest.size_bytes > 0);
    if (store_holds(fetcher->store, &want->digest))
        return FETCHER_HERE;
    want->fetcher = fetcher;
    want->failed_here = want->fetched = false;
    want->waiter.ready = flight_is_over;
    want->event.run = look_again;
    fetcher->live++;
    claim(want);
    return FETCHER_TAKEN;
}

static void claim(struct want *want)
{
    struct fetcher *const fetcher = want->fetcher;
    const struct blob_key key = blob_table_blob_key(fetcher->store->table, &want->digest);
    want->state = WANT_WAITING;
    want_list_add(&fetcher->waiting, want);
    if (!flights_begin(fetcher->config.flights, key, &want->flight, &want->waiter))
        return;
    want_list_remove(&fetcher->waiting, want);
    want_queue(want);
}

void want_queue(struct want *want)
{
    struct fetcher *const fetcher = want->fetcher;
    want->state = WANT_QUEUED;
    want_list_add((uint64_t)want->digest.size_bytes <= LIMIT_SMALL_BLOB_BYTES ? &fetcher->small
                                                                              : &fetcher->large,
                  want);
}

/* On the thread of whoever had it. */
static void flight_is_over(struct flight_waiter *waiter)
{
    struct want *const want = CONTAINER_OF(waiter, struct want, waiter);
    event_loop_post(want->fetcher->config.loop, &want->event);
}

static void look_again(struct event *event)
{
    static const struct status ok = {0};
    struct want *const want = CONTAINER_OF(event, struct want, event);
    struct fetcher *const fetcher = want->fetcher;
    want_list_remove(&fetcher->waiting, want);
    if (!store_holds(fetcher->store, &want->digest)) {
        claim(want);
        fetcher_pump(fetcher);
        return;
    }
    fetcher->live--;
    want->done(want, &ok);
}

void fetcher_pump(struct fetcher *fetcher)
{
    fetcher->starved = false;
    fetch_ranges_pump(fetcher);
    fetch_batches_pump(fetcher);
    fetch_streams_pump(fetcher);
    if (fetcher->starved && !fetcher->starved_timer.armed)
        event_loop_start_timer(fetcher->config.loop, &fetcher->starved_timer, starved_pause_ns);
}

static void starved_is_over(struct timer *timer)
{
    fetcher_pump(CONTAINER_OF(timer, struct fetcher, starved_timer));
}

uint64_t fetcher_queued_bytes(const struct fetcher *fetcher,
                              uint64_t after_seq,
                              uint64_t through_seq)
{
    uint64_t bytes = 0;
    for (const struct want *want = fetcher->small.first; want != NULL; want = want->next)
        if (want->seq > after_seq && want->seq <= through_seq)
            bytes += (uint64_t)want->digest.size_bytes;
    return bytes;
}

void fetcher_cancel(struct fetcher *fetcher, const struct status *why)
{
    ASSERT(why->code != STATUS_OK);
    fetcher->cancelled = *why;
    for (struct fetch_call *call = fetcher->calls, *next; call != NULL; call = next) {
        next = call->next;
        call->cancel(call);
    }
    end_list(&fetcher->small, why);
    end_list(&fetcher->large, why);
    for (struct want *want = fetcher->waiting.first, *next; want != NULL; want = next) {
        next = want->next;
        if (!flights_cancel(fetcher->config.flights, &want->waiter))
            continue; /* its event is on the way */
        want_list_remove(&fetcher->waiting, want);
        fetcher->live--;
        want->done(want, why);
    }
}

static void end_list(struct want_list *list, const struct status *why)
{
    while (list->first != NULL) {
        struct want *const want = list->first;
        want_list_remove(list, want);
        want_end(want, why);
    }
}

void want_end(struct want *want, const struct status *result)
{
    struct fetcher *const fetcher = want->fetcher;
    if (result->code == STATUS_OK) {
        const uint64_t bytes = (uint64_t)want->digest.size_bytes;
        want->fetched = true;
        atomic_fetch_add_explicit(&fetcher->blobs, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&fetcher->bytes, bytes, memory_order_relaxed);
        metrics_add(fetcher->config.metrics, METRIC_PEER_BLOBS_FETCHED, 1);
        metrics_add(fetcher->config.metrics, METRIC_PEER_BYTES_FETCHED, (int64_t)bytes);
    }
    flights_end(fetcher->config.flights, &want->flight);
    fetcher->live--;
    want->done(want, result);
}

size_t fetcher_live(const struct fetcher *fetcher)
{
    return fetcher->live + fetcher->calls_count;
}

int64_t fetcher_silent_ns(const struct fetcher *fetcher)
{
    return fetcher->calls_count == 0
               ? 0
               : clock_monotonic_ns(fetcher->config.loop->clock) - fetcher->heard_ns;
}

uint64_t fetcher_blobs(const struct fetcher *fetcher)
{
    return atomic_load_explicit(&fetcher->blobs, memory_order_relaxed);
}

uint64_t fetcher_bytes(const struct fetcher *fetcher)
{
    return atomic_load_explicit(&fetcher->bytes, memory_order_relaxed);
}

/* ---- calls in flight, and silence */

void fetch_call_begin(struct fetcher *fetcher, struct fetch_call *call)
{
    call->previous = NULL;
    call->next = fetcher->calls;
    if (call->next != NULL)
        call->next->previous = call;
    fetcher->calls = call;
    if (fetcher->calls_count++ == 0)
        fetch_heard(fetcher);
    if (!fetcher->silence_timer.armed)
        event_loop_start_timer(fetcher->config.loop, &fetcher->silence_timer,
                               fetcher->config.silence_ns / 4);
}

void fetch_call_end(struct fetcher *fetcher, struct fetch_call *call)
{
    if (call->previous != NULL)
        call->previous->next = call->next;
    else
        fetcher->calls = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    fetcher->calls_count--;
}

void fetch_heard(struct fetcher *fetcher)
{
    fetcher->heard_ns = clock_monotonic_ns(fetcher->config.loop->clock);
}

static void check_silence(struct timer *timer)
{
    struct fetcher *const fetcher = CONTAINER_OF(timer, struct fetcher, silence_timer);
    const int64_t silent_ns = fetcher_silent_ns(fetcher);
    if (fetcher->calls_count == 0)
        return;
    event_loop_start_timer(fetcher->config.loop, timer, fetcher->config.silence_ns / 4);
    if (silent_ns < fetcher->config.silence_ns)
        return;
    struct status why = {0};
    status_fail(&why, STATUS_UNAVAILABLE, "nothing was heard of it for %lld ms",
                (long long)(silent_ns / NS_PER_MS));
    fetch_heard(fetcher);
    fetcher_cancel(fetcher, &why);
}

const struct status *fetch_failure(const struct fetcher *fetcher, const struct status *status)
{
    return status->code == STATUS_CANCELLED && fetcher->cancelled.code != STATUS_OK
               ? &fetcher->cancelled
               : status;
}

/* ---- the budget */

bool fetch_budget_take(struct fetcher *fetcher, uint64_t bytes)
{
    struct fetch_budget *const budget = fetcher->config.budget;
    const int64_t wanted = (int64_t)bytes;
    const int64_t used = atomic_fetch_add(&budget->used_bytes, wanted);
    if (fetcher->held_bytes > 0 && used + wanted > budget->limit_bytes) {
        atomic_fetch_sub(&budget->used_bytes, wanted);
        fetcher->starved = true;
        return false;
    }
    fetcher->held_bytes += wanted;
    return true;
}

void fetch_budget_force(struct fetcher *fetcher, uint64_t bytes)
{
    atomic_fetch_add(&fetcher->config.budget->used_bytes, (int64_t)bytes);
    fetcher->held_bytes += (int64_t)bytes;
}

void fetch_budget_give(struct fetcher *fetcher, uint64_t bytes)
{
    fetcher->held_bytes -= (int64_t)bytes;
    ASSERT(fetcher->held_bytes >= 0);
    atomic_fetch_sub(&fetcher->config.budget->used_bytes, (int64_t)bytes);
}

/* ---- lists */

void want_list_add(struct want_list *list, struct want *want)
{
    want->next = NULL;
    want->previous = list->last;
    if (list->last != NULL)
        list->last->next = want;
    else
        list->first = want;
    list->last = want;
    list->count++;
}

void want_list_remove(struct want_list *list, struct want *want)
{
    if (want->previous != NULL)
        want->previous->next = want->next;
    else
        list->first = want->next;
    if (want->next != NULL)
        want->next->previous = want->previous;
    else
        list->last = want->previous;
    want->next = want->previous = NULL;
    list->count--;
}
