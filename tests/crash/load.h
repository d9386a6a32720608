/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that write to a server until it dies, or refuses, or enough is stored: small batches,
 * streams, action results with their outputs, and uploads whose bytes are not those of their
 * digest. Nothing is tried again within a load, so that an OK in the journal is one answer of one
 * process; what was left waiting by an earlier load is sent again now and then, as clients do.
 */
#ifndef VARVE_TESTS_CRASH_LOAD_H
#define VARVE_TESTS_CRASH_LOAD_H

#include "base/status.h"
#include "tests/crash/journal.h"

enum { LOAD_WORKERS_MAX = 256 };

struct load_settings {
    const char *target; /* borrowed until load_stop() */
    uint64_t seed;
    size_t batch_workers, stream_workers, action_workers, broken_workers;
    /*
     * What is sent at full speed; after that only little goes on. For all workers of a kind
     * together.
     */
    size_t batch_bytes, stream_bytes, broken_bytes;
    size_t actions;     /* new ones; after that old ones get new versions */
    size_t blobs_max;   /* acknowledged; then the load ends by itself. 0: never */
    size_t small_bytes; /* blobs in batches have about so many */
};

struct load;

/* The server answers already. Asserts that there is memory and a connection can be made. */
struct load *load_start(struct journal *journal, const struct load_settings *settings);

/* Have all workers ended by themselves: each met a failure, or enough is stored? */
bool load_ended(struct load *load);
/* True when a call has failed; *failure is the first one (may be NULL). */
bool load_failed(struct load *load, struct status *failure);
/* True when the server took wrong bytes for good, which nothing excuses; *failure says what. */
bool load_found_fault(struct load *load, struct status *failure);
size_t load_acknowledged(struct load *load);

/* Starts no more calls, and waits for those that run. */
void load_stop(struct load *load);
void load_free(struct load *load); /* when it is stopped */

#endif
