/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash tests of the real server:
 *
 *   driver kills --varved FILE --directory DIR [--kills N] [--kills-per-store N] [--seed N]
 *       kills it again and again; see kills.h
 *   driver load --server HOST:PORT --journal FILE [--seed N] [--blobs N] [--seconds N] [--batches N]
 *               [--streams N] [--actions N] [--broken N] [--blob-bytes N]
 *       writes with so many workers of each kind until N blobs are acknowledged, the time is over,
 *       or a call fails. Prints "acknowledged=N code=CODE message=TEXT"; CODE is OK or that of the
 *       first failure. Ends with 0 when nothing failed, with 3 when a call did.
 *   driver check --server HOST:PORT --journal FILE
 *       holds the server to the journal; see check.h. Ends with 0 when it keeps its word.
 *
 * Ends with 1 when the server did wrong, with 2 for wrong usage.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/connection.h"
#include "tests/crash/check.h"
#include "tests/crash/kills.h"
#include "tests/crash/load.h"

enum exit_status { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_CALL_FAILED = 3 };

struct options {
    const char *varved, *directory, *server, *journal;
    uint64_t kills, kills_per_store, seed, blobs, seconds, batches, streams, actions, broken,
        blob_bytes;
};

static bool parse(int count, char **arguments, struct options *options);
static enum exit_status run_kills(const struct options *options);
static enum exit_status run_load(const struct options *options);
static enum exit_status run_check(const struct options *options);

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        enum exit_status (*run)(const struct options *options);
    } commands[] = {{"kills", run_kills}, {"load", run_load}, {"check", run_check}};
    struct options options = {.kills = 200, .kills_per_store = 250, .seed = 1, .blob_bytes = 65536};
    client_prepare_process();
    for (size_t i = 0; count > 1 && i < ARRAY_LENGTH(commands); i++) {
        if (strcmp(arguments[1], commands[i].name) == 0 &&
            parse(count - 1, arguments + 1, &options))
            return (int)commands[i].run(&options);
    }
    fprintf(stderr, "usage: driver kills|load|check ...; see tests/crash/driver.c\n");
    return EXIT_USAGE;
}

static bool parse(int count, char **arguments, struct options *options)
{
    const struct {
        const char *name;
        const char **text;
        uint64_t *number;
    } table[] = {
        {"varved", &options->varved, NULL},   {"directory", &options->directory, NULL},
        {"server", &options->server, NULL},   {"journal", &options->journal, NULL},
        {"kills", NULL, &options->kills},     {"kills-per-store", NULL, &options->kills_per_store},
        {"seed", NULL, &options->seed},       {"blobs", NULL, &options->blobs},
        {"seconds", NULL, &options->seconds}, {"batches", NULL, &options->batches},
        {"streams", NULL, &options->streams}, {"actions", NULL, &options->actions},
        {"broken", NULL, &options->broken},   {"blob-bytes", NULL, &options->blob_bytes},
    };
    struct option names[ARRAY_LENGTH(table) + 1] = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++)
        names[i] = (struct option){.name = table[i].name, .has_arg = required_argument};
    int index = 0;
    int got;
    while ((got = getopt_long(count, arguments, "", names, &index)) == 0) {
        char *end = NULL;
        if (table[index].text != NULL) {
            *table[index].text = optarg;
            continue;
        }
        *table[index].number = strtoull(optarg, &end, 10);
        if (end == optarg || *end != '\0')
            return false;
    }
    return got == -1 && optind == count;
}

static enum exit_status run_kills(const struct options *options)
{
    const struct kills_settings settings = {
        .varved = options->varved,
        .directory = options->directory,
        .kills = (size_t)options->kills,
        .kills_per_store = (size_t)options->kills_per_store,
        .seed = options->seed,
    };
    if (settings.varved == NULL || settings.directory == NULL || settings.kills_per_store == 0)
        return EXIT_USAGE;
    return kills_run(&settings) ? EXIT_RIGHT : EXIT_WRONG;
}

static enum exit_status run_load(const struct options *options)
{
    struct journal journal;
    const struct load_settings settings = {
        .target = options->server,
        .seed = options->seed,
        .batch_workers = (size_t)options->batches,
        .stream_workers = (size_t)options->streams,
        .action_workers = (size_t)options->actions,
        .broken_workers = (size_t)options->broken,
        .batch_bytes = SIZE_MAX,
        .stream_bytes = SIZE_MAX,
        .broken_bytes = SIZE_MAX,
        .actions = 100,
        .blobs_max = (size_t)options->blobs,
        .small_bytes = (size_t)options->blob_bytes,
    };
    const size_t workers = settings.batch_workers + settings.stream_workers +
                           settings.action_workers + settings.broken_workers;
    if (options->server == NULL || options->journal == NULL || workers == 0 ||
        workers > LOAD_WORKERS_MAX || settings.small_bytes < 8 || settings.small_bytes > 1 << 20 ||
        (settings.blobs_max == 0 && options->seconds == 0))
        return EXIT_USAGE;
    journal_open(&journal, options->journal);
    const int64_t until_ns =
        clock_monotonic_ns(clock_real()) + (int64_t)options->seconds * NS_PER_S;
    struct load *const load = load_start(&journal, &settings);
    while (!load_ended(load) &&
           (options->seconds == 0 || clock_monotonic_ns(clock_real()) < until_ns))
        clock_pause(NS_PER_MS);
    load_stop(load);
    struct status failure = {0};
    const bool faulty = load_found_fault(load, &failure);
    const bool failed = faulty || load_failed(load, &failure);
    printf("acknowledged=%zu code=%s message=%s\n", load_acknowledged(load),
           failed ? status_code_name(failure.code) : "OK", failure.message);
    load_free(load);
    journal_close(&journal);
    return faulty ? EXIT_WRONG : failed ? EXIT_CALL_FAILED : EXIT_RIGHT;
}

static enum exit_status run_check(const struct options *options)
{
    struct journal journal;
    struct check_report report;
    struct status status = {0};
    const struct check_settings settings = {.target = options->server};
    if (options->server == NULL || options->journal == NULL)
        return EXIT_USAGE;
    journal_open(&journal, options->journal);
    const bool right = check_server(&journal, &settings, &report, &status);
    printf("there=%" PRIu64 " read=%" PRIu64 " found=%" PRIu64 " missing=%" PRIu64
           " broken=%" PRIu64 " actions=%" PRIu64 "\n",
           report.blobs_there, report.blobs_read, report.blobs_found, report.blobs_missing,
           report.blobs_broken, report.actions);
    if (!right)
        printf("WRONG: %s: %s\n", status_code_name(status.code), status.message);
    journal_close(&journal);
    return right ? EXIT_RIGHT : EXIT_WRONG;
}
