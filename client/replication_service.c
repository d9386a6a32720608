/* SPDX-License-Identifier: Apache-2.0 */
#include "client/replication_service.h"

#include <stdlib.h>

#include "client/call.h"
#include "client/messages.h"
#include "client/unary.h"

enum {
    RECORDS_A_CALL = 10000, /* the server tells fewer when they would not fit into a message */
    /* A reader that is outrun by evictions so often never gets to the end. */
    RESTARTS_MAX = 100,
};

static bool feed(struct client *client,
                 const struct feed_request *request,
                 struct feed_page *page,
                 struct status *status);
static bool take_page(const struct feed_page *page,
                      const struct feed_request *request,
                      const struct log_reader *reader,
                      struct status *status);
static bool check_record(const struct feed_record *record, struct status *status);
static bool note_forgotten(void *argument, const struct feed_record *record, struct status *status);

bool replication_read_log(struct client *client,
                          enum feed_lane lane,
                          const struct log_reader *reader,
                          struct status *status)
{
    struct feed_request request = {
        .lane = lane, .max_records = RECORDS_A_CALL, .follower_name = ""};
    uint64_t end_seq = UINT64_MAX; /* known with the first answer */
    unsigned restarts = 0;
    while (request.after_seq < end_seq) {
        struct feed_page page = {0};
        struct status failure = {0};
        if (!feed(client, &request, &page, &failure)) {
            if (failure.code != STATUS_OUT_OF_RANGE || ++restarts > RESTARTS_MAX) {
                *status = failure;
                return false;
            }
            request.after_seq = 0; /* what lived in the records that are gone comes later */
            continue;
        }
        if (end_seq == UINT64_MAX)
            end_seq = page.durable_seq;
        const bool ok = take_page(&page, &request, reader, status);
        request.after_seq = page.next_after_seq;
        request.node_uid = page.node_uid;
        feed_page_free(&page);
        if (!ok)
            return false;
    }
    return true;
}

static bool feed(struct client *client,
                 const struct feed_request *request,
                 struct feed_page *page,
                 struct status *status)
{
    grpc_byte_buffer *reply;
    if (!unary_call(client, METHOD_FEED, feed_request_message(request), &reply, status))
        return false;
    const bool ok = feed_page_decode(reply, RECORDS_A_CALL, page, status);
    grpc_byte_buffer_destroy(reply);
    if (!ok)
        status_prefix(status, "Feed");
    return ok;
}

/* What would make the reading endless is an error. */
static bool take_page(const struct feed_page *page,
                      const struct feed_request *request,
                      const struct log_reader *reader,
                      struct status *status)
{
    if (page->next_after_seq <= request->after_seq && page->durable_seq > request->after_seq)
        return status_fail(status, STATUS_INTERNAL,
                           "Feed: the server holds record %llu and tells of none after %llu",
                           (unsigned long long)page->durable_seq,
                           (unsigned long long)request->after_seq);
    for (size_t i = 0; i < page->count; i++) {
        const struct feed_record *record = &page->records[i];
        /* Kinds that later servers may have are passed over. */
        if (record->kind != FEED_BLOB && record->kind != FEED_MANIFEST &&
            record->kind != FEED_ACTION && record->kind != FEED_FORGET)
            continue;
        if (!check_record(record, status) || !reader->take(reader->argument, record, status))
            return false;
    }
    return true;
}

static bool check_record(const struct feed_record *record, struct status *status)
{
    return (record->digest.function == DIGEST_FUNCTION_SHA256 &&
            record->digest.hash_length == SHA256_HASH_BYTES && record->digest.size_bytes >= 0) ||
           status_fail(status, STATUS_INTERNAL,
                       "Feed: record %llu has no digest that is understood here",
                       (unsigned long long)record->seq);
}

/* FORGETs are records of the small lane, whichever they are about. */
bool replication_read_forgotten(struct client *client,
                                struct digest_map *forgotten,
                                struct status *status)
{
    const struct log_reader reader = {.take = note_forgotten, .argument = forgotten};
    return replication_read_log(client, FEED_LANE_SMALL, &reader, status);
}

static bool note_forgotten(void *argument, const struct feed_record *record, struct status *status)
{
    struct digest_map *forgotten = argument;
    if (record->kind != FEED_FORGET || record->forgotten_kind == FEED_ACTION)
        return true;
    bool is_new;
    if (forgotten->count < REPLICATION_FORGOTTEN_MAX &&
        digest_map_insert(forgotten, &record->digest, &is_new) != NULL)
        return true;
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                       "no memory for more than %zu blobs that were deleted", forgotten->count);
}

bool replication_peers(struct client *client,
                       Varve__V1__PeersResponse **peers,
                       struct status *status)
{
    grpc_byte_buffer *reply;
    if (!unary_call(client, METHOD_REPLICATION_PEERS, grpc_empty_slice(), &reply, status))
        return false;
    size_t length;
    uint8_t *flat = message_flat(reply, &length);
    grpc_byte_buffer_destroy(reply);
    *peers = flat != NULL ? varve__v1__peers_response__unpack(NULL, length, flat) : NULL;
    free(flat);
    return *peers != NULL ||
           status_fail(status, STATUS_INTERNAL, "Peers: the server's answer is malformed");
}

const char *replication_peer_state_name(int state)
{
    switch (state) {
    case VARVE__V1__PEER__STATE__STATE_CONNECTING:
        return "connecting";
    case VARVE__V1__PEER__STATE__STATE_CATCHING_UP:
        return "catching up";
    case VARVE__V1__PEER__STATE__STATE_UP_TO_DATE:
        return "up to date";
    case VARVE__V1__PEER__STATE__STATE_REFUSED:
        return "refused";
    default:
        return "unknown";
    }
}
