/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what FindMissingBlobs, BatchUpdateBlobs, BatchReadBlobs and GetTree answer, entry by
 * entry, and that a blob is there for every call as soon as one of them said OK: the empty blob,
 * the advertised limit to the byte, entries that are wrong beside others that are right, data that
 * decodes to something else, disks that are full or fail, buffers that are short.
 *
 * Method: over gRPC, with a real store; answers are taken apart with protobuf-c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include "base/limits.h"
#include "tests/support/cas_rig.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/reapi_names.h"
#include "tests/support/test_run.h"

enum { IDENTITY = 0, ZSTD = 1, DEFLATE = 2 };

static struct cas_rig rig;
static char text[RPC_TEXT_BYTES_MAX];

static void setup(void)
{
    cas_rig_start(&rig, 4);
}

static void teardown(void)
{
    cas_rig_stop(&rig);
}

static struct bytes random_bytes(uint64_t seed, size_t length)
{
    uint8_t *const data = malloc(length + sizeof(uint64_t));
    ck_assert_ptr_nonnull(data);
    struct prng prng = {.state = seed};
    for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
        const uint64_t random = prng_next(&prng);
        memcpy(data + i, &random, sizeof(random));
    }
    return bytes_of(data, length);
}

static void bytes_free(struct bytes bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

static struct digest digest_of(struct bytes data)
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
    return digest;
}

static void *unpack(const ProtobufCMessageDescriptor *descriptor, struct byte_builder *response)
{
    ProtobufCMessage *const message =
        protobuf_c_message_unpack(descriptor, NULL, response->length, response->data);
    ck_assert_ptr_nonnull(message);
    byte_builder_free(response);
    return message;
}

static void expect_digest(const REAPI(Digest) * seen, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_ptr_nonnull(seen);
    ck_assert_str_eq(seen->hash, digest_hex(digest, hex));
    ck_assert_int_eq(seen->size_bytes, digest->size_bytes);
}

/* ---- FindMissingBlobs */

/*
 * How many are missing. The answer's digests must be a part of what was asked for, in that order.
 */
static size_t count_missing(const struct digest *digests, size_t count)
{
    struct byte_builder request = {0};
    struct byte_builder response;
    for (size_t i = 0; i < count; i++)
        message_add_digest(&request, 2, &digests[i]);
    const grpc_status_code code =
        cas_rig_call(&rig, CAS_METHOD("FindMissingBlobs"), &request, &response, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    REAPI(FindMissingBlobsResponse) *const seen =
        unpack(&REAPI_DESCRIPTOR(find_missing_blobs_response), &response);
    size_t at = 0;
    for (size_t i = 0; i < seen->n_missing_blob_digests; i++) {
        char hex[DIGEST_HASH_HEX_MAX + 1];
        while (at < count &&
               (strcmp(digest_hex(&digests[at], hex), seen->missing_blob_digests[i]->hash) != 0 ||
                digests[at].size_bytes != seen->missing_blob_digests[i]->size_bytes))
            at++;
        ck_assert_uint_lt(at, count);
        at++;
    }
    const size_t missing = seen->n_missing_blob_digests;
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    return missing;
}

static bool is_missing(struct digest digest)
{
    return count_missing(&digest, 1) == 1;
}

/* ---- BatchUpdateBlobs */

static void add_update(struct byte_builder *request,
                       const struct digest *digest,
                       struct bytes data,
                       int compressor)
{
    struct byte_builder entry = {0};
    message_add_digest(&entry, 1, digest);
    message_add(&entry, 2, data);
    if (compressor != IDENTITY)
        message_add_number(&entry, 3, (uint64_t)compressor);
    message_add_message(request, 2, &entry);
}

static REAPI(BatchUpdateBlobsResponse) * update(struct byte_builder *request)
{
    struct byte_builder response;
    const grpc_status_code code =
        cas_rig_call(&rig, CAS_METHOD("BatchUpdateBlobs"), request, &response, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    REAPI(BatchUpdateBlobsResponse) *const seen =
        unpack(&REAPI_DESCRIPTOR(batch_update_blobs_response), &response);
    for (size_t i = 0; i < seen->n_responses; i++)
        ck_assert_ptr_nonnull(seen->responses[i]->status);
    return seen;
}

static int update_one(const struct digest *digest, struct bytes data, int compressor)
{
    struct byte_builder request = {0};
    add_update(&request, digest, data, compressor);
    REAPI(BatchUpdateBlobsResponse) *const seen = update(&request);
    ck_assert_uint_eq(seen->n_responses, 1);
    expect_digest(seen->responses[0]->digest, digest);
    const int code = seen->responses[0]->status->code;
    snprintf(text, sizeof(text), "%s", seen->responses[0]->status->message);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    return code;
}

/* ---- BatchReadBlobs */

static void add_read(struct byte_builder *request, const struct digest *digest)
{
    message_add_digest(request, 2, digest);
}

static REAPI(BatchReadBlobsResponse) * read_blobs(struct byte_builder *request)
{
    struct byte_builder response;
    const grpc_status_code code =
        cas_rig_call(&rig, CAS_METHOD("BatchReadBlobs"), request, &response, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "%s", text);
    ck_assert_uint_le(response.length, LIMIT_RESPONSE_BYTES);
    REAPI(BatchReadBlobsResponse) *const seen =
        unpack(&REAPI_DESCRIPTOR(batch_read_blobs_response), &response);
    for (size_t i = 0; i < seen->n_responses; i++)
        ck_assert_ptr_nonnull(seen->responses[i]->status);
    return seen;
}

/* Its data, to be freed; NULL and *code when it was not to be had. */
static struct bytes read_one(const struct digest *digest, int *code)
{
    struct byte_builder request = {0};
    add_read(&request, digest);
    REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
    ck_assert_uint_eq(seen->n_responses, 1);
    expect_digest(seen->responses[0]->digest, digest);
    ck_assert_int_eq((int)seen->responses[0]->compressor, IDENTITY);
    *code = seen->responses[0]->status->code;
    const size_t length = seen->responses[0]->data.len;
    uint8_t *const data = malloc(length + 1);
    ck_assert_ptr_nonnull(data);
    if (length > 0)
        memcpy(data, seen->responses[0]->data.data, length);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    return bytes_of(data, length);
}

/* Is it present: found, and read back bit for bit. */
static void expect_present(struct bytes data)
{
    const struct digest digest = digest_of(data);
    int code;
    ck_assert(!is_missing(digest));
    const struct bytes read = read_one(&digest, &code);
    ck_assert_int_eq(code, STATUS_OK);
    ck_assert(bytes_equal(read, data));
    bytes_free(read);
}

static void expect_absent(const struct digest *digest)
{
    int code;
    ck_assert(is_missing(*digest));
    const struct bytes read = read_one(digest, &code);
    ck_assert_int_eq(code, STATUS_NOT_FOUND);
    ck_assert_uint_eq(read.length, 0);
    bytes_free(read);
}

/* ==== FindMissingBlobs */

START_TEST(empty_blob_is_there_before_anything_was_stored)
{
    expect_present(bytes_of(NULL, 0));
    const struct digest empty = digest_of(bytes_of(NULL, 0));
    ck_assert_int_eq(update_one(&empty, bytes_of(NULL, 0), IDENTITY), STATUS_OK);
    struct digest other = digest_of_nothing(1);
    other.size_bytes = 0;
    expect_absent(&other);
    ck_assert_int_eq(update_one(&other, bytes_of(NULL, 0), IDENTITY), STATUS_INVALID_ARGUMENT);
    expect_absent(&other);
}
END_TEST

START_TEST(find_missing_answers_in_the_order_of_the_request)
{
    struct digest asked[300];
    for (uint64_t i = 0; i < ARRAY_LENGTH(asked); i++) {
        asked[i] = digest_of_nothing(i % 40);
        if (i % 40 < 10)
            asked[i] = digest_of(bytes_of(&i, 0)); /* the empty blob */
        else if (i % 40 < 20) {
            const uint64_t number = i % 40;
            asked[i] = real_store_put(&rig.real, bytes_of(&number, sizeof(number)));
        }
    }
    ck_assert_uint_eq(count_missing(asked, ARRAY_LENGTH(asked)), 7 * 20);
    ck_assert_uint_eq(count_missing(asked, 0), 0);
    ck_assert_int_eq(metrics_get(&rig.front.metrics, METRIC_CAS_MISSING), 140);
    ck_assert_int_eq(metrics_get(&rig.front.metrics, METRIC_CAS_FOUND), 160);
}
END_TEST

START_TEST(find_missing_takes_a_hundred_thousand_digests)
{
    enum { DIGESTS = 100000 };
    struct digest *const asked = calloc(DIGESTS, sizeof(*asked));
    ck_assert_ptr_nonnull(asked);
    for (uint64_t i = 0; i < DIGESTS; i++) {
        asked[i] = digest_of_nothing(0);
        memcpy(asked[i].hash, &i, sizeof(i));
    }
    asked[77777] = real_store_put(&rig.real, bytes_of_string("there"));
    ck_assert_uint_eq(count_missing(asked, DIGESTS), DIGESTS - 1);
    free(asked);
}
END_TEST

START_TEST(find_missing_refuses_a_digest_that_is_none_and_names_it)
{
    static const char *const hashes[] = {"", "zz", "../../../../etc/passwd"};
    for (size_t i = 0; i < ARRAY_LENGTH(hashes); i++) {
        struct byte_builder request = {0};
        struct byte_builder response;
        struct byte_builder digest = {0};
        const struct digest good = digest_of_nothing(1);
        message_add_digest(&request, 2, &good);
        message_add_text(&digest, 1, hashes[i]);
        message_add_number(&digest, 2, 5);
        message_add_message(&request, 2, &digest);
        ck_assert_int_eq(
            cas_rig_call(&rig, CAS_METHOD("FindMissingBlobs"), &request, &response, text),
            GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_msg(strstr(text, "blob_digests[1]") != NULL, "%s", text);
        byte_builder_free(&response);
    }
}
END_TEST

/* ==== BatchUpdateBlobs */

/*
 * The limit to the byte, as one blob, as 100 and as 20,000; one byte more is refused and nothing
 * else is harmed.
 */
START_TEST(batch_limit_that_is_advertised_is_true)
{
    static const size_t counts[] = {1, 100, 20000};
    for (size_t c = 0; c < ARRAY_LENGTH(counts); c++) {
        const size_t count = counts[c];
        const struct bytes data = random_bytes(c + 1, LIMIT_BATCH_TOTAL_BYTES);
        struct byte_builder request = {0};
        struct digest *const digests = calloc(count, sizeof(*digests));
        ck_assert_ptr_nonnull(digests);
        for (size_t i = 0; i < count; i++) {
            const size_t begin = LIMIT_BATCH_TOTAL_BYTES / count * i;
            const size_t end = i + 1 == count ? LIMIT_BATCH_TOTAL_BYTES
                                              : LIMIT_BATCH_TOTAL_BYTES / count * (i + 1);
            const struct bytes blob = bytes_of(data.data + begin, end - begin);
            digests[i] = digest_of(blob);
            add_update(&request, &digests[i], blob, IDENTITY);
        }
        REAPI(BatchUpdateBlobsResponse) *const seen = update(&request);
        ck_assert_uint_eq(seen->n_responses, count);
        for (size_t i = 0; i < count; i++) {
            ck_assert_int_eq(seen->responses[i]->status->code, STATUS_OK);
            if (i % 1000 == 0)
                expect_digest(seen->responses[i]->digest, &digests[i]);
        }
        protobuf_c_message_free_unpacked(&seen->base, NULL);
        ck_assert_uint_eq(count_missing(digests, count), 0);
        free(digests);
        bytes_free(data);
    }

    const struct bytes more = random_bytes(99, LIMIT_BATCH_TOTAL_BYTES + 1);
    const struct digest digest = digest_of(more);
    struct byte_builder request = {0};
    struct byte_builder response;
    add_update(&request, &digest, more, IDENTITY);
    ck_assert_int_eq(cas_rig_call(&rig, CAS_METHOD("BatchUpdateBlobs"), &request, &response, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(text, "3670017"));
    ck_assert_ptr_nonnull(strstr(text, "3670016"));
    byte_builder_free(&response);
    ck_assert(is_missing(digest));
    bytes_free(more);
}
END_TEST

START_TEST(batch_update_judges_each_entry_by_itself)
{
    enum { GOOD, WRONG_HASH, TOO_SHORT, TOO_LONG, NO_DIGEST, DEFLATED, GOOD_TOO, ENTRIES };
    struct bytes data[ENTRIES];
    struct digest digests[ENTRIES];
    struct byte_builder request = {0};
    for (int i = 0; i < ENTRIES; i++) {
        data[i] = random_bytes((uint64_t)i + 1, 300);
        digests[i] = digest_of(data[i]);
        if (i == WRONG_HASH)
            digests[i].hash[31] ^= 1;
        if (i == TOO_SHORT)
            digests[i].size_bytes++;
        if (i == TOO_LONG)
            digests[i].size_bytes--;
        if (i == NO_DIGEST) {
            struct byte_builder entry = {0};
            message_add(&entry, 2, data[i]);
            message_add_message(&request, 2, &entry);
        } else {
            add_update(&request, &digests[i], data[i], i == DEFLATED ? DEFLATE : IDENTITY);
        }
    }
    REAPI(BatchUpdateBlobsResponse) *const seen = update(&request);
    ck_assert_uint_eq(seen->n_responses, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const bool good = i == GOOD || i == GOOD_TOO;
        ck_assert_int_eq(seen->responses[i]->status->code,
                         good ? STATUS_OK : STATUS_INVALID_ARGUMENT);
        ck_assert(good == (seen->responses[i]->status->message[0] == '\0'));
        if (i == TOO_SHORT || i == TOO_LONG)
            ck_assert_ptr_nonnull(
                strstr(seen->responses[i]->status->message, "300 bytes were sent"));
        if (i != NO_DIGEST)
            expect_digest(seen->responses[i]->digest, &digests[i]);
        if (good)
            expect_present(data[i]);
        else
            expect_absent(&digests[i]);
        bytes_free(data[i]);
    }
    protobuf_c_message_free_unpacked(&seen->base, NULL);
}
END_TEST

START_TEST(batch_update_takes_a_blob_several_times_in_a_call_and_again_later)
{
    const struct bytes small = random_bytes(1, 400);
    const struct bytes large = random_bytes(2, LIMIT_SMALL_BLOB_BYTES + 1);
    const struct digest digests[] = {digest_of(small), digest_of(large)};
    for (int round = 0; round < 3; round++) {
        struct byte_builder request = {0};
        for (int i = 0; i < 6; i++) {
            if (i % 2 == 0)
                add_update(&request, &digests[0], small, IDENTITY);
            else
                add_update(&request, &digests[1], large, IDENTITY);
        }
        REAPI(BatchUpdateBlobsResponse) *const seen = update(&request);
        ck_assert_uint_eq(seen->n_responses, 6);
        for (size_t i = 0; i < 6; i++) {
            expect_digest(seen->responses[i]->digest, &digests[i % 2]);
            ck_assert_int_eq(seen->responses[i]->status->code, STATUS_OK);
        }
        protobuf_c_message_free_unpacked(&seen->base, NULL);
        expect_present(small);
        expect_present(large);
    }
    ck_assert_int_eq(metrics_get(&rig.store_metrics, METRIC_BLOBS_WRITTEN), 2);
    bytes_free(small);
    bytes_free(large);
}
END_TEST

/* ---- zstd */

static struct bytes compress(struct bytes data)
{
    const size_t room = ZSTD_compressBound(data.length);
    uint8_t *const to = malloc(room);
    ck_assert_ptr_nonnull(to);
    const size_t length = ZSTD_compress(to, room, data.data, data.length, 3);
    ck_assert(!ZSTD_isError(length));
    return bytes_of(to, length);
}

static struct bytes zeros(size_t length)
{
    uint8_t *const data = calloc(1, length + 1);
    ck_assert_ptr_nonnull(data);
    return bytes_of(data, length);
}

START_TEST(batch_update_decodes_zstd_of_any_size)
{
    static const size_t sizes[] = {0,
                                   1,
                                   300,
                                   5000,
                                   LIMIT_SMALL_BLOB_BYTES,
                                   LIMIT_SMALL_BLOB_BYTES + 1,
                                   3 * LIMIT_SMALL_BLOB_BYTES};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        for (int random = 0; random < 2; random++) {
            const struct bytes data = random ? random_bytes(i + 1, sizes[i]) : zeros(sizes[i]);
            const struct bytes packed = compress(data);
            const struct digest digest = digest_of(data);
            ck_assert_int_eq(update_one(&digest, packed, ZSTD), STATUS_OK);
            expect_present(data);
            bytes_free(packed);
            bytes_free(data);
        }
    }
}
END_TEST

START_TEST(batch_update_takes_several_frames_for_one_blob)
{
    const struct bytes data = zeros(2000);
    const struct bytes half = compress(bytes_of(data.data, 1000));
    struct byte_builder frames = {0};
    byte_builder_append(&frames, half);
    byte_builder_append(&frames, half);
    const struct digest digest = digest_of(data);
    ck_assert_int_eq(update_one(&digest, message_bytes(&frames), ZSTD), STATUS_OK);
    expect_present(data);
    byte_builder_free(&frames);
    bytes_free(half);
    bytes_free(data);
}
END_TEST

START_TEST(batch_update_refuses_zstd_that_is_broken_or_of_another_size)
{
    const struct bytes data = random_bytes(1, 5000);
    const struct bytes packed = compress(data);
    const struct digest digest = digest_of(data);
    for (int wrong = 0; wrong < 7; wrong++) {
        struct digest asked = digest;
        struct byte_builder sent = {0};
        byte_builder_append(&sent, packed);
        switch (wrong) {
        case 0:
            sent.data[0] ^= 1; /* no zstd */
            break;
        case 1:
            sent.data[sent.length / 2] ^= 0x55; /* decodes to something else */
            break;
        case 2:
            sent.length -= 3;
            break;
        case 3:
            sent.length = 0;
            break;
        case 4:
            asked.size_bytes--;
            break;
        case 5:
            asked.size_bytes++;
            break;
        default:
            byte_builder_append(&sent, bytes_of_string("behind it")); /* no frame */
            break;
        }
        ck_assert_msg(update_one(&asked, message_bytes(&sent), ZSTD) == STATUS_INVALID_ARGUMENT,
                      "%d", wrong);
        if (asked.size_bytes != digest.size_bytes)
            ck_assert_msg(strstr(text, "decodes to") != NULL, "%s", text);
        expect_absent(&asked);
        byte_builder_free(&sent);
    }
    bytes_free(packed);
    bytes_free(data);
}
END_TEST

/* 64 MiB of zeros in 6 KiB: refused by what the digest says, before anything is decoded. */
START_TEST(batch_update_is_no_way_to_make_the_server_take_much_memory)
{
    const struct bytes data = zeros(64 * MIB);
    const struct bytes packed = compress(data);
    struct digest digest = digest_of(data);
    ck_assert_int_eq(update_one(&digest, packed, ZSTD), STATUS_RESOURCE_EXHAUSTED);
    ck_assert(is_missing(digest));
    digest.size_bytes = 1000; /* a lie */
    ck_assert_int_eq(update_one(&digest, packed, ZSTD), STATUS_INVALID_ARGUMENT);
    bytes_free(packed);
    bytes_free(data);
}
END_TEST

/* ---- buffers and disks */

/*
 * Larger blobs wait for a buffer; as many calls as there may be, and one buffer: each gets its
 * turn.
 */
START_TEST(batch_updates_that_want_buffers_all_come_through_with_one)
{
    enum { CALLS = 8, BLOBS = 3 };
    struct buffer *held[4];
    for (size_t i = 0; i < ARRAY_LENGTH(held); i++) {
        held[i] = buffer_pool_try_take(rig.real.buffers);
        ck_assert_ptr_nonnull(held[i]);
    }
    struct rpc calls[CALLS];
    struct digest digests[CALLS * BLOBS];
    for (size_t c = 0; c < CALLS; c++) {
        struct byte_builder request = {0};
        for (size_t b = 0; b < BLOBS; b++) {
            const struct bytes data =
                random_bytes(c * BLOBS + b + 1, LIMIT_SMALL_BLOB_BYTES + 1 + b);
            digests[c * BLOBS + b] = digest_of(data);
            add_update(&request, &digests[c * BLOBS + b], data, IDENTITY);
            bytes_free(data);
        }
        rpc_begin(&calls[c], &rig.front.client, CAS_METHOD("BatchUpdateBlobs"));
        ck_assert(rpc_send(&calls[c], message_bytes(&request)));
        ck_assert(rpc_half_close(&calls[c]));
        byte_builder_free(&request);
    }
    front_rig_wait_live(&rig.front, CALLS);
    usleep(50000);
    ck_assert_uint_eq(front_live(rig.front.front), CALLS);
    buffer_release(held[0]);
    for (size_t c = 0; c < CALLS; c++) {
        size_t length;
        uint8_t *const response = rpc_receive(&calls[c], &length);
        ck_assert_ptr_nonnull(response);
        free(response);
        ck_assert_int_eq(rpc_end(&calls[c]), GRPC_STATUS_OK);
    }
    ck_assert_uint_eq(count_missing(digests, ARRAY_LENGTH(digests)), 0);
    for (size_t i = 1; i < ARRAY_LENGTH(held); i++)
        buffer_release(held[i]);
}
END_TEST

/*
 * A client that goes away while its batch waits for a buffer leaves nothing behind (cas_rig_stop()
 * asserts it).
 */
START_TEST(batch_update_that_is_cancelled_while_it_waits_gives_everything_back)
{
    struct buffer *held[4];
    for (size_t i = 0; i < ARRAY_LENGTH(held); i++)
        held[i] = buffer_pool_try_take(rig.real.buffers);
    struct rpc call;
    struct byte_builder request = {0};
    const struct bytes data = random_bytes(1, 2 * LIMIT_SMALL_BLOB_BYTES);
    const struct digest digest = digest_of(data);
    add_update(&request, &digest, data, IDENTITY);
    rpc_begin(&call, &rig.front.client, CAS_METHOD("BatchUpdateBlobs"));
    ck_assert(rpc_send(&call, message_bytes(&request)));
    ck_assert(rpc_half_close(&call));
    usleep(50000);
    rpc_cancel(&call);
    ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_CANCELLED);
    for (size_t i = 0; i < ARRAY_LENGTH(held); i++)
        buffer_release(held[i]);
    front_rig_wait_live(&rig.front, 0);
    byte_builder_free(&request);
    bytes_free(data);
}
END_TEST

/* Of the small lane and of the large one, with a good neighbour that was stored before. */
static void expect_all_refused(int code)
{
    const struct bytes before = random_bytes(1, 100);
    const struct bytes small = random_bytes(2, 100);
    const struct bytes large = random_bytes(3, LIMIT_SMALL_BLOB_BYTES + 1);
    const struct digest digests[] = {digest_of(before), digest_of(small), digest_of(large)};
    struct byte_builder request = {0};
    add_update(&request, &digests[0], before, IDENTITY);
    add_update(&request, &digests[1], small, IDENTITY);
    add_update(&request, &digests[2], large, IDENTITY);
    REAPI(BatchUpdateBlobsResponse) *const seen = update(&request);
    ck_assert_uint_eq(seen->n_responses, 3);
    ck_assert_int_eq(seen->responses[0]->status->code, STATUS_OK);
    ck_assert_int_eq(seen->responses[1]->status->code, code);
    ck_assert_int_eq(seen->responses[2]->status->code, code);
    ck_assert_str_ne(seen->responses[1]->status->message, "");
    ck_assert_str_ne(seen->responses[2]->status->message, "");
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    ck_assert(is_missing(digests[1]));
    ck_assert(is_missing(digests[2]));
    expect_present(before);
    bytes_free(before);
    bytes_free(small);
    bytes_free(large);
}

START_TEST(batch_update_says_unavailable_when_a_sync_fails_and_stores_nothing)
{
    const struct bytes before = random_bytes(1, 100);
    const struct bytes large_before = random_bytes(9, 2 * LIMIT_SMALL_BLOB_BYTES);
    real_store_put(&rig.real, before);
    real_store_put(&rig.real, large_before); /* so that both lanes have a segment */
    bytes_free(large_before);
    atomic_store(&rig.real.sync_errno, EIO);
    expect_all_refused(STATUS_UNAVAILABLE);
    atomic_store(&rig.real.sync_errno, 0);
    expect_all_refused(STATUS_UNAVAILABLE); /* for good */
    bytes_free(before);
}
END_TEST

/* ==== BatchReadBlobs */

START_TEST(batch_read_answers_every_digest_in_order)
{
    enum { THERE, ABSENT, WRONG_SIZE, NO_DIGEST, EMPTY, MIDDLE, LARGE, AGAIN, ENTRIES };
    const struct bytes small = random_bytes(1, 500);
    const struct bytes middle = random_bytes(2, 100000);
    const struct bytes large = random_bytes(3, LIMIT_SMALL_BLOB_BYTES + 12345);
    struct digest digests[ENTRIES] = {
        [THERE] = real_store_put(&rig.real, small), [ABSENT] = digest_of_nothing(1),
        [EMPTY] = digest_of(bytes_of(NULL, 0)),     [MIDDLE] = real_store_put(&rig.real, middle),
        [LARGE] = real_store_put(&rig.real, large),
    };
    digests[ABSENT].size_bytes = 77;
    digests[WRONG_SIZE] = digests[THERE];
    digests[WRONG_SIZE].size_bytes--;
    digests[AGAIN] = digests[THERE];
    struct byte_builder request = {0};
    for (int i = 0; i < ENTRIES; i++) {
        if (i == NO_DIGEST)
            message_add_text(&request, 2, "");
        else
            add_read(&request, &digests[i]);
    }
    REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
    const struct {
        int code;
        struct bytes data;
    } expected[ENTRIES] = {
        [THERE] = {STATUS_OK, small},
        [ABSENT] = {STATUS_NOT_FOUND, {0}},
        [WRONG_SIZE] = {STATUS_NOT_FOUND, {0}},
        [NO_DIGEST] = {STATUS_INVALID_ARGUMENT, {0}},
        [EMPTY] = {STATUS_OK, {0}},
        [MIDDLE] = {STATUS_OK, middle},
        [LARGE] = {STATUS_OK, large},
        [AGAIN] = {STATUS_OK, small},
    };
    ck_assert_uint_eq(seen->n_responses, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        ck_assert_int_eq(seen->responses[i]->status->code, expected[i].code);
        ck_assert(bytes_equal(bytes_of(seen->responses[i]->data.data, seen->responses[i]->data.len),
                              expected[i].data));
        if (i != NO_DIGEST)
            expect_digest(seen->responses[i]->digest, &digests[i]);
    }
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    bytes_free(small);
    bytes_free(middle);
    bytes_free(large);
}
END_TEST

/* 0: all is in memory, and is answered where it arrived; 1: nothing is, and a worker waits for the disk. */
START_TEST(batch_read_waits_for_the_disk_only_where_it_has_to)
{
    enum { BLOBS = 3 };
    struct bytes data[BLOBS];
    struct byte_builder request = {0};
    for (int i = 0; i < BLOBS; i++) {
        data[i] = random_bytes((uint64_t)i, 3000);
        const struct digest digest = real_store_put(&rig.real, data[i]);
        add_read(&request, &digest);
    }
    atomic_store(&rig.real.nothing_cached, _i == 1);
    atomic_store(&rig.real.reads, 0);
    atomic_store(&rig.real.reads_cached, 0);
    REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
    ck_assert_uint_eq(seen->n_responses, BLOBS);
    for (int i = 0; i < BLOBS; i++) {
        ck_assert_int_eq(seen->responses[i]->status->code, STATUS_OK);
        ck_assert(bytes_equal(bytes_of(seen->responses[i]->data.data, seen->responses[i]->data.len),
                              data[i]));
        bytes_free(data[i]);
    }
    protobuf_c_message_free_unpacked(&seen->base, NULL);
    if (_i == 0)
        ck_assert_uint_eq(atomic_load(&rig.real.reads), 0);
    else
        ck_assert_uint_ge(atomic_load(&rig.real.reads), BLOBS);
    ck_assert_uint_eq(atomic_load(&rig.real.reads_cached), _i == 0 ? BLOBS : 0);
}
END_TEST

START_TEST(batch_read_of_nothing_is_an_empty_answer)
{
    struct byte_builder request = {0};
    REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
    ck_assert_uint_eq(seen->n_responses, 0);
    protobuf_c_message_free_unpacked(&seen->base, NULL);
}
END_TEST

START_TEST(batch_read_uses_zstd_only_when_it_is_accepted_and_pays)
{
    enum { SOFT, HARD, TINY, SOFT_LARGE, HARD_LARGE, ENTRIES };
    const struct bytes data[ENTRIES] = {
        [SOFT] = zeros(50000),
        [HARD] = random_bytes(1, 50000),
        [TINY] = zeros(1000),
        [SOFT_LARGE] = zeros(LIMIT_SMALL_BLOB_BYTES + 1),
        [HARD_LARGE] = random_bytes(2, LIMIT_SMALL_BLOB_BYTES + 1),
    };
    struct digest digests[ENTRIES];
    for (int i = 0; i < ENTRIES; i++)
        digests[i] = real_store_put(&rig.real, data[i]);
    for (int accepts = 0; accepts < 2; accepts++) {
        struct byte_builder request = {0};
        for (int i = 0; i < ENTRIES; i++)
            add_read(&request, &digests[i]);
        if (accepts)
            message_add_number(&request, 3, ZSTD);
        REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
        for (int i = 0; i < ENTRIES; i++) {
            const REAPI(BatchReadBlobsResponse__Response) *const entry = seen->responses[i];
            const bool packed = accepts && (i == SOFT || i == SOFT_LARGE);
            ck_assert_int_eq(entry->status->code, STATUS_OK);
            ck_assert_int_eq((int)entry->compressor, packed ? ZSTD : IDENTITY);
            uint8_t *const plain = malloc(data[i].length);
            ck_assert_ptr_nonnull(plain);
            if (packed)
                ck_assert_uint_eq(
                    ZSTD_decompress(plain, data[i].length, entry->data.data, entry->data.len),
                    data[i].length);
            else
                memcpy(plain, entry->data.data, entry->data.len);
            ck_assert_mem_eq(plain, data[i].data, data[i].length);
            free(plain);
        }
        protobuf_c_message_free_unpacked(&seen->base, NULL);
    }
    for (int i = 0; i < ENTRIES; i++)
        bytes_free(data[i]);
}
END_TEST

START_TEST(batch_read_over_the_limit_is_refused_with_numbers)
{
    struct digest digests[2] = {digest_of_nothing(1), digest_of_nothing(2)};
    digests[0].size_bytes = LIMIT_BATCH_TOTAL_BYTES;
    digests[1].size_bytes = 1;
    for (size_t count = 1; count <= 2; count++) {
        struct byte_builder request = {0};
        struct byte_builder response;
        for (size_t i = 0; i < count; i++)
            add_read(&request, &digests[i]);
        ck_assert_int_eq(
            cas_rig_call(&rig, CAS_METHOD("BatchReadBlobs"), &request, &response, text),
            count == 1 ? GRPC_STATUS_OK : GRPC_STATUS_INVALID_ARGUMENT);
        byte_builder_free(&response);
    }
    ck_assert_ptr_nonnull(strstr(text, "3670017"));
    /* Sizes that add up to more than 64 bits. */
    struct byte_builder request = {0};
    struct byte_builder response;
    digests[0].size_bytes = INT64_MAX;
    for (size_t i = 0; i < 4; i++)
        add_read(&request, &digests[0]);
    ck_assert_int_eq(cas_rig_call(&rig, CAS_METHOD("BatchReadBlobs"), &request, &response, text),
                     GRPC_STATUS_INVALID_ARGUMENT);
    byte_builder_free(&response);
}
END_TEST

/*
 * 20,000 blobs within the limit, whose answer with overhead is more than a client's 4 MiB: no blob
 * is lost, some come later.
 */
START_TEST(batch_read_that_outgrows_a_message_asks_for_another_call)
{
    enum { BLOBS = 20000 };
    const size_t size = LIMIT_BATCH_TOTAL_BYTES / BLOBS;
    const struct bytes data = random_bytes(5, BLOBS * size);
    struct digest *const digests = calloc(BLOBS, sizeof(*digests));
    ck_assert_ptr_nonnull(digests);
    struct byte_builder request = {0};
    for (size_t i = 0; i < BLOBS; i++) {
        const struct bytes blob = bytes_of(data.data + i * size, size);
        digests[i] = digest_of(blob);
        add_update(&request, &digests[i], blob, IDENTITY);
    }
    protobuf_c_message_free_unpacked(&update(&request)->base, NULL);

    size_t done = 0;
    int calls = 0;
    for (; done < BLOBS; calls++) {
        for (size_t i = done; i < BLOBS; i++)
            add_read(&request, &digests[i]);
        REAPI(BatchReadBlobsResponse) *const seen = read_blobs(&request);
        ck_assert_uint_eq(seen->n_responses, BLOBS - done);
        size_t ok = 0;
        for (size_t i = 0; i < seen->n_responses; i++) {
            const REAPI(BatchReadBlobsResponse__Response) *const entry = seen->responses[i];
            if (entry->status->code == STATUS_RESOURCE_EXHAUSTED)
                continue;
            ck_assert_int_eq(entry->status->code, STATUS_OK);
            ck_assert_uint_eq(i, ok);
            ck_assert_mem_eq(entry->data.data, data.data + (done + i) * size, size);
            ok++;
        }
        ck_assert_uint_gt(ok, 1000);
        done += ok;
        protobuf_c_message_free_unpacked(&seen->base, NULL);
    }
    ck_assert_int_gt(calls, 1);
    ck_assert_int_lt(calls, 5);
    free(digests);
    bytes_free(data);
}
END_TEST

START_TEST(damaged_blob_counts_as_missing_from_the_first_read_on_and_can_be_stored_again)
{
    static const size_t sizes[] = {100, 100000, LIMIT_SMALL_BLOB_BYTES + 1};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        const struct bytes data = random_bytes(i + 1, sizes[i]);
        const struct digest digest = real_store_put(&rig.real, data);
        real_store_damage(&rig.real, &digest);
        int code;
        const struct bytes read = read_one(&digest, &code);
        ck_assert_int_eq(code, STATUS_NOT_FOUND);
        ck_assert_uint_eq(read.length, 0);
        bytes_free(read);
        expect_absent(&digest);
        ck_assert_int_eq(update_one(&digest, data, IDENTITY), STATUS_OK);
        expect_present(data);
        bytes_free(data);
    }
}
END_TEST

START_TEST(blob_that_the_disk_cannot_read_counts_as_missing_from_the_first_read_on)
{
    static const size_t sizes[] = {100, 100000, LIMIT_SMALL_BLOB_BYTES + 1};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        const struct bytes data = random_bytes(i + 1, sizes[i]);
        const struct digest digest = real_store_put(&rig.real, data);
        const struct bytes beside = random_bytes(i + 101, sizes[i]);
        real_store_put(&rig.real, beside);
        real_store_lose(&rig.real, &digest);
        int code;
        const struct bytes read = read_one(&digest, &code);
        ck_assert_int_eq(code, STATUS_NOT_FOUND);
        ck_assert_uint_eq(read.length, 0);
        bytes_free(read);
        expect_absent(&digest);
        expect_present(beside);
        ck_assert_int_eq(metrics_get(rig.real.metrics, METRIC_RECORDS_UNREADABLE), (int64_t)i + 1);
        ck_assert_int_eq(update_one(&digest, data, IDENTITY), STATUS_OK);
        expect_present(data);
        bytes_free(beside);
        bytes_free(data);
    }
}
END_TEST

/* ==== GetTree */

START_TEST(get_tree_streams_pages_and_ends)
{
    struct byte_builder root = {0};
    for (uint64_t i = 0; i < 2500; i++) {
        struct byte_builder directory = {0};
        const struct digest file = digest_of_nothing(i);
        directory_add_file(&directory, "f", &file);
        struct byte_builder request = {0};
        const struct digest digest = digest_of(message_bytes(&directory));
        directory_add_directory(&root, "d", &digest);
        if (i % 10 == 0) /* the others are missing, and left out */
            real_store_put(&rig.real, message_bytes(&directory));
        byte_builder_free(&request);
        byte_builder_free(&directory);
    }
    const struct digest digest = real_store_put(&rig.real, message_bytes(&root));
    byte_builder_free(&root);
    static const int page_sizes[] = {0, 100, 1};
    for (size_t p = 0; p < ARRAY_LENGTH(page_sizes); p++) {
        struct byte_builder request = {0};
        struct rpc call;
        message_add_digest(&request, 2, &digest);
        if (page_sizes[p] != 0)
            message_add_number(&request, 3, (uint64_t)page_sizes[p]);
        rpc_begin(&call, &rig.front.client, CAS_METHOD("GetTree"));
        ck_assert(rpc_send(&call, message_bytes(&request)));
        ck_assert(rpc_half_close(&call));
        size_t directories = 0;
        size_t length;
        bool last = false;
        for (uint8_t *page; (page = rpc_receive(&call, &length)) != NULL; free(page)) {
            ck_assert(!last);
            struct byte_builder copy = {0};
            byte_builder_append(&copy, bytes_of(page, length));
            REAPI(GetTreeResponse) *const seen =
                unpack(&REAPI_DESCRIPTOR(get_tree_response), &copy);
            directories += seen->n_directories;
            if (page_sizes[p] > 0)
                ck_assert_uint_le(seen->n_directories, (size_t)page_sizes[p]);
            last = seen->next_page_token[0] == '\0';
            protobuf_c_message_free_unpacked(&seen->base, NULL);
        }
        ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_OK);
        ck_assert(last);
        ck_assert_uint_eq(directories, 251);
        byte_builder_free(&request);
    }
}
END_TEST

START_TEST(get_tree_without_a_root_is_not_found_and_of_no_digest_is_invalid)
{
    for (int given = 0; given < 2; given++) {
        struct byte_builder request = {0};
        struct byte_builder response;
        const struct digest nothing = digest_of_nothing(1);
        if (given)
            message_add_digest(&request, 2, &nothing);
        ck_assert_int_eq(cas_rig_call(&rig, CAS_METHOD("GetTree"), &request, &response, text),
                         given ? GRPC_STATUS_NOT_FOUND : GRPC_STATUS_INVALID_ARGUMENT);
        byte_builder_free(&response);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("rpc_cas");
    TCase *const tests = tcase_create("rpc_cas");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, empty_blob_is_there_before_anything_was_stored);
    tcase_add_test(tests, find_missing_answers_in_the_order_of_the_request);
    tcase_add_test(tests, find_missing_takes_a_hundred_thousand_digests);
    tcase_add_test(tests, find_missing_refuses_a_digest_that_is_none_and_names_it);
    tcase_add_test(tests, batch_limit_that_is_advertised_is_true);
    tcase_add_test(tests, batch_update_judges_each_entry_by_itself);
    tcase_add_test(tests, batch_update_takes_a_blob_several_times_in_a_call_and_again_later);
    tcase_add_test(tests, batch_update_decodes_zstd_of_any_size);
    tcase_add_test(tests, batch_update_takes_several_frames_for_one_blob);
    tcase_add_test(tests, batch_update_refuses_zstd_that_is_broken_or_of_another_size);
    tcase_add_test(tests, batch_update_is_no_way_to_make_the_server_take_much_memory);
    tcase_add_test(tests, batch_updates_that_want_buffers_all_come_through_with_one);
    tcase_add_test(tests, batch_update_that_is_cancelled_while_it_waits_gives_everything_back);
    tcase_add_test(tests, batch_update_says_unavailable_when_a_sync_fails_and_stores_nothing);
    tcase_add_test(tests, batch_read_answers_every_digest_in_order);
    tcase_add_loop_test(tests, batch_read_waits_for_the_disk_only_where_it_has_to, 0, 2);
    tcase_add_test(tests, batch_read_of_nothing_is_an_empty_answer);
    tcase_add_test(tests, batch_read_uses_zstd_only_when_it_is_accepted_and_pays);
    tcase_add_test(tests, batch_read_over_the_limit_is_refused_with_numbers);
    tcase_add_test(tests, batch_read_that_outgrows_a_message_asks_for_another_call);
    tcase_add_test(tests,
                   damaged_blob_counts_as_missing_from_the_first_read_on_and_can_be_stored_again);
    tcase_add_test(tests, blob_that_the_disk_cannot_read_counts_as_missing_from_the_first_read_on);
    tcase_add_test(tests, get_tree_streams_pages_and_ends);
    tcase_add_test(tests, get_tree_without_a_root_is_not_found_and_of_no_digest_is_invalid);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
