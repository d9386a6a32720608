/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_s3.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/lock.h"
#include "base/thread.h"
#include "tier/sigv4.h"

enum {
    CONNECTIONS_MAX = 512,
    HEADERS_MAX = 40,
    HEAD_BYTES_MAX = 16384,
    BODY_BYTES_MAX = 64 << 20,
    OBJECTS_MAX = 4096,
    UPLOADS_MAX = 16,
    PARTS_MAX = 64,
    NOTES_BYTES = 512,
};

struct object {
    char *key;
    uint8_t *data;
    size_t length;
    char notes[NOTES_BYTES]; /* "name:value\n" ... */
    time_t modified;
};

struct upload {
    bool live;
    int number;
    char *key;
    char notes[NOTES_BYTES];
    struct object parts[PARTS_MAX + 1]; /* by number */
};

struct connection {
    struct fake_s3 *fake;
    int fd;
    struct thread thread;
};

struct fake_s3 {
    int fd;
    int port;
    struct thread acceptor;
    struct lock lock; /* guards all below */
    bool stopping;
    struct connection connections[CONNECTIONS_MAX];
    int connection_count;
    struct object objects[OBJECTS_MAX]; /* by key, ascending */
    int object_count;
    struct upload uploads[UPLOADS_MAX];
    int upload_count;
    int counts[5]; /* of methods */
    enum fake_s3_fault fault;
    int fault_count;
    char fault_method[8];
    char fault_part[64];
    int ahead_s;
    char secret[64];
    char token[64];
    int page;
};

struct header {
    char *name, *value;
};

struct request {
    struct connection *connection;
    struct fake_s3 *fake;
    char head[HEAD_BYTES_MAX];
    char *method, *path, *query;
    struct header headers[HEADERS_MAX];
    int header_count;
    uint8_t *body;
    size_t body_length;
    char key[1024];
    enum fake_s3_fault fault;
};

struct answer {
    int code;
    const char *headers; /* lines, or "" */
    const uint8_t *body;
    size_t length;
};

static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fake_s3: %s\n", what);
        abort();
    }
}

/* ---- bytes in and out */

static bool send_all(int fd, const void *data, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        const ssize_t count = send(fd, (const uint8_t *)data + sent, length - sent, MSG_NOSIGNAL);
        if (count <= 0)
            return false;
        sent += (size_t)count;
    }
    return true;
}

static bool is_stopping(struct fake_s3 *fake)
{
    lock_acquire(&fake->lock);
    const bool stopping = fake->stopping;
    lock_release(&fake->lock);
    return stopping;
}

/* Until the other side hangs up or the fake is stopped. */
static void stay_silent(struct request *request)
{
    struct pollfd wait = {.fd = request->connection->fd, .events = POLLIN | POLLRDHUP};
    char ignored[4096];
    while (!is_stopping(request->fake)) {
        if (poll(&wait, 1, 50) > 0 && recv(wait.fd, ignored, sizeof(ignored), MSG_DONTWAIT) <= 0)
            return;
    }
}

/* False: the connection is done with. */
static bool reply(struct request *request, const struct answer *answer)
{
    const int fd = request->connection->fd;
    char head[1024 + 3 * NOTES_BYTES];
    char date[64];
    lock_acquire(&request->fake->lock);
    const time_t now = time(NULL) + request->fake->ahead_s;
    lock_release(&request->fake->lock);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    const int head_length =
        snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nDate: %s\r\nContent-Length: %zu\r\n%s\r\n",
                 answer->code, date, answer->length, answer->headers);
    const bool with_body = strcmp(request->method, "HEAD") != 0;
    if (!send_all(fd, head, (size_t)head_length))
        return false;
    if (!with_body)
        return true;
    switch (request->fault) {
    case FAKE_S3_TRUNCATED:
        send_all(fd, answer->body, answer->length / 2);
        return false;
    case FAKE_S3_RESET:
        send_all(fd, answer->body, answer->length / 2);
        usleep(50000); /* a reset throws away what has not been read */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger));
        return false;
    case FAKE_S3_STALLED:
        send_all(fd, answer->body, answer->length / 2);
        stay_silent(request);
        return false;
    case FAKE_S3_SLOW:
        for (size_t sent = 0; sent < answer->length; sent += 10) {
            const size_t rest = answer->length - sent;
            if (is_stopping(request->fake) ||
                !send_all(fd, answer->body + sent, rest < 10 ? rest : 10))
                return false;
            usleep(100000);
        }
        return true;
    case FAKE_S3_FLIPPED: {
        uint8_t *const copy = malloc(answer->length + 1);
        require(copy != NULL, "memory");
        memcpy(copy, answer->body, answer->length);
        if (answer->length > 0)
            copy[answer->length / 2] ^= 1;
        const bool ok = send_all(fd, copy, answer->length);
        free(copy);
        return ok;
    }
    default:
        return answer->length == 0 || send_all(fd, answer->body, answer->length);
    }
}

static bool reply_text(struct request *request, int code, const char *headers, const char *text)
{
    return reply(request, &(struct answer){.code = code,
                                           .headers = headers,
                                           .body = (const uint8_t *)text,
                                           .length = strlen(text)});
}

static bool reply_error(struct request *request, int code, const char *name)
{
    char text[256];
    snprintf(text, sizeof(text),
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<Error><Code>%s</Code><Message>so says the fake</Message></Error>",
             name);
    return reply_text(request, code, "Content-Type: application/xml\r\n", text);
}

static const char *header_of(const struct request *request, const char *name)
{
    for (int i = 0; i < request->header_count; i++) {
        if (strcasecmp(request->headers[i].name, name) == 0)
            return request->headers[i].value;
    }
    return NULL;
}

/* ---- the request */

static bool read_head(struct request *request, size_t *have)
{
    *have = 0;
    for (;;) {
        char *const end = *have > 0 ? memmem(request->head, *have, "\r\n\r\n", 4) : NULL;
        if (end != NULL) {
            /* What lies behind is of the body. */
            const size_t head_length = (size_t)(end - request->head) + 4;
            const size_t rest = *have - head_length;
            if (rest > 0) {
                request->body = malloc(rest);
                require(request->body != NULL, "memory");
                memcpy(request->body, request->head + head_length, rest);
                request->body_length = rest;
            }
            *end = '\0';
            return true;
        }
        if (*have == sizeof(request->head) - 1)
            return false;
        const ssize_t count = recv(request->connection->fd, request->head + *have,
                                   sizeof(request->head) - 1 - *have, 0);
        if (count <= 0)
            return false;
        *have += (size_t)count;
    }
}

static bool parse_head(struct request *request)
{
    char *rest = request->head;
    char *line = strsep(&rest, "\n");
    request->method = strsep(&line, " ");
    request->path = strsep(&line, " ");
    if (request->path == NULL)
        return false;
    request->query = strchr(request->path, '?');
    if (request->query != NULL)
        *request->query++ = '\0';
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *const value = strchr(line, ':');
        if (value == NULL || request->header_count == HEADERS_MAX)
            return false;
        *value = '\0';
        char *from = value + 1;
        while (*from == ' ')
            from++;
        from[strcspn(from, "\r")] = '\0';
        request->headers[request->header_count++] = (struct header){.name = line, .value = from};
    }
    return true;
}

static bool read_body(struct request *request)
{
    const char *const text = header_of(request, "content-length");
    const size_t length = text != NULL ? strtoull(text, NULL, 10) : 0;
    if (length > BODY_BYTES_MAX || length < request->body_length)
        return false;
    uint8_t *const body = realloc(request->body, length + 1);
    require(body != NULL, "memory");
    request->body = body;
    while (request->body_length < length) {
        const ssize_t count = recv(request->connection->fd, body + request->body_length,
                                   length - request->body_length, 0);
        if (count <= 0)
            return false;
        request->body_length += (size_t)count;
    }
    return true;
}

static void decode(const char *from, size_t length, char *to, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < capacity; i++) {
        unsigned byte;
        if (from[i] == '%' && i + 2 < length + 0 && sscanf(from + i + 1, "%2x", &byte) == 1) {
            to[used++] = (char)byte;
            i += 2;
        } else {
            to[used++] = from[i];
        }
    }
    to[used] = '\0';
}

/* The value of a parameter, decoded; false when there is none. */
static bool parameter(const struct request *request, const char *name, char *value, size_t capacity)
{
    for (const char *at = request->query; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, "&");
        const char *const equals = memchr(at, '=', length);
        const size_t name_length = equals != NULL ? (size_t)(equals - at) : length;
        if (name_length == strlen(name) && memcmp(at, name, name_length) == 0) {
            const char *const from = equals != NULL ? equals + 1 : at + length;
            decode(from, (size_t)(at + length - from), value, capacity);
            return true;
        }
        at += length + (at[length] == '&' ? 1 : 0);
    }
    return false;
}

static bool has(const struct request *request, const char *name)
{
    char value[8];
    return parameter(request, name, value, sizeof(value));
}

/* ---- who asks: from what came, as a server does that has never seen our code */

/* The query as it has to be signed: decoded, encoded, sorted. */
static bool canonical_query(const struct request *request, char *query, size_t capacity)
{
    static _Thread_local char texts[2 * SIGV4_PAIRS_MAX][512];
    struct sigv4_pair pairs[SIGV4_PAIRS_MAX];
    size_t count = 0;
    for (const char *at = request->query; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, "&");
        const char *const equals = memchr(at, '=', length);
        const size_t name_length = equals != NULL ? (size_t)(equals - at) : length;
        const size_t value_length = equals != NULL ? length - name_length - 1 : 0;
        decode(at, name_length, texts[2 * count], sizeof(texts[0]));
        decode(equals != NULL ? equals + 1 : "", value_length, texts[2 * count + 1],
               sizeof(texts[0]));
        pairs[count] = (struct sigv4_pair){texts[2 * count], texts[2 * count + 1]};
        count++;
        at += length + (at[length] == '&' ? 1 : 0);
    }
    return sigv4_encode_query(pairs, count, query, capacity);
}

/* NULL: it is who it says. */
static const char *refusal(const struct request *request, const char *secret, const char *token)
{
    const char *const authorization = header_of(request, "authorization");
    const char *const time = header_of(request, "x-amz-date");
    const char *const payload = header_of(request, "x-amz-content-sha256");
    const char *const given_token = header_of(request, "x-amz-security-token");
    const char *const list = authorization != NULL ? strstr(authorization, "SignedHeaders=") : NULL;
    if (time == NULL || payload == NULL || list == NULL || strlen(time) != SIGV4_TIME_BYTES - 1)
        return "AccessDenied";
    if (strstr(authorization, "Credential=" FAKE_S3_ACCESS_KEY "/") == NULL)
        return "InvalidAccessKeyId";
    if (strcmp(token, given_token != NULL ? given_token : "") != 0)
        return "InvalidToken";

    char names[1024];
    struct sigv4_pair headers[SIGV4_PAIRS_MAX];
    size_t count = 0;
    snprintf(names, sizeof(names), "%.*s", (int)strcspn(list + 14, ","), list + 14);
    char *rest = names;
    for (char *name = strsep(&rest, ";"); name != NULL; name = strsep(&rest, ";")) {
        const char *const value = header_of(request, name);
        if (value == NULL || count == SIGV4_PAIRS_MAX)
            return "AccessDenied";
        headers[count++] = (struct sigv4_pair){name, value};
    }
    /* Whatever is Amazon's must be signed, and the host. */
    for (int i = 0; i < request->header_count; i++) {
        const char *const name = request->headers[i].name;
        if (strncasecmp(name, "x-amz-", 6) != 0 && strcasecmp(name, "host") != 0)
            continue;
        bool is_signed = false;
        for (size_t j = 0; j < count; j++)
            is_signed = is_signed || strcasecmp(headers[j].name, name) == 0;
        if (!is_signed)
            return "AccessDenied";
    }
    char path[4096];
    char plain[2048] = "";
    char query[4096];
    decode(request->path, strlen(request->path), plain, sizeof(plain));
    if (!sigv4_encode_path(plain, path, sizeof(path)) ||
        !canonical_query(request, query, sizeof(query)))
        return "AccessDenied";
    struct sigv4_key key;
    char day[SIGV4_DAY_BYTES];
    char wanted[2048];
    snprintf(day, sizeof(day), "%.8s", time);
    sigv4_derive(secret, day, FAKE_S3_REGION, "s3", &key);
    const struct sigv4_request as_signed = {.method = request->method,
                                            .path = path,
                                            .query = query,
                                            .headers = headers,
                                            .header_count = count,
                                            .payload_sha256 = payload};
    const struct sigv4_scope scope = {
        .access_key = FAKE_S3_ACCESS_KEY, .region = FAKE_S3_REGION, .service = "s3", .time = time};
    if (!sigv4_sign(&as_signed, &scope, &key, wanted, sizeof(wanted)) ||
        strcmp(wanted, authorization) != 0)
        return "SignatureDoesNotMatch";
    return NULL;
}

static bool is_skewed(const struct request *request, int ahead_s)
{
    struct tm parts = {0};
    const char *const text = header_of(request, "x-amz-date");
    if (text == NULL || strptime(text, "%Y%m%dT%H%M%SZ", &parts) == NULL)
        return true;
    const time_t signed_at = timegm(&parts);
    return llabs((long long)(time(NULL) + ahead_s - signed_at)) > 15 * 60;
}

static bool payload_matches(const struct request *request)
{
    const char *const payload = header_of(request, "x-amz-content-sha256");
    struct digest digest;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(request->body, request->body_length), &digest);
    return payload != NULL && strcmp(digest_hex(&digest, hex), payload) == 0;
}

/* ---- objects; the lock is held */

/* Where it is, or -1 - where it belongs. */
static int find_locked(const struct fake_s3 *fake, const char *key) REQUIRES(fake->lock)
{
    int low = 0;
    int high = fake->object_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        const int order = strcmp(fake->objects[middle].key, key);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1 - low;
}

/* Takes the data. */
static void store_locked(struct fake_s3 *fake,
                         const char *key,
                         uint8_t *data,
                         size_t length,
                         const char *notes) REQUIRES(fake->lock)
{
    int at = find_locked(fake, key);
    if (at >= 0) {
        free(fake->objects[at].data);
    } else {
        at = -1 - at;
        require(fake->object_count < OBJECTS_MAX, "too many objects");
        memmove(&fake->objects[at + 1], &fake->objects[at],
                (size_t)(fake->object_count - at) * sizeof(fake->objects[0]));
        fake->object_count++;
        fake->objects[at] = (struct object){.key = strdup(key)};
    }
    fake->objects[at].data = data;
    fake->objects[at].length = length;
    fake->objects[at].modified = time(NULL) + fake->ahead_s;
    snprintf(fake->objects[at].notes, NOTES_BYTES, "%s", notes);
}

static void remove_locked(struct fake_s3 *fake, const char *key) REQUIRES(fake->lock)
{
    const int at = find_locked(fake, key);
    if (at < 0)
        return;
    free(fake->objects[at].key);
    free(fake->objects[at].data);
    fake->object_count--;
    memmove(&fake->objects[at], &fake->objects[at + 1],
            (size_t)(fake->object_count - at) * sizeof(fake->objects[0]));
}

static uint8_t *copy_of(const void *data, size_t length)
{
    uint8_t *const copy = malloc(length + 1);
    require(copy != NULL, "memory");
    if (length > 0)
        memcpy(copy, data, length);
    return copy;
}

static void gather_notes(const struct request *request, char notes[NOTES_BYTES])
{
    size_t used = 0;
    notes[0] = '\0';
    for (int i = 0; i < request->header_count; i++) {
        if (strncasecmp(request->headers[i].name, "x-amz-meta-", 11) == 0)
            used += (size_t)snprintf(notes + used, NOTES_BYTES - used, "%s:%s\n",
                                     request->headers[i].name + 11, request->headers[i].value);
    }
}

/* ---- methods */

static bool serve_get(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    lock_acquire(&fake->lock);
    const int at = find_locked(fake, request->key);
    uint8_t *const data =
        at >= 0 ? copy_of(fake->objects[at].data, fake->objects[at].length) : NULL;
    const size_t length = at >= 0 ? fake->objects[at].length : 0;
    const time_t modified = at >= 0 ? fake->objects[at].modified : 0;
    char notes[2 * NOTES_BYTES] = "";
    size_t used = 0;
    for (const char *note = at >= 0 ? fake->objects[at].notes : ""; *note != '\0';) {
        const size_t note_length = strcspn(note, "\n");
        used += (size_t)snprintf(notes + used, sizeof(notes) - used, "x-amz-meta-%.*s\r\n",
                                 (int)note_length, note);
        note += note_length + 1;
    }
    lock_release(&fake->lock);
    if (data == NULL)
        return strcmp(request->method, "HEAD") == 0 ? reply_text(request, 404, "", "")
                                                    : reply_error(request, 404, "NoSuchKey");
    char headers[3 * NOTES_BYTES];
    char date[64];
    struct tm parts;
    gmtime_r(&modified, &parts);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    unsigned long long first = 0;
    unsigned long long last = 0;
    const char *const range = header_of(request, "range");
    bool ok;
    if (range != NULL && request->fault != FAKE_S3_IGNORE_RANGE &&
        sscanf(range, "bytes=%llu-%llu", &first, &last) == 2) {
        if (request->fault == FAKE_S3_OTHER_RANGE) {
            first++;
            last++;
        }
        if (first >= length) {
            ok = reply_error(request, 416, "InvalidRange");
        } else {
            if (last >= length)
                last = length - 1;
            snprintf(headers, sizeof(headers),
                     "%sLast-Modified: %s\r\nContent-Range: bytes %llu-%llu/%zu\r\n", notes, date,
                     first, last, length);
            ok = reply(request, &(struct answer){206, headers, data + first, last - first + 1});
        }
    } else {
        snprintf(headers, sizeof(headers), "%sLast-Modified: %s\r\n", notes, date);
        ok = reply(request, &(struct answer){200, headers, data, length});
    }
    free(data);
    return ok;
}

static bool serve_list(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    char prefix[1024] = "";
    char after[1024] = "";
    char most[16] = "1000";
    parameter(request, "prefix", prefix, sizeof(prefix));
    parameter(request, "start-after", after, sizeof(after));
    parameter(request, "max-keys", most, sizeof(most));
    char *text = NULL;
    size_t length = 0;
    FILE *const out = open_memstream(&text, &length);
    require(out != NULL, "memory");
    fprintf(out, "<?xml version=\"1.0\"?><ListBucketResult><Name>" FAKE_S3_BUCKET "</Name>");
    lock_acquire(&fake->lock);
    long left = strtol(most, NULL, 10);
    if (fake->page > 0 && left > fake->page)
        left = fake->page;
    bool more = false;
    for (int i = 0; i < fake->object_count && !more; i++) {
        const struct object *const object = &fake->objects[i];
        if (strncmp(object->key, prefix, strlen(prefix)) != 0 || strcmp(object->key, after) <= 0)
            continue;
        if (left-- == 0) {
            more = true;
            break;
        }
        char date[64];
        struct tm parts;
        gmtime_r(&object->modified, &parts);
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S.000Z", &parts);
        fprintf(out,
                "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;x&quot;</ETag>"
                "<Size>%zu</Size></Contents>",
                object->key, date, object->length);
    }
    lock_release(&fake->lock);
    fprintf(out, "<IsTruncated>%s</IsTruncated></ListBucketResult>", more ? "true" : "false");
    fclose(out);
    const bool ok = reply_text(request, 200, "", text);
    free(text);
    return ok;
}

static bool serve_put(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    char notes[NOTES_BYTES];
    char id[16];
    char number[16];
    gather_notes(request, notes);
    lock_acquire(&fake->lock);
    int code = 200;
    if (parameter(request, "uploadId", id, sizeof(id)) &&
        parameter(request, "partNumber", number, sizeof(number))) {
        const long part = strtol(number, NULL, 10);
        const long upload = strtol(id, NULL, 10);
        if (upload >= 0 && upload < fake->upload_count && fake->uploads[upload].live && part > 0 &&
            part <= PARTS_MAX) {
            struct object *const slot = &fake->uploads[upload].parts[part];
            free(slot->data);
            slot->data = copy_of(request->body, request->body_length);
            slot->length = request->body_length;
        } else {
            code = 404;
        }
    } else if (header_of(request, "if-none-match") != NULL &&
               find_locked(fake, request->key) >= 0) {
        code = 412;
    } else {
        store_locked(fake, request->key, copy_of(request->body, request->body_length),
                     request->body_length, notes);
    }
    lock_release(&fake->lock);
    if (code == 404)
        return reply_error(request, 404, "NoSuchUpload");
    if (code == 412)
        return reply_error(request, 412, "PreconditionFailed");
    return reply_text(request, 200, "ETag: \"a&b\"\r\n", "");
}

static void end_upload_locked(struct upload *upload)
{
    for (int i = 0; i <= PARTS_MAX; i++) {
        free(upload->parts[i].data);
        upload->parts[i] = (struct object){0};
    }
    free(upload->key);
    upload->key = NULL;
    upload->live = false;
}

/* Parts 1 to N in order, as the document names them. */
static bool complete_locked(struct fake_s3 *fake, struct request *request, struct upload *upload)
    REQUIRES(fake->lock)
{
    size_t total = 0;
    int count = 0;
    request->body[request->body_length] = '\0';
    for (const char *at = (const char *)request->body; (at = strstr(at, "<PartNumber>")) != NULL;) {
        at += strlen("<PartNumber>");
        count++;
        if (strtol(at, NULL, 10) != count || count > PARTS_MAX ||
            upload->parts[count].data == NULL ||
            strncmp(strstr(at, "<ETag>"), "<ETag>&quot;a&amp;b&quot;</ETag>", 32) != 0)
            return false;
        total += upload->parts[count].length;
    }
    uint8_t *const data = malloc(total + 1);
    require(data != NULL, "memory");
    size_t used = 0;
    for (int i = 1; i <= count; i++) {
        memcpy(data + used, upload->parts[i].data, upload->parts[i].length);
        used += upload->parts[i].length;
    }
    store_locked(fake, upload->key, data, total, upload->notes);
    end_upload_locked(upload);
    return count > 0;
}

static bool serve_post(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    char id[16] = "";
    if (request->fault == FAKE_S3_ERROR_IN_200)
        return reply_error(request, 200, "InternalError");
    if (request->fault == FAKE_S3_NO_XML)
        return reply_text(request, 200, "", "<html><br><ListBucketResult>");
    if (has(request, "delete")) {
        if (header_of(request, "content-md5") == NULL)
            return reply_error(request, 400, "InvalidRequest");
        request->body[request->body_length] = '\0';
        lock_acquire(&fake->lock);
        for (char *at = (char *)request->body; (at = strstr(at, "<Key>")) != NULL;) {
            at += strlen("<Key>");
            char *const end = strstr(at, "</Key>");
            *end = '\0';
            remove_locked(fake, at);
            at = end + 1;
        }
        lock_release(&fake->lock);
        return reply_text(request, 200, "", "<?xml version=\"1.0\"?><DeleteResult></DeleteResult>");
    }
    if (has(request, "uploads")) {
        char text[256];
        lock_acquire(&fake->lock);
        require(fake->upload_count < UPLOADS_MAX, "too many uploads");
        struct upload *const upload = &fake->uploads[fake->upload_count];
        *upload = (struct upload){.live = true, .key = strdup(request->key)};
        gather_notes(request, upload->notes);
        snprintf(text, sizeof(text),
                 "<InitiateMultipartUploadResult><UploadId>%d</UploadId>"
                 "</InitiateMultipartUploadResult>",
                 fake->upload_count++);
        lock_release(&fake->lock);
        return reply_text(request, 200, "", text);
    }
    if (parameter(request, "uploadId", id, sizeof(id))) {
        const long number = strtol(id, NULL, 10);
        lock_acquire(&fake->lock);
        const bool ok = number >= 0 && number < fake->upload_count && fake->uploads[number].live &&
                        complete_locked(fake, request, &fake->uploads[number]);
        lock_release(&fake->lock);
        /* White space first, as those send it who keep the connection alive meanwhile. */
        return ok ? reply_text(request, 200, "",
                               "  \n<CompleteMultipartUploadResult><Key>k</Key>"
                               "</CompleteMultipartUploadResult>")
                  : reply_error(request, 400, "InvalidPart");
    }
    return reply_error(request, 400, "InvalidRequest");
}

static bool serve_delete(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    char id[16];
    lock_acquire(&fake->lock);
    if (parameter(request, "uploadId", id, sizeof(id))) {
        const long number = strtol(id, NULL, 10);
        if (number >= 0 && number < fake->upload_count)
            end_upload_locked(&fake->uploads[number]);
    } else {
        remove_locked(fake, request->key);
    }
    lock_release(&fake->lock);
    return reply_text(request, 204, "", "");
}

/* "/cas/key", or "/key" where the bucket is in the name of the host. */
static bool find_key(struct request *request)
{
    static const char root[] = "/" FAKE_S3_BUCKET;
    char plain[1024] = "";
    decode(request->path, strlen(request->path), plain, sizeof(plain));
    const char *const host = header_of(request, "host");
    const char *from = plain;
    if (host == NULL)
        return false;
    if (strncmp(host, FAKE_S3_BUCKET ".", sizeof(FAKE_S3_BUCKET)) != 0) {
        if (strncmp(plain, root, sizeof(root) - 1) != 0)
            return false;
        from = plain + sizeof(root) - 1;
    }
    snprintf(request->key, sizeof(request->key), "%s", *from == '/' ? from + 1 : from);
    return true;
}

static bool serve(struct request *request)
{
    struct fake_s3 *const fake = request->fake;
    lock_acquire(&fake->lock);
    int method = -1;
    for (int i = 0; i < (int)ARRAY_LENGTH(methods); i++)
        method = strcmp(request->method, methods[i]) == 0 ? i : method;
    if (method >= 0)
        fake->counts[method]++;
    char target[2048];
    snprintf(target, sizeof(target), "%.1000s?%.1000s", request->path,
             request->query != NULL ? request->query : "");
    if (fake->fault_count != 0 &&
        (fake->fault_method[0] == '\0' || strcmp(fake->fault_method, request->method) == 0) &&
        strstr(target, fake->fault_part) != NULL) {
        request->fault = fake->fault;
        fake->fault_count -= fake->fault_count > 0 ? 1 : 0;
    }
    const int ahead_s = fake->ahead_s;
    char secret[64];
    char token[64];
    memcpy(secret, fake->secret, sizeof(secret));
    memcpy(token, fake->token, sizeof(token));
    lock_release(&fake->lock);

    switch (request->fault) {
    case FAKE_S3_SILENT:
        stay_silent(request);
        return false;
    case FAKE_S3_HANG_UP:
        return false;
    case FAKE_S3_SLOW_DOWN:
        return reply_error(request, 503, "SlowDown");
    case FAKE_S3_DENIED:
        return reply_error(request, 403, "AccessDenied");
    case FAKE_S3_NO_BUCKET:
        return reply_error(request, 404, "NoSuchBucket");
    case FAKE_S3_DAMAGED:
        return reply_error(request, 400, "XAmzContentSHA256Mismatch");
    case FAKE_S3_BAD_GATEWAY:
        return reply_text(request, 502, "", "<html><body>Bad <b>Gateway</body>");
    default:
        break;
    }
    const char *const why = refusal(request, secret, token);
    if (why != NULL)
        return reply_error(request, 403, why);
    if (is_skewed(request, ahead_s))
        return reply_error(request, 403, "RequestTimeTooSkewed");
    if (!payload_matches(request))
        return reply_error(request, 400, "XAmzContentSHA256Mismatch");
    if (!find_key(request))
        return reply_error(request, 404, "NoSuchBucket");
    if (strcmp(request->method, "GET") == 0 && request->key[0] == '\0') {
        if (request->fault == FAKE_S3_NO_XML || request->fault == FAKE_S3_ERROR_IN_200)
            return serve_post(request);
        return serve_list(request);
    }
    if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0)
        return serve_get(request);
    if (strcmp(request->method, "PUT") == 0)
        return serve_put(request);
    if (strcmp(request->method, "POST") == 0)
        return serve_post(request);
    if (strcmp(request->method, "DELETE") == 0)
        return serve_delete(request);
    return reply_error(request, 405, "MethodNotAllowed");
}

/* ---- connections */

static void run_connection(void *argument)
{
    struct connection *const connection = argument;
    struct request *const request = malloc(sizeof(*request));
    require(request != NULL, "memory");
    bool open = true;
    while (open) {
        size_t have;
        memset(request, 0, offsetof(struct request, head));
        memset(&request->method, 0, sizeof(*request) - offsetof(struct request, method));
        request->connection = connection;
        request->fake = connection->fake;
        open = read_head(request, &have) && parse_head(request) && read_body(request) &&
               serve(request);
        free(request->body);
    }
    free(request);
    lock_acquire(&connection->fake->lock);
    close(connection->fd);
    connection->fd = -1;
    lock_release(&connection->fake->lock);
}

static void run_acceptor(void *argument)
{
    struct fake_s3 *const fake = argument;
    for (;;) {
        /* Not by the C library: accept4() may be the guard's of a server that runs in this process. */
        const int fd = (int)syscall(SYS_accept4, fake->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return;
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        struct status status = {0};
        lock_acquire(&fake->lock);
        require(fake->connection_count < CONNECTIONS_MAX, "too many connections");
        struct connection *const connection = &fake->connections[fake->connection_count++];
        *connection = (struct connection){.fake = fake, .fd = fd};
        if (!thread_start(&connection->thread, "fake-s3", 0, run_connection, connection, &status))
            require(false, "no thread");
        lock_release(&fake->lock);
    }
}

struct fake_s3 *fake_s3_start(void)
{
    struct fake_s3 *const fake = calloc(1, sizeof(*fake));
    require(fake != NULL, "memory");
    lock_init(&fake->lock, LOCK_RANK_LEAF);
    snprintf(fake->secret, sizeof(fake->secret), "%s", FAKE_S3_SECRET);
    fake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    require(fake->fd >= 0 && bind(fake->fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                listen(fake->fd, 128) == 0 &&
                getsockname(fake->fd, (struct sockaddr *)&address, &length) == 0,
            "no port");
    fake->port = ntohs(address.sin_port);
    struct status status = {0};
    require(thread_start(&fake->acceptor, "fake-s3", 0, run_acceptor, fake, &status), "no thread");
    return fake;
}

void fake_s3_stop(struct fake_s3 *fake)
{
    shutdown(fake->fd, SHUT_RDWR);
    thread_join(&fake->acceptor);
    close(fake->fd);
    lock_acquire(&fake->lock);
    fake->stopping = true;
    for (int i = 0; i < fake->connection_count; i++) {
        if (fake->connections[i].fd >= 0)
            shutdown(fake->connections[i].fd, SHUT_RDWR);
    }
    lock_release(&fake->lock);
    for (int i = 0; i < fake->connection_count; i++)
        thread_join(&fake->connections[i].thread);
    for (int i = 0; i < fake->object_count; i++) {
        free(fake->objects[i].key);
        free(fake->objects[i].data);
    }
    for (int i = 0; i < fake->upload_count; i++)
        end_upload_locked(&fake->uploads[i]);
    lock_destroy(&fake->lock);
    free(fake);
}

int fake_s3_port(const struct fake_s3 *fake)
{
    return fake->port;
}

void fake_s3_fail(struct fake_s3 *fake,
                  enum fake_s3_fault fault,
                  int count,
                  const char *method,
                  const char *part)
{
    lock_acquire(&fake->lock);
    fake->fault = fault;
    fake->fault_count = count;
    snprintf(fake->fault_method, sizeof(fake->fault_method), "%s", method != NULL ? method : "");
    snprintf(fake->fault_part, sizeof(fake->fault_part), "%s", part != NULL ? part : "");
    lock_release(&fake->lock);
}

void fake_s3_set_clock(struct fake_s3 *fake, int ahead_s)
{
    lock_acquire(&fake->lock);
    fake->ahead_s = ahead_s;
    lock_release(&fake->lock);
}

void fake_s3_set_secret(struct fake_s3 *fake, const char *secret, const char *token)
{
    lock_acquire(&fake->lock);
    snprintf(fake->secret, sizeof(fake->secret), "%s", secret);
    snprintf(fake->token, sizeof(fake->token), "%s", token != NULL ? token : "");
    lock_release(&fake->lock);
}

void fake_s3_set_page(struct fake_s3 *fake, int keys)
{
    lock_acquire(&fake->lock);
    fake->page = keys;
    lock_release(&fake->lock);
}

void fake_s3_store(struct fake_s3 *fake, const char *key, struct bytes bytes)
{
    lock_acquire(&fake->lock);
    store_locked(fake, key, copy_of(bytes.data, bytes.length), bytes.length, "");
    lock_release(&fake->lock);
}

uint8_t *fake_s3_load(struct fake_s3 *fake, const char *key, size_t *length)
{
    lock_acquire(&fake->lock);
    const int at = find_locked(fake, key);
    uint8_t *const data =
        at >= 0 ? copy_of(fake->objects[at].data, fake->objects[at].length) : NULL;
    *length = at >= 0 ? fake->objects[at].length : 0;
    lock_release(&fake->lock);
    return data;
}

int fake_s3_objects(struct fake_s3 *fake)
{
    lock_acquire(&fake->lock);
    const int count = fake->object_count;
    lock_release(&fake->lock);
    return count;
}

int fake_s3_requests(struct fake_s3 *fake, const char *method)
{
    int count = 0;
    lock_acquire(&fake->lock);
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++)
        count += method == NULL || strcmp(method, methods[i]) == 0 ? fake->counts[i] : 0;
    lock_release(&fake->lock);
    return count;
}

int fake_s3_connections(struct fake_s3 *fake)
{
    lock_acquire(&fake->lock);
    const int count = fake->connection_count;
    lock_release(&fake->lock);
    return count;
}

int fake_s3_uploads(struct fake_s3 *fake)
{
    int count = 0;
    lock_acquire(&fake->lock);
    for (int i = 0; i < fake->upload_count; i++)
        count += fake->uploads[i].live ? 1 : 0;
    lock_release(&fake->lock);
    return count;
}

char *fake_s3_note(struct fake_s3 *fake, const char *key, const char *name)
{
    char *value = NULL;
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "%s:", name);
    lock_acquire(&fake->lock);
    const int at = find_locked(fake, key);
    const char *const found = at >= 0 ? strcasestr(fake->objects[at].notes, wanted) : NULL;
    if (found != NULL)
        value = strndup(found + strlen(wanted), strcspn(found + strlen(wanted), "\n"));
    lock_release(&fake->lock);
    return value;
}
