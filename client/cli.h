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
    CLI_EXIT_DIFFERENT = 5, /* diff: the trees are not the same; replicate --compare: the servers */
    CLI_EXIT_SKIPPED = 6,   /* push --skip-unreadable: done, without what could not be read */
};

/* What one run is to do. */
struct cli {
    const char *server;   /* borrowed from argv or the environment; NULL: none is known */
    const char *instance; /* borrowed from argv */
    bool json;
    struct client_tls tls;               /* borrowed from argv */
    const char *token_file, *login_file; /* borrowed from argv; NULL: the environment */
    int64_t timeout_ns;
    const char *output;       /* get -o; NULL: standard output */
    const char *digests_file; /* missing and replicate --digests; NULL: none, "-": standard input */
    const char *store;        /* put --store: a data directory; NULL: a server */
    unsigned tree_options;    /* of enum tree_option */
    size_t jobs;              /* calls in flight at most; 0: as many as suit */
    bool recursive;           /* ls */
    bool rebuild_index;       /* fsck */
    bool list;                /* fsck, admin */
    /* replicate */
    const char *to;                            /* the destination */
    const char *to_token_file, *to_login_file; /* NULL: none, also none of the environment */
    const char *tree;                          /* NULL: not asked for */
    bool all, action_results, compare;
    const char *export_digest, *export_directory; /* fsck; NULL: not asked for */
    /* admin */
    bool yes, ask_peers;
    const char *instances, *writer, *before, *after; /* NULL: not asked for */
    char **arguments;                                /* borrowed from argv; of the command */
    size_t argument_count;

    struct client *client; /* owned while a command runs; NULL with --store */
    FILE *out, *messages;  /* borrowed: standard output, standard error */
};

/* The whole program but for what main() prepares. */
int cli_run(int argc, char **argv);

/*
 * Says what failed and what to do about it, in one line; returns the exit status that goes with it.
 * action: "put FILE", or NULL when the message says it already.
 */
enum cli_exit cli_failed(const struct cli *cli, const char *action, const struct status *status);

/* An argument that is no HASH/SIZE. */
enum cli_exit cli_usage_error(const struct cli *cli, const struct status *status);

struct digest;
/* The result of push: HASH/SIZE on a line of its own. And that of put, which may be JSON. */
void cli_print_digest(const struct cli *cli, const struct digest *digest);
void cli_print_put(const struct cli *cli, const struct digest *digest);

/*
 * Gives each digest of --digests to take; empty lines are passed over. Errors: INVALID_ARGUMENT names
 * the line; those of take.
 */
MUST_CHECK bool cli_each_digest(const struct cli *cli,
                                bool (*take)(void *argument,
                                             const struct digest *digest,
                                             struct status *status),
                                void *argument,
                                struct status *status);

/*
 * The input of put, open for reading: a regular file as it is, anything else ("-" is standard input)
 * by way of a temporary file, since the digest comes first.
 */
MUST_CHECK bool cli_open_input(const char *name, int *fd, struct status *status);

/* Each command: client/cli_blobs.c, client/cli_tree.c, client/cli_store.c, client/cli_fsck.c,
 * client/cli_replicate.c, client/cli_admin.c and client/cli_server.c. */
enum cli_exit cli_put(struct cli *cli);
enum cli_exit cli_put_store(struct cli *cli);
enum cli_exit cli_get(struct cli *cli);
enum cli_exit cli_stat(struct cli *cli);
enum cli_exit cli_missing(struct cli *cli);
enum cli_exit cli_push(struct cli *cli);
enum cli_exit cli_pull(struct cli *cli);
enum cli_exit cli_ls(struct cli *cli);
enum cli_exit cli_cat(struct cli *cli);
enum cli_exit cli_diff(struct cli *cli);
enum cli_exit cli_capabilities(struct cli *cli);
enum cli_exit cli_status(struct cli *cli);
enum cli_exit cli_scrub(struct cli *cli);
enum cli_exit cli_replicate(struct cli *cli);
enum cli_exit cli_admin(struct cli *cli);
enum cli_exit cli_fsck(
    struct cli *cli); /* FAILED: damage was found. NOT_FOUND: it cannot be opened */

#endif
