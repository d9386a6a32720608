/* SPDX-License-Identifier: Apache-2.0 */
#include "store/bucket_index.h"

#include <errno.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/index.h"

/* 40 million rows are 2.3 GB of files; 64 of them open, each with its filter (10 bits a row) in memory. */
enum {
    MEMTABLE_BYTES = 8 << 20,
    CACHE_BYTES = 16 << 20,
    OPEN_FILES_MAX = 64,
    FILTER_BITS = 10,
    SECONDS_OF_HOUR = 3600,
    KEY_BYTES_MAX = 1 + DIGEST_HASH_BYTES_MAX,
    NOTE_KEY_BYTES_MAX = 64,
    LOG_LEVEL_ABOVE_ALL_OF_ROCKSDB = 5,
    LOG_FILES = 1,
};

struct row_value {
    uint64_t pack;       /*  0 */
    uint64_t size;       /*  8 */
    uint32_t offset;     /* 16 */
    uint32_t since_hour; /* 20 */
};
static_assert(sizeof(struct row_value) == 24, "a value is 24 bytes on disk");

static const char place_key[] = "\0place";
enum { PLACE_KEY_BYTES = sizeof(place_key) - 1 };

struct bucket_index {
    rocksdb_t *db; /* owned, as the next */
    rocksdb_options_t *options;
    rocksdb_compactionfilter_t *filter;
    rocksdb_cache_t *cache;
    rocksdb_readoptions_t *read_options;
    rocksdb_writeoptions_t *write_options;
    rocksdb_flushoptions_t *flush_options;
    char *path; /* owned */
    int64_t keep_s;
    _Atomic bool damaged; /* it is made anew when it is opened next */
};

static bool make_folder(const char *path, struct status *status);
static bool open_at(const struct bucket_index_config *config,
                    struct bucket_index **index,
                    struct status *status);
static bool check_place(struct bucket_index *index, uint64_t place, struct status *status);
static rocksdb_options_t *make_options(struct bucket_index *index);
static unsigned char filter_row(void *state,
                                int level,
                                const char *key,
                                size_t key_length,
                                const char *value,
                                size_t value_length,
                                char **new_value,
                                size_t *new_value_length,
                                unsigned char *value_changed);
static const char *filter_name(void *state);
static void no_state(void *state);
static size_t make_key(char key[KEY_BYTES_MAX], const struct digest *digest);
static size_t make_note_key(char key[NOTE_KEY_BYTES_MAX], const char *name);
static bool fail_from(struct bucket_index *index,
                      char *error,
                      const char *doing,
                      struct status *status);

bool bucket_index_open(const struct bucket_index_config *config,
                       struct bucket_index **index,
                       struct status *status)
{
    struct log_text quoted;
    if (!make_folder(config->path, status))
        return false;
    if (open_at(config, index, status))
        return true;
    if (status->code == STATUS_RESOURCE_EXHAUSTED || status->code == STATUS_UNAVAILABLE)
        return false;
    log_event(LOG_LEVEL_WARN, "tier_index_made_anew", "reason=%s",
              log_quote(&quoted, status->message));
    *status = (struct status){0};
    return index_destroy(config->path, status) && open_at(config, index, status);
}

static bool make_folder(const char *path, struct status *status)
{
    char *const folder = strdup(path);
    if (folder == NULL)
        return status_fail_errno(status, ENOMEM, "index of the bucket");
    char *const slash = strrchr(folder, '/');
    bool ok = true;
    if (slash != NULL && slash != folder) {
        *slash = '\0';
        ok = mkdir(folder, 0700) == 0 || errno == EEXIST ||
             status_fail_errno(status, errno, "make %s", folder);
    }
    free(folder);
    return ok;
}

static bool open_at(const struct bucket_index_config *config,
                    struct bucket_index **index,
                    struct status *status)
{
    char *error = NULL;
    struct bucket_index *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "index of the bucket");
    made->path = strdup(config->path);
    if (made->path == NULL) {
        free(made);
        return status_fail_errno(status, ENOMEM, "index of the bucket");
    }
    made->keep_s = config->keep_s;
    made->filter = rocksdb_compactionfilter_create(made, no_state, filter_row, filter_name);
    made->cache = rocksdb_cache_create_lru(CACHE_BYTES);
    made->options = make_options(made);
    made->read_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(made->read_options, 1);
    made->write_options = rocksdb_writeoptions_create();
    made->flush_options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(made->flush_options, 1);
    made->db = rocksdb_open(made->options, config->path, &error);
    if (error != NULL)
        fail_from(made, error, "open the index of the bucket", status);
    if (made->db == NULL || !check_place(made, config->place, status)) {
        bucket_index_close(made);
        return false;
    }
    *index = made;
    return true;
}

/* DATA_LOSS: it is about another bucket. */
static bool check_place(struct bucket_index *index, uint64_t place, struct status *status)
{
    char *error = NULL;
    size_t length = 0;
    uint64_t found = 0;
    char *const value =
        rocksdb_get(index->db, index->read_options, place_key, PLACE_KEY_BYTES, &length, &error);
    if (error != NULL)
        return fail_from(index, error, "read the index of the bucket", status);
    if (value != NULL && length == sizeof(found))
        memcpy(&found, value, sizeof(found));
    const bool is_new = value == NULL && bucket_index_rows(index) == 0;
    rocksdb_free(value);
    if (!is_new && found != place)
        return status_fail(status, STATUS_DATA_LOSS, "it is about another bucket");
    if (is_new)
        rocksdb_put(index->db, index->write_options, place_key, PLACE_KEY_BYTES,
                    (const char *)&place, sizeof(place), &error);
    return error == NULL || fail_from(index, error, "write the index of the bucket", status);
}

static rocksdb_options_t *make_options(struct bucket_index *index)
{
    enum { TABLE_FORMAT_VERSION = 5 };
    rocksdb_options_t *const options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_compaction_filter(options, index->filter);
    rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_max_background_jobs(options, 2);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_max_open_files(options, OPEN_FILES_MAX);
    rocksdb_options_set_max_file_opening_threads(options, 1);
    rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression); /* hashes do not */
    rocksdb_options_set_info_log_level(options, LOG_LEVEL_ABOVE_ALL_OF_ROCKSDB);
    rocksdb_options_set_keep_log_file_num(options, LOG_FILES);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_stats_persist_period_sec(options, 0);
    rocksdb_block_based_table_options_t *const table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_format_version(table, TABLE_FORMAT_VERSION);
    rocksdb_block_based_options_set_block_cache(table, index->cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_filter_policy(
        table, rocksdb_filterpolicy_create_bloom_full(FILTER_BITS)); /* the table's from here */
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
    return options;
}

void bucket_index_close(struct bucket_index *index)
{
    struct status status = {0};
    struct log_text quoted;
    if (index == NULL)
        return;
    if (index->db != NULL) {
        if (!atomic_load(&index->damaged) && !bucket_index_flush(index, &status))
            log_event(LOG_LEVEL_WARN, "tier_index_not_written", "reason=%s",
                      log_quote(&quoted, status.message));
        rocksdb_close(index->db);
        /* A compaction, or a read, has met a damaged file: it would again. */
        if (atomic_load(&index->damaged) && !index_destroy(index->path, &status))
            log_event(LOG_LEVEL_WARN, "tier_index_not_written", "reason=%s",
                      log_quote(&quoted, status.message));
    }
    free(index->path);
    rocksdb_flushoptions_destroy(index->flush_options);
    rocksdb_writeoptions_destroy(index->write_options);
    rocksdb_readoptions_destroy(index->read_options);
    rocksdb_options_destroy(index->options);
    rocksdb_cache_destroy(index->cache);
    rocksdb_compactionfilter_destroy(index->filter);
    free(index);
}

/* ---- rows */

bool bucket_index_put(struct bucket_index *index,
                      const struct bucket_row *rows,
                      size_t count,
                      struct status *status)
{
    char *error = NULL;
    char key[KEY_BYTES_MAX];
    rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
    for (size_t i = 0; i < count; i++) {
        const int64_t hour = rows[i].since_s / SECONDS_OF_HOUR;
        const struct row_value value = {.pack = rows[i].pack,
                                        .size = (uint64_t)rows[i].digest.size_bytes,
                                        .offset = rows[i].offset,
                                        .since_hour = hour > 0 ? (uint32_t)hour : 0};
        const size_t length = make_key(key, &rows[i].digest);
        rocksdb_writebatch_put(batch, key, length, (const char *)&value, sizeof(value));
    }
    rocksdb_write(index->db, index->write_options, batch, &error);
    rocksdb_writebatch_destroy(batch);
    return error == NULL || fail_from(index, error, "write the index of the bucket", status);
}

bool bucket_index_drop(struct bucket_index *index,
                       const struct digest *digest,
                       struct status *status)
{
    char *error = NULL;
    char key[KEY_BYTES_MAX];
    const size_t length = make_key(key, digest);
    rocksdb_delete(index->db, index->write_options, key, length, &error);
    return error == NULL || fail_from(index, error, "write the index of the bucket", status);
}

bool bucket_index_get(struct bucket_index *index,
                      const struct digest *digest,
                      struct bucket_row *row,
                      struct status *status)
{
    char *error = NULL;
    char key[KEY_BYTES_MAX];
    struct row_value value = {0};
    size_t value_length = 0;
    const size_t length = make_key(key, digest);
    rocksdb_pinnableslice_t *const found =
        rocksdb_get_pinned(index->db, index->read_options, key, length, &error);
    if (error != NULL)
        return fail_from(index, error, "read the index of the bucket", status);
    if (found == NULL)
        return false;
    const char *const data = rocksdb_pinnableslice_value(found, &value_length);
    const bool sound = value_length == sizeof(value);
    if (sound)
        memcpy(&value, data, sizeof(value));
    rocksdb_pinnableslice_destroy(found);
    if (!sound || value.size > INT64_MAX)
        return status_fail(status, STATUS_DATA_LOSS,
                           "the index of the bucket has a row of %zu bytes", value_length);
    *row = (struct bucket_row){.digest = *digest,
                               .pack = value.pack,
                               .offset = value.offset,
                               .since_s = (int64_t)value.since_hour * SECONDS_OF_HOUR};
    row->digest.size_bytes = (int64_t)value.size;
    return true;
}

bool bucket_index_sync(struct bucket_index *index, struct status *status)
{
    char *error = NULL;
    rocksdb_flush_wal(index->db, 1, &error);
    return error == NULL || fail_from(index, error, "sync the index of the bucket", status);
}

bool bucket_index_flush(struct bucket_index *index, struct status *status)
{
    char *error = NULL;
    rocksdb_flush(index->db, index->flush_options, &error);
    return error == NULL || fail_from(index, error, "flush the index of the bucket", status);
}

uint64_t bucket_index_rows(struct bucket_index *index)
{
    uint64_t rows = 0;
    if (rocksdb_property_int(index->db, "rocksdb.estimate-num-keys", &rows) != 0)
        return 0;
    return rows;
}

static size_t make_key(char key[KEY_BYTES_MAX], const struct digest *digest)
{
    ASSERT(digest->function != 0 && digest->hash_length > 0);
    key[0] = (char)digest->function;
    memcpy(key + 1, digest->hash, digest->hash_length);
    return 1 + (size_t)digest->hash_length;
}

/* ---- notes */

bool bucket_index_set_note(struct bucket_index *index,
                           const char *name,
                           const char *text,
                           struct status *status)
{
    char *error = NULL;
    char key[NOTE_KEY_BYTES_MAX];
    const size_t length = make_note_key(key, name);
    ASSERT(strlen(text) < BUCKET_INDEX_NOTE_BYTES_MAX);
    rocksdb_put(index->db, index->write_options, key, length, text, strlen(text), &error);
    return error == NULL || fail_from(index, error, "write the index of the bucket", status);
}

void bucket_index_note(struct bucket_index *index,
                       const char *name,
                       char text[BUCKET_INDEX_NOTE_BYTES_MAX])
{
    char *error = NULL;
    char key[NOTE_KEY_BYTES_MAX];
    size_t value_length = 0;
    const size_t length = make_note_key(key, name);
    char *const value =
        rocksdb_get(index->db, index->read_options, key, length, &value_length, &error);
    rocksdb_free(error); /* then nothing is known, as at the beginning */
    text[0] = '\0';
    if (value != NULL && value_length < BUCKET_INDEX_NOTE_BYTES_MAX) {
        memcpy(text, value, value_length);
        text[value_length] = '\0';
    }
    rocksdb_free(value);
}

static size_t make_note_key(char key[NOTE_KEY_BYTES_MAX], const char *name)
{
    key[0] = '\0';
    const int length = snprintf(key + 1, NOTE_KEY_BYTES_MAX - 1, "note:%s", name);
    ASSERT(length > 0 && length < NOTE_KEY_BYTES_MAX - 1);
    return 1 + (size_t)length;
}

/* ---- what is old goes when files are written anew; on RocksDB's threads */

static unsigned char filter_row(void *state,
                                int level,
                                const char *key,
                                size_t key_length,
                                const char *value,
                                size_t value_length,
                                char **new_value,
                                size_t *new_value_length,
                                unsigned char *value_changed)
{
    const struct bucket_index *const index = state;
    struct row_value row;
    (void)level;
    (void)new_value;
    (void)new_value_length;
    *value_changed = 0;
    if (index->keep_s == 0 || key_length == 0 || key[0] == '\0' || value_length != sizeof(row))
        return 0;
    memcpy(&row, value, sizeof(row));
    const int64_t age_s =
        clock_wall_ns(clock_real()) / NS_PER_S - (int64_t)row.since_hour * SECONDS_OF_HOUR;
    return age_s > index->keep_s;
}

static const char *filter_name(void *state)
{
    (void)state;
    return "varve.bucket";
}

static void no_state(void *state)
{
    (void)state;
}

/* Frees error; returns false. */
static bool fail_from(struct bucket_index *index,
                      char *error,
                      const char *doing,
                      struct status *status)
{
    const bool full = strstr(error, "No space left on device") != NULL ||
                      strstr(error, "Disk quota exceeded") != NULL ||
                      strstr(error, "Too many open files") != NULL ||
                      strstr(error, "Cannot allocate memory") != NULL;
    const bool held = strstr(error, "lock hold by current process") != NULL ||
                      strstr(error, "While lock file") != NULL;
    status_fail(status,
                full   ? STATUS_RESOURCE_EXHAUSTED
                : held ? STATUS_UNAVAILABLE
                       : STATUS_DATA_LOSS,
                "%s: %s", doing, error);
    if (!full && !held)
        atomic_store(&index->damaged, true);
    rocksdb_free(error);
    return false;
}
