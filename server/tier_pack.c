/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_pack.h"

#include <stdlib.h>

#include "store/blob_reader.h"
#include "store/find.h"

/* Two requests, and a pack that dies as a whole, should be worth more than this many objects. */
enum { BLOBS_MIN = 4, ROWS_AT_A_TIME = 256 };

struct building {
    struct tier_pusher *pusher;
    enum tier_look look;
    uint8_t *data; /* owned, as the next two */
    struct pack_row *rows;
    uint8_t *index; /* memory for the index object */
    size_t bytes, count;
};

static bool begin(struct building *building, const struct feed_entry *entries, size_t count);
static void end(struct building *building);
static void take(struct building *building, const struct digest *digest);
static enum tier_pushed send_pack(struct building *building, uint64_t *number);
static enum tier_pushed send_index(struct tier_pusher *pusher,
                                   uint64_t pack,
                                   const struct pack_row *rows,
                                   size_t count,
                                   uint64_t last,
                                   uint8_t *memory);
static bool try_object(struct tier_pusher *pusher,
                       const char *key,
                       struct bytes bytes,
                       unsigned tries,
                       bool *sent);
static uint64_t make_number(struct tier_pusher *pusher, uint64_t last);
static void note_sent(struct building *building, uint64_t number);

size_t tier_pack_bytes(const struct feed_entry *entry)
{
    const bool fits = entry->kind == RECORD_BLOB && entry->digest.size_bytes <= PACK_BLOB_BYTES_MAX;
    return fits ? (size_t)entry->digest.size_bytes : 0;
}

bool tier_pack_wants(struct tier_known *known, const struct feed_entry *entry, enum tier_look look)
{
    if (tier_pack_bytes(entry) == 0)
        return false;
    return look == TIER_AGAIN ? !tier_known_is_fresh(known, &entry->digest)
                              : !tier_known_has(known, &entry->digest);
}

enum tier_pushed tier_pack_push(struct tier_pusher *pusher,
                                const struct feed_entry *entries,
                                size_t count,
                                enum tier_look look)
{
    struct building building = {.pusher = pusher, .look = look};
    enum tier_pushed outcome = TIER_PUSHED;
    uint64_t number = 0;
    /* Without memory they go one by one. */
    if (begin(&building, entries, count)) {
        for (size_t i = 0; i < count; i++) {
            if (tier_pack_wants(pusher->push->known, &entries[i], look))
                take(&building, &entries[i].digest);
        }
        if (building.count >= BLOBS_MIN) {
            outcome = send_pack(&building, &number);
            if (outcome == TIER_PUSHED)
                outcome =
                    send_index(pusher, number, building.rows, building.count, 0, building.index);
            if (outcome == TIER_PUSHED)
                note_sent(&building, number);
        }
    }
    end(&building);
    return outcome;
}

/* False: they are too few, or there is no memory. */
static bool begin(struct building *building, const struct feed_entry *entries, size_t count)
{
    size_t bytes = 0;
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++) {
        if (!tier_pack_wants(building->pusher->push->known, &entries[i], building->look))
            continue;
        bytes += tier_pack_bytes(&entries[i]);
        wanted++;
    }
    ASSERT(bytes <= PACK_BYTES_MAX && wanted <= PACK_ROWS_MAX);
    if (wanted < BLOBS_MIN)
        return false;
    building->data = malloc(bytes);
    building->rows = malloc(wanted * sizeof(building->rows[0]));
    building->index = malloc(PACK_INDEX_HEAD_BYTES + wanted * PACK_INDEX_ROW_BYTES);
    return building->data != NULL && building->rows != NULL && building->index != NULL;
}

static void end(struct building *building)
{
    free(building->data);
    free(building->rows);
    free(building->index);
}

/* What became known or unreadable meanwhile, tier_push_blob() deals with; it never is more than begin() has counted. */
static void take(struct building *building, const struct digest *digest)
{
    struct tier_push *const push = building->pusher->push;
    struct blob_reader *reader = NULL;
    struct status ignored = {0};
    struct bytes data;
    struct place place;
    const size_t size = (size_t)digest->size_bytes;
    if (!store_find_blob(push->store, digest, FIND_ONLY, &place) ||
        !blob_reader_open_at(push->store, digest, place, &reader, &ignored) || reader == NULL)
        return;
    if (blob_reader_read(reader, 0, building->pusher->buffer, &data, &ignored) &&
        data.length == size) {
        memcpy(building->data + building->bytes, data.data, size);
        building->rows[building->count++] =
            (struct pack_row){.digest = *digest, .offset = (uint32_t)building->bytes};
        building->bytes += size;
    }
    blob_reader_free(reader);
}

static enum tier_pushed send_pack(struct building *building, uint64_t *number)
{
    struct tier_pusher *const pusher = building->pusher;
    char key[BUCKET_KEY_BYTES_MAX];
    bool sent = false;
    *number = make_number(pusher, 0);
    layout_pack_key(pusher->push->prefix, *number, key);
    for (unsigned tries = 0; !sent; tries++) {
        if (!try_object(pusher, key, bytes_of(building->data, building->bytes), tries, &sent))
            return TIER_PUSH_STOPPED;
    }
    return TIER_PUSHED;
}

/* Each attempt has a new number: other nodes look for those of the last minutes. Two of the same are no harm. */
static enum tier_pushed send_index(struct tier_pusher *pusher,
                                   uint64_t pack,
                                   const struct pack_row *rows,
                                   size_t count,
                                   uint64_t last,
                                   uint8_t *memory)
{
    const size_t bytes = PACK_INDEX_HEAD_BYTES + count * PACK_INDEX_ROW_BYTES;
    char key[BUCKET_KEY_BYTES_MAX];
    bool sent = false;
    for (unsigned tries = 0; !sent; tries++) {
        const uint64_t number = make_number(pusher, last);
        pack_index_encode(number, pack, rows, count, memory);
        layout_pack_index_key(pusher->push->prefix, number, key);
        if (!try_object(pusher, key, bytes_of(memory, bytes), tries, &sent))
            return TIER_PUSH_STOPPED;
    }
    return TIER_PUSHED;
}

/* As tier_push_try(), of what is in memory. */
static bool try_object(struct tier_pusher *pusher,
                       const char *key,
                       struct bytes bytes,
                       unsigned tries,
                       bool *sent)
{
    struct bucket_memory memory = {.bytes = bytes};
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes, &digest);
    const struct bucket_put put = {.key = key,
                                   .source = bucket_source_of(&memory),
                                   .sha256 = digest.hash,
                                   .notes = {{"varve-format", "1"}},
                                   .note_count = 1};
    return tier_push_try(pusher, &put, tries, sent);
}

/* Of now, and above `last`. */
static uint64_t make_number(struct tier_pusher *pusher, uint64_t last)
{
    const uint64_t number =
        pack_number(clock_wall_ns(pusher->push->store->clock), tier_pusher_chance(pusher));
    return number > last ? number : last + 1;
}

static void note_sent(struct building *building, uint64_t number)
{
    struct tier_push *const push = building->pusher->push;
    struct bucket_row rows[ROWS_AT_A_TIME];
    for (size_t from = 0; from < building->count; from += ROWS_AT_A_TIME) {
        const size_t some =
            building->count - from < ROWS_AT_A_TIME ? building->count - from : ROWS_AT_A_TIME;
        for (size_t i = 0; i < some; i++)
            rows[i] = (struct bucket_row){.digest = building->rows[from + i].digest,
                                          .pack = number,
                                          .offset = building->rows[from + i].offset,
                                          .since_s = pack_number_seconds(number)};
        tier_known_add_many(push->known, rows, some);
    }
    metrics_add(push->metrics, METRIC_TIER_PACKS, 1);
    metrics_add(push->metrics, METRIC_TIER_PACKED, (int64_t)building->count);
    if (building->look == TIER_AGAIN)
        metrics_add(push->metrics, METRIC_TIER_REFRESHED, (int64_t)building->count);
}

enum tier_pushed tier_pack_push_deletions(struct tier_pusher *pusher,
                                          const struct digest *digests,
                                          size_t count,
                                          uint64_t last)
{
    struct tier_push *const push = pusher->push;
    struct pack_row *rows = NULL;
    uint8_t *memory = NULL;
    for (;;) {
        rows = calloc(count, sizeof(rows[0]));
        memory = malloc(PACK_INDEX_HEAD_BYTES + count * PACK_INDEX_ROW_BYTES);
        if (rows != NULL && memory != NULL)
            break;
        free(rows);
        free(memory);
        if (!tier_push_pause(push, NS_PER_S))
            return TIER_PUSH_STOPPED;
    }
    for (size_t i = 0; i < count; i++)
        rows[i].digest = digests[i];
    const enum tier_pushed outcome = send_index(pusher, 0, rows, count, last, memory);
    /* Whoever has read the pack's index meanwhile may have noted them again. */
    if (outcome == TIER_PUSHED)
        tier_known_drop_before(push->known, digests, count, make_number(pusher, last));
    free(rows);
    free(memory);
    return outcome;
}
