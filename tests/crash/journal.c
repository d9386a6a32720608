/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/crash/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"

typedef Build__Bazel__Remote__Execution__V2__ActionResult action_result;
typedef Build__Bazel__Remote__Execution__V2__OutputFile output_file;
typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;

enum { PATTERN_BYTES = 65536, BLOCK_BYTES = 4096 };

static void read_line(struct journal *journal, const char *path, char *line);
static size_t add_blob(struct journal *journal,
                       uint64_t seed,
                       const struct digest *digest,
                       enum sent_state state);
static size_t add_version(struct journal *journal, const struct sent_version *sent);
static void make_room(void **items, size_t count, size_t *capacity, size_t item_bytes);
static const uint8_t *pattern(void);
static void put_digest(const struct digest *digest,
                       digest_message *message,
                       char hex[DIGEST_HASH_HEX_MAX + 1]);

void journal_open(struct journal *journal, const char *path)
{
    char *line = NULL;
    size_t line_bytes = 0;
    *journal = (struct journal){0};
    lock_init(&journal->lock, LOCK_RANK_LEAF);
    journal->file = fopen(path, "a+e");
    if (journal->file == NULL) {
        fprintf(stderr, "journal %s: cannot be opened (errno %d)\n", path, errno);
        exit(2);
    }
    rewind(journal->file);
    while (getline(&line, &line_bytes, journal->file) > 0)
        read_line(journal, path, line);
    free(line);
    setvbuf(journal->file, NULL, _IOLBF, 0);
}

/* Lines that name a blob or a version number them, in the order of the file. */
static void read_line(struct journal *journal, const char *path, char *line)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    uint64_t seed = 0;
    size_t number = 0;
    struct sent_version sent = {0};
    struct digest digest;
    struct status status = {0};
    size_t *const outputs = sent.outputs;
    if (sscanf(line, "blob %" SCNx64 " %151s", &seed, text) == 2 &&
        digest_parse_text(bytes_of_string(text), &digest, &status)) {
        add_blob(journal, seed, &digest, SENT_WAITING);
    } else if (sscanf(line, "broken %" SCNx64 " %151s", &seed, text) == 2 &&
               digest_parse_text(bytes_of_string(text), &digest, &status)) {
        add_blob(journal, seed, &digest, SENT_BROKEN);
    } else if (sscanf(line, "there %zu", &number) == 1 && number < journal->blob_count) {
        journal->blobs[number].state = SENT_ACKNOWLEDGED;
    } else if (sscanf(line, "version %zu %" SCNd32 " %zu %zu %zu", &sent.action, &sent.version,
                      &outputs[0], &outputs[1], &outputs[2]) == 5 &&
               outputs[0] < journal->blob_count && outputs[1] < journal->blob_count &&
               outputs[2] < journal->blob_count) {
        if (sent.action >= journal->action_count)
            journal->action_count = sent.action + 1;
        add_version(journal, &sent);
    } else if (sscanf(line, "stored %zu", &number) == 1 && number < journal->version_count) {
        journal->versions[number].acknowledged = true;
    } else {
        fprintf(stderr, "journal %s: this line is not understood: %s\n", path, line);
        exit(2);
    }
}
static_assert(DIGEST_TEXT_BYTES_MAX == 152, "as wide as the formats above say");

void journal_close(struct journal *journal)
{
    fclose(journal->file);
    free(journal->blobs);
    free(journal->versions);
    lock_destroy(&journal->lock);
}

void sent_bytes_fill(uint64_t seed, uint8_t *to, size_t length)
{
    const uint8_t *const source = pattern();
    for (uint64_t block = 0; block * BLOCK_BYTES < length; block++) {
        uint8_t *const at = to + block * BLOCK_BYTES;
        const size_t left = length - block * BLOCK_BYTES;
        const size_t part = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        const uint64_t stamp[2] = {seed, block};
        memcpy(at, source + (seed + block * 7) % (PATTERN_BYTES - BLOCK_BYTES), part);
        memcpy(at, stamp, part < sizeof(stamp) ? part : sizeof(stamp));
    }
}

static uint8_t pattern_bytes[PATTERN_BYTES];
static pthread_once_t pattern_once = PTHREAD_ONCE_INIT;

static void make_pattern(void)
{
    struct prng prng = {.state = 2026};
    for (size_t i = 0; i < PATTERN_BYTES; i += sizeof(uint64_t)) {
        const uint64_t number = prng_next(&prng);
        memcpy(&pattern_bytes[i], &number, sizeof(number));
    }
}

static const uint8_t *pattern(void)
{
    ASSERT(pthread_once(&pattern_once, make_pattern) == 0);
    return pattern_bytes;
}

size_t journal_add_blob(struct journal *journal,
                        uint64_t seed,
                        enum sent_state state,
                        uint8_t *data,
                        size_t length)
{
    struct digest digest;
    char text[DIGEST_TEXT_BYTES_MAX];
    sent_bytes_fill(seed, data, length);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, length), &digest);
    lock_acquire(&journal->lock);
    const size_t number = add_blob(journal, seed, &digest, state);
    fprintf(journal->file, "%s %016" PRIx64 " %s\n", state == SENT_BROKEN ? "broken" : "blob", seed,
            digest_text(&digest, text));
    lock_release(&journal->lock);
    return number;
}

static size_t add_blob(struct journal *journal,
                       uint64_t seed,
                       const struct digest *digest,
                       enum sent_state state)
{
    make_room((void **)&journal->blobs, journal->blob_count, &journal->blob_capacity,
              sizeof(*journal->blobs));
    journal->blobs[journal->blob_count] =
        (struct sent_blob){.seed = seed, .digest = *digest, .state = state};
    return journal->blob_count++;
}

static void make_room(void **items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return;
    *capacity = *capacity == 0 ? 1024 : 2 * *capacity;
    *items = realloc(*items, *capacity * item_bytes);
    ASSERT(*items != NULL);
}

void journal_acknowledge_blob(struct journal *journal, size_t number)
{
    lock_acquire(&journal->lock);
    ASSERT(number < journal->blob_count && journal->blobs[number].state != SENT_BROKEN);
    if (journal->blobs[number].state != SENT_ACKNOWLEDGED)
        fprintf(journal->file, "there %zu\n", number);
    journal->blobs[number].state = SENT_ACKNOWLEDGED;
    lock_release(&journal->lock);
}

bool journal_pick_waiting(struct journal *journal,
                          struct prng *prng,
                          size_t bytes_max,
                          size_t *number,
                          struct sent_blob *blob)
{
    enum { LOOKED_AT_MAX = 2000 };
    bool found = false;
    lock_acquire(&journal->lock);
    size_t at = journal->blob_count > 0 ? prng_below(prng, journal->blob_count) : 0;
    for (size_t i = 0; i < LOOKED_AT_MAX && at < journal->blob_count && !found; i++, at++) {
        const struct sent_blob *const candidate = &journal->blobs[at];
        found =
            candidate->state == SENT_WAITING && (uint64_t)candidate->digest.size_bytes <= bytes_max;
        if (found) {
            *number = at;
            *blob = *candidate;
        }
    }
    lock_release(&journal->lock);
    return found;
}

size_t journal_add_action(struct journal *journal)
{
    lock_acquire(&journal->lock);
    const size_t action = journal->action_count++;
    lock_release(&journal->lock);
    return action;
}

size_t journal_add_version(struct journal *journal,
                           size_t action,
                           const size_t outputs[ACTION_OUTPUTS],
                           struct sent_version *sent)
{
    *sent = (struct sent_version){.action = action, .version = 1};
    memcpy(sent->outputs, outputs, sizeof(sent->outputs));
    lock_acquire(&journal->lock);
    for (size_t i = 0; i < journal->version_count; i++) {
        if (journal->versions[i].action == action && journal->versions[i].version >= sent->version)
            sent->version = journal->versions[i].version + 1;
    }
    const size_t number = add_version(journal, sent);
    fprintf(journal->file, "version %zu %" PRId32 " %zu %zu %zu\n", action, sent->version,
            outputs[0], outputs[1], outputs[2]);
    lock_release(&journal->lock);
    return number;
}

static size_t add_version(struct journal *journal, const struct sent_version *sent)
{
    make_room((void **)&journal->versions, journal->version_count, &journal->version_capacity,
              sizeof(*journal->versions));
    journal->versions[journal->version_count] = *sent;
    return journal->version_count++;
}

void journal_acknowledge_version(struct journal *journal, size_t number)
{
    lock_acquire(&journal->lock);
    ASSERT(number < journal->version_count);
    if (!journal->versions[number].acknowledged)
        fprintf(journal->file, "stored %zu\n", number);
    journal->versions[number].acknowledged = true;
    lock_release(&journal->lock);
}

void sent_action_digest(size_t action, struct digest *digest)
{
    char text[64];
    snprintf(text, sizeof(text), "action number %zu of a crash test", action);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(text), digest);
}

static void put_digest(const struct digest *digest,
                       digest_message *message,
                       char hex[DIGEST_HASH_HEX_MAX + 1])
{
    build__bazel__remote__execution__v2__digest__init(message);
    digest_hex(digest, hex);
    message->hash = hex;
    message->size_bytes = digest->size_bytes;
}

uint8_t *sent_version_encode(struct journal *journal,
                             const struct sent_version *sent,
                             size_t *length)
{
    char hex[ACTION_OUTPUTS][DIGEST_HASH_HEX_MAX + 1];
    char path[ACTION_OUTPUTS][16];
    digest_message digests[ACTION_OUTPUTS];
    output_file files[ACTION_OUTPUTS - 1];
    output_file *pointers[ACTION_OUTPUTS - 1];
    action_result result;
    build__bazel__remote__execution__v2__action_result__init(&result);
    for (size_t i = 0; i < ACTION_OUTPUTS; i++) {
        lock_acquire(&journal->lock);
        const struct digest digest = journal->blobs[sent->outputs[i]].digest;
        lock_release(&journal->lock);
        put_digest(&digest, &digests[i], hex[i]);
    }
    for (size_t i = 0; i < ACTION_OUTPUTS - 1; i++) {
        build__bazel__remote__execution__v2__output_file__init(&files[i]);
        snprintf(path[i], sizeof(path[i]), "out/%zu", i);
        files[i].path = path[i];
        files[i].digest = &digests[i];
        pointers[i] = &files[i];
    }
    result.n_output_files = ACTION_OUTPUTS - 1;
    result.output_files = pointers;
    result.stdout_digest = &digests[ACTION_OUTPUTS - 1];
    result.exit_code = sent->version;
    *length = build__bazel__remote__execution__v2__action_result__get_packed_size(&result);
    uint8_t *const packed = malloc(*length);
    ASSERT(packed != NULL);
    build__bazel__remote__execution__v2__action_result__pack(&result, packed);
    return packed;
}

static bool same_digest(const digest_message *message, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    return message != NULL && message->size_bytes == digest->size_bytes &&
           strcmp(message->hash, digest_hex(digest, hex)) == 0;
}

bool sent_version_matches(struct journal *journal,
                          const struct sent_version *sent,
                          const uint8_t *bytes,
                          size_t length)
{
    action_result *const result =
        build__bazel__remote__execution__v2__action_result__unpack(NULL, length, bytes);
    if (result == NULL)
        return false;
    bool same = result->exit_code == sent->version && result->n_output_files == ACTION_OUTPUTS - 1;
    for (size_t i = 0; same && i < ACTION_OUTPUTS; i++)
        same = same_digest(i < ACTION_OUTPUTS - 1 ? result->output_files[i]->digest
                                                  : result->stdout_digest,
                           &journal->blobs[sent->outputs[i]].digest);
    build__bazel__remote__execution__v2__action_result__free_unpacked(result, NULL);
    return same;
}
