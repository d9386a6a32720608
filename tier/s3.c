/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/s3.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "tier/s3_objects.h"

enum {
    STATS_AT_A_TIME = 256, /* exchanges made for one stat_many at once */
    STATS_MAX_DEFAULT = 16,
    HASH_BUFFER_BYTES = 256 << 10,
    ANSWER_SLOW =
        5, /* times first_byte_ns for LIST and multi-delete, which are work for the server */
};

static bool put(struct bucket *bucket, const struct bucket_put *put, struct status *status);
static bool get(struct bucket *bucket,
                const struct bucket_get *get,
                struct bucket_object *object,
                struct status *status);
static bool stat_many(struct bucket *bucket,
                      const char *const *keys,
                      size_t count,
                      int64_t deadline_ns,
                      struct bucket_object *objects,
                      struct status *status);
static bool list(struct bucket *bucket,
                 const char *prefix,
                 const char *after,
                 int64_t deadline_ns,
                 struct arena *arena,
                 struct bucket_page *page,
                 struct status *status);
static bool delete_many(struct bucket *bucket,
                        const char *const *keys,
                        size_t count,
                        int64_t deadline_ns,
                        struct status *status);
static void set_limits(struct s3_limits *limits, const struct s3_limits *wanted);
static bool set_endpoint(struct s3 *s3, const struct s3_config *config, struct status *status);
static bool check_name(const char *what, const char *name, struct status *status);
static bool check_key(const char *key, struct status *status);

bool s3_new(const struct s3_config *config, struct s3 **s3_out, struct status *status)
{
    ASSERT(config->connections_max > 0);
    struct s3 *const s3 = calloc(1, sizeof(*s3));
    if (s3 == NULL)
        return status_fail_errno(status, ENOMEM, "tier");
    s3->bucket = (struct bucket){
        .put = put, .get = get, .stat_many = stat_many, .list = list, .delete_many = delete_many};
    s3->clock = config->clock;
    s3->metrics = config->metrics;
    s3->stats_max = config->stats_max != 0 ? config->stats_max : STATS_MAX_DEFAULT;
    s3->sessions_left = config->connections_max;
    lock_init(&s3->lock, LOCK_RANK_TIER);
    condition_init(&s3->session_free);
    breaker_init(&s3->breaker, config->clock);
    set_limits(&s3->limits, &config->limits);
    s3->curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    if (!s3->curl_ready) {
        status_fail(status, STATUS_INTERNAL, "libcurl does not start");
        goto fail;
    }
    if (!check_name("the region", config->region, status) ||
        !check_name("the bucket", config->bucket, status) || !set_endpoint(s3, config, status))
        goto fail;
    s3->region = strdup(config->region);
    s3->ca_file = config->ca_file != NULL ? strdup(config->ca_file) : NULL;
    if (s3->region == NULL || (config->ca_file != NULL && s3->ca_file == NULL)) {
        status_fail_errno(status, ENOMEM, "tier");
        goto fail;
    }
    if (!s3_credentials_new(config->credentials_file, config->credentials_profile, config->region,
                            config->clock, &s3->credentials, status))
        goto fail;
    metrics_set(s3->metrics, METRIC_TIER_UP, 1);
    *s3_out = s3;
    return true;
fail:
    s3_free(s3);
    return false;
}

static void set_limits(struct s3_limits *limits, const struct s3_limits *wanted)
{
    *limits = *wanted;
    if (limits->connect_ns == 0)
        limits->connect_ns = NS_PER_S;
    if (limits->first_byte_ns == 0)
        limits->first_byte_ns = 2 * NS_PER_S;
    if (limits->put_answer_ns == 0)
        limits->put_answer_ns = 10 * NS_PER_S;
    if (limits->low_speed_ns == 0)
        limits->low_speed_ns = 5 * NS_PER_S;
    if (limits->low_speed_bytes == 0)
        limits->low_speed_bytes = 320 * KIB;
    if (limits->multipart_above_bytes == 0)
        limits->multipart_above_bytes = 64 * MIB;
    if (limits->part_bytes == 0)
        limits->part_bytes = 16 * MIB;
}

static bool set_endpoint(struct s3 *s3, const struct s3_config *config, struct status *status)
{
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    char *path = NULL;
    bool ok = false;
    CURLU *const url = curl_url();
    if (url == NULL)
        return status_fail_errno(status, ENOMEM, "tier");
    char *query = NULL;
    char *user = NULL;
    if (curl_url_set(url, CURLUPART_URL, config->endpoint, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK || strcmp(path, "/") != 0 ||
        curl_url_get(url, CURLUPART_QUERY, &query, 0) == CURLUE_OK ||
        curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        status_fail(status, STATUS_INVALID_ARGUMENT,
                    "the tier's endpoint is to be http://HOST[:PORT] or https://HOST[:PORT]");
        goto out;
    }
    /* As curl would write the Host header, and as it is signed: without the scheme's own port. */
    const bool has_port =
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT) == CURLUE_OK;
    const bool virtual_host = config->addressing == S3_VIRTUAL_HOST;
    const int host_length =
        snprintf(s3->host, sizeof(s3->host), "%s%s%s%s%s", virtual_host ? config->bucket : "",
                 virtual_host ? "." : "", host, has_port ? ":" : "", has_port ? port : "");
    const int origin_length = snprintf(s3->origin, sizeof(s3->origin), "%s://%s", scheme, s3->host);
    if (host_length < 0 || (size_t)host_length >= sizeof(s3->host) || origin_length < 0 ||
        (size_t)origin_length >= sizeof(s3->origin)) {
        status_fail(status, STATUS_INVALID_ARGUMENT, "the tier's endpoint is too long");
        goto out;
    }
    if (!virtual_host)
        snprintf(s3->root, sizeof(s3->root), "/%.70s", config->bucket);
    ok = true;
out:
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_free(query);
    curl_free(user);
    curl_url_cleanup(url);
    return ok;
}

/* They become part of names and of what is signed. */
static bool check_name(const char *what, const char *name, struct status *status)
{
    const size_t length = strlen(name);
    if (length == 0 || length > 63)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s is to have 1 to 63 characters",
                           what);
    for (size_t i = 0; i < length; i++) {
        const char c = name[i];
        if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' &&
            c != '.' && c != '_')
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "%s is to have letters, digits, '-', '.' and '_' alone", what);
    }
    return true;
}

void s3_stop(struct s3 *s3)
{
    atomic_store(&s3->stopped, true);
}

void s3_free(struct s3 *s3)
{
    if (s3 == NULL)
        return;
    while (s3->idle != NULL) {
        struct s3_session *const session = s3->idle;
        s3->idle = session->next;
        if (session->multi != NULL)
            curl_multi_cleanup(session->multi);
        free(session);
    }
    s3_credentials_free(s3->credentials);
    breaker_destroy(&s3->breaker);
    condition_destroy(&s3->session_free);
    lock_destroy(&s3->lock);
    if (s3->curl_ready)
        curl_global_cleanup();
    free(s3->region);
    free(s3->ca_file);
    free(s3);
}

struct bucket *s3_bucket(struct s3 *s3)
{
    return &s3->bucket;
}

enum breaker_state s3_breaker_state(struct s3 *s3)
{
    return breaker_state(&s3->breaker);
}

int64_t s3_clock_skew_s(struct s3 *s3)
{
    return atomic_load(&s3->skew_s);
}

/* ---- put */

static bool put(struct bucket *bucket, const struct bucket_put *put, struct status *status)
{
    struct s3 *const s3 = CONTAINER_OF(bucket, struct s3, bucket);
    if (!check_key(put->key, status))
        return false;
    if (put->source.size_bytes > s3->limits.multipart_above_bytes)
        return s3_put_in_parts(s3, put, status);
    uint8_t sha256[SHA256_HASH_BYTES];
    if (put->sha256 == NULL && !s3_hash(&put->source, 0, put->source.size_bytes, sha256, status))
        return false;
    struct s3_exchange exchange = {.method = S3_PUT,
                                   .key = put->key,
                                   .notes = put->notes,
                                   .note_count = put->note_count,
                                   .if_absent = put->condition == BUCKET_PUT_IF_ABSENT,
                                   .source = put->source,
                                   .source_bytes = put->source.size_bytes,
                                   .sha256 = put->sha256 != NULL ? put->sha256 : sha256,
                                   .first_byte_ns = s3->limits.put_answer_ns,
                                   .deadline_ns = put->deadline_ns};
    const bool ok = s3_exchange_one(s3, &exchange, status);
    s3_exchange_clear(&exchange);
    if (!ok)
        status_prefix(status, "PUT %s", put->key);
    return ok;
}

static bool check_key(const char *key, struct status *status)
{
    const size_t length = strlen(key);
    if (length == 0 || length >= BUCKET_KEY_BYTES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "a key is to have 1 to %d bytes",
                           BUCKET_KEY_BYTES_MAX - 1);
    for (size_t i = 0; i < length; i++) {
        if (key[i] <= ' ' || key[i] > '~')
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "a key is to be printable ASCII without spaces");
    }
    return true;
}

bool s3_hash(const struct bucket_source *source,
             uint64_t offset,
             uint64_t bytes,
             uint8_t sha256[32],
             struct status *status)
{
    uint8_t *const buffer = malloc(HASH_BUFFER_BYTES);
    if (buffer == NULL)
        return status_fail_errno(status, ENOMEM, "hash what goes to the tier");
    struct hasher *const hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    bool ok = true;
    for (uint64_t done = 0; ok && done < bytes;) {
        const uint64_t left = bytes - done;
        size_t length = 0;
        ok = source->read(source->argument, offset + done, buffer,
                          left < HASH_BUFFER_BYTES ? (size_t)left : HASH_BUFFER_BYTES, &length,
                          status);
        if (ok) {
            hasher_update(hasher, bytes_of(buffer, length));
            done += length;
        }
    }
    struct digest digest;
    hasher_finish(hasher, &digest);
    memcpy(sha256, digest.hash, SHA256_HASH_BYTES);
    hasher_free(hasher);
    free(buffer);
    return ok;
}

/* ---- get and stat */

static void told(const struct s3_exchange *exchange, struct bucket_object *object)
{
    *object = (struct bucket_object){.presence = BUCKET_PRESENT,
                                     .size_bytes = exchange->object_bytes,
                                     .modified_s = exchange->modified_s,
                                     .has_sha256 = exchange->has_sha256};
    memcpy(object->sha256, exchange->sha256_noted, sizeof(object->sha256));
}

static bool get(struct bucket *bucket,
                const struct bucket_get *get,
                struct bucket_object *object,
                struct status *status)
{
    struct s3 *const s3 = CONTAINER_OF(bucket, struct s3, bucket);
    *object = (struct bucket_object){.presence = BUCKET_UNKNOWN};
    if (!check_key(get->key, status))
        return false;
    ASSERT(get->length > 0 || get->offset == 0);
    ASSERT(get->offset + get->length >= get->offset);
    struct s3_exchange exchange = {.method = S3_GET,
                                   .key = get->key,
                                   .range_offset = get->offset,
                                   .range_bytes = get->length,
                                   .sink = get->sink,
                                   .first_byte_ns = s3->limits.first_byte_ns,
                                   .deadline_ns = get->deadline_ns};
    bool ok = s3_exchange_one(s3, &exchange, status);
    if (ok) {
        told(&exchange, object);
    } else if (exchange.absent) {
        object->presence = BUCKET_ABSENT;
        *status = (struct status){0};
        ok = true;
    } else {
        status_prefix(status, "GET %s", get->key);
    }
    s3_exchange_clear(&exchange);
    return ok;
}

/* Keys from `from` on, at most STATS_AT_A_TIME; false when one stays unknown. */
static bool stat_some(struct s3 *s3,
                      const char *const *keys,
                      size_t count,
                      int64_t deadline_ns,
                      struct s3_exchange *exchanges,
                      struct bucket_object *objects,
                      struct status *status)
{
    for (size_t i = 0; i < count; i++)
        exchanges[i] = (struct s3_exchange){.method = S3_HEAD,
                                            .key = keys[i],
                                            .first_byte_ns = s3->limits.first_byte_ns,
                                            .deadline_ns = deadline_ns};
    if (!s3_exchange_many(s3, exchanges, count, s3->stats_max, deadline_ns, status))
        return false;
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const struct s3_exchange *const exchange = &exchanges[i];
        if (exchange->ok) {
            told(exchange, &objects[i]);
        } else if (exchange->absent) {
            objects[i].presence = BUCKET_ABSENT;
        } else if (ok) {
            *status = exchange->status;
            status_prefix(status, "HEAD %s", keys[i]);
            ok = false;
        }
    }
    for (size_t i = 0; i < count; i++)
        s3_exchange_clear(&exchanges[i]);
    return ok;
}

static bool stat_many(struct bucket *bucket,
                      const char *const *keys,
                      size_t count,
                      int64_t deadline_ns,
                      struct bucket_object *objects,
                      struct status *status)
{
    struct s3 *const s3 = CONTAINER_OF(bucket, struct s3, bucket);
    for (size_t i = 0; i < count; i++)
        objects[i] = (struct bucket_object){.presence = BUCKET_UNKNOWN};
    for (size_t i = 0; i < count; i++)
        if (!check_key(keys[i], status))
            return false;
    const size_t at_a_time = count < STATS_AT_A_TIME ? count : STATS_AT_A_TIME;
    struct s3_exchange *const exchanges = calloc(at_a_time + 1, sizeof(*exchanges));
    if (exchanges == NULL)
        return status_fail_errno(status, ENOMEM, "HEAD of %zu keys", count);
    bool ok = true;
    for (size_t from = 0; from < count; from += at_a_time) {
        const size_t some = count - from < at_a_time ? count - from : at_a_time;
        struct status why = {0};
        /* One alone may also find out what time it is there. */
        const bool known =
            stat_some(s3, keys + from, some, deadline_ns, exchanges, objects + from, &why);
        if (!known && ok)
            *status = why;
        ok = ok && known;
    }
    free(exchanges);
    return ok;
}

bool s3_read_body(struct s3_exchange *exchange,
                  const char *root,
                  const struct s3_xml_reader *reader,
                  struct status *status)
{
    const struct bytes body = bytes_of(exchange->body, exchange->body_bytes);
    /* Either name stands before any text of ours or of others that could bear it. */
    if (body.length > 0 &&
        memmem(body.data, body.length < 512 ? body.length : 512, "<Error", 6) != NULL)
        return s3_answer_fail(exchange, status);
    if (memmem(body.data, body.length, root, strlen(root)) == NULL)
        return status_fail(status, STATUS_INTERNAL, "the answer is no %s", root);
    return s3_xml_read(body, reader, status);
}

/* ---- list */

struct listing {
    struct bucket_page *page;
    struct arena *arena;
    struct bucket_entry next;
    bool truncated;
};

static bool take_list_element(void *argument,
                              const char *path,
                              const char *text,
                              struct status *status);

static bool list(struct bucket *bucket,
                 const char *prefix,
                 const char *after,
                 int64_t deadline_ns,
                 struct arena *arena,
                 struct bucket_page *page,
                 struct status *status)
{
    struct s3 *const s3 = CONTAINER_OF(bucket, struct s3, bucket);
    char most[16];
    *page = (struct bucket_page){0};
    snprintf(most, sizeof(most), "%d", BUCKET_LIST_MAX);
    page->entries = arena_take(arena, BUCKET_LIST_MAX * sizeof(page->entries[0]));
    if (page->entries == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "memory for a listing");
    struct s3_exchange exchange = {.method = S3_GET,
                                   .parameters = {{"list-type", "2"}, {"max-keys", most}},
                                   .parameter_count = 2,
                                   .first_byte_ns = ANSWER_SLOW * s3->limits.first_byte_ns,
                                   .deadline_ns = deadline_ns};
    if (prefix[0] != '\0')
        exchange.parameters[exchange.parameter_count++] = (struct sigv4_pair){"prefix", prefix};
    if (after[0] != '\0')
        exchange.parameters[exchange.parameter_count++] = (struct sigv4_pair){"start-after", after};
    struct listing listing = {.page = page, .arena = arena};
    const struct s3_xml_reader reader = {.element = take_list_element, .argument = &listing};
    const bool ok = s3_exchange_one(s3, &exchange, status) &&
                    s3_read_body(&exchange, "ListBucketResult", &reader, status);
    if (ok)
        page->more = listing.truncated && page->count > 0;
    else
        status_prefix(status, "LIST %s", prefix);
    s3_exchange_clear(&exchange);
    return ok;
}

static int64_t parse_time(const char *text)
{
    struct tm parts = {0};
    return strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) != NULL ? timegm(&parts) : 0;
}

static bool take_list_element(void *argument,
                              const char *path,
                              const char *text,
                              struct status *status)
{
    struct listing *const listing = argument;
    struct bucket_page *const page = listing->page;
    if (strcmp(path, "ListBucketResult/Contents/Key") == 0) {
        listing->next.key = arena_copy_string(listing->arena, bytes_of_string(text));
        if (listing->next.key == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "memory for a listing");
    } else if (strcmp(path, "ListBucketResult/Contents/Size") == 0) {
        listing->next.size_bytes = strtoull(text, NULL, 10);
    } else if (strcmp(path, "ListBucketResult/Contents/LastModified") == 0) {
        listing->next.modified_s = parse_time(text);
    } else if (strcmp(path, "ListBucketResult/IsTruncated") == 0) {
        listing->truncated = strcmp(text, "true") == 0;
    } else if (strcmp(path, "ListBucketResult/Contents") == 0) {
        if (listing->next.key == NULL || page->count == BUCKET_LIST_MAX)
            return status_fail(status, STATUS_INTERNAL, "the listing has %s",
                               listing->next.key == NULL ? "an object without a key"
                                                         : "more than was asked for");
        if (page->count > 0 && strcmp(page->entries[page->count - 1].key, listing->next.key) >= 0)
            return status_fail(status, STATUS_INTERNAL, "the listing is not in order");
        page->entries[page->count++] = listing->next;
        listing->next = (struct bucket_entry){0};
    }
    return true;
}

/* ---- delete */

static bool take_delete_element(void *argument,
                                const char *path,
                                const char *text,
                                struct status *status);
static char *delete_document(const char *const *keys, size_t count, size_t *length);
static bool md5_base64(struct bytes bytes, char text[32]);

static bool delete_many(struct bucket *bucket,
                        const char *const *keys,
                        size_t count,
                        int64_t deadline_ns,
                        struct status *status)
{
    struct s3 *const s3 = CONTAINER_OF(bucket, struct s3, bucket);
    ASSERT(count <= BUCKET_DELETE_MAX);
    if (count == 0)
        return true;
    for (size_t i = 0; i < count; i++) {
        if (!check_key(keys[i], status))
            return false;
    }
    size_t length = 0;
    char md5[32];
    struct digest digest;
    char *const document = delete_document(keys, count, &length);
    if (document == NULL || !md5_base64(bytes_of(document, length), md5)) {
        free(document);
        return status_fail_errno(status, ENOMEM, "delete %zu keys", count);
    }
    struct bucket_memory memory = {.bytes = bytes_of(document, length)};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, memory.bytes, &digest);
    struct s3_exchange exchange = {.method = S3_POST,
                                   .parameters = {{"delete", ""}},
                                   .parameter_count = 1,
                                   .content_md5 = md5,
                                   .source = bucket_source_of(&memory),
                                   .source_bytes = length,
                                   .sha256 = digest.hash,
                                   .first_byte_ns = ANSWER_SLOW * s3->limits.first_byte_ns,
                                   .deadline_ns = deadline_ns};
    struct status refused = {0};
    const struct s3_xml_reader reader = {.element = take_delete_element, .argument = &refused};
    bool ok = s3_exchange_one(s3, &exchange, status) &&
              s3_read_body(&exchange, "DeleteResult", &reader, status);
    if (ok && refused.code != STATUS_OK) {
        *status = refused;
        ok = false;
    }
    if (!ok)
        status_prefix(status, "DELETE of %zu keys", count);
    s3_exchange_clear(&exchange);
    free(document);
    return ok;
}

/* An error of one key: the first is told. */
static bool take_delete_element(void *argument,
                                const char *path,
                                const char *text,
                                struct status *status)
{
    (void)status;
    struct status *const refused = argument;
    if (strcmp(path, "DeleteResult/Error/Code") == 0 && refused->code == STATUS_OK &&
        strcmp(text, "NoSuchKey") != 0)
        status_fail(refused,
                    strcmp(text, "AccessDenied") == 0 ? STATUS_PERMISSION_DENIED
                                                      : STATUS_UNAVAILABLE,
                    "one was refused: %s", text);
    return true;
}

static char *delete_document(const char *const *keys, size_t count, size_t *length)
{
    static const char head[] = "<Delete><Quiet>true</Quiet>";
    static const char before[] = "<Object><Key>";
    static const char after[] = "</Key></Object>";
    static const char tail[] = "</Delete>";
    size_t capacity = sizeof(head) + sizeof(tail);
    for (size_t i = 0; i < count; i++)
        capacity += sizeof(before) + sizeof(after) + 6 * strlen(keys[i]);
    char *const document = malloc(capacity);
    if (document == NULL)
        return NULL;
    size_t used = sizeof(head) - 1;
    memcpy(document, head, sizeof(head));
    for (size_t i = 0; i < count; i++) {
        memcpy(document + used, before, sizeof(before));
        used += sizeof(before) - 1;
        const bool fits = s3_xml_escape(keys[i], document, capacity, &used);
        ASSERT(fits);
        memcpy(document + used, after, sizeof(after));
        used += sizeof(after) - 1;
    }
    memcpy(document + used, tail, sizeof(tail));
    *length = used + sizeof(tail) - 1;
    return document;
}

static bool md5_base64(struct bytes bytes, char text[32])
{
    uint8_t md5[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_Digest(bytes.data, bytes.length, md5, &length, EVP_md5(), NULL) != 1 || length != 16)
        return false;
    return EVP_EncodeBlock((unsigned char *)text, md5, (int)length) == 24;
}
