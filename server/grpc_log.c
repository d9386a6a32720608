/* SPDX-License-Identifier: Apache-2.0 */
#include "server/grpc_log.h"

#include <grpc/support/log.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"

enum { LINES_PER_SECOND_MAX = 5 };

/* gRPC gives its log function no argument, so what it needs is here. */
static _Atomic int64_t second; /* of CLOCK_MONOTONIC, in which `lines` were written */
static _Atomic uint64_t lines;
static _Atomic uint64_t left_out; /* since the last line that was written */

static void write_line(gpr_log_func_args *args)
{
    const int64_t now = clock_monotonic_ns(clock_real()) / NS_PER_S;
    if (atomic_exchange(&second, now) != now)
        atomic_store(&lines, 0);
    if (atomic_fetch_add(&lines, 1) >= LINES_PER_SECOND_MAX) {
        atomic_fetch_add(&left_out, 1);
        return;
    }
    /* What it calls an error is, mostly, a client that misbehaves. */
    const enum log_level level =
        args->severity == GPR_LOG_SEVERITY_ERROR ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG;
    struct log_text message;
    log_event(level, "grpc", "message=%s source=%s:%d left_out=%llu",
              log_quote(&message, args->message), args->file, args->line,
              (unsigned long long)atomic_exchange(&left_out, 0));
}

void grpc_log_install(void)
{
    gpr_set_log_function(write_line);
}
