/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 256 MiB file put into a store of this process, beside what its parts cost alone; each kind once a
 * round, in turn, warm source and fresh destination.
 *
 *   micro_put [MEBIBYTES [DIRECTORY]]      256 and /tmp, where a subdirectory is made and removed
 *
 * ROUNDS in the environment (7); the first round is dropped. Before each measurement as much page
 * cache as it takes is filled and freed: a virtual machine gives free memory back to its host, and
 * getting it again costs ten times what the copy into it does, for whoever comes first.
 * CPU is that of the calling thread, unless it says process. bench/README.md has results.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "durability/put_file.h"
#include "store/blob_writer.h"

enum { ROUNDS_MAX = 50, PATH_BYTES_MAX = 4096, SMALL_PIECE = 32 * 1024, PIECE = 256 * 1024 };

struct kind {
    const char *name;
    void (*run)(void);
    double wall_ms[ROUNDS_MAX], caller_ms[ROUNDS_MAX], process_ms[ROUNDS_MAX];
};

static char work[PATH_BYTES_MAX];
static size_t size_bytes = 256 << 20;
static int source = -1;
static struct digest source_digest;
static struct metrics metrics;
static struct buffer_pool *buffers;
static struct durability *durability;

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "micro_put: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static void check_errno(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(EXIT_FAILURE);
}

static double clock_ms(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* Another file each time: a few bytes of it change. */
static void renew_source(void)
{
    static uint64_t number;
    number++;
    check_errno(pwrite(source, &number, sizeof(number), 0) == sizeof(number), "source");
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    uint8_t *piece = malloc(PIECE);
    for (size_t at = 0; at < size_bytes; at += PIECE) {
        check_errno(pread(source, piece, PIECE, (off_t)at) == PIECE, "source");
        hasher_update(hasher, bytes_of(piece, PIECE));
    }
    hasher_finish(hasher, &source_digest);
    hasher_free(hasher);
    free(piece);
}

static uint8_t *piece_memory; /* 1 MiB, touched */

static void warm_page_cache(void)
{
    char path[PATH_BYTES_MAX + 32];
    snprintf(path, sizeof(path), "%s/warm", work);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    check_errno(fd >= 0, path);
    for (size_t at = 0; at < size_bytes + size_bytes / 8; at += MIB)
        check_errno(write(fd, piece_memory, MIB) == (ssize_t)MIB, path);
    check_errno(unlink(path) == 0, path);
    close(fd); /* it never reaches the disk */
}

/* ---- the parts alone */

static void read_alone(void)
{
    for (size_t at = 0; at < size_bytes; at += MIB)
        check_errno(pread(source, piece_memory, MIB, (off_t)at) == (ssize_t)MIB, "read");
}

static void hash_alone(void)
{
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    for (size_t at = 0; at < size_bytes; at += PIECE)
        hasher_update(hasher, bytes_of(piece_memory, PIECE));
    struct digest digest;
    hasher_finish(hasher, &digest);
    hasher_free(hasher);
}

static void crc_alone(void)
{
    uint32_t crc = 0;
    for (size_t at = 0; at < size_bytes; at += PIECE)
        crc = crc32c(crc, bytes_of(piece_memory, PIECE));
    ASSERT(crc != 1);
}

static int open_fresh(void)
{
    char path[PATH_BYTES_MAX + 32];
    snprintf(path, sizeof(path), "%s/fresh", work);
    unlink(path);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    check_errno(fd >= 0 && posix_fallocate(fd, 0, (off_t)size_bytes) == 0, path);
    return fd;
}

static void copy_by(size_t length)
{
    const int fd = open_fresh();
    for (size_t at = 0; at < size_bytes; at += length) {
        check_errno(pread(source, piece_memory, length, (off_t)at) == (ssize_t)length, "read");
        check_errno(pwrite(fd, piece_memory, length, (off_t)at) == (ssize_t)length, "write");
    }
    close(fd);
}

static void copy_small(void)
{
    copy_by(SMALL_PIECE);
}

static void copy_large(void)
{
    copy_by(MIB);
}

/* ---- the floor of a durable put: read, hash, checksum, write; synced in the background */

static struct {
    int fd;
    _Atomic uint64_t written, synced;
    _Atomic bool end;
} background;

static void sync_in_background(void *argument)
{
    (void)argument;
    while (!background.end || background.synced < background.written) {
        const uint64_t written = background.written;
        if (written - background.synced >= LIMIT_UNSYNCED_BYTES || background.end) {
            check_errno(fdatasync(background.fd) == 0, "sync");
            background.synced = written;
        } else {
            usleep(200);
        }
    }
}

static void durable_floor(void)
{
    struct thread thread = {0};
    struct status status = {0};
    struct hasher *hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    uint32_t crc = 0;
    background.fd = open_fresh();
    background.written = background.synced = 0;
    background.end = false;
    check(thread_start(&thread, "sync", 0, sync_in_background, NULL, &status), &status);
    for (size_t at = 0; at < size_bytes; at += MIB) {
        for (size_t in = 0; in < MIB; in += PIECE) {
            uint8_t *to = piece_memory + in;
            check_errno(pread(source, to, PIECE, (off_t)(at + in)) == PIECE, "read");
            hasher_update(hasher, bytes_of(to, PIECE));
            crc = crc32c(crc, bytes_of(to, PIECE));
        }
        check_errno(pwrite(background.fd, piece_memory, MIB, (off_t)at) == (ssize_t)MIB, "write");
        background.written += MIB;
    }
    background.end = true;
    thread_join(&thread);
    check_errno(fdatasync(background.fd) == 0, "sync");
    struct digest digest;
    hasher_finish(hasher, &digest);
    ASSERT(digest_equal(&digest, &source_digest));
    hasher_free(hasher);
    close(background.fd);
}

/* ---- ours */

static void put(const struct digest *digest, enum put_check how)
{
    const struct put_request request = {
        .fd = source, .name = "source", .digest = digest, .check = how};
    struct digest stored;
    struct status status = {0};
    check(put_file(durability, &request, &stored, &status), &status);
    ASSERT(digest_equal(&stored, &source_digest));
}

static void put_vouched(void)
{
    put(&source_digest, PUT_VOUCHED);
}

static void put_hashed(void)
{
    put(&source_digest, PUT_HASHED);
}

static void put_unknown(void)
{
    put(NULL, PUT_HASHED);
}

/* The same store, but the bytes come in small pieces and are copied into the chunk. */
static void put_by_copies(void)
{
    struct store *store = durability_store(durability);
    struct blob_writer *writer;
    struct record *record;
    enum lane lane;
    struct status status = {0};
    check(blob_writer_new(store, &source_digest, &writer, &status), &status);
    blob_writer_trust(writer);
    struct buffer *buffer = buffer_pool_try_take(buffers);
    ASSERT(buffer != NULL);
    blob_writer_give_buffer(writer, buffer);
    for (size_t at = 0; at < size_bytes; at += SMALL_PIECE) {
        check_errno(pread(source, piece_memory, SMALL_PIECE, (off_t)at) == SMALL_PIECE, "read");
        check(blob_writer_append(writer, bytes_of(piece_memory, SMALL_PIECE), &status), &status);
    }
    check(blob_writer_finish(writer, &record, &lane, &status), &status);
    blob_writer_free(writer); /* what it cost is what it cost: no manifest, so no blob */
}

static struct kind kinds[] = {
    {.name = "read, 1 MiB", .run = read_alone},
    {.name = "SHA-256 alone", .run = hash_alone},
    {.name = "CRC-32C alone", .run = crc_alone},
    {.name = "read + write, 32 KiB, no hash, not durable", .run = copy_small},
    {.name = "read + write, 1 MiB, no hash, not durable", .run = copy_large},
    {.name = "floor: read + SHA + CRC + write, durable", .run = durable_floor},
    {.name = "store, 32 KiB copies, no hash, not durable", .run = put_by_copies},
    {.name = "put_file, vouched for, durable", .run = put_vouched},
    {.name = "put_file, digest known, durable", .run = put_hashed},
    {.name = "put_file, digest not known, durable", .run = put_unknown},
};
enum {
    READ,
    HASH,
    CRC,
    COPY_SMALL,
    COPY_LARGE,
    FLOOR,
    STORE_COPIES,
    VOUCHED,
    KNOWN,
    UNKNOWN,
};

static int compare_doubles(const void *a, const void *b)
{
    const double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double quantile(const double *values, size_t count, double at)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), compare_doubles);
    return sorted[(size_t)(at * (double)(count - 1) + 0.5)];
}

static void print_ratio(const char *what,
                        size_t count,
                        const double *of,
                        const double *to,
                        const double *and_to)
{
    double sums[ROUNDS_MAX];
    for (size_t i = 0; i < count; i++)
        sums[i] = to[i] + (and_to != NULL ? and_to[i] : 0);
    printf("ratio: %s: %.2f (best to best), %.2f (medians)\n", what,
           quantile(of, count, 0) / quantile(sums, count, 0),
           quantile(of, count, 0.5) / quantile(sums, count, 0.5));
}

static void open_all(const char *parent)
{
    struct status status = {0};
    snprintf(work, sizeof(work), "%s/varve-micro-put.XXXXXX", parent);
    check_errno(mkdtemp(work) != NULL, work);
    char path[PATH_BYTES_MAX + 32];
    snprintf(path, sizeof(path), "%s/source", work);
    source = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    check_errno(source >= 0, path);
    piece_memory = aligned_alloc(4096, MIB);
    uint64_t x = 88172645463325252u;
    for (size_t at = 0; at < size_bytes; at += MIB) {
        for (size_t i = 0; i < MIB; i += sizeof(x)) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            memcpy(piece_memory + i, &x, sizeof(x));
        }
        check_errno(write(source, piece_memory, MIB) == (ssize_t)MIB, "source");
    }
    check_errno(fsync(source) == 0, "source");
    log_set_level(LOG_LEVEL_ERROR);
    check(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, 8, &buffers, &status), &status);
    snprintf(path, sizeof(path), "%s/data", work);
    const struct store_config config = {.io = io_posix(),
                                        .clock = clock_real(),
                                        .metrics = &metrics,
                                        .buffers = buffers,
                                        .directory = path};
    struct recovery_report report;
    check(durability_open(&config, NULL, NULL, &durability, &report, &status), &status);
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
    if (argc > 1)
        size_bytes = strtoul(argv[1], NULL, 10) << 20;
    const char *wanted_rounds = getenv("ROUNDS");
    const size_t rounds = wanted_rounds != NULL ? strtoul(wanted_rounds, NULL, 10) : 7;
    if (size_bytes == 0 || rounds == 0 || rounds >= ROUNDS_MAX) {
        fprintf(stderr, "usage: micro_put [MEBIBYTES [DIRECTORY]], ROUNDS=1 to %d\n",
                ROUNDS_MAX - 1);
        return 2;
    }
    open_all(argc > 2 ? argv[2] : "/tmp");
    for (size_t round = 0; round <= rounds; round++) {
        for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
            renew_source();
            sync(); /* nobody pays for what another left dirty */
            warm_page_cache();
            const double wall = clock_ms(CLOCK_MONOTONIC);
            const double caller = clock_ms(CLOCK_THREAD_CPUTIME_ID);
            const double process = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
            kinds[i].run();
            if (round == 0)
                continue;
            kinds[i].wall_ms[round - 1] = clock_ms(CLOCK_MONOTONIC) - wall;
            kinds[i].caller_ms[round - 1] = clock_ms(CLOCK_THREAD_CPUTIME_ID) - caller;
            kinds[i].process_ms[round - 1] = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - process;
        }
    }
    printf("%zu MiB, %zu rounds; ms\n\n"
           "| what | wall min | median | caller CPU min | median | process CPU median |\n"
           "| --- | --- | --- | --- | --- | --- |\n",
           size_bytes >> 20, rounds);
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f |\n", kinds[i].name,
               quantile(kinds[i].wall_ms, rounds, 0), quantile(kinds[i].wall_ms, rounds, 0.5),
               quantile(kinds[i].caller_ms, rounds, 0), quantile(kinds[i].caller_ms, rounds, 0.5),
               quantile(kinds[i].process_ms, rounds, 0.5));
    printf("\n");
    print_ratio("caller CPU, vouched for, to read + write by 32 KiB (wanted: at most 0.5)", rounds,
                kinds[VOUCHED].caller_ms, kinds[COPY_SMALL].caller_ms, NULL);
    print_ratio("caller CPU, vouched for, to the same store with 32 KiB copies", rounds,
                kinds[VOUCHED].caller_ms, kinds[STORE_COPIES].caller_ms, NULL);
    print_ratio("caller CPU, hashed, to hashing alone plus vouched for (wanted: at most 1.1)",
                rounds, kinds[KNOWN].caller_ms, kinds[HASH].caller_ms, kinds[VOUCHED].caller_ms);
    print_ratio("durable wall, hashed, to the floor (wanted: at most 1.15)", rounds,
                kinds[KNOWN].wall_ms, kinds[FLOOR].wall_ms, NULL);
    durability_close(durability);
    buffer_pool_free(buffers);
    close(source);
    nftw(work, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    free(piece_memory);
    return 0;
}
