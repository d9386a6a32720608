/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What eviction costs small commits: two stores in one process, one that has room and one that is full, take the same load in
 * turn, so that whatever else the machine does meets both.
 *
 *   micro_evict [ROUNDS [DIRECTORY]]      10 and /tmp, where a subdirectory is made and removed
 *
 * The load is WRITERS threads that each store a blob of 4 KiB after the other; and one that stores blobs of 2 MiB, 40 in a
 * second, which is what makes segments go. With each an older one is looked up, so that all of them count as used and
 * evictions move as much as they ever do.
 * A round is 2 s for each store; the first is dropped.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/thread.h"
#include "bench/latency.h"
#include "durability/durability.h"
#include "store/blob_writer.h"

enum {
    WRITERS = 16,
    BUFFERS = 16,
    PATH_BYTES_MAX = 4096,
    DESCRIPTORS = 32,
    SMALL_BYTES = 4096,
    LOOK_BACK = 2000,
    LARGE_PER_S = 40
};
#define LARGE_BYTES (2 * MIB)
#define ROUND_NS (2 * NS_PER_S)

struct put {
    struct commit_request request;
    struct lock lock;
    struct condition changed;
    bool done; /* guarded by lock */
    enum status_code code;
};

struct load {
    const char *name;
    struct durability *durability;
    struct metrics metrics;
    _Atomic uint64_t next; /* number of the next blob */
    struct latency latency[WRITERS];
    struct digest recent[LARGE_PER_S]; /* of the last second, by turns */
    uint64_t large;
    uint64_t refused[WRITERS + 1];
};

struct worker {
    struct load *load;
    size_t index;
    int64_t until_ns;
    struct thread thread;
};

static char work[PATH_BYTES_MAX];
static struct buffer_pool *buffers;

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "micro_evict: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static int64_t now_ns(void)
{
    return clock_monotonic_ns(clock_real());
}

static void put_done(struct ack *ack, const struct status *result)
{
    struct put *put = CONTAINER_OF(ack, struct put, request.ack);
    lock_acquire(&put->lock);
    put->code = result->code;
    put->done = true;
    condition_signal(&put->changed);
    lock_release(&put->lock);
}

/* False when it was refused. */
static bool put_record(struct load *load, struct record *record, enum lane lane)
{
    struct put put = {.request = {.record = record, .ack = {.done = put_done}}};
    lock_init(&put.lock, LOCK_RANK_LEAF);
    condition_init(&put.changed);
    commit_submit(durability_commit(load->durability, lane), &put.request);
    lock_acquire(&put.lock);
    while (!put.done)
        condition_wait(&put.changed, &put.lock);
    lock_release(&put.lock);
    condition_destroy(&put.changed);
    lock_destroy(&put.lock);
    return put.code == STATUS_OK;
}

static struct digest fill(uint64_t number, uint8_t *data, size_t length)
{
    struct digest digest;
    for (size_t i = 0; i + sizeof(number) <= length; i += MIB / 2)
        memcpy(data + i, &number, sizeof(number));
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &digest);
    return digest;
}

static void run_small(void *argument)
{
    struct worker *worker = argument;
    struct load *load = worker->load;
    uint8_t data[SMALL_BYTES] = {0};
    while (now_ns() < worker->until_ns) {
        const uint64_t number = atomic_fetch_add(&load->next, 1);
        if (number > LOOK_BACK) {
            const struct digest older = fill(number - LOOK_BACK, data, sizeof(data));
            if (!store_has_blob(durability_store(load->durability), &older)) {
                /* It was one of 2 MiB, or is still being committed. */
            }
        }
        const struct digest digest = fill(number, data, sizeof(data));
        const struct bytes payload = bytes_of(data, sizeof(data));
        struct record record = {.kind = RECORD_BLOB,
                                .digest = digest,
                                .payload = {.parts = &payload, .count = 1},
                                .payload_bytes = payload.length,
                                .payload_crc32c = crc32c(0, payload)};
        const int64_t began_ns = now_ns();
        if (put_record(load, &record, LANE_SMALL))
            latency_add(&load->latency[worker->index], now_ns() - began_ns);
        else
            load->refused[worker->index]++;
    }
}

static void put_large(struct load *load, uint8_t *data)
{
    struct status status;
    struct blob_writer *writer = NULL;
    struct record *record = NULL;
    enum lane lane;
    const struct digest digest = fill(atomic_fetch_add(&load->next, 1), data, LARGE_BYTES);
    check(blob_writer_new(durability_store(load->durability), &digest, &writer, &status), &status);
    blob_writer_trust(writer);
    blob_writer_give_buffer(writer, buffer_pool_try_take(buffers));
    if (blob_writer_append(writer, bytes_of(data, LARGE_BYTES), &status)) {
        check(blob_writer_finish(writer, &record, &lane, &status), &status);
        load->refused[WRITERS] += !put_record(load, record, lane);
    } else {
        load->refused[WRITERS]++;
    }
    blob_writer_free(writer);
    struct digest *older = &load->recent[load->large++ % LARGE_PER_S];
    if (older->hash_length != 0 && !store_has_blob(durability_store(load->durability), older)) {
        /* It was refused. */
    }
    *older = digest;
}

static void run_large(void *argument)
{
    struct worker *worker = argument;
    uint8_t *data = calloc(1, LARGE_BYTES);
    ASSERT(data != NULL);
    for (int64_t due_ns = now_ns(); due_ns < worker->until_ns; due_ns += NS_PER_S / LARGE_PER_S) {
        const int64_t early_ns = due_ns - now_ns();
        if (early_ns > 0)
            clock_pause(early_ns);
        put_large(worker->load, data);
    }
    free(data);
}

static void run_round(struct load *load)
{
    struct worker workers[WRITERS + 1];
    struct status status;
    const int64_t until_ns = now_ns() + ROUND_NS;
    for (size_t i = 0; i <= WRITERS; i++) {
        workers[i] = (struct worker){.load = load, .index = i, .until_ns = until_ns};
        check(thread_start(&workers[i].thread, "writer", 0, i < WRITERS ? run_small : run_large,
                           &workers[i], &status),
              &status);
    }
    for (size_t i = 0; i <= WRITERS; i++)
        thread_join(&workers[i].thread);
}

static void open_load(struct load *load, const char *name, uint64_t capacity_bytes)
{
    struct recovery_report report;
    struct status status;
    char path[PATH_BYTES_MAX + 16];
    load->name = name;
    snprintf(path, sizeof(path), "%s/%s", work, name);
    const struct store_config config = {
        .io = io_posix(),
        .clock = clock_real(),
        .metrics = &load->metrics,
        .buffers = buffers,
        .directory = path,
        .capacity_bytes = capacity_bytes,
        .segment_bytes = {16 * MIB, 16 * MIB},
    };
    check(durability_open(&config, NULL, NULL, &load->durability, &report, &status), &status);
}

/* Until segments go. */
static void fill_up(struct load *load)
{
    uint8_t *data = calloc(1, LARGE_BYTES);
    ASSERT(data != NULL);
    while (metrics_get(&load->metrics, METRIC_SEGMENTS_EVICTED) < 4) {
        put_large(load, data);
        struct worker small = {.load = load, .index = 0, .until_ns = now_ns() + 10 * NS_PER_MS};
        run_small(&small);
    }
    free(data);
}

static void forget_measured(struct load *load)
{
    memset(load->latency, 0, sizeof(load->latency));
    memset(load->refused, 0, sizeof(load->refused));
    load->large = 0;
}

static double print(const struct load *load, size_t rounds, int64_t evicted)
{
    static struct latency all;
    uint64_t refused = load->refused[WRITERS];
    memset(&all, 0, sizeof(all));
    for (size_t i = 0; i < WRITERS; i++) {
        refused += load->refused[i];
        all.total += load->latency[i].total;
        if (load->latency[i].max_ns > all.max_ns)
            all.max_ns = load->latency[i].max_ns;
        for (size_t k = 0; k < LATENCY_BUCKETS; k++)
            all.counts[k] += load->latency[i].counts[k];
    }
    const double seconds = (double)rounds * ROUND_NS / NS_PER_S;
    printf("| %s | %.0f | %.0f | %.2f | %.2f | %.2f | %.1f | %llu |\n", load->name,
           (double)all.total / seconds, (double)load->large / seconds,
           latency_quantile_ns(&all, 0.5) / NS_PER_MS, latency_quantile_ns(&all, 0.99) / NS_PER_MS,
           (double)all.max_ns / NS_PER_MS, (double)evicted / seconds, (unsigned long long)refused);
    return latency_quantile_ns(&all, 0.99);
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
    static struct load roomy, full;
    struct status status;
    const size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
    snprintf(work, sizeof(work), "%s/micro_evict.%d", argc > 2 ? argv[2] : "/tmp", (int)getpid());
    log_set_level(LOG_LEVEL_ERROR);
    check(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, BUFFERS, &buffers, &status), &status);
    if (mkdir(work, 0755) != 0) {
        perror(work);
        return EXIT_FAILURE;
    }
    open_load(&roomy, "room", 0);
    open_load(&full, "full", 512 * MIB);
    fill_up(&full);
    int64_t evicted_before = 0;
    int64_t moved_before = 0;
    for (size_t round = 0; round <= rounds; round++) {
        run_round(&roomy);
        run_round(&full);
        if (round > 0)
            continue;
        forget_measured(&roomy);
        forget_measured(&full);
        evicted_before = metrics_get(&full.metrics, METRIC_SEGMENTS_EVICTED);
        moved_before = metrics_get(&full.metrics, METRIC_EVICTION_MOVED_BYTES);
    }
    printf("| store | 4 KiB blobs/s | 2 MiB blobs/s | p50 ms | p99 ms | max ms | segments "
           "evicted/s | refused |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    const double without_ns = print(&roomy, rounds, 0);
    const int64_t evicted = metrics_get(&full.metrics, METRIC_SEGMENTS_EVICTED) - evicted_before;
    const double with_ns = print(&full, rounds, evicted);
    const int64_t moved = metrics_get(&full.metrics, METRIC_EVICTION_MOVED_BYTES) - moved_before;
    printf("\np99, full to room: %.2f; moved: %.0f MB, %.2f of what the evicted segments held\n",
           with_ns / without_ns, (double)moved / 1e6,
           evicted > 0 ? (double)moved / ((double)evicted * 16 * MIB) : 0);
    durability_close(roomy.durability);
    durability_close(full.durability);
    buffer_pool_free(buffers);
    nftw(work, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
    return EXIT_SUCCESS;
}
