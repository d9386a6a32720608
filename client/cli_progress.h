/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a person how far a long command is: on a terminal one line with a bar that is written over,
 * five times a second; elsewhere a line a second; with --json an object a second. On standard
 * error, as all that is not the result.
 */
#ifndef VARVE_CLIENT_CLI_PROGRESS_H
#define VARVE_CLIENT_CLI_PROGRESS_H

#include "client/cli.h"

struct cli_progress {
    const struct cli *cli; /* borrowed */
    const char *command;   /* static storage */
    bool live;             /* standard error is a terminal */
    bool shown;            /* a line is there that the next one writes over */
    int64_t start_ns, next_ns;
};

/* How far it is. A plain value. */
struct cli_step {
    const char *doing;          /* "reading", "uploading": static storage */
    uint64_t items_done, items; /* blobs or files; items 0: nobody knows yet how many */
    uint64_t bytes_done, bytes; /* likewise */
    uint64_t moved_bytes;       /* over the network: for the rate */
};

void cli_progress_init(struct cli_progress *progress, const struct cli *cli, const char *command);

/* Is it time for another line? Cheap: for callers that come often. */
bool cli_progress_due(struct cli_progress *progress);
void cli_progress_show(struct cli_progress *progress, const struct cli_step *step);

/* Makes way for other words on standard error, and for the end. */
void cli_progress_clear(struct cli_progress *progress);

/*
 * What is wrong, or was left out: one line, or with --json an object {"event": kind, "code": ...,
 * "message": ...}. kind: "problem", "skipped" or "missing".
 */
void cli_progress_say(struct cli_progress *progress, const char *kind, const struct status *what);

#endif
