/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane that has no segment to append to: whose appends have run ahead of its disk, or that cannot make one. In the first case full
 * segments wait for a sync, and who appends chunks waits with them. The committer must not, since it is the one who syncs; it did, for good, when its own record was the one that did not fit. On the
 * simulated disk, with rounds and no threads, so that a wait without end is one, and the time limit of the test ends it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

static struct temp_dir directory;
static struct io_sim *sim;
static struct metrics metrics;
static struct buffer_pool *buffers;
static struct store *store;
static struct acker *acker;
static struct indexer *indexer;
static struct commit *commit; /* of the large lane */
static uint8_t *data;
static struct manifest_chunk last_chunk;

static void make_parents(struct io *io)
{
    char path[TEMP_DIR_PATH_BYTES_MAX];
    char above[TEMP_DIR_PATH_BYTES_MAX] = "/";
    struct status status;
    for (size_t i = 1; directory.path[i] != '\0'; i++) {
        if (directory.path[i] != '/')
            continue;
        memcpy(path, directory.path, i);
        path[i] = '\0';
        ck_assert(io_make_directory(io, path, &status));
        ck_assert(io_sync_directory(io, above, &status));
        memcpy(above, path, i + 1);
    }
}

static void start(void)
{
    struct status status;
    struct index *index = NULL;
    struct recovery_report report = {0};
    char index_path[TEMP_DIR_PATH_BYTES_MAX + 8];
    temp_dir_make(&directory);
    sim = io_sim_new();
    make_parents(io_sim_io(sim));
    data = seeded_bytes(1, LIMIT_CHUNK_BYTES);
    const struct store_config config = {
        .io = io_sim_io(sim),
        .clock = clock_real(),
        .metrics = &metrics,
        .directory = directory.path,
        .segment_bytes = {SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN},
    };
    snprintf(index_path, sizeof(index_path), "%s/index", directory.path);
    ck_assert(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, 8, &buffers, &status));
    ck_assert_msg(store_open(&config, &store, &status), "%s", status.message);
    ck_assert_msg(recovery_run(store, index_path, &index, &report, &status), "%s", status.message);
    ck_assert(indexer_new(store, index_path, index, &indexer, &status));
    ck_assert(acker_new(&acker, &status));
    const struct commit_config commits = {
        .store = store, .lane = LANE_LARGE, .acker = acker, .indexer = indexer};
    ck_assert(commit_new(&commits, &commit, &status));
}

static void end(void)
{
    commit_free(commit);
    acker_free(acker);
    indexer_free(indexer);
    store_close(store);
    buffer_pool_free(buffers);
    io_sim_free(sim);
    temp_dir_remove(&directory);
    free(data);
}

/* Appends a chunk; where it ends, and in which segment. */
static struct place append_chunk(size_t length)
{
    const struct bytes payload = bytes_of(data, length);
    struct status status;
    struct record chunk = {
        .kind = RECORD_CHUNK,
        .digest = {.function = DIGEST_FUNCTION_SHA256, .hash_length = 32, .size_bytes = 1 << 30},
        .payload = {.parts = &payload, .count = 1},
        .payload_bytes = length,
        .payload_crc32c = crc32c(0, payload),
    };
    struct record *const records[] = {&chunk};
    ck_assert_msg(segment_log_append(store->logs[LANE_LARGE], records, 1, &status), "%s",
                  status.message);
    last_chunk = (struct manifest_chunk){.place = place_pack(chunk.place)};
    return (struct place){.segment = chunk.place.segment,
                          .offset = chunk.place.offset + record_stored_bytes(length)};
}

/* As many full segments as appends of chunks may leave, and an active one with no room for a record. */
static void crowd_the_log(void)
{
    struct segment_log *const log = store->logs[LANE_LARGE];
    uint64_t segment = 0;
    uint64_t end_offset = 0;
    size_t records = 0;
    while (!segment_log_is_crowded(log)) {
        const struct place behind = append_chunk(LIMIT_CHUNK_BYTES);
        records = behind.segment == segment ? records + 1 : 1;
        segment = behind.segment;
        end_offset = behind.offset;
    }
    for (;;) {
        const uint64_t taken =
            end_offset + (records + 1) * FOOTER_ENTRY_BYTES + FOOTER_TRAILER_BYTES;
        if (taken + record_stored_bytes(1) > SEGMENT_BYTES_MIN)
            return;
        const uint64_t left = SEGMENT_BYTES_MIN - taken - RECORD_HEADER_BYTES;
        end_offset =
            append_chunk(left < LIMIT_CHUNK_BYTES ? (size_t)left : LIMIT_CHUNK_BYTES).offset;
        records++;
    }
}

static struct status told;
static int told_count;

static void remember(struct ack *ack, const struct status *result)
{
    (void)ack;
    told = *result;
    told_count++;
}

static void submit_manifest(struct record *manifest,
                            struct bytes *payload,
                            struct commit_request *request)
{
    /* It names a chunk in a segment that is there, if there is one. */
    *payload = bytes_of(&last_chunk, last_chunk.place != 0 ? sizeof(last_chunk) : 0);
    *manifest = (struct record){
        .kind = RECORD_MANIFEST,
        .digest = {.function = DIGEST_FUNCTION_SHA256, .hash_length = 32, .size_bytes = 1 << 30},
        .payload = {.parts = payload, .count = 1},
        .payload_bytes = payload->length,
        .payload_crc32c = crc32c(0, *payload),
    };
    *request = (struct commit_request){.record = manifest, .ack.done = remember};
    commit_submit(commit, request);
}

START_TEST(a_committer_whose_record_does_not_fit_into_a_crowded_log_does_not_wait_for_itself)
{
    struct record manifest;
    struct bytes payload;
    struct commit_request request;
    crowd_the_log();
    ck_assert(segment_log_is_crowded(store->logs[LANE_LARGE]));
    submit_manifest(&manifest, &payload, &request);
    ck_assert(commit_round(commit));
    ck_assert(acker_round(acker));
    ck_assert_int_eq(told_count, 1);
    ck_assert_msg(told.code == STATUS_OK, "%s", told.message);
    ck_assert(!segment_log_is_crowded(store->logs[LANE_LARGE]));
}
END_TEST

/* The disk is full just when the committer has put its full segment aside: the next round must find room for one more. */
START_TEST(a_full_disk_under_a_crowded_log_is_survived)
{
    struct record manifests[3];
    struct bytes payloads[3];
    struct commit_request requests[3];
    for (int i = 0; i < 3; i++) {
        crowd_the_log();
        io_sim_set_capacity(sim, 1);
        submit_manifest(&manifests[i], &payloads[i], &requests[i]);
        ck_assert(commit_round(commit));
        ck_assert(acker_round(acker));
        ck_assert_int_eq(told.code, STATUS_RESOURCE_EXHAUSTED);
        io_sim_set_capacity(sim, 0);
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100 * NS_PER_MS},
                  NULL); /* then it is tried again */
    }
    append_chunk(LIMIT_CHUNK_BYTES);
}
END_TEST

/* The sync of a round goes through every segment that the log has left since the last one, not only the one it is in. */
START_TEST(what_lies_in_full_segments_is_durable_with_what_is_acknowledged_behind_it)
{
    enum { CHUNKS = 2 * SEGMENT_BYTES_MIN / LIMIT_CHUNK_BYTES };
    struct place places[CHUNKS];
    struct record manifest;
    struct bytes payload;
    struct commit_request request;
    for (size_t i = 0; i < CHUNKS; i++) {
        append_chunk(LIMIT_CHUNK_BYTES);
        places[i] = place_unpack(last_chunk.place);
    }
    ck_assert_uint_gt(places[CHUNKS - 1].segment, places[0].segment);
    submit_manifest(&manifest, &payload, &request);
    ck_assert(commit_round(commit));
    ck_assert(acker_round(acker));
    ck_assert_int_eq(told.code, STATUS_OK);
    io_sim_crash(sim, 0, IO_SIM_CRASH_NOTHING);
    uint8_t *memory = malloc(LIMIT_POOL_BUFFER_BYTES);
    for (size_t i = 0; i < CHUNKS; i++) {
        struct segment *segment = NULL;
        struct record_header header;
        struct bytes found;
        struct status status = {0};
        ck_assert_msg(segment_open(io_sim_io(sim), store->segments_directory, places[i].segment,
                                   &segment, &status),
                      "%s", status.message);
        ck_assert_msg(segment_read_record(segment, places[i].offset, LIMIT_POOL_BUFFER_BYTES,
                                          memory, LIMIT_POOL_BUFFER_BYTES, &header, &found,
                                          &status),
                      "chunk %zu: %s", i, status.message);
        segment_free(segment);
    }
    free(memory);
}
END_TEST

/* Not every reason is a full disk; none is the client's, and where the data lies is none of its business. */
START_TEST(a_segment_that_cannot_be_made_is_unavailable_and_shows_the_client_no_path)
{
    static const int reasons[] = {ENOENT, EACCES, EROFS, EMFILE};
    struct record manifest;
    struct bytes payload;
    struct commit_request request;
    io_sim_fail(sim, IO_SIM_OPEN, 1, reasons[_i], IO_SIM_FOREVER);
    submit_manifest(&manifest, &payload, &request);
    ck_assert(commit_round(commit));
    ck_assert(acker_round(acker));
    ck_assert_int_eq(told.code,
                     reasons[_i] == EMFILE ? STATUS_RESOURCE_EXHAUSTED : STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(told.message, strerror(reasons[_i])));
    ck_assert_ptr_null(strstr(told.message, directory.path));
    io_sim_fail_nothing(sim);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crowded_log");
    TCase *tests = tcase_create("crowded log");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, start, end);
    tcase_add_test(
        tests, a_committer_whose_record_does_not_fit_into_a_crowded_log_does_not_wait_for_itself);
    tcase_add_test(tests, a_full_disk_under_a_crowded_log_is_survived);
    tcase_add_test(tests,
                   what_lies_in_full_segments_is_durable_with_what_is_acknowledged_behind_it);
    tcase_add_loop_test(
        tests, a_segment_that_cannot_be_made_is_unavailable_and_shows_the_client_no_path, 0, 4);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
