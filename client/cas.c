/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cas.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/batch.h"
#include "client/download.h"
#include "client/event_loop.h"
#include "client/file_source.h"
#include "client/upload.h"

/* Pages of FindMissingBlobs on their way at once. */
enum { PAGES_IN_FLIGHT_MAX = 4 };

/* What a blocking call waits for. */
struct wait {
    struct event_loop loop;
    bool finished;
    struct status status;
};

struct find_missing_walk {
    struct wait wait;
    size_t in_flight;
};

struct read_target {
    uint8_t **data;
    const struct digest *digests;
    struct status *results;
};

static void wait_init(struct wait *wait, struct client *client);
static bool wait_for(struct wait *wait, bool started, struct status *status);
static void wait_done(void *argument, const struct status *status);
static void wait_upload_done(void *argument, const struct status *status, uint64_t sent_bytes);
static void page_done(void *argument, const struct status *status);
static void keep_blob(void *argument, size_t index, struct bytes data);
static bool read_from_memory(void *argument,
                             uint64_t offset,
                             uint8_t *to,
                             size_t length,
                             struct status *status);
static bool upload_and_wait(struct client *client,
                            const struct digest *digest,
                            struct upload_source source,
                            struct status *status);
static bool write_file(struct client *client,
                       const struct capabilities *capabilities,
                       struct file_source *source,
                       struct digest *digest,
                       struct status *status);
static bool append_to_memory(void *argument, struct bytes bytes, struct status *status);
static bool write_to_fd(void *argument, struct bytes bytes, struct status *status);
static bool download_and_wait(struct client *client,
                              const struct digest *digest,
                              struct download_sink sink,
                              struct status *status);

static void wait_init(struct wait *wait, struct client *client)
{
    *wait = (struct wait){0};
    event_loop_init(&wait->loop, client_clock(client));
}

static bool wait_for(struct wait *wait, bool started, struct status *status)
{
    if (started)
        event_loop_run_until(&wait->loop, &wait->finished);
    event_loop_destroy(&wait->loop);
    if (started && wait->status.code != STATUS_OK)
        *status = wait->status;
    return started && wait->status.code == STATUS_OK;
}

static void wait_done(void *argument, const struct status *status)
{
    struct wait *wait = argument;
    wait->status = *status;
    wait->finished = true;
}

bool cas_find_missing(struct client *client,
                      const struct digest *digests,
                      bool *missing,
                      size_t count,
                      struct status *status)
{
    struct find_missing_walk walk = {0};
    wait_init(&walk.wait, client);
    const struct batch_done done = {.done = page_done, .argument = &walk};
    struct status *failure = &walk.wait.status;
    for (size_t at = 0; at < count && failure->code == STATUS_OK;) {
        if (walk.in_flight == PAGES_IN_FLIGHT_MAX) {
            event_loop_run(&walk.wait.loop, 60 * NS_PER_S);
            continue;
        }
        const size_t page = count - at < FIND_MISSING_PAGE_MAX ? count - at : FIND_MISSING_PAGE_MAX;
        if (find_missing_start(client, &walk.wait.loop, digests + at, missing + at, page, done,
                               failure))
            walk.in_flight++;
        at += page;
    }
    while (walk.in_flight > 0)
        event_loop_run(&walk.wait.loop, 60 * NS_PER_S);
    event_loop_destroy(&walk.wait.loop);
    if (failure->code != STATUS_OK)
        *status = *failure;
    return failure->code == STATUS_OK;
}

static void page_done(void *argument, const struct status *status)
{
    struct find_missing_walk *walk = argument;
    walk->in_flight--;
    if (status->code != STATUS_OK && walk->wait.status.code == STATUS_OK)
        walk->wait.status = *status;
}

bool cas_batch_update(struct client *client,
                      const struct batch_blob *blobs,
                      struct status *results,
                      size_t count,
                      struct status *status)
{
    struct wait wait;
    wait_init(&wait, client);
    const struct batch_done done = {.done = wait_done, .argument = &wait};
    return wait_for(
        &wait, batch_update_start(client, &wait.loop, blobs, results, count, done, status), status);
}

bool cas_batch_read(struct client *client,
                    const struct digest *digests,
                    uint8_t **data,
                    struct status *results,
                    size_t count,
                    struct status *status)
{
    struct wait wait;
    wait_init(&wait, client);
    for (size_t i = 0; i < count; i++)
        data[i] = NULL;
    struct read_target target = {.data = data, .digests = digests, .results = results};
    const struct batch_done done = {.done = wait_done, .argument = &wait};
    const struct batch_read_sink sink = {.take = keep_blob, .argument = &target};
    const bool ok = wait_for(
        &wait, batch_read_start(client, &wait.loop, digests, results, count, sink, done, status),
        status);
    for (size_t i = 0; i < count; i++) {
        if (!ok || results[i].code != STATUS_OK) {
            free(data[i]);
            data[i] = NULL;
        }
    }
    return ok;
}

static void keep_blob(void *argument, size_t index, struct bytes data)
{
    struct read_target *target = argument;
    target->data[index] = malloc(data.length + 1);
    if (target->data[index] == NULL)
        status_fail(&target->results[index], STATUS_RESOURCE_EXHAUSTED, "no memory for it");
    else if (data.length > 0)
        memcpy(target->data[index], data.data, data.length);
}

bool cas_write_bytes(struct client *client,
                     const struct digest *digest,
                     struct bytes data,
                     struct status *status)
{
    if (data.length != (uint64_t)digest->size_bytes)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%zu bytes are given for a blob of %lld", data.length,
                           (long long)digest->size_bytes);
    const struct upload_source source = {.read = read_from_memory, .argument = &data};
    return upload_and_wait(client, digest, source, status);
}

static bool read_from_memory(void *argument,
                             uint64_t offset,
                             uint8_t *to,
                             size_t length,
                             struct status *status)
{
    (void)status;
    const struct bytes *data = argument;
    ASSERT(offset + length <= data->length);
    memcpy(to, data->data + offset, length);
    return true;
}

static bool upload_and_wait(struct client *client,
                            const struct digest *digest,
                            struct upload_source source,
                            struct status *status)
{
    if (digest_is_empty_blob(digest))
        return true;
    struct wait wait;
    wait_init(&wait, client);
    const struct upload_request request = {.digest = *digest,
                                           .source = source,
                                           .loop = &wait.loop,
                                           .done = wait_upload_done,
                                           .argument = &wait};
    struct upload *upload;
    const bool ok = wait_for(&wait, upload_start(client, &request, &upload, status), status);
    if (!ok) {
        char text[DIGEST_TEXT_BYTES_MAX];
        status_prefix(status, "write %s", digest_text(digest, text));
    }
    return ok;
}

static void wait_upload_done(void *argument, const struct status *status, uint64_t sent_bytes)
{
    (void)sent_bytes;
    wait_done(argument, status);
}

bool cas_write_file(struct client *client,
                    const struct capabilities *capabilities,
                    int fd,
                    const char *name,
                    struct digest *digest,
                    struct status *status)
{
    struct file_source source;
    if (!file_source_init(&source, fd, name, status))
        return false;
    const bool ok = write_file(client, capabilities, &source, digest, status);
    file_source_destroy(&source);
    return ok;
}

static bool write_file(struct client *client,
                       const struct capabilities *capabilities,
                       struct file_source *source,
                       struct digest *digest,
                       struct status *status)
{
    if (capabilities != NULL &&
        !capabilities_check_blob(capabilities, source->stat.st_size, status)) {
        status_prefix(status, "%s", source->name);
        return false;
    }
    uint8_t *buffer = malloc(FILE_SOURCE_KEPT_BYTES);
    if (buffer == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to read %s", source->name);
    const bool hashed = file_source_digest(source, DIGEST_FUNCTION_SHA256, buffer, digest, status);
    free(buffer);
    return hashed && upload_and_wait(client, digest, file_source_upload(source), status);
}

bool cas_read_bytes(struct client *client,
                    const struct digest *digest,
                    size_t bytes_max,
                    uint8_t **data,
                    struct status *status)
{
    if ((uint64_t)digest->size_bytes > bytes_max)
        return status_fail(status, STATUS_OUT_OF_RANGE,
                           "a blob of %lld bytes where %zu are expected at most",
                           (long long)digest->size_bytes, bytes_max);
    uint8_t *memory = malloc((size_t)digest->size_bytes + 1);
    if (memory == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %lld bytes",
                           (long long)digest->size_bytes);
    uint8_t *end = memory;
    const struct download_sink sink = {.write = append_to_memory, .argument = &end};
    if (!download_and_wait(client, digest, sink, status)) {
        free(memory);
        return false;
    }
    *data = memory;
    return true;
}

/* The download never hands out more than the digest's size. */
static bool append_to_memory(void *argument, struct bytes bytes, struct status *status)
{
    (void)status;
    uint8_t **end = argument;
    memcpy(*end, bytes.data, bytes.length);
    *end += bytes.length;
    return true;
}

bool cas_read_fd(struct client *client, const struct digest *digest, int fd, struct status *status)
{
    const struct download_sink sink = {.write = write_to_fd, .argument = &fd};
    return download_and_wait(client, digest, sink, status);
}

static bool write_to_fd(void *argument, struct bytes bytes, struct status *status)
{
    const int *fd = argument;
    while (bytes.length > 0) {
        const ssize_t n = write(*fd, bytes.data, bytes.length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail_errno(status, errno, "write what was read");
        bytes = bytes_of(bytes.data + n, bytes.length - (size_t)n);
    }
    return true;
}

static bool download_and_wait(struct client *client,
                              const struct digest *digest,
                              struct download_sink sink,
                              struct status *status)
{
    if (digest_is_empty_blob(digest))
        return true;
    struct wait wait;
    wait_init(&wait, client);
    const struct download_request request = {
        .digest = *digest, .sink = sink, .loop = &wait.loop, .done = wait_done, .argument = &wait};
    struct download *download;
    const bool ok = wait_for(&wait, download_start(client, &request, &download, status), status);
    if (!ok) {
        char text[DIGEST_TEXT_BYTES_MAX];
        status_prefix(status, "read %s", digest_text(digest, text));
    }
    return ok;
}
