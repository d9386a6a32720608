/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/directory.h"
#include "client/downloader.h"
#include "client/file_source.h"
#include "client/name_escape.h"
#include "client/tree_writer.h"

/* Blobs that are asked for and have not come. */
enum { LIVE_MAX = 20000 };
/* Directory messages that are asked for or worked off; one more when nothing else moves. */
#define DIRECTORY_BYTES_HELD_MAX (UINT64_C(32) << 20)

/* A file or a directory that is on its way. */
struct item {
    struct pull *pull;
    struct tree_place *place; /* a reference: FILE: where it goes. DIRECTORY: itself */
    char *name;               /* FILE: owned */
    struct digest digest;
    bool executable;
    struct tree_file file;
    uint8_t *message; /* DIRECTORY: owned; what has come of it */
    size_t length;
};

/* A directory whose nodes are being made. */
struct expansion {
    struct expansion *below; /* the one to go on with afterwards */
    struct tree_place *place;
    struct directory directory; /* owned */
    size_t next;
    uint64_t message_bytes;
};

/* All of one thread: the one that pulls. */
struct pull {
    const struct pull_options *options;
    const struct pull_observer *observer;
    struct pull_counts *counts;
    struct downloader *downloader; /* owned */
    struct tree_writer *writer;    /* owned */
    struct expansion *top;         /* owned, as all below it */
    uint64_t entries;
    uint64_t directory_bytes; /* held; see above */
    size_t directories_live;  /* asked for and not yet here */
    struct status failure;    /* ends it */
    struct status first_other;
};

static bool pull_all(struct pull *pull, const struct digest *root, struct status *status);
static void expand(struct pull *pull);
static bool may_go_on(const struct pull *pull, const struct directory_node *node);
static void expansion_pop(struct pull *pull);
static bool make_node(struct pull *pull,
                      struct tree_place *place,
                      const struct directory_node *node,
                      struct status *status);
static bool make_symlink(struct pull *pull,
                         struct tree_place *place,
                         const char *name,
                         const char *target,
                         struct status *status);
static bool fetch_directory(struct pull *pull,
                            struct tree_place *place,
                            const struct digest *digest,
                            struct status *status);
static bool fetch_file(struct pull *pull,
                       struct tree_place *place,
                       const char *name,
                       const struct directory_node *node,
                       struct status *status);
static bool begin_directory(void *argument, struct status *status);
static bool write_directory(void *argument, struct bytes bytes, struct status *status);
static void end_directory(void *argument, const struct status *result);
static bool add_expansion(struct pull *pull, struct item *item, struct status *status);
static bool begin_file(void *argument, struct status *status);
static bool write_file(void *argument, struct bytes bytes, struct status *status);
static void end_file(void *argument, const struct status *result);
static void item_free(struct item *item);
static void problem(struct pull *pull,
                    const struct tree_place *place,
                    const char *name,
                    const struct digest *digest,
                    const struct status *what);
static bool local(struct item *item, bool ok, struct status *status);
static void fail(struct pull *pull, const struct status *why);
static void progress(struct pull *pull);
static bool no_memory(struct status *status);

static const struct downloader_sink directory_sink = {.begin = begin_directory,
                                                      .write = write_directory,
                                                      .end = end_directory};
static const struct downloader_sink file_sink = {.begin = begin_file,
                                                 .write = write_file,
                                                 .end = end_file};

struct pull_options pull_options_default(void)
{
    return (struct pull_options){
        .batches_in_flight_max = DOWNLOADER_BATCHES_IN_FLIGHT_MAX,
        .streams_in_flight_max = DOWNLOADER_STREAMS_IN_FLIGHT_MAX,
    };
}

bool pull_directory(struct client *client,
                    const struct capabilities *capabilities,
                    const struct digest *root,
                    const char *path,
                    const struct pull_options *options,
                    const struct pull_observer *observer,
                    struct pull_counts *counts,
                    struct status *status)
{
    *counts = (struct pull_counts){0};
    const struct pull_options defaults = pull_options_default();
    struct pull pull = {
        .options = options != NULL ? options : &defaults, .observer = observer, .counts = counts};
    const struct downloader_config config = {
        .client = client,
        .capabilities = capabilities,
        .batches_in_flight_max = pull.options->batches_in_flight_max,
        .streams_in_flight_max = pull.options->streams_in_flight_max,
    };
    struct tree_place *place = NULL;
    bool ok = downloader_new(&config, &pull.downloader, status) &&
              tree_writer_open(path, &pull.writer, &place, status);
    if (ok) {
        counts->directories++;
        if (!fetch_directory(&pull, place, root, &pull.failure))
            ASSERT(pull.failure.code != STATUS_OK);
        ok = pull_all(&pull, root, status);
    }
    tree_place_unref(place);
    tree_writer_close(pull.writer);
    downloader_free(pull.downloader);
    return ok;
}

static bool pull_all(struct pull *pull, const struct digest *root, struct status *status)
{
    struct pull_counts *counts = pull->counts;
    while (pull->top != NULL || downloader_live(pull->downloader) > 0) {
        expand(pull);
        if (downloader_live(pull->downloader) > 0)
            downloader_run(pull->downloader, NS_PER_S);
        if (pull->failure.code == STATUS_OK)
            downloader_failed(pull->downloader, &pull->failure);
        progress(pull);
    }
    ASSERT(pull->directory_bytes == 0 && pull->directories_live == 0);
    const uint64_t absent = counts->missing + counts->failed;
    if (pull->failure.code != STATUS_OK) {
        *status = pull->failure;
        return false;
    }
    if (absent == 0)
        return true;
    char text[DIGEST_TEXT_BYTES_MAX];
    digest_text(root, text);
    if (counts->failed == 0)
        return status_fail(status, STATUS_NOT_FOUND, "%llu entries of %s are missing",
                           (unsigned long long)counts->missing, text);
    return status_fail(status, pull->first_other.code,
                       "%llu entries of %s could not be fetched, and %llu are missing",
                       (unsigned long long)counts->failed, text,
                       (unsigned long long)counts->missing);
}

/* Makes nodes of the directories that are here, as long as there is room for what they ask for. */
static void expand(struct pull *pull)
{
    while (pull->top != NULL) {
        struct expansion *top = pull->top;
        if (pull->failure.code != STATUS_OK || top->next == top->directory.count) {
            expansion_pop(pull);
            continue;
        }
        const struct directory_node *node = &top->directory.nodes[top->next];
        if (!may_go_on(pull, node))
            return;
        top->next++;
        struct status status = {0};
        if (++pull->entries > PULL_ENTRIES_MAX) {
            status_fail(&status, STATUS_OUT_OF_RANGE, "the tree has more than %llu entries",
                        (unsigned long long)PULL_ENTRIES_MAX);
            fail(pull, &status);
        } else if (!make_node(pull, top->place, node, &status)) {
            const bool has_digest = node->kind != DIRECTORY_NODE_SYMLINK;
            problem(pull, top->place, node->name, has_digest ? &node->digest : NULL, &status);
        }
        if (pull->entries % 256 == 0)
            progress(pull);
    }
}

static bool may_go_on(const struct pull *pull, const struct directory_node *node)
{
    const size_t live = downloader_live(pull->downloader);
    if (node->kind == DIRECTORY_NODE_DIRECTORY)
        return live == 0 || (live < LIVE_MAX && pull->directory_bytes <= DIRECTORY_BYTES_HELD_MAX);
    return live < LIVE_MAX;
}

static void expansion_pop(struct pull *pull)
{
    struct expansion *top = pull->top;
    pull->top = top->below;
    pull->directory_bytes -= top->message_bytes;
    tree_place_unref(top->place);
    directory_destroy(&top->directory);
    free(top);
}

static bool make_node(struct pull *pull,
                      struct tree_place *place,
                      const struct directory_node *node,
                      struct status *status)
{
    char *unescaped = NULL;
    if (pull->options->unescape_names && !name_unescape(node->name, &unescaped, status))
        return false;
    const char *name = unescaped != NULL ? unescaped : node->name;
    bool ok = true;
    /* What was checked before may be another name now. */
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strchr(name, '/') != NULL) {
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "its name leads out of the directory");
    } else if (node->kind == DIRECTORY_NODE_SYMLINK) {
        ok = make_symlink(pull, place, name, node->target, status);
    } else if (node->kind == DIRECTORY_NODE_FILE) {
        ok = fetch_file(pull, place, name, node, status);
    } else {
        struct tree_place *made;
        ok = tree_writer_directory(pull->writer, place, name, &made, status);
        if (ok) {
            pull->counts->directories++;
            ok = fetch_directory(pull, made, &node->digest, status);
            tree_place_unref(made);
        }
    }
    free(unescaped);
    return ok;
}

static bool make_symlink(struct pull *pull,
                         struct tree_place *place,
                         const char *name,
                         const char *target,
                         struct status *status)
{
    char *unescaped = NULL;
    if (pull->options->unescape_names && !name_unescape(target, &unescaped, status))
        return false;
    const bool ok = tree_writer_symlink(pull->writer, place, name,
                                        unescaped != NULL ? unescaped : target, status);
    free(unescaped);
    if (ok)
        pull->counts->symlinks++;
    return ok;
}

static bool fetch_directory(struct pull *pull,
                            struct tree_place *place,
                            const struct digest *digest,
                            struct status *status)
{
    if (digest_is_empty_blob(digest))
        return true;
    if ((uint64_t)digest->size_bytes > DIRECTORY_BYTES_MAX)
        return status_fail(status, STATUS_OUT_OF_RANGE, "a directory of more than %llu bytes",
                           (unsigned long long)DIRECTORY_BYTES_MAX);
    struct item *item = calloc(1, sizeof(*item));
    if (item == NULL)
        return no_memory(status);
    *item = (struct item){.pull = pull, .place = place, .digest = *digest};
    tree_place_ref(place);
    if (!downloader_add(pull->downloader, digest, &directory_sink, item, status)) {
        item_free(item);
        return false;
    }
    pull->directories_live++;
    pull->directory_bytes += (uint64_t)digest->size_bytes;
    return true;
}

static bool fetch_file(struct pull *pull,
                       struct tree_place *place,
                       const char *name,
                       const struct directory_node *node,
                       struct status *status)
{
    struct item *item = calloc(1, sizeof(*item));
    char *name_copy = strdup(name);
    if (item == NULL || name_copy == NULL) {
        free(item);
        free(name_copy);
        return no_memory(status);
    }
    *item = (struct item){.pull = pull,
                          .place = place,
                          .name = name_copy,
                          .digest = node->digest,
                          .executable = node->executable};
    tree_place_ref(place);
    pull->counts->files_known++;
    pull->counts->bytes_known += (uint64_t)node->digest.size_bytes;
    if (digest_is_empty_blob(&node->digest)) {
        struct status result = {0};
        if (!begin_file(item, &result))
            ASSERT(result.code != STATUS_OK);
        end_file(item, &result);
        return true;
    }
    if (downloader_add(pull->downloader, &node->digest, &file_sink, item, status))
        return true;
    item_free(item);
    return false;
}

static bool begin_directory(void *argument, struct status *status)
{
    struct item *item = argument;
    ASSERT(item->message == NULL);
    item->message = malloc((size_t)item->digest.size_bytes);
    return item->message != NULL || no_memory(status);
}

static bool write_directory(void *argument, struct bytes bytes, struct status *status)
{
    (void)status;
    struct item *item = argument;
    ASSERT(bytes.length <= (size_t)item->digest.size_bytes - item->length);
    memcpy(item->message + item->length, bytes.data, bytes.length);
    item->length += bytes.length;
    return true;
}

static void end_directory(void *argument, const struct status *result)
{
    struct item *item = argument;
    struct pull *pull = item->pull;
    struct status failure = *result;
    pull->directories_live--;
    if (failure.code != STATUS_OK || !add_expansion(pull, item, &failure)) {
        pull->directory_bytes -= (uint64_t)item->digest.size_bytes;
        problem(pull, item->place, NULL, &item->digest, &failure);
    }
    item_free(item);
}

static bool add_expansion(struct pull *pull, struct item *item, struct status *status)
{
    struct expansion *expansion = calloc(1, sizeof(*expansion));
    if (expansion == NULL)
        return no_memory(status);
    if (!directory_decode(bytes_of(item->message, item->length), &expansion->directory, status)) {
        free(expansion);
        return false;
    }
    expansion->place = item->place;
    item->place = NULL;
    expansion->message_bytes = (uint64_t)item->digest.size_bytes;
    expansion->below = pull->top;
    pull->top = expansion;
    return true;
}

static bool begin_file(void *argument, struct status *status)
{
    struct item *item = argument;
    const enum tree_file_kind kind = item->executable ? TREE_FILE_EXECUTABLE : TREE_FILE_PLAIN;
    return local(item, tree_writer_begin(item->pull->writer, kind, &item->file, status), status);
}

static bool write_file(void *argument, struct bytes bytes, struct status *status)
{
    struct item *item = argument;
    return local(item, tree_file_write(&item->file, bytes, status), status);
}

/* A disk that is full, or too few descriptors: what every other file would meet as well. */
static bool local(struct item *item, bool ok, struct status *status)
{
    if (ok || status->code != STATUS_RESOURCE_EXHAUSTED)
        return ok;
    char text[FILE_NAME_TEXT_BYTES];
    char *path = tree_place_path(item->place, item->name);
    if (path != NULL)
        status_prefix(status, "%s", file_name_text(path, text, sizeof(text)));
    free(path);
    fail(item->pull, status);
    return false;
}

static void end_file(void *argument, const struct status *result)
{
    struct item *item = argument;
    struct pull *pull = item->pull;
    struct status failure = *result;
    if (failure.code == STATUS_OK &&
        local(item,
              tree_writer_commit(pull->writer, &item->file, item->place, item->name, &failure),
              &failure)) {
        pull->counts->files++;
        pull->counts->file_bytes += (uint64_t)item->digest.size_bytes;
    } else {
        tree_writer_drop(pull->writer, &item->file);
        problem(pull, item->place, item->name, &item->digest, &failure);
    }
    item_free(item);
}

static void item_free(struct item *item)
{
    tree_place_unref(item->place);
    free(item->name);
    free(item->message);
    free(item);
}

/* digest: NULL for a link. After what ends it all, the rest is of no interest. */
static void problem(struct pull *pull,
                    const struct tree_place *place,
                    const char *name,
                    const struct digest *digest,
                    const struct status *what)
{
    if (pull->failure.code != STATUS_OK || downloader_failed(pull->downloader, &pull->failure))
        return;
    struct status said = *what;
    char text[FILE_NAME_TEXT_BYTES], digest_name[DIGEST_TEXT_BYTES_MAX] = "a link";
    char *path = tree_place_path(place, name);
    if (path == NULL || path[0] == '\0')
        snprintf(text, sizeof(text), ".");
    else
        file_name_text(path, text, sizeof(text));
    free(path);
    if (digest != NULL)
        digest_text(digest, digest_name);
    /* What is wrong on this side begins with the path already. */
    if (strncmp(said.message, text, strlen(text)) != 0)
        status_prefix(&said, "%s (%s)", text, digest_name);
    if (said.code == STATUS_NOT_FOUND) {
        pull->counts->missing++;
    } else {
        pull->counts->failed++;
        if (pull->first_other.code == STATUS_OK)
            pull->first_other = said;
    }
    pull->observer->problem(pull->observer->argument, &said);
}

static void fail(struct pull *pull, const struct status *why)
{
    if (pull->failure.code != STATUS_OK)
        return;
    pull->failure = *why;
    downloader_fail(pull->downloader, why);
}

static void progress(struct pull *pull)
{
    const struct downloader_counts *counts = downloader_counts(pull->downloader);
    pull->counts->received_bytes = counts->bytes;
    pull->counts->batches = counts->batches;
    pull->counts->streams = counts->streams;
    pull->counts->all_known = pull->directories_live == 0 && pull->top == NULL;
    pull->observer->progress(pull->observer->argument, pull->counts);
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the tree");
}
