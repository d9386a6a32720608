/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two indexes cost: the one in memory a lookup, the one on disk an entry.
 *
 *   micro_index [ENTRIES [DIRECTORY]]     1,000,000 and /tmp, where a subdirectory is made and removed
 *
 * One line a figure: name, value, unit. Lookups are timed a batch of 1000 at a time, as
 * FindMissingBlobs asks them; the best of all batches says what the code costs, the median what it
 * costs on this machine at this hour.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/blob_table.h"
#include "store/index.h"

enum { BATCH = 1000, LOOKUP_BATCHES = 500, PATH_BYTES_MAX = 4096 };

static int64_t now_ns(void)
{
    return clock_monotonic_ns(clock_real());
}

static int64_t thread_cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * NS_PER_S + time.tv_nsec;
}

static void print(const char *name, double value, const char *unit)
{
    printf("%-40s %12.3f %s\n", name, value, unit);
    fflush(stdout);
}

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "micro_index: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static struct digest digest_number(uint64_t number)
{
    struct digest digest = {
        .hash_length = SHA256_HASH_BYTES, .function = DIGEST_FUNCTION_SHA256, .size_bytes = 3000};
    uint64_t x = number;
    for (size_t i = 0; i < SHA256_HASH_BYTES; i += sizeof(x)) {
        x = (x + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 31;
        memcpy(digest.hash + i, &x, sizeof(x));
    }
    return digest;
}

static struct place place_number(uint64_t number)
{
    return (struct place){.segment = 1 + number / 60000,
                          .offset = (64 + number % 60000 * 64) * RECORD_ALIGNMENT_BYTES};
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* ---- in memory */

static int compare_times(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* first: keys are those of numbers from `first` on, `range` of them. */
static void time_lookups(struct blob_table *table, const char *name, uint64_t first, uint64_t range)
{
    static int64_t times[LOOKUP_BATCHES];
    static struct blob_key keys[BATCH];
    static bool present[BATCH];
    char label[64];
    for (size_t batch = 0; batch < LOOKUP_BATCHES; batch++) {
        for (size_t i = 0; i < BATCH; i++) {
            const struct digest digest = digest_number(first + (uint64_t)random() % range);
            keys[i] = blob_table_blob_key(table, &digest);
        }
        const int64_t start = now_ns();
        blob_table_get_many(table, keys, BATCH, present);
        times[batch] = now_ns() - start;
    }
    qsort(times, LOOKUP_BATCHES, sizeof(times[0]), compare_times);
    snprintf(label, sizeof(label), "get_many_1000_%s_best", name);
    print(label, (double)times[0] / NS_PER_US, "us");
    snprintf(label, sizeof(label), "get_many_1000_%s_median", name);
    print(label, (double)times[LOOKUP_BATCHES / 2] / NS_PER_US, "us");
}

static void time_single_lookups(struct blob_table *table, uint64_t count)
{
    enum { LOOKUPS = 200000 };
    uint64_t found = 0;
    const int64_t start = now_ns();
    for (size_t i = 0; i < LOOKUPS; i++) {
        const struct digest digest = digest_number((uint64_t)random() % count);
        struct place place;
        found += blob_table_get(table, blob_table_blob_key(table, &digest), true, &place);
    }
    print("key_and_get_one_present", (double)(now_ns() - start) / LOOKUPS, "ns");
    if (found != LOOKUPS)
        fprintf(stderr, "micro_index: only %" PRIu64 " were found\n", found);
}

static void time_keys(struct blob_table *table)
{
    enum { KEYS = 1000000 };
    struct digest digest = digest_number(1);
    uint64_t sum = 0;
    const int64_t start = thread_cpu_ns();
    for (size_t i = 0; i < KEYS; i++) {
        digest.hash[0] = (uint8_t)sum;
        sum += blob_table_blob_key(table, &digest).fingerprint;
    }
    print("key", (double)(thread_cpu_ns() - start) / KEYS, "ns");
}

static void run_in_memory(uint64_t count)
{
    struct blob_table *table = NULL;
    struct status status = {0};
    const int64_t resident_before = resident_bytes();
    check(blob_table_new(&table, &status), &status);
    time_keys(table);
    int64_t start = now_ns();
    for (uint64_t i = 0; i < count; i++) {
        const struct digest digest = digest_number(i);
        check(blob_table_put(table, blob_table_blob_key(table, &digest), place_number(i), &status),
              &status);
    }
    print("key_and_put", (double)(now_ns() - start) / (double)count, "ns");
    print("memory_an_entry", (double)(resident_bytes() - resident_before) / (double)count, "bytes");
    time_lookups(table, "present", 0, count);
    time_lookups(table, "absent", count, count);
    time_single_lookups(table, count);
    blob_table_set_min_segment(table, 2);
    start = now_ns();
    blob_table_count(table);
    print("count_after_an_eviction", (double)(now_ns() - start) / NS_PER_MS, "ms");
    blob_table_free(table);
}

/* ---- on disk */

static void fill_batch(struct index_entry entries[BATCH], uint64_t first, bool forget)
{
    for (uint64_t i = 0; i < BATCH; i++)
        entries[i] = (struct index_entry){
            .forget = forget,
            .kind = RECORD_BLOB,
            .digest = digest_number(first + i),
            .place = place_number(first + i),
            .payload_bytes = 3000,
        };
}

static void time_writes(struct index *index, const char *name, uint64_t count, bool forget)
{
    static struct index_entry entries[BATCH];
    const struct index_checkpoint checkpoint = {0};
    struct status status = {0};
    int64_t wall_ns = 0, cpu_ns = 0, longest_ns = 0;
    char label[64];
    for (uint64_t first = 0; first + BATCH <= count; first += BATCH) {
        fill_batch(entries, first, forget);
        const int64_t start = now_ns(), cpu_start = thread_cpu_ns();
        check(index_write(index, entries, BATCH, &checkpoint, &status), &status);
        const int64_t took_ns = now_ns() - start;
        cpu_ns += thread_cpu_ns() - cpu_start;
        wall_ns += took_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    snprintf(label, sizeof(label), "index_%s_1000_an_entry", name);
    print(label, (double)wall_ns / (double)count, "ns");
    snprintf(label, sizeof(label), "index_%s_1000_an_entry_cpu", name);
    print(label, (double)cpu_ns / (double)count, "ns");
    snprintf(label, sizeof(label), "index_%s_1000_longest", name);
    print(label, (double)longest_ns / NS_PER_MS, "ms");
}

static bool count_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    (void)entry;
    (void)status;
    ++*(uint64_t *)argument;
    return true;
}

static void time_iteration(struct index *index, const char *label)
{
    struct status status = {0};
    uint64_t entries = 0;
    const int64_t start = now_ns();
    check(index_iterate(index, count_entry, &entries, &status), &status);
    const int64_t took_ns = now_ns() - start;
    print(label, (double)took_ns / NS_PER_MS, "ms");
    print("  entries", (double)entries, "");
}

static void run_on_disk(const char *path, uint64_t count)
{
    struct index *index = NULL;
    struct index_checkpoint checkpoint;
    struct status status = {0};
    check(index_open(path, &index, &status), &status);
    time_writes(index, "put", count, false);
    int64_t start = now_ns();
    check(index_read_checkpoint(index, &checkpoint, &status), &status);
    print("index_get_before_flush", (double)(now_ns() - start) / NS_PER_MS, "ms");
    start = now_ns();
    check(index_flush(index, &status), &status);
    print("index_flush", (double)(now_ns() - start) / NS_PER_MS, "ms");

    start = now_ns();
    index_close(index);
    print("index_close", (double)(now_ns() - start) / NS_PER_MS, "ms");
    start = now_ns();
    check(index_open(path, &index, &status), &status);
    print("index_open", (double)(now_ns() - start) / NS_PER_MS, "ms");
    time_iteration(index, "index_iterate");

    time_writes(index, "forget", count / 10, true);
    check(index_flush(index, &status), &status);
    time_iteration(index, "index_iterate_with_forgets");
    index_close(index);
}

int main(int argc, char **argv)
{
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const char *parent = argc > 2 ? argv[2] : "/tmp";
    char directory[PATH_BYTES_MAX], path[PATH_BYTES_MAX + 8];
    struct status status = {0};
    if (count < BATCH || argc > 3) {
        fprintf(stderr, "usage: micro_index [ENTRIES [DIRECTORY]], at least %d entries\n", BATCH);
        return 2;
    }
    const int length = snprintf(directory, sizeof(directory), "%s/varve-bench-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof(directory) || mkdtemp(directory) == NULL) {
        fprintf(stderr, "micro_index: cannot make a directory in %s\n", parent);
        return EXIT_FAILURE;
    }
    snprintf(path, sizeof(path), "%s/index", directory);
    run_in_memory(count);
    run_on_disk(path, count);
    check(index_destroy(path, &status), &status);
    rmdir(directory);
    return EXIT_SUCCESS;
}
