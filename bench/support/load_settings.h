/* SPDX-License-Identifier: Apache-2.0 */
/* What bench/load is told on its command line. */
#ifndef VARVE_BENCH_LOAD_SETTINGS_H
#define VARVE_BENCH_LOAD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/support/blobs.h"

struct load_work; /* bench/support/load_work.h */

struct load_settings {
    const char *server, *instance; /* borrowed from the command line */
    const struct load_work *work;
    struct blob_sizes sizes;
    const char *size_text; /* as given */
    size_t per_call;       /* blobs or digests in one unary call; outputs of an action result */
    size_t chunk_bytes;    /* of one message of a stream */
    size_t in_flight;      /* calls, on all connections together */
    size_t connections;
    double rate; /* calls a second that begin, come what may; 0: the next when one has ended */
    size_t population; /* blobs to be read or found */
    uint64_t seed;     /* of the population, so that a second run finds it there */
    double seconds, warm_up_seconds, timeout_seconds;
    pid_t server_pid;    /* 0: not asked */
    const char *metrics; /* HOST:PORT; NULL: not asked */
    bool verify, json;
};

/* False when there is nothing to run; what is wrong has been said on standard error then. */
bool load_settings_parse(struct load_settings *settings, int argc, char **argv);

#endif
