/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a directory as any stop left it to a store that serves exactly what was acknowledged, and never a wrong byte: power
 * cuts, torn tails, a lost index, rot, files cut short. On the simulated disk, but for what concerns RocksDB.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "store/blob_reader.h"
#include "store/find.h"
#include "tests/support/prng.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

static struct store_rig rig;

static void start(void)
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
}

static size_t random_length(struct prng *prng)
{
    const size_t kinds[] = {1, 200, 4000, 70000, 900000, 1500000, 4000000, 8000000};
    return 1 + prng_below(prng, kinds[prng_below(prng, ARRAY_LENGTH(kinds))]);
}

/* One blob or action result that was sent. */
struct sent {
    struct digest digest;
    uint64_t seed;
    size_t length;
    bool action;
    bool acknowledged;
};

static void check_sent(const struct sent *sent)
{
    uint8_t *data = seeded_bytes(sent->seed, sent->length);
    if (sent->action) {
        char expected[32];
        snprintf(expected, sizeof(expected), "result %d", (int)sent->seed);
        char *found = store_rig_action(&rig, &sent->digest, "some/instance");
        ck_assert(found != NULL || !sent->acknowledged);
        ck_assert(found == NULL || strcmp(found, expected) == 0);
        free(found);
    } else {
        const bool there = store_rig_reads(&rig, &sent->digest, bytes_of(data, sent->length));
        ck_assert_int_eq(there, store_rig_has(&rig, &sent->digest));
        ck_assert_msg(there || !sent->acknowledged, "acknowledged and gone: seed %d, %zu bytes",
                      (int)sent->seed, sent->length);
    }
    free(data);
}

enum { AT_ONCE = 16, ROUNDS = 50 };

/* AT_ONCE puts in flight together; the power goes at the nth operation of the disk. */
static void put_until_power_cut(struct prng *prng, struct sent *sent)
{
    static struct store_put puts[AT_ONCE];
    uint8_t *data[AT_ONCE];
    char results[AT_ONCE][32];
    bool started[AT_ONCE];
    struct status status;
    for (size_t i = 0; i < AT_ONCE; i++) {
        sent[i].seed = prng_next(prng) & 0x7fffffff;
        sent[i].action = prng_below(prng, 8) == 0;
        sent[i].length = random_length(prng);
        data[i] = seeded_bytes(sent[i].seed, sent[i].length);
    }
    io_sim_cut_power_at(rig.sim, 1 + prng_below(prng, 60));
    for (size_t i = 0; i < AT_ONCE; i++) {
        started[i] = true;
        if (sent[i].action) {
            snprintf(results[i], sizeof(results[i]), "result %d", (int)sent[i].seed);
            digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data[i], sent[i].length),
                            &sent[i].digest);
            store_put_start_action(&rig, &puts[i], &sent[i].digest, "some/instance",
                                   bytes_of_string(results[i]));
        } else {
            started[i] =
                store_put_start(&rig, &puts[i], bytes_of(data[i], sent[i].length), &status);
            sent[i].digest = puts[i].digest;
        }
    }
    for (size_t i = 0; i < AT_ONCE; i++) {
        sent[i].acknowledged = started[i] && store_put_finish(&puts[i], &status);
        free(data[i]);
    }
}

START_TEST(everything_acknowledged_is_there_after_power_cuts_at_random_moments)
{
    static struct sent sent[ROUNDS][AT_ONCE];
    struct prng prng = {.state = 20261130};
    size_t acknowledged = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        put_until_power_cut(&prng, sent[round]);
        store_rig_crash(&rig, prng_next(&prng), (enum io_sim_crash_mode)prng_below(&prng, 3));
        store_rig_open(&rig);
        for (size_t i = 0; i < AT_ONCE; i++) {
            check_sent(&sent[round][i]);
            acknowledged += sent[round][i].acknowledged;
        }
        for (size_t i = 0; i < AT_ONCE && round > 0; i++)
            check_sent(&sent[prng_below(&prng, round)][i]);
    }
    ck_assert_uint_gt(acknowledged, ROUNDS); /* else the test would show nothing */
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < AT_ONCE; i++)
            check_sent(&sent[round][i]);
    }
}
END_TEST

/* Recovery is interrupted by a power cut at its nth operation, for n = 1, 2, ..., and then left to end. */
START_TEST(recovery_can_be_interrupted_at_every_operation)
{
    struct prng prng = {.state = 7};
    struct sent sent[AT_ONCE];
    put_until_power_cut(&prng, sent);
    store_rig_crash(&rig, 7, IO_SIM_CRASH_RANDOM);
    for (uint64_t n = 1; n < 80; n++) {
        struct status status;
        io_sim_cut_power_at(rig.sim, n);
        if (store_rig_try_open(&rig, &status))
            store_rig_close(&rig);
        io_sim_crash(rig.sim, n, IO_SIM_CRASH_RANDOM);
        store_rig_remove_index(&rig);
    }
    store_rig_open(&rig);
    for (size_t i = 0; i < AT_ONCE; i++)
        check_sent(&sent[i]);
}
END_TEST

/*
 * The manifest of a blob reached the disk by itself, in the next segment, and a chunk in the one before did not: nobody was
 * told that the blob is there, and it must not be.
 */
START_TEST(a_manifest_that_survived_its_chunks_is_not_believed)
{
    struct store *store = durability_store(rig.durability);
    struct status status;
    uint8_t *data = seeded_bytes(1, 1 << 20);
    const struct bytes chunk_bytes = bytes_of(data, 1 << 20);
    struct record chunk = {
        .kind = RECORD_CHUNK,
        .digest = {.function = DIGEST_FUNCTION_SHA256, .hash_length = 32, .size_bytes = 2 << 20},
        .payload = {.parts = &chunk_bytes, .count = 1},
        .payload_bytes = chunk_bytes.length,
        .payload_crc32c = crc32c(0, chunk_bytes)};
    struct record *const chunks[] = {&chunk};
    struct manifest_chunk list[2];
    for (uint32_t i = 0; i < 2; i++) {
        chunk.blob_offset = (uint64_t)i << 20;
        ck_assert(segment_log_append(store->logs[LANE_LARGE], chunks, 1, &status));
        list[i] = (struct manifest_chunk){.place = place_pack(chunk.place),
                                          .blob_offset = chunk.blob_offset,
                                          .payload_bytes = 1 << 20,
                                          .payload_crc32c = chunk.payload_crc32c};
    }
    const struct bytes payload = bytes_of(list, sizeof(list));
    struct record manifest = {.kind = RECORD_MANIFEST,
                              .digest = chunk.digest,
                              .payload = {.parts = &payload, .count = 1},
                              .payload_bytes = payload.length,
                              .payload_crc32c = crc32c(0, payload)};
    struct record *const manifests[] = {&manifest};
    ck_assert(segment_log_append(store->logs[LANE_LARGE], manifests, 1, &status));
    uint64_t covered = 0;
    ck_assert(segment_log_sync(store->logs[LANE_LARGE], &covered, &status));
    /* As if the second chunk's sectors had not been written yet. */
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, store->segments_directory, chunk.place.segment, "seg");
    io_sim_corrupt(rig.sim, path, chunk.place.offset + 5000, 0xff);
    store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(!store_rig_has(&rig, &chunk.digest));
    free(data);
}
END_TEST

/* The same, where the chunk was the last of the segment before: that one is then sealed without it. */
START_TEST(a_manifest_that_survived_its_chunks_is_not_believed_when_the_index_is_rebuilt_either)
{
    enum { CHUNKS = 9, CHUNK_BYTES = 1 << 20 };
    struct store *store = durability_store(rig.durability);
    struct segment_log *log = store->logs[LANE_LARGE];
    struct status status;
    uint8_t *data = seeded_bytes(2, CHUNK_BYTES);
    const struct bytes chunk_bytes = bytes_of(data, CHUNK_BYTES);
    struct manifest_chunk list[CHUNKS];
    const struct bytes payload = bytes_of(list, sizeof(list));
    struct record chunk = {.kind = RECORD_CHUNK,
                           .digest = {.function = DIGEST_FUNCTION_SHA256,
                                      .hash_length = 32,
                                      .size_bytes = (int64_t)CHUNKS * CHUNK_BYTES},
                           .payload = {.parts = &chunk_bytes, .count = 1},
                           .payload_bytes = CHUNK_BYTES,
                           .payload_crc32c = crc32c(0, chunk_bytes)};
    struct record *const chunks[] = {&chunk};
    size_t last_of_first = 0;
    io_sim_set_sync_delay(rig.sim, 2 * NS_PER_S); /* what is synced could be sealed */
    for (size_t i = 0; i < CHUNKS; i++) {
        chunk.blob_offset = (uint64_t)i * CHUNK_BYTES;
        ck_assert(segment_log_append(log, chunks, 1, &status));
        list[i] = (struct manifest_chunk){.place = place_pack(chunk.place),
                                          .blob_offset = chunk.blob_offset,
                                          .payload_bytes = CHUNK_BYTES,
                                          .payload_crc32c = chunk.payload_crc32c};
        if (place_unpack(list[i].place).segment == place_unpack(list[0].place).segment)
            last_of_first = i;
    }
    ck_assert_uint_lt(last_of_first, CHUNKS - 1);
    struct record manifest = {.kind = RECORD_MANIFEST,
                              .digest = chunk.digest,
                              .payload = {.parts = &payload, .count = 1},
                              .payload_bytes = payload.length,
                              .payload_crc32c = crc32c(0, payload)};
    struct record *const manifests[] = {&manifest};
    ck_assert(segment_log_append(log, manifests, 1, &status));
    store_rig_crash(&rig, 0, IO_SIM_CRASH_EVERYTHING);
    io_sim_set_sync_delay(rig.sim, 0);
    const struct place lost = place_unpack(list[last_of_first].place);
    char path[SEGMENT_PATH_BYTES_MAX];
    char directory[TEMP_DIR_PATH_BYTES_MAX + 16];
    snprintf(directory, sizeof(directory), "%s/segments", rig.directory.path);
    segment_path(path, directory, lost.segment, "seg");
    io_sim_corrupt(rig.sim, path, lost.offset + 4, 0xff);
    store_rig_open(&rig);
    ck_assert(!store_rig_has(&rig, &chunk.digest));
    store_rig_close(&rig);
    store_rig_remove_index(&rig);
    store_rig_open(&rig);
    ck_assert(!store_rig_has(&rig, &chunk.digest));
    free(data);
}
END_TEST

/* The largest file in the store. */
static uint64_t largest_segment_bytes(void)
{
    uint64_t largest = 0;
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct status status;
    struct store *store = durability_store(rig.durability);
    ck_assert(segment_set_numbers(store->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        ck_assert(io_size(segment->io, segment->read_fd, &bytes, &status));
        segment_set_unpin(store->segments, segment);
        if (bytes > largest)
            largest = bytes;
    }
    free(numbers);
    return largest;
}

/*
 * Segments that were empty at a start were filled to the brim, as if they needed no footer: it then
 * went beyond what is allocated, where a full disk has no room for it.
 */
START_TEST(a_segment_that_was_empty_at_the_start_has_room_for_its_footer)
{
    enum { TOGETHER = 500, BLOB_BYTES = 100, RECORD_AND_FOOTER_BYTES = 256 + 64 };
    static struct store_put puts[TOGETHER];
    uint8_t *data[TOGETHER];
    struct status status;
    const size_t rounds = (size_t)SEGMENT_BYTES_MIN / RECORD_AND_FOOTER_BYTES / TOGETHER * 3 / 2;
    store_rig_close(&rig);
    store_rig_open(&rig);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < TOGETHER; i++) {
            data[i] = seeded_bytes(round * TOGETHER + i, BLOB_BYTES);
            ck_assert(store_put_start(&rig, &puts[i], bytes_of(data[i], BLOB_BYTES), &status));
        }
        for (size_t i = 0; i < TOGETHER; i++) {
            ck_assert_msg(store_put_finish(&puts[i], &status), "%s", status.message);
            free(data[i]);
        }
    }
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert_uint_eq(rig.report.records_recovered, 0);
    ck_assert_uint_le(largest_segment_bytes(), SEGMENT_BYTES_MIN);
}
END_TEST

static uint64_t newest_small_segment(void)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    uint64_t newest = 0;
    struct status status;
    struct store *store = durability_store(rig.durability);
    ck_assert(segment_set_numbers(store->segments, &numbers, &count, &status));
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = segment_set_pin(store->segments, numbers[i]);
        if (segment->lane == LANE_SMALL && segment->end > SEGMENT_HEADER_BYTES)
            newest = numbers[i];
        segment_set_unpin(store->segments, segment);
    }
    free(numbers);
    return newest;
}

/* What a kill leaves when the last append was cut off: bytes behind the last whole record. */
static void leave_tail(const uint8_t *tail, size_t length)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    struct status status;
    int fd = -1;
    struct io *io = rig.sim != NULL ? io_sim_io(rig.sim) : io_posix();
    const uint64_t number = newest_small_segment();
    struct store *store = durability_store(rig.durability);
    struct segment *segment = segment_set_pin(store->segments, number);
    const uint64_t end = segment->end;
    segment_set_unpin(store->segments, segment);
    segment_path(path, store->segments_directory, number, "seg");
    ck_assert(io_open(io, path, IO_OPEN_WRITE, &fd, &status));
    const struct iovec part = {.iov_base = (void *)(uintptr_t)tail, .iov_len = length};
    ck_assert(io_pwritev(io, fd, &part, 1, end, &status));
    ck_assert(io_sync(io, fd, &status));
    io_close(io, fd);
}

/* Old segments get their footers in the background; one that is interrupted there leaves a tail of its own. */
static void until_old_segments_are_sealed(void)
{
    struct store *store = durability_store(rig.durability);
    for (;;) {
        uint64_t *numbers = NULL;
        size_t count = 0;
        size_t in_use = 0;
        struct status status;
        ck_assert(segment_set_numbers(store->segments, &numbers, &count, &status));
        for (size_t i = 0; i < count; i++) {
            struct segment *segment = segment_set_pin(store->segments, numbers[i]);
            in_use += !segment_log_is_done_with(store->logs[segment->lane], segment);
            segment_set_unpin(store->segments, segment);
        }
        free(numbers);
        if (in_use <= 4) /* an active segment and a spare in each lane */
            return;
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
}

START_TEST(a_torn_tail_does_not_stop_the_start)
{
    struct digest digests[100];
    uint8_t *data[100];
    struct status status;
    for (size_t i = 0; i < 100; i++) {
        data[i] = seeded_bytes(i, 500 + i);
        ck_assert(store_rig_put(&rig, bytes_of(data[i], 500 + i), &digests[i], &status));
    }
    for (size_t n = 1; n <= 200; n++) {
        /* The beginning of a valid further record, random bytes, zeros. */
        uint8_t *tail = seeded_bytes(n, 200);
        if (n % 3 == 0) {
            struct record_header header = {.magic = RECORD_MAGIC,
                                           .version = FORMAT_VERSION,
                                           .kind = RECORD_BLOB,
                                           .digest_function = DIGEST_FUNCTION_SHA256,
                                           .payload_bytes = 500,
                                           .blob_size = 500,
                                           .digest_bytes = 32};
            const uint64_t number = newest_small_segment();
            struct segment *segment =
                segment_set_pin(durability_store(rig.durability)->segments, number);
            header.seq = segment->last_seq + 1;
            record_header_seal(&header, segment->uid);
            segment_set_unpin(durability_store(rig.durability)->segments, segment);
            memcpy(tail, &header, sizeof(header));
        } else if (n % 3 == 1) {
            memset(tail, 0, 200);
        }
        until_old_segments_are_sealed();
        leave_tail(tail, n);
        free(tail);
        store_rig_crash(&rig, n, IO_SIM_CRASH_EVERYTHING);
        store_rig_open(&rig);
        /* One more when the segment of the round before was not sealed in time: its tail is then found again. */
        ck_assert_uint_ge(rig.report.tails_cut, n % 3 == 1 ? 0 : 1);
        ck_assert(n > 1 || rig.report.tails_cut == 0);
        for (size_t i = 0; i < 100; i++)
            ck_assert(store_rig_reads(&rig, &digests[i], bytes_of(data[i], 500 + i)));
        struct digest fresh;
        uint8_t *more = seeded_bytes(10000 + n, 300);
        ck_assert(store_rig_put(&rig, bytes_of(more, 300), &fresh, &status));
        store_rig_crash(&rig, n, IO_SIM_CRASH_NOTHING);
        store_rig_open(&rig);
        ck_assert(store_rig_reads(&rig, &fresh, bytes_of(more, 300)));
        ck_assert(store_rig_put(&rig, bytes_of(more, 299), &fresh,
                                &status)); /* the newest segment is not empty */
        free(more);
    }
    for (size_t i = 0; i < 100; i++)
        free(data[i]);
}
END_TEST

/* Blobs of both lanes and action results of two instances; one blob is forgotten. */
struct mixed {
    struct digest digests[40];
    uint8_t *data[40];
    size_t lengths[40];
    struct digest action;
    struct digest forgotten;
};

static void put_mixed(struct mixed *mixed)
{
    struct status status;
    struct prng prng = {.state = 99};
    for (size_t i = 0; i < 40; i++) {
        mixed->lengths[i] = random_length(&prng) / 2 + 1;
        mixed->data[i] = seeded_bytes(5000 + i, mixed->lengths[i]);
        ck_assert(store_rig_put(&rig, bytes_of(mixed->data[i], mixed->lengths[i]),
                                &mixed->digests[i], &status));
    }
    mixed->action = mixed->digests[0];
    ck_assert(store_rig_put_action(&rig, &mixed->action, "one", bytes_of_string("first"), &status));
    ck_assert(store_rig_put_action(&rig, &mixed->action, "two", bytes_of_string("other"), &status));
    ck_assert(
        store_rig_put_action(&rig, &mixed->action, "one", bytes_of_string("second"), &status));

    struct place place;
    struct store *store = durability_store(rig.durability);
    ck_assert(store_rig_put(&rig, bytes_of("to be forgotten", 15), &mixed->forgotten, &status));
    ck_assert(blob_table_get(store->table, blob_table_blob_key(store->table, &mixed->forgotten),
                             false, &place));
    durability_forget(rig.durability, &mixed->forgotten, NULL, place, RECORD_BLOB, FORGET_PURGED);
    struct digest after;
    ck_assert(store_rig_put(&rig, bytes_of("after it", 8), &after,
                            &status)); /* the FORGET is durable before this */
}

static void check_mixed(const struct mixed *mixed)
{
    for (size_t i = 0; i < 40; i++)
        ck_assert(
            store_rig_reads(&rig, &mixed->digests[i], bytes_of(mixed->data[i], mixed->lengths[i])));
    char *one = store_rig_action(&rig, &mixed->action, "one");
    char *two = store_rig_action(&rig, &mixed->action, "two");
    char *three = store_rig_action(&rig, &mixed->action, "three");
    ck_assert_str_eq(one, "second");
    ck_assert_str_eq(two, "other");
    ck_assert_ptr_null(three);
    ck_assert(!store_rig_has(&rig, &mixed->forgotten));
    free(one);
    free(two);
}

static void free_mixed(struct mixed *mixed)
{
    for (size_t i = 0; i < 40; i++)
        free(mixed->data[i]);
}

static const struct io_ops *sound_ops;
static struct io_ops torn_ops;
static atomic_int torn_fd = -1;
static atomic_bool torn; /* one write of it was cut off; nothing more can be written there */

/* What goes to disk of the first is a record: two parts, without padding. */
static int64_t torn_pwritev(struct io *io,
                            int fd,
                            const struct iovec *parts,
                            int count,
                            uint64_t offset)
{
    if (fd != atomic_load(&torn_fd))
        return sound_ops->pwritev(io, fd, parts, count, offset);
    if (atomic_exchange(&torn, true))
        return -ENOSPC;
    ck_assert_int_gt(count, 2);
    ck_assert_uint_eq((parts[0].iov_len + parts[1].iov_len) % RECORD_ALIGNMENT_BYTES, 0);
    return sound_ops->pwritev(io, fd, parts, 2, offset);
}

/* The action's result, in one record of 64 bytes and a multiple of it. */
static void make_result(struct store_put *put, const struct digest *action, const char *text)
{
    const struct action_record fields = {.written_wall_ns = 1,
                                         .node_uid = 2,
                                         .instance = bytes_of_string("main"),
                                         .writer = bytes_of_string("test"),
                                         .result = bytes_of_string(text)};
    static uint8_t payload[4096];
    uint8_t *end = payload + ACTION_RECORD_FIXED_BYTES;
    action_record_fixed_put(payload, &fields);
    end = mempcpy(end, fields.instance.data, fields.instance.length);
    end = mempcpy(end, fields.writer.data, fields.writer.length);
    end = mempcpy(end, fields.result.data, fields.result.length);
    put->payload = bytes_of(payload, (size_t)(end - payload));
    ck_assert_uint_eq(put->payload.length % RECORD_ALIGNMENT_BYTES, 0);
    put->record = (struct record){.kind = RECORD_ACTION,
                                  .digest = *action,
                                  .payload = {.parts = &put->payload, .count = 1},
                                  .payload_bytes = put->payload.length,
                                  .payload_crc32c = crc32c(0, put->payload)};
}

/*
 * The disk fills up in the middle of a write: a whole record lies behind the end of its segment, and whoever sent it was told
 * that it was not stored. The log goes on in the next segment.
 */
START_TEST(what_a_write_that_was_cut_off_left_behind_the_end_of_its_segment_does_not_count)
{
    struct digest action;
    struct digest digest;
    struct place place;
    struct store_put refused;
    struct status status = {0};
    char text[192 - ACTION_RECORD_FIXED_BYTES - 8 + 1] = {0};
    memset(text, 'n', sizeof(text) - 1);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("action"), &action);
    ck_assert(store_rig_put_action(&rig, &action, "main", bytes_of_string("old"), &status));
    ck_assert(store_find_action(durability_store(rig.durability), &action, bytes_of_string("main"),
                                FIND_ONLY, &place));
    struct segment_set *segments = durability_store(rig.durability)->segments;
    struct segment *segment = segment_set_pin(segments, place.segment);
    make_result(&refused, &action, text);
    struct record second = refused.record;
    struct record *const records[] = {&refused.record, &second};
    struct io *io = io_sim_io(rig.sim);
    sound_ops = io->ops;
    torn_ops = *sound_ops;
    torn_ops.pwritev = torn_pwritev;
    atomic_store(&torn, false);
    atomic_store(&torn_fd, segment->write_fd);
    io->ops = &torn_ops;
    segment_set_unpin(segments, segment);
    ck_assert(!segment_log_append(durability_store(rig.durability)->logs[LANE_SMALL], records, 2,
                                  &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert(atomic_load(&torn));
    ck_assert(store_rig_put(&rig, bytes_of_string("after"), &digest, &status));
    struct place after;
    ck_assert(store_find_blob(durability_store(rig.durability), &digest, FIND_ONLY, &after));
    ck_assert_uint_gt(after.segment, place.segment);

    store_rig_crash(&rig, 1, IO_SIM_CRASH_EVERYTHING);
    io->ops = sound_ops;
    store_rig_open(&rig);
    char *result = store_rig_action(&rig, &action, "main");
    ck_assert_str_eq(result, "old");
    free(result);
    ck_assert(store_rig_reads(&rig, &digest, bytes_of_string("after")));
}
END_TEST

START_TEST(a_clean_restart_recovers_nothing_and_has_everything)
{
    struct mixed mixed;
    put_mixed(&mixed);
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert(!rig.report.index_rebuilt);
    ck_assert_uint_eq(rig.report.records_recovered, 0);
    ck_assert_uint_eq(rig.report.tails_cut, 0);
    check_mixed(&mixed);
    free_mixed(&mixed);
}
END_TEST

START_TEST(a_deleted_index_is_rebuilt_from_the_segments_alone)
{
    struct mixed mixed;
    put_mixed(&mixed);
    store_rig_close(&rig);
    store_rig_remove_index(&rig);
    store_rig_open(&rig);
    check_mixed(&mixed);
    store_rig_close(&rig);
    store_rig_open(&rig);
    ck_assert_uint_eq(rig.report.records_recovered, 0);
    check_mixed(&mixed);
    free_mixed(&mixed);
}
END_TEST

static void until_loaded(void)
{
    while (metrics_get(&rig.metrics, METRIC_INDEX_LOADING) != 0)
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

/* Whatever is asked, found, replaced and forgotten before the index in memory has it, and after it has. */
START_TEST(a_store_serves_before_its_index_is_loaded_and_what_happens_then_wins)
{
    struct mixed mixed;
    struct place place;
    struct status status;
    struct digest never = {0};
    put_mixed(&mixed);
    store_rig_close(&rig);
    failpoint_set(FAILPOINT_recovery_before_load, FAILPOINT_SLEEP, 4000);
    ck_assert_msg(store_rig_try_open(&rig, &status), "%s", status.message);
    ck_assert(rig.report.index_loading);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of("never sent", 10), &never);
    ck_assert(!store_rig_has(&rig, &never));
    check_mixed(&mixed);
    ck_assert(store_rig_put_action(&rig, &mixed.action, "one", bytes_of_string("third"), &status));
    ck_assert(
        store_find_blob(durability_store(rig.durability), &mixed.digests[0], FIND_ONLY, &place));
    durability_forget(rig.durability, &mixed.digests[0], NULL, place,
                      mixed.lengths[0] > LIMIT_SMALL_BLOB_BYTES ? RECORD_MANIFEST : RECORD_BLOB,
                      FORGET_PURGED);
    struct digest after;
    ck_assert(store_rig_put(&rig, bytes_of("after that", 10), &after, &status));
    ck_assert(blob_table_is_loading(
        durability_store(rig.durability)->table)); /* else the test shows nothing */

    failpoint_set(FAILPOINT_recovery_before_load, FAILPOINT_OFF, 0);
    for (int start = 0; start < 3; start++) {
        until_loaded();
        char *result = store_rig_action(&rig, &mixed.action, "one");
        ck_assert_str_eq(result, "third");
        free(result);
        ck_assert(!store_rig_has(&rig, &mixed.digests[0]));
        ck_assert(!store_rig_has(&rig, &mixed.forgotten));
        ck_assert(store_rig_has(&rig, &after));
        for (size_t i = 1; i < 40; i++)
            ck_assert(store_rig_reads(&rig, &mixed.digests[i],
                                      bytes_of(mixed.data[i], mixed.lengths[i])));
        store_rig_close(&rig);
        store_rig_open(&rig);
    }
    free_mixed(&mixed);
}
END_TEST

/* Just when the load ends, the index on disk is no longer there to be asked: then memory has everything. */
START_TEST(nothing_is_called_missing_when_the_load_of_the_index_ends)
{
    enum { BLOBS = 40, STARTS = 40 };
    struct digest digests[BLOBS];
    struct status status = {0};
    for (uint64_t i = 0; i < BLOBS; i++)
        ck_assert(store_rig_put(&rig, bytes_of(&i, sizeof(i)), &digests[i], &status));
    for (size_t round = 0; round < STARTS; round++) {
        store_rig_close(&rig);
        ck_assert_msg(store_rig_try_open(&rig, &status), "%s", status.message);
        bool loading = true;
        while (loading) {
            loading = metrics_get(&rig.metrics, METRIC_INDEX_LOADING) != 0;
            for (size_t i = 0; i < BLOBS; i++)
                ck_assert(store_rig_has(&rig, &digests[i]));
        }
    }
}
END_TEST

START_TEST(segments_without_footers_are_walked_for_the_same_set)
{
    struct mixed mixed;
    put_mixed(&mixed);
    store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    check_mixed(&mixed);
    free_mixed(&mixed);
}
END_TEST

/* Turns one byte of a record of a stopped store over. */
static void rot(uint64_t segment, uint64_t offset)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    char directory[TEMP_DIR_PATH_BYTES_MAX + 16];
    snprintf(directory, sizeof(directory), "%s/segments", rig.directory.path);
    segment_path(path, directory, segment, "seg");
    io_sim_corrupt(rig.sim, path, offset, 0x10);
}

static void check_rot(bool after_crash, uint64_t offset_in_record)
{
    struct digest digests[30];
    uint8_t *data[30];
    struct status status;
    struct store *store = durability_store(rig.durability);
    for (size_t i = 0; i < 30; i++) {
        data[i] = seeded_bytes(i, 3000);
        ck_assert(store_rig_put(&rig, bytes_of(data[i], 3000), &digests[i], &status));
    }
    struct place place;
    ck_assert(blob_table_get(store->table, blob_table_blob_key(store->table, &digests[12]), false,
                             &place));
    if (after_crash)
        store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    else
        store_rig_close(&rig);
    rot(place.segment, place.offset + offset_in_record);
    store_rig_open(&rig);
    for (size_t i = 0; i < 30; i++) {
        if (i == 12)
            continue;
        ck_assert_msg(store_rig_reads(&rig, &digests[i], bytes_of(data[i], 3000)), "blob %zu", i);
    }
    uint8_t *found = NULL;
    const bool ok = blob_read_whole(durability_store(rig.durability), &digests[12], UINT64_MAX,
                                    &found, &place, &status);
    ck_assert(found == NULL);
    ck_assert(ok || status.code == STATUS_DATA_LOSS);
    for (size_t i = 0; i < 30; i++)
        free(data[i]);
}

START_TEST(one_rotten_payload_costs_that_record_alone)
{
    check_rot(false, RECORD_HEADER_BYTES + 77);
}
END_TEST

START_TEST(one_rotten_header_costs_that_record_alone)
{
    check_rot(false, 70);
}
END_TEST

START_TEST(one_rotten_payload_in_an_unsealed_segment_costs_that_record_alone)
{
    check_rot(true, RECORD_HEADER_BYTES + 77);
}
END_TEST

START_TEST(one_rotten_header_in_an_unsealed_segment_costs_that_record_alone)
{
    check_rot(true, 8);
}
END_TEST

/*
 * A blob that is a piece of somebody else's segment, with sound records in it; then its own header rots, and whoever looks for
 * the next record finds those.
 */
START_TEST(records_that_a_client_sent_as_bytes_are_not_taken_for_ours)
{
    enum { FORGED = 8, INNER_BYTES = 300 };
    struct status status;
    struct digest outer;
    struct digest inner;
    struct place place;
    uint8_t *payload = seeded_bytes(1, INNER_BYTES);
    const size_t stored_bytes = (size_t)record_stored_bytes(INNER_BYTES);
    uint8_t *data = calloc(FORGED, stored_bytes);
    ck_assert_ptr_nonnull(data);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(payload, INNER_BYTES), &inner);
    for (size_t i = 0; i < FORGED; i++) {
        struct record_header header = {.magic = RECORD_MAGIC,
                                       .version = FORMAT_VERSION,
                                       .kind = RECORD_BLOB,
                                       .digest_function = inner.function,
                                       .seq = 10 + i,
                                       .payload_bytes = INNER_BYTES,
                                       .blob_size = INNER_BYTES,
                                       .digest_bytes = inner.hash_length,
                                       .payload_crc32c = crc32c(0, bytes_of(payload, INNER_BYTES))};
        memcpy(header.digest, inner.hash, sizeof(header.digest));
        record_header_seal(&header, 0x1234567890);
        memcpy(data + i * stored_bytes, &header, sizeof(header));
        memcpy(data + i * stored_bytes + sizeof(header), payload, INNER_BYTES);
    }
    ck_assert(store_rig_put(&rig, bytes_of(data, FORGED * stored_bytes), &outer, &status));
    struct store *store = durability_store(rig.durability);
    ck_assert(
        blob_table_get(store->table, blob_table_blob_key(store->table, &outer), false, &place));
    store_rig_crash(&rig, 0, IO_SIM_CRASH_NOTHING);
    rot(place.segment, place.offset + 20);
    store_rig_open(&rig);
    ck_assert(!store_rig_has(&rig, &outer));
    ck_assert(!store_rig_has(&rig, &inner));
    free(data);
    free(payload);
}
END_TEST

START_TEST(a_segment_cut_short_is_reported_missing_and_the_store_starts)
{
    struct digest digests[100];
    uint8_t *data[100];
    struct status status;
    for (size_t i = 0; i < 100; i++) {
        data[i] = seeded_bytes(i, 50000);
        ck_assert(store_rig_put(&rig, bytes_of(data[i], 50000), &digests[i], &status));
    }
    const uint64_t number = newest_small_segment();
    store_rig_close(&rig);
    char path[SEGMENT_PATH_BYTES_MAX];
    char directory[TEMP_DIR_PATH_BYTES_MAX + 16];
    int fd = -1;
    uint64_t size = 0;
    snprintf(directory, sizeof(directory), "%s/segments", rig.directory.path);
    segment_path(path, directory, number, "seg");
    ck_assert(io_open(io_posix(), path, IO_OPEN_WRITE, &fd, &status));
    ck_assert(io_size(io_posix(), fd, &size, &status));
    ck_assert(io_truncate(io_posix(), fd, size - 1000000, &status));
    io_close(io_posix(), fd);

    store_rig_open(&rig);
    size_t missing = 0;
    for (size_t i = 0; i < 100; i++) {
        const bool there = store_rig_reads(&rig, &digests[i], bytes_of(data[i], 50000));
        ck_assert_int_eq(there, store_rig_has(&rig, &digests[i]));
        missing += !there;
    }
    ck_assert_uint_ge(missing, 19);
    ck_assert_uint_le(missing, 21);
    until_loaded();
    ck_assert_int_eq(metrics_get(&rig.metrics, METRIC_RECOVERY_ENTRIES_DROPPED), (int64_t)missing);
    for (size_t i = 0; i < 100; i++) {
        ck_assert(store_rig_put(&rig, bytes_of(data[i], 50000), &digests[i], &status));
        ck_assert(store_rig_reads(&rig, &digests[i], bytes_of(data[i], 50000)));
        free(data[i]);
    }
}
END_TEST

START_TEST(a_second_process_is_told_that_the_store_is_taken)
{
    struct store_rig other = {.directory = rig.directory, .buffers = rig.buffers};
    struct status status = {0};
    lock_init(&other.lock, LOCK_RANK_LEAF);
    ck_assert(!store_rig_try_open(&other, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
}
END_TEST

static void write_file(const char *name, const char *text)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status = {0};
    int fd = -1;
    snprintf(path, sizeof(path), "%s/%s", rig.directory.path, name);
    if (!io_unlink(io_posix(), path, &status))
        ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    ck_assert(io_open(io_posix(), path, IO_OPEN_CREATE_NEW, &fd, &status));
    const struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    ck_assert(io_pwritev(io_posix(), fd, &part, 1, 0, &status));
    io_close(io_posix(), fd);
}

START_TEST(a_directory_of_something_else_is_left_alone)
{
    struct status status = {0};
    store_rig_close(&rig);
    temp_dir_remove(&rig.directory);
    temp_dir_make(&rig.directory);
    write_file("letters", "Dear Sir");
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    write_file("FORMAT", "A4\n");
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
    write_file("FORMAT", "varve 1 0123456789abcdef 00000000\n");
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_DATA_LOSS);
}
END_TEST

START_TEST(a_store_of_a_newer_format_is_left_alone)
{
    char line[64];
    struct status status = {0};
    store_rig_close(&rig);
    snprintf(line, sizeof(line), "varve 99 0123456789abcdef");
    const uint32_t crc = crc32c(0, bytes_of_string(line));
    snprintf(line + strlen(line), 16, " %08x\n", crc);
    write_file("FORMAT", line);
    ck_assert(!store_rig_try_open(&rig, &status));
    ck_assert_int_eq(status.code, STATUS_FAILED_PRECONDITION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recovery");
    TCase *simulated = tcase_create("simulated disk");
    tcase_set_timeout(simulated, 280);
    tcase_add_checked_fixture(simulated, start, end);
    tcase_add_test(simulated, everything_acknowledged_is_there_after_power_cuts_at_random_moments);
    tcase_add_test(simulated, recovery_can_be_interrupted_at_every_operation);
    tcase_add_test(simulated, a_manifest_that_survived_its_chunks_is_not_believed);
    tcase_add_test(
        simulated,
        a_manifest_that_survived_its_chunks_is_not_believed_when_the_index_is_rebuilt_either);
    tcase_add_test(simulated, a_torn_tail_does_not_stop_the_start);
    tcase_add_test(simulated, a_clean_restart_recovers_nothing_and_has_everything);
    tcase_add_test(simulated, a_deleted_index_is_rebuilt_from_the_segments_alone);
    tcase_add_test(simulated, nothing_is_called_missing_when_the_load_of_the_index_ends);
    tcase_add_test(simulated, segments_without_footers_are_walked_for_the_same_set);
    tcase_add_test(simulated, one_rotten_payload_costs_that_record_alone);
    tcase_add_test(simulated, one_rotten_header_costs_that_record_alone);
    tcase_add_test(simulated, one_rotten_payload_in_an_unsealed_segment_costs_that_record_alone);
    tcase_add_test(simulated, one_rotten_header_in_an_unsealed_segment_costs_that_record_alone);
    tcase_add_test(simulated, records_that_a_client_sent_as_bytes_are_not_taken_for_ours);
    suite_add_tcase(suite, simulated);
    TCase *cut_off = tcase_create("a write that was cut off");
    tcase_set_timeout(cut_off, 120);
    tcase_add_checked_fixture(cut_off, start, end);
    tcase_add_test(cut_off,
                   what_a_write_that_was_cut_off_left_behind_the_end_of_its_segment_does_not_count);
    suite_add_tcase(suite, cut_off);
    TCase *real = tcase_create("real disk");
    tcase_set_timeout(real, 120);
    tcase_add_checked_fixture(real, start_real, end);
    tcase_add_test(real, a_clean_restart_recovers_nothing_and_has_everything);
    tcase_add_test(real, a_deleted_index_is_rebuilt_from_the_segments_alone);
    tcase_add_test(real, a_store_serves_before_its_index_is_loaded_and_what_happens_then_wins);
    tcase_add_test(real, a_segment_that_was_empty_at_the_start_has_room_for_its_footer);
    tcase_add_test(real, a_segment_cut_short_is_reported_missing_and_the_store_starts);
    tcase_add_test(real, a_second_process_is_told_that_the_store_is_taken);
    tcase_add_test(real, a_directory_of_something_else_is_left_alone);
    tcase_add_test(real, a_store_of_a_newer_format_is_left_alone);
    suite_add_tcase(suite, real);
    return test_run(suite);
}
