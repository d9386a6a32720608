/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/load has calls do: each work says, for the next call, of which kind it is and which blobs it is about. Knows the
 * population: blobs, and action results with some of them as outputs, that are there before anything is measured.
 */
#ifndef VARVE_BENCH_LOAD_WORK_H
#define VARVE_BENCH_LOAD_WORK_H

#include <stdatomic.h>
#include <stdio.h>

#include "bench/support/exchange.h"
#include "bench/support/load_settings.h"

enum population_kind { POPULATION_NONE, POPULATION_BLOBS, POPULATION_ACTIONS };

/* What works draw from; shared by all exchanges of a run. */
struct load_source {
    const struct load_settings *settings; /* borrowed */
    const struct blobs *blobs;            /* borrowed */
    uint8_t (*hashes)[SHA256_HASH_BYTES]; /* owned; of the population */
    uint64_t salt;                        /* family of this run's new blobs */
    _Atomic uint64_t unique;              /* number of the next of them */
};

struct load_work {
    const char *name;
    const char *what;
    enum population_kind population;
    size_t per_call; /* unless it is given */
    bool per_call_fixed;
    bool batches; /* per_call blobs travel in one message */
    /* random: state of the exchange's own numbers. */
    void (*next)(struct load_source *source, struct exchange *exchange, uint64_t *random);
};

const struct load_work *load_work_find(const char *name); /* NULL: there is none of this name */
void load_work_print_all(FILE *to);

MUST_CHECK bool load_source_init(struct load_source *source,
                                 const struct load_settings *settings,
                                 const struct blobs *blobs,
                                 struct status *status);
void load_source_destroy(struct load_source *source);

/*
 * Uploading the population: asks what is missing, and then gives one exchange after the other that uploads some of it; first
 * all blobs, and when those are there, all action results. The two are false at the end. Any thread, one at a time.
 */
struct load_fill {
    struct load_source *source;
    bool *missing; /* owned; of the population's blobs */
    size_t blob;   /* that is looked at next */
    size_t action;
};

MUST_CHECK bool load_fill_init(struct load_fill *fill,
                               struct load_source *source,
                               struct client *client,
                               struct status *status);
void load_fill_destroy(struct load_fill *fill);
bool load_fill_next_blobs(struct load_fill *fill, struct exchange *exchange);
bool load_fill_next_action(struct load_fill *fill, struct exchange *exchange);
/* Names that an exchange of a fill may have. */
size_t load_fill_capacity(const struct load_source *source);

#endif
