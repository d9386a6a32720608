/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

enum { LOOK_EVERY_NS = 2 * NS_PER_MS };

static char **environment_with(const char *failpoints);
__attribute__((noreturn)) static void run_server(const struct process *process, char **environment);
static bool is_ready(struct process *process);
static char *read_log(const struct process *process);

void process_start(struct process *process, const char *failpoints)
{
    ASSERT(process->pid == 0);
    struct stat log;
    char **const environment = environment_with(failpoints);
    process->log_from = stat(process->log_path, &log) == 0 ? (long)log.st_size : 0;
    process->ready_ns = 0;
    process->target[0] = '\0';
    process->started_ns = clock_monotonic_ns(clock_real());
    fflush(NULL);
    process->pid = fork();
    ASSERT(process->pid >= 0);
    if (process->pid == 0)
        run_server(process, environment);
    free(environment);
}

/* Ours, with VARVE_FAILPOINTS as given. To be freed; the strings are borrowed. */
static char **environment_with(const char *failpoints)
{
    static char setting[512];
    static const char name[] = "VARVE_FAILPOINTS=";
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **const made = calloc(count + 2, sizeof(*made));
    ASSERT(made != NULL);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], name, sizeof(name) - 1) != 0)
            made[used++] = environ[i];
    }
    if (failpoints != NULL) {
        const int length = snprintf(setting, sizeof(setting), "%s%s", name, failpoints);
        ASSERT(length > 0 && (size_t)length < sizeof(setting));
        made[used++] = setting;
    }
    return made;
}

/* In the child of a process with threads: nothing but system calls. */
static void run_server(const struct process *process, char **environment)
{
    enum { EXIT_NOT_STARTED = 127 };
    char *const arguments[] = {
        (char[]){"varved"},
        (char[]){"--data"},
        (char *)(uintptr_t)process->data,
        (char[]){"--listen"},
        (char[]){"127.0.0.1:0"},
        (char[]){"--small-segment-size"},
        (char[]){"8MiB"},
        (char[]){"--large-segment-size"},
        (char[]){"8MiB"},
        NULL,
    };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = open(process->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        _exit(EXIT_NOT_STARTED);
    execve(process->varved, arguments, environment);
    _exit(EXIT_NOT_STARTED);
}

enum process_state process_look(struct process *process, int *how)
{
    int status = 0;
    ASSERT(process->pid > 0);
    /* First, so that what a process that has ended said is seen. */
    if (process->ready_ns == 0 && is_ready(process))
        process->ready_ns = clock_monotonic_ns(clock_real()) - process->started_ns;
    const pid_t ended = waitpid(process->pid, &status, WNOHANG);
    ASSERT(ended >= 0);
    if (ended == 0)
        return process->ready_ns > 0 ? PROCESS_READY : PROCESS_STARTING;
    process->pid = 0;
    if (how != NULL)
        *how = status;
    return PROCESS_ENDED;
}

static bool is_ready(struct process *process)
{
    char *const log = read_log(process);
    const char *const event = strstr(log, " event=ready ");
    const char *const port = event != NULL ? strstr(event, " port=") : NULL;
    const bool whole = port != NULL && strchr(port, '\n') != NULL;
    if (whole)
        snprintf(process->target, sizeof(process->target), "127.0.0.1:%.5s",
                 port + strlen(" port="));
    free(log);
    process->target[strcspn(process->target, " ")] = '\0';
    return whole;
}

/* Its part of the log, as a string to be freed. */
static char *read_log(const struct process *process)
{
    FILE *const file = fopen(process->log_path, "re");
    char *text = NULL;
    size_t length = 0;
    FILE *const memory = open_memstream(&text, &length);
    ASSERT(memory != NULL);
    char line[4096];
    if (file != NULL && fseek(file, process->log_from, SEEK_SET) == 0) {
        while (fgets(line, sizeof(line), file) != NULL)
            fputs(line, memory);
    }
    if (file != NULL)
        fclose(file);
    fclose(memory);
    ASSERT(text != NULL);
    return text;
}

enum process_state process_wait(struct process *process, int64_t timeout_ns, int *how)
{
    const int64_t until_ns = clock_monotonic_ns(clock_real()) + timeout_ns;
    enum process_state state = process_look(process, how);
    while (state == PROCESS_STARTING && clock_monotonic_ns(clock_real()) < until_ns) {
        clock_pause(LOOK_EVERY_NS);
        state = process_look(process, how);
    }
    return state;
}

int process_end(struct process *process, int signal)
{
    int status = 0;
    ASSERT(process->pid > 0);
    ASSERT(kill(process->pid, signal) == 0);
    ASSERT(waitpid(process->pid, &status, 0) == process->pid);
    process->pid = 0;
    return status;
}

bool process_log_is_clean(const struct process *process, char **line)
{
    static const char *const unwanted[] = {
        " level=error ",
        " event=records_damaged ",
        " event=segment_not_sealed ",
        " event=index_rebuild ",
        " event=index_lost ",
        " event=index_entries_dropped ",
        " event=lane_not_sealed ",
        " event=index_flush_failed ",
        " event=entry_forgotten ",
        " event=blob_damaged ",
        " event=action_result_damaged ",
        "AddressSanitizer",
        "ThreadSanitizer",
    };
    char *const log = read_log(process);
    char *rest = log;
    *line = NULL;
    while (rest != NULL && *rest != '\0' && *line == NULL) {
        char *const this = strsep(&rest, "\n");
        for (size_t i = 0; i < ARRAY_LENGTH(unwanted) && *line == NULL; i++) {
            if (strstr(this, unwanted[i]) != NULL)
                *line = strdup(this);
        }
    }
    free(log);
    return *line == NULL;
}
