/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What share of accesses finds its object in a store of so many bytes: segments with the server's own eviction plan
 * (store/evict_plan.h), the same segments without moving anything (FIFO), and an exact LRU list of objects. For
 * bench/evict_sim.c and for a test.
 *
 * Traces:
 *   zipf     objects are independent; the n-th most popular is asked for in proportion to 1 / n^s
 *   builds   the n-th branch is built in proportion to 1 / n; a build replaces some of the branch's objects by new ones, and
 *            asks for all of it in an order of its own
 * An access to an object that is not there stores it. Sizes are lognormal with a mean of 15 KiB, at most 4 MiB.
 */
#ifndef VARVE_BENCH_EVICT_SIM_H
#define VARVE_BENCH_EVICT_SIM_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "store/evict_plan.h"

/* ---- random numbers that a seed fixes (splitmix64) */

static inline uint64_t sim_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* Above 0, at most 1. */
static inline double sim_random_unit(uint64_t *state)
{
    return (double)((sim_random(state) >> 11) + 1) * 0x1p-53;
}

static inline void *sim_allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    ASSERT(memory != NULL);
    return memory;
}

/* ---- traces */

struct sim_trace {
    uint32_t *accesses; /* owned; objects by number */
    size_t access_count;
    uint32_t *sizes; /* owned; bytes of each object */
    size_t object_count;
    uint64_t footprint_bytes; /* of all objects that occur */
};

static inline void sim_trace_free(struct sim_trace *trace)
{
    free(trace->accesses);
    free(trace->sizes);
}

/* Sizes, and what those take that occur. */
static inline void sim_trace_finish(struct sim_trace *trace, uint64_t *random)
{
    const double mean_bytes = 15.0 * 1024;
    const double sigma = 2;
    const double two_pi = 6.283185307179586;
    uint8_t *occurs = sim_allocate(trace->object_count, 1);
    trace->sizes = sim_allocate(trace->object_count, sizeof(*trace->sizes));
    for (size_t i = 0; i < trace->object_count; i++) {
        const double normal =
            sqrt(-2 * log(sim_random_unit(random))) * cos(two_pi * sim_random_unit(random));
        const double size = exp(log(mean_bytes) - sigma * sigma / 2 + sigma * normal);
        trace->sizes[i] = size < 64                  ? 64
                          : size > 4.0 * (double)MIB ? (uint32_t)(4 * MIB)
                                                     : (uint32_t)size;
    }
    for (size_t i = 0; i < trace->access_count; i++)
        occurs[trace->accesses[i]] = 1;
    for (size_t i = 0; i < trace->object_count; i++)
        trace->footprint_bytes += occurs[i] ? trace->sizes[i] : 0;
    free(occurs);
}

/* By Vose's alias method: one draw an access. */
static inline void sim_trace_zipf(struct sim_trace *trace,
                                  size_t objects,
                                  size_t accesses,
                                  double s,
                                  uint64_t seed)
{
    uint64_t random = seed;
    double *share = sim_allocate(objects, sizeof(*share));
    uint32_t *alias = sim_allocate(objects, sizeof(*alias));
    uint32_t *small = sim_allocate(objects, sizeof(*small));
    uint32_t *large = sim_allocate(objects, sizeof(*large));
    size_t small_count = 0;
    size_t large_count = 0;
    double sum = 0;
    for (size_t i = 0; i < objects; i++)
        sum += share[i] = pow((double)(i + 1), -s);
    for (size_t i = 0; i < objects; i++) {
        share[i] *= (double)objects / sum;
        if (share[i] < 1)
            small[small_count++] = (uint32_t)i;
        else
            large[large_count++] = (uint32_t)i;
    }
    while (small_count > 0 && large_count > 0) {
        const uint32_t less = small[--small_count];
        const uint32_t more = large[large_count - 1];
        alias[less] = more;
        share[more] -= 1 - share[less];
        if (share[more] < 1) {
            large_count--;
            small[small_count++] = more;
        }
    }
    while (large_count > 0)
        share[large[--large_count]] = 1;
    while (small_count > 0)
        share[small[--small_count]] = 1;
    *trace = (struct sim_trace){.access_count = accesses, .object_count = objects};
    trace->accesses = sim_allocate(accesses, sizeof(*trace->accesses));
    for (size_t i = 0; i < accesses; i++) {
        const uint32_t at = (uint32_t)(sim_random(&random) % objects);
        trace->accesses[i] = sim_random_unit(&random) <= share[at] ? at : alias[at];
    }
    free(share);
    free(alias);
    free(small);
    free(large);
    sim_trace_finish(trace, &random);
}

/* changed: of a branch's objects, what share a build replaces by new ones. */
static inline void sim_trace_builds(struct sim_trace *trace,
                                    size_t branches,
                                    size_t branch_objects,
                                    size_t builds,
                                    double changed,
                                    uint64_t seed)
{
    uint64_t random = seed;
    const size_t changes = (size_t)(changed * (double)branch_objects);
    uint32_t *current = sim_allocate(branches * branch_objects, sizeof(*current));
    size_t next = 0;
    double harmonic = 0;
    for (size_t i = 1; i <= branches; i++)
        harmonic += 1.0 / (double)i;
    *trace = (struct sim_trace){.access_count = builds * branch_objects,
                                .object_count = branches * branch_objects + builds * changes};
    trace->accesses = sim_allocate(trace->access_count, sizeof(*trace->accesses));
    for (size_t i = 0; i < branches * branch_objects; i++)
        current[i] = (uint32_t)next++;
    for (size_t build = 0; build < builds; build++) {
        /* The n-th branch is built in proportion to 1 / n. */
        double drawn = sim_random_unit(&random) * harmonic;
        size_t chosen = 0;
        while (chosen + 1 < branches && drawn > 1.0 / (double)(chosen + 1))
            drawn -= 1.0 / (double)(++chosen);
        uint32_t *branch = &current[chosen * branch_objects];
        uint32_t *accesses = &trace->accesses[build * branch_objects];
        for (size_t i = 0; i < changes; i++)
            branch[sim_random(&random) % branch_objects] = (uint32_t)next++;
        memcpy(accesses, branch, branch_objects * sizeof(*accesses));
        for (size_t i = branch_objects - 1; i > 0; i--) {
            const size_t other = (size_t)(sim_random(&random) % (i + 1));
            const uint32_t swapped = accesses[i];
            accesses[i] = accesses[other];
            accesses[other] = swapped;
        }
    }
    free(current);
    sim_trace_finish(trace, &random);
}

/* ---- results */

/* The first quarter of the trace fills the store and is not counted. */
struct sim_result {
    uint64_t hits, accesses;
    uint64_t inserted_bytes; /* stored because they were not there */
    uint64_t appended_bytes; /* these, and what was moved */
};

static inline double sim_hit_rate(const struct sim_result *result)
{
    return (double)result->hits / (double)result->accesses;
}

static inline double sim_write_amplification(const struct sim_result *result)
{
    return result->inserted_bytes == 0
               ? 1
               : (double)result->appended_bytes / (double)result->inserted_bytes;
}

/* ---- an exact LRU list */

static inline struct sim_result sim_run_lru(const struct sim_trace *trace, uint64_t capacity_bytes)
{
    enum { NOBODY = 0 };
    /* Objects are counted from 1 here; number 0 is both ends of the list. */
    uint32_t *older = sim_allocate(trace->object_count + 1, sizeof(*older));
    uint32_t *newer = sim_allocate(trace->object_count + 1, sizeof(*newer));
    uint8_t *there = sim_allocate(trace->object_count + 1, 1);
    struct sim_result result = {0};
    uint64_t used_bytes = 0;
    for (size_t i = 0; i < trace->access_count; i++) {
        const uint32_t object = trace->accesses[i] + 1;
        const bool counts = i >= trace->access_count / 4;
        result.accesses += counts;
        if (there[object]) {
            result.hits += counts;
            older[newer[object]] = older[object];
            newer[older[object]] = newer[object];
        } else {
            there[object] = 1;
            used_bytes += trace->sizes[object - 1];
            result.inserted_bytes += counts ? trace->sizes[object - 1] : 0;
        }
        older[object] = older[NOBODY]; /* the newest */
        newer[object] = NOBODY;
        newer[older[NOBODY]] = object;
        older[NOBODY] = object;
        while (used_bytes > capacity_bytes) {
            const uint32_t oldest = newer[NOBODY];
            newer[NOBODY] = newer[oldest];
            older[newer[oldest]] = NOBODY;
            there[oldest] = 0;
            used_bytes -= trace->sizes[oldest - 1];
        }
    }
    result.appended_bytes = result.inserted_bytes;
    free(older);
    free(newer);
    free(there);
    return result;
}

/* ---- segments */

enum sim_policy { SIM_FIFO, SIM_PLAN };

struct sim_segment {
    uint32_t *objects; /* owned */
    size_t count, capacity;
    uint64_t bytes;
};

struct sim_store {
    const struct sim_trace *trace; /* borrowed */
    enum sim_policy policy;
    uint64_t segment_bytes;
    struct sim_segment *segments; /* owned; a ring: number n is at n % segment_count */
    size_t segment_count;
    uint64_t oldest, active; /* numbers */
    uint64_t *places;        /* owned; of each object: its segment's number + 1; 0: not there */
    uint32_t *
        touches; /* owned; of each object: the minute of its last use + 1; 0: unused since it was written */
    uint32_t minute;
    uint64_t moved_bytes;
    uint64_t carried_bytes; /* of the budget */
};

static inline void sim_store_append(struct sim_store *store, uint32_t object);

/* The real plan, on what still lives in the oldest segment. */
static inline void sim_store_evict(struct sim_store *store)
{
    struct sim_segment victim = store->segments[store->oldest % store->segment_count];
    store->segments[store->oldest % store->segment_count] = (struct sim_segment){0};
    struct evict_candidate *candidates = sim_allocate(victim.count, sizeof(*candidates));
    struct evict_candidate **sorted = sim_allocate(victim.count, sizeof(struct evict_candidate *));
    uint32_t *live = sim_allocate(victim.count, sizeof(*live));
    size_t count = 0;
    for (size_t i = 0; i < victim.count; i++) {
        const uint32_t object = victim.objects[i];
        if (store->places[object] != store->oldest + 1)
            continue;
        const uint32_t touch = store->touches[object];
        candidates[count] =
            (struct evict_candidate){.bytes = store->trace->sizes[object],
                                     .touched = touch != 0,
                                     .idle_minutes = touch == 0 ? 0 : store->minute + 1 - touch};
        sorted[count] = &candidates[count];
        live[count++] = object;
        store->places[object] = 0;
    }
    store->oldest++;
    const struct evict_budget budget = {
        .bytes = evict_budget_bytes(store->segment_bytes, store->carried_bytes)};
    struct evict_outcome outcome;
    evict_plan(sorted, count, &budget, &outcome);
    store->carried_bytes =
        evict_carry_bytes(store->segment_bytes, store->carried_bytes, outcome.moved_bytes);
    for (size_t i = 0; i < count && store->policy == SIM_PLAN; i++) {
        if (!candidates[i].move)
            continue;
        store->touches[live[i]] = 0;
        store->moved_bytes += candidates[i].bytes;
        sim_store_append(store, live[i]);
    }
    free(victim.objects);
    free(candidates);
    free(sorted);
    free(live);
}

static inline void sim_store_append(struct sim_store *store, uint32_t object)
{
    const uint32_t size = store->trace->sizes[object];
    struct sim_segment *segment = &store->segments[store->active % store->segment_count];
    while (segment->count > 0 && segment->bytes + size > store->segment_bytes) {
        /* One segment is always free: what is moved may need it. */
        if (store->active + 2 - store->oldest >= store->segment_count)
            sim_store_evict(store);
        segment = &store->segments[store->active % store->segment_count];
        if (segment->count > 0 && segment->bytes + size > store->segment_bytes)
            segment = &store->segments[++store->active % store->segment_count];
    }
    if (segment->count == segment->capacity) {
        segment->capacity = segment->capacity == 0 ? 256 : 2 * segment->capacity;
        segment->objects = realloc(segment->objects, segment->capacity * sizeof(*segment->objects));
        ASSERT(segment->objects != NULL);
    }
    segment->objects[segment->count++] = object;
    segment->bytes += size;
    store->places[object] = store->active + 1;
}

static inline struct sim_result sim_run_segments(const struct sim_trace *trace,
                                                 enum sim_policy policy,
                                                 uint64_t capacity_bytes,
                                                 size_t segment_count,
                                                 size_t accesses_a_minute)
{
    struct sim_store store = {
        .trace = trace,
        .policy = policy,
        .segment_bytes = capacity_bytes / segment_count,
        .segment_count = segment_count,
        .segments = sim_allocate(segment_count, sizeof(*store.segments)),
        .places = sim_allocate(trace->object_count, sizeof(*store.places)),
        .touches = sim_allocate(trace->object_count, sizeof(*store.touches)),
    };
    struct sim_result result = {0};
    for (size_t i = 0; i < trace->access_count; i++) {
        const uint32_t object = trace->accesses[i];
        const bool counts = i >= trace->access_count / 4;
        store.minute = (uint32_t)(i / accesses_a_minute);
        if (i == trace->access_count / 4)
            store.moved_bytes = 0;
        result.accesses += counts;
        if (store.places[object] != 0) {
            result.hits += counts;
            store.touches[object] = store.minute + 1;
        } else {
            result.inserted_bytes += counts ? trace->sizes[object] : 0;
            store.touches[object] = 0;
            sim_store_append(&store, object);
        }
    }
    result.appended_bytes = result.inserted_bytes + store.moved_bytes;
    for (size_t i = 0; i < segment_count; i++)
        free(store.segments[i].objects);
    free(store.segments);
    free(store.places);
    free(store.touches);
    return result;
}

#endif
