/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/line_file.h"

#define CURSOR_FORMAT "tier 1 %016" PRIx64 " seq %" PRIu64

static char *directory_of(const struct store *store);
static const char *name_of(enum lane lane);

uint64_t tier_cursor_load(const struct store *store, enum lane lane, uint64_t place)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    char again[LINE_FILE_TEXT_BYTES_MAX + 1];
    enum line_file_state state = LINE_FILE_ABSENT;
    struct status status = {0};
    char *const directory = directory_of(store);
    const bool read = directory != NULL &&
                      line_file_read(store->io, directory, name_of(lane), &state, text, &status);
    free(directory);
    if (read && state == LINE_FILE_SOUND) {
        /* It is sound only if it is what would be written for its number. */
        const char *const number = strstr(text, " seq ");
        const uint64_t seq = number != NULL ? strtoull(number + sizeof(" seq ") - 1, NULL, 10) : 0;
        snprintf(again, sizeof(again), CURSOR_FORMAT, place, seq);
        return strcmp(again, text) == 0 ? seq : 0;
    }
    if (!read || state != LINE_FILE_ABSENT)
        log_event(LOG_LEVEL_WARN, "tier_cursor_lost", "lane=%s", name_of(lane));
    return 0;
}

bool tier_cursor_save(const struct store *store,
                      enum lane lane,
                      uint64_t place,
                      uint64_t seq,
                      struct status *status)
{
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    char *const directory = directory_of(store);
    if (directory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    snprintf(text, sizeof(text), CURSOR_FORMAT, place, seq);
    const bool ok = io_make_directory(store->io, directory, status) &&
                    line_file_write(store->io, directory, name_of(lane), text, status);
    free(directory);
    return ok;
}

/* NULL: no memory. */
static char *directory_of(const struct store *store)
{
    char *path = NULL;
    return asprintf(&path, "%s/tier", store->directory) < 0 ? NULL : path;
}

static const char *name_of(enum lane lane)
{
    return lane == LANE_SMALL ? "small" : "large";
}
