/* SPDX-License-Identifier: Apache-2.0 */
#include "server/slow_calls.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"

void slow_calls_init(struct slow_calls *calls, int64_t threshold_ns, struct metrics *metrics)
{
    ASSERT(threshold_ns > 0);
    calls->threshold_ns = threshold_ns;
    calls->metrics = metrics;
    atomic_init(&calls->second, 0);
    atomic_init(&calls->lines, 0);
    atomic_init(&calls->left_out, 0);
}

void slow_calls_note(struct slow_calls *calls, const struct slow_call *call, int64_t now_ns)
{
    if (call->duration_ns < calls->threshold_ns)
        return;
    metrics_add(calls->metrics, METRIC_CALLS_SLOW, 1);
    const int64_t now = now_ns / NS_PER_S;
    if (atomic_exchange(&calls->second, now) != now)
        atomic_store(&calls->lines, 0);
    if (atomic_fetch_add(&calls->lines, 1) >= SLOW_CALLS_LINES_PER_SECOND_MAX) {
        atomic_fetch_add(&calls->left_out, 1);
        return;
    }
    struct log_text method;
    struct log_text instance;
    struct log_text user;
    struct log_text peer;
    char parts[128] = "";
    if (call->has_parts)
        snprintf(
            parts, sizeof(parts), " client_ms=%" PRId64 " budget_ms=%" PRId64 " commit_ms=%" PRId64,
            call->client_ns / NS_PER_MS, call->budget_ns / NS_PER_MS, call->commit_ns / NS_PER_MS);
    log_event(LOG_LEVEL_WARN, "slow_call",
              "method=%s instance=%s code=%s duration_ms=%" PRId64 "%s received_bytes=%" PRIu64
              " sent_bytes=%" PRIu64 " user=%s peer=%s left_out=%" PRIu64,
              log_quote(&method, call->method), log_quote(&instance, call->instance),
              status_code_name(call->code), call->duration_ns / NS_PER_MS, parts,
              call->received_bytes, call->sent_bytes, log_quote(&user, call->user),
              log_quote(&peer, call->peer), atomic_exchange(&calls->left_out, 0));
}
