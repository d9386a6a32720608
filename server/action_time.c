/* SPDX-License-Identifier: Apache-2.0 */
#include "server/action_time.h"

#include <stdlib.h>

#include "store/blob_reader.h"

int64_t action_time_of_writing(struct store *store,
                               const struct digest *action,
                               struct bytes instance)
{
    const int64_t now_ns = clock_wall_ns(store->clock);
    uint8_t *memory = NULL;
    struct action_record before;
    struct place place;
    struct status ignored;
    if (!action_read(store, action, instance, &memory, &before, &place, &ignored) || memory == NULL)
        return now_ns; /* there is none, or none that can be read */
    const int64_t later_ns =
        before.written_wall_ns < INT64_MAX ? before.written_wall_ns + 1 : INT64_MAX;
    free(memory);
    return now_ns > later_ns ? now_ns : later_ns;
}
