/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills a loaded server again and again, at each fail point and at random moments, and holds the
 * next one on the same data to all that was ever acknowledged.
 */
#ifndef VARVE_TESTS_CRASH_KILLS_H
#define VARVE_TESTS_CRASH_KILLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kills_settings {
    const char *varved;    /* borrowed; a build with fail points */
    const char *directory; /* borrowed; empty: data, journal and log go there */
    size_t kills;
    size_t kills_per_store; /* then a new data directory is begun */
    uint64_t seed;
};

/* Prints how it went; false when anything was wrong. What it leaves in the directory tells more. */
bool kills_run(const struct kills_settings *settings);

#endif
