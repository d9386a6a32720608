/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/process.h"

#include <stdlib.h>
#include <string.h>

#include "tests/model/model.h"
#include "tests/model/world.h"

static bool start_parts(struct process *process, struct index *index, struct status *status);
static void set_hook(struct process *process, enum lane lane);
static bool work(struct process *process, enum worker worker);
static void maintain(struct process *process);
static bool evict(struct process *process);
static void free_parts(struct process *process);

bool store_look_open(const struct process_config *config,
                     struct metrics *metrics,
                     struct store **store,
                     struct index **index,
                     struct recovery_report *report,
                     struct status *status)
{
    const struct store_config store_config = {
        .io = io_sim_io(config->machine->disk),
        .clock = &config->clock->clock,
        .metrics = metrics,
        .buffers = config->buffers,
        .directory = MODEL_DATA,
        .segment_bytes = {SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN},
        .capacity_bytes = config->capacity_bytes,
        .vouch_ns = config->vouch_ns,
    };
    index_sim_use(config->machine->index);
    if (!store_open(&store_config, store, status))
        return false;
    if (!recovery_run(*store, MODEL_INDEX, index, report, status)) {
        store_close(*store);
        return false;
    }
    return true;
}

void store_look_close(struct store *store, struct index *index)
{
    cold_index_set(&store->cold, NULL);
    index_close(index);
    store_close(store);
}

bool process_start(struct process *process,
                   const struct process_config *config,
                   struct status *status)
{
    *process = (struct process){.config = *config};
    struct index *index = NULL;
    if (!store_look_open(config, &process->metrics, &process->store, &index, &process->report,
                         status))
        return false;
    ASSERT(start_parts(process, index, status)); /* only memory can fail */
    world_set_process(process);
    return true;
}

static bool start_parts(struct process *process, struct index *index, struct status *status)
{
    bool ok = indexer_new(process->store, MODEL_INDEX, index, &process->indexer, status) &&
              acker_new(&process->acker, status);
    if (ok)
        indexer_set_load_step(process->indexer, process->config.load_step);
    for (enum lane lane = LANE_SMALL; ok && lane < LANE_COUNT; lane++) {
        const struct commit_config config = {
            .store = process->store,
            .lane = lane,
            .acker = process->acker,
            .indexer = process->indexer,
        };
        ok = commit_new(&config, &process->commits[lane], status);
        set_hook(process, lane);
    }
    const struct evictor_config evict = {
        .store = process->store,
        .commits = {process->commits[LANE_SMALL], process->commits[LANE_LARGE]},
    };
    return ok && evictor_new(&evict, &process->evictor, status);
}

static void on_small_log_event(void *argument, bool sync_wanted)
{
    struct process *const process = argument;
    if (!sync_wanted)
        commit_want_sync(process->commits[LANE_SMALL]);
}

static void on_large_log_event(void *argument, bool sync_wanted)
{
    struct process *const process = argument;
    (void)sync_wanted;
    commit_want_sync(process->commits[LANE_LARGE]);
}

static void set_hook(struct process *process, enum lane lane)
{
    segment_log_set_hook(process->store->logs[lane],
                         lane == LANE_SMALL ? on_small_log_event : on_large_log_event, process);
}

bool process_work(struct process *process, enum worker worker)
{
    if (process->busy[worker])
        return false;
    process->busy[worker] = true;
    const bool any = work(process, worker);
    process->busy[worker] = false;
    return any;
}

static bool work(struct process *process, enum worker worker)
{
    switch (worker) {
    case WORKER_COMMIT_SMALL:
        return commit_round(process->commits[LANE_SMALL]);
    case WORKER_COMMIT_LARGE:
        return commit_round(process->commits[LANE_LARGE]);
    case WORKER_ACK:
        return acker_round(process->acker);
    case WORKER_INDEX:
        return indexer_round(process->indexer);
    case WORKER_SEGMENTS:
        maintain(process);
        return false;
    case WORKER_EVICT:
        return evict(process);
    case WORKER_COUNT:
        break;
    }
    return false;
}

static void maintain(struct process *process)
{
    struct store *const store = process->store;
    blob_table_set_minute(store->table,
                          (uint64_t)(clock_monotonic_ns(store->clock) / (60 * NS_PER_S)));
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        segment_log_maintain(store->logs[lane]);
}

static bool evict(struct process *process)
{
    if (process->stopping)
        return false;
    const struct process_config *const config = &process->config;
    const uint64_t victim =
        config->before_eviction != NULL ? evictor_next_victim(process->evictor) : 0;
    if (victim != 0)
        config->before_eviction(config->argument, victim);
    const bool any = evictor_step(process->evictor);
    if (victim != 0)
        config->after_eviction(config->argument, victim);
    for (size_t lane = 0; any && lane < LANE_COUNT; lane++) {
        segment_log_room_made(process->store->logs[lane]);
        commit_room_made(process->commits[lane]);
    }
    return any;
}

void process_stop(struct process *process)
{
    struct status ignored;
    process->stopping = true;
    evictor_stop(process->evictor);
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        commit_stop(process->commits[lane]);
        while (
            process_work(process, lane == LANE_SMALL ? WORKER_COMMIT_SMALL : WORKER_COMMIT_LARGE)) {
        }
    }
    acker_stop(process->acker);
    while (process_work(process, WORKER_ACK)) {
    }
    for (enum lane lane = LANE_SMALL; lane < LANE_COUNT; lane++) {
        if (!segment_log_finish(process->store->logs[lane], &ignored)) {
            /* The next start walks it. */
        }
        const struct segment_log_position end =
            segment_log_synced_position(process->store->logs[lane]);
        indexer_post(process->indexer, lane, NULL, 0, &end);
    }
    indexer_stop(process->indexer);
    while (process_work(process, WORKER_INDEX)) {
    }
    free_parts(process);
}

void process_drop(struct process *process)
{
    if (io_sim_has_power(process->config.machine->disk))
        io_sim_cut_power_at(process->config.machine->disk, 1);
    process->stopping = true;
    evictor_stop(process->evictor);
    bool any = true;
    while (any) { /* all are told that it failed */
        any = false;
        for (size_t lane = 0; lane < LANE_COUNT; lane++) {
            commit_stop(process->commits[lane]);
            any = process_work(process,
                               lane == LANE_SMALL ? WORKER_COMMIT_SMALL : WORKER_COMMIT_LARGE) ||
                  any;
        }
        any = process_work(process, WORKER_ACK) || any;
    }
    free_parts(process);
}

static void free_parts(struct process *process)
{
    world_set_process(NULL);
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        commit_free(process->commits[lane]);
    evictor_free(process->evictor);
    acker_free(process->acker);
    indexer_free(process->indexer);
    store_close(process->store);
    process->store = NULL;
}
