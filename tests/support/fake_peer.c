/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "google/bytestream/bytestream.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "tests/support/reapi_names.h"

enum { READ_MESSAGE_BYTES = 64 * 1024, FETCH_MESSAGE_BYTES = 1 << 20, SERVER_PAGE_MAX = 10000 };

typedef Varve__V1__FeedRequest feed_request_message;
typedef Varve__V1__FeedRecord feed_record_message;
typedef Varve__V1__FetchedRecord fetched_record_message;

static void serve(void *argument, struct fake_call *call);
static void serve_feed(struct fake_peer *peer, struct fake_call *call);
static void serve_fetch(struct fake_peer *peer, struct fake_call *call);
static void serve_batch(struct fake_peer *peer, struct fake_call *call);
static void serve_read(struct fake_peer *peer, struct fake_call *call);
static void serve_action(struct fake_peer *peer, struct fake_call *call);
static void serve_find_missing(struct fake_peer *peer, struct fake_call *call);

void fake_peer_start(struct fake_peer *peer, uint64_t uid)
{
    *peer = (struct fake_peer){.uid = uid};
    ASSERT(pthread_mutex_init(&peer->mutex, NULL) == 0);
    ASSERT(pthread_cond_init(&peer->changed, NULL) == 0);
    for (int lane = 0; lane < 2; lane++) {
        peer->records[lane] = calloc(FAKE_PEER_RECORDS_MAX, sizeof(struct fake_record));
        ASSERT(peer->records[lane] != NULL);
    }
    fake_peer_come(peer);
}

void fake_peer_come(struct fake_peer *peer)
{
    peer->server = fake_server_start(serve, peer);
}

void fake_peer_go(struct fake_peer *peer)
{
    if (peer->server != NULL)
        fake_server_stop(peer->server);
    peer->server = NULL;
}

void fake_peer_stop(struct fake_peer *peer)
{
    fake_peer_go(peer);
    for (int lane = 0; lane < 2; lane++) {
        for (size_t i = 0; i < peer->counts[lane]; i++)
            free(peer->records[lane][i].data);
        free(peer->records[lane]);
    }
    pthread_cond_destroy(&peer->changed);
    pthread_mutex_destroy(&peer->mutex);
}

const char *fake_peer_target(const struct fake_peer *peer)
{
    return fake_server_target(peer->server);
}

void fake_peer_lock(struct fake_peer *peer)
{
    ASSERT(pthread_mutex_lock(&peer->mutex) == 0);
}

void fake_peer_unlock(struct fake_peer *peer)
{
    ASSERT(pthread_mutex_unlock(&peer->mutex) == 0);
}

/* ---- its log */

static struct fake_record *add_locked(struct fake_peer *peer, int lane, int kind, struct bytes data)
{
    ASSERT(peer->counts[lane] < FAKE_PEER_RECORDS_MAX);
    struct fake_record *const record = &peer->records[lane][peer->counts[lane]];
    /* Gaps, as records that are not told leave them. */
    record->seq = peer->counts[lane] == 0 ? 3 : peer->records[lane][peer->counts[lane] - 1].seq + 2;
    record->kind = kind;
    record->data = malloc(data.length + 1);
    ASSERT(record->data != NULL);
    if (data.length > 0)
        memcpy(record->data, data.data, data.length);
    record->length = data.length;
    peer->counts[lane]++;
    pthread_cond_broadcast(&peer->changed);
    return record;
}

uint64_t fake_peer_put(struct fake_peer *peer, struct bytes data, struct digest *digest)
{
    const bool small = data.length <= LIMIT_SMALL_BLOB_BYTES;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, digest);
    fake_peer_lock(peer);
    struct fake_record *const record =
        add_locked(peer, small ? FAKE_PEER_SMALL : FAKE_PEER_LARGE,
                   small ? VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB
                         : VARVE__V1__RECORD_KIND__RECORD_KIND_MANIFEST,
                   data);
    record->digest = *digest;
    const uint64_t seq = record->seq;
    fake_peer_unlock(peer);
    return seq;
}

uint64_t fake_peer_put_action(struct fake_peer *peer,
                              const struct digest *action,
                              struct bytes result,
                              int64_t written_ns,
                              uint64_t origin_uid)
{
    fake_peer_lock(peer);
    struct fake_record *const record =
        add_locked(peer, FAKE_PEER_SMALL, VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION, result);
    record->digest = *action;
    record->written_ns = written_ns;
    record->origin_uid = origin_uid;
    const uint64_t seq = record->seq;
    fake_peer_unlock(peer);
    return seq;
}

uint64_t fake_peer_forget(struct fake_peer *peer, const struct digest *digest, int forgotten_kind)
{
    fake_peer_lock(peer);
    struct fake_record *const record = add_locked(
        peer, FAKE_PEER_SMALL, VARVE__V1__RECORD_KIND__RECORD_KIND_FORGET, bytes_of(NULL, 0));
    record->digest = *digest;
    record->forgotten_kind = forgotten_kind;
    record->written_ns = 1;
    record->origin_uid = peer->uid;
    const uint64_t seq = record->seq;
    fake_peer_unlock(peer);
    return seq;
}

static bool is_blob(const struct fake_record *record)
{
    return record->kind == VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB ||
           record->kind == VARVE__V1__RECORD_KIND__RECORD_KIND_MANIFEST;
}

static struct fake_record *find_locked(struct fake_peer *peer, const char *hash_hex)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    for (int lane = 0; lane < 2; lane++)
        for (size_t i = 0; i < peer->counts[lane]; i++) {
            struct fake_record *const record = &peer->records[lane][i];
            if (is_blob(record) && strcmp(digest_hex(&record->digest, hex), hash_hex) == 0)
                return record;
        }
    return NULL;
}

void fake_peer_lose(struct fake_peer *peer, const struct digest *digest, bool lost)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    fake_peer_lock(peer);
    struct fake_record *const record = find_locked(peer, digest_hex(digest, hex));
    ASSERT(record != NULL);
    record->lost = lost;
    fake_peer_unlock(peer);
}

/* ---- calls */

static void serve(void *argument, struct fake_call *call)
{
    struct fake_peer *const peer = argument;
    const char *const method = fake_call_method(call);
    fake_peer_lock(peer);
    const bool black_hole = peer->black_hole;
    const unsigned pause_ms = peer->pause_ms;
    const char *const wants = peer->wants;
    fake_peer_unlock(peer);
    struct bytes shown;
    if (wants != NULL && (fake_call_metadata(call, "authorization", &shown) == NULL ||
                          !bytes_equal_string(shown, wants))) {
        fake_call_finish(call, STATUS_UNAUTHENTICATED, "another token, please", NULL);
        return;
    }
    if (black_hole) {
        fake_call_hang(call);
        return;
    }
    if (pause_ms > 0 && strcmp(method, "Feed") != 0)
        usleep(pause_ms * 1000);
    if (strcmp(method, "Feed") == 0)
        serve_feed(peer, call);
    else if (strcmp(method, "Fetch") == 0)
        serve_fetch(peer, call);
    else if (strcmp(method, "BatchReadBlobs") == 0)
        serve_batch(peer, call);
    else if (strcmp(method, "Read") == 0)
        serve_read(peer, call);
    else if (strcmp(method, "GetActionResult") == 0)
        serve_action(peer, call);
    else if (strcmp(method, "FindMissingBlobs") == 0)
        serve_find_missing(peer, call);
    else
        fake_call_finish(call, STATUS_UNIMPLEMENTED, "not here", NULL);
}

static void *request_of(struct fake_call *call, const ProtobufCMessageDescriptor *descriptor)
{
    uint8_t *message = NULL;
    size_t length = 0;
    if (!fake_call_receive(call, &message, &length)) {
        fake_call_finish(call, STATUS_INVALID_ARGUMENT, "no request", NULL);
        return NULL;
    }
    void *const request = protobuf_c_message_unpack(descriptor, NULL, length, message);
    free(message);
    ASSERT(request != NULL);
    return request;
}

static struct bytes packed(const ProtobufCMessage *message)
{
    const size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *const memory = malloc(length + 1);
    ASSERT(memory != NULL);
    protobuf_c_message_pack(message, memory);
    return bytes_of(memory, length);
}

static void reply_with(struct fake_call *call, const ProtobufCMessage *message)
{
    const struct bytes reply = packed(message);
    fake_call_finish(call, STATUS_OK, "", &reply);
    free((uint8_t *)(uintptr_t)reply.data);
}

static void junk(struct fake_call *call, size_t length)
{
    uint8_t *const memory = malloc(length);
    ASSERT(memory != NULL);
    memset(memory, 0xff, length);
    const struct bytes reply = bytes_of(memory, length);
    fake_call_finish(call, STATUS_OK, "", &reply);
    free(memory);
}

static void tell(const struct fake_record *record, feed_record_message *told)
{
    varve__v1__feed_record__init(told);
    told->seq = record->seq;
    told->kind = (Varve__V1__RecordKind)record->kind;
    told->forgotten_kind = (Varve__V1__RecordKind)record->forgotten_kind;
    told->digest_function = record->digest.function;
    told->hash.data = (uint8_t *)(uintptr_t)record->digest.hash;
    told->hash.len = record->digest.hash_length;
    told->size_bytes = (uint64_t)record->digest.size_bytes;
    told->stored_bytes = record->length;
    told->written_unix_ns = record->written_ns;
    told->origin_uid = record->origin_uid;
    told->instance_name = (char *)(uintptr_t)record->instance;
    if (record->kind == VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION) {
        told->action_result.data = record->data;
        told->action_result.len = record->length;
        told->writer.data = (uint8_t *)(uintptr_t) "fake";
        told->writer.len = 4;
    }
}

static void twist(enum fake_lie lie, Varve__V1__FeedResponse *page)
{
    feed_record_message *const first = page->n_records > 0 ? page->records[0] : NULL;
    if (lie == FAKE_LIE_SEQ_BACK && first != NULL && page->n_records > 1)
        page->records[1]->seq = first->seq - 1;
    if (lie == FAKE_LIE_NEXT_BACK && first != NULL && page->n_records > 1)
        page->next_after_seq = first->seq;
    if (lie == FAKE_LIE_UNKNOWN_FUNCTION && first != NULL)
        first->digest_function = 77;
    if (lie == FAKE_LIE_UNKNOWN_KIND && first != NULL)
        first->kind = (Varve__V1__RecordKind)9;
    if (lie == FAKE_LIE_WRONG_LANE && first != NULL)
        first->kind = VARVE__V1__RECORD_KIND__RECORD_KIND_MANIFEST;
    if (lie == FAKE_LIE_IMPOSSIBLE_SIZE && first != NULL)
        first->size_bytes = UINT64_MAX;
    if (lie == FAKE_LIE_STANDSTILL && page->n_records > 0) {
        page->next_after_seq = 0;
        page->n_records = 0;
    }
}

static void wait_locked(struct fake_peer *peer, int lane, const feed_request_message *request)
{
    struct timespec until;
    ASSERT(clock_gettime(CLOCK_REALTIME, &until) == 0);
    /* Shorter than was asked: the server must be able to stop. */
    const unsigned wait_ms = request->wait_ms < 300 ? request->wait_ms : 300;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    for (;;) {
        const size_t count = peer->counts[lane];
        if (count > 0 && peer->records[lane][count - 1].seq > request->after_seq)
            return;
        if (wait_ms == 0 || pthread_cond_timedwait(&peer->changed, &peer->mutex, &until) != 0)
            return;
    }
}

static void serve_feed(struct fake_peer *peer, struct fake_call *call)
{
    feed_request_message *const request = request_of(call, &varve__v1__feed_request__descriptor);
    if (request == NULL)
        return;
    const int lane = request->lane == VARVE__V1__LANE__LANE_SMALL ? 0 : 1;
    Varve__V1__FeedResponse page;
    varve__v1__feed_response__init(&page);
    fake_peer_lock(peer);
    peer->feeds++;
    if (request->max_records > 0)
        wait_locked(peer, lane, request);
    if (request->follower_uid != 0) {
        peer->follower_uid = request->follower_uid;
        peer->follower_durable[lane] = request->follower_durable_seq;
        pthread_cond_broadcast(&peer->changed);
    }
    const size_t count = peer->counts[lane];
    const uint64_t durable = count > 0 ? peer->records[lane][count - 1].seq : 0;
    const char *refusal = NULL;
    enum status_code code = STATUS_OK;
    if (request->node_uid != 0 && request->node_uid != peer->uid) {
        code = STATUS_FAILED_PRECONDITION;
        refusal = "another store";
    } else if (request->after_seq > durable) {
        code = STATUS_FAILED_PRECONDITION;
        refusal = "beyond the log";
    } else if (lane == 0 && request->after_seq != 0 && request->after_seq < peer->evicted_to_seq) {
        code = STATUS_OUT_OF_RANGE;
        refusal = "evicted";
    }
    size_t most = request->max_records < SERVER_PAGE_MAX ? request->max_records : SERVER_PAGE_MAX;
    if (peer->page_records > 0 && most > peer->page_records)
        most = peer->page_records;
    const enum fake_lie lie = peer->lie;
    feed_record_message *const told = calloc(count + 1, sizeof(*told));
    page.records = calloc(count + 1, sizeof(*page.records));
    ASSERT(told != NULL && page.records != NULL);
    page.node_uid = peer->uid;
    page.durable_seq = durable;
    page.next_after_seq = durable;
    page.behind_bytes = peer->behind_bytes;
    page.write_time_ns = peer->write_time_ns;
    if (lie == FAKE_LIE_MANY_RECORDS && request->max_records > 0)
        most = count;
    for (size_t i = 0; i < count; i++) {
        const struct fake_record *const record = &peer->records[lane][i];
        if (record->seq <= request->after_seq || (lane == 0 && record->seq < peer->evicted_to_seq))
            continue;
        if (page.n_records == most) {
            page.next_after_seq = most > 0 ? page.records[most - 1]->seq : request->after_seq;
            break;
        }
        tell(record, &told[page.n_records]);
        page.records[page.n_records] = &told[page.n_records];
        page.n_records++;
    }
    twist(lie, &page);
    fake_peer_unlock(peer);
    const bool asks = request->max_records > 0;
    if (refusal != NULL)
        fake_call_finish(call, code, refusal, NULL);
    else if (asks && lie == FAKE_LIE_MALFORMED)
        junk(call, 100);
    else if (asks && lie == FAKE_LIE_HUGE_PAGE)
        junk(call, 20 << 20);
    else
        reply_with(call, &page.base);
    free(page.records);
    free(told);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

/* A copy as the lie has it; the length. */
static uint8_t *copy_of(const struct fake_record *record, enum fake_lie lie, size_t *length)
{
    uint8_t *const copy = malloc(record->length + 2);
    ASSERT(copy != NULL);
    memcpy(copy, record->data, record->length);
    copy[record->length] = 'x';
    if (lie == FAKE_LIE_WRONG_BYTES)
        copy[0] ^= 1;
    *length = record->length + (lie == FAKE_LIE_TOO_MANY_BYTES);
    return copy;
}

static void count_sent(struct fake_peer *peer, uint64_t blobs, uint64_t bytes)
{
    fake_peer_lock(peer);
    peer->blobs_sent += blobs;
    peer->bytes_sent += bytes;
    fake_peer_unlock(peer);
}

static bool send_fetched(struct fake_call *call, Varve__V1__FetchResponse *response)
{
    const struct bytes message = packed(&response->base);
    const bool ok = fake_call_send(call, message);
    free((uint8_t *)(uintptr_t)message.data);
    for (size_t i = 0; i < response->n_records; i++)
        free(response->records[i]->payload.data);
    response->n_records = 0;
    return ok;
}

static void serve_fetch(struct fake_peer *peer, struct fake_call *call)
{
    Varve__V1__FetchRequest *const request =
        request_of(call, &varve__v1__fetch_request__descriptor);
    if (request == NULL)
        return;
    fake_peer_lock(peer);
    peer->fetches++;
    const bool known = !peer->no_fetch;
    const bool hangs = peer->fetch_hangs;
    const enum fake_lie lie = peer->lie;
    const size_t count = peer->counts[0];
    fake_peer_unlock(peer);
    fetched_record_message *const sent = calloc(count + 1, sizeof(*sent));
    Varve__V1__FetchResponse response;
    varve__v1__fetch_response__init(&response);
    response.records = calloc(count + 1, sizeof(*response.records));
    ASSERT(sent != NULL && response.records != NULL);
    size_t bytes = 0;
    bool ok = known;
    do {
        for (size_t i = 0; i < count && ok; i++) {
            const struct fake_record *const record = &peer->records[0][i];
            if (record->kind != VARVE__V1__RECORD_KIND__RECORD_KIND_BLOB || record->lost ||
                record->seq <= request->after_seq || record->seq > request->through_seq)
                continue;
            if (lie == FAKE_LIE_ENDLESS && record->seq + 1 >= request->through_seq)
                continue;
            fetched_record_message *const one = &sent[i];
            varve__v1__fetched_record__init(one);
            one->seq = record->seq;
            one->digest_function = record->digest.function;
            one->hash.data = (uint8_t *)(uintptr_t)record->digest.hash;
            one->hash.len = record->digest.hash_length;
            one->size_bytes = (uint64_t)record->digest.size_bytes;
            one->payload.data = copy_of(record, lie, &one->payload.len);
            if (lie == FAKE_LIE_OTHER_BLOB)
                one->hash.data =
                    (uint8_t *)(uintptr_t)peer->records[0][(i + 1) % count].digest.hash;
            response.records[response.n_records++] = one;
            bytes += record->length;
            count_sent(peer, 1, record->length);
            if (bytes >= FETCH_MESSAGE_BYTES) {
                ok = send_fetched(call, &response);
                bytes = 0;
            }
        }
        if (response.n_records > 0)
            ok = send_fetched(call, &response) && ok;
    } while (ok && lie == FAKE_LIE_ENDLESS);
    if (hangs)
        fake_call_hang(call);
    else
        fake_call_finish(call, known ? STATUS_OK : STATUS_UNIMPLEMENTED, "", NULL);
    free(sent);
    free(response.records);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static void serve_batch(struct fake_peer *peer, struct fake_call *call)
{
    REAPI(BatchReadBlobsRequest) *const request =
        request_of(call, &REAPI_DESCRIPTOR(batch_read_blobs_request));
    if (request == NULL)
        return;
    REAPI(BatchReadBlobsResponse) response;
    REAPI_INIT(batch_read_blobs_response, &response);
    REAPI(BatchReadBlobsResponse__Response) *const entries =
        calloc(request->n_digests + 1, sizeof(*entries));
    Google__Rpc__Status *const statuses = calloc(request->n_digests + 1, sizeof(*statuses));
    response.responses = calloc(request->n_digests + 1, sizeof(*response.responses));
    ASSERT(entries != NULL && statuses != NULL && response.responses != NULL);
    fake_peer_lock(peer);
    peer->batches++;
    for (size_t i = 0; i < request->n_digests; i++) {
        const struct fake_record *const record = find_locked(peer, request->digests[i]->hash);
        REAPI_INIT(batch_read_blobs_response__response, &entries[i]);
        google__rpc__status__init(&statuses[i]);
        entries[i].digest = request->digests[i];
        entries[i].status = &statuses[i];
        if (record == NULL || record->lost) {
            statuses[i].code = STATUS_NOT_FOUND;
        } else {
            entries[i].data.data = copy_of(record, peer->lie, &entries[i].data.len);
            peer->blobs_sent++;
            peer->bytes_sent += record->length;
        }
        response.responses[response.n_responses++] = &entries[i];
    }
    fake_peer_unlock(peer);
    reply_with(call, &response.base);
    for (size_t i = 0; i < request->n_digests; i++)
        free(entries[i].data.data);
    free(entries);
    free(statuses);
    free(response.responses);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}

static bool send_data(struct fake_call *call, const uint8_t *data, size_t length)
{
    Google__Bytestream__ReadResponse response;
    google__bytestream__read_response__init(&response);
    response.data.data = (uint8_t *)(uintptr_t)data;
    response.data.len = length;
    const struct bytes message = packed(&response.base);
    const bool ok = fake_call_send(call, message);
    free((uint8_t *)(uintptr_t)message.data);
    return ok;
}

static void serve_read(struct fake_peer *peer, struct fake_call *call)
{
    Google__Bytestream__ReadRequest *const request =
        request_of(call, &google__bytestream__read_request__descriptor);
    if (request == NULL)
        return;
    char hex[DIGEST_HASH_HEX_MAX + 1] = "";
    unsigned long long size = 0;
    const char *const blobs = strstr(request->resource_name, "blobs/");
    ASSERT(blobs != NULL && sscanf(blobs, "blobs/%128[0-9a-f]/%llu", hex, &size) == 2);
    uint64_t at = (uint64_t)request->read_offset;
    protobuf_c_message_free_unpacked(&request->base, NULL);

    fake_peer_lock(peer);
    peer->reads++;
    if (++peer->read_live > peer->read_live_max)
        peer->read_live_max = peer->read_live;
    const enum fake_lie lie = peer->lie;
    const struct fake_record *const record = find_locked(peer, hex);
    const bool there = record != NULL && !record->lost && record->length == size;
    uint64_t end = size;
    bool cut = false;
    if (peer->read_cuts > 0 && peer->read_cut_at < size) {
        cut = true;
        end = peer->read_cut_at > at ? peer->read_cut_at : at;
        peer->read_cuts--;
    }
    fake_peer_unlock(peer);
    bool ok = there;
    uint64_t sent = 0;
    while (ok && at < end) {
        uint8_t piece[READ_MESSAGE_BYTES];
        const size_t length = end - at < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);
        memcpy(piece, record->data + at, length);
        if (lie == FAKE_LIE_WRONG_BYTES && at == 0)
            piece[0] ^= 1;
        ok = send_data(call, piece, length);
        at += length;
        sent += length;
    }
    count_sent(peer, ok && !cut, sent);
    if (ok && lie == FAKE_LIE_TOO_MANY_BYTES)
        send_data(call, (const uint8_t *)"x", 1);
    while (ok && lie == FAKE_LIE_ENDLESS)
        ok = send_data(call, record->data, READ_MESSAGE_BYTES);
    fake_peer_lock(peer);
    peer->read_live--;
    fake_peer_unlock(peer);
    if (!there)
        fake_call_finish(call, STATUS_NOT_FOUND, "no such blob", NULL);
    else
        fake_call_finish(call, cut ? STATUS_UNAVAILABLE : STATUS_OK, "cut by the test", NULL);
}

/* The newest result of the action, if all is there is not looked at. */
static void serve_action(struct fake_peer *peer, struct fake_call *call)
{
    REAPI(GetActionResultRequest) *const request =
        request_of(call, &REAPI_DESCRIPTOR(get_action_result_request));
    if (request == NULL)
        return;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    const struct fake_record *found = NULL;
    fake_peer_lock(peer);
    peer->actions_asked++;
    for (size_t i = 0; i < peer->counts[0]; i++) {
        const struct fake_record *const record = &peer->records[0][i];
        if (record->kind == VARVE__V1__RECORD_KIND__RECORD_KIND_ACTION && !record->lost &&
            strcmp(digest_hex(&record->digest, hex), request->action_digest->hash) == 0)
            found = record;
    }
    fake_peer_unlock(peer);
    protobuf_c_message_free_unpacked(&request->base, NULL);
    if (found == NULL) {
        fake_call_finish(call, STATUS_NOT_FOUND, "no such action", NULL);
        return;
    }
    const struct bytes reply = bytes_of(found->data, found->length);
    fake_call_finish(call, STATUS_OK, "", &reply);
}

/* FAKE_LIE_OTHER_BLOB: what is missing is called so in the wrong order. */
static void serve_find_missing(struct fake_peer *peer, struct fake_call *call)
{
    REAPI(FindMissingBlobsRequest) *const request =
        request_of(call, &REAPI_DESCRIPTOR(find_missing_blobs_request));
    if (request == NULL)
        return;
    REAPI(FindMissingBlobsResponse) response;
    REAPI_INIT(find_missing_blobs_response, &response);
    REAPI(Digest) **const missing = calloc(request->n_blob_digests + 1, sizeof(*missing));
    ASSERT(missing != NULL);
    fake_peer_lock(peer);
    peer->finds++;
    peer->digests_asked += request->n_blob_digests;
    for (size_t i = 0; i < request->n_blob_digests; i++) {
        const size_t at = peer->lie == FAKE_LIE_OTHER_BLOB ? request->n_blob_digests - 1 - i : i;
        const struct fake_record *const record = find_locked(peer, request->blob_digests[at]->hash);
        if (record == NULL || record->lost)
            missing[response.n_missing_blob_digests++] = request->blob_digests[at];
    }
    fake_peer_unlock(peer);
    response.missing_blob_digests = missing;
    reply_with(call, &response.base);
    free(missing);
    protobuf_c_message_free_unpacked(&request->base, NULL);
}
