/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an action result counts as written. Of two results of one action the later one stands, on every node that hears of both; so
 * one that replaces another is later, though the clock may have been set back, or be behind that of another node.
 */
#ifndef VARVE_SERVER_ACTION_TIME_H
#define VARVE_SERVER_ACTION_TIME_H

#include "store/store.h"

/* Now, or just after the result that is here. In nanoseconds since 1970. */
int64_t action_time_of_writing(struct store *store,
                               const struct digest *action,
                               struct bytes instance);

#endif
