/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/model/model.h"
#include "tests/model/process.h"

/* So often may somebody look again in vain before we call it a deadlock. */
enum { VAIN_WAITS_MAX = 2000 };
/* A mapping of up to so many bytes is a shard of the index in memory. */
enum { SMALL_MAPPING_BYTES_MAX = 65536 };
enum { FORGETS_MAX = 4096 };

struct seen_forget {
    struct commit_request *request;
    void (*done)(struct ack *ack, const struct status *result);
};

static struct {
    uint64_t seed, step;
    bool traced;
    struct prng random;
    struct process *process;
    int vain_waits;
    void (*observe)(void *argument, const struct commit_request *request, bool durable);
    void *observe_argument;
    struct seen_forget forgets[FORGETS_MAX];
    size_t forget_count;
} world;

static bool let_others_work(void);
static void forget_done(struct ack *ack, const struct status *result);

void __wrap_condition_wait(struct condition *condition, struct lock *lock);
bool __wrap_condition_wait_for(struct condition *condition, struct lock *lock, int64_t duration_ns);
void __wrap_clock_pause(int64_t duration_ns);
ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned int flags);
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
int __wrap_munmap(void *address, size_t length);
void __wrap_log_event(enum log_level level, const char *event, const char *format, ...)
    PRINTF_LIKE(3, 4);
void __real_commit_submit(struct commit *commit, struct commit_request *requests);
void __wrap_commit_submit(struct commit *commit, struct commit_request *requests);

/* ---- messages */

void model_begin_run(uint64_t seed, bool traced)
{
    world.seed = seed;
    world.step = 0;
    world.traced = traced;
}

void model_set_step(uint64_t step)
{
    world.step = step;
}

void model_fail(const char *format, ...)
{
    va_list arguments;
    printf("seed %" PRIu64 ", step %" PRIu64 ": ", world.seed, world.step);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    _exit(EXIT_FAILURE); /* what is open stays open: nothing to be tidy for */
}

void model_trace(const char *format, ...)
{
    va_list arguments;
    if (!world.traced)
        return;
    fprintf(stderr, "%" PRIu64 ": ", world.step);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
}

void __wrap_log_event(enum log_level level, const char *event, const char *format, ...)
{
    va_list arguments;
    (void)level;
    if (!world.traced)
        return;
    fprintf(stderr, "%" PRIu64 ":     %s ", world.step, event);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
}

/* ---- chance */

void model_set_random(struct prng prng)
{
    world.random = prng;
}

struct prng model_random(void)
{
    return world.random;
}

ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned int flags)
{
    uint8_t *const bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)prng_next(&world.random);
    return (ssize_t)length;
}

/* ---- waiting */

void world_set_process(struct process *process)
{
    world.process = process;
    world.vain_waits = 0;
}

static bool let_others_work(void)
{
    bool any = false;
    for (enum worker worker = 0; world.process != NULL && worker < WORKER_COUNT; worker++) {
        /* A committer that waits for room could not commit what the evictor then waits for. */
        const bool would_wait =
            worker == WORKER_EVICT &&
            (world.process->busy[WORKER_COMMIT_SMALL] || world.process->busy[WORKER_COMMIT_LARGE]);
        if (!would_wait && !chance(&world.random, 3)) /* else he is slow */
            any = process_work(world.process, worker) || any;
    }
    world.vain_waits = any ? 0 : world.vain_waits + 1;
    if (world.vain_waits > VAIN_WAITS_MAX)
        model_fail("somebody waits for something that nobody will do");
    return any;
}

void __wrap_condition_wait(struct condition *condition, struct lock *lock)
{
    (void)condition;
    lock_release(lock);
    let_others_work();
    lock_acquire(lock);
}

bool __wrap_condition_wait_for(struct condition *condition, struct lock *lock, int64_t duration_ns)
{
    (void)condition;
    lock_release(lock);
    /* Short waits are only for company. */
    const bool any = duration_ns > NS_PER_MS && let_others_work();
    if (!any && world.process != NULL) {
        clock_sim_advance(world.process->config.clock, duration_ns);
        world.vain_waits = 0; /* time passes: he does not wait for ever */
    }
    lock_acquire(lock);
    return any;
}

void __wrap_clock_pause(int64_t duration_ns)
{
    if (world.process != NULL)
        clock_sim_advance(world.process->config.clock, duration_ns);
}

/* ---- memory: fresh pages cost more than all else in a recovery */

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (length > SMALL_MAPPING_BYTES_MAX)
        return __real_mmap(address, length, protection, flags, fd, offset);
    void *const memory = calloc(1, length);
    return memory != NULL ? memory : MAP_FAILED;
}

int __wrap_munmap(void *address, size_t length)
{
    if (length > SMALL_MAPPING_BYTES_MAX)
        return __real_munmap(address, length);
    free(address);
    return 0;
}

/* ---- forgets: nobody is told what became of them but here */

void world_set_forget_observer(void (*observe)(void *argument,
                                               const struct commit_request *request,
                                               bool durable),
                               void *argument)
{
    world.observe = observe;
    world.observe_argument = argument;
}

void __wrap_commit_submit(struct commit *commit, struct commit_request *requests)
{
    for (struct commit_request *request = requests; request != NULL; request = request->next) {
        if (request->record->kind != RECORD_FORGET)
            continue;
        ASSERT(world.forget_count < FORGETS_MAX);
        world.forgets[world.forget_count++] =
            (struct seen_forget){.request = request, .done = request->ack.done};
        request->ack.done = forget_done;
    }
    __real_commit_submit(commit, requests);
}

static void forget_done(struct ack *ack, const struct status *result)
{
    struct commit_request *const request = CONTAINER_OF(ack, struct commit_request, ack);
    for (size_t i = 0; i < world.forget_count; i++) {
        if (world.forgets[i].request != request)
            continue;
        void (*const done)(struct ack *, const struct status *) = world.forgets[i].done;
        world.forgets[i] = world.forgets[--world.forget_count];
        if (world.observe != NULL)
            world.observe(world.observe_argument, request, result->code == STATUS_OK);
        done(ack, result);
        return;
    }
    model_fail("a FORGET was called back twice, or never submitted");
}
