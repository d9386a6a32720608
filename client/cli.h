/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `varve`: reads the command line, does what it says against one server, and tells what
 * came of it: results on standard output, everything for a person on standard error, and an exit
 * status.
 */
#ifndef VARVE_CLIENT_CLI_H
#define VARVE_CLIENT_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "client/connection.h"

/* Part of the interface: scripts rely on them. */
enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILED = 1,
    CLI_EXIT_USAGE = 2,
    CLI_EXIT_NOT_FOUND = 3,
    CLI_EXIT_UNAVAILABLE = 4,
};

/* What one run is to do. */
struct cli {
    const char *server;   /* borrowed from argv or the environment; NULL: none is known */
    const char *instance; /* borrowed from argv */
    bool json;
    int64_t timeout_ns;
    const char *output;       /* get -o; NULL: standard output */
    const char *digests_file; /* missing --digests; NULL: none, "-": standard input */
    char **arguments;         /* borrowed from argv; of the command */
    size_t argument_count;

    struct client *client; /* owned while a command runs */
    FILE *out, *messages;  /* borrowed: standard output, standard error */
};

/* The whole program but for what main() prepares. */
int cli_run(int argc, char **argv);

/*
 * Says what failed and what to do about it, in one line; returns the exit status that goes with it.
 * action: "put FILE", or NULL when the message says it already.
 */
enum cli_exit cli_failed(const struct cli *cli, const char *action, const struct status *status);

/* Each command: client/cli_blobs.c and client/cli_server.c. */
enum cli_exit cli_put(struct cli *cli);
enum cli_exit cli_get(struct cli *cli);
enum cli_exit cli_stat(struct cli *cli);
enum cli_exit cli_missing(struct cli *cli);
enum cli_exit cli_push(struct cli *cli);
enum cli_exit cli_capabilities(struct cli *cli);
enum cli_exit cli_status(struct cli *cli);

#endif
