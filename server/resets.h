/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections on which calls are given up as fast as they are begun (CVE-2023-44487). gRPC 1.51 has no bound for that: each costs
 * memory and time, whatever max-streams says, since a stream that is reset does not count any more. So they are counted by
 * connection, and one that has given up LIMIT_RESETS_AT_ONCE and more than LIMIT_RESETS_PER_S since is shut down (server/accept_guard.h);
 * its client may come again.
 *
 * Bounded: of some 1000 connections it is known, those that are worst. Any thread.
 */
#ifndef VARVE_SERVER_RESETS_H
#define VARVE_SERVER_RESETS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"

struct resets;

MUST_CHECK bool resets_new(struct metrics *metrics, struct resets **resets, struct status *status);
void resets_free(struct resets *resets);

/*
 * A call of this connection ("ipv4:10.0.0.7:51034") was given up by its client. True when that is one too many, once: of what was
 * still on its way nothing is said.
 */
bool resets_note(struct resets *resets, const char *peer, int64_t now_ns);
/* Counts, logs, and shuts the connection down. */
void resets_shut(struct resets *resets, const char *peer, int64_t now_ns);

#endif
