/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/version.h"

struct command {
    const char *name;
    size_t arguments_min, arguments_max;
    enum cli_exit (*run)(struct cli *cli);
};

static const struct command commands[] = {
    {"put", 1, 1, cli_put},          {"get", 1, 1, cli_get},
    {"stat", 1, SIZE_MAX, cli_stat}, {"missing", 0, SIZE_MAX, cli_missing},
    {"push", 1, 1, cli_push},        {"capabilities", 0, 0, cli_capabilities},
    {"status", 0, 0, cli_status},
};

static const char usage[] = "usage: varve [--server HOST:PORT] [--instance NAME] [--json] "
                            "[--timeout SECONDS] COMMAND ...\n";

static const char help[] =
    "\n"
    "Commands:\n"
    "  put FILE               uploads a file (- for standard input); prints HASH/SIZE\n"
    "  get HASH/SIZE          writes the blob to standard output, or with -o FILE to a file, "
    "which\n"
    "                         appears only when every byte has been verified\n"
    "  stat HASH/SIZE...      tells for each blob whether the server has it, and where it lies\n"
    "  missing HASH/SIZE...   prints those that the server lacks; --digests FILE reads them from a "
    "file,\n"
    "                         one a line (- for standard input)\n"
    "  push DIR               uploads a directory tree; prints HASH/SIZE of its root Directory\n"
    "  capabilities           what the server says it can do\n"
    "  status                 how a varve server is\n"
    "\n"
    "Options:\n"
    "  --server HOST:PORT     grpc://HOST:PORT and unix:PATH too; $VARVE_SERVER if it is not "
    "given\n"
    "  --instance NAME        the instance name of the Remote Execution API; empty if it is not "
    "given\n"
    "  --json                 results as JSON\n"
    "  --timeout SECONDS      for each try of each call; 60. A large blob gets a second more a "
    "MiB\n"
    "  -o, --output FILE      of get\n"
    "  --digests FILE         of missing\n"
    "  --help, --version\n"
    "\n"
    "Results go to standard output, everything else to standard error. Exit status: 0 done; 1 "
    "failed;\n"
    "2 wrong usage; 3 a blob is not there (get, stat); 4 the server does not answer, or not in "
    "time.\n";

enum option_value {
    OPTION_SERVER = 256,
    OPTION_INSTANCE,
    OPTION_JSON,
    OPTION_TIMEOUT,
    OPTION_DIGESTS,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {
    {"server", required_argument, NULL, OPTION_SERVER},
    {"instance", required_argument, NULL, OPTION_INSTANCE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"output", required_argument, NULL, 'o'},
    {"digests", required_argument, NULL, OPTION_DIGESTS},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

enum parsed { PARSED_COMMAND, PARSED_HELP, PARSED_VERSION, PARSED_WRONG };

static enum parsed parse(struct cli *cli, int argc, char **argv, const struct command **command);
static bool parse_timeout(const char *text, int64_t *timeout_ns);
static bool find_command(const struct cli *cli, const char *name, const struct command **command);
static bool check_arguments(const struct cli *cli, const struct command *command);
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
        const int value = getopt_long(argc, argv, ":o:h", options, NULL);
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
        case OPTION_SERVER:
            cli->server = optarg;
            break;
        case OPTION_INSTANCE:
            cli->instance = optarg;
            break;
        case OPTION_JSON:
            cli->json = true;
            break;
        case OPTION_TIMEOUT:
            if (!parse_timeout(optarg, &cli->timeout_ns)) {
                fprintf(cli->messages,
                        "varve: --timeout %s: must be seconds above 0, at most 86400\n", optarg);
                return PARSED_WRONG;
            }
            break;
        case 'o':
            cli->output = optarg;
            break;
        case OPTION_DIGESTS:
            cli->digests_file = optarg;
            break;
        case OPTION_HELP:
        case 'h':
            return PARSED_HELP;
        case OPTION_VERSION:
            return PARSED_VERSION;
        case ':':
            fprintf(cli->messages, "varve: %s needs a value\n", argv[optind - 1]);
            return PARSED_WRONG;
        default:
            fprintf(cli->messages, "varve: no such option: %s; varve --help lists them\n",
                    argv[optind - 1]);
            return PARSED_WRONG;
        }
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
    if (cli->argument_count < command->arguments_min)
        wrong = "something is missing after it";
    else if (cli->argument_count > command->arguments_max)
        wrong = "there is too much after it";
    else if (cli->output != NULL && command->run != cli_get)
        wrong = "-o is for get";
    else if (cli->digests_file != NULL && command->run != cli_missing)
        wrong = "--digests is for missing";
    else if (command->run == cli_missing &&
             (cli->argument_count > 0) == (cli->digests_file != NULL))
        wrong = "give HASH/SIZE or --digests FILE, one of the two";
    else if (cli->server == NULL || cli->server[0] == '\0')
        wrong = "no server is given; say --server HOST:PORT or set VARVE_SERVER";
    if (wrong != NULL)
        fprintf(cli->messages, "varve: %s: %s\n", command->name, wrong);
    return wrong == NULL;
}

static enum cli_exit connect_and_run(struct cli *cli, const struct command *command)
{
    struct client_options client_options = client_options_default();
    client_options.instance_name = cli->instance;
    client_options.call_timeout_ns = cli->timeout_ns;
    struct status status = {0};
    if (!client_connect(cli->server, &client_options, &cli->client, &status)) {
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
    fprintf(cli->messages, "varve: %s%s%s (%s)%s%s", action != NULL ? action : "",
            action != NULL ? ": " : "", status->message, status_code_name(status->code),
            what_to_do[0] != '\0' ? "; " : "", what_to_do);
    if (status->code == STATUS_UNAVAILABLE)
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
    case STATUS_UNAUTHENTICATED:
        return "this instance does not let you";
    case STATUS_UNIMPLEMENTED:
        return "this server does not know the call";
    case STATUS_DATA_LOSS:
        return "do not use what came";
    default:
        return "";
    }
}
