/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/log.h"

enum { FORMAT_LINE_BYTES = 64 };

static uint64_t suitable_segment_bytes(const struct store_config *config,
                                       enum lane lane,
                                       uint64_t at_most);
static bool prepare_directory(struct store *store, struct status *status);
static bool sync_parent(struct store *store, struct status *status);
static bool check_format(struct store *store, struct status *status);
static bool write_format(struct store *store, const char *path, struct status *status);
static bool parse_format(struct store *store, const char *line, struct status *status);
static bool parse_number(const char **text, int base, uint64_t *number);
static bool open_segments(struct store *store, struct status *status);
static char *join(const char *directory, const char *name);

bool store_open(const struct store_config *config, struct store **store, struct status *status)
{
    struct store *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a store");
    lock_init(&opened->forget_lock, LOCK_RANK_LEAF);
    condition_init(&opened->forgets_answered);
    opened->io = config->io;
    opened->clock = config->clock;
    opened->metrics = config->metrics;
    opened->buffers = config->buffers;
    opened->lock_fd = -1;
    opened->capacity_bytes = config->capacity_bytes;
    opened->reserve_bytes = config->reserve_bytes;
    opened->vouch_ns = config->vouch_ns;
    opened->segment_bytes[LANE_SMALL] = suitable_segment_bytes(config, LANE_SMALL, 256 * MIB);
    opened->segment_bytes[LANE_LARGE] = suitable_segment_bytes(config, LANE_LARGE, GIB);
    opened->next_segment_number = 1;
    opened->directory = strdup(config->directory);
    opened->segments_directory = join(config->directory, "segments");
    bool ok = opened->directory != NULL && opened->segments_directory != NULL;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a store");
    ok = ok && segment_set_new(&opened->segments, status) &&
         blob_table_new(&opened->table, status) && prepare_directory(opened, status) &&
         open_segments(opened, status);
    if (!ok) {
        store_close(opened);
        status_prefix(status, "open store %s", config->directory);
        return false;
    }
    *store = opened;
    return true;
}

/* What is evicted at once should be a small part of the whole: 64 segments at least. */
static uint64_t suitable_segment_bytes(const struct store_config *config,
                                       enum lane lane,
                                       uint64_t at_most)
{
    if (config->segment_bytes[lane] != 0)
        return config->segment_bytes[lane];
    if (config->capacity_bytes == 0 || config->capacity_bytes / 64 >= at_most)
        return at_most;
    const uint64_t part = config->capacity_bytes / 64 / MIB * MIB;
    return part > SEGMENT_BYTES_MIN ? part : SEGMENT_BYTES_MIN;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        segment_log_free(store->logs[lane]);
    blob_table_free(store->table);
    segment_set_free(store->segments);
    condition_destroy(&store->forgets_answered);
    lock_destroy(&store->forget_lock);
    io_close(store->io, store->lock_fd);
    free(store->segments_directory);
    free(store->directory);
    free(store);
}

/* The directory, its LOCK and FORMAT. */
static bool prepare_directory(struct store *store, struct status *status)
{
    char *lock_path = join(store->directory, "LOCK");
    if (lock_path == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    const bool ok =
        io_make_directory(store->io, store->directory, status) && sync_parent(store, status) &&
        io_lock(store->io, lock_path, &store->lock_fd, status) && check_format(store, status) &&
        io_make_directory(store->io, store->segments_directory, status) &&
        io_sync_directory(store->io, store->directory, status);
    free(lock_path);
    return ok;
}

/* The data directory's own name must survive, too. */
static bool sync_parent(struct store *store, struct status *status)
{
    char *parent = strdup(store->directory);
    if (parent == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    const bool ok = io_sync_directory(store->io, dirname(parent), status);
    free(parent);
    return ok;
}

static bool other_file(void *argument, const char *name)
{
    bool *found = argument;
    if (strcmp(name, "LOCK") != 0 && strcmp(name, "FORMAT.new") != 0 &&
        strcmp(name, "lost+found") != 0)
        *found = true;
    return !*found;
}

static bool check_format(struct store *store, struct status *status)
{
    char *path = join(store->directory, "FORMAT");
    if (path == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    int fd = -1;
    struct status open_status;
    bool ok = false;
    if (io_open(store->io, path, IO_OPEN_READ, &fd, &open_status)) {
        char line[FORMAT_LINE_BYTES + 1] = {0};
        size_t got = 0;
        ok = io_pread(store->io, fd, line, FORMAT_LINE_BYTES, 0, &got, status) &&
             parse_format(store, line, status);
        io_close(store->io, fd);
    } else if (open_status.code == STATUS_NOT_FOUND) {
        bool found = false;
        ok = io_list(store->io, store->directory, other_file, &found, status);
        if (ok && found)
            ok = status_fail(
                status, STATUS_INVALID_ARGUMENT,
                "the directory is not empty and has no FORMAT file: it is no varve store");
        ok = ok && write_format(store, path, status);
    } else {
        *status = open_status;
    }
    free(path);
    return ok;
}

static bool write_format(struct store *store, const char *path, struct status *status)
{
    char *new_path = join(store->directory, "FORMAT.new");
    if (new_path == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    struct status ignored;
    if (!io_unlink(store->io, new_path, &ignored)) {
        /* None was left by an earlier start. */
    }
    char line[FORMAT_LINE_BYTES];
    int fd = -1;
    bool ok = getrandom(&store->node_uid, sizeof(store->node_uid), 0) ==
                  (ssize_t)sizeof(store->node_uid) ||
              status_fail(status, STATUS_INTERNAL, "getrandom");
    const int length =
        snprintf(line, sizeof(line), "varve %d %016" PRIx64 "\n", FORMAT_VERSION, store->node_uid);
    const struct iovec part = {.iov_base = line, .iov_len = (size_t)length};
    ok = ok && io_open(store->io, new_path, IO_OPEN_CREATE_NEW, &fd, status) &&
         io_pwritev(store->io, fd, &part, 1, 0, status) && io_sync(store->io, fd, status);
    io_close(store->io, fd);
    ok = ok && io_rename(store->io, new_path, path, status) &&
         io_sync_directory(store->io, store->directory, status);
    free(new_path);
    return ok;
}

static bool parse_format(struct store *store, const char *line, struct status *status)
{
    static const char name[] = "varve ";
    uint64_t version = 0;
    const char *rest = line + strlen(name);
    if (strncmp(line, name, strlen(name)) != 0 || !parse_number(&rest, 10, &version) ||
        *rest++ != ' ' || !parse_number(&rest, 16, &store->node_uid) || strcmp(rest, "\n") != 0)
        return status_fail(
            status, STATUS_DATA_LOSS,
            "the FORMAT file is damaged; it should hold one line \"varve %d <16 hex digits>\"",
            FORMAT_VERSION);
    if (version != FORMAT_VERSION)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "the store has format version %" PRIu64 ", this program knows %d",
                           version, FORMAT_VERSION);
    return true;
}

/* Digits alone, at least one; *text is then behind them. */
static bool parse_number(const char **text, int base, uint64_t *number)
{
    char *end = NULL;
    if (!isxdigit((unsigned char)**text))
        return false;
    errno = 0;
    *number = strtoull(*text, &end, base);
    const bool ok = end != *text && errno == 0;
    *text = end;
    return ok;
}

/* Names are collected first: files are removed and opened only once the listing is over. */
struct found_file {
    uint64_t number;
    const char *suffix; /* static */
};

struct found_segments {
    struct found_file *items;
    size_t count, capacity;
    bool out_of_memory;
};

static bool collect_segment(void *argument, const char *name)
{
    struct found_segments *found = argument;
    uint64_t number = 0;
    const char *suffix = name;
    if (!parse_number(&suffix, 16, &number) || suffix != name + 16 || *suffix++ != '.' ||
        number == 0 || number > SEGMENT_NUMBER_MAX)
        return true; /* not ours; left alone */
    if (strcmp(suffix, "seg") != 0 && strcmp(suffix, "new") != 0 && strcmp(suffix, "dead") != 0)
        return true;
    if (found->count == found->capacity) {
        const size_t capacity = found->capacity == 0 ? 64 : 2 * found->capacity;
        struct found_file *grown = realloc(found->items, capacity * sizeof(*found->items));
        if (grown == NULL) {
            found->out_of_memory = true;
            return false;
        }
        found->items = grown;
        found->capacity = capacity;
    }
    struct found_file *file = &found->items[found->count++];
    file->number = number;
    file->suffix = strcmp(suffix, "seg") == 0 ? "seg" : strcmp(suffix, "new") == 0 ? "new" : "dead";
    return true;
}

static bool open_one(struct store *store, uint64_t number, struct status *status)
{
    struct segment *segment = NULL;
    if (!segment_open(store->io, store->segments_directory, number, &segment, status)) {
        if (status->code != STATUS_DATA_LOSS)
            return false;
        struct log_text text;
        log_event(LOG_LEVEL_ERROR, "segment_unusable", "segment=%" PRIu64 " reason=%s", number,
                  log_quote(&text, status->message));
        metrics_add(store->metrics, METRIC_RECORDS_DAMAGED, 1);
        return true;
    }
    if (!segment_set_add(store->segments, segment, status)) {
        segment_free(segment);
        return false;
    }
    metrics_add(store->metrics, METRIC_SEGMENTS, 1);
    return true;
}

static bool open_segments(struct store *store, struct status *status)
{
    struct found_segments found = {0};
    bool ok = io_list(store->io, store->segments_directory, collect_segment, &found, status);
    bool removed = false;
    if (ok && found.out_of_memory)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of segments");
    for (size_t i = 0; ok && i < found.count; i++) {
        const struct found_file *file = &found.items[i];
        if (file->number >= store->next_segment_number)
            store->next_segment_number = file->number + 1;
        if (strcmp(file->suffix, "seg") == 0) {
            ok = open_one(store, file->number, status);
        } else { /* was being made, or removed, when the process ended */
            char path[SEGMENT_PATH_BYTES_MAX];
            segment_path(path, store->segments_directory, file->number, file->suffix);
            ok = io_unlink(store->io, path, status);
            removed = true;
        }
    }
    /* One that was evicted must not be back once somebody was told that its blobs are gone. */
    ok = ok && (!removed || io_sync_directory(store->io, store->segments_directory, status));
    free(found.items);
    return ok;
}

bool store_has_blob(struct store *store, const struct digest *digest)
{
    struct place place;
    return digest_is_empty_blob(digest) ||
           blob_table_get(store->table, blob_table_blob_key(store->table, digest), true, &place);
}

void store_has_blobs(struct store *store, const struct digest *digests, size_t count, bool *present)
{
    enum { BLOCK = 256 };
    struct blob_key keys[BLOCK];
    for (size_t from = 0; from < count; from += BLOCK) {
        const size_t block = count - from < BLOCK ? count - from : BLOCK;
        for (size_t i = 0; i < block; i++)
            keys[i] = blob_table_blob_key(store->table, &digests[from + i]);
        blob_table_get_many(store->table, keys, block, &present[from]);
        for (size_t i = 0; i < block; i++)
            present[from + i] = present[from + i] || digest_is_empty_blob(&digests[from + i]);
    }
}

/* <directory>/<name>, freed by the caller; NULL without memory. */
static char *join(const char *directory, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return NULL;
    return path;
}
