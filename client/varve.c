/* SPDX-License-Identifier: Apache-2.0 */
#include "client/varve.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/action_cache.h"
#include "client/cas.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/version.h"

static_assert(VARVE_HASH_BYTES_MAX == DIGEST_HASH_HEX_MAX + 1, "a hash and its NUL");
static_assert(sizeof(((struct varve_error *)NULL)->message) == STATUS_MESSAGE_BYTES_MAX,
              "a message fits");

struct varve {
    struct client *client; /* owned */
};

struct observed {
    const struct varve_push_observer *observer; /* borrowed; may be NULL */
};

static bool give_error(const struct status *status, struct varve_error *error);
static void give_digest(const struct digest *digest, struct varve_digest *out);
static bool take_digest(const struct varve_digest *digest,
                        struct digest *out,
                        struct status *status);
static bool get_capabilities(struct varve *varve,
                             struct capabilities *capabilities,
                             struct status *status);
static bool find_missing(struct varve *varve,
                         const struct varve_digest *digests,
                         bool *missing,
                         size_t count,
                         struct status *status);
static void drop_pull_progress(void *argument, const struct pull_counts *counts);
static void tell_problem(void *argument, const struct status *problem);
static void tell_progress(void *argument, const struct push_counts *counts);

struct varve *varve_connect(const char *target,
                            const struct varve_options *options,
                            struct varve_error *error)
{
    struct client_options client_options = client_options_default();
    struct status status = {0};
    if (options != NULL) {
        if (options->instance_name != NULL)
            client_options.instance_name = options->instance_name;
        if (options->connections != 0)
            client_options.connections = options->connections;
        if (options->tool_name != NULL)
            client_options.tool_name = options->tool_name;
        if (options->tool_version != NULL)
            client_options.tool_version = options->tool_version;
        if (options->timeout_seconds != 0)
            client_options.call_timeout_ns =
                options->timeout_seconds > 0 && options->timeout_seconds <= 86400
                    ? (int64_t)(options->timeout_seconds * (double)NS_PER_S)
                    : -1; /* refused below, with what is accepted */
    }
    struct varve *varve = calloc(1, sizeof(*varve));
    if (varve == NULL)
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for a client");
    if (varve == NULL || !client_connect(target, &client_options, &varve->client, &status)) {
        free(varve);
        give_error(&status, error);
        return NULL;
    }
    return varve;
}

void varve_close(struct varve *varve)
{
    if (varve == NULL)
        return;
    client_close(varve->client);
    free(varve);
}

const char *varve_version(void)
{
    return CLIENT_VERSION;
}

bool varve_digest_parse(const char *text, struct varve_digest *digest, struct varve_error *error)
{
    struct digest parsed;
    struct status status = {0};
    if (!digest_parse_text(bytes_of_string(text), &parsed, &status))
        return give_error(&status, error);
    give_digest(&parsed, digest);
    return true;
}

bool varve_find_missing(struct varve *varve,
                        const struct varve_digest *digests,
                        bool *missing,
                        size_t count,
                        struct varve_error *error)
{
    struct status status = {0};
    return find_missing(varve, digests, missing, count, &status) || give_error(&status, error);
}

static bool find_missing(struct varve *varve,
                         const struct varve_digest *digests,
                         bool *missing,
                         size_t count,
                         struct status *status)
{
    struct digest *parsed = calloc(count + 1, sizeof(*parsed));
    if (parsed == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu digests", count);
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = take_digest(&digests[i], &parsed[i], status);
    ok = ok && cas_find_missing(varve->client, parsed, missing, count, status);
    free(parsed);
    return ok;
}

bool varve_put_bytes(struct varve *varve,
                     const void *data,
                     size_t length,
                     struct varve_digest *digest,
                     struct varve_error *error)
{
    struct digest computed;
    struct capabilities capabilities;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &computed);
    if (!get_capabilities(varve, &capabilities, &status) ||
        !capabilities_check_blob(&capabilities, computed.size_bytes, &status) ||
        !cas_write_bytes(varve->client, &computed, bytes_of(data, length), &status))
        return give_error(&status, error);
    give_digest(&computed, digest);
    return true;
}

bool varve_put_file(struct varve *varve,
                    const char *path,
                    struct varve_digest *digest,
                    struct varve_error *error)
{
    struct status status = {0};
    struct digest computed;
    struct capabilities capabilities;
    char text[FILE_NAME_TEXT_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        status_fail_errno(&status, errno, "%s", file_name_text(path, text, sizeof(text)));
        return give_error(&status, error);
    }
    const bool ok = get_capabilities(varve, &capabilities, &status) &&
                    cas_write_file(varve->client, &capabilities, fd, path, &computed, &status);
    close(fd);
    if (!ok)
        return give_error(&status, error);
    give_digest(&computed, digest);
    return true;
}

void *varve_get_bytes(struct varve *varve,
                      const struct varve_digest *digest,
                      size_t bytes_max,
                      struct varve_error *error)
{
    struct digest parsed;
    struct status status = {0};
    uint8_t *data;
    if (take_digest(digest, &parsed, &status) &&
        cas_read_bytes(varve->client, &parsed, bytes_max, &data, &status))
        return data;
    give_error(&status, error);
    return NULL;
}

bool varve_get_fd(struct varve *varve,
                  const struct varve_digest *digest,
                  int fd,
                  struct varve_error *error)
{
    struct digest parsed;
    struct status status = {0};
    return (take_digest(digest, &parsed, &status) &&
            cas_read_fd(varve->client, &parsed, fd, &status)) ||
           give_error(&status, error);
}

bool varve_get_action_result(struct varve *varve,
                             const struct varve_digest *action,
                             bool *found,
                             void **result,
                             size_t *result_length,
                             struct varve_error *error)
{
    struct digest parsed;
    struct status status = {0};
    uint8_t *bytes = NULL;
    if (!take_digest(action, &parsed, &status) ||
        !action_cache_get(varve->client, &parsed, found, &bytes, result_length, &status))
        return give_error(&status, error);
    *result = bytes;
    return true;
}

bool varve_update_action_result(struct varve *varve,
                                const struct varve_digest *action,
                                const void *result,
                                size_t result_length,
                                struct varve_error *error)
{
    struct digest parsed;
    struct status status = {0};
    return (take_digest(action, &parsed, &status) &&
            action_cache_update(varve->client, &parsed, bytes_of(result, result_length),
                                &status)) ||
           give_error(&status, error);
}

bool varve_push_directory(struct varve *varve,
                          const char *path,
                          const struct varve_push_observer *observer,
                          struct varve_digest *root,
                          struct varve_error *error)
{
    struct observed observed = {.observer = observer};
    const struct push_observer inner = {
        .problem = tell_problem, .progress = tell_progress, .argument = &observed};
    struct capabilities capabilities;
    struct push_counts counts;
    struct digest digest;
    struct status status = {0};
    if (!get_capabilities(varve, &capabilities, &status) ||
        !push_directory(varve->client, &capabilities, path, NULL, &inner, &digest, &counts,
                        &status))
        return give_error(&status, error);
    give_digest(&digest, root);
    return true;
}

bool varve_pull_directory(struct varve *varve,
                          const struct varve_digest *root,
                          const char *path,
                          const struct varve_push_observer *observer,
                          struct varve_error *error)
{
    struct observed observed = {.observer = observer};
    const struct pull_observer inner = {
        .problem = tell_problem, .progress = drop_pull_progress, .argument = &observed};
    struct capabilities capabilities;
    struct pull_counts counts;
    struct digest digest;
    struct status status = {0};
    return (take_digest(root, &digest, &status) &&
            get_capabilities(varve, &capabilities, &status) &&
            pull_directory(varve->client, &capabilities, &digest, path, NULL, &inner, &counts,
                           &status)) ||
           give_error(&status, error);
}

static void drop_pull_progress(void *argument, const struct pull_counts *counts)
{
    (void)argument;
    (void)counts;
}

static void tell_problem(void *argument, const struct status *problem)
{
    const struct varve_push_observer *observer = ((const struct observed *)argument)->observer;
    struct varve_error error;
    if (observer == NULL || observer->problem == NULL)
        return;
    give_error(problem, &error);
    observer->problem(observer->argument, &error);
}

static void tell_progress(void *argument, const struct push_counts *counts)
{
    const struct varve_push_observer *observer = ((const struct observed *)argument)->observer;
    if (observer == NULL || observer->progress == NULL)
        return;
    const struct varve_push_progress progress = {
        .files = counts->tree.files,
        .blobs = counts->blobs.blobs,
        .blobs_present = counts->blobs.present,
        .blobs_uploaded = counts->blobs.uploaded,
        .bytes_uploaded = counts->blobs.uploaded_bytes,
        .blobs_failed = counts->blobs.failed,
    };
    observer->progress(observer->argument, &progress);
}

static bool get_capabilities(struct varve *varve,
                             struct capabilities *capabilities,
                             struct status *status)
{
    return capabilities_get(varve->client, capabilities, status) &&
           capabilities_check_function(capabilities, status);
}

/* False, so that failing is one line. */
static bool give_error(const struct status *status, struct varve_error *error)
{
    ASSERT(status->code != STATUS_OK);
    error->code = (int)status->code;
    memcpy(error->message, status->message, sizeof(error->message));
    return false;
}

static void give_digest(const struct digest *digest, struct varve_digest *out)
{
    digest_hex(digest, out->hash);
    out->size_bytes = digest->size_bytes;
}

static bool take_digest(const struct varve_digest *digest,
                        struct digest *out,
                        struct status *status)
{
    const size_t length = strnlen(digest->hash, sizeof(digest->hash));
    return digest_parse(DIGEST_FUNCTION_UNKNOWN, bytes_of(digest->hash, length), digest->size_bytes,
                        out, status);
}
