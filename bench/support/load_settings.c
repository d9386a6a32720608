/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/load_settings.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/support/load_work.h"
#include "client/batch_packer.h"

enum { IN_FLIGHT_MAX = 20000 };

static bool take_option(struct load_settings *settings, int option, const char *value);
static bool check(struct load_settings *settings);

static const char usage[] =
    "usage: load --server HOST:PORT --work WORK [options]\n"
    "  --size BYTES        of each blob (k, m after the number), or `build`: sizes as builds have "
    "them; 4k\n"
    "  --per-call N        blobs or digests in one unary call, outputs of an action result; as the "
    "work says\n"
    "  --chunk BYTES       of data in one message of a stream up; 1m\n"
    "  --in-flight N       calls in flight, on all connections together; 16\n"
    "  --connections N     that share them in turn; 1\n"
    "  --rate N            calls that begin a second, whether others have ended or not: their "
    "latency counts from the moment they\n"
    "                      should have begun; 0: each follows one that has ended\n"
    "  --seconds S         measured; 5\n"
    "  --warm-up S         before that, not measured; 1\n"
    "  --timeout S         of one call; 60\n"
    "  --population N      blobs that are read or found; uploaded first where they are missing; "
    "1000\n"
    "  --seed N            of the population; 1\n"
    "  --instance NAME     empty if it is not given\n"
    "  --no-verify         looks at the length of what is read, and not at every byte\n"
    "  --server-pid PID    adds the server's CPU time and memory\n"
    "  --metrics HOST:PORT adds the syncs that varved counts there\n"
    "  --json\n"
    "works:\n";

enum {
    OPTION_SERVER = 256,
    OPTION_WORK,
    OPTION_SIZE,
    OPTION_PER_CALL,
    OPTION_CHUNK,
    OPTION_IN_FLIGHT,
    OPTION_CONNECTIONS,
    OPTION_RATE,
    OPTION_SECONDS,
    OPTION_WARM_UP,
    OPTION_TIMEOUT,
    OPTION_POPULATION,
    OPTION_SEED,
    OPTION_INSTANCE,
    OPTION_NO_VERIFY,
    OPTION_SERVER_PID,
    OPTION_METRICS,
    OPTION_JSON,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"server", required_argument, NULL, OPTION_SERVER},
    {"work", required_argument, NULL, OPTION_WORK},
    {"size", required_argument, NULL, OPTION_SIZE},
    {"per-call", required_argument, NULL, OPTION_PER_CALL},
    {"chunk", required_argument, NULL, OPTION_CHUNK},
    {"in-flight", required_argument, NULL, OPTION_IN_FLIGHT},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"warm-up", required_argument, NULL, OPTION_WARM_UP},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"population", required_argument, NULL, OPTION_POPULATION},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"instance", required_argument, NULL, OPTION_INSTANCE},
    {"no-verify", no_argument, NULL, OPTION_NO_VERIFY},
    {"server-pid", required_argument, NULL, OPTION_SERVER_PID},
    {"metrics", required_argument, NULL, OPTION_METRICS},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static bool fail_usage(void)
{
    fputs(usage, stderr);
    load_work_print_all(stderr);
    return false;
}

bool load_settings_parse(struct load_settings *settings, int argc, char **argv)
{
    *settings = (struct load_settings){
        .server = getenv("VARVE_SERVER"),
        .instance = "",
        .size_text = "4k",
        .chunk_bytes = 1 << 20,
        .in_flight = 16,
        .connections = 1,
        .population = 1000,
        .seed = 1,
        .seconds = 5,
        .warm_up_seconds = 1,
        .timeout_seconds = 60,
        .verify = true,
    };
    blob_sizes_fixed(&settings->sizes, 4096);
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == OPTION_HELP || option == '?')
            return fail_usage();
        if (!take_option(settings, option, optarg)) {
            fprintf(stderr, "load: %s: cannot be\n", optarg);
            return fail_usage();
        }
    }
    if (optind < argc || settings->server == NULL || settings->work == NULL)
        return fail_usage();
    return check(settings);
}

static bool parse_size(const char *text, uint64_t min, uint64_t max, size_t *size)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const unsigned shift = *end == 'k' ? 10 : *end == 'm' ? 20 : 0;
    if (errno != 0 || end == text || text[0] == '-' || (shift == 0 ? *end : end[1]) != '\0' ||
        value > max >> shift)
        return false;
    value <<= shift;
    *size = (size_t)value;
    return value >= min && value <= max;
}

static bool parse_real(const char *text, double min, double max, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) && *value >= min && *value <= max;
}

static bool parse_sizes(const char *text, struct load_settings *settings)
{
    size_t bytes;
    settings->size_text = text;
    if (strcmp(text, "build") == 0)
        blob_sizes_build(&settings->sizes);
    else if (parse_size(text, 1, UINT64_C(1) << 32, &bytes))
        blob_sizes_fixed(&settings->sizes, bytes);
    else
        return false;
    return true;
}

static bool take_flag(struct load_settings *settings, int option)
{
    if (option == OPTION_NO_VERIFY)
        settings->verify = false;
    else if (option == OPTION_JSON)
        settings->json = true;
    else
        return false;
    return true;
}

static bool take_option(struct load_settings *settings, int option, const char *value)
{
    size_t number;
    switch (option) {
    case OPTION_SERVER:
        settings->server = value;
        return true;
    case OPTION_INSTANCE:
        settings->instance = value;
        return true;
    case OPTION_METRICS:
        settings->metrics = value;
        return true;
    case OPTION_WORK:
        settings->work = load_work_find(value);
        return settings->work != NULL;
    case OPTION_SIZE:
        return parse_sizes(value, settings);
    case OPTION_PER_CALL:
        return parse_size(value, 1, 100000, &settings->per_call);
    case OPTION_CHUNK:
        return parse_size(value, 1, 3 << 20, &settings->chunk_bytes);
    case OPTION_IN_FLIGHT:
        return parse_size(value, 1, IN_FLIGHT_MAX, &settings->in_flight);
    case OPTION_CONNECTIONS:
        return parse_size(value, 1, CLIENT_CONNECTIONS_MAX, &settings->connections);
    case OPTION_RATE:
        return parse_real(value, 0, 1e6, &settings->rate);
    case OPTION_POPULATION:
        return parse_size(value, 1, 50000000, &settings->population);
    case OPTION_SEED:
        if (!parse_size(value, 0, UINT64_MAX, &number))
            return false;
        settings->seed = number;
        return true;
    case OPTION_SERVER_PID:
        if (!parse_size(value, 1, INT32_MAX, &number))
            return false;
        settings->server_pid = (pid_t)number;
        return true;
    case OPTION_SECONDS:
        return parse_real(value, 0.1, 86400, &settings->seconds);
    case OPTION_WARM_UP:
        return parse_real(value, 0, 86400, &settings->warm_up_seconds);
    case OPTION_TIMEOUT:
        return parse_real(value, 0.001, 86400, &settings->timeout_seconds);
    default:
        return take_flag(settings, option);
    }
}

static bool check(struct load_settings *settings)
{
    const struct load_work *work = settings->work;
    if (settings->per_call == 0)
        settings->per_call = work->per_call;
    if (work->per_call_fixed && settings->per_call != work->per_call) {
        fprintf(stderr, "load: --per-call of %s is %zu\n", work->name, work->per_call);
        return false;
    }
    if (work->population != POPULATION_NONE && settings->population < settings->per_call) {
        fprintf(stderr, "load: --population must be at least --per-call\n");
        return false;
    }
    const size_t largest = settings->sizes.bytes[settings->sizes.count - 1];
    if (work->batches && settings->per_call * (largest + BATCH_PACKER_ENTRY_OVERHEAD_BYTES) >
                             CLIENT_MESSAGE_BYTES_MAX) {
        fprintf(stderr, "load: --per-call blobs of --size are more than a message may have\n");
        return false;
    }
    return true;
}
