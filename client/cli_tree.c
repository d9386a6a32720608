/* SPDX-License-Identifier: Apache-2.0 */
/* varve push, pull, ls, cat, diff: directory trees. */
#include <stdlib.h>
#include <sys/stat.h>

#include "client/cas.h"
#include "client/cli.h"
#include "client/cli_progress.h"
#include "client/file_source.h"
#include "client/json.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/tree_source.h"

/* One directory on the way of ls -r and diff. */
struct visit {
    struct visit *below; /* the one to go on with afterwards */
    char *path;          /* owned; "" is the root */
    struct digest digest, other;
};

struct tree_listing {
    struct cli *cli;
    struct tree_source *source;
    struct json json;
};

/* One side of a diff. */
struct side {
    struct tree_source *source; /* owned */
    struct digest root;
};

struct tree_diff {
    struct cli *cli;
    struct side sides[2];
    struct json json;
    struct visit *top; /* owned, as all below it */
    uint64_t changes;
};

static bool get_capabilities(const struct cli *cli,
                             struct capabilities *capabilities,
                             struct status *status);
static void push_problem(void *argument, const struct status *problem);
static void push_skipped(void *argument, const struct status *what);
static void push_progress(void *argument, const struct push_counts *counts);
static void print_pushed(const struct cli *cli,
                         const struct digest *root,
                         const struct push_counts *counts);
static void pull_problem(void *argument, const struct status *problem);
static void pull_progress(void *argument, const struct pull_counts *counts);
static void print_pulled(const struct cli *cli, const struct pull_counts *counts);
static bool list(struct tree_listing *listing,
                 const struct digest *root,
                 const char *path,
                 struct status *status);
static bool list_directories(struct tree_listing *listing,
                             const struct digest *digest,
                             struct status *status);
static void print_node(struct tree_listing *listing,
                       const char *path,
                       const struct directory_node *node);
static bool cat_one(struct cli *cli,
                    struct tree_source *source,
                    const struct digest *root,
                    const char *path,
                    struct status *status);
static bool open_side(struct tree_diff *diff,
                      size_t number,
                      const char *argument,
                      struct status *status);
static void diff_problem(void *argument, const struct status *problem);
static bool diff_all(struct tree_diff *diff, struct status *status);
static bool diff_directories(struct tree_diff *diff,
                             const struct visit *visit,
                             struct status *status);
static bool diff_nodes(struct tree_diff *diff,
                       const char *path,
                       const struct directory_node *from,
                       const struct directory_node *to,
                       struct status *status);
static const char *change_of(const struct directory_node *from, const struct directory_node *to);
static void print_change(struct tree_diff *diff, const char *path, const char *change);
static bool visit_push(struct visit **top,
                       char *path,
                       const struct digest *digest,
                       const struct digest *other,
                       struct status *status);
static struct visit *visit_pop(struct visit **top);
static void visit_free(struct visit *visit);
static char *join(const char *path, const char *name, struct status *status);
static enum cli_exit failed(const struct cli *cli, const char *action, const struct status *status);

static bool get_capabilities(const struct cli *cli,
                             struct capabilities *capabilities,
                             struct status *status)
{
    return capabilities_get(cli->client, capabilities, status) &&
           capabilities_check_function(capabilities, status);
}

enum cli_exit cli_push(struct cli *cli)
{
    struct status status = {0};
    struct capabilities capabilities;
    struct digest root;
    struct push_counts counts = {0};
    struct push_options options = push_options_default();
    options.tree = cli->tree_options;
    if (cli->jobs > 0) {
        options.streams_in_flight_max = cli->jobs;
        options.batches_in_flight_max =
            cli->jobs < options.batches_in_flight_max ? cli->jobs : options.batches_in_flight_max;
    }
    struct cli_progress progress;
    cli_progress_init(&progress, cli, "push");
    const struct push_observer observer = {.problem = push_problem,
                                           .skipped = push_skipped,
                                           .progress = push_progress,
                                           .argument = &progress};
    const bool ok = get_capabilities(cli, &capabilities, &status) &&
                    push_directory(cli->client, &capabilities, cli->arguments[0], &options,
                                   &observer, &root, &counts, &status);
    cli_progress_clear(&progress);
    if (!ok)
        return failed(cli, "push", &status);
    print_pushed(cli, &root, &counts);
    return counts.tree.skipped_unreadable > 0 ? CLI_EXIT_SKIPPED : CLI_EXIT_OK;
}

static void push_problem(void *argument, const struct status *problem)
{
    cli_progress_say(argument, "problem", problem);
}

static void push_skipped(void *argument, const struct status *what)
{
    cli_progress_say(argument, "skipped", what);
}

static void push_progress(void *argument, const struct push_counts *counts)
{
    struct cli_progress *progress = argument;
    if (!cli_progress_due(progress))
        return;
    const struct uploader_counts *blobs = &counts->blobs;
    struct cli_step step = {.doing = "reading",
                            .items_done = counts->tree.files,
                            .bytes_done = counts->tree.file_bytes,
                            .moved_bytes = blobs->sent_bytes};
    if (counts->walked)
        step = (struct cli_step){
            .doing = "uploading",
            .items_done = blobs->present + blobs->uploaded + blobs->failed,
            .items = blobs->blobs,
            .bytes_done = blobs->present_bytes + blobs->sent_bytes < blobs->blob_bytes
                              ? blobs->present_bytes + blobs->sent_bytes
                              : blobs->blob_bytes,
            .bytes = blobs->blob_bytes,
            .moved_bytes = blobs->sent_bytes,
        };
    cli_progress_show(progress, &step);
}

static void print_pushed(const struct cli *cli,
                         const struct digest *root,
                         const struct push_counts *counts)
{
    const struct uploader_counts *blobs = &counts->blobs;
    if (!cli->json) {
        fprintf(cli->messages,
                "varve: push: %llu files, %llu directories, %llu links; %llu blobs, %llu there, "
                "%llu uploaded (%.1f MiB) by %llu batches and %llu streams\n",
                (unsigned long long)counts->tree.files,
                (unsigned long long)counts->tree.directories,
                (unsigned long long)counts->tree.symlinks, (unsigned long long)blobs->blobs,
                (unsigned long long)blobs->present, (unsigned long long)blobs->uploaded,
                (double)blobs->uploaded_bytes / (double)MIB, (unsigned long long)blobs->batches,
                (unsigned long long)blobs->streams);
        cli_print_digest(cli, root);
        return;
    }
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_digest(&json, "root", root);
    json_unsigned(&json, "files", counts->tree.files);
    json_unsigned(&json, "directories", counts->tree.directories);
    json_unsigned(&json, "symlinks", counts->tree.symlinks);
    json_unsigned(&json, "skipped_special", counts->tree.skipped_special);
    json_unsigned(&json, "skipped_unreadable", counts->tree.skipped_unreadable);
    json_unsigned(&json, "blobs", blobs->blobs);
    json_unsigned(&json, "blob_bytes", blobs->blob_bytes);
    json_unsigned(&json, "present", blobs->present);
    json_unsigned(&json, "uploaded", blobs->uploaded);
    json_unsigned(&json, "uploaded_bytes", blobs->uploaded_bytes);
    json_unsigned(&json, "pages", blobs->pages);
    json_unsigned(&json, "batches", blobs->batches);
    json_unsigned(&json, "streams", blobs->streams);
    json_close_object(&json);
    json_end(&json);
}

enum cli_exit cli_pull(struct cli *cli)
{
    struct status status = {0};
    struct capabilities capabilities;
    struct digest root;
    struct pull_counts counts = {0};
    if (!digest_parse_text(bytes_of_string(cli->arguments[0]), &root, &status))
        return cli_usage_error(cli, &status);
    struct pull_options options = pull_options_default();
    options.unescape_names = (cli->tree_options & TREE_ESCAPE_NAMES) != 0;
    if (cli->jobs > 0) {
        options.streams_in_flight_max = cli->jobs;
        options.batches_in_flight_max =
            cli->jobs < options.batches_in_flight_max ? cli->jobs : options.batches_in_flight_max;
    }
    struct cli_progress progress;
    cli_progress_init(&progress, cli, "pull");
    const struct pull_observer observer = {
        .problem = pull_problem, .progress = pull_progress, .argument = &progress};
    bool ok = get_capabilities(cli, &capabilities, &status);
    if (ok && !pull_directory(cli->client, &capabilities, &root, cli->arguments[1], &options,
                              &observer, &counts, &status))
        ok = false;
    cli_progress_clear(&progress);
    if (!ok) {
        /* A path of ours that is not there is no answer of the server's about a blob. */
        const enum cli_exit result = cli_failed(cli, "pull", &status);
        return result == CLI_EXIT_NOT_FOUND && counts.missing == 0 ? CLI_EXIT_FAILED : result;
    }
    print_pulled(cli, &counts);
    return CLI_EXIT_OK;
}

static void pull_problem(void *argument, const struct status *problem)
{
    cli_progress_say(argument, "problem", problem);
}

static void pull_progress(void *argument, const struct pull_counts *counts)
{
    struct cli_progress *progress = argument;
    if (!cli_progress_due(progress))
        return;
    struct cli_step step = {.doing = counts->all_known ? "fetching files" : "fetching",
                            .items_done = counts->files,
                            .bytes_done = counts->file_bytes,
                            .moved_bytes = counts->received_bytes};
    if (counts->all_known) {
        step.items = counts->files_known;
        step.bytes = counts->bytes_known;
    }
    cli_progress_show(progress, &step);
}

static void print_pulled(const struct cli *cli, const struct pull_counts *counts)
{
    if (!cli->json) {
        fprintf(cli->messages,
                "varve: pull: %llu files, %llu directories, %llu links; %.1f MiB by %llu batches "
                "and %llu streams\n",
                (unsigned long long)counts->files, (unsigned long long)counts->directories,
                (unsigned long long)counts->symlinks, (double)counts->received_bytes / (double)MIB,
                (unsigned long long)counts->batches, (unsigned long long)counts->streams);
        return;
    }
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_unsigned(&json, "files", counts->files);
    json_unsigned(&json, "directories", counts->directories);
    json_unsigned(&json, "symlinks", counts->symlinks);
    json_unsigned(&json, "file_bytes", counts->file_bytes);
    json_unsigned(&json, "received_bytes", counts->received_bytes);
    json_unsigned(&json, "batches", counts->batches);
    json_unsigned(&json, "streams", counts->streams);
    json_close_object(&json);
    json_end(&json);
}

enum cli_exit cli_ls(struct cli *cli)
{
    struct status status = {0};
    struct digest root;
    if (!digest_parse_text(bytes_of_string(cli->arguments[0]), &root, &status))
        return cli_usage_error(cli, &status);
    struct tree_listing listing = {.cli = cli};
    const bool ok =
        tree_source_of_server(cli->client, &listing.source, &status) &&
        list(&listing, &root, cli->argument_count > 1 ? cli->arguments[1] : "", &status);
    tree_source_free(listing.source);
    return ok ? CLI_EXIT_OK : cli_failed(cli, "ls", &status);
}

static bool list(struct tree_listing *listing,
                 const struct digest *root,
                 const char *path,
                 struct status *status)
{
    struct directory_node node;
    char *target = NULL;
    bool ok = tree_source_find(listing->source, root, path, &node, &target, status);
    if (ok) {
        json_init(&listing->json, listing->cli->out);
        if (listing->cli->json)
            json_open_array(&listing->json, NULL);
        if (node.kind == DIRECTORY_NODE_DIRECTORY)
            ok = list_directories(listing, &node.digest, status);
        else
            print_node(listing, path, &node);
        if (listing->cli->json) {
            json_close_array(&listing->json);
            json_end(&listing->json);
        }
    }
    free(target);
    return ok;
}

/* With -r each directory before what is in it, siblings in order. */
static bool list_directories(struct tree_listing *listing,
                             const struct digest *digest,
                             struct status *status)
{
    struct visit *top = NULL;
    char *start = join("", "", status);
    bool ok = start != NULL && visit_push(&top, start, digest, digest, status);
    for (struct visit *visit = visit_pop(&top); visit != NULL; visit = visit_pop(&top)) {
        struct directory directory = {0};
        ok = ok && tree_source_read(listing->source, &visit->digest, 1, &directory, status);
        for (size_t i = 0; ok && i < directory.count; i++) {
            const struct directory_node *node = &directory.nodes[i];
            char *path = join(visit->path, node->name, status);
            ok = path != NULL;
            if (ok)
                print_node(listing, path, node);
            free(path);
        }
        for (size_t i = directory.count; ok && listing->cli->recursive && i > 0; i--) {
            const struct directory_node *node = &directory.nodes[i - 1];
            if (node->kind != DIRECTORY_NODE_DIRECTORY)
                continue;
            char *path = join(visit->path, node->name, status);
            ok = path != NULL && visit_push(&top, path, &node->digest, &node->digest, status);
        }
        directory_destroy(&directory);
        visit_free(visit);
    }
    return ok;
}

static void print_node(struct tree_listing *listing,
                       const char *path,
                       const struct directory_node *node)
{
    static const char *const kinds[] = {[DIRECTORY_NODE_FILE] = "file",
                                        [DIRECTORY_NODE_DIRECTORY] = "directory",
                                        [DIRECTORY_NODE_SYMLINK] = "symlink"};
    const bool link = node->kind == DIRECTORY_NODE_SYMLINK;
    if (listing->cli->json) {
        struct json *json = &listing->json;
        json_open_object(json, NULL);
        json_string(json, "path", path);
        json_string(json, "kind", kinds[node->kind]);
        if (link)
            json_string(json, "target", node->target);
        else
            json_digest(json, "digest", &node->digest);
        if (node->kind == DIRECTORY_NODE_FILE)
            json_bool(json, "executable", node->executable);
        json_close_object(json);
        return;
    }
    char name[FILE_NAME_TEXT_BYTES * 4], target[FILE_NAME_TEXT_BYTES], text[DIGEST_TEXT_BYTES_MAX];
    file_name_text(path, name, sizeof(name));
    if (link)
        fprintf(listing->cli->out, "link  -  %s -> %s\n", name,
                file_name_text(node->target, target, sizeof(target)));
    else
        fprintf(listing->cli->out, "%s  %s  %s%s\n",
                node->kind == DIRECTORY_NODE_DIRECTORY ? "dir "
                : node->executable                     ? "exec"
                                                       : "file",
                digest_text(&node->digest, text), name,
                node->kind == DIRECTORY_NODE_DIRECTORY ? "/" : "");
}

enum cli_exit cli_cat(struct cli *cli)
{
    struct status status = {0};
    struct digest root;
    if (!digest_parse_text(bytes_of_string(cli->arguments[0]), &root, &status))
        return cli_usage_error(cli, &status);
    struct tree_source *source = NULL;
    bool ok = tree_source_of_server(cli->client, &source, &status);
    for (size_t i = 1; ok && i < cli->argument_count; i++)
        ok = cat_one(cli, source, &root, cli->arguments[i], &status);
    tree_source_free(source);
    return ok ? CLI_EXIT_OK : cli_failed(cli, "cat", &status);
}

static bool cat_one(struct cli *cli,
                    struct tree_source *source,
                    const struct digest *root,
                    const char *path,
                    struct status *status)
{
    struct directory_node node;
    char *target = NULL;
    char text[FILE_NAME_TEXT_BYTES];
    bool ok = tree_source_find(source, root, path, &node, &target, status);
    if (ok && node.kind != DIRECTORY_NODE_FILE)
        ok = status_fail(
            status, STATUS_INVALID_ARGUMENT, "%s: %s", file_name_text(path, text, sizeof(text)),
            node.kind == DIRECTORY_NODE_SYMLINK ? "a link" : "a directory; ls lists it");
    if (ok)
        ok = cas_read_fd(cli->client, &node.digest, fileno(cli->out), status);
    free(target);
    return ok;
}

/* Each side: HASH/SIZE, or a directory on this machine. */
enum cli_exit cli_diff(struct cli *cli)
{
    struct status status = {0};
    struct tree_diff diff = {.cli = cli};
    const bool ok = open_side(&diff, 0, cli->arguments[0], &status) &&
                    open_side(&diff, 1, cli->arguments[1], &status) && diff_all(&diff, &status);
    for (size_t i = 0; i < ARRAY_LENGTH(diff.sides); i++)
        tree_source_free(diff.sides[i].source);
    if (!ok)
        return failed(cli, "diff", &status);
    return diff.changes > 0 ? CLI_EXIT_DIFFERENT : CLI_EXIT_OK;
}

static bool open_side(struct tree_diff *diff,
                      size_t number,
                      const char *argument,
                      struct status *status)
{
    struct side *side = &diff->sides[number];
    struct status no_digest = {0};
    struct stat stat_of_argument;
    if (digest_parse_text(bytes_of_string(argument), &side->root, &no_digest))
        return tree_source_of_server(diff->cli->client, &side->source, status);
    if (stat(argument, &stat_of_argument) != 0) {
        char text[FILE_NAME_TEXT_BYTES];
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%s: neither HASH/SIZE nor a directory here",
                           file_name_text(argument, text, sizeof(text)));
    }
    return tree_source_of_directory(argument, diff->cli->tree_options, diff_problem, diff,
                                    &side->source, &side->root, status);
}

static void diff_problem(void *argument, const struct status *problem)
{
    const struct tree_diff *diff = argument;
    fprintf(diff->cli->messages, "varve: diff: %s\n", problem->message);
}

static bool diff_all(struct tree_diff *diff, struct status *status)
{
    json_init(&diff->json, diff->cli->out);
    if (diff->cli->json)
        json_open_array(&diff->json, NULL);
    char *start = join("", "", status);
    bool ok = start != NULL &&
              visit_push(&diff->top, start, &diff->sides[0].root, &diff->sides[1].root, status);
    for (struct visit *visit = visit_pop(&diff->top); visit != NULL;
         visit = visit_pop(&diff->top)) {
        ok = ok &&
             (digest_equal(&visit->digest, &visit->other) || diff_directories(diff, visit, status));
        visit_free(visit);
    }
    if (diff->cli->json) {
        json_close_array(&diff->json);
        json_end(&diff->json);
    }
    return ok;
}

/* Both lists are sorted by name. */
static bool diff_directories(struct tree_diff *diff,
                             const struct visit *visit,
                             struct status *status)
{
    struct directory from = {0}, to = {0};
    bool ok = tree_source_read(diff->sides[0].source, &visit->digest, 1, &from, status) &&
              tree_source_read(diff->sides[1].source, &visit->other, 1, &to, status);
    for (size_t i = 0, j = 0; ok && (i < from.count || j < to.count);) {
        const int order = i == from.count ? 1
                          : j == to.count ? -1
                                          : strcmp(from.nodes[i].name, to.nodes[j].name);
        ok = diff_nodes(diff, visit->path, order <= 0 ? &from.nodes[i] : NULL,
                        order >= 0 ? &to.nodes[j] : NULL, status);
        i += order <= 0;
        j += order >= 0;
    }
    directory_destroy(&from);
    directory_destroy(&to);
    return ok;
}

/* Either may be NULL: it is only on the other side. */
static bool diff_nodes(struct tree_diff *diff,
                       const char *path,
                       const struct directory_node *from,
                       const struct directory_node *to,
                       struct status *status)
{
    const struct directory_node *named = from != NULL ? from : to;
    ASSERT(named != NULL);
    char *joined = join(path, named->name, status);
    if (joined == NULL)
        return false;
    if (from != NULL && to != NULL && from->kind == DIRECTORY_NODE_DIRECTORY &&
        to->kind == DIRECTORY_NODE_DIRECTORY)
        return visit_push(&diff->top, joined, &from->digest, &to->digest, status);
    const char *change = change_of(from, to);
    if (change != NULL)
        print_change(diff, joined, change);
    free(joined);
    return true;
}

/* NULL: they are the same. */
static const char *change_of(const struct directory_node *from, const struct directory_node *to)
{
    if (from == NULL)
        return "added";
    if (to == NULL)
        return "removed";
    if (from->kind != to->kind)
        return "kind";
    if (from->kind == DIRECTORY_NODE_SYMLINK)
        return strcmp(from->target, to->target) == 0 ? NULL : "target";
    if (!digest_equal(&from->digest, &to->digest))
        return "content";
    return from->executable == to->executable ? NULL : "executable";
}

static void print_change(struct tree_diff *diff, const char *path, const char *change)
{
    diff->changes++;
    if (diff->cli->json) {
        json_open_object(&diff->json, NULL);
        json_string(&diff->json, "path", path);
        json_string(&diff->json, "change", change);
        json_close_object(&diff->json);
        return;
    }
    char text[FILE_NAME_TEXT_BYTES * 4];
    fprintf(diff->cli->out, "%-10s  %s\n", change, file_name_text(path, text, sizeof(text)));
}

/* path: handed over, also on false. */
static bool visit_push(struct visit **top,
                       char *path,
                       const struct digest *digest,
                       const struct digest *other,
                       struct status *status)
{
    struct visit *visit = malloc(sizeof(*visit));
    if (visit == NULL) {
        free(path);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the tree");
    }
    *visit = (struct visit){.below = *top, .path = path, .digest = *digest, .other = *other};
    *top = visit;
    return true;
}

static struct visit *visit_pop(struct visit **top)
{
    struct visit *visit = *top;
    if (visit != NULL)
        *top = visit->below;
    return visit;
}

static void visit_free(struct visit *visit)
{
    free(visit->path);
    free(visit);
}

/* From malloc(). */
static char *join(const char *path, const char *name, struct status *status)
{
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", path, path[0] != '\0' ? "/" : "", name) >= 0)
        return joined;
    status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a path");
    return NULL;
}

/* Where NOT_FOUND can only be a file of ours. */
static enum cli_exit failed(const struct cli *cli, const char *action, const struct status *status)
{
    const enum cli_exit result = cli_failed(cli, action, status);
    return result == CLI_EXIT_NOT_FOUND && strcmp(action, "push") == 0 ? CLI_EXIT_FAILED : result;
}
