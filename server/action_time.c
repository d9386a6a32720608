/* SPDX-License-Identifier: Apache-2.0 */
#include "server/action_time.h"

#include <stdlib.h>

#include "store/blob_reader.h"
#include "store/write_time.h"

int64_t action_time_of_writing(struct store *store,
                               const struct digest *action,
                               struct bytes instance)
{
    uint8_t *memory = NULL;
    struct action_record before;
    struct place place;
    struct status ignored;
    /* What was written before the start was not heard of since. */
    if (action_read(store, action, instance, &memory, &before, &place, &ignored) && memory != NULL)
        write_time_heard(store, before.written_wall_ns);
    free(memory);
    return write_time_next(store);
}
