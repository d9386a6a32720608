/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sending costs beside what it could cost at best, each figure and its floor measured in turn in
 * one run:
 *
 *   sender tree SERVER DIRECTORY [FILES [BYTES]]   a tree pushed, beside tar, hashing and streams
 *   sender modes SERVER                            blobs in batches beside a stream for each
 *   sender pack                                    what packing costs an entry, up to a million
 *   sender rss COMMAND...                          runs it; its largest memory
 *
 * Environment: ROUNDS (5), SERVER_PID (its CPU is told as well). bench/README.md has results.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/batch.h"
#include "client/push.h"
#include "client/uploader.h"

enum { ROUNDS_MAX = 50, FILES_IN_DIRECTORY = 100, PATH_BYTES_MAX = 4096 };

/* One thing that is measured, over all rounds. */
struct measure {
    const char *name;
    double wall_ms[ROUNDS_MAX], client_ms[ROUNDS_MAX], server_ms[ROUNDS_MAX];
    size_t count;
};

struct moment {
    double wall_ms, client_ms, server_ms;
};

static struct client *client;
static struct capabilities capabilities;
static size_t rounds = 5;
static uint64_t salt;
static uint64_t next_number;

static void check(bool ok, const struct status *status)
{
    if (ok)
        return;
    fprintf(stderr, "sender: %s\n", status->message);
    exit(EXIT_FAILURE);
}

static void check_errno(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "sender: %s: %m\n", what);
    exit(EXIT_FAILURE);
}

static double timespec_ms(struct timespec time)
{
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* User and system time of the server so far; 0 when its process is not known. */
static double server_cpu_ms(void)
{
    const char *pid = getenv("SERVER_PID");
    char path[64];
    unsigned long user = 0, system_time = 0;
    if (pid == NULL)
        return 0;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system_time) != 2)
        user = system_time = 0;
    fclose(file);
    return (double)(user + system_time) * 1e3 / (double)sysconf(_SC_CLK_TCK);
}

static struct moment now(void)
{
    struct timespec wall, cpu;
    struct rusage children; /* tar */
    clock_gettime(CLOCK_MONOTONIC, &wall);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    getrusage(RUSAGE_CHILDREN, &children);
    const double children_ms =
        (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) * 1e3 +
        (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e3;
    return (struct moment){timespec_ms(wall), timespec_ms(cpu) + children_ms, server_cpu_ms()};
}

static void note(struct measure *measure, struct moment start)
{
    const struct moment end = now();
    ASSERT(measure->count < ROUNDS_MAX);
    measure->wall_ms[measure->count] = end.wall_ms - start.wall_ms;
    measure->client_ms[measure->count] = end.client_ms - start.client_ms;
    measure->server_ms[measure->count] = end.server_ms - start.server_ms;
    measure->count++;
}

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

static double best(const struct measure *measure)
{
    return quantile(measure->wall_ms, measure->count, 0);
}

static double median(const struct measure *measure)
{
    return quantile(measure->wall_ms, measure->count, 0.5);
}

/* server_share: 1 adds the server's. */
static double median_cpu(const struct measure *measure, double server_share)
{
    double sums[ROUNDS_MAX];
    for (size_t i = 0; i < measure->count; i++)
        sums[i] = measure->client_ms[i] + server_share * measure->server_ms[i];
    return quantile(sums, measure->count, 0.5);
}

static void print_heading(void)
{
    printf("| what | wall ms min | median | client CPU ms median | server CPU ms median |\n"
           "| --- | --- | --- | --- | --- |\n");
}

static void print_measure(const struct measure *measure)
{
    printf("| %s | %.1f | %.1f | %.1f | %.0f |\n", measure->name, best(measure), median(measure),
           quantile(measure->client_ms, measure->count, 0.5),
           quantile(measure->server_ms, measure->count, 0.5));
    fflush(stdout);
}

/* Of the same rounds: wall time of the best and of the medians; and CPU on this side. */
static void print_ratio(const char *what, const struct measure *of, const struct measure *to)
{
    printf("ratio: %s: %.2f (best to best), %.2f (medians); client CPU %.2f, with the server's "
           "%.2f\n",
           what, best(of) / best(to), median(of) / median(to),
           median_cpu(of, 0) / median_cpu(to, 0), median_cpu(of, 1) / median_cpu(to, 1));
    fflush(stdout);
}

static void connect_to(const char *server)
{
    client_prepare_process();
    struct client_options options = client_options_default();
    options.tool_name = "varve-bench-sender";
    struct status status = {0};
    check(client_connect(server, &options, &client, &status), &status);
    check(capabilities_get(client, &capabilities, &status), &status);
}

/* Noise that nobody has seen. */
static void fill_unique(uint8_t *data, size_t size)
{
    uint64_t x = salt + next_number++ * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t at = 0; at < size; at += sizeof(x)) {
        x ^= x >> 30;
        x *= UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 27;
        memcpy(data + at, &x, size - at < sizeof(x) ? size - at : sizeof(x));
    }
}

/* ---- tree */

static void make_tree(const char *root, size_t files, size_t bytes)
{
    char path[PATH_BYTES_MAX];
    uint8_t *data = malloc(bytes + 8);
    check_errno(data != NULL && mkdir(root, 0755) == 0, root);
    for (size_t i = 0; i < files; i++) {
        if (i % FILES_IN_DIRECTORY == 0) {
            snprintf(path, sizeof(path), "%s/%zu", root, i / FILES_IN_DIRECTORY);
            check_errno(mkdir(path, 0755) == 0, path);
        }
        snprintf(path, sizeof(path), "%s/%zu/file-%zu.o", root, i / FILES_IN_DIRECTORY, i);
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        fill_unique(data, bytes);
        check_errno(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0, path);
    }
    free(data);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

/* As a person would type it. */
static void run_tar(const char *root)
{
    const pid_t child = fork();
    check_errno(child >= 0, "fork");
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "tar cf - \"$1\" 2>/dev/null | wc -c >/dev/null", "sh", root,
              NULL);
        _exit(127);
    }
    int result;
    check_errno(waitpid(child, &result, 0) == child && result == 0, "tar");
}

static bool drop_content(void *argument,
                         const struct digest *digest,
                         const char *path,
                         uint8_t *content,
                         struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)status;
    free(content);
    return true;
}

static bool drop_file(void *argument,
                      const struct digest *digest,
                      const char *path,
                      const struct stat *stat,
                      struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)stat;
    (void)status;
    return true;
}

static void say_problem(void *argument, const struct status *problem)
{
    (void)argument;
    fprintf(stderr, "sender: %s\n", problem->message);
}

static void hash_tree(const char *root)
{
    const struct tree_visitor visitor = {.directory = drop_content,
                                         .content = drop_content,
                                         .file = drop_file,
                                         .problem = say_problem};
    struct digest digest;
    struct tree_totals totals;
    struct status status = {0};
    check(tree_walk(root, 0, &visitor, &digest, &totals, &status), &status);
}

static void no_push_progress(void *argument, const struct push_counts *counts)
{
    (void)argument;
    (void)counts;
}

static struct push_counts push_tree(const char *root, const struct push_options *options)
{
    const struct push_observer observer = {.problem = say_problem, .progress = no_push_progress};
    struct digest digest;
    struct push_counts counts;
    struct status status = {0};
    check(
        push_directory(client, &capabilities, root, options, &observer, &digest, &counts, &status),
        &status);
    return counts;
}

/*
 * Each round has trees of its own, warm in the page cache as they were just written; the kinds take
 * turns, so that a machine that drifts does so for all.
 */
static void measure_tree(const char *directory, size_t files, size_t bytes)
{
    struct measure tar = {.name = "tar cf - DIR, wc -c"},
                   hashed = {.name = "reading and hashing alone"}, pushed = {.name = "push"},
                   again = {.name = "push of the same tree again"},
                   streams = {.name = "one ByteStream a file, 32 in flight"},
                   stream = {.name = "one ByteStream a file, one after the other"};
    struct push_options one_each = push_options_default();
    one_each.limits.batched_blob_bytes_max = 0;
    struct push_options one_by_one = one_each;
    one_by_one.streams_in_flight_max = 1;
    struct push_counts first = {0}, second = {0};
    for (size_t round = 0; round < rounds; round++) {
        char roots[3][PATH_BYTES_MAX];
        for (size_t i = 0; i < 3; i++) {
            snprintf(roots[i], sizeof(roots[i]), "%s/tree-%zu-%zu", directory, round, i);
            make_tree(roots[i], files, bytes);
        }
        sync();
        run_tar(roots[0]); /* warm, and the first turn of each kind finds it as the others do */
        hash_tree(roots[0]);
        struct moment start = now();
        run_tar(roots[0]);
        note(&tar, start);
        start = now();
        hash_tree(roots[0]);
        note(&hashed, start);
        start = now();
        first = push_tree(roots[0], NULL);
        note(&pushed, start);
        start = now();
        second = push_tree(roots[0], NULL);
        note(&again, start);
        start = now();
        push_tree(roots[1], &one_each);
        note(&streams, start);
        if (round == 0) { /* minutes where a sync costs much */
            start = now();
            push_tree(roots[2], &one_by_one);
            note(&stream, start);
        }
        for (size_t i = 0; i < 3; i++)
            nftw(roots[i], remove_one, 32, FTW_DEPTH | FTW_PHYS);
    }
    printf("%zu files of %zu bytes, %zu rounds; calls of a push: %llu pages, %llu batches, %llu "
           "streams; of the second: %llu, %llu, %llu\n\n",
           files, bytes, rounds, (unsigned long long)first.blobs.pages,
           (unsigned long long)first.blobs.batches, (unsigned long long)first.blobs.streams,
           (unsigned long long)second.blobs.pages, (unsigned long long)second.blobs.batches,
           (unsigned long long)second.blobs.streams);
    print_heading();
    const struct measure *const all[] = {&tar, &hashed, &pushed, &again, &streams, &stream};
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
        print_measure(all[i]);
    printf("\n");
    print_ratio("push to tar (wanted: at most 3)", &pushed, &tar);
    print_ratio("streams, 32 in flight, to push (wanted: at least 10)", &streams, &pushed);
    print_ratio("streams, one after the other, to push", &stream, &pushed);
    print_ratio("second push to hashing alone (wanted: at most 1.5)", &again, &hashed);
}

/* ---- modes */

static void no_progress(void *argument)
{
    (void)argument;
}

static void upload_many(size_t count, size_t size, uint8_t **blobs, bool batched)
{
    struct uploader_config config = uploader_config_default();
    config.client = client;
    config.capabilities = &capabilities;
    config.limits.batched_blob_bytes_max =
        batched ? config.limits.batch_bytes_max - config.limits.entry_overhead_bytes : 0;
    config.streams_in_flight_max = 64;
    config.observer = (struct uploader_observer){.problem = say_problem, .progress = no_progress};
    struct uploader *uploader;
    struct status status = {0};
    check(uploader_new(&config, &uploader, &status), &status);
    for (size_t i = 0; i < count; i++) {
        struct digest digest;
        uint8_t *content = blobs[i];
        blobs[i] = NULL;
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(content, size), &digest);
        check(uploader_add_content(uploader, &digest, content, "blob", &status), &status);
    }
    check(uploader_finish(uploader, &status), &status);
    ASSERT(uploader_counts(uploader)->uploaded == count);
    uploader_free(uploader);
}

static void measure_modes(void)
{
    static const struct {
        size_t size, count;
        const char *batch, *stream;
        double published, wanted;
    } cases[] = {
        {4 << 10, 2048, "4 KiB x 2048, batches", "4 KiB x 2048, streams", 15.5, 15.5},
        {32 << 10, 512, "32 KiB x 512, batches", "32 KiB x 512, streams", 3.6, 3.6},
        {256 << 10, 128, "256 KiB x 128, batches", "256 KiB x 128, streams", 1.4, 1.4},
    };
    struct measure batch[ARRAY_LENGTH(cases)] = {{0}}, stream[ARRAY_LENGTH(cases)] = {{0}};
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            batch[i].name = cases[i].batch;
            stream[i].name = cases[i].stream;
            for (int mode = 0; mode < 2; mode++) {
                uint8_t **blobs = calloc(cases[i].count, sizeof(*blobs));
                for (size_t n = 0; n < cases[i].count; n++) {
                    blobs[n] = malloc(cases[i].size);
                    fill_unique(blobs[n], cases[i].size);
                }
                const struct moment start = now();
                upload_many(cases[i].count, cases[i].size, blobs, mode == 0);
                note(mode == 0 ? &batch[i] : &stream[i], start);
                free(blobs);
            }
        }
    }
    printf(
        "4 batches or 64 streams in flight, hashing and FindMissingBlobs with them, %zu rounds\n\n",
        rounds);
    print_heading();
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        print_measure(&batch[i]);
        print_measure(&stream[i]);
    }
    printf("\n");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char what[100];
        snprintf(what, sizeof(what), "%s to batches (wanted: at least %.1f)", cases[i].stream,
                 cases[i].wanted);
        print_ratio(what, &stream[i], &batch[i]);
    }
}

/* ---- pack */

static void measure_pack(void)
{
    static const size_t counts[] = {10000, 100000, 1000000};
    printf("| entries | ms | ns an entry |\n| --- | --- | --- |\n");
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        double best_ms = 1e30;
        for (size_t round = 0; round < rounds; round++) {
            struct batch_packer *packer;
            struct status status = {0};
            const struct batch_packer_limits limits = batch_packer_limits_default();
            check(batch_packer_new(&limits, &packer, &status), &status);
            size_t batches = 0, entries = 0, encoded = 0;
            const struct moment start = now();
            for (size_t n = 0; n < counts[i]; n++) {
                struct digest digest = {.hash_length = SHA256_HASH_BYTES,
                                        .function = DIGEST_FUNCTION_SHA256,
                                        .size_bytes = (int64_t)(n * 37 % 6000)};
                const uint64_t number = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
                memcpy(digest.hash, &number, sizeof(number));
                enum batch_verdict verdict;
                check(batch_packer_add(packer, &digest, NULL, &verdict, &status), &status);
                if (verdict == BATCH_FULL) {
                    size_t count;
                    free(batch_packer_take(packer, &count));
                    batches++;
                    entries += count;
                    check(batch_packer_add(packer, &digest, NULL, &verdict, &status), &status);
                }
                encoded += batch_update_entry_bytes(&digest);
            }
            const double ms = now().client_ms - start.client_ms;
            best_ms = ms < best_ms ? ms : best_ms;
            ASSERT(entries + batch_packer_count(packer) == counts[i] && batches > 0 && encoded > 0);
            batch_packer_free(packer);
        }
        printf("| %zu | %.2f | %.1f |\n", counts[i], best_ms, best_ms * 1e6 / (double)counts[i]);
    }
}

/* ---- rss */

static int measure_rss(char **command)
{
    const struct moment start = now();
    const pid_t child = fork();
    check_errno(child >= 0, "fork");
    if (child == 0) {
        execvp(command[0], command);
        fprintf(stderr, "sender: %s: %m\n", command[0]);
        _exit(127);
    }
    int result;
    struct rusage usage;
    check_errno(wait4(child, &result, 0, &usage) == child, "wait");
    printf("exit status %d, %.1f MiB of memory at most, %.1f s, CPU %.1f s\n",
           WIFEXITED(result) ? WEXITSTATUS(result) : -1, (double)usage.ru_maxrss / 1024,
           (now().wall_ms - start.wall_ms) / 1e3,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 1;
}

static size_t number_of(const char *text)
{
    char *end;
    const unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || number == 0) {
        fprintf(stderr, "sender: %s is no number\n", text);
        exit(2);
    }
    return number;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *wanted_rounds = getenv("ROUNDS");
    if (wanted_rounds != NULL)
        rounds = number_of(wanted_rounds);
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    check_errno(getrandom(&salt, sizeof(salt), 0) == (ssize_t)sizeof(salt), "getrandom");
    if (strcmp(what, "tree") == 0 && argc >= 4) {
        connect_to(argv[2]);
        measure_tree(argv[3], argc > 4 ? number_of(argv[4]) : 13000,
                     argc > 5 ? number_of(argv[5]) : 3072);
    } else if (strcmp(what, "modes") == 0 && argc == 3) {
        connect_to(argv[2]);
        measure_modes();
    } else if (strcmp(what, "pack") == 0) {
        measure_pack();
    } else if (strcmp(what, "rss") == 0 && argc > 2) {
        return measure_rss(argv + 2);
    } else {
        fprintf(stderr,
                "usage: sender tree SERVER DIRECTORY [FILES [BYTES]] | modes SERVER | pack | "
                "rss COMMAND...\n");
        return 2;
    }
    if (client != NULL)
        client_close(client);
    return 0;
}
