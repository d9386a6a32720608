/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scrub finds what has rotted before anybody asks for it: every kind of record, in sealed
 * segments and in those that are written to, and nothing else. What it finds is gone from then on,
 * and over restarts. Rounds are run here, one after the other, without its thread, but for the last
 * tests.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "durability/scrub.h"
#include "store/blob_reader.h"
#include "store/line_file.h"
#include "store/segment_check.h"
#include "store/segment_contents.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { SMALL_COUNT = 12, LARGE_COUNT = 5, BLOB_COUNT = SMALL_COUNT + LARGE_COUNT };

static struct store_rig rig;
static struct digest digests[BLOB_COUNT];
static uint8_t *data[BLOB_COUNT];
static size_t lengths[BLOB_COUNT];
static struct scrub *scrub;

static const char instance[] = "main/linux";

static void start(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
    scrub = NULL;
}

static void end(void)
{
    scrub_free(scrub);
    store_rig_end(&rig);
    for (size_t i = 0; i < BLOB_COUNT; i++)
        free(data[i]);
}

static struct store *store(void)
{
    return durability_store(rig.durability);
}

static void open_scrub(void)
{
    const struct scrub_config config = {
        .store = store(), .small_lane = durability_commit(rig.durability, LANE_SMALL)};
    struct status status;
    ck_assert(scrub_new(&config, &scrub, &status));
}

static void close_scrub(void)
{
    scrub_free(scrub);
    scrub = NULL;
}

static struct scrub_progress progress(void)
{
    struct scrub_progress found;
    scrub_progress(scrub, &found);
    return found;
}

/* One whole pass; how much was damaged. */
static uint64_t pass(void)
{
    open_scrub();
    const uint64_t before = progress().passes;
    scrub_start(scrub);
    while (scrub_step(scrub) && progress().passes == before) {
    }
    const struct scrub_progress found = progress();
    ck_assert_uint_eq(found.passes, before + 1);
    ck_assert(!found.running);
    close_scrub();
    return found.damaged;
}

static void put_blob(size_t i)
{
    struct status status = {0};
    lengths[i] = i < SMALL_COUNT ? 100 + 997 * i : (size_t)MIB + 300000 * i;
    if (data[i] == NULL)
        data[i] = seeded_bytes(i, lengths[i]);
    ck_assert_msg(store_rig_put(&rig, bytes_of(data[i], lengths[i]), &digests[i], &status), "%s",
                  status.message);
}

static void put_actions(void)
{
    struct status status;
    ck_assert(
        store_rig_put_action(&rig, &digests[0], instance, bytes_of_string("a result"), &status));
    ck_assert(
        store_rig_put_action(&rig, &digests[0], "other", bytes_of_string("another"), &status));
}

static void populate(void)
{
    for (size_t i = 0; i < BLOB_COUNT; i++)
        put_blob(i);
    put_actions();
}

static void restart(void)
{
    store_rig_close(&rig);
    store_rig_open(&rig);
}

static bool has_action(const char *of)
{
    char *found = store_rig_action(&rig, &digests[0], of);
    const bool has = found != NULL;
    free(found);
    return has;
}

/* Everything is there but `lost`, -1: everything. BLOB_COUNT: the action result. */
static void check_all_but(int lost)
{
    for (int i = 0; i < BLOB_COUNT; i++) {
        ck_assert_msg(store_rig_has(&rig, &digests[i]) == (i != lost), "blob %d, lost %d", i, lost);
        if (i != lost)
            ck_assert(store_rig_reads(&rig, &digests[i], bytes_of(data[i], lengths[i])));
    }
    ck_assert_int_eq(has_action(instance), lost != BLOB_COUNT);
    ck_assert(has_action("other"));
}

static void flip(uint64_t segment, uint64_t offset)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, store()->segments_directory, segment, "seg");
    io_sim_corrupt(rig.sim, path, offset, 0x08);
}

static struct place place_of(size_t i)
{
    struct place place = {0};
    const struct blob_key key = i == BLOB_COUNT ? blob_table_action_key(store()->table, &digests[0],
                                                                        bytes_of_string(instance))
                                                : blob_table_blob_key(store()->table, &digests[i]);
    ck_assert(blob_table_get(store()->table, key, false, &place));
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

START_TEST(a_pass_over_a_sound_store_reads_everything_and_finds_nothing)
{
    populate();
    restart();
    put_blob(0);
    ck_assert_uint_eq(pass(), 0);
    check_all_but(-1);
    const int64_t bytes = metrics_get(&rig.metrics, METRIC_SCRUB_BYTES);
    int64_t stored = 0;
    for (size_t i = 0; i < BLOB_COUNT; i++)
        stored += (int64_t)lengths[i];
    ck_assert_int_ge(bytes, stored);
    ck_assert_int_le(bytes, stored + 64 * 1024);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_SCRUB_PASSES), 1);
    ck_assert_int_gt(metrics_get(&rig.metrics, METRIC_SCRUB_LAST_PASS), 0);
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), 0);
}
END_TEST

/* Where to damage what, and whose it then is. */
struct hit {
    size_t item;
    struct place place;
    uint64_t offset;
};

enum { HITS = 12 };

static void choose_hits(struct hit hits[HITS])
{
    const uint64_t payload = RECORD_HEADER_BYTES;
    const struct hit chosen[HITS] = {
        {0, place_of(0), 3},
        {1, place_of(1), 70},
        {2, place_of(2), payload},
        {3, place_of(3), payload + 500},
        {SMALL_COUNT, place_of(SMALL_COUNT), 20},
        {SMALL_COUNT + 1, place_of(SMALL_COUNT + 1), payload + 30},
        {SMALL_COUNT + 2, chunk_of(SMALL_COUNT + 2, 0), 9},
        {SMALL_COUNT + 3, chunk_of(SMALL_COUNT + 3, 1), payload + 12345},
        {SMALL_COUNT + 4, chunk_of(SMALL_COUNT + 4, 2), 66},
        {BLOB_COUNT, place_of(BLOB_COUNT), 40},
        {BLOB_COUNT, place_of(BLOB_COUNT), payload + 2},
        {BLOB_COUNT, place_of(BLOB_COUNT),
         payload + ACTION_RECORD_FIXED_BYTES + sizeof(instance) + 6},
    };
    memcpy(hits, chosen, sizeof(chosen));
}

static void put_again(size_t item)
{
    if (item == BLOB_COUNT)
        put_actions();
    else
        put_blob(item);
}

START_TEST(a_rotten_record_in_a_sealed_segment_is_found_and_forgotten_alone)
{
    struct hit hits[HITS];
    populate();
    restart();
    for (size_t i = 0; i < HITS; i++) {
        choose_hits(hits);
        const struct hit *hit = &hits[i];
        const int64_t before = metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED);
        flip(hit->place.segment, hit->place.offset + hit->offset);
        ck_assert_uint_ge(pass(), 1);
        check_all_but((int)hit->item);
        ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECORDS_DAMAGED), before + 1);
        /* It is known to be gone, whatever the index on disk says or the footers. */
        if (i % 3 == 0) {
            store_rig_close(&rig);
            store_rig_remove_index(&rig);
            store_rig_open(&rig);
        } else {
            restart();
        }
        if (hit->item != BLOB_COUNT)
            ck_assert(!store_rig_has(&rig, &digests[hit->item]));
        put_again(hit->item);
        restart();
        /* What is not in use any more is nobody's loss, though it is still damaged. */
        ck_assert_uint_ge(pass(), 1);
        check_all_but(-1);
    }
}
END_TEST

START_TEST(a_rotten_record_in_a_segment_that_is_written_to_is_found_and_forgotten_alone)
{
    struct hit hits[HITS];
    populate();
    /* One behind each lane's records: what rots at the very end has nothing behind it to tell. */
    struct digest digest;
    struct status status;
    uint8_t *more = seeded_bytes(77, 1500000);
    ck_assert(store_rig_put(&rig, bytes_of(more, 1500000), &digest, &status));
    ck_assert(store_rig_put(&rig, bytes_of(more, 1000), &digest, &status));
    free(more);
    for (size_t i = 0; i < HITS; i++) {
        choose_hits(hits);
        const struct hit *hit = &hits[i];
        flip(hit->place.segment, hit->place.offset + hit->offset);
        ck_assert_uint_ge(pass(), 1);
        check_all_but((int)hit->item);
        put_again(hit->item);
        check_all_but(-1);
    }
}
END_TEST

START_TEST(what_rots_between_the_records_is_told_and_nothing_is_lost)
{
    populate();
    restart();
    struct place place = place_of(5);
    const uint64_t stored = record_stored_bytes(lengths[5]);
    ck_assert_uint_gt(stored, RECORD_HEADER_BYTES + lengths[5]);
    flip(place.segment, place.offset + stored - 1);
    ck_assert_uint_eq(pass(), 1);
    flip(place.segment, 20);
    ck_assert_uint_eq(pass(), 2);
    struct segment *segment = segment_set_pin(store()->segments, place.segment);
    flip(place.segment, segment->file_bytes - 1);
    segment_set_unpin(store()->segments, segment);
    ck_assert_uint_eq(pass(), 3);
    check_all_but(-1);
}
END_TEST

/* Submits a record as it is, and waits. */
static void submit(struct record *record, enum lane lane)
{
    struct store_put put;
    struct status status = {0};
    store_put_start_record(&rig, &put, record, lane);
    ck_assert_msg(store_put_finish(&put, &status), "%s", status.message);
}

START_TEST(a_blob_with_a_sound_checksum_that_is_not_its_name_is_found)
{
    const struct bytes payload = bytes_of_string("what is stored");
    struct record record = {.kind = RECORD_BLOB,
                            .payload = {.parts = &payload, .count = 1},
                            .payload_bytes = payload.length,
                            .payload_crc32c = crc32c(0, payload)};
    populate();
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("what is asked "), &record.digest);
    submit(&record, LANE_SMALL);
    ck_assert(store_rig_has(&rig, &record.digest));
    ck_assert_uint_eq(pass(), 1);
    ck_assert(!store_rig_has(&rig, &record.digest));
    check_all_but(-1);
}
END_TEST

/* Chunks of one blob, each with a sound checksum, and a MANIFEST of them. */
static struct digest put_chunks(const uint8_t *bytes, size_t length, const struct digest *name)
{
    struct manifest_chunk list[8];
    struct status status = {0};
    size_t count = 0;
    for (size_t at = 0; at < length; at += MIB, count++) {
        const struct bytes part = bytes_of(bytes + at, length - at < MIB ? length - at : MIB);
        struct record chunk = {.kind = RECORD_CHUNK,
                               .digest = *name,
                               .blob_offset = at,
                               .payload = {.parts = &part, .count = 1},
                               .payload_bytes = part.length,
                               .payload_crc32c = crc32c(0, part)};
        struct record *const chunks[] = {&chunk};
        ck_assert(segment_log_append(store()->logs[LANE_LARGE], chunks, 1, &status));
        list[count] = (struct manifest_chunk){.place = place_pack(chunk.place),
                                              .blob_offset = at,
                                              .payload_bytes = (uint32_t)part.length,
                                              .payload_crc32c = chunk.payload_crc32c};
    }
    const struct bytes payload = bytes_of(list, count * sizeof(list[0]));
    struct record manifest = {.kind = RECORD_MANIFEST,
                              .digest = *name,
                              .payload = {.parts = &payload, .count = 1},
                              .payload_bytes = payload.length,
                              .payload_crc32c = crc32c(0, payload)};
    submit(&manifest, LANE_LARGE);
    return *name;
}

START_TEST(a_large_blob_of_sound_chunks_that_is_not_its_name_is_found)
{
    uint8_t *bytes = seeded_bytes(4711, 3 * MIB);
    struct digest name;
    populate();
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(bytes, 3 * MIB), &name);
    const struct digest good = put_chunks(bytes, 3 * MIB, &name);
    bytes[2 * MIB] ^= 1;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(bytes, 3 * MIB), &name);
    bytes[100] ^= 1;
    const struct digest bad = put_chunks(bytes, 3 * MIB, &name);
    free(bytes);
    restart();
    ck_assert_uint_eq(pass(), 1);
    ck_assert(store_rig_has(&rig, &good));
    ck_assert(!store_rig_has(&rig, &bad));
    check_all_but(-1);
}
END_TEST

START_TEST(rot_in_what_an_upload_left_behind_does_not_touch_the_blob)
{
    const struct bytes part = bytes_of_string("the wrong first chunk of an upload that failed");
    struct status status;
    const size_t item = SMALL_COUNT + 1;
    uint8_t *bytes = seeded_bytes(item, (size_t)MIB + 300000 * item);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(bytes, (size_t)MIB + 300000 * item),
                    &digests[item]);
    free(bytes);
    struct record chunk = {.kind = RECORD_CHUNK,
                           .digest = digests[item],
                           .payload = {.parts = &part, .count = 1},
                           .payload_bytes = part.length,
                           .payload_crc32c = crc32c(0, part)};
    struct record *const chunks[] = {&chunk};
    ck_assert(segment_log_append(store()->logs[LANE_LARGE], chunks, 1, &status));
    populate();
    restart();
    ck_assert_uint_eq(pass(), 0);
    flip(chunk.place.segment, chunk.place.offset + RECORD_HEADER_BYTES + 1);
    ck_assert_uint_eq(pass(), 1);
    check_all_but(-1);
    flip(chunk.place.segment, chunk.place.offset + 1);
    ck_assert_uint_eq(pass(), 1);
    check_all_but(-1);
}
END_TEST

START_TEST(a_blob_whose_chunks_are_gone_is_found_at_its_manifest)
{
    populate();
    restart();
    size_t item = SMALL_COUNT;
    while (item < BLOB_COUNT && chunk_of(item, 0).segment == place_of(item).segment)
        item++;
    ck_assert_uint_lt(item, BLOB_COUNT); /* one of them lies over two segments */
    ck_assert_ptr_nonnull(segment_set_condemn(store()->segments, chunk_of(item, 0).segment));
    ck_assert_uint_ge(pass(), 1);
    ck_assert(!store_rig_has(&rig, &digests[item]));
}
END_TEST

START_TEST(a_pass_goes_on_after_a_restart_where_it_was)
{
    populate();
    restart();
    populate();
    for (size_t i = 0; i < 3; i++) {
        struct digest digest;
        struct status status;
        uint8_t *more = seeded_bytes(900 + i, 700000);
        ck_assert(store_rig_put(&rig, bytes_of(more, 700000), &digest, &status));
        free(more);
        restart();
    }
    const int64_t before = metrics_get(&rig.metrics, METRIC_SCRUB_BYTES);
    open_scrub();
    scrub_start(scrub);
    size_t rounds = 0;
    uint64_t total = 0;
    /* Into the third segment, and away. */
    while (scrub_step(scrub) && rounds < 4)
        rounds++;
    const struct scrub_progress at = progress();
    ck_assert(at.running);
    ck_assert_uint_gt(at.done_bytes, 0);
    ck_assert_uint_lt(at.done_bytes, at.total_bytes);
    total = at.total_bytes;
    close_scrub();
    restart();
    open_scrub();
    ck_assert(progress().running);
    ck_assert_uint_gt(progress().done_bytes, 0);
    while (scrub_step(scrub) && progress().passes == 0) {
    }
    ck_assert_uint_eq(progress().passes, 1);
    close_scrub();
    const uint64_t bytes = (uint64_t)(metrics_get(&rig.metrics, METRIC_SCRUB_BYTES) - before);
    ck_assert_uint_lt(bytes, total + total / 2);

    /* The count of passes is kept; a file that is damaged only costs that. */
    open_scrub();
    ck_assert_uint_eq(progress().passes, 1);
    close_scrub();
    char path[SEGMENT_PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/scrub", rig.directory.path);
    io_sim_corrupt(rig.sim, path, 16, 1);
    open_scrub();
    ck_assert_uint_eq(progress().passes, 0);
    close_scrub();
    ck_assert_uint_eq(pass(), 0);
}
END_TEST

START_TEST(a_segment_that_is_evicted_under_the_scrub_is_left)
{
    populate();
    restart();
    open_scrub();
    scrub_start(scrub);
    while (scrub_step(scrub) && progress().segment == 0) {
    }
    const uint64_t number = progress().segment;
    ck_assert_uint_gt(number, 0);
    struct segment *segment = segment_set_condemn(store()->segments, number);
    ck_assert(
        segment_set_remove(store()->segments, number)); /* it has no pin on it between rounds */
    while (scrub_step(scrub) && progress().passes == 0) {
    }
    ck_assert_uint_eq(progress().passes, 1);
    segment_free(segment);
}
END_TEST

START_TEST(a_store_that_has_failed_is_not_scrubbed)
{
    struct digest digest;
    struct status status;
    populate();
    const struct place place = place_of(3);
    io_sim_fail(rig.sim, IO_SIM_SYNC, 1, EIO, IO_SIM_ONCE);
    ck_assert(!store_rig_put(&rig, bytes_of_string("fails"), &digest, &status));
    flip(place.segment, place.offset + RECORD_HEADER_BYTES);
    open_scrub();
    scrub_start(scrub);
    ck_assert(!scrub_step(scrub));
    ck_assert(store_rig_has(&rig, &digests[3]));
}
END_TEST

/* ---- its thread */

static void wait_for_pass(uint64_t passes)
{
    struct scrub_progress found;
    for (int i = 0; i < 3000; i++) {
        scrub_progress(durability_scrub(rig.durability), &found);
        if (found.passes >= passes && !found.running)
            return;
        clock_pause(10 * NS_PER_MS);
    }
    ck_abort_msg("no pass in 30 s");
}

START_TEST(a_pass_that_is_asked_for_runs_beside_everything_else)
{
    populate();
    restart();
    const struct place place = place_of(7);
    flip(place.segment, place.offset + RECORD_HEADER_BYTES + 5);
    scrub_start(durability_scrub(rig.durability));
    put_blob(0);
    wait_for_pass(1);
    check_all_but(7);
    put_blob(7);
    scrub_start(durability_scrub(rig.durability));
    wait_for_pass(2);
    check_all_but(-1);
}
END_TEST

START_TEST(a_pass_begins_by_itself_when_a_rate_is_set_and_keeps_to_it)
{
    populate();
    store_rig_close(&rig);
    rig.scrub_bytes_per_s = 16 * MIB;
    const int64_t before_ns = clock_monotonic_ns(clock_real());
    store_rig_open(&rig);
    wait_for_pass(1);
    const int64_t took_ns = clock_monotonic_ns(clock_real()) - before_ns;
    const int64_t bytes = metrics_get(&rig.metrics, METRIC_SCRUB_BYTES);
    ck_assert_int_gt(bytes, 8 * (int64_t)MIB);
    /* The last slice of each lane is not waited for. */
    ck_assert_int_ge(took_ns, (bytes - 8 * (int64_t)MIB) * NS_PER_S / (16 * (int64_t)MIB));
    check_all_but(-1);
    /* The next one is due in a day, also after a restart. */
    restart();
    clock_pause(1500 * NS_PER_MS);
    struct scrub_progress found;
    scrub_progress(durability_scrub(rig.durability), &found);
    ck_assert_uint_eq(found.passes, 1);
    ck_assert(!found.running);
}
END_TEST

/* ---- sectors that cannot be read */

static struct io broken;
static struct io_ops broken_ops;
static uint64_t broken_from, broken_to;

static int64_t broken_pread(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    (void)io;
    if (offset < broken_to && offset + length > broken_from)
        return -EIO;
    return io_posix()->ops->pread(io_posix(), fd, buffer, length, offset);
}

static bool note_finding(void *argument,
                         const struct segment_finding *finding,
                         struct status *status)
{
    uint64_t *offsets = argument;
    (void)status;
    offsets[++offsets[0]] = finding->offset;
    return true;
}

START_TEST(a_sector_that_cannot_be_read_is_taken_for_damage_to_its_record)
{
    end();
    store_rig_start(&rig, STORE_RIG_REAL);
    memset(data, 0, sizeof(data));
    populate();
    const struct place places[] = {place_of(4), place_of(9)};
    restart();
    broken_ops = *io_posix()->ops;
    broken_ops.pread = broken_pread;
    broken.ops = &broken_ops;
    struct segment *segment = NULL;
    struct footer_entry *entries = NULL;
    struct footer_trailer trailer;
    struct status status = {0};
    ck_assert(
        segment_open(&broken, store()->segments_directory, places[0].segment, &segment, &status));
    ck_assert(segment_read_footer(segment, &entries, &trailer, &status) && entries != NULL);
    for (size_t i = 0; i < 2; i++) {
        uint64_t offsets[64] = {0};
        broken_from = places[i].offset + RECORD_HEADER_BYTES + 10;
        broken_to = broken_from + 100;
        struct segment_check check = {.segment = segment,
                                      .entries = entries,
                                      .entry_count = (size_t)trailer.entries,
                                      .to = segment->end,
                                      .found = note_finding,
                                      .argument = offsets};
        ck_assert_msg(segment_check_run(&check, &status), "%s", status.message);
        /* A page of 4 KiB is lost, with the records in it, and no more. */
        ck_assert_uint_ge(offsets[0], 1);
        ck_assert_uint_le(offsets[0], 8);
        bool met = false;
        for (uint64_t k = 1; k <= offsets[0]; k++) {
            met = met || offsets[k] == places[i].offset;
            ck_assert_uint_lt(offsets[k], broken_to + 4096);
        }
        ck_assert(met);
    }
    /* A disk that is gone is something else. */
    broken_from = 0;
    broken_to = UINT64_MAX;
    uint64_t offsets[64] = {0};
    struct segment_check check = {.segment = segment, .found = note_finding, .argument = offsets};
    ck_assert(!segment_check_run(&check, &status));
    ck_assert_uint_eq(offsets[0], 0);
    free(entries);
    segment_free(segment);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scrub");
    TCase *rounds = tcase_create("rounds");
    tcase_set_timeout(rounds, 200);
    tcase_add_checked_fixture(rounds, start, end);
    tcase_add_test(rounds, a_pass_over_a_sound_store_reads_everything_and_finds_nothing);
    tcase_add_test(rounds, a_rotten_record_in_a_sealed_segment_is_found_and_forgotten_alone);
    tcase_add_test(rounds,
                   a_rotten_record_in_a_segment_that_is_written_to_is_found_and_forgotten_alone);
    tcase_add_test(rounds, what_rots_between_the_records_is_told_and_nothing_is_lost);
    tcase_add_test(rounds, a_blob_with_a_sound_checksum_that_is_not_its_name_is_found);
    tcase_add_test(rounds, a_large_blob_of_sound_chunks_that_is_not_its_name_is_found);
    tcase_add_test(rounds, rot_in_what_an_upload_left_behind_does_not_touch_the_blob);
    tcase_add_test(rounds, a_blob_whose_chunks_are_gone_is_found_at_its_manifest);
    tcase_add_test(rounds, a_pass_goes_on_after_a_restart_where_it_was);
    tcase_add_test(rounds, a_segment_that_is_evicted_under_the_scrub_is_left);
    tcase_add_test(rounds, a_store_that_has_failed_is_not_scrubbed);
    tcase_add_test(rounds, a_sector_that_cannot_be_read_is_taken_for_damage_to_its_record);
    suite_add_tcase(suite, rounds);
    TCase *thread = tcase_create("thread");
    tcase_set_timeout(thread, 120);
    tcase_add_checked_fixture(thread, start, end);
    tcase_add_test(thread, a_pass_that_is_asked_for_runs_beside_everything_else);
    tcase_add_test(thread, a_pass_begins_by_itself_when_a_rate_is_set_and_keeps_to_it);
    suite_add_tcase(suite, thread);
    return test_run(suite);
}
