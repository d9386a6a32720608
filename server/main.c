/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program varved. Reads the files that its configuration names again at SIGHUP. Ends with
 *   0  after SIGTERM or SIGINT, when all calls have ended or were cancelled and everything is on disk
 *   1  it cannot start (the last line of the log says why), or a second signal came while it was stopping
 *   2  the configuration is wrong
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/config.h"
#include "server/failpoints.h"
#include "server/server.h"

enum { EXIT_STOPPED = 0, EXIT_FAILED = 1, EXIT_CONFIGURATION = 2 };

static int run(const struct config *config, int argc, char **argv);
static void reload(struct server *server, int argc, char **argv);
static int check(const struct config *config);
static void tune_malloc(void);
static void raise_descriptor_limit(void);
static void block_signals(sigset_t *waited_for);
static void end_at_the_second_signal(void *argument);

int main(int argc, char **argv)
{
    struct config *config = NULL;
    enum config_action action;
    struct status status = {0};
    if (!config_parse(argc, argv, environ, &action, &config, &status)) {
        fprintf(stderr, "varved: %s\n", status.message);
        return EXIT_CONFIGURATION;
    }
    int result = EXIT_STOPPED;
    switch (action) {
    case CONFIG_HELP:
        config_print_help(stdout);
        break;
    case CONFIG_VERSION:
        printf("varved %s\n", VARVE_VERSION);
        break;
    case CONFIG_CHECK:
        result = check(config);
        break;
    case CONFIG_RUN:
        result = run(config, argc, argv);
        break;
    }
    config_free(config);
    return result;
}

static int check(const struct config *config)
{
    struct status status = {0};
    if (!config_check_system(config, &status) || !server_check_files(config, &status)) {
        fprintf(stderr, "varved: %s\n", status.message);
        return EXIT_CONFIGURATION;
    }
    config_print(config, stdout);
    return EXIT_STOPPED;
}

static int run(const struct config *config, int argc, char **argv)
{
    struct status status = {0};
    struct server *server = NULL;
    struct log_text text;
    log_set_level(config->log_level);
    log_set_format(strcmp(config->log_format, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_LOGFMT);
    tune_malloc();
    raise_descriptor_limit();
    if (!failpoints_start(&status) || !server_check_files(config, &status)) {
        fprintf(stderr, "varved: %s\n", status.message);
        return EXIT_CONFIGURATION;
    }

    /*
     * Before the first thread is started: they inherit it. A signal during the start is met after
     * it.
     */
    sigset_t signals;
    block_signals(&signals);
    if (!server_start(config, &server, &status)) {
        log_event(LOG_LEVEL_ERROR, "start_failed", "code=%s reason=%s",
                  status_code_name(status.code), log_quote(&text, status.message));
        return EXIT_FAILED;
    }
    int met = 0;
    do {
        ASSERT(sigwait(&signals, &met) == 0);
        if (met == SIGHUP)
            reload(server, argc, argv);
    } while (met == SIGHUP);
    ASSERT(sigdelset(&signals, SIGHUP) == 0); /* it is no impatience */
    log_event(LOG_LEVEL_INFO, "signal", "number=%d", met);

    struct thread impatience = {0};
    if (!thread_start(&impatience, "signal", 0, end_at_the_second_signal, &signals, &status))
        log_event(LOG_LEVEL_WARN, "second_signal_ignored", "reason=%s",
                  log_quote(&text, status.message));
    server_stop(server);
    return EXIT_STOPPED;
}

/* The configuration may name other peers now; of what else has changed in it nothing counts before the next start. */
static void reload(struct server *server, int argc, char **argv)
{
    struct config *config = NULL;
    enum config_action action;
    struct status status = {0};
    struct log_text reason;
    server_reload(server);
    if (!config_parse(argc, argv, environ, &action, &config, &status))
        log_event(LOG_LEVEL_ERROR, "configuration_not_read", "reason=%s",
                  log_quote(&reason, status.message));
    else
        server_reload_peers(server, config);
    config_free(config);
}

/*
 * gRPC receives into fresh slices; by default the top of the heap then shrinks and grows with every
 * message, which costs up to nine tenths of the throughput. Setting one of these freezes the others
 * at their defaults, so all are set.
 */
static void tune_malloc(void)
{
    static const struct {
        int parameter;
        int bytes;
    } settings[] = {
        {M_MMAP_THRESHOLD, 32 << 20}, {M_TRIM_THRESHOLD, 512 << 20}, {M_TOP_PAD, 16 << 20}};
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
        if (mallopt(settings[i].parameter, settings[i].bytes) != 1)
            log_event(LOG_LEVEL_WARN, "malloc_not_tuned", "parameter=%d bytes=%d",
                      settings[i].parameter, settings[i].bytes);
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    const bool raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
    log_event(LOG_LEVEL_INFO, "descriptor_limit", "limit=%llu before=%llu",
              (unsigned long long)(raised ? limit.rlim_cur : before), (unsigned long long)before);
}

static void block_signals(sigset_t *waited_for)
{
    ASSERT(sigemptyset(waited_for) == 0);
    ASSERT(sigaddset(waited_for, SIGTERM) == 0);
    ASSERT(sigaddset(waited_for, SIGINT) == 0);
    ASSERT(sigaddset(waited_for, SIGHUP) == 0);
    ASSERT(pthread_sigmask(SIG_BLOCK, waited_for, NULL) == 0);
    ASSERT(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

/* Everything acknowledged is on disk at any moment, so that nothing is lost by this. */
static void end_at_the_second_signal(void *argument)
{
    const sigset_t *const signals = argument;
    int met = 0;
    ASSERT(sigwait(signals, &met) == 0);
    log_event(LOG_LEVEL_WARN, "stopped_at_once", "number=%d", met);
    _exit(EXIT_FAILED);
}
