/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree_source.h"

#include <stdlib.h>

#include "client/batch_packer.h"
#include "client/cas.h"
#include "client/digest_map.h"
#include "client/file_source.h"

struct message {
    uint8_t *data; /* owned */
    size_t length;
};

struct tree_source {
    struct client *client; /* borrowed; NULL: of a directory here */
    struct digest_map numbers;
    struct message *messages; /* owned; of a directory here, by number */
    size_t count, capacity;
    void (*problem)(void *argument, const struct status *problem);
    void *problem_argument;
};

static bool new_source(struct tree_source **source, struct status *status);
static bool keep_directory(void *argument,
                           const struct digest *digest,
                           const char *path,
                           uint8_t *message,
                           struct status *status);
static bool drop_content(void *argument,
                         const struct digest *digest,
                         const char *path,
                         uint8_t *content,
                         struct status *status);
static bool drop_file(void *argument,
                      const struct digest *digest,
                      const char *path,
                      const struct stat *stat,
                      struct status *status);
static void tell_problem(void *argument, const struct status *problem);
static bool read_some(struct tree_source *source,
                      const struct digest *digests,
                      size_t count,
                      struct message *messages,
                      struct status *status);
static bool read_here(const struct tree_source *source,
                      const struct digest *digest,
                      struct message *message,
                      struct status *status);
static bool read_one(struct tree_source *source,
                     const struct digest *digest,
                     struct message *message,
                     struct status *status);
static size_t batch_length(const struct digest *digests, size_t count);
static bool read_batch(struct tree_source *source,
                       const struct digest *digests,
                       size_t count,
                       struct message *messages,
                       struct status *status);
static bool step_down(struct tree_source *source,
                      const char *name,
                      struct directory_node *node,
                      char **target,
                      struct status *status);
static bool not_there(struct status *status);
static bool no_memory(struct status *status);

bool tree_source_of_server(struct client *client,
                           struct tree_source **source,
                           struct status *status)
{
    if (!new_source(source, status))
        return false;
    (*source)->client = client;
    return true;
}

bool tree_source_of_directory(const char *path,
                              unsigned options,
                              void (*problem)(void *argument, const struct status *problem),
                              void *argument,
                              struct tree_source **source_out,
                              struct digest *root,
                              struct status *status)
{
    struct tree_source *source;
    if (!new_source(&source, status))
        return false;
    source->problem = problem;
    source->problem_argument = argument;
    const struct tree_visitor visitor = {.directory = keep_directory,
                                         .content = drop_content,
                                         .file = drop_file,
                                         .problem = tell_problem,
                                         .argument = source};
    struct tree_totals totals;
    if (!tree_walk(path, options, &visitor, root, &totals, status)) {
        tree_source_free(source);
        return false;
    }
    *source_out = source;
    return true;
}

static bool new_source(struct tree_source **source, struct status *status)
{
    *source = calloc(1, sizeof(**source));
    return *source != NULL || no_memory(status);
}

void tree_source_free(struct tree_source *source)
{
    if (source == NULL)
        return;
    for (size_t i = 0; i < source->count; i++)
        free(source->messages[i].data);
    free(source->messages);
    digest_map_destroy(&source->numbers);
    free(source);
}

static bool keep_directory(void *argument,
                           const struct digest *digest,
                           const char *path,
                           uint8_t *message,
                           struct status *status)
{
    (void)path;
    struct tree_source *source = argument;
    bool is_new;
    if (source->count == source->capacity) {
        const size_t capacity = source->capacity == 0 ? 64 : source->capacity * 2;
        struct message *messages = realloc(source->messages, capacity * sizeof(*messages));
        if (messages == NULL) {
            free(message);
            return no_memory(status);
        }
        source->messages = messages;
        source->capacity = capacity;
    }
    size_t *number = digest_map_insert(&source->numbers, digest, &is_new);
    if (number == NULL || !is_new) {
        free(message);
        return number != NULL || no_memory(status);
    }
    *number = source->count;
    source->messages[source->count++] =
        (struct message){.data = message, .length = (size_t)digest->size_bytes};
    return true;
}

static bool drop_content(void *argument,
                         const struct digest *digest,
                         const char *path,
                         uint8_t *content,
                         struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)status;
    free(content);
    return true;
}

static bool drop_file(void *argument,
                      const struct digest *digest,
                      const char *path,
                      const struct stat *stat,
                      struct status *status)
{
    (void)argument;
    (void)digest;
    (void)path;
    (void)stat;
    (void)status;
    return true;
}

static void tell_problem(void *argument, const struct status *problem)
{
    const struct tree_source *source = argument;
    source->problem(source->problem_argument, problem);
}

bool tree_source_read(struct tree_source *source,
                      const struct digest *digests,
                      size_t count,
                      struct directory *directories,
                      struct status *status)
{
    if (count == 0)
        return true;
    struct message *messages = calloc(count, sizeof(*messages));
    if (messages == NULL)
        return no_memory(status);
    bool ok = read_some(source, digests, count, messages, status);
    size_t decoded = 0;
    while (ok && decoded < count) {
        ok = directory_decode(bytes_of(messages[decoded].data, messages[decoded].length),
                              &directories[decoded], status);
        if (ok) {
            decoded++;
        } else {
            char text[DIGEST_TEXT_BYTES_MAX];
            status_prefix(status, "%s", digest_text(&digests[decoded], text));
        }
    }
    for (size_t i = 0; !ok && i < decoded; i++)
        directory_destroy(&directories[i]);
    for (size_t i = 0; source->client != NULL && i < count; i++)
        free(messages[i].data);
    free(messages);
    return ok;
}

/* What is set in messages is to be freed when it came from a server, also on false. */
static bool read_some(struct tree_source *source,
                      const struct digest *digests,
                      size_t count,
                      struct message *messages,
                      struct status *status)
{
    for (size_t at = 0; at < count;) {
        const size_t batch = source->client != NULL ? batch_length(digests + at, count - at) : 1;
        const bool ok =
            source->client == NULL ? read_here(source, &digests[at], &messages[at], status)
            : batch == 1           ? read_one(source, &digests[at], &messages[at], status)
                                   : read_batch(source, digests + at, batch, messages + at, status);
        if (!ok)
            return false;
        at += batch;
    }
    return true;
}

static bool read_here(const struct tree_source *source,
                      const struct digest *digest,
                      struct message *message,
                      struct status *status)
{
    const size_t *number = digest_map_find(&source->numbers, digest);
    char text[DIGEST_TEXT_BYTES_MAX];
    if (number != NULL)
        *message = source->messages[*number];
    else if (!digest_is_empty_blob(digest))
        return status_fail(status, STATUS_NOT_FOUND, "%s", digest_text(digest, text));
    return true;
}

static bool read_one(struct tree_source *source,
                     const struct digest *digest,
                     struct message *message,
                     struct status *status)
{
    message->length = (size_t)digest->size_bytes;
    return cas_read_bytes(source->client, digest, DIRECTORY_BYTES_MAX, &message->data, status);
}

/* So many of them go well into one BatchReadBlobs, wherever it is; 1: that one is streamed. */
static size_t batch_length(const struct digest *digests, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if ((uint64_t)digests[i].size_bytes > BATCH_PACKER_BATCHED_BLOB_BYTES)
            return i > 0 ? i : 1;
        bytes += (uint64_t)digests[i].size_bytes + BATCH_PACKER_ENTRY_OVERHEAD_BYTES;
        if (bytes > BATCH_PACKER_BATCH_BYTES)
            return i > 0 ? i : 1;
    }
    return count;
}

/* Where a server does not give all that was asked for, the rest is streamed. */
static bool read_batch(struct tree_source *source,
                       const struct digest *digests,
                       size_t count,
                       struct message *messages,
                       struct status *status)
{
    struct digest *asked = calloc(count, sizeof(*asked));
    uint8_t **data = calloc(count, sizeof(*data));
    struct status *results = calloc(count, sizeof(*results));
    struct digest_map numbers = {0};
    size_t different = 0;
    bool ok = (asked != NULL && data != NULL && results != NULL) || no_memory(status);
    for (size_t i = 0; ok && i < count; i++) {
        bool is_new;
        size_t *number = digest_map_insert(&numbers, &digests[i], &is_new);
        ok = number != NULL || no_memory(status);
        if (ok && is_new) {
            *number = different;
            asked[different++] = digests[i];
        }
    }
    struct status batch_status = {0};
    const bool answered =
        ok && cas_batch_read(source->client, asked, data, results, different, &batch_status);
    for (size_t i = 0; ok && i < count; i++) {
        const size_t number = *digest_map_find(&numbers, &digests[i]);
        if (answered && data[number] != NULL) {
            messages[i] =
                (struct message){.data = data[number], .length = (size_t)digests[i].size_bytes};
            data[number] = NULL; /* another of the same digest reads it for itself */
        } else {
            ok = read_one(source, &digests[i], &messages[i], status);
        }
    }
    for (size_t i = 0; data != NULL && i < different; i++)
        free(data[i]);
    digest_map_destroy(&numbers);
    free(asked);
    free(data);
    free(results);
    return ok;
}

bool tree_source_find(struct tree_source *source,
                      const struct digest *root,
                      const char *path,
                      struct directory_node *node,
                      char **target,
                      struct status *status)
{
    char *parts = strdup(path);
    if (parts == NULL)
        return no_memory(status);
    char text[FILE_NAME_TEXT_BYTES];
    *node = (struct directory_node){.kind = DIRECTORY_NODE_DIRECTORY, .name = "", .digest = *root};
    *target = NULL;
    bool ok = true;
    char *rest = parts;
    while (ok && rest != NULL) {
        const char *name = strsep(&rest, "/");
        if (name[0] == '\0' || strcmp(name, ".") == 0)
            continue;
        ok = node->kind == DIRECTORY_NODE_DIRECTORY ? step_down(source, name, node, target, status)
                                                    : not_there(status);
    }
    if (!ok && status->code == STATUS_INVALID_ARGUMENT)
        status_prefix(status, "%s", file_name_text(path, text, sizeof(text)));
    free(parts);
    return ok;
}

/* A link is the end of the path: its target is set once. */
static bool step_down(struct tree_source *source,
                      const char *name,
                      struct directory_node *node,
                      char **target,
                      struct status *status)
{
    struct directory directory;
    if (!tree_source_read(source, &node->digest, 1, &directory, status))
        return false;
    const struct directory_node *found = directory_find(&directory, name);
    bool ok = found != NULL || not_there(status);
    if (ok) {
        *node = *found;
        node->name = "";
        if (found->target != NULL) {
            *target = strdup(found->target);
            node->target = *target;
            ok = *target != NULL || no_memory(status);
        }
    }
    directory_destroy(&directory);
    return ok;
}

static bool not_there(struct status *status)
{
    return status_fail(status, STATUS_INVALID_ARGUMENT, "not in this tree");
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the tree");
}
