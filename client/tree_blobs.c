/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree_blobs.h"

#include <stdlib.h>

#include "client/digest_map.h"
#include "client/directory.h"
#include "client/downloader.h"

enum { READING_MAX = 1000 };
/* Messages that are being read; one is always let through. */
#define READING_BYTES_MAX (UINT64_C(32) << 20)

struct visit {
    const struct tree_blobs_observer *observer;
    struct downloader *downloader; /* owned */
    struct digest_map seen;        /* directories */
    struct digest *waiting;        /* owned; directories that are to be read */
    size_t waiting_count, waiting_capacity;
    struct reading *read_first; /* directories that have been read */
    uint64_t reading_bytes;     /* of both */
    uint64_t *unreadable, *gone;
};

/* One directory. */
struct reading {
    struct visit *visit;
    struct digest digest;
    uint8_t *message; /* owned */
    size_t length;
    struct reading *next;
};

static bool meet_directory(struct visit *visit, const struct digest *digest, struct status *status);
static bool read_more(struct visit *visit, struct status *status);
static bool begin(void *item, struct status *status);
static bool write_bytes(void *item, struct bytes bytes, struct status *status);
static void end(void *item, const struct status *result);
static bool work_off(struct visit *visit, struct status *status);
static bool take_nodes(struct visit *visit, const struct reading *reading, struct status *status);
static void unreadable(struct visit *visit, const struct digest *digest, const struct status *why);
static void reading_free(struct reading *reading);
static bool no_memory(struct status *status);

static const struct downloader_sink sink = {.begin = begin, .write = write_bytes, .end = end};

bool tree_blobs_visit(struct client *client,
                      const struct capabilities *capabilities,
                      const struct digest *root,
                      const struct tree_blobs_observer *observer,
                      uint64_t *unreadable_out,
                      uint64_t *gone,
                      struct status *status)
{
    *unreadable_out = *gone = 0;
    struct visit visit = {.observer = observer, .unreadable = unreadable_out, .gone = gone};
    const struct downloader_config config = {
        .client = client,
        .capabilities = capabilities,
        .batches_in_flight_max = DOWNLOADER_BATCHES_IN_FLIGHT_MAX,
        .streams_in_flight_max = DOWNLOADER_STREAMS_IN_FLIGHT_MAX,
    };
    bool ok =
        downloader_new(&config, &visit.downloader, status) && meet_directory(&visit, root, status);
    while (ok && (visit.waiting_count > 0 || visit.read_first != NULL ||
                  downloader_live(visit.downloader) > 0)) {
        ok = read_more(&visit, status);
        if (ok && downloader_live(visit.downloader) > 0)
            downloader_run(visit.downloader, NS_PER_S);
        ok = ok && work_off(&visit, status);
        if (ok && downloader_failed(visit.downloader, status))
            ok = false;
    }
    if (!ok && visit.downloader != NULL) {
        downloader_fail(visit.downloader, status);
        while (downloader_live(visit.downloader) > 0)
            downloader_run(visit.downloader, NS_PER_S);
    }
    while (visit.read_first != NULL) {
        struct reading *reading = visit.read_first;
        visit.read_first = reading->next;
        reading_free(reading);
    }
    downloader_free(visit.downloader);
    digest_map_destroy(&visit.seen);
    free(visit.waiting);
    return ok;
}

static bool meet_directory(struct visit *visit, const struct digest *digest, struct status *status)
{
    if (digest_is_empty_blob(digest))
        return true;
    bool is_new;
    if (digest_map_insert(&visit->seen, digest, &is_new) == NULL)
        return no_memory(status);
    if (!is_new)
        return true;
    if (visit->seen.count > TREE_BLOBS_DIRECTORIES_MAX)
        return status_fail(status, STATUS_OUT_OF_RANGE, "the tree has more than %d directories",
                           TREE_BLOBS_DIRECTORIES_MAX);
    if (visit->waiting_count == visit->waiting_capacity) {
        const size_t capacity = visit->waiting_capacity == 0 ? 256 : visit->waiting_capacity * 2;
        struct digest *waiting = realloc(visit->waiting, capacity * sizeof(*waiting));
        if (waiting == NULL)
            return no_memory(status);
        visit->waiting = waiting;
        visit->waiting_capacity = capacity;
    }
    visit->waiting[visit->waiting_count++] = *digest;
    return visit->observer->take(visit->observer->argument, digest, status);
}

static bool read_more(struct visit *visit, struct status *status)
{
    while (visit->waiting_count > 0 && downloader_live(visit->downloader) < READING_MAX &&
           (visit->reading_bytes == 0 || visit->reading_bytes < READING_BYTES_MAX)) {
        const struct digest digest = visit->waiting[--visit->waiting_count];
        if ((uint64_t)digest.size_bytes > DIRECTORY_BYTES_MAX) {
            struct status large = {0};
            status_fail(&large, STATUS_OUT_OF_RANGE, "a directory of more than %llu bytes",
                        (unsigned long long)DIRECTORY_BYTES_MAX);
            unreadable(visit, &digest, &large);
            continue;
        }
        struct reading *reading = calloc(1, sizeof(*reading));
        if (reading == NULL)
            return no_memory(status);
        *reading = (struct reading){.visit = visit, .digest = digest};
        if (!downloader_add(visit->downloader, &digest, &sink, reading, status)) {
            free(reading);
            return false;
        }
        visit->reading_bytes += (uint64_t)digest.size_bytes;
    }
    return true;
}

static bool begin(void *item, struct status *status)
{
    struct reading *reading = item;
    reading->message = malloc((size_t)reading->digest.size_bytes);
    return reading->message != NULL || no_memory(status);
}

static bool write_bytes(void *item, struct bytes bytes, struct status *status)
{
    (void)status;
    struct reading *reading = item;
    ASSERT(bytes.length <= (size_t)reading->digest.size_bytes - reading->length);
    memcpy(reading->message + reading->length, bytes.data, bytes.length);
    reading->length += bytes.length;
    return true;
}

/* What it names is worked off outside, where take may wait. */
static void end(void *item, const struct status *result)
{
    struct reading *reading = item;
    struct visit *visit = reading->visit;
    if (result->code == STATUS_OK) {
        reading->next = visit->read_first;
        visit->read_first = reading;
        return;
    }
    if (!downloader_failed(visit->downloader, NULL))
        unreadable(visit, &reading->digest, result);
    reading_free(reading);
}

static bool work_off(struct visit *visit, struct status *status)
{
    bool ok = true;
    while (ok && visit->read_first != NULL) {
        struct reading *reading = visit->read_first;
        visit->read_first = reading->next;
        ok = take_nodes(visit, reading, status);
        reading_free(reading);
    }
    return ok;
}

static bool take_nodes(struct visit *visit, const struct reading *reading, struct status *status)
{
    struct directory directory = {0};
    struct status wrong = {0};
    if (!directory_decode(bytes_of(reading->message, reading->length), &directory, &wrong)) {
        unreadable(visit, &reading->digest, &wrong);
        return true;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < directory.count; i++) {
        const struct directory_node *node = &directory.nodes[i];
        if (node->kind == DIRECTORY_NODE_DIRECTORY)
            ok = meet_directory(visit, &node->digest, status);
        else if (node->kind == DIRECTORY_NODE_FILE && !digest_is_empty_blob(&node->digest))
            ok = visit->observer->take(visit->observer->argument, &node->digest, status);
    }
    directory_destroy(&directory);
    return ok;
}

static void unreadable(struct visit *visit, const struct digest *digest, const struct status *why)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    struct status problem = *why;
    ++*visit->unreadable;
    *visit->gone += why->code == STATUS_NOT_FOUND ? 1 : 0;
    status_prefix(&problem, "directory %s cannot be read, and what is below it is left out",
                  digest_text(digest, text));
    visit->observer->problem(visit->observer->argument, &problem);
}

static void reading_free(struct reading *reading)
{
    reading->visit->reading_bytes -= (uint64_t)reading->digest.size_bytes;
    free(reading->message);
    free(reading);
}

static bool no_memory(struct status *status)
{
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "no memory for the directories of a tree");
}
