/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an action result counts as written (store/write_time.h): later than the one that it replaces, too.
 */
#ifndef VARVE_SERVER_ACTION_TIME_H
#define VARVE_SERVER_ACTION_TIME_H

#include "store/store.h"

/* In nanoseconds since 1970. */
int64_t action_time_of_writing(struct store *store,
                               const struct digest *action,
                               struct bytes instance);

#endif
