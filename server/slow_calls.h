/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that took long: counted, and logged with where the time went, a few lines a second at most. Any thread. */
#ifndef VARVE_SERVER_SLOW_CALLS_H
#define VARVE_SERVER_SLOW_CALLS_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"

enum { SLOW_CALLS_LINES_PER_SECOND_MAX = 5, SLOW_CALL_INSTANCE_BYTES_MAX = 64 };

struct slow_calls {
    int64_t threshold_ns;    /* above 0 */
    struct metrics *metrics; /* borrowed */
    _Atomic int64_t second;  /* of CLOCK_MONOTONIC, in which `lines` were written */
    _Atomic uint64_t lines;
    _Atomic uint64_t left_out; /* since the last line */
};

/* Texts are borrowed for the call. */
struct slow_call {
    const char *method;   /* "/google.bytestream.ByteStream/Read", "HTTP GET cas" */
    const char *instance; /* cut, where it is long; "": the empty one, or none */
    const char *user, *peer;
    enum status_code code;
    int64_t duration_ns; /* from arrival to the end of the answer */
    bool has_parts;      /* it is known what of that was: */
    int64_t client_ns;   /* the client was sending, or had not taken yet what was sent */
    int64_t budget_ns;   /* there was no memory for its next message */
    int64_t commit_ns;   /* group commit, and copies on other nodes where they are asked for */
    uint64_t received_bytes, sent_bytes;
};

void slow_calls_init(struct slow_calls *calls, int64_t threshold_ns, struct metrics *metrics);

/* now_ns: CLOCK_MONOTONIC. Those that were not slow are passed over. */
void slow_calls_note(struct slow_calls *calls, const struct slow_call *call, int64_t now_ns);

#endif
