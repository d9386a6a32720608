/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One life of a store on a machine, as durability/durability.c has it, but that nobody works unless
 * told: each thread's round is a function here. Where one of them would wait for another, the
 * others work meanwhile (tests/model/world.c).
 */
#ifndef VARVE_TESTS_MODEL_PROCESS_H
#define VARVE_TESTS_MODEL_PROCESS_H

#include "durability/commit.h"
#include "durability/evictor.h"
#include "durability/recovery.h"
#include "tests/model/machine.h"
#include "tests/sim/clock_sim.h"

/* Those who work. */
enum worker {
    WORKER_COMMIT_SMALL,
    WORKER_COMMIT_LARGE,
    WORKER_ACK,
    WORKER_INDEX,
    WORKER_SEGMENTS,
    WORKER_EVICT,
    WORKER_COUNT,
};

struct process_config {
    struct machine *machine; /* borrowed, as all pointers here */
    struct clock_sim *clock;
    struct buffer_pool *buffers;
    uint64_t capacity_bytes;
    int64_t vouch_ns;
    size_t load_step; /* entries of the index that are loaded at a time */
    /* Around each step of the evictor that has a segment to empty; may be NULL. */
    void (*before_eviction)(void *argument, uint64_t victim);
    void (*after_eviction)(void *argument, uint64_t victim);
    void *argument;
};

struct process {
    struct process_config config;
    struct metrics metrics;
    struct store *store;
    struct acker *acker;
    struct indexer *indexer;
    struct commit *commits[LANE_COUNT];
    struct evictor *evictor;
    struct recovery_report report;
    bool busy[WORKER_COUNT]; /* in the middle of a round, which waits */
    bool stopping;
};

/* Opens the store and recovers; on false nothing is open, and the machine may have changed. */
MUST_CHECK bool process_start(struct process *process,
                              const struct process_config *config,
                              struct status *status);
/* A clean stop: what is queued is committed, acknowledged and indexed. */
void process_stop(struct process *process);
/* The process is gone, or its machine has no power; takes the power if it is there. */
void process_drop(struct process *process);

/* One round of one of them; false if there was nothing to do or he is in the middle of one. */
bool process_work(struct process *process, enum worker worker);
/*
 * Opens a store as a start does, without anybody to work in it: to look at. *index may be NULL when
 * it cannot be opened. close: as if nothing had been written.
 */
MUST_CHECK bool store_look_open(const struct process_config *config,
                                struct metrics *metrics,
                                struct store **store,
                                struct index **index,
                                struct recovery_report *report,
                                struct status *status);
void store_look_close(struct store *store, struct index *index);

#endif
