/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the linker puts in place of libc and of base/ in the model (-Wl,--wrap in the Makefile), so
 * that a run is one thread and exactly repeatable: random numbers come from the seed, pauses and
 * time limits pass on the simulated clock, and who would wait for another thread lets the others
 * work instead.
 */
#ifndef VARVE_TESTS_MODEL_WORLD_H
#define VARVE_TESTS_MODEL_WORLD_H

#include <stdbool.h>

struct process;

/* Whose workers work while one of them waits; NULL: nobody's. */
void world_set_process(struct process *process);

/* Called with each FORGET that is submitted, and again when it is durable or has failed. */
struct commit_request;
void world_set_forget_observer(void (*observe)(void *argument,
                                               const struct commit_request *request,
                                               bool durable),
                               void *argument);

#endif
