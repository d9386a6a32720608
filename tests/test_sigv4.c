/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that requests are signed as AWS says, against the worked examples of its documentation (the key of "Deriving the signing
 * key", and the four requests of "Signature Calculations for the Authorization Header"), and that what does not fit is refused.
 */
#include <string.h>

#include "tests/support/test_run.h"
#include "tier/sigv4.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const struct sigv4_scope scope = {.access_key = "AKIAIOSFODNN7EXAMPLE",
                                         .region = "us-east-1",
                                         .service = "s3",
                                         .time = "20130524T000000Z"};

static void sign(const struct sigv4_request *request, char authorization[1024])
{
    struct sigv4_key key;
    sigv4_derive("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", scope.region,
                 scope.service, &key);
    ck_assert(sigv4_sign(request, &scope, &key, authorization, 1024));
}

START_TEST(key_of_a_day_is_that_of_the_published_example)
{
    struct sigv4_key key;
    char hex[SIGV4_SHA256_HEX_BYTES];
    sigv4_derive("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam", &key);
    sigv4_hex(key.bytes, sizeof(key.bytes), hex);
    ck_assert_str_eq(hex, "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
}
END_TEST

START_TEST(get_of_a_range_is_signed_as_published)
{
    const struct sigv4_pair headers[] = {{"x-amz-date", "20130524T000000Z"},
                                         {"host", "examplebucket.s3.amazonaws.com"},
                                         {"x-amz-content-sha256", EMPTY_SHA256},
                                         {"range", "bytes=0-9"}};
    const struct sigv4_request request = {.method = "GET",
                                          .path = "/test.txt",
                                          .query = "",
                                          .headers = headers,
                                          .header_count = ARRAY_LENGTH(headers),
                                          .payload_sha256 = EMPTY_SHA256};
    char authorization[1024];
    sign(&request, authorization);
    ck_assert_str_eq(authorization,
                     "AWS4-HMAC-SHA256 "
                     "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                     "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
                     "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}
END_TEST

START_TEST(put_with_an_odd_name_is_signed_as_published)
{
    static const char payload[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const struct sigv4_pair headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                         {"host", "examplebucket.s3.amazonaws.com"},
                                         {"x-amz-content-sha256", payload},
                                         {"x-amz-date", "20130524T000000Z"},
                                         {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    char path[64];
    ck_assert(sigv4_encode_path("/test$file.text", path, sizeof(path)));
    ck_assert_str_eq(path, "/test%24file.text");
    const struct sigv4_request request = {.method = "PUT",
                                          .path = path,
                                          .query = "",
                                          .headers = headers,
                                          .header_count = ARRAY_LENGTH(headers),
                                          .payload_sha256 = payload};
    char authorization[1024];
    sign(&request, authorization);
    ck_assert_ptr_nonnull(
        strstr(authorization,
               "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}
END_TEST

static void check_query(const struct sigv4_pair *pairs,
                        size_t count,
                        const char *query,
                        const char *wanted)
{
    const struct sigv4_pair headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                         {"x-amz-content-sha256", EMPTY_SHA256},
                                         {"x-amz-date", "20130524T000000Z"}};
    char encoded[128];
    char authorization[1024];
    ck_assert(sigv4_encode_query(pairs, count, encoded, sizeof(encoded)));
    ck_assert_str_eq(encoded, query);
    const struct sigv4_request request = {.method = "GET",
                                          .path = "/",
                                          .query = encoded,
                                          .headers = headers,
                                          .header_count = ARRAY_LENGTH(headers),
                                          .payload_sha256 = EMPTY_SHA256};
    sign(&request, authorization);
    ck_assert_ptr_nonnull(strstr(authorization, wanted));
}

START_TEST(queries_are_sorted_and_signed_as_published)
{
    const struct sigv4_pair lifecycle[] = {{"lifecycle", ""}};
    check_query(lifecycle, 1, "lifecycle=",
                "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    const struct sigv4_pair listing[] = {{"prefix", "J"}, {"max-keys", "2"}};
    check_query(listing, 2, "max-keys=2&prefix=J",
                "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}
END_TEST

START_TEST(every_byte_that_could_mean_something_is_encoded)
{
    char path[256];
    ck_assert(sigv4_encode_path("/a+b=c d:e(f)'*@$,%2F~-._/\xc3\xa9", path, sizeof(path)));
    ck_assert_str_eq(path, "/a%2Bb%3Dc%20d%3Ae%28f%29%27%2A%40%24%2C%252F~-._/%C3%A9");
    const struct sigv4_pair pairs[] = {{"b", "x/y"}, {"a", "2"}, {"a", "1"}};
    ck_assert(sigv4_encode_query(pairs, 3, path, sizeof(path)));
    ck_assert_str_eq(path, "a=1&a=2&b=x%2Fy");
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_not_cut)
{
    char text[16];
    for (size_t capacity = 1; capacity < 6; capacity++)
        ck_assert(!sigv4_encode_path("/a b", text, capacity));
    ck_assert(!sigv4_encode_path("/a b", text, 6));
    ck_assert(sigv4_encode_path("/a b", text, 7));
    const struct sigv4_pair pairs[] = {{"ab", "c"}, {"d", ""}};
    for (size_t capacity = 0; capacity < 8; capacity++)
        ck_assert(!sigv4_encode_query(pairs, 2, text, capacity));
    ck_assert(sigv4_encode_query(pairs, 2, text, 8));
    ck_assert_str_eq(text, "ab=c&d=");

    const struct sigv4_pair headers[] = {{"host", "a"}};
    const struct sigv4_request request = {"GET", "/", "", headers, 1, EMPTY_SHA256};
    const struct sigv4_key key = {{0}};
    char authorization[1024];
    ck_assert(sigv4_sign(&request, &scope, &key, authorization, sizeof(authorization)));
    ck_assert(!sigv4_sign(&request, &scope, &key, authorization, strlen(authorization)));
}
END_TEST

START_TEST(times_are_utc)
{
    char time[SIGV4_TIME_BYTES];
    sigv4_time(1369353600, time);
    ck_assert_str_eq(time, "20130524T000000Z");
    sigv4_time(0, time);
    ck_assert_str_eq(time, "19700101T000000Z");
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("sigv4");
    TCase *const all = tcase_create("all");
    tcase_add_test(all, key_of_a_day_is_that_of_the_published_example);
    tcase_add_test(all, get_of_a_range_is_signed_as_published);
    tcase_add_test(all, put_with_an_odd_name_is_signed_as_published);
    tcase_add_test(all, queries_are_sorted_and_signed_as_published);
    tcase_add_test(all, every_byte_that_could_mean_something_is_encoded);
    tcase_add_test(all, what_does_not_fit_is_refused_and_not_cut);
    tcase_add_test(all, times_are_utc);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
