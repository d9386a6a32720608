/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_sim [SCALE]: hit rates of the server's eviction beside exact LRU and FIFO, and what it writes for them. SCALE 100
 * (the default) is a million objects and six million accesses.
 */
#include "bench/evict_sim.h"

enum { SEGMENTS = 64 };

struct row {
    const char *name;
    void (*make)(struct sim_trace *trace, size_t scale);
};

static void make_zipf_08(struct sim_trace *trace, size_t scale)
{
    sim_trace_zipf(trace, scale * 10000, scale * 60000, 0.8, 1);
}

static void make_zipf_10(struct sim_trace *trace, size_t scale)
{
    sim_trace_zipf(trace, scale * 10000, scale * 60000, 1.0, 2);
}

/* 8 branches; 2 % of a branch change with each build. */
static void make_builds(struct sim_trace *trace, size_t scale)
{
    sim_trace_builds(trace, 8, scale * 100, 1000, 0.02, 3);
}

int main(int count, char **arguments)
{
    static const struct row rows[] = {
        {"Zipf 0.8", make_zipf_08}, {"Zipf 1.0", make_zipf_10}, {"builds", make_builds}};
    static const unsigned per_cent[] = {10, 20, 40};
    const size_t scale = count > 1 ? (size_t)strtoul(arguments[1], NULL, 10) : 100;
    if (scale == 0 || scale > 1000) {
        fprintf(stderr, "evict_sim [SCALE]: from 1 to 1000\n");
        return 2;
    }
    printf("| trace | capacity | FIFO | LRU | varve | varve - LRU | written / stored |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct sim_trace trace;
        rows[i].make(&trace, scale);
        for (size_t k = 0; k < ARRAY_LENGTH(per_cent); k++) {
            const uint64_t capacity = trace.footprint_bytes / 100 * per_cent[k];
            const struct sim_result fifo =
                sim_run_segments(&trace, SIM_FIFO, capacity, SEGMENTS, scale);
            const struct sim_result lru = sim_run_lru(&trace, capacity);
            const struct sim_result plan =
                sim_run_segments(&trace, SIM_PLAN, capacity, SEGMENTS, scale);
            printf("| %s | %u %% | %.3f | %.3f | %.3f | %+.3f | %.2f |\n", rows[i].name,
                   per_cent[k], sim_hit_rate(&fifo), sim_hit_rate(&lru), sim_hit_rate(&plan),
                   sim_hit_rate(&plan) - sim_hit_rate(&lru), sim_write_amplification(&plan));
            fflush(stdout);
        }
        sim_trace_free(&trace);
    }
    return 0;
}
