/* SPDX-License-Identifier: Apache-2.0 */
/* One run: the clients, the store's threads, the disk and chance, a step at a time. */
#ifndef VARVE_TESTS_MODEL_RUN_H
#define VARVE_TESTS_MODEL_RUN_H

#include <stdint.h>

struct run_counts {
    uint64_t images;       /* disks as crashes left them, recovered and compared */
    uint64_t acknowledged; /* uploads and action results */
    uint64_t evicted;      /* segments */
    uint64_t rotations;
    uint64_t lives; /* of the store, by whatever end */
    uint64_t lanes_failed;
};

/* Ends by model_fail() if something is wrong. *counts is added to while it goes on. */
void run_model(uint64_t seed, struct run_counts *counts);

#endif
