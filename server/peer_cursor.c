/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peer_cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/line_file.h"

#define CURSOR_FORMAT "peer 1 %016" PRIx64 " small %" PRIu64 " large %" PRIu64

enum { NAME_BYTES = 17 };

static char *directory_of(const struct store *store);
static const char *name_of(uint64_t peer_uid, char name[NAME_BYTES]);
static bool parse(const char *text, uint64_t peer_uid, struct peer_cursor *cursor);

void peer_cursor_load(const struct store *store, uint64_t peer_uid, struct peer_cursor *cursor)
{
    char name[NAME_BYTES];
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    enum line_file_state state = LINE_FILE_ABSENT;
    struct status status = {0};
    char *const directory = directory_of(store);
    *cursor = (struct peer_cursor){0};
    const bool read =
        directory != NULL &&
        line_file_read(store->io, directory, name_of(peer_uid, name), &state, text, &status);
    free(directory);
    if (read && state == LINE_FILE_SOUND && parse(text, peer_uid, cursor))
        return;
    *cursor = (struct peer_cursor){0};
    if (!read || state != LINE_FILE_ABSENT)
        log_event(LOG_LEVEL_WARN, "peer_cursor_lost", "uid=%016" PRIx64, peer_uid);
}

/* It is sound only if it is what would be written for its numbers. */
static bool parse(const char *text, uint64_t peer_uid, struct peer_cursor *cursor)
{
    char again[LINE_FILE_TEXT_BYTES_MAX + 1];
    const char *const small = strstr(text, " small ");
    const char *const large = strstr(text, " large ");
    if (small == NULL || large == NULL)
        return false;
    cursor->applied_seq[LANE_SMALL] = strtoull(small + sizeof(" small ") - 1, NULL, 10);
    cursor->applied_seq[LANE_LARGE] = strtoull(large + sizeof(" large ") - 1, NULL, 10);
    snprintf(again, sizeof(again), CURSOR_FORMAT, peer_uid, cursor->applied_seq[LANE_SMALL],
             cursor->applied_seq[LANE_LARGE]);
    return strcmp(again, text) == 0;
}

bool peer_cursor_save(const struct store *store,
                      uint64_t peer_uid,
                      const struct peer_cursor *cursor,
                      struct status *status)
{
    char name[NAME_BYTES];
    char text[LINE_FILE_TEXT_BYTES_MAX + 1];
    char *const directory = directory_of(store);
    if (directory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    snprintf(text, sizeof(text), CURSOR_FORMAT, peer_uid, cursor->applied_seq[LANE_SMALL],
             cursor->applied_seq[LANE_LARGE]);
    const bool ok = io_make_directory(store->io, directory, status) &&
                    line_file_write(store->io, directory, name_of(peer_uid, name), text, status);
    free(directory);
    return ok;
}

/* NULL: no memory. */
static char *directory_of(const struct store *store)
{
    char *path = NULL;
    return asprintf(&path, "%s/peers", store->directory) < 0 ? NULL : path;
}

static const char *name_of(uint64_t peer_uid, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64, peer_uid);
    return name;
}
