/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/credentials.h"
#include "client/replication.h"
#include "client/tree.h"
#include "client/version.h"

/* Options that are for some commands alone. */
enum special {
    SPECIAL_OUTPUT = 1,
    SPECIAL_DIGESTS = 2,
    SPECIAL_STORE = 4,
    SPECIAL_ESCAPE_NAMES = 8,
    SPECIAL_TREE = 16, /* --skip-special, --skip-unreadable, --follow */
    SPECIAL_JOBS = 32,
    SPECIAL_RECURSIVE = 64,
    SPECIAL_REPLICATE = 256, /* --to, --all, --tree, --compare */
    SPECIAL_FSCK = 128,      /* --rebuild-index, --export, --export-all */
    SPECIAL_LIST = 512,
    SPECIAL_RESULTS = 1024, /* --action-results */
    SPECIAL_ADMIN = 2048,   /* --yes, --instances, --writer, --before, --after, --peers */
};

struct command {
    const char *name;
    size_t arguments_min, arguments_max;
    enum cli_exit (*run)(struct cli *cli);
    unsigned specials; /* of enum special: those it takes */
};

static const struct command commands[] = {
    {"put", 1, 1, cli_put, SPECIAL_STORE},
    {"get", 1, 1, cli_get, SPECIAL_OUTPUT},
    {"stat", 1, SIZE_MAX, cli_stat, 0},
    {"missing", 0, SIZE_MAX, cli_missing, SPECIAL_DIGESTS},
    {"push", 1, 1, cli_push, SPECIAL_ESCAPE_NAMES | SPECIAL_TREE | SPECIAL_JOBS},
    {"pull", 2, 2, cli_pull, SPECIAL_ESCAPE_NAMES | SPECIAL_JOBS},
    {"ls", 1, 2, cli_ls, SPECIAL_RECURSIVE},
    {"cat", 2, SIZE_MAX, cli_cat, 0},
    {"diff", 2, 2, cli_diff, SPECIAL_ESCAPE_NAMES | SPECIAL_TREE},
    {"capabilities", 0, 0, cli_capabilities, 0},
    {"status", 0, 0, cli_status, 0},
    {"scrub", 0, 1, cli_scrub, 0},
    {"replicate", 0, 0, cli_replicate,
     SPECIAL_DIGESTS | SPECIAL_JOBS | SPECIAL_REPLICATE | SPECIAL_RESULTS},
    {"admin", 1, SIZE_MAX, cli_admin,
     SPECIAL_DIGESTS | SPECIAL_LIST | SPECIAL_RESULTS | SPECIAL_ADMIN},
    {"fsck", 1, 1, cli_fsck, SPECIAL_OUTPUT | SPECIAL_FSCK | SPECIAL_LIST},
};

static const struct {
    enum special special;
    const char *name;
} specials[] = {
    {SPECIAL_OUTPUT, "-o"},
    {SPECIAL_DIGESTS, "--digests"},
    {SPECIAL_STORE, "--store"},
    {SPECIAL_ESCAPE_NAMES, "--escape-names"},
    {SPECIAL_TREE, "--skip-special, --skip-unreadable or --follow"},
    {SPECIAL_JOBS, "--jobs"},
    {SPECIAL_RECURSIVE, "--recursive"},
    {SPECIAL_REPLICATE, "--to, --all, --tree or --compare"},
    {SPECIAL_FSCK, "--rebuild-index, --export or --export-all"},
    {SPECIAL_LIST, "--list"},
    {SPECIAL_RESULTS, "--action-results"},
    {SPECIAL_ADMIN, "--yes, --instances, --writer, --before, --after or --peers"},
};

static const char usage[] = "usage: varve [--server HOST:PORT] [--instance NAME] [--json] "
                            "[--timeout SECONDS] COMMAND ...\n";

static const char help[] =
    "\n"
    "Commands:\n"
    "  put FILE               uploads a file (- for standard input); prints HASH/SIZE. With "
    "--store DATA\n"
    "                         into the data directory of a server that is stopped\n"
    "  get HASH/SIZE          writes the blob to standard output, or with -o FILE to a file, "
    "which\n"
    "                         appears only when every byte has been verified\n"
    "  stat HASH/SIZE...      tells for each blob whether the server has it, and where it lies\n"
    "  missing HASH/SIZE...   prints those that the server lacks; --digests FILE reads them from a "
    "file,\n"
    "                         one a line (- for standard input)\n"
    "  push DIR               uploads a directory tree; prints HASH/SIZE of its root Directory\n"
    "  pull HASH/SIZE DIR     makes that tree in DIR; each file appears when all of it has been "
    "verified\n"
    "  ls HASH/SIZE [PATH]    lists a directory of a tree, or with -r all below it\n"
    "  cat HASH/SIZE PATH...  writes files of a tree to standard output\n"
    "  diff TREE TREE         what differs between two trees, each HASH/SIZE or a directory here\n"
    "  capabilities           what the server says it can do\n"
    "  status                 how a varve server is\n"
    "  scrub [start]          how far a varve server has verified what it stores; start: it begins "
    "a pass now\n"
    "  replicate              copies to the server of --to what that lacks: --digests FILE, --tree "
    "HASH/SIZE, or\n"
    "                         --all that a varve server has; with --compare it only tells how the "
    "two differ\n"
    "  admin stats            what a varve server counts, and what of its budgets is used; this "
    "and "
    "the next need the\n"
    "                         role admin\n"
    "  admin explain HASH/SIZE  why a blob or an action's result is there or not; --peers: and "
    "whether the peers of\n"
    "                         the server have the blob, which are shown what the server is shown\n"
    "  admin who HASH/SIZE    who wrote the result of this action, when and from where\n"
    "  admin forget HASH/SIZE...  deletes these blobs, or those of --digests FILE, here and at the "
    "nodes that follow;\n"
    "                         with --action-results the results of these actions, or those that "
    "--instances, --writer,\n"
    "                         --before and --after describe. Only says what would go until --yes "
    "is given\n"
    "  admin drain [REASON]   takes a varve server out of service for balancers; it goes on with "
    "what comes\n"
    "  admin undrain          and back\n"
    "  admin read-only on [REASON]  refuses what would write to a varve server; reads are served\n"
    "  admin read-only off    and back\n"
    "  fsck DATA              reads everything in the data directory of a server that is stopped, "
    "and tells\n"
    "                         what is damaged; changes nothing. --list: what is stored; --export "
    "HASH/SIZE,\n"
    "                         --export-all DIR: gets it out; --rebuild-index: makes the index anew "
    "first\n"
    "\n"
    "Options:\n"
    "  --server HOST:PORT     grpc://HOST:PORT and unix:PATH too; $VARVE_SERVER if it is not "
    "given\n"
    "  --instance NAME        the instance name of the Remote Execution API; empty if it is not "
    "given\n"
    "  --tls                  encrypts, as a server of grpcs://HOST:PORT does; so do the next "
    "four\n"
    "  --tls-ca FILE          who signs the server's certificate, in PEM; if it is not given whom "
    "the system trusts\n"
    "  --tls-cert FILE, --tls-key FILE  our own certificate, for servers that want one\n"
    "  --tls-name NAME        the name in the server's certificate, if it is not HOST\n"
    "  --token-file FILE      a bearer token, on the first line; or $VARVE_TOKEN\n"
    "  --login-file FILE      USER:PASSWORD, on the first line; or $VARVE_LOGIN\n"
    "  --json                 results as JSON\n"
    "  --timeout SECONDS      for each try of each call; 60. A large blob gets a second more a "
    "MiB\n"
    "  -o, --output FILE      of get, and of fsck --export\n"
    "  --digests FILE         of missing and replicate\n"
    "  --store DATA           of put\n"
    "  --escape-names         of push: names that are not UTF-8 are stored with \\xHH for a byte, "
    "and \\\\ for\n"
    "                         a backslash; of pull: and come back\n"
    "  --skip-special         of push: leaves out devices, FIFOs and sockets\n"
    "  --skip-unreadable      of push: leaves out what it may not read\n"
    "  --follow               of push: stores what links lead to, and no links\n"
    "  --jobs N               of push, pull and replicate: blobs in transfer at once\n"
    "  -r, --recursive        of ls\n"
    "  --to HOST:PORT         of replicate: the destination, and next what is shown to it alone\n"
    "  --to-token-file FILE, --to-login-file FILE\n"
    "                         as --token-file and --login-file\n"
    "  --tree HASH/SIZE, --all  of replicate: what is copied\n"
    "  --action-results       of replicate --all: those of the instance, too\n"
    "  --compare              of replicate --all: copies nothing\n"
    "  --yes                  of admin forget: it is carried out\n"
    "  --instances NAME       of admin forget --action-results: this instance and all below it; * "
    "for all\n"
    "  --writer WORD          likewise: a tool, user:NAME, or an address\n"
    "  --before TIME, --after TIME  likewise: when they were written; 2026-12-01, "
    "2026-12-01T08:30:00Z, or 36h ago\n"
    "  --peers                of admin explain\n"
    "  --help, --version\n"
    "\n"
    "Results go to standard output, everything else to standard error, with --json as an object a "
    "line.\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage; 3 a blob is not there; 4 the server does not "
    "answer, or\n"
    "not in time; 5 the trees differ (diff), or the servers (replicate --compare); 6 done, but for "
    "what could not be read "
    "(push --skip-unreadable).\n"
    "Of fsck: 0 sound; 1 damage was found; 2 wrong usage; 3 it cannot be opened, or a server has "
    "it.\n";

enum option_value {
    OPTION_SERVER = 256,
    OPTION_INSTANCE,
    OPTION_JSON,
    OPTION_TIMEOUT,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_TLS_NAME,
    OPTION_TOKEN_FILE,
    OPTION_LOGIN_FILE,
    OPTION_DIGESTS,
    OPTION_STORE,
    OPTION_ESCAPE_NAMES,
    OPTION_SKIP_SPECIAL,
    OPTION_SKIP_UNREADABLE,
    OPTION_FOLLOW,
    OPTION_JOBS,
    OPTION_REBUILD_INDEX,
    OPTION_TO,
    OPTION_TO_TOKEN_FILE,
    OPTION_TO_LOGIN_FILE,
    OPTION_ALL,
    OPTION_TREE,
    OPTION_ACTION_RESULTS,
    OPTION_COMPARE,
    OPTION_YES,
    OPTION_INSTANCES,
    OPTION_WRITER,
    OPTION_BEFORE,
    OPTION_AFTER,
    OPTION_PEERS,
    OPTION_LIST,
    OPTION_EXPORT,
    OPTION_EXPORT_ALL,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {
    {"server", required_argument, NULL, OPTION_SERVER},
    {"instance", required_argument, NULL, OPTION_INSTANCE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"tls", no_argument, NULL, OPTION_TLS},
    {"tls-ca", required_argument, NULL, OPTION_TLS_CA},
    {"tls-cert", required_argument, NULL, OPTION_TLS_CERT},
    {"tls-key", required_argument, NULL, OPTION_TLS_KEY},
    {"tls-name", required_argument, NULL, OPTION_TLS_NAME},
    {"token-file", required_argument, NULL, OPTION_TOKEN_FILE},
    {"login-file", required_argument, NULL, OPTION_LOGIN_FILE},
    {"output", required_argument, NULL, 'o'},
    {"digests", required_argument, NULL, OPTION_DIGESTS},
    {"store", required_argument, NULL, OPTION_STORE},
    {"escape-names", no_argument, NULL, OPTION_ESCAPE_NAMES},
    {"skip-special", no_argument, NULL, OPTION_SKIP_SPECIAL},
    {"skip-unreadable", no_argument, NULL, OPTION_SKIP_UNREADABLE},
    {"follow", no_argument, NULL, OPTION_FOLLOW},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"recursive", no_argument, NULL, 'r'},
    {"to", required_argument, NULL, OPTION_TO},
    {"to-token-file", required_argument, NULL, OPTION_TO_TOKEN_FILE},
    {"to-login-file", required_argument, NULL, OPTION_TO_LOGIN_FILE},
    {"all", no_argument, NULL, OPTION_ALL},
    {"tree", required_argument, NULL, OPTION_TREE},
    {"action-results", no_argument, NULL, OPTION_ACTION_RESULTS},
    {"compare", no_argument, NULL, OPTION_COMPARE},
    {"yes", no_argument, NULL, OPTION_YES},
    {"instances", required_argument, NULL, OPTION_INSTANCES},
    {"writer", required_argument, NULL, OPTION_WRITER},
    {"before", required_argument, NULL, OPTION_BEFORE},
    {"after", required_argument, NULL, OPTION_AFTER},
    {"peers", no_argument, NULL, OPTION_PEERS},
    {"rebuild-index", no_argument, NULL, OPTION_REBUILD_INDEX},
    {"list", no_argument, NULL, OPTION_LIST},
    {"export", required_argument, NULL, OPTION_EXPORT},
    {"export-all", required_argument, NULL, OPTION_EXPORT_ALL},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

enum { JOBS_MAX = 256 };

enum parsed { PARSED_COMMAND, PARSED_HELP, PARSED_VERSION, PARSED_WRONG };

static enum parsed parse(struct cli *cli, int argc, char **argv, const struct command **command);
static bool parse_option(struct cli *cli, int value, const char *text);
static bool parse_timeout(const char *text, int64_t *timeout_ns);
static bool parse_jobs(const char *text, size_t *jobs);
static bool find_command(const struct cli *cli, const char *name, const struct command **command);
static bool check_arguments(const struct cli *cli, const struct command *command);
static bool needs_no_server(const struct cli *cli, const struct command *command);
static unsigned specials_given(const struct cli *cli);
static enum cli_exit connect_and_run(struct cli *cli, const struct command *command);
static enum cli_exit close_output(const struct cli *cli, enum cli_exit result);
static const char *advice(enum status_code code);

int cli_run(int argc, char **argv)
{
    struct cli cli = {
        .server = getenv("VARVE_SERVER"),
        .instance = "",
        .timeout_ns = client_options_default().call_timeout_ns,
        .out = stdout,
        .messages = stderr,
    };
    const struct command *command = NULL;
    switch (parse(&cli, argc, argv, &command)) {
    case PARSED_HELP:
        fputs(usage, cli.out);
        fputs(help, cli.out);
        return (int)close_output(&cli, CLI_EXIT_OK);
    case PARSED_VERSION:
        fputs("varve " CLIENT_VERSION "\n", cli.out);
        return (int)close_output(&cli, CLI_EXIT_OK);
    case PARSED_COMMAND:
        return (int)close_output(&cli, connect_and_run(&cli, command));
    case PARSED_WRONG:
        break;
    }
    return CLI_EXIT_USAGE;
}

static enum parsed parse(struct cli *cli, int argc, char **argv, const struct command **command)
{
    opterr = 0;
    for (;;) {
        const int value = getopt_long(argc, argv, ":o:rh", options, NULL);
        switch (value) {
        case -1:
            cli->arguments = argv + optind + 1;
            cli->argument_count = optind < argc ? (size_t)(argc - optind - 1) : 0;
            if (optind == argc) {
                fprintf(cli->messages, "varve: no command is given; varve --help lists them\n");
                return PARSED_WRONG;
            }
            return find_command(cli, argv[optind], command) && check_arguments(cli, *command)
                       ? PARSED_COMMAND
                       : PARSED_WRONG;
        case OPTION_HELP:
        case 'h':
            return PARSED_HELP;
        case OPTION_VERSION:
            return PARSED_VERSION;
        case ':':
            fprintf(cli->messages, "varve: %s needs a value\n", argv[optind - 1]);
            return PARSED_WRONG;
        case '?':
            fprintf(cli->messages, "varve: no such option: %s; varve --help lists them\n",
                    argv[optind - 1]);
            return PARSED_WRONG;
        default:
            if (!parse_option(cli, value, optarg))
                return PARSED_WRONG;
            break;
        }
    }
}

static bool parse_option(struct cli *cli, int value, const char *text)
{
    switch (value) {
    case OPTION_SERVER:
        cli->server = text;
        return true;
    case OPTION_INSTANCE:
        cli->instance = text;
        return true;
    case OPTION_JSON:
        cli->json = true;
        return true;
    case OPTION_TIMEOUT:
        if (parse_timeout(text, &cli->timeout_ns))
            return true;
        fprintf(cli->messages, "varve: --timeout %s: must be seconds above 0, at most 86400\n",
                text);
        return false;
    case OPTION_TLS:
        cli->tls.enabled = true;
        return true;
    case OPTION_TLS_CA:
        cli->tls.ca_file = text;
        return true;
    case OPTION_TLS_CERT:
        cli->tls.certificate_file = text;
        return true;
    case OPTION_TLS_KEY:
        cli->tls.key_file = text;
        return true;
    case OPTION_TLS_NAME:
        cli->tls.server_name = text;
        return true;
    case OPTION_TOKEN_FILE:
        cli->token_file = text;
        return true;
    case OPTION_LOGIN_FILE:
        cli->login_file = text;
        return true;
    case OPTION_JOBS:
        if (parse_jobs(text, &cli->jobs))
            return true;
        fprintf(cli->messages, "varve: --jobs %s: must be 1 to %d\n", text, JOBS_MAX);
        return false;
    case 'o':
        cli->output = text;
        return true;
    case 'r':
        cli->recursive = true;
        return true;
    case OPTION_DIGESTS:
        cli->digests_file = text;
        return true;
    case OPTION_STORE:
        cli->store = text;
        return true;
    case OPTION_TO:
        cli->to = text;
        return true;
    case OPTION_TO_TOKEN_FILE:
        cli->to_token_file = text;
        return true;
    case OPTION_TO_LOGIN_FILE:
        cli->to_login_file = text;
        return true;
    case OPTION_ALL:
        cli->all = true;
        return true;
    case OPTION_TREE:
        cli->tree = text;
        return true;
    case OPTION_ACTION_RESULTS:
        cli->action_results = true;
        return true;
    case OPTION_COMPARE:
        cli->compare = true;
        return true;
    case OPTION_YES:
        cli->yes = true;
        return true;
    case OPTION_INSTANCES:
        cli->instances = text;
        return true;
    case OPTION_WRITER:
        cli->writer = text;
        return true;
    case OPTION_BEFORE:
        cli->before = text;
        return true;
    case OPTION_AFTER:
        cli->after = text;
        return true;
    case OPTION_PEERS:
        cli->ask_peers = true;
        return true;
    case OPTION_REBUILD_INDEX:
        cli->rebuild_index = true;
        return true;
    case OPTION_LIST:
        cli->list = true;
        return true;
    case OPTION_EXPORT:
        cli->export_digest = text;
        return true;
    case OPTION_EXPORT_ALL:
        cli->export_directory = text;
        return true;
    case OPTION_ESCAPE_NAMES:
        cli->tree_options |= TREE_ESCAPE_NAMES;
        return true;
    case OPTION_SKIP_SPECIAL:
        cli->tree_options |= TREE_SKIP_SPECIAL;
        return true;
    case OPTION_SKIP_UNREADABLE:
        cli->tree_options |= TREE_SKIP_UNREADABLE;
        return true;
    default:
        ASSERT(value == OPTION_FOLLOW);
        cli->tree_options |= TREE_FOLLOW;
        return true;
    }
}

static bool parse_timeout(const char *text, int64_t *timeout_ns)
{
    enum { SECONDS_MAX = 24 * 3600 };
    char *end;
    const double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0.001 ||
        seconds > SECONDS_MAX)
        return false;
    *timeout_ns = (int64_t)(seconds * (double)NS_PER_S);
    return true;
}

static bool parse_jobs(const char *text, size_t *jobs)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 1 || number > JOBS_MAX)
        return false;
    *jobs = (size_t)number;
    return true;
}

static bool find_command(const struct cli *cli, const char *name, const struct command **command)
{
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            *command = &commands[i];
            return true;
        }
    }
    fprintf(cli->messages, "varve: no such command: %s; varve --help lists them\n", name);
    return false;
}

static bool check_arguments(const struct cli *cli, const struct command *command)
{
    const char *wrong = NULL;
    const unsigned wrong_specials = specials_given(cli) & ~command->specials;
    for (size_t i = 0; i < ARRAY_LENGTH(specials); i++) {
        if ((wrong_specials & specials[i].special) == 0)
            continue;
        fprintf(cli->messages, "varve: %s takes no %s\n", command->name, specials[i].name);
        return false;
    }
    if (cli->argument_count < command->arguments_min)
        wrong = "something is missing after it";
    else if (cli->argument_count > command->arguments_max)
        wrong = "there is too much after it";
    else if (command->run == cli_missing &&
             (cli->argument_count > 0) == (cli->digests_file != NULL))
        wrong = "give HASH/SIZE or --digests FILE, one of the two";
    else if (command->run == cli_replicate && (cli->to == NULL || cli->to[0] == '\0'))
        wrong = "no destination is given; say --to HOST:PORT";
    else if (command->run == cli_replicate &&
             (cli->digests_file != NULL) + (cli->tree != NULL) + cli->all != 1)
        wrong = "--digests FILE, --tree HASH/SIZE, --all: one of them";
    else if (command->run == cli_replicate && !cli->all && (cli->action_results || cli->compare))
        wrong = "--action-results and --compare go with --all";
    else if (command->run == cli_fsck && cli->output != NULL && cli->export_digest == NULL)
        wrong = "-o goes with --export";
    else if (command->run == cli_fsck &&
             cli->list + (cli->export_digest != NULL) + (cli->export_directory != NULL) > 1)
        wrong = "--list, --export, --export-all: one of them";
    else if (!needs_no_server(cli, command) && (cli->server == NULL || cli->server[0] == '\0'))
        wrong = "no server is given; say --server HOST:PORT or set VARVE_SERVER";
    if (wrong != NULL)
        fprintf(cli->messages, "varve: %s: %s\n", command->name, wrong);
    return wrong == NULL;
}

/* It works on a data directory. */
static bool needs_no_server(const struct cli *cli, const struct command *command)
{
    return cli->store != NULL || command->run == cli_fsck;
}

static unsigned specials_given(const struct cli *cli)
{
    const unsigned tree =
        cli->tree_options & (TREE_SKIP_SPECIAL | TREE_SKIP_UNREADABLE | TREE_FOLLOW);
    return (cli->output != NULL ? SPECIAL_OUTPUT : 0U) |
           (cli->digests_file != NULL ? SPECIAL_DIGESTS : 0U) |
           (cli->store != NULL ? SPECIAL_STORE : 0U) |
           ((cli->tree_options & TREE_ESCAPE_NAMES) != 0 ? SPECIAL_ESCAPE_NAMES : 0U) |
           (tree != 0 ? SPECIAL_TREE : 0U) | (cli->jobs > 0 ? SPECIAL_JOBS : 0U) |
           (cli->recursive ? SPECIAL_RECURSIVE : 0U) |
           (cli->to != NULL || cli->to_token_file != NULL || cli->to_login_file != NULL ||
                    cli->all || cli->tree != NULL || cli->compare
                ? SPECIAL_REPLICATE
                : 0U) |
           (cli->rebuild_index || cli->export_digest != NULL || cli->export_directory != NULL
                ? SPECIAL_FSCK
                : 0U) |
           (cli->list ? SPECIAL_LIST : 0U) | (cli->action_results ? SPECIAL_RESULTS : 0U) |
           (cli->yes || cli->instances != NULL || cli->writer != NULL || cli->before != NULL ||
                    cli->after != NULL || cli->ask_peers
                ? SPECIAL_ADMIN
                : 0U);
}

static enum cli_exit connect_and_run(struct cli *cli, const struct command *command)
{
    if (needs_no_server(cli, command))
        return command->run(cli);
    struct client_options client_options = client_options_default();
    client_options.instance_name = cli->instance;
    client_options.call_timeout_ns = cli->timeout_ns;
    client_options.tls = cli->tls;
    struct status status = {0};
    char *authorization = NULL;
    bool ok = credentials_read(cli->token_file, cli->login_file, &authorization, &status);
    client_options.authorization = authorization;
    if (cli->compare)
        client_options.tool_name = PEER_TOOL_NAME; /* what is on each disk is to be told */
    ok = ok && client_connect(cli->server, &client_options, &cli->client, &status);
    credentials_free(authorization);
    if (!ok) {
        fprintf(cli->messages, "varve: %s\n", status.message);
        return status.code == STATUS_INVALID_ARGUMENT ? CLI_EXIT_USAGE : CLI_EXIT_FAILED;
    }
    const enum cli_exit result = command->run(cli);
    client_close(cli->client);
    cli->client = NULL;
    return result;
}

/* Output that did not reach its reader is a failure, whatever the command thinks. */
static enum cli_exit close_output(const struct cli *cli, enum cli_exit result)
{
    if (fflush(cli->out) == 0 && !ferror(cli->out))
        return result;
    fprintf(cli->messages, "varve: cannot write to standard output: %s\n", strerrordesc_np(errno));
    return result == CLI_EXIT_OK ? CLI_EXIT_FAILED : result;
}

enum cli_exit cli_failed(const struct cli *cli, const char *action, const struct status *status)
{
    const char *what_to_do = advice(status->code);
    if (cli->client == NULL && status->code == STATUS_RESOURCE_EXHAUSTED)
        what_to_do = "free some room";
    if (retry_is_message_too_large(status))
        what_to_do = "a message was larger than the server, or a proxy before it, takes";
    fprintf(cli->messages, "varve: %s%s%s (%s)%s%s", action != NULL ? action : "",
            action != NULL ? ": " : "", status->message, status_code_name(status->code),
            what_to_do[0] != '\0' ? "; " : "", what_to_do);
    if (status->code == STATUS_UNAVAILABLE && cli->client != NULL)
        fprintf(cli->messages, " at %s", client_target(cli->client));
    fputc('\n', cli->messages);
    switch (status->code) {
    case STATUS_NOT_FOUND:
        return CLI_EXIT_NOT_FOUND;
    case STATUS_UNAVAILABLE:
    case STATUS_DEADLINE_EXCEEDED:
        return CLI_EXIT_UNAVAILABLE;
    default:
        return CLI_EXIT_FAILED;
    }
}

static const char *advice(enum status_code code)
{
    switch (code) {
    case STATUS_UNAVAILABLE:
        return "is a server running";
    case STATUS_DEADLINE_EXCEEDED:
        return "give it longer with --timeout";
    case STATUS_NOT_FOUND:
        return "it was never stored there or has been evicted";
    case STATUS_RESOURCE_EXHAUSTED:
        return "the server is out of room for it; free some or try later";
    case STATUS_PERMISSION_DENIED:
        return "this instance does not let you";
    case STATUS_UNAUTHENTICATED:
        return "give a token or a login with --token-file or --login-file";
    case STATUS_UNIMPLEMENTED:
        return "this server does not know the call";
    case STATUS_DATA_LOSS:
        return "do not use what came";
    default:
        return "";
    }
}
