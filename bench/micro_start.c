/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a start takes with many entries in the index on disk, and what is served before they are in memory.
 *
 *   micro_start [ENTRIES [DIRECTORY]]     1,000,000 and /tmp, where a subdirectory is made and removed
 *
 * One line a figure: name, value, unit. The entries have names of their own and one record in common: an entry costs what it
 * costs, and the store stays small. Each start is measured in a process of its own, the file cache is warm: first after a
 * clean stop; then after a process has stored 50,000 blobs of 4 KiB and 400 MiB in blobs of 8 MiB, and killed itself before
 * any of it was flushed to the index.
 */
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "durability/durability.h"
#include "store/blob_reader.h"
#include "store/blob_writer.h"

enum {
    BATCH = 1000,
    LOOKUP_BATCHES = 20,
    WRITE_BATCH = 10000,
    BUFFERS = 8,
    PATH_BYTES_MAX = 4096,
    DESCRIPTORS = 32,
    BLOB_BYTES = 3000,
    LOST_SMALL = 50000, /* stored and not flushed when the process is killed */
    LOST_SMALL_BYTES = 4096,
    LOST_LARGE = 50,
    IN_FLIGHT = 500,
};
#define LOST_LARGE_BYTES (8 * MIB)

static char data_path[PATH_BYTES_MAX];
static char index_path[PATH_BYTES_MAX + 16];
static struct metrics metrics;
static uint8_t blob[BLOB_BYTES];
static const char *when = "after a clean stop"; /* the start that is measured */

static int64_t now_ns(void)
{
    return clock_monotonic_ns(clock_real());
}

static void print(const char *name, double value, const char *unit)
{
    printf("%-18s %-40s %12.3f %s\n", when, name, value, unit);
    fflush(stdout);
}

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "micro_start: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static struct digest digest_number(uint64_t number)
{
    struct digest digest = {.hash_length = SHA256_HASH_BYTES,
                            .function = DIGEST_FUNCTION_SHA256,
                            .size_bytes = BLOB_BYTES};
    uint64_t x = number;
    for (size_t i = 0; i < SHA256_HASH_BYTES; i += sizeof(x)) {
        x = (x + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 31;
        memcpy(digest.hash + i, &x, sizeof(x));
    }
    return digest;
}

static struct durability *open_store(struct recovery_report *report)
{
    static struct buffer_pool *buffers;
    struct status status;
    struct durability *durability = NULL;
    if (buffers == NULL)
        check(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, BUFFERS, &buffers, &status), &status);
    const struct store_config config = {
        .io = io_posix(),
        .clock = clock_real(),
        .metrics = &metrics,
        .buffers = buffers,
        .directory = data_path,
    };
    check(durability_open(&config, NULL, NULL, &durability, report, &status), &status);
    return durability;
}

struct put {
    struct commit_request request;
    atomic_bool done;
};

static void put_done(struct ack *ack, const struct status *result)
{
    check(result->code == STATUS_OK, result);
    atomic_store(&CONTAINER_OF(ack, struct put, request.ack)->done, true);
}

/* The one blob that is really there. */
static struct place put_blob(void)
{
    struct recovery_report report;
    struct durability *durability = open_store(&report);
    const struct bytes payload = bytes_of(blob, sizeof(blob));
    struct record record = {.kind = RECORD_BLOB,
                            .payload = {.parts = &payload, .count = 1},
                            .payload_bytes = payload.length,
                            .payload_crc32c = crc32c(0, payload)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, payload, &record.digest);
    struct put put = {.request = {.record = &record, .ack = {.done = put_done}}};
    commit_submit(durability_commit(durability, LANE_SMALL), &put.request);
    while (!atomic_load(&put.done))
        clock_pause(NS_PER_MS);
    durability_close(durability);
    return record.place;
}

static void write_index(uint64_t entries)
{
    const struct place place = put_blob();
    struct status status;
    struct index *index = NULL;
    struct index_checkpoint checkpoint;
    static struct index_entry batch[WRITE_BATCH];
    check(index_open(index_path, &index, &status), &status);
    check(index_read_checkpoint(index, &checkpoint, &status), &status);
    for (uint64_t i = 0; i < entries;) {
        size_t count = 0;
        for (; count < WRITE_BATCH && i < entries; i++)
            batch[count++] = (struct index_entry){.kind = RECORD_BLOB,
                                                  .digest = digest_number(i),
                                                  .place = place,
                                                  .payload_bytes = BLOB_BYTES};
        check(index_write(index, batch, count, &checkpoint, &status), &status);
    }
    index_close(index);
}

/* 1000 digests a batch, as FindMissingBlobs asks them: the mean of all batches. */
static void find(struct store *store,
                 const char *name,
                 uint64_t first,
                 uint64_t step,
                 bool expected)
{
    static struct digest digests[BATCH];
    static bool present[BATCH];
    const int64_t began_ns = now_ns();
    uint64_t number = first;
    for (size_t batch = 0; batch < LOOKUP_BATCHES; batch++) {
        for (size_t i = 0; i < BATCH; i++, number += step)
            digests[i] = digest_number(number);
        store_has_blobs(store, digests, BATCH, present);
        for (size_t i = 0; i < BATCH; i++) {
            if (present[i] != expected) {
                fprintf(stderr, "micro_start: %s: a wrong answer\n", name);
                exit(EXIT_FAILURE);
            }
        }
    }
    print(name, (double)(now_ns() - began_ns) / NS_PER_MS / LOOKUP_BATCHES, "ms per 1000");
}

static void measure_start(uint64_t entries)
{
    struct recovery_report report;
    struct digest digest;
    uint8_t *data = NULL;
    struct place place;
    struct status status;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(blob, sizeof(blob)), &digest);
    const int64_t began_ns = now_ns();
    struct durability *durability = open_store(&report);
    struct store *store = durability_store(durability);
    print("start, until it serves", (double)(now_ns() - began_ns) / NS_PER_MS, "ms");
    check(blob_read_whole(store, &digest, UINT64_MAX, &data, &place, &status), &status);
    print("start, until the first read is served", (double)(now_ns() - began_ns) / NS_PER_MS, "ms");
    print("records read from segments", (double)report.records_recovered, "");
    print("start, is being loaded then", blob_table_is_loading(store->table), "");
    free(data);
    const uint64_t step =
        entries / (BATCH * LOOKUP_BATCHES) == 0 ? 1 : entries / (BATCH * LOOKUP_BATCHES);
    if (entries >= (uint64_t)BATCH * LOOKUP_BATCHES)
        find(store, "present, while it is loaded", 0, step, true);
    find(store, "absent, while it is loaded", entries, 1, false);
    print("still being loaded after that", blob_table_is_loading(store->table), "");
    while (blob_table_is_loading(store->table))
        clock_pause(NS_PER_MS);
    print("start, until all is in memory", (double)(now_ns() - began_ns) / NS_PER_MS, "ms");
    print("entries in memory", (double)blob_table_count(store->table), "");
    if (entries >= (uint64_t)BATCH * LOOKUP_BATCHES)
        find(store, "present, once it is loaded", 0, step, true);
    find(store, "absent, once it is loaded", entries, 1, false);
    durability_close(durability);
}

static struct digest lost_digest(uint64_t number, uint8_t *data, size_t length)
{
    struct digest digest;
    memset(data, 0, length);
    memcpy(data, &number, sizeof(number));
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &digest);
    return digest;
}

static void await(struct put *put)
{
    while (!atomic_load(&put->done))
        clock_pause(NS_PER_MS / 10);
}

static void put_small(struct durability *durability)
{
    static struct put puts[IN_FLIGHT];
    static struct record records[IN_FLIGHT];
    static struct bytes payloads[IN_FLIGHT];
    static uint8_t data[IN_FLIGHT][LOST_SMALL_BYTES];
    for (uint64_t number = 0; number < LOST_SMALL; number += IN_FLIGHT) {
        for (size_t i = 0; i < IN_FLIGHT; i++) {
            payloads[i] = bytes_of(data[i], LOST_SMALL_BYTES);
            records[i] = (struct record){
                .kind = RECORD_BLOB,
                .digest = lost_digest(number + i, data[i], LOST_SMALL_BYTES),
                .payload = {.parts = &payloads[i], .count = 1},
                .payload_bytes = LOST_SMALL_BYTES,
                .payload_crc32c = crc32c(0, payloads[i]),
            };
            puts[i] = (struct put){.request = {.record = &records[i], .ack = {.done = put_done}}};
            commit_submit(durability_commit(durability, LANE_SMALL), &puts[i].request);
        }
        for (size_t i = 0; i < IN_FLIGHT; i++)
            await(&puts[i]);
    }
}

static void put_large(struct durability *durability, struct buffer_pool *buffers)
{
    struct status status;
    uint8_t *data = malloc(LOST_LARGE_BYTES);
    ASSERT(data != NULL);
    for (uint64_t number = 0; number < LOST_LARGE; number++) {
        const struct digest digest = lost_digest(number, data, LOST_LARGE_BYTES);
        struct blob_writer *writer = NULL;
        struct record *record = NULL;
        enum lane lane;
        check(blob_writer_new(durability_store(durability), &digest, &writer, &status), &status);
        blob_writer_give_buffer(writer, buffer_pool_try_take(buffers));
        check(blob_writer_append(writer, bytes_of(data, LOST_LARGE_BYTES), &status), &status);
        check(blob_writer_finish(writer, &record, &lane, &status), &status);
        struct put put = {.request = {.record = record, .ack = {.done = put_done}}};
        commit_submit(durability_commit(durability, lane), &put.request);
        await(&put);
        blob_writer_free(writer);
    }
    free(data);
}

/* Stores, and does not stop cleanly. */
static void store_and_die(uint64_t entries)
{
    struct recovery_report report;
    (void)entries;
    struct durability *durability = open_store(&report);
    put_large(durability, durability_store(durability)->buffers);
    put_small(durability);
    kill(getpid(), SIGKILL);
}

static void measure_start_after_kill(uint64_t entries)
{
    when = "after a kill";
    measure_start(entries);
}

/* Runs in a process of its own. */
static void apart(void (*run)(uint64_t entries), uint64_t entries)
{
    const pid_t pid = fork();
    if (pid == 0) {
        run(entries);
        exit(EXIT_SUCCESS);
    }
    int result = 0;
    const bool ended = pid >= 0 && waitpid(pid, &result, 0) == pid;
    if (!ended || (WIFEXITED(result) ? WEXITSTATUS(result) != 0 : WTERMSIG(result) != SIGKILL))
        exit(EXIT_FAILURE);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

int main(int argc, char **argv)
{
    const uint64_t entries = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const char *directory = argc > 2 ? argv[2] : "/tmp";
    snprintf(data_path, sizeof(data_path), "%s/micro_start.%d", directory, (int)getpid());
    snprintf(index_path, sizeof(index_path), "%s/index", data_path);
    apart(write_index, entries);
    apart(measure_start, entries);
    apart(store_and_die, entries);
    apart(measure_start_after_kill, entries);
    return nftw(data_path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0 ? EXIT_SUCCESS
                                                                               : EXIT_FAILURE;
}
