/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Series per instance name and method, as Prometheus text; those of a pair appear with its first request:
 *   varve_instance_requests_total{instance_name,method,code}
 *   varve_instance_request_seconds{instance_name,method}           histogram, from arrival to the end of the answer
 *   varve_instance_bytes_total{instance_name,method,direction="received"|"sent"}
 *   varve_instance_lookups_total{instance_name,method,result="hit"|"miss"}   blobs and action results asked for
 *
 * The first INSTANCE_METRICS_MAX names have series of their own, the others share the name "other", so that no client can make more.
 * Counting takes no lock and no memory; a name that is new takes a lock, once.
 */
#ifndef VARVE_SERVER_INSTANCE_METRICS_H
#define VARVE_SERVER_INSTANCE_METRICS_H

#include "base/bytes.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "base/status.h"

struct instance_metrics;

enum {
    INSTANCE_METRICS_MAX = 64,
    INSTANCE_METRICS_OTHER = INSTANCE_METRICS_MAX,
    INSTANCE_METRICS_NONE, /* the request's instance is not known (yet) */
};

/* methods: their names, copied as pointers. */
MUST_CHECK bool instance_metrics_new(const char *const *methods,
                                     size_t count,
                                     struct instance_metrics **metrics,
                                     struct status *status);
void instance_metrics_free(struct instance_metrics *metrics);

/*
 * The number of an instance, below INSTANCE_METRICS_NONE; any thread, as all of these. ADD: a name that is new gets one, if
 * one is left; for callers that may use the instance, so that others cannot use the numbers up.
 */
enum instance_find { INSTANCE_FIND, INSTANCE_ADD };
size_t instance_metrics_find(struct instance_metrics *metrics,
                             struct bytes name,
                             enum instance_find how);

/* A request has ended. instance may be NONE: nothing is counted. */
struct instance_request {
    enum status_code code;
    int64_t duration_ns;
    uint64_t received_bytes, sent_bytes;
};
void instance_metrics_ended(struct instance_metrics *metrics,
                            size_t instance,
                            size_t method,
                            const struct instance_request *request);
/* What it looked for, and whether that was there. */
void instance_metrics_looked_up(struct instance_metrics *metrics,
                                size_t instance,
                                size_t method,
                                uint64_t hits,
                                uint64_t misses);

void instance_metrics_render(struct instance_metrics *metrics, struct metrics_text *text);

/* Does it say that the server, and not what was asked for, is why a request failed? */
bool status_code_is_ours(enum status_code code);

/* A plain value: sums over the methods. */
struct instance_report {
    char name[LIMIT_INSTANCE_NAME_BYTES + 1];
    uint64_t requests, failed; /* failed: for the server's sake */
    uint64_t action_hits, action_misses, blob_hits, blob_misses;
    uint64_t received_bytes, sent_bytes;
};
/* Adds up the times of all requests. */
void instance_metrics_times(struct instance_metrics *metrics, uint64_t buckets[HISTOGRAM_BUCKETS]);
/* Those that had requests; at most INSTANCE_METRICS_MAX + 1. How many there are. */
size_t instance_metrics_report(struct instance_metrics *metrics,
                               struct instance_report *reports,
                               size_t max);

#endif
