/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crash image: a machine as a crash at some moment would have left it, and what is expected of
 * it. It is recovered as it is, with a crash in the middle of the recovery, and without its index;
 * what comes out must be as expected, and the same each time.
 */
#ifndef VARVE_TESTS_MODEL_IMAGES_H
#define VARVE_TESTS_MODEL_IMAGES_H

#include "tests/model/expected.h"
#include "tests/model/process.h"

struct image {
    struct machine machine; /* owned; not ended yet */
    struct expected expected;
};

/* Ends it and checks what recovers. Returns how many crash images that were. Frees the machine. */
size_t image_check(struct image *image,
                   const struct process_config *config,
                   const struct contents *contents,
                   struct prng *prng);

/* What a start on a copy of the machine would find; the machine itself stays as it is. */
void machine_look(const struct process_config *config,
                  const struct contents *contents,
                  struct prng *prng,
                  struct seen *seen);

#endif
