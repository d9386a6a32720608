/* SPDX-License-Identifier: Apache-2.0 */
/* varve replicate: blobs and action results from one server to another. */
#include <stdlib.h>

#include "client/action_copier.h"
#include "client/cas.h"
#include "client/cli.h"
#include "client/cli_progress.h"
#include "client/copier.h"
#include "client/credentials.h"
#include "client/json.h"
#include "client/replication.h"
#include "client/replication_service.h"
#include "client/tree_blobs.h"

enum {
    /* Digests whose absence is looked into afterwards; of more it is only said that they are absent. */
    GONE_KEPT_MAX = 1 << 20,
    COMPARE_PAGE = 20000,
    /* What only the destination has is kept until the log of the source has been read. */
    EXTRA_MAX = 1 << 24,
};

struct digest_list {
    struct digest *digests; /* owned */
    size_t count, capacity;
};

/* One copying. */
struct replication {
    struct cli *cli;
    struct client *destination; /* owned */
    struct capabilities source_capabilities, destination_capabilities;
    struct cli_progress progress;
    struct copier *copier;                /* owned */
    struct action_copier *action_copier;  /* owned; NULL: not asked for */
    struct digest_map deleted_there;      /* on purpose, at the destination */
    struct digest_list gone;              /* that the source does not have; the first of them */
    uint64_t gone_deleted;                /* of all that are gone: deleted on purpose */
    uint64_t unreadable, unreadable_gone; /* directories */
    bool all_given;                       /* no more blobs will come */
    bool took_all; /* that reading the digests failed is no fault of the copying */
};

/* One comparison. */
struct comparison {
    struct cli *cli;
    struct client *destination; /* owned */
    struct client *asked;       /* borrowed: has it what the log tells of? */
    struct cli_progress progress;
    struct digest_map forgotten[2]; /* of the source, of the destination */
    struct digest_map *forgotten_now;
    struct digest_list page, extra;
    struct digest_map told;        /* differences */
    struct action_copier *actions; /* owned; NULL: not asked for */
    struct json json;
    bool reads_source;
    bool lists_destination;
    uint64_t looked_at, missing, missing_deleted, extra_count, extra_deleted;
};

static bool open_both(struct cli *cli,
                      struct client **destination,
                      struct capabilities *source_capabilities,
                      struct capabilities *destination_capabilities,
                      struct status *status);
static enum cli_exit failed(const struct replication *replication, const struct status *status);
static enum cli_exit tell_failure(const struct cli *cli,
                                  const char *action,
                                  const struct status *status);
static bool copy(struct replication *replication, struct status *status);
static bool give_digests(struct replication *replication, struct status *status);
static bool take_digest(void *argument, const struct digest *digest, struct status *status);
static bool take_blob_record(void *argument,
                             const struct feed_record *record,
                             struct status *status);
static bool copy_actions(struct replication *replication, struct status *status);
static bool take_action_record(void *argument,
                               const struct feed_record *record,
                               struct status *status);
static bool read_forgotten(struct client *client,
                           struct digest_map *forgotten,
                           struct status *status);
static bool tell_gone(struct replication *replication, struct status *status);
static void blob_problem(void *argument, const struct status *problem);
static void blob_gone(void *argument, const struct digest *digest);
static bool blob_is_wanted(void *argument, const struct digest *digest);
static void copy_progress(void *argument);
static void action_problem(void *argument, const struct status *problem);
static void action_ended(void *argument, const struct digest *action, enum action_outcome outcome);
static void print_copied(const struct replication *replication);
static void print_copied_json(const struct replication *replication);
static enum cli_exit exit_of(const struct replication *replication);
static enum cli_exit run_compare(struct cli *cli);
static bool compare(struct comparison *comparison, struct status *status);
static bool compare_log(struct comparison *comparison,
                        struct client *client,
                        struct status *status);
static bool compare_record(void *argument, const struct feed_record *record, struct status *status);
static bool compare_page(struct comparison *comparison, struct status *status);
static bool tell_missing(struct comparison *comparison,
                         const struct digest *digest,
                         struct status *status);
static bool tell_extra(struct comparison *comparison, struct status *status);
static void compared_action(void *argument,
                            const struct digest *action,
                            enum action_outcome outcome);
static void compare_problem(void *argument, const struct status *problem);
static void print_difference(struct comparison *comparison,
                             const char *what,
                             const struct digest *digest);
static void print_compared(struct comparison *comparison);
static bool list_add(struct digest_list *list,
                     const struct digest *digest,
                     size_t most,
                     struct status *status);

enum cli_exit cli_replicate(struct cli *cli)
{
    if (cli->compare)
        return run_compare(cli);
    struct replication replication = {.cli = cli};
    struct status status = {0};
    cli_progress_init(&replication.progress, cli, "replicate");
    bool ok = open_both(cli, &replication.destination, &replication.source_capabilities,
                        &replication.destination_capabilities, &status) &&
              copy(&replication, &status);
    if (ok || replication.copier != NULL)
        ok = tell_gone(&replication, ok ? &status : &(struct status){0}) && ok;
    cli_progress_clear(&replication.progress);
    if (replication.copier != NULL && (ok || copier_counts(replication.copier)->given > 0))
        print_copied(&replication);
    const enum cli_exit result = ok ? exit_of(&replication) : failed(&replication, &status);
    copier_free(replication.copier);
    action_copier_free(replication.action_copier);
    client_close(replication.destination);
    digest_map_destroy(&replication.deleted_there);
    free(replication.gone.digests);
    return result;
}

static enum cli_exit failed(const struct replication *replication, const struct status *status)
{
    const struct cli *cli = replication->cli;
    if (status->code == STATUS_INVALID_ARGUMENT && replication->copier != NULL &&
        !replication->took_all && !cli->all)
        return cli_usage_error(cli, status);
    if (cli->all && status->code == STATUS_UNIMPLEMENTED)
        fprintf(cli->messages,
                "varve: replicate: --all wants a varve server that lists what it has; "
                "--digests and --tree do not\n");
    const enum cli_exit result = tell_failure(cli, "replicate", status);
    if (status->code == STATUS_INVALID_ARGUMENT && replication->destination == NULL)
        return CLI_EXIT_USAGE; /* --to is no address */
    /* NOT_FOUND is the file of --digests, and no answer about a blob. */
    return result == CLI_EXIT_NOT_FOUND ? CLI_EXIT_FAILED : result;
}

/* The text names the server that it is about, of the two. */
static enum cli_exit tell_failure(const struct cli *cli,
                                  const char *action,
                                  const struct status *status)
{
    struct cli neither = *cli;
    neither.client = NULL;
    return cli_failed(&neither, action, status);
}

static bool open_both(struct cli *cli,
                      struct client **destination,
                      struct capabilities *source_capabilities,
                      struct capabilities *destination_capabilities,
                      struct status *status)
{
    struct client_options options = client_options_default();
    options.instance_name = cli->instance;
    options.call_timeout_ns = cli->timeout_ns;
    options.tls = cli->tls;
    options.tls.server_name = NULL; /* that of the source */
    /* What is shown to one server is not shown to another unless it is said. */
    char *authorization = NULL;
    if ((cli->to_token_file != NULL || cli->to_login_file != NULL) &&
        !credentials_read(cli->to_token_file, cli->to_login_file, &authorization, status))
        return false;
    options.authorization = authorization;
    if (cli->compare)
        options.tool_name = PEER_TOOL_NAME;
    const bool connected = client_connect(cli->to, &options, destination, status);
    credentials_free(authorization);
    if (!connected) {
        status_prefix(status, "--to");
        return false;
    }
    if (!capabilities_get(cli->client, source_capabilities, status) ||
        !capabilities_check_function(source_capabilities, status)) {
        status_prefix(status, "the source, %s", client_target(cli->client));
        return false;
    }
    if (!capabilities_get(*destination, destination_capabilities, status) ||
        !capabilities_check_function(destination_capabilities, status)) {
        status_prefix(status, "the destination, %s", client_target(*destination));
        return false;
    }
    return true;
}

static bool copy(struct replication *replication, struct status *status)
{
    struct cli *cli = replication->cli;
    struct copier_config config = {
        .source = cli->client,
        .destination = replication->destination,
        .source_capabilities = &replication->source_capabilities,
        .destination_capabilities = &replication->destination_capabilities,
        .batches_in_flight_max = COPIER_BATCHES_IN_FLIGHT_MAX,
        .streams_in_flight_max = COPIER_STREAMS_IN_FLIGHT_MAX,
        .observer = {.problem = blob_problem,
                     .gone = blob_gone,
                     .is_wanted = blob_is_wanted,
                     .progress = copy_progress,
                     .argument = replication},
    };
    if (cli->jobs > 0) {
        config.streams_in_flight_max = cli->jobs;
        config.batches_in_flight_max =
            cli->jobs < config.batches_in_flight_max ? cli->jobs : config.batches_in_flight_max;
    }
    /* What was deleted there on purpose is not brought back by a copy of everything. */
    if (cli->all &&
        !read_forgotten(replication->destination, &replication->deleted_there, status)) {
        status_prefix(status, "the destination, %s", cli->to);
        return false;
    }
    if (!copier_new(&config, &replication->copier, status))
        return false;
    struct status reading = {0};
    const bool gave_all = give_digests(replication, &reading);
    replication->all_given = true;
    if (!copier_finish(replication->copier, status)) {
        replication->took_all = true;
        return false;
    }
    replication->took_all = gave_all;
    if (!gave_all) {
        *status = reading;
        if (cli->digests_file == NULL && status->code != STATUS_INVALID_ARGUMENT)
            status_prefix(status, "the source, %s", client_target(cli->client));
        return false;
    }
    return !cli->action_results || copy_actions(replication, status);
}

static bool give_digests(struct replication *replication, struct status *status)
{
    struct cli *cli = replication->cli;
    if (cli->digests_file != NULL)
        return cli_each_digest(cli, take_digest, replication, status);
    if (cli->tree != NULL) {
        struct digest root;
        const struct tree_blobs_observer observer = {
            .take = take_digest, .problem = blob_problem, .argument = replication};
        return digest_parse_text(bytes_of_string(cli->tree), &root, status) &&
               tree_blobs_visit(cli->client, &replication->source_capabilities, &root, &observer,
                                &replication->unreadable, &replication->unreadable_gone, status);
    }
    const struct log_reader reader = {.take = take_blob_record, .argument = replication};
    return replication_read_log(cli->client, FEED_LANE_SMALL, &reader, status) &&
           replication_read_log(cli->client, FEED_LANE_LARGE, &reader, status);
}

static bool take_digest(void *argument, const struct digest *digest, struct status *status)
{
    struct replication *replication = argument;
    return copier_add(replication->copier, digest, status);
}

static bool take_blob_record(void *argument,
                             const struct feed_record *record,
                             struct status *status)
{
    if (record->kind != FEED_BLOB && record->kind != FEED_MANIFEST)
        return true;
    return take_digest(argument, &record->digest, status);
}

/* After the blobs of both lanes: what an action result names was there before it was. */
static bool copy_actions(struct replication *replication, struct status *status)
{
    const struct action_copier_observer observer = {
        .problem = action_problem, .ended = action_ended, .argument = replication};
    const struct log_reader reader = {.take = take_action_record, .argument = replication};
    if (!replication->destination_capabilities.update_enabled)
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "the destination takes no action results");
    if (!action_copier_new(replication->destination, ACTION_COPIER_COPY, &observer,
                           &replication->action_copier, status))
        return false;
    struct status reading = {0};
    const bool read_all =
        replication_read_log(replication->cli->client, FEED_LANE_SMALL, &reader, &reading);
    if (!action_copier_finish(replication->action_copier, status)) {
        status_prefix(status, "the destination, %s", replication->cli->to);
        return false;
    }
    if (!read_all) {
        *status = reading;
        status_prefix(status, "the source, %s", client_target(replication->cli->client));
    }
    return read_all;
}

static bool take_action_record(void *argument,
                               const struct feed_record *record,
                               struct status *status)
{
    struct replication *replication = argument;
    if (record->kind != FEED_ACTION ||
        !bytes_equal_string(record->instance, replication->cli->instance))
        return true;
    copy_progress(replication);
    return action_copier_add(replication->action_copier, &record->digest, record->result, status);
}

/* Nothing where the server does not tell: it is no varve, or an older one. */
static bool read_forgotten(struct client *client,
                           struct digest_map *forgotten,
                           struct status *status)
{
    struct status failure = {0};
    if (replication_read_forgotten(client, forgotten, &failure) ||
        failure.code == STATUS_UNIMPLEMENTED)
        return true;
    *status = failure;
    return false;
}

/* Which of those that the source lacks were deleted on purpose, and which never came or were evicted. */
static bool tell_gone(struct replication *replication, struct status *status)
{
    struct digest_map deleted = {0};
    const struct digest_list *gone = &replication->gone;
    const bool ok = gone->count == 0 || read_forgotten(replication->cli->client, &deleted, status);
    for (size_t i = 0; ok && i < gone->count; i++) {
        const bool on_purpose = digest_map_find(&deleted, &gone->digests[i]) != NULL;
        char text[DIGEST_TEXT_BYTES_MAX];
        struct status what = {0};
        replication->gone_deleted += on_purpose ? 1 : 0;
        status_fail(&what, STATUS_NOT_FOUND, "%s %s", digest_text(&gone->digests[i], text),
                    on_purpose ? "was deleted at the source"
                               : "is not at the source: it never arrived there, or was evicted");
        cli_progress_say(&replication->progress, "missing", &what);
    }
    digest_map_destroy(&deleted);
    return ok;
}

static void blob_problem(void *argument, const struct status *problem)
{
    struct replication *replication = argument;
    cli_progress_say(&replication->progress, "problem", problem);
}

static void blob_gone(void *argument, const struct digest *digest)
{
    struct replication *replication = argument;
    struct status ignored = {0};
    if (!list_add(&replication->gone, digest, GONE_KEPT_MAX, &ignored))
        ASSERT(ignored.code != STATUS_OK); /* it is in the count all the same */
}

static bool blob_is_wanted(void *argument, const struct digest *digest)
{
    const struct replication *replication = argument;
    return digest_map_find(&replication->deleted_there, digest) == NULL;
}

static void copy_progress(void *argument)
{
    struct replication *replication = argument;
    if (!cli_progress_due(&replication->progress))
        return;
    const struct copier_counts *counts = copier_counts(replication->copier);
    struct cli_step step = {
        .doing = replication->action_copier != NULL ? "copying action results" : "copying",
        .items_done = counts->present + counts->copied + counts->gone + counts->unwanted +
                      counts->failed + counts->abandoned,
        .bytes_done = counts->present_bytes + counts->copied_bytes,
        .moved_bytes = counts->sent_bytes,
    };
    if (replication->all_given)
        step.items = counts->given;
    else
        step.doing = "listing and copying";
    cli_progress_show(&replication->progress, &step);
}

static void action_problem(void *argument, const struct status *problem)
{
    blob_problem(argument, problem);
}

static void action_ended(void *argument, const struct digest *action, enum action_outcome outcome)
{
    struct replication *replication = argument;
    if (outcome != ACTION_INCOMPLETE)
        return;
    char text[DIGEST_TEXT_BYTES_MAX];
    struct status what = {0};
    status_fail(&what, STATUS_FAILED_PRECONDITION,
                "action %s: something that its result names is not at the destination",
                digest_text(action, text));
    cli_progress_say(&replication->progress, "skipped", &what);
}

static void print_copied(const struct replication *replication)
{
    const struct copier_counts *counts = copier_counts(replication->copier);
    const struct action_copier *actions = replication->action_copier;
    const uint64_t failed = counts->failed + counts->abandoned;
    const uint64_t never_came = counts->gone - replication->gone_deleted;
    if (replication->cli->json) {
        print_copied_json(replication);
        return;
    }
    fprintf(replication->cli->messages,
            "varve: replicate: %llu blobs: %llu copied (%.1f MiB), %llu there already, %llu "
            "missing at the source (never arrived, or evicted), %llu deleted at the source, %llu "
            "deleted at the destination and not brought back, %llu failed",
            (unsigned long long)counts->given, (unsigned long long)counts->copied,
            (double)counts->copied_bytes / (double)MIB, (unsigned long long)counts->present,
            (unsigned long long)never_came, (unsigned long long)replication->gone_deleted,
            (unsigned long long)counts->unwanted, (unsigned long long)failed);
    if (actions != NULL) {
        const uint64_t actions_failed = action_copier_count(actions, ACTION_FAILED) +
                                        action_copier_count(actions, ACTION_ABANDONED);
        fprintf(replication->cli->messages,
                "; action results: %llu copied, %llu there already, %llu there with another result "
                "that stays, %llu incomplete, %llu failed",
                (unsigned long long)action_copier_count(actions, ACTION_COPIED),
                (unsigned long long)action_copier_count(actions, ACTION_PRESENT),
                (unsigned long long)action_copier_count(actions, ACTION_DIFFERS),
                (unsigned long long)action_copier_count(actions, ACTION_INCOMPLETE),
                (unsigned long long)actions_failed);
    }
    fputc('\n', replication->cli->messages);
}

static void print_copied_json(const struct replication *replication)
{
    const struct copier_counts *counts = copier_counts(replication->copier);
    const struct action_copier *actions = replication->action_copier;
    struct json json;
    json_init(&json, replication->cli->out);
    json_open_object(&json, NULL);
    json_unsigned(&json, "blobs", counts->given);
    json_unsigned(&json, "copied", counts->copied);
    json_unsigned(&json, "copied_bytes", counts->copied_bytes);
    json_unsigned(&json, "present", counts->present);
    json_unsigned(&json, "missing_at_source", counts->gone - replication->gone_deleted);
    json_unsigned(&json, "deleted_at_source", replication->gone_deleted);
    json_unsigned(&json, "deleted_at_destination", counts->unwanted);
    json_unsigned(&json, "failed", counts->failed);
    json_unsigned(&json, "abandoned", counts->abandoned);
    json_unsigned(&json, "unreadable_directories", replication->unreadable);
    json_unsigned(&json, "received_bytes", counts->received_bytes);
    json_unsigned(&json, "sent_bytes", counts->sent_bytes);
    if (actions != NULL) {
        json_open_object(&json, "action_results");
        json_unsigned(&json, "copied", action_copier_count(actions, ACTION_COPIED));
        json_unsigned(&json, "present", action_copier_count(actions, ACTION_PRESENT));
        json_unsigned(&json, "other_result_kept", action_copier_count(actions, ACTION_DIFFERS));
        json_unsigned(&json, "incomplete", action_copier_count(actions, ACTION_INCOMPLETE));
        json_unsigned(&json, "failed",
                      action_copier_count(actions, ACTION_FAILED) +
                          action_copier_count(actions, ACTION_ABANDONED));
        json_close_object(&json);
    }
    json_close_object(&json);
    json_end(&json);
}

/* Everything that was asked for is there, or was deleted on purpose. */
static enum cli_exit exit_of(const struct replication *replication)
{
    const struct copier_counts *counts = copier_counts(replication->copier);
    const struct action_copier *actions = replication->action_copier;
    const uint64_t incomplete =
        actions != NULL ? action_copier_count(actions, ACTION_INCOMPLETE) : 0;
    const uint64_t failed = counts->failed + replication->unreadable -
                            replication->unreadable_gone +
                            (actions != NULL ? action_copier_count(actions, ACTION_FAILED) : 0);
    if (failed > 0) {
        const enum status_code code = copier_first_failed(replication->copier);
        return counts->failed > 0 &&
                       (code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED)
                   ? CLI_EXIT_UNAVAILABLE
                   : CLI_EXIT_FAILED;
    }
    /* With --all a blob that is gone was evicted while this ran: nothing of what the source has is missing. */
    const uint64_t gone = replication->cli->all ? 0 : counts->gone;
    return gone + replication->unreadable_gone + incomplete > 0 ? CLI_EXIT_NOT_FOUND : CLI_EXIT_OK;
}

static enum cli_exit run_compare(struct cli *cli)
{
    struct comparison comparison = {.cli = cli};
    struct capabilities source_capabilities, destination_capabilities;
    struct status status = {0};
    cli_progress_init(&comparison.progress, cli, "replicate");
    const bool ok = open_both(cli, &comparison.destination, &source_capabilities,
                              &destination_capabilities, &status) &&
                    compare(&comparison, &status);
    cli_progress_clear(&comparison.progress);
    const uint64_t actions = comparison.actions == NULL
                                 ? 0
                                 : action_copier_count(comparison.actions, ACTION_ABSENT) +
                                       action_copier_count(comparison.actions, ACTION_DIFFERS);
    enum cli_exit result = CLI_EXIT_OK;
    if (!ok)
        result = tell_failure(cli, "replicate --compare", &status);
    else if (comparison.missing + comparison.missing_deleted + comparison.extra_count +
                 comparison.extra_deleted + actions >
             0)
        result = CLI_EXIT_DIFFERENT;
    if (ok && comparison.actions != NULL &&
        action_copier_count(comparison.actions, ACTION_FAILED) > 0)
        result = CLI_EXIT_FAILED;
    action_copier_free(comparison.actions);
    client_close(comparison.destination);
    digest_map_destroy(&comparison.forgotten[0]);
    digest_map_destroy(&comparison.forgotten[1]);
    digest_map_destroy(&comparison.told);
    free(comparison.page.digests);
    free(comparison.extra.digests);
    return result;
}

/*
 * The destination's log first: what was deleted there is known when something of the source is found
 * to be missing there. What only the destination has waits for the log of the source.
 */
static bool compare(struct comparison *comparison, struct status *status)
{
    struct cli *cli = comparison->cli;
    const struct action_copier_observer observer = {
        .problem = compare_problem, .ended = compared_action, .argument = comparison};
    struct status failure = {0};
    comparison->asked = cli->client;
    comparison->forgotten_now = &comparison->forgotten[1];
    comparison->lists_destination = compare_log(comparison, comparison->destination, &failure);
    if (!comparison->lists_destination && failure.code != STATUS_UNIMPLEMENTED) {
        *status = failure;
        return false;
    }
    if (cli->action_results && !action_copier_new(comparison->destination, ACTION_COPIER_COMPARE,
                                                  &observer, &comparison->actions, status))
        return false;
    json_init(&comparison->json, cli->out);
    if (cli->json) {
        json_open_object(&comparison->json, NULL);
        json_open_array(&comparison->json, "differences");
    }
    comparison->reads_source = true;
    comparison->asked = comparison->destination;
    comparison->forgotten_now = &comparison->forgotten[0];
    const bool ok = compare_log(comparison, cli->client, status) && tell_extra(comparison, status);
    /* Also after a failure: calls are in flight. */
    failure = (struct status){0};
    const bool actions_ok =
        comparison->actions == NULL || action_copier_finish(comparison->actions, &failure);
    if (ok && !actions_ok)
        *status = failure;
    if (cli->json || (ok && actions_ok))
        print_compared(comparison);
    return ok && actions_ok;
}

static bool compare_log(struct comparison *comparison, struct client *client, struct status *status)
{
    const struct log_reader reader = {.take = compare_record, .argument = comparison};
    const bool ok = replication_read_log(client, FEED_LANE_SMALL, &reader, status) &&
                    replication_read_log(client, FEED_LANE_LARGE, &reader, status) &&
                    compare_page(comparison, status);
    if (!ok)
        status_prefix(status, "%s", client_target(client));
    return ok;
}

static bool compare_record(void *argument, const struct feed_record *record, struct status *status)
{
    struct comparison *comparison = argument;
    bool is_new;
    if (record->kind == FEED_ACTION) {
        if (comparison->actions == NULL || !comparison->reads_source ||
            !bytes_equal_string(record->instance, comparison->cli->instance))
            return true;
        return action_copier_add(comparison->actions, &record->digest, record->result, status);
    }
    if (record->kind == FEED_FORGET) {
        return record->forgotten_kind == FEED_ACTION ||
               (comparison->forgotten_now->count < REPLICATION_FORGOTTEN_MAX &&
                digest_map_insert(comparison->forgotten_now, &record->digest, &is_new) != NULL) ||
               status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for so many blobs that were deleted");
    }
    return list_add(&comparison->page, &record->digest, COMPARE_PAGE, status) &&
           (comparison->page.count < COMPARE_PAGE || compare_page(comparison, status));
}

/* Asks the other side for what has been read of this one. */
static bool compare_page(struct comparison *comparison, struct status *status)
{
    struct digest_list *page = &comparison->page;
    bool *missing = calloc(page->count + 1, sizeof(*missing));
    if (missing == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu answers",
                           page->count);
    bool ok = cas_find_missing(comparison->asked, page->digests, missing, page->count, status);
    if (!ok)
        status_prefix(status, "%s", client_target(comparison->asked));
    for (size_t i = 0; ok && i < page->count; i++) {
        if (!missing[i])
            continue;
        ok = comparison->reads_source
                 ? tell_missing(comparison, &page->digests[i], status)
                 : list_add(&comparison->extra, &page->digests[i], EXTRA_MAX, status);
    }
    comparison->looked_at += page->count;
    page->count = 0;
    free(missing);
    if (cli_progress_due(&comparison->progress)) {
        const struct cli_step step = {.doing = "comparing", .items_done = comparison->looked_at};
        cli_progress_show(&comparison->progress, &step);
    }
    return ok;
}

static bool tell_missing(struct comparison *comparison,
                         const struct digest *digest,
                         struct status *status)
{
    bool is_new;
    if (digest_map_insert(&comparison->told, digest, &is_new) == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for so many differences");
    if (!is_new)
        return true;
    const bool deleted = digest_map_find(&comparison->forgotten[1], digest) != NULL;
    *(deleted ? &comparison->missing_deleted : &comparison->missing) += 1;
    print_difference(comparison, deleted ? "deleted-at-destination" : "not-at-destination", digest);
    return true;
}

static bool tell_extra(struct comparison *comparison, struct status *status)
{
    for (size_t i = 0; i < comparison->extra.count; i++) {
        const struct digest *digest = &comparison->extra.digests[i];
        bool is_new;
        if (digest_map_insert(&comparison->told, digest, &is_new) == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                               "no memory for so many differences");
        if (!is_new)
            continue;
        const bool deleted = digest_map_find(&comparison->forgotten[0], digest) != NULL;
        *(deleted ? &comparison->extra_deleted : &comparison->extra_count) += 1;
        print_difference(comparison, deleted ? "deleted-at-source" : "not-at-source", digest);
    }
    return true;
}

static void compared_action(void *argument,
                            const struct digest *action,
                            enum action_outcome outcome)
{
    struct comparison *comparison = argument;
    if (outcome == ACTION_ABSENT)
        print_difference(comparison, "action-not-at-destination", action);
    else if (outcome == ACTION_DIFFERS)
        print_difference(comparison, "action-differs", action);
}

static void compare_problem(void *argument, const struct status *problem)
{
    struct comparison *comparison = argument;
    cli_progress_say(&comparison->progress, "problem", problem);
}

static void print_difference(struct comparison *comparison,
                             const char *what,
                             const struct digest *digest)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    cli_progress_clear(&comparison->progress);
    if (!comparison->cli->json) {
        fprintf(comparison->cli->out, "%s %s\n", what, digest_text(digest, text));
        return;
    }
    json_open_object(&comparison->json, NULL);
    json_string(&comparison->json, "what", what);
    json_digest(&comparison->json, "digest", digest);
    json_close_object(&comparison->json);
}

static void print_compared(struct comparison *comparison)
{
    const struct action_copier *actions = comparison->actions;
    const uint64_t actions_absent =
        actions != NULL ? action_copier_count(actions, ACTION_ABSENT) : 0;
    const uint64_t actions_differ =
        actions != NULL ? action_copier_count(actions, ACTION_DIFFERS) : 0;
    cli_progress_clear(&comparison->progress);
    if (comparison->cli->json) {
        struct json *json = &comparison->json;
        json_close_array(json);
        json_bool(json, "destination_lists_what_it_has", comparison->lists_destination);
        json_unsigned(json, "not_at_destination", comparison->missing);
        json_unsigned(json, "deleted_at_destination", comparison->missing_deleted);
        json_unsigned(json, "not_at_source", comparison->extra_count);
        json_unsigned(json, "deleted_at_source", comparison->extra_deleted);
        json_unsigned(json, "actions_not_at_destination", actions_absent);
        json_unsigned(json, "actions_that_differ", actions_differ);
        json_close_object(json);
        json_end(json);
        return;
    }
    FILE *to = comparison->cli->messages;
    fprintf(to,
            "varve: replicate --compare: %llu not at the destination (never arrived there, or "
            "evicted), %llu deleted there; ",
            (unsigned long long)comparison->missing,
            (unsigned long long)comparison->missing_deleted);
    if (comparison->lists_destination)
        fprintf(to, "%llu not at the source (never arrived there, or evicted), %llu deleted there",
                (unsigned long long)comparison->extra_count,
                (unsigned long long)comparison->extra_deleted);
    else
        fputs("the destination cannot tell what else it has", to);
    if (actions != NULL)
        fprintf(to, "; action results: %llu not at the destination, %llu that differ",
                (unsigned long long)actions_absent, (unsigned long long)actions_differ);
    fputc('\n', to);
}

static bool list_add(struct digest_list *list,
                     const struct digest *digest,
                     size_t most,
                     struct status *status)
{
    if (list->count == most)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "more than %zu digests", most);
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 256 : list->capacity * 2;
        struct digest *digests = realloc(list->digests, capacity * sizeof(*digests));
        if (digests == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu digests",
                               capacity);
        list->digests = digests;
        list->capacity = capacity;
    }
    list->digests[list->count++] = *digest;
    return true;
}
