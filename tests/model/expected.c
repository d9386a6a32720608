/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/expected.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "store/blob_reader.h"

enum { FORGED_RECORDS = 5, FORGED_EVERY = 8 };

static size_t random_length(struct prng *prng, size_t number);
static void fill(uint8_t *data, size_t length, struct prng *prng);
static void make_forged(struct content *content, struct content *inner, struct prng *prng);
static void note_places(struct seen *seen, struct store *store, const struct contents *contents);

/* ---- contents */

struct contents *contents_new(uint64_t seed)
{
    struct prng prng = {.state = seed};
    struct contents *const contents = calloc(1, sizeof(*contents));
    ASSERT(contents != NULL);
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        struct content *const content = &contents->blobs[i];
        if (i > 0 && i % FORGED_EVERY == 0) {
            make_forged(content, &contents->blobs[i - 1], &prng);
            continue;
        }
        content->length = random_length(&prng, i);
        content->data = malloc(content->length);
        ASSERT(content->data != NULL);
        fill(content->data, content->length, &prng);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(content->data, content->length),
                        &content->digest);
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        char text[32];
        const int length = snprintf(text, sizeof(text), "action %zu of %" PRIu64, i / 2, seed);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(text, (size_t)length),
                        &contents->actions[i]);
    }
    return contents;
}

/* Most are small; enough are large to fill segments. */
static size_t random_length(struct prng *prng, size_t number)
{
    if (number % 40 == 7)
        return LIMIT_SMALL_BLOB_BYTES + 1 + prng_below(prng, 9 * LIMIT_CHUNK_BYTES / 4);
    if (number % 5 == 3)
        return 1 + prng_below(prng, LIMIT_SMALL_BLOB_BYTES);
    if (number % 10 == 5)
        return 1 + prng_below(prng, 20000);
    return 1 + prng_below(prng, 700);
}

static void fill(uint8_t *data, size_t length, struct prng *prng)
{
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        const uint64_t word = prng_next(prng);
        memcpy(data + at, &word, 8);
    }
    for (; at < length; at++)
        data[at] = (uint8_t)prng_next(prng);
}

/*
 * The outer blob is a piece of somebody else's segment: sound records of the inner blob, but for
 * the uid, which is that of another segment. Nobody ever sends the inner one.
 */
static void make_forged(struct content *content, struct content *inner, struct prng *prng)
{
    static const uint64_t other_uid = UINT64_C(0x0123456789abcdef);
    const uint64_t inner_bytes = 1 + prng_below(prng, 500);
    const uint64_t stored_bytes = record_stored_bytes(inner_bytes);
    free(inner->data);
    *inner = (struct content){.kind = CONTENT_NEVER, .length = (size_t)inner_bytes};
    inner->data = malloc(inner->length);
    *content =
        (struct content){.kind = CONTENT_FORGED, .length = (size_t)(FORGED_RECORDS * stored_bytes)};
    content->data = calloc(1, content->length);
    ASSERT(inner->data != NULL && content->data != NULL);
    fill(inner->data, inner->length, prng);
    const struct bytes payload = bytes_of(inner->data, inner->length);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, payload, &inner->digest);

    for (uint64_t i = 0; i < FORGED_RECORDS; i++) {
        struct record_header header = {
            .magic = RECORD_MAGIC,
            .version = FORMAT_VERSION,
            .kind = RECORD_BLOB,
            .digest_function = inner->digest.function,
            .codec = RECORD_CODEC_RAW,
            .seq = 1 + prng_below(prng, 2000),
            .payload_bytes = inner_bytes,
            .blob_size = inner_bytes,
            .digest_bytes = inner->digest.hash_length,
            .payload_crc32c = crc32c(0, payload),
        };
        memcpy(header.digest, inner->digest.hash, sizeof(header.digest));
        record_header_seal(&header, other_uid);
        memcpy(content->data + i * stored_bytes, &header, sizeof(header));
        memcpy(content->data + i * stored_bytes + sizeof(header), inner->data, inner->length);
    }
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(content->data, content->length),
                    &content->digest);
}

void contents_free(struct contents *contents)
{
    for (size_t i = 0; i < MODEL_BLOBS; i++)
        free(contents->blobs[i].data);
    free(contents);
}

struct bytes contents_instance(size_t action)
{
    return action % 2 == 0 ? bytes_of(NULL, 0) : bytes_of_string("main/linux");
}

size_t contents_result(size_t action, size_t version, uint8_t result[RESULT_BYTES_MAX])
{
    struct prng prng = {.state = action * 1000 + version};
    const size_t length = 16 + prng_below(&prng, chance(&prng, 12) ? RESULT_BYTES_MAX - 16 : 400);
    fill(result, length, &prng);
    memcpy(result, &action, 8);
    memcpy(result + 8, &version, 8);
    return length;
}

/* ---- what is known */

void expected_init(struct expected *expected)
{
    memset(expected, 0, sizeof(*expected));
    for (size_t i = 0; i < MODEL_ACTIONS; i++)
        expected->actions[i].may_be_absent = true;
}

void expected_blob_sent(struct expected_blob *blob)
{
    blob->may = true;
    blob->sent++;
    blob->in_flight++;
}

void expected_blob_answered(struct expected_blob *blob, uint32_t removed, bool ok)
{
    blob->in_flight--;
    blob->failed = blob->failed || !ok;
    if (ok && blob->removed == removed)
        blob->must = true;
}

size_t expected_action_sent(struct expected_action *action)
{
    const uint32_t version = action->sent++;
    ASSERT(version < MODEL_VERSIONS);
    action->allowed |= UINT64_C(1) << version;
    action->in_flight++;
    return version;
}

/* An acknowledged version has replaced the older ones durably. */
void expected_action_answered(struct expected_action *action,
                              size_t version,
                              uint32_t removed,
                              bool ok)
{
    action->in_flight--;
    action->failed = action->failed || !ok;
    if (!ok)
        return;
    action->allowed &= ~((UINT64_C(1) << version) - 1);
    if (action->removed == removed)
        action->may_be_absent = false;
}

void expected_blob_removed(struct expected_blob *blob)
{
    blob->must = false;
    blob->removed++;
}

void expected_action_removed(struct expected_action *action)
{
    action->may_be_absent = true;
    action->removed++;
}

void expected_learn(struct expected *expected, const struct seen *seen)
{
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        struct expected_blob *const blob = &expected->blobs[i];
        blob->must = seen->blobs[i];
        blob->may = seen->blobs[i];
        blob->shaky = false;
        blob->failed = false;
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        struct expected_action *const action = &expected->actions[i];
        const int version = seen->versions[i];
        action->allowed = version < 0 ? 0 : UINT64_C(1) << version;
        action->may_be_absent = version < 0;
        action->shaky = false;
        action->failed = false;
    }
}

/* ---- what a store has */

void seen_in_store(struct seen *seen,
                   struct store *store,
                   const struct contents *contents,
                   enum look look,
                   struct prng *prng)
{
    static struct digest digests[MODEL_BLOBS];
    for (size_t i = 0; i < MODEL_BLOBS; i++)
        digests[i] = contents->blobs[i].digest;
    store_has_blobs(store, digests, MODEL_BLOBS, seen->blobs);
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        const struct content *const content = &contents->blobs[i];
        bool there = store_has_blob(store, &content->digest);
        if (there != seen->blobs[i])
            model_fail("blob %zu: asked alone it is %s, with others it is not", i,
                       there ? "there" : "missing");
        if (there && look == LOOK_AT_SMALL_AND_SOME && content->length > 30000 && !chance(prng, 8))
            continue;
        if (!look_at_blob(store, content, &there))
            model_fail("blob %zu: the disk fails to read it", i);
        if (there != seen->blobs[i])
            model_fail("blob %zu (%zu bytes): FindMissing says %s, a read says %s", i,
                       content->length, there ? "missing" : "there", there ? "there" : "missing");
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++)
        if (!look_at_action(store, contents, i, &seen->versions[i]))
            model_fail("action %zu: the disk fails to read it", i);
    note_places(seen, store, contents);
}

static void note_places(struct seen *seen, struct store *store, const struct contents *contents)
{
    struct blob_table *const table = store->table;
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        struct blob_use use = {0};
        blob_table_look(table, blob_table_blob_key(table, &contents->blobs[i].digest), &use);
        seen->blob_places[i] = use.place;
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        struct blob_use use = {0};
        blob_table_look(
            table, blob_table_action_key(table, &contents->actions[i], contents_instance(i)), &use);
        seen->action_places[i] = use.place;
    }
}

bool disk_failed(struct store *store, const struct status *status, int64_t unreadable_before)
{
    return status->code == STATUS_UNAVAILABLE ||
           (status->code == STATUS_DATA_LOSS &&
            metrics_get(store->metrics, METRIC_RECORDS_UNREADABLE) > unreadable_before);
}

bool look_at_blob(struct store *store, const struct content *content, bool *there)
{
    uint8_t *data = NULL;
    struct place place = {0};
    struct status status;
    char text[DIGEST_TEXT_BYTES_MAX];
    const int64_t unreadable = metrics_get(store->metrics, METRIC_RECORDS_UNREADABLE);
    if (!blob_read_whole(store, &content->digest, UINT64_MAX, &data, &place, &status)) {
        if (disk_failed(store, &status, unreadable))
            return false;
        model_fail("reading failed: %s: %s", status_code_name(status.code), status.message);
    }
    *there = data != NULL;
    if (*there && memcmp(data, content->data, content->length) != 0)
        model_fail("wrong bytes of %s, from segment %" PRIu64 " at %" PRIu64,
                   digest_text(&content->digest, text), place.segment, place.offset);
    free(data);
    return true;
}

bool look_at_action(struct store *store,
                    const struct contents *contents,
                    size_t action,
                    int *version)
{
    static uint8_t result[RESULT_BYTES_MAX];
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place = {0};
    struct status status;
    const int64_t unreadable = metrics_get(store->metrics, METRIC_RECORDS_UNREADABLE);
    if (!action_read(store, &contents->actions[action], contents_instance(action), &memory, &record,
                     &place, &status)) {
        if (disk_failed(store, &status, unreadable))
            return false;
        model_fail("action %zu: %s: %s", action, status_code_name(status.code), status.message);
    }
    *version = -1;
    if (memory == NULL)
        return true;
    size_t number = MODEL_VERSIONS;
    if (record.result.length >= 16)
        memcpy(&number, record.result.data + 8, 8);
    if (number >= MODEL_VERSIONS ||
        !bytes_equal(record.result, bytes_of(result, contents_result(action, number, result))))
        model_fail("action %zu: wrong bytes, from segment %" PRIu64 " at %" PRIu64, action,
                   place.segment, place.offset);
    *version = (int)number;
    free(memory);
    return true;
}

void seen_check(const struct seen *seen, const struct expected *expected, const char *what)
{
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        const struct expected_blob *const blob = &expected->blobs[i];
        if (!seen->blobs[i] && blob->must && !blob->shaky)
            model_fail("%s: blob %zu was acknowledged and is gone", what, i);
        if (seen->blobs[i] && !blob->may)
            model_fail("%s: blob %zu is there (segment %" PRIu64 " at %" PRIu64 "), which was %s",
                       what, i, seen->blob_places[i].segment, seen->blob_places[i].offset,
                       blob->sent == 0 ? "never sent" : "gone");
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        const struct expected_action *const action = &expected->actions[i];
        const int version = seen->versions[i];
        if (version < 0 && !action->may_be_absent && !action->shaky)
            model_fail("%s: the result of action %zu was acknowledged and is gone", what, i);
        if (version >= 0 && (action->allowed >> version & 1) == 0)
            model_fail("%s: action %zu has result %d of %" PRIu32 " (segment %" PRIu64
                       " at %" PRIu64 "), allowed are %" PRIx64,
                       what, i, version, action->sent, seen->action_places[i].segment,
                       seen->action_places[i].offset, action->allowed);
    }
}

void seen_compare(const struct seen *seen, const struct seen *other, const char *what)
{
    for (size_t i = 0; i < MODEL_BLOBS; i++)
        if (seen->blobs[i] != other->blobs[i])
            model_fail("%s: blob %zu is at %" PRIu64 ":%" PRIu64 ", before it was at %" PRIu64
                       ":%" PRIu64,
                       what, i, other->blob_places[i].segment, other->blob_places[i].offset,
                       seen->blob_places[i].segment, seen->blob_places[i].offset);
    for (size_t i = 0; i < MODEL_ACTIONS; i++)
        if (seen->versions[i] != other->versions[i])
            model_fail("%s: action %zu has result %d at %" PRIu64 ":%" PRIu64
                       ", before it had %d at %" PRIu64 ":%" PRIu64,
                       what, i, other->versions[i], other->action_places[i].segment,
                       other->action_places[i].offset, seen->versions[i],
                       seen->action_places[i].segment, seen->action_places[i].offset);
}
