/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier_known.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"

/* A blob has a choice of so many places, so that few are lost before all are full. */
enum { WAYS = 4, SECONDS_OF_HOUR = 3600 };

/* The offset in a row that says up to which pack the blob was deleted, and not where it is. */
#define OFFSET_OF_DELETED UINT32_MAX

/* Kept with the rows once what is in packs was read to its end. */
static const char note_whole[] = "packs-whole";

/* Whoever finds two blobs of the same 20 bytes and size has the second one's action result told too early, no more. */
struct slot {
    uint8_t hash[20];
    uint32_t size;       /* its lower half: a digest of another size names nothing */
    uint32_t since_hour; /* since 1970; 0: free */
};

/* One that another one takes the place of is asked for again. */
struct absent {
    uint8_t hash[24];
    int64_t until_ns; /* CLOCK_MONOTONIC; 0: free */
};

struct tier_known {
    /* Set when it is made, never changed. */
    struct clock *clock;        /* borrowed */
    int64_t young_s;            /* 0: for ever */
    struct bucket_index *index; /* owned; NULL: nothing is kept beyond this process */
    _Atomic bool whole;         /* false, then true */

    struct lock writing; /* of the index, so that it is told in the order in which the memory is */
    bool failing;        /* guarded by writing: the index was not told of something; logged once */

    struct lock lock;
    /* Guarded by lock, as the next. In groups of WAYS, by the hash's last bytes; 28 bytes each, used as they are needed. */
    struct slot slots[TIER_KNOWN_MAX];
    uint64_t drops;
    struct absent absents[TIER_ABSENT_MAX]; /* by the hash's last bytes */
};

static bool find(struct tier_known *known, const struct digest *digest, int64_t *since_s);
static bool is_in_index(struct tier_known *known,
                        const struct digest *digest,
                        uint64_t drops,
                        int64_t *since_s);
static bool add_unless_locked(struct tier_known *known,
                              const struct bucket_row *rows,
                              size_t count,
                              uint64_t drops) REQUIRES(known->writing);
static bool drop_row(struct tier_known *known,
                     const struct digest *digest,
                     uint64_t before,
                     struct status *status) REQUIRES(known->writing);
static int64_t since_or_now(const struct tier_known *known, int64_t since_s);
static void add_locked(struct tier_known *known, const struct digest *digest, int64_t since_s)
    REQUIRES(known->lock);
static void note_failure_locked(struct tier_known *known, bool ok, const struct status *status)
    REQUIRES(known->writing);

/* None of those that a slot keeps. */
static uint32_t last_bytes(const struct digest *digest)
{
    uint32_t last;
    ASSERT(digest->hash_length >= sizeof(((struct absent *)NULL)->hash) + sizeof(last));
    memcpy(&last, digest->hash + digest->hash_length - sizeof(last), sizeof(last));
    return last;
}

static struct slot *group_of(struct tier_known *known, const struct digest *digest)
{
    return &known->slots[last_bytes(digest) % (TIER_KNOWN_MAX / WAYS) * WAYS];
}

/* NULL: it is not known. */
static struct slot *slot_of_locked(struct tier_known *known, const struct digest *digest)
    REQUIRES(known->lock)
{
    struct slot *const group = group_of(known, digest);
    for (size_t i = 0; i < WAYS; i++) {
        if (memcmp(group[i].hash, digest->hash, sizeof(group[i].hash)) == 0 &&
            group[i].size == (uint32_t)digest->size_bytes)
            return &group[i];
    }
    return NULL;
}

/* Where it is, or else what is free, or has been there for longest. */
static struct slot *place_for_locked(struct tier_known *known, const struct digest *digest)
    REQUIRES(known->lock)
{
    struct slot *const group = group_of(known, digest);
    struct slot *place = slot_of_locked(known, digest);
    for (size_t i = 0; place == NULL && i < WAYS; i++) {
        if (group[i].since_hour == 0)
            place = &group[i];
    }
    if (place != NULL)
        return place;
    place = &group[0];
    for (size_t i = 1; i < WAYS; i++) {
        if (group[i].since_hour < place->since_hour)
            place = &group[i];
    }
    return place;
}

bool tier_known_new(const struct tier_known_config *config,
                    struct tier_known **known,
                    struct status *status)
{
    struct tier_known *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "what is known of the bucket");
    made->clock = config->clock;
    made->young_s = config->young_s;
    lock_init(&made->writing, LOCK_RANK_TIER_INDEX);
    lock_init(&made->lock, LOCK_RANK_TIER);
    const struct bucket_index_config index = {
        .path = config->path, .place = config->place, .keep_s = 2 * config->young_s};
    if (config->path != NULL && !bucket_index_open(&index, &made->index, status)) {
        tier_known_free(made);
        return false;
    }
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    tier_known_note(made, note_whole, text);
    atomic_init(&made->whole, made->index == NULL || text[0] != '\0');
    *known = made;
    return true;
}

void tier_known_free(struct tier_known *known)
{
    if (known == NULL)
        return;
    bucket_index_close(known->index);
    lock_destroy(&known->lock);
    lock_destroy(&known->writing);
    free(known);
}

bool tier_known_has(struct tier_known *known, const struct digest *digest)
{
    int64_t since_s;
    return find(known, digest, &since_s) && tier_known_is_young(known, since_s);
}

bool tier_known_is_fresh(struct tier_known *known, const struct digest *digest)
{
    int64_t since_s;
    const int64_t now_s = clock_wall_ns(known->clock) / NS_PER_S;
    return find(known, digest, &since_s) &&
           (known->young_s == 0 || now_s - since_s < tier_known_refresh_after_s(known));
}

/* Is it known, however old it is? */
static bool find(struct tier_known *known, const struct digest *digest, int64_t *since_s)
{
    lock_acquire(&known->lock);
    const struct slot *const slot = slot_of_locked(known, digest);
    const bool has = slot != NULL && slot->since_hour != 0;
    *since_s = has ? (int64_t)slot->since_hour * SECONDS_OF_HOUR : 0;
    const uint64_t drops = known->drops;
    lock_release(&known->lock);
    return has || is_in_index(known, digest, drops, since_s);
}

/* And then it is in memory, too. */
static bool is_in_index(struct tier_known *known,
                        const struct digest *digest,
                        uint64_t drops,
                        int64_t *since_s)
{
    struct bucket_row row;
    if (!tier_known_where(known, digest, &row))
        return false;
    *since_s = row.since_s;
    lock_acquire(&known->lock);
    const bool same = known->drops == drops;
    if (same)
        add_locked(known, digest, row.since_s);
    lock_release(&known->lock);
    return same;
}

void tier_known_add(struct tier_known *known, const struct digest *digest, int64_t since_s)
{
    const struct bucket_row row = {.digest = *digest, .since_s = since_or_now(known, since_s)};
    tier_known_add_many(known, &row, 1);
}

void tier_known_add_many(struct tier_known *known, const struct bucket_row *rows, size_t count)
{
    lock_acquire(&known->writing);
    const bool added = add_unless_locked(known, rows, count, tier_known_drops(known));
    ASSERT(added); /* nobody else drops meanwhile */
    lock_release(&known->writing);
}

bool tier_known_add_many_unless(struct tier_known *known,
                                const struct bucket_row *rows,
                                size_t count,
                                uint64_t drops)
{
    lock_acquire(&known->writing);
    const bool added = add_unless_locked(known, rows, count, drops);
    lock_release(&known->writing);
    return added;
}

static bool add_unless_locked(struct tier_known *known,
                              const struct bucket_row *rows,
                              size_t count,
                              uint64_t drops)
{
    struct status status = {0};
    if (tier_known_drops(known) != drops)
        return false;
    /* Whoever finds one in memory finds in the index where it is. */
    if (known->index != NULL && count > 0)
        note_failure_locked(known, bucket_index_put(known->index, rows, count, &status), &status);
    lock_acquire(&known->lock);
    for (size_t i = 0; i < count; i++)
        add_locked(known, &rows[i].digest, rows[i].since_s);
    lock_release(&known->lock);
    return true;
}

static int64_t since_or_now(const struct tier_known *known, int64_t since_s)
{
    return since_s != 0 ? since_s : clock_wall_ns(known->clock) / NS_PER_S;
}

static struct absent *absent_locked(struct tier_known *known, const struct digest *digest)
    REQUIRES(known->lock)
{
    return &known->absents[last_bytes(digest) % TIER_ABSENT_MAX];
}

bool tier_known_is_absent(struct tier_known *known, const struct digest *digest)
{
    const int64_t now_ns = clock_monotonic_ns(known->clock);
    lock_acquire(&known->lock);
    const struct absent *const absent = absent_locked(known, digest);
    const bool is =
        now_ns < absent->until_ns && memcmp(absent->hash, digest->hash, sizeof(absent->hash)) == 0;
    lock_release(&known->lock);
    return is;
}

void tier_known_add_absent(struct tier_known *known, const struct digest *digest)
{
    const int64_t until_ns = clock_monotonic_ns(known->clock) + TIER_ABSENT_NS;
    lock_acquire(&known->lock);
    struct absent *const absent = absent_locked(known, digest);
    memcpy(absent->hash, digest->hash, sizeof(absent->hash));
    absent->until_ns = until_ns;
    lock_release(&known->lock);
}

static void add_locked(struct tier_known *known, const struct digest *digest, int64_t since_s)
{
    struct absent *const absent = absent_locked(known, digest);
    if (memcmp(absent->hash, digest->hash, sizeof(absent->hash)) == 0)
        absent->until_ns = 0;
    struct slot *const slot = place_for_locked(known, digest);
    const int64_t hour = since_s / SECONDS_OF_HOUR;
    memcpy(slot->hash, digest->hash, sizeof(slot->hash));
    slot->size = (uint32_t)digest->size_bytes;
    slot->since_hour = hour > 0 ? (uint32_t)hour : 1;
}

bool tier_known_where(struct tier_known *known, const struct digest *digest, struct bucket_row *row)
{
    struct status ignored = {0};
    if (known->index != NULL && bucket_index_get(known->index, digest, row, &ignored) &&
        row->digest.size_bytes == digest->size_bytes && row->offset != OFFSET_OF_DELETED)
        return true;
    *row = (struct bucket_row){.digest = *digest};
    return false;
}

bool tier_known_size(struct tier_known *known, struct digest *digest)
{
    struct bucket_row row;
    struct status ignored = {0};
    if (known->index == NULL || !bucket_index_get(known->index, digest, &row, &ignored) ||
        row.offset == OFFSET_OF_DELETED)
        return false;
    digest->size_bytes = row.digest.size_bytes;
    return true;
}

bool tier_known_was_deleted(struct tier_known *known, const struct digest *digest, uint64_t pack)
{
    struct bucket_row row;
    struct status ignored = {0};
    return known->index != NULL && bucket_index_get(known->index, digest, &row, &ignored) &&
           row.offset == OFFSET_OF_DELETED && pack < row.pack;
}

void tier_known_drop(struct tier_known *known, const struct digest *digest)
{
    tier_known_drop_before(known, digest, 1, 0);
}

void tier_known_drop_before(struct tier_known *known,
                            const struct digest *digests,
                            size_t count,
                            uint64_t before)
{
    struct status status = {0};
    bool ok = true;
    lock_acquire(&known->writing);
    for (size_t i = 0; i < count; i++) {
        struct bucket_row row;
        struct status ignored = {0};
        const bool has =
            known->index != NULL && bucket_index_get(known->index, &digests[i], &row, &ignored);
        if (has && before != 0 && row.pack >= before)
            continue; /* it is in a later one, or was deleted later */
        const bool deleted = has && before == 0 && row.offset == OFFSET_OF_DELETED;
        /* Whoever finds it in the index now sees below that it was dropped since, and does not note it again. */
        if (known->index != NULL && !deleted)
            ok = drop_row(known, &digests[i], before, &status) && ok;
        lock_acquire(&known->lock);
        struct slot *const slot = slot_of_locked(known, &digests[i]);
        if (slot != NULL)
            memset(slot, 0, sizeof(*slot));
        known->drops++;
        lock_release(&known->lock);
    }
    note_failure_locked(known, ok, &status);
    lock_release(&known->writing);
    /* It is told that they are gone: they are not to come back with a power cut. */
    if (known->index != NULL && !bucket_index_sync(known->index, &status)) {
        lock_acquire(&known->writing);
        note_failure_locked(known, false, &status);
        lock_release(&known->writing);
    }
}

static bool drop_row(struct tier_known *known,
                     const struct digest *digest,
                     uint64_t before,
                     struct status *status)
{
    const struct bucket_row deleted = {.digest = *digest,
                                       .pack = before,
                                       .offset = OFFSET_OF_DELETED,
                                       .since_s = since_or_now(known, 0)};
    return before != 0 ? bucket_index_put(known->index, &deleted, 1, status)
                       : bucket_index_drop(known->index, digest, status);
}

/* What the index was not told of is asked of the bucket again after the next start. */
static void note_failure_locked(struct tier_known *known, bool ok, const struct status *status)
{
    struct log_text quoted;
    if (!ok && !known->failing)
        log_event(LOG_LEVEL_WARN, "tier_index_not_written", "reason=%s",
                  log_quote(&quoted, status->message));
    known->failing = !ok;
}

uint64_t tier_known_drops(struct tier_known *known)
{
    lock_acquire(&known->lock);
    const uint64_t drops = known->drops;
    lock_release(&known->lock);
    return drops;
}

bool tier_known_is_whole(const struct tier_known *known)
{
    return atomic_load(&known->whole);
}

void tier_known_set_whole(struct tier_known *known, bool for_good)
{
    char text[BUCKET_INDEX_NOTE_BYTES_MAX];
    atomic_store(&known->whole, true);
    if (!for_good)
        return;
    tier_known_note(known, note_whole, text);
    if (text[0] == '\0')
        tier_known_set_note(known, note_whole, "yes");
}

bool tier_known_keeps(const struct tier_known *known)
{
    return known->index != NULL;
}

void tier_known_note(struct tier_known *known,
                     const char *name,
                     char text[BUCKET_INDEX_NOTE_BYTES_MAX])
{
    text[0] = '\0';
    if (known->index != NULL)
        bucket_index_note(known->index, name, text);
}

void tier_known_set_note(struct tier_known *known, const char *name, const char *text)
{
    struct status status = {0};
    if (known->index == NULL)
        return;
    lock_acquire(&known->writing);
    note_failure_locked(known, bucket_index_set_note(known->index, name, text, &status), &status);
    lock_release(&known->writing);
}

int64_t tier_known_refresh_after_s(const struct tier_known *known)
{
    return known->young_s == 1 ? 1 : known->young_s / 2;
}

int64_t tier_known_oldest_s(const struct tier_known *known)
{
    return known->young_s != 0 ? clock_wall_ns(known->clock) / NS_PER_S - 2 * known->young_s : 0;
}

bool tier_known_is_young(const struct tier_known *known, int64_t since_s)
{
    return known->young_s == 0 || clock_wall_ns(known->clock) / NS_PER_S - since_s < known->young_s;
}
