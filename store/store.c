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
#include "store/find.h"
#include "store/use_file.h"

static bool set_sizes(struct store *store,
                      const struct store_config *config,
                      struct status *status);
static uint64_t suitable_segment_bytes(uint64_t chosen_bytes,
                                       uint64_t usable_bytes,
                                       uint64_t at_most);
static bool prepare_directory(struct store *store, struct status *status);
static bool look_into_directory(struct store *store, struct status *status);
static bool sync_parent(struct store *store, struct status *status);
static bool check_format(struct store *store, struct status *status);
static bool recreate_format(struct store *store, struct status *status);
static bool node_uid_of_segments(struct store *store, struct status *status);
static bool is_begun(struct store *store, struct status *status);
static bool is_empty(struct store *store, struct status *status);
static bool new_node_uid(struct store *store, struct status *status);
static bool parse_number(const char **text, int base, uint64_t *number);
static bool open_segments(struct store *store, struct status *status);
static char *join(const char *directory, const char *name);

bool store_open(const struct store_config *config, struct store **store, struct status *status)
{
    struct store *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a store");
    cold_index_init(&opened->cold);
    lock_init(&opened->forget_lock, LOCK_RANK_LEAF);
    condition_init(&opened->forgets_answered);
    lock_init(&opened->write_time_lock, LOCK_RANK_LEAF);
    lock_init(&opened->unreadable_lock, LOCK_RANK_LEAF);
    opened->io = config->io;
    opened->clock = config->clock;
    opened->metrics = config->metrics;
    opened->buffers = config->buffers;
    opened->access = config->access;
    opened->lock_fd = -1;
    opened->vouch_ns = config->vouch_ns;
    opened->scrub_bytes_per_s = config->scrub_bytes_per_s;
    opened->next_segment_number = 1;
    opened->directory = strdup(config->directory);
    opened->segments_directory = join(config->directory, "segments");
    bool ok = opened->directory != NULL && opened->segments_directory != NULL;
    if (!ok)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a store");
    ok = ok && segment_set_new(&opened->segments, status) &&
         blob_table_new(&opened->table, status) &&
         evicted_new(clock_wall_ns(config->clock), &opened->evicted, status) &&
         (opened->access == STORE_READ_ONLY ? look_into_directory(opened, status)
                                            : prepare_directory(opened, status)) &&
         set_sizes(opened, config, status) && open_segments(opened, status);
    if (!ok) {
        store_close(opened);
        status_prefix(status, "open store %s", config->directory);
        return false;
    }
    *store = opened;
    return true;
}

static bool set_sizes(struct store *store, const struct store_config *config, struct status *status)
{
    struct io_space disk;
    if (!io_space(store->io, store->segments_directory, &disk, status))
        return false;
    uint64_t usable = config->capacity_bytes;
    if (usable == 0 && disk.total_bytes > config->reserve_bytes)
        usable = disk.total_bytes - config->reserve_bytes;
    const uint64_t small =
        suitable_segment_bytes(config->segment_bytes[LANE_SMALL], usable, 256 * MIB);
    const uint64_t large = suitable_segment_bytes(config->segment_bytes[LANE_LARGE], usable, GIB);
    const bool is_bounded = store->access != STORE_READ_ONLY &&
                            (config->capacity_bytes != 0 || config->reserve_bytes != 0);
    const uint64_t needed = STORE_SEGMENTS_MIN * (small + large);
    if (is_bounded && usable < needed)
        return status_fail(
            status, STATUS_INVALID_ARGUMENT,
            "%" PRIu64
            " bytes (of the capacity, or of the disk without what is kept free) are too few for "
            "segments of %" PRIu64 " and %" PRIu64 " bytes: %" PRIu64 " are needed",
            usable, small, large, needed);
    metrics_set(store->metrics, METRIC_CAPACITY_BYTES, (int64_t)config->capacity_bytes);
    store->segment_bytes[LANE_SMALL] = small;
    store->segment_bytes[LANE_LARGE] = large;
    store->space = (struct space){
        .io = store->io,
        .segments = store->segments,
        .directory = store->segments_directory,
        .capacity_bytes = config->capacity_bytes,
        .reserve_bytes = config->reserve_bytes,
        .headroom_bytes = small > large ? small : large, /* for what one eviction moves */
    };
    /* Without the headroom, two segments of each lane, and what headers and footers take. */
    store->blob_bytes_max =
        is_bounded ? (usable - store->space.headroom_bytes - 2 * small - 2 * large) / 64 * 63
                   : UINT64_MAX;
    return true;
}

/* What is evicted at once should be a small part of the whole: 64 segments at least. */
static uint64_t suitable_segment_bytes(uint64_t chosen_bytes,
                                       uint64_t usable_bytes,
                                       uint64_t at_most)
{
    if (chosen_bytes != 0)
        return chosen_bytes;
    if (usable_bytes / 64 >= at_most)
        return at_most;
    const uint64_t part = usable_bytes / 64 / MIB * MIB;
    return part > SEGMENT_BYTES_MIN ? part : SEGMENT_BYTES_MIN;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    for (size_t lane = 0; lane < LANE_COUNT; lane++)
        segment_log_free(store->logs[lane]);
    blob_table_free(store->table);
    evicted_free(store->evicted);
    segment_set_free(store->segments);
    cold_index_destroy(&store->cold);
    free(store->forgets_seen);
    condition_destroy(&store->forgets_answered);
    lock_destroy(&store->forget_lock);
    lock_destroy(&store->write_time_lock);
    lock_destroy(&store->unreadable_lock);
    io_close(store->io, store->lock_fd);
    use_file_free(store->uses);
    free(store->younger);
    free(store->unusable);
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

/* Makes nothing but a LOCK, and that only where a store is. */
static bool look_into_directory(struct store *store, struct status *status)
{
    struct store_file *files = NULL;
    size_t count = 0;
    struct format_file format;
    char *lock_path = join(store->directory, "LOCK");
    bool ok =
        lock_path != NULL || status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    ok = ok && format_file_read(store->io, store->directory, &format, status) &&
         store_list_files(store, &files, &count, status);
    if (ok && format.state != FORMAT_FILE_SOUND && count == 0)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "there is no varve store");
    ok =
        ok && io_lock(store->io, lock_path, &store->lock_fd, status) && check_format(store, status);
    free(files);
    free(lock_path);
    return ok;
}

static bool check_format(struct store *store, struct status *status)
{
    struct format_file format;
    if (!format_file_read(store->io, store->directory, &format, status))
        return false;
    store->format = format.state;
    if (format.state == FORMAT_FILE_SOUND) {
        store->node_uid = format.node_uid;
        return format.version == FORMAT_VERSION ||
               status_fail(status, STATUS_FAILED_PRECONDITION,
                           "the store has format version %u, this program knows %d", format.version,
                           FORMAT_VERSION);
    }
    if (!node_uid_of_segments(store, status))
        return false;
    return store->access == STORE_READ_ONLY || recreate_format(store, status);
}

/* FORMAT is damaged or absent, and node_uid is that of the segments, or 0 when there are none. */
static bool recreate_format(struct store *store, struct status *status)
{
    const bool found = store->node_uid != 0;
    if (!found &&
        !(store->format == FORMAT_FILE_ABSENT ? is_empty(store, status) : is_begun(store, status)))
        return false;
    if (!found && !new_node_uid(store, status))
        return false;
    if (store->format == FORMAT_FILE_DAMAGED || found)
        log_event(LOG_LEVEL_WARN, "format_recreated", "node_uid=%016" PRIx64 " reason=\"%s\"",
                  store->node_uid,
                  store->format == FORMAT_FILE_DAMAGED ? "the file FORMAT is damaged"
                                                       : "the file FORMAT is gone");
    return format_file_write(store->io, store->directory, store->node_uid, status);
}

/* What the newest segment says whose header can be read; 0 when there is none. */
static bool node_uid_of_segments(struct store *store, struct status *status)
{
    struct store_file *files = NULL;
    size_t count = 0;
    struct status why;
    if (!store_list_files(store, &files, &count, status))
        return false;
    store->node_uid = 0;
    for (size_t i = count; i > 0 && store->node_uid == 0; i--) {
        struct segment *segment = NULL;
        if (strcmp(files[i - 1].suffix, "seg") != 0 ||
            !segment_open(store->io, store->segments_directory, files[i - 1].number, &segment,
                          &why))
            continue;
        store->node_uid = segment->node_uid;
        segment_free(segment);
    }
    free(files);
    return true;
}

static bool other_file(void *argument, const char *name)
{
    bool *found = argument;
    if (strcmp(name, "LOCK") != 0 && strcmp(name, "FORMAT.new") != 0 &&
        strcmp(name, "lost+found") != 0)
        *found = true;
    return !*found;
}

/* A store may be made there. */
static bool is_empty(struct store *store, struct status *status)
{
    bool found = false;
    if (!io_list(store->io, store->directory, other_file, &found, status))
        return false;
    return !found ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "the directory is not empty and has no FORMAT file: it is no varve store");
}

static bool strange_file(void *argument, const char *name)
{
    static const char *const ours[] = {"LOCK",     "FORMAT",    "FORMAT.new", "segments",
                                       "index",    "scrub",     "scrub.new",  "uses",
                                       "uses.new", "lost+found"};
    bool *found = argument;
    for (size_t i = 0; i < ARRAY_LENGTH(ours); i++) {
        if (strcmp(name, ours[i]) == 0)
            return true;
    }
    *found = true;
    return false;
}

/* A store was made there, and nothing is in it yet. */
static bool is_begun(struct store *store, struct status *status)
{
    struct store_file *files = NULL;
    size_t count = 0;
    bool found = false;
    if (!io_list(store->io, store->directory, strange_file, &found, status) ||
        !store_list_files(store, &files, &count, status))
        return false;
    free(files);
    return (count == 0 && !found) ||
           status_fail(status, STATUS_DATA_LOSS,
                       "the file FORMAT is damaged, and no segment says whose store this is; "
                       "`varve fsck %s` tells what can be read",
                       store->directory);
}

static bool new_node_uid(struct store *store, struct status *status)
{
    while (store->node_uid == 0) { /* which stands for unknown */
        if (getrandom(&store->node_uid, sizeof(store->node_uid), 0) !=
            (ssize_t)sizeof(store->node_uid))
            return status_fail(status, STATUS_INTERNAL, "getrandom");
    }
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
struct found_files {
    struct store_file *items;
    size_t count, capacity;
    bool out_of_memory;
};

static bool collect_file(void *argument, const char *name)
{
    struct found_files *found = argument;
    uint64_t number = 0;
    const char *suffix = name;
    if (!parse_number(&suffix, 16, &number) || suffix != name + 16 || *suffix++ != '.' ||
        number == 0 || number > SEGMENT_NUMBER_MAX)
        return true; /* not ours; left alone */
    if (strcmp(suffix, "seg") != 0 && strcmp(suffix, "new") != 0 && strcmp(suffix, "dead") != 0)
        return true;
    if (found->count == found->capacity) {
        const size_t capacity = found->capacity == 0 ? 64 : 2 * found->capacity;
        struct store_file *grown = realloc(found->items, capacity * sizeof(*found->items));
        if (grown == NULL) {
            found->out_of_memory = true;
            return false;
        }
        found->items = grown;
        found->capacity = capacity;
    }
    struct store_file *file = &found->items[found->count++];
    file->number = number;
    file->suffix = strcmp(suffix, "seg") == 0 ? "seg" : strcmp(suffix, "new") == 0 ? "new" : "dead";
    return true;
}

static int by_number(const void *a, const void *b)
{
    const struct store_file *first = a;
    const struct store_file *second = b;
    return (first->number > second->number) - (first->number < second->number);
}

bool store_list_files(struct store *store,
                      struct store_file **files,
                      size_t *count,
                      struct status *status)
{
    struct found_files found = {0};
    struct status why;
    if (!io_list(store->io, store->segments_directory, collect_file, &found, &why) &&
        why.code != STATUS_NOT_FOUND) {
        free(found.items);
        *status = why;
        return false;
    }
    if (found.out_of_memory) {
        free(found.items);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of segments");
    }
    if (found.count > 0)
        qsort(found.items, found.count, sizeof(*found.items), by_number);
    *files = found.items;
    *count = found.count;
    return true;
}

static bool leave_out(struct store *store, uint64_t number, struct status *status)
{
    uint64_t *grown = realloc(store->unusable, (store->unusable_count + 1) * sizeof(*grown));
    if (grown == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of segments");
    grown[store->unusable_count++] = number;
    store->unusable = grown;
    return true;
}

bool store_left_out(const struct store *store, uint64_t segment)
{
    for (size_t i = 0; i < store->unusable_count; i++) {
        if (store->unusable[i] == segment)
            return true;
    }
    return false;
}

/* *unreadable: how many so far are left out because the disk does not read them. */
static bool open_one(struct store *store,
                     uint64_t number,
                     size_t *unreadable,
                     struct status *status)
{
    struct segment *segment = NULL;
    if (!segment_open(store->io, store->segments_directory, number, &segment, status)) {
        if (status->code != STATUS_DATA_LOSS && status->code != STATUS_UNAVAILABLE)
            return false;
        *unreadable += status->code == STATUS_UNAVAILABLE;
        if (store->access == STORE_READ_ONLY)
            return true;
        struct log_text text;
        log_event(LOG_LEVEL_ERROR, "segment_unusable", "segment=%" PRIu64 " reason=%s", number,
                  log_quote(&text, status->message));
        metrics_add(store->metrics, METRIC_RECORDS_DAMAGED, 1);
        return leave_out(store, number, status);
    }
    if (segment->header_damaged && store->access == STORE_READ_WRITE) {
        log_event(LOG_LEVEL_WARN, "segment_header_damaged", "segment=%" PRIu64 " from=\"%s\"",
                  number, segment->node_uid != 0 ? "a sound copy" : "the footer");
        metrics_add(store->metrics, METRIC_RECORDS_DAMAGED, 1);
    }
    if (!segment_set_add(store->segments, segment, 0, status)) {
        segment_free(segment);
        return false;
    }
    segment->counted_bytes =
        segment->file_bytes < segment->capacity_bytes ? segment->file_bytes : 0;
    metrics_add(store->metrics, METRIC_SEGMENT_BYTES, (int64_t)segment->counted_bytes);
    metrics_add(store->metrics, METRIC_SEGMENTS, 1);
    return true;
}

static bool open_segments(struct store *store, struct status *status)
{
    struct store_file *files = NULL;
    size_t count = 0;
    bool removed = false;
    size_t segments = 0;
    size_t unreadable = 0;
    bool ok = store_list_files(store, &files, &count, status);
    for (size_t i = 0; ok && i < count; i++) {
        const struct store_file *file = &files[i];
        if (file->number >= store->next_segment_number)
            store->next_segment_number = file->number + 1;
        if (strcmp(file->suffix, "seg") == 0) {
            segments++;
            ok = open_one(store, file->number, &unreadable, status);
        } else if (store->access ==
                   STORE_READ_WRITE) { /* was being made, or removed, when the process ended */
            char path[SEGMENT_PATH_BYTES_MAX];
            segment_path(path, store->segments_directory, file->number, file->suffix);
            ok = io_unlink(store->io, path, status);
            removed = true;
        }
    }
    /* That is no damage to some of it: the disk is not there, or nearly gone. */
    if (ok && segments > 0 && unreadable == segments)
        ok = status_fail(status, STATUS_UNAVAILABLE, "none of its %zu segments can be read",
                         segments);
    /* One that was evicted must not be back once somebody was told that its blobs are gone. */
    ok = ok && (!removed || io_sync_directory(store->io, store->segments_directory, status));
    free(files);
    return ok;
}

bool store_is_in_memory(const struct store *store)
{
    return !blob_table_is_loading(store->table);
}

bool store_has_blob(struct store *store, const struct digest *digest)
{
    struct place place;
    return digest_is_empty_blob(digest) || store_find_blob(store, digest, FIND_AND_TOUCH, &place);
}

void store_has_blobs(struct store *store, const struct digest *digests, size_t count, bool *present)
{
    enum { BLOCK = 256 };
    struct blob_key keys[BLOCK];
    /* Asked first: if it is over by then, the table is complete. */
    const bool loading = blob_table_is_loading(store->table);
    for (size_t from = 0; from < count; from += BLOCK) {
        const size_t block = count - from < BLOCK ? count - from : BLOCK;
        for (size_t i = 0; i < block; i++)
            keys[i] = blob_table_blob_key(store->table, &digests[from + i]);
        blob_table_get_many(store->table, keys, block, &present[from]);
        for (size_t i = 0; i < block; i++)
            present[from + i] = present[from + i] || digest_is_empty_blob(&digests[from + i]) ||
                                (loading && store_has_blob(store, &digests[from + i]));
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
