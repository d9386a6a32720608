/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck finds what is damaged in a store that nobody runs, names it with its digest, segment and
 * offset, and calls nothing damaged that is not: not after a crash, not with an index that is behind
 * or gone. It changes nothing unless it is told to.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "durability/fsck.h"
#include "store/blob_reader.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { SMALL_COUNT = 10, LARGE_COUNT = 4, BLOB_COUNT = SMALL_COUNT + LARGE_COUNT };

static struct store_rig rig;
static struct digest digests[BLOB_COUNT];
static uint8_t *data[BLOB_COUNT];
static size_t lengths[BLOB_COUNT];

static void start_simulated(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
}

static void start_real(void)
{
    store_rig_start(&rig, STORE_RIG_REAL);
}

static void end(void)
{
    store_rig_end(&rig);
    for (size_t i = 0; i < BLOB_COUNT; i++)
        free(data[i]);
}

static struct store *store(void)
{
    return durability_store(rig.durability);
}

static struct io *disk(void)
{
    return rig.sim != NULL ? io_sim_io(rig.sim) : io_posix();
}

static void put_blob(size_t i)
{
    struct status status = {0};
    lengths[i] = i < SMALL_COUNT ? 100 + 997 * i : (size_t)MIB + 900000 * (i - SMALL_COUNT + 1);
    if (data[i] == NULL)
        data[i] = seeded_bytes(i, lengths[i]);
    ck_assert_msg(store_rig_put(&rig, bytes_of(data[i], lengths[i]), &digests[i], &status), "%s",
                  status.message);
}

static void populate(void)
{
    struct status status;
    for (size_t i = 0; i < BLOB_COUNT; i++)
        put_blob(i);
    ck_assert(store_rig_put_action(&rig, &digests[0], "main", bytes_of_string("old"), &status));
    ck_assert(store_rig_put_action(&rig, &digests[0], "main", bytes_of_string("new"), &status));
    ck_assert(store_rig_put_action(&rig, &digests[0], "other", bytes_of_string("x"), &status));
}

static struct place place_of(size_t i)
{
    struct place place = {0};
    ck_assert(blob_table_get(store()->table, blob_table_blob_key(store()->table, &digests[i]),
                             false, &place));
    return place;
}

static struct place chunk_of(size_t i, size_t chunk)
{
    struct blob_reader *reader = NULL;
    struct status status;
    size_t count = 0;
    ck_assert(blob_reader_open(store(), &digests[i], &reader, &status) && reader != NULL);
    const struct manifest_chunk *chunks = blob_reader_chunks(reader, &count);
    ck_assert_uint_lt(chunk, count);
    const struct place place = place_unpack(chunks[chunk].place);
    blob_reader_free(reader);
    return place;
}

static void segment_file(char path[SEGMENT_PATH_BYTES_MAX], uint64_t number)
{
    char directory[TEMP_DIR_PATH_BYTES_MAX + 16];
    snprintf(directory, sizeof(directory), "%s/segments", rig.directory.path);
    segment_path(path, directory, number, "seg");
}

static void flip_file(const char *path, uint64_t offset)
{
    struct status status;
    uint8_t byte = 0;
    size_t got = 0;
    int fd = -1;
    if (rig.sim != NULL) {
        io_sim_corrupt(rig.sim, path, offset, 0x20);
        return;
    }
    ck_assert(io_open(disk(), path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_pread(disk(), fd, &byte, 1, offset, &got, &status) && got == 1);
    byte ^= 0x20;
    const struct iovec part = {.iov_base = &byte, .iov_len = 1};
    ck_assert(io_pwritev(disk(), fd, &part, 1, offset, &status));
    io_close(disk(), fd);
}

static void flip(uint64_t segment, uint64_t offset)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_file(path, segment);
    flip_file(path, offset);
}

/* What the last check has found. */
enum { FOUND_MAX = 256 };
static struct found {
    const char *what;
    bool has_digest, in_use;
    struct digest digest;
    uint64_t segment, offset;
    char reason[256];
} found[FOUND_MAX];
static size_t found_count, note_count;

static void on_finding(void *argument, const struct fsck_finding *finding)
{
    (void)argument;
    ck_assert_uint_lt(found_count, FOUND_MAX);
    struct found *made = &found[found_count++];
    *made = (struct found){.what = finding->what,
                           .has_digest = finding->digest != NULL,
                           .in_use = finding->in_use,
                           .segment = finding->segment,
                           .offset = finding->offset};
    if (finding->digest != NULL)
        made->digest = *finding->digest;
    snprintf(made->reason, sizeof(made->reason), "%s", finding->reason);
}

static void on_note(void *argument, const char *text)
{
    (void)argument;
    (void)text;
    note_count++;
}

static void on_progress(void *argument, const struct fsck_progress *progress)
{
    (void)argument;
    ck_assert_uint_le(progress->segments, progress->segments_total);
}

static struct fsck_config config(void)
{
    return (struct fsck_config){.io = disk(),
                                .clock = clock_real(),
                                .directory = rig.directory.path,
                                .finding = on_finding,
                                .note = on_note,
                                .progress = on_progress};
}

static struct fsck_summary check(void)
{
    const struct fsck_config with = config();
    struct fsck_summary summary;
    struct fsck *fsck = NULL;
    struct status status = {0};
    found_count = 0;
    note_count = 0;
    ck_assert_msg(fsck_open(&with, &fsck, &status), "%s", status.message);
    ck_assert_msg(fsck_check(fsck, &summary, &status), "%s", status.message);
    fsck_close(fsck);
    ck_assert_uint_eq(summary.findings, found_count);
    return summary;
}

static void check_sound(const char *when)
{
    const struct fsck_summary summary = check();
    ck_assert_msg(summary.findings == 0, "%s: %s, segment %d at %d: %s", when, found[0].what,
                  (int)found[0].segment, (int)found[0].offset, found[0].reason);
}

/* One finding of this sort, and no other that is in use. */
static const struct found *the_one(const char *what, const char *when)
{
    const struct found *one = NULL;
    for (size_t i = 0; i < found_count; i++) {
        if (strcmp(found[i].what, what) == 0) {
            ck_assert_msg(one == NULL, "%s: two of %s", when, what);
            one = &found[i];
        } else {
            ck_assert_msg(!found[i].in_use, "%s: also %s at %d: %s", when, found[i].what,
                          (int)found[i].offset, found[i].reason);
        }
    }
    ck_assert_msg(one != NULL, "%s: no %s among %zu", when, what, found_count);
    return one;
}

START_TEST(a_sound_store_is_called_sound_in_every_state)
{
    struct status status;
    populate();
    store_rig_close(&rig);
    check_sound("clean");
    const struct fsck_summary summary = check();
    ck_assert_uint_eq(summary.blobs, BLOB_COUNT);
    ck_assert_uint_eq(summary.large_blobs, LARGE_COUNT);
    ck_assert_uint_eq(summary.action_results, 2);
    ck_assert_uint_eq(summary.index_entries, BLOB_COUNT + 2);

    /* Forgotten and stored again; an upload that never ended. */
    store_rig_open(&rig);
    durability_forget(rig.durability, &digests[3], NULL, place_of(3), RECORD_BLOB, FORGET_PURGED);
    durability_forget(rig.durability, &digests[SMALL_COUNT], NULL, place_of(SMALL_COUNT),
                      RECORD_MANIFEST, FORGET_PURGED);
    put_blob(SMALL_COUNT);
    const struct bytes part = bytes_of_string("a first chunk");
    struct record chunk = {.kind = RECORD_CHUNK,
                           .digest = digests[3],
                           .payload = {.parts = &part, .count = 1},
                           .payload_bytes = part.length,
                           .payload_crc32c = crc32c(0, part)};
    struct record *const chunks[] = {&chunk};
    ck_assert(segment_log_append(store()->logs[LANE_LARGE], chunks, 1, &status));
    store_rig_close(&rig);
    check_sound("forgotten");
    ck_assert_uint_eq(check().blobs, BLOB_COUNT - 1);

    store_rig_remove_index(&rig);
    check_sound("without an index");
    ck_assert_uint_eq(note_count, 1);
}
END_TEST

START_TEST(what_a_crash_leaves_is_not_called_damage)
{
    struct status status;
    struct digest digest;
    for (uint64_t n = 0; n < 30; n++) {
        uint8_t *more = seeded_bytes(n, 400000);
        io_sim_cut_power_at(rig.sim, 8 + n);
        for (size_t i = 0; i < 8; i++) {
            const size_t length = i == 3 ? 400000 : 1000 * i + 10;
            more[0]++;
            if (!store_rig_put(&rig, bytes_of(more, length), &digest, &status))
                break;
        }
        free(more);
        store_rig_crash(&rig, n, IO_SIM_CRASH_RANDOM);
        check_sound("after a crash");
        store_rig_open(&rig);
    }
}
END_TEST

START_TEST(an_index_that_is_behind_is_no_damage)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    char old[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct digest digest;
    struct status status;
    populate();
    store_rig_close(&rig);
    /* The index as it is now comes back after more has happened. */
    snprintf(path, sizeof(path), "%s/index", rig.directory.path);
    snprintf(old, sizeof(old), "%s/old", rig.directory.path);
    ck_assert_int_eq(rename(path, old), 0);
    store_rig_open(&rig);
    durability_forget(rig.durability, &digests[3], NULL, place_of(3), RECORD_BLOB, FORGET_PURGED);
    durability_forget(rig.durability, &digests[4], NULL, place_of(4), RECORD_BLOB, FORGET_PURGED);
    ck_assert(store_rig_put(&rig, bytes_of_string("more"), &digest, &status));
    put_blob(4);
    ck_assert(store_rig_put_action(&rig, &digests[0], "main", bytes_of_string("newest"), &status));
    store_rig_close(&rig);
    store_rig_remove_index(&rig);
    ck_assert_int_eq(rename(old, path), 0);
    check_sound("behind");
    ck_assert_uint_eq(check().blobs, BLOB_COUNT);
}
END_TEST

/* Where to damage what; what it is called then. */
struct hit {
    const char *what;
    size_t item;
    struct place place;
    uint64_t offset;
    bool in_use;
};

START_TEST(damage_is_named_with_its_digest_segment_and_offset)
{
    const uint64_t payload = RECORD_HEADER_BYTES;
    populate();
    const struct hit hits[] = {
        {"blob", 0, place_of(0), 5, true},
        {"blob", 2, place_of(2), payload + 600, true},
        {"manifest", SMALL_COUNT, place_of(SMALL_COUNT), 70, true},
        {"manifest", SMALL_COUNT + 1, place_of(SMALL_COUNT + 1), payload + 30, true},
        {"chunk", SMALL_COUNT + 2, chunk_of(SMALL_COUNT + 2, 1), 99, true},
        {"chunk", SMALL_COUNT + 3, chunk_of(SMALL_COUNT + 3, 0), payload + 999999, true},
        {"padding", 5, place_of(5), record_stored_bytes(lengths[5]) - 1, false},
    };
    store_rig_close(&rig);
    for (size_t i = 0; i < ARRAY_LENGTH(hits); i++) {
        const struct hit *hit = &hits[i];
        char when[64];
        snprintf(when, sizeof(when), "hit %zu", i);
        flip(hit->place.segment, hit->place.offset + hit->offset);
        check();
        const struct found *one = the_one(hit->what, when);
        ck_assert(one->has_digest);
        ck_assert(digest_equal(&one->digest, &digests[hit->item]));
        ck_assert_uint_eq(one->segment, hit->place.segment);
        ck_assert_uint_eq(one->offset, hit->place.offset);
        ck_assert_int_eq(one->in_use, hit->in_use);
        flip(hit->place.segment, hit->place.offset + hit->offset);
        check_sound(when);
    }
}
END_TEST

START_TEST(damage_around_the_records_is_named)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    populate();
    const uint64_t small = place_of(0).segment;
    struct segment *segment = segment_set_pin(store()->segments, small);
    segment_set_unpin(store()->segments, segment);
    store_rig_close(&rig);
    struct status status;
    uint64_t size = 0;
    int fd = -1;
    segment_file(path, small);
    ck_assert(io_open(disk(), path, IO_OPEN_READ, &fd, &status) &&
              io_size(disk(), fd, &size, &status));
    io_close(disk(), fd);
    const struct {
        const char *what;
        uint64_t offset;
    } hits[] = {{"segment header", 30},
                {"segment header", 3590},
                {"segment header", 2000},
                {"footer", size - 20},
                {"footer", size - FOOTER_TRAILER_BYTES - 100}};
    for (size_t i = 0; i < ARRAY_LENGTH(hits); i++) {
        flip(small, hits[i].offset);
        check();
        ck_assert_uint_eq(the_one(hits[i].what, "around")->segment, small);
        ck_assert_uint_eq(found_count, 1);
        flip(small, hits[i].offset);
    }
    snprintf(path, sizeof(path), "%s/FORMAT", rig.directory.path);
    flip_file(path, 12);
    check();
    ck_assert_ptr_nonnull(the_one("format", "format"));
    ck_assert_uint_eq(found_count, 1);
    flip_file(path, 12);
    check_sound("all turned back");
}
END_TEST

START_TEST(segments_that_are_cut_or_gone_are_named_and_what_was_in_them)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    populate();
    store_rig_close(&rig);
    store_rig_open(&rig);
    put_blob(SMALL_COUNT);
    /* A large blob over two segments. */
    size_t item = SMALL_COUNT;
    while (item < BLOB_COUNT && chunk_of(item, 0).segment == place_of(item).segment)
        item++;
    ck_assert_uint_lt(item, BLOB_COUNT);
    const uint64_t number = chunk_of(item, 0).segment;
    store_rig_close(&rig);
    segment_file(path, number);
    int fd = -1;
    ck_assert(io_open(disk(), path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_truncate(disk(), fd, 1000000, &status));
    io_close(disk(), fd);
    struct fsck_summary summary = check();
    ck_assert_uint_ge(summary.lost, 2);
    bool footer = false;
    bool named = false;
    for (size_t i = 0; i < found_count; i++) {
        footer = footer || strcmp(found[i].what, "footer") == 0;
        named = named || (found[i].has_digest && found[i].in_use &&
                          digest_equal(&found[i].digest, &digests[item]));
    }
    ck_assert(footer && named);
    ck_assert(io_unlink(disk(), path, &status));
    /* Its lane's oldest: as if it had been evicted, but for a blob that has a part of it elsewhere. */
    summary = check();
    ck_assert_uint_ge(summary.lost, 1);
    ck_assert(digest_equal(&the_one("index", "gone")->digest, &digests[item]));
}
END_TEST

START_TEST(what_the_index_still_has_of_evicted_segments_is_no_damage)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    uint64_t evicted[3];
    put_blob(SMALL_COUNT); /* in the oldest segment of the large lane, which stays */
    for (size_t i = 0; i < 4; i++) {
        put_blob(i);
        if (i < 3)
            evicted[i] = place_of(i).segment;
        store_rig_close(&rig);
        store_rig_open(&rig);
    }
    ck_assert_uint_gt(evicted[2], place_of(SMALL_COUNT).segment);
    store_rig_close(&rig);
    for (size_t i = 0; i < 3; i++) {
        segment_file(path, evicted[i]);
        ck_assert(io_unlink(disk(), path, &status));
    }
    check_sound("evicted");
    ck_assert_uint_eq(note_count, 1);
    ck_assert_uint_eq(check().blobs, 2);
}
END_TEST

START_TEST(an_index_that_lies_is_found_and_made_anew)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct index_checkpoint checkpoint;
    struct index *index = NULL;
    struct status status = {0};
    populate();
    const struct place elsewhere = place_of(5);
    const struct place lacking = place_of(7);
    store_rig_close(&rig);
    snprintf(path, sizeof(path), "%s/index", rig.directory.path);
    struct index_entry lies[] = {
        {.kind = RECORD_BLOB,
         .digest = digests[1],
         .place = elsewhere,
         .payload_bytes = lengths[1]},
        {.forget = true, .kind = RECORD_BLOB, .digest = digests[7], .place = lacking},
        {.kind = RECORD_BLOB,
         .digest = digests[2],
         .place = {.segment = 77, .offset = 4096},
         .payload_bytes = 5},
    };
    ck_assert(index_open(path, &index, &status));
    ck_assert(index_read_checkpoint(index, &checkpoint, &status));
    ck_assert(index_write(index, lies, ARRAY_LENGTH(lies), &checkpoint, &status));
    index_close(index);
    const struct fsck_summary summary = check();
    /* Two that lead astray, and three that are lacking: those two, and the one that was taken out. */
    ck_assert_uint_eq(summary.findings, 5);
    size_t of[BLOB_COUNT] = {0};
    for (size_t i = 0; i < found_count; i++) {
        ck_assert_str_eq(found[i].what, "index");
        for (size_t k = 0; k < BLOB_COUNT; k++)
            of[k] += found[i].has_digest && digest_equal(&found[i].digest, &digests[k]);
    }
    ck_assert_uint_eq(of[1], 2);
    ck_assert_uint_eq(of[2], 2);
    ck_assert_uint_eq(of[7], 1);

    const struct fsck_config with = config();
    uint64_t entries = 0;
    ck_assert_msg(fsck_rebuild_index(&with, &entries, &status), "%s", status.message);
    ck_assert_uint_eq(entries, BLOB_COUNT + 2);
    check_sound("rebuilt");
    store_rig_open(&rig);
    ck_assert(!rig.report.index_rebuilt);
    for (size_t i = 0; i < BLOB_COUNT; i++)
        ck_assert(store_rig_reads(&rig, &digests[i], bytes_of(data[i], lengths[i])));
}
END_TEST

static struct digest put_wrong(struct record *record, enum lane lane, const char *name, size_t size)
{
    struct store_put put;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(name), &record->digest);
    record->digest.size_bytes = (int64_t)size;
    store_put_start_record(&rig, &put, record, lane);
    ck_assert_msg(store_put_finish(&put, &status), "%s", status.message);
    return record->digest;
}

START_TEST(blobs_that_are_not_their_names_are_found_by_their_hash)
{
    const struct bytes payload = bytes_of_string("what is stored");
    struct record blob = {.kind = RECORD_BLOB,
                          .payload = {.parts = &payload, .count = 1},
                          .payload_bytes = payload.length,
                          .payload_crc32c = crc32c(0, payload)};
    struct status status;
    populate();
    const struct digest small = put_wrong(&blob, LANE_SMALL, "small", payload.length);
    uint8_t *bytes = seeded_bytes(5, MIB);
    const struct bytes part = bytes_of(bytes, MIB);
    struct manifest_chunk list[2];
    struct record chunk = {.kind = RECORD_CHUNK,
                           .payload = {.parts = &part, .count = 1},
                           .payload_bytes = MIB,
                           .payload_crc32c = crc32c(0, part)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("large"), &chunk.digest);
    chunk.digest.size_bytes = 2 * MIB;
    for (uint32_t i = 0; i < 2; i++) {
        struct record *const chunks[] = {&chunk};
        chunk.blob_offset = i * MIB;
        ck_assert(segment_log_append(store()->logs[LANE_LARGE], chunks, 1, &status));
        list[i] = (struct manifest_chunk){.place = place_pack(chunk.place),
                                          .blob_offset = chunk.blob_offset,
                                          .payload_bytes = MIB,
                                          .payload_crc32c = chunk.payload_crc32c};
    }
    const struct bytes names = bytes_of(list, sizeof(list));
    struct record manifest = {.kind = RECORD_MANIFEST,
                              .payload = {.parts = &names, .count = 1},
                              .payload_bytes = names.length,
                              .payload_crc32c = crc32c(0, names)};
    const struct digest large = put_wrong(&manifest, LANE_LARGE, "large", 2 * MIB);
    free(bytes);
    store_rig_close(&rig);
    const struct fsck_summary summary = check();
    ck_assert_uint_eq(summary.findings, 2);
    ck_assert_uint_eq(summary.lost, 2);
    for (size_t i = 0; i < 2; i++) {
        const bool is_small = digest_equal(&found[i].digest, &small);
        ck_assert(is_small || digest_equal(&found[i].digest, &large));
        ck_assert_str_eq(found[i].what, is_small ? "blob" : "large blob");
    }
}
END_TEST

START_TEST(a_store_in_use_and_a_directory_of_something_else_are_not_opened)
{
    const struct fsck_config with = config();
    struct fsck_config nowhere = config();
    struct fsck *fsck = NULL;
    struct status status = {0};
    uint64_t entries = 0;
    ck_assert(!fsck_open(&with, &fsck, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    ck_assert(!fsck_rebuild_index(&with, &entries, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
    nowhere.directory = "/";
    ck_assert(!fsck_open(&nowhere, &fsck, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!fsck_rebuild_index(&nowhere, &entries, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fsck");
    TCase *simulated = tcase_create("simulated disk");
    tcase_set_timeout(simulated, 200);
    tcase_add_checked_fixture(simulated, start_simulated, end);
    tcase_add_test(simulated, a_sound_store_is_called_sound_in_every_state);
    tcase_add_test(simulated, what_a_crash_leaves_is_not_called_damage);
    tcase_add_test(simulated, damage_is_named_with_its_digest_segment_and_offset);
    tcase_add_test(simulated, damage_around_the_records_is_named);
    tcase_add_test(simulated, blobs_that_are_not_their_names_are_found_by_their_hash);
    suite_add_tcase(suite, simulated);
    TCase *real = tcase_create("real disk");
    tcase_set_timeout(real, 200);
    tcase_add_checked_fixture(real, start_real, end);
    tcase_add_test(real, a_sound_store_is_called_sound_in_every_state);
    tcase_add_test(real, an_index_that_is_behind_is_no_damage);
    tcase_add_test(real, segments_that_are_cut_or_gone_are_named_and_what_was_in_them);
    tcase_add_test(real, what_the_index_still_has_of_evicted_segments_is_no_damage);
    tcase_add_test(real, an_index_that_lies_is_found_and_made_anew);
    tcase_add_test(real, a_store_in_use_and_a_directory_of_something_else_are_not_opened);
    suite_add_tcase(suite, real);
    return test_run(suite);
}
