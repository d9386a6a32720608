/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_cas.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "google/bytestream/bytestream.pb-c.h"

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name
#define REAPI_CALL(name) build__bazel__remote__execution__v2__##name

enum { OVERSIZED_BYTES = 20 << 20, READ_MESSAGE_BYTES = 256 * 1024 };

struct fake_blob {
    struct fake_blob *next;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    size_t size;   /* of the whole blob, as the name says */
    size_t have;   /* so much of it is there; less than size: an unfinished upload */
    uint8_t *data; /* size + 1 bytes */
};

/* A blob that a call is storing. */
struct fake_storing {
    struct fake_storing *next;
    char hex[DIGEST_HASH_HEX_MAX + 1];
};

static void serve(void *argument, struct fake_call *call);
static void serve_method(struct fake_cas *cas,
                         struct fake_call *call,
                         const struct fake_fault *fault);
static bool take_fault(struct fake_cas *cas, const char *method, struct fake_fault *fault);
static void count(struct fake_cas *cas, const char *method, int live);
static void count_end(void *argument, struct fake_call *call);
static void serve_capabilities(struct fake_cas *cas, struct fake_call *call);
static void serve_find_missing(struct fake_cas *cas, struct fake_call *call);
static void serve_batch_update(struct fake_cas *cas,
                               struct fake_call *call,
                               const struct fake_fault *fault);
static void serve_batch_read(struct fake_cas *cas,
                             struct fake_call *call,
                             const struct fake_fault *fault);
static void serve_write(struct fake_cas *cas,
                        struct fake_call *call,
                        const struct fake_fault *fault);
static void serve_read(struct fake_cas *cas,
                       struct fake_call *call,
                       const struct fake_fault *fault);
static void serve_query(struct fake_cas *cas, struct fake_call *call);
static struct fake_blob *find_locked(struct fake_cas *cas, const char *hex);
static struct fake_blob *make_locked(struct fake_cas *cas, const char *hex, size_t size);

void fake_cas_start(struct fake_cas *cas)
{
    ASSERT(pthread_mutex_init(&cas->mutex, NULL) == 0);
    cas->server = fake_server_start(serve, cas);
    fake_server_on_finish(cas->server, count_end);
}

void fake_cas_stop(struct fake_cas *cas)
{
    fake_server_stop(cas->server);
    for (struct fake_blob *blob = cas->blobs; blob != NULL;) {
        struct fake_blob *next = blob->next;
        free(blob->data);
        free(blob);
        blob = next;
    }
    pthread_mutex_destroy(&cas->mutex);
}

const char *fake_cas_target(const struct fake_cas *cas)
{
    return fake_server_target(cas->server);
}

static void serve(void *argument, struct fake_call *call)
{
    struct fake_cas *cas = argument;
    const char *method = fake_call_method(call);
    count(cas, method, 1);
    struct bytes metadata;
    if (fake_call_metadata(call, "build.bazel.remote.execution.v2.requestmetadata-bin",
                           &metadata) != NULL &&
        metadata.length <= sizeof(cas->request_metadata)) {
        pthread_mutex_lock(&cas->mutex);
        memcpy(cas->request_metadata, metadata.data, metadata.length);
        cas->request_metadata_length = metadata.length;
        pthread_mutex_unlock(&cas->mutex);
    }
    if (cas->answer_pause_ms > 0)
        usleep(cas->answer_pause_ms * 1000);
    struct fake_fault fault = {0};
    take_fault(cas, method, &fault);
    serve_method(cas, call, &fault);
}

/* Before the answer is out, since the client may start its next call as soon as it has it. */
static void count_end(void *argument, struct fake_call *call)
{
    count(argument, fake_call_method(call), -1);
}

static void serve_method(struct fake_cas *cas,
                         struct fake_call *call,
                         const struct fake_fault *fault)
{
    const char *method = fake_call_method(call);
    const bool stream = strcmp(method, "Write") == 0 || strcmp(method, "Read") == 0;
    const bool planned = fault->method != NULL;
    if (planned && fault->kind == FAKE_FAULT_HANG) {
        fake_call_hang(call);
    } else if (planned && fault->kind == FAKE_FAULT_STATUS &&
               (!stream || fault->after_bytes == 0)) {
        fake_call_finish(call, fault->code, fault->text != NULL ? fault->text : "as the test wants",
                         NULL);
    } else if (planned && strcmp(method, "Read") != 0 &&
               (fault->kind == FAKE_FAULT_MALFORMED || fault->kind == FAKE_FAULT_OVERSIZED ||
                fault->kind == FAKE_FAULT_EMPTY)) {
        uint8_t *large = calloc(1, OVERSIZED_BYTES);
        ASSERT(large != NULL);
        memset(large, 0xff, 64);
        const struct bytes reply =
            bytes_of(large, fault->kind == FAKE_FAULT_OVERSIZED   ? OVERSIZED_BYTES
                            : fault->kind == FAKE_FAULT_MALFORMED ? 64
                                                                  : 0);
        fake_call_finish(call, STATUS_OK, "", &reply);
        free(large);
    } else if (strcmp(method, "GetCapabilities") == 0) {
        serve_capabilities(cas, call);
    } else if (strcmp(method, "FindMissingBlobs") == 0) {
        serve_find_missing(cas, call);
    } else if (strcmp(method, "BatchUpdateBlobs") == 0) {
        serve_batch_update(cas, call, fault);
    } else if (strcmp(method, "BatchReadBlobs") == 0) {
        serve_batch_read(cas, call, fault);
    } else if (strcmp(method, "Write") == 0) {
        serve_write(cas, call, fault);
    } else if (strcmp(method, "Read") == 0) {
        serve_read(cas, call, fault);
    } else if (strcmp(method, "QueryWriteStatus") == 0 && !cas->no_query) {
        serve_query(cas, call);
    } else {
        fake_call_finish(call, STATUS_UNIMPLEMENTED, "no such method", NULL);
    }
}

/* A test plans faults between two calls; gRPC orders that, where ThreadSanitizer does not see it. */
__attribute__((no_sanitize_thread)) static bool take_fault(struct fake_cas *cas,
                                                           const char *method,
                                                           struct fake_fault *fault)
{
    bool found = false;
    pthread_mutex_lock(&cas->mutex);
    for (size_t i = 0; i < FAKE_FAULTS_MAX && !found; i++) {
        struct fake_fault *planned = &cas->faults[i];
        if (planned->method == NULL || strcmp(planned->method, method) != 0 ||
            planned->times == 0 || planned->kind == FAKE_FAULT_ONE_ENTRY)
            continue;
        if (planned->skip > 0) {
            planned->skip--;
            continue;
        }
        planned->times--;
        *fault = *planned;
        found = true;
    }
    pthread_mutex_unlock(&cas->mutex);
    return found;
}

static void count(struct fake_cas *cas, const char *method, int live)
{
    pthread_mutex_lock(&cas->mutex);
    size_t i = 0;
    while (cas->counts[i].method[0] != '\0' && strcmp(cas->counts[i].method, method) != 0)
        i++;
    ASSERT(i < FAKE_METHODS_MAX - 1);
    if (cas->counts[i].method[0] == '\0')
        snprintf(cas->counts[i].method, sizeof(cas->counts[i].method), "%s", method);
    if (live > 0) {
        cas->counts[i].calls++;
        cas->counts[i].live++;
        if (cas->counts[i].live > cas->counts[i].live_max)
            cas->counts[i].live_max = cas->counts[i].live;
    } else {
        cas->counts[i].live--;
    }
    pthread_mutex_unlock(&cas->mutex);
}

/* The request, unpacked; or NULL and the call is finished. */
static void *request_of(struct fake_cas *cas,
                        struct fake_call *call,
                        const ProtobufCMessageDescriptor *descriptor)
{
    uint8_t *message;
    size_t length;
    if (!fake_call_receive(call, &message, &length)) {
        fake_call_finish(call, STATUS_INVALID_ARGUMENT, "no request", NULL);
        return NULL;
    }
    pthread_mutex_lock(&cas->mutex);
    if (length > cas->largest_message_bytes)
        cas->largest_message_bytes = length;
    pthread_mutex_unlock(&cas->mutex);
    void *request = protobuf_c_message_unpack(descriptor, NULL, length, message);
    free(message);
    if (request == NULL)
        fake_call_finish(call, STATUS_INVALID_ARGUMENT, "malformed request", NULL);
    return request;
}

static void reply_with(struct fake_call *call, const ProtobufCMessage *message)
{
    const size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(length + 1);
    ASSERT(packed != NULL);
    protobuf_c_message_pack(message, packed);
    const struct bytes reply = bytes_of(packed, length);
    fake_call_finish(call, STATUS_OK, "", &reply);
    free(packed);
}

static void serve_capabilities(struct fake_cas *cas, struct fake_call *call)
{
    if (cas->no_capabilities) {
        fake_call_finish(call, STATUS_UNIMPLEMENTED, "no capabilities", NULL);
        return;
    }
    REAPI(DigestFunction__Value) functions[] = {1};
    REAPI(CacheCapabilities) cache = BUILD__BAZEL__REMOTE__EXECUTION__V2__CACHE_CAPABILITIES__INIT;
    cache.n_digest_functions = 1;
    cache.digest_functions = functions;
    cache.max_batch_total_size_bytes = cas->batch_total_bytes_max;
    cache.max_cas_blob_size_bytes = cas->blob_bytes_max;
    REAPI(ServerCapabilities)
    server = BUILD__BAZEL__REMOTE__EXECUTION__V2__SERVER_CAPABILITIES__INIT;
    server.cache_capabilities = &cache;
    reply_with(call, &server.base);
}

static void serve_find_missing(struct fake_cas *cas, struct fake_call *call)
{
    REAPI(FindMissingBlobsRequest) *request =
        request_of(cas, call, &REAPI_CALL(find_missing_blobs_request__descriptor));
    if (request == NULL)
        return;
    REAPI(FindMissingBlobsResponse)
    response = BUILD__BAZEL__REMOTE__EXECUTION__V2__FIND_MISSING_BLOBS_RESPONSE__INIT;
    response.missing_blob_digests = calloc(request->n_blob_digests + 1, sizeof(void *));
    ASSERT(response.missing_blob_digests != NULL);
    pthread_mutex_lock(&cas->mutex);
    for (size_t i = 0; i < request->n_blob_digests; i++) {
        REAPI(Digest) *digest = request->blob_digests[i];
        const struct fake_blob *blob = find_locked(cas, digest->hash);
        const bool there = digest->size_bytes == 0 || (blob != NULL && blob->have == blob->size &&
                                                       blob->size == (size_t)digest->size_bytes);
        if (!there)
            response.missing_blob_digests[response.n_missing_blob_digests++] = digest;
    }
    pthread_mutex_unlock(&cas->mutex);
    reply_with(call, &response.base);
    free(response.missing_blob_digests);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

/* From when a call has a blob to when it has answered. */
static void storing(struct fake_cas *cas, const char *hex)
{
    struct fake_storing *mine = calloc(1, sizeof(*mine));
    ASSERT(mine != NULL);
    snprintf(mine->hex, sizeof(mine->hex), "%s", hex);
    pthread_mutex_lock(&cas->mutex);
    for (const struct fake_storing *other = cas->storing; other != NULL; other = other->next)
        cas->meetings += strcmp(other->hex, hex) == 0;
    mine->next = cas->storing;
    cas->storing = mine;
    pthread_mutex_unlock(&cas->mutex);
}

static void stored(struct fake_cas *cas, const char *hex)
{
    pthread_mutex_lock(&cas->mutex);
    struct fake_storing **at = &cas->storing;
    while (*at != NULL && strcmp((*at)->hex, hex) != 0)
        at = &(*at)->next;
    struct fake_storing *mine = *at;
    if (mine != NULL)
        *at = mine->next;
    pthread_mutex_unlock(&cas->mutex);
    free(mine);
}

/* Of ONE_ENTRY: OK when there is none for it. */
__attribute__((no_sanitize_thread)) static enum status_code take_entry_fault(struct fake_cas *cas,
                                                                             const char *method,
                                                                             const char *hex)
{
    enum status_code code = STATUS_OK;
    pthread_mutex_lock(&cas->mutex);
    for (size_t i = 0; i < FAKE_FAULTS_MAX && code == STATUS_OK; i++) {
        struct fake_fault *planned = &cas->faults[i];
        if (planned->method == NULL || strcmp(planned->method, method) != 0 ||
            planned->kind != FAKE_FAULT_ONE_ENTRY || planned->times == 0 ||
            strcmp(planned->digest_hex, hex) != 0)
            continue;
        planned->times--;
        code = planned->code;
    }
    pthread_mutex_unlock(&cas->mutex);
    return code;
}

/* A status that ends inside its first number, as an unknown field for protobuf-c. */
static uint8_t bad_status_bytes[] = {2, 0x08, 0xff};
static ProtobufCMessageUnknownField bad_update_status = {
    .tag = 2,
    .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
    .len = sizeof(bad_status_bytes),
    .data = bad_status_bytes,
};

/* Stores a whole blob after looking at it, as a server must. */
static enum status_code store(struct fake_cas *cas,
                              const char *hex,
                              int64_t size,
                              struct bytes data)
{
    struct digest digest;
    char actual[DIGEST_HASH_HEX_MAX + 1];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
    if (size != (int64_t)data.length || strcmp(digest_hex(&digest, actual), hex) != 0)
        return STATUS_INVALID_ARGUMENT;
    pthread_mutex_lock(&cas->mutex);
    struct fake_blob *blob = find_locked(cas, hex);
    if (blob != NULL && blob->have == blob->size)
        cas->duplicates++;
    if (blob == NULL)
        blob = make_locked(cas, hex, data.length);
    if (data.length > 0)
        memcpy(blob->data, data.data, data.length);
    blob->have = data.length;
    pthread_mutex_unlock(&cas->mutex);
    return STATUS_OK;
}

static bool fault_hits(const struct fake_fault *fault, enum fake_fault_kind kind, const char *hex)
{
    return fault->method != NULL && fault->kind == kind &&
           (fault->digest_hex == NULL || strcmp(fault->digest_hex, hex) == 0);
}

static void serve_batch_update(struct fake_cas *cas,
                               struct fake_call *call,
                               const struct fake_fault *fault)
{
    REAPI(BatchUpdateBlobsRequest) *request =
        request_of(cas, call, &REAPI_CALL(batch_update_blobs_request__descriptor));
    if (request == NULL)
        return;
    uint64_t total = 0;
    for (size_t i = 0; i < request->n_requests; i++)
        total += request->requests[i]->data.len;
    if (cas->batch_total_bytes_max > 0 && total > (uint64_t)cas->batch_total_bytes_max) {
        fake_call_finish(call, STATUS_INVALID_ARGUMENT, "batch too large", NULL);
        protobuf_c_message_free_unpacked(&request->base, NULL);
        return;
    }
    for (size_t i = 0; i < request->n_requests; i++)
        storing(cas, request->requests[i]->digest->hash);
    if (cas->store_pause_ms > 0)
        usleep(cas->store_pause_ms * 1000);
    REAPI(BatchUpdateBlobsResponse)
    response = BUILD__BAZEL__REMOTE__EXECUTION__V2__BATCH_UPDATE_BLOBS_RESPONSE__INIT;
    REAPI(BatchUpdateBlobsResponse__Response) *entries =
        calloc(request->n_requests + 1, sizeof(*entries));
    Google__Rpc__Status *statuses = calloc(request->n_requests + 1, sizeof(*statuses));
    response.responses = calloc(request->n_requests + 1, sizeof(void *));
    ASSERT(entries != NULL && statuses != NULL && response.responses != NULL);
    for (size_t i = request->n_requests; i-- > 0;) { /* backwards: order is nobody's promise */
        const REAPI(BatchUpdateBlobsRequest__Request) *blob = request->requests[i];
        if (fault_hits(fault, FAKE_FAULT_NO_ENTRY, blob->digest->hash))
            continue;
        REAPI_CALL(batch_update_blobs_response__response__init(&entries[i]));
        google__rpc__status__init(&statuses[i]);
        entries[i].digest = blob->digest;
        entries[i].status = &statuses[i];
        response.responses[response.n_responses++] = &entries[i];
        if (fault_hits(fault, FAKE_FAULT_BAD_STATUS, blob->digest->hash)) {
            entries[i].status = NULL;
            entries[i].base.n_unknown_fields = 1;
            entries[i].base.unknown_fields = &bad_update_status;
            continue;
        }
        const enum status_code code = take_entry_fault(cas, "BatchUpdateBlobs", blob->digest->hash);
        if (code != STATUS_OK)
            statuses[i].code = (int32_t)code;
        else if (fault_hits(fault, FAKE_FAULT_ENTRY, blob->digest->hash))
            statuses[i].code = (int32_t)fault->code;
        else
            statuses[i].code = (int32_t)store(cas, blob->digest->hash, blob->digest->size_bytes,
                                              bytes_of(blob->data.data, blob->data.len));
        if (fault_hits(fault, FAKE_FAULT_NO_STATUS, blob->digest->hash))
            entries[i].status = NULL;
    }
    for (size_t i = 0; i < request->n_requests; i++)
        stored(cas, request->requests[i]->digest->hash);
    reply_with(call, &response.base);
    free(response.responses);
    free(statuses);
    free(entries);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void serve_batch_read(struct fake_cas *cas,
                             struct fake_call *call,
                             const struct fake_fault *fault)
{
    REAPI(BatchReadBlobsRequest) *request =
        request_of(cas, call, &REAPI_CALL(batch_read_blobs_request__descriptor));
    if (request == NULL)
        return;
    REAPI(BatchReadBlobsResponse)
    response = BUILD__BAZEL__REMOTE__EXECUTION__V2__BATCH_READ_BLOBS_RESPONSE__INIT;
    REAPI(BatchReadBlobsResponse__Response) *entries =
        calloc(2 * request->n_digests + 1, sizeof(*entries));
    Google__Rpc__Status *statuses = calloc(2 * request->n_digests + 1, sizeof(*statuses));
    response.responses = calloc(2 * request->n_digests + 1, sizeof(void *));
    ASSERT(entries != NULL && statuses != NULL && response.responses != NULL);
    for (size_t i = request->n_digests; i-- > 0;) {
        REAPI(Digest) *digest = request->digests[i];
        if (fault_hits(fault, FAKE_FAULT_NO_ENTRY, digest->hash))
            continue;
        REAPI_CALL(batch_read_blobs_response__response__init(&entries[i]));
        google__rpc__status__init(&statuses[i]);
        entries[i].digest = digest;
        entries[i].status = &statuses[i];
        pthread_mutex_lock(&cas->mutex);
        const struct fake_blob *blob = find_locked(cas, digest->hash);
        pthread_mutex_unlock(&cas->mutex);
        const enum status_code code = take_entry_fault(cas, "BatchReadBlobs", digest->hash);
        pthread_mutex_lock(&cas->mutex);
        if (code != STATUS_OK)
            statuses[i].code = (int32_t)code;
        else if (fault_hits(fault, FAKE_FAULT_ENTRY, digest->hash))
            statuses[i].code = (int32_t)fault->code;
        else if (blob == NULL || blob->have != blob->size)
            statuses[i].code = STATUS_NOT_FOUND;
        else {
            entries[i].data.len = blob->size;
            entries[i].data.data = malloc(blob->size + 1);
            ASSERT(entries[i].data.data != NULL);
            memcpy(entries[i].data.data, blob->data, blob->size);
            if (fault_hits(fault, FAKE_FAULT_WRONG_BYTES, digest->hash))
                entries[i].data.data[0] ^= 1;
        }
        pthread_mutex_unlock(&cas->mutex);
        response.responses[response.n_responses++] = &entries[i];
        if (fault_hits(fault, FAKE_FAULT_TWICE, digest->hash)) {
            const size_t again = request->n_digests + i;
            REAPI_CALL(batch_read_blobs_response__response__init(&entries[again]));
            google__rpc__status__init(&statuses[again]);
            entries[again].digest = digest;
            entries[again].status = &statuses[again];
            statuses[again].code = (int32_t)fault->code;
            response.responses[response.n_responses++] = &entries[again];
        }
    }
    reply_with(call, &response.base);
    for (size_t i = 0; i < request->n_digests; i++)
        free(entries[i].data.data);
    free(response.responses);
    free(statuses);
    free(entries);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

/* ".../blobs/HASH/SIZE" */
static void parse_name(const char *name, char hex[DIGEST_HASH_HEX_MAX + 1], size_t *size)
{
    const char *blobs = strstr(name, "blobs/");
    unsigned long long number = 0;
    hex[0] = '\0';
    if (blobs != NULL && sscanf(blobs, "blobs/%128[0-9a-f]/%llu", hex, &number) != 2)
        hex[0] = '\0';
    *size = (size_t)number;
}

static void finish_write(struct fake_call *call, int64_t committed)
{
    Google__Bytestream__WriteResponse response = GOOGLE__BYTESTREAM__WRITE_RESPONSE__INIT;
    response.committed_size = committed;
    reply_with(call, &response.base);
}

/* True while the stream goes on. */
static bool take_write(struct fake_cas *cas,
                       struct fake_call *call,
                       const struct fake_fault *fault,
                       const Google__Bytestream__WriteRequest *request,
                       char hex[DIGEST_HASH_HEX_MAX + 1],
                       uint64_t *came)
{
    size_t size = 0;
    if (hex[0] == '\0')
        parse_name(request->resource_name, hex, &size);
    pthread_mutex_lock(&cas->mutex);
    struct fake_blob *blob = find_locked(cas, hex);
    if (blob == NULL)
        blob = make_locked(cas, hex, size);
    const bool was_there = blob->have == blob->size && *came == 0;
    const bool fits = request->write_offset >= 0 && (size_t)request->write_offset <= blob->have &&
                      (size_t)request->write_offset + request->data.len <= blob->size;
    if (!was_there && fits) {
        memcpy(blob->data + request->write_offset, request->data.data, request->data.len);
        blob->have = (size_t)request->write_offset + request->data.len;
        cas->write_bytes += request->data.len;
    }
    *came += request->data.len;
    const struct bytes data = bytes_of(blob->data, blob->have);
    const bool whole = blob->have == blob->size;
    pthread_mutex_unlock(&cas->mutex);

    const bool cut = fault->method != NULL && *came >= fault->after_bytes &&
                     (fault->kind == FAKE_FAULT_STATUS || fault->kind == FAKE_FAULT_EARLY_END);
    /* Before the answer is out: the client may send it again as soon as it has that. */
    if (was_there || !fits || cut || (request->finish_write && whole))
        stored(cas, hex);
    if (was_there) {
        finish_write(call, (int64_t)data.length);
    } else if (!fits) {
        fake_call_finish(call, STATUS_ABORTED, "not at this offset", NULL);
    } else if (cut && fault->kind == FAKE_FAULT_STATUS) {
        fake_call_finish(call, fault->code, "cut by the test", NULL);
    } else if (cut && fault->kind == FAKE_FAULT_EARLY_END) {
        finish_write(call, (int64_t)fault->after_bytes);
    } else if (request->finish_write && whole) {
        struct digest digest;
        char actual[DIGEST_HASH_HEX_MAX + 1];
        digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
        if (strcmp(digest_hex(&digest, actual), hex) == 0) {
            finish_write(call, (int64_t)data.length);
        } else {
            pthread_mutex_lock(&cas->mutex);
            blob->have = 0;
            pthread_mutex_unlock(&cas->mutex);
            fake_call_finish(call, STATUS_INVALID_ARGUMENT, "not the digest's bytes", NULL);
        }
    } else {
        return true;
    }
    return false;
}

static void serve_write(struct fake_cas *cas,
                        struct fake_call *call,
                        const struct fake_fault *fault)
{
    char hex[DIGEST_HASH_HEX_MAX + 1] = "";
    uint64_t came = 0;
    for (bool more = true; more;) {
        uint8_t *message;
        size_t length;
        if (!fake_call_receive(call, &message, &length)) {
            stored(cas, hex);
            fake_call_finish(call, STATUS_CANCELLED, "the stream ended early", NULL);
            return;
        }
        pthread_mutex_lock(&cas->mutex);
        if (length > cas->largest_message_bytes)
            cas->largest_message_bytes = length;
        pthread_mutex_unlock(&cas->mutex);
        Google__Bytestream__WriteRequest *request =
            google__bytestream__write_request__unpack(NULL, length, message);
        ASSERT(request != NULL);
        if (hex[0] == '\0') {
            size_t size;
            parse_name(request->resource_name, hex, &size);
            storing(cas, hex);
            hex[0] = '\0';
            if (cas->store_pause_ms > 0)
                usleep(cas->store_pause_ms * 1000);
        }
        more = take_write(cas, call, fault, request, hex, &came);
        google__bytestream__write_request__free_unpacked(request, NULL);
        free(message);
    }
}

static bool send_data(struct fake_call *call, const uint8_t *data, size_t length)
{
    Google__Bytestream__ReadResponse response = GOOGLE__BYTESTREAM__READ_RESPONSE__INIT;
    uint8_t *copy = malloc(length + 1);
    ASSERT(copy != NULL);
    memcpy(copy, data, length);
    response.data.data = copy;
    response.data.len = length;
    const size_t packed_length = google__bytestream__read_response__get_packed_size(&response);
    uint8_t *packed = malloc(packed_length + 1);
    ASSERT(packed != NULL);
    google__bytestream__read_response__pack(&response, packed);
    const bool ok = fake_call_send(call, bytes_of(packed, packed_length));
    free(packed);
    free(copy);
    return ok;
}

static void serve_read(struct fake_cas *cas, struct fake_call *call, const struct fake_fault *fault)
{
    Google__Bytestream__ReadRequest *request =
        request_of(cas, call, &google__bytestream__read_request__descriptor);
    if (request == NULL)
        return;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    size_t size;
    parse_name(request->resource_name, hex, &size);
    const uint64_t offset = (uint64_t)request->read_offset;
    google__bytestream__read_request__free_unpacked(request, NULL);

    const bool planned = fault->method != NULL;
    if (planned && fault->kind == FAKE_FAULT_MALFORMED) {
        const uint8_t junk[] = {0xff, 0xff, 0xff};
        fake_call_send(call, bytes_of(junk, sizeof(junk)));
        fake_call_finish(call, STATUS_OK, "", NULL);
        return;
    }
    pthread_mutex_lock(&cas->mutex);
    const struct fake_blob *blob = find_locked(cas, hex);
    const bool there = blob != NULL && blob->have == blob->size && blob->size == size;
    pthread_mutex_unlock(&cas->mutex);
    if (!there) {
        fake_call_finish(call, STATUS_NOT_FOUND, "no such blob", NULL);
        return;
    }
    if (offset > size) {
        fake_call_finish(call, STATUS_OUT_OF_RANGE, "beyond the end", NULL);
        return;
    }
    uint64_t end = size;
    if (planned && (fault->kind == FAKE_FAULT_STATUS || fault->kind == FAKE_FAULT_EARLY_END))
        end = offset + fault->after_bytes < size ? offset + fault->after_bytes : size;
    for (uint64_t at = offset; at < end;) {
        uint8_t message[READ_MESSAGE_BYTES];
        const size_t length =
            end - at < READ_MESSAGE_BYTES ? (size_t)(end - at) : READ_MESSAGE_BYTES;
        memcpy(message, blob->data + at, length);
        if (planned && fault->kind == FAKE_FAULT_WRONG_BYTES && at == offset)
            message[0] ^= 1;
        if (!send_data(call, message, length))
            break;
        at += length;
    }
    if (atomic_load(&cas->read_end_pause_ms) > 0)
        usleep(atomic_load(&cas->read_end_pause_ms) * 1000);
    if (planned && fault->kind == FAKE_FAULT_TOO_MANY_BYTES)
        send_data(call, (const uint8_t *)"x", 1);
    if (planned && fault->kind == FAKE_FAULT_STATUS)
        fake_call_finish(call, fault->code, "cut by the test", NULL);
    else
        fake_call_finish(call, STATUS_OK, "", NULL);
}

static void serve_query(struct fake_cas *cas, struct fake_call *call)
{
    Google__Bytestream__QueryWriteStatusRequest *request =
        request_of(cas, call, &google__bytestream__query_write_status_request__descriptor);
    if (request == NULL)
        return;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    size_t size;
    parse_name(request->resource_name, hex, &size);
    protobuf_c_message_free_unpacked(&request->base, NULL);
    Google__Bytestream__QueryWriteStatusResponse response =
        GOOGLE__BYTESTREAM__QUERY_WRITE_STATUS_RESPONSE__INIT;
    pthread_mutex_lock(&cas->mutex);
    struct fake_blob *blob = find_locked(cas, hex);
    if (cas->unfinished_bytes_max > 0 && blob != NULL && blob->have < blob->size &&
        blob->have > cas->unfinished_bytes_max)
        blob->have = cas->unfinished_bytes_max;
    response.committed_size = blob != NULL ? (int64_t)blob->have : 0;
    response.complete = blob != NULL && blob->have == blob->size;
    pthread_mutex_unlock(&cas->mutex);
    reply_with(call, &response.base);
}

static struct fake_blob *find_locked(struct fake_cas *cas, const char *hex)
{
    struct fake_blob *blob = cas->blobs;
    while (blob != NULL && strcmp(blob->hex, hex) != 0)
        blob = blob->next;
    return blob;
}

static struct fake_blob *make_locked(struct fake_cas *cas, const char *hex, size_t size)
{
    struct fake_blob *blob = calloc(1, sizeof(*blob));
    ASSERT(blob != NULL);
    snprintf(blob->hex, sizeof(blob->hex), "%s", hex);
    blob->size = size;
    blob->data = malloc(size + 1);
    ASSERT(blob->data != NULL);
    blob->next = cas->blobs;
    cas->blobs = blob;
    return blob;
}

void fake_cas_put(struct fake_cas *cas, struct bytes data, struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, digest);
    ASSERT(store(cas, digest_hex(digest, hex), (int64_t)data.length, data) == STATUS_OK);
}

bool fake_cas_has(struct fake_cas *cas, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    pthread_mutex_lock(&cas->mutex);
    const struct fake_blob *blob = find_locked(cas, digest_hex(digest, hex));
    const bool there = blob != NULL && blob->have == blob->size;
    pthread_mutex_unlock(&cas->mutex);
    return there;
}

uint8_t *fake_cas_copy(struct fake_cas *cas, const struct digest *digest)
{
    if (!fake_cas_has(cas, digest))
        return NULL;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    pthread_mutex_lock(&cas->mutex);
    const struct fake_blob *blob = find_locked(cas, digest_hex(digest, hex));
    uint8_t *copy = malloc(blob->size + 1);
    ASSERT(copy != NULL);
    memcpy(copy, blob->data, blob->size);
    pthread_mutex_unlock(&cas->mutex);
    return copy;
}

size_t fake_cas_blob_count(struct fake_cas *cas)
{
    size_t whole = 0;
    pthread_mutex_lock(&cas->mutex);
    for (const struct fake_blob *blob = cas->blobs; blob != NULL; blob = blob->next)
        whole += blob->have == blob->size ? 1 : 0;
    pthread_mutex_unlock(&cas->mutex);
    return whole;
}

unsigned fake_cas_calls(struct fake_cas *cas, const char *method)
{
    unsigned calls = 0;
    pthread_mutex_lock(&cas->mutex);
    for (size_t i = 0; i < FAKE_METHODS_MAX && cas->counts[i].method[0] != '\0'; i++)
        calls += strcmp(cas->counts[i].method, method) == 0 ? cas->counts[i].calls : 0;
    pthread_mutex_unlock(&cas->mutex);
    return calls;
}

unsigned fake_cas_live_max(struct fake_cas *cas, const char *method)
{
    unsigned live_max = 0;
    pthread_mutex_lock(&cas->mutex);
    for (size_t i = 0; i < FAKE_METHODS_MAX && cas->counts[i].method[0] != '\0'; i++)
        live_max += strcmp(cas->counts[i].method, method) == 0 ? cas->counts[i].live_max : 0;
    pthread_mutex_unlock(&cas->mutex);
    return live_max;
}
