/* SPDX-License-Identifier: Apache-2.0 */
/* One varved after another on one data directory, killed and started again. */
#ifndef VARVE_TESTS_CRASH_PROCESS_H
#define VARVE_TESTS_CRASH_PROCESS_H

#include <sys/types.h>

#include "base/status.h"

struct process {
    /* Set by the owner. */
    const char *varved;   /* borrowed */
    const char *data;     /* borrowed; the data directory */
    const char *log_path; /* borrowed; what the servers say, one after the other */

    pid_t pid;          /* 0: none runs */
    char target[64];    /* HOST:PORT, once it is ready */
    long log_from;      /* where its part of the log begins */
    int64_t started_ns; /* CLOCK_MONOTONIC */
    int64_t ready_ns;   /* from start to event=ready; 0 before */
};

/* failpoints: a setting of VARVE_FAILPOINTS, or NULL. It dies when we do. Asserts that none runs. */
void process_start(struct process *process, const char *failpoints);

enum process_state { PROCESS_STARTING, PROCESS_READY, PROCESS_ENDED };

/*
 * Looks once. When it has ended, *how (may be NULL) is what waitpid() says, and no process runs any
 * more.
 */
enum process_state process_look(struct process *process, int *how);

/* Waits until it is ready or has ended, or until the time is over (PROCESS_STARTING). */
enum process_state process_wait(struct process *process, int64_t timeout_ns, int *how);

/* Sends the signal and waits for the end; returns what waitpid() says. */
int process_end(struct process *process, int signal);

/*
 * Looks through its part of the log, up to now, for a line that must not be there: errors, and
 * damage that no kill can do. *line: to be freed.
 */
bool process_log_is_clean(const struct process *process, char **line);

#endif
