/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/load_run.h"

#include <math.h>
#include <stdlib.h>

#include "base/lock.h"
#include "bench/support/load_work.h"
#include "bench/support/process_watch.h"

enum { FILL_IN_FLIGHT = 8, PHASE_LOAD, PHASE_FILL_BLOBS, PHASE_FILL_ACTIONS };

struct slot {
    struct exchange exchange;
    struct run *run;
    uint64_t random;
    int64_t start_ns;  /* that latency counts from */
    struct slot *idle; /* guarded by run->lock: the next of those that wait for their time */
};

struct run {
    const struct load_settings *settings; /* borrowed */
    struct client *client;
    struct blobs *blobs;
    struct exchange_world world;
    struct load_source source;
    struct load_fill fill; /* guarded by lock while a phase runs */
    struct slot *slots;    /* owned */
    size_t slot_count;
    int phase; /* set between phases */

    struct lock lock;
    struct condition changed; /* live has become 0 */
    size_t live;              /* guarded by lock, as all below: slots that have not ended */
    struct slot *idle;
    bool measuring, stopping;
    int64_t begin_ns;           /* open loop: when call 0 should begin */
    uint64_t begun;             /* open loop: calls that have */
    struct load_report *report; /* owned until the end */
};

static bool prepare(struct run *run, struct status *status);
static bool run_fill(struct run *run, struct status *status);
static void measure(struct run *run);

bool load_run(const struct load_settings *settings,
              struct load_report **report,
              struct status *status)
{
    struct run run = {.settings = settings};
    lock_init(&run.lock, LOCK_RANK_LEAF);
    condition_init(&run.changed);
    *report = NULL;
    bool ok = prepare(&run, status) && run_fill(&run, status);
    if (ok) {
        measure(&run);
        *report = run.report;
        run.report = NULL;
    }
    client_close(run.client);
    load_fill_destroy(&run.fill);
    load_source_destroy(&run.source);
    blobs_free(run.blobs);
    free(run.report);
    condition_destroy(&run.changed);
    lock_destroy(&run.lock);
    return ok;
}

bool load_report_good(const struct load_report *report)
{
    uint64_t errors = report->all.wrong;
    for (size_t code = 1; code < LOAD_STATUS_CODES; code++)
        errors += report->errors[code];
    return errors == 0 && report->first_error.code == STATUS_OK && report->all.calls > 0;
}

static bool prepare(struct run *run, struct status *status)
{
    const struct load_settings *settings = run->settings;
    struct client_options options = client_options_default();
    options.tool_name = "varve-load";
    options.instance_name = settings->instance;
    options.connections = settings->connections;
    options.call_timeout_ns = (int64_t)(settings->timeout_seconds * (double)NS_PER_S);
    run->report = calloc(1, sizeof(*run->report));
    if (run->report == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a report");
    if (!blobs_new(&settings->sizes, settings->seed, &run->blobs, status) ||
        !load_source_init(&run->source, settings, run->blobs, status) ||
        !client_connect(settings->server, &options, &run->client, status))
        return false;
    run->world = (struct exchange_world){
        .client = run->client,
        .blobs = run->blobs,
        .chunk_bytes = settings->chunk_bytes,
        .verify = settings->verify,
    };
    return true;
}

/* ---- slots: one exchange after the other */

static void slot_done(struct exchange *exchange, const struct exchange_result *result);

static void slots_new(struct run *run, size_t count, size_t names)
{
    run->slots = calloc(count, sizeof(*run->slots));
    ASSERT(run->slots != NULL);
    run->slot_count = count;
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = &run->slots[i];
        ASSERT(exchange_init(&slot->exchange, &run->world, names, slot_done, slot));
        slot->run = run;
        slot->random = run->source.salt + i * UINT64_C(0x632be59bd9b4e019);
    }
}

static void slots_free(struct run *run)
{
    for (size_t i = 0; i < run->slot_count; i++)
        exchange_destroy(&run->slots[i].exchange);
    free(run->slots);
    run->slots = NULL;
}

static int64_t intended_ns(const struct run *run, uint64_t call)
{
    return run->begin_ns + (int64_t)((double)call / run->settings->rate * (double)NS_PER_S);
}

/* Is there another call for this slot now? If not it is idle or has ended. */
static bool slot_may_start_locked(struct run *run, struct slot *slot) REQUIRES(run->lock)
{
    bool another = !run->stopping;
    slot->start_ns = clock_monotonic_ns(clock_real());
    if (another && run->phase == PHASE_FILL_BLOBS) {
        another = load_fill_next_blobs(&run->fill, &slot->exchange);
    } else if (another && run->phase == PHASE_FILL_ACTIONS) {
        another = load_fill_next_action(&run->fill, &slot->exchange);
    } else if (another && run->settings->rate > 0) {
        const int64_t intended = intended_ns(run, run->begun);
        if (intended > slot->start_ns) {
            slot->idle = run->idle;
            run->idle = slot;
            return false;
        }
        slot->start_ns = intended;
        run->begun++;
    }
    if (!another) {
        run->live--;
        if (run->live == 0)
            condition_signal(&run->changed);
    }
    return another;
}

static void slot_next(struct slot *slot)
{
    struct run *run = slot->run;
    lock_acquire(&run->lock);
    const bool another = slot_may_start_locked(run, slot);
    lock_release(&run->lock);
    if (!another)
        return;
    if (run->phase == PHASE_LOAD)
        run->settings->work->next(&run->source, &slot->exchange, &slot->random);
    exchange_start(&slot->exchange);
}

static void count(struct load_totals *totals, const struct exchange_result *result, int64_t took_ns)
{
    totals->calls++;
    totals->blobs += result->right;
    totals->wrong += result->wrong;
    totals->bytes += result->bytes;
    latency_add(&totals->latency, took_ns);
}

static void count_locked(struct run *run,
                         const struct slot *slot,
                         const struct exchange_result *result) REQUIRES(run->lock)
{
    struct load_report *report = run->report;
    if (report->first_error.code == STATUS_OK) {
        if (result->status->code != STATUS_OK)
            report->first_error = *result->status;
        else if (result->refused > 0)
            report->first_error = result->entry;
        else if (result->wrong > 0 && run->phase != PHASE_LOAD)
            status_fail(&report->first_error, STATUS_INTERNAL, "the server's answer is wrong");
    }
    report->filled_calls += run->phase != PHASE_LOAD;
    if (!run->measuring)
        return;
    if (result->status->code != STATUS_OK) {
        report->errors[result->status->code]++;
        return;
    }
    if (result->refused > 0)
        report->errors[result->entry.code] += result->refused;
    const int64_t took_ns = clock_monotonic_ns(clock_real()) - slot->start_ns;
    count(&report->all, result, took_ns);
    count(&report->kinds[slot->exchange.kind], result, took_ns);
}

/*
 * The next call from here would nest deeper and deeper if calls failed at once, without gRPC; they fail at once only without
 * memory, and then the run is over anyway.
 */
static void slot_done(struct exchange *exchange, const struct exchange_result *result)
{
    struct slot *slot = exchange->owner;
    struct run *run = slot->run;
    lock_acquire(&run->lock);
    count_locked(run, slot, result);
    lock_release(&run->lock);
    slot_next(slot);
}

static void start_all(struct run *run)
{
    run->live = run->slot_count;
    for (size_t i = 0; i < run->slot_count; i++)
        slot_next(&run->slots[i]);
}

static void wait_until_all_ended(struct run *run)
{
    lock_acquire(&run->lock);
    while (run->live > 0)
        condition_wait(&run->changed, &run->lock);
    lock_release(&run->lock);
}

/* ---- the population */

static bool run_fill(struct run *run, struct status *status)
{
    if (run->settings->work->population == POPULATION_NONE)
        return true;
    const int64_t begun = clock_monotonic_ns(clock_real());
    if (!load_fill_init(&run->fill, &run->source, run->client, status)) {
        status_prefix(status, "ask for the population");
        return false;
    }
    slots_new(run, FILL_IN_FLIGHT, load_fill_capacity(&run->source));
    for (run->phase = PHASE_FILL_BLOBS; run->phase <= PHASE_FILL_ACTIONS; run->phase++) {
        start_all(run);
        wait_until_all_ended(run);
    }
    slots_free(run);
    run->report->fill_seconds = (double)(clock_monotonic_ns(clock_real()) - begun) / 1e9;
    if (run->report->first_error.code != STATUS_OK) {
        *status = run->report->first_error;
        status_prefix(status, "upload the population");
        return false;
    }
    return true;
}

/* ---- what is measured */

/* Starts what is due, and returns when `until_ns` has come. Closed loops start nothing here. */
static void pace(struct run *run, int64_t until_ns)
{
    for (int64_t now; (now = clock_monotonic_ns(clock_real())) < until_ns;) {
        int64_t next_ns = until_ns;
        struct slot *slot = NULL;
        lock_acquire(&run->lock);
        if (run->settings->rate > 0 && run->idle != NULL) {
            const int64_t intended = intended_ns(run, run->begun);
            if (intended <= now) {
                slot = run->idle;
                run->idle = slot->idle;
            } else if (intended < next_ns) {
                next_ns = intended;
            }
        } else if (run->settings->rate > 0 && next_ns > now + NS_PER_MS) {
            next_ns = now + NS_PER_MS; /* all are busy: whoever ends takes the next itself */
        }
        lock_release(&run->lock);
        if (slot != NULL)
            slot_next(slot);
        else
            clock_pause(next_ns - now);
    }
}

struct used {
    struct process_use client, server;
    double syncs;
};

static struct used used_now(const struct load_settings *settings)
{
    return (struct used){
        .client = process_use_now(0),
        .server = settings->server_pid > 0 ? process_use_now(settings->server_pid)
                                           : (struct process_use){.cpu_seconds = NAN},
        .syncs = settings->metrics != NULL ? server_syncs_now(settings->metrics) : NAN,
    };
}

static void set_measuring(struct run *run, bool measuring)
{
    lock_acquire(&run->lock);
    run->measuring = measuring;
    lock_release(&run->lock);
}

/* What waits for its time will not begin any more. */
static void stop(struct run *run, int64_t now)
{
    lock_acquire(&run->lock);
    run->stopping = true;
    while (run->settings->rate > 0 && intended_ns(run, run->begun + run->report->late) <= now)
        run->report->late++;
    for (; run->idle != NULL; run->idle = run->idle->idle)
        run->live--;
    lock_release(&run->lock);
}

static void measure(struct run *run)
{
    const struct load_settings *settings = run->settings;
    struct load_report *report = run->report;
    run->phase = PHASE_LOAD;
    slots_new(run, settings->in_flight, settings->per_call);
    run->begin_ns = clock_monotonic_ns(clock_real());
    start_all(run);
    pace(run, run->begin_ns + (int64_t)(settings->warm_up_seconds * (double)NS_PER_S));

    const struct used before = used_now(settings);
    const int64_t start_ns = clock_monotonic_ns(clock_real());
    set_measuring(run, true);
    pace(run, start_ns + (int64_t)(settings->seconds * (double)NS_PER_S));
    set_measuring(run, false);
    const int64_t end_ns = clock_monotonic_ns(clock_real());
    const struct used after = used_now(settings);

    stop(run, end_ns);
    wait_until_all_ended(run);
    slots_free(run);
    report->seconds = (double)(end_ns - start_ns) / 1e9;
    report->client_cpu_seconds = after.client.cpu_seconds - before.client.cpu_seconds;
    report->server_cpu_seconds = after.server.cpu_seconds - before.server.cpu_seconds;
    report->server_rss_bytes = after.server.rss_bytes;
    report->server_rss_peak_bytes = after.server.rss_peak_bytes;
    report->syncs = after.syncs - before.syncs;
}
