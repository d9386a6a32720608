/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one file that knows RocksDB (7.8.3 through its C API). docs/decisions/0002-index-memtable.md
 * says why the memtable is a vector, why there are no Bloom filters and why a forget is a merge
 * operand: all because hardly anything is ever looked up by key. 0005-start-before-the-index.md says
 * when it is.
 */
#include "store/index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * Entries of some 90 bytes: 350,000 a memtable. Larger ones take longer to sort and flush, which a
 * write may have to wait for.
 */
#define MEMTABLE_BYTES (32 * MIB)
/*
 * A write waits while more than these are full and not yet flushed. It may itself find the current
 * one full and so add one: 3, and the current one, are 128 MiB at most.
 */
enum { MEMTABLES_WAITING_MAX = 2 };
/*
 * RocksDB's own limit: it delays writes when all but one of these wait, which is one more than ever
 * do.
 */
enum { MEMTABLES_MAX = MEMTABLES_WAITING_MAX + 3 };
/* For a memtable to be flushed before a write is given up: a disk that takes longer is broken. */
enum { ROOM_WAIT_STEP_MS = 2, ROOM_WAIT_MS_MAX = 30000 };
/* One table file, and so the piece that a compaction writes at a time. */
#define TABLE_FILE_BYTES (64 * MIB)
/*
 * 32 GiB of table files, that is some 400 million entries, can be open at once; beyond it files are
 * opened anew when read.
 */
enum { OPEN_FILES_MAX = 512 };
/*
 * Nothing reads by key, so a level 0 of many files costs little, and a write must not wait for a
 * compaction.
 */
enum { LEVEL0_FILES_STALL = 1 << 20 };
/* What an iteration reads at a time. */
#define READAHEAD_BYTES (2 * MIB)
#define BLOCK_BYTES (16 * KIB)
/*
 * RocksDB's own log stays empty. Else a disk that is full or read-only would end the process: once a
 * line could not be written, the next one fails an assertion, which Debian's build has on. What
 * matters comes back as the error of a call anyway.
 */
enum { LOG_LEVEL_ABOVE_ALL_OF_ROCKSDB = 5, LOG_FILES = 1 };
#define MANIFEST_FILE_BYTES (16 * MIB)
#define MANIFEST_STEP_BYTES (64 * KIB)
#define SYNC_STEP_BYTES (1 * MIB)
/* index_destroy() goes so deep; RocksDB makes no folders in its own. */
enum { DESTROY_DEPTH_MAX = 4 };

/*
 * Not in memtables, where a read copies and sorts a vector: what was there at the start is in files.
 */
enum { READ_TIER_PERSISTED = 2 };

enum { KIND_BLOB = 'b', KIND_ACTION = 'a' };

/* Kind and function, hash, instance (a record on disk can name one of 65,535 bytes). */
enum { KEY_HEAD_BYTES = 2, KEY_BYTES_MAX = KEY_HEAD_BYTES + DIGEST_HASH_BYTES_MAX + UINT16_MAX };

/* Below every entry's key. */
static const char checkpoint_key[] = "\0checkpoint";
enum { CHECKPOINT_KEY_BYTES = sizeof(checkpoint_key) - 1 };
static const char first_entry_key[] = {1};

struct index_value {
    uint64_t place;         /*  0: place_pack(); 0: forgotten, as if it were not there */
    uint64_t blob_size;     /*  8 */
    uint64_t payload_bytes; /* 16 */
    uint8_t kind;           /* 24: enum record_kind */
    uint8_t reserved[7];    /* 25 */
};
static_assert(sizeof(struct index_value) == 32, "a value is 32 bytes on disk");
static_assert(offsetof(struct index_value, kind) == 24, "no gaps");

struct checkpoint_value {
    struct {
        uint64_t segment;
        uint64_t offset;
        uint64_t seq;
    } lanes[LANE_COUNT];
};
static_assert(sizeof(struct checkpoint_value) == (size_t)24 * LANE_COUNT,
              "24 bytes a lane on disk");

struct index {
    /* Set by index_open(), never changed; owned. */
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_compactionfilter_t *filter;
    rocksdb_readoptions_t *read_options;
    rocksdb_readoptions_t *get_options;
    rocksdb_writeoptions_t *write_options;
    rocksdb_flushoptions_t *flush_options;
    bool read_only;

    /* Of the one thread that calls. */
    rocksdb_writebatch_t *batch; /* owned; empty between calls */
    bool failed;                 /* a write or a flush has failed; never goes back to false */
    char key[KEY_BYTES_MAX];     /* scratch */

    /* Read by compactions on RocksDB's threads. */
    _Atomic uint64_t *dead; /* owned; a bit a segment number */
};

static bool look_at_directory(const char *path, bool *is_new, struct status *status);
static bool make_index(bool is_new, struct index **index, struct status *status);
static bool opened(struct index *made, char *error, struct index **index, struct status *status);
static rocksdb_options_t *make_options(rocksdb_compactionfilter_t *filter, bool is_new);
static void use_plain_tables(rocksdb_options_t *options);
static unsigned char filter_entry(void *state,
                                  int level,
                                  const char *key,
                                  size_t key_length,
                                  const char *value,
                                  size_t value_length,
                                  char **new_value,
                                  size_t *new_value_length,
                                  unsigned char *value_changed);
static const char *filter_name(void *state);
static rocksdb_mergeoperator_t *make_forgetter(void);
static char *forget_in_full(void *state,
                            const char *key,
                            size_t key_length,
                            const char *existing,
                            size_t existing_length,
                            const char *const *operands,
                            const size_t *operand_lengths,
                            int count,
                            unsigned char *success,
                            size_t *result_length);
static char *forget_in_part(void *state,
                            const char *key,
                            size_t key_length,
                            const char *const *operands,
                            const size_t *operand_lengths,
                            int count,
                            unsigned char *success,
                            size_t *result_length);
static void keep_value(void *state, const char *value, size_t value_length);
static const char *forgetter_name(void *state);
static void no_state(void *state);
static bool remove_tree(int parent, const char *name, int depth, struct status *status);
static bool remove_children(DIR *directory, int depth, struct status *status);
static bool wait_for_room(struct index *index, struct status *status);
static uint64_t property(struct index *index, const char *name);
static void add_entry(struct index *index, const struct index_entry *entry);
static size_t make_key(char *key, const struct index_entry *entry);
static void add_checkpoint(struct index *index, const struct index_checkpoint *checkpoint);
static bool read_entry(struct bytes key,
                       struct bytes value,
                       struct index_entry *entry,
                       bool *forgotten);
static size_t hash_bytes_of(uint8_t function);
static bool fail_unknown(struct bytes key, struct bytes value, struct status *status);
static bool fail_from(char *error, const char *doing, struct status *status);
static enum status_code code_of(const char *error);

/* ---- opening and closing */

bool index_open(const char *path, struct index **index, struct status *status)
{
    bool is_new = false;
    struct index *made = NULL;
    char *error = NULL;
    if (!look_at_directory(path, &is_new, status) || !make_index(is_new, &made, status))
        return false;
    made->db = rocksdb_open(made->options, path, &error);
    return opened(made, error, index, status);
}

bool index_open_read_only(const char *path, struct index **index, struct status *status)
{
    bool is_new = false;
    struct index *made = NULL;
    char *error = NULL;
    if (!look_at_directory(path, &is_new, status))
        return false;
    if (is_new)
        return status_fail(status, STATUS_NOT_FOUND, "there is no index");
    if (!make_index(false, &made, status))
        return false;
    made->read_only = true;
    made->db = rocksdb_open_for_read_only(made->options, path, 0, &error);
    return opened(made, error, index, status);
}

static bool make_index(bool is_new, struct index **index, struct status *status)
{
    struct index *made = calloc(1, sizeof(*made));
    _Atomic uint64_t *dead = calloc(SEGMENT_NUMBER_MAX / 64 + 1, sizeof(*dead));
    if (made == NULL || dead == NULL) {
        free(made);
        free((void *)(uintptr_t)dead);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the index");
    }
    made->dead = dead;
    made->filter = rocksdb_compactionfilter_create(made, no_state, filter_entry, filter_name);
    made->options = make_options(made->filter, is_new);
    made->read_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(made->read_options, 1);
    rocksdb_readoptions_set_fill_cache(made->read_options, 0);
    rocksdb_readoptions_set_readahead_size(made->read_options, READAHEAD_BYTES);
    made->get_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(made->get_options, 1);
    rocksdb_readoptions_set_fill_cache(made->get_options, 0);
    rocksdb_readoptions_set_read_tier(made->get_options, READ_TIER_PERSISTED);
    made->write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(made->write_options, 1);
    rocksdb_writeoptions_set_no_slowdown(made->write_options, 1);
    made->flush_options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(made->flush_options, 1);
    made->batch = rocksdb_writebatch_create();
    *index = made;
    return true;
}

/* Frees error, and what was made if there is one. */
static bool opened(struct index *made, char *error, struct index **index, struct status *status)
{
    if (error != NULL) {
        fail_from(error, "open the index", status);
        index_close(made);
        return false;
    }
    *index = made;
    return true;
}

/*
 * Whether RocksDB may make a new database there. In a directory with files it may not: without its
 * file CURRENT it would take them for nothing and delete them, where somebody should know that the
 * index was damaged.
 */
static bool look_at_directory(const char *path, bool *is_new, struct status *status)
{
    DIR *directory = opendir(path);
    if (directory == NULL && errno == ENOENT) {
        *is_new = true;
        return true;
    }
    if (directory == NULL)
        return status_fail_errno(status, errno, "open the index's directory %s", path);
    const struct dirent *entry;
    bool is_empty = true;
    errno = 0;
    while (is_empty && (entry = readdir(directory)) != NULL)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    const int error_number = errno;
    closedir(directory);
    if (is_empty && error_number != 0)
        return status_fail_errno(status, error_number, "read the index's directory %s", path);
    *is_new = is_empty;
    return true;
}

static rocksdb_options_t *make_options(rocksdb_compactionfilter_t *filter, bool is_new)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, is_new);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_compaction_filter(options, filter);
    rocksdb_options_set_merge_operator(options, make_forgetter());
    use_plain_tables(options);

    /*
     * A vector is filled by one writer; the order of flushes, which the checkpoint relies on, is
     * that of one flush thread.
     */
    rocksdb_options_set_memtable_vector_rep(options);
    rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
    rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES);
    rocksdb_options_set_max_write_buffer_number(options, MEMTABLES_MAX);
    rocksdb_options_set_max_background_jobs(options, 2);

    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_target_file_size_base(options, TABLE_FILE_BYTES);
    rocksdb_options_set_level0_slowdown_writes_trigger(options, LEVEL0_FILES_STALL);
    rocksdb_options_set_level0_stop_writes_trigger(options, LEVEL0_FILES_STALL);
    rocksdb_options_set_soft_pending_compaction_bytes_limit(options, 0);
    rocksdb_options_set_hard_pending_compaction_bytes_limit(options, 0);

    rocksdb_options_set_max_open_files(options, OPEN_FILES_MAX);
    rocksdb_options_set_max_file_opening_threads(options, 1);
    rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
    rocksdb_options_set_bytes_per_sync(options, SYNC_STEP_BYTES);
    rocksdb_options_set_max_manifest_file_size(options, MANIFEST_FILE_BYTES);
    rocksdb_options_set_manifest_preallocation_size(options, MANIFEST_STEP_BYTES);

    rocksdb_options_set_info_log_level(options, LOG_LEVEL_ABOVE_ALL_OF_ROCKSDB);
    rocksdb_options_set_keep_log_file_num(options, LOG_FILES);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_stats_persist_period_sec(options, 0);
    return options;
}

/* Read only from one end to the other: no cache, no filters. Hashes do not compress. */
static void use_plain_tables(rocksdb_options_t *options)
{
    enum { TABLE_FORMAT_VERSION = 5 };
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_format_version(table, TABLE_FORMAT_VERSION);
    rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
    rocksdb_block_based_options_set_no_block_cache(table, 1);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
}

void index_close(struct index *index)
{
    if (index == NULL)
        return;
    struct status status = {0};
    struct log_text text;
    if (index->db != NULL && !index->read_only && !index_is_broken(index) &&
        !index_flush(index, &status))
        log_event(LOG_LEVEL_WARN, "index_flush_failed", "reason=%s",
                  log_quote(&text, status.message));
    if (index->db != NULL)
        rocksdb_close(index->db);
    rocksdb_writebatch_destroy(index->batch);
    rocksdb_flushoptions_destroy(index->flush_options);
    rocksdb_writeoptions_destroy(index->write_options);
    rocksdb_readoptions_destroy(index->get_options);
    rocksdb_readoptions_destroy(index->read_options);
    rocksdb_options_destroy(index->options);
    rocksdb_compactionfilter_destroy(index->filter);
    free((void *)(uintptr_t)index->dead);
    free(index);
}

/*
 * ---- destroying: not through RocksDB, which leaves what it does not know and wants to read the
 * damaged database first
 */

bool index_destroy(const char *path, struct status *status)
{
    if (remove_tree(AT_FDCWD, path, 0, status))
        return true;
    status_prefix(status, "remove the index %s", path);
    return false;
}

/*
 * Opens without following a link, then goes by descriptors: nobody can put a link in the way
 * meanwhile.
 */
static bool remove_tree(int parent, const char *name, int depth, struct status *status)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0)
        return status_fail_errno(status, errno, "%s", name);
    DIR *directory = fdopendir(fd);
    if (directory == NULL) {
        status_fail_errno(status, errno, "%s", name);
        close(fd);
        return false;
    }
    const bool ok = remove_children(directory, depth, status);
    closedir(directory);
    if (!ok) {
        status_prefix(status, "%s", name);
        return false;
    }
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0)
        return status_fail_errno(status, errno, "%s", name);
    return true;
}

static bool remove_children(DIR *directory, int depth, struct status *status)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (entry == NULL)
            return errno == 0 || status_fail_errno(status, errno, "readdir");
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(directory), entry->d_name, 0) == 0)
            continue;
        if (errno != EISDIR)
            return status_fail_errno(status, errno, "%s", entry->d_name);
        if (depth == DESTROY_DEPTH_MAX)
            return status_fail(status, STATUS_FAILED_PRECONDITION, "%s: folders in folders",
                               entry->d_name);
        if (!remove_tree(dirfd(directory), entry->d_name, depth + 1, status))
            return false;
    }
}

/* ---- writing */

bool index_write(struct index *index,
                 const struct index_entry *entries,
                 size_t count,
                 const struct index_checkpoint *checkpoint,
                 struct status *status)
{
    char *error = NULL;
    if (!wait_for_room(index, status))
        return false;
    for (size_t i = 0; i < count; i++)
        add_entry(index, &entries[i]);
    add_checkpoint(index, checkpoint);

    rocksdb_write(index->db, index->write_options, index->batch, &error);
    rocksdb_writebatch_clear(index->batch);
    if (error != NULL) {
        index->failed = true;
        return fail_from(error, "write to the index", status);
    }
    return true;
}

/*
 * Memtables can fill faster than the disk takes them. We wait here, where it is bounded, instead of
 * in RocksDB.
 */
static bool wait_for_room(struct index *index, struct status *status)
{
    for (int waited_ms = 0; waited_ms < ROOM_WAIT_MS_MAX; waited_ms += ROOM_WAIT_STEP_MS) {
        if (property(index, "rocksdb.num-immutable-mem-table") <= MEMTABLES_WAITING_MAX ||
            index_is_broken(index))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = ROOM_WAIT_STEP_MS * NS_PER_MS}, NULL);
    }
    index->failed = true;
    return status_fail(status, STATUS_UNAVAILABLE,
                       "write to the index: no memtable was flushed in %d s",
                       ROOM_WAIT_MS_MAX / 1000);
}

static uint64_t property(struct index *index, const char *name)
{
    uint64_t value = 0;
    ASSERT(rocksdb_property_int(index->db, name, &value) == 0);
    return value;
}

static void add_entry(struct index *index, const struct index_entry *entry)
{
    const size_t key_length = make_key(index->key, entry);
    const uint64_t place = place_pack(entry->place);
    if (entry->forget && place == 0)
        return; /* of what was never here: for who follows the log */
    ASSERT(place != 0 && entry->place.segment <= SEGMENT_NUMBER_MAX);
    ASSERT(entry->place.offset < SEGMENT_BYTES_MAX &&
           entry->place.offset % RECORD_ALIGNMENT_BYTES == 0);
    if (entry->forget) {
        rocksdb_writebatch_merge(index->batch, index->key, key_length, (const char *)&place,
                                 sizeof(place));
        return;
    }
    ASSERT(entry->digest.size_bytes >= 0);
    const struct index_value value = {
        .place = place,
        .blob_size = (uint64_t)entry->digest.size_bytes,
        .payload_bytes = entry->payload_bytes,
        .kind = (uint8_t)entry->kind,
    };
    rocksdb_writebatch_put(index->batch, index->key, key_length, (const char *)&value,
                           sizeof(value));
}

/* key: KEY_BYTES_MAX, or enough for the entry's instance. */
static size_t make_key(char *key, const struct index_entry *entry)
{
    const bool is_action = entry->kind == RECORD_ACTION;
    const size_t hash_length = entry->digest.hash_length;
    ASSERT(is_action || entry->kind == RECORD_BLOB || entry->kind == RECORD_MANIFEST);
    ASSERT(hash_length > 0 && hash_length == hash_bytes_of(entry->digest.function));
    key[0] = is_action ? KIND_ACTION : KIND_BLOB;
    key[1] = (char)entry->digest.function;
    memcpy(key + KEY_HEAD_BYTES, entry->digest.hash, hash_length);
    const size_t length = KEY_HEAD_BYTES + hash_length;
    if (!is_action || entry->instance.length == 0)
        return length;
    ASSERT(entry->instance.length <= UINT16_MAX);
    memcpy(key + length, entry->instance.data, entry->instance.length);
    return length + entry->instance.length;
}

static void add_checkpoint(struct index *index, const struct index_checkpoint *checkpoint)
{
    struct checkpoint_value value = {0};
    for (size_t i = 0; i < LANE_COUNT; i++) {
        value.lanes[i].segment = checkpoint->lanes[i].place.segment;
        value.lanes[i].offset = checkpoint->lanes[i].place.offset;
        value.lanes[i].seq = checkpoint->lanes[i].seq;
    }
    rocksdb_writebatch_put(index->batch, checkpoint_key, CHECKPOINT_KEY_BYTES, (const char *)&value,
                           sizeof(value));
}

bool index_flush(struct index *index, struct status *status)
{
    char *error = NULL;
    rocksdb_flush(index->db, index->flush_options, &error);
    if (error == NULL)
        return true;
    index->failed = true;
    return fail_from(error, "flush the index", status);
}

bool index_is_broken(struct index *index)
{
    return index->failed || property(index, "rocksdb.background-errors") > 0;
}

/* ---- reading */

bool index_read_checkpoint(struct index *index,
                           struct index_checkpoint *checkpoint,
                           struct status *status)
{
    struct checkpoint_value value;
    size_t length = 0;
    char *error = NULL;
    char *found = rocksdb_get(index->db, index->read_options, checkpoint_key, CHECKPOINT_KEY_BYTES,
                              &length, &error);
    if (error != NULL)
        return fail_from(error, "read the index's checkpoint", status);
    *checkpoint = (struct index_checkpoint){0};
    if (found == NULL)
        return true;
    const bool fits = length == sizeof(value);
    if (fits)
        memcpy(&value, found, sizeof(value));
    rocksdb_free(found);
    if (!fits)
        return status_fail(status, STATUS_DATA_LOSS, "the index's checkpoint has %zu bytes",
                           length);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        checkpoint->lanes[i].place.segment = value.lanes[i].segment;
        checkpoint->lanes[i].place.offset = value.lanes[i].offset;
        checkpoint->lanes[i].seq = value.lanes[i].seq;
    }
    return true;
}

bool index_iterate(struct index *index,
                   bool (*each)(void *argument,
                                const struct index_entry *entry,
                                struct status *status),
                   void *argument,
                   struct status *status)
{
    struct index_cursor *cursor = NULL;
    bool more = true;
    if (!index_cursor_open(index, &cursor, status))
        return false;
    bool ok = true;
    while (ok && more)
        ok = index_cursor_read(cursor, SIZE_MAX, each, argument, &more, status);
    index_cursor_close(cursor);
    return ok;
}

struct index_cursor {
    rocksdb_iterator_t *iterator; /* owned */
};

bool index_cursor_open(struct index *index, struct index_cursor **cursor, struct status *status)
{
    struct index_cursor *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to read the index");
    opened->iterator = rocksdb_create_iterator(index->db, index->read_options);
    rocksdb_iter_seek(opened->iterator, first_entry_key, sizeof(first_entry_key));
    *cursor = opened;
    return true;
}

void index_cursor_close(struct index_cursor *cursor)
{
    if (cursor == NULL)
        return;
    rocksdb_iter_destroy(cursor->iterator);
    free(cursor);
}

bool index_cursor_read(struct index_cursor *cursor,
                       size_t count,
                       bool (*each)(void *argument,
                                    const struct index_entry *entry,
                                    struct status *status),
                       void *argument,
                       bool *more,
                       struct status *status)
{
    rocksdb_iterator_t *iterator = cursor->iterator;
    char *error = NULL;
    bool ok = true;
    for (; ok && count > 0 && rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator), count--) {
        struct bytes key, value;
        struct index_entry entry;
        bool forgotten = false;
        key.data = (const uint8_t *)rocksdb_iter_key(iterator, &key.length);
        value.data = (const uint8_t *)rocksdb_iter_value(iterator, &value.length);
        if (!read_entry(key, value, &entry, &forgotten))
            ok = fail_unknown(key, value, status);
        else if (!forgotten)
            ok = each(argument, &entry, status);
    }
    *more = rocksdb_iter_valid(iterator);
    rocksdb_iter_get_error(iterator, &error);
    if (error != NULL && ok)
        return fail_from(error, "read the index", status);
    rocksdb_free(error);
    return ok;
}

static bool fail_unknown(struct bytes key, struct bytes value, struct status *status)
{
    return status_fail(status, STATUS_DATA_LOSS,
                       "the index has an entry of an unknown form (%zu and %zu bytes)", key.length,
                       value.length);
}

bool index_get(struct index *index,
               const struct index_entry *key,
               struct index_entry *found,
               bool *is_there,
               struct status *status)
{
    char name[KEY_HEAD_BYTES + DIGEST_HASH_BYTES_MAX + LIMIT_INSTANCE_NAME_BYTES];
    struct index_entry named = *key;
    size_t length = 0;
    char *error = NULL;
    ASSERT(key->instance.length <= LIMIT_INSTANCE_NAME_BYTES);
    if (named.kind != RECORD_ACTION)
        named.kind = RECORD_BLOB;
    const size_t name_length = make_key(name, &named);
    char *value = rocksdb_get(index->db, index->get_options, name, name_length, &length, &error);
    *is_there = false;
    if (error != NULL)
        return fail_from(error, "look into the index", status);
    if (value == NULL)
        return true;
    bool forgotten = false;
    const bool ok =
        read_entry(bytes_of(name, name_length), bytes_of(value, length), found, &forgotten) ||
        fail_unknown(bytes_of(name, name_length), bytes_of(value, length), status);
    rocksdb_free(value);
    if (!ok)
        return false;
    *is_there =
        !forgotten && (key->kind == RECORD_ACTION || key->digest.size_bytes == INDEX_ANY_SIZE ||
                       found->digest.size_bytes == key->digest.size_bytes);
    found->instance = bytes_of(NULL, 0);
    return true;
}

/* False if it is none of ours; the reserved bytes are checked too. */
static bool read_entry(struct bytes key,
                       struct bytes value,
                       struct index_entry *entry,
                       bool *forgotten)
{
    struct index_value read;
    if (key.length < KEY_HEAD_BYTES || key.length > KEY_BYTES_MAX || value.length != sizeof(read))
        return false;
    memcpy(&read, value.data, sizeof(read));
    const size_t hash_length = hash_bytes_of(key.data[1]);
    const size_t rest = key.length - KEY_HEAD_BYTES;
    if (hash_length == 0 || rest < hash_length)
        return false;
    *forgotten = read.place == 0;
    if (*forgotten)
        return true;

    const bool is_action = read.kind == RECORD_ACTION;
    const bool is_blob = read.kind == RECORD_BLOB || read.kind == RECORD_MANIFEST;
    if (!(is_action && key.data[0] == KIND_ACTION) &&
        !(is_blob && key.data[0] == KIND_BLOB && rest == hash_length))
        return false;
    static const uint8_t zeros[sizeof(read.reserved)];
    const struct place place = place_unpack(read.place);
    if (place.segment < 1 || place.segment > SEGMENT_NUMBER_MAX || read.blob_size > INT64_MAX ||
        memcmp(read.reserved, zeros, sizeof(zeros)) != 0)
        return false;
    *entry = (struct index_entry){
        .kind = (enum record_kind)read.kind,
        .digest = {.hash_length = (uint8_t)hash_length,
                   .function = key.data[1],
                   .size_bytes = (int64_t)read.blob_size},
        .instance = bytes_of(key.data + KEY_HEAD_BYTES + hash_length, rest - hash_length),
        .place = place,
        .payload_bytes = read.payload_bytes,
    };
    memcpy(entry->digest.hash, key.data + KEY_HEAD_BYTES, hash_length);
    return true;
}

/* Where an action's hash ends and its instance begins. 0: a function that we do not know. */
static size_t hash_bytes_of(uint8_t function)
{
    return function == DIGEST_FUNCTION_SHA256 ? SHA256_HASH_BYTES : 0;
}

/* ---- dropping in compactions */

void index_mark_dead(struct index *index, uint64_t segment)
{
    ASSERT(segment <= SEGMENT_NUMBER_MAX);
    atomic_fetch_or_explicit(&index->dead[segment / 64], UINT64_C(1) << segment % 64,
                             memory_order_relaxed);
}

static bool is_dead(const struct index *index, uint64_t segment)
{
    const uint64_t word =
        segment <= SEGMENT_NUMBER_MAX
            ? atomic_load_explicit(&index->dead[segment / 64], memory_order_relaxed)
            : 0;
    return (word >> segment % 64 & 1) != 0;
}

/* 1: drop it. Any key comes here, the checkpoint's too. Any thread of RocksDB's. */
static unsigned char filter_entry(void *state,
                                  int level,
                                  const char *key,
                                  size_t key_length,
                                  const char *value,
                                  size_t value_length,
                                  char **new_value,
                                  size_t *new_value_length,
                                  unsigned char *value_changed)
{
    struct index *index = state;
    struct index_value read;
    (void)level;
    (void)new_value;
    (void)new_value_length;
    *value_changed = 0;
    if (key_length < KEY_HEAD_BYTES || (key[0] != KIND_BLOB && key[0] != KIND_ACTION) ||
        value_length != sizeof(read))
        return 0;
    memcpy(&read, value, sizeof(read));
    return read.place == 0 || is_dead(index, place_unpack(read.place).segment);
}

static const char *filter_name(void *state)
{
    (void)state;
    return "varve.dead_segments";
}

/*
 * ---- forgetting: a merge operand is the place; where it is the one that the key has, the key's
 * place becomes 0
 */

/* RocksDB frees it with the options that it is given to. */
static rocksdb_mergeoperator_t *make_forgetter(void)
{
    return rocksdb_mergeoperator_create(NULL, no_state, forget_in_full, forget_in_part, keep_value,
                                        forgetter_name);
}

/*
 * RocksDB's type of a result lacks a const; it copies the result and then gives it to keep_value().
 */
static char *as_result(const void *value)
{
    return (char *)(uintptr_t)value;
}

/*
 * operands: oldest first; existing: what was there before them, or NULL. Any thread of RocksDB's,
 * and ours.
 */
static char *forget_in_full(void *state,
                            const char *key,
                            size_t key_length,
                            const char *existing,
                            size_t existing_length,
                            const char *const *operands,
                            const size_t *operand_lengths,
                            int count,
                            unsigned char *success,
                            size_t *result_length)
{
    static const struct index_value forgotten;
    bool is_forgotten = existing == NULL;
    (void)state;
    (void)key;
    (void)key_length;
    *success = existing == NULL || existing_length == sizeof(forgotten);
    for (int i = 0; i < count && *success; i++) {
        *success = operand_lengths[i] == sizeof(forgotten.place);
        if (*success && existing != NULL)
            is_forgotten =
                is_forgotten || memcmp(operands[i], existing, sizeof(forgotten.place)) == 0;
    }
    *result_length = *success ? sizeof(forgotten) : 0;
    return as_result(is_forgotten || !*success ? (const void *)&forgotten : existing);
}
static_assert(offsetof(struct index_value, place) == 0,
              "an operand is compared with the head of a value");

/* Two forgets without what they are about stay two. */
static char *forget_in_part(void *state,
                            const char *key,
                            size_t key_length,
                            const char *const *operands,
                            const size_t *operand_lengths,
                            int count,
                            unsigned char *success,
                            size_t *result_length)
{
    (void)state;
    (void)key;
    (void)key_length;
    (void)operands;
    (void)operand_lengths;
    (void)count;
    *success = 0;
    *result_length = 0;
    return as_result("");
}

static void keep_value(void *state, const char *value, size_t value_length)
{
    (void)state;
    (void)value;
    (void)value_length;
}

static const char *forgetter_name(void *state)
{
    (void)state;
    return "varve.forget";
}

static void no_state(void *state)
{
    (void)state;
}

/* ---- RocksDB's errors are text */

/* Frees error; returns false. */
static bool fail_from(char *error, const char *doing, struct status *status)
{
    status_fail(status, code_of(error), "%s: %s", doing, error);
    rocksdb_free(error);
    return false;
}

static enum status_code code_of(const char *error)
{
    static const struct {
        const char *text;
        enum status_code code;
    } known[] = {
        {"No space left on device", STATUS_RESOURCE_EXHAUSTED},
        {"Disk quota exceeded", STATUS_RESOURCE_EXHAUSTED},
        {"Too many open files", STATUS_RESOURCE_EXHAUSTED},
        {"Cannot allocate memory", STATUS_RESOURCE_EXHAUSTED},
        {"lock hold by current process", STATUS_FAILED_PRECONDITION},
        {"While lock file", STATUS_FAILED_PRECONDITION},
        {"Write stall", STATUS_UNAVAILABLE},
        {"Corruption", STATUS_DATA_LOSS},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (strstr(error, known[i].text) != NULL)
            return known[i].code;
    return STATUS_INTERNAL;
}
