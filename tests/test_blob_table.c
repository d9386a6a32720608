/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the index in memory answers as a plain array of entries does, under random puts,
 * replacements, removals, touches and evictions, with fingerprints chosen so that probes collide,
 * wrap around and outlive removals; that growing and running out of memory lose nothing; and that
 * threads may do all of it at once.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"
#include "store/blob_table.h"
#include "tests/support/test_run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static struct blob_table *new_table(void)
{
    struct blob_table *table = NULL;
    struct status status = {0};
    ck_assert_msg(blob_table_new(&table, &status), "%s", status.message);
    return table;
}

static struct place place_at(uint64_t segment, uint64_t line)
{
    return (struct place){.segment = segment, .offset = line * RECORD_ALIGNMENT_BYTES};
}

static void put(struct blob_table *table, struct blob_key key, struct place place)
{
    struct status status = {0};
    ck_assert_msg(blob_table_put(table, key, place, &status), "%s", status.message);
}

static void assert_at(struct blob_table *table, struct blob_key key, struct place place)
{
    struct place found = {0};
    ck_assert(blob_table_get(table, key, false, &found));
    ck_assert_uint_eq(found.segment, place.segment);
    ck_assert_uint_eq(found.offset, place.offset);
}

static void assert_absent(struct blob_table *table, struct blob_key key)
{
    struct place found;
    ck_assert(!blob_table_get(table, key, false, &found));
}

/* splitmix64: a bijection, so that different numbers are different keys; 0 alone becomes 0. */
static struct blob_key key_number(uint64_t number)
{
    uint64_t x = number;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (struct blob_key){.fingerprint = x};
}

static struct digest digest_number(uint64_t number)
{
    struct digest digest = {.hash_length = SHA256_HASH_BYTES, .function = DIGEST_FUNCTION_SHA256};
    memcpy(digest.hash, &number, sizeof(number));
    digest.size_bytes = 1000;
    return digest;
}

/* ---- keys */

static bool is_touched(struct blob_table *in, struct blob_key key)
{
    struct blob_use use;
    return blob_table_look(in, key, &use) && use.touched;
}

START_TEST(key_differs_in_every_part_of_the_name)
{
    struct blob_table *table = new_table();
    const struct digest digest = digest_number(7);
    struct digest other_hash = digest, other_size = digest, other_function = digest,
                  longer = digest;
    other_hash.hash[31] ^= 1;
    other_size.size_bytes++;
    other_function.function = 2;
    longer.hash_length = 64;
    const struct bytes main_instance = bytes_of_string("main");
    const struct blob_key keys[] = {
        blob_table_blob_key(table, &digest),
        blob_table_blob_key(table, &other_hash),
        blob_table_blob_key(table, &other_size),
        blob_table_blob_key(table, &other_function),
        blob_table_blob_key(table, &longer),
        blob_table_action_key(table, &digest, main_instance),
        blob_table_action_key(table, &other_hash, main_instance),
        blob_table_action_key(table, &digest, bytes_of_string("Main")),
        blob_table_action_key(table, &digest, bytes_of_string("")),
        /* The bytes that a blob's key ends with: only the domain tells them apart. */
        blob_table_action_key(table, &digest,
                              bytes_of(&digest.size_bytes, sizeof(digest.size_bytes))),
    };
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        ck_assert_uint_ne(keys[i].fingerprint, 0);
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(keys[i].fingerprint, keys[j].fingerprint);
    }
    /* An action's size is no part of its name. */
    ck_assert_uint_eq(blob_table_action_key(table, &other_size, main_instance).fingerprint,
                      keys[5].fingerprint);
    ck_assert_uint_eq(blob_table_blob_key(table, &digest).fingerprint, keys[0].fingerprint);
    blob_table_free(table);
}
END_TEST

START_TEST(key_takes_an_instance_name_of_any_length)
{
    struct blob_table *table = new_table();
    const struct digest digest = digest_number(1);
    uint8_t name[5000];
    memset(name, 'x', sizeof(name));
    ck_assert_uint_ne(
        blob_table_action_key(table, &digest, bytes_of(name, sizeof(name))).fingerprint,
        blob_table_action_key(table, &digest, bytes_of(name, sizeof(name) - 1)).fingerprint);
    blob_table_free(table);
}
END_TEST

START_TEST(key_is_of_one_table_only)
{
    struct blob_table *a = new_table(), *b = new_table();
    const struct digest digest = digest_number(1);
    ck_assert_uint_ne(blob_table_blob_key(a, &digest).fingerprint,
                      blob_table_blob_key(b, &digest).fingerprint);
    blob_table_free(a);
    blob_table_free(b);
}
END_TEST

/* ---- one entry */

START_TEST(entry_comes_back_as_it_was_put)
{
    struct blob_table *table = new_table();
    const struct blob_key key = key_number(1);
    const struct place corners[] = {
        place_at(1, 64),
        place_at(SEGMENT_NUMBER_MAX, 0),
        {.segment = SEGMENT_NUMBER_MAX, .offset = SEGMENT_BYTES_MAX - RECORD_ALIGNMENT_BYTES}};
    assert_absent(table, key);
    for (size_t i = 0; i < ARRAY_LENGTH(corners); i++) {
        put(table, key, corners[i]);
        assert_at(table, key, corners[i]);
        ck_assert_uint_eq(blob_table_count(table), 1);
    }
    blob_table_free(table);
}
END_TEST

START_TEST(entry_is_touched_by_a_get_that_says_so_until_it_is_put_again)
{
    struct blob_table *table = new_table();
    const struct blob_key key = key_number(1);
    struct place place;
    bool present = false;
    ck_assert(!is_touched(table, key));
    put(table, key, place_at(3, 9));
    ck_assert(!is_touched(table, key));
    ck_assert(blob_table_get(table, key, false, &place));
    ck_assert(!is_touched(table, key));
    ck_assert(blob_table_get(table, key, true, &place));
    ck_assert(is_touched(table, key));
    assert_at(table, key, place_at(3, 9));

    put(table, key, place_at(4, 9));
    ck_assert(!is_touched(table, key));
    blob_table_get_many(table, &key, 1, &present);
    ck_assert(present);
    ck_assert(is_touched(table, key));
    ck_assert(blob_table_remove(table, key, place_at(4, 9)));
    ck_assert(!is_touched(table, key));
    blob_table_free(table);
}
END_TEST

START_TEST(entry_is_removed_only_from_the_place_that_was_named)
{
    struct blob_table *table = new_table();
    const struct blob_key key = key_number(1);
    ck_assert(!blob_table_remove(table, key, place_at(2, 5)));
    put(table, key, place_at(2, 5));
    ck_assert(!blob_table_remove(table, key, place_at(2, 6)));
    ck_assert(!blob_table_remove(table, key, place_at(3, 5)));
    assert_at(table, key, place_at(2, 5));
    ck_assert(blob_table_remove(table, key, place_at(2, 5)));
    assert_absent(table, key);
    ck_assert_uint_eq(blob_table_count(table), 0);
    ck_assert(!blob_table_remove(table, key, place_at(2, 5)));
    put(table, key, place_at(2, 5));
    assert_at(table, key, place_at(2, 5));
    blob_table_free(table);
}
END_TEST

START_TEST(entry_in_a_segment_below_the_lowest_is_absent)
{
    struct blob_table *table = new_table();
    const struct blob_key low = key_number(1), high = key_number(2);
    put(table, low, place_at(4, 1));
    put(table, high, place_at(5, 1));
    blob_table_set_min_segment(table, 5);
    assert_absent(table, low);
    assert_at(table, high, place_at(5, 1));
    ck_assert_uint_eq(blob_table_count(table), 1);
    ck_assert(!blob_table_remove(table, low, place_at(4, 1)));

    /* It never goes back. */
    blob_table_set_min_segment(table, 1);
    assert_absent(table, low);
    put(table, low, place_at(6, 1));
    assert_at(table, low, place_at(6, 1));

    /* A put that lost the race with an eviction. */
    put(table, high, place_at(4, 1));
    assert_absent(table, high);
    ck_assert_uint_eq(blob_table_count(table), 1);
    blob_table_free(table);
}
END_TEST

START_TEST(entry_of_a_bad_place_is_asserted)
{
    struct blob_table *table = new_table();
    put(table, key_number(1), (struct place){.segment = 1, .offset = 65});
}
END_TEST

/* ---- against a model */

enum { MODEL_KEYS = 3000, MODEL_STEPS = 400000 };

struct model_entry {
    bool present, touched;
    struct place place;
};

struct model {
    struct blob_key keys[MODEL_KEYS];
    struct model_entry entries[MODEL_KEYS];
    uint64_t min_segment;
};

static bool model_has(const struct model *model, size_t i)
{
    return model->entries[i].present && model->entries[i].place.segment >= model->min_segment;
}

static void model_check(const struct model *model, struct blob_table *table)
{
    size_t count = 0;
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct place place = {0};
        const bool expected = model_has(model, i);
        ck_assert_int_eq(blob_table_get(table, model->keys[i], false, &place), expected);
        ck_assert_int_eq(is_touched(table, model->keys[i]), expected && model->entries[i].touched);
        if (expected)
            ck_assert_uint_eq(place_pack(place), place_pack(model->entries[i].place));
        count += expected;
    }
    ck_assert_uint_eq(blob_table_count(table), count);
}

static void model_get_many(struct model *model, struct blob_table *table)
{
    enum { ASKED_MAX = 300 };
    struct blob_key keys[ASKED_MAX];
    size_t numbers[ASKED_MAX];
    bool present[ASKED_MAX];
    const size_t count = (size_t)random() % (ASKED_MAX + 1);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (size_t)random() % MODEL_KEYS;
        keys[i] = model->keys[numbers[i]];
    }
    blob_table_get_many(table, keys, count, present);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(present[i], model_has(model, numbers[i]));
        model->entries[numbers[i]].touched = true;
    }
}

static void model_step(struct model *model, struct blob_table *table, int step)
{
    const size_t i = (size_t)random() % MODEL_KEYS;
    struct model_entry *entry = &model->entries[i];
    const long choice = random() % 1000;
    if (choice < 500) {
        const uint64_t segment = model->min_segment + (uint64_t)random() % 20;
        *entry = (struct model_entry){.present = true,
                                      .place = place_at(segment, (uint64_t)step & 0xffffff)};
        put(table, model->keys[i], entry->place);
    } else if (choice < 800) {
        const bool right = random() % 4 != 0;
        struct place place = entry->place;
        if (!right)
            place.offset ^= RECORD_ALIGNMENT_BYTES;
        ck_assert_int_eq(blob_table_remove(table, model->keys[i], place),
                         right && model_has(model, i));
        entry->present = entry->present && !(right && model_has(model, i));
    } else if (choice < 990) {
        struct place place;
        ck_assert_int_eq(blob_table_get(table, model->keys[i], true, &place), model_has(model, i));
        entry->touched = true;
    } else if (choice < 998) {
        model_get_many(model, table);
    } else if (random() % 20 == 0) {
        model->min_segment += (uint64_t)random() % 10;
        blob_table_set_min_segment(table, model->min_segment);
    }
}

/*
 * 0: keys as a hash gives them. 1: all in one shard, with few home slots at the end of the array.
 * 2: one home slot.
 */
static struct blob_key model_key(int kind, uint64_t number)
{
    if (kind == 0)
        return key_number(number + 1);
    const uint64_t home = kind == 1 ? UINT64_C(0xfffff0) + number % 16 : 0xabcdef;
    return (struct blob_key){.fingerprint =
                                 UINT64_C(0x4200000000000000) | (number + 1) << 24 | home};
}

START_TEST(table_answers_as_a_plain_array_does)
{
    /* Long probes are slow by nature. */
    const int steps = _i == 0 ? MODEL_STEPS : MODEL_STEPS / 10;
    struct model *model = calloc(1, sizeof(*model));
    struct blob_table *table = new_table();
    ck_assert_ptr_nonnull(model);
    srandom((unsigned int)_i + 1);
    model->min_segment = 1;
    for (size_t i = 0; i < MODEL_KEYS; i++)
        model->keys[i] = model_key(_i, i);
    for (int step = 0; step < steps; step++) {
        model_step(model, table, step);
        if (step % (steps / 40) == 0)
            model_check(model, table);
    }
    model_check(model, table);
    blob_table_free(table);
    free(model);
}
END_TEST

START_TEST(table_keeps_everything_while_it_grows)
{
    enum { ENTRIES = 500000, BLOCK = 10000 };
    struct blob_table *table = new_table();
    static struct blob_key keys[BLOCK];
    static bool present[BLOCK];
    for (uint64_t i = 1; i <= ENTRIES; i++)
        put(table, key_number(i), place_at(1 + i % 1000, i % 1000000));
    ck_assert_uint_eq(blob_table_count(table), ENTRIES);
    for (uint64_t i = 1; i <= ENTRIES; i++)
        assert_at(table, key_number(i), place_at(1 + i % 1000, i % 1000000));

    /* Half of each block is there; a block is larger than what is sorted at once. */
    for (uint64_t start = ENTRIES - BLOCK / 2 + 1; start <= ENTRIES + BLOCK; start += BLOCK) {
        for (uint64_t i = 0; i < BLOCK; i++)
            keys[i] = key_number(start + i);
        blob_table_get_many(table, keys, BLOCK, present);
        for (uint64_t i = 0; i < BLOCK; i++)
            ck_assert_int_eq(present[i], start + i <= ENTRIES);
    }
    blob_table_get_many(table, keys, 0, present);
    blob_table_free(table);
}
END_TEST

static size_t mapped_pages(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages;
}

/*
 * Slots of evicted and removed entries are used again: the table stays as large as what is alive.
 */
START_TEST(table_does_not_grow_by_what_was_evicted_or_removed)
{
    enum { ALIVE = 20000, GENERATIONS = 60 };
    struct blob_table *table = new_table();
    size_t pages_early = 0;
    for (uint64_t generation = 1; generation <= GENERATIONS; generation++) {
        for (uint64_t i = 1; i <= ALIVE; i++)
            put(table, key_number(generation * ALIVE + i), place_at(generation, i));
        if (generation % 2 == 0)
            blob_table_set_min_segment(table, generation);
        else
            for (uint64_t i = 1; generation > 1 && i <= ALIVE; i++)
                ck_assert(blob_table_remove(table, key_number((generation - 1) * ALIVE + i),
                                            place_at(generation - 1, i)));
        ck_assert_uint_eq(blob_table_count(table), ALIVE);
        if (generation == 10)
            pages_early = mapped_pages();
    }
    ck_assert_uint_le(mapped_pages(), pages_early + pages_early / 10);
    blob_table_free(table);
}
END_TEST

START_TEST(table_survives_that_memory_is_used_up)
{
    if (SANITIZED) {
        printf("skip: a limit of memory and sanitizers do not go together\n");
        return;
    }
    struct blob_table *table = new_table();
    struct status status = {0};
    uint64_t count = 0;
    const rlim_t limit = (mapped_pages() + 2000) * (rlim_t)sysconf(_SC_PAGESIZE);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){limit, RLIM_INFINITY}), 0);
    while (blob_table_put(table, key_number(count + 1), place_at(1, 1), &status)) {
        count++;
        ck_assert_uint_lt(count, 10000000);
    }
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_uint_gt(count, 1000);
    ck_assert_uint_eq(blob_table_count(table), count);
    for (uint64_t i = 1; i <= count; i++)
        assert_at(table, key_number(i), place_at(1, 1));
    assert_absent(table, key_number(count + 1));

    /* Replacing needs no memory, and more memory is taken when it is there. */
    put(table, key_number(1), place_at(2, 2));
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
    put(table, key_number(count + 1), place_at(1, 1));
    ck_assert_uint_eq(blob_table_count(table), count + 1);
    blob_table_free(table);
}
END_TEST

START_TEST(table_is_refused_when_there_is_no_memory_for_it)
{
    if (SANITIZED) {
        printf("skip: a limit of memory and sanitizers do not go together\n");
        return;
    }
    struct blob_table *table = NULL;
    struct status status = {0};
    const rlim_t limit = (mapped_pages() + 100) * (rlim_t)sysconf(_SC_PAGESIZE);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){limit, RLIM_INFINITY}), 0);
    ck_assert(!blob_table_new(&table, &status));
    ck_assert_int_eq(status.code, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(table);
    blob_table_free(NULL);
}
END_TEST

/* ---- threads */

enum { THREADS = 4, OWN_KEYS = 20000 };

struct worker {
    struct blob_table *table;
    uint64_t number;
    struct thread thread;
};

/*
 * Each has keys of its own, which must be exactly as it left them, and asks for the others' keys
 * meanwhile.
 */
static void work(void *argument)
{
    struct worker *worker = argument;
    const uint64_t base = 1 + worker->number * OWN_KEYS;
    struct blob_key others[100];
    bool present[100];
    for (uint64_t i = 0; i < OWN_KEYS; i++) {
        put(worker->table, key_number(base + i), place_at(10 + worker->number, i));
        if (i % 3 == 0)
            ck_assert(blob_table_remove(worker->table, key_number(base + i),
                                        place_at(10 + worker->number, i)));
        if (i % 50 == 0) {
            for (uint64_t k = 0; k < ARRAY_LENGTH(others); k++)
                others[k] = key_number(1 + (i * 7 + k * 911) % (THREADS * OWN_KEYS));
            blob_table_get_many(worker->table, others, ARRAY_LENGTH(others), present);
        }
        if (i % 1000 == 0) {
            blob_table_set_min_segment(worker->table, 1 + i / 5000);
            ck_assert_uint_le(blob_table_count(worker->table), THREADS * OWN_KEYS);
        }
    }
    for (uint64_t i = 0; i < OWN_KEYS; i++) {
        if (i % 3 == 0)
            assert_absent(worker->table, key_number(base + i));
        else
            assert_at(worker->table, key_number(base + i), place_at(10 + worker->number, i));
    }
}

START_TEST(table_is_used_by_threads_at_once)
{
    struct worker workers[THREADS];
    struct status status = {0};
    struct blob_table *table = new_table();
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.table = table, .number = i};
        ck_assert(thread_start(&workers[i].thread, "work", 0, work, &workers[i], &status));
    }
    for (size_t i = 0; i < THREADS; i++)
        thread_join(&workers[i].thread);
    ck_assert_uint_eq(blob_table_count(table), (size_t)THREADS * (OWN_KEYS - (OWN_KEYS + 2) / 3));
    blob_table_free(table);
}
END_TEST

/* ---- for eviction */

START_TEST(table_evicts_only_what_was_not_used_since_it_was_looked_at)
{
    struct blob_table *table = new_table();
    const struct blob_key key = key_number(7);
    struct blob_use use;
    blob_table_set_minute(table, 10);
    put(table, key, place_at(3, 5));
    ck_assert(blob_table_look(table, key, &use));
    ck_assert_uint_eq(use.touch, 0);
    blob_table_touch(table, key);
    ck_assert_int_eq(blob_table_evict(table, key, &use), BLOB_EVICT_USED);
    ck_assert(use.touched);
    ck_assert_int_eq(blob_table_evict(table, key, &use), BLOB_EVICTED);
    assert_absent(table, key);
    ck_assert_int_eq(blob_table_evict(table, key, &use), BLOB_EVICT_GONE);

    /* Put back as it was, but not over a new one. */
    struct status status;
    ck_assert(blob_table_restore(table, key, &use, &status));
    assert_at(table, key, place_at(3, 5));
    struct blob_use again;
    ck_assert(blob_table_look(table, key, &again));
    ck_assert_uint_eq(again.touch, use.touch);
    put(table, key, place_at(4, 1));
    ck_assert(blob_table_restore(table, key, &use, &status));
    assert_at(table, key, place_at(4, 1));
    ck_assert_int_eq(blob_table_evict(table, key, &use), BLOB_EVICT_GONE);
    ck_assert_uint_eq(blob_table_count(table), 1);
    blob_table_free(table);
}
END_TEST

START_TEST(table_replaces_only_what_lies_where_it_was_and_clears_only_the_touch_that_was_seen)
{
    struct blob_table *table = new_table();
    const struct blob_key key = key_number(8);
    struct blob_use use;
    blob_table_set_minute(table, 10);
    put(table, key, place_at(3, 5));
    ck_assert(!blob_table_replace(table, key, place_at(3, 6), place_at(9, 9), 0));
    ck_assert(!blob_table_replace(table, key_number(9), place_at(3, 5), place_at(9, 9), 0));
    assert_at(table, key, place_at(3, 5));

    blob_table_touch(table, key);
    ck_assert(blob_table_look(table, key, &use));
    blob_table_set_minute(table, 12);
    blob_table_touch(table, key); /* later than what was seen */
    ck_assert(blob_table_replace(table, key, place_at(3, 5), place_at(4, 5), use.touch));
    ck_assert(blob_table_look(table, key, &use));
    ck_assert(use.touched && use.place.segment == 4);
    ck_assert(blob_table_replace(table, key, place_at(4, 5), place_at(5, 5), 0));
    ck_assert(blob_table_look(table, key, &use));
    ck_assert(use.touched);
    ck_assert(blob_table_replace(table, key, place_at(5, 5), place_at(6, 5), use.touch));
    ck_assert(blob_table_look(table, key, &use));
    ck_assert(!use.touched);
    ck_assert_uint_eq(use.place.segment, 6);
    blob_table_free(table);
}
END_TEST

START_TEST(table_forgets_and_touches_by_segment)
{
    enum { KEYS = 3000 };
    struct blob_table *table = new_table();
    const uint8_t segments[] = {0x08, 0x01}; /* 3 and 8 */
    struct blob_use use;
    blob_table_set_minute(table, 100);
    for (uint64_t i = 0; i < KEYS; i++)
        put(table, key_number(i + 1), place_at(1 + i % 10, i));
    blob_table_touch_segments(table, segments, 16, 30);
    for (uint64_t i = 0; i < KEYS; i++) {
        ck_assert(blob_table_look(table, key_number(i + 1), &use));
        ck_assert_int_eq(use.touched, 1 + i % 10 == 3 || 1 + i % 10 == 8);
        ck_assert(!use.touched || use.idle_minutes == 30);
    }
    /* Longer ago than the count of minutes goes back; what was used stays so. */
    const uint8_t others[] = {0x28}; /* 3 and 5 */
    blob_table_touch_segments(table, others, 8, 200);
    ck_assert(blob_table_look(table, key_number(3), &use));
    ck_assert_uint_eq(use.idle_minutes, 30);
    ck_assert(blob_table_look(table, key_number(5), &use));
    ck_assert_uint_eq(use.idle_minutes, 200);
    blob_table_set_used(table, key_number(6), place_at(7, 6), 40); /* it lies elsewhere */
    ck_assert(blob_table_look(table, key_number(6), &use));
    ck_assert(!use.touched);
    blob_table_set_used(table, key_number(6), place_at(6, 5), 40);
    ck_assert(blob_table_look(table, key_number(6), &use));
    ck_assert_uint_eq(use.idle_minutes, 40);
    /* All that were used, a few at a time. */
    struct blob_use uses[7];
    size_t used = 0;
    for (uint64_t cursor = 0; cursor != BLOB_TABLE_END;) {
        const size_t count = blob_table_read_used(table, &cursor, uses, ARRAY_LENGTH(uses));
        ck_assert_uint_le(count, ARRAY_LENGTH(uses));
        for (size_t i = 0; i < count; i++)
            ck_assert(uses[i].touched &&
                      (uses[i].place.segment == 3 || uses[i].place.segment == 5 ||
                       uses[i].place.segment == 6 || uses[i].place.segment == 8));
        used += count;
    }
    ck_assert_uint_eq(used, KEYS / 10 * 3 + 1);
    ck_assert_uint_eq(blob_table_forget_segment(table, 4), KEYS / 10);
    ck_assert_uint_eq(blob_table_forget_segment(table, 4), 0);
    ck_assert_uint_eq(blob_table_count(table), KEYS / 10 * 9);
    for (uint64_t i = 0; i < KEYS; i++)
        ck_assert_int_eq(blob_table_look(table, key_number(i + 1), &use), 1 + i % 10 != 4);
    blob_table_free(table);
}
END_TEST

/* ---- loading */

static void load(struct blob_table *table, struct blob_key key, struct place place)
{
    struct status status = {0};
    ck_assert_msg(blob_table_load(table, key, place, &status), "%s", status.message);
}

/* What was put or removed since the load began wins over what the load brings, in shards that grow meanwhile. */
START_TEST(table_is_loaded_behind_whoever_uses_it)
{
    enum { KEYS = 200000 };
    struct blob_table *table = new_table();
    ck_assert(!blob_table_may_come(table, key_number(1)));
    blob_table_begin_load(table);
    for (uint64_t i = 1; i <= KEYS; i++) {
        const struct blob_key key = key_number(i);
        ck_assert(blob_table_may_come(table, key));
        if (i % 4 == 0) /* put before it is loaded */
            put(table, key, place_at(9, i));
        if (i % 4 == 1) { /* brought early, and removed */
            load(table, key, place_at(7, i));
            ck_assert(blob_table_remove(table, key, place_at(7, i)));
        }
        if (i % 4 == 2) { /* put, and removed */
            put(table, key, place_at(9, i));
            ck_assert(blob_table_remove(table, key, place_at(9, i)));
        }
        ck_assert(blob_table_may_come(table, key) == (i % 4 == 3));
    }
    ck_assert_uint_eq(blob_table_count(table), KEYS / 4);
    for (uint64_t i = 1; i <= KEYS; i++)
        load(table, key_number(i), place_at(7, i));
    for (uint64_t i = 1; i <= KEYS; i++) {
        if (i % 4 == 0)
            assert_at(table, key_number(i), place_at(9, i));
        else if (i % 4 == 3)
            assert_at(table, key_number(i), place_at(7, i));
        else
            assert_absent(table, key_number(i));
        ck_assert(!is_touched(table, key_number(i)));
    }
    blob_table_end_load(table);
    load(table, key_number(1), place_at(7, 1)); /* too late */
    assert_absent(table, key_number(1));
    ck_assert(!blob_table_may_come(table, key_number(KEYS + 1)));
    ck_assert_uint_eq(blob_table_count(table), KEYS / 2);
    put(table, key_number(1), place_at(9, 1)); /* removed ones can be put again */
    assert_at(table, key_number(1), place_at(9, 1));
    blob_table_free(table);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blob_table");
    TCase *tcase = tcase_create("blob_table");
    tcase_add_test(tcase, key_differs_in_every_part_of_the_name);
    tcase_add_test(tcase, key_takes_an_instance_name_of_any_length);
    tcase_add_test(tcase, key_is_of_one_table_only);
    tcase_add_test(tcase, entry_comes_back_as_it_was_put);
    tcase_add_test(tcase, entry_is_touched_by_a_get_that_says_so_until_it_is_put_again);
    tcase_add_test(tcase, entry_is_removed_only_from_the_place_that_was_named);
    tcase_add_test(tcase, entry_in_a_segment_below_the_lowest_is_absent);
    tcase_add_test_raise_signal(tcase, entry_of_a_bad_place_is_asserted, SIGABRT);
    tcase_add_loop_test(tcase, table_answers_as_a_plain_array_does, 0, 3);
    tcase_add_test(tcase, table_keeps_everything_while_it_grows);
    tcase_add_test(tcase, table_does_not_grow_by_what_was_evicted_or_removed);
    tcase_add_test(tcase, table_survives_that_memory_is_used_up);
    tcase_add_test(tcase, table_is_refused_when_there_is_no_memory_for_it);
    tcase_add_test(tcase, table_is_loaded_behind_whoever_uses_it);
    tcase_add_test(tcase, table_is_used_by_threads_at_once);
    tcase_add_test(tcase, table_evicts_only_what_was_not_used_since_it_was_looked_at);
    tcase_add_test(
        tcase, table_replaces_only_what_lies_where_it_was_and_clears_only_the_touch_that_was_seen);
    tcase_add_test(tcase, table_forgets_and_touches_by_segment);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
