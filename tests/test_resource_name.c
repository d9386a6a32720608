/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that names of every form the protocol has are taken apart rightly and put together again;
 * that every other name is INVALID_ARGUMENT with a text that quotes no more than 100 bytes of it; and
 * that a name is borrowed, never read past its end.
 *
 * Method: tables of good and bad names; every prefix of good ones; good ones with one byte changed;
 * formatting into every capacity.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/limits.h"
#include "proto/resource_name.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

#define H "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define U "6d3b5a3e-8f3c-4f1c-9d3a-2f0c8f1b7a11"

/* A copy of exactly this size, so that AddressSanitizer sees a read past the end. */
static struct bytes exact_copy(const char *text, size_t length)
{
    uint8_t *const copy = malloc(length);
    ck_assert(copy != NULL || length == 0);
    if (length > 0)
        memcpy(copy, text, length);
    return bytes_of(copy, length);
}

static void free_copy(struct bytes copy)
{
    free((void *)(uintptr_t)copy.data);
}

typedef bool parse_function(struct bytes text, struct resource_name *name, struct status *status);

struct good {
    const char *text;
    const char *instance;
    const char *uuid; /* NULL for read names */
    enum compressor compressor;
    int64_t size_bytes;
    const char *formatted; /* NULL: as text */
};

static const struct good good_names[] = {
    {"blobs/" H "/5", "", NULL, COMPRESSOR_IDENTITY, 5, NULL},
    {"blobs/" H "/0", "", NULL, COMPRESSOR_IDENTITY, 0, NULL},
    {"/blobs/" H "/5", "", NULL, COMPRESSOR_IDENTITY, 5, "blobs/" H "/5"},
    {"main/blobs/" H "/5", "main", NULL, COMPRESSOR_IDENTITY, 5, NULL},
    {"/main/blobs/" H "/5", "main", NULL, COMPRESSOR_IDENTITY, 5, "main/blobs/" H "/5"},
    {"projects/p/instances/i/blobs/" H "/9223372036854775807", "projects/p/instances/i", NULL,
     COMPRESSOR_IDENTITY, INT64_MAX, NULL},
    {"\xc3\xa9/..../blobs/" H "/1", "\xc3\xa9/....", NULL, COMPRESSOR_IDENTITY, 1, NULL},
    {"blobs/sha256/" H "/5", "", NULL, COMPRESSOR_IDENTITY, 5, "blobs/" H "/5"},
    {"compressed-blobs/zstd/" H "/5", "", NULL, COMPRESSOR_ZSTD, 5, NULL},
    {"a/b/compressed-blobs/zstd/" H "/5", "a/b", NULL, COMPRESSOR_ZSTD, 5, NULL},
    {"compressed-blobs/zstd/sha256/" H "/5", "", NULL, COMPRESSOR_ZSTD, 5,
     "compressed-blobs/zstd/" H "/5"},
    {"compressed-blobs/identity/" H "/5", "", NULL, COMPRESSOR_IDENTITY, 5, "blobs/" H "/5"},
    {"uploads/" U "/blobs/" H "/5", "", U, COMPRESSOR_IDENTITY, 5, NULL},
    {"/uploads/" U "/blobs/" H "/5", "", U, COMPRESSOR_IDENTITY, 5, "uploads/" U "/blobs/" H "/5"},
    {"main/uploads/" U "/blobs/" H "/5", "main", U, COMPRESSOR_IDENTITY, 5, NULL},
    {"main/uploads/" U "/blobs/sha256/" H "/5", "main", U, COMPRESSOR_IDENTITY, 5,
     "main/uploads/" U "/blobs/" H "/5"},
    {"a/b/uploads/" U "/compressed-blobs/zstd/" H "/5", "a/b", U, COMPRESSOR_ZSTD, 5, NULL},
    {"uploads/" U "/compressed-blobs/zstd/sha256/" H "/5/x", "", U, COMPRESSOR_ZSTD, 5,
     "uploads/" U "/compressed-blobs/zstd/" H "/5"},
    {"uploads/not a uuid/blobs/" H "/5", "", "not a uuid", COMPRESSOR_IDENTITY, 5, NULL},
    {"uploads/blobs/blobs/" H "/5", "", "blobs", COMPRESSOR_IDENTITY, 5, NULL},
    {"uploads/" U "/blobs/" H "/5/", "", U, COMPRESSOR_IDENTITY, 5, "uploads/" U "/blobs/" H "/5"},
    {"uploads/" U "/blobs/" H "/5/out/a.o", "", U, COMPRESSOR_IDENTITY, 5,
     "uploads/" U "/blobs/" H "/5"},
    {"uploads/" U "/blobs/" H "/5//blobs/uploads", "", U, COMPRESSOR_IDENTITY, 5,
     "uploads/" U "/blobs/" H "/5"},
};

static parse_function *parse_of(const struct good *good)
{
    return good->uuid != NULL ? resource_name_parse_write : resource_name_parse_read;
}

START_TEST(good_names_are_taken_apart)
{
    const struct good *const good = &good_names[_i];
    const struct bytes text = exact_copy(good->text, strlen(good->text));
    struct resource_name name;
    struct status status = {0};
    ck_assert_msg(parse_of(good)(text, &name, &status), "%s", status.message);
    ck_assert_int_eq(status.code, STATUS_OK);
    ck_assert(bytes_equal_string(name.instance, good->instance));
    ck_assert(bytes_equal_string(name.uuid, good->uuid != NULL ? good->uuid : ""));
    ck_assert_int_eq(name.compressor, good->compressor);
    ck_assert_int_eq(name.digest.size_bytes, good->size_bytes);
    ck_assert_int_eq(name.digest.function, DIGEST_FUNCTION_SHA256);
    char hex[DIGEST_HASH_HEX_MAX + 1];
    ck_assert_str_eq(digest_hex(&name.digest, hex), H);
    /* What is borrowed lies in the text. */
    ck_assert(name.instance.length == 0 ||
              (name.instance.data >= text.data && name.instance.data < text.data + text.length));
    free_copy(text);
}
END_TEST

START_TEST(good_names_are_put_together_again_when_there_is_room)
{
    const struct good *const good = &good_names[_i];
    const char *const wanted = good->formatted != NULL ? good->formatted : good->text;
    struct digest digest;
    struct status status = {0};
    ck_assert(digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(H), good->size_bytes, &digest,
                           &status));
    for (size_t capacity = 0; capacity < strlen(wanted) + 10; capacity++) {
        char *const to = malloc(capacity);
        ck_assert(to != NULL || capacity == 0);
        const bool fits = resource_name_format(to, capacity, bytes_of_string(good->instance),
                                               good->uuid, good->compressor, &digest);
        ck_assert_int_eq(fits, capacity > strlen(wanted));
        if (fits)
            ck_assert_str_eq(to, wanted);
        free(to);
    }
}
END_TEST

struct bad {
    const char *text;
    size_t length;
};
#define BAD(literal)                                                                               \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

/* A name of a read is none of a write and the other way round: these are neither. */
static const struct bad bad_anywhere[] = {
    BAD(""),
    BAD("x"),
    BAD("/"),
    BAD("//"),
    BAD("a/b/c"),
    BAD("blobs"),
    BAD("blobs/"),
    BAD("blobs//5"),
    BAD("blobs/" H),
    BAD("blobs/" H "/"),
    BAD("blobs/" H "/x"),
    BAD("blobs/" H "/-1"),
    BAD("blobs/" H "/+5"),
    BAD("blobs/" H "/ 5"),
    BAD("blobs/" H "/5 "),
    BAD("blobs/" H "/05"),
    BAD("blobs/" H "/00"),
    BAD("blobs/" H "/5x"),
    BAD("blobs/" H "/0x5"),
    BAD("blobs/" H "/5.0"),
    BAD("blobs/" H "/1e3"),
    BAD("blobs/" H "/9223372036854775808"),
    BAD("blobs/" H "/18446744073709551616"),
    BAD("blobs/" H "/18446744073709551621"),
    BAD("blobs/" H "/99999999999999999999999"),
    BAD("blobs/" H "/5\0"),
    BAD("blobs/" H "\0/5"),
    BAD("blobs/" H "a/5"),
    BAD("blobs/../" H "/5"),
    BAD("blobs//" H "/5"),
    BAD("//blobs/" H "/5"),
    BAD("a//blobs/" H "/5"),
    BAD("a//b/blobs/" H "/5"),
    BAD("\x01/blobs/" H "/5"),
    BAD("\x7f/blobs/" H "/5"),
    BAD("\xff/blobs/" H "/5"),
    BAD("a\0b/blobs/" H "/5"),
    BAD("actions/blobs/" H "/5"),
    BAD("actionResults/blobs/" H "/5"),
    BAD("operations/blobs/" H "/5"),
    BAD("capabilities/blobs/" H "/5"),
    BAD("Blobs/" H "/5"),
    BAD("blobs/SHA256/" H "/5"),
    BAD("blobs/sha1/" H "/5"),
    BAD("blobs/sha512/" H "/5"),
    BAD("blobs/blake3/" H "/5"),
    BAD("blobs/sha256tree/" H "/5"),
    BAD("blobs/gitsha1/" H "/5"),
    BAD("blobs/nosuchfunction/" H "/5"),
    BAD("blobs/sha256/sha256/" H "/5"),
    BAD("blobs/sha256/" H),
    BAD("blobs/sha256"),
    BAD("compressed-blobs"),
    BAD("compressed-blobs/" H "/5"),
    BAD("compressed-blobs/zstd"),
    BAD("compressed-blobs/zstd/" H),
    BAD("compressed-blobs/nosuch/" H "/5"),
    BAD("compressed-blobs/deflate/" H "/5"),
    BAD("compressed-blobs/brotli/" H "/5"),
    BAD("compressed-blobs/ZSTD/" H "/5"),
    BAD("compressed-blobs//" H "/5"),
    BAD("compressed-blobs/blobs/" H "/5"),
    BAD("uploads"),
    BAD("uploads/"),
    BAD("uploads/" U),
    BAD("uploads/" U "/"),
    BAD("uploads/" U "/blobs"),
    BAD("uploads/" U "/blobs/"),
    BAD("uploads/" U "/blobs/" H),
    BAD("uploads/" U "/blobs/" H "/"),
    BAD("uploads/" U "/blobs/" H "/x"),
    BAD("uploads/" U "/blobs/" H "/-5"),
    BAD("uploads/" U "/blobs/" H "/05"),
    BAD("uploads/" U "/blobs/" H "/99999999999999999999999"),
    BAD("uploads/" U "/blobs/../../" H "/5"),
    BAD("uploads/" U "/compressed-blobs/nosuch/" H "/5"),
    BAD("uploads/" U "/compressed-blobs/" H "/5"),
    BAD("uploads/" U "/blob/" H "/5"),
    BAD("uploads/" U "/" U "/blobs/" H "/5"),
    BAD("uploads//blobs/" H "/5"),
    BAD("uploads/blobs/" H "/5"),
    BAD("uploads/a\x01/blobs/" H "/5"),
    BAD("uploads/a\0b/blobs/" H "/5"),
    BAD("uploads/\xff/blobs/" H "/5"),
    BAD("uploads/" U "/blobs/blake3/" H "/5"),
    BAD("uploads/" U "/uploads/" U "/blobs/" H "/5"),
    BAD("actions/uploads/" U "/blobs/" H "/5"),
};

static void check_refused(parse_function *parse, const char *text, size_t length)
{
    const struct bytes copy = exact_copy(text, length);
    struct resource_name name;
    struct status status = {0};
    ck_assert_msg(!parse(copy, &name, &status), "'%s' is taken", text);
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(status.message, "resource name"));
    ck_assert_uint_lt(strlen(status.message), 300);
    ck_assert(bytes_is_utf8(bytes_of_string(status.message)));
    free_copy(copy);
}

START_TEST(bad_names_are_invalid_arguments)
{
    const struct bad *const bad = &bad_anywhere[_i];
    check_refused(resource_name_parse_read, bad->text, bad->length);
    check_refused(resource_name_parse_write, bad->text, bad->length);
}
END_TEST

START_TEST(a_name_of_one_kind_is_none_of_the_other)
{
    const struct good *const good = &good_names[_i];
    check_refused(good->uuid != NULL ? resource_name_parse_read : resource_name_parse_write,
                  good->text, strlen(good->text));
}
END_TEST

START_TEST(nothing_may_follow_the_size_of_a_read)
{
    check_refused(resource_name_parse_read, "blobs/" H "/5/", sizeof("blobs/" H "/5/") - 1);
    check_refused(resource_name_parse_read, "blobs/" H "/5/x", sizeof("blobs/" H "/5/x") - 1);
    check_refused(resource_name_parse_read, "blobs/sha256/" H "/5/",
                  sizeof("blobs/sha256/" H "/5/") - 1);
}
END_TEST

START_TEST(hashes_of_another_length_or_alphabet_are_refused)
{
    char text[256];
    for (int length = 0; length < 130; length++) {
        if (length == 64)
            continue;
        snprintf(text, sizeof(text), "blobs/%.*s/5", length, H H H);
        check_refused(resource_name_parse_read, text, strlen(text));
    }
    for (int position = 0; position < 64; position += 9) {
        snprintf(text, sizeof(text), "blobs/%s/5", H);
        text[6 + position] = 'A';
        check_refused(resource_name_parse_read, text, strlen(text));
        text[6 + position] = 'z';
        check_refused(resource_name_parse_read, text, strlen(text));
    }
}
END_TEST

START_TEST(very_long_names_are_refused_and_quoted_in_part)
{
    enum { LENGTH = 100000 };
    static char text[LENGTH];
    memset(text, 'x', LENGTH);
    check_refused(resource_name_parse_read, text, LENGTH);
    check_refused(resource_name_parse_write, text, LENGTH);
    /* The cut of the quotation falls into a character. */
    for (size_t i = 0; i + 2 <= LENGTH; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    for (size_t skip = 0; skip < 2; skip++) {
        text[0] = 'x';
        text[1] = 'x';
        struct resource_name cut;
        struct status refusal = {0};
        check_refused(resource_name_parse_read, text + skip, 1001 - skip);
        ck_assert(!resource_name_parse_read(bytes_of(text + skip, 1001 - skip), &cut, &refusal));
        ck_assert_ptr_nonnull(strstr(refusal.message, "\xc3\xa9...'"));
    }
    /* Good, but for its length. */
    const int length = snprintf(text, LENGTH, "uploads/" U "/blobs/" H "/5/");
    struct resource_name name;
    struct status status = {0};
    memset(text + length, 'y', (size_t)(LENGTH - length));
    ck_assert(resource_name_parse_write(bytes_of(text, LIMIT_RESOURCE_NAME_BYTES), &name, &status));
    check_refused(resource_name_parse_write, text, LIMIT_RESOURCE_NAME_BYTES + 1);
}
END_TEST

START_TEST(uuids_have_1_to_128_bytes)
{
    char text[512];
    struct resource_name name;
    struct status status = {0};
    snprintf(text, sizeof(text), "uploads/%.128s/blobs/" H "/5", H H H);
    ck_assert(resource_name_parse_write(bytes_of_string(text), &name, &status));
    ck_assert_uint_eq(name.uuid.length, 128);
    snprintf(text, sizeof(text), "uploads/%.129s/blobs/" H "/5", H H H);
    check_refused(resource_name_parse_write, text, strlen(text));
}
END_TEST

START_TEST(unsupported_digest_functions_are_told_what_is_supported)
{
    const char text[] = "blobs/blake3/" H "/5";
    struct resource_name name;
    struct status status = {0};
    ck_assert(!resource_name_parse_read(bytes_of_string(text), &name, &status));
    ck_assert_ptr_nonnull(strstr(status.message, digest_functions_supported_text()));
    ck_assert_ptr_nonnull(strstr(status.message, "blake3"));
}
END_TEST

START_TEST(a_prefix_of_a_name_is_refused_or_is_a_shorter_name)
{
    const struct good *const good = &good_names[_i];
    for (size_t length = 0; length < strlen(good->text); length++) {
        const struct bytes text = exact_copy(good->text, length);
        struct resource_name name;
        struct status status = {0};
        if (parse_of(good)(text, &name, &status))
            ck_assert_uint_eq(name.digest.hash_length, SHA256_HASH_BYTES);
        else
            ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        free_copy(text);
    }
}
END_TEST

START_TEST(a_name_with_one_byte_changed_is_refused_or_comes_back_as_it_was_read)
{
    const struct good *const good = &good_names[_i];
    struct prng prng = {.state = (uint64_t)_i};
    for (int i = 0; i < 2000; i++) {
        const size_t at = prng_below(&prng, strlen(good->text));
        const struct bytes text = exact_copy(good->text, strlen(good->text));
        ((uint8_t *)(uintptr_t)text.data)[at] = (uint8_t)prng_next(&prng);
        struct resource_name name;
        struct resource_name again;
        struct status status = {0};
        if (parse_of(good)(text, &name, &status)) {
            char uuid[200];
            char formatted[LIMIT_RESOURCE_NAME_BYTES];
            snprintf(uuid, sizeof(uuid), "%.*s", (int)name.uuid.length,
                     (const char *)name.uuid.data);
            ck_assert(resource_name_format(formatted, sizeof(formatted), name.instance,
                                           good->uuid != NULL ? uuid : NULL, name.compressor,
                                           &name.digest));
            ck_assert(parse_of(good)(bytes_of_string(formatted), &again, &status));
            ck_assert(bytes_equal(again.instance, name.instance));
            ck_assert(bytes_equal(again.uuid, name.uuid));
            ck_assert_int_eq(again.compressor, name.compressor);
            ck_assert(digest_equal(&again.digest, &name.digest));
        } else {
            ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        }
        free_copy(text);
    }
}
END_TEST

START_TEST(newer_digest_functions_are_named_when_formatted)
{
    const struct digest digest = {.hash = {0xab}, .hash_length = 2, .function = 9, .size_bytes = 7};
    char text[200];
    ck_assert(resource_name_format(text, sizeof(text), bytes_of_string("i"), "u", COMPRESSOR_ZSTD,
                                   &digest));
    ck_assert_str_eq(text, "i/uploads/u/compressed-blobs/zstd/blake3/ab00/7");
}
END_TEST

START_TEST(instance_names_have_no_reserved_and_no_empty_segment)
{
    static const struct {
        const char *name;
        bool good;
    } names[] = {
        {"", true},
        {"main", true},
        {"a/b/c", true},
        {"projects/p/instances/default_instance", true},
        {"blobs2", true},
        {"a/Blobs", true},
        {"with space", true},
        {"\xc3\xa9", true},
        {"/", false},
        {"/a", false},
        {"a/", false},
        {"a//b", false},
        {"blobs", false},
        {"a/blobs", false},
        {"uploads/a", false},
        {"a/actions/b", false},
        {"actionResults", false},
        {"operations", false},
        {"capabilities", false},
        {"compressed-blobs", false},
        {"a\nb", false},
        {"a\x7f", false},
        {"\xff", false},
        {"\xc3", false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const struct bytes copy = exact_copy(names[i].name, strlen(names[i].name));
        struct status status = {0};
        ck_assert_msg(instance_name_check(copy, &status) == names[i].good, "'%s'", names[i].name);
        ck_assert_int_eq(status.code, names[i].good ? STATUS_OK : STATUS_INVALID_ARGUMENT);
        free_copy(copy);
    }
    char longest[LIMIT_INSTANCE_NAME_BYTES + 1];
    struct status status = {0};
    memset(longest, 'a', sizeof(longest));
    ck_assert(instance_name_check(bytes_of(longest, LIMIT_INSTANCE_NAME_BYTES), &status));
    ck_assert(!instance_name_check(bytes_of(longest, LIMIT_INSTANCE_NAME_BYTES + 1), &status));
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    ck_assert(!instance_name_check(bytes_of("a\0b", 3), &status));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("resource_name");
    TCase *const tests = tcase_create("resource_name");
    const int good_count = (int)ARRAY_LENGTH(good_names);
    tcase_add_loop_test(tests, good_names_are_taken_apart, 0, good_count);
    tcase_add_loop_test(tests, good_names_are_put_together_again_when_there_is_room, 0, good_count);
    tcase_add_loop_test(tests, bad_names_are_invalid_arguments, 0, (int)ARRAY_LENGTH(bad_anywhere));
    tcase_add_loop_test(tests, a_name_of_one_kind_is_none_of_the_other, 0, good_count);
    tcase_add_test(tests, nothing_may_follow_the_size_of_a_read);
    tcase_add_test(tests, hashes_of_another_length_or_alphabet_are_refused);
    tcase_add_test(tests, very_long_names_are_refused_and_quoted_in_part);
    tcase_add_test(tests, uuids_have_1_to_128_bytes);
    tcase_add_test(tests, unsupported_digest_functions_are_told_what_is_supported);
    tcase_add_loop_test(tests, a_prefix_of_a_name_is_refused_or_is_a_shorter_name, 0, good_count);
    tcase_add_loop_test(tests, a_name_with_one_byte_changed_is_refused_or_comes_back_as_it_was_read,
                        0, good_count);
    tcase_add_test(tests, newer_digest_functions_are_named_when_formatted);
    tcase_add_test(tests, instance_names_have_no_reserved_and_no_empty_segment);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
