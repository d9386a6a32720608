/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the ports open when descriptors run out. gRPC 1.51 closes a listening socket for ever when
 * accept4() fails with EMFILE or another error that it does not expect (CVE-2023-4785); so this
 * program has an accept4() of its own, which gRPC and libmicrohttpd call in place of the C
 * library's because the program exports it. It never lets such an error through: it accepts the
 * connection with a spare descriptor and closes it at once. It also bounds how many connections
 * there are.
 *
 * One for the process, as there is one accept4(); until it is started that one is the system call
 * and nothing else.
 */
#ifndef VARVE_SERVER_ACCEPT_GUARD_H
#define VARVE_SERVER_ACCEPT_GUARD_H

#include "base/metrics.h"
#include "base/status.h"

/*
 * address_connections_max: from one address, of IPv6 from one /64; 0: half of connections_max, at least 1024.
 * descriptors_max: no connection gets a number of this or more, so that files can still be opened.
 * metrics: borrowed.
 */
MUST_CHECK bool accept_guard_start(uint64_t connections_max,
                                   uint64_t address_connections_max,
                                   uint64_t descriptors_max,
                                   struct metrics *metrics,
                                   struct status *status);
void accept_guard_stop(void);

/*
 * Connections of this listening socket are bounded by whoever accepts them; they come in when those of the others are too many.
 * descriptors: so many of them above descriptors_max. One socket; does nothing before the start.
 */
void accept_guard_leave_alone(int listening, uint64_t descriptors);

/*
 * Shuts down the connection that comes from there, as gRPC has it: "ipv4:10.0.0.7:51034", "ipv6:%5B::1%5D:51034". False when there is
 * none, or the guard is not started.
 */
bool accept_guard_shut(const char *peer);

/*
 * Notices connections that were closed, and sets the metric. From time to time, by the maintenance
 * thread.
 */
void accept_guard_step(void);

#endif
