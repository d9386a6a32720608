/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store against a map in memory: long random runs, on one thread, with a simulated clock, disk
 * and index, exactly repeatable from a seed.
 *
 *   main.c      seeds, processes, counting
 *   run.c       one run: what the clients, the store's threads, the disk and chance do next
 *   process.c   one life of a store, whose steps are called by hand
 *   world.c     what is put in place of libc and of waiting, at link time
 *   machine.c   a disk and an index that crash together
 *   expected.c  the map: what must, may and must not be there
 *   images.c    what a crash at a moment leaves, recovered and compared with the map
 *
 * Who finds something wrong calls model_fail(), which says at which seed and step, and ends.
 */
#ifndef VARVE_TESTS_MODEL_MODEL_H
#define VARVE_TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tests/support/prng.h"

/* Where the simulated disk has the store. */
#define MODEL_DATA "/data"
#define MODEL_INDEX "/data/index"

void model_fail(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));

/* One line about what happens next, if the run is traced. */
void model_trace(const char *format, ...) PRINTF_LIKE(1, 2);

/* For the messages of the two: in which run and step we are. */
void model_begin_run(uint64_t seed, bool traced);
void model_set_step(uint64_t step);

/* What getrandom() gives from now on. */
void model_set_random(struct prng prng);
struct prng model_random(void);

static inline bool chance(struct prng *prng, size_t in)
{
    return prng_below(prng, in) == 0;
}

#endif
