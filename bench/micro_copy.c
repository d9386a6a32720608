/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the records of one store are read, verified and appended to another on this machine, without
 * a network: what a node that follows another can be held to.
 *
 *   varve fsck --list FROM | micro_copy FROM TO [THREADS]
 *
 * FROM: the data directory of a stopped server. TO: another, that is made. So many threads (16) each
 * take the next blob, read it, hash it, append it and wait for its group commit. Prints how many blobs
 * and bytes, seconds, MiB/s and syncs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "durability/put_file.h"
#include "store/blob_reader.h"

enum { THREADS_MAX = 256, LINE_BYTES = 512 };

static struct {
    struct durability *from, *to;
    struct buffer_pool *buffers;
    struct digest *digests;
    size_t count, capacity;
    atomic_size_t next;
    atomic_size_t bytes;
} copy;

/* One blob on its way. */
struct source {
    struct blob_reader *reader;
    struct buffer *buffer;
    struct bytes data; /* read and not yet given */
    uint64_t offset;
};

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "micro_copy: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static struct durability *open_store(const char *directory, struct metrics *metrics)
{
    const struct store_config config = {
        .io = io_posix(),
        .clock = clock_real(),
        .metrics = metrics,
        .buffers = copy.buffers,
        .directory = directory,
    };
    struct durability *durability;
    struct recovery_report report;
    struct status status = {0};
    check(durability_open(&config, NULL, NULL, &durability, &report, &status), &status);
    return durability;
}

static void read_digests(void)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct status status = {0};
        struct digest digest;
        const char *text = line + strlen("blob ");
        if (strncmp(line, "blob ", strlen("blob ")) != 0 ||
            !digest_parse_text(bytes_of(text, strcspn(text, " \t\n")), &digest, &status))
            continue; /* an action result, or a line for people */
        if (copy.count == copy.capacity) {
            copy.capacity = copy.capacity == 0 ? 1024 : copy.capacity * 2;
            copy.digests = realloc(copy.digests, copy.capacity * sizeof(*copy.digests));
            if (copy.digests == NULL)
                exit(EXIT_FAILURE);
        }
        copy.digests[copy.count++] = digest;
    }
}

static bool read_some(void *argument,
                      uint8_t *to,
                      size_t capacity,
                      size_t *got,
                      struct status *status)
{
    struct source *source = argument;
    if (source->data.length == 0 && source->offset < blob_reader_size(source->reader)) {
        if (!blob_reader_read(source->reader, source->offset, source->buffer, &source->data,
                              status))
            return false;
        source->offset += source->data.length;
    }
    *got = source->data.length < capacity ? source->data.length : capacity;
    if (*got > 0)
        memcpy(to, source->data.data, *got);
    source->data.data += *got;
    source->data.length -= *got;
    return true;
}

static void *copy_blobs(void *argument)
{
    (void)argument;
    struct status status = {0};
    struct source source = {.buffer = buffer_pool_try_take(copy.buffers)};
    if (source.buffer == NULL)
        exit(EXIT_FAILURE);
    for (size_t i = atomic_fetch_add(&copy.next, 1); i < copy.count;
         i = atomic_fetch_add(&copy.next, 1)) {
        const struct digest *digest = &copy.digests[i];
        source.offset = 0;
        source.data.length = 0;
        check(blob_reader_open(durability_store(copy.from), digest, &source.reader, &status),
              &status);
        if (source.reader == NULL)
            continue;
        const struct put_reader reader = {.read = read_some, .argument = &source};
        check(put_stream(copy.to, digest, &reader, &status), &status);
        blob_reader_free(source.reader);
        atomic_fetch_add(&copy.bytes, (size_t)digest->size_bytes);
    }
    buffer_release(source.buffer);
    return NULL;
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    static struct metrics from_metrics, to_metrics;
    struct status status = {0};
    const unsigned long threads = count > 3 ? strtoul(arguments[3], NULL, 10) : 16;
    if (count < 3 || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: varve fsck --list FROM | micro_copy FROM TO [THREADS]\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_ERROR);
    read_digests();
    check(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, 2 * threads + 16, &copy.buffers, &status),
          &status);
    copy.from = open_store(arguments[1], &from_metrics);
    copy.to = open_store(arguments[2], &to_metrics);
    pthread_t workers[THREADS_MAX];
    const double began_s = now_s();
    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&workers[i], NULL, copy_blobs, NULL) != 0)
            return EXIT_FAILURE;
    }
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    const double took_s = now_s() - began_s;
    const double mebibytes = (double)atomic_load(&copy.bytes) / (double)MIB;
    const int64_t syncs = metrics_get(&to_metrics, METRIC_SEGMENT_SYNCS_SMALL) +
                          metrics_get(&to_metrics, METRIC_SEGMENT_SYNCS_LARGE);
    printf("%zu blobs, %.1f MiB in %.2f s: %.1f MiB/s, %.0f blobs/s, %lld syncs\n", copy.count,
           mebibytes, took_s, mebibytes / took_s, (double)copy.count / took_s, (long long)syncs);
    durability_close(copy.to);
    durability_close(copy.from);
    buffer_pool_free(copy.buffers);
    free(copy.digests);
    return EXIT_SUCCESS;
}
