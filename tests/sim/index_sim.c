/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/index_sim.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/prng.h"

enum { INSTANCE_BYTES_MAX = LIMIT_INSTANCE_NAME_BYTES, SLOTS_AT_START = 64 };

/* An entry with its instance's bytes. */
struct kept {
    struct index_entry entry; /* instance: its length alone counts */
    uint8_t instance[INSTANCE_BYTES_MAX];
};

struct batch {
    struct kept *entries; /* owned */
    size_t count;
    struct index_checkpoint checkpoint;
};

/* What is durable: at most one put of each key, in the order in which they first came. */
struct durable {
    struct kept *items; /* owned; one with place 0 is forgotten */
    size_t count, capacity;
    size_t *slots; /* owned; index + 1 in items; a power of two of them */
    size_t slot_count;
    struct index_checkpoint checkpoint;
};

struct index_sim {
    struct io_sim *machine; /* borrowed */
    bool is_open;
    struct durable durable;
    struct batch *batches; /* owned; not flushed, oldest first */
    size_t batch_count, batch_capacity;
};

/* An open index. */
struct index {
    struct index_sim *medium; /* borrowed */
    bool failed;              /* never goes back to false */
    bool dead[4096];          /* by segment number; a model has few */
};

static struct index_sim *medium_in_use;

static void copy_kept(struct kept *to, const struct index_entry *entry);
static void copy_batch(struct batch *to, const struct batch *from);
static void copy_durable(struct durable *to, const struct durable *from);
static void drop_batches(struct index_sim *medium, size_t kept_count);
static void make_durable(struct index_sim *medium);
static void apply(struct durable *durable, const struct kept *kept);
static size_t *find_slot(const struct durable *durable, const struct kept *kept);
static bool same_key(const struct kept *a, const struct kept *b);
static bool operation(struct index_sim *medium, const char *doing, struct status *status);

/* ---- the medium */

struct index_sim *index_sim_new(struct io_sim *machine)
{
    struct index_sim *const medium = calloc(1, sizeof(*medium));
    ASSERT(medium != NULL);
    medium->machine = machine;
    return medium;
}

void index_sim_free(struct index_sim *medium)
{
    if (medium == NULL)
        return;
    ASSERT(!medium->is_open);
    drop_batches(medium, 0);
    free(medium->batches);
    free(medium->durable.items);
    free(medium->durable.slots);
    if (medium_in_use == medium)
        medium_in_use = NULL;
    free(medium);
}

struct index_sim *index_sim_copy(const struct index_sim *medium, struct io_sim *machine)
{
    struct index_sim *const copy = index_sim_new(machine);
    copy_durable(&copy->durable, &medium->durable);
    copy->batch_count = medium->batch_count;
    copy->batch_capacity = medium->batch_count;
    copy->batches = calloc(medium->batch_count + 1, sizeof(*copy->batches));
    ASSERT(copy->batches != NULL);
    for (size_t i = 0; i < medium->batch_count; i++)
        copy_batch(&copy->batches[i], &medium->batches[i]);
    return copy;
}

static void copy_batch(struct batch *to, const struct batch *from)
{
    *to = *from;
    to->entries = calloc(from->count + 1, sizeof(*to->entries));
    ASSERT(to->entries != NULL);
    if (from->count > 0)
        memcpy(to->entries, from->entries, from->count * sizeof(*to->entries));
}

static void copy_durable(struct durable *to, const struct durable *from)
{
    *to = *from;
    to->capacity = from->count;
    to->items = malloc((from->count + 1) * sizeof(*to->items));
    to->slots = malloc((from->slot_count + 1) * sizeof(*to->slots));
    ASSERT(to->items != NULL && to->slots != NULL);
    if (from->count > 0)
        memcpy(to->items, from->items, from->count * sizeof(*to->items));
    if (from->slot_count > 0)
        memcpy(to->slots, from->slots, from->slot_count * sizeof(*to->slots));
}

void index_sim_use(struct index_sim *medium)
{
    medium_in_use = medium;
}

void index_sim_crash(struct index_sim *medium, uint64_t seed)
{
    struct prng prng = {.state = seed};
    ASSERT(!medium->is_open);
    drop_batches(medium, prng_below(&prng, medium->batch_count + 1));
    make_durable(medium);
}

size_t index_sim_unflushed(const struct index_sim *medium)
{
    return medium->batch_count;
}

static void drop_batches(struct index_sim *medium, size_t kept_count)
{
    while (medium->batch_count > kept_count)
        free(medium->batches[--medium->batch_count].entries);
}

static void make_durable(struct index_sim *medium)
{
    for (size_t i = 0; i < medium->batch_count; i++) {
        for (size_t k = 0; k < medium->batches[i].count; k++)
            apply(&medium->durable, &medium->batches[i].entries[k]);
        medium->durable.checkpoint = medium->batches[i].checkpoint;
    }
    drop_batches(medium, 0);
}

/* A forget takes effect if the key has just that place. */
static void apply(struct durable *durable, const struct kept *kept)
{
    if (4 * durable->count >= durable->slot_count * 3) {
        durable->slot_count = durable->slot_count == 0 ? SLOTS_AT_START : 2 * durable->slot_count;
        free(durable->slots);
        durable->slots = calloc(durable->slot_count, sizeof(*durable->slots));
        ASSERT(durable->slots != NULL);
        for (size_t i = 0; i < durable->count; i++)
            *find_slot(durable, &durable->items[i]) = i + 1;
    }
    size_t *const slot = find_slot(durable, kept);
    if (*slot == 0 && kept->entry.forget)
        return;
    if (*slot == 0) {
        if (durable->count >= durable->capacity) {
            durable->capacity = durable->capacity < 64 ? 128 : 2 * durable->capacity;
            durable->items = realloc(durable->items, durable->capacity * sizeof(*durable->items));
            ASSERT(durable->items != NULL);
        }
        durable->items[durable->count++] = *kept;
        *slot = durable->count;
        return;
    }
    struct kept *const there = &durable->items[*slot - 1];
    if (!kept->entry.forget)
        *there = *kept;
    else if (place_pack(there->entry.place) == place_pack(kept->entry.place))
        there->entry.place = (struct place){0};
}

/* Where the key is, or where it would go (then 0). */
static size_t *find_slot(const struct durable *durable, const struct kept *kept)
{
    uint64_t hash = kept->entry.instance.length;
    for (size_t i = 0; i < sizeof(hash); i++)
        hash = hash * 257 + kept->entry.digest.hash[i];
    size_t at = (size_t)hash & (durable->slot_count - 1);
    while (durable->slots[at] != 0 && !same_key(&durable->items[durable->slots[at] - 1], kept))
        at = (at + 1) & (durable->slot_count - 1);
    return &durable->slots[at];
}

static bool same_key(const struct kept *a, const struct kept *b)
{
    return (a->entry.kind == RECORD_ACTION) == (b->entry.kind == RECORD_ACTION) &&
           a->entry.digest.function == b->entry.digest.function &&
           memcmp(a->entry.digest.hash, b->entry.digest.hash, sizeof(a->entry.digest.hash)) == 0 &&
           a->entry.instance.length == b->entry.instance.length &&
           memcmp(a->instance, b->instance, a->entry.instance.length) == 0;
}

/* ---- store/index.h */

bool index_open(const char *path, struct index **index, struct status *status)
{
    struct index_sim *const medium = medium_in_use;
    (void)path;
    ASSERT(medium != NULL);
    if (medium->is_open)
        return status_fail(status, STATUS_FAILED_PRECONDITION, "open the index: it is open");
    if (!operation(medium, "open the index", status))
        return false;
    struct index *const opened = calloc(1, sizeof(*opened));
    ASSERT(opened != NULL);
    opened->medium = medium;
    medium->is_open = true;
    *index = opened;
    return true;
}

/* After a failure what was not flushed is lost, but for what RocksDB may have flushed by itself. */
void index_close(struct index *index)
{
    struct status ignored;
    if (index == NULL)
        return;
    struct index_sim *const medium = index->medium;
    const bool has_power = io_sim_has_power(medium->machine);
    if (!index->failed && !index_flush(index, &ignored)) {
        /* The next start finds what was flushed before. */
    }
    medium->is_open = false;
    if (index->failed && has_power)
        index_sim_crash(medium, medium->batch_count);
    free(index);
}

bool index_destroy(const char *path, struct status *status)
{
    (void)path;
    ASSERT(!medium_in_use->is_open);
    if (!operation(medium_in_use, "remove the index", status))
        return false;
    drop_batches(medium_in_use, 0);
    medium_in_use->durable.count = 0;
    medium_in_use->durable.checkpoint = (struct index_checkpoint){0};
    if (medium_in_use->durable.slot_count > 0)
        memset(medium_in_use->durable.slots, 0,
               medium_in_use->durable.slot_count * sizeof(*medium_in_use->durable.slots));
    return true;
}

bool index_write(struct index *index,
                 const struct index_entry *entries,
                 size_t count,
                 const struct index_checkpoint *checkpoint,
                 struct status *status)
{
    struct index_sim *const medium = index->medium;
    if (!operation(medium, "write to the index", status)) {
        index->failed = true;
        return false;
    }
    if (medium->batch_count == medium->batch_capacity) {
        medium->batch_capacity = medium->batch_capacity < 8 ? 16 : 2 * medium->batch_capacity;
        medium->batches =
            realloc(medium->batches, medium->batch_capacity * sizeof(*medium->batches));
        ASSERT(medium->batches != NULL);
    }
    struct batch *const batch = &medium->batches[medium->batch_count++];
    *batch = (struct batch){.count = count, .checkpoint = *checkpoint};
    batch->entries = malloc((count + 1) * sizeof(*batch->entries));
    ASSERT(batch->entries != NULL);
    for (size_t i = 0; i < count; i++)
        copy_kept(&batch->entries[i], &entries[i]);
    return true;
}

static void copy_kept(struct kept *to, const struct index_entry *entry)
{
    ASSERT(entry->instance.length <= INSTANCE_BYTES_MAX);
    to->entry = *entry;
    to->entry.instance = bytes_of(NULL, entry->instance.length);
    if (entry->instance.length > 0)
        memcpy(to->instance, entry->instance.data, entry->instance.length);
}

/* Two operations: it may be cut off before it has begun, or just before it is over. */
bool index_flush(struct index *index, struct status *status)
{
    struct index_sim *const medium = index->medium;
    const bool begun = operation(medium, "begin to flush the index", status);
    if (!begun || !operation(medium, "end to flush the index", status)) {
        index->failed = true;
        return false;
    }
    make_durable(medium);
    for (size_t i = 0; i < medium->durable.count; i++) { /* a compaction, now and then */
        struct place *const place = &medium->durable.items[i].entry.place;
        if (place->segment < ARRAY_LENGTH(index->dead) && index->dead[place->segment] && i % 2 == 0)
            *place = (struct place){0};
    }
    return true;
}

bool index_is_broken(struct index *index)
{
    return index->failed;
}

bool index_read_checkpoint(struct index *index,
                           struct index_checkpoint *checkpoint,
                           struct status *status)
{
    const struct index_sim *const medium = index->medium;
    if (!operation(index->medium, "read the index's checkpoint", status))
        return false;
    *checkpoint = medium->batch_count > 0 ? medium->batches[medium->batch_count - 1].checkpoint
                                          : medium->durable.checkpoint;
    return true;
}

bool index_iterate(struct index *index,
                   bool (*each)(void *argument,
                                const struct index_entry *entry,
                                struct status *status),
                   void *argument,
                   struct status *status)
{
    struct index_cursor *cursor = NULL;
    bool more = true;
    if (!index_cursor_open(index, &cursor, status))
        return false;
    const bool ok = index_cursor_read(cursor, SIZE_MAX, each, argument, &more, status);
    index_cursor_close(cursor);
    return ok;
}

/* What was there when it was opened. */
struct index_cursor {
    struct index_sim *seen; /* owned */
    size_t next;
};

bool index_cursor_open(struct index *index, struct index_cursor **cursor, struct status *status)
{
    if (!operation(index->medium, "read the index", status))
        return false;
    struct index_cursor *const opened = calloc(1, sizeof(*opened));
    ASSERT(opened != NULL);
    opened->seen = index_sim_copy(index->medium, index->medium->machine);
    make_durable(opened->seen);
    *cursor = opened;
    return true;
}

void index_cursor_close(struct index_cursor *cursor)
{
    if (cursor == NULL)
        return;
    index_sim_free(cursor->seen);
    free(cursor);
}

bool index_cursor_read(struct index_cursor *cursor,
                       size_t count,
                       bool (*each)(void *argument,
                                    const struct index_entry *entry,
                                    struct status *status),
                       void *argument,
                       bool *more,
                       struct status *status)
{
    const struct durable *const durable = &cursor->seen->durable;
    bool ok = operation(cursor->seen, "read the index", status);
    for (; ok && count > 0 && cursor->next < durable->count; count--, cursor->next++) {
        struct kept *const kept = &durable->items[cursor->next];
        if (kept->entry.place.segment == 0)
            continue;
        kept->entry.instance.data = kept->instance;
        ok = each(argument, &kept->entry, status);
    }
    *more = cursor->next < durable->count;
    return ok;
}

/* Among what is flushed, as RocksDB does it for us. */
bool index_get(struct index *index,
               const struct index_entry *key,
               struct index_entry *found,
               bool *is_there,
               struct status *status)
{
    const struct durable *const durable = &index->medium->durable;
    struct kept name;
    *is_there = false;
    if (!operation(index->medium, "look into the index", status))
        return false;
    if (durable->slot_count == 0)
        return true;
    copy_kept(&name, key);
    const size_t *const slot = find_slot(durable, &name);
    if (*slot == 0)
        return true;
    *found = durable->items[*slot - 1].entry;
    found->instance = bytes_of(NULL, 0);
    *is_there = found->place.segment != 0 &&
                (key->kind == RECORD_ACTION || key->digest.size_bytes == INDEX_ANY_SIZE ||
                 found->digest.size_bytes == key->digest.size_bytes);
    return true;
}

void index_mark_dead(struct index *index, uint64_t segment)
{
    ASSERT(segment <= SEGMENT_NUMBER_MAX);
    if (segment < ARRAY_LENGTH(index->dead))
        index->dead[segment] = true;
}

static bool operation(struct index_sim *medium, const char *doing, struct status *status)
{
    const int result = io_sim_other(medium->machine);
    return result == 0 || status_fail_errno(status, -result, "%s", doing);
}
