/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves the cache over HTTP: that it has the same blobs and action results as gRPC; that a PUT of any form (by length, chunked,
 * zstd, after 100 Continue) is stored bit for bit or not at all, and a right answer means that it is on disk; that ranges are those
 * of RFC 9110; that action results are checked and opaque values are not; that keys hold values of any size; that what is broken
 * off leaves nothing; and that a stop waits for nobody who does not move.
 *
 * Method: the whole server in this process, asked on bare sockets and over gRPC.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zstd.h>

#include "base/limits.h"
#include "base/thread.h"
#include "server/flights.h"
#include "server/server.h"
#include "tests/support/http_client.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

#define REAPI_METHOD(name) "/build.bazel.remote.execution.v2." name

static struct temp_dir directory;
static struct config *config;
static struct server *server;
static struct rpc_client client;
static struct http_answer answer;
static char text[RPC_TEXT_BYTES_MAX];
static char url[1024];

static void start(void)
{
    struct status status = {0};
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void stop(void)
{
    rpc_client_close(&client);
    server_stop(server);
}

static void setup_with(char *option, char *value)
{
    struct status status = {0};
    enum config_action action;
    temp_dir_make(&directory);
    char *const arguments[] = {(char[]){"varved"},
                               (char[]){"--data"},
                               directory.path,
                               (char[]){"--listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-keys"},
                               (char[]){"kv,kv/deep"},
                               (char[]){"--http-opaque"},
                               (char[]){"opaque"},
                               (char[]){"--drain-time"},
                               (char[]){"1s"},
                               (char[]){"--reserve"},
                               (char[]){"0B"}, /* whatever else fills the disk */
                               (char[]){"--large-segment-size"},
                               (char[]){"64MiB"},
                               (char[]){"--small-segment-size"},
                               (char[]){"32MiB"},
                               option,
                               value};
    char *const environment[] = {NULL};
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    grpc_init();
    start();
}

static void setup(void)
{
    setup_with((char[]){"--http-idle"}, (char[]){"30s"});
}

static void teardown(void)
{
    http_answer_free(&answer);
    stop();
    grpc_shutdown();
    config_free(config);
    temp_dir_remove(&directory);
}

/* ---- asking */

static struct bytes nothing(void)
{
    return bytes_of(NULL, 0);
}

static int ask(const char *method, const char *path, const char *headers, struct bytes body)
{
    http_answer_free(&answer);
    http_ask(server_http_port(server), method, path, headers, body, &answer);
    return answer.code;
}

static int get(const char *path)
{
    return ask("GET", path, "", nothing());
}

static int put(const char *path, struct bytes body)
{
    return ask("PUT", path, "", body);
}

static const char *url_of(const char *prefix, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    snprintf(url, sizeof(url), "%s%s", prefix, digest_hex(digest, hex));
    return url;
}

static struct bytes random_bytes(size_t length, uint64_t seed)
{
    struct prng prng = {.state = seed};
    uint8_t *const data = malloc(length + 1);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)prng_next(&prng);
    return bytes_of(data, length);
}

static void free_bytes(struct bytes bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

static struct digest digest_of(struct bytes data)
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
    return digest;
}

static void assert_body(struct bytes expected)
{
    ck_assert_uint_eq(answer.body.length, expected.length);
    ck_assert(bytes_equal(answer.body, expected));
}

static grpc_status_code call(const char *path,
                             struct byte_builder *request,
                             struct byte_builder *response)
{
    size_t length = 0;
    uint8_t *data = NULL;
    const grpc_status_code code =
        rpc_unary(&client, path, message_bytes(request), &data, &length, text);
    byte_builder_free(request);
    if (response != NULL)
        *response = (struct byte_builder){.data = data, .length = length, .capacity = length};
    else
        free(data);
    return code;
}

static bool grpc_has(const struct digest *digest)
{
    struct byte_builder request = {0};
    struct byte_builder response = {0};
    message_add_digest(&request, 2, digest);
    ck_assert_int_eq(
        call(REAPI_METHOD("ContentAddressableStorage/FindMissingBlobs"), &request, &response),
        GRPC_STATUS_OK);
    const bool missing = response.length > 0;
    byte_builder_free(&response);
    return !missing;
}

static void grpc_put(const struct digest *digest, struct bytes data)
{
    struct byte_builder request = {0};
    struct byte_builder entry = {0};
    message_add_digest(&entry, 1, digest);
    message_add(&entry, 2, data);
    message_add_message(&request, 2, &entry);
    ck_assert_int_eq(
        call(REAPI_METHOD("ContentAddressableStorage/BatchUpdateBlobs"), &request, NULL),
        GRPC_STATUS_OK);
}

static grpc_status_code grpc_get_action(const char *instance, const struct digest *action)
{
    struct byte_builder request = {0};
    message_add_text(&request, 1, instance);
    message_add_digest(&request, 2, action);
    return call(REAPI_METHOD("ActionCache/GetActionResult"), &request, NULL);
}

/* A body in chunks of these sizes, with an extension and a trailer. */
static struct byte_builder chunked(struct bytes data, size_t piece)
{
    struct byte_builder all = {0};
    char line[64];
    for (size_t at = 0; at < data.length; at += piece) {
        const size_t length = data.length - at < piece ? data.length - at : piece;
        snprintf(line, sizeof(line), "%zx\r\n", length);
        byte_builder_append(&all, bytes_of_string(line));
        byte_builder_append(&all, bytes_of(data.data + at, length));
        byte_builder_append(&all, bytes_of_string("\r\n"));
    }
    byte_builder_append(&all, bytes_of_string("0\r\n\r\n"));
    return all;
}

static int put_chunked(const char *path, const char *headers, struct bytes data, size_t piece)
{
    struct byte_builder body = chunked(data, piece);
    char all[256];
    snprintf(all, sizeof(all), "Transfer-Encoding: chunked\r\n%s", headers);
    const int code = ask("PUT", path, all, message_bytes(&body));
    byte_builder_free(&body);
    return code;
}

/* ---- blobs */

static const size_t sizes[] = {
    0, 1, 3, 1000, 65536, 1 << 20, (1 << 20) + 1, (3 << 20) + 7, (9 << 20) + 13};
enum { SIZES = ARRAY_LENGTH(sizes) };

START_TEST(blob_put_in_any_form_is_served_bit_for_bit_over_both_protocols_and_after_a_restart)
{
    enum { FORMS = 4 };
    struct bytes blobs[SIZES][FORMS];
    struct digest digests[SIZES][FORMS];
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t form = 0; form < FORMS; form++) {
            const struct bytes blob = random_bytes(sizes[i], i * FORMS + form + 1);
            const struct digest digest = digest_of(blob);
            blobs[i][form] = blob;
            digests[i][form] = digest;
            url_of(form == 1 ? "/some/instance/cas/" : "/cas/", &digest);
            if (sizes[i] > 0) {
                ck_assert_int_eq(get(url), 404);
                ck_assert_int_eq(ask("HEAD", url, "", nothing()), 404);
                ck_assert(!grpc_has(&digest));
            }
            uint8_t *const frame = malloc(ZSTD_compressBound(blob.length));
            const size_t frame_bytes =
                ZSTD_compress(frame, ZSTD_compressBound(blob.length), blob.data, blob.length, 1);
            int code = 0;
            if (form == 0 || form == 1)
                code = put(url, blob);
            else if (form == 2)
                code = put_chunked(url, "", blob, 70001);
            else
                code = ask("PUT", url, "Content-Encoding: zstd\r\n", bytes_of(frame, frame_bytes));
            free(frame);
            ck_assert_msg(code == 200, "%zu bytes, form %zu: %d %s", sizes[i], form, code,
                          answer.all);
            ck_assert(grpc_has(&digest));
            ck_assert_int_eq(get(url), 200);
            assert_body(blob);
            ck_assert_int_eq(put(url, blob), 200); /* again */
        }
    }
    stop();
    start();
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t form = 0; form < FORMS; form++) {
            const struct bytes blob = blobs[i][form];
            ck_assert_int_eq(get(url_of("/cas/", &digests[i][form])), 200);
            assert_body(blob);
            ck_assert_int_eq(ask("HEAD", url, "", nothing()), 200);
            ck_assert_uint_eq(strtoul(http_answer_header(&answer, "Content-Length"), NULL, 10),
                              blob.length);
            ck_assert_uint_eq(answer.body.length, 0);
            ck_assert_int_eq(ask("GET", url, "Accept-Encoding: gzip, zstd\r\n", nothing()), 200);
            const char *const coding = http_answer_header(&answer, "Content-Encoding");
            if (coding != NULL) {
                ck_assert_str_eq(coding, "zstd");
                uint8_t *const plain = malloc(blob.length + 1);
                ck_assert_uint_eq(
                    ZSTD_decompress(plain, blob.length + 1, answer.body.data, answer.body.length),
                    blob.length);
                ck_assert(bytes_equal(bytes_of(plain, blob.length), blob));
                free(plain);
            } else {
                ck_assert_uint_lt(blob.length, 1024);
                assert_body(blob);
            }
            ck_assert_int_eq(ask("GET", url, "Accept-Encoding: zstd;q=0\r\n", nothing()), 200);
            ck_assert_ptr_null(http_answer_header(&answer, "Content-Encoding"));
            free_bytes(blob);
        }
    }
}
END_TEST

START_TEST(blob_stored_over_grpc_is_there_over_http)
{
    const struct bytes blob = random_bytes(2 << 20, 5);
    const struct digest digest = digest_of(blob);
    grpc_put(&digest, blob);
    ck_assert_int_eq(get(url_of("/any/cas/", &digest)), 200);
    assert_body(blob);
    free_bytes(blob);
}
END_TEST

START_TEST(wrong_content_length_name_or_coding_is_refused_and_stores_nothing)
{
    const struct bytes right = random_bytes(5 << 20, 6);
    const struct bytes wrong = random_bytes(5 << 20, 7);
    const struct digest digest = digest_of(right);
    const struct digest small = digest_of(bytes_of("abc", 3));
    url_of("/cas/", &digest);
    ck_assert_int_eq(put(url, wrong), 400);
    ck_assert_int_eq(put_chunked(url, "", wrong, 1 << 20), 400);
    ck_assert_int_eq(put(url, bytes_of(right.data, right.length - 1)), 400);
    ck_assert_int_eq(put_chunked(url, "", bytes_of(right.data, right.length - 1), 12345), 400);
    ck_assert_int_eq(ask("PUT", url, "Content-Encoding: zstd\r\n", right), 400);
    ck_assert_int_eq(ask("PUT", url, "Content-Encoding: gzip\r\n", bytes_of("x", 1)), 415);
    ck_assert_int_eq(ask("PUT", url, "Content-Range: bytes 0-0/3\r\n", bytes_of("x", 1)), 400);
    ck_assert_int_eq(get(url), 404);
    ck_assert(!grpc_has(&digest));
    url_of("/cas/", &small);
    ck_assert_int_eq(put(url, bytes_of("abd", 3)), 400);
    ck_assert_int_eq(put(url, bytes_of("", 0)), 400);
    ck_assert_int_eq(get(url), 404);
    ck_assert_int_eq(put(url, bytes_of("abc", 3)), 200);
    /* What is there already is no excuse. */
    ck_assert_int_eq(put(url, bytes_of("abd", 3)), 400);
    ck_assert_int_eq(put(url, bytes_of("abcd", 4)), 400);
    ck_assert_int_eq(put_chunked(url, "", bytes_of("abd", 3), 1), 400);
    ck_assert_int_eq(put_chunked(url, "", bytes_of("abc", 3), 1), 200);

    ck_assert_int_eq(put("/cas/abc", bytes_of("abc", 3)), 400);
    ck_assert_int_eq(get("/cas/ABC"), 400);
    ck_assert_int_eq(get("/a//cas/x"), 400);
    ck_assert_int_eq(get("/a/blobs/cas/" /* a reserved word */ "0000000000000000000000000000000000"
                         "000000000000000000000000000000"),
                     400);
    ck_assert_int_eq(get("/elsewhere"), 404);
    ck_assert_int_eq(put("/elsewhere", bytes_of("abc", 3)), 404);
    ck_assert_int_eq(ask("POST", url, "", bytes_of("abc", 3)), 405);
    ck_assert_int_eq(ask("DELETE", url, "", nothing()), 405);
    ck_assert_ptr_nonnull(http_answer_header(&answer, "Allow"));
    ck_assert_int_eq(ask("PROPFIND", url, "", bytes_of("<x/>", 4)), 405);
    ck_assert_int_eq(get(url), 200);
    free_bytes(right);
    free_bytes(wrong);
}
END_TEST

START_TEST(larger_than_may_be_is_refused_before_it_is_sent)
{
    const struct digest digest = digest_of_nothing(1);
    char request[512];
    snprintf(request, sizeof(request),
             "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999\r\n\r\n",
             url_of("/cas/", &digest));
    const int fd = http_connect(server_http_port(server));
    http_send_text(fd, request);
    http_answer_free(&answer);
    http_receive(fd, false, &answer);
    ck_assert_int_eq(answer.code, 413);
    close(fd);
    snprintf(request, sizeof(request),
             "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\nExpect: "
             "100-continue\r\n\r\n",
             url_of("/ac/", &digest));
    const int other = http_connect(server_http_port(server));
    http_send_text(other, request);
    http_answer_free(&answer);
    http_receive(other, false, &answer);
    ck_assert_int_eq(answer.code, 413); /* and no 100 */
    close(other);
}
END_TEST

START_TEST(range_is_served_as_the_rfc_has_it)
{
    static const size_t lengths[] = {10, (2 << 20) + 10};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        const size_t length = lengths[i];
        const struct bytes blob = random_bytes(length, 60 + i);
        const struct digest digest = digest_of(blob);
        const struct {
            const char *range;
            int code;
            size_t first, last;
        } cases[] = {
            {"bytes=0-0", 206, 0, 0},
            {"bytes=4-", 206, 4, length - 1},
            {"bytes=4-6", 206, 4, 6},
            {"bytes=0-999999999", 206, 0, length - 1},
            {"bytes=9-9", 206, 9, 9},
            {"bytes=-3", 206, length - 3, length - 1},
            {"bytes=-999999999", 206, 0, length - 1},
            {"bytes= 2 - 3 ", 206, 2, 3},
            {"BYTES=2-3", 206, 2, 3},
            {"bytes=-0", 416, 0, 0},
            {"bytes=999999999-", 416, 0, 0},
            {"bytes=999999998-999999999", 416, 0, 0},
            {"bytes=6-4", 200, 0, length - 1},
            {"bytes=1-2,4-5", 200, 0, length - 1},
            {"bytes=-", 200, 0, length - 1},
            {"bytes=a-b", 200, 0, length - 1},
            {"bytes=--3", 200, 0, length - 1},
            {"items=1-2", 200, 0, length - 1},
            {"bytes=99999999999999999999-", 200, 0, length - 1},
        };
        ck_assert_int_eq(put(url_of("/cas/", &digest), blob), 200);
        for (size_t j = 0; j < ARRAY_LENGTH(cases); j++) {
            char headers[128];
            char said[128];
            snprintf(headers, sizeof(headers), "Range: %s\r\n", cases[j].range);
            ck_assert_msg(ask("GET", url, headers, nothing()) == cases[j].code, "%s: %d",
                          cases[j].range, answer.code);
            const char *const range = http_answer_header(&answer, "Content-Range");
            if (cases[j].code == 416) {
                snprintf(said, sizeof(said), "bytes */%zu", length);
                ck_assert_str_eq(range, said);
                continue;
            }
            assert_body(bytes_of(blob.data + cases[j].first, cases[j].last - cases[j].first + 1));
            snprintf(said, sizeof(said), "bytes %zu-%zu/%zu", cases[j].first, cases[j].last,
                     length);
            if (cases[j].code == 206)
                ck_assert_str_eq(range, said);
            else
                ck_assert_ptr_null(range);
        }
        /* Over the border of two chunks. */
        if (length > (1 << 20)) {
            ck_assert_int_eq(ask("GET", url, "Range: bytes=1048570-1048585\r\n", nothing()), 206);
            assert_body(bytes_of(blob.data + 1048570, 16));
        }
        ck_assert_int_eq(ask("GET", url, "Range: bytes=1-2\r\nIf-Range: \"x\"\r\n", nothing()),
                         200);
        ck_assert_int_eq(
            ask("GET", url, "Range: bytes=1-2\r\nAccept-Encoding: zstd\r\n", nothing()), 206);
        assert_body(bytes_of(blob.data + 1, 2));
        ck_assert_int_eq(ask("HEAD", url, "Range: bytes=1-2\r\n", nothing()), 200);
        free_bytes(blob);
    }
    const struct digest empty = digest_of(nothing());
    ck_assert_int_eq(ask("GET", url_of("/cas/", &empty), "Range: bytes=0-\r\n", nothing()), 416);
    ck_assert_int_eq(get(url), 200);
    ck_assert_uint_eq(answer.body.length, 0);
}
END_TEST

START_TEST(expect_continue_is_answered_before_the_body_and_not_at_all_when_it_is_not_needed)
{
    char request[512];
    const struct digest digest = digest_of(bytes_of("abc", 3));
    snprintf(request, sizeof(request),
             "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
             url_of("/cas/", &digest));
    int fd = http_connect(server_http_port(server));
    http_send_text(fd, request);
    http_answer_free(&answer);
    http_receive(fd, false, &answer);
    ck_assert_int_eq(answer.code, 100);
    ck_assert(!grpc_has(&digest));
    http_send_text(fd, "abc");
    http_answer_free(&answer);
    http_receive(fd, false, &answer);
    ck_assert_int_eq(answer.code, 200);
    close(fd);
    /* It is there: nothing need be sent. */
    fd = http_connect(server_http_port(server));
    http_send_text(fd, request);
    http_answer_free(&answer);
    http_receive(fd, false, &answer);
    ck_assert_int_eq(answer.code, 200);
    close(fd);
}
END_TEST

START_TEST(one_connection_takes_many_requests_one_after_the_other_also_after_a_miss)
{
    const int fd = http_connect(server_http_port(server));
    char request[512];
    for (int i = 0; i < 50; i++) {
        char body[16];
        snprintf(body, sizeof(body), "body-%04d", i);
        const struct digest digest = digest_of(bytes_of_string(body));
        static const struct {
            const char *method;
            bool with_body;
            int code;
        } steps[] = {{"GET", false, 404}, {"HEAD", false, 404},  {"PUT", true, 200},
                     {"GET", false, 200}, {"DELETE", true, 405}, {"HEAD", false, 200}};
        for (size_t j = 0; j < ARRAY_LENGTH(steps); j++) {
            snprintf(request, sizeof(request),
                     "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", steps[j].method,
                     url_of("/cas/", &digest), steps[j].with_body ? strlen(body) : 0,
                     steps[j].with_body ? body : "");
            http_send_text(fd, request);
            http_answer_free(&answer);
            http_receive(fd, strcmp(steps[j].method, "HEAD") == 0, &answer);
            ck_assert_msg(answer.code == steps[j].code, "%d, step %zu: %d", i, j, answer.code);
        }
    }
    close(fd);
}
END_TEST

/* What would be left of what was spooled, where files without a name are not possible. */
static size_t spools(void)
{
    DIR *const opened = opendir(directory.path);
    size_t count = 0;
    ck_assert_ptr_nonnull(opened);
    for (const struct dirent *entry; (entry = readdir(opened)) != NULL;)
        count += strncmp(entry->d_name, "spool", 5) == 0;
    closedir(opened);
    return count;
}

static void wait_until_idle(void)
{
    for (int i = 0; i < 200 && metrics_get(server->metrics, METRIC_UPLOADS_OPEN) > 0; i++)
        usleep(20000);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_UPLOADS_OPEN), 0);
}

START_TEST(upload_that_is_broken_off_leaves_nothing)
{
    static const char *const kinds[] = {"Content-Length: 8000000\r\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "Content-Length: 8000000\r\nContent-Encoding: zstd\r\n"};
    const struct bytes blob = random_bytes(8000000, 9);
    const struct digest digest = digest_of(blob);
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        static const char *const paths[] = {"/cas/", "/kv/", "/opaque/ac/"};
        for (size_t j = 0; j < ARRAY_LENGTH(paths); j++) {
            char request[512];
            const int fd = http_connect(server_http_port(server));
            snprintf(request, sizeof(request), "PUT %s HTTP/1.1\r\nHost: x\r\n%s\r\n",
                     url_of(paths[j], &digest), kinds[i]);
            http_send_text(fd, request);
            if (i == 1)
                http_send_text(fd, "7a1200\r\n");
            http_send(fd, bytes_of(blob.data, 5000000));
            const struct linger reset = {.l_onoff = 1, .l_linger = 0};
            if (j % 2 == 0)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
            close(fd);
        }
    }
    wait_until_idle();
    usleep(100000);
    ck_assert(!grpc_has(&digest));
    ck_assert_int_eq(get(url_of("/cas/", &digest)), 404);
    ck_assert_int_eq(get(url_of("/kv/", &digest)), 404);
    ck_assert_int_eq(get(url_of("/opaque/ac/", &digest)), 404);
    ck_assert_uint_eq(spools(), 0);
    ck_assert_int_le(metrics_get(server->metrics, METRIC_BUFFERS_IN_USE), 2);
    ck_assert_int_eq(put(url_of("/cas/", &digest), blob), 200);
    free_bytes(blob);
}
END_TEST

/* Many clients, one blob: one copy, and all are told that it is there. */
struct sender {
    struct thread thread;
    struct bytes blob;
    const char *path;
    int code;
};

static void send_blob(void *argument)
{
    struct sender *const sender = argument;
    struct http_answer own;
    http_ask(server_http_port(server), "PUT", sender->path, "", sender->blob, &own);
    sender->code = own.code;
    http_answer_free(&own);
}

START_TEST(many_who_send_one_blob_at_once_are_all_answered_and_it_is_written_once)
{
    enum { SENDERS = 24 };
    const struct bytes blob = random_bytes(20 << 20, 11);
    const struct digest digest = digest_of(blob);
    struct sender senders[SENDERS];
    struct status status;
    url_of("/cas/", &digest);
    const int64_t before = metrics_get(server->metrics, METRIC_RECORD_BYTES_APPENDED);
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.blob = blob, .path = url};
        ck_assert(thread_start(&senders[i].thread, "sender", 0, send_blob, &senders[i], &status));
    }
    for (int i = 0; i < SENDERS; i++) {
        thread_join(&senders[i].thread);
        ck_assert_int_eq(senders[i].code, 200);
    }
    const int64_t written = metrics_get(server->metrics, METRIC_RECORD_BYTES_APPENDED) - before;
    ck_assert_int_lt(written, 3 * (int64_t)blob.length);
    ck_assert_int_eq(get(url), 200);
    assert_body(blob);
    free_bytes(blob);
}
END_TEST

/* ---- action results and values */

START_TEST(action_result_is_checked_when_it_is_put_and_complete_when_it_is_served)
{
    const struct digest output = digest_of(bytes_of("output", 6));
    struct byte_builder result = {0};
    const struct digest action = digest_of_nothing(7);
    result_add_file(&result, "out", &output);
    url_of("/main/ac/", &action);
    ck_assert_int_eq(put(url, bytes_of("\x07junk", 5)), 400);
    ck_assert_ptr_nonnull(strstr(answer.all, "--http-opaque"));
    ck_assert_int_eq(get(url), 404);
    ck_assert_int_eq(put(url, message_bytes(&result)), 200);
    ck_assert_int_eq(get(url), 404); /* its output is not there */
    ck_assert_int_eq(ask("HEAD", url, "", nothing()), 404);
    ck_assert_int_eq(put(url_of("/cas/", &output), bytes_of("output", 6)), 200);
    ck_assert_int_eq(get(url_of("/main/ac/", &action)), 200);
    assert_body(message_bytes(&result));
    ck_assert_int_eq(ask("HEAD", url, "", nothing()), 200);
    struct digest asked = action;
    asked.size_bytes = 0; /* HTTP does not say it */
    ck_assert_int_eq(grpc_get_action("main", &asked), GRPC_STATUS_OK);
    ck_assert_int_eq(grpc_get_action("other", &asked), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(get(url_of("/other/ac/", &action)), 404);
    ck_assert_int_eq(put_chunked(url_of("/main/ac/", &action), "", message_bytes(&result), 3), 200);
    byte_builder_free(&result);
}
END_TEST

/* Another may come from a peer, or over gRPC. */
static void nobody(struct flight_waiter *waiter)
{
    (void)waiter;
}

START_TEST(of_one_action_one_result_at_a_time_is_written)
{
    enum { SENDERS = 6, LARGE = 5 << 20 };
    const struct digest action = digest_of_nothing(7);
    const struct bytes large = random_bytes(LARGE, 3);
    struct sender senders[SENDERS];
    struct status status;
    struct flight flight;
    struct flight_waiter waiter = {.ready = nobody};
    const struct blob_key key =
        blob_table_action_key(server->store->table, &action, bytes_of_string("opaque"));
    ck_assert(flights_begin(server->flights, key, &flight, &waiter));
    url_of("/opaque/ac/", &action);
    for (int i = 0; i < SENDERS; i++) {
        senders[i] =
            (struct sender){.blob = i % 2 == 0 ? bytes_of_string("small") : large, .path = url};
        ck_assert(thread_start(&senders[i].thread, "sender", 0, send_blob, &senders[i], &status));
    }
    usleep(500 * 1000);
    ck_assert_int_eq(get(url), 404);
    flights_end(server->flights, &flight);
    for (int i = 0; i < SENDERS; i++) {
        thread_join(&senders[i].thread);
        ck_assert_int_eq(senders[i].code, 200);
    }
    ck_assert_int_eq(get(url), 200);
    ck_assert(flights_begin(server->flights, key, &flight, &waiter));
    flights_end(server->flights, &flight);
    free_bytes(large);
}
END_TEST

START_TEST(values_of_keys_and_of_opaque_instances_are_any_bytes_of_any_size)
{
    static const char *const paths[] = {"/kv/%s", "/kv/deep/er/%s.suffix", "/opaque/ac/%s"};
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < ARRAY_LENGTH(paths); j++) {
            struct bytes value = random_bytes(sizes[i], 100 + i);
            const struct digest name = digest_of_nothing(i * 10 + j);
            char hex[DIGEST_HASH_HEX_MAX + 1];
            char path[256];
            const size_t at = strcspn(paths[j], "%");
            snprintf(path, sizeof(path), "%.*s%s%s", (int)at, paths[j], digest_hex(&name, hex),
                     paths[j] + at + 2);
            /* What looks like the server's own way to name a blob is a value like any other. */
            char fake[256] = "";
            if (sizes[i] == 1000) {
                free_bytes(value);
                snprintf(fake, sizeof(fake), "\007varve blob %s/3", hex);
                value = bytes_of_string(fake);
            }
            ck_assert_int_eq(get(path), 404);
            ck_assert_int_eq(i % 2 == 0 ? put(path, value) : put_chunked(path, "", value, 99999),
                             200);
            ck_assert_int_eq(get(path), 200);
            assert_body(value);
            ck_assert_int_eq(ask("HEAD", path, "", nothing()), 200);
            ck_assert_uint_eq(strtoul(http_answer_header(&answer, "Content-Length"), NULL, 10),
                              value.length);
            if (value.length > 10) {
                ck_assert_int_eq(ask("GET", path, "Range: bytes=3-5\r\n", nothing()), 206);
                assert_body(bytes_of(value.data + 3, 3));
            }
            /* The last one counts. */
            ck_assert_int_eq(put(path, bytes_of("new", 3)), 200);
            ck_assert_int_eq(get(path), 200);
            assert_body(bytes_of("new", 3));
            ck_assert_int_eq(ask("DELETE", path, "", nothing()), 204);
            ck_assert_int_eq(get(path), 404);
            ck_assert_int_eq(ask("DELETE", path, "", nothing()), 404);
            if (fake[0] == '\0')
                free_bytes(value);
        }
    }
}
END_TEST

START_TEST(opaque_value_is_no_action_result_to_grpc_and_a_store_of_keys_no_instance)
{
    struct digest action = digest_of_nothing(3);
    ck_assert_int_eq(put(url_of("/opaque/ac/", &action), bytes_of("\xff\xffvalue", 7)), 200);
    action.size_bytes = 0;
    ck_assert_int_eq(grpc_get_action("opaque", &action), GRPC_STATUS_NOT_FOUND);
    ck_assert_int_eq(grpc_get_action("kv", &action), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(put("/kv/a", bytes_of("1", 1)), 200);
    ck_assert_int_eq(put("/kv/deep/a", bytes_of("2", 1)), 200);
    ck_assert_int_eq(get("/kv/a"), 200);
    assert_body(bytes_of("1", 1));
    ck_assert_int_eq(get("/kv/deep/a"), 200);
    assert_body(bytes_of("2", 1));
    ck_assert_int_eq(get("/kv"), 405);
    ck_assert_int_eq(put("/kv/", bytes_of("1", 1)), 405);
    ck_assert_int_eq(put("/kv/%01", bytes_of("1", 1)), 400);
    ck_assert_int_eq(put("/kv/%ff", bytes_of("1", 1)), 400);
    ck_assert_int_eq(put("/kvx", bytes_of("1", 1)), 404);
}
END_TEST

START_TEST(webdav_client_finds_what_it_stored_and_its_folders)
{
    ck_assert_int_eq(ask("OPTIONS", "/kv/", "", nothing()), 200);
    ck_assert_str_eq(http_answer_header(&answer, "DAV"), "1");
    ck_assert_int_eq(ask("MKCOL", "/kv/a/b/", "", nothing()), 201);
    ck_assert_int_eq(ask("PROPFIND", "/kv/a/b/", "Depth: 0\r\n", bytes_of("<x/>", 4)), 207);
    ck_assert_ptr_nonnull(strstr(answer.all, "<D:collection/>"));
    ck_assert_int_eq(ask("PROPFIND", "/kv/a/b/c%20%26%3cd", "Depth: 0\r\n", nothing()), 404);
    ck_assert_int_eq(put("/kv/a/b/c%20%26%3cd", bytes_of("value", 5)), 200);
    ck_assert_int_eq(ask("PROPFIND", "/kv/a/b/c%20%26%3cd", "Depth: 0\r\n", nothing()), 207);
    ck_assert_ptr_nonnull(strstr(answer.all, "<D:getcontentlength>5</D:getcontentlength>"));
    ck_assert_ptr_nonnull(strstr(answer.all, "<D:href>/kv/a/b/c%20%26%3Cd</D:href>"));
    ck_assert_ptr_nonnull(strstr(answer.all, " GMT</D:getlastmodified>"));
}
END_TEST

/* ---- who does not move */

START_TEST(stop_does_not_wait_for_those_who_stand_still)
{
    enum { STILL = 20 };
    int fds[STILL];
    const struct bytes blob = random_bytes(8 << 20, 12);
    const struct digest digest = digest_of(blob);
    const struct digest other = digest_of_nothing(12);
    ck_assert_int_eq(put(url_of("/cas/", &digest), blob), 200);
    for (int i = 0; i < STILL; i++) {
        char request[512];
        fds[i] = http_connect(server_http_port(server));
        if (i % 2 == 0)
            snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n",
                     url_of("/cas/", &digest));
        else
            snprintf(request, sizeof(request),
                     "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\nbeginning",
                     url_of("/cas/", &other));
        http_send_text(fds[i], request);
    }
    usleep(300000);
    const int64_t began_ns = clock_monotonic_ns(clock_real());
    stop();
    ck_assert_int_lt(clock_monotonic_ns(clock_real()) - began_ns, 10 * NS_PER_S);
    for (int i = 0; i < STILL; i++)
        close(fds[i]);
    start();
    ck_assert_int_eq(get(url_of("/cas/", &digest)), 200);
    free_bytes(blob);
}
END_TEST

static void setup_impatient(void)
{
    setup_with((char[]){"--http-idle"}, (char[]){"1s"});
}

START_TEST(connection_on_which_nothing_moves_is_closed)
{
    struct http_answer own = {0};
    const int fd = http_connect(server_http_port(server));
    http_send_text(fd, "PUT /kv/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab");
    http_receive(fd, false, &own);
    ck_assert(own.code == 0 || own.code == 408);
    http_answer_free(&own);
    close(fd);
    wait_until_idle();
}
END_TEST

START_TEST(server_that_is_made_read_only_refuses_puts_and_deletes_and_serves_the_rest)
{
    const struct bytes data = bytes_of_string("a value");
    const struct digest digest = digest_of(data);
    struct byte_builder request = {0};
    struct byte_builder off = {0};
    ck_assert_int_eq(put("/kv/here", data), 200);
    ck_assert_int_eq(get("/readyz"), 200);
    message_add_number(&request, 1, 1);
    message_add_text(&request, 2, "disks are copied");
    ck_assert_int_eq(call("/varve.v1.Admin/SetReadOnly", &request, NULL), GRPC_STATUS_OK);
    const char *const paths[] = {"/kv/here", "/kv/new", url_of("/cas/", &digest)};
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        ck_assert_int_eq(put(paths[i], data), 503);
        ck_assert_ptr_nonnull(
            strstr(answer.all, "made read-only by anonymous: disks are copied; read on"));
    }
    ck_assert_int_eq(ask("DELETE", "/kv/here", "", nothing()), 503);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_WRITES_REFUSED),
                     (int)ARRAY_LENGTH(paths) + 1);
    ck_assert_int_eq(get("/kv/here"), 200);
    assert_body(data);
    ck_assert_int_eq(ask("HEAD", "/kv/here", "", nothing()), 200);
    ck_assert_int_eq(get("/kv/new"), 404);
    ck_assert_int_eq(get("/healthz"), 200);
    ck_assert_int_eq(get("/readyz"), 503);
    ck_assert_ptr_nonnull(strstr(answer.all, "read-only: made read-only by anonymous"));
    ck_assert_int_eq(get("/page/state.json"), 200);
    ck_assert_ptr_nonnull(strstr(answer.all, "\"state\":\"read-only\""));
    ck_assert_int_eq(call("/varve.v1.Admin/SetReadOnly", &off, NULL), GRPC_STATUS_OK);
    ck_assert_int_eq(put("/kv/new", data), 200);
    ck_assert_int_eq(ask("DELETE", "/kv/here", "", nothing()), 204);
    ck_assert_int_eq(get("/readyz"), 200);
}
END_TEST

static void setup_small(void)
{
    setup_with((char[]){"--http-connections"}, (char[]){"16"});
}

static int connect_from(const char *address)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_http_port(server))};
    ck_assert_int_eq(inet_pton(AF_INET, address, &from.sin_addr), 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)(void *)&from, sizeof(from)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

/* An upload that is never finished; each of them took one of the requests that there may be. */
START_TEST(uploads_of_one_address_that_stand_still_hold_off_nobody_else)
{
    enum { OPEN = 100, PART = 8 };
    static int fds[OPEN];
    struct http_answer own = {0};
    for (int i = 0; i < OPEN; i++) {
        fds[i] = connect_from("127.0.0.3");
        http_send_text(fds[i], "PUT /kv/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab");
    }
    /* Its own wait: then it has all that it gets. */
    while (metrics_get(server->metrics, METRIC_HTTP_ADDRESS_WAITS) < PART)
        clock_pause(NS_PER_MS);
    for (int i = 0; i < 2 * PART; i++) {
        const int fd = connect_from("127.0.0.2");
        http_send_text(fd, "GET /kv/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        http_receive(fd, false, &own);
        ck_assert_int_eq(own.code, 404);
        http_answer_free(&own);
        close(fd);
    }
    ck_assert_int_gt(metrics_get(server->metrics, METRIC_HTTP_CLOSED_ADDRESS), 0);
    ck_assert_int_eq(metrics_get(server->metrics, METRIC_HTTP_CLOSED_ROOM), 0);
    for (int i = 0; i < OPEN; i++)
        close(fds[i]);
    wait_until_idle();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("http_cache");
    TCase *const tests = tcase_create("cache");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 240);
    tcase_add_test(
        tests, blob_put_in_any_form_is_served_bit_for_bit_over_both_protocols_and_after_a_restart);
    tcase_add_test(tests, blob_stored_over_grpc_is_there_over_http);
    tcase_add_test(tests, wrong_content_length_name_or_coding_is_refused_and_stores_nothing);
    tcase_add_test(tests, larger_than_may_be_is_refused_before_it_is_sent);
    tcase_add_test(tests, range_is_served_as_the_rfc_has_it);
    tcase_add_test(
        tests, expect_continue_is_answered_before_the_body_and_not_at_all_when_it_is_not_needed);
    tcase_add_test(tests, one_connection_takes_many_requests_one_after_the_other_also_after_a_miss);
    tcase_add_test(tests, upload_that_is_broken_off_leaves_nothing);
    tcase_add_test(tests, many_who_send_one_blob_at_once_are_all_answered_and_it_is_written_once);
    tcase_add_test(tests, action_result_is_checked_when_it_is_put_and_complete_when_it_is_served);
    tcase_add_test(tests, of_one_action_one_result_at_a_time_is_written);
    tcase_add_test(tests, values_of_keys_and_of_opaque_instances_are_any_bytes_of_any_size);
    tcase_add_test(tests, opaque_value_is_no_action_result_to_grpc_and_a_store_of_keys_no_instance);
    tcase_add_test(tests, webdav_client_finds_what_it_stored_and_its_folders);
    tcase_add_test(tests,
                   server_that_is_made_read_only_refuses_puts_and_deletes_and_serves_the_rest);
    tcase_add_test(tests, stop_does_not_wait_for_those_who_stand_still);
    suite_add_tcase(suite, tests);
    TCase *const impatient = tcase_create("impatient");
    tcase_add_checked_fixture(impatient, setup_impatient, teardown);
    tcase_add_test(impatient, connection_on_which_nothing_moves_is_closed);
    suite_add_tcase(suite, impatient);
    TCase *const small = tcase_create("small");
    tcase_add_checked_fixture(small, setup_small, teardown);
    tcase_add_test(small, uploads_of_one_address_that_stand_still_hold_off_nobody_else);
    suite_add_tcase(suite, small);
    return test_run(suite);
}
