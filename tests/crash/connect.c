/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/connect.h"

#include "base/clock.h"
#include "client/capabilities.h"

enum { TRIES = 5 };

bool connect_first(const char *target,
                   const struct client_options *options,
                   struct client **client,
                   struct status *status)
{
    if (!client_connect(target, options, client, status))
        return false;
    /* Calls take the connections in turn. */
    size_t in_a_row = 0;
    for (size_t tries = 0; tries < TRIES * options->connections && in_a_row < options->connections;
         tries++) {
        struct capabilities capabilities;
        struct status why;
        if (capabilities_get(*client, &capabilities, &why)) {
            in_a_row++;
        } else {
            in_a_row = 0;
            clock_pause(50 * NS_PER_MS);
        }
    }
    return true;
}
