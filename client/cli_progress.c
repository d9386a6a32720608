/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli_progress.h"

#include <unistd.h>

#include "client/json.h"

enum { BAR_CELLS = 24 };

static void show_line(struct cli_progress *progress, const struct cli_step *step);
static void show_json(const struct cli_progress *progress, const struct cli_step *step);
static unsigned permille(const struct cli_step *step);
static double seconds_since_start(const struct cli_progress *progress);

void cli_progress_init(struct cli_progress *progress, const struct cli *cli, const char *command)
{
    const int64_t now_ns = clock_monotonic_ns(client_clock(cli->client));
    *progress = (struct cli_progress){
        .cli = cli,
        .command = command,
        .live = !cli->json && isatty(fileno(cli->messages)) == 1,
        .start_ns = now_ns,
        .next_ns = now_ns + NS_PER_S, /* what is over within a second needs no line */
    };
}

bool cli_progress_due(struct cli_progress *progress)
{
    const int64_t now_ns = clock_monotonic_ns(client_clock(progress->cli->client));
    if (now_ns < progress->next_ns)
        return false;
    progress->next_ns = now_ns + (progress->live ? NS_PER_S / 5 : NS_PER_S);
    return true;
}

void cli_progress_show(struct cli_progress *progress, const struct cli_step *step)
{
    if (progress->cli->json)
        show_json(progress, step);
    else
        show_line(progress, step);
}

static void show_line(struct cli_progress *progress, const struct cli_step *step)
{
    FILE *to = progress->cli->messages;
    const double rate = (double)step->moved_bytes / (double)MIB / seconds_since_start(progress);
    fprintf(to, "%svarve: %s: ", progress->live ? "\r" : "", progress->command);
    if (step->items == 0) {
        fprintf(to, "%s, %llu files, %.1f MiB", step->doing, (unsigned long long)step->items_done,
                (double)step->bytes_done / (double)MIB);
    } else {
        const unsigned done = permille(step);
        if (progress->live) {
            fputc('[', to);
            for (unsigned cell = 0; cell < BAR_CELLS; cell++)
                fputc(cell * 1000 < done * BAR_CELLS ? '#' : '.', to);
            fputs("] ", to);
        }
        fprintf(to, "%u%%, %s, %llu of %llu, %.1f of %.1f MiB", done / 10, step->doing,
                (unsigned long long)step->items_done, (unsigned long long)step->items,
                (double)step->bytes_done / (double)MIB, (double)step->bytes / (double)MIB);
    }
    fprintf(to, ", %.1f MiB/s%s", rate, progress->live ? "\033[K" : "\n");
    fflush(to);
    progress->shown = progress->live;
}

static void show_json(const struct cli_progress *progress, const struct cli_step *step)
{
    struct json json;
    json_init(&json, progress->cli->messages);
    json_open_object(&json, NULL);
    json_string(&json, "event", "progress");
    json_string(&json, "command", progress->command);
    json_string(&json, "doing", step->doing);
    json_unsigned(&json, "items_done", step->items_done);
    json_unsigned(&json, "items", step->items);
    json_unsigned(&json, "bytes_done", step->bytes_done);
    json_unsigned(&json, "bytes", step->bytes);
    json_unsigned(&json, "moved_bytes", step->moved_bytes);
    json_real(&json, "seconds", seconds_since_start(progress));
    json_close_object(&json);
    json_end(&json);
    fflush(progress->cli->messages);
}

static unsigned permille(const struct cli_step *step)
{
    const uint64_t all = step->bytes > 0 ? step->bytes : step->items;
    const uint64_t done = step->bytes > 0 ? step->bytes_done : step->items_done;
    return done >= all ? 1000 : (unsigned)((double)done * 1000 / (double)all);
}

static double seconds_since_start(const struct cli_progress *progress)
{
    const int64_t now_ns = clock_monotonic_ns(client_clock(progress->cli->client));
    const int64_t passed_ns = now_ns - progress->start_ns;
    return passed_ns > 0 ? (double)passed_ns / (double)NS_PER_S : 1e-9;
}

void cli_progress_clear(struct cli_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", progress->cli->messages);
    progress->shown = false;
}

void cli_progress_say(struct cli_progress *progress, const char *kind, const struct status *what)
{
    cli_progress_clear(progress);
    if (!progress->cli->json) {
        fprintf(progress->cli->messages, "varve: %s: %s%s\n", progress->command, what->message,
                strcmp(kind, "skipped") == 0 ? "; left out" : "");
        return;
    }
    struct json json;
    json_init(&json, progress->cli->messages);
    json_open_object(&json, NULL);
    json_string(&json, "event", kind);
    json_string(&json, "command", progress->command);
    json_string(&json, "code", status_code_name(what->code));
    json_string(&json, "message", what->message);
    json_close_object(&json);
    json_end(&json);
}
