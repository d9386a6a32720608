/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to try a failed call again, and after how long: doubling pauses with jitter, a bounded
 * number of times.
 */
#ifndef VARVE_CLIENT_RETRY_H
#define VARVE_CLIENT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct retry_policy {
    unsigned tries_max;   /* 1 never tries again */
    int64_t pause_min_ns; /* before the second try */
    int64_t pause_max_ns;
};

/* Five tries; 100 ms, doubled up to 5 s: what build tools do. */
struct retry_policy retry_policy_default(void);

/* The tries of one call or stream. A plain value. */
struct retry {
    struct retry_policy policy;
    unsigned tries; /* that failed, since the last progress */
    uint64_t random;
};

void retry_init(struct retry *retry, const struct retry_policy *policy);

/*
 * Could the same call succeed a moment later? UNKNOWN, RESOURCE_EXHAUSTED, ABORTED, INTERNAL and
 * UNAVAILABLE; and DEADLINE_EXCEEDED only when the call has got somewhere (moved), since a call
 * that stood still for all of its time is not worth as much again.
 */
bool retry_is_retryable(enum status_code code, bool moved);

/*
 * Is it about the size of a message, and not about room at the server? Servers and proxies say
 * RESOURCE_EXHAUSTED (some INTERNAL or UNAVAILABLE) for both; the same message fails again however
 * often it is sent.
 */
bool retry_is_message_too_large(const struct status *status);

/*
 * A try has failed. True: try again after *pause_ns (between half of the doubled pause and all of
 * it).
 */
bool retry_again(struct retry *retry, const struct status *status, bool moved, int64_t *pause_ns);

#endif
