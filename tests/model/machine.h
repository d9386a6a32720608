/* SPDX-License-Identifier: Apache-2.0 */
/* The disk and the index of one store, which crash together. */
#ifndef VARVE_TESTS_MODEL_MACHINE_H
#define VARVE_TESTS_MODEL_MACHINE_H

#include "tests/sim/index_sim.h"
#include "tests/sim/io_sim.h"

struct machine {
    struct io_sim *disk;     /* owned */
    struct index_sim *index; /* owned */
};

/* How a life of the process on it ends. */
enum machine_end {
    MACHINE_KILLED,            /* the process alone: the page cache stays */
    MACHINE_LOST_ALL_UNSYNCED, /* power cuts, as in enum io_sim_crash_mode */
    MACHINE_LOST_NOTHING,
    MACHINE_LOST_AT_RANDOM,
    MACHINE_END_COUNT,
};

void machine_init(struct machine *machine);
void machine_destroy(struct machine *machine);
/* As it is, without the process on it. */
void machine_copy(struct machine *to, const struct machine *from);

/* Nobody may have the index open. */
void machine_end(struct machine *machine, enum machine_end end, uint64_t seed);

#endif
