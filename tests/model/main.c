/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves, as far as many runs can, that a store keeps what it has acknowledged, whenever and
 * however its process or its machine stops, and that it never gives a wrong byte: tests/model/model.h
 * says how.
 *
 *   test_model [--images N] [--seconds S] [--seed FIRST] [--jobs J]    runs of consecutive seeds
 *   test_model --repeat SEED                                           one run, traced to stderr
 *
 * Each run is a process of its own. The first that fails is named with its seed, and ends it all.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/model/model.h"
#include "tests/model/run.h"

enum { JOBS_MAX = 64 };

/* Sanitizers slow it down several times. */
#if defined(__SANITIZE_ADDRESS__)
enum { IMAGES_BY_DEFAULT = 600 };
#elif defined(__SANITIZE_THREAD__)
enum { IMAGES_BY_DEFAULT = 100 }; /* there is one thread */
#else
enum { IMAGES_BY_DEFAULT = 2000 };
#endif

struct options {
    uint64_t images;
    uint64_t seconds; /* 0: until there are so many images */
    uint64_t first_seed;
    size_t jobs;
    bool repeat;
};

struct job {
    pid_t pid; /* 0: none */
    uint64_t seed;
};

static bool read_options(int count, char **arguments, struct options *options);
static bool read_number(const char *text, uint64_t *number);
static int run_all(const struct options *options);
static struct run_counts *shared_counts(void);
static pid_t start_run(uint64_t seed, struct run_counts *counts);
static bool wait_for_one(struct job *jobs, size_t count, uint64_t *failed_seed);
static void end_all(struct job *jobs, size_t count);
static int64_t now_s(void);

int main(int count, char **arguments)
{
    struct options options;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!read_options(count, arguments, &options)) {
        fprintf(stderr,
                "usage: %s [--images N] [--seconds S] [--seed FIRST] [--jobs J]\n"
                "       %s --repeat SEED\n",
                arguments[0], arguments[0]);
        return 2;
    }
    /* Memory stays where it is: fresh pages cost more than anything else here. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
    if (options.repeat) {
        struct run_counts counts = {0};
        model_begin_run(options.first_seed, true);
        run_model(options.first_seed, &counts);
        printf("seed %" PRIu64 " is fine: %" PRIu64 " images\n", options.first_seed, counts.images);
        return EXIT_SUCCESS;
    }
    return run_all(&options);
}

static bool read_options(int count, char **arguments, struct options *options)
{
    static const struct option known[] = {
        {"images", required_argument, NULL, 'i'}, {"seconds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'f'},   {"jobs", required_argument, NULL, 'j'},
        {"repeat", required_argument, NULL, 'r'}, {0},
    };
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *options = (struct options){.images = IMAGES_BY_DEFAULT,
                                .first_seed = 1,
                                .jobs = processors < 1 ? 1 : (size_t)processors};
    int which;
    while ((which = getopt_long(count, arguments, "", known, NULL)) != -1) {
        uint64_t number = 0;
        if (which == '?' || !read_number(optarg, &number))
            return false;
        switch (which) {
        case 'i':
            options->images = number;
            break;
        case 's':
            options->seconds = number;
            break;
        case 'j':
            options->jobs = (size_t)number;
            break;
        default:
            options->first_seed = number;
            options->repeat = which == 'r';
        }
    }
    if (options->jobs > JOBS_MAX)
        options->jobs = JOBS_MAX;
    return optind == count && options->jobs > 0;
}

static bool read_number(const char *text, uint64_t *number)
{
    char *end = NULL;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static int run_all(const struct options *options)
{
    struct run_counts *const counts = shared_counts();
    struct job jobs[JOBS_MAX] = {0};
    struct run_counts total = {0};
    uint64_t seed = options->first_seed;
    uint64_t failed_seed = 0;
    const int64_t began_s = now_s();
    bool ok = true;
    bool more = true;
    size_t running = 0;
    printf("runs from seed %" PRIu64 " on\n", seed);
    while (ok && (more || running > 0)) {
        for (size_t i = 0; i < options->jobs && more; i++) {
            if (jobs[i].pid != 0)
                continue;
            counts[i] = (struct run_counts){0};
            jobs[i] = (struct job){.pid = start_run(seed, &counts[i]), .seed = seed};
            seed++;
            running++;
        }
        ok = wait_for_one(jobs, options->jobs, &failed_seed);
        running--;
        for (size_t i = 0; i < options->jobs; i++) {
            if (jobs[i].pid != 0 || jobs[i].seed == 0)
                continue;
            total.images += counts[i].images;
            total.acknowledged += counts[i].acknowledged;
            total.evicted += counts[i].evicted;
            total.rotations += counts[i].rotations;
            total.lives += counts[i].lives;
            total.lanes_failed += counts[i].lanes_failed;
            jobs[i].seed = 0;
        }
        more = options->seconds > 0 ? now_s() - began_s < (int64_t)options->seconds
                                    : total.images < options->images;
    }
    end_all(jobs, options->jobs);
    printf("%" PRIu64 " crash images in %" PRIu64 " lives of a store: %" PRIu64
           " writes acknowledged, %" PRIu64 " rotations, %" PRIu64 " segments evicted, %" PRIu64
           " lanes failed, %" PRId64 " s\n",
           total.images, total.lives, total.acknowledged, total.rotations, total.evicted,
           total.lanes_failed, now_s() - began_s);
    if (!ok)
        printf("not ok: seed %" PRIu64 "; once more, and traced: test_model --repeat %" PRIu64 "\n",
               failed_seed, failed_seed);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* JOBS_MAX of them, shared with the processes of the runs. */
static struct run_counts *shared_counts(void)
{
    const size_t length = 1 << 20; /* what is small is no mapping here: tests/model/world.c */
    void *const memory =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(memory != MAP_FAILED);
    return memory;
}

static pid_t start_run(uint64_t seed, struct run_counts *counts)
{
    fflush(stdout);
    const pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid > 0)
        return pid;
    model_begin_run(seed, false);
    run_model(seed, counts);
    exit(EXIT_SUCCESS);
}

static bool wait_for_one(struct job *jobs, size_t count, uint64_t *failed_seed)
{
    int result = 0;
    pid_t pid;
    do
        pid = wait(&result);
    while (pid < 0 && errno == EINTR);
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].pid != pid)
            continue;
        jobs[i].pid = 0;
        *failed_seed = jobs[i].seed;
        if (WIFSIGNALED(result))
            printf("seed %" PRIu64 ": ended by signal %d\n", jobs[i].seed, WTERMSIG(result));
    }
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

static void end_all(struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].pid == 0)
            continue;
        kill(jobs[i].pid, SIGKILL);
        waitpid(jobs[i].pid, NULL, 0);
    }
}

static int64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}
