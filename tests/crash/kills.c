/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/kills.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "tests/crash/check.h"
#include "tests/crash/load.h"
#include "tests/crash/process.h"
#include "tests/support/temp_dir.h"

#define READY_WITHIN_NS (5 * NS_PER_S)
/* A fail point that this much load does not reach will not be reached. */
#define PASS_WITHIN_NS (30 * NS_PER_S)
/* How long after a client has noticed the death of the server it may take until we see it. */
#define DEAD_WITHIN_NS (2 * NS_PER_S)
/* How long after the death of the server a call of a client may take to find out. */
#define NOTICE_WITHIN_NS (30 * NS_PER_S)

enum {
    PATH_BYTES = TEMP_DIR_PATH_BYTES_MAX,
    REMOVE_INDEX_EVERY = 10,
    READ_BYTES_MAX = 1 << 30, /* above this not everything is read back after every kill */
    MOMENT_MS_MAX = 300,
    START_MS_MAX = 80,
};

enum plan_kind {
    AT_FAILPOINT,
    IN_LOAD,  /* a random moment, with clients at work */
    IN_START, /* a random moment while it starts */
    PLAN_KINDS,
};

struct plan {
    enum plan_kind kind;
    enum failpoint point;
    unsigned pass; /* AT_FAILPOINT: at the how manieth it dies */
    bool check;    /* before the next kill */
};

static const char *const failpoint_names[] = {
#define FAILPOINT_NAME(name, what) [FAILPOINT_##name] = #name,
    FAILPOINTS_LIST(FAILPOINT_NAME)
#undef FAILPOINT_NAME
};

struct kills {
    const struct kills_settings *settings;
    struct prng prng;
    char data[PATH_BYTES], journal_path[PATH_BYTES], log_path[PATH_BYTES];
    struct journal journal;
    struct process process;
    size_t turn; /* of check_server() */

    size_t at_failpoint[FAILPOINT_COUNT]; /* kills */
    unsigned pass_max[FAILPOINT_COUNT];   /* the latest at which one came */
    size_t kills[PLAN_KINDS];
    size_t indexes_removed, starts, checks;
    int64_t slowest_start_ns, slowest_rebuild_ns;
    int64_t checking_ns;       /* all checks together */
    struct check_report total; /* over the stores */
    struct check_report last;
};

static void make_path(char path[PATH_BYTES], const char *format, ...) PRINTF_LIKE(2, 3);
static void remove_tree(const char *path, const char *below);
static void print_progress(const struct kills *kills, size_t done, int64_t began_ns);
static void begin_store(struct kills *kills, size_t number);
static bool end_store(struct kills *kills);
static void make_plan(struct kills *kills, size_t number, struct plan *plan);
static bool kill_by_plan(struct kills *kills, const struct plan *plan);
static bool kill_at_failpoint(struct kills *kills, const struct plan *plan);
static bool kill_in_load(struct kills *kills);
static bool kill_in_start(struct kills *kills);
static bool load_until_dead(struct kills *kills,
                            const struct load_settings *settings,
                            int64_t kill_after_ns,
                            int *how);
static void settings_of_load(struct kills *kills, bool heavy, struct load_settings *settings);
static bool start_and_check(struct kills *kills, bool remove_index, bool check);
static bool wait_ready(struct kills *kills, bool index_removed);
static bool stop(struct kills *kills, int signal);
static bool died_as_planned(struct kills *kills, int how);
static bool log_is_clean(struct kills *kills);
static bool wrong(struct kills *kills, const char *format, ...) PRINTF_LIKE(2, 3);
static bool report(const struct kills *kills, size_t done, int64_t duration_ns);

bool kills_run(const struct kills_settings *settings)
{
    const int64_t began_ns = clock_monotonic_ns(clock_real());
    struct kills *const kills = calloc(1, sizeof(*kills));
    ASSERT(kills != NULL);
    kills->settings = settings;
    kills->prng.state = settings->seed;
    size_t done = 0;
    bool ok = true;
    for (size_t store = 0; ok && done < settings->kills; store++) {
        begin_store(kills, store);
        for (size_t i = 0; ok && done < settings->kills && i < settings->kills_per_store; i++) {
            struct plan plan;
            make_plan(kills, done, &plan);
            ok = kill_by_plan(kills, &plan);
            done += ok;
            if (ok && done % 50 == 0)
                print_progress(kills, done, began_ns);
            fflush(stdout);
        }
        ok = ok && end_store(kills);
        if (kills->process.pid != 0)
            process_end(&kills->process, SIGKILL);
        journal_close(&kills->journal);
    }
    ok = report(kills, done, clock_monotonic_ns(clock_real()) - began_ns) && ok;
    free(kills);
    return ok;
}

static void print_progress(const struct kills *kills, size_t done, int64_t began_ns)
{
    printf("%zu kills, %" PRIu64 " blobs acknowledged, %" PRIu64 " with %" PRIu64
           " MiB read back, %" PRIu64 " action results, %" PRId64 " s of which %" PRId64
           " checking\n",
           done, kills->last.blobs_there, kills->last.blobs_read, kills->last.bytes_read >> 20,
           kills->last.actions, (clock_monotonic_ns(clock_real()) - began_ns) / NS_PER_S,
           kills->checking_ns / NS_PER_S);
}

static void begin_store(struct kills *kills, size_t number)
{
    const char *const directory = kills->settings->directory;
    make_path(kills->data, "%s/data-%zu", directory, number);
    make_path(kills->journal_path, "%s/journal-%zu", directory, number);
    make_path(kills->log_path, "%s/log-%zu", directory, number);
    journal_open(&kills->journal, kills->journal_path);
    kills->turn = 0;
    kills->process = (struct process){
        .varved = kills->settings->varved, .data = kills->data, .log_path = kills->log_path};
    kills->last = (struct check_report){0};
}

static void make_path(char path[PATH_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(path, PATH_BYTES, format, arguments);
    va_end(arguments);
    ASSERT(length > 0 && length < PATH_BYTES);
}

static void remove_tree(const char *path, const char *below)
{
    struct temp_dir tree;
    make_path(tree.path, "%s%s", path, below);
    temp_dir_remove(&tree);
}

/* Stopped in peace it still has everything, and after that too. */
static bool end_store(struct kills *kills)
{
    if (kills->process.pid == 0 && !start_and_check(kills, false, true))
        return false;
    if (!stop(kills, SIGTERM) || !start_and_check(kills, false, true) || !stop(kills, SIGTERM))
        return false;
    kills->total.blobs_there += kills->last.blobs_there;
    kills->total.blobs_found += kills->last.blobs_found;
    kills->total.actions += kills->last.actions;
    kills->total.blobs_broken += kills->last.blobs_broken;
    remove_tree(kills->data, "");
    return true;
}

/* ---- where it dies next */

/* How often a fail point is passed by one server, at most, when it is loaded. */
static unsigned passes_max(enum failpoint point)
{
    static const struct {
        const char *prefix;
        unsigned passes;
    } table[] = {
        {"recovery_", 1}, {"segment_", 7}, {"upload_", 16}, {"commit_", 60}, {"index_", 30},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        if (strncmp(failpoint_names[point], table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].passes;
    }
    return 2;
}

/*
 * Every other kill is at a fail point, one after the other; the first round at the first pass, the
 * next ones at one of the next few, at a late one, and so on. The rest are at random moments.
 */
static void make_plan(struct kills *kills, size_t number, struct plan *plan)
{
    *plan = (struct plan){.kind = IN_LOAD, .check = prng_below(&kills->prng, 5) != 0};
    if (number % 2 == 0) {
        const size_t round = number / 2 / FAILPOINT_COUNT;
        plan->kind = AT_FAILPOINT;
        plan->point = (enum failpoint)(number / 2 % FAILPOINT_COUNT);
        const unsigned most = passes_max(plan->point);
        const unsigned few = most < 4 ? most : 4;
        if (round % 3 == 0)
            plan->pass = round == 0 ? 1 : 1 + (unsigned)prng_below(&kills->prng, few);
        else if (round % 3 == 1)
            plan->pass = most < 2 ? 1 : 2 + (unsigned)prng_below(&kills->prng, few - 1);
        else
            plan->pass = most - (unsigned)prng_below(&kills->prng, most / 2 + 1);
        plan->check = true;
    } else if (prng_below(&kills->prng, 6) == 0) {
        plan->kind = IN_START;
    }
}

/* Passed when a segment is full, and when chunks are written: wants much to be written. */
static bool is_of_segments(enum failpoint point)
{
    const char *const name = failpoint_names[point];
    return strncmp(name, "segment_", 8) == 0 || strncmp(name, "upload_", 7) == 0;
}

static bool kill_by_plan(struct kills *kills, const struct plan *plan)
{
    bool ok = true;
    switch (plan->kind) {
    case AT_FAILPOINT:
        ok = kill_at_failpoint(kills, plan);
        break;
    case IN_LOAD:
        ok = kill_in_load(kills);
        break;
    case IN_START:
        ok = kill_in_start(kills);
        break;
    case PLAN_KINDS:
        ASSERT(false);
    }
    if (!ok || !log_is_clean(kills))
        return false;
    kills->kills[plan->kind]++;
    const size_t all = kills->kills[AT_FAILPOINT] + kills->kills[IN_LOAD] + kills->kills[IN_START];
    if (!plan->check)
        return true;
    return start_and_check(kills, all % REMOVE_INDEX_EVERY == 0, true);
}

static bool kill_at_failpoint(struct kills *kills, const struct plan *plan)
{
    char setting[128];
    int how = 0;
    /* One that still runs ends in peace or not, by turns. */
    if (kills->process.pid != 0 &&
        !stop(kills, prng_below(&kills->prng, 2) == 0 ? SIGTERM : SIGKILL))
        return false;
    snprintf(setting, sizeof(setting), "%s=kill@%u", failpoint_names[plan->point], plan->pass);
    process_start(&kills->process, setting);
    const enum process_state state = process_wait(&kills->process, READY_WITHIN_NS, &how);
    if (state == PROCESS_STARTING)
        return wrong(kills, "%s: not ready in time", setting);
    if (state == PROCESS_READY) {
        struct load_settings load;
        settings_of_load(kills, is_of_segments(plan->point) && plan->pass > 2, &load);
        if (!load_until_dead(kills, &load, 0, &how))
            return wrong(kills, "with %s", setting);
    }
    if (!died_as_planned(kills, how))
        return wrong(kills, "with %s", setting);
    kills->at_failpoint[plan->point]++;
    if (plan->pass > kills->pass_max[plan->point])
        kills->pass_max[plan->point] = plan->pass;
    return true;
}

static bool kill_in_load(struct kills *kills)
{
    struct load_settings load;
    int how = 0;
    if (kills->process.pid == 0 && !start_and_check(kills, false, false))
        return false;
    settings_of_load(kills, prng_below(&kills->prng, 16) == 0, &load);
    const int64_t moment_ns = (int64_t)prng_below(&kills->prng, (size_t)MOMENT_MS_MAX * NS_PER_MS);
    return load_until_dead(kills, &load, moment_ns, &how) && died_as_planned(kills, how);
}

static bool kill_in_start(struct kills *kills)
{
    if (kills->process.pid != 0 && !stop(kills, SIGKILL))
        return false;
    process_start(&kills->process, NULL);
    clock_pause((int64_t)prng_below(&kills->prng, (size_t)START_MS_MAX * NS_PER_MS));
    return died_as_planned(kills, process_end(&kills->process, SIGKILL));
}

static void settings_of_load(struct kills *kills, bool heavy, struct load_settings *settings)
{
    *settings = (struct load_settings){
        .target = kills->process.target,
        .seed = prng_next(&kills->prng),
        .batch_workers = 3,
        .stream_workers = 2,
        .action_workers = 2,
        .broken_workers = 1,
        .batch_bytes = heavy ? 12 << 20 : 128 << 10,
        .stream_bytes = heavy ? 4 << 20 : 1 << 20,
        .broken_bytes = heavy ? 256 << 20 : 6 << 20,
        .actions = 5,
        .small_bytes = heavy ? 1 << 20 : 65536,
    };
}

/*
 * kill_after_ns: 0 waits until it dies by itself. *how: what waitpid() says. A call that fails
 * while the server lives is a fault.
 */
static bool load_until_dead(struct kills *kills,
                            const struct load_settings *settings,
                            int64_t kill_after_ns,
                            int *how)
{
    struct process *const process = &kills->process;
    struct status failure = {0};
    struct status fault = {0};
    const int64_t began_ns = clock_monotonic_ns(clock_real());
    const int64_t until_ns = began_ns + (kill_after_ns > 0 ? kill_after_ns : PASS_WITHIN_NS);
    struct load *const load = load_start(&kills->journal, settings);
    int64_t failed_ns = 0;
    bool failed_alive = false;
    while (process->pid != 0) {
        const bool failed = load_failed(load, &failure);
        if (process_look(process, how) == PROCESS_ENDED)
            break;
        const int64_t now_ns = clock_monotonic_ns(clock_real());
        /* The client may hear of the death before we do; not so long before. */
        if (failed && failed_ns == 0)
            failed_ns = now_ns;
        failed_alive = failed_ns != 0 && now_ns - failed_ns > DEAD_WITHIN_NS;
        if (failed_alive)
            break;
        if (now_ns >= until_ns && failed_ns == 0) {
            if (kill_after_ns > 0)
                *how = process_end(process, SIGKILL);
            break;
        }
        clock_pause(NS_PER_MS);
    }
    const bool never_died = process->pid != 0 && !failed_alive;
    if (process->pid != 0)
        process_end(process, SIGKILL);
    const int64_t dead_ns = clock_monotonic_ns(clock_real());
    load_stop(load);
    const bool faulty = load_found_fault(load, &fault);
    load_free(load);
    if (faulty)
        return wrong(kills, "%s", fault.message);
    if (failed_alive)
        return wrong(kills, "a call failed while the server lives: %s: %s",
                     status_code_name(failure.code), failure.message);
    if (never_died)
        return wrong(kills, "the fail point was not passed so often within %d s of load",
                     (int)(PASS_WITHIN_NS / NS_PER_S));
    if (clock_monotonic_ns(clock_real()) - dead_ns > NOTICE_WITHIN_NS)
        return wrong(kills, "clients noticed the death of the server too late");
    return true;
}

/* ---- and what the next one has */

static bool start_and_check(struct kills *kills, bool remove_index, bool check)
{
    struct status status = {0};
    const struct check_settings settings = {
        .target = kills->process.target, .read_bytes_max = READ_BYTES_MAX, .turn = &kills->turn};
    if (remove_index) {
        remove_tree(kills->data, "/index");
        kills->indexes_removed++;
    }
    process_start(&kills->process, NULL);
    if (!wait_ready(kills, remove_index))
        return false;
    if (!check)
        return true;
    kills->checks++;
    const int64_t began_ns = clock_monotonic_ns(clock_real());
    const bool right = check_server(&kills->journal, &settings, &kills->last, &status);
    kills->checking_ns += clock_monotonic_ns(clock_real()) - began_ns;
    if (!right)
        return wrong(kills, "%s: %s", status_code_name(status.code), status.message);
    return log_is_clean(kills);
}

static bool wait_ready(struct kills *kills, bool index_removed)
{
    int how = 0;
    const enum process_state state = process_wait(&kills->process, READY_WITHIN_NS, &how);
    if (state == PROCESS_ENDED)
        return wrong(kills, "the server did not start");
    if (state == PROCESS_STARTING)
        return wrong(kills, "the server was not ready after %d s",
                     (int)(READY_WITHIN_NS / NS_PER_S));
    int64_t *const slowest = index_removed ? &kills->slowest_rebuild_ns : &kills->slowest_start_ns;
    if (kills->process.ready_ns > *slowest)
        *slowest = kills->process.ready_ns;
    kills->starts++;
    return true;
}

static bool stop(struct kills *kills, int signal)
{
    const int how = process_end(&kills->process, signal);
    if (signal == SIGKILL)
        return died_as_planned(kills, how);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        return wrong(kills, "after SIGTERM the server ended with %#x and not with 0",
                     (unsigned)how);
    return log_is_clean(kills);
}

static bool died_as_planned(struct kills *kills, int how)
{
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        return true;
    return wrong(kills, "the server ended by itself: exit status %d, signal %d",
                 WIFEXITED(how) ? WEXITSTATUS(how) : -1, WIFSIGNALED(how) ? WTERMSIG(how) : 0);
}

static bool log_is_clean(struct kills *kills)
{
    char *line = NULL;
    if (process_log_is_clean(&kills->process, &line))
        return true;
    wrong(kills, "the log has: %s", line);
    free(line);
    return false;
}

static bool wrong(struct kills *kills, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("WRONG after %zu kills of the seed %" PRIu64 ": ",
           kills->kills[AT_FAILPOINT] + kills->kills[IN_LOAD] + kills->kills[IN_START],
           kills->settings->seed);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    return false;
}

static bool report(const struct kills *kills, size_t done, int64_t duration_ns)
{
    const bool every_point = done >= 2 * FAILPOINT_COUNT;
    bool ok = true;
    for (size_t i = 0; i < FAILPOINT_COUNT; i++) {
        printf("  %-30s %3zu kills, at pass 1 to %u\n", failpoint_names[i], kills->at_failpoint[i],
               kills->pass_max[i]);
        if (every_point && kills->at_failpoint[i] == 0) {
            printf("WRONG: %s was never passed\n", failpoint_names[i]);
            ok = false;
        }
    }
    printf("  with clients at work           %3zu kills\n", kills->kills[IN_LOAD]);
    printf("  during a start                 %3zu kills\n", kills->kills[IN_START]);
    printf("  %zu starts, the slowest took %" PRId64 " ms, without an index %" PRId64
           " ms (%zu of them); %zu checks\n",
           kills->starts, kills->slowest_start_ns / NS_PER_MS,
           kills->slowest_rebuild_ns / NS_PER_MS, kills->indexes_removed, kills->checks);
    printf("  at the end: %" PRIu64 " blobs and %" PRIu64
           " action results that must be there, %" PRIu64 " broken uploads that must not\n",
           kills->total.blobs_there, kills->total.actions, kills->total.blobs_broken);
    printf("%zu kills in %" PRId64 " s\n", done, duration_ns / NS_PER_S);
    return ok;
}
