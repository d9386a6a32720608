/* SPDX-License-Identifier: Apache-2.0 */
#include "client/push.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* All of one thread: the one that pushes. */
struct push {
    const struct push_options *options;   /* borrowed */
    const struct push_observer *observer; /* borrowed */
    struct push_counts *counts;           /* borrowed */
    struct uploader *uploader;            /* owned */
    int root_fd;                          /* owned; -1 when it cannot be opened */
    bool tree_broken;                     /* no root digest will come: nothing more is sent */
};

static bool push_all(struct push *push,
                     const char *path,
                     struct digest *root,
                     struct status *status);
static bool visit_directory(void *argument,
                            const struct digest *digest,
                            const char *path,
                            uint8_t *message,
                            struct status *status);
static bool visit_content(void *argument,
                          const struct digest *digest,
                          const char *path,
                          uint8_t *content,
                          struct status *status);
static bool visit_file(void *argument,
                       const struct digest *digest,
                       const char *path,
                       const struct stat *stat,
                       struct status *status);
static void visit_problem(void *argument, const struct status *problem);
static void visit_skipped(void *argument, const struct status *what);
static void tick(void *argument);
static bool open_file(void *argument, const char *path, int *fd, struct status *status);
static void blob_problem(void *argument, const struct status *problem);
static void progress(void *argument);

struct push_options push_options_default(void)
{
    const struct uploader_config config = uploader_config_default();
    return (struct push_options){
        .limits = config.limits,
        .batches_in_flight_max = config.batches_in_flight_max,
        .streams_in_flight_max = config.streams_in_flight_max,
    };
}

bool push_directory(struct client *client,
                    const struct capabilities *capabilities,
                    const char *path,
                    const struct push_options *options,
                    const struct push_observer *observer,
                    struct digest *root,
                    struct push_counts *counts,
                    struct status *status)
{
    *counts = (struct push_counts){0};
    const struct push_options defaults = push_options_default();
    struct push push = {.options = options != NULL ? options : &defaults,
                        .observer = observer,
                        .counts = counts,
                        .root_fd = -1};
    struct uploader_config config = uploader_config_default();
    config.client = client;
    config.capabilities = capabilities;
    config.limits = push.options->limits;
    config.batches_in_flight_max = push.options->batches_in_flight_max;
    config.streams_in_flight_max = push.options->streams_in_flight_max;
    config.observer = (struct uploader_observer){
        .problem = blob_problem, .progress = progress, .argument = &push};
    config.open_file = open_file;
    config.open_argument = &push;
    if (!uploader_new(&config, &push.uploader, status))
        return false;
    /* tree_walk() says what is wrong with it. */
    push.root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const bool ok = push_all(&push, path, root, status);
    counts->blobs = *uploader_counts(push.uploader);
    uploader_free(push.uploader);
    if (push.root_fd >= 0)
        close(push.root_fd);
    return ok;
}

static bool push_all(struct push *push,
                     const char *path,
                     struct digest *root,
                     struct status *status)
{
    const struct tree_visitor visitor = {.directory = visit_directory,
                                         .content = visit_content,
                                         .file = visit_file,
                                         .problem = visit_problem,
                                         .skipped = visit_skipped,
                                         .tick = tick,
                                         .argument = push};
    struct status failure = {0};
    const bool walked =
        tree_walk(path, push->options->tree, &visitor, root, &push->counts->tree, &failure);
    push->counts->walked = true;
    if (!walked)
        uploader_fail(push->uploader, &failure);
    return uploader_finish(push->uploader, status);
}

static bool visit_directory(void *argument,
                            const struct digest *digest,
                            const char *path,
                            uint8_t *message,
                            struct status *status)
{
    struct push *push = argument;
    if (!push->tree_broken)
        return uploader_add_content(push->uploader, digest, message, path[0] != '\0' ? path : ".",
                                    status);
    free(message);
    return true;
}

static bool visit_content(void *argument,
                          const struct digest *digest,
                          const char *path,
                          uint8_t *content,
                          struct status *status)
{
    struct push *push = argument;
    if (!push->tree_broken)
        return uploader_add_content(push->uploader, digest, content, path, status);
    free(content);
    return true;
}

static bool visit_file(void *argument,
                       const struct digest *digest,
                       const char *path,
                       const struct stat *stat,
                       struct status *status)
{
    struct push *push = argument;
    return push->tree_broken || uploader_add_file(push->uploader, digest, path, stat, status);
}

static void visit_problem(void *argument, const struct status *problem)
{
    struct push *push = argument;
    push->tree_broken = true;
    push->observer->problem(push->observer->argument, problem);
}

static void visit_skipped(void *argument, const struct status *what)
{
    const struct push *push = argument;
    if (push->observer->skipped != NULL)
        push->observer->skipped(push->observer->argument, what);
}

/* While a large file is hashed, calls that have ended make way for others. */
static void tick(void *argument)
{
    struct push *push = argument;
    uploader_poll(push->uploader);
    progress(push);
}

static bool open_file(void *argument, const char *path, int *fd, struct status *status)
{
    const struct push *push = argument;
    return tree_open_file(push->root_fd, path, push->options->tree, fd, status);
}

static void blob_problem(void *argument, const struct status *problem)
{
    const struct push *push = argument;
    push->observer->problem(push->observer->argument, problem);
}

static void progress(void *argument)
{
    struct push *push = argument;
    push->counts->blobs = *uploader_counts(push->uploader);
    push->observer->progress(push->observer->argument, push->counts);
}
