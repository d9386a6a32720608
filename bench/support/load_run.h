/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of bench/load: the population, the warm-up, and so many exchanges in flight for so long. Each begins when another has
 * ended (closed loop) or at its own time (open loop), and then its latency counts from that time, however late it was.
 */
#ifndef VARVE_BENCH_LOAD_RUN_H
#define VARVE_BENCH_LOAD_RUN_H

#include "bench/latency.h"
#include "bench/support/exchange.h"
#include "bench/support/load_settings.h"

enum { LOAD_STATUS_CODES = 17 };

struct load_totals {
    uint64_t calls, blobs, bytes, wrong;
    struct latency latency;
};

struct load_report {
    double seconds;
    struct load_totals all;
    struct load_totals kinds[EXCHANGE_KIND_COUNT];
    uint64_t errors[LOAD_STATUS_CODES]; /* calls, and entries of batches */
    struct status first_error;          /* of the whole run, with population and warm-up */
    uint64_t late; /* open loop: that should have begun and had not at the end */
    double client_cpu_seconds;
    double server_cpu_seconds; /* NAN: not known, as the next */
    double syncs;
    uint64_t server_rss_bytes, server_rss_peak_bytes; /* 0: not known */
    uint64_t filled_calls;                            /* that uploaded the population */
    double fill_seconds;
};

/*
 * Everything but what it says. *report: freed by the caller with free(); NULL when nothing was measured.
 * Errors: of the client, or of the first call that failed while the population was uploaded.
 */
MUST_CHECK bool load_run(const struct load_settings *settings,
                         struct load_report **report,
                         struct status *status);

/* No call failed, no answer was wrong, and there were some. */
bool load_report_good(const struct load_report *report);

#endif
