/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A medium that forgets: a bit is turned over somewhere in a store, in every kind of place, while it
 * is stopped, after a crash, and while it runs. Each time the store must start, must never give out
 * a wrong byte, must lose the record that was hit and no other, and must not say of anything that it
 * is there when it cannot be read. Files that are cut short or gone are held to the same, and pages that the disk cannot read.
 *
 * Method: a population of blobs of both lanes and of action results lies in several sealed segments.
 * Bits are sampled over the whole of them: a bit is turned, the store opened, everything asked for
 * and compared, the store closed, and the bit turned back, unless the store has mended it itself.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/blob_reader.h"
#include "store/find.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/prng.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { SMALL_COUNT = 36, LARGE_COUNT = 7, ACTION_COUNT = 10 };
enum { ITEM_COUNT = SMALL_COUNT + LARGE_COUNT + ACTION_COUNT };
enum { NOBODY = -1 };

/* A blob or an action result that was stored. */
struct item {
    struct digest digest;
    bool action;
    uint8_t *data; /* owned; of an action result a string */
    size_t length;
};

/* Where a record lies, and whose it is. */
struct location {
    uint64_t segment;
    uint64_t offset;
    uint64_t payload_bytes;
    enum record_kind kind;
    int item;
};

static struct store_rig rig;
static struct item items[ITEM_COUNT];
static struct location locations[1024];
static size_t location_count;
static struct prng prng;

static void start(enum store_rig_disk disk)
{
    prng.state = 20261130;
    location_count = 0;
    store_rig_start(&rig, disk);
}

static void start_simulated(void)
{
    start(STORE_RIG_SIMULATED);
}

static void start_real(void)
{
    start(STORE_RIG_REAL);
}

static void end(void)
{
    store_rig_end(&rig);
    for (size_t i = 0; i < ITEM_COUNT; i++)
        free(items[i].data);
}

static struct io *disk(void)
{
    return rig.sim != NULL ? io_sim_io(rig.sim) : io_posix();
}

static struct store *store(void)
{
    return durability_store(rig.durability);
}

/* ---- files */

static void segment_file(char path[SEGMENT_PATH_BYTES_MAX], uint64_t number)
{
    char directory[TEMP_DIR_PATH_BYTES_MAX + 16];
    snprintf(directory, sizeof(directory), "%s/segments", rig.directory.path);
    segment_path(path, directory, number, "seg");
}

static void store_file(char path[SEGMENT_PATH_BYTES_MAX], const char *name)
{
    snprintf(path, SEGMENT_PATH_BYTES_MAX, "%s/%s", rig.directory.path, name);
}

/* False when the file is not there or is not so long. */
static bool byte_at(const char *path, uint64_t offset, uint8_t *byte)
{
    struct status status;
    size_t got = 0;
    int fd = -1;
    if (!io_open(disk(), path, IO_OPEN_READ, &fd, &status))
        return false;
    ck_assert(io_pread(disk(), fd, byte, 1, offset, &got, &status));
    io_close(disk(), fd);
    return got == 1;
}

static void overwrite(const char *path, uint64_t offset, const void *data, size_t length)
{
    struct status status;
    int fd = -1;
    const struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    ck_assert_msg(io_open(disk(), path, IO_OPEN_WRITE, &fd, &status), "%s", status.message);
    ck_assert(io_pwritev(disk(), fd, &part, 1, offset, &status) && io_sync(disk(), fd, &status));
    io_close(disk(), fd);
}

static void flip(const char *path, uint64_t offset, uint8_t bits)
{
    uint8_t byte = 0;
    ck_assert(byte_at(path, offset, &byte));
    if (rig.sim != NULL) {
        io_sim_corrupt(rig.sim, path, offset, bits);
        return;
    }
    byte ^= bits;
    overwrite(path, offset, &byte, 1);
}

static uint64_t file_bytes(const char *path)
{
    struct status status;
    uint64_t size = 0;
    int fd = -1;
    ck_assert_msg(io_open(disk(), path, IO_OPEN_READ, &fd, &status), "%s", status.message);
    ck_assert(io_size(disk(), fd, &size, &status));
    io_close(disk(), fd);
    return size;
}

static void cut(const char *path, uint64_t size)
{
    struct status status;
    int fd = -1;
    ck_assert(io_open(disk(), path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_truncate(disk(), fd, size, &status) && io_sync(disk(), fd, &status));
    io_close(disk(), fd);
}

static uint8_t *read_file(const char *path, uint64_t *size)
{
    struct status status;
    size_t got = 0;
    int fd = -1;
    *size = file_bytes(path);
    uint8_t *data = malloc((size_t)*size + 1);
    ck_assert(data != NULL && io_open(disk(), path, IO_OPEN_READ, &fd, &status));
    ck_assert(io_pread(disk(), fd, data, (size_t)*size, 0, &got, &status));
    ck_assert_uint_eq(got, *size);
    io_close(disk(), fd);
    return data;
}

static void remove_file(const char *path)
{
    struct status status;
    if (!io_unlink(disk(), path, &status))
        ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
}

static void write_file(const char *path, const void *data, size_t length)
{
    struct status status;
    int fd = -1;
    remove_file(path);
    ck_assert(io_open(disk(), path, IO_OPEN_CREATE_NEW, &fd, &status));
    io_close(disk(), fd);
    overwrite(path, 0, data, length);
    char *parent = strdup(path);
    *strrchr(parent, '/') = '\0';
    ck_assert(io_sync_directory(disk(), parent, &status));
    free(parent);
}

/* ---- the population */

static void put(size_t i)
{
    struct item *item = &items[i];
    struct status status = {0};
    if (item->action)
        ck_assert_msg(store_rig_put_action(&rig, &item->digest, "main",
                                           bytes_of(item->data, item->length), &status),
                      "%s", status.message);
    else
        ck_assert_msg(
            store_rig_put(&rig, bytes_of(item->data, item->length), &item->digest, &status), "%s",
            status.message);
}

static void make_item(size_t i)
{
    struct item *item = &items[i];
    item->action = i >= SMALL_COUNT + LARGE_COUNT;
    if (item->action)
        item->length = 200 + (size_t)prng_below(&prng, 3000);
    else if (i < SMALL_COUNT)
        item->length = i % 6 == 0 ? 60000 + (size_t)prng_below(&prng, 90000)
                                  : 1 + (size_t)prng_below(&prng, 5000);
    else
        item->length = (size_t)MIB + 1 + (size_t)prng_below(&prng, 4 * MIB);
    item->data = seeded_bytes(1000 + i, item->length);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(item->data, item->length), &item->digest);
}

/* Where the record lies that makes it exist. */
static struct place place_of(const struct item *item)
{
    struct place place = {0};
    const bool is_there =
        item->action
            ? store_find_action(store(), &item->digest, bytes_of_string("main"), FIND_ONLY, &place)
            : store_find_blob(store(), &item->digest, FIND_ONLY, &place);
    return is_there ? place : (struct place){0};
}

/* What the file says of the record there. */
static void add_location(struct place place, int item)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    struct record_header header;
    struct status status;
    size_t got = 0;
    int fd = -1;
    segment_file(path, place.segment);
    ck_assert_msg(io_open(disk(), path, IO_OPEN_READ, &fd, &status), "%s", status.message);
    ck_assert(io_pread(disk(), fd, &header, sizeof(header), place.offset, &got, &status));
    io_close(disk(), fd);
    ck_assert_uint_eq(got, sizeof(header));
    ck_assert_uint_lt(location_count, ARRAY_LENGTH(locations));
    locations[location_count++] = (struct location){
        .segment = place.segment,
        .offset = place.offset,
        .payload_bytes = header.payload_bytes,
        .kind = (enum record_kind)header.kind,
        .item = item,
    };
}

static int by_place(const void *a, const void *b)
{
    const struct location *first = a;
    const struct location *second = b;
    if (first->segment != second->segment)
        return first->segment < second->segment ? -1 : 1;
    return (first->offset > second->offset) - (first->offset < second->offset);
}

/* Every record that counts. Others may be sealing segments meanwhile. */
static void locate(void)
{
    location_count = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        add_location(place_of(&items[i]), i);
        if (items[i].action || items[i].length <= LIMIT_SMALL_BLOB_BYTES)
            continue;
        struct blob_reader *reader = NULL;
        struct status status;
        size_t count = 0;
        ck_assert(blob_reader_open(store(), &items[i].digest, &reader, &status) && reader != NULL);
        const struct manifest_chunk *chunks = blob_reader_chunks(reader, &count);
        for (size_t k = 0; k < count; k++)
            add_location(place_unpack(chunks[k].place), i);
        blob_reader_free(reader);
    }
    qsort(locations, location_count, sizeof(locations[0]), by_place);
}

/* Stores everything in several segments of each lane, and stops. */
static void populate(void)
{
    enum { SEGMENTS = 3 };
    for (size_t i = 0; i < ITEM_COUNT; i++)
        make_item(i);
    for (size_t part = 0; part < SEGMENTS; part++) {
        for (size_t i = part; i < ITEM_COUNT; i += SEGMENTS)
            put(i);
        store_rig_close(&rig); /* seals */
        store_rig_open(&rig);
    }
    locate();
    store_rig_close(&rig);
}

/* Is it given out? Whatever is, is right. Never true of something that FindMissing calls missing. */
static bool is_served(const struct item *item)
{
    uint8_t *data = NULL;
    struct place place;
    struct status status;
    bool ok;
    if (item->action) {
        struct action_record record;
        ok = action_read(store(), &item->digest, bytes_of_string("main"), &data, &record, &place,
                         &status);
        if (ok && data != NULL)
            ck_assert(bytes_equal(record.result, bytes_of(item->data, item->length)));
    } else {
        const bool there = store_rig_has(&rig, &item->digest);
        ok = blob_read_whole(store(), &item->digest, UINT64_MAX, &data, &place, &status);
        if (ok && data != NULL)
            ck_assert(memcmp(data, item->data, item->length) == 0);
        ck_assert(there || (ok && data == NULL));
        /* What it calls present and cannot read is damaged, and then forgotten. */
        ck_assert(!there || !ok || data != NULL);
    }
    if (!ok)
        ck_assert_msg(status.code == STATUS_DATA_LOSS || status.code == STATUS_UNAVAILABLE, "%s",
                      status.message);
    free(data);
    return ok && data != NULL;
}

/* All but lost are served; lost is not, if it is somebody. */
static void check_all_but(int lost, const char *where)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        ck_assert_msg(is_served(&items[i]) == (i != lost), "%s: item %d%s, lost %d", where, i,
                      items[i].action ? " (action)" : "", lost);
}

enum index_fate { INDEX_KEPT, INDEX_REMOVED };

static void open_with(enum index_fate fate, const char *where)
{
    struct status status = {0};
    if (fate == INDEX_REMOVED)
        store_rig_remove_index(&rig);
    ck_assert_msg(store_rig_try_open(&rig, &status), "%s: %s", where, status.message);
}

/* Turns the bits over while the store is stopped, and looks. lost: who must be gone. */
static void try_flip(const char *path,
                     uint64_t offset,
                     uint8_t bits,
                     enum index_fate fate,
                     int lost)
{
    char where[SEGMENT_PATH_BYTES_MAX];
    uint8_t before = 0;
    uint8_t after = 0;
    snprintf(where, sizeof(where), "%s at %llu, bits %02x, index %s", strrchr(path, '/') + 1,
             (unsigned long long)offset, bits, fate == INDEX_KEPT ? "kept" : "removed");
    ck_assert(byte_at(path, offset, &before));
    flip(path, offset, bits);
    open_with(fate, where);
    check_all_but(lost, where);
    store_rig_close(&rig);
    if (byte_at(path, offset, &after) && after == (before ^ bits))
        flip(path, offset, bits);
}

static uint8_t any_bit(void)
{
    return (uint8_t)(1 << prng_below(&prng, 8));
}

/* Some records of each kind, spread over the segments. */
static size_t choose(size_t each, size_t chosen[])
{
    size_t count = 0;
    for (enum record_kind kind = RECORD_BLOB; kind <= RECORD_ACTION; kind++) {
        size_t of_kind = 0;
        for (size_t i = 0; i < location_count; i++)
            of_kind += locations[i].kind == kind;
        ck_assert_uint_gt(of_kind, 0);
        size_t at = 0;
        size_t taken = 0;
        for (size_t i = 0; i < location_count && taken < each; i++) {
            if (locations[i].kind != kind)
                continue;
            if (at++ * each >= taken * of_kind) {
                chosen[count++] = i;
                taken++;
            }
        }
    }
    return count;
}

/* ---- stopped */

static void rot_records(enum index_fate fate)
{
    size_t chosen[16];
    const size_t count = choose(3, chosen);
    char path[SEGMENT_PATH_BYTES_MAX];
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct location *location = &locations[chosen[i]];
        segment_file(path, location->segment);
        /* Every byte of a header is met by one record or another. */
        for (; at < RECORD_HEADER_BYTES * (i + 1) / count; at += 5)
            try_flip(path, location->offset + at, any_bit(), fate, location->item);
        const uint64_t payload = location->offset + RECORD_HEADER_BYTES;
        const uint64_t offsets[] = {0, prng_below(&prng, location->payload_bytes),
                                    location->payload_bytes - 1};
        for (size_t k = 0; k < ARRAY_LENGTH(offsets); k++)
            try_flip(path, payload + offsets[k], any_bit(), fate, location->item);
        const uint64_t behind = location->offset + record_stored_bytes(location->payload_bytes);
        if (payload + location->payload_bytes < behind)
            try_flip(path, behind - 1, any_bit(), fate, NOBODY); /* padding says nothing */
    }
}

START_TEST(a_rotten_record_is_lost_alone)
{
    populate();
    rot_records(INDEX_KEPT);
}
END_TEST

START_TEST(a_rotten_record_is_lost_alone_when_the_index_is_rebuilt)
{
    populate();
    rot_records(INDEX_REMOVED);
}
END_TEST

/* Segments with records, each once. */
static size_t segments_with_records(uint64_t numbers[], size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < location_count; i++) {
        if ((count == 0 || numbers[count - 1] != locations[i].segment) && count < max)
            numbers[count++] = locations[i].segment;
    }
    return count;
}

START_TEST(a_rotten_segment_header_loses_nothing)
{
    populate();
    uint64_t numbers[16];
    char path[SEGMENT_PATH_BYTES_MAX];
    const size_t count = segments_with_records(numbers, ARRAY_LENGTH(numbers));
    static const uint8_t zeros[SEGMENT_HEADER_BYTES];
    const size_t second = offsetof(struct segment_header_page, second);
    for (size_t i = 0; i < count; i++) {
        segment_file(path, numbers[i]);
        for (size_t at = i; at < sizeof(struct segment_header); at += count) {
            try_flip(path, at, any_bit(), at % 2 == 0 ? INDEX_KEPT : INDEX_REMOVED, NOBODY);
            if (at % 4 == 0)
                try_flip(path, second + at, any_bit(), INDEX_REMOVED, NOBODY);
        }
        try_flip(path, 64 + prng_below(&prng, 3000), any_bit(), INDEX_REMOVED, NOBODY);
        /* Nothing is left of the page: the trailer says what is needed. */
        uint64_t size = 0;
        uint8_t *whole = read_file(path, &size);
        overwrite(path, 0, zeros, sizeof(zeros));
        open_with(i % 2 == 0 ? INDEX_REMOVED : INDEX_KEPT, path);
        check_all_but(NOBODY, path);
        store_rig_close(&rig);
        overwrite(path, 0, whole, SEGMENT_HEADER_BYTES);
        free(whole);
    }
}
END_TEST

START_TEST(a_rotten_footer_loses_nothing)
{
    populate();
    uint64_t numbers[16];
    char path[SEGMENT_PATH_BYTES_MAX];
    const size_t count = segments_with_records(numbers, ARRAY_LENGTH(numbers));
    for (size_t i = 0; i < count; i++) {
        segment_file(path, numbers[i]);
        const uint64_t size = file_bytes(path);
        uint64_t end = SEGMENT_HEADER_BYTES;
        for (size_t k = 0; k < location_count; k++) {
            if (locations[k].segment == numbers[i])
                end = locations[k].offset + record_stored_bytes(locations[k].payload_bytes);
        }
        for (uint64_t at = i; at < FOOTER_TRAILER_BYTES; at += count)
            try_flip(path, size - FOOTER_TRAILER_BYTES + at, any_bit(), INDEX_REMOVED, NOBODY);
        for (size_t k = 0; k < 3; k++)
            try_flip(path, end + prng_below(&prng, size - FOOTER_TRAILER_BYTES - end), any_bit(),
                     k == 0 ? INDEX_KEPT : INDEX_REMOVED, NOBODY);
    }
}
END_TEST

START_TEST(a_rotten_format_file_does_not_prevent_the_start)
{
    populate();
    char path[SEGMENT_PATH_BYTES_MAX];
    store_file(path, "FORMAT");
    store_rig_open(&rig);
    const uint64_t node_uid = store()->node_uid;
    store_rig_close(&rig);
    const uint64_t size = file_bytes(path);
    for (uint64_t at = 0; at < size; at++) {
        flip(path, at, any_bit());
        open_with(INDEX_KEPT, "FORMAT");
        ck_assert_uint_eq(store()->node_uid, node_uid);
        ck_assert(is_served(&items[at % ITEM_COUNT]));
        store_rig_close(&rig);
    }
    for (uint64_t length = 0; length < size; length += 5) {
        cut(path, length);
        open_with(INDEX_KEPT, "FORMAT cut");
        ck_assert_uint_eq(store()->node_uid, node_uid);
        store_rig_close(&rig);
    }
    remove_file(path);
    open_with(INDEX_KEPT, "FORMAT removed");
    ck_assert_uint_eq(store()->node_uid, node_uid);
    check_all_but(NOBODY, "FORMAT removed");
    store_rig_close(&rig);
    uint8_t *line = read_file(path, (uint64_t[1]){0});
    ck_assert_int_eq(memcmp(line, "varve 1 ", 8), 0);
    free(line);
}
END_TEST

START_TEST(a_rotten_format_file_of_a_store_without_segments_is_made_anew)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    store_file(path, "FORMAT");
    store_rig_close(&rig);
    for (uint64_t number = 1; number < 10; number++) {
        char segment[SEGMENT_PATH_BYTES_MAX];
        segment_file(segment, number);
        remove_file(segment);
    }
    flip(path, 3, 1);
    open_with(INDEX_KEPT, "FORMAT");
}
END_TEST

START_TEST(what_is_in_the_lock_file_is_of_no_matter)
{
    populate();
    char path[SEGMENT_PATH_BYTES_MAX];
    store_file(path, "LOCK");
    overwrite(path, 0, "rot", 3);
    open_with(INDEX_KEPT, "LOCK");
    check_all_but(NOBODY, "LOCK");
    store_rig_close(&rig);
    remove_file(path);
    open_with(INDEX_KEPT, "LOCK removed");
    check_all_but(NOBODY, "LOCK removed");
}
END_TEST

/* ---- the index: RocksDB's files lie on a real disk in either case */

static size_t index_files(char names[][64], size_t max)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    store_file(path, "index");
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL && count < max;) {
        struct stat stat;
        ck_assert_int_eq(fstatat(dirfd(directory), entry->d_name, &stat, 0), 0);
        if (S_ISREG(stat.st_mode) && stat.st_size > 0)
            snprintf(names[count++], 64, "index/%.50s", entry->d_name);
    }
    closedir(directory);
    return count;
}

static void flip_index_file(const char *name)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/%s", rig.directory.path, name);
    FILE *file = fopen(path, "r+");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    const uint64_t size = (uint64_t)ftell(file);
    const long at = (long)prng_below(&prng, size);
    ck_assert_int_eq(fseek(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    ck_assert_int_eq(fseek(file, at, SEEK_SET), 0);
    ck_assert_int_ne(fputc(byte ^ any_bit(), file), EOF);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(a_rotten_index_loses_nothing_and_does_not_prevent_the_start)
{
    populate();
    for (size_t round = 0; round < 8; round++) {
        char names[32][64];
        const size_t count = index_files(names, ARRAY_LENGTH(names));
        ck_assert_uint_ge(count, 3);
        /* One after the other; what a start has made anew is met in the next round. */
        for (size_t i = round % 2; i < count; i += 2) {
            char path[SEGMENT_PATH_BYTES_MAX];
            snprintf(path, sizeof(path), "%s/%s", rig.directory.path, names[i]);
            struct stat stat_now;
            if (stat(path, &stat_now) != 0)
                continue;
            flip_index_file(names[i]);
            open_with(INDEX_KEPT, names[i]);
            check_all_but(NOBODY, names[i]);
            store_rig_close(&rig);
        }
    }
}
END_TEST

START_TEST(an_index_that_rots_while_it_is_open_loses_nothing)
{
    populate();
    for (size_t round = 0; round < 6; round++) {
        char names[32][64];
        open_with(INDEX_KEPT, "before");
        const size_t count = index_files(names, ARRAY_LENGTH(names));
        for (size_t i = 0; i < count; i++)
            flip_index_file(names[i]);
        uint8_t fresh[64];
        struct digest digest;
        struct status status;
        memset(fresh, (int)round, sizeof(fresh));
        ck_assert(store_rig_put(&rig, bytes_of(fresh, sizeof(fresh)), &digest, &status));
        check_all_but(NOBODY, "running");
        store_rig_close(&rig);
        open_with(INDEX_KEPT, "after");
        check_all_but(NOBODY, "after");
        ck_assert(store_rig_reads(&rig, &digest, bytes_of(fresh, sizeof(fresh))));
        store_rig_close(&rig);
    }
}
END_TEST

/* ---- after a crash: segments without footers */

static struct place first_chunk_of(const struct digest *digest)
{
    struct blob_reader *reader = NULL;
    struct status status;
    size_t count = 0;
    ck_assert(blob_reader_open(store(), digest, &reader, &status) && reader != NULL);
    const struct place place = place_unpack(blob_reader_chunks(reader, &count)[0].place);
    blob_reader_free(reader);
    return place;
}

START_TEST(a_rotten_record_of_a_crashed_store_is_lost_alone)
{
    enum { ROUNDS = 60, EACH = 9 };
    for (size_t round = 0; round < ROUNDS; round++) {
        struct item *fresh =
            items; /* of this round; the first ones of the table, the others stay empty */
        struct status status;
        for (size_t i = 0; i < EACH; i++) {
            fresh[i].length = i == 0 && round % 3 == 0 ? (size_t)(2 * MIB) + round
                                                       : 50 + (size_t)prng_below(&prng, 9000);
            fresh[i].action = i == 5;
            fresh[i].data = seeded_bytes(round * 100 + i, fresh[i].length);
            digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(fresh[i].data, fresh[i].length),
                            &fresh[i].digest);
            put(i);
        }
        /* One more behind them: the last record of a log may be a torn tail. */
        struct digest last;
        ck_assert(store_rig_put(&rig, bytes_of(&round, sizeof(round)), &last, &status));
        const size_t victim =
            round % 3 == 0 && round % 2 == 0 ? 0 : 1 + (size_t)prng_below(&prng, EACH - 1);
        struct place place = place_of(&fresh[victim]);
        uint64_t payload_bytes = fresh[victim].length;
        if (payload_bytes >
            LIMIT_SMALL_BLOB_BYTES) { /* not the manifest: as the last of its lane it may be a torn tail */
            place = first_chunk_of(&fresh[victim].digest);
            payload_bytes = LIMIT_CHUNK_BYTES;
        }
        char path[SEGMENT_PATH_BYTES_MAX];
        segment_file(path, place.segment);
        store_rig_crash(&rig, round, IO_SIM_CRASH_NOTHING);
        flip(path, place.offset + prng_below(&prng, RECORD_HEADER_BYTES + payload_bytes),
             any_bit());
        /* Nor has it a trailer that makes up for its header: there is the other copy. */
        if (round % 4 == 1)
            flip(path, prng_below(&prng, sizeof(struct segment_header)), any_bit());
        else if (round % 4 == 2)
            flip(path, prng_below(&prng, SEGMENT_HEADER_BYTES), any_bit());
        open_with(INDEX_KEPT, path);
        for (size_t i = 0; i < EACH; i++) {
            ck_assert_msg(is_served(&fresh[i]) == (i != victim), "round %zu: item %zu, victim %zu",
                          round, i, victim);
            free(fresh[i].data);
            fresh[i].data = NULL;
        }
        ck_assert(store_rig_reads(&rig, &last, bytes_of(&round, sizeof(round))));
    }
}
END_TEST

/* A hole of any length in a log without a footer: what lies behind it is found again. */
START_TEST(a_large_hole_in_a_log_without_a_footer_does_not_hide_what_follows)
{
    enum { COUNT = 20, LENGTH = 300000 };
    struct digest digests[COUNT];
    struct place places[COUNT];
    struct status status;
    for (size_t i = 0; i < COUNT; i++) {
        items[i].length = LENGTH;
        items[i].data = seeded_bytes(i, LENGTH);
        ck_assert(store_rig_put(&rig, bytes_of(items[i].data, LENGTH), &digests[i], &status));
        ck_assert(blob_table_get(store()->table, blob_table_blob_key(store()->table, &digests[i]),
                                 false, &places[i]));
    }
    ck_assert_uint_eq(places[0].segment, places[COUNT - 1].segment);
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_file(path, places[0].segment);
    store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    uint8_t *junk = seeded_bytes(99, 17 * LENGTH);
    overwrite(path, places[1].offset, junk, 17 * LENGTH);
    free(junk);
    open_with(INDEX_KEPT, "hole");
    ck_assert(store_rig_reads(&rig, &digests[0], bytes_of(items[0].data, LENGTH)));
    ck_assert(!store_rig_has(&rig, &digests[1]));
    ck_assert(!store_rig_has(&rig, &digests[17]));
    ck_assert(store_rig_reads(&rig, &digests[19], bytes_of(items[19].data, LENGTH)));
}
END_TEST

/* ---- while it runs */

static void forget(const struct item *item, struct place place)
{
    const struct bytes instance = bytes_of_string("main");
    const enum record_kind kind = item->action                            ? RECORD_ACTION
                                  : item->length > LIMIT_SMALL_BLOB_BYTES ? RECORD_MANIFEST
                                                                          : RECORD_BLOB;
    durability_forget(rig.durability, &item->digest, item->action ? &instance : NULL, place, kind,
                      FORGET_DAMAGED);
}

START_TEST(a_record_that_rots_under_a_running_store_is_lost_alone_and_can_be_stored_again)
{
    populate();
    store_rig_open(&rig);
    for (size_t round = 0; round < 60; round++) {
        const struct location *location = &locations[prng_below(&prng, location_count)];
        const struct item *item = &items[location->item];
        char path[SEGMENT_PATH_BYTES_MAX];
        segment_file(path, location->segment);
        flip(path,
             location->offset + prng_below(&prng, RECORD_HEADER_BYTES + location->payload_bytes),
             any_bit());
        check_all_but(location->item, path);
        forget(item, place_of(item));
        ck_assert_uint_eq(place_of(item).segment, 0);
        put((size_t)location->item);
        check_all_but(NOBODY, path);
        if (round % 20 == 19) { /* and it stays so */
            store_rig_close(&rig);
            open_with(round % 40 == 19 ? INDEX_KEPT : INDEX_REMOVED, path);
            check_all_but(NOBODY, path);
        }
        locate();
    }
}
END_TEST

START_TEST(a_segment_header_and_a_format_file_that_rot_under_a_running_store_change_nothing)
{
    populate();
    store_rig_open(&rig);
    char path[SEGMENT_PATH_BYTES_MAX];
    for (size_t i = 0; i < 8; i++) {
        segment_file(path, 1 + i);
        uint8_t byte = 0;
        if (byte_at(path, 8 * i, &byte))
            flip(path, 8 * i, any_bit());
    }
    store_file(path, "FORMAT");
    flip(path, 10, any_bit());
    struct digest digest;
    struct status status;
    ck_assert(store_rig_put(&rig, bytes_of("fresh", 5), &digest, &status));
    check_all_but(NOBODY, "running");
    store_rig_close(&rig);
    open_with(INDEX_REMOVED, "after");
    check_all_but(NOBODY, "after");
    ck_assert(store_rig_reads(&rig, &digest, bytes_of("fresh", 5)));
}
END_TEST

/* ---- cut off, or gone */

/* Is a record of the item among the bytes of a segment from `from` on? */
static bool has_bytes_in(int item, uint64_t segment, uint64_t from)
{
    for (size_t i = 0; i < location_count; i++) {
        const struct location *location = &locations[i];
        if (location->item == item && location->segment == segment &&
            location->offset + RECORD_HEADER_BYTES + location->payload_bytes > from)
            return true;
    }
    return false;
}

/* Nothing is called present that cannot be read, and nothing else is lost. */
static void check_without(uint64_t segment, uint64_t from, const char *where)
{
    size_t lost = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        const bool gone = has_bytes_in(i, segment, from);
        lost += gone;
        ck_assert_msg(is_served(&items[i]) != gone, "%s: item %d", where, i);
        if (!items[i].action)
            ck_assert_msg(store_rig_has(&rig, &items[i].digest) != gone, "%s: has item %d", where,
                          i);
    }
    ck_assert_uint_gt(lost, 0);
}

START_TEST(blobs_with_bytes_in_a_segment_that_is_cut_or_gone_are_missing_from_the_start_on)
{
    populate();
    uint64_t numbers[16];
    const size_t count = segments_with_records(numbers, ARRAY_LENGTH(numbers));
    size_t large = 0;
    for (size_t i = 0; i < count; i++) {
        char path[SEGMENT_PATH_BYTES_MAX];
        char where[64];
        uint64_t size = 0;
        segment_file(path, numbers[i]);
        uint8_t *whole = read_file(path, &size);
        for (size_t step = 0; step < 3; step++) {
            const enum index_fate fate = step == 1 ? INDEX_REMOVED : INDEX_KEPT;
            uint64_t left = 0;
            if (step == 2)
                remove_file(path);
            else
                cut(path, left = step == 0 ? size / 2 : size / 5);
            snprintf(where, sizeof(where), "segment %d, %d bytes left", (int)numbers[i], (int)left);
            open_with(fate, where);
            check_without(numbers[i], left, where);
            large += numbers[i] > 1;
            store_rig_close(&rig);
            write_file(path, whole, (size_t)size);
            /* Another index than the one that has seen it cut. */
            open_with(INDEX_REMOVED, where);
            check_all_but(NOBODY, where);
            store_rig_close(&rig);
        }
        free(whole);
    }
    ck_assert_uint_gt(large, 0);
}
END_TEST

/* ---- pages that the disk cannot read */

enum { PAGE_BYTES = 4096, BROKEN_MAX = 4 };

static struct io broken;
static struct io_ops broken_ops;
static struct broken_range {
    char path[SEGMENT_PATH_BYTES_MAX]; /* a file, or a directory and a slash: any file in it */
    uint64_t from, to;
} broken_ranges[BROKEN_MAX];
static size_t broken_count;
static atomic_int broken_errno = EIO;
static atomic_int broken_times = INT_MAX; /* so often, and then the disk has recovered */

static int64_t broken_pread(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    char link[64];
    char path[SEGMENT_PATH_BYTES_MAX];
    (void)io;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t got = readlink(link, path, sizeof(path) - 1);
    path[got > 0 ? got : 0] = '\0';
    for (size_t i = 0; i < broken_count; i++) {
        const struct broken_range *range = &broken_ranges[i];
        if (offset < range->to && offset + length > range->from &&
            strncmp(range->path, path,
                    range->path[strlen(range->path) - 1] == '/' ? strlen(range->path)
                                                                : sizeof(path)) == 0 &&
            atomic_fetch_sub(&broken_times, 1) > 0)
            return -atomic_load(&broken_errno);
    }
    return io_posix()->ops->pread(io_posix(), fd, buffer, length, offset);
}

static void start_broken(void)
{
    start_real();
    broken_ops = *io_posix()->ops;
    broken_ops.pread = broken_pread;
    broken.ops = &broken_ops;
    broken_count = 0;
    atomic_store(&broken_errno, EIO);
    atomic_store(&broken_times, INT_MAX);
    rig.io = &broken;
}

/* Whole pages, as a disk loses them. */
static void lose(const char *path, uint64_t from, uint64_t to)
{
    ck_assert_uint_lt(broken_count, BROKEN_MAX);
    struct broken_range *range = &broken_ranges[broken_count++];
    ck_assert_ptr_nonnull(realpath(path, range->path));
    if (path[strlen(path) - 1] == '/')
        strcat(range->path, "/");
    range->from = from / PAGE_BYTES * PAGE_BYTES;
    range->to = to == UINT64_MAX ? to : (to + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool is_hit(int item)
{
    for (size_t i = 0; i < location_count; i++) {
        const struct location *location = &locations[i];
        char path[SEGMENT_PATH_BYTES_MAX];
        char whole[SEGMENT_PATH_BYTES_MAX];
        if (location->item != item)
            continue;
        segment_file(path, location->segment);
        ck_assert_ptr_nonnull(realpath(path, whole));
        const uint64_t end = location->offset + RECORD_HEADER_BYTES + location->payload_bytes;
        for (size_t k = 0; k < broken_count; k++) {
            if (strcmp(broken_ranges[k].path, whole) == 0 &&
                location->offset < broken_ranges[k].to && end > broken_ranges[k].from)
                return true;
        }
    }
    return false;
}

/* Who has no byte in a lost page is served, and nobody else is. */
static size_t check_but_the_hit(const char *where)
{
    size_t hit = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        const bool lost = is_hit(i);
        hit += lost;
        ck_assert_msg(is_served(&items[i]) != lost, "%s: item %d, %s", where, i,
                      lost ? "lost" : "not lost");
    }
    return hit;
}

/* Behind the last record of a segment. */
static uint64_t records_end(uint64_t segment)
{
    uint64_t end = SEGMENT_HEADER_BYTES;
    for (size_t i = 0; i < location_count; i++) {
        const uint64_t behind =
            locations[i].offset + record_stored_bytes(locations[i].payload_bytes);
        if (locations[i].segment == segment && behind > end)
            end = behind;
    }
    return end;
}

enum footer_fate { FOOTER_READ, FOOTER_LOST };

/* One page in the middle of a record. With the footer lost, too, the start walks the segment. */
static void lose_pages(enum index_fate fate, enum footer_fate footer)
{
    size_t chosen[16];
    const size_t count = choose(3, chosen);
    char path[SEGMENT_PATH_BYTES_MAX];
    for (size_t i = 0; i < count; i++) {
        const struct location *location = &locations[chosen[i]];
        segment_file(path, location->segment);
        const uint64_t at =
            location->offset + RECORD_HEADER_BYTES + prng_below(&prng, location->payload_bytes);
        broken_count = 0;
        lose(path, at, at + 1);
        if (footer == FOOTER_LOST) {
            const uint64_t end = records_end(location->segment);
            lose(path, (end + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, file_bytes(path));
            if (broken_ranges[1].from >=
                file_bytes(path)) /* it is in the page of the last record */
                broken_count--;
        }
        open_with(fate, path);
        ck_assert_uint_ge(check_but_the_hit(path), 1);
        store_rig_close(&rig);
    }
    broken_count = 0;
    open_with(INDEX_REMOVED, "all can be read");
    check_all_but(NOBODY, "all can be read");
}

START_TEST(a_page_that_cannot_be_read_costs_its_records_alone)
{
    populate();
    lose_pages(INDEX_KEPT, FOOTER_READ);
}
END_TEST

START_TEST(a_page_that_cannot_be_read_costs_its_records_alone_when_the_index_is_rebuilt)
{
    populate();
    lose_pages(INDEX_REMOVED, FOOTER_READ);
}
END_TEST

START_TEST(a_page_that_cannot_be_read_does_not_stop_a_start_that_walks_its_segment)
{
    populate();
    lose_pages(INDEX_REMOVED, FOOTER_LOST);
}
END_TEST

/* What somebody who asks for the item is told. */
static enum status_code answer(const struct item *item)
{
    const struct bytes instance = bytes_of_string("main");
    struct action_record record;
    struct place place;
    struct status status = {0};
    uint8_t *data = NULL;
    const bool ok =
        item->action
            ? action_read(store(), &item->digest, instance, &data, &record, &place, &status)
            : blob_read_whole(store(), &item->digest, UINT64_MAX, &data, &place, &status);
    const bool there = data != NULL;
    free(data);
    return !ok ? status.code : there ? STATUS_OK : STATUS_NOT_FOUND;
}

/* The page that the end of its payload lies in. */
static void lose_page_of(const struct location *location)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    const uint64_t end = location->offset + RECORD_HEADER_BYTES + location->payload_bytes;
    segment_file(path, location->segment);
    broken_count = 0;
    lose(path, end - 1, end);
}

START_TEST(a_page_that_cannot_be_read_is_damage_to_its_records_from_the_first_read_on)
{
    size_t chosen[16];
    populate();
    store_rig_open(&rig);
    const size_t count = choose(3, chosen);
    int64_t unreadable = 0;
    for (size_t i = 0; i < count; i++) {
        lose_page_of(&locations[chosen[i]]);
        bool hit[ITEM_COUNT];
        bool any = false;
        for (int k = 0; k < ITEM_COUNT; k++)
            any |= hit[k] = is_hit(k);
        ck_assert(any);
        for (int k = 0; k < ITEM_COUNT; k++) {
            ck_assert_int_eq(answer(&items[k]), hit[k] ? STATUS_DATA_LOSS : STATUS_OK);
            unreadable += hit[k];
            ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_UNREADABLE), unreadable);
            if (!hit[k])
                continue;
            forget(&items[k], place_of(&items[k]));
            ck_assert_int_eq(answer(&items[k]), STATUS_NOT_FOUND);
        }
        ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), unreadable);
        if (i % 4 == 3) { /* and it stays so, though the disk can read it again */
            broken_count = 0;
            store_rig_close(&rig);
            open_with(i % 8 == 3 ? INDEX_KEPT : INDEX_REMOVED, "forgotten");
            for (int k = 0; k < ITEM_COUNT; k++)
                ck_assert_int_eq(answer(&items[k]), hit[k] ? STATUS_NOT_FOUND : STATUS_OK);
        }
        for (size_t k = 0; k < ITEM_COUNT; k++) {
            if (hit[k])
                put(k);
        }
        check_all_but(NOBODY, "stored again");
        broken_count = 0;
        locate();
    }
}
END_TEST

START_TEST(a_page_that_can_be_read_at_another_try_costs_nothing)
{
    size_t chosen[16];
    populate();
    store_rig_open(&rig);
    const size_t count = choose(3, chosen);
    for (size_t i = 0; i < count; i++) {
        const struct item *item = &items[locations[chosen[i]].item];
        lose_page_of(&locations[chosen[i]]);
        for (int times = 1; times <= 3; times++) {
            atomic_store(&broken_times, times);
            ck_assert_int_eq(answer(item), STATUS_OK);
        }
    }
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_UNREADABLE), 0);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), 0);
    check_all_but(NOBODY, "recovered");
}
END_TEST

START_TEST(reads_that_fail_for_another_reason_are_no_damage)
{
    static const int errors[] = {ENOMEM, EAGAIN, EBADF, EINVAL};
    populate();
    store_rig_open(&rig);
    lose_page_of(&locations[0]);
    for (size_t i = 0; i < ARRAY_LENGTH(errors); i++) {
        atomic_store(&broken_errno, errors[i]);
        ck_assert_int_eq(answer(&items[locations[0].item]), STATUS_UNAVAILABLE);
    }
    broken_count = 0;
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), 0);
    check_all_but(NOBODY, "after it");
}
END_TEST

/* Else all that is asked for meanwhile would be forgotten, and be stored anew once the disk is back. */
START_TEST(a_disk_that_reads_nothing_any_more_is_not_taken_for_damage_to_all_that_is_asked_for)
{
    static struct clock_sim clock;
    populate();
    clock_sim_init(&clock, 1000000 * NS_PER_S);
    rig.limits.clock = &clock.clock;
    store_rig_open(&rig);
    const struct item *item = &items[locations[0].item];
    lose_page_of(&locations[0]);
    for (int minute = 1; minute <= 2; minute++) {
        for (int i = 0; i < LIMIT_UNREADABLE_RECORDS; i++)
            ck_assert_int_eq(answer(item), STATUS_DATA_LOSS);
        for (int i = 0; i < 10; i++)
            ck_assert_int_eq(answer(item), STATUS_UNAVAILABLE);
        ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_UNREADABLE),
                         minute * LIMIT_UNREADABLE_RECORDS);
        clock_sim_advance(&clock, 60 * NS_PER_S);
    }
    broken_count = 0;
    check_all_but(NOBODY, "it is back");
    store_rig_close(&rig);
    rig.limits.clock = NULL;
    store_rig_open(&rig);
}
END_TEST

START_TEST(a_segment_header_or_footer_that_cannot_be_read_loses_nothing)
{
    populate();
    uint64_t numbers[16];
    char path[SEGMENT_PATH_BYTES_MAX];
    const size_t count = segments_with_records(numbers, ARRAY_LENGTH(numbers));
    for (size_t i = 0; i < count; i++) {
        segment_file(path, numbers[i]);
        broken_count = 0;
        lose(path, 0, 1);
        open_with(i % 2 == 0 ? INDEX_KEPT : INDEX_REMOVED, path);
        check_all_but(NOBODY, path);
        store_rig_close(&rig);
    }
    for (size_t i = 0; i < count; i++) {
        segment_file(path, numbers[i]);
        broken_count = 0;
        const uint64_t trailer = file_bytes(path) - FOOTER_TRAILER_BYTES;
        if (records_end(numbers[i]) > trailer / PAGE_BYTES * PAGE_BYTES)
            continue; /* a record shares the page */
        lose(path, trailer, trailer + 1);
        open_with(i % 2 == 0 ? INDEX_REMOVED : INDEX_KEPT, path);
        check_all_but(NOBODY, path);
        store_rig_close(&rig);
    }
}
END_TEST

START_TEST(a_segment_of_which_nothing_can_be_read_does_not_stop_the_start)
{
    populate();
    uint64_t numbers[16];
    char path[SEGMENT_PATH_BYTES_MAX];
    const size_t count = segments_with_records(numbers, ARRAY_LENGTH(numbers));
    /* With the index, which knows what was there, as long as it is kept: then what can be read again is there again. */
    for (size_t i = 0; i < 2 * count; i++) {
        segment_file(path, numbers[i % count]);
        broken_count = 0;
        lose(path, 0, UINT64_MAX);
        open_with(i < count ? INDEX_KEPT : INDEX_REMOVED, path);
        ck_assert_uint_ge(check_but_the_hit(path), 1);
        struct digest digest;
        struct status status;
        ck_assert(store_rig_put(&rig, bytes_of(&i, sizeof(i)), &digest, &status));
        ck_assert(store_rig_reads(&rig, &digest, bytes_of(&i, sizeof(i))));
        store_rig_close(&rig);
    }
}
END_TEST

/* Some of it is there; nothing at all means another disk, or none: then nobody should think that the store is empty. */
START_TEST(a_disk_of_which_nothing_can_be_read_stops_the_start_and_harms_nothing)
{
    struct status status = {0};
    char path[SEGMENT_PATH_BYTES_MAX];
    populate();
    store_file(path, "segments/");
    lose(path, 0, UINT64_MAX);
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_UNAVAILABLE);
    store_file(path, "");
    lose(path, 0, UINT64_MAX);
    ck_assert(!store_rig_try_open(&rig, &status));
    broken_count = 0;
    open_with(INDEX_KEPT, "again");
    check_all_but(NOBODY, "again");
    store_rig_close(&rig);
    open_with(INDEX_REMOVED, "again, by the segments");
    check_all_but(NOBODY, "again, by the segments");
}
END_TEST

START_TEST(a_format_file_that_cannot_be_read_does_not_prevent_the_start)
{
    populate();
    char path[SEGMENT_PATH_BYTES_MAX];
    store_file(path, "FORMAT");
    lose(path, 0, 1);
    open_with(INDEX_KEPT, "FORMAT");
    check_all_but(NOBODY, "FORMAT");
}
END_TEST

static TCase *make_case(Suite *suite, const char *name, void (*fixture)(void))
{
    TCase *made = tcase_create(name);
    tcase_set_timeout(made, 280);
    tcase_add_checked_fixture(made, fixture, end);
    suite_add_tcase(suite, made);
    return made;
}

int main(void)
{
    Suite *suite = suite_create("rot");
    TCase *simulated = make_case(suite, "simulated disk", start_simulated);
    tcase_add_test(simulated, a_rotten_record_is_lost_alone);
    tcase_add_test(simulated, a_rotten_record_is_lost_alone_when_the_index_is_rebuilt);
    tcase_add_test(simulated, a_rotten_segment_header_loses_nothing);
    tcase_add_test(simulated, a_rotten_footer_loses_nothing);
    tcase_add_test(simulated, a_rotten_format_file_does_not_prevent_the_start);
    tcase_add_test(simulated, a_rotten_format_file_of_a_store_without_segments_is_made_anew);
    tcase_add_test(simulated, what_is_in_the_lock_file_is_of_no_matter);
    tcase_add_test(simulated, a_rotten_record_of_a_crashed_store_is_lost_alone);
    tcase_add_test(simulated, a_large_hole_in_a_log_without_a_footer_does_not_hide_what_follows);
    tcase_add_test(simulated,
                   a_record_that_rots_under_a_running_store_is_lost_alone_and_can_be_stored_again);
    tcase_add_test(
        simulated,
        a_segment_header_and_a_format_file_that_rot_under_a_running_store_change_nothing);
    tcase_add_test(simulated,
                   blobs_with_bytes_in_a_segment_that_is_cut_or_gone_are_missing_from_the_start_on);
    TCase *real = make_case(suite, "real disk", start_real);
    tcase_add_test(real, a_rotten_format_file_does_not_prevent_the_start);
    tcase_add_test(real, a_rotten_index_loses_nothing_and_does_not_prevent_the_start);
    tcase_add_test(real, an_index_that_rots_while_it_is_open_loses_nothing);
    tcase_add_test(real,
                   a_record_that_rots_under_a_running_store_is_lost_alone_and_can_be_stored_again);
    tcase_add_test(real,
                   blobs_with_bytes_in_a_segment_that_is_cut_or_gone_are_missing_from_the_start_on);
    TCase *asked = make_case(suite, "unreadable pages of a running store", start_broken);
    tcase_add_test(asked,
                   a_page_that_cannot_be_read_is_damage_to_its_records_from_the_first_read_on);
    tcase_add_test(asked, a_page_that_can_be_read_at_another_try_costs_nothing);
    tcase_add_test(asked, reads_that_fail_for_another_reason_are_no_damage);
    tcase_add_test(
        asked, a_disk_that_reads_nothing_any_more_is_not_taken_for_damage_to_all_that_is_asked_for);
    TCase *unreadable = make_case(suite, "unreadable pages", start_broken);
    tcase_add_test(unreadable, a_page_that_cannot_be_read_costs_its_records_alone);
    tcase_add_test(unreadable,
                   a_page_that_cannot_be_read_costs_its_records_alone_when_the_index_is_rebuilt);
    tcase_add_test(unreadable,
                   a_page_that_cannot_be_read_does_not_stop_a_start_that_walks_its_segment);
    tcase_add_test(unreadable, a_segment_header_or_footer_that_cannot_be_read_loses_nothing);
    tcase_add_test(unreadable, a_segment_of_which_nothing_can_be_read_does_not_stop_the_start);
    tcase_add_test(unreadable,
                   a_disk_of_which_nothing_can_be_read_stops_the_start_and_harms_nothing);
    tcase_add_test(unreadable, a_format_file_that_cannot_be_read_does_not_prevent_the_start);
    return test_run(suite);
}
