/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index on disk, simulated: linked in place of store/index.c it implements store/index.h on a
 * medium in memory, with the same rule of losing what was not flushed. Batches are kept in order; a
 * flush makes all of them durable; a crash, of the process or of the machine, leaves those that
 * were flushed and as many of the next ones as chance has it: an exact prefix.
 *
 * One medium is in use at a time, whatever path it is opened by. One thread.
 */
#ifndef VARVE_TESTS_SIM_INDEX_SIM_H
#define VARVE_TESTS_SIM_INDEX_SIM_H

#include "store/index.h"
#include "tests/sim/io_sim.h"

struct index_sim;

/*
 * An empty medium in this machine (borrowed): every open, write and flush is an operation of it
 * (io_sim_other()), and fails and loses power with it.
 */
struct index_sim *index_sim_new(struct io_sim *machine);
void index_sim_free(struct index_sim *medium); /* asserts that it is not open */

/* The same content, flushed or not, in another machine, as if nobody had it open. */
struct index_sim *index_sim_copy(const struct index_sim *medium, struct io_sim *machine);

/* What index_open() and index_destroy() find from now on. */
void index_sim_use(struct index_sim *medium);

/*
 * Whoever had it open is gone, without a word; asserts that index_close() was called for him, which
 * in a machine without power flushes nothing.
 */
void index_sim_crash(struct index_sim *medium, uint64_t seed);

/* Batches that are not flushed. */
size_t index_sim_unflushed(const struct index_sim *medium);

#endif
