/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 256 shards by the high bits of the fingerprint, each an open-addressed array with linear probing
 * from a place that the low bits give. A slot is one of
 *   empty   fingerprint 0; ends a probe
 *   live    its segment is at least the lowest live one
 *   stale   its segment is below that: evicted, or removed (then its place is 0); a probe goes past
 *           it, a put may take it
 *   removed while the table is being loaded: as stale, but kept for its fingerprint until the load
 *           is over; its place is one that no record has
 * There is at most one slot of a fingerprint, live or stale. Stale slots vanish when the shard is
 * laid out afresh.
 */
#include "store/blob_table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/random.h"
#include "store/siphash.h"

enum {
    SHARDS = 256,
    SHARD_SHIFT = 56,      /* the shard is the fingerprint's high byte */
    SLOTS_AT_START = 256,  /* one page */
    MANY_AT_ONCE = 4096,   /* lookups that are sorted on the stack */
    SLOTS_AT_ONCE = 65536, /* that are looked at before others get the lock */
    PREFETCH_AHEAD = 24,   /* lookups: more than a core has loads in flight */
    PLACE_BITS = 48,
    CACHE_LINE_BYTES = 64,
};
/*
 * The bits of a blob's fingerprint that its size has a part in. All others come from the hash alone, the shard and the place in it
 * too, so that the blobs of one hash are met in one probe.
 */
#define SIZED_BITS UINT64_C(0x00ffffff00000000)
#define HUGE_PAGE_BYTES (2 * MIB)
#define PLACE_MASK ((UINT64_C(1) << PLACE_BITS) - 1)
/* The place, packed, of what was removed while the table is being loaded: no segment is 0. */
#define REMOVED_IN_LOAD UINT64_C(1)
/* The minute of the last touch is kept modulo this, plus 1: after 45 days without eviction ages repeat. */
#define TOUCH_MINUTES UINT64_C(65535)

struct slot {
    uint64_t fingerprint; /* 0: empty */
    uint64_t value; /* place_pack(), and above it the touch: 0 untouched, else its minute + 1 */
};
static_assert(sizeof(struct slot) == 16, "four slots a cache line");

struct shard {
    /* Changed under the lock; a prefetch reads them without it, and may then prefetch nonsense. */
    _Atomic(struct slot *) slots; /* owned, mapped */
    _Atomic size_t capacity;      /* a power of two */

    struct lock lock;
    size_t used;           /* guarded by lock: slots that are not empty */
    size_t counted;        /* guarded by lock: slots whose segment is at least counted_from */
    uint64_t counted_from; /* guarded by lock; 1 or more, at most the lowest live segment */
} __attribute__((aligned(CACHE_LINE_BYTES)));

struct blob_table {
    /* Set by blob_table_new(), never changed. */
    struct siphash_key key;

    _Atomic uint64_t min_segment; /* the lowest live one, from 1; only grows */
    _Atomic uint64_t touch;       /* what a touch puts above the place */
    _Atomic bool loading;         /* looked at under a shard's lock by whoever adds or removes */
    struct shard shards[SHARDS];
};

static struct slot *map_slots(size_t capacity);
static void unmap_slots(struct slot *slots, size_t capacity);
static struct blob_key key_from_hash(uint64_t hash);
static inline void hash_digest(const struct blob_table *table,
                               uint8_t domain,
                               const struct digest *digest,
                               struct siphash *siphash);
static bool put_locked(const struct blob_table *table,
                       struct shard *shard,
                       uint64_t fingerprint,
                       uint64_t value,
                       struct status *status) REQUIRES(shard->lock);
static void set_locked(struct shard *shard, struct slot *slot, uint64_t fingerprint, uint64_t value)
    REQUIRES(shard->lock);
static bool lay_out_locked(const struct blob_table *table,
                           struct shard *shard,
                           struct status *status) REQUIRES(shard->lock);
static size_t copy_kept_locked(const struct blob_table *table,
                               const struct shard *shard,
                               struct slot *to,
                               size_t capacity) REQUIRES(shard->lock);
static size_t count_kept_locked(const struct blob_table *table, const struct shard *shard)
    REQUIRES(shard->lock);
static size_t count_locked(const struct shard *shard, uint64_t min_segment) REQUIRES(shard->lock);
static struct slot *find_live_locked(const struct shard *shard,
                                     uint64_t fingerprint,
                                     uint64_t min_segment) REQUIRES(shard->lock);
static struct slot *probe(struct slot *slots, size_t capacity, uint64_t fingerprint);
static void get_block(struct blob_table *table,
                      const struct blob_key *keys,
                      size_t count,
                      bool *present);
static void prefetch(const struct shard *shard, uint64_t fingerprint);
static struct blob_use use_of(const struct blob_table *table, uint64_t value);

static struct shard *shard_of(struct blob_table *table, uint64_t fingerprint)
{
    ASSERT(fingerprint != 0);
    return &table->shards[fingerprint >> SHARD_SHIFT];
}

static uint64_t min_segment_of(const struct blob_table *table)
{
    return atomic_load_explicit(&table->min_segment, memory_order_acquire);
}

static uint64_t touch_now(const struct blob_table *table)
{
    return atomic_load_explicit(&table->touch, memory_order_relaxed);
}

/* Writes only when it must: a line that is only read stays shared between cores. */
static void touch_locked(struct slot *slot, uint64_t touch)
{
    if ((slot->value & ~PLACE_MASK) != touch)
        slot->value = (slot->value & PLACE_MASK) | touch;
}

static uint64_t segment_in(uint64_t value)
{
    return place_unpack(value & PLACE_MASK).segment;
}

/* What a removed entry leaves in its slot. */
static uint64_t removed_value(const struct blob_table *table)
{
    return blob_table_is_loading(table) ? REMOVED_IN_LOAD : 0;
}

/* Four fifths. */
static size_t used_max(size_t capacity)
{
    return capacity / 5 * 4;
}

bool blob_table_new(struct blob_table **table, struct status *status)
{
    struct blob_table *made = aligned_alloc(CACHE_LINE_BYTES, sizeof(*made));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the index in memory");
    memset(made, 0, sizeof(*made));
    atomic_init(&made->min_segment, 1);
    atomic_init(&made->touch, UINT64_C(1) << PLACE_BITS);
    for (size_t i = 0; i < SHARDS; i++) {
        lock_init(&made->shards[i].lock, LOCK_RANK_BLOB_TABLE);
        made->shards[i].counted_from = 1;
    }
    if (!random_fill(&made->key, sizeof(made->key), status))
        goto fail;
    for (size_t i = 0; i < SHARDS; i++) {
        struct slot *slots = map_slots(SLOTS_AT_START);
        if (slots == NULL) {
            status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the index in memory");
            goto fail;
        }
        atomic_init(&made->shards[i].slots, slots);
        atomic_init(&made->shards[i].capacity, SLOTS_AT_START);
    }
    *table = made;
    return true;

fail:
    blob_table_free(made);
    return false;
}

void blob_table_free(struct blob_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &table->shards[i];
        unmap_slots(shard->slots, shard->capacity);
        lock_destroy(&shard->lock);
    }
    free(table);
}

/*
 * Zeroed, that is empty; NULL when memory is used up. Mapped, so that a shard that has grown gives
 * its old slots back.
 */
static struct slot *map_slots(size_t capacity)
{
    const size_t length = capacity * sizeof(struct slot);
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /*
     * Random probes of small pages miss the TLB each time. Advice: a kernel without huge pages
     * refuses it.
     */
    if (length >= HUGE_PAGE_BYTES)
        madvise(memory, length, MADV_HUGEPAGE);
    return memory;
}

static void unmap_slots(struct slot *slots, size_t capacity)
{
    if (slots != NULL)
        ASSERT(munmap(slots, capacity * sizeof(*slots)) == 0);
}

struct blob_key blob_table_blob_key(const struct blob_table *table, const struct digest *digest)
{
    struct siphash siphash;
    hash_digest(table, 'b', digest, &siphash);
    struct siphash sized = siphash;
    const uint64_t hash = siphash_finish(&siphash, bytes_of(NULL, 0));
    const uint64_t with_size =
        siphash_finish(&sized, bytes_of(&digest->size_bytes, sizeof(digest->size_bytes)));
    return key_from_hash((hash & ~SIZED_BITS) | (with_size & SIZED_BITS));
}

size_t blob_table_places_of_hash(struct blob_table *table,
                                 const struct digest *digest,
                                 struct place *places,
                                 size_t max)
{
    const uint64_t wanted = blob_table_blob_key(table, digest).fingerprint & ~SIZED_BITS;
    const uint64_t min_segment = min_segment_of(table);
    struct shard *shard = &table->shards[wanted >> SHARD_SHIFT];
    size_t count = 0;
    lock_acquire(&shard->lock);
    const struct slot *slots = shard->slots;
    const size_t mask = shard->capacity - 1;
    ASSERT((mask & SIZED_BITS) == 0); /* 2^32 slots in a shard are 16 TiB */
    for (size_t i = wanted & mask; slots[i].fingerprint != 0 && count < max; i = (i + 1) & mask)
        if ((slots[i].fingerprint & ~SIZED_BITS) == wanted &&
            segment_in(slots[i].value) >= min_segment)
            places[count++] = place_unpack(slots[i].value & PLACE_MASK);
    lock_release(&shard->lock);
    return count;
}

struct blob_key blob_table_action_key(const struct blob_table *table,
                                      const struct digest *action,
                                      struct bytes instance)
{
    struct siphash siphash;
    hash_digest(table, 'a', action, &siphash);
    return key_from_hash(siphash_finish(&siphash, instance));
}

struct blob_key blob_table_key(const struct blob_table *table,
                               enum record_kind kind,
                               const struct digest *digest,
                               struct bytes instance)
{
    return kind == RECORD_ACTION ? blob_table_action_key(table, digest, instance)
                                 : blob_table_blob_key(table, digest);
}

/*
 * What kind of name it is and what is of fixed length, in whole words; what comes behind it can
 * then be of any length.
 */
static inline void hash_digest(const struct blob_table *table,
                               uint8_t domain,
                               const struct digest *digest,
                               struct siphash *siphash)
{
    static_assert(DIGEST_HASH_BYTES_MAX % SIPHASH_WORD_BYTES == 0,
                  "a hash of any length ends inside its last word");
    const uint8_t head[SIPHASH_WORD_BYTES] = {domain, digest->function, digest->hash_length};
    ASSERT(digest->hash_length > 0 && digest->hash_length <= DIGEST_HASH_BYTES_MAX);
    const size_t hash_bytes = digest->hash_length;
    siphash_begin(siphash, &table->key);
    siphash_words(siphash, head, 1);
    siphash_words(siphash, digest->hash,
                  (hash_bytes + SIPHASH_WORD_BYTES - 1) / SIPHASH_WORD_BYTES);
}

/* 0 marks an empty slot. */
static struct blob_key key_from_hash(uint64_t hash)
{
    return (struct blob_key){.fingerprint = hash != 0 ? hash : 1};
}

bool blob_table_put(struct blob_table *table,
                    struct blob_key key,
                    struct place place,
                    struct status *status)
{
    ASSERT(place.segment >= 1 && place.segment <= SEGMENT_NUMBER_MAX);
    ASSERT(place.offset < SEGMENT_BYTES_MAX && place.offset % RECORD_ALIGNMENT_BYTES == 0);
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    const bool ok = put_locked(table, shard, key.fingerprint, place_pack(place), status);
    lock_release(&shard->lock);
    return ok;
}

static bool is_kept(const struct blob_table *table, uint64_t value)
{
    return segment_in(value) >= min_segment_of(table) ||
           (value == REMOVED_IN_LOAD && blob_table_is_loading(table));
}

static bool put_locked(const struct blob_table *table,
                       struct shard *shard,
                       uint64_t fingerprint,
                       uint64_t value,
                       struct status *status)
{
    struct slot *slots = shard->slots;
    size_t capacity = shard->capacity;
    struct slot *stale = NULL;
    struct slot *slot;

    /*
     * Up to the end of the probe: a stale slot may be taken only when the fingerprint has none
     * further on.
     */
    for (size_t i = fingerprint & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        slot = &slots[i];
        if (slot->fingerprint == fingerprint || slot->fingerprint == 0)
            break;
        if (stale == NULL && !is_kept(table, slot->value))
            stale = slot;
    }
    if (slot->fingerprint == 0 && stale != NULL)
        slot = stale;
    if (slot->fingerprint == 0) {
        if (shard->used >= used_max(capacity)) {
            if (!lay_out_locked(table, shard, status))
                return false;
            slot = probe(shard->slots, shard->capacity, fingerprint);
        }
        shard->used++;
    }
    set_locked(shard, slot, fingerprint, value);
    return true;
}

/* The one place where a slot changes, but for its touch. */
static void set_locked(struct shard *shard, struct slot *slot, uint64_t fingerprint, uint64_t value)
{
    if (segment_in(slot->value) >= shard->counted_from)
        shard->counted--;
    if (segment_in(value) >= shard->counted_from)
        shard->counted++;
    slot->fingerprint = fingerprint;
    slot->value = value;
}

/*
 * Copies what is live to a fresh array: of the same size if that leaves it half empty, else of
 * twice the size.
 */
static bool lay_out_locked(const struct blob_table *table,
                           struct shard *shard,
                           struct status *status)
{
    const uint64_t min_segment = min_segment_of(table);
    const size_t capacity = shard->capacity;
    const size_t live = count_locked(shard, min_segment);
    const size_t kept = count_kept_locked(table, shard);
    const size_t wanted = kept <= capacity / 2 ? capacity : capacity * 2;
    struct slot *slots = map_slots(wanted);
    if (slots == NULL)
        return status_fail(
            status, STATUS_RESOURCE_EXHAUSTED,
            "no memory for the index in memory: a shard of %zu entries wants %zu bytes", kept,
            wanted * sizeof(*slots));
    const size_t copied = copy_kept_locked(table, shard, slots, wanted);
    ASSERT(copied <= kept &&
           kept < used_max(wanted)); /* the load may have ended, and marks be let go */
    unmap_slots(shard->slots, capacity);
    shard->slots = slots;
    shard->capacity = wanted;
    shard->used = copied;
    shard->counted = live;
    shard->counted_from = min_segment;
    return true;
}

static size_t copy_kept_locked(const struct blob_table *table,
                               const struct shard *shard,
                               struct slot *to,
                               size_t capacity)
{
    const struct slot *slots = shard->slots;
    const size_t count = shard->capacity;
    size_t copied = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_kept(table, slots[i].value))
            continue;
        *probe(to, capacity, slots[i].fingerprint) = slots[i];
        copied++;
    }
    return copied;
}

static size_t count_kept_locked(const struct blob_table *table, const struct shard *shard)
{
    const struct slot *slots = shard->slots;
    const size_t capacity = shard->capacity;
    size_t count = 0;
    for (size_t i = 0; i < capacity; i++)
        count += is_kept(table, slots[i].value);
    return count;
}

/* Empty and removed slots have segment 0, and min_segment is 1 or more. */
static size_t count_locked(const struct shard *shard, uint64_t min_segment)
{
    const struct slot *slots = shard->slots;
    const size_t capacity = shard->capacity;
    size_t count = 0;
    for (size_t i = 0; i < capacity; i++)
        count += segment_in(slots[i].value) >= min_segment;
    return count;
}

bool blob_table_get(struct blob_table *table, struct blob_key key, bool touch, struct place *place)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    if (slot != NULL) {
        *place = place_unpack(slot->value & PLACE_MASK);
        if (touch)
            touch_locked(slot, touch_now(table));
    }
    lock_release(&shard->lock);
    return slot != NULL;
}

void blob_table_get_many(struct blob_table *table,
                         const struct blob_key *keys,
                         size_t count,
                         bool *present)
{
    for (size_t done = 0; done < count; done += MANY_AT_ONCE) {
        const size_t left = count - done;
        get_block(table, keys + done, left < MANY_AT_ONCE ? left : MANY_AT_ONCE, present + done);
    }
}

/*
 * Sorted by shard, so that each lock is taken once, and the slots are fetched ahead of the probes:
 * else each waits for memory.
 */
static void get_block(struct blob_table *table,
                      const struct blob_key *keys,
                      size_t count,
                      bool *present)
{
    uint16_t ends[SHARDS] = {
        0}; /* first how many a shard has, then where its run begins, at last where it ends */
    uint16_t order[MANY_AT_ONCE];
    ASSERT(count <= MANY_AT_ONCE);

    for (size_t i = 0; i < count; i++) {
        ASSERT(keys[i].fingerprint != 0);
        ends[keys[i].fingerprint >> SHARD_SHIFT]++;
    }
    uint16_t begin = 0;
    for (size_t i = 0; i < SHARDS; i++) {
        const uint16_t length = ends[i];
        ends[i] = begin;
        begin = (uint16_t)(begin + length);
    }
    for (size_t i = 0; i < count; i++)
        order[ends[keys[i].fingerprint >> SHARD_SHIFT]++] = (uint16_t)i;

    for (size_t i = 0; i < count && i < PREFETCH_AHEAD; i++)
        prefetch(shard_of(table, keys[order[i]].fingerprint), keys[order[i]].fingerprint);
    const uint64_t min_segment = min_segment_of(table);
    const uint64_t touch = touch_now(table);
    size_t next = 0;
    for (size_t s = 0; s < SHARDS; s++) {
        struct shard *shard = &table->shards[s];
        if (next == ends[s])
            continue;
        lock_acquire(&shard->lock);
        for (; next < ends[s]; next++) {
            if (next + PREFETCH_AHEAD < count) {
                const uint64_t ahead = keys[order[next + PREFETCH_AHEAD]].fingerprint;
                prefetch(shard_of(table, ahead), ahead);
            }
            struct slot *slot = find_live_locked(shard, keys[order[next]].fingerprint, min_segment);
            present[order[next]] = slot != NULL;
            if (slot != NULL)
                touch_locked(slot, touch);
        }
        lock_release(&shard->lock);
    }
    ASSERT(next == count);
}

static void prefetch(const struct shard *shard, uint64_t fingerprint)
{
    const uintptr_t slots = (uintptr_t)atomic_load_explicit(&shard->slots, memory_order_relaxed);
    const size_t capacity = atomic_load_explicit(&shard->capacity, memory_order_relaxed);
    const uintptr_t address = slots + (fingerprint & (capacity - 1)) * sizeof(struct slot);
    __builtin_prefetch((const void *)address, 1);
}

bool blob_table_look(struct blob_table *table, struct blob_key key, struct blob_use *use)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    const struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    const uint64_t value = slot != NULL ? slot->value : 0;
    lock_release(&shard->lock);
    if (slot != NULL)
        *use = use_of(table, value);
    return slot != NULL;
}

static struct blob_use use_of(const struct blob_table *table, uint64_t value)
{
    const uint64_t now = touch_now(table) >> PLACE_BITS;
    const uint64_t touched = value >> PLACE_BITS;
    return (struct blob_use){
        .place = place_unpack(value & PLACE_MASK),
        .touch = (uint16_t)touched,
        .touched = touched != 0,
        .idle_minutes =
            touched == 0 ? 0 : (uint32_t)((now + TOUCH_MINUTES - touched) % TOUCH_MINUTES),
    };
}

enum blob_evicted blob_table_evict(struct blob_table *table,
                                   struct blob_key key,
                                   struct blob_use *seen)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    enum blob_evicted result = BLOB_EVICT_GONE;
    lock_acquire(&shard->lock);
    struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    const uint64_t value = slot != NULL ? slot->value : 0;
    if (slot != NULL && (value & PLACE_MASK) == place_pack(seen->place)) {
        result = value >> PLACE_BITS == seen->touch ? BLOB_EVICTED : BLOB_EVICT_USED;
        if (result == BLOB_EVICTED)
            set_locked(shard, slot, slot->fingerprint, removed_value(table));
    }
    lock_release(&shard->lock);
    if (result == BLOB_EVICT_USED)
        *seen = use_of(table, value);
    return result;
}

bool blob_table_restore(struct blob_table *table,
                        struct blob_key key,
                        const struct blob_use *use,
                        struct status *status)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    bool ok = true;
    lock_acquire(&shard->lock);
    if (find_live_locked(shard, key.fingerprint, min_segment_of(table)) == NULL)
        ok = put_locked(table, shard, key.fingerprint,
                        place_pack(use->place) | (uint64_t)use->touch << PLACE_BITS, status);
    lock_release(&shard->lock);
    return ok;
}

size_t blob_table_forget_segment(struct blob_table *table, uint64_t segment)
{
    ASSERT(segment > 0);
    size_t removed = 0;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &table->shards[i];
        lock_acquire(&shard->lock);
        struct slot *const slots = shard->slots;
        const size_t capacity = shard->capacity;
        for (size_t at = 0; at < capacity; at++) {
            if (segment_in(slots[at].value) != segment)
                continue;
            set_locked(shard, &slots[at], slots[at].fingerprint, removed_value(table));
            removed++;
        }
        lock_release(&shard->lock);
    }
    return removed;
}

/* What a slot keeps for a use so long ago. */
static uint64_t touch_before(const struct blob_table *table, uint32_t idle_minutes)
{
    ASSERT(idle_minutes < TOUCH_MINUTES);
    const uint64_t now = (touch_now(table) >> PLACE_BITS) - 1;
    return ((now + TOUCH_MINUTES - idle_minutes) % TOUCH_MINUTES + 1) << PLACE_BITS;
}

void blob_table_touch_segments(struct blob_table *table,
                               const uint8_t *segments,
                               size_t bits,
                               uint32_t idle_minutes)
{
    const uint64_t touch = touch_before(table, idle_minutes);
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &table->shards[i];
        lock_acquire(&shard->lock);
        struct slot *const slots = shard->slots;
        const size_t capacity = shard->capacity;
        for (size_t at = 0; at < capacity; at++) {
            const uint64_t segment = segment_in(slots[at].value);
            if (segment != 0 && segment < bits && (segments[segment / 8] >> segment % 8 & 1) != 0 &&
                (slots[at].value & ~PLACE_MASK) == 0)
                touch_locked(&slots[at], touch);
        }
        lock_release(&shard->lock);
    }
}

void blob_table_set_used(struct blob_table *table,
                         struct blob_key key,
                         struct place place,
                         uint32_t idle_minutes)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    if (slot != NULL && slot->value == place_pack(place)) /* untouched, too */
        touch_locked(slot, touch_before(table, idle_minutes));
    lock_release(&shard->lock);
}

/* *cursor: the shard, and in the low half the slot. */
size_t blob_table_read_used(struct blob_table *table,
                            uint64_t *cursor,
                            struct blob_use *uses,
                            size_t max)
{
    enum { SLOT_BITS = 40 };
    const uint64_t min_segment = min_segment_of(table);
    struct shard *shard = &table->shards[*cursor >> SLOT_BITS];
    size_t at = (size_t)(*cursor & ((UINT64_C(1) << SLOT_BITS) - 1));
    size_t count = 0;
    lock_acquire(&shard->lock);
    const struct slot *const slots = shard->slots;
    const size_t end = at + SLOTS_AT_ONCE < shard->capacity ? at + SLOTS_AT_ONCE : shard->capacity;
    for (; at < end && count < max; at++) {
        if (slots[at].value >> PLACE_BITS != 0 && segment_in(slots[at].value) >= min_segment)
            uses[count++] = use_of(table, slots[at].value);
    }
    const bool is_done = at >= shard->capacity;
    lock_release(&shard->lock);
    if (!is_done)
        *cursor = (*cursor >> SLOT_BITS << SLOT_BITS) + at;
    else if (shard == &table->shards[SHARDS - 1])
        *cursor = BLOB_TABLE_END;
    else
        *cursor = ((*cursor >> SLOT_BITS) + 1) << SLOT_BITS;
    return count;
}

void blob_table_set_minute(struct blob_table *table, uint64_t minute)
{
    atomic_store_explicit(&table->touch, (minute % TOUCH_MINUTES + 1) << PLACE_BITS,
                          memory_order_relaxed);
}

void blob_table_touch(struct blob_table *table, struct blob_key key)
{
    struct place ignored;
    if (!blob_table_get(table, key, true, &ignored)) {
        /* Not there: nothing to mark. */
    }
}

bool blob_table_replace(struct blob_table *table,
                        struct blob_key key,
                        struct place from,
                        struct place to,
                        uint16_t clear)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    const bool is_there = slot != NULL && (slot->value & PLACE_MASK) == place_pack(from);
    if (is_there) {
        const uint64_t touch = slot->value >> PLACE_BITS;
        set_locked(shard, slot, slot->fingerprint,
                   place_pack(to) | (touch == clear ? 0 : touch << PLACE_BITS));
    }
    lock_release(&shard->lock);
    return is_there;
}

bool blob_table_remove(struct blob_table *table, struct blob_key key, struct place place)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    struct slot *slot = find_live_locked(shard, key.fingerprint, min_segment_of(table));
    const bool is_there = slot != NULL && (slot->value & PLACE_MASK) == place_pack(place);
    if (is_there)
        set_locked(shard, slot, slot->fingerprint, removed_value(table));
    lock_release(&shard->lock);
    return is_there;
}

size_t blob_table_remove_between(struct blob_table *table,
                                 uint64_t segment,
                                 uint64_t offset,
                                 uint64_t end)
{
    size_t removed = 0;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &table->shards[i];
        lock_acquire(&shard->lock);
        for (size_t k = 0; k < shard->capacity; k++) {
            struct slot *slot = &shard->slots[k];
            const struct place place = place_unpack(slot->value & PLACE_MASK);
            if (slot->fingerprint == 0 || place.segment != segment || place.offset < offset ||
                place.offset >= end || segment < min_segment_of(table))
                continue;
            set_locked(shard, slot, slot->fingerprint, removed_value(table));
            removed++;
        }
        lock_release(&shard->lock);
    }
    return removed;
}

void blob_table_begin_load(struct blob_table *table)
{
    atomic_store(&table->loading, true);
}

/* Whoever was about to add an entry has done so, or sees that it is over. */
void blob_table_end_load(struct blob_table *table)
{
    atomic_store(&table->loading, false);
    for (size_t i = 0; i < SHARDS; i++) {
        lock_acquire(&table->shards[i].lock);
        lock_release(&table->shards[i].lock);
    }
}

bool blob_table_is_loading(const struct blob_table *table)
{
    return atomic_load_explicit(&table->loading, memory_order_acquire);
}

bool blob_table_load(struct blob_table *table,
                     struct blob_key key,
                     struct place place,
                     struct status *status)
{
    struct shard *shard = shard_of(table, key.fingerprint);
    bool ok = true;
    lock_acquire(&shard->lock);
    const struct slot *slot = probe(shard->slots, shard->capacity, key.fingerprint);
    if (blob_table_is_loading(table) &&
        (slot->fingerprint == 0 || !is_kept(table, slot->value & PLACE_MASK)))
        ok = put_locked(table, shard, key.fingerprint, place_pack(place), status);
    lock_release(&shard->lock);
    return ok;
}

bool blob_table_new_beside(const struct blob_table *other,
                           struct blob_table **table,
                           struct status *status)
{
    if (!blob_table_new(table, status))
        return false;
    (*table)->key = other->key;
    return true;
}

/* Nobody else uses `from`. */
bool blob_table_load_from(struct blob_table *table, struct blob_table *from, struct status *status)
{
    bool ok = true;
    for (size_t s = 0; ok && s < SHARDS; s++) {
        const struct slot *slots = from->shards[s].slots;
        const size_t capacity = from->shards[s].capacity;
        for (size_t i = 0; ok && i < capacity; i++) {
            const uint64_t packed = slots[i].value & PLACE_MASK;
            if (slots[i].fingerprint != 0 && segment_in(packed) >= min_segment_of(from))
                ok = blob_table_load(table, (struct blob_key){.fingerprint = slots[i].fingerprint},
                                     place_unpack(packed), status);
        }
    }
    return ok;
}

bool blob_table_may_come(struct blob_table *table, struct blob_key key)
{
    if (!blob_table_is_loading(table))
        return false;
    struct shard *shard = shard_of(table, key.fingerprint);
    lock_acquire(&shard->lock);
    const struct slot *slot = probe(shard->slots, shard->capacity, key.fingerprint);
    const bool may_come = slot->fingerprint == 0 || !is_kept(table, slot->value & PLACE_MASK);
    lock_release(&shard->lock);
    return may_come && blob_table_is_loading(table);
}

void blob_table_set_min_segment(struct blob_table *table, uint64_t segment)
{
    uint64_t before = min_segment_of(table);
    while (before < segment && !atomic_compare_exchange_weak(&table->min_segment, &before, segment))
        continue;
}

size_t blob_table_count(struct blob_table *table)
{
    size_t count = 0;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &table->shards[i];
        lock_acquire(&shard->lock);
        const uint64_t min_segment = min_segment_of(table);
        if (shard->counted_from < min_segment) {
            shard->counted = count_locked(shard, min_segment);
            shard->counted_from = min_segment;
        }
        count += shard->counted;
        lock_release(&shard->lock);
    }
    return count;
}

/* The live slot of this fingerprint, or NULL. */
static struct slot *find_live_locked(const struct shard *shard,
                                     uint64_t fingerprint,
                                     uint64_t min_segment)
{
    struct slot *slot = probe(shard->slots, shard->capacity, fingerprint);
    return slot->fingerprint != 0 && segment_in(slot->value) >= min_segment ? slot : NULL;
}

/*
 * The slot of this fingerprint, live or stale, or the empty one where its probe ends. A fifth of
 * the slots is empty.
 */
static struct slot *probe(struct slot *slots, size_t capacity, uint64_t fingerprint)
{
    size_t i = fingerprint & (capacity - 1);
    while (slots[i].fingerprint != 0 && slots[i].fingerprint != fingerprint)
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}
