/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREAD_NAME_BYTES_MAX = 16 };

/* What a new thread must know; owned by it once it runs. */
struct start {
    char name[THREAD_NAME_BYTES_MAX];
    int nice;
    void (*run)(void *argument);
    void *argument;
};

static void block_signals(sigset_t *before);
static void *run_thread(void *argument);
static void add_nice(int nice);

bool thread_start(struct thread *thread,
                  const char *name,
                  int nice,
                  void (*run)(void *argument),
                  void *argument,
                  struct status *status)
{
    ASSERT(!thread->running);
    ASSERT(strlen(name) < THREAD_NAME_BYTES_MAX);
    ASSERT(nice >= 0 && nice <= 19);

    struct start *const start = malloc(sizeof(*start));
    if (start == NULL)
        return status_fail_errno(status, ENOMEM, "start thread %s", name);
    *start = (struct start){.nice = nice, .run = run, .argument = argument};
    memcpy(start->name, name, strlen(name) + 1);

    /*
     * Blocked before the thread exists, since it inherits: not one instruction of it meets a
     * signal.
     */
    sigset_t before;
    block_signals(&before);
    const int result = pthread_create(&thread->handle, NULL, run_thread, start);
    ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (result != 0) {
        free(start);
        return status_fail_errno(status, result, "start thread %s", name);
    }
    thread->running = true;
    return true;
}

/*
 * All but those that a thread raises by its own mistake: blocked, they would end the process
 * without a report.
 */
static void block_signals(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t all;
    ASSERT(sigfillset(&all) == 0);
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++)
        ASSERT(sigdelset(&all, own[i]) == 0);
    ASSERT(pthread_sigmask(SIG_BLOCK, &all, before) == 0);
}

static void *run_thread(void *argument)
{
    struct start *const owned = argument;
    const struct start start = *owned;
    free(owned);

    ASSERT(pthread_setname_np(pthread_self(), start.name) == 0);
    if (start.nice > 0)
        add_nice(start.nice);
    start.run(start.argument);
    return NULL;
}

/*
 * On Linux niceness belongs to a thread. Without the right to set it the thread works as well, only
 * less politely.
 */
static void add_nice(int nice)
{
    const id_t thread = (id_t)gettid();
    errno = 0;
    const int before = getpriority(PRIO_PROCESS, thread);
    if (before == -1 && errno != 0)
        return;
    const int after = before + nice > 19 ? 19 : before + nice;
    const int result = setpriority(PRIO_PROCESS, thread, after);
    (void)result;
}

void thread_join(struct thread *thread)
{
    if (!thread->running)
        return;
    ASSERT(pthread_join(thread->handle, NULL) == 0);
    thread->running = false;
}

void thread_sharpen_timers(void)
{
    /* 1 ns, the least there is; the default of 50 us would make a window of 100 us one of 150. */
    const int result = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    (void)result;
}
