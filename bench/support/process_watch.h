/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has used, from /proc, and what a server says of its syncs. */
#ifndef VARVE_BENCH_PROCESS_WATCH_H
#define VARVE_BENCH_PROCESS_WATCH_H

#include <stdint.h>
#include <sys/types.h>

struct process_use {
    double cpu_seconds;                 /* user and system, of all its threads; NAN: not known */
    uint64_t rss_bytes, rss_peak_bytes; /* 0: not known */
};

/* pid 0: this process. */
struct process_use process_use_now(pid_t pid);

/*
 * The sum of varve_segment_syncs_total at http://HOST:PORT/metrics; NAN when there is none to be had. Waits two seconds at
 * most.
 */
double server_syncs_now(const char *address);

#endif
