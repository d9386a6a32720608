/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that writers of one blob which have their chunks in common write each once, whatever the order, and that a
 * writer with other bytes neither gets nor gives a wrong chunk: blob writers on a real store, whose blobs are then read back.
 * Threads at the end come to every chunk together.
 */
#include <stdlib.h>

#include "base/thread.h"
#include "store/blob_writer.h"
#include "tests/support/prng.h"
#include "tests/support/real_store.h"
#include "tests/support/test_run.h"

enum { BLOB_BYTES = 5 * 1024 * 1024 + 1000, WRITERS = 8, POOLED = 24 };

static struct metrics metrics;
static struct real_store real;
static struct chunk_share *share;
static struct status status;
static struct digest digest;
static uint8_t blob[BLOB_BYTES];
static int64_t appended_before;

static void set_up(void)
{
    metrics = (struct metrics){0};
    real_store_open(&real, &metrics, POOLED);
    ck_assert(chunk_share_new(&share, &status));
    struct prng prng = {5};
    for (size_t i = 0; i + 8 <= BLOB_BYTES; i += 8) {
        const uint64_t number = prng_next(&prng);
        memcpy(blob + i, &number, sizeof(number));
    }
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(blob, BLOB_BYTES), &digest);
    appended_before = metrics_get(&metrics, METRIC_RECORD_BYTES_APPENDED);
}

static void tear_down(void)
{
    chunk_share_unref(share);
    real_store_close(&real);
}

static struct blob_writer *writer_new(void)
{
    struct blob_writer *writer;
    struct status why;
    ASSERT(blob_writer_new(real.store, &digest, &writer, &why));
    blob_writer_set_share(writer, share);
    return writer;
}

static void add(struct blob_writer *writer, struct bytes data)
{
    struct status why;
    if (blob_writer_needs_buffer(writer)) {
        struct buffer *const buffer = buffer_pool_try_take(real.buffers);
        ASSERT(buffer != NULL);
        blob_writer_give_buffer(writer, buffer);
    }
    ASSERT(blob_writer_append(writer, data, &why));
}

/* Up to there, in steps. */
static void add_to(struct blob_writer *writer, size_t end, size_t step)
{
    for (size_t at = blob_writer_offset(writer); at < end; at = blob_writer_offset(writer))
        add(writer, bytes_of(blob + at, end - at < step ? end - at : step));
}

static const struct manifest_chunk *finish(struct blob_writer *writer, size_t *count)
{
    struct record *record;
    enum lane lane;
    struct status why;
    ASSERT(blob_writer_finish(writer, &record, &lane, &why));
    ASSERT(record->kind == RECORD_MANIFEST);
    *count = record->payload_bytes / sizeof(struct manifest_chunk);
    return (const struct manifest_chunk *)(const void *)record->payload.parts[0].data;
}

/* The manifest covers the blob without a gap, and each chunk is on disk as it says. */
static void check_chunks(const struct manifest_chunk *chunks, size_t count)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct place place = place_unpack(chunks[i].place);
        struct segment *const segment = segment_set_pin(real.store->segments, place.segment);
        uint8_t *const memory = malloc(LIMIT_POOL_BUFFER_BYTES);
        struct record_header header;
        struct bytes payload;
        ck_assert_ptr_nonnull(segment);
        ck_assert(segment_read_record(segment, place.offset,
                                      RECORD_HEADER_BYTES + chunks[i].payload_bytes, memory,
                                      LIMIT_POOL_BUFFER_BYTES, &header, &payload, &status));
        ck_assert_uint_eq(chunks[i].blob_offset, at);
        ck_assert_uint_eq(payload.length, chunks[i].payload_bytes);
        ck_assert(memcmp(payload.data, blob + at, payload.length) == 0);
        at += payload.length;
        free(memory);
        segment_set_unpin(real.store->segments, segment);
    }
    ck_assert_uint_eq(at, BLOB_BYTES);
}

static void finish_and_check(struct blob_writer *writer)
{
    size_t count;
    const struct manifest_chunk *const chunks = finish(writer, &count);
    check_chunks(chunks, count);
    blob_writer_free(writer);
}

static int64_t appended(void)
{
    return metrics_get(&metrics, METRIC_RECORD_BYTES_APPENDED) - appended_before;
}

/* With headers and padding. */
static const int64_t one_copy_max = BLOB_BYTES + 8 * 4096;

START_TEST(chunk_share_has_writers_in_step_write_each_chunk_once)
{
    struct blob_writer *writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        writers[i] = writer_new();
    for (size_t end = 0; end < BLOB_BYTES; end += 300000)
        for (int i = 0; i < WRITERS; i++)
            add_to(writers[i], end, 70000);
    for (int i = 0; i < WRITERS; i++) {
        add_to(writers[i], BLOB_BYTES, 70000);
        finish_and_check(writers[i]);
    }
    ck_assert_int_le(appended(), one_copy_max);
}
END_TEST

START_TEST(chunk_share_gives_a_late_writer_what_is_there)
{
    struct blob_writer *const first = writer_new();
    add_to(first, 4 * MIB, 100000);
    blob_writer_free(first); /* its client is gone */
    struct blob_writer *const second = writer_new();
    add_to(second, BLOB_BYTES, 333333);
    finish_and_check(second);
    ck_assert_int_le(appended(), one_copy_max);
}
END_TEST

START_TEST(chunk_share_is_in_step_again_after_a_writer_was_parked)
{
    struct blob_writer *const first = writer_new();
    struct blob_writer *const second = writer_new();
    add_to(first, BLOB_BYTES, 100000);
    add_to(second, MIB / 2, 100000);
    ck_assert(blob_writer_park(second, &status));
    add_to(second, 2 * MIB + MIB / 2, 100000);
    ck_assert(blob_writer_park(second, &status));
    add_to(second, BLOB_BYTES, 100000);
    finish_and_check(first);
    finish_and_check(second);
    ck_assert_int_le(appended(), one_copy_max + 2 * (int64_t)(MIB + 8192));
}
END_TEST

/* It is right up to one byte, and then again; wherever that byte is. */
START_TEST(chunk_share_never_mixes_bytes_of_writers_that_differ)
{
    static const size_t wrong_at[] = {0, 700000, MIB - 1, MIB, 3 * MIB + 5, BLOB_BYTES - 1};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong_at); i++) {
        struct blob_writer *const bad = writer_new();
        struct blob_writer *const good = writer_new();
        for (size_t end = 0; end <= BLOB_BYTES; end += 200000) {
            blob[wrong_at[i]] ^= 1;
            add_to(bad, end, 200000);
            blob[wrong_at[i]] ^= 1;
            add_to(good, end, 200000);
        }
        blob[wrong_at[i]] ^= 1;
        add_to(bad, BLOB_BYTES, 200000);
        blob[wrong_at[i]] ^= 1;
        struct record *record;
        enum lane lane;
        ck_assert(!blob_writer_finish(bad, &record, &lane, &status));
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        blob_writer_free(bad);
        add_to(good, BLOB_BYTES, 200000);
        finish_and_check(good);
    }
}
END_TEST

START_TEST(chunk_share_keeps_two_kinds_of_bytes_apart_without_writing_each_again)
{
    struct blob_writer *writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = writer_new();
        blob[5] ^= i % 2 == 0 ? 0 : 1;
        add_to(writers[i], 5 * MIB, 100000);
        blob[5] ^= i % 2 == 0 ? 0 : 1;
    }
    ck_assert_int_le(appended(), 2 * one_copy_max);
    for (int i = 0; i < WRITERS; i += 2) {
        add_to(writers[i], BLOB_BYTES, 100000);
        finish_and_check(writers[i]);
        blob_writer_free(writers[i + 1]);
    }
}
END_TEST

static void write_all(void *argument)
{
    (void)argument;
    struct blob_writer *const writer = writer_new();
    size_t count;
    add_to(writer, BLOB_BYTES, 64 * 1024);
    finish(writer, &count);
    ASSERT(count == 6);
    blob_writer_free(writer);
}

START_TEST(chunk_share_writes_once_what_threads_come_to_together)
{
    struct thread threads[WRITERS] = {0};
    for (int i = 0; i < WRITERS; i++)
        ck_assert(thread_start(&threads[i], "writer", 0, write_all, NULL, &status));
    for (int i = 0; i < WRITERS; i++)
        thread_join(&threads[i]);
    ck_assert_int_le(appended(), one_copy_max);
    struct blob_writer *const late = writer_new();
    add_to(late, BLOB_BYTES, 999999);
    finish_and_check(late);
    ck_assert_int_le(appended(), one_copy_max);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunk_share");
    TCase *tcase = tcase_create("chunk_share");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, chunk_share_has_writers_in_step_write_each_chunk_once);
    tcase_add_test(tcase, chunk_share_gives_a_late_writer_what_is_there);
    tcase_add_test(tcase, chunk_share_is_in_step_again_after_a_writer_was_parked);
    tcase_add_test(tcase, chunk_share_never_mixes_bytes_of_writers_that_differ);
    tcase_add_test(tcase, chunk_share_keeps_two_kinds_of_bytes_apart_without_writing_each_again);
    tcase_add_test(tcase, chunk_share_writes_once_what_threads_come_to_together);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
