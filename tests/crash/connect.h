/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that are there before anything that is asked counts: gRPC 1.51 now and then takes a connect that is under way for a
 * failed one, with an errno that connect() does not have.
 */
#ifndef VARVE_TESTS_CRASH_CONNECT_H
#define VARVE_TESTS_CRASH_CONNECT_H

#include "client/connection.h"

/* As client_connect(); tries each of the connections a few times, and leaves it at that where nobody answers. */
MUST_CHECK bool connect_first(const char *target,
                              const struct client_options *options,
                              struct client **client,
                              struct status *status);

#endif
