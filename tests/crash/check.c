/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "client/action_cache.h"
#include "client/cas.h"
#include "tests/crash/connect.h"

enum {
    READERS = 4,
    SMALL_BYTES_MAX = 256 << 10, /* up to this blobs are read in batches */
    TINY_BYTES_MAX =
        7, /* below 8 bytes two blobs may be the same, which one batch may not name twice */
    BATCH_BYTES_MAX = 2 << 20,
    BATCH_BLOBS_MAX = 500,
    GONE_READ_MAX = 300, /* missing blobs that are read all the same */
};

struct checker {
    struct journal *journal;
    const struct check_settings *settings;
    struct check_report *report;
    struct client *client;
    bool *missing;   /* owned; of each blob */
    size_t *reading; /* owned; numbers of blobs to be read */
    size_t reading_count;

    _Atomic size_t next; /* of reading, or of the actions */
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t actions;
    _Atomic bool failed;
    struct lock lock;
    struct status failure; /* guarded by lock; the first */
};

static bool ask_for_all(struct checker *checker, struct status *status);
static bool judge_missing(struct checker *checker, struct status *status);
static void choose_reading(struct checker *checker);
static bool run_readers(struct checker *checker,
                        void (*run)(void *argument),
                        struct status *status);
static void read_blobs(void *argument);
static void check_actions(void *argument);
static bool read_missing(struct checker *checker, struct status *status);

bool check_server(struct journal *journal,
                  const struct check_settings *settings,
                  struct check_report *report,
                  struct status *status)
{
    struct checker checker = {.journal = journal, .settings = settings, .report = report};
    struct client_options options = client_options_default();
    *report = (struct check_report){0};
    lock_init(&checker.lock, LOCK_RANK_LEAF);
    checker.missing = calloc(journal->blob_count + 1, sizeof(*checker.missing));
    checker.reading = calloc(journal->blob_count + 1, sizeof(*checker.reading));
    ASSERT(checker.missing != NULL && checker.reading != NULL);
    options.connections = READERS;
    options.retry.tries_max = 1;
    bool ok = connect_first(settings->target, &options, &checker.client, status) &&
              ask_for_all(&checker, status) && judge_missing(&checker, status);
    if (ok) {
        const uint64_t found = report->blobs_found;
        choose_reading(&checker);
        /* What reading finds damaged is missing afterwards. */
        ok = run_readers(&checker, read_blobs, status) && read_missing(&checker, status) &&
             run_readers(&checker, check_actions, status) && ask_for_all(&checker, status) &&
             judge_missing(&checker, status);
        if (ok && report->blobs_found != found)
            ok = status_fail(status, STATUS_DATA_LOSS,
                             "%" PRIu64 " blobs were missing and came by themselves",
                             report->blobs_found - found);
    }
    report->blobs_read = checker.reading_count;
    report->bytes_read = atomic_load(&checker.bytes_read);
    report->actions = atomic_load(&checker.actions);
    client_close(checker.client);
    free(checker.missing);
    free(checker.reading);
    lock_destroy(&checker.lock);
    return ok;
}

static bool ask_for_all(struct checker *checker, struct status *status)
{
    const size_t count = checker->journal->blob_count;
    struct digest *const digests = calloc(count + 1, sizeof(*digests));
    ASSERT(digests != NULL);
    for (size_t i = 0; i < count; i++)
        digests[i] = checker->journal->blobs[i].digest;
    const bool ok = cas_find_missing(checker->client, digests, checker->missing, count, status);
    free(digests);
    if (!ok)
        status_prefix(status, "FindMissingBlobs");
    return ok;
}

static bool judge_missing(struct checker *checker, struct status *status)
{
    struct journal *const journal = checker->journal;
    struct check_report *const report = checker->report;
    char text[DIGEST_TEXT_BYTES_MAX];
    report->blobs_there = report->blobs_missing = report->blobs_broken = 0;
    for (size_t i = 0; i < journal->blob_count; i++) {
        const struct sent_blob *const blob = &journal->blobs[i];
        const bool missing = checker->missing[i];
        switch (blob->state) {
        case SENT_ACKNOWLEDGED:
            if (missing)
                return status_fail(status, STATUS_DATA_LOSS,
                                   "blob %zu, %s, was acknowledged and is missing", i,
                                   digest_text(&blob->digest, text));
            report->blobs_there++;
            break;
        case SENT_BROKEN:
            if (!missing)
                return status_fail(status, STATUS_DATA_LOSS,
                                   "blob %zu, %s, was never sent whole and is said to be there", i,
                                   digest_text(&blob->digest, text));
            report->blobs_broken++;
            break;
        case SENT_WAITING:
            if (missing) {
                report->blobs_missing++;
                break;
            }
            /* The server vouches for it: from now on it must stay. */
            journal_acknowledge_blob(journal, i);
            report->blobs_found++;
            report->blobs_there++;
            break;
        }
    }
    return true;
}

static void choose_reading(struct checker *checker)
{
    const struct journal *const journal = checker->journal;
    const uint64_t bytes_max = checker->settings->read_bytes_max;
    uint64_t bytes = 0;
    size_t at = journal->blob_count;
    /* The newest, backwards. */
    while (at > 0 && (bytes_max == 0 || bytes < bytes_max)) {
        at--;
        if (journal->blobs[at].state != SENT_ACKNOWLEDGED)
            continue;
        checker->reading[checker->reading_count++] = at;
        bytes += (uint64_t)journal->blobs[at].digest.size_bytes;
    }
    if (at == 0)
        return;
    /* Of the older ones some, in turn. */
    const size_t older = at;
    size_t *const turn = checker->settings->turn;
    bytes = 0;
    for (size_t i = 0; i < older && bytes < bytes_max; i++) {
        if (*turn >= older)
            *turn = 0;
        const size_t number = (*turn)++;
        if (journal->blobs[number].state != SENT_ACKNOWLEDGED)
            continue;
        checker->reading[checker->reading_count++] = number;
        bytes += (uint64_t)journal->blobs[number].digest.size_bytes;
    }
}

static bool run_readers(struct checker *checker, void (*run)(void *argument), struct status *status)
{
    struct thread threads[READERS] = {0};
    atomic_store(&checker->next, 0);
    for (size_t i = 0; i < READERS; i++)
        ASSERT(thread_start(&threads[i], "check", 0, run, checker, status));
    for (size_t i = 0; i < READERS; i++)
        thread_join(&threads[i]);
    if (atomic_load(&checker->failed))
        *status = checker->failure;
    return !atomic_load(&checker->failed);
}

static void note_failure(struct checker *checker, const struct status *why)
{
    lock_acquire(&checker->lock);
    if (checker->failure.code == STATUS_OK)
        checker->failure = *why;
    lock_release(&checker->lock);
    atomic_store(&checker->failed, true);
}

static bool same_bytes(const struct sent_blob *blob, const uint8_t *data, uint8_t *scratch)
{
    const size_t length = (size_t)blob->digest.size_bytes;
    sent_bytes_fill(blob->seed, scratch, length);
    return memcmp(scratch, data, length) == 0;
}

static void compare(struct checker *checker, size_t number, const uint8_t *data, uint8_t *scratch)
{
    const struct sent_blob *const blob = &checker->journal->blobs[number];
    char text[DIGEST_TEXT_BYTES_MAX];
    struct status status = {0};
    atomic_fetch_add(&checker->bytes_read, (uint64_t)blob->digest.size_bytes);
    if (same_bytes(blob, data, scratch))
        return;
    status_fail(&status, STATUS_DATA_LOSS, "blob %zu, %s, was read and is another one", number,
                digest_text(&blob->digest, text));
    note_failure(checker, &status);
}

/* ---- blobs */

struct batch {
    size_t numbers[BATCH_BLOBS_MAX];
    size_t count;
    size_t bytes;
};

static void read_batch(struct checker *checker, struct batch *batch, uint8_t *scratch)
{
    struct digest digests[BATCH_BLOBS_MAX];
    uint8_t *data[BATCH_BLOBS_MAX];
    struct status *const results = calloc(BATCH_BLOBS_MAX, sizeof(*results));
    struct status status = {0};
    ASSERT(results != NULL);
    for (size_t i = 0; i < batch->count; i++)
        digests[i] = checker->journal->blobs[batch->numbers[i]].digest;
    if (batch->count > 0 &&
        !cas_batch_read(checker->client, digests, data, results, batch->count, &status)) {
        status_prefix(&status, "BatchReadBlobs");
        note_failure(checker, &status);
        batch->count = 0;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (data[i] != NULL) {
            compare(checker, batch->numbers[i], data[i], scratch);
            free(data[i]);
            continue;
        }
        char text[DIGEST_TEXT_BYTES_MAX];
        status_prefix(&results[i], "blob %zu, %s, is there and cannot be read", batch->numbers[i],
                      digest_text(&digests[i], text));
        note_failure(checker, &results[i]);
    }
    batch->count = 0;
    batch->bytes = 0;
    free(results);
}

static void read_alone(struct checker *checker, size_t number, uint8_t *scratch)
{
    const struct sent_blob *const blob = &checker->journal->blobs[number];
    struct status status = {0};
    uint8_t *data;
    if (!cas_read_bytes(checker->client, &blob->digest, (size_t)blob->digest.size_bytes, &data,
                        &status)) {
        status_prefix(&status, "blob %zu is there and cannot be read", number);
        note_failure(checker, &status);
        return;
    }
    compare(checker, number, data, scratch);
    free(data);
}

static void read_blobs(void *argument)
{
    struct checker *const checker = argument;
    const size_t scratch_bytes = 16 << 20;
    uint8_t *const scratch = malloc(scratch_bytes);
    struct batch batch = {0};
    ASSERT(scratch != NULL);
    while (!atomic_load(&checker->failed)) {
        const size_t at = atomic_fetch_add(&checker->next, 1);
        if (at >= checker->reading_count)
            break;
        const size_t number = checker->reading[at];
        const size_t length = (size_t)checker->journal->blobs[number].digest.size_bytes;
        ASSERT(length <= scratch_bytes);
        if (length > SMALL_BYTES_MAX || length <= TINY_BYTES_MAX) {
            read_alone(checker, number, scratch);
            continue;
        }
        batch.numbers[batch.count++] = number;
        batch.bytes += length;
        if (batch.count == BATCH_BLOBS_MAX || batch.bytes > BATCH_BYTES_MAX)
            read_batch(checker, &batch, scratch);
    }
    if (!atomic_load(&checker->failed))
        read_batch(checker, &batch, scratch);
    free(scratch);
}

/* What is missing by FindMissingBlobs must not be found by a read: the newest of those. */
static bool read_missing(struct checker *checker, struct status *status)
{
    const struct journal *const journal = checker->journal;
    struct digest digests[GONE_READ_MAX];
    uint8_t *data[GONE_READ_MAX];
    struct status *const results = calloc(GONE_READ_MAX, sizeof(*results));
    char text[DIGEST_TEXT_BYTES_MAX];
    size_t count = 0;
    uint64_t bytes = 0;
    ASSERT(results != NULL);
    for (size_t i = journal->blob_count; i > 0 && count < GONE_READ_MAX; i--) {
        const struct digest *const digest = &journal->blobs[i - 1].digest;
        if (!checker->missing[i - 1] || digest->size_bytes <= TINY_BYTES_MAX ||
            bytes + (uint64_t)digest->size_bytes > BATCH_BYTES_MAX)
            continue;
        digests[count++] = *digest;
        bytes += (uint64_t)digest->size_bytes;
    }
    bool ok = count == 0 || cas_batch_read(checker->client, digests, data, results, count, status);
    for (size_t i = 0; ok && i < count; i++) {
        free(data[i]);
        if (results[i].code != STATUS_NOT_FOUND)
            ok = status_fail(status, STATUS_DATA_LOSS,
                             "%s is missing by FindMissingBlobs, and a read says %s",
                             digest_text(&digests[i], text), status_code_name(results[i].code));
    }
    free(results);
    return ok;
}

/* ---- action results */

static bool outputs_were_read(const struct checker *checker, const struct sent_version *sent)
{
    for (size_t i = 0; i < ACTION_OUTPUTS; i++) {
        if (checker->missing[sent->outputs[i]])
            return false;
    }
    return true;
}

/* The newest that was acknowledged, or one that was sent after it. */
static void check_action(struct checker *checker, size_t action)
{
    struct journal *const journal = checker->journal;
    struct digest digest;
    struct status status = {0};
    bool found = false;
    uint8_t *result = NULL;
    size_t length = 0;
    size_t newest = SIZE_MAX, matching = SIZE_MAX;
    for (size_t i = 0; i < journal->version_count; i++) {
        if (journal->versions[i].action == action && journal->versions[i].acknowledged)
            newest = i;
    }
    sent_action_digest(action, &digest);
    if (!action_cache_get(checker->client, &digest, &found, &result, &length, &status)) {
        status_prefix(&status, "GetActionResult of action %zu", action);
        note_failure(checker, &status);
        return;
    }
    if (!found && newest == SIZE_MAX)
        return;
    for (size_t i = newest == SIZE_MAX ? 0 : newest; found && i < journal->version_count; i++) {
        if (journal->versions[i].action == action &&
            sent_version_matches(journal, &journal->versions[i], result, length))
            matching = i;
    }
    free(result);
    if (matching == SIZE_MAX)
        status_fail(&status, STATUS_DATA_LOSS, "action %zu: %s (version %d was acknowledged)",
                    action, found ? "another result came back" : "no result came back",
                    newest == SIZE_MAX ? 0 : journal->versions[newest].version);
    else if (!outputs_were_read(checker, &journal->versions[matching]))
        status_fail(&status, STATUS_DATA_LOSS, "action %zu came back, and an output is missing",
                    action);
    if (status.code != STATUS_OK) {
        note_failure(checker, &status);
        return;
    }
    journal_acknowledge_version(journal, matching);
    atomic_fetch_add(&checker->actions, 1);
}

static void check_actions(void *argument)
{
    struct checker *const checker = argument;
    while (!atomic_load(&checker->failed)) {
        const size_t action = atomic_fetch_add(&checker->next, 1);
        if (action >= checker->journal->action_count)
            break;
        check_action(checker, action);
    }
}
