/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/s3_exchange.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "base/log.h"

enum {
    POLL_MS = 100, /* how soon limits and a stop are noticed */
    URL_BYTES = 4096,
    HEADER_BYTES = S3_TOKEN_BYTES + 64,
    CURL_BUFFER_BYTES = 256 << 10, /* more makes what is sent and what is given differ for longer */
    IDLE_CONNECTIONS = 32,         /* of one session */
    SKEW_BORNE_S = 240,            /* servers allow 15 minutes; others less */
};
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
/* How long a caller without a deadline waits for a connection. */
#define SESSION_WAIT_NS (60 * NS_PER_S)

static struct s3_session *session_take(struct s3 *s3, int64_t deadline_ns, struct status *status);
static struct s3_session *session_take_locked(struct s3 *s3, int64_t deadline_ns)
    REQUIRES(s3->lock);
static void session_give(struct s3 *s3, struct s3_session *session);
static bool begin(struct s3 *s3, struct s3_exchange *exchange, CURLM *multi);
static bool prepare(struct s3_exchange *exchange);
static bool make_target(const struct s3_exchange *exchange, char *path, char *query, char *url);
static bool add_headers(struct s3_exchange *exchange, const char *path, const char *query);
static bool add_header(struct s3_exchange *exchange, const char *name, const char *value);
static bool set_options(struct s3_exchange *exchange, const char *url);
static bool set_method(struct s3_exchange *exchange);
static size_t take_header(char *line, size_t size, size_t count, void *argument);
static void take_named_header(struct s3_exchange *exchange,
                              const char *name,
                              size_t name_length,
                              const char *value);
static bool parse_range(struct s3_exchange *exchange, const char *value);
static size_t give_body(char *to, size_t size, size_t count, void *argument);
static int seek_body(void *argument, curl_off_t offset, int origin);
static size_t take_body(char *data, size_t size, size_t count, void *argument);
static bool judge(struct s3_exchange *exchange);
static bool gather(struct s3_exchange *exchange, const char *data, size_t length);
static bool break_off(struct s3_exchange *exchange, enum status_code code, const char *format, ...)
    PRINTF_LIKE(3, 4);
static bool watch(struct s3_exchange *exchange, int64_t now_ns);
static void end(struct s3_exchange *exchange, CURLM *multi, CURLcode result);
static void conclude(struct s3_exchange *exchange, CURLcode result);
static enum status_code status_of_curl(CURLcode result);
static bool learn_time(struct s3_exchange *exchange);
static void account(struct s3_exchange *exchange);

bool s3_exchange_one(struct s3 *s3, struct s3_exchange *exchange, struct status *status)
{
    if (!s3_exchange_many(s3, exchange, 1, 1, exchange->deadline_ns, status))
        return false;
    /* Once: with the server's time it is signed anew. */
    if (!exchange->ok && learn_time(exchange) &&
        !s3_exchange_many(s3, exchange, 1, 1, exchange->deadline_ns, status))
        return false;
    if (!exchange->ok)
        *status = exchange->status;
    return exchange->ok;
}

bool s3_exchange_many(struct s3 *s3,
                      struct s3_exchange *exchanges,
                      size_t count,
                      size_t in_flight_max,
                      int64_t deadline_ns,
                      struct status *status)
{
    struct s3_session *const session = session_take(s3, deadline_ns, status);
    if (session == NULL)
        return false;
    size_t begun = 0;
    size_t in_flight = 0;
    bool sound = true;
    while (begun < count || in_flight > 0) {
        for (; begun < count && in_flight < in_flight_max; begun++)
            in_flight += begin(s3, &exchanges[begun], session->multi) ? 1 : 0;
        if (in_flight == 0)
            continue;
        int running = 0;
        sound = curl_multi_perform(session->multi, &running) == CURLM_OK && sound;
        const CURLMsg *message;
        int left = 0;
        while ((message = curl_multi_info_read(session->multi, &left)) != NULL) {
            struct s3_exchange *exchange = NULL;
            const CURLcode how = message->data.result;
            ASSERT(message->msg == CURLMSG_DONE);
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
            end(exchange, session->multi, how);
            in_flight--;
        }
        const int64_t now_ns = clock_monotonic_ns(s3->clock);
        for (size_t i = 0; i < begun; i++) {
            if (exchanges[i].easy != NULL && (!sound || !watch(&exchanges[i], now_ns))) {
                end(&exchanges[i], session->multi,
                    sound ? CURLE_ABORTED_BY_CALLBACK : CURLE_FAILED_INIT);
                in_flight--;
            }
        }
        if (in_flight > 0 && running > 0)
            sound = curl_multi_poll(session->multi, NULL, 0, POLL_MS, NULL) == CURLM_OK;
    }
    session_give(s3, session);
    return true;
}

static struct s3_session *session_take(struct s3 *s3, int64_t deadline_ns, struct status *status)
{
    if (deadline_ns == 0)
        deadline_ns = clock_monotonic_ns(s3->clock) + SESSION_WAIT_NS;
    lock_acquire(&s3->lock);
    struct s3_session *session = session_take_locked(s3, deadline_ns);
    lock_release(&s3->lock);
    if (session == NULL) {
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "every connection to the tier is in use");
        return NULL;
    }
    if (session->multi == NULL) {
        session->multi = curl_multi_init();
        if (session->multi == NULL) {
            session_give(s3, session);
            status_fail_errno(status, ENOMEM, "connection to the tier");
            return NULL;
        }
        curl_multi_setopt(session->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS);
    }
    return session;
}

static struct s3_session *session_take_locked(struct s3 *s3, int64_t deadline_ns)
{
    for (;;) {
        struct s3_session *session = s3->idle;
        if (session != NULL) {
            s3->idle = session->next;
            return session;
        }
        if (s3->sessions_left > 0) {
            session = calloc(1, sizeof(*session));
            s3->sessions_left -= session != NULL ? 1 : 0;
            return session;
        }
        const int64_t now_ns = clock_monotonic_ns(s3->clock);
        if (now_ns >= deadline_ns)
            return NULL;
        (void)condition_wait_for(&s3->session_free, &s3->lock, deadline_ns - now_ns);
    }
}

static void session_give(struct s3 *s3, struct s3_session *session)
{
    lock_acquire(&s3->lock);
    session->next = s3->idle;
    s3->idle = session;
    condition_signal(&s3->session_free);
    lock_release(&s3->lock);
}

/* False: it has ended already. */
static bool begin(struct s3 *s3, struct s3_exchange *exchange, CURLM *multi)
{
    s3_exchange_clear(exchange);
    exchange->s3 = s3;
    exchange->started_ns = exchange->window_ns = clock_monotonic_ns(s3->clock);
    if (atomic_load(&s3->stopped))
        return status_fail(&exchange->status, STATUS_CANCELLED, "the tier is being stopped");
    if (exchange->deadline_ns != 0 && exchange->deadline_ns <= exchange->started_ns)
        return status_fail(&exchange->status, STATUS_DEADLINE_EXCEEDED, "the deadline has passed");
    if (!breaker_enter(&s3->breaker, &exchange->pass)) {
        metrics_add(s3->metrics, METRIC_TIER_REFUSED, 1);
        return status_fail(&exchange->status, STATUS_UNAVAILABLE,
                           "the tier did not answer and is left alone for some seconds");
    }
    exchange->easy = curl_easy_init();
    if (exchange->easy == NULL || !prepare(exchange) ||
        curl_multi_add_handle(multi, exchange->easy) != CURLM_OK) {
        enum breaker_state unused;
        (void)breaker_leave(&s3->breaker, exchange->pass, BREAKER_UNKNOWN, &unused);
        if (exchange->easy != NULL)
            curl_easy_cleanup(exchange->easy);
        exchange->easy = NULL;
        curl_slist_free_all(exchange->headers);
        exchange->headers = NULL;
        if (exchange->status.code == STATUS_OK)
            status_fail_errno(&exchange->status, ENOMEM, "request to the tier");
        return false;
    }
    return true;
}

static bool prepare(struct s3_exchange *exchange)
{
    char path[3 * BUCKET_KEY_BYTES_MAX];
    char query[URL_BYTES];
    char url[URL_BYTES + 4 * BUCKET_KEY_BYTES_MAX];
    if (!make_target(exchange, path, query, url))
        return status_fail(&exchange->status, STATUS_INVALID_ARGUMENT,
                           "the key or what is asked of it is too long");
    return add_headers(exchange, path, query) && set_options(exchange, url);
}

static bool make_target(const struct s3_exchange *exchange, char *path, char *query, char *url)
{
    const struct s3 *const s3 = exchange->s3;
    char plain[BUCKET_KEY_BYTES_MAX + sizeof(s3->root) + 1];
    const char *const slash = exchange->key != NULL || s3->root[0] == '\0' ? "/" : "";
    const int length = snprintf(plain, sizeof(plain), "%s%s%s", s3->root, slash,
                                exchange->key != NULL ? exchange->key : "");
    if (length < 0 || (size_t)length >= sizeof(plain))
        return false;
    if (!sigv4_encode_path(plain, path, (size_t)3 * BUCKET_KEY_BYTES_MAX) ||
        !sigv4_encode_query(exchange->parameters, exchange->parameter_count, query, URL_BYTES))
        return false;
    const size_t capacity = URL_BYTES + 4 * BUCKET_KEY_BYTES_MAX;
    const int url_length =
        snprintf(url, capacity, "%s%s%s%s", s3->origin, path, query[0] != '\0' ? "?" : "", query);
    return url_length > 0 && (size_t)url_length < capacity;
}

static bool add_headers(struct s3_exchange *exchange, const char *path, const char *query)
{
    struct s3 *const s3 = exchange->s3;
    char time[SIGV4_TIME_BYTES];
    char day[SIGV4_DAY_BYTES];
    char sha256[SIGV4_SHA256_HEX_BYTES] = EMPTY_SHA256;
    char names[BUCKET_METADATA_MAX][64];
    char authorization[2048];
    struct s3_signing signing;
    exchange->signed_wall_s = clock_wall_ns(s3->clock) / NS_PER_S + atomic_load(&s3->skew_s);
    sigv4_time(exchange->signed_wall_s, time);
    snprintf(day, sizeof(day), "%.8s", time);
    s3_credentials_take(s3->credentials, day, &signing);
    if (exchange->source_bytes > 0) {
        ASSERT(exchange->sha256 != NULL);
        sigv4_hex(exchange->sha256, SHA256_HASH_BYTES, sha256);
    }

    struct sigv4_pair signed_headers[SIGV4_PAIRS_MAX] = {
        {"host", s3->host}, {"x-amz-content-sha256", sha256}, {"x-amz-date", time}};
    size_t count = 3;
    if (signing.token[0] != '\0')
        signed_headers[count++] = (struct sigv4_pair){"x-amz-security-token", signing.token};
    if (exchange->content_md5 != NULL)
        signed_headers[count++] = (struct sigv4_pair){"content-md5", exchange->content_md5};
    ASSERT(exchange->note_count <= BUCKET_METADATA_MAX);
    for (size_t i = 0; i < exchange->note_count; i++) {
        const int length =
            snprintf(names[i], sizeof(names[i]), "x-amz-meta-%s", exchange->notes[i].name);
        ASSERT(length > 0 && (size_t)length < sizeof(names[i]));
        signed_headers[count++] = (struct sigv4_pair){names[i], exchange->notes[i].value};
    }
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    const struct sigv4_request request = {.method = methods[exchange->method],
                                          .path = path,
                                          .query = query,
                                          .headers = signed_headers,
                                          .header_count = count,
                                          .payload_sha256 = sha256};
    const struct sigv4_scope scope = {
        .access_key = signing.access_key, .region = s3->region, .service = "s3", .time = time};
    if (!sigv4_sign(&request, &scope, &signing.key, authorization, sizeof(authorization)))
        return status_fail(&exchange->status, STATUS_INVALID_ARGUMENT,
                           "the request has too much to be signed");
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        ok = ok && add_header(exchange, signed_headers[i].name, signed_headers[i].value);
    /* Not signed. Expect is curl's for more than 1 MiB, and costs a second where nobody knows it. */
    ok = ok && add_header(exchange, "authorization", authorization) &&
         add_header(exchange, "expect", NULL) &&
         add_header(exchange, "content-type",
                    exchange->method == S3_POST ? "application/xml" : NULL);
    if (exchange->if_absent)
        ok = ok && add_header(exchange, "if-none-match", "*");
    return ok;
}

/* value NULL: curl shall not send it of itself. */
static bool add_header(struct s3_exchange *exchange, const char *name, const char *value)
{
    char line[HEADER_BYTES];
    const int length = snprintf(line, sizeof(line), "%s:%s%s", name, value != NULL ? " " : "",
                                value != NULL ? value : "");
    if (length < 0 || (size_t)length >= sizeof(line))
        return status_fail(&exchange->status, STATUS_INVALID_ARGUMENT, "header %s is too long",
                           name);
    struct curl_slist *const longer = curl_slist_append(exchange->headers, line);
    if (longer == NULL)
        return status_fail_errno(&exchange->status, ENOMEM, "request to the tier");
    exchange->headers = longer;
    return true;
}

static bool set_options(struct s3_exchange *exchange, const char *url)
{
    const struct s3 *const s3 = exchange->s3;
    CURL *const easy = exchange->easy;
    char range[64];
    bool ok =
        curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_error) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_USERAGENT, "varve") == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                         (long)(s3->limits.connect_ns / NS_PER_MS)) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)CURL_BUFFER_BYTES) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)CURL_BUFFER_BYTES) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange) == CURLE_OK;
    if (s3->ca_file != NULL)
        ok = ok && curl_easy_setopt(easy, CURLOPT_CAINFO, s3->ca_file) == CURLE_OK;
    if (exchange->range_bytes > 0) {
        snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)exchange->range_offset,
                 (unsigned long long)(exchange->range_offset + exchange->range_bytes - 1));
        ok = ok && curl_easy_setopt(easy, CURLOPT_RANGE, range) == CURLE_OK;
    }
    ok = ok && set_method(exchange);
    if (!ok && exchange->status.code == STATUS_OK)
        status_fail_errno(&exchange->status, ENOMEM, "request to the tier");
    return ok;
}

static bool set_method(struct s3_exchange *exchange)
{
    CURL *const easy = exchange->easy;
    const curl_off_t bytes = (curl_off_t)exchange->source_bytes;
    const bool sends = exchange->method == S3_PUT || exchange->method == S3_POST;
    if (sends && (curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body) != CURLE_OK ||
                  curl_easy_setopt(easy, CURLOPT_READDATA, exchange) != CURLE_OK ||
                  curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_body) != CURLE_OK ||
                  curl_easy_setopt(easy, CURLOPT_SEEKDATA, exchange) != CURLE_OK))
        return false;
    switch (exchange->method) {
    case S3_GET:
        return curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    case S3_HEAD:
        return curl_easy_setopt(easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
    case S3_PUT:
        return curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, bytes) == CURLE_OK;
    case S3_POST:
        return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, bytes) == CURLE_OK;
    default:
        return curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE") == CURLE_OK;
    }
}

/* ---- what curl calls */

static size_t take_header(char *line, size_t size, size_t count, void *argument)
{
    struct s3_exchange *const exchange = argument;
    const size_t length = size * count;
    if (length >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        /* Of a 100, or of a connection that had died: what came before is not of this answer. */
        exchange->range_told = false;
        exchange->has_sha256 = false;
        exchange->etag[0] = '\0';
        exchange->judged = false;
        return length;
    }
    const char *const colon = memchr(line, ':', length);
    if (colon == NULL)
        return length;
    const char *from = colon + 1;
    const char *to = line + length;
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == '\r' || to[-1] == '\n' || to[-1] == ' ' || to[-1] == '\t'))
        to--;
    char value[S3_ETAG_BYTES];
    if ((size_t)(to - from) < sizeof(value)) {
        memcpy(value, from, (size_t)(to - from));
        value[to - from] = '\0';
        take_named_header(exchange, line, (size_t)(colon - line), value);
    }
    return length;
}

static bool is_named(const char *name, size_t length, const char *wanted)
{
    return length == strlen(wanted) && strncasecmp(name, wanted, length) == 0;
}

static void take_named_header(struct s3_exchange *exchange,
                              const char *name,
                              size_t name_length,
                              const char *value)
{
    if (is_named(name, name_length, "etag")) {
        memcpy(exchange->etag, value, strlen(value) + 1);
    } else if (is_named(name, name_length, "date")) {
        const time_t date = curl_getdate(value, NULL);
        exchange->date_s = date > 0 ? date : 0;
    } else if (is_named(name, name_length, "last-modified")) {
        const time_t date = curl_getdate(value, NULL);
        exchange->modified_s = date > 0 ? date : 0;
    } else if (is_named(name, name_length, "x-amz-bucket-region")) {
        snprintf(exchange->region_hint, sizeof(exchange->region_hint), "%.63s", value);
    } else if (is_named(name, name_length, "x-amz-meta-" BUCKET_NOTE_SHA256)) {
        struct digest digest;
        struct status ignored;
        exchange->has_sha256 =
            digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(value), 0, &digest, &ignored);
        if (exchange->has_sha256)
            memcpy(exchange->sha256_noted, digest.hash, sizeof(exchange->sha256_noted));
    } else if (is_named(name, name_length, "content-range")) {
        exchange->range_told = parse_range(exchange, value);
    }
}

/* "bytes 0-9/100" */
static bool parse_range(struct s3_exchange *exchange, const char *value)
{
    uint64_t numbers[3];
    if (strncmp(value, "bytes ", 6) != 0)
        return false;
    value += 6;
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        char *end = NULL;
        if (*value < '0' || *value > '9')
            return false;
        errno = 0;
        numbers[i] = strtoull(value, &end, 10);
        if (errno != 0 || *end != "-/"[i])
            return false;
        value = end + 1;
    }
    exchange->told_offset = numbers[0];
    exchange->told_end = numbers[1] + 1;
    exchange->told_total = numbers[2];
    return numbers[0] <= numbers[1] && numbers[1] < numbers[2];
}

static size_t give_body(char *to, size_t size, size_t count, void *argument)
{
    struct s3_exchange *const exchange = argument;
    const uint64_t left = exchange->source_bytes - exchange->sent_bytes;
    if (left == 0)
        return 0;
    const size_t capacity = left < size * count ? (size_t)left : size * count;
    size_t length = 0;
    const int64_t before_ns = clock_monotonic_ns(exchange->s3->clock);
    const bool ok = exchange->source.read(exchange->source.argument,
                                          exchange->source_offset + exchange->sent_bytes,
                                          (uint8_t *)to, capacity, &length, &exchange->status);
    exchange->local_ns += clock_monotonic_ns(exchange->s3->clock) - before_ns;
    if (!ok) {
        exchange->broken_off = exchange->own_fault = true;
        return CURL_READFUNC_ABORT;
    }
    ASSERT(length > 0 && length <= capacity);
    exchange->sent_bytes += length;
    return length;
}

/* A connection that was kept had died: curl takes another one, and the body from its beginning. */
static int seek_body(void *argument, curl_off_t offset, int origin)
{
    struct s3_exchange *const exchange = argument;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->source_bytes)
        return CURL_SEEKFUNC_FAIL;
    exchange->sent_bytes = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t take_body(char *data, size_t size, size_t count, void *argument)
{
    struct s3_exchange *const exchange = argument;
    const size_t length = size * count;
    if (!exchange->judged && !judge(exchange))
        return CURL_WRITEFUNC_ERROR;
    exchange->received_bytes += length;
    if (!exchange->may_sink)
        return gather(exchange, data, length) ? length : CURL_WRITEFUNC_ERROR;
    if (exchange->expected_known && exchange->received_bytes > exchange->expected_bytes) {
        (void)break_off(exchange, STATUS_INTERNAL, "more came than was announced");
        return CURL_WRITEFUNC_ERROR;
    }
    const int64_t before_ns = clock_monotonic_ns(exchange->s3->clock);
    const bool ok =
        exchange->sink.write(exchange->sink.argument, bytes_of(data, length), &exchange->status);
    exchange->local_ns += clock_monotonic_ns(exchange->s3->clock) - before_ns;
    if (!ok)
        exchange->broken_off = exchange->own_fault = true;
    return ok ? length : CURL_WRITEFUNC_ERROR;
}

/* Once the head is there, and before the sink sees a byte: is it what was asked for? */
static bool judge(struct s3_exchange *exchange)
{
    long http_code = 0;
    curl_off_t announced = -1;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &http_code);
    curl_easy_getinfo(exchange->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
    exchange->http_code = (int)http_code;
    exchange->judged = true;
    exchange->may_sink = false;
    exchange->expected_known = announced >= 0;
    exchange->expected_bytes = announced >= 0 ? (uint64_t)announced : 0;
    if (http_code < 200 || http_code > 299)
        return true;
    exchange->object_bytes = exchange->expected_bytes;
    if (exchange->range_bytes > 0) {
        if (http_code != 206)
            return break_off(exchange, STATUS_INTERNAL,
                             "%ld instead of 206: whoever answers does not know ranges", http_code);
        if (!exchange->range_told || exchange->told_offset != exchange->range_offset)
            return break_off(exchange, STATUS_INTERNAL, "206 without the range that was asked for");
        exchange->object_bytes = exchange->told_total;
        if (exchange->told_end - exchange->told_offset < exchange->range_bytes)
            return break_off(exchange, STATUS_OUT_OF_RANGE, "the object has only %llu bytes",
                             (unsigned long long)exchange->told_total);
        if (exchange->told_end - exchange->told_offset != exchange->range_bytes ||
            (exchange->expected_known && exchange->expected_bytes != exchange->range_bytes))
            return break_off(exchange, STATUS_INTERNAL,
                             "206 with another range than was asked for");
    } else if (http_code == 206) {
        return break_off(exchange, STATUS_INTERNAL, "206, and no range was asked for");
    }
    exchange->may_sink = exchange->sink.write != NULL;
    return true;
}

static bool gather(struct s3_exchange *exchange, const char *data, size_t length)
{
    const bool good = exchange->http_code >= 200 && exchange->http_code <= 299;
    const size_t limit = good ? S3_BODY_BYTES_MAX : S3_ERROR_BODY_BYTES_MAX;
    if (length > limit - exchange->body_bytes) {
        if (good)
            return break_off(exchange, STATUS_INTERNAL, "the answer is larger than %zu bytes",
                             limit);
        length = limit - exchange->body_bytes;
    }
    if (exchange->body_bytes + length > exchange->body_capacity) {
        size_t capacity = exchange->body_capacity < 4096 ? 4096 : exchange->body_capacity;
        while (capacity < exchange->body_bytes + length)
            capacity *= 2;
        uint8_t *const longer = realloc(exchange->body, capacity);
        if (longer == NULL)
            return break_off(exchange, STATUS_RESOURCE_EXHAUSTED, "memory for an answer");
        exchange->body = longer;
        exchange->body_capacity = capacity;
    }
    memcpy(exchange->body + exchange->body_bytes, data, length);
    exchange->body_bytes += length;
    return true;
}

/* The status may have been set by a source or a sink: the first stays. */
static bool break_off(struct s3_exchange *exchange, enum status_code code, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!exchange->broken_off)
        status_fail(&exchange->status, code, "%s", text);
    exchange->broken_off = true;
    return false;
}

/* ---- limits */

/* False: it has taken too long, or everything is to stop. */
static bool watch(struct s3_exchange *exchange, int64_t now_ns)
{
    const struct s3_limits *const limits = &exchange->s3->limits;
    if (atomic_load(&exchange->s3->stopped)) {
        exchange->own_fault = true;
        return break_off(exchange, STATUS_CANCELLED, "the tier is being stopped");
    }
    if (exchange->deadline_ns != 0 && now_ns >= exchange->deadline_ns) {
        /* One in more of a hurry than our limits says nothing of the server. */
        exchange->own_fault = now_ns - exchange->started_ns < exchange->first_byte_ns;
        return break_off(exchange, STATUS_DEADLINE_EXCEEDED, "no whole answer by the deadline");
    }
    curl_off_t sent = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    const bool all_sent = (uint64_t)sent >= exchange->source_bytes;
    long http_code = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &http_code);
    if (all_sent && http_code == 0) {
        if (exchange->waiting_since_ns == 0)
            exchange->waiting_since_ns =
                exchange->source_bytes > 0 ? now_ns : exchange->started_ns + limits->connect_ns;
        if (now_ns - exchange->waiting_since_ns > exchange->first_byte_ns)
            return break_off(exchange, STATUS_DEADLINE_EXCEEDED, "no answer within %lld ms",
                             (long long)(exchange->first_byte_ns / NS_PER_MS));
        exchange->window_ns = now_ns;
        return true;
    }
    exchange->waiting_since_ns = 0;
    const uint64_t moved = (uint64_t)sent + exchange->received_bytes;
    /* Connecting has a limit of its own, and no bytes. */
    const int64_t from_ns =
        exchange->window_ns + exchange->local_ns + (moved == 0 ? limits->connect_ns : 0);
    if (now_ns - from_ns < limits->low_speed_ns)
        return true;
    if (moved - exchange->window_bytes < limits->low_speed_bytes)
        return break_off(exchange, STATUS_DEADLINE_EXCEEDED, "only %llu bytes moved in %lld ms",
                         (unsigned long long)(moved - exchange->window_bytes),
                         (long long)(limits->low_speed_ns / NS_PER_MS));
    exchange->window_ns = now_ns;
    exchange->window_bytes = moved;
    exchange->local_ns = 0;
    return true;
}

/* ---- the end */

static void end(struct s3_exchange *exchange, CURLM *multi, CURLcode result)
{
    conclude(exchange, result);
    account(exchange);
    curl_multi_remove_handle(multi, exchange->easy);
    curl_easy_cleanup(exchange->easy);
    exchange->easy = NULL;
    curl_slist_free_all(exchange->headers);
    exchange->headers = NULL;
}

static void conclude(struct s3_exchange *exchange, CURLcode result)
{
    if (exchange->broken_off)
        return;
    if (!exchange->judged && result == CURLE_OK && !judge(exchange))
        return;
    long http_code = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &http_code);
    exchange->http_code = (int)http_code;
    exchange->server_ahead_s =
        exchange->date_s != 0 ? exchange->date_s - exchange->signed_wall_s : 0;
    /* A server that refuses may close while we still send: what it has said counts. */
    if (http_code >= 300) {
        s3_answer_fail(exchange, &exchange->status);
        return;
    }
    if (result != CURLE_OK) {
        status_fail(&exchange->status, status_of_curl(result), "%s",
                    exchange->curl_error[0] != '\0' ? exchange->curl_error
                                                    : curl_easy_strerror(result));
        return;
    }
    if (http_code < 200) {
        status_fail(&exchange->status, STATUS_UNAVAILABLE, "the answer has no end");
        return;
    }
    if (exchange->method != S3_HEAD && exchange->expected_known &&
        exchange->received_bytes != exchange->expected_bytes) {
        status_fail(&exchange->status, STATUS_UNAVAILABLE, "only %llu of %llu bytes came",
                    (unsigned long long)exchange->received_bytes,
                    (unsigned long long)exchange->expected_bytes);
        return;
    }
    if (!exchange->expected_known)
        exchange->object_bytes = exchange->received_bytes;
    exchange->ok = true;
}

static enum status_code status_of_curl(CURLcode result)
{
    switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
        return STATUS_DEADLINE_EXCEEDED;
    case CURLE_OUT_OF_MEMORY:
        return STATUS_RESOURCE_EXHAUSTED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_UNAVAILABLE;
    }
}

/* True: it was refused, and its signature bears a time that is far from the server's, which we know now. */
static bool learn_time(struct s3_exchange *exchange)
{
    if (exchange->http_code != 403 || llabs((long long)exchange->server_ahead_s) < SKEW_BORNE_S)
        return false;
    struct s3 *const s3 = exchange->s3;
    const int64_t skew_s = exchange->date_s - clock_wall_ns(s3->clock) / NS_PER_S;
    atomic_store(&s3->skew_s, skew_s);
    metrics_set(s3->metrics, METRIC_TIER_CLOCK_SKEW, skew_s);
    log_event(LOG_LEVEL_WARN, "tier_clock_differs", "server_ahead_s=%lld", (long long)skew_s);
    return true;
}

static void account(struct s3_exchange *exchange)
{
    struct metrics *const metrics = exchange->s3->metrics;
    const enum status_code code = exchange->ok ? STATUS_OK : exchange->status.code;
    const bool failed =
        !exchange->own_fault && (code == STATUS_UNAVAILABLE || code == STATUS_DEADLINE_EXCEEDED ||
                                 (exchange->http_code == 0 && code != STATUS_OK));
    enum metric metric = METRIC_TIER_FAILED;
    if (exchange->ok)
        metric = METRIC_TIER_OK;
    else if (exchange->own_fault)
        metric = METRIC_TIER_BROKEN_OFF;
    else if (code == STATUS_DEADLINE_EXCEEDED)
        metric = METRIC_TIER_TIMED_OUT;
    else if (code == STATUS_NOT_FOUND)
        metric = METRIC_TIER_ABSENT;
    else if (code == STATUS_PERMISSION_DENIED || code == STATUS_FAILED_PRECONDITION)
        metric = METRIC_TIER_DENIED;
    else if (exchange->http_code >= 500 || exchange->http_code == 429)
        metric = METRIC_TIER_BUSY;
    metrics_add(metrics, metric, 1);
    curl_off_t sent = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    metrics_add(metrics, METRIC_TIER_BYTES_SENT, sent);
    metrics_add(metrics, METRIC_TIER_BYTES_RECEIVED, (int64_t)exchange->received_bytes);

    enum breaker_state state;
    struct log_text quoted;
    const enum breaker_outcome outcome = exchange->own_fault ? BREAKER_UNKNOWN
                                         : failed            ? BREAKER_FAILED
                                                             : BREAKER_ANSWERED;
    if (!breaker_leave(&exchange->s3->breaker, exchange->pass, outcome, &state))
        return;
    metrics_set(metrics, METRIC_TIER_UP, state == BREAKER_CLOSED ? 1 : 0);
    if (state == BREAKER_CLOSED)
        log_event(LOG_LEVEL_INFO, "tier_answers_again", "host=%s", exchange->s3->host);
    else
        log_event(LOG_LEVEL_WARN, "tier_left_alone", "host=%s reason=%s", exchange->s3->host,
                  log_quote(&quoted, exchange->status.message));
}

/* All that an attempt has left: what the caller has set stays. */
void s3_exchange_clear(struct s3_exchange *exchange)
{
    free(exchange->body);
    const struct s3_exchange request = {
        .method = exchange->method,
        .key = exchange->key,
        .parameter_count = exchange->parameter_count,
        .notes = exchange->notes,
        .note_count = exchange->note_count,
        .if_absent = exchange->if_absent,
        .content_md5 = exchange->content_md5,
        .source = exchange->source,
        .source_offset = exchange->source_offset,
        .source_bytes = exchange->source_bytes,
        .sha256 = exchange->sha256,
        .range_offset = exchange->range_offset,
        .range_bytes = exchange->range_bytes,
        .sink = exchange->sink,
        .first_byte_ns = exchange->first_byte_ns,
        .deadline_ns = exchange->deadline_ns,
    };
    struct sigv4_pair parameters[S3_PARAMETERS_MAX];
    memcpy(parameters, exchange->parameters, sizeof(parameters));
    *exchange = request;
    memcpy(exchange->parameters, parameters, sizeof(parameters));
}
